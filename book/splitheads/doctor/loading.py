"""Rules about weights that exist already: what loads, what loads and is wrong, and what pruning and padding change."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import Any

from splitheads import models
from splitheads.doctor.facts import Facts, number, prune_count
from splitheads.doctor.keys import YARN, Config
from splitheads.doctor.report import Finding
from splitheads.words import listing, plural

_STATE_DICT = "torch.nn.Module.load_state_dict; RestoreFormer#20, huggingface/transformers#2596"
_GQA_PAPER = "Ainslie et al. 2023, section 2.1; meta-llama/llama#427"
_PRUNING = "huggingface/transformers#27044, intel/neural-compressor#525, microsoft/fastformers#12"
_SCALE = "Vaswani et al. 2017, section 3.2.1; PyTorch documentation of scaled_dot_product_attention, 2.15"
_PADDING = "intel/ipex-llm PR 12619, huggingface/transformers PR 35984"


def shapes_of(d_model: int, n_heads: int, n_kv_heads: int, d_head: int, d_head_v: int) -> dict:
    """The weights of the four projections, [out, in]."""
    return {
        "q_proj": [n_heads * d_head, d_model],
        "k_proj": [n_kv_heads * d_head, d_model],
        "v_proj": [n_kv_heads * d_head_v, d_model],
        "o_proj": [d_model, n_heads * d_head_v],
    }


def named(c: Config) -> Any:
    """The row of the model that was named, or None."""
    return next((row for row in models.rows() if row.name == c.model), None)  # reading has made the name the table's


def mla_shapes(
    d_model: int,
    n_heads: int,
    d_head: int,
    d_head_v: int,
    kv_latent: int | None = None,
    q_latent: int | None = None,
    rope_dim: int | None = None,
) -> dict:
    """The weights of MLA's projections, [out, in], under DeepSeek's names; those that are known."""
    shapes = {}
    if q_latent:
        shapes["q_a_proj"], shapes["q_b_proj"] = [q_latent, d_model], [n_heads * d_head, q_latent]
    else:
        shapes["q_proj"] = [n_heads * d_head, d_model]
    if kv_latent and rope_dim and rope_dim < d_head:
        shapes["kv_a_proj_with_mqa"] = [kv_latent + rope_dim, d_model]
        shapes["kv_b_proj"] = [n_heads * (d_head - rope_dim + d_head_v), kv_latent]
    shapes["o_proj"] = [d_model, n_heads * d_head_v]
    return shapes


def scale_that_runs(c: Config, f: Facts) -> float | None:
    """The factor of the scores: the one given, the trained one, or the default, which goes by the padded width."""
    if c.scale is not None:
        return c.scale
    if c.checkpoint_scale is not None:
        return c.checkpoint_scale
    if not f.d_head:
        return None
    return 1 / sqrt(max(f.d_head, c.pad_d_head_to or 0))


def _whose(c: Config) -> str:
    """Whose scale it is."""
    return c.model if c.model is not None and (c.origin or {}).get("checkpoint_scale") == "model" else "the checkpoint"


def sides(shape: list) -> str:
    """[512, 768]"""
    return f"[{shape[0]}, {shape[1]}]"


def rule_checkpoint(c: Config, f: Facts) -> list[Finding]:
    """Weights of another configuration: will not load, or loads and means something else."""
    given = (c.checkpoint_n_heads, c.checkpoint_n_kv_heads, c.checkpoint_d_model, c.checkpoint_d_head, c.trained)
    if given == (None, None, None, None, None) or not f.n_heads or not f.n_kv_heads:
        return []
    own = c.trained or {}
    heads = c.checkpoint_n_heads or f.n_heads
    d_model = c.checkpoint_d_model or f.d_model
    kv_heads = c.checkpoint_n_kv_heads or (heads if f.n_kv_heads == f.n_heads else f.n_kv_heads)
    if "attention" in own and (own["attention"] == "mla") != f.mla:
        return [_other_kind(own["attention"], f)]
    if f.mla and not f.d_head:
        return [_mla_heads(f, heads)] if heads != f.n_heads else []
    d_head = _head_of_checkpoint(c, f, d_model, heads)
    if d_model is None or f.d_model is None:
        return _without_width(f, heads, kv_heads, c.checkpoint_d_head)
    if d_head is None or f.d_head is None:
        if d_model != f.d_model:
            return _other_width(f, d_model, [])
        return [] if f.d_head is None else [_unknown_head(d_model, heads)]
    d_head_v = own.get("d_head_v", d_head if f.d_head_v == f.d_head else f.d_head_v)
    if f.mla:
        there = mla_shapes(
            d_model,
            heads,
            d_head,
            d_head_v,
            own.get("kv_latent", c.kv_latent),
            own.get("q_latent") if own else c.q_latent,
            own.get("rope_dim", c.rope_dim),
        )
        here = mla_shapes(f.d_model, f.n_heads, f.d_head, f.d_head_v, c.kv_latent, c.q_latent, c.rope_dim)
    else:
        there = shapes_of(d_model, heads, kv_heads, d_head, d_head_v)
        here = shapes_of(f.d_model, f.n_heads, f.n_kv_heads, f.d_head, f.d_head_v)
    differing = [
        f"{name} {sides(there[name])} against {sides(here[name]) if name in here else 'none'}"
        for name in there
        if here.get(name) != there[name]
    ]
    if d_model != f.d_model:
        return _other_width(f, d_model, differing)
    changed = [("n_heads", heads, f.n_heads)]
    if not f.mla:
        changed.append(("n_kv_heads", kv_heads, f.n_kv_heads))
    changed += [("d_head", d_head, f.d_head), ("d_head_v", d_head_v, f.d_head_v)]
    if f.mla and own:
        for key, value in (("kv_latent", c.kv_latent), ("q_latent", c.q_latent), ("rope_dim", c.rope_dim)):
            changed.append((key, own.get(key), value))
    if d_head_v == d_head and f.d_head_v == f.d_head:
        changed = [one for one in changed if one[0] != "d_head_v"]
    changed = [one for one in changed if one[1] != one[2]]
    if differing:
        return [_will_not_load(f, heads, kv_heads, changed, differing)]
    if heads == f.n_heads:
        return []
    return [
        Finding(
            "loads-but-wrong",
            "warning",
            f"The checkpoint was trained with {plural(heads, 'head')} of {d_head} columns; this configuration cuts the "
            f"same {f.n_heads * f.d_head} columns into {plural(f.n_heads, 'head')} of {f.d_head}. No shape holds a head "
            "count, so every weight loads without complaint, and the outputs are wrong.",
            (
                f"Use n_heads = {heads}, as trained.",
                "For fewer heads: prune whole heads (prune_heads), or train again.",
            ),
            _STATE_DICT,
            "partition-rule",
        )
    ]


def _head_of_checkpoint(c: Config, f: Facts, d_model: int | None, heads: int) -> int | None:
    """d_head of the checkpoint: as stated, the explicit one of this configuration, or by the rule."""
    if c.checkpoint_d_head is not None:
        return c.checkpoint_d_head
    if f.mla or f.explicit:
        return f.d_head
    return d_model // heads if d_model is not None and d_model % heads == 0 else None


def _unknown_head(d_model: int, heads: int) -> Finding:
    """A head count of the checkpoint that cannot be, so no shapes to compare."""
    message = (
        f"The checkpoint's {plural(heads, 'head')} do not divide its d_model = {d_model} ({d_model} = {heads} × {d_model // heads} + "
        f"{d_model % heads}), and its d_head is not given. Its shapes are not known, so whether it loads was not checked."
    )
    ways = ("Give checkpoint_d_head, where the checkpoint has a d_head of its own.", "Or correct checkpoint_n_heads.")
    return Finding("checkpoint-unclear", "warning", message, ways, _STATE_DICT, "partition-rule")


def _other_kind(kind: str, f: Facts) -> Finding:
    """MLA's weights in another attention, or the other way round."""
    message = (
        f"The checkpoint has {kind} attention, this configuration {f.attention}. MLA has kv_a_proj_with_mqa and kv_b_proj where the "
        "others have k_proj and v_proj, so neither finds its weights."
    )
    ways = (
        f"Use attention = {kind}, as trained.",
        "A conversion between the two needs the weights recomputed and more training.",
    )
    return Finding("will-not-load", "error", message, ways, _STATE_DICT, "partition-rule")


def _mla_heads(f: Facts, heads: int) -> Finding:
    message = (
        f"The checkpoint has {plural(heads, 'head')}, this configuration {f.n_heads}: in MLA no width is tied to their product, so "
        "q_b_proj (or q_proj), kv_b_proj and o_proj have other shapes, and the weights will not load."
    )
    return Finding(
        "will-not-load", "error", message, (f"Use n_heads = {heads}, as trained.",), _STATE_DICT, "partition-rule"
    )


def _without_width(f: Facts, heads: int, kv_heads: int, d_head: int | None) -> list[Finding]:
    """No d_model: q_proj's rows where both head widths are known, else head counts alone."""
    if d_head is not None and f.d_head:
        pairs = [("n_heads", heads, f.n_heads), ("n_kv_heads", kv_heads, f.n_kv_heads), ("d_head", d_head, f.d_head)]
        differing = [
            f"{name} {one * d_head} rows against {two * f.d_head}"
            for name, one, two in (("q_proj", heads, f.n_heads), ("k_proj", kv_heads, f.n_kv_heads))
            if one * d_head != two * f.d_head
        ]
        if differing:
            changed = [pair for pair in pairs if pair[1] != pair[2]]
            return [_will_not_load(f, heads, kv_heads, changed, differing)]
    if kv_heads == f.n_kv_heads and heads == f.n_heads:
        return []
    if kv_heads * f.n_heads == f.n_kv_heads * heads:
        message = (
            f"The checkpoint has {plural(heads, 'head')}, this configuration {f.n_heads}. At the same d_model the shapes "
            "are equal, so the weights load without complaint, and the outputs are wrong."
        )
        return [
            Finding(
                "loads-but-wrong",
                "warning",
                message,
                (f"Use n_heads = {heads}, as trained.", "Give d_model, to see the shapes."),
                _STATE_DICT,
                "partition-rule",
            )
        ]
    message = (
        f"The checkpoint has {kv_heads} key/value heads for {plural(heads, 'query head')}, this configuration "
        f"{f.n_kv_heads} for {f.n_heads}: k_proj and v_proj have other shapes, so the weights will not load."
    )
    return [Finding("will-not-load", "error", message, _kv_ways(f, heads, kv_heads), _GQA_PAPER, "partition-rule")]


def _kv_ways(f: Facts, heads: int, kv_heads: int) -> tuple[str, ...]:
    ways = [f"Use n_heads = {heads} and n_kv_heads = {kv_heads}, as trained."]
    if kv_heads > f.n_kv_heads and kv_heads % f.n_kv_heads == 0 and heads == f.n_heads:
        group = kv_heads // f.n_kv_heads
        ways.append(
            f"To convert: average the weights of each {group} key heads and each {group} value heads into one, then "
            "train on for about 5 % of the original compute."
        )
    return tuple(ways)


def _will_not_load(f: Facts, heads: int, kv_heads: int, changed: list, differing: list) -> Finding:
    """changed: (key, in the checkpoint, here). differing: the shapes, as text."""
    names = [f"{key} {'none' if old is None else old} to {new}" for key, old, new in changed]
    counts = [key for key, _, _ in changed if key in ("n_heads", "n_kv_heads")]
    others = [f"{key} = {old}" if old is not None else f"no {key}" for key, old, _ in changed if key not in counts]
    ways = [] if not counts else [f"Use n_heads = {heads}, as trained."] if f.mla else [*_kv_ways(f, heads, kv_heads)]
    if others:
        ways.append(f"Use {listing(others)}, as trained.")
    return Finding(
        "will-not-load",
        "error",
        f"The checkpoint's weights will not load ({', '.join(names)}): {'; '.join(differing)} (checkpoint against this "
        "configuration, [out, in]).",
        tuple(ways),
        _GQA_PAPER if "n_kv_heads" in counts else _STATE_DICT,
        "partition-rule",
    )


def _other_width(f: Facts, d_model: int, differing: list) -> list[Finding]:
    listed = f": {'; '.join(differing)} (checkpoint against this configuration)" if differing else ""
    message = (
        f"The checkpoint is {d_model} columns wide, this configuration {f.d_model}, so nothing that touches the residual "
        f"stream will load{listed}. The embeddings, the norms and the feed-forward weights fail as well."
    )
    ways = (
        f"Use d_model = {d_model}, as trained.",
        "A trained width cannot be changed in the configuration: for fewer heads prune whole ones, for another width train again.",
    )
    return [Finding("will-not-load", "error", message, ways, _STATE_DICT, "partition-rule")]


def rule_pruning(c: Config, f: Facts) -> list[Finding]:
    """Whole heads taken out: what stays, what shrinks, and what cannot be done."""
    if c.prune_heads is None or c.prune_heads == 0 or c.prune_heads == [] or not f.n_heads:
        return []
    count = prune_count(c.prune_heads)
    if not isinstance(c.prune_heads, int):
        outside = [head for head in c.prune_heads if not 0 <= head < f.n_heads]
        if outside:
            return [
                _cannot_prune(
                    f"prune_heads names head {number(outside[0])}, but the heads are 0 to {f.n_heads - 1}.",
                    f"Name heads from 0 to {f.n_heads - 1}.",
                )
            ]
    if count < 0:
        return [_cannot_prune(f"prune_heads = {number(count)} is negative.", f"Give 1 to {f.n_heads - 1}.")]
    if count >= f.n_heads:
        return [
            _cannot_prune(
                f"prune_heads takes {number(count)} of {plural(f.n_heads, 'head')}: none would be left.",
                f"Prune {f.n_heads - 1} at most." if f.n_heads > 1 else "A single head cannot be pruned.",
            )
        ]
    if f.heads == f.n_heads:  # `pruned` found no way
        group = f.n_heads // f.n_kv_heads if f.n_kv_heads else 0
        if not group or f.n_heads % f.n_kv_heads:
            return []
        return [
            _cannot_prune(
                f"Taking {plural(count, 'head')} out of {f.n_heads} leaves {f.n_heads - count} query heads in groups of "
                f"unequal size over {plural(f.n_kv_heads, 'key/value head')}.",
                f"Take as many heads from each of the {f.n_kv_heads} groups, or whole groups of {group}.",
            )
        ]
    return [_after_pruning(c, f)]


def _cannot_prune(message: str, way: str) -> Finding:
    return Finding("prune-heads", "error", message, (way,), _PRUNING, "partition-rule")


def _after_pruning(c: Config, f: Facts) -> Finding:
    message = f"{plural(f.heads, 'head')} of {f.n_heads} left"
    ways = [f"Set the head count to {f.heads} wherever the code keeps it."]
    if f.d_head:
        scale = scale_that_runs(replace(c, pad_d_head_to=None), f)
        usual = c.scale is None and c.checkpoint_scale is None
        message += f", each still {f.d_head} columns wide, so the scale stays {f'1/√{f.d_head} = ' if usual else ''}{scale:.3g}"
        if not f.mla:
            ways = [
                f"Set the head count to {f.heads} and the inner width (all_head_size) to {f.heads * f.d_head}, wherever the code keeps them."
            ]
        if f.d_model:
            if f.mla:
                there = mla_shapes(f.d_model, f.heads, f.d_head, f.d_head_v, c.kv_latent, c.q_latent, c.rope_dim)
                shown = [name for name in ("q_proj", "q_b_proj", "kv_b_proj", "o_proj") if name in there]
            else:
                there = shapes_of(f.d_model, f.heads, f.kv_heads, f.d_head, f.d_head_v)
                shown = ["q_proj", "k_proj", "o_proj"]
            message += f": {', '.join([f'{name} {sides(there[name])}' for name in shown])}"
            if f.mla:
                message += ". The projections down to the latents have no heads, and stay"
            elif not f.explicit:
                wrong = f.d_model / f.heads
                message += f". d_model / n_heads = {f.d_model} / {f.heads} = {wrong:g} is no longer d_head"
    return Finding("pruned", "note", f"{message}.", tuple(ways), _PRUNING, "partition-rule")


def rule_padding(c: Config, f: Facts) -> list[Finding]:
    """Heads padded with zeros for a kernel: the default scale grows with them, and must not."""
    if c.pad_d_head_to is None or not f.d_head or c.pad_d_head_to == f.d_head:
        return []
    pad, d = c.pad_d_head_to, f.d_head
    if pad < d:
        return [
            Finding(
                "pad-too-narrow",
                "error",
                f"pad_d_head_to = {pad} is less than d_head = {d}: padding adds columns, it cannot take {d - pad} away.",
                (f"Give {d} or more, such as {-(-d // 32) * 32}.",),
                _PADDING,
                "fast-path",
            )
        ]
    own = c.checkpoint_scale
    right = 1 / sqrt(d) if own is None else own
    said = f"the unpadded width wants 1/√{d} =" if own is None else "the weights were trained with"
    if scale_that_runs(c, f) > 0 and abs(scale_that_runs(c, f) / right - 1) <= 0.01:
        kept = f"scale = {right:.3g} = 1/√{d}" if own is None else f"the scale {own:.3g}, as trained,"
        message = (
            f"d_head {d} padded to {pad}, with {kept} kept: the result is the same, and {d / pad * 100:.3g} % of the columns are "
            "useful."
        )
        ways = () if c.scale is not None else (f"Pass scale = {right:.4g}: the default would be 1/√{pad}.",)
        return [Finding("padded", "note", message, ways, _PADDING, "fast-path")]
    factor = sqrt(pad / d)
    return [
        Finding(
            "padding-changes-scale",
            "warning",
            f"Padding d_head from {d} to {pad} changes the default scale from 1/√{d} = {right:.3g} to 1/√{pad} = "
            f"{1 / sqrt(pad):.3g}: the logits come out √({pad}/{d}) = {factor:.3f} times too small."
            if c.scale is None
            else f"d_head is padded from {d} to {pad} and scale = {c.scale:.3g} is given; {said} "
            f"{right:.3g}, {_times(c.scale / right)}.",
            (f"Pass scale = 1/√{d} = {right:.4g}: the zeros then change nothing.",)
            if own is None
            else (f"Pass scale = {right:.4g}, as trained: the zeros then change nothing.",),
            _PADDING,
            "fast-path",
        )
    ]


def _times(factor: float) -> str:
    return (
        f"{factor:.3g} times less" if factor >= 1 else f"{1 / factor:.3g} times more" if factor > 0 else "and above 0"
    )


def rule_scale(c: Config, f: Facts) -> list[Finding]:
    """A scale that is not 1/√d_head: the direction and the size of the mistake."""
    if not f.d_head:
        return []
    own = c.checkpoint_scale
    if own is not None and (c.scale is None or abs(c.scale / own - 1) <= 0.01):
        if any(note.id == "own-scale" for note in c.notes):
            return []  # the reader of the config.json has told it
        return [_own_scale(c, f, own)]
    if c.scale is None:
        return []
    if c.pad_d_head_to is not None and c.pad_d_head_to > f.d_head:
        return []  # rule_padding has looked at it
    right = 1 / sqrt(f.d_head) if own is None else own
    if c.scale <= 0:
        return [
            _scale_finding(
                "scale-not-positive",
                f"scale = {c.scale:g}: every score becomes {'0, so all keys weigh the same' if c.scale == 0 else 'its opposite'}.",
                f,
                own,
            )
        ]
    factor = c.scale / right
    if abs(factor - 1) <= 0.01:
        return []
    wanted = f"1/√d_head = 1/√{f.d_head} = {right:.3g}" if own is None else f"{_whose(c)} was trained with {own:.3g}"
    where = f"scale = {c.scale:.3g}{_meaning(c, f)} where {wanted}"
    if factor < 1:
        text = f"{where}: the logits are {1 / factor:.3g} times too small, and the softmax comes out too flat."
        return [_scale_finding("scale-too-flat", text, f, own)]
    text = f"{where}: the logits are {factor:.3g} times too large, and the softmax comes out too sharp."
    return [_scale_finding("scale-too-sharp", text, f, own)]


def _own_scale(c: Config, f: Facts, own: float) -> Finding:
    """The note on a scale that is not 1/√d_head, and is right."""
    row, who = named(c), _whose(c)
    usual = f"1/√{f.d_head} = {1 / sqrt(f.d_head):.3g}"
    message, source = f"{who[0].upper()}{who[1:]} scales its scores by {own:.3g}, not by {usual}.", _SCALE
    if row is not None and who == c.model:
        source = row.source
        if c.model in YARN:
            factor, mscale, source = YARN[c.model]
            message = (
                f"{c.model} scales its scores by {own:.4g}, not by {usual}: its released config.json has YaRN with factor {factor} and "
                f"mscale_all_dim {mscale:g}, which brings (0.1 × {mscale:g} × ln {factor} + 1)² = {own * sqrt(f.d_head):.3g}."
            )
    return Finding("own-scale", "note", message, ("Pass it as scale, or fold it into W_Q.",), source, "partition-rule")


def _meaning(c: Config, f: Facts) -> str:
    """What a wrong scale looks like, in brackets."""
    looks = []
    if c.checkpoint_scale is not None and abs(c.scale * sqrt(f.d_head) - 1) <= 0.01:
        looks.append(f"1/√d_head = 1/√{f.d_head}, the default")
    if f.d_model and abs(c.scale * sqrt(f.d_model) - 1) <= 0.01:
        looks.append(f"1/√d_model = 1/√{f.d_model}")
    if abs(c.scale * f.d_head - 1) <= 0.01 and f.d_head > 1:
        looks.append(f"1/d_head = 1/{f.d_head}")
    if f.explicit and abs(c.scale * sqrt(f.d_model / f.n_heads) - 1) <= 0.01:
        looks.append(f"1/√(d_model / n_heads) = 1/√{f.d_model / f.n_heads:g}, as in Gemma 2 27B")
    if f.mla and c.rope_dim and f.d_head > c.rope_dim and abs(c.scale * sqrt(f.d_head - c.rope_dim) - 1) <= 0.01:
        looks.append(f"1/√{f.d_head - c.rope_dim}, without the {c.rope_dim} rotary columns")
    if abs(c.scale - 1) <= 0.001:
        looks.append("no scaling at all")
    return f" ({listing(looks)})" if looks else ""


def _scale_finding(name: str, message: str, f: Facts, own: float | None) -> Finding:
    ways = (
        f"Use 1/√{f.d_head} = {1 / sqrt(f.d_head):.4g}, the default.",
        "Keep it only if the model was trained with it (muP, YaRN, T5 and some Gemma models use others).",
    )
    if own is not None:
        ways = (
            f"Use {own:.4g}, as trained; the default, 1/√{f.d_head} = {1 / sqrt(f.d_head):.4g}, must be overridden.",
        )
    return Finding(name, "warning", message, ways, _SCALE, "partition-rule")
