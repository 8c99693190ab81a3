"""Figure: which part of each projection of an attention layer lies on which rank."""

from __future__ import annotations

from functools import partial

from matplotlib.patches import FancyArrowPatch, Rectangle

from ..palette import ON_HEAD, head_colour
from ..sharding import shard
from ..words import listing, plural
from .style import INK, QUIET, Figure, canvas

# In CSS pixels, as the page draws it: with four heads on two ranks, 334 wide, all of it is seen on a phone.
SMALL, USUAL = 12.0, 16.0  # a head's width: with many heads, with few
SLOT = 38.0  # the least room for a matrix, so that its name fits above it
GAP = 6.0  # between two slots
BETWEEN = 28.0  # between two ranks
EDGE = 1.0  # for the outlines at both sides
TOP, NAMES, BELOW = 58.0, 98.0, 44.0  # to the ranks' names, to the three matrices; between those and o_proj
END = 64.0  # below o_proj
PT = 0.75  # points in a pixel


def head_shards(n_heads: int = 4, n_kv_heads: int = 2, tp: int = 2) -> Figure:
    """The four projections once for each rank, what the rank holds coloured, the rest an outline.

    The ranks stand side by side, and all is read from the top down: x, the three projections in, o_proj, the sum.
    Matrices are drawn as in x @ W. A colour is a key/value head, and the query heads that read it.

    Raises:
        ShardError: tp ranks cannot share these heads (the rule of stacks that copy key/value heads).
        ValueError: more than 4 ranks or 16 heads, which would be too small to read.
    """
    if n_heads > 16 or tp > 4:
        raise ValueError(f"n_heads = {n_heads}, tp = {tp}: this figure is drawn for up to 16 heads on up to 4 ranks.")
    held = shard(n_heads, n_kv_heads, tp)
    group = n_heads // n_kv_heads
    column = max(SMALL, min(USUAL, 4 * USUAL / n_heads))
    side, kv_width = n_heads * column, n_kv_heads * column
    slots = {"q_proj": max(side, SLOT), "k_proj": max(kv_width, SLOT), "v_proj": max(kv_width, SLOT)}
    block = max(sum(slots.values()) + 2 * GAP, side + 2 * (SLOT + GAP))
    wide = tp * block + (tp - 1) * BETWEEN + 2 * EDGE
    row = NAMES + side + BELOW  # where o_proj begins
    tall = row + side + END
    with canvas(wide / 96, tall / 96) as figure:
        figure.set_layout_engine("none")  # every place is given here
        axes = figure.add_axes((0, 0, 1, 1))
        axes.axis("off")
        axes.set(xlim=(0, wide), ylim=(tall, 0))  # from the top down
        text = partial(axes.text, ha="center", va="center", fontsize=12 * PT)
        bold = partial(text, fontsize=14 * PT, fontweight="bold")
        text(wide / 2, 9, "x", fontsize=15 * PT, fontstyle="italic")
        bold(wide / 2, tall - 9, "sum")
        for rank in range(tp):
            left = EDGE + rank * (block + BETWEEN)
            middle = left + block / 2
            lean = (middle - wide / 2) / wide  # from the centre, -1/2 to 1/2
            _arrow(axes, (wide / 2 + 30 * lean, 18), (middle, TOP - 12))
            bold(middle, TOP, f"rank {rank}")
            text(middle, TOP + 15, "cut by columns")
            at = left + (block - sum(slots.values()) - 2 * GAP) / 2
            for name, slot in slots.items():
                is_kv = name != "q_proj"
                width = kv_width if is_kv else side
                start = at + (slot - width) / 2
                text(at + slot / 2, NAMES - 8, name)
                _outline(axes, start, NAMES, width, side)
                for head in held.kv_heads(rank) if is_kv else held.heads(rank):
                    colour = head_colour(head if is_kv else head // group)
                    _head(axes, head, colour, (start + head * column, NAMES), column, side)
                at += slot + GAP
            _arrow(axes, (middle, NAMES + side + 5), (middle, row - 5))
            text(middle + 7, row - BELOW / 2 - 1, "attend", ha="left")
            _outline(axes, middle - side / 2, row, side, side)
            text(middle - side / 2 - 5, row + side / 2, "o_proj", ha="right")
            for head in held.heads(rank):
                _head(axes, head, head_colour(head // group), (middle - side / 2, row + head * column), side, column)
            text(middle, row + side + 10, "cut by rows")
            _arrow(axes, (middle, row + side + 20), (wide / 2 + 50 * lean, tall - 20))
    parts = "; ".join(
        f"rank {rank} holds the columns of query heads {_runs(held.heads(rank))} in q_proj, of key/value {_heads(held.kv_heads(rank))} in k_proj "
        f"and v_proj, and the rows of heads {_runs(held.heads(rank))} in o_proj"
        for rank in range(tp)
    )
    alt = (
        f"An attention layer with {plural(n_heads, 'head')} over {plural(n_kv_heads, 'key/value head')} on {plural(tp, 'rank')}. Every rank "
        f"gets the whole input x; {parts}. The results of all ranks are summed."
    )
    return Figure(figure, "head_shards", alt)


def _outline(axes, left: float, top: float, width: float, height: float) -> None:
    axes.add_patch(
        Rectangle(
            (left, top),
            width,
            height,
            facecolor="none",
            edgecolor=QUIET,
            linewidth=1,
            linestyle=(0, (3, 2)),
            clip_on=False,
        )
    )


def _head(axes, head: int, colour: str, at: tuple[float, float], width: float, height: float) -> None:
    axes.add_patch(Rectangle(at, width, height, facecolor=colour, edgecolor=ON_HEAD, linewidth=0.9, clip_on=False))
    size = 12 if min(width, height) >= USUAL else 10
    axes.text(
        at[0] + width / 2,
        at[1] + height / 2,
        str(head),
        ha="center",
        va="center_baseline",
        fontsize=size * PT,
        color=ON_HEAD,
    )


def _arrow(axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    axes.add_patch(
        FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=9, color=INK, linewidth=1, shrinkA=0, shrinkB=0)
    )


def _runs(heads: tuple[int, ...]) -> str:
    return listing(heads) if len(heads) < 4 else f"{heads[0]} to {heads[-1]}"


def _heads(heads: tuple[int, ...]) -> str:
    return f"head {heads[0]}" if len(heads) == 1 else f"heads {_runs(heads)}"
