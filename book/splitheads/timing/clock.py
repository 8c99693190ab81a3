"""Clocks: how long one call takes, without the waiting that is not part of it.

A sample is a group of calls, long enough for the clock, and its value is seconds per call. Kernels on a GPU run
behind the program's back, so a clock on the host must wait for them, and a clock on the GPU (events) must not
count the moments in which the GPU waits for the host.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections.abc import Iterator
from typing import Protocol

import torch

try:
    import resource
except ImportError:  # Windows
    resource = None


class Timed(Protocol):
    """What a clock can time: `Work` and `Ceiling`."""

    copies: int
    """Sets of inputs that the calls go round."""
    host_s: float
    """Seconds that the host needs to hand one call to a GPU; a guess until the first sample."""

    def call(self) -> object: ...


_STEADY = ((-4, 0), (-1, 2**31 - 1), (-2, 2**26))  # malloc.h: M_MMAP_MAX, M_TRIM_THRESHOLD, M_TOP_PAD
_USUAL = ((-4, 65536), (-1, 2**17), (-2, 0), (-3, 2**17))  # glibc's defaults; the last is M_MMAP_THRESHOLD
_lock = threading.Lock()
_runs = 0


@contextlib.contextmanager
def steady_memory(device_type: str) -> Iterator[str]:
    """Keep freed main memory in this process while a run goes on, as PyTorch does on a GPU; yields what is done.

    glibc hands a large block back to the system when it is freed, or keeps it, by limits that move as a program runs
    and by what lies behind the block. A block new from the system costs a page fault for every 4 KiB that is
    touched, so the same unfused attention at T = 512 was seen to take 4.4 or 9.5 ms, by what had run before. With the
    blocks kept it is the kernels that are compared. `Clock.faults` tells whether it worked. Afterwards glibc's usual
    limits hold again, and what is free goes back to the system. Other allocators are left as they are.
    """
    global _runs
    if device_type != "cpu":
        yield "by PyTorch's caching allocator"
        return
    with _lock:
        _runs += 1
        done = _set_limits(_STEADY)
    try:
        yield "freed memory kept by the process (glibc mallopt)" if done else "by the system's allocator"
    finally:
        with _lock:
            _runs -= 1
            if done and not _runs:
                _set_limits(_USUAL)
                ctypes.CDLL(None).malloc_trim(0)


def _set_limits(limits: tuple[tuple[int, int], ...]) -> bool:
    """True if this is glibc and took them all."""
    try:
        libc = ctypes.CDLL(None)
        libc.gnu_get_libc_version  # noqa: B018 (raises where this is not glibc)
        taken = [libc.mallopt(*limit) for limit in limits]
    except (AttributeError, OSError, TypeError):
        return False
    return all(taken)


def page_faults() -> int:
    """Pages that this process had to be given so far, without reading them from a disk; 0 where unknown."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt if resource else 0


class Clock:
    """The host's clock, around calls that are finished when they return, or are waited for."""

    text = "time.perf_counter around groups of calls of 10 ms or more"
    inputs = "random normal, rotated over up to 4 copies"
    sample_s = 10e-3
    """A sample takes at least so long."""
    lead_s = 0.02
    """Calls shorter than this are preceded by `lead_calls` that are not timed (see `sample`)."""
    lead_calls = 2

    def __init__(self, device: str) -> None:
        self.device = device
        self.faults = 0.0
        """Page faults per call in the last sample, on a CPU."""

    def wait(self) -> None:
        """Until the device has finished."""

    def sample(self, work: Timed, calls: int, expected_s: float = 0.0) -> float:
        """Seconds per call, over `calls` calls one after another.

        The first calls after another point's find that point's data in the caches and its block sizes in the
        memory allocator: on a CPU they were seen to take up to a tenth longer. So two are not timed, unless a call
        is expected to take so long that this is lost in it.
        """
        if expected_s < self.lead_s:
            for _ in range(self.lead_calls):
                work.call()
        self.wait()
        faults = page_faults()
        start = time.perf_counter()
        for _ in range(calls):
            work.call()
        self.wait()
        end = time.perf_counter()
        self.faults = (page_faults() - faults) / calls
        return (end - start) / calls

    def calls(self, work: Timed, seconds: float) -> int:
        """Calls in one sample, for a call that takes `seconds`."""
        return max(1, min(1000, round(self.sample_s / max(seconds, 1e-9) + 0.5)))


class MpsClock(Clock):
    text = "time.perf_counter around groups of calls of 10 ms or more, torch.mps.synchronize before each reading"

    def wait(self) -> None:
        torch.mps.synchronize()


class CudaClock(Clock):
    """CUDA events around a group of calls that are all queued before the first one starts.

    Before a group the L2 cache is overwritten, and every call of the group reads inputs of its own, so no call finds
    its inputs in the cache. Then a kernel that only waits holds the GPU back while the host queues the group: what the
    events measure is the kernels, not the host's launching. (On an H100, 2 × L2 is about 100 MB.)
    """

    text = "CUDA events around groups of calls, queued behind a waiting kernel"
    inputs = "random normal; L2 overwritten before every sample, each call in it on its own copy"
    sample_s = 1e-3
    lead_s = 0.0  # every call has a cold cache and a warm allocator anyway
    LAUNCH_QUEUE_S = 4e-3  # the launch queue holds about a thousand kernels, some 5 ms of launching

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self.slack = 1.5  # how much longer to hold the GPU than queueing is expected to take
        self._device = torch.device(device)
        cache = getattr(torch.cuda.get_device_properties(self._device), "L2_cache_size", 0) or 64 * 2**20
        self.flush_bytes = 2 * cache
        self._flush = torch.empty(self.flush_bytes // 4, dtype=torch.int32, device=self._device)
        with torch.cuda.device(self._device):
            self._cycles_per_s = self._sleep_rate()

    def wait(self) -> None:
        torch.cuda.synchronize(self._device)

    def _sleep_rate(self) -> float:
        """Cycles per second of the waiting kernel; 0 where this PyTorch has none."""
        if not hasattr(torch.cuda, "_sleep"):
            return 0.0
        cycles = 5_000_000
        rate = 0.0
        for _ in range(2):  # the first launch pays for loading the kernel
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            torch.cuda._sleep(cycles)
            end.record()
            self.wait()
            rate = cycles / max(begin.elapsed_time(end) / 1e3, 1e-9)
        return rate

    def flush(self) -> None:
        """Overwrite more than the L2 cache holds."""
        self._flush.zero_()

    def hold(self, seconds: float) -> None:
        """Keep the GPU busy for so long, without using memory."""
        if self._cycles_per_s:
            torch.cuda._sleep(int(min(seconds, 0.05) * self._cycles_per_s))
        else:
            for _ in range(max(1, int(seconds * 1e12 / self.flush_bytes))):
                self.flush()

    def sample(self, work: Timed, calls: int, expected_s: float = 0.0) -> float:
        with torch.cuda.device(self._device):
            return self._sample(work, calls)

    def _sample(self, work: Timed, calls: int) -> float:
        for attempt in range(4):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            self.flush()
            self.hold(self.slack * calls * work.host_s + 5e-5)
            begin.record()
            start = time.perf_counter()
            for _ in range(calls):
                work.call()
            # Longer than the true cost of queueing if the queue was full; that errs on the safe side.
            work.host_s = min((time.perf_counter() - start) / calls, self.LAUNCH_QUEUE_S)
            held = not begin.query()
            end.record()
            end.synchronize()
            if held or attempt == 3:
                break
            # The GPU was let go before the group was queued (it may have clocked up since the rate of the waiting
            # kernel was taken), so gaps between launches were timed, too: hold it longer, and take the sample again.
            self.slack = min(2 * self.slack, 48.0)
        return begin.elapsed_time(end) / 1e3 / calls

    def calls(self, work: Timed, seconds: float) -> int:
        wanted = round(self.sample_s / max(seconds, 1e-9) + 0.5)
        return max(1, min(wanted, work.copies, int(self.LAUNCH_QUEUE_S / work.host_s)))


def clock_for(device: str) -> Clock:
    kind = device.partition(":")[0]
    return {"cuda": CudaClock, "mps": MpsClock}.get(kind, Clock)(device)
