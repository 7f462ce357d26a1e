"""What a sequence must be to mean something."""

from __future__ import annotations

import pyarrow.types as pt

from headrace.errors import PlanError
from headrace.plan.aggregates import FUNCTIONS, result_type
from headrace.plan.nodes import AggregateCall
from headrace.plan.sequence import Mode, Sequence, Step, StepKind
from headrace.plan.user_aggregates import UserCall
from headrace.schema import Schema


def check_sequence(plan: Sequence) -> None:
    """Refuse a sequence that has no meaning."""
    _check_steps(plan)
    _check_inputs(plan)
    _check_keys(plan)
    for i, step in enumerate(plan.steps):
        _check_step(plan, i, step)


def _check_steps(plan: Sequence) -> None:
    if len(plan.streams) != len(plan.steps):
        raise PlanError("HR-P040", "a sequence has as many steps as inputs", hint="give each input a Step")
    if len(plan.bound) < 2:
        raise PlanError("HR-P040", "a sequence has at least two steps that are there", hint="SEQ(a, b)")
    first, last = plan.steps[0], plan.steps[-1]
    if StepKind.MISSING in (first.kind, last.kind):
        raise PlanError(
            "HR-P041", "a missing step stands between two that are there", hint="SEQ(a, NOT c, b)"
        )
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


def _check_inputs(plan: Sequence) -> None:
    if any(stream.is_relation for stream in plan.streams):
        raise PlanError(
            "HR-P043",
            "a step of a sequence is a stream: its rows happen, they do not last",
            hint="leave the window out, or turn the relation into a stream (ISTREAM)",
        )


def _check_keys(plan: Sequence) -> None:
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


def _known(call: AggregateCall, below: Schema) -> None:
    missing = next((name for name in call.columns if name not in below.names), None)
    if missing is not None:
        raise PlanError("HR-P005", f"unknown column {missing!r}", place=str(call), hint="see the stream")
    if not isinstance(call, UserCall) and call.function not in FUNCTIONS:
        known = ", ".join(FUNCTIONS)
        raise PlanError("HR-P042", f"{call.function} of a repeated step", hint=f"known: {known}")
    result_type(call, below)


def _check_step(plan: Sequence, index: int, step: Step) -> None:
    for call in step.folds:
        _known(call, plan.streams[index].schema)
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
        raise PlanError("HR-P045", f"{step.condition} is no condition", hint="compare something")
