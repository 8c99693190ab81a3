"""What is said of transformers' classes, held against the classes: biases, layers, windows, odd rotary widths."""

from __future__ import annotations

import re

import pytest
from splitheads import models
from splitheads.doctor import ConfigError, diagnose, read
from splitheads.doctor.families import ATTENDING, ODD_FAILS, WINDOWED

SMALL = {
    "hidden_size": 96, "num_attention_heads": 6, "num_hidden_layers": 4, "intermediate_size": 32, "vocab_size": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "num_key_value_heads": 2, "head_dim": 16,
}  # fmt: skip
MHA = {key: SMALL[key] for key in SMALL if key not in ("num_key_value_heads", "head_dim")}
GPT = {"n_embd": 96, "n_head": 6, "n_layer": 2, "vocab_size": 64}
BART = {
    "d_model": 96, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 6, "decoder_attention_heads": 6,
    "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "vocab_size": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "decoder_start_token_id": 2,
}  # fmt: skip
FEW = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 1, "moe_intermediate_size": 32}
FEW["shared_expert_intermediate_size"] = 32
IMAGE = {**MHA, "image_size": 32, "patch_size": 16}

COUNTED = {
    "bert": MHA, "roberta": MHA, "electra": MHA, "deberta-v2": MHA, "albert": {**MHA, "embedding_size": 32},
    "distilbert": {"dim": 96, "n_heads": 6, "n_layers": 2, "hidden_dim": 32, "vocab_size": 64},
    "gpt2": GPT, "openai-gpt": GPT, "gpt_bigcode": GPT, "gptj": {**GPT, "rotary_dim": 8}, "codegen": {**GPT, "n_head": 8, "rotary_dim": 4},
    "gpt_neo": {"hidden_size": 96, "num_heads": 6, "num_layers": 2, "attention_types": [[["global", "local"], 1]], "vocab_size": 64},
    "gpt_neox": MHA, "bloom": {"hidden_size": 96, "n_head": 6, "n_layer": 2, "vocab_size": 64}, "mpt": {"d_model": 96, "n_heads": 6, "n_layers": 2},
    "opt": {**MHA, "ffn_dim": 32, "word_embed_proj_dim": 96}, "bart": BART, "pegasus": BART, "whisper": BART,
    "t5": {"d_model": 96, "d_kv": 16, "num_heads": 6, "num_layers": 2, "d_ff": 32, "vocab_size": 64},
    "vit": IMAGE, "vit, no bias": {**IMAGE, "qkv_bias": False}, "deit": IMAGE, "dinov2": IMAGE, "clip_vision_model": IMAGE, "siglip_vision_model": IMAGE,
    "qwen2": SMALL, "qwen2_moe": {**SMALL, **FEW}, "qwen3": SMALL, "qwen3, bias": {**SMALL, "attention_bias": True},
    "qwen3_next": {**SMALL, **FEW}, "qwen3_next, bias": {**SMALL, **FEW, "attention_bias": True},
    "starcoder2": SMALL, "stablelm": SMALL, "stablelm, bias": {**SMALL, "use_qkv_bias": True}, "phi": SMALL, "phi3": SMALL, "persimmon": MHA,
    "falcon": {**MHA, "new_decoder_architecture": False}, "falcon, bias": {**MHA, "bias": True},
    "gpt_oss": {**SMALL, **FEW}, "gemma": SMALL, "gemma2": SMALL, "gemma3_text": SMALL, "glm": SMALL, "glm, none": {**SMALL, "attention_bias": False},
    "glm4_moe": {**SMALL, "first_k_dense_replace": 4}, "glm4_moe, bias": {**SMALL, "first_k_dense_replace": 4, "attention_bias": True},
    "mistral": SMALL, "mixtral": {**SMALL, **FEW}, "llama": SMALL, "llama, bias": {**SMALL, "attention_bias": True}, "cohere": SMALL, "olmo": SMALL,
    "seed_oss": SMALL, "helium": {**SMALL, "attention_bias": True}, "xglm": {"d_model": 96, "attention_heads": 6, "num_layers": 2, "ffn_dim": 32, "vocab_size": 64},
    "biogpt": MHA, "lfm2": SMALL, "granite": SMALL,
}  # fmt: skip


def made(case: str, settings: dict):
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    config = transformers.CONFIG_MAPPING[case.split(",")[0]](**settings)
    with torch.device("meta"):
        return config, transformers.AutoModel.from_config(config)


def attention_of_a_layer(model) -> int:
    """Parameters of the first layer that attends: projections and their biases, no norms, sinks or position tables."""
    layers: dict[str, int] = {}
    for name, weight in model.named_parameters():
        layer = re.match(r"(.*?\.\d+\.)", name)
        inside = name[len(layer[1]) :].lower() if layer else ""
        if "att" in inside and not re.search(r"norm|sinks|relative|linear_attn|cross|encoder_attn", inside):
            layers[layer[1]] = layers.get(layer[1], 0) + weight.numel()
    return next(iter(layers.values()))


@pytest.mark.parametrize("case", COUNTED)
def test_attention_parameters_are_those_of_the_modules(case):
    config, model = made(case, COUNTED[case])
    derived = diagnose({**config.to_dict(), "model_type": case.split(",")[0]}).derived
    assert derived["attention_params_per_layer"] == attention_of_a_layer(model)


@pytest.mark.parametrize(
    ("name", "bias"),
    [("BERT-Base", True), ("ViT-B/16", True), ("BLOOM-3b", True), ("Whisper tiny", "qvo"), ("Qwen2.5-32B", "qkv"), ("GLM-4.5", "qkv"),
     ("gpt-oss-20b", True), ("Phi-2", True), ("Phi-4", None), ("Llama 3 8B", None), ("T5-base", None), ("GPT-J-6B", None)],
)  # fmt: skip
def test_models_by_name_have_the_biases_of_their_class(name, bias):
    assert read({"model": name}).bias == bias


def test_a_gate_doubles_the_rows_of_the_queries():
    config, model = made("qwen3_next", COUNTED["qwen3_next"])
    derived = diagnose(config.to_dict()).derived
    shapes = [
        list(weight.shape) for name, weight in model.named_parameters() if name.endswith("self_attn.q_proj.weight")
    ]
    assert derived["q_proj"] == shapes[0] == [192, 96]
    assert diagnose({"model": "Qwen3.5-35B-A3B"}).derived["q_proj"] == [8192, 2048]


# Layers and windows

HYBRID = (
    "jamba",
    "bamba",
    "falcon_h1",
    "granitemoehybrid",
    "lfm2",
    "nemotron_h",
    "recurrent_gemma",
    "qwen3_next",
    "minimax",
    "olmo_hybrid",
)


@pytest.mark.parametrize("kind", HYBRID)
@pytest.mark.parametrize("how", ["as written", "without layer_types"])
def test_layers_that_attend_are_counted_as_the_class_has_them(kind, how):
    transformers = pytest.importorskip("transformers")
    extra = {
        "bamba": {"attn_layer_indices": [2, 5]},
        "granitemoehybrid": {"layer_types": ["linear_attention", "full_attention"] * 16},
    }
    made_config = transformers.CONFIG_MAPPING[kind](**extra.get(kind, {}))
    types = made_config.layer_types
    attending = len([one for one in types if one in ("full_attention", "sliding_attention", "hybrid")])
    file = {**made_config.to_dict(), "model_type": kind}
    if how != "as written" and kind not in ("granitemoehybrid", "nemotron_h"):
        file = {key: value for key, value in file.items() if key not in ("layer_types", "layers_block_type")}
    config = read(file)
    assert 0 < attending == config.n_layers
    told = [note.message for note in config.notes if note.id == "layers-without-kv"]
    assert (f"{len(types) - attending} of {len(types)} layers" in told[0]) if attending < len(types) else told == []


def test_a_pattern_of_letters_is_read():
    file = {
        "model_type": "nemotron_h",
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_hidden_layers": 8,
        "hybrid_override_pattern": "M-M*M-E*",
    }
    assert read(file).n_layers == 2


@pytest.mark.parametrize("kind", ["mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm", "zamba", "zamba2"])
def test_what_has_no_attention_or_another_kind_is_refused_in_one_line(kind):
    transformers = pytest.importorskip("transformers")
    file = {**transformers.CONFIG_MAPPING[kind]().to_dict(), "model_type": kind}
    with pytest.raises(ConfigError, match=kind) as caught:
        read(file)
    assert "ive " in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_hybrid_none_of_whose_layers_attends_is_refused():
    with pytest.raises(ConfigError, match="None of the 2 layers"):
        read(
            {
                "model_type": "lfm2",
                "hidden_size": 64,
                "num_attention_heads": 4,
                "num_hidden_layers": 2,
                "layer_types": ["conv", "conv"],
            }
        )


@pytest.mark.parametrize(
    "kind",
    ["gemma2", "gemma3_text", "gpt_oss", "cohere2", "olmo3", "exaone4", "ministral", "llama4_text", "recurrent_gemma"],
)
def test_windows_are_counted_as_the_class_has_them(kind):
    transformers = pytest.importorskip("transformers")
    made_config = transformers.CONFIG_MAPPING[kind]()
    due = len([one for one in made_config.layer_types if "sliding" in one or "chunked" in one])
    file = {**made_config.to_dict(), "model_type": kind}
    bare = {key: value for key, value in file.items() if key not in ("layer_types", "layers_block_type")}
    for one in (file, *([bare] if kind != "llama4_text" else [])):
        about = read(one).about
        assert about["windowed"] == due > 0
        assert about["window"] in (4096, 128, 8192, 2048)


def test_a_window_that_is_not_used_is_none():
    transformers = pytest.importorskip("transformers")
    for kind, settings in (("qwen2", {}), ("llama", {}), ("mistral", {"sliding_window": None})):
        assert (
            "window" not in read({**transformers.CONFIG_MAPPING[kind](**settings).to_dict(), "model_type": kind}).about
        )
    slid = transformers.CONFIG_MAPPING["qwen2"](use_sliding_window=True, max_window_layers=8).to_dict()
    assert read(slid).about["windowed"] == read({**slid, "layer_types": None}).about["windowed"] == 24


def note(config: dict, name: str) -> str:
    return next((found.message for found in diagnose(config).findings if found.id == name), "")


def test_the_cache_is_told_in_full_and_with_its_windows():
    config = {"model": "gpt-oss-20b", "seq_k": 131_072}
    full = diagnose(config).derived["kv_bytes_total"]
    assert full == 24 * 2 * 8 * 64 * 2 * 131_072
    kept = (12 * 131_072 + 12 * 128) * 2 * 8 * 64 * 2
    assert f"= {kept:,} bytes".replace(",", " ") in note(config, "sliding-window")
    assert "6 GiB, which is an upper bound" in note(config, "sliding-window")
    assert note({**config, "seq_k": 128}, "sliding-window") == ""
    assert "only the other 12 grow: 24 576 bytes per token" in note({"model": "gpt-oss-20b"}, "sliding-window")
    assert "not known here" in note({"model": "gpt-oss-20b", "n_layers": 7}, "sliding-window")
    assert note({"model": "Llama 3 8B", "seq_k": 131_072}, "sliding-window") == ""
    assert "32 × 4 096" in note({"model": "Mistral 7B v0.1", "seq_k": 8192}, "sliding-window")
    odd = {
        "model_type": "odd",
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "sliding_window": 8,
    }
    assert "not known here" in note(odd, "sliding-window")


def test_windows_and_layers_of_the_table_are_those_of_the_files():
    from test_huggingface import INDEX, load

    seen = 0
    for name in INDEX:
        row = INDEX[name]["row"]
        if row in WINDOWED:
            about = read(load(name)).about
            assert (about["windowed"], about["window"]) == WINDOWED[row]
            seen += 1
        if row in ATTENDING:
            assert read(load(name)).n_layers == ATTENDING[row] == read({"model": row}).n_layers
            seen += 1
    assert seen >= 5
    assert {*WINDOWED, *ATTENDING} <= {row.name for row in models.rows()}


# Caches


@pytest.mark.parametrize(
    "name",
    [
        "BERT-Base",
        "ALBERT-xxlarge",
        "DistilBERT-base",
        "RoBERTa-large",
        "ELECTRA-Small",
        "ViT-B/16",
        "CLIP ViT-L/14",
        "DiT-XL/2",
    ],
)
def test_encoders_keep_no_cache(name):
    assert "keeps no KV cache" in note({"model": name}, "no-cache")


@pytest.mark.parametrize("name", ["T5-base", "Whisper tiny", "Transformer base"])
def test_encoder_decoders_keep_a_second_one(name):
    assert "cross-attention" in note({"model": name}, "cross-cache")


def test_decoders_are_told_nothing_of_the_kind():
    for config in ({"model": "GPT-2 XL"}, {"d_model": 768, "n_heads": 12, "n_layers": 12}):
        assert note(config, "no-cache") == note(config, "cross-cache") == ""


def test_files_of_encoders_and_of_diffusers():
    bert = {"model_type": "bert", "hidden_size": 96, "num_attention_heads": 6, "num_hidden_layers": 2}
    assert note(bert, "no-cache")
    assert not note({**bert, "is_decoder": True}, "no-cache")
    pixart = {
        "_class_name": "PixArtTransformer2DModel",
        "num_attention_heads": 16,
        "attention_head_dim": 72,
        "num_layers": 28,
    }
    assert note(pixart, "no-cache")


def test_the_layers_of_the_decoder_count():
    turbo = {
        "model_type": "whisper",
        "d_model": 1280,
        "encoder_layers": 32,
        "decoder_layers": 4,
        "encoder_attention_heads": 20,
        "decoder_attention_heads": 20,
    }
    report = diagnose(turbo)
    assert report.derived["kv_bytes_per_token"] == 2 * 4 * 1280 * 2
    assert "n_layers = 4 is the decoder's; the encoder has 32" in note(turbo, "decoder-read")


# Odd rotary widths


def test_a_number_of_rotary_columns_comes_out_as_it_was_given():
    """60 / 88 is a float below the true share, and int(88 × it) is 59."""
    for d_head in range(2, 129):
        for turned in range(2, d_head, 2):
            file = {"model_type": "gptj", "n_embd": 2 * d_head, "n_head": 2, "n_layer": 1, "rotary_dim": turned}
            assert int(d_head * read(file).rotary_pct) == turned
    assert note({"model_type": "gptj", "n_embd": 352, "n_head": 4, "n_layer": 1, "rotary_dim": 60}, "rope-odd") == ""


@pytest.mark.parametrize("kind", [*ODD_FAILS, "gpt_neox", "glm", "glm4", "nemotron"])
def test_an_odd_number_of_rotary_columns_fails_where_it_is_said_to(kind):
    """A forward pass of the real model with 19 of 64 columns."""
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    settings = {
        "hidden_size": 128, "num_attention_heads": 2, "num_key_value_heads": 2, "num_hidden_layers": 1, "intermediate_size": 32,
        "vocab_size": 64, "head_dim": 64, "pad_token_id": 0, "partial_rotary_factor": 0.3, "rotary_pct": 0.3,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.3},
    }  # fmt: skip
    if kind in ("gptj", "codegen"):
        settings = {"n_embd": 128, "n_head": 2, "n_layer": 1, "vocab_size": 64, "rotary_dim": 19}
    config = transformers.CONFIG_MAPPING[kind](**settings)
    model = transformers.AutoModel.from_config(config).eval()
    runs = kind not in ODD_FAILS
    if runs:
        model(torch.tensor([[1, 2, 3, 4]]))
    else:
        with pytest.raises(RuntimeError, match=r"\(19\) must match the size of tensor b \(20\)"):
            model(torch.tensor([[1, 2, 3, 4]]))
    told = [
        found.severity
        for found in diagnose({**config.to_dict(), "model_type": kind}).findings
        if found.id == "rope-odd"
    ]
    assert told == ["warning" if runs else "error"]


def test_suggestions_of_rotary_shares_can_be_followed():
    for config in (
        {"d_model": 520, "n_heads": 8, "rope": True},
        {"d_head": 100, "rotary_pct": 0.25},
        {"d_head": 33, "rope": True, "rotary_pct": 0.04},
    ):
        ways = [way for found in diagnose(config).findings for way in found.suggestions]
        shares = [re.match(r"rotary_pct = ([\d.]+)", way)[1] for way in ways if way.startswith("rotary_pct")]
        assert shares
        for share in shares:
            later = [found.id for found in diagnose({**config, "rope": True, "rotary_pct": float(share)}).findings]
            assert not {"rope-odd", "rope-nothing"} & {*later}
        assert not any(" 66 rotary" in way for way in ways)
