"""`python -m splitheads doctor`: a diagnosis from a shell.

The report goes to standard output. Exit status: 0 for the verdicts ok and warn, 1 for reject, 2 for input that is no
configuration, which costs one line on standard error.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Any, NoReturn, TextIO

from splitheads.doctor import ConfigError, Report, diagnose
from splitheads.doctor.keys import ALIASES, GROUPS, KEYS
from splitheads.doctor.values import show
from splitheads.words import grouped, nearest

PROGRAM = "splitheads doctor"
WIDTH = 80
LARGEST_FILE = 64 * 2**20
DEEPEST = 200
"""Levels of lists and objects in each other; no configuration has ten."""

USAGE = """\
usage: python -m splitheads doctor [--json] [CONFIG] [KEY=VALUE ...]

What a configuration means: whether it is legal and why, shapes, parameters,
KV-cache bytes, the attention kernel and its padding, how many GPUs share it.

CONFIG is a JSON object, a file that holds one, or - for standard input. It has
the keys below, or is the config.json of a Hugging Face model. KEY=VALUE adds a
key, or changes one of CONFIG's.

  --json   print one JSON object: verdict, derived, findings, factors, config
  --help   this text

Exit status: 0 for ok and warn, 1 for reject, 2 for unusable input.
"""
EXAMPLES = """
examples:
  python -m splitheads doctor d_model=1024 n_heads=12
  python -m splitheads doctor --json '{"model": "Llama 3 8B", "device": "a100"}'
  python -m splitheads doctor config.json tp=8 stack=hf
"""


class _Unusable(Exception):
    """Input that is no configuration; the message is the line to print."""


def main(arguments: list[str] | None = None, exiting: bool = False) -> int:
    """Run the command; returns the exit status. `exiting` is for the dispatcher: this command leaves nothing behind."""
    arguments = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError, OSError):
            stream.reconfigure(errors="replace")
    try:
        return _carry_out(arguments)
    except (_Unusable, ConfigError) as error:
        _say(f"{PROGRAM}: {_one_line(str(error))}", sys.stderr)
    except RecursionError:
        _say(f"{PROGRAM}: the input is nested too deeply to be a configuration.", sys.stderr)
    return 2


def _carry_out(arguments: list[str]) -> int:
    as_json, words = False, []
    for place, word in enumerate(arguments):
        if word in ("-h", "--help"):
            _say(help_text())
            return 0
        if word == "--":
            words += arguments[place + 1 :]
            break
        if word.startswith("--json="):
            as_json = True
            words.append(word.removeprefix("--json="))
        elif word == "--json":
            as_json = True
        elif word.startswith("-") and word != "-" and "{" not in word:
            raise _Unusable(
                f"there is no option {show(word)}. `python -m splitheads doctor --help` tells what there is."
            )
        else:
            words.append(word)
    report = diagnose(_configuration(words))
    if as_json:
        # Where the terminal has no "×", JSON has a way to write it all the same.
        utf8 = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "") == "utf8"
        _say(json.dumps(report.to_dict(), ensure_ascii=not utf8, allow_nan=False))
    else:
        _say(text(report))
    return 1 if report.verdict == "reject" else 0


def _configuration(words: list[str]) -> dict[str, Any]:
    """The configuration that the arguments give: a JSON object, file or standard input, and KEY=VALUE on top."""
    sources, pairs, written = [], {}, {}
    for word in words:
        key, is_pair, value = word.partition("=")
        # A file may have an equals sign in its name; a key is a plain word.
        if is_pair and re.fullmatch(r"\w{1,80}", key) and not _is_file(word):
            known = key if key in KEYS else ALIASES.get(key, key)
            if key in pairs:
                raise _Unusable(f"{key} is given twice: {show(written[key])} and {show(value)}.")
            written[key] = value
            pairs[key] = _from_word(known, value)
        else:
            sources.append(word)
    if len(sources) > 1:
        raise _Unusable(f"one configuration is due, not {len(sources)}: {show(sources[0])}, {show(sources[1])}, ...")
    if not sources:
        if not pairs:
            raise _Unusable(
                "no configuration. Give a JSON object, a file or KEY=VALUE, such as d_model=1024 n_heads=12; --help lists the keys."
            )
        return pairs
    given = _load(sources[0])
    if not pairs:
        return given
    from splitheads.doctor import looks_like_huggingface

    if looks_like_huggingface(given):
        return {"config": given, **pairs}
    # KEY=VALUE wins over the same key in the object, under whatever name.
    named = {ALIASES.get(key, key) for key in pairs}
    return {**{key: given[key] for key in given if ALIASES.get(key, key) not in named}, **pairs}


def _from_word(key: str, value: str) -> Any:
    """The value of KEY=VALUE: a text where the key wants one, JSON elsewhere."""
    kind = KEYS[key][0] if key in KEYS else "whole"
    if kind in ("model", "dtype", "device", "torch", "attention", "stack", "implementation"):
        return value
    if kind == "mask" and value.lower() not in ("true", "false"):
        return value
    try:
        return _parse(value.lower() if value.lower() in ("true", "false", "null", "none") else value, key)
    except _Unusable:
        return None if value.lower() == "none" else value


def _is_file(word: str) -> bool:
    with contextlib.suppress(OSError, ValueError):
        return Path(word).is_file()
    return False


def _load(source: str) -> dict[str, Any]:
    """The object in `source`: JSON itself, "-" for standard input, or the name of a file."""
    if source == "-":
        title, raw = "standard input", _stdin()
    elif source.lstrip()[:1] in ("{", "[", '"') or source.strip() in ("null", "true", "false") or not source.strip():
        title, raw = "the JSON", source
    else:
        title = f"{source[:200]}"
        raw = _file(source)
    found = _parse(raw, title)
    if not isinstance(found, dict):
        raise _Unusable(f'{title} is {show(found)}. Give an object, such as {{"d_model": 1024, "n_heads": 12}}.')
    return found


def _stdin() -> str:
    try:
        stream = getattr(sys.stdin, "buffer", None)
        raw = stream.read(LARGEST_FILE + 1) if stream is not None else sys.stdin.read(LARGEST_FILE + 1)
    except (OSError, ValueError, AttributeError):
        raise _Unusable("standard input cannot be read.") from None
    return _decoded(raw, "standard input")


def _file(name: str) -> str:
    try:
        path = Path(name)
        if path.is_dir():
            inside = path / "config.json"
            if not inside.is_file():
                raise _Unusable(f"{name} is a folder without a config.json. Name a file.")
            path = inside
        with path.open("rb") as file:
            raw = file.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        near = _near_files(name)
        hint = f" There is {near}." if near else ""
        raise _Unusable(f"there is no file {show(name)}.{hint} A configuration is JSON, a file or KEY=VALUE.") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not a file name"
        raise _Unusable(f"{show(name)} cannot be read: {reason}.") from None
    return _decoded(raw, name)


def _near_files(name: str) -> str:
    """A file beside the one that is not there, with nearly its name."""
    with contextlib.suppress(OSError, ValueError):
        folder = Path(name).parent
        names = [entry.name for _, entry in zip(range(200), os.scandir(folder), strict=False) if entry.is_file()]
        near = nearest(Path(name).name, [one for one in names if one.endswith(".json")], 1)
        return f"{show(near[0])} beside it" if near else ""
    return ""


def _decoded(raw: bytes | str, title: str) -> str:
    if len(raw) > LARGEST_FILE:
        raise _Unusable(f"{title} has more than {LARGEST_FILE >> 20} MiB: no configuration is that long.")
    if isinstance(raw, str):
        return raw
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _Unusable(f"{title} is not text in UTF-8: byte {error.start} cannot be read.") from None


def _parse(raw: str, title: str) -> Any:
    """JSON, strictly: no key twice, no NaN, no depth that a configuration cannot have."""
    if _depth(raw) > DEEPEST:
        raise _Unusable(f"{title} is nested more than {DEEPEST} levels deep. A configuration is one object.")
    try:
        return json.loads(raw, object_pairs_hook=_unique, parse_constant=_no_constant, parse_int=_integer)
    except json.JSONDecodeError as error:
        what = error.msg[:1].lower() + error.msg[1:]
        raise _Unusable(
            f"{title} is not JSON: {what} at line {error.lineno}, column {error.colno}{_excerpt(raw, error.pos)}."
        ) from None
    except RecursionError:
        raise _Unusable(f"{title} is nested too deeply to be a configuration.") from None


def _depth(raw: str) -> int:
    """How deep the JSON is nested, found without parsing it; 0 where it holds too few brackets to matter."""
    if raw.count("[") + raw.count("{") <= DEEPEST:
        return 0
    level = deepest = 0
    # A text counts as one piece, its end missing or not: that keeps this linear in whatever is given.
    for piece in re.finditer(r'"(?:[^"\\]+|\\.)*+"?|[\[{]|[\]}]', raw, re.DOTALL):
        if piece[0][0] in "[{":
            level += 1
            deepest = max(deepest, level)
        elif piece[0][0] in "]}":
            level -= 1
    return deepest


def _excerpt(raw: str, place: int) -> str:
    near = raw[place : place + 12]
    return f", at {show(near)}" if near.strip() else ", where it ends" if place >= len(raw.rstrip()) else ""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _Unusable(f"the key {show(key)} is there twice. Give it once.")
            seen.add(key)
    return found


def _no_constant(name: str) -> NoReturn:
    raise _Unusable(f"{name} is no number of JSON, and no value of a configuration.")


def _integer(digits: str) -> int:
    """A whole number; of more digits than any limit has, one that is as far out of range and prints."""
    if len(digits) > 400:
        raise _Unusable(f"a number of {len(digits)} digits is no value of a configuration. Give one of at most 8.")
    return int(digits)


# Printing -------------------------------------------------------------------------------------------


def help_text() -> str:
    """Usage, every key in its group with a line about it, examples."""
    lines = [USAGE]
    for group, title in GROUPS:
        lines.append(f"{title}:")
        for key, (_, of, about, example) in KEYS.items():
            if of == group:
                sample = json.dumps(example) if not isinstance(example, str) else example
                plain = "," in about or isinstance(example, bool) or len(about) + len(sample) > 43
                whole = about if plain else f"{about}, such as {sample}"
                lines += textwrap.wrap(whole, WIDTH, initial_indent=f"  {key:22} ", subsequent_indent=" " * 25)
        lines.append("")
    lines += textwrap.wrap(
        "Other names are read as these keys: " + ", ".join(ALIASES) + ".", WIDTH, break_on_hyphens=False
    )
    return "\n".join(lines) + "\n" + EXAMPLES.rstrip()


VERDICTS = {
    "ok": "legal, and nothing to warn of",
    "warn": "it runs, but read the warnings",
    "reject": "it raises, cannot be built or will not load",
}


def text(report: Report) -> str:
    """The report for people: verdict, findings, what follows, each quantity with its factors."""
    width = min(WIDTH, max(40, shutil.get_terminal_size((WIDTH, 24)).columns))
    told = report.to_dict()
    meaning = VERDICTS[report.verdict]
    if report.verdict == "ok" and "incomplete" in [finding.id for finding in report.findings]:
        meaning = "so far; too little is given for the shapes"
    lines = [f"{report.verdict.upper()}: {meaning}", ""]
    given = ", ".join(f"{key} {_plain(value)}" for key, value in told["config"].items())
    lines += [*_wrapped(given, width, "  ", "  "), ""] if given else []
    for finding in told["findings"]:
        lines += _wrapped(f"{finding['severity']:8} {finding['message']}", width, "", " " * 9)
        for way in finding["suggestions"]:
            lines += _wrapped(f"- {way}", width, " " * 9, " " * 11)
        about = [f"[{finding['id']}]"]
        about += [f"source: {finding['source']}"] if finding["source"] else []
        about += [f"chapter: {finding['chapter']}"] if finding["chapter"] else []
        lines += _wrapped("; ".join(about), width, " " * 9, " " * 9)
    lines += [""] if told["findings"] else []
    if told["derived"]:
        lines += ["What follows"]
        across = max(len(key) for key in told["derived"])
        for key, value in told["derived"].items():
            lines += _wrapped(f"{key:{across}}  {_number(value)}", width, "  ", " " * (across + 4))
    if told["factors"]:
        lines += ["", "Factors"]
        for factor in told["factors"]:
            lines += _wrapped(f"{factor['name']}: {factor['text']}", width, "  ", "    ")
    return "\n".join(lines)


def _wrapped(line: str, width: int, first: str, then: str) -> list[str]:
    """The line in pieces of at most `width`; a number keeps its threes and its unit together."""
    whole = re.sub(r"(?<=\d) (?=\d{3}\b|[KMGTPE]\b|bytes\b|[KMGTPE]iB\b)", "\0", line)
    pieces = textwrap.wrap(
        whole, width, initial_indent=first, subsequent_indent=then, break_long_words=False, break_on_hyphens=False
    )
    return [piece.replace("\0", " ") for piece in pieces]


def _number(value: Any) -> str:
    """A derived value: large counts in threes."""
    return grouped(value) if isinstance(value, int) and not isinstance(value, bool) else _plain(value)


def _plain(value: Any) -> str:
    """A value for people: lists and objects in short, numbers as they are."""
    if isinstance(value, (list, tuple)):
        words = [_plain(one) for one in value[:24]]
        return f"[{', '.join(words)}{', ...' if len(value) > 24 else ''}]"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(one)}" for key, one in list(value.items())[:12])
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value)


def _one_line(message: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", " ", message)).strip()


def _say(line: str, stream: TextIO | None = None) -> None:
    """Print. Nobody may be there to read it (`| head`): that changes no verdict. A full disk is an error."""
    stream = stream or sys.stdout
    try:
        print(line, file=stream, flush=True)
    except (OSError, ValueError, AttributeError) as error:
        # What is still in the buffer would raise once more when Python ends.
        with contextlib.suppress(OSError, ValueError, AttributeError), open(os.devnull, "w") as sink:
            os.dup2(sink.fileno(), stream.fileno())
        if stream is sys.stdout and isinstance(error, OSError) and error.errno not in (errno.EPIPE, errno.EBADF):
            raise _Unusable(f"the report cannot be written: {error.strerror or error}.") from None
