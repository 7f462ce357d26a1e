"""What a plan must be to mean something: one check per node, each with a code and a hint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow.types as pt

from headrace.errors import PlanError
from headrace.plan import nodes, sequence
from headrace.plan.lag import Lag
from headrace.plan.nodes import Plan
from headrace.plan.sequence_check import check_sequence
from headrace.plan.session import SessionAggregate
from headrace.plan.top import TopN
from headrace.plan.windows import Now, Range, Rows, Session, Sliding, ordered
from headrace.schema import DataType, Schema
from headrace.time.timestamp import MAX_TIME

MOST_REPORTS = 1_000_000
"""How often one row may be reported by an RSTREAM before that must be a mistake."""


def check(plan: Plan) -> None:
    """Refuse a plan that has no meaning, before anything of it runs."""
    for below in plan.inputs:
        check(below)
    CHECKS.get(type(plan), _nothing)(plan)
    names = plan.schema.names
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise PlanError("HR-P011", f"two columns are named {twice!r}", hint="rename one of them")


def _nothing(plan: Plan) -> None:
    return None


def _union(plan: nodes.Union) -> None:
    if not plan.branches:
        raise PlanError("HR-P012", "a union of nothing", hint="give it at least one input")
    for branch in plan.branches[1:]:
        _same_columns("union", plan.schema, branch.schema)
    if len({b.is_relation for b in plan.branches}) > 1:
        raise PlanError(
            "HR-P013", "a union of streams and relations", hint="give every input a window, or none"
        )


def _except(plan: nodes.Except) -> None:
    _same_columns("except", plan.left.schema, plan.right.schema)
    _relations("except", plan.inputs)


def _same_columns(what: str, left: Schema, right: Schema) -> None:
    if [f.type for f in left] != [f.type for f in right]:
        raise PlanError(
            "HR-P014",
            f"the inputs of {what} have columns of types ({_types(left)}) and ({_types(right)})",
            hint="project both to the same types, in the same order",
        )


def _types(schema: Schema) -> str:
    return ", ".join(str(f.type) for f in schema)


def _relations(what: str, inputs: Sequence[Plan]) -> None:
    if not all(p.is_relation for p in inputs):
        raise PlanError("HR-P015", f"{what} needs rows with a validity", hint="put a window on the stream")


def _known(what: str, keys: Sequence[str], schema: Schema) -> None:
    missing = next((k for k in keys if k not in schema.names), None)
    if missing is not None:
        raise PlanError(
            "HR-P005", f"unknown column {missing!r}", place=what, hint=f"columns: {', '.join(schema.names)}"
        )


def _join(plan: nodes.Join) -> None:
    _relations("a join", plan.inputs)
    if len(plan.left_keys) != len(plan.right_keys):
        raise PlanError("HR-P016", "a join with more keys on one side", hint="keys come in pairs")
    _known("the left of a join", plan.left_keys, plan.left.schema)
    _known("the right of a join", plan.right_keys, plan.right.schema)
    for left, right, _ in plan.equalities:
        a, b = plan.left.schema.field(left).type, plan.right.schema.field(right).type
        if a != b and not (_whole(a) and _whole(b)) and not (pt.is_floating(a) and pt.is_floating(b)):
            raise PlanError(
                "HR-P017", f"join keys {left} ({a}) and {right} ({b}) never match", hint="cast one of them"
            )


def _whole(of: DataType) -> bool:
    return bool(pt.is_integer(of))


def _window(plan: nodes.Window) -> None:
    if plan.input.is_relation:
        raise PlanError(
            "HR-P018", "a window on a window", hint="turn the relation into a stream first (ISTREAM)"
        )
    if isinstance(plan.spec, Session):
        raise PlanError("HR-P021", "a session without an aggregate", hint="use SessionAggregate")
    if isinstance(plan.spec, Rows):
        _known("PARTITION BY", plan.spec.keys, plan.input.schema)
    if plan.shown is not None and not isinstance(plan.spec, Range):
        raise PlanError("HR-P021", "a window without a size that rows are given", hint="use Range")


def _aggregate(plan: nodes.Aggregate) -> None:
    _known("GROUP BY", plan.keys, plan.input.schema)
    if isinstance(plan, SessionAggregate):
        _positive("SESSION", plan.gap)
        _known("PARTITION BY", plan.partition_keys, plan.input.schema)
        if not set(plan.partition_keys) <= set(plan.keys):
            raise PlanError("HR-P021", "sessions by a column that is no key", hint="group by it too")
    if isinstance(plan, (nodes.SlidingAggregate, SessionAggregate)):
        if plan.input.is_relation:
            raise PlanError("HR-P018", "a window on a window", hint="aggregate the stream itself")
    else:
        _relations("an aggregate", plan.inputs)


def _top_n(plan: TopN) -> None:
    _relations("top-n", plan.inputs)
    _positive("top-n", plan.count)
    _known("PARTITION BY", plan.keys, plan.input.schema)
    _known("ORDER BY", [key.column for key in plan.order], plan.input.schema)
    nested = next((k for k in plan.order if pt.is_nested(plan.input.schema.field(k.column).type)), None)
    if nested is not None:
        of = plan.input.schema.field(nested.column).type
        raise PlanError("HR-P006", f"{of} has no order", place=nested.column, hint="order by a part of it")


def _lag(plan: Lag) -> None:
    if plan.input.is_relation:
        raise PlanError("HR-P022", "LAG over a relation", hint="look back in the stream, then window it")
    _known("PARTITION BY", plan.keys, plan.input.schema)
    _known("LAG", [call.column for call in plan.calls], plan.input.schema)
    for call in plan.calls:
        _positive("LAG", call.offset)


def _granularity(plan: nodes.Granularity) -> None:
    _relations("granularity", plan.inputs)
    _positive("GRANULARITY", plan.grain)
    if plan.coarsest is not None:
        ordered("GRANULARITY", "FINEST", plan.grain, "COARSEST", plan.coarsest)
    if not ends_known(plan.input):
        raise PlanError(
            "HR-P019", "granularity over rows whose end is not known when they come", hint="use a time window"
        )


def ends_known(plan: Plan) -> bool:
    """Whether each row's end is known when it starts."""
    if isinstance(plan, nodes.Window):
        return not isinstance(plan.spec, Rows)
    made = isinstance(plan, (nodes.Distinct, nodes.Except, TopN))
    changing = isinstance(plan, nodes.Aggregate) and not isinstance(plan, nodes.SlidingAggregate)
    return not made and not changing and all(ends_known(p) for p in plan.inputs)


def _to_stream(plan: nodes.ToStream) -> None:
    _relations("a stream of changes", plan.inputs)


def _rstream(plan: nodes.RStream) -> None:
    _relations("RSTREAM", plan.inputs)
    _positive("RSTREAM", plan.slide)
    if not 0 <= plan.phase < plan.slide:
        raise PlanError(
            "HR-P001",
            f"the offset of RSTREAM must be less than its slide {plan.slide}, not {plan.phase}",
            hint="write an offset from 0 to slide − 1",
        )
    if _is_from_the_beginning(plan.input):
        raise PlanError(
            "HR-P021",
            "RSTREAM would report the rows of a table since the beginning of time",
            hint="join the table with a window, or use ISTREAM",
        )
    longest = _longest(plan.input)
    if longest != MAX_TIME and longest // plan.slide > MOST_REPORTS:
        raise PlanError(
            "HR-P020",
            f"RSTREAM would report one row up to {longest // plan.slide} times",
            hint="give the window a SLIDE, or use ISTREAM",
        )


def _is_from_the_beginning(plan: Plan) -> bool:
    """Whether rows may be valid before any stream has brought one."""
    if isinstance(plan, nodes.Table):
        return True
    relations = [p for p in plan.inputs if p.is_relation]
    if isinstance(plan, nodes.Except):
        return _is_from_the_beginning(plan.left)
    held = map(_is_from_the_beginning, relations)
    return bool(relations) and (all(held) if isinstance(plan, nodes.Join) else any(held))


def _longest(plan: Plan) -> int:
    """The longest that a row can be valid; MAX_TIME where that is open."""
    if isinstance(plan, nodes.SlidingAggregate):
        return plan.window.slide
    if isinstance(plan, SessionAggregate):
        return 1
    if isinstance(plan, nodes.Window):
        return LONGEST.get(type(plan.spec), lambda spec: MAX_TIME)(plan.spec)
    below = [_longest(p) for p in plan.inputs if p.is_relation]
    if isinstance(plan, nodes.Join):
        return min(below, default=MAX_TIME)
    return max(below, default=MAX_TIME)


LONGEST: dict[type[Any], Callable[[Any], int]] = {
    Range: lambda spec: int(spec.size),
    Sliding: lambda spec: int(spec.size + spec.slide),
    Now: lambda spec: 1,
}


def _positive(clause: str, value: int) -> None:
    if value <= 0:
        raise PlanError("HR-P001", f"{clause} must be positive, not {value}", hint="write at least one tick")


CHECKS: dict[type[Plan], Callable[[Any], None]] = {
    nodes.Union: _union,
    nodes.Except: _except,
    nodes.Join: _join,
    nodes.Window: _window,
    nodes.Aggregate: _aggregate,
    nodes.SlidingAggregate: _aggregate,
    SessionAggregate: _aggregate,
    nodes.Granularity: _granularity,
    nodes.Distinct: lambda plan: _relations("DISTINCT", plan.inputs),
    TopN: _top_n,
    Lag: _lag,
    nodes.IStream: _to_stream,
    nodes.DStream: _to_stream,
    nodes.RStream: _rstream,
    sequence.Sequence: check_sequence,
}
