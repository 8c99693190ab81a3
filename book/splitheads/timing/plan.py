"""What to measure: a `Plan`, checked when it is made, and the points it stands for.

A plan that cannot be carried out raises `PlanError` with the number at fault and a way out. Only what is
certain beforehand is refused here: a fallback kernel that runs out of memory half-way is a result, not a
mistake, and the run records it as one.
"""

from __future__ import annotations

import math
import platform
import re
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from operator import index
from typing import Any, NamedTuple

from splitheads import backends
from splitheads.backends import DTYPES
from splitheads.partition import _is_scalar, _show
from splitheads.timing import record

ITEM_BYTES = {"fp16": 2, "bf16": 2, "fp32": 4, "fp64": 8}
BACKENDS = ("auto", *backends.BACKENDS)
""""auto" leaves the choice to scaled_dot_product_attention; the others are forced, alone."""
DIRECTIONS = ("forward", "forward+backward")
CASES = {
    "plain": "queries, keys and values alike, no mask",
    "causal": "is_causal=True",
    "mask": "a boolean mask of T × T, nine in ten entries allowed",
    "dropout": "dropout_p=0.1",
    "gqa": "fewer key/value heads, enable_gqa=True",
    "value_width": "values 8 columns wider than queries and keys",
    "strided": "the last dimension is not the contiguous one",
    "unbatched": "a 3-D call: batch and heads in one dimension",
}
"""Innocent changes to the same call, one each."""
MAX_POINTS = record.MAX_POINTS
"""Most points of a plan: as many as a recording may have."""
MIN_BUDGET_S = 1.0
EXTRA_VALUE_COLUMNS = 8
DROPOUT = 0.1


class PlanError(ValueError):
    """This plan cannot be carried out. The message says why, and what would work instead."""


class Point(NamedTuple):
    """One configuration of a plan; `direction` and `case` as in DIRECTIONS and CASES."""

    case: str
    backend: str
    direction: str
    seq_len: int
    d_head: int

    @property
    def d_head_v(self) -> int:
        """Width of the values, in columns."""
        return self.d_head + EXTRA_VALUE_COLUMNS * (self.case == "value_width")

    @property
    def backward(self) -> bool:
        return self.direction == "forward+backward"


@dataclass(frozen=True)
class Plan:
    """What to measure, and for how long.

    Args:
        device: "auto" (CUDA, else MPS, else the CPU), "cuda", "cuda:1" ..., "mps" or "cpu".
        dtype: "fp16", "bf16", "fp32" or "fp64". Default: bf16 on sm80 and later, fp16 on older GPUs and MPS,
            fp32 on a CPU.
        batch: sequences in one call.
        n_heads: query heads. Default: 8 on a CPU and MPS, 16 on CUDA.
        seq_lens: sequence lengths T, for queries and keys alike. Default: 1024, on CUDA 4096.
        d_heads: head sizes, in columns. Default: a sweep from 32 to 128, to 256 on a GPU.
        directions: "forward", "forward+backward" or both.
        backends: any of BACKENDS.
        cases: any of CASES.
        budget_s: seconds from start to end, warm-up and ceilings included; kept within 10 %.
        seed: for the inputs and for the order of the measurements.
        target_width: a point is settled once its 95 % interval is at most this share of its median wide, from end
            to end: 0.02 is ±1 %. When every point is settled, the run ends before its budget.

    After construction every field is concrete: nothing is None, "auto" has become a device.

    Raises:
        PlanError: for everything that cannot be, with the value and a way out.
    """

    device: str = "auto"
    dtype: str | None = None
    batch: int = 1
    n_heads: int | None = None
    seq_lens: tuple[int, ...] | None = None
    d_heads: tuple[int, ...] | None = None
    directions: tuple[str, ...] = ("forward",)
    backends: tuple[str, ...] = ("auto",)
    cases: tuple[str, ...] = ("plain",)
    budget_s: float = 30.0
    seed: int = 0
    target_width: float = 0.02
    memory_bytes: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        put = vars(self).__setitem__  # the class is frozen, and its fields have defaults to be filled in
        put("device", _device(self.device))
        kind = self.device_type
        put("dtype", _dtype(self.dtype, self.device))
        put("batch", _whole("batch", self.batch))
        put("n_heads", _whole("n_heads", (16 if kind == "cuda" else 8) if self.n_heads is None else self.n_heads))
        length = 4096 if kind == "cuda" else 1024
        put("seq_lens", _sweep("seq_lens", (length,) if self.seq_lens is None else self.seq_lens))
        widths = _DEFAULT_WIDTHS[kind] if self.d_heads is None else self.d_heads
        put("d_heads", _sweep("d_heads", widths))
        put("directions", _names("directions", self.directions, DIRECTIONS))
        put("backends", _names("backends", self.backends, BACKENDS))
        put("cases", _names("cases", self.cases, tuple(CASES)))
        put("budget_s", _budget(self.budget_s))
        put("seed", _whole("seed", self.seed, least=0))
        put("target_width", _real("target_width", self.target_width))
        if not 0 < self.target_width < 1:
            raise PlanError(
                f"target_width = {self.target_width:g} is no share. Give one between 0 and 1, such as 0.02."
            )
        if "gqa" in self.cases and self.n_heads == 1:
            raise PlanError(
                "case 'gqa' needs query heads to share: n_heads = 1. Give 2 or more, or leave the case out."
            )
        number = math.prod(map(len, (self.directions, self.seq_lens, self.d_heads, self.cases, self.backends)))
        if number > MAX_POINTS:
            raise PlanError(
                f"this plan has {number} points ({len(self.d_heads)} head sizes, {len(self.seq_lens)} lengths), above the "
                f"limit of {MAX_POINTS}. Give fewer head sizes."
            )
        put("memory_bytes", device_memory(self.device))
        self._check_memory()

    @property
    def device_type(self) -> str:
        """ "cpu", "cuda" or "mps"."""
        return self.device.partition(":")[0]

    @property
    def n_kv_heads(self) -> int:
        """Key/value heads of the "gqa" case: a quarter of the query heads, or the nearest divisor below n_heads."""
        return _quarter(self.n_heads)

    def points(self) -> list[Point]:
        """Every configuration, in the order in which the plan names them."""
        return [
            Point(case, backend, direction, seq_len, d_head)
            for direction in self.directions
            for seq_len in self.seq_lens
            for d_head in self.d_heads
            for case in self.cases
            for backend in self.backends
        ]

    def kv_heads(self, point: Point) -> int:
        return self.n_kv_heads if point.case == "gqa" else self.n_heads

    def set_elements(self, point: Point) -> int:
        """Numbers in one set of inputs: queries, keys, values, and for a backward pass the upstream gradient."""
        rows = self.batch * point.seq_len
        kv = self.kv_heads(point) * (point.d_head + point.d_head_v)
        return rows * (self.n_heads * (point.d_head + point.d_head_v * point.backward) + kv)

    def flops(self, point: Point) -> int:
        """Floating-point operations of one call, by the convention of `record.flops`."""
        shape = self.batch, self.n_heads, point.seq_len, point.d_head, point.d_head_v
        return record.flops(*shape, point.case, point.direction)

    def as_dict(self) -> dict[str, Any]:
        """The plan as a recording keeps it."""
        return {
            "dtype": self.dtype,
            "batch": self.batch,
            "n_heads": self.n_heads,
            "n_kv_heads": self.n_kv_heads,
            "seq_lens": list(self.seq_lens),
            "d_heads": list(self.d_heads),
            "directions": list(self.directions),
            "backends": list(self.backends),
            "cases": list(self.cases),
            "budget_s": self.budget_s,
            "seed": self.seed,
        }

    def _check_memory(self) -> None:
        """Refuse shapes whose bare inputs and output do not fit into the device, whatever the kernel."""
        for d_head in self.d_heads:
            for seq_len in self.seq_lens:
                point = Point("plain", "auto", "forward", seq_len, d_head)
                output = self.batch * self.n_heads * seq_len * point.d_head_v
                need = (self.set_elements(point) + output) * ITEM_BYTES[self.dtype]
                if self.memory_bytes and need > self.memory_bytes:
                    raise PlanError(
                        f"d_head = {d_head} at T = {seq_len}, batch = {self.batch}, n_heads = {self.n_heads} in {self.dtype} "
                        f"needs {size(need)} for Q, K, V and the output alone; this device has {size(self.memory_bytes)}. "
                        f"Give smaller head sizes (such as 64), fewer heads or shorter sequences."
                    )


@lru_cache(maxsize=256)
def _quarter(n_heads: int) -> int:
    """The divisor nearest to n_heads / 4, the smaller of two; below n_heads, where there is one."""
    small = [n for n in range(1, math.isqrt(n_heads) + 1) if n_heads % n == 0]
    below = [n for n in {*small, *(n_heads // n for n in small)} if n < n_heads]
    return min(below, key=lambda n: (abs(4 * n - n_heads), n), default=1)


_DEFAULT_WIDTHS = {
    "cpu": (32, 64, 72, 80, 96, 128),
    "mps": (32, 64, 72, 80, 96, 100, 128, 160, 256),
    "cuda": (32, 64, 65, 72, 80, 96, 100, 128, 160, 192, 256),
}
STANDARD_WIDTHS = tuple(sorted({*range(8, 289, 8), 1, 33, 65, 100, 132, 161, 193, 257, 512}))
"""The recorded sweep on a GPU: every multiple of 8 to 288, odd sizes on both sides of the buckets, and 512."""


def default_plan(device: str = "auto", budget_s: float = 30.0, **changes: Any) -> Plan:
    """A plan that shows what this device does, in half a minute or so.

    On a CPU: head sizes 32 ... 128, PyTorch's own choice beside the fallback forced, and the one innocent change
    that leaves the fused kernel (values wider than keys). `changes` are fields of Plan.
    """
    kind = _device(device).partition(":")[0]
    # Forced FLASH would be the same line twice on a CPU: it is what PyTorch picks there wherever it can run.
    chosen = ("auto", "MATH") if kind == "cpu" else _FORCED[kind]
    settings: dict[str, Any] = {"cases": ("plain", "value_width"), "backends": chosen}
    return Plan(device=device, budget_s=budget_s, **{**settings, **changes})


def standard_plan(device: str = "auto", dtype: str | None = None, **changes: Any) -> Plan:
    """The sweep that `make record` measures: one dtype, everything that the book plots. `changes` are fields of Plan.

    On a GPU 20 minutes for each dtype: d_head 8 ... 288 by 8, odd sizes and 512, three sequence lengths, forward and
    forward + backward, every backend. On a CPU two minutes for each.
    """
    kind = _device(device).partition(":")[0]
    settings: dict[str, Any]
    if kind == "cpu":
        settings = {
            "d_heads": (16, 32, 48, 64, 65, 72, 80, 96, 100, 112, 128, 160, 192, 256),
            "cases": tuple(CASES),
            "backends": ("auto",),
            "budget_s": 120.0,
        }
    else:
        settings = {
            "d_heads": STANDARD_WIDTHS,
            "batch": 2,
            "seq_lens": (512, 2048, 8192) if kind == "cuda" else (512, 2048),
            "directions": DIRECTIONS,
            "backends": _FORCED[kind],
            "budget_s": 1200.0,
        }
    return Plan(device=device, dtype=dtype, **{**settings, **changes})


def standard_dtypes(device: str = "auto") -> tuple[str, ...]:
    """The dtypes that `make record` measures on this device, one recording each."""
    return ("fp32", "bf16") if _device(device) == "cpu" else ("bf16", "fp16")


_FORCED = {"cpu": ("auto", "FLASH", "MATH"), "mps": ("auto", "MATH"), "cuda": BACKENDS}


def widths(text: str) -> tuple[int, ...]:
    """ "32,64,128", "8:288:8" (the end included) or a mixture, as a tuple of ints."""
    found: list[int] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        try:
            numbers = [int(piece) for piece in part.split(":")]
        except ValueError:
            numbers = []
        if len(numbers) == 1:
            found += numbers
        elif len(numbers) in (2, 3) and [*numbers, 1][2] > 0:
            start, end, step = [*numbers, 1][:3]
            if (end - start) // step > MAX_POINTS:
                raise PlanError(
                    f"{_show(part)} is more than {MAX_POINTS} numbers. Give a larger step, such as 8:288:8."
                )
            found += range(start, end + 1, step)
        else:
            raise PlanError(
                f"{_show(part)} is neither a number nor a range. Give numbers (32,64,128) or start:end:step (8:288:8)."
            )
        if len(found) > MAX_POINTS:
            raise PlanError(f"{_show(text)} is more than {MAX_POINTS} numbers. Give fewer, such as 8:288:8.")
    return tuple(found)


def size(count: float) -> str:
    """Bytes for people: 1.5 GB."""
    for unit in ("bytes", "KB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if count >= 100 or unit == "bytes" else f"{count:.1f} {unit}"


def device_memory(device: str) -> int:
    """Memory of the device in bytes; 0 where it cannot be told."""
    import torch

    kind = device.partition(":")[0]
    if kind == "cuda":
        return int(torch.cuda.get_device_properties(torch.device(device)).total_memory)
    if kind == "mps":
        return int(torch.mps.recommended_max_memory())
    from splitheads.timing.machine import memory

    return memory()[0]


def _device(device: Any) -> str:
    import torch

    if not isinstance(device, (str, torch.device)):
        raise PlanError(f"device = {_show(device)} is not known. Give 'auto', 'cuda', 'mps' or 'cpu'.")
    name = str(device).strip().lower()
    kind, _, number = name.partition(":")
    has_mps = torch.backends.mps.is_available()
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "mps" if has_mps else "cpu"
    if kind not in ("cpu", "cuda", "mps") or (
        ":" in name and not (kind == "cuda" and re.fullmatch("[0-9]{1,4}", number))
    ):
        raise PlanError(f"device = {_show(device)} is not known. Give 'auto', 'cuda', 'mps' or 'cpu'.")
    if kind == "cuda" and not torch.cuda.is_available():
        raise PlanError(
            f"device = {_show(device)} was asked for, and PyTorch {torch.__version__} finds no CUDA device here. "
            f"Give 'cpu' or 'auto'; with an NVIDIA GPU, install a CUDA build of PyTorch and a driver that it accepts."
        )
    if kind == "cuda" and number and int(number) >= torch.cuda.device_count():
        raise PlanError(f"device = {_show(device)} is not here: the last one is cuda:{torch.cuda.device_count() - 1}.")
    if kind == "mps" and not has_mps:
        raise PlanError(
            f"device = {_show(device)} was asked for, and PyTorch finds no Apple GPU here ({platform.system()}). Give 'cpu'."
        )
    return name


def _dtype(dtype: Any, device: str) -> str:
    import torch

    kind = device.partition(":")[0]
    if dtype is None:
        if kind == "cuda":
            return "bf16" if torch.cuda.get_device_capability(torch.device(device))[0] >= 8 else "fp16"
        return "fp16" if kind == "mps" else "fp32"
    name = str(dtype).removeprefix("torch.").lower() if isinstance(dtype, (str, torch.dtype)) else None
    name = {long: short for short, long in DTYPES.items()}.get(name, name)
    if name not in DTYPES:
        raise PlanError(f"dtype = {_show(dtype)} is not supported. Give one of {', '.join(DTYPES)}.")
    if name == "fp64" and kind == "mps":
        raise PlanError("dtype = 'fp64' does not exist on an Apple GPU. Give fp16, bf16 or fp32.")
    return name


def _budget(value: Any) -> float:
    number = _real("budget_s", value)
    if not math.isfinite(number) or number < MIN_BUDGET_S:
        fault = "is no time" if not math.isfinite(number) or number <= 0 else "is too short to measure anything"
        raise PlanError(f"budget_s = {_show(value)} {fault}. Give seconds, {MIN_BUDGET_S:g} or more, such as 30.")
    if number > record.MOST_SECONDS:
        raise PlanError(f"budget_s = {_show(value)} is more than 30 years. Give seconds, such as 30.")
    return number


def _real(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last one: a tensor without data
        raise PlanError(f"{name} = {_show(value)} is not a number.") from None


def _whole(name: str, value: Any, least: int = 1) -> int:
    try:
        number = index(value) if _is_scalar(value) else None
    except (TypeError, RuntimeError):  # the second: a tensor without data
        number = None
    if number is None:
        raise PlanError(f"{name} = {_show(value)} is not a whole number. Give one, {least} or more.")
    if number < least:
        raise PlanError(f"{name} = {_show(number)} is too small. Give {least} or more.")
    if number >= 2**63:
        raise PlanError(f"{name} = {_show(number)} is more than any device can hold. Give a smaller one.")
    return number


def _sweep(name: str, values: Any) -> tuple[int, ...]:
    singular = {"seq_lens": "sequence length T", "d_heads": "d_head"}[name]
    if isinstance(values, str):
        values = widths(values)
    elif not hasattr(values, "__iter__"):
        values = (values,)
    numbers = tuple(dict.fromkeys(_whole(singular, value) for value in _entries(name, values)))
    if not numbers:
        raise PlanError(
            f"{name} is empty: there is nothing to measure. Give at least one {singular}, such as {_EXAMPLE[name]}."
        )
    return numbers


_EXAMPLE = {"seq_lens": "512", "d_heads": "64", "directions": "'forward'", "backends": "'auto'", "cases": "'plain'"}


def _entries(name: str, values: Any) -> list[Any]:
    """What a field lists, MAX_POINTS entries at most: a range may have a billion of them, and a generator no end."""
    try:
        entries = None if isinstance(values, (bytes, bytearray)) else iter(values)
    except TypeError:  # an array or a tensor without axes has an __iter__, too
        entries = None
    if entries is None:
        raise PlanError(f"{name} = {_show(values)} is not a list. Give one, such as ({_EXAMPLE[name]},).")
    try:
        count = len(values)
    except (TypeError, OverflowError):
        count = 0
    found = [] if count > MAX_POINTS else list(islice(entries, MAX_POINTS + 1))
    if max(count, len(found)) > MAX_POINTS:
        many = count or f"more than {MAX_POINTS}"
        raise PlanError(f"{name} has {many} entries, above the limit of {MAX_POINTS} points. Give fewer.")
    return found


def _names(name: str, values: Any, known: tuple[str, ...]) -> tuple[str, ...]:
    values = (values,) if isinstance(values, str) else _entries(name, values)
    canon = {key.lower(): key for key in known}
    for value in values:
        if not isinstance(value, str) or value.lower() not in canon:
            raise PlanError(f"{name}: {_show(value)} is not known. Give any of {', '.join(known)}.")
    if not values:
        raise PlanError(f"{name} is empty: there is nothing to measure. Give any of {', '.join(known)}.")
    return tuple(dict.fromkeys(canon[value.lower()] for value in values))
