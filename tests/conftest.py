"""Shared by all tests: the built site, a server for it on loopback, and a browser to read it with."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlparse

import browser as chromium
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "_build" / "html"

FRONT_MATTER = """---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---
"""
"""What every chapter begins with."""


@pytest.fixture(scope="session")
def site() -> Path:
    """The built site. Building is `make book`'s work, and `make test` has done it before pytest starts."""
    assert (SITE / "index.html").is_file(), "there is no built book: run `make book` (or `make test`) first"
    return SITE


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture(scope="session")
def address(site: Path) -> Iterator[str]:
    """http address of the site on loopback, without a slash at the end."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(QuietHandler, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture(scope="session")
def chrome() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        engine = playwright.chromium.launch(executable_path=chromium.executable(), args=chromium.FLAGS)
        yield engine
        engine.close()


class Visit:
    """An open page, and everything it complained of or asked another host for."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.foreign: list[str] = []
        self.fonts: list[str] = []
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.complaints.append(f"uncaught: {error}"))
        page.on("requestfailed", lambda request: self.complaints.append(f"failed: {request.url} {request.failure}"))
        page.on("response", self._response)
        page.on("request", self._request)

    def _console(self, message) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"console {message.type}: {message.text}")

    def _response(self, response) -> None:
        if response.status >= 400:
            self.complaints.append(f"{response.status}: {response.url}")

    def _request(self, request) -> None:
        url = urlparse(request.url)
        if url.scheme not in ("data", "blob", "file") and url.hostname != "127.0.0.1":
            self.foreign.append(request.url)
        if request.resource_type == "font":
            self.fonts.append(request.url)

    def open(self, url: str, live: bool = True) -> Page:
        """Go to `url`; with `live`, wait until every panel on it is drawn."""
        self.page.goto(url)
        if live and self.page.locator("script[type='application/vnd.jupyter.widget-view+json']").count():
            self.page.wait_for_function(
                """() => {
                    const views = document.querySelectorAll(
                        "script[type='application/vnd.jupyter.widget-view+json']").length;
                    return document.querySelectorAll("[data-panel][data-live]").length >= Math.max(views, 1);
                }""",
                timeout=20_000,
            )
        return self.page


@pytest.fixture
def visit(chrome: Browser) -> Iterator[Callable[..., Visit]]:
    """visit(width=1280, theme="light", **context options) -> Visit, on a fresh browser profile.

    theme=None leaves the choice to the page, as for a reader who comes for the first time.
    """
    contexts: list[BrowserContext] = []

    def start(width: int = 1280, height: int = 900, theme: str | None = "light", **options) -> Visit:
        context = chrome.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        if theme:
            context.add_init_script(f"try {{ localStorage.theme = localStorage.mode = '{theme}' }} catch {{}}")
        context.set_default_timeout(10_000)
        return Visit(context.new_page())

    yield start
    for context in contexts:
        context.close()


def pages() -> list[str]:
    """Every page of the book, as _toc.yml names it, without suffix: "book/index" first."""
    import yaml

    toc = yaml.safe_load((ROOT / "_toc.yml").read_text("utf8"))
    return [toc["root"], *(entry["file"] for entry in toc["chapters"])]


def pages_with_panels() -> list[str]:
    return [name for name in pages() if "splitheads.panels" in (ROOT / f"{name}.md").read_text("utf8")]


@pytest.fixture(scope="session")
def models() -> dict[str, dict[str, str]]:
    """The published models of book/data/models.csv, by name."""
    import csv

    with (ROOT / "book/data/models.csv").open(encoding="utf8", newline="") as file:
        return {row["model"]: row for row in csv.DictReader(file)}
