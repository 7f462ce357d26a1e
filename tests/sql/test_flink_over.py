"""Apache Flink's own tests of OVER: its rows, for all records that are not late.

Flink's watermark is the time of each record, so a record at or before the newest time is late. Flink still
answers such a record if its key has not been answered for a later time, from the rows that it has not
dropped; here it goes to the late output. Its tests stop and go on from a savepoint in the middle; so do
these.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace import Bounds, Engine, HeartbeatGenerator, Rules, SkewMatrix, StreamDef, query
from headrace.sql import Catalog
from headrace.sql.query import Query
from headrace.testing.compare import events_of
from headrace.time.bounds import NEVER

Folder = Callable[[str], Path]
Row = tuple[Any, ...]
Program = dict[str, Any]
SECOND = 1_000_000
SCHEMA = pa.schema(
    [
        ("ts", pa.int64()),
        ("a", pa.int64()),
        ("b", pa.int32()),
        ("c", pa.string()),
        ("rowtime", pa.timestamp("us")),
    ]
)
STREAM = StreamDef("MyTable", SCHEMA, time_column="rowtime")


class LargerThanCount:
    """Flink's LTCNT: how many values are larger than a limit."""

    arguments = (pa.int64(), pa.int64())
    result = pa.int64()

    def initialize(self) -> int:
        return 0

    def iterate(self, state: int, values: pa.Array, limits: pa.Array) -> int:
        return state + int(pc.sum(pc.greater(values, limits)).as_py() or 0)

    def merge(self, state: int, later: int) -> int:
        return state + later

    def terminate(self, state: int) -> int:
        return state


def question(program: Program) -> Query:
    catalog = Catalog([STREAM])
    catalog.register_aggregate("ltcnt", LargerThanCount)
    return query(re.sub(r"^INSERT INTO \w+ ", "", program["sql"][0]), catalog)


def engine(asked: Query) -> Engine:
    skew = SkewMatrix.of(["MyTable"], {("MyTable", "MyTable"): [(0, 0)]})
    made = Engine()
    rules = Rules(disordered=True, enforce="strict")
    made.streams.manage(HeartbeatGenerator(Bounds.of(skew, timeout=NEVER)), {STREAM.source: rules})
    made.add("q", asked)
    return made


def run(program: Program) -> Counter[Row]:
    """The answers, over a stop and a restart between the phases."""
    asked, snapshot, now = question(program), None, 0
    found: Counter[Row] = Counter()
    for phase in ("producedBeforeRestore", "producedAfterRestore"):
        made = engine(asked)
        if snapshot is not None:
            made.restore(snapshot)
        for each in program["sources"][0][phase]:
            now += 1
            ts, a, b, c = each["row"]
            row = {
                "ts": ts,
                "a": a,
                "b": b,
                "c": c,
                "rowtime": dt.datetime(1970, 1, 1) + dt.timedelta(seconds=ts),
            }
            made.push("MyTable", pa.RecordBatch.from_pylist([row], SCHEMA), [ts * SECOND], now=now)
            found.update(row for _, row in events_of(made.drain()))
        made.drain_late()
        snapshot = made.snapshot()
    made.streams.end("MyTable")
    found.update(row for _, row in events_of(made.drain()))
    return Counter((c, ts, b, *numbers) for c, ts, _, b, *numbers in found.elements())


def expected(program: Program) -> Counter[Row]:
    (sink,) = program["sinks"]
    found = Counter()
    for line in sink["consumedBeforeRestore"] + sink["consumedAfterRestore"]:
        name, ts, _, *numbers = line.removeprefix("+I[").removesuffix("]").split(", ")
        found[name, int(ts), *map(int, numbers)] += 1
    return found


def late(program: Program) -> set[tuple[int, str]]:
    """Time and key of the records that are not after the newest one before them."""
    (source,) = program["sources"]
    newest, found = -1, set()
    for each in source["producedBeforeRestore"] + source["producedAfterRestore"]:
        ts, _, _, name = each["row"]
        if ts <= newest:
            found.add((ts, name))
        newest = max(newest, ts)
    return found


NOT_FLINKS = {
    "over-aggregate-bounded-non-partitioned-rows-with-out-of-order-records": {
        ("Hello World", 100, 7, 3, 3, 19): 1,
    },
    "over-aggregate-unbounded-partitioned-rows-with-out-of-order-records": {
        ("Hello World", 202, 20, 6, 6, 69): 1,
    },
}
"""Rows that Flink answers otherwise: it counted late records in their frames, or dropped earlier ones."""


def test_over_gives_flinks_rows(shared_data: Folder) -> None:
    outcomes: Counter[str] = Counter()
    for program in programs(shared_data):
        if "batch" in program["id"]:
            continue
        found, wanted = run(program), expected(program)
        if "out-of-order" in program["id"]:
            assert dict(found - wanted) == NOT_FLINKS.get(program["id"], {}), program["id"]
            others = {(row[1], row[0]) for row in found - wanted}
            missing = {(row[1], row[0]) for row in wanted - found}
            assert missing - others <= late(program), program["id"]
            outcomes["rows in time"] += 1
        else:
            assert found == wanted, program["id"]
            outcomes["all rows"] += 1
    assert outcomes == {"all rows": 4, "rows in time": 4}


def programs(shared_data: Folder) -> list[Program]:
    found: list[Program] = json.loads((shared_data("flink") / "OverAggregateTestPrograms.json").read_text())
    return found


def test_the_rest_of_a_second_counts_in_a_range(shared_data: Folder) -> None:
    """Flink's tests in batch mode: a row that is 10.0006 s older is not in a range of 10 s."""
    chosen = [program for program in programs(shared_data) if "batch" in program["id"]]
    for program in chosen:
        (source,), (sink,) = program["sources"], program["sinks"]
        schema = pa.schema([("ts", pa.timestamp("us")), ("val", pa.int32())])
        stream = StreamDef(source["name"], schema, time_column="ts")
        made = Engine()
        made.add("q", query(re.sub(r"^INSERT INTO \w+ ", "", program["sql"][0]), [stream]))
        rows = [(moment(each["row"][0]), each["row"][1]) for each in source["producedValues"]]
        batch = pa.RecordBatch.from_pylist([{"ts": ts, "val": val} for ts, val in rows], schema)
        made.push(source["name"], batch, batch.column("ts").cast(pa.int64()))
        made.streams.end(source["name"])
        assert [row for _, row in events_of(made.drain())] == [
            tuple(e["row"]) for e in sink["consumedValues"]
        ]
    assert len(chosen) == 2


def moment(text: str) -> dt.datetime:
    """`LocalDateTime.of(2021,1,1,0,0,10,600000)`, the last in nanoseconds, or ISO 8601."""
    found = re.fullmatch(r"LocalDateTime\.of\((.*)\)", text)
    if found is None:
        return dt.datetime.fromisoformat(text.removesuffix("Z"))
    *parts, nanos = map(int, found[1].split(","))
    return dt.datetime(*parts, nanos // 1000)  # type: ignore[arg-type]
