"""The measurement itself: `measure` yields events while it runs, `run` returns the recording.

How a run goes, and why:

1. A first visit to every point, in the plan's order: one call under the profiler (which backend, how much memory),
   then calls until two in a row agree within 10 %. This is the warm-up, and it tells what a call costs. A point that
   cannot fit into the budget is skipped here, with the reason "budget".
2. Rounds. Each round visits every point once, and the two ceilings now and then, in a new random order, and takes
   one sample. Whatever drifts (clocks, temperature, another process) meets all points alike, where a loop that
   finishes one point before the next would blame one of them. Rounds go on for all points until every point's
   interval is tight enough, or the budget is spent: a point that left early would miss the drift that the rest see.
3. The median over the rounds, with the interval that order statistics give: no assumption about the shape of the
   noise, and a burst of load that touches less than half of the rounds hardly moves it.

Samples of two points in one round lie close together in time. `paired_ratio` uses that: the median over rounds of
the ratio within a round, in which drift between rounds cancels.
"""

from __future__ import annotations

import contextlib
import gc
import mmap
import random
import statistics
import threading
import time
import warnings
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import torch

from splitheads.timing import machine, record
from splitheads.timing.analyse import LEAST_SAMPLES, median_interval
from splitheads.timing.clock import Clock, clock_for, steady_memory
from splitheads.timing.observe import Observation, Prediction, observe, predict
from splitheads.timing.plan import ITEM_BYTES, Plan, Point, size
from splitheads.timing.record import CEILING_SLACK
from splitheads.timing.workload import Ceiling, Pool, Work, ceilings, free_memory

CONFIDENCE = 0.95
LEAST_ROUNDS = 10
"""No point is settled before."""
FIRST_VISITS = 0.6  # share of the budget
SHORT_PLAN = 8  # points
NEW_MEMORY = "memory new from the system in every call"
FEW_SAMPLES = "fewer than 6 samples"
INTERRUPTED = "interrupted before this point was measured"
TOO_LARGE = "budget: to draw the inputs alone would take"
DRAWN_PER_S = 1e8  # random numbers on a CPU
NOT_REACHED = "budget: the time was over before this point was measured"


@dataclass(frozen=True)
class Started:
    """The run begins; `total` points are planned."""

    total: int


@dataclass(frozen=True)
class PointUpdate:
    """A point as it stands now, in the form that the recording keeps; later ones replace it."""

    point: dict[str, Any]


@dataclass(frozen=True)
class Progress:
    """Seconds done, seconds left at most, and what is going on, in words."""

    done_s: float
    left_s: float
    text: str


@dataclass(frozen=True)
class Finished:
    """The recording, and every sample behind it: samples[point][round] in seconds per call."""

    recording: dict[str, Any]
    samples: dict[Point, dict[int, float]] = field(repr=False)


Event = Started | PointUpdate | Progress | Finished


def measure(plan: Plan, stop: threading.Event | None = None, command: str | None = None) -> Iterator[Event]:
    """Carry the plan out; the last event is `Finished`, whatever happened on the way.

    Args:
        plan: what to measure. Its budget counts from the first event asked for to `Finished`.
        stop: ends the run as soon as the current sample is taken, once set; everything measured is kept.
        command: how the run was called, for the recording.

    A KeyboardInterrupt that arrives while the run works ends it in the same way. Kernels that refuse, raise or run
    out of memory are recorded as points with a reason. Nothing else is caught.

    While a sample is taken, garbage collection is off, warnings are caught and a forced backend holds, and on a CPU
    freed memory is kept while the run goes on: all of it for the whole process, so do nothing else in it meanwhile.
    """
    with steady_memory(plan.device_type) as memory:
        laboratory = _Laboratory(plan, stop or threading.Event(), command or "", memory)
        yield Started(len(laboratory.tasks))
        try:
            yield from laboratory.work()
        except (KeyboardInterrupt, _Stopped):
            laboratory.ended = "interrupted"
        try:
            end = laboratory.finish()
        except KeyboardInterrupt:  # pressed again, while the results were put together
            end = laboratory.finish()
        laboratory = None  # its inputs are free before the memory is given back
    yield end


def run(plan: Plan, stop: threading.Event | None = None, command: str | None = None) -> dict[str, Any]:
    """Carry the plan out and return the recording; arguments as for `measure`.

    A KeyboardInterrupt ends the run early, and the recording says so.
    """
    stop = stop or threading.Event()
    events = measure(plan, stop, command)
    while True:
        try:
            event = next(events)
        except KeyboardInterrupt:  # between two events, where the generator does not see it
            stop.set()
            continue
        if isinstance(event, Finished):
            return event.recording


def paired_ratio(first: dict[int, float], second: dict[int, float]) -> tuple[float, float, float]:
    """Median over rounds of first / second within a round, with its 95 % interval: (ratio, low, high).

    Arguments are values of `Finished.samples`. Raises ValueError if the points share no round.
    """
    ratios = [first[number] / second[number] for number in first.keys() & second.keys()]
    if not ratios:
        raise ValueError("These two points have no round in common: nothing to pair. Give the run a larger budget.")
    return median_interval(ratios, CONFIDENCE)


class _Stopped(Exception):
    """The stop event was set."""


@dataclass
class _Task:
    """A point on its way: what is known about it so far."""

    point: Point
    prediction: Prediction
    work: Work | None = None
    seen: Observation | None = None
    status: str = "skipped"
    reason: str | None = NOT_REACHED
    first: list[float] = field(default_factory=list)  # the calls of the first visit that agreed
    samples: dict[int, float] = field(default_factory=dict)  # by round
    faults: list[float] = field(default_factory=list)  # page faults per call, by sample
    seconds: float = 0.0  # of one call, as last seen
    calls: int = 1
    told: float = 0.0  # when the last PointUpdate went out

    def values(self) -> list[float]:
        """The samples that count: those of the rounds, and of the first visit only while there are hardly any."""
        rounds = list(self.samples.values())
        return rounds if len(rounds) >= 3 else self.first + rounds

    def drop(self, status: str, reason: str) -> None:
        self.status, self.reason, self.work = status, reason, None


class _Laboratory:
    def __init__(self, plan: Plan, stop: threading.Event, command: str, memory: str) -> None:
        self.start = time.perf_counter()
        self.memory = memory
        self.created = datetime.now(UTC)
        self.plan, self.stop, self.command = plan, stop, command
        self.ended = "budget"
        self.device = machine.describe(plan.device, plan.memory_bytes)
        self.software = machine.software()
        key, version = self.device["key"], self.software["torch"]
        begin = time.perf_counter()
        self.tasks = [_Task(point, predict(plan, point, key, version)) for point in plan.points()]
        # What comes after the last sample (statistics, the recording) takes its share of the budget, too: with many
        # points about as long as the predictions did.
        after = max(0.02, 1.5 * (time.perf_counter() - begin))
        self.deadline = self.start + plan.budget_s * 0.99 - after
        self.ceilings: list[Ceiling] = []
        self.ceiling_samples: dict[str, list[float]] = {}
        self.clock: Clock | None = None
        self.random = random.Random(plan.seed)
        self.rate: dict[tuple, float] = {}  # (case, backend) -> seconds per operation, of points seen so far
        self.last_progress = 0.0

    # Time ----------------------------------------------------------------------------------------

    def left(self) -> float:
        return self.deadline - time.perf_counter()

    def progress(self, text: str, every: float = 0.1) -> Iterator[Progress]:
        now = time.perf_counter()
        if now - self.last_progress >= every:
            self.last_progress = now
            done = now - self.start
            yield Progress(done, max(0.0, self.plan.budget_s - done), text)

    def check(self) -> None:
        if self.stop.is_set():
            raise _Stopped

    # The run -------------------------------------------------------------------------------------

    def work(self) -> Iterator[Event]:
        yield from self.progress("preparing the inputs", every=0)
        self.check()
        self.clock = clock_for(self.plan.device)
        self._leave_out_what_takes_too_long_to_prepare()
        fitting = [task.point for task in self.tasks if not task.reason.startswith(TOO_LARGE)]
        if not fitting:
            return
        pool = Pool(self.plan, fitting)
        self.ceilings = ceilings(self.plan, pool)
        self.check()
        for ceiling in self.ceilings:
            with _sample_conditions(), ceiling.context():
                self.ceiling_samples[ceiling.name] = self._settle(ceiling, self.left() / 40)
        yield from self._first_visits(pool)
        yield from self._rounds()

    def _leave_out_what_takes_too_long_to_prepare(self) -> None:
        if self.plan.device_type == "cuda":  # a GPU draws random numbers faster than it attends
            return
        for task in self.tasks:
            seconds = self.plan.set_elements(task.point) / DRAWN_PER_S
            if seconds > self.plan.budget_s / 8:
                task.drop("skipped", f"{TOO_LARGE} about {seconds:.1f} s of the {self.plan.budget_s:g} s")

    def _first_visits(self, pool: Pool) -> Iterator[Event]:
        until = self.start + FIRST_VISITS * self.plan.budget_s
        for number, task in enumerate(self.tasks, 1):
            self.check()
            yield from self.progress(f"first visit, point {number} of {len(self.tasks)}")
            now = time.perf_counter()
            if task.reason.startswith(TOO_LARGE):
                continue
            cost = self._expected(task.point)
            # Two calls must fit at the very least. A short plan is visited whole, whatever the share says.
            if now + 2 * cost > self.deadline:
                left = max(0.0, self.deadline - now)
                task.reason = f"budget: one call would take about {cost:.2g} s, and {left:.2g} s were left"
                continue
            if now > until and number > SHORT_PLAN:
                continue
            self._first_visit(task, pool, (until - now) / (len(self.tasks) - number + 1))
            if task.status != "ok" and not self._alive():
                for other in self.tasks[number:]:
                    other.drop("failed", f"the device stopped working at an earlier point: {task.reason}")
                return
            task.told = time.perf_counter()
            yield PointUpdate(self.as_dict(task))

    def _expected(self, point: Point) -> float:
        """Seconds that a call will take, guessed: from a sibling that was seen, else a quarter of the ceiling."""
        flops = self.plan.flops(point)
        rate = self.rate.get((point.case, point.backend))
        if rate is None:
            operations = self.ceilings[0].amount / min(self.ceiling_samples[self.ceilings[0].name])
            rate = 4 / operations
        return flops * rate

    def _first_visit(self, task: _Task, pool: Pool, slice_s: float) -> None:
        point, plan = task.point, self.plan
        short = self._too_large(task)
        if short:
            task.drop("skipped", short)
            return
        notes: list[str] = []
        refused = None
        try:
            work = Work(pool, point)
            begin = time.perf_counter()
            with _sample_conditions(notes), work.context():
                task.seen = observe(work, plan.device)
                task.first = self._settle(work, slice_s - (time.perf_counter() - begin))
        except Exception as error:
            refused = _verdict(error, notes, task.prediction)
        if refused:
            task.drop(*refused)
            self._release()  # only now: inside `except`, the traceback still holds the failed call's tensors
            return
        task.work, task.status, task.reason = work, "ok", None
        task.seconds = min(task.first)
        task.calls = self.clock.calls(work, task.seconds)
        self.rate[point.case, point.backend] = task.seconds / plan.flops(point)

    def _settle(self, work: Work | Ceiling, slice_s: float) -> list[float]:
        """Warm up: call until two times in a row agree within 10 %, and return those two.

        At least three calls, at most twenty; fewer where `slice_s` seconds are over before.
        """
        begin, times = time.perf_counter(), []
        while len(times) < 20:
            times.append(self.clock.sample(work, 1, float("inf")))
            spent = time.perf_counter() - begin
            if spent > slice_s or self.stop.is_set():
                break
            if len(times) >= 3 and abs(times[-1] - times[-2]) <= 0.1 * min(times[-2:]):
                break
            if spent + times[-1] > self.left():
                break
        return times[-2:] if len(times) > 2 else times[-1:]

    def _too_large(self, task: _Task) -> str | None:
        """On devices that share the machine's memory: why this point must not even be tried, or None.

        A GPU of its own says "out of memory", and the run goes on. Main memory does not: the system starts to swap,
        or ends the process.
        """
        plan, point = self.plan, task.point
        may_be_math = point.backend == "MATH" or (point.backend == "auto" and task.prediction.backend in (None, "MATH"))
        if plan.device_type == "cuda" or not may_be_math:
            return None
        # Scores, weights and their fp32 copies; the backward pass holds their gradients, too.
        item = max(4, ITEM_BYTES[plan.dtype])
        need = plan.batch * plan.n_heads * point.seq_len**2 * item * (4 if point.backward else 3)
        free = free_memory(plan.device)
        if free and need > 0.8 * free:
            return f"out of memory: the T × T scores would take about {size(need)}, {size(free)} are free"
        return None

    def _alive(self) -> bool:
        """False after an error that leaves a GPU unusable for this process."""
        try:
            self.clock.wait()
        except Exception:
            return False
        return True

    def _release(self) -> None:
        with contextlib.suppress(Exception):
            if self.plan.device_type == "cuda":
                torch.cuda.empty_cache()
            elif self.plan.device_type == "mps":
                torch.mps.empty_cache()

    def _rounds(self) -> Iterator[Event]:
        live = [task for task in self.tasks if task.status == "ok"]
        self._fit(live)
        live = [task for task in live if task.work]
        if not live:
            self.ended = "budget" if any(map(_out_of_time, self.tasks)) else "complete"
            return
        in_rounds = in_ceilings = 0.0
        recent: deque[float] = deque(maxlen=50)
        number = settled = 0
        while True:
            number += 1
            order: list[_Task | Ceiling] = list(live)
            if number == 1 or in_ceilings < 0.1 * in_rounds:
                order += self.ceilings
            self.random.shuffle(order)
            for entry in order:
                self.check()
                is_task = isinstance(entry, _Task)
                begin = time.perf_counter()
                cost = self._cost(entry) if is_task else self.ceiling_samples[entry.name][-1]
                # On a busy machine a sample may take many times what it should; towards the end, leave room for that.
                spare = min(max(recent, default=0.0), 0.05 * self.plan.budget_s)
                if begin + max(cost, spare) > self.deadline:
                    return
                if is_task:
                    self._sample(entry, number)
                else:
                    with _sample_conditions(), entry.context():
                        self.ceiling_samples[entry.name].append(self.clock.sample(entry, 1, float("inf")))
                now = time.perf_counter()
                recent.append(now - begin)
                in_rounds += now - begin
                in_ceilings += 0 if is_task else now - begin
                if is_task and now - entry.told > 0.5:
                    entry.told = now
                    yield PointUpdate(self.as_dict(entry))
                yield from self.progress(f"round {number}, {settled} of {len(live)} points settled")
            live = [task for task in live if task.status == "ok"]
            settled = sum(map(self._settled, live))
            if settled == len(live) and number >= LEAST_ROUNDS:
                self.ended = "budget" if any(map(_out_of_time, self.tasks)) else "complete"
                return

    def _sample(self, task: _Task, number: int) -> None:
        notes: list[str] = []
        refused = None
        try:
            with _sample_conditions(notes), task.work.context():
                task.samples[number] = self.clock.sample(task.work, task.calls, task.seconds)
        except Exception as error:
            refused = _verdict(error, notes, task.prediction)
        if refused:
            # What it measured before is not kept: a kernel that raises now and then has no time.
            task.drop(*refused)
            self._release()
        else:
            task.seconds = task.samples[number]
            task.faults.append(self.clock.faults)

    def _fit(self, live: list[_Task]) -> None:
        """Leave out the costliest points until a round fits into the time that is left, with something to spare.

        One round is enough to keep a point: with the calls of its first visit that makes two or three samples, and its
        flags say how few that is. Better than no number for the fallback, whose cost is the reason for measuring it.
        """
        room = self.left() / 1.3
        cost = sum(map(self._cost, live))
        for task in sorted(live, key=self._cost, reverse=True):
            if cost <= room:
                return
            cost -= self._cost(task)
            task.calls = 1  # a shorter sample may be all it takes
            cost += self._cost(task)
            if cost > room:
                cost -= self._cost(task)
                task.work = None

    def _cost(self, task: _Task) -> float:
        """Seconds that the next sample of this point will take."""
        lead = self.clock.lead_calls if task.seconds < self.clock.lead_s else 0
        return task.seconds * (task.calls + lead)

    def _settled(self, task: _Task) -> bool:
        values = list(task.samples.values())
        if len(values) < LEAST_ROUNDS:
            return False
        median, low, high = median_interval(values, CONFIDENCE)
        return high - low <= self.plan.target_width * median

    # The result ----------------------------------------------------------------------------------

    def as_dict(self, task: _Task) -> dict[str, Any]:
        """The point as the recording keeps it."""
        point, prediction, seen = task.point, task.prediction, task.seen
        values = task.values()
        flags = [prediction.note] if prediction.note else []
        made: dict[str, Any] = {
            "case": point.case,
            "backend": point.backend,
            "direction": point.direction,
            "seq_len": point.seq_len,
            "d_head": point.d_head,
            "d_head_v": point.d_head_v,
            "status": task.status,
            "reason": task.reason,
            "median_s": None,
            "interval_s": None,
            "repeats": 0,
            "calls_per_repeat": task.calls,
            "flops": self.plan.flops(point),
            "peak_bytes": None,
            "observed": None,
            "predicted": prediction.backend,
            "bucket": None,
            "flags": flags,
        }
        if seen:
            known = seen.backend in record.BACKENDS
            made.update(observed=seen.backend if known else None, peak_bytes=seen.peak_bytes)
            made["bucket"] = seen.bucket if seen.bucket and seen.bucket >= point.d_head else None
            if not known:
                flags.append(f"backend not observed ({seen.backend or 'no attention operator in the profile'})")
            elif point.backend not in ("auto", seen.backend):
                flags.append("ran on another backend than the one that was forced")
            elif prediction.refused:
                flags.append(f"was predicted to refuse: {prediction.refused}")
        if task.status != "ok":
            return made
        median, low, high = median_interval(values, CONFIDENCE)
        made.update(median_s=median, interval_s=[low, high], repeats=len(values))
        if self.plan.device_type == "cpu" and task.faults:
            made["page_faults"] = round(statistics.median(task.faults))
            new_bytes = made["page_faults"] * mmap.PAGESIZE
            if new_bytes > max(2**20, (made["peak_bytes"] or 0) / 4):
                flags.append(NEW_MEMORY)
        if len(values) < LEAST_SAMPLES:
            flags.append(FEW_SAMPLES)
        if len(values) < LEAST_SAMPLES or high - low > self.plan.target_width * median:
            flags.append(record.WIDE_INTERVAL)
        matmul = self._ceiling(0)
        if matmul and made["flops"] / median > CEILING_SLACK * matmul["median"]:
            flags.append(record.ABOVE_CEILING)
        return made

    def _ceiling(self, which: int) -> dict[str, Any] | None:
        if len(self.ceilings) <= which or not self.ceiling_samples.get(self.ceilings[which].name):
            return None
        ceiling = self.ceilings[which]
        seconds = self.ceiling_samples[ceiling.name]
        median, low, high = median_interval(seconds, CONFIDENCE)
        rates = [ceiling.amount / s for s in (high, low)]
        return {"median": ceiling.amount / median, "interval": rates, "repeats": len(seconds), "what": ceiling.what}

    def finish(self) -> Finished:
        plan, clock = self.plan, self.clock
        if self.ended == "interrupted":
            for task in self.tasks:
                task.reason = INTERRUPTED if _out_of_time(task) else task.reason
        points = [self.as_dict(task) for task in self.tasks]
        clocks = {"start": self.device.pop("clocks"), "end": machine.clocks(plan.device)}
        self.device["clocks"] = clocks if any(clocks.values()) else None
        names = ("matmul_flops_per_s", "copy_bytes_per_s")
        recording = {
            "schema": record.SCHEMA,
            "kind": record.KIND,
            "created": self.created.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "command": self.command,
            "device": self.device,
            "software": self.software,
            "plan": plan.as_dict(),
            "method": {
                "clock": clock.text if clock else "none: the run ended before it began",
                "statistic": "median",
                "confidence": CONFIDENCE,
                "interval": "order statistics",
                "target_width": plan.target_width,
                "order": "all points interleaved, in shuffled rounds",
                "inputs": clock.inputs if clock else "none",
                "memory": self.memory,
                "warmup": "until two calls in a row agree within 10 %",
            },
            "ceilings": {name: self._ceiling(which) for which, name in enumerate(names)},
            "points": points,
            "agreement": record.agreement(points),
            "duration_s": time.perf_counter() - self.start,
            "ended": self.ended,
        }
        return Finished(recording, {task.point: dict(task.samples) for task in self.tasks})


def _out_of_time(task: _Task) -> bool:
    return (task.reason or "").startswith("budget")


@contextlib.contextmanager
def _sample_conditions(notes: list[str] | None = None) -> Iterator[None]:
    """No garbage collection while the clock runs; PyTorch's warnings go to `notes`, not to the screen."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
    finally:
        if collecting:
            gc.enable()
        if notes is not None:
            notes += [str(item.message) for item in caught]


def _verdict(error: Exception, notes: list[str], prediction: Prediction) -> tuple[str, str]:
    """(status, reason) for a call that raised."""
    text = _first_line(str(error)) or type(error).__name__
    if (
        isinstance(error, (MemoryError, torch.OutOfMemoryError))
        or "alloc" in text.lower()
        or "out of memory" in text.lower()
    ):
        return "failed", f"out of memory: {text}"
    if "No available kernel" in text or "No viable backend" in text:
        # PyTorch gives its reasons as warnings, in pairs: "... kernel not used because:", then the reason.
        reasons = [_first_line(note) for note in notes if "not used because" not in note]
        why = next((r for r in reasons if "disabled" not in r), prediction.refused or text)
        expected = "as predicted" if prediction.refused else "not predicted"
        return "skipped", f"refused ({expected}): {why}"
    return "failed", f"{type(error).__name__}: {text}"


def _first_line(text: str, length: int = 160) -> str:
    line = next(iter(text.strip().splitlines()), "").strip()
    line = line.partition(" (Triggered internally at")[0]
    return line if len(line) <= length else line[: length - 1] + "…"
