"""The timing lab: what one call of attention costs on this machine, for every head size.

    from splitheads.timing import Plan, run
    recording = run(Plan(device="cpu", d_heads=(64, 72, 80), backends=("auto", "MATH"), budget_s=20))

or, from a shell, `python -m splitheads time --help`. Needs PyTorch and the standard library, nothing else,
so that it runs on a bare GPU server. Importing the package loads neither: PyTorch comes with the first
`Plan`, because choosing a device and a dtype means asking it.

`plan` says what to measure, `engine` measures it, `record` keeps it as one JSON file, `analyse` finds the
steps. `workload`, `clock`, `observe` and `machine` are the parts that the engine is made of.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from splitheads.timing.plan import Plan, PlanError, Point, default_plan, standard_plan

_LATER = {
    "measure": "engine",
    "run": "engine",
    "paired_ratio": "engine",
    "Started": "engine",
    "PointUpdate": "engine",
    "Progress": "engine",
    "Finished": "engine",
    "load": "record",
    "save": "record",
    "validate": "record",
    "RecordError": "record",
}
__all__ = ["Plan", "PlanError", "Point", "default_plan", "standard_plan", *_LATER]


def __getattr__(name: str) -> Any:
    if name in _LATER:
        value = getattr(import_module(f"splitheads.timing.{_LATER[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
