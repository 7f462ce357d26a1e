"""GROUP BY and aggregates: which expressions are keys, which aggregates are asked for, what comes after.

After aggregation a row has the keys, the aggregates and, for a sliding window, its bounds. An expression over
the input becomes one over such a row by putting the key's column wherever a key's expression stands; a
column of the input that is left over is not grouped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import pyarrow as pa
from sqlglot import exp

from headrace.errors import PlanError
from headrace.expressions import Case, Column, Expression, Literal
from headrace.plan.aggregates import result_type
from headrace.plan.nodes import AggregateCall
from headrace.plan.user_aggregates import UserAggregate, UserCall
from headrace.schema import Schema
from headrace.sql.aggregate_names import AGGREGATES, DISTINCT, SEES_NULLS
from headrace.sql.clauses import GRANULARITY, GranularityClause
from headrace.sql.codes import Code
from headrace.sql.definitions import USER
from headrace.sql.granularity import bounds_of
from headrace.sql.place import fail
from headrace.sql.quality import GRAIN, WORST, is_quality
from headrace.sql.reading import check_read
from headrace.sql.resolver import BOUNDS, Resolver
from headrace.sql.scope import Scope, fresh
from headrace.sql.typed import expression, predicate, type_of
from headrace.sql.user_calls import user_arguments

Arguments = tuple[Expression, ...]
"""What an aggregate is taken of; nothing is `*`."""


class Grouping(Resolver):
    """Resolves SELECT and HAVING where rows are grouped, and collects the aggregates on the way.

    A name that is no column of the input may be a bound of the sliding window or an alias of SELECT.
    """

    def __init__(
        self,
        scope: Scope,
        aliases: Mapping[str, exp.Expr],
        sliding: bool,
        granularity: GranularityClause | None = None,
    ) -> None:
        super().__init__(scope, "GROUP BY")
        self.aliases = aliases
        self.keys: dict[Expression, str] = {}
        self.calls: dict[tuple[str, Arguments], AggregateCall] = {}
        self.uses_bounds = False
        self.granularity = granularity
        self.shown: str | None = None
        self._taken = {name.lower() for name in scope.schema.names}
        self.bounds = {name: fresh(name, self._taken) for name in BOUNDS if sliding}
        self._added: list[pa.Field] = [pa.field(name, pa.int64()) for name in self.bounds.values()]
        self._inside_alias = False

    @property
    def schema(self) -> Schema:
        return pa.schema([*self.scope.schema, *self._added])

    def add_key(self, node: exp.Expr) -> None:
        """Group by `node`; the bounds of the window are the same for all rows of an answer."""
        found = expression(self, node)
        if self._is_bound(found):
            return
        if isinstance(found, Literal) and is_quality(node):
            return
        if isinstance(found, Literal):
            fail(Code.GROUP_POSITION, "a constant groups nothing", node, "name a column")
        name = found.name if isinstance(found, Column) else fresh("key", self._taken)
        self.keys.setdefault(found, name)

    def column(self, node: exp.Column) -> Expression:
        found, name = self.scope.find(node), node.name.lower()
        bare = not node.args.get("table")
        is_alias = bare and name in self.aliases and not self._inside_alias
        if found is not None and not (is_alias and self._hides(found)):
            return Column(found)
        if bare and name in self.bounds:
            self.uses_bounds = True
            return Column(self.bounds[name])
        return self._alias(self.aliases[name]) if is_alias else self.missing(node)

    def _hides(self, column: str) -> bool:
        """In HAVING an alias comes before a column that is not grouped, as in Spark."""
        return self.clause == "HAVING" and Column(column) not in self.keys

    def _alias(self, node: exp.Expr) -> Expression:
        from headrace.sql.scalars import build

        self._inside_alias = True
        try:
            return build(self, node)
        finally:
            self._inside_alias = False

    def aggregate(self, node: exp.Anonymous, condition: exp.Expr | None) -> Expression:
        if self.clause == "GROUP BY":
            return super().aggregate(node, condition)
        inside = Inside(self)
        user = node.meta.get(USER)
        if isinstance(user, UserAggregate):
            function, arguments = user.name, user_arguments(inside, node, user)
            sees_nulls = user.nulls
        else:
            function, arguments = _arguments(inside, node)
            sees_nulls = function in SEES_NULLS
        if condition is not None:
            if sees_nulls:
                fail(Code.AGGREGATE, f"{function} takes no FILTER", node, "filter in a subquery")
            arguments = _filtered(inside, arguments, condition)
        self._round(node)
        key = (function, arguments)
        if key not in self.calls:
            self.calls[key] = self._typed(inside, function, arguments, node)
        return Column(self.calls[key].name)

    def quality(self, node: exp.Anonymous) -> Expression:
        """Of a group the worst that its rows were given: the answer rests on it."""
        found = super().quality(node)
        if isinstance(found, Literal) or self.clause == "GROUP BY" or found in self.keys:
            return found
        key = (WORST[node.name.lower()], (found,))
        if key not in self.calls:
            self.calls[key] = self._typed(Inside(self), *key, node)
        return Column(self.calls[key].name)

    def grain(self, node: exp.Anonymous) -> Expression:
        if self.granularity is None or node.expressions:
            return super().grain(node)
        grain, coarsest = bounds_of(self.granularity, self.scope)
        if coarsest is None:
            return Literal(grain, pa.int64())
        if self.shown is None:
            self.shown = fresh(GRAIN, self._taken)
            self._added.append(pa.field(self.shown, pa.int64()))
        return Column(self.shown)

    def _round(self, node: exp.Anonymous) -> None:
        """Take up the granularity written after an aggregate; those of one SELECT are one."""
        outer = node.parent if isinstance(node.parent, exp.Filter) else node
        clause = node.meta.get(GRANULARITY) or outer.meta.get(GRANULARITY)
        if clause is None:
            return
        parts = (clause.finest.parts, clause.coarsest and clause.coarsest.parts)
        known = self.granularity
        if known is not None and parts != (known.finest.parts, known.coarsest and known.coarsest.parts):
            hint = "aggregate in two subqueries and join them"
            fail(Code.GRANULARITY, "the aggregates of a SELECT have one granularity", clause.span, hint)
        self.granularity = clause

    def _typed(self, inside: Resolver, function: str, given: Arguments, node: exp.Expr) -> AggregateCall:
        """The call under a name of its own, its arguments still to be given columns."""
        name, user = fresh(function, self._taken), node.meta.get(USER)
        call = AggregateCall(name, function) if user is None else UserCall(name, function, definition=user)
        below = pa.schema([pa.field(f"x{i}", type_of(inside, each, node)) for i, each in enumerate(given)])
        call = call.over(below.names)
        try:
            self._added.append(pa.field(name, result_type(call, below)))
        except PlanError as error:
            fail(Code.TYPES, error.message, node, error.hint)
        return call

    def after(self, found: Expression) -> Expression:
        """`found`, which was made here, as an expression over the grouped rows."""
        made = self._substituted(found)
        assert isinstance(made, Expression)
        return made

    def _substituted(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(self._substituted(each) for each in value)
        if not isinstance(value, Expression):
            return value
        if value in self.keys:
            return Column(self.keys[value])
        if isinstance(value, Column):
            return self._grouped(value)
        parts = {each.name: getattr(value, each.name) for each in fields(value)}
        changed = {name: self._substituted(part) for name, part in parts.items()}
        same = all(changed[name] is part for name, part in parts.items())
        return value if same else replace(value, **changed)

    def _grouped(self, column: Column) -> Column:
        calls = {call.name for call in self.calls.values()}
        if column.name in calls or self._is_bound(column):
            return column
        hint = "add it to GROUP BY, or aggregate it: first(…), max(…)"
        fail(Code.NOT_GROUPED, f"column {column.name!r} is not grouped", self.origin(column), hint)

    def _is_bound(self, found: Expression) -> bool:
        return isinstance(found, Column) and found.name in self.bounds.values()


class Inside(Resolver):
    """Resolves what an aggregate is taken of: columns of the rows, and the quality that each was given."""

    def __init__(self, grouping: Grouping) -> None:
        super().__init__(grouping.scope, "an aggregate")
        self._grouping = grouping

    @property
    def schema(self) -> Schema:
        return self._grouping.schema

    def grain(self, node: exp.Anonymous) -> Expression:
        return self._grouping.grain(node)


def _arguments(inside: Resolver, node: exp.Anonymous) -> tuple[str, Arguments]:
    """The aggregate that is meant and what it is taken of."""
    check_read(node)
    function = AGGREGATES[node.name.lower()]
    if len(node.expressions) != 1:
        fail(Code.ARGUMENTS, f"{function} takes 1 argument, not {len(node.expressions)}", node)
    of = node.expressions[0]
    if isinstance(of, exp.Distinct):
        return _distinct(inside, function, of)
    if isinstance(of, exp.Star):
        check_read(of)
        if function != "count":
            fail(Code.AGGREGATE, f"{function} needs a column", of, "only count takes *")
        return function, ()
    found = expression(inside, of)
    counts_all = function == "count" and isinstance(found, Literal) and found.value is not None
    return function, () if counts_all else (found,)


def _distinct(inside: Resolver, function: str, node: exp.Distinct) -> tuple[str, Arguments]:
    if function not in DISTINCT or len(node.expressions) != 1:
        hint = "count(DISTINCT x) of one expression is the one there is"
        fail(Code.AGGREGATE, f"{function}(DISTINCT …) is not known", node, hint)
    return DISTINCT[function], (expression(inside, node.expressions[0]),)


def _filtered(inside: Resolver, arguments: Arguments, condition: exp.Expr) -> Arguments:
    """Rows that fail the condition count as null, which aggregates pass over."""
    first, *others = arguments or (Literal(1),)
    return (Case(((predicate(inside, condition), first),)), *others)
