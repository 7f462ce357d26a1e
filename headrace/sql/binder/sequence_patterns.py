"""SEQ in the modes EVERY and DISJOINT: the steps are a pattern over one stream with the rows of all steps.

That stream has a column with the number of the branch, the keys, and the columns of all branches, which are
null in rows of other branches. Steps that read the same rows by the same keys share a branch.
"""

from __future__ import annotations

from itertools import permutations
from typing import Final

import pyarrow as pa

from headrace.expressions import Column, Expression, Literal, col, lit
from headrace.plan.nodes.core import AggregateCall, Plan, Project, Union
from headrace.plan.nodes.match import (
    MOST_STATES,
    MOST_VARIABLES,
    After,
    Chain,
    Either,
    Fold,
    Match,
    One,
    Pattern,
    Pick,
    Repeat,
    Skip,
    Term,
    Variable,
    states_of,
)
from headrace.plan.nodes.sequence import StepKind
from headrace.sql.binder.sequence_steps import Condition, Reading
from headrace.sql.binder.typed import conjunction
from headrace.sql.parser.clauses import Seq, SeqParts, SeqPattern, SeqRepeat
from headrace.sql.place import Code, fail

BRANCH: Final = "branch"
MOST_IN_AND: Final = 4
SKIPS: Final = {"EVERY": After.TO_NEXT_ROW, "DISJOINT": After.PAST_LAST_ROW}


def pattern_plan(
    steps: list[Reading], pattern: SeqPattern, mode: str, within: int | None, place: Seq
) -> Plan:
    """The matches of the steps, with the columns of single steps and the aggregates of repeated ones."""
    made = _Patterns(steps).of(pattern)
    if made.may_be_empty:
        hint = "at least one step must be required: write a+ in place of a*"
        fail(Code.SEQUENCE, "this sequence can match without any row", place, hint)
    if len(steps) > MOST_VARIABLES or states_of(made) > MOST_STATES:
        message = f"a sequence may have {MOST_VARIABLES} steps, and name {MOST_STATES} rows"
        fail(Code.SEQUENCE, message, place, "use smaller numbers in {n,m}, and fewer steps in AND")
    branches = _Branches(steps)
    variables = tuple(branches.variable(step) for step in steps)
    measures = tuple(term for step in steps for term in branches.measures(step))
    skip = Skip(SKIPS[mode])
    match = Match(branches.plan(), branches.keys, made, variables, measures, skip, within, skips=True)
    return Project(match, tuple((term.name, Column(term.name)) for term in measures))


# Patterns.


class _Patterns:
    """Translates the pattern of a SEQ. A NOT step guards the row that comes after it."""

    def __init__(self, steps: list[Reading]) -> None:
        self._steps = steps

    def of(self, part: SeqPattern, guard: int | None = None) -> Pattern:
        """The pattern of a part; no row of step `guard` comes before its first row."""
        if isinstance(part, SeqRepeat):
            return self._repeat(part, guard)
        if not isinstance(part, SeqParts):
            if self._is_missing(part):
                message = "a NOT step must be followed by another step"
                fail(Code.SEQUENCE, message, self._steps[part].place, "write SEQ(a, NOT c, b)")
            return One(self._name(part), None if guard is None else self._name(guard))
        if part.word == ",":
            return self._chain(part.parts, guard)
        if part.word == "OR":
            return Either(tuple(self.of(each, guard) for each in part.parts))
        if len(part.parts) > MOST_IN_AND:
            place = self._steps[first_step(part)].place
            fail(Code.SEQUENCE, f"AND takes at most {MOST_IN_AND} steps", place, "use COUNT in a window")
        return Either(tuple(self._chain(order, guard) for order in permutations(part.parts)))

    def _chain(self, parts: tuple[SeqPattern, ...], guard: int | None) -> Pattern:
        """Parts one after the other; each NOT step guards the next part."""
        made: list[Pattern] = []
        for i, part in enumerate(parts):
            if isinstance(part, int) and self._is_missing(part) and i < len(parts) - 1:
                place = self._steps[part].place
                if part == 0:
                    fail(Code.SEQUENCE, "a NOT step cannot be the first", place, "write SEQ(a, NOT c, b)")
                if guard is not None:
                    hint = "put both into one stream: NOT (SELECT … UNION ALL SELECT …) AS n"
                    fail(Code.SEQUENCE, "two NOT steps before one step", place, hint)
                guard = part
                continue
            made.append(self.of(part, guard))
            guard = None
        return made[0] if len(made) == 1 else Chain(tuple(made))

    def _repeat(self, part: SeqRepeat, guard: int | None) -> Pattern:
        """A repetition; a guard ends with its first row, so there must be one."""
        inside = self.of(part.part)
        if guard is None:
            return Repeat(inside, part.least, part.most)
        if part.least == 0 or inside.may_be_empty:
            hint = "write + in place of *, or put NOT before a step that must come"
            message = "a NOT step must be before a step that is not optional"
            fail(Code.SEQUENCE, message, self._steps[guard].place, hint)
        first = self.of(part.part, guard)
        if part.most == 1:
            return first
        most = None if part.most is None else part.most - 1
        return Chain((first, Repeat(inside, part.least - 1, most)))

    def _is_missing(self, step: int) -> bool:
        return self._steps[step].kind is StepKind.MISSING

    def _name(self, step: int) -> str:
        return self._steps[step].item.name


def first_step(part: SeqPattern) -> int:
    """The number of the first step that is written in a part."""
    if isinstance(part, SeqParts):
        return first_step(part.parts[0])
    return first_step(part.part) if isinstance(part, SeqRepeat) else part


def _steps_of(part: SeqPattern) -> set[int]:
    """The steps of a part."""
    if isinstance(part, SeqParts):
        return set[int]().union(*map(_steps_of, part.parts))
    return _steps_of(part.part) if isinstance(part, SeqRepeat) else {part}


def _apart(part: SeqPattern, read: set[int]) -> bool:
    """Whether some of the steps are in different parts of one AND or OR."""
    if isinstance(part, SeqRepeat):
        return _apart(part.part, read)
    if not isinstance(part, SeqParts):
        return False
    split = part.word != "," and sum(bool(read & _steps_of(each)) for each in part.parts) > 1
    return split or any(_apart(each, read) for each in part.parts)


# Conditions.


def place_in_pattern(steps: list[Reading], pattern: SeqPattern, condition: Condition) -> None:
    """Give a condition to the step that it filters, or to the last of the steps that it compares."""
    read = condition.rows | condition.runs
    if len(read) == 1 and not condition.runs:
        steps[min(read)].own.append(condition.expression)
        return
    last = max(read, default=next(i for i, s in enumerate(steps) if s.kind is not StepKind.MISSING))
    many = [i for i in condition.rows - {last} if steps[i].kind is StepKind.REPEATED]
    if many:
        name = steps[many[0]].item.name
        hint = f"write first({name}.…) or last({name}.…)"
        fail(Code.SEQUENCE_CONDITION, f"{name} matches several rows", condition.place, hint)
    missing = [i for i in condition.rows if steps[i].kind is StepKind.MISSING]
    if missing and missing != [last]:
        name = steps[missing[0]].item.name
        hint = "compare it only with steps before it"
        message = f"the NOT step {name} cannot be compared with a later step"
        fail(Code.SEQUENCE_CONDITION, message, condition.place, hint)
    if _apart(pattern, read):
        hint = "compare each of them with a step before"
        message = "steps of one AND or OR cannot be compared with each other"
        fail(Code.SEQUENCE_CONDITION, message, condition.place, hint)
    steps[last].conditions.append(condition.expression)


# The stream with the rows of all steps.


class _Branches:
    """The branches of the union that has the rows of all steps."""

    def __init__(self, steps: list[Reading]) -> None:
        self._steps = steps
        branches: dict[tuple[Plan, tuple[Expression, ...]], int] = {}
        self._of = [
            branches.setdefault((step.item.input.plan, tuple(step.keys)), len(branches)) for step in steps
        ]
        self._branches = list(branches)
        self.keys = tuple(f"key {i}" for i in range(len(steps[0].keys)))
        self._owner = {name.internal: step for step in steps for name in (*step.rows(), *step.told())}

    def plan(self) -> Plan:
        """The rows of all branches."""
        columns = [
            (f"{i}.{field.name}", i, field)
            for i, (plan, _) in enumerate(self._branches)
            for field in plan.schema
        ]
        made = []
        for i, (plan, keys) in enumerate(self._branches):
            own = [(name, self._value(field, i == branch)) for name, branch, field in columns]
            first: list[tuple[str, Expression]] = [(BRANCH, lit(i, pa.int64()))]
            made.append(Project(plan, (*first, *zip(self.keys, keys, strict=True), *own)))
        return made[0] if len(made) == 1 else Union(tuple(made))

    @staticmethod
    def _value(field: pa.Field, present: bool) -> Expression:
        return col(field.name) if present else Literal(None, field.type)

    def _column(self, step: Reading, internal: str) -> str:
        """The column of the union that holds a column of a step."""
        names = {named.internal: named.column for named in step.rows()}
        return f"{self._of[self._steps.index(step)]}.{names[internal]}"

    def variable(self, step: Reading) -> Variable:
        """The variable of a step: rows of its branch that meet its own conditions and the others."""
        own = {named.internal: self._column(step, named.internal) for named in step.rows()}
        branch = col(BRANCH).eq(lit(self._of[self._steps.index(step)], pa.int64()))
        condition = conjunction([branch, *(each.rename(own) for each in step.own)])
        test = conjunction([each.rename(own) for each in step.conditions])
        read = sorted({name for each in step.conditions for name in each.columns()} - set(own))
        return Variable(step.item.name, condition, test, tuple(self._term(name) for name in read))

    def _term(self, internal: str) -> Term:
        """A column of a step before, or an aggregate of a repeated one."""
        step = self._owner[internal]
        told = {call.name: call for call, _ in step.folds.values()}
        if internal in told:
            return self._fold(step, told[internal])
        return Pick(internal, self._column(step, internal), (step.item.name,))

    def _fold(self, step: Reading, call: AggregateCall) -> Term:
        columns = [self._column(step, name) for name in call.columns]
        if call.function in ("first", "last"):
            return Pick(call.name, columns[0], (step.item.name,), call.function == "last")
        return Fold(call.over(columns), (step.item.name,))

    def measures(self, step: Reading) -> list[Term]:
        """What SELECT may read of a step."""
        if step.kind is StepKind.MISSING:
            return []
        if step.kind is StepKind.REPEATED:
            return [self._fold(step, call) for call, _ in step.folds.values()]
        return [self._term(named.internal) for named in step.rows()]
