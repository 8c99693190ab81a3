"""Panel *sharding* in a real browser: keys, buttons, prediction, address, and 80 states against Python."""

from __future__ import annotations

import random
from importlib import import_module
from itertools import pairwise

import pytest
from axe_playwright_python.sync_playwright import Axe
from splitheads.sharding import STACKS

SHARDING = import_module("splitheads.panels.sharding")
PANEL = "[data-panel=sharding]"
CHAPTER = "book/sharding.html"
START = "tp = 8 is admitted: each GPU holds 8 query heads and 1 key/value head: 1/8 of the KV cache."


@pytest.fixture
def panel(visit, address):
    return visit().open(f"{address}/{CHAPTER}").locator(PANEL)


def status(panel) -> str:
    return panel.locator("p[role=status]").text_content()


def told(num_heads: int, n_kv_heads: int, tp: int, stack: str) -> str:
    found = SHARDING.spread(num_heads, n_kv_heads, tp, stack)
    return found["short"] + found["long"]


def now(panel) -> list:
    sliders = [
        panel.get_by_role("slider", name=name).get_attribute("aria-valuenow")
        for name in ("num_heads", "n_kv_heads", "tp")
    ]
    return [*map(int, sliders), STACKS[panel.get_by_label("stack", exact=True).evaluate("(e) => e.selectedIndex")]]


@pytest.mark.parametrize("scheme", ["http", "file"])
def test_sliders_buttons_and_menu_move_the_answer_by_keyboard(visit, address, site, scheme):
    seen = visit()
    panel = seen.open(f"{address if scheme == 'http' else site.as_uri()}/{CHAPTER}").locator(PANEL)
    assert status(panel) == START
    panel.get_by_role("slider", name="tp").press("ArrowRight")
    assert status(panel) == told(64, 8, 9, "vllm")
    assert status(panel).startswith("tp = 9 is refused: ")
    panel.get_by_role("slider", name="n_kv_heads").press("ArrowRight")
    assert status(panel).startswith("no grouping, on 9 GPUs or any other number: 64 = 9 × 7 + 1")
    assert panel.locator("[data-move]").all_inner_texts() == ["8", "16"]
    panel.get_by_role("button", name="n_kv_heads = 16").press("Enter")
    assert now(panel) == [64, 16, 9, "vllm"]
    assert panel.page.evaluate("document.activeElement.matches('[data-panel=sharding] [data-move]')"), (
        "focus stays at hand"
    )
    panel.get_by_role("button", name="tp = 32").press("Enter")
    assert status(panel) == told(64, 16, 32, "vllm")
    assert panel.locator("[data-move][aria-pressed=true]").all_inner_texts() == ["32"]
    panel.get_by_label("stack", exact=True).press("ArrowDown")
    assert status(panel) == told(64, 16, 32, "hf")
    assert panel.locator("[data-move]").all_inner_texts() == ["1", "2", "4", "8", "16"]
    assert seen.complaints == []
    assert seen.foreign == []


def test_presets_are_set_and_explained(panel):
    for preset in SHARDING.PRESETS:
        panel.locator(f"[data-preset='{preset['name']}']").click()
        assert panel.locator("[data-preset][aria-pressed=true]").all_inner_texts() == [preset["name"]]
        assert panel.locator(".sh-note").inner_text() == preset["note"]
        assert now(panel) == list(preset["state"].values())
        assert status(panel) == told(*preset["state"].values())


@pytest.mark.parametrize("width", [390, 1280])
def test_presets_stand_between_the_controls_and_what_they_change(visit, address, width):
    panel = visit(width=width).open(f"{address}/{CHAPTER}").locator(PANEL)
    places = [
        panel.locator(part).first.bounding_box()["y"]
        for part in ("select", "[data-preset]", "p[role=status]", ".sh-box")
    ]
    assert places == sorted(places)
    assert places[1] - places[0] < 120, "directly under the menu"


def test_a_link_with_a_state_opens_on_the_controls(visit, address):
    page = visit().open(f"{address}/{CHAPTER}#sharding?{query(28, 4, 7)}")
    page.wait_for_function("scrollY > 100")
    at = page.locator(PANEL).get_by_role("slider", name="num_heads").bounding_box()["y"]
    assert 40 < at < 200


def test_a_prediction_is_locked_and_sets_the_case(panel):
    panel.locator(".sh-option", has_text="14").click()
    asked = panel.locator(".sh-question")
    assert asked.get_attribute("data-locked") == "wrong"
    assert "You said “14”; it is “4”." in asked.inner_text()
    assert status(panel) == told(28, 4, 7, "vllm")
    assert panel.locator("[data-move]").all_inner_texts() == ["1", "2", "4", "28"]


def test_what_is_drawn_for_copies_for_cuts_and_for_what_is_left_over(panel):
    press = lambda name: panel.locator(f"[data-preset='{name}']").click()  # noqa: E731
    press("32 / 4 on 8, vLLM")
    assert panel.locator(".sh-kv").all_inner_texts() == [f"kv {i // 2}\n×2" for i in range(8)]
    fills = panel.locator(".sh-kv").evaluate_all("(all) => all.map((e) => getComputedStyle(e).backgroundColor)")
    assert len(set(fills)) == 4
    first = panel.locator(".sh-box").first
    assert first.locator(".sh-q").first.evaluate("(e) => getComputedStyle(e).backgroundColor") == fills[0]
    assert first.inner_text().split() == ["GPU", "0", "0", "1", "2", "3", "kv", "0", "×2"]
    press("32 / 4 on 8, transformers")
    assert panel.locator(".sh-kv").all_inner_texts() == [f"1/2 of kv {i // 2}" for i in range(8)]
    hatch = "(e) => getComputedStyle(e).backgroundImage.startsWith('repeating-linear-gradient')"
    assert panel.locator(".sh-kv").first.evaluate(hatch)
    press("Qwen2-7B on 8")
    assert panel.locator(".sh-left").inner_text().split() == ["4", "heads", "left", "over", "24", "25", "26", "27"]
    assert panel.locator(".sh-left .sh-q").first.evaluate(hatch)
    press("Llama 3 70B on 16")
    high = panel.locator(".sh-column").evaluate_all("(all) => all.map((e) => e.getBoundingClientRect().height)")
    assert high[:4] == pytest.approx([90, 45, 22.5, 11.25], abs=0.1)
    assert high[3:] == [high[3]] * 4
    assert panel.locator(".sh-copied").count() == 3
    assert panel.locator("[data-now=true] .sh-size").all_inner_texts() == ["16"]
    assert "From tp = 8 on, the number of key/value heads, the share stays at 1/8" in panel.inner_text()


def test_many_heads_and_many_gpus_stay_readable_on_a_phone(visit, address):
    page = visit(width=390, height=844).open(f"{address}/{CHAPTER}")
    boxes = page.locator(f"{PANEL} .sh-boxes")
    for state in (
        (28, 4, 28),
        (128, 128, 1),
        (128, 1, 2),
        (128, 128, 96),
        (1, 1, 128),
        (120, 120, 3),
        (127, 126, 5),
        (120, 8, 3),
    ):
        page.evaluate(WALK, [query(*state)])
        assert page.locator(f"{PANEL} .sh-box").count() <= 19
        assert page.locator(f"{PANEL} .sh-q").count() <= 120
        cut = boxes.evaluate(
            """(root) => [...root.querySelectorAll(".sh-q, .sh-kv, .sh-box-name, .sh-more")].filter((e) =>
                e.scrollWidth > e.clientWidth + 1 && e.clientWidth || parseFloat(getComputedStyle(e).fontSize) < 11
                || e.getBoundingClientRect().right > root.getBoundingClientRect().right + 0.5).map((e) => e.textContent)"""
        )
        assert cut == [], state
        labels = page.locator(f"{PANEL} .sh-size").evaluate_all(
            "(all) => all.map((e) => e.getBoundingClientRect()).map((box) => [box.left, box.right])"
        )
        assert all(a[1] <= b[0] + 0.5 for a, b in pairwise(labels)), state
        assert page.evaluate("document.scrollingElement.scrollWidth") == 390


def query(num_heads: int, n_kv_heads: int, tp: int, stack: str = "vllm") -> str:
    return f"num_heads={num_heads}&n_kv_heads={n_kv_heads}&tp={tp}&stack={stack}"


def test_the_state_lives_in_the_address(visit, address):
    url = f"{address}/{CHAPTER}"
    page = visit().open(f"{url}#sharding?{query(32, 4, 8, 'hf')}")
    panel = page.locator(PANEL)
    assert now(panel) == [32, 4, 8, "hf"]
    assert status(panel) == told(32, 4, 8, "hf")
    panel.get_by_label("stack", exact=True).select_option(index=2)
    page.wait_for_url(f"{url}#sharding?{query(32, 4, 8, 'ulysses')}")
    panel.get_by_role("slider", name="tp").press("ArrowLeft")
    page.wait_for_url(f"{url}#sharding?{query(32, 4, 7, 'ulysses')}")
    other = visit().open(page.url).locator(PANEL)
    assert now(other) == [32, 4, 7, "ulysses"]
    assert status(other) == status(panel)


@pytest.mark.parametrize(
    ("fragment", "state"),
    [
        ("sharding?num_heads=999999999&n_kv_heads=0&tp=500&stack=hf", [128, 1, 128, "hf"]),
        ("sharding?num_heads=-3&n_kv_heads=1e3&tp=&stack=megatron", [64, 8, 8, "vllm"]),
        ("sharding?stack=%3Cimg%20src=x%3E&tp=3.5&stack_at=9&palette=1", [64, 8, 8, "vllm"]),
        ("sharding?stack=__proto__&tp=99999999999999999999&%ZZ", [64, 8, 8, "vllm"]),
        ("sharding%3Fnum_heads%3D28%26n_kv_heads%3D4%26tp%3D7", [28, 4, 7, "vllm"]),
    ],
)
def test_a_broken_address_leaves_a_sound_state(visit, address, fragment, state):
    seen = visit()
    panel = seen.open(f"{address}/{CHAPTER}#{fragment}").locator(PANEL)
    assert now(panel) == state
    assert status(panel) == told(*state)
    assert seen.complaints == []


WALK = """async (queries) => {
    const root = document.querySelector("[data-panel=sharding]");
    const view = root.querySelector(".sh-view");
    const told = [];
    for (const query of queries) {
        const before = location.hash;
        location.hash = `#sharding?${query}`;
        if (location.hash !== before) await new Promise((r) => addEventListener("hashchange", r, { once: true }));
        await null;
        told.push({ ...view.dataset, status: root.querySelector("p[role=status]").textContent,
            moves: [...root.querySelectorAll("[data-move]")].map((b) => Object.entries(JSON.parse(b.dataset.move))[0]),
            shares: [...root.querySelectorAll(".sh-share")].map(({ dataset: d }) => [d.tp, d.parts, d.copies].map(Number)),
            boxes: root.querySelectorAll(".sh-box:not(.sh-others, .sh-left)").length,
            left: root.querySelectorAll(".sh-left").length });
    }
    return told;
}"""


def states() -> list[tuple]:
    generator = random.Random(64)
    found = [tuple(preset["state"].values()) for preset in SHARDING.PRESETS]
    while len(found) < 80:
        h = generator.randint(1, 128)
        divisors = [n for n in range(1, h + 1) if h % n == 0]
        kv = generator.choice(divisors) if len(found) % 6 else generator.randint(1, 128)
        tp = generator.choice(divisors) if len(found) % 2 else generator.randint(1, 128)
        found.append((h, kv, tp, generator.choice(STACKS)))
    return found


def test_the_page_and_python_agree_on_80_states(panel):
    walked = states()
    seen = set()
    for state, got in zip(walked, panel.page.evaluate(WALK, [query(*state) for state in walked]), strict=True):
        found = SHARDING.spread(*state)
        seen.add((found["verdict"], found["rule"], state[3]))
        assert got["status"] == found["short"] + found["long"], state
        assert (got["verdict"], got["rule"]) == (found["verdict"], found["rule"])
        assert got["moves"] == found["moves"], state
        assert got["shares"] == found["shares"], state
        assert got["sizes"] == ",".join(map(str, found["sizes"]))
        assert got["left"] == bool(found["left"])
        assert (got["boxes"] > 0) == bool(found["ranks"])
    assert len(seen) >= 10


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_and_targets_fit_a_thumb(visit, address, theme):
    page = visit(width=390, height=844, theme=theme).open(f"{address}/{CHAPTER}#sharding?{query(28, 4, 7)}")
    axe = Axe()
    for name in ("28 / 4 on 7", "Llama 3 70B on 16"):
        page.locator(f"[data-preset='{name}']").click()
        found = axe.run(page, context=PANEL).response["violations"]
        assert [one["id"] for one in found] == [], [(one["id"], one["nodes"][0]["html"]) for one in found]
    for target in page.locator(f"{PANEL} :is(button, select)").all():
        box = target.bounding_box()
        assert min(box["height"], box["width"]) >= 24
        assert box["x"] + box["width"] <= 390


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_chosen_by_the_reader_leave_copies_and_cuts_readable(visit, address, scheme):
    page = visit(forced_colors="active", color_scheme=scheme).open(f"{address}/{CHAPTER}#sharding?{query(64, 8, 16)}")
    ink = "rgb(0, 0, 0)" if scheme == "light" else "rgb(255, 255, 255)"
    fill = page.locator(f"{PANEL} .sh-kv").first.evaluate("(e) => getComputedStyle(e).backgroundColor")
    assert fill not in ("rgb(0, 0, 0)", "rgb(255, 255, 255)", "rgba(0, 0, 0, 0)")
    assert page.locator(f"{PANEL} .sh-column").first.evaluate("(e) => getComputedStyle(e).backgroundColor") == ink
    assert "repeating" in page.locator(f"{PANEL} .sh-copied").first.evaluate(
        "(e) => getComputedStyle(e).backgroundImage"
    )
    lines = page.locator(f"{PANEL} .sh-size").evaluate_all(
        "(all) => all.map((e) => getComputedStyle(e).borderTopColor)"
    )
    marked = page.locator(f"{PANEL} .sh-share").evaluate_all("(all) => all.map((e) => e.dataset.now === 'true')")
    assert [line == ink for line in lines] == marked, "one size is the current one"
    page.locator("[data-preset='28 / 4 on 7']").click()
    assert page.locator(f"{PANEL} .sh-cut").first.evaluate("(e) => getComputedStyle(e).borderTopColor") == ink


def test_a_slider_on_its_way_pushes_no_text_about(panel):
    slider = panel.get_by_role("slider", name="tp")
    heights = []
    for _ in range(2):
        heights.clear()
        for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "ArrowLeft"):
            slider.press(key)
            panel.page.wait_for_timeout(60)
            heights.append(panel.bounding_box()["height"])
    assert max(heights) - min(heights) < 0.5, heights


def test_paper_keeps_the_drawing_and_drops_what_can_only_be_pressed(panel):
    panel.page.emulate_media(media="print")
    assert panel.locator(".sh-box").first.is_visible()
    assert panel.locator(".sh-column").first.is_visible()
    assert panel.locator(".sh-chips:visible").count() == 0


def test_on_a_phone_the_answer_stands_below_the_controls_and_not_a_screen_away(visit, address):
    page = visit(width=390, height=844).open(f"{address}/{CHAPTER}")
    panel = page.locator(PANEL)
    menu, answer = panel.locator("select").first.bounding_box(), panel.locator("[role=status]").bounding_box()
    assert answer["y"] - menu["y"] - menu["height"] < 200
    last = panel.locator("[data-preset]").last
    last.focus()  # the row is pushed along
    box = last.bounding_box()
    assert 0 <= box["x"] <= 390 - box["width"]
    assert page.evaluate("document.scrollingElement.scrollWidth") == 390
