"""What the demonstration on Spark tells, of answers made up here; `make soak` runs the whole of it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("rich", reason="the cli extra is not installed")

from rich.console import Console

from examples.auction import open_house
from examples.demo.__main__ import Show
from examples.demo.house import WINDOW, House, pace
from examples.demo.queries import Side, Window
from examples.demo.screen import Screen

SECOND = 1_000_000
OPENED = 1_767_225_600 * SECOND


class Query:
    """A query that goes on and has dropped two rows."""

    recentProgress = (SimpleNamespace(stateOperators=[SimpleNamespace(numRowsDroppedByWatermark=2)]),)

    def exception(self) -> None:
        return None


def side(name: str, after: dict[int, float]) -> Side:
    """A side whose windows, by their number, came out so many seconds after their end."""
    made = Side(name, lambda each: Query())  # type: ignore[arg-type, return-value]
    for number, delay in after.items():
        end = OPENED + (number + 1) * WINDOW
        made.windows[end] = Window(end / SECOND + delay, {(number, 10, 20.0 + number, 0)})
    return made


@pytest.fixture
def show(tmp_path: Path) -> Show:
    house = House(tmp_path)
    house.auction, house.opened = open_house(pace(15)), OPENED
    house.written = {"bids": 32, "auctions": 3, "closings": 1}
    prompt = side("with Headrace", {0: 3.5, 1: 4.0, 2: 3.6})
    prompt.late = [late(OPENED + 2 * SECOND)]
    prompt.rejected = [SimpleNamespace(code="HR-R001", reason="the row has no time", row="{}")]
    alone = side("Spark alone", {0: 12.0})
    return Show(house, prompt, alone, time.monotonic(), OPENED + 20 * SECOND)


def late(at: int) -> Any:
    bid = {"item": 2, "bidder": "p7", "price": 9.5}
    return SimpleNamespace(stream="bids", time=at, lateness=7 * SECOND, row=json.dumps(bid))


def told(show: Show, picture: Path | None = None) -> str:
    out = StringIO()
    Screen(Console(file=out, width=100, highlight=False), show).conclude(picture)
    return " ".join(out.getvalue().split())


def test_the_summary_tells_of_both_sides_and_of_every_bid(show: Show, tmp_path: Path) -> None:
    text = told(show, tmp_path / "demo.svg")
    assert "came out 3.6 s after its window, 4.0 s at the latest" in text
    assert "up to 12.0 s, and still holds 2 answers back" in text
    assert "held back, 5 s" in text
    assert "Bids: 32 = 30 in answers + 1 late + 1 rejected: every row accounted for." in text
    assert "9.50 for the globe, by p7" in text
    assert "counted 2 dropped rows" in text
    assert "1 with exactly the same rows" in text
    assert (tmp_path / "demo.svg").read_text().startswith("<svg")


def test_a_row_that_is_missing_and_a_window_that_differs_are_not_hidden(show: Show) -> None:
    show.house.written["bids"] = 35
    show.alone.windows[OPENED + 2 * WINDOW] = Window(OPENED / SECOND + 20, {(1, 9, 21.0, 0)})
    text = told(show)
    assert "3 missing" in text
    assert "which is a bug" in text


def test_the_house_is_silent_for_a_long_while() -> None:
    closings = open_house(pace(40)).streams["closings"].arrival
    assert len(closings) >= 2
    assert max(closings[1:] - closings[:-1]) > 15 * SECOND


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_the_demonstration_runs() -> None:
    command = [sys.executable, "-m", "examples.demo", "--seconds", "25"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=840)
    assert done.returncode == 0, done.stdout
    assert "every row accounted for" in done.stdout
    assert "exactly the same rows" in done.stdout
