"""Panel *timing lab*, the Python side: what it hands to the page, prints, measures, keeps and refuses.

The recordings here are made up, by the schema, so that every case of the chart occurs; none is shipped.
"""

from __future__ import annotations

import json
import random
import re
import threading
from math import exp

import ipywidgets
import pytest
import splitheads.timing
from splitheads.panels import timing_lab
from splitheads.panels.kit import esm
from splitheads.panels.recorded import NO_GPU, NONE, SHAPES, group, names_of, steps, summary
from splitheads.panels.timing_lab import PLOTS, nothing
from splitheads.timing.analyse import analyse
from splitheads.timing.record import CASES, RecordError, agreement, flops, load, save, validate

WIDTHS = (32, 64, 96, 128, 192, 256)


def made_up(
    device: str = "cpu",
    d_heads=(16, 32, 48, 64, 65, 72, 80, 96, 100, 112, 128),
    cases=("plain", "causal", "value_width", "dropout"),
    backends=("auto",),
    directions=("forward",),
    seq_lens=(512,),
    noise: float = 0.004,
    ended: str = "complete",
    dtype: str = "fp32",
    memory: bool = True,
    name: str | None = None,
) -> dict:
    """A recording that nobody measured, valid by the schema. "cuda": FLASH in compiled widths; past 256, MATH."""
    dice = random.Random(7)
    batch, n_heads = 1, 8
    rate = {"cpu": 6e10, "cuda": 3e14}[device]
    points = []
    for direction in directions:
        for seq_len in seq_lens:
            for case in cases:
                for backend in backends:
                    for d in d_heads:
                        d_v = d + 8 * (case == "value_width")
                        work = flops(batch, n_heads, seq_len, d, d_v, case, direction)
                        falls = case in ("value_width", "dropout") if device == "cpu" else d > 256
                        kind = "MATH" if backend == "MATH" or falls else "FLASH" if backend == "auto" else backend
                        point = {
                            "case": case,
                            "backend": backend,
                            "direction": direction,
                            "seq_len": seq_len,
                            "d_head": d,
                            "d_head_v": d_v,
                            "status": "ok",
                            "reason": None,
                            "observed": kind,
                            "predicted": kind,
                            "bucket": None,
                            "flags": [],
                            "repeats": dice.randint(21, 60),
                        }
                        if kind == "FLASH" and device == "cuda":
                            point["bucket"] = next(w for w in WIDTHS if w >= d)
                        if backend in ("FLASH", "EFFICIENT", "CUDNN") and falls:
                            nothing = {
                                "median_s": None,
                                "interval_s": None,
                                "repeats": 0,
                                "flops": work,
                                "peak_bytes": None,
                            }
                            points.append(
                                {
                                    **point,
                                    **nothing,
                                    "status": "failed",
                                    "reason": "No available kernel.",
                                    "observed": None,
                                    "bucket": None,
                                }
                            )
                            continue
                        useful = d / point["bucket"] if point["bucket"] else 1 - exp(-d / 20)
                        slow = {"MATH": 4.0, "EFFICIENT": 1.5, "CUDNN": 0.9}.get(kind, 1.0)
                        median = work / (rate * useful / slow) * (1 + noise * dice.uniform(-1, 1))
                        point |= {
                            "median_s": median,
                            "interval_s": [median * (1 - noise), median * (1 + 1.4 * noise)],
                            "flops": work,
                            "peak_bytes": (1 if kind != "MATH" else 9) * 8 * seq_len * d * 4 if memory else None,
                        }
                        points.append(point)
    spent = sum(p["median_s"] * p["repeats"] for p in points if p["status"] == "ok")

    def ceiling(value: float, what: str) -> dict:
        return {"median": value, "interval": [value * 0.99, value * 1.01], "repeats": 20, "what": what}

    recording = {
        "schema": 1,
        "kind": "splitheads.timing",
        "created": "2026-11-30T22:50:00Z",
        "command": "made up for a test",
        "device": {
            "type": device,
            "name": name or {"cpu": "Imaginary CPU", "cuda": "Imaginary A100"}[device],
            "key": {"cpu": "cpu", "cuda": "sm80"}[device],
            "driver": None if device == "cpu" else "570.1",
            "threads": 2,
            "memory_bytes": 16_000_000_000,
            "clocks": None,
        },
        "software": {
            "python": "3.11.9",
            "torch": "2.13.0",
            "build": "2.13.0+cpu",
            "cuda": None,
            "cudnn": None,
            "splitheads": "0.1.0",
            "system": "Linux x86_64",
        },
        "plan": {
            "dtype": dtype,
            "batch": batch,
            "n_heads": n_heads,
            "seq_lens": list(seq_lens),
            "d_heads": list(d_heads),
            "directions": list(directions),
            "backends": list(backends),
            "cases": list(cases),
            "budget_s": 30,
            "seed": 0,
        },
        "method": {
            "clock": "perf_counter",
            "statistic": "median",
            "confidence": 0.95,
            "interval": "order statistics",
            "target_width": 0.02,
            "order": "shuffled rounds",
            "inputs": "normal, rotated",
            "warmup": "until stable",
        },
        "ceilings": {
            "matmul_flops_per_s": ceiling(rate * 1.3, f"2048 x 2048 x 2048, {dtype}"),
            "copy_bytes_per_s": ceiling(1.2e10, "256 MB"),
        },
        "points": points,
        "agreement": agreement(points),
        "duration_s": 1.2 * spent + 1,
        "ended": ended,
    }
    validate(recording)
    return recording


def column(line: dict, key: str, i: int):
    return line[key][i] if isinstance(line[key], list) else line[key]


@pytest.mark.parametrize(
    "recording",
    [
        made_up(),
        made_up(
            "cuda",
            (8, 64, 65, 256, 264),
            ("plain", "value_width"),
            ("auto", "FLASH"),
            ("forward", "forward+backward"),
            (128, 512),
        ),
    ],
)
def test_the_page_gets_every_point_and_nothing_else(recording):
    lines = group(recording["points"], analyse(recording).buckets)
    handed = {}
    for line in lines:
        assert line["d"] == sorted(line["d"])
        for i, d in enumerate(line["d"]):
            handed[line["case"], line["backend"], line["direction"], line["seq_len"], d] = (line, i)
    measured = [p for p in recording["points"] if p["status"] == "ok"]
    assert len(handed) == len(measured) > 0
    for p in measured:
        line, i = handed[p["case"], p["backend"], p["direction"], p["seq_len"], p["d_head"]]
        assert line["t"][i] == pytest.approx(1e3 * p["median_s"], rel=1e-3)
        assert [line["lo"][i], line["hi"][i]] == pytest.approx([1e3 * t for t in p["interval_s"]], rel=1e-3)
        assert line["f"][i] == pytest.approx(p["flops"] / 1e9, rel=1e-3)
        assert line["m"][i] == pytest.approx(p["peak_bytes"] / 1e6, rel=1e-3)
        assert line["n"][i] == p["repeats"]
        assert (column(line, "o", i), column(line, "p", i)) == (p["observed"], p["predicted"])
        assert line.get("v", line["d"])[i] == p["d_head_v"]
        assert line.get("b", {i: None})[i] == p["bucket"]
    gaps = [(line["case"], line["backend"], *gap) for line in lines for gap in line.get("gaps", [])]
    failed = [
        (p["case"], p["backend"], p["d_head"], p["status"], p["reason"])
        for p in recording["points"]
        if p["status"] != "ok"
    ]
    assert sorted(gaps) == sorted(failed)


def test_500_points_are_less_than_60_kilobytes():
    recording = made_up(
        "cuda",
        (*range(8, 289, 8), 65, 100, 132, 512),
        ("plain",),
        ("auto", "FLASH", "EFFICIENT", "CUDNN", "MATH"),
        seq_lens=(512, 2048, 8192),
    )
    assert len(recording["points"]) == 600
    assert len(json.dumps(summary(recording, "large"))) < 60_000


def test_only_what_differs_is_said_of_a_line():
    assert names_of([("plain", "auto")]) == ["auto"]
    assert names_of([("plain", "auto"), ("plain", "MATH")]) == ["auto", "MATH"]
    assert names_of([("plain", "auto"), ("mask", "auto")]) == ["plain", "mask"]
    assert names_of([("plain", "auto"), ("mask", "MATH")]) == ["plain, auto", "mask, MATH"]


def test_the_steps_are_those_of_the_analysis_at_their_points():
    recording = made_up("cuda", (32, 40, 64, 72, 96, 104, 128, 136, 256, 264), ("plain",), ("auto", "FLASH", "MATH"))
    found = analyse(recording)
    lines = group(recording["points"], found.buckets)
    told = steps(found, lines)
    along = [step for step in told if step["along"] == "d_head"]
    assert [step["kind"] for step in along] == ["padding step"] * 4 + ["backend change"]
    for step, (before, after) in zip(along, ((32, 40), (64, 72), (96, 104), (128, 136), (256, 264)), strict=True):
        (a, i), (b, j) = step["ends"]
        assert a == b
        assert (lines[a]["d"][i], lines[b]["d"][j]) == (before, after)
        assert f"d_head {before} → {after}: {step['kind']}, FLASH" in step["text"]
    # "auto" and forced FLASH take the same four padding steps: told once, with both ratios.
    assert all("; likewise FLASH 1." in step["text"] for step in along[:-1])
    assert len(found.steps) == 9
    # Forcing the slow kernel is the reader's doing: told, and not pointed at in the chart.
    forced = [step for step in told if step["along"] == "backend"]
    assert len(forced) == 1
    assert forced[0]["unmarked"]
    assert re.fullmatch(
        r"forced to MATH: backend change, FLASH → MATH, at 9 head sizes from 32 to 256: [\d.]+ to [\d.]+ times slower, 9.0 times the peak memory",
        forced[0]["text"],
    )


def test_steps_along_d_head_come_first_and_only_they_are_marked():
    recording = made_up("cuda", (32, 40, 64, 72, 264), ("plain", "value_width"), ("auto", "MATH"))
    for p in recording["points"]:
        if p["case"] == "value_width" and p["backend"] == "auto" and p["status"] == "ok":
            p.update(observed="MATH", predicted="MATH", bucket=None, median_s=4 * p["median_s"])
            p["interval_s"] = [4 * t for t in p["interval_s"]]
    recording["agreement"] = agreement(recording["points"])
    recording["duration_s"] *= 8
    validate(recording)
    told = summary(recording, "x")["steps"]
    along = [step["along"] for step in told]
    assert set(along) == {"d_head", "case", "backend"}
    assert along == sorted(along, key=("d_head", "case", "backend").index)
    assert all((step["along"] == "d_head") != step.get("unmarked", False) for step in told)


def test_a_flag_is_said_in_words():
    recording = made_up(cases=("plain",), d_heads=(16, 32))
    recording["points"][1]["flags"] = ["wide interval"]
    assert group(recording["points"])[0]["g"] == {"1": ["interval wider than asked for"]}


def test_one_change_at_many_head_sizes_is_told_once():
    told = timing_lab([made_up()]).view.recordings[0]["steps"]
    assert [step["text"].split(":")[0] for step in told] == ["value_width", "dropout"] or [
        step["text"].split(":")[0] for step in told
    ] == ["dropout", "value_width"]
    for step in told:
        assert step["kind"] == "backend change"
        assert "FLASH → MATH, at 11 head sizes from 16 to 128: " in step["text"]
        assert "9.0 times the peak memory" in step["text"]


def test_noise_is_no_step():
    recording = made_up(cases=("plain",), d_heads=(112, 120, 128), noise=0.02)
    assert timing_lab([recording]).view.recordings[0]["steps"] == []


def test_the_line_under_the_chart_says_where_the_numbers_come_from():
    shown = timing_lab([made_up()]).view.recordings[0]
    assert shown["title"] == "Imaginary CPU (cpu): fp32, torch 2.13.0, 2026-11-30"
    assert re.fullmatch(
        r"Measured 2026-11-30 on Imaginary CPU, 2 threads, 16 GB; torch 2\.13\.0\+cpu; fp32, batch 1, 8 heads; "
        r"each point the median of \d+ to \d+ calls; 44 of 44 kernels as predicted\.",
        shown["source"],
    )
    facts = dict(shown["facts"])
    assert facts["command"] == "made up for a test"
    assert facts["ceilings"] == "78 GFLOP/s (2048 x 2048 x 2048, fp32); 12 GB/s (256 MB)"
    assert "every point settled" in facts["when"]
    assert "95% confidence" in facts["rule"]


def test_kernels_that_differ_from_the_prediction_are_named():
    recording = made_up(cases=("plain",), d_heads=(16, 32))
    recording["points"][1]["observed"] = "MATH"
    recording["agreement"] = agreement(recording["points"])
    told = timing_lab([recording]).view.recordings[0]["source"]
    assert told.endswith("1 of 2 kernels as predicted (plain, auto, d_head 32: MATH, not FLASH).")


def test_the_page_says_so_where_no_gpu_was_measured(tmp_path):
    assert timing_lab([made_up()]).view.notes == [NO_GPU]
    assert NO_GPU in timing_lab([made_up()])._twin
    assert timing_lab([made_up(), made_up("cuda", (32, 64), ("plain",))]).view.notes == []
    empty = timing_lab(folder=tmp_path)
    assert empty.view.notes == []
    assert empty.recording is None
    assert NONE in empty._twin
    assert "python -m splitheads time --device auto --budget 60 --json my.json" in empty._twin


def test_a_folder_is_read_file_by_file_and_a_bad_one_is_named(tmp_path):
    save(made_up(), tmp_path / "b two.json")
    save(made_up("cuda", (32, 64), ("plain",)), tmp_path / "a.json")
    (tmp_path / "c.json").write_text('{"schema": 1, "kind": "spl')
    panel = timing_lab(folder=tmp_path)
    assert [x["name"] for x in panel.view.recordings] == ["a", "b-two"]
    assert panel.view.notes == ["c.json ends in the middle, at line 1: copy it again."]
    assert str(tmp_path) not in panel._twin
    assert panel.recording == load(tmp_path / "a.json")
    with pytest.raises(RecordError, match=r"c\.json ends in the middle"):
        timing_lab([tmp_path / "c.json"])
    with pytest.raises(RecordError, match="no recording"):
        timing_lab([{}])


def test_two_recordings_alike_have_two_labels():
    options = timing_lab([made_up(), made_up()])._picker.options
    assert len(set(options)) == 2


def test_the_printed_twin_draws_and_tells_the_first_recording():
    recording = made_up(cases=("plain", "value_width"), d_heads=(32, 64, 96))
    twin = timing_lab([recording], question={})._twin
    assert twin.count("<circle") == 3, "FLASH is a circle"
    assert twin.count('5.5 9h-11z"') == 3, "MATH is a triangle"
    assert twin.count("<polyline") == 2
    for words in (
        "FLASH a circle, MATH a triangle",
        "Throughput against d_head, forward, T = 512: plain, value_width.",
        "made up for a test",
        "6 of 6 kernels as predicted",
    ):
        assert words in twin
    with_question = timing_lab([recording])._twin
    assert "values get 8 columns more than the keys" in with_question


def test_markup_in_a_recording_is_shown_and_not_obeyed():
    recording = made_up(name="<b>bold</b>")
    recording["command"] = "<script>1</script>"
    twin = timing_lab([recording])._twin
    assert "<b>bold" not in twin
    assert "<script" not in twin


def test_controls_are_joined_to_the_view(monkeypatch):
    links = []
    monkeypatch.setattr(ipywidgets, "jslink", lambda one, other: links.append((one[0].description, one[1], other[1])))
    panel = timing_lab([made_up(), made_up("cuda", (32,), ("plain",))])
    assert links == [("recording", "index", "recording"), ("plot", "index", "plot")]
    assert tuple(panel.plot.options) == tuple(PLOTS)
    assert (panel.view.direction, panel.view.seq_len) == ("forward", 512)
    assert set(panel.view.kinds) == set(SHAPES) == {"FLASH", "EFFICIENT", "CUDNN", "MATH"}
    assert len({kind["shape"] for kind in panel.view.kinds.values()}) == 4, "colour alone tells nothing to some"
    assert set(panel.view.cases) == set(CASES)


def test_the_view_is_one_module():
    text = esm("timing_lab", "chart", "timing_view")
    assert not re.search(r"^\s*import\s", text, flags=re.M)
    assert text.count("export default") == 1


# ---- measuring ----------------------------------------------------------------------------------


@pytest.fixture
def small():
    """A panel whose plan takes no time to speak of."""
    panel = timing_lab([])
    panel.seq_lens.value, panel.d_heads.value, panel.budget_s.value = "64", "16, 32", 2
    yield panel
    panel.stop()
    if panel._thread:
        panel._thread.join(20)


def enabled(panel) -> list[str]:
    return [name for name, button in panel._buttons.items() if not button.disabled]


def test_a_run_from_python_gives_a_valid_recording_and_the_chart_has_it(small, tmp_path):
    assert enabled(small) == ["run"]
    news = []
    small.view.observe(lambda change: news.append(change["new"]["state"]), "progress")
    recording = small.run(wait=True)
    validate(recording)
    assert recording is small.recording
    assert [p["case"] for p in recording["points"]].count("value_width") == 2
    assert news[0] == "starting"
    assert news[-1] == "done"
    assert "running" in news
    assert enabled(small) == ["run", "save"]
    shown = small.view.recordings[small.view.recording]
    assert shown == {**summary(recording, "run-1"), "mine": 1}
    assert small._picker.options[small._picker.index].startswith("run 1: ")
    assert small.view.live == {}
    path = small.save(tmp_path / "mine.json")
    assert load(path) == recording
    assert str(path) in small.view.progress["text"]
    assert timing_lab([path]).recording == recording


def test_stop_keeps_what_was_measured(small):
    small.seq_lens.value, small.d_heads.value, small.budget_s.value = "64", "16:64:8", 60
    some = threading.Event()
    small.view.observe(lambda change: change["new"].get("lines") and some.set(), "live")
    small.run()
    assert small.running
    assert enabled(small) == ["stop"]
    with pytest.raises(RuntimeError, match="A run is under way: wait for its end, or press Stop"):
        small.run()
    assert some.wait(30)
    small.stop()
    small._thread.join(20)
    assert not small.running
    assert small.recording["ended"] == "interrupted"
    assert any(p["status"] == "ok" for p in small.recording["points"])
    assert small.view.progress["text"].startswith("Stopped: ")
    assert enabled(small) == ["run", "save"]


@pytest.mark.parametrize(
    ("ended", "reasons", "words"),
    [
        ("interrupted", ["x"], "Stopped before the first point was measured: there is nothing to show."),
        ("complete", ["no cuDNN here.", "no cuDNN here."], "Nothing could be measured: no cuDNN here."),
        ("budget", ["no time", "refused"], "Nothing could be measured: no time; refused."),
        ("complete", list("abcde"), "Nothing could be measured: a; b; c; and 2 more reasons."),
    ],
)
def test_a_run_without_a_time_says_why(ended, reasons, words):
    points = [{"status": "skipped", "reason": reason} for reason in reasons]
    assert nothing({"ended": ended, "points": points}) == words


def test_a_run_of_what_the_device_has_not_was_not_stopped(small):
    for backend, box in small._ticks["backend"].items():
        box.value = backend == "CUDNN"
    small.device.value = "cpu"
    small.run(wait=True)
    text = small.view.progress["text"]
    assert text.startswith("Nothing could be measured: "), text
    assert "Stopped" not in text
    assert small.recording is None
    assert enabled(small) == ["run"]


def test_the_size_of_a_sweep_is_said_at_its_start(small):
    news = []
    small.view.observe(lambda change: news.append(change["new"].get("text", "")), "progress")
    small.d_heads.value, small.budget_s.value = "8:128", 30
    small.run()
    small.stop()
    small._thread.join(20)
    assert news[0].startswith("Starting (242 points in 30 s)")


def test_an_interrupt_while_python_waits_keeps_what_was_measured(small, monkeypatch):
    small.budget_s.value = 60
    some = threading.Event()
    small.view.observe(lambda change: change["new"].get("lines") and some.set(), "live")
    join = threading.Thread.join

    def interrupted(self, timeout=None):
        if timeout == 0.2 and some.is_set():
            some.clear()
            raise KeyboardInterrupt
        return join(self, timeout)

    monkeypatch.setattr(threading.Thread, "join", interrupted)
    recording = small.run(wait=True)
    assert recording["ended"] == "interrupted"
    assert any(p["status"] == "ok" for p in recording["points"])


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("d_heads", "0", "d_head = 0 is too small. Give 1 or more."),
        ("d_heads", "-8", "d_head = -8 is too small. Give 1 or more."),
        ("d_heads", "1000000000", "d_head = 1000000000 at T = 64"),
        ("d_heads", "", "d_heads is empty"),
        ("d_heads", "64; 80", "'64; 80' is neither a number nor a range"),
        ("seq_lens", "many", "'many' is neither a number nor a range"),
        ("device", "mps", "device = 'mps' was asked for"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_in_words(small, name, value, words):
    if name == "device" and __import__("torch").backends.mps.is_available():
        value, words = "cuda", "device = 'cuda' was asked for"
    getattr(small, name).value = value
    small._buttons["run"].click()
    assert small.view.progress["state"] == "refused"
    assert words in small.view.progress["text"]
    assert enabled(small) == ["run"]
    with pytest.raises(splitheads.timing.PlanError, match=re.escape(words)):
        small.run()


def test_nothing_ticked_is_refused(small):
    for box in small._ticks["case"].values():
        box.value = False
    small._buttons["run"].click()
    assert "cases is empty: there is nothing to measure" in small.view.progress["text"]


def test_a_run_that_fails_says_so_and_gives_the_buttons_back(small, monkeypatch):
    def broken(plan, stop=None, command=None):
        yield splitheads.timing.Started(1)
        raise MemoryError("no room")

    monkeypatch.setattr(splitheads.timing, "measure", broken, raising=False)
    small.run()
    small._thread.join(10)
    assert small.view.progress["state"] == "failed"
    assert small.view.progress["text"] == "The run failed: MemoryError: no room"
    assert enabled(small) == ["run"]
    assert not small.running


def test_saving_where_it_cannot_be_or_what_is_not_there_is_refused(small, tmp_path):
    with pytest.raises(RecordError, match="nothing to save yet"):
        small.save()
    panel = timing_lab([made_up()])
    with pytest.raises(RecordError, match="does not exist: create it"):
        panel.save(tmp_path / "none" / "x.json")
    panel.file.value = str(tmp_path)
    panel._buttons["save"].click()
    assert panel.view.progress["state"] == "refused"
    assert "is a folder: add a file name" in panel.view.progress["text"]


def test_the_panel_takes_the_cases_and_backends_of_a_plan():
    from splitheads.timing import plan

    panel = timing_lab([])
    assert tuple(panel._ticks["case"]) == tuple(plan.CASES)
    assert tuple(panel._ticks["backend"]) == plan.BACKENDS
    assert tuple(panel._ticks["direction"]) == plan.DIRECTIONS
    assert set(panel.dtype.options) - {"default"} == set(plan.DTYPES)
