"""Queries as the builder holds them: clauses as data, and the CQL that they are.

A statement is written as lines, so that what it stands in can indent it without touching a text constant
that goes over several lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from headrace.builder.windows import PENDING
from headrace.sql.fragments import identifier

Lines = list[str]


class Statement(Protocol):
    """A query that can be written."""

    def lines(self) -> Lines:
        """The query, line by line."""
        ...


def indented(lines: Lines) -> Lines:
    """The same lines, further in."""
    return [f"  {line}" for line in lines]


def bracketed(lines: Lines, before: str = "(", after: str = ")") -> Lines:
    """The lines between an opening and a closing one."""
    return [before, *indented(lines), after]


@dataclass(frozen=True)
class Item:
    """A FROM item: a name or a query, its window and what it is called here."""

    of: str | Statement
    window: str = ""
    alias: str | None = None

    @property
    def name(self) -> str | None:
        """What its columns may be qualified with."""
        return self.alias or (self.of if isinstance(self.of, str) else None)

    def lines(self, before: str) -> Lines:
        called = f"AS {identifier(self.alias)}" if self.alias and self.alias != self.of else ""
        after = "".join(f" {each}" for each in (self.window, called) if each)
        if isinstance(self.of, str):
            return [f"{before}{identifier(self.of)}{after}"]
        return bracketed(self.of.lines(), f"{before}(", f"){after}")


@dataclass(frozen=True)
class StepItem:
    """A step of a sequence: a stream that comes once, or not, or several times."""

    item: Item
    missing: bool = False
    repeated: bool = False

    def text(self) -> str:
        """On one line; a repeated stream has its sign before its name here."""
        if self.repeated and isinstance(self.item.of, str):
            called = f" AS {identifier(self.item.alias)}" if self.item.alias else ""
            return f"{identifier(self.item.of)}+{called}"
        return (
            ("NOT " if self.missing else "") + "\n".join(self.item.lines("")) + ("+" if self.repeated else "")
        )


@dataclass(frozen=True)
class SequenceItem:
    """`SEQ(…)` as the one FROM item; its steps have names, it has none."""

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
    """One more FROM item with what connects it; no conditions: every pair."""

    item: Item
    on: tuple[str, ...]

    def lines(self) -> Lines:
        word = "JOIN" if self.on else "CROSS JOIN"
        return self.item.lines(f"{word} ") + _clause("  ON ", self.on, " AND ")


@dataclass(frozen=True)
class Select:
    """SELECT, a clause per field, in the order in which they take effect."""

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
        """The FROM item, if it is one with a name of its own and there is nothing else."""
        return self.item if isinstance(self.item, Item) and self == Select(self.item) else None

    @property
    def is_pending(self) -> bool:
        """Whether its window has a meaning only once something is aggregated."""
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
    return [word + between.join(parts)] if parts else []


@dataclass(frozen=True)
class Combined:
    """Branches with a word between them: UNION, EXCEPT ALL and their like."""

    word: str
    branches: tuple[Statement, ...]

    def lines(self) -> Lines:
        first, *rest = [self._branch(each) for each in self.branches]
        return first + [line for each in rest for line in (self.word, *each)]

    def _branch(self, of: Statement) -> Lines:
        return bracketed(of.lines()) if isinstance(of, Combined) else of.lines()


@dataclass(frozen=True)
class Output:
    """`ISTREAM(query)` and its like."""

    word: str
    of: Statement

    def lines(self) -> Lines:
        return bracketed(self.of.lines(), f"{self.word}(")
