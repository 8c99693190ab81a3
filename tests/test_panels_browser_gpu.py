"""Panel *browser GPU*, Python's side: the widths, what is loaded when, the recordings, the printed twin."""

from __future__ import annotations

import re
from importlib import import_module

import pytest
from splitheads.backends import flash_bucket
from splitheads.palette import SERIES
from splitheads.panels import browser_gpu
from splitheads.timing.record import FOLDER, RecordError, load

MODULE = import_module("splitheads.panels.browser_gpu")


def test_the_widths_are_those_of_the_policies():
    table = MODULE.widths()
    assert {name: len(column) for name, column in table.items()} == dict.fromkeys(MODULE.POLICIES, 256)
    by_hand = {
        1: (32, 16, 16),
        16: (32, 16, 16),
        33: (64, 64, 48),
        64: (64, 64, 64),
        65: (96, 128, 80),
        80: (96, 128, 80),
    }
    by_hand |= {
        96: (96, 128, 96),
        97: (128, 128, 112),
        129: (192, 256, 144),
        192: (192, 256, 192),
        256: (256, 256, 256),
    }
    for d, wanted in by_hand.items():
        assert tuple(table[name][d - 1] for name in ("buckets", "power of two", "exact")) == wanted, d
    for name, column in table.items():
        for d, width in enumerate(column, 1):
            assert d <= width <= 256, (name, d)
            assert width % 16 == 0, (name, d)
        assert column == sorted(column)
    assert table["buckets"] == [flash_bucket(d) for d in range(1, 257)]


def test_every_series_has_a_mark_of_its_own():
    named = {name for names in MODULE.KERNELS.values() for name in names}
    assert named == set(SERIES) == {*MODULE.POLICIES, "unfused"}
    assert len({colour for colour, _ in SERIES.values()}) == len({shape for _, shape in SERIES.values()}) == 4


def test_every_sweep_is_one_that_the_page_can_run():
    for sizes in MODULE.SIZES.values():
        assert sizes == sorted(set(sizes))
        assert 1 <= sizes[0] <= sizes[-1] <= MODULE.MOST
    edges = next(iter(MODULE.SIZES.values()))
    assert {32, 33, 64, 65, 96, 97} <= set(edges), "the default shows the steps"


def test_the_controls_and_the_view_start_alike_and_are_within_reach():
    panel = browser_gpu()
    assert panel.d_head.value == panel.view.d_head == 80
    for trait, name in {
        "sizes": "head sizes",
        "kernels": "kernels",
        "seq_len": "T",
        "dtype": "dtype",
        "seconds": "seconds",
    }.items():
        control = panel._named[name]
        assert control.index == getattr(panel.view, trait) == 0
        assert len(control.options) == len(panel.view.menus[trait])
    assert panel.recording is None
    panel.view.measured = {"schema": 1}
    assert panel.recording == {"schema": 1}


def test_what_is_loaded_later_is_not_in_the_first_text():
    panel = browser_gpu()
    first, later = panel.view._esm, panel.view.later
    assert set(later) == {"browser_gpu_part", "browser_gpu_bench"}
    for word in ("workgroupBarrier", "timingRules", "function chart("):
        assert word not in first
    assert "workgroupBarrier" not in later["browser_gpu_part"]
    assert "timingRules" not in later["browser_gpu_part"]
    assert "workgroupBarrier" in later["browser_gpu_bench"]
    assert not re.search(r"^(import|export) ", "".join(later.values()), flags=re.M)


def test_the_books_own_recordings_are_in_order_and_printed():
    files = sorted((FOLDER / "browser").glob("*.json"))
    assert files
    for file in files:
        recording = load(file)
        assert recording["device"]["type"] == "webgpu"
        assert all(point["status"] == "ok" for point in recording["points"])
    panel = browser_gpu()
    assert [one["name"] for one in panel.view.recordings] == [file.stem for file in files]
    assert MODULE.CAVEAT in panel._twin
    assert "buckets a circle, power of two a square, exact a diamond" in panel._twin
    assert "software adapter: the CPU computes" in panel._twin
    assert panel._twin.count("padding step") >= 3


def test_without_a_recording_there_is_a_panel_and_a_twin():
    panel = browser_gpu([])
    assert panel.view.recordings == []
    assert MODULE.CAVEAT in panel._twin


def test_a_recording_that_is_none_is_refused():
    with pytest.raises(RecordError, match="no recording of the timing lab"):
        browser_gpu([{"kind": "other"}])
