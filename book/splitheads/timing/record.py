"""Recordings of the timing lab: one JSON file per run, schema version 1.

A recording holds device, software, plan, method, ceilings and every point with its interval. It is
checked whenever it is written or read, down to what can be worked out again from the rest: the
operations of a point follow from its shape, the agreement with the predictions from the points.
Whatever is wrong is one sentence, a `RecordError`; nothing else is ever raised for a bad file.

Times are seconds per call. Operations are counted by the usual convention (see `flops`).
Standard library only. `parse_text`, `validate` and all that they use are translated for the page, too (`panels/translate.py`),
so they keep to its part of Python.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import stat
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..backends import BACKENDS, DTYPES
from ..partition import _ShortRepr

SCHEMA = 1
KIND = "splitheads.timing"
MAX_BYTES = 50_000_000
"""Largest file that is read. A sweep of ten thousand points takes about 4 MB."""
MAX_POINTS = 10_000
"""Most points of a plan, and of its recording."""
MOST = 2**64
LARGEST = sys.float_info.max
"""The largest finite number. Whole numbers can be larger, and no time is."""
MOST_REPEATS = 10**9
LEAST_SECONDS, MOST_SECONDS = 1e-12, 1e9
"""What a time can be: from less than one clock cycle to 30 years."""
MOST_RATE = 1e24
"""FLOP or bytes per second: above what all computers of the world do together."""
MOST_SPREAD = 1e6
"""Upper over lower limit of an interval. Beyond it, nothing was measured."""

DEVICE_TYPES = ("cpu", "cuda", "mps", "webgpu")
DIRECTIONS = ("forward", "forward+backward")
CASES = ("plain", "causal", "mask", "dropout", "gqa", "value_width", "strided", "unbatched")
STATUSES = ("ok", "skipped", "failed")
ENDS = ("complete", "budget", "interrupted")

WIDE_INTERVAL = "wide interval"
"""Flag: the budget ran out before the interval was as tight as the plan asked."""
ABOVE_CEILING = "above ceiling"
"""Flag: more operations per second than the ceiling measured in the same run, by over 5 % (`CEILING_SLACK`)."""
CEILING_SLACK = 1.05

FOLDER = Path(__file__).resolve().parents[2] / "recordings"
"""Where the recordings that belong to the book lie."""


class RecordError(ValueError):
    """This is not a recording that can be used, or one that could not be written. One sentence says why.

    `kept` is the path where the data of a failed `save` was put instead; None where there is none.
    """

    def __init__(self, message: str, kept: Path | None = None) -> None:
        super().__init__(message)
        self.kept = kept


def flops(
    batch: int, n_heads: int, seq_len: int, d_head: int, d_head_v: int, case: str = "plain", direction: str = "forward"
) -> int:
    """Useful operations of one call: 2 · batch · n_heads · seq_len² · (d_head + d_head_v), in FLOP.

    `n_heads` counts query heads; padding to a wider kernel is not useful work and does not count.
    "causal" needs half of the score matrix, and is counted as half. Forward and backward together
    are 3.5 times the forward pass (backward 2.5 times). These are the conventions of
    FlashAttention's own benchmarks (Dao-AILab/flash-attention, benchmarks/benchmark_flash_attention.py).
    """
    forward = 2 * batch * n_heads * seq_len * seq_len * (d_head + d_head_v)
    if case == "causal":
        forward //= 2
    return forward if direction == "forward" else forward * 7 // 2


def agreement(points: list[dict]) -> dict:
    """How often the observed backend was the predicted one, over the points that have both."""
    compared = [p for p in points if p["status"] == "ok" and p.get("observed") and p.get("predicted")]
    differ = [p for p in compared if p["observed"] != p["predicted"]]
    keys = ("case", "backend", "direction", "seq_len", "d_head", "d_head_v", "observed", "predicted")
    return {
        "compared": len(compared),
        "agree": len(compared) - len(differ),
        "differ": [{key: p[key] for key in keys} for p in differ],
    }


def title(recording: dict) -> str:
    """One line that tells recordings apart: device, dtype, directions, torch version, date."""
    device, software, plan = recording["device"], recording["software"], recording["plan"]
    torch = f", torch {software['torch']}" if software.get("torch") else ""
    directions = " and ".join(plan["directions"])
    return f"{device['name']} ({device['type']}): {plan['dtype']}, {directions}{torch}, {recording['created'][:10]}"


# Reading ------------------------------------------------------------------------------------------


def load(path: str | os.PathLike[str]) -> dict:
    """The recording in the file `path`, checked.

    Raises:
        RecordError: there is no such file, or it is cut short, foreign, of a newer schema, edited
            so that it contradicts itself, or holds numbers that cannot be.
    """
    return parse_text(_read(path), _name(path))


def parse_text(text: str, name: str) -> dict:
    """The recording in a text, checked; `name` is what messages call it. Raises RecordError as `load` does."""
    text = text.removeprefix("\ufeff")  # an editor's byte order mark
    if not text.strip():
        raise RecordError(f"{name} is empty: copy it again.")
    recording, wrong, at = _json(text)
    if wrong == "deep":
        raise RecordError(f"{name} is nested too deeply to be a recording: take the file that the lab wrote.")
    if wrong == "digits":
        raise RecordError(f"{name} holds a number of thousands of digits: take the file that the lab wrote.")
    if wrong == "constant":
        raise RecordError(f"{name}: {at} is not a number that can be measured: take the file that the lab wrote.")
    if wrong == "twice":
        raise RecordError(
            f"{name}: {_show(at)} is given twice in one place, so the file was edited: take the one the lab wrote."
        )
    if wrong:
        line = text[:at].count("\n") + 1
        if _cut_short(text, at):
            raise RecordError(f"{name} ends in the middle, at line {line}: copy it again.")
        raise RecordError(
            f"{name} is not JSON ({wrong}, line {line}): it is no recording, or it was edited; "
            "take the file that the lab wrote."
        )
    try:
        validate(recording)
    except RecordError as error:
        raise RecordError(f"{name}: {error}") from None
    return recording


def _name(path: Any) -> str:
    """The path as text, or RecordError for what is none."""
    try:
        return os.fsdecode(path)
    except (TypeError, ValueError):
        raise RecordError(f'path = {_show(path)} is no path: give the name of a file, such as "run.json".') from None


def _read(path: str | os.PathLike[str]) -> str:
    name = _name(path)
    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            raise RecordError(f"{name} is a folder: name one of the .json files in it.")
        if not stat.S_ISREG(status.st_mode):  # a pipe or a device might never end
            raise RecordError(f"{name} is not a regular file: save the recording to one first.")
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except RecordError:
        raise
    except FileNotFoundError:
        raise RecordError(f"{name} does not exist: check the name and the folder.") from None
    except OSError as error:
        raise RecordError(f"{name} cannot be read ({error.strerror}): check the path and its permissions.") from None
    except ValueError:  # a null character in the path
        raise RecordError(f"{name!r} is no name for a file: check the name.") from None
    if len(data) > MAX_BYTES:
        raise RecordError(
            f"{name} has more than {MAX_BYTES // 10**6} MB, and no recording is that large: name the right file."
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if error.end == len(data) and error.reason == "unexpected end of data":
            raise RecordError(f"{name} ends in the middle of a character: copy it again.") from None
        raise RecordError(
            f"{name} is not a text file in UTF-8 (byte {error.start}): take the file that the lab wrote."
        ) from None


def _json(text: str) -> tuple[Any, str, Any]:
    """(value, "", None), or (None, what is wrong, the place or the thing).

    The page has a reader of its own for this (`panels/browser_rules.py`), with the same answers.
    """
    try:
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_no_duplicates), "", None
    except json.JSONDecodeError as error:
        return None, error.msg.lower(), error.pos
    except RecursionError:
        return None, "deep", None
    except _Refused as error:
        return None, *error.args
    except ValueError:  # Python refuses to read integers of more than 4300 digits
        return None, "digits", None


class _Refused(Exception):
    """JSON that Python reads and a recording may not hold: what is wrong, and the thing."""


def _no_constant(token: str) -> None:
    raise _Refused("constant", token)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict:
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        raise _Refused("twice", next(name for name in names if names.count(name) > 1))
    return made


def _cut_short(text: str, at: int) -> bool:
    bare = text.strip()
    return bare.startswith("{") and (at >= len(text.rstrip()) or not bare.endswith("}"))


@dataclass(frozen=True)
class Recorded:
    """A recording in a folder: where it lies, one line about it, and its content."""

    path: Path
    title: str
    recording: dict


def recordings(folder: str | os.PathLike[str] | None = None) -> tuple[Recorded, ...]:
    """All recordings (*.json) of a folder, by default the book's own: those of GPUs first, then by name.

    Of one CPU, fp32 comes first. A folder that does not exist holds none. Raises RecordError for the first file that is not in order.
    """
    place = FOLDER if folder is None else Path(_name(folder))
    if not place.is_dir():
        return ()
    found = [Recorded(path, title(recording), recording) for path in files(place) for recording in [load(path)]]
    return tuple(sorted(found, key=lambda one: rank(one.recording)))


def files(folder: Path) -> list[Path]:
    """The files of a folder that are recordings by their names, sorted; half-written ones begin with a dot."""
    return sorted(p for p in folder.glob("*.json") if not p.name.startswith("."))


def rank(recording: dict) -> tuple:
    """A key to sort recordings by, for readers: GPUs before CPUs, then by name; of one CPU, fp32 first."""
    device, on_cpu = recording["device"], recording["device"]["type"] == "cpu"
    return on_cpu, device["name"], on_cpu and recording["plan"]["dtype"] != "fp32"


# Checking -----------------------------------------------------------------------------------------


def validate(recording: Any) -> None:
    """Check a recording: its form, its numbers, and that what can be worked out again agrees.

    Keys that schema 1 does not name are left alone.

    Raises:
        RecordError: one sentence with the place, the value, and a way out.
    """
    try:
        _validate(recording)
    except RecursionError:
        raise RecordError("The data are nested too deeply to be a recording: take what the lab wrote.") from None


def _validate(recording: Any) -> None:
    _kind(recording)
    root = _Place(recording, "")
    _created(root)
    root.text("command", empty=True)
    root.number("duration_s", low=0, high=MOST_SECONDS)
    root.choice("ended", ENDS)
    webgpu = _device(root.object("device"))
    software = root.object("software")
    for key in ("python", "torch", "build", "cuda", "cudnn", "splitheads", "system"):
        software.text(key, none=True)
    if not webgpu and not software.value["torch"]:
        raise software.wrong("torch", 'must name the version of PyTorch that ran, such as "2.13.0"')
    plan = _plan(root.object("plan"), webgpu)
    _method(root.object("method"))
    ceilings = root.object("ceilings")
    limit = None
    for key in ("matmul_flops_per_s", "copy_bytes_per_s"):
        if ceilings.need(key) is not None:
            ceiling = ceilings.object(key)
            _interval(ceiling, "median", "interval", 1, MOST_RATE)
            ceiling.integer("repeats", low=1, high=MOST_REPEATS)
            ceiling.text("what")
            limit = ceiling.value["median"] if key == "matmul_flops_per_s" else limit
    points = root.list("points", MAX_POINTS)
    seen: dict[tuple, int] = {}
    planned = {of: dict.fromkeys(plan[of]) for of in _SHAPE.values()}
    for i, value in enumerate(points):
        point = _Place(value, f"points[{i}]")
        key = _point(point, plan, planned, limit, webgpu)
        if key in seen:
            raise RecordError(
                f"points[{seen[key]}] and points[{i}] are the same point ({point.value['case']}, {point.value['backend']}, "
                f"d_head = {point.value['d_head']}): remove one, or take the file that the lab wrote."
            )
        seen[key] = i
    _agreement(root.object("agreement"), points)
    # Half of the repeats took at least the median, so the run cannot have been shorter than that.
    least = sum(p["median_s"] * p["repeats"] / 2 for p in points if p["status"] == "ok")
    if least > 1.05 * recording["duration_s"] + 0.1:
        raise RecordError(
            f"duration_s = {recording['duration_s']:g}, but the repeats of the points alone take over {least:.3g} s: "
            "the file was edited; take the one that the lab wrote."
        )


def _kind(recording: Any) -> None:
    if not isinstance(recording, dict):
        raise RecordError(
            f"The top level is {_named(recording)}, not an object: this is no recording of the timing lab; name another file."
        )
    if recording.get("kind") != KIND:
        found = f'"kind" is {_show(recording["kind"])}' if "kind" in recording else 'there is no "kind"'
        raise RecordError(
            f"This is no recording of the timing lab ({found}, where {_show(KIND)} is due): name another file."
        )
    schema = recording.get("schema")
    if type(schema) is not int or schema < 1:
        raise RecordError(f"schema = {_show(schema)} is no schema version: record again with this version.")
    if schema > SCHEMA:
        raise RecordError(
            f"schema = {_show(schema)} was written by a newer version, and this one reads up to {SCHEMA}: update splitheads."
        )


def _created(root: _Place) -> None:
    if not _is_moment(root.text("created")):
        raise root.wrong("created", 'must be a moment in UTC such as "2026-11-30T22:50:00Z"')


_MOMENT = (
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[T ]"
    r"([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.,][0-9]+)?)?(Z|[+-]([01][0-9]|2[0-3]):?[0-5][0-9])"
)


def _is_moment(text: str) -> bool:
    """A date and a time with its zone, as ISO 8601 writes them with hyphens and colons."""
    found = re.fullmatch(_MOMENT, text)
    if not found:
        return False
    year, month, day = int(found[1]), int(found[2]), int(found[3])
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    days = [31, 29 if leap else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    return year >= 1 and 1 <= month <= 12 and 1 <= day <= days[month - 1]


def _device(device: _Place) -> bool:
    device.choice("type", DEVICE_TYPES)
    device.text("name")
    device.text("key", none=True)
    device.text("driver", none=True)
    device.integer("threads", low=1, none=True)
    device.integer("memory_bytes", low=0, none=True)
    device.need("clocks")
    return device.value["type"] == "webgpu"


def _plan(plan: _Place, webgpu: bool) -> dict:
    plan.choice("dtype", DTYPES)
    for key in ("batch", "n_heads"):
        plan.integer(key, low=1)
    for key in ("seq_lens", "d_heads"):
        values = plan.list(key)
        for i, value in enumerate(values):
            if type(value) is not int or not 1 <= value <= MOST:
                raise _wrong(plan.at(f"{key}[{i}]"), value, "must be a whole number from 1 to 2**64")
    allowed: dict[str, tuple[str, ...] | None] = {"directions": DIRECTIONS, "cases": CASES}
    allowed["backends"] = None if webgpu else ("auto", *BACKENDS)  # a WebGPU page has kernels of its own
    for key, names in allowed.items():
        for i, value in enumerate(plan.list(key)):
            if not isinstance(value, str) or not value or (names and value not in names):
                due = f"must be one of {', '.join(names)}" if names else "must be text"
                raise _wrong(plan.at(f"{key}[{i}]"), value, due)
    plan.number("budget_s", above=0, high=MOST_SECONDS)
    plan.integer("seed")
    return plan.value


def _method(method: _Place) -> None:
    for key in ("clock", "statistic", "interval", "order", "inputs", "warmup"):
        method.text(key)
    if method.value["statistic"] != "median":
        raise method.wrong("statistic", 'must be "median"')
    method.number("confidence", low=0.5, below=1)
    method.number("target_width", above=0, high=MOST_SPREAD, none=True)


def _interval(place: _Place, median: str, interval: str, least: float, most: float) -> None:
    """Check a median and the two limits around it: each from `least` to `most`, and not absurdly far apart."""
    place.number(median, above=0, low=least, high=most)
    ends = place.list(interval)
    if len(ends) != 2:
        raise place.wrong(interval, "must be two numbers, the lower and the upper limit")
    low, high = (
        _number(place.at(f"{interval}[{i}]"), end, above=0, low=least, high=most) for i, end in enumerate(ends)
    )
    middle = place.value[median]
    if not low <= middle <= high:
        raise place.wrong(interval, f"must lie around {median} = {middle!r}; take the file that the lab wrote")
    if high > MOST_SPREAD * low:
        raise place.wrong(interval, f"is wider than a factor of {MOST_SPREAD:g}; take the file that the lab wrote")


_SHAPE = {"case": "cases", "backend": "backends", "direction": "directions", "seq_len": "seq_lens", "d_head": "d_heads"}
"""What a point has one of, and the plan lists."""


def _point(point: _Place, plan: dict, planned: dict[str, dict], limit: float | None, webgpu: bool) -> tuple:
    for key, of in _SHAPE.items():
        value = point.need(key)
        if type(value) not in (int, str) or value not in planned[of]:
            raise point.wrong(key, f"is not among plan.{of}; take the file that the lab wrote")
    values = point.value
    width = point.integer("d_head_v", low=1)
    if (width == values["d_head"]) == (values["case"] == "value_width"):
        rule = "must differ from" if values["case"] == "value_width" else "must equal"
        raise point.wrong("d_head_v", f"{rule} d_head = {values['d_head']} in the case {values['case']!r}")
    point.choice("status", STATUSES)
    for i, flag in enumerate(point.list("flags")):
        if not isinstance(flag, str):
            raise _wrong(point.at(f"flags[{i}]"), flag, "must be text")
    for key in ("observed", "predicted"):
        name = point.text(key, none=True)
        if name is not None and not webgpu and name not in BACKENDS:
            raise point.wrong(key, f"must be null or one of {', '.join(BACKENDS)}")
    bucket = point.integer("bucket", low=1, none=True)
    if bucket is not None and bucket < values["d_head"]:
        raise point.wrong("bucket", f"is narrower than d_head = {values['d_head']}; take the file that the lab wrote")
    point.integer("peak_bytes", low=0, none=True)
    key = tuple(values[name] for name in (*_SHAPE, "d_head_v"))
    if values["status"] != "ok":
        point.text("reason")
        for name in ("median_s", "interval_s"):
            if point.need(name) is not None:
                raise point.wrong(name, f"must be null, because this point is {values['status']!r}")
        return key
    point.text("reason", none=True)
    _interval(point, "median_s", "interval_s", LEAST_SECONDS, MOST_SECONDS)
    point.integer("repeats", low=1, high=MOST_REPEATS)
    count = point.integer("flops", low=1)
    due = flops(
        plan["batch"], plan["n_heads"], values["seq_len"], values["d_head"], width, values["case"], values["direction"]
    )
    if abs(count - due) > 1:
        raise point.wrong("flops", f"does not fit the shape, which takes {due}; take the file that the lab wrote")
    if (
        limit is not None
        and count / values["median_s"] > CEILING_SLACK * limit
        and ABOVE_CEILING not in values["flags"]
    ):
        raise RecordError(
            f"{point.path}: median_s = {values['median_s']!r} would be {count / values['median_s']:.3g} FLOP/s, more than "
            f"this device can do ({limit:.3g}, ceilings.matmul_flops_per_s): take the file that the lab wrote."
        )
    return key


def _agreement(given: _Place, points: list[dict]) -> None:
    due = agreement(points)
    for key in ("compared", "agree"):
        if given.integer(key, low=0) != due[key]:
            raise given.wrong(key, f"does not fit the points, which give {due[key]}; take the file that the lab wrote")
    listed = given.list("differ")
    if len(listed) != len(due["differ"]):
        raise given.wrong("differ", f"must list the {len(due['differ'])} points that differ from the prediction")
    for i, (entry, point) in enumerate(zip(listed, due["differ"], strict=True)):
        if not isinstance(entry, dict) or any(entry.get(key) != value for key, value in point.items()):
            raise _wrong(given.at(f"differ[{i}]"), entry, "does not fit the points; take the file that the lab wrote")


class _Place:
    """An object inside the recording, with the path that names it in messages."""

    def __init__(self, value: Any, path: str) -> None:
        if not isinstance(value, dict):
            raise RecordError(f"{path} is {_named(value)}, where an object is due: take the file that the lab wrote.")
        self.value: dict = value
        self.path = path

    def at(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def wrong(self, key: str, why: str) -> RecordError:
        return _wrong(self.at(key), self.value.get(key), why)

    def need(self, key: str) -> Any:
        if key not in self.value:
            raise RecordError(f"{self.at(key)} is missing: take the file that the lab wrote, or record again.")
        return self.value[key]

    def object(self, key: str) -> _Place:
        return _Place(self.need(key), self.at(key))

    def list(self, key: str, most: int = 10_000) -> list:
        value = self.need(key)
        if not isinstance(value, list):
            raise self.wrong(key, "must be a list")
        if len(value) > most:
            raise RecordError(f"{self.at(key)} has {len(value)} entries, more than {most}: record a smaller sweep.")
        return value

    def text(self, key: str, none: bool = False, empty: bool = False) -> Any:
        value = self.need(key)
        if not (value is None and none) and not (isinstance(value, str) and (value.strip() or empty)):
            raise self.wrong(key, "must be text" + (" or null" if none else ""))
        return value

    def choice(self, key: str, names: tuple[str, ...]) -> None:
        value = self.need(key)
        if not isinstance(value, str) or value not in names:
            raise self.wrong(key, f"must be one of {', '.join(names)}")

    def number(
        self,
        key: str,
        none: bool = False,
        low: float | None = None,
        above: float | None = None,
        below: float | None = None,
        high: float | None = None,
    ) -> Any:
        value = self.need(key)
        return None if value is None and none else _number(self.at(key), value, low, above, below, high)

    def integer(self, key: str, low: int | None = None, none: bool = False, high: int = MOST) -> Any:
        value = self.need(key)
        if value is None and none:
            return None
        if type(value) is not int or not (-MOST if low is None else low) <= value <= high:
            most = "2**64" if high == MOST else f"{high}"
            raise self.wrong(
                key, "must be a whole number" + ("" if low is None else f" from {low}") + f", {most} at most"
            )
        return value


def _wrong(where: str, value: Any, why: str) -> RecordError:
    return RecordError(f"{where} = {_show(value)} {why}.")


def _number(
    where: str,
    value: Any,
    low: float | None = None,
    above: float | None = None,
    below: float | None = None,
    high: float | None = None,
) -> Any:
    """The number, or an error: finite, no bool, from `low` to `high`, greater than `above`, less than `below`."""
    if type(value) not in (int, float) or not -LARGEST <= value <= LARGEST:
        raise _wrong(where, value, "must be a finite number")
    if above is not None and value <= above:
        raise _wrong(where, value, f"must be greater than {above}")
    if low is not None and value < low:
        raise _wrong(where, value, f"must be at least {low:g}")
    if high is not None and value > high:
        raise _wrong(where, value, f"must be at most {high:g}")
    if below is not None and value >= below:
        raise _wrong(where, value, f"must be less than {below}")
    return value


_SHORT = _ShortRepr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 60


def _show(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f'"{_short(value)[1:-1]}"' if isinstance(value, str) else _short(value)


def _short(value: Any) -> str:
    return _SHORT.repr(value)


def _named(value: Any) -> str:
    names = {list: "a list", str: "text", type(None): "null", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(value), type(value).__name__)


# Writing ------------------------------------------------------------------------------------------


def check_target(path: str | os.PathLike[str]) -> None:
    """Find out before a run whether its recording can be written to `path`. Raises RecordError if not."""
    target = Path(_name(path))
    try:
        _no_folder(target)
        with contextlib.suppress(FileNotFoundError):
            os.stat(target)  # fails where no file can have this name
        probe = _beside(target)
        probe.touch(exist_ok=False)
        probe.unlink()
    except RecordError:
        raise
    except (OSError, ValueError) as error:
        raise RecordError(_refused(target, error)) from None


def save(recording: dict, path: str | os.PathLike[str]) -> Path:
    """Check a recording and write it to `path`, or beside it; returns the path really written.

    The file appears at once and whole. A file that is there already is never overwritten, not even
    by a second run that writes at the same moment: the later one takes `name-2.json`, `name-3.json`
    and so on. (The same recording saved twice stays one file.)

    Raises:
        RecordError: the recording is not in order, or cannot be written. In the second case it is
            put into the temporary folder if that works, and the message and `kept` say where.
    """
    target = Path(_name(path))
    validate(recording)
    try:
        text = _layout(recording)
    except (TypeError, ValueError, RecursionError) as error:
        raise RecordError(
            f"The recording holds something that JSON cannot ({error}): remove it and save again."
        ) from None
    try:
        _no_folder(target)
        return _write(text, target)
    except RecordError as error:
        reason = str(error)
    except (OSError, ValueError) as error:
        reason = _refused(target, error)
    try:
        kept = _write(text, Path(tempfile.gettempdir()) / (target.name or "recording.json"))
    except (OSError, ValueError):
        raise RecordError(f"{reason} The recording is still in memory: save it to another path.") from None
    raise RecordError(f"{reason} The recording was kept as {kept}.", kept)


def _layout(recording: dict) -> str:
    """JSON with one line per key and one per point: small, and readable in a diff."""

    def line(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)

    rows = []
    for key, value in recording.items():
        many = key == "points" and value
        value = "[\n  " + ",\n  ".join(map(line, value)) + "\n ]" if many else line(value)
        rows.append(f" {line(key)}: {value}")
    return "{\n" + ",\n".join(rows) + "\n}\n"


def _write(text: str, target: Path) -> Path:
    data = text.encode("utf-8", "surrogatepass")
    temporary = _beside(target)
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        for candidate in _names(target):
            if _claim(temporary, candidate):
                return candidate
            if _same(candidate, data):
                return candidate
        raise FileExistsError(errno.EEXIST, "all names up to -9999 are taken", str(target))
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _names(target: Path):
    yield target
    for number in range(2, 10_000):
        yield target.with_name(f"{target.stem}-{number}{target.suffix}")


def _claim(temporary: Path, candidate: Path) -> bool:
    """Give the finished file its name, unless the name is taken. Both ways are atomic."""
    try:
        os.link(temporary, candidate)
        return True
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EACCES, errno.EMLINK):
            raise
    # No hard links on this file system: take the name with an empty file, then put the data in its place.
    try:
        os.close(os.open(candidate, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    except FileExistsError:
        return False
    os.replace(temporary, candidate)
    return True


def _same(path: Path, data: bytes) -> bool:
    try:
        return path.stat().st_size == len(data) and path.read_bytes() == data
    except OSError:
        return False


def _beside(target: Path) -> Path:
    return target.with_name(f".{re.sub(r'[^0-9A-Za-z._-]', '_', target.name)[:40]}.{secrets.token_hex(6)}.tmp")


def _no_folder(target: Path) -> None:
    if not target.name or target.is_dir():
        raise RecordError(f"{target} is a folder: add a file name, such as {target / 'recording.json'}.")
    if not target.parent.is_dir():
        raise RecordError(f"The folder {target.parent} does not exist: create it, or choose another path.")


def _refused(target: Path, error: Exception) -> str:
    why = {
        errno.ENOSPC: "the disk is full: make room, or choose another disk",
        getattr(errno, "EDQUOT", -1): "the quota is used up: make room, or choose another disk",
        errno.EACCES: "no permission to write there: choose another folder",
        errno.EPERM: "no permission to write there: choose another folder",
        errno.EROFS: "the file system is read-only: choose another folder",
        errno.ENAMETOOLONG: "the name is too long: choose a shorter one",
    }.get(getattr(error, "errno", None) or 0, f"{getattr(error, 'strerror', None) or error}: choose another path")
    return f"{target} cannot be written, {why}."
