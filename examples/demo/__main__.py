"""The auction house live on Spark in local mode, with Headrace and without: `make demo`.

Both queries are real, run at the same time and read the same files; every number is measured in the run.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from examples.spark_log import spark_speaks_to

if TYPE_CHECKING:
    from examples.demo.house import House
    from examples.demo.queries import Side
    from examples.demo.screen import Screen

LIMIT = 80.0
"""Seconds from start to end, at most; on a slow machine the house is open for a shorter time."""
OPEN, LEAST = 40.0, 25.0
AFTER = 12.0
"""Seconds to leave for the time after the doors are closed."""
SETTINGS: dict[str, Any] = {
    "spark.ui.enabled": False,
    "spark.ui.showConsoleProgress": False,
    "spark.log.level": "OFF",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": 1,
    # A minute is too short for what is compiled to pay.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": False,
    "spark.python.authenticate.socketTimeout": "60s",
}


@dataclass
class Show:
    """What there is to see: the house, both queries, and what happened when."""

    house: House
    prompt: Side
    alone: Side
    began: float
    ended: int = 0
    """The microsecond at which the last answer of Headrace was out."""


def main(words: list[str] | None = None) -> int:
    """Run the demonstration; the exit code."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--picture", type=Path, help="write the last screen here, as SVG")
    parser.add_argument("--seconds", type=float, default=OPEN, help="how long the house is open")
    asked = parser.parse_args(words)
    console = Console(highlight=False)
    log = Path(tempfile.gettempdir(), f"headrace-demo-{os.getpid()}.log")
    try:
        with spark_speaks_to(log):
            run(console, asked.seconds, asked.picture)
    except KeyboardInterrupt:
        console.print("\nStopped.")
        return 130
    except Exception as error:
        said = str(error) or repr(error)
        console.print(f"\n{said[:600]}", style="red", markup=False)
        console.print(f"\nWhat Spark said: {log}\nThe demonstration without Spark: make demo-embedded")
        return 1
    log.unlink()
    return 0


def run(console: Console, seconds: float = OPEN, picture: Path | None = None) -> Show:
    """The whole of it; gives back what was measured."""
    began = time.monotonic()
    console.print("Starting Spark and two queries, one with Headrace and one of Spark alone ...")
    import headrace
    from examples.demo.house import House
    from examples.demo.queries import spark_alone, with_headrace
    from examples.demo.screen import Screen

    logging.getLogger("headrace.spark").setLevel(logging.ERROR)
    spark = headrace.spark.session("headrace demo", "local[2]", **SETTINGS)
    with tempfile.TemporaryDirectory(prefix="headrace-demo-", ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        house = House(root)
        sides = [_awake(house, make(spark, root)) for make in (with_headrace, spark_alone)]
        show = Show(house, *sides, began)
        try:
            with Screen(console, show) as screen:
                _watch(show, screen, seconds)
            screen.conclude(picture)
        finally:
            show.house.leave()
            for side in (show.prompt, show.alone):
                side.query.stop()
            spark.stop()
    return show


def _awake(house: House, side: Side) -> Side:
    """Rehearse until a query has been through a micro-batch."""
    while not side.awake:
        house.rehearse()
        time.sleep(1)
    return side


def _watch(show: Show, screen: Screen, seconds: float) -> None:
    """The house is open; then what is still under way comes out."""
    spent = time.monotonic() - show.began
    show.house.open(max(LEAST, min(seconds, LIMIT - AFTER - spent)) // 5 * 5)
    while not show.house.over:
        screen.refresh()
    end = max(show.began + LIMIT, time.monotonic() + AFTER)
    while not screen.all_out() and time.monotonic() < end:
        screen.refresh()
    show.ended = time.time_ns() // 1000


if __name__ == "__main__":
    sys.exit(main())
