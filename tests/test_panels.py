"""Panels, the Python side: what they hand to the page, what they print, and what they refuse."""

from __future__ import annotations

import json
import re
import subprocess
from html.parser import HTMLParser

import pytest
import torch
from splitheads.panels import kit, partition, predict, question
from splitheads.panels.partition import ERRORS, MAX_D_MODEL, MAX_NUM_HEADS, PRESETS, PartitionView
from torch import nn

ASKED = question("2 + 2?", {"4": "Counted.", "5": "One too many."}, answer="4")


@pytest.mark.parametrize(("d_model", "num_heads"), [(1600, 48), (768, 13), (2, 8), (16381, 256), (7, 5), (4544, 70)])
def test_the_errors_shown_are_those_that_pytorch_raises(d_model, num_heads):
    calls = [
        lambda: nn.MultiheadAttention(d_model, num_heads),
        lambda: torch.zeros(1, 1, d_model).view(1, 1, num_heads, d_model // num_heads),
    ]
    for shown, call in zip(ERRORS, calls, strict=True):
        with pytest.raises((AssertionError, RuntimeError)) as info:
            call()
        fill = {"d_model": d_model, "num_heads": num_heads, "whole": d_model // num_heads}
        assert shown["text"].format(**fill) == f"{info.type.__name__}: {info.value}"


def test_presets_are_the_published_models(models):
    names = {
        "BERT-base": "BERT-Base",
        "GPT-2 XL": "GPT-2 XL (1558M)",
        "GPT-NeoX-20B": "GPT-NeoX-20B",
        "Phi-2": "Phi-2",
        "Falcon-7B": "Falcon-7B",
        "Llama-3 70B": "Llama 3 70B",
    }
    for preset in PRESETS:
        if preset["name"] in names:
            row = models[names.pop(preset["name"])]
            assert (preset["d_model"], preset["num_heads"]) == (int(row["d_model"]), int(row["n_heads"]))
            assert f" {row['d_head']}" in preset["note"] or "64" in preset["note"]
            assert preset["note"].startswith(f"{preset['name']} ({row['year']})")
        else:
            swapped = models["GPT-2 XL (1558M)"]
            assert (preset["d_model"], preset["num_heads"]) == (int(swapped["d_model"]), int(swapped["n_layers"]))
    assert names == {}


def test_controls_have_the_names_and_the_reach_that_the_book_promises():
    panel = partition()
    assert (panel.d_model.value, panel.num_heads.value) == (768, 12)
    assert panel.d_model.max == MAX_D_MODEL == 16384
    assert panel.num_heads.max == MAX_NUM_HEADS == 256
    assert panel.view.limits == {"d_model": [1, 16384], "num_heads": [1, 256]}
    with pytest.raises(AttributeError, match="no 'heads'; its controls are d_model, num_heads"):
        _ = panel.heads


@pytest.mark.parametrize(
    ("start", "words"),
    [
        ((1600, 48), "1600 = 48 × 33 \\+ 16"),
        ((768, 0), "n_heads = 0 is too small"),
        ((768.0, 12), "d_model = 768.0 is of type float"),
        (("768", 12), "d_model = '768' is of type str"),
        ((True, 1), "d_model = True is of type bool"),
        ((32768, 16), "d_model = 32768 is beyond the panel's slider: give at most 16384"),
        ((512, 512), "num_heads = 512 is beyond the panel's slider: give at most 256"),
    ],
)
def test_a_start_that_cannot_be_shown_is_refused_with_its_numbers(start, words):
    with pytest.raises(ValueError, match=words):
        partition(*start)


def test_a_control_and_its_view_must_start_at_the_same_value():
    panel = partition()
    panel.num_heads.value = 8
    with pytest.raises(ValueError, match="starts at 8, the view at 12"):
        kit.link(panel.num_heads, panel.view, "num_heads")


def test_a_question_needs_its_answer_among_its_options():
    with pytest.raises(ValueError, match="'6' is not among the options"):
        question("2 + 2?", {"4": "Counted."}, answer="6")
    assert [option["right"] for option in ASKED["options"]] == [True, False]


class Tags(HTMLParser):
    """Refuses markup whose tags do not close in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        if tag not in ("rect", "br", "hr", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in ("rect", "br", "hr", "img"):
            assert self.open.pop() == tag


def printed(panel) -> str:
    Tags(panel._twin)
    return re.sub(r"<[^>]+>", " ", panel._twin)


def test_the_printed_twin_tells_the_default_state_and_the_question():
    text = printed(partition(1600, 25, question=ASKED))
    assert "1600 columns cut into 25 heads of 64 columns each" in text
    assert "2 + 2?" in text
    assert "One too many." in text
    assert partition(1600, 25)._twin.count("<rect") == 25
    assert "2 + 2?" in printed(predict(ASKED))


def test_markup_in_a_question_is_shown_and_not_obeyed():
    panel = predict(question("a < b & <b>c</b>", {"<i>x</i>": "1 < 2", "y": ""}, answer="y"))
    assert "<b>c" not in panel._twin
    assert "<i>x" not in panel._twin


@pytest.mark.parametrize("name", ["partition", "predict"])
def test_a_view_is_one_module_with_no_import_left(name):
    text = kit.esm(name)
    assert not re.search(r"^\s*import\s", text, flags=re.M)
    assert text.count("export default") == 1


def test_a_view_without_the_kit_is_refused(tmp_path, monkeypatch):
    (tmp_path / "kit.js").write_text("export const a = 1;\n")
    (tmp_path / "odd.js").write_text('import { a } from "elsewhere";\n')
    monkeypatch.setattr(kit, "HERE", tmp_path)
    with pytest.raises(ValueError, match=r"odd\.js imports nothing from ./kit\.js: is that its place\?"):
        kit.esm("odd")


def test_the_state_that_travels_with_a_page_is_small():
    state = PartitionView().get_state()
    assert len(json.dumps({key: value for key, value in state.items() if not key.startswith("_")})) < 6000


def test_the_palette_reaches_the_views_from_its_one_source():
    from splitheads.palette import HEADS, ON_HEAD

    view = PartitionView()
    assert tuple(view.palette) == HEADS
    assert view.on_head == ON_HEAD


def test_the_floors_do_not_import_what_lies_above():
    """The rule and the palette load without torch, matplotlib or widgets; figures without torch or widgets."""
    import sys

    code = (
        "import sys; sys.path.insert(0, 'book'); import splitheads.{0}; "
        "print(sorted(set(sys.modules) & {{'torch', 'matplotlib', 'ipywidgets', 'anywidget', 'numpy'}}))"
    )
    from conftest import ROOT

    def loaded(module: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", code.format(module)], cwd=ROOT, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    assert loaded("partition") == "[]"
    assert loaded("palette") == "[]"
    assert loaded("figures") == "['matplotlib', 'numpy']"
    assert "torch" not in loaded("panels.partition")
