"""The timing lab's rules for a page that measures by itself: analysis, validation, summary, in JavaScript.

`rules()` is the text of `const timingRules`. Its functions are Python's own, translated (`translate.py`), so a sweep that
the page timed by WebGPU is judged as one that `python -m splitheads time` wrote. They take and return plain JSON values:

    parse_text(text, name)                the recording in a text, checked: record.parse_text
    validate(recording)                   nothing, or an Error with record.RecordError's sentence
    summary(recording, name)              what the chart draws and tells: recorded.summary
    group(points)                         the lines of the chart: recorded.group
    order_statistics(n, confidence)       [k, coverage]: analyse.order_statistics
    median_limits(samples, confidence)    [median, low, high, coverage]: analyse.median_limits

JSON has one kind of number for JavaScript: 20.0 is 20 there, a whole number. Nothing else differs.
"""

from __future__ import annotations

from functools import cache

from ..timing.analyse import median_limits, order_statistics
from ..timing.record import parse_text, validate
from .recorded import group, summary
from .translate import javascript

READER = r"""(text) => {
  // JSON as Python's json module reads it, with its words for what is wrong: a browser's own words differ, and its
  // JSON.parse takes a key twice, and rounds whole numbers beyond 2 ** 53.
  let at = 0;
  const fail = (wrong, place = at) => { throw [wrong, typeof place === "number" ? [...text.slice(0, place)].length : place]; };
  const skip = (pattern) => { pattern.lastIndex = at; const [found] = pattern.exec(text); at += found.length; return found; };
  const space = () => skip(/[ \t\n\r]*/y);
  const ESCAPES = { '"': '"', "\\": "\\", "/": "/", b: "\b", f: "\f", n: "\n", r: "\r", t: "\t" };
  const CONSTANTS = { null: null, true: true, false: false };

  function string() {
    const begin = at++;
    for (let made = ""; ;) {
      made += skip(/[^"\\\x00-\x1f]*/y);
      if (text[at] === '"') { at++; return made; }
      if (at + (text[at] === "\\") >= text.length) fail("unterminated string starting at", begin);
      if (text[at] !== "\\") fail("invalid control character at");
      const c = text[at + 1];
      if (c !== "u" && !Object.hasOwn(ESCAPES, c)) fail("invalid \\escape");
      const code = text.slice(at + 2, at + 6);
      if (c === "u" && (at + 6 >= text.length || !/^[\da-f]{4}$/i.test(code))) fail("invalid \\uxxxx escape", at + 1);
      made += c === "u" ? String.fromCharCode(parseInt(code, 16)) : ESCAPES[c];
      at += c === "u" ? 6 : 2;
    }
  }
  function several(close, one) {
    const made = [];
    at++;
    space();
    while (text[at] !== close || made.length) {
      made.push(one());
      space();
      if (text[at] === close) break;
      if (text[at] !== ",") fail("expecting ',' delimiter");
      at++;
      space();
    }
    at++;
    return made;
  }
  function value(depth) {
    if (depth > 900) fail("deep", null); // about where Python gives up
    if (text[at] === '"') return string();
    if (text[at] === "[") return several("]", () => value(depth + 1));
    if (text[at] === "{") {
      const pairs = several("}", () => {
        if (text[at] !== '"') fail("expecting property name enclosed in double quotes");
        const key = string();
        space();
        if (text[at] !== ":") fail("expecting ':' delimiter");
        at++;
        space();
        return [key, value(depth + 1)];
      });
      const made = new Dict(pairs);
      const names = pairs.map(([key]) => key);
      if (made.length < names.length) fail("twice", names.find((key, i) => names.includes(key, i + 1)));
      return made;
    }
    const word = skip(/(?:null|true|false|NaN|-?Infinity)?/y);
    if (Object.hasOwn(CONSTANTS, word)) return CONSTANTS[word];
    if (word) fail("constant", word);
    const digits = skip(/(?:-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?)?/y);
    if (!digits) fail("expecting value");
    if (/[.eE]/.test(digits)) return Number(digits);
    if (digits.replace("-", "").length > 4300) fail("digits", null);
    return $.int(digits);
  }

  try {
    space();
    const found = value(0);
    space();
    if (at < text.length) fail("extra data");
    return [found, "", null];
  } catch (found) {
    if (!Array.isArray(found)) throw found;
    return [null, ...found];
  }
}"""
"""`record._json` in JavaScript."""

REPLACED = {
    ("splitheads.timing.record", "_json"): READER,
    # Only sizes that `validate` has seen come here.
    ("splitheads.backends", "_width"): "(d) => d",
}

PLAIN = """
// A chart takes no BigInt.
const plain = (x) => JSON.parse(JSON.stringify(x, (_, one) => (typeof one === "bigint" ? Number(one) : one)));
"""


@cache
def rules() -> str:
    """An ES text that declares `const timingRules`."""
    functions = [parse_text, validate, summary, group, order_statistics, median_limits]
    text = javascript("translated", functions, REPLACED, helpers=())
    shown = "summary: (...given) => plain(translated.summary(...given))"
    return f"const timingRules = (() => {{\n{text}{PLAIN}return {{ ...translated, {shown} }};\n}})();\n"
