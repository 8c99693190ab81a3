"""Which kernel ran, and how much memory it took: looked at, once per point, in an untimed call.

PyTorch does not say which backend scaled_dot_product_attention picked, and falls back to the slow one without a
warning. The profiler sees the operators that were really dispatched, and on a GPU the kernels; that is proof, where
asking the selector would be one more prediction.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile

from splitheads.timing.plan import DROPOUT, Plan, Point
from splitheads.timing.workload import Work

_OPERATORS = {
    "flash_attention": "FLASH",
    "efficient_attention": "EFFICIENT",
    "cudnn_attention": "CUDNN",
    "attention_math": "MATH",
    "fused_attention_overrideable": "OVERRIDEABLE",
}
_OPERATOR = re.compile(r"aten::_scaled_dot_product_(" + "|".join(_OPERATORS) + r")(?:_for_\w+)?$")
# The first template number is the compiled head width: as the profiler prints it, and as the linker has it.
_TRAITS = re.compile(r"Flash_(fwd|bwd)_kernel_traits(?:<\s*(?:\(int\)\s*)?|ILi)(\d+)")


class Observation(NamedTuple):
    """What one call did. None stands for what could not be seen."""

    backend: str | None
    bucket: int | None
    peak_bytes: int | None
    kernels: tuple[str, ...] = ()


def backend_of(names: Iterable[str]) -> str | None:
    """The backend that these profiler names give away; None if no attention operator is among them.

    The last one counts: a backend may be a wrapper that calls another.
    """
    found = None
    for name in names:
        match = _OPERATOR.match(name)
        if match:
            found = _OPERATORS[match[1]]
    return found


def bucket_of(names: Iterable[str]) -> int | None:
    """The head width that FlashAttention's kernel was compiled for, from kernel names; None without such a kernel.

    `flash_fwd_kernel<Flash_fwd_kernel_traits<96, 128, 64, 4, ...>>` is the kernel of width 96. The forward kernel's
    counts, where both are there.
    """
    found = {kind: int(width) for name in names for kind, width in _TRAITS.findall(name)}
    return found.get("fwd", found.get("bwd"))


def observe(work: Work, device: str) -> Observation:
    """Run `work` once under the profiler, inside its context. Exceptions of the call are not caught."""
    kind = device.partition(":")[0]
    if kind == "cuda":
        with torch.cuda.device(torch.device(device)):
            return _observe_cuda(work, torch.device(device))
    with _quiet():
        # Without Kineto: it takes a second to start, sees nothing more on a CPU, and this one costs 3 ms.
        with torch.autograd.profiler.profile(use_kineto=False, profile_memory=True) as seen:
            before = torch.mps.driver_allocated_memory() if kind == "mps" else 0
            work.call()
            if kind == "mps":
                torch.mps.synchronize()
                after = torch.mps.driver_allocated_memory()
        events = sorted(seen.kineto_results.events(), key=lambda event: event.start_ns())
    names = [event.name() for event in events]
    if kind == "mps":
        # The driver gives memory in large pieces and keeps it: growth is a finding, no growth is none.
        return Observation(backend_of(names), None, after - before if after > before else None)
    return Observation(backend_of(names), None, _peak(events))


def _observe_cuda(work: Work, device: torch.device) -> Observation:
    work.call()  # workspaces that stay are not this call's
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    with _quiet(), profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        work.call()
        torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_allocated(device) - before
    events = sorted(seen.profiler.kineto_results.events(), key=lambda event: event.start_ns())
    names = [event.name() for event in events]
    kernels = tuple(dict.fromkeys(e.name() for e in events if e.device_type() == torch.autograd.DeviceType.CUDA))
    return Observation(backend_of(names), bucket_of(kernels), peak, kernels)


def _peak(events: Iterable[Any]) -> int | None:
    """Highest sum of allocations minus frees, in bytes; inputs were there before and do not count."""
    held = peak = 0
    seen = False
    for event in events:
        if event.name() == "[memory]":
            seen = True
            held += event.nbytes()
            peak = max(peak, held)
    return peak if seen else None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the lines that some PyTorch versions write to file descriptor 2 whenever a profiler starts."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    try:
        kept = os.dup(2)
    except OSError:  # no standard error at all
        yield
        return
    try:
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, 2)
        os.close(sink)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


class Prediction(NamedTuple):
    """What `splitheads.backends` says beforehand: a backend, None without one, and why there is none."""

    backend: str | None
    refused: str | None = None  # the forced backend will refuse: the rule
    note: str | None = None  # there is no prediction: why


def predict(plan: Plan, point: Point, key: str, version: str) -> Prediction:
    """The backend that SDPA will use for this point, by `splitheads.backends`.

    A forced backend is predicted to run unless the rules say that it refuses.
    """
    try:
        from splitheads import backends
    except ImportError as error:
        return Prediction(None, note=f"no prediction: {error}")
    gqa, unbatched = point.case == "gqa", point.case == "unbatched"
    heads = plan.n_heads * (plan.batch if unbatched else 1)
    try:
        call = backends.SdpaCall(
            d_head=point.d_head,
            torch=version,
            device=key,
            dtype=plan.dtype,
            d_head_v=point.d_head_v,
            mask="bool" if point.case == "mask" else None,
            is_causal=point.case == "causal",
            dropout=DROPOUT if point.case == "dropout" else 0.0,
            training=point.backward,
            n_heads=heads,
            n_kv_heads=plan.kv_heads(point) if gqa else heads,
            enable_gqa=gqa,
            seq_q=point.seq_len,
            seq_k=point.seq_len,
            batch=1 if unbatched else plan.batch,
            batched=not unbatched,
            last_stride_1=point.case != "strided",
        )
        choice = backends.choose(call)
    except ValueError as error:  # UnknownPlatform and CallError
        return Prediction(None, note=f"no prediction: {str(error).splitlines()[0]}")
    if point.backend == "auto" or point.backend == choice.backend:
        return Prediction(choice.backend)
    for refusal in choice.refusals:
        if refusal.backend == point.backend and refusal.rule != "ranked":  # forced, nothing is ranked before it
            return Prediction(None, refused=str(refusal.reason))
    return Prediction(point.backend)
