"""`python -m splitheads doctor` from outside: what it prints and returns."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT
from splitheads import __main__ as dispatcher
from splitheads.doctor import ALIASES, KEYS, diagnose
from splitheads.doctor.command import main

HERE = Path(__file__).parent
PYTHON = [sys.executable, "-m", "splitheads", "doctor"]
VERDICTS = HERE / "verdicts.json"
ROWS = json.loads(VERDICTS.read_text("utf8"))


def shell(*arguments: str, **settings) -> subprocess.CompletedProcess[str]:
    settings = {"stdin": subprocess.DEVNULL, **settings} if "input" not in settings else settings
    return subprocess.run(
        [*PYTHON, *arguments], cwd=ROOT / "book", capture_output=True, text=True, timeout=60, check=False, **settings
    )


class Ran:
    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    @property
    def report(self) -> dict:
        return json.loads(self.out)


@pytest.fixture
def run(capsys):
    """run(*arguments) -> what the command printed and returned, in this process."""

    def call(*arguments: str) -> Ran:
        status = main(list(arguments))
        return Ran(status, *capsys.readouterr())

    return call


# The form.


def test_the_line_of_the_readme_in_a_shell():
    done = shell("--json", '{"d_model": 1024, "n_heads": 12}')
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.count("\n") == 1
    report = json.loads(done.stdout)
    assert list(report)[:3] == ["verdict", "derived", "findings"]
    assert report["verdict"] == "reject"
    assert set(report["findings"][0]) == {"id", "severity", "message", "suggestions", "source", "chapter"}


@pytest.mark.parametrize(
    ("config", "verdict", "status"),
    [
        ({"d_model": 768, "n_heads": 12}, "ok", 0),
        ({"d_model": 768, "n_heads": 8, "checkpoint_n_heads": 12}, "warn", 0),
        ({"d_model": 1024, "n_heads": 12}, "reject", 1),
    ],
)
def test_the_exit_status_follows_the_verdict(run, config, verdict, status):
    ran = run("--json", json.dumps(config))
    assert (ran.status, ran.report["verdict"], ran.err) == (status, verdict, "")
    assert ran.report == diagnose(config).to_dict()
    assert run(json.dumps(config)).status == status


@pytest.mark.parametrize("row", ROWS, ids=[str(row["row"]) for row in ROWS])
def test_every_row_of_the_verdict_table(run, row):
    ran = run("--json", json.dumps(row["config"]))
    assert ran.report["verdict"] == row["verdict"]
    assert ran.status == (1 if row["verdict"] == "reject" else 0)
    assert set(row["ids"]) <= {finding["id"] for finding in ran.report["findings"]}
    assert ran.report["derived"] | row["derived"] == ran.report["derived"]
    printed = run(json.dumps(row["config"]))
    assert printed.status == ran.status
    assert all(f"[{name}]" in printed.out for name in row["ids"])


def test_every_way_of_giving_a_configuration_is_the_same(run, tmp_path, monkeypatch):
    config = {"d_model": 4096, "n_heads": 32, "n_kv_heads": 8, "rope": True, "device": "a100", "torch": "2.10.0"}
    text = json.dumps(config)
    file = tmp_path / "a=b.json"
    file.write_text(text, "utf8")
    wanted = run("--json", text).report
    pairs = ["d_model=4096", "n_heads=32", "n_kv_heads=8", "rope=true", "device=a100", "torch=2.10.0"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    ways = [
        ("--json", "-"),
        (text, "--json"),
        (f"--json={text}",),
        ("--json", str(file)),
        (str(file), "--json"),
        ("--json", *pairs),
        ("--json", '{"d_model": 1, "hidden_size": null, "device": "t4"}', *pairs),
        ("--json", "--", text),
        ("--json", f"\n {text} \n"),
    ]
    for way in ways:
        assert run(*way).report == wanted, way


def test_a_pair_wins_over_the_object_under_any_name(run):
    ran = run("--json", '{"hidden_size": 1024, "n_heads": 12}', "d_model=768")
    assert ran.report["verdict"] == "ok"
    assert ran.report["derived"]["d_head"] == 64


def test_pairs_of_every_kind(run):
    ran = run(
        "--json", "model=Llama 3 8B", "mask=bool", "is_causal=False", "dropout=0", "weight_shapes={\"k_proj\": [1024, 4096]}",
        "prune_heads=[0, 1, 2, 3]", "seq_q=16", "scale=0.0883883476", "n_layers=none",
    )  # fmt: skip
    assert ran.err == ""
    assert ran.report["config"]["mask"] == "bool"
    assert ran.report["config"]["prune_heads"] == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["llama-3.1-8b", "deepseek-v3", "sd-1.5-unet", "falcon-7b", "gemma-3-4b"])
def test_a_config_json(run, name):
    path = HERE / "configs" / f"{name}.json"
    ran = run("--json", str(path))
    assert ran.status == 0, ran.err
    assert ran.report == diagnose(json.loads(path.read_text("utf8"))).to_dict()
    more = run("--json", str(path), "device=h100", "tp=2")
    assert "backend" in more.report["derived"]


def test_a_folder_with_a_config_json(run, tmp_path):
    (tmp_path / "config.json").write_text((HERE / "configs/gpt2.json").read_text("utf8"), "utf-8-sig")
    assert run("--json", str(tmp_path)).report["derived"]["d_head"] == 64


# For people.


def test_the_report_for_people_says_the_same_in_80_columns(run):
    config = {"model": "Llama 3 8B", "device": "a100", "seq_q": 8192, "tp": 16, "rope": True}
    ran, report = run(json.dumps(config)), diagnose(config)
    lines = ran.out.splitlines()
    assert lines[0].startswith(report.verdict.upper())
    assert max(len(line) for line in lines) <= 80
    assert all(line == line.rstrip() for line in lines)
    flat = " ".join(ran.out.split())
    for finding in report.findings:
        assert " ".join(finding.message.split()) in flat
        assert all(" ".join(way.split()) in flat for way in finding.suggestions)
    for key in report.derived:
        assert key in flat
    for quantity in report.quantities:
        assert " ".join(quantity.text.split()) in flat
    assert "2 (K and V) × 32 layers × 8 kv heads × 128 × 2 bytes = 131 072 bytes per token (128 KiB)" in flat


def test_help_lists_every_key_in_its_group(run):
    for option in ("--help", "-h"):
        ran = run(option)
        assert (ran.status, ran.err) == (0, "")
        lines = ran.out.splitlines()
        assert max(len(line) for line in lines) <= 80
        for key in KEYS:
            assert [line for line in lines if line.startswith(f"  {key} ")], key
        assert all(name in ran.out for name in ALIASES)


def test_the_dispatcher_knows_it(capsys):
    assert dispatcher.main(["doctor", "--json", '{"d_model": 768, "n_heads": 12}']) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "ok"
    assert dispatcher.main(["--help"]) == 0
    assert "doctor" in capsys.readouterr().out


# What cannot be used.

UNUSABLE = {
    "nothing": ([], "no configuration"),
    "unknown key": (["--json", '{"d_modle": 1024}'], "d_model"),
    "unknown key, as a pair": (["d_modle=1024"], "d_model"),
    "wrong type": (["--json", '{"d_model": "768"}'], '"768"'),
    "wrong type, long": (["--json", json.dumps({"d_model": "7" * 9999})], "..."),
    "wrong type, as a pair": (["d_model=wide"], '"wide"'),
    "malformed": (["--json", '{"d_model": 1024,\n "n_heads" 12}'], "line 2, column 12"),
    "cut off": (["--json", '{"d_model": 1024, '], "line 1, column"),
    "single quotes": (["--json", "{'d_model': 1024}"], "line 1, column 2"),
    "a trailing comma": (["--json", '{"d_model": 1024,}'], "line 1, column 1"),
    "more after the end": (["--json", '{"d_model": 1024} x'], "extra data at line 1, column 19"),
    "a key twice": (["--json", '{"d_model": 1, "d_model": 2}'], "twice"),
    "a key twice, as a pair": (["d_model=1", "d_model=2"], "twice"),
    "a key in two names": (["--json", '{"d_model": 1, "hidden_size": 2}'], "Give it once"),
    "NaN": (["--json", '{"dropout": NaN}'], "NaN"),
    "Infinity": (["--json", '{"d_model": -Infinity}'], "-Infinity"),
    "1e999": (["--json", '{"d_model": 1e999}'], "Infinity"),
    "5000 digits": (["--json", '{"d_model": ' + "9" * 5000 + "}"], "5000 digits"),
    "a list": (["--json", "[1, 2]"], "a list of 2 values"),
    "a number": (["--json", "-"], "standard input"),
    "null": (["--json", "null"], "null"),
    "a text": (["--json", '"d_model"'], "d_model"),
    "empty": (["--json", ""], "not JSON"),
    "blank": (["--json", "  \n "], "not JSON"),
    "no such file": (["nowhere.json"], "no file"),
    "no such file, with NUL": (["a\0b"], "cannot be read"),
    "a name too long": (["x" * 5000], "cannot be read"),
    "a folder": (["/"], "folder without a config.json"),
    "two configurations": (["{}", "{}"], "not 2"),
    "unknown option": (["--jsn", "{}"], "--jsn"),
    "unknown model": (["model=Lama 3 8B"], "Llama 3 8B"),
    "unknown device": (["device=h10O"], "h100"),
    "deep list": (["--json", "[" * 100_000 + "]" * 100_000], "deep"),
    "deep object": (["--json", '{"a":' * 100_000 + "1" + "}" * 100_000], "deep"),
    "deep and cut off": (["--json", '{"d_model": ' + "[" * 100_000], "deep"),
    "line ends in a key": (["--json", '{"a\\nb\\u2028c": 1}'], "not a key"),
    "colours in a key": (["--json", '{"\\u001b[31mred": 1}'], "not a key"),
    "half a character": (["--json", '{"\\ud800": 1}'], "not a key"),
}


@pytest.mark.parametrize(("arguments", "word"), UNUSABLE.values(), ids=UNUSABLE)
def test_unusable_input_is_one_line_and_status_2(run, monkeypatch, arguments, word):
    monkeypatch.setattr("sys.stdin", io.StringIO("12"))
    started = time.process_time()
    ran = run(*arguments)
    assert time.process_time() - started < 2
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("splitheads doctor: ")
    assert ran.err.count("\n") == 1
    assert ran.err.strip().isprintable()
    assert len(ran.err) < 500
    assert word in ran.err


def test_the_nearest_file_is_named(run, tmp_path):
    (tmp_path / "config.json").write_text("{}", "utf8")
    assert "config.json" in run(str(tmp_path / "confg.json")).err


def test_a_file_that_is_no_text(run, tmp_path):
    (tmp_path / "model.json").write_bytes(b'{"d_model": \xff\xfe}')
    assert "byte 12" in run(str(tmp_path / "model.json")).err


@pytest.mark.parametrize("kind", ["keys", "text", "numbers", "texts"])
def test_ten_megabytes_are_answered_quickly(run, tmp_path, kind):
    made = {
        "keys": lambda: json.dumps({f"key {n}": n for n in range(600_000)}),
        "text": lambda: json.dumps({"model": "x" * 10_000_000}),
        "numbers": lambda: json.dumps({"prune_heads": list(range(1_400_000))}),
        "texts": lambda: '{"a": "' + '\\"[{' * 2_500_000 + '"}',
    }[kind]()
    assert len(made) > 9_000_000
    file = tmp_path / "large.json"
    file.write_text(made, "utf8")
    started = time.process_time()
    ran = run("--json", str(file))
    assert time.process_time() - started < 10
    assert (ran.status, ran.out) == (2, "")
    assert len(ran.err) < 500


def test_a_file_above_the_limit_is_not_read(run, tmp_path, monkeypatch):
    monkeypatch.setattr("splitheads.doctor.command.LARGEST_FILE", 100)
    file = tmp_path / "large.json"
    file.write_text(json.dumps({"model": "x" * 200}), "utf8")
    assert "no configuration is that long" in run(str(file)).err


def test_standard_input_in_a_shell():
    done = shell("--json", "-", input='{"d_model": 768, "n_heads": 12}')
    assert json.loads(done.stdout)["verdict"] == "ok"
    done = shell("-", input="")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def printed_to(where, arguments: list[str]) -> subprocess.CompletedProcess:
    """The command in a shell, its standard output to a file or descriptor that may refuse it."""
    return subprocess.run(
        [*PYTHON, *arguments],
        cwd=ROOT / "book",
        stdout=where,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_closed_pipe_costs_no_traceback():
    """As with `| head -1`: the reader has gone before anything is written."""
    for arguments in (["--help"], ["d_model=768", "n_heads=12"], ["--json", "d_model=1024", "n_heads=12"]):
        reading, writing = os.pipe()
        os.close(reading)
        done = printed_to(writing, arguments)
        os.close(writing)
        assert done.stderr == ""
        assert done.returncode == (1 if "--json" in arguments else 0)


def test_a_terminal_without_the_characters_costs_no_traceback():
    done = shell("d_model=1024", "n_heads=12", env=os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("REJECT")


def test_importing_it_is_light(tmp_path):
    code = (
        "import sys, time; start = time.process_time(); import splitheads.doctor; took = time.process_time() - start; "
        "heavy = {'torch', 'numpy', 'matplotlib', 'ipywidgets', 'difflib'} & set(sys.modules); print(took, *heavy)"
    )
    # Compiled once before, as an installed package is.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPATH": str(ROOT / "book"), "PYTHONPYCACHEPREFIX": str(tmp_path)}
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(6)
    ]
    assert all(len(words) == 1 for words in outputs)
    # Time on the processor, the best of six: what the import takes, not what a busy machine adds.
    assert min(float(words[0]) for words in outputs) < 0.05


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize(
    "arguments", [["d_model=768", "n_heads=12"], ["--json", "d_model=768", "n_heads=12"], ["--help"]]
)
def test_a_report_that_cannot_be_written_is_an_error(arguments):
    with open("/dev/full", "w") as full:
        done = printed_to(full, arguments)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "cannot be written: No space left on device" in done.stderr


def test_a_key_that_is_given_twice_shows_both_as_written(run):
    ran = run("d_model=1024", "d_model=512")
    assert ran.err == 'splitheads doctor: d_model is given twice: "1024" and "512".\n'


def test_ok_is_no_praise_for_what_was_not_given(capsys):
    assert main(["d_model=768"]) == 0
    assert capsys.readouterr().out.startswith("OK: so far; too little is given")
    assert main(["d_model=768", "n_heads=12"]) == 0
    assert capsys.readouterr().out.startswith("OK: legal, and nothing to warn of")
