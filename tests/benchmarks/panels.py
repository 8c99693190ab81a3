"""What the pages cost, measured in one run: paint, weight, readiness, and build times.

    .venv/bin/python tests/benchmarks/panels.py [--samples 200] [--loads 7] [--skip-build] [--skip-stock]

Prints, for this machine: input event to painted frame on the partition panel at 768 / 12 and at
16384 / 256 (p50, p95, and the number of DOM nodes); bytes over the wire and time to the first usable slider,
beside the same page on the stock self-hosted runtime; and build times, cold and after one edit of prose.
A benchmark, not a test: nothing here fails, except where something could not be measured.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "benchmarks")]

import browser as chromium
import runtime_stock
from playwright.sync_api import Page, sync_playwright

FRAME = 1000 / 60
GAP = 60  # the pace of a hand on the arrow keys; measured faster, an empty page already misses frames

# From the input event's own time stamp to the first task after the frame that shows its effect.
PROBE = """
window.paints = [];
addEventListener("keydown", (event) => {
    requestAnimationFrame(() => {
        const after = new MessageChannel();
        after.port1.onmessage = () => window.paints.push(performance.now() - event.timeStamp);
        after.port2.postMessage(0);
    });
}, { capture: true });
"""


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, round(share * (len(values) - 1)))]


def pressed(page: Page, samples: int) -> list[float]:
    """Milliseconds from each key press to its painted frame: one step down and up in turn, a legal split and not."""
    for turn in range(samples + 20):
        page.keyboard.press("ArrowLeft" if turn % 2 == 0 else "ArrowRight")
        page.wait_for_timeout(GAP)
    page.wait_for_timeout(200)
    paints = page.evaluate("window.paints")[20:]
    if len(paints) < samples * 0.9:
        raise SystemExit(f"only {len(paints)} of {samples} paints were seen: not a measurement")
    return paints


def input_to_paint(site: Path, samples: int) -> None:
    print(
        f"\nInput event to painted frame, {samples} key presses each, {GAP} ms apart (one 60 Hz frame is {FRAME:.1f} ms)"
    )
    with runtime_stock.serve(site) as address, sync_playwright() as playwright:
        engine = playwright.chromium.launch(executable_path=chromium.executable(), args=chromium.FLAGS)
        floor = engine.new_page()
        floor.goto(
            "data:text/html,<p id=a>0<script>addEventListener('keydown', (e) => { a.textContent = e.key })</script>"
        )
        floor.evaluate(PROBE)
        least = pressed(floor, samples)
        print(
            f"  an empty page   p50 {percentile(least, 0.5):5.1f} ms   p95 {percentile(least, 0.95):5.1f} ms   (the floor of this measurement)"
        )
        floor.close()
        for d_model, num_heads in ((768, 12), (16384, 256)):
            page = engine.new_page(viewport={"width": 1280, "height": 900})
            page.add_init_script(PROBE)
            page.goto(f"{address}/book/partition-rule.html#partition?d_model={d_model}&num_heads={num_heads}")
            page.wait_for_selector("[data-panel=partition][data-live]")
            slider = page.locator("[data-panel=partition]").get_by_role("slider", name="num_heads")
            slider.focus()
            paints = pressed(page, samples)
            nodes = page.evaluate("document.querySelectorAll('[data-panel=partition] *').length")
            p50, p95 = percentile(paints, 0.5), percentile(paints, 0.95)
            verdict = "within" if p95 <= FRAME else "NOT within"
            print(
                f"  {d_model:6} / {num_heads:<4} p50 {p50:5.1f} ms   p95 {p95:5.1f} ms   ({verdict} one frame)   {nodes} DOM nodes in the panel"
            )
            page.close()
        engine.close()


def build_times() -> None:
    """Cold, warm after one edit of prose, and after no edit, of a copy in a temporary folder."""
    print("\nBuild times (a copy in a temporary folder, `jupyter-book build -W -n --keep-going .`)")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "book"
        skip = shutil.ignore_patterns(".venv", "_build", ".git", "node_modules", "__pycache__", "*.ipynb")
        shutil.copytree(ROOT, copy, ignore=skip)

        def build() -> float:
            start = time.perf_counter()
            command = [str(Path(sys.executable).parent / "jupyter-book"), "build", "-W", "-n", "--keep-going", "."]
            done = subprocess.run(command, cwd=copy, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"the build failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
            return time.perf_counter() - start

        cold = build()
        chapter = copy / "book" / "partition-rule.md"
        warm = []
        for turn in range(3):
            chapter.write_text(chapter.read_text("utf8") + f"\nOne more sentence, number {turn}.\n", "utf8")
            warm.append(build())
        edited = statistics.median(warm)
        print(
            f"  cold {cold:.1f} s   one prose edit {edited:.1f} s = {100 * edited / cold:.0f} % of cold (median of 3)"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--loads", type=int, default=7)
    parser.add_argument("--skip-build", action="store_true")
    parser.add_argument("--skip-stock", action="store_true")
    arguments = parser.parse_args()
    site = ROOT / "_build" / "html"
    if not (site / "index.html").is_file():
        raise SystemExit("there is no built book: run `make book` first")
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {time.strftime('%Y-%m-%d')}"
    )
    input_to_paint(site, arguments.samples)
    if not arguments.skip_stock:
        print("\nThe page on our runtime and on the stock one, self-hosted, in turns")
        print(runtime_stock.report(runtime_stock.compare(site, "book/partition-rule.html", runs=arguments.loads)))
    if not arguments.skip_build:
        build_times()


if __name__ == "__main__":
    main()
