"""Figure: measured throughput against d_head, from one recording of the timing lab."""

from __future__ import annotations

from matplotlib.lines import Line2D

from ..palette import BACKEND_UNKNOWN, BACKENDS, SHAPES
from ..timing.analyse import Analysis, Series, analyse, staircase
from ..timing.record import title
from .style import INK, MARKERS, QUIET, Figure, canvas

_DASHES = ["-", (0, (7, 2)), (0, (1.5, 1.5)), (0, (7, 2, 1.5, 2)), (0, (12, 3)), (0, (7, 2, 1.5, 2, 1.5, 2))]
"""Lines are told apart by their dashes and their names: colour and shape of a mark are the kernel's."""


def head_size_sweep(recording: dict, direction: str | None = None, seq_len: int | None = None) -> Figure:
    """Throughput with its interval for every head size; colour and shape of a mark say which backend was observed.

    `recording` is one that `splitheads.timing.record.load` returned. `direction` ("forward" or
    "forward+backward") and `seq_len` choose among those it holds; default: the first direction and
    the longest sequence. Falls that `analyse` found are named; the dashed staircase is predicted,
    d_head / compiled width, scaled to the fastest point of FlashAttention.

    Raises ValueError if the recording has no measured point there.
    """
    plan = recording["plan"]
    direction = direction or plan["directions"][0]
    seq_len = seq_len or max(plan["seq_lens"])
    found = analyse(recording)
    here = [s for s in found.series if (s.direction, s.seq_len) == (direction, seq_len)]
    # A changed call under every forced backend would only repeat what "auto" and the forced plain calls show.
    lines = [s for s in here if s.case == "plain" or s.backend == "auto"] or here
    if not lines:
        raise ValueError(
            f"direction = {direction!r}, seq_len = {seq_len}: no point was measured. "
            f"The recording has {', '.join(plan['directions'])} and lengths {', '.join(map(str, plan['seq_lens']))}."
        )
    best = max(p["flops_per_s"] for s in lines for p in s.points)
    scale, unit = (1e12, "TFLOP/s") if best >= 1e12 else (1e9, "GFLOP/s")

    with canvas(6.6, 4.0) as figure:
        axes = figure.add_subplot()
        steps = _predicted(axes, recording, lines, scale)
        for line, dashes in zip(lines, _DASHES * len(lines), strict=False):
            _draw(axes, line, dashes, scale)
        axes.set(
            xlabel="d_head",
            ylabel=f"useful work ({unit})",
            ylim=(0, (1.5 if found.steps else 1.12) * best / scale),
            title=f"{recording['device']['name']}: {plan['dtype']}, {direction}, length {seq_len}",
        )
        axes.grid(axis="y")
        axes.set_axisbelow(True)
        axes.set_xticks(_ticks(sorted({p["d_head"] for s in lines for p in s.points})))
        _name_steps(axes, found, lines)
        _name_lines(axes, lines, scale)
        _legend(axes, lines, steps)
    name = f"head_size_sweep-{recording['created']}-{plan['dtype']}-{direction}-{seq_len}"
    return Figure(figure, name, _alt(recording, found, lines, scale, unit))


def _look(backend: str | None) -> dict:
    """The mark of a backend, for a plot and for its legend."""
    return {
        "color": BACKENDS.get(backend, BACKEND_UNKNOWN),
        "marker": MARKERS[SHAPES.get(backend, "cross")],
        "markersize": 6,
        "markeredgecolor": INK,
        "markeredgewidth": 0.6,
        "linestyle": "",
    }


def _draw(axes, line: Series, dashes: str | tuple, scale: float) -> None:
    d = [p["d_head"] for p in line.points]
    rate = [p["flops_per_s"] / scale for p in line.points]
    below = [(p["flops_per_s"] - p["flops_per_s_interval"][0]) / scale for p in line.points]
    above = [(p["flops_per_s_interval"][1] - p["flops_per_s"]) / scale for p in line.points]
    axes.plot(d, rate, color=QUIET, linewidth=1.2, linestyle=dashes, zorder=2)
    axes.errorbar(d, rate, yerr=[below, above], fmt="none", ecolor=INK, elinewidth=1, capsize=2.5, zorder=3)
    for backend in dict.fromkeys(p["observed"] for p in line.points):
        own = [i for i, p in enumerate(line.points) if p["observed"] == backend]
        axes.plot([d[i] for i in own], [rate[i] for i in own], zorder=4, **_look(backend))


def _predicted(axes, recording: dict, lines: list[Series], scale: float) -> bool:
    """The dashed staircase; False where no kernel with compiled widths ran."""
    flash = [p for s in lines for p in s.points if p["observed"] == "FLASH" and s.case == "plain"]
    device = recording["device"]
    if not flash or device["type"] != "cuda" or not device["key"]:
        return False
    first, last = min(p["d_head"] for p in flash), max(p["d_head"] for p in flash)
    shares = staircase(range(first, last + 1), recording["software"]["torch"], device["key"])
    known = {d: share for d, share in shares.items() if share}
    if not known:
        return False
    top = max(p["flops_per_s"] for p in flash) / scale
    axes.plot(list(known), [top * s for s in known.values()], color=INK, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    return True


def _name_steps(axes, found: Analysis, lines: list[Series]) -> None:
    """A dotted line where throughput falls along d_head, with the label and the ratio."""
    shown = {(s.case, s.backend) for s in lines}
    named: set[tuple[int, int]] = set()
    for step in found.steps:
        before, after = step.before, step.after
        where = (before["d_head"], after["d_head"])
        here = (after["direction"], after["seq_len"]) == (lines[0].direction, lines[0].seq_len)
        if not here or (after["case"], after["backend"]) not in shown or where in named:
            continue
        named.add(where)
        x = sum(where) / 2
        axes.axvline(x, color=INK, linewidth=0.8, linestyle=":", zorder=1)
        axes.annotate(
            f"{step.kind}\n{step.ratio:.2f}×",
            (x, 0.99),
            xycoords=("data", "axes fraction"),
            xytext=(-2, 0),
            textcoords="offset points",
            rotation=90,
            ha="right",
            va="top",
            fontsize=8,
            color=INK,
        )


def _label(line: Series) -> str:
    return _label_of(line.points[0])


def _label_of(point: dict) -> str:
    case = "" if point["case"] == "plain" else point["case"].replace("_", " ")
    backend = "auto" if point["backend"] == "auto" else f"forced {point['backend']}"
    return case if case and point["backend"] == "auto" else f"{case} {backend}".strip()


def _name_lines(axes, lines: list[Series], scale: float) -> None:
    """Each series named at its right end; names that would overlap are moved apart."""
    top = axes.get_ylim()[1]
    right = max(s.points[-1]["d_head"] for s in lines)
    ends = []
    for line in lines:
        end = line.points[-1]
        short = "" if end["d_head"] == right else f" (to {end['d_head']})"
        ends.append((end["flops_per_s"] / scale, _label(line) + short))
    gap, last = 0.052 * top, -1.0
    for rate, name in sorted(ends):
        y = max(rate, last + gap)
        last = y
        axes.annotate(
            name,
            (right, y),
            xytext=(9, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
            color=INK,
            annotation_clip=False,
        )


def _legend(axes, lines: list[Series], steps: bool) -> None:
    seen = {p["observed"] for s in lines for p in s.points}
    handles = [Line2D([], [], label=backend, **_look(backend)) for backend in BACKENDS if backend in seen]
    if seen - set(BACKENDS):
        handles.append(Line2D([], [], label="not observed", **_look(None)))
    if steps:
        handles.append(Line2D([], [], color=INK, linewidth=1, linestyle=(0, (4, 3)), label="predicted: d_head / width"))
    axes.legend(
        handles=handles,
        loc="lower center",
        bbox_to_anchor=(0.5, -0.3),
        ncols=len(handles),
        fontsize=9,
        handlelength=1.6,
    )


def _ticks(sizes: list[int], most: int = 12) -> list[int]:
    while len(sizes) > most:
        round_sizes = [d for d in sizes if d % 32 == 0]
        sizes = round_sizes if 2 < len(round_sizes) < len(sizes) else sizes[::2]
    # Numbers that would touch: the rounder one stays (64 of 64 and 65).
    apart = (sizes[-1] - sizes[0]) / 16
    kept: list[int] = []
    for d in sorted(sizes, key=lambda d: (d % 32 != 0, d % 16 != 0, d % 8 != 0, d)):
        if all(abs(d - other) >= apart for other in kept):
            kept.append(d)
    return sorted(kept)


def _alt(recording: dict, found: Analysis, lines: list[Series], scale: float, unit: str) -> str:
    parts = [f"Chart of measured throughput against d_head. {title(recording)}."]
    for line in lines:
        low, high = line.points[0], line.points[-1]
        backends = " and ".join(dict.fromkeys(p["observed"] or "a backend not observed" for p in line.points))
        span = f"{low['flops_per_s'] / scale:.3g} {unit} at {low['d_head']}"
        if high is not low:
            span += f" to {high['flops_per_s'] / scale:.3g} at {high['d_head']}"
        parts.append(f"{_label(line)}: {span}, {backends}.")
    here = (lines[0].direction, lines[0].seq_len)
    shown = {(line.case, line.backend) for line in lines}
    falls = [
        f"{s.kind} from {s.before['d_head']} to {s.after['d_head']} ({_label_of(s.after)}), {s.ratio:.2f} times the cost"
        for s in found.steps
        if (s.after["direction"], s.after["seq_len"]) == here and (s.after["case"], s.after["backend"]) in shown
    ]
    parts.append(f"Falls along d_head: {'; '.join(falls)}." if falls else "No fall along d_head beyond the noise.")
    groups: dict[str, list[float]] = {}
    for change in found.changes:
        after = change.after
        if (after["direction"], after["seq_len"]) == here and (after["case"] == "plain" or after["backend"] == "auto"):
            cause = after["case"].replace("_", " ") if change.along == "case" else f"forced {after['backend']}"
            name = f"{cause}, {change.before['observed']} to {after['observed']}"
            groups.setdefault(name, []).append(change.ratio)
    for name, ratios in groups.items():
        low, high = f"{min(ratios):.1f}", f"{max(ratios):.1f}"
        slower = low if low == high else f"{low} to {high}"
        sizes = "1 head size" if len(ratios) == 1 else f"{len(ratios)} head sizes"
        parts.append(f"Backend change: {name}, {slower} times slower at {sizes}.")
    return " ".join(parts)
