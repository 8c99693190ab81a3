"""Panel *sharding*: which GPU counts can a head count be spread over, and what does each GPU then hold?"""

from __future__ import annotations

from functools import cache
from html import escape
from math import gcd

import ipywidgets
import traitlets

from .. import sharding as rules
from ..palette import ON_HEAD, head_colour
from ..sharding import STACKS, Shard, ShardError, shard, tp_sizes
from ..words import listing, plural
from .kit import Panel, View, choices, css, esm, link
from .kit import question as opening
from .translate import javascript

MOST = 128
"""The end of each slider."""

PRESETS = [
    {
        "name": "Qwen2-7B on 8",
        "state": {"num_heads": 28, "n_kv_heads": 4, "tp": 8, "stack": "vllm"},
        "note": "28 query heads over 4 key/value heads, on a machine with 8 GPUs: vllm-project/vllm#11797 asks for a way round.",
    },
    {
        "name": "28 / 4 on 7",
        "state": {"num_heads": 28, "n_kv_heads": 4, "tp": 7, "stack": "vllm"},
        "note": "A report on DeepSeek-R1-Distill-Qwen-7B, which has these heads, lists 1, 2, 4, 7, 14 and 28 as the valid sizes "
        "(THU-KEG/AdaptThink#1). It forgets the key/value heads.",
    },
    {
        "name": "28 / 4 on 14",
        "state": {"num_heads": 28, "n_kv_heads": 4, "tp": 14, "stack": "vllm"},
        "note": "The other size too many in THU-KEG/AdaptThink#1. 14 GPUs cannot share 4 key/value heads evenly, cut or copied.",
    },
    {
        "name": "LLaMA 33B on 3",
        "state": {"num_heads": 52, "n_kv_heads": 52, "tp": 3, "stack": "vllm"},
        "note": "52 heads on three V100s (vllm-project/vllm#414). A maintainer’s advice was a fourth GPU.",
    },
    {
        "name": "WizardLM-33B on 8",
        "state": {"num_heads": 52, "n_kv_heads": 52, "tp": 8, "stack": "vllm"},
        "note": "The same 52 heads on a machine with 8 GPUs (vllm-project/vllm#2652).",
    },
    {
        "name": "Llama 2 13B on 3",
        "state": {"num_heads": 40, "n_kv_heads": 40, "tp": 3, "stack": "vllm"},
        "note": "40 heads on three RTX 3090 (vllm-project/vllm#596).",
    },
    {
        "name": "40 / 8 on 6",
        "state": {"num_heads": 40, "n_kv_heads": 8, "tp": 6, "stack": "vllm"},
        "note": "40 query heads on six T4s (vllm-project/vllm#4232); the 8 key/value heads are Qwen2.5-32B’s. A reader of the "
        "thread advises several small copies of the model, side by side.",
    },
    {
        "name": "32 / 4 on 8, transformers",
        "state": {"num_heads": 32, "n_kv_heads": 4, "tp": 8, "stack": "hf"},
        "note": "Qwen3-VL-30B-A3B: it loads, and the first forward pass fails. k_proj has 512 columns, 8 GPUs get 64 each, and a "
        "head is 128 wide (huggingface/transformers#48307).",
    },
    {
        "name": "32 / 4 on 8, vLLM",
        "state": {"num_heads": 32, "n_kv_heads": 4, "tp": 8, "stack": "vllm"},
        "note": "The same heads on the same 8 GPUs: this stack puts each key/value head on two of them.",
    },
    {
        "name": "SmolLM2-135M on 2",
        "state": {"num_heads": 9, "n_kv_heads": 3, "tp": 2, "stack": "vllm"},
        "note": "SmolLM2-135M (2025): 9 query heads over 3 key/value heads. No even number of GPUs will do.",
    },
    {
        "name": "Llama 3 70B on 8",
        "state": {"num_heads": 64, "n_kv_heads": 8, "tp": 8, "stack": "vllm"},
        "note": "Llama 3 70B (2024): as many GPUs as key/value heads, one each. The largest size without copies.",
    },
    {
        "name": "Llama 3 70B on 16",
        "state": {"num_heads": 64, "n_kv_heads": 8, "tp": 16, "stack": "vllm"},
        "note": "Llama 3 70B on two machines: each key/value head lies on two GPUs, and the cache on each is as large as with 8.",
    },
]
"""Models with their published head counts, and public reports."""


LABELS = {"vllm": "vLLM, SGLang", "hf": "transformers", "ulysses": "Ulysses (verl)"}
"""The stacks on the menu."""

PLAIN = {"vllm": "vLLM", "hf": "transformers", "ulysses": "Ulysses"}
"""The same in a sentence."""

CACHE = {"vllm": "KV cache", "hf": "KV cache", "ulysses": "Keys and values"}
"""What is shared out: sequence parallelism is used in training, which keeps no cache."""


REFUSES = {"vllm": "is refused", "hf": "fails", "ulysses": "is refused"}
"""What a stack does with a size that it does not admit: transformers loads the model, and the first forward pass fails."""


def spread(num_heads: int, n_kv_heads: int, tp: int, stack: str) -> dict:
    """All that the panel says and draws. This is the function that the page calls, translated.

    `verdict` is "admitted", "refused" or "ungrouped" (n_kv_heads does not divide num_heads), `rule` what refuses it;
    `sizes` are the admitted ones, `moves` buttons as [trait, value]. `ranks` has for each GPU its query heads
    as runs [key/value head that they read, first, count], and its key/value heads as [head, n, of m] parts; `copies` GPUs
    hold each of them. `left` is [first, count] of the query heads left over. `shares` are [size, n, copies]: each GPU holds
    1/n of the cache.
    """
    try:
        told = _admitted(num_heads, n_kv_heads, shard(num_heads, n_kv_heads, tp, stack))
    except ShardError as error:
        if error.rule == "groups":
            return _ungrouped(num_heads, n_kv_heads, tp)
        told = _refused(num_heads, n_kv_heads, tp, stack, error.rule, _why(f"{error}", num_heads, tp, stack))
    sizes = list(tp_sizes(num_heads, n_kv_heads, stack))
    shares = []
    for size in sizes:
        one = shard(num_heads, n_kv_heads, size, stack)
        shares.append([size, n_kv_heads // one.kv_heads_per_rank, one.replicas])
    told.update({
        "unit": "GPU",
        "sizes": sizes,
        "offer": "Admitted tp:",
        "moves": [["tp", size] for size in sizes],
        "shares": shares,
        "head": f"{CACHE[stack]} on each GPU, as a share of the whole",
        "chart": f"{listing([f'tp = {size}: {_part(parts)}' for size, parts, _ in shares])}.",
        "flat": _flat(n_kv_heads, shares),
        "source": f"Rule: {rules.TEXTS[stack]}.",
    })  # fmt: skip
    return told


def _why(message: str, num_heads: int, tp: int, stack: str) -> str:
    """A refusal in the panel's words, without the sizes that work: the buttons have them."""
    fault = message.partition(" Sizes that ")[0].replace(f"tp = {tp} ", "it ", 1)
    return fault.replace(f" n_heads = {num_heads}", f" the {plural(num_heads, 'query head')}").replace(
        "this stack", PLAIN[stack]
    )


def _part(parts: int) -> str:
    return "all" if parts == 1 else f"1/{parts}"


def _kv(n: int) -> str:
    return plural(n, "key/value head")


def _admitted(num_heads: int, n_kv_heads: int, held: Shard) -> dict:
    each, kv, tp, copies = held.heads_per_rank, held.kv_heads_per_rank, held.tp, held.replicas
    who = "the one GPU" if tp == 1 else "each GPU"
    share = _part(n_kv_heads // kv)
    whole = "keys and values" if held.stack == "ulysses" else "KV cache"
    key = "A colour is a key/value head, and the query heads that read it."
    if copies > 1:
        less = f"as with tp = {n_kv_heads}" if n_kv_heads > 1 else "and more GPUs change nothing about that"
        long = (
            f"{who} holds {plural(each, 'query head')} and a copy of {_kv(1)}, which {copies} GPUs have: "
            f"{share} of the {whole}, {less}."
        )
        key = f"{key} ×{copies}: on {copies} GPUs."
    else:
        long = f"{who} holds {plural(each, 'query head')} and {_kv(kv)}: {share} of the {whole}."
    ranks = [
        {
            "heads": _runs(rank * each, each, num_heads // n_kv_heads),
            "kv": [[head, 1, 1] for head in held.kv_heads(rank)],
        }
        for rank in range(tp)
    ]
    on = f", which {copies} GPUs have" if copies > 1 else ""
    picture = f"{plural(tp, 'GPU')} with {plural(each, 'query head')} and {_kv(kv)} each{on}."
    return {
        "verdict": "admitted", "rule": "", "short": f"tp = {tp} is admitted: ", "long": long,
        "ranks": ranks, "copies": copies, "aligned": True, "left": [], "picture": picture, "key": key,
    }  # fmt: skip


def _refused(num_heads: int, n_kv_heads: int, tp: int, stack: str, rule: str, message: str) -> dict:
    each, left = divmod(num_heads, tp)
    group = num_heads // n_kv_heads
    if rule == "heads":
        # What goes wrong is that query heads are left over: the key/value heads are not dealt out at all.
        ranks = [{"heads": _runs(rank * each, each, group), "kv": []} for rank in range(tp)] if each else []
        first = tp * each
        picture = f"{plural(left, 'query head')} of {num_heads} left over, hatched."
        key = (
            "Hatched: query heads that would be left over. Heads of one colour read the same key/value head."
            if each
            else "Hatched: too few query heads, each GPU needs at least one."
        )
        over = [first, left]
    else:
        ranks = [{"heads": _runs(rank * each, each, group), "kv": _parts(rank, n_kv_heads, tp)} for rank in range(tp)]
        picture = f"{tp} GPUs with {plural(each, 'query head')} each, and key/value heads cut into parts, hatched."
        key = "Hatched: parts of a key/value head, as an even cut would deal them out. A query head needs all of the one in its colour."
        over = []
    return {
        "verdict": "refused", "rule": rule, "short": f"tp = {tp} {REFUSES[stack]}: ", "long": message,
        "ranks": ranks, "copies": 1, "aligned": False, "left": over, "picture": picture, "key": key,
    }  # fmt: skip


def _ungrouped(num_heads: int, n_kv_heads: int, tp: int) -> dict:
    share, left = divmod(num_heads, n_kv_heads)
    divisors = [n for n in range(1, num_heads + 1) if num_heads % n == 0]
    nearest = [n for n in divisors if n < n_kv_heads][-1:] + [n for n in divisors if n > n_kv_heads][:1]
    if share:
        long = f"{num_heads} = {n_kv_heads} × {share} + {left}, so {plural(left, 'query head')} would be left over."
    else:
        long = f"{_kv(n_kv_heads)} are more than {plural(num_heads, 'query head')}, and some would have none."
    return {
        "verdict": "ungrouped", "rule": "groups", "unit": "kv", "short": f"no grouping, on {plural(tp, 'GPU')} or any other number: ", "long": long,
        "sizes": [], "offer": f"Nearest n_kv_heads that divide {num_heads}:", "moves": [["n_kv_heads", n] for n in nearest],
        "ranks": [{"heads": [[kv, kv * share, share]], "kv": []} for kv in range(n_kv_heads)] if share else [],
        "copies": 1, "aligned": False, "left": [n_kv_heads * share, left] if share else [],
        "picture": f"{plural(left, 'query head')} of {num_heads} left over, hatched.", "key": "One box for each key/value head, with the query heads that would read it." if share else "",
        "shares": [], "head": "", "chart": "", "flat": "", "source": "",
    }  # fmt: skip


def _runs(first: int, count: int, group: int) -> list:
    """Query heads from `first` on as runs [key/value head, first, count]: heads of one group read the same one."""
    runs = []
    head = first
    while head < first + count:
        kv = head // group
        end = min((kv + 1) * group, first + count)
        runs.append([kv, head, end - head])
        head = end
    return runs


def _parts(rank: int, n_kv_heads: int, tp: int) -> list:
    """What an even cut of the key/value heads gives one GPU: [head, n, m], n/m of that head."""
    low, high = rank * n_kv_heads, (rank + 1) * n_kv_heads  # in parts of 1/tp of a head
    found = []
    for head in range(low // tp, (high - 1) // tp + 1):
        part = min(high, (head + 1) * tp) - max(low, head * tp)
        common = gcd(part, tp)
        found.append([head, part // common, tp // common])
    return found


def _flat(n_kv_heads: int, shares: list) -> str:
    """The chart in words."""
    if len(shares) == 1:
        return "Only one size is admitted: the heads cannot be dealt out."
    if not any(copies > 1 for _, _, copies in shares):
        return "Each admitted size cuts it further: no GPU holds a copy of what another holds."
    if n_kv_heads == 1:
        return "There is one key/value head, and nothing to cut: on more than one GPU, each holds a copy (striped)."
    return (
        f"From tp = {n_kv_heads} on, the number of key/value heads, the share stays at {_part(n_kv_heads)}: "
        "more GPUs only hold copies (striped)."
    )


@cache
def code() -> str:
    """The rules in JavaScript."""
    return javascript("sharding", [spread])


class ShardingView(View):
    """`stack` is the state; `stack_at` its place in the menu, which is what a menu shares with the page."""

    _esm = code() + esm("sharding")
    _css = css("sharding")
    num_heads = traitlets.Int(64).tag(sync=True)
    n_kv_heads = traitlets.Int(8).tag(sync=True)
    tp = traitlets.Int(8).tag(sync=True)
    stack = traitlets.Unicode("vllm").tag(sync=True)
    stack_at = traitlets.Int(0).tag(sync=True)
    stacks = traitlets.List(list(STACKS)).tag(sync=True)
    limits = traitlets.Dict({name: [1, MOST] for name in ("num_heads", "n_kv_heads", "tp")}).tag(sync=True)
    presets = traitlets.List(PRESETS).tag(sync=True)


QUESTION = opening(
    "28 query heads over 4 key/value heads, in vLLM: on which of these GPU counts does it run?",
    {
        "8": "28 = 8 × 3 + 4: four query heads would be left over. A power of two is no help if it does not divide.",
        "7": "28 / 7 = 4 query heads each, but 4 key/value heads do not go round 7 GPUs: each would get 4/7 of one.",
        "14": "28 / 14 = 2 query heads each, but 14 is no multiple of 4: the copies would come out uneven.",
        "4": "7 query heads each, and the key/value head that they read. 1, 2 and 28 work, too: on 28 GPUs each key/value "
        "head lies on 7 of them.",
    },
    answer="4",
    outcome={"num_heads": 28, "n_kv_heads": 4, "tp": 7, "stack": "vllm"},
)


def boxes(found: dict, most: int = 16) -> str:
    """The GPUs as boxes, drawn by inline style alone: query heads above, the key/value heads that they read below."""
    edge = f"border:1px solid {ON_HEAD};color:{ON_HEAD};text-align:center;font-size:12px;line-height:20px"
    drawn = []
    for i, rank in enumerate(found["ranks"][:most]):
        heads = [(head, kv) for kv, first, count in rank["heads"] for head in range(first, first + count)]
        shown, kvs = heads[:32], rank["kv"][:8]
        cells = "".join(
            f'<span style="{edge};min-width:22px;border-radius:3px;background:{head_colour(kv)}">{head}</span>'
            for head, kv in shown
        )
        bars = "".join(
            f'<span style="{edge};flex:1 1 auto;padding:0 4px;border-width:2px;border-radius:9px;background:{head_colour(kv)}">kv {kv}</span>'
            for kv, _, _ in kvs
        )
        more = f"<span>+ {len(heads) - 32}</span>" if len(heads) > 32 else ""
        rest = f"<span>+ {len(rank['kv']) - 8} kv</span>" if len(rank["kv"]) > 8 else ""
        flex = "display:flex;flex-wrap:wrap;gap:2px;margin-top:2px;max-width:220px"
        drawn.append(
            f'<div style="padding:3px 6px 6px;border:1px solid currentColor;border-radius:6px;font-size:13px">GPU {i}'
            f'<div style="{flex}">{cells}{more}</div><div style="{flex}">{bars}{rest}</div></div>'
        )
    if len(found["ranks"]) > most:
        drawn.append(f"<div>and {len(found['ranks']) - most} more GPUs alike</div>")
    return f'<div role="img" aria-label="{escape(found["picture"])}" style="display:flex;flex-wrap:wrap;gap:8px;margin:8px 0">{"".join(drawn)}</div>'


def twin(num_heads: int, n_kv_heads: int, tp: int, stack: str) -> str:
    """The panel's start for a reader without scripts: the verdict, the boxes, the sizes and their shares."""
    found = spread(num_heads, n_kv_heads, tp, stack)
    shares = "".join(
        f"<li>tp = {size}: {_part(parts)}{f', each key/value head on {copies} GPUs' if copies > 1 else ''}</li>"
        for size, parts, copies in found["shares"]
    )
    picture = boxes(found) if found["verdict"] == "admitted" else ""
    return (
        f"<p>{plural(num_heads, 'query head')} over {_kv(n_kv_heads)}, {escape(LABELS[stack])}. "
        f"<strong>{escape(found['short'])}</strong>{escape(found['long'])}</p>{picture}"
        + (f"<p>{found['head']}, for each admitted size:</p><ul>{shares}</ul>" if shares else "")
        + f"<p>{escape(found['flat'].replace(' (striped)', ''))}</p>"
    )


def sharding(
    num_heads: int = 64, n_kv_heads: int = 8, tp: int = 8, stack: str = "vllm", question: dict | None = None
) -> Panel:
    """Sliders `num_heads`, `n_kv_heads` and `tp` (1 to 128), a menu `stack`: which sizes are admitted, what a GPU holds.

    `stack` is one of `splitheads.sharding.STACKS`. The opening question is about 28 heads over 4; pass your own (see
    `kit.question`), or `{}` for none. From Python: `panel.num_heads.value`, `panel.stack.value` and so on.

    Raises:
        ValueError: a number that the sliders do not have, a stack that is not on the menu.
    """
    start = {"num_heads": num_heads, "n_kv_heads": n_kv_heads, "tp": tp}
    for name, value in start.items():
        if type(value) is not int or not 1 <= value <= MOST:
            raise ValueError(f"{name} = {value!r} is not on the panel's slider: give a whole number from 1 to {MOST}")
    if stack not in STACKS:
        raise ValueError(f"stack = {stack!r} is not on the panel: give one of {', '.join(STACKS)}")
    view = ShardingView(
        **start, stack=stack, stack_at=list(STACKS).index(stack), question=QUESTION if question is None else question
    )
    full = ipywidgets.Layout(width="100%", max_width="640px")
    sliders = [ipywidgets.IntSlider(value, 1, MOST, 1, description=name, layout=full) for name, value in start.items()]
    menu = ipywidgets.Dropdown(options=[(LABELS[name], name) for name in STACKS], value=stack, description="stack")
    for slider in sliders:
        link(slider, view, slider.description)
    link(menu, view, "stack_at", "index")
    row = choices(menu)
    menu.layout.max_width = "20rem"
    return Panel("sharding", [*sliders, row], view, twin(num_heads, n_kv_heads, tp, stack))
