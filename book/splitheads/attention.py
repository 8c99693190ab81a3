"""Multi-head attention with every reshape in sight, and the classic ways to get it wrong.

Letters in the shape comments: B batch, T tokens (S where keys differ from queries), h = n_heads,
d = d_head, kv = n_kv_heads. [B, T, h*d] means h heads of d columns side by side in the last axis.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from splitheads.partition import HeadSplit


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """Give every head its own columns: [B, T, h*d] -> [B, h, T, d].

    Never copies. Cutting one axis in two is possible for any strides, so `view` is right here even
    when x is not contiguous, and `transpose` only renames axes.

    Raises:
        SplitError: n_heads does not divide the last axis.
        ValueError: x does not have three axes.
    """
    B, T, width = _axes(x, "[B, T, h*d]")
    split = HeadSplit(width, n_heads)
    x = x.view(B, T, split.n_heads, split.d_head)  # [B, T, h, d]
    return x.transpose(1, 2)  # [B, h, T, d]


def merge_heads(x: Tensor) -> Tensor:
    """Put the heads of each token side by side again: [B, h, T, d] -> [B, T, h*d].

    Copies only if it must: the heads of one token have to be neighbours in memory.

    Raises:
        ValueError: x does not have four axes.
    """
    B, h, T, d = _axes(x, "[B, h, T, d]")
    x = x.transpose(1, 2)  # [B, T, h, d]
    return x.reshape(B, T, h * d)  # [B, T, h*d]


def attention_weights(q: Tensor, k: Tensor, is_causal: bool = False) -> Tensor:
    """softmax(q k^T / sqrt(d)): q [B, h, T, d] and k [B, h, S, d] -> [B, h, T, S], rows sum to 1.

    With is_causal, query t sees keys 0 ... t, as in `F.scaled_dot_product_attention`. The scale is
    that of "Attention Is All You Need", section 3.2.1: a sum of d products of independent numbers
    with variance 1 has variance d, and the sum runs over d_head terms, not d_model.
    """
    q = q / math.sqrt(q.shape[-1])  # [B, h, T, d]: first, so that half precision does not overflow
    scores = q @ k.transpose(-2, -1)  # [B, h, T, S]
    if is_causal:
        future = scores.new_ones(scores.shape[-2:], dtype=torch.bool).triu(1)  # [T, S]
        scores = scores.masked_fill(future, -math.inf)  # [B, h, T, S]
    return scores.softmax(dim=-1)  # [B, h, T, S]


class MultiHeadAttention(nn.Module):
    """Self-attention with n_heads heads: [B, T, d_model] -> [B, T, d_model].

    Args:
        d_model, n_heads, n_kv_heads, d_head: as in `HeadSplit`, which raises SplitError for numbers
            that do not divide. Fewer key/value heads than query heads give grouped-query attention.
        bias: whether the four projections have one.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        n_kv_heads: int | None = None,
        d_head: int | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.split = split = HeadSplit(d_model, n_heads, n_kv_heads, d_head)
        self.q_proj = nn.Linear(split.d_model, split.inner_width, bias=bias)
        self.k_proj = nn.Linear(split.d_model, split.kv_width, bias=bias)
        self.v_proj = nn.Linear(split.d_model, split.kv_width, bias=bias)
        self.o_proj = nn.Linear(split.inner_width, split.d_model, bias=bias)

    def forward(self, x: Tensor, is_causal: bool = False) -> Tensor:  # x: [B, T, d_model]
        q = self.heads(self.q_proj, x, self.split.n_heads)  # [B, h, T, d]
        k = self.heads(self.k_proj, x, self.split.n_kv_heads)  # [B, kv, T, d]
        v = self.heads(self.v_proj, x, self.split.n_kv_heads)  # [B, kv, T, d]

        # Each key/value head serves group_size neighbouring query heads: 0 0 1 1, not 0 1 0 1.
        k = k.repeat_interleave(self.split.group_size, dim=1)  # [B, h, T, d]
        v = v.repeat_interleave(self.split.group_size, dim=1)  # [B, h, T, d]

        out = attention_weights(q, k, is_causal) @ v  # [B, h, T, d]
        return self.o_proj(self.merge(out))  # [B, T, d_model]

    def heads(self, projection: nn.Linear, x: Tensor, n_heads: int) -> Tensor:
        """Project, then split: [B, T, d_model] -> [B, n_heads, T, d]."""
        return split_heads(projection(x), n_heads)

    def merge(self, x: Tensor) -> Tensor:
        """[B, h, T, d] -> [B, T, h*d]."""
        return merge_heads(x)

    def extra_repr(self) -> str:
        return str(self.split)

    @classmethod
    def from_torch(cls, other: nn.MultiheadAttention) -> MultiHeadAttention:
        """A copy of a `torch.nn.MultiheadAttention`: the same weights, so the same outputs.

        PyTorch stacks the three input projections in one matrix, queries on top, then keys, then
        values. batch_first is no weight and is not copied: this module takes [B, T, d_model].

        Raises:
            TypeError: other is something else.
            ValueError: other uses an option that this module does not have.
        """
        if not isinstance(other, nn.MultiheadAttention):
            raise TypeError(f"expected a torch.nn.MultiheadAttention, got {type(other).__name__}")
        d_model = other.embed_dim
        unsupported = {
            f"kdim = {other.kdim} and vdim = {other.vdim} with embed_dim = {d_model}": (
                other.kdim != d_model or other.vdim != d_model
            ),
            "add_bias_kv = True": other.bias_k is not None,
            "add_zero_attn = True": other.add_zero_attn,
            f"dropout = {other.dropout}": other.dropout > 0,
        }
        for option, is_used in unsupported.items():
            if is_used:
                raise ValueError(f"cannot copy this module: {option} has no counterpart here")

        has_bias = other.in_proj_bias is not None
        wq, wk, wv = other.in_proj_weight.chunk(3)  # three of [d_model, d_model]
        state = {"q_proj.weight": wq, "k_proj.weight": wk, "v_proj.weight": wv}
        state["o_proj.weight"] = other.out_proj.weight  # [d_model, d_model]
        if has_bias:
            bq, bk, bv = other.in_proj_bias.chunk(3)  # three of [d_model]
            state |= {"q_proj.bias": bq, "k_proj.bias": bk, "v_proj.bias": bv}
            state["o_proj.bias"] = other.out_proj.bias  # [d_model]
        module = cls(d_model, other.num_heads, bias=has_bias).to(wq)  # the same dtype and device
        module.load_state_dict(state)
        return module.train(other.training)


# The classic mistakes. Each one runs without a word and returns the right shape.


def split_heads_by_direct_view(x: Tensor, n_heads: int) -> Tensor:
    """MISTAKE: `x.view(B, h, T, d)`, straight to the shape that was wanted.

    A view reads memory in the old order, and there the columns of one token follow one another. So
    head 0 does not get its columns of every token: it gets every column of the first T / h tokens,
    cut into rows of d. Heads then attend within their own stretch of the sequence. Right by
    accident if h = 1 or T = 1. x must be contiguous, as the output of a Linear is.

    Proposed to authors whose code was right, as a shortcut or as a correction, in
    github.com/hyunwoongko/transformer/issues/15,
    github.com/jadore801120/attention-is-all-you-need-pytorch/issues/177 and
    github.com/harvardnlp/annotated-transformer/issues/17.
    """
    B, T, width = _axes(x, "[B, T, h*d]")
    split = HeadSplit(width, n_heads)
    return x.view(B, split.n_heads, T, split.d_head)  # [B, h, T, d], in name only


def merge_heads_without_transpose(x: Tensor) -> Tensor:
    """MISTAKE: `x.reshape(B, T, h*d)` straight from [B, h, T, d].

    In that order of axes the rows of one head follow one another, so a row of the result holds h successive
    tokens of one head where it should hold h heads of one token. Right by accident if h = 1 or
    T = 1. It also undoes `split_heads_by_direct_view` exactly, so a round trip cannot tell.

    Seen in github.com/jsbaan/transformer-from-scratch/pull/6, whose author writes that the training test had
    still passed, and github.com/meta-pytorch/opacus/pull/825.
    """
    B, h, T, d = _axes(x, "[B, h, T, d]")
    return x.reshape(B, T, h * d)  # [B, T, h*d], in name only


def slice_input_then_project(x: Tensor, weight: Tensor) -> Tensor:
    """MISTAKE: cut the input into h slices, then project each slice with its own small matrix.

    x is [B, T, h*d], weight is [h, d, d] with each matrix as (out, in); the result is [B, h, T, d].
    Every head should read all h*d input columns and only its output is narrow. Here head i reads
    slice i alone: the same as a full projection whose h*d by h*d matrix is zero outside h blocks on
    the diagonal, with h times fewer weights. Right by accident if h = 1.

    Seen in github.com/MarcoMeter/episodic-transformer-memory-ppo/pull/22, with one small matrix
    shared by all heads.
    """
    h, _, _ = _axes(weight, "[h, d, d]")
    slices = split_heads(x, h)  # [B, h, T, d]
    if tuple(weight.shape[1:]) != (slices.shape[-1],) * 2:
        raise ValueError(
            f"weight has shape {list(weight.shape)}: for x of width {x.shape[-1]} and {h} heads each matrix is "
            f"{slices.shape[-1]} by {slices.shape[-1]}"
        )
    return slices @ weight.transpose(-2, -1)  # [B, h, T, d]


class DirectViewAttention(MultiHeadAttention):
    """MISTAKE: a whole layer that splits with `split_heads_by_direct_view`. Same weights, same shapes."""

    def heads(self, projection: nn.Linear, x: Tensor, n_heads: int) -> Tensor:
        return split_heads_by_direct_view(projection(x), n_heads)


class UntransposedMergeAttention(MultiHeadAttention):
    """MISTAKE: a whole layer that merges with `merge_heads_without_transpose`. Same weights, same shapes."""

    def merge(self, x: Tensor) -> Tensor:
        return merge_heads_without_transpose(x)


class SlicedInputAttention(MultiHeadAttention):
    """MISTAKE: a whole layer that slices its input before projecting. Same shapes.

    Of each projection it uses only the blocks on the diagonal: head i reads slice i of x. Needs
    n_heads x d_head = d_model and as many key/value heads as query heads.
    """

    def heads(self, projection: nn.Linear, x: Tensor, n_heads: int) -> Tensor:
        d = self.split.d_head
        weight = projection.weight.view(n_heads, d, n_heads, d)  # [h, d, h, d]
        blocks = torch.stack([weight[i, :, i] for i in range(n_heads)])  # [h, d, d]
        out = slice_input_then_project(x, blocks)  # [B, h, T, d]
        return out if projection.bias is None else out + projection.bias.view(n_heads, 1, d)


# For looking at tensors.


class Layout(NamedTuple):
    """How a tensor lies in memory."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]  # elements to step over for the next index, one number per axis
    contiguous: bool

    def __str__(self) -> str:
        contiguous = "contiguous" if self.contiguous else "not contiguous"
        return f"shape {self.shape}, stride {self.stride}, {contiguous}"


def layout(x: Tensor) -> Layout:
    """Shape, stride and contiguity of x, ready to print."""
    return Layout(tuple(x.shape), x.stride(), x.is_contiguous())


def shares_memory(a: Tensor, b: Tensor) -> bool:
    """True if a and b look at the same storage, so that neither is a copy of the other.

    A tensor that has no memory (an empty one, or one on the meta device) shares it with none.
    """
    address = a.untyped_storage().data_ptr()
    return address != 0 and address == b.untyped_storage().data_ptr()


def _axes(x: Tensor, expected: str) -> torch.Size:
    """The shape of x, refused if it has another number of axes than expected names."""
    if x.dim() != expected.count(",") + 1:
        raise ValueError(f"expected a tensor {expected}, got shape {list(x.shape)}")
    return x.shape
