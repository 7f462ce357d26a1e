"""Resolves column names: the FROM items of one SELECT and their names.

Case does not matter unless it decides between two columns. If there are several items, each column has an
internal name `item.column`, so that the two sides of a join never share a name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NoReturn, Protocol

import pyarrow as pa
from sqlglot import exp

from headrace.expressions import Expression
from headrace.plan.nodes.core import Plan, Window
from headrace.plan.nodes.outer_join import JoinKind
from headrace.plan.nodes.sequence import StepKind
from headrace.plan.nodes.windows import Unbounded, WindowSpec
from headrace.schema import DataType, Schema
from headrace.sql.catalog import Relation
from headrace.sql.parser.parse import check_read
from headrace.sql.place import Code, fail, nearest


@dataclass(frozen=True)
class Item:
    """A FROM item: its input, its window, and its name in this query.

    `of` is the name of the stream or view behind an alias; `size` is the column with the window size of each
    row, if it is requested.
    """

    name: str
    of: str
    input: Relation
    window: WindowSpec | None
    size: str | None = None
    unnested: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """For each UNNEST of this item and each table looked up for its rows, its name and its columns."""
    written: tuple[tuple[str, str], ...] = ()
    """Columns that a query knows under another name than the plan."""
    hidden: tuple[str, ...] = ()
    """Columns that a star leaves out: the bounds of windows."""

    def owner(self, column: str) -> str:
        """The qualifier of a column."""
        return next((name for name, columns in self.unnested if column in columns), self.name)

    @property
    def is_implicit(self) -> bool:
        """Whether it is a relation only by convention."""
        return self.input.implicit or (self.input.is_stream and self.window is None)

    @property
    def relation(self) -> Plan:
        """The item as a relation: a stream without a window is UNBOUNDED."""
        if not self.input.is_stream:
            return self.input.plan
        return Window(self.input.plan, self.window or Unbounded(), self.size)

    @property
    def as_written(self) -> Plan:
        """The item as a stream, unless it is a relation as written."""
        return self.relation if self.window is not None else self.input.plan


@dataclass(frozen=True)
class Found:
    """A column of an item: its name in the item's plan, the internal one, and the one that queries use."""

    item: int
    column: str
    internal: str
    written: str


@dataclass(frozen=True)
class Outer:
    """An outer join with an item: its kind, and the conditions of ON.

    `exchanged`: the new item is on the left, as in RIGHT JOIN.
    """

    item: int
    kind: JoinKind
    exchanged: bool
    on: tuple[Expression, ...]
    place: exp.Expr

    @property
    def adds_rows(self) -> bool:
        """Whether rows of the new item are in the answer without a partner."""
        return self.exchanged or self.kind is JoinKind.FULL


class Half(Protocol):
    """A condition of WHERE on the rows of a subquery, applied as a semi or anti join."""

    def over(self, plan: Plan) -> Plan:
        """The rows of the plan that meet it."""
        ...


@dataclass(frozen=True)
class Scope:
    """The columns of FROM items, by name.

    `outer` are the outer joins; `on` has the conditions of inner joins by item; `halves` are the conditions
    of WHERE that read other queries.
    """

    items: Sequence[Item]
    outer: tuple[Outer, ...] = ()
    on: Mapping[int, Sequence[Expression]] = field(default_factory=dict)
    halves: tuple[Half, ...] = ()

    @property
    def columns(self) -> list[list[Found]]:
        """For each item its columns, in order."""
        return self._named[0]

    @property
    def sizes(self) -> dict[int, str]:
        """The internal names of the columns with window sizes, by item."""
        return self._named[1]

    @cached_property
    def _named(self) -> tuple[list[list[Found]], dict[int, str]]:
        """The columns of each item and the size columns, all with unique internal names."""
        taken: set[str] = set()
        columns, sizes = [], {}
        for i, item in enumerate(self.items):
            names, written = item.input.plan.schema.names, dict(item.written)
            columns.append(
                [Found(i, name, self._internal(item, name, taken), written.get(name, name)) for name in names]
            )
            if item.size is not None:
                sizes[i] = self._internal(item, item.size, taken)
        return columns, sizes

    def _internal(self, item: Item, column: str, taken: set[str]) -> str:
        """An unused name for a column of an item."""
        return fresh(column if len(self.items) == 1 else f"{item.name}.{column}", taken)

    @cached_property
    def schema(self) -> Schema:
        """All columns of all items under their internal names."""
        types = [item.input.plan.schema.types for item in self.items]
        pairs = zip((f for fs in self.columns for f in fs), (t for ts in types for t in ts), strict=True)
        return pa.schema([*(pa.field(found.internal, of) for found, of in pairs), *self._told])

    @property
    def _told(self) -> list[pa.Field]:
        """The size columns as fields."""
        return [pa.field(name, pa.int64()) for name in self.sizes.values()]

    @cached_property
    def owner(self) -> dict[str, int]:
        """The item that an internal name belongs to."""
        told = {name: i for i, name in self.sizes.items()}
        return {found.internal: found.item for item in self.columns for found in item} | told

    @cached_property
    def _by_name(self) -> dict[str, list[Found]]:
        """The columns by lower-case name."""
        index: dict[str, list[Found]] = {}
        for item in self.columns:
            for found in item:
                index.setdefault(found.written.lower(), []).append(found)
        return index

    @cached_property
    def _positions(self) -> dict[str, int]:
        """The position of each item by lower-case name."""
        unnested = {name.lower(): i for i, item in enumerate(self.items) for name, _ in item.unnested}
        return unnested | {name.lower(): i for i, (name, _) in enumerate(self.labels)}

    @property
    def labels(self) -> Sequence[tuple[str, str]]:
        """For each list of `columns`, the name that qualifies them and the name that an alias hides."""
        return [(item.name, item.of) for item in self.items]

    def has_item(self, name: str) -> bool:
        """Whether an item has this name."""
        return name.lower() in self._positions

    def find(self, node: exp.Column) -> str | None:
        """The internal name of the column that `node` means; None if the column is unknown."""
        check_read(node)
        if node.args.get("db"):
            return None
        table = node.args.get("table")
        hits = self._by_name.get(node.name.lower(), [])
        if table:
            hits = [f for f in hits if f in self.columns_of(table)]
        if len(hits) > 1:
            hits = [f for f in hits if not self.hides(f)] or hits
        if len(hits) > 1:
            hits = [f for f in hits if f.written == node.name] or hits
        if len(hits) > 1:
            names = " or ".join(f"{self._qualifier(f)}.{f.written}" for f in hits)
            fail(Code.AMBIGUOUS_COLUMN, f"column {node.name!r} is ambiguous", node, f"write {names}")
        return hits[0].internal if hits else None

    def hides(self, found: Found) -> bool:
        """Whether a star leaves the column out, and other columns of its name come first."""
        return found.item < len(self.items) and found.column in self.items[found.item].hidden

    def _qualifier(self, found: Found) -> str:
        """The name to write before a column."""
        item = self.items[found.item] if found.item < len(self.items) else None
        return item.owner(found.column) if item and item.unnested else self.labels[found.item][0]

    def unknown(self, node: exp.Column, hint: str = "") -> NoReturn:
        """Raise the error for a column that does not exist, with the nearest name as a hint."""
        table = node.args.get("table")
        items = [self.columns_of(table)] if table else self.columns
        known = [found.written for item in items for found in item]
        place = f" in {table.name}" if table else ""
        hint = hint or nearest(node.name, known, f"columns: {', '.join(known)}")
        fail(Code.UNKNOWN_COLUMN, f"the column {node.name!r} does not exist{place}", node, hint)

    def columns_of(self, qualifier: exp.Expr) -> list[Found]:
        """The columns that a qualifier may stand before."""
        at = self.item(qualifier)
        found = self.columns[at]
        item = self.items[at] if at < len(self.items) else None
        if item is None or not item.unnested:
            return found
        return [each for each in found if item.owner(each.column).lower() == qualifier.name.lower()]

    def item(self, name: exp.Expr) -> int:
        """The position of the item called `name`."""
        found = self._positions.get(name.name.lower())
        if found is not None:
            return found
        hidden = next((called for called, of in self.labels if of.lower() == name.name.lower()), None)
        known = [called for called, _ in self.labels]
        hint = (
            f"its alias is {hidden}: use {hidden} in place of {name.name}"
            if hidden
            else nearest(name.name, known)
        )
        fail(
            Code.UNKNOWN_STREAM,
            f"no FROM item is named {name.name!r}",
            name,
            hint or f"FROM items: {', '.join(known)}",
        )


def fresh(name: str, taken: set[str]) -> str:
    """`name`, or the first free name of `name_1`, `name_2`, …, ignoring case; it is added to `taken`."""
    chosen, count = name, 0
    while chosen.lower() in taken:
        count += 1
        chosen = f"{name}_{count}"
    taken.add(chosen.lower())
    return chosen


# Resolves column names if FROM is a sequence: each step qualifies its own columns.


HINTS = {
    StepKind.REPEATED: "{0} matches several rows: write first({0}.{1}), last({0}.{1}) or count({0}.{1})",
    StepKind.MISSING: "{0} is a NOT step, so it has no rows",
}


@dataclass(frozen=True)
class Named:
    """A column: its name in the text and its internal name."""

    column: str
    internal: str
    type: DataType


@dataclass(frozen=True)
class StepNames:
    """The name of a step, and its columns that can be read."""

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
        return [
            [Found(i, c.column, c.internal, c.column) for c in s.columns] for i, s in enumerate(self.steps)
        ]

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
