"""The house style of figures: inline SVG that follows the page between light and dark.

A figure is drawn once. Its ink is a placeholder colour that becomes `currentColor` in the SVG, so
the same picture is dark on a light page and light on a dark one; the text stays text, in the
page's own font.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape

import matplotlib
import matplotlib.figure

from ..palette import HEADS

MARKERS = {"circle": "o", "diamond": "D", "square": "s", "triangle": "^", "cross": "X"}
"""The shapes of `palette.SHAPES` as matplotlib calls them."""

INK = "#010203"  # stands for the page's text colour until the SVG is written
QUIET = "#040506"  # the same, fainter

RC = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.facecolor": "none",
    "axes.prop_cycle": matplotlib.cycler(color=HEADS),
    "figure.facecolor": "none",
    "grid.color": QUIET,
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "savefig.transparent": True,
}


class Figure:
    """A finished figure: SVG with alternative text, for the page and for a notebook alike."""

    def __init__(self, figure: matplotlib.figure.Figure, name: str, alt: str) -> None:
        if not alt.strip():
            raise ValueError(f"figure {name!r} needs alternative text: say what it shows, with its numbers")
        self.name, self.alt = name, alt
        self.svg = _svg(figure, name, alt)

    def _repr_html_(self) -> str:
        return f'<div class="sh-plot" tabindex="0" data-figure="{escape(self.name)}">{self.svg}</div>'


@contextmanager
def canvas(width: float = 5.6, height: float = 3.0) -> Iterator[matplotlib.figure.Figure]:
    """A figure in house style, `width` × `height` inches (96 CSS pixels to the inch on a wide page)."""
    with matplotlib.rc_context(RC):
        yield matplotlib.figure.Figure(figsize=(width, height), layout="constrained")


def _svg(figure: matplotlib.figure.Figure, name: str, alt: str) -> str:
    buffer = io.StringIO()
    # The salt makes ids the same in every build and different between figures of one page.
    with matplotlib.rc_context({**RC, "svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = svg.replace(INK, "currentColor").replace(QUIET, "var(--sh-plot-grid, #8a939d80)")
    svg = re.sub(r"font-family: [^;\"]*monospace", "font-family: ui-monospace, monospace", svg)
    svg = re.sub(r"font-family: [^;\"]*sans-serif", "font-family: inherit", svg)
    opening = re.match(r"<svg [^>]*>", svg)
    assert opening is not None
    box = re.search(r'viewBox="([^"]+)"', opening[0])
    assert box is not None
    wide = float(box[1].split()[2])
    start = f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="{box[1]}" style="width:100%;min-width:min(var(--sh-plot-least, 0px), {wide * 4 / 3:.0f}px);max-width:{wide * 4 / 3:.0f}px;height:auto" role="img" aria-label="{escape(alt)}">'
    return start + svg[opening.end() :]
