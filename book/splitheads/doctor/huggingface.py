"""Hugging Face's config.json in our keys: transformers, diffusers, and Meta's params.json.

Its names differ from model to model, and some mean something else than they say: `head_dim` may be absent, explicit, or
(with MLA in transformers 5) the rotary part only; Falcon's `num_kv_heads` is ignored under `multi_query`; diffusers'
`attention_head_dim` is a head count in one class and a width in others. Every such reading is told as a finding.
"""

from __future__ import annotations

from math import log2, sqrt
from typing import Any

from splitheads.doctor import families
from splitheads.doctor.report import Finding
from splitheads.doctor.values import ConfigError, show, whole
from splitheads.words import listing

NAMES = {
    "d_model": ("hidden_size", "d_model", "n_embd", "n_embed", "dim", "embed_dim", "emb_dim", "model_dim"),
    "n_heads": (
        "num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads", "decoder_attention_heads",
        "attention_heads", "num_encoder_attention_heads", "encoder_num_attention_heads",
    ),
    "n_kv_heads": ("num_key_value_heads", "num_kv_heads", "n_kv_heads", "n_head_kv", "num_query_groups"),
    "d_head": ("head_dim", "d_kv", "d_head", "kv_channels"),
    "n_layers": (
        "num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers", "num_encoder_layers",
        "encoder_num_hidden_layers",
    ),
}  # fmt: skip
"""Our key -> names in config.json, the first that is there counts."""

# What a class fills in where the config.json is silent: (d_model, n_heads, n_kv_heads, d_head, n_layers), None where it
# is worked out from the others. Read from the configuration classes of transformers 5.24.0.
DEFAULTS = {
    "bert": (768, 12, None, None, 12),
    "gpt2": (768, 12, None, None, 12),
    "opt": (768, 12, None, None, 12),
    "llama": (4096, 32, None, None, 32),
    "mistral": (4096, 32, 8, None, 32),
    "mixtral": (4096, 32, 8, None, 32),
    "qwen2": (4096, 32, 32, None, 32),
    "qwen3": (4096, 32, 32, 128, 32),
    "gemma": (3072, 16, 16, 256, 28),
    "gemma2": (2304, 8, 4, 256, 26),
    "gemma3_text": (2304, 8, 4, 256, 26),
    "gemma4_text": (2304, 8, 4, 256, 30),
    "gpt_oss": (2880, 64, 8, 64, 36),
    "falcon": (4544, 71, None, None, 32),
    "t5": (512, 8, None, 64, 6),
    "phi": (2048, 32, None, None, 24),
    "mpt": (2048, 16, None, None, 24),
}
_CLASSES = "the configuration classes of transformers 5.24.0"

_WITHOUT_ROPE = (
    "bert", "roberta", "xlm-roberta", "albert", "electra", "distilbert", "deberta", "deberta-v2", "gpt2", "gpt_bigcode",
    "openai-gpt", "gpt_neo", "opt", "bloom", "mpt", "t5", "mt5", "umt5", "bart", "mbart", "whisper", "vit", "clip",
    "siglip", "xlnet",
)  # fmt: skip
_WITH_ROPE = (
    "llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "gemma", "gemma2", "gemma3_text", "gemma4_text",
    "gpt_oss", "phi", "phi3", "gpt_neox", "gptj", "deepseek_v2", "deepseek_v3", "cohere", "cohere2", "olmo", "olmo2",
)  # fmt: skip

# Models that do not scale their scores, by the modeling files of transformers 5.24.0 (self.scaling = 1.0).
UNSCALED = {
    "t5": "T5",
    "mt5": "mT5",
    "umt5": "UMT5",
    "longt5": "LongT5",
    "switch_transformers": "Switch Transformers",
    "udop": "UDOP",
    "pop2piano": "Pop2Piano",
    "pix2struct_text_model": "Pix2Struct",
    "gpt_neo": "GPT-Neo",
    "gemma3n": "Gemma 3n",
    "gemma3n_text": "Gemma 3n",
    "gemma4": "Gemma 4",
    "gemma4_text": "Gemma 4",
    "gemma4_unified": "Gemma 4",
    "gemma4_unified_text": "Gemma 4",
    "diffusion_gemma_text": "DiffusionGemma",
}
_SCALAR_256 = ("gemma2", "gemma3_text", "vaultgemma")  # their classes fill in query_pre_attn_scalar = 256
_GRANITE = ("granite", "granitemoe", "granitemoeshared", "granitemoehybrid")  # and these attention_multiplier = 1
_LN_2 = 0.6931471805599453

_MARKS = (
    "model_type", "architectures", "transformers_version", "_class_name", "_diffusers_version", "text_config",
    "vision_config", "vocab_size", "max_position_embeddings", "intermediate_size", "rms_norm_eps", "layer_norm_eps",
    "layer_norm_epsilon", "initializer_range", "norm_eps", "multiple_of", "block_out_channels",
)  # fmt: skip

_FALCON = "transformers, models/falcon/modeling_falcon.py: num_kv_heads counts only with new_decoder_architecture or without multi_query"
_DIFFUSERS = "huggingface/diffusers issue 2011 and pull request 3797: in UNet2DConditionModel attention_head_dim is the number of heads"
_MLA = "transformers 5.24.0, models/deepseek_v3/configuration_deepseek_v3.py: qk_head_dim = qk_nope_head_dim + qk_rope_head_dim"


def looks_like_huggingface(config: dict) -> bool:
    """Whether this is a config.json rather than a configuration in our own keys."""
    return any(mark in config for mark in _MARKS)


def from_huggingface(config: Any) -> tuple:
    """(our keys, findings) for the object that a config.json holds.

    Of a model in several parts (text_config beside vision_config) the language part is read. Raises ConfigError where no
    head count or no width is found, where they differ from layer to layer, or where no layer attends.
    """
    keys, notes, _ = read_file(config)
    return keys, notes


def read_file(config: Any) -> tuple:
    """(our keys, findings, what is known of the model beside them: see `Config.about`)."""
    if not isinstance(config, dict):
        raise ConfigError(f"A config.json holds an object; this is {show(config)}.", key="config")
    notes: list = []
    if "_class_name" in config or "block_out_channels" in config:
        keys = _diffusers(config, notes)
        return (
            keys,
            notes,
            {"kind": "diffusers", "title": "the config.json", "cache": "none", "layers": keys.get("n_layers")},
        )
    part = _language_part(config, notes)
    keys: dict = {}
    kind = _text(part, "model_type") or _text(config, "model_type")
    families.refuse(kind, part)
    nested = part.get("attn_config") if isinstance(part.get("attn_config"), dict) else {}
    for key in NAMES:
        found = _number(part, NAMES[key])
        if found is not None:
            keys[key] = found
    if "kv_n_heads" in nested and nested["kv_n_heads"] is not None:
        keys["n_kv_heads"] = whole("attn_config.kv_n_heads", nested["kv_n_heads"], 8)
    _defaults(kind, part, keys, notes)
    _complete(kind, keys)
    if part.get("kv_lora_rank") is not None:
        _latent(kind, part, keys, notes)
    elif part.get("v_head_dim") is not None and whole("v_head_dim", part["v_head_dim"], 128) != keys.get("d_head"):
        keys["d_head_v"] = whole("v_head_dim", part["v_head_dim"], 128)
    _shared_heads(kind, part, nested, keys, notes)
    about = {
        "kind": kind,
        "title": "the config.json",
        "cache": families.cache_of(kind, part),
        "gated": kind in families.GATED,
    }
    _decoder(about, part, keys, notes)
    types = families.layers_of(kind, part, keys.get("n_layers"))
    window = families.window_of(kind, part, types, keys.get("n_layers"))
    if window is not None:
        about["window"], about["windowed"] = window
    _layers(kind, types, window is not None, part, keys, notes)
    about["layers"] = keys.get("n_layers")
    about["alike"] = (
        not [note for note in notes if note.id == "layers-differ"] and "swa_num_key_value_heads" not in part
    )
    _position(kind, part, nested, keys)
    _scale(kind, part, nested, keys, notes)
    dtype = _dtype(part) or _dtype(config)
    if dtype is not None:
        keys["dtype"] = dtype
    bias = families.bias_of(kind, part)
    if bias is not None:
        keys["bias"] = bias
    return keys, notes, about


def _note(id: str, message: str, source: str = "", severity: str = "note", ways: tuple = ()) -> Finding:
    return Finding(id, severity, message, ways, source, "doctor")


def _text(config: dict, key: str) -> str:
    value = config.get(key)
    return value if isinstance(value, str) else ""


def _number(config: dict, names: tuple) -> int | None:
    """The first of these names that has a value. Raises ConfigError where it differs from layer to layer."""
    for name in names:
        value = config.get(name)
        if isinstance(value, (list, tuple)):
            raise ConfigError(
                f"{name} of the config.json is {show(value)}: it differs from layer to layer. Give one layer's numbers, as "
                "d_model, n_heads and n_kv_heads.",
                key=name,
            )
        if value is not None:
            return whole(f"{name} of the config.json", value, 16)
    return None


def _language_part(config: dict, notes: list) -> dict:
    """The part of the config that describes the language model."""
    if isinstance(config.get("thinker_config"), dict):  # Qwen's Omni models, one level deeper
        return _language_part(config["thinker_config"], notes)
    for name in ("text_config", "llm_config", "language_config", "decoder"):
        part = config.get(name)
        if isinstance(part, dict) and (
            [n for n in NAMES["n_heads"] if n in part] or _text(part, "model_type") in DEFAULTS
        ):
            others = [
                other for other in ("vision_config", "audio_config", "encoder") if isinstance(config.get(other), dict)
            ]
            rest = f"; {listing(others)} is not looked at" if others else ""
            notes.append(_note("nested", f"The numbers are those of {name}{rest}."))
            return part
    return config


def _defaults(kind: str, part: dict, keys: dict, notes: list) -> None:
    """What the class fills in for a key that the file does not have. A key that is there as null is none of these."""
    if kind in DEFAULTS:
        filled: list = []
        for place, key in enumerate(("d_model", "n_heads", "n_kv_heads", "d_head", "n_layers")):
            value = DEFAULTS[kind][place]
            stated = [name for name in NAMES[key] if name in part]
            if key not in keys and value is not None and not stated:
                keys[key] = value
                filled.append(f"{key} = {value}")
        if filled:
            notes.append(
                _note("class-default", f"Not in the file, so the default of {kind} holds: {listing(filled)}.", _CLASSES)
            )


def _complete(kind: str, keys: dict) -> None:
    """Refuse a config without a width or a head count."""
    for key, what in (("n_heads", "head count"), ("d_model", "width")):
        if key not in keys:
            of = f" of model_type {show(kind)}" if kind else ""
            raise ConfigError(
                f"This config.json{of} has no {what} under a name known here ({', '.join(NAMES[key])}). Give {key} beside it.",
                key=key,
            )


def _latent(kind: str, part: dict, keys: dict, notes: list) -> None:
    """Multi-head latent attention: a head has a content part and a rotary part, and values have their own width."""
    content = _or_default(part, "qk_nope_head_dim", 128, kind, notes)
    turned = _or_default(part, "qk_rope_head_dim", 64, kind, notes)
    share = keys["d_model"] // keys["n_heads"] if keys["n_heads"] > 0 else content
    stated = keys.get("d_head")
    keys["attention"] = "mla"
    keys["d_head"] = content + turned
    keys["d_head_v"] = _or_default(part, "v_head_dim", share if kind == "minicpm3" else 128, kind, notes)
    keys["kv_latent"] = whole("kv_lora_rank", part["kv_lora_rank"], 512)
    keys["rope_dim"] = turned
    if part.get("q_lora_rank") is not None:
        keys["q_latent"] = whole("q_lora_rank", part["q_lora_rank"], 1536)
    # Every head has its own keys after the up-projection, whatever num_key_value_heads says.
    keys["n_kv_heads"] = keys["n_heads"]
    if stated is not None and stated != keys["d_head"]:
        text = (
            f"head_dim = {stated} is the rotary part only" if stated == turned else f"head_dim = {stated} is not used"
        )
        notes.append(
            _note(
                "head-dim-is-rope-part",
                f"{text}: queries and keys are {content} + {turned} = {content + turned} wide.",
                _MLA,
            )
        )


def _or_default(part: dict, name: str, default: int, kind: str, notes: list) -> int:
    if part.get(name) is not None:
        return whole(f"{name} of the config.json", part[name], default)
    notes.append(
        _note(
            "class-default", f"{name} is not in the file; {default} is taken, as {kind or 'DeepSeek'} has it.", _CLASSES
        )
    )
    return default


def _shared_heads(kind: str, part: dict, nested: dict, keys: dict, notes: list) -> None:
    """Where multi_query and the like decide about the key/value heads instead of a count."""
    if kind in ("falcon", "RefinedWeb", "RefinedWebModel"):
        # The first Falcon-40B files (RefinedWeb) have n_head_kv and none of the switches.
        new = part.get("new_decoder_architecture") is True or (
            kind == "RefinedWeb" and part.get("n_head_kv") is not None
        )
        if not new and part.get("multi_query") is not False:
            if keys.get("n_kv_heads", 1) != 1:
                notes.append(
                    _note(
                        "num-kv-heads-ignored",
                        f"num_kv_heads = {keys['n_kv_heads']} is ignored: with multi_query and without new_decoder_architecture "
                        "Falcon has one key/value head.",
                        _FALCON,
                    )
                )
            keys["n_kv_heads"] = 1
    if kind == "gpt_bigcode" and part.get("multi_query") is not False:
        keys["n_kv_heads"] = 1
    if part.get("multi_query_attention") is True and part.get("multi_query_group_num") is not None:
        keys["n_kv_heads"] = whole("multi_query_group_num", part["multi_query_group_num"], 2)
    if nested.get("attn_type") == "multiquery_attention":
        keys["n_kv_heads"] = 1


def _decoder(about: dict, part: dict, keys: dict, notes: list) -> None:
    """Of an encoder-decoder the decoder's layers and heads: those are the ones with a cache that grows."""
    if about["cache"] != "decoder":
        return
    for key, names in (
        ("n_layers", ("decoder_layers", "num_decoder_layers", "decoder_num_hidden_layers")),
        ("n_heads", ("decoder_attention_heads", "num_decoder_attention_heads", "decoder_num_attention_heads")),
    ):
        found = _number(part, names)
        if found is not None and found != keys.get(key):
            before = f"; the encoder has {keys[key]}" if key in keys else ""
            notes.append(_note("decoder-read", f"{key} = {found} is the decoder's{before}."))
            keys[key] = found


def _layers(kind: str, types: list | None, windowed: bool, part: dict, keys: dict, notes: list) -> None:
    """Layers that are not all alike: other head widths, or no keys and values at all."""
    if types is None:
        return
    names: list = []
    counts: list = []
    for one in types:
        if not isinstance(one, str):
            return
        if one in names:
            counts[names.index(one)] += 1
        elif len(names) < 8:
            names.append(one)
            counts.append(1)
    none = sum([counts[place] for place, name in enumerate(names) if not families.attends(name)])
    if len(names) > 1 and not (len(names) == 2 and (none or windowed)):  # the notes on those say as much
        parts = [f"{counts[place]} {show(name)[1:-1]}" for place, name in enumerate(names)]
        notes.append(_note("layer-types", f"Of {len(types)} layers there are {listing(parts)}."))
    if none and none == len(types):
        raise ConfigError(
            f"None of the {len(types)} layers of this config.json attends ({listing(names)}), so there are no heads to split and no "
            "KV cache. Give layer_types with an attention layer, or d_model and n_heads instead.",
            key="config",
        )
    if none and (keys.get("n_layers") == len(types) or kind == "nemotron_h"):
        keys["n_layers"] = len(types) - none
        notes.append(
            _note(
                "layers-without-kv",
                f"{none} of {len(types)} layers keep no keys and values; n_layers counts the other {len(types) - none}.",
            )
        )
    wide = part.get("global_head_dim")
    if wide is None and _text(part, "model_type") == "gemma4_text" and "global_head_dim" not in part:
        wide = 512
    if wide is not None and "full_attention" in names and wide != keys.get("d_head"):
        heads = part.get("num_global_key_value_heads")
        more = f" and {show(heads)} key/value heads" if heads is not None and heads != keys.get("n_kv_heads") else ""
        notes.append(
            _note(
                "layers-differ",
                f"The {counts[names.index('full_attention')]} full-attention layers have heads of {show(wide)} columns{more}. This "
                "report is about the others.",
                "transformers 5.24.0, models/gemma4/configuration_gemma4.py: global_head_dim",
                "note",
                (f"For those layers give d_head = {show(wide)} beside the file.",),
            )
        )


def _share(columns: int, d_head: int) -> float:
    """The share of d_head that gives so many columns back when it is multiplied and rounded down: 60 / 88 gives 59."""
    share = columns / d_head
    while int(d_head * share) < columns:
        share += 2**-53
    return share


def _position(kind: str, part: dict, nested: dict, keys: dict) -> None:
    """rope, and the share of a head that it turns."""
    rope = part.get("rope_parameters") or part.get("rope_scaling")
    share = part.get("partial_rotary_factor", part.get("rotary_pct"))
    if share is None and isinstance(rope, dict):
        share = rope.get("partial_rotary_factor")
    turned, d_head = part.get("rotary_dim"), keys.get("d_head")
    if d_head is None and keys["n_heads"] > 0 and keys["d_model"] % keys["n_heads"] == 0:
        d_head = keys["d_model"] // keys["n_heads"]
    if share is None and isinstance(turned, int) and d_head is not None and 0 < turned < d_head:
        share = _share(turned, d_head)
    # MLA states the rotary columns themselves, and whatever factor stands beside them says the same again.
    if share is not None and share != 1 and "rope_dim" not in keys:
        keys["rotary_pct"] = share
    told = [
        name
        for name in ("rope_theta", "rotary_dim", "rotary_pct", "rotary_emb_base", "partial_rotary_factor")
        if part.get(name)
    ]
    if kind in _WITHOUT_ROPE:
        keys["rope"] = nested.get("rope") is True
    elif kind == "falcon":
        keys["rope"] = part.get("alibi") is not True
    elif isinstance(part.get("position_embedding_type"), str):
        keys["rope"] = part["position_embedding_type"] in ("rotary", "rope")
    elif kind in _WITH_ROPE or told or isinstance(rope, dict):
        keys["rope"] = True


def yarn_scale(d_head: int, factor: float, mscale: float) -> float:
    """The factor of MLA's scores under YaRN: 1/√d_head times the square of 0.1 × mscale × ln(factor) + 1."""
    more = 1.0 if factor <= 1 else 0.1 * mscale * log2(factor) * _LN_2 + 1.0
    return more * more / sqrt(d_head)


def _above_0(value: Any) -> float | None:
    """The number, where it is one that a scale can be made of."""
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e30 else None


def _scale(kind: str, part: dict, nested: dict, keys: dict, notes: list) -> None:
    """Models that scale their scores by something else than 1 / sqrt(d_head)."""
    if part.get("scale_attn_by_inverse_layer_idx") is True:
        text = "scale_attn_by_inverse_layer_idx: layer i (from 0) divides its scores by i + 1 as well. The scale here is that of the first."
        notes.append(_note("scale-by-layer", text, "transformers 5.24.0, models/gpt2/modeling_gpt2.py"))
    d_head = keys.get("d_head")
    if d_head is None and keys["n_heads"] > 0 and keys["d_model"] % keys["n_heads"] == 0:
        d_head = keys["d_model"] // keys["n_heads"]
    scalar = _above_0(part.get("query_pre_attn_scalar", 256 if kind in _SCALAR_256 else None))
    written, name = _written_scale(kind, part, nested)
    scale, text, source = None, "", ""
    if kind in UNSCALED:
        scale, text = 1.0, f"{UNSCALED[kind]} does not scale its scores: the factor is 1, not 1 / sqrt(d_head)."
        source = "transformers 5.24.0, modeling_t5.py, modeling_gpt_neo.py, modeling_gemma4.py and others"
    elif part.get("scale_attn_weights") is False:
        scale, text = 1.0, "scale_attn_weights = false: the factor of the scores is 1, not 1 / sqrt(d_head)."
        source = "transformers 5.24.0, models/gpt2/modeling_gpt2.py"
    elif written is not None:
        scale, source = written, "transformers 5.24.0, modeling_granite.py and modeling_mpt.py"
        text = f"{name} = {written:g} is the factor of the scores, whatever d_head is."
    elif scalar is not None:
        scale, source = 1 / sqrt(scalar), "transformers 5.24.0, models/gemma2/modeling_gemma2.py"
        text = f"Scores are scaled by 1 / sqrt({scalar:g}) (query_pre_attn_scalar), not by 1 / sqrt({d_head})."
    elif "rope_dim" in keys and d_head is not None and 0 < d_head < 1e30:
        rope = part.get("rope_parameters") or part.get("rope_scaling")
        if isinstance(rope, dict) and (_text(rope, "rope_type") or _text(rope, "type")) not in ("", "default"):
            mscale, factor = _above_0(rope.get("mscale_all_dim")), _above_0(rope.get("factor"))
            if mscale is not None and mscale < 1e6 and factor is not None:
                scale, source = (
                    yarn_scale(d_head, factor, mscale),
                    "transformers 5.24.0, modeling_deepseek_v3.py: yarn_apply_mscale",
                )
                text = (
                    f"YaRN with factor {factor:g} and mscale_all_dim {mscale:g}: the scores are scaled by (0.1 × {mscale:g} × "
                    f"ln {factor:g} + 1)² / √{d_head} = {scale:.4g}, not by 1/√{d_head} = {1 / sqrt(d_head):.4g}."
                )
    if scale is None or not 1e-9 <= scale <= 1e6:
        return
    if d_head is not None and 0 < d_head < 1e30 and abs(scale * sqrt(d_head) - 1) <= 1e-4:
        return
    keys["checkpoint_scale"] = scale
    notes.append(_note("own-scale", text, source))


def _written_scale(kind: str, part: dict, nested: dict) -> tuple:
    """(the factor itself, its name) where the file has it, or its class another default than 1 / sqrt(d_head)."""
    if _above_0(nested.get("softmax_scale")) is not None:
        return nested["softmax_scale"], "attn_config.softmax_scale"
    value = _above_0(part.get("attention_multiplier", 1.0 if kind in _GRANITE else None))
    return value, "attention_multiplier"


def _dtype(config: dict) -> str | None:
    for name in ("dtype", "torch_dtype"):
        text = _text(config, name).removeprefix("torch.")
        if text in ("float32", "bfloat16", "float16"):
            return text
    return None


# diffusers ----------------------------------------------------------------------------------------


def _diffusers(config: dict, notes: list) -> dict:
    """A UNet, one of whose levels is read, or a transformer of diffusers."""
    kind = _text(config, "_class_name")
    stated, heads = config.get("attention_head_dim"), config.get("num_attention_heads")
    channels = config.get("block_out_channels")
    if channels is None:
        if heads is None or stated is None:
            raise ConfigError(
                "This diffusers config has no num_attention_heads with attention_head_dim, and no block_out_channels. Give "
                "d_model and n_heads instead.",
                key="config",
            )
        number, wide = _number(config, ("num_attention_heads",)), _number(config, ("attention_head_dim",))
        keys = {"d_model": number * wide, "n_heads": number, "d_head": wide}
        layers = config.get("num_layers")
        if layers is not None:
            keys["n_layers"] = whole("num_layers", layers, 24)
        if isinstance(config.get("attention_bias"), bool):
            keys["bias"] = True if config["attention_bias"] else "o"
        notes.append(
            _note(
                "head-dim-is-width",
                f"In {show(kind)} attention_head_dim = {wide} is the width of a head: {number} × {wide} = {number * wide} columns.",
                "diffusers, models/transformers: inner_dim = num_attention_heads * attention_head_dim",
            )
        )
        return keys
    # In other attention blocks of a UNet2DConditionModel the same key is the width of a head (diffusers issue 2011).
    levels = _levels(config, channels, "Attn" if kind == "UNet2DModel" else "CrossAttn")
    if kind == "UNet2DModel":
        return _width_unet(stated, levels, notes)
    counts = heads if heads is not None else stated
    if counts is None:
        counts = 8
    if not isinstance(counts, (list, tuple)):
        counts = [counts for _ in channels]
    if len(counts) != len(channels):
        raise ConfigError(
            f"attention_head_dim has {len(counts)} values, and block_out_channels has {len(channels)}: one for each level is due.",
            key="attention_head_dim",
        )
    read: list = []
    for place, width in levels:
        number = whole("attention_head_dim", counts[place], 8)
        if number > 0 and width % number == 0:
            as_count, as_width = f"{number} heads of {width // number}", f"{width // number} heads of {number}"
        else:
            as_count, as_width = f"{number} heads", f"heads of {number}"
        read.append((f"{as_count} at {width} channels", f"{as_width} at {width}", width, number))
    counted, named = [one[0] for one in read], [one[1] for one in read]
    name = "num_attention_heads" if heads is not None else "attention_head_dim"
    if heads is None:
        notes.append(
            _note(
                "ambiguous-head-dim",
                f"{name} = {show(stated) if not isinstance(stated, (list, tuple)) else listing(counts)} is the number of heads in "
                f"diffusers' UNets, whatever its name says: {listing(counted)}. As a width it would be {listing(named)}.",
                _DIFFUSERS,
                "warning",
                ("Give d_model and n_heads of one level to settle it.",),
            )
        )
    if len(read) > 1:
        notes.append(
            _note("levels", f"This report is about the level with {read[0][2]} channels, the first that attends.")
        )
    found = {"d_model": read[0][2], "n_heads": read[0][3]}
    if kind == "UNet2DConditionModel":
        found["bias"] = "o"  # Attention of diffusers: bias = False for q, k and v, out_bias = True
    return found


def _levels(config: dict, channels: Any, kind: str) -> list:
    """(place, channels) of the levels whose blocks attend: those with `kind` in their name."""
    blocks = config.get("down_block_types")
    if not isinstance(channels, (list, tuple)) or not channels:
        raise ConfigError(
            f"block_out_channels of the config is {show(channels)}. It should be a list of widths.", key="config"
        )
    attends = list(range(len(channels)))
    if isinstance(blocks, (list, tuple)) and len(blocks) == len(channels):
        attends = [place for place in attends if isinstance(blocks[place], str) and kind in blocks[place]]
    if not attends:
        raise ConfigError(f"No level of this UNet attends (down_block_types has no {kind} block).", key="config")
    return [(place, whole("block_out_channels", channels[place], 320)) for place in attends]


def _width_unet(stated: Any, levels: list, notes: list) -> dict:
    """UNet2DModel divides its channels by attention_head_dim: there the name says what it is."""
    width = levels[0][1]
    wide = width if stated is None else whole("attention_head_dim", stated, 8)
    heads = width // wide if wide > 0 else 0
    notes.append(
        _note(
            "ambiguous-head-dim",
            f"attention_head_dim = {show(stated)} is the width of a head in UNet2DModel: {heads} heads of {wide} at {width} "
            "channels. In UNet2DConditionModel the same name is the number of heads.",
            _DIFFUSERS,
        )
    )
    if len(levels) > 1:
        notes.append(_note("levels", f"This report is about the level with {width} channels, the first that attends."))
    return {"d_model": width, "n_heads": heads, "d_head": wide}
