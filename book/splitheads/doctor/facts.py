"""What follows from a configuration by arithmetic alone, worked out once and handed to every rule."""

from __future__ import annotations

from dataclasses import dataclass, replace

from splitheads.doctor.keys import Config
from splitheads.doctor.report import Finding
from splitheads.partition import MAX_WIDTH

LAYERS_LIMIT = 100_000
COUNT_LIMIT = 2**31
"""Upper limit for lengths and batches: no published context comes near it."""

LEAST_SCALE = 1e-9
MOST_SCALE = 1e6
"""Limits for a scale that weights were trained with."""

_LIMITS = (
    ("d_model", MAX_WIDTH),
    ("n_heads", MAX_WIDTH),
    ("n_kv_heads", MAX_WIDTH),
    ("d_head", MAX_WIDTH),
    ("d_head_v", MAX_WIDTH),
    ("n_layers", LAYERS_LIMIT),
    ("kv_latent", MAX_WIDTH),
    ("q_latent", MAX_WIDTH),
    ("rope_dim", MAX_WIDTH),
    ("seq_q", COUNT_LIMIT),
    ("seq_k", COUNT_LIMIT),
    ("batch", COUNT_LIMIT),
    ("tp", MAX_WIDTH),
    ("checkpoint_n_heads", MAX_WIDTH),
    ("checkpoint_n_kv_heads", MAX_WIDTH),
    ("checkpoint_d_model", MAX_WIDTH),
    ("checkpoint_d_head", MAX_WIDTH),
    ("pad_d_head_to", MAX_WIDTH),
)

RANGE_SOURCE = (
    "limits of this program (splitheads.partition.MAX_WIDTH, splitheads.doctor.facts); none of the mathematics"
)
PARTITION_SOURCE = "Vaswani et al. 2017, section 3.2.2; splitheads.partition.HeadSplit"


@dataclass(frozen=True)
class Facts:
    """Numbers that follow from a configuration; None where it does not say enough.

    Widths are columns. `heads` and `kv_heads` are what is left after pruning, `n_heads` and `n_kv_heads` what was there
    before. `length_q`, `length_k` and `batch` are for the costs: one length stands for the other where only one is given.
    """

    d_model: int | None = None
    n_heads: int | None = None
    n_kv_heads: int | None = None
    d_head: int | None = None
    d_head_v: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    attention: str | None = None
    mla: bool = False
    length_q: int | None = None
    length_k: int | None = None
    batch: int = 1

    @property
    def explicit(self) -> bool:
        """Whether d_head is a number of its own: given, and not d_model / n_heads."""
        if self.d_head is None or self.d_model is None or self.n_heads is None:
            return False
        return self.n_heads * self.d_head != self.d_model


def in_range(c: Config) -> tuple[Config, list[Finding]]:
    """The configuration without the numbers that nothing can have, and a finding for each of those."""
    findings = []
    values = {name: getattr(c, name) for name, _ in _LIMITS}
    for name, limit in _LIMITS:
        value = values[name]
        if value is not None and not 1 <= value <= limit:
            findings.append(_out_of_range(name, value, limit))
            values[name] = None
    dropout, rotary_pct = c.dropout, c.rotary_pct
    if dropout is not None and not 0 <= dropout <= 1:
        findings.append(_not_between("dropout", dropout, "a probability", "0.1"))
        dropout = None
    if rotary_pct is not None and not 0 <= rotary_pct <= 1:
        findings.append(_not_between("rotary_pct", rotary_pct, "a share of d_head", "0.25"))
        rotary_pct = None
    checkpoint_scale = c.checkpoint_scale
    if checkpoint_scale is not None and not LEAST_SCALE <= checkpoint_scale <= MOST_SCALE:
        findings.append(
            Finding(
                "range",
                "error",
                f"checkpoint_scale = {number(checkpoint_scale)} is no scale that anything is trained with: it must lie from "
                f"{LEAST_SCALE:g} to {MOST_SCALE:g}.",
                ("Give it as 1/√d_head or what the model's code has, such as 0.125, or leave it out.",),
                RANGE_SOURCE,
                "doctor",
            )
        )
        checkpoint_scale = None
    if values["n_heads"] and values["d_head"] and values["n_heads"] * values["d_head"] > MAX_WIDTH:
        heads, d_head = values["n_heads"], values["d_head"]
        findings.append(
            Finding(
                "range",
                "error",
                f"n_heads × d_head = {heads} × {d_head} = {heads * d_head} columns, above the limit of {MAX_WIDTH}.",
                (f"Give d_head as {MAX_WIDTH // heads} or less.",),
                RANGE_SOURCE,
                "partition-rule",
            )
        )
        values["d_head"] = None
    c = replace(c, **values, checkpoint_scale=checkpoint_scale, dropout=dropout, rotary_pct=rotary_pct)
    return c, findings


def number(value: float) -> str:
    """A number for a message; very long ones by their size only."""
    if isinstance(value, int):
        return f"{value}" if -(10**15) < value < 10**15 else f"{'-' if value < 0 else ''}(more than 15 digits)"
    return f"{value:g}"


def _out_of_range(name: str, value: int, limit: int) -> Finding:
    fault = "is negative" if value < 0 else "is too small" if value < 1 else f"is above the limit of {limit}"
    return Finding(
        "range",
        "error",
        f"{name} = {number(value)} {fault}.",
        (f"Give {name} as an integer from 1 to {limit}, or leave it out.",),
        RANGE_SOURCE,
        "doctor",
    )


def _not_between(name: str, value: float, what: str, example: str) -> Finding:
    return Finding(
        "range",
        "error",
        f"{name} = {number(value)} is not {what}: it must lie from 0 to 1.",
        (f"Give {name} as a number from 0 to 1, such as {example}, or leave it out.",),
        "torch.nn.functional.dropout; transformers partial_rotary_factor",
        "doctor",
    )


def gather(c: Config) -> Facts:
    """Work out what the configuration says, as far as it goes."""
    mla = c.attention == "mla" or (c.attention is None and c.kv_latent is not None)
    d_head = c.d_head
    if d_head is None and c.n_heads and c.d_model and c.d_model % c.n_heads == 0 and not mla:
        d_head = c.d_model // c.n_heads
    kv_heads = _kv_heads(c, mla)
    left, kv_left = pruned(c.n_heads, kv_heads, c.prune_heads)
    attention = "mla" if mla else c.attention
    if c.n_heads and kv_heads and not mla:
        attention = "mha" if kv_heads == c.n_heads else "mqa" if kv_heads == 1 else "gqa"
    return Facts(
        d_model=c.d_model,
        n_heads=c.n_heads,
        n_kv_heads=kv_heads,
        d_head=d_head,
        d_head_v=d_head if c.d_head_v is None else c.d_head_v,
        heads=c.n_heads if left is None else left,
        kv_heads=kv_heads if kv_left is None else kv_left,
        attention=attention,
        mla=mla,
        length_q=c.seq_q if c.seq_q is not None else c.seq_k,
        length_k=c.seq_k if c.seq_k is not None else c.seq_q,
        batch=1 if c.batch is None else c.batch,
    )


def _kv_heads(c: Config, mla: bool) -> int | None:
    """Key/value heads. MLA makes as many as query heads out of its latent."""
    if mla:
        return c.n_heads
    if c.n_kv_heads is not None:
        return c.n_kv_heads
    if c.attention == "mqa":
        return 1
    return None if c.attention == "gqa" else c.n_heads


def prune_count(prune: int | list | None) -> int:
    """How many heads are taken out: the number itself, or the length of a list without its repetitions."""
    if prune is None:
        return 0
    if isinstance(prune, int):
        return prune
    return len({f"head {head}": True for head in prune})


def pruned(n_heads: int | None, n_kv_heads: int | None, prune: int | list | None) -> tuple[int | None, int | None]:
    """Query and key/value heads that are left; (None, None) where pruning is not asked for, or cannot be done.

    A key/value head goes with the last of its query heads, and the groups that stay must stay equal.
    """
    count = prune_count(prune)
    if not n_heads or not n_kv_heads or n_heads % n_kv_heads or not 0 < count < n_heads:
        return None, None
    left, group = n_heads - count, n_heads // n_kv_heads
    if isinstance(prune, int):
        if group == 1:
            return left, left
        if left % n_kv_heads == 0:
            return left, n_kv_heads
        return (left, left // group) if count % group == 0 else (None, None)
    if any(not 0 <= head < n_heads for head in prune):
        return None, None
    taken = {}
    for head in {f"head {head}": head for head in prune}.values():
        key = f"group {head // group}"
        taken[key] = taken.get(key, 0) + 1
    gone = len([key for key, lost in taken.items() if lost == group])
    sizes = [group - lost for lost in taken.values() if lost < group]
    if len(taken) < n_kv_heads:
        sizes.append(group)
    return (left, n_kv_heads - gone) if min(sizes) == max(sizes) else (None, None)
