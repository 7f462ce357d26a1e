"""The plan of a grouped SELECT: arguments computed, rows aggregated, groups filtered, columns listed.

Over one stream through a sliding window the aggregate keeps panes and knows the window's bounds; over
anything else it is the aggregate of a relation.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from headrace.expressions import Column, Expression
from headrace.plan.nodes import Aggregate, AggregateCall, Plan, Project, SlidingAggregate
from headrace.plan.session import SessionAggregate
from headrace.plan.windows import Session, Sliding
from headrace.sql.codes import Code
from headrace.sql.columns import Listed, projected
from headrace.sql.granularity import refuse_on_slides, rounded
from headrace.sql.grouping import Grouping
from headrace.sql.joins import joined, selected
from headrace.sql.place import fail
from headrace.sql.quality import clause_of
from headrace.sql.reading import check_read
from headrace.sql.scope import Scope, fresh
from headrace.sql.typed import conjuncts


def aggregated(
    scope: Scope,
    where: list[Expression],
    group: exp.Group | None,
    columns: list[Listed],
    having: exp.Expr | None,
    aliases: Mapping[str, exp.Expr],
) -> Plan:
    """The whole plan above FROM and WHERE."""
    window = _shown_window(scope)
    clause = clause_of([*(each.node for each in columns), having])
    grouping = Grouping(scope, aliases, window is not None, clause)
    for key in _keys(group, columns):
        grouping.add_key(key)
    grouping.clause = "SELECT"
    made = [(each.name, each.resolved(grouping)) for each in columns]
    grouping.clause = "HAVING"
    conditions = conjuncts(grouping, having)
    plan = selected(scope.items[0].input.plan, where) if window else joined(scope, where)
    partition = _partition(grouping, window, group) if isinstance(window, Session) else None
    grouped = _aggregate(plan, grouping, window, partition)
    kept = selected(grouped, [grouping.after(each) for each in conditions])
    return projected(kept, [(name, grouping.after(each)) for name, each in made])


def _shown_window(scope: Scope) -> Sliding | Session | None:
    """The window of the only item, if its answers have a start and an end to show."""
    only = scope.items[0].window if len(scope.items) == 1 else None
    return only if isinstance(only, (Sliding, Session)) else None


def _keys(group: exp.Group | None, columns: list[Listed]) -> list[exp.Expr]:
    """What GROUP BY names; a number is a position in the SELECT list."""
    if group is None:
        return []
    check_read(group)
    return [_at_position(each, columns) for each in group.expressions]


def _at_position(node: exp.Expr, columns: list[Listed]) -> exp.Expr:
    if not isinstance(node, exp.Literal) or node.is_string:
        return node
    position = int(node.name) if node.name.isdecimal() and len(node.name) < 9 else 0
    if not 1 <= position <= len(columns) or columns[position - 1].star is not None:
        hint = f"SELECT lists {len(columns)} columns"
        fail(Code.GROUP_POSITION, f"GROUP BY {node.name}: no such column", node, hint)
    return columns[position - 1].node


def _aggregate(
    plan: Plan, grouping: Grouping, window: Sliding | Session | None, partition: tuple[str, ...] | None
) -> Plan:
    if window is None:
        plan = rounded(plan, grouping.granularity, grouping.scope, grouping.shown)
    prepared, calls = _prepared(plan, grouping)
    keys = tuple(grouping.keys.values())
    if not keys and not calls:
        calls = (AggregateCall("count", "count"),)
    if window is None:
        return Aggregate(prepared, keys, calls)
    refuse_on_slides(grouping.granularity)
    bounds = (
        (grouping.bounds["window_start"], grouping.bounds["window_end"]) if grouping.uses_bounds else None
    )
    if isinstance(window, Session):
        return SessionAggregate(prepared, keys, calls, window.gap, bounds, partition)
    return SlidingAggregate(prepared, keys, calls, window, bounds)


def _partition(grouping: Grouping, window: Session, group: exp.Group | None) -> tuple[str, ...] | None:
    """The group keys that sessions are made by; None where that is all of them."""
    if window.keys is None:
        return None
    known = {each.name: name for each, name in grouping.keys.items() if isinstance(each, Column)}
    missing = next((name for name in window.keys if name not in known), None)
    if missing is not None:
        hint = f"GROUP BY {missing} too: groups of different sessions are not one"
        message = f"sessions are made by {missing}, which is not grouped by"
        fail(Code.SESSION, message, group, hint)
    partition = tuple(known[name] for name in window.keys)
    return None if set(partition) == set(grouping.keys.values()) else partition


def _prepared(plan: Plan, grouping: Grouping) -> tuple[Plan, tuple[AggregateCall, ...]]:
    """The calls with their arguments as columns; keys and arguments that are none yet are computed first."""
    columns = {name: key for key, name in grouping.keys.items()}
    taken = {
        name.lower() for name in (*plan.schema.names, *columns, *(c.name for c in grouping.calls.values()))
    }
    calls = []
    for (_, arguments), call in grouping.calls.items():
        calls.append(call.over([_column_of(each, columns, taken) for each in arguments]))
    plain = all(isinstance(each, Column) for each in columns.values())
    return (plan if plain else Project(plan, tuple(columns.items()))), tuple(calls)


def _column_of(argument: Expression, columns: dict[str, Expression], taken: set[str]) -> str:
    """The column that holds `argument`, added if it is new."""
    known = next((name for name, each in columns.items() if each == argument), None)
    if known is not None:
        return known
    name = argument.name if isinstance(argument, Column) else fresh("argument", taken)
    columns[name] = argument
    return name
