"""How engines run on Spark changes no answer: strategy, level, propagation, and when idle streams speak."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from dataclasses import replace

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.execution import Execution
from headrace.engine.inputs import Inputs
from headrace.errors import HeadraceWarning
from headrace.graph.admission import Rules
from headrace.plan.nodes.trees import sources_of
from headrace.time.ets import policy
from tests.spark.simulated import Cluster, embedded, on_spark
from tests.spark.test_simulated import assert_in_order, micro_batches, promises
from tests.strategies.plans import cases, tables_of

STRATEGIES = st.sampled_from(["auto", "dfs", "bfs", "rr", "dfs(2)", "bfs(auto)", "rr(7)"])
EXECUTIONS = st.builds(
    Execution,
    STRATEGIES,
    st.sampled_from(["operator", "query", "memory"]),
    st.sampled_from(["direct", "in_band"]),
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
            case.plan, inputs, batches, tables, partitions, cluster, ends=True, execution=execution
        )
    whole = embedded(case.plan, usual, batches, tables, ends=True)
    for found, expected in zip(spread.sorted(), whole.sorted(), strict=True):
        assert Counter(map(repr, found)) == Counter(map(repr, expected))
    assert_in_order(spread.by_batch)
