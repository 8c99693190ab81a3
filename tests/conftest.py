"""Shared by all tests: the built site, a server for it on loopback, and a browser to read it with."""

from __future__ import annotations

import functools
import http.server
import inspect
import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlparse

import browser as chromium
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

pytest_plugins = ["lab", "gpu"]  # JupyterLab, for the tests of notebooks; a browser with WebGPU

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

expect.set_options(timeout=30_000)  # other tests keep the machine busy; what is as expected does not wait


# `make test` runs pytest twice (see the Makefile): most tests side by side, then, with the machine to
# themselves, those that measure time or hold something to a time. These have the mark `alone`.

ALONE = (
    "tests/notebooks/test_timing_lab.py",
    "tests/test_panels_timing.py",
    "tests/timing/test_command.py",
    "tests/timing/test_gpu.py",
    "tests/timing/test_run.py",
)
"""Files whose tests all measure something, or stop a measurement midway."""

CLOCK = re.compile(r"\b(perf_counter|monotonic|process_time|thread_time|timeit|time\.time|importtime)\b")


def reads_a_clock(function) -> bool:
    """Does a test take the time: itself, or by a function or a program text of its own module that it names?"""
    source = inspect.getsource(function)
    if CLOCK.search(source):
        return True
    for name in set(re.findall(r"\w+", source)):
        value = function.__globals__.get(name)
        if inspect.isfunction(value) and value.__module__ == function.__module__:
            value = inspect.getsource(value)
        if isinstance(value, str) and CLOCK.search(value):
            return True
    return False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    known: dict[object, bool] = {}  # a test with many parameters is looked at once
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        function = inspect.unwrap(item.function)
        if function not in known:
            known[function] = item.path.relative_to(ROOT).as_posix() in ALONE or reads_a_clock(function)
        if known[function]:
            item.add_marker(pytest.mark.alone)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """`-n auto`: a worker for each core that we may use, and four at most: each has a browser and PyTorch in memory."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, 4)


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
    path = chromium.executable()  # it may ask a Playwright of its own, and two at once are refused
    with sync_playwright() as playwright:
        engine = playwright.chromium.launch(executable_path=path, args=chromium.FLAGS)
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
                timeout=60_000,
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
        context.set_default_timeout(30_000)
        return Visit(context.new_page())

    yield start
    for context in contexts:
        context.close()


def drawn(page: Page) -> None:
    """Wait until what the page was told so far has been drawn: two frames, however long they take."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done())))")


def at_rest(page: Page) -> None:
    """Wait until the page has been equally high for a dozen frames: what comes late (fonts, sizes observed) has come."""
    page.evaluate(
        """() => new Promise((done) => {
            let height = -1, same = 0;
            const look = () => {
                const now = document.documentElement.scrollHeight;
                same = now === height ? same + 1 : 0;
                height = now;
                if (same < 12) requestAnimationFrame(look); else done();
            };
            look();
        })"""
    )


def unpainted(page: Page) -> None:
    """Take the text of a chapter out of the layout, for walks over hundreds of states that read words and attributes.

    Painting is four fifths of their time, and they do not look at it.
    """
    page.evaluate("() => { document.querySelector('article').style.display = 'none'; }")


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
