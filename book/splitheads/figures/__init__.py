"""One function per matplotlib figure, all in one style. Each returns a `Figure` to display."""

from .head_shards import head_shards
from .head_size_sweep import head_size_sweep
from .kernel_strips import kernel_strips
from .memory_order import memory_order
from .parameters_by_heads import parameters_by_heads
from .published_timings import published_timings
from .style import Figure

__all__ = [
    "Figure",
    "head_shards",
    "head_size_sweep",
    "kernel_strips",
    "memory_order",
    "parameters_by_heads",
    "published_timings",
]
