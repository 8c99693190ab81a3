"""`python -m splitheads time` from outside: what it prints, writes and returns."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from conftest import ROOT
from splitheads import __main__ as dispatcher
from splitheads.timing import command, record
from splitheads.timing.analyse import analyse

SMALL = [
    "--device",
    "cpu",
    "--seq",
    "128",
    "--heads",
    "2",
    "--d-heads",
    "32,40",
    "--backends",
    "auto",
    "--cases",
    "plain",
]
PYTHON = [sys.executable, "-m", "splitheads"]


def shell(*arguments: str, **settings) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PYTHON, *arguments], cwd=ROOT / "book", capture_output=True, text=True, timeout=120, check=False, **settings
    )


def test_a_run_prints_a_table_and_writes_a_recording_with_the_fall_labelled(tmp_path: Path) -> None:
    """The fall from the fused kernel to the fallback; in bf16, where it is large on any CPU and under any load."""
    target = tmp_path / "out.json"
    shape = ["--device", "cpu", "--dtype", "bf16", "--seq", "1024", "--d-heads", "64", "--backends", "auto,CUDNN"]
    arguments = [*shape, "--budget", "15", "--json", str(target)]
    done = shell("time", *arguments)
    assert done.returncode == 0, done.stderr
    recording = record.load(target)
    assert recording["command"] == "python -m splitheads time " + " ".join(arguments)
    observed = {(p["case"], p["backend"]): p["observed"] for p in recording["points"]}
    assert observed["plain", "auto"] == "FLASH"
    assert observed["value_width", "auto"] == "MATH"
    changes = [c for c in analyse(recording).changes if c.along == "case"]
    assert [(c.kind, c.before["observed"], c.after["observed"]) for c in changes] == [
        ("backend change", "FLASH", "MATH")
    ]
    assert changes[0].text in done.stdout
    head, *rows = [line.split() for line in done.stdout.splitlines() if line.startswith(("d_head ", "    64 "))]
    assert head == ["d_head", "case", "backend", "ran", "time", "GFLOP/s", "of", "matmul", "memory", "repeats"]
    assert len(rows) == sum(p["status"] == "ok" for p in recording["points"])
    assert "skipped: plain, CUDNN, d_head 64: refused" in done.stdout
    assert done.stdout.count("Ceiling:") == 2
    assert f"Recording: {target}" in done.stdout
    assert "s left" in done.stderr  # progress, in lines, where nothing can be redrawn
    assert len(done.stderr.splitlines()) < 20
    assert "profiler" not in done.stderr


WRONG = {
    "unknown device": (["--device", "tpu"], "'tpu'"),
    "d_head 0": (["--d-heads", "0"], "d_head = 0"),
    "d_head -8": (["--d-heads", "-8"], "d_head = -8"),
    "d_head 10**9": (["--d-heads", str(10**9)], f"d_head = {10**9}"),
    "empty sweep": (["--d-heads", ""], "d_heads is empty"),
    "sweep that cannot be read": (["--d-heads", "8;16"], "8:288:8"),
    "budget 0": (["--budget", "0"], "budget_s = 0"),
    "budget negative": (["--budget", "-3"], "budget_s = -3"),
    "budget NaN": (["--budget", "nan"], "budget_s = nan"),
    "budget as text": (["--budget", "soon"], "soon"),
    "unsupported dtype": (["--dtype", "int8"], "'int8'"),
    "unknown backend": (["--backends", "auto,TRITON"], "'TRITON'"),
    "unknown case": (["--cases", "sliding"], "'sliding'"),
    "unknown direction": (["--direction", "backward"], "'backward'"),
    "unknown option": (["--dheads", "64"], "--dheads"),
    "heads as text": (["--heads", "many"], "'many'"),
    "folder that is not there": (["--json", "/nowhere/at/all.json"], "/nowhere/at"),
    "a folder as the file": (["--json", "/"], "folder"),
}


@pytest.mark.parametrize(("arguments", "word"), WRONG.values(), ids=WRONG)
def test_wrong_input_is_one_line_and_status_2(
    arguments: list[str], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = command.main(["--device", "cpu", *arguments])
    except SystemExit as end:
        status = end.code
    out, err = capsys.readouterr()
    assert status == 2
    assert out == ""
    assert err.count("\n") == 1
    assert word in err


def test_cuda_asked_for_without_cuda(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert command.main(["--device", "cuda"]) == 2
    err = capsys.readouterr().err
    assert "finds no CUDA device here" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["tim"], ["--wrong"]])
def test_an_unknown_command_is_one_line_and_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatcher.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "time --help" in err


def test_help_names_every_option_case_and_backend() -> None:
    done = shell("time", "--help")
    assert done.returncode == 0
    for word in ("--d-heads", "8:288:8", "--budget", "value_width", "CUDNN", "Ctrl-C", "--standard", "--json out.json"):
        assert word in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 120
    assert shell("--help").stdout.count("  time ") == 1


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_writes_what_was_measured_and_says_so(tmp_path: Path, times: int) -> None:
    target = tmp_path / "out.json"
    started = subprocess.Popen(
        [*PYTHON, "time", *SMALL, "--d-heads", "8:128:8", "--budget", "60", "--json", str(target)],
        cwd=ROOT / "book", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        while "round" not in (line := started.stderr.readline()):
            assert line, "the run ended before its first round"
        for _ in range(times):
            started.send_signal(signal.SIGINT)
            time.sleep(0.001)
        out, err = started.communicate(timeout=60)
    finally:
        started.kill()
    assert started.returncode == 130, err
    assert "Traceback" not in err
    recording = record.load(target)
    assert recording["ended"] == "interrupted"
    assert all(p["status"] == "ok" for p in recording["points"])
    assert "by interruption" in out


def test_two_runs_that_write_to_one_file_lose_nothing(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    target.write_text("mine\n")
    arguments = [*PYTHON, "time", *SMALL, "--budget", "2", "--quiet", "--json", str(target)]
    both = [
        subprocess.Popen([*arguments, "--seed", str(n)], cwd=ROOT / "book", stdout=subprocess.PIPE, text=True)
        for n in (1, 2)
    ]
    said = [run.communicate(timeout=120)[0] for run in both]
    assert [run.returncode for run in both] == [0, 0]
    assert target.read_text() == "mine\n"
    written = sorted(tmp_path.glob("*.json"))
    assert [path.name for path in written] == ["out-2.json", "out-3.json", "out.json"]
    assert {record.load(path)["plan"]["seed"] for path in written[:2]} == {1, 2}
    assert sorted(text.strip() for text in said) == [f"Recording: {path}" for path in written[:2]]


def test_quiet_is_quiet() -> None:
    done = shell("time", *SMALL, "--budget", "1", "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_standard_sweep_goes_to_the_books_recordings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "FOLDER", tmp_path / "recordings")
    small = ["--device", "cpu", "--seq", "64", "--heads", "2", "--d-heads", "16", "--cases", "plain", "--budget", "1"]
    assert command.main(["--standard", "--quiet", *small]) == 0
    found = record.recordings(tmp_path / "recordings")
    assert [one.recording["plan"]["dtype"] for one in found] == ["fp32", "bf16"]
    assert all(one.path.stem.endswith(one.recording["plan"]["dtype"]) for one in found)


def test_a_terminal_sees_a_bar_that_is_redrawn_and_cleared() -> None:
    master, slave = pty.openpty()
    started = subprocess.Popen(
        [*PYTHON, "time", *SMALL, "--budget", "2"], cwd=ROOT / "book", stdout=subprocess.DEVNULL, stderr=slave
    )
    os.close(slave)
    seen = b""
    while select.select([master], [], [], 60)[0]:
        try:
            piece = os.read(master, 4096)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        seen += piece
    os.close(master)
    assert started.wait(60) == 0
    frames = seen.decode().split("\r")
    assert sum("s left" in frame for frame in frames) >= 3
    assert "█" in seen.decode()
    assert frames[-2].strip() == frames[-1].strip() == ""  # the last thing is an empty line


# What must not cost a recording.


def process(*arguments: str, **settings):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "book"), **settings.pop("environment", {})}
    return subprocess.Popen(
        [sys.executable, "-m", "splitheads", "time", *arguments], env=environment, stderr=subprocess.PIPE, **settings
    )


def test_a_reader_who_hangs_up_does_not_cost_the_recording(tmp_path: Path) -> None:
    run = process(*SMALL, "--budget", "1", "--json", str(tmp_path / "out.json"), stdout=subprocess.PIPE)
    run.stdout.close()
    said = run.stderr.read().decode()
    assert run.wait(60) == 0
    assert "Traceback" not in said
    record.load(tmp_path / "out.json")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_under_the_table_does_not_cost_the_recording(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        run = process(*SMALL, "--budget", "1", "--json", str(tmp_path / "out.json"), stdout=full)
        said = run.communicate(timeout=60)[1].decode()
    assert "Traceback" not in said
    record.load(tmp_path / "out.json")


def test_progress_that_nobody_reads_does_not_end_the_run(tmp_path: Path) -> None:
    run = process(*SMALL, "--budget", "2", "--json", str(tmp_path / "out.json"), stdout=subprocess.PIPE)
    run.stderr.close()
    run.stdout.read()
    assert run.wait(60) == 0
    record.load(tmp_path / "out.json")


def test_an_encoding_without_plus_minus_does_not_cost_the_recording(tmp_path: Path) -> None:
    arguments = (*SMALL, "--budget", "1", "--json", str(tmp_path / "out.json"))
    run = process(*arguments, stdout=subprocess.PIPE, environment={"PYTHONIOENCODING": "ascii"})
    out, said = run.communicate(timeout=60)
    assert run.returncode == 0, said
    assert b"Recording:" in out
    record.load(tmp_path / "out.json")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signals_that_rain_down_keep_the_recording(tmp_path: Path, number: int, status: int) -> None:
    """A key held down, or an impatient scheduler: from the first point to the end of the process."""
    target = tmp_path / "out.json"
    run = process(*SMALL, "--budget", "60", "--json", str(target), stdout=subprocess.PIPE)
    while b"round" not in (line := run.stderr.readline()):
        assert line, "the run ended before its first round"
    deadline = time.monotonic() + 60
    while run.poll() is None and time.monotonic() < deadline:
        run.send_signal(number)
        time.sleep(0.01)
    out, said = run.communicate()
    assert run.returncode == status, said
    assert b"Traceback" not in said
    assert record.load(target)["ended"] == "interrupted"
    assert b"Recording:" in out


def test_ctrl_c_while_pytorch_loads_ends_quietly() -> None:
    run = process(*SMALL, "--budget", "30", stdout=subprocess.PIPE)
    time.sleep(0.3)
    run.send_signal(signal.SIGINT)
    said = run.communicate(timeout=60)[1]
    # In the very first moments Python itself has no handler yet; from ours on it is one sentence.
    assert run.returncode in (130, -signal.SIGINT)
    if run.returncode == 130:
        assert b"Traceback" not in said


def test_a_target_that_is_no_file_is_refused() -> None:
    done = shell("time", *SMALL, "--json", "/dev/null")
    assert done.returncode == 2
    assert "not a regular file" in done.stderr


def test_a_single_sample_has_no_interval() -> None:
    recording = json.loads((ROOT / "book/recordings/intel-xeon-processor-fp32.json").read_text("utf8"))
    point = next(p for p in recording["points"] if p["status"] == "ok")
    point["repeats"] = 1
    text = command.table(recording)
    row = next(line for line in text.splitlines() if line.rstrip().endswith(" 1"))
    assert "±" not in row
    assert "too few for an interval" in text
