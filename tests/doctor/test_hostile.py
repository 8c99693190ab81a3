"""Whatever is given: a report with a verdict, or one line that says why not. Never a traceback.

20,000 configurations in all. A configuration is drawn as a list of (key, value) pairs out of one flat list, so that
drawing is cheap and a failure shrinks to the pairs that matter.
"""

from __future__ import annotations

import json
import math
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from splitheads import models
from splitheads.doctor import KEYS, ConfigError, diagnose, diagnose_plain, read
from splitheads.doctor.report import SEVERITIES, VERDICTS

WIDTHS = [
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    9,
    12,
    14,
    16,
    20,
    24,
    25,
    28,
    31,
    32,
    40,
    48,
    52,
    64,
    65,
    71,
    72,
    80,
    88,
    96,
    100,
    128,
    132,
]
WIDE = [
    160,
    192,
    224,
    256,
    257,
    320,
    512,
    520,
    576,
    768,
    1000,
    1024,
    1280,
    1600,
    2048,
    2560,
    2880,
    4096,
    5120,
    7168,
    16384,
]
NAMES = [row.name for row in models.rows()]
VALID = {
    "model": [*NAMES[::6], "bert base", "llama-2-7b"],
    "d_model": [*WIDTHS[10:], *WIDE],
    "n_heads": [*WIDTHS, 256],
    "n_kv_heads": WIDTHS[:20],
    "d_head": [*WIDTHS, *WIDE[:7]],
    "d_head_v": [32, 64, 96, 128, 256],
    "attention_head_dim": [5, 8, 64],
    "n_layers": [1, 12, 32, 61, 126],
    "attention": ["mha", "gqa", "mqa", "mla", "MHA"],
    "kv_latent": [64, 256, 512],
    "q_latent": [768, 1536],
    "rope_dim": [16, 32, 33, 64],
    "rope": [True, False],
    "rotary_pct": [0, 0.25, 0.4, 0.5, 1, 1.0],
    "bias": [True, False],
    "scale": [0.125, 0.0883883476, 1, 0, -1, 0.05],
    "device": ["a100", "h100", "rtx4090", "t4", "cpu", "mps", "sm90", "b200", "RTX 3090"],
    "torch": ["2.8.0", "2.10.0", "2.13.0", "2.15.0", "2.9.1", "1.13.1", "2.6", "3.0"],
    "dtype": ["bf16", "fp16", "fp32", "fp8", "int8", "torch.float16"],
    "attn_implementation": ["sdpa", "flash_attention_2", "flex_attention", "eager"],
    "training": [True, False],
    "dropout": [0, 0.0, 0.1, 1],
    "mask": ["bool", "float", True, False, "none"],
    "is_causal": [True, False],
    "seq_q": [1, 2, 128, 256, 4096, 131072],
    "seq_k": [1, 256, 4096, 131072],
    "batch": [1, 2, 64],
    "enable_gqa": [True, False],
    "unbatched": [True, False],
    "tp": [1, 2, 3, 4, 6, 7, 8, 14, 16, 28, 64],
    "stack": ["vllm", "hf", "ulysses"],
    "checkpoint_n_heads": [8, 12, 16, 32],
    "checkpoint_n_kv_heads": [1, 2, 4, 8, 12, 32],
    "checkpoint_d_model": [512, 768, 1024, 4096],
    "checkpoint_d_head": [64, 80, 96, 128],
    "checkpoint_scale": [0.0833333, 0.125, 1, 0.5],
    "weight_shapes": [
        {"q_proj": [768, 768]}, {"k_proj": [1024, 4096]}, {"o_proj": [2560, 4096]}, {"qkv_proj": [6144, 4096]},
        {"q_proj": [3072, 4096], "v_proj": [512, 4096]}, {"h.0.attn.c_attn.weight": [768, 2304]},
    ],
    "prune_heads": [0, 1, 4, 11, 100, [0], [0, 5], [0, 1, 2, 3], []],
    "pad_d_head_to": [40, 64, 96, 128, 256],
    "config": [{"model_type": "gpt2"}, {"model_type": "gemma3_text", "hidden_size": 1152}],
}  # fmt: skip
HOSTILE = [
    0, -1, -(2**63), 2**24, 2**24 + 1, 2**31, 2**53 + 1, 10**15, 10**40, 10**4000, -(10**4000), 0.5, -0.0, 1e-300, 1e15, 1e300, math.nan,
    math.inf, -math.inf, True, False, None, "", " ", "x", "12", "NaN", "\0", "\ud800", "line\nend", "\u202e", "é" * 50, "x" * 5000,
    [], {}, [[]], [1], [None], [1] * 1000, {"a": 1}, {"": None}, {"q_proj": [1]}, {"q_proj": [0, -5]}, {"q_proj": [10**30, 1]},
    {"k": [True, 1]}, [10**4000, -1], [math.nan], ["0"], {"model_type": "llama"}, {"hidden_size": -4, "num_attention_heads": 0},
]  # fmt: skip
VALID_PAIRS = [(key, value) for key, values in VALID.items() for value in values]
HOSTILE_PAIRS = [(key, value) for key in [*KEYS, "hidden_size", "no such key", "", "\ud800"] for value in HOSTILE]
SPLIT = [(key, value) for key in ("d_model", "n_heads", "n_kv_heads", "d_head") for value in VALID[key]]

FACES = {
    "model_type": ["llama", "bert", "falcon", "deepseek_v3", "gemma3", "t5", "mpt", "nothing", "", 7, None],
    "_class_name": ["UNet2DConditionModel", "UNet2DModel", "DiTTransformer2DModel", 3],
    "text_config": [{}, {"num_attention_heads": 8, "hidden_size": 64}, [], {"text_config": {}}],
    "attn_config": [{}, {"kv_n_heads": 2}, {"kv_n_heads": "2"}, None, 4],
    "rope_parameters": [{}, {"partial_rotary_factor": 0.5}, {"partial_rotary_factor": "x"}, 3, {"full_attention": {}}],
    "layer_types": [["full_attention", "linear_attention"], [], [3], "x", ["sliding_attention"] * 30, [f"kind {n}" for n in range(50)]],
    "block_out_channels": [[320, 640], [], 3, [0], ["a"]],
    "down_block_types": [["CrossAttnDownBlock2D", "DownBlock2D"], [], [1, 2]],
    "multi_query": [True, False, 1],
    "new_decoder_architecture": [True, False],
    "position_embedding_type": ["absolute", "rotary", 3],
    "query_pre_attn_scalar": [256, 144, "x", True],
    "torch_dtype": ["float16", "auto", 3],
    "attention_bias": [True, 3],
    "rotary_dim": [64, -1, "x", True],
}  # fmt: skip
NUMBERS = (
    "hidden_size", "d_model", "n_embd", "num_attention_heads", "n_head", "num_heads", "num_key_value_heads", "num_kv_heads", "head_dim",
    "d_kv", "num_hidden_layers", "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
    "attention_head_dim", "partial_rotary_factor", "global_head_dim", "multi_query_group_num",
)  # fmt: skip
FACE_PAIRS = [
    *[(key, value) for key, values in FACES.items() for value in values],
    *[(key, value) for key in NUMBERS for value in (1, 8, 12, 64, 128, 768, 4096)],
    *[(key, value) for key in NUMBERS for value in (0, -1, 0.5, None, "8", [8, 16], 10**30, True)],
]


def drawn(pairs: list, count: int, least: int = 0) -> st.SearchStrategy:
    """Configurations of up to `count` pairs. Two bytes choose one: a single draw, and cheap."""

    def made(data: bytes) -> dict:
        places = [(data[i] * 256 + data[i + 1]) % len(pairs) for i in range(0, len(data) - 1, 2)]
        return {pairs[place][0]: pairs[place][1] for place in places}

    return st.binary(min_size=2 * least, max_size=2 * count).map(made)


def examples(count: int):
    return settings(
        max_examples=count, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )


def check(config) -> str:
    """The verdict, or "unusable"; everything that must hold of either is asserted."""
    try:
        read_in = read(config)
    except ConfigError as error:
        message = str(error)
        assert message
        assert "\n" not in message
        assert len(message) < 500
        assert diagnose_plain(config) == {"error": message}
        return "unusable"
    report = diagnose(read_in)
    assert report.verdict in VERDICTS
    ranks = [SEVERITIES.index(finding.severity) for finding in report.findings]
    assert ranks == sorted(ranks)
    assert report.verdict == ("ok" if not ranks or ranks[0] == 2 else ("reject", "warn")[ranks[0]])
    for finding in report.findings:
        assert finding.id
        assert finding.message
        assert "\n" not in finding.message
        assert len(finding.message) < 1500
        assert finding.severity != "error" or finding.suggestions
        assert all(isinstance(way, str) and way for way in finding.suggestions)
    text = json.dumps(report.to_dict(), allow_nan=False)
    assert json.loads(text)["verdict"] == report.verdict
    return report.verdict


@examples(8000)
@given(drawn(SPLIT, 4, 2), drawn(VALID_PAIRS, 6))
def test_valid_configurations(split, more):
    check({**split, **more})


@examples(7000)
@given(drawn(VALID_PAIRS, 6), drawn(HOSTILE_PAIRS, 2, 1))
def test_hostile_values(valid, hostile):
    check({**valid, **hostile})


@examples(4000)
@given(drawn(FACE_PAIRS, 9, 2), st.sampled_from(["llama", "bert", "falcon", "deepseek_v3", "t5", None]))
def test_hostile_config_json(config, kind):
    check(
        {"config": {"hidden_size": 768, "num_attention_heads": 12, **({"model_type": kind} if kind else {}), **config}}
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*KEYS, "?"]) | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=8,
)


@examples(1000)
@given(JSON)
def test_any_json(value):
    assert check(value) in ("unusable", *VERDICTS)


def test_the_four_tests_have_twenty_thousand_configurations():
    tests = (test_valid_configurations, test_hostile_values, test_hostile_config_json, test_any_json)
    assert sum(test._hypothesis_internal_use_settings.max_examples for test in tests) == 20_000


def test_every_hostile_value_in_every_key():
    """Each by itself, so that none depends on chance."""
    for key, value in HOSTILE_PAIRS:
        check({key: value})
        check({"d_model": 768, "n_heads": 12, "device": "a100", key: value})


def test_nesting_without_end():
    deep: list = []
    for _ in range(50_000):
        deep = [deep]
    assert check({"d_model": deep}) == check(deep) == check({"weight_shapes": {"q_proj": deep}}) == "unusable"
    assert check({"config": {"hidden_size": deep, "num_attention_heads": 8}}) == "unusable"


# What a verdict promises.


@pytest.mark.parametrize("row", models.rows(), ids=lambda row: row.name)
def test_every_published_model_is_legal_and_a_breaker_is_explained(row):
    for config in ({"model": row.name}, {"model": row.name, "device": "h100", "rope": True, "seq_q": 4096, "batch": 1}):
        report = diagnose(config)
        assert [finding.message for finding in report.findings if finding.severity == "error"] == []
        told = {finding.id: finding.message for finding in report.findings}
        assert ("breaks-rule" in told) == (not row.follows_rule)
        if not row.follows_rule:
            assert str(row.d_model) in told["breaks-rule"]
        assert report.derived["d_head"] == row.d_head
        assert report.derived["n_kv_heads"] == row.n_kv_heads


def accepted(count: int) -> list[tuple[dict, dict]]:
    """Small configurations with the verdict ok, of every kind of attention: (configuration, what is derived)."""
    chance = random.Random(4)
    found, seen = [], set()
    for _ in range(40_000):
        config = {
            "d_model": chance.choice([16, 24, 60, 64, 96, 100, 128, 192, 320]),
            "n_heads": chance.choice([1, 2, 3, 4, 5, 6, 8, 12]),
        }
        for key, values in (
            ("n_kv_heads", [1, 2, 3, 4, 6]),
            ("d_head", [7, 8, 16, 24, 32, 40]),
            ("d_head_v", [8, 16, 48]),
            ("attention", ["mha", "gqa", "mqa", "mla"]),
            ("rope", [True, False]),
            ("rotary_pct", [0.25, 0.5]),
            ("bias", [True]),
            ("mask", ["bool", "float"]),
            ("is_causal", [True]),
            ("prune_heads", [1, 2, [0], [0, 1]]),
            ("q_latent", [20]),
        ):
            if chance.random() < 0.3:
                config[key] = chance.choice(values)
        if config.get("attention") == "mla":
            config |= {"kv_latent": 24, "rope_dim": chance.choice([4, 8]), "d_head": chance.choice([16, 24])}
            config.pop("n_kv_heads", None)
        text = json.dumps(config, sort_keys=True)
        if text in seen:
            continue
        seen.add(text)
        report = diagnose(config)
        if report.verdict == "ok" and "o_proj" in report.derived:
            found.append((config, report.derived))
        if len(found) == count:
            break
    return found


def test_ok_means_that_it_can_be_built_reshaped_and_run():
    torch = pytest.importorskip("torch")
    from torch.nn.functional import scaled_dot_product_attention

    torch.manual_seed(0)
    batch, tokens = 2, 5
    cases = accepted(200)
    assert len(cases) == 200
    kinds = set()
    for config, derived in cases:
        heads, kv_heads, d_head, d_head_v = (derived[key] for key in ("n_heads", "n_kv_heads", "d_head", "d_head_v"))
        made = {
            name: torch.nn.Linear(shape[1], shape[0], bias=config.get("bias", False))
            for name, shape in derived.items()
            if name.endswith("_proj")
        }
        x = torch.randn(batch, tokens, config["d_model"])
        if config.get("attention") == "mla":
            kinds.add("mla")
            turned = config["rope_dim"]
            q_in = torch.randn(batch, tokens, config["q_latent"]) if "q_latent" in config else x
            q = made["q_proj"](q_in).view(batch, tokens, heads, d_head)
            latent, k_turned = made["kv_down_proj"](x).split([config["kv_latent"], turned], dim=-1)
            up = made["kv_up_proj"](latent).view(batch, tokens, heads, d_head - turned + d_head_v)
            k_content, v = up.split([d_head - turned, d_head_v], dim=-1)
            k = torch.cat([k_content, k_turned[:, :, None].expand(batch, tokens, heads, turned)], dim=-1)
        else:
            kinds.add("mha" if heads == kv_heads else "gqa")
            q = made["q_proj"](x).view(batch, tokens, heads, d_head)
            k = made["k_proj"](x).view(batch, tokens, kv_heads, d_head)
            v = made["v_proj"](x).view(batch, tokens, kv_heads, d_head_v)
            if config.get("rope") or ("rotary_pct" in config and config.get("rope") is not False):
                kinds.add("rope")
                turned = int(d_head * config.get("rotary_pct", 1))
                q, k = rotated(q, turned), rotated(k, turned)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        mask = {"bool": torch.ones(tokens, tokens, dtype=torch.bool), "float": torch.zeros(tokens, tokens)}.get(
            config.get("mask")
        )
        merged = scaled_dot_product_attention(
            q, k, v, mask, is_causal=config.get("is_causal", False), enable_gqa=heads != kv_heads
        )
        out = made["o_proj"](merged.transpose(1, 2).reshape(batch, tokens, heads * d_head_v))
        assert out.shape == x.shape
        assert torch.isfinite(out).all()
        weights = sum(layer.weight.numel() for layer in made.values())
        biases = sum(layer.bias.numel() for layer in made.values() if layer.bias is not None)
        if config.get("attention") != "mla":
            assert derived["attention_params_per_layer"] == weights + biases, config
    assert kinds == {"mha", "gqa", "mla", "rope"}


def rotated(x, turned: int):
    """RoPE's shapes, as transformers has them: the first `turned` columns in two halves, tables of cos and sin beside."""
    import torch

    half = torch.arange(0, turned, 2) / turned
    angles = torch.arange(x.shape[1])[:, None] * (10_000.0**-half)
    cos, sin = (torch.cat([table, table], dim=-1)[:, None] for table in (angles.cos(), angles.sin()))
    part, rest = x[..., :turned], x[..., turned:]
    left, right = part[..., : turned // 2], part[..., turned // 2 :]
    return torch.cat([part * cos + torch.cat([-right, left], dim=-1) * sin, rest], dim=-1)


def test_the_verdict_on_a_plain_split_is_that_of_torch():
    """nn.MultiheadAttention raises exactly where the verdict is reject."""
    torch = pytest.importorskip("torch")
    for width in (1, 2, 5, 12, 60, 64, 100):
        for heads in range(1, 70):
            try:
                torch.nn.MultiheadAttention(width, heads, device="meta")
                raises = False
            except AssertionError:
                raises = True
            assert (diagnose({"d_model": width, "n_heads": heads}).verdict == "reject") == raises, (width, heads)
