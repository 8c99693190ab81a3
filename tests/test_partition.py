"""The partition rule: what is accepted, what is refused, and what the refusal says."""

import copy
import dataclasses
import math
import os
import pickle
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import pytest
import splitheads
from splitheads.partition import (
    MAX_WIDTH,
    HeadSplit,
    SplitError,
    SplitTypeError,
    legal_head_counts,
    legal_widths,
    nearest_head_counts,
    nearest_widths,
    why_not,
)


def refusal(*args, **kwargs):
    with pytest.raises(SplitError) as info:
        HeadSplit(*args, **kwargs)
    return info.value


# What is accepted.


def test_accepts_a_pair_exactly_when_it_divides():
    wrong = []
    for d_model in range(1, 201):
        for n_heads in range(1, 65):
            accepted = why_not(d_model, n_heads) is None
            if accepted != (d_model % n_heads == 0):
                wrong.append((d_model, n_heads))
            if accepted:
                assert HeadSplit(d_model, n_heads).d_head * n_heads == d_model
    assert wrong == []


def test_accepts_key_value_heads_exactly_when_they_divide_the_heads():
    for n_heads in range(1, 41):
        for n_kv_heads in range(1, 45):
            accepted = why_not(40 * n_heads, n_heads, n_kv_heads) is None
            assert accepted == (n_heads % n_kv_heads == 0), (n_heads, n_kv_heads)


def test_derived_numbers_of_a_plain_split():
    split = HeadSplit(768, 12)
    assert (split.d_model, split.n_heads, split.n_kv_heads, split.d_head) == (768, 12, 12, 64)
    assert split.q_proj == split.k_proj == split.v_proj == split.o_proj == (768, 768)
    assert (split.inner_width, split.kv_width, split.group_size) == (768, 768, 1)
    assert split.follows_rule


def test_explicit_d_head_makes_a_wider_inner_width():
    split = HeadSplit(2560, 32, 8, 128)  # Qwen3-4B
    assert split.q_proj == (4096, 2560)
    assert split.k_proj == split.v_proj == (1024, 2560)
    assert split.o_proj == (2560, 4096)
    assert (split.inner_width, split.kv_width, split.group_size) == (4096, 1024, 4)
    assert not split.follows_rule


def test_explicit_d_head_makes_a_pair_legal_that_does_not_divide():
    assert isinstance(why_not(4096, 24), SplitError)
    split = HeadSplit(4096, 24, 8, d_head=128)
    assert split.q_proj == (3072, 4096)
    assert split.k_proj == (1024, 4096)


def test_explicit_d_head_wins_over_the_rule_when_both_are_possible():
    split = HeadSplit(5120, 32, 8, 128)  # Mistral-Nemo; the rule alone would say 160
    assert split.d_head == 128
    assert not split.follows_rule


def test_columns_share_out_the_width_without_gap_or_overlap():
    split = HeadSplit(24, 4)
    assert split.columns(1) == range(6, 12)
    assert [c for head in range(4) for c in split.columns(head)] == list(range(24))


@pytest.mark.parametrize("head", [4, -1, pytest.param(10**5000, id="huge")])
def test_columns_of_a_head_that_does_not_exist(head):
    with pytest.raises(IndexError, match="does not exist: this split has heads 0 to 3"):
        HeadSplit(24, 4).columns(head)


def test_columns_of_a_lone_head():
    with pytest.raises(IndexError, match="head = 1 does not exist: this split has head 0 only"):
        HeadSplit(24, 1).columns(1)


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ((768, 12), "d_head = 64: 768 columns / 12 heads"),
        ((768, 1), "d_head = 768: 768 columns / 1 head"),
        ((4096, 32, 8), "d_head = 128: 4096 columns / 32 heads, 8 key/value heads"),
        (
            (2560, 32, 8, 128),
            "d_head = 128, given explicitly: 32 heads × 128 = 4096 columns, d_model = 2560, 8 key/value heads",
        ),
    ],
)
def test_str(args, text):
    assert str(HeadSplit(*args)) == text


def test_equality_and_hash_ignore_how_the_numbers_were_given():
    short, long = HeadSplit(768, 12), HeadSplit(768, 12, n_kv_heads=12, d_head=64)
    assert short == long
    assert len({short, long}) == 1
    assert short != HeadSplit(768, 12, n_kv_heads=6)
    assert short != HeadSplit(768, 12, d_head=32)


def test_is_frozen_and_survives_pickle_and_copy():
    split = HeadSplit(2560, 32, 8, 128)
    with pytest.raises(dataclasses.FrozenInstanceError):
        split.n_heads = 16
    assert pickle.loads(pickle.dumps(split)) == split
    assert copy.deepcopy(split) == split
    assert dataclasses.replace(split, n_kv_heads=16) == HeadSplit(2560, 32, 16, 128)


class Number:
    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


def test_anything_with_index_is_normalised_to_int():
    split = HeadSplit(768, Number(12), Number(12))
    assert split == HeadSplit(768, 12)
    assert type(split.n_heads) is type(split.n_kv_heads) is int
    assert str(refusal(768, Number(-3))).startswith("n_heads = -3 is negative")


def test_numpy_integers_are_integers_and_numpy_bools_are_not():
    np = pytest.importorskip("numpy")
    split = HeadSplit(np.int64(768), np.uint8(12))
    assert type(split.d_model) is type(split.n_heads) is type(split.d_head) is int
    for value in (np.True_, np.float64(12.0), np.array([12, 12])):
        assert isinstance(why_not(768, value), SplitTypeError)


# What is refused.


@pytest.mark.parametrize(
    ("d_model", "n_heads", "remainder", "heads", "widths"),
    [
        (1024, 12, 4, (8, 16), (1020, 1032)),
        (1024, 24, 16, (16, 32), (1008, 1032)),
        (1600, 48, 16, (40, 50), (1584, 1632)),
        (512, 6, 2, (4, 8), (510, 516)),
        (512, 220, 72, (128, 256), (440, 660)),
        (1000, 16, 8, (10, 20), (992, 1008)),
        (4096, 24, 16, (16, 32), (4080, 4104)),
        (1021, 12, 1, (1, 1021), (1020, 1032)),  # a prime width
        (2, 8, 2, (2,), (8,)),
    ],
)
def test_refused_pairs(d_model, n_heads, remainder, heads, widths):
    error = refusal(d_model, n_heads)
    assert (error.argument, error.d_model, error.n_heads) == ("n_heads", d_model, n_heads)
    assert error.remainder == remainder
    assert error.nearest_heads == heads
    assert error.nearest_widths == widths
    assert (error.n_kv_heads, error.d_head, error.nearest_kv_heads) == (None, None, ())


def test_every_suggestion_works():
    for d_model in range(1, 121):
        for n_heads in range(1, 40):
            error = why_not(d_model, n_heads)
            if error is not None:
                assert error.nearest_heads
                assert error.nearest_widths
                for n in error.nearest_heads:
                    HeadSplit(d_model, n)
                for d in error.nearest_widths:
                    HeadSplit(d, n_heads)


def test_message_prints_both_numbers_the_remainder_and_the_way_out():
    assert str(refusal(1600, 48)) == (
        "d_model = 1600 does not divide into n_heads = 48: 1600 = 48 × 33 + 16, so 16 columns "
        "would be left over. Nearest head counts that divide 1600: 40 and 50. Nearest widths that "
        "48 divides: 1584 and 1632. Or give d_head explicitly: the heads then take 48 × d_head "
        "columns."
    )


def test_one_column_is_singular():
    assert "so 1 column would be left over" in str(refusal(1021, 12))


def test_more_heads_than_columns_has_its_own_message():
    assert str(refusal(2, 8)) == (
        "d_model = 2 is too narrow for n_heads = 8: d_head would be 2 / 8, less than one column. "
        "There is room for 2 heads of one column each; 8 heads need a width of 8 or a multiple of "
        "it. Or give d_head explicitly: the heads then take 8 × d_head columns."
    )
    assert HeadSplit(2, 8, d_head=1).inner_width == 8


def test_key_value_heads_that_do_not_divide():
    error = refusal(64, 8, 3)
    assert str(error) == (
        "n_kv_heads = 3 does not divide n_heads = 8: 8 = 3 × 2 + 2, so 2 query heads would be left "
        "over. Nearest key/value head counts that divide 8: 2 and 4."
    )
    assert (error.argument, error.n_heads, error.n_kv_heads) == ("n_kv_heads", 8, 3)
    assert (error.remainder, error.nearest_kv_heads) == (2, (2, 4))
    assert (error.d_model, error.nearest_heads, error.nearest_widths) == (None, (), ())


def test_more_key_value_heads_than_heads():
    error = refusal(64, 8, 16)
    assert str(error) == (
        "n_kv_heads = 16 is more than n_heads = 8, so some key/value heads would have no query "
        "head. Give a divisor of 8; 8 itself, one for each query head, is the most."
    )
    assert error.nearest_kv_heads == (8,)


def test_explicit_d_head_may_not_make_the_heads_wider_than_the_limit():
    assert HeadSplit(64, 2, d_head=MAX_WIDTH // 2).inner_width == MAX_WIDTH
    error = refusal(64, 2, d_head=MAX_WIDTH // 2 + 1)
    assert "d_head = 8388609 is too wide for n_heads = 2: 16777218 columns in all" in str(error)
    assert "Give d_head as 8388608 or less" in str(error)
    assert error.argument == "d_head"


NAMES = ("d_model", "n_heads", "n_kv_heads", "d_head")
HUGE = 10**5000


def arguments(name, value):
    return {"d_model": 768, "n_heads": 12, name: value}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("value", "says"),
    [
        (0, "= 0 is too small"),
        (-1, "= -1 is negative"),
        (-768, "= -768 is negative"),
        (MAX_WIDTH + 1, "= 16777217 is above the limit"),
        pytest.param(HUGE, "= <integer of about 5001 digits> is above the limit", id="huge"),
        pytest.param(-HUGE, "= <integer of about 5001 digits> is negative", id="minus huge"),
    ],
)
def test_integers_out_of_range(name, value, says):
    error = refusal(**arguments(name, value))
    assert type(error) is SplitError
    assert error.argument == name
    assert str(error).startswith(f"{name} {says}. Give {name} as an integer from 1 to 16777216")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("value", "shown", "kind"),
    [
        (12.0, "12.0", "float"),
        (12.5, "12.5", "float"),
        (math.nan, "nan", "float"),
        (math.inf, "inf", "float"),
        ("12", "'12'", "str"),
        (True, "True", "bool"),
        (False, "False", "bool"),
        (12j, "12j", "complex"),
        (Fraction(12), "Fraction(12, 1)", "Fraction"),
        ([12], "[12]", "list"),
        pytest.param("x" * 10**7, "'xxxxxxxxxxxx...", "str", id="long str"),
        pytest.param(b"x" * 10**6, "b'xxxxxxxxxxx...", "bytes", id="long bytes"),
        ([HUGE], "[<integer of about 5001 digits>]", "list"),
        ([["x" * 99] * 9] * 9, "[['xxxxx", "list"),
    ],
)
def test_values_that_are_not_integers(name, value, shown, kind):
    error = refusal(**arguments(name, value))
    assert type(error) is SplitTypeError
    assert isinstance(error, TypeError)
    assert isinstance(error, ValueError)
    assert error.argument == name
    assert str(error).startswith(f"{name} = {shown}")
    assert f"is of type {kind}, not an integer. Give {name} as an integer" in str(error)
    assert len(str(error)) < 250


@pytest.mark.parametrize("name", ["d_model", "n_heads"])
def test_none_is_refused_where_a_number_is_required(name):
    error = refusal(**arguments(name, None))
    assert str(error).startswith(f"{name} = None is of type NoneType, not an integer. Give {name}")


def test_a_broken_repr_does_not_hide_the_error():
    class Broken:
        def __repr__(self):
            raise RuntimeError("no repr")

    assert str(refusal(768, Broken())).startswith("n_heads = <Broken instance at")


def test_the_limit_itself_is_accepted():
    assert HeadSplit(MAX_WIDTH, MAX_WIDTH).d_head == 1


@pytest.mark.parametrize("args", [(1600, 48), (2, 8), (64, 8, 3), (0, 12), (768, "12")])
@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))])
def test_errors_survive_pickle_and_copy(args, duplicate):
    error = refusal(*args)
    twin = duplicate(error)
    assert type(twin) is type(error)
    assert str(twin) == str(error)
    assert vars(twin) == vars(error)
    assert twin.nearest_heads == error.nearest_heads


def test_why_not_returns_what_head_split_raises():
    assert why_not(768, 12) is None
    assert why_not(2560, 32, 8, d_head=128) is None
    assert str(why_not(1600, 48)) == str(refusal(1600, 48))


# Legal numbers nearby.


def test_legal_head_counts_against_brute_force():
    for d_model in range(1, 1500):
        assert legal_head_counts(d_model) == tuple(n for n in range(1, d_model + 1) if d_model % n == 0), d_model


def test_legal_head_counts_up_to_a_limit_that_is_included():
    assert legal_head_counts(768, max_heads=12) == (1, 2, 3, 4, 6, 8, 12)
    assert legal_head_counts(768, max_heads=11) == (1, 2, 3, 4, 6, 8)


def test_legal_head_counts_takes_about_sqrt_steps():
    start = time.perf_counter()
    counts = legal_head_counts(16777213)  # a prime just below the limit
    assert counts == (1, 16777213)
    assert time.perf_counter() - start < 0.1  # counting to the width itself takes about a second


@pytest.mark.parametrize(
    ("d_model", "n_heads", "per_side", "expected"),
    [
        (1000, 16, 2, (8, 10, 20, 25)),
        (1000, 16, 1, (10, 20)),
        (768, 12, 1, (8, 16)),  # 12 divides 768, and is still not its own neighbour
        (768, 12, 2, (6, 8, 16, 24)),
        (12, 1, 2, (2, 3)),
        (12, 12, 2, (4, 6)),
        (12, 5, 99, (1, 2, 3, 4, 6, 12)),
        (2, 8, 1, (2,)),
        (1, 1, 1, ()),
    ],
)
def test_nearest_head_counts(d_model, n_heads, per_side, expected):
    assert nearest_head_counts(d_model, n_heads, per_side) == expected


@pytest.mark.parametrize(
    ("d_model", "n_heads", "per_side", "expected"),
    [
        (1600, 48, 1, (1584, 1632)),
        (1600, 48, 2, (1536, 1584, 1632, 1680)),
        (768, 12, 1, (756, 780)),  # 768 is a multiple of 12, and is still not its own neighbour
        (10, 8, 3, (8, 16, 24, 32)),  # never 0
        (8, 8, 2, (16, 24)),
        (2, 8, 1, (8,)),
        (MAX_WIDTH - 1, 2, 2, (MAX_WIDTH - 4, MAX_WIDTH - 2, MAX_WIDTH)),  # never above the limit
    ],
)
def test_nearest_widths(d_model, n_heads, per_side, expected):
    assert nearest_widths(d_model, n_heads, per_side) == expected


def test_nearest_numbers_against_brute_force():
    for d_model in range(1, 60):
        for n_heads in range(1, 40):
            for per_side in (1, 2, 3):
                heads = [n for n in range(1, d_model + 1) if d_model % n == 0]
                low = [n for n in heads if n < n_heads][-per_side:]
                high = [n for n in heads if n > n_heads][:per_side]
                assert nearest_head_counts(d_model, n_heads, per_side) == (*low, *high)
                widths = range(n_heads, 300, n_heads)
                low = [d for d in widths if d < d_model][-per_side:]
                high = [d for d in widths if d > d_model][:per_side]
                assert nearest_widths(d_model, n_heads, per_side) == (*low, *high)


def test_legal_widths():
    assert list(legal_widths(48, 1536, 1632)) == [1536, 1584, 1632]
    assert list(legal_widths(48, 1537, 1631)) == [1584]
    assert list(legal_widths(48, 1585, 1631)) == []
    assert list(legal_widths(48, 1, 48)) == [48]
    assert list(legal_widths(48, 100, 1)) == []


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda bad: legal_head_counts(bad), "d_model"),
        (lambda bad: legal_head_counts(768, bad), "max_heads"),
        (lambda bad: nearest_head_counts(bad, 12), "d_model"),
        (lambda bad: nearest_head_counts(768, bad), "n_heads"),
        (lambda bad: nearest_head_counts(768, 12, bad), "per_side"),
        (lambda bad: nearest_widths(bad, 12), "d_model"),
        (lambda bad: nearest_widths(768, bad), "n_heads"),
        (lambda bad: nearest_widths(768, 12, bad), "per_side"),
        (lambda bad: legal_widths(bad, 1, 99), "n_heads"),
        (lambda bad: legal_widths(12, bad, 99), "low"),
        (lambda bad: legal_widths(12, 1, bad), "high"),
    ],
)
@pytest.mark.parametrize("bad", [0, -3, 2.0, True, "8", pytest.param(HUGE, id="huge")])
def test_functions_check_their_arguments_like_head_split(call, name, bad):
    with pytest.raises(SplitError, match=f"^{name} = ") as info:
        call(bad)
    assert info.value.argument == name


# The package.


def test_package_exports():
    assert splitheads.HeadSplit is HeadSplit
    assert splitheads.SplitError is SplitError
    assert splitheads.__version__ == "0.1.0"


IMPORT = """
import sys, time
sys.path.insert(0, sys.argv[1])
start = time.perf_counter()
import splitheads.partition
print(time.perf_counter() - start)
heavy = {"torch", "numpy", "matplotlib", "ipywidgets", "traitlets"}
print(*sorted(heavy & set(sys.modules)))
"""


def test_import_is_light_and_quick():
    folder = str(Path(splitheads.__file__).parents[1])
    seconds = []
    for _ in range(6):
        run = subprocess.run(
            [sys.executable, "-S", "-c", IMPORT, folder],  # -S: no site-packages to lean on
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
            env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        )
        elapsed, heavy = run.stdout.splitlines()
        assert heavy == ""
        seconds.append(float(elapsed))
    assert min(seconds) < 0.05, seconds


@pytest.mark.parametrize("make", ["tensor(True)", "tensor([12])", "tensor([[12]])", "zeros(3, dtype=bool)"])
def test_a_tensor_that_is_no_single_integer_is_none(make):
    import torch

    value = eval(f"torch.{make}", {"torch": torch, "bool": torch.bool})
    with pytest.raises(SplitTypeError, match="n_heads = "):
        HeadSplit(768, value)


def test_a_tensor_that_is_a_single_integer_is_one():
    import torch

    assert HeadSplit(torch.tensor(768), torch.tensor(12)) == HeadSplit(768, 12)
