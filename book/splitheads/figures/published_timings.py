"""Figure: published throughput at d_head 64, 128 and 256. Cited, not measured here."""

from __future__ import annotations

import csv
from functools import lru_cache
from pathlib import Path

from ..palette import BACKENDS, SHAPES
from .style import INK, MARKERS, Figure, canvas

DATA = Path(__file__).resolve().parents[2] / "data" / "published_timings.csv"

_FLASH, _CUDNN = ({"color": BACKENDS[name], "marker": MARKERS[SHAPES[name]]} for name in ("FLASH", "CUDNN"))
_LOOKS = {
    "FlashAttention-2": _FLASH,
    "FlashAttention-3": {**_FLASH, "linestyle": (0, (4, 2)), "markerfacecolor": "none"},
    "cuDNN": _CUDNN,
}
"""FlashAttention-3 is of the family of FLASH, and not the kernel that PyTorch calls so: dashed and hollow."""


@lru_cache(maxsize=1)
def published() -> tuple[dict, ...]:
    """The rows of book/data/published_timings.csv: each a number that others measured, with its source.

    d_head and seq_len are integers, value a float; the rest is text. What a source leaves open says
    "not stated".
    """
    with DATA.open(encoding="utf8", newline="") as file:
        return tuple(
            {**row, "d_head": int(row["d_head"]), "seq_len": int(row["seq_len"]), "value": float(row["value"])}
            for row in csv.DictReader(file)
        )


def published_timings(seq_len: int = 16384) -> Figure:
    """FlashAttention's own published bars without a mask: what d_head changes at the same d_model and work.

    Left: forward on an H100 (three libraries, d_head 64, 128, 256). Right: forward and backward of
    FlashAttention-2 on an A100 and an H100 (64 and 128). Raises ValueError for a length that was not published.
    """
    rows = [
        r
        for r in published()
        if r["source"].endswith("README") and (r["causal"], r["seq_len"]) == ("no", seq_len) and r["unit"] == "TFLOP/s"
    ]
    forward = [r for r in rows if r["direction"] == "forward"]
    both = [r for r in rows if r["direction"] == "forward+backward"]
    if not forward or not both:
        known = sorted({r["seq_len"] for r in published() if r["source"] == "FlashAttention-3 README"})
        raise ValueError(f"seq_len = {seq_len} was not published for both. Known: {', '.join(map(str, known))}.")
    with canvas(6.6, 3.5) as figure:
        left, right = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2.3))
        said = _lines(left, forward, "library") + _lines(right, both, "gpu")
        left.set(title=f"forward, {forward[0]['gpu']}, {forward[0]['dtype']}", ylabel="TFLOP/s", ylim=(0, 830))
        right.set(title="forward + backward, FA2")
        for axes in (left, right):
            axes.title.set_fontsize(10)
            axes.set_xlabel("d_head")
            axes.grid(axis="y")
            axes.set_axisbelow(True)
        figure.suptitle(f"Published figures, not measured here (length {seq_len})", x=0.01, ha="left", fontsize=12, fontweight="bold")  # fmt: skip
    alt = (
        f"Published figures of the FlashAttention project, not measured here: TFLOP/s against d_head without a mask, "
        f"length {seq_len}. {'; '.join(said)}."
    )
    return Figure(figure, "published_timings", alt)


def _lines(axes, rows: list[dict], by: str) -> list[str]:
    """One line per library or GPU, values printed at the points, the name at the right end."""
    said = []
    names = list(dict.fromkeys(r[by] for r in rows))
    last = max(r["d_head"] for r in rows)
    sizes = sorted({r["d_head"] for r in rows})
    for name in names:
        line = sorted((r for r in rows if r[by] == name), key=lambda r: r["d_head"])
        at = [sizes.index(r["d_head"]) for r in line]
        values = [r["value"] for r in line]
        library = line[0]["library"]
        look = _LOOKS[library]
        hollow = "markerfacecolor" in look
        edge = {"markeredgecolor": look["color"] if hollow else INK, "markeredgewidth": 1.8 if hollow else 0.6}
        axes.plot(at, values, linewidth=2, markersize=6.5, **edge, **look)
        for x, value in zip(at, values, strict=True):
            crowded = any(0 < r["value"] - value < 70 for r in rows if sizes.index(r["d_head"]) == x)
            axes.annotate(f"{value:.0f}", (x, value), xytext=(0, -15 if crowded else 7), textcoords="offset points", ha="center", fontsize=8.5, color=INK)  # fmt: skip
        axes.annotate(
            name.replace(" 80GB", "").replace("FlashAttention-", "FA"),
            (sizes.index(last), values[-1]),
            xytext=(9, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            color=INK,
            annotation_clip=False,
        )
        said.append(
            f"{library} on {line[0]['gpu']}, {line[0]['direction']}: "
            + ", ".join(f"{v:.0f} at {r['d_head']}" for r, v in zip(line, values, strict=True))
        )
    axes.set_xticks(range(len(sizes)), [str(d) for d in sizes])
    axes.set_xlim(-0.35, len(sizes) - 1 + 0.35)
    return said
