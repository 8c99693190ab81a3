"""Recordings: what is in order is read, whatever is not gets one sentence, and nothing is overwritten."""

from __future__ import annotations

import copy
import errno
import json
import math
import os
import random
import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest
from splitheads.timing import engine, record
from splitheads.timing.analyse import analyse
from splitheads.timing.command import report
from splitheads.timing.record import (
    RecordError,
    agreement,
    flops,
    load,
    parse_text,
    recordings,
    save,
    title,
    validate,
)
from timing.synthetic import BROWSER, GPU, browser_cells, recording


def example() -> dict:
    cells = [{"d_head": d, "peak_bytes": 1 << 20} for d in (32, 64, 80)]
    cells += [{"d_head": 64, "case": "value_width", "observed": "MATH", "speed": 0.1}]
    cells += [{"d_head": 64, "case": "causal"}, {"d_head": 80, "backend": "EFFICIENT", "reason": "No available kernel"}]
    return recording(cells, seed=1)


def put(path: Path, value) -> Path:
    path.write_text(value if isinstance(value, str) else json.dumps(value), "utf8")
    return path


def sentence(error: RecordError) -> str:
    """The message, checked to be one plain line with a way out."""
    text = str(error)
    assert "\n" not in text, text
    assert len(re.sub(r"/\S+", "PATH", text)) < 300, text
    assert text.endswith("."), text
    assert re.search(r"[:;,]|must", text), text
    return text


# Reading


def test_a_saved_recording_comes_back_as_it_was(tmp_path):
    made = example()
    path = save(made, tmp_path / "run.json")
    assert path == tmp_path / "run.json"
    assert load(path) == made
    assert len(path.read_text("utf8").splitlines()) == len(made) + len(made["points"]) + 3, "one point per line"


def test_operations_are_counted_by_the_usual_convention():
    # FlashAttention's own count: 4 * batch * seqlen**2 * nheads * headdim // (2 if causal else 1), times 3.5 with backward
    assert flops(2, 16, 1024, 64, 64) == 4 * 2 * 1024**2 * 16 * 64
    assert flops(2, 16, 1024, 64, 64, "causal") == 4 * 2 * 1024**2 * 16 * 64 // 2
    assert flops(2, 16, 1024, 64, 64, "plain", "forward+backward") == 3.5 * 4 * 2 * 1024**2 * 16 * 64
    assert flops(1, 8, 512, 64, 72, "value_width") == 2 * 8 * 512**2 * (64 + 72)


def test_a_recording_cut_anywhere_is_said_to_end_in_the_middle(tmp_path):
    text = save(example(), tmp_path / "run.json").read_text("utf8")
    for end in [*range(1, len(text.rstrip()), 37), len(text) // 2, len(text.rstrip()) - 1]:
        with pytest.raises(RecordError, match=r"ends in the middle.*copy it again") as caught:
            load(put(tmp_path / "cut.json", text[:end]))
        sentence(caught.value)


def test_a_recording_cut_in_the_middle_of_a_character(tmp_path):
    made = example()
    made["device"]["name"] = "Prozessor für alle"
    data = save(made, tmp_path / "run.json").read_bytes()
    (tmp_path / "cut.json").write_bytes(data[: data.index("ü".encode()) + 1])
    with pytest.raises(RecordError, match="ends in the middle"):
        load(tmp_path / "cut.json")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("  \n", "is empty"),
        ("d_head,time\n64,0.1\n", "is not JSON"),
        ("{'schema': 1}", "is not JSON"),
        ("[1, 2, 3]", "top level is a list"),
        ("3", "top level is a number"),
        ("null", "top level is null"),
        ('{"name": "something else"}', 'there is no "kind"'),
        ('{"kind": "other.tool", "schema": 1}', r'"kind" is "other\.tool"'),
        ('{"kind": "splitheads.timing", "schema": 2}', "schema = 2 was written by a newer version.*update"),
        ('{"kind": "splitheads.timing", "schema": 10000000000000000000000000}', "newer version"),
        ('{"kind": "splitheads.timing", "schema": 0}', "schema = 0 is no schema version"),
        ('{"kind": "splitheads.timing", "schema": "1"}', 'schema = "1" is no schema version'),
        ('{"kind": "splitheads.timing", "schema": true}', "schema = true is no schema version"),
        ('{"kind": "splitheads.timing"}', "schema = null is no schema version"),
        ('{"kind": "splitheads.timing", "schema": 1}', "created is missing"),
        ('{"kind": "splitheads.timing", "schema": NaN}', "NaN is not a number that can be measured"),
        ('{"a": -Infinity}', "-Infinity is not a number"),
        ('{"kind": "x", "kind": "splitheads.timing"}', '"kind" is given twice'),
        ("[" * 100_000, "nested too deeply|ends in the middle|not JSON"),
        ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
        ('{"a": ' * 100_000 + "1" + "}" * 100_000, "nested too deeply"),
        ('{"a": ' + "9" * 5000 + "}", "."),
    ],
)
def test_what_is_no_recording_is_named_in_one_sentence(tmp_path, text, says):
    with pytest.raises(RecordError, match=says) as caught:
        load(put(tmp_path / "foreign.json", text))
    assert "foreign.json" in sentence(caught.value)


def test_files_that_cannot_be_read(tmp_path, monkeypatch):
    for path, says in [(tmp_path / "none.json", "does not exist"), (tmp_path, "is a folder"), ("a\0b", "no name")]:
        with pytest.raises(RecordError, match=says) as caught:
            load(path)
        sentence(caught.value)
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(RecordError, match="not a regular file"):
        load(tmp_path / "pipe.json")
    (tmp_path / "utf16.json").write_bytes(json.dumps(example()).encode("utf-16"))
    with pytest.raises(RecordError, match="not a text file in UTF-8"):
        load(tmp_path / "utf16.json")
    (tmp_path / "bom.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(example()).encode())
    assert load(tmp_path / "bom.json") == example(), "an editor's byte order mark does no harm"
    monkeypatch.setattr(record, "MAX_BYTES", 1000)
    with pytest.raises(RecordError, match="no recording is that large"):
        load(put(tmp_path / "large.json", example()))


def test_a_text_is_read_as_a_file_is(tmp_path):
    made = example()
    assert parse_text(json.dumps(made), "run.json") == made
    assert parse_text("\ufeff" + json.dumps(made), "run.json") == made
    for text in ("", "{", "[1]", '{"a": NaN}', '{"a": 1, "a": 2}', "[" * 100_000, json.dumps(made)[:-9]):
        told = []
        put(tmp_path / "x.json", text)
        for read in (lambda: load(tmp_path / "x.json"), lambda text=text: parse_text(text, str(tmp_path / "x.json"))):
            with pytest.raises(RecordError) as caught:
                read()
            told.append(sentence(caught.value))
        assert told[0] == told[1]


def test_a_moment_is_one_that_python_knows():
    """What is taken is what datetime takes, of the form that ISO 8601 has with hyphens and colons."""
    fine = ["2026-11-30T22:50:00Z", "2026-11-30 22:50Z", "2024-02-29T00:00:00.5+05:30", "0001-01-01T23:59:59,25-0130"]
    fine += ["2026-11-30T22:50:00+00:00", "2000-02-29T00:00Z"]
    for text in fine:
        assert record._is_moment(text), text
        assert datetime.fromisoformat(text).tzinfo, text
    bad = ["", "2026", "2026-11-30", "2026-11-30T22:50:00", "2026-02-29T00:00Z", "1900-02-29T00:00Z", "2026-13-01T00:00Z", "2026-00-01T00:00Z", "2026-01-00T00:00Z", "0000-01-01T00:00Z",
           "2026-04-31T00:00Z", "2026-11-30T24:00Z", "2026-11-30T22:60Z", "2026-11-30T22:50:60Z", "2026-11-30T22:50:00Z ", "2026-11-30T22:50:00Z\n", "２026-11-30T22:50:00Z", "2026-11-30T22:50:00+24:00"]  # fmt: skip
    assert not [text for text in bad if record._is_moment(text)]


def change(path: str, value):
    """A function that sets one value deep inside: "points.0.median_s"; `...` removes it."""

    def apply(made: dict) -> None:
        *way, last = path.split(".")
        at = made
        for key in way:
            at = at[int(key)] if isinstance(at, list) else at[key]
        if value is ...:
            del at[last]
        elif isinstance(at, list):
            at[int(last)] = value
        else:
            at[last] = value

    return apply


EDITS = [
    ("points.0.median_s", -0.001, r"points\[0\]\.median_s = -0.001 must be greater than 0"),
    ("points.0.median_s", 0, "must be greater than 0"),
    ("points.0.median_s", "0.1", "must be a finite number"),
    ("points.0.median_s", True, "median_s = true must be a finite number"),
    ("points.0.median_s", None, "median_s = null must be a finite number"),
    ("points.0.median_s", math.nan, "must be a finite number"),
    ("points.0.median_s", math.inf, "must be a finite number"),
    ("points.0.median_s", 10**400, "must be a finite number"),
    ("points.0.median_s", 1.0, "must lie around"),
    ("points.0.median_s", ..., r"points\[0\]\.median_s is missing"),
    ("points.0.interval_s", [0.2, 0.1], "must lie around"),
    ("points.0.interval_s", [0.1], "must be two numbers"),
    ("points.0.interval_s", [-1, 1], r"interval_s\[0\] = -1 must be greater than 0"),
    ("points.0.interval_s", None, "must be a list"),
    ("points.0.repeats", 0, "repeats = 0 must be a whole number from 1"),
    ("points.0.repeats", 2.5, "must be a whole number"),
    ("points.0.flops", 1, "flops = 1 does not fit the shape"),
    ("points.0.d_head", 33, "d_head = 33 is not among plan.d_heads"),
    ("points.0.d_head", 64, "does not fit|must equal"),
    ("points.0.d_head", 32.0, "not among"),
    ("points.0.d_head_v", 40, "must equal d_head = 32"),
    ("points.3.d_head_v", 64, "must differ from d_head = 64"),
    ("points.0.case", "sliding", "not among plan.cases"),
    ("points.0.status", "fine", "must be one of ok, skipped, failed"),
    ("points.0.status", [], "must be one of"),
    ("points.0.observed", "FLSH", 'observed = "FLSH" must be null or one of FLASH'),
    ("points.0.observed", "MATH", r"agreement\.agree = 5 does not fit the points"),
    ("points.0.bucket", 16, "narrower than d_head = 32"),
    ("points.0.peak_bytes", -1, "whole number from 0"),
    ("points.0.flags", "wide interval", "must be a list"),
    ("points.0.flags", [1], r"flags\[0\] = 1 must be text"),
    ("points.0", 7, r"points\[0\] is a number, where an object is due"),
    ("points.5.reason", None, "reason = null must be text"),
    ("points.5.median_s", 0.1, "must be null, because this point is 'failed'"),
    ("points", {}, "points = {} must be a list"),
    ("points", ..., "points is missing"),
    ("agreement.compared", 99, "compared = 99 does not fit the points"),
    ("agreement.differ", [{}], "must list the 0 points"),
    ("points.0.median_s", 1e-13, "must be at least 1e-12"),
    ("points.0.median_s", 1e10, "must be at most 1e\\+09"),
    ("points.0.interval_s.0", 1e-300, "must be at least 1e-12"),
    ("points.0.interval_s.0", 2e-12, "wider than a factor of 1e\\+06"),
    ("points.0.interval_s.1", 1e308, "must be at most 1e\\+09"),
    ("points.0.interval_s.1", 1e5, "wider than a factor of 1e\\+06"),
    ("points.0.repeats", 10**10, "from 1, 1000000000 at most"),
    ("method.confidence", 1e-300, "must be at least 0.5"),
    ("method.target_width", 1e300, "must be at most 1e\\+06"),
    ("plan.budget_s", 1e300, "must be at most 1e\\+09"),
    ("duration_s", 1e300, "must be at most 1e\\+09"),
    ("ceilings.matmul_flops_per_s", ..., r"ceilings\.matmul_flops_per_s is missing"),
    ("ceilings.copy_bytes_per_s", ..., r"ceilings\.copy_bytes_per_s is missing"),
    ("ceilings.matmul_flops_per_s.median", 1e-300, "must be at least 1"),
    ("ceilings.matmul_flops_per_s.interval.1", 1e300, "must be at most 1e\\+24"),
    ("ceilings.copy_bytes_per_s.repeats", 2**64, "1000000000 at most"),
    ("device.type", "tpu", "must be one of cpu, cuda, mps, webgpu"),
    ("device.name", "", "must be text"),
    ("device.threads", 0, "whole number from 1"),
    ("device.clocks", ..., r"device\.clocks is missing"),
    ("device", [], "device is a list"),
    ("software.torch", None, "must name the version of PyTorch"),
    ("software.python", 3.11, "must be text or null"),
    ("plan.dtype", "fp8", "must be one of fp16"),
    ("plan.batch", 0, "whole number from 1"),
    ("plan.d_heads.0", -8, r"plan\.d_heads\[0\] = -8"),
    ("plan.backends.0", "TURBO", r"plan\.backends\[0\]"),
    ("plan.budget_s", 0, "must be greater than 0"),
    ("method.statistic", "mean", 'must be "median"'),
    ("method.confidence", 95, "must be less than 1"),
    ("ceilings.matmul_flops_per_s.median", 0, "must be greater than 0"),
    ("ceilings.matmul_flops_per_s.interval", [1, 2], "must lie around"),
    ("ceilings", None, "ceilings is null"),
    ("created", "yesterday", "must be a moment in UTC"),
    ("created", "2026-11-30T22:50:00", "must be a moment in UTC"),
    ("duration_s", -1, "must be at least 0"),
    ("duration_s", 0.001, "the repeats of the points alone take over"),
    ("ended", "crashed", "must be one of complete, budget, interrupted"),
    ("command", 1, "must be text"),
]


@pytest.mark.parametrize(("path", "value", "says"), EDITS, ids=[f"{p}={str(v)[:20]}" for p, v, _ in EDITS])
def test_an_edited_recording_is_found(path, value, says):
    made = example()
    made["points"][0]["repeats"] = 2000 if path == "duration_s" and value == 0.001 else made["points"][0]["repeats"]
    change(path, value)(made)
    with pytest.raises(RecordError, match=says) as caught:
        validate(made)
    sentence(caught.value)


def test_every_required_key_is_missed_when_it_is_gone():
    """Remove each key in turn: nothing but a RecordError, and only optional keys go unnoticed."""
    unnoticed = []

    def walk(value, way):
        pairs = value.items() if isinstance(value, dict) else enumerate(value[:4])
        for key, inner in list(pairs):
            if isinstance(value, dict):
                made = example()
                change(".".join(map(str, [*way, key])), ...)(made)
                try:
                    validate(made)
                    unnoticed.append(".".join(map(str, [*way, key])))
                except RecordError as error:
                    sentence(error)
            if isinstance(inner, (dict, list)) and key != "interval":
                walk(inner, [*way, key])

    walk(example(), [])
    assert unnoticed == []
    made = example()
    made["ceilings"] = dict.fromkeys(made["ceilings"])
    validate(made)


def test_no_value_anywhere_makes_anything_but_a_record_error():
    """Put nonsense of every type at every place: a RecordError or (where harmless) nothing."""
    junk = [None, True, -1, 0, 10**400, 1e308, "x", "", [], [[]], {}, {"a": 1}, [None], math.nan]

    def walk(value, way):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value[:2]):
            yield [*way, key]
            if isinstance(inner, (dict, list)):
                yield from walk(inner, [*way, key])

    original = example()
    for way in walk(original, []):
        for nonsense in junk:
            made = copy.deepcopy(original)
            change(".".join(map(str, way)), nonsense)(made)
            try:
                validate(made)
            except RecordError as error:
                sentence(error)


def read_everywhere(made: dict) -> None:
    """What readers do with a recording."""
    found = analyse(made)
    assert title(made)
    assert record.rank(made)
    assert report(made)
    assert found.rule.text
    for step in (*found.steps, *found.rises, *found.changes, *found.gains):
        assert step.text
        assert all(math.isfinite(x) for x in (step.ratio, *step.ratio_interval))
    for line in found.series:
        for point in line.points:
            assert all(math.isfinite(x) for x in (point["flops_per_s"], *point["flops_per_s_interval"]))


def on_a_gpu() -> dict:
    cells = [{"d_head": d, "peak_bytes": 1 << 20, "bucket": b} for d, b in ((32, 32), (64, 64), (128, None))]
    cells += [{"d_head": 80, "speed": 0.2}, {"d_head": 96, "repeats": 4}, {"d_head": 64, "reason": "out of memory"}]
    cells[-1]["case"] = "mask"
    cells += [{"d_head": 64, "case": "dropout", "observed": "MATH", "speed": 0.1, "predicted": "FLASH"}]
    cells += [{"d_head": 64, "backend": "CUDNN", "observed": "CUDNN", "speed": 0.9, "repeats": 400}]
    return recording(cells, seed=2, device=GPU, torch="2.15.0+cu130", dtype="bf16", rate=3e14)


NASTY = [
    None, True, False, 0, -1, 1, 2, 5e-324, 1e-300, 1e-13, 1e-12, 0.5, 1 - 2**-53, 0.9999999999999, 7.5, 1e9, 1e24, 1e308, 2**24 + 1,
    10**9, 2**64, 10**400, 10**5000, math.nan, math.inf, -math.inf, "", " ", "x", "+", "2.2", "sm²²", "sm999", "sm" + "9" * 5000, "\0\ud800", "9" * 5000,
    [], [1], {}, {"a": [1]},
]  # fmt: skip


@pytest.mark.parametrize("make", [example, on_a_gpu])
def test_whatever_one_value_becomes_a_valid_recording_can_be_read(make):
    """Every leaf replaced, and removed: a RecordError, or everything that readers do works."""
    made, read = make(), 0
    read_everywhere(made)

    def attempt() -> int:
        try:
            validate(made)
        except RecordError:
            return 0
        read_everywhere(made)
        return 1

    def walk(value) -> None:
        nonlocal read
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            inner = value[key]
            if isinstance(inner, (dict, list)):
                walk(inner)
            for nasty in NASTY:
                value[key] = nasty
                read += attempt()
            value[key] = inner
        if isinstance(value, dict):
            for key in list(value):
                kept = dict(value)
                del value[key]
                read += attempt()
                value.clear()
                value.update(kept)

    walk(made)
    assert made == make()
    assert read > 500, "the test means something"


@pytest.mark.parametrize("make", [example, on_a_gpu])
def test_a_file_with_a_flipped_bit_is_refused_or_can_be_read(tmp_path, make):
    data = save(make(), tmp_path / "run.json").read_bytes()
    rng, read = random.Random(6), 0
    for _ in range(1500):
        flipped = bytearray(data)
        flipped[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        (tmp_path / "flipped.json").write_bytes(flipped)
        try:
            made = load(tmp_path / "flipped.json")
        except RecordError:
            continue
        read_everywhere(made)
        read += 1
    assert read > 50, "the test means something"


def test_what_is_no_path_is_refused():
    for path in (None, 7, 1.5, ["run.json"], 10**5000, object()):
        for function in (load, recordings, record.check_target, lambda x: save(example(), x)):
            if path is None and function is recordings:
                continue  # the book's own
            with pytest.raises(RecordError, match="is no path") as caught:
                function(path)
            sentence(caught.value)


def test_points_that_differ_are_listed_as_they_are():
    made = on_a_gpu()
    assert len(made["agreement"]["differ"]) == 1
    for wrong in ({}, 7, None, made["agreement"]["differ"][0] | {"observed": "CUDNN"}):
        made["agreement"]["differ"] = [wrong]
        with pytest.raises(RecordError, match=r"agreement\.differ\[0\]") as caught:
            validate(made)
        sentence(caught.value)


def test_the_engine_flags_what_a_recording_may_not_hold_without_the_flag():
    assert engine.CEILING_SLACK == record.CEILING_SLACK == 1.05
    made = example()
    point = made["points"][0]
    for share, fine in ((1.04, True), (1.06, False)):
        median = point["flops"] / point["median_s"] / share
        made["ceilings"]["matmul_flops_per_s"] |= {"median": median, "interval": [median, median]}
        for other in made["points"][1:]:
            other["flags"] = [record.ABOVE_CEILING]
        if fine:
            validate(made)
        else:
            with pytest.raises(RecordError, match="more than this device can do"):
                validate(made)


def test_the_same_point_twice_is_refused():
    made = example()
    made["points"].append(made["points"][1])
    made["agreement"] = agreement(made["points"])
    with pytest.raises(RecordError, match=r"points\[1\] and points\[6\] are the same point .*d_head = 64") as caught:
        validate(made)
    sentence(caught.value)


def test_more_than_the_ceiling_allows_is_refused_unless_the_lab_flagged_it():
    made = example()
    made["ceilings"]["matmul_flops_per_s"] |= {"median": 4e10, "interval": [4e10, 4e10]}
    with pytest.raises(RecordError, match=r"more than this device can do \(4e\+10") as caught:
        validate(made)
    sentence(caught.value)
    for point in made["points"]:
        point["flags"].append(record.ABOVE_CEILING)
    validate(made)


def test_a_webgpu_recording_may_name_its_own_kernels():
    made = example()
    made["device"] |= {"type": "webgpu", "key": None}
    made["software"] |= dict.fromkeys(("python", "torch", "build", "system"))
    made["plan"]["backends"] = ["auto", "EFFICIENT", "tiled"]
    made["points"][0] |= {"backend": "tiled", "observed": "tiled", "predicted": None}
    made["agreement"] = agreement(made["points"])
    validate(made)


def test_a_sweep_of_a_page_is_in_order(tmp_path):
    made = recording(browser_cells([64, 65], ["buckets", "exact", "unfused"]), device=BROWSER, torch=None)
    assert load(save(made, tmp_path / "run.json")) == made
    assert title(made) == "example-vendor example-9 (webgpu): fp32, forward, 2026-11-30"
    assert analyse(made).steps
    made["points"][1]["bucket"] = 64
    with pytest.raises(RecordError, match=r"points\[1\]\.bucket = 64 is narrower than d_head = 65"):
        validate(made)


def test_keys_beyond_the_schema_are_left_alone(tmp_path):
    made = example()
    made["note"] = {"by": "hand"}
    made["points"][0]["samples_s"] = [0.1, 0.2]
    assert load(save(made, tmp_path / "run.json")) == made


def test_agreement_counts_only_points_with_both():
    made = recording([{"d_head": 32}, {"d_head": 64, "predicted": "CUDNN"}, {"d_head": 80, "predicted": None}])
    assert made["agreement"]["compared"] == 2
    assert made["agreement"]["agree"] == 1
    assert [(d["d_head"], d["observed"], d["predicted"]) for d in made["agreement"]["differ"]] == [
        (64, "FLASH", "CUDNN")
    ]
    validate(made)


# Writing


def test_another_runs_file_is_never_overwritten(tmp_path):
    first, second, third = (recording([{"d_head": 64}], seed=s) for s in (1, 2, 3))
    paths = [save(made, tmp_path / "out.json") for made in (first, second, third, first)]
    assert [p.name for p in paths] == ["out.json", "out-2.json", "out-3.json", "out.json"]
    assert [load(p) for p in paths] == [first, second, third, first]
    assert sorted(os.listdir(tmp_path)) == ["out-2.json", "out-3.json", "out.json"], "no temporary file is left"


WRITER = """
import json, sys, time
from timing.synthetic import recording
from splitheads.timing.record import save
seed, path, start = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
made = recording([{"d_head": d} for d in range(8, 512, 8)], seed=seed)
time.sleep(max(0, start - time.time()))
print(save(made, path))
"""


@pytest.mark.parametrize("links", [True, False], ids=["hard links", "no hard links"])
def test_two_runs_that_write_at_once_both_survive(tmp_path, links):
    import time

    code = (
        WRITER if links else f"import os, errno\ndef no(*a): raise OSError(errno.EPERM, 'no')\nos.link = no\n{WRITER}"
    )
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root / 'book'}{os.pathsep}{root / 'tests'}"}
    start = time.time() + 1.0
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(seed), str(tmp_path / "out.json"), str(start)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in range(4)
    ]
    written = [run.communicate(timeout=60)[0].strip() for run in runs]
    assert all(run.returncode == 0 for run in runs)
    assert sorted(Path(w).name for w in written) == ["out-2.json", "out-3.json", "out-4.json", "out.json"]
    assert {load(w)["plan"]["seed"] for w in written} == {0, 1, 2, 3}
    assert [load(w)["plan"]["seed"] for w in written] == [0, 1, 2, 3], "each was told its own file"
    assert len(os.listdir(tmp_path)) == 4


def test_what_cannot_be_written_is_kept_elsewhere(tmp_path, monkeypatch):
    kept = tmp_path / "temporary"
    kept.mkdir()
    monkeypatch.setattr(record.tempfile, "gettempdir", lambda: str(kept))
    made = example()
    for path, says in [
        (tmp_path / "none" / "out.json", "folder .*none does not exist"),
        (tmp_path, "is a folder"),
        (tmp_path / ("x" * 300 + ".json"), "name is too long|memory"),
        (tmp_path / "a\0b.json", "cannot be written"),
    ]:
        with pytest.raises(RecordError, match=says) as caught:
            save(made, path)
        text = sentence(caught.value)
        if caught.value.kept:
            assert str(caught.value.kept) in text
            assert load(caught.value.kept) == made
        else:
            assert "still in memory" in text
    with pytest.raises(RecordError) as caught:
        save(made, tmp_path / "none" / "out.json")
    assert caught.value.kept == kept / "out.json"


@pytest.mark.parametrize(
    ("code", "says"),
    [(errno.ENOSPC, "the disk is full"), (errno.EROFS, "read-only"), (errno.EACCES, "no permission")],
)
def test_a_full_disk_is_said_and_the_data_kept(tmp_path, monkeypatch, code, says):
    kept, made = tmp_path / "temporary", example()
    kept.mkdir()
    monkeypatch.setattr(record.tempfile, "gettempdir", lambda: str(kept))
    real = os.fsync
    calls = []

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) == 1:
            raise OSError(code, os.strerror(code))
        return real(descriptor)

    monkeypatch.setattr(record.os, "fsync", full)
    with pytest.raises(RecordError, match=says) as caught:
        save(made, tmp_path / "out.json")
    assert load(caught.value.kept) == made
    assert os.listdir(tmp_path) == ["temporary"], "no half-written file is left"

    monkeypatch.setattr(record.os, "fsync", lambda d: (_ for _ in ()).throw(OSError(code, os.strerror(code))))
    with pytest.raises(RecordError, match="still in memory") as caught:
        save(made, tmp_path / "out.json")
    assert caught.value.kept is None


def test_what_is_not_in_order_is_not_written(tmp_path):
    made = example()
    made["points"][0]["median_s"] = -1
    with pytest.raises(RecordError, match="median_s"):
        save(made, tmp_path / "out.json")
    made = example()
    made["extra"] = object()
    with pytest.raises(RecordError, match="JSON cannot"):
        save(made, tmp_path / "out.json")
    made["extra"] = math.nan
    with pytest.raises(RecordError, match="JSON cannot"):
        save(made, tmp_path / "out.json")
    assert not os.listdir(tmp_path)


def test_a_target_is_checked_before_the_run(tmp_path):
    record.check_target(tmp_path / "out.json")
    (tmp_path / "taken.json").write_text("{}")
    record.check_target(tmp_path / "taken.json")
    assert os.listdir(tmp_path) == ["taken.json"]
    for path in (tmp_path / "none" / "out.json", tmp_path, tmp_path / ("x" * 300), tmp_path / "a\0b"):
        with pytest.raises(RecordError) as caught:
            record.check_target(path)
        sentence(caught.value)


# A folder of recordings


def test_recordings_of_a_folder_are_sorted_and_have_titles(tmp_path):
    assert recordings(tmp_path / "none") == ()
    save(example(), tmp_path / "b.json")
    save(recording([{"d_head": 64}], device=GPU, dtype="bf16", torch="2.15.0+cu130"), tmp_path / "a.json")
    (tmp_path / "notes.txt").write_text("not a recording")
    found = recordings(tmp_path)
    assert [r.path.name for r in found] == ["a.json", "b.json"]
    assert found[0].title == "Example A100 (cuda): bf16, forward, torch 2.15.0+cu130, 2026-11-30"
    assert found[1].recording == example()
    assert title(example()) == found[1].title
    # of one CPU, fp32 first, whatever the files are called
    save(recording([{"d_head": 64}], dtype="bf16"), tmp_path / "0.json")
    assert [r.path.name for r in recordings(tmp_path)] == ["a.json", "b.json", "0.json"]
    put(tmp_path / "c.json", "{")
    with pytest.raises(RecordError, match=r"c\.json ends in the middle"):
        recordings(tmp_path)


def test_the_books_own_recordings_are_in_order():
    for found in recordings():
        assert found.title
        assert found.recording["points"], f"{found.path.name} holds no point"
