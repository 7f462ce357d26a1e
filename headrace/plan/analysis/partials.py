"""Two-step aggregation: partial results of some rows first, then aggregates of the partial results.

    SlidingAggregate(chain of a stream) = Project(SlidingAggregate(Source of partial rows))

A partial row replaces the rows of one key and one pane. All of these are in the same windows, so the partial
row can have any time within the pane, such as the greatest one. Not every function has such a form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.types as pt

from headrace.expressions import Column, Expression
from headrace.plan.analysis.native import is_row_by_row
from headrace.plan.nodes.core import AggregateCall, Plan, Project, SlidingAggregate, Source, TimeKind
from headrace.plan.nodes.trees import exchange, sources_of, walk
from headrace.plan.nodes.windows import Sliding
from headrace.schema import DataType, Schema

ROWS: Final = "__rows"
"""The partial column that counts the rows that a partial row replaces."""


@dataclass(frozen=True)
class Partials:
    """How rows become partial rows: the `calls` over the output of the chain, by `keys` and pane."""

    chain: Plan
    keys: tuple[str, ...]
    calls: tuple[AggregateCall, ...]
    window: Sliding
    source: Source

    @property
    def pane(self) -> int:
        """The length of a pane; all rows of a pane are in the same windows."""
        return math.gcd(self.window.size, self.window.slide, self.window.offset)


@dataclass(frozen=True)
class _Form:
    """A function in two steps: (suffix, function of rows, function of partial results), and the result."""

    steps: tuple[tuple[str, str, str], ...]
    result: Callable[[list[Expression]], Expression]
    takes: Callable[[DataType], bool]


def _only(columns: list[Expression]) -> Expression:
    return columns[0]


def _mean(columns: list[Expression]) -> Expression:
    """The average from the partial columns: sum, count."""
    return columns[0].cast(pa.float64()) / columns[1].cast(pa.float64())


def _number(of: DataType) -> bool:
    return bool(pt.is_integer(of) or pt.is_floating(of))


def _plain(of: DataType) -> bool:
    return _number(of) or bool(pt.is_timestamp(of))


FORMS: Final[dict[str, _Form]] = {
    "count": _Form((("n", "count", "sum"),), _only, lambda of: True),
    "sum": _Form((("s", "sum", "sum"),), _only, _number),
    "min": _Form((("l", "min", "min"),), _only, _plain),
    "max": _Form((("g", "max", "max"),), _only, _plain),
    "avg": _Form((("s", "sum", "sum"), ("n", "count", "sum")), _mean, lambda of: bool(pt.is_floating(of))),
}


def in_two_steps(plan: Plan) -> tuple[Partials, Plan] | None:
    """The first aggregate with a two-step form, and the plan over its partial rows."""
    mentions = [source.name for source in sources_of(plan)]
    for node in walk(plan):
        if type(node) is not SlidingAggregate or not _decomposes(node):
            continue
        stream = sources_of(node)[0]
        if mentions.count(stream.name) == 1 and stream.time is TimeKind.EXTERNAL:
            partials = _partials(node, stream)
            return partials, exchange(plan, node, _over(partials, node))
    return None


def _decomposes(node: SlidingAggregate) -> bool:
    """True if every aggregate has a two-step form and only row-by-row nodes are below."""
    below = node.input
    while is_row_by_row(below):
        below = below.inputs[0]
    schema = node.input.schema
    return isinstance(below, Source) and all(_has_form(call, schema) for call in node.calls)


def _has_form(call: AggregateCall, schema: Schema) -> bool:
    """True if the function has a two-step form for the type of its argument."""
    form = FORMS.get(call.function) if type(call) is AggregateCall else None
    if form is None:
        return False
    return call.column is None or form.takes(schema.field(call.column).type)


def _steps(node: SlidingAggregate) -> Iterator[tuple[AggregateCall, AggregateCall]]:
    """For each call its two steps: over rows, and over partial results."""
    yield AggregateCall(ROWS, "count"), AggregateCall(ROWS, "sum", ROWS)
    for i, call in enumerate(node.calls):
        for suffix, first, then in FORMS[call.function].steps:
            name = f"__{i}{suffix}"
            yield AggregateCall(name, first, call.column), AggregateCall(name, then, name)


def _partials(node: SlidingAggregate, stream: Source) -> Partials:
    calls = tuple(first for first, _ in _steps(node))
    rows = replace(node, calls=calls, bounds=None).schema
    return Partials(node.input, node.keys, calls, node.window, Source(stream.name, rows, stream.time))


def _over(partials: Partials, node: SlidingAggregate) -> Plan:
    """The same results, computed from partial rows."""
    calls = tuple(then for _, then in _steps(node))
    merged = replace(node, input=partials.source, calls=calls)
    made = {call.name: _made(i, call) for i, call in enumerate(node.calls)}
    return Project(merged, tuple((name, made.get(name, Column(name))) for name in node.schema.names))


def _made(i: int, call: AggregateCall) -> Expression:
    """The result of a call, computed from its partial columns."""
    form = FORMS[call.function]
    return form.result([Column(f"__{i}{suffix}") for suffix, _, _ in form.steps])
