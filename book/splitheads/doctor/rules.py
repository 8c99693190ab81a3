"""The diagnosis: every rule in turn, what follows from the numbers, and the verdict.

A rule is a function of the configuration and its facts that returns findings, and holds one idea. Rules about weights that
exist are in loading.py, rules about the kernel in kernels.py. All of it is written in the part of Python that
`splitheads.panels.translate` knows, because the page runs the same code.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from splitheads import cost, models, sharding
from splitheads.doctor.caches import CACHE_RULES, known, per_token_of
from splitheads.doctor.facts import PARTITION_SOURCE, Facts, gather, in_range
from splitheads.doctor.families import ODD_FAILS, ODD_RUNS
from splitheads.doctor.kernels import DEFAULT_TORCH, KERNEL_RULES, Kernel, dtype_of, kernel_of
from splitheads.doctor.keys import Config, ConfigError, read
from splitheads.doctor.loading import (
    mla_shapes,
    named,
    rule_checkpoint,
    rule_padding,
    rule_pruning,
    rule_scale,
    scale_that_runs,
    shapes_of,
)
from splitheads.doctor.report import SEVERITIES, Finding, Report
from splitheads.partition import MAX_WIDTH, legal_head_counts, nearest_head_counts, nearest_widths
from splitheads.words import listing, plural

DEFAULT_STACK = "vllm"
USUAL = (64, 128)
"""The head widths that most models have: 86 of the 120 in the table."""

_EXPLICIT = "transformers modeling_llama.py: q_proj is hidden_size to num_attention_heads × head_dim"
_ODD = "transformers 5.24.0: modeling_gpt_neox.py and modeling_glm.py; modeling_phi.py and modeling_stablelm.py, rotary_ndims"
_ROPE = "huggingface/transformers#48101; transformers modeling_llama.py rotate_half"
_GROUPS = "Ainslie et al. 2023, section 2.2; torch.nn.functional.scaled_dot_product_attention, enable_gqa"
_MLA = "DeepSeek-V2 (arXiv 2405.04434), section 2.1; transformers DeepseekV3Config"
_RANK = "Bhojanapalli et al. 2020: the scores of a head have rank d_head at most"


# The partition rule.


def rule_divides(c: Config, f: Facts) -> list[Finding]:
    """d_model must fall into n_heads equal parts, unless d_head is given."""
    if f.mla or c.d_head is not None or not f.d_model or not f.n_heads or f.d_model % f.n_heads == 0:
        return []
    width, heads = f.d_model, f.n_heads
    share, left = width // heads, width % heads
    if share == 0:
        message = f"d_model = {width} is too narrow for n_heads = {heads}: d_head = {width} / {heads} would be less than one column."
        name = "too-narrow"
    else:
        message = (
            f"d_model = {width} does not divide into n_heads = {heads}: {width} = {heads} × {share} + {left}, so "
            f"{plural(left, 'column')} would be left over. Code that rounds d_head down to {share} builds a q_proj of "
            f"{heads * share} rows where {width} are due."
        )
        name = "does-not-divide"
    return [
        Finding(
            name,
            "error",
            message,
            (*_head_counts(width, heads), *_other_ways(width, heads)),
            PARTITION_SOURCE,
            "partition-rule",
        )
    ]


def _head_counts(width: int, heads: int) -> list[str]:
    """Head counts that divide the width: those with usual heads, and the nearest."""
    usual = [f"{width // d} (d_head {d})" for d in USUAL if width % d == 0 and width // d != heads]
    nearest = [f"{count} (d_head {width // count})" for count in nearest_head_counts(width, heads)]
    others = [text for text in nearest if text not in usual]
    if not usual:
        return [f"n_heads = {' or '.join(nearest)}: nearest of those that divide {width}."]
    if not others:
        return [f"n_heads = {' or '.join(usual)}."]
    # Each is a change of its own, and the page makes a button of what stands behind "=".
    return [f"n_heads = {' or '.join(usual)}.", f"n_heads = {' or '.join(others)}: nearer, and divides {width}, too."]


def _other_ways(width: int, heads: int) -> list[str]:
    """Other widths for this head count, and a d_head of its own."""
    ways = []
    widths = nearest_widths(width, heads)
    if widths:
        ways.append(
            f"d_model = {' or '.join([f'{w} (d_head {w // heads})' for w in widths])}, for {plural(heads, 'head')}."
        )
    d = min(USUAL, key=lambda usual: abs(usual - width / heads))
    if heads * d <= MAX_WIDTH:
        ways.append(
            f"d_head = {d}, given explicitly: the heads then take {heads} × {d} = {heads * d} columns, and W_O is [{width}, {heads * d}]."
        )
    return ways


def rule_layers_for_heads(c: Config, f: Facts) -> list[Finding]:
    """A head count that is really the number of layers of a known model of this width."""
    if f.mla or c.d_head is not None or not f.d_model or not f.n_heads or f.d_model % f.n_heads == 0:
        return []
    for row in models.rows():
        if row.d_model == f.d_model and row.n_layers == f.n_heads and row.n_heads != f.n_heads:
            return [
                Finding(
                    "layers-for-heads",
                    "note",
                    f"{f.n_heads} is the number of layers of {row.name}, which has the same d_model = {f.d_model}; it has "
                    f"{plural(row.n_heads, 'head')} of {row.d_head}.",
                    (f"n_heads = {row.n_heads}, n_layers = {row.n_layers}.",),
                    f"{row.source}; rasbt/LLMs-from-scratch#444",
                    "partition-rule",
                )
            ]
    return []


def rule_breaks(c: Config, f: Facts) -> list[Finding]:
    """An explicit d_head that is not d_model / n_heads: legal, and often got wrong by tools."""
    if f.mla or not f.explicit or f.d_head_v is None:
        return []
    inner = f.n_heads * f.d_head
    derived = f.d_model // f.n_heads
    message = (
        f"n_heads × d_head = {f.n_heads} × {f.d_head} = {inner}, not d_model = {f.d_model}. That is legal: W_Q is "
        f"[{inner}, {f.d_model}] and W_O [{f.d_model}, {f.n_heads * f.d_head_v}]."
    )
    ways = [f"Always give d_head = {f.d_head} (head_dim) with the configuration."]
    if derived and derived != f.d_head:
        error = (derived / f.d_head - 1) * 100
        wrong = "too large" if error > 0 else "too small"
        message += (
            f" A tool that takes d_model / n_heads = {derived} for d_head makes the KV cache {abs(error):.3g} % {wrong}"
        )
        if c.rope and f.d_head % 2 == 0:
            message += f", and builds RoPE tables of {derived // 2} pairs for {f.d_head // 2}"
        message += "."
    if f.d_model % f.n_heads:
        ways.append(
            f"transformers 5.24.0 refuses it in LlamaConfig, because {f.d_model} is not a multiple of {f.n_heads} heads, head_dim or not."
        )
    return [Finding("breaks-rule", "note", f"{message}{_why(c, f)}", tuple(ways), _EXPLICIT, "partition-rule")]


def _why(c: Config, f: Facts) -> str:
    """Why the named model breaks the rule, where its numbers are its own."""
    row = named(c)
    if row is None or row.follows_rule or (row.n_heads, row.d_head, row.d_model) != (f.n_heads, f.d_head, f.d_model):
        return ""
    return f" {models.why_broken(row)}"


def rule_narrow(c: Config, f: Facts) -> list[Finding]:
    """Heads of very few columns: legal, and of little use."""
    if not f.d_head or f.d_head >= 16 or not f.n_heads:
        return []
    message = f"d_head = {f.d_head}: the T × T scores of such a head have rank {f.d_head} at most, however long T is."
    # Below 8 columns a row is shorter than one 16-byte load of half precision: nobody means that.
    severity = "warning" if f.d_head < 8 else "note"
    return [Finding("narrow-heads", severity, message, ("Fewer heads, of 64 columns or so.",), _RANK, "partition-rule")]


def rule_incomplete(c: Config, f: Facts) -> list[Finding]:
    """Not enough to divide anything."""
    if f.mla and not f.d_head and (f.n_heads or c.kv_latent is None):
        part = 64 if c.rope_dim is None else c.rope_dim
        message = (
            "In MLA nothing ties d_head to d_model / n_heads, so without d_head there are no shapes, no parameters and no scale to "
            "work out."
        )
        ways = (f"Give d_head, content and rotary part together, such as {128 + part} = 128 + {part}.",)
        return [Finding("incomplete", "note", message, ways, _MLA, "partition-rule")]
    if f.d_head or (f.d_model and f.n_heads) or (f.n_heads and c.tp):
        return []
    if f.mla and c.kv_latent is not None:
        return []
    missing = [name for name, value in (("d_model", f.d_model), ("n_heads", f.n_heads)) if not value]
    message = (
        f"Without {listing(missing)} there is no d_head to work out." if missing else "There is no d_head to work out."
    )
    return [
        Finding(
            "incomplete",
            "note",
            message,
            ("Give d_model and n_heads, or d_head, or a model.",),
            PARTITION_SOURCE,
            "partition-rule",
        )
    ]


# Key/value heads, and kinds of attention.


def rule_groups(c: Config, f: Facts) -> list[Finding]:
    """Every key/value head serves the same number of query heads."""
    if f.mla or not f.n_heads or not f.n_kv_heads or f.n_heads % f.n_kv_heads == 0:
        return []
    heads, kv_heads = f.n_heads, f.n_kv_heads
    if kv_heads > heads:
        message = (
            f"n_kv_heads = {kv_heads} is more than n_heads = {heads}: some key/value heads would have no query head."
        )
        ways = (f"n_kv_heads = {heads} at most: one for each query head.",)
    else:
        near = nearest_head_counts(heads, kv_heads)
        message = (
            f"n_kv_heads = {kv_heads} does not divide n_heads = {heads}: {heads} = {kv_heads} × {heads // kv_heads} + {heads % kv_heads}, so "
            f"{plural(heads % kv_heads, 'query head')} would be left over."
        )
        ways = (
            f"n_kv_heads = {' or '.join([f'{count}' for count in near])}.",
            f"n_heads = {' or '.join([f'{count}' for count in nearest_widths(heads, kv_heads)])}.",
        )
    return [Finding("kv-heads-do-not-divide", "error", message, ways, _GROUPS, "partition-rule")]


def rule_kind(c: Config, f: Facts) -> list[Finding]:
    """The name of the attention and its head counts say different things."""
    if c.attention is None or not f.n_heads:
        return []
    if c.attention == "gqa" and c.n_kv_heads is None:
        message = f"attention = gqa with n_heads = {f.n_heads} does not say how many key/value heads there are."
        ways = (f"Give n_kv_heads, a divisor of {f.n_heads}.",)
        return [Finding("kv-heads-missing", "note", message, ways, _GROUPS, "partition-rule")]
    if f.mla or c.n_kv_heads is None or f.attention == c.attention:
        return []
    message = f"attention = {c.attention}, but n_kv_heads = {c.n_kv_heads} of n_heads = {f.n_heads} is {f.attention}. The numbers are used here."
    wanted = {"mha": f"{f.n_heads}", "mqa": "1", "gqa": "between the two"}
    ways = (
        f"n_kv_heads = {wanted[c.attention]} for {c.attention}."
        if c.attention != "gqa"
        else f"n_kv_heads between 1 and {f.n_heads} for gqa.",
        f"Or attention = {f.attention}.",
    )
    harmless = c.attention == "gqa"  # both ends are its special cases
    return [Finding("kind-contradicts", "note" if harmless else "warning", message, ways, _GROUPS, "partition-rule")]


def rule_unused(c: Config, f: Facts) -> list[Finding]:
    """Keys that this kind of attention does not have."""
    if f.mla:
        if c.n_kv_heads is None or c.n_heads is None or c.n_kv_heads == c.n_heads:
            return []
        message = (
            f"n_kv_heads = {c.n_kv_heads} is not used: MLA makes keys and values for each of its {plural(c.n_heads, 'head')} out of "
            "one latent, and caches the latent."
        )
        ways = (
            "Leave n_kv_heads out.",
            f"If the keys are shared, as in GQA: attention = gqa, n_kv_heads = {c.n_kv_heads}.",
        )
        return [Finding("key-not-used", "warning", message, ways, _MLA, "partition-rule")]
    found = (("kv_latent", c.kv_latent), ("q_latent", c.q_latent), ("rope_dim", c.rope_dim))
    given = [f"{key} = {value}" for key, value in found if value is not None]
    if not given:
        return []
    kind = "no attention is named, and no kv_latent" if c.attention is None else f"attention = {c.attention}"
    message = (
        f"{listing(given)} {'are' if len(given) > 1 else 'is'} not used: {kind}, and only MLA has latents and a rotary part of its own. "
        "Shapes and cache are worked out without."
    )
    ways = ("If this is MLA: attention = mla.", "If it is not, leave them out.")
    return [Finding("key-not-used", "warning", message, ways, _MLA, "partition-rule")]


def rule_mla(c: Config, f: Facts) -> list[Finding]:
    """Latent attention: a head of two parts, one latent in the cache, and no tie to d_model / n_heads."""
    if not f.mla:
        return []
    findings = []
    if f.d_head and c.rope_dim and c.rope_dim >= f.d_head:
        ways = (f"Give d_head = content + rope, such as {128 + c.rope_dim} = 128 + {c.rope_dim}.",)
        message = f"rope_dim = {c.rope_dim} leaves nothing of d_head = {f.d_head}: an MLA head is its content part and its rotary part together."
        findings.append(Finding("mla-rope-part", "error", message, ways, _MLA, "partition-rule"))
        return findings
    if c.kv_latent is None or c.rope_dim is None:
        missing = [name for name, value in (("kv_latent", c.kv_latent), ("rope_dim", c.rope_dim)) if value is None]
        message = f"attention = mla without {listing(missing)}: what the cache holds is not known."
        ways = ("Give both; DeepSeek-V3 has kv_latent 512 and rope_dim 64.",)
        findings.append(Finding("mla-widths-missing", "note", message, ways, _MLA, "partition-rule"))
    else:
        message = f"MLA caches one latent of {c.kv_latent} + {c.rope_dim} = {c.kv_latent + c.rope_dim} values a layer and token, no K and V (no factor 2) and no head count."
        if f.d_head and f.n_heads:
            share = f.n_heads * (f.d_head + f.d_head_v) / (c.kv_latent + c.rope_dim)
            message += f" Full keys and values would be {f.n_heads} × ({f.d_head} + {f.d_head_v}) values, {share:.3g} times as many."
        findings.append(Finding("mla-cache", "note", message, (), _MLA, "partition-rule"))
    if f.d_head and c.rope_dim:
        findings.append(_mla_head(c, f))
    return findings


def _mla_head(c: Config, f: Facts) -> Finding:
    """The width of an MLA head, which nothing ties to d_model / n_heads."""
    message = f"A query or key head is {f.d_head - c.rope_dim} content + {c.rope_dim} rotary = {f.d_head} columns, and the scale 1/√{f.d_head}, before any YaRN factor."
    if not f.explicit:
        return Finding("mla-head", "note", message, (), _MLA, "partition-rule")
    message += (
        f" n_heads × d_head = {f.n_heads} × {f.d_head} = {f.n_heads * f.d_head}, not d_model = {f.d_model}, which is legal: "
        f"d_model / n_heads = {f.d_model / f.n_heads:g} is no width of anything here.{_why(c, f)}"
    )
    return Finding("breaks-rule", "note", message, (), f"{_MLA}; flashinfer-ai/flashinfer#790", "partition-rule")


def rule_values(c: Config, f: Facts) -> list[Finding]:
    """Values of another width than queries and keys."""
    if f.mla or not f.d_head or f.d_head_v == f.d_head:
        return []
    message = (
        f"d_head_v = {f.d_head_v} and d_head = {f.d_head}: the output of {plural(f.n_heads or 1, 'head')} is "
        f"{(f.n_heads or 1) * f.d_head_v} columns wide, which W_O reads. The scale goes by d_head."
    )
    if c.device is None and c.attn_implementation is None:
        message += " FlashAttention-2 wants one width."
    return [
        Finding(
            "value-width",
            "note",
            message,
            (),
            "pytorch/pytorch sdp_utils.cpp @ 001f694a, check_head_dim_size_flash; transformers PR 39010",
            "partition-rule",
        )
    ]


def rule_rope(c: Config, f: Facts) -> list[Finding]:
    """RoPE turns columns in pairs."""
    if f.mla:
        return _mla_rope(c)
    if not c.rope and c.rotary_pct is None:
        return []
    if c.rope is False or not f.d_head:
        return []
    turned = f.d_head if c.rotary_pct is None else int(f.d_head * c.rotary_pct)
    share = "" if c.rotary_pct is None else f" (int({f.d_head} × {c.rotary_pct:g}))"
    if turned == 0:
        message = f"RoPE would turn 0 of {f.d_head} columns{share}: positions are lost, and nothing raises."
        pair = share_text(2, f.d_head)
        ways = (f"rotary_pct = {pair} or more turns at least one pair." if pair else "A wider head.",)
        return [Finding("rope-nothing", "warning", message, ways, _ROPE, "partition-rule")]
    if turned % 2 == 0:
        return []
    rule = f" = {f.d_model} / {f.n_heads}" if c.d_head is None else ""
    message = f"d_head{rule} = {f.d_head} with RoPE turns {plural(turned, 'column')}{share}, an odd number: they are turned in pairs, by tables that are built for {turned + 1}"
    shares = [(count, share_text(count, f.d_head)) for count in (turned - 1, turned + 1)]
    ways = [f"rotary_pct = {text} turns {count} columns." for count, text in shares if count > 0 and text]
    kind = known(c, "kind")
    if turned < f.d_head and kind not in ODD_FAILS:
        if kind in ODD_RUNS:
            message += f". This class ({kind}) takes the tables' width, so {turned + 1} columns are turned and it runs."
        else:
            message += (
                f". It depends on the class: GPT-NeoX and GLM of transformers take the tables' width and run, with {turned + 1} columns "
                f"turned; Phi and StableLM fail in the first forward pass ({turned} against {turned + 1})."
            )
        return [Finding("rope-odd", "warning", message, tuple(ways), _ODD, "partition-rule")]
    ways.append("rope = false: without RoPE an odd width is legal.")
    if c.d_head is None and f.d_model and f.n_heads:
        even = nearest_even(f.d_model, f.n_heads)
        if even and turned == f.d_head:
            ways.insert(0, f"n_heads = {' or '.join([f'{count} (d_head {f.d_model // count})' for count in even])}.")
    if turned == f.d_head and c.rotary_pct is None:
        ways.insert(
            1 if len(ways) > 1 else 0,
            f"d_head = {f'{turned - 1} or ' if turned > 1 else ''}{turned + 1}, given explicitly.",
        )
    message += f", and the first forward pass fails ({turned} against {turned + 1})."
    return [Finding("rope-odd", "error", message, tuple(ways), _ROPE if turned == f.d_head else _ODD, "partition-rule")]


def share_text(columns: int, d_head: int) -> str:
    """A rotary_pct in few digits that turns so many columns of a head; "" where there is none, or none that is short."""
    if not 0 < columns <= d_head:
        return ""
    for digits in (2, 3, 4, 5, 6):
        ten = 10**digits
        text = f"{-(-columns * ten // d_head) / ten:g}"
        if int(d_head * float(text)) == columns:
            return text
    return ""


def nearest_even(width: int, heads: int) -> list[int]:
    """The nearest head counts on both sides that give an even d_head."""
    counts = [count for count in legal_head_counts(width) if (width // count) % 2 == 0]
    below = [count for count in counts if count < heads]
    above = [count for count in counts if count > heads]
    return [*below[-1:], *above[:1]]


def _mla_rope(c: Config) -> list[Finding]:
    if c.rope_dim is None or c.rope_dim % 2 == 0:
        return []
    message = f"rope_dim = {c.rope_dim} is odd: RoPE turns columns in pairs."
    return [Finding("rope-odd", "error", message, (f"rope_dim = {c.rope_dim + 1}.",), _ROPE, "partition-rule")]


# Tensor parallelism.


def rule_sharding(c: Config, f: Facts) -> list[Finding]:
    """Whether the heads fall onto tp ranks, and what is held twice."""
    if c.tp is None or not f.heads or not f.kv_heads or f.heads % f.kv_heads:
        return []
    stack = c.stack or DEFAULT_STACK
    try:
        part = sharding.shard(f.heads, f.kv_heads, c.tp, stack)
    except sharding.ShardError as error:
        return [_cannot_shard(c, f, stack, error)]
    if f.mla and c.tp > 1:
        message = f"tp = {c.tp}: every rank holds {plural(part.heads_per_rank, 'head')} and the whole latent cache, which has no heads to share out."
        return [
            Finding(
                "mla-replicates",
                "note",
                message,
                ("Data-parallel attention shares the cache out instead.",),
                _MLA,
                "sharding",
            )
        ]
    if part.replicas < 2:
        return []
    message = (
        f"tp = {c.tp} with n_kv_heads = {f.kv_heads}: each key/value head is on {part.replicas} ranks, so a rank's KV cache is as large as "
        f"at tp = {f.kv_heads}."
    )
    ways = (f"tp = {f.kv_heads} with {part.replicas} replicas of the model has the same cache on each GPU.",)
    return [Finding("kv-replicated", "note", message, ways, sharding.TEXTS[stack], "sharding")]


def _cannot_shard(c: Config, f: Facts, stack: str, error: Any) -> Finding:
    allowed = sharding.tp_sizes(f.heads, f.kv_heads, stack)
    shown = listing([*allowed]) if len(allowed) <= 12 else f"{listing([*allowed[:11]])} and {len(allowed) - 11} more"
    message = f"{error}".partition(" Sizes that ")[0]  # a suggestion has them
    if error.rule == "kv" and stack == "hf" and f.d_head and (f.kv_heads * f.d_head) % c.tp == 0:
        columns = f.kv_heads * f.d_head // c.tp
        message += f" k_proj has {f.kv_heads} × {f.d_head} = {f.kv_heads * f.d_head} rows, {columns} for each rank"
        message += (
            f", less than one head of {f.d_head}."
            if columns < f.d_head
            else f", no whole number of heads of {f.d_head}."
        )
    ways = [
        f"tp = {shown}: the sizes that {plural(f.heads, 'head')} and {plural(f.kv_heads, 'key/value head')} admit ({stack})."
    ]
    if stack == "hf" and c.tp in sharding.tp_sizes(f.heads, f.kv_heads, "vllm"):
        ways.append("A stack that replicates key/value heads, such as vLLM, takes this size.")
    ways.append("Split the layers instead (pipeline parallelism), or run replicas of the model.")
    return Finding(
        "tp-heads" if error.rule == "heads" else "tp-kv-heads",
        "error",
        message,
        tuple(ways),
        sharding.TEXTS[stack],
        "sharding",
    )


RULES = (
    rule_divides,
    rule_layers_for_heads,
    rule_groups,
    rule_rope,
    rule_kind,
    rule_checkpoint,
    rule_pruning,
    rule_padding,
    rule_scale,
    rule_sharding,
    rule_breaks,
    rule_unused,
    rule_mla,
    rule_values,
    rule_narrow,
    *CACHE_RULES,
    rule_incomplete,
)


# What follows.


def _split_is_sound(f: Facts) -> bool:
    """Whether there is a split at all, so that shapes and costs mean something."""
    return bool(f.d_head and f.heads and f.kv_heads) and f.heads % f.kv_heads == 0


_MLA_NAMES = {"q_b_proj": "q_proj", "kv_a_proj_with_mqa": "kv_down_proj", "kv_b_proj": "kv_up_proj"}
"""DeepSeek's names of MLA's projections -> ours in `derived`, where q_proj is what makes the queries."""


def derive(c: Config, f: Facts, k: Kernel, quantities: list) -> dict:
    """The numbers that follow, by name; only those that do."""
    derived = {}
    _put(derived, "d_head", f.d_head)
    _put(derived, "d_head_v", f.d_head_v)
    sound = _split_is_sound(f)
    if f.d_head and f.heads:
        derived["inner_width"] = f.heads * f.d_head
    _put(derived, "n_heads", f.heads)
    _put(derived, "n_kv_heads", f.kv_heads)
    if sound and f.d_model:
        if f.mla:
            shapes = mla_shapes(f.d_model, f.heads, f.d_head, f.d_head_v, c.kv_latent, c.q_latent, c.rope_dim)
            for name in shapes:
                if name != "q_a_proj":
                    derived[_MLA_NAMES.get(name, name)] = shapes[name]
        else:
            for name, shape in shapes_of(f.d_model, f.heads, f.kv_heads, f.d_head, f.d_head_v).items():
                derived[name] = shape
            if known(c, "gated"):
                derived["q_proj"] = [2 * f.heads * f.d_head, f.d_model]  # and a gate for the output
    _put(derived, "scale", scale_that_runs(c, f))
    for key, quantity in quantities:
        derived[key] = quantity.value
    if c.tp is not None and "kv_bytes_per_token" in derived and sound:
        _put(derived, "kv_bytes_per_token_per_rank", _per_rank(c, f, derived["kv_bytes_per_token"]))
    _put(derived, "backend", k.backend)
    _put(derived, "d_kernel", k.d_kernel)
    _put(derived, "bucket", k.bucket)
    _put(derived, "useful_share", k.useful)
    if f.heads and f.kv_heads and f.heads % f.kv_heads == 0:
        derived["tp_sizes"] = [*sharding.tp_sizes(f.heads, f.kv_heads, c.stack or DEFAULT_STACK)]
    return derived


def _put(derived: dict, name: str, value: Any) -> None:
    if value is not None:
        derived[name] = value


def _per_rank(c: Config, f: Facts, per_token: int) -> int | None:
    stack = c.stack or DEFAULT_STACK
    try:
        sharding.shard(f.heads, f.kv_heads, c.tp, stack)
    except sharding.ShardError:
        return None
    return sharding.kv_bytes_per_rank(per_token, None if f.mla else f.kv_heads, c.tp, stack)


def quantities_of(c: Config, f: Facts) -> list:
    """What can be computed, as (name in `derived`, Quantity). Where training is said, FLOPs are forward and backward."""
    dtype, training, gated = dtype_of(c), bool(c.training), bool(known(c, "gated"))
    whole = _split_is_sound(f) and f.d_model is not None
    latent = f.mla and c.kv_latent is not None and c.rope_dim is not None
    mla_whole = latent and whole and c.rope_dim < f.d_head
    per_token, found = per_token_of(c, f), []
    if whole and not f.mla:
        parameters = cost.attention_parameters(
            f.d_model, f.heads, f.kv_heads, f.d_head, f.d_head_v, c.bias or False, gated
        )
        found.append(("attention_params_per_layer", parameters))
    if mla_whole:
        nope = f.d_head - c.rope_dim
        parameters = cost.mla_parameters(f.d_model, f.heads, nope, c.rope_dim, f.d_head_v, c.kv_latent, c.q_latent)
        found.append(("attention_params_per_layer", parameters))
    if per_token is not None:
        found.append(("kv_bytes_per_token", per_token))
        if f.length_k is not None:
            found.append(("kv_bytes_total", cost.kv_bytes(per_token, f.length_k, f.batch)))
    if c.device_name is not None and _split_is_sound(f) and (latent or not f.mla):
        found += _rooflines(c, f, dtype)
    if f.length_q is None or not f.heads:
        return found
    found.append(("score_bytes", cost.score_bytes(f.heads, f.length_q, f.length_k, f.batch, dtype)))
    if whole and not f.mla:
        flops = cost.projection_flops(
            f.d_model, f.heads, f.kv_heads, f.d_head, f.d_head_v, f.length_q, f.batch, training, gated
        )
        found.append(("projection_flops", flops))
    if mla_whole:
        nope = f.d_head - c.rope_dim
        flops = cost.mla_projection_flops(
            f.d_model, f.heads, nope, c.rope_dim, f.d_head_v, c.kv_latent, c.q_latent, f.length_q, f.batch, training
        )
        found.append(("projection_flops", flops))
    if f.d_head:
        flops = cost.core_flops(
            f.heads, f.d_head, f.d_head_v, f.length_q, f.length_k, f.batch, bool(c.is_causal), training
        )
        found.append(("core_flops", flops))
    return found


def _with_roofline(one: cost.Intensity, device: str, dtype: str) -> cost.Intensity:
    """The intensity, and in its text where it lies on this card's roofline."""
    side = cost.roofline(one, device, dtype).text.partition("; ")[2]  # before it stands the intensity again
    return replace(one, name=f"arithmetic intensity, {one.name}", text=f"{one.text}; {side}")


def _rooflines(c: Config, f: Facts, dtype: str) -> list:
    """On a card whose peaks are known: FLOPs for each byte, and which limit they meet. Decoding, and the whole prompt."""
    keys = f.length_k or 1
    if f.mla:
        decode = cost.intensity_mla_decode(f.heads, c.kv_latent, c.rope_dim, keys, dtype)
    else:
        decode = cost.intensity_decode(f.heads, f.kv_heads, f.d_head, f.d_head_v, keys, dtype)
    kinds = [("decode_intensity", decode)]
    if f.length_q is not None and f.length_q > 1:
        fused = cost.intensity_fused(
            f.heads, f.kv_heads, f.d_head, f.d_head_v, f.length_q, f.length_k, bool(c.is_causal), dtype
        )
        kinds.append(("prefill_intensity", fused))
    try:
        card = c.device_name
        if re.fullmatch(r"\d{4}", card):
            card = f"RTX {card}"  # as people write it: 3090
        return [(key, _with_roofline(one, card, dtype)) for key, one in kinds]
    except cost.CostError:
        return []  # the name of an architecture, or a card or dtype without published peaks


def diagnose(config: Any) -> Report:
    """Everything that a configuration means.

    config: a dict of the keys in splitheads.doctor.keys, a Hugging Face config.json, or a Config.

    Raises:
        ConfigError: this is no configuration. Everything else is told as a finding.
    """
    read_in = config if isinstance(config, Config) else read(config)
    c, findings = in_range(read_in)
    f = gather(c)
    k = kernel_of(c, f)
    findings = [*findings, *read_in.notes]
    for rule in RULES:
        findings += rule(c, f)
    for rule in KERNEL_RULES:
        findings += rule(c, f, k)
    if any(finding.severity == "error" for finding in findings):
        findings = [finding for finding in findings if finding.id != "incomplete"]
    ordered = [finding for severity in SEVERITIES for finding in findings if finding.severity == severity]
    present = [finding.severity for finding in ordered]
    verdict = "reject" if "error" in present else "warn" if "warning" in present else "ok"
    quantities = quantities_of(c, f)
    return Report(
        verdict,
        derive(c, f, k, quantities),
        tuple(ordered),
        tuple([quantity for _, quantity in quantities]),
        _in_effect(read_in, c, k),
    )


def _in_effect(read_in: Config, c: Config, k: Kernel) -> dict:
    """The keys that the answer rests on: what was read, and the defaults that were taken."""
    config = {**(read_in.values or {})}
    if k.way == "sdpa" and c.device is not None:
        config["torch"] = c.torch or DEFAULT_TORCH
        config["dtype"] = dtype_of(c)
    return config


def diagnose_plain(config: Any) -> dict:
    """The report in JSON types, {"report": ...}, or {"error": message} for what is no configuration. Never raises."""
    try:
        return {"report": diagnose(config).to_dict()}
    except ConfigError as error:
        return {"error": f"{error}"}
