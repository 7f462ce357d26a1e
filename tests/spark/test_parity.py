"""On Spark as in one engine: the same rows, late rows and rejected rows, in the same micro-batch.

Answers come in the same types and in time order: with one shard all of them, with several those of a key.
All cases read the same files, one a micro-batch and stream; a column stands for the clock. Some queries are
stopped half way, made anew and started again on their checkpoints. Several run side by side to save time.
"""

from __future__ import annotations

import json
import os
import warnings
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace
from headrace.errors import HeadraceWarning
from headrace.runtimes.spark.driver.topology import hosts
from headrace.runtimes.spark.types import spark_schema
from headrace.runtimes.spark.worker.answers import LATE, REJECTED, RESULT, Outlet
from headrace.runtimes.spark.worker.running import QUERY, HostSpec
from tests.spark.conftest import played
from tests.spark.parity import ARRIVALS, CASES, FIRST_RUN, NAMES, SPARK_SCHEMAS, Case, instants
from tests.spark.simulated import Outcome, collect, embedded_instants

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

TOGETHER = 2
"""Queries that run at a time."""

Batches = dict[int, Outcome]


@dataclass
class Files:
    """What arrived, as files that Spark reads one a micro-batch."""

    folder: Path

    def put(self, batches: range) -> None:
        for name in SPARK_SCHEMAS:
            (self.folder / name).mkdir(exist_ok=True)
            for number in batches:
                self._write(name, number)

    def _write(self, name: str, number: int) -> None:
        rows = [
            {**row, "arrival": now}
            for now, arrived in ARRIVALS[number]
            for row in (arrived.get(name, []) if name != "timer" else [{}])
        ]
        path = self.folder / name / f"{number}.json"
        path.write_text("\n".join(map(json.dumps, rows)))
        os.utime(path, (number + 1, number + 1))  # Spark reads files in the order of their times

    def read(self, spark: SparkSession, name: str) -> DataFrame:
        source = spark.readStream.schema(SPARK_SCHEMAS[name]).option("maxFilesPerTrigger", 1)
        return source.json(str(self.folder / name))


@dataclass
class Runs:
    """What the cases gave on Spark, by micro-batch; or what went wrong."""

    spark: SparkSession
    files: Files
    found: dict[str, Batches] = field(default_factory=dict)
    types: dict[str, StructType] = field(default_factory=dict)
    failed: dict[str, Exception] = field(default_factory=dict)

    def play(self, names: list[str]) -> None:
        """All micro-batches that there are now, of each case."""
        with warnings.catch_warnings(), ThreadPoolExecutor(TOGETHER) as pool:
            warnings.simplefilter("ignore", HeadraceWarning)  # of one shard
            list(pool.map(self._play, names))

    def _play(self, name: str) -> None:
        try:
            found = self.found.setdefault(name, {})
            played(lambda: self._started(name, CASES[name], found))
        except Exception as error:
            self.failed[name] = error

    def _started(self, name: str, case: Case, found: Batches) -> StreamingQuery:
        from headrace.runtimes.spark.driver.apply import answers

        def keep(together: DataFrame, number: int) -> None:
            found[number] = Outcome()
            collect(together.toArrow(), out.schema, found[number])

        streams = {s.name: self.files.read(self.spark, s.name) for s in case.query.sources}
        if case.query.tables:
            streams["names"] = self.spark.createDataFrame(NAMES.to_pandas())
        out = answers(
            case.query,
            streams,
            headrace.spark.SparkOptions(
                **(case.options or {} if case.by_options else {"inputs": case.inputs}),
                **asdict(case.execution),
                timer=self.files.read(self.spark, "timer"),
                time_column="__t",
                arrival="arrival",
                shards=case.most,
                ordered=case.ordered,
                native=False,  # all of the plan in the engine: what it gives is the answer
            ),
            kinds=kinds_of(case),
        )
        self.types[name] = out.result.schema
        writer = out.combined.writeStream.foreachBatch(keep).trigger(availableNow=True)
        return writer.option("checkpointLocation", str(self.files.folder / "checkpoints" / name)).start()


@pytest.fixture(scope="module")
def runs(
    spark: SparkSession, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Runs:
    """Every case that was asked for."""
    asked = [
        item.callspec.params["name"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.originalname == test_parity.__name__
    ]
    made = Runs(spark, Files(tmp_path_factory.mktemp("parity")))
    made.files.put(range(FIRST_RUN))
    made.play([name for name in asked if CASES[name].restart])
    made.files.put(range(FIRST_RUN, len(ARRIVALS)))
    made.play(asked)
    return made


def expected(case: Case) -> list[Outcome]:
    """What one engine gives in each micro-batch."""
    tables = {"names": NAMES} if case.query.tables else {}
    how = {"execution": case.execution, "ordered": case.ordered}
    each = embedded_instants(case.query.plan, case.inputs, _read_by(case), tables, **how)
    batches = []
    for nows in ARRIVALS:
        batches.append(Outcome())
        for _ in nows:
            batches[-1].add(next(each))
    return batches


def _read_by(case: Case) -> Any:
    read = {source.name for source in case.query.sources}
    pushed = instants()
    return [(now, {name: rows for name, rows in arrived.items() if name in read}) for now, arrived in pushed]


def kinds_of(case: Case) -> frozenset[str]:
    return frozenset((RESULT,)) if case.counted else frozenset((RESULT, LATE, REJECTED))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", CASES)
def test_parity(runs: Runs, name: str) -> None:
    if name in runs.failed:
        raise runs.failed[name]
    case, found = CASES[name], runs.found[name]
    for number, batch in enumerate(expected(case)):
        given = found.get(number, Outcome())
        assert bag(given.answers) == bag(batch.answers), number
        assert in_order(case, given.answers) == in_order(case, batch.answers), number
        assert given.numbers[REJECTED] == len(batch.rejected), number
        if case.counted:
            assert given.numbers[LATE] == sum(not row[5] for row in batch.late), number
        else:
            assert bag(given.late) == bag(batch.late), number
            assert bag(given.rejected) == bag(batch.rejected), number
    assert set(found) <= set(range(len(ARRIVALS)))
    wanted = spark_schema(Outlet("__t").schema(case.query.schema))
    assert [(f.name, f.dataType) for f in runs.types[name]] == [(f.name, f.dataType) for f in wanted]


def in_order(case: Case, rows: list[tuple[Any, ...]]) -> dict[Any, list[tuple[int, Counter[str]]]]:
    """The answers of each key, or all of one shard, by their times as they came; those of one time are a bag.

    Across shards no order is promised: not where rows go to any shard, having no key, nor where the answers
    do not show their key.
    """
    key = key_of(case)
    if key is None:
        return {}
    keyed: dict[Any, list[tuple[Any, ...]]] = defaultdict(list)
    for row in rows:
        keyed[tuple(row[i] for i in key)].append(row)
    return {key: [(t, bag(list(each))) for t, each in groupby(of, key=_time)] for key, of in keyed.items()}


def _time(row: tuple[Any, ...]) -> int:
    return int(row[-1])


def bag(rows: list[tuple[Any, ...]]) -> Counter[str]:
    return Counter(map(repr, rows))


def chain_of(case: Case) -> list[HostSpec]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HeadraceWarning)  # of one shard
        return hosts(case.query.plan, case.inputs, case.most or 2, Outlet(kinds=kinds_of(case)))


def key_of(case: Case) -> list[int] | None:
    """The places of the columns that choose the shard of an answer; None if it does not follow from them."""
    *below, last = chain_of(case)
    if len(last.shard_keys) == 1:
        return []
    outlet = below[-1].outlet if below else None
    keys = last.streams[0].keys if outlet is None else outlet.forwards[QUERY].keys
    columns, names = {name for key in keys for name in key.columns()}, case.query.schema.names
    return [names.index(name) for name in sorted(columns)] if columns and columns <= {*names} else None


@pytest.mark.parametrize("name", CASES)
def test_cases_are_cut_as_they_say(name: str) -> None:
    case = CASES[name]
    chain = chain_of(case)
    assert tuple(len(host.shard_keys) for host in chain) == case.hosts
    assert any(stream.partials for host in chain for stream in host.streams) is case.counted


def test_cases_have_something_to_compare() -> None:
    for name, case in CASES.items():
        whole = Outcome()
        for batch in expected(case):
            whole.add(batch)
        assert whole.answers or name == "no ets", name
        assert whole.rejected or name == "internal", name
    assert any(each.late for case in CASES.values() for each in expected(case))
    ordered = [name for name, case in CASES.items() if any(in_order(case, b.answers) for b in expected(case))]
    assert len(ordered) > len(CASES) / 2
