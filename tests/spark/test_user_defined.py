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
from headrace.plan.nodes.trees import sources_of
from headrace.runtimes.spark.driver.topology import World, clock_routes, levels, targets
from headrace.runtimes.spark.worker.answers import Outlet
from headrace.runtimes.spark.worker.partitioner import ClockBroadcast, Partitioner
from headrace.sql import Catalog, query
from headrace.time.ets import TimerPromise
from tests.spark.simulated import (
    Cluster,
    MicroBatch,
    Outcome,
    _clock,
    as_read,
    clocks,
    collect,
    embedded,
    on_spark,
)

if TYPE_CHECKING:
    pass

ROOT = Path(__file__).parents[2]
BIDS = pa.schema([("item", pa.int64()), ("price", pa.float64())])
TEXT = """
    SELECT item, median(price) AS m, spread(price) AS s, twice(max(price)) AS t
    FROM bids [RANGE 8 SLIDE 4] WHERE twice(price) > 2 GROUP BY item"""
IN_SQL = """
    CREATE AGGREGATE weighed(x DOUBLE) : DOUBLE {
        TABLE t(w DOUBLE, n BIGINT);
        INITIALIZE: { INSERT INTO t VALUES (x, 1); }
        ITERATE:    { UPDATE t SET w = (w * n + x) / 2, n = n + 1; }
        TERMINATE:  { INSERT INTO RETURN SELECT w FROM t; }
    };
    CREATE AGGREGATE total(x DOUBLE) : DOUBLE {
        TABLE t(s DOUBLE);
        INITIALIZE: { INSERT INTO t VALUES (x); }
        ITERATE:    { UPDATE t SET s = s + x; }
        TERMINATE:  { INSERT INTO RETURN SELECT s / 2 FROM t; }
    };
    SELECT item, weighed(price) AS m, total(price) AS s FROM bids [RANGE 8 SLIDE 4] GROUP BY item"""
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


@pytest.mark.parametrize("text", [TEXT, INSTANTS, IN_SQL])
@pytest.mark.parametrize("seed", range(3))
def test_shards_workers_and_retries_change_nothing(text: str, seed: int) -> None:
    plan = query(text, definitions(Catalog({"bids": BIDS}, ticks_per_second=None))).plan
    batches = micro_batches(seed)
    found = on_spark(plan, inputs_of(plan), batches, {}, 3, Cluster(random.Random(seed)))
    assert found.answers
    assert found.sorted() == embedded(plan, inputs_of(plan), batches, {}).sorted()


WORKER = """
import pickle, sys
import pandas as pd
import pyarrow as pa
from headrace.runtimes.spark.worker.host import Host

class State(dict):
    def getMapState(self, *names): return self
    getValue = dict.get
    updateValue = dict.__setitem__
    removeKey = dict.__delitem__

hosts, partition, clock, batches = pickle.load(open(sys.argv[1], "rb"))
states, out = {}, []
for now, rows, said in batches:
    packages = [package for each in rows for package in partition(iter([each]))] + list(clock(iter([said])))
    frame = pd.concat([each.to_pandas().assign(now=now) for each in packages])
    for shard, mine in frame.groupby("shard"):
        processor = Host(*hosts)
        processor.init(states.setdefault(shard, State()))
        out += processor.handleInputRows((shard,), iter([mine]), None)
assert "headrace.sql" not in sys.modules, "a worker needs no language"
pickle.dump(out, open(sys.argv[2], "wb"))
"""


@pytest.mark.parametrize("text", [TEXT, INSTANTS, IN_SQL])
def test_a_worker_that_knows_nothing_runs_the_plan(text: str, tmp_path: Path) -> None:
    plan = query(text, definitions(Catalog({"bids": BIDS}, ticks_per_second=None))).plan
    batches, outlet = micro_batches(5), Outlet("__t")
    made = levels({"q": plan}, World(inputs_of(plan), 2), outlet)
    (to,) = targets(made).values()
    given = [
        (now, [as_read(to[0].stream, *rows, now) for rows in arrived.values()], _clock(said))
        for (now, arrived), said in zip(batches, clocks(batches), strict=True)
    ]
    worker = (made[0], Partitioner(to), ClockBroadcast(clock_routes(made)), given)
    (tmp_path / "in").write_bytes(cloudpickle.dumps(worker))
    words = [sys.executable, "-c", WORKER, str(tmp_path / "in"), str(tmp_path / "out")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = Outcome()
    for frame in cloudpickle.loads((tmp_path / "out").read_bytes()):
        collect(pa.Table.from_pandas(frame, preserve_index=False), outlet.schema(plan.schema), found)
    assert found.sorted() == embedded(plan, inputs_of(plan), batches, {}).sorted()
