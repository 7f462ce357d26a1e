"""EXISTS and IN (SELECT …) in WHERE: semi joins, and anti joins for NOT.

A condition of the subquery may read columns of the query around it. Such conditions become the condition of
the join; the others stay in the subquery. `x NOT IN (SELECT y …)` is true if y is never x, and neither is
null, or if the subquery has no rows: three anti joins, two of which are left out if a condition says that x
and y are not null.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from sqlglot import exp

from headrace.expressions import Cast, Column, Comparison, Expression, IsNotNull, IsNull, Literal, Not
from headrace.expressions.substitution import conjuncts
from headrace.expressions.types import common_type, sql_name
from headrace.plan.nodes.core import EQUALITIES, Distinct, Equality, Plan, Project, Select, Window
from headrace.plan.nodes.outer_join import JoinKind, outer_joined
from headrace.plan.nodes.windows import Session, Unbounded
from headrace.schema import Schema
from headrace.sql.binder.environment import Environment, one_domain
from headrace.sql.binder.from_clause import From, Translate, read_from
from headrace.sql.binder.intervals import Interval, Within, interval_of, semi_within, time_of
from headrace.sql.binder.joins import joined, with_keys
from headrace.sql.binder.resolver import Resolver
from headrace.sql.binder.scalars import chain
from headrace.sql.binder.scope import Scope, fresh
from headrace.sql.binder.select_list import has_aggregate
from headrace.sql.binder.typed import conjunction, expression, predicate
from headrace.sql.parser.parse import check_read
from headrace.sql.place import Code, fail

PLAIN: Final = ("group", "having", "limit", "qualify", "order", "with_")
"""Clauses that a subquery cannot have if it reads columns of the query around it."""
IN_FROM: Final = "compute it in a subquery in FROM, and compare with its columns"


def conditions_of(source: From, node: exp.Select) -> list[exp.Expr]:
    """The conditions of WHERE that read no other query."""
    clause = None if source.takes_where else node.args.get("where")
    return [each for each in _parts(clause) if _half(each) is None]


def with_subqueries(env: Environment, node: exp.Select, source: From, translate: Translate) -> From:
    """The FROM clause, with the conditions of WHERE that read other queries."""
    clause = None if source.takes_where else node.args.get("where")
    found = [half for half in map(_half, _parts(clause)) if half is not None]
    if not found:
        return source
    resolver = Resolver(source.scope, "WHERE")
    parts = [_Part(env, translate, resolver, conditions_of(source, node), *half) for half in found]
    halves = [half for part in parts for half in part.halves()]
    if len(halves) > 1 and any(half.interval is not None for half in halves):
        message = "EXISTS within an interval of time must be the only condition that reads another query"
        hint = "use NOT EXISTS in place of NOT IN, put other conditions in a subquery, or use windows"
        fail(Code.NOT_CQL, message, parts[-1].node, hint)
    domain = source.ticks_per_second
    for part in parts:
        domain = one_domain(domain, part.domain, part.node)
    return replace(source, scope=replace(source.scope, halves=tuple(halves)), ticks_per_second=domain)


def _parts(clause: exp.Expr | None) -> list[exp.Expr]:
    """The conditions that AND connects."""
    node = clause.this if isinstance(clause, exp.Where) else clause
    while isinstance(node, exp.Paren):
        node = node.this
    if node is None:
        return []
    return [node] if not isinstance(node, exp.And) else [p for each in chain(node) for p in _parts(each)]


HALVES: Final = {"LEFT SEMI": False, "SEMI": False, "LEFT ANTI": True, "ANTI": True}
"""Spark's semi and anti joins, and whether they keep the rows without a partner."""


def move_semi_joins(node: exp.Select) -> None:
    """`a LEFT SEMI JOIN b ON c` becomes `a WHERE EXISTS (SELECT 1 FROM b WHERE c)`; ANTI: NOT EXISTS."""
    joins = node.args.get("joins") or []
    for join in [each for each in joins if _words(each) in HALVES]:
        if any(str(each.args.get("side")).upper() in ("RIGHT", "FULL") for each in joins):
            hint = "put this join in a subquery"
            fail(Code.JOIN_KIND, f"{_words(join)} JOIN beside a RIGHT or FULL JOIN", join.this, hint)
        if join.args.get("on") is None:
            hint = "write ON a.k = b.k"
            fail(Code.JOIN_KIND, f"{_words(join)} JOIN needs a condition", join.this, hint)
        joins.remove(join)
        inner = exp.Select(
            expressions=[exp.Literal.number(1)],
            from_=exp.From(this=join.this),
            where=exp.Where(this=join.args["on"]),
        )
        exists: exp.Expr = exp.Exists(this=inner)
        condition = exp.Not(this=exists) if HALVES[_words(join)] else exists
        where = node.args.get("where")
        node.set(
            "where",
            exp.Where(this=condition if where is None else exp.And(this=where.this, expression=condition)),
        )


def _words(join: exp.Join) -> str:
    """The kind of a join, as it is written."""
    return " ".join(str(join.args[key]).upper() for key in ("side", "kind") if join.args.get(key))


def _half(node: exp.Expr) -> tuple[exp.Exists | exp.In, bool] | None:
    """EXISTS or IN with a query, and whether it is negated; None for any other condition."""
    negated = False
    while isinstance(node, (exp.Not, exp.Paren)):
        negated ^= isinstance(node, exp.Not)
        node = node.this
    if isinstance(node, exp.Exists) or (isinstance(node, exp.In) and node.args.get("query")):
        return node, negated
    return None


@dataclass(frozen=True)
class SemiJoin:
    """The rows of a plan with a partner in another one, or without: `keys` are expressions over the plan.

    `right` has columns under names that the plan does not have.
    """

    kind: JoinKind
    right: Plan
    keys: Sequence[Equality[Expression]]
    residual: Expression | None
    interval: Interval | None = None

    def over(self, plan: Plan) -> Plan:
        """The rows of the plan that meet it; keys that are computed are dropped again."""
        taken = {name.lower() for name in (*plan.schema.names, *self.right.schema.names)}
        left, lefts = with_keys(plan, [each.left for each in self.keys], taken)
        right, rights = with_keys(self.right, [each.right for each in self.keys], taken)
        safe = [each.null_safe for each in self.keys]
        pairs = [Equality(*each) for each in zip(lefts, rights, safe, strict=True)]
        if self.interval is None:
            made: Plan = outer_joined(self.kind, left, right, pairs, self.residual)
        else:
            made = semi_within(self.kind, Within(left, right, pairs, self.residual, self.interval))
        if left is plan:
            return made
        return Project(made, tuple((name, Column(name)) for name in plan.schema.names))


class _Inner(Resolver):
    """Resolves columns of a subquery first, then those of the query around it."""

    def __init__(self, inner: Scope, names: dict[str, str], outer: Resolver) -> None:
        super().__init__(inner, "WHERE of a subquery")
        self._names, self._outer = names, outer

    @property
    def schema(self) -> Schema:
        own = [pa.field(self._names[each.name], each.type) for each in self.scope.schema]
        return pa.schema([*self._outer.schema, *own])

    def column(self, node: exp.Column) -> Expression:
        if is_outer(node, self.scope):
            return self._outer.column(node)
        found = super().column(node)
        return found.rename(self._names)


def is_outer(node: exp.Column, inner: Scope) -> bool:
    """Whether a column is not one of the subquery."""
    table = node.args.get("table")
    if table is not None:
        return all(name.lower() != table.name.lower() for name, _ in inner.labels)
    return all(found.written.lower() != node.name.lower() for item in inner.columns for found in item)


@dataclass
class _Part:
    """One EXISTS or IN, with the query around it: its resolver, and its other conditions."""

    env: Environment
    translate: Translate
    outer: Resolver
    around: list[exp.Expr]
    node: exp.Exists | exp.In
    negated: bool
    domain: int | None = None

    def halves(self) -> list[SemiJoin]:
        """The semi or anti joins that it means."""
        query = self.node.args["query"] if isinstance(self.node, exp.In) else self.node.this
        while isinstance(query, (exp.Subquery, exp.Paren)):
            check_read(query)
            query = query.this
        kind = JoinKind.ANTI if self.negated else JoinKind.SEMI
        if isinstance(query, exp.Select):
            source = read_from(self.env, query, self.translate)
            apart = [
                each for each in _parts(query.args.get("where")) if self._reads_outer(each, source.scope)
            ]
            if apart:
                return self._correlated(kind, query, source, apart)
        return self._alone(kind, query)

    def _reads_outer(self, node: exp.Expr, inner: Scope) -> bool:
        columns = node.find_all(exp.Column)
        return _half(node) is None and any(is_outer(each, inner) and self._knows(each) for each in columns)

    def _knows(self, node: exp.Column) -> bool:
        """Whether the query around it has the column; if none has, the error is that of the subquery."""
        return not is_outer(node, self.outer.scope)

    # ------------------------------------------------------------------------------------ the subquery

    def _alone(self, kind: JoinKind, query: exp.Expr) -> list[SemiJoin]:
        """A subquery that does not depend on the query around it."""
        relation = self.translate(self.env, query)
        self.domain = relation.ticks_per_second
        plan = Window(relation.plan, Unbounded()) if relation.is_stream else relation.plan
        names = self._named(plan.schema.names)
        right = _renamed(plan, names)
        if isinstance(self.node, exp.Exists):
            return [SemiJoin(kind, right, [], None)]
        self._check_columns(len(names), query)
        of = Column(next(iter(names.values())))
        return self._in(kind, right, of, [], [], right.schema)

    def _correlated(
        self, kind: JoinKind, query: exp.Select, source: From, apart: list[exp.Expr]
    ) -> list[SemiJoin]:
        """A subquery with conditions that read columns of the query around it."""
        self._check_plain(query, source)
        self.domain = source.ticks_per_second
        source = with_subqueries(self.env, query, source, self.translate)
        names = self._named(source.scope.schema.names)
        inner, own = _Inner(source.scope, names, self.outer), Resolver(source.scope, "WHERE")
        kept = [each for each in conditions_of(source, query) if each not in apart]
        conditions = [predicate(own, each) for each in kept]
        right = _renamed(joined(source.scope, conditions), names)
        on = [predicate(inner, each) for each in apart]
        keys, rest = self._keys(on, inner.schema)
        interval = self._interval(on, source.scope, names)
        if isinstance(self.node, exp.Exists):
            return [SemiJoin(kind, right, keys, conjunction(rest), interval)]
        self._check_columns(len(query.expressions), query)
        listed = query.expressions[0].unalias()
        if isinstance(listed, exp.Star):
            fail(Code.COLUMN_COUNT, "IN compares with one column", listed, "name the column")
        of = expression(inner, listed)
        found = self._in(kind, right, of, keys, rest, inner.schema)
        return [replace(each, interval=interval) for each in found]

    def _interval(self, on: list[Expression], inner: Scope, names: dict[str, str]) -> Interval | None:
        """How far apart partners are, if conditions bound the times of two streams without windows."""
        if len(self.outer.scope.items) > 1 or len(inner.items) > 1 or inner.halves:
            return None
        left, right = time_of(self.outer.scope, 0), time_of(inner, 0)
        if left is None or right is None:
            return None
        found = interval_of(on, left, names[right])
        return found if found.decides(JoinKind.SEMI) else None

    def _check_plain(self, query: exp.Select, source: From) -> None:
        """A subquery that depends on the query around it is FROM and WHERE."""
        clause = next((query.args[each] for each in PLAIN if query.args.get(each)), None)
        aggregate = next((each for each in query.expressions if has_aggregate(each)), None)
        if clause is not None or aggregate is not None:
            message = "a subquery that reads columns of the query around it cannot be grouped or ordered"
            fail(Code.NOT_CQL, message, clause or aggregate, IN_FROM)
        if any(isinstance(item.window, Session) for item in source.scope.items):
            fail(Code.SESSION, "rows of a SESSION window can only be aggregated", query, IN_FROM)

    def _check_columns(self, count: int, query: exp.Expr) -> None:
        if count != 1:
            message = f"IN compares with one column, and this query has {count}"
            fail(Code.COLUMN_COUNT, message, query, "use EXISTS to compare several columns")

    def _named(self, names: Sequence[str]) -> dict[str, str]:
        """Names for the columns of the subquery that the query around it does not have."""
        taken = {name.lower() for name in self.outer.schema.names}
        return {name: fresh(f"subquery.{name}", taken) for name in names}

    # ------------------------------------------------------------------------------------- conditions

    def _keys(
        self, conditions: list[Expression], schema: Schema
    ) -> tuple[list[Equality[Expression]], list[Expression]]:
        """The equalities between both queries as keys, and the other conditions."""
        keys, rest = [], []
        for each in conditions:
            key = self._key(each, schema)
            if key is None:
                rest.append(each)
            else:
                keys.append(key)
        return keys, rest

    def _key(self, condition: Expression, schema: Schema) -> Equality[Expression] | None:
        if not isinstance(condition, Comparison) or condition.op not in EQUALITIES:
            return None
        around = set(self.outer.schema.names)
        sides = condition.left, condition.right
        for left, right in (sides, sides[::-1]):
            if (
                left.columns()
                and left.columns() <= around
                and right.columns()
                and not right.columns() & around
            ):
                cast = _common(left, right, schema)
                return None if cast is None else Equality(*cast, EQUALITIES[condition.op])
        return None

    def _in(
        self,
        kind: JoinKind,
        right: Plan,
        of: Expression,
        keys: list[Equality[Expression]],
        rest: list[Expression],
        schema: Schema,
    ) -> list[SemiJoin]:
        """`x IN (SELECT of …)`, and for NOT IN what SQL says about nulls."""
        assert isinstance(self.node, exp.In)
        wanted = expression(self.outer, self.node.this)
        both = pa.schema([*self.outer.schema, *(f for f in schema if f.name not in self.outer.schema.names)])
        cast = _common(wanted, of, both)
        if cast is None:
            types = " and ".join(sql_name(each.type(both)) for each in (wanted, of))
            fail(Code.TYPES, f"IN compares {types}", self.node, "write a CAST")
        equal: Equality[Expression] = Equality(*cast)
        found = [SemiJoin(kind, right, [equal, *keys], conjunction(rest))]
        if kind is JoinKind.SEMI:
            return found
        if not _never_null(right, of):
            found.append(
                SemiJoin(kind, _once(Select(right, IsNull(of)), keys, rest), keys, conjunction(rest))
            )
        if not any(_says_not_null(each, self.outer, wanted) for each in self.around):
            null: Equality[Expression] = Equality(IsNull(wanted), IsNotNull(Literal(True)))
            any_row = _once(right, keys, rest)
            found.append(SemiJoin(kind, any_row, [null, *keys], conjunction(rest)))
        return found


def _common(left: Expression, right: Expression, schema: Schema) -> tuple[Expression, Expression] | None:
    """Both sides in their common type; None if there is none."""
    of_left, of_right = left.type(schema), right.type(schema)
    common = of_left if of_left == of_right else common_type(of_left, of_right)
    if common is None:
        return None
    left = left if of_left == common else Cast(left, common)
    return left, right if of_right == common else Cast(right, common)


def _once(plan: Plan, keys: list[Equality[Expression]], rest: list[Expression]) -> Plan:
    """The distinct keys of a plan, if nothing else of it is compared; without keys, one row if it has any."""
    if rest or not all(isinstance(each.right, Column) for each in keys):
        return plan
    names = [each.right.name for each in keys if isinstance(each.right, Column)]
    columns: list[tuple[str, Expression]] = [(name, Column(name)) for name in dict.fromkeys(names)]
    return Distinct(Project(plan, tuple(columns) or (("subquery.", Literal(True)),)))


def _never_null(plan: Plan, of: Expression) -> bool:
    """Whether a condition of a plan says that a column of it is not null."""
    while isinstance(plan, (Select, Project, Window, Distinct)):
        if isinstance(plan, Select) and {IsNotNull(of), Not(IsNull(of))} & {*conjuncts(plan.predicate)}:
            return True
        if isinstance(plan, Project):
            of = dict(plan.columns)[of.name] if isinstance(of, Column) else of
            if not isinstance(of, Column):
                return False
        plan = plan.input
    return False


def _says_not_null(node: exp.Expr, resolver: Resolver, wanted: Expression) -> bool:
    """Whether a condition of WHERE is `wanted IS NOT NULL`."""
    negated = isinstance(node, exp.Not)
    inside = node.this if negated else node
    if not isinstance(inside, exp.Is) or not isinstance(inside.expression, exp.Null):
        return False
    return bool(negated ^ bool(inside.args.get("negate"))) and expression(resolver, inside.this) == wanted


def _renamed(plan: Plan, names: dict[str, str]) -> Plan:
    return Project(plan, tuple((new, Column(old)) for old, new in names.items()))
