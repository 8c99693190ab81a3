"""The book's widget runtime against the stock one: what a visitor downloads, and waits for.

    python tests/benchmarks/runtime_stock.py SITE_DIR PAGE [--runs 9] [--cpu 4] [--mbit 10] [--defer-stock]

The stock route is the one that MyST-NB is made for (RequireJS, the HTML manager's `embed-amd.js`
and anywidget's AMD module), hosted on the same site as ours is. Both copies of the page are served
by one gzipping server on loopback and opened in turns, each time in a browser that has seen
nothing yet. "Usable" is the moment at which a slider's handle is on the page and an arrow key has
moved its value, on the page's own clock, which starts with the navigation.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import json
import mimetypes
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import browser as chromium
from playwright.sync_api import Browser, sync_playwright

PACKAGES = ("@jupyter-widgets/html-manager@1.0.15", "requirejs@2.3.8", "esbuild@0.28.2")
OURS = re.compile(r'<script\b[^>]*\bsrc="(?P<up>[^"]*)_static/widgets/runtime\.js[^"]*"[^>]*></script>')

# Runs in the page. Whatever draws the slider, it is noUiSlider's handle in the end, and that moves
# on a key event no matter who sends it; a real key press is tried later on.
WATCH = """
(() => {
  const times = (window.__usable = {});
  addEventListener("DOMContentLoaded", () => (times.parsed = performance.now()));
  const look = () => {
    const handles = [...document.querySelectorAll("[role=slider][aria-valuenow]")];
    const handle = handles.find((el) => el.getClientRects().length);
    if (handle && times.visible === undefined) {
      times.visible = performance.now();
      const before = handle.getAttribute("aria-valuenow");
      for (const key of ["ArrowRight", "ArrowLeft"]) {
        handle.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
        if (handle.getAttribute("aria-valuenow") !== before) {
          times.usable = performance.now();
          return;
        }
      }
      delete times.visible;
    }
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
})();
"""


class GzipHandler(BaseHTTPRequestHandler):
    """Serves a folder as a good static host does: gzip for text, nothing for what is not there."""

    protocol_version = "HTTP/1.1"
    folder: Path

    def do_GET(self) -> None:
        root = self.folder.resolve()
        path = (root / unquote(urlsplit(self.path).path).lstrip("/")).resolve()
        if path.is_dir():
            path /= "index.html"
        if not path.is_file() or not path.is_relative_to(root):
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        packed = bool(re.search(r"text|script|json|svg|xml", kind)) and "gzip" in self.headers.get(
            "Accept-Encoding", ""
        )
        body = content(path, packed)
        self.send_response(200)
        self.send_header("Content-Type", f"{kind}; charset=utf-8" if kind.startswith("text/") else kind)
        self.send_header("Content-Length", str(len(body)))
        if packed:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that hangs up is no error."""


@functools.cache
def content(path: Path, packed: bool) -> bytes:
    body = path.read_bytes()
    return gzip.compress(body, 9, mtime=0) if packed else body


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """Address, without a slash at the end, of a loopback server for `folder`."""
    content.cache_clear()
    server = Server(("127.0.0.1", 0), type("Handler", (GzipHandler,), {"folder": folder}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def stock_files(into: Path) -> None:
    """Put the stock runtime's files, from the official packages in exact versions, into `into`."""
    import anywidget

    with tempfile.TemporaryDirectory() as scratch:
        npm = shutil.which("npm")
        if npm is None:
            raise SystemExit(
                "The comparison needs npm on the PATH: it installs the stock runtime in a temporary folder."
            )
        subprocess.run(
            [npm, "install", "--ignore-scripts", "--no-save", "--no-audit", "--no-fund", "--loglevel=error", *PACKAGES],
            cwd=scratch,
            check=True,
        )
        modules = Path(scratch) / "node_modules"
        into.mkdir(parents=True, exist_ok=True)
        # A site would serve RequireJS minified; its package holds the readable form alone.
        minify = [str(modules / ".bin/esbuild"), str(modules / "requirejs/require.js"), "--minify", "--log-level=error"]
        with (into / "require.js").open("wb") as file:
            subprocess.run(minify, check=True, stdout=file)
        dist = modules / "@jupyter-widgets/html-manager/dist"
        shutil.copy(dist / "embed-amd.js", into)
        # Its two modules look for its fonts beside where RequireJS thinks they came from.
        for folder in (into, into / "html-manager/dist"):
            folder.mkdir(parents=True, exist_ok=True)
            for file in dist.iterdir():
                if file.suffix in {".woff2", ".woff", ".ttf", ".eot", ".svg"}:
                    shutil.copy(file, folder)
    shutil.copy(Path(anywidget.__file__).parent / "nbextension/index.js", into / "anywidget.js")


def stock_site(site: Path, into: Path, *, defer: bool = False) -> Path:
    """Copy the built `site` to `into` and swap our runtime for the stock one on every page.

    MyST-NB writes plain script tags; `defer=True` defers them, which is kinder to the stock route.
    """
    shutil.copytree(site, into)
    stock_files(into / "_static/stock")
    changed = 0
    for page in into.rglob("*.html"):
        text = page.read_text("utf8")

        def tags(match: re.Match[str]) -> str:
            home = f"{match['up']}_static/stock/"
            wait = ' defer="defer"' if defer else ""
            paths = {"anywidget": f"{home}anywidget", "@jupyter-widgets/html-manager": f"{home}html-manager"}
            return (
                f"<script>window.require = {json.dumps({'paths': paths})};</script>"
                f'<script{wait} src="{home}require.js"></script><script{wait} src="{home}embed-amd.js"></script>'
            )

        swapped, count = OURS.subn(tags, text)
        changed += count
        page.write_text(swapped, "utf8")
    if not changed:
        raise ValueError(f"no page under {site} loads _static/widgets/runtime.js")
    shutil.rmtree(into / "_static/widgets", ignore_errors=True)
    return into


def visit(engine: Browser, address: str, *, cpu: float = 1, mbit: float = 0) -> dict:
    """Open `address` once, with nothing cached. Times in seconds, sizes in bytes as transferred."""
    context = engine.new_context(viewport={"width": 1280, "height": 900})
    try:
        page = context.new_page()
        cdp = context.new_cdp_session(page)
        kinds: dict[str, str] = {}
        sizes: dict[str, int] = defaultdict(int)
        failed: list[str] = []
        cdp.on("Network.responseReceived", lambda e: kinds.update({e["requestId"]: e["type"]}))
        cdp.on(
            "Network.loadingFinished",
            lambda e: sizes.update({(k := kinds.get(e["requestId"], "Other")): sizes[k] + int(e["encodedDataLength"])}),
        )
        page.on("requestfailed", lambda request: failed.append(request.url))
        cdp.send("Network.enable")
        if cpu != 1:
            cdp.send("Emulation.setCPUThrottlingRate", {"rate": cpu})
        if mbit:
            rate = mbit * 1e6 / 8
            cdp.send(
                "Network.emulateNetworkConditions",
                {"offline": False, "latency": 40, "downloadThroughput": rate, "uploadThroughput": rate},
            )
        page.add_init_script(WATCH)
        page.goto(address, wait_until="load", timeout=120_000)
        page.wait_for_function("window.__usable.usable !== undefined", timeout=60_000)
        page.wait_for_load_state("networkidle")
        times = page.evaluate("window.__usable")
        paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null")

        # The same with the reader's own key.
        handle = page.locator("[role=slider]:visible").first
        before = handle.get_attribute("aria-valuenow")
        handle.focus()
        page.keyboard.press("ArrowRight")
        if handle.get_attribute("aria-valuenow") == before:
            page.keyboard.press("ArrowLeft")
        if handle.get_attribute("aria-valuenow") == before:
            raise AssertionError(f"{address}: the arrow keys do not move the first slider")
        return {
            "visible": times["visible"] / 1000,
            "usable": times["usable"] / 1000,
            "first paint": paint / 1000 if paint is not None else float("nan"),
            "bytes": sum(sizes.values()),
            "kinds": dict(sizes),
            "failed": failed,
        }
    finally:
        context.close()


def compare(
    site: Path, page: str, *, runs: int = 9, cpu: float = 1, mbit: float = 0, defer_stock: bool = False
) -> dict[str, list[dict]]:
    """Visits to `page` of `site` with our runtime and with the stock one, in turns."""
    results: dict[str, list[dict]] = {"ours": [], "stock": []}
    with tempfile.TemporaryDirectory() as scratch:
        stock = stock_site(site, Path(scratch) / "stock", defer=defer_stock)
        with serve(site) as ours_at, serve(stock) as stock_at, sync_playwright() as playwright:
            engine = playwright.chromium.launch(executable_path=chromium.executable(), args=chromium.FLAGS)
            addresses = {"ours": f"{ours_at}/{page}", "stock": f"{stock_at}/{page}"}
            for address in addresses.values():  # wakes the browser up and fills the server's gzip cache
                visit(engine, address, cpu=cpu, mbit=mbit)
            for run in range(runs):
                for name in ("ours", "stock") if run % 2 else ("stock", "ours"):
                    results[name].append(visit(engine, addresses[name], cpu=cpu, mbit=mbit))
            engine.close()
    return results


def summary(results: dict[str, list[dict]]) -> dict[str, dict[str, float]]:
    """Medians: per variant, `bytes`, `visible`, `usable`, `first paint`, and bytes by kind."""
    medians: dict[str, dict[str, float]] = {}
    for name, visits in results.items():
        medians[name] = {
            key: statistics.median(v[key] for v in visits) for key in ("bytes", "first paint", "visible", "usable")
        }
        for kind in sorted({kind for v in visits for kind in v["kinds"]}):
            medians[name][f"bytes: {kind}"] = statistics.median(v["kinds"].get(kind, 0) for v in visits)
    return medians


def report(results: dict[str, list[dict]]) -> str:
    medians = summary(results)
    lines = [f"{len(results['ours'])} visits each, medians{'':11}{'ours':>12}{'stock':>12}{'stock/ours':>12}"]
    for key in sorted(medians["ours"].keys() | medians["stock"].keys()):
        ours, stock = medians["ours"].get(key, 0), medians["stock"].get(key, 0)
        shown = [f"{value / 1000:,.1f} kB" if "bytes" in key else f"{value * 1000:,.0f} ms" for value in (ours, stock)]
        ratio = f"{stock / ours:.1f}" if ours else "-"
        lines.append(f"{key:<36}{shown[0]:>12}{shown[1]:>12}{ratio:>12}")
    for name, visits in results.items():
        times = sorted(v["usable"] * 1000 for v in visits)
        lines.append(f"{name}: usable after {times[0]:.0f} to {times[-1]:.0f} ms")
        for url in sorted({url for v in visits for url in v["failed"]}):
            lines.append(f"{name}: failed request {url}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("site", type=Path, help="the built site, for example _build/html")
    parser.add_argument("page", help="a page in it that holds a slider, for example book/partition-rule.html")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--cpu", type=float, default=1, help="slow the processor down by this factor")
    parser.add_argument(
        "--mbit", type=float, default=0, help="slow the network down to this many Mbit/s, with 40 ms latency"
    )
    parser.add_argument("--defer-stock", action="store_true", help="defer the stock scripts, which MyST-NB does not do")
    asked = parser.parse_args()
    print(
        report(
            compare(
                asked.site, asked.page, runs=asked.runs, cpu=asked.cpu, mbit=asked.mbit, defer_stock=asked.defer_stock
            )
        )
    )


if __name__ == "__main__":
    main()
