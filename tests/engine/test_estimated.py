"""Bounds that nobody declared: learned from arrivals, and still every row in order or accounted for."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headrace.engine import Engine
from headrace.graph.admission import Rules
from headrace.plan.nodes.core import Source, Union
from headrace.testing.compare import assert_ordered, events_of
from headrace.time.estimation import Adaptivity, SkewEstimator
from headrace.time.learned import Estimator, LearnedHeartbeats
from headrace.time.quantile import Confidence, QuantileEstimator

SCHEMA = pa.schema([("v", pa.int64())])
STREAMS = [Source(name, SCHEMA) for name in ("a", "b", "c")]
NAMES = tuple(s.name for s in STREAMS)
ESTIMATORS = {
    "no adaptivity": lambda: SkewEstimator(NAMES, 0),
    "adaptive": lambda: SkewEstimator(NAMES, 0, adaptivity=Adaptivity(50, 0.5)),
    "quantile": lambda: QuantileEstimator(NAMES, Confidence(0.01)),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_under_learned_bounds_the_output_is_ordered_and_every_row_accounted_for(name: str) -> None:
    estimator: Estimator = ESTIMATORS[name]()
    engine = Engine()
    rules = Rules(disordered=True, enforce="strict")
    engine.streams.manage(LearnedHeartbeats(estimator, timeout=10_000), dict.fromkeys(STREAMS, rules))
    engine.add("q", Union(tuple(STREAMS)))
    rng = np.random.default_rng(7)
    sent = np.sort(rng.integers(0, 8_000, 1_200))
    arrived = sent + rng.exponential(15, len(sent)).astype(np.int64)
    batches, late = [], 0
    for i in np.argsort(arrived, kind="stable"):
        data = pa.record_batch([pa.array([int(i)], pa.int64())], schema=SCHEMA)
        engine.push(NAMES[i % 3], data, [int(sent[i])], now=int(arrived[i]))
        batches += engine.drain()
        late += sum(len(each) for each in engine.drain_late())
    released = sum(len(b) for b in batches)
    for stream in NAMES:
        engine.streams.end(stream)
    batches += engine.drain()
    assert_ordered(events_of(batches))
    assert sum(len(b) for b in batches) + late == len(sent)
    assert released > 0.9 * len(sent), "rows come out while the streams run, not at their end"
    assert late < 0.1 * len(sent)
