"""EXPLAIN of a query before it runs: its plan, how its streams can be divided, what Spark runs itself."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Final

from headrace.drawing import Explanation, Section
from headrace.plan.diagram import plan_diagram
from headrace.plan.native import Native, is_native, native_parts
from headrace.plan.nodes import Plan, Source
from headrace.plan.rewrite import Optimized
from headrace.plan.show import show
from headrace.plan.spans import Span, in_units
from headrace.plan.stages import stages
from headrace.plan.trees import sources_of, walk

WIDTH: Final = 100


def explained(
    name: str, text: str, logical: Plan, found: Optimized, ticks_per_second: int | None, format: str = "text"
) -> Explanation:
    """What is known of a query from its plan alone; times are shown in units where a tick has a length."""
    plan = found.plan
    native = native_parts(plan)
    span = in_units(ticks_per_second)
    diagram = plan_diagram(plan, name, _native_nodes(plan, native), span)
    sections = (
        Section("query", text.strip()),
        Section("plan as written", show(logical, span)),
        *_rewritten(found, span),
        Section("partition keys", "\n".join(_division(plan))),
        Section("on Spark", "\n".join(_on_spark(plan, native))),
    )
    return Explanation(diagram, sections, format)


def _rewritten(found: Optimized, span: Span) -> Iterator[Section]:
    """The rules that fired, and the plan that they made."""
    if found.fired:
        lines = [textwrap.shorten(f"  {each.what(span)}", WIDTH, placeholder=" …") for each in found.fired]
        yield Section("rewritten", "\n".join(f"  {line}" for line in lines))
        yield Section("plan", show(found.plan, span))


def _division(plan: Plan) -> Iterator[str]:
    """A line per stage, with the name under which the next one reads it."""
    found = stages(plan)
    for number, stage in enumerate(found, 1):
        name = f"stage {number}: " if len(found) > 1 else ""
        into = f" -> {stage.output.name}" if stage.output is not None else ""
        yield f"  {name}{stage.partitioning}{into}"


def _on_spark(plan: Plan, native: Native) -> Iterator[str]:
    for source in dict.fromkeys(sources_of(plan)):
        names = _kinds(native.prefixes.get(source.name, source))
        yield f"  {source.name}: {', then '.join(names) or 'nothing'} natively"
    if isinstance(native.core, Source):
        yield "  nothing is left for the engine"
        return
    yield "  the engine runs the rest"
    if native.suffix is not None:
        yield f"  its answer: {', then '.join(_kinds(native.suffix))} natively"


def _kinds(chain: Plan) -> list[str]:
    """What a chain does, from its source up."""
    kinds = [type(part).__name__.lower() for part in walk(chain) if not isinstance(part, Source)]
    return kinds[::-1]


def _native_nodes(plan: Plan, native: Native) -> set[Plan]:
    found = {part for chain in native.prefixes.values() for part in walk(chain)}
    while is_native(plan) and not plan.is_relation:
        found.add(plan)
        plan = plan.inputs[0]
    return {part for part in found if not isinstance(part, Source)}
