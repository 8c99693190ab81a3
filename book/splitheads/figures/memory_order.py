"""Figure: which memory cells head 0 reads, after the right split and after the direct view."""

from __future__ import annotations

from matplotlib.patches import Rectangle

from ..palette import ON_HEAD, head_colour
from ..partition import HeadSplit
from .style import INK, Figure, canvas


def memory_order(tokens: int = 4, n_heads: int = 2, d_head: int = 3) -> Figure:
    """One buffer of tokens × n_heads × d_head numbers, coloured by the head that reads each cell.

    Upper row: `view(B, T, h, d).transpose(1, 2)`; lower row: `view(B, h, T, d)`.
    """
    for name, value in (("tokens", tokens), ("n_heads", n_heads)):
        if value < 2:
            raise ValueError(
                f"{name} = {value}: with fewer than 2 the two rows are the same, and there is nothing to show"
            )
    split = HeadSplit(n_heads * d_head, n_heads)
    cells = range(tokens * split.d_model)
    rows = [
        ("view(B, T, h, d).transpose(1, 2)", [cell % split.d_model // d_head for cell in cells]),
        ("view(B, h, T, d)", [cell // (tokens * d_head) for cell in cells]),
    ]
    with canvas(5.6, 2.2) as figure:
        axes = figure.add_subplot()
        axes.set(xlim=(-0.1, len(cells) + 0.1), ylim=(-0.45, 3.5))
        axes.axis("off")
        for (line, heads), base in zip(rows, (2.0, 0.2), strict=True):
            axes.text(0, base + 1.12, line, fontfamily="monospace", fontsize=10, va="bottom")
            for cell, head in zip(cells, heads, strict=True):
                axes.add_patch(
                    Rectangle((cell, base), 1, 0.8, facecolor=head_colour(head), edgecolor=ON_HEAD, linewidth=0.8)
                )
                axes.text(
                    cell + 0.5, base + 0.4, str(cell), ha="center", va="center_baseline", fontsize=8, color=ON_HEAD
                )
        for token in range(tokens):
            start = token * split.d_model
            axes.plot([start + 0.1, start + split.d_model - 0.1], [-0.05, -0.05], color=INK, linewidth=1)
            axes.text(start + split.d_model / 2, -0.15, f"token {token}", ha="center", va="top", fontsize=10)
    right = [cell for cell, head in zip(cells, rows[0][1], strict=True) if head == 0]
    wrong = [cell for cell, head in zip(cells, rows[1][1], strict=True) if head == 0]
    alt = (
        f"Two strips of {len(cells)} memory cells, coloured by head. After the right split head 0 reads cells "
        f"{', '.join(map(str, right))}: a part of every token. After the direct view it reads cells {wrong[0]} to "
        f"{wrong[-1]}: the first tokens whole, and nothing of the rest."
    )
    return Figure(figure, "memory_order", alt)
