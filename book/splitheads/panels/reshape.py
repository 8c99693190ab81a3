"""Panel *reshape*: how do one `view` and one `transpose` make heads, and how does it go silently wrong?"""

from __future__ import annotations

from html import escape
from operator import index
from typing import Any, NamedTuple

import ipywidgets
import traitlets

from ..palette import ON_HEAD, head_colour
from .kit import Panel, View, css, esm, link
from .kit import question as opening

MAX_T = 6
MAX_N_HEADS = 4
MAX_D_HEAD = 4

STEPS = ["projected", "view", "transpose", "attend", "merge"]

STAGES = ["projected", "view", "transpose", "attend", "merge", "direct view", "merge without transpose"]
"""The tensors that occur in any variant: the order of the rows in the view's table."""

PROJECT = "x = v_proj(x)  # [B, T, h*d]"
VIEW = "x = x.view(B, T, h, d)  # [B, T, h, d]"
TRANSPOSE = "x = x.transpose(1, 2)  # [B, h, T, d]"
ATTEND = "x = weights @ x  # [B, h, T, d]"
MERGE = "x = x.transpose(1, 2).reshape(B, T, h * d)  # [B, T, h*d]"

GITHUB = "https://github.com"

VARIANTS = [
    {
        "name": "correct",
        "stages": ["projected", "view", "transpose", "attend", "merge"],
        "lines": [PROJECT, VIEW, TRANSPOSE, ATTEND, MERGE],
        "seen": [],
    },
    {
        "name": "direct view",
        "stages": ["projected", "direct view", "direct view", "attend", "merge"],
        "lines": [
            PROJECT,
            "x = x.view(B, h, T, d)  # [B, h, T, d]",
            "# no transpose: x has the shape it should have",
            ATTEND,
            MERGE,
        ],
        "seen": [
            ["In ", ""],
            ["harvardnlp/annotated-transformer #17", f"{GITHUB}/harvardnlp/annotated-transformer/issues/17"],
            [" a reader thinks that the right line is an error and should be view(nbatches, h, -1, d_k); in ", ""],
            ["hyunwoongko/transformer #15", f"{GITHUB}/hyunwoongko/transformer/issues/15"],
            [" one asks whether it can be done without the transpose. In ", ""],
            ["zhouhaoyi/Informer2020 #59", f"{GITHUB}/zhouhaoyi/Informer2020/issues/59"],
            [
                " it was the code: a reader asks why view and not permute, and an author answers that they will fix it.",
                "",
            ],
        ],
    },
    {
        "name": "merge without transpose",
        "stages": ["projected", "view", "transpose", "attend", "merge without transpose"],
        "lines": [PROJECT, VIEW, TRANSPOSE, ATTEND, "x = x.reshape(B, T, h * d)  # [B, T, h*d]"],
        "seen": [
            ["Repaired in ", ""],
            ["jsbaan/transformer-from-scratch #6", f"{GITHUB}/jsbaan/transformer-from-scratch/pull/6"],
            [
                ". Its author writes that the training test had still passed, “probably because the copy task is too easy”.",
                "",
            ],
        ],
    },
    {
        "name": "slice the input first",
        "stages": ["projected", "view", "transpose", "attend", "merge"],
        "lines": [
            "# x is the input, not projected yet: [B, T, h*d]",
            VIEW,
            TRANSPOSE,
            "x = weights @ (x @ w_v)  # w_v: [h, d, d], x: [B, h, T, d]",
            MERGE,
        ],
        "seen": [
            ["Repaired in ", ""],
            [
                "MarcoMeter/episodic-transformer-memory-ppo #22",
                f"{GITHUB}/MarcoMeter/episodic-transformer-memory-ppo/pull/22",
            ],
            [": the code had split the input first, and then used “the same projection” for all heads.", ""],
        ],
    },
]
"""The right way and three public mistakes: for each step its line of PyTorch and the tensor it leaves."""

PRESETS = [
    {"name": "4 tokens, 2 heads of 3", "T": 4, "n_heads": 2, "d_head": 3, "note": ""},
    {
        "name": "6 tokens, 4 heads of 4",
        "T": 6,
        "n_heads": 4,
        "d_head": 4,
        "note": "Three different sizes, and no 1 among them: no axis can pass for another.",
    },
    {
        "name": "one head",
        "T": 4,
        "n_heads": 1,
        "d_head": 3,
        "note": "With one head there is nothing to split, and all three mistakes pass. A reader who proposed a repair "
        "of a merge saw no change in the result: the number of heads was 1 (hackiey/QAnet-pytorch, issue 2).",
    },
    {
        "name": "one token",
        "T": 1,
        "n_heads": 2,
        "d_head": 3,
        "note": "With one token no rows can be mixed up: direct view and merge without transpose pass.",
    },
    {
        "name": "d_head = 1",
        "T": 4,
        "n_heads": 2,
        "d_head": 1,
        "note": "With d_head = 1 the merge is one long stride, so reshape copies nothing, and its result is not contiguous.",
    },
]
"""Sizes worth a look: those that show a mistake, and those that hide one."""

VIEW_ERROR = (
    "view size is not compatible with input tensor's size and stride "
    "(at least one dimension spans across two contiguous subspaces). Use .reshape(...) instead."
)
"""What PyTorch says of `.view` in place of a `.reshape` that copies. A test raises it and compares."""


FUSED = [
    [
        "Here attention writes head after head, so the merge copies. On a CPU, the fused kernel of "
        "F.scaled_dot_product_attention keeps the stride order of q (",
        "",
    ],
    ["pytorch/pytorch #138340", f"{GITHUB}/pytorch/pytorch/issues/138340"],
    [
        " asks the same of cuDNN): for a transposed view the merge copies nothing; for a contiguous q, as after "
        "torch.cat, it copies, whatever k and v are. With dropout_p > 0 or SDPBackend.MATH it copies for any q.",
        "",
    ],
]
"""Shown where the layout of attention's result decides whether the merge copies. A test tries every case."""

FREE = [
    [
        "Here attention writes head after head. At these sizes no order of writing would make the merge copy.",
        "",
    ],
]
"""Shown in place of `FUSED` where one head, one token or d_head = 1 makes every merge free."""

NARROW = "\N{NO-BREAK SPACE}"
"""Between the numbers of one row, so that a line never breaks inside it."""


class Layout(NamedTuple):
    """A tensor as the panel shows it. `new_memory`: the step wrote it, rather than looked again at the last one."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    contiguous: bool
    new_memory: bool


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a new tensor: the last index moves fastest."""
    strides = [1]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * size)
    return tuple(reversed(strides))


def is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """As torch has it: an axis of size 1 is never stepped along, so its stride does not count."""
    return all(
        size == 1 or stride == dense for size, stride, dense in zip(shape, strides, row_major(shape), strict=True)
    )


def view_strides(shape: tuple[int, ...], strides: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, ...] | None:
    """Strides that show the same memory in the shape `new`; None where `view` raises and `reshape` copies.

    torch's rule (`computeStride` in ATen/TensorUtils.cpp): axes that follow one another in memory
    form a run, and every run must be cut into new axes by itself. Sizes are positive here.
    """
    found = [0] * len(new)
    axis = len(new) - 1
    base, length = strides[-1], 1
    for old in range(len(shape) - 1, -1, -1):
        length *= shape[old]
        if old and (shape[old - 1] == 1 or strides[old - 1] == length * base):
            continue  # the next axis out continues this run
        cut = 1
        while axis >= 0 and (cut < length or new[axis] == 1):
            found[axis] = cut * base
            cut *= new[axis]
            axis -= 1
        if cut != length:
            return None
        if old:
            base, length = strides[old - 1], 1
    return tuple(found) if axis == -1 else None


def layouts(T: int, h: int, d: int) -> dict[str, Layout]:
    """The tensor of every stage, B = 1, attention writing a new one as `weights @ x` does."""

    def written(*shape: int) -> Layout:
        return Layout(shape, row_major(shape), True, True)

    def viewed(x: Layout, *shape: int) -> Layout:
        strides = view_strides(x.shape, x.strides, shape)
        if strides is None:
            raise ValueError(f"shape {x.shape} with strides {x.strides} cannot be viewed as {shape}")
        return Layout(shape, strides, is_contiguous(shape, strides), False)

    def transposed(x: Layout) -> Layout:
        a, b, c, e = x.shape
        p, q, r, s = x.strides
        return Layout((a, c, b, e), (p, r, q, s), is_contiguous((a, c, b, e), (p, r, q, s)), False)

    def reshaped(x: Layout, *shape: int) -> Layout:
        return written(*shape) if view_strides(x.shape, x.strides, shape) is None else viewed(x, *shape)

    projected = written(1, T, h * d)
    view = viewed(projected, 1, T, h, d)
    attend = written(1, h, T, d)
    found = {
        "projected": projected,
        "view": view,
        "transpose": transposed(view),
        "attend": attend,
        "merge": reshaped(transposed(attend), 1, T, h * d),
        "direct view": viewed(projected, 1, h, T, d),
        "merge without transpose": reshaped(attend, 1, T, h * d),
    }
    return {stage: found[stage] for stage in STAGES}


def wrong_from(variant: str, T: int, h: int) -> int | None:
    """First step whose outcome differs from the correct one; None where these sizes hide the mistake."""
    first = {"direct view": 1, "merge without transpose": 4, "slice the input first": 1}.get(variant)
    hidden = h == 1 or (T == 1 and variant != "slice the input first")
    return None if hidden else first


def every_size() -> dict[str, str]:
    """`layouts` for every size on the sliders, keyed "T,n_heads,d_head", small enough to send with a page.

    Stages are parted by ";". Each is its shape, its strides, then contiguous and new_memory as 0 or 1.
    """
    return {
        f"{T},{h},{d}": ";".join(
            ",".join(str(int(n)) for n in (*x.shape, *x.strides, x.contiguous, x.new_memory))
            for x in layouts(T, h, d).values()
        )
        for T in range(1, MAX_T + 1)
        for h in range(1, MAX_N_HEADS + 1)
        for d in range(1, MAX_D_HEAD + 1)
    }


def every_mistake() -> dict[str, list[int | None]]:
    """`wrong_from` for every variant in order, keyed "T,n_heads": d_head hides no mistake."""
    return {
        f"{T},{h}": [wrong_from(str(variant["name"]), T, h) for variant in VARIANTS]
        for T in range(1, MAX_T + 1)
        for h in range(1, MAX_N_HEADS + 1)
    }


class ReshapeView(View):
    _esm = esm("reshape")
    _css = css("reshape")
    T = traitlets.Int(4).tag(sync=True)
    n_heads = traitlets.Int(2).tag(sync=True)
    d_head = traitlets.Int(3).tag(sync=True)
    step = traitlets.Int(0).tag(sync=True)
    variant = traitlets.Int(0).tag(sync=True)
    limits = traitlets.Dict(
        {
            "T": [1, MAX_T],
            "n_heads": [1, MAX_N_HEADS],
            "d_head": [1, MAX_D_HEAD],
            "step": [0, len(STEPS) - 1],
            "variant": [0, len(VARIANTS) - 1],
        }
    ).tag(sync=True)
    steps = traitlets.List(STEPS).tag(sync=True)
    stages = traitlets.List(STAGES).tag(sync=True)
    variants = traitlets.List(VARIANTS).tag(sync=True)
    presets = traitlets.List(PRESETS).tag(sync=True)
    fused = traitlets.List(FUSED).tag(sync=True)
    free = traitlets.List(FREE).tag(sync=True)
    view_error = traitlets.Unicode(VIEW_ERROR).tag(sync=True)
    table = traitlets.Dict(every_size()).tag(sync=True)
    mistakes = traitlets.Dict(every_mistake()).tag(sync=True)


def rows_of(T: int, h: int, d: int, stage: str, block: int = 0) -> list[list[int]]:
    """The offsets that one head's rows show at `stage`, as far as no value has moved in memory."""
    layout = layouts(T, h, d)[stage]
    if len(layout.shape) == 3:
        _, along, across = layout.strides
        return [[t * along + c * across for c in range(h * d)] for t in range(T)]
    _, heads, along, across = layout.strides
    return [[block * heads + t * along + c * across for c in range(d)] for t in range(T)]


def count(n: int, one: str) -> str:
    """ "1 token", "2 tokens"."""
    return f"{n} {one}" if n == 1 else f"{n} {one}s"


def hold(offsets: list[int], h: int, d: int) -> str:
    """In words, what some cells hold: "all 6 features of token 0 and 3 of the 6 of token 1"."""
    width = h * d
    whole = "the one" if width == 1 else f"all {width}"
    counts: dict[int, int] = {}
    for offset in offsets:
        counts[offset // width] = counts.get(offset // width, 0) + 1
    said = []
    for amount in sorted(set(counts.values()), reverse=True):
        tokens = [f"token {token}" for token, count in counts.items() if count == amount]
        each = "each of " if amount < width and len(tokens) > 1 else ""
        features = "" if said else " feature" if width == 1 else " features"
        said.append(f"{whole if amount == width else f'{amount} of the {width}'}{features} of {each}{listed(tokens)}")
    return listed(said)


def listed(words: list[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def opening_question(T: int, h: int, d: int) -> dict:
    """The direct view, asked with these sizes; none where one head or one token would hide the mistake."""
    if wrong_from("direct view", T, h) is None:
        return {}
    shape = f"[1, {h}, {T}, {d}]"
    right, direct = (
        " ".join("[" + NARROW.join(str(offset) for offset in row) + "]" for row in rows_of(T, h, d, stage))
        for stage in ("transpose", "direct view")
    )
    held = hold([offset for row in rows_of(T, h, d, "direct view") for offset in row], h, d)
    return opening(
        "You write x.view(B, h, T, d) directly, without the transpose. What happens?",
        {
            "It raises an error": f"view asks only whether the numbers can be counted in the new shape, and {T} × {h * d} "
            f"and {h} × {T} × {d} are both {T * h * d}. Nothing compares what an axis means.",
            "The same result": f"The shape is the same, {shape}, and the contents are not. With one head or one token "
            "they would be, so a test of that size passes.",
            "A different result, silently": f"A view reads memory in its old order, and there all columns of a token are "
            f"neighbours. Head 0 gets the rows {direct}: {held}. It should get {right}.",
        },
        answer="A different result, silently",
        outcome={"T": T, "n_heads": h, "d_head": d, "variant": 1, "step": 1},
    )


def drawing(T: int, h: int, d: int, stage: str) -> str:
    """One tensor as SVG, for the printed twin: rows of cells, in one block or in one per head."""
    cell, label, head = 30, 62, 22
    blocks = [None] if stage == "projected" else range(h)
    parts, wide = [], 0
    for i, block in enumerate(blocks):
        rows = rows_of(T, h, d, stage, block or 0)
        left = i * (label + d * cell + 16)
        title = count(h * d, "column") if block is None else f"head {block}"
        parts.append(f'<text x="{left + label}" y="15" font-size="14" fill="currentColor">{title}</text>')
        for t, row in enumerate(rows):
            y = head + t * cell
            parts.append(
                f'<text x="{left + label - 6}" y="{y + 20}" text-anchor="end" font-size="14" fill="currentColor">token {t}</text>'
            )
            for c, offset in enumerate(row):
                x = left + label + c * cell
                parts.append(
                    f'<rect x="{x + 1}" y="{y + 1}" width="{cell - 2}" height="{cell - 2}" fill="{head_colour(offset % (h * d) // d)}"/>'
                    f'<text x="{x + cell / 2:g}" y="{y + 20}" text-anchor="middle" font-size="14" fill="{ON_HEAD}">{offset}</text>'
                )
        wide = left + label + len(rows[0]) * cell
    words = "; ".join(
        ("" if block is None else f"head {block}: ")
        + ", ".join(
            f"token {t}: " + " ".join(map(str, row)) for t, row in enumerate(rows_of(T, h, d, stage, block or 0))
        )
        for block in blocks
    )
    return (
        f'<svg viewBox="0 0 {wide} {head + T * cell}" width="{wide}" role="img" '
        f'aria-label="Memory offsets, {escape(stage)}. {escape(words)}.">{"".join(parts)}</svg>'
    )


def twin(T: int, h: int, d: int) -> str:
    """The panel's default state for a reader without scripts: both layouts, five lines, one mistake."""
    correct = VARIANTS[0]
    found = layouts(T, h, d)
    lines = "".join(
        f"<li><code>{escape(line)}</code><br>{list(x.shape)}, strides {x.strides}: "
        f"{'contiguous' if x.contiguous else 'not contiguous'}, {memory(step, x)}</li>"
        for step, line, x in zip(STEPS, correct["lines"], (found[stage] for stage in correct["stages"]), strict=True)
    )
    held = hold([offset for row in rows_of(T, h, d, "direct view") for offset in row], h, d)
    wrong = (
        f"<p><code>x.view(B, h, T, d)</code> would give {list(found['direct view'].shape)} too, "
        f"and head 0 would hold {held}.</p>"
    )
    return (
        f"<p>{count(T, 'token')}, {count(h, 'head')} of {count(d, 'column')}. Each cell prints its place in memory; its colour is its head's.</p>"
        f"<p>Projected, {list(found['projected'].shape)}:</p>{drawing(T, h, d, 'projected')}"
        f"<p>After view and transpose, {list(found['transpose'].shape)}, same memory:</p>{drawing(T, h, d, 'transpose')}"
        f"<ol>{lines}</ol>{wrong if wrong_from('direct view', T, h) else ''}"
    )


def memory(step: str, x: Layout) -> str:
    """What a step does to memory, in two words."""
    if not x.new_memory:
        return "no copy"
    return "copied" if step == "merge" else "new memory"


def whole_number(name: str, value: Any, most: int) -> int:
    """`value` as an int from 1 to `most`. A bool is no number here, and neither is 2.0: as in `partition`."""
    try:
        number = None if "bool" in f"{type(value).__name__} {getattr(value, 'dtype', '')}" else index(value)
    except TypeError:
        number = None
    if number is None or not 1 <= number <= most:
        raise ValueError(f"{name} = {value!r}: the slider takes whole numbers from 1 to {most}")
    return number


def reshape(tokens: int = 4, n_heads: int = 2, d_head: int = 3, question: dict | None = None) -> Panel:
    """Sliders `T`, `n_heads`, `d_head`; the `step` and the `variant` to look at; every number's place.

    The opening question is about the direct view at these sizes; pass your own (see `kit.question`),
    or `{}` for none. From Python, `panel.step.value` and `panel.variant.value` are names,
    `panel.step.index` and `panel.variant.index` their positions.

    Raises:
        ValueError: a size that its slider does not have: tokens 1 to 6, n_heads 1 to 4, d_head 1 to 4.
    """
    tokens = whole_number("tokens", tokens, MAX_T)
    n_heads = whole_number("n_heads", n_heads, MAX_N_HEADS)
    d_head = whole_number("d_head", d_head, MAX_D_HEAD)
    asked = opening_question(tokens, n_heads, d_head) if question is None else question
    view = ReshapeView(T=tokens, n_heads=n_heads, d_head=d_head, question=asked)
    full = ipywidgets.Layout(width="100%", max_width="640px")
    sliders = [
        ipywidgets.IntSlider(tokens, 1, MAX_T, 1, description="T", layout=full),
        ipywidgets.IntSlider(n_heads, 1, MAX_N_HEADS, 1, description="n_heads", layout=full),
        ipywidgets.IntSlider(d_head, 1, MAX_D_HEAD, 1, description="d_head", layout=full),
    ]
    choices = [
        ipywidgets.RadioButtons(
            options=names, index=0, description=name, orientation="horizontal", layout=ipywidgets.Layout(width="100%")
        )
        for name, names in (("variant", [variant["name"] for variant in VARIANTS]), ("step", STEPS))
    ]
    for slider in sliders:
        link(slider, view, slider.description)
    for choice in choices:
        link(choice, view, choice.description, "index")
    return Panel("reshape", [*sliders, *choices], view, twin(tokens, n_heads, d_head))
