"""The meaning of sequences, computed the naive way: row by row, as `plan.nodes.sequence` defines them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headrace.expressions import evaluator
from headrace.plan.nodes.sequence import Mode, StepKind
from headrace.plan.nodes.sequence import Sequence as SequencePlan
from headrace.plan.nodes.user_aggregates import UserCall
from headrace.testing.compare import Row, canonical_row
from headrace.testing.folds import fold, fold_user

Rows = Sequence[Sequence[tuple[int, Row]]]
"""By step, its rows with their times, simultaneous ones in their defined order."""


Conditions = Sequence[Callable[[Row], bool]]
"""By step, a function that tells whether its condition holds for a row."""


class Happening(NamedTuple):
    """A row of a step; `place` is its position in its stream."""

    time: int
    step: int
    place: int
    row: Row


@dataclass
class Match:
    """A match so far: its columns, the time of its first row, and all rows of a repeated step."""

    row: Row
    first: int
    run: list[Happening] = field(default_factory=list)
    closed: bool = False


def matches(plan: SequencePlan, rows: Rows) -> list[tuple[int, Row]]:
    """Every match, with the time of its last row."""
    found: list[tuple[int, Row]] = []
    find = _consecutive if plan.mode is Mode.CONSECUTIVE else _in_order
    holds = [_condition(plan, step) for step in range(len(plan.steps))]
    for partition in _partitions(plan, rows).values():
        found += find(plan, holds, partition)
    return sorted(found, key=lambda each: each[0])


def _partitions(plan: SequencePlan, rows: Rows) -> dict[Row, list[Happening]]:
    """The rows of each partition, in processing order."""
    partitions: dict[Row, list[Happening]] = defaultdict(list)
    for i, (stream, step) in enumerate(zip(plan.streams, plan.steps, strict=True)):
        at = [stream.schema.names.index(key) for key in step.keys]
        for place, (time, row) in enumerate(rows[i]):
            partitions[tuple(row[k] for k in at)].append(Happening(time, i, place, row))
    for partition in partitions.values():
        partition.sort(key=lambda h: (h.time, -h.step if plan.strict else h.step, h.place))
    return partitions


def _in_order(plan: SequencePlan, holds: Conditions, partition: list[Happening]) -> list[tuple[int, Row]]:
    """Process rows one by one; `waiting[k]` are the matches that the k-th bound step has completed."""
    bound = plan.bound
    waiting: dict[int, list[Match]] = {step: [] for step in bound}
    earlier = [max((step for step in bound if step < i), default=None) for i in range(len(plan.steps))]
    found: list[tuple[int, Row]] = []
    for each in partition:
        before = earlier[each.step]
        if plan.steps[each.step].kind is StepKind.MISSING:
            assert before is not None
            waiting[before] = [m for m in waiting[before] if not holds[each.step](m.row + each.row)]
            continue
        if before is None:
            _begin(plan, waiting[each.step], each)
            continue
        for match in _chosen(plan, waiting[before], each.time):
            prefix = _told(plan, match) if plan.steps[before].kind is StepKind.REPEATED else match.row
            made = Match(prefix + each.row, match.run[0].time if match.run else match.first)
            if not holds[each.step](made.row):
                continue
            if each.step == bound[-1]:
                found.append((each.time, made.row))
            else:
                _wait(plan, waiting[each.step], made)
    return found


def _begin(plan: SequencePlan, waiting: list[Match], each: Happening) -> None:
    """A row of the first step: a new match, or one more row of a run."""
    if plan.steps[each.step].kind is not StepKind.REPEATED:
        _wait(plan, waiting, Match(each.row, each.time))
    elif waiting and not (plan.mode is Mode.RECENT and waiting[0].closed):
        waiting[0].run.append(each)
    else:
        _wait(plan, waiting, Match((), each.time, [each]))


def _wait(plan: SequencePlan, waiting: list[Match], match: Match) -> None:
    """A match waits; in RECENT mode it replaces all others."""
    if plan.mode is Mode.RECENT:
        waiting.clear()
    waiting.append(match)


def _chosen(plan: SequencePlan, waiting: list[Match], time: int) -> list[Match]:
    """The matches that a row at `time` extends; expired ones are forgotten."""
    waiting[:] = [match for match in waiting if _in_time(plan, match, time)]
    chosen = [waiting.pop(0)] if plan.mode is Mode.CHRONICLE and waiting else list(waiting)
    for match in chosen:
        match.closed = True
    return chosen


def _in_time(plan: SequencePlan, match: Match, time: int) -> bool:
    """Whether a match has not expired; expired rows of a run are removed."""
    if not match.run:
        return _within(plan, match.first, time)
    match.run = [h for h in match.run if _within(plan, h.time, time)]
    return bool(match.run)


def _within(plan: SequencePlan, first: int, time: int) -> bool:
    return plan.within is None or time - first < plan.within


def _told(plan: SequencePlan, match: Match) -> Row:
    """The aggregates of a repeated step."""
    first = plan.bound[0]
    names = plan.streams[first].schema.names
    values: list[Any] = []
    for call in plan.steps[first].folds:
        if isinstance(call, UserCall):
            values.append(fold_user(call, plan.streams[first].schema, [h.row for h in match.run]))
            continue
        column = [None if call.column is None else h.row[names.index(call.column)] for h in match.run]
        values.append(len(column) if call.column is None else fold(call.function, column))
    return canonical_row(values)


def _condition(plan: SequencePlan, step: int) -> Callable[[Row], bool]:
    """Whether the condition of a step holds for the match with this row."""
    condition, schema = plan.steps[step].condition, plan.seen_by(step)
    if condition is None:
        return lambda row: True
    value = evaluator(condition, schema)
    return lambda row: value(dict(zip(schema.names, row, strict=True))) is True


# ------------------------------------------------------------------------------------------ consecutive


def _consecutive(plan: SequencePlan, holds: Conditions, partition: list[Happening]) -> list[tuple[int, Row]]:
    """Every chain of rows of all bound steps without a row in between."""
    chains = [[h] for h in partition if h.step == plan.bound[0]]
    for before, step in zip(plan.bound, plan.bound[1:], strict=False):
        assert before < step
        after = [h for h in partition if h.step == step]
        chains = [[*chain, h] for chain in chains for h in after if _follows(plan, partition, chain[-1], h)]
        chains = [c for c in chains if holds[step](tuple(v for h in c for v in h.row))]
    return [
        (c[-1].time, tuple(v for h in c for v in h.row))
        for c in chains
        if _within(plan, c[0].time, c[-1].time)
    ]


def _follows(plan: SequencePlan, partition: list[Happening], one: Happening, other: Happening) -> bool:
    """True if `other` comes after `one` with no row of the partition between them."""
    if not before(plan, one, other):
        return False
    return not any(before(plan, one, each) and before(plan, each, other) for each in partition)


def before(plan: SequencePlan, one: Happening, other: Happening) -> bool:
    """Whether one row of a partition comes before another."""
    if one.step == other.step:
        return one.place < other.place
    if plan.strict:
        return one.time < other.time
    return (one.time, one.step) < (other.time, other.step)
