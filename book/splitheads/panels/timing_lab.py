"""Panel *timing lab*: what each head size costs, by the kernel that really ran; recorded, or measured here and now.

The view shows recordings of `splitheads.timing` and decides nothing: points, intervals, steps and their names
come from Python (`recorded.py`). In a notebook a run goes on in a thread of its own, so that the kernel stays
free to hear Stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import re
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import ipywidgets
import traitlets
from IPython import get_ipython

from ..palette import BACKEND_UNKNOWN, BACKENDS, SHAPES
from ..timing.plan import BACKENDS as CHOICES
from ..timing.plan import CASES, DIRECTIONS
from .kit import Panel, View, css, esm, link
from .kit import question as opening
from .recorded import HOW, LOOKS, NO_GPU, NONE, counted, group, summary, twin

PLOTS = ["throughput", "time", "% of ceiling", "memory"]
"""What the y-axis can show."""

NEWS_EVERY = 0.25
"""Seconds between two pictures of a run in progress, at least."""

QUESTION = opening(
    "On a CPU, one innocent change: the values get 8 columns more than the keys, so the arithmetic grows by "
    "about 6 % at d_head = 64. What happens to the time?",
    {
        "About 6 % more": "That is what the arithmetic says, and it would be so if the same kernel ran. PyTorch's fused "
        "CPU kernel takes only values that are as wide as the keys.",
        "Nothing: widths are padded anyway": "The CPU kernel has no compiled widths to pad to. It refuses the call "
        "instead, because the values are not as wide as the keys.",
        "Several times as much": "The fused kernel refuses, and the fallback writes all T × T scores to memory and reads "
        "them back. In the chart the points change colour and shape: another kernel ran.",
    },
    answer="Several times as much",
)
"""Answered by any recording of a CPU that has the case "value_width"."""


# The view and its controls ------------------------------------------------------------------------


class TimingView(View):
    _esm = esm("timing_lab", "chart", "timing_view")
    _css = css("chart", "timing_view")
    recordings = traitlets.List([]).tag(sync=True)
    recording = traitlets.Int(0).tag(sync=True)
    plot = traitlets.Int(0).tag(sync=True)
    direction = traitlets.Unicode("").tag(sync=True)
    seq_len = traitlets.Int(0).tag(sync=True)
    plots = traitlets.List(PLOTS).tag(sync=True)
    cases = traitlets.Dict(CASES).tag(sync=True)
    kinds = traitlets.Dict({name: {"colour": BACKENDS[name], "shape": SHAPES[name]} for name in SHAPES}).tag(sync=True)
    series = traitlets.Dict(LOOKS).tag(sync=True)
    unknown = traitlets.Dict({"colour": BACKEND_UNKNOWN, "shape": "cross"}).tag(sync=True)
    notes = traitlets.List([]).tag(sync=True)
    none = traitlets.Unicode(NONE).tag(sync=True)
    how = traitlets.List([]).tag(sync=True)
    live = traitlets.Dict({}).tag(sync=True)
    progress = traitlets.Dict({"state": "idle"}).tag(sync=True)

    def __init__(self, **traits: Any) -> None:
        # Messages from the page and news from a run's thread arrive in different threads; one at a time.
        self.turn = threading.RLock()
        super().__init__(**traits)

    def _handle_msg(self, msg: dict) -> None:
        with self.turn:
            super()._handle_msg(msg)


@contextlib.contextmanager
def interrupts(stop: threading.Event) -> Iterator[None]:
    """While a run goes on beside an idle notebook kernel, let "interrupt the kernel" stop it.

    An idle kernel ignores the signal, so nothing but the run can be meant. Where there is no such kernel,
    nothing is changed.
    """
    kernel = getattr(get_ipython(), "kernel", None)
    loop, default = getattr(kernel, "io_loop", None), signal.default_int_handler
    if loop is None:
        yield
        return

    def heard(*_: Any) -> None:
        stop.set()

    over = threading.Event()

    def listen() -> None:
        if over.is_set():
            return
        if signal.getsignal(signal.SIGINT) is default:  # a cell is being executed: the signal is for it
            loop.call_later(0.1, listen)
        elif signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            signal.signal(signal.SIGINT, heard)

    def leave() -> None:
        if signal.getsignal(signal.SIGINT) is heard:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        if getattr(kernel, "saved_sigint_handler", None) is heard:  # put back after the cell that runs now
            kernel.saved_sigint_handler = signal.SIG_IGN

    loop.add_callback(listen)  # signals can be set in the main thread alone
    try:
        yield
    finally:
        over.set()
        loop.add_callback(leave)


class TimingLab(Panel):
    """The panel; `run`, `stop`, `save` and `recording` are for Python beside it."""

    def __init__(self, shown: list[tuple[str, dict]], notes: list[str], question: dict) -> None:
        self._latest = shown[0][1] if shown else None
        self._gate = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._busy = False
        self._mine = 0
        told = [summary(recording, name) for name, recording in shown]
        lines = told[0]["lines"] if told else []
        first = next((x for x in lines if x["d"]), {"direction": "", "seq_len": 0})
        view = TimingView(
            recordings=told,
            notes=notes,
            question=question,
            how=HOW,
            **{key: first[key] for key in ("direction", "seq_len")},
        )
        full = ipywidgets.Layout(width="100%", max_width="640px")
        picker = ipywidgets.Dropdown(
            options=labels(told), index=0, description="recording", disabled=not told, layout=full
        )
        plot = ipywidgets.RadioButtons(
            options=PLOTS, index=0, description="plot", orientation="horizontal", layout=ipywidgets.Layout(width="100%")
        )
        link(picker, view, "recording", "index")
        link(plot, view, "plot", "index")
        lab = self._bench()
        super().__init__("timing", [lab, picker, plot], view, twin(told, notes))
        self.add_class("sh-timing-lab")
        self._named.update(self._bench_controls)
        self._picker = picker

    def _bench(self) -> ipywidgets.VBox:
        """What needs a kernel: the plan's controls and the buttons. On the site the style sheet hides it."""
        small, wide = ipywidgets.Layout(width="190px"), ipywidgets.Layout(width="392px")
        number = {"min": 1, "max": 10**9, "layout": small}
        made: dict[str, Any] = {
            "device": ipywidgets.Dropdown(options=["auto", "cpu", "cuda", "mps"], description="device", layout=small),
            "dtype": ipywidgets.Dropdown(
                options=["default", "fp32", "bf16", "fp16", "fp64"], description="dtype", layout=small
            ),
            "batch": ipywidgets.BoundedIntText(1, description="batch", **number),
            "n_heads": ipywidgets.BoundedIntText(8, description="n_heads", **number),
            "seq_lens": ipywidgets.Text("512", description="T", layout=small),
            "budget_s": ipywidgets.BoundedFloatText(
                20, min=1, max=36000, description="seconds", layout=small, tooltip="time budget of the run"
            ),
            "d_heads": ipywidgets.Text(
                "32, 48, 64, 72, 80, 96, 128", description="d_head", placeholder="32, 64, 80 or 8:128:8", layout=wide
            ),
        }
        tick = {"indent": False, "layout": ipywidgets.Layout(width="auto")}

        def row(title: str, names: Iterable[str], on: tuple[str, ...], words: dict[str, str]) -> ipywidgets.HBox:
            boxes = {n: ipywidgets.Checkbox(n in on, description=n, tooltip=words.get(n, ""), **tick) for n in names}
            self._ticks[title] = boxes
            box = ipywidgets.HBox([ipywidgets.Label(title), *boxes.values()])
            box.add_class("sh-ticks")
            return box

        self._ticks: dict[str, dict[str, ipywidgets.Checkbox]] = {}
        rows = [
            row("direction", DIRECTIONS, ("forward",), {}),
            row("backend", CHOICES, ("auto",), {"auto": "what PyTorch picks by itself"}),
            row("case", CASES, ("plain", "value_width"), CASES),
        ]
        file = ipywidgets.Text("my-timing.json", description="file", layout=ipywidgets.Layout(width="280px"))
        buttons = {
            "run": ipywidgets.Button(description="Run", button_style="primary", tooltip="measure on this machine"),
            "stop": ipywidgets.Button(description="Stop", disabled=True, tooltip="end the run, keep what was measured"),
            "save": ipywidgets.Button(description="Save", disabled=True, tooltip="write the recording to the file"),
        }
        for button in buttons.values():
            button.layout = ipywidgets.Layout(width="6rem")
        buttons["run"].on_click(lambda _: self._soon(self.run))
        buttons["stop"].on_click(lambda _: self.stop())
        buttons["save"].on_click(lambda _: self._soon(self.save))
        self._buttons = buttons
        self._bench_controls = {**made, "file": file}
        shapes = ipywidgets.HBox([made[key] for key in ("device", "dtype", "batch", "n_heads", "seq_lens", "budget_s")])
        shapes.add_class("sh-shapes")
        does = ipywidgets.HBox([buttons["run"], buttons["stop"], buttons["save"], file])
        does.add_class("sh-does")
        bench = ipywidgets.VBox([shapes, made["d_heads"], *rows, does])
        bench.add_class("sh-kernel-only")
        return bench

    # -- for Python beside the panel

    @property
    def recording(self) -> dict | None:
        """The latest recording: the one measured here, else the first of those that the panel was given."""
        return self._latest

    @property
    def running(self) -> bool:
        return self._busy

    def plan(self) -> Any:
        """The `timing.Plan` that the controls describe. Raises `timing.PlanError`."""
        from ..timing import Plan

        value = {name: control.value for name, control in self._bench_controls.items()}
        ticked = {title: tuple(n for n, box in boxes.items() if box.value) for title, boxes in self._ticks.items()}
        return Plan(
            device=value["device"],
            dtype=None if value["dtype"] == "default" else value["dtype"],
            batch=value["batch"],
            n_heads=value["n_heads"],
            seq_lens=value["seq_lens"],
            d_heads=value["d_heads"],
            directions=ticked["direction"],
            backends=ticked["backend"],
            cases=ticked["case"],
            budget_s=value["budget_s"],
        )

    def run(self, wait: bool = False) -> dict | None:
        """Measure what the controls say, in a thread. With `wait`, return the recording once it is there.

        An interrupt ends the run; what was measured is kept, in `recording`.

        Raises:
            timing.PlanError: the controls ask for what cannot be.
            RuntimeError: a run is under way already.
        """
        with self._gate:
            if self.running:
                raise RuntimeError("A run is under way: wait for its end, or press Stop.")
            plan = self.plan()
            self._busy = True
            self._stop.clear()
            sweep = f"{counted(len(plan.points()), 'point')} in {plan.budget_s:g} s"
            self._said(state="starting", text=f"Starting ({sweep}): finding what the device can do.")
            context = contextvars.copy_context()
            self._thread = threading.Thread(target=context.run, args=(self._work, plan), name="timing lab", daemon=True)
            self._thread.start()
        if not wait:
            return None
        thread, before = self._thread, self._latest
        try:
            while thread.is_alive():
                thread.join(0.2)
        except KeyboardInterrupt:
            self.stop()
            thread.join()
        return self._latest if self._latest is not before else None

    def stop(self) -> None:
        """End the run after the call that is being timed; everything measured so far is kept."""
        if self.running and not self._stop.is_set():
            self._stop.set()
            self._said(
                **{**self.view.progress, "state": "stopping", "text": "Stopping after the call that is being timed."}
            )

    def save(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write the latest recording as JSON; the path really written (a file that is there is never overwritten).

        Raises:
            timing.RecordError: there is nothing to save, or it cannot be written.
        """
        from ..timing.record import RecordError, save

        if self._latest is None:
            raise RecordError("There is nothing to save yet: press Run first.")
        written = save(self._latest, self._bench_controls["file"].value if path is None else path)
        self._said(
            state="saved", text=f"Saved as {written.resolve()}. Load it with timing_lab(recordings=[{str(written)!r}])."
        )
        return written

    # -- what happens inside

    def _soon(self, deed: Any) -> None:
        """A moment after the click. The page holds a typed text back while the kernel is busy, but not a click: the
        text that was typed before it can arrive after it."""
        loop = None
        if getattr(get_ipython(), "kernel", None):  # else there is no page that could hold anything back
            with contextlib.suppress(RuntimeError):
                loop = asyncio.get_running_loop()
        if loop:
            loop.call_later(0.25, self._asked, deed)
        else:
            self._asked(deed)

    def _asked(self, deed: Any) -> None:
        """A button was pressed: whatever is wrong is said in the panel, not raised into a log."""
        try:
            deed()
        except (ValueError, RuntimeError) as error:
            if not self.running:
                self._said(state="refused", text=str(error))

    def _said(self, **progress: Any) -> None:
        with self.view.turn:
            self.view.progress = {**progress, "at": time.time()}
            busy = progress["state"] in ("starting", "running", "stopping")
            self._buttons["run"].disabled = busy
            self._buttons["stop"].disabled = progress["state"] not in ("starting", "running")
            self._buttons["save"].disabled = busy or self._latest is None

    def _over(self, **progress: Any) -> None:
        self._busy = False
        self._said(**progress)

    def _work(self, plan: Any) -> None:
        """The thread of a run."""
        from ..timing import Finished, PointUpdate, Progress, measure

        points: dict[tuple, dict] = {}
        left: dict[str, Any] = {}
        shown = 0.0
        name = ""
        try:
            with interrupts(self._stop):
                for event in measure(plan, stop=self._stop, command=f"panel timing_lab: {plan!r}"):
                    if isinstance(event, PointUpdate):
                        point = event.point
                        points[tuple(point[key] for key in ("case", "backend", "direction", "seq_len", "d_head"))] = (
                            point
                        )
                    elif isinstance(event, Progress):
                        left = {"done": event.done_s, "left": event.left_s, "text": event.text}
                    elif isinstance(event, Finished):
                        self._finish(event.recording, name)
                        return
                    now = time.monotonic()
                    if now - shown >= NEWS_EVERY:
                        shown = now
                        if points and not name:
                            name = self._open()
                        self._news(plan, list(points.values()), left, name)
            self._over(state="failed", text="The run ended without a result.")
        except Exception as error:  # whatever went wrong must reach the reader, and the buttons must come back
            self._over(state="failed", text=f"The run failed: {type(error).__name__}: {error}")

    def _open(self) -> str:
        """A place for the run among the recordings, chosen at once."""
        with self.view.turn:
            self._mine += 1
            name = f"run-{self._mine}"
            self.view.recordings = [*self.view.recordings, {"name": name, "title": f"run {self._mine}, in progress"}]
            self._relabel(len(self.view.recordings) - 1)
        return name

    def _relabel(self, index: int) -> None:
        with self._picker.hold_sync():
            self._picker.options = labels(self.view.recordings)
            self._picker.disabled = False
            self._picker.index = index
        self.view.recording = index

    def _news(self, plan: Any, points: list[dict], left: dict, name: str) -> None:
        total = len(plan.points())
        state = "stopping" if self._stop.is_set() else "running"
        with self.view.turn:
            if name:
                self.view.live = {
                    "name": name,
                    "title": "in progress",
                    "device": plan.device,
                    "lines": group(points),
                    "d_heads": list(plan.d_heads),
                    "steps": [],
                    "ceiling": None,
                    "source": "",
                    "facts": [],
                }
            self._said(state=state, points=len(points), total=total, **left)

    def _finish(self, recording: dict, name: str) -> None:
        measured = [p for p in recording["points"] if p["status"] == "ok"]
        if not measured and not name:
            self._over(state="done", text=nothing(recording))
            return
        name = name or self._open()
        with self.view.turn:
            self._latest = recording if measured else self._latest
            shown = {**summary(recording, name), "mine": self._mine}
            self.view.recordings = [shown if x["name"] == name else x for x in self.view.recordings]
            self.view.live = {}
            self._relabel(next(i for i, x in enumerate(self.view.recordings) if x["name"] == name))
            why = {"complete": "Done", "budget": "Done, the time is up", "interrupted": "Stopped"}[recording["ended"]]
            kept = f"{why}: {len(measured)} of {counted(len(recording['points']), 'point')} measured, and kept."
            self._over(state="done", text=kept if measured else nothing(recording))


def nothing(recording: dict) -> str:
    """Why a run has not one time: it was stopped, its time was too short, or nothing that was asked for runs here."""
    if recording["ended"] == "interrupted":
        return "Stopped before the first point was measured: there is nothing to show."
    reasons = list(dict.fromkeys(p["reason"].rstrip(".") for p in recording["points"] if p["reason"]))
    if len(reasons) > 3:
        reasons[3:] = [f"and {len(reasons) - 3} more reasons"]
    return f"Nothing could be measured: {'; '.join(reasons) or 'no reason was given'}."


def labels(told: list[dict]) -> list[str]:
    """One line per recording for the selector, no two alike."""
    made: list[str] = []
    for one in told:
        label = f"run {one['mine']}: {one['title']}" if one.get("mine") else one["title"]
        made.append(label if label not in made else f"{label} [{one['name']}]")
    return made or ["none yet"]


def gathered(
    recordings: Iterable[dict | str | os.PathLike[str]] | None, folder: str | os.PathLike[str] | None
) -> tuple[list[tuple[str, dict]], list[str]]:
    """The recordings to show, each with a name for the address, and a sentence for each file that cannot be read."""
    from ..timing.record import FOLDER, RecordError, files, load, rank, validate

    found: list[tuple[str, dict]] = []
    problems: list[str] = []
    if recordings is None:
        recordings = files(FOLDER if folder is None else Path(folder))
        given = False
    else:
        recordings = [recordings] if isinstance(recordings, (dict, str, os.PathLike)) else list(recordings)
        given = True
    for i, one in enumerate(recordings):
        if isinstance(one, dict):
            validate(one)
            found.append((f"recording-{i + 1}", one))
            continue
        try:
            # What the reader sees names the file, not the folder that the page was built in.
            found.append((re.sub(r"[^0-9A-Za-z_-]+", "-", Path(one).stem), load(one)))
        except RecordError as error:
            if given:
                raise
            problems.append(str(error).replace(f"{Path(one).parent}{os.sep}", ""))
    if not given:
        found.sort(key=lambda one: rank(one[1]))
    return found, problems


def timing_lab(
    recordings: Iterable[dict | str | os.PathLike[str]] | None = None,
    folder: str | os.PathLike[str] | None = None,
    question: dict | None = None,
) -> TimingLab:
    """Measured time against head size, with the kernel that ran at every point; in a notebook, measured here.

    `recordings` are dicts or paths of files; by default all of `folder`, by default the book's own. `question`
    is the opening question (see `kit.question`), `{}` for none. From Python: `panel.run(wait=True)`,
    `panel.stop()`, `panel.recording`, `panel.save(path)`; the controls are `panel.d_heads.value` and so on.

    Raises:
        timing.RecordError: one of the given recordings is not in order. (One in a folder is named in the panel.)
    """
    found, problems = gathered(recordings, folder)
    notes = list(problems)
    if found and all(recording["device"]["type"] == "cpu" for _, recording in found):
        notes.append(NO_GPU)
    return TimingLab(found, notes, QUESTION if question is None else question)
