#!/usr/bin/env python3
"""Write the rows of simulate.py into book/data/kernel_choices.json, the form that the book carries.

    python tools/kernel_choices/compact.py 2.16.0.csv.gz            # add or replace that torch version
    python tools/kernel_choices/compact.py all.csv.gz --fresh       # start from nothing

Only the standard library is needed. What is written expands to exactly the rows that were read:
this is checked, by digest, before the file is replaced.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import hashlib
import json
import os
import sys
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "book"))

from splitheads import backends  # noqa: E402

SCHEMA = 1
NAMES = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
# CUDA builds of the wheels behind the published rows, which do not name them.
ASKED = "2026-11-30"  # and when they were made
CUDA = {"2.8.0": "12.8", "2.10.0": "12.8", "2.11.0": "13.0", "2.13.0": "13.0", "2.14.1": "13.0", "2.15.0": "13.2"}


def read(path: Path) -> dict[str, dict]:
    """The rows of one CSV file by torch version: {version: {"cudnn", "series": {(sm, dtype, scenario): {d: choice}}}}."""
    versions: dict[str, dict] = {}
    with gzip.open(path, "rt", newline="") if path.suffix == ".gz" else path.open(newline="") as file:
        rows = csv.reader(file)
        header = next(rows, None)
        if header != list(backends.COLUMNS):
            sys.exit(f"{path}: the first line is {header}, not {','.join(backends.COLUMNS)}.")
        for line, (torch, cudnn, sm, dtype, scenario, d_head, choice, d_kernel) in enumerate(rows, 2):
            d = int(d_head)
            if choice not in backends.BACKENDS:
                sys.exit(f"{path}, line {line}: {choice!r} is not one of {', '.join(backends.BACKENDS)}.")
            # Only automatic padding changes the width; anything else would need a new schema.
            step = backends.PADDING.get(choice, 1)
            if int(d_kernel) != -(-d // step) * step:
                sys.exit(f"{path}, line {line}: {choice} at d_head = {d} was given d_kernel = {d_kernel}.")
            version = versions.setdefault(torch, {"cudnn": cudnn, "series": {}})
            if version["cudnn"] != cudnn:
                sys.exit(f"{path}, line {line}: torch {torch} with cuDNN {version['cudnn']} and with {cudnn}.")
            version["series"].setdefault((sm, dtype, scenario), {})[d] = choice
    return versions


def runs(choices: dict[int, str]) -> tuple[str, ...]:
    """One series as runs of equal choices over d_head, apart for each class of divisibility.

    Each run is written as its choice and its last d_head: "FLASH 256, EFFICIENT 576".
    """
    texts = []
    for belongs in backends.CLASSES.values():
        ends: list[list] = []
        for d in sorted(choices):
            if not belongs(d):
                continue
            if ends and ends[-1][0] == choices[d]:
                ends[-1][1] = d
            else:
                ends.append([choices[d], d])
        texts.append(", ".join(f"{choice} {last}" for choice, last in ends))
    return tuple(texts)


def spans(widths: list[int]) -> list[list[int]]:
    """Ascending integers as [first, last] pairs."""
    pairs: list[list[int]] = []
    for d in widths:
        if pairs and pairs[-1][1] == d - 1:
            pairs[-1][1] = d
        else:
            pairs.append([d, d])
    return pairs


def compact(versions: dict[str, dict]) -> dict:
    """The JSON document for these versions, in their order."""
    first = next(iter(versions.values()))["series"]
    widths = sorted(next(iter(first.values())))
    axes = [list(dict.fromkeys(key[i] for key in first)) for i in range(3)]
    names: dict[tuple[str, ...], str] = {}
    torch: dict[str, dict] = {}
    for version in versions:
        entry: dict = {
            "cuda": versions[version].get("cuda") or CUDA.get(version),
            "cudnn": versions[version]["cudnn"],
            "asked": versions[version].get("asked") or ASKED,
        }
        index: dict[str, dict[str, str]] = {}
        for sm in axes[0]:
            for dtype in axes[1]:
                letters = ""
                for scenario in axes[2]:
                    choices = versions[version]["series"].get((sm, dtype, scenario), {})
                    if sorted(choices) != widths:
                        sys.exit(f"torch {version}, sm {sm}, {dtype}, {scenario}: other head sizes than elsewhere.")
                    pattern = runs(choices)
                    if pattern not in names and len(names) == len(NAMES):
                        sys.exit(f"More than {len(NAMES)} different series: a pattern's name needs two letters then.")
                    letters += names.setdefault(pattern, NAMES[len(names) % len(NAMES)])
                index.setdefault(sm, {})[dtype] = letters
        torch[version] = {**entry, "choices": index}
    data = {
        "schema": SCHEMA,
        "about": "Which attention kernel scaled_dot_product_attention selects: PyTorch's own compiled selector, run "
        "on tensors without storage for a simulated GPU. Selection only: no kernel ran. See tools/kernel_choices.",
        "rows": len(versions) * len(axes[0]) * len(axes[1]) * len(axes[2]) * len(widths),
        "sha256": "",
        "d_head": spans(widths),
        "dtypes": axes[1],
        "scenarios": axes[2],
        "classes": list(backends.CLASSES),
        "padding": backends.PADDING,
        "patterns": {name: list(pattern) for pattern, name in names.items()},
        "torch": torch,
    }
    data["sha256"] = hashlib.sha256(backends.csv_text(data).encode()).hexdigest()
    return data


def text_of(data: dict) -> str:
    """The document with one pattern, and one compute capability, a line."""
    lines = json.dumps(data, indent=1, ensure_ascii=False)
    for value in (*data["patterns"].values(), data["d_head"], data["dtypes"], data["scenarios"], data["classes"]):
        lines = _on_one_line(lines, value)
    for version in data["torch"].values():
        for by_dtype in version["choices"].values():
            lines = _on_one_line(lines, by_dtype)
    return lines + "\n"


def _on_one_line(text: str, value: object) -> str:
    for depth in range(1, 6):
        pretty = json.dumps(value, indent=1).replace("\n", "\n" + " " * depth)
        text = text.replace(": " + pretty, ": " + json.dumps(value))
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", nargs="+", type=Path, help="output of simulate.py, gzipped or not")
    parser.add_argument("--fresh", action="store_true", help="keep nothing of the present file")
    parser.add_argument("--cuda", help="CUDA version of the wheel, for the record, e.g. 13.2")
    parser.add_argument(
        "--asked", default=date.today().isoformat(), help="the day on which simulate.py ran (default: today)"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "book/data/kernel_choices.json")
    args = parser.parse_args()

    versions: dict[str, dict] = {}
    if not args.fresh and args.out.exists():
        old = json.loads(args.out.read_text(encoding="utf-8"))
        for row in backends.rows_of(old):
            torch, cudnn, sm, dtype, scenario, d, choice, _ = row
            known = {name: old["torch"][torch].get(name) for name in ("cuda", "asked")}
            entry = versions.setdefault(torch, {"cudnn": cudnn, **known, "series": {}})
            entry["series"].setdefault((str(sm), dtype, scenario), {})[d] = choice
    fresh: dict[str, dict] = {}
    for path in args.csv:
        for torch, version in read(path).items():
            entry = {"cudnn": version["cudnn"], "cuda": args.cuda, "asked": args.asked, "series": {}}
            fresh.setdefault(torch, entry)["series"].update(version["series"])
    data = compact(versions | fresh)

    # What the file says must be what was read, row for row.
    kept = {}
    for torch, _, sm, dtype, scenario, d, choice, _ in backends.rows_of(data):
        kept.setdefault(torch, {}).setdefault((str(sm), dtype, scenario), {})[d] = choice
    if kept != {torch: version["series"] for torch, version in (versions | fresh).items()}:
        sys.exit("The compact form does not expand to the rows that were read; nothing was written.")

    part = args.out.with_suffix(".part")
    part.write_text(text_of(data), encoding="utf-8")
    os.replace(part, args.out)
    print(f"{args.out}: {data['rows']} rows of torch {', '.join(data['torch'])}; {len(data['patterns'])} patterns")


if __name__ == "__main__":
    main()
