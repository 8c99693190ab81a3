"""The panels *kernel map* and *fast path*, the Python side: their tables against `splitheads.backends`, row by row."""

from __future__ import annotations

import json
import random
import re
from functools import cache
from html import unescape
from importlib import import_module
from itertools import pairwise, product

import ipywidgets
import numpy as np
import pytest
from splitheads import backends
from splitheads.backends import SdpaCall, choose, from_table
from splitheads.palette import BACKENDS
from splitheads.panels import fast_path as fast
from splitheads.panels import kernel_map as mapped
from splitheads.panels import kit
from test_panels import Tags

# The package's names are the panels; these are the modules that they come from.
MAP = import_module("splitheads.panels.kernel_map")
FAST = import_module("splitheads.panels.fast_path")


def lane(d: int) -> int:
    return 0 if d % 8 == 0 else 1 if d % 4 == 0 else 2


def read(pattern: str, d: int, split) -> str:
    """What a pattern says of one head size: the last run that has begun."""
    runs = [split(run) for run in pattern.split(";")[lane(d)].split(" ")]
    return [what for what, first in runs if first <= d][-1]


def mapped_letter(run: str) -> tuple[str, int]:
    return run[0], int(run[1:])


def fast_number(run: str) -> tuple[int, int]:
    first, number = run.split(":")
    return int(number), int(first)


# ---- kernel map: the table ----------------------------------------------------------------------


def test_every_series_of_the_map_is_the_table_of_selections():
    """All 1,638 series at every size from 1 to 320: 524,160 cells."""
    table = MAP.table()
    cells = 0
    expanded = [
        "".join(read(pattern, d, mapped_letter) for d in range(1, MAP.MAX_D_HEAD + 1)) for pattern in table["patterns"]
    ]
    series = iter(table["series"])
    for torch, dtype, scenario, card in product(backends.TORCH_VERSIONS, MAP.DTYPES, backends.SCENARIOS, MAP.CARDS):
        told = expanded[ord(next(series)) - 65]
        row = MAP.letters(torch, card, dtype, scenario)
        assert told == row, (torch, dtype, scenario, card)
        cells += len(row)
    assert next(series, None) is None
    assert cells == 6 * 3 * 13 * 7 * 320


def test_a_letter_is_what_from_table_chose():
    rng = random.Random(3)
    for _ in range(300):
        torch, card = rng.choice(backends.TORCH_VERSIONS), rng.choice(list(MAP.CARDS))
        dtype, scenario = rng.choice(MAP.DTYPES), rng.choice(list(backends.SCENARIOS))
        d = rng.randint(1, MAP.MAX_D_HEAD)
        call = SdpaCall(d, torch=torch, device=card, dtype=dtype, **backends.SCENARIOS[scenario].settings)
        assert from_table(call)[0][0] == MAP.letters(torch, card, dtype, scenario)[d - 1]


def test_letters_and_names_tell_the_kernels_apart():
    kernels = MAP.table()["kernels"]
    assert {kernel["name"]: kernel["colour"] for kernel in kernels} == BACKENDS
    assert len({kernel["letter"] for kernel in kernels}) == len(kernels) == 4
    assert all(kernel["letter"] == kernel["name"][0] for kernel in kernels)
    assert "FLASH" in MAP.KERNELS
    assert "MATH" in MAP.KERNELS


def test_the_cards_scenarios_and_versions_are_those_of_the_table():
    assert list(MAP.CARDS) == [key for key in backends.DEVICES if key.startswith("sm")]
    assert set(MAP.BRIEF) == set(backends.SCENARIOS)
    assert set(FAST.DEVICES) == set(backends.DEVICES)
    assert list(FAST.OPTIONS["torch"]) == list(backends.TORCH_VERSIONS)
    assert set(MAP.DTYPES) == set(FAST.DTYPES) == set(backends.table()["dtypes"])
    for key, (name, words) in MAP.CARDS.items():
        assert (
            backends.device_key({"RTX 30": "RTX 3090", "RTX 40": "RTX 4090", "RTX 50": "RTX 5090"}.get(name, name))
            == key
        )
        assert name in words or name.startswith("RTX")


def test_the_zigzag_that_is_asked_about_is_in_the_table():
    row = MAP.letters("2.15.0", "sm89", "bf16", "train")
    assert [row[d - 1] for d in (192, 193, 200, 223, 224, 225, 257)] == list("FMEMEFM")
    changes = sum(one != other for one, other in pairwise(row[191:257]))
    asked = MAP.opening_question()
    assert [option["label"] for option in asked["options"] if option["right"]] == [f"{changes} times"] == ["10 times"]
    assert len({option["why"] for option in asked["options"]}) == len(asked["options"]) == 4
    assert "from 257 on MATH" in asked["options"][0]["why"]
    assert MAP.letters("2.15.0", "sm80", "bf16", "train")[191:257] == "F" * 65 + "M"


def found(torch: str, card: str, dtype: str, scenario: str, d: int) -> str:
    return from_table(SdpaCall(d, torch=torch, device=card, dtype=dtype, **backends.SCENARIOS[scenario].settings))[0]


def test_what_the_findings_say_is_so():
    last = backends.TORCH_VERSIONS[-1]
    fused = {found(last, card, "bf16", "infer", 80) for card in MAP.CARDS if card != "sm75"}
    assert "MATH" not in fused
    for card in ("sm86", "sm89", "sm120"):
        for d in range(193, 225):
            assert found(last, card, "bf16", "train", d) == ("EFFICIENT" if d % 8 == 0 else "MATH")
        assert found(last, card, "bf16", "train", 225) == "FLASH"
    for d in range(136, 249, 8):
        assert found("2.14.1", "sm90", "bf16", "train", d) == "FLASH"
        assert found("2.13.0", "sm90", "bf16", "train", d) == "CUDNN"
    assert found("2.14.1", "sm90", "bf16", "train", 256) == "CUDNN"
    for torch in ("2.11.0", "2.13.0"):
        assert [found(torch, "sm100", "bf16", "gqa_mask", d) for d in (128, 136)] == ["CUDNN", "MATH"]
    assert found("2.14.1", "sm100", "bf16", "gqa_mask", 136) != "MATH"
    for card in MAP.CARDS:
        assert found(last, card, "bf16", "infer_mask", 100) == "MATH"
        assert (found(last, card, "bf16", "infer", 100) == "FLASH") == (card != "sm75")
    for d in range(1, 321):
        assert found(last, "sm75", "bf16", "infer", d) == "MATH"
        assert found(last, "sm75", "fp32", "infer", d) == "EFFICIENT"
        assert (found(last, "sm75", "fp16", "infer", d) == "EFFICIENT") == (d % 8 == 0)
    for card in MAP.CARDS:
        for d in (65, 66, 68):
            assert found(last, card, "fp32", "infer", d) == ("EFFICIENT" if card == "sm75" or d % 4 == 0 else "MATH")
    for scenario in backends.SCENARIOS:
        assert not {found(last, card, "fp32", scenario, d) for card in MAP.CARDS for d in (64, 80)} & {"FLASH", "CUDNN"}


def test_a_finding_sets_what_the_panel_has():
    limits = mapped().view.limits
    for preset in MAP.PRESETS:
        assert set(preset["state"]) == {"torch", "dtype", "scenario", "compare", "d_head"}
        assert all(limits[name][0] <= value <= limits[name][1] for name, value in preset["state"].items())
    assert len({preset["name"] for preset in MAP.PRESETS}) == len(MAP.PRESETS)


# ---- fast path: the table -----------------------------------------------------------------------


@cache
def tables() -> dict:
    return FAST.table()


def told(d: int, torch: str, device: str, dtype: str, mask: str, mode: str) -> tuple:
    """What the page makes of the table for one call, as (backend, width, refusals, notes)."""
    table = tables()
    at = 0
    for name, value in (("torch", torch), ("device", device), ("dtype", dtype), ("mask", mask), ("mode", mode)):
        at = at * len(FAST.OPTIONS[name]) + list(FAST.OPTIONS[name]).index(value)
    answer, notes, *sets = (
        read(table["patterns"][i], d, fast_number) for i in table["situations"][table["series"][at]]
    )
    chosen, pads, others = table["answers"][answer]
    backend, width = table["names"][chosen], -(-d // 8) * 8 if pads else d

    def fill(text: str) -> str:
        for mark, value in (("d", d), ("k", width), ("t", dtype), ("c", FAST.capability(device)), ("b", backend)):
            text = text.replace(f"{{{mark}}}", str(value))
        return text

    refusals = tuple(
        (table["names"][i], fill(table["texts"][text]), tuple(table["sources"][source]))
        for i in others
        for text, source, _, _ in (table["refusals"][j] for j in table["sets"][sets[i]])
    )
    return backend, width, refusals, tuple(fill(table["texts"][i]) for i in table["notes"][notes])


def expected(d: int, torch: str, device: str, dtype: str, mask: str, mode: str) -> tuple:
    choice = choose(FAST.call(d, torch, device, dtype, mask, mode))
    refusals = tuple(
        (
            one.backend,
            one.reason,
            tuple(FAST.linked(one.source.split("; ")[0] if one.rule == "ranked" else one.source)),
        )
        for one in choice.refusals
    )
    return choice.backend, choice.d_kernel, refusals, choice.notes


def situations() -> list[tuple]:
    return list(product(*(FAST.OPTIONS[name] for name in ("torch", "device", "dtype", "mask", "mode"))))


def test_every_situation_is_answered_as_choose_answers_at_every_size():
    """All 1,458 situations; every size from 1 to 330 for one torch version of each kind, and 16 sizes for the rest."""
    rng = random.Random(8)
    checked = 0
    for torch, device, dtype, mask, mode in situations():
        whole = (torch, dtype) in {("2.15.0", "bf16"), ("2.13.0", "fp16"), ("2.8.0", "fp32")} and mode != "inference"
        sizes = range(1, 331) if whole else [*rng.sample(range(1, 331), 8), 1, 256, 257, 264, 384, 576, 5000, 16384]
        for d in sizes:
            where = (d, torch, device, dtype, mask, mode)
            assert told(*where) == expected(*where), where
            checked += 1
    assert checked > 40_000


def test_no_mark_is_left_in_what_the_page_fills():
    for where in situations()[::7]:
        for d in (64, 100, 264):
            _, _, refusals, notes = told(d, *where)
            for text in (*(reason for _, reason, _ in refusals), *notes):
                assert "{" not in text, text


def test_a_float_mask_and_the_number_of_heads_change_no_answer():
    """The panel says "a mask" and asks with 4 heads, whatever its slider says."""
    for torch, device, dtype in product(backends.TORCH_VERSIONS, backends.DEVICES, FAST.DTYPES):
        for d in (64, 80, 100, 200, 264):
            for mode in FAST.MODES:
                own = {"torch": torch, "device": device, "dtype": dtype, **FAST.MODES[mode][0]}
                boolean, other = (choose(SdpaCall(d, mask=mask, **own)) for mask in ("bool", "float"))
                assert (boolean.backend, boolean.d_kernel) == (other.backend, other.d_kernel)
                assert choose(SdpaCall(d, n_heads=16, **own)).backend == choose(SdpaCall(d, **own)).backend


def test_the_evidence_is_the_table_where_the_selector_was_asked():
    table = tables()
    for at, where in enumerate(situations()):
        for d in (1, 80, 320, 321, 384, 576, 577):
            asked = table["checked"][at] == "1" and any(first <= d <= last for first, last in table["sizes"])
            assert asked == (choose(FAST.call(d, *where)).evidence == "table"), (d, where)


def width_of(kernel: dict, d: int, torch: str, device: str = "sm80") -> int | None:
    first, last = kernel.get("not_taken", {}).get(str(list(FAST.DEVICES).index(device)), (0, 0))
    if first <= d <= last:
        return None
    if "every" in kernel:
        return -(-d // kernel["every"]) * kernel["every"] if d <= kernel["most"] else None
    lists = kernel["lists"]
    steps = lists[list(backends.TORCH_VERSIONS).index(torch)] if len(lists) > 1 else lists[0]
    return next((width for width in steps if width >= d), None)


def test_the_widths_are_those_of_backends_at_every_size():
    for kernel in tables()["widths"]:
        for torch in backends.TORCH_VERSIONS if kernel["name"] == "FA2" else backends.TORCH_VERSIONS[-1:]:
            for d in [*range(1, 1100), 2048, 2049, 8191, 16384]:
                assert width_of(kernel, d, torch) == backends.widths(d, torch)[kernel["name"]]["width"], (
                    kernel["name"],
                    d,
                )
    assert [kernel["name"] for kernel in tables()["widths"]] == list(backends.widths(64))


def test_a_b200_has_the_gaps_of_flashattention_4_that_backends_tells_in_words():
    assert "on sm100 only up to 128, or 256" in backends.widths(64)["FA4"]["what"]
    for kernel in tables()["widths"]:
        for device in FAST.DEVICES:
            for d in range(1, 300):
                width = FAST.width_on(kernel["name"], d, "2.15.0", device)
                assert width_of(kernel, d, "2.15.0", device) == width
                gap = (kernel["name"], device) == ("FA4", "sm100") and 128 < d != 256
                assert width == (None if gap else backends.widths(d)[kernel["name"]]["width"]), (
                    kernel["name"],
                    device,
                    d,
                )
    assert "FlashAttention-4 (× 16): does not take this size" in printed(fast(5120, 32, "sm100"))
    assert "FlashAttention-4 (× 16): 160 wide" in printed(fast(5120, 32, "sm90"))


@pytest.mark.parametrize("make", [mapped, fast], ids=["kernel map", "fast path"])
def test_the_answer_is_not_on_the_screen_before_the_question_is_answered(make):
    """The first state is another than the one that the question sets."""
    view = make().view
    outcome = view.question["outcome"]
    assert {name: getattr(view, name) for name in outcome} != outcome
    if make is fast:
        assert view.d_model // view.num_heads != outcome["d_model"] // outcome["num_heads"]
    else:
        assert view.scenario != outcome["scenario"]


def test_a_preset_names_the_whole_call():
    """Its note is true of that call, and not of whatever was set before."""
    for preset in FAST.PRESETS:
        assert set(preset["state"]) == {"d_model", "num_heads", *FAST.OPTIONS}, preset["name"]
    folklore = next(preset["state"] for preset in FAST.PRESETS if preset["name"] == "ViT-H")
    assert FAST.A100.items() <= folklore.items()


def test_every_source_leads_somewhere_or_says_what_was_run():
    for text, address in tables()["sources"]:
        assert text
        if address:
            assert re.fullmatch(
                r"https://github\.com/pytorch/pytorch/(blob/([0-9a-f]{40}|v[\d.]+)/\S+|issues/\d+)", address
            )
        else:
            assert "run on a CPU" in text or "wheel" in text


# ---- fast path: what it says --------------------------------------------------------------------


def test_the_question_about_80_is_true():
    asked = FAST.opening_question()
    choice = choose(SdpaCall(80, torch=backends.TORCH_VERSIONS[-1], device="sm80", dtype="bf16"))
    assert (choice.backend, choice.bucket) == ("FLASH", 96)
    right = [option for option in asked["options"] if option["right"]]
    assert [option["label"] for option in right] == ["FlashAttention, in its 96-wide kernel"]
    assert "83\N{NO-BREAK SPACE}% of its columns are useful" in right[0]["why"]
    assert len({option["why"] for option in asked["options"]}) == 4
    state = {**asked["outcome"]}
    assert state.pop("d_model") / state.pop("num_heads") == 80
    assert {name: list(FAST.OPTIONS[name])[i] for name, i in state.items()} == {
        "device": "sm80", "torch": backends.TORCH_VERSIONS[-1], "dtype": "bf16", "mask": "none", "mode": "inference",
    }  # fmt: skip


def test_presets_are_the_published_models_and_the_cases_they_claim(models):
    published = {"BERT-base": "BERT-Base", "ViT-H": "ViT-H/14", "GPT-NeoX-20B": "GPT-NeoX-20B", "GPT-J-6B": "GPT-J-6B"}
    for preset in FAST.PRESETS:
        state = preset["state"]
        assert all(
            name in FAST.OPTIONS and value in FAST.OPTIONS[name]
            for name, value in state.items()
            if isinstance(value, str)
        )
        if "d_model" in state:
            assert state["d_model"] % state["num_heads"] == 0
            assert state["d_model"] <= FAST.MAX_D_MODEL
        if row := models.get(published.pop(preset["name"], "")):
            assert (state["d_model"], state["num_heads"]) == (int(row["d_model"]), int(row["n_heads"]))
            assert f"{row['n_heads']} heads of {row['d_head']}" in preset["note"]
            assert f"({row['year']})" in preset["note"]
    assert published == {}
    by_name = {preset["name"]: preset for preset in FAST.PRESETS}
    d_head = {
        name: p["state"]["d_model"] // p["state"]["num_heads"] for name, p in by_name.items() if "d_model" in p["state"]
    }
    assert d_head["d_head = 132"] == 132
    assert d_head["SigLIP"] == 72
    assert d_head["open_llama_3b"] == d_head["100 and a mask"] == 100
    assert choose(SdpaCall(100, mask="bool")).backend == "MATH"
    assert choose(SdpaCall(64, device="sm75", dtype="bf16")).backend == "MATH"
    assert choose(SdpaCall(64, device="sm75", dtype="fp16")).backend == "EFFICIENT"
    assert d_head["160, before and after 2.11"] == 160
    assert [choose(SdpaCall(160, torch=torch)).bucket for torch in ("2.10.0", "2.11.0")] == [160, 192]
    assert choose(SdpaCall(96)).bucket == 96
    assert choose(SdpaCall(256)).bucket == 256


# ---- both panels: controls, refusals, the printed twin, weight --------------------------------


def test_controls_are_joined_to_the_view_and_named(monkeypatch):
    links = []
    monkeypatch.setattr(ipywidgets, "jslink", lambda one, other: links.append((*one, *other)))
    panel = mapped("2.13.0", "fp16", "gqa_mask", 136, "2.14.1")
    assert links == [
        *((getattr(panel, name), "index", panel.view, name) for name in ("torch", "dtype", "scenario", "compare")),
        (panel.d_head, "value", panel.view, "d_head"),
    ]
    values = [getattr(panel, name).value for name in ("torch", "dtype", "scenario", "compare", "d_head")]
    assert values == ["2.13.0", "fp16", "gqa_mask", "2.14.1", 136]
    assert (panel.d_head.min, panel.d_head.max) == (1, 320)
    links.clear()
    panel = fast(6144, 64, "sm90", "2.11.0", "fp16", "mask", "training")
    assert links == [
        *((getattr(panel, name), "value", panel.view, name) for name in ("d_model", "num_heads")),
        *((getattr(panel, name), "index", panel.view, name) for name in ("device", "torch", "dtype", "mask", "mode")),
    ]
    values = [
        getattr(panel, name).value for name in ("d_model", "num_heads", "device", "torch", "dtype", "mask", "mode")
    ]
    assert values == [6144, 64, "sm90", "2.11.0", "fp16", "mask", "training"]
    for name, (low, high) in panel.view.limits.items():
        assert low <= getattr(panel.view, name) <= high
        if name in FAST.OPTIONS:
            assert high == len(FAST.OPTIONS[name]) - 1 == len(getattr(panel, name).options) - 1


@pytest.mark.parametrize(
    ("start", "words"),
    [
        ({"torch": "2.4.1"}, "torch = '2.4.1' is not on the panel: give one of 2.8.0"),
        ({"torch": 2.15}, "torch = 2.15 is not on the panel"),
        ({"dtype": "fp64"}, "dtype = 'fp64' is not on the panel: give one of fp16, bf16, fp32"),
        ({"scenario": "everything"}, "scenario = 'everything' is not on the panel: give one of infer"),
        ({"compare": "fp16"}, "compare = 'fp16' is not on the panel: give one of nothing, 2.8.0"),
        ({"compare": ["2.8.0"]}, "compare = \\['2.8.0'\\] is not on the panel"),
        ({"d_head": 0}, "d_head = 0: the slider takes whole numbers from 1 to 320"),
        ({"d_head": 10**9}, "d_head = 1000000000: the slider takes"),
        ({"d_head": 80.0}, "d_head = 80.0: the slider takes"),
        ({"d_head": True}, "d_head = True: the slider takes"),
    ],
)
def test_a_map_that_the_panel_does_not_have_is_refused(start, words):
    with pytest.raises(ValueError, match=words):
        mapped(**start)


@pytest.mark.parametrize(
    ("start", "words"),
    [
        ({"d_model": 768, "num_heads": 13}, "768 = 13 × 59 \\+ 1"),
        ({"d_model": 768, "num_heads": 0}, "n_heads = 0 is too small"),
        ({"d_model": 32768, "num_heads": 16}, "d_model = 32768 is beyond the panel's slider: give at most 16384"),
        ({"d_model": 512, "num_heads": 512}, "num_heads = 512 is beyond the panel's slider: give at most 256"),
        ({"device": "A100"}, "device = 'A100' is not on the panel: give one of sm75"),
        ({"mask": None}, "mask = None is not on the panel: give one of none, is_causal, mask"),
        ({"mode": "eval"}, "mode = 'eval' is not on the panel: give one of inference, training, dropout"),
        ({"torch": ["2.15.0"]}, "torch = \\['2.15.0'\\] is not on the panel"),
    ],
)
def test_a_call_that_the_panel_does_not_have_is_refused(start, words):
    with pytest.raises(ValueError, match=words):
        fast(**start)


def test_numbers_of_other_libraries_are_numbers():
    assert type(mapped(d_head=np.int64(96)).view.d_head) is int
    assert type(fast(np.int64(768), np.int32(12)).view.d_model) is int


def printed(panel) -> str:
    Tags(panel._twin)
    return unescape(re.sub(r"<[^>]+>", " ", panel._twin))


def test_the_printed_map_tells_the_default_state():
    panel = mapped(scenario="train", d_head=200)
    text = printed(panel)
    assert "d_head = 200: FLASH on A100, H100 and B200; EFFICIENT on RTX 30, RTX 40 and RTX 50; MATH on T4." in text
    assert "How often does PyTorch change the kernel?" in text
    assert panel._twin.count('role="img"') == len(MAP.CARDS)
    words = unescape("".join(re.findall(r'aria-label="([^"]*)"', panel._twin)))
    assert (
        "multiples of 8: FLASH, EFFICIENT from 200, FLASH from 232, EFFICIENT from 264; "
        "other multiples of 4: FLASH, MATH from 196, FLASH from 228, MATH from 260; other sizes"
    ) not in words, "lanes that change together are said once"
    assert "other sizes: FLASH, MATH from 193, FLASH from 225, MATH from 257" in words
    assert "other multiples of 4: EFFICIENT; other sizes: MATH" in mapped(dtype="fp32")._twin
    assert "No kernel ran" in text
    assert "MATH" in text


def test_the_printed_path_tells_the_default_state():
    panel = fast()
    text = printed(panel)
    for words in (
        "FLASH is selected  for d_head = 768 / 12 = 64 in a kernel compiled for 64: 100\N{NO-BREAK SPACE}% of its columns are useful",
        "torch 2.15.0, A100 (sm80), bf16, no mask, inference",
        "FlexAttention (2ⁿ): 64 wide, 100\N{NO-BREAK SPACE}% useful",
        "No kernel ran",
        "Which kernel runs?",
    ):
        assert words in text, words
    for refusal in choose(SdpaCall(64)).refusals:
        assert refusal.reason in text
    wide = printed(fast(1280, 16))
    assert (
        "d_head = 1280 / 16 = 80 in a kernel compiled for 96: 83\N{NO-BREAK SPACE}% of its columns are useful" in wide
    )
    assert "FlexAttention (2ⁿ): 128 wide, 62\N{NO-BREAK SPACE}% useful" in wide
    masked = printed(fast(3200, 32, mask="mask"))
    assert "MATH is selected" in masked
    assert "A mask was given" in masked
    assert "does not take this size" in printed(fast(16384, 32))


def test_no_speed_is_promised():
    for text in (MAP.EVIDENCE, *FAST.EVIDENCE.values()):
        assert "No kernel ran" in text
    assert f"asked on {MAP.ASKED}" in MAP.EVIDENCE
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", MAP.ASKED)
    everything = json.dumps([MAP.PRESETS, FAST.PRESETS, FAST.UNPADDED, MAP.KERNELS], ensure_ascii=False)
    assert not re.search(r"TFLOP|times faster|times slower|faster than", everything)


@pytest.mark.parametrize("name", ["kernel_map", "fast_path"])
def test_a_view_is_one_module_with_no_import_left(name):
    text = kit.esm(name)
    assert not re.search(r"^\s*import\s", text, flags=re.M)
    assert text.count("export default") == 1


def test_the_two_panels_weigh_less_than_a_picture():
    size = sum(
        len(json.dumps({key: value for key, value in panel.view.get_state().items() if not key.startswith("_")}))
        for panel in (mapped(), fast())
    )
    assert size < 60_000
