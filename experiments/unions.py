"""The query graph of Bai et al. 2007, Figure 4, under the four ways of managing timestamps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from experiments.arrivals import SECOND, Instants
from experiments.result import Conditions
from experiments.simulation import SCHEMA, Simulation, Trace, held_items
from headrace.engine import Engine
from headrace.expressions import col
from headrace.graph.node import Node
from headrace.plan.nodes.core import Plan, Select, Source, TimeKind, Union
from headrace.time.ets import NONE, ON_DEMAND, Policy, periodic

FAST, SLOW = "fast", "slow"


@dataclass(frozen=True)
class Way:
    """A line of the figure: the kind of timestamps, and when each stream makes its ETS."""

    label: str
    kind: TimeKind
    fast: Policy
    slow: Policy
    propagation: str = "eqg"


NO_ETS = Way("A: no ETS", TimeKind.INTERNAL, NONE, NONE)
DEMAND = Way("C: on-demand ETS", TimeKind.INTERNAL, ON_DEMAND, ON_DEMAND)
DEMAND_IN_BAND = Way("C as punctuations in-band", TimeKind.INTERNAL, ON_DEMAND, ON_DEMAND, "punctuation")
LATENT = Way("D: latent timestamps", TimeKind.LATENT, NONE, NONE)


def injected(rate: float) -> Way:
    """B: ETS `rate` times a second in the sparser stream, as punctuations (§6)."""
    return Way("B: periodic ETS", TimeKind.INTERNAL, NONE, periodic(int(SECOND / rate)), "punctuation")


def simple_union(kind: TimeKind) -> Plan:
    """Figure 4: each stream through a selection that 95 % of its rows pass, then the union."""
    return Union(tuple(Select(Source(name, SCHEMA, kind), col("v") < 95) for name in (FAST, SLOW)))


def engine_for(way: Way, strategy: str = "dfs") -> Engine:
    """An engine that runs the union in one way, row by row."""
    engine = Engine(strategy=strategy, propagation=way.propagation)
    for name, policy in ((FAST, way.fast), (SLOW, way.slow)):
        engine.streams.declare(Source(name, SCHEMA, way.kind), policy=policy)
    engine.add("union", simple_union(way.kind))
    return engine


def union_node(engine: Engine) -> Node:
    """The operator that may idle-wait."""
    return engine.graph.nodes[-1]


def run_union(
    way: Way,
    arrivals: Mapping[str, Instants],
    conditions: Conditions,
    *,
    strategy: str = "dfs",
    queues: bool = False,
    watch: bool = False,
) -> Trace:
    """One run over these arrivals."""
    engine = engine_for(way, strategy)
    node = union_node(engine) if watch else None
    gauge = held_items if queues else None
    return Simulation(engine, arrivals, conditions, watch=node, gauge=gauge).run()
