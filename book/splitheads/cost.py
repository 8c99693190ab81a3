"""What attention costs: parameters, FLOPs, score memory, KV cache, arithmetic intensity, with every factor in sight.

Whoever gets such a number wrong has lost or doubled one factor: the 2 for K and V, the key/value heads, the bytes.
So each function returns a `Quantity`: the value, its unit, and the factors that were multiplied.

    >>> print(kv_bytes_per_token(n_layers=32, n_kv_heads=8, d_head=128).text)
    2 (K and V) × 32 layers × 8 kv heads × 128 × 2 bytes = 131 072 bytes per token (128 KiB)

Names are the field's: widths (`d_model`, `d_head`) in columns, lengths (`seq_q`, `seq_k`) in tokens, `batch` in
sequences. A parameter count, FLOPs and score bytes are those of ONE layer; the KV cache is that of all layers.
A multiply-add counts as 2 FLOPs. Softmax, masks, norms, rotary embeddings and the additions of biases are not
counted: they are small beside the products, and torch's own counter leaves them out, too.

An argument that cannot be raises `CostError`, with the number and a way out. These functions are translated for the
page (see CONTRIBUTING.md) and keep to the part of Python that can be.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from math import prod
from operator import index
from os.path import abspath, dirname, join
from typing import Any

from splitheads.partition import MAX_WIDTH, _show
from splitheads.words import count_text, grouped, listing, nearest, plain, size_text

MAX_LAYERS = 100_000
MAX_LENGTH = 2**31
"""Upper limit for sequence lengths and batch sizes."""

BYTES = {"fp64": 8, "fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}
"""Bytes of one number, by dtype."""

DTYPE_NAMES = {
    "float64": "fp64", "double": "fp64", "f64": "fp64",
    "float32": "fp32", "float": "fp32", "single": "fp32", "f32": "fp32", "full": "fp32",
    "bfloat16": "bf16", "bfloat": "bf16",
    "float16": "fp16", "half": "fp16", "f16": "fp16",
    "float8": "fp8", "f8": "fp8", "fp8e4m3": "fp8", "fp8e5m2": "fp8", "float8e4m3": "fp8", "float8e4m3fn": "fp8",
    "float8e4m3fnuz": "fp8", "float8e5m2": "fp8", "float8e5m2fnuz": "fp8",
    "i8": "int8", "s8": "int8",
}  # fmt: skip
"""Other names of a dtype, without punctuation."""

DATA = join(dirname(dirname(abspath(__file__))), "data", "gpus.json")


class CostError(ValueError):
    """No cost can be worked out from these values. The message says why, and what to give instead."""


@dataclass(frozen=True)
class Factor:
    """One number of a product, and how it is printed: Factor(2, "2 (K and V)"), Factor(8, "8 kv heads")."""

    value: int
    text: str


@dataclass(frozen=True)
class Quantity:
    """A number together with what it was made of.

    terms: the value is their sum, and each term is the product of its factors. text: all of it in one line.
    """

    name: str
    value: int
    unit: str
    terms: tuple[tuple[Factor, ...], ...]
    text: str


@dataclass(frozen=True)
class Intensity:
    """FLOPs for each byte that must cross the memory bus: `flops.value / moved.value`.

    Left of a GPU's ridge (see `roofline`) the memory is the limit, right of it the arithmetic.
    """

    name: str
    value: float
    unit: str
    flops: Quantity
    moved: Quantity
    text: str


@dataclass(frozen=True)
class Gpu:
    """One card of book/data/gpus.json: dense peak rates by dtype, in 10^12 per second, and 10^9 bytes per second."""

    name: str
    also: tuple[str, ...]
    sm: str
    memory_gb: int
    gigabytes_per_second: float
    tera_per_second: dict[str, float]
    source: str
    checked: str
    note: str


@dataclass(frozen=True)
class Roofline:
    """Where an intensity lies on a GPU's roofline.

    side: "memory" (the bus is the limit) or "compute" (at the ridge or right of it). ridge: FLOPs per byte at which
    both limits meet. attainable: 10^12 FLOPs per second at best. share: that, as a part of the peak.
    """

    side: str
    intensity: float
    ridge: float
    attainable: float
    share: float
    gpu: Gpu
    dtype: str
    text: str


# Parameters


def attention_parameters(
    d_model: int,
    n_heads: int,
    n_kv_heads: int | None = None,
    d_head: int | None = None,
    d_head_v: int | None = None,
    bias: bool | str = False,
    gated: bool = False,
) -> Quantity:
    """Parameters of one attention layer (MHA, GQA or MQA): the weights of Q, K, V and O, and their biases.

    Args:
        d_model: width of the residual stream.
        n_heads, n_kv_heads: query heads, and key/value heads (default: as many).
        d_head: columns of a query or key head. Default: d_model / n_heads, which must then be a whole number.
        d_head_v: columns of a value head. Default: d_head.
        bias: False, True (all four), or the projections that have one: "qkv" (Qwen2), "qvo" (Whisper), "o" (GPT-Neo).
        gated: whether the query projection makes a gate for the output as well (Qwen3-Next), in as many rows again.

    Counted are projections and their biases. Norms inside attention (Qwen3's q_norm and k_norm), sinks and position
    tables are not; of MLA the two norms of the latents are, see `mla_parameters`.
    """
    d_model, n_heads, n_kv_heads, d_head, d_head_v = _dimensions(d_model, n_heads, n_kv_heads, d_head, d_head_v)
    terms = _weights(d_model, n_heads, n_kv_heads, d_head, d_head_v)
    if _flag("gated", gated, "queries alone", "queries and a gate"):
        terms.append(_gate(d_model, n_heads, d_head))
    if not isinstance(bias, bool) and not (isinstance(bias, str) and bias in ("qkv", "qvo", "o")):
        raise CostError(
            f'bias = {_show(bias)} is not known. Give False, True, or the projections that have one: "qkv", "qvo" or "o".'
        )
    letters = "qkvo" if bias is True else "" if bias is False else bias
    if "q" in letters:
        terms += _biases(n_heads, n_kv_heads, d_head, d_head_v, letters)
        if gated:
            terms.append((Factor(1, "1 (bias of the gate)"), _named(n_heads, "head"), Factor(d_head, grouped(d_head))))
    if "o" in letters:
        terms.append((Factor(1, "1 (bias of O)"), _columns(d_model)))
    return _quantity("attention parameters per layer", terms, "parameters")


def mla_parameters(
    d_model: int,
    n_heads: int,
    d_nope: int,
    rope_dim: int,
    d_head_v: int,
    kv_latent: int,
    q_latent: int | None = None,
) -> Quantity:
    """Parameters of one layer of multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1).

    Args:
        d_nope, rope_dim: columns of a query or key head without and with rotary embedding (128 and 64).
        d_head_v: columns of a value head (128).
        kv_latent: width of the latent from which K and V are made (512).
        q_latent: width of the queries' latent (1536), or None where queries are projected directly.

    The RMSNorm weights of the latents, one for each column, are counted: they are parameters of the attention
    module (`DeepseekV3Attention` in transformers). There are no biases.
    """
    d_model, n_heads = _whole("d_model", d_model), _whole("n_heads", n_heads)
    kv_latent, q_latent = _whole("kv_latent", kv_latent), _latent(q_latent)
    terms = _mla_weights(d_model, n_heads, d_nope, rope_dim, d_head_v, kv_latent, q_latent)
    if q_latent is not None:
        terms.append((Factor(q_latent, f"{grouped(q_latent)} (norm of the query latent)"),))
    terms.append((Factor(kv_latent, f"{grouped(kv_latent)} (norm of the kv latent)"),))
    return _quantity("attention parameters per layer (MLA)", terms, "parameters")


# FLOPs


def projection_flops(
    d_model: int,
    n_heads: int,
    n_kv_heads: int | None = None,
    d_head: int | None = None,
    d_head_v: int | None = None,
    seq: int = 1,
    batch: int = 1,
    backward: bool = False,
    gated: bool = False,
) -> Quantity:
    """FLOPs of the Q, K, V and O projections of one layer, self-attention over `seq` tokens.

    gated: the query projection makes a gate for the output as well, see `attention_parameters`.

    backward: forward and backward together, a training step. Each product has two in its backward pass, one for the
    gradient of the input and one for that of the weight, so the whole is 3 times the forward pass.
    """
    d_model, n_heads, n_kv_heads, d_head, d_head_v = _dimensions(d_model, n_heads, n_kv_heads, d_head, d_head_v)
    common = [*_passes(backward), *_batch(batch), _tokens("seq", seq)]
    terms = _weights(d_model, n_heads, n_kv_heads, d_head, d_head_v)
    if _flag("gated", gated, "queries alone", "queries and a gate"):
        terms.append(_gate(d_model, n_heads, d_head))
    return _quantity("projection FLOPs per layer", terms, "FLOPs", common)


def mla_projection_flops(
    d_model: int,
    n_heads: int,
    d_nope: int,
    rope_dim: int,
    d_head_v: int,
    kv_latent: int,
    q_latent: int | None = None,
    seq: int = 1,
    batch: int = 1,
    backward: bool = False,
) -> Quantity:
    """FLOPs of the projections of one MLA layer that expands K and V from the latent, as in training and prefill.

    The core is `core_flops` with d_head = d_nope + rope_dim. Arguments as in `mla_parameters` and `projection_flops`.
    """
    d_model, n_heads = _whole("d_model", d_model), _whole("n_heads", n_heads)
    kv_latent, q_latent = _whole("kv_latent", kv_latent), _latent(q_latent)
    common = [*_passes(backward), *_batch(batch), _tokens("seq", seq)]
    terms = _mla_weights(d_model, n_heads, d_nope, rope_dim, d_head_v, kv_latent, q_latent)
    return _quantity("projection FLOPs per layer (MLA)", terms, "FLOPs", common)


def core_flops(
    n_heads: int,
    d_head: int,
    d_head_v: int | None = None,
    seq_q: int = 1,
    seq_k: int | None = None,
    batch: int = 1,
    causal: bool = False,
    backward: bool = False,
    recompute: bool = False,
) -> Quantity:
    """FLOPs of the two products of one layer's attention core: QKᵀ, and the weights times V ("AV").

    Key/value heads do not come in: sharing them saves memory, not arithmetic. Nor does n_heads at a fixed
    n_heads × d_head.

    Args:
        seq_q, seq_k: queries, and keys (default: as many).
        causal: count only pairs that the mask lets through. As in SDPA's `is_causal`, the mask is aligned top left:
            query i sees keys 0 to i, also where seq_q and seq_k differ. A fused kernel skips in whole tiles and so
            does a little more; unfused code skips nothing: give causal=False for it.
        backward: forward and backward together: each of the two products has two in its backward pass.
        recompute: with backward, count that a fused kernel computes QKᵀ once more there, because it has not kept
            the scores. Torch's counter counts it for SDPA, too. Not useful work: leave it out for a utilisation.
    """
    n_heads, d_head = _whole("n_heads", n_heads), _whole("d_head", d_head)
    d_head_v = d_head if d_head_v is None else _whole("d_head_v", d_head_v)
    pairs = _pairs(seq_q, seq_k, causal)
    common = [Factor(2, "2 (multiply and add)"), *_batch(batch), _named(n_heads, "head"), *pairs]
    passes = _passes(backward)[:-1]
    if d_head == d_head_v:
        products = [Factor(2, "2 (QKᵀ and AV)"), Factor(d_head, grouped(d_head))]
    else:
        products = [Factor(d_head + d_head_v, f"({grouped(d_head)} for QKᵀ + {grouped(d_head_v)} for AV)")]
    terms = [(*passes, *products)]
    if _flag("recompute", recompute, "no", "QKᵀ once more in the backward pass") and backward:
        terms.append((Factor(1, "1 (QKᵀ again in the backward pass)"), Factor(d_head, grouped(d_head))))
    return _quantity("core FLOPs per layer", terms, "FLOPs", common)


# Memory


def score_bytes(n_heads: int, seq_q: int, seq_k: int | None = None, batch: int = 1, dtype: str = "bf16") -> Quantity:
    """Bytes of one layer's score matrix where it is kept in memory, as unfused attention does.

    One such matrix: the weights after softmax are a second one, and training keeps both. A mask saves nothing here.
    """
    heads = _named(_whole("n_heads", n_heads), "head")
    terms = [(*_batch(batch), heads, *_pairs(seq_q, seq_k, False), _size(dtype))]
    return _quantity("score matrix per layer, unfused", terms, "bytes")


def kv_bytes_per_token(
    n_layers: int, n_kv_heads: int, d_head: int, d_head_v: int | None = None, dtype: str = "bf16"
) -> Quantity:
    """Bytes that one token adds to the KV cache, over all layers (MHA, GQA, MQA).

    The cache holds key/value heads, not query heads, and d_head columns of each, whatever d_model / n_heads is.
    """
    layers, heads = _named(_whole("n_layers", n_layers, MAX_LAYERS), "layer"), _whole("n_kv_heads", n_kv_heads)
    d_head = _whole("d_head", d_head)
    d_head_v = d_head if d_head_v is None else _whole("d_head_v", d_head_v)
    if d_head == d_head_v:
        both = Factor(2, "2 (K and V)")
        terms = [(both, layers, _named(heads, "kv head"), Factor(d_head, grouped(d_head)), _size(dtype))]
    else:
        both = Factor(d_head + d_head_v, f"({grouped(d_head)} for K + {grouped(d_head_v)} for V)")
        terms = [(layers, _named(heads, "kv head"), both, _size(dtype))]
    return _quantity("KV cache per token", terms, "bytes per token")


def mla_kv_bytes_per_token(n_layers: int, kv_latent: int, rope_dim: int, dtype: str = "bf16") -> Quantity:
    """Bytes that one token adds to the cache of multi-head latent attention, over all layers.

    One latent and one rotary key for all heads: no 2 for K and V, no head count (arXiv:2405.04434, table 1).
    transformers 5.24 caches exactly this. Code that caches K and V after they were made from the latent, as
    transformers 4 did, needs kv_bytes_per_token(n_layers, n_heads, d_nope + rope_dim, d_head_v).
    """
    layers = _named(_whole("n_layers", n_layers, MAX_LAYERS), "layer")
    kv_latent, rope_dim = _whole("kv_latent", kv_latent), _whole("rope_dim", rope_dim, MAX_WIDTH, 0)
    width = Factor(kv_latent + rope_dim, f"({grouped(kv_latent)} latent + {grouped(rope_dim)} rope)")
    return _quantity("KV cache per token (MLA)", [(layers, width, _size(dtype))], "bytes per token")


def kv_bytes(per_token: Quantity, seq: int, batch: int = 1) -> Quantity:
    """Bytes of the whole KV cache: `batch` sequences of `seq` tokens at so many bytes per token."""
    if not isinstance(per_token, Quantity) or per_token.unit != "bytes per token":
        raise CostError(
            f"per_token = {_show(per_token)} is no KV cache per token. Give what kv_bytes_per_token or "
            f"mla_kv_bytes_per_token returns."
        )
    common = [*_batch(batch), _tokens("seq", seq)]
    return _quantity("KV cache in all", per_token.terms, "bytes", common)


# Intensity and roofline


def intensity_scores(d_head: int, seq_q: int, seq_k: int | None = None, dtype: str = "bf16") -> Intensity:
    """FLOPs per byte of an unfused QKᵀ: Q and K are read, the scores written. Near d_head in 16 bits.

    For one head: the number of heads and the batch size cancel, if every head has its own keys.
    """
    d_head = _whole("d_head", d_head)
    queries, keys = _lengths(seq_q, seq_k)
    columns = Factor(d_head, grouped(d_head))
    flops = _quantity(
        "QKᵀ of one head",
        [(Factor(2, "2 (multiply and add)"), _named(queries, "query"), _named(keys, "key"), columns)],
        "FLOPs",
    )
    moved = _quantity(
        "Q, K and scores of one head",
        [
            (Factor(queries, f"{grouped(queries)} (Q)"), columns),
            (Factor(keys, f"{grouped(keys)} (K)"), columns),
            (Factor(queries, f"{grouped(queries)} (scores)"), _named(keys, "key")),
        ],
        "bytes",
        [_size(dtype)],
    )
    return _intensity("QKᵀ, unfused", flops, moved)


def intensity_fused(
    n_heads: int,
    n_kv_heads: int | None = None,
    d_head: int = 128,
    d_head_v: int | None = None,
    seq_q: int = 1,
    seq_k: int | None = None,
    causal: bool = False,
    dtype: str = "bf16",
) -> Intensity:
    """FLOPs per byte of a fused attention core: Q, K and V are read once, the output is written, nothing else.

    An upper limit: a real kernel reads K and V again for each tile of queries, mostly from the cache. The batch size
    cancels. With seq_q = 1 this is decoding; see `intensity_decode`.
    """
    n_heads, n_kv_heads, d_head, d_head_v = _heads(n_heads, n_kv_heads, d_head, d_head_v)
    queries, keys = _lengths(seq_q, seq_k)
    flops = core_flops(n_heads, d_head, d_head_v, queries, keys, 1, causal)
    rows = [_named(queries, "query"), _named(n_heads, "head"), _both(d_head, d_head_v, "Q", "output")]
    cached = [_named(keys, "key"), _named(n_kv_heads, "kv head"), _both(d_head, d_head_v, "K", "V")]
    moved = _quantity("Q, K, V and output", [tuple(rows), tuple(cached)], "bytes", [_size(dtype)])
    return _intensity("attention core, fused", flops, moved)


def intensity_decode(
    n_heads: int,
    n_kv_heads: int | None = None,
    d_head: int = 128,
    d_head_v: int | None = None,
    seq_k: int = 1,
    dtype: str = "bf16",
) -> Intensity:
    """FLOPs per byte of decoding one token: the cached K and V are read once for it.

    In 16 bits this is n_heads / n_kv_heads, the number of query heads that share a read: 1 for MHA. Widths, length
    and batch size cancel. The one row of Q and of output is left out.
    """
    n_heads, n_kv_heads, d_head, d_head_v = _heads(n_heads, n_kv_heads, d_head, d_head_v)
    keys = _whole("seq_k", seq_k, MAX_LENGTH)
    flops = core_flops(n_heads, d_head, d_head_v, 1, keys)
    cached = (_named(keys, "key"), _named(n_kv_heads, "kv head"), _both(d_head, d_head_v, "K", "V"), _size(dtype))
    return _intensity("decoding", flops, _quantity("cached K and V", [cached], "bytes"))


def intensity_mla_decode(n_heads: int, kv_latent: int, rope_dim: int, seq_k: int = 1, dtype: str = "bf16") -> Intensity:
    """FLOPs per byte of decoding one token with MLA in its absorbed form: all heads share one read of the latent.

    Scores take latent and rotary columns, the weighted sum the latent only (arXiv:2405.04434, section 2.1.2).
    """
    n_heads, kv_latent = _whole("n_heads", n_heads), _whole("kv_latent", kv_latent)
    rope_dim, keys = _whole("rope_dim", rope_dim, MAX_WIDTH, 0), _whole("seq_k", seq_k, MAX_LENGTH)
    flops = core_flops(n_heads, kv_latent + rope_dim, kv_latent, 1, keys)
    width = Factor(kv_latent + rope_dim, f"({grouped(kv_latent)} latent + {grouped(rope_dim)} rope)")
    moved = _quantity("cached latents", [(_named(keys, "key"), width, _size(dtype))], "bytes")
    return _intensity("decoding (MLA)", flops, moved)


def roofline(intensity: Intensity | float, gpu: str, dtype: str = "bf16") -> Roofline:
    """The side of a GPU's roofline on which an intensity lands (Williams, Waterman and Patterson, 2009).

    Args:
        intensity: FLOPs per byte, a number or what an `intensity_...` function returns.
        gpu: a name from book/data/gpus.json; see `gpu`.
        dtype: which peak counts. fp32 is that of the ordinary cores, the others are the tensor cores', dense.
    """
    value = intensity.value if isinstance(intensity, Intensity) else intensity
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1e30:
        raise CostError(f"intensity = {_show(value)} is not a positive number. Give FLOPs per byte, such as 62.")
    card, key = _card(gpu), dtype_key(dtype)
    if key not in card.tera_per_second:
        raise CostError(
            f"No {key} peak is known for the {card.name}. {card.note} Give one of "
            f"{listing(list(card.tera_per_second))}, or another GPU."
        )
    peak = card.tera_per_second[key]
    ridge = peak * 1000 / card.gigabytes_per_second
    side = "compute" if value >= ridge else "memory"
    share = min(1.0, value / ridge)
    limit = "compute-bound" if side == "compute" else f"memory-bound, at most {100 * share:.3g} % of peak"
    rate = "TOP/s" if key == "int8" else "TFLOP/s"
    text = (
        f"{ratio_text(value)} FLOPs per byte; {card.name} in {key}: ridge {ratio_text(ridge)} "
        f"({peak:g} {rate} / {card.gigabytes_per_second:g} GB/s): {limit}"
    )
    return Roofline(side, value, ridge, peak * share, share, card, key, text)


@cache
def gpus() -> tuple[Gpu, ...]:
    """Every GPU of book/data/gpus.json, in its order."""
    return tuple(
        [
            Gpu(
                row["name"],
                tuple(row["also"]),
                row["sm"],
                row["memory_gb"],
                row["gigabytes_per_second"],
                row["tera_per_second"],
                row["source"],
                row["checked"],
                row["note"],
            )
            for row in _read()
        ]
    )


def gpu(name: str) -> Gpu:
    """The GPU of that name: "H100 SXM", "h100", or what torch.cuda.get_device_name() says.

    Case, spaces and punctuation do not count. A short name means the common card: "a100" the 80 GB SXM one, "h100"
    the SXM one. Raises CostError, with suggestions, for a name that is not in the table.
    """
    return _card(name)


def dtype_key(text: str) -> str:
    """The short name of a dtype: "torch.bfloat16", "BF16" and "bfloat16" are "bf16". Raises CostError for others."""
    if not isinstance(text, str):
        raise CostError(f'dtype = {_show(text)} is not a name. Give one of {listing(list(BYTES))}, such as "bf16".')
    word = plain(text[:60]).removeprefix("torch")
    if word in BYTES:
        return word
    if word in DTYPE_NAMES:
        return DTYPE_NAMES[word]
    if re.search(r"(fp|int|nf|f|i|u|uint)4|4bit|q4|e2m1", word):
        raise CostError(
            f"dtype = {_show(text)} is not known: types of 4 bits are for weights, and what is counted here are activations and the "
            f"KV cache. Give the type that those have, one of {listing(list(BYTES))}."
        )
    near = nearest(text, [*BYTES, *[one for one in DTYPE_NAMES if len(one) > 3]], 1)
    hint = f"Did you mean {near[0]}? " if near else ""
    raise CostError(f"dtype = {_show(text)} is not known. {hint}Give one of {listing(list(BYTES))}.")


def ratio_text(value: float) -> str:
    """Three significant digits, or a whole number in threes: 62.1, 120, 1 365."""
    return f"{value:.3g}" if value < 999.5 else grouped(round(value))


# Parts


def _quantity(name: str, terms: Any, unit: str, common: Any = ()) -> Quantity:
    """The sum of the terms, each times the common factors, which the text prints once."""
    full = tuple([(*common, *term) for term in terms])
    value = sum([prod([factor.value for factor in term]) for term in full])
    inner = " + ".join([" × ".join([factor.text for factor in term]) for term in terms])
    if common and len(terms) > 1:
        inner = f"({inner})"
    product = " × ".join([*[factor.text for factor in common], inner])
    small = 1024 if unit.startswith("bytes") else 1000
    short = size_text(value) if unit.startswith("bytes") else count_text(value)
    text = f"{product} = {grouped(value)} {unit}" + (f" ({short})" if value >= small else "")
    return Quantity(name, value, unit, full, text)


def _intensity(name: str, flops: Quantity, moved: Quantity) -> Intensity:
    value = flops.value / moved.value
    unit = "FLOP per byte" if value == 1 else "FLOPs per byte"
    text = f"{grouped(flops.value)} FLOPs / {grouped(moved.value)} bytes = {ratio_text(value)} {unit}"
    return Intensity(name, value, "FLOPs per byte", flops, moved, text)


def _weights(d_model: int, n_heads: int, n_kv_heads: int, d_head: int, d_head_v: int) -> list:
    """Terms for the four weight matrices; matrices of one size share a term."""
    columns, heads, kv_heads = _columns(d_model), _named(n_heads, "head"), _named(n_kv_heads, "kv head")
    keys, values = Factor(d_head, grouped(d_head)), Factor(d_head_v, grouped(d_head_v))
    if d_head != d_head_v:
        return [
            (Factor(1, "1 (Q)"), columns, heads, keys),
            (Factor(1, "1 (K)"), columns, kv_heads, keys),
            (Factor(1, "1 (V)"), columns, kv_heads, values),
            (Factor(1, "1 (O)"), columns, heads, values),
        ]
    if n_heads == n_kv_heads:
        return [(Factor(4, "4 (Q, K, V and O)"), columns, heads, keys)]
    return [
        (Factor(2, "2 (Q and O)"), columns, heads, keys),
        (Factor(2, "2 (K and V)"), columns, kv_heads, keys),
    ]


def _gate(d_model: int, n_heads: int, d_head: int) -> tuple:
    return (
        Factor(1, "1 (gate of the output)"),
        _columns(d_model),
        _named(n_heads, "head"),
        Factor(d_head, grouped(d_head)),
    )


def _biases(n_heads: int, n_kv_heads: int, d_head: int, d_head_v: int, letters: str) -> list:
    """Terms for the biases of Q, K (where it has one) and V."""
    heads, kv_heads = _named(n_heads, "head"), _named(n_kv_heads, "kv head")
    keys, values = Factor(d_head, grouped(d_head)), Factor(d_head_v, grouped(d_head_v))
    if "k" not in letters:
        return [(Factor(1, "1 (bias of Q)"), heads, keys), (Factor(1, "1 (bias of V)"), kv_heads, values)]
    if d_head != d_head_v:
        return [
            (Factor(1, "1 (bias of Q)"), heads, keys),
            (Factor(1, "1 (bias of K)"), kv_heads, keys),
            (Factor(1, "1 (bias of V)"), kv_heads, values),
        ]
    if n_heads == n_kv_heads:
        return [(Factor(3, "3 (biases of Q, K and V)"), heads, keys)]
    return [
        (Factor(1, "1 (bias of Q)"), heads, keys),
        (Factor(2, "2 (biases of K and V)"), kv_heads, keys),
    ]


def _mla_weights(
    d_model: int, n_heads: int, d_nope: int, rope_dim: int, d_head_v: int, kv_latent: int, q_latent: int | None
) -> list:
    """Terms for the weight matrices of MLA: queries, down to the latent, up to K and V, output."""
    d_nope, d_head_v = _whole("d_nope", d_nope), _whole("d_head_v", d_head_v)
    rope_dim = _whole("rope_dim", rope_dim, MAX_WIDTH, 0)
    columns, heads = _columns(d_model), _named(n_heads, "head")
    query = Factor(d_nope + rope_dim, f"({grouped(d_nope)} nope + {grouped(rope_dim)} rope)")
    down = Factor(kv_latent + rope_dim, f"({grouped(kv_latent)} latent + {grouped(rope_dim)} rope)")
    up = Factor(d_nope + d_head_v, f"({grouped(d_nope)} for K + {grouped(d_head_v)} for V)")
    if q_latent is None:
        terms = [(Factor(1, "1 (Q)"), columns, heads, query)]
    else:
        narrow = Factor(q_latent, f"{grouped(q_latent)} query latent")
        terms = [
            (Factor(1, "1 (Q down)"), columns, narrow),
            (Factor(1, "1 (Q up)"), narrow, heads, query),
        ]
    return [
        *terms,
        (Factor(1, "1 (KV down)"), columns, down),
        (Factor(1, "1 (KV up)"), Factor(kv_latent, f"{grouped(kv_latent)} latent"), heads, up),
        (Factor(1, "1 (O)"), columns, heads, Factor(d_head_v, grouped(d_head_v))),
    ]


def _passes(backward: bool) -> list:
    """Factors for the passes and for multiply-add. The last one is the multiply-add."""
    backward = _flag("backward", backward, "forward only", "with the backward pass")
    passes = [Factor(3, "3 (forward 1, backward 2)")] if backward else []
    return [*passes, Factor(2, "2 (multiply and add)")]


def _pairs(seq_q: Any, seq_k: Any, causal: Any) -> list:
    """Factors whose product is the number of query-key pairs."""
    queries, keys = _lengths(seq_q, seq_k)
    causal = _flag("causal", causal, "every pair", "query i sees keys 0 to i")
    if not causal:
        return [_named(queries, "query"), _named(keys, "key")]
    # Query i sees min(i + 1, seq_k) keys: a triangle, and below it full rows where queries outnumber keys.
    side = min(queries, keys)
    triangle = f"{grouped(side)} × {grouped(side + 1)} / 2"
    rest = f" + {grouped(queries - side)} × {grouped(keys)}" if queries > side else ""
    pairs = side * (side + 1) // 2 + (queries - side) * keys
    return [
        Factor(pairs, f"{grouped(pairs)} pair{'' if pairs == 1 else 's'} ({triangle}{rest}: query i sees keys 0 to i)")
    ]


def _flag(name: str, value: Any, off: str, on: str) -> bool:
    if not isinstance(value, bool):
        raise CostError(f"{name} = {_show(value)} is neither False nor True. Give False ({off}) or True ({on}).")
    return value


def _lengths(seq_q: Any, seq_k: Any) -> tuple[int, int]:
    queries = _whole("seq_q", seq_q, MAX_LENGTH)
    return queries, queries if seq_k is None else _whole("seq_k", seq_k, MAX_LENGTH)


def _batch(batch: Any) -> list:
    """The batch as a factor; none for a single sequence."""
    number = _whole("batch", batch, MAX_LENGTH)
    return [] if number == 1 else [_named(number, "sequence")]


def _tokens(name: str, length: Any) -> Factor:
    return _named(_whole(name, length, MAX_LENGTH), "token")


def _columns(d_model: int) -> Factor:
    return _named(d_model, "column")


def _both(one: int, other: int, what: str, and_what: str) -> Factor:
    return Factor(one + other, f"({grouped(one)} for {what} + {grouped(other)} for {and_what})")


def _named(number: int, noun: str) -> Factor:
    """Factor(8, "8 kv heads")."""
    if number == 1:
        return Factor(1, f"1 {noun}")
    return Factor(number, f"{grouped(number)} {'queries' if noun == 'query' else noun + 's'}")


def _size(dtype: Any) -> Factor:
    return _named(BYTES[dtype_key(dtype)], "byte")


def _card(name: Any) -> Gpu:
    if not isinstance(name, str):
        raise CostError(f'gpu = {_show(name)} is not a name. Give a name, such as "A100 80GB".')
    wanted = _card_name(name[:80])
    for card in gpus():
        if wanted in [_card_name(one) for one in [card.name, *card.also]]:
            return card
    known = [card.name for card in gpus()]
    near = nearest(name, known)
    hint = f"Nearest: {listing(near)}." if near else f"Known: {listing(known)}."
    raise CostError(f"gpu = {_show(name)} is not in the table. {hint}")


def _card_name(name: str) -> str:
    return plain(name).removeprefix("nvidia").removeprefix("geforce").removeprefix("tesla")


def _dimensions(d_model: Any, n_heads: Any, n_kv_heads: Any, d_head: Any, d_head_v: Any) -> tuple:
    width, heads = _whole("d_model", d_model), _whole("n_heads", n_heads)
    if d_head is None:
        d_head, left = divmod(width, heads)
        if left:
            raise CostError(
                f"d_model = {width} does not divide into n_heads = {heads}: {width} = {heads} × {d_head} + {left}. "
                f"Give d_head, or numbers that divide."
            )
    return (width, *_heads(heads, n_kv_heads, d_head, d_head_v))


def _heads(n_heads: Any, n_kv_heads: Any, d_head: Any, d_head_v: Any) -> tuple:
    """Head counts and widths, checked, with their defaults."""
    heads, columns = _whole("n_heads", n_heads), _whole("d_head", d_head)
    kv_heads = heads if n_kv_heads is None else _whole("n_kv_heads", n_kv_heads)
    if heads % kv_heads:
        raise CostError(
            f"n_kv_heads = {kv_heads} does not divide n_heads = {heads}: {heads} = {kv_heads} × {heads // kv_heads} + "
            f"{heads % kv_heads}. Give a divisor of {heads}, such as {_divisor_below(heads, kv_heads)}."
        )
    return heads, kv_heads, columns, columns if d_head_v is None else _whole("d_head_v", d_head_v)


def _divisor_below(number: int, limit: int) -> int:
    """The largest divisor of number that is not above limit."""
    found = 1
    for small in range(1, 4097):
        if small * small > number:
            break
        if number % small == 0:
            found = max([one for one in (found, small, number // small) if one <= limit])
    return found


def _latent(q_latent: Any) -> int | None:
    return None if q_latent is None else _whole("q_latent", q_latent)


def _whole(name: str, value: Any, most: int = MAX_WIDTH, least: int = 1) -> int:
    """Return value as an int from least to most, or raise a CostError that names the argument."""
    number = None
    if not isinstance(value, bool):
        try:
            number = index(value)
        except TypeError:
            number = None
    if number is not None and least <= number <= most:
        return number
    fault = "is not a whole number" if number is None else "is too small" if number < least else "is above the limit"
    shown = _show(value if number is None else number)
    raise CostError(f"{name} = {shown} {fault}. Give {name} as an integer from {least} to {most}.")


def _read() -> list:
    """The rows of book/data/gpus.json."""
    try:
        with open(DATA, encoding="utf8") as file:
            return json.load(file)["gpus"]
    except FileNotFoundError:
        raise CostError(
            f"{DATA} is not here: the package was installed without the book's data. Install it from the book's "
            f"repository with `pip install -e .`, or give FLOPs per byte for your own GPU."
        ) from None
