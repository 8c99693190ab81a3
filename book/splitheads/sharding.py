"""Over how many ranks a layer's heads can be spread: tensor parallelism, by stack, and what each rank then holds.

A rank is one of `tp` processes, usually one GPU. Heads are the unit: a rank computes whole query heads, and has to hold
the whole key/value head that each of them reads. So there are two conditions, and `tp_sizes` and `shard` check both:

    query heads       n_heads % tp == 0
    key/value heads   n_kv_heads % tp == 0: each rank gets some, or
                      tp % n_kv_heads == 0: each is copied to tp / n_kv_heads ranks, where the stack copies

`TEXTS` says whose rule is which, and where it was read. Multi-head latent attention has no key/value heads to hand out:
its latent lies on every rank whole, and only the condition on n_heads is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

from .partition import MAX_WIDTH, _show
from .words import listing, nearest, plural

STACKS = ("vllm", "hf", "ulysses")
"""Whose rule: vLLM (SGLang's is the same on GPUs; on CPUs it pads, pull request 6771), transformers' own tensor
parallelism, Ulysses sequence parallelism in verl."""

COPYING = ("vllm", "ulysses")
"""The stacks that put one key/value head on several ranks."""

TEXTS = {
    "vllm": "vllm-project/vllm at 9e109c9, vllm/model_executor/layers/linear.py: QKVParallelLinear divides the heads by the "
    "tensor-parallel size and copies key/value heads; at 18ec662, vllm/config/model.py: verify_with_parallel_config",
    "hf": "transformers 5.24.0, distributed/tensor_parallel.py: k_proj is cut by columns whatever the heads (the last "
    "rank may get fewer); nothing refuses the size or copies heads (issue 48307: the first forward pass fails; pull "
    "request 47811 would copy)",
    "ulysses": "volcengine/verl at 018ee14, verl/models/transformers/monkey_patch.py: apply_monkey_patch, after "
    "DeepSpeed-Ulysses (arXiv:2309.14509)",
}
"""Source of each stack's rule."""

_NAMED = 16  # so many admitted sizes are named in a message; models of the table have 12 at most


class ShardError(ValueError):
    """These heads cannot be spread over so many ranks. The message says why, and names the sizes that work.

    Attributes:
        rule: "heads" (query heads are left over), "kv" (key/value heads cannot be handed out), "groups" (n_kv_heads
            does not divide n_heads, on any number of ranks), "range" (no whole number from 1), "stack" (unknown).
        allowed: the admitted sizes, ascending. nearest: those of them on either side of the one that was asked for.
    """

    def __init__(self, message: str, rule: str, allowed: tuple = (), nearest: tuple = ()) -> None:
        super().__init__(message)
        self.rule = rule
        self.allowed = allowed
        self.nearest = nearest


@dataclass(frozen=True)
class Shard:
    """What one of `tp` ranks holds; all ranks hold equally much. Ranks and heads count from 0."""

    tp: int
    stack: str
    heads_per_rank: int
    kv_heads_per_rank: int
    replicas: int
    """Ranks that hold the same key/value head: 1 unless heads are copied."""
    kv_share: float
    """Part of the layer's KV cache that lies on each rank: kv_heads_per_rank / n_kv_heads."""

    def heads(self, rank: int) -> tuple[int, ...]:
        """The query heads of a rank. Raises ShardError if there is no such rank."""
        first = self._rank(rank) * self.heads_per_rank
        return tuple(range(first, first + self.heads_per_rank))

    def kv_heads(self, rank: int) -> tuple[int, ...]:
        """The key/value heads of a rank: those that its query heads read. Raises ShardError if there is no such rank."""
        first = self._rank(rank) // self.replicas * self.kv_heads_per_rank
        return tuple(range(first, first + self.kv_heads_per_rank))

    def _rank(self, rank: int) -> int:
        if not 0 <= rank < self.tp:
            raise ShardError(
                f"rank = {_show(rank)} does not exist: with tp = {self.tp}, ranks are 0 to {self.tp - 1}.", "range"
            )
        return rank


def tp_sizes(n_heads: int, n_kv_heads: int, stack: str = "vllm") -> tuple[int, ...]:
    """The tensor-parallel sizes (or Ulysses sizes) that a layer's heads admit, ascending. 1 is always one of them.

    n_kv_heads is n_heads for ordinary multi-head attention, and for multi-head latent attention, too.

    Raises:
        ShardError: n_kv_heads does not divide n_heads, a count is no whole number from 1, or the stack is not known.
    """
    _check(n_heads, n_kv_heads, stack)
    return tuple(tp for tp in _divisors(n_heads) if _kv_fit(n_kv_heads, tp, stack))


def shard(n_heads: int, n_kv_heads: int, tp: int, stack: str = "vllm") -> Shard:
    """What each of tp ranks holds of n_heads query heads and n_kv_heads key/value heads.

    Raises:
        ShardError: tp is not one of `tp_sizes`; see there for other reasons.
    """
    _check(n_heads, n_kv_heads, stack)
    _whole("tp", tp)
    each, left = divmod(n_heads, tp)
    if left:
        counted = f"{n_heads} = {tp} × {each} + {left}" if each else f"{n_heads} is less than {tp}"
        fault = f"tp = {tp} does not divide n_heads = {n_heads}: {counted}, so "
        fault += f"{plural(left, 'query head')} would be left over" if each else "some ranks would have no head"
        raise _refusal(f"{fault}.", "heads", n_heads, n_kv_heads, tp, stack)
    if not _kv_fit(n_kv_heads, tp, stack):
        fault = f"tp = {tp} divides n_heads = {n_heads}, but n_kv_heads = {n_kv_heads} is no multiple of {tp}"
        if stack in COPYING:
            fault += f", and {tp} is no multiple of {n_kv_heads}: key/value heads can be neither shared out nor copied evenly"
        elif tp % n_kv_heads == 0:
            fault += ", and this stack does not copy key/value heads"
        raise _refusal(f"{fault}.", "kv", n_heads, n_kv_heads, tp, stack)
    held = max(1, n_kv_heads // tp)
    return Shard(tp, stack, each, held, max(1, tp // n_kv_heads), held / n_kv_heads)


def kv_bytes_per_rank(bytes_per_token: int, n_kv_heads: int | None, tp: int, stack: str = "vllm") -> int:
    """Bytes of the KV cache on each rank, from those of one token (or of the whole cache) on a single one.

    They fall as 1 / tp up to tp = n_kv_heads, and then no more: from there on ranks hold copies. n_kv_heads = None means
    multi-head latent attention, whose latent is on every rank, so that nothing is saved at all.

    Raises:
        ShardError: the key/value heads cannot be spread over tp ranks.
    """
    _whole("tp", tp)
    _stack(stack)
    if n_kv_heads is None:
        return bytes_per_token
    _whole("n_kv_heads", n_kv_heads)
    if not _kv_fit(n_kv_heads, tp, stack):
        ways = "divides it" if stack not in COPYING else "divides it or is a multiple of it"
        raise ShardError(f"n_kv_heads = {n_kv_heads} cannot be spread over tp = {tp}: give a tp that {ways}.", "kv")
    return bytes_per_token * max(1, n_kv_heads // tp) // n_kv_heads


def _kv_fit(n_kv_heads: int, tp: int, stack: str) -> bool:
    return n_kv_heads % tp == 0 or (stack in COPYING and tp % n_kv_heads == 0)


def _divisors(number: int) -> list[int]:
    small = [n for n in range(1, isqrt(number) + 1) if number % n == 0]
    return small + [number // n for n in reversed(small) if n * n != number]


def _refusal(fault: str, rule: str, n_heads: int, n_kv_heads: int, tp: int, stack: str) -> ShardError:
    allowed = tp_sizes(n_heads, n_kv_heads, stack)
    near = (*[size for size in allowed if size < tp][-1:], *[size for size in allowed if size > tp][:1])
    # Of a long list the sizes around the one that was asked for matter more than the smallest.
    shown = listing(allowed) if len(allowed) <= _NAMED else f"{listing(near)}, and {len(allowed) - len(near)} others"
    heads = f"{plural(n_heads, 'head')} over {plural(n_kv_heads, 'key/value head')}"
    if n_heads == n_kv_heads:
        heads = plural(n_heads, "head")
    return ShardError(f"{fault} Sizes that {heads} admit ({stack}): {shown}.", rule, allowed, near)


def _check(n_heads: int, n_kv_heads: int, stack: str) -> None:
    _whole("n_heads", n_heads)
    _whole("n_kv_heads", n_kv_heads)
    _stack(stack)
    if n_heads % n_kv_heads:
        raise ShardError(
            f"n_kv_heads = {n_kv_heads} does not divide n_heads = {n_heads}, so the query heads cannot share them evenly, on "
            f"any number of ranks. Give a divisor of {n_heads}.",
            "groups",
        )


def _whole(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_WIDTH:
        raise ShardError(f"{name} = {_show(value)}: give a whole number from 1 to {MAX_WIDTH}.", "range")


def _stack(stack: str) -> None:
    if not isinstance(stack, str) or stack not in STACKS:
        meant = nearest(stack, STACKS, 1) if isinstance(stack, str) else []
        way = f" Did you mean {meant[0]}?" if meant else ""
        raise ShardError(f"stack = {_show(stack)} is not known: give one of {listing(STACKS)}.{way}", "stack")
