"""Takes the pictures of docs/page.md: `python -m tests.dashboard.pictures DIRECTORY [SECONDS]`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.dashboard.shop import Customers, Shop

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = "/usr/bin/chromium"
TALL = 1720
WIDE, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}


def main() -> None:
    into, seconds = Path(sys.argv[1]), float(sys.argv[2] if len(sys.argv) > 2 else 60)
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        shop = Shop(Path(folder) / "shop")
        with Customers(shop):
            pictures(
                shop, into, seconds, [("page-light", "light", WIDE, True), ("page-dark", "dark", WIDE, True)]
            )
        stalled = Shop(Path(folder) / "stalled", quiet=True)
        stalled.buys(3)
        with Customers(stalled, buy=False, mistakes=False):
            shots = [("page-stalled", "light", WIDE, False), ("page-phone", "dark", PHONE, False)]
            pictures(stalled, into, seconds / 2, shots)


def pictures(
    shop: Shop, into: Path, seconds: float, shots: list[tuple[str, str, dict[str, int], bool]]
) -> None:
    command = [
        sys.executable,
        "-m",
        "headrace.cli",
        "run",
        str(shop.file),
        "--page",
        "--port",
        "0",
        "--quiet",
    ]
    run = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    try:
        assert run.stderr is not None
        link = re.search(r"http\S+", run.stderr.readline())
        assert link is not None
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            context = browser.new_context(viewport=WIDE)  # type: ignore[arg-type]
            page = context.new_page()
            page.goto(link[0])
            time.sleep(seconds)
            for name, scheme, size, whole in shots:
                page.set_viewport_size(size)  # type: ignore[arg-type]
                page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
                page.wait_for_timeout(1500)
                clip = {"x": 0, "y": 0, "width": size["width"], "height": TALL} if whole else None
                page.screenshot(path=into / f"{name}.png", full_page=whole, clip=clip)  # type: ignore[arg-type]
            browser.close()
    finally:
        run.terminate()
        run.wait(20)


if __name__ == "__main__":
    main()
