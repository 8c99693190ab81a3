"""The panel *doctor*, the Python side: its cases and menus against the rules, its printed twin, what it refuses."""

from __future__ import annotations

import json
import re
from importlib import import_module

import pytest
from splitheads.doctor import KEYS, ConfigError, diagnose
from splitheads.panels import doctor
from test_panels import printed

PANEL = import_module("splitheads.panels.doctor")

EXPECTED = {
    "1024 columns, 12 heads": ("reject", "does-not-divide"),
    "32 heads, weights of a ViT-L": ("warn", "loads-but-wrong"),
    "12 heads loaded into 8": ("warn", "loads-but-wrong"),
    "48 heads in GPT-2 XL": ("reject", "layers-for-heads"),
    "16 columns lost on the way": ("reject", "does-not-divide"),
    "Qwen3-4B: 144 KiB, not 90": ("ok", "breaks-rule"),
    "Llama 2 7B with 1 KV head": ("reject", "will-not-load"),
    "28 heads on 7 GPUs": ("reject", "tp-kv-heads"),
    "4 KV heads on 8 GPUs, transformers": ("reject", "tp-kv-heads"),
    "RoPE on an odd head": ("reject", "rope-odd"),
    "d_head = 132 by accident": ("warn", "bucket-waste"),
    "one query, is_causal": ("warn", "causal-top-left"),
    "80 padded to 96": ("warn", "padding-changes-scale"),
    "bf16 on a T4": ("warn", "math-fallback"),
    "a mask, so math?": ("ok", "not-flash"),
    "4 of 12 heads pruned": ("ok", "pruned"),
    "attention_head_dim = 8": ("warn", "ambiguous-head-dim"),
}
"""What each public report comes down to: verdict, and a finding that tells it."""


@pytest.mark.parametrize("case", PANEL.CASES, ids=lambda case: case["name"])
def test_a_case_shows_what_went_wrong(case):
    report = diagnose(case["config"])
    verdict, finding = EXPECTED[case["name"]]
    assert report.verdict == verdict, [one.message for one in report.findings]
    assert finding in [one.id for one in report.findings]
    assert re.search(r"[\w-]+/[\w.-]+(#| PR )\d+", case["note"]), "where it was reported"


def test_the_cases_are_those_that_are_expected():
    assert set(EXPECTED) == {case["name"] for case in PANEL.CASES}
    assert len(PANEL.CASES) >= 10


def test_every_option_of_a_menu_is_a_configuration_that_can_be_read():
    for name, options in PANEL.MENUS.items():
        keys = PANEL.SET.get(name, [name])
        for label, values in options:
            assert set(values) <= set(keys), label
            report = diagnose({"d_model": 512, "n_heads": 8, **values} if name != "model" else values)
            for key, value in values.items():
                assert report.config[key] == value, "a menu writes what the doctor calls it"


def test_the_menu_has_every_model_of_the_table(models):
    assert [label for label, _ in PANEL.MENUS["model"]] == list(models)
    assert {*PANEL.BRINGS, *PANEL.KEEPS} == set(KEYS)


def test_a_published_model_is_fine_until_gpus_are_asked_for(models):
    """A pick in the first state leaves the machine, and nothing of what was asked of the former model."""
    kept = {key: value for key, value in PANEL.DEFAULT.items() if key not in PANEL.BRINGS}
    assert kept == {"dtype": "bf16", "device": "a100"}
    reports = {name: diagnose({**kept, "model": name}) for name in models}
    assert [name for name, report in reports.items() if report.verdict == "reject"] == []
    assert sum(report.verdict == "ok" for report in reports.values()) > 0.95 * len(models)
    former = [
        "tp",
        "seq_q",
        "seq_k",
        "prune_heads",
        "pad_d_head_to",
        "checkpoint_n_heads",
        "weight_shapes",
        "rope",
        "scale",
    ]
    assert set(former) <= set(PANEL.BRINGS)


def test_fields_and_their_names():
    panel = doctor()
    assert set(PANEL.FIELDS) <= set(panel._named) & set(KEYS)
    assert panel.num_heads is panel.n_heads
    assert panel.view.start == panel.view.config
    assert json.loads(panel.config.value) == PANEL.DEFAULT
    assert panel.view.config == panel.config.value


def test_the_question_is_answered_by_the_rules():
    outcome = json.loads(PANEL.QUESTION["outcome"]["config"])
    report = diagnose(outcome)
    assert report.verdict == "warn"
    assert "outputs are wrong" in report.findings[0].message
    assert next(option["label"] for option in PANEL.QUESTION["options"] if option["right"]).endswith("wrong")


def test_the_printed_twin_tells_the_report():
    report = diagnose(PANEL.DEFAULT)
    text = " ".join(printed(doctor()).split())
    assert f"{report.verdict} for d_model = 2560" in text
    for finding in report.findings:
        assert " ".join(finding.message.replace("'", "&#x27;").split()) in text
    for quantity in report.quantities:
        assert quantity.text in text
    assert "q_proj: [4096, 2560]" in text


def test_markup_in_a_configuration_is_shown_and_not_obeyed():
    twin = doctor({"d_model": 64, "n_heads": 8, "weight_shapes": {"<b>.q_proj": [64, 64]}})._twin
    assert "<b>" not in twin


@pytest.mark.parametrize("config", [{"d_mode": 768}, {"d_model": "768"}, [768, 12], {"model": "Lama 3 8B"}])
def test_a_start_that_is_no_configuration_is_refused(config):
    with pytest.raises(ConfigError):
        doctor(config)


def test_what_travels_with_a_page_is_bounded():
    """The rules with their data, in a page that has them once."""
    state = doctor().view.get_state()
    assert len(state["_esm"]) < 700_000
    assert state["_esm"].count("export default") == 1
    assert not re.search(r"^\s*import\s", state["_esm"], flags=re.M)
    assert len(json.dumps({key: value for key, value in state.items() if not key.startswith("_")})) < 30_000


def test_every_chapter_that_a_finding_names_is_linked():
    for case in PANEL.CASES:
        for finding in diagnose(case["config"]).findings:
            assert not finding.chapter or finding.chapter in PANEL.CHAPTERS
