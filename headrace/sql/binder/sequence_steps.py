"""The steps of a SEQ while they are being read, and the conditions of WHERE that compare them."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
from sqlglot import exp

from headrace.expressions import Expression
from headrace.plan.nodes.core import AggregateCall
from headrace.plan.nodes.sequence import StepKind
from headrace.schema import DataType
from headrace.sql.binder.scope import Item, Named, StepNames


@dataclass
class Reading:
    """A step while it is being read: its FROM item, its aggregates and keys, and its conditions."""

    item: Item
    kind: StepKind
    place: exp.Expr
    lasting: int | None = None
    """How many ticks a NOT step is absent for; None: until the next step."""
    own: list[Expression] = field(default_factory=list)
    conditions: list[Expression] = field(default_factory=list)
    folds: dict[str, tuple[AggregateCall, DataType]] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)
    """By aggregate `first(x.c, 2)` or `last(x.c, 2)`, how far its row is from the first or last one."""
    keys: list[Expression] = field(default_factory=list)

    @property
    def schema(self) -> pa.Schema:
        return self.item.input.plan.schema

    def internal(self, column: str) -> str:
        """The name of a column inside the sequence."""
        return f"{self.item.name}.{column}"

    def rows(self) -> tuple[Named, ...]:
        """The columns of the step's rows."""
        return tuple(Named(f.name, self.internal(f.name), f.type) for f in self.schema)

    def told(self) -> tuple[Named, ...]:
        """The aggregates of a repeated step, as columns."""
        return tuple(Named(name, call.name, of) for name, (call, of) in self.folds.items())

    def names(self, columns: tuple[Named, ...]) -> StepNames:
        """The step as `SequenceScope` sees it, with these columns."""
        return StepNames(self.item.name, self.item.of, self.kind, columns)


@dataclass(frozen=True)
class Condition:
    """A conjunct, and the steps whose rows, or whose aggregates (`runs`), it reads."""

    expression: Expression
    rows: set[int]
    runs: set[int]
    place: exp.Expr
