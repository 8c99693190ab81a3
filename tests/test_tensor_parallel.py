"""One attention layer over real processes: the same numbers as in one, the failures of PyTorch, and no process left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from conftest import ROOT
from splitheads import tensor_parallel
from splitheads.attention import MultiHeadAttention
from splitheads.sharding import shard, tp_sizes
from splitheads.tensor_parallel import Attention, RankError, Ranks, example, run


@pytest.fixture(scope="module")
def two():
    with Ranks(2) as ranks:
        yield ranks


def alone(n_heads: int, n_kv_heads: int, d_head: int) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Output and gradients of the same layer in this process."""
    layer, x = example(n_heads, n_kv_heads, d_head)
    x.requires_grad_()
    output = layer(x)
    output.square().sum().backward()
    return output, {"x": x.grad, **{name: one.weight.grad for name, one in layer.named_children()}}


def gone(pid: int, within: float = 15.0) -> bool:
    until = time.monotonic() + within
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        try:  # ended, and its parent has not looked yet: no process of ours any more
            with open(f"/proc/{pid}/stat", encoding="utf8") as stat:
                if stat.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except OSError:
            pass
        time.sleep(0.05)
    return False


# The same numbers


def agrees(result: dict, n_heads: int, n_kv_heads: int, d_head: int) -> None:
    output, gradients = alone(n_heads, n_kv_heads, d_head)
    torch.testing.assert_close(result["output"], output.detach(), atol=1e-5, rtol=1e-5)
    assert set(result["gradients"]) == {"x", "q_proj", "k_proj", "v_proj", "o_proj"}
    for name, gradient in gradients.items():
        torch.testing.assert_close(result["gradients"][name], gradient, atol=1e-4, rtol=1e-4, msg=name)


CASES = [(4, 4, 8), (4, 2, 8), (8, 2, 4), (6, 6, 5), (12, 4, 3), (2, 2, 16)]


@pytest.mark.parametrize(("n_heads", "n_kv_heads", "d_head"), CASES)
def test_two_ranks_have_the_result_of_one_process(two, n_heads, n_kv_heads, d_head):
    result = two.run(n_heads, n_kv_heads, d_head)
    agrees(result, n_heads, n_kv_heads, d_head)
    held = shard(n_heads, n_kv_heads, 2, "hf")
    assert result["held"] == [(held.heads_per_rank, held.kv_heads_per_rank)] * 2
    width, columns = n_heads * d_head, held.heads_per_rank * d_head
    kv_columns = held.kv_heads_per_rank * d_head
    assert result["weights"] == {
        "q_proj": [(columns, width)] * 2,
        "k_proj": [(kv_columns, width)] * 2,
        "v_proj": [(kv_columns, width)] * 2,
        "o_proj": [(width, columns)] * 2,
    }
    assert result["collectives"] == {"all_reduce": 1}, "one sum, at the end"


@pytest.mark.parametrize("n_heads", [2, 4, 6])
def test_a_copied_head_gives_the_same_result_and_its_gradient_is_the_sum_of_its_copies(two, n_heads):
    result = two.run(n_heads, 1, 8, copies=True)
    agrees(result, n_heads, 1, 8)
    held = shard(n_heads, 1, 2)
    assert held.replicas == 2
    assert result["held"] == [(held.heads_per_rank, held.kv_heads_per_rank)] * 2
    assert result["weights"]["k_proj"] == [(8, n_heads * 8)] * 2, "as much as without a second rank"


def test_four_ranks_with_two_copies_of_each_of_two_heads():
    result = run(8, 2, 4, world_size=4, copies=True)
    agrees(result, 8, 2, 4)
    held = shard(8, 2, 4)
    assert result["held"] == [(held.heads_per_rank, held.kv_heads_per_rank)] * 4 == [(2, 1)] * 4


def test_the_layer_is_the_one_of_the_other_chapters():
    layer, x = example(6, 2, 8)
    other = MultiHeadAttention(48, 6, n_kv_heads=2, bias=False)
    other.load_state_dict(layer.state_dict())
    torch.testing.assert_close(layer(x), other(x, is_causal=True), atol=1e-5, rtol=1e-5)


def test_every_process_draws_the_same_example():
    state = torch.get_rng_state()
    (one, x), (other, y) = example(4, 2, 8), example(4, 2, 8)
    assert torch.equal(x, y)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert torch.equal(torch.get_rng_state(), state), "and nobody's own random numbers change"


# Heads that do not come out even


def test_heads_that_do_not_come_out_even_fail_as_in_pytorch_and_the_ranks_go_on(two):
    """3 heads of 8 columns over 2 ranks: 12 columns each, a head and a half. Batch 2, 5 tokens: 120 numbers."""
    with pytest.raises(
        RankError, match=r"rank 0 of 2: RuntimeError: shape '\[2, 5, -1, 8\]' is invalid for input of size 120"
    ) as caught:
        two.run(3, 3, 8)
    assert (caught.value.rank, caught.value.kind) == (0, "RuntimeError")
    with pytest.raises(RankError, match="input of size 40"):  # half a key head
        two.run(4, 1, 8)
    agrees(two.run(4, 4, 8), 4, 4, 8)


def test_what_runs_is_what_the_rule_admits(two):
    """Every grouping of up to 8 heads, without copies and with: PyTorch on two ranks, and `tp_sizes`."""
    answers = set()
    for n_heads in range(1, 9):
        for n_kv_heads in [kv for kv in range(1, n_heads + 1) if n_heads % kv == 0]:
            for stack in ("hf", "vllm"):
                admitted = 2 in tp_sizes(n_heads, n_kv_heads, stack)
                ran, said = True, ""
                try:
                    two.run(n_heads, n_kv_heads, 4, copies=stack == "vllm" and n_kv_heads == 1)
                except RankError as error:
                    ran, said = False, str(error)
                assert ran == admitted, (n_heads, n_kv_heads, stack)
                assert ran or "is invalid for input of size" in said
                answers.add((stack, ran))
    assert len(answers) == 4


# Processes


def test_nothing_is_printed_and_nobody_is_left(capfd, monkeypatch):
    for name, value in {"RANK": "7", "WORLD_SIZE": "9", "MASTER_ADDR": "192.0.2.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)  # as a reader has who runs this inside another job
    with Ranks(2) as ranks:
        pids = [process.pid for process in ranks._processes]
        folder = ranks._folder
        ranks.run(2)
    assert capfd.readouterr() == ("", "")
    assert all(gone(pid) for pid in pids)
    assert not os.path.exists(folder)
    ranks.close()
    with pytest.raises(RankError, match="closed: start new ones"):
        ranks.run(2)


def test_a_rank_that_dies_is_an_error_and_no_hang():
    with Ranks(2, timeout=60) as ranks:
        pids = [process.pid for process in ranks._processes]
        ranks._processes[1].kill()
        start = time.monotonic()
        with pytest.raises(RankError, match=r"rank 1 of 2 has ended \(status -9\)") as caught:
            ranks.run(4)
        assert time.monotonic() - start < 30, "long before the timeout"
        assert caught.value.rank == 1
        assert all(gone(pid) for pid in pids)


def test_a_rank_that_keeps_silent_is_an_error_and_ends():
    with Ranks(2) as ranks:
        ranks.timeout = 1.0
        pids = [process.pid for process in ranks._processes]
        os.kill(pids[1], signal.SIGSTOP)
        with pytest.raises(RankError, match=r"has not answered for 1 s"):
            ranks.run(4)
        assert all(gone(pid) for pid in pids)


def test_a_rank_that_cannot_start_says_why(tmp_path, monkeypatch):
    (tmp_path / "splitheads").mkdir()
    (tmp_path / "splitheads" / "__init__.py").write_text("raise RuntimeError('no luck here')\n")
    monkeypatch.setattr(tensor_parallel, "_environment", lambda: {**os.environ, "PYTHONPATH": str(tmp_path)})
    with pytest.raises(RankError, match=r"has ended \(status 1\)\. Its last words: RuntimeError: no luck here"):
        Ranks(2)


def test_ranks_end_with_the_process_that_started_them():
    code = (
        "import sys; from splitheads.tensor_parallel import Ranks; ranks = Ranks(2);"
        "print(*[p.pid for p in ranks._processes], flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT / "book", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        parent.kill()
    assert all(gone(pid) for pid in pids)


def test_ranks_that_are_forgotten_end_too():
    ranks = Ranks(1)
    pid = ranks._processes[0].pid
    del ranks
    assert gone(pid)


def test_an_interrupt_of_the_notebook_does_not_end_the_ranks(two):
    for process in two._processes:
        os.kill(process.pid, signal.SIGINT)
    two.run(2)


# Arguments


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"n_heads": 0}, "n_heads = 0: give a whole number"),
        ({"n_heads": 4, "n_kv_heads": 3}, "n_kv_heads = 3 does not divide n_heads = 4"),
        ({"n_heads": 4, "d_head": 2.0}, "d_head = 2.0"),
        ({"n_heads": True}, "n_heads = True"),
        ({"n_heads": 10**6}, "this runs on a CPU"),
        ({"n_heads": 8, "n_kv_heads": 4, "copies": True}, "n_kv_heads = 4 does not divide world_size = 2"),
    ],
)
def test_what_cannot_be_asked(two, call, message):
    with pytest.raises(ValueError, match=message):
        two.run(**call)


@pytest.mark.parametrize("size", [0, 17, "2", None])
def test_a_number_of_processes_that_is_none(size):
    with pytest.raises(ValueError, match="world_size = "):
        Ranks(size)


def test_the_layer_takes_as_many_heads_as_its_projections_give():
    layer = Attention(4, 2, 8)
    layer.q_proj.weight.data = layer.q_proj.weight.data[:16]
    layer.k_proj.weight.data, layer.v_proj.weight.data = layer.k_proj.weight.data[:8], layer.v_proj.weight.data[:8]
    layer.o_proj.weight.data = layer.o_proj.weight.data[:, :16]
    assert layer(torch.randn(1, 3, 32)).shape == (1, 3, 32)
    assert layer.held == (2, 1)
