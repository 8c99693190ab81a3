"""What only a GPU can show. Marked `gpu`; where there is none, the summary of the tests says so."""

from __future__ import annotations

import time
from collections import deque

import pytest
import torch
from splitheads.timing import Plan, Point, measure, record, standard_plan
from splitheads.timing.clock import CudaClock, MpsClock, clock_for
from splitheads.timing.engine import Finished
from splitheads.timing.observe import observe
from splitheads.timing.workload import Pool, Work

pytestmark = pytest.mark.gpu
cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device: none here")
mps = pytest.mark.skipif(not torch.backends.mps.is_available(), reason="needs an Apple GPU (MPS): none here")


def finished(plan: Plan) -> Finished:
    last = deque(measure(plan), maxlen=1).pop()
    record.validate(last.recording)
    return last


def small(**changes) -> Plan:
    return Plan(**{"device": "cuda", "seq_lens": (1024,), "d_heads": (64, 80), "budget_s": 20, **changes})


def points(recording: dict) -> dict[Point, dict]:
    return {Point(*(p[key] for key in Point._fields)): p for p in recording["points"]}


# CUDA ---------------------------------------------------------------------------------------------


@cuda
def test_forced_backends_run_and_the_prediction_agrees() -> None:
    plan = small(backends=("auto", "FLASH", "EFFICIENT", "CUDNN", "MATH"), directions=("forward", "forward+backward"))
    recording = finished(plan).recording
    for point, found in points(recording).items():
        if found["status"] == "ok" and point.backend != "auto":
            assert found["observed"] == point.backend, found
        assert found["status"] == "ok" or found["reason"], found
    assert any(p["status"] == "ok" and p["backend"] == "MATH" for p in recording["points"])
    assert recording["agreement"]["differ"] == []
    assert recording["device"]["key"].startswith("sm")


@cuda
def test_the_bucket_is_read_from_the_kernel_that_ran() -> None:
    if torch.cuda.get_device_capability()[0] < 8:
        pytest.skip("needs FlashAttention, which begins with sm80")
    from splitheads.backends import flash_bucket

    version = torch.__version__.partition("+")[0]
    plan = small(d_heads=(32, 40, 64, 72, 80, 128, 160, 256), backends=("FLASH",), seq_lens=(512,))
    for point, found in points(finished(plan).recording).items():
        assert found["bucket"] == flash_bucket(point.d_head, version), found


@cuda
def test_events_agree_with_the_wall_clock_on_a_long_kernel() -> None:
    """A call of many milliseconds, where launching and waiting do not count."""
    plan = small(seq_lens=(8192,), d_heads=(128,), backends=("MATH",), batch=1)
    clock = CudaClock("cuda")
    work = Work(Pool(plan, plan.points()), plan.points()[0])
    with work.context():
        for _ in range(3):
            work.call()
        events = min(clock.sample(work, 1) for _ in range(5))
        clock.wait()
        walls = []
        for _ in range(5):
            start = time.perf_counter()
            for _ in range(4):
                work.call()
            clock.wait()
            walls.append((time.perf_counter() - start) / 4)
    assert events == pytest.approx(min(walls), rel=0.15)


@cuda
def test_short_kernels_do_not_count_the_hosts_launching() -> None:
    """Sixteen tiny calls in one sample: each must take less than the host needs to launch one."""
    plan = small(seq_lens=(64,), d_heads=(64,), n_heads=1)
    clock = CudaClock("cuda")
    work = Work(Pool(plan, plan.points()), plan.points()[0])
    with work.context():
        for _ in range(5):
            work.call()
        clock.wait()
        grouped = min(clock.sample(work, 16) for _ in range(20))
        assert grouped < work.host_s * 1.1


@cuda
def test_the_flush_covers_the_cache() -> None:
    clock = CudaClock("cuda")
    assert clock.flush_bytes >= 2 * getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0)
    before = clock._flush.clone().fill_(1)
    clock._flush.copy_(before)
    clock.flush()
    assert not clock._flush.any()


@cuda
def test_calls_of_one_sample_read_inputs_of_their_own() -> None:
    plan = small(seq_lens=(256,))
    pool = Pool(plan, plan.points())
    clock = clock_for("cuda")
    for point in plan.points():
        work = Work(pool, point)
        assert clock.calls(work, 1e-6) <= work.copies
        assert len({tensors[0].data_ptr() for tensors in work._sets}) == work.copies


@cuda
def test_peak_memory_shows_the_scores() -> None:
    plan = small(seq_lens=(1024, 2048), d_heads=(64,), n_heads=4, backends=("MATH",))
    peaks = {p.seq_len: found["peak_bytes"] for p, found in points(finished(plan).recording).items()}
    for seq_len, peak in peaks.items():
        assert peak >= 4 * seq_len * seq_len * 2
    assert 3 < peaks[2048] / peaks[1024] < 4.5


@cuda
def test_out_of_memory_is_a_point_and_the_run_goes_on() -> None:
    memory = torch.cuda.get_device_properties(0).total_memory
    seq_len = 1 << 12
    while 64 * seq_len * seq_len * 2 < 2 * memory:  # the scores of one call: twice the device
        seq_len *= 2
    plan = small(seq_lens=(512, seq_len), d_heads=(32,), n_heads=64, dtype="fp16", backends=("MATH",), budget_s=60)
    found = {p.seq_len: f for p, f in points(finished(plan).recording).items()}
    assert found[seq_len]["status"] == "failed"
    assert found[seq_len]["reason"].startswith("out of memory")
    assert found[512]["status"] == "ok"


@cuda
def test_kernels_are_seen_by_name() -> None:
    plan = small()
    work = Work(Pool(plan, plan.points()), plan.points()[0])
    with work.context():
        seen = observe(work, "cuda")
    assert seen.backend in record.BACKENDS
    assert seen.kernels


@cuda
def test_the_standard_plan_fits_this_device() -> None:
    plan = standard_plan("cuda", "fp16")
    assert len(plan.points()) > 500


# MPS ----------------------------------------------------------------------------------------------


@mps
def test_an_apple_gpu_is_waited_for_and_recorded() -> None:
    plan = Plan(device="mps", seq_lens=(512,), d_heads=(64, 72, 100), cases=("plain", "causal", "mask"), budget_s=15)
    recording = finished(plan).recording
    assert recording["device"]["type"] == "mps"
    assert any(p["status"] == "ok" for p in recording["points"])
    assert isinstance(clock_for("mps"), MpsClock)


@mps
def test_an_apple_gpu_is_not_timed_by_its_launches() -> None:
    plan = Plan(device="mps", seq_lens=(4096,), d_heads=(128,), budget_s=15)
    clock = clock_for("mps")
    work = Work(Pool(plan, plan.points()), plan.points()[0])
    with work.context():
        for _ in range(3):
            work.call()
        clock.wait()
        start = time.perf_counter()
        work.call()
        launched = time.perf_counter() - start
        clock.wait()
        assert clock.sample(work, 4) > launched
