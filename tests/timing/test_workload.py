"""Where the inputs lie, and that every call gets the next ones."""

from __future__ import annotations

import collections

import pytest
import torch
from splitheads.timing import Plan, workload
from splitheads.timing.plan import CASES
from splitheads.timing.workload import ALIGN, Pool, Work

BOTH = ("forward", "forward+backward")


@pytest.mark.parametrize(("batch", "n_heads"), [(1, 7), (3, 4), (1, 1), (2, 6)])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_every_tensor_begins_at_a_multiple(batch: int, n_heads: int, dtype: str) -> None:
    """In every copy, not only in the first: kernels read 16 bytes at a time, and slower where they may not."""
    cases = tuple(case for case in CASES if case != "gqa" or n_heads > 1)
    plan = Plan("cpu", dtype, batch, n_heads, (1, 33, 128), (1, 7, 64, 65), directions=BOTH, cases=cases)
    points = plan.points()
    pool = Pool(plan, points)
    size, end = pool.numbers.element_size(), len(pool.numbers)
    several = 0
    for point in points:
        free = 0  # where the tensor before ended
        copies = pool.copies(point)
        several += copies > 1
        for copy in range(copies):
            for tensor in pool.inputs(point, copy):
                offset, left = divmod(tensor.data_ptr() - pool.numbers.data_ptr(), size)
                assert left == offset % ALIGN == 0, (point, copy)
                assert free <= offset, (point, copy, "two inputs share memory")
                free = offset + tensor.numel()
        assert free <= end
    assert several == len(points)


@pytest.mark.parametrize("direction", BOTH)
def test_every_call_runs_on_the_next_inputs(monkeypatch: pytest.MonkeyPatch, direction: str) -> None:
    plan = Plan("cpu", seq_lens=(16,), d_heads=(8,), n_heads=2, directions=(direction,))
    point = plan.points()[0]
    work = Work(Pool(plan, [point]), point)
    assert work.copies == workload.CPU_COPIES
    original, seen = torch.nn.functional.scaled_dot_product_attention, []

    def attention(q, k, v, **settings):
        seen.append((q.data_ptr(), k.data_ptr(), v.data_ptr()))
        return original(q, k, v, **settings)

    monkeypatch.setattr(workload.F, "scaled_dot_product_attention", attention)
    with work.context():
        for _ in range(3 * work.copies):
            work.call()
    assert set(collections.Counter(seen).values()) == {3}
    assert len({place for places in seen for place in places}) == 3 * work.copies
    assert seen[: work.copies] == seen[work.copies : 2 * work.copies] == seen[2 * work.copies :]
