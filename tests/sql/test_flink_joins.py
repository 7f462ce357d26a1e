"""Apache Flink's own tests of joins without windows: at the end, the rows that its changelog leaves."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace import Engine, query
from headrace.plan.nodes.outer_join import OuterJoin
from headrace.plan.nodes.trees import walk
from headrace.sql import StreamDef
from headrace.testing.compare import events_of

TYPES = {"INT": pa.int32(), "INTEGER": pa.int32(), "BIGINT": pa.int64()}
PHASES = ("producedBeforeRestore", "producedAfterRestore")
PRIMARY_KEYS = re.compile(r"\(query\d\)")
"""Programs whose queries are assembled in Java, from parts that the recording does not have."""
NOT_WRITTEN = {"semi-anti-join-with-literal-agg"}
"""NOT IN inside CASE."""
Row = tuple[Any, ...]
Program = dict[str, Any]


def definition(source: Program) -> StreamDef:
    columns = [each.split() for each in source["schema"]]
    schema = pa.schema([(name, TYPES.get(of.upper(), pa.string())) for name, of in columns])
    return StreamDef(source["name"], schema, ticks_per_second=None)


def left_at_the_end(program: Program) -> Counter[Row]:
    """All rows that entered the answer less those that left it; the run is stopped and restored half way."""
    text = re.sub(r"(?i)^insert into \w+\s+", "", program["sql"][0])
    streams = [definition(each) for each in program["sources"]]
    found: Counter[Row] = Counter()
    plan = query(text, streams, ticks_per_second=None).plan
    leaves = any(isinstance(each, OuterJoin) for each in walk(plan))
    for output, sign in (("ISTREAM", 1), ("DSTREAM", -1)) if leaves else (("ISTREAM", 1),):
        made = query(f"{output}({text})", streams, ticks_per_second=None)
        engine = Engine(now=-1)
        engine.add("q", made.plan)
        time = 0
        for phase in PHASES:
            for source, stream in zip(program["sources"], streams, strict=True):
                for row in source.get(phase, []):
                    values = [pa.array([v], f.type) for v, f in zip(row["row"], stream.schema, strict=True)]
                    engine.push(stream.name, pa.RecordBatch.from_arrays(values, schema=stream.schema), [time])
                    time += 1
            for _, row in events_of(engine.drain("q")):
                found[row] += sign
            snapshot = engine.snapshot()
            engine = Engine(now=-1)
            engine.add("q", made.plan)
            engine.restore(snapshot)
        for stream in streams:
            engine.streams.end(stream.name)
        for _, row in events_of(engine.drain("q")):
            found[row] += sign
    return +found


def expected(program: Program) -> Counter[Row]:
    sink = program["sinks"][0]
    changes = [*sink.get("consumedBeforeRestore", []), *sink.get("consumedAfterRestore", [])]
    return Counter(tuple(each["row"]) for each in changes)


def test_the_texts_of_flink_give_its_rows(shared_data: Callable[[str], Path]) -> None:
    programs: list[Program] = json.loads((shared_data("flink") / "JoinTestPrograms.json").read_text())
    outcomes: Counter[str] = Counter()
    for program in programs:
        if PRIMARY_KEYS.search(program["sql"][0]) or program["id"] in NOT_WRITTEN:
            outcomes["left out"] += 1
            continue
        assert left_at_the_end(program) == expected(program), program["id"]
        outcomes["run"] += 1
    assert outcomes == {"run": 11, "left out": 4}
