"""Panel *doctor*: one configuration, and everything that follows from it: legal or not, shapes, costs, kernel, sharding.

The text field `config` holds the configuration as JSON, and is the whole state: the other fields and menus read and
write it. The report is made in the page by Python's own rules, translated (see `translate`), so it is the one that
`splitheads.doctor.diagnose` gives.
"""

from __future__ import annotations

import json
from functools import cache
from html import escape

import ipywidgets
import traitlets

from .. import models
from ..backends import TORCH_VERSIONS
from ..doctor import ALIASES, KEYS, Report, diagnose
from ..doctor.huggingface import looks_like_huggingface
from ..doctor.keys import _apart
from ..doctor.rules import diagnose_plain
from ..words import grouped, size_text
from .fast_path import DEVICES, SHORT
from .kit import Panel, View, choices, css, esm, link
from .kit import question as opening
from .translate import javascript

FIELDS = ("d_model", "n_heads", "n_kv_heads", "d_head", "n_layers", "seq_k", "tp")
"""Fields for numbers: keys of the configuration, by the names that its JSON, its findings and the command use."""

MENUS = {
    "model": [(model.name, {"model": model.name}) for model in models.rows()],
    "device": [(SHORT.get(key, name), {"device": key}) for key, name in DEVICES.items()],
    "dtype": [(dtype, {"dtype": dtype}) for dtype in ("bf16", "fp16", "fp32", "fp8", "int8")],
    "torch": [(version, {"torch": version}) for version in reversed(TORCH_VERSIONS)],
    "mode": [
        ("inference", {"training": False}),
        ("training", {"training": True}),
        ("dropout 0.1", {"training": True, "dropout": 0.1}),
    ],
    "mask": [
        ("a boolean mask", {"mask": "bool"}),
        ("a float mask", {"mask": "float"}),
        ("is_causal=True", {"is_causal": True}),
    ],
    "stack": [("vLLM", {"stack": "vllm"}), ("transformers", {"stack": "hf"}), ("Ulysses", {"stack": "ulysses"})],
    "rope": [("RoPE", {"rope": True}), ("no RoPE", {"rope": False})],
}
"""Menus: name -> what it offers, each with the keys that it sets. Before them comes "not given", after them "see config"."""

SET = {"mode": ["training", "dropout"], "mask": ["mask", "is_causal"]}
"""Keys that a menu is about, where they are not its name."""

KEEPS = ("device", "dtype", "torch", "training", "dropout", "attn_implementation", "stack")
"""Keys that stay when a model is picked: what it runs on."""

BRINGS = [key for key in KEYS if key not in KEEPS]
"""Keys that give way to it: the model has its own numbers, and what was asked of the former one (tp, checkpoint_*, prune_heads,
seq_k, ...) was not asked of this one."""

CHAPTERS = {
    "partition-rule": "the partition rule",
    "reshape": "the reshape",
    "fast-path": "the fast path",
    "timing-lab": "the timing lab",
    "sharding": "sharding",
    "doctor": "the doctor",
}
"""Chapters that a finding may name, with their titles."""

CASES = [
    {
        "name": "1024 columns, 12 heads",
        "config": {"d_model": 1024, "n_heads": 12},
        "note": "A wider TimeSformer with the default of 12 heads; the second guess was 24 (open-mmlab/mmaction2#1271).",
    },
    {
        "name": "32 heads, weights of a ViT-L",
        "config": {"d_model": 1024, "n_heads": 32, "checkpoint_n_heads": 16},
        "note": "Same thread, third guess: 32 divides 1024, and the pretrained weights have 16 heads (open-mmlab/mmaction2#1271).",
    },
    {
        "name": "12 heads loaded into 8",
        "config": {"d_model": 768, "n_heads": 8, "checkpoint_n_heads": 12},
        "note": "No weight's shape holds a head count. One project's two configurations said 1 head and 8 of the same dictionary "
        "(wzhouxiff/RestoreFormer#20); here with BERT's numbers.",
    },
    {
        "name": "48 heads in GPT-2 XL",
        "config": {"d_model": 1600, "n_heads": 48},
        "note": "48 is GPT-2 XL’s number of layers; it has 25 heads (rasbt/LLMs-from-scratch#444).",
    },
    {
        "name": "16 columns lost on the way",
        "config": {"d_model": 4096, "n_heads": 24, "n_kv_heads": 8},
        "note": "An export without head_dim: q_proj was [3072, 4096], and the reader built [4080, 4096] (ServiceNow/Fast-LLM#102).",
    },
    {
        "name": "Qwen3-4B: 144 KiB, not 90",
        "config": {
            "d_model": 2560,
            "n_heads": 32,
            "n_kv_heads": 8,
            "d_head": 128,
            "n_layers": 36,
            "dtype": "bf16",
        },
        "note": "A KV-cache calculator took 2560 / 32 = 80 for the head size; the config says 128 (LMCache/LMCache#688).",
    },
    {
        "name": "Llama 2 7B with 1 KV head",
        "config": {"model": "Llama 2 7B", "n_kv_heads": 1},
        "note": "One number changed in the parameters of a trained model: wk is [4096, 4096] (meta-llama/llama#427).",
    },
    {
        "name": "28 heads on 7 GPUs",
        "config": {"d_model": 3584, "n_heads": 28, "n_kv_heads": 4, "tp": 7, "stack": "vllm"},
        "note": "A report lists 7 and 14 among the sizes that 28 heads allow; the 4 key/value heads do not (THU-KEG/AdaptThink#1).",
    },
    {
        "name": "4 KV heads on 8 GPUs, transformers",
        "config": {"d_model": 2048, "n_heads": 32, "n_kv_heads": 4, "d_head": 128, "tp": 8, "stack": "hf"},
        "note": "512 key columns over 8 ranks: 64 each, half a head (huggingface/transformers#48307).",
    },
    {
        "name": "RoPE on an odd head",
        "config": {"d_model": 520, "n_heads": 8, "rope": True},
        "note": "520 / 8 = 65: the model is built, and the first forward pass dies (huggingface/transformers#48101).",
    },
    {
        "name": "d_head = 132 by accident",
        "config": {
            "n_heads": 64,
            "d_model": 8448,
            "device": "sm90",
            "dtype": "bf16",
            "attn_implementation": "flash_attention_2",
        },
        "note": "One step past a compiled width, and not a multiple of 8 (Dao-AILab/flash-attention#1141).",
    },
    {
        "name": "one query, is_causal",
        "config": {"d_model": 4096, "n_heads": 32, "is_causal": True, "seq_q": 1, "seq_k": 4096, "device": "sm80"},
        "note": "Decoding with a cache: SDPA aligns the causal mask top left (pytorch/pytorch#103082).",
    },
    {
        "name": "80 padded to 96",
        "config": {"d_model": 1280, "n_heads": 16, "pad_d_head_to": 96},
        "note": "Zeros change no score, but the default scale is taken from the padded width (intel/ipex-llm PR 12619).",
    },
    {
        "name": "bf16 on a T4",
        "config": {"d_model": 768, "n_heads": 12, "device": "sm75", "dtype": "bf16"},
        "note": "T4s are refused by FlashAttention, and bf16 by the rest (Dao-AILab/flash-attention#762).",
    },
    {
        "name": "a mask, so math?",
        "config": {"d_model": 4096, "n_heads": 64, "device": "sm80", "dtype": "bf16", "mask": "bool"},
        "note": "That any mask forces the math backend stands in a pull request (google-research/tabfm PR 80).",
    },
    {
        "name": "4 of 12 heads pruned",
        "config": {"d_model": 768, "n_heads": 12, "prune_heads": 4},
        "note": "The head count was changed, the weights were not: [32, 44, 8, 64] does not hold them (intel/neural-compressor#525).",
    },
    {
        "name": "attention_head_dim = 8",
        "config": {"d_model": 320, "attention_head_dim": 8, "device": "sm80"},
        "note": "In diffusers’ UNets the name says size, and the number is a count (huggingface/diffusers#2011).",
    },
]
"""Public reports, each with a configuration that shows what went wrong."""

DEFAULT = {
    "d_model": 2560,
    "n_heads": 32,
    "n_kv_heads": 8,
    "d_head": 128,
    "n_layers": 36,
    "dtype": "bf16",
    "device": "a100",
}
"""Qwen3-4B on an A100: breaks the partition rule, and nothing is wrong with that."""

QUESTION = opening(
    "A checkpoint was trained with d_model = 768 and 12 heads. It is loaded into a configuration with 8 heads. What happens?",
    {
        "It raises: the shapes do not fit": "All four projections are [768, 768] with 12 heads of 64 and with 8 heads of 96. "
        "No weight has an axis for heads, so there is nothing that could fail to fit.",
        "It loads, and the outputs are wrong": "Every key matches. The columns are then cut in other places than in training: "
        "a head of 96 is one and a half of the old ones. Nothing but the outputs tells.",
        "It loads, and the outputs are the same": "They would be if heads were only a way to write one large attention. But each head "
        "has a softmax of its own, over the scores of its own columns.",
        "It loads, with 4 heads left unused": "Unused columns would change the shapes: 8 heads of 64 would need a q_proj of [512, 768].",
    },
    answer="It loads, and the outputs are wrong",
    outcome={"config": json.dumps({"d_model": 768, "n_heads": 8, "checkpoint_n_heads": 12})},
)

NOT_GIVEN, OTHER = "not given", "see config"


@cache
def rules() -> str:
    """The doctor in JavaScript."""
    return javascript("doctor", [diagnose_plain, looks_like_huggingface, _apart, size_text])


def synced(default: str | int) -> traitlets.TraitType:
    """A trait that the page and Python share."""
    return (traitlets.Unicode if isinstance(default, str) else traitlets.Int)(default).tag(sync=True)


class DoctorView(View):
    """`config` is the state, `start` what it was at first. Fields hold what was typed, `_hint` what an empty field means; menus hold places."""

    _css = css("doctor")
    config, start, case = synced("{}"), synced("{}"), synced(0)
    d_model, d_model_hint = synced(""), synced("")
    n_heads, n_heads_hint = synced(""), synced("")
    n_kv_heads, n_kv_heads_hint = synced(""), synced("")
    d_head, d_head_hint = synced(""), synced("")
    n_layers, n_layers_hint = synced(""), synced("")
    seq_k, seq_k_hint = synced(""), synced("")
    tp, tp_hint = synced(""), synced("")
    model, device, dtype, torch = synced(0), synced(0), synced(0), synced(0)
    mode, mask, stack, rope = synced(0), synced(0), synced(0), synced(0)
    fields = traitlets.List().tag(sync=True)
    menus = traitlets.List().tag(sync=True)
    cases = traitlets.List().tag(sync=True)
    known = traitlets.List(list(KEYS)).tag(sync=True)
    aliases = traitlets.Dict(ALIASES).tag(sync=True)
    chapters = traitlets.Dict(CHAPTERS).tag(sync=True)
    brings = traitlets.List(BRINGS).tag(sync=True)

    @property
    def _esm(self) -> str:
        """Made for the first panel, not on import: other panels need not wait for the translation."""
        return rules() + esm("doctor")


def told(value) -> str:
    """A derived value for print: whole numbers in threes, lists as they are."""
    return grouped(value) if type(value) is int else str(value)


def twin(report: Report) -> str:
    """A report for a reader without scripts: the configuration, verdict, findings, shapes, factors."""
    facts = report.to_dict()
    findings = "".join(
        f"<li><strong>{finding['severity']}:</strong> {escape(finding['message'])}"
        + (f" {escape(' '.join(finding['suggestions']))}" if finding["suggestions"] else "")
        + "</li>"
        for finding in facts["findings"]
    )
    shapes = "".join(
        f"<li>{escape(key)}: {escape(told(value))}</li>"
        for key, value in facts["derived"].items()
        if key.endswith("_proj") or key in ("d_head", "kv_bytes_per_token", "backend", "tp_sizes")
    )
    factors = "".join(f"<li>{escape(one['name'])}: {escape(one['text'])}</li>" for one in facts["factors"])
    config = ", ".join(f"{key} = {value}" for key, value in facts["config"].items())
    return (
        f"<p><strong>{report.verdict}</strong> for {escape(config)}.</p><ul>{findings}</ul>"
        f"<p>What follows, shapes as [out, in]:</p><ul>{shapes}</ul><p>Every factor:</p><ul>{factors}</ul>"
        "<p>For another configuration: <code>python -m splitheads doctor d_model=1024 n_heads=12</code></p>"
    )


def doctor(config: dict | None = None, question: dict | None = None) -> Panel:
    """What a configuration means, as a form: legal or not and why, shapes, parameters, bytes, kernel, GPUs.

    `config` has the keys of `splitheads.doctor.KEYS`, or is a Hugging Face config.json as a dict; by default Qwen3-4B's
    numbers. `question` is the opening question (see `kit.question`), `{}` for none. From Python:
    `panel.config.value` is the configuration as JSON, `panel.d_model.value` what is typed into a field; a value that
    is set in Python arrives in the form. `panel.num_heads` is `panel.n_heads`. `splitheads.doctor.diagnose` gives the same report.

    Raises:
        splitheads.doctor.ConfigError: an unknown key, or a value of the wrong type.
    """
    config = DEFAULT if config is None else config
    report = diagnose(config)
    whole = json.dumps(config, ensure_ascii=False)
    start = whole if len(whole) <= 240 else json.dumps(config, indent=2, ensure_ascii=False)
    view = DoctorView(
        config=start,
        start=start,
        fields=[{"trait": name, "key": name} for name in FIELDS],
        menus=[
            {"trait": name, "keys": SET.get(name, [name]), "options": [[NOT_GIVEN, {}], *options]}
            for name, options in MENUS.items()
        ],
        # As text: the keys of a dictionary may come sorted from a stored notebook.
        cases=[{**case, "config": json.dumps(case["config"])} for case in CASES],
        question=QUESTION if question is None else question,
    )
    text = ipywidgets.Textarea(view.config, description="config", rows=4)
    fields = [ipywidgets.Text("", description=name, placeholder="") for name in FIELDS]
    menus = [
        ipywidgets.Dropdown(options=[NOT_GIVEN, *(label for label, _ in options), OTHER], index=0, description=name)
        for name, options in MENUS.items()
    ]
    case = ipywidgets.Dropdown(
        options=["pick a public report", *(one["name"] for one in CASES)], index=0, description="case"
    )
    for control in (text, *fields):
        link(control, view, control.description)
    for field in fields:
        link(field, view, f"{field.description}_hint", "placeholder")
    for menu in (*menus, case):
        link(menu, view, menu.description, "index")
    numbers, others = choices(*fields), choices(*menus[1:])
    numbers.add_class("sh-numbers")
    others.add_class("sh-menus")
    panel = Panel("doctor", [choices(menus[0], case), numbers, others, choices(text)], view, twin(report))
    panel._named["num_heads"] = panel.n_heads  # what the sliders of other panels are called
    return panel
