#!/usr/bin/env python3
"""Hold the rules of splitheads.backends against this torch's own selector, on random calls outside the table.

    python check_rules.py --calls 500

Run it as simulate.py, in an environment with a CUDA build of a torch version that the rules cover.
Exit status 1 if they disagree anywhere.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import simulate
from splitheads import backends


def random_call(rng: random.Random, torch: str, device: str) -> backends.SdpaCall:
    """Most settings as in the plain call, so that the gates are met one or two at a time."""

    def mostly(usual, *others):
        return usual if rng.random() < 0.75 else rng.choice(others)

    widths = [1, 2, 4, 7, 8, 32, 60, 64, 80, 100, 120, 128, 136, 160, 192, 196, 200, 224, 232, 248, 250, 256, 257, 264]
    heads, batched = mostly(4, 1, 6, 8), mostly(True, False)
    return backends.SdpaCall(
        rng.choice([*widths, 320, 512, 576, 1000]),
        torch,
        device,
        rng.choice(["fp16", "fp16", "bf16", "bf16", "fp32", "fp64"]),
        d_head_v=mostly(None, 8, 64, 65, 128, 256, 264, 512),
        mask=mostly(None, "bool", "float"),
        is_causal=mostly(False, True),
        dropout=mostly(0.0, 0.1, 0.125, 0.5),
        training=rng.random() < 0.4,
        n_heads=heads,
        n_kv_heads=mostly(None, 1, 2 if heads % 2 == 0 else 1),
        enable_gqa=rng.random() < 0.7,
        seq_q=mostly(256, 1, 2, 65, 1000),
        seq_k=mostly(None, 1, 64, 65, 2048),
        batch=mostly(2, 1, 65535, 65536),
        batched=batched,
        last_stride_1=mostly(True, True, False),
        # MATH adds a mask otherwise under FakeTensors, and then lets one with more dimensions than q pass.
        mask_dims=mostly(2, 3, 4 if batched else 3),
    )


def compare(capability: int, calls: int, seed: int) -> int:
    """In a process that believes in a GPU: the number of calls on which rules and selector differ."""
    import torch
    from torch._subclasses import fake_tensor

    rng, observe, done, wrong = random.Random(seed), simulate.observer(), 0, 0
    with fake_tensor.FakeTensorMode():
        while done < calls:
            try:
                call = random_call(rng, torch.__version__, f"sm{capability}")
            except backends.CallError:  # heads without enable_gqa, say
                continue
            done += 1
            try:
                expected = backends.by_rules(call)
            except backends.CallError:
                expected = "ERROR"
            seen = observe(call)
            if seen != expected and not (expected == "ERROR" and seen[0].startswith("ERROR")):
                wrong += 1
                print(f"rules {expected}, torch {seen}: {call}")
    print(f"torch {torch.__version__}, sm{capability}: {calls - wrong} of {calls} calls agree")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=500, help="random calls for each compute capability")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sm", type=int, nargs="+", default=simulate.CAPABILITIES)
    parser.add_argument("--compare", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.compare:
        return int(compare(args.compare, args.calls, args.seed) > 0)
    status = 0
    with tempfile.TemporaryDirectory() as folder:
        library = simulate.build(Path(folder))
        for capability in args.sm:
            command = [sys.executable, __file__, "--calls", args.calls, "--seed", args.seed, "--compare", capability]
            environment = simulate.environment(library, capability)
            status |= subprocess.run([str(word) for word in command], env=environment).returncode
    return status


if __name__ == "__main__":
    sys.exit(main())
