"""Panel *partition*: how many columns does each head get, and what happens when it does not divide?"""

from __future__ import annotations

from html import escape

import ipywidgets
import traitlets

from ..palette import ON_HEAD, head_colour
from ..partition import HeadSplit
from .kit import Panel, View, css, esm, link

MAX_D_MODEL = 16384
MAX_NUM_HEADS = 256

PRESETS = [
    {"name": "BERT-base", "d_model": 768, "num_heads": 12, "note": "BERT-base (2018): 12 heads of 64."},
    {
        "name": "GPT-2 XL",
        "d_model": 1600,
        "num_heads": 25,
        "note": "GPT-2 XL (2019): an odd head count, 25, keeps d_head at 64.",
    },
    {
        "name": "GPT-2 XL, layers for heads",
        "d_model": 1600,
        "num_heads": 48,
        "note": "A public bug report: 48 is GPT-2 XL's number of layers, typed in as its number of heads. "
        "Its author spent hours changing the attention class to make it fit (rasbt/LLMs-from-scratch, issue 444).",
    },
    {
        "name": "GPT-NeoX-20B",
        "d_model": 6144,
        "num_heads": 64,
        "note": "GPT-NeoX-20B (2022): 64 heads of 96. A head size need not be a power of two.",
    },
    {"name": "Phi-2", "d_model": 2560, "num_heads": 32, "note": "Phi-2 (2023): 32 heads of 80."},
    {
        "name": "Falcon-7B",
        "d_model": 4544,
        "num_heads": 71,
        "note": "Falcon-7B (2023): 71 heads, a prime number, of 64. All 71 share one key/value head.",
    },
    {
        "name": "Llama-3 70B",
        "d_model": 8192,
        "num_heads": 64,
        "note": "Llama-3 70B (2024): 64 query heads of 128, over 8 key/value heads.",
    },
]
"""Real models, with the source of each configuration in the chapter's table."""

ERRORS = [
    {
        "call": "nn.MultiheadAttention({d_model}, {num_heads})",
        "text": "AssertionError: embed_dim must be divisible by num_heads",
    },
    {
        "call": "x.view(1, 1, {num_heads}, {whole})",
        "text": "RuntimeError: shape '[1, 1, {num_heads}, {whole}]' is invalid for input of size {d_model}",
    },
]
"""What PyTorch says of a split with a remainder. A test raises each and compares it to the letter."""


class PartitionView(View):
    _esm = esm("partition")
    _css = css()
    d_model = traitlets.Int(768).tag(sync=True)
    num_heads = traitlets.Int(12).tag(sync=True)
    limits = traitlets.Dict({"d_model": [1, MAX_D_MODEL], "num_heads": [1, MAX_NUM_HEADS]}).tag(sync=True)
    presets = traitlets.List(PRESETS).tag(sync=True)
    errors = traitlets.List(ERRORS).tag(sync=True)


def twin(d_model: int, num_heads: int) -> str:
    """The panel's default state for a reader without scripts: a bar in SVG and the same sentence."""
    d_head = d_model // num_heads
    wide = 720 / num_heads
    chunks = "".join(
        f'<rect x="{i * wide:.2f}" y="0" width="{wide:.2f}" height="56" fill="{head_colour(i)}" stroke="{ON_HEAD}"/>'
        f'<text x="{(i + 0.5) * wide:.2f}" y="33" text-anchor="middle" font-size="14" fill="{ON_HEAD}">{i}</text>'
        for i in range(num_heads)
    )
    label = f"A bar of {d_model} columns cut into {num_heads} equal chunks, one colour per head."
    return (
        f"<p><strong>d_head = {d_head}:</strong> {d_model} columns cut into {num_heads} heads of {d_head} columns each.</p>"
        f'<svg viewBox="-1 -1 722 58" role="img" aria-label="{escape(label)}">{chunks}</svg>'
    )


def partition(d_model: int = 768, num_heads: int = 12, question: dict | None = None) -> Panel:
    """Sliders `d_model` (1 to 16384) and `num_heads` (1 to 256), and the width they cut.

    The start must divide (it is also printed for readers without scripts). Read the reader's
    choice from Python with `panel.d_model.value` and `panel.num_heads.value`.
    """
    split = HeadSplit(d_model, num_heads)  # a SplitError says what does not divide, and what would
    d_model, num_heads = split.d_model, split.n_heads
    for name, value, most in (("d_model", d_model, MAX_D_MODEL), ("num_heads", num_heads, MAX_NUM_HEADS)):
        if value > most:
            raise ValueError(f"{name} = {value} is beyond the panel's slider: give at most {most}")
    view = PartitionView(d_model=d_model, num_heads=num_heads, question=question or {})
    full = ipywidgets.Layout(width="100%", max_width="640px")
    controls = [
        ipywidgets.IntSlider(d_model, 1, MAX_D_MODEL, 1, description="d_model", layout=full),
        ipywidgets.IntSlider(num_heads, 1, MAX_NUM_HEADS, 1, description="num_heads", layout=full),
    ]
    for control in controls:
        link(control, view, control.description)
    return Panel("partition", controls, view, twin(d_model, num_heads))
