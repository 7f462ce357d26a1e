"""What a shard says about itself in each micro-batch, for the status of the job: one short text of JSON.

Its length follows the number of streams and operators, not the rows that they hold.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any

from headrace.engine import Engine
from headrace.engine.metrics import Metrics, SourceMetrics
from headrace.runtimes.status import Quality
from headrace.time.timestamp import MAX_TIME, MIN_TIME


def report(
    engine: Engine, metrics: Metrics, streams: Collection[str], memory: Mapping[str, Any], shard: int = 0
) -> bytes:
    """The shard at the end of a micro-batch; `streams` are those that its host reports.

    `memory` is what it says about its windows (`budgeting.reported`).
    All shards of a host have the same operators, so the first one describes them for all.
    """
    held, shape = metrics.memory, engine.shape
    plain = {
        "now": engine.now,
        "streams": {n: _stream(engine, n, each) for n, each in metrics.sources.items() if n in streams},
        "queries": held.queries,
        "operators": {name: size for name, size in held.states.items() if size},
        "waiting": [
            {
                "query": query,
                "operator": name,
                "streams": each.streams,
                "wanted": each.wanted,
                "since": each.since,
                "rows": each.rows,
                "bytes": held.states[name],
            }
            for name, each in engine.scheduling.waiting().items()
            for query in each.queries
        ],
        "dropping": [asdict(each) for each in engine.scheduling.dropping()],
        "quality": {each.node: asdict(Quality.of(each)) for each in engine.quality.settings()},
        "state_bytes": metrics.state_bytes,
        "bytes": metrics.bytes,
        "spilled_bytes": metrics.spilled_bytes,
        "shard": shard,
        "memory": memory,
        "orders": metrics.orders,
        "conditions": metrics.conditions,
        "graph": shape.id,
        "shape": [asdict(each) for each in shape.operators] if shard == 0 else [],
        "flow": {name: [each.rows_out, each.queued_rows] for name, each in metrics.nodes.items()},
    }
    return json.dumps(plain).encode()


def _stream(engine: Engine, name: str, source: SourceMetrics) -> dict[str, Any]:
    """A stream as this shard knows it; its heartbeat holds whether or not an operator asked for it."""
    known, bounds = engine.streams.known(name), engine.streams.declared(name)
    slowest = engine.streams.slowest(name)
    return {
        "rows_in": source.rows_in,
        "heartbeat": None if known == MIN_TIME else known,
        "ended": known == MAX_TIME,
        "held_rows": source.held_rows,
        "held_bytes": source.held_bytes,
        "read_until": source.read_until,
        "slowest": None if slowest is None else asdict(slowest),
        **asdict(bounds),
    }
