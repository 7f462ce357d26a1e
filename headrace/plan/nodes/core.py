"""The logical plan: frozen, hashable nodes that compare by structure.

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
from headrace.plan.nodes.windows import EVERY, Sliding, Ticks, WindowSpec
from headrace.schema import Schema, concat_schemas

PLACED: Final = ("first", "last")
"""The aggregates that depend on the order of rows."""


class TimeKind(Enum):
    """Where the time of a row comes from."""

    EXTERNAL = "external"
    INTERNAL = "internal"
    LATENT = "latent"


@dataclass(frozen=True)
class Plan:
    """A node, with the sub-plan below it."""

    @property
    def inputs(self) -> tuple[Plan, ...]:
        """The sub-plans that this node reads, in order."""
        raise AssertionError(type(self))

    @property
    def schema(self) -> Schema:
        """The columns of this node's rows."""
        raise AssertionError(type(self))

    @property
    def is_relation(self) -> bool:
        """Whether rows have a validity interval; rows of a stream happen at an instant."""
        return any(i.is_relation for i in self.inputs)

    def with_inputs(self, inputs: tuple[Plan, ...]) -> Self:
        """The same node over other inputs."""
        raise AssertionError(type(self))

    def _repr_html_(self) -> str:
        """The plan as a notebook draws it."""
        from headrace.plan.show import plan_html

        return plan_html(self)


@dataclass(frozen=True)
class Source(Plan):
    """A named stream. `stamp` is the column, if any, with each row's time as ticks; rows that differ are
    rejected.
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
    """The input for results of another engine, which runs a part of the plan that was cut off."""

    relation: bool = False

    @property
    def is_relation(self) -> bool:
        return self.relation

    __hash__ = Source.__hash__


@dataclass(frozen=True)
class Table(Plan):
    """A named relation: all its rows are valid at every instant, or until the table is reloaded.

    `changes`: it may get other rows while queries run, from an instant on.
    """

    name: str
    columns: Schema
    changes: bool = False

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


def showing(schema: Schema, quality_column: str | None) -> Schema:
    """The columns, and the quality column if there is one."""
    return schema if quality_column is None else pa.schema([*schema, pa.field(quality_column, pa.int64())])


@dataclass(frozen=True)
class Select(Unary):
    """The rows for which the predicate is true; unknown is not true."""

    predicate: Expression


@dataclass(frozen=True)
class Project(Unary):
    """Computes new columns from each row: `columns` are (name, expression)."""

    columns: tuple[tuple[str, Expression], ...]

    @cached_property
    def _schema(self) -> Schema:
        """Cached; a plain column keeps its type without an evaluation of the expression."""
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
    """All rows of all inputs, as bags. Inputs have the same column types; names are those of the first."""

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
    """A stream through a window: a relation.

    `quality_column` names an int64 column with the window size of each row in ticks; only for `[RANGE …]`.
    """

    spec: WindowSpec
    quality_column: str | None = None

    @property
    def is_relation(self) -> bool:
        return True

    @property
    def schema(self) -> Schema:
        return showing(self.input.schema, self.quality_column)


@dataclass(frozen=True)
class Granularity(Unary):
    """Validity rounded to multiples of `grain`: start up, end down (Cammert et al., §2.2).

    Rows with an empty interval are dropped. The input's rows must have known ends (time windows, not row
    windows). With `coarsest` the grain starts at `grain`, the finest, and may be changed at run time up to
    `coarsest`. `quality_column` names an int64 column with the grain in ticks to which each row was rounded.

    Over sliding windows, `ticks` are the instants at which these are reported. The grain is a multiple of
    their slide, and validity is rounded to some of these instants.
    """

    grain: int
    coarsest: int | None = None
    quality_column: str | None = None
    ticks: Ticks = EVERY

    @property
    def origin(self) -> int:
        """Validity is rounded to multiples of the grain, plus this."""
        return self.ticks.phase - 1

    @property
    def schema(self) -> Schema:
        return showing(self.input.schema, self.quality_column)


EQUALITIES: Final = {"=": False, "<=>": True}
"""The comparisons that can be keys of a join, and whether null equals null in them."""

Side = TypeVar("Side")


class Equality(NamedTuple, Generic[Side]):
    """Two equal keys of a join; `null_safe`: null equals null (`<=>`)."""

    left: Side
    right: Side
    null_safe: bool = False

    @property
    def operator(self) -> str:
        """The SQL operator."""
        return next(op for op, null_safe in EQUALITIES.items() if null_safe == self.null_safe)

    def __str__(self) -> str:
        return f"{self.left} {self.operator} {self.right}"


@dataclass(frozen=True)
class Pairing(Plan):
    """Brings the rows of two inputs together: equal on the keys, and such that the pair passes `residual`.

    Column names of the two sides are disjoint. As in SQL, null equals nothing, except in the pairs of keys at
    positions `null_safe` (`<=>`), in which null equals null.
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
    def pair_schema(self) -> Schema:
        """The columns of both sides; raises HR-P002 if a name occurs on both."""
        clash = set(self.left.schema.names) & set(self.right.schema.names)
        if clash:
            raise PlanError(
                "HR-P002", f"both sides of a join have column {min(clash)!r}", hint="rename one side"
            )
        return concat_schemas(self.left.schema, self.right.schema)

    @property
    def schema(self) -> Schema:
        return self.pair_schema

    def with_inputs(self, inputs: tuple[Plan, ...]) -> Self:
        return replace(self, left=inputs[0], right=inputs[1])


@dataclass(frozen=True)
class Join(Pairing):
    """The pairs of rows that are valid at the same instant; a pair is valid in the intersection."""


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
        """The same call with other columns."""
        return replace(self, column=columns[0] if columns else None)

    @property
    def minds_order(self) -> bool:
        """Whether its result depends on the order of the rows."""
        return self.function in PLACED

    def __str__(self) -> str:
        return f"{self.function}({', '.join(self.columns) or '*'})"


@dataclass(frozen=True)
class Aggregate(Unary):
    """One row per group while the group has at least one valid row, at every instant.

    Keys compare as in SQL GROUP BY: null is a group. Without keys there is one group, absent while the input
    is empty.
    """

    keys: tuple[str, ...]
    calls: tuple[AggregateCall, ...]

    @cached_property
    def _schema(self) -> Schema:
        from headrace.plan.nodes.aggregates import result_type

        below = self.input.schema
        calls = [pa.field(c.name, result_type(c, below)) for c in self.calls]
        return pa.schema([*(below.field(k) for k in self.keys), *calls])

    @property
    def schema(self) -> Schema:
        return self._schema


@dataclass(frozen=True)
class SlidingAggregate(Aggregate):
    """`Aggregate` over a stream through `Sliding`, computed from panes.

    The result of window [kS, kS + T) is valid from its last instant until the next window is reported.
    `bounds` names the columns with window_start and window_end (int64 ticks), appended after the aggregates;
    None leaves them out.
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
    """Each distinct row once while at least one copy is valid; null equals null."""


@dataclass(frozen=True)
class Except(Plan):
    """`EXCEPT`: distinct rows of the left that are not in the right. With `all`: bag difference."""

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
    """Turns a relation back into a stream."""

    @property
    def is_relation(self) -> bool:
        return False


@dataclass(frozen=True)
class IStream(ToStream):
    """At τ: the bag R(τ) − R(τ − 1).

    `nets` is false if no row enters at the instant at which an equal one leaves: then no state is needed.
    """

    nets: bool = True


@dataclass(frozen=True)
class DStream(ToStream):
    """At τ: the bag R(τ − 1) − R(τ)."""


@dataclass(frozen=True)
class RStream(ToStream):
    """R(τ) at every tick τ = k·slide + phase − 1. `slide = 1` is every tick: only for short-lived rows.

    `once`: each row is valid from one tick to the next, so that no state is needed.
    """

    slide: int = 1
    phase: int = 0
    once: bool = False

    @property
    def ticks(self) -> Ticks:
        """When the relation is reported."""
        return Ticks(self.slide, self.phase)
