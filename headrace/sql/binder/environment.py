"""The names that the queries of one text can see: the catalog, and the WITH queries around them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp

from headrace.expressions import Column
from headrace.plan.nodes.core import Project
from headrace.sql.catalog import ANY_TIME, Catalog, Relation
from headrace.sql.place import Code, Place, fail, nearest


@dataclass(frozen=True)
class Environment:
    """Relations by name; inner names hide outer ones. `text` is the text of the user."""

    catalog: Catalog
    text: str
    queries: Mapping[str, Relation] = field(default_factory=dict)

    def find(self, name: exp.Expr) -> Relation:
        """The relation that a name in FROM refers to."""
        found = self.queries.get(name.name.lower()) or self.catalog.find(name.name)
        if found is None:
            known = [*self.queries, *self.catalog.names]
            listed = f"known: {', '.join(known)}" if known else "declare it, or pass streams={'name': schema}"
            fail(
                Code.UNKNOWN_STREAM,
                f"no stream, table or view {name.name!r}",
                name,
                nearest(name.name, known, listed),
            )
        return found

    def with_query(self, name: str, relation: Relation) -> Environment:
        """A copy with one more name."""
        return replace(self, queries={**self.queries, name.lower(): relation})

    def written(self, start: int, end: int) -> str:
        """The characters as written, with white space normalized."""
        return " ".join(self.text[start:end].split())


def renamed(relation: Relation, names: list[str], place: Place) -> Relation:
    """The relation with new column names, one for each column."""
    old = relation.plan.schema.names
    if len(names) != len(old):
        fail(Code.COLUMN_COUNT, f"{len(names)} names given for {len(old)} columns: {', '.join(old)}", place)
    if len({each.lower() for each in names}) < len(names):
        fail(Code.SAME_COLUMN, "two columns have the same name", place)
    if names == old:
        return relation
    columns = tuple((new, Column(name)) for new, name in zip(names, old, strict=True))
    time = next((new for new, each in columns if each.name == relation.time_column), None)
    return replace(relation, plan=Project(relation.plan, columns), time_column=time)


def one_domain(first: int | None, second: int | None, place: Place) -> int | None:
    """The common domain of time of two relations; an error if they differ. Tables fit every domain."""
    if ANY_TIME in (first, second):
        return second if first == ANY_TIME else first
    if first != second:
        shown = [
            "sequence numbers" if each is None else f"{each} ticks per second" for each in (first, second)
        ]
        hint = "declare all streams of a query with the same ticks_per_second"
        fail(Code.TIME_DOMAINS, f"cannot combine streams that count {shown[0]} and {shown[1]}", place, hint)
    return first


def column_called(name: exp.Identifier, known: list[str], hint: str = "") -> str:
    """The column called `name`, ignoring case; an error if there is none."""
    found = next((each for each in known if each.lower() == name.name.lower()), None)
    if found is None:
        hint = hint or nearest(name.name, known, f"columns: {', '.join(known)}")
        fail(Code.UNKNOWN_COLUMN, f"the column {name.name!r} does not exist", name, hint)
    return found
