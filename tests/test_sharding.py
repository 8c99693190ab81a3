"""Which tensor-parallel sizes heads admit: public reports, every small case by brute force, and what ranks hold."""

from __future__ import annotations

import re
import subprocess
import sys
from fractions import Fraction
from itertools import pairwise

import pytest
from conftest import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st
from splitheads import models, sharding
from splitheads.partition import MAX_WIDTH
from splitheads.sharding import STACKS, TEXTS, ShardError, kv_bytes_per_rank, shard, tp_sizes

REPORTS = [
    # n_heads, n_kv_heads, tp, stack, rule that refuses (None: admitted), sizes; rows 23 to 31 of the verdict table
    (52, 52, 3, "vllm", "heads", (1, 2, 4, 13, 26, 52)),
    (52, 52, 8, "vllm", "heads", (1, 2, 4, 13, 26, 52)),
    (40, 40, 3, "vllm", "heads", (1, 2, 4, 5, 8, 10, 20, 40)),
    (40, 8, 6, "vllm", "heads", (1, 2, 4, 8, 40)),
    (28, 4, 8, "vllm", "heads", (1, 2, 4, 28)),
    (28, 4, 7, "vllm", "kv", (1, 2, 4, 28)),
    (28, 4, 14, "vllm", "kv", (1, 2, 4, 28)),
    (32, 4, 8, "hf", "kv", (1, 2, 4)),
    (32, 4, 8, "vllm", None, (1, 2, 4, 8, 16, 32)),
    (9, 3, 2, "vllm", "heads", (1, 3, 9)),
]

GROUPED = st.builds(lambda kv, group: (kv * group, kv), st.integers(1, 48), st.integers(1, 24))
STACK = st.sampled_from(STACKS)


@pytest.mark.parametrize(("n_heads", "n_kv_heads", "tp", "stack", "rule", "sizes"), REPORTS)
def test_public_reports(n_heads, n_kv_heads, tp, stack, rule, sizes):
    assert tp_sizes(n_heads, n_kv_heads, stack) == sizes
    if rule is None:
        assert shard(n_heads, n_kv_heads, tp, stack).tp == tp
        return
    with pytest.raises(ShardError) as caught:
        shard(n_heads, n_kv_heads, tp, stack)
    assert caught.value.rule == rule
    assert caught.value.allowed == sizes
    for number in (n_heads, tp, *sizes):
        assert re.search(rf"\b{number}\b", str(caught.value))


def test_four_heads_on_eight_ranks_hold_what_four_would():
    """Row 28: each key/value head is on 2 ranks, and the cache on a rank is that of tp = 4."""
    four, eight = shard(32, 4, 4), shard(32, 4, 8)
    assert (four.replicas, eight.replicas) == (1, 2)
    assert four.kv_share == eight.kv_share == 0.25
    assert kv_bytes_per_rank(98304, 4, 8) == kv_bytes_per_rank(98304, 4, 4) == 24576


def test_why_7_and_14_are_refused_says_both_numbers():
    with pytest.raises(ShardError, match="4 is no multiple of 7, and 7 is no multiple of 4"):
        shard(28, 4, 7)
    with pytest.raises(ShardError, match="does not copy key/value heads"):
        shard(32, 4, 8, "hf")


# Brute force: deal heads out one by one, and look whether every rank got a fair and sufficient share.


def dealt(n_heads: int, n_kv_heads: int, tp: int, copies: bool) -> list[tuple[list[int], list[int]]] | None:
    """(query heads, key/value heads) of each rank; None where ranks would differ, or hold a head that others could not.

    Nothing of the rule is in here: each rank takes an equal run of query heads, and what they read.
    """
    runs = [[head for head in range(n_heads) if head * tp // n_heads == rank] for rank in range(tp)]
    reads = [sorted({head // (n_heads // n_kv_heads) for head in run}) for run in runs]
    if len({len(run) for run in runs}) > 1 or len({len(read) for read in reads}) > 1 or not all(runs):
        return None
    holders = [sum(head in read for read in reads) for head in range(n_kv_heads)]
    if len(set(holders)) > 1 or (holders[0] > 1 and not copies):
        return None
    # A head that lies on several ranks is a copy: then a rank may hold nothing else.
    return None if holders[0] > 1 and len(reads[0]) > 1 else list(zip(runs, reads, strict=True))


@pytest.mark.parametrize("stack", STACKS)
def test_every_small_case_by_dealing_heads_out(stack):
    admitted = 0
    for n_heads in range(1, 41):
        for n_kv_heads in [kv for kv in range(1, n_heads + 1) if n_heads % kv == 0]:
            sizes = tp_sizes(n_heads, n_kv_heads, stack)
            for tp in range(1, n_heads + 3):
                ranks = dealt(n_heads, n_kv_heads, tp, copies=stack != "hf")
                assert (ranks is not None) == (tp in sizes), (n_heads, n_kv_heads, tp)
                if ranks is None:
                    continue
                admitted += 1
                held = shard(n_heads, n_kv_heads, tp, stack)
                assert [held.heads(rank) for rank in range(tp)] == [tuple(heads) for heads, _ in ranks]
                assert [held.kv_heads(rank) for rank in range(tp)] == [tuple(kv) for _, kv in ranks]
    assert admitted > 300


# Properties


@settings(deadline=None, max_examples=300)
@given(GROUPED, STACK)
def test_every_size_shards_and_every_other_is_refused_with_the_sizes(heads, stack):
    n_heads, n_kv_heads = heads
    sizes = tp_sizes(n_heads, n_kv_heads, stack)
    assert sizes == tuple(sorted(set(sizes)))
    assert sizes[0] == 1
    for tp in range(1, n_heads + 1):
        if tp in sizes:
            held = shard(n_heads, n_kv_heads, tp, stack)
            assert (held.tp, held.stack) == (tp, stack)
            continue
        with pytest.raises(ShardError) as caught:
            shard(n_heads, n_kv_heads, tp, stack)
        error = caught.value
        assert error.rule == ("heads" if n_heads % tp else "kv")
        assert error.allowed == sizes
        assert error.nearest == (*[s for s in sizes if s < tp][-1:], *[s for s in sizes if s > tp][:1])
        named = [int(n) for n in re.findall(r"\d+", str(error).partition(f"admit ({stack}): ")[2])]
        assert named == list(sizes if len(sizes) <= 16 else (*error.nearest, len(sizes) - len(error.nearest)))


@given(GROUPED, STACK)
def test_heads_and_copies_sum_up(heads, stack):
    n_heads, n_kv_heads = heads
    for tp in tp_sizes(n_heads, n_kv_heads, stack):
        held = shard(n_heads, n_kv_heads, tp, stack)
        assert held.heads_per_rank * tp == n_heads
        assert held.kv_heads_per_rank * tp == n_kv_heads * held.replicas
        assert held.kv_share == held.kv_heads_per_rank / n_kv_heads
        assert [h for rank in range(tp) for h in held.heads(rank)] == list(range(n_heads))
        group = n_heads // n_kv_heads
        for rank in range(tp):
            assert {head // group for head in held.heads(rank)} == set(held.kv_heads(rank)), "all it reads, and no more"


@given(GROUPED, STACK, st.integers(1, 10**6))
def test_bytes_on_a_rank_never_grow_and_stop_shrinking_at_n_kv_heads(heads, stack, each):
    n_heads, n_kv_heads = heads
    whole = each * n_kv_heads
    found = {tp: kv_bytes_per_rank(whole, n_kv_heads, tp, stack) for tp in tp_sizes(n_heads, n_kv_heads, stack)}
    sizes = list(found)
    assert found[1] == whole
    for small, large in pairwise(sizes):
        assert found[large] <= found[small]
        if large <= n_kv_heads:
            assert found[large] < found[small]
    for tp, held in found.items():
        assert held == Fraction(whole, min(tp, n_kv_heads))
        assert held >= each, "no less than one key/value head's"
        assert held == whole * Fraction(shard(n_heads, n_kv_heads, tp, stack).kv_share).limit_denominator(n_kv_heads)


@given(GROUPED)
def test_stacks_that_copy_admit_all_that_the_other_does(heads):
    vllm, hf, ulysses = (set(tp_sizes(*heads, stack)) for stack in STACKS)
    assert hf <= vllm == ulysses
    assert hf == {tp for tp in vllm if tp <= heads[1]}


@given(st.integers(1, 600))
def test_without_grouping_every_divisor_is_admitted(n_heads):
    for stack in STACKS:
        assert tp_sizes(n_heads, n_heads, stack) == tuple(n for n in range(1, n_heads + 1) if n_heads % n == 0)


def test_the_latent_is_on_every_rank():
    assert [kv_bytes_per_rank(70272, None, tp) for tp in (1, 8, 128)] == [70272] * 3


def test_published_models_have_sizes():
    for row in models.rows():
        sizes = tp_sizes(row.n_heads, row.n_kv_heads)
        assert sizes[-1] == row.n_heads, "one head on each rank, and copies of what it reads"
    assert tp_sizes(71, 1) == (1, 71), "Falcon-7B: a prime number of heads"


# What cannot be asked


@pytest.mark.parametrize(
    "bad", [0, -1, True, 2.0, "8", None, float("nan"), MAX_WIDTH + 1, 10**5000, [8]], ids=lambda bad: type(bad).__name__
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_what_is_no_count_is_named(bad, place):
    call = [32, 8, 4]
    call[place] = bad
    with pytest.raises(ShardError, match="whole number from 1") as caught:
        shard(*call)
    assert caught.value.rule == "range"
    assert len(str(caught.value)) < 200
    if place < 2:
        with pytest.raises(ShardError):
            tp_sizes(*call[:2])


def test_heads_that_no_number_of_ranks_can_group():
    for call in (lambda: tp_sizes(8, 3), lambda: shard(8, 3, 1), lambda: tp_sizes(4, 8)):
        with pytest.raises(ShardError, match="does not divide n_heads") as caught:
            call()
        assert caught.value.rule == "groups"


@pytest.mark.parametrize("stack", ["vlm", "", "megatron", None, ["vllm"]])
def test_a_stack_that_is_not_known(stack):
    for call in (lambda: tp_sizes(8, 8, stack), lambda: kv_bytes_per_rank(64, 8, 2, stack)):
        with pytest.raises(ShardError, match="give one of vllm, hf and ulysses") as caught:
            call()
        assert caught.value.rule == "stack"


def test_bytes_of_heads_that_do_not_fit():
    with pytest.raises(ShardError, match="n_kv_heads = 4 cannot be spread over tp = 8: give a tp that divides it"):
        kv_bytes_per_rank(1024, 4, 8, "hf")
    with pytest.raises(ShardError, match="or is a multiple of it"):
        kv_bytes_per_rank(1024, 4, 6)


def test_a_rank_that_does_not_exist():
    held = shard(32, 8, 4)
    for rank in (-1, 4):
        with pytest.raises(ShardError, match="ranks are 0 to 3"):
            held.heads(rank)
        with pytest.raises(ShardError, match="ranks are 0 to 3"):
            held.kv_heads(rank)


def test_a_long_list_of_sizes_stays_short_in_the_message():
    with pytest.raises(ShardError, match="16 and 18, and 238 others") as caught:
        shard(720720, 720720, 17)
    assert len(caught.value.allowed) == 240


def test_the_largest_counts_are_answered_at_once():
    assert len(tp_sizes(MAX_WIDTH, MAX_WIDTH)) == 25


def test_every_stack_names_where_its_rule_was_read():
    assert set(TEXTS) == set(STACKS)
    for text in TEXTS.values():
        assert re.search(r"\.py", text)
        assert re.search(r" at [0-9a-f]{7}|\d+\.\d+\.\d+", text), "commit or version"


def test_what_is_said_of_transformers_is_what_the_installed_version_does():
    """It knows how many key/value heads a rank gets, answers None where they do not come out even, and copies none."""
    transformers = pytest.importorskip("transformers")
    from transformers.distributed import tensor_parallel

    assert transformers.__version__ in TEXTS["hf"]
    plan = {"layers.*.self_attn.k_proj": "colwise"}
    for n_kv_heads in range(1, 17):
        for tp in range(1, 33):
            held = tensor_parallel.get_kv_heads_per_rank(plan, n_kv_heads, tp)
            assert (held is not None) == sharding._kv_fit(n_kv_heads, tp, "hf")
            if held is not None:
                assert held == n_kv_heads // tp


def test_it_needs_the_standard_library_alone():
    code = "import sys, splitheads.sharding; assert not {'torch', 'numpy', 'ipywidgets'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT / "book", check=True)
