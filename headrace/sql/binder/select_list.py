"""The SELECT list: the columns of the answer and their names.

A column keeps its name, an expression is named by its text, and clashing names get a number: `a`, `a_1`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp

from headrace.expressions import Column, Expression
from headrace.plan.nodes.core import Plan, Project
from headrace.sql.binder.environment import Environment
from headrace.sql.binder.resolver import Resolver
from headrace.sql.binder.scope import Scope, fresh
from headrace.sql.binder.typed import expression
from headrace.sql.definitions import is_aggregate
from headrace.sql.parser.clauses import WITHIN, Duration
from headrace.sql.parser.dialect import OUTPUTS, TEXT
from headrace.sql.parser.parse import check_read
from headrace.sql.place import Code, fail


@dataclass(frozen=True)
class Listed:
    """One column of the answer: the expression `node`, or for a star the internal column `star`."""

    name: str
    node: exp.Expr
    star: str | None = None

    def resolved(self, resolver: Resolver) -> Expression:
        """The expression of this column."""
        if self.star is not None:
            return resolver.remember(Column(self.star), self.node)
        return expression(resolver, self.node)


@dataclass(frozen=True)
class SelectList:
    """The SELECT list, whether it has DISTINCT, and the ISTREAM, DSTREAM or RSTREAM around it, if any.

    `on` are the keys of DISTINCT ON, and `within` its time.
    """

    nodes: list[exp.Expr]
    distinct: bool
    output: str | None
    place: exp.Expr
    on: tuple[exp.Expr, ...] = ()
    within: Duration | None = None

    @property
    def has_aggregates(self) -> bool:
        return any(has_aggregate(each) for each in self.nodes)

    @property
    def aliases(self) -> dict[str, exp.Expr]:
        """The aliases in the SELECT list and their expressions."""
        named = (each for each in self.nodes if isinstance(each, exp.Alias))
        return {each.alias.lower(): each.this for each in named}


def read_select_list(node: exp.Select) -> SelectList:
    """The list of a SELECT, without the ISTREAM, DSTREAM or RSTREAM around it."""
    distinct = node.args.get("distinct")
    if distinct is not None:
        check_read(distinct)
    words = [each for each in node.expressions if _is_output(each)]
    on = distinct.args.get("on") if distinct is not None else None
    if on is not None:
        within = node.expressions[0].meta.get(WITHIN)
        if words:
            hint = "the result of DISTINCT ON is a stream already"
            fail(Code.MEANINGLESS_OUTPUT, f"{words[0].name.upper()} after DISTINCT ON", words[0], hint)
        return SelectList(node.expressions, False, None, node, tuple(on.expressions), within)
    if not words:
        return SelectList(node.expressions, distinct is not None, None, node)
    if len(node.expressions) > 1:
        hint = "write SELECT ISTREAM(a, b) FROM …"
        fail(Code.MEANINGLESS_OUTPUT, f"{words[0].name.upper()} must enclose all columns", words[0], hint)
    inside = words[0].expressions
    if not inside:
        fail(Code.SYNTAX, f"{words[0].name.upper()}() has no columns", words[0], "write ISTREAM(*)")
    within = len(inside) == 1 and isinstance(inside[0], exp.Distinct)
    listed = inside[0].expressions if within else inside
    return SelectList(listed, within or distinct is not None, words[0].name.upper(), words[0])


def _is_output(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.upper() in OUTPUTS


def has_aggregate(node: exp.Expr | None) -> bool:
    """Whether an aggregate is called anywhere in `node`, other than with OVER."""
    calls = node.find_all(exp.Anonymous) if node is not None else ()
    return any(is_aggregate(each) and not _has_over(each) for each in calls)


def _has_over(call: exp.Anonymous) -> bool:
    """Whether OVER follows a call, or its FILTER."""
    node: exp.Expr = call
    while isinstance(node.parent, (exp.Filter, exp.IgnoreNulls, exp.RespectNulls)) and node.arg_key == "this":
        node = node.parent
    return isinstance(node.parent, exp.Window) and node.arg_key == "this"


def listed(env: Environment, scope: Scope, nodes: list[exp.Expr]) -> list[Listed]:
    """The columns of the answer, with stars expanded and unique names."""
    taken: set[str] = set()
    columns = [each for node in nodes for each in _expanded(env, scope, node)]
    return [Listed(fresh(each.name, taken), each.node, each.star) for each in columns]


def _expanded(env: Environment, scope: Scope, node: exp.Expr) -> Iterator[Listed]:
    """The column of an entry of the list, or all columns of a star."""
    if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)):
        yield from _star(scope, node)
    elif isinstance(node, exp.Alias):
        yield Listed(node.alias, node.this)
    elif isinstance(node, exp.Column):
        yield Listed(node.name, node)
    else:
        yield Listed(_written(env, node), node)


def _star(scope: Scope, node: exp.Expr) -> Iterator[Listed]:
    """All columns of all FROM items, or of one."""
    check_read(node if isinstance(node, exp.Star) else node.this)
    table = node.args.get("table")
    items = scope.columns if table is None else [scope.columns_of(table)]
    for found in (found for item in items for found in item):
        if not scope.hides(found):
            yield Listed(found.written, node, found.internal)


def _written(env: Environment, node: exp.Expr) -> str:
    """The text of an expression, which is its default name."""
    if TEXT in node.meta:
        return env.written(*node.meta[TEXT])
    return node.name or type(node).__name__.lower()


def projected(plan: Plan, columns: list[tuple[str, Expression]]) -> Plan:
    """`plan` with these columns; `plan` itself if it already has exactly these."""
    same = [(name, Column(name)) for name in plan.schema.names] == columns
    return plan if same else Project(plan, tuple(columns))
