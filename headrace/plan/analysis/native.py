"""The parts of a plan that read one row at a time: Spark can run them itself, before and after the engine.

    prefixes: stream ─ select, project ─► core: everything else ─► suffix: select, project ─► answer

The core reads sources with the same names and with the columns that the prefixes output. The time of a row is
not a column of the plan: the runtime that runs a prefix carries it along. It was computed from the time
column, perhaps in a time zone of the session, so the core does not compare the two (`Source.stamp`).
Expressions that Spark's SQL cannot compute exactly (`headrace.expressions.sparksql`) end a prefix or a
suffix.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.expressions import Expression
from headrace.expressions.sparksql import spark_sql
from headrace.expressions.substitution import is_built_in
from headrace.plan.nodes.core import Plan, Project, Select, Source
from headrace.plan.nodes.trees import exchange, over, sources_of
from headrace.plan.rewrite.projections import prune
from headrace.schema import Schema

ANSWER = "answer"
"""The name of the source for the output of the core, in the suffix."""


@dataclass(frozen=True)
class Native:
    """A plan in three parts. `suffix` is None if nothing follows the core, or if its output is a relation.

    A plan that only selects and projects one stream is all prefix: its core is a source.
    """

    prefixes: Mapping[str, Plan]
    core: Plan
    suffix: Plan | None


def native_parts(plan: Plan) -> Native:
    """The longest prefixes and the longest suffix of selections and projections.

    Columns that are needed only by a selection in a prefix are dropped above it.
    """
    parts = _parted(plan)
    pruned = prune(parts.core)
    if pruned is None:
        return parts
    again = _parted(pruned)
    longer = {name: _onto(chain, parts.prefixes[name]) for name, chain in again.prefixes.items()}
    return Native(longer, again.core, parts.suffix) if again.suffix is None else parts


def _parted(plan: Plan) -> Native:
    """Cut the chain of native nodes off each source, and those above the rest."""
    chains: dict[str, Plan] = {}
    for chain in _chains(plan):
        name = sources_of(chain)[0].name
        chains[name] = _common(chains[name], chain) if name in chains else chain
    core = _without(plan, chains)
    above: list[Plan] = []
    while isinstance(core, (Select, Project)) and is_native(core) and not core.is_relation:
        above.append(core)
        core = core.input
    suffix: Plan = Source(ANSWER, core.schema)
    for each in reversed(above):
        suffix = each.with_inputs((suffix,))
    return Native(chains, core, suffix if above else None)


def _onto(chain: Plan, below: Plan) -> Plan:
    """A chain on top of another one that it reads, as one chain."""
    return exchange(chain, sources_of(chain)[0], below)


def is_row_by_row(plan: Plan) -> bool:
    """Whether the node computes each row on its own, without user-defined functions."""
    return isinstance(plan, (Select, Project)) and all(map(is_built_in, _expressions(plan)))


def is_native(plan: Plan) -> bool:
    """Whether the node computes each row on its own, with expressions that give the same result in Spark."""
    if not isinstance(plan, (Select, Project)):
        return False
    read = plan.input.schema
    told_apart = _are_told_apart(read) and _are_told_apart(plan.schema)
    return told_apart and all(spark_sql(each, read) is not None for each in _expressions(plan))


def _are_told_apart(schema: Schema) -> bool:
    """Whether names differ by more than case, which Spark ignores."""
    return len({name.lower() for name in schema.names}) == len(schema)


def _expressions(plan: Select | Project) -> list[Expression]:
    return [plan.predicate] if isinstance(plan, Select) else [e for _, e in plan.columns]


def _chains(plan: Plan) -> list[Plan]:
    """For each use of a stream, the sub-plan that consists only of selections and projections of it."""
    if _is_chain(plan):
        return [plan]
    return [chain for each in plan.inputs for chain in _chains(each)]


def _is_chain(plan: Plan) -> bool:
    """True for native filters and projections directly over a source."""
    while isinstance(plan, (Select, Project)) and is_native(plan):
        plan = plan.input
    return isinstance(plan, Source)


def links(chain: Plan) -> list[Plan]:
    """The chain from the source up."""
    found = [chain]
    while found[-1].inputs:
        found += found[-1].inputs
    return found[::-1]


def _common(one: Plan, other: Plan) -> Plan:
    """The longest common beginning of two chains over one stream."""
    pairs = zip(links(one), links(other), strict=False)
    return next((a for a, b in list(pairs)[::-1] if a == b), one)


def _without(plan: Plan, chains: Mapping[str, Plan]) -> Plan:
    """The plan with each chain replaced by a source that has the columns of the chain."""
    for name, chain in chains.items():
        if plan == chain:
            return Source(name, chain.schema, sources_of(chain)[0].time)
    return over(plan, [_without(each, chains) for each in plan.inputs])
