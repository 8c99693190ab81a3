"""What is read: keys, their other names, a named model, weight shapes; and what is no configuration."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
from splitheads import models
from splitheads.doctor import ALIASES, KEYS, Config, ConfigError, read
from splitheads.doctor.keys import GROUPS, MLA_WIDTHS
from splitheads.doctor.values import LARGEST, show


def ids(config: Config) -> list[str]:
    return [note.id for note in config.notes]


def said(config: Config, name: str) -> str:
    return next(note.message for note in config.notes if note.id == name)


def error(config) -> str:
    with pytest.raises(ConfigError) as caught:
        read(config)
    message = str(caught.value)
    assert message
    assert "\n" not in message
    assert len(message) < 400
    return message


def test_the_table_of_keys_is_whole():
    fields = {field.name for field in dataclasses.fields(Config)}
    assert set(KEYS) - {"config"} == fields - {"origin", "notes", "values", "device_name", "trained", "about"}
    assert {group for _, group, _, _ in KEYS.values()} == {name for name, _ in GROUPS}
    assert set(ALIASES.values()) <= set(KEYS)
    assert not set(ALIASES) & set(KEYS)
    for key, (_, _, about, example) in KEYS.items():
        assert about
        if key != "config":
            assert read({key: example}).values[key] is not None


def test_what_is_given_is_kept_and_its_origin_told():
    config = read({"d_model": 1024, "n_heads": 12, "rope": True, "dropout": 0})
    assert (config.d_model, config.n_heads, config.rope, config.dropout) == (1024, 12, True, 0)
    assert config.n_kv_heads is None
    assert config.origin == {"d_model": "given", "n_heads": "given", "rope": "given", "dropout": "given"}
    assert config.values == {"d_model": 1024, "n_heads": 12, "rope": True, "dropout": 0}
    assert config.notes == ()
    assert read({"d_model": 8, "device": None}) == read({"d_model": 8})


@pytest.mark.parametrize("empty", [{}, {"d_model": None, "device": None}])
def test_nothing_given_is_no_configuration(empty):
    assert "Nothing is given. Give d_model and n_heads" in error(empty)


@pytest.mark.parametrize("alias", ALIASES)
def test_other_names_are_accepted_and_noted(alias):
    key = ALIASES[alias]
    example = KEYS[key][3]
    config = read({alias: example})
    assert config.values == read({key: example}).values
    assert ids(config) == ["alias"]
    assert f"{alias} is read as {key}" in said(config, "alias")
    assert read({alias: example, key: example}).values == {key: read({key: example}).values[key]}


def test_two_names_for_one_key_must_agree():
    assert error({"d_model": 768, "hidden_size": 1024}) == (
        "d_model = 768 and hidden_size = 1024 mean the same key, d_model. Give it once."
    )


@pytest.mark.parametrize(
    ("given", "kept"),
    [(12.0, 12), (0, 0), (-3, -3), (2**40, 2**40), (10**15, 10**15), (10**4000, LARGEST), (-1e300, -LARGEST)],
)
def test_whole_numbers(given, kept):
    """Out of range is for the rules to say. What is beyond every range is cut to a number that prints."""
    config = read({"d_model": given})
    assert config.d_model == kept
    assert isinstance(config.d_model, int)
    assert ids(config) == (["clamped"] if abs(kept) == LARGEST else [])


WRONG = {
    "unknown key": ({"d_modle": 1024}, "the nearest key is d_model"),
    "unknown key, near an alias": ({"num_attention_head": 12}, "n_heads"),
    "unknown key, near nothing": ({"qqqqqqq": 1}, f"and {len(KEYS) - 7} more"),
    "key that is no text": ({1: 2}, "1 is not"),
    "text for a number": ({"d_model": "768"}, '"768" is a text'),
    "fraction": ({"n_heads": 12.5}, "12.5 is not a whole number"),
    "truth for a number": ({"n_heads": True}, "true or false, not a whole number"),
    "number for a truth": ({"rope": 1}, "Give true or false"),
    "NaN": ({"d_model": math.nan}, "NaN or Infinity"),
    "Infinity": ({"dropout": math.inf}, "NaN or Infinity"),
    "list for a number": ({"d_model": [1, 2]}, "a list of 2 values"),
    "object for a number": ({"d_model": {}}, "an object with 0 keys"),
    "text for a share": ({"rotary_pct": "half"}, '"half" is a text'),
    "unknown dtype": ({"dtype": "bfloat17"}, "bfloat17"),
    "dtype that is a number": ({"dtype": 16}, "not a text"),
    "unknown device": ({"device": "h10O"}, "Did you mean h100?"),
    "device far from the table": ({"device": "sm30"}, "sm75"),
    "torch that is a number": ({"torch": 2.1}, "not a text"),
    "torch that is no version": ({"torch": "nightly"}, "not a torch version"),
    "unknown stack": ({"stack": "vlm"}, "Did you mean vllm?"),
    "unknown attention": ({"attention": "gqaa"}, "Did you mean gqa?"),
    "unknown implementation": ({"attn_implementation": "flash_attention_9"}, "Did you mean flash_attention_2?"),
    "causal as a mask": ({"mask": "causal"}, "is_causal: true"),
    "mask that is a number": ({"mask": 3}, "is a number"),
    "unknown model": ({"model": "Lama 3 8B"}, "Llama 3 8B"),
    "model that is a number": ({"model": 8}, "not a text"),
    "shapes that are no object": ({"weight_shapes": [1, 2]}, "k_proj"),
    "shape of one side": ({"weight_shapes": {"k_proj": [4096]}}, "[out, in]"),
    "shape of texts": ({"weight_shapes": {"k_proj": ["a", "b"]}}, "is a text"),
    "unknown weight": ({"weight_shapes": {"kk_proj": [1, 2]}}, "Did you mean k_proj?"),
    "heads that are texts": ({"prune_heads": ["one"]}, "prune_heads[0]"),
    "config that is no object": ({"config": 3}, "config.json"),
    "a list": ([1], "a list of 1 value"),
    "nothing": (None, "this is null"),
    "a text": ("d_model", '"d_model"'),
}


@pytest.mark.parametrize(("config", "word"), WRONG.values(), ids=WRONG)
def test_what_is_no_configuration(config, word):
    assert word.lower() in error(config).lower()


def test_a_long_value_is_shortened():
    assert len(error({"d_model": "x" * 10**6})) < 200
    assert len(error({"x" * 10**6: 1})) < 300
    assert len(error({"model": "x" * 10**6})) < 400
    assert len(error({"device": "x" * 10**6})) < 400


@pytest.mark.parametrize("value", ["a\nb", "\x1b[31m", "\ud800", "\u2028", "é", "😀"])
def test_a_shown_value_is_one_printable_line(value):
    text = show(value)
    assert text.isprintable()
    text.encode()


def test_words_for_choices():
    assert read({"attention": "GQA", "stack": "SGLang", "attn_implementation": "fa2"}).values == {
        "attention": "gqa",
        "stack": "vllm",
        "attn_implementation": "flash_attention_2",
    }
    assert read({"mask": True}).mask == "bool"
    assert read({"mask": False}).mask is read({"mask": "none"}).mask is None
    assert read({"mask": "Boolean"}).mask == "bool"
    assert read({"mask": "float"}).mask == "float"
    assert read({"dtype": "torch.bfloat16"}).dtype == "bf16"


@pytest.mark.parametrize(
    ("device", "key"),
    [("a100", "sm80"), ("H100 SXM", "sm90"), ("rtx4090", "sm89"), ("T4", "sm75"), ("sm90", "sm90"), ("cpu", "cpu")],
)
def test_devices(device, key):
    config = read({"device": device})
    assert (config.device, config.device_name) == (key, device)
    assert "device_name" not in config.values


def test_an_unknown_torch_is_kept():
    assert read({"torch": "2.9.1"}).torch == "2.9.1"


# A named model.


def test_a_model_fills_in_what_is_not_given():
    config = read({"model": "llama-3-8b"})
    assert config.values == {
        "model": "Llama 3 8B",
        "d_model": 4096,
        "n_heads": 32,
        "n_kv_heads": 8,
        "n_layers": 32,
        "attention": "gqa",
    }
    assert config.origin["n_heads"] == "model"
    assert config.notes == ()


def test_an_explicit_head_width_of_a_model_is_filled_in_and_one_by_the_rule_is_not():
    assert read({"model": "Qwen3-0.6B"}).d_head == 128
    assert read({"model": "Qwen3-8B"}).d_head is None
    assert read({"model": "Qwen3-0.6B", "n_heads": 8}).d_head == 128
    assert read({"model": "BERT-Base", "n_heads": 8}).d_head is None


def test_what_is_given_wins_over_the_model_and_both_are_named():
    config = read({"model": "Llama 2 7B", "n_kv_heads": 1, "n_heads": 32})
    assert (config.n_kv_heads, config.origin["n_kv_heads"]) == (1, "given")
    assert ids(config) == ["overrides-model"]
    assert said(config, "overrides-model") == "n_kv_heads = 1 is taken as given; Llama 2 7B has 32."
    assert (config.checkpoint_n_heads, config.checkpoint_n_kv_heads, config.checkpoint_d_model) == (32, 32, 4096)
    assert config.origin["checkpoint_n_kv_heads"] == "model"


def test_a_models_numbers_are_no_checkpoint_until_they_are_overridden():
    assert read({"model": "Llama 2 7B"}).checkpoint_n_heads is None
    assert read({"model": "Llama 2 7B", "n_heads": 32}).checkpoint_n_heads is None
    assert read({"model": "Llama 2 7B", "n_layers": 2}).checkpoint_n_heads is None
    assert read({"model": "BERT-Base", "n_heads": 8, "checkpoint_n_heads": 16}).checkpoint_n_heads == 16


def test_as_many_key_value_heads_as_heads_follow_the_heads():
    config = read({"model": "BERT-Base", "n_heads": 8})
    assert (config.n_heads, config.n_kv_heads, config.checkpoint_n_kv_heads) == (8, None, 12)
    assert read({"model": "Llama 3 8B", "n_heads": 16}).n_kv_heads == 8
    assert read({"model": "Llama 3 8B", "attention": "mha"}).n_kv_heads is None


def test_the_latent_widths_of_every_mla_model_are_known():
    mla = {row.name for row in models.rows() if row.attention == "mla"}
    assert set(MLA_WIDTHS) == mla
    for name in mla:
        config = read({"model": name})
        assert config.kv_latent
        assert 0 < config.rope_dim < config.d_head
        assert (
            f"{config.d_head - config.rope_dim} nope + {config.rope_dim} rope" in models.find(name).note
            or name == "Kimi K2"
        )


# Weight shapes.


def test_the_lost_columns_of_fast_llm():
    """Row 11 of the verdict table: 4096 / 24 is not whole, and q_proj knows that d_head is 128."""
    config = read({"d_model": 4096, "n_heads": 24, "n_kv_heads": 8, "weight_shapes": {"q_proj": [3072, 4096]}})
    assert (config.d_head, config.origin["d_head"]) == (128, "weights")
    assert "3072 rows = 24 heads × 128" in said(config, "inferred")


INFERRED = {
    "kv heads, head width by the rule": ({"d_model": 4096, "n_heads": 32}, {"k_proj": [1024, 4096]}, {"n_kv_heads": 8}),
    "kv heads, head width given": (
        {"n_heads": 32, "d_head": 128},
        {"k_proj": [1024, 2560]},
        {"n_kv_heads": 8, "d_model": 2560},
    ),
    "head width from k": ({"d_model": 4096, "n_heads": 24, "n_kv_heads": 8}, {"k_proj": [1024, 4096]}, {"d_head": 128}),
    "heads from q": ({"d_model": 768, "d_head": 64}, {"query.weight": [768, 768]}, {"n_heads": 12}),
    "width from o": ({"n_heads": 32, "d_head": 128}, {"o_proj": [2560, 4096]}, {"d_model": 2560}),
    "everything of Qwen3-4B": (
        {"n_heads": 32},
        {"q_proj": [4096, 2560], "k_proj": [1024, 2560], "v_proj": [1024, 2560], "o_proj": [2560, 4096]},
        {"d_model": 2560, "d_head": 128, "n_kv_heads": 8},
    ),
    "long names": (
        {"n_heads": 32},
        {"model.layers.0.self_attn.k_proj.weight": [1024, 4096]},
        {"d_model": 4096, "n_kv_heads": 8},
    ),
    "LoRA's long names": ({"n_heads": 32}, {"layers.0.k_proj.base_layer.weight": [1024, 4096]}, {"n_kv_heads": 8}),
    "fused": ({"n_heads": 32}, {"qkv_proj": [6144, 4096]}, {"d_model": 4096, "n_kv_heads": 8}),
    "fused, plain": ({"n_heads": 12}, {"in_proj_weight": [2304, 768]}, {"d_model": 768, "n_kv_heads": 12}),
    "fused, GPT-2's order": (
        {"n_heads": 12},
        {"h.0.attn.c_attn.weight": [768, 2304]},
        {"d_model": 768, "n_kv_heads": 12},
    ),
    "fused, head width": (
        {"n_heads": 32, "n_kv_heads": 8, "d_model": 5120},
        {"qkv_proj": [6144, 5120]},
        {"d_head": 128},
    ),
    "one kv head": ({"n_heads": 71, "d_model": 4544}, {"query_key_value": [4672, 4544]}, {"n_kv_heads": 1}),
    "narrow values": (
        {"d_model": 4096, "n_heads": 64, "d_head": 192, "n_kv_heads": 4},
        {"k_proj": [768, 4096], "v_proj": [512, 4096]},
        {"d_head_v": 128},
    ),
}


@pytest.mark.parametrize(("given", "shapes", "found"), INFERRED.values(), ids=INFERRED)
def test_what_weights_tell(given, shapes, found):
    config = read({**given, "weight_shapes": shapes})
    assert {key: config.values.get(key) for key in found} == found
    assert {config.origin[key] for key in found} == {"weights"}
    assert "weights-contradict" not in ids(config)


CONTRADICT = {
    "too few kv heads": (
        {"d_model": 4096, "n_heads": 32, "n_kv_heads": 1},
        {"k_proj": [4096, 4096]},
        "Give n_kv_heads = 32",
    ),
    "many kv heads, narrow": (
        {"d_model": 5120, "n_heads": 32, "n_kv_heads": 8},
        {"k_proj": [1024, 5120]},
        "Give d_head = 128",
    ),
    "another width": ({"d_model": 1024, "n_heads": 16}, {"q_proj": [768, 768]}, "Give d_model = 768"),
    "swapped": ({"d_model": 4096, "n_heads": 32, "n_kv_heads": 8}, {"k_proj": [4096, 1024]}, "looks like [in, out]"),
    "two layers": ({"n_heads": 4}, {"a.0.q_proj": [64, 64], "a.1.q_proj": [32, 64]}, "one layer"),
    "heads that do not divide": ({"d_model": 1000, "n_heads": 12}, {"q_proj": [1000, 1000]}, "n_heads"),
    "a model of other shapes": ({"model": "Llama 3 8B"}, {"k_proj": [4096, 4096]}, "Give n_kv_heads = 32"),
}


@pytest.mark.parametrize(("given", "shapes", "way"), CONTRADICT.values(), ids=CONTRADICT)
def test_a_contradiction_is_an_error_and_no_silent_choice(given, shapes, way):
    config = read({**given, "weight_shapes": shapes})
    found = [note for note in config.notes if note.severity == "error"]
    assert [note.id for note in found] == ["weights-contradict"]
    assert any(way in suggestion for suggestion in found[0].suggestions)


@pytest.mark.parametrize("row", [row for row in models.rows() if row.attention != "mla"], ids=lambda row: row.name)
def test_the_weights_of_every_model_agree_with_it(row):
    """The true shapes are no contradiction, and tell the key/value heads, and d_head, back."""
    value = row.d_head_v or row.d_head
    shapes = {
        "q_proj": [row.n_heads * row.d_head, row.d_model],
        "k_proj": [row.n_kv_heads * row.d_head, row.d_model],
        "v_proj": [row.n_kv_heads * value, row.d_model],
        "o_proj": [row.d_model, row.n_heads * value],
    }
    assert "weights-contradict" not in ids(read({"model": row.name, "weight_shapes": shapes}))
    config = read({"n_heads": row.n_heads, "weight_shapes": shapes})
    assert (config.d_model, config.n_kv_heads) == (row.d_model, row.n_kv_heads)
    assert (config.d_head or config.d_model // config.n_heads) == row.d_head
    assert "weights-contradict" not in ids(config)


def test_a_shape_out_of_range_is_an_error_with_a_way_out():
    config = read({"weight_shapes": {"k_proj": [0, 4096]}})
    assert [(note.id, note.severity, bool(note.suggestions)) for note in config.notes] == [("range", "error", True)]


# diffusers' name.


def test_attention_head_dim_shows_both_readings():
    config = read({"channels": 320, "attention_head_dim": 8})
    assert config.n_heads == 8
    finding = next(note for note in config.notes if note.id == "ambiguous-head-dim")
    assert finding.severity == "warning"
    assert "8 heads of 40 columns" in finding.message
    assert "40 heads of 8 columns" in finding.message
    assert len(finding.suggestions) == 2


def test_attention_head_dim_beside_a_head_count_changes_nothing():
    config = read({"d_model": 320, "n_heads": 40, "attention_head_dim": 8})
    assert config.n_heads == 40
    assert [note.severity for note in config.notes] == ["note"]


def test_every_value_is_json():
    config = read(
        {"model": "DeepSeek-V3", "device": "h100", "weight_shapes": {"q_proj": (24576, 1536)}, "prune_heads": (0, 1)}
    )
    assert json.loads(json.dumps(config.values)) == config.values


# Devices, dtypes and names that people have


@pytest.mark.parametrize(
    ("device", "key"),
    [("V100", "sm75"), ("Tesla V100-SXM2-32GB", "sm75"), ("B300", "sm100"), ("GB300", "sm100"), ("GB10", "sm120"), ("Jetson Orin", "sm86"), ("P100", "sm75"), ("sm87", "sm86")],
)  # fmt: skip
def test_a_device_that_the_table_lacks_is_answered_for_its_neighbour(device, key):
    config = read({"d_head": 64, "device": device})
    assert config.device == key
    assert f"The kernel is answered for {key}." in said(config, "nearest-platform")


@pytest.mark.parametrize(
    ("device", "key"),
    [("a6000", "sm86"), ("rtx a6000", "sm86"), ("rtx 6000 ada", "sm89"), ("A10G", "sm86"), ("H20", "sm90"), ("A800", "sm80"), ("quadro rtx 6000", "sm75"), ("a100", "sm80")],
)  # fmt: skip
def test_devices_of_the_table_need_no_remark(device, key):
    config = read({"d_head": 64, "device": device})
    assert (config.device, config.notes) == (key, ())


@pytest.mark.parametrize(
    ("device", "word"),
    [("cuda", "which GPU"), ("cuda:0", "which GPU"), ("gpu", "which GPU"), ("MI300X", "AMD"), ("Radeon RX 7900 XTX", "AMD"), ("tpu", "only NVIDIA"), ("rtx6000", "three cards")],
)  # fmt: skip
def test_devices_that_say_too_little_or_are_not_covered(device, word):
    message = error({"device": device})
    assert word in message
    assert "ive " in message or "Leave" in message
    assert "Did you mean" not in message


def test_hints_do_not_mislead():
    assert "Did you mean" not in error({"device": "k100"})
    assert "4 bits" in error({"dtype": "fp4"})
    assert "4 bits" in error({"dtype": "nf4"})
    assert "f64" not in error({"dtype": "fp4"}).replace("fp64", "")


@pytest.mark.parametrize(
    "name", ["flash_attention_3", "flash-attention-3", "kernels-community/flash-attn3", "paged|sdpa"]
)
def test_implementations_that_are_not_covered_say_so(name):
    assert "not covered" in error({"attn_implementation": name})
    assert "Did you mean" not in error({"attn_implementation": name})


@pytest.mark.parametrize(("given", "kept"), [(True, True), (False, False), ("qkv", "qkv"), ("QVO", "qvo"), ("o", "o")])
def test_biases_of_some_projections(given, kept):
    assert read({"bias": given, "d_head": 64}).bias == kept
    assert "qkv" in error({"bias": 1})
    assert "qkv" in error({"bias": "kv"})


def test_a_hub_name_is_read_and_said():
    config = read({"model": "meta-llama/Llama-2-7b-hf"})
    assert config.model == "Llama 2 7B"
    assert '"meta-llama/Llama-2-7b-hf" is read as Llama 2 7B' in said(config, "alias")
    assert "alias" not in ids(read({"model": "llama 2 7b"}))
