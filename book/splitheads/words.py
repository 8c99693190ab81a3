"""Words and numbers as this book prints them: suggestions for a misspelt name, counts in threes, sizes in KiB."""

from __future__ import annotations

from collections.abc import Sequence

UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
LARGE = ("", "K", "M", "G", "T", "P", "E")


def grouped(n: int) -> str:
    """A whole number in threes, with plain spaces: 131 072."""
    return f"{n:,}".replace(",", " ")


def size_text(n_bytes: int) -> str:
    """A number of bytes in binary units, three significant digits: 128 KiB, 1.25 GiB. 90 bytes stay bytes."""
    return _scaled(n_bytes, 1024, UNITS, "1 byte" if n_bytes == 1 else f"{n_bytes} bytes")


def count_text(n: int) -> str:
    """A large count in decimal units, three significant digits: 41.9 M, 275 G. 640 stays 640."""
    return _scaled(n, 1000, LARGE, f"{n}")


def _scaled(n: int, step: int, units: Sequence[str], small: str) -> str:
    """n in the largest of `units` that leaves at least 1 of it; `small` where n is below the first step."""
    if n < step:
        return small
    value, place = n, 0
    while value >= step and place < len(units) - 1:
        value, place = value / step, place + 1
    # 1023.9996 KiB would print as 1e+03 of them; it is the next unit.
    if value >= 999.5 and place < len(units) - 1:
        if step == 1000:
            return f"1 {units[place + 1]}"
        return f"{value:.0f} {units[place]}"
    return f"{value:.0f} {units[place]}" if value >= 999.5 else f"{value:.3g} {units[place]}"


def plural(n: int, noun: str) -> str:
    """1 head, 2 heads."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def listing(items: Sequence) -> str:
    """Items in a sentence: "1, 2, 4 and 28"."""
    words = [f"{item}" for item in items]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else "none"


def nearest(word: str, known: Sequence[str], limit: int = 3) -> list[str]:
    """The names that a reader may have meant by `word`, closest first; empty if none is close.

    Case, spaces and punctuation do not count. A name is close if it holds the word, begins like it, or
    differs in at most a third of its letters.
    """
    wanted = plain(word[:60])
    found = []
    for name in known:
        other = plain(name)
        apart = distance(wanted, other)
        if len(wanted) >= 3 and (wanted in other or (len(other) >= 3 and other in wanted)):
            apart = min(apart, 0.5)
        if apart * 3 <= max(len(wanted), len(other)) and apart < len(wanted):
            found.append((apart, abs(len(other) - len(wanted)), name))
    return [name for _, _, name in sorted(found)][:limit]


def plain(text: str) -> str:
    """Letters and digits of `text`, in lower case."""
    return "".join(letter for letter in text.lower() if letter.isalnum())


def distance(one: str, other: str) -> int:
    """Edits between two words: letters to insert, delete or replace (Levenshtein, 1965)."""
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one):
        last, row[0] = row[0], i + 1
        for j, another in enumerate(other):
            least = min(row[j + 1] + 1, row[j] + 1, last + (0 if letter == another else 1))
            last, row[j + 1] = row[j + 1], least
    return row[-1]
