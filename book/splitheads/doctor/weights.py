"""What the shapes of weights tell of the heads, and what contradicts them.

A weight of nn.Linear is [out, in]. The rows of q_proj are n_heads × d_head, those of k_proj n_kv_heads × d_head: with one
of the two factors known, the other follows. A shape holds no head count by itself.
"""

from __future__ import annotations

import re
from typing import Any

from splitheads.doctor.report import Finding
from splitheads.doctor.values import printable
from splitheads.partition import MAX_WIDTH

ROLES = {
    "q_proj": "q",
    "query": "q",
    "query_proj": "q",
    "q_lin": "q",
    "to_q": "q",
    "wq": "q",
    "q": "q",
    "k_proj": "k",
    "key": "k",
    "key_proj": "k",
    "k_lin": "k",
    "to_k": "k",
    "wk": "k",
    "k": "k",
    "v_proj": "v",
    "value": "v",
    "value_proj": "v",
    "v_lin": "v",
    "to_v": "v",
    "wv": "v",
    "v": "v",
    "o_proj": "o",
    "out_proj": "o",
    "o_lin": "o",
    "out_lin": "o",
    "to_out": "o",
    "wo": "o",
    "o": "o",
    "qkv_proj": "qkv",
    "qkv": "qkv",
    "wqkv": "qkv",
    "in_proj": "qkv",
    "c_attn": "qkv",
    "query_key_value": "qkv",
}
"""Last part of a weight's name -> which projection it is."""


def last(weight: str) -> str:
    """The last part of a weight's name that says something: "q_proj" of "model.layers.0.self_attn.q_proj.weight"."""
    text = re.sub(r"(\.base_layer)?[._]weight$", "", weight[-200:].strip().lower())
    return re.sub(r"(\.[0-9]+)+$", "", text).split(".")[-1]


def role_of(weight: str) -> str | None:
    return ROLES.get(last(weight))


def infer(values: dict, origin: dict, notes: list) -> None:
    """Fill in what the weights' shapes tell, and name what contradicts them."""
    shapes = _by_role(values["weight_shapes"], notes)
    if values.get("attention") == "mla" or not shapes:
        return
    _infer_width(shapes, values, origin, notes)
    _infer_heads(shapes, values, origin, notes)
    _compare(shapes, values, notes)


def _by_role(weights: dict, notes: list) -> dict:
    """Projection -> (name, out, in); what is out of range or differs between layers is named and left out."""
    shapes: dict = {}
    for weight in weights:
        role = role_of(weight)
        rows, columns = weights[weight]
        if min(rows, columns) < 1 or max(rows, columns) > 4 * MAX_WIDTH:
            wrong = min(rows, columns) if min(rows, columns) < 1 else max(rows, columns)
            notes.append(out_of_range(f"weight_shapes: a side of {printable(weight[-60:])}", wrong, 1024))
            continue
        if last(weight) == "c_attn" and columns == 3 * rows:
            rows, columns = columns, rows  # GPT-2's Conv1D keeps its weight as [in, out]
        if role in shapes and (shapes[role][1] != rows or shapes[role][2] != columns):
            notes.append(
                _contradiction(
                    f"{printable(weight[-60:])} is [{rows}, {columns}] and {shapes[role][0]} is [{shapes[role][1]}, {shapes[role][2]}]: "
                    "one number of heads does not explain both",
                    ["Give the shapes of one layer, or diagnose each layer by itself."],
                )
            )
            continue
        shapes[role] = (printable(weight[-60:]), rows, columns)
    return shapes


def _learn(key: str, value: int, how: str, values: dict, origin: dict, notes: list) -> None:
    values[key], origin[key] = value, "weights"
    notes.append(Finding("inferred", "note", f"{key} = {value}: {how}.", chapter="doctor"))


def _infer_width(shapes: dict, values: dict, origin: dict, notes: list) -> None:
    if "d_model" in values:
        return
    for role in ("q", "k", "v", "qkv", "o"):
        if role in shapes and "d_model" not in values:
            title, rows, columns = shapes[role]
            if role == "o":
                _learn(
                    "d_model",
                    rows,
                    f"{title} has {rows} rows, one for each column of the stream",
                    values,
                    origin,
                    notes,
                )
            else:
                _learn("d_model", columns, f"{title} reads {columns} columns", values, origin, notes)


def _even(total: int, parts: int | None) -> int | None:
    """total / parts where that is a whole number, else None."""
    return total // parts if parts is not None and parts > 0 and total % parts == 0 and total > 0 else None


def _by_rule(values: dict) -> int | None:
    """d_head: as given, or d_model / n_heads where that divides."""
    if "d_head" in values:
        return values["d_head"]
    return _even(values.get("d_model", 0), values.get("n_heads"))


def _infer_heads(shapes: dict, values: dict, origin: dict, notes: list) -> None:
    """Fill in n_heads, d_head, n_kv_heads and d_head_v, in the order in which they are the surest."""
    # The width that all query heads take side by side: rows of Wq, or columns of Wo where values are as wide as keys.
    inner, title, side = None, "", "rows"
    if "q" in shapes:
        title, inner = shapes["q"][0], shapes["q"][1]
    elif "o" in shapes and "d_head_v" not in values:
        title, inner, side = shapes["o"][0], shapes["o"][2], "columns"
    if inner is not None:
        _infer_from_inner(inner, f"{title} has {inner} {side}", values, origin, notes)
    if "qkv" in shapes and inner is None:
        _infer_from_fused(shapes["qkv"], values, origin, notes)
    kv = shapes.get("k") or (shapes.get("v") if "d_head_v" not in values else None)
    if kv is not None:
        _infer_from_kv(kv, values, origin, notes)
    heads = values.get("n_kv_heads")
    if "v" in shapes and "d_head_v" not in values and heads is not None:
        wide, d_head = _even(shapes["v"][1], heads), _by_rule(values)
        if wide is not None and d_head is not None and wide != d_head and "k" in shapes:
            how = f"{shapes['v'][0]} has {shapes['v'][1]} rows = {heads} key/value heads × {wide}"
            _learn("d_head_v", wide, how, values, origin, notes)


def _infer_from_inner(inner: int, fact: str, values: dict, origin: dict, notes: list) -> None:
    heads, d_head = values.get("n_heads"), values.get("d_head")
    if d_head is not None and heads is None and _even(inner, d_head) is not None:
        _learn("n_heads", inner // d_head, f"{fact} = {inner // d_head} heads × {d_head}", values, origin, notes)
    elif heads is not None and d_head is None:
        wide = _even(inner, heads)
        if wide is not None and wide * heads != values.get("d_model"):
            _learn("d_head", wide, f"{fact} = {heads} heads × {wide}", values, origin, notes)


def _infer_from_fused(fused: tuple, values: dict, origin: dict, notes: list) -> None:
    """Queries, keys and values in one matrix: n_heads + 2 n_kv_heads heads side by side."""
    title, rows, _ = fused
    fact = f"{title} has {rows} rows"
    heads, kv_heads, d_head = values.get("n_heads"), values.get("n_kv_heads"), _by_rule(values)
    if "d_head_v" in values or heads is None or heads < 1:
        return
    if kv_heads is None and d_head is not None and d_head > 0:
        both = _even(rows, d_head)
        if both is not None and both > heads and (both - heads) % 2 == 0:
            kv_heads = (both - heads) // 2
            how = f"{fact} = ({heads} query + {kv_heads} key + {kv_heads} value heads) × {d_head}"
            _learn("n_kv_heads", kv_heads, how, values, origin, notes)
    elif kv_heads is not None and kv_heads > 0 and "d_head" not in values:
        wide = _even(rows, heads + 2 * kv_heads)
        if wide is not None and wide * heads != values.get("d_model"):
            how = f"{fact} = ({heads} query + 2 × {kv_heads} key/value heads) × {wide}"
            _learn("d_head", wide, how, values, origin, notes)


def _infer_from_kv(kv: tuple, values: dict, origin: dict, notes: list) -> None:
    title, rows, _ = kv
    kv_heads, d_head = values.get("n_kv_heads"), _by_rule(values)
    if kv_heads is None and values.get("attention") == "mqa":
        kv_heads = 1
    if kv_heads is None:
        count = _even(rows, d_head)
        if count is not None:
            _learn(
                "n_kv_heads",
                count,
                f"{title} has {rows} rows = {count} key/value heads × {d_head}",
                values,
                origin,
                notes,
            )
    elif d_head is None and "n_heads" in values:
        # Where d_model / n_heads is whole, another width is as likely a wrong n_kv_heads: _compare shows both.
        wide = _even(rows, kv_heads)
        if wide is not None:
            _learn(
                "d_head", wide, f"{title} has {rows} rows = {kv_heads} key/value heads × {wide}", values, origin, notes
            )


def _compare(shapes: dict, values: dict, notes: list) -> None:
    """Name every shape that the numbers do not explain."""
    width, heads, d_head = values.get("d_model"), values.get("n_heads"), _by_rule(values)
    kv_heads = values.get("n_kv_heads")
    if kv_heads is None:
        kv_heads = 1 if values.get("attention") == "mqa" else heads
    if not _positive(width) or not _positive(heads) or not _positive(kv_heads):
        return
    if d_head is None:
        _compare_inner(shapes, heads, notes)
        return
    d_head_v = values.get("d_head_v", d_head)
    if not _positive(d_head) or not _positive(d_head_v):
        return
    due = {
        "q": (heads * d_head, width, f"{heads} heads × {d_head}"),
        "k": (kv_heads * d_head, width, f"{kv_heads} key/value heads × {d_head}"),
        "v": (kv_heads * d_head_v, width, f"{kv_heads} key/value heads × {d_head_v}"),
        "o": (width, heads * d_head_v, f"{heads} heads × {d_head_v}"),
        "qkv": (
            (heads + kv_heads) * d_head + kv_heads * d_head_v,
            width,
            f"({heads} query + {kv_heads} key) heads × {d_head} + {kv_heads} value heads × {d_head_v}",
        ),
    }
    for role in shapes:
        title, rows, columns = shapes[role]
        out, reads, product = due[role]
        if rows == out and columns == reads:
            continue
        inner, stated = (reads, columns) if role == "o" else (out, rows)
        stream = rows if role == "o" else columns
        if rows == reads and columns == out:
            ways = [f"This looks like [in, out]: give [{out}, {reads}]."]
        elif stream != width:
            ways = [f"Give d_model = {stream}, if the shape is right."]
        else:
            ways = _ways(role, stated, d_head if role in ("q", "k") else d_head_v, heads, kv_heads)
        notes.append(
            _contradiction(
                f"{title} is [{rows}, {columns}], but {product} = {inner} and d_model = {width} make it [{out}, {reads}]",
                ways,
            )
        )


def _ways(role: str, stated: int, columns: int, heads: int, kv_heads: int) -> list:
    """What would explain a width of `stated` for this projection, in place of heads of `columns`."""
    key, count = ("n_heads", heads) if role in ("q", "o") else ("n_kv_heads", kv_heads)
    ways: list = []
    if role != "qkv":
        number_of, wide = _even(stated, columns), _even(stated, count)
        if number_of is not None:
            ways.append(f"Give {key} = {number_of}, if the shape is right: {number_of} × {columns} = {stated}.")
        if wide is not None:
            key = "d_head" if role in ("q", "k") else "d_head_v"
            ways.append(f"Give {key} = {wide}, if the shape is right: {count} × {wide} = {stated}.")
    return ways


def _compare_inner(shapes: dict, heads: int, notes: list) -> None:
    """Without a d_head: Wq and Wo must at least fall into whole heads."""
    for role in ("q", "o"):
        if role in shapes:
            title, rows, columns = shapes[role]
            inner = rows if role == "q" else columns
            if inner % heads:
                notes.append(
                    _contradiction(
                        f"{title} is [{rows}, {columns}]: {inner} does not fall into {heads} heads, "
                        f"{inner % heads} would be left over",
                        [f"Give the n_heads that the weights were made with; it divides {inner}."],
                    )
                )


def _positive(value: Any) -> bool:
    return value is not None and value > 0


def _contradiction(message: str, ways: list) -> Finding:
    return Finding(
        "weights-contradict",
        "error",
        f"{message}.",
        (*ways, "Or correct weight_shapes: they are [out, in], as nn.Linear keeps its weight."),
        "torch.nn.Linear: weight has the shape (out_features, in_features)",
        "doctor",
    )


def out_of_range(title: str, value: int, example: int) -> Finding:
    return Finding(
        "range",
        "error",
        f"{title} = {value} is outside 1 to {MAX_WIDTH}.",
        (f"Give a whole number from 1 to {MAX_WIDTH}, such as {example}.",),
        chapter="partition-rule",
    )
