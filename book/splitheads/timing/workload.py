"""The calls that are timed: attention for one point of a plan, and the two ceilings.

All points cut their inputs from one pool of random normal numbers, so that a sweep of a thousand points needs
no more memory than its largest one. The numbers are random because zeros are a special case: they toggle fewer
bits, draw less power and run faster than any real input (measured on an H100, NVIDIA/cutlass issue 2004).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from splitheads.timing.machine import memory
from splitheads.timing.plan import DROPOUT, DTYPES, ITEM_BYTES, Plan, Point

KERNELS = {
    "FLASH": SDPBackend.FLASH_ATTENTION,
    "EFFICIENT": SDPBackend.EFFICIENT_ATTENTION,
    "CUDNN": SDPBackend.CUDNN_ATTENTION,
    "MATH": SDPBackend.MATH,
}
CPU_COPIES = 4
GPU_CALLS = 64  # most calls in one sample on a GPU, each with inputs of its own
ALIGN = 256  # elements; each tensor begins at a multiple, as one from the allocator would


def free_memory(device: str) -> int:
    """Bytes that the device can give right now; 0 where it cannot be told."""
    if device.startswith("cuda"):
        # What PyTorch's allocator holds without using it is free for the next tensor, too.
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(torch.device(device))[0] + unused
    if device.startswith("mps"):
        return int(torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())
    return memory()[1]


def backend_context(backend: str) -> contextlib.AbstractContextManager:
    """Allow this backend alone; "auto" leaves the choice to PyTorch."""
    return contextlib.nullcontext() if backend == "auto" else sdpa_kernel(KERNELS[backend])


def _aligned(count: int) -> int:
    return -(-count // ALIGN) * ALIGN


class Pool:
    """Random normal numbers on the device, from which the inputs of every point are cut."""

    def __init__(self, plan: Plan, points: list[Point]) -> None:
        self.plan = plan
        self.dtype = getattr(torch, DTYPES[plan.dtype])
        self.on_gpu = plan.device_type == "cuda"
        sets = [self._set(point) for point in points]
        wanted = max(size * self._copies_wanted(point) for size, point in zip(sets, points, strict=True))
        room = free_memory(plan.device) // (8 if self.on_gpu else 4) // ITEM_BYTES[plan.dtype] or wanted
        if not self.on_gpu:
            # A CPU draws some 10^8 numbers a second: no more than a twentieth of the budget for them. The largest
            # points then have fewer copies, and are larger than the caches anyway.
            room = min(room, int(plan.budget_s / 20 * 1e8))
        elements = max(min(wanted, room), max(sets))
        self.generator = torch.Generator(plan.device).manual_seed(plan.seed)
        self.numbers = self._normal(elements)
        self._masks: dict[int, torch.Tensor] = {}

    def _normal(self, elements: int) -> torch.Tensor:
        made = torch.empty(elements, dtype=self.dtype, device=self.plan.device)
        piece = 2**24  # PyTorch draws half-precision numbers slowly on a CPU; in pieces, fp32 needs little room
        for start in range(0, elements, piece):
            part = made[start : start + piece]
            part.copy_(torch.randn(part.shape, generator=self.generator, device=self.plan.device))
        return made

    def _shapes(self, point: Point) -> list[tuple[int, int]]:
        """(heads, width) of Q, K, V and, for a backward pass, of the upstream gradient."""
        heads, kv_heads = self.plan.n_heads, self.plan.kv_heads(point)
        shapes = [(heads, point.d_head), (kv_heads, point.d_head), (kv_heads, point.d_head_v)]
        return shapes + [(heads, point.d_head_v)] * point.backward

    def _set(self, point: Point) -> int:
        """Numbers of the pool that one set of inputs takes; a multiple of ALIGN, so that the next set begins at one."""
        tokens = self.plan.batch * point.seq_len
        return sum(_aligned(tokens * heads * width) for heads, width in self._shapes(point))

    def _copies_wanted(self, point: Point) -> int:
        if not self.on_gpu:
            return CPU_COPIES
        # A sample is to last a millisecond; 300 TFLOP/s is a guess on the fast side, more copies than needed do no harm.
        return max(2, min(GPU_CALLS, int(1e-3 * 3e14 / self.plan.flops(point))))

    def copies(self, point: Point) -> int:
        """Sets of inputs that this point can have, each in memory of its own: at least 1."""
        most = len(self.numbers) // self._set(point)
        return max(1, min(most, GPU_CALLS if self.on_gpu else CPU_COPIES))

    def mask(self, seq_len: int) -> torch.Tensor:
        """Boolean, (T, T): True may attend; the diagonal always, so that no row is empty."""
        if seq_len not in self._masks:
            self._masks.clear()
            shape = seq_len, seq_len
            made = torch.rand(shape, generator=self.generator, device=self.plan.device) < 0.9
            self._masks[seq_len] = made.logical_or_(torch.eye(seq_len, dtype=torch.bool, device=self.plan.device))
        return self._masks[seq_len]

    def inputs(self, point: Point, copy: int) -> list[torch.Tensor]:
        """Q, K, V and, for a backward pass, the upstream gradient, from set number `copy`."""
        plan, place = self.plan, copy * self._set(point)
        made: list[torch.Tensor] = []
        for n_heads, width in self._shapes(point):
            count = plan.batch * n_heads * point.seq_len * width
            flat = self.numbers[place : place + count]
            place += _aligned(count)
            if point.case == "strided" and len(made) < 3:
                tensor = flat.view(plan.batch, n_heads, width, point.seq_len).transpose(-1, -2)
            elif point.case == "unbatched":
                tensor = flat.view(plan.batch * n_heads, point.seq_len, width)
            else:
                tensor = flat.view(plan.batch, n_heads, point.seq_len, width)
            made.append(tensor)
        return made


class Work:
    """One point, ready to be called: `call()` runs attention once, each time on the next of `copies` sets of inputs."""

    def __init__(self, pool: Pool, point: Point) -> None:
        self.point = point
        self.copies = pool.copies(point)
        settings: dict[str, Any] = {}
        if point.case == "causal":
            settings["is_causal"] = True
        elif point.case == "mask":
            settings["attn_mask"] = pool.mask(point.seq_len)
        elif point.case == "dropout":
            settings["dropout_p"] = DROPOUT
        elif point.case == "gqa":
            settings["enable_gqa"] = True
        self.settings = settings
        self._sets = [pool.inputs(point, copy) for copy in range(self.copies)]
        if point.backward:
            for tensors in self._sets:
                for tensor in tensors[:3]:
                    tensor.requires_grad_()
        self.next = 0
        self.host_s = 1e-4

    def context(self) -> contextlib.AbstractContextManager:
        """Everything that the calls need around them: the backend, and gradients on or off."""
        stack = contextlib.ExitStack()
        stack.enter_context(backend_context(self.point.backend))
        stack.enter_context(torch.set_grad_enabled(self.point.backward))
        return stack

    def call(self) -> None:
        """Once, on the next set of inputs."""
        self.next = (self.next + 1) % self.copies
        inputs = self._sets[self.next]
        out = F.scaled_dot_product_attention(*inputs[:3], **self.settings)
        if self.point.backward:
            torch.autograd.grad(out, inputs[:3], inputs[3])


class Ceiling:
    """What the device can do at most: a large matrix product (FLOP), or a large copy (bytes)."""

    def __init__(self, name: str, amount: int, what: str, call: Callable[[], Any]) -> None:
        self.name, self.amount, self.what, self.call = name, amount, what, call
        self.copies, self.host_s = 1, 1e-5

    def context(self) -> contextlib.AbstractContextManager:
        return torch.no_grad()


def ceilings(plan: Plan, pool: Pool) -> list[Ceiling]:
    """The two ceilings, sized so that one call takes some milliseconds."""
    kind = plan.device_type
    item = ITEM_BYTES[plan.dtype]
    room = (free_memory(plan.device) or 2**31) // 8
    # On a CPU, large enough that a larger one is hardly faster, and 10 to 20 ms long on two AVX-512 cores.
    side = {"cuda": 8192, "mps": 2048}.get(kind, {"fp64": 1024, "fp32": 1536}.get(plan.dtype, 2048))
    while side > 256 and 3 * side * side * item > room:
        side //= 2
    left, right = (pool._normal(side * side).view(side, side) for _ in range(2))
    product = torch.empty_like(left)
    count = min({"cuda": 2**30, "mps": 2**28}.get(kind, 2**26), room // 2)
    source = torch.empty(count // 4, dtype=torch.float32, device=plan.device).normal_(generator=pool.generator)
    target = torch.empty_like(source)
    tf32 = ", TF32 on" if kind == "cuda" and plan.dtype == "fp32" and torch.backends.cuda.matmul.allow_tf32 else ""
    return [
        Ceiling(
            "matmul_flops_per_s",
            2 * side**3,
            f"matrix product {side} × {side} × {side}, {plan.dtype}{tf32}",
            lambda: torch.mm(left, right, out=product),
        ),
        Ceiling(
            "copy_bytes_per_s",
            2 * 4 * source.numel(),
            f"copy of {4 * source.numel() / 1e6:.0f} MB, bytes read and written",
            lambda: target.copy_(source),
        ),
    ]
