"""Queries inside the builder: clauses as data, and how they are written as CQL.

A statement is written as lines, so that an outer statement can indent it without changing a multi-line string
constant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from headrace.builder.windows import PENDING
from headrace.sql.fragments import identifier

Lines = list[str]


class Statement(Protocol):
    """A query that can be written as CQL."""

    def lines(self) -> Lines:
        """The query, line by line."""
        ...


def indented(lines: Lines) -> Lines:
    """The same lines, indented."""
    return [f"  {line}" for line in lines]


def bracketed(lines: Lines, before: str = "(", after: str = ")") -> Lines:
    """The lines between an opening and a closing one."""
    return [before, *indented(lines), after]


@dataclass(frozen=True)
class Item:
    """A FROM item: a name or a query, its window and its alias."""

    of: str | Statement
    window: str = ""
    alias: str | None = None

    @property
    def name(self) -> str | None:
        """The name that qualifies its columns."""
        return self.alias or (self.of if isinstance(self.of, str) else None)

    def lines(self, before: str) -> Lines:
        called = f"AS {identifier(self.alias)}" if self.alias and self.alias != self.of else ""
        after = "".join(f" {each}" for each in (self.window, called) if each)
        if isinstance(self.of, str):
            return [f"{before}{identifier(self.of)}{after}"]
        return bracketed(self.of.lines(), f"{before}(", f"){after}")


@dataclass(frozen=True)
class StepItem:
    """A step of a sequence: a stream that occurs once, not at all, or repeatedly."""

    item: Item
    missing: bool = False
    repeated: bool = False

    def text(self) -> str:
        """The step on one line; here the sign of a repeated step comes before its alias."""
        if self.repeated and isinstance(self.item.of, str):
            called = f" AS {identifier(self.item.alias)}" if self.item.alias else ""
            return f"{identifier(self.item.of)}+{called}"
        return (
            ("NOT " if self.missing else "") + "\n".join(self.item.lines("")) + ("+" if self.repeated else "")
        )


@dataclass(frozen=True)
class SequenceItem:
    """`SEQ(…)` as the only FROM item; its steps have names, the item has none."""

    steps: tuple[StepItem, ...]
    mode: str
    keys: tuple[str, ...] = ()
    within: str = ""
    strict: bool = False
    window: str = ""
    name: None = None

    def lines(self, before: str) -> Lines:
        words = [
            f"SEQ({', '.join(each.text() for each in self.steps)})",
            self.mode,
            *([f"PARTITION BY {', '.join(self.keys)}"] if self.keys else []),
            *([f"WITHIN {self.within}"] if self.within else []),
            *(["STRICT"] if self.strict else []),
            *([self.window] if self.window else []),
        ]
        return [before + " ".join(words)]


@dataclass(frozen=True)
class Joined:
    """One more FROM item and its join conditions; without conditions, a cross join."""

    item: Item
    on: tuple[str, ...]

    def lines(self) -> Lines:
        word = "JOIN" if self.on else "CROSS JOIN"
        return self.item.lines(f"{word} ") + _clause("  ON ", self.on, " AND ")


@dataclass(frozen=True)
class Select:
    """A SELECT with a field for each clause, in the order in which they take effect."""

    item: Item | SequenceItem
    joins: tuple[Joined, ...] = ()
    where: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    having: tuple[str, ...] = ()
    qualify: str = ""
    distinct: bool = False

    @property
    def bare(self) -> Item | None:
        """The FROM item, if the statement is a plain named item without other clauses."""
        return self.item if isinstance(self.item, Item) and self == Select(self.item) else None

    @property
    def is_pending(self) -> bool:
        """Whether its window is valid only once something is aggregated."""
        return self.item.window.startswith(PENDING) and not self.columns

    def lines(self) -> Lines:
        word = "SELECT DISTINCT " if self.distinct else "SELECT "
        return [
            word + (", ".join(self.columns) or "*"),
            *self.item.lines("FROM "),
            *(line for each in self.joins for line in each.lines()),
            *_clause("WHERE ", self.where, " AND "),
            *_clause("GROUP BY ", self.keys, ", "),
            *_clause("HAVING ", self.having, " AND "),
            *([f"QUALIFY {self.qualify}"] if self.qualify else []),
        ]


def _clause(word: str, parts: tuple[str, ...], between: str) -> Lines:
    """The line for a clause; empty if the clause is."""
    return [word + between.join(parts)] if parts else []


@dataclass(frozen=True)
class Combined:
    """Branches of a set operation: UNION, EXCEPT ALL, and so on."""

    word: str
    branches: tuple[Statement, ...]

    def lines(self) -> Lines:
        first, *rest = [self._branch(each) for each in self.branches]
        return first + [line for each in rest for line in (self.word, *each)]

    def _branch(self, of: Statement) -> Lines:
        """One branch; a nested set operation needs parentheses."""
        return bracketed(of.lines()) if isinstance(of, Combined) else of.lines()


@dataclass(frozen=True)
class Output:
    """`ISTREAM(query)`, or the same with DSTREAM, RSTREAM or CHANGELOG; `keys` are those of a CHANGELOG."""

    word: str
    of: Statement
    keys: tuple[str, ...] = ()

    def lines(self) -> Lines:
        key = f" PRIMARY KEY ({', '.join(self.keys)})" if self.keys else ""
        return bracketed(self.of.lines(), f"{self.word}(", f"){key}")
