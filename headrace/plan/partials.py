"""Aggregates in two steps: of the rows at hand first, of those partial results then.

    SlidingAggregate(chain of a stream) = Project(SlidingAggregate(Source of partial rows))

A partial row stands for rows of one key and one pane. All of them are in the same windows, so any time within
the pane, such as the greatest of theirs, will do for it. Not every function has such a form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.types as pt

from headrace.expressions import Column, Expression
from headrace.plan.native import is_row_by_row
from headrace.plan.nodes import AggregateCall, Plan, Project, SlidingAggregate, Source, TimeKind
from headrace.plan.trees import exchange, sources_of, walk
from headrace.plan.windows import Sliding
from headrace.schema import DataType, Schema

ROWS: Final = "__rows"
"""The partial column that counts the rows a partial row stands for."""


@dataclass(frozen=True)
class Partials:
    """How rows become partial rows: of what the chain leaves, the `calls`, by `keys` and pane."""

    chain: Plan
    keys: tuple[str, ...]
    calls: tuple[AggregateCall, ...]
    window: Sliding
    source: Source

    @property
    def pane(self) -> int:
        """The length of a pane: rows of one are in the same windows."""
        return math.gcd(self.window.size, self.window.slide, self.window.offset)


@dataclass(frozen=True)
class _Form:
    """A function in two steps: (suffix, function of rows, of partial results), and what they make."""

    steps: tuple[tuple[str, str, str], ...]
    result: Callable[[list[Expression]], Expression]
    takes: Callable[[DataType], bool]


def _only(columns: list[Expression]) -> Expression:
    return columns[0]


def _mean(columns: list[Expression]) -> Expression:
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
    """The first aggregate that can be taken in two steps, and the plan over its partial rows."""
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
    below = node.input
    while is_row_by_row(below):
        below = below.inputs[0]
    schema = node.input.schema
    return isinstance(below, Source) and all(_has_form(call, schema) for call in node.calls)


def _has_form(call: AggregateCall, schema: Schema) -> bool:
    form = FORMS.get(call.function) if type(call) is AggregateCall else None
    if form is None:
        return False
    return call.column is None or form.takes(schema.field(call.column).type)


def _steps(node: SlidingAggregate) -> Iterator[tuple[AggregateCall, AggregateCall]]:
    """Of each call its steps: over rows, and over the partial results."""
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
    """The same answers from partial rows."""
    calls = tuple(then for _, then in _steps(node))
    merged = replace(node, input=partials.source, calls=calls)
    made = {call.name: _made(i, call) for i, call in enumerate(node.calls)}
    return Project(merged, tuple((name, made.get(name, Column(name))) for name in node.schema.names))


def _made(i: int, call: AggregateCall) -> Expression:
    form = FORMS[call.function]
    return form.result([Column(f"__{i}{suffix}") for suffix, _, _ in form.steps])
