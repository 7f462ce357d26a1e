"""UNNEST in FROM, with the other spellings: a row for each element of an array or map.

    FROM orders, UNNEST(items) WITH ORDINALITY AS u(item, n)
    FROM orders LEFT JOIN UNNEST(items) AS u(item) ON TRUE
    FROM orders LATERAL VIEW OUTER explode(items) u AS item
    SELECT explode(items) AS item FROM orders

The array is a part of one FROM item. Its rows are unnested before the window, which is the same for windows
of time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from sqlglot import exp

from headrace.errors import PlanError
from headrace.expressions import Arithmetic, Cast, Column, Expression, Literal
from headrace.expressions.types import canonical
from headrace.plan.nodes.core import Plan, Project
from headrace.plan.nodes.outer_join import JoinKind
from headrace.plan.nodes.unnest import Unnest, parts_of
from headrace.plan.nodes.windows import Rows
from headrace.sql.binder.resolver import Resolver
from headrace.sql.binder.scope import Item, Outer, Scope
from headrace.sql.binder.typed import expression, type_of
from headrace.sql.parser.parse import check_read
from headrace.sql.place import Code, fail

EXPLODES: Final = {
    "explode": False,
    "explode_outer": True,
    "unnest": False,
    "posexplode": False,
    "posexplode_outer": True,
    "inline": False,
    "inline_outer": True,
}
"""The functions of Spark that unnest, and whether rows without elements stay."""
COUNTED: Final = ("posexplode", "posexplode_outer")
"""The functions whose first column counts the elements from 0."""

ONE_ARRAY: Final = "write UNNEST(items) AS u(item)"


@dataclass(frozen=True)
class Asked:
    """An UNNEST as written. `columns` are the names after the alias, if any."""

    operand: exp.Expr
    name: str
    columns: tuple[str, ...]
    ordinal: str | None
    outer: bool
    place: exp.Expr
    from_zero: bool = False
    """The number comes first, and counts from 0."""


def is_unnest(node: exp.Expr) -> bool:
    """Whether a FROM item is an UNNEST or a LATERAL."""
    return isinstance(node, (exp.Unnest, exp.Lateral))


def read_unnest(node: exp.Expr, join: exp.Join | None = None) -> Asked:
    """An UNNEST or LATERAL in FROM."""
    check_read(node)
    outer = _is_left(join) if join is not None else False
    if isinstance(node, exp.Lateral):
        return _lateral(node, outer)
    if len(node.expressions) != 1:
        fail(Code.NOT_CQL, "UNNEST takes one array or map", node, ONE_ARRAY)
    offset = node.args.get("offset")
    ordinal = offset.name if isinstance(offset, exp.Identifier) else "ordinality" if offset else None
    name, columns = _alias(node)
    return Asked(node.expressions[0], name, columns, ordinal, outer, node)


def _lateral(node: exp.Lateral, outer: bool) -> Asked:
    """`LATERAL VIEW explode(x) u AS item`, or `LATERAL explode(x) AS u(item)`."""
    call = node.this
    stays = EXPLODES.get(call.name.lower()) if isinstance(call, exp.Anonymous) else None
    if stays is None or len(call.expressions) != 1:
        fail(Code.NOT_CQL, "LATERAL takes explode(x), posexplode(x) or inline(x)", node, ONE_ARRAY)
    name, columns = _alias(node)
    outer = outer or stays or bool(node.args.get("outer"))
    if call.name.lower() not in COUNTED:
        return Asked(call.expressions[0], name, columns, None, outer, node)
    ordinal, *others = columns or ("pos",)
    return Asked(call.expressions[0], name, tuple(others), ordinal, outer, node, True)


def _alias(node: exp.Expr) -> tuple[str, tuple[str, ...]]:
    alias = node.args.get("alias")
    if alias is None:
        return "unnest", ()
    check_read(alias)
    return alias.name or "unnest", tuple(each.name for each in alias.args.get("columns") or ())


def _is_left(join: exp.Join) -> bool:
    """Whether rows without elements stay; raises an error for a condition other than TRUE."""
    kind = " ".join(str(join.args[key]) for key in ("method", "side", "kind") if join.args.get(key)).upper()
    condition = join.args.get("on")
    if kind not in ("", "CROSS", "INNER", "LEFT", "LEFT OUTER") or join.args.get("using"):
        fail(
            Code.JOIN_KIND, f"UNNEST does not support {kind or 'USING'}", join.this, "use CROSS or LEFT JOIN"
        )
    if condition is not None and not (isinstance(condition, exp.Boolean) and condition.this):
        fail(Code.NOT_CQL, "a join with UNNEST takes no condition but TRUE", condition, "move it to WHERE")
    return kind.startswith("LEFT")


def unnested(items: list[Item], outer: list[Outer], asked: Asked) -> list[Item]:
    """The items, with the one that has the array unnested."""
    scope = Scope(tuple(items))
    resolver = Resolver(scope, "UNNEST")
    operand = expression(resolver, asked.operand)
    owners = {scope.owner[name] for name in operand.columns()}
    if len(owners) > 1:
        fail(Code.NOT_CQL, "UNNEST reads columns of two FROM items", asked.operand, "join them in a subquery")
    at = owners.pop() if owners else len(items) - 1
    if any(_pads(join, at) for join in outer):
        hint = f"unnest before the join: JOIN (SELECT … FROM {items[at].of}, UNNEST(…)) AS {items[at].name}"
        message = f"UNNEST after an outer join that may have no row of {items[at].name}"
        fail(Code.NOT_CQL, message, asked.operand, hint)
    if isinstance(items[at].window, Rows):
        hint = "unnest in a subquery: FROM (SELECT … FROM s [ROWS 10]), UNNEST(…)"
        fail(Code.NOT_CQL, "UNNEST of a stream with [ROWS …] could mean rows or elements", asked.place, hint)
    back = {found.internal: found.column for found in scope.columns[at]}
    items = list(items)
    items[at] = _over(items[at], operand.rename(back), asked, type_of(resolver, operand, asked.operand))
    return items


def _pads(join: Outer, at: int) -> bool:
    """Whether the columns of an item may be NULL because an outer join found no partner."""
    if join.kind is JoinKind.FULL:
        return at <= join.item
    return at < join.item if join.exchanged else at == join.item


def _over(item: Item, operand: Expression, asked: Asked, of: pa.DataType) -> Item:
    """The item with the new columns."""
    try:
        names = asked.columns or _names(asked.name, canonical(of))
        ordinal, names = _numbered(asked, names, len(parts_of(of)))
        plan: Plan = Unnest(item.input.plan, operand, names, ordinal, asked.outer)
        added = plan.schema.names[len(item.input.plan.schema) :]
        if asked.from_zero:
            plan, added = _from_zero(plan, added)
    except PlanError as error:
        fail(Code.TYPES, error.message, asked.operand, error.hint)
    known = {name.lower() for name in item.input.plan.schema.names}
    twice = next((name for name in added if name.lower() in known), None)
    if twice is not None:
        hint = f"rename it: UNNEST(…) AS {asked.name}(other_name)"
        fail(Code.AMBIGUOUS_COLUMN, f"{item.name} already has a column {twice!r}", asked.place, hint)
    relation = replace(item.input, plan=plan)
    return replace(item, input=relation, unnested=(*item.unnested, (asked.name, tuple(added))))


def _from_zero(plan: Plan, added: list[str]) -> tuple[Plan, list[str]]:
    """The new columns with the number first, counted from 0, as Spark's posexplode gives them."""
    *others, number = added
    kept = [(name, Column(name)) for name in plan.schema.names if name not in added]
    of = plan.schema.field(number).type
    position = Cast(Arithmetic("-", Column(number), Literal(1, of)), pa.int32())
    made = Project(plan, (*kept, (number, position), *((name, Column(name)) for name in others)))
    return made, [number, *others]


def _names(name: str, of: pa.DataType) -> tuple[str, ...]:
    """The columns of an UNNEST that does not list them: the fields of a struct, or the name itself."""
    if pa.types.is_map(of):
        return ("key", "value")
    if pa.types.is_list(of) and pa.types.is_struct(of.value_type):
        return tuple(each.name for each in of.value_type)
    return (name,)


def _numbered(asked: Asked, names: tuple[str, ...], parts: int) -> tuple[str | None, tuple[str, ...]]:
    """The number's column and the others: in `u(item, n)` WITH ORDINALITY, the last name is the number's."""
    if asked.ordinal == "ordinality" and len(names) == parts + 1 and asked.columns:
        return names[-1], names[:-1]
    return asked.ordinal, names


def move_explode(node: exp.Select) -> None:
    """`SELECT explode(x) AS item` becomes an UNNEST in FROM, and a column."""
    found = [each for each in node.expressions if _exploded(each) is not None]
    if len(found) > 1:
        fail(Code.NOT_CQL, "SELECT can have one explode", found[1], "write the other as UNNEST(…) in FROM")
    for each in found:
        call = _exploded(each)
        assert call is not None
        if len(call.expressions) != 1:
            fail(Code.ARGUMENTS, f"{call.name} takes 1 argument, not {len(call.expressions)}", call)
        counted = call.name.lower() in COUNTED
        if call.name.lower().startswith("inline"):
            hint = "write FROM s LATERAL VIEW inline(items) u, or UNNEST(items)"
            fail(Code.NOT_CQL, "inline gives several columns, so it belongs in FROM", call, hint)
        names = [one.name for one in each.expressions] if isinstance(each, exp.Aliases) else []
        names = names or ([each.alias] if each.alias else ["pos", "col"] if counted else ["col"])
        if len(names) != 1 + counted:
            hint = f"write {call.name}(x) AS {'(pos, item)' if counted else 'item'}"
            fail(Code.COLUMN_COUNT, f"{call.name} gives {1 + counted} columns here", call, hint)
        identifiers = [exp.to_identifier(name) for name in names]
        alias = exp.TableAlias(this=exp.to_identifier(names[-1]), columns=identifiers)
        view = exp.Lateral(this=call.copy(), view=True, alias=alias)
        view.meta.update(call.meta)
        node.append("laterals", view)
        at = node.expressions.index(each)
        node.set(
            "expressions", [*node.expressions[:at], *map(exp.column, names), *node.expressions[at + 1 :]]
        )


def _exploded(node: exp.Expr) -> exp.Anonymous | None:
    """The call of `explode` that a column of SELECT is, if it is one."""
    inner = node.this if isinstance(node, (exp.Alias, exp.Aliases)) else node
    if isinstance(inner, exp.Anonymous) and inner.name.lower() in EXPLODES:
        return inner
    return None
