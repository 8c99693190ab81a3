"""Every page, as a stranger's browser meets it: no network, no complaints, no overflow, axe's rules."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import pages, pages_with_panels

EXTRA = ["genindex", "search"]


@pytest.mark.parametrize("scheme", ["http", "file"])
@pytest.mark.parametrize("name", pages())
def test_a_page_needs_no_other_host_and_does_not_complain(visit, address, site, name, scheme):
    seen = visit()
    seen.open(f"{address}/{name}.html" if scheme == "http" else (site / f"{name}.html").as_uri())
    seen.page.wait_for_load_state("networkidle")
    assert seen.foreign == []
    assert seen.fonts == [], "the house style draws its icons; a font is weight that nobody sees"
    assert seen.complaints == []


def test_the_front_door_leads_to_the_index(visit, address):
    seen = visit()
    page = seen.open(f"{address}/", live=False)
    page.wait_for_url("**/book/index.html")
    assert page.locator("h1").first.inner_text().startswith("Splitting Heads")


# Colours are the theme's and layouts the width's, so two pairs see all four.
@pytest.mark.parametrize(("theme", "width"), [("dark", 1280), ("light", 390)])
@pytest.mark.parametrize("name", [*pages(), *EXTRA])
def test_axe_finds_nothing_serious(visit, address, name, theme, width):
    page = visit(theme=theme, width=width).open(f"{address}/{name}.html")
    assert page.evaluate("document.documentElement.dataset.theme") == theme
    found = Axe().run(page).response["violations"]
    serious = [
        f"{v['id']}: {v['help']}: {[n['html'][:160] for n in v['nodes']][:3]}"
        for v in found
        if v["impact"] in ("serious", "critical")
    ]
    assert serious == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", [*pages(), *EXTRA])
def test_nothing_overflows_a_phone(visit, address, name, theme):
    page = visit(width=390, height=844, theme=theme).open(f"{address}/{name}.html")
    wide = page.evaluate(
        """() => [document.scrollingElement.scrollWidth, [...document.querySelectorAll("article *")]
            .filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest("pre, table, .sh-plot, .math-block, .sh-shelf"))
            .map((e) => `${e.tagName}.${e.className}`).slice(0, 5)]"""
    )
    assert wide == [390, []]


@pytest.mark.parametrize("name", pages_with_panels())
def test_without_scripts_the_default_state_is_told(visit, address, name):
    page = visit(java_script_enabled=False).open(f"{address}/{name}.html", live=False)
    twins = page.locator(".sh-twin")
    assert twins.count() >= 1
    for twin in twins.all():
        assert twin.is_visible()
        assert len(twin.inner_text()) > 40


def test_without_scripts_the_partition_is_drawn_and_said(visit, address):
    page = visit(java_script_enabled=False).open(f"{address}/book/partition-rule.html", live=False)
    twin = page.locator(".sh-twin[data-twin=partition]")
    assert "d_head = 64: 768 columns cut into 12 heads of 64 columns each." in twin.inner_text()
    assert twin.locator("svg rect").count() == 12
    assert "16" in twin.locator("details").text_content()


def test_formulas_are_mathml_and_need_no_script(visit, address):
    page = visit(java_script_enabled=False).open(f"{address}/book/index.html", live=False)
    formula = page.locator(".math-block math").first
    assert formula.is_visible()
    assert re.sub(r"\s", "", formula.text_content()) == "dhead=dmodelnheads=76812=64"


@pytest.mark.parametrize("name", pages_with_panels())
def test_a_live_panel_hides_its_printed_twin(visit, address, name):
    page = visit().open(f"{address}/{name}.html")
    assert page.locator(".sh-twin").count() >= 1
    assert page.locator(".sh-twin:visible").count() == 0


class Links(HTMLParser):
    """Targets and ids of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []  # what the browser fetches by itself
        self.links: list[str] = []  # what a reader may follow
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        have = dict(attrs)
        if have.get("id"):
            self.ids.add(have["id"])
        if have.get("src"):
            self.loads.append(have["src"])
        if tag == "link" and have.get("href"):
            self.loads.append(have["href"])
        if tag == "a" and have.get("href"):
            self.links.append(have["href"])


def html_files(site: Path) -> dict[Path, Links]:
    files = {path: Links(path.read_text("utf8")) for path in site.rglob("*.html") if "_static" not in path.parts}
    assert len(files) > 5
    return files


def test_no_page_names_another_host_for_anything_it_loads(site):
    for path, found in html_files(site).items():
        foreign = [url for url in found.loads if urlparse(url).netloc]
        assert foreign == [], path


def test_every_internal_link_arrives(site):
    files = html_files(site)
    broken = []
    for path, found in files.items():
        for url in found.links + found.loads:
            parts = urlparse(url)
            if parts.scheme or parts.netloc or url.startswith("#!"):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                broken.append(f"{path.name} → {url}")
            elif parts.fragment and target in files and parts.fragment not in files[target].ids:
                broken.append(f"{path.name} → {url} (no such place on the page)")
    assert broken == []


def test_no_page_shows_where_it_was_built(site):
    from conftest import ROOT

    for path in html_files(site):
        text = path.read_text("utf8")
        assert str(ROOT) not in text, path
        assert "site-packages" not in text, path
