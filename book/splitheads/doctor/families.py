"""What a model's class does that the sizes in its config.json do not say: biases, windows, layers, caches.

A class is named by its model_type, a "kind" here. What is said holds for transformers 5.24.0 and was read from its
modules, built with a small configuration each; tests/doctor/test_families.py builds them again.
"""

from __future__ import annotations

from typing import Any

from splitheads.doctor.values import ConfigError, show

SOURCE = "transformers 5.24.0: the class of this model_type, its modules built and looked at"

# Biases --------------------------------------------------------------------------------------------

BIASED = (
    (True, (
        "bert", "roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "albert", "electra", "distilbert", "deberta-v2",
        "bert-generation", "ernie", "mobilebert", "mpnet", "megatron-bert", "roformer", "longformer", "layoutlm", "layoutlmv3",
        "convbert", "rembert", "gpt2", "openai-gpt", "gpt-sw3", "gpt_bigcode", "decision_transformer", "imagegpt", "bloom",
        "persimmon", "fuyu", "phi", "xglm", "biogpt", "bart", "mbart", "pegasus", "marian", "blenderbot", "blenderbot-small",
        "m2m_100", "nllb-moe", "led", "plbart", "prophetnet", "speech_to_text", "clip_text_model", "clip_vision_model",
        "chinese_clip_vision_model", "siglip_text_model", "siglip_vision_model", "siglip2_vision_model", "wav2vec2", "hubert",
        "wavlm", "transformer", "dit",
    )),
    (False, (
        "mistral", "mixtral", "ministral3", "phi3", "gptj", "codegen", "mpt", "t5", "mt5", "umt5", "longt5",
        "switch_transformers", "lfm2", "exaone4", "minimax_m2",
    )),
    ("qkv", ("qwen2", "qwen2_vl_text", "qwen2_5_vl_text", "glm4v_text")),
    ("qvo", ("whisper", "beit", "data2vec-vision", "dinov3_vit", "videomae", "deberta")),
    ("o", ("gpt_neo", "unet")),
)  # fmt: skip
"""Biases that the class has, whatever its config.json says: True is all four projections, else those named."""

# (flag of the config.json, kinds, biases where it is true, where it is false, whether the class has it true)
_FLAGS = (
    (
        "qkv_bias",
        ("vit", "deit", "dinov2", "dinov2_with_registers", "dpt", "ijepa", "swin", "vit_mae", "vit_msn", "vilt", "vivit",
         "vjepa2", "yolos", "timesformer", "vitdet", "audio-spectrogram-transformer", "pvt", "donut-swin"),
        True, "o", True,
    ),
    ("qkv_bias", ("qwen2_moe",), "qkv", False, True),
    ("use_qkv_bias", ("stablelm",), "qkv", False, False),
    ("add_qkv_bias", ("chatglm",), "qkv", False, False),
    ("attention_bias", ("glm", "glm4", "glm4v_moe_text", "seed_oss"), "qkv", False, True),
    ("attention_bias", ("glm4_moe", "helium", "mimo_v2_flash", "solar_open", "sarvam_moe", "moonshine"), "qkv", False, False),
    ("attention_bias", ("gpt_oss", "gpt_neox", "jais2"), True, False, True),
    ("enable_bias", ("opt",), True, False, True),
    ("use_bias", ("starcoder2",), True, False, True),
    ("use_bias", ("big_bird",), True, "o", True),
    ("bias", ("falcon",), True, False, False),
)  # fmt: skip


def bias_of(kind: str, part: dict) -> Any:
    """Which projections have a bias: True, False, "qkv", "qvo", "o", or None where nothing says so."""
    for biases, kinds in BIASED:
        if kind in kinds:
            return biases
    for flag, kinds, there, absent, usual in _FLAGS:
        if kind in kinds:
            stated = part.get(flag)
            return there if (stated if isinstance(stated, bool) else usual) else absent
    for flag in ("attention_bias", "enable_bias", "use_bias"):
        if isinstance(part.get(flag), bool):
            return part[flag]
    for flag in ("qkv_bias", "use_qkv_bias", "add_qkv_bias"):
        if isinstance(part.get(flag), bool):
            return "qkv" if part[flag] else False
    if isinstance(part.get("no_bias"), bool):
        return not part["no_bias"]
    return None


# Layers --------------------------------------------------------------------------------------------

WITHOUT_ATTENTION = ("mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm")
GATED = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
"""Classes whose q_proj makes a gate for the output beside the queries: it has twice the rows."""

_DOUBLE_WIDTH = ("zamba", "zamba2")
_EVERY = {"qwen3_next": 4, "qwen3_5_text": 4, "qwen3_5_moe_text": 4, "olmo_hybrid": 4, "minimax": 2}
"""Classes in which every so many-th layer attends, where layer_types is not given."""

_PATTERN = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
MOST_LAYERS = 100_000


def refuse(kind: str, part: dict) -> None:
    """Raise ConfigError for a class that these keys cannot describe, with what to give in place of it."""
    if kind in WITHOUT_ATTENTION:
        raise ConfigError(
            f"model_type {show(kind)} has no attention: its layers keep a state of fixed size, so there are no heads to split, no "
            "projections of Q, K and V, and no KV cache. For a model that attends, give its config.json, or d_model and n_heads.",
            key="config",
        )
    if kind in _DOUBLE_WIDTH:
        raise ConfigError(
            f"model_type {show(kind)}: its shared attention reads 2 × hidden_size columns and writes hidden_size, which one d_model "
            "cannot say. Give n_heads, n_kv_heads, d_head (attention_head_dim) and n_layers (the hybrid layers) for its cache and kernel.",
            key="config",
        )


def layers_of(kind: str, part: dict, layers: Any) -> list | None:
    """The kind of each layer, by name, in order; None where they are all alike, or the file does not say."""
    for name in ("layer_types", "layers_block_type"):
        if isinstance(part.get(name), (list, tuple)):
            return list(part[name])
    if isinstance(part.get("hybrid_override_pattern"), str):
        return [_PATTERN.get(letter, "other") for letter in part["hybrid_override_pattern"][:MOST_LAYERS]]
    if layers is None or not 0 < layers <= MOST_LAYERS:
        return None
    attending = None
    blocks = part.get("block_types") or part.get("_block_types")
    linear = part.get("linear_attn_config")
    if kind == "jamba":
        period, offset = _count(part, "attn_layer_period", 8), _count(part, "attn_layer_offset", 4)
        attending = [place for place in range(layers) if place % period == offset]
    elif kind == "bamba":
        attending = _places(part.get("attn_layer_indices"))
    elif kind == "lfm2" and isinstance(part.get("full_attn_idxs"), (list, tuple)):
        attending = _places(part["full_attn_idxs"])
    elif kind == "granitemoehybrid":
        attending = []
    elif kind == "kimi_linear" and isinstance(linear, dict):
        # counted from 1
        attending = [place - 1 for place in _places(linear.get("full_attn_layers"))]
    elif kind == "minimax" and isinstance(part.get("attn_type_list"), (list, tuple)):
        attending = [place for place, one in enumerate(part["attn_type_list"]) if one == 1]
    elif kind == "recurrent_gemma":
        blocks = (
            list(blocks) if isinstance(blocks, (list, tuple)) and blocks else ["recurrent", "recurrent", "attention"]
        )
        return [
            "sliding_attention" if blocks[place % len(blocks)] == "attention" else "recurrent"
            for place in range(layers)
        ]
    elif kind == "minimax":
        attending = [place for place in range(layers) if (place + 1) % 2]
    elif kind in _EVERY:
        every = _count(part, "full_attention_interval", _EVERY[kind])
        attending = [place for place in range(layers) if (place + 1) % every == 0]
    if attending is None:
        return None
    flags = [False for _ in range(layers)]
    for place in attending:
        if 0 <= place < layers:
            flags[place] = True
    return ["full_attention" if flag else "linear_attention" for flag in flags]


def _count(part: dict, name: str, default: int) -> int:
    value = part.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MOST_LAYERS else default


def _places(value: Any) -> list:
    """The layer numbers of a list; nothing else that may stand there."""
    if not isinstance(value, (list, tuple)):
        return []
    return [one for one in value if isinstance(one, int) and not isinstance(one, bool)]


def attends(layer: str) -> bool:
    """Whether a layer of this name keeps keys and values. A hybrid layer attends beside its state."""
    return "hybrid" in layer or ("attention" in layer and "linear" not in layer)


# Windows -------------------------------------------------------------------------------------------

_WINDOWS = {
    "gemma2": 4096,
    "gemma3_text": 4096,
    "gpt_oss": 128,
    "cohere2": 4096,
    "mistral": 4096,
    "recurrent_gemma": 2048,
}
"""Windows that a class fills in."""

_PATTERNS = {"gemma2": 2, "gpt_oss": 2, "gemma3_text": 6, "cohere2": 4, "olmo3": 4, "exaone4": 4}
"""Classes in which every so many-th layer looks at everything, and the others at their window."""

_ALL_SLIDE = ("mistral", "mixtral", "phi3", "phimoe", "starcoder2", "ministral")

# Models of the table: (layers with a window, the window), as their config.json or their class has them.
WINDOWED = {
    "gpt-oss-20b": (12, 128),
    "Gemma 2 9B": (21, 4096),
    "Gemma 2 27B": (23, 4096),
    "Gemma 3 1B": (22, 512),
    "Gemma 3 27B": (52, 1024),
    "Gemma 4 31B": (50, 1024),
    "Mistral 7B v0.1": (32, 4096),
}


def window_of(kind: str, part: dict, types: list | None, layers: Any) -> tuple | None:
    """(window in tokens, layers that have it or None where that is not known); None for a model without windows."""
    if part.get("use_sliding_window") is False or (
        kind.startswith("qwen") and part.get("use_sliding_window") is not True
    ):
        return None
    window = None
    for name in ("sliding_window", "attention_window_size", "attention_chunk_size"):
        if window is None and name in part:
            window = part[name] if _size(part[name]) else None
            if window is None and name == "sliding_window":
                return None  # null: none, whatever the class would fill in
    if window is None:
        window = _WINDOWS.get(kind)
    if window is None:
        return None
    if types is not None:
        found = len([one for one in types if isinstance(one, str) and ("sliding" in one or "chunked" in one)])
        return (window, found) if found else None
    if layers is None:
        return window, None
    every = part.get("sliding_window_pattern", _PATTERNS.get(kind))
    if isinstance(every, int) and not isinstance(every, bool) and 1 < every <= MOST_LAYERS:
        return window, layers - layers // every
    if kind in _ALL_SLIDE:
        return window, layers
    if kind in ("qwen2", "qwen3", "qwen2_moe", "qwen3_moe"):
        found = max(0, layers - _count(part, "max_window_layers", 28))
        return (window, found) if found else None
    return window, None


def _size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MOST_LAYERS * MOST_LAYERS


# Caches --------------------------------------------------------------------------------------------

ENCODERS = (
    "bert", "roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "albert", "electra", "distilbert", "deberta", "deberta-v2",
    "ernie", "mobilebert", "mpnet", "modernbert", "megatron-bert", "roformer", "longformer", "big_bird", "nomic_bert", "eurobert",
    "layoutlm", "layoutlmv3", "convbert", "esm", "vit", "deit", "dinov2", "dinov2_with_registers", "dinov3_vit", "beit", "dpt",
    "ijepa", "swin", "vit_mae", "vit_msn", "yolos", "vivit", "videomae", "vjepa2", "clip", "clip_text_model", "clip_vision_model",
    "siglip", "siglip_text_model", "siglip_vision_model", "siglip2", "siglip2_vision_model", "audio-spectrogram-transformer",
    "wav2vec2", "hubert", "wavlm", "dit", "unet", "diffusers",
)  # fmt: skip
ENCODER_DECODERS = (
    "t5", "mt5", "umt5", "longt5", "switch_transformers", "bart", "mbart", "pegasus", "marian", "blenderbot", "blenderbot-small",
    "m2m_100", "nllb-moe", "led", "plbart", "prophetnet", "bigbird_pegasus", "speech_to_text", "whisper", "moonshine",
    "t5gemma", "transformer",
)  # fmt: skip


def cache_of(kind: str, part: dict) -> str:
    """ "none" for a model without a KV cache, "decoder" for an encoder-decoder, "" for a decoder or what is not known."""
    if kind in ENCODER_DECODERS or part.get("is_encoder_decoder") is True:
        return "none" if part.get("is_encoder_decoder") is False else "decoder"
    return "none" if kind in ENCODERS and part.get("is_decoder") is not True else ""


# Odd rotary widths ---------------------------------------------------------------------------------

ODD_FAILS = ("phi", "stablelm", "persimmon", "gptj", "codegen", "gpt_neox_japanese")
"""Classes that cut an odd number of columns out for RoPE and turn them with tables that are one wider: a forward pass raises."""

ODD_RUNS = ("gpt_neox", "glm", "glm4", "glm4_moe")
"""Classes that cut as many columns as their tables are wide: an odd number is rounded up, and runs."""

# Families of the table -----------------------------------------------------------------------------

_KINDS = {
    "Transformer": "transformer", "GPT": "openai-gpt", "GPT-2": "gpt2", "BERT": "bert", "RoBERTa": "roberta", "ALBERT": "albert",
    "DistilBERT": "distilbert", "ELECTRA": "electra", "T5": "t5", "ViT": "vit", "CLIP": "clip_vision_model",
    "OpenCLIP": "clip_vision_model", "DiT": "dit", "Stable Diffusion": "unet", "GPT-J": "gptj", "GPT-NeoX": "gpt_neox",
    "Pythia": "gpt_neox", "CodeGen": "codegen", "OPT": "opt", "BLOOM": "bloom", "Whisper": "whisper", "StarCoder": "gpt_bigcode",
    "Phi": "phi", "StableLM": "stablelm", "Qwen1.5": "qwen2", "Qwen2.5": "qwen2", "Qwen3.5": "qwen3_5_moe_text", "gpt-oss": "gpt_oss",
    "GLM": "glm4_moe", "Mistral": "mistral",
}  # fmt: skip
_KIND_OF_ROW = {
    "Phi-3-mini": "phi3",
    "Phi-4": "phi3",
    "Mixtral 8x7B v0.1": "mixtral",
    "Gemma 4 31B": "gemma4_text",
    "GLM-5": "glm_moe_dsa",
}
_BIAS_OF_ROW = {"GLM-4.5": "qkv"}  # attention_bias is true in its config.json; Megatron's scripts have --add-qkv-bias
ATTENDING = {"Qwen3.5-35B-A3B": 10}
"""Rows of which only so many layers attend (1 in 4)."""


def kind_of_row(model: Any) -> str:
    """The class of a model of the table; "" where it is not needed here."""
    return _KIND_OF_ROW.get(model.name, _KINDS.get(model.family, ""))


def bias_of_row(model: Any) -> Any:
    """The biases of a model of the table, None where it has none or nothing says so."""
    return _BIAS_OF_ROW.get(model.name) or bias_of(kind_of_row(model), {}) or None


def about_row(model: Any) -> dict:
    """What `about` of a Config holds, for a model of the table."""
    kind = kind_of_row(model)
    found = {"kind": kind, "title": model.name, "cache": cache_of(kind, {}), "gated": kind in GATED}
    if model.name in WINDOWED:
        found["windowed"], found["window"] = WINDOWED[model.name]
    found["layers"] = ATTENDING.get(model.name, model.n_layers)
    found["alike"] = model.name != "Gemma 4 31B"
    return found
