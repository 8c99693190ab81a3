"""Figure: attention parameters against the number of heads, at one width."""

from __future__ import annotations

from ..palette import HEADS
from ..partition import HeadSplit, legal_head_counts
from .style import INK, Figure, canvas


def parameters_by_heads(d_model: int = 768, max_heads: int = 48) -> Figure:
    """Parameters (weights and biases) of Q, K, V and output projections for every legal head count.

    Two lines: the rule (each head d_model / n_heads wide), and what people fear (every head
    d_model wide). Counts are exact, from the shapes that `HeadSplit` gives.
    """
    counts = legal_head_counts(d_model, max_heads)

    def parameters(split: HeadSplit) -> int:
        return sum(rows * columns + rows for rows, columns in (split.q_proj, split.k_proj, split.v_proj, split.o_proj))

    narrow = [parameters(HeadSplit(d_model, h)) / 1e6 for h in counts]
    wide = [parameters(HeadSplit(d_model, h, d_head=d_model)) / 1e6 for h in counts]
    with canvas() as figure:
        axes = figure.add_subplot()
        axes.plot(counts, wide, "s--", color=HEADS[1], label=f"every head {d_model} wide")
        axes.plot(counts, narrow, "o-", color=HEADS[0], label=f"every head {d_model} / n_heads wide (the rule)")
        axes.set(
            xlabel="n_heads",
            ylabel="parameters (millions)",
            ylim=(0, None),
            title=f"More heads, the same parameters (d_model = {d_model})",
        )
        axes.annotate(
            f"{narrow[0]:.2f} M for every head count",
            (counts[-1], narrow[-1]),
            xytext=(0, 9),
            textcoords="offset points",
            ha="right",
            color=INK,
        )
        axes.legend(loc="upper left")
    alt = (
        f"Line chart. With heads of width {d_model} / n_heads the parameter count stays at {narrow[0]:.2f} million for "
        f"every head count from {counts[0]} to {counts[-1]}. With every head {d_model} wide it would grow to "
        f"{wide[-1]:.1f} million at {counts[-1]} heads."
    )
    return Figure(figure, "parameters_by_heads", alt)
