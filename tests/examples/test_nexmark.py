"""NEXMark's queries: the engine's answer is the oracle's, and the stored results are met."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from examples.nexmark import DEFINITIONS, FOLDER, NAMES, engine_for, load, text
from examples.nexmark.__main__ import main
from headrace import Engine, Rules, query
from headrace.connectors.nexmark import STREAMS, NexmarkGenerator, Silence
from headrace.flow.batch import Batch
from headrace.plan.nodes.core import Plan
from headrace.testing import oracle
from headrace.testing.compare import assert_same_stream, events_of

MANY, FEW, STEP, SECOND = 600, 200, 37, 1_000_000
SLOW = {"q0", "q1", "q14", "q15", "q16", "q17", "q18", "q19", "q21", "q22"}
"""Those that the oracle takes long over, or whose rows do not depend on each other."""
HOUSES = {
    "in order": NexmarkGenerator(seed=2, rate=20),
    "scattered": NexmarkGenerator(seed=2, rate=20, disorder=25),
    "delayed": NexmarkGenerator(seed=2, rate=20, disorder=7, delayed=0.1),
    "silent": NexmarkGenerator(seed=2, rate=20, silences=(Silence("auction", 8 * SECOND, 19 * SECOND),)),
}
WANTED = {"q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "q8", "q9", "q11"} | {
    f"q{n}" for n in range(14, 23)
}
Sources = dict[str, list[tuple[int, dict[str, Any]]]]


def arrivals(
    house: NexmarkGenerator, events: int = MANY
) -> list[tuple[int, dict[str, tuple[pa.RecordBatch, Any]]]]:
    """The rows by instant of arrival: what comes between two instants comes together, at the second."""
    base = house.laws.base
    end = base + events * SECOND // 20
    steps = [*range(base, end, STEP * SECOND // 20), end, end + house.arrival.longest + SECOND]
    parts = []
    for begin, until in pairwise(steps):
        rows = house.arriving(begin, until)
        kept = {s: r.positions < events for s, r in rows.items()}
        parts.append(
            (until, {s: (r.data.filter(pa.array(kept[s])), r.times[kept[s]]) for s, r in rows.items()})
        )
    return parts


def drive(house: NexmarkGenerator, plan: Plan, events: int = MANY) -> tuple[list[Batch], Sources]:
    """The engine's answers, and what it was given, in order of arrival."""
    engine = engine_for(house, {"q": plan})
    given: Sources = {stream: [] for stream in STREAMS}
    answers: list[Batch] = []
    for now, rows in arrivals(house, events):
        for stream in engine.streams:
            data, times = rows[stream]
            engine.push(stream, data, times, now=now)
            given[stream] += zip(times.tolist(), data.to_pylist(), strict=True)
        answers += engine.drain()
    for stream in engine.streams:
        engine.streams.end(stream)
    answers += engine.drain()
    assert not engine.drain_late()
    return answers, given


@pytest.mark.parametrize("house", HOUSES)
@pytest.mark.parametrize("name", NAMES)
def test_a_query_gives_the_oracles_answer(name: str, house: str) -> None:
    found = load(name)
    answers, given = drive(HOUSES[house], found.plan, FEW if name in SLOW else MANY)
    expected = oracle.stream(found.plan, given)
    assert_same_stream(answers, expected, schema=found.schema)
    assert expected, "a query without answers tests nothing"


def test_every_query_is_there_and_has_its_line_in_the_table() -> None:
    assert set(NAMES) == WANTED
    table = (FOLDER / "README.md").read_text()
    assert re.findall(r"^\| (q\d+) \|", table, re.M) == NAMES
    assert all(text(name).startswith("-- ") for name in NAMES)


def test_the_answers_come_while_rows_still_come() -> None:
    """Heartbeats from the bounds release windows long before the streams end."""
    house = HOUSES["scattered"]
    engine = engine_for(house, {"q5": load("q5")})
    early = 0
    for now, rows in arrivals(house):
        for stream in engine.streams:
            engine.push(stream, *rows[stream], now=now)
        early += sum(len(batch) for batch in engine.drain())
    assert early >= 10


def test_the_runner_shows_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["q5", "--events", "5000", "--rate", "500", "--disorder", "20", "--show", "3"]) == 0
    shown = capsys.readouterr().out
    assert "RANGE 10 SECONDS SLIDE 2 SECONDS" in shown
    assert shown.count("auction=") == 3
    assert re.search(r"[1-9]\d* answers to 5,000 events in", shown)
    assert main(["q3", "--explain"]) == 0
    assert "join" in capsys.readouterr().out


# ------------------------------------------------------------------------------------- the stored results


def stored(folder: Path) -> Sources:
    found: Sources = {}
    for stream in STREAMS:
        rows = [json.loads(line) for line in (folder / f"{stream}.jsonl").read_text().splitlines()]
        for row in rows:
            row |= {k: dt.datetime.fromisoformat(row[k]) for k in ("date_time", "expires") if k in row}
        found[stream] = [(ticks(row["date_time"]), row) for row in rows]
    return found


def ticks(time: dt.datetime) -> int:
    return (time - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)


def relation(name: str, sources: Sources) -> Counter[tuple[Any, ...]]:
    """What the query holds in the end: all rows that came less all that went."""
    came = answers(f"ISTREAM({text(name)})", sources)
    gone = answers(f"DSTREAM({text(name)})", sources) if "[UNBOUNDED]" in text(name) else Counter()
    assert not gone - came
    return came - gone


def answers(statement: str, sources: Sources) -> Counter[tuple[Any, ...]]:
    found = query(statement, DEFINITIONS)
    engine = Engine()
    for each in DEFINITIONS:
        engine.streams.declare(each.source, rules=Rules(disordered=True, enforce="strict"))
    engine.add("q", found)
    for stream in engine.streams:
        rows = sources[stream]
        data = pa.RecordBatch.from_pylist([row for _, row in rows], STREAMS[stream].schema)
        engine.push(stream, data, [time for time, _ in rows])
        engine.streams.end(stream)
    return Counter(row for _, row in events_of(engine.drain()))


def as_printed(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(float(v) if isinstance(v, (int, Decimal)) else v for v in row)


def as_read(line: str, like: tuple[Any, ...]) -> tuple[Any, ...]:
    fields = re.split(r"\t|\s{2,}", line)
    readers = {dt.datetime: dt.datetime.fromisoformat, str: str}
    return tuple(readers.get(type(v), float)(field) for v, field in zip(like, fields, strict=True))


@pytest.mark.parametrize("name", ["q0", "q1", "q2", "q3", "q4"])
def test_a_stored_result_is_met(name: str, shared_data: Callable[[str], Path]) -> None:
    folder = shared_data("nexmark")
    lines = json.loads((folder / "expected" / f"{name}.json").read_text())["expected_lines_as_printed"]
    found = relation(name, stored(folder))
    width = len(re.split(r"\t|\s{2,}", lines[0]))
    rows = Counter(as_printed(row[:width]) for row in found.elements())
    like = next(iter(rows))
    assert len(lines) > 0
    assert rows == Counter(as_read(line, like) for line in lines)
