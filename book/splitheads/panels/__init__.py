"""Panels: one idea each, moved by the reader's hand. Shape: controls (ipywidgets) + view (anywidget)."""

from .kit import question
from .partition import partition
from .predict import predict
from .reshape import reshape

__all__ = ["partition", "predict", "question", "reshape"]
