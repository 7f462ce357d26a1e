"""A run as a table on a terminal, as lines of text elsewhere, and as JSON for scripts."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Final

from rich.box import SIMPLE
from rich.console import Console, Group
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from headrace.engine.reasons import Reason
from headrace.runtimes.status import RUNNING, STARTING, Status, StreamStatus
from headrace.runtimes.status_file import read
from headrace.runtimes.why import Why
from headrace.runtimes.words import instant, length, size

Show = Callable[[Status], None]
"""Shows the status of a run while it goes on."""


def as_table(status: Status) -> Group:
    """The status of a run as tables: streams, queries, operators, late and rejected rows."""
    counts = ["late", "rejected"] + ["shed"] * any(s.rows_shed for s in status.streams.values())
    streams = _table("stream", "rows", "rows/s", "heartbeat", "lag", *counts)
    for name, s in status.streams.items():
        beat = "-" if s.heartbeat is None else instant(s.heartbeat, status.ticks_per_second)
        lag = "-" if s.lag is None else length(max(0, s.lag), status.ticks_per_second)
        numbers = (f"{s.rows_in:,}", f"{s.rows_per_second:,.0f}", "ended" if s.ended else beat, lag)
        streams.add_row(name, *numbers, *(f"{getattr(s, f'rows_{count}'):,}" for count in counts))
    queries = _table("query", "answers", "answers/s", "memory")
    for name, q in status.queries.items():
        title = f"{name} (paused, {q.held:,} held)" if q.paused else name
        queries.add_row(title, f"{q.rows_out:,}", f"{q.rows_per_second:,.0f}", size(q.bytes))
    operators = _table("operator", "state")
    for name, held in status.operators.items():
        operators.add_row(name, size(held))
    shown: list[Table | Text] = [streams, queries, operators]
    if status.reasons:
        shown.append(_apart(status.reasons))
    if status.quality:
        shown.append(_quality(status))
    changed = {**status.orders, **status.conditions}
    if changed:
        shown.append(_orders(changed))
    wrong = [Text(str(each)) for each in Why.of(status).found if not each.cause.normal]
    return Group(*shown, Text(_line(status)), *wrong)


def _apart(reasons: Iterable[Reason]) -> Table:
    """The table of reasons why rows were late or rejected."""
    table = Table("late or rejected", Column("rows", justify="right"), "why", box=SIMPLE)
    for each in reasons:
        table.add_row(each.stream, f"{each.rows:,}", Text(why_apart(each)))
    return table


def why_apart(reason: Reason) -> str:
    """Why rows were late or rejected."""
    if reason.kind == "late":
        return f"late by up to {length(reason.worst)}"
    if not reason.code:
        return "rejected for other reasons"
    return f"rejected with {reason.code}; first: {reason.first}"


def apart(reasons: Iterable[Reason], stream: str) -> list[str]:
    """A line for each reason why rows of a stream were late or rejected."""
    return [f"    {each.rows:,} {why_apart(each)}" for each in reasons if each.stream == stream]


def _quality(status: Status) -> Table:
    """The table of adaptive windows and granularities."""
    table = _table("adaptive", "now", "min", "max", "changes")
    for each in status.quality.values():
        values = (each.value, each.least, each.most)
        sizes = (f"{v:,} rows" if each.rows else length(v, status.ticks_per_second) for v in values)
        table.add_row(each.what, *sizes, f"{each.changes:,}")
    return table


def _orders(changed: dict[str, str]) -> Table:
    """The table of conditions that run in a different order from the one written."""
    table = Table("reordered", "current order, by measured cost", box=SIMPLE)
    for what, order in changed.items():
        table.add_row(what, Text(order))
    return table


def _table(of: str, *numbers: str) -> Table:
    """A table with names on the left and numbers on the right."""
    return Table(of, *(Column(name, justify="right") for name in numbers), box=SIMPLE)


def _line(status: Status) -> str:
    """The summary line below the tables."""
    waits = len({each.query for each in status.waiting})
    waiting = f"{_count(waits, 'waiting query', 'waiting queries')}" if waits else "nothing is waiting"
    commits = _count(status.checkpoints, "checkpoint", "checkpoints")
    reached = commits if status.batch is None else f"micro-batch {status.batch}"
    return (
        f"{status.pipeline} {status.state}, {status.elapsed:.1f} s, clock {status.clock}, "
        f"{waiting}, memory {_memory(status)}, {reached}"
    )


def _memory(status: Status) -> str:
    """The memory in use, the budget, and what was spilled."""
    held = f"{status.bytes / 1e6:.1f} MB"
    held += "" if status.budget is None else f" of {status.budget / 1e6:.1f} MB"
    return f"{held}, {size(status.spilled_bytes)} on disk" if status.spilled_bytes else held


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def as_line(status: Status) -> str:
    """The status of a run in one line, for logs."""
    streams = " ".join(f"{name}={_account(s)}" for name, s in status.streams.items())
    queries = " ".join(f"{name}={q.rows_out}" for name, q in status.queries.items())
    why = "".join(f"; {each.stream}: {each.rows:,} {why_apart(each)}" for each in status.reasons[:1])
    return f"{_line(status)}; in {streams}; out {queries}{why}"


def _account(stream: StreamStatus) -> str:
    """The counters of one stream, for one line."""
    shed = f" shed {stream.rows_shed}" if stream.rows_shed else ""
    lost = f"late {stream.rows_late} rejected {stream.rows_rejected}{shed}"
    return f"{stream.rows_in}(+{stream.rows_per_second:.0f}/s {lost})"


def unused(progress: Status) -> list[str]:
    """The streams that had rows, but none that could be processed."""
    return [name for name, s in progress.streams.items() if s.rows_in and not s.rows_processed]


def ended(unused: Collection[str], as_json: bool) -> int:
    """The exit code of a run without errors: not 0 if no row of some stream could be used."""
    if unused and not as_json:
        streams = ", ".join(unused)
        print(f"error: no row of {streams} was processed: all rows were late or rejected", file=sys.stderr)
    return NOTHING_USED if unused else 0


NOTHING_USED: Final = 3


def last_words(progress: Status, as_json: bool, said: Collection[str] = ()) -> str:
    """The summary of a run; messages in `said` were printed before and are not repeated."""
    if as_json:
        return progress.text()
    lines = [f"{progress.pipeline} is {progress.state} after {progress.elapsed:.1f} s"]
    for name, s in progress.streams.items():
        account = f"{s.rows_processed:,} processed, {s.rows_late:,} late, {s.rows_rejected:,} rejected"
        account += f", {s.rows_shed:,} shed" if s.rows_shed else ""
        lines.append(f"  stream {name}: {s.rows_in:,} rows in = {account}")
        lines += apart(progress.reasons, name)
    lines += [f"  query {name}: {q.rows_out:,} answers" for name, q in progress.queries.items()]
    lines += [f"  note: {each}" for each in progress.messages if each not in said]
    if progress.state == "stopped" and progress.checkpoints:
        lines.append("  run it again to continue")
    return "\n".join(lines)


# `headrace status` and `headrace top`


def print_table(status: Status) -> None:
    """Show a status once."""
    Console().print(as_table(status))


def watch(file: Path, once: bool) -> None:
    """Show the newest status until the run ends, or once."""
    status = read(file)
    if once or status.state not in (RUNNING, STARTING):
        print_table(status)
        return
    with Live(as_table(status), console=Console(), refresh_per_second=4) as live:
        while status.state in (RUNNING, STARTING):
            time.sleep(0.5)
            status = read(file)
            live.update(as_table(status))
