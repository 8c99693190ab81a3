"""The partition rule of multi-head attention: d_head = d_model / n_heads.

Widths are counted in columns, the features of one token; counts are whole heads. The rule is a
choice made in "Attention Is All You Need" (Vaswani et al., 2017, section 3.2.2), not a theorem: a
model may state its own d_head, and then n_heads * d_head need not equal d_model.

Every function here checks its arguments in the same way. Numbers that cannot make a split raise
`SplitError`, a `ValueError`; values that are not integers raise its subclass `SplitTypeError`,
which is a `TypeError` too. Anything with `__index__`, such as a NumPy integer, is an integer; a
bool is not, nor is a float, not even 12.0.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from math import isqrt
from operator import index
from reprlib import Repr
from typing import Any, SupportsIndex

from splitheads.words import listing, plural

MAX_WIDTH = 2**24
"""Upper limit for every width and count: about a thousand times GPT-3's d_model of 12288."""

Int = SupportsIndex  # accepted where a whole number is due; kept and returned as int
_EXAMPLES = {"d_model": ", such as 768", "n_heads": ", such as 12", "d_head": ", such as 64"}


class SplitError(ValueError):
    """These numbers cannot make a split. The message says why, and what would work instead."""

    # The same facts as attributes; None or () where one does not apply.
    argument: str | None = None  # the argument at fault
    d_model: int | None = None
    n_heads: int | None = None
    n_kv_heads: int | None = None
    d_head: int | None = None
    remainder: int | None = None  # left over: columns of d_model, or query heads of n_heads
    nearest_heads: tuple[int, ...] = ()  # the closest divisors of d_model, ascending
    nearest_widths: tuple[int, ...] = ()  # the closest multiples of n_heads, ascending
    nearest_kv_heads: tuple[int, ...] = ()  # the closest divisors of n_heads, ascending

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        vars(self).update(facts)


class SplitTypeError(SplitError, TypeError):
    """A width or a count is not an integer."""


@dataclass(frozen=True, init=False)
class HeadSplit:
    """How d_model columns are shared out between n_heads heads.

    Args:
        d_model: width of the residual stream, in columns.
        n_heads: number of query heads. Must divide d_model unless d_head is given.
        n_kv_heads: number of key/value heads. Must divide n_heads. Default: n_heads.
        d_head: width of one head, in columns. Default: d_model / n_heads.

    Two splits are equal, and hash alike, when all four numbers are equal, given or worked out:
    HeadSplit(768, 12) == HeadSplit(768, 12, n_kv_heads=12, d_head=64).

    Raises:
        SplitError: the numbers do not divide, or lie outside 1 ... MAX_WIDTH.
        SplitTypeError: a value is not an integer.
    """

    d_model: int
    n_heads: int
    n_kv_heads: int
    d_head: int

    def __init__(self, d_model: Int, n_heads: Int, n_kv_heads: Int | None = None, d_head: Int | None = None) -> None:
        width, heads = _count("d_model", d_model), _count("n_heads", n_heads)
        kv_heads = heads if n_kv_heads is None else _count("n_kv_heads", n_kv_heads)
        columns = None if d_head is None else _count("d_head", d_head)
        columns = _equal_share(width, heads) if columns is None else _fitting(heads, columns)
        _check_groups(heads, kv_heads)
        # The class is frozen, so its own constructor too has to go round __setattr__.
        vars(self).update(d_model=width, n_heads=heads, n_kv_heads=kv_heads, d_head=columns)

    @property
    def inner_width(self) -> int:
        """Columns that the query heads take side by side: n_heads * d_head."""
        return self.n_heads * self.d_head

    @property
    def kv_width(self) -> int:
        """Columns that the key heads take, and the value heads: n_kv_heads * d_head."""
        return self.n_kv_heads * self.d_head

    @property
    def q_proj(self) -> tuple[int, int]:
        """Weight shape of the query projection as PyTorch has it: (out_features, in_features)."""
        return self.inner_width, self.d_model

    @property
    def k_proj(self) -> tuple[int, int]:
        """Weight shape of the key projection: (out_features, in_features)."""
        return self.kv_width, self.d_model

    @property
    def v_proj(self) -> tuple[int, int]:
        """Weight shape of the value projection: (out_features, in_features)."""
        return self.kv_width, self.d_model

    @property
    def o_proj(self) -> tuple[int, int]:
        """Weight shape of the output projection: (out_features, in_features)."""
        return self.d_model, self.inner_width

    @property
    def group_size(self) -> int:
        """Query heads that share one key/value head: head i reads number i // group_size."""
        return self.n_heads // self.n_kv_heads

    @property
    def follows_rule(self) -> bool:
        """True when the heads fill the residual stream exactly: d_model == n_heads * d_head."""
        return self.d_model == self.inner_width

    def columns(self, head: Int) -> range:
        """Columns of the projected queries that belong to a head; heads count from 0.

        The same numbers are the rows of q_proj's weight and the columns of o_proj's weight that
        belong to it. Raises IndexError if there is no such head; -1 is not the last one.
        """
        number, last = index(head), self.n_heads - 1
        if not 0 <= number <= last:
            heads = f"heads 0 to {last}" if last else "head 0 only"
            raise IndexError(f"head = {_show(number)} does not exist: this split has {heads}.")
        return range(number * self.d_head, (number + 1) * self.d_head)

    def __str__(self) -> str:
        heads = plural(self.n_heads, "head")
        if self.follows_rule:
            text = f"d_head = {self.d_head}: {plural(self.d_model, 'column')} / {heads}"
        else:
            columns = f"{heads} × {self.d_head} = {plural(self.inner_width, 'column')}"
            text = f"d_head = {self.d_head}, given explicitly: {columns}, d_model = {self.d_model}"
        if self.group_size > 1:
            text += f", {plural(self.n_kv_heads, 'key/value head')}"
        return text


def why_not(d_model: Any, n_heads: Any, n_kv_heads: Any = None, d_head: Any = None) -> SplitError | None:
    """The SplitError that HeadSplit would raise for these arguments; None if they make a split."""
    try:
        HeadSplit(d_model, n_heads, n_kv_heads, d_head)
    except SplitError as error:
        return error
    return None


def legal_head_counts(d_model: Int, max_heads: Int | None = None) -> tuple[int, ...]:
    """Every n_heads that divides d_model, ascending; none above max_heads if that is given."""
    width = _count("d_model", d_model)
    limit = width if max_heads is None else _count("max_heads", max_heads)
    small = [n for n in range(1, isqrt(width) + 1) if width % n == 0]  # 4096 steps at most
    large = [width // n for n in reversed(small) if n * n != width]
    return tuple(n for n in small + large if n <= limit)


def nearest_head_counts(d_model: Int, n_heads: Int, per_side: Int = 1) -> tuple[int, ...]:
    """Divisors of d_model beside n_heads, ascending: up to per_side below it and as many above.

    n_heads is never one of them, even when it divides d_model.
    """
    counts = legal_head_counts(d_model)
    heads, wanted = _count("n_heads", n_heads), _count("per_side", per_side)
    below, above = bisect_left(counts, heads), bisect_right(counts, heads)
    return counts[max(0, below - wanted) : below] + counts[above : above + wanted]


def nearest_widths(d_model: Int, n_heads: Int, per_side: Int = 1) -> tuple[int, ...]:
    """Multiples of n_heads beside d_model, ascending: up to per_side below it and as many above.

    d_model is never one of them, nor is 0, nor anything above MAX_WIDTH.
    """
    width, heads = _count("d_model", d_model), _count("n_heads", n_heads)
    further = (_count("per_side", per_side) - 1) * heads
    below, above = (width - 1) // heads * heads, (width // heads + 1) * heads
    return (
        *range(max(heads, below - further), below + 1, heads),
        *range(above, min(above + further, MAX_WIDTH) + 1, heads),
    )


def legal_widths(n_heads: Int, low: Int, high: Int) -> range:
    """Every multiple of n_heads from low to high, both included; empty if there is none."""
    heads = _count("n_heads", n_heads)
    first = -(-_count("low", low) // heads) * heads  # low, rounded up
    return range(first, _count("high", high) + 1, heads)


def _equal_share(d_model: int, n_heads: int) -> int:
    """Return d_model / n_heads, refused unless every head gets the same whole number of columns."""
    share, left = divmod(d_model, n_heads)
    if left == 0:
        return share
    heads, widths = nearest_head_counts(d_model, n_heads), nearest_widths(d_model, n_heads)
    if share == 0:
        message = (
            f"d_model = {d_model} is too narrow for n_heads = {n_heads}: d_head would be "
            f"{d_model} / {n_heads}, less than one column. There is room for "
            f"{plural(d_model, 'head')} of one column each; {n_heads} heads need a width of "
            f"{n_heads} or a multiple of it."
        )
    else:
        message = (
            f"d_model = {d_model} does not divide into n_heads = {n_heads}: {d_model} = {n_heads} "
            f"× {share} + {left}, so {plural(left, 'column')} would be left over. Nearest head "
            f"counts that divide {d_model}: {listing(heads)}. Nearest widths that {n_heads} divides: "
            f"{listing(widths)}."
        )
    message += f" Or give d_head explicitly: the heads then take {n_heads} × d_head columns."
    nearest = {"nearest_heads": heads, "nearest_widths": widths}
    numbers = {"d_model": d_model, "n_heads": n_heads, "remainder": left}
    raise SplitError(message, argument="n_heads", **numbers, **nearest)


def _fitting(n_heads: int, d_head: int) -> int:
    """Return an explicit d_head, refused if the heads together would be wider than MAX_WIDTH."""
    if n_heads * d_head <= MAX_WIDTH:
        return d_head
    message = (
        f"d_head = {d_head} is too wide for n_heads = {n_heads}: {n_heads * d_head} columns in "
        f"all, above the limit of {MAX_WIDTH}. Give d_head as {MAX_WIDTH // n_heads} or less."
    )
    raise SplitError(message, argument="d_head", n_heads=n_heads, d_head=d_head)


def _check_groups(n_heads: int, n_kv_heads: int) -> None:
    """Refuse key/value heads that cannot all serve the same number of query heads."""
    share, left = divmod(n_heads, n_kv_heads)
    if left == 0:
        return
    nearest = nearest_head_counts(n_heads, n_kv_heads)
    if share == 0:
        message = (
            f"n_kv_heads = {n_kv_heads} is more than n_heads = {n_heads}, so some key/value heads "
            f"would have no query head. Give a divisor of {n_heads}; {n_heads} itself, one for "
            f"each query head, is the most."
        )
    else:
        message = (
            f"n_kv_heads = {n_kv_heads} does not divide n_heads = {n_heads}: {n_heads} = "
            f"{n_kv_heads} × {share} + {left}, so {plural(left, 'query head')} would be left "
            f"over. Nearest key/value head counts that divide {n_heads}: {listing(nearest)}."
        )
    numbers = {"n_heads": n_heads, "n_kv_heads": n_kv_heads, "remainder": left}
    raise SplitError(message, argument="n_kv_heads", **numbers, nearest_kv_heads=nearest)


def _count(name: str, value: Any) -> int:
    """Return value as an int from 1 to MAX_WIDTH, or an error that names the argument."""
    try:
        number = index(value) if _is_scalar(value) else None
    except TypeError:
        number = None
    error: type[SplitError] = SplitError
    if number is None:
        error, fault = SplitTypeError, f"is of type {type(value).__name__}, not an integer"
    elif number > MAX_WIDTH:
        fault = "is above the limit"
    elif number < 1:
        fault = "is negative" if number else "is too small"
    else:
        return number
    way_out = f"Give {name} as an integer from 1 to {MAX_WIDTH}{_EXAMPLES.get(name, '')}."
    shown = _show(value if number is None else number)
    raise error(f"{name} = {shown} {fault}. {way_out}", argument=name)


class _ShortRepr(Repr):
    """A repr that stays short whatever a caller passes in."""

    maxstring = maxother = 40

    def repr_int(self, x: int, level: int) -> str:
        digits = int(x.bit_length() * 0.30103) + 1
        return repr(x) if digits <= 20 else f"<integer of about {digits} digits>"


def _is_scalar(value: Any) -> bool:
    """False for bools, and for arrays and tensors of bools or with axes: their `__index__` works, too."""
    is_bool = isinstance(value, bool) or "bool" in str(getattr(value, "dtype", ""))
    return not is_bool and not getattr(value, "ndim", 0)


def _show(value: Any) -> str:
    text = _ShortRepr().repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
