"""Rules about the kernel: which one takes the call, how much of it is padding, and what surprises there are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt

from splitheads import backends
from splitheads.backends import DEVICES, TORCH_VERSIONS, CallError, Choice, SdpaCall, UnknownPlatform, power_of_two
from splitheads.doctor.facts import Facts
from splitheads.doctor.keys import Config
from splitheads.doctor.report import Finding
from splitheads.partition import MAX_WIDTH
from splitheads.words import grouped, plural, size_text

DEFAULT_TORCH = TORCH_VERSIONS[-1]
DEFAULT_DTYPE = "bf16"
FUSED = ("FLASH", "EFFICIENT", "CUDNN")
LEAST_USEFUL = 0.7
"""Below this share of a kernel's columns, padding is a warning and no note."""

FA2_BUCKETS = (32, 64, 96, 128, 192, 256)
VLLM_WIDTHS = (32, 64, 96, 128, 160, 192, 224, 256)

_FA2 = "Dao-AILab/flash-attention @ 0251105a: flash_api.cpp, flash_attn_interface.py, static_switch.h"
_FA1 = "Dao-AILab/flash-attention issues 51, 79 and 290; README (head dimensions from version 2 on)"
_VLLM = "vllm-project/vllm @ 0084b783, vllm/v1/attention/backends/flash_attn.py: get_supported_head_sizes; @ 5704f34: supports_head_size"
_FLEX = "meta-pytorch/attention-gym#127 (torch 2.6.0); flex_attention.py in the torch 2.13.0 wheel; pytorch PR 164931"
_SDPA = "PyTorch documentation of scaled_dot_product_attention, 2.15"
_CAUSAL = (
    "pytorch/pytorch issues 103082, 108108 and 144858; PyTorch documentation of scaled_dot_product_attention, 2.15"
)
_MASK_CAUSAL = "PyTorch documentation of scaled_dot_product_attention, 2.15: attn_mask and is_causal"
_TURING = "pytorch/pytorch PR 148322; torch.cuda.is_bf16_supported(including_emulation=False)"
_METAL = "pytorch/pytorch aten/src/ATen/native/mps/operations/Attention.mm @ 00a5f92f"
_TABLE = "PyTorch's own selector, wheels 2.8.0 to 2.15.0 (chapter The fast path)"
_FLEX_KERNEL = (
    "torch/_inductor/kernel/flex/flex_attention.py and torch/nn/attention/flex_attention.py in the torch 2.13.0 wheel; "
    "pytorch PR 147765"
)
_FLEX_CALL = "flex_attention in torch/nn/attention/flex_attention.py, torch 2.13.0; transformers 5.24.0, integrations/flex_attention.py"
_OLD_FLEX = "meta-pytorch/torchtune#2253; PyTorch 2.5 release notes"
_OLD_SDPA = "PyTorch documentation of scaled_dot_product_attention, 2.0"
_OLD_GQA = "pytorch/pytorch PR 132689; QwenLM/Qwen-Image#65 (TypeError in torch 2.4.1)"
_FLASH_1 = (
    "pytorch/pytorch sdp_utils.cpp of 2.0: check_head_dim_size, check_requires_grad_and_head_dim_gt64_and_sm_ge86_lt90; "
    "PyTorch 2.2 release notes (FlashAttention-2)"
)
_MPS_FP64 = "pytorch/pytorch aten/src/ATen/native/mps/OperationUtils.mm: no float64 in the MPS framework"

_NAMES = {
    "sdpa": "SDPA",
    "flash_attention_2": "FlashAttention-2",
    "flex_attention": "FlexAttention",
    "eager": "The plain matrix product",
}
"""The ways to attend, for people."""


@dataclass(frozen=True)
class Kernel:
    """What attends, as far as that is known.

    way: "sdpa", "flash_attention_2", "flex_attention", "eager", or "" where no question about a kernel was asked.
    backend: FLASH, EFFICIENT, CUDNN, MATH, FLEX, or None. width is what the heads have when they reach the call, d_kernel
    what the kernel is given, bucket what it is compiled for, useful d_head / bucket.
    """

    way: str = ""
    call: SdpaCall | None = None
    choice: Choice | None = None
    backend: str | None = None
    width: int | None = None
    d_kernel: int | None = None
    bucket: int | None = None
    useful: float | None = None
    error: str = ""
    device: str | None = None


def dtype_of(c: Config) -> str:
    """The type that the call is asked about: as given, else bf16, and fp16 on Turing, which has no bf16."""
    if c.dtype is not None:
        return c.dtype
    return "fp16" if c.device == "sm75" else DEFAULT_DTYPE


def computing_dtype(c: Config) -> str:
    """The type that the kernel computes in: the one of the call, or where that is for a cache only, a half one."""
    if dtype_of(c) in backends.DTYPES:
        return dtype_of(c)
    return "fp16" if c.device == "sm75" else DEFAULT_DTYPE


def version_of(c: Config) -> tuple | None:
    """Numbers of the torch version that is given, (2, 13, 0); None where none is."""
    return None if c.torch is None else backends.release(c.torch)


def older(c: Config, version: tuple) -> bool:
    """Whether a torch is given that is older than this version."""
    return c.torch is not None and backends.release(c.torch) < version


def _padded(c: Config, f: Facts) -> bool:
    return c.pad_d_head_to is not None and c.pad_d_head_to > f.d_head


def _value_width(c: Config, f: Facts, width: int) -> int:
    """Columns of v at the call: its own, or those of q and k."""
    return f.d_head_v if f.d_head_v != f.d_head else width


def kernel_of(c: Config, f: Facts) -> Kernel:
    """The kernel that takes this configuration's attention call."""
    way = c.attn_implementation or ("sdpa" if c.device is not None else "")
    if not way or not f.d_head:
        return Kernel()
    width = c.pad_d_head_to if _padded(c, f) else f.d_head
    if _cannot_be(c, f, way):
        return Kernel(way, width=width, device=c.device)
    if way == "flash_attention_2":
        return _library(c, f, width)
    if way == "flex_attention":
        if any(severity == "error" for severity, _, _ in _flex_refuses(c, f, width)):
            return Kernel(way, width=width, device=c.device)
        if c.device in ("cpu", "mps"):
            return Kernel(way, backend="FLEX", width=width, d_kernel=width, device=c.device)
        rounded = power_of_two(width)
        useful = f.d_head / rounded
        return Kernel(way, backend="FLEX", width=width, d_kernel=width, bucket=rounded, useful=useful, device=c.device)
    if way == "eager":
        return Kernel(way, backend="MATH", width=width, d_kernel=width, device=c.device)
    return _sdpa(c, f, width) if c.device is not None else Kernel(way)


def _library(c: Config, f: Facts, width: int) -> Kernel:
    """The FlashAttention-2 package: its Python side pads to a multiple of 8."""
    bucket = next((bucket for bucket in FA2_BUCKETS if bucket >= width), None)
    if bucket is None or _library_refuses(c, f, width):
        return Kernel("flash_attention_2", width=width, device=c.device)
    padded = -(-width // 8) * 8
    return Kernel(
        "flash_attention_2",
        backend="FLASH",
        width=width,
        d_kernel=padded,
        bucket=bucket,
        useful=f.d_head / bucket,
        device=c.device,
    )


def _sdpa(c: Config, f: Facts, width: int) -> Kernel:
    try:
        call = _call(c, f, width)
        choice = backends.choose(call, nearest=True)
    except (CallError, UnknownPlatform) as error:
        return Kernel("sdpa", width=width, error=f"{error}", device=c.device)
    bucket = choice.bucket
    if choice.backend == "FLASH" and call.device.startswith("sm"):
        if _flash_1_refuses(call):
            return Kernel("sdpa", call, width=width, device=c.device)
        if older(c, (2, 2, 0)):
            bucket = None  # the kernels of FlashAttention 1 are others
        elif bucket and older(c, (2, 8, 0)):
            bucket = backends.flash_bucket(choice.d_kernel, c.torch)
    useful = f.d_head / bucket if bucket else None
    return Kernel("sdpa", call, choice, choice.backend, width, choice.d_kernel, bucket, useful, "", c.device)


def _flash_1_refuses(call: SdpaCall) -> bool:
    """Whether FLASH in torch 2.0 and 2.1, FlashAttention 1, turns down a call that FlashAttention-2 takes."""
    if backends.release(call.torch) >= (2, 2, 0):
        return False
    return call.d_head > 128 or (call.training and call.d_head > 64 and call.device in ("sm86", "sm89"))


def _call(c: Config, f: Facts, width: int) -> SdpaCall:
    """The call that is asked about. What nobody has said is as in the table: 2 sequences, 256 queries and keys."""
    heads = min(f.heads or 4, MAX_WIDTH)
    kv_heads = f.kv_heads if f.heads and f.kv_heads and f.heads % f.kv_heads == 0 else heads
    if (c.enable_gqa is False and kv_heads != 1) or (c.enable_gqa is None and older(c, (2, 5, 0))):
        kv_heads = heads  # `rule_gqa_flag` says that they must be repeated
    grouped_query = kv_heads != heads and c.enable_gqa is not False
    seq_q, seq_k, batch = _lengths(f, c)
    queries, keys = min(seq_q, MAX_WIDTH), min(seq_k, MAX_WIDTH)
    if seq_k != seq_q and keys == queries:
        keys = keys - 1  # lengths that differ must stay so, for the gates; `_told` prints the real ones
    values = _value_width(c, f, width)
    return SdpaCall(
        width,
        torch=c.torch or DEFAULT_TORCH,
        device=c.device,
        dtype=computing_dtype(c),
        d_head_v=None if values == width else values,
        mask=c.mask,
        is_causal=bool(c.is_causal),
        dropout=c.dropout or 0.0,
        training=bool(c.training),
        n_heads=heads,
        n_kv_heads=None if kv_heads == heads else kv_heads,
        enable_gqa=c.enable_gqa is True or grouped_query,
        seq_q=queries,
        seq_k=None if keys == queries else keys,
        batch=min(batch, MAX_WIDTH),
        batched=not c.unbatched,
    )


def _lengths(f: Facts, c: Config) -> tuple[int, int, int]:
    """Queries, keys and sequences of the call, as given or as in the table."""
    seq_q = f.length_q or 256
    return seq_q, f.length_k or seq_q, 2 if c.batch is None else c.batch


def _told(text: str, c: Config, f: Facts, call: SdpaCall) -> str:
    """The text of a gate with the real lengths, where the call holds the most that it can."""
    seq_q, seq_k, batch = _lengths(f, c)
    text = text.replace(f"{call.seq_q} queries", f"{seq_q} queries").replace(f"{call.key_length} keys", f"{seq_k} keys")
    return text.replace(f"batch = {call.batch},", f"batch = {batch},")


def _answered(torch: str) -> str:
    """The version of the table that stands for this one."""
    if torch in TORCH_VERSIONS:
        return torch
    try:
        backends.by_rules(SdpaCall(64, torch=torch))
    except UnknownPlatform as error:
        return error.nearest or DEFAULT_TORCH
    return torch


# Calls that cannot be made at all.


def _cannot_be(c: Config, f: Facts, way: str) -> list[tuple[str, tuple, str]]:
    """Why the call raises whatever the kernel: what is so, the ways out, the source."""
    found = []
    if c.device == "mps" and c.dtype == "fp64":
        text = "dtype = fp64 on an Apple GPU (mps): it has no 64-bit floats, and torch makes no such tensor there."
        found.append((text, ("dtype = fp32, or half precision.", "device = cpu."), _MPS_FP64))
    if way == "sdpa" and older(c, (2, 0, 0)):
        text = f"torch {c.torch} has no scaled_dot_product_attention: it arrived in 2.0, and the call raises an AttributeError before."
        found.append((text, (_newer("2.0"), "attn_implementation = eager."), _OLD_SDPA))
    elif way == "sdpa" and c.scale is not None and older(c, (2, 1, 0)):
        text = f"scale = {c.scale:.3g} in torch {c.torch}: SDPA has no such keyword in 2.0, and raises a TypeError."
        ways = (_newer("2.1"), "Multiply q by scale × √d_head before the call.")
        found.append((text, ways, _OLD_SDPA))
    if way == "sdpa" and c.enable_gqa and older(c, (2, 5, 0)) and not older(c, (2, 0, 0)):
        text = f"enable_gqa = True in torch {c.torch}: the keyword arrived in 2.5, and raises a TypeError before."
        repeat = "."
        if f.heads and f.kv_heads and f.kv_heads < f.heads and f.heads % f.kv_heads == 0:
            repeat = f", with k and v repeated {f.heads // f.kv_heads} times (repeat_interleave)."
        found.append((text, (_newer("2.5"), f"enable_gqa = False{repeat}"), _OLD_GQA))
    if way == "flex_attention" and older(c, (2, 5, 0)):
        text = f"torch {c.torch} has no FlexAttention: torch.nn.attention.flex_attention arrived in 2.5, and the import fails before."
        instead = "eager" if older(c, (2, 0, 0)) else "sdpa"
        found.append((text, (_newer("2.5"), f"attn_implementation = {instead}."), _OLD_FLEX))
    return found


def _with_sdpa(c: Config) -> str:
    """The way out by SDPA, which does not take a mask and is_causal together."""
    both = c.mask is not None and c.is_causal
    return f"attn_implementation = sdpa{', with the triangle in the mask and is_causal = False' if both else ''}."


def _newer(version: str) -> str:
    return f"torch = {DEFAULT_TORCH}, or any from {version} on."


# What SDPA picks.


def _situation(k: Kernel) -> str:
    """torch 2.15.0, sm80, bf16, training"""
    call = k.call
    known = _answered(call.torch)
    parts = [
        f"torch {call.torch}" if known == call.torch else f"torch {call.torch}, as {known}",
        call.device,
        call.dtype,
    ]
    if call.training:
        parts.append("training")
    return ", ".join(parts)


def _assumed(c: Config, k: Kernel) -> str:
    """What was taken for granted of the key/value heads."""
    if c.enable_gqa is not None or not k.call.enable_gqa:
        return ""
    return f" enable_gqa = True is assumed for {k.call.n_heads} query and {k.call.kv_heads} key/value heads."


def _pick(call: SdpaCall) -> str:
    """The backend for a call, or "raises". The device is known: reading it has made sure."""
    try:
        backend = backends.by_rules(replace(call, torch=_answered(call.torch)))[0]
    except CallError:
        return "raises"
    except UnknownPlatform:
        return "unknown"
    if backend == "FLASH" and call.device.startswith("sm") and _flash_1_refuses(call):
        return "unknown"
    return backend


def _asked(k: Kernel) -> tuple:
    """The backends that stand before MATH, in the order of the reasons: on most cards cuDNN is out of reach."""
    if k.call.device == "cpu":
        return ("FLASH",)
    return ("FLASH", "EFFICIENT", "CUDNN") if k.call.device in ("sm90", "sm100") else ("FLASH", "EFFICIENT")


def _reasons(c: Config, f: Facts, k: Kernel, only: tuple) -> str:
    """Why each backend of `only` does not run the call: its first reason, with a space before it."""
    told, texts = [], ""
    for refusal in k.choice.refusals:
        if refusal.backend in only and refusal.backend not in told and refusal.rule != "ranked":
            told.append(refusal.backend)
            texts += f" {refusal.backend}: {_told(refusal.reason, c, f, k.call)}"
    return texts


def _refusal_source(k: Kernel, only: tuple) -> str:
    return next((refusal.source for refusal in k.choice.refusals if refusal.backend in only), _TABLE)


def rule_math(c: Config, f: Facts, k: Kernel) -> list[Finding]:
    """No fused kernel takes the call: the scores are stored, every one of them."""
    if k.choice is None or k.backend != "MATH" or k.call.device == "mps":
        return []
    call, only = k.call, _asked(k)
    seq_q, seq_k, batch = _lengths(f, c)
    if not call.batched:
        batch = 1
    stored = size_text(call.n_heads * seq_q * seq_k * batch * 4)
    message = (
        f"SDPA falls back to MATH ({_situation(k)}), without a warning of its own.{_reasons(c, f, k, only)} The "
        f"{grouped(seq_q)} × {grouped(seq_k)} scores are stored for {plural(call.n_heads, 'head')} and "
        f"{plural(batch, 'sequence')}: {stored} in fp32.{_assumed(c, k)}"
    )
    ways = _ways_out(call, c, f, True)
    return [Finding("math-fallback", "warning", message, ways, _refusal_source(k, only), "fast-path")]


def _widths(c: Config, f: Facts, now: int, width: int, value: int) -> str:
    """These widths of q and k (`now` wide at the call), and of v, in the keys that the configuration has; "" where it cannot."""
    padded, said = _padded(c, f), []
    if width != now:
        if padded and width <= f.d_head:
            return ""
        said.append(f"pad_d_head_to = {width}" if padded else f"d_head = {width}")
    if c.d_head_v is not None and not (padded and f.d_head_v == f.d_head) and value != c.d_head_v:
        said.append(f"d_head_v = {value}")
    return " and ".join(said)


def _aligned(c: Config, f: Facts, call: SdpaCall) -> list[tuple[int, str, SdpaCall]]:
    """The next widths that a 16-byte load takes: multiples of 8 in half precision, of 4 in fp32."""
    step = 4 if call.dtype == "fp32" else 8
    width, value = -(-call.d_head // step) * step, -(-call.value_width // step) * step
    text = _widths(c, f, call.d_head, width, value)
    if (width, value) == (call.d_head, call.value_width) or not text:
        return []
    if width != call.d_head and not _padded(c, f) and (value == call.value_width or call.d_head_v is None):
        text += f" (or pad to it with scale = 1/√{f.d_head})"
    return [(1, text, replace(call, d_head=width, d_head_v=None if value == width else value))]


def _changes(call: SdpaCall, c: Config, f: Facts, other_torch: bool) -> list[tuple[int, str, SdpaCall]]:
    """Single changes that may bring a fused kernel back: the rank of their kind, what to do, and the call that results."""
    found = []
    if call.dtype != "fp16" and call.device != "cpu":
        found.append((0, "dtype = fp16", replace(call, dtype="fp16")))
    if call.dtype not in ("bf16", "fp16") and call.device not in ("sm75", "cpu"):
        found.append((0, "dtype = bf16", replace(call, dtype="bf16")))
    if call.device != "cpu":
        found += _aligned(c, f, call)
    if call.d_head > 256:
        value = 256 if call.d_head_v is None else call.d_head_v
        if text := _widths(c, f, call.d_head, 256, value):
            found.append((1, text, replace(call, d_head=256, d_head_v=None if value == 256 else value)))
    if call.mask is not None:
        found.append((2, "mask = none (is_causal where it is causal)", replace(call, mask=None)))
    if not call.batched:
        found.append((3, "unbatched = False, by unsqueeze(0)", replace(call, batched=True)))
    if call.kv_heads != call.n_heads:
        text = f"k and v repeated {call.n_heads // call.kv_heads} times (repeat_interleave) in place of enable_gqa"
        found.append((4, text, replace(call, n_kv_heads=None, enable_gqa=False)))
    if call.dropout > 0:
        found.append((5, "dropout = 0", replace(call, dropout=0.0)))
    if call.value_width < call.d_head:
        text = f"d_head_v = {call.d_head} (v padded with zeros, the output cut back to {f.d_head_v})"
        found.append((6, text, replace(call, d_head_v=None)))
    if call.value_width > call.d_head:
        text = f"pad_d_head_to = {call.value_width} (q and k padded with zeros), with scale = 1/√{f.d_head}"
        found.append((6, text, replace(call, d_head=call.value_width, d_head_v=None)))
    if other_torch and call.device.startswith("sm") and call.torch != DEFAULT_TORCH:
        found.append((7, f"torch = {DEFAULT_TORCH}", replace(call, torch=DEFAULT_TORCH)))
    return found


def _ways_out(call: SdpaCall, c: Config, f: Facts, other_torch: bool) -> tuple[str, ...]:
    """Changes after which a fused kernel takes the call: single ones if there are any, else pairs, else all that it takes."""
    ways, changes = [], _changes(call, c, f, other_torch)
    for _, text, changed in changes:
        pick = _pick(changed)
        if pick in FUSED:
            ways.append(f"{text}: {pick}.")
    if not ways:
        for rank, text, changed in changes:
            for other, second, both in _changes(changed, c, f, other_torch):
                pick = _pick(both) if other > rank else ""
                if pick in FUSED and len(ways) < 3:
                    ways.append(f"{text}, and {second}: {pick}.")
    if not ways:
        ways += _all_needed(call, c, f)
    return tuple(ways[:4])


def _all_needed(call: SdpaCall, c: Config, f: Facts) -> list[str]:
    """The changes that bring a fused kernel back together, without those that it does not take; none if all do not."""
    kept = [0, 1, 2, 3, 4, 5, 6]
    if _pick(_changed(call, c, f, kept)[1]) not in FUSED:
        return []
    for rank in range(7):
        rest = [other for other in kept if other != rank]
        if _pick(_changed(call, c, f, rest)[1]) in FUSED:
            kept = rest
    texts, changed = _changed(call, c, f, kept)
    return [f"{', and '.join(texts)}: {_pick(changed)}."]


def _changed(call: SdpaCall, c: Config, f: Facts, ranks: list) -> tuple[list, SdpaCall]:
    """The call with the first change of each of these kinds, and what they are."""
    texts = []
    for rank in ranks:
        for other, text, changed in _changes(call, c, f, False):
            if other == rank:
                texts.append(text)
                call = changed
                break
    return texts, call


def rule_not_flash(c: Config, f: Facts, k: Kernel) -> list[Finding]:
    """A fused kernel runs, but not FlashAttention: which, and why."""
    if k.choice is None or k.backend not in ("EFFICIENT", "CUDNN"):
        return []
    reasons = _reasons(c, f, k, ("FLASH",))
    if k.backend == "CUDNN":
        message = f"SDPA asks CUDNN first here ({_situation(k)}): NVIDIA's fused attention, no T × T matrix.{reasons}"
    else:
        message = f"SDPA picks EFFICIENT ({_situation(k)}), the CUTLASS kernel: fused, no T × T matrix.{reasons}"
    if c.mask is not None:
        message += f" A mask keeps FLASH out, and is no reason for MATH: {k.backend} takes it."
    return [Finding("not-flash", "note", message, (), _refusal_source(k, ("FLASH",)), "fast-path")]


def rule_metal(c: Config, f: Facts, k: Kernel) -> list[Finding]:
    """On an Apple GPU there is one operator, which picks inside."""
    if k.choice is None or k.call.device != "mps":
        return []
    return [Finding("metal", "note", " ".join(k.choice.notes), (), _METAL, "fast-path")]


def rule_nearest(c: Config, f: Facts, k: Kernel) -> list[Finding]:
    """A torch version that is not in the table is answered for its neighbour. Outside the table that may well be wrong."""
    if k.choice is None:
        return []
    first, last, version = TORCH_VERSIONS[0], TORCH_VERSIONS[-1], version_of(c)
    if version is not None and (version < backends.release(first) or version[:2] > backends.release(last)[:2]):
        where = (
            f"older than {first}, the oldest" if version < backends.release(first) else f"newer than {last}, the newest"
        )
        message = (
            f"torch {c.torch} is {where} version in the table. What is said of the kernel holds for {_answered(c.torch)}, "
            "and may not hold for yours."
        )
        ways = (f"torch = {_answered(c.torch)} is answered for certain.",)
        return [Finding("nearest-platform", "warning", message, ways, _TABLE, "fast-path")]
    starts = ("Answered for", "For this call", "Table and rules")
    told = [note for note in k.choice.notes if any(note.startswith(start) for start in starts)]
    if not told:
        return []
    return [Finding("nearest-platform", "note", " ".join(told), (), _TABLE, "fast-path")]


def rule_flash_1(c: Config, f: Facts, k: Kernel) -> list[Finding]:
    """torch 2.0 and 2.1 have FlashAttention 1 in SDPA, which takes less."""
    if k.call is None or k.choice is not None or k.way != "sdpa":
        return []
    most = 128 if k.width > 128 else 64
    limit = (
        "takes d_head up to 128"
        if most == 128
        else f"has no backward pass for d_head above 64 on {k.device} ({DEVICES[k.device]})"
    )
    message = (
        f"FLASH in torch {c.torch} is FlashAttention 1 (2 came with torch 2.2), which {limit}: d_head = {k.width} does not get it. "
        "Which kernel it gets there is not known here."
    )
    ways = [_newer("2.2")]
    if text := _widths(c, f, k.width, most, most):
        ways.append(f"{text} at most.")
    return [Finding("flash-attention-1", "warning", message, tuple(ways), _FLASH_1, "fast-path")]


def rule_cannot_call(c: Config, f: Facts, k: Kernel) -> list[Finding]:
    """The call raises, whatever the kernel."""
    found = [
        Finding("call-raises", "error", text, ways, source, "fast-path")
        for text, ways, source in (_cannot_be(c, f, k.way) if k.way else [])
    ]
    if not k.error or (c.mask is not None and c.is_causal):
        return found
    return [*found, Finding("call-raises", "error", k.error, ("attn_implementation = eager.",), _SDPA, "fast-path")]


def rule_mask_and_causal(c: Config, f: Facts, k: Kernel) -> list[Finding]:
    """SDPA takes a mask or is_causal, not both."""
    if c.mask is None or not c.is_causal or c.attn_implementation not in (None, "sdpa"):
        return []
    if c.device == "mps" or older(c, (2, 0, 0)):
        return []
    ways = (
        "Put the causal triangle into the mask and leave is_causal = False.",
        "Or drop the mask, where it says no more than the triangle.",
    )
    if k.choice is not None:
        message = (
            f"mask = {c.mask} and is_causal = True together: torch {k.call.torch} runs that in {k.backend}, but raises where it "
            "falls back to MATH, and from torch 2.14 on always."
        )
        return [Finding("mask-and-causal", "warning", message, ways, _MASK_CAUSAL, "fast-path")]
    before = not k.error and older(c, (2, 14, 0))
    message = (
        f"mask = {c.mask} and is_causal = True together: SDPA raises for that, from torch 2.14 on always, before that where it "
        "falls back to MATH."
    )
    return [Finding("mask-and-causal", "warning" if before else "error", message, ways, _MASK_CAUSAL, "fast-path")]


def rule_versions(c: Config, f: Facts, k: Kernel) -> list[Finding]:
    """Other torch versions that pick something else for this call."""
    if k.choice is None or not k.call.device.startswith("sm"):
        return []
    picks = []
    for torch in TORCH_VERSIONS:
        pick = _pick(replace(k.call, torch=torch))
        if pick == "FLASH":
            pick = f"FLASH (kernel {backends.flash_bucket(k.width, torch)} wide)"
        picks.append(pick)
    if all(pick == picks[0] for pick in picks):
        return []
    groups = []
    for torch, pick in zip(TORCH_VERSIONS, picks, strict=True):
        if groups and groups[-1][1] == pick:
            groups[-1] = (groups[-1][0], pick, torch)
        else:
            groups.append((torch, pick, torch))
    texts = [f"{first} to {last}: {pick}" if first != last else f"{first}: {pick}" for first, pick, last in groups]
    risk = c.torch is None and k.backend != "MATH" and any(pick in ("MATH", "raises") for pick in picks)
    ways = (f"Give torch, to be answered for your version; here it is {k.call.torch}.",) if c.torch is None else ()
    if risk:
        worst = next(torch for torch, pick in zip(TORCH_VERSIONS, picks, strict=True) if pick in ("MATH", "raises"))
        if _pick(replace(k.call, torch=worst)) == "MATH":
            found = _ways_out(replace(k.call, torch=worst), c, f, False)
            ways = (*ways, *[f"In torch {worst}: {way}" for way in found[:2]])
    return [
        Finding(
            "version-dependent",
            "warning" if risk else "note",
            f"What SDPA picks for this call on {k.call.device} depends on torch. {'; '.join(texts)}.{_assumed(c, k)}",
            ways,
            _TABLE,
            "fast-path",
        )
    ]


# Padding and buckets.


def rule_bucket(c: Config, f: Facts, k: Kernel) -> list[Finding]:
    """The compiled width above d_head: zeros that are multiplied, too."""
    if k.bucket is None or k.useful is None or k.useful == 1 or k.way == "flex_attention":
        return []
    padded = f"is padded to {k.d_kernel} and " if k.d_kernel != k.width else ""
    what = "FlashAttention-2" if k.way == "flash_attention_2" else f"FLASH (torch {k.call.torch})"
    message = (
        f"d_head = {f.d_head} {padded}runs in the kernel for {k.bucket} columns ({what}): "
        f"{k.useful * 100:.3g} % of its tensor-core work is useful."
    )
    buckets = FA2_BUCKETS if k.way == "flash_attention_2" else backends.flash_buckets(_covered(k.call.torch))
    ways = [_filling(c, f, k, buckets)]
    severity = "warning" if k.useful < LEAST_USEFUL else "note"
    return [Finding("bucket-waste", severity, message, tuple(ways), _FA2, "fast-path")]


def _filling(c: Config, f: Facts, k: Kernel, buckets: tuple) -> str:
    """The widths next to this one that fill their kernel, in the keys that are given."""
    if _padded(c, f):
        least = next(bucket for bucket in buckets if bucket >= f.d_head)
        if least < k.bucket:
            return f"pad_d_head_to = {least} has the same columns in a narrower kernel."
        return f"d_head = {k.bucket} and pad_d_head_to = {k.bucket} fill the kernel."
    below = max((bucket for bucket in buckets if bucket < f.d_head), default=None)
    if c.d_head_v is not None:
        fits = " or ".join([f"d_head = {width} and d_head_v = {width}" for width in (below, k.bucket) if width])
        return f"{fits} fill their kernel."
    return f"d_head = {below} or {k.bucket} fills its kernel." if below else f"d_head = {k.bucket} fills its kernel."


def rule_same_bucket(c: Config, f: Facts, k: Kernel) -> list[Finding]:
    """Heads padded to a width that the same compiled kernel serves: more memory, and nothing for it."""
    if c.pad_d_head_to is None or not f.d_head or c.pad_d_head_to <= f.d_head or f.d_head % 8 or c.pad_d_head_to % 8:
        return []
    if k.way:
        without = kernel_of(replace(c, pad_d_head_to=None), f)
        bucket, same = k.bucket, without.bucket == k.bucket and without.backend == k.backend
        where = f"{k.backend} runs"
    else:
        bucket = next((bucket for bucket in FA2_BUCKETS if bucket >= c.pad_d_head_to), None)
        same = bucket == next((bucket for bucket in FA2_BUCKETS if bucket >= f.d_head), None)
        where = "FlashAttention-2 runs"
    if bucket is None or not same:
        return []
    message = (
        f"{where} {f.d_head} and {c.pad_d_head_to} columns in the same kernel, for {bucket}: padding in memory buys nothing there, and "
        f"costs {(c.pad_d_head_to / f.d_head - 1) * 100:.3g} % more bytes of q, k and v."
    )
    ways = (f"Leave d_head = {f.d_head} unpadded.",)
    return [Finding("padding-buys-nothing", "note", message, ways, _FA2, "fast-path")]


def _covered(torch: str) -> str:
    """A torch version whose kernel widths are known: this one, or the newest."""
    try:
        backends.flash_buckets(torch)
    except UnknownPlatform:
        return DEFAULT_TORCH
    return torch


def rule_width_not_8(c: Config, f: Facts, k: Kernel) -> list[Finding]:
    """A width that is no multiple of 8, where no device says what becomes of it."""
    if k.way or not f.d_head or f.d_head % 8 == 0 or f.d_head > 256:
        return []
    padded = -(-f.d_head // 8) * 8
    bucket = next(bucket for bucket in FA2_BUCKETS if bucket >= padded)
    message = (
        f"d_head = {f.d_head} is not a multiple of 8: in fp16 and bf16 FlashAttention pads it to {padded} and runs its kernel for "
        f"{bucket} ({f.d_head / bucket * 100:.3g} % useful); the memory-efficient and cuDNN kernels refuse it."
    )
    return [
        Finding("width-not-8", "note", message, (f"d_head = {padded} is taken by all of them.",), _FA2, "fast-path")
    ]


# FlashAttention-2 as a package, FlexAttention, vLLM.


def rule_library(c: Config, f: Facts, k: Kernel) -> list[Finding]:
    """The FlashAttention-2 package: half precision, Ampere or newer, at most 256 columns, one width."""
    if k.way != "flash_attention_2":
        return []
    findings = [
        Finding("fa2-refuses", "error", text, ways, _FA2, "fast-path") for text, ways in _library_refuses(c, f, k.width)
    ]
    value = _value_width(c, f, k.width)
    if value != k.width:
        text = f"v is {value} wide, q and k {k.width}: FlashAttention-2 wants one width; transformers pads v for MLA models."
        ways = (
            f"d_head_v = {k.width} (v padded with zeros, the output cut back to {value})."
            if value < k.width
            else f"pad_d_head_to = {value} (q and k padded with zeros), with scale = 1/√{f.d_head}.",
            _with_sdpa(c),
        )
        findings.append(Finding("fa2-value-width", "warning", text, ways, _FA2, "fast-path"))
    if c.mask is not None:
        text = f"mask = {c.mask}: FlashAttention-2 takes no mask. Padded tokens are taken out of the batch before the call instead."
        ways = ("Use causal, window_size or alibi_slopes where they say the same.", "Use sdpa or flex_attention.")
        findings.append(Finding("fa2-mask", "warning", text, ways, _FA2, "fast-path"))
    return findings


def _library_refuses(c: Config, f: Facts, width: int) -> list[tuple[str, tuple]]:
    """Why the package raises, and what to do instead."""
    found = []
    if width > 256:
        ways = ["attn_implementation = sdpa: its memory-efficient kernel takes wider heads that are multiples of 8."]
        if text := _widths(c, f, width, 256, 256):
            ways.append(f"{text} at most.")
        found.append((f"d_head = {width} is above 256, the widest kernel of FlashAttention-2.", tuple(ways)))
    if c.dtype in ("fp32", "fp64"):
        found.append(
            (
                f"dtype = {c.dtype}: FlashAttention-2 takes fp16 and bf16 only.",
                ("dtype = bf16 or fp16.", _with_sdpa(c)),
            )
        )
    if c.device in ("cpu", "mps", "sm75"):
        text = f"{c.device} ({DEVICES[c.device]}): FlashAttention-2 needs compute capability 8.0 (Ampere) or newer."
        ways = (
            ("attn_implementation = sdpa with dtype = fp16: its memory-efficient kernel runs on Turing.",)
            if c.device == "sm75"
            else (_with_sdpa(c),)
        )
        found.append((text, ways))
    if c.training and c.device in ("sm86", "sm89", "sm120") and 192 < width <= 256 and c.dropout:
        text = (
            f"Training with d_head = {width} and dropout {c.dropout:g} on {c.device}: above 192 columns the backward kernel "
            "fits there without dropout only (flash-attn 2.5.5 and later)."
        )
        narrower = _widths(c, f, width, 192, 192)
        found.append((text, ("dropout = 0.", f"{narrower} at most.") if narrower else ("dropout = 0.",)))
    return found


def rule_fa1(c: Config, f: Facts, k: Kernel) -> list[Finding]:
    """An old limit that is still repeated for these cards."""
    if k.backend != "FLASH" or k.device not in ("sm86", "sm89") or not c.training or not 64 < f.d_head <= 128:
        return []
    message = (
        f"Training with d_head = {f.d_head} on {k.device} ({DEVICES[k.device]}) runs in FlashAttention-2. FlashAttention 1 "
        "refused d_head above 64 in the backward pass there, and many pages still say so."
    )
    return [Finding("fa1-history", "note", message, (), _FA1, "fast-path")]


def rule_flex(c: Config, f: Facts, k: Kernel) -> list[Finding]:
    """FlexAttention: what it refuses, what it has no argument for, and widths that are no power of two."""
    if k.way != "flex_attention" or older(c, (2, 5, 0)):
        return []
    refused = _flex_refuses(c, f, k.width)
    found = [Finding("flex-refuses", how, text, ways, _FLEX_KERNEL, "fast-path") for how, text, ways in refused]
    return [*found, *_flex_arguments(c), *_flex_power_of_two(c, f, k)]


def _flex_refuses(c: Config, f: Facts, width: int) -> list[tuple[str, str, tuple]]:
    """Why FlexAttention raises, as read in torch 2.13.0: how sure, what, and what to do instead."""
    found = []
    value = _value_width(c, f, width)
    if min(width, value) < 16 and c.device not in ("cpu", "mps"):
        where = "on a GPU" if c.device is None else f"on {c.device}"
        wide = _widths(c, f, width, max(width, 16), max(value, 16))
        ways = [f"{wide}."] if wide else []
        if not _padded(c, f) and f.d_head_v == f.d_head:
            ways.append(f"pad_d_head_to = 16, with scale = 1/√{f.d_head} = {1 / sqrt(f.d_head):.3g}.")
        text = (
            f"d_head = {width} with v {value} wide: FlexAttention's compiled kernel raises below 16 columns {where}, the least that "
            "Triton's products take (torch 2.13.0)."
        )
        found.append(("warning" if c.device is None else "error", text, (*ways, _with_sdpa(c))))
    if c.unbatched:
        text = "3-D input (unbatched): FlexAttention takes 4-D q, k and v only (torch 2.13.0)."
        found.append(("error", text, ("unbatched = False, by unsqueeze(0).", _with_sdpa(c))))
    if c.training and c.device in ("cpu", "mps"):
        text = f"Training on {c.device}: FlexAttention has no backward pass there (torch 2.13.0)."
        found.append(("error", text, (_with_sdpa(c),)))
    return found


def _flex_arguments(c: Config) -> list[Finding]:
    """Arguments of SDPA that FlexAttention does not have."""
    missing, ways = [], []
    if c.mask is not None:
        missing.append(f"no attn_mask (mask = {c.mask})")
        ways.append(
            "A boolean mask as a mask_mod, given as block_mask by create_block_mask; a float one as a score_mod."
        )
    if c.dropout:
        missing.append(f"no dropout_p (dropout = {c.dropout:g}; transformers 5.24.0 raises a ValueError for it)")
        ways.append("dropout = 0.")
    if not missing:
        return []
    message = f"flex_attention (torch 2.13.0) has {' and '.join(missing)}."
    ways.append(_with_sdpa(c))
    return [Finding("flex-arguments", "warning", message, tuple(ways), _FLEX_CALL, "fast-path")]


def _flex_power_of_two(c: Config, f: Facts, k: Kernel) -> list[Finding]:
    """Powers of two by force up to torch 2.6, by padding since; the check was for v, too."""
    value = _value_width(c, f, k.width)
    wide, wide_value = power_of_two(k.width), power_of_two(value)
    if wide == k.width and wide_value == value:
        return []
    on_gpu = c.device not in ("cpu", "mps")
    least = 16 if on_gpu else 1
    odd = f"d_head = {k.width}" if wide != k.width else f"d_head_v = {value}"
    ways = []
    if f.d_head_v == f.d_head and c.d_head_v is None and not _padded(c, f):
        both = [f"{width}" for width in (wide // 2, wide) if width >= least]
        ways.append(f"d_head = {' or '.join(both)}." if both else f"d_head = {least}.")
    elif text := _widths(c, f, k.width, max(wide, least), max(wide_value, least)):
        ways.append(f"{text}.")
    if f.d_head_v == f.d_head and not _padded(c, f):
        ways.append(f"pad_d_head_to = {max(wide, least)}, with scale = 1/√{f.d_head} = {1 / sqrt(f.d_head):.3g}.")
    version = version_of(c)
    if version is not None and version[:2] < (2, 9):
        ways.append("A torch from 2.9.1 on.")
        old = version[:2] <= (2, 6)
        message = (
            f"{odd} is not a power of two: FlexAttention raises a ValueError for it in torch {c.torch}. A limit of "
            "the tool, not of the mathematics; the check is gone in 2.9.1, and few queries were repaired later."
            if old
            else f"{odd} is not a power of two: FlexAttention raises for it up to torch 2.6, and the check is gone in 2.9.1; "
            f"torch {c.torch} was not looked at."
        )
        return [Finding("flex-power-of-two", "error" if old else "warning", message, tuple(ways), _FLEX, "fast-path")]
    if not on_gpu or wide == k.width or k.bucket is None:
        return []
    message = (
        f"d_head = {k.width} is not a power of two: FlexAttention's Triton kernel works on {k.bucket} columns, "
        f"{k.useful * 100:.3g} % of them useful. Up to torch 2.6 it raises a ValueError."
    )
    return [Finding("flex-power-of-two", "note", message, tuple(ways), _FLEX, "fast-path")]


def rule_vllm(c: Config, f: Facts, k: Kernel) -> list[Finding]:
    """The head widths that vLLM's FlashAttention backend lists."""
    if c.stack != "vllm" or not f.d_head or f.mla:
        return []
    d = k.width or f.d_head
    listed = ", ".join([f"{width}" for width in VLLM_WIDTHS])
    bucket = next((bucket for bucket in FA2_BUCKETS if bucket >= d), None)
    if d == 224 or d == 160:
        message = (
            f"d_head = {d} is in the list of vLLM's FlashAttention backend at commit 0084b783, but FlashAttention-2 has dropped its "
            f"kernel of that width ({'2.6.2' if d == 224 else '2.8.0'}): expect the one for {bucket}, {d / bucket * 100:.3g} % "
            "useful. It depends on the versions of both."
        )
        return [Finding("vllm-head-size", "note", message, (), f"{_VLLM}; {_FA2}", "fast-path")]
    if d in VLLM_WIDTHS:
        return []
    message = f"d_head = {d} is not in the list of vLLM's V1 FlashAttention backend at commit 0084b783 ({listed}): that backend refuses it. "
    if d % 8 == 0 and d <= 256:
        message += f"At 5704f34, later, it takes every multiple of 8 up to 256, as the library itself takes {d}, in its kernel for {bucket}."
        ways = ("A newer vLLM.", "FlexAttention, at that commit: VLLM_ATTENTION_BACKEND=FLEX_ATTENTION.")
        return [Finding("vllm-head-size", "note", message, ways, _VLLM, "fast-path")]
    message += "At 5704f34, later, it takes multiples of 8 up to 256, and still not this one."
    ways = (
        "FlexAttention, at that commit: VLLM_ATTENTION_BACKEND=FLEX_ATTENTION.",
        "Look up what your own version takes.",
    )
    return [Finding("vllm-head-size", "warning", message, ways, _VLLM, "fast-path")]


# Surprises of the call, whatever the kernel.


def rule_causal(c: Config, f: Facts, k: Kernel) -> list[Finding]:
    """is_causal with fewer queries than keys: SDPA's triangle starts at the top left."""
    if not c.is_causal or c.seq_q is None or c.seq_k is None or c.seq_q == c.seq_k:
        return []
    q, keys = c.seq_q, c.seq_k
    if k.way == "flash_attention_2":
        message = (
            f"is_causal with {q} queries and {keys} keys: FlashAttention-2 aligns the triangle at the bottom right (from 2.1 on), "
            f"so the last query sees all {keys} keys. SDPA aligns it at the top left."
        )
        return [Finding("causal-bottom-right", "note", message, (), _FA2, "fast-path")]
    if k.way in ("flex_attention", "eager"):
        return []
    if q == 1:
        seen = "the one query sees key 0 only"
    elif q < keys:
        seen = f"query 0 sees key 0 only and the last query keys 0 to {q - 1}; keys {q} to {keys - 1} are seen by none"
    else:
        seen = f"query 0 sees key 0 only, and the last {q - keys} queries see all {keys}"
    message = (
        f"is_causal = True with {plural(q, 'query').replace('querys', 'queries')} and {keys} keys: SDPA aligns the triangle at the "
        f"top left, so {seen}. With a cache of past keys that is wrong, and nothing raises."
    )
    ways = ["torch.nn.attention.bias.causal_lower_right(seq_q, seq_k) as the mask aligns it at the bottom right."]
    if q == 1:
        ways = ["Drop is_causal: one new query may see every cached key."]
    return [Finding("causal-top-left", "warning", message, tuple(ways), _CAUSAL, "fast-path")]


def rule_dropout(c: Config, f: Facts, k: Kernel) -> list[Finding]:
    """SDPA drops scores whether or not the model trains."""
    if not c.dropout or c.training or k.way not in ("sdpa", "flash_attention_2"):
        return []
    message = f"dropout = {c.dropout:g} outside training: {_NAMES[k.way]} applies dropout_p whenever it is given, model.eval() or not."
    ways = ("Pass dropout_p = p if self.training else 0.0.",)
    if c.training is None:
        return [Finding("dropout-always", "note", message, ways, _SDPA, "fast-path")]
    return [Finding("dropout-always", "warning", message, ways, _SDPA, "fast-path")]


def rule_dtype(c: Config, f: Facts, k: Kernel) -> list[Finding]:
    """Types of the cache that are no types for the call, and bf16 where there is none in hardware."""
    if not k.way:
        return []
    if c.dtype is not None and c.dtype not in backends.DTYPES:
        message = (
            f"dtype = {c.dtype} is a type for the KV cache: {_NAMES[k.way]} does not compute in it. The kernel is answered for "
            f"{computing_dtype(c)}, the cache counted in {c.dtype}."
        )
        return [
            Finding(
                "dtype-cache-only", "note", message, (), "splitheads.backends.DTYPES; gates check_dtypes_*", "fast-path"
            )
        ]
    if c.device == "sm75" and c.dtype in (None, "bf16"):
        message = "Turing (sm75) has no bf16 in hardware; torch.cuda.is_bf16_supported() says True there, because it counts emulation."
        if c.dtype is None:
            message += " dtype is not given, and answered for fp16."
        return [Finding("bf16-on-turing", "note", message, ("dtype = fp16.",), _TURING, "fast-path")]
    return []


def rule_gqa_flag(c: Config, f: Facts, k: Kernel) -> list[Finding]:
    """Fewer key/value heads, with enable_gqa switched off."""
    if (
        not f.heads
        or not f.kv_heads
        or f.heads % f.kv_heads
        or f.kv_heads == f.heads
        or k.way in ("flash_attention_2", "eager")
    ):
        return []
    times = f.heads // f.kv_heads
    if c.enable_gqa is None and k.way == "sdpa" and k.choice is not None and older(c, (2, 5, 0)):
        message = (
            f"{f.heads} query heads and {f.kv_heads} key/value heads: torch {c.torch} has no enable_gqa, which arrived in 2.5. The "
            f"kernel is answered for k and v repeated {times} times."
        )
        ways = (_newer("2.5"), f"repeat_interleave({times}) on the head dimension of k and v.")
        return [Finding("gqa-flag", "warning", message, ways, _OLD_GQA, "fast-path")]
    if c.enable_gqa is not False or (f.kv_heads == 1 and k.way != "flex_attention"):
        return []
    message = (
        f"enable_gqa = False with {f.heads} query heads and {f.kv_heads} key/value heads: {_NAMES[k.way or 'sdpa']} raises, unless k and v "
        f"are repeated {times} times before."
    )
    ways = (
        f"torch = {DEFAULT_TORCH}, or any from 2.5 on, with enable_gqa = True."
        if older(c, (2, 5, 0))
        else "enable_gqa = True.",
        f"repeat_interleave({times}) on the head dimension of k and v (repeat would pair the wrong heads).",
    )
    return [Finding("gqa-flag", "warning", message, ways, _SDPA, "fast-path")]


KERNEL_RULES = (
    rule_cannot_call,
    rule_mask_and_causal,
    rule_flash_1,
    rule_library,
    rule_flex,
    rule_math,
    rule_causal,
    rule_bucket,
    rule_same_bucket,
    rule_vllm,
    rule_dropout,
    rule_gqa_flag,
    rule_versions,
    rule_not_flash,
    rule_metal,
    rule_nearest,
    rule_dtype,
    rule_fa1,
    rule_width_not_8,
)
