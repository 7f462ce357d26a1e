"""All dials of the simulated Spark at once: whatever is turned, the answers are those of the rows that count.

Backlogs, rate limits, slow triggers, downtimes, clocks that stop, go back or jump ahead, tasks that fail, run
twice or come back late, micro-batches that are run again, a stream that is silent. A row is processed, late
or rejected, exactly once; the answers are the oracle's over the rows that were processed.
"""

from __future__ import annotations

import json
import random
import warnings
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from headrace.connectors.late_and_rejected import LATE_SCHEMA
from headrace.engine.inputs import Inputs
from headrace.errors import HeadraceWarning
from headrace.graph.admission import Rules
from headrace.runtimes.spark.driver.reading import ALL, FILES, LIMITED
from headrace.runtimes.spark.worker.answers import LATE, REJECTED, RESULT, Outlet
from headrace.sql import Catalog, Query, query
from headrace.testing import oracle
from headrace.time.ets import DisorderPromise, Promise, SkewPromise, TimerPromise
from headrace.time.timestamp import MAX_TIME
from tests.laws import effort
from tests.spark.schedule import CLOCKS, SPAN, Limit, Reached, Schedule, reaching, schedule
from tests.spark.simulated import Cluster, Outcome, on_spark

COLUMNS = pa.schema([("i", pa.int64()), ("k", pa.int64())])
CATALOG = Catalog({"a": COLUMNS, "b": COLUMNS}, ticks_per_second=None)
QUERIES = {
    "rows": "SELECT i, k FROM a",
    "windows": "SELECT k, count(*) AS n, sum(i) AS x, window_end FROM a [RANGE 10 SLIDE 5] GROUP BY k",
    "instants": "SELECT k, max(i) AS x, count(*) AS n FROM a [RANGE 9] GROUP BY k",
    "distinct": "DSTREAM(SELECT DISTINCT k FROM a [RANGE 10])",
    "sessions": "SELECT k, count(*) AS n, window_end FROM a [SESSION 5] GROUP BY k",
    "join": "SELECT a.i, b.i AS j FROM a [RANGE 20] AS a, b [RANGE 7] AS b WHERE a.k = b.k",
    "union": "SELECT i FROM a [RANGE 5] UNION ALL SELECT i FROM b [RANGE 5]",
    "stages": """SELECT n, count(*) AS m FROM (SELECT k, count(*) AS n FROM a [RANGE 10] GROUP BY k)
                 GROUP BY n""",
}
TAKES = {
    ALL: st.none(),
    LIMITED: st.builds(Limit, st.just("rows"), st.sampled_from([1, 5])),
    FILES: st.builds(Limit, st.sampled_from(["files", "bytes"]), st.sampled_from([1, 3, 60])),
}
GUARD = 60
TIMELESS = 0.03


class World:
    """Rows of some streams, with numbers of their own; some break their bounds, some have no time."""

    def __init__(self, rng: random.Random, names: tuple[str, ...], bound: int, broken: float) -> None:
        self.rows: dict[str, Reached] = {}
        self.times: dict[str, list[int | None]] = {}
        silent = rng.choice((None, *names)) if len(names) > 1 else None
        for name in names:
            rows = 0 if name == silent else rng.randint(1, 25)
            self.rows[name] = reaching(rng, rows, in_files=rng.random() < 0.5)
            self.times[name] = [self._time(rng, at, bound, broken) for at in self.rows[name].at]

    @staticmethod
    def _time(rng: random.Random, at: int, bound: int, broken: float) -> int | None:
        if rng.random() < TIMELESS * bool(broken):
            return None
        wild = rng.random() < broken
        return at + (rng.choice((-40, -15, 200)) if wild else 0) - rng.randint(0, bound)

    def make(self, name: str) -> Any:
        def made(numbers: list[int]) -> tuple[pa.RecordBatch, np.ndarray]:
            rows = pa.RecordBatch.from_pylist([self.row(number) for number in numbers], schema=COLUMNS)
            times = [self.times[name][number] for number in numbers]
            return rows, np.array([np.nan if time is None else time for time in times], object)

        return made

    @staticmethod
    def row(number: int) -> dict[str, int]:
        return {"i": number, "k": number % 3}

    @property
    def total(self) -> int:
        return sum(map(len, self.times.values()))

    def without(self, apart: Counter[tuple[str, int]]) -> oracle.Sources:
        """The rows that are in no list of late or rejected ones."""
        return {
            name: [
                (time, self.row(n)) for n, time in enumerate(times) if time is not None and not apart[name, n]
            ]
            for name, times in self.times.items()
        }


def apart(outcome: Outcome) -> Counter[tuple[str, int]]:
    """The rows that were set apart, by stream and number."""
    late = [(row[0], row[LATE_SCHEMA.names.index("row")]) for row in outcome.late]
    rejected = [(row[0], row[-1]) for row in outcome.rejected]
    return Counter((stream, json.loads(text)["i"]) for stream, text in late + rejected)


def played(
    rng: random.Random, found: Query, world: World, turned: dict[str, Any], outlet: Outlet, **inputs: Any
) -> tuple[Outcome, Schedule]:
    names = tuple(world.rows)
    make = {name: world.make(name) for name in names}
    made = schedule(rng, world.rows, make, turned["limits"], turned["once"], turned["clock"](rng))
    if not made.batches:
        made.batches, made.said, made.reached = [(0, {})], [None], [{}]
    cluster = Cluster(random.Random(rng.random()))
    given = Inputs(promises=inputs["promises"], rules=dict.fromkeys(names, inputs["rules"]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HeadraceWarning)  # that there is one shard only
        outcome = on_spark(
            *(found.plan, given, made.batches, {}, turned["partitions"], cluster, outlet),
            ends=True,
            said=made.said,
            takes=turned["takes"],
            reached=made.reached if turned["told"] else None,
        )
    return outcome, made


def promises(bound: int) -> st.SearchStrategy[Promise]:
    kinds = (
        TimerPromise(bound),
        DisorderPromise(SPAN, bound),
        DisorderPromise(bound),
        SkewPromise(2 * bound),
    )
    return st.sampled_from(kinds)


@st.composite
def dials(draw: st.DrawFn, names: tuple[str, ...]) -> dict[str, Any]:
    takes = {name: draw(st.sampled_from(sorted(TAKES))) for name in names}
    clock = draw(st.sampled_from(sorted(CLOCKS)))
    event(f"clock {clock}, takes {sorted(set(takes.values()))}")
    return {
        "takes": takes,
        "limits": {name: draw(TAKES[each]) for name, each in takes.items()},
        "clock": CLOCKS[clock],
        "once": draw(st.booleans()),
        "told": draw(st.booleans()),
        "partitions": draw(st.integers(1, 3)),
    }


@pytest.mark.parametrize("name", QUERIES)
@effort(0.15, "each is a run of many micro-batches, most of them twice")
@given(st.data())
def test_the_answers_are_those_of_the_rows_that_count(name: str, data: st.DataObject) -> None:
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    found = query(QUERIES[name], CATALOG)
    names = tuple(source.name for source in found.sources)
    bound = data.draw(st.integers(0, 8))
    world = World(rng, names, bound, broken=data.draw(st.sampled_from([0.0, 0.2])))
    given = {each: data.draw(promises(bound)) for each in names}
    rules = Rules(disordered=True, enforce="strict", guard=data.draw(st.sampled_from([GUARD, MAX_TIME])))
    turned = data.draw(dials(names))
    outcome, _ = played(rng, found, world, turned, Outlet("__t"), promises=given, rules=rules)
    gone = apart(outcome)
    assert all(count == 1 for count in gone.values()), "a row is set apart once"
    expected = oracle.stream(found.plan, world.without(gone))
    event(f"{len(gone) > 0} some apart")
    assert Counter(outcome.answers) == Counter((*row, time) for time, row in expected)


@given(st.data())
def test_rows_that_are_only_counted_are_counted_once(data: st.DataObject) -> None:
    """Partial rows are made before the shuffle, by a clock that may say anything of who may be late."""
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    found = query("SELECT k, count(*) AS n FROM a [RANGE 10 SLIDE 10] GROUP BY k", CATALOG)
    bound = data.draw(st.integers(0, 8))
    world = World(rng, ("a",), bound, broken=data.draw(st.sampled_from([0.0, 0.3])))
    rules = Rules(disordered=True, enforce=data.draw(st.sampled_from(["strict", "admit"])), guard=GUARD)
    turned, outlet = data.draw(dials(("a",))), Outlet("__t", kinds=frozenset((RESULT,)))
    given = {"a": TimerPromise(bound)}
    outcome, _ = played(rng, found, world, turned, outlet, promises=given, rules=rules)
    processed = sum(row[1] for row in outcome.answers)
    assert processed + outcome.numbers[LATE] + outcome.numbers[REJECTED] == world.total
