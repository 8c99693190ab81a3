"""Panel *kernel map* in a real browser: keys, taps, prediction, address, colours, and 400 series against Python."""

from __future__ import annotations

import json
import random
import re
from functools import cache
from importlib import import_module

import pytest
from conftest import at_rest, drawn, unpainted
from splitheads import backends
from splitheads.palette import BACKENDS

MAP = import_module("splitheads.panels.kernel_map")
PANEL = "[data-panel=kernels]"
CHAPTER = "book/fast-path.html"
LATEST = backends.TORCH_VERSIONS[-1]
CARDS = list(MAP.CARDS)


@pytest.fixture
def panel(visit, address):
    return visit().open(f"{address}/{CHAPTER}").locator(PANEL)


def status(panel) -> str:
    return panel.locator("p[role=status]").inner_text()


def choose(panel, name: str, words: str) -> None:
    panel.get_by_label(name, exact=True).select_option(label=words)


def now(panel) -> int:
    return int(panel.get_by_role("slider", name="d_head").get_attribute("aria-valuenow"))


@pytest.mark.parametrize("scheme", ["http", "file"])
def test_the_marker_follows_the_arrow_keys(visit, address, site, scheme):
    seen = visit()
    panel = seen.open(f"{address if scheme == 'http' else site.as_uri()}/{CHAPTER}").locator(PANEL)
    assert status(panel) == MAP.status(LATEST, "bf16", "infer", 80)
    slider = panel.get_by_role("slider", name="d_head")
    slider.press("ArrowRight")
    assert status(panel) == MAP.status(LATEST, "bf16", "infer", 81)
    slider.press("End")
    assert status(panel) == MAP.status(LATEST, "bf16", "infer", 320)
    assert seen.complaints == []
    assert seen.foreign == []


def test_every_select_works_from_the_keyboard(panel):
    select = panel.get_by_label("dtype", exact=True)
    select.focus()
    panel.page.keyboard.press("ArrowDown")
    assert status(panel) == MAP.status(LATEST, "fp32", "infer", 80)
    panel.get_by_label("torch", exact=True).focus()
    panel.page.keyboard.press("ArrowUp")
    assert status(panel) == MAP.status(backends.TORCH_VERSIONS[-2], "fp32", "infer", 80)
    choose(panel, "scenario", "GQA, mask")
    assert status(panel) == MAP.status(backends.TORCH_VERSIONS[-2], "fp32", "gqa_mask", 80)


def test_a_tap_moves_the_marker_to_a_size_of_that_lane(panel):
    strip = panel.locator("[data-card=sm89] svg.sh-strip")
    strip.scroll_into_view_if_needed()
    box = strip.bounding_box()
    lanes = {lane: strip.locator(f"rect[data-lane='{lane}']").first.bounding_box() for lane in (0, 2)}
    for lane, where in lanes.items():
        for share in (0.3, 0.62, 0.9):
            panel.page.mouse.click(box["x"] + 40 + (box["width"] - 42) * share, where["y"] + where["height"] / 2)
            assert (now(panel) % 8 == 0) == (lane == 0), (lane, share, now(panel))
            assert abs(now(panel) - 320 * share) <= 9
    ring = strip.locator(".sh-marker rect").bounding_box()
    assert abs(ring["y"] - lanes[2]["y"]) < 4, "the ring stands in the lane of the size"


def test_pointing_reads_one_size_and_a_name_reads_its_strip(panel):
    choose(panel, "scenario", "training")
    reading = panel.locator(".sh-reading")
    strip = panel.locator("[data-card=sm89] svg.sh-strip")
    strip.scroll_into_view_if_needed()
    run = strip.locator("rect[data-kernel=E][data-first='200']").bounding_box()
    panel.page.mouse.move(run["x"] + 3, run["y"] + run["height"] / 2)
    assert reading.inner_text() == "RTX 40, d_head = 200: EFFICIENT."
    panel.page.mouse.move(0, 0)
    assert reading.inner_text().startswith("Point at a strip")
    panel.get_by_role("button", name="RTX 40").focus()
    assert reading.inner_text() == (
        "RTX 40 (Ada: RTX 40, L4, L40S), multiples of 8: FLASH to 192, EFFICIENT from 200 to 224, FLASH from 232 to 256, "
        "EFFICIENT from 264; other sizes: FLASH to 192, MATH from 193 to 224, FLASH from 225 to 256, MATH from 257."
    )
    assert "EFFICIENT from 200 to 224" in strip.get_attribute("aria-label")


def test_findings_are_set_and_explained(panel):
    for preset in MAP.PRESETS:
        chip = panel.locator(f"[data-preset='{preset['name']}']")
        chip.click()
        assert panel.locator("[data-preset][aria-pressed=true]").all_inner_texts() == [preset["name"]]
        assert now(panel) == preset["state"]["d_head"]
        assert preset["note"] in panel.inner_text()
        assert (
            panel.get_by_label("compare", exact=True).evaluate("(e) => e.selectedIndex") == preset["state"]["compare"]
        )


def test_a_prediction_is_locked_and_sets_the_zigzag(panel):
    panel.get_by_role("button", name="Once").click()
    asked = panel.locator(".sh-question")
    assert asked.get_attribute("data-locked") == "wrong"
    assert "You said “Once”; it is “10 times”." in asked.inner_text()
    assert status(panel) == MAP.status(LATEST, "bf16", "train", 200)
    assert "EFFICIENT on RTX 30, RTX 40 and RTX 50" in status(panel)


def test_a_comparison_marks_what_differs_and_nothing_else(panel):
    panel.locator("[data-preset='H100 hole']").click()
    assert "With torch 2.13.0 the kernel differs at 15 of 320 sizes on H100, 1 on B200, nowhere else." in status(panel)
    differs = {card: panel.locator(f"[data-card={card}] rect[data-differs]").count() for card in CARDS}
    assert [card for card, count in differs.items() if count] == ["sm90", "sm100"]
    hole = panel.locator("[data-card=sm90] rect[data-differs]")
    assert hole.get_attribute("data-differs") == "C"
    assert "2.13.0: CUDNN" in panel.locator("[data-card=sm90] .sh-answer").inner_text()
    assert "same" in panel.locator("[data-card=sm80] .sh-answer").inner_text()
    choose(panel, "compare", "torch 2.14.1")
    assert status(panel).endswith(" That is the same version.")
    choose(panel, "compare", "training")
    assert status(panel).endswith(" That is the same scenario.")
    choose(panel, "compare", "torch 2.15.0")
    assert "the same kernel at every size on every card" in status(panel)
    assert panel.locator("rect[data-differs]").count() == 0
    choose(panel, "compare", "nothing")
    assert "With" not in status(panel)


def test_the_state_lives_in_the_address(visit, address):
    url = f"{address}/{CHAPTER}"
    page = visit().open(f"{url}#kernels?torch=3&dtype=0&scenario=0&compare=0&d_head=100")
    panel = page.locator(PANEL)
    assert status(panel) == MAP.status("2.13.0", "fp16", "infer", 100)
    assert panel.get_by_label("torch", exact=True).evaluate("(e) => e.selectedOptions[0].text") == "2.13.0"
    panel.get_by_role("slider", name="d_head").press("ArrowRight")
    page.wait_for_url(f"{url}#kernels?torch=3&dtype=0&scenario=0&compare=0&d_head=101")
    page = visit(height=500).open(f"{url}#kernels%3Fd_head=64")
    at_rest(page)
    # Who was sent a state sees what comes behind the opening question.
    assert -5 <= page.locator(f"{PANEL} > .sh-question ~ *").first.bounding_box()["y"] < 200


@pytest.mark.parametrize(
    "fragment",
    [
        "kernels?torch=99&dtype=9&scenario=999&compare=500&d_head=80",
        "kernels?d_head=99999",
        "kernels?d_head=-1&torch=x",
        "kernels?%ZZ",
        "kernels?",
    ],
)
def test_a_broken_address_leaves_a_sound_state(visit, address, fragment):
    seen = visit()
    panel = seen.open(f"{address}/{CHAPTER}#{fragment}").locator(PANEL)
    assert re.match(r"d_head = \d+: .+ on .+\. torch [\d.]+, \w+, .+\.", status(panel))
    assert 1 <= now(panel) <= 320
    assert status(panel) == MAP.status(LATEST, "bf16", "infer", now(panel)), "what a select does not have is ignored"
    assert seen.complaints == []


WALK = """async ([name, states]) => {
    const root = document.querySelector(`[data-panel=${name}]`);
    const view = root.querySelector(".sh-view");
    const told = [];
    for (const state of states) {
        const before = location.hash;
        location.hash = `#${name}?${new URLSearchParams(state)}`;
        if (location.hash !== before) await new Promise((r) => addEventListener("hashchange", r, { once: true }));
        told.push({ ...view.dataset, status: root.querySelector("p[role=status]").textContent,
            drawn: [...root.querySelectorAll(".sh-row[data-card]")].map((row) => [...row.querySelectorAll("rect[data-kernel]")]
                .map((r) => `${r.dataset.lane}${r.dataset.kernel}${r.dataset.first}`).join(" ")),
            answers: [...root.querySelectorAll(".sh-answer")].map((a) => a.dataset.kernel) });
    }
    return JSON.stringify(told);
}"""


def test_the_page_and_the_table_agree_on_400_series(panel):
    """400 choices, each at one size, on seven cards: 2,800 series; every fourth with a comparison."""
    rng = random.Random(320)
    scenarios = list(backends.SCENARIOS)
    edges = [1, 8, 64, 65, 80, 100, 128, 129, 136, 192, 193, 200, 224, 225, 248, 256, 257, 264, 320]
    states = []
    for i in range(400):
        states.append(
            {
                "torch": rng.randrange(len(backends.TORCH_VERSIONS)),
                "dtype": rng.randrange(len(MAP.DTYPES)),
                "scenario": rng.randrange(len(scenarios)),
                "compare": 0 if i % 4 else rng.randrange(len(MAP.COMPARE)),
                "d_head": rng.choice(edges) if i % 2 else rng.randint(1, MAP.MAX_D_HEAD),
            }
        )
    pattern = cache(lambda *call: MAP.pattern(MAP.letters(*call)))  # a series comes up more than once
    kernels = set()
    unpainted(panel.page)
    walked = json.loads(panel.page.evaluate(WALK, ["kernels", states]))
    for state, told in zip(states, walked, strict=True):
        torch, dtype = backends.TORCH_VERSIONS[state["torch"]], MAP.DTYPES[state["dtype"]]
        scenario, d = scenarios[state["scenario"]], state["d_head"]

        def chosen(torch: str, scenario: str, dtype: str = dtype, d: int = d) -> list[str]:
            settings = backends.SCENARIOS[scenario].settings
            return [
                backends.from_table(backends.SdpaCall(d, torch=torch, device=card, dtype=dtype, **settings))[0]
                for card in CARDS
            ]

        assert told["answers"] == chosen(torch, scenario), state
        assert told["kernels"] == "".join(name[0] for name in told["answers"])
        assert told["status"].startswith(MAP.status(torch, dtype, scenario, d)), state
        kernels |= set(told["answers"])
        if other := MAP.COMPARE[state["compare"]] if state["compare"] else None:
            pair = (other, scenario) if other in backends.TORCH_VERSIONS else (torch, other)
            assert told["others"] == "".join(name[0] for name in chosen(*pair)), state
        # What is drawn: every run of both lanes (three where a strip treats multiples of 4 apart).
        for card, strip in zip(CARDS, told["drawn"], strict=True):
            lanes = pattern(torch, card, dtype, scenario).split(";")
            want = {f"{lane}{run}" for lane in (0, 2) for run in lanes[lane].split()}
            runs = set(strip.split())
            assert {run for run in runs if run[0] != "1"} == want, (state, card)
            assert {run for run in runs if run[0] == "1"} in (set(), {f"1{run}" for run in lanes[1].split()})
    assert kernels == set(BACKENDS)


def test_multiples_of_4_have_a_lane_where_they_are_treated_apart(panel):
    choose(panel, "scenario", "inference")
    choose(panel, "dtype", "fp32")
    assert panel.locator("[data-card=sm80] .sh-lane").all_text_contents() == ["×8", "×4", "other"]
    choose(panel, "dtype", "fp16")
    assert panel.locator("[data-card=sm80] .sh-lane").all_text_contents() == ["×8", "other"]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_kernel_is_told_by_colour_alone(visit, address, theme):
    panel = visit(theme=theme).open(f"{address}/{CHAPTER}").locator(PANEL)
    fills = {}
    for rect in panel.locator("rect[data-kernel]").all():
        fills.setdefault(rect.get_attribute("data-kernel"), set()).add(rect.get_attribute("fill"))
    assert set(fills) == {"F", "C", "E", "M"}
    for name, colour in BACKENDS.items():
        assert all(fill.startswith("url(#") if name == "MATH" else fill == colour for fill in fills[name[0]]), name
    words = panel.locator("[data-card] .sh-word").all_text_contents()
    assert {"FLASH", "CUDNN", "EFFICIENT", "MATH"} <= set(words)
    assert [word for word in words if word not in {*BACKENDS, *"FCEM"}] == []
    legend = panel.locator(".sh-key dt").all_text_contents()
    assert [text.split() for text in legend] == [[name[0], name] for name in MAP.KERNELS]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_chosen_by_the_reader_leave_the_strips_theirs(visit, address, scheme):
    panel = visit(forced_colors="active", color_scheme=scheme).open(f"{address}/{CHAPTER}").locator(PANEL)
    ink = "rgb(0, 0, 0)" if scheme == "light" else "rgb(255, 255, 255)"
    rect = panel.locator("rect[data-kernel=F]").first
    red, green, blue = (int(BACKENDS["FLASH"][i : i + 2], 16) for i in (1, 3, 5))
    assert rect.evaluate("(e) => getComputedStyle(e).fill") == f"rgb({red}, {green}, {blue})"
    for part in (".sh-tick-name", ".sh-lane", ".sh-here", ".sh-on-hole"):
        assert panel.locator(part).first.evaluate("(e) => getComputedStyle(e).fill") == ink, part
    assert panel.locator(".sh-marker rect").first.evaluate("(e) => getComputedStyle(e).stroke") == ink


def test_a_phone_has_it_all_and_targets_for_a_thumb(visit, address):
    page = visit(width=390, height=844, has_touch=True, is_mobile=True).open(f"{address}/{CHAPTER}")
    panel = page.locator(PANEL)
    for target in panel.locator("button, select").all():
        box = target.bounding_box()
        assert box["height"] >= 24, target
        assert box["width"] >= 24, target
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
    strip = panel.locator("[data-card=sm90] svg.sh-strip")
    assert strip.bounding_box()["width"] > 290
    strip.scroll_into_view_if_needed()
    lane = strip.locator("rect[data-lane='0']").first.bounding_box()
    page.touchscreen.tap(strip.bounding_box()["x"] + 200, lane["y"] + 8)
    assert now(panel) % 8 == 0
    assert now(panel) != 80
    for text in panel.locator("[data-card] svg text").all():
        box, room = text.bounding_box(), strip.bounding_box()
        assert box["x"] >= room["x"] - 1
        assert box["x"] + box["width"] <= room["x"] + room["width"] + 1


def test_what_lies_below_stays_where_it_is_while_the_marker_moves(panel):
    slider = panel.get_by_role("slider", name="d_head")
    at_rest(panel.page)
    for _ in range(2):
        for key in ("Home", "End", "PageDown", "PageDown", "PageDown"):
            slider.press(key)
            drawn(panel.page)
    heights = []
    for key in ("Home", "ArrowRight", "End", "ArrowLeft", "PageDown", "PageDown"):
        slider.press(key)
        drawn(panel.page)
        heights.append(panel.bounding_box()["height"])
    assert max(heights) - min(heights) < 0.5, heights


def test_paper_keeps_the_strips_and_drops_what_can_only_be_pressed(panel):
    panel.page.emulate_media(media="print")
    assert panel.locator("rect[data-kernel=F]").first.is_visible()
    assert panel.locator(".sh-key").is_visible()
    assert not panel.locator(".sh-chips").is_visible()
    assert not panel.locator(".sh-reading").is_visible()
