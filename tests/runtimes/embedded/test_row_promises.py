"""Punctuations and heartbeats that come as rows of a file, in the embedded runtime."""

from __future__ import annotations

import json
import random
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import PipelineError
from headrace.pipeline import load, parse
from headrace.runtimes.embedded import Runner
from headrace.time.clock import ManualClock

SECOND = 1_000_000

TEXT = """
[pipeline]
name = "auction"
runtime = "embedded"
clock = "{clock}"
checkpoint = "state"

[streams.bids]
source = {{ path = "bids.jsonl", missing = "null", follow = {follow} }}
schema = "auction BIGINT, price BIGINT, at BIGINT, came BIGINT, closed BOOLEAN, until BIGINT"
time = {{ column = "at", unit = "s" }}
bounds = {{ disorder = "1 hour" }}
{bids}

[streams.closings]
source = {{ path = "closings.jsonl", missing = "null", follow = {follow} }}
schema = "id INT, done BOOLEAN, at BIGINT, came BIGINT"
time = {{ column = "at", unit = "s" }}
{closings}

[[queries]]
name = "q"
sql = "SELECT auction, count(*) AS n FROM bids [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY auction"
sink = "q.jsonl"
late = "late.jsonl"
rejected = "rejected.jsonl"
"""

OWN = 'punctuations = { column = "closed", pattern = ["auction"] }'
OWN_DATA = 'punctuations = { column = "closed", pattern = ["auction"], data = true }'
TWO = 'punctuations = [{ column = "closed", pattern = ["auction", "price"] }]'
OTHER = 'punctuations = { stream = "closings", pattern = { auction = "id" } }'
MARKED = 'punctuations = { stream = "closings", column = "done", pattern = { auction = "id" } }'
BEATS = 'heartbeats = { column = "until" }'
BEATS_DATA = 'heartbeats = { column = "until", data = true }'

Row = dict[str, Any]


def text(bids: str, clock: str = "arrival", closings: str = "") -> str:
    arrival = 'arrival = "came"' if clock == "arrival" else ""
    return TEXT.format(
        clock=clock,
        follow="true" if clock == "system" else "false",
        bids=f"{arrival}\n{bids}",
        closings=f"{arrival}\n{closings}",
    )


@dataclass(frozen=True)
class Found:
    counts: list[tuple[int, int]]
    late: list[Row]
    rejected: list[Row]
    progress: Any


def write(path: Path, rows: list[Row]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def lines(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def run(home: Path, bids: str, rows: list[Row], closings: list[Row] | None = None) -> Found:
    (home / "pipeline.toml").write_text(text(bids))
    write(home / "bids.jsonl", rows)
    write(home / "closings.jsonl", closings or [])
    result = Runner(load(home / "pipeline.toml")).run()
    account = result.progress.streams["bids"]
    assert account.rows_in == account.rows_processed + account.rows_late + account.rows_rejected
    counts = [(row["auction"], row["n"]) for row in lines(home / "q.jsonl")]
    return Found(counts, lines(home / "late.jsonl"), lines(home / "rejected.jsonl"), account)


def bid(auction: int, at: int, came: int, **more: Any) -> Row:
    return {"auction": auction, "price": 1, "at": at, "came": came, **more}


BIDS = [bid(7, 1, 1), bid(8, 1, 1), bid(7, 2, 3, closed=True), bid(7, 3, 4), bid(8, 3, 4)]
"""The third is a punctuation for auction 7, and the fourth breaks it."""


@pytest.mark.parametrize(("said", "sevens"), [(OWN, 1), (OWN_DATA, 2)])
def test_a_row_of_the_stream_closes_a_value(tmp_path: Path, said: str, sevens: int) -> None:
    found = run(tmp_path, said, BIDS)
    assert found.counts == [(7, sevens), (8, 2)]
    assert [(row["reason"], row["lateness"]) for row in found.late] == [
        ("breaks the punctuation auction = 7", 0)
    ]
    assert found.progress.rows_in == 3 + sevens, "a row that is only a punctuation is not data"


def test_a_pattern_of_two_columns_closes_the_pair(tmp_path: Path) -> None:
    rows = [*BIDS, bid(7, 4, 5, price=2)]
    found = run(tmp_path, TWO, rows)
    assert found.counts == [(7, 2), (8, 2)]
    assert [row["reason"] for row in found.late] == ["breaks the punctuation auction = 7 and price = 1"]


def test_a_punctuation_holds_for_rows_that_are_read_after_it(tmp_path: Path) -> None:
    rows = [bid(7, 1, 1, closed=True), bid(7, 1, 1), bid(7, 2, 2)]
    found = run(tmp_path, OWN, rows)
    assert (found.counts, len(found.late)) == ([(7, 1)], 1)


@pytest.mark.parametrize(("said", "late"), [(OTHER, [7, 8]), (MARKED, [7])])
def test_another_stream_closes_values_of_this_one(tmp_path: Path, said: str, late: list[int]) -> None:
    """No query reads `closings`; its column is of another integer type, and one value fits no bid."""
    closings = [
        {"id": 7, "done": True, "at": 2, "came": 2},
        {"id": 8, "done": False, "at": 2, "came": 2},
    ]
    rows = [bid(7, 1, 1), bid(8, 1, 2), bid(7, 3, 3), bid(8, 3, 3), bid(9, 3, 3)]
    found = run(tmp_path, said, rows, closings)
    assert [json.loads(row["row"])["auction"] for row in found.late] == late
    assert sum(n for _, n in found.counts) == 5 - len(late)


def test_a_heartbeat_in_a_row_releases_answers_and_later_rows_are_late(tmp_path: Path) -> None:
    beat = {"until": 20, "came": 2}
    found = run(tmp_path, BEATS, [bid(7, 1, 1), beat, bid(7, 5, 3), bid(7, 25, 4)])
    assert found.counts == [(7, 1), (7, 1)]
    assert [(row["heartbeat"], row["lateness"], row["reason"]) for row in found.late] == [
        (20 * SECOND, 15 * SECOND + 1, None)
    ]


@pytest.mark.parametrize(("said", "late"), [(OWN, [9, 8]), (OWN_DATA, [8, 9, 8])])
def test_only_rows_that_are_data_advance_the_group_of_their_source(
    tmp_path: Path, said: str, late: list[int]
) -> None:
    """The closing row of auction 9 has a time far ahead; as data, it makes the next row of the group late."""
    by_source = 'sources = { column = "auction", groups = 1 }'
    rows = [bid(8, 7000, 1), bid(9, 20000, 2, closed=True), bid(8, 7001, 3), bid(9, 20001, 4), bid(8, 1, 5)]
    found = run(tmp_path, f"{said}\n{by_source}", rows)
    assert [json.loads(row["row"])["auction"] for row in found.late] == late
    assert found.progress.rows_late == len(late)


def test_a_heartbeat_row_may_be_data_too(tmp_path: Path) -> None:
    found = run(tmp_path, BEATS_DATA, [bid(7, 12, 1, until=9), bid(7, 5, 3), bid(7, 13, 4)])
    assert (found.counts, len(found.late)) == ([(7, 2)], 1)


def test_a_heartbeat_beyond_the_guard_is_rejected(tmp_path: Path) -> None:
    wild = {"until": 10_000, "came": 1, "auction": 1}
    found = run(tmp_path, f'{BEATS}\nguard = "1 minute"', [wild, bid(7, 2, 2)])
    assert (found.counts, len(found.late)) == ([(7, 1)], 0)
    assert [row["code"] for row in found.rejected] == ["HR-R045"]


# ------------------------------------------------------------------------------------------- rows that wait


@dataclass
class World:
    """Files that others write to, and a run that reads them when it is up."""

    home: Path
    clock: int = 1_000

    def write(self, name: str, row: Row) -> None:
        with (self.home / f"{name}.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")

    def run(self, seconds: int) -> Any:
        clock = ManualClock(self.clock * SECOND)
        runner = Runner(load(self.home / "pipeline.toml"), clock=clock, wait=lambda _: None)
        until = self.clock + seconds

        def tick(progress: Any) -> None:
            self.clock += 1
            clock.advance_to(self.clock * SECOND)
            if self.clock >= until:
                runner.stop()

        return runner.run(on_progress=tick, every=0.0)


def world(home: Path, said: str) -> World:
    (home / "pipeline.toml").write_text(text(said, "system").replace("disorder", "latency"))
    for name in ("bids", "closings"):
        (home / f"{name}.jsonl").touch()
    return World(home)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("waiting")


@given(st.integers(0, 2**32), st.sampled_from([OWN, OTHER]))
def test_no_row_is_late_that_reached_its_source_before_the_punctuation(
    folder: Path, seed: int, said: str
) -> None:
    """Rows wait while nobody reads, over restarts; both files are then read side by side."""
    rng = random.Random(seed)
    live = world(Path(tempfile.mkdtemp(dir=folder)), said)
    open_auctions, number = list(range(4)), 4
    counts: Counter[int] = Counter()
    for _ in range(rng.randint(1, 4)):
        for _ in range(rng.randint(0, 30)):
            live.clock += rng.choice((0, 0, 1))
            auction = rng.choice(open_auctions)
            if rng.random() < 0.3:
                row = {"auction": auction, "closed": True} if said == OWN else {"id": auction}
                live.write("bids" if said == OWN else "closings", row | {"at": live.clock})
                open_auctions[open_auctions.index(auction)] = number
                number += 1
            else:
                live.write("bids", {"auction": auction, "price": 1, "at": live.clock})
                counts[auction] += 1
        result = live.run(rng.randint(1, 10))
        assert result.progress.streams["bids"].rows_late == 0
    live.run(3)
    closed = sorted(set(range(number)) - set(open_auctions))
    for auction in closed:
        live.write("bids", {"auction": auction, "price": 1, "at": live.clock})
    result = live.run(3)
    assert result.progress.streams["bids"].rows_late == len(closed)
    assert result.progress.streams["bids"].rows_in == counts.total() + len(closed)


# --------------------------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ('punctuations = { column = "close", pattern = ["auction"] }', "no column 'close'"),
        ('punctuations = { column = "price", pattern = ["auction"] }', "not BOOLEAN"),
        ('punctuations = { pattern = ["auction"] }', "column is missing"),
        ('punctuations = { column = "closed", pattern = ["auctions"] }', "no column 'auctions'"),
        ('punctuations = { stream = "closing", pattern = { auction = "id" } }', "'closing' does not exist"),
        ('punctuations = { stream = "closings", pattern = { auction = "done" } }', "cannot be compared"),
        ('punctuations = { stream = "closings", pattern = { auction = "id" }, data = true }', "data is only"),
        ('heartbeats = { column = "closed" }', "not a time"),
        ('heartbeats = { column = "til" }', "no column 'til'"),
    ],
)
def test_a_mistake_is_named(said: str, message: str) -> None:
    with pytest.raises(PipelineError, match=message) as found:
        parse(text(said))
    assert found.value.code == "HR-F045"


def test_only_a_stream_with_times_of_its_own_takes_promises() -> None:
    changed = text(BEATS).replace('time = { column = "at", unit = "s" }', 'time = "internal"', 1)
    changed = changed.replace('bounds = { disorder = "1 hour" }', "", 1)
    with pytest.raises(PipelineError, match="internal time"):
        parse(changed)
