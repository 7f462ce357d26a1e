"""How engines run on Spark changes no answer: strategy, level, propagation, and when idle streams speak."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from headrace.control import SetLevel, SetStrategy, submit
from headrace.engine import Service
from headrace.engine.execution import Execution
from headrace.engine.inputs import Inputs
from headrace.errors import HeadraceWarning
from headrace.graph.admission import Rules
from headrace.plan.nodes.trees import sources_of
from headrace.runtimes.spark.driver.control_log import ControlLog
from headrace.runtimes.spark.driver.options import SparkOptions
from headrace.runtimes.spark.worker.running import HostSpec
from headrace.time.ets import policy
from tests.control.pipelines import TEXT, written
from tests.spark.simulated import QUERY, Cluster, embedded, on_spark
from tests.spark.test_simulated import assert_in_order, micro_batches, promises
from tests.strategies.plans import cases, tables_of

STRATEGIES = st.sampled_from(
    ["auto", "dfs", "bfs", "rr", "dfs(2)", "bfs(auto)", "rr(7)", "chain(3)", "chain(auto)", "edf(2)"]
)
EXECUTIONS = st.builds(
    Execution,
    STRATEGIES,
    st.sampled_from(["operator", "query", "memory"]),
    st.sampled_from(["direct", "in_band"]),
)
SERVICES = st.builds(
    Service,
    st.none() | st.integers(1, 9),
    st.sampled_from([1.0, 0.5, 3.0]),
    st.sampled_from([0, 1]),
    st.none() | STRATEGIES,
    st.sampled_from([(), ("select",), ("join", "union")]),
)
IDLE = st.sampled_from(["on_demand", "none", "periodic(3)", "periodic(20)"])


@given(st.data())
def test_how_shards_run_changes_no_answer(data: st.DataObject) -> None:
    """All answers are out once the streams have ended; late rows are the same at any time."""
    case = data.draw(cases())
    names = sorted({s.name for s in sources_of(case.plan)})
    rules = dict.fromkeys(names, Rules(disordered=True, enforce="strict"))
    usual = Inputs(promises={name: data.draw(promises()) for name in names}, rules=rules)
    idle = {name: policy(data.draw(IDLE), None) for name in names}
    batches = data.draw(micro_batches(case))
    tables = {
        t.name: pa.Table.from_pylist([r for _, r in case.sources[t.name]], schema=t.columns)
        for t in tables_of(case.plan)
    }
    cluster = Cluster(random.Random(data.draw(st.integers(0, 2**32))))
    inputs, execution = replace(usual, policies=idle), data.draw(EXECUTIONS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HeadraceWarning)
        partitions = data.draw(st.integers(1, 3))
        spread = on_spark(
            case.plan,
            inputs,
            batches,
            tables,
            partitions,
            cluster,
            ends=True,
            execution=execution,
            services={QUERY: data.draw(SERVICES)},
        )
    whole = embedded(case.plan, usual, batches, tables, ends=True)
    for found, expected in zip(spread.sorted(), whole.sorted(), strict=True):
        assert Counter(map(repr, found)) == Counter(map(repr, expected))
    assert_in_order(spread.by_batch)


def test_a_strategy_of_the_control_log_is_that_of_the_next_start(tmp_path: Path) -> None:
    """Shards follow such commands while they run; a job that starts after them used to forget them."""
    file = written(tmp_path, TEXT.replace('"embedded"', '"spark"'))
    for command in (SetStrategy("bfs"), SetStrategy("chain", "hot"), SetLevel("query")):
        submit(file, command)
    started = ControlLog(file, print).start()
    assert started.execution == Execution("bfs", "query")
    assert started.queries[0].query.service.strategy == "chain"
    options = SparkOptions(inputs=started.inputs(), **asdict(started.execution))
    host = HostSpec("h", {}, (), started.inputs(), (0,), execution=options.execution)
    engine = host.build()
    assert (engine.scheduling.level, engine.scheduling.table.default.name) == ("query", "bfs")
