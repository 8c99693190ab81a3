"""config.json files of real models, read into our keys."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from splitheads import models
from splitheads.doctor import ConfigError, diagnose, from_huggingface, looks_like_huggingface, read
from splitheads.doctor.huggingface import DEFAULTS

FOLDER = Path(__file__).parent / "configs"
INDEX = json.loads((FOLDER / "index.json").read_text("utf8"))["files"]


def load(name: str) -> dict:
    return json.loads((FOLDER / f"{name}.json").read_text("utf8"))


def findings(name: str) -> dict[str, str]:
    return {note.id: note.message for note in from_huggingface(load(name))[1]}


def test_every_file_is_in_the_index_with_its_source():
    assert {path.stem for path in FOLDER.glob("*.json")} - {"index"} == set(INDEX)
    assert all(entry["_source"] for entry in INDEX.values())
    assert len(INDEX) >= 40


@pytest.mark.parametrize("name", INDEX)
def test_the_numbers_of_a_config(name):
    config = load(name)
    assert looks_like_huggingface(config)
    keys, notes = from_huggingface(config)
    wanted = INDEX[name]["keys"]
    assert {key: keys.get(key) for key in wanted} == wanted
    assert all(note.severity in ("note", "warning") for note in notes)
    assert set(keys) - set(wanted) <= {"rope", "bias", "dtype", "rotary_pct", "checkpoint_scale"}


@pytest.mark.parametrize("name", [name for name in INDEX if INDEX[name]["row"]])
def test_a_config_and_the_table_tell_the_same(name):
    """Two sources, read at different times by different people: the file, and the row of models.csv."""
    row, config = models.find(INDEX[name]["row"]), read(load(name))
    kv_heads = config.n_heads if config.n_kv_heads is None else config.n_kv_heads
    d_head = config.d_head or config.d_model // config.n_heads
    assert (config.d_model, config.n_heads, kv_heads, d_head) == (row.d_model, row.n_heads, row.n_kv_heads, row.d_head)
    assert row.n_layers in (None, config.n_layers)
    assert config.d_head_v == row.d_head_v


def test_a_config_is_read_whole_or_under_a_key_of_its_own():
    config = load("llama-3.1-8b")
    alone, inside, beside = read(config), read({"config": config}), read({**config, "device": "a100", "tp": 8})
    assert alone.values == inside.values
    assert alone.origin["n_heads"] == "config.json"
    assert {**alone.values, "device": "sm80", "tp": 8} == beside.values
    assert "config" not in alone.values


def test_what_is_given_wins_over_the_config_and_its_heads_are_the_checkpoints():
    config = read({"config": load("llama-2-7b"), "n_kv_heads": 1})
    assert config.n_kv_heads == 1
    assert [note.message for note in config.notes if note.id == "overrides-config"] == [
        "n_kv_heads = 1 is taken as given; the config.json has 32."
    ]
    assert (config.checkpoint_n_heads, config.checkpoint_n_kv_heads, config.checkpoint_d_model) == (32, 32, 4096)


# The traps.


def test_falcon_ignores_num_kv_heads_under_multi_query():
    assert "num_kv_heads = 71 is ignored" in findings("falcon-7b")["num-kv-heads-ignored"]
    assert "num-kv-heads-ignored" not in findings("falcon-40b")
    old = {"model_type": "RefinedWebModel", "hidden_size": 4544, "n_head": 71, "n_layer": 32, "multi_query": True}
    assert from_huggingface(old)[0]["n_kv_heads"] == 1
    old = {"model_type": "RefinedWeb", "hidden_size": 8192, "n_head": 128, "n_head_kv": 8, "n_layer": 60}
    assert from_huggingface(old)[0]["n_kv_heads"] == 8


def test_head_dim_of_mla_is_the_rotary_part():
    assert (
        "head_dim = 64 is the rotary part only: queries and keys are 128 + 64 = 192 wide"
        in (findings("deepseek-v3")["head-dim-is-rope-part"])
    )
    assert "head-dim-is-rope-part" not in findings("deepseek-v2")


def test_the_unet_shows_every_level_in_both_readings():
    message = findings("sd-1.5-unet")["ambiguous-head-dim"]
    for words in ("8 heads of 40 at 320", "8 heads of 80 at 640", "8 heads of 160 at 1280", "40 heads of 8 at 320"):
        assert words in message
    assert "10 heads of 64 at 640" in findings("sdxl-unet")["ambiguous-head-dim"]
    severity = {note.id: note.severity for note in from_huggingface(load("sd-1.5-unet"))[1]}
    assert severity["ambiguous-head-dim"] == "warning"


def test_in_other_classes_of_diffusers_the_name_is_right():
    assert "64 heads of 8 at 512" in findings("ddpm-unet")["ambiguous-head-dim"]
    assert "16 × 72 = 1152" in findings("dit-xl-2")["head-dim-is-width"]


def test_defaults_that_the_file_leaves_out_are_named():
    assert "n_heads = 8, n_kv_heads = 4 and d_head = 256" in findings("gemma-3-4b")["class-default"]
    assert "vision_config is not looked at" in findings("gemma-3-4b")["nested"]


def test_layers_that_are_not_alike_are_named():
    assert (
        "10 full-attention layers have heads of 512 columns and 4 key/value heads"
        in (findings("gemma-4-31b")["layers-differ"])
    )
    assert findings("qwen3.5-35b-a3b")["layers-without-kv"].startswith("30 of 40 layers")


def test_scales_of_their_own_are_named_and_not_judged():
    assert "1 / sqrt(144)" in findings("gemma-2-27b")["own-scale"]
    assert "own-scale" in findings("t5-small")
    assert "own-scale" not in findings("gemma-3-1b")
    assert read(load("gemma-2-27b")).scale is None


GRANITE = {"model_type": "granite", "hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 8}
MPT = {"model_type": "mpt", "d_model": 4096, "n_heads": 32}
GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_head": 12}
GEMMA2 = {"model_type": "gemma2", "hidden_size": 4608, "num_attention_heads": 32, "head_dim": 128}
YARN = {"type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0}
V3 = {**load("deepseek-v3"), "rope_scaling": None}


@pytest.mark.parametrize(
    ("config", "scale"),
    [
        (load("gemma-2-27b"), 144**-0.5),
        (load("gemma-3-27b"), 168**-0.5),
        (load("gemma-3-1b"), None),
        (load("gemma-4-31b"), 1.0),
        (load("t5-3b"), 1.0),
        (load("mpt-7b"), None),
        (load("deepseek-v3"), 0.1352337788608801),
        (load("deepseek-v2"), 0.11472138679292612),
        (load("deepseek-v2-lite"), 0.11472138679292612),
        (V3, None),
        ({**V3, "rope_parameters": {**YARN, "rope_type": "yarn"}}, 0.1352337788608801),
        ({**V3, "rope_scaling": {**YARN, "type": "default"}}, None),
        ({**V3, "rope_scaling": {**YARN, "mscale_all_dim": 0}}, None),
        ({**V3, "rope_scaling": {**YARN, "factor": 1}}, None),
        ({**load("llama-3.1-8b"), "rope_scaling": YARN}, None),  # without MLA nobody multiplies the scale
        ({**GRANITE, "attention_multiplier": 0.0078125}, 0.0078125),
        (GRANITE, 1.0),
        ({**GRANITE, "attention_multiplier": 0.125}, None),
        ({**GPT2, "model_type": "switch_transformers"}, 1.0),
        ({**GPT2, "model_type": "gpt_neo"}, 1.0),
        ({**GPT2, "scale_attn_weights": False}, 1.0),
        ({**GPT2, "scale_attn_by_inverse_layer_idx": True}, None),
        (GEMMA2, 0.0625),
        ({**MPT, "attn_config": {"softmax_scale": 0.05}}, 0.05),
        ({**MPT, "attn_config": {"softmax_scale": None}}, None),
        ({**GPT2, "query_pre_attn_scalar": 96}, 96**-0.5),
        ({**GPT2, "query_pre_attn_scalar": "96"}, None),
        ({**GPT2, "query_pre_attn_scalar": 10**4000}, None),
        ({**GPT2, "attention_multiplier": True}, None),
    ],
)
def test_the_scale_that_a_file_says(config, scale):
    keys, notes = from_huggingface(config)
    assert keys.get("checkpoint_scale") == (None if scale is None else pytest.approx(scale, rel=1e-12))
    assert ("own-scale" in [note.id for note in notes]) == (scale is not None)
    report = diagnose(config)
    d_head = read(config).d_head or read(config).d_model // read(config).n_heads
    assert report.derived["scale"] == pytest.approx(scale or d_head**-0.5)
    assert len([found for found in report.findings if found.id == "own-scale"]) == (scale is not None)


def test_the_layers_of_gpt2_that_scale_more_are_named():
    notes = {note.id: note.message for note in from_huggingface({**GPT2, "scale_attn_by_inverse_layer_idx": True})[1]}
    assert "divides its scores by i + 1" in notes["scale-by-layer"]


def test_the_scale_of_mla_is_that_of_transformers():
    """The same file, through transformers' own class."""
    modeling = pytest.importorskip("transformers.models.deepseek_v3.modeling_deepseek_v3")
    rope = {**load("deepseek-v3")["rope_scaling"], "rope_type": "yarn"}
    assert diagnose(load("deepseek-v3")).derived["scale"] == pytest.approx(modeling.yarn_apply_mscale(rope, 192**-0.5))


@pytest.mark.parametrize(
    ("name", "d_head", "shapes"),
    [
        ("qwen3-4b", 80, "q_proj [4096, 2560] against [2560, 2560]"),
        ("bert-base-uncased", 96, "q_proj [768, 768] against [1152, 768]"),
        ("llama-3.1-8b", 64, "k_proj [1024, 4096] against [512, 4096]"),
        ("t5-3b", 32, "o_proj [1024, 4096] against [1024, 1024]"),
    ],
)
def test_another_d_head_than_the_file_has_does_not_load(name, d_head, shapes):
    report = diagnose({"config": load(name), "d_head": d_head})
    found = next(found for found in report.findings if found.id == "will-not-load")
    assert report.verdict == "reject"
    assert shapes in found.message
    assert any("Use d_head = " in way for way in found.suggestions)
    right = read(load(name))
    same = {"config": load(name), "d_head": right.d_head or right.d_model // right.n_heads}
    assert not any(found.id in ("will-not-load", "overrides-config") for found in diagnose(same).findings)


@pytest.mark.parametrize(
    ("name", "changes", "shapes"),
    [
        ("gpt2", {"n_kv_heads": 4}, "k_proj [768, 768] against [256, 768]"),
        ("gpt2", {"attention": "mqa"}, "k_proj [768, 768] against [64, 768]"),
        ("llama-3.1-8b", {"d_head_v": 64}, "v_proj [1024, 4096] against [512, 4096]"),
        ("deepseek-v3", {"n_heads": 64}, "q_b_proj [24576, 1536] against [12288, 1536]"),
        ("deepseek-v2-lite", {"q_latent": 1536}, "q_proj [3072, 2048] against none"),
        ("deepseek-v3", {"attention": "mha"}, "kv_b_proj"),
    ],
)
def test_what_changes_a_shape_of_the_file_does_not_load(name, changes, shapes):
    report = diagnose({"config": load(name), **changes})
    assert report.verdict == "reject"
    assert any(found.id == "will-not-load" and shapes in found.message for found in report.findings)


@pytest.mark.parametrize(
    ("name", "scale", "verdict"),
    [("gemma-2-27b", 0.0833333, "ok"), ("gemma-2-27b", 128**-0.5, "warn"), ("t5-3b", 1.0, "ok"), ("t5-3b", 0.0884, "warn"),
     ("deepseek-v3", 0.13523, "ok"), ("deepseek-v3", 192**-0.5, "warn")],
)  # fmt: skip
def test_a_scale_is_compared_with_the_one_of_the_file(name, scale, verdict):
    assert diagnose({"config": load(name), "scale": scale}).verdict == verdict


def test_null_is_not_absent():
    """Mixtral's class fills in 8 key/value heads for a file without the key, and none for null."""
    config = load("mixtral-8x7b")
    assert from_huggingface({**config, "num_key_value_heads": None})[0].get("n_kv_heads") is None
    del config["num_key_value_heads"]
    assert from_huggingface(config)[0]["n_kv_heads"] == 8


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({"model_type": "mamba", "hidden_size": 768}, "has no attention"),
        ({"model_type": "odd", "num_attention_heads": 8}, "width"),
        ({"architectures": ["X"]}, "head count"),
        ({"model_type": "openelm", "num_attention_heads": [12, 16], "hidden_size": 768}, "layer to layer"),
        ({"model_type": "llama", "hidden_size": "4096"}, "is a text"),
        ({"_class_name": "UNet2DConditionModel", "block_out_channels": 320}, "list of widths"),
        (
            {"_class_name": "UNet2DConditionModel", "block_out_channels": [8, 8], "attention_head_dim": [1]},
            "one for each",
        ),
        (
            {"_class_name": "AutoencoderKL", "block_out_channels": [8], "down_block_types": ["DownEncoderBlock2D"]},
            "No level",
        ),
        ({"_class_name": "Thing"}, "Give d_model"),
    ],
)
def test_a_config_without_attention_is_one_line(config, word):
    with pytest.raises(ConfigError, match=word) as caught:
        read(config)
    assert len(str(caught.value)) < 400


# Held against transformers.


@pytest.mark.parametrize("kind", DEFAULTS)
def test_the_defaults_are_those_of_the_class(kind):
    transformers = pytest.importorskip("transformers")
    config = transformers.CONFIG_MAPPING[kind]().to_dict()
    keys, _ = from_huggingface(config)
    empty, _ = from_huggingface({"model_type": kind})
    for key in ("d_model", "n_heads", "n_layers"):
        assert empty[key] == keys[key], key
    assert empty.get("n_kv_heads", empty["n_heads"]) == keys.get("n_kv_heads", keys["n_heads"])
    assert empty.get("d_head", empty["d_model"] // empty["n_heads"]) == keys.get(
        "d_head", keys["d_model"] // keys["n_heads"]
    )


def read_or_message(config: dict):
    try:
        return read(config)
    except ConfigError as error:
        return str(error)


def test_every_class_of_transformers_is_read_or_refused_in_one_line():
    """No config.json that transformers can write makes the reader fail; where it is read, the modules have these widths."""
    transformers = pytest.importorskip("transformers")
    read_in = refused = 0
    for kind in transformers.CONFIG_MAPPING:
        try:
            config = transformers.CONFIG_MAPPING[kind]().to_dict()
        except Exception:
            continue  # a class that cannot be made without arguments
        told = read_or_message({"config": {"model_type": kind, **config}})
        if isinstance(told, str):
            assert "\n" not in told
            refused += 1
            continue
        keys = told
        read_in += 1
        assert keys.d_model
        assert keys.n_heads
    assert read_in > 150, (read_in, refused)


SMALL = {"hidden_size": 96, "num_attention_heads": 6, "num_hidden_layers": 1, "intermediate_size": 32, "vocab_size": 64}
BUILT = {
    "llama": {**SMALL, "num_key_value_heads": 2},
    "llama, head_dim": {**SMALL, "num_key_value_heads": 2, "head_dim": 32},
    "qwen3": {**SMALL, "num_key_value_heads": 3, "head_dim": 24},
    "mistral": {**SMALL, "num_key_value_heads": 2, "head_dim": 8},
    "gemma2": {**SMALL, "num_key_value_heads": 2, "head_dim": 32},
    "gpt_oss": {**SMALL, "num_key_value_heads": 2, "head_dim": 64, "num_local_experts": 2, "num_experts_per_tok": 1},
    "bert": SMALL,
    "opt": {**SMALL, "ffn_dim": 32, "word_embed_proj_dim": 96},
    "falcon": {**SMALL, "multi_query": True, "new_decoder_architecture": False},
    "falcon, new": {**SMALL, "num_kv_heads": 2, "new_decoder_architecture": True},
    "falcon, neither": {**SMALL, "multi_query": False, "new_decoder_architecture": False},
    "t5": {
        "d_model": 96,
        "d_kv": 8,
        "num_heads": 6,
        "num_layers": 1,
        "num_decoder_layers": 1,
        "d_ff": 32,
        "vocab_size": 64,
    },
    "gpt2": {"n_embd": 96, "n_head": 6, "n_layer": 1, "vocab_size": 64},
    "gpt_bigcode": {"n_embd": 96, "n_head": 6, "n_layer": 1, "vocab_size": 64},
}


@pytest.mark.parametrize("case", BUILT)
def test_the_modules_of_transformers_have_the_widths_that_are_read(case):
    """The real modules are built, and their weights' shapes held against what was read from their config.json."""
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    made = transformers.CONFIG_MAPPING[case.split(",")[0]](**BUILT[case])
    with torch.device("meta"):
        model = transformers.AutoModel.from_config(made)
    config = read(made.to_dict())
    heads, kv_heads = config.n_heads, config.n_heads if config.n_kv_heads is None else config.n_kv_heads
    d_head = config.d_head or config.d_model // heads
    due = {
        "q": [heads * d_head, config.d_model],
        "k": [kv_heads * d_head, config.d_model],
        "v": [kv_heads * d_head, config.d_model],
        "qkv": [(heads + 2 * kv_heads) * d_head, config.d_model],
    }
    names = {
        "q_proj": "q", "query": "q", "q": "q", "k_proj": "k", "key": "k", "k": "k", "v_proj": "v", "value": "v", "v": "v",
        "query_key_value": "qkv", "c_attn": "qkv",
    }  # fmt: skip
    seen = 0
    for name, weight in model.state_dict().items():
        role = names.get(name.removesuffix(".weight").split(".")[-1])
        if (
            role
            and name.endswith(".weight")
            and weight.ndim == 2
            and "attn" in name.lower() + "attn" * ("attention" in name.lower())
        ):
            shape = (
                list(weight.shape)[::-1] if name.endswith("c_attn.weight") and case == "gpt2" else list(weight.shape)
            )
            assert shape in (due[role], due[role][::-1]) if "c_attn" in name else shape == due[role], name
            seen += 1
    assert seen >= 1
