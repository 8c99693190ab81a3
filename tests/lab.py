"""JupyterLab for the tests of notebooks: one server and one browser profile for all of them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

ROOT = Path(__file__).resolve().parent.parent

SETTINGS = {
    # Lab itself would ask its makers for news, for a newer Lab, and a package index for
    # extensions (`lab` turns that off).
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/apputils-extension/themes": {"theme": "JupyterLab Light"},
}

CARDS = "https://api.github.com/repos/"
"""jupyterlab-myst asks here for a card while the pointer rests on a link to a GitHub issue."""

CARD = {
    "title": "A card",
    "state": "closed",
    "state_reason": "completed",
    "body": "",
    "html_url": "#",
    "labels": [],
    "created_at": "2024-01-01T00:00:00Z",
    "user": {"login": "nobody", "html_url": "#"},
}
"""What it is told, so that no test depends on the network, or on where a pointer happens to rest."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def write_settings(folder: Path) -> None:
    for plugin, values in SETTINGS.items():
        path = folder / f"{plugin}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values), "utf8")


def stop(server: subprocess.Popen) -> None:
    """End the server and its kernels; a kernel whose server was killed ends by itself."""
    server.send_signal(signal.SIGTERM)
    try:
        server.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait(20)


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """JupyterLab in a copy of book/, without notebooks yet, with settings of its own: `.url`, `.folder`."""
    folder = tmp_path_factory.mktemp("lab")
    book = folder / "book"
    shutil.copytree(ROOT / "book", book, ignore=shutil.ignore_patterns("*.ipynb", "__pycache__", ".ipynb_checkpoints"))

    private = {f"JUPYTER_{kind}_DIR": str(folder / kind.lower()) for kind in ("CONFIG", "DATA", "RUNTIME")}
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("JUPYTER", "JPY_", "PYTHONPATH", "PYTHONSAFEPATH"))
    }
    write_settings(folder / "config" / "lab" / "user-settings")
    log = (folder / "lab.log").open("w+", encoding="utf8")
    port = free_port()
    server = subprocess.Popen(
        [
            *(sys.executable, "-m", "jupyter", "lab", "--no-browser", "--allow-root", "--ip=127.0.0.1"),
            *(f"--port={port}", "--ServerApp.port_retries=0", f"--ServerApp.root_dir={book}"),
            *("--ServerApp.token=", "--ServerApp.password="),
            *("--LabApp.news_url=None", "--LabApp.extension_manager=readonly"),
            "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
            # Should this test be killed before it can end the server, the server ends by itself.
            *("--MappingKernelManager.cull_idle_timeout=600", "--ServerApp.shutdown_no_activity_timeout=900"),
        ],
        cwd=book,
        env={**kept, **private, "IPYTHONDIR": str(folder / "ipython")},
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    try:
        url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + 60
        while True:
            log.seek(0)
            assert server.poll() is None, f"JupyterLab ended at once:\n{log.read()}"
            assert time.monotonic() < deadline, f"JupyterLab did not answer within a minute:\n{log.read()}"
            try:
                with urllib.request.urlopen(f"{url}/api", timeout=5):
                    break
            except OSError:
                time.sleep(0.2)
        yield SimpleNamespace(url=url, folder=book)
    finally:
        stop(server)
        log.close()


@pytest.fixture(scope="session")
def profile(chrome: Browser) -> Iterator[BrowserContext]:
    """One browser profile for all notebooks, so that Lab's own files are fetched once."""
    context = chrome.new_context(viewport={"width": 1280, "height": 1000})
    context.set_default_timeout(20_000)
    context.route(f"{CARDS}**", lambda route: route.fulfill(json=CARD))
    yield context
    context.close()


def write_notebook(path: Path, *cells: str) -> None:
    """A notebook of these code cells."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, path)


def open_notebook(page: Page, url: str, name: str) -> None:
    """Open `name`.ipynb in Lab, in a workspace of its own, and wait until its kernel answers."""
    page.goto(f"{url}/lab/workspaces/{name}/tree/{name}.ipynb")
    page.locator(".jp-Notebook .jp-CodeCell").first.wait_for(timeout=60_000)
    # Before its kernel answers, Lab meets "Run All Cells" with a question about kernels.
    expect(page.locator("#jp-main-statusbar")).to_contain_text("| Idle", timeout=60_000)


def menu(page: Page, name: str, command: str) -> None:
    """Choose from Lab's menu bar, as a reader does."""
    page.locator(".lm-MenuBar-item", has_text=name).first.click()
    page.locator(f".lm-Menu-item[data-command='{command}']").click()


def run_cell(page: Page, mark: str) -> str:
    """Run the last cell that has `mark` in it; what it prints."""
    cell = page.locator(".jp-CodeCell", has_text=mark).last
    prompt = cell.locator(".jp-InputPrompt").first
    before = prompt.inner_text()
    cell.locator(".cm-content").first.click()
    page.keyboard.press("Control+Enter")
    expect(prompt).not_to_have_text(before)
    expect(prompt).not_to_have_text("[*]:")
    return cell.locator(".jp-OutputArea").first.inner_text()


def foreign(seen) -> list[str]:
    """What a notebook asked another host for.

    Not counted: the cards of CARDS. It is the reader's Lab that asks, for a link that the reader points at.
    """
    return [url for url in seen.foreign if not url.startswith(CARDS)]
