"""Parts of structs, arrays and maps in expressions: `s.a`, `t.s.a.b`, `a[0]`, `m['k']`, `struct(x, y AS b)`.

A name with points may be an item and its column, or a column and its fields; the first that exists is meant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp

from headrace.expressions import Element, Expression, Field, Function, Literal
from headrace.sql.binder.resolver import Resolver
from headrace.sql.place import Code, fail

Build = Callable[[Any, Any], Expression]


def column(resolver: Resolver, node: exp.Column) -> Expression:
    """A column, or a field of a column that is a struct."""
    parts = [each for each in node.parts if isinstance(each, exp.Identifier)]
    for length in (2, 1):
        if len(parts) > length and (base := _column(resolver, parts[:length], node)) is not None:
            return _fields(resolver.column(base), parts[length:])
    if len(parts) > 2:
        hint = "write item.column, or column.field for a field of a struct"
        fail(Code.UNKNOWN_COLUMN, f"the column {node.sql()} does not exist", node, hint)
    return resolver.column(node)


def _column(resolver: Resolver, parts: list[exp.Identifier], place: exp.Column) -> exp.Column | None:
    """The column that these parts name, if there is one."""
    *qualifier, name = parts
    if qualifier and not resolver.scope.has_item(qualifier[0].name):
        return None
    if not qualifier and resolver.scope.has_item(name.name):
        return None
    found = exp.Column(this=name, table=qualifier[0] if qualifier else None)
    found.meta.update(place.meta)
    return found if resolver.scope.find(found) is not None else None


def _fields(found: Expression, names: list[exp.Identifier]) -> Expression:
    for each in names:
        found = Field(found, each.name)
    return found


def dot(build: Build) -> Build:
    """`x.name` after anything but a name: an element, a call, or the fifth part of a long name."""

    def rule(resolver: Resolver, node: exp.Dot) -> Expression:
        if not isinstance(node.expression, exp.Identifier):
            fail(Code.NOT_CQL, "only the name of a field can follow the point", node.expression)
        return Field(build(resolver, node.this), node.expression.name)

    return rule


def element(build: Build) -> Build:
    """`a[0]` or `m['k']`."""

    def rule(resolver: Resolver, node: exp.Bracket) -> Expression:
        constructor = _constructor(resolver, node.this)
        if constructor is not None:
            return Function(constructor, tuple(build(resolver, each) for each in node.expressions))
        if len(node.expressions) != 1 or isinstance(node.expressions[0], exp.Slice):
            fail(Code.NOT_CQL, "[…] takes one position or key", node, "write a[0] or m['k']")
        return Element(build(resolver, node.this), build(resolver, node.expressions[0]))

    return rule


def _constructor(resolver: Resolver, node: exp.Expr) -> str | None:
    """`array` or `map` for Flink's `ARRAY[1, 2]` and `MAP['a', 1]`, unless a column has that name."""
    name = node.name.lower()
    if not isinstance(node, exp.Column) or len(node.parts) > 1 or name not in ("array", "map"):
        return None
    return None if resolver.scope.find(node) else name


def struct(resolver: Resolver, node: exp.Anonymous, build: Build) -> Expression:
    """`struct(x, y AS b)`: the fields have the names of columns and aliases, others are `col1`, `col2`, …"""
    arguments: list[Expression] = []
    for number, each in enumerate(node.expressions, 1):
        named = isinstance(each, (exp.Alias, exp.Column, exp.Dot))
        name = (each.alias or each.name) if named else f"col{number}"
        inner = each.this if isinstance(each, exp.Alias) else each
        arguments += [Literal(name), build(resolver, inner)]
    return Function("named_struct", tuple(arguments))
