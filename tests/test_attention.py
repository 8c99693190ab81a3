"""Multi-head attention against PyTorch's own, and the classic mistakes against the right answer.

Sizes differ on purpose (B, T, h and d are four different numbers): where two of them are equal, a
missing transpose can hide.
"""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from splitheads.attention import (
    DirectViewAttention,
    MultiHeadAttention,
    SlicedInputAttention,
    UntransposedMergeAttention,
    attention_weights,
    layout,
    merge_heads,
    merge_heads_without_transpose,
    shares_memory,
    slice_input_then_project,
    split_heads,
    split_heads_by_direct_view,
)
from splitheads.partition import SplitError, legal_head_counts
from torch import nn

B, T, H, D = 2, 5, 4, 6
WIDTH = H * D


@pytest.fixture(autouse=True)
def doubles():
    """Double precision, so that a close answer is the right answer."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(before)


def spread(module):
    """Weights that keep the variance of a unit-variance input, so that scores have std about 1."""
    for name, weight in module.named_parameters():
        std = 1 if name.endswith("bias") else weight.shape[1] ** -0.5
        nn.init.normal_(weight, std=std)
    return module


def differ(a, b):
    """The same shape and plainly different numbers."""
    assert a.shape == b.shape
    return (a - b).abs().max() > 0.1


def reference(m, x, is_causal=False):
    """What m should answer: PyTorch's fused attention, with the heads cut out by index."""
    split = m.split

    def heads(y, n):
        return torch.stack([y[..., i * split.d_head : (i + 1) * split.d_head] for i in range(n)], 1)

    q = heads(m.q_proj(x), split.n_heads)
    k, v = heads(m.k_proj(x), split.n_kv_heads), heads(m.v_proj(x), split.n_kv_heads)
    out = F.scaled_dot_product_attention(q, k, v, is_causal=is_causal, enable_gqa=True)
    return m.o_proj(torch.cat(out.unbind(1), dim=-1))


# Splitting and merging.


def test_split_gives_each_head_its_own_columns_of_every_token():
    x = torch.arange(24).view(1, 4, 6)
    assert split_heads(x, 2)[0].tolist() == [
        [[0, 1, 2], [6, 7, 8], [12, 13, 14], [18, 19, 20]],
        [[3, 4, 5], [9, 10, 11], [15, 16, 17], [21, 22, 23]],
    ]


@pytest.mark.parametrize("n_heads", [1, 2, 3, 4, 6, 8, 12, 24])
def test_split_by_index(n_heads):
    x, d = torch.randn(B, T, WIDTH), WIDTH // n_heads
    y = split_heads(x, n_heads)
    assert y.shape == (B, n_heads, T, d)
    for head in range(n_heads):
        assert torch.equal(y[:, head], x[:, :, head * d : (head + 1) * d])
    assert torch.equal(merge_heads(y), x)


def not_contiguous():
    return {
        "time first": torch.randn(T, B, WIDTH).transpose(0, 1),
        "features first": torch.randn(B, WIDTH, T).transpose(1, 2),
        "every other column": torch.randn(B, T, 2 * WIDTH)[..., ::2],
        "columns of a wider tensor": torch.randn(B, T, 3 * WIDTH)[..., WIDTH : 2 * WIDTH],
        "every other token": torch.randn(B, 2 * T, WIDTH)[:, ::2],
        "one batch row expanded": torch.randn(1, T, WIDTH).expand(B, T, WIDTH),
    }


@pytest.mark.parametrize("kind", list(not_contiguous()))
def test_split_and_merge_of_tensors_that_are_not_contiguous(kind):
    x = not_contiguous()[kind]
    assert not x.is_contiguous()
    y = split_heads(x, H)
    assert torch.equal(y, split_heads(x.clone(memory_format=torch.contiguous_format), H))
    assert shares_memory(x, y)
    assert torch.equal(merge_heads(y), x)


def test_split_makes_no_copy_and_merge_only_when_it_must():
    x = torch.randn(B, T, WIDTH)
    y = split_heads(x, H)
    assert shares_memory(x, y)
    assert layout(y) == ((B, H, T, D), (T * WIDTH, D, WIDTH, 1), False)
    assert shares_memory(merge_heads(y), x)  # the two transposes cancel
    z = y.contiguous()
    assert not shares_memory(z, x)
    assert not shares_memory(merge_heads(z), z)


@pytest.mark.parametrize("shape", [(0, T, WIDTH), (B, 0, WIDTH), (1, 1, WIDTH)])
def test_split_and_merge_of_empty_and_single_axes(shape):
    x = torch.randn(shape)
    assert split_heads(x, H).shape == (shape[0], H, shape[1], D)
    assert torch.equal(merge_heads(split_heads(x, H)), x)


@pytest.mark.parametrize("split", [split_heads, split_heads_by_direct_view])
def test_split_refuses_a_width_that_does_not_divide(split):
    with pytest.raises(SplitError, match="d_model = 24 does not divide into n_heads = 5"):
        split(torch.randn(B, T, WIDTH), 5)


@pytest.mark.parametrize("shape", [(T, WIDTH), (1, B, T, WIDTH), ()])
def test_split_refuses_the_wrong_number_of_axes(shape):
    for split in (split_heads, split_heads_by_direct_view):
        with pytest.raises(ValueError, match=r"expected a tensor \[B, T, h\*d\], got shape") as info:
            split(torch.randn(shape), H)
        assert str(list(shape)) in str(info.value)


@pytest.mark.parametrize("merge", [merge_heads, merge_heads_without_transpose])
def test_merge_refuses_the_wrong_number_of_axes(merge):
    with pytest.raises(ValueError, match=r"\[B, h, T, d\], got shape \[2, 5, 24\]"):
        merge(torch.randn(B, T, WIDTH))


# The weights.


def test_scores_are_scaled_so_that_their_spread_is_one():
    q, k = torch.randn(8, H, 40, 64), torch.randn(8, H, 40, 64)
    scores = attention_weights(q, k).log()
    scores = scores - scores.mean(-1, keepdim=True)  # log softmax is the scores less a row constant
    assert 0.95 < scores.std() < 1.05


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("S", [3, 5, 7])
def test_weights_against_fused_attention_also_where_keys_outnumber_queries(is_causal, S):
    q, k, v = torch.randn(B, H, T, D), torch.randn(B, H, S, D), torch.randn(B, H, S, D)
    weights = attention_weights(q, k, is_causal)
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, H, T))
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
    torch.testing.assert_close(weights @ v, expected)


def test_causal_weights_are_zero_above_the_diagonal_only():
    weights = attention_weights(torch.randn(B, H, T, D), torch.randn(B, H, T, D), is_causal=True)
    assert torch.equal(weights > 0, torch.ones(T, T).tril().bool().expand(B, H, T, T))


# The module.


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"n_kv_heads": 2},
        {"n_kv_heads": 1},
        {"d_head": 10},
        {"d_head": 5, "n_kv_heads": 2},
    ],
)
def test_module_against_fused_attention(bias, is_causal, options):
    m = spread(MultiHeadAttention(WIDTH, H, bias=bias, **options))
    x = torch.randn(B, T, WIDTH)
    y = m(x, is_causal)
    assert y.shape == x.shape
    torch.testing.assert_close(y, reference(m, x, is_causal))


def test_scores_inside_the_test_module_are_neither_flat_nor_saturated():
    m = spread(MultiHeadAttention(WIDTH, H, bias=False))
    x = torch.randn(8, 50, WIDTH)
    q, k = split_heads(m.q_proj(x), H), split_heads(m.k_proj(x), H)
    scores = q @ k.mT / math.sqrt(D)
    assert 0.7 < scores.std() < 1.4  # so a wrong scale would show in the comparisons above


@pytest.mark.parametrize("scale", [WIDTH**-0.5, H**-0.5, 1 / D, 1.0])
def test_a_wrong_scale_would_be_seen(scale):
    m = spread(MultiHeadAttention(WIDTH, H))
    x = torch.randn(B, T, WIDTH)
    q, k, v = (split_heads(proj(x), H) for proj in (m.q_proj, m.k_proj, m.v_proj))
    wrong = m.o_proj(merge_heads(F.scaled_dot_product_attention(q, k, v, scale=scale)))
    assert differ(wrong, m(x))


def test_tiled_key_value_heads_would_be_seen():
    m = spread(MultiHeadAttention(WIDTH, H, n_kv_heads=2))
    x = torch.randn(B, T, WIDTH)
    q, k, v = split_heads(m.q_proj(x), 4), split_heads(m.k_proj(x), 2), split_heads(m.v_proj(x), 2)
    k, v = k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1)  # 0 1 0 1
    assert differ(m.o_proj(merge_heads(attention_weights(q, k) @ v)), m(x))


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("n_heads", [1, 3, 4, 24])
def test_module_against_torch_with_copied_weights(n_heads, bias, is_causal):
    theirs = spread(nn.MultiheadAttention(WIDTH, n_heads, bias=bias, batch_first=True))
    ours = MultiHeadAttention.from_torch(theirs)
    x = torch.randn(B, T, WIDTH)
    mask = torch.ones(T, T, dtype=torch.bool).triu(1) if is_causal else None
    expected, weights = theirs(x, x, x, attn_mask=mask, average_attn_weights=False)
    torch.testing.assert_close(ours(x, is_causal), expected)
    q, k = split_heads(ours.q_proj(x), n_heads), split_heads(ours.k_proj(x), n_heads)
    torch.testing.assert_close(attention_weights(q, k, is_causal), weights)


def test_from_torch_copies_and_keeps_dtype_and_mode():
    theirs = spread(nn.MultiheadAttention(WIDTH, H, batch_first=True)).float().eval()
    ours = MultiHeadAttention.from_torch(theirs)
    assert ours.q_proj.weight.dtype == torch.float32
    assert not ours.training
    assert all(p.requires_grad and p.is_leaf for p in ours.parameters())
    before = ours.v_proj.weight.clone()
    nn.init.zeros_(theirs.in_proj_weight)
    assert torch.equal(ours.v_proj.weight, before)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"kdim": 16}, "kdim = 16 and vdim = 24"),
        ({"vdim": 16}, "kdim = 24 and vdim = 16"),
        ({"add_bias_kv": True}, "add_bias_kv = True"),
        ({"add_zero_attn": True}, "add_zero_attn = True"),
        ({"dropout": 0.1}, "dropout = 0.1"),
    ],
)
def test_from_torch_refuses_what_it_cannot_copy(options, says):
    with pytest.raises(ValueError, match=says):
        MultiHeadAttention.from_torch(nn.MultiheadAttention(WIDTH, H, **options))


def test_from_torch_refuses_other_modules():
    with pytest.raises(TypeError, match="MultiheadAttention, got Linear"):
        MultiHeadAttention.from_torch(nn.Linear(3, 3))


def test_one_head_is_plain_attention():
    m = spread(MultiHeadAttention(WIDTH, 1))
    x = torch.randn(B, T, WIDTH)
    scores = torch.einsum("btc,bsc->bts", m.q_proj(x), m.k_proj(x)) / WIDTH**0.5
    out = torch.einsum("bts,bsc->btc", scores.softmax(-1), m.v_proj(x))
    torch.testing.assert_close(m(x), m.o_proj(out))


def test_permuting_tokens_permutes_outputs():
    m, x, order = spread(MultiHeadAttention(WIDTH, H)), torch.randn(B, T, WIDTH), torch.randperm(T)
    torch.testing.assert_close(m(x[:, order]), m(x)[:, order])
    assert differ(m(x[:, order], True), m(x, True)[:, order])  # order matters once there is a past


def test_batch_rows_do_not_mix():
    m, x = spread(MultiHeadAttention(WIDTH, H)), torch.randn(B, T, WIDTH)
    torch.testing.assert_close(m(x[1:]), m(x)[1:])


@pytest.mark.parametrize("t", range(T))
def test_causal_attention_does_not_leak(t):
    m, x = spread(MultiHeadAttention(WIDTH, H, n_kv_heads=2)), torch.randn(B, T, WIDTH)
    changed = x.clone()
    changed[:, t] += torch.randn(B, WIDTH)
    before, after = m(x, is_causal=True), m(changed, is_causal=True)
    torch.testing.assert_close(after[:, :t], before[:, :t], rtol=0, atol=0)
    assert all(differ(after[:, i], before[:, i]) for i in range(t, T))
    if t > 0:
        assert differ(m(changed)[:, :t], m(x)[:, :t])  # without the mask it does reach back


def test_gradients_reach_every_weight():
    m = spread(MultiHeadAttention(WIDTH, H, n_kv_heads=2))
    m(torch.randn(B, T, WIDTH)).square().sum().backward()
    for name, weight in m.named_parameters():
        if name != "k_proj.bias":  # adds the same number to a whole row of scores
            assert (weight.grad.abs() > 1e-6).all(), name


def test_parameter_count_is_the_same_for_every_legal_head_count():
    counts = {n: sum(p.numel() for p in MultiHeadAttention(192, n).parameters()) for n in legal_head_counts(192)}
    assert len(counts) == 14
    assert set(counts.values()) == {4 * 192 * 192 + 4 * 192}


def test_weight_shapes_are_those_of_the_split():
    m = MultiHeadAttention(40, 8, n_kv_heads=2, d_head=16, bias=False)
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        assert getattr(m, name).weight.shape == getattr(m.split, name)
        assert getattr(m, name).bias is None
    assert m.q_proj.weight.shape == (128, 40)
    assert m.k_proj.weight.shape == (32, 40)


def test_columns_of_the_split_are_rows_of_the_query_weight():
    m, x = spread(MultiHeadAttention(WIDTH, H, bias=False)), torch.randn(B, T, WIDTH)
    rows = m.split.columns(2)
    head = x @ m.q_proj.weight[rows.start : rows.stop].T
    torch.testing.assert_close(split_heads(m.q_proj(x), H)[:, 2], head)


def test_module_refuses_numbers_that_do_not_divide():
    with pytest.raises(SplitError, match="1600 = 48 × 33 \\+ 16"):
        MultiHeadAttention(1600, 48)
    with pytest.raises(SplitError, match="n_kv_heads = 3 does not divide n_heads = 8"):
        MultiHeadAttention(64, 8, n_kv_heads=3)


def test_printing_a_module_shows_its_split():
    assert "d_head = 6: 24 columns / 4 heads" in repr(MultiHeadAttention(WIDTH, H))


def test_weights_of_twelve_heads_load_into_eight_and_answer_differently():
    twelve, eight = spread(MultiHeadAttention(96, 12)), MultiHeadAttention(96, 8)
    keys = eight.load_state_dict(twelve.state_dict(), strict=True)
    assert not keys.missing_keys
    assert not keys.unexpected_keys
    x = torch.randn(B, T, 96)
    assert differ(eight(x), twelve(x))
    again = copy.deepcopy(twelve)
    assert torch.equal(again(x), twelve(x))


# The mistakes: no exception, the right shape, the wrong numbers.


def test_direct_view_gives_head_zero_whole_early_tokens():
    x = torch.arange(24).view(1, 4, 6)
    wrong = split_heads_by_direct_view(x, 2)
    assert wrong[0].tolist() == [
        [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]],
        [[12, 13, 14], [15, 16, 17], [18, 19, 20], [21, 22, 23]],
    ]
    assert wrong.shape == split_heads(x, 2).shape


def test_merge_without_transpose_mixes_tokens():
    x = torch.arange(24).view(1, 4, 6)
    wrong = merge_heads_without_transpose(split_heads(x, 2))
    assert wrong.shape == x.shape
    assert wrong[0, 0].tolist() == [0, 1, 2, 6, 7, 8]


def test_wrong_split_or_wrong_merge_changes_the_answer():
    m, x = spread(MultiHeadAttention(WIDTH, H)), torch.randn(B, T, WIDTH)

    def attend(split, merge):
        q, k, v = (split(proj(x), H) for proj in (m.q_proj, m.k_proj, m.v_proj))
        return m.o_proj(merge(attention_weights(q, k) @ v))

    right = attend(split_heads, merge_heads)
    torch.testing.assert_close(right, m(x))
    assert differ(attend(split_heads_by_direct_view, merge_heads), right)
    assert differ(attend(split_heads, merge_heads_without_transpose), right)
    assert differ(attend(split_heads_by_direct_view, merge_heads_without_transpose), right)


def test_sliced_input_gives_the_right_shape_and_wrong_numbers():
    x, full = torch.randn(B, T, WIDTH), torch.randn(WIDTH, WIDTH)
    blocks = torch.stack([full[i * D : (i + 1) * D, i * D : (i + 1) * D] for i in range(H)])
    assert full.numel() == H * blocks.numel()
    assert differ(slice_input_then_project(x, blocks), split_heads(x @ full.T, H))


def test_sliced_input_is_a_full_projection_with_a_block_diagonal_matrix():
    x, blocks = torch.randn(B, T, WIDTH), torch.randn(H, D, D)
    full = torch.block_diag(*blocks)
    torch.testing.assert_close(slice_input_then_project(x, blocks), split_heads(x @ full.T, H))


def test_sliced_input_does_not_let_a_head_read_the_other_columns():
    x, blocks = torch.randn(B, T, WIDTH), torch.randn(H, D, D)
    changed = x.clone()
    changed[..., :D] += 1
    before, after = slice_input_then_project(x, blocks), slice_input_then_project(changed, blocks)
    assert torch.equal(after[:, 1:], before[:, 1:])
    assert differ(after[:, :1], before[:, :1])


def test_sliced_input_refuses_a_single_matrix():
    with pytest.raises(ValueError, match=r"\[h, d, d\], got shape \[6, 6\]"):
        slice_input_then_project(torch.randn(B, T, WIDTH), torch.randn(D, D))


# Where a test cannot see the mistakes, because they are no mistakes there.


@pytest.mark.parametrize(("tokens", "n_heads"), [(T, 1), (1, H), (1, 1)])
def test_wrong_split_and_merge_are_right_for_one_head_or_one_token(tokens, n_heads):
    x = torch.randn(B, tokens, WIDTH)
    right = split_heads(x, n_heads)
    assert torch.equal(split_heads_by_direct_view(x, n_heads), right)
    assert torch.equal(merge_heads_without_transpose(right), merge_heads(right))


def test_sliced_input_is_right_for_one_head():
    x, weight = torch.randn(B, T, WIDTH), torch.randn(1, WIDTH, WIDTH)
    right = split_heads(x @ weight[0].T, 1)
    torch.testing.assert_close(slice_input_then_project(x, weight), right)


def test_a_round_trip_cannot_see_two_mistakes_that_cancel():
    x = torch.randn(B, T, WIDTH)
    assert torch.equal(merge_heads_without_transpose(split_heads_by_direct_view(x, H)), x)


def test_a_shape_check_cannot_see_a_lost_transpose_where_tokens_equal_heads():
    x = torch.randn(B, H, WIDTH)  # T = h
    lost = x.view(B, H, H, D)  # [B, T, h, d], never transposed
    assert lost.shape == split_heads(x, H).shape
    assert differ(lost, split_heads(x, H))


# Looking at tensors.


def test_layout_prints_shape_stride_and_contiguity():
    x = torch.zeros(2, 4, 6)
    assert str(layout(x)) == "shape (2, 4, 6), stride (24, 6, 1), contiguous"
    assert str(layout(split_heads(x, 2))) == ("shape (2, 2, 4, 3), stride (24, 3, 6, 1), not contiguous")


def test_shares_memory():
    x = torch.randn(B, T, WIDTH)
    assert shares_memory(x, x[1:, ::2])
    assert not shares_memory(x, x.clone())


def test_half_precision_does_not_overflow_where_sdpa_does_not():
    q = torch.full((1, 1, 2, 64), 60.0, dtype=torch.float16)  # 64 × 60 × 60 is above what half precision holds
    weights = attention_weights(q, q)
    assert torch.isfinite(weights).all()
    assert torch.allclose((weights @ q).float(), F.scaled_dot_product_attention(q, q, q).float(), atol=0.1)


def test_tensors_without_memory_share_it_with_none():
    assert not shares_memory(torch.empty(0), torch.empty(0))
    assert not shares_memory(torch.empty(3, device="meta"), torch.empty(3, device="meta"))


def test_a_slice_mistake_with_the_wrong_weights_says_what_fits():
    with pytest.raises(
        ValueError, match=r"weight has shape \[4, 5, 5\]: for x of width 24 and 4 heads each matrix is 6 by 6"
    ):
        slice_input_then_project(torch.zeros(2, 3, 24), torch.zeros(4, 5, 5))


WRONG = [DirectViewAttention, UntransposedMergeAttention, SlicedInputAttention]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("layer", WRONG)
def test_a_wrong_layer_has_the_right_shape_and_the_wrong_values(layer, bias):
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(24, 3, bias=bias, batch_first=True)
    x = torch.randn(2, 5, 24)
    wanted = theirs(x, x, x, need_weights=False)[0]
    got = layer.from_torch(theirs)(x)
    assert got.shape == wanted.shape
    assert (got - wanted).abs().max() > 0.01


@pytest.mark.parametrize("layer", WRONG)
def test_with_one_head_a_wrong_layer_is_right(layer):
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(24, 1, batch_first=True)
    x = torch.randn(2, 5, 24)
    assert torch.allclose(layer.from_torch(theirs)(x), theirs(x, x, x, need_weights=False)[0], atol=1e-5)


def test_slicing_the_input_is_the_projection_with_zeros_outside_the_diagonal_blocks():
    torch.manual_seed(0)
    sliced = SlicedInputAttention(24, 3)
    masked = MultiHeadAttention(24, 3)
    state = sliced.state_dict()
    keep = torch.block_diag(*[torch.ones(8, 8)] * 3)
    masked.load_state_dict({k: v * keep if k[0] in "qkv" and k.endswith("weight") else v for k, v in state.items()})
    x = torch.randn(2, 5, 24)
    assert torch.allclose(sliced(x), masked(x), atol=1e-5)
