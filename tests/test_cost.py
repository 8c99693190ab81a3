"""What attention costs: every value is the product of its factors, and torch's own counts agree."""

import json
import math
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from splitheads import cost
from splitheads.cost import CostError, Intensity, Quantity
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

TORCH_DTYPES = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp8": torch.float8_e4m3fn,
    "int8": torch.int8,
}
# d_model, n_heads, n_kv_heads, d_head, d_head_v: MHA, GQA, MQA; explicit d_head; value heads of another width
LAYERS = [
    (64, 4, 4, 16, 16),
    (64, 8, 2, 8, 8),
    (64, 8, 1, 8, 8),
    (48, 6, 3, 8, 8),
    (80, 4, 2, 32, 32),
    (80, 4, 4, 12, 20),
    (96, 6, 2, 24, 16),
    (32, 1, 1, 32, 32),
    (32, 1, 1, 5, 7),
    (60, 5, 5, 12, 12),
]
# batch, seq_q, seq_k
LENGTHS = [(1, 7, 7), (2, 5, 9), (3, 9, 5), (2, 1, 12), (1, 12, 1)]
MLA = [  # d_model, n_heads, d_nope, rope_dim, d_head_v, kv_latent, q_latent
    (64, 4, 16, 8, 16, 32, None),
    (64, 4, 16, 8, 16, 32, 24),
    (96, 3, 8, 4, 20, 16, 12),
    (40, 5, 12, 2, 6, 10, None),
]


@pytest.fixture(scope="module")
def hf():
    """The attention modules of transformers, which takes seconds to import."""
    from transformers import DynamicCache
    from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek
    from transformers.models.llama import modeling_llama as llama
    from transformers.models.qwen2 import modeling_qwen2 as qwen2
    from transformers.models.qwen3 import modeling_qwen3 as qwen3

    return SimpleNamespace(llama=llama, qwen2=qwen2, qwen3=qwen3, deepseek=deepseek, DynamicCache=DynamicCache)


def product(quantity: Quantity) -> int:
    return sum(math.prod(factor.value for factor in term) for term in quantity.terms)


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def projections(layer: tuple, bias: bool = False) -> nn.ModuleDict:
    d_model, heads, kv_heads, d_head, d_head_v = layer
    return nn.ModuleDict(
        {
            "q": nn.Linear(d_model, heads * d_head, bias=bias),
            "k": nn.Linear(d_model, kv_heads * d_head, bias=bias),
            "v": nn.Linear(d_model, kv_heads * d_head_v, bias=bias),
            "o": nn.Linear(heads * d_head_v, d_model, bias=bias),
        }
    )


def deepseek_config(hf, layer: tuple, **more):
    d_model, heads, nope, rope, v, latent, q_latent = layer
    return hf.deepseek.DeepseekV3Config(
        hidden_size=d_model,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        qk_nope_head_dim=nope,
        qk_rope_head_dim=rope,
        v_head_dim=v,
        kv_lora_rank=latent,
        q_lora_rank=q_latent,
        **more,
    )


# Texts and numbers that are known


def test_the_factors_are_written_out():
    assert cost.kv_bytes_per_token(32, 8, 128).text == (
        "2 (K and V) × 32 layers × 8 kv heads × 128 × 2 bytes = 131 072 bytes per token (128 KiB)"
    )
    assert cost.mla_kv_bytes_per_token(61, 512, 64).text == (
        "61 layers × (512 latent + 64 rope) × 2 bytes = 70 272 bytes per token (68.6 KiB)"
    )
    assert cost.kv_bytes_per_token(1, 1, 192, 128, "int8").text == (
        "1 layer × 1 kv head × (192 for K + 128 for V) × 1 byte = 320 bytes per token"
    )
    assert cost.kv_bytes(cost.kv_bytes_per_token(32, 8, 128), 8192, 4).text == (
        "4 sequences × 8 192 tokens × 2 (K and V) × 32 layers × 8 kv heads × 128 × 2 bytes = 4 294 967 296 bytes (4 GiB)"
    )
    assert cost.attention_parameters(4096, 32, 8, 128).text == (
        "2 (Q and O) × 4 096 columns × 32 heads × 128 + 2 (K and V) × 4 096 columns × 8 kv heads × 128"
        " = 41 943 040 parameters (41.9 M)"
    )
    assert cost.core_flops(12, 64, seq_q=16, causal=True, backward=True).text == (
        "2 (multiply and add) × 12 heads × 136 pairs (16 × 17 / 2: query i sees keys 0 to i)"
        " × 3 (forward 1, backward 2) × 2 (QKᵀ and AV) × 64 = 1 253 376 FLOPs (1.25 M)"
    )
    assert cost.projection_flops(4096, 32, 8, 128, seq=10).text == (
        "2 (multiply and add) × 10 tokens × (2 (Q and O) × 4 096 columns × 32 heads × 128"
        " + 2 (K and V) × 4 096 columns × 8 kv heads × 128) = 838 860 800 FLOPs (839 M)"
    )
    assert cost.score_bytes(32, 8192, dtype="fp16").text == (
        "32 heads × 8 192 queries × 8 192 keys × 2 bytes = 4 294 967 296 bytes (4 GiB)"
    )


@pytest.mark.parametrize(
    ("per_token", "length", "each", "in_all"),
    [
        (cost.kv_bytes_per_token(32, 8, 128), 8192, 128 * 1024, 2**30),  # Llama-3-8B
        (cost.kv_bytes_per_token(80, 8, 128, dtype="fp16"), 4096, 320 * 1024, 5 * 2**28),  # Llama-2-70B: 1.25 GiB
        (cost.kv_bytes_per_token(36, 8, 128), 1, 147_456, 147_456),  # Qwen3-4B; from d_model / n_heads: 92 160
        (cost.kv_bytes_per_token(36, 8, 80), 1, 92_160, 92_160),
        (cost.kv_bytes_per_token(24, 8, 64), 1, 48 * 1024, 48 * 1024),  # gpt-oss-20b
        (cost.kv_bytes_per_token(40, 8, 128), 1, 160 * 1024, 160 * 1024),  # Mistral-Small-24B, Mistral-Nemo
        (cost.kv_bytes_per_token(32, 32, 128), 1, 512 * 1024, 512 * 1024),  # Llama-2-7B
        (cost.kv_bytes_per_token(40, 40, 128), 1, 800 * 1024, 800 * 1024),  # Llama-2-13B
        (cost.kv_bytes_per_token(12, 12, 64), 1, 36 * 1024, 36 * 1024),  # GPT-2
        (cost.kv_bytes_per_token(96, 96, 128), 1, 9 * 2**19, 9 * 2**19),  # GPT-3: 4.5 MiB
        (cost.kv_bytes_per_token(64, 8, 128), 1, 256 * 1024, 256 * 1024),  # Qwen3-32B
        (cost.mla_kv_bytes_per_token(61, 512, 64), 1, 70_272, 70_272),  # DeepSeek-V3
    ],
)
def test_caches_of_known_models(per_token, length, each, in_all):
    assert per_token.value == each
    assert cost.kv_bytes(per_token, length).value == in_all


def test_known_counts():
    assert cost.attention_parameters(768, 12).value == 2_359_296
    assert cost.attention_parameters(768, 12, bias=True).value == 2_362_368  # BERT base
    assert cost.attention_parameters(4096, 32, 32, 128).value == 67_108_864
    assert cost.attention_parameters(4096, 32, 1, 128).value == 34_603_008
    # MLA holds 2.25 GQA heads of 128, and is 71 times smaller than its heads would be (DeepSeek-V3).
    mla = cost.mla_kv_bytes_per_token(1, 512, 64).value
    assert mla / cost.kv_bytes_per_token(1, 1, 128).value == 2.25
    assert cost.kv_bytes_per_token(1, 128, 192, 128).value / mla == pytest.approx(71.1, abs=0.05)


def test_core_and_projections_are_equal_at_twice_the_width():
    d, length = 4096, 8192
    assert (
        cost.core_flops(32, 128, seq_q=length).value
        == cost.projection_flops(d, 32, seq=length).value
        == 8 * length * d * d
    )
    # The core does not depend on the number of heads at a fixed width.
    assert {cost.core_flops(h, d // h, seq_q=d).value for h in (8, 32, 128)} == {4 * d**3}


# Every value is the product of the factors that are printed

small, lengths = st.integers(1, 512), st.integers(1, 2**31)
optional = st.none() | small
dtypes = st.sampled_from(sorted(cost.BYTES))


@st.composite
def head_counts(draw):
    kv_heads = draw(st.integers(1, 64))
    return kv_heads * draw(st.integers(1, 16)), kv_heads


@st.composite
def quantities(draw) -> Quantity:
    (heads, kv_heads), flag = draw(head_counts()), st.booleans()
    d_model, d_head, d_head_v = draw(small), draw(small), draw(optional)
    mla = (draw(small), heads, d_head, draw(small), draw(small), draw(small), draw(optional))
    per_token = draw(
        st.sampled_from(
            [
                cost.kv_bytes_per_token(draw(small), kv_heads, d_head, d_head_v, draw(dtypes)),
                cost.mla_kv_bytes_per_token(draw(small), draw(small), draw(small), draw(dtypes)),
            ]
        )
    )
    queries, keys, batch = draw(lengths), draw(st.none() | lengths), draw(lengths)
    intensity = draw(
        st.sampled_from(
            [
                cost.intensity_scores(d_head, queries, keys, draw(dtypes)),
                cost.intensity_fused(heads, kv_heads, d_head, d_head_v, queries, keys, draw(flag), draw(dtypes)),
                cost.intensity_decode(heads, kv_heads, d_head, d_head_v, queries, draw(dtypes)),
                cost.intensity_mla_decode(heads, d_head, draw(small), queries, draw(dtypes)),
            ]
        )
    )
    assert intensity.value == intensity.flops.value / intensity.moved.value
    return draw(
        st.sampled_from(
            [
                cost.attention_parameters(
                    d_model, heads, kv_heads, d_head, d_head_v, draw(st.sampled_from([False, True, "qkv"]))
                ),
                cost.mla_parameters(*mla),
                cost.projection_flops(d_model, heads, kv_heads, d_head, d_head_v, queries, batch, draw(flag)),
                cost.mla_projection_flops(*mla, queries, batch, draw(flag)),
                cost.core_flops(heads, d_head, d_head_v, queries, keys, batch, draw(flag), draw(flag), draw(flag)),
                cost.score_bytes(heads, queries, keys, batch, draw(dtypes)),
                per_token,
                cost.kv_bytes(per_token, queries, batch),
                intensity.flops,
                intensity.moved,
            ]
        )
    )


@settings(max_examples=400, deadline=None)
@given(quantities())
def test_every_value_is_the_sum_of_its_products(quantity):
    assert type(quantity.value) is int
    assert quantity.value == product(quantity) > 0
    made, _, result = quantity.text.rpartition(" = ")
    assert result.startswith(f"{quantity.value:,}".replace(",", " ") + f" {quantity.unit}")
    for factor in {factor for term in quantity.terms for factor in term}:
        assert factor.text in made
        # What is printed is what was multiplied: a number, or a sum in brackets.
        if factor.text.startswith("("):
            numbers = [int("".join(filter(str.isdigit, part))) for part in factor.text.split("+")]
            assert sum(numbers) == factor.value
        else:
            printed = factor.text.partition(" (")[0].replace(" ", "")
            assert int("".join(c for c in printed if c.isdigit())) == factor.value


def calls(value) -> list:
    """Every function with `value` in every place."""
    layer, mla = [64, 8, 2, 8, 8], [64, 4, 16, 8, 16, 32, 24]
    known = [
        (cost.attention_parameters, [*layer, False]),
        (cost.mla_parameters, mla),
        (cost.projection_flops, [*layer, 16, 2, True]),
        (cost.mla_projection_flops, [*mla, 16, 2, True]),
        (cost.core_flops, [8, 8, 8, 16, 16, 2, True, True, True]),
        (cost.score_bytes, [8, 16, 16, 2, "bf16"]),
        (cost.kv_bytes_per_token, [4, 8, 16, 16, "bf16"]),
        (cost.mla_kv_bytes_per_token, [4, 32, 8, "bf16"]),
        (cost.kv_bytes, [cost.kv_bytes_per_token(4, 8, 16), 16, 2]),
        (cost.intensity_scores, [8, 16, 16, "bf16"]),
        (cost.intensity_fused, [8, 2, 8, 8, 16, 16, True, "bf16"]),
        (cost.intensity_decode, [8, 2, 8, 8, 16, "bf16"]),
        (cost.intensity_mla_decode, [8, 32, 8, 16, "bf16"]),
        (cost.roofline, [62.0, "h100", "bf16"]),
        (cost.gpu, ["h100"]),
        (cost.dtype_key, ["bf16"]),
    ]
    return [
        (function, [*arguments[:place], value, *arguments[place + 1 :]])
        for function, arguments in known
        for place in range(len(arguments))
    ]


hostile = st.one_of(
    st.integers(),
    st.integers(min_value=10**30, max_value=10**400),
    st.floats(),
    st.text(max_size=200),
    st.binary(max_size=8),
    st.booleans(),
    st.none(),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
    st.just(10**5000),
    st.just(float("nan")),
    st.just(object()),
    st.just("x" * 10_000),
    st.just(torch.ones(2)),
)


@settings(max_examples=150, deadline=None)
@given(hostile)
def test_bad_input_is_a_cost_error_that_names_the_way_out(value):
    for function, arguments in calls(value):
        try:
            function(*arguments)
        except CostError as error:
            message = str(error)
            assert "Give " in message or "Nearest" in message or "Known" in message, message
            assert len(message) < 700


@pytest.mark.parametrize("value", [0, -1, 2**24 + 1, 10**400, 1.0, "64", None, True, float("nan"), [64]])
def test_a_width_that_cannot_be_is_named(value):
    with pytest.raises(CostError, match=r"^d_model = .* Give d_model as an integer from 1 to 16777216\.$"):
        cost.attention_parameters(value, 8, 8, 64)


def test_numbers_that_do_not_divide_are_named():
    with pytest.raises(CostError, match=r"1024 = 12 × 85 \+ 4. Give d_head"):
        cost.attention_parameters(1024, 12)
    with pytest.raises(CostError, match=r"n_kv_heads = 5 .* 32 = 5 × 6 \+ 2. Give a divisor of 32, such as 4"):
        cost.attention_parameters(4096, 32, 5, 128)
    with pytest.raises(CostError, match="bias = 'q'"):
        cost.attention_parameters(64, 8, bias="q")
    with pytest.raises(CostError, match="bias = 1 "):
        cost.attention_parameters(64, 8, bias=1)
    with pytest.raises(CostError, match="causal = 'yes'"):
        cost.core_flops(8, 64, seq_q=4, causal="yes")
    with pytest.raises(CostError, match="per_token = 131072 is no KV cache per token"):
        cost.kv_bytes(131072, 8192)
    with pytest.raises(CostError, match="no KV cache per token"):
        cost.kv_bytes(cost.score_bytes(8, 16), 8192)


def test_dtypes_have_many_names():
    for key, names in {
        "bf16": ["bf16", "BF16", "bfloat16", "torch.bfloat16"],
        "fp16": ["float16", "half", "torch.half", "FP16"],
        "fp32": ["float32", "torch.float32", "float"],
        "fp8": ["fp8", "fp8_e4m3", "fp8_e5m2", "torch.float8_e4m3fn", "float8_e5m2"],
        "int8": ["int8", "torch.int8"],
        "fp64": ["double", "torch.float64"],
    }.items():
        assert {cost.dtype_key(name) for name in names} == {key}
    with pytest.raises(CostError, match="Did you mean bfloat16"):
        cost.dtype_key("bflot16")


def test_integers_of_other_libraries_count():
    numpy = pytest.importorskip("numpy")
    quantity = cost.kv_bytes_per_token(numpy.int64(32), torch.tensor(8), numpy.int32(128))
    assert quantity == cost.kv_bytes_per_token(32, 8, 128)
    assert type(quantity.value) is int


# Against torch: parameters


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("d_model", "heads"), [(64, 4), (48, 6), (32, 1), (768, 12)])
def test_parameters_of_torch_s_own_module(d_model, heads, bias):
    module = nn.MultiheadAttention(d_model, heads, bias=bias)
    assert cost.attention_parameters(d_model, heads, bias=bias).value == count(module)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("layer", LAYERS)
def test_parameters_of_four_linear_layers(layer, bias):
    modules = projections(layer, bias)
    assert cost.attention_parameters(*layer, bias).value == count(modules)
    if bias:
        assert cost.attention_parameters(*layer, "qkv").value == count(modules) - layer[0]


@pytest.mark.parametrize("layer", [layer for layer in LAYERS if layer[3] == layer[4]])
def test_parameters_of_transformers_modules(hf, layer):
    d_model, heads, kv_heads, d_head, _ = layer
    sizes = {
        "hidden_size": d_model,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": d_head,
        "num_hidden_layers": 1,
    }
    for bias in (False, True):
        llama = hf.llama.LlamaAttention(hf.llama.LlamaConfig(**sizes, attention_bias=bias), 0)
        assert cost.attention_parameters(*layer, bias).value == count(llama)
        qwen3 = hf.qwen3.Qwen3Attention(hf.qwen3.Qwen3Config(**sizes, attention_bias=bias), 0)
        assert cost.attention_parameters(*layer, bias).value + 2 * d_head == count(qwen3)  # q_norm and k_norm
    qwen2 = hf.qwen2.Qwen2Attention(hf.qwen2.Qwen2Config(**sizes), 0)
    assert cost.attention_parameters(*layer, "qkv").value == count(qwen2)


@pytest.mark.parametrize("layer", MLA)
def test_parameters_of_mla(hf, layer):
    module = hf.deepseek.DeepseekV3Attention(deepseek_config(hf, layer), 0)
    assert cost.mla_parameters(*layer).value == count(module)


def test_parameters_of_deepseek_v3(hf):
    layer = (7168, 128, 128, 64, 128, 512, 1536)
    with torch.device("meta"):
        module = hf.deepseek.DeepseekV3Attention(deepseek_config(hf, layer), 0)
    assert cost.mla_parameters(*layer).value == count(module) == 187_107_328


# Against torch: FLOPs


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("layer", LAYERS)
def test_projection_flops_of_torch_s_counter(layer, backward):
    modules, batch, length = projections(layer, bias=True), 3, 11
    x = torch.randn(batch, length, layer[0], requires_grad=True)
    merged = torch.randn(batch, length, layer[1] * layer[4], requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        out = [modules["q"](x), modules["k"](x), modules["v"](x), modules["o"](merged)]
        if backward:
            sum(one.sum() for one in out).backward()
    assert cost.projection_flops(*layer, length, batch, backward).value == counter.get_total_flops()


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("sizes", LENGTHS)
@pytest.mark.parametrize("layer", LAYERS)
def test_core_flops_of_torch_s_counter(layer, sizes, backward):
    (_, heads, kv_heads, d_head, d_head_v), (batch, queries, keys) = layer, sizes
    q = torch.randn(batch, heads, queries, d_head, requires_grad=True)
    k = torch.randn(batch, kv_heads, keys, d_head, requires_grad=True)
    v = torch.randn(batch, kv_heads, keys, d_head_v, requires_grad=True)

    def products():
        k_all, v_all = (x.repeat_interleave(heads // kv_heads, 1) for x in (k, v))
        return (q @ k_all.transpose(-1, -2)).softmax(-1) @ v_all

    def unfused():
        # The counter sees nothing of the CPU's fused kernel; of the math backend it sees the products.
        with sdpa_kernel(SDPBackend.MATH):
            return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    for attend in (products, unfused):
        with FlopCounterMode(display=False) as counter:
            out = attend()
            if backward:
                out.sum().backward()
        assert (
            cost.core_flops(heads, d_head, d_head_v, queries, keys, batch, False, backward).value
            == counter.get_total_flops()
        )


@pytest.mark.parametrize("sizes", LENGTHS)
@pytest.mark.parametrize("layer", LAYERS)
def test_recomputation_is_counted_as_torch_counts_it_for_fused_kernels(layer, sizes):
    (_, heads, kv_heads, d_head, d_head_v), (batch, queries, keys) = layer, sizes
    shapes = (batch, heads, queries, d_head), (batch, kv_heads, keys, d_head), (batch, kv_heads, keys, d_head_v)
    both = sdpa_flop_count(*shapes) + sdpa_backward_flop_count((batch, heads, queries, d_head_v), *shapes)
    arguments = (heads, d_head, d_head_v, queries, keys, batch, False)
    assert cost.core_flops(*arguments, backward=True, recompute=True).value == both
    assert cost.core_flops(*arguments, recompute=True) == cost.core_flops(*arguments)
    if d_head == d_head_v:
        # 2 products forward, 5 backward: 3.5 times the forward pass.
        assert 2 * both == 7 * cost.core_flops(*arguments).value


@pytest.mark.parametrize("queries", range(1, 8))
@pytest.mark.parametrize("keys", range(1, 8))
def test_causal_pairs_are_those_that_sdpa_sees(queries, keys):
    # With V the identity, the output is the weights: those above 0 are the pairs that the mask lets through.
    q, k = torch.randn(1, 1, queries, keys), torch.randn(1, 1, keys, keys)
    weights = F.scaled_dot_product_attention(q, k, torch.eye(keys)[None, None], is_causal=True)
    seen = sum(key <= query for query in range(queries) for key in range(keys))
    assert int((weights > 0).sum()) == seen
    causal, full = (cost.core_flops(3, 5, 7, queries, keys, 2, causal).value for causal in (True, False))
    assert causal * queries * keys == full * seen


@pytest.mark.parametrize("layer", MLA)
def test_flops_of_a_whole_mla_layer(hf, layer):
    d_model, heads, nope, rope, d_head_v, *_ = layer
    config = deepseek_config(hf, layer, attn_implementation="eager")
    module, batch, length = hf.deepseek.DeepseekV3Attention(config, 0), 2, 6
    x = torch.randn(batch, length, d_model, requires_grad=True)
    angles = torch.ones(batch, length, rope), torch.zeros(batch, length, rope)
    for backward in (False, True):
        with FlopCounterMode(display=False) as counter:
            out, _ = module(x, angles, None)
            if backward:
                out.sum().backward()
        expected = cost.mla_projection_flops(*layer, length, batch, backward).value
        expected += cost.core_flops(heads, nope + rope, d_head_v, length, batch=batch, backward=backward).value
        assert counter.get_total_flops() == expected


# Against torch: bytes


@pytest.mark.parametrize("dtype", sorted(cost.BYTES))
@pytest.mark.parametrize("sizes", LENGTHS)
def test_bytes_of_real_tensors(dtype, sizes):
    batch, queries, keys = sizes
    kind = TORCH_DTYPES[dtype]
    assert cost.BYTES[dtype] == kind.itemsize
    scores = torch.empty(batch, 6, queries, keys, dtype=kind)
    assert cost.score_bytes(6, queries, keys, batch, dtype).value == scores.nbytes
    layers = [
        (torch.empty(batch, 3, keys, 24, dtype=kind), torch.empty(batch, 3, keys, 16, dtype=kind)) for _ in range(5)
    ]
    cached = sum(x.nbytes for pair in layers for x in pair)
    assert cost.kv_bytes(cost.kv_bytes_per_token(5, 3, 24, 16, dtype), keys, batch).value == cached


def cache_bytes(cache) -> int:
    return sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)


@pytest.mark.parametrize(("dtype", "kv_heads"), [("fp32", 4), ("bf16", 2), ("fp16", 1)])
def test_bytes_of_a_cache_of_transformers(hf, dtype, kv_heads):
    config = hf.llama.LlamaConfig(
        hidden_size=40, num_attention_heads=4, num_key_value_heads=kv_heads, head_dim=16, num_hidden_layers=3,
        intermediate_size=32, vocab_size=50,
    )  # fmt: skip
    model, cache = hf.llama.LlamaModel(config).to(TORCH_DTYPES[dtype]), hf.DynamicCache(config=config)
    with torch.no_grad():
        model(input_ids=torch.zeros(2, 7, dtype=torch.long), cache=cache, use_cache=True)
    assert cost.kv_bytes(cost.kv_bytes_per_token(3, kv_heads, 16, dtype=dtype), 7, 2).value == cache_bytes(cache)


def test_bytes_of_a_latent_cache_of_transformers(hf):
    layer = MLA[1]
    module = hf.deepseek.DeepseekV3Attention(deepseek_config(hf, layer), 0)
    cache, angles = hf.DynamicCache(), (torch.ones(2, 7, 8), torch.zeros(2, 7, 8))
    with torch.no_grad():
        module(torch.randn(2, 7, 64), angles, None, cache)
    assert cost.kv_bytes(cost.mla_kv_bytes_per_token(1, 32, 8, "fp32"), 7, 2).value == cache_bytes(cache)


# Intensity, and the GPUs


def test_intensities_that_are_known():
    assert cost.intensity_scores(64, 4096).value == pytest.approx(62.06, abs=0.01)
    assert cost.intensity_scores(128, 4096).value == pytest.approx(120.47, abs=0.01)
    assert cost.intensity_decode(32, 32).value == 1
    assert cost.intensity_decode(32, 8, 128, seq_k=8192).value == 4
    assert cost.intensity_decode(32, 1, 64).value == 32
    assert cost.intensity_decode(32, 8, dtype="fp8").value == 8
    assert cost.intensity_fused(32, 32, 128, seq_q=4096).value == 2048  # T / 2 in 16 bits, whatever d_head
    assert cost.intensity_fused(32, 8, 128, seq_q=4096).value > 2048
    assert cost.intensity_mla_decode(128, 512, 64, 4096).value == pytest.approx(241.8, abs=0.05)
    # One query against a long cache is decoding.
    assert cost.intensity_fused(32, 8, 128, seq_q=1, seq_k=2**20).value == pytest.approx(4, rel=1e-4)
    assert cost.intensity_scores(128, 4096).text == "4 294 967 296 FLOPs / 35 651 584 bytes = 120 FLOPs per byte"


@pytest.mark.parametrize(
    ("name", "ridge"), [("A100 80GB", 153), ("H100 SXM", 295), ("H200", 206), ("B200", 292), ("RTX 4090", 164)]
)
def test_ridges_that_are_known(name, ridge):
    assert cost.roofline(1, name).ridge == pytest.approx(ridge, abs=0.5)


def test_the_roofline_has_two_sides():
    unfused, fused = cost.intensity_scores(128, 4096), cost.intensity_fused(32, 8, 128, seq_q=4096)
    for name in ("a100", "h100", "h200"):
        assert cost.roofline(unfused, name).side == "memory"
        assert cost.roofline(fused, name).side == "compute"
        assert cost.roofline(cost.intensity_decode(32, 1), name).side == "memory"
    line = cost.roofline(unfused, "h100")
    assert line.text == (
        "120 FLOPs per byte; H100 SXM in bf16: ridge 295 (989.5 TFLOP/s / 3350 GB/s): memory-bound, at most 40.8 % of peak"
    )
    assert line.attainable == pytest.approx(120.47 * 3.35, rel=1e-3)
    exact = cost.roofline(line.ridge, "h100")
    assert (exact.side, exact.share, exact.attainable) == ("compute", 1.0, 989.5)
    with pytest.raises(CostError, match=r"No bf16 peak is known for the T4.* Give one of fp32, fp16 and int8"):
        cost.roofline(62, "t4")


def test_decoding_is_far_left_with_ordinary_heads_and_near_the_ridge_with_a_latent():
    """What the doctor's chapter says of every card."""
    ordinary = max(cost.intensity_decode(heads, kv, 128).value for heads, kv in [(32, 32), (32, 8), (128, 8)])
    latent = cost.intensity_mla_decode(128, 512, 64).value
    ridges = [cost.roofline(1, card.name, "fp16").ridge for card in cost.gpus()]
    assert all(ordinary < ridge / 4 for ridge in ridges)
    assert all(latent > ridge / 2 for ridge in ridges)
    assert any(latent > ridge for ridge in ridges)


def test_gpus_are_found_by_the_names_people_use():
    for name, found in {
        "a100": "A100 80GB",
        "A100-40GB": "A100 40GB",
        "NVIDIA A100-SXM4-80GB": "A100 80GB",
        "NVIDIA A100 80GB PCIe": "A100 80GB PCIe",
        "h100": "H100 SXM",
        "NVIDIA H100 80GB HBM3": "H100 SXM",
        "NVIDIA GeForce RTX 4090": "RTX 4090",
        "rtx4090": "RTX 4090",
        "Tesla T4": "T4",
        "v100": "V100 SXM2",
    }.items():
        assert cost.gpu(name).name == found
    with pytest.raises(CostError, match=r"Nearest: .*RTX 3090"):
        cost.gpu("rtx 3080")
    with pytest.raises(CostError, match="Known: T4, "):
        cost.gpu("abacus")


def test_every_gpu_has_its_numbers_and_a_source():
    cards = cost.gpus()
    names = [cost._card_name(name) for card in cards for name in (card.name, *card.also)]  # each found one way only
    assert len(cards) >= 14
    assert len(names) == len(set(names))
    data = json.loads(Path(cost.DATA).read_text(encoding="utf-8"))
    for card, row in zip(cards, data["gpus"], strict=True):
        assert card.source.startswith("https://")
        assert "nvidia.com" in card.source
        assert row["compared"]
        time.strptime(card.checked, "%Y-%m-%d")
        peaks = card.tera_per_second
        assert set(peaks) <= set(cost.BYTES)
        assert "fp16" in peaks
        assert peaks.get("bf16", peaks["fp16"]) == peaks["fp16"]
        # Dense against dense: fp8 is twice fp16 in all of them, up to rounding in the data sheets.
        assert peaks.get("fp8", 2 * peaks["fp16"]) == pytest.approx(2 * peaks["fp16"], rel=0.02)
        assert 50 < cost.roofline(1, card.name, "fp16").ridge < 500


def test_torch_s_own_table_agrees():
    table = pytest.importorskip("torch._inductor.analysis.device_info")
    for name, known in {"A100 80GB": "NVIDIA A100", "H100 SXM": "NVIDIA H100"}.items():
        theirs, card = table.lookup_device_info(known), cost.gpu(name)
        dense = theirs.tops[torch.bfloat16] / getattr(theirs, "tops_sparsity_factor", 1)
        assert card.tera_per_second["bf16"] == pytest.approx(dense, rel=0.01)
        assert card.gigabytes_per_second == theirs.dram_bw_gbs


def test_the_book_s_data_can_be_missing(monkeypatch, tmp_path):
    monkeypatch.setattr(cost, "DATA", tmp_path / "gpus.json")
    with pytest.raises(CostError, match=r"gpus\.json is not here"):
        cost._read()


def test_an_intensity_is_frozen_and_complete():
    intensity = cost.intensity_decode(8, 2)
    assert isinstance(intensity, Intensity)
    assert intensity.value == intensity.flops.value / intensity.moved.value
    with pytest.raises(AttributeError):
        intensity.value = 3


def test_no_torch_is_needed():
    script = "import sys, splitheads.cost as c; c.gpu('a100'); print([m for m in ('torch', 'numpy', 'matplotlib') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=Path(cost.DATA).parents[1], timeout=60
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_biases_and_gate_are_terms_of_their_own():
    from splitheads.cost import attention_parameters, projection_flops

    plain = attention_parameters(64, 4, 2, 16).value
    assert attention_parameters(64, 4, 2, 16, bias="qkv").value == plain + 64 + 2 * 32
    assert attention_parameters(64, 4, 2, 16, bias="qvo").value == plain + 64 + 32 + 64
    assert attention_parameters(64, 4, 2, 16, bias="o").value == plain + 64
    assert attention_parameters(64, 4, 2, 16, gated=True).value == plain + 64 * 64
    assert attention_parameters(64, 4, 2, 16, bias=True, gated=True).value == plain + 64 * 64 + 64 + 64 + 2 * 32 + 64
    assert projection_flops(64, 4, 2, 16, seq=3, gated=True).value == 2 * 3 * (plain + 64 * 64)
    assert "1 (gate of the output) × 64 columns × 4 heads × 16" in attention_parameters(64, 4, 2, 16, gated=True).text
