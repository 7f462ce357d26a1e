"""How the names in an expression are resolved, which depends on the clause it stands in."""

from __future__ import annotations

from collections.abc import Container
from typing import NoReturn

from sqlglot import exp

from headrace.expressions import Column, Expression
from headrace.schema import Schema
from headrace.sql.codes import Code
from headrace.sql.place import fail
from headrace.sql.quality import WINDOW, no_granularity, size_of
from headrace.sql.scope import Scope

BOUNDS = ("window_start", "window_end")
NO_BOUNDS = "they exist where one stream with [RANGE … SLIDE …] or [SESSION …] is aggregated"


class Resolver:
    """Resolves columns against FROM items; aggregates have no place in its clause.

    It remembers which node each expression was made from, so that what is found wrong later can be shown in
    the text.
    """

    def __init__(self, scope: Scope, clause: str, aliases: Container[str] = ()) -> None:
        self.scope = scope
        self.clause = clause
        self._later = aliases
        self.origins: list[tuple[Expression, exp.Expr]] = []

    @property
    def schema(self) -> Schema:
        """The columns that expressions may come to read."""
        return self.scope.schema

    def remember(self, expression: Expression, node: exp.Expr) -> Expression:
        self.origins.append((expression, node))
        return expression

    def origin(self, expression: Expression) -> exp.Expr | None:
        """The node from which this very expression was made."""
        return next((node for made, node in self.origins if made is expression), None)

    def column(self, node: exp.Column) -> Expression:
        """The column that `node` means."""
        found = self.scope.find(node)
        return Column(found) if found is not None else self.missing(node)

    def missing(self, node: exp.Column) -> NoReturn:
        """The error of a column that is not there."""
        name = node.name.lower()
        if name in self._later:
            hint = f"SELECT gives the name {node.name} after {self.clause}; repeat what it stands for"
        else:
            hint = NO_BOUNDS if name in BOUNDS else ""
        self.scope.unknown(node, hint)

    def aggregate(self, node: exp.Anonymous, condition: exp.Expr | None) -> Expression:
        """The value of an aggregate, of the rows that meet `condition`."""
        code = Code.NESTED_AGGREGATE if self.clause == "an aggregate" else Code.MISPLACED_AGGREGATE
        hint = "aggregate in a subquery" if self.clause != "WHERE" else "write HAVING"
        fail(code, f"{node.name.lower()} has no place in {self.clause}", node, hint)

    def quality(self, node: exp.Anonymous) -> Expression:
        """The size of a window, or the granularity, that the row was given."""
        return size_of(self.scope, node) if node.name.lower() == WINDOW else self.grain(node)

    def grain(self, node: exp.Anonymous) -> Expression:
        """The granularity of the row."""
        no_granularity(node, self.clause)

    def over(self, node: exp.Window) -> Expression:
        """The value of a function over a partition."""
        hint = "ROW_NUMBER() is a column of SELECT, LAG(…) stands in SELECT over a stream"
        fail(Code.OVER, f"OVER has no place in {self.clause} like this", node, hint)
