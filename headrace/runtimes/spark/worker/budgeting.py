"""A shard of a job with a memory budget: what it reports about its windows, and the sizes that it is given.

The driver adds up the reports of a micro-batch, chooses sizes for all shards together, and writes them as one
file of a source of the job (`headrace.runtimes.spark.driver.budget`). The next micro-batch brings the file
to every shard, also if it runs again. So a window has one size at each instant, in all shards.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from headrace.engine import Engine
from headrace.plan.nodes.core import Plan
from headrace.plan.nodes.quality import adaptable

Windows = Mapping[str, tuple[Plan | None, ...]]
"""By query, the nodes of a host for the windows that may change, in the order of the whole plan."""
Use = tuple[str, int]
"""A window or granularity: a query, and its place among those of the query that may change."""


@dataclass(frozen=True)
class Chosen:
    """A new value of a window or granularity, for rows with time ≥ `since`; None: for all rows."""

    query: str
    place: int
    since: int | None
    value: int


@dataclass(frozen=True)
class Choice:
    """New values after micro-batch `batch`, to be applied in the next one and in no other.

    All shards begin that one with the state of which `since` is known to be late enough. Where a task does
    not know the number of its micro-batch (Spark Connect), it compares the clock of its shard with `clocks`:
    by host and shard, the clocks after micro-batch `batch`.
    """

    batch: int
    values: tuple[Chosen, ...]
    clocks: Mapping[str, int] = field(default_factory=dict)

    def is_next(self, batch: int | None, shard: str, now: int) -> bool:
        """Whether a shard, with its clock before the micro-batch, applies this choice in it."""
        return self.clocks.get(shard) == now if batch is None else batch == self.batch + 1

    def text(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def of(text: str) -> Choice:
        """The choice that `text` wrote."""
        plain = json.loads(text)
        return Choice(plain["batch"], tuple(Chosen(**each) for each in plain["values"]), plain["clocks"])


def shard_name(host: int, shard: int) -> str:
    """The name of a shard in the clocks of a choice."""
    return f"{host}/{shard}"


def nodes_here(queries: Mapping[str, Plan], windows: Windows) -> dict[Use, Plan]:
    """The windows and granularities in a host that may change, as nodes of the plans that run here."""
    found: dict[Use, Plan] = {}
    for query, plan in queries.items():
        nodes = windows.get(query) or tuple(adaptable(plan))  # added while the job runs: in one stage
        found |= {(query, place): node for place, node in enumerate(nodes) if node is not None}
    return found


def follow(
    engine: Engine, nodes: Mapping[Use, Plan], texts: Iterable[str], batch: int | None, shard: str
) -> None:
    """Apply the choice that was made after the micro-batch before this one."""
    for choice in map(Choice.of, texts):
        for each in choice.values if choice.is_next(batch, shard, engine.now) else ():
            node = nodes.get((each.query, each.place))
            if node is not None:
                engine.quality.resize(node, each.value, at=each.since, query=each.query, clamp=True)


def reported(engine: Engine, nodes: Mapping[Use, Plan], host: int, shards: int) -> Any:
    """What a shard says about its windows: as JSON data."""
    uses: dict[str, list[Use]] = {}
    for use, node in sorted(nodes.items(), key=lambda each: each[0]):
        name = engine.quality.node_of(use[0], node)
        if name is not None:
            uses.setdefault(name, []).append(use)
    plain: dict[str, Any] = {
        "host": host,
        "shards": shards,
        "settings": {
            each.node: {"uses": uses.get(each.node, []), "earliest": each.earliest, "history": each.history}
            for each in engine.quality.settings()
        },
    }
    budget = engine.memory.budget
    if budget is not None:
        needs, held, names = engine.memory.needs()
        plain |= {"budget": budget, "held": held, "names": names, "needs": asdict(needs)}
        plain["arrivals"] = engine.memory.arrivals()
    return plain


def uses_of(setting: Mapping[str, Any]) -> tuple[Use, ...]:
    """The uses of a window in a report: they identify it in all shards of a host."""
    return tuple((query, place) for query, place in setting["uses"])


def batch_number() -> int | None:
    """The number of the micro-batch that this task belongs to."""
    from pyspark import TaskContext

    context = TaskContext.get()
    number = None if context is None else context.getLocalProperty("streaming.sql.batchId")
    return None if number is None else int(number)
