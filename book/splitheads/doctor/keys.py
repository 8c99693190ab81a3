"""The keys of a configuration, and `read`: from what a reader wrote to a `Config` that the rules can trust.

Nothing is judged here except the form. What is given wins over a config.json, that over a named model, that over what
weight shapes tell; `Config.origin` says for every key where its value came from.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

from splitheads import backends, cost, models
from splitheads.doctor import families
from splitheads.doctor.huggingface import looks_like_huggingface, read_file, yarn_scale
from splitheads.doctor.report import Finding
from splitheads.doctor.values import LARGEST, ConfigError, choice, kind_of, name, number, printable, show, truth, whole
from splitheads.doctor.weights import ROLES, infer, last, out_of_range, role_of
from splitheads.partition import MAX_WIDTH
from splitheads.words import listing, nearest

GROUPS = (
    ("model", "where the numbers come from"),
    ("split", "the split"),
    ("attention", "the kind of attention"),
    ("kernel", "the call and the machine"),
    ("sharding", "many GPUs"),
    ("checkpoint", "existing weights"),
    ("change", "changes to existing heads"),
)
"""Name of a group of keys, and its title for people."""

KEYS = {
    "model": ("model", "model", "a published model; fills in what is not given", "Llama 3 8B"),
    "config": (
        "config",
        "model",
        "a Hugging Face config.json, as an object; keys beside it win",
        {"model_type": "bert"},
    ),
    "d_model": ("whole", "split", "width of the residual stream, in columns", 1024),
    "n_heads": ("whole", "split", "query heads", 16),
    "n_kv_heads": ("whole", "split", "key/value heads (default: n_heads)", 8),
    "d_head": ("whole", "split", "columns of one query or key head (default: d_model / n_heads)", 64),
    "d_head_v": ("whole", "split", "columns of one value head (default: d_head)", 128),
    "attention_head_dim": ("whole", "split", "as diffusers has it: may be a head count", 8),
    "n_layers": ("whole", "split", "layers that keep keys and values", 32),
    "attention": ("attention", "attention", "mha, gqa, mqa or mla", "gqa"),
    "kv_latent": ("whole", "attention", "width of the latent that MLA caches", 512),
    "q_latent": ("whole", "attention", "width of the latent of MLA's queries", 1536),
    "rope_dim": ("whole", "attention", "columns of an MLA head that RoPE turns", 64),
    "rope": ("truth", "attention", "rotary position embedding", True),
    "rotary_pct": ("number", "attention", "share of d_head that RoPE turns (default: 1)", 0.25),
    "bias": ("bias", "attention", "biases: true (all four projections), false, or qkv, qvo, o", "qkv"),
    "scale": ("number", "attention", "factor of the scores (default: 1 / sqrt(d_head))", 0.125),
    "device": ("device", "kernel", "a GPU's name or capability, or cpu", "a100"),
    "torch": ("torch", "kernel", f"version of torch (default: {backends.TORCH_VERSIONS[-1]})", "2.13.0"),
    "dtype": ("dtype", "kernel", "fp64, fp32, bf16, fp16, fp8 or int8", "bf16"),
    "attn_implementation": ("implementation", "kernel", "sdpa, flash_attention_2, flex_attention or eager", "sdpa"),
    "training": ("truth", "kernel", "whether gradients are needed", True),
    "dropout": ("number", "kernel", "probability given to the attention call", 0.1),
    "mask": ("mask", "kernel", "bool or float: a mask is passed", "bool"),
    "is_causal": ("truth", "kernel", "the keyword of that name", True),
    "seq_q": ("whole", "kernel", "queries, in tokens", 256),
    "seq_k": ("whole", "kernel", "keys, in tokens (default: seq_q)", 4096),
    "batch": ("whole", "kernel", "sequences in one call", 2),
    "enable_gqa": ("truth", "kernel", "the keyword of that name", True),
    "unbatched": ("truth", "kernel", "3-D input, without a batch dimension", False),
    "tp": ("whole", "sharding", "tensor-parallel (or Ulysses) size", 8),
    "stack": ("stack", "sharding", "whose rule holds: vllm, hf or ulysses", "vllm"),
    "checkpoint_n_heads": ("whole", "checkpoint", "query heads that the weights were trained with", 16),
    "checkpoint_n_kv_heads": ("whole", "checkpoint", "key/value heads that they were trained with", 16),
    "checkpoint_d_model": ("whole", "checkpoint", "their d_model", 1024),
    "checkpoint_d_head": ("whole", "checkpoint", "their d_head", 64),
    "checkpoint_scale": ("number", "checkpoint", "factor of the scores that they were trained with", 0.125),
    "weight_shapes": (
        "shapes",
        "checkpoint",
        "shapes as [out, in], from which missing keys follow",
        {"k_proj": [1024, 4096]},
    ),
    "prune_heads": ("heads", "change", "how many heads to remove, or a list of which", 4),
    "pad_d_head_to": ("whole", "change", "width that every head is zero-padded to", 96),
}
"""Key -> (kind, group, what it is, an example). The kind names the check in `_value`."""

ALIASES = {
    "hidden_size": "d_model",
    "embed_dim": "d_model",
    "embed_dims": "d_model",
    "emb_dim": "d_model",
    "embedding_dim": "d_model",
    "model_dim": "d_model",
    "n_embd": "d_model",
    "dim": "d_model",
    "width": "d_model",
    "channels": "d_model",
    "num_heads": "n_heads",
    "nhead": "n_heads",
    "n_head": "n_heads",
    "heads": "n_heads",
    "num_attention_heads": "n_heads",
    "num_key_value_heads": "n_kv_heads",
    "num_kv_heads": "n_kv_heads",
    "n_head_kv": "n_kv_heads",
    "kv_heads": "n_kv_heads",
    "num_query_groups": "n_kv_heads",
    "head_dim": "d_head",
    "head_size": "d_head",
    "d_kv": "d_head",
    "kv_channels": "d_head",
    "v_head_dim": "d_head_v",
    "num_layers": "n_layers",
    "n_layer": "n_layers",
    "layers": "n_layers",
    "num_hidden_layers": "n_layers",
    "kv_lora_rank": "kv_latent",
    "q_lora_rank": "q_latent",
    "qk_rope_head_dim": "rope_dim",
    "partial_rotary_factor": "rotary_pct",
    "rotary_percent": "rotary_pct",
    "torch_dtype": "dtype",
    "gpu": "device",
    "torch_version": "torch",
    "dropout_p": "dropout",
    "attn_mask": "mask",
    "causal": "is_causal",
    "seq": "seq_q",
    "seq_len": "seq_q",
    "batch_size": "batch",
    "tp_size": "tp",
    "tensor_parallel": "tp",
    "tensor_parallel_size": "tp",
    "softmax_scale": "scale",
    "use_bias": "bias",
    "attention_bias": "bias",
}
"""Other names -> key. Accepted, and noted."""

ATTENTION = ("mha", "gqa", "mqa", "mla")
BIASES = ("qkv", "qvo", "o")
"""Projections that have a bias, where not all or none have one: Qwen2, Whisper, GPT-Neo."""
IMPLEMENTATIONS = ("sdpa", "flash_attention_2", "flex_attention", "eager")
STACKS = ("vllm", "hf", "ulysses")

_ATTENTION_ALIASES = {"multi_head": "mha", "grouped_query": "gqa", "multi_query": "mqa", "multi_head_latent": "mla"}
_IMPLEMENTATION_ALIASES = {
    "flash": "flash_attention_2",
    "flash_attention": "flash_attention_2",
    "flash_attn": "flash_attention_2",
    "flash_attn_2": "flash_attention_2",
    "fa2": "flash_attention_2",
    "flex": "flex_attention",
    "math": "eager",
}
_STACK_ALIASES = {"sglang": "vllm", "transformers": "hf", "huggingface": "hf", "hugging_face": "hf", "verl": "ulysses"}

_DEVICES = (
    "cpu", "mps", "t4", "rtx 2080", "a100", "a10", "a40", "rtx 3090", "l4", "l40s", "rtx 4090", "h100", "h200", "b200", "rtx 5090",
)  # fmt: skip
"""Names to suggest for a device that is not known."""

# Latent widths of the table's MLA models: (kv_latent, rope_dim, q_latent). Their configs: transformers 5.24.0
# (DeepseekV3Config, MiniCPM3Config, GlmMoeDsaConfig), DeepSeek-V2 inference/configs/config_236B.json, maxtext kimi-k2-1t.yml.
MLA_WIDTHS = {
    "DeepSeek-V2": (512, 64, 1536),
    "DeepSeek-V3": (512, 64, 1536),
    "Kimi K2": (512, 64, 1536),
    "MiniCPM3-4B": (256, 32, 768),
    "GLM-5": (512, 64, 2048),
}


# YaRN in the released config.json files of the table's MLA models: (factor, mscale_all_dim), and where they stand.
YARN = {
    "DeepSeek-V2": (
        40,
        0.707,
        "deepseek-ai/DeepSeek-V2-Chat config.json, in llama.cpp issue 7118; maxtext deepseek2-236b.yml",
    ),
    "DeepSeek-V3": (40, 1, "deepseek-ai/DeepSeek-V3 config.json; deepseek-ai/DeepSeek-V3 inference/model.py"),
    "Kimi K2": (32, 1, "moonshotai/Kimi-K2-Instruct config.json; maxtext kimi-k2-1t.yml"),
}

UNSCALED = ("T5", "Gemma 4")
"""Families whose scores are not scaled at all: transformers 5.24.0, modeling_t5.py and modeling_gemma4.py."""

TRAINED = ("attention", "d_head_v", "kv_latent", "q_latent", "rope_dim")
"""Keys of a source that its weights depend on and that have no checkpoint_ key of their own."""


@dataclass(frozen=True)
class Config:
    """A configuration as given, filled in from a config.json, a named model and weight shapes; None where not known.

    The fields are the keys of KEYS. `device` is a key of backends.DEVICES, and `device_name` what was written.
    about: what a config.json or a named model tells beside the keys: kind (its class), title, layers (that attend), window
    and windowed (layers that keep only so many tokens), alike, gated, cache ("none", "decoder" or "").
    trained: the keys of TRAINED as a model or config.json has them, where the reader changes its heads or widths.
    origin: key -> "given", "config.json", "model" or "weights". notes: findings made while reading.
    values: the keys that are known, in the order of KEYS, in JSON types.
    """

    model: str | None = None
    d_model: int | None = None
    n_heads: int | None = None
    n_kv_heads: int | None = None
    d_head: int | None = None
    d_head_v: int | None = None
    attention_head_dim: int | None = None
    n_layers: int | None = None
    attention: str | None = None
    kv_latent: int | None = None
    q_latent: int | None = None
    rope_dim: int | None = None
    rope: bool | None = None
    rotary_pct: float | None = None
    bias: bool | str | None = None
    scale: float | None = None
    device: str | None = None
    device_name: str | None = None
    torch: str | None = None
    dtype: str | None = None
    attn_implementation: str | None = None
    training: bool | None = None
    dropout: float | None = None
    mask: str | None = None
    is_causal: bool | None = None
    seq_q: int | None = None
    seq_k: int | None = None
    batch: int | None = None
    enable_gqa: bool | None = None
    unbatched: bool | None = None
    tp: int | None = None
    stack: str | None = None
    checkpoint_n_heads: int | None = None
    checkpoint_n_kv_heads: int | None = None
    checkpoint_d_model: int | None = None
    checkpoint_d_head: int | None = None
    checkpoint_scale: float | None = None
    weight_shapes: dict | None = None
    prune_heads: int | list | None = None
    pad_d_head_to: int | None = None
    trained: dict | None = None
    about: dict | None = None
    origin: dict | None = None
    notes: tuple = ()
    values: dict | None = None


def read(config: Any) -> Config:
    """The configuration that a dict means: our keys, other names for them, or a Hugging Face config.json.

    Raises ConfigError for what is no configuration: an unknown key, a value of the wrong type, an unknown model, device
    or dtype, NaN. Numbers out of range are kept: what they mean is for the rules to say.
    """
    if not isinstance(config, dict):
        raise ConfigError(
            f'A configuration is an object of keys and values, such as {{"d_model": 768, "n_heads": 12}}; this is '
            f"{show(config)}."
        )
    if not any(value is not None for value in config.values()):
        raise ConfigError(
            'Nothing is given. Give d_model and n_heads, such as {"d_model": 768, "n_heads": 12}, or a model.'
        )
    notes: list = []
    values: dict = {}
    origin: dict = {}
    _given(_apart(config) if looks_like_huggingface(config) else config, values, origin, notes)
    device_name = values.pop("device_name", None)
    about: dict | None = None
    if "config" in values:
        offered, remarks, about = read_file(values.pop("config"))
        origin.pop("config", None)
        notes.extend(remarks)
        _fill(_checked(offered), "config.json", "the config.json", values, origin, notes)
    if "model" in values:
        model = _model(values["model"])
        if not models.is_name(values["model"], model):
            notes.append(
                Finding(
                    "alias", "note", f"{show(values['model'])} is read as {model.name}, of the table.", chapter="doctor"
                )
            )
        values["model"] = model.name
        if about is None:
            about = families.about_row(model)
        if model.name in families.ATTENDING and "n_layers" not in values:
            left = families.ATTENDING[model.name]
            notes.append(
                Finding(
                    "layers-without-kv",
                    "note",
                    f"{model.n_layers - left} of {model.n_layers} layers keep no keys and values; n_layers counts the other {left}.",
                    source=model.source,
                    chapter="doctor",
                )
            )
        _fill(_offered(model), "model", model.name, values, origin, notes)
    if "attention_head_dim" in values:
        _head_dim_or_count(values, origin, notes)
    if "weight_shapes" in values:
        infer(values, origin, notes)
    ordered = {key: values[key] for key in KEYS if key in values}
    return replace(
        Config(),
        **values,
        device_name=device_name,
        about=about,
        origin=origin,
        notes=tuple(notes),
        values=ordered,
    )


# What is given ------------------------------------------------------------------------------------

# Keys of ours that no config.json has, or that mean the same there: they may stand among a config.json's own.
_BESIDE = (
    "model", "config", "device", "torch", "training", "mask", "is_causal", "seq_q", "seq_k", "enable_gqa", "unbatched", "tp",
    "stack", "checkpoint_n_heads", "checkpoint_n_kv_heads", "checkpoint_d_model", "checkpoint_d_head",
    "checkpoint_scale", "weight_shapes", "prune_heads", "pad_d_head_to",
)  # fmt: skip


def _apart(config: dict) -> dict:
    """A config.json with keys of ours among its own, as our keys with the config.json as one of them."""
    beside = {key: config[key] for key in _BESIDE if key in config}
    return {**beside, "config": {key: config[key] for key in config if key not in beside}}


def _given(config: dict, values: dict, origin: dict, notes: list) -> None:
    """Check everything that was written, under its own name or another."""
    written: dict = {}
    for word in config:
        if not isinstance(word, str):
            raise ConfigError(f'A key is a text, such as "d_model"; {show(word)} is not.')
        key = word if word in KEYS else ALIASES.get(word)
        if key is None:
            raise _unknown(word)
        if config[word] is None:
            continue
        value = _value(key, word, config[word])
        if value is None:
            continue
        if key in values:
            if values[key] != value:
                raise ConfigError(
                    f"{written[key]} = {show(values[key])} and {word} = {show(value)} mean the same key, {key}. Give it "
                    "once.",
                    key=key,
                )
            continue
        if key != word:
            notes.append(Finding("alias", "note", f"{word} is read as {key} = {show(value)}.", chapter="doctor"))
        if isinstance(config[word], (int, float)) and not isinstance(config[word], bool) and abs(value) == LARGEST:
            notes.append(
                Finding(
                    "clamped", "note", f"{word} has more than 15 digits, and is read as {LARGEST}.", chapter="doctor"
                )
            )
        if key == "device":
            values["device_name"] = config[word].strip()[:80]
            notes.extend(_nearest_device(config[word].strip()[:80]))
        values[key], origin[key], written[key] = value, "given", word


def _unknown(word: str) -> ConfigError:
    """The error for a word that is no key, with the nearest that are."""
    near: list = []
    for other in nearest(word, [*KEYS, *ALIASES], 6):
        key = ALIASES.get(other, other)
        if key not in near:
            near.append(key)
    if near:
        hint = f"The nearest key is {near[0]}" + (f" (then {listing(near[1:3])})." if near[1:3] else ".")
    else:
        hint = f"The keys are d_model, n_heads, n_kv_heads, d_head, model, device, tp and {len(KEYS) - 7} more."
    return ConfigError(f"{show(word)} is not a key. {hint}", key=word[:80])


def _value(key: str, word: str, value: Any) -> Any:
    """The value of `key`, checked and in its plain form; None where it says that there is none."""
    kind, _, _, example = KEYS[key]
    if kind == "whole":
        return whole(word, value, example)
    if kind == "number":
        return number(word, value, example)
    if kind == "truth":
        return truth(word, value)
    if kind == "mask":
        return _mask(word, value)
    if kind == "bias":
        return _bias(word, value)
    if kind == "attention":
        return choice(word, value, ATTENTION, _ATTENTION_ALIASES)
    if kind == "implementation":
        _not_covered(word, value)
        return choice(word, value, IMPLEMENTATIONS, _IMPLEMENTATION_ALIASES)
    if kind == "stack":
        return choice(word, value, STACKS, _STACK_ALIASES)
    if kind == "dtype":
        return _dtype(word, value)
    if kind == "device":
        return _device(word, value)
    if kind == "torch":
        return _torch(word, value)
    if kind == "model":
        return name(word, value, example)[:200]
    if kind == "heads":
        return _heads(word, value)
    if kind == "shapes":
        return _shapes(word, value)
    if not isinstance(value, dict):
        raise ConfigError(f"{word} = {show(value)} is {kind_of(value)}, not the object that a config.json is.", key=key)
    return value


def _mask(word: str, value: Any) -> str | None:
    if isinstance(value, bool):
        return "bool" if value else None
    if isinstance(value, str) and value.strip().lower() in ("none", "no", ""):
        return None
    if isinstance(value, str) and value.strip().lower() == "causal":
        raise ConfigError(
            f'{word} = "causal": a mask is "bool" or "float". For a causal triangle without a mask give is_causal: true.',
            key="mask",
        )
    if not isinstance(value, str):
        raise ConfigError(f'{word} = {show(value)} is {kind_of(value)}. Give "bool", "float" or "none".', key="mask")
    return choice(word, value, ("bool", "float"), {"boolean": "bool", "additive": "float"})


def _bias(word: str, value: Any) -> bool | str:
    if isinstance(value, str):
        return choice(word, value, BIASES, {"kqv": "qkv", "qv_o": "qvo", "out": "o"})
    if not isinstance(value, bool):
        raise ConfigError(
            f'{word} = {show(value)} is {kind_of(value)}. Give true, false, or the projections that have a bias: "qkv", "qvo" or "o".',
            key="bias",
        )
    return value


def _not_covered(word: str, value: Any) -> None:
    """Implementations that transformers has and this report knows nothing of."""
    if isinstance(value, str) and re.search(
        r"(flash[_ -]?(attention|attn)|fa)[_ -]?[34]|^paged|^kernels|/", value.strip().lower()[:60]
    ):
        raise ConfigError(
            f'{word} = {show(value)} is a name that transformers knows, but which heads it takes is not covered here. Give "sdpa" or '
            '"flash_attention_2" to be told about those, or leave it out.',
            key="attn_implementation",
        )


def _dtype(word: str, value: Any) -> str:
    text = name(word, value, "bf16")
    try:
        return cost.dtype_key(text[:40])
    except cost.CostError as error:
        raise ConfigError(f"{error}", key="dtype") from None


_AMD = r"\bmi ?\d{2,3}[a-z]?\b|radeon|instinct|\bamd\b|gfx ?\d|rocm|\brx ?\d{3,4}\b"
_OTHER_MAKERS = r"\btpu|\bnpu\b|\bxpu\b|\bhpu\b|gaudi|trainium|inferentia|ascend|\bintel\b|\barc\b"
_NO_MODEL = r"(cuda|gpu|nvidia|nvidia gpu|geforce|tesla|rtx|auto|accelerator)( ?:? ?\d{1,2})?"
_RTX_6000 = r"(nvidia |quadro )?rtx ?6000"


def _device(word: str, value: Any) -> str:
    """The key of a device; of one that is not covered, the nearest that is (`_given` tells)."""
    text = name(word, value, "a100")
    plain = re.sub(r"[\s_-]+", " ", text[:80].lower()).strip()
    try:
        return backends.device_key(text[:80])
    except backends.UnknownPlatform as error:
        if error.nearest is not None and _is_near(f"{error}"):
            return error.nearest
        if re.search(_AMD, plain):
            why = "AMD's GPUs are not covered: the table holds what PyTorch picks on NVIDIA GPUs, Apple's, and CPUs. Leave device out, or name one of those"
        elif re.search(_OTHER_MAKERS, plain):
            why = "only NVIDIA GPUs, Apple's (mps) and cpu are covered. Leave device out, or name one of those"
        elif re.fullmatch(_RTX_6000, plain):
            why = 'three cards have that name. Give "quadro rtx 6000" (Turing), "rtx 6000 ada" or "rtx pro 6000" (Blackwell)'
        elif re.fullmatch(_NO_MODEL, plain):
            why = "which GPU? Give its name, such as a100 or rtx4090, or its compute capability, such as sm80 (torch.cuda.get_device_capability())"
        else:
            near = [] if error.nearest else [one for one in nearest(text[:40], _DEVICES, 6) if one[:1] == plain[:1]]
            hint = f" Did you mean {near[0]}?" if near else ""
            raise ConfigError(f"{error}{hint}", key="device") from None
        raise ConfigError(f"{word} = {show(value)}: {why}.", key="device") from None


def _is_near(message: str) -> bool:
    """Whether the device that a message of UnknownPlatform is about is one that torch runs on: compute capability 5.0 to 13."""
    found = re.search(r"\(sm([0-9]+)\)", message)
    return found is not None and 50 <= int(found[1]) < 140


def _nearest_device(text: str) -> list:
    """A finding where a device is answered for by its neighbour."""
    try:
        backends.device_key(text)
    except backends.UnknownPlatform as error:
        message = f"{error}".partition(" Known:")[0]
        return [
            Finding(
                "nearest-platform",
                "note",
                f"{message} The kernel is answered for {error.nearest}.",
                source="PyTorch's own selector, wheels 2.8.0 to 2.15.0 (chapter The fast path)",
                chapter="fast-path",
            )
        ]
    return []


def _torch(word: str, value: Any) -> str:
    text = name(word, value, backends.TORCH_VERSIONS[-1])
    try:
        backends.release(text[:40])
    except backends.UnknownPlatform as error:
        raise ConfigError(f"{error}", key="torch") from None
    return text[:40]


def _heads(word: str, value: Any) -> int | list:
    if not isinstance(value, (list, tuple)):
        return whole(word, value, "4 (or a list of heads, such as [0, 5])")
    if len(value) > 65_536:
        raise ConfigError(
            f"{word} names {len(value)} heads. No layer has that many; give their number instead.", key=word
        )
    return [whole(f"{word}[{place}]", head, 0) for place, head in enumerate(value)]


def _shapes(word: str, value: Any) -> dict:
    if not isinstance(value, dict):
        raise ConfigError(
            f'{word} = {show(value)} is {kind_of(value)}. Give an object such as {{"k_proj": [1024, 4096]}}.', key=word
        )
    shapes: dict = {}
    for weight in value:
        if not isinstance(weight, str):
            raise ConfigError(f"{word}: the name of a weight is a text; {show(weight)} is not.", key=word)
        if role_of(weight) is None:
            near = nearest(last(weight), [*ROLES], 1)
            hint = f"Did you mean {near[0]}? " if near else ""
            raise ConfigError(
                f"{word}: {show(weight)} is no attention weight that is known here. {hint}Known: q_proj, k_proj, v_proj, "
                "o_proj and qkv_proj, and names that end in them.",
                key=word,
            )
        shape = value[weight]
        if not isinstance(shape, (list, tuple)) or len(shape) != 2:
            raise ConfigError(
                f"{word}: the shape of {show(weight)} is {show(shape)}. Give [out, in], such as [1024, 4096].", key=word
            )
        shapes[weight] = [
            whole(f"{word}: out of {printable(weight[-40:])}", shape[0], 1024),
            whole(f"{word}: in of {printable(weight[-40:])}", shape[1], 4096),
        ]
    return shapes


def _checked(offered: dict) -> dict:
    """What a config.json says, in our keys, checked like everything else."""
    found: dict = {}
    for key in offered:
        value = None if offered[key] is None else _value(key, f"{key} of the config.json", offered[key])
        if value is not None:
            found[key] = value
    return found


# What follows from it -----------------------------------------------------------------------------


def _model(wanted: str) -> Any:
    """The row of the table. Raises ConfigError with the names that were perhaps meant."""
    try:
        return models.find(wanted)
    except models.UnknownModel as error:
        raise ConfigError(f"{error}", key="model") from None


def _offered(model: Any) -> dict:
    """What a model of the table tells, in our keys."""
    offered = {
        "d_model": model.d_model,
        "n_heads": model.n_heads,
        "n_kv_heads": model.n_kv_heads,
        "d_head": model.d_head,
        "d_head_v": model.d_head_v,
        "n_layers": model.n_layers,
        "attention": model.attention,
    }
    if model.name in families.ATTENDING:
        offered["n_layers"] = families.ATTENDING[model.name]
    offered["bias"] = families.bias_of_row(model)
    if model.name in MLA_WIDTHS:
        offered["kv_latent"], offered["rope_dim"], offered["q_latent"] = MLA_WIDTHS[model.name]
    offered["checkpoint_scale"] = _scale_of(model)
    return {key: offered[key] for key in offered if offered[key] is not None}


def _scale_of(model: Any) -> float | None:
    """The factor of a model's scores, where it is not 1 / sqrt(d_head)."""
    if model.name in YARN:
        factor, mscale, _ = YARN[model.name]
        return yarn_scale(model.d_head, factor, mscale)
    if model.family in UNSCALED:
        return 1.0
    stated = re.search(r"scores scaled by 1/sqrt\(([0-9]+)\)", model.note)
    return None if stated is None else 1 / sqrt(int(stated[1]))


def _whole(offered: dict, values: dict) -> dict:
    """What a source says, with what follows from it where the reader gives that: to find what he changes."""
    heads, width = offered.get("n_heads"), offered.get("d_model")
    whole = {**offered}
    if "n_kv_heads" not in whole and heads is not None and offered.get("attention") in (None, "mha"):
        whole["n_kv_heads"] = heads
    kv_heads = whole.get("n_kv_heads")
    if "attention" not in whole and heads is not None and kv_heads is not None:
        whole["attention"] = "mha" if kv_heads == heads else "mqa" if kv_heads == 1 else "gqa"
    if "d_head" not in whole and heads is not None and width is not None and heads > 0 and width % heads == 0:
        whole["d_head"] = width // heads
    if "d_head_v" not in whole and "d_head" in whole:
        whole["d_head_v"] = whole["d_head"]
    if "q_latent" not in whole and offered.get("attention") == "mla" and values.get("attention", "mla") == "mla":
        whole["q_latent"] = None
    return whole


def _fill(offered: dict, source: str, title: str, values: dict, origin: dict, notes: list) -> None:
    """Take what is not given from `offered`. What is given wins; where it differs, both values are named.

    The source's own heads and width count as the checkpoint's where the reader changes them.
    """
    whole = _whole(offered, values)
    differ = [key for key in whole if key in values and values[key] != whole[key]]
    for key in differ:
        notes.append(
            Finding(
                "overrides-model" if source == "model" else "overrides-config",
                "note",
                f"{key} = {show(values[key])} is taken as given; {title} has {'none' if whole[key] is None else show(whole[key])}.",
                chapter="doctor",
            )
        )
    heads, width = offered.get("n_heads"), offered.get("d_model")
    d_head, kv_heads = offered.get("d_head"), offered.get("n_kv_heads", heads)
    left = list(offered)
    # A head width that only repeats d_model / n_heads, and as many key/value heads as heads, follow those numbers when
    # they change. An explicit d_head and shared key/value heads stay.
    if d_head is None or heads is None or width == heads * d_head:
        left = [key for key in left if key != "d_head"]
    if kv_heads == heads and "n_heads" in differ:
        left = [key for key in left if key != "n_kv_heads"]
    if "attention" in differ:
        left = [key for key in left if key not in ("n_kv_heads", "kv_latent", "q_latent", "rope_dim")]
    if ("n_heads" in differ or "n_kv_heads" in differ) and "kv_latent" not in values:
        left = [key for key in left if key != "attention" or offered[key] == "mla"]
    # MLA's scale goes by the width of its heads; the others' are fixed numbers.
    if "attention" in differ or ("d_head" in differ and offered.get("attention") == "mla"):
        left = [key for key in left if key != "checkpoint_scale"]
    for key in left:
        if key not in values:
            values[key], origin[key] = offered[key], source
    if [key for key in ("d_model", "n_heads", "n_kv_heads", "d_head", *TRAINED) if key in differ]:
        # Head widths are the source's while the heads and the width that they belong to are.
        own = values.get("checkpoint_n_heads", heads) == heads and values.get("checkpoint_d_model", width) == width
        if own and "trained" not in values:
            values["trained"] = {
                key: whole[key]
                for key in TRAINED
                if isinstance(whole.get(key), str) or 1 <= (whole.get(key) or 0) <= MAX_WIDTH
            }
        for key, value in (
            ("checkpoint_n_heads", heads),
            ("checkpoint_n_kv_heads", kv_heads),
            ("checkpoint_d_model", width),
            ("checkpoint_d_head", whole.get("d_head") if own else None),
        ):
            if key not in values and value is not None:
                values[key], origin[key] = value, source


_DIFFUSERS = (
    "huggingface/diffusers issue 2011: in UNet2DConditionModel, attention_head_dim is passed on as the number of heads"
)


def _head_dim_or_count(values: dict, origin: dict, notes: list) -> None:
    """diffusers' attention_head_dim: a head count under the name of a width. Both readings are shown."""
    stated, width = values["attention_head_dim"], values.get("d_model")
    if stated < 1 or stated > MAX_WIDTH:
        notes.append(out_of_range("attention_head_dim", stated, 8))
        return
    if "n_heads" in values or "d_head" in values:
        notes.append(
            Finding(
                "ambiguous-head-dim",
                "note",
                f"attention_head_dim = {stated} is not used: n_heads or d_head is given, and says which is meant.",
                source=_DIFFUSERS,
                chapter="doctor",
            )
        )
        return
    values["n_heads"], origin["n_heads"] = stated, origin["attention_head_dim"]
    ways = ("If it is a head count, give n_heads instead.", "If it is a width, give d_head instead.")
    if width is None:
        text = f"{stated} heads in diffusers' UNet, or heads of {stated} columns if the name is taken at its word"
    else:
        count = f"{stated} heads"
        if width % stated == 0:
            count = f"{stated} heads of {width // stated} columns"
        other = f"{width // stated} heads of {stated} columns" if width % stated == 0 else f"heads of {stated} columns"
        text = (
            f"{count} at d_model = {width}, as diffusers' UNet2DConditionModel means it, or {other}, as the name says"
        )
        if width % stated == 0:
            ways = (
                f"If it is a head count, give n_heads = {stated} instead.",
                f"If it is a width, give n_heads = {width // stated} (and d_head = {stated}) instead.",
            )
    notes.append(
        Finding(
            "ambiguous-head-dim",
            "warning",
            f"attention_head_dim = {stated} can be read in two ways: {text}. Read here as a head count.",
            ways,
            _DIFFUSERS,
            "doctor",
        )
    )
