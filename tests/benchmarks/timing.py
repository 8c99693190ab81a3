"""How far the timing lab can be trusted, measured in one run on this machine's CPU.

    .venv/bin/python tests/benchmarks/timing.py [--quick] [--repeats 10] [--budget 4]

1. Medians of the lab beside those of `torch.utils.benchmark`, for the same operations on the same inputs. Both take
   turns, a slice each, so that a machine that slows down slows down both. Aim: within 3 %.
2. The spread of two ratios (FLASH / MATH, and d_head 128 / 64) over repeats of the lab, and of a plain loop that
   measures one point after another for the same total time, while other processes load every core in bursts. Lab and
   loop take turns. Aim: at most half the spread.

A benchmark, not a test: nothing fails, except where something could not be measured.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "book"))

import torch
from splitheads.timing import Plan, Point, measure, paired_ratio
from splitheads.timing.analyse import median_interval
from splitheads.timing.clock import steady_memory
from splitheads.timing.engine import Finished
from splitheads.timing.workload import Pool, Work
from torch.utils import benchmark

SEQ_LEN = 512
BURST_S, PAUSE_S = (0.2, 1.0), (0.4, 2.0)
RATIOS = {
    "FLASH / MATH, d_head 64": (("FLASH", 64), ("MATH", 64)),
    "d_head 128 / 64, FLASH": (("FLASH", 128), ("FLASH", 64)),
}


def plan(budget: float, seed: int = 0) -> Plan:
    return Plan("cpu", seq_lens=(SEQ_LEN,), d_heads=(64, 128), backends=("FLASH", "MATH"), budget_s=budget, seed=seed)


def key(point: Point) -> tuple[str, int]:
    return point.backend, point.d_head


def lab(budget: float, seed: int = 0) -> Finished:
    """A run of the lab in which every point has samples; tried again, and said so, where one has not."""
    for attempt in range(5):
        finished = next(e for e in measure(plan(budget, seed + 100 * attempt)) if isinstance(e, Finished))
        short = [point for point, samples in finished.samples.items() if not samples]
        if not short:
            return finished
        print(f"  (a run of {budget:g} s was too short for {short[0].backend}, d_head {short[0].d_head}: again)")
    raise SystemExit("not a measurement: this machine is too busy for the budget; give a larger one")


# 1. Beside torch.utils.benchmark ------------------------------------------------------------------


def beside_torch(turns: int, seconds: float) -> None:
    """Medians of both over all turns. `seconds` is what one turn takes for each of the two."""
    print(
        f"\n1. Medians beside torch.utils.benchmark: {turns} turns, {seconds:g} s each (T = {SEQ_LEN}, 8 heads, fp32)"
    )
    points = plan(seconds).points()
    pool = Pool(plan(seconds), points)  # as many copies of the inputs as the lab goes round
    works = {key(point): Work(pool, point) for point in points}
    ours: dict[tuple, list[float]] = {name: [] for name in works}
    theirs: dict[tuple, list[float]] = {name: [] for name in works}
    for turn in range(turns):
        finished = lab(seconds, seed=turn)
        for point, samples in finished.samples.items():
            ours[key(point)] += samples.values()
        for name, work in works.items():
            with work.context():
                timer = benchmark.Timer("call()", globals={"call": work.call}, num_threads=torch.get_num_threads())
                theirs[name] += timer.blocked_autorange(min_run_time=seconds / len(works)).times
    print(f"  {'':16}{'lab':>24}{'torch.utils.benchmark':>26}{'difference':>14}")
    for name in works:
        mine, other = median_interval(ours[name]), median_interval(theirs[name])
        label = f"{name[0]}, d_head {name[1]}"
        print(f"  {label:16} {shown(mine):>24} {shown(other):>24} {mine[0] / other[0] - 1:>+13.1%}")


def shown(interval: tuple[float, float, float]) -> str:
    median, low, high = (1e3 * value for value in interval)
    return f"{median:.3f} ms ({low:.3f}-{high:.3f})"


# 2. The spread of ratios under load ---------------------------------------------------------------


def burn(seed: int) -> None:
    """Load one core in bursts, for ever. All burners have the same seed, so they burst together."""
    draw = random.Random(seed)
    while True:
        end = time.perf_counter() + draw.uniform(*BURST_S)
        while time.perf_counter() < end:
            sum(i * i for i in range(2000))
        time.sleep(draw.uniform(*PAUSE_S))


def plain_loop(budget: float, works: dict[tuple, Work]) -> dict[tuple, float]:
    """What a plain script does: warm up three times, then one point after another, the median of each."""
    medians = {}
    for name, work in works.items():
        end = time.perf_counter() + budget / len(works)
        times = []
        with work.context():
            for _ in range(3):
                work.call()
            while not times or time.perf_counter() < end:
                start = time.perf_counter()
                work.call()
                times.append(time.perf_counter() - start)
        medians[name] = statistics.median(times)
    return medians


def spreads(repeats: int, budget: float) -> None:
    cores = os.cpu_count() or 1
    share = sum(BURST_S) / (sum(BURST_S) + sum(PAUSE_S))
    print(
        f"\n2. Spread of ratios: {repeats} repeats, {budget:g} s each; {cores} other processes load {cores} cores in "
        f"bursts, {share:.0%} of the time"
    )
    points = plan(budget).points()
    pool = Pool(plan(budget), points)
    works = {key(point): Work(pool, point) for point in points}
    found: dict[str, dict[str, list[float]]] = {name: {"loop": [], "lab": [], "lab, paired": []} for name in RATIOS}
    context = multiprocessing.get_context("spawn")
    burners = [context.Process(target=burn, args=(7,), daemon=True) for _ in range(cores)]
    for burner in burners:
        burner.start()
    try:
        time.sleep(1)
        for repeat in range(repeats):
            medians = plain_loop(budget, works)
            finished = lab(budget, seed=repeat)
            recorded = {(p["backend"], p["d_head"]): p["median_s"] for p in finished.recording["points"]}
            samples = {key(point): values for point, values in finished.samples.items()}
            for name, (over, under) in RATIOS.items():
                found[name]["loop"].append(medians[over] / medians[under])
                found[name]["lab"].append(recorded[over] / recorded[under])
                found[name]["lab, paired"].append(paired_ratio(samples[over], samples[under])[0])
    finally:
        for burner in burners:
            burner.terminate()
    print(
        f"  {'':26}{'':14}{'median':>8}{'lowest':>9}{'highest':>9}{'range':>9}{'deviation':>11}{'of the loop (range, deviation)':>34}"
    )
    for name, kinds in found.items():
        base = None
        for kind, ratios in kinds.items():
            middle = statistics.median(ratios)
            width, deviation = (max(ratios) - min(ratios)) / middle, statistics.stdev(ratios) / middle
            base = base or (width, deviation)
            against = "" if kind == "loop" else f"{width / base[0]:.2f}, {deviation / base[1]:.2f}"
            print(
                f"  {name:26}{kind:14}{middle:8.3f}{min(ratios):9.3f}{max(ratios):9.3f}{width:9.1%}{deviation:11.1%}{against:>34}"
            )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="under a minute, for a first look")
    options.add_argument("--repeats", type=int, default=10)
    options.add_argument("--budget", type=float, default=4.0, help="seconds for one repeat")
    given = options.parse_args()
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads on {os.cpu_count()} cores; load average now: {load()}"
    )
    with steady_memory("cpu"):  # for the loops beside the lab, too
        beside_torch(*((3, 2.0) if given.quick else (6, 4.0)))
        spreads(*((4, 2.5) if given.quick else (max(2, given.repeats), given.budget)))
    print(f"\nload average at the end: {load()}")


def load() -> str:
    return f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"


if __name__ == "__main__":
    main()
