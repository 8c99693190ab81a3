"""Which attention kernel `torch.nn.functional.scaled_dot_product_attention` (SDPA) picks, and why.

SDPA walks through a list of backends in order and takes the first one that accepts the call. Each
backend has a list of *gates*, questions about dtype, shape, layout and GPU, and accepts a call that
passes them all:

    FLASH      FlashAttention-2 as compiled into PyTorch (on a CPU: PyTorch's own fused kernel)
    EFFICIENT  the CUTLASS kernels of xFormers, "memory-efficient attention"
    CUDNN      NVIDIA's closed fused attention
    MATH       two matrix products and a softmax, the T × T matrix in memory: accepts everything

Two sources answer here, and a test holds them against each other on every row. The *table*,
book/data/kernel_choices.json, is what PyTorch's own compiled selector chose in 529,074 situations.
The *rules* are the gates below, each with its source and the versions that it holds for; they say
why a backend refuses, and answer where the table does not reach. Both tell what SDPA selects. No
kernel ran for either, so nothing here is a speed, and cuDNN, which builds its plan later, could
still refuse a shape that was selected for it.

Default settings are assumed: no `sdpa_kernel`, no environment switch, no deterministic mode, dense
tensors that start on a 16-byte boundary, an NVIDIA GPU, and the cuDNN that the tabled wheel of that
torch version pins. Widths (`d_head`) are columns, sequence lengths are tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from os.path import abspath, dirname, exists, join
from typing import Any

from splitheads.partition import MAX_WIDTH, SplitError, _count, _show

BACKENDS = ("FLASH", "EFFICIENT", "CUDNN", "MATH")
DTYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"}
MASKS = {None: "no mask", "bool": "a boolean mask", "float": "a float mask (added to the scores)"}
DEVICES = {
    "cpu": "CPU",
    "mps": "Apple GPU (MPS)",
    "sm75": "Turing: T4, RTX 20",
    "sm80": "Ampere: A100",
    "sm86": "Ampere: A10, A40, RTX 30",
    "sm89": "Ada: L4, L40, RTX 40",
    "sm90": "Hopper: H100, H200",
    "sm100": "Blackwell: B200",
    "sm120": "Blackwell: RTX 50",
}
PADDING = {"FLASH": 8}
"""SDPA pads d_head with zeros to a multiple of this before the kernel; the others take it as it is."""

CLASSES: dict[str, Callable[[int], bool]] = {
    "multiples of 8": lambda d: d % 8 == 0,
    "other multiples of 4": lambda d: d % 8 == 4,
    "the rest": lambda d: d % 4 != 0,
}
"""Within one class of d_head, the choice changes only at a few widths."""

COLUMNS = ("torch", "cudnn", "sm", "dtype", "scenario", "d_head", "choice", "d_kernel")

# The wheels of the table with the cuDNN each of them pins, as cudnnGetVersion() counts: 92600 is 9.26.0.
_CUDNN = {"2.8.0": 91002, "2.10.0": 91002, "2.11.0": 91900, "2.13.0": 92000, "2.14.1": 92400, "2.15.0": 92600}
_CUDA = {"2.8.0": "12.8", "2.10.0": "12.8", "2.11.0": "13.0", "2.13.0": "13.0", "2.14.1": "13.0", "2.15.0": "13.2"}
_OTHER_CUDNN = (91002, 91100, 91200, 91400, 91501, 91900, 92000, 92201, 92401, 92501)
"""A cuDNN from each span between the versions at which a rule changes."""
TORCH_VERSIONS: tuple[str, ...] = tuple(_CUDNN)

_ALL_VERSIONS = f"{TORCH_VERSIONS[0]} to {TORCH_VERSIONS[-1]}"

DATA = join(dirname(dirname(abspath(__file__))), "data", "kernel_choices.json")


class UnknownPlatform(ValueError):
    """This torch version or device is not covered.

    `nearest` is the nearest one that is, or None; `around` the covered torch versions on both sides.
    """

    def __init__(self, message: str, nearest: str | None = None, around: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.nearest = nearest
        self.around = around


class CallError(ValueError):
    """This call cannot be made. The message says why, and what would work instead."""


class MissingTable(FileNotFoundError):
    """The table is not here: the package was installed without the book's data. The message names the file."""


# Sources, each named once.

_SDP = "pytorch/pytorch aten/src/ATen/native/transformers/cuda/sdp_utils.cpp @ 001f694a"
_SDPH = "sdp_utils_cpp.h in the torch 2.13.0, 2.14.1 and 2.15.0 wheels"
_CPU = "pytorch/pytorch aten/src/ATen/native/transformers/sdp_utils_cpp.cpp @ 02315a42"
_ATTN = "aten/src/ATen/native/transformers/attention.cpp (about torch 2.6)"
_MPS = "pytorch/pytorch aten/src/ATen/native/mps/operations/Attention.mm @ 00a5f92f"
_TABLE = "PyTorch's compiled selector, run for the table (2.8.0 to 2.15.0 wheels)"


@dataclass(frozen=True)
class Scenario:
    """One of the table's 13 situations: for people, and as keywords of SdpaCall."""

    text: str
    settings: dict[str, Any]


SCENARIOS: dict[str, Scenario] = {
    "infer": Scenario("inference", {}),
    "train": Scenario("training", {"training": True}),
    "train_dropout": Scenario("training with dropout 0.1", {"training": True, "dropout": 0.1}),
    "infer_mask": Scenario("inference with a boolean mask", {"mask": "bool"}),
    "train_mask": Scenario("training with a boolean mask", {"training": True, "mask": "bool"}),
    "infer_causal": Scenario("causal inference", {"is_causal": True}),
    "causal_uneven": Scenario("causal, 256 queries and 512 keys", {"is_causal": True, "seq_k": 512}),
    "decode": Scenario("decoding: 1 query, 1024 keys", {"seq_q": 1, "seq_k": 1024}),
    "gqa": Scenario("grouped-query attention, 4 query and 2 key/value heads", {"n_kv_heads": 2, "enable_gqa": True}),
    "gqa_mask": Scenario(
        "grouped-query attention with a boolean mask", {"n_kv_heads": 2, "enable_gqa": True, "mask": "bool"}
    ),
    "dv128": Scenario("values 128 wide, whatever d_head is", {"d_head_v": 128}),
    "unbatched": Scenario("3-D input, no batch dimension", {"batched": False}),
    "noncontig": Scenario("last dimension not contiguous (a transposed view)", {"last_stride_1": False}),
}


# One call.


@dataclass(frozen=True)
class SdpaCall:
    """One call of scaled_dot_product_attention on one machine.

    Args:
        d_head: width of q and k, in columns.
        torch: version of the torch wheel, torch.__version__ for instance. A local part such as "+cu126" changes no
            choice; where it names another CUDA than the table's wheel, and the choice hangs on cuDNN, `choose` says so.
        device: key of DEVICES, "sm80" for instance, or anything that `device_key` understands.
        dtype: key of DTYPES, for q, k and v.
        d_head_v: width of v, in columns. Default: d_head.
        mask: None, "bool" or "float". A mask of zeros or of True is a mask, too.
        is_causal: the keyword of that name.
        dropout: the probability `dropout_p`. SDPA applies it whether or not the model is in training.
        training: whether q, k or v requires a gradient, with grad mode on.
        n_heads, n_kv_heads: heads of q, and of k and v. Default: as many.
        enable_gqa: the keyword of that name. Needed for fewer k/v heads than q heads, unless there is only one.
        seq_q, seq_k: query and key length, in tokens. Default: as many keys as queries.
        batch: batch size; of no account if batched is False.
        batched: False for a 3-D input (heads, tokens, width).
        last_stride_1: False if the last dimension of q, k or v is not contiguous.
        mask_dims: dimensions of the mask: 2 (tokens, tokens) to 4.

    Raises:
        CallError: a value that no call can have, or values that SDPA refuses together.

    The torch version and the device are looked at when the call is asked about, not here.
    """

    d_head: int
    torch: str = "2.15.0"
    device: str = "sm80"
    dtype: str = "bf16"
    d_head_v: int | None = None
    mask: str | None = None
    is_causal: bool = False
    dropout: float = 0.0
    training: bool = False
    n_heads: int = 4
    n_kv_heads: int | None = None
    enable_gqa: bool = False
    seq_q: int = 256
    seq_k: int | None = None
    batch: int = 2
    batched: bool = True
    last_stride_1: bool = True
    mask_dims: int = 2

    def __post_init__(self) -> None:
        _check(self)

    @property
    def value_width(self) -> int:
        """Width of v, in columns."""
        return self.d_head if self.d_head_v is None else self.d_head_v

    @property
    def kv_heads(self) -> int:
        """Heads of k and v."""
        return self.n_heads if self.n_kv_heads is None else self.n_kv_heads

    @property
    def key_length(self) -> int:
        """Length of k and v, in tokens."""
        return self.seq_q if self.seq_k is None else self.seq_k


def _made(call: Any) -> SdpaCall:
    """The call, or CallError for anything else that was given in its place."""
    if not isinstance(call, SdpaCall):
        raise CallError(f"call = {_show(call)} is not a call. Give an SdpaCall, such as SdpaCall(64).")
    return call


def _check(call: SdpaCall) -> None:
    """Refuse a call that cannot be, and store NumPy integers and the like as int."""
    for name in ("d_head", "d_head_v", "n_heads", "n_kv_heads", "seq_q", "seq_k", "batch", "mask_dims"):
        value = getattr(call, name)
        if type(value) is int and 0 < value <= MAX_WIDTH:
            continue
        if value is None and name in ("d_head_v", "n_kv_heads", "seq_k"):
            continue
        try:
            vars(call)[name] = _count(name, value)
        except SplitError as error:
            raise CallError(str(error)) from None
    if not isinstance(call.torch, str):
        raise CallError(f'torch = {_show(call.torch)} is not a version. Give a string such as "{TORCH_VERSIONS[-1]}".')
    if type(call.torch) is not str:  # torch.__version__ is a str that compares as a version does
        vars(call)["torch"] = str(call.torch)
    device = _capability(call.device) if isinstance(call.device, tuple) else call.device
    if not isinstance(device, str):
        raise CallError(f'device = {_show(call.device)} is not a device. Give a key such as "sm80", or (8, 0).')
    if device is not call.device:
        vars(call)["device"] = device
    for name in ("is_causal", "training", "enable_gqa", "batched", "last_stride_1"):
        if type(getattr(call, name)) is not bool:
            raise CallError(f"{name} = {_show(getattr(call, name))} is neither True nor False.")
    _one_of("dtype", call.dtype, DTYPES)
    _one_of("mask", call.mask, MASKS)
    dropout = call.dropout
    if type(dropout) not in (float, int) or not 0 <= dropout <= 1:
        raise CallError(f"dropout = {_show(dropout)} is not a probability. Give a number from 0 to 1, such as 0.1.")
    if not 2 <= call.mask_dims <= 4:
        raise CallError(f"mask_dims = {call.mask_dims}: a mask has 2, 3 or 4 dimensions.")
    heads, kv_heads = call.n_heads, call.kv_heads
    if heads % kv_heads:
        divisors = [n for n in range(1, min(heads, 4096) + 1) if heads % n == 0]
        near = sorted(sorted(divisors, key=lambda n: abs(n - kv_heads))[:2])
        raise CallError(
            f"n_kv_heads = {kv_heads} does not divide n_heads = {heads}, so the query heads do not fall into equal "
            f"groups. Give a divisor of {heads}, such as {' or '.join(map(str, near))}."
        )
    if kv_heads not in (heads, 1) and not call.enable_gqa:
        raise CallError(
            f"n_heads = {heads} with n_kv_heads = {kv_heads}: SDPA raises a size mismatch. Give enable_gqa=True, or "
            f"repeat the key/value heads {heads // kv_heads} times."
        )
    if call.device == "mps" and call.dtype == "fp64":
        raise CallError('dtype = "fp64": MPS has no 64-bit floats. Give "fp32", "fp16" or "bf16".')


_MASK_AND_CAUSAL = (
    "mask and is_causal=True together: SDPA raises for that, always from torch 2.14 on and before that where it falls "
    "back to MATH. Put the causal triangle into the mask and leave is_causal=False, or drop the mask."
)


def _one_of(name: str, value: Any, known: Any) -> None:
    if (value is not None and type(value) is not str) or value not in known:
        names = ", ".join("None" if key is None else f'"{key}"' for key in known)
        raise CallError(f"{name} = {_show(value)} is not known. Give one of {names}.")


# The gates.


class _Situation:
    """A call as the gates see it: plain values, defaults filled in, the platform's facts added."""

    __slots__ = (
        "batch", "cap", "causal", "cudnn", "d", "dropout", "dtype", "dv", "gqa", "grad", "half", "heads", "kv_heads",
        "lk", "lq", "mask", "mask_dims", "rank", "stride1", "torch",
    )  # fmt: skip

    def __init__(self, platform: _Platform, call: SdpaCall) -> None:
        self.torch, self.cap, self.cudnn = platform.release, platform.capability, platform.cudnn
        self.d = call.d_head
        self.dv = call.value_width
        self.dtype = call.dtype
        self.half = call.dtype in ("fp16", "bf16")
        self.mask = call.mask
        self.mask_dims = call.mask_dims
        self.causal = call.is_causal
        self.dropout = call.dropout
        self.grad = call.training
        self.heads = call.n_heads
        self.kv_heads = call.kv_heads
        self.gqa = call.enable_gqa
        self.lq = call.seq_q
        self.lk = call.key_length
        self.batch = call.batch if call.batched else 1
        self.rank = 4 if call.batched else 3
        self.stride1 = call.last_stride_1


@dataclass(frozen=True)
class Gate:
    """One question that a backend asks of a call.

    `refuses` answers True where the backend turns the call down. `rule` is the rule for people and
    `reason` what to tell of one call, with the call's numbers to be filled in. The gate stands in
    the torch versions from `since` on and before `until`; "" is no limit within those covered here.
    """

    id: str
    refuses: Callable[[_Situation], bool]
    rule: str
    reason: str
    source: str
    since: str = ""
    until: str = ""
    by_width: bool = False  # whether the answer depends on d_head

    @property
    def versions(self) -> str:
        """The torch versions that have this gate, in words."""
        since, until = self.since, self.until
        if since and until:
            return f"from {since}, before {until}"
        return f"from {since}" if since else f"before {until}" if until else _ALL_VERSIONS


def _half_alignment(s: _Situation) -> int:
    """Columns that a 16-byte load takes, for the CUTLASS kernels: `minimum_gemm_alignment`."""
    if s.half:
        return 8
    return 4 if s.cap >= 80 else 1


def _cudnn_limit(s: _Situation) -> int:
    """Widest head that cuDNN's gate lets through: `head_dim_limit` in `check_cudnn_tensor_shapes`."""
    if s.cap not in (90, 100):
        return 128
    if s.torch >= (2, 14):  # and cuDNN above 9.22, which those wheels pin
        return 256 if s.cudnn > 92200 else 128
    if s.cap == 90:
        return 256 if s.cudnn >= 91000 else 128
    return 192 if (s.d, s.dv) == (192, 128) and s.cudnn >= 91100 else 128


_RANK = Gate(
    "rank",
    lambda s: s.rank != 4,
    "Input must be 4-D: (batch, heads, tokens, width).",
    "The input is 3-D; fused kernels want a batch dimension. unsqueeze(0) gives it one.",
    f"check_tensor_shapes, {_SDPH}; 3-D input is unsqueezed from 2.14 on",
    until="2.14",
)
_HEADS_GQA = Gate(
    "heads",
    lambda s: s.kv_heads != s.heads and not s.gqa,
    "Fewer key/value heads than query heads need enable_gqa=True.",
    "There are {heads} query heads and {kv_heads} key/value head without enable_gqa=True.",
    f"check_batch_size_and_num_heads_dense, {_SDPH}; one key/value head needs no flag from 2.14 on",
    until="2.14",
)
_STRIDE = Gate(
    "stride",
    lambda s: not s.stride1 and s.d != 1,
    "The last dimension of q, k and v must have stride 1.",
    "The last dimension is not contiguous (stride other than 1). .contiguous() makes it so.",
    f"check_last_dim_stride_equals_1_dense, {_SDPH}",
    by_width=True,
)
_STRIDE_STRICT = replace(_STRIDE, refuses=lambda s: not s.stride1, by_width=False)
_MASK_SHAPE = Gate(
    "mask-shape",
    lambda s: s.mask is not None and s.mask_dims == 3 and s.rank == 4,
    "A mask must have 2 or 4 dimensions (with 3-D input any number up to 3).",
    "The mask has {mask_dims} dimensions; 2 or 4 are taken. unsqueeze(0) makes it 4-D.",
    f"check_attn_mask_shape, {_SDPH}",
)

FLASH_GATES: tuple[Gate, ...] = (
    _RANK,
    Gate(
        "mask",
        lambda s: s.mask is not None,
        "No mask, not even one of zeros.",
        "A mask was given; FlashAttention takes none. is_causal=True needs no mask.",
        f"check_for_attn_mask, {_SDPH}",
    ),
    Gate(
        "value-width",
        lambda s: s.dv != s.d,
        "q, k and v must have the same width.",
        "v is {dv} wide and q and k are {d_head}; FlashAttention wants one width.",
        f"check_head_dim_size_flash, {_SDP}",
        by_width=True,
    ),
    Gate(
        "width-256",
        lambda s: s.d > 256,
        "d_head at most 256.",
        "d_head = {d_head} is above 256, the widest kernel that is compiled.",
        f"check_head_dim_size_flash, {_SDP}",
        by_width=True,
    ),
    Gate(
        "gpu",
        lambda s: not 80 <= s.cap <= 121,
        "Compute capability 8.0 to 12.1.",
        "The GPU has compute capability {capability}; FlashAttention-2 needs 8.0 (Ampere) or newer.",
        f"check_flash_attention_hardware_support, {_SDP}",
    ),
    Gate(
        "backward-smem",
        lambda s: s.grad and (86 <= s.cap <= 89 or 120 <= s.cap <= 121) and s.d > 192 and (s.d <= 224 or s.dropout > 0),
        "On sm86, sm89 and sm120 (about 100 KB of shared memory) no training with d_head 193 to 224, nor above 224 "
        "with dropout.",
        "Training with d_head = {d_head} and dropout {dropout:g} on compute capability {capability}: the backward kernel "
        "does not fit there for 193 to 224, nor above with dropout.",
        f"check_requires_grad_and_head_dim_gt192_constraints_on_sm86_89_or_120, {_SDP}",
        by_width=True,
    ),
    Gate(
        "causal-square",
        lambda s: s.causal and s.lq != s.lk,
        "is_causal needs as many keys as queries.",
        "is_causal with {lq} queries and {lk} keys: FlashAttention-2 aligns that triangle otherwise.",
        f"check_flash_causal_non_square_seqlens, {_SDP}",
    ),
    Gate(
        "dtype",
        lambda s: s.dtype != "fp16" and (s.dtype != "bf16" or s.cap < 80),
        "fp16 or bf16 (bf16 from compute capability 8.0 on).",
        "dtype {dtype} on compute capability {capability}; FlashAttention takes fp16, and bf16 from 8.0 on.",
        f"check_dtypes_flash_attention, {_SDP}",
    ),
    _HEADS_GQA,
    _STRIDE,
    Gate(
        "grid",
        lambda s: s.batch > 65535 or s.heads > 65535,
        "At most 65535 batch entries and heads.",
        "batch = {batch}, n_heads = {heads}: more than 65535, the most that a CUDA grid takes in those directions.",
        "check_flash_attention_grid_size, torch 2.15.0 wheel (name in the binary; its effect was run)",
        since="2.15",
    ),
)

EFFICIENT_GATES: tuple[Gate, ...] = (
    _RANK,
    Gate(
        "width-alignment",
        lambda s: s.d % _half_alignment(s) != 0,
        "d_head must be a multiple of 8 in fp16 and bf16, of 4 in fp32 (any width in fp32 on Turing): 16-byte loads.",
        "d_head = {d_head} is not a multiple of {alignment}, a 16-byte load of {dtype}; SDPA does not pad for this kernel.",
        f"check_head_dim_size_mem_efficient, minimum_gemm_alignment, {_SDP}",
        by_width=True,
    ),
    Gate(
        "value-alignment",
        lambda s: s.dv != s.d and s.dv % _half_alignment(s) != 0,
        "The width of v must be a multiple of 8 in fp16 and bf16, of 4 in fp32.",
        "v is {dv} wide, not a multiple of {alignment}, a 16-byte load of {dtype}.",
        f"check_head_dim_size_mem_efficient, {_SDP}",
        by_width=True,
    ),
    Gate(
        "gqa",
        lambda s: s.kv_heads != s.heads,
        "As many key/value heads as query heads.",
        "There are {heads} query heads and {kv_heads} key/value heads; this kernel takes fewer only from torch 2.14 on. "
        "Repeating k and v would do.",
        f"check_batch_size_and_num_heads_dense, torch 2.13.0 wheel and before; lifted in 2.14, {_SDP}",
        until="2.14",
    ),
    _STRIDE_STRICT,
    Gate(
        "dtype",
        lambda s: s.dtype == "fp64" or (s.dtype == "bf16" and s.cap < 80),
        "fp16 or fp32, and bf16 from compute capability 8.0 on.",
        "dtype {dtype} on compute capability {capability}; taken are fp16 and fp32, and bf16 from 8.0 on.",
        f"can_use_mem_efficient_attention, {_SDP}",
    ),
)

CUDNN_GATES: tuple[Gate, ...] = (
    Gate(
        "dropout-9.11",
        lambda s: s.dropout > 0 and 91100 < s.cudnn < 91400,
        "No dropout with cuDNN 9.11 to 9.13.",
        "Dropout with cuDNN {cudnn}: versions 9.11 to 9.13 do not support it.",
        f"can_use_cudnn_attention, {_SDP}",
    ),
    _RANK,
    Gate(
        "dtype",
        lambda s: not s.half or (s.dtype == "bf16" and s.cap < 80),
        "fp16 or bf16.",
        "dtype {dtype} on compute capability {capability}; cuDNN attention takes fp16, and bf16 from 8.0 on.",
        f"check_dtypes_low_precision, {_SDP}",
    ),
    _MASK_SHAPE,
    Gate(
        "gpu",
        lambda s: not 80 <= s.cap <= 121,
        "Compute capability 8.0 to 12.1.",
        "The GPU has compute capability {capability}; cuDNN attention needs 8.0 (Ampere) or newer.",
        f"check_cudnn_hardware_support, {_SDP}",
    ),
    Gate(
        "dropout-16th",
        lambda s: s.dropout * 16 % 1 != 0,
        "The dropout probability must be a multiple of 1/16.",
        "dropout = {dropout:g} is not a multiple of 1/16, as fine as cuDNN resolves it.",
        f"check_cudnn_dropout, {_SDP}; in the wheels from 2.12.1 on",
        since="2.12.1",
    ),
    _STRIDE,
    _HEADS_GQA,
    Gate(
        "width-limit",
        lambda s: s.d > (limit := _cudnn_limit(s)) or s.dv > limit,
        "d_head and the width of v at most 128; on sm90 at most 256; on sm100 at most 256 from 2.14 on, before that 128 "
        "or the pair (192, 128).",
        "d_head = {d_head} with v {dv} wide is above the limit of {cudnn_limit} on compute capability {capability}.",
        f"check_cudnn_tensor_shapes, {_SDP}; before 2.14: {_TABLE}",
        by_width=True,
    ),
    Gate(
        "width-8",
        lambda s: s.d % 8 != 0 or s.dv % 8 != 0,
        "d_head and the width of v must be multiples of 8.",
        "d_head = {d_head} with v {dv} wide: both must be multiples of 8; SDPA does not pad for cuDNN.",
        f"check_cudnn_tensor_shapes, {_SDP}",
        by_width=True,
    ),
    Gate(
        "one-key",
        lambda s: s.lk == 1,
        "More than one key.",
        "There is one key only.",
        f"check_cudnn_tensor_shapes, {_SDP}",
    ),
    Gate(
        "one-query-dropout",
        lambda s: s.lq == 1 and s.dropout > 0,
        "With dropout, more than one query.",
        "There is one query only, and dropout.",
        f"check_cudnn_tensor_shapes, {_SDP}",
    ),
    Gate(
        "grid",
        lambda s: s.batch > 65535 or s.heads > 65535,
        "At most 65535 batch entries and heads.",
        "batch = {batch}, n_heads = {heads}: more than 65535.",
        f"check_cudnn_tensor_shapes, {_SDP}",
        since="2.14",
    ),
    Gate(
        "backward-widths",
        lambda s: (
            s.grad
            and s.cap in (90, 100)
            and not (s.d <= 128 and s.dv <= 128)
            and (s.d, s.dv) not in ((192, 128), (256, 256))
        ),
        "Training on sm90 and sm100: widths up to 128, or (192, 128), or (256, 256).",
        "Training with d_head = {d_head} and v {dv} wide: cuDNN's backward takes up to 128, (192, 128) and (256, 256).",
        f"check_cudnn_d256_bprop_head_dim, {_SDP}",
        since="2.14",
        by_width=True,
    ),
    Gate(
        "decode-sm100",
        lambda s: s.lq == 1 and s.cap == 100 and 91900 <= s.cudnn <= 92500 and s.cudnn != 92401,
        "No single query on sm100 with cuDNN 9.19 to 9.25.0, except 9.24.1: wrong results.",
        "One query on compute capability {capability} with cuDNN {cudnn}: that combination gave wrong results.",
        "pytorch/pytorch#194927 (2026-08), after #193893; torch 2.14.1 wheel",
        since="2.14.1",
    ),
)

_NOT_HERE = Gate(
    "not-here",
    lambda s: True,
    "Only for NVIDIA GPUs.",
    "There is no such kernel for this device.",
    "torch.nn.attention.SDPBackend; run on a CPU with torch 2.13.0 and 2.15.0",
)
CPU_GATES: tuple[Gate, ...] = (
    Gate(
        "dropout",
        lambda s: s.dropout > 0,
        "No dropout.",
        "dropout = {dropout:g}; the fused CPU kernel has none.",
        f"check_for_dropout, {_CPU}",
    ),
    _RANK,
    _HEADS_GQA,
    _MASK_SHAPE,
    Gate(
        "value-width",
        lambda s: s.dv != s.d,
        "q, k and v must have the same width.",
        "v is {dv} wide and q and k are {d_head}; the fused CPU kernel wants one width.",
        f"check_head_dim_size_cpp, {_CPU}",
        by_width=True,
    ),
    _STRIDE_STRICT,
)
_MPS_FLASH = replace(
    _NOT_HERE,
    rule="Not on an Apple GPU: SDPA's MATH operator picks the Metal kernel there.",
    reason="On an Apple GPU SDPA has one operator, MATH, which picks the Metal kernel inside.",
    source=_MPS,
)
_NOT_ON_MPS = replace(_NOT_HERE, source=_MPS)


# Platforms: a torch version on a device.


@dataclass(frozen=True)
class _Platform:
    torch: str
    release: tuple[int, ...]
    device: str
    capability: int  # 80 for 8.0; 0 for a CPU and an Apple GPU
    cudnn: int
    order: tuple[str, ...]  # the backends in the order in which SDPA asks them; none after MATH is ever reached
    gates: dict[str, tuple[Gate, ...]]
    order_source: tuple[str, str]  # of the order: its source, and the versions that it holds for


def _prefers_cudnn(torch: tuple[int, ...], capability: int, cudnn: int) -> bool:
    """Whether SDPA asks cuDNN first.

    `check_prefer_cudnn_attention`: in the code from 2.10 on, for compute capability 9.x and 10.x and
    a cuDNN above 9.15.0. The 2.10.0 wheel pins 9.10.2, so 2.11 was the first to do so.
    """
    return torch >= (2, 10) and capability // 10 in (9, 10) and cudnn > 91500


def _order(torch: tuple[int, ...], capability: int, cudnn: int) -> tuple[str, ...]:
    """The order in which SDPA asks the backends on an NVIDIA GPU."""
    if _prefers_cudnn(torch, capability, cudnn):
        return ("CUDNN", "FLASH", "EFFICIENT", "MATH")
    # ATen/Context.h, sdp_priority_order: MATH stands before CUDNN, which puts cuDNN out of reach.
    return ("FLASH", "EFFICIENT", "MATH", "CUDNN")


def release(version: str) -> tuple[int, ...]:
    """The numbers of a version: "2.13.0+cu130" is (2, 13, 0). Raises UnknownPlatform if it has none."""
    match = re.match(r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?", version.strip()) if isinstance(version, str) else None
    if not match:
        raise UnknownPlatform(
            f"torch = {_show(version)} is not a torch version. Known: {', '.join(TORCH_VERSIONS)}.", TORCH_VERSIONS[-1]
        )
    return tuple(int(part or 0) for part in match.groups())


@lru_cache(maxsize=256)
def _torch_key(version: Any) -> str:
    """The key of TORCH_VERSIONS for a version string, or UnknownPlatform with the nearest."""
    public = version.strip().split("+")[0] if isinstance(version, str) else version
    if public in TORCH_VERSIONS:
        return public
    numbers = release(public)
    if re.fullmatch(r"v?[\d.]+", public):  # "2.13" and "v2.13.0" mean the release
        for known in TORCH_VERSIONS:
            if release(known) == numbers:
                return known
    place = [release(known) for known in TORCH_VERSIONS]
    below = max((i for i, known in enumerate(place) if known <= numbers), default=None)
    above = min((i for i, known in enumerate(place) if known >= numbers), default=None)

    def distance(i: int) -> float:
        return abs((numbers[0] - place[i][0]) * 1000 + numbers[1] - place[i][1] + (numbers[2] - place[i][2]) / 1000)

    nearest = TORCH_VERSIONS[min((i for i in (below, above) if i is not None), key=distance)]
    if below is None:
        where = f"is older than {TORCH_VERSIONS[0]}, the oldest one covered"
    elif above is None:
        where = f"is newer than {TORCH_VERSIONS[-1]}, the newest one covered"
    elif below == above:
        where = f"is not the release {nearest} itself"
    else:
        where = f"lies between {TORCH_VERSIONS[below]} and {TORCH_VERSIONS[above]}"
    raise UnknownPlatform(
        f"torch {_show(public)[1:-1]} is not in the table: it {where}. The nearest one known is {nearest}. Known: "
        f"{', '.join(TORCH_VERSIONS)}.",
        nearest,
        () if below is None or above is None or below == above else (TORCH_VERSIONS[below], TORCH_VERSIONS[above]),
    )


# Words of device names, as torch.cuda.get_device_name and people have them; the first hit counts.
_NAMES = (
    ("sm120", r"rtx 50\d\d|rtx pro \d|\b50[5-9]0\b"),
    ("sm100", r"\bg?b[12]00\b"),
    ("sm90", r"\bg?h(?:100|200|20|800)\b"),
    ("sm89", r"rtx 40\d\d|\bl(?:4|40s?|20|2)\b|\brtx [2-6]000 ada\b|ada generation|\b40[5-9]0\b"),
    ("sm86", r"rtx 30\d\d|\ba(?:2|10g?|16|40)\b|\ba[2-6](?:000|500)\b|\b30[5-9]0\b"),
    ("sm80", r"\ba(?:100|800|30)\b"),
    ("sm75", r"\bt4\b|rtx 20\d\d|gtx 16\d\d|quadro rtx|titan rtx|\b20[6-8]0\b"),
    ("mps", r"\bmps\b|\bmetal\b|\bapple\b|^m[1-5](?: pro| max| ultra)?$"),
    ("cpu", r"\bcpu\b|\bxeon\b|\bepyc\b|\bryzen\b"),
)
_NOT_COVERED = (
    ("sm60", r"\bp100\b"),
    ("sm61", r"\bp(?:4|40)\b|gtx 10[5-8]0|titan xp?\b"),
    ("sm70", r"\bv100\b|titan v\b"),
    ("sm103", r"\bg?b300\b"),
    ("sm121", r"\bgb10\b|dgx spark"),
    ("sm87", r"\borin\b"),
    ("sm110", r"\bthor\b"),
)
_NEAREST = {
    "sm60": "sm75",
    "sm61": "sm75",
    "sm70": "sm75",
    "sm87": "sm86",
    "sm103": "sm100",
    "sm110": "sm100",
    "sm121": "sm120",
}


def device_key(device: Any) -> str:
    """The key of DEVICES for a key, a device's name or a compute capability.

    "sm90", "H100", "NVIDIA H100 80GB HBM3", (9, 0) and "9.0" are all "sm90". Raises UnknownPlatform,
    naming the nearest key, for a device that is not covered.
    """
    name = _capability(device) if isinstance(device, tuple) else device
    if not isinstance(name, str):
        raise UnknownPlatform(f"device = {_show(device)} is not known. Known: {', '.join(DEVICES)}.")
    return _device_key(name)


def _capability(pair: tuple) -> str | None:
    """ "sm90" for (9, 0); None for anything else."""
    fits = len(pair) == 2 and all(type(part) is int and 0 <= part < 100 for part in pair)
    return f"sm{pair[0]}{pair[1]}" if fits else None


@lru_cache(maxsize=256)
def _device_key(device: str) -> str:
    if device in DEVICES:
        return device
    text = re.sub(r"[\s_-]+", " ", device.lower()).strip()
    if match := re.fullmatch(r"(?:sm ?|compute ?|cc ?)?(\d{1,2})\.?(\d)a?", text):
        key = f"sm{match[1]}{match[2]}"
    else:
        spaced = re.sub(r"rtx(?=\d)", "rtx ", text)
        key = next((known for known, pattern in (*_NOT_COVERED, *_NAMES) if re.search(pattern, spaced)), None)
    if key in DEVICES:
        return key
    capabilities = [name for name in DEVICES if name.startswith("sm")]
    if key is None:
        raise UnknownPlatform(f"device = {_show(device)} is not known. Known: {', '.join(DEVICES)}.", None)
    number = int(key[2:])
    nearest = _NEAREST.get(key) or min(capabilities, key=lambda name: abs(int(name[2:]) - number))
    raise UnknownPlatform(
        f"Compute capability {number // 10}.{number % 10} ({key}) is not in the table. The nearest one known is {nearest} "
        f"({DEVICES[nearest]}). Known: {', '.join(capabilities)}.",
        nearest,
    )


@lru_cache(maxsize=512)
def _platform(torch: str, device: str) -> _Platform:
    version, key = _torch_key(torch), device_key(device)
    numbers = release(version)
    if key == "cpu":
        capability, order = 0, ("FLASH", "MATH")
        order_source = f"priority_order_cpp, {_CPU}"
        gates = {"FLASH": CPU_GATES, "EFFICIENT": (_NOT_HERE,), "CUDNN": (_NOT_HERE,), "MATH": ()}
    elif key == "mps":
        capability, order = 0, ("MATH",)
        order_source = _MPS
        gates = {"FLASH": (_MPS_FLASH,), "EFFICIENT": (_NOT_ON_MPS,), "CUDNN": (_NOT_ON_MPS,), "MATH": ()}
    else:
        capability = int(key[2:])
        order_source = f"priority_order, {_SDP}; sdp_priority_order, ATen/Context.h"
        order = _order(numbers, capability, _CUDNN[version])
        gates = {"FLASH": FLASH_GATES, "EFFICIENT": EFFICIENT_GATES, "CUDNN": CUDNN_GATES, "MATH": ()}
    standing = {
        backend: tuple(
            gate
            for gate in those
            if (not gate.since or numbers >= release(gate.since)) and (not gate.until or numbers < release(gate.until))
        )
        for backend, those in gates.items()
    }
    holds = "from 2.11, on sm90 and sm100" if order[0] == "CUDNN" else _ALL_VERSIONS
    return _Platform(version, numbers, key, capability, _CUDNN[version], order, standing, (order_source, holds))


def _select(platform: _Platform, s: _Situation) -> str:
    """The first backend in order whose gates all let the situation pass."""
    # MATH refuses nothing, and is in every order.
    return next(backend for backend in platform.order if not any(gate.refuses(s) for gate in platform.gates[backend]))


def _decide(platform: _Platform, s: _Situation) -> str:
    """The backend by the rules, or CallError where SDPA raises."""
    backend = _select(platform, s)
    # The Metal kernels take both, as far as the source goes.
    if s.causal and s.mask is not None and (backend == "MATH" or s.torch >= (2, 14)) and platform.device != "mps":
        raise CallError(_MASK_AND_CAUSAL)
    if s.mask is not None and s.mask_dims > s.rank and s.torch < (2, 14):
        raise CallError("mask_dims = 4 with 3-D input: the mask has more dimensions than q. Give 2 or 3.")
    return backend


def _kernel_width(backend: str, device: str, d: int) -> int:
    """Columns that the kernel is given: d, or d padded to a multiple of 8 for FLASH on a GPU."""
    return -(-d // 8) * 8 if backend == "FLASH" and device != "cpu" else d


def by_rules(call: SdpaCall) -> tuple[str, int]:
    """The backend and the width that its kernel is given, decided by the gates alone.

    Never looks at the table. Raises UnknownPlatform for a torch version or device that is not
    covered, and CallError for a mask with is_causal where SDPA raises for it.
    """
    platform = _platform(_made(call).torch, call.device)
    backend = _decide(platform, _Situation(platform, call))
    return backend, _kernel_width(backend, platform.device, call.d_head)


# The table.


def rows_of(data: dict) -> Iterator[tuple[str, str, int, str, str, int, str, int]]:
    """Every row of the table that a kernel_choices document stands for, in COLUMNS, in the order of the CSV."""
    widths = [d for first, last in data["d_head"] for d in range(first, last + 1)]
    patterns = {name: _choices(runs, widths) for name, runs in data["patterns"].items()}
    for torch, version in data["torch"].items():
        for sm, by_dtype in version["choices"].items():
            for dtype in data["dtypes"]:
                for scenario, name in zip(data["scenarios"], by_dtype[dtype], strict=True):
                    for d, choice in patterns[name].items():
                        step = data["padding"].get(choice, 1)
                        yield torch, version["cudnn"], int(sm), dtype, scenario, d, choice, -(-d // step) * step


def csv_text(data: dict) -> str:
    """The CSV text of the table: a header and one line for each row."""
    lines = [",".join(COLUMNS)]
    lines += (f"{t},{c},{sm},{dt},{sc},{d},{choice},{width}" for t, c, sm, dt, sc, d, choice, width in rows_of(data))
    return "\n".join(lines) + "\n"


def _choices(runs: list[str], widths: list[int]) -> dict[int, str]:
    """One pattern, d_head: choice. Each of its texts holds the runs of one class: "FLASH 256, MATH 320"."""
    chosen: dict[int, str] = {}
    for text, belongs in zip(runs, CLASSES.values(), strict=True):
        ends = [(choice, int(last)) for choice, last in (run.split(" ") for run in text.split(", "))]
        for d in widths:
            if belongs(d):
                while d > ends[0][1]:
                    ends.pop(0)
                chosen[d] = ends[0][0]
    return {d: chosen[d] for d in widths}


@cache
def table() -> dict:
    """The document book/data/kernel_choices.json, loaded once. Raises MissingTable where it is not there."""
    try:
        with open(DATA, encoding="utf8") as file:
            return json.load(file)
    except FileNotFoundError:
        raise MissingTable(
            f"{DATA} is missing: the table belongs to the book, not to the package alone. Use a checkout of the book; "
            "choose() and by_rules() answer without it."
        ) from None


@cache
def _index() -> dict[tuple[str, str, str], dict[str, dict[int, str]]]:
    """(torch, device, dtype) to scenario to d_head to choice; the few patterns are shared.

    Empty where the package was installed without the book's data; the rules then answer alone.
    """
    if not exists(DATA):
        return {}
    data = table()
    widths = [d for first, last in data["d_head"] for d in range(first, last + 1)]
    patterns = {name: _choices(runs, widths) for name, runs in data["patterns"].items()}
    return {
        (torch, f"sm{sm}", dtype): dict(zip(data["scenarios"], map(patterns.__getitem__, names), strict=True))
        for torch, version in data["torch"].items()
        for sm, by_dtype in version["choices"].items()
        for dtype, names in by_dtype.items()
    }


def _settings(call: SdpaCall) -> tuple:
    """All that tells one scenario from another, defaults filled in."""
    width = 0 if call.d_head_v in (None, call.d_head) else call.d_head_v
    mask = (call.mask, call.mask_dims) if call.mask else None
    heads = (call.n_heads, call.kv_heads, call.enable_gqa)
    lengths = (call.batch, call.seq_q, call.key_length)
    flags = (call.is_causal, call.dropout, call.training, call.batched, call.last_stride_1)
    return width, mask, heads, lengths, flags


_SCENARIO_OF = {_settings(SdpaCall(64, **scenario.settings)): name for name, scenario in SCENARIOS.items()}


def scenario_of(call: SdpaCall) -> str | None:
    """The key of SCENARIOS that this call is an instance of, or None."""
    return _SCENARIO_OF.get(_settings(_made(call)))


def from_table(call: SdpaCall) -> tuple[str, int] | None:
    """The backend and kernel width that PyTorch's selector chose; None if the table has no such situation.

    Raises UnknownPlatform for a torch version or device that is not covered.
    """
    platform = _platform(_made(call).torch, call.device)
    scenario = scenario_of(call)
    if scenario is None:
        return None
    choice = _index().get((platform.torch, platform.device, call.dtype), {}).get(scenario, {}).get(call.d_head)
    return None if choice is None else (choice, _kernel_width(choice, platform.device, call.d_head))


# Widths of kernels.

_FA2_SOURCE = "kernel names in libtorch_cuda.so of the wheels"
_FA2_BUCKETS = (
    ((2, 2), (32, 64, 96, 128, 160, 192, 224, 256)),
    ((2, 7), (32, 64, 96, 128, 160, 192, 256)),
    ((2, 11), (32, 64, 96, 128, 192, 256)),
)
_FA3_BUCKETS = (64, 96, 128, 192, 256)


def flash_buckets(torch: str) -> tuple[int, ...]:
    """Head widths that the FlashAttention-2 inside this torch version is compiled for, ascending.

    Read off the kernel names in the wheels 2.2.2 to 2.15.0. Raises UnknownPlatform outside that range.
    """
    numbers = release(torch)
    if not (2, 2) <= numbers[:2] <= (2, 15):
        nearest = "2.2.2" if numbers < (2, 2) else TORCH_VERSIONS[-1]
        raise UnknownPlatform(
            f"torch {_show(torch)[1:-1]}: kernel widths are known for 2.2 to 2.15. Nearest: {nearest}.", nearest
        )
    return _fa2_buckets(numbers)


def _fa2_buckets(numbers: tuple[int, ...]) -> tuple[int, ...]:
    return next(buckets for since, buckets in reversed(_FA2_BUCKETS) if numbers >= since)


def flash_bucket(d_head: int, torch: str = TORCH_VERSIONS[-1]) -> int | None:
    """Width of the FlashAttention-2 kernel that runs a head of d_head columns: the next one compiled; None above 256."""
    return _next(flash_buckets(torch), _width(d_head))


def _next(buckets: tuple[int, ...], d: int) -> int | None:
    return next((bucket for bucket in buckets if bucket >= d), None)


def widths(d_head: int, torch: str = TORCH_VERSIONS[-1]) -> dict[str, dict[str, Any]]:
    """What several kernels make of a head of d_head columns, for comparison.

    Returns one entry a kernel: {"width": columns that it works on, or None if it does not take
    d_head; "share": d_head / width, the useful share of its tensor-core work, or None; "what": the
    rule in words; "source"}. Only FA2 is what SDPA runs by default; widths are computed from each
    project's rule, not measured.
    """
    d = _width(d_head)
    padded = -(-d // 8) * 8
    rules = {
        "FA2": (flash_bucket(d, torch), "FlashAttention-2 in torch: next compiled width", _FA2_SOURCE),
        "FA3": (
            _next(_FA3_BUCKETS, d),
            "FlashAttention-3 (Hopper, opt-in): next compiled width",
            "Dao-AILab/flash-attention hopper/ @ 0251105a",
        ),
        "FA4": (
            -(-padded // 16) * 16 if padded <= 256 else None,
            "FlashAttention-4 (compiled on use): next multiple of 16; on sm100 only up to 128, or 256",
            "Dao-AILab/flash-attention flash_attn/cute @ 0251105a",
        ),
        "FlexAttention": (
            power_of_two(d),
            "FlexAttention's Triton kernel: next power of two",
            "torch/_inductor/kernel/flex/common.py, torch 2.13.0 and 2.15.0 wheels",
        ),
        "exact": (
            -(-d // 16) * 16,
            "the least that tensor cores allow: next multiple of 16, their k-step",
            "mma m16n8k16; flash-attention kernel_traits.h @ 0251105a",
        ),
    }
    return {
        name: {"width": width, "share": d / width if width else None, "what": what, "source": source}
        for name, (width, what, source) in rules.items()
    }


def power_of_two(width: int) -> int:
    """The least power of two that is not below width, itself at least 1."""
    return 1 << (width - 1).bit_length()


NOT_TAKEN = {("FA4", "sm100"): (129, 255)}
"""Head sizes, first and last, that a kernel of `widths` does not take on one card though it does on others."""


def width_on(name: str, d: int, torch: str, device: str) -> int | None:
    """The width that a kernel of `widths` works on for d columns on this device; None if it does not take them."""
    first, last = NOT_TAKEN.get((name, device), (0, 0))
    return None if first <= d <= last else widths(d, torch)[name]["width"]


def _width(d_head: Any) -> int:
    if type(d_head) is int and 0 < d_head <= MAX_WIDTH:
        return d_head
    try:
        return _count("d_head", d_head)
    except SplitError as error:
        raise CallError(str(error)) from None


# The answer.


@dataclass(frozen=True)
class Refusal:
    """Why a backend does not run a call. A backend can have several: all of them stand in its way."""

    backend: str
    rule: str  # id of the gate, or "ranked"
    reason: str  # for people, with the numbers of the call
    source: str
    version: str  # the torch versions that have this rule


@dataclass(frozen=True)
class Choice:
    """What SDPA picks for a call, and why not the others.

    backend: key of BACKENDS. d_kernel: width that the kernel is given, after automatic padding.
    bucket: width of the compiled kernel, for FLASH on a GPU; None where there is none or it is not
    known. useful_share: d_head / bucket, None likewise. padding: "8" if d_head was padded to a
    multiple of 8, else "". refusals: grouped by backend, in the order in which SDPA asks them.
    evidence: "table" (PyTorch's selector was run in this situation), "rules" (the gates say so) or
    "nearest" (as for the nearest torch version, device or, where cuDNN matters, wheel that is known).
    notes: in sentences.
    """

    backend: str
    d_kernel: int
    bucket: int | None
    useful_share: float | None
    padding: str
    refusals: tuple[Refusal, ...]
    evidence: str
    notes: tuple[str, ...]


def choose(call: SdpaCall, nearest: bool = False) -> Choice:
    """What SDPA picks for this call, and why each other backend does not run it.

    The choice is the table's where the situation is in the table, the rules' elsewhere; the reasons
    are the rules'. With nearest=True an unknown torch version or device is answered for the nearest
    one known, and the notes say so.

    Raises:
        UnknownPlatform: the torch version or the device is not covered, and nearest is False; or nothing is near it.
        CallError: a mask with is_causal, where SDPA raises for it.
    """
    notes: list[str] = []
    evidence, asked = None, _made(call).torch
    if nearest:
        call, notes = _nearest(call)
        evidence = "nearest" if notes else None
    platform = _platform(call.torch, call.device)
    s = _Situation(platform, call)
    if other := _other_wheel(platform, s, asked):
        evidence = "nearest"
        notes.append(other)
    known = from_table(call)
    backend, d_kernel = known or (chosen := _decide(platform, s), _kernel_width(chosen, platform.device, s.d))
    bucket = _next(_fa2_buckets(platform.release), d_kernel) if backend == "FLASH" and platform.capability else None
    return Choice(
        backend,
        d_kernel,
        bucket,
        s.d / bucket if bucket else None,
        "8" if d_kernel != s.d else "",
        _refusals(platform, s, backend),
        evidence or ("table" if known else "rules"),
        (*notes, *_notes(platform, s, backend, d_kernel, bucket)),
    )


def _nearest(call: SdpaCall) -> tuple[SdpaCall, list[str]]:
    """The call moved to the nearest platform known, and what to say of that."""
    notes: list[str] = []
    around: tuple[str, ...] = ()
    for name, key in (("torch", _torch_key), ("device", device_key)):
        try:
            key(getattr(call, name))
        except UnknownPlatform as error:
            if error.nearest is None:
                raise
            notes.append(f"Answered for {name} {error.nearest}. {error}")
            call, around = replace(call, **{name: error.nearest}), error.around or around
    if around:
        below, above = ((from_table(c) or by_rules(c))[0] for c in (replace(call, torch=torch) for torch in around))
        same = f"both pick {below}" if below == above else f"pick {below} and {above}"
        notes.append(f"For this call torch {around[0]} and {around[1]} {same}.")
    return call, notes


def _other_wheel(platform: _Platform, s: _Situation, torch: str) -> str | None:
    """What to say where this build of torch is for another CUDA than the table's, and the choice hangs on cuDNN."""
    build = re.match(r"\s*cu(\d{3,4})\b", torch.partition("+")[2])
    cuda = _CUDA[platform.torch]
    if not build or platform.capability // 10 not in (9, 10) or build[1] == cuda.replace(".", ""):
        return None
    # The same torch with other versions of cuDNN: does any of them pick something else?
    own, picks = s.cudnn, [_select(platform, s)]
    for s.cudnn in _OTHER_CUDNN:
        order = _order(platform.release, platform.capability, s.cudnn)
        picks.append(_select(replace(platform, order=order, cudnn=s.cudnn), s))
    s.cudnn = own
    if picks.count(picks[0]) == len(picks):
        return None
    return (
        f"Table and rules for torch {platform.torch} are those of the wheel with CUDA {cuda} and cuDNN {_dotted(own)}. This "
        f"build is for CUDA {build[1][:-1]}.{build[1][-1]}; another cuDNN can change what sm90 and sm100 pick, here between "
        f"{' and '.join(backend for backend in BACKENDS if backend in picks)}."
    )


def _refusals(platform: _Platform, s: _Situation, backend: str) -> tuple[Refusal, ...]:
    facts = _facts(s)
    return tuple(
        Refusal(other, rule, reason.format_map(facts), source, versions)
        for other, rule, reason, source, versions in _reasons(platform, s, backend)
    )


def _reasons(platform: _Platform, s: _Situation, backend: str) -> Iterator[tuple[str, str, str, str, str]]:
    """What stands in the way of every backend but this one: backend, rule, reason to be filled in, source, versions."""
    order = platform.order
    for other in (*order, *(name for name in BACKENDS if name not in order)):
        if other == backend:
            continue
        refused = False
        for gate in platform.gates[other]:
            if gate.refuses(s):
                yield other, gate.id, gate.reason, gate.source, gate.versions
                refused = True
        if other == "MATH":
            reason = f"MATH accepts every call; it is the fallback, after {backend}."
        elif other in order and order.index(other) > order.index("MATH"):
            reason = "It stands after MATH in the order, so SDPA never gets to it unless it is asked for by name."
        elif refused:
            continue
        else:
            reason = f"It would accept this call, but stands after {backend} in the order."
        yield other, "ranked", reason, *platform.order_source


def _facts(s: _Situation) -> dict[str, Any]:
    """The numbers that the gates' reasons name."""
    return {
        "d_head": s.d, "dv": s.dv, "dtype": s.dtype, "dropout": s.dropout, "heads": s.heads, "kv_heads": s.kv_heads,
        "lq": s.lq, "lk": s.lk, "batch": s.batch, "mask_dims": s.mask_dims, "capability": f"{s.cap // 10}.{s.cap % 10}",
        "alignment": _half_alignment(s), "cudnn_limit": _cudnn_limit(s), "cudnn": _dotted(s.cudnn),
    }  # fmt: skip


def _dotted(cudnn: int) -> str:
    return f"{cudnn // 10000}.{cudnn // 100 % 100}.{cudnn % 100}"


def _notes(platform: _Platform, s: _Situation, backend: str, d_kernel: int, bucket: int | None) -> list[str]:
    notes = []
    if platform.device == "cpu":
        if backend == "FLASH":
            notes.append("PyTorch's fused CPU kernel takes any width; its blocks do not depend on d_head.")
    elif platform.device == "mps":
        notes.append(
            "From PyTorch's source (Attention.mm), not run: which release has which Metal kernel is not known."
        )
        notes.append(_metal(s))
    elif backend == "FLASH" and d_kernel != s.d:
        notes.append(
            f"q, k and v are each copied with zeros up to {d_kernel} columns, the output is cut back to {s.d}."
        )
    elif backend == "EFFICIENT":
        tile = "64 × 64" if s.dv <= 64 else "64 × 128" if s.dv <= 128 else "32 × 128, with the output kept in memory"
        notes.append(f"The CUTLASS kernel works in tiles of {tile}.")
    elif backend == "CUDNN":
        notes.append(f"cuDNN {_dotted(s.cudnn)} is closed: what it pads d_head to inside is not known.")
    if backend == "MATH" and platform.device != "mps":
        notes.append(f"The {s.lq} × {s.lk} matrix of scores is stored for every head.")
    return notes


def _metal(s: _Situation) -> str:
    """What the source says of the Metal kernel behind MATH."""
    if s.grad or s.dropout or not s.stride1:
        why = "a gradient" if s.grad else "dropout" if s.dropout else "a layout that is not contiguous"
        return f"With {why} the plain matrix products run, and the whole matrix of scores is stored ({_ATTN})."
    if s.d == s.dv and s.lq <= 8 and s.lq <= s.lk and s.d in (64, 96, 128, 256):
        return f"A fused Metal kernel for few queries takes d_head = {s.d}."
    if s.d == s.dv and s.lq > 8 and s.d in (32, 64, 72, 80, 96, 128, 256):
        return f"A fused Metal kernel takes d_head = {s.d}."
    return f"No fused Metal kernel takes this call (d_head = {s.d}); MPSGraph stores the whole matrix of scores."


# The table for the pages, which look up and decide nothing.

_LETTERS = {"F": ("FLASH", False), "f": ("FLASH", True), "E": ("EFFICIENT", False), "C": ("CUDNN", False), "M": ("MATH", False)}  # fmt: skip


def table_widths() -> list[int]:
    """The head widths of the table, ascending: 1 to 320, 384, 512, 576."""
    return [d for first, last in table()["d_head"] for d in range(first, last + 1)]


def kernel_strips() -> dict[str, Any]:
    """The table for a map: one letter for every d_head, in JSON types. About 16 KB as JSON.

    {"d_heads": the widths; "letters": {letter: {"backend", "padded"}}; "torch": {version: {"cuda",
    "cudnn"}}, ascending; "devices": {"sm75": text, ...}; "dtypes": [...]; "scenarios": {name: text};
    "patterns": ["FFE...", ...], a letter for each of d_heads; "index": {torch: {device: {dtype:
    [number of the pattern, one for each scenario]}}}}
    """
    data, widths = table(), table_widths()
    letter = {meaning: key for key, meaning in _LETTERS.items()}
    numbers = {name: number for number, name in enumerate(data["patterns"])}
    patterns = []
    for runs in data["patterns"].values():
        chosen = _choices(runs, widths)
        patterns.append("".join(letter[chosen[d], d % data["padding"].get(chosen[d], 1) != 0] for d in widths))
    return {
        "d_heads": widths,
        "letters": {key: {"backend": backend, "padded": padded} for key, (backend, padded) in _LETTERS.items()},
        "torch": {torch: {key: data["torch"][torch][key] for key in ("cuda", "cudnn")} for torch in TORCH_VERSIONS},
        "devices": {key: text for key, text in DEVICES.items() if key.startswith("sm")},
        "dtypes": data["dtypes"],
        "scenarios": {name: SCENARIOS[name].text for name in data["scenarios"]},
        "patterns": patterns,
        "index": {
            torch: {
                f"sm{sm}": {dtype: [numbers[name] for name in names] for dtype, names in by_dtype.items()}
                for sm, by_dtype in data["torch"][torch]["choices"].items()
            }
            for torch in TORCH_VERSIONS
        },
    }
