"""Panel *timing lab* in JupyterLab: Run, Stop, interrupt and restart; what was measured is kept, saved and shown again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from conftest import Visit
from lab import foreign, menu, open_notebook, run_cell, write_notebook
from playwright.sync_api import BrowserContext, Locator, expect
from splitheads.timing.record import load

CELLS = (
    """# make: a panel with a small plan
from splitheads.panels import timing_lab
panel = timing_lab(recordings=[], question={})
panel.seq_lens.value, panel.d_heads.value, panel.budget_s.value = "128, 192", "16, 32, 48, 64", 60
panel""",
    """# ask: what Python has
import json
kept = panel.recording
print(json.dumps([panel.running, kept and kept["ended"], kept and sum(p["status"] == "ok" for p in kept["points"])]))""",
    """# wait: a short run from Python, with what a reader might do wrong before it
panel.budget_s.value = 60
try:
    panel.run()
    panel.run()
except RuntimeError as error:
    print(error)
panel.stop()
while panel.running:
    pass
panel.d_heads.value, panel.budget_s.value, panel.seq_lens.value = "16, 32", 2, "64"
print(panel.run(wait=True)["ended"])""",
    """# again: what was saved, in a new panel
timing_lab(recordings=["my-timing.json"], question={})""",
)


@pytest.fixture(scope="module")
def notebook(lab: SimpleNamespace, profile: BrowserContext) -> Iterator[SimpleNamespace]:
    """A notebook with one panel, its first cell run: `.page`, `.seen`, `.panel`, `.folder`."""
    write_notebook(lab.folder / "timing-panel.ipynb", *CELLS)
    seen = Visit(profile.new_page())
    page = seen.page
    open_notebook(page, lab.url, "timing-panel")
    run_cell(page, "# make:")
    panel = page.locator("[data-panel=timing][data-live]").first
    panel.wait_for()
    yield SimpleNamespace(page=page, seen=seen, panel=panel, folder=lab.folder)
    menu(page, "Kernel", "kernelmenu:shutdown")
    expect(page.locator("#jp-main-statusbar")).to_contain_text("No Kernel")
    page.close()


@pytest.fixture(autouse=True)
def at_rest(notebook: SimpleNamespace) -> Iterator[None]:
    """A test that fails in the middle of a run leaves no run behind for the next."""
    yield
    if notebook.panel.locator("progress").is_visible():
        button(notebook.panel, "Stop").click()
        ended(notebook)


def button(panel: Locator, name: str) -> Locator:
    return panel.get_by_role("button", name=name, exact=True)


def ask(notebook: SimpleNamespace) -> tuple[bool, str | None, int | None]:
    return tuple(json.loads(run_cell(notebook.page, "# ask:")))


def start(notebook: SimpleNamespace, points: int) -> None:
    """Press Run, and wait until so many points are in the chart."""
    button(notebook.panel, "Run").click()
    view = notebook.panel.locator(".sh-timing")
    expect(view).to_have_attribute("data-live", "true", timeout=60_000)
    notebook.page.wait_for_function(
        "(least) => Number(document.querySelector('.sh-timing').dataset.points) >= least", arg=points, timeout=60_000
    )


def ended(notebook: SimpleNamespace) -> None:
    expect(notebook.panel.locator(".sh-timing")).to_have_attribute("data-live", "false", timeout=60_000)
    expect(button(notebook.panel, "Run")).to_be_enabled()


def test_stop_keeps_what_was_measured_and_save_writes_it(notebook):
    panel = notebook.panel
    news = panel.locator(".sh-news")
    assert button(panel, "Stop").is_disabled()
    assert button(panel, "Save").is_disabled()
    expect(panel.locator("[role=status]").first).to_contain_text("Press Run")
    start(notebook, 3)
    # While it measures: no second run, a bar with the time left, and a kernel that is free to answer.
    assert button(panel, "Run").is_disabled()
    expect(panel.locator("progress")).to_be_visible()
    expect(news).to_contain_text(re.compile(r"\d+ of 16 points seen, about \d+ s left"))
    running, before, _ = ask(notebook)
    assert running
    assert before is None
    seen = int(panel.locator(".sh-timing").get_attribute("data-points"))
    button(panel, "Stop").click()
    ended(notebook)
    expect(news).to_contain_text(re.compile(r"Stopped: \d+ of 16 points measured, and kept\."))
    running, how, points = ask(notebook)
    assert not running
    assert how == "interrupted"
    assert points >= seen >= 3
    # Both T are in the recording; the chart shows one of them.
    assert panel.locator(".sh-chart .sh-point").count() >= 3

    panel.locator("input[type=text]").last.fill("my-timing.json")
    button(panel, "Save").click()
    expect(news).to_contain_text("Saved as ")
    recording = load(notebook.folder / "my-timing.json")
    assert recording["ended"] == "interrupted"
    assert sum(point["status"] == "ok" for point in recording["points"]) == points
    assert recording["command"].startswith("panel timing_lab: Plan(device='cpu'")
    button(panel, "Save").click()  # the same once more is the same file, not another
    assert len(list(notebook.folder.glob("my-timing*.json"))) == 1


def test_what_was_saved_is_shown_again(notebook):
    run_cell(notebook.page, "# again:")
    again = notebook.page.locator("[data-panel=timing][data-live]").last
    expect(again.locator(".sh-source")).to_contain_text("kernels as predicted")
    assert notebook.page.locator("[data-panel=timing][data-live]").count() == 2
    assert again.locator(".sh-chart .sh-point").count() == notebook.panel.locator(".sh-chart .sh-point").count()
    assert again.locator("select").last.locator("option").count() == 1


def test_interrupting_the_kernel_stops_a_run_and_keeps_it(notebook):
    start(notebook, 3)
    menu(notebook.page, "Kernel", "kernelmenu:interrupt")
    ended(notebook)
    expect(notebook.panel.locator(".sh-news")).to_contain_text("Stopped: ")
    running, how, points = ask(notebook)
    assert (running, how) == (False, "interrupted")
    assert points >= 3
    assert notebook.panel.locator("select").last.locator("option").count() == 2, "one for each run"


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("0", "d_head = 0 is too small. Give 1 or more."),
        ("64, x", "'x' is neither a number nor a range."),
        ("", "d_heads is empty"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_in_words(notebook, typed, said):
    box = notebook.panel.locator(".widget-text:has(.widget-label:text-is('d_head')) input")
    box.fill(typed)
    button(notebook.panel, "Run").click()
    expect(notebook.panel.locator(".sh-news")).to_contain_text(said)
    expect(notebook.panel.locator("p.sh-heard[role=status]")).to_contain_text(said)
    expect(button(notebook.panel, "Run")).to_be_enabled()
    box.fill("16, 32, 48, 64")
    box.press("Tab")


def test_python_runs_it_too_and_not_twice_at_once(notebook):
    told = run_cell(notebook.page, "# wait:")
    assert "A run is under way: wait for its end, or press Stop." in told
    assert told.strip().endswith(("complete", "budget"))


def test_a_restarted_kernel_is_not_waited_for(notebook):
    notebook.panel.locator(".widget-text:has(.widget-label:text-is('T')) input").fill("128, 192")
    start(notebook, 1)
    menu(notebook.page, "Kernel", "kernelmenu:restart")
    notebook.page.locator(".jp-Dialog .jp-mod-accept").click()
    news = notebook.panel.locator(".sh-news")
    expect(news).to_contain_text("The kernel that measured is gone", timeout=60_000)
    expect(notebook.panel.locator("progress")).to_be_hidden()
    assert notebook.panel.locator(".sh-chart .sh-point").count() >= 1, "what had arrived stays"


def test_no_other_host_and_no_complaint(notebook):
    assert foreign(notebook.seen) == []
    assert notebook.seen.complaints == []
