"""Panel *fast path*: which attention kernel runs this head size, why not the others, and how much of it is padding?"""

from __future__ import annotations

import re
from functools import cache
from html import escape
from itertools import product

import ipywidgets
import traitlets

from .. import backends
from ..backends import NOT_TAKEN, width_on
from ..palette import BACKENDS, ON_HEAD
from ..partition import HeadSplit
from .kernel_map import ASKED, CARDS, LATEST
from .kit import Panel, View, choices, css, esm, link
from .kit import question as opening
from .partition import MAX_D_MODEL, MAX_NUM_HEADS

DEVICES = {**{key: f"{name} ({key})" for key, (name, _) in CARDS.items()}, "cpu": "CPU", "mps": "Apple GPU (MPS)"}

DTYPES = ("fp16", "bf16", "fp32")

MASKS = {
    "none": ({}, "no mask"),
    "is_causal": ({"is_causal": True}, "is_causal=True"),
    "mask": ({"mask": "bool"}, "a mask"),
}
"""The keywords for `backends.SdpaCall`, and how to say it. A float mask is treated as a boolean one."""

MODES = {
    "inference": ({}, "inference"),
    "training": ({"training": True}, "training"),
    "dropout": ({"training": True, "dropout": 0.1}, "training with dropout 0.1"),
}

BREAKS = {
    "gpu": ((8, 72, 136, 200, 232, 256, 264), (4, 68, 132, 196, 228, 260), (1, 65, 129, 193, 225, 257)),
    "cpu": ((8,), (4,), (1,)),
    "mps": ((8, 32, 40, 64, 72, 88, 96, 104, 128, 136, 256, 264), (4,), (1,)),
}
"""Where an answer may change: among multiples of 8, other multiples of 4, and the rest. A test walks every size."""

PYTORCH = "https://github.com/pytorch/pytorch"

COMMITS = {
    "001f694a": "001f694aef6f922b4fdf6d27d59162d27bf3df58",
    "02315a42": "02315a42ce3ea4b67cbecac2696552f95f24fec8",
    "00a5f92f": "00a5f92f7805295d10dcca8e0dad6200d7f2c47d",
}
"""The commits that `backends` names by their first digits."""

A100 = {"device": "sm80", "torch": LATEST, "dtype": "bf16", "mask": "none", "mode": "inference"}

PRESETS = [
    {
        "name": "BERT-base",
        "state": {"d_model": 768, "num_heads": 12, **A100},
        "note": "BERT-base (2018): 12 heads of 64, a width that has a kernel of its own.",
    },
    {
        "name": "ViT-H",
        "state": {"d_model": 1280, "num_heads": 16, **A100},
        "note": "ViT-H/14 (2020): 16 heads of 80. It is the size that the folklore warns of.",
    },
    {
        "name": "SigLIP",
        "state": {"d_model": 1152, "num_heads": 16, **A100},
        "note": "SigLIP so400m (2023): 16 heads of 72, a multiple of 8 with no kernel of its own.",
    },
    {
        "name": "GPT-NeoX-20B",
        "state": {"d_model": 6144, "num_heads": 64, **A100},
        "note": "GPT-NeoX-20B (2022): 64 heads of 96: no power of two, and an exact fit.",
    },
    {
        "name": "open_llama_3b",
        "state": {"d_model": 3200, "num_heads": 32, **A100},
        "note": "open_llama_3b (2023): 32 heads of 100, not a multiple of 8. Serving software refused it (vllm-project/vllm, "
        "issue 336); PyTorch pads it where there is no mask.",
    },
    {
        "name": "GPT-J-6B",
        "state": {"d_model": 4096, "num_heads": 16, **A100},
        "note": "GPT-J-6B (2021): 16 heads of 256, the widest that FlashAttention takes.",
    },
    {
        "name": "d_head = 132",
        "state": {"d_model": 8448, "num_heads": 64, **A100},
        "note": "Reported as slow beside 128 in Dao-AILab/flash-attention, issue 1141: 132 is one step past a compiled width, "
        "and not a multiple of 8.",
    },
    {
        "name": "100 and a mask",
        "state": {"d_model": 3200, "num_heads": 32, **A100, "mask": "mask"},
        "note": "Two harmless things that are not harmless together: FLASH takes no mask, and the others no 100.",
    },
    {
        "name": "bf16 on a T4",
        "state": {"d_model": 768, "num_heads": 12, **A100, "device": "sm75"},
        "note": "Turing has no bf16 in its tensor cores, and no fused kernel takes it there: use fp16.",
    },
    {
        "name": "160, before and after 2.11",
        "state": {"d_model": 5120, "num_heads": 32, **A100, "torch": "2.10.0"},
        "note": "Until 2.10 there was a 160-wide kernel. From 2.11 on 160 runs in the one for 192: change torch and look.",
    },
]
"""Models with the sizes of their published configurations, and cases from bug reports.

Each names the whole call: a note is true of that call, and not of whatever was set before."""

EVIDENCE = {
    "table": f"Evidence: PyTorch’s own compiled selector chose this, asked on {ASKED} with the GPU simulated. "
    "No kernel ran: this is not a speed.",
    "rules": "Evidence: by rule, read from PyTorch’s source; the selector was not asked in this situation. "
    "No kernel ran: this is not a speed.",
}

UNPADDED = {
    "CUDNN": {
        "status": "cuDNN builds a kernel for the call; what it pads to inside is not published.",
        "bar": "padding not known",
    },
    "EFFICIENT": {"status": "a fused kernel that takes the width as it is.", "bar": "not padded by PyTorch"},
    "MATH": {"status": "the fallback, which stores all T × T scores.", "bar": "not padded"},
    "cpu": {"status": "on a CPU any width counts as it is.", "bar": "not padded"},
    "mps": {
        "status": "on an Apple GPU the name says little: one operator picks the Metal kernel inside.",
        "bar": "not known",
    },
}
"""What to say of a kernel, or of a device, that has no compiled width to show."""

LABELS = {
    "FA2": "FlashAttention-2 in torch {torch}",
    "FA3": "FlashAttention-3",
    "FA4": "FlashAttention-4 (× 16)",
    "FlexAttention": "FlexAttention (2ⁿ)",
    "exact": "tensor cores (× 16)",
}
"""The kernels of `backends.widths`, each with its rule where that is short."""

FOOTNOTE = (
    "Of these, scaled_dot_product_attention itself runs only FlashAttention-2 unasked. FlashAttention-3 (Hopper) and -4 "
    "(Hopper; on B200 only up to 128, and 256) are switched on by name, and FlexAttention is another call. Tensor cores count in "
    "steps of 16. All by each project’s rule, none measured: a useful share is not a speed."
)


def linked(source: str) -> list[str]:
    """A source as [text, address]: the file's name in place of its path; no address where there is none to give.

    >>> linked("check_dtypes, pytorch/pytorch aten/src/sdp_utils.cpp @ 001f694a")[0]
    'check_dtypes, sdp_utils.cpp'
    """
    file = re.search(r"pytorch/pytorch (\S+/(\S+)) @ (\w+)", source)
    if file:
        path, name, commit = file.groups()
        return [source.replace(file[0], name), f"{PYTORCH}/blob/{COMMITS.get(commit, commit)}/{path}"]
    if issue := re.search(r"pytorch/pytorch#(\d+)", source):
        return [source, f"{PYTORCH}/issues/{issue[1]}"]
    if "sdp_utils_cpp.h" in source:
        return [
            source.split(" in the torch")[0],
            f"{PYTORCH}/blob/v2.13.0/aten/src/ATen/native/transformers/sdp_utils_cpp.h",
        ]
    return [source, ""]


@cache
def blank(text: str, d: int, d_kernel: int, dtype: str, device: str, chosen: str) -> str:
    """A reason or a note with marks in place of the call's own values, which the page fills in again.

    {d} is the head size, {k} the padded one, {t} the dtype, {c} the compute capability, {b} the backend that runs.
    """
    text = re.sub(rf"(d_head = |\bv |back to ){d}\b", r"\1{d}", text)
    text = re.sub(rf"(zeros up to ){d_kernel}\b", r"\1{k}", text)
    text = re.sub(rf"(dtype |load of ){dtype}\b", r"\1{t}", text)
    text = re.sub(rf"\bafter {chosen}\b", "after {b}", text)
    return re.sub(rf"(compute capability ){re.escape(capability(device))}\b", r"\1{c}", text)


def capability(device: str) -> str:
    """ "sm86" -> "8.6"; "" for what is no NVIDIA GPU."""
    digits = device.removeprefix("sm")
    return f"{digits[:-1]}.{digits[-1]}" if digits != device else "none"


def call(d_head: int, torch: str, device: str, dtype: str, mask: str, mode: str) -> backends.SdpaCall:
    """The panel's choice as a call: batch 2, 4 heads, 256 tokens. The number of heads changes no answer."""
    return backends.SdpaCall(d_head, torch=torch, device=device, dtype=dtype, **MASKS[mask][0], **MODES[mode][0])


EVERY = f"{backends.TORCH_VERSIONS[0]} to {LATEST}"
"""The versions of a rule that stands in all of them: not worth the words."""


class Numbered(dict):
    """Numbers things from 0 as they come: numbered[thing] is the number of an equal one, or the next."""

    def __missing__(self, thing) -> int:
        self[thing] = number = len(self)
        return number


@cache
def table() -> dict:
    """Every answer for the page, found by asking `backends.choose` wherever one may change.

    `refusals` are [text, source, versions, whether it is only later in the list], `sources` [text, address]. A *lane* is text, "8:3 264:5": from 8 on
    number 3, from 264 on number 5; a *pattern* is three of them, for multiples of 8, other multiples of 4 and
    the rest. A *situation* names six patterns: of the numbers in `answers` ([backend that runs, whether it
    pads, the others in order]), in `notes` (lists of texts), and for each backend in `sets` (lists of
    refusals). `series` holds the situation of each torch, device, dtype, mask and mode, the last moving
    fastest; `checked` whether the selector itself was asked there; `sizes` for which head sizes.
    """
    texts, sources, versions, refusals, sets, answers, notes, patterns, situations = (Numbered() for _ in range(9))
    series, checked = [], []
    names = list(BACKENDS)
    for torch, device, dtype, mask, mode in product(backends.TORCH_VERSIONS, DEVICES, DTYPES, MASKS, MODES):
        found: list[list[list]] = [[[], [], []] for _ in range(2 + len(names))]
        for lane, breaks in enumerate(BREAKS[device if device in BREAKS else "gpu"]):
            for d in breaks:
                choice = backends.choose(call(d, torch, device, dtype, mask, mode))
                own = (d, choice.d_kernel, dtype, device, choice.backend)
                reasons: dict[str, list[int]] = {name: [] for name in names}
                for refusal in choice.refusals:
                    text = texts[blank(refusal.reason, *own)]
                    ranked = refusal.rule == "ranked"
                    source = sources[refusal.source.split("; ")[0] if ranked else refusal.source]
                    reasons[refusal.backend].append(
                        refusals[
                            text, source, versions["" if refusal.version == EVERY else refusal.version], int(ranked)
                        ]
                    )
                pads = int(choice.backend == "FLASH" and device.startswith("sm"))
                others = dict.fromkeys(names.index(refusal.backend) for refusal in choice.refusals)
                numbers = [
                    answers[names.index(choice.backend), pads, tuple(others)],
                    notes[tuple(texts[blank(note, *own)] for note in choice.notes)],
                    *(sets[tuple(listed)] for listed in reasons.values()),
                ]
                for runs, number in zip((lanes[lane] for lanes in found), numbers, strict=True):
                    if not runs or runs[-1][1] != number:
                        runs.append((d, number))
        words = [";".join(" ".join(f"{d}:{n}" for d, n in runs) for runs in lanes) for lanes in found]
        series.append(situations[tuple(patterns[text] for text in words)])
        checked.append(
            device.startswith("sm") and backends.scenario_of(call(64, torch, device, dtype, mask, mode)) is not None
        )
    return {
        "names": names,
        "texts": list(texts),
        "sources": [linked(source) for source in sources],
        "versions": list(versions),
        "refusals": list(refusals),
        "sets": list(sets),
        "answers": list(answers),
        "notes": list(notes),
        "patterns": list(patterns),
        "situations": list(situations),
        "series": series,
        "checked": "".join(str(int(asked)) for asked in checked),
        "sizes": backends.table()["d_head"],
        "devices": list(DEVICES),
        "capabilities": [capability(device) for device in DEVICES],
        "widths": widths(),
    }


def widths() -> list[dict]:
    """What each kernel makes of a head size, as lists of widths: the first that is not smaller is the one.

    `every` stands for all multiples of a number up to `most`. One entry per kernel; for FlashAttention-2 one
    list per torch version. `not_taken` maps the place of a device in the select to the first and the last size that
    the kernel does not take there.
    """
    sizes = range(1, MAX_D_MODEL + 1)
    found = []
    for name, label in LABELS.items():
        lists = []
        for torch in backends.TORCH_VERSIONS if name == "FA2" else [LATEST]:
            # No width is smaller than its head, so each is asked for once, from the last one on.
            width, steps = 0, []
            while width < sizes[-1] and (entry := backends.widths(width + 1, torch)[name])["width"]:
                width = entry["width"]
                steps.append(width)
            lists.append(steps)
        every = lists[0][0]
        even = lists[0] == list(range(every, lists[0][-1] + 1, every)) and len(lists) == 1
        rule = {"every": every, "most": lists[0][-1]} if even else {"lists": lists}
        gaps = {str(list(DEVICES).index(device)): gap for (kernel, device), gap in NOT_TAKEN.items() if kernel == name}
        found.append({"name": name, "label": label, **rule, **({"not_taken": gaps} if gaps else {})})
    return found


class FastPathView(View):
    _esm = esm("fast_path")
    _css = css("fast_path")
    d_model = traitlets.Int(768).tag(sync=True)
    num_heads = traitlets.Int(12).tag(sync=True)
    device = traitlets.Int(0).tag(sync=True)
    torch = traitlets.Int(0).tag(sync=True)
    dtype = traitlets.Int(0).tag(sync=True)
    mask = traitlets.Int(0).tag(sync=True)
    mode = traitlets.Int(0).tag(sync=True)
    limits = traitlets.Dict().tag(sync=True)
    options = traitlets.Dict().tag(sync=True)
    table = traitlets.Dict().tag(sync=True)
    presets = traitlets.List().tag(sync=True)
    evidence = traitlets.Dict(EVIDENCE).tag(sync=True)
    colours = traitlets.Dict(BACKENDS).tag(sync=True)
    footnote = traitlets.Unicode(FOOTNOTE).tag(sync=True)
    unpadded = traitlets.Dict(UNPADDED).tag(sync=True)


OPTIONS = {
    "device": DEVICES,
    "torch": {version: version for version in backends.TORCH_VERSIONS},
    "dtype": {dtype: dtype for dtype in DTYPES},
    "mask": {key: words for key, (_, words) in MASKS.items()},
    "mode": {key: words for key, (_, words) in MODES.items()},
}
"""What each select offers: the value in Python, and the words."""


SHORT = {
    **{key: name for key, (name, _) in CARDS.items()},
    "dropout": "dropout 0.1",
    "is_causal": "is_causal",
    "mps": "Apple GPU",
}
"""For a narrow select."""


def state(**chosen) -> dict[str, int]:
    """A choice in words as the view's traits: positions in the selects, numbers as they are.

    >>> state(d_model=768, dtype="bf16")
    {'d_model': 768, 'dtype': 1}
    """
    return {name: list(OPTIONS[name]).index(value) if name in OPTIONS else value for name, value in chosen.items()}


def percent(part: int, whole: int) -> str:
    """A share in whole per cent, halves to the even number: the page rounds likewise (`percent` in kit.js)."""
    return f"{100 * part / whole:.0f}\N{NO-BREAK SPACE}%"


def opening_question() -> dict:
    """The folklore about 80, with the answer that PyTorch gives."""
    choice = backends.choose(call(80, LATEST, "sm80", "bf16", "none", "inference"))
    right = f"FlashAttention, in its {choice.bucket}-wide kernel"
    return opening(
        f"PyTorch {LATEST} on an A100, bf16, no mask, d_head = 80. Which kernel runs?",
        {
            "The slow path: 80 is not 64 or 128": "So it is often told. FlashAttention takes up to 256 columns, "
            "and no particular number; MATH is never reached.",
            "FlashAttention, in its 64-wide kernel": "A narrower kernel cannot hold the head: a row is never split over two.",
            right: f"The next width that is compiled. {percent(80, choice.bucket)} of its columns are useful, the rest are zeros. "
            "The kernel is fused all the same, and stores no T × T scores.",
            "FlashAttention, in its 128-wide kernel": "Rounding up to a power of two is what FlexAttention’s Triton kernel does. "
            "FlashAttention has widths between: 96 and 192.",
        },
        answer=right,
        outcome=state(d_model=1280, num_heads=16, **A100),
    )


def twin(d_model: int, num_heads: int, **chosen: str) -> str:
    """The panel's default state for a reader without scripts: kernel, bar, reasons, evidence."""
    d = d_model // num_heads
    choice = backends.choose(call(d, **chosen))
    words = f"torch {chosen['torch']}, " + ", ".join(
        OPTIONS[name][value] for name, value in chosen.items() if name != "torch"
    )
    fit = (
        f" in a kernel compiled for {choice.bucket}: {percent(d, choice.bucket)} of its columns are useful"
        if choice.bucket
        else ""
    )
    reasons = "".join(
        f"<li><strong>{refusal.backend}</strong>: {escape(refusal.reason)} ({escape(linked(refusal.source.split('; ')[0])[0])})</li>"
        for refusal in choice.refusals
    )
    bar = ""
    if choice.bucket:
        share = 100 * d / choice.bucket
        bar = (
            f'<svg width="100%" height="36" style="height: 36px" role="img" aria-label="{d} useful columns of {choice.bucket}.">'
            f'<rect width="100%" height="36" fill="none" stroke="currentColor"/>'
            f'<rect width="{share:g}%" height="36" fill="{BACKENDS[choice.backend]}"/>'
            f'<text x="8" y="23" font-size="14" fill="{ON_HEAD}">{d} useful of {choice.bucket}</text></svg>'
        )
    rows = "".join(
        f"<li>{escape(LABELS[name].format(torch=chosen['torch']))}: "
        + (f"{width} wide, {percent(d, width)} useful</li>" if width else "does not take this size</li>")
        for name in LABELS
        for width in [width_on(name, d, chosen["torch"], chosen["device"])]
    )
    return (
        f"<p><strong>{choice.backend} is selected</strong> for d_head = {d_model} / {num_heads} = {d}{fit}. {escape(words)}.</p>"
        f"{bar}<p>Why not another:</p><ul>{reasons}</ul><p>The same head in other kernels:</p><ul>{rows}</ul>"
        f"<p>{escape(EVIDENCE['table' if choice.evidence == 'table' else 'rules'])}</p>"
    )


def fast_path(
    d_model: int = 768,
    num_heads: int = 12,
    device: str = "sm80",
    torch: str = LATEST,
    dtype: str = "bf16",
    mask: str = "none",
    mode: str = "inference",
    question: dict | None = None,
) -> Panel:
    """Which kernel `scaled_dot_product_attention` selects for d_head = d_model / num_heads, and why not another.

    `device` is a key of `backends.DEVICES`, `torch` one of `backends.TORCH_VERSIONS`, `dtype` "fp16", "bf16"
    or "fp32", `mask` "none", "is_causal" or "mask", `mode` "inference", "training" or "dropout". The opening
    question is about 80 on an A100; pass your own (see `kit.question`), or `{}` for none. From Python:
    `panel.d_model.value`, `panel.num_heads.value`, `panel.device.value` and so on.

    Raises:
        ValueError: sizes that do not divide or that the sliders do not have, a choice that is not on the panel.
    """
    split = HeadSplit(d_model, num_heads)
    d_model, num_heads = split.d_model, split.n_heads
    for name, value, most in (("d_model", d_model, MAX_D_MODEL), ("num_heads", num_heads, MAX_NUM_HEADS)):
        if value > most:
            raise ValueError(f"{name} = {value} is beyond the panel's slider: give at most {most}")
    chosen = {"device": device, "torch": torch, "dtype": dtype, "mask": mask, "mode": mode}
    for name, value in chosen.items():
        if not isinstance(value, str) or value not in OPTIONS[name]:
            raise ValueError(f"{name} = {value!r} is not on the panel: give one of {', '.join(OPTIONS[name])}")
    start = state(d_model=d_model, num_heads=num_heads, **chosen)
    view = FastPathView(
        **start,
        limits={
            "d_model": [1, MAX_D_MODEL],
            "num_heads": [1, MAX_NUM_HEADS],
            **{name: [0, len(words) - 1] for name, words in OPTIONS.items()},
        },
        options={name: list(words.values()) for name, words in OPTIONS.items()},
        table=table(),
        presets=[{**preset, "state": state(**preset["state"])} for preset in PRESETS],
        question=opening_question() if question is None else question,
    )
    full = ipywidgets.Layout(width="100%", max_width="640px")
    sliders = [
        ipywidgets.IntSlider(d_model, 1, MAX_D_MODEL, 1, description="d_model", layout=full),
        ipywidgets.IntSlider(num_heads, 1, MAX_NUM_HEADS, 1, description="num_heads", layout=full),
    ]
    menus = [
        ipywidgets.Dropdown(
            options=[(SHORT.get(key, words), key) for key, words in options.items()],
            index=start[name],
            description=name,
        )
        for name, options in OPTIONS.items()
    ]
    for slider in sliders:
        link(slider, view, slider.description)
    for menu in menus:
        link(menu, view, menu.description, "index")
    return Panel("fastpath", [*sliders, choices(*menus)], view, twin(d_model, num_heads, **chosen))
