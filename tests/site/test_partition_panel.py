"""Panel *partition* in a real browser: keys, buttons, prediction, address, and 600 cases against Python."""

from __future__ import annotations

import json
import random
import re

import pytest
from conftest import at_rest, drawn, unpainted
from playwright.sync_api import expect
from splitheads.panels.partition import MAX_D_MODEL, MAX_NUM_HEADS, PRESETS
from splitheads.partition import HeadSplit, legal_head_counts, nearest_head_counts, nearest_widths, why_not

PANEL = "[data-panel=partition]"
CHAPTERS = ["index", "partition-rule"]


@pytest.fixture
def panel(visit, address):
    page = visit().open(f"{address}/book/partition-rule.html")
    return page.locator(PANEL)


def status(panel) -> str:
    return panel.locator("p[role=status]").inner_text()


def handle(panel, name: str):
    return panel.get_by_role("slider", name=name)


@pytest.mark.parametrize("scheme", ["http", "file"])
@pytest.mark.parametrize("chapter", CHAPTERS)
def test_the_sliders_follow_the_arrow_keys(visit, address, site, chapter, scheme):
    base = address if scheme == "http" else site.as_uri()
    seen = visit()
    panel = seen.open(f"{base}/book/{chapter}.html").locator(PANEL)
    assert status(panel) == "d_head = 64: 768 columns cut into 12 heads of 64 columns each."
    heads = handle(panel, "num_heads")
    heads.press("ArrowRight")
    assert heads.get_attribute("aria-valuenow") == "13"
    assert status(panel) == "no whole d_head: 768 = 13 × 59 + 1, so 1 column would be left over."
    heads.press("ArrowLeft")
    handle(panel, "d_model").press("ArrowRight")
    assert status(panel) == "no whole d_head: 769 = 12 × 64 + 1, so 1 column would be left over."
    assert seen.complaints == []
    assert seen.foreign == []


def test_a_drag_moves_the_view(panel):
    box = handle(panel, "num_heads").bounding_box()
    mouse = panel.page.mouse
    mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    mouse.down()
    mouse.move(box["x"] + 160, box["y"] + box["height"] / 2, steps=8)
    mouse.up()
    now = int(handle(panel, "num_heads").get_attribute("aria-valuenow"))
    assert now > 30
    assert f"{now}" in status(panel)


def test_a_number_can_be_typed(panel):
    readout = panel.locator(".widget-readout").first
    readout.fill("1000")
    readout.press("Enter")
    assert handle(panel, "d_model").get_attribute("aria-valuenow") == "1000"
    assert status(panel) == "no whole d_head: 1,000 = 12 × 83 + 4, so 4 columns would be left over."


@pytest.mark.parametrize("typed", ["-5", "99999999", "many", "12.7", ""])
def test_nonsense_that_is_typed_leaves_a_sound_state(panel, typed):
    readout = panel.locator(".widget-readout").first
    readout.fill(typed)
    readout.press("Enter")
    now = int(handle(panel, "d_model").get_attribute("aria-valuenow"))
    assert 1 <= now <= MAX_D_MODEL
    assert re.match(r"(d_head = [\d,]+|no (whole )?d_head): .+\.$", status(panel))


def test_presets_are_set_and_explained(panel):
    for preset in PRESETS:
        chip = panel.locator(f"[data-preset='{preset['name']}']")
        chip.click()
        assert chip.get_attribute("aria-pressed") == "true"
        assert panel.locator("[data-preset][aria-pressed=true]").count() == 1
        assert handle(panel, "d_model").get_attribute("aria-valuenow") == str(preset["d_model"])
        assert handle(panel, "num_heads").get_attribute("aria-valuenow") == str(preset["num_heads"])
        assert preset["note"] in panel.inner_text()
        expected = (
            "no whole d_head"
            if preset["d_model"] % preset["num_heads"]
            else f"d_head = {preset['d_model'] // preset['num_heads']}"
        )
        assert status(panel).startswith(expected + ":")


def test_a_failing_split_shows_the_error_and_a_way_out(panel):
    panel.locator("[data-preset='GPT-2 XL, layers for heads']").click()
    text = panel.locator(".sh-error").inner_text()
    assert "AssertionError: embed_dim must be divisible by num_heads" in text
    assert "RuntimeError: shape '[1, 1, 48, 33]' is invalid for input of size 1600" in text
    ways = panel.locator("[data-move]").all_inner_texts()
    assert ways == ["num_heads = 40", "num_heads = 50", "d_model = 1584", "d_model = 1632"]
    panel.get_by_role("button", name="num_heads = 50").click()
    assert handle(panel, "num_heads").get_attribute("aria-valuenow") == "50"
    assert status(panel).startswith("d_head = 32:")
    assert not panel.locator(".sh-error").is_visible()


def test_a_prediction_is_locked_and_stays_beside_the_outcome(panel):
    panel.get_by_role("button", name="none").click()
    asked = panel.locator(".sh-question")
    assert asked.get_attribute("data-locked") == "wrong"
    assert "You said “none”; it is “16”." in asked.inner_text()
    assert status(panel) == "no whole d_head: 1,600 = 48 × 33 + 16, so 16 columns would be left over."
    panel.get_by_role("button", name="16 ✓ right").click(force=True)
    assert "You said “none”" in asked.inner_text(), "a second click must not rewrite the prediction"
    for reason in ("multiples are 1584 and 1632", "belong to nobody", "rounded down"):
        assert reason in asked.inner_text()


def test_the_state_lives_in_the_address(visit, address):
    url = f"{address}/book/partition-rule.html"
    page = visit().open(f"{url}#partition?d_model=6144&num_heads=64")
    assert status(page.locator(PANEL)).startswith("d_head = 96:")
    handle(page.locator(PANEL), "num_heads").press("ArrowRight")
    page.wait_for_url(f"{url}#partition?d_model=6144&num_heads=65")
    page.evaluate("location.hash = '#partition?d_model=2560&num_heads=32'")
    page.wait_for_function(
        "document.querySelector('[data-panel=partition] [role=status]').textContent.startsWith('d_head = 80')"
    )


@pytest.mark.parametrize(
    "fragment",
    [
        "partition?d_model=999999999&num_heads=0",
        "partition?d_model=-3&num_heads=1e3",
        "partition?num_heads=%ZZ",
        "partition?",
        "partition",
        "nothing?d_model=5",
    ],
)
def test_a_broken_address_leaves_a_sound_state(visit, address, fragment):
    seen = visit()
    page = seen.open(f"{address}/book/partition-rule.html#{fragment}")
    panel = page.locator(PANEL)
    assert re.match(r"(d_head = [\d,]+|no (whole )?d_head): .+\.$", status(panel))
    assert 1 <= int(handle(panel, "d_model").get_attribute("aria-valuenow")) <= MAX_D_MODEL
    assert 1 <= int(handle(panel, "num_heads").get_attribute("aria-valuenow")) <= MAX_NUM_HEADS
    assert seen.complaints == []


def test_reading_a_page_does_not_touch_its_address(visit, address):
    url = f"{address}/book/partition-rule.html"
    page = visit().open(url)
    page.wait_for_timeout(600)
    assert page.url == url


def cases() -> list[tuple[int, int]]:
    """600 cases: the edges, the presets, real widths, and random pairs that divide and that do not."""
    rng = random.Random(768)
    found = {(1, 1), (1, 256), (2, 8), (255, 256), (16384, 256), (16384, 255), (16381, 256), (16384, 1), (7, 7)}
    found |= {(p["d_model"], p["num_heads"]) for p in PRESETS}
    found |= {(d, h) for d in (512, 768, 1000, 1024, 1600, 4096, 12288) for h in (1, 2, 6, 8, 12, 16, 24, 48, 220)}
    while len(found) < 350:
        found.add((rng.randint(1, MAX_D_MODEL), rng.randint(1, MAX_NUM_HEADS)))
    while len(found) < 600:
        d = rng.randint(1, MAX_D_MODEL)
        found.add((d, rng.choice(legal_head_counts(d, MAX_NUM_HEADS))))
    return sorted(found)


def test_the_page_and_python_agree_on_600_cases(panel):
    walked = cases()
    unpainted(panel.page)
    seen = panel.page.evaluate(
        """async (cases) => {
            const root = document.querySelector("[data-panel=partition]");
            const told = [];
            for (const [d, h] of cases) {
                const before = location.hash;
                location.hash = `#partition?d_model=${d}&num_heads=${h}`;
                if (location.hash !== before) await new Promise((r) => addEventListener("hashchange", r, { once: true }));
                told.push({
                    status: root.querySelector("p[role=status]").textContent,
                    moves: [...root.querySelectorAll("[data-move]")].map((b) => JSON.parse(b.dataset.move)),
                    error: root.querySelector(".sh-error").hidden ? "" : root.querySelector(".sh-error").textContent,
                    now: [...root.querySelectorAll("[role=slider]")].map((s) => Number(s.getAttribute("aria-valuenow"))),
                });
            }
            return JSON.stringify(told);
        }""",
        walked,
    )
    failing = 0
    for (d, h), told in zip(walked, json.loads(seen), strict=True):
        assert told["now"] == [d, h]
        heads_moves = [m["num_heads"] for m in told["moves"] if "num_heads" in m]
        width_moves = [m["d_model"] for m in told["moves"] if "d_model" in m]
        error = why_not(d, h)
        if error is not None:
            failing += 1
            whole, left = divmod(d, h)
            if whole:
                assert told["status"].startswith(
                    f"no whole d_head: {d:,} = {h} × {whole:,} + {left}, so {left} column"
                ), (d, h)
                assert error.remainder == left
            else:
                assert told["status"].startswith("no d_head: "), (d, h)
            assert f"invalid for input of size {d}" in told["error"]
            assert heads_moves == [n for n in nearest_head_counts(d, h) if n <= MAX_NUM_HEADS], (d, h)
            assert width_moves == [w for w in nearest_widths(d, h) if w <= MAX_D_MODEL], (d, h)
        else:
            split = HeadSplit(d, h)
            assert told["status"].startswith(f"d_head = {split.d_head:,}: {d:,} column"), (d, h)
            assert told["error"] == ""
            legal = legal_head_counts(d, MAX_NUM_HEADS)
            at = legal.index(h)
            assert heads_moves == [*legal[max(at - 1, 0) : at], *legal[at + 1 : at + 2]], (d, h)
            assert width_moves == []
    assert failing > 200


def test_the_canvas_is_painted_in_both_modes(visit, address):
    for theme in ("light", "dark"):
        page = visit(theme=theme).open(f"{address}/book/partition-rule.html")
        drawn(page)
        colours = page.evaluate(
            """() => { const c = document.querySelector("[data-panel=partition] canvas");
                const p = c.getContext("2d").getImageData(0, c.height / 4, c.width, 1).data;
                const found = new Set(); for (let i = 0; i < p.length; i += 4) found.add(p.slice(i, i + 3).join()); return [...found]; }"""
        )
        for wanted in ("119,170,221", "238,136,102", "68,187,153"):  # heads 0, 1 and 2
            assert wanted in colours


def test_an_address_on_its_way_is_not_overwritten(panel):
    """The panel writes its address a moment late; a link followed in that moment must win."""
    heads = handle(panel, "num_heads")
    heads.press("ArrowRight")
    panel.page.evaluate(
        """() => {
            // Keep the page busy past the delay, so that its timer is due before the hashchange event.
            location.hash = "#partition?d_model=2560&num_heads=32";
            const end = performance.now() + 500;
            while (performance.now() < end);
        }"""
    )
    expect(panel.locator("p[role=status]")).to_have_text(re.compile("^d_head = 80:"))
    panel.page.wait_for_timeout(700)
    assert status(panel).startswith("d_head = 80:")
    assert panel.page.url.endswith("#partition?d_model=2560&num_heads=32")


def test_what_lies_below_stays_where_it_is_while_a_slider_moves(panel):
    """Once a split that fails has been seen, legal and failing splits take the same room."""
    heads = handle(panel, "num_heads")
    heights = []
    at_rest(panel.page)
    for key in ("ArrowRight", "ArrowLeft", "ArrowLeft", "ArrowRight", "ArrowRight", "ArrowLeft"):
        heads.press(key)
        drawn(panel.page)
        heights.append(panel.bounding_box()["height"])
    assert max(heights[1:]) - min(heights[1:]) < 0.5, heights
