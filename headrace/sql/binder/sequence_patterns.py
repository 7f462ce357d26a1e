"""SEQ in the modes EVERY and DISJOINT: the steps are a pattern over one stream with the rows of all steps.

That stream has a column with the number of the branch, the keys, and the columns of all branches, which are
null in rows of other branches. Steps that read the same rows by the same keys share a branch.

`NOT c FOR 1 SECOND` is a step on rows of time: the rows of the step before it, one second later. At the
beginning of a sequence it is a condition on the first row: OVER counts no row of `c` in the second before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Final

import pyarrow as pa

from headrace.expressions import Case, Column, Expression, Literal, col, lit
from headrace.plan.nodes.core import AggregateCall, DStream, Plan, Project, Union, Window
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
from headrace.plan.nodes.over import Over, RangeFrame
from headrace.plan.nodes.sequence import StepKind
from headrace.plan.nodes.windows import Range
from headrace.sql.binder.joins import selected
from headrace.sql.binder.sequence_steps import Condition, Reading
from headrace.sql.binder.typed import conjunction
from headrace.sql.parser.clauses import Seq, SeqParts, SeqPattern, SeqRepeat
from headrace.sql.place import Code, fail

BRANCH: Final = "branch"
MOST_IN_AND: Final = 4
SKIPS: Final = {"EVERY": After.TO_NEXT_ROW, "DISJOINT": After.PAST_LAST_ROW}
FORM: Final = "write SEQ(a, NOT c, b)"
ONE_NOT: Final = "put both into one stream: NOT (SELECT … UNION ALL SELECT …) AS n"


def pattern_plan(
    steps: list[Reading], pattern: SeqPattern, mode: str, within: int | None, place: Seq
) -> Plan:
    """The matches of the steps, with the columns of single steps and the aggregates of repeated ones."""
    _check_lasting(steps, within)
    gate, pattern = _gate(steps, pattern, place)
    patterns = _Patterns(steps)
    made = patterns.of(pattern)
    if made.may_be_empty:
        hint = "at least one step must be required: write a+ in place of a*"
        fail(Code.SEQUENCE, "this sequence can match without any row", place, hint)
    if len(steps) + len(patterns.timers) > MOST_VARIABLES or states_of(made) > MOST_STATES:
        message = f"a sequence may have {MOST_VARIABLES} steps, and name {MOST_STATES} rows"
        fail(Code.SEQUENCE, message, place, "use smaller numbers in {n,m}, and fewer steps in AND")
    branches = _Branches(steps, list(patterns.timers))
    variables = (*(branches.variable(step) for step in steps if step is not gate), *branches.times())
    measures = tuple(term for step in steps for term in branches.measures(step))
    rows, opens = (branches.plan(), None) if gate is None else branches.gated(gate)
    skip = Skip(SKIPS[mode])
    match = Match(rows, branches.keys, made, variables, measures, skip, within, skips=True, gate=opens)
    return Project(match, tuple((term.name, Column(term.name)) for term in measures))


# Patterns.


@dataclass(frozen=True)
class Timer:
    """`NOT c FOR 1 SECOND`: rows as long after those of the steps `after` as step `step` is absent for."""

    step: int
    after: frozenset[int]


@dataclass(frozen=True)
class _At:
    """Where a part is: the NOT step that guards its first row, and the steps of the row before it."""

    guard: int | None = None
    before: frozenset[int] = frozenset()


class _Patterns:
    """Translates the pattern of a SEQ.

    A NOT step guards the row that comes after it. One that lasts for a time is a row of a `Timer`, and guards
    that row.
    """

    def __init__(self, steps: list[Reading]) -> None:
        self._steps = steps
        self.timers: dict[Timer, str] = {}

    def of(self, part: SeqPattern, at: _At = _At()) -> Pattern:
        """The pattern of a part."""
        if isinstance(part, SeqRepeat):
            return self._repeat(part, at)
        if not isinstance(part, SeqParts):
            return self._step(part, at)
        if part.word == ",":
            return self._chain(part.parts, at)
        if part.word == "OR":
            return Either(tuple(self.of(each, at) for each in part.parts))
        return self._and(part, at)

    def _step(self, step: int, at: _At) -> Pattern:
        if self._steps[step].lasting is not None:
            return self._time(step, at)
        if self._is_missing(step):
            hint = f"{FORM}; or SEQ(a, NOT c FOR 10 SECONDS), which is answered when the time is over"
            message = "a NOT step must be followed by another step, or last for a time"
            fail(Code.SEQUENCE, message, self._steps[step].place, hint)
        return One(self._name(step), None if at.guard is None else self._name(at.guard))

    def _time(self, step: int, at: _At) -> One:
        """The row that says that a step has been absent for its time."""
        place = self._steps[step].place
        if at.guard is not None or any(self._is_missing(each) for each in at.before):
            fail(Code.SEQUENCE, "two NOT steps after each other", place, ONE_NOT)
        timer = Timer(step, at.before)
        name = self.timers.setdefault(timer, f"{self._name(step)} for {len(self.timers)}")
        return One(name, self._name(step), self._steps[step].lasting)

    def _chain(self, parts: Sequence[SeqPattern], at: _At) -> Pattern:
        """Parts one after the other; each NOT step guards the next part."""
        made: list[Pattern] = []
        for i, part in enumerate(parts):
            if self._guards(part) and i < len(parts) - 1:
                assert isinstance(part, int)
                if at.guard is not None:
                    fail(Code.SEQUENCE, "two NOT steps before one step", self._steps[part].place, ONE_NOT)
                at = _At(part, at.before)
                continue
            made.append(self.of(part, at))
            before = _last_steps(part)
            at = _At(None, before if _must_come(part) else at.before | before)
        return made[0] if len(made) == 1 else Chain(tuple(made))

    def _and(self, part: SeqParts, at: _At) -> Pattern:
        """The parts in each order. A NOT step is absent until all others have come, or for its time."""
        place = self._steps[first_step(part)].place
        if len(part.parts) > MOST_IN_AND:
            fail(Code.SEQUENCE, f"AND takes at most {MOST_IN_AND} steps", place, "use COUNT in a window")
        missing = [each for each in part.parts if isinstance(each, int) and self._is_missing(each)]
        if not missing:
            return Either(tuple(self._chain(order, at) for order in permutations(part.parts)))
        if len(missing) > 1 or at.guard is not None:
            fail(Code.SEQUENCE, "two NOT steps at once", self._steps[missing[0]].place, ONE_NOT)
        others = [each for each in part.parts if each != missing[0]]
        if not others or not all(isinstance(each, int) for each in others):
            hint = "write NOT c FOR 10 SECONDS AND b, with single steps"
            fail(Code.SEQUENCE, "NOT in AND is beside single steps", self._steps[missing[0]].place, hint)
        if self._steps[missing[0]].lasting is None:
            orders = permutations(others)
            return Either(tuple(Chain(tuple(self._absent(missing[0], o, True))) for o in orders))
        orders = permutations(part.parts)
        return Either(tuple(self._timed(missing[0], order, at) for order in orders))

    def _absent(self, missing: int, steps: Sequence[SeqPattern], counts: bool) -> Iterator[One]:
        """Steps one after the other while another is absent."""
        for step in steps:
            assert isinstance(step, int)
            yield One(self._name(step), self._name(missing), counts=counts)

    def _timed(self, missing: int, order: Sequence[SeqPattern], at: _At) -> Pattern:
        """Steps in one order; the time of the NOT step is counted from the row before all of them."""
        where = order.index(missing)
        after = (One(self._name(each)) for each in order[where + 1 :] if isinstance(each, int))
        before = self._absent(missing, order[:where], False)
        return Chain((*before, self._time(missing, at), *after))

    def _repeat(self, part: SeqRepeat, at: _At) -> Pattern:
        """A repetition; a guard ends with its first row, so there must be one."""
        if isinstance(part.part, int) and self._is_missing(part.part):
            place = self._steps[part.part].place
            fail(Code.SEQUENCE, "a NOT step cannot be repeated", place, "write a longer time after FOR")
        inside = self.of(part.part, _At(None, at.before | _last_steps(part.part)))
        if at.guard is None:
            return Repeat(inside, part.least, part.most)
        if part.least == 0 or inside.may_be_empty:
            hint = "write + in place of *, or put NOT before a step that must come"
            message = "a NOT step must be before a step that is not optional"
            fail(Code.SEQUENCE, message, self._steps[at.guard].place, hint)
        first = self.of(part.part, at)
        if part.most == 1:
            return first
        most = None if part.most is None else part.most - 1
        return Chain((first, Repeat(inside, part.least - 1, most)))

    def _guards(self, part: SeqPattern) -> bool:
        """Whether a part is a NOT step that only the next step ends."""
        return isinstance(part, int) and self._is_missing(part) and self._steps[part].lasting is None

    def _is_missing(self, step: int) -> bool:
        return self._steps[step].kind is StepKind.MISSING

    def _name(self, step: int) -> str:
        return self._steps[step].item.name


def _check_lasting(steps: list[Reading], within: int | None) -> None:
    """Check that a time of absence ends before WITHIN is over."""
    for step in steps[1:]:
        if step.lasting is not None and within is not None and step.lasting >= within:
            hint = "WITHIN is from the first row to the last one: make it longer, or remove it"
            message = "WITHIN is over before this time of absence"
            fail(Code.SEQUENCE, message, step.place, hint)


def _gate(steps: list[Reading], pattern: SeqPattern, place: Seq) -> tuple[Reading | None, SeqPattern]:
    """The step that is absent before the first row of a match, if any, and the rest of the pattern."""
    missing = [step.kind is StepKind.MISSING for step in steps]
    if all(missing):
        fail(Code.SEQUENCE, "a sequence needs a step without NOT", place, "write SEQ(NOT c FOR 1 HOUR, a)")
    rest, gate = pattern, None
    if missing[0] and isinstance(pattern, SeqParts) and pattern.word == "," and pattern.parts[0] == 0:
        if steps[0].lasting is None:
            hint = "say for how long: SEQ(NOT c FOR 10 SECONDS, a)"
            fail(Code.SEQUENCE, "a NOT step at the beginning must last for a time", steps[0].place, hint)
        gate, parts = steps[0], pattern.parts[1:]
        rest = parts[0] if len(parts) == 1 else SeqParts(",", parts)
    first = next((each for each in sorted(_first_steps(rest)) if missing[each]), None)
    if first is not None:
        hint = "write SEQ(NOT c FOR 10 SECONDS, …), or begin with a step that comes"
        message = "a sequence cannot begin with a NOT step in AND, OR, or after a step that may be left out"
        fail(Code.SEQUENCE, message, steps[first].place, hint)
    return gate, rest


def _must_come(part: SeqPattern) -> bool:
    """Whether a part takes at least one row."""
    if isinstance(part, SeqRepeat):
        return part.least > 0 and _must_come(part.part)
    if not isinstance(part, SeqParts):
        return True
    return (all if part.word == "OR" else any)(map(_must_come, part.parts))


def _first_steps(part: SeqPattern) -> frozenset[int]:
    """The steps that may be the first of a part."""
    return _end_steps(part, 1)


def _last_steps(part: SeqPattern) -> frozenset[int]:
    """The steps that may be the last of a part."""
    return _end_steps(part, -1)


def _end_steps(part: SeqPattern, direction: int) -> frozenset[int]:
    if isinstance(part, SeqRepeat):
        return _end_steps(part.part, direction)
    if not isinstance(part, SeqParts):
        return frozenset({part})
    found = frozenset[int]()
    for each in part.parts[::direction]:
        found |= _end_steps(each, direction)
        if part.word == "," and _must_come(each):
            break
    return found


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
    """The branches of the union that has the rows of all steps, and those of timers.

    Rows of timers come before all others of their instant.
    """

    def __init__(self, steps: list[Reading], timers: list[Timer]) -> None:
        self._steps = steps
        self._timers = timers
        branches: dict[tuple[Plan, tuple[Expression, ...]], int] = {}
        self._of = [
            branches.setdefault((step.item.input.plan, tuple(step.keys)), len(branches)) for step in steps
        ]
        self._branches = list(branches)
        self.keys = tuple(f"key {i}" for i in range(len(steps[0].keys)))
        self._owner = {name.internal: step for step in steps for name in (*step.rows(), *step.told())}

    def plan(self) -> Plan:
        """The rows of all branches and timers."""
        made = [self._branch(plan, i, keys, i) for i, (plan, keys) in enumerate(self._branches)]
        for i, timer in enumerate(self._timers):
            lasting = self._steps[timer.step].lasting
            assert lasting is not None
            for each in sorted(timer.after):
                step = self._steps[each]
                made.append(self._branch(_later(step, lasting), -1 - i, tuple(step.keys), None))
        return made[0] if len(made) == 1 else Union(tuple(made))

    def _branch(self, plan: Plan, number: int, keys: tuple[Expression, ...], own: int | None) -> Plan:
        """Rows with their number and keys; all columns but those of branch `own` are null."""
        first: list[tuple[str, Expression]] = [(BRANCH, lit(number, pa.int64()))]
        columns = [
            (f"{i}.{field.name}", self._value(field, i == own))
            for i, (each, _) in enumerate(self._branches)
            for field in each.schema
        ]
        return Project(plan, (*first, *zip(self.keys, keys, strict=True), *columns))

    def times(self) -> Iterator[Variable]:
        """The variables of timers."""
        for i, timer in enumerate(self._timers):
            name = f"{self._steps[timer.step].item.name} for {i}"
            yield Variable(name, col(BRANCH).eq(lit(-1 - i, pa.int64())))

    def gated(self, gate: Reading) -> tuple[Plan, Expression]:
        """The rows of all branches, and which can be the first of a match: the gate was absent before.

        Rows of the gate at the same instant do not count: one of them may be the row itself.
        """
        assert gate.lasting is not None
        rows = self.plan()
        condition = self.variable(gate).condition
        assert condition is not None
        absent: Expression = Case(((condition, lit(1, pa.int64())),))
        rows = Project(rows, (*((name, col(name)) for name in rows.schema.names), ("gate", absent)))
        for name, ticks in (("lately", gate.lasting - 1), ("at once", 0)):
            rows = Over(rows, self.keys, RangeFrame(ticks), (AggregateCall(name, "count", "gate"),))
        return rows, col("lately").eq(col("at once"))

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
            offset = step.offsets.get(call.name, 0)
            return Pick(call.name, columns[0], (step.item.name,), call.function == "last", offset)
        return Fold(call.over(columns), (step.item.name,))

    def measures(self, step: Reading) -> list[Term]:
        """What SELECT may read of a step."""
        if step.kind is StepKind.MISSING:
            return []
        if step.kind is StepKind.REPEATED:
            return [self._fold(step, call) for call, _ in step.folds.values()]
        return [self._term(named.internal) for named in step.rows()]


def _later(step: Reading, ticks: int) -> Plan:
    """The rows of a step, so many ticks later. They leave a window; no equal row enters it at that time."""
    if step.item.input.time_column is None:
        name = step.item.of or step.item.name
        hint = f"declare it: CREATE STREAM {name} (…, ts TIMESTAMP) TIME ts"
        message = f"NOT … FOR needs the TIME column of the step before it, and {name} has none"
        fail(Code.SEQUENCE, message, step.place, hint)
    back = {named.internal: named.column for named in step.rows()}
    chosen = selected(step.item.input.plan, [each.rename(back) for each in step.own])
    return DStream(Window(chosen, Range(ticks)))
