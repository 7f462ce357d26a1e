"""Which column a name means: the FROM items of one SELECT and what they are called.

Case does not matter unless it decides between two columns. Where there are several items, each column has an
internal name `item.column`, so that the two sides of a join never share a name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NoReturn

import pyarrow as pa
from sqlglot import exp

from headrace.plan.nodes import Plan, Window
from headrace.plan.windows import Unbounded, WindowSpec
from headrace.schema import Schema
from headrace.sql.catalog import Relation
from headrace.sql.codes import Code
from headrace.sql.place import fail, nearest
from headrace.sql.reading import check_read


@dataclass(frozen=True)
class Item:
    """A FROM item: what it reads, through which window, and what it is called here.

    `of` is the name of the stream or view where an alias hides it, `size` the column in which the window
    tells the size that each row was given, where that is asked for.
    """

    name: str
    of: str
    input: Relation
    window: WindowSpec | None
    size: str | None = None

    @property
    def is_implicit(self) -> bool:
        """Whether only convention makes it a relation."""
        return self.input.implicit or (self.input.is_stream and self.window is None)

    @property
    def relation(self) -> Plan:
        """The item as a relation: a stream without a window is UNBOUNDED."""
        if not self.input.is_stream:
            return self.input.plan
        return Window(self.input.plan, self.window or Unbounded(), self.size)

    @property
    def as_written(self) -> Plan:
        """The item as a stream if nothing says that it is more."""
        return self.relation if self.window is not None else self.input.plan


@dataclass(frozen=True)
class Found:
    """A column of an item: its own name and the internal one."""

    item: int
    column: str
    internal: str


@dataclass(frozen=True)
class Scope:
    """The columns of FROM items, by name."""

    items: Sequence[Item]

    @property
    def columns(self) -> list[list[Found]]:
        """For each item its columns, in order."""
        return self._named[0]

    @property
    def sizes(self) -> dict[int, str]:
        """The internal names of the columns that tell the sizes of windows, by item."""
        return self._named[1]

    @cached_property
    def _named(self) -> tuple[list[list[Found]], dict[int, str]]:
        taken: set[str] = set()
        columns, sizes = [], {}
        for i, item in enumerate(self.items):
            names = item.input.plan.schema.names
            columns.append([Found(i, name, self._internal(item, name, taken)) for name in names])
            if item.size is not None:
                sizes[i] = self._internal(item, item.size, taken)
        return columns, sizes

    def _internal(self, item: Item, column: str, taken: set[str]) -> str:
        """What has no name gets its columns told apart by numbers."""
        return fresh(column if len(self.items) == 1 else f"{item.name}.{column}", taken)

    @cached_property
    def schema(self) -> Schema:
        """All columns of all items under their internal names."""
        types = [item.input.plan.schema.types for item in self.items]
        pairs = zip((f for fs in self.columns for f in fs), (t for ts in types for t in ts), strict=True)
        return pa.schema([*(pa.field(found.internal, of) for found, of in pairs), *self._told])

    @property
    def _told(self) -> list[pa.Field]:
        return [pa.field(name, pa.int64()) for name in self.sizes.values()]

    @cached_property
    def owner(self) -> dict[str, int]:
        """The item that an internal name belongs to."""
        told = {name: i for i, name in self.sizes.items()}
        return {found.internal: found.item for item in self.columns for found in item} | told

    @cached_property
    def _by_name(self) -> dict[str, list[Found]]:
        index: dict[str, list[Found]] = {}
        for item in self.columns:
            for found in item:
                index.setdefault(found.column.lower(), []).append(found)
        return index

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name.lower(): i for i, (name, _) in enumerate(self.labels)}

    @property
    def labels(self) -> Sequence[tuple[str, str]]:
        """Of each list of `columns` the name that qualifies them, and the one that this hides."""
        return [(item.name, item.of) for item in self.items]

    def find(self, node: exp.Column) -> str | None:
        """The internal name of the column that `node` means; None if there is no such column."""
        check_read(node)
        within = self.item(node.args["table"]) if node.args.get("table") else None
        hits = [f for f in self._by_name.get(node.name.lower(), ()) if within is None or f.item == within]
        if len(hits) > 1:
            hits = [f for f in hits if f.column == node.name] or hits
        if len(hits) > 1:
            names = " or ".join(f"{self.labels[f.item][0]}.{f.column}" for f in hits)
            fail(Code.AMBIGUOUS_COLUMN, f"column {node.name!r} is ambiguous", node, f"write {names}")
        return hits[0].internal if hits else None

    def unknown(self, node: exp.Column, hint: str = "") -> NoReturn:
        """The error of a column that does not exist, with the nearest that does."""
        within = self.item(node.args["table"]) if node.args.get("table") else None
        items = self.columns if within is None else [self.columns[within]]
        known = [found.column for item in items for found in item]
        place = f" in {self.labels[within][0]}" if within is not None else ""
        hint = hint or nearest(node.name, known, f"columns: {', '.join(known)}")
        fail(Code.UNKNOWN_COLUMN, f"no column {node.name!r}{place}", node, hint)

    def item(self, name: exp.Expr) -> int:
        """The position of the item called `name`."""
        found = self._positions.get(name.name.lower())
        if found is not None:
            return found
        hidden = next((called for called, of in self.labels if of.lower() == name.name.lower()), None)
        known = [called for called, _ in self.labels]
        hint = f"{name.name} is called {hidden} here" if hidden else nearest(name.name, known)
        fail(Code.UNKNOWN_STREAM, f"no FROM item is called {name.name!r}", name, hint or ", ".join(known))


def fresh(name: str, taken: set[str]) -> str:
    """`name`, or the first of `name_1`, `name_2`, … that is free whatever the case; it is taken then."""
    chosen, count = name, 0
    while chosen.lower() in taken:
        count += 1
        chosen = f"{name}_{count}"
    taken.add(chosen.lower())
    return chosen
