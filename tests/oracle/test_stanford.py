"""The test scripts of the Stanford STREAM prototype: the net change of each relation at each time.

A stream without a window is UNBOUNDED there, and integers divide as in C. Only the first rows are read: the
oracle's cost grows with their square.
"""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.expressions import col
from headrace.plan.nodes.core import IStream, Join, Plan, Project, RStream, Select, Source, Window
from headrace.plan.nodes.windows import Now, Rows, Unbounded
from headrace.testing import oracle

ROWS = 1000
S = Source("S", pa.schema([("A", pa.int64())]))
S3 = Source("S", pa.schema([("A", pa.int64()), ("B", pa.float64()), ("C", pa.string()), ("D", pa.string())]))
HALF = (col("A") / 2).cast("bigint")

Net = dict[int, Counter[tuple[Any, ...]]]
READERS: dict[pa.DataType, Callable[[str], Any]] = {
    pa.int64(): int,
    pa.float64(): float,
    pa.string(): str.strip,
}


def read_rows(path: Path, source: Source) -> list[tuple[int, dict[str, Any]]]:
    with path.open() as lines:
        next(lines)
        found = [row for row, _ in zip(csv.reader(lines), range(ROWS), strict=False)]
    return [
        (int(time), dict(zip(source.schema.names, values(row, source.schema), strict=True)))
        for time, *row in found
    ]


def values(texts: list[str], schema: pa.Schema) -> list[Any]:
    return [READERS[field.type](text) for field, text in zip(schema, texts, strict=True)]


def read_net(path: Path, schema: pa.Schema, until: int) -> Net:
    """The expected lines `[time]:±:row` as signed counts, up to a time."""
    net: Net = defaultdict(Counter)
    for line in path.read_text().splitlines():
        time, sign, row = line.split(":", 2)
        if int(time.strip("[]")) <= until:
            net[int(time.strip("[]"))][tuple(values(row.split(","), schema))] += 1 if sign == "+" else -1
    return net


def net_of(plan: Plan, sources: oracle.Sources, until: int) -> Net:
    net: Net = defaultdict(Counter)
    if plan.is_relation:
        for time, gone, come in oracle.relation(plan, sources).changes():
            net[time].update(come)
            net[time].subtract(gone)
    else:
        for time, row in oracle.stream(plan, sources):
            net[time][row] += 1
    return {time: counts for time, counts in net.items() if time <= until}


def check(folder: Path, test: str, data: str, plan: Plan, *sources: Source) -> None:
    rows = {source.name: read_rows(folder / data, source) for source in sources}
    until = max(time for time, _ in rows[sources[0].name])
    expected = read_net(folder / f"{test}.out", plan.schema, until)
    assert len(expected) > 5
    assert net_of(plan, rows, until) == expected


def test_1_a_source_is_seen_as_it_is(shared_data: Callable[[str], Path]) -> None:
    check(shared_data("stanford-stream"), "test1", "S3.dat", Window(S3, Unbounded()), S3)


def test_2_a_view_is_a_stream_of_selected_and_projected_rows(shared_data: Callable[[str], Path]) -> None:
    even = Select(Window(S, Unbounded()), (HALF * 2).eq(col("A")))
    view = IStream(Project(even, (("A", HALF), ("B", col("A")))))
    check(shared_data("stanford-stream"), "test2", "S1.dat", Window(view, Unbounded()), S)


def joined(window: Now | Unbounded) -> tuple[Join, Source, Source]:
    s1, s2 = Source("S1", S.schema), Source("S2", S.schema)
    right = Project(Window(s2, Unbounded()), (("A2", col("A")),))
    return Join(Window(s1, window), right, ("A",), ("A2",)), s1, s2


def test_3_a_join_of_two_streams(shared_data: Callable[[str], Path]) -> None:
    join, s1, s2 = joined(Unbounded())
    check(shared_data("stanford-stream"), "test3", "S1.dat", join, s1, s2)


def test_4_a_stream_joined_with_a_relation(shared_data: Callable[[str], Path]) -> None:
    join, s1, s2 = joined(Now())
    check(shared_data("stanford-stream"), "test4", "S1.dat", RStream(join), s1, s2)


def test_7_the_two_newest_rows(shared_data: Callable[[str], Path]) -> None:
    check(shared_data("stanford-stream"), "test7", "S1.dat", Window(S, Rows(2)), S)
