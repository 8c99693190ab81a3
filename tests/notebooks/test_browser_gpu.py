"""Panel *browser GPU* in JupyterLab: the same sweep as on the site, and Python beside it gets the recording."""

from __future__ import annotations

from types import SimpleNamespace

from conftest import Visit
from lab import foreign, menu, open_notebook, run_cell, write_notebook
from playwright.sync_api import Browser, expect

CELLS = (
    """# make: a short sweep of one head size
from splitheads.panels import browser_gpu
panel = browser_gpu(question={})
panel._named["head sizes"].index, panel._named["kernels"].index, panel._named["T"].index = 3, 1, 1
panel._named["seconds"].index = 2
panel""",
    """# ask: what Python has
from splitheads.timing.record import validate
validate(panel.recording)
print(panel.recording["device"]["name"], len(panel.recording["points"]), panel.d_head.value)""",
    """# again: the recording in a new panel
browser_gpu([panel.recording], question={})""",
)


def test_a_sweep_in_a_notebook(lab: SimpleNamespace, gpu_chrome: Browser):
    write_notebook(lab.folder / "browser-gpu-panel.ipynb", *CELLS)
    context = gpu_chrome.new_context(viewport={"width": 1280, "height": 1400})
    context.set_default_timeout(60_000)
    seen = Visit(context.new_page())
    page = seen.page
    open_notebook(page, lab.url, "browser-gpu-panel")
    run_cell(page, "# make:")
    panel = page.locator("[data-panel=webgpu][data-live]").first
    panel.wait_for()
    panel.scroll_into_view_if_needed()
    panel.get_by_role("button", name="Time my GPU").click()
    panel.locator(".sh-timing[data-live=true][data-points='4']").wait_for()
    panel.get_by_role("button", name="Stop").click()
    panel.locator(".sh-progress[data-state=done]").wait_for()
    assert panel.locator(".sh-chart .sh-point").count() == 4
    run_cell(page, "# ask:")
    expect(page.get_by_text("google swiftshader 4 80")).to_be_visible()
    run_cell(page, "# again:")
    again = page.locator("[data-panel=webgpu][data-live]").nth(1)
    again.wait_for()
    again.scroll_into_view_if_needed()
    again.locator("[data-loaded]").wait_for(state="attached")
    expect(again.locator(".sh-source")).to_contain_text("google swiftshader")
    assert again.locator(".sh-chart .sh-point").count() == 4
    assert [one for one in seen.complaints if "webgpu" in one.lower() or "uncaught" in one] == []
    assert foreign(seen) == []
    menu(page, "Kernel", "kernelmenu:shutdown")
    context.close()
