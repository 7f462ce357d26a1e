"""Random sequences over given streams (hypothesis strategies)."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from hypothesis import strategies as st

from headrace.expressions import Expression
from headrace.plan.nodes.core import AggregateCall, Plan
from headrace.plan.nodes.sequence import Mode, Sequence, Step, StepKind
from headrace.schema import Schema
from tests.strategies.schemas import TYPES, is_exact, names_of, predicates
from tests.strategies.user_aggregates import calls_on


def sequence_of(
    draw: st.DrawFn, streams: tuple[Plan, ...], modes: tuple[Mode, ...] = tuple(Mode)
) -> Sequence:
    """A sequence of these streams, at least two, whose columns are disjoint."""
    mode = draw(st.sampled_from(modes))
    kinds = _kinds(draw, len(streams), mode)
    keys = _keys(draw, streams)
    prefix = _free_prefix(streams)
    steps = tuple(
        Step(keys[i], kind, None, _folds(draw, stream.schema, prefix) if kind is StepKind.REPEATED else ())
        for i, (stream, kind) in enumerate(zip(streams, kinds, strict=True))
    )
    within = draw(st.none() | st.integers(1, 9))
    plan = Sequence(streams, steps, mode, within, draw(st.booleans()))
    conditions = [_condition(draw, plan, i) for i in range(len(steps))]
    made = tuple(replace(step, condition=c) for step, c in zip(steps, conditions, strict=True))
    return replace(plan, steps=made)


def _kinds(draw: st.DrawFn, count: int, mode: Mode) -> list[StepKind]:
    kinds = [StepKind.ONCE] * count
    if mode is not Mode.CONSECUTIVE and draw(st.sampled_from([False, False, True])):
        kinds[0] = StepKind.REPEATED
    for i in range(1, count - 1):
        kinds[i] = draw(st.sampled_from([StepKind.ONCE, StepKind.MISSING]))
    return kinds


def _keys(draw: st.DrawFn, streams: tuple[Plan, ...]) -> list[tuple[str, ...]]:
    shared = [t for t in TYPES if all(names_of(s.schema, t) for s in streams)]
    types = draw(st.lists(st.sampled_from(shared), max_size=2)) if shared else []
    return [tuple(draw(st.sampled_from(names_of(s.schema, t))) for t in types) for s in streams]


def _free_prefix(streams: tuple[Plan, ...]) -> str:
    """What no column's name begins with, not even where sequences are in sequences."""
    prefix = "run"
    while any(name.startswith(prefix) for stream in streams for name in stream.schema.names):
        prefix += "_run"
    return prefix


def _folds(draw: st.DrawFn, schema: Schema, prefix: str) -> tuple[AggregateCall, ...]:
    any_type = ("count", "first", "last", "min", "max", "count_distinct")
    calls = [AggregateCall("", f, n) for n in schema.names for f in any_type]
    numbers = [n for n in names_of(schema, pa.int64(), pa.float64()) if is_exact(n)]
    calls += [AggregateCall("", f, n) for n in numbers for f in ("sum", "avg")]
    legal = [AggregateCall("", "count"), *calls, *calls_on(schema, ordered=True)]
    drawn = draw(st.lists(st.sampled_from(legal), min_size=1, max_size=3))
    return tuple(replace(call, name=_name(f"{prefix}{i}", call)) for i, call in enumerate(drawn))


def _name(name: str, call: AggregateCall) -> str:
    """A name that says whether sums over the result are exact (`is_exact`)."""
    exact = call.function != "avg" and all(map(is_exact, call.columns))
    return name if exact else f"{name}_avg"


def _condition(draw: st.DrawFn, plan: Sequence, index: int) -> Expression | None:
    missing = plan.steps[index].kind is StepKind.MISSING
    after_run = plan.steps[0].kind is StepKind.REPEATED and index < plan.bound[1]
    if index == 0 or (missing and (after_run or plan.mode is Mode.CONSECUTIVE)):
        return None
    return draw(predicates(plan.seen_by(index))) if draw(st.sampled_from([False, False, True])) else None
