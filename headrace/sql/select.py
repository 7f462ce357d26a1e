"""SELECT: FROM, WHERE, GROUP BY, HAVING, the list, DISTINCT, in that order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from sqlglot import exp

from headrace.expressions import Expression
from headrace.plan.nodes import Distinct, Plan
from headrace.sql.aggregation import aggregated
from headrace.sql.catalog import Relation
from headrace.sql.codes import Code
from headrace.sql.columns import Listed, SelectList, has_aggregate, listed, projected, read_select_list
from headrace.sql.environment import Environment
from headrace.sql.items import From, Translate, read_from
from headrace.sql.joins import joined, selected
from headrace.sql.outputs import OUTPUTS
from headrace.sql.place import fail
from headrace.sql.reading import check_read
from headrace.sql.resolver import Resolver
from headrace.sql.typed import conjuncts


@dataclass(frozen=True)
class Body:
    """A SELECT whose FROM has been read."""

    env: Environment
    node: exp.Select
    listing: SelectList
    source: From

    @cached_property
    def where(self) -> list[Expression]:
        """All conditions on the rows, those of ON first."""
        clause = self.node.args.get("where")
        resolver = Resolver(self.source.scope, "WHERE", self.listing.aliases)
        return self.source.conditions + conjuncts(resolver, clause.this if clause else None)

    @cached_property
    def columns(self) -> list[Listed]:
        return listed(self.env, self.source.scope, self.listing.nodes)

    @property
    def having(self) -> exp.Expr | None:
        clause = self.node.args.get("having")
        return clause.this if clause else None

    @property
    def is_grouped(self) -> bool:
        return bool(self.node.args.get("group")) or self.listing.has_aggregates or has_aggregate(self.having)


def select(env: Environment, node: exp.Select, translate: Translate) -> Relation:
    """What a SELECT means: a stream if it only selects and projects one, else a relation."""
    check_read(node)
    body = Body(env, node, read_select_list(node), read_from(env, node, translate))
    relation = _relation(body, _grouped(body) if body.is_grouped else _plain(body))
    return OUTPUTS[body.listing.output](relation, body.listing.place) if body.listing.output else relation


def _relation(body: Body, plan: Plan) -> Relation:
    items = body.source.scope.items
    implicit = plan.is_relation and not body.is_grouped and all(item.is_implicit for item in items)
    found = Relation(plan, body.source.ticks_per_second, implicit)
    return replace(found, plan=Distinct(plan)) if body.listing.distinct else found


def _plain(body: Body) -> Plan:
    """Rows one by one. A stream stays one where nothing needs to see two rows at once."""
    if body.having is not None:
        fail(Code.HAVING, "HAVING filters groups, and there are none", body.having, "write WHERE")
    scope = body.source.scope
    if len(scope.items) > 1 or body.listing.distinct:
        plan = joined(scope, body.where)
    else:
        plan = selected(scope.items[0].as_written, body.where)
    resolver = Resolver(scope, "SELECT")
    return projected(plan, [(each.name, each.resolved(resolver)) for each in body.columns])


def _grouped(body: Body) -> Plan:
    """Rows by group; without a window there would never be an end to a group's rows."""
    scope = body.source.scope
    streams = [item for item in scope.items if not item.input.is_static]
    if streams and all(item.is_implicit for item in streams):
        hint = f"write {streams[0].name} [RANGE 10 MINUTES], or [UNBOUNDED] if all rows count forever"
        fail(Code.NO_WINDOW, "an aggregate needs a window on the stream", body.source.place, hint)
    group = body.node.args.get("group")
    return aggregated(scope, body.where, group, body.columns, body.having, body.listing.aliases)
