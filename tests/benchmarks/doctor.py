"""How many configurations a second the doctor diagnoses, on one core of this machine.

    .venv/bin/python tests/benchmarks/doctor.py [--seconds 2] [--runs 5]

Four mixes: a plain split; one on a GPU (where the kernel is chosen for every torch version known); all published models;
config.json files. A run is a fixed number of configurations, and the median of the runs is printed with the fastest and
the slowest. First: how long the import takes in a fresh Python. A benchmark, not a test: nothing fails.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "book"))

from splitheads import models
from splitheads.doctor import diagnose

CONFIGS = ROOT / "tests/doctor/configs"


def import_times(count: int) -> list[float]:
    """Seconds that `import splitheads.doctor` takes, each in a Python of its own."""
    code = "import time; start = time.perf_counter(); import splitheads.doctor; print(time.perf_counter() - start)"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = str(ROOT / "book")
    with tempfile.TemporaryDirectory() as folder:
        environment["PYTHONPYCACHEPREFIX"] = folder
        made = [sys.executable, "-c", code]
        took = [
            float(subprocess.run(made, env=environment, capture_output=True, text=True, check=True).stdout)
            for _ in range(count + 1)
        ]
    return took[1:]  # the first compiles


def plain(chance: random.Random) -> Iterator[dict]:
    while True:
        yield {"d_model": chance.randrange(64, 8193, 8), "n_heads": chance.randrange(1, 129), "n_layers": 32}


def on_a_gpu(chance: random.Random) -> Iterator[dict]:
    while True:
        heads = chance.choice([8, 16, 32, 64])
        yield {
            "d_model": heads * chance.randrange(8, 264, 4),
            "n_heads": heads,
            "n_kv_heads": heads // chance.choice([1, 2, 4, 8]),
            "enable_gqa": True,
            "n_layers": 32,
            "device": chance.choice(["a100", "h100", "rtx4090", "t4", "b200"]),
            "dtype": chance.choice(["bf16", "fp16", "fp32"]),
            "training": chance.random() < 0.5,
            "is_causal": chance.random() < 0.5,
            "seq_q": chance.choice([1, 256, 4096]),
        }


def published(chance: random.Random) -> Iterator[dict]:
    names = [row.name for row in models.rows()]
    while True:
        yield {"model": chance.choice(names), "tp": 8}


def files(chance: random.Random) -> Iterator[dict]:
    configs = [json.loads(path.read_text("utf8")) for path in sorted(CONFIGS.glob("*.json")) if path.stem != "index"]
    while True:
        yield chance.choice(configs)


MIXES: dict[str, Callable[[random.Random], Iterator[dict]]] = {
    "plain split": plain,
    "on a GPU": on_a_gpu,
    "published models": published,
    "config.json files": files,
}


def rates(mix: Callable[[random.Random], Iterator[dict]], seconds: float, runs: int) -> list[float]:
    """Configurations a second, one number for each run; the same configurations in every run."""
    source = mix(random.Random(0))
    some = [next(source) for _ in range(200)]
    started = time.perf_counter()
    for config in some:  # fills the caches, and tells how many make a run
        diagnose(config)
    took = time.perf_counter() - started
    count = max(1, round(seconds / runs / max(took, 1e-6)))
    found = []
    for _ in range(runs):
        started = time.perf_counter()
        for _ in range(count):
            for config in some:
                diagnose(config)
        found.append(count * len(some) / (time.perf_counter() - started))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2.0, help="for each mix (default: 2)")
    parser.add_argument("--runs", type=int, default=5, help="parts of that time (default: 5)")
    asked = parser.parse_args()
    took = sorted(1000 * t for t in import_times(9))
    print(f"import splitheads.doctor: {statistics.median(took):.1f} ms ({took[0]:.1f} to {took[-1]:.1f}, 9 times)")
    print(f"{'configurations per second':28}{'median':>10}{'slowest':>10}{'fastest':>10}")
    for name, mix in MIXES.items():
        found = rates(mix, asked.seconds, asked.runs)
        print(f"{name:28}{statistics.median(found):>10,.0f}{min(found):>10,.0f}{max(found):>10,.0f}")


if __name__ == "__main__":
    main()
