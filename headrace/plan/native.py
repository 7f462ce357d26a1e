"""Which parts of a plan look at one row at a time: what Spark can run itself, before and after the engine.

    prefixes: stream ─ select, project ─► core: everything else ─► suffix: select, project ─► answer

The core reads sources of the same names, whose columns are what the prefixes leave. The time of a row is not
a column of the plan: whoever runs a prefix carries it beside them. It was made of the time column, in a time
zone of the session perhaps, so the core does not compare the two (`Source.stamp`). What Spark's SQL cannot
say exactly (`headrace.expressions.sparksql`) ends a prefix or a suffix.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.expressions import Expression
from headrace.expressions.rewriting import is_built_in
from headrace.expressions.sparksql import spark_sql
from headrace.plan.nodes import Plan, Project, Select, Source
from headrace.plan.rewrite.pruning import prune
from headrace.plan.trees import exchange, over, sources_of
from headrace.schema import Schema

ANSWER = "answer"
"""The name of the source that stands for the core's answer in the suffix."""


@dataclass(frozen=True)
class Native:
    """A plan in three parts. `suffix` is None where nothing comes after the core, or a relation does.

    A plan that only selects and projects one stream is all prefix: its core is a source.
    """

    prefixes: Mapping[str, Plan]
    core: Plan
    suffix: Plan | None


def native_parts(plan: Plan) -> Native:
    """The longest prefixes and the longest suffix of selections and projections.

    A column that only a selection in a prefix reads is left out above it.
    """
    parts = _parted(plan)
    pruned = prune(parts.core)
    if pruned is None:
        return parts
    again = _parted(pruned)
    longer = {name: _onto(chain, parts.prefixes[name]) for name, chain in again.prefixes.items()}
    return Native(longer, again.core, parts.suffix) if again.suffix is None else parts


def _parted(plan: Plan) -> Native:
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
    """A chain that reads what another leaves, as one."""
    return exchange(chain, sources_of(chain)[0], below)


def native_prefix(plan: Plan) -> Mapping[str, Plan]:
    """For each stream the selections and projections that every use of it begins with."""
    return native_parts(plan).prefixes


def is_row_by_row(plan: Plan) -> bool:
    """Whether the node computes on each row alone, by functions that are not the user's."""
    return isinstance(plan, (Select, Project)) and all(map(is_built_in, _expressions(plan)))


def is_native(plan: Plan) -> bool:
    """Whether the node computes on each row alone, by what Spark computes alike."""
    if not isinstance(plan, (Select, Project)):
        return False
    read = plan.input.schema
    told_apart = _are_told_apart(read) and _are_told_apart(plan.schema)
    return told_apart and all(spark_sql(each, read) is not None for each in _expressions(plan))


def _are_told_apart(schema: Schema) -> bool:
    """Names that differ by more than their case: Spark does not look at that."""
    return len({name.lower() for name in schema.names}) == len(schema)


def _expressions(plan: Select | Project) -> list[Expression]:
    return [plan.predicate] if isinstance(plan, Select) else [e for _, e in plan.columns]


def _chains(plan: Plan) -> list[Plan]:
    """Of each mention of a stream the sub-plan that is only selections and projections of it."""
    if _is_chain(plan):
        return [plan]
    return [chain for each in plan.inputs for chain in _chains(each)]


def _is_chain(plan: Plan) -> bool:
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
    """The longest beginning that two chains of one stream share."""
    pairs = zip(links(one), links(other), strict=False)
    return next((a for a, b in list(pairs)[::-1] if a == b), one)


def _without(plan: Plan, chains: Mapping[str, Plan]) -> Plan:
    for name, chain in chains.items():
        if plan == chain:
            return Source(name, chain.schema, sources_of(chain)[0].time)
    return over(plan, [_without(each, chains) for each in plan.inputs])
