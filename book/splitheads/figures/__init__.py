"""One function per matplotlib figure, all in one style. Each returns a `Figure` to display."""

from .memory_order import memory_order
from .parameters_by_heads import parameters_by_heads
from .style import Figure

__all__ = ["Figure", "memory_order", "parameters_by_heads"]
