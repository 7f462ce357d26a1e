"""Positions in tables of a lake on Spark, without Spark: its micro-batches together have each file once.

`_Reader` is asked as Spark asks it: with and without a start, with a limit, again after a crash.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from pyspark.cloudpickle import dumps
from pyspark.cloudpickle import loads as unpickled

from headrace.connectors.contract import Block
from headrace.connectors.history import LIVE, PAST, Cut
from headrace.connectors.lakes import LakeSource
from headrace.errors import ConnectorError
from headrace.plan.nodes.core import Source, TimeKind
from headrace.runtimes.embedded.timing import Timing
from headrace.runtimes.spark.driver.reading import FILES, LIMITED, WITHHELD
from headrace.runtimes.spark.driver.task_streams import TaskStream
from headrace.runtimes.spark.worker.lake_rows import MOST_FILES, LakeFiles, LakeOffsets, LakeRows, files_of
from headrace.runtimes.spark.worker.packing import TIMER, Package
from headrace.runtimes.spark.worker.partitioner import NOW, REACHED, TIME, StreamSpec
from headrace.runtimes.spark.worker.running import _read_until
from headrace.runtimes.spark.worker.task_rows import Arrivals, CutRows, Entering, TaskPartitioner
from tests.connectors.test_lakes import SCHEMA, Delta, Lake, drained, lake, table

__all__ = ["lake"]
File = tuple[int, int]


@dataclass
class Versions:
    """A table: version i has `sizes[i]` new files, named (version, number)."""

    sizes: list[int] = field(default_factory=list)
    place: str = "here"
    name: str = "the table"

    def table(self) -> str:
        return self.name

    def newest(self) -> int | None:
        return len(self.sizes) - 1 if self.sizes else None

    def after(self, version: int) -> int | None:
        return version + 1 if version + 1 < len(self.sizes) else None

    def whole(self, version: int) -> Sequence[File]:
        return [file for each in range(version + 1) for file in self.added(each)]

    def added(self, version: int) -> Sequence[File]:
        return [(version, i) for i in range(self.sizes[version])]

    def batches(self, file: File) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError


grows = st.lists(st.tuples(st.lists(st.integers(0, 4), max_size=3), st.booleans()), max_size=8)


@given(grows, st.one_of(st.none(), st.integers(1, 5)), st.booleans(), st.booleans(), st.booleans())
def test_micro_batches_have_each_file_once(
    steps: list[tuple[list[int], bool]], most: int | None, follow: bool, new: bool, knows: bool
) -> None:
    """`knows`: Spark says where a micro-batch starts, from 4.2 on; only then can there be a limit."""
    log = Versions()
    offsets = LakeOffsets(log, follow, new)
    at, found, base = offsets.start(), [], None
    for added, again in [*steps, *[([], False)] * 40]:
        log.sizes += added
        end = offsets.latest(at if knows else None, most if knows else None)
        places = offsets.files(at, end)
        files = [files_of(log, version, whole)[number] for version, whole, number in places]
        assert most is None or not knows or len(files) <= most
        if again:  # the micro-batch runs again, when the table has grown
            log.sizes.append(2)
            assert offsets.files(at, end) == places
        if base is None and end["version"] >= 0:
            base = end["version"]
        found += files
        at = end
    assert len(set(found)) == len(found)
    if base is not None and (follow or knows):
        last = len(log.sizes) - 1 if follow else base
        first = base + 1 if new else 0
        assert sorted(found) == sorted(f for v in range(first, last + 1) for f in log.added(v))


def test_another_table_under_the_name_is_an_error() -> None:
    log = Versions([2])
    offsets = LakeOffsets(log, follow=True)
    end = offsets.latest(offsets.start())
    log.name = "another"
    with pytest.raises(ConnectorError, match="HR-C002"):
        offsets.latest(end)


def test_a_version_that_was_read_and_is_gone_is_an_error() -> None:
    log = Versions([1, 1, 1])
    offsets = LakeOffsets(log, follow=True)
    start, end = (
        offsets.latest(offsets.start()),
        {"table": "the table", "version": 7, "whole": False, "file": -1},
    )
    with pytest.raises(ConnectorError, match="HR-C002"):
        offsets.files(start, end)


def read(lake: Lake, reader: Any, rows: LakeRows, at: Any) -> tuple[Any, list[tuple[int, str]], list[int]]:
    """One micro-batch: where it ends, its rows, and how many files each task has."""
    end = reader.latestOffset(at, None)
    parts = reader.partitions(at, end)
    found = []
    for part in parts:
        names = ("version", "whole", "number")
        places = [dict(zip(names, each, strict=True)) for each in reader.read(unpickled(dumps(part)))]
        batch = pa.RecordBatch.from_pylist([{**each, NOW: 5} for each in places])
        for shared, block in rows.blocks([batch]):
            assert shared == {NOW: 5}
            found += [(row["k"], row["v"]) for row in block.data.to_pylist()]
    return end, found, [len(part.files) for part in parts]


def test_tasks_read_the_rows_of_real_tables(lake: Lake) -> None:
    """The source as Spark gets it: pickled, and in another process."""
    for i in range(3):
        lake.append(table((i, "a"), (i, None)))
    made = LakeFiles.for_stream("s", LakeOffsets(lake.log(), follow=True), poll=0, parts=2)
    assert made.name() == "headrace_lake_s"
    reader = unpickled(dumps(made))({}).streamReader(None)
    rows = unpickled(dumps(LakeRows(lake.log(), SCHEMA)))
    at, found, files = read(lake, reader, rows, reader.initialOffset())
    whole = LakeSource(lake.log(), SCHEMA)
    assert sorted(found, key=str) == sorted(((k, v) for k, v in drained(whole)), key=str)
    assert files == [2, 1]
    lake.append(table((9, "z")))
    later, found, _ = read(lake, reader, rows, at)
    assert found == [(9, "z")]
    assert read(lake, reader, rows, later) == (later, [], [])


def test_the_limit_is_an_option_of_the_source_and_looks_are_rare(tmp_path: Path) -> None:
    lake = Delta(tmp_path)
    for i in range(3):
        lake.append(table((i, "a")))
    made = LakeFiles.for_stream("s", LakeOffsets(lake.log(), follow=True), poll=3600, parts=1)
    reader = made({MOST_FILES: "2"}).streamReader(None)  # type: ignore[abstract]
    at = reader.initialOffset()
    sizes = []
    for _ in range(4):
        end = reader.latestOffset(at, None)
        sizes.append(sum(len(part.files) for part in reader.partitions(at, end)))
        at = end
    assert sizes == [2, 1, 0, 0]
    lake.append(table((9, "z")))
    assert reader.latestOffset(at, None) == at


# --- the past of a stream

ROWS = pa.RecordBatch.from_pydict({"k": [1, 2, 3], "at": [10, 25, None], "came": [12, 30, 29]})


@dataclass(frozen=True)
class Given:
    """A reader that has these rows."""

    schema: pa.Schema = ROWS.schema

    def only(self, needed: frozenset[str]) -> Given:
        assert needed >= {"at"}
        return self

    def blocks(self, batches: Any) -> Iterator[tuple[dict[str, int], Block]]:
        yield {}, Block(ROWS)


@pytest.mark.parametrize(("part", "kept"), [(PAST, [1, 3]), (LIVE, [2, 3])])
def test_each_part_has_the_rows_on_its_side_and_those_without_a_time(part: str, kept: list[int]) -> None:
    reader = CutRows(Given(), Cut("at", None, 20), part).only(frozenset("k"))
    ((_, block),) = reader.blocks([])
    assert block.data.column("k").to_pylist() == kept


def test_recorded_arrivals_say_how_far_the_past_was_read() -> None:
    came = Arrivals("came", None, REACHED)
    past = TaskStream(None, Given(), past=True)  # type: ignore[arg-type]
    assert (past.takes(LIMITED), replace(past, recorded=came).takes(LIMITED)) == (WITHHELD, FILES)
    assert replace(past, past=False).takes(LIMITED) == LIMITED
    source = Source("s", ROWS.schema, TimeKind.EXTERNAL)
    entering = Entering(source, Timing("at", None, ("k", "at")), None, reached=True, recorded=came)
    (batch,) = TaskPartitioner(Given(), entering, lambda batches: batches)(iter([]))  # type: ignore[arg-type]
    assert batch.column(REACHED).to_pylist() == [12, 30, 29]
    assert batch.column(TIME).to_pylist() == [10, 25, None]


def test_the_clock_promises_nothing_about_the_time_since_a_source_last_looked() -> None:
    seen: list[tuple[str, int]] = []
    engine = SimpleNamespace(now=10_000, streams=SimpleNamespace(read_until=lambda *at: seen.append(at)))
    streams = [
        StreamSpec(0, Source(name, ROWS.schema), polled=polled) for name, polled in (("a", 0), ("b", 300))
    ]
    spec = SimpleNamespace(streams=streams)
    _read_until(engine, spec, [Package(TIMER, 0, clock=5_000)])  # type: ignore[arg-type]
    assert seen == [("a", 5_000), ("b", 4_700)]
