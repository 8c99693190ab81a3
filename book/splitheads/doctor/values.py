"""Checks of single values: what was written is turned into a whole number, a number, a truth value or a name.

Every function raises `ConfigError`, in one line that shows the value shortened and says what would do.
"""

from __future__ import annotations

import math
import re
from typing import Any

from splitheads.words import nearest

LARGEST = 10**15
"""Whole numbers beyond this are read as this: the same in Python and JavaScript, and far above every limit."""


class ConfigError(ValueError):
    """This is no configuration: an unknown key, or a value of the wrong type. The message says what would be one."""

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key


def show(value: Any) -> str:
    """A value as JSON would write it, in one line and shortened: 768, "sm90", true, a list of 3 values."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value}" if abs(value) <= LARGEST else "a whole number of more than 15 digits"
    if isinstance(value, float):
        return f"{value:g}" if math.isfinite(value) else "NaN or Infinity"
    if isinstance(value, str):
        return f'"{printable(value[:40])}"' if len(value) <= 40 else f'"{printable(value[:40])}..."'
    if isinstance(value, (list, tuple)):
        return f"a list of {len(value)} values" if len(value) != 1 else "a list of 1 value"
    if isinstance(value, dict):
        return f"an object with {len(value)} keys" if len(value) != 1 else "an object with 1 key"
    return "a value that JSON does not have"


def printable(text: str) -> str:
    """A text without what breaks a line or a terminal: control characters, line ends, half characters."""
    return re.sub(r"[^\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufffd]+", "?", text)


def kind_of(value: Any) -> str:
    """What kind of value this is, in words: "a text", "true or false", "a list"."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, str):
        return "a text"
    if isinstance(value, (list, tuple)):
        return "a list"
    return "an object" if isinstance(value, dict) else "nothing that JSON has"


def whole(key: str, value: Any, example: Any = 64) -> int:
    """A whole number. 12.0 is one; true and "12" are not. What is beyond LARGEST becomes LARGEST, with its sign."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigError(
            f"{key} = {show(value)} is {kind_of(value)}, not a whole number. Give {key} as a whole number, such as "
            f"{example}.",
            key=key,
        )
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ConfigError(f"{key} is NaN or Infinity. Give a whole number, such as {example}.", key=key)
        if value != math.floor(value):
            raise ConfigError(f"{key} = {show(value)} is not a whole number. Give one, such as {example}.", key=key)
    if abs(value) > LARGEST:
        return LARGEST if value > 0 else -LARGEST
    return int(value)


def number(key: str, value: Any, example: Any = 0.1) -> int | float:
    """A number, finite, at most LARGEST in size."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigError(
            f"{key} = {show(value)} is {kind_of(value)}, not a number. Give {key} as a number, such as {example}.",
            key=key,
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{key} is NaN or Infinity. Give a number, such as {example}.", key=key)
    if abs(value) > LARGEST:
        return LARGEST if value > 0 else -LARGEST
    return value


def truth(key: str, value: Any) -> bool:
    """True or False; 1 and "yes" are neither."""
    if not isinstance(value, bool):
        raise ConfigError(f"{key} = {show(value)} is {kind_of(value)}. Give true or false.", key=key)
    return value


def name(key: str, value: Any, example: str) -> str:
    """A text, without spaces around it."""
    if not isinstance(value, str):
        raise ConfigError(
            f'{key} = {show(value)} is {kind_of(value)}, not a text. Give {key} as a text, such as "{example}".',
            key=key,
        )
    return value.strip()


def choice(key: str, value: Any, known: tuple, aliases: dict) -> str:
    """One of the names in `known`, or what stands for it in `aliases`; case, spaces and hyphens do not count."""
    wanted = re.sub(r"[\s-]+", "_", name(key, value, known[0]).lower()[:60])
    for one in known:
        if wanted == one.lower():
            return one
    if wanted in aliases:
        return aliases[wanted]
    near = nearest(wanted, [*known, *aliases], 1)
    hint = f"Did you mean {aliases.get(near[0], near[0])}? " if near else ""
    names = ", ".join([f'"{one}"' for one in known])
    raise ConfigError(f"{key} = {show(value)} is not known. {hint}Give one of {names}.", key=key)
