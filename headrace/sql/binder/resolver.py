"""How the names in an expression are resolved, which depends on its clause."""

from __future__ import annotations

from collections.abc import Container
from typing import NoReturn

from sqlglot import exp

from headrace.expressions import Column, Expression
from headrace.schema import Schema
from headrace.sql.binder.quality_columns import WINDOW, no_granularity, size_of
from headrace.sql.binder.scope import Scope
from headrace.sql.place import Code, fail

BOUNDS = ("window_start", "window_end")
NO_BOUNDS = (
    "aggregates over one stream with [RANGE … SLIDE …] or [SESSION …] have it, and rows of tumbling windows "
    "with a TIME column; for other rows write FROM TABLE(HOP(TABLE s, DESCRIPTOR(ts), slide, size))"
)


NO_CLOCK = (
    "answers depend on the times of rows, not on the clock: use the time column, "
    "or declare the stream with TIME INTERNAL, which stamps rows when they arrive"
)
ABSENT = {
    "window": "a window is not a value; write window.start and window.end",
    "session_window": "a window is not a value; write session_window.start and session_window.end",
    "windowstart": "write window_start",
    "windowend": "write window_end",
    "rowtime": "write the time column of the stream",
    "proctime": "declare the stream with TIME INTERNAL, which stamps rows when they arrive",
} | dict.fromkeys(("current_timestamp", "current_date", "current_time", "localtimestamp"), NO_CLOCK)
"""What to write for columns that other systems have."""


class Resolver:
    """Resolves columns against FROM items; aggregates are not allowed in its clause.

    It remembers the node that each expression was built from, so that errors found later can point to the
    text.
    """

    def __init__(self, scope: Scope, clause: str, aliases: Container[str] = ()) -> None:
        self.scope = scope
        self.clause = clause
        self._later = aliases
        self.origins: list[tuple[Expression, exp.Expr]] = []

    @property
    def schema(self) -> Schema:
        """The columns that expressions may read."""
        return self.scope.schema

    def remember(self, expression: Expression, node: exp.Expr) -> Expression:
        """Record the node that an expression was built from."""
        self.origins.append((expression, node))
        return expression

    def origin(self, expression: Expression) -> exp.Expr | None:
        """The node that exactly this expression object was built from."""
        return next((node for made, node in self.origins if made is expression), None)

    def column(self, node: exp.Column) -> Expression:
        """The column that `node` means."""
        found = self.scope.find(node)
        return Column(found) if found is not None else self.missing(node)

    def missing(self, node: exp.Column) -> NoReturn:
        """The error for a column that does not exist."""
        name = node.name.lower()
        if name in self._later:
            hint = f"the alias {node.name} is not visible in {self.clause}; repeat its expression"
        else:
            hint = NO_BOUNDS if name in BOUNDS else ABSENT.get(name, "")
        self.scope.unknown(node, hint)

    def call(self, node: exp.Anonymous) -> Expression | None:
        """The value of a function that only this clause has; None for all others."""
        return None

    def aggregate(self, node: exp.Anonymous, condition: exp.Expr | None) -> Expression:
        """The value of an aggregate over the rows that meet `condition`."""
        code = Code.NESTED_AGGREGATE if self.clause == "an aggregate" else Code.MISPLACED_AGGREGATE
        hint = "use the aggregate in a subquery" if self.clause != "WHERE" else "use HAVING"
        fail(code, f"the aggregate {node.name.lower()} is not allowed in {self.clause}", node, hint)

    def quality(self, node: exp.Anonymous) -> Expression:
        """The window size or the granularity of the row."""
        return size_of(self.scope, node) if node.name.lower() == WINDOW else self.grain(node)

    def grain(self, node: exp.Anonymous) -> Expression:
        """The granularity of the row."""
        no_granularity(node, self.clause)

    def over(self, node: exp.Window) -> Expression:
        """The value of a window function."""
        hint = "ROW_NUMBER() must be a column of SELECT; others need the SELECT of a stream"
        fail(Code.OVER, f"OVER is not allowed here in {self.clause}", node, hint)
