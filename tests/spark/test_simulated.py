"""Fans and hosts give what one engine gives, whatever becomes of their tasks and workers."""

from __future__ import annotations

import os
import random
import warnings
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import event, given, settings
from hypothesis import strategies as st

from headrace.engine.inputs import Inputs
from headrace.errors import HeadraceWarning
from headrace.graph.admission import Rules
from headrace.plan.trees import sources_of
from headrace.runtimes.spark.answers import Outlet
from headrace.runtimes.spark.topology import hosts
from headrace.testing.plans import Case, cases, tables_of
from headrace.time.ets import DisorderPromise, Promise, SkewPromise, TimerPromise
from tests.spark.simulated import Cluster, MicroBatch, embedded, on_spark


@st.composite
def micro_batches(draw: st.DrawFn, case: Case) -> list[MicroBatch]:
    """The rows of a case in micro-batches: mostly in order, some late, some too far ahead, some timeless."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    arrivals: list[tuple[int, str, int | None, dict[str, Any]]] = []
    streams = {source.name for source in sources_of(case.plan)}
    for name, rows in case.sources.items():
        for time, row in rows if name in streams else ():
            delay = rng.choice((0, 0, 0, 1, 3, 12))
            wild = rng.choice((time,) * 20 + (time + 500, None))
            arrivals.append((time + delay, name, wild, row))
    arrivals.sort(key=lambda a: a[0])
    now, batches = (arrivals[0][0] if arrivals else 0) - 1, list[MicroBatch]()
    schemas = {s.name: s.columns for s in sources_of(case.plan)}
    while arrivals:
        now = max(now + 1, arrivals[0][0]) + rng.choice((0, 0, 2, 9))
        here = [a for a in arrivals if a[0] <= now]
        arrivals = [a for a in arrivals if a[0] > now]
        batches.append(
            (now, {n: _rows(here, n, s) for n, s in schemas.items() if any(a[1] == n for a in here)})
        )
    return [*batches, (now + 40, {}), (now + 1000, {})]


def _rows(arrivals: list[tuple[int, str, int | None, Any]], name: str, schema: pa.Schema) -> Any:
    mine = [a for a in arrivals if a[1] == name]
    data = pa.RecordBatch.from_pylist([a[3] for a in mine], schema=schema)
    times = np.array([np.nan if a[2] is None else a[2] for a in mine], object)
    return data, times


def promises() -> st.SearchStrategy[Promise]:
    small = st.integers(0, 8)
    return st.one_of(
        st.builds(TimerPromise, small),
        st.builds(SkewPromise, small),
        st.builds(DisorderPromise, small, st.integers(0, 30)),
    )


@settings(max_examples=int(os.environ.get("HEADRACE_EXAMPLES", "100")))
@given(st.data())
def test_shards_workers_and_retries_change_nothing(data: st.DataObject) -> None:
    case = data.draw(cases())
    names = sorted({s.name for s in sources_of(case.plan)})
    rule = Rules(disordered=True, enforce="strict", guard=100)
    inputs = Inputs(
        promises={name: data.draw(promises()) for name in names}, rules=dict.fromkeys(names, rule)
    )
    batches = data.draw(micro_batches(case))
    tables = {
        t.name: pa.Table.from_pylist([r for _, r in case.sources[t.name]], schema=t.columns)
        for t in tables_of(case.plan)
    }
    partitions = data.draw(st.integers(1, 3))
    cluster = Cluster(random.Random(data.draw(st.integers(0, 2**32))))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HeadraceWarning)
        chain = hosts(case.plan, inputs, partitions, Outlet())
        event(f"{len(chain)} hosts, {len(chain[-1].names)} shards")
        spread = on_spark(case.plan, inputs, batches, tables, partitions, cluster)
    whole = embedded(case.plan, inputs, batches, tables)
    for found, expected in zip(spread.sorted(), whole.sorted(), strict=True):
        assert Counter(map(repr, found)) == Counter(map(repr, expected))
