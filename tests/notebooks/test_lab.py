"""The chapters in JupyterLab: every cell runs, a panel and Python move each other, no other host is asked."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlparse

import nbformat
import pytest
from conftest import ROOT, Visit, pages_with_panels
from lab import CARDS, foreign, menu, open_notebook, run_cell
from playwright.sync_api import BrowserContext, Locator, Page, expect

FIND = "# find: the first panel with sliders that this notebook has shown"
READ = "# read: what the sliders say"
MOVE = "# move: the last slider, one step down"
EXTRA = [
    f"""{FIND}
import json
from ipywidgets import IntSlider
from splitheads.panels.kit import Panel
panels = [p for p in Out.values() if isinstance(p, Panel) and any(isinstance(c, IntSlider) for c in p.children)]
panel = panels[0] if panels else None
names = [c.description for c in panel.children if isinstance(c, IntSlider)] if panel else []""",
    f"{READ}\nprint(json.dumps({{name: getattr(panel, name).value for name in names}}))",
    f"{MOVE}\nif names:\n    getattr(panel, names[-1]).value -= 1",
]
"""Cells that a reader might add at the end of a chapter."""

SLIDERS = "[data-panel]:has([role=slider])"


def write_chapter(book: Path, name: str) -> None:
    """The chapter as a notebook, with the cells of EXTRA at its end."""
    exporter = runpy.run_path(str(ROOT / "scripts" / "export_notebooks.py"))
    chapter = book / f"{name}.md"
    assert exporter["export"](chapter) == "written"
    notebook = nbformat.read(chapter.with_suffix(".ipynb"), as_version=4)
    notebook.cells += [nbformat.v4.new_code_cell(text) for text in EXTRA]
    nbformat.write(notebook, chapter.with_suffix(".ipynb"))


@pytest.fixture(scope="module", params=pages_with_panels())
def notebook(
    request: pytest.FixtureRequest, lab: SimpleNamespace, profile: BrowserContext
) -> Iterator[SimpleNamespace]:
    """A chapter, opened in Lab, all its cells run: `.page`, `.seen`, `.sockets`, `.cells` (the file's)."""
    name = request.param.removeprefix("book/")
    seen = Visit(profile.new_page())
    sockets: list[str] = []
    page = seen.page
    page.on("websocket", lambda socket: sockets.append(socket.url))
    write_chapter(lab.folder, name)
    open_notebook(page, lab.url, name)
    menu(page, "Run", "runmenu:run-all")
    page.locator("[data-panel][data-live]").first.wait_for(timeout=120_000)
    cells = nbformat.read(lab.folder / f"{name}.ipynb", as_version=4).cells
    page.wait_for_function(
        """(wanted) => [...document.querySelectorAll(".jp-CodeCell .jp-InputPrompt")]
            .filter((prompt) => /\\[\\d+\\]/.test(prompt.textContent)).length >= wanted""",
        arg=sum(cell.cell_type == "code" for cell in cells),
        timeout=180_000,
    )
    yield SimpleNamespace(name=name, page=page, seen=seen, sockets=sockets, cells=cells)
    menu(page, "Kernel", "kernelmenu:shutdown")  # else every chapter's kernel would hold its memory to the end
    expect(page.locator("#jp-main-statusbar")).to_contain_text("No Kernel")
    page.close()


def read_python(page: Page) -> dict[str, int]:
    return json.loads(run_cell(page, READ))


def handle(panel: Locator, name: str) -> Locator:
    return panel.locator(".widget-hslider", has=panel.page.locator(f".widget-label:text-is('{name}')")).locator(
        "[role=slider]"
    )


def status(panel: Locator) -> Locator:
    return panel.locator("[role=status]").first


def now(slider: Locator) -> float:
    return float(slider.get_attribute("aria-valuenow"))


def sentence(panel: Locator) -> str:
    """The status line, whether or not it is scrolled into sight (`inner_text` is empty where it is not)."""
    return status(panel).text_content()


def test_every_cell_ran_and_only_the_lessons_raised(notebook):
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    raised = notebook.page.evaluate(
        """() => [...document.querySelectorAll(".jp-CodeCell")].map((cell) =>
            Boolean(cell.querySelector("[data-mime-type='application/vnd.jupyter.error'], [data-mime-type='application/vnd.jupyter.stderr']")))"""
    )
    assert len(raised) == len(code), "not every code cell of the file is in the page"
    for cell, did in zip(code, raised, strict=True):
        meant = "raises-exception" in cell.metadata.get("tags", [])
        assert did == meant, f"this cell {'raised' if did else 'did not raise'} in JupyterLab:\n{cell.source}"


def test_the_panels_are_live_and_their_printed_twins_hidden(notebook):
    page = notebook.page
    panels, twins = page.locator(".jp-OutputArea .sh-panel"), page.locator(".jp-OutputArea .sh-twin")
    assert panels.count() >= 1
    expect(page.locator(".sh-panel[data-panel][data-live]")).to_have_count(panels.count())
    assert twins.count() == panels.count(), "each panel prints one twin"
    for twin in twins.all():
        assert not twin.is_visible(), (
            f"the printed twin of {twin.get_attribute('data-twin')} stands beside its live panel"
        )


NO_SLIDERS = {"timing-lab", "doctor"}
"""Chapters whose panels have none; in all others the two tests below want one."""


def without_sliders(notebook) -> bool:
    found = notebook.page.locator(SLIDERS).count()
    assert (found == 0) == (notebook.name in NO_SLIDERS), f"{found} panels with sliders in {notebook.name}"
    return found == 0


def test_an_arrow_key_moves_the_view_and_python_reads_it(notebook):
    if without_sliders(notebook):
        return
    panel = notebook.page.locator(SLIDERS).first
    wanted = read_python(notebook.page)
    for name, value in wanted.items():
        slider = handle(panel, name)
        assert now(slider) == value, f"{name}: the page says {now(slider)}, Python {value}, before anything was moved"
        top = value == float(slider.get_attribute("aria-valuemax"))
        said = sentence(panel)
        slider.focus()
        slider.press("ArrowLeft" if top else "ArrowRight")
        wanted[name] += -1 if top else 1
        expect(status(panel)).not_to_have_text(said)
        assert now(slider) == wanted[name], name
    assert read_python(notebook.page) == wanted, "Python does not read what the reader's hand has set"


def test_python_moves_the_slider_and_the_view(notebook):
    if without_sliders(notebook):
        return
    panel = notebook.page.locator(SLIDERS).first
    before = read_python(notebook.page)
    name = list(before)[-1]
    said = sentence(panel)
    run_cell(notebook.page, MOVE)
    after = {**before, name: before[name] - 1}
    expect(status(panel)).not_to_have_text(said)
    assert {key: now(handle(panel, key)) for key in after} == after, f"after panel.{name}.value -= 1"
    assert read_python(notebook.page) == after, "the page has answered Python with another value"
    if panel.get_attribute("data-panel") == "partition":
        d, h = after["d_model"], after["num_heads"]
        expected = (
            f"d_head = {d // h:,}: " if d % h == 0 else f"no whole d_head: {d:,} = {h} × {d // h:,} + {d % h}, so "
        )
        assert sentence(panel).startswith(expected)


CONTRAST = """(panel) => {
    const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 });
    const g = canvas.getContext("2d", { willReadFrequently: true });
    const rgba = (css) => {
        g.clearRect(0, 0, 1, 1); g.fillStyle = css; g.fillRect(0, 0, 1, 1);
        const [r, gr, b, a] = g.getImageData(0, 0, 1, 1).data; return [r, gr, b, a / 255];
    };
    const light = ([r, gr, b]) => [r, gr, b].map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const behind = (node) => {
        for (let e = node; e; e = e.parentElement) { const c = rgba(getComputedStyle(e).backgroundColor); if (c[3] > 0.99) return c; }
        return [255, 255, 255, 1];
    };
    const found = [];
    for (const node of panel.querySelectorAll("*")) {
        const text = [...node.childNodes].filter((n) => n.nodeType === 3).map((n) => n.data.trim()).join(" ").trim();
        const value = text || (node.matches("input[type=text], textarea, select") ? node.value : "");
        if (!value || !node.checkVisibility({ opacityProperty: true, visibilityProperty: true }) || node.closest("svg, style, script")) continue;
        const [a, b] = [light(rgba(getComputedStyle(node).color)), light(behind(node))].sort((x, y) => y - x);
        found.push({ text: value.slice(0, 60), where: `${node.tagName}.${node.className}`, contrast: (a + 0.05) / (b + 0.05) });
    }
    return found;
}"""


@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_every_word_of_a_panel_is_legible(notebook, theme):
    page = notebook.page
    switch(page, theme)
    try:
        for panel in page.locator(".sh-panel").all():
            words = panel.evaluate(CONTRAST)
            assert len(words) > 3
            faint = [f"{w['contrast']:.2f}:1 {w['where']} {w['text']!r}" for w in words if w["contrast"] < 4.5]
            assert faint == [], f"on JupyterLab's {theme.lower()} theme"
            ink, paper = panel.evaluate("(p) => ['color', 'backgroundColor'].map((key) => getComputedStyle(p)[key])")
            dark = ("rgb(232, 235, 238)", "rgb(22, 25, 29)")  # --sh-ink and --sh-paper of kit.css, dark
            assert ((ink, paper) == dark) == (theme == "Dark"), (ink, paper)
    finally:
        switch(page, "Light")


def switch(page: Page, theme: str) -> None:
    page.locator(".lm-MenuBar-item", has_text="Settings").click()
    page.locator(".lm-Menu-item", has_text="Theme").first.hover()
    page.locator(f".lm-Menu-item[data-command='apputils:change-theme']:has-text('JupyterLab {theme}')").first.click()
    page.wait_for_selector(f"body[data-jp-theme-light='{str(theme == 'Light').lower()}']", state="attached")


def test_a_pointer_on_a_link_to_an_issue_is_no_complaint(notebook):
    """Where the pointer rests after the tests above is chance, so one of them is made sure of."""
    text = "".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    links = notebook.page.locator(
        ".jp-MarkdownCell a.hover-link:is([href*='github.com'][href*='/issues/'], [href*='github.com'][href*='/pull/'])"
    )
    assert links.count() > 0 or not re.search(r"github\.com/[^)\s]+/(issues|pull)/\d", text)
    if not links.count():
        return
    link = links.first
    link.scroll_into_view_if_needed()
    with notebook.page.expect_response(f"{CARDS}**") as answer:
        link.hover()
    assert answer.value.ok
    notebook.page.locator(".hover-document", has_text="A card").wait_for()
    notebook.page.mouse.move(0, 0)


def test_lab_asked_no_other_host_and_no_view_complained(notebook):
    """Last, so that it sees all that the tests above have done."""
    assert foreign(notebook.seen) == []
    assert notebook.sockets, "no websocket seen: then this test would not see a foreign one either"
    assert {urlparse(url).hostname for url in notebook.sockets} == {"127.0.0.1"}
    assert notebook.seen.complaints == []
