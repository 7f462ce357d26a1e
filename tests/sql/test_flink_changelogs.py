"""Apache Flink's own tests of FROM_CHANGELOG and TO_CHANGELOG: the same changes, operation by operation.

FROM_CHANGELOG is CREATE TABLE, and the sink of a program gets CHANGELOG. Each record is an instant of its
own. Flink's old images (`-U`) are what a `+U` by key says already, so they are not compared.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace import Engine, StreamDef, query
from headrace.testing.compare import events_of

Program = dict[str, Any]
Row = tuple[Any, ...]
PHASES = ("producedValues", "producedBeforeRestore", "producedAfterRestore")
MAPPING = re.compile(r"op_mapping => MAP\[(.*?)\]")
TYPES = {"INT": pa.int32(), "STRING": pa.string()}
FAILS = {"from-changelog-invalid-op-code", "from-changelog-null-op-code"}
"""Flink fails on an operation that it does not know; here such a row changes nothing."""


def clauses(text: str) -> str:
    """The format of a FROM_CHANGELOG."""
    named = re.search(r"op => DESCRIPTOR\((\w+)\)", text)
    operation, mapping = named[1] if named else "op", MAPPING.search(text)
    if mapping is None:
        return f"FORMAT FLINK ({operation})"
    parts = re.findall(r"'(.*?)'", mapping[1])
    codes = {kind: re.split(", ", code) for code, kind in zip(parts[::2], parts[1::2], strict=True)}
    shown = {kind: ", ".join(f"'{code}'" for code in found) for kind, found in codes.items()}
    puts = ", ".join(shown[kind] for kind in ("INSERT", "UPDATE_AFTER") if kind in shown)
    deletes = shown["DELETE"]
    return f"DELETE WHEN {operation} IN ({deletes}) IGNORE WHEN {operation} NOT IN ({puts}, {deletes})"


def records(program: Program) -> list[list[Row]]:
    """The records of each phase; a source with a changelog of its own has the kind as its first column."""
    (source,) = program["sources"]
    own = any(name == "addMode" for name, _ in source.get("other") or [])
    rows = [source.get(phase, []) for phase in PHASES]
    return [[((each["kind"],) if own else ()) + tuple(each["row"]) for each in phase] for phase in rows]


def logged(program: Program) -> list[Row]:
    """What our changelog says; the run is stopped and restored between the phases."""
    (source,) = program["sources"]
    columns = [each.split()[:2] for each in source["schema"]]
    if source.get("other"):
        columns.insert(0, ["op", "STRING"])
    schema = pa.schema([(name, TYPES[of.upper()]) for name, of in columns])
    stream = StreamDef(source["name"], schema, ticks_per_second=None)
    how = clauses(" ".join(program["sql"]))
    text = f"""
        CREATE TABLE t (id INT PRIMARY KEY, name STRING) FROM {stream.name} {how};
        CHANGELOG(SELECT id, name FROM t) PRIMARY KEY (id)"""
    made = query(text, [stream], ticks_per_second=None)
    engine = Engine(now=-1)
    engine.add("q", made.plan)
    time, found = 0, []
    for phase in records(program):
        for row in phase:
            values = [pa.array([value], field.type) for value, field in zip(row, schema, strict=True)]
            engine.push(stream.name, pa.RecordBatch.from_arrays(values, schema=schema), [time])
            time += 1
        found += [row for _, row in events_of(engine.drain("q"))]
        snapshot = engine.snapshot()
        engine = Engine(now=-1)
        engine.add("q", made.plan)
        engine.restore(snapshot)
    engine.streams.end(stream.name)
    return found + [row for _, row in events_of(engine.drain("q"))]


def expected(program: Program) -> list[Row]:
    (sink,) = program["sinks"]
    phases = ("consumedValues", "consumedBeforeRestore", "consumedAfterRestore")
    lines = [each for phase in phases for each in sink.get(phase, [])]
    return [(each["kind"], *each["row"]) for each in lines if each["kind"] != "-U"]


def test_the_changes_are_those_of_flink(shared_data: Callable[[str], Path]) -> None:
    path = shared_data("flink") / "FromChangelogTestPrograms.json"
    programs: list[Program] = json.loads(path.read_text())
    outcomes: Counter[str] = Counter()
    for program in programs:
        if program["id"] in FAILS:
            outcomes["fails in Flink"] += 1
            continue
        assert logged(program) == expected(program), program["id"]
        outcomes["run"] += 1
    assert outcomes == {"run": 14, "fails in Flink": 2}
