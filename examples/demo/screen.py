"""What the demonstration shows: the streams, the windows on both sides, and in the end a summary."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from examples.auction import STREAMS, TITLES
from examples.demo.house import WINDOW, now
from examples.demo.queries import BEHIND, Side, Window
from headrace.testing.arrivals import SECOND

if TYPE_CHECKING:
    from examples.demo.__main__ import Show

WIDTH = 100
MOST = 6
"""Late rows that are shown."""
GOOD, BAD, DIM = "green", "red", "dim"
KINDS = {
    "bids": "busy, and out of order by up to a second",
    "auctions": "an item is put up for sale, now and then",
    "closings": "an auction closes: nearly silent",
}


class Screen:
    """A live table on a terminal, a line for each window elsewhere."""

    def __init__(self, console: Console, show: Show) -> None:
        self.console, self.show = console, show
        self._live: Live | None = None
        self._told: set[tuple[str, int]] = set()

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live = Live(console=self.console, refresh_per_second=4, get_renderable=self._screen)
            self._live.start()
        else:
            _print(self.console, self._question())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def refresh(self) -> None:
        """Let a moment pass; look whether both queries still run."""
        time.sleep(0.25)
        for side in (self.show.prompt, self.show.alone):
            side.check()
            if self._live is None:
                self._tell(side)

    def conclude(self, picture: Path | None) -> None:
        """The summary, and the picture of it all."""
        summary = Group(*self._summary())
        if self._live is None:
            _print(self.console, Text(), self._windows())
        _print(self.console, summary)
        if picture is not None:
            paper = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True, highlight=False)
            _print(paper, self._screen(), summary)
            paper.save_svg(str(picture), title="make demo", clear=False)

    # ------------------------------------------------------------------------------------ what is known

    def ends(self) -> list[int]:
        """The ends of all windows so far, those of the rehearsal apart."""
        return [end for end in self.show.house.windows() if end <= now()]

    def held(self) -> list[int]:
        """Windows that are out with Headrace and that Spark alone still holds back."""
        prompt, alone = self.show.prompt, self.show.alone
        return [end for end in self.ends() if end in prompt.windows and end not in alone.windows]

    def all_out(self) -> bool:
        """Whether every window is out with Headrace."""
        return all(end in self.show.prompt.windows for end in self.show.house.windows())

    # --------------------------------------------------------------------------------------- the screen

    def _screen(self) -> RenderableType:
        return Group(self._question(), self._streams(), Text(), self._windows())

    def _question(self) -> RenderableType:
        return Group(
            Text("\nAn auction house, live on Spark in local mode", style="bold"),
            Text(
                "Every five seconds: for each item, how many bids, the highest, is it sold?\n"
                "Asked twice at the same time, over the same files: with Headrace, and of Spark alone.\n"
            ),
        )

    def _streams(self) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style=DIM)
        for name, justify in (("stream", "left"), ("rows", "right"), ("last row", "right"), ("", "left")):
            table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
        house = self.show.house
        until = now() if not house.over else house.opened + (house.auction.end if house.auction else 0)
        for name in STREAMS:
            silence = max(0, until - house.newest[name]) / SECOND
            quiet = Text(f"{silence:.0f} s ago", style=BAD if silence > BEHIND + 2 else "")
            table.add_row(name, f"{house.written[name]:,}", quiet, Text(KINDS[name], style=DIM))
        return table

    def _windows(self) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style=DIM)
        for name in ("five seconds", "highest bids", self.show.prompt.name, self.show.alone.name):
            table.add_column(name, no_wrap=True)
        for end in self.ends():
            table.add_row(_interval(end), *self._cells(end))
        return table

    def _cells(self, end: int) -> Iterator[RenderableType]:
        answered = self.show.prompt.windows.get(end) or self.show.alone.windows.get(end)
        yield Text(_highest(answered) if answered else "", overflow="ellipsis")
        for side, style in ((self.show.prompt, GOOD), (self.show.alone, "yellow")):
            window = side.windows.get(end)
            if window is not None:
                yield Text(f"out after {_after(window, end):4.1f} s", style=style)
            elif side is self.show.alone and end in self.show.prompt.windows:
                yield Text(f"held back, {(self._instant() - end) / SECOND:.0f} s", style=BAD)
            else:
                yield Text("...", style=DIM)

    def _instant(self) -> int:
        """Now; once all is over, the instant at which it was."""
        return self.show.ended or now()

    def _tell(self, side: Side) -> None:
        for end in self.ends():
            window = side.windows.get(end)
            if window is not None and (side.name, end) not in self._told:
                self._told.add((side.name, end))
                out = f"out {_after(window, end):4.1f} s after its end"
                self.console.print(f"  {_interval(end)}  {side.name:<14} {out}  {_highest(window)}")

    # -------------------------------------------------------------------------------------- the summary

    def _summary(self) -> Iterator[RenderableType]:
        yield Text("\nIn short", style="bold")
        for text in (self._on_time(), self._waiting(), self._apart(), self._account(), self._same()):
            yield Padding(Text.from_markup(f"- {text}"), (0, 0, 0, 0))
        yield from self._late_rows()
        took = time.monotonic() - self.show.began
        yield Text(
            f"\n{took:.0f} s, the start of Spark included. Read on: README.md, docs/guide.md\n", style=DIM
        )

    def _on_time(self) -> str:
        delays = self._delays(self.show.prompt)
        return (
            f"With Headrace an answer came out [{GOOD}]{statistics.median(delays):.1f} s[/] after its window,"
            f" {max(delays):.1f} s at the latest.\n  A row may be {BEHIND} s on its way: none can be sooner."
        )

    def _waiting(self) -> str:
        delays, held = self._delays(self.show.alone), self.held()
        said = (
            f"Spark alone took up to [{BAD}]{max(delays):.1f} s[/]" if delays else "Spark alone gave nothing"
        )
        if held:
            said += f", and [{BAD}]still holds {_count(len(held), 'answer')} back[/]"
        return (
            f"{said}: its watermark stands still\n  while closings are silent, and with it the bids."
            f" Headrace looks at the clock too:\n  a closing that is {BEHIND} s late will not come."
        )

    def _apart(self) -> str:
        prompt, alone = self.show.prompt, self.show.alone
        reasons = "; ".join(sorted({f"{row.code}: {_reason(row.reason)}" for row in prompt.rejected}))
        return (
            f"{_count(len(prompt.late), 'late bid')} kept apart, each with the heartbeat that it missed;"
            f" {len(prompt.rejected)} rejected\n  ({reasons}).\n  Spark alone keeps neither; it counted"
            f" {_count(alone.dropped, 'dropped row')}."
        )

    def _account(self) -> str:
        prompt = self.show.prompt
        counted = sum(bids for _, bids, _, _ in self._rows(prompt))
        parts = (counted, len(prompt.late), len(prompt.rejected))
        came = self.show.house.written["bids"]
        verdict = (
            "every row accounted for" if sum(parts) == came else f"[{BAD}]{came - sum(parts)} missing[/]"
        )
        return f"Bids: {came:,} = {parts[0]:,} in answers + {parts[1]} late + {parts[2]} rejected: {verdict}."

    def _same(self) -> str:
        prompt, alone = self.show.prompt.windows, self.show.alone.windows
        both = [end for end in self.ends() if end in prompt and end in alone]
        same = [end for end in both if prompt[end].rows == alone[end].rows]
        said = f"Of {_count(len(both), 'window')} that both answered, {len(same)} with exactly the same rows"
        others = set(both) - set(same)
        if not others:
            return said + "."
        missed = {_end(row.time) for row in self.show.prompt.late}
        if others <= missed:
            return f"{said};\n  in the others Spark, still waiting, counted a late bid."
        return f"{said}; [{BAD}]the others differ, which is a bug: please report it[/]."

    def _late_rows(self) -> Iterator[RenderableType]:
        table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style=DIM)
        for name in ("late bid", "made at", "too late by"):
            table.add_column(name, no_wrap=True)
        for row in sorted(self.show.prompt.late, key=lambda each: -each.lateness)[:MOST]:
            bid = json.loads(row.row)
            what = f"{bid['price']:.2f} for the {TITLES[bid['item']]}, by {bid['bidder']}"
            table.add_row(what, _clock(row.time), f"{row.lateness / SECOND:.1f} s")
        if self.show.prompt.late:
            yield Text()
            yield table

    def _delays(self, side: Side) -> list[float]:
        return [_after(side.windows[end], end) for end in self.ends() if end in side.windows]

    def _rows(self, side: Side) -> Iterable[Any]:
        first = self.show.house.opened
        return [row for end, window in side.windows.items() if end > first for row in window.rows]


# ------------------------------------------------------------------------------------------- small helpers


def _print(console: Console, *parts: RenderableType) -> None:
    for part in parts:
        console.print(part, width=min(WIDTH, console.width))


def _after(window: Window, end: int) -> float:
    return window.out - end / SECOND


def _highest(window: Window) -> str:
    """The two highest bids; what was sold first."""
    rows = sorted((r for r in window.rows if r[2] is not None), key=lambda r: (-r[3], -r[2]))
    named = (f"{TITLES[r[0]]} {r[2]:.2f}{' SOLD' if r[3] else ''}" for r in rows[:2])
    return ", ".join(named)


def _interval(end: int) -> str:
    return f"{_clock(end - WINDOW)} - {_clock(end)[-2:]}"


def _clock(micros: int) -> str:
    return f"{datetime.fromtimestamp(micros / SECOND, UTC):%H:%M:%S}"


def _end(time: int) -> int:
    """The end of the window that a time is in."""
    return (time // WINDOW + 1) * WINDOW


def _reason(text: str) -> str:
    return text.split(",", maxsplit=1)[0].split(";", maxsplit=1)[0]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
