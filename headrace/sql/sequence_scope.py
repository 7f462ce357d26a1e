"""Which column a name means where FROM is a sequence: each step qualifies its own columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NoReturn

import pyarrow as pa
from sqlglot import exp

from headrace.plan.sequence import StepKind
from headrace.schema import DataType, Schema
from headrace.sql.scope import Found, Item, Scope

HINTS = {
    StepKind.REPEATED: "{0} stands for many rows: write first({0}.{1}), last({0}.{1}) or count({0}.{1})",
    StepKind.MISSING: "{0} is the step that is missing: it has no rows to show",
}


@dataclass(frozen=True)
class Named:
    """A column as the text calls it, under its internal name."""

    column: str
    internal: str
    type: DataType


@dataclass(frozen=True)
class StepNames:
    """What a step is called, and the columns that may be read of it."""

    name: str
    of: str
    kind: StepKind
    columns: tuple[Named, ...]


@dataclass(frozen=True)
class SequenceScope(Scope):
    """One item, the sequence, whose columns are qualified by the names of its steps."""

    items: Sequence[Item]
    steps: tuple[StepNames, ...] = ()

    @cached_property
    def columns(self) -> list[list[Found]]:
        return [[Found(i, c.column, c.internal) for c in s.columns] for i, s in enumerate(self.steps)]

    @cached_property
    def schema(self) -> Schema:
        own = [pa.field(c.internal, c.type) for step in self.steps for c in step.columns]
        return pa.schema([*own, *self._told])

    @property
    def labels(self) -> Sequence[tuple[str, str]]:
        return [(step.name, step.of) for step in self.steps]

    def unknown(self, node: exp.Column, hint: str = "") -> NoReturn:
        table = node.args.get("table")
        step = self.steps[self.item(table)] if table else None
        told = HINTS.get(step.kind, "").format(step.name, node.name) if step else ""
        super().unknown(node, hint or told)
