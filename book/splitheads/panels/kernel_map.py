"""Panel *kernel map*: at which head sizes does which card leave which attention kernel?"""

from __future__ import annotations

from functools import cache
from html import escape
from itertools import pairwise, product

import ipywidgets
import traitlets

from .. import backends
from ..palette import BACKENDS, ON_HEAD
from .kit import Panel, View, choices, css, esm, link
from .kit import question as opening
from .reshape import listed, whole_number

MAX_D_HEAD = 320
"""As far as the table of selections is without a gap."""

CARDS = {
    "sm75": ("T4", "Turing: T4, RTX 20"),
    "sm80": ("A100", "Ampere: A100"),
    "sm86": ("RTX 30", "Ampere: RTX 30, A10, A40"),
    "sm89": ("RTX 40", "Ada: RTX 40, L4, L40S"),
    "sm90": ("H100", "Hopper: H100, H200"),
    "sm100": ("B200", "Blackwell: B200, GB200"),
    "sm120": ("RTX 50", "Blackwell: RTX 50, RTX PRO 6000"),
}
"""Each architecture by a card that people know, and by its family."""

DTYPES = ("fp16", "bf16", "fp32")

KERNELS = {
    "FLASH": "FlashAttention-2, compiled into PyTorch. Fused: the T × T scores are never stored. "
    "A size that is not a multiple of 8 is padded to one.",
    "CUDNN": "NVIDIA’s cuDNN attention. Fused.",
    "EFFICIENT": "The “memory-efficient” kernels built on CUTLASS. Fused, and the only fused ones for fp32.",
    "MATH": "The fallback: plain matrix products, the T × T scores written to memory; fp16 and bf16 are computed in fp32.",
}
"""What each backend of `scaled_dot_product_attention` is, in the order of the legend."""

BRIEF = {
    "infer": "inference",
    "infer_causal": "inference, causal",
    "infer_mask": "inference, mask",
    "train": "training",
    "train_mask": "training, mask",
    "train_dropout": "training, dropout",
    "causal_uneven": "causal, uneven",
    "decode": "decoding",
    "gqa": "GQA",
    "gqa_mask": "GQA, mask",
    "dv128": "d_v = 128",
    "unbatched": "3-D input",
    "noncontig": "odd strides",
}
"""The scenarios in two words, for a narrow select; `backends.SCENARIOS` says them in full."""

NOTHING = "nothing"

ASKED = max(version["asked"] for version in backends.table()["torch"].values())
"""When PyTorch's selector was last run for the table, as year-month-day."""

EVIDENCE = (
    f"Evidence: PyTorch’s own compiled selector, asked on {ASKED} with each card’s compute capability simulated. "
    "No kernel ran, nothing here is a speed, and cuDNN could still refuse a shape later. Default settings; "
    "batch 2, 4 heads, 256 tokens."
)


def state(torch: str, dtype: str, scenario: str, d_head: int, compare: str = NOTHING) -> dict[str, int]:
    """The view's traits for a choice in words. `compare` is a torch version, a scenario or "nothing"."""
    return {
        "torch": backends.TORCH_VERSIONS.index(torch),
        "dtype": DTYPES.index(dtype),
        "scenario": list(backends.SCENARIOS).index(scenario),
        "compare": COMPARE.index(compare),
        "d_head": d_head,
    }


COMPARE = [NOTHING, *backends.TORCH_VERSIONS, *backends.SCENARIOS]
"""What a map can be compared with: the other side keeps the rest of the choice."""

LATEST = backends.TORCH_VERSIONS[-1]

PRESETS = [
    {
        "name": "80 is fused",
        "state": state(LATEST, "bf16", "infer", 80),
        "note": "“Take 80 and you fall off the fast path”: no. Every card since Ampere stays on a fused kernel.",
    },
    {
        "name": "RTX zigzag",
        "state": state(LATEST, "bf16", "train", 200),
        "note": "Training on RTX 30, 40 and 50: FLASH has no backward pass there for 192 < d_head ≤ 224. Multiples of 8 "
        "go to EFFICIENT, all others to MATH, and from 225 on FLASH is back.",
    },
    {
        "name": "H100 hole",
        "state": state("2.14.1", "bf16", "train", 136, "2.13.0"),
        "note": "Since 2.14 cuDNN is not taken on an H100 for training at 136 to 248: FLASH takes over. "
        "At 256 cuDNN is back. What 2.13 chose is under the strips.",
    },
    {
        "name": "B200, GQA and mask",
        "state": state("2.13.0", "bf16", "gqa_mask", 136, "2.14.1"),
        "note": "In 2.11 and 2.13 one step of 8, from 128 to 136, takes a B200 from cuDNN to MATH. "
        "EFFICIENT learnt grouped heads in 2.14, and the hole is gone.",
    },
    {
        "name": "a mask and 100",
        "state": state(LATEST, "bf16", "infer_mask", 100, "infer"),
        "note": "FLASH refuses every mask, the two others refuse what is not a multiple of 8: together they leave MATH. "
        "Without the mask, 100 is padded to 104 and stays on FLASH.",
    },
    {
        "name": "Turing, bf16",
        "state": state(LATEST, "bf16", "infer", 64),
        "note": "A T4 has no fused kernel for bf16 at any size. In fp16 multiples of 8 are fused, in fp32 every size: look.",
    },
    {
        "name": "fp32 and 65",
        "state": state(LATEST, "fp32", "infer", 65),
        "note": "fp32 never reaches FLASH or cuDNN. Since Ampere EFFICIENT wants a multiple of 4, so 65 and 66 are MATH; "
        "a T4 takes them all.",
    },
]
"""Choices in which something is to be seen, each with what it is."""


def letters(torch: str, device: str, dtype: str, scenario: str) -> str:
    """One letter per d_head from 1 to 320, from the table of selections: the first of FLASH, CUDNN, EFFICIENT, MATH."""
    return "".join(
        backends.from_table(
            backends.SdpaCall(d, torch=torch, device=device, dtype=dtype, **backends.SCENARIOS[scenario].settings)
        )[0][0]
        for d in range(1, MAX_D_HEAD + 1)
    )


def pattern(row: str) -> str:
    """A series, short: where the kernel changes among multiples of 8, other multiples of 4, and all others.

    >>> pattern("M" * 7 + "E" + "M" * 7 + "E")
    'E8;M4;M1'
    """
    lanes: list[list[str]] = [[], [], []]
    for d, letter in enumerate(row, 1):
        lane = lanes[0 if d % 8 == 0 else 1 if d % 4 == 0 else 2]
        if not lane or lane[-1][0] != letter:
            lane.append(f"{letter}{d}")
    return ";".join(" ".join(lane) for lane in lanes)


@cache
def table() -> dict:
    """All series for the page. `series` holds one character each, `chr(65 + i)` for pattern i.

    Their order is version, dtype, scenario, card, the last moving fastest.
    """
    strips = backends.kernel_strips()
    first = {key: meaning["backend"][0] for key, meaning in strips["letters"].items()}
    texts = [pattern("".join(first[key] for key in row[:MAX_D_HEAD])) for row in strips["patterns"]]
    found = list(dict.fromkeys(texts))
    scenarios = list(strips["scenarios"])
    series = [
        found.index(texts[strips["index"][torch][card][dtype][scenarios.index(scenario)]])
        for torch, dtype, scenario, card in product(backends.TORCH_VERSIONS, DTYPES, backends.SCENARIOS, CARDS)
    ]
    return {
        "versions": list(backends.TORCH_VERSIONS),
        "dtypes": list(DTYPES),
        "scenarios": [{"brief": BRIEF[key], "text": backends.SCENARIOS[key].text} for key in backends.SCENARIOS],
        "cards": [{"key": key, "name": name, "words": words} for key, (name, words) in CARDS.items()],
        "kernels": [
            {"letter": name[0], "name": name, "colour": BACKENDS[name], "what": what} for name, what in KERNELS.items()
        ],
        "patterns": found,
        "series": "".join(chr(65 + i) for i in series),
    }


class KernelMapView(View):
    _esm = esm("kernel_map")
    _css = css("kernel_map")
    torch = traitlets.Int(0).tag(sync=True)
    dtype = traitlets.Int(0).tag(sync=True)
    scenario = traitlets.Int(0).tag(sync=True)
    compare = traitlets.Int(0).tag(sync=True)
    d_head = traitlets.Int(80).tag(sync=True)
    limits = traitlets.Dict().tag(sync=True)
    table = traitlets.Dict().tag(sync=True)
    presets = traitlets.List(PRESETS).tag(sync=True)
    evidence = traitlets.Unicode(EVIDENCE).tag(sync=True)


def opening_question() -> dict:
    """The zigzag of a consumer card, counted in the table."""
    low, high = 192, 257
    row = letters(LATEST, "sm89", "bf16", "train")
    walked = row[low - 1 : high]
    changes = sum(one != next_one for one, next_one in pairwise(walked))
    plain = letters(LATEST, "sm80", "bf16", "train")
    once = next(d for d in range(low, high + 1) if plain[d - 1] != plain[low - 1])
    return opening(
        f"An RTX 40 card trains in bf16 with PyTorch {LATEST}. You raise d_head from {low} to {high}, one by one. "
        "How often does PyTorch change the kernel?",
        {
            "Once": f"So it is on an A100: FLASH, and from {once} on MATH. An RTX card has less shared memory.",
            "Twice": "FLASH does stop after 192 and does come back at 225. In between there are two kernels, not one: "
            "EFFICIENT accepts only multiples of 8.",
            f"{changes} times": "193 is MATH and 200 is EFFICIENT, and so in turn to 224; from 225 to 256 FLASH takes every "
            "size again, and 257 is MATH. The marker stands at 200: look at RTX 30, 40 and 50.",
            "Never": "FLASH ends at 256 on every card, and between 192 and 225 an RTX card cannot train with it at all.",
        },
        answer=f"{changes} times",
        outcome=state(LATEST, "bf16", "train", 200),
    )


def strip(row: str) -> str:
    """One card's strip as SVG for readers without scripts: multiples of 8 above, the other sizes below."""
    parts = []
    for lane, keep in enumerate((lambda d: d % 8 == 0, lambda d: d % 4 != 0)):
        runs: list[list] = []
        for d in range(1, MAX_D_HEAD + 1):
            if keep(d) and (not runs or runs[-1][0] != row[d - 1]):
                runs.append([row[d - 1], d - (8, 1)[lane]])
        for (letter, start), end in zip(runs, [*(run[1] for run in runs[1:]), MAX_D_HEAD], strict=True):
            name = next(name for name in KERNELS if name[0] == letter)
            left, wide = 100 * start / MAX_D_HEAD, 100 * (end - start) / MAX_D_HEAD
            parts.append(
                f'<rect x="{left:g}%" y="{lane * 17}" width="{wide:g}%" height="16" fill="{BACKENDS[name]}" stroke="{ON_HEAD}"/>'
                f'<text x="{left + wide / 2:g}%" y="{lane * 17 + 12}" text-anchor="middle" font-size="11" fill="{ON_HEAD}">'
                f"{name if wide > 25 else letter}</text>"
            )
    return f'<svg width="100%" height="34" style="height: 34px" role="img" aria-label="{escape(in_words(row))}">{"".join(parts)}</svg>'


def in_words(row: str) -> str:
    """A strip in words: "multiples of 8: FLASH, EFFICIENT from 264; other sizes: FLASH, MATH from 257"."""
    lanes = [[(run[0], int(run[1:])) for run in lane.split()] for lane in pattern(row).split(";")]
    eights, fours, rest = lanes
    alike = [(letter, first - 4) for letter, first in fours] == [(letter, first - 1) for letter, first in rest]
    said = []
    for words, lane in (("multiples of 8", eights), ("other multiples of 4", fours), ("other sizes", rest)):
        if lane is fours and alike:
            continue
        runs = [(next(name for name in KERNELS if name[0] == letter), first) for letter, first in lane]
        said.append(
            f"{words}: " + ", ".join(f"{name} from {first}" if i else name for i, (name, first) in enumerate(runs))
        )
    return "; ".join(said)


def status(torch: str, dtype: str, scenario: str, d_head: int) -> str:
    """The choice at one size on all cards, as the panel says it."""
    groups = {
        name: [card for key, (card, _) in CARDS.items() if letters(torch, key, dtype, scenario)[d_head - 1] == name[0]]
        for name in KERNELS
    }
    told = "; ".join(
        f"{name} on {'every card' if len(cards) == len(CARDS) else listed(cards)}"
        for name, cards in groups.items()
        if cards
    )
    return f"d_head = {d_head}: {told}. torch {torch}, {dtype}, {backends.SCENARIOS[scenario].text}."


def twin(torch: str, dtype: str, scenario: str, d_head: int) -> str:
    """The panel's default state for a reader without scripts: the status, a strip per card, the legend."""
    strips = "".join(
        f"<div>{escape(words)}</div>{strip(letters(torch, key, dtype, scenario))}" for key, (_, words) in CARDS.items()
    )
    legend = "".join(f"<dt>{name}</dt><dd>{escape(what)}</dd>" for name, what in KERNELS.items())
    return (
        f"<p><strong>{escape(status(torch, dtype, scenario, d_head))}</strong></p>"
        "<p>One strip per card, d_head from 1 to 320: multiples of 8 above, sizes that 4 does not divide below. "
        "F is FLASH, C CUDNN, E EFFICIENT, M MATH.</p>"
        f"{strips}<dl>{legend}</dl><p>{escape(EVIDENCE)}</p>"
    )


def kernel_map(
    torch: str = LATEST,
    dtype: str = "bf16",
    scenario: str = "infer",
    d_head: int = 80,
    compare: str = NOTHING,
    question: dict | None = None,
) -> Panel:
    """Which kernel PyTorch selects on each card, for every d_head from 1 to 320.

    `torch` is one of `backends.TORCH_VERSIONS`, `dtype` "fp16", "bf16" or "fp32", `scenario` a key of
    `backends.SCENARIOS`; `compare` is another version or scenario, or "nothing". The opening question
    is about the zigzag of consumer cards; pass your own (see `kit.question`), or `{}` for none.
    From Python: `panel.torch.value`, `panel.dtype.value`, `panel.scenario.value`, `panel.compare.value`,
    `panel.d_head.value`.

    Raises:
        ValueError: a choice that is not on the panel; the message lists those that are.
    """
    for name, value, known in (
        ("torch", torch, backends.TORCH_VERSIONS),
        ("dtype", dtype, DTYPES),
        ("scenario", scenario, tuple(backends.SCENARIOS)),
        ("compare", compare, COMPARE),
    ):
        if value not in known:
            raise ValueError(f"{name} = {value!r} is not on the panel: give one of {', '.join(known)}")
    d_head = whole_number("d_head", d_head, MAX_D_HEAD)
    start = state(torch, dtype, scenario, d_head, compare)
    limits = {
        "torch": [0, len(backends.TORCH_VERSIONS) - 1],
        "dtype": [0, len(DTYPES) - 1],
        "scenario": [0, len(BRIEF) - 1],
        "compare": [0, len(COMPARE) - 1],
        "d_head": [1, MAX_D_HEAD],
    }
    view = KernelMapView(
        **start, limits=limits, table=table(), question=opening_question() if question is None else question
    )
    scenarios = [(BRIEF[key], key) for key in backends.SCENARIOS]
    options = {
        "torch": list(backends.TORCH_VERSIONS),
        "dtype": list(DTYPES),
        "scenario": scenarios,
        "compare": [NOTHING, *((f"torch {version}", version) for version in backends.TORCH_VERSIONS), *scenarios],
    }
    menus = [
        ipywidgets.Dropdown(
            options=[pair if isinstance(pair, tuple) else (pair, pair) for pair in options[name]],
            index=start[name],
            description=name,
        )
        for name in options
    ]
    slider = ipywidgets.IntSlider(
        d_head, 1, MAX_D_HEAD, 1, description="d_head", layout=ipywidgets.Layout(width="100%", max_width="640px")
    )
    for menu in menus:
        link(menu, view, menu.description, "index")
    link(slider, view, "d_head")
    return Panel("kernels", [choices(*menus), slider], view, twin(torch, dtype, scenario, d_head))
