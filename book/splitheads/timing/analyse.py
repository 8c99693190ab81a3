"""What a recording shows: throughput against d_head, falls beyond the noise, and what caused them.

The rule for a fall
-------------------
Two points are compared by their cost, seconds per useful operation (`record.flops`). The second is
slower by the `ratio` of the two. Every recorded interval of a median is widened, on the log scale
and about its median, until all comparisons of the recording hold together with 95 % confidence
(Bonferroni: each of the m comparisons at 1 - 0.05 / m, Student's t with repeats - 1 degrees of
freedom). `ratio_interval` is made from the two widened intervals by the method of variance
estimates recovery: on the log scale their distances from the medians add as squares (Zou & Donner,
"Construction of confidence limits about effect measures", Statistics in Medicine 27, 2008).
The second point is a

- *cliff* (a `Step`) when the cost rises by more than 5 % and the lower limit of the ratio is above 1.02;
- *rise*, the same the other way round: less than 1 / 1.05 and an upper limit below 1 / 1.02.

Everything else is noise or too small to matter. The two margins stand for what an interval cannot
know: differences between runs, such as memory layout, that repeats inside one run do not show. A
point with fewer than 4 repeats, or with more operations per second than the ceiling allows, is not
judged. With 4 or 5 the recorded interval is the range, which covers less than 95 %; it is widened
from what it does cover. A run stops when its intervals are tight enough, and that rule itself costs
some coverage: 0.93 to 0.94 in simulations, where 0.95 is asked for. Only neighbours in d_head are
compared: a step of a kernel falls between two sizes, it does not spread over several.

Standard library only. A page that measures by WebGPU uses these very functions, translated (`panels/translate.py`), so
they keep to its part of Python.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from statistics import NormalDist
from typing import Any

from ..backends import UnknownPlatform, flash_bucket
from ..partition import MAX_WIDTH
from .record import ABOVE_CEILING, WIDE_INTERVAL

ALPHA = 0.05
"""Chance, at most, that a recording without any fall shows one (for all comparisons together)."""
LEAST_FALL = 1.05
"""A smaller ratio is not worth a name."""
LEAST_LIMIT = 1.02
"""The lower limit of the ratio has to be above this."""
LEAST_REPEATS = 4
"""A point with fewer is not judged: its range says next to nothing about its noise."""

LEAST_SAMPLES = 6
"""With fewer, no interval between two samples holds the median with 95 % confidence."""

PADDING_STEP, BACKEND_CHANGE, UNEXPLAINED, RISE = "padding step", "backend change", "unexplained", "rise"

UNFUSED = "unfused"
"""The series of a WebGPU page that keeps the T × T scores in memory. It is compared with the first of the others."""

_QUANTILE = NormalDist().inv_cdf
_CASES = {
    "causal": "a causal mask",
    "mask": "a boolean mask",
    "dropout": "dropout",
    "gqa": "fewer key/value heads",
    "value_width": "d_v = d_head + 8",
    "strided": "a last dimension that is not contiguous",
    "unbatched": "3-D input",
}


# Intervals ----------------------------------------------------------------------------------------


class MedianInterval(tuple):
    """(median, low, high). `coverage` is the true confidence; `enough` tells whether it is the one asked for."""

    coverage: float
    enough: bool

    def __new__(cls, median: float, low: float, high: float, coverage: float, enough: bool) -> MedianInterval:
        self = super().__new__(cls, (median, low, high))
        self.coverage, self.enough = coverage, enough
        return self


def median_interval(samples: Iterable[float], confidence: float = 0.95) -> MedianInterval:
    """Median of the samples, with a confidence interval for the median of what they were drawn from.

    The limits are two of the samples, the k-th smallest and the k-th largest. Whatever the
    distribution, the median lies between them with probability 1 - 2 P(Binomial(n, 1/2) < k): exact,
    no bell curve assumed (David & Nagaraja, "Order Statistics", 2003, section 7.1). k is the largest
    that keeps the confidence. With too few samples for any (fewer than 6 at 95 %) the interval is
    their range, and `enough` is False. Samples have to be independent of each other. Their number, too,
    has to be fixed beforehand: where a run stops once the interval is tight enough, as the lab's do, 95 %
    become 93 to 94 % (simulated).

    Raises:
        ValueError: no samples, one that is not a finite number, or a confidence outside 0 ... 1.
    """
    *limits, coverage = median_limits(samples, confidence)
    return MedianInterval(*limits, coverage, coverage >= confidence)


def median_limits(samples: Iterable[float], confidence: float = 0.95) -> tuple[float, float, float, float]:
    """(median, low, high, coverage): what `median_interval` is made of."""
    values = sorted(float(s) for s in samples)
    if not values:
        raise ValueError("There are no samples: give at least one.")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence = {confidence} must lie between 0 and 1, such as 0.95.")
    for value in values:
        if not math.isfinite(value):
            raise ValueError(f"The sample {value} is no finite number: leave it out.")
    n = len(values)
    middle = values[n // 2] if n % 2 else (values[n // 2 - 1] + values[n // 2]) / 2
    k, coverage = order_statistics(n, confidence)
    return middle, values[k - 1], values[n - k], coverage


@lru_cache(maxsize=4096)
def order_statistics(n: int, confidence: float = 0.95) -> tuple[int, float]:
    """(k, coverage): the k-th smallest and k-th largest of n samples enclose the median that often.

    k is the largest with at least the confidence asked for, or 1 (the range) where there is none.
    """
    sd = math.sqrt(n) / 2
    start = max(0, int(n / 2 - 12 * sd) - 1)  # what lies below is less than 1e-30
    log_chance = math.lgamma(n + 1) - math.lgamma(start + 1) - math.lgamma(n - start + 1) - n * math.log(2)
    chance, below = math.exp(log_chance), 0.0  # P(exactly i), P(fewer than i)
    k, coverage = 1, max(0.0, 1 - 2 * 0.5**n)
    for i in range(start, (n + 1) // 2):
        below += chance  # now P(at most i), which is P(fewer than i + 1)
        if 1 - 2 * below < confidence:
            break
        k, coverage = i + 1, 1 - 2 * below
        chance *= (n - i) / (i + 1)
    return k, coverage


def widening(comparisons: int, repeats: int, confidence: float = 0.95) -> float:
    """Factor from an interval by order statistics to one that holds in all comparisons together.

    Student's t with repeats - 1 degrees of freedom, over the normal quantile of what the interval
    truly covers (see `order_statistics`). t by the expansion in 1 / freedom (Abramowitz & Stegun,
    "Handbook of Mathematical Functions", 26.7.5, to the third order).
    """
    z = _QUANTILE(1 - ALPHA / (2 * max(1, comparisons)))
    v = repeats - 1
    t = (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
    )
    coverage = order_statistics(repeats, confidence)[1]
    side = min((1 + coverage) / 2, 1 - 2**-53)  # with hundreds of repeats the coverage can round to 1
    return max(1.0, t / _QUANTILE(side))


# Analysis -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """The numbers of the rule as they were used for this recording, and a sentence for readers."""

    comparisons: int
    confidence: float
    least_repeats: int = LEAST_REPEATS
    least_fall: float = LEAST_FALL
    least_limit: float = LEAST_LIMIT
    alpha: float = ALPHA

    @property
    def text(self) -> str:
        return (
            f"A fall counts when the cost per useful operation rises by more than {self.least_fall - 1:.0%} and the "
            f"interval of the ratio stays above {self.least_limit:.2f}, with the intervals widened so that all "
            f"{self.comparisons} comparisons hold together with {1 - self.alpha:.0%} confidence; points with fewer than "
            f"{self.least_repeats} repeats are not judged."
        )


@dataclass(frozen=True)
class Series:
    """Points that differ in d_head only, ascending. Each has, besides the recording's own keys:

    `flops_per_s` and `flops_per_s_interval` (useful operations per second; lower limit first), and
    `share` and `share_interval` (of the matrix-product ceiling; None where that was not measured).
    """

    case: str
    backend: str
    direction: str
    seq_len: int
    points: tuple[dict, ...]


@dataclass(frozen=True)
class Step:
    """Two points between which the cost per useful operation changes beyond the noise.

    `along` tells what was changed: "d_head", "case" or "backend". `ratio` is the second cost over the
    first: 1.25 is 25 % slower. `before` and `after` are the points (dicts of a `Series`).
    """

    along: str
    kind: str
    before: dict
    after: dict
    ratio: float
    ratio_interval: tuple[float, float]
    text: str
    memory_ratio: float | None = None


@dataclass(frozen=True)
class Analysis:
    """What `analyse` found.

    `steps` are the falls along d_head, `rises` their opposite. `changes` are falls at the same d_head
    after one change to the call, where another backend was observed. `gains` are backends that were
    faster, forced, than the one that "auto" took; on WebGPU, unfused where it was faster than the fused
    kernel. `flags` are remarks for people.
    """

    series: tuple[Series, ...]
    steps: tuple[Step, ...]
    changes: tuple[Step, ...]
    flags: tuple[str, ...]
    rises: tuple[Step, ...]
    gains: tuple[Step, ...]
    rule: Rule
    buckets: dict[int, int | None]


def analyse(recording: dict) -> Analysis:
    """Series, falls with their labels, and remarks, from a valid recording (see `record.load`).

    Labels: *padding step*: the same kernel of compiled widths was observed on both sides (FlashAttention
    on a CUDA device, or a WebGPU page's fused kernel), and the next compiled width begins between them.
    *backend change*: two different backends were observed. *unexplained*: anything else, said so.
    """
    confidence = recording["method"]["confidence"]
    ceiling = (recording["ceilings"].get("matmul_flops_per_s") or {}).get("median")
    series = _series(recording["points"], ceiling)
    buckets, note = _buckets(recording)
    flags: list[str] = [note] if note else []

    def fit(point: dict) -> bool:
        return point["repeats"] >= LEAST_REPEATS and ABOVE_CEILING not in point["flags"]

    neighbours = [pair for line in series for pair in pairwise(filter(fit, line.points))]
    by_case, by_backend = _changed(series, fit, recording)
    m = len(neighbours) + len(by_case) + len(by_backend)
    rule = Rule(m, confidence)

    def compared(before: dict, after: dict, whole: bool) -> tuple[float, tuple[float, float]]:
        return _ratio(before, after, rule, whole)

    steps, rises, changes, gains = [], [], [], []
    for before, after in neighbours:
        ratio, limits = compared(before, after, False)
        if is_fall(ratio, limits):
            steps.append(_step(before, after, ratio, limits, buckets))
        elif is_fall(1 / ratio, (1 / limits[1], 1 / limits[0])):
            where = f"d_head {before['d_head']} → {after['d_head']}{_where(after, recording)}"
            text = f"{where}: {_percent(1 / ratio)} more throughput ({_span(1 / limits[1], 1 / limits[0])} times)"
            rises.append(Step("d_head", RISE, before, after, ratio, limits, text))
        elif _both(before, after) and before["observed"] != after["observed"]:
            flags.append(
                f"d_head {before['d_head']} → {after['d_head']}{_where(after, recording)}: {before['observed']} → "
                f"{after['observed']}, without a fall beyond the noise ({ratio:.2f} times the cost, {_span(*limits)})"
            )
    for along, pairs in (("case", by_case), ("backend", by_backend)):
        for before, after in pairs:
            ratio, limits = compared(before, after, True)
            other = _both(before, after) and before["observed"] != after["observed"]
            if other and is_fall(ratio, limits):
                changes.append(_change(along, before, after, ratio, limits, recording))
            elif along == "backend" and is_fall(1 / ratio, (1 / limits[1], 1 / limits[0])) and other:
                faster = f"{_times(1 / ratio)} faster than"
                if before["backend"] == "auto":
                    told = f"{after['observed']}, forced, is {faster} {before['observed']}, which auto took"
                else:
                    told = f"{after['backend']} is {faster} {before['backend']}"
                text = (
                    f"d_head {after['d_head']}{_where(after, recording, backend=False)}: {told} "
                    f"({_span(1 / limits[1], 1 / limits[0])})"
                )
                gains.append(
                    Step("backend", BACKEND_CHANGE, before, after, ratio, limits, text, _memory(before, after))
                )
    flags += _remarks(recording)
    return Analysis(
        tuple(series), tuple(steps), tuple(changes), tuple(flags), tuple(rises), tuple(gains), rule, buckets
    )


def is_fall(ratio: float, limits: tuple[float, float]) -> bool:
    """The rule itself: slower by more than 5 %, and by 2 % at the least with confidence."""
    return ratio > LEAST_FALL and limits[0] > LEAST_LIMIT


def _ratio(before: dict, after: dict, rule: Rule, whole: bool) -> tuple[float, tuple[float, float]]:
    """Cost of `after` over cost of `before`, with limits.

    `whole` counts a causal call as a whole one: "the same call, made causal" is compared in seconds.
    """

    def cost(point: dict) -> tuple[float, float, float]:
        """Cost, and how far the widened limits lie from it downward and upward, on the log scale."""
        work = point["flops"] * (2 if whole and point["case"] == "causal" else 1)
        f = widening(rule.comparisons, point["repeats"], rule.confidence)
        median, (low, high) = point["median_s"], point["interval_s"]
        return median / work, f * math.log(median / low), f * math.log(high / median)

    (a, a_down, a_up), (b, b_down, b_up) = cost(before), cost(after)
    ratio = b / a
    return ratio, (ratio * math.exp(-math.hypot(b_down, a_up)), ratio * math.exp(math.hypot(b_up, a_down)))


def _series(points: list[dict], ceiling: float | None) -> list[Series]:
    groups: dict[tuple, list[dict]] = {}
    for point in points:
        if point["status"] != "ok":
            continue
        low, high = point["interval_s"]
        rate, rates = point["flops"] / point["median_s"], (point["flops"] / high, point["flops"] / low)
        made = {
            **point,
            "flops_per_s": rate,
            "flops_per_s_interval": rates,
            "share": rate / ceiling if ceiling else None,
            "share_interval": (rates[0] / ceiling, rates[1] / ceiling) if ceiling else None,
        }
        key = tuple(point[k] for k in ("case", "backend", "direction", "seq_len"))
        groups.setdefault(key, []).append(made)
    return [
        Series(*key, tuple(sorted(made, key=lambda p: (p["d_head"], p["d_head_v"])))) for key, made in groups.items()
    ]


def _changed(series: list[Series], fit: Any, recording: dict) -> tuple[list, list]:
    """Pairs of points that differ in the case only, and in the backend only. Both start from "auto".

    A WebGPU page has series of its own, and none is "auto": its unfused one is compared with the first of the others.
    """
    known = recording["plan"]["backends"]
    own = recording["device"]["type"] == "webgpu" and "auto" not in known
    start = next((name for name in known if name != UNFUSED), UNFUSED) if own else "auto"
    at = {(s.case, s.backend, s.direction, s.seq_len, p["d_head"]): p for s in series for p in s.points if fit(p)}
    by_case, by_backend = [], []
    for (case, backend, direction, seq_len, d_head), after in at.items():
        if backend == "auto" and case != "plain":
            before = at.get(("plain", "auto", direction, seq_len, d_head))
            by_case += [(before, after)] if before else []
        if backend != start and (backend == UNFUSED or not own):
            before = at.get((case, start, direction, seq_len, d_head))
            by_backend += [(before, after)] if before else []
    return by_case, by_backend


def _step(before: dict, after: dict, ratio: float, limits: tuple[float, float], buckets: dict[int, int | None]) -> Step:
    where = f"d_head {before['d_head']} → {after['d_head']}"
    slower = f"{_percent(ratio)} more time per useful operation ({_span(*limits)} times)"
    old, new = (p.get("bucket") or buckets.get(p["d_head"]) for p in (before, after))
    a, b = before.get("observed"), after.get("observed")
    if _both(before, after) and a != b:
        kind, why = BACKEND_CHANGE, f"backend change, {a} → {b}"
    elif a == b and a in ("FLASH", "FUSED") and old and new and old < new:
        share = after["d_head"] / new
        kernel = f"the {old}-wide kernel" if a == "FUSED" else f"{a} in the {old}-wide kernel"
        kind, why = PADDING_STEP, f"padding step, {kernel} → the {new}-wide one, {100 * share:.0f} % of it useful"
    else:
        kind = UNEXPLAINED
        seen = f"{a} on both sides" if a and a == b else "the backend was not observed"
        why = f"unexplained ({seen}, no new compiled width known between them)"
        if a == b == "FLASH" and old and before["d_head"] % 8 == 0 and after["d_head"] % 8:
            why = f"unexplained ({seen}, same compiled width; {after['d_head']} is no multiple of 8, so Q, K and V are copied)"
    memory = _memory(before, after)
    # Rows of a page's tensors have a multiple of four columns: the memory of 65 over 64 says nothing of padding.
    text = f"{where}: {why}: {slower}{'' if a == b == 'FUSED' else _memory_text(memory)}"
    return Step("d_head", kind, before, after, ratio, limits, text, memory)


def _change(along: str, before: dict, after: dict, ratio: float, limits: tuple[float, float], recording: dict) -> Step:
    memory = _memory(before, after)
    seen = f"backend change, {before['observed']} → {after['observed']}, "
    if along == "case":
        what = f"with {_CASES.get(after['case'], after['case'])}"
    elif before["backend"] == "auto":
        what = f"forced to {after['backend']}"
    else:
        what, seen = f"{after['backend']} instead of {before['backend']}", ""
    text = (
        f"d_head {after['d_head']}{_where(after, recording, backend=False)}, {what}: {seen}"
        f"{_times(ratio)} slower ({_span(*limits)}){_memory_text(memory)}"
    )
    return Step(along, BACKEND_CHANGE, before, after, ratio, limits, text, memory)


def _both(before: dict, after: dict) -> bool:
    return bool(before.get("observed") and after.get("observed"))


def _memory(before: dict, after: dict) -> float | None:
    one, other = before.get("peak_bytes"), after.get("peak_bytes")
    return other / one if one and other else None


def _where(point: dict, recording: dict, backend: bool = True) -> str:
    """What else tells this point's series from others of the recording, for a sentence."""
    plan, parts = recording["plan"], []
    if point["case"] != "plain" and backend:
        parts.append(point["case"])
    if point["backend"] != "auto" and backend:
        own = recording["device"]["type"] == "webgpu"  # nothing is forced there: each series is a kernel of the page
        parts.append(point["backend"] if own else f"forced {point['backend']}")
    if len(plan["directions"]) > 1:
        parts.append(point["direction"])
    if len(plan["seq_lens"]) > 1:
        parts.append(f"length {point['seq_len']}")
    return f" ({', '.join(parts)})" if parts else ""


def _remarks(recording: dict) -> list[str]:
    points = recording["points"]
    measured = [p for p in points if p["status"] == "ok"]
    flags = []
    few = sum(p["repeats"] < LEAST_REPEATS for p in measured)
    if few:
        flags.append(f"{_count(few, 'point')} with fewer than {LEAST_REPEATS} repeats: not judged")
    high = sum(ABOVE_CEILING in p["flags"] for p in measured)
    if high:
        flags.append(f"{_count(high, 'point')} above the ceiling measured in the same run: impossible, not judged")
    wide = sum(WIDE_INTERVAL in p["flags"] for p in measured)
    if wide:
        flags.append(f"{_count(wide, 'point')} with a wider interval than asked for: the budget was spent first")
    missing = [p for p in points if p["status"] != "ok"]
    if missing:
        flags.append(f"{_count(len(missing), 'point')} without a time, for the reasons given with them")
    differ = recording["agreement"]["compared"] - recording["agreement"]["agree"]
    if differ:
        flags.append(f"{_count(differ, 'point')} where another backend ran than predicted")
    if recording["ended"] != "complete":
        why = {"budget": "when the budget was spent", "interrupted": "when it was interrupted"}[recording["ended"]]
        flags.append(f"the run ended {why}; everything measured until then is here")
    return flags


# The predicted staircase --------------------------------------------------------------------------


def staircase(d_heads: Iterable[int], torch: str, device: str) -> dict[int, float | None]:
    """Predicted useful share, d_head / compiled width, of FlashAttention-2 for each d_head.

    Prediction from the widths that the release was compiled for (`splitheads.backends.flash_bucket`),
    not a measurement. None where no such kernel runs: beyond the widest, on Turing, on CPU and MPS.
    `torch` is a version such as "2.13.0+cu126", `device` a key such as "sm80".
    """
    widths = _flash_widths(d_heads, torch, device)[0]
    return {d: (d / width if width else None) for d, width in widths.items()}


def _flash_widths(
    d_heads: Iterable[int], torch: str | None, device: str | None
) -> tuple[dict[int, int | None], str | None]:
    sizes = list(dict.fromkeys(d_heads))
    capability = re.fullmatch(r"sm([0-9]{2,3})", device or "")
    if not torch or not capability or int(capability[1]) < 80:
        return dict.fromkeys(sizes), None
    release = torch.split("+")[0]
    note = None
    try:
        flash_bucket(64, release)
    except UnknownPlatform as error:
        note = f"compiled widths of torch {release} are not known: those of {error.nearest} are shown"
        release = error.nearest
    return {d: flash_bucket(d, release) if d <= MAX_WIDTH else None for d in sizes}, note


def _buckets(recording: dict) -> tuple[dict[int, int | None], str | None]:
    if recording["device"]["type"] != "cuda":
        return {}, None
    return _flash_widths(
        recording["plan"]["d_heads"], recording["software"]["torch"], recording["device"]["key"] or "sm80"
    )


# Words --------------------------------------------------------------------------------------------


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):.0f} %"


def _times(ratio: float) -> str:
    return f"{ratio:.2f} times" if ratio < 2 else f"{ratio:.1f} times"


def _span(low: float, high: float) -> str:
    return " to ".join(f"{x:.2f}" if x < 2 else f"{x:.1f}" for x in (low, high))


def _memory_text(ratio: float | None) -> str:
    return f", {_times(ratio)} the peak memory" if ratio and ratio > LEAST_FALL else ""


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"
