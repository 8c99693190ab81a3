"""Python for test_translate.py: every construct that the translation knows, asked what it says to awkward values."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import pairwise
from statistics import NormalDist

from splitheads import words

TABLE = {"b": 1, "a": [2, 3], "__proto__": None}
LIMITS = {("x", "sm90"): (1, 2)}
NEAR, FAR = "near", "far"
QUANTILE = NormalDist().inv_cdf


@dataclass(frozen=True)
class Point:
    x: int
    y: int = 2
    name: str = "p"

    @property
    def total(self) -> int:
        return self.x + self.y

    def times(self, n):
        return self.total * n


@dataclass(frozen=True)
class Rule:
    id: str
    refuses: object
    text: str = "{x} and {y:g}"


RULES = (
    Rule("big", lambda p: p.x > (limit := p.y) or p.x < -limit),
    Rule("odd", lambda p: p.x % 2 == 1, text="odd {x}"),
)
STRICT = replace(RULES[0], id="strict")


@dataclass(frozen=True)
class Line:
    case: str
    new: int = 1


class Box:
    def __init__(self, content, path="") -> None:
        self.content: dict = content
        self.path = path

    def at(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def number(self, key, least=None, most=None, none=False):
        value = self.content.get(key)
        if value is None and none:
            return "none"
        return [self.at(key), value, least is None or value >= least, most is None or value <= most]


class Fault(ValueError):
    argument = None
    near = ()

    def __init__(self, message: str, **facts) -> None:
        super().__init__(message)
        vars(self).update(facts)


class Lost(LookupError):
    def __init__(self, message: str, nearest=None, around=()) -> None:
        super().__init__(message)
        self.nearest, self.around = nearest, around


def arithmetic(a, b):
    found = [a + b, a - b, a * b, -a, abs(a), a < b, a <= b, a == b, a != b, min(a, b), max(a, b), bool(a), not a]
    if b:
        found += [a // b, a % b, a / b, list(divmod(a, b))]
    if isinstance(a, int) and isinstance(b, int) and 0 <= b < 50:
        found += [a**b, a << b, math.gcd(a, b), a.bit_length()]
    if isinstance(a, int) and a >= 0:
        found += [math.isqrt(a), math.prod([a, a, 3])]
    return found


def printed(x):
    found = [
        f"{x:g}",
        f"{x:.3g}",
        f"{x:.2f}",
        f"{x:.0f}",
        f"{x:.1f}",
        round(x),
        f"{x:.0%}",
        f"{x:.{2}g}",
        f"{x!r}",
        str(x),
    ]
    if isinstance(x, int):
        found += [f"{x}", f"{x:,}", f"{x:d}", f"{x!r}", f"{x:>12}|", f"{x:<12}|", words.grouped(x), str(x)]
        if x >= 0:
            found += [words.size_text(x), words.count_text(x), words.plural(x, "head")]
    return found


def plainly(x):
    return [f"{x}", f"{x!r}", str(x), [x], f"{[x]}", f"{x:g}", f"{x:.3g}", type(x).__name__]


def text(s):
    found = [
        s.strip(),
        s.split(),
        s.split(","),
        s.lower(),
        s.upper(),
        s.replace("a", "bb"),
        len(s),
        s[1:],
        s[:-1],
        s[-3:],
    ]
    found += [
        s.startswith("a"),
        s.endswith(("b", "c")),
        s.removeprefix("a"),
        s.partition(","),
        s.isdigit(),
        s.isalnum(),
    ]
    found += [
        ",".join(sorted(s)),
        s.find("b"),
        s.count("a"),
        "a" in s,
        repr(s),
        f"{s!r} {s}",
        s * 2,
        list(s),
        s == "abc",
    ]
    found += [
        s.rstrip("c"),
        s.lstrip("a"),
        [letter for letter in s if letter != "a"],
        words.nearest(s, ["abc", "n_heads"]),
    ]
    match = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", s)
    found += [match and [match[1], *match.groups()], bool(re.search(r"\bsm\d", s)), re.sub(r"[\s_-]+", " ", s)]
    return [*found, re.fullmatch(r"[a-z]+", s) is None, f"{s:>8}|{s:<8}|{s:.2}", partitioned(s)]


def spaces(s):
    return [s.strip(), s.lstrip(), s.rstrip(), s.split()]


def partitioned(s):
    head, *rest = s.split(",", 1)
    return {"head": head, "rest": rest}


def flow(numbers):
    seen, i = [], 0
    for number in numbers:
        if number == 3:
            continue
        if number > 7:
            break
        seen.append(number)
    while i < 3:
        i += 1
        if i == 2:
            continue
        seen.insert(0, i)
    pairs = {f"k{n}": n for n in numbers if n % 2 if n > 1}
    first, *others = [*numbers, 0]
    row = list(numbers)
    last, row[0] = row[0], -1
    row[-1] += 5
    nested = [(a, b) for a in numbers for b in range(a) if a + b < 6]
    best = max(numbers, key=lambda n: (n % 3, -n), default=None)
    return [seen, pairs, first, others, last, row, nested, best, list(counted(numbers)), (any(n > 4 for n in numbers) and "any") or "none",
            sum(n * n for n in numbers), sorted(numbers, key=lambda n: (-n % 4, n), reverse=True), list(enumerate(numbers, start=1)),
            list(zip(numbers, reversed(numbers), strict=True)), next((n for n in numbers if n > 2), None), 1 < len(numbers) <= 3, [*map(str, numbers)]]  # fmt: skip


def counted(numbers):
    yield "start", len(numbers)
    for number in numbers:
        if number:
            yield f"{number}", number
    yield from [("end", None)]


def boxes(given):
    own = {"x": 1, **TABLE, "deep": {"y": [1, {"z": 2}]}}
    own["x"] += 1
    own.update({"new": given})
    found = [
        own.get("none"),
        own.get("x", 5),
        "a" in own,
        own["deep"]["y"][1]["z"],
        list(own.items()),
        own.pop("x"),
        own,
    ]
    found += [
        LIMITS.get(("x", "sm90"), (0, 0)),
        LIMITS.get(("x", "sm80")),
        len(own),
        own == TABLE,
        dict(TABLE) == TABLE,
    ]
    kinds = [
        isinstance(given, bool),
        isinstance(given, int),
        isinstance(given, (str, list, dict)),
        given is None,
        type(given).__name__,
    ]
    truth = [bool(given), given or "empty", given and "full", "yes" if given else "no", not given]
    return [*found, kinds, truth, type(given) in (list, dict), words.listing(list(own))]


def objects(x, y):
    point = Point(x, y=y)
    other = replace(point, name="q")
    fired = [rule.id for rule in (*RULES, STRICT) if rule.refuses(point)]
    return [
        point.total,
        point.times(2),
        other.name,
        point == Point(x, y),
        point == other,
        fired,
        RULES[0].text.format_map({"x": x, "y": y}),
    ]


def faults(n):
    try:
        return ["fine", checked(n)]
    except Fault as error:
        return ["fault", str(error), error.argument, error.near, isinstance(error, ValueError)]
    except (Lost, KeyError) as error:
        return ["lost", error.nearest if isinstance(error, Lost) else None, isinstance(error, LookupError)]


def checked(n):
    if n == 0:
        raise Fault(f"n = {n} is nothing", argument="n", near=(1, 2))
    if n == 1:
        raise Lost("lost", "two", around=(1,))
    if n == 2:
        return TABLE["missing"]
    try:
        checked(n - 1) if n < 5 else None
    except Lost:
        raise Fault("was lost") from None
    return n


CALLS = []


@lru_cache(maxsize=8)
def kept(n):
    return [n, n * n]


@cache
def once():
    CALLS.append(1)
    return len(CALLS)


def rows(numbers):
    shared = {}
    for number in numbers:
        shared.setdefault((number % 3, f"{number}"), []).append(number)
    shared.update(zip(("a", "b"), numbers, strict=False))
    shared.update({"c": NEAR, "d": FAR})
    seen = dict.fromkeys(number % 4 for number in numbers)
    halves = [[n, half] for n in numbers if (half := n // 2) and half > 1]
    pairs = [(a, b, c) for a in numbers if (c := a + 1) > 3 for b in (c, a)]
    kept = list(filter(None, numbers)) + list(filter(lambda n: n > 4, numbers))
    return [list(shared.items()), list(seen), halves, pairs, kept, [b - a for a, b in pairwise(numbers)],
            dict.fromkeys(numbers, 7) == dict.fromkeys(numbers), [number.is_integer() for number in (0.5, float(len(numbers)) / 2)],
            sorted(numbers, key=lambda n: (n % 3, n)), 1 - 2 * 0.5 ** len(numbers)]  # fmt: skip


def keyed(value):
    box = Box({"a": value, "n": None}, path="box")
    line = Line("plain", new=value)
    return [
        box.number("a", most=3),
        box.number("a", 2, none=True),
        [box.number(key, none=True) for key in ("n",)],
        line.case,
        line.new,
        Line("x") == Line(case="x", new=1),
    ]


def deep(n):
    try:
        return endless(n)
    except RecursionError:
        return "too deep"


def endless(n):
    return n if n < 3 else endless(n + 1)


def keys(number):
    """Whole numbers of any size in the key of a dictionary."""
    places = {(number, "a"): 1, (f"{number}", "a"): 2, number: 3}
    return [places[number, "a"], places[f"{number}", "a"], places[number], (number + 1, "a") in places]


def measured(x):
    return [math.lgamma(x), math.log(x), math.exp(-x), math.hypot(x, 2), QUANTILE(1 / (1 + x)), QUANTILE(1 - 2**-53)]
