"""Take the README's picture again, from the built book: docs/partition-panel.png."""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import browser as chromium

PAGE = (ROOT / "_build" / "html" / "book" / "partition-rule.html").as_uri()

with sync_playwright() as playwright:
    engine = playwright.chromium.launch(executable_path=chromium.executable(), args=chromium.FLAGS)
    page = engine.new_page(viewport={"width": 1280, "height": 900}, device_scale_factor=1.5)
    page.goto(f"{PAGE}#partition?d_model=1600&num_heads=48")
    panel = page.locator("[data-panel=partition][data-live]")
    panel.wait_for()
    page.wait_for_timeout(300)
    panel.screenshot(path=ROOT / "docs" / "partition-panel.png")
    engine.close()
