"""Checks that a plan is valid: one check for each node type, with error codes and hints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow.types as pt

from headrace.errors import PlanError
from headrace.expressions import Expression
from headrace.plan.nodes import core as nodes
from headrace.plan.nodes import sequence
from headrace.plan.nodes.aggregates import FUNCTIONS, result_type
from headrace.plan.nodes.changelog import Changelog
from headrace.plan.nodes.core import AggregateCall, Plan
from headrace.plan.nodes.distinct_on import DistinctOn
from headrace.plan.nodes.lag import Lag
from headrace.plan.nodes.match import (
    MOST_STATES,
    MOST_VARIABLES,
    After,
    Match,
    lapses_of,
    states_of,
    variables_of,
)
from headrace.plan.nodes.outer_join import OuterJoin
from headrace.plan.nodes.over import Over
from headrace.plan.nodes.sequence import Mode, Step, StepKind
from headrace.plan.nodes.sequence import Sequence as SequenceNode
from headrace.plan.nodes.session import SessionAggregate
from headrace.plan.nodes.top_n import TopN
from headrace.plan.nodes.trees import is_static, walk
from headrace.plan.nodes.unnest import Unnest
from headrace.plan.nodes.user_aggregates import UserCall
from headrace.plan.nodes.windows import Now, Range, Rows, Session, Sliding, SlidingRows, Upserts, ordered
from headrace.schema import DataType, Schema
from headrace.time.timestamp import MAX_TIME

# Checks of sequences.


def check_sequence(plan: SequenceNode) -> None:
    """Raise an error if the sequence is not valid."""
    _check_steps(plan)
    _check_inputs(plan)
    _check_keys(plan)
    for i, step in enumerate(plan.steps):
        _check_step(plan, i, step)


def _check_steps(plan: SequenceNode) -> None:
    """The number, kinds and places of the steps, and WITHIN."""
    if len(plan.streams) != len(plan.steps):
        raise PlanError("HR-P040", "a sequence has as many steps as inputs", hint="give each input a Step")
    if len(plan.bound) < 2:
        raise PlanError("HR-P040", "a sequence needs at least two steps that are not NOT", hint="SEQ(a, b)")
    first, last = plan.steps[0], plan.steps[-1]
    if StepKind.MISSING in (first.kind, last.kind):
        raise PlanError("HR-P041", "a NOT step must be between two other steps", hint="SEQ(a, NOT c, b)")
    if any(step.kind is StepKind.REPEATED for step in plan.steps[1:]):
        raise PlanError("HR-P042", "only the first step of a sequence can be repeated", hint="SEQ(a+, b)")
    if first.kind is StepKind.REPEATED and plan.mode is Mode.CONSECUTIVE:
        raise PlanError(
            "HR-P042",
            "a repeated step in a CONSECUTIVE sequence",
            hint="CHRONICLE takes all rows since the last match",
        )
    if plan.within is not None and plan.within <= 0:
        raise PlanError(
            "HR-P001", f"WITHIN must be positive, not {plan.within}", hint="write at least one tick"
        )


def _check_inputs(plan: SequenceNode) -> None:
    """Every input of a sequence must be a stream."""
    if any(stream.is_relation for stream in plan.streams):
        raise PlanError(
            "HR-P043",
            "a step of a sequence is a stream: its rows happen, they do not last",
            hint="leave the window out, or turn the relation into a stream (ISTREAM)",
        )


def _check_keys(plan: SequenceNode) -> None:
    """The partition columns of all steps must exist, and agree in number and type."""
    if len({len(step.keys) for step in plan.steps}) > 1:
        raise PlanError(
            "HR-P044", "steps with different numbers of partition columns", hint="one column for each step"
        )
    for stream, step in zip(plan.streams, plan.steps, strict=True):
        missing = next((k for k in step.keys if k not in stream.schema.names), None)
        if missing is not None:
            columns = ", ".join(stream.schema.names)
            raise PlanError(
                "HR-P005", f"unknown column {missing!r}", place="PARTITION BY", hint=f"columns: {columns}"
            )
    for i, name in enumerate(plan.steps[0].keys):
        types = [s.schema.field(step.keys[i]).type for s, step in zip(plan.streams, plan.steps, strict=True)]
        if len(set(types)) > 1:
            raise PlanError(
                "HR-P044",
                f"partition column {name!r} is {' and '.join(map(str, dict.fromkeys(types)))}",
                hint="cast to one type",
            )


def _known_columns(call: AggregateCall, below: Schema) -> None:
    """The columns and the function of an aggregate over a repeated step must exist."""
    missing = next((name for name in call.columns if name not in below.names), None)
    if missing is not None:
        raise PlanError("HR-P005", f"unknown column {missing!r}", place=str(call), hint="see the stream")
    if not isinstance(call, UserCall) and call.function not in FUNCTIONS:
        known = ", ".join(FUNCTIONS)
        raise PlanError("HR-P042", f"{call.function} of a repeated step", hint=f"known: {known}")
    result_type(call, below)


def _check_step(plan: SequenceNode, index: int, step: Step) -> None:
    """The aggregates and the condition of one step."""
    for call in step.folds:
        _known_columns(call, plan.streams[index].schema)
    if step.folds and step.kind is not StepKind.REPEATED:
        raise PlanError("HR-P042", "aggregates of a step that is not repeated", hint="name its columns")
    if step.condition is None:
        return
    if index == 0:
        raise PlanError("HR-P045", "a condition on the first step alone", hint="put a Select below it")
    after_run = plan.steps[0].kind is StepKind.REPEATED and index < plan.bound[1]
    if step.kind is StepKind.MISSING and (after_run or plan.mode is Mode.CONSECUTIVE):
        raise PlanError(
            "HR-P045",
            "a missing step compared with other steps, after a repeated step or in a CONSECUTIVE sequence",
            hint="conditions on the missing step alone go into a Select below it",
        )
    if not pt.is_boolean(step.condition.type(plan.seen_by(index))):
        raise PlanError("HR-P045", f"{step.condition} is not a condition", hint="compare: a.x < b.x")


MOST_REPORTS = 1_000_000
"""If RSTREAM would report one row more often than this, it must be a mistake."""


def check(plan: Plan) -> None:
    """Raise an error if the plan is not valid, before any part of it runs."""
    for below in plan.inputs:
        check(below)
    CHECKS.get(type(plan), _nothing)(plan)
    _reloadable(plan)
    names = plan.schema.names
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise PlanError("HR-P011", f"two columns are named {twice!r}", hint="rename one of them")


def _nothing(plan: Plan) -> None:
    return None


ROW_BY_ROW: Final = (nodes.Table, nodes.Select, nodes.Project, Unnest)
"""What may be done with a table that is reloaded before it meets a stream."""


def _reloadable(plan: Plan) -> None:
    """A table that is reloaded has an answer for all time only after it has met a stream."""
    if isinstance(plan, ROW_BY_ROW) or not plan.inputs or not is_static(plan):
        return
    table = next((each for each in walk(plan) if isinstance(each, nodes.Table) and each.changes), None)
    if table is not None:
        raise PlanError(
            "HR-P024",
            f"the table {table.name} is reloaded while queries run, and is grouped, combined or compared "
            "before it is joined with a stream",
            hint="filter it or choose columns, then join it with a stream; or leave reload out",
        )


def _union(plan: nodes.Union) -> None:
    if not plan.branches:
        raise PlanError("HR-P012", "a union without inputs", hint="give it at least one input")
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
    """Both inputs must have the same column types in the same order; names may differ."""
    if [f.type for f in left] != [f.type for f in right]:
        raise PlanError(
            "HR-P014",
            f"the inputs of {what} have columns of types ({_types(left)}) and ({_types(right)})",
            hint="project both to the same types, in the same order",
        )


def _types(schema: Schema) -> str:
    return ", ".join(str(f.type) for f in schema)


def _relations(what: str, inputs: Sequence[Plan]) -> None:
    """Every input must be a relation."""
    if not all(p.is_relation for p in inputs):
        raise PlanError("HR-P015", f"{what} needs rows with a validity", hint="put a window on the stream")


def _known(what: str, keys: Sequence[str], schema: Schema) -> None:
    """Every key must be a column of the schema."""
    missing = next((k for k in keys if k not in schema.names), None)
    if missing is not None:
        raise PlanError(
            "HR-P005", f"unknown column {missing!r}", place=what, hint=f"columns: {', '.join(schema.names)}"
        )


def _join(plan: nodes.Pairing) -> None:
    """Both sides are relations, and each pair of keys has comparable types."""
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
    """The input is a stream, and the window makes sense without an aggregate."""
    if plan.input.is_relation:
        raise PlanError(
            "HR-P018", "a window on a window", hint="turn the relation into a stream first (ISTREAM)"
        )
    if isinstance(plan.spec, Session):
        raise PlanError("HR-P021", "a session without an aggregate", hint="use SessionAggregate")
    if isinstance(plan.spec, Rows):
        _known("PARTITION BY", plan.spec.columns, plan.input.schema)
    if isinstance(plan.spec, Upserts):
        _upserts(plan.spec, plan.input.schema)
    if plan.quality_column is not None and not isinstance(plan.spec, (Range, Sliding)):
        raise PlanError("HR-P021", "this window has no size that could be reported", hint="use Range")
    if isinstance(plan.spec, (SlidingRows, Upserts)) and plan.spec.least is not None:
        raise PlanError(
            "HR-P001",
            "a window of rows that slides cannot change its size",
            hint="use Rows, or a fixed number",
        )


def _upserts(spec: Upserts, schema: Schema) -> None:
    """Each key has one row, and the column that says what deletes is a condition."""
    if spec.count != 1:
        raise PlanError("HR-P001", "a table holds one row of each key", hint="use Rows for more")
    of = schema.field(spec.deletes).type
    if not pt.is_boolean(of):
        raise PlanError("HR-P006", f"{spec.deletes} is {of}, not a condition", hint="use a BOOLEAN")


def _aggregate(plan: nodes.Aggregate) -> None:
    """Keys and sessions are valid; panes and sessions read a stream, other aggregates a relation."""
    _known("GROUP BY", plan.keys, plan.input.schema)
    if isinstance(plan, SessionAggregate):
        _positive("SESSION", plan.gap)
        _known("PARTITION BY", plan.partition_keys, plan.input.schema)
        if not set(plan.partition_keys) <= set(plan.keys):
            raise PlanError("HR-P021", "sessions by a column that is not in GROUP BY", hint="group by it too")
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


def _over(plan: Over) -> None:
    if plan.input.is_relation:
        raise PlanError("HR-P022", "OVER on a relation", hint="use OVER on the stream, then window it")
    _known("PARTITION BY", plan.keys, plan.input.schema)
    if plan.frame.preceding is not None and plan.frame.preceding < 0:
        raise PlanError("HR-P001", "a frame that starts after its row", hint="count the rows before it")


def _match(plan: Match) -> None:
    """The pattern takes at least one row, and its variables, keys and columns exist."""
    if plan.input.is_relation:
        raise PlanError("HR-P022", "MATCH_RECOGNIZE on a relation", hint="use it on the stream")
    _known("PARTITION BY", plan.keys, plan.input.schema)
    if plan.within is not None:
        _positive("WITHIN", plan.within)
    if plan.pattern.may_be_empty:
        raise PlanError("HR-P046", "a pattern that can match no row", hint="write A+ in place of A*")
    names = [variable.name for variable in plan.variables]
    wanted = {*variables_of(plan.pattern), *(name for term in plan.terms for name in term.variables)}
    if plan.skip.after in (After.TO_FIRST, After.TO_LAST):
        wanted.add(plan.skip.variable or "")
    if len(set(names)) < len(names) or not wanted <= set(names):
        raise PlanError("HR-P047", "a pattern with unknown variables", hint="give each variable once")
    if len(names) > MOST_VARIABLES or states_of(plan.pattern) > MOST_STATES:
        raise PlanError(
            "HR-P048",
            f"a pattern with more than {MOST_VARIABLES} variables or {MOST_STATES} rows",
            hint="use smaller numbers in {n,m}",
        )
    _known("MATCH_RECOGNIZE", [name for term in plan.terms for name in term.columns], plan.input.schema)
    for variable in plan.variables:
        _boolean(variable.condition, plan.input.schema)
        _boolean(variable.test, plan.seen_by(variable))
    _boolean(plan.gate, plan.input.schema)
    for lapse in lapses_of(plan.pattern):
        _positive("a lapse", lapse)


def _boolean(condition: Expression | None, below: Schema) -> None:
    """A condition reads only these columns and is boolean."""
    if condition is None:
        return
    _known("DEFINE", sorted(condition.columns()), below)
    of = condition.type(below)
    if not (pt.is_boolean(of) or pt.is_null(of)):
        raise PlanError("HR-P049", f"a condition of type {of}", hint="write a comparison")


def _distinct_on(plan: DistinctOn) -> None:
    if plan.input.is_relation:
        raise PlanError("HR-P022", "DISTINCT ON a relation", hint="use it on the stream, then window it")
    _known("DISTINCT ON", plan.keys, plan.input.schema)
    if plan.within is not None:
        _positive("WITHIN", plan.within)


def _unnest(plan: Unnest) -> None:
    """The new columns have names of their own, and as many as there are parts."""
    names = plan.schema.names
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise PlanError("HR-P011", f"two columns are named {twice!r}", place="UNNEST", hint="rename one")


def _granularity(plan: nodes.Granularity) -> None:
    _relations("granularity", plan.inputs)
    _positive("GRANULARITY", plan.grain)
    if plan.coarsest is not None:
        ordered("GRANULARITY", "FINEST", plan.grain, "COARSEST", plan.coarsest)
    for grain in (plan.grain, plan.coarsest or plan.grain):
        if grain % plan.ticks.slide:
            raise PlanError(
                "HR-P001",
                f"a granularity over windows that slide must be a multiple of the slide {plan.ticks.slide}, "
                f"and {grain} is not",
                hint="choose a multiple of the slide",
            )
    if not ends_known(plan.input):
        raise PlanError(
            "HR-P019", "granularity over rows whose end is not known when they come", hint="use a time window"
        )


def ends_known(plan: Plan) -> bool:
    """Whether each row's end is known when it starts."""
    if isinstance(plan, nodes.Window):
        return not isinstance(plan.spec, Rows)
    made = isinstance(plan, (nodes.Distinct, nodes.Except, TopN, OuterJoin))
    changing = isinstance(plan, nodes.Aggregate) and not isinstance(plan, nodes.SlidingAggregate)
    return not made and not changing and all(ends_known(p) for p in plan.inputs)


def _changelog(plan: Changelog) -> None:
    """Its operation has a name of its own, and its keys are columns."""
    _to_stream(plan)
    _known("PRIMARY KEY", plan.keys, plan.input.schema)
    if plan.operation in plan.input.schema.names:
        raise PlanError(
            "HR-P002", f"there is a column {plan.operation!r} already", hint="choose another name"
        )


def _to_stream(plan: nodes.ToStream) -> None:
    _relations("a stream of changes", plan.inputs)


def _rstream(plan: nodes.RStream) -> None:
    """The slide is valid, and no row is reported too often."""
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
    """Whether rows may be valid before the first row of any stream."""
    if isinstance(plan, nodes.Table):
        return True
    relations = [p for p in plan.inputs if p.is_relation]
    if isinstance(plan, nodes.Except):
        return _is_from_the_beginning(plan.left)
    if isinstance(plan, OuterJoin):
        return any(map(_is_from_the_beginning, plan.lasting))
    held = map(_is_from_the_beginning, relations)
    return bool(relations) and (all(held) if isinstance(plan, nodes.Join) else any(held))


def _longest(plan: Plan) -> int:
    """The longest time that a row can be valid; MAX_TIME if there is no limit."""
    if isinstance(plan, nodes.SlidingAggregate):
        return plan.window.slide
    if isinstance(plan, SessionAggregate):
        return 1
    if isinstance(plan, nodes.Window):
        return LONGEST.get(type(plan.spec), lambda spec: MAX_TIME)(plan.spec)
    below = [
        _longest(p) for p in (plan.lasting if isinstance(plan, OuterJoin) else plan.inputs) if p.is_relation
    ]
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
    OuterJoin: _join,
    nodes.Window: _window,
    nodes.Aggregate: _aggregate,
    nodes.SlidingAggregate: _aggregate,
    SessionAggregate: _aggregate,
    nodes.Granularity: _granularity,
    nodes.Distinct: lambda plan: _relations("DISTINCT", plan.inputs),
    TopN: _top_n,
    Lag: _lag,
    Over: _over,
    DistinctOn: _distinct_on,
    Unnest: _unnest,
    nodes.IStream: _to_stream,
    nodes.DStream: _to_stream,
    Changelog: _changelog,
    nodes.RStream: _rstream,
    sequence.Sequence: check_sequence,
    Match: _match,
}
