"""The recordings that the book ships: valid, free of their machine's paths, and what the chapters say of them."""

from __future__ import annotations

import re

import pytest
from conftest import ROOT
from splitheads.timing import record
from splitheads.timing.analyse import analyse

FILES = sorted((ROOT / "book" / "recordings").glob("*.json"))


def test_there_are_recordings_and_the_listing_knows_them_all() -> None:
    assert FILES
    assert sorted(listed.path for listed in record.recordings()) == FILES


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_recording_is_valid_complete_and_says_nothing_of_its_machine_s_folders(path) -> None:
    recording = record.load(path)
    assert recording["command"].startswith("python -m splitheads time ")
    assert not re.search(r"(^|\s)/|~|\\", recording["command"])
    assert recording["ended"] in ("complete", "budget")
    assert all(point["status"] == "ok" or point["reason"] for point in recording["points"])
    assert recording["agreement"]["compared"] == recording["agreement"]["agree"] > 0


def cpu(dtype: str) -> dict:
    return next(
        listed.recording
        for listed in record.recordings()
        if listed.recording["device"]["type"] == "cpu" and listed.recording["plan"]["dtype"] == dtype
    )


def test_the_falls_that_the_chapter_names_are_in_the_recording() -> None:
    """ "65 costs more than 64 for each useful operation, and 100 more than 96", in every case that stayed fused."""
    fused = {"plain", "causal", "mask", "gqa"}
    found = {(step.before["case"], step.before["d_head"], step.after["d_head"]) for step in analyse(cpu("fp32")).steps}
    assert found == {(case, low, high) for case in fused for low, high in ((64, 65), (96, 100))}
    assert {step.kind for step in analyse(cpu("fp32")).steps} == {"unexplained"}


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_the_cliff_that_the_chapter_names_is_in_the_recordings(dtype) -> None:
    """Wider values, dropout, odd strides and 3-D input fall from FLASH to MATH, "several times as much"; a mask does not."""
    changes = {(step.after["case"], step.after["d_head"]): step for step in analyse(cpu(dtype)).changes}
    for case in ("value_width", "dropout", "strided", "unbatched"):
        step = changes[case, 64]
        assert step.kind == "backend change"
        assert (step.before["observed"], step.after["observed"]) == ("FLASH", "MATH")
        assert step.ratio > 2
    assert ("mask", 64) not in changes


def test_in_bf16_the_fall_is_deeper() -> None:
    depth = {
        dtype: next(
            s.ratio for s in analyse(cpu(dtype)).changes if (s.after["case"], s.after["d_head"]) == ("value_width", 64)
        )
        for dtype in ("fp32", "bf16")
    }
    assert depth["bf16"] > 1.5 * depth["fp32"]
