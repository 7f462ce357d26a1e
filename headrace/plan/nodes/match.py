"""MATCH_RECOGNIZE: rows of one stream that follow each other as a pattern says (SQL:2016, as Flink has it).

*Order.* The rows of a partition are taken in order of time, simultaneous ones as
`headrace.plan.analysis.ordering` says.

*Match.* From a row, the pattern is tried in order of preference: the left of an alternation first, one more
repetition before none, or the other way round if the quantifier is reluctant. A row becomes a row of a
variable if the variable's condition holds for it. An optional repetition takes at least one row. The first
way that succeeds is the match that begins at the row. With `within`, rows that are so many ticks after the
first one do not exist for this match.

*Skipping.* If the pattern `skips`, its variables take the first rows that fit, and others may be in between:
a variable takes the first row after the one before for which its condition holds. If a row of the variable
`unless` comes first, or is that row, this way fails. Of the ways that succeed, the match is the one
that ends first; of those, the preferred one.

*Lapse.* A row with `after` comes exactly so many ticks after the last row before it that `counts`. So a
delayed copy of a row says that the time has passed.

*Which matches.* The search begins at the first row of the partition. A match begins only at a row for which
the `gate` holds. After a row from which there is no match the search goes on at the next one, after a match
where `skip` says. A match is a row at the time of its last row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Final

import pyarrow as pa

from headrace.expressions import Expression
from headrace.plan.nodes.aggregates import result_type
from headrace.plan.nodes.core import AggregateCall, Unary
from headrace.schema import DataType, Schema

MOST_VARIABLES: Final = 62
MOST_STATES: Final = 1000
"""The most variables of a pattern, and the most rows that it names once `{n,m}` is written out."""

# Patterns.


@dataclass(frozen=True)
class One:
    """One row of a variable, in a pattern that skips rows before one of `unless` comes.

    `after` and `counts` are its lapse.
    """

    variable: str
    unless: str | None = None
    after: int | None = None
    counts: bool = True

    @property
    def parts(self) -> tuple[Pattern, ...]:
        return ()

    @property
    def may_be_empty(self) -> bool:
        """Whether it can match without a row."""
        return False

    def __str__(self) -> str:
        found = self.variable if self.unless is None else f"not {self.unless} {self.variable}"
        lapse = "" if self.after is None else f" after {self.after}"
        return found + lapse + ("" if self.counts else " at any time")


@dataclass(frozen=True)
class Chain:
    """One part after the other."""

    parts: tuple[Pattern, ...]

    @property
    def may_be_empty(self) -> bool:
        """Whether it can match without a row."""
        return all(part.may_be_empty for part in self.parts)

    def __str__(self) -> str:
        return " ".join(f"({part})" if isinstance(part, Either) else str(part) for part in self.parts)


@dataclass(frozen=True)
class Either:
    """One of the parts; earlier ones are preferred."""

    parts: tuple[Pattern, ...]

    @property
    def may_be_empty(self) -> bool:
        """Whether it can match without a row."""
        return any(part.may_be_empty for part in self.parts)

    def __str__(self) -> str:
        return " | ".join(map(str, self.parts))


@dataclass(frozen=True)
class Repeat:
    """`part{least,most}`: as often as possible, or as rarely as possible if it is not greedy."""

    part: Pattern
    least: int
    most: int | None
    greedy: bool = True

    @property
    def parts(self) -> tuple[Pattern, ...]:
        return (self.part,)

    @property
    def may_be_empty(self) -> bool:
        """Whether it can match without a row."""
        return self.least == 0 or self.part.may_be_empty

    def __str__(self) -> str:
        part = str(self.part) if isinstance(self.part, One) else f"({self.part})"
        counts = str(self.least) if self.most == self.least else f"{self.least},{self.most or ''}"
        return f"{part}{SHORT.get((self.least, self.most)) or f'{{{counts}}}'}{'' if self.greedy else '?'}"


SHORT: Final = {(0, None): "*", (1, None): "+", (0, 1): "?"}
Pattern = One | Chain | Either | Repeat


def variables_of(pattern: Pattern) -> Iterator[str]:
    """The variables of a pattern, from left to right; one that is written twice comes twice."""
    if isinstance(pattern, One):
        yield pattern.variable
        if pattern.unless is not None:
            yield pattern.unless
    for part in pattern.parts:
        yield from variables_of(part)


def lapses_of(pattern: Pattern) -> Iterator[int]:
    """The ticks that rows of a pattern wait for."""
    if isinstance(pattern, One) and pattern.after is not None:
        yield pattern.after
    for part in pattern.parts:
        yield from lapses_of(part)


def states_of(pattern: Pattern) -> int:
    """How many rows a pattern names once its numbers of repetitions are written out."""
    if isinstance(pattern, One):
        return 1
    inside = sum(map(states_of, pattern.parts))
    if not isinstance(pattern, Repeat):
        return inside
    return inside * (pattern.least + 1 if pattern.most is None else pattern.most)


# Values over the rows of a match.


@dataclass(frozen=True)
class Pick:
    """`FIRST(A.c, offset)` or `LAST(A.c, offset)`: a column of one row; null if there is no such row.

    The row is the one `offset` after the first, or before the last, of the rows of some variables; without
    variables, of all rows.
    """

    name: str
    column: str
    variables: tuple[str, ...] = ()
    last: bool = True
    offset: int = 0

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it reads."""
        return (self.column,)

    def type(self, below: Schema) -> DataType:
        """The type of the value."""
        return below.field(self.column).type

    def __str__(self) -> str:
        more = f", {self.offset}" if self.offset else ""
        return f"{'last' if self.last else 'first'}({_of(self.variables)}{self.column}{more})"


@dataclass(frozen=True)
class Fold:
    """An aggregate over the rows of some variables; without variables, over all rows."""

    call: AggregateCall
    variables: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the column."""
        return self.call.name

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it reads."""
        return self.call.columns

    def type(self, below: Schema) -> DataType:
        """The type of the value."""
        return result_type(self.call, below)

    def __str__(self) -> str:
        columns = [f"{_of(self.variables)}{column}" for column in self.call.columns or ("*",)]
        return f"{self.call.function}({', '.join(columns)})"


Term = Pick | Fold


def _of(variables: tuple[str, ...]) -> str:
    return f"{'/'.join(variables)}." if variables else ""


@dataclass(frozen=True)
class Variable:
    """A variable of the pattern, and the conditions on its rows; both must hold.

    `condition` reads the row alone. `test` also reads `terms`, over the rows matched so far and this one.
    """

    name: str
    condition: Expression | None = None
    test: Expression | None = None
    terms: tuple[Term, ...] = ()

    def __str__(self) -> str:
        conditions = [str(each) for each in (self.condition, self.test) if each is not None]
        return f"{self.name} AS {' and '.join(conditions)}"


class After(Enum):
    """Where the search goes on after a match."""

    PAST_LAST_ROW = "past last row"
    TO_NEXT_ROW = "to next row"
    TO_FIRST = "to first"
    TO_LAST = "to last"


@dataclass(frozen=True)
class Skip:
    """AFTER MATCH SKIP. TO FIRST and TO LAST go to a row of `variable`.

    They go to the next row if the variable has no row, or if that would be no progress.
    """

    after: After = After.PAST_LAST_ROW
    variable: str | None = None

    def __str__(self) -> str:
        return f"skip {self.after.value}{f' {self.variable}' if self.variable else ''}"


@dataclass(frozen=True)
class Match(Unary):
    """A stream of matches: the partition's keys, then the measures."""

    keys: tuple[str, ...]
    pattern: Pattern
    variables: tuple[Variable, ...]
    measures: tuple[Term, ...]
    skip: Skip = field(default_factory=Skip)
    within: int | None = None
    skips: bool = False
    gate: Expression | None = None

    @cached_property
    def _schema(self) -> Schema:
        below = self.input.schema
        keys = [below.field(key) for key in self.keys]
        return pa.schema([*keys, *(pa.field(term.name, term.type(below)) for term in self.measures)])

    @property
    def schema(self) -> Schema:
        return self._schema

    @property
    def is_relation(self) -> bool:
        return False

    def seen_by(self, variable: Variable) -> Schema:
        """The columns that the test of a variable can read."""
        below = self.input.schema
        return pa.schema([*below, *(pa.field(term.name, term.type(below)) for term in variable.terms)])

    @property
    def read(self) -> frozenset[str]:
        """The columns of the input that it reads."""
        found = set(self.keys)
        for term in self.terms:
            found.update(term.columns)
        names = set(self.input.schema.names)
        found |= self.gate.columns() if self.gate is not None else set()
        for variable in self.variables:
            for condition in (variable.condition, variable.test):
                found |= (condition.columns() & names) if condition is not None else set()
        return frozenset(found)

    @property
    def terms(self) -> tuple[Term, ...]:
        """All values over the rows of a match."""
        return (*self.measures, *(term for variable in self.variables for term in variable.terms))
