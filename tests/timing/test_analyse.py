"""Falls are found where they are, are not found where they are not, and get the label they deserve."""

from __future__ import annotations

import json
import math
import random
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from splitheads.timing.analyse import (
    ALPHA,
    analyse,
    is_fall,
    median_interval,
    order_statistics,
    staircase,
    widening,
)
from splitheads.timing.record import validate
from timing.synthetic import BROWSER, GPU, browser_cells, recording, samples, staircase_cells

CASES = json.loads(Path(__file__).with_name("cases.json").read_text("utf8"))
SIZES = range(8, 257, 8)


# Intervals


def test_the_limits_are_those_of_the_tables():
    # Ranks of the 95 % interval for the median, as printed (Conover, "Practical Nonparametric Statistics"; n = 6 ... 25).
    for n, k in {6: 1, 8: 1, 9: 2, 10: 2, 12: 3, 15: 4, 20: 6, 25: 8}.items():
        assert order_statistics(n)[0] == k, n
    low, high = 6, 15
    assert median_interval(range(1, 21)) == (10.5, low, high)
    assert median_interval(range(1, 21)).coverage == pytest.approx(0.9586, abs=1e-4)


@pytest.mark.parametrize("n", [6, 7, 10, 23, 41, 200, 999, 5000])
def test_the_coverage_is_exact(n):
    k, coverage = order_statistics(n)
    outside = 2 * sum(math.comb(n, i) for i in range(k))
    assert coverage == pytest.approx(1 - outside / 2**n, abs=1e-9)
    assert coverage >= 0.95
    assert 1 - (outside + 2 * math.comb(n, k)) / 2**n < 0.95, "the next rank would be too narrow"


def test_too_few_samples_give_their_range_and_say_so():
    for n in (1, 2, 5):
        made = median_interval([3.0, 1.0, 2.0, 5.0, 4.0][:n])
        assert not made.enough
        assert made.coverage == pytest.approx(1 - 2 * 0.5**n)
    assert median_interval([3, 1, 2, 5, 4]) == (3, 1, 5)
    assert median_interval([7.0]) == (7, 7, 7)
    assert median_interval([3, 1, 2, 5, 4, 6]).enough


def test_the_interval_holds_as_often_as_it_says():
    rng = random.Random(5)
    for kind in ("lognormal", "spiky"):
        true = statistics.median(samples(1, 100_001, 0.1, rng, kind))
        for n in (6, 11, 30):
            hits = 0
            for _ in range(2000):
                _, low, high = median_interval(samples(1, n, 0.1, rng, kind))
                hits += low <= true <= high
            assert hits / 2000 > 0.94, (kind, n)


@pytest.mark.parametrize(
    ("values", "confidence", "says"),
    [([], 0.95, "no samples"), ([1, math.nan], 0.95, "no finite"), ([1], 0, "between 0 and 1"), ([1], 1, "between")],
)
def test_what_has_no_interval_is_refused(values, confidence, says):
    with pytest.raises(ValueError, match=says):
        median_interval(values, confidence)


def test_widening_is_students():
    # Two-sided 5 % and 0.5 % points of t, from the tables, over what each interval covers (never narrower than it is).
    for comparisons, repeats, t in (
        (1, 5, 2.776),
        (1, 11, 2.2281),
        (1, 31, 2.0423),
        (10, 21, 3.1534),
        (10, 10**6, 2.807),
    ):
        covered = statistics.NormalDist().inv_cdf((1 + order_statistics(repeats)[1]) / 2)
        assert widening(comparisons, repeats) * covered == pytest.approx(max(t, covered), rel=5e-3)
    assert widening(40, 20) > widening(4, 20) > widening(4, 200)


# The rule: how often it is wrong, and how often it is right


@pytest.mark.parametrize("kind", ["lognormal", "spiky"])
@pytest.mark.parametrize(("noise", "repeats"), [(0.01, 20), (0.03, 4), (0.1, 20), (0.3, 5), (0.3, 40)])
def test_noise_alone_is_no_cliff(kind, noise, repeats):
    """200 sweeps of 32 sizes on which nothing happens: fewer than 5 % may show anything."""
    cells = [{"d_head": d} for d in SIZES]
    sweeps = [analyse(recording(cells, seed=s, noise=noise, repeats=repeats, kind=kind)) for s in range(200)]
    assert sum(bool(a.steps) for a in sweeps) < ALPHA * 200
    assert sum(bool(a.rises) for a in sweeps) < ALPHA * 200


def test_a_fall_of_a_fifth_is_found():
    """80 columns in a 96-wide kernel: 20 % more time. 3 % of noise and 20 repeats: found in over 95 % of the sweeps."""
    found = 0
    for seed in range(200):
        cells = [{"d_head": d, "speed": 0.5 / (1.2 if d >= 128 else 1)} for d in SIZES]
        steps = analyse(recording(cells, seed=seed, noise=0.03, repeats=20)).steps
        found += [s.after["d_head"] for s in steps] == [128]
        for step in steps:
            assert step.ratio_interval[0] < step.ratio < step.ratio_interval[1]
    assert found > 0.95 * 200


def test_a_fall_smaller_than_the_noise_gets_no_label():
    for seed in range(100):
        cells = [{"d_head": d, "speed": 0.5 / (1.1 if d >= 128 else 1)} for d in SIZES]
        assert not analyse(recording(cells, seed=seed, noise=0.2, repeats=10)).steps


def test_the_interval_of_the_ratio_holds_the_truth():
    inside = total = 0
    for seed in range(100):
        for step in analyse(recording(staircase_cells([32, 64, 80, 96, 112]), seed=seed, device=GPU, noise=0.03)).steps:
            b, a = step.before["d_head"], step.after["d_head"]
            width = {64: 64, 80: 96, 96: 96, 112: 128, 32: 32}
            total += 1
            inside += step.ratio_interval[0] <= (width[a] / a) / (width[b] / b) <= step.ratio_interval[1]
    assert total > 150
    assert inside / total > 0.95


def test_distances_add_as_squares_on_the_log_scale():
    """3, 4, 5: the limits of a ratio, worked out by hand from two intervals."""
    made = recording([{"d_head": d, "repeats": 20} for d in (64, 72)])
    f = widening(1, 20)
    for point, (median, down, up) in zip(made["points"], ((1e-3, 0.05, 0.03), (2e-3, 0.04, 0.12)), strict=True):
        point["median_s"], point["interval_s"] = median, [median * math.exp(-down), median * math.exp(up)]
    made["duration_s"] = 10
    made["ceilings"]["matmul_flops_per_s"] = None
    validate(made)
    (step,) = analyse(made).steps
    ratio = 2 * 64 / 72
    assert step.ratio == pytest.approx(ratio)
    # Down: 0.04 of the second and 0.03 of the first. Up: 0.12 and 0.05.
    assert step.ratio_interval == pytest.approx((ratio * math.exp(-0.05 * f), ratio * math.exp(0.13 * f)))


def test_many_repeats_and_any_confidence_have_a_widening():
    for repeats in (4, 6, 54, 400, 10**6):
        for confidence in (0.5, 0.95, 1 - 2**-53):
            assert 1 <= widening(30_000, repeats, confidence) < 200


def test_sizes_and_keys_that_no_kernel_has():
    made = recording([{"d_head": d} for d in (64, 80)], device=GPU, torch="2.15.0")
    made["plan"]["d_heads"].append(2**30)
    validate(made)
    assert analyse(made).buckets == {64: 64, 80: 96, 2**30: None}
    for key in ("sm²²", "sm" + "9" * 5000, "sm", "gpu"):
        assert staircase([64], "2.15.0", key) == {64: None}
    assert staircase([64], None, "sm80") == {64: None}


def test_the_rule_has_two_margins():
    assert is_fall(1.06, (1.03, 1.1))
    assert not is_fall(1.04, (1.03, 1.05)), "too small"
    assert not is_fall(1.3, (1.01, 1.6)), "not sure enough"


# Labels, against cases that were made for them


@pytest.mark.parametrize("case", CASES, ids=lambda c: c["name"])
def test_a_case_gets_the_labels_it_was_made_for(case):
    validate(case["recording"])
    found, expected = analyse(case["recording"]), case["expected"]
    for steps, wanted in ((found.steps, expected["steps"]), (found.rises, expected["rises"])):
        assert [[s.before["d_head"], s.after["d_head"], s.kind] for s in steps] == [w[:3] for w in wanted]
        for step, (*_, ratio) in zip(steps, wanted, strict=True):
            assert step.along == "d_head"
            assert step.ratio_interval[0] < ratio < step.ratio_interval[1]
    for steps, wanted in ((found.changes, expected["changes"]), (found.gains, expected["gains"])):
        key = sorted([s.after["d_head"], s.after["case"], s.after["backend"], s.before["observed"], s.after["observed"]] for s in steps)  # fmt: skip
        assert key == sorted(w[:5] for w in wanted)
        for step in steps:
            ratio = next(w[5] for w in wanted if w[:3] == [step.after["d_head"], step.after["case"], step.after["backend"]])  # fmt: skip
            assert step.kind == "backend change"
            assert step.ratio_interval[0] < ratio < step.ratio_interval[1]


def by_name(name: str):
    return analyse(next(c["recording"] for c in CASES if c["name"] == name))


def test_texts_say_what_happened():
    step = by_name("the staircase of FlashAttention-2").steps[1]
    assert step.text.startswith(
        "d_head 64 → 80: padding step, FLASH in the 64-wide kernel → the 96-wide one, 83 % of it useful:"
    )
    assert "more time per useful operation (1." in step.text
    changes = by_name("one change to the call, on a CPU").changes
    text = next(c.text for c in changes if c.after["case"] == "value_width" and c.after["d_head"] == 64)
    assert text.startswith("d_head 64, with d_v = d_head + 8: backend change, FLASH → MATH, 4.0 times slower (")
    assert text.endswith("32.0 times the peak memory")
    assert any("forced to MATH: backend change, FLASH → MATH" in c.text for c in changes)
    assert "unexplained" in by_name("a fall where nobody looked").steps[0].text
    assert "CUDNN, forced, is 1.8" in by_name("a forced backend that beats the choice").gains[0].text


def page(d_heads: list[int], policies: list[str], **more) -> dict:
    return recording(browser_cells(d_heads, policies, **more), device=BROWSER, torch=None)


def test_a_page_names_the_widths_and_forces_nothing():
    found = analyse(page([64, 65, 80], ["buckets", "exact", "unfused"]))
    assert [step.text.partition(":")[2].split(": ")[0].strip() for step in found.steps] == [
        "padding step, the 64-wide kernel → the 96-wide one, 68 % of it useful",
        "padding step, the 64-wide kernel → the 80-wide one, 81 % of it useful",
    ]
    assert [(c.before["backend"], c.after["backend"], c.after["d_head"]) for c in found.changes] == [
        ("buckets", "unfused", d) for d in (64, 65, 80)
    ]
    text = found.changes[0].text
    assert text.startswith("d_head 64, unfused instead of buckets: 4.0 times slower (")
    assert text.endswith("5.0 times the peak memory")
    assert [rise.text.split(":")[0] for rise in found.rises] == ["d_head 65 → 80 (buckets)", "d_head 65 → 80 (exact)"]
    # Along d_head 3 times 2, and unfused at 3 sizes: what is not compared widens no interval.
    assert found.rule.comparisons == 9
    assert not found.flags


def test_unfused_is_compared_with_the_first_fused_series_of_the_plan_wherever_it_stands():
    for policies, first in ((["unfused", "exact", "buckets"], "exact"), (["power of two", "unfused"], "power of two")):
        found = analyse(page([64, 128], policies, unfused=0.05))
        assert {change.before["backend"] for change in found.changes} == {first}
    alone = analyse(page([64, 128], ["unfused"]))
    assert (alone.changes, alone.gains, alone.rule.comparisons) == ((), (), 1)
    faster = analyse(page([128], ["buckets", "unfused"], unfused=1.0)).gains
    assert faster[0].text.startswith("d_head 128: unfused is 2.5 times faster than buckets (")


def test_one_width_on_both_sides_is_no_padding_step():
    made = page([72, 80, 88], ["buckets"])
    for point in made["points"]:
        if point["d_head"] == 88:
            point["median_s"], point["interval_s"] = 2 * point["median_s"], [2 * x for x in point["interval_s"]]
    made["duration_s"] *= 2
    validate(made)
    (step,) = analyse(made).steps
    assert (step.kind, step.after["d_head"]) == ("unexplained", 88)
    assert "FUSED on both sides" in step.text


def test_a_page_with_an_auto_series_is_compared_with_that():
    made = recording([{"d_head": 64, "backend": b, "observed": o, "speed": s} for b, o, s in (("auto", "tiled", 0.5), ("plain loop", "naive", 0.1))], device=BROWSER, torch=None)  # fmt: skip
    assert [change.after["backend"] for change in analyse(made).changes] == ["plain loop"]


def test_flags_say_what_was_left_out():
    flags = " · ".join(by_name("a failed point, too few repeats, and the impossible").flags)
    assert "1 point with fewer than 4 repeats" in flags
    assert "1 point above the ceiling" in flags
    assert "1 point without a time" in flags
    assert "FLASH → EFFICIENT, without a fall beyond the noise" in by_name("another backend, no slower").flags[0]
    made = recording([{"d_head": 64, "predicted": "CUDNN"}])
    made["ended"] = "interrupted"
    flags = analyse(made).flags
    assert any("another backend ran than predicted" in f for f in flags)
    assert any("interrupted" in f for f in flags)


def test_the_rule_is_stated_with_its_numbers():
    rule = by_name("noise of 3 % and no step").rule
    assert rule.comparisons == 12
    for part in ("more than 5%", "above 1.02", "12 comparisons", "fewer than 4 repeats"):
        assert part in rule.text


def test_series_carry_throughput_share_and_intervals():
    made = recording([{"d_head": 80}, {"d_head": 64}, {"d_head": 64, "case": "causal"}], rate=2e11)
    series = analyse(made).series
    assert [(s.case, [p["d_head"] for p in s.points]) for s in series] == [("plain", [64, 80]), ("causal", [64])]
    for line in series:
        for point in line.points:
            low, high = point["flops_per_s_interval"]
            assert low <= point["flops_per_s"] <= high
            assert point["flops_per_s"] == point["flops"] / point["median_s"]
            assert point["share"] == pytest.approx(point["flops_per_s"] / 2e11)
    made["ceilings"]["matmul_flops_per_s"] = None
    assert analyse(made).series[0].points[0]["share"] is None


def test_an_empty_recording_is_analysed():
    made = recording([{"d_head": 64, "reason": "out of memory"}])
    found = analyse(made)
    assert (found.series, found.steps, found.changes, found.rule.comparisons) == ((), (), (), 0)
    made["points"] = []
    assert analyse(made).series == ()


# Prediction


def test_the_staircase_is_d_over_the_compiled_width():
    assert staircase([64, 72, 80, 96, 256, 264], "2.15.0", "sm80") == {
        64: 1,
        72: 0.75,
        80: 80 / 96,
        96: 1,
        256: 1,
        264: None,
    }
    assert staircase([224], "2.6.0", "sm90") == {224: 1}
    assert staircase([224], "2.15.0+cu130", "sm90") == {224: 224 / 256}
    for device in ("cpu", "mps", "sm75"):
        assert staircase([64, 80], "2.15.0", device) == {64: None, 80: None}


def test_an_unknown_version_is_judged_by_the_nearest_and_says_so():
    found = analyse(recording(staircase_cells([56, 64, 72, 80]), device=GPU, torch="9.1.0"))
    assert [s.kind for s in found.steps] == ["padding step"]
    assert any("9.1.0 are not known" in f for f in found.flags)


def test_reading_and_analysing_need_the_standard_library_only():
    code = (
        "import sys; from splitheads.timing import record, analyse; "
        "print(sorted({'torch', 'numpy', 'matplotlib', 'ipywidgets'} & set(sys.modules)))"
    )
    book = Path(__file__).resolve().parents[2] / "book"
    done = subprocess.run([sys.executable, "-c", code], cwd=book, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
