"""Panels: one idea each, moved by the reader's hand. Shape: controls (ipywidgets) + view (anywidget)."""

from .browser_gpu import browser_gpu
from .doctor import doctor
from .fast_path import fast_path
from .kernel_map import kernel_map
from .kit import question
from .partition import partition
from .predict import predict
from .reshape import reshape
from .sharding import sharding
from .timing_lab import timing_lab

__all__ = [
    "browser_gpu",
    "doctor",
    "fast_path",
    "kernel_map",
    "partition",
    "predict",
    "question",
    "reshape",
    "sharding",
    "timing_lab",
]
