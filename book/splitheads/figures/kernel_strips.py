"""Figure: which attention kernel PyTorch picks for every head size, one strip per architecture."""

from __future__ import annotations

from itertools import groupby
from textwrap import fill

from matplotlib.patches import Patch

from ..backends import DEVICES, SCENARIOS, TORCH_VERSIONS, SdpaCall, choose
from ..palette import BACKENDS
from .style import INK, Figure, canvas

WIDEST = 320
GPUS = tuple(device for device in DEVICES if device.startswith("sm"))


def kernel_strips(torch: str = TORCH_VERSIONS[-1], dtype: str = "bf16", scenario: str = "infer") -> Figure:
    """Strips from d_head = 1 to 320, coloured by the backend that scaled_dot_product_attention picks.

    Multiples of 8 and all other sizes have a band each, because the choice so often turns on that.
    `torch`, `dtype` and `scenario` are those of `splitheads.backends` (`TORCH_VERSIONS`, `SCENARIOS`).
    Selection only: it says which kernel runs, not how fast. Raises UnknownPlatform for a version
    that is not in the table, ValueError for an unknown scenario.
    """
    if scenario not in SCENARIOS:
        raise ValueError(f"scenario = {scenario!r} is not known. Known: {', '.join(SCENARIOS)}.")
    settings = SCENARIOS[scenario].settings
    picks = {
        device: [choose(SdpaCall(d, torch, device, dtype, **settings)).backend for d in range(1, WIDEST + 1)]
        for device in GPUS
    }
    seen = [b for b in BACKENDS if any(b in row for row in picks.values())]
    with canvas(6.6, 3.7) as figure:
        axes = figure.add_subplot()
        for y, device in enumerate(reversed(GPUS)):
            for backend in seen:
                for bottom, height, bars in (
                    (y - 0.04, 0.42, _eights(picks[device], backend)),
                    (y - 0.38, 0.3, _others(picks[device], backend)),
                ):
                    axes.broken_barh(bars, (bottom, height), facecolors=BACKENDS[backend], linewidth=0)
            for bottom, height in ((y - 0.04, 0.42), (y - 0.38, 0.3)):
                axes.broken_barh([(0.5, WIDEST)], (bottom, height), facecolors="none", edgecolors=INK, linewidth=0.5)
        axes.set(
            xlim=(0.5, WIDEST + 0.5),
            ylim=(-0.6, len(GPUS) - 0.4),
            xlabel="d_head (upper band: multiples of 8; lower band: all others)",
        )
        # Over the whole figure: the strips' names take a third of its width.
        title = fill(f"torch {torch}, {dtype}: {SCENARIOS[scenario].text}", 70)
        figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
        axes.set_yticks(range(len(GPUS)), [DEVICES[device] for device in reversed(GPUS)])
        axes.tick_params(axis="y", length=0)
        axes.set_xticks([1, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320])
        for side in ("left", "bottom"):
            axes.spines[side].set_visible(False)
        handles = [Patch(facecolor=BACKENDS[b], edgecolor=INK, linewidth=0.6, label=b) for b in seen]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=9)
    rows = "; ".join(f"{DEVICES[device]}: {_words(picks[device])}" for device in GPUS)
    alt = (
        f"Strips of head sizes from 1 to {WIDEST}, one per architecture, coloured by the kernel that torch {torch} picks "
        f"({dtype}, {SCENARIOS[scenario].text}). {rows}."
    )
    return Figure(figure, f"kernel_strips-{torch}-{dtype}-{scenario}", alt)


def _merged(cells: list[tuple[float, float, str]], backend: str) -> list[tuple[float, float]]:
    """(start, length) of every stretch with this backend, from (start, end, backend) cells in order."""
    bars = []
    for name, group in groupby(cells, key=lambda cell: cell[2]):
        stretch = list(group)
        if name == backend:
            bars.append((stretch[0][0], stretch[-1][1] - stretch[0][0]))
    return bars


def _eights(row: list[str], backend: str) -> list[tuple[float, float]]:
    """The multiples of 8, each drawn over the eight columns that end with it."""
    return _merged([(d - 7.5, d + 0.5, row[d - 1]) for d in range(8, len(row) + 1, 8)], backend)


def _others(row: list[str], backend: str) -> list[tuple[float, float]]:
    """All other sizes; the column of a multiple of 8 is taken over by its left neighbour."""
    return _merged(
        [(d - 0.5, d + (1.5 if d % 8 == 7 else 0.5), row[d - 1]) for d in range(1, len(row) + 1) if d % 8], backend
    )


def _words(row: list[str]) -> str:
    """The row said in words: the multiples of 8 and all others apart, each in stretches."""

    def stretches(sizes: list[int]) -> str:
        parts = []
        for backend, group in groupby(sizes, key=lambda d: row[d - 1]):
            members = list(group)
            first, last = members[0], members[-1]
            parts.append(f"{backend} {first}" if first == last else f"{backend} {first} to {last}")
        return ", ".join(parts)

    if len(set(row)) == 1:
        return f"{row[0]} throughout"
    eights = stretches([d for d in range(1, len(row) + 1) if d % 8 == 0])
    others = stretches([d for d in range(1, len(row) + 1) if d % 8])
    return f"multiples of 8 {eights}, all others {others}"
