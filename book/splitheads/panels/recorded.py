"""From a recording of `splitheads.timing` to what a page needs: lines of points, found steps, where they come from.

Everything here is words and numbers; the view that draws them is `chart.js`, and the printed twin is made here.
`summary` is translated, too, for a page that measures (`browser_rules.py`), so it keeps to `translate`'s part of Python.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

from ..palette import BACKEND_UNKNOWN, BACKENDS, SERIES, SHAPES
from ..timing.analyse import analyse
from ..timing.record import WIDE_INTERVAL

HOW = [
    ["text", "On your machine: "],
    ["code", "make lab"],
    ["text", " opens this panel with Run, Stop and Save; or, without a notebook, "],
    ["code", "python -m splitheads time --device auto --budget 60 --json my.json"],
    ["text", "."],
]
"""How to measure instead of reading: text and code in turns."""

NO_GPU = "No GPU recording is in this book yet; what you see was measured on a CPU."
NONE = (
    "No recording is here yet: measure one, in a notebook with Run, or with the command below. "
    "“make record” adds the standard sweep to the book."
)


def short(value: float | None, digits: int = 4) -> float | int | None:
    """`value` to four significant digits, as few characters as that takes."""
    if value is None:
        return None
    number = float(f"{value:.{digits}g}")
    return int(number) if number.is_integer() else number


def readable(value: float, unit: str) -> str:
    """ "98.2 GFLOP/s", "16.9 GB": three digits and the fitting power of 1000."""
    for power, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= power:
            return f"{value / power:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def names_of(keys: list[tuple[str, str]]) -> list[str]:
    """A short name for each (case, backend): only what differs between the lines of one chart is said."""
    cases, backends = dict.fromkeys(case for case, _ in keys), dict.fromkeys(backend for _, backend in keys)
    if len(backends) == 1:
        return [case if len(cases) > 1 else backend for case, backend in keys]
    return [backend if len(cases) == 1 else f"{case}, {backend}" for case, backend in keys]


def group(points: Iterable[dict], buckets: dict[int, int | None] | None = None) -> list[dict]:
    """Points as the view takes them: one dict of columns per (case, backend, direction, T), d_head ascending.

    Columns: d = d_head, v = d_head_v (only where it differs), t, lo, hi = median and interval in ms, f = GFLOP per
    call, m = peak memory in MB, n = repeats, o and p = observed and predicted backend, b = compiled width (seen, or known
    of the release: `buckets`), g = flags; `gaps` lists the points without a time as [d_head, status, reason].
    """
    lines: dict[tuple, list[dict]] = {}
    for point in points:
        lines.setdefault((point["direction"], point["seq_len"], point["case"], point["backend"]), []).append(point)
    names: dict[tuple, str] = {}
    for direction, seq_len in dict.fromkeys(key[:2] for key in lines):
        mates = [key for key in lines if key[:2] == (direction, seq_len)]
        names.update(zip(mates, names_of([key[2:] for key in mates]), strict=True))
    made = []
    words = {WIDE_INTERVAL: "interval wider than asked for"}
    for key, all_points in lines.items():
        direction, seq_len, case, backend = key
        found = sorted((p for p in all_points if p["status"] == "ok"), key=lambda p: p["d_head"])
        line: dict[str, Any] = {
            "name": names[key],
            "case": case,
            "backend": backend,
            "direction": direction,
            "seq_len": seq_len,
            "d": [p["d_head"] for p in found],
            "t": [short(p["median_s"] * 1e3) for p in found],
            "lo": [short(p["interval_s"][0] * 1e3) for p in found],
            "hi": [short(p["interval_s"][1] * 1e3) for p in found],
            "f": [short(p["flops"] / 1e9) for p in found],
            "n": [p["repeats"] for p in found],
            "o": same([p.get("observed") for p in found]),
            "p": same([p.get("predicted") for p in found]),
        }
        if any(p["d_head_v"] != p["d_head"] for p in found):
            line["v"] = [p["d_head_v"] for p in found]
        if any(p.get("peak_bytes") is not None for p in found):
            line["m"] = [short(None if p.get("peak_bytes") is None else p["peak_bytes"] / 1e6) for p in found]
        widths = [
            p.get("bucket") or ((buckets or {}).get(p["d_head"]) if p.get("observed") == "FLASH" else None)
            for p in found
        ]
        if any(widths):
            line["b"] = widths
        if flags := {
            str(i): [words.get(flag, flag) for flag in p["flags"]] for i, p in enumerate(found) if p.get("flags")
        }:
            line["g"] = flags
        if gaps := [[p["d_head"], p["status"], p.get("reason") or ""] for p in all_points if p["status"] != "ok"]:
            line["gaps"] = gaps
        made.append(line)
    return made


def same(values: list) -> Any:
    """One value in place of a list of equal ones: most lines have the same kernel from end to end."""
    return values[0] if values and all(value == values[0] for value in values) else values


def summary(recording: dict, name: str) -> dict:
    """What the page needs of one recording: lines of points, found steps, and where the numbers come from."""
    found = analyse(recording)
    lines = group(recording["points"], found.buckets)
    ceiling = (recording.get("ceilings") or {}).get("matmul_flops_per_s")
    return {
        "name": name,
        "title": title(recording),
        "source": source(recording),
        "device": recording["device"]["type"],
        "lines": lines,
        "steps": steps(found, lines),
        "ceiling": ceiling and {"gflops": short(ceiling["median"] / 1e9), "what": ceiling["what"]},
        "facts": [
            *facts(recording),
            *method(recording),
            ["rule", found.rule.text],
            *(["remark", remark] for remark in found.flags),
        ],
    }


def steps(found: Any, lines: list[dict]) -> list[dict]:
    """What `timing.analyse` found, each with the two points that it lies between, as [line, place on it].

    Falls along d_head come one by one, and first. The same change to the call makes the same fall at many head sizes:
    those are told together, and not pointed at in the chart ("unmarked"), where they are two lines anyway.
    """
    place = {
        (x["case"], x["backend"], x["direction"], x["seq_len"], d): [i, j]
        for i, x in enumerate(lines)
        for j, d in enumerate(x["d"])
    }

    def at(point: dict) -> list[int]:
        return place[tuple(point[key] for key in ("case", "backend", "direction", "seq_len", "d_head"))]

    def whose(point: dict) -> str:
        """The name of the point's line, where its chart has others."""
        line = lines[at(point)[0]]
        mates = [x for x in lines if (x["direction"], x["seq_len"]) == (line["direction"], line["seq_len"])]
        return f"{line['name']}: " if len(mates) > 1 else ""

    told = []
    alike: dict[tuple, list] = {}
    for step in found.steps:
        one, other = step.before, step.after
        key = (*(other[k] for k in ("direction", "seq_len", "d_head")), one["d_head"], step.kind)
        if other["observed"] == "FUSED":  # the series of a WebGPU page are compiled in different widths
            key = (*key, one["bucket"], other["bucket"])
        alike.setdefault((*key, one["observed"], other["observed"]), []).append(step)
    for mates in alike.values():
        # "auto" and the kernel that it picks, forced, take the same step: one text, with the other ratios.
        step = mates[0]
        more = [f"{lines[at(mate.after)[0]]['name']} {mate.ratio:.2f} times" for mate in mates[1:]]
        text = whose(step.after) + step.text + (f"; likewise {', '.join(more)}" if more else "")
        told.append({"along": step.along, "kind": step.kind, "ends": [at(step.before), at(step.after)], "text": text})
    together: dict[tuple, list] = {}
    for gain, group_of in ((False, found.changes), (True, found.gains)):
        for step in group_of:
            one, other = step.before, step.after
            key = (gain, step.along, *(other[k] for k in ("case", "backend", "direction", "seq_len")), one["backend"])
            together.setdefault((*key, one["observed"], other["observed"]), []).append(step)
    for (gain, along, case, backend, _, _, start, old, new), mates in together.items():
        shown = next((step for step in mates if step.after["d_head"] == 64), mates[len(mates) // 2])
        text = shown.text
        if len(mates) > 1:
            sizes = sorted(step.after["d_head"] for step in mates)
            forced = start == "auto"
            what = f"forced to {backend}" if forced else f"{backend} instead of {start}"
            if along == "case":
                what = case
            elif case != "plain":
                what = f"{case}, {what}"
            ratios = [1 / step.ratio if gain else step.ratio for step in mates]
            text = f"{what}{f': backend change, {old} → {new}' if forced else ''}, "
            text += f"at {len(sizes)} head sizes from {sizes[0]} to {sizes[-1]}: {span(ratios)} times "
            text += "slower" if not gain else "faster than what auto took" if forced else "faster"
            memory = [step.memory_ratio for step in mates if step.memory_ratio]
            text += f", {span(memory)} times the peak memory" if memory and max(memory) > 1.05 else ""
        ends = [at(shown.before), at(shown.after)]
        told.append({"along": along, "kind": shown.kind, "ends": ends, "text": text, "unmarked": True})
    order = ("d_head", "case", "backend")
    return sorted(told, key=lambda step: (order.index(step["along"]), sum(lines[i]["d"][j] for i, j in step["ends"])))


def span(values: list[float]) -> str:
    """ "3.1 to 4.5", or one number where both would be written alike."""
    low, high = (f"{end:.2f}" if end < 2 else f"{end:.1f}" for end in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def counted(n: int, one: str, many: str | None = None) -> str:
    return f"{n} {one if n == 1 else many or one + 's'}"


def title(recording: dict) -> str:
    """A recording in the selector: "NVIDIA A100 (cuda): bf16, torch 2.13.0, 2026-11-30"."""
    device, torch = recording["device"], recording["software"].get("torch")
    stack = f", torch {torch}" if torch else ""
    kind = "in the browser" if device["type"] == "webgpu" else device["type"]
    return f"{device['name']} ({kind}): {recording['plan']['dtype']}{stack}, {recording['created'][:10]}"


def hardware(device: dict) -> str:
    told = [device["name"]]
    if device["type"] == "webgpu":
        told.append("in the browser")
        if device.get("software") is True:
            told.append("software adapter: the CPU computes")
    if device["type"] == "cpu" and device.get("threads"):
        told.append(counted(device["threads"], "thread"))
    if device.get("memory_bytes"):
        told.append(f"{device['memory_bytes'] / 1e9:.0f} GB")
    if device.get("driver"):
        told.append(f"driver {device['driver']}")
    return ", ".join(told)


def flat(value: Any) -> str:
    """Nested facts in one line: "start: sm_mhz 1980; end: sm_mhz 1755"."""
    if not isinstance(value, dict):
        return f"{value:g}" if isinstance(value, float) else str(value)
    parts = [(key, inner) for key, inner in value.items() if inner is not None]
    nested = any(isinstance(inner, dict) for _, inner in parts)
    return ("; " if nested else ", ").join(
        f"{key}{': ' if isinstance(inner, dict) else ' '}{flat(inner)}" for key, inner in parts
    )


def agreed(recording: dict) -> str:
    """How far the observed kernels are the predicted ones: "112 of 112 kernels as predicted"."""
    verdict = recording["agreement"]
    if recording["device"]["type"] == "webgpu":
        return ""  # nothing chose a kernel there, so nothing was predicted
    if not verdict["compared"]:
        return "no kernel was both predicted and observed"
    told = f"{verdict['agree']} of {verdict['compared']} kernels as predicted"
    differ = [
        f"{p['case']}, {p['backend']}, d_head {p['d_head']}: {p['observed']}, not {p['predicted']}"
        for p in verdict["differ"]
    ]
    more = f"; and {len(differ) - 3} more" if len(differ) > 3 else ""
    return told + (f" ({'; '.join(differ[:3])}{more})" if differ else "")


def often(recording: dict) -> str:
    repeats = [p["repeats"] for p in recording["points"] if p["status"] == "ok"]
    if not repeats:
        return "no point was measured"
    low, high = min(repeats), max(repeats)
    what = "samples" if recording["device"]["type"] == "webgpu" else "calls"  # there, a sample is several calls
    return f"each point the median of {low if low == high else f'{low} to {high}'} {what}"


def source(recording: dict) -> str:
    """The line under every chart: on what, with what, when, and how far the kernels are as predicted."""
    software, plan = recording["software"], recording["plan"]
    torch = f"torch {software.get('build') or software['torch']}" if software.get("torch") else ""
    shape = f"{plan['dtype']}, batch {plan['batch']}, {counted(plan['n_heads'], 'head')}"
    parts = [hardware(recording["device"]), torch, shape, often(recording), agreed(recording)]
    return f"Measured {recording['created'][:10]} on {'; '.join(filter(None, parts))}."


def facts(recording: dict) -> list[list[str]]:
    """Everything else about where the numbers come from, as [term, text] pairs."""
    software, plan = recording["software"], recording["plan"]
    stack = [f"{label} {software[key]}".strip() for key, label in SOFTWARE.items() if software.get(key)]
    ceilings = [
        f"{readable(of['median'], unit)} ({of['what']})"
        for key, unit in (("matmul_flops_per_s", "FLOP/s"), ("copy_bytes_per_s", "B/s"))
        if (of := (recording.get("ceilings") or {}).get(key))
    ]
    ended = {"complete": "every point settled", "budget": "the time was up", "interrupted": "stopped by hand"}
    return [
        ["command", recording["command"] or "not recorded"],
        [
            "when",
            f"{recording['created'].replace('T', ' ').replace('Z', ' UTC')}, for {recording['duration_s']:.0f} s: {ended[recording['ended']]}",
        ],
        ["software", ", ".join(stack)],
        [
            "shapes",
            f"{plan['dtype']}, batch {plan['batch']}, n_heads {plan['n_heads']}, T = {', '.join(map(str, plan['seq_lens']))}",
        ],
        ["ceilings", "; ".join(ceilings) or "not measured"],
        *([["clocks", flat(clocks)]] if (clocks := recording["device"].get("clocks")) else []),
    ]


SOFTWARE = {
    "build": "torch",
    "cuda": "CUDA",
    "cudnn": "cuDNN",
    "python": "Python",
    "splitheads": "splitheads",
    "system": "",
}


def method(recording: dict) -> list[list[str]]:
    """How it was measured, as [term, text] pairs."""
    how = recording["method"]
    return [
        [
            "whiskers",
            f"{how['confidence'] * 100:g} % interval of the median, {how['interval']}; none is drawn where the mark hides it",
        ],
        *(
            [term, how[key]]
            for term, key in (("clock", "clock"), ("order", "order"), ("inputs", "inputs"), ("warm-up", "warmup"))
        ),
    ]


MOST_STEPS = 6
"""So many found steps a printed twin tells; the rest is counted."""

# For readers without scripts, and for paper -------------------------------------------------------


LOOKS = {name: {"colour": colour, "shape": shape} for name, (colour, shape) in SERIES.items()}
"""The same for a view: of a page's own recordings, by how the kernel was compiled."""

MARKS = {kind: (BACKENDS[kind], SHAPES[kind]) for kind in SHAPES} | SERIES
"""Colour and shape of a point: by the kernel that ran, or, in a page's own recording, by how it was compiled."""


def kinds_of(line: dict) -> list[str | None]:
    """For each point of a line, what its mark stands for."""
    if line["backend"] in SERIES:
        return [line["backend"]] * len(line["d"])
    return line["o"] if isinstance(line["o"], list) else [line["o"]] * len(line["d"])


def drawing(shown: dict, plot: str = "throughput") -> str:
    """The first chart of a recording as SVG: throughput, or time, against d_head, one line per series."""
    lines = [x for x in shown["lines"] if x["d"]]
    if not lines:
        return "<p>No point of this recording has a time.</p>"
    direction, seq_len = lines[0]["direction"], lines[0]["seq_len"]
    lines = [x for x in lines if (x["direction"], x["seq_len"]) == (direction, seq_len)]
    rates = [x["t"] if plot == "time" else [f / t * 1e3 for f, t in zip(x["f"], x["t"], strict=True)] for x in lines]
    most = max(map(max, rates))
    widths = sorted({d for x in lines for d in x["d"]})
    low, high = (widths[0], widths[-1]) if len(widths) > 1 else (widths[0] - 1, widths[0] + 1)
    wide, tall, left = 640, 284, 56
    right = 30 + 8 * max(len(x["name"]) for x in lines)

    def at(d: float, y: float) -> tuple[float, float]:
        return left + (d - low) / (high - low) * (wide - left - right), tall - 38 - y / most * (tall - 70)

    marks = {
        "circle": '<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" {s}/>',
        "square": '<path d="M{x:.1f} {y:.1f}m-4-4h8v8h-8z" {s}/>',
        "diamond": '<path d="M{x:.1f} {y:.1f}m0-6l6 6-6 6-6-6z" {s}/>',
        "triangle": '<path d="M{x:.1f} {y:.1f}m0-6l5.5 9h-11z" {s}/>',
    }
    parts = [
        f'<text x="0" y="14" font-size="13" fill="currentColor">{"ms per call" if plot == "time" else "GFLOP/s"}</text>'
        f'<text x="{left - 6}" y="{tall - 34}" font-size="13" fill="currentColor" text-anchor="end">0</text>'
        f'<text x="{left - 6}" y="{at(low, most)[1] + 4:.1f}" font-size="13" fill="currentColor" text-anchor="end">{most:.3g}</text>'
        f'<line x1="{left}" x2="{wide - right}" y1="{tall - 38}" y2="{tall - 38}" stroke="currentColor"/>'
    ]
    last = -99.0
    for d in widths:
        x = at(d, 0)[0]
        if x - last > 28:
            parts.append(
                f'<text x="{x:.1f}" y="{tall - 21}" font-size="13" fill="currentColor" text-anchor="middle">{d}</text>'
            )
            last = x
    parts.append(
        f'<text x="{left + (wide - left - right) / 2}" y="{tall - 5}" font-size="13" fill="currentColor" text-anchor="middle">d_head</text>'
    )
    ends = []
    for x, rate in zip(lines, rates, strict=True):
        places = [at(d, y) for d, y in zip(x["d"], rate, strict=True)]
        parts.append(
            f'<polyline points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in places)}" fill="none" stroke="currentColor" stroke-opacity="0.5"/>'
        )
        for (a, b), kind in zip(places, kinds_of(x), strict=True):
            colour, shape = MARKS.get(kind, (BACKEND_UNKNOWN, "circle"))
            parts.append(marks[shape].format(x=a, y=b, s=f'fill="{colour}" stroke="currentColor"'))
        ends.append([places[-1][1], x["name"]])
    ends.sort()
    floor = 0.0
    for y, name in ends:
        floor = max(y + 4, floor + 14)
        parts.append(
            f'<text x="{wide - right + 14}" y="{floor:.1f}" font-size="13" fill="currentColor">{escape(name)}</text>'
        )
    label = f"{plot.capitalize()} against d_head, {direction}, T = {seq_len}: {', '.join(x['name'] for x in lines)}."
    svg = f'<svg viewBox="0 0 {wide} {max(tall, floor + 6):.0f}" style="width:100%;min-width:var(--sh-plot-least, 0px);max-width:{wide}px;height:auto" role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>'
    return f'<div class="sh-plot" tabindex="0">{svg}</div>'


def twin(shown: list[dict], notes: list[str], plot: str = "throughput") -> str:
    """The panel's default state in print: the first recording as a chart, its steps, where it comes from."""
    told = "".join(f"<p>{escape(note)}</p>" for note in notes)
    if not shown:
        return f"{told}<p>{NONE} {''.join(escape(text) for _, text in HOW)}</p>"
    first = shown[0]
    kinds = {kind for x in first["lines"] for kind in kinds_of(x)}
    legend = ", ".join(f"{kind} a {shape}" for kind, (_, shape) in MARKS.items() if kind in kinds)
    found = "".join(f"<li>{escape(step['text'])}</li>" for step in first["steps"][:MOST_STEPS])
    if (more := len(first["steps"]) - MOST_STEPS) > 0:
        found += f"<li>and {more} more</li>"
    command = dict(first["facts"])["command"]
    return (
        f"<p><strong>{escape(first['title'])}</strong>{f'. Marks: {legend}.' if legend else ''}</p>{drawing(first, plot)}"
        f"{f'<ul>{found}</ul>' if found else ''}<p>{escape(first['source'])} <code>{escape(command)}</code></p>{told}"
    )
