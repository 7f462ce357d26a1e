"""The logical plan: frozen, hashable specifications, equal when they mean the same by structure.

A node denotes either a *stream* (rows that happen at an instant) or a *relation* (rows valid over
intervals). `Window` turns a stream into a relation; `IStream`, `DStream`, `RStream` turn it back.
`headrace.testing.oracle` defines what each node means; the engine must agree with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Final, Generic, NamedTuple, Self, TypeVar

import pyarrow as pa

from headrace.errors import PlanError
from headrace.expressions import Column, Expression
from headrace.plan.windows import Sliding, Ticks, WindowSpec
from headrace.schema import Schema, concat_schemas

PLACED: Final = ("first", "last")
"""The aggregates that go by the order of rows."""


class TimeKind(Enum):
    """Where a row's time comes from (`design.md` §2)."""

    EXTERNAL = "external"
    INTERNAL = "internal"
    LATENT = "latent"


@dataclass(frozen=True)
class Plan:
    """A node and, through it, the whole sub-plan below."""

    @property
    def inputs(self) -> tuple[Plan, ...]:
        """The sub-plans this node reads, in order."""
        raise AssertionError(type(self))

    @property
    def schema(self) -> Schema:
        """The columns of this node's rows."""
        raise AssertionError(type(self))

    @property
    def is_relation(self) -> bool:
        """Whether rows have a validity interval; a stream's rows are instants."""
        return any(i.is_relation for i in self.inputs)

    def with_inputs(self, inputs: tuple[Plan, ...]) -> Self:
        """The same node over other inputs."""
        raise AssertionError(type(self))


@dataclass(frozen=True)
class Source(Plan):
    """A named stream. `stamp` is the column, if one, that holds each row's time as ticks: a row in which it
    does not is rejected.
    """

    name: str
    columns: Schema
    time: TimeKind = TimeKind.EXTERNAL
    stamp: str | None = None

    @property
    def inputs(self) -> tuple[Plan, ...]:
        return ()

    @property
    def schema(self) -> Schema:
        return self.columns

    def with_inputs(self, inputs: tuple[Plan, ...]) -> Self:
        return self

    def __hash__(self) -> int:
        return hash((self.name, tuple(self.columns.names), self.time))


@dataclass(frozen=True)
class Inlet(Source):
    """Where what another engine answered comes in: a part of a plan that was cut off and runs elsewhere."""

    relation: bool = False

    @property
    def is_relation(self) -> bool:
        return self.relation

    __hash__ = Source.__hash__


@dataclass(frozen=True)
class Table(Plan):
    """A named relation that never changes: each of its rows is valid at every instant."""

    name: str
    columns: Schema

    @property
    def inputs(self) -> tuple[Plan, ...]:
        return ()

    @property
    def schema(self) -> Schema:
        return self.columns

    @property
    def is_relation(self) -> bool:
        return True

    def with_inputs(self, inputs: tuple[Plan, ...]) -> Self:
        return self

    def __hash__(self) -> int:
        return hash(("table", self.name, tuple(self.columns.names)))


@dataclass(frozen=True)
class Unary(Plan):
    """A node with one input; by default it keeps the input's schema."""

    input: Plan

    @property
    def inputs(self) -> tuple[Plan, ...]:
        return (self.input,)

    @property
    def schema(self) -> Schema:
        return self.input.schema

    def with_inputs(self, inputs: tuple[Plan, ...]) -> Self:
        return replace(self, input=inputs[0])


def showing(schema: Schema, shown: str | None) -> Schema:
    """The columns with one more in which the quality is told, if it is."""
    return schema if shown is None else pa.schema([*schema, pa.field(shown, pa.int64())])


@dataclass(frozen=True)
class Select(Unary):
    """Rows for which the predicate is true; unknown is not true."""

    predicate: Expression


@dataclass(frozen=True)
class Project(Unary):
    """Each row computed anew: `columns` are (name, expression)."""

    columns: tuple[tuple[str, Expression], ...]

    @cached_property
    def _schema(self) -> Schema:
        below = self.input.schema
        names = below.names
        types = dict(zip(names, below.types, strict=True)) if len(set(names)) == len(names) else {}
        known = [types.get(e.name) if isinstance(e, Column) else None for _, e in self.columns]
        pairs = zip(self.columns, known, strict=True)
        return pa.schema([pa.field(name, of or expression.type(below)) for (name, expression), of in pairs])

    @property
    def schema(self) -> Schema:
        return self._schema


@dataclass(frozen=True)
class Union(Plan):
    """All rows of all inputs, as bags. Inputs have the same column types; names are the first's."""

    branches: tuple[Plan, ...]

    @property
    def inputs(self) -> tuple[Plan, ...]:
        return self.branches

    @property
    def schema(self) -> Schema:
        return self.branches[0].schema

    def with_inputs(self, inputs: tuple[Plan, ...]) -> Self:
        return replace(self, branches=inputs)


@dataclass(frozen=True)
class Window(Unary):
    """A stream seen through a window: a relation.

    `shown` names a column, int64 ticks, that tells the size which each row was given; `[RANGE …]` has one.
    """

    spec: WindowSpec
    shown: str | None = None

    @property
    def is_relation(self) -> bool:
        return True

    @property
    def schema(self) -> Schema:
        return showing(self.input.schema, self.shown)


@dataclass(frozen=True)
class Granularity(Unary):
    """Validity rounded to multiples of `grain`: start up, end down (Cammert et al., §2.2).

    A row left empty vanishes. The input's rows must have known ends (time windows, not row windows). With
    `coarsest` the grain starts at `grain`, the finest, and may be changed while it runs, never beyond it.
    `shown` names a column, int64 ticks, that tells the grain to which each row was rounded.
    """

    grain: int
    coarsest: int | None = None
    shown: str | None = None

    @property
    def schema(self) -> Schema:
        return showing(self.input.schema, self.shown)


EQUALITIES: Final = {"=": False, "<=>": True}
"""The comparisons that can be keys of a join, and whether null equals null in them."""

Side = TypeVar("Side")


class Equality(NamedTuple, Generic[Side]):
    """Two keys that a join says are equal; `null_safe`: null equals null (`<=>`)."""

    left: Side
    right: Side
    null_safe: bool = False

    @property
    def operator(self) -> str:
        """As SQL writes it."""
        return next(op for op, null_safe in EQUALITIES.items() if null_safe == self.null_safe)

    def __str__(self) -> str:
        return f"{self.left} {self.operator} {self.right}"


@dataclass(frozen=True)
class Join(Plan):
    """Pairs valid at the same instant, equal on the keys, and passing `residual`.

    The pair is valid in the intersection. Column names of the two sides are disjoint. As in SQL, null equals
    nothing, except in the pairs of keys at the places `null_safe` (`<=>`): there null equals null.
    """

    left: Plan
    right: Plan
    left_keys: tuple[str, ...] = ()
    right_keys: tuple[str, ...] = ()
    residual: Expression | None = None
    null_safe: tuple[int, ...] = ()

    @property
    def inputs(self) -> tuple[Plan, ...]:
        return (self.left, self.right)

    @property
    def equalities(self) -> list[Equality[str]]:
        """The pairs of keys."""
        pairs = zip(self.left_keys, self.right_keys, strict=True)
        return [Equality(a, b, i in self.null_safe) for i, (a, b) in enumerate(pairs)]

    @cached_property
    def _schema(self) -> Schema:
        clash = set(self.left.schema.names) & set(self.right.schema.names)
        if clash:
            raise PlanError(
                "HR-P002", f"both sides of a join have column {min(clash)!r}", hint="rename one side"
            )
        return concat_schemas(self.left.schema, self.right.schema)

    @property
    def schema(self) -> Schema:
        return self._schema

    def with_inputs(self, inputs: tuple[Plan, ...]) -> Self:
        return replace(self, left=inputs[0], right=inputs[1])


def joined(
    left: Plan, right: Plan, keys: Sequence[Equality[str]], residual: Expression | None = None
) -> Join:
    """The join of two relations on pairs of their columns."""
    safe = tuple(i for i, each in enumerate(keys) if each.null_safe)
    return Join(left, right, tuple(e.left for e in keys), tuple(e.right for e in keys), residual, safe)


@dataclass(frozen=True)
class AggregateCall:
    """`function(column) AS name`; `column` is None for `count(*)`."""

    name: str
    function: str
    column: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it reads."""
        return () if self.column is None else (self.column,)

    def over(self, columns: Sequence[str]) -> Self:
        """The same call of other columns."""
        return replace(self, column=columns[0] if columns else None)

    @property
    def minds_order(self) -> bool:
        """Whether its value depends on the order of the rows."""
        return self.function in PLACED

    def __str__(self) -> str:
        return f"{self.function}({', '.join(self.columns) or '*'})"


@dataclass(frozen=True)
class Aggregate(Unary):
    """One row per group while the group has at least one valid row, at every instant.

    Keys compare as SQL GROUP BY: null is a group. No keys: one group, absent while the input is empty.
    """

    keys: tuple[str, ...]
    calls: tuple[AggregateCall, ...]

    @cached_property
    def _schema(self) -> Schema:
        from headrace.plan.aggregates import result_type

        below = self.input.schema
        calls = [pa.field(c.name, result_type(c, below)) for c in self.calls]
        return pa.schema([*(below.field(k) for k in self.keys), *calls])

    @property
    def schema(self) -> Schema:
        return self._schema


@dataclass(frozen=True)
class SlidingAggregate(Aggregate):
    """`Aggregate` over a stream seen through `Sliding`, computed from panes.

    The answer of window [kS, kS + T) is valid from its last instant until the next window is answered.
    `bounds` names the columns that show window_start and window_end (int64 ticks), appended after the
    aggregates; None leaves them out.
    """

    window: Sliding
    bounds: tuple[str, str] | None = None

    @property
    def schema(self) -> Schema:
        ends = [pa.field(name, pa.int64()) for name in self.bounds or ()]
        return pa.schema([*super().schema, *ends])

    @property
    def is_relation(self) -> bool:
        return True


@dataclass(frozen=True)
class Distinct(Unary):
    """Each row content once while at least one copy is valid; null equals null."""


@dataclass(frozen=True)
class Except(Plan):
    """`EXCEPT`: contents of the left, once, that the right has not. With `all`: bag difference."""

    left: Plan
    right: Plan
    all: bool = False

    @property
    def inputs(self) -> tuple[Plan, ...]:
        return (self.left, self.right)

    @property
    def schema(self) -> Schema:
        return self.left.schema

    def with_inputs(self, inputs: tuple[Plan, ...]) -> Self:
        return replace(self, left=inputs[0], right=inputs[1])


@dataclass(frozen=True)
class ToStream(Unary):
    """What turns a relation back into a stream."""

    @property
    def is_relation(self) -> bool:
        return False


@dataclass(frozen=True)
class IStream(ToStream):
    """At τ: the bag R(τ) − R(τ − 1).

    `nets` is false where no row comes at the instant at which an equal one goes: nothing need be remembered.
    """

    nets: bool = True


@dataclass(frozen=True)
class DStream(ToStream):
    """At τ: the bag R(τ − 1) − R(τ)."""


@dataclass(frozen=True)
class RStream(ToStream):
    """R(τ) at every tick τ = k·slide + phase − 1. `slide = 1` is every tick: only for rows valid for a few.

    `once`: each row is valid from one tick until the next, so that nothing need be remembered.
    """

    slide: int = 1
    phase: int = 0
    once: bool = False

    @property
    def ticks(self) -> Ticks:
        """When the relation is reported."""
        return Ticks(self.slide, self.phase)
