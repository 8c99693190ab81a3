"""Recordings made up from a known truth, for tests of the analysis and of what draws it."""

from __future__ import annotations

import copy
import json
import random
from itertools import pairwise
from pathlib import Path

from splitheads.timing.analyse import median_interval
from splitheads.timing.record import ABOVE_CEILING, agreement, flops

CPU = {
    "type": "cpu",
    "name": "Example CPU",
    "key": "cpu",
    "driver": None,
    "threads": 2,
    "memory_bytes": 8 << 30,
    "clocks": None,
}
GPU = {
    "type": "cuda",
    "name": "Example A100",
    "key": "sm80",
    "driver": "570.0",
    "threads": None,
    "memory_bytes": 80 << 30,
    "clocks": {"sm_mhz": 1410},
}
BROWSER = {
    "type": "webgpu",
    "name": "example-vendor example-9",
    "key": None,
    "driver": None,
    "threads": None,
    "memory_bytes": None,
    "clocks": None,
    "software": False,
    "timestamps": True,
}
WIDTHS = {
    "buckets": lambda d: next(w for w in (32, 64, 96, 128, 192, 256) if w >= d),
    "power of two": lambda d: next(w for w in (16, 32, 64, 128, 256) if w >= d),
    "exact": lambda d: -(-d // 16) * 16,
}
"""The width of a page's fused kernel for each d_head, by policy."""


def ceiling(median: float, what: str) -> dict:
    return {"median": median, "interval": [median * 0.99, median * 1.01], "repeats": 21, "what": what}


def samples(seconds: float, repeats: int, noise: float, rng: random.Random, kind: str = "lognormal") -> list[float]:
    """Repeats of one call: `noise` is the relative standard deviation; "spiky" has 5 % outliers of up to 3 times."""
    made = [seconds * rng.lognormvariate(0, noise) for _ in range(repeats)]
    if kind == "spiky":
        made = [s * rng.uniform(1, 3) if rng.random() < 0.05 else s for s in made]
    return made


def recording(
    cells: list[dict],
    *,
    seed: int = 0,
    noise: float = 0.01,
    repeats: int = 20,
    kind: str = "lognormal",
    device: dict = CPU,
    torch: str | None = "2.13.0",
    dtype: str = "fp32",
    rate: float = 1e11,
    batch: int = 1,
    n_heads: int = 8,
) -> dict:
    """A valid recording. Each cell: d_head, and optionally case, backend, direction, seq_len, observed,

    predicted, `speed` (share of `rate`, before noise), repeats, peak_bytes, bucket, reason (then it failed).
    A browser's has no ceilings and no predictions.
    """
    rng = random.Random(seed)
    points = []
    for cell in cells:
        shape = {
            "case": cell.get("case", "plain"),
            "backend": cell.get("backend", "auto"),
            "direction": cell.get("direction", "forward"),
            "seq_len": cell.get("seq_len", 512),
            "d_head": cell["d_head"],
        }
        width = cell["d_head"] + 8 * (shape["case"] == "value_width")
        point = {**shape, "d_head_v": width, "status": "ok", "reason": None}
        if cell.get("reason"):
            point |= {"status": "failed", "reason": cell["reason"], "median_s": None, "interval_s": None, "repeats": 0}
            point |= {"flops": 0, "peak_bytes": None, "observed": None, "predicted": None, "bucket": None, "flags": []}
            points.append(point)
            continue
        count = flops(batch, n_heads, shape["seq_len"], cell["d_head"], width, shape["case"], shape["direction"])
        seconds = count / (rate * cell.get("speed", 0.5))
        drawn = samples(seconds, cell.get("repeats", repeats), noise, rng, kind)
        median, low, high = median_interval(drawn)
        observed = cell.get("observed", "FLASH")
        point |= {"median_s": median, "interval_s": [low, high], "repeats": len(drawn), "flops": count}
        point |= {
            "peak_bytes": cell.get("peak_bytes"),
            "observed": observed,
            "predicted": None if device["type"] == "webgpu" else cell.get("predicted", observed),
        }
        point |= {"bucket": cell.get("bucket"), "flags": [ABOVE_CEILING] if count / median > 1.1 * rate else []}
        points.append(point)

    def values(key: str) -> list:
        return list(dict.fromkeys(p[key] for p in points))

    return {
        "schema": 1,
        "kind": "splitheads.timing",
        "created": "2026-11-30T22:50:00Z",
        "command": "python -m splitheads time",
        "device": copy.deepcopy(device),
        "software": {
            "python": "3.11.9",
            "torch": torch,
            "build": torch,
            "cuda": None,
            "cudnn": None,
            "splitheads": "0.1.0",
            "system": "Linux x86_64",
        },
        "plan": {
            "dtype": dtype,
            "batch": batch,
            "n_heads": n_heads,
            "seq_lens": values("seq_len"),
            "d_heads": values("d_head"),
            "directions": values("direction"),
            "backends": values("backend"),
            "cases": values("case"),
            "budget_s": 30,
            "seed": seed,
        },
        "method": {
            "clock": "made up",
            "statistic": "median",
            "confidence": 0.95,
            "interval": "order statistics",
            "target_width": 0.02,
            "order": "made up",
            "inputs": "made up",
            "warmup": "made up",
        },
        "ceilings": {
            "matmul_flops_per_s": None if device["type"] == "webgpu" else ceiling(rate, "made up"),
            "copy_bytes_per_s": None if device["type"] == "webgpu" else ceiling(1e10, "made up"),
        },
        "points": points,
        "agreement": agreement(points),
        "duration_s": 1 + sum(p["median_s"] * p["repeats"] for p in points if p["status"] == "ok"),
        "ended": "complete",
    }


def staircase_cells(d_heads: list[int], widths: tuple[int, ...] = (32, 64, 96, 128, 192, 256), **more) -> list[dict]:
    """FlashAttention as it would be if nothing but its compiled width counted."""
    cells = []
    for d in d_heads:
        width = next(w for w in widths if w >= d)
        cells.append({"d_head": d, "speed": 0.6 * d / width, "observed": "FLASH", **more})
    return cells


def browser_cells(d_heads: list[int], policies: list[str], unfused: float = 0.1) -> list[dict]:
    """A page's sweep: only the compiled width counts. Each series has its own noise."""
    cells = []
    for policy in policies:
        for d in d_heads:
            cell = {"d_head": d, "backend": policy, "peak_bytes": 1 << 20}
            if policy == "unfused":
                cells.append(cell | {"observed": "UNFUSED", "speed": unfused, "peak_bytes": 5 << 20})
            else:
                width = WIDTHS[policy](d)
                cells.append(cell | {"observed": "FUSED", "speed": 0.4 * d / width, "bucket": width})
    return cells


def cases() -> list[dict]:
    """Recordings with the labels that their construction calls for, whatever the code says.

    `steps` and `rises` are [d_head before, d_head after, label, true ratio of cost]; `changes` and `gains` are
    [d_head, case, backend, observed before, observed after, true ratio of time].
    """
    made: list[dict] = []

    def case(name: str, record: dict, steps=(), rises=(), changes=(), gains=()) -> None:
        expected = {"steps": list(steps), "rises": list(rises), "changes": list(changes), "gains": list(gains)}
        made.append({"name": name, "expected": expected, "recording": record})

    gpu = {"device": GPU, "dtype": "bf16", "torch": "2.15.0+cu130", "rate": 3e14}
    sizes = list(range(32, 129, 8))
    case("noise of 3 % and no step", recording([{"d_head": d} for d in sizes], noise=0.03, seed=1))
    case("noise of 30 % and no step", recording([{"d_head": d, "speed": 0.2} for d in sizes], noise=0.3, seed=2))
    small = [{"d_head": d, "speed": 0.5 / (1.06 if d >= 80 else 1)} for d in sizes]
    case("a fall of 6 % under 10 % of noise", recording(small, noise=0.1, repeats=8, seed=3))
    widths = [16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256]
    bucket = {d: next(w for w in (32, 64, 96, 128, 192, 256) if w >= d) for d in widths}
    pairs = [(a, b, bucket[b] / b / (bucket[a] / a)) for a, b in pairwise(widths)]
    case(
        "the staircase of FlashAttention-2",
        recording(staircase_cells(widths), seed=4, **gpu),
        steps=[[a, b, "padding step", r] for a, b, r in pairs if r > 1],
        rises=[[a, b, "rise", r] for a, b, r in pairs if r < 1],
    )
    old = staircase_cells([208, 216, 224, 232, 240], widths=(224, 256))
    case(
        "a width of 224, as long as it was compiled",
        recording(old, noise=0.002, repeats=40, seed=5, **gpu | {"torch": "2.6.0+cu124"}),
        steps=[[224, 232, "padding step", 256 / 232]],
    )
    wide = [{"d_head": d, "speed": 0.6 if d <= 256 else 0.2, "observed": "FLASH" if d <= 256 else "EFFICIENT"} for d in (240, 248, 256, 264, 272)]  # fmt: skip
    case("beyond 256", recording(wide, seed=6, **gpu), steps=[[256, 264, "backend change", 3.0]])
    same = [{"d_head": d, "speed": 0.6 if d <= 112 else 0.4} for d in (104, 112, 120, 128)]
    case("a fall inside one compiled width", recording(same, seed=7, **gpu), steps=[[112, 120, "unexplained", 1.5]])
    case("a fall on a CPU, whose kernel has no widths", recording(same, seed=8), steps=[[112, 120, "unexplained", 1.5]])
    unseen = [{"d_head": d, "speed": 0.6 if d <= 64 else 0.4, "observed": None} for d in (56, 64, 72, 80)]
    case("a fall where nobody looked", recording(unseen, seed=9, **gpu), steps=[[64, 72, "unexplained", 1.5]])
    given = [{"d_head": d, "speed": 0.6 if d <= 48 else 0.4, "bucket": 48 if d <= 48 else 96} for d in (40, 48, 56)]
    case("widths that were observed", recording(given, seed=10, **gpu), steps=[[48, 56, "padding step", 1.5]])
    quiet = [{"d_head": d, "observed": "FLASH" if d <= 64 else "EFFICIENT"} for d in (56, 64, 72)]
    case("another backend, no slower", recording(quiet, seed=11, **gpu))
    changes = []
    for d in (64, 80):
        changes += [{"d_head": d, "peak_bytes": 2 << 20}, {"d_head": d, "case": "mask"}]
        changes += [{"d_head": d, "case": "causal", "speed": 0.25}]  # the same time as without: no cheaper, no cliff
        changes += [{"d_head": d, "case": "value_width", "observed": "MATH", "speed": 0.125, "peak_bytes": 64 << 20}]
        changes += [{"d_head": d, "case": "dropout", "observed": "MATH", "speed": 0.1}]
        changes += [{"d_head": d, "case": "strided", "observed": "MATH", "speed": 0.51}]  # no slower
        changes += [{"d_head": d, "backend": "MATH", "observed": "MATH", "speed": 0.125}]
        changes += [{"d_head": d, "backend": "FLASH", "speed": 0.5}]
    case(
        "one change to the call, on a CPU",
        recording(changes, seed=12, repeats=12),
        changes=[
            [d, name, backend, "FLASH", "MATH", ratio]
            for d in (64, 80)
            for name, backend, ratio in (("value_width", "auto", 4.0), ("dropout", "auto", 5.0), ("plain", "MATH", 4.0))
        ],
    )
    half = [{"d_head": d} for d in (64, 80)]
    half += [{"d_head": 64, "case": "causal", "observed": "MATH", "speed": 0.25}]  # half the work in the same time
    half += [{"d_head": 80, "case": "causal", "observed": "MATH", "speed": 0.25 / 3}]
    case(
        "a causal call is compared in seconds",
        recording(half, seed=16),
        steps=[[64, 80, "unexplained", 3.0]],
        changes=[[80, "causal", "auto", "FLASH", "MATH", 3.0]],
    )
    forced = [{"d_head": 128}, {"d_head": 128, "backend": "CUDNN", "observed": "CUDNN", "speed": 0.9}]
    case(
        "a forced backend that beats the choice",
        recording(forced, seed=13, **gpu),
        gains=[[128, "plain", "CUDNN", "FLASH", "CUDNN", 0.5 / 0.9]],
    )
    holes = [{"d_head": d, "speed": 0.5} for d in (32, 40)] + [{"d_head": 48, "reason": "out of memory"}]
    holes += [{"d_head": 56, "speed": 0.1, "repeats": 3}, {"d_head": 64, "speed": 1.5}, {"d_head": 72, "speed": 0.5}]
    case("a failed point, too few repeats, and the impossible", recording(holes, seed=14))
    both = [{"d_head": d, "direction": way, "speed": 0.3 if (d, way) == (72, "forward") else 0.6} for way in ("forward", "forward+backward") for d in (56, 64, 72)]  # fmt: skip
    case("two directions, a step in one", recording(both, seed=15, **gpu), steps=[[64, 72, "padding step", 2.0]])

    page = {"device": BROWSER, "torch": None, "n_heads": 2}

    def along(policy: str, d_heads: list[int]) -> dict:
        costs = [(a, b, WIDTHS[policy](b) / b / (WIDTHS[policy](a) / a)) for a, b in pairwise(d_heads)]
        return {
            "steps": [[a, b, "padding step", ratio] for a, b, ratio in costs if ratio > 1.05],
            "rises": [[a, b, "rise", ratio] for a, b, ratio in costs if ratio < 1 / 1.05],
        }

    edges = [16, 32, 33, 48, 64, 65, 80, 96, 97, 112, 128]
    case("in the browser: steps at the edges of the buckets", recording(browser_cells(edges, ["buckets"]), seed=17, **page), **along("buckets", edges))  # fmt: skip
    whole = list(range(16, 145, 16))
    case(
        "in the browser: no step where the width is exact", recording(browser_cells(whole, ["exact"]), seed=18, **page)
    )
    odd = sorted([*whole, 65])
    case("in the browser: 65 columns in an exact kernel of 80", recording(browser_cells(odd, ["exact"]), seed=19, **page), **along("exact", odd))  # fmt: skip
    noisy = recording(browser_cells(whole, ["exact"]), seed=20, noise=0.1, **page)
    case("in the browser: noise of 10 % and no step", noisy)
    beside = [64, 96, 128]
    case(
        "in the browser: unfused is slower than the first fused series",
        recording(browser_cells(beside, ["buckets", "exact", "unfused"]), seed=21, **page),
        changes=[[d, "plain", "unfused", "FUSED", "UNFUSED", 4.0] for d in beside],
    )
    case(
        "in the browser: unfused is faster",
        recording(browser_cells(beside, ["unfused", "power of two"], unfused=0.8), seed=22, **page),
        **along("power of two", beside),
        gains=[[d, "plain", "unfused", "FUSED", "UNFUSED", d / WIDTHS["power of two"](d) / 2] for d in beside],
    )
    return made


if __name__ == "__main__":
    # Writes cases.json beside this file: one case a line, for twins of the rule in other languages.
    here = Path(__file__).with_name("cases.json")
    here.write_text("[\n" + ",\n".join(json.dumps(case) for case in cases()) + "\n]\n", "utf8")
