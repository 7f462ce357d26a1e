"""The page in a real browser (Debian's Chromium): what it shows, and every control."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.control import log_of
from headrace.control.commands import to_json
from headrace.disk import DirectoryLock
from headrace.pipeline import load
from headrace.runtimes.status import Status
from headrace.runtimes.status_file import write_status
from headrace.runtimes.why import Why
from tests.dashboard.shop import Customers, Shop
from tests.runtimes.embedded.playing import Play
from tests.stalls import STALLS

sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed (headrace[dev])")
pytest.importorskip("uvicorn", reason="the page needs headrace[page]")

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = Path("/usr/bin/chromium")
LONG = 60_000
"""Milliseconds to wait for a condition, on a busy machine."""

EXPECTED = re.compile(r"ERR_|status of 400")
"""Not errors of the page, although the browser says so: the server has ended, or has refused a command."""

pytestmark = pytest.mark.skipif(
    not CHROMIUM.exists(), reason="Chromium is not installed (apt install chromium)"
)


class Run:
    """A pipeline that runs with its page, in a process of its own."""

    def __init__(self, shop: Shop) -> None:
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
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.shop = shop
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
        )
        assert self.process.stderr is not None
        found = re.search(r"http\S+", self.process.stderr.readline())
        assert found is not None
        self.link = found[0]

    def commands(self) -> list[dict[str, Any]]:
        return [to_json(each.command) for each in log_of(load(self.shop.file)).read()]

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(120)
        assert self.process.stderr is not None
        self.process.stderr.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    context.set_default_timeout(LONG)
    found = context.new_page()
    wrong: list[str] = []
    found.on("pageerror", lambda error: wrong.append(str(error)))
    found.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    yield found
    context.close()
    assert [each for each in wrong if not EXPECTED.search(each)] == []


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    shop = Shop(tmp_path / "shop")
    shop.clicks(50)
    shop.buys(10)
    shop.nonsense()
    found = Run(shop)
    yield found
    found.end()


def ready(page: Any, run: Run) -> None:
    page.goto(run.link)
    page.wait_for_selector("html[data-ready]")


def fill(page: Any, button: str, **fields: str) -> None:
    """Open a dialog, fill it in, and send it."""
    page.get_by_role("button", name=button, exact=True).click()
    for name, value in fields.items():
        field = page.locator(f"#field-{name}")
        if field.evaluate("each => each.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)
    page.locator("#ok").click()


def closed(page: Any) -> None:
    page.wait_for_selector("#dialog:not([open])", state="attached")


def test_the_page_shows_a_run_and_takes_every_command(page: Any, run: Run) -> None:
    with Customers(run.shop, rate=40):
        ready(page, run)
        assert page.locator("#name").inner_text() == "shop"
        page.wait_for_function("document.querySelector('#state').textContent === 'running'")
        assert "token" not in page.url
        for name in ("stream clicks", "stream buys", "query per_item", "query bought"):
            assert page.locator(f'[data-node="{name}"]').count() == 1, name
        assert page.locator(".graph path.arc").count() >= 8
        page.wait_for_selector("#lost .sample >> text=cheap")
        page.wait_for_selector("#answers td >> text=/lamp|chair|table|sofa|shelf|mirror|rug|vase/")
        assert page.locator("#charts svg").count() == 4
        assert "MIN 5 SECONDS" in page.locator("#windows").inner_text()
        assert "of 2.0 MB" in page.locator("#memory").inner_text()

        # A wrong query: the text of the command line, with carets and hint; then the right one.
        fill(page, "Add query", name="cheap", sql="SELECT item FROM clocks", sink="cheap.jsonl")
        page.wait_for_selector("#error:not([hidden])")
        error = page.locator("#error").inner_text()
        assert [word for word in ("clocks", "^", "hint") if word not in error] == []
        page.locator("#field-sql").fill("SELECT item, price FROM clicks WHERE price < 50")
        page.locator("#ok").click()
        closed(page)
        assert "added query 'cheap'" in page.locator("#toast").inner_text()
        page.wait_for_selector('[data-node="query cheap"]')
        page.get_by_role("tab", name="cheap").click()
        page.wait_for_selector("#answers >> text=cheap.jsonl, the newest first")

        fill(page, "Resize a window of bought", of="clicks", size="2 hours")
        page.wait_for_selector("#error >> text=outside of the bounds")
        page.locator("#field-size").fill("30 seconds")
        page.locator("#ok").click()
        closed(page)
        fill(page, "Change the bounds of buys", disorder="4 s")
        closed(page)
        fill(page, "Set budget", budget="64 MB", policy="spill")
        closed(page)
        page.wait_for_selector("#memory >> text=of 64.0 MB")
        page.get_by_role("button", name="Pause query per_item", exact=True).click()
        page.wait_for_selector("#queries td >> text=/paused, [1-9][0-9]* answers? held/")
        page.wait_for_selector("#causes >> text=Query per_item is paused")
        page.get_by_role("button", name="Resume query per_item", exact=True).click()
        page.wait_for_selector("#queries td >> text=/paused/", state="detached")
        fill(page, "Remove query cheap")
        closed(page)
        page.wait_for_selector('[data-node="query cheap"]', state="detached")
        page.wait_for_function(
            "[...document.querySelectorAll('#log tbody tr')].filter(r => r.innerText.includes('applied')"
            " && !r.innerText.includes('not applied')).length === 7"
        )
        fill(page, "Stop run")
        closed(page)
        assert run.process.wait(120) == 0
    assert run.commands() == [
        {
            "kind": "add_query",
            "name": "cheap",
            "sql": "SELECT item, price FROM clicks WHERE price < 50",
            "sink": "cheap.jsonl",
        },
        {"kind": "resize", "query": "bought", "size": "30 seconds", "of": "clicks"},
        {"kind": "bounds", "stream": "buys", "bounds": {"disorder": "4 s"}},
        {"kind": "budget", "budget": "64 MB", "policy": "spill"},
        {"kind": "pause", "query": "per_item"},
        {"kind": "resume", "query": "per_item"},
        {"kind": "remove_query", "name": "cheap"},
        {"kind": "stop"},
    ]
    page.wait_for_selector("#link.lost")


def test_it_works_with_the_keyboard_alone(page: Any, run: Run) -> None:
    with Customers(run.shop, rate=20):
        ready(page, run)
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.locator('[data-node="stream clicks"]').focus()
        page.keyboard.press("Enter")
        page.wait_for_selector("#detail:not([hidden]) >> text=Stream clicks")
        before = page.locator("#state").inner_text()
        page.wait_for_timeout(1200)  # two updates of the page keep the focus
        assert page.evaluate("document.activeElement.dataset.node") == "stream clicks", before
        page.get_by_role("tab", name="per_item").focus()
        page.keyboard.press("ArrowRight")
        page.wait_for_selector('#tab-bought[aria-selected="true"]')
        page.locator("#charts svg").first.focus()
        page.keyboard.press("ArrowLeft")
        assert " at " in page.locator("#charts svg").first.get_attribute("aria-label")
        page.locator("#add").focus()
        page.keyboard.press("Enter")
        page.wait_for_selector("#dialog[open]")
        assert page.evaluate("document.querySelector('#dialog').contains(document.activeElement)")
        page.keyboard.press("Escape")
        closed(page)
        assert page.evaluate("document.activeElement.id") == "add"


UNNAMED = """() => [...document.querySelectorAll('button, input, select, textarea, svg[role=img]')]
  .filter((each) => each.id !== 'main' && each.offsetParent !== null || each.tagName === 'svg')
  .filter((each) => !(each.getAttribute('aria-label') || each.getAttribute('aria-labelledby')
    || each.labels?.length || each.textContent.trim()))
  .map((each) => each.outerHTML.slice(0, 80))"""


def test_on_a_phone_nothing_is_wider_than_the_screen_and_everything_has_a_name(page: Any, run: Run) -> None:
    page.set_viewport_size({"width": 375, "height": 700})
    with Customers(run.shop, rate=20):
        ready(page, run)
        page.wait_for_selector("#streams td >> text=clicks")
        assert page.evaluate("document.documentElement.scrollWidth") <= 375
        assert page.evaluate(UNNAMED) == []
        for scheme in ("dark", "light"):
            page.locator("#theme").select_option(scheme)
            assert page.evaluate("document.documentElement.dataset.theme") == scheme


def test_a_stalled_query_is_explained(page: Any, tmp_path: Path) -> None:
    shop = Shop(tmp_path / "shop", quiet=True)
    shop.buys(3)
    run = Run(shop)
    try:
        with Customers(shop, rate=20, buy=False, mistakes=False):
            ready(page, run)
            page.wait_for_selector('[data-cause="bound not proven"] >> text=stream buys')
            page.wait_for_selector(".graph .waiting >> text=waits for buys")
            assert "holding" in page.locator('[data-node="stream buys"]').get_attribute("class")
            page.wait_for_selector("#beats .want", state="attached")
    finally:
        run.end()


def test_ten_kinds_of_stalls_are_named_as_why_names_them(page: Any, tmp_path: Path) -> None:
    """Statuses of runs that stalled, one after the other. Their instants lie ahead, so that none gets old."""
    from headrace.dashboard.serving import Address, Served

    shop, ahead = Shop(tmp_path / "shop"), time.time() + 3600
    pipeline, folder = load(shop.file), tmp_path / "shop" / "state"
    folder.mkdir()
    lock = DirectoryLock(folder)
    assert lock.take()

    def show(status: Status, written: float) -> Status:
        shown = replace(status, state="running", written=written, clock_moved=written)
        write_status(pipeline, shown)
        return shown

    shown: set[str] = set()
    served = Served(shop.file, Address(port=0))
    try:
        with served.beside():
            for number, stall in enumerate(STALLS.values()):
                play = Play(tmp_path / str(number), stall)
                play.run()
                status = show(play.statuses[-2], ahead + number)
                if not shown:
                    page.goto(served.url)
                said = Why.of(status).found[0].sentence
                assert said
                page.wait_for_selector(f'#causes [data-cause="{stall.cause}"]')
                page.wait_for_function(
                    "said => document.querySelector('#causes li').textContent.includes(said)", arg=said
                )
                shown.add(stall.cause)
            show(status, time.time() - 600)
            page.wait_for_selector('#causes [data-cause="stalled"]')
            lock.release()
            page.wait_for_selector('#causes [data-cause="killed"]')
    finally:
        lock.release()
    assert len(shown | {"stalled", "killed"}) == 10
