"""A run as a table on a terminal, as lines of text elsewhere, and as JSON for scripts."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Collection, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from rich.box import SIMPLE
from rich.console import Console, Group
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from headrace.cli.status import read
from headrace.cli.why import instant, length
from headrace.runtimes.embedded import Progress


def as_table(status: dict[str, Any]) -> Group:
    """The status of a run as tables: streams, queries, operators, late and rejected rows."""
    counts = ["late", "rejected"] + ["shed"] * any(s.get("rows_shed") for s in status["streams"].values())
    streams = _table("stream", "rows", "rows/s", "heartbeat", "lag", *counts)
    for name, s in status["streams"].items():
        beat = "ended" if s["ended"] else "-" if s["heartbeat"] is None else instant(s["heartbeat"])
        lag = "-" if s["lag"] is None else length(max(0, s["lag"]))
        numbers = (f"{s['rows_in']:,}", f"{s['rows_per_second']:,.0f}", beat, lag)
        streams.add_row(name, *numbers, *(f"{s.get(f'rows_{count}', 0):,}" for count in counts))
    queries = _table("query", "answers", "answers/s", "memory")
    for name, q in status["queries"].items():
        queries.add_row(name, f"{q['rows_out']:,}", f"{q['rows_per_second']:,.0f}", _size(q["bytes"]))
    operators = _table("operator", "state")
    for name, size in status["operators"].items():
        operators.add_row(name, _size(size))
    shown = [streams, queries, operators]
    if status.get("reasons"):
        shown.append(_apart(status["reasons"]))
    if status["quality"]:
        shown.append(_quality(status["quality"]))
    changed = {**status.get("orders", {}), **status.get("conditions", {})}
    if changed:
        shown.append(_orders(changed))
    return Group(*shown, Text(_line(status)))


def _apart(reasons: Iterable[dict[str, Any]]) -> Table:
    """The table of reasons why rows were late or rejected."""
    table = Table("late or rejected", Column("rows", justify="right"), "why", box=SIMPLE)
    for each in reasons:
        table.add_row(each["stream"], f"{each['rows']:,}", Text(why_apart(each)))
    return table


def why_apart(reason: dict[str, Any]) -> str:
    """Why rows were late or rejected."""
    if reason["kind"] == "late":
        return f"late by up to {length(reason['worst'])}"
    if not reason["code"]:
        return "rejected for other reasons"
    return f"rejected with {reason['code']}; first: {reason['first']}"


def apart(reasons: Iterable[dict[str, Any]], stream: str) -> list[str]:
    """A line for each reason why rows of a stream were late or rejected."""
    return [f"    {each['rows']:,} {why_apart(each)}" for each in reasons if each["stream"] == stream]


def _quality(changeable: dict[str, Any]) -> Table:
    """The table of adaptive windows and granularities."""
    table = _table("adaptive", "now", "min", "max", "changes")
    for each in changeable.values():
        sizes = (length(each[key]) for key in ("value", "least", "most"))
        table.add_row(each["what"], *sizes, f"{each['changes']:,}")
    return table


def _orders(changed: dict[str, str]) -> Table:
    """The table of conditions that run in a different order from the one written."""
    table = Table("reordered", "current order, by measured cost", box=SIMPLE)
    for what, order in changed.items():
        table.add_row(what, Text(order))
    return table


def _size(bytes: int) -> str:
    return f"{bytes / 1e6:,.1f} MB" if bytes >= 1e5 else f"{bytes / 1e3:,.1f} kB"


def _table(of: str, *numbers: str) -> Table:
    """A table with names on the left and numbers on the right."""
    return Table(of, *(Column(name, justify="right") for name in numbers), box=SIMPLE)


def _line(status: dict[str, Any]) -> str:
    """The summary line above the tables."""
    waiting = f"{len(status['waiting'])} waiting" if status["waiting"] else "nothing is waiting"
    return (
        f"{status['pipeline']} {status['state']}, {status['elapsed']:.1f} s, clock {status['clock']}, "
        f"{waiting}, memory {_memory(status)}, {_count(status['checkpoints'], 'checkpoint')}"
    )


def _memory(status: dict[str, Any]) -> str:
    """The memory in use, the budget, and what was spilled."""
    held = f"{status['bytes'] / 1e6:.1f} MB"
    held += "" if status["budget"] is None else f" of {status['budget'] / 1e6:.1f} MB"
    return f"{held}, {_size(status['spilled_bytes'])} on disk" if status.get("spilled_bytes") else held


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def as_line(status: dict[str, Any]) -> str:
    """The status of a run in one line, for logs."""
    streams = " ".join(f"{name}={_account(s)}" for name, s in status["streams"].items())
    queries = " ".join(f"{name}={q['rows_out']}" for name, q in status["queries"].items())
    why = "".join(f"; {each['stream']}: {each['rows']:,} {why_apart(each)}" for each in status["reasons"][:1])
    return f"{_line(status)}; in {streams}; out {queries}{why}"


def _account(stream: dict[str, Any]) -> str:
    """The counters of one stream, for one line."""
    rate, late, rejected = (stream[key] for key in ("rows_per_second", "rows_late", "rows_rejected"))
    shed = f" shed {stream['rows_shed']}" if stream.get("rows_shed") else ""
    return f"{stream['rows_in']}(+{rate:.0f}/s late {late} rejected {rejected}{shed})"


def unused(progress: Progress) -> list[str]:
    """The streams that had rows, but none that could be processed."""
    return [name for name, s in progress.streams.items() if s.rows_in and not s.rows_processed]


def ended(unused: Collection[str], as_json: bool) -> int:
    """The exit code of a run without errors: not 0 if no row of some stream could be used."""
    if unused and not as_json:
        streams = ", ".join(unused)
        print(f"error: no row of {streams} was processed: all rows were late or rejected", file=sys.stderr)
    return NOTHING_USED if unused else 0


NOTHING_USED: Final = 3


def last_words(progress: Progress, as_json: bool, said: Collection[str] = ()) -> str:
    """The summary of a run; messages in `said` were printed before and are not repeated."""
    status = asdict(progress)
    if as_json:
        return json.dumps(status)
    lines = [f"{progress.pipeline} is {progress.state} after {progress.elapsed:.1f} s"]
    for name, s in progress.streams.items():
        account = f"{s.rows_processed:,} processed, {s.rows_late:,} late, {s.rows_rejected:,} rejected"
        account += f", {s.rows_shed:,} shed" if s.rows_shed else ""
        lines.append(f"  stream {name}: {s.rows_in:,} rows in = {account}")
        lines += apart(status["reasons"], name)
    lines += [f"  query {name}: {q.rows_out:,} answers" for name, q in progress.queries.items()]
    lines += [f"  note: {each}" for each in progress.messages if each not in said]
    if progress.state == "stopped" and progress.checkpoints:
        lines.append("  run it again to continue")
    return "\n".join(lines)


# `headrace top`


def watch(file: Path, once: bool) -> None:
    """Show the newest status until the run ends, or once."""
    console = Console()
    status = read(file)
    if once or status["state"] != "running":
        console.print(as_table(status))
        return
    with Live(as_table(status), console=console, refresh_per_second=4) as live:
        while status["state"] == "running":
            time.sleep(0.5)
            status = read(file)
            live.update(as_table(status))
