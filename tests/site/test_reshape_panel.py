"""Panel *reshape* in a real browser: keys, prediction, address, and every state its sliders allow against torch."""

from __future__ import annotations

import json
import re
from itertools import product

import pytest
import torch
from conftest import unpainted
from splitheads.attention import shares_memory
from splitheads.palette import HEADS
from splitheads.panels.reshape import FREE, FUSED, STEPS, VARIANTS
from test_panels_reshape import MISCOUNTED, said

PANEL = "[data-panel=reshape]"
SIZES = list(product(range(1, 7), range(1, 5), range(1, 5)))


@pytest.fixture
def panel(visit, address):
    return visit().open(f"{address}/book/reshape.html").locator(PANEL)


def status(panel) -> str:
    return panel.locator("p[role=status]").inner_text()


def choose(panel, name: str) -> None:
    panel.get_by_role("radio", name=name, exact=True).check()


@pytest.mark.parametrize("scheme", ["http", "file"])
def test_the_sliders_follow_the_arrow_keys(visit, address, site, scheme):
    seen = visit()
    panel = seen.open(f"{address if scheme == 'http' else site.as_uri()}/book/reshape.html").locator(PANEL)
    assert status(panel).startswith("shape [1, 4, 6], strides (24, 6, 1): contiguous")
    panel.get_by_role("slider", name="n_heads").press("ArrowRight")
    assert status(panel).startswith("shape [1, 4, 9], strides (36, 9, 1): contiguous")
    panel.get_by_role("slider", name="T").press("ArrowLeft")
    assert status(panel).startswith("shape [1, 3, 9], strides (27, 9, 1): contiguous")
    choose(panel, "transpose")
    assert status(panel).startswith("shape [1, 3, 3, 3], strides (27, 3, 9, 1): not contiguous, no copy.")
    assert seen.complaints == []
    assert seen.foreign == []


def test_the_steps_can_be_walked_by_keyboard(panel):
    panel.get_by_role("radio", name="projected", exact=True).focus()
    for name in STEPS[1:]:
        panel.page.keyboard.press("ArrowRight")
        assert panel.get_by_role("radio", name=name, exact=True).is_checked()
        assert panel.locator("[data-step]").first.get_attribute("data-step") == name


def test_the_direct_view_puts_whole_tokens_into_one_head(panel):
    panel.get_by_role("button", name="It raises an error").click()
    asked = panel.locator(".sh-question")
    assert asked.get_attribute("data-locked") == "wrong"
    assert "You said “It raises an error”; it is “A different result, silently”." in asked.inner_text()
    assert status(panel).startswith("silently wrong:")
    head_0 = panel.locator(".sh-board .sh-cell[data-index^='0,0,']")
    assert [int(cell.get_attribute("data-origin")) for cell in head_0.all()] == list(range(12))
    assert {cell.get_attribute("data-head") for cell in head_0.all()} == {"0", "1"}
    assert {cell.get_attribute("data-token") for cell in head_0.all()} == {"0", "1"}


def test_slicing_the_input_shows_who_reads_what(panel):
    def read(head: int) -> list[str]:
        return [
            cell.get_attribute("data-feature")
            for cell in panel.locator(f".sh-reads .sh-read[data-head='{head}']").all()
            if cell.get_attribute("data-read") == "true"
        ]

    assert read(0) == read(1) == ["0", "1", "2", "3", "4", "5"]
    choose(panel, "slice the input first")
    assert read(0) == ["0", "1", "2"]
    assert read(1) == ["3", "4", "5"]


def test_the_state_lives_in_the_address(visit, address):
    page = visit().open(f"{address}/book/reshape.html#reshape?T=5&n_heads=3&d_head=2&step=2&variant=0")
    panel = page.locator(PANEL)
    assert status(panel).startswith("shape [1, 3, 5, 2], strides (30, 2, 6, 1): not contiguous")
    choose(panel, "merge")
    page.wait_for_url("**#reshape?T=5&n_heads=3&d_head=2&step=4&variant=0")


@pytest.mark.parametrize("fragment", ["reshape?T=99&n_heads=0&step=77&variant=-1", "reshape?T=x", "reshape?"])
def test_a_broken_address_leaves_a_sound_state(visit, address, fragment):
    seen = visit()
    page = seen.open(f"{address}/book/reshape.html#{fragment}")
    assert status(page.locator(PANEL)).startswith(("shape [1, ", "silently wrong: "))
    assert page.locator(f"{PANEL} .sh-board .sh-cell").count() >= 1
    assert seen.complaints == []


def test_nobody_who_asks_for_less_motion_gets_any(visit, address):
    page = visit(reduced_motion="reduce").open(f"{address}/book/reshape.html")
    panel = page.locator(PANEL)
    choose(panel, "transpose")
    moving = page.evaluate("document.getAnimations().filter((a) => a.playState === 'running').length")
    assert moving == 0


def by_torch(tokens: int, n_heads: int, d_head: int, variant: str) -> list[dict]:
    """What torch itself reports after each step, with the offset in the projected buffer as each value."""
    T, h, d = tokens, n_heads, d_head
    x = torch.arange(T * h * d).view(1, T, h * d)  # [B, T, h*d]: each value is its own offset

    def attend(heads: torch.Tensor) -> torch.Tensor:
        fresh = torch.empty(heads.shape, dtype=heads.dtype)  # head-major, as a plain matrix product returns it
        return fresh.copy_(heads)

    if variant == "direct view":
        heads = x.view(1, h, T, d)
        walk = [x, heads, heads, attend(heads)]
        walk.append(walk[-1].transpose(1, 2).reshape(1, T, h * d))
    else:
        rows = x.view(1, T, h, d)
        heads = rows.transpose(1, 2)
        walk = [x, rows, heads, attend(heads)]
        out = walk[-1]
        merged = out.reshape(1, T, h * d)
        walk.append(merged if variant == "merge without transpose" else out.transpose(1, 2).reshape(1, T, h * d))
    told = []
    for before, y in zip([x, *walk], walk, strict=False):
        told.append(
            {
                "shape": list(y.shape),
                "strides": list(y.stride()),
                "contiguous": y.is_contiguous(),
                "copied": not shares_memory(before, y),
                "cells": [
                    [sum(i * s for i, s in zip(index, y.stride(), strict=True)), int(y[index])]
                    for index in product(*map(range, y.shape))
                ],
            }
        )
    return told


WALK = """async ([asked, look]) => {
    const root = document.querySelector("[data-panel=reshape]");
    const host = root.querySelector("[data-step]");
    const told = [];
    for (const [T, h, d, v, s] of asked) {
        const before = location.hash;
        location.hash = `#reshape?T=${T}&n_heads=${h}&d_head=${d}&step=${s}&variant=${v}`;
        if (location.hash !== before) await new Promise((r) => addEventListener("hashchange", r, { once: true }));
        told.push(eval(look)(root, host));
    }
    return JSON.stringify(told);  // many times faster than handing over the objects
}"""


def walk(page, asked: list, look: str) -> list:
    """Bring the panel into each state [T, h, d, variant, step], and what `look(root, host)` says there."""
    return json.loads(page.evaluate(WALK, [asked, look]))


EVERY = [[T, h, d, v, s] for T, h, d in SIZES for v in range(len(VARIANTS)) for s in range(len(STEPS))]


@pytest.fixture(scope="module")
def every_state(chrome, address) -> list[tuple[list[int], dict]]:
    """What the panel shows and says in each of its 1,920 states."""
    # Without motion: the same states, in half the time.
    context = chrome.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    page = context.new_page()
    page.goto(f"{address}/book/reshape.html")
    page.wait_for_selector(f"{PANEL}[data-live]")
    unpainted(page)
    seen = walk(
        page,
        EVERY,
        """(root, host) => {
            const numbers = (text) => text.split(",").map(Number);
            const cells = [...root.querySelectorAll(".sh-board .sh-cell")].map((c) =>
                [numbers(c.dataset.index), Number(c.dataset.offset), Number(c.dataset.origin)]);
            cells.sort(([a], [b]) => { for (const i in a) if (a[i] !== b[i]) return a[i] - b[i]; return 0; });
            const shown = [...host.querySelectorAll("p:not([hidden]), .sh-block-name")];
            return {
                shape: numbers(host.dataset.shape), strides: numbers(host.dataset.strides),
                contiguous: host.dataset.contiguous, memory: host.dataset.memory, buffer: host.dataset.buffer,
                index: cells.map(([index]) => index),
                cells: cells.map(([, offset, origin]) => [offset, origin]),
                strip: [...root.querySelectorAll(".sh-strip .sh-cell")].map((c) => [Number(c.dataset.offset), Number(c.dataset.origin)]),
                numbers: root.querySelector(".sh-numbers").textContent,
                words: [...shown.map((e) => e.textContent),
                    ...[...host.querySelectorAll("[aria-label]")].map((e) => e.getAttribute("aria-label"))],
            };
        }""",
    )
    context.close()
    return list(zip(EVERY, seen, strict=True))


def test_every_state_of_the_sliders_equals_what_torch_reports(every_state):
    states = iter(every_state)
    for T, h, d in SIZES:
        for variant in VARIANTS:
            for step, torch_says in zip(STEPS, by_torch(T, h, d, variant["name"]), strict=True):
                state, told = next(states)
                where = (state, variant["name"], step)
                assert told["shape"] == torch_says["shape"], where
                assert told["strides"] == torch_says["strides"], where
                assert told["contiguous"] == str(torch_says["contiguous"]).lower(), where
                assert told["cells"] == torch_says["cells"], where
                assert sorted(told["strip"]) == sorted(torch_says["cells"]), where
                expected = {"projected": "new memory", "attend": "new memory"}.get(
                    step, "copied" if torch_says["copied"] else "no copy"
                )
                assert told["memory"] == expected, where


def test_the_words_agree_in_number_in_every_state(every_state):
    heard = set()
    for state, told in every_state:
        for text in told["words"]:
            assert not MISCOUNTED.search(text), (state, text)
            heard.add(text)
    assert len(heard) > 1000
    assert "The 1 column of a token is now counted as 1 × 1." in " ".join(heard)


def test_the_line_below_the_board_says_what_its_numbers_mean(every_state):
    """Its formula, worked out for every cell, is that cell's offset; its buffer is the one in the strip."""
    for state, told in every_state:
        line = told["numbers"].replace("\N{NO-BREAK SPACE}", " ")
        buffers = set(re.findall(r"buffer ([A-C])", line))
        assert buffers == {"A", told["buffer"]}, (state, line)
        if told["buffer"] == "A":
            holds = "input" if VARIANTS[state[3]]["name"] == "slice the input first" else "projected tensor"
            assert line.startswith(f"A cell's number is its place in buffer A, the {holds}: "), state
            assert all(offset == origin for offset, origin in told["cells"]), state
        else:
            assert line.startswith("A cell's number is still its place in buffer A, where it came from. "), state
        formula = re.search(r"(?:: |lies at )([^:]+)\.$", line).group(1)
        terms = [re.fullmatch(r"(?:(\d+) × )?(head|token|row|column)", term).groups() for term in formula.split(" + ")]
        assert len({axis for _, axis in terms}) == len(terms) == len(told["shape"]) - 1, state
        for index, (offset, _) in zip(told["index"], told["cells"], strict=True):
            assert offset == sum(i * int(stride or 1) for i, (stride, _) in zip(index[1:], terms, strict=True)), state


def test_attention_says_when_its_layout_matters(every_state):
    for (T, h, d, v, s), told in every_state:
        words = " ".join(told["words"])
        copies = min(T, h, d) > 1
        relevant = VARIANTS[v]["stages"][-1] == "merge" and STEPS[s] in ("attend", "merge")
        assert (said(FUSED) in words) == (relevant and copies), (T, h, d, v, s)
        assert (said(FREE) in words) == (relevant and not copies), (T, h, d, v, s)


FEW = [
    [T, h, d, v, s]
    for T, h, d in ((1, 1, 1), (4, 2, 3), (4, 1, 4), (6, 2, 3), (6, 3, 4), (6, 4, 1), (6, 4, 3), (6, 4, 4))
    for v in range(len(VARIANTS))
    for s in range(len(STEPS))
]


@pytest.mark.parametrize("width", [360, 390])
def test_a_phone_shows_step_status_and_board_together_in_a_size_to_read(visit, address, width):
    page = visit(width=width, height=844).open(f"{address}/book/reshape.html")
    seen = walk(
        page,
        FEW,
        """(root, host) => {
            const box = (e) => e.getBoundingClientRect();
            const sizes = (selector) => [...root.querySelectorAll(selector)].map((e) => parseFloat(getComputedStyle(e).fontSize));
            const spills = (e) => {
                const range = document.createRange();
                range.selectNodeContents(e);
                return box(range).left < box(e).left - 0.1 || box(range).right > box(e).right + 0.1;
            };
            const board = root.querySelector(".sh-board");
            const control = [...root.children].find((c) => c.contains(host)).previousElementSibling;
            return {
                step: control.innerText.includes("transpose"),
                order: [control, root.querySelector(".sh-status"), board, root.querySelector(".sh-numbers"),
                    root.querySelector(".sh-strip"), root.querySelector(".sh-steps"), root.querySelector(".sh-reads")].map((e) => box(e).top),
                height: box(board).bottom - box(control).top,
                board: Math.min(...sizes(".sh-board .sh-cell")), strip: Math.min(...sizes(".sh-strip .sh-cell")),
                table: Math.min(...sizes(".sh-steps :is(th, td)")),
                spilled: [...root.querySelectorAll(".sh-cell")].filter(spills).map((e) => e.textContent),
                wide: document.scrollingElement.scrollWidth,
                out: [...host.querySelectorAll("*")].filter((e) => box(e).right > box(host).right + 0.5).map((e) => e.outerHTML.slice(0, 80)),
            };
        }""",
    )
    for state, told in zip(FEW, seen, strict=True):
        assert told["step"], state
        assert told["order"] == sorted(told["order"]), state
        assert told["height"] <= 760, (state, told["height"])
        assert told["board"] >= 10, state
        assert told["strip"] >= 11, state
        assert told["table"] >= 12, state
        assert told["spilled"] == [], state
        assert (told["wide"], told["out"]) == (width, []), state


@pytest.mark.parametrize("width", [390, 1280])
def test_a_locked_prediction_says_where_its_outcome_is_and_leads_there(visit, address, width):
    page = visit(width=width, height=844).open(f"{address}/book/reshape.html")
    panel = page.locator(PANEL)
    line = panel.locator(".sh-jump")
    assert not line.is_visible()
    option = panel.get_by_role("button", name="It raises an error")
    option.click()
    assert line.inner_text() == "The panel below now shows variant “direct view”, step “view” ↓"
    below = line.bounding_box()["y"] - option.bounding_box()["y"]
    assert 0 < below < 200, "the line stands under the options, before the long verdict"
    choose(panel, "correct")
    assert line.inner_text() == "Show variant “direct view”, step “view” in the panel below again ↓"
    line.focus()
    page.keyboard.press("Enter")
    assert line.inner_text().startswith("The panel below now shows")
    assert status(panel).startswith("silently wrong:")
    assert page.evaluate("document.activeElement.closest('label').innerText.trim()") == "view"
    for part in (
        panel.get_by_role("radio", name="view", exact=True),
        panel.locator(".sh-status"),
        panel.locator(".sh-board"),
    ):
        box = part.bounding_box()
        assert box["y"] >= 0, part
        assert box["y"] + box["height"] <= 844, part


def rgb(colour: str) -> str:
    return f"rgb({', '.join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5))})"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_chosen_by_the_reader_leave_the_cells_theirs(visit, address, scheme):
    seen = visit(forced_colors="active", color_scheme=scheme)
    page = seen.open(f"{address}/book/reshape.html#reshape?T=4&n_heads=2&d_head=3&step=3&variant=1")
    assert page.evaluate("matchMedia('(forced-colors: active)').matches")
    style = "(e, name) => getComputedStyle(e)[name]"
    for where in (".sh-board .sh-cell", ".sh-strip .sh-cell", ".sh-reads .sh-read"):
        for cell in page.locator(f"{PANEL} {where}").all():
            head = int(cell.get_attribute("data-head"))
            assert cell.evaluate(style, "backgroundColor") == rgb(HEADS[head]), where
    for notch in page.locator(f"{PANEL} :is(.sh-notch, .sh-cell[data-astray])").all():
        assert "gradient" in notch.evaluate(style, "backgroundImage")
        assert notch.evaluate(style, "forcedColorAdjust") == "none"
    rows = page.locator(f"{PANEL} .sh-steps tbody th").all()
    assert [row.inner_text().split()[-1] for row in rows] == ["projected", "✗", "✗", "✗", "✗"]
    assert [row.evaluate(style, "borderLeftWidth") for row in rows] == ["0px", "0px", "0px", "4px", "0px"]


def test_paper_keeps_the_colours_and_drops_what_can_only_be_pressed(panel):
    panel.get_by_role("button", name="It raises an error").click()
    page = panel.page
    page.emulate_media(media="print")
    for where in (".sh-board .sh-cell", ".sh-strip .sh-cell", ".sh-reads .sh-read", ".sh-notch"):
        for cell in panel.locator(where).all():
            assert (
                cell.evaluate(
                    "(e) => getComputedStyle(e).printColorAdjust || getComputedStyle(e).webkitPrintColorAdjust"
                )
                == "exact"
            )
    assert not panel.locator(".sh-chips").is_visible()
    assert not panel.locator(".sh-jump").is_visible()
    assert not panel.get_by_text("Sizes worth a look:").is_visible()
    assert panel.locator(".sh-numbers").is_visible()
