"""What can be asked for, and what is refused: a sentence with the value and a way out."""

from __future__ import annotations

import itertools
import time

import numpy
import pytest
import torch
from splitheads.timing import Plan, PlanError, Point, default_plan, record, standard_plan
from splitheads.timing.plan import BACKENDS, CASES, EXTRA_VALUE_COLUMNS, MAX_POINTS, size, standard_dtypes, widths
from timing.synthetic import recording

HUGE = 10**9


def cpu(**changes) -> Plan:
    return Plan(**{"device": "cpu", "d_heads": (64,), **changes})


WRONG = {
    "unknown device": ({"device": "tpu"}, ["'tpu'", "'cpu'"]),
    "device number on a CPU": ({"device": "cpu:1"}, ["'cpu:1'", "'cpu'"]),
    "d_head 0": ({"d_heads": (0,)}, ["d_head = 0", "1 or more"]),
    "d_head -8": ({"d_heads": (-8,)}, ["d_head = -8", "1 or more"]),
    "one wrong d_head among good ones": ({"d_heads": (64, -8)}, ["d_head = -8"]),
    "d_head without end": ({"d_heads": (HUGE,)}, [f"d_head = {HUGE}", "TB", "GB", "smaller"]),
    "d_head beyond 64 bits": ({"d_heads": (10**30,)}, ["d_head", "smaller"]),
    "d_head as a float": ({"d_heads": (64.0,)}, ["64.0", "whole number"]),
    "d_head as a bool": ({"d_heads": (True,)}, ["True", "whole number"]),
    "d_head as text": ({"d_heads": "64,x"}, ["'x'", "8:288:8"]),
    "empty sweep": ({"d_heads": ()}, ["d_heads is empty", "64"]),
    "empty text": ({"d_heads": " , "}, ["d_heads is empty"]),
    "range that runs backwards": ({"d_heads": "64:8:8"}, ["d_heads is empty"]),
    "no lengths": ({"seq_lens": []}, ["seq_lens is empty", "512"]),
    "length 0": ({"seq_lens": (0,)}, ["T = 0", "1 or more"]),
    "length without end": ({"seq_lens": (HUGE,)}, [f"T = {HUGE}", "TB"]),
    "budget 0": ({"budget_s": 0}, ["budget_s = 0", "30"]),
    "budget negative": ({"budget_s": -1.5}, ["budget_s = -1.5"]),
    "budget NaN": ({"budget_s": float("nan")}, ["budget_s = nan"]),
    "budget infinite": ({"budget_s": float("inf")}, ["budget_s = inf"]),
    "budget too short": ({"budget_s": 0.2}, ["budget_s = 0.2", "1 or more"]),
    "budget as text": ({"budget_s": "soon"}, ["'soon'", "number"]),
    "dtype int8": ({"dtype": "int8"}, ["'int8'", "bf16"]),
    "dtype of torch without attention": ({"dtype": torch.int32}, ["int32", "fp32"]),
    "unknown backend": ({"backends": ("auto", "TRITON")}, ["'TRITON'", "MATH"]),
    "no backend": ({"backends": ()}, ["backends is empty", "auto"]),
    "unknown case": ({"cases": ("plain", "sliding")}, ["'sliding'", "value_width"]),
    "unknown direction": ({"directions": ("backward",)}, ["'backward'", "forward+backward"]),
    "batch 0": ({"batch": 0}, ["batch = 0"]),
    "heads -1": ({"n_heads": -1}, ["n_heads = -1"]),
    "seed as text": ({"seed": "x"}, ["seed", "'x'"]),
    "target 0": ({"target_width": 0}, ["target_width = 0"]),
    "sharing among one head": ({"n_heads": 1, "cases": ("gqa",)}, ["n_heads = 1", "2 or more"]),
    "too many points": (
        {"d_heads": tuple(range(1, 400)), "seq_lens": tuple(range(1, 60))},
        [str(399 * 59), str(MAX_POINTS)],
    ),
    "more points than can be counted one by one": (
        {"d_heads": range(1, 10_001), "seq_lens": range(1, 10_001), "cases": tuple(CASES), "backends": BACKENDS},
        [str(4 * 10**9), str(MAX_POINTS)],
    ),
    "a range of 20 000": ({"d_heads": range(1, 20_001), "seq_lens": range(1, 20_001)}, ["20000", str(MAX_POINTS)]),
    "a range of a billion": ({"d_heads": range(HUGE)}, [str(HUGE), str(MAX_POINTS)]),
    "a range longer than any machine can count": ({"seq_lens": range(10**30)}, ["more than", str(MAX_POINTS)]),
    "numbers without end": ({"d_heads": itertools.count(1)}, ["more than", str(MAX_POINTS)]),
    "the same number without end": ({"seq_lens": itertools.repeat(64)}, ["more than", str(MAX_POINTS)]),
    "names without end": ({"backends": itertools.repeat("auto")}, ["more than", str(MAX_POINTS)]),
    "many ranges as text": ({"d_heads": ",".join(["1:9000"] * 1000)}, [str(MAX_POINTS), "8:288:8"]),
    "budget beyond a life": ({"budget_s": 1e12}, ["budget_s", "30 years"]),
    "budget beyond all digits": ({"budget_s": 10**5000}, ["budget_s"]),
    "budget as an array": ({"budget_s": torch.ones(2)}, ["budget_s"]),
    "budget without data": ({"budget_s": torch.empty((), device="meta")}, ["budget_s"]),
    "batch without data": ({"batch": torch.empty((), dtype=torch.int64, device="meta")}, ["batch"]),
    "target as an endless number": ({"target_width": 10**5000}, ["target_width", "digits"]),
    "d_head as bytes": ({"d_heads": b"64"}, ["d_heads", "b'64'"]),
    "an array without axes": ({"d_heads": numpy.array(64)}, ["d_heads = array(64)", "64"]),
    "a tensor without axes": ({"d_heads": torch.tensor(64)}, ["d_heads = tensor(64)", "64"]),
    "lengths as a tensor without axes": ({"seq_lens": torch.tensor(64)}, ["seq_lens = tensor(64)", "512"]),
    "a tensor of bools": ({"d_heads": torch.tensor([True])}, ["whole number"]),
    "device as an endless number": ({"device": 10**5000}, ["device", "digits"]),
    "device as None": ({"device": None}, ["device = None"]),
    "a device with an endless number": ({"device": "cuda:" + "9" * 5000}, ["device", "'cpu'"]),
    "dtype as an endless number": ({"dtype": 10**5000}, ["dtype", "digits"]),
    "dtype as a list": ({"dtype": ["fp32"]}, ["dtype", "fp16"]),
    **{
        f"{field} = {value}": ({field: value}, [field, str(value)])
        for field in ("directions", "backends", "cases")
        for value in (None, 7, 1.5)
    },
    **{f"{field} as an endless number": ({field: 10**5000}, [field]) for field in ("directions", "backends", "cases")},
    **{f"{field} with an endless number": ({field: [10**5000]}, [field]) for field in ("backends", "cases")},
    **{f"{field} with an endless number": ({field: [10**5000]}, ["digits"]) for field in ("d_heads", "seq_lens")},
    **{
        f"{field} as an endless number ": ({field: 10**5000}, [field, "digits"])
        for field in ("batch", "n_heads", "seed")
    },
}


@pytest.mark.parametrize(("changes", "words"), WRONG.values(), ids=WRONG)
def test_a_wrong_plan_is_refused_in_a_sentence(changes: dict, words: list[str]) -> None:
    begin = time.perf_counter()
    with pytest.raises(PlanError) as caught:
        cpu(**changes)
    assert time.perf_counter() - begin < 2
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 400
    for word in words:
        assert word in text


@pytest.mark.parametrize("device", ["cuda", "cuda:3"])
def test_cuda_where_there_is_none(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(PlanError, match=r"finds no CUDA device here. Give 'cpu' or 'auto'"):
        Plan(device=device)


def test_a_cuda_device_beyond_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(PlanError, match="the last one is cuda:0"):
        Plan(device="cuda:1")
    with pytest.raises(PlanError, match="is not known"):
        Plan(device="cuda:" + "9" * 5000)


def test_mps_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(PlanError, match="no Apple GPU"):
        Plan(device="mps")


def test_what_auto_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert Plan().device == "cpu"


def test_after_construction_every_field_is_concrete() -> None:
    plan = cpu(d_heads=None)
    assert (plan.device, plan.dtype, plan.n_heads) == ("cpu", "fp32", 8)
    assert plan.seq_lens
    assert plan.d_heads
    assert plan.memory_bytes > 0
    assert cpu(dtype=torch.bfloat16).dtype == cpu(dtype="bfloat16").dtype == cpu(dtype="bf16").dtype == "bf16"
    assert cpu(backends="math").backends == ("MATH",)
    assert cpu(d_heads=80).d_heads == (80,)


def test_points_are_all_combinations_once() -> None:
    plan = cpu(
        d_heads=(64, 80, 64),
        backends=("auto", "MATH"),
        cases=("plain", "value_width"),
        directions=("forward", "forward+backward"),
    )
    points = plan.points()
    assert len(points) == len(set(points)) == 2 * 2 * 2 * 2
    assert Point("value_width", "MATH", "forward+backward", plan.seq_lens[0], 80) in points
    assert {p.d_head_v - p.d_head for p in points} == {0, EXTRA_VALUE_COLUMNS}


@pytest.mark.parametrize(
    ("n_heads", "n_kv_heads"), [(8, 2), (16, 4), (2, 1), (3, 1), (6, 1), (7, 1), (12, 3), (40, 10)]
)
def test_key_value_heads_divide_the_query_heads(n_heads: int, n_kv_heads: int) -> None:
    plan = cpu(n_heads=n_heads, cases=("gqa",))
    assert plan.n_kv_heads == n_kv_heads
    assert n_heads % plan.n_kv_heads == 0


def test_key_value_heads_as_the_definition_has_them() -> None:
    for n_heads in range(2, 500):
        divisors = [n for n in range(1, n_heads) if n_heads % n == 0]
        plan = cpu(n_heads=n_heads, d_heads=(8,), seq_lens=(8,))
        assert plan.n_kv_heads == min(divisors, key=lambda n: abs(n - n_heads / 4)), n_heads


def test_many_heads_cost_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("splitheads.timing.plan.device_memory", lambda device: 0)
    plan = cpu(n_heads=10**8, d_heads=(1,), seq_lens=(1,), cases=("gqa",))
    begin = time.perf_counter()
    for _ in range(1000):
        assert plan.kv_heads(plan.points()[0]) == 25 * 10**6
    assert time.perf_counter() - begin < 1


def test_a_plan_at_the_limit_gives_a_recording_that_is_in_order() -> None:
    """Not run, only written down: every point without a time."""
    assert MAX_POINTS == record.MAX_POINTS
    for changes in (
        {"d_heads": range(1, MAX_POINTS + 1), "seq_lens": (8,)},
        {"seq_lens": range(1, MAX_POINTS + 1), "d_heads": (8,), "budget_s": record.MOST_SECONDS},
        {"d_heads": range(1, 126), "seq_lens": range(1, 6), "directions": ("forward", "forward+backward"), "cases": tuple(CASES)},
    ):  # fmt: skip
        plan = cpu(**changes)
        points = plan.points()
        assert len(points) == MAX_POINTS
        made = recording([{"d_head": 8, "reason": "not run"}])
        shown = made["points"][0]
        made["plan"] = plan.as_dict()
        made["points"] = [{**shown, **point._asdict(), "d_head_v": point.d_head_v, "flops": plan.flops(point)} for point in points]  # fmt: skip
        made["agreement"] = record.agreement(made["points"])
        record.validate(made)
    with pytest.raises(PlanError, match=str(MAX_POINTS)):
        cpu(d_heads=range(1, MAX_POINTS + 2), seq_lens=(8,))


def test_arrays_are_lists_of_numbers() -> None:
    assert cpu(d_heads=numpy.array([64, 80])).d_heads == cpu(d_heads=torch.tensor([64, 80])).d_heads == (64, 80)
    assert cpu(d_heads=numpy.int64(64)).d_heads == (64,)
    assert cpu(device=torch.device("cpu")).device == "cpu"
    plan = cpu(target_width=numpy.float32(0.5), budget_s=numpy.float32(2), batch=numpy.int8(2))
    assert [type(value) for value in (plan.target_width, plan.budget_s, plan.batch)] == [float, float, int]


def test_operations_by_the_usual_convention() -> None:
    plan = cpu(batch=2, n_heads=4, seq_lens=(128,), cases=tuple(CASES), directions=("forward", "forward+backward"))
    plain = 4 * 2 * 4 * 128 * 128 * 64
    assert plan.flops(Point("plain", "auto", "forward", 128, 64)) == plain
    assert plan.flops(Point("causal", "auto", "forward", 128, 64)) == plain // 2
    assert plan.flops(Point("plain", "auto", "forward+backward", 128, 64)) == plain * 7 // 2
    assert plan.flops(Point("value_width", "auto", "forward", 128, 64)) == plain * (64 + 72) // 128


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("64", (64,)),
        ("32,64, 128", (32, 64, 128)),
        ("8:32:8", (8, 16, 24, 32)),
        ("8:30:8,65", (8, 16, 24, 65)),
        ("3:5", (3, 4, 5)),
        ("", ()),
    ],
)
def test_sweeps_as_text(text: str, numbers: tuple[int, ...]) -> None:
    assert widths(text) == numbers


@pytest.mark.parametrize("text", ["64;80", "8:64:0", "8:64:-8", "1:2:3:4", "::", "1:9999999999"])
def test_sweeps_that_cannot_be_read(text: str) -> None:
    with pytest.raises(PlanError, match="8:288:8"):
        widths(text)


def test_bytes_for_people() -> None:
    assert [size(n) for n in (7, 1234, 1.36e6, 2.5e10, 4e15)] == ["7 bytes", "1.2 KB", "1.4 MB", "25.0 GB", "4000 TB"]


def test_the_default_plan_shows_the_cpus_cliff() -> None:
    plan = default_plan("cpu", 30)
    assert {"plain", "value_width"} <= set(plan.cases)
    assert {"auto", "MATH"} <= set(plan.backends)
    assert set(range(32, 129, 32)) <= set(plan.d_heads)


def test_the_standard_plan_on_a_cpu() -> None:
    plans = [standard_plan("cpu", dtype) for dtype in standard_dtypes("cpu")]
    assert [plan.dtype for plan in plans] == ["fp32", "bf16"]
    assert sum(plan.budget_s for plan in plans) <= 240
    assert all(set(plan.cases) == set(CASES) for plan in plans)


def test_the_standard_plan_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planned without one: the shapes that the issue of a recorded sweep names, and few enough to be measured."""
    monkeypatch.setattr("splitheads.timing.plan._device", lambda device: "cuda")
    monkeypatch.setattr("splitheads.timing.plan.device_memory", lambda device: 80 * 10**9)
    plan = standard_plan("cuda", "bf16")
    assert {*range(8, 289, 8), 65, 100, 132, 512} <= set(plan.d_heads)
    assert set(plan.backends) == set(BACKENDS)
    assert plan.directions == ("forward", "forward+backward")
    assert len(plan.seq_lens) >= 3
    assert standard_dtypes("cuda") == ("bf16", "fp16")
