"""One attention layer over several processes of this machine: PyTorch's own tensor parallelism, on the CPU.

    with Ranks(2) as ranks:
        result = ranks.run(n_heads=4, n_kv_heads=2, d_head=8)

Each rank is a process of its own. They talk over gloo, on the loopback interface, and find each other by a file: no
network, no port to choose, no host name to look up. q_proj, k_proj and v_proj are cut by their output columns,
o_proj by its input columns, with the two plans that `torch.distributed.tensor.parallel` has for that; the one sum at
the end is all that the ranks exchange in a forward pass (Shoeybi et al., 2019, section 3).

Letters in the shape comments: B batch, T tokens, h and kv the query and key/value heads *of this rank*, d = d_head.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

TOKENS = 5
BATCH = 2
GRACE = 3.0  # seconds that the other ranks get to answer once one of them has failed


class RankError(RuntimeError):
    """A rank failed, died or did not answer. The message has its number and what it said.

    `kind` is the name of the exception on the rank ("" if the process ended or kept silent), `rank` its number.
    """

    def __init__(self, message: str, rank: int, kind: str = "") -> None:
        super().__init__(message)
        self.rank = rank
        self.kind = kind


class Attention(nn.Module):
    """Causal self-attention that does not ask how many heads there are: as many as its projections give it.

    [B, T, d_model] -> [B, T, d_model], with d_model = n_heads * d_head and no biases.
    """

    def __init__(self, n_heads: int, n_kv_heads: int, d_head: int) -> None:
        super().__init__()
        self.d_head = d_head
        width, kv_width = n_heads * d_head, n_kv_heads * d_head
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, kv_width, bias=False)
        self.v_proj = nn.Linear(width, kv_width, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q = self.heads(self.q_proj(x))  # [B, h, T, d]
        k = self.heads(self.k_proj(x))  # [B, kv, T, d]
        v = self.heads(self.v_proj(x))  # [B, kv, T, d]
        self.held = q.shape[1], k.shape[1]
        k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
        v = v.repeat_interleave(q.shape[1] // v.shape[1], dim=1)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(out.transpose(1, 2).flatten(2))

    def heads(self, x: Tensor) -> Tensor:
        x = x.view(*x.shape[:2], -1, self.d_head)  # [B, T, h, d]
        return x.transpose(1, 2)  # [B, h, T, d]


def example(n_heads: int, n_kv_heads: int, d_head: int) -> tuple[Attention, Tensor]:
    """A layer and its input [2, 5, d_model], drawn from one seed: the same numbers in every process."""
    generator = torch.Generator().manual_seed(0)
    with torch.device("meta"):  # nothing is drawn here: the caller's own random numbers stay where they are
        layer = Attention(n_heads, n_kv_heads, d_head)
    layer.to_empty(device="cpu")
    for weight in layer.parameters():
        nn.init.normal_(weight, std=weight.shape[1] ** -0.5, generator=generator)
    return layer, torch.randn(BATCH, TOKENS, n_heads * d_head, generator=generator)


def run(
    n_heads: int, n_kv_heads: int | None = None, d_head: int = 8, world_size: int = 2, copies: bool = False
) -> dict:
    """`Ranks.run` on ranks that are started for it and ended after it."""
    with Ranks(world_size) as ranks:
        return ranks.run(n_heads, n_kv_heads, d_head, copies)


class Ranks:
    """`world_size` processes, started now and kept until `close`, the end of a `with`, or the end of this process.

    Args:
        world_size: how many.
        timeout: seconds to wait for an answer, and for the start.

    Raises:
        RankError: a rank does not start.
    """

    def __init__(self, world_size: int = 2, timeout: float = 90.0) -> None:
        if not isinstance(world_size, int) or not 1 <= world_size <= 16:
            raise ValueError(f"world_size = {world_size!r}: give a whole number of processes from 1 to 16.")
        if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
            raise RankError("this build of PyTorch has no gloo, so its processes cannot talk on a CPU.", 0)
        self.world_size, self.timeout = world_size, timeout
        self._folder = tempfile.mkdtemp(prefix="splitheads-ranks-")
        self._answers: queue.Queue = queue.Queue()
        self._processes: list[subprocess.Popen] = []
        # Also when this object is forgotten, and at the end of Python.
        self._end = weakref.finalize(self, _end, self._processes, self._folder)
        try:
            for rank in range(world_size):
                self._processes.append(self._start(rank))
            self._gather()
        except BaseException:
            self.close()
            raise

    def run(self, n_heads: int, n_kv_heads: int | None = None, d_head: int = 8, copies: bool = False) -> dict:
        """Forward and backward of one `Attention` layer, with the heads spread over the ranks.

        Nothing is checked beforehand: heads that do not come out even fail as they do in PyTorch. With
        `copies`, k_proj and v_proj are first repeated head by head until each rank gets one; n_kv_heads must divide world_size.

        Returns:
            output: [2, 5, d_model], the same on every rank. gradients: of `output.square().sum()`, by name,
            "x" and the four projections, put together. weights: by name, the shape [out, in] on each rank. held:
            (query heads, key/value heads) of each rank. collectives: how often what was called in the forward pass.

        Raises:
            RankError: a rank raised, ended or did not answer. After the first the ranks go on, if all of them answered.
        """
        n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        for name, value in (("n_heads", n_heads), ("n_kv_heads", n_kv_heads), ("d_head", d_head)):
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1024:
                raise ValueError(f"{name} = {value!r}: give a whole number from 1 to 1024; this runs on a CPU.")
        if n_heads % n_kv_heads:
            raise ValueError(f"n_kv_heads = {n_kv_heads} does not divide n_heads = {n_heads}.")
        if copies and self.world_size % n_kv_heads:
            raise ValueError(
                f"n_kv_heads = {n_kv_heads} does not divide world_size = {self.world_size}: some key/value heads would get "
                f"more copies than others."
            )
        answers = self._ask({"n_heads": n_heads, "n_kv_heads": n_kv_heads, "d_head": d_head, "copies": copies})
        outputs = [torch.tensor(answer["output"]) for answer in answers]
        for rank, output in enumerate(outputs):
            if not torch.equal(output, outputs[0]):
                raise RankError(f"rank {rank} has another output than rank 0.", rank)
        return {
            "output": outputs[0],
            "gradients": {name: torch.tensor(grad) for name, grad in answers[0]["gradients"].items()},
            "weights": {name: [tuple(answer["weights"][name]) for answer in answers] for name in answers[0]["weights"]},
            "held": [tuple(answer["held"]) for answer in answers],
            "collectives": answers[0]["collectives"],
        }

    def close(self) -> None:
        """End the processes. Calling it again does nothing."""
        self._end()

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def _start(self, rank: int) -> subprocess.Popen:
        with self._stderr(rank).open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", "splitheads.tensor_parallel", str(rank), str(self.world_size), self._folder],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=_environment(),
                text=True,
                encoding="utf8",
            )
        threading.Thread(target=_listen, args=(rank, process.stdout, self._answers), daemon=True).start()
        return process

    def _stderr(self, rank: int) -> Path:
        return Path(self._folder) / f"stderr-{rank}"

    def _ask(self, question: dict) -> list[dict]:
        if not self._end.alive:
            raise RankError("these ranks have been closed: start new ones.", 0)
        for rank, process in enumerate(self._processes):
            try:
                process.stdin.write(json.dumps(question) + "\n")
                process.stdin.flush()
            except OSError:  # it has ended; `_gather` says how
                self._answers.put((rank, None))
        return self._gather()

    def _gather(self) -> list[dict]:
        """One answer of each rank, in order. Where ranks have failed, raises what the first of them said."""
        answers: dict[int, dict] = {}
        until = time.monotonic() + self.timeout
        while len(answers) < self.world_size:
            try:
                rank, line = self._answers.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                silent = min(set(range(self.world_size)) - set(answers))
                self.close()  # it may wait for another one for ever
                late = RankError(f"rank {silent} of {self.world_size} has not answered for {self.timeout:g} s.", silent)
                raise self._failure(answers) or late from None
            if line is None:
                failure = self._failure(answers) or self._ended(rank)
                self.close()
                raise failure
            answers[rank] = json.loads(line)
            if "error" in answers[rank]:
                until = min(until, time.monotonic() + GRACE)
        failure = self._failure(answers)
        if failure is not None:
            raise failure
        return [answers[rank] for rank in range(self.world_size)]

    def _failure(self, answers: dict[int, dict]) -> RankError | None:
        for rank in sorted(answers):
            if "error" in answers[rank]:
                kind, said = answers[rank]["error"], answers[rank]["message"]
                return RankError(f"rank {rank} of {self.world_size}: {kind}: {said}", rank, kind)
        return None

    def _ended(self, rank: int) -> RankError:
        try:
            status: Any = self._processes[rank].wait(timeout=GRACE)
        except subprocess.TimeoutExpired:
            status = "unknown"
        said = self._stderr(rank).read_text("utf8", errors="replace").strip().splitlines()
        last = f" Its last words: {said[-1][:300]}" if said else ""
        return RankError(f"rank {rank} of {self.world_size} has ended (status {status}).{last}", rank)


def _environment() -> dict[str, str]:
    """This process's environment, less what would tell a rank that it belongs to another group."""
    taken = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")
    kept = {key: value for key, value in os.environ.items() if key not in taken and not key.startswith("TORCHELASTIC")}
    here = str(Path(__file__).resolve().parents[1])
    loopback = (
        [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")] if hasattr(socket, "if_nameindex") else []
    )
    return {
        **kept,
        **({"GLOO_SOCKET_IFNAME": loopback[0]} if loopback else {}),
        "PYTHONPATH": os.pathsep.join([here, *filter(None, [kept.get("PYTHONPATH")])]),
        "OMP_NUM_THREADS": "1",  # the ranks share this machine's cores
        "CUDA_VISIBLE_DEVICES": "",
    }


def _listen(rank: int, lines: Any, answers: queue.Queue) -> None:
    """Pass on what a rank says; None at its end."""
    with lines:
        for line in lines:
            answers.put((rank, line))
    answers.put((rank, None))


def _end(processes: list[subprocess.Popen], folder: str) -> None:
    for process in processes:
        with suppress(OSError):
            process.stdin.close()  # the end of its input is the end of a rank
    until = time.monotonic() + 1.0
    for process in processes:
        try:
            process.wait(timeout=max(0.05, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    shutil.rmtree(folder, ignore_errors=True)


# On a rank


def spread(layer: Attention, mesh: Any) -> None:
    """Cut the layer's projections over the ranks of a mesh, in place.

    The columns that come out of q_proj, k_proj and v_proj are dealt out in equal runs; o_proj takes its rank's run and
    the results are summed.
    """
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    plan = {
        "q_proj": ColwiseParallel(),
        "k_proj": ColwiseParallel(),
        "v_proj": ColwiseParallel(),
        "o_proj": RowwiseParallel(),
    }
    parallelize_module(layer, mesh, plan)


def copy_kv_heads(layer: Attention, copies: int) -> None:
    """Repeat each head of k_proj and v_proj in place: [kv*d, d_model] -> [kv*copies*d, d_model]."""
    for projection in (layer.k_proj, layer.v_proj):
        heads = projection.weight.detach().unflatten(0, (-1, layer.d_head))  # [kv, d, d_model]
        heads = heads.repeat_interleave(copies, dim=0)  # [kv*copies, d, d_model]
        projection.weight = nn.Parameter(heads.flatten(0, 1))  # [kv*copies*d, d_model]


def _answer(mesh: Any, n_heads: int, n_kv_heads: int, d_head: int, copies: bool) -> dict:
    from torch.distributed.tensor.debug import CommDebugMode

    layer, x = example(n_heads, n_kv_heads, d_head)
    times = mesh.size() // n_kv_heads if copies else 1
    copy_kv_heads(layer, times)
    spread(layer, mesh)
    x.requires_grad_()
    with CommDebugMode() as calls:
        output = layer(x)
    output.square().sum().backward()
    gradients = {"x": x.grad}
    for name, projection in layer.named_children():
        gradient = projection.weight.grad.full_tensor()
        if name in ("k_proj", "v_proj"):  # copies of one head share its gradient
            gradient = gradient.unflatten(0, (n_kv_heads, times, d_head)).sum(1).flatten(0, 1)
        gradients[name] = gradient
    return {
        "output": output.tolist(),
        "gradients": {name: gradient.tolist() for name, gradient in gradients.items()},
        "weights": {name: list(one.weight.to_local().shape) for name, one in layer.named_children()},
        "held": layer.held,
        "collectives": {str(call).rpartition(".")[2]: count for call, count in calls.get_comm_counts().items()},
    }


def _work(rank: int, world_size: int, folder: str) -> None:
    """Answer questions from standard input, a line each, until it ends."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # a notebook's interrupt reaches its children; they end with their input
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever else is printed is no answer

    import torch.distributed as dist

    torch.set_num_threads(1)
    store = dist.FileStore(str(Path(folder) / "store"), world_size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=timedelta(seconds=60))
    mesh = dist.init_device_mesh("cpu", (world_size,))
    print(json.dumps({"ready": rank}), file=answers, flush=True)
    for line in sys.stdin:
        try:
            answer = _answer(mesh, **json.loads(line))
        except Exception as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(answer), file=answers, flush=True)
    # Not by way of Python's own end: a group that lost a member may wait for it there.
    os._exit(0)


if __name__ == "__main__":
    _work(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
