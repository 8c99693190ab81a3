"""Panel *reshape* in a real browser: keys, prediction, address, and every state its sliders allow against torch."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from splitheads.attention import shares_memory
from splitheads.panels.reshape import STEPS, VARIANTS

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


def test_every_state_of_the_sliders_equals_what_torch_reports(panel):
    asked = [[T, h, d, v, s] for T, h, d in SIZES for v in range(len(VARIANTS)) for s in range(len(STEPS))]
    seen = panel.page.evaluate(
        """async (asked) => {
            const root = document.querySelector("[data-panel=reshape]");
            const host = root.querySelector("[data-step]");
            const told = [];
            for (const [T, h, d, v, s] of asked) {
                const before = location.hash;
                location.hash = `#reshape?T=${T}&n_heads=${h}&d_head=${d}&step=${s}&variant=${v}`;
                if (location.hash !== before) await new Promise((r) => addEventListener("hashchange", r, { once: true }));
                const numbers = (text) => text.split(",").map(Number);
                const cells = [...root.querySelectorAll(".sh-board .sh-cell")].map((c) =>
                    [numbers(c.dataset.index), Number(c.dataset.offset), Number(c.dataset.origin)]);
                cells.sort(([a], [b]) => { for (const i in a) if (a[i] !== b[i]) return a[i] - b[i]; return 0; });
                told.push({
                    shape: numbers(host.dataset.shape), strides: numbers(host.dataset.strides),
                    contiguous: host.dataset.contiguous, memory: host.dataset.memory,
                    cells: cells.map(([, offset, origin]) => [offset, origin]),
                    strip: [...root.querySelectorAll(".sh-strip .sh-cell")].map((c) => [Number(c.dataset.offset), Number(c.dataset.origin)]),
                });
            }
            return told;
        }""",
        asked,
    )
    states = iter(zip(asked, seen, strict=True))
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
