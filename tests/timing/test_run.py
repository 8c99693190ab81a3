"""The measurement on the CPU: what is recorded, what survives trouble, and that the budget is kept.

Nothing here depends on how fast the machine is, or on what else it does.
"""

from __future__ import annotations

import collections
import itertools
import json
import subprocess
import sys
import textwrap
import threading
import time

import pytest
import torch
from conftest import ROOT
from splitheads.timing import Plan, Point, engine, measure, observe, paired_ratio, record, run
from splitheads.timing.clock import Clock, steady_memory
from splitheads.timing.engine import Finished, PointUpdate, Progress, Started
from splitheads.timing.plan import CASES
from splitheads.timing.workload import Pool, Work


def small(**changes) -> Plan:
    settings = {
        "device": "cpu",
        "seq_lens": (128,),
        "d_heads": (32, 40),
        "n_heads": 2,
        "budget_s": 2,
        "backends": ("auto",),
    }
    return Plan(**{**settings, **changes})


def finished(plan: Plan, **settings) -> Finished:
    last = collections.deque(measure(plan, **settings), maxlen=1).pop()
    assert isinstance(last, Finished)
    record.validate(last.recording)
    return last


def by_point(recording: dict) -> dict[Point, dict]:
    return {Point(*(p[key] for key in Point._fields)): p for p in recording["points"]}


# What a recording holds ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def everything() -> Finished:
    """Every case, both directions, every CPU backend and one that a CPU has not."""
    plan = small(
        cases=tuple(CASES),
        directions=("forward", "forward+backward"),
        backends=("auto", "FLASH", "MATH", "CUDNN"),
        budget_s=20,
        target_width=0.9,
    )
    return finished(plan, command="a test")


def test_every_planned_point_is_in_the_recording(everything: Finished) -> None:
    points = by_point(everything.recording)
    assert len(points) == len(everything.recording["points"]) == 2 * 8 * 2 * 4
    assert everything.recording["command"] == "a test"
    assert everything.recording["device"]["threads"] == torch.get_num_threads()
    for point, found in points.items():
        assert found["status"] in (("ok",) if point.backend in ("auto", "MATH") else ("ok", "skipped")), found
        assert (found["reason"] is None) == (found["status"] == "ok")


MATH_CASES = {"value_width", "strided", "dropout"}  # on a CPU, in every PyTorch version that the book speaks of


def test_what_ran_was_observed(everything: Finished) -> None:
    for point, found in by_point(everything.recording).items():
        if found["status"] == "ok" and point.backend != "auto":
            assert found["observed"] == point.backend, found
        elif point.backend == "auto" and point.case != "unbatched":
            assert found["observed"] == ("MATH" if point.case in MATH_CASES else "FLASH"), found
        assert found["bucket"] is None  # a CPU has no compiled widths


def test_the_prediction_agrees_wherever_both_are_known(everything: Finished) -> None:
    agreement = everything.recording["agreement"]
    known = {p["observed"] for p in everything.recording["points"] if p["predicted"]}
    if not known:
        notes = {flag for p in everything.recording["points"] for flag in p["flags"]}
        pytest.fail(f"nothing was predicted: {notes}")
    assert agreement["compared"] > 0
    assert agreement["differ"] == []


def test_a_backend_that_refuses_is_skipped_with_its_reason(everything: Finished) -> None:
    points = by_point(everything.recording)
    refused = points[Point("value_width", "FLASH", "forward", 128, 32)]
    assert refused["status"] == "skipped"
    assert "refused (as predicted)" in refused["reason"]
    assert "same last dimension" in refused["reason"]
    assert refused["median_s"] is refused["interval_s"] is None
    foreign = points[Point("plain", "CUDNN", "forward", 128, 32)]
    assert foreign["status"] == "skipped"
    assert "\n" not in foreign["reason"]


def test_math_keeps_the_scores_and_flash_does_not() -> None:
    plan = small(seq_lens=(256, 512), d_heads=(32,), backends=("FLASH", "MATH"))
    peaks = {(p.backend, p.seq_len): found["peak_bytes"] for p, found in by_point(finished(plan).recording).items()}
    for seq_len in (256, 512):
        scores = plan.n_heads * seq_len * seq_len * 4
        assert peaks["MATH", seq_len] >= scores
        assert plan.n_heads * seq_len * 32 * 4 <= peaks["FLASH", seq_len] < scores
    assert 3.5 < peaks["MATH", 512] / peaks["MATH", 256] < 4.2
    assert peaks["FLASH", 512] / peaks["FLASH", 256] < 2.5


def test_ceilings_were_measured_in_the_same_run(everything: Finished) -> None:
    for ceiling in everything.recording["ceilings"].values():
        low, high = ceiling["interval"]
        assert 0 < low <= ceiling["median"] <= high
        assert ceiling["repeats"] >= 2


def test_an_impossible_point_is_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "CEILING_SLACK", 1e-6)  # now everything is more than the device can do
    measured = [p for p in finished(small()).recording["points"] if p["status"] == "ok"]
    assert measured
    assert all(record.ABOVE_CEILING in p["flags"] for p in measured)


# How it is measured -------------------------------------------------------------------------------


def test_rounds_visit_every_point_once_in_a_new_order(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Point] = []
    original = engine._Laboratory._sample

    def noted(self, task, number: int) -> None:
        seen.append(task.point)
        original(self, task, number)

    monkeypatch.setattr(engine._Laboratory, "_sample", noted)
    plan = small(d_heads=(8, 16, 24, 32), target_width=1e-9, budget_s=5)
    samples = finished(plan).samples
    rounds = [tuple(seen[i : i + 4]) for i in range(0, len(seen) - 3, 4)]
    assert len(rounds) >= 3
    assert all(len(set(order)) == 4 for order in rounds)
    assert len(set(rounds)) >= min(len(rounds), 24) / 4  # 24 orders are possible
    counts = [len(values) for values in samples.values()]
    assert max(counts) - min(counts) <= 1


def test_the_same_seed_gives_the_same_inputs_and_another_one_others() -> None:
    plans = [small(seed=seed) for seed in (1, 1, 2)]
    first, again, other = (Pool(plan, plan.points()).numbers for plan in plans)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16", "fp64"])
def test_inputs_are_random_normal_never_zeros(dtype: str) -> None:
    plan = small(dtype=dtype)
    numbers = Pool(plan, plan.points()).numbers.double()
    assert abs(numbers.mean()) < 0.05
    assert abs(numbers.std() - 1) < 0.05
    assert (numbers == 0).double().mean() < 0.001


def test_sets_of_inputs_share_no_memory() -> None:
    plan = small(cases=tuple(CASES), directions=("forward+backward",))
    pool = Pool(plan, plan.points())
    for point in plan.points():
        work = Work(pool, point)
        assert work.copies >= 2
        spans = sorted(
            (t.data_ptr(), t.data_ptr() + t.numel() * t.element_size()) for tensors in work._sets for t in tensors
        )
        assert len(spans) == 4 * work.copies
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


def test_cases_are_what_their_names_say() -> None:
    plan = small(batch=2, n_heads=4, cases=tuple(CASES))
    pool = Pool(plan, plan.points())
    works = {point.case: Work(pool, point) for point in plan.points() if point.d_head == 32}
    shapes = {case: [tuple(t.shape) for t in work._sets[0]] for case, work in works.items()}
    assert shapes["plain"] == [(2, 4, 128, 32)] * 3
    assert shapes["gqa"] == [(2, 4, 128, 32), (2, 1, 128, 32), (2, 1, 128, 32)]
    assert shapes["value_width"][2] == (2, 4, 128, 40)
    assert shapes["unbatched"] == [(8, 128, 32)] * 3
    assert all(t.stride(-1) == 1 for t in works["plain"]._sets[0])
    assert all(t.stride(-1) != 1 for t in works["strided"]._sets[0])
    mask = works["mask"].settings["attn_mask"]
    assert mask.dtype == torch.bool
    assert mask.diagonal().all()
    assert 0.85 < mask.double().mean() < 0.95
    assert works["causal"].settings == {"is_causal": True}
    assert works["dropout"].settings == {"dropout_p": 0.1}


def test_forward_needs_no_gradients_and_backward_takes_them() -> None:
    plan = small(directions=("forward", "forward+backward"))
    pool = Pool(plan, plan.points())
    for point in plan.points():
        work = Work(pool, point)
        assert [t.requires_grad for t in work._sets[0][:3]] == [point.backward] * 3
        with work.context():
            assert torch.is_grad_enabled() == point.backward
            work.call()
        assert all(t.grad is None for t in work._sets[0])  # autograd.grad leaves nothing behind


def test_short_calls_are_grouped_until_the_clock_can_tell() -> None:
    clock = Clock("cpu")
    assert clock.calls(None, 1e-5) * 1e-5 >= 1e-3
    assert clock.calls(None, 1.0) == 1
    assert clock.calls(None, 0.0) <= 1000

    class Sleeper:
        number = 0

        def call(self) -> None:
            self.number += 1
            time.sleep(0.002)

    sleeper = Sleeper()
    assert clock.sample(sleeper, 5, 0.002) >= 0.002
    assert sleeper.number == 7  # the first two are not timed
    clock.sample(sleeper, 2, 10.0)
    assert sleeper.number == 9


def test_paired_ratios_do_not_see_drift() -> None:
    drift = {number: 1.0 + 10 * (number % 3) for number in range(30)}
    first = {number: 3 * drift[number] for number in range(30)}
    second = {number: 2 * drift[number] for number in range(29)}
    assert tuple(paired_ratio(first, second)) == (1.5, 1.5, 1.5)
    with pytest.raises(ValueError, match="no round in common"):
        paired_ratio({1: 1.0}, {2: 1.0})


# The budget ---------------------------------------------------------------------------------------


def timed(plan: Plan, limit: float) -> tuple[dict, float]:
    """The recording and the wall time of a run; of up to three runs, the first that keeps to `limit` seconds.

    Another process may stop any single call for half a second, and no run can give that time back.
    """
    for _ in range(3):
        start = time.perf_counter()
        recording = run(plan)
        wall = time.perf_counter() - start
        if wall <= limit:
            break
    record.validate(recording)
    return recording, wall


@pytest.mark.parametrize("budget", [3, 10])
def test_the_budget_is_kept(budget: float) -> None:
    plan = small(budget_s=budget, backends=("auto", "MATH"), target_width=1e-9)
    recording, wall = timed(plan, 1.1 * budget)
    assert 0.9 * budget <= wall <= 1.1 * budget
    assert recording["ended"] == "budget"
    assert wall - 1 < recording["duration_s"] <= wall
    assert all(p["status"] == "ok" and record.WIDE_INTERVAL in p["flags"] for p in recording["points"])


def test_a_plan_far_beyond_its_budget_leaves_points_out() -> None:
    plan = small(seq_lens=(512,), n_heads=8, d_heads=tuple(range(1, 201)), backends=("MATH",), budget_s=3)
    recording, wall = timed(plan, 3.3)
    assert wall <= 3.3
    left_out = [p for p in recording["points"] if p["status"] == "skipped"]
    assert len(recording["points"]) == 200
    assert 0 < len(left_out) < 200
    assert all(p["reason"].startswith("budget") for p in left_out)
    assert recording["ended"] == "budget"


def test_a_run_ends_early_once_every_point_is_settled() -> None:
    plan = small(d_heads=(32,), budget_s=60, target_width=0.9)
    recording = finished(plan).recording
    assert recording["duration_s"] < 30
    assert recording["ended"] == "complete"
    assert recording["points"][0]["repeats"] >= 10


def test_progress_tells_the_time_left() -> None:
    events = list(measure(small(budget_s=2, target_width=1e-9)))
    assert isinstance(events[0], Started)
    assert events[0].total == 2
    steps = [event for event in events if isinstance(event, Progress)]
    assert len(steps) >= 3
    assert [s.left_s for s in steps] == sorted((s.left_s for s in steps), reverse=True)
    assert all(s.done_s + s.left_s == pytest.approx(2) for s in steps)
    updates = [event.point for event in events if isinstance(event, PointUpdate)]
    assert {p["d_head"] for p in updates} == {32, 40}
    assert [p["repeats"] for p in updates if p["d_head"] == 32][-1] > 1


# Trouble ------------------------------------------------------------------------------------------


def test_stop_keeps_what_was_measured() -> None:
    stop = threading.Event()
    seen = []
    for event in measure(small(d_heads=(8, 16, 24, 32), budget_s=30, target_width=1e-9), stop):
        seen.append(event)
        if isinstance(event, PointUpdate) and event.point["d_head"] == 16:
            stop.set()
            asked = time.perf_counter()
    assert time.perf_counter() - asked < 5
    recording = seen[-1].recording
    record.validate(recording)
    assert recording["ended"] == "interrupted"
    points = {p["d_head"]: p for p in recording["points"]}
    assert points[8]["status"] == points[16]["status"] == "ok"
    assert points[16]["repeats"] >= 1
    for late in (points[24], points[32]):
        assert (late["status"], late["reason"]) == ("skipped", "interrupted before this point was measured")


def test_a_stop_before_the_start_gives_an_empty_recording() -> None:
    stop = threading.Event()
    stop.set()
    recording = finished(small(), stop=stop).recording
    assert recording["ended"] == "interrupted"
    assert {p["status"] for p in recording["points"]} == {"skipped"}


@pytest.mark.parametrize("after", [1, 7, 40])
def test_ctrl_c_inside_a_kernel_ends_the_run_with_a_recording(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    calls = itertools.count(1)
    original = Clock.sample

    def interrupted(self, *arguments) -> float:
        if next(calls) == after:
            raise KeyboardInterrupt
        return original(self, *arguments)

    monkeypatch.setattr(Clock, "sample", interrupted)
    recording = finished(small(budget_s=20, target_width=1e-9)).recording
    assert recording["ended"] == "interrupted"
    measured = [p for p in recording["points"] if p["status"] == "ok"]
    assert len(measured) == {1: 0, 40: 2}.get(after, len(measured))


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("CUDA error: an illegal thing\nand a long story"), "RuntimeError: CUDA error: an illegal thing"),
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB"),
            "out of memory: CUDA out of memory. Tried",
        ),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "out of memory: DefaultCPUAllocator"),
        (ValueError(), "ValueError"),
        (RuntimeError("x" * 1000), "RuntimeError: xxx"),
    ],
)
@pytest.mark.parametrize("when", [1, 9])
def test_a_kernel_that_raises_is_a_point_that_failed(
    monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str, when: int
) -> None:
    """At its first visit, or when it has been measured already."""
    calls = itertools.count(1)
    original = Work.call

    def call(self) -> None:
        if self.point.d_head == 40 and next(calls) >= when:
            raise error
        original(self)

    monkeypatch.setattr(Work, "call", call)
    points = {p["d_head"]: p for p in finished(small(budget_s=10, target_width=0.9)).recording["points"]}
    assert points[40]["status"] == "failed"
    assert points[40]["reason"].startswith(reason)
    assert len(points[40]["reason"]) < 200
    assert points[32]["status"] == "ok"
    assert points[32]["repeats"] >= 1


def test_scores_that_cannot_fit_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU the system would swap or end the process, before Python hears of it."""
    monkeypatch.setattr(engine, "free_memory", lambda device: 2**20)
    points = by_point(finished(small(seq_lens=(512,), backends=("auto", "MATH"))).recording)
    math, auto = points[Point("plain", "MATH", "forward", 512, 32)], points[Point("plain", "auto", "forward", 512, 32)]
    assert math["status"] == "skipped"
    assert math["reason"].startswith("out of memory: the T × T scores would take about 6.3 MB")
    assert auto["status"] == "ok"
    assert auto["observed"] == "FLASH"


def test_a_device_that_died_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def call(self) -> None:
        raise RuntimeError("CUDA error: device-side assert")

    monkeypatch.setattr(Work, "call", call)
    monkeypatch.setattr(engine._Laboratory, "_alive", lambda self: False)
    recording = finished(small()).recording
    assert [p["status"] for p in recording["points"]] == ["failed", "failed"]
    assert "stopped working at an earlier point" in recording["points"][1]["reason"]


def test_run_returns_the_recording() -> None:
    recording = run(small(budget_s=1))
    record.validate(recording)


# Observation and prediction, as pure functions ----------------------------------------------------


@pytest.mark.parametrize(
    ("names", "backend"),
    [
        (
            [
                "aten::scaled_dot_product_attention",
                "aten::_scaled_dot_product_flash_attention",
                "aten::_flash_attention_forward",
            ],
            "FLASH",
        ),
        (["aten::_scaled_dot_product_flash_attention_for_cpu"], "FLASH"),
        (["aten::_scaled_dot_product_efficient_attention"], "EFFICIENT"),
        (["aten::_scaled_dot_product_cudnn_attention"], "CUDNN"),
        (["aten::_scaled_dot_product_attention_math", "aten::matmul"], "MATH"),
        (["aten::_scaled_dot_product_attention_math_for_mps"], "MATH"),
        (["aten::_scaled_dot_product_fused_attention_overrideable"], "OVERRIDEABLE"),
        (["aten::_scaled_dot_product_flash_attention", "aten::_scaled_dot_product_flash_attention_backward"], "FLASH"),
        (["aten::scaled_dot_product_attention", "aten::matmul", "aten::_fused_sdp_choice"], None),
        ([], None),
    ],
)
def test_the_backend_from_operator_names(names: list[str], backend: str | None) -> None:
    assert observe.backend_of(names) == backend


FORWARD = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<{}, 128, 64, 4, false, false, cutlass::half_t, Flash_kernel_traits<{}, 128, 64, 4, cutlass::half_t> >, false, false, false, false, true, true, false, false>(pytorch_flash::Flash_fwd_params)"
SPLIT = "void pytorch_flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<(int)128, (int)64, (int)128, (int)4, false, false, cutlass::bfloat16_t>, false>(pytorch_flash::Flash_fwd_params)"
BACKWARD = "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<192, 64, 64, 8, 4, 2, 2, false, false, cutlass::half_t>, false>(pytorch_flash::Flash_bwd_params)"
MANGLED = (
    "_ZN13pytorch_flash16flash_fwd_kernelI23Flash_fwd_kernel_traitsILi256ELi128ELi64ELi8ELb0ELb0EN7cutlass6half_tE"
)


@pytest.mark.parametrize(
    ("names", "bucket"),
    [
        ([FORWARD.format(96, 96)], 96),
        ([FORWARD.format(32, 32), "vectorized_elementwise_kernel"], 32),
        ([SPLIT], 128),
        ([BACKWARD], 192),
        ([BACKWARD, FORWARD.format(192, 192)], 192),
        ([FORWARD.format(64, 64), BACKWARD], 64),
        ([MANGLED], 256),
        (["fmha_cutlassF_f16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel)"], None),
        (["cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0"], None),
        (["sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x32"], None),
        ([], None),
    ],
)
def test_the_bucket_from_kernel_names(names: list[str], bucket: int | None) -> None:
    assert observe.bucket_of(names) == bucket


def test_no_prediction_for_a_version_that_nobody_knows() -> None:
    found = observe.predict(small(), small().points()[0], "cpu", "1.0.0")
    assert found.backend is None
    assert "no prediction" in found.note
    assert "1.0.0" in found.note


def test_predictions_for_a_gpu_that_is_not_here() -> None:
    """The questions that the engine asks are the right ones: checked on choices that are well known."""
    plan = small(
        dtype="bf16", cases=("plain", "mask", "value_width", "gqa"), d_heads=(64, 65), backends=("auto", "FLASH")
    )
    ask = {(p.case, p.backend, p.d_head): observe.predict(plan, p, "sm80", "2.15.0") for p in plan.points()}
    assert ask["plain", "auto", 64].backend == "FLASH"
    assert ask["plain", "auto", 65].backend == "FLASH"
    assert ask["mask", "auto", 64].backend == "EFFICIENT"
    assert ask["mask", "auto", 65].backend == "MATH"
    assert ask["mask", "FLASH", 64].backend is None
    assert "mask" in ask["mask", "FLASH", 64].refused
    assert ask["value_width", "auto", 64].backend == "EFFICIENT"
    assert ask["gqa", "auto", 64].backend == "FLASH"
    assert observe.predict(plan, Point("plain", "MATH", "forward", 128, 64), "sm80", "2.15.0") == observe.Prediction(
        "MATH"
    )


# What it needs ------------------------------------------------------------------------------------

BARE = """
    import sys

    class Absent:  # numpy and friends cannot be found, as on a bare server
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] in ("numpy", "matplotlib", "ipywidgets", "anywidget", "IPython", "pandas"):
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    sys.meta_path.insert(0, Absent())
    import splitheads.timing
    assert "torch" not in sys.modules, "torch is due with the first plan, not before"
    from splitheads.timing import Plan, run, load, save, validate
    import splitheads.timing.command
    made = run(Plan(device="cpu", seq_lens=(64,), d_heads=(16,), n_heads=2, budget_s=1))
    validate(made)
    assert made["points"][0]["status"] == "ok", made["points"]
    splitheads.timing.command.report(made)
    foreign = {name.partition(".")[0] for name in sys.modules} & {"numpy", "matplotlib", "ipywidgets", "anywidget", "IPython"}
    assert not foreign, foreign
"""


def test_torch_and_the_standard_library_are_enough() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(BARE)],
        cwd=ROOT / "book",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_importing_the_lab_loads_none_of_the_page_libraries() -> None:
    code = "import sys, torch; before = set(sys.modules); import splitheads.timing, splitheads.timing.engine, splitheads.timing.command; print(*{m.partition('.')[0] for m in set(sys.modules) - before})"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "book", capture_output=True, text=True, timeout=120, check=True
    )
    added = set(done.stdout.split())
    assert "splitheads" in added
    assert not added & {"numpy", "matplotlib", "ipywidgets", "anywidget", "IPython", "pandas"}


def needs_glibc() -> None:
    with steady_memory("cpu") as how:
        if how.startswith("by the system"):
            pytest.skip("another C library than glibc: its allocator is left as it is")


def test_memory_is_the_same_in_every_call() -> None:
    """Unfused attention at T = 512 holds some 16 MB: new from the system each time, that is 4,000 page faults."""
    needs_glibc()
    plan = Plan("cpu", seq_lens=(512,), d_heads=(64,), backends=("FLASH", "MATH"), budget_s=3)
    recording = run(plan)
    assert recording["method"]["memory"].startswith("freed memory kept")
    for point in recording["points"]:
        assert point["page_faults"] < 500, point["backend"]
        assert engine.NEW_MEMORY not in point["flags"]


def test_memory_that_is_new_in_every_call_is_seen_and_said() -> None:
    program = """
import contextlib, ctypes, json, sys
from splitheads.timing import Plan, engine, run
engine.steady_memory = lambda kind: contextlib.nullcontext("left alone")
ctypes.CDLL(None).mallopt(-3, 2**20)  # M_MMAP_THRESHOLD: from 1 MiB on, always new
plan = Plan("cpu", seq_lens=(512,), d_heads=(64,), backends=("MATH",), budget_s=2)
json.dump(run(plan)["points"][0], sys.stdout)
"""
    needs_glibc()
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT / "book"
    )
    point = json.loads(done.stdout)
    assert point["page_faults"] > 2000
    assert engine.NEW_MEMORY in point["flags"]


def test_inputs_that_take_longer_to_draw_than_the_budget_are_not_drawn() -> None:
    """8 heads of a million tokens are half a billion numbers: five seconds, for a run of two."""
    plan = Plan("cpu", seq_lens=(64, 1_000_000), d_heads=(16,), cases=("plain",), budget_s=2)
    start = time.perf_counter()
    recording = run(plan)
    assert time.perf_counter() - start < 3.5
    short, long = recording["points"]
    assert short["status"] == "ok"
    assert (long["status"], long["reason"][:30]) == ("skipped", engine.TOO_LARGE[:30])
    assert recording["ended"] == "budget"
    alone = run(Plan("cpu", seq_lens=(1_000_000,), d_heads=(16,), cases=("plain",), budget_s=2))
    assert [point["status"] for point in alone["points"]] == ["skipped"]
    record.validate(alone)


def test_after_a_run_the_process_gives_freed_memory_back() -> None:
    """A notebook goes on after a run. Holes between small things that stay must not pile up in it."""
    needs_glibc()
    program = """
import torch
from splitheads.timing import Plan, run
run(Plan("cpu", seq_lens=(64,), d_heads=(16,), cases=("plain",), budget_s=1))

def resident():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmRSS")) / 1024

start, kept = resident(), []
for _ in range(8):
    large = torch.ones(25_000_000)
    kept.append(torch.ones(100))
    del large
print(resident() - start)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT / "book"
    )
    assert float(done.stdout) < 150, "MB that stay of 8 times 100 MB, each freed at once"


def test_steady_memory_may_be_nested() -> None:
    needs_glibc()
    with steady_memory("cpu"), steady_memory("cpu") as how:
        assert how.startswith("freed memory kept")
