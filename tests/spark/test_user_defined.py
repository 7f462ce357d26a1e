"""User-defined aggregates and functions on Spark: workers know of none, the plan brings what it needs."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from pyspark import cloudpickle

from headrace.engine.inputs import Inputs
from headrace.graph.admission import Rules
from headrace.plan.trees import sources_of
from headrace.runtimes.spark.answers import Outlet
from headrace.runtimes.spark.topology import hosts
from headrace.sql import Catalog, query
from headrace.time.ets import TimerPromise
from tests.spark.simulated import Cluster, MicroBatch, embedded, on_spark

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from tests.spark.conftest import Feed

ROOT = Path(__file__).parents[2]
BIDS = pa.schema([("item", pa.int64()), ("price", pa.float64())])
TEXT = """
    SELECT item, median(price) AS m, spread(price) AS s, twice(max(price)) AS t
    FROM bids [RANGE 8 SLIDE 4] WHERE twice(price) > 2 GROUP BY item"""
INSTANTS = "SELECT item, median(price) AS m, spread(price) AS s FROM bids [RANGE 5] GROUP BY item"


def definitions(catalog: Catalog) -> Catalog:
    """Classes and functions that exist nowhere but here, so that they are pickled by value."""

    class Median:
        arguments = ("double",)
        result = "double"

        def initialize(self) -> list[float]:
            return []

        def iterate(self, state: list[float], values: pa.Array) -> list[float]:
            return state + values.to_pylist()

        def terminate(self, state: list[float]) -> float:
            return sorted(state)[(len(state) - 1) // 2]

    class Spread:
        arguments = ("double",)
        result = "double"

        def initialize(self) -> tuple[float, float]:
            return np.inf, -np.inf

        def iterate(self, state: tuple[float, float], values: pa.Array) -> tuple[float, float]:
            ends = pc.min_max(values).as_py()
            return self.merge(state, (ends["min"], ends["max"]))

        def merge(self, state: tuple[float, float], later: tuple[float, float]) -> tuple[float, float]:
            return min(state[0], later[0]), max(state[1], later[1])

        def terminate(self, state: tuple[float, float]) -> float:
            return state[1] - state[0]

    def twice(values: pa.Array) -> pa.Array:
        return pc.multiply(values, 2.0)

    catalog.register_aggregate("median", Median)
    catalog.register_aggregate("spread", Spread)
    catalog.register_function("twice", twice, arguments=["double"], result="double")
    return catalog


def micro_batches(seed: int) -> list[MicroBatch]:
    rng = random.Random(seed)
    batches: list[MicroBatch] = []
    for now in range(0, 60, 3):
        times = sorted(now - rng.choice((0, 1, 2)) for _ in range(rng.randint(0, 9)))
        rows = [{"item": rng.randint(0, 4), "price": rng.choice((None, 0.5, 2.0, 3.0, 7.5))} for _ in times]
        data = pa.RecordBatch.from_pylist(rows, schema=BIDS)
        batches.append((now, {"bids": (data, np.array(times, object))}))
    return [*batches, (100, {})]


def inputs_of(plan: Any) -> Inputs:
    names = sorted({source.name for source in sources_of(plan)})
    rules = Rules(disordered=True, enforce="strict", guard=1000)
    return Inputs(promises=dict.fromkeys(names, TimerPromise(2)), rules=dict.fromkeys(names, rules))


@pytest.mark.parametrize("text", [TEXT, INSTANTS])
@pytest.mark.parametrize("seed", range(3))
def test_shards_workers_and_retries_change_nothing(text: str, seed: int) -> None:
    plan = query(text, definitions(Catalog({"bids": BIDS}, ticks_per_second=None))).plan
    batches = micro_batches(seed)
    found = on_spark(plan, inputs_of(plan), batches, {}, 3, Cluster(random.Random(seed)))
    assert found.answers
    assert found.sorted() == embedded(plan, inputs_of(plan), batches, {}).sorted()


WORKER = """
import pickle, random, sys
import pyarrow as pa
from headrace.plan.trees import sources_of
from tests.spark.simulated import Cluster, collect, _level, Outcome, _fanned, _clock, _clocked, clocks
from headrace.runtimes.spark.fan import Clock

chain, batches = pickle.load(open(sys.argv[1], "rb"))
outcome, cluster = Outcome(), Cluster(random.Random(1))
for (now, arrived), said in zip(batches, clocks(batches)):
    (host,) = chain
    packages = [p for s in host.streams for p in _fanned(s, host, arrived, now, cluster.rng)]
    packages += [_clocked(b, now) for b in Clock(list(host.names))(iter([_clock(said)]))]
    for frame in _level(0, host, packages, cluster):
        table = pa.Table.from_pandas(frame, preserve_index=False)
        collect(table, host.outlet.schema(host.plan.schema), outcome)
assert "headrace.sql" not in sys.modules, "a worker needs no language"
pickle.dump(outcome.sorted(), open(sys.argv[2], "wb"))
"""


@pytest.mark.parametrize("text", [TEXT, INSTANTS])
def test_a_worker_that_knows_nothing_runs_the_plan(text: str, tmp_path: Path) -> None:
    plan = query(text, definitions(Catalog({"bids": BIDS}, ticks_per_second=None))).plan
    batches = micro_batches(5)
    chain = hosts(plan, inputs_of(plan), 2, Outlet("__t"))
    (tmp_path / "in").write_bytes(cloudpickle.dumps((chain, batches)))
    words = [sys.executable, "-c", WORKER, str(tmp_path / "in"), str(tmp_path / "out")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = cloudpickle.loads((tmp_path / "out").read_bytes())
    assert found == embedded(plan, inputs_of(plan), batches, {}).sorted()


def test_a_query_on_spark(spark: SparkSession, feed: Callable[[str, str], Feed], tmp_path: Path) -> None:
    """The clock is a column of the rows, so that the answer depends on nothing else."""
    import headrace

    bids = feed("bids", "item bigint, price double, ts timestamp, seen timestamp")
    for begin in range(0, 40, 14):
        bids.put(*(row for second in range(begin, min(begin + 14, 40), 2) for row in _bids(second)))
    schema = pa.schema([*BIDS, ("ts", pa.timestamp("us")), ("seen", pa.timestamp("us"))])
    catalog = definitions(Catalog([headrace.StreamDef("bids", schema, time_column="ts")]))
    found = query(TEXT.replace("RANGE 8 SLIDE 4", "RANGE 8 SECONDS SLIDE 4 SECONDS"), catalog)
    bounds = {"bids": {"disorder": "0 seconds"}}
    answers = headrace.spark.apply(found, bids=bids.read(spark), bounds=bounds, timer=None, arrival="seen")
    sink = answers.writeStream.format("memory").queryName("user_defined").outputMode("append")
    sink = sink.option("checkpointLocation", str(tmp_path / "checkpoint"))
    running = sink.trigger(availableNow=True).start()
    try:
        assert running.awaitTermination(240)
        got = spark.sql("SELECT item, m, s, t FROM user_defined").collect()
    finally:
        running.stop()
    assert sorted(tuple(row) for row in got) == sorted(_windows())


def _bids(second: int) -> list[dict[str, Any]]:
    ts = f"2026-11-16 00:00:{second:02d}"
    return [{"item": item, "price": float(second % 7 + item), "ts": ts, "seen": ts} for item in range(3)]


def _windows() -> list[tuple[int, float, float, float]]:
    """The windows of 8 seconds that a row at second 38 closes, computed by hand."""
    found = []
    for end in range(4, 38, 4):
        for item in range(3):
            prices = [second % 7 + item for second in range(0, 40, 2) if end - 8 <= second < end]
            given = sorted(float(price) for price in prices if 2 * price > 2)
            if given:
                found.append((item, given[(len(given) - 1) // 2], given[-1] - given[0], 2 * given[-1]))
    return found
