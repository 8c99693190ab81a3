"""Record the browser-GPU chapter's sweep in a headless Chromium, and put it into book/recordings/browser/.

    python tools/record_browser.py [--seconds 40] [--chromium PATH] [-- FLAG ...]

The flags go to Chromium; by default those of its software adapter, SwiftShader, which computes on the CPU. The site must
have been built (`make book`); Playwright is among the requirements of the tests. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import sys
import threading
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "book"), str(ROOT / "tests")]

import browser  # noqa: E402
from splitheads.timing.record import load, save, title  # noqa: E402

SOFTWARE = ["--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"]


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=int, default=40, choices=[10, 20, 40])
    parser.add_argument("--chromium", default=browser.executable())
    parser.add_argument("flags", nargs="*", default=SOFTWARE)
    asked = parser.parse_args()
    site = functools.partial(Quiet, directory=str(ROOT / "_build" / "html"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    folder = ROOT / "book" / "recordings" / "browser"
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        engine = playwright.chromium.launch(executable_path=asked.chromium, args=["--no-sandbox", *asked.flags])
        page = engine.new_page(accept_downloads=True)
        page.goto(f"http://127.0.0.1:{server.server_port}/book/browser-gpu.html#webgpu?d_head=80")
        panel = page.locator("[data-panel=webgpu]")
        panel.locator("[data-loaded]").wait_for(state="attached")
        panel.get_by_label("seconds").select_option(str(asked.seconds))
        panel.get_by_role("button", name="Time my GPU").click()
        panel.locator(".sh-progress:is([data-state=done], [data-state=failed], [data-state=refused])").wait_for(
            timeout=1000 * (asked.seconds + 60)
        )
        print(panel.locator(".sh-news").inner_text())
        with page.expect_download() as waiting:
            panel.get_by_role("button", name="Export").click()
        download = waiting.value
        recording, name = load(download.path()), download.suggested_filename
        engine.close()
    print(title(recording), "->", save(recording, folder / name).relative_to(ROOT))


if __name__ == "__main__":
    main()
