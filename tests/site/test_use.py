"""The site in use: menus, coming back, paper, the reader's own colours, a first visit."""

from __future__ import annotations

import pytest
from conftest import at_rest, drawn, pages, pages_with_panels

PANEL = "[data-panel=partition]"


@pytest.mark.parametrize("name", pages())
def test_a_first_visit_is_quiet(visit, address, name):
    seen = visit(theme=None)
    page = seen.open(f"{address}/{name}.html")
    assert seen.complaints == []
    assert page.evaluate("document.documentElement.dataset.theme") in ("light", "dark")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_first_visit_follows_the_readers_system(visit, address, scheme):
    page = visit(theme=None, color_scheme=scheme).open(f"{address}/book/index.html")
    assert page.evaluate("document.documentElement.dataset.theme") == scheme


def test_the_chapter_menu_opens_on_a_phone(visit, address):
    page = visit(width=390, height=844).open(f"{address}/book/partition-rule.html")
    page.locator("button.primary-toggle:visible").click()
    menu = page.get_by_role("link", name="The reshape").first
    menu.wait_for(state="visible")
    menu.click()
    page.wait_for_url("**/book/reshape.html")


def test_the_contents_of_a_page_open_on_a_phone(visit, address):
    page = visit(width=390, height=844).open(f"{address}/book/partition-rule.html")
    page.locator("button.secondary-toggle:visible").click()
    entry = page.locator("dialog[open] a", has_text="When it does not divide")
    entry.wait_for(state="visible")
    entry.click()
    page.wait_for_url("**#when-it-does-not-divide")


def test_the_sidebar_folds_on_a_desk(visit, address):
    page = visit().open(f"{address}/book/partition-rule.html")
    sidebar = page.locator("#pst-primary-sidebar")
    before = sidebar.bounding_box()
    page.locator("button.primary-toggle:visible").click()
    page.wait_for_function(
        """(left) => {
            const after = document.querySelector("#pst-primary-sidebar").getBoundingClientRect();
            return !after.width || after.right <= left + 5;
        }""",
        arg=before["x"],
    )


@pytest.mark.parametrize("scheme", ["http", "file"])
def test_who_comes_back_finds_their_place(visit, address, site, scheme):
    base = address if scheme == "http" else site.as_uri()
    page = visit().open(f"{base}/book/partition-rule.html")
    page.locator(PANEL).get_by_role("slider", name="num_heads").press("ArrowRight")
    page.wait_for_url("**#partition?**")
    page.evaluate("scrollTo(0, 2500)")
    page.wait_for_timeout(200)
    page.goto(f"{base}/book/references.html")
    page.go_back()
    page.wait_for_selector(f"{PANEL}[data-live]")
    page.wait_for_function("Math.abs(scrollY - 2500) < 200")
    page.wait_for_timeout(500)
    assert abs(page.evaluate("scrollY") - 2500) < 200, "and it stays theirs"
    assert "13" in page.locator(f"{PANEL} p[role=status]").inner_text(), "and the panel as they left it"


def test_a_link_to_a_panel_arrives_at_the_panel(visit, address):
    for fragment in ("partition?d_model=1600&num_heads=48", "partition%3Fd_model=1600&num_heads=48", "partition"):
        page = visit(height=500).open(f"{address}/book/index.html#{fragment}")
        at_rest(page)
        box = page.locator(PANEL).bounding_box()
        assert -5 <= box["y"] < 200, fragment


def test_a_section_stays_in_the_history_when_a_panel_moves(visit, address):
    url = f"{address}/book/partition-rule.html"
    page = visit().open(f"{url}#when-it-does-not-divide")
    page.locator(PANEL).get_by_role("slider", name="num_heads").press("ArrowRight")
    page.wait_for_url("**#partition?**")
    page.go_back()
    assert page.url == f"{url}#when-it-does-not-divide"


def test_paper_has_light_no_folds_and_no_buttons(visit, address):
    page = visit(theme="dark").open(f"{address}/book/partition-rule.html")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.emulate_media(media="print")
    page.wait_for_function("document.documentElement.dataset.theme === 'light'")
    drawn(page)
    assert page.locator("article details").count() >= 6
    assert page.locator("article details:not([open])").count() == 0
    assert page.locator(".sh-chips:visible").count() == 0
    page.emulate_media(media="screen")
    page.wait_for_function("document.documentElement.dataset.theme === 'dark'")
    drawn(page)
    assert page.locator("article details[open]").count() == 0


def test_a_pressed_preset_is_seen_in_the_readers_own_colours(visit, address):
    page = visit(forced_colors="active").open(f"{address}/book/partition-rule.html")
    width = "getComputedStyle(document.querySelector('[data-preset][aria-pressed={}]')).borderTopWidth"
    assert page.evaluate(width.format("true")) == "3px"
    assert page.evaluate(width.format("false")) == "1px"


def test_panels_survive_without_storage(visit, address):
    seen = visit(theme=None)
    seen.page.add_init_script(
        "Object.defineProperty(window, 'localStorage', {get() { throw new DOMException('denied', 'SecurityError'); }})"
    )
    page = seen.open(f"{address}/book/partition-rule.html")
    page.locator(PANEL).get_by_role("slider", name="num_heads").press("ArrowRight")
    assert page.locator(f"{PANEL} p[role=status]").inner_text().startswith("no whole d_head: 768 = 13")


def test_code_does_not_leave_a_phone(visit, address):
    page = visit(width=390, height=844).open(f"{address}/book/reshape.html")
    cut = page.evaluate(
        "[...document.querySelectorAll('.cell_input pre')].filter((p) => p.scrollWidth > p.clientWidth + 1).length"
    )
    assert cut == 0


@pytest.mark.parametrize(("width", "text"), [(240, "100%"), (390, "200%")])
@pytest.mark.parametrize("name", [name for name in pages_with_panels() if name != "book/reshape"])
def test_large_text_and_a_narrow_window_make_no_page_wider_than_its_window(visit, address, name, width, text):
    seen = visit(width=width, height=844)
    seen.page.add_init_script(
        f"addEventListener('DOMContentLoaded', () => document.documentElement.style.fontSize = '{text}')"
    )
    page = seen.open(f"{address}/{name}.html")
    drawn(page)
    cut = page.evaluate(
        """() => [document.scrollingElement.scrollWidth, [...document.querySelectorAll(".sh-panel :is(button, .sh-bar-told, .sh-bar-name)")]
            .filter((e) => e.checkVisibility() && !e.closest(".sh-shelf") && (e.scrollWidth > e.clientWidth + 1 && e.clientWidth
                || e.getBoundingClientRect().right > e.closest(".sh-panel").getBoundingClientRect().right))
            .map((e) => e.textContent)]"""
    )
    assert cut == [width, []]


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", ["book/fast-path", "book/timing-lab", "book/browser-gpu"])
def test_a_panel_is_as_high_as_the_room_that_is_kept_for_it(visit, address, name, width):
    """Higher, and the text below jumps when the panel comes to life; lower, and there is a hole under it."""
    page = visit(width=width, height=844).open(f"{address}/{name}.html")
    if name == "book/browser-gpu":  # the rest of it comes when the reader does
        page.locator(".sh-stage").scroll_into_view_if_needed()
        page.locator("[data-loaded]").wait_for(state="attached")
    at_rest(page)
    rooms = page.evaluate(
        """() => Object.fromEntries(["fastpath", "kernels", "timing", "webgpu"].map((name) => document.querySelector(`[data-twin=${name}]`))
            .filter(Boolean).map((twin) => [twin.dataset.twin, [parseFloat(getComputedStyle(twin.closest(".cell_output")).minHeight),
                twin.closest(".cell_output").querySelector(".splitheads-widget").firstElementChild.getBoundingClientRect().height + 38.4]]))"""
    )
    assert rooms
    for panel, (room, height) in rooms.items():
        assert abs(room - height) < 30, panel


@pytest.mark.parametrize("name", pages())
def test_wide_figures_stay_legible_on_a_phone(visit, address, name):
    page = visit(width=390, height=844).open(f"{address}/{name}.html")
    small = page.evaluate(
        """() => [...document.querySelectorAll(".sh-plot[data-figure] svg text")].map((t) => t.getBoundingClientRect())
            .filter((box) => box.height && Math.max(box.height, box.width) < 9).length"""
    )
    widths = page.evaluate(
        """() => [...document.querySelectorAll('.sh-plot > svg')].filter((e) => e.checkVisibility())
            .map((e) => [e.clientWidth, parseFloat(e.style.maxWidth)])"""
    )
    # A figure that is narrower by nature is shown whole.
    assert all(wide >= min(500, own - 1) for wide, own in widths)
    assert small == 0
    assert page.evaluate("document.scrollingElement.scrollWidth") == 390


@pytest.mark.parametrize("name", pages())
def test_no_code_and_no_output_is_cut_off_on_a_desk(visit, address, name):
    page = visit().open(f"{address}/{name}.html")
    cut = page.evaluate(
        """[...document.querySelectorAll("article pre")]
            .filter((p) => p.offsetParent && p.scrollWidth > p.clientWidth + 1)
            .map((p) => p.textContent.split("\\n").sort((a, b) => b.length - a.length)[0])"""
    )
    assert cut == []


def test_figures_follow_the_dark(visit, address):
    page = visit(theme="dark").open(f"{address}/book/reshape.html")
    behind = page.evaluate(
        """() => { const seen = []; for (let e = document.querySelector(".sh-plot"); e; e = e.parentElement)
            seen.push(getComputedStyle(e).backgroundColor);
            return seen.find((colour) => colour !== "rgba(0, 0, 0, 0)"); }"""
    )
    assert max(int(part) for part in behind[4:-1].split(",")[:3]) < 60, behind


def test_without_scripts_the_page_is_dressed(visit, address):
    page = visit(theme=None, java_script_enabled=False).open(f"{address}/book/reshape.html", live=False)
    assert page.locator("html").get_attribute("data-theme") == "light"
