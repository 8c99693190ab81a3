"""The code behind *Splitting Heads*: one module for each idea in the book.

Importing this package loads the standard library and nothing else; the modules that need PyTorch,
Matplotlib or a notebook import them on their own.
"""

from splitheads.partition import HeadSplit, SplitError

__version__ = "0.1.0"
__all__ = ["HeadSplit", "SplitError", "__version__"]
