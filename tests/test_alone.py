"""Which tests run with the machine to themselves: those that read a clock."""

from __future__ import annotations

import time

import pytest
from conftest import ALONE, ROOT, reads_a_clock

PROGRAM = """
import time
print(time.perf_counter())
"""
OTHER_PROGRAM = "print(1)"


def helper():
    return time.monotonic()


def other_helper():
    return OTHER_PROGRAM


def by_itself():
    assert time.perf_counter()


def by_a_program():
    assert PROGRAM


def by_a_function():
    assert helper()


def not_at_all():
    assert other_helper()
    assert OTHER_PROGRAM


@pytest.mark.parametrize("function", [by_itself, by_a_program, by_a_function, not_at_all])
def test_a_clock_is_noticed(function):
    assert reads_a_clock(function) == (function is not not_at_all)


def test_the_files_that_run_alone_are_there():
    assert [name for name in ALONE if not (ROOT / name).is_file()] == []
