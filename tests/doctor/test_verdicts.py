"""Public bug reports and interview cases, each with the verdict that is right: through the function and the command."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from splitheads.doctor import diagnose
from splitheads.doctor.command import main
from splitheads.doctor.rules import diagnose_plain

CASES = json.loads(Path(__file__).with_name("verdicts.json").read_text(encoding="utf-8"))
TABLE = {
    *range(1, 5), 6, 7, 8, 10, 11, 12, 15, 16, 17, 19, *range(21, 29), *range(31, 44), *range(45, 56),
}  # fmt: skip
"""Numbers of the rows that the research settled."""


def number_of(row: str) -> int:
    return int(row.rstrip("abc"))


def test_every_row_of_the_table_is_here():
    assert {number_of(case["row"]) for case in CASES if case["from"] != "review"} == TABLE
    assert len({case["row"] for case in CASES}) == len(CASES)


def check(case: dict, report: dict) -> None:
    found = [finding["id"] for finding in report["findings"]]
    told = " ".join(" ".join([finding["message"], *finding["suggestions"]]) for finding in report["findings"])
    factors = " ".join(factor["text"] for factor in report["factors"])
    assert report["verdict"] == case["verdict"], told
    assert [name for name in case["ids"] if name not in found] == [], found
    assert [text for text in case["says"] if text not in told] == [], told
    assert [text for text in case["factors"] if text not in factors] == [], factors
    for name, value in case["derived"].items():
        assert report["derived"].get(name) == pytest.approx(value), name


@pytest.mark.parametrize("case", CASES, ids=[case["row"] for case in CASES])
def test_the_verdict_of_the_function(case):
    check(case, diagnose(case["config"]).to_dict())
    assert diagnose_plain(case["config"]) == {"report": diagnose(case["config"]).to_dict()}


@pytest.mark.parametrize("case", CASES, ids=[case["row"] for case in CASES])
def test_the_verdict_of_the_command(case, capsys):
    status = main(["--json", json.dumps(case["config"])])
    printed = capsys.readouterr()
    report = json.loads(printed.out)
    assert printed.err == ""
    assert status == (1 if case["verdict"] == "reject" else 0)
    assert report == json.loads(json.dumps(diagnose(case["config"]).to_dict()))
    check(case, report)


def test_the_checks_of_this_file_can_fail():
    case = CASES[0]
    report = diagnose(case["config"]).to_dict()
    for wrong in (
        {"verdict": "ok"},
        {"ids": ["no-such-finding"]},
        {"says": ["no such text"]},
        {"derived": {"d_head": 85}},
        {"factors": ["no such factor"]},
    ):
        with pytest.raises(AssertionError):
            check({**case, **wrong}, report)


def test_the_numbers_of_the_table_are_right():
    """The arithmetic behind the rows, by hand."""
    assert 1024 % 12 == 4
    assert 1024 % 24 == 16
    assert (24 * (4096 // 24), 24 * 128) == (4080, 3072)
    assert 2 * 36 * 8 * 128 * 2 == 147_456
    assert 2 * 32 * 8 * 128 * 2 * 8192 == 2**30
    assert 2 * 80 * 8 * 128 * 2 * 4096 == 1.25 * 2**30
    assert 61 * (512 + 64) * 2 == 70_272
    assert math.isclose(math.sqrt(512 / 64), 2.828, abs_tol=1e-3)
    assert math.isclose(math.sqrt(96 / 80), 1.0954, abs_tol=1e-4)
