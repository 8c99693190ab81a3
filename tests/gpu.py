"""A Chromium with WebGPU: its own software adapter, SwiftShader, computes on the CPU, on every machine alike."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator

import browser as chromium
import pytest
from playwright.sync_api import Browser, BrowserContext, Page

FLAGS = [*chromium.FLAGS, "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"]
"""`--disable-gpu`, which browser.FLAGS hold, may stay: this adapter has nothing to do with a GPU."""

ORIGIN = "http://127.0.0.1:9"
"""Nobody listens there: the tests answer. Pages from loopback are secure contexts, which WebGPU asks for."""


@pytest.fixture(scope="session")
def gpu_chrome(chrome: Browser) -> Iterator[Browser]:
    """Launched by the Playwright that drives the other Chromium: there can only be one."""
    kind = chrome.browser_type
    named = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, chromium.NAMES)), kind.executable_path)
    engine = kind.launch(executable_path=named, args=FLAGS)
    yield engine
    engine.close()


@pytest.fixture
def gpu_page(gpu_chrome: Browser) -> Iterator[Callable[..., Page]]:
    """gpu_page(*init scripts, origin=...) -> an empty page; `page.complaints` is what its console said."""
    contexts: list[BrowserContext] = []

    def start(*scripts: str, origin: str = ORIGIN) -> Page:
        context = gpu_chrome.new_context()
        contexts.append(context)
        for script in scripts:
            context.add_init_script(script)
        page = context.new_page()
        page.set_default_timeout(90_000)
        page.complaints = []
        page.on("console", lambda message: page.complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: page.complaints.append(f"uncaught: {error}"))
        empty = "<!doctype html><title>GPU</title>"
        page.route(f"{origin}/**", lambda route: route.fulfill(body=empty, content_type="text/html"))
        page.goto(f"{origin}/blank.html")
        return page

    yield start
    for context in contexts:
        context.close()
