"""Panel *fast path* in a real browser: keys, prediction, address, misfits, and 500 calls against Python."""

from __future__ import annotations

import json
import random
import re
from importlib import import_module

import pytest
from conftest import at_rest, drawn
from splitheads import backends
from splitheads.palette import BACKENDS
from splitheads.partition import legal_head_counts, nearest_head_counts, nearest_widths

FAST = import_module("splitheads.panels.fast_path")
PANEL = "[data-panel=fastpath]"
CHAPTER = "book/fast-path.html"
LATEST = backends.TORCH_VERSIONS[-1]
DEFAULT = "FLASH is selected for d_head = 64: its kernel is compiled for exactly 64 columns, nothing is padding. "
ASKED = (
    "FLASH is selected for d_head = 80: its kernel is compiled for 96 columns, 83\N{NO-BREAK SPACE}% of them useful. "
)


@pytest.fixture
def panel(visit, address):
    return visit().open(f"{address}/{CHAPTER}").locator(PANEL)


def status(panel) -> str:
    return panel.locator("p[role=status]").text_content()


def choose(panel, name: str, words: str) -> None:
    panel.get_by_label(name, exact=True).select_option(label=words)


@pytest.mark.parametrize("scheme", ["http", "file"])
def test_sliders_and_selects_move_the_answer(visit, address, site, scheme):
    seen = visit()
    panel = seen.open(f"{address if scheme == 'http' else site.as_uri()}/{CHAPTER}").locator(PANEL)
    assert status(panel) == f"{DEFAULT}torch {LATEST}, A100 (sm80), bf16, no mask, inference."
    panel.get_by_role("slider", name="num_heads").press("ArrowRight")
    assert status(panel).startswith(
        "FLASH is selected for d_head = 59, the whole part of 768 / 13: its kernel is compiled for 64 columns, 92"
    )
    panel.get_by_role("slider", name="num_heads").press("ArrowLeft")
    choose(panel, "device", "T4")
    assert status(panel).startswith("MATH is selected for d_head = 64: the fallback")
    choose(panel, "dtype", "fp16")
    assert status(panel).startswith("EFFICIENT is selected for d_head = 64")
    panel.get_by_label("device", exact=True).focus()
    for _ in range(4):
        panel.page.keyboard.press("ArrowDown")
    assert status(panel).startswith("CUDNN is selected for d_head = 64: cuDNN builds a kernel for the call")
    assert "H100 (sm90)" in status(panel)
    assert seen.complaints == []
    assert seen.foreign == []


def test_a_prediction_is_locked_and_sets_the_call(panel):
    panel.locator("[data-preset='bf16 on a T4']").click()
    panel.get_by_role("button", name="The slow path: 80 is not 64 or 128").click()
    asked = panel.locator(".sh-question")
    assert asked.get_attribute("data-locked") == "wrong"
    assert "it is “FlashAttention, in its 96-wide kernel”." in asked.inner_text()
    assert status(panel).startswith(ASKED)


def test_presets_are_set_and_explained(panel):
    for preset in FAST.PRESETS:
        panel.locator(f"[data-preset='{preset['name']}']").click()
        assert panel.locator("[data-preset][aria-pressed=true]").all_inner_texts() == [preset["name"]]
        assert panel.locator(".sh-note").inner_text() == preset["note"]
        state = preset["state"]
        if "d_model" in state:
            assert f"d_head = {state['d_model'] // state['num_heads']}:" in status(panel)
        for name, value in state.items():
            if name in FAST.OPTIONS:
                assert FAST.OPTIONS[name][value] in status(panel)


def test_every_refusal_is_told_with_its_source(panel):
    panel.locator("[data-preset='100 and a mask']").click()
    assert status(panel).startswith("MATH is selected for d_head = 100: the fallback, which stores all T × T scores.")
    choice = backends.choose(FAST.call(100, LATEST, "sm80", "bf16", "mask", "inference"))
    items = panel.locator(".sh-reasons li").all()
    assert [item.get_attribute("data-backend") for item in items] == [
        "MATH", *dict.fromkeys(one.backend for one in choice.refusals)
    ]  # fmt: skip
    for refusal in choice.refusals:
        assert refusal.reason in panel.locator(f".sh-reasons [data-backend={refusal.backend}]").inner_text()
    links = panel.locator(".sh-reasons a").evaluate_all("(all) => all.map((a) => a.href)")
    assert len(links) >= 3
    assert all(link.startswith("https://github.com/pytorch/pytorch/") for link in links)
    assert [item.inner_text()[0] for item in items[:3]] == ["✓", "✗", "✗"]


def test_a_split_that_fails_is_said_and_the_rest_goes_on(panel):
    panel.page.evaluate("location.hash = '#fastpath?d_model=768&num_heads=13'")
    panel.page.wait_for_function("document.querySelector('[data-panel=fastpath] .sh-view').dataset.dHead === '59'")
    assert panel.locator(".sh-error").inner_text() == (
        "No whole d_head: 768 = 13 × 59 + 1. What follows is for d_head = 59, with 1 column left over."
    )
    assert panel.locator("[data-move]").all_inner_texts() == [
        "num_heads = 12",
        "num_heads = 16",
        "d_model = 767",
        "d_model = 780",
    ]
    assert status(panel).startswith(
        "FLASH is selected for d_head = 59, the whole part of 768 / 13: its kernel is compiled for 64 columns, 92"
    )
    panel.get_by_role("button", name="num_heads = 12").press("Enter")
    assert status(panel).startswith("FLASH is selected for d_head = 64: its kernel is compiled for exactly 64 columns")
    assert not panel.locator(".sh-error").is_visible()
    assert panel.page.evaluate("document.activeElement.closest('[data-panel]')?.dataset.panel") == "fastpath"
    panel.page.evaluate("location.hash = '#fastpath?d_model=2&num_heads=8'")
    panel.page.wait_for_function("document.querySelector('[data-panel=fastpath] .sh-view').dataset.dHead === '0'")
    assert status(panel) == "No d_head, no kernel: 2 / 8 is less than one column."
    assert not panel.locator(".sh-bars").is_visible()


def test_the_bar_shows_useful_columns_zeros_and_the_rest(panel):
    panel.locator("[data-preset=open_llama_3b]").click()
    row = panel.locator(".sh-bar[data-runs]")
    assert row.locator(".sh-bar-told").inner_text().replace("\N{NO-BREAK SPACE}", " ") == "100 of 128: 78 %"
    wide = {
        kind: row.locator(f".sh-{kind}").evaluate("(e) => parseFloat(e.getAttribute('width'))")
        for kind in ("useful", "zeros", "rest")
    }
    assert wide["useful"] / wide["rest"] == pytest.approx(100 / 24)
    assert wide["zeros"] / wide["rest"] == pytest.approx(4 / 24)
    fill = row.locator(".sh-useful").evaluate("(e) => getComputedStyle(e).fill")
    assert fill == f"rgb({', '.join(str(int(BACKENDS['FLASH'][i : i + 2], 16)) for i in (1, 3, 5))})"
    assert row.locator(".sh-zeros").evaluate("(e) => getComputedStyle(e).fill").startswith('url("#')
    assert row.locator(".sh-rest").evaluate("(e) => getComputedStyle(e).strokeDasharray") != "none"


def test_the_state_lives_in_the_address(visit, address):
    url = f"{address}/{CHAPTER}"
    page = visit().open(f"{url}#fastpath?d_model=6144&num_heads=64&device=4&torch=5&dtype=1&mask=0&mode=1")
    panel = page.locator(PANEL)
    assert status(panel).startswith("CUDNN is selected for d_head = 96")
    assert panel.get_by_label("mode", exact=True).evaluate("(e) => e.selectedOptions[0].text") == "training"
    panel.get_by_role("slider", name="num_heads").press("ArrowRight")
    page.wait_for_url(f"{url}#fastpath?d_model=6144&num_heads=65&device=4&torch=5&dtype=1&mask=0&mode=1")


@pytest.mark.parametrize(
    "fragment",
    [
        "fastpath?d_model=999999999&num_heads=0&device=99&torch=99&dtype=9&mask=9&mode=9",
        "fastpath?d_model=-3&device=x",
        "fastpath?%ZZ",
    ],
)
def test_a_broken_address_leaves_a_sound_state(visit, address, fragment):
    seen = visit()
    panel = seen.open(f"{address}/{CHAPTER}#{fragment}").locator(PANEL)
    assert re.match(r"\w+ is selected for d_head = [\d,]+(, the whole part of .+)?: .+\.$|No d_head", status(panel))
    assert seen.complaints == []


def test_an_address_names_no_place_that_a_select_does_not_have(visit, address):
    """A slider's number is brought within its bounds, another card than the asked one is not shown for it."""
    panel = visit().open(f"{address}/{CHAPTER}#fastpath?num_heads=999&device=99&torch=2&mode=7").locator(PANEL)
    told = {name: panel.get_by_label(name, exact=True).evaluate("(e) => e.selectedIndex") for name in FAST.OPTIONS}
    assert told == {**FAST.state(**FAST.A100), "torch": 2}
    assert panel.get_by_role("slider", name="num_heads").get_attribute("aria-valuenow") == "256"


def test_an_address_that_was_escaped_on_its_way_arrives(visit, address):
    panel = visit().open(f"{address}/{CHAPTER}#fastpath%3Fd_model%3D1280%26num_heads%3d16%26device=0").locator(PANEL)
    assert status(panel).startswith("MATH is selected for d_head = 80")


WALK = """async (states) => {
    const root = document.querySelector("[data-panel=fastpath]");
    const view = root.querySelector(".sh-view");
    const told = [];
    for (const state of states) {
        const before = location.hash;
        location.hash = `#fastpath?${new URLSearchParams(state)}`;
        if (location.hash !== before) await new Promise((r) => addEventListener("hashchange", r, { once: true }));
        told.push({ ...view.dataset,
            status: root.querySelector("p[role=status]").textContent,
            error: root.querySelector(".sh-error").hidden ? "" : root.querySelector(".sh-error").textContent,
            moves: [...root.querySelectorAll("[data-move]")].map((b) => JSON.parse(b.dataset.move)),
            reasons: [...root.querySelectorAll(".sh-reasons li")].flatMap((li) =>
                [...li.querySelectorAll(".sh-why")].map((why) => [li.dataset.backend, why.textContent])),
            bars: [...root.querySelectorAll(".sh-bar")].map((bar) => [bar.dataset.label, bar.dataset.width, bar.querySelector(".sh-bar-told").textContent]),
            notes: root.querySelector(".sh-notes").textContent,
            proof: view.dataset.evidence && root.innerText.includes("by rule") });
    }
    return JSON.stringify(told);
}"""


def calls() -> list[dict[str, int]]:
    """500 calls: real sizes and random ones, that divide and that do not, over every select."""
    rng = random.Random(1280)
    sizes = [(p["state"]["d_model"], p["state"]["num_heads"]) for p in FAST.PRESETS if "d_model" in p["state"]]
    sizes += [(64 * d, 64) for d in (1, 4, 8, 65, 68, 128, 129, 136, 192, 193, 196, 200, 224, 225, 228, 248, 256)]
    sizes += [(d, 1) for d in (257, 260, 264, 320, 321, 384, 512, 576, 16384)] + [
        (2, 8),
        (768, 13),
        (16383, 255),
        (16381, 256),
    ]
    found = []
    for i in range(500):
        if i % 5 < 3:
            d_model, num_heads = rng.choice(sizes)
        elif i % 5 == 3:
            d_model = 8 * rng.randint(8, 2048)
            num_heads = rng.choice([h for h in legal_head_counts(d_model, 256) if d_model / h <= 400] or [1])
        else:
            d_model, num_heads = rng.randint(1, 16384), rng.randint(1, 256)
        found.append(
            {
                "d_model": d_model,
                "num_heads": num_heads,
                **{name: rng.randrange(len(o)) for name, o in FAST.OPTIONS.items()},
            }
        )
    return found


def test_the_page_and_python_agree_on_500_calls(panel):
    walked = calls()
    backends_seen, misfits, evidence = set(), 0, set()
    for state, told in zip(walked, json.loads(panel.page.evaluate(WALK, walked)), strict=True):
        d_model, num_heads = state["d_model"], state["num_heads"]
        d, left = divmod(d_model, num_heads)
        chosen = {name: list(options)[state[name]] for name, options in FAST.OPTIONS.items()}
        misfits += left > 0
        assert (told["error"] != "") == (left > 0), state
        if left:
            assert [m["num_heads"] for m in told["moves"] if "num_heads" in m] == [
                n for n in nearest_head_counts(d_model, num_heads) if n <= 256
            ]
            assert [m["d_model"] for m in told["moves"] if "d_model" in m] == [
                w for w in nearest_widths(d_model, num_heads) if w <= 16384
            ]
        else:
            assert told["moves"] == []
        if d == 0:
            assert told["backend"] == ""
            continue
        choice = backends.choose(FAST.call(d, **chosen))
        backends_seen.add(choice.backend)
        assert told["dHead"] == str(d)
        assert (told["backend"], told["dKernel"]) == (choice.backend, str(choice.d_kernel)), state
        assert told["bucket"] == str(choice.bucket or ""), state
        assert told["evidence"] == choice.evidence, state
        assert told["proof"] == (choice.evidence == "rules"), state
        evidence.add(choice.evidence)
        assert told["reasons"] == [[one.backend, one.reason] for one in choice.refusals], state
        assert told["notes"] == " ".join(choice.notes), state
        part = f", the whole part of {d_model:,} / {num_heads}" if left else ""
        assert told["status"].startswith(f"{choice.backend} is selected for d_head = {d:,}{part}: "), state
        if choice.bucket and choice.bucket != d:
            assert f"{FAST.percent(d, choice.bucket)} of them useful" in told["status"], state
        for name, (label, width, words) in zip(FAST.LABELS, told["bars"][-5:], strict=True):
            want = FAST.width_on(name, d, chosen["torch"], chosen["device"])
            assert width == str(want or ""), (state, label)
            assert words == (
                "does not take it" if want is None else f"{d:,}: exact" if want == d and "exact" in words
                else f"{d:,} of {want:,}: {FAST.percent(d, want)}" if want != d else f"{want:,}: exact"
            ), (state, label)  # fmt: skip
    assert backends_seen == set(BACKENDS)
    assert evidence == {"table", "rules"}
    assert misfits > 60


def test_the_heads_slider_does_not_push_the_text_about(panel):
    """Once the longest answers on the way have been seen, all take the same room."""
    slider = panel.get_by_role("slider", name="num_heads")
    heights = []
    at_rest(panel.page)
    for _ in range(2):
        heights.clear()
        for key in ("ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft", "ArrowLeft", "ArrowLeft"):
            slider.press(key)
            drawn(panel.page)
            heights.append(panel.bounding_box()["height"])
    assert max(heights) - min(heights) < 0.5, heights


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_chosen_by_the_reader_leave_the_bars_readable(visit, address, scheme):
    page = visit(forced_colors="active", color_scheme=scheme).open(
        f"{address}/{CHAPTER}#fastpath?d_model=3200&num_heads=32"
    )
    row = page.locator(f"{PANEL} .sh-bar[data-runs]")
    red, green, blue = (int(BACKENDS["FLASH"][i : i + 2], 16) for i in (1, 3, 5))
    assert row.locator(".sh-useful").evaluate("(e) => getComputedStyle(e).fill") == f"rgb({red}, {green}, {blue})"
    ink = "rgb(0, 0, 0)" if scheme == "light" else "rgb(255, 255, 255)"
    for kind in ("useful", "zeros", "rest"):
        assert row.locator(f".sh-{kind}").evaluate("(e) => getComputedStyle(e).stroke") == ink


def test_a_phone_has_it_all_and_targets_for_a_thumb(visit, address):
    page = visit(width=390, height=844, has_touch=True, is_mobile=True).open(
        f"{address}/{CHAPTER}#fastpath?d_model=3201&num_heads=32&device=0"
    )
    panel = page.locator(PANEL)
    assert panel.locator("[data-move]").count() >= 3
    for target in panel.locator("button, select").all():
        box = target.bounding_box()
        assert box["height"] >= 24, target
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
    assert page.evaluate("document.scrollingElement.scrollWidth") == 390


def test_paper_keeps_the_bars_and_drops_what_can_only_be_pressed(panel):
    panel.page.emulate_media(media="print")
    assert panel.locator(".sh-bar[data-runs]").is_visible()
    assert panel.locator(".sh-reasons li").first.is_visible()
    assert panel.locator(".sh-chips:visible").count() == 0
