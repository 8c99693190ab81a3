"""`python -m splitheads time`: the lab from a shell.

The table and the findings go to standard output, the progress to standard error. Exit status: 0 after a run,
2 for a plan that cannot be carried out or a file that cannot be written, 130 after Ctrl-C and 143 after a request to
end (the recording is written all the same).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shlex
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

from splitheads.timing import record
from splitheads.timing.analyse import LEAST_SAMPLES
from splitheads.timing.plan import (
    BACKENDS,
    CASES,
    DIRECTIONS,
    DTYPES,
    Plan,
    PlanError,
    default_plan,
    size,
    standard_dtypes,
    standard_plan,
    widths,
)

DESCRIPTION = """\
Measure scaled_dot_product_attention on this machine: how long it takes and how much memory, for every head size,
which kernel ran, and where the time jumps. Nothing but PyTorch is needed.
"""
EXAMPLES = """\
cases, one innocent change to the call each:
{cases}

examples:
  python -m splitheads time --device cpu --budget 30 --json out.json
  python -m splitheads time --d-heads 8:288:8 --backends auto,FLASH,MATH --direction both --budget 300
  python -m splitheads time --seq 512,4096 --d-heads 64,128 --cases plain,mask,dropout --dtype bf16
  python -m splitheads time --standard        the book's own sweep, written to book/recordings/

Ctrl-C ends a run early and keeps everything measured so far.
"""

PATIENCE_S = 1.0  # a second Ctrl-C within this time of the first is the same wish, pressed twice


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        self.exit(2, f"{self.prog}: {message}. `{self.prog} --help` tells what there is.\n")


def parser() -> argparse.ArgumentParser:
    cases = "\n".join(f"  {name:12} {text}" for name, text in CASES.items())
    made = _Parser(
        prog="python -m splitheads time",
        description=DESCRIPTION,
        epilog=EXAMPLES.format(cases=cases),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    what = made.add_argument_group("what to measure (default: a plan for half a minute on the device found)")
    what.add_argument(
        "--device",
        default="auto",
        metavar="NAME",
        help="auto, cuda, cuda:1, mps or cpu (default: auto, the first there is)",
    )
    what.add_argument(
        "--dtype", metavar="NAME", help=f"{', '.join(DTYPES)} (default: bf16 or fp16 on a GPU, fp32 on a CPU)"
    )
    what.add_argument("--batch", type=_number, metavar="N", help="sequences in one call (default: 1)")
    what.add_argument("--heads", type=_number, metavar="N", help="query heads (default: 8, on CUDA 16)")
    what.add_argument("--seq", type=_widths, metavar="LIST", help="sequence lengths (default: 1024, on CUDA 4096)")
    what.add_argument(
        "--d-heads", type=_widths, metavar="LIST", help="head sizes: 32,64,128 or 8:288:8 or both in one list"
    )
    what.add_argument("--direction", metavar="NAME", help="forward, forward+backward or both (default: forward)")
    what.add_argument(
        "--backends", type=_names, metavar="LIST", help=f"any of {', '.join(BACKENDS)}; auto is PyTorch's choice"
    )
    what.add_argument(
        "--cases", type=_names, metavar="LIST", help="any of the cases below (default: plain,value_width)"
    )
    what.add_argument(
        "--standard", action="store_true", help="the sweep that the book records: one run for each of two dtypes"
    )
    how = made.add_argument_group("how")
    how.add_argument(
        "--budget", type=float, metavar="SECONDS", help="time from start to end, warm-up included (default: 30)"
    )
    how.add_argument(
        "--seed", type=_number, metavar="N", help="for the inputs and the order of the measurements (default: 0)"
    )
    how.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="write the recording; a file that is there is kept, and a free name is taken",
    )
    how.add_argument(
        "--quiet", action="store_true", help="no progress and no table; errors, and where the recording is"
    )
    return made


def _widths(text: str) -> tuple[int, ...]:
    try:
        return widths(text)
    except PlanError as error:
        raise argparse.ArgumentTypeError(str(error).rstrip(".")) from None


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number") from None


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (name.strip() for name in text.split(","))))


def plans(options: argparse.Namespace) -> list[Plan]:
    """The plans that the options ask for: one, or with --standard one for each dtype. Raises PlanError."""
    directions = None
    if options.direction is not None:
        directions = DIRECTIONS if options.direction == "both" else (options.direction,)
    given = {
        "batch": options.batch,
        "n_heads": options.heads,
        "seq_lens": options.seq,
        "d_heads": options.d_heads,
        "directions": directions,
        "backends": options.backends,
        "cases": options.cases,
        "seed": options.seed,
        "budget_s": options.budget,
    }
    changes = {name: value for name, value in given.items() if value is not None}
    if options.standard:
        names = (options.dtype,) if options.dtype else standard_dtypes(options.device)
        return [standard_plan(options.device, name, **changes) for name in names]
    return [default_plan(options.device, **{"dtype": options.dtype, **changes})]


def main(arguments: list[str] | None = None, exiting: bool = False) -> int:
    """Run the command; returns the exit status. `exiting`: the process ends with it, so Ctrl-C may stay ignored."""
    arguments = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError, OSError):
            stream.reconfigure(errors="replace")  # an encoding without "±" must not cost a recording
    options = parser().parse_args(arguments)
    with _Interrupts(exiting) as interrupts:
        return _carry_out(options, arguments, interrupts)


def _carry_out(options: argparse.Namespace, arguments: list[str], interrupts: _Interrupts) -> int:
    try:
        import torch  # noqa: F401
    except ImportError:
        return _fail("PyTorch is not installed, and there is nothing to measure without it: pip install torch.")
    try:
        todo = plans(options)
        targets = [_target(plan, options) for plan in todo]
        for target in filter(None, targets):
            target.parent.mkdir(exist_ok=True) if options.standard and not options.json else None
            if target.exists() and not (target.is_file() or target.is_dir()):
                return _fail(f"{target} is not a regular file: name a file to write, such as out.json.")
            record.check_target(target)
    except (PlanError, record.RecordError) as error:
        return _fail(str(error))
    command = shlex.join(["python", "-m", "splitheads", "time", *arguments])
    for plan, target in zip(todo, targets, strict=True):
        if interrupts.stop.is_set():
            return _fail("interrupted before anything was measured.", interrupts.status)
        recording = measured(plan, command, sys.stderr if not options.quiet else None, interrupts)
        # First of all the recording is put in a safe place: a table that cannot be printed must not cost it.
        written, failure = None, None
        if target:
            try:
                written = record.save(recording, target)
            except record.RecordError as error:
                failure = str(error)
        if not options.quiet:
            _say(report(recording))
        if failure:
            return _fail(failure)
        if written:
            _say(f"Recording: {written}")
        if interrupts.stop.is_set():
            return interrupts.status
    return 0


def _say(text: str, stream: TextIO | None = None) -> None:
    """Print. Nobody may be there to read it (`| head`), or no room to write it: that is no fault of the run."""
    stream = stream or sys.stdout
    try:
        print(text, file=stream, flush=True)
    except (OSError, ValueError):
        # What is still in the buffer would raise once more when Python ends.
        with contextlib.suppress(OSError, ValueError), open(os.devnull, "w") as sink:
            os.dup2(sink.fileno(), stream.fileno())


def _fail(message: str, status: int = 2) -> int:
    _say(f"splitheads time: {message}", sys.stderr)
    return status


def _target(plan: Plan, options: argparse.Namespace) -> Path | None:
    if options.json:
        return options.json
    if not options.standard:
        return None
    from splitheads.timing.machine import describe

    described = re.sub(r"\((r|tm|c)\)", "", describe(plan.device, plan.memory_bytes)["name"].lower())
    name = re.sub(r"[^a-z0-9]+", "-", described).strip("-")
    return record.FOLDER / f"{name}-{plan.dtype}.json"


def measured(plan: Plan, command: str, show: TextIO | None, interrupts: _Interrupts) -> dict[str, Any]:
    """Carry a plan out with progress on `show`, and return the recording."""
    from splitheads.timing.engine import Finished, Progress, Started, measure

    bar = _Bar(show, plan.budget_s)
    events = measure(plan, interrupts.stop, command)
    with interrupts.impatient():
        while True:
            try:
                event = next(events)
                if isinstance(event, Started):
                    bar.begin(plan, event.total)
                elif isinstance(event, Progress):
                    bar.draw(event.done_s, event.left_s, event.text)
                elif isinstance(event, Finished):
                    break
            except KeyboardInterrupt:  # between two events, where the engine does not see it
                interrupts.stop.set()
    bar.end()
    return event.recording


class _Interrupts:
    """Ctrl-C, and what a scheduler or a lost connection sends: each ends the run and keeps what was measured.

    The first ends the run after the sample that is being taken; a later one, while `impatient`, that very sample.
    While a recording is written nothing interrupts it.
    """

    SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))

    def __init__(self, exiting: bool) -> None:
        self.exiting = exiting
        self.stop = threading.Event()
        self.status = 130
        self._first, self._impatient = 0.0, False
        self._before: dict[int, Any] = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self.stop.is_set():
            self._first, self.status = time.monotonic(), 128 + number
            self.stop.set()
        elif self._impatient and time.monotonic() - self._first > PATIENCE_S:
            raise KeyboardInterrupt

    def __enter__(self) -> _Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in self.SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_IGN if self.exiting and self.stop.is_set() else before)

    @contextmanager
    def impatient(self) -> Iterator[None]:
        self._impatient = True
        try:
            yield
        finally:
            self._impatient = False


class _Bar:
    """Progress: redrawn in place on a terminal, a line now and then elsewhere."""

    WIDTH = 24
    EVERY_S = 10.0  # between two lines where nothing can be redrawn

    def __init__(self, stream: TextIO | None, budget_s: float) -> None:
        self.stream, self.budget_s = stream, budget_s
        self.live = bool(stream and stream.isatty() and os.environ.get("TERM") != "dumb")
        self.length, self.last, self.phase = 0, 0.0, ""

    def begin(self, plan: Plan, total: int) -> None:
        points = "1 point" if total == 1 else f"{total} points"
        self._write(
            f"{points} on {plan.device} in {plan.dtype}, {plan.budget_s:g} s. Ctrl-C ends early and keeps the results.\n"
        )
        self.last = time.monotonic()

    def draw(self, done_s: float, left_s: float, text: str) -> None:
        if self.live:
            share = min(1.0, done_s / self.budget_s)
            bar = ("█" * round(share * self.WIDTH)).ljust(self.WIDTH, "░")
            room = shutil.get_terminal_size().columns - 1
            line = f"{bar} {left_s:4.0f} s left, {text}"[:room]
            self._write("\r" + line.ljust(min(self.length, room)))
            self.length = len(line)
        elif time.monotonic() - self.last >= min(self.EVERY_S, self.budget_s / 4) or text[:5] != self.phase:
            self.last, self.phase = time.monotonic(), text[:5]
            self._write(f"{done_s:.0f} s done, {left_s:.0f} s left: {text}\n")

    def end(self) -> None:
        if self.live and self.length:
            self._write("\r" + " " * self.length + "\r")

    def _write(self, text: str) -> None:
        if self.stream is None:
            return
        try:
            self.stream.write(text)
            self.stream.flush()
        except (OSError, ValueError):  # nobody reads it any more; the run goes on
            self.stream, self.live = None, False


# The table ----------------------------------------------------------------------------------------


def report(recording: dict[str, Any]) -> str:
    """What a run found, as text: what ran where, the table, the ceilings, the findings."""
    from splitheads.timing.analyse import analyse

    parts = [record.title(recording), "", table(recording), ""]
    parts += _ceilings(recording)
    agreement = recording["agreement"]
    if agreement["compared"]:
        parts.append(
            f"Backend as predicted at {agreement['agree']} of {agreement['compared']} points where both are known."
        )
    parts += [f"  {_which(p)}: predicted {p['predicted']}, ran {p['observed']}" for p in agreement["differ"]]
    findings = analyse(recording)
    texts = [finding.text for finding in (*findings.changes, *findings.steps)]
    parts += ["", "Findings:" if texts else "Findings: no fall larger than the noise."]
    parts += [f"  - {text}" for text in texts]
    ends = {
        "budget": "at the end of the budget",
        "complete": "with every point settled",
        "interrupted": "by interruption",
    }
    return "\n".join([*parts, "", f"Ended after {recording['duration_s']:.1f} s, {ends[recording['ended']]}."])


def table(recording: dict[str, Any]) -> str:
    """One line a point: shape, backend asked for and observed, time ± half interval, rate, share, memory."""
    points = recording["points"]
    ceiling = recording["ceilings"]["matmul_flops_per_s"]
    several_lengths = len({p["seq_len"] for p in points}) > 1
    several_directions = len({p["direction"] for p in points}) > 1
    rates = [p["flops"] / p["median_s"] for p in points if p["status"] == "ok"]
    unit, scale = ("TFLOP/s", 1e12) if rates and max(rates) >= 1e13 else ("GFLOP/s", 1e9)
    head = ["d_head", "case", "backend", "ran", "time", "", unit, "of matmul", "memory", "repeats"]
    before = ["T"] * several_lengths + ["direction"] * several_directions
    rows = [before + head]
    notes = []
    for p in points:
        row = [str(p["seq_len"])] * several_lengths + [p["direction"]] * several_directions
        row += [str(p["d_head"]), p["case"], p["backend"], p["observed"] or "-"]
        if p["status"] == "ok":
            low, high = p["interval_s"]
            rate = p["flops"] / p["median_s"]
            share = f"{100 * rate / ceiling['median']:.1f} %" if ceiling else "-"
            memory = "-" if p["peak_bytes"] is None else size(p["peak_bytes"])
            # Fewer than 6 samples have no interval worth its name, and a single one none at all.
            few = p["repeats"] < LEAST_SAMPLES
            spread = "-" if p["repeats"] < 2 else f"± {50 * (high - low) / p['median_s']:.1f} %" + "?" * few
            row += [_time(p["median_s"]), spread, f"{rate / scale:.1f}", share, memory, str(p["repeats"])]
            rows.append(row)
        else:
            notes.append((p["status"], p["reason"], row))
    lines = _aligned(rows, left={"direction", "case", "backend", "ran"})
    if any(row[-1].isdigit() and int(row[-1]) < LEAST_SAMPLES for row in rows):
        lines += ["", f"? and -: fewer than {LEAST_SAMPLES} repeats, too few for an interval. Give a larger --budget."]
    return "\n".join(lines + _left_out(notes, len(before)))


def _left_out(notes: list[tuple[str, str, list[str]]], first: int) -> list[str]:
    """Points without a time, gathered by reason."""
    groups: dict[tuple, list[str]] = {}
    for status, reason, row in notes:
        groups.setdefault((status, re.sub(r"\d+", "…", reason), row[first + 1], row[first + 2]), []).append(row[first])
    lines = []
    for (status, reason, case, backend), d_heads in groups.items():
        some = list(dict.fromkeys(d_heads))
        which = ", ".join(some[:8]) + (f" and {len(some) - 8} more" if len(some) > 8 else "")
        lines.append(f"{status}: {case}, {backend}, d_head {which}: {reason}")
    return ["", *lines] if lines else []


def _ceilings(recording: dict[str, Any]) -> list[str]:
    lines = []
    for key, unit, scale in (("matmul_flops_per_s", "TFLOP/s", 1e12), ("copy_bytes_per_s", "GB/s", 1e9)):
        ceiling = recording["ceilings"][key]
        if ceiling:
            low, high = (end / scale for end in ceiling["interval"])
            lines.append(
                f"Ceiling: {ceiling['median'] / scale:.3g} {unit} ({low:.3g} to {high:.3g}), {ceiling['what']}."
            )
    return lines


def _which(point: dict[str, Any]) -> str:
    return (
        f"{point['case']}, {point['backend']}, {point['direction']}, T = {point['seq_len']}, d_head = {point['d_head']}"
    )


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale or unit == "µs":
            return f"{seconds / scale:.3g} {unit}" if seconds < 1000 * scale else f"{seconds / scale:.0f} {unit}"
    raise AssertionError


def _aligned(rows: list[list[str]], left: set[str]) -> list[str]:
    sizes = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if name in left else cell.rjust(width)
            for name, cell, width in zip(rows[0], row, sizes, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return lines
