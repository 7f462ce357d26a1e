"""GROUP BY and aggregates: finds the keys and the aggregates, and rewrites the expressions above them.

After aggregation a row has the keys, the aggregates and, for a sliding window, its bounds. In an expression
over the input, each key expression is replaced by the key's column; any input column that remains is not
grouped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, NoReturn

import pyarrow as pa
from sqlglot import exp

from headrace.aggregates.sql_aggregate import SqlAggregate
from headrace.errors import PlanError
from headrace.expressions import (
    And,
    Arithmetic,
    Case,
    Cast,
    Column,
    Comparison,
    Expression,
    IsNotNull,
    Literal,
)
from headrace.expressions.substitution import substitute
from headrace.expressions.types import widens
from headrace.plan.analysis.check import ends_known
from headrace.plan.nodes.aggregates import result_type
from headrace.plan.nodes.core import AggregateCall, Granularity, Plan
from headrace.plan.nodes.user_aggregates import UserAggregate, UserCall
from headrace.plan.nodes.windows import EVERY, Sliding
from headrace.schema import DataType, Schema
from headrace.sql.binder.aggregate_names import AGGREGATES, DISTINCT, SEES_NULLS
from headrace.sql.binder.more_aggregates import MORE, Asked
from headrace.sql.binder.quality_columns import GRAIN, WORST, durations, is_quality, written_after
from headrace.sql.binder.resolver import BOUNDS, Resolver
from headrace.sql.binder.scope import Scope, fresh
from headrace.sql.binder.typed import expression, predicate, type_of
from headrace.sql.binder.window_bounds import as_timestamp
from headrace.sql.binder.window_functions import STAMPED
from headrace.sql.binder.windows import least_of, ticks
from headrace.sql.definitions import USER
from headrace.sql.parser.clauses import GranularityClause
from headrace.sql.parser.parse import check_read
from headrace.sql.place import Code, fail

Arguments = tuple[Expression, ...]
"""The arguments of an aggregate; empty means `*`."""


class Grouping(Resolver):
    """Resolves SELECT and HAVING where rows are grouped, and collects the aggregates on the way.

    A name that is not a column of the input may be a bound of the sliding window or an alias of SELECT.
    `start` computes the start of the window of each row, if that is not the start of the sliding window. A
    call comes with the number of its granularity among `granularities`.
    """

    def __init__(
        self,
        scope: Scope,
        aliases: Mapping[str, exp.Expr],
        sliding: bool,
        granularities: Sequence[GranularityClause] = (),
        start: Expression | None = None,
    ) -> None:
        super().__init__(scope, "GROUP BY")
        self.aliases = aliases
        self.keys: dict[Expression, str] = {}
        self.calls: dict[tuple[str | UserAggregate, Arguments, int], AggregateCall] = {}
        self.uses_bounds = False
        self.granularities = tuple(granularities)
        self._granularity = 0
        self.quality_column: str | None = None
        self._taken = {name.lower() for name in scope.schema.names}
        self.bounds = {name: fresh(name, self._taken) for name in BOUNDS if sliding}
        self._added: list[pa.Field] = [pa.field(name, pa.int64()) for name in self.bounds.values()]
        self._inside_alias = False
        self._start = start
        if start is not None:
            self.keys[start] = fresh("window_start", self._taken)

    @property
    def schema(self) -> Schema:
        return pa.schema([*self.scope.schema, *self._added])

    def add_key(self, node: exp.Expr) -> None:
        """Group by `node`.

        The bounds of the window need no key: they are the same for all rows of an answer.
        """
        found = expression(self, node)
        if self._is_bound(found) or found == self._start:
            return
        if isinstance(found, Arithmetic) and node.name.lower() == "window_time":
            return
        if isinstance(found, Literal) and is_quality(node):
            return
        if isinstance(found, Literal):
            fail(
                Code.GROUP_POSITION,
                "cannot group by a constant",
                node,
                "name a column, or leave GROUP BY out",
            )
        name = found.name if isinstance(found, Column) else fresh("key", self._taken)
        self.keys.setdefault(found, name)

    def column(self, node: exp.Column) -> Expression:
        found, name = self.scope.find(node), node.name.lower()
        bare = not node.args.get("table")
        if bare and name == "window_time" and found is None and self.bounds:
            return Arithmetic("-", self.bound("window_end"), Literal(1))
        is_alias = bare and name in self.aliases and not self._inside_alias
        if found is not None and not (is_alias and self._hides(found)):
            return Column(found)
        if bare and name in self.bounds:
            bound = self.bound(name)
            return self._stamped(bound) if STAMPED in node.meta else bound
        return self._alias(self.aliases[name]) if is_alias else self.missing(node)

    def missing(self, node: exp.Column) -> NoReturn:
        slides = any(isinstance(each.window, Sliding) for each in self.scope.items)
        if node.name.lower() in BOUNDS and slides and len(self.scope.items) == 1:
            hint = "windows that may change or are rounded have no fixed start: headrace_window() is the size"
            self.scope.unknown(node, hint)
        super().missing(node)

    def bound(self, name: str) -> Expression:
        """`window_start` or `window_end`; the start may be a key, see `headrace.sql.binder.window_bounds`."""
        if name == "window_start" and self._start is not None:
            return self._start
        self.uses_bounds = True
        return Column(self.bounds[name])

    def _stamped(self, bound: Expression) -> Expression:
        """A bound as a timestamp, unless times are sequence numbers."""
        return as_timestamp(bound, _ticks_per_second(self.scope))

    def _hides(self, column: str) -> bool:
        """In HAVING, an alias takes precedence over a column that is not grouped, as in Spark."""
        return self.clause == "HAVING" and Column(column) not in self.keys

    def _alias(self, node: exp.Expr) -> Expression:
        """Resolve the expression behind an alias; aliases inside it are not resolved again."""
        from headrace.sql.binder.scalars import build

        self._inside_alias = True
        try:
            return build(self, node)
        finally:
            self._inside_alias = False

    def aggregate(self, node: exp.Anonymous, condition: exp.Expr | None) -> Expression:
        """The column of an aggregate call, computed once for equal calls; `condition` is its FILTER."""
        if self.clause == "GROUP BY":
            return super().aggregate(node, condition)
        inside = Inside(self)
        self._granularity = self._granularity_of(node)
        user = node.meta.get(USER)
        if (
            isinstance(user, UserAggregate)
            and isinstance(user.definition, SqlAggregate)
            and user.definition.folds
        ):
            return self._in_parts(inside, user, user.definition, node, condition)
        return self._called(inside, asked_of(inside, node, condition), node)

    def _in_parts(
        self,
        inside: Resolver,
        user: UserAggregate,
        made: SqlAggregate,
        node: exp.Anonymous,
        condition: exp.Expr | None,
    ) -> Expression:
        """An aggregate in SQL as an expression over the built-in ones that compute its columns."""
        given = user_arguments(inside, node, user)
        call_of(inside, Asked(user.name, given, user), user.name, node)
        chosen = [IsNotNull(each) for each in given]
        rows = And((*chosen, predicate(inside, condition))) if condition is not None else And(tuple(chosen))
        named = dict(zip(made.columns.names, given, strict=True))
        parts: dict[str, Expression] = {}
        for (column, function, of), field in zip(made.folds, made.tables[0].schema, strict=True):
            asked = Asked(function, (Case(((rows, substitute(of, named)),)),))
            parts[column] = Cast(self._called(inside, asked, node), field.type)
        count = self._called(inside, Asked("count", (Case(((rows, Literal(1)),)),)), node)
        value = Cast(substitute(made.terminate_block.value, parts), made.result)
        return Case(((Comparison(">", count, Literal(0)), value),))

    def quality(self, node: exp.Anonymous) -> Expression:
        """For a group, the worst quality of its rows: the answer depends on it."""
        found = super().quality(node)
        if isinstance(found, Literal) or self.clause == "GROUP BY" or found in self.keys:
            return found
        self._granularity = self._only(node)
        return self._called(Inside(self), Asked(WORST[node.name.lower()], (found,)), node)

    def grain(self, node: exp.Anonymous) -> Expression:
        if not self.granularities or node.expressions:
            return super().grain(node)
        grain, coarsest = bounds_of(self.granularities[self._only(node)], self.scope)
        if coarsest is None:
            return Literal(grain, pa.int64())
        if self.quality_column is None:
            self.quality_column = fresh(GRAIN, self._taken)
            self._added.append(pa.field(self.quality_column, pa.int64()))
        return Column(self.quality_column)

    def _granularity_of(self, node: exp.Anonymous) -> int:
        """The number of the granularity of an aggregate; a single one holds for the whole SELECT."""
        clause = written_after(node)
        if clause is not None:
            return [durations(each) for each in self.granularities].index(durations(clause))
        if len(self.granularities) > 1:
            fail(
                Code.GRANULARITY,
                f"{node.name.lower()} has no granularity, and others in this SELECT have different ones",
                node,
                f"write {node.name.lower()}(…) [GRANULARITY …]",
            )
        return 0

    def _only(self, node: exp.Anonymous) -> int:
        """The number of the only granularity; an error if there are several."""
        if len(self.granularities) > 1:
            fail(
                Code.QUALITY_COLUMN,
                f"{node.name.lower()}() is ambiguous: this SELECT has several granularities",
                node,
                "use a subquery for each granularity",
            )
        return 0

    def _called(self, inside: Resolver, asked: Asked, node: exp.Expr) -> Expression:
        """The column of an aggregate; equal ones are computed once."""
        key = (asked.definition or asked.function, asked.arguments, self._granularity)
        if key not in self.calls:
            self.calls[key] = self._typed(inside, asked, node)
        return Column(self.calls[key].name)

    def _typed(self, inside: Resolver, asked: Asked, node: exp.Expr) -> AggregateCall:
        """The call under a new name; its arguments are not columns yet."""
        call, of = call_of(inside, asked, fresh(asked.function, self._taken), node)
        self._added.append(pa.field(call.name, of))
        return call

    def after(self, found: Expression) -> Expression:
        """`found`, which this resolver made, as an expression over the grouped rows."""
        made = self._substituted(found)
        assert isinstance(made, Expression)
        return made

    def _substituted(self, value: Any) -> Any:
        """Replace key expressions by the columns of the keys, recursively."""
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
        """Check that a column exists after grouping."""
        calls = {call.name for call in self.calls.values()}
        if column.name in calls or self._is_bound(column):
            return column
        hint = "add it to GROUP BY, or aggregate it: first(…), max(…)"
        fail(
            Code.NOT_GROUPED,
            f"column {column.name!r} is neither grouped nor aggregated",
            self.origin(column),
            hint,
        )

    def _is_bound(self, found: Expression) -> bool:
        """Whether it is `window_start` or `window_end`."""
        return isinstance(found, Column) and found.name in self.bounds.values()


class Inside(Resolver):
    """Resolves the arguments of an aggregate: columns of the rows, and the quality of each row."""

    def __init__(self, grouping: Grouping) -> None:
        super().__init__(grouping.scope, "an aggregate")
        self._grouping = grouping

    @property
    def schema(self) -> Schema:
        return self._grouping.schema

    def grain(self, node: exp.Anonymous) -> Expression:
        return self._grouping.grain(node)


def asked_of(inside: Resolver, node: exp.Anonymous, condition: exp.Expr | None) -> Asked:
    """The aggregate that a call means, over the rows that meet `condition`, its FILTER."""
    user = node.meta.get(USER)
    if isinstance(user, UserAggregate):
        asked, sees_nulls = Asked(user.name, user_arguments(inside, node, user), user), user.nulls
    elif (more := MORE.get(node.name.lower())) is not None:
        asked, sees_nulls = more(inside, node), False
    else:
        asked = Asked(*_arguments(inside, node))
        sees_nulls = asked.function in SEES_NULLS
    if condition is None:
        return asked
    if sees_nulls:
        message = f"{asked.function} does not take FILTER"
        fail(Code.AGGREGATE, message, node, "filter the rows in a subquery")
    return _filtered(inside, asked, condition)


def call_of(inside: Resolver, asked: Asked, name: str, node: exp.Expr) -> tuple[AggregateCall, DataType]:
    """The call under a new name, and its type; its arguments are not columns yet."""
    function, given, user = asked.function, asked.arguments, asked.definition
    call = AggregateCall(name, function) if user is None else UserCall(name, function, definition=user)
    below = pa.schema([pa.field(f"x{i}", type_of(inside, each, node)) for i, each in enumerate(given)])
    call = call.over(below.names)
    try:
        return call, result_type(call, below)
    except PlanError as error:
        fail(Code.TYPES, error.message, node, error.hint)


def _arguments(inside: Resolver, node: exp.Anonymous) -> tuple[str, Arguments]:
    """The aggregate function and its arguments."""
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
            fail(Code.AGGREGATE, f"{function} needs a column", of, "only count(*) takes a star")
        return function, ()
    found = expression(inside, of)
    counts_all = function == "count" and isinstance(found, Literal) and found.value is not None
    return function, () if counts_all else (found,)


def _distinct(inside: Resolver, function: str, node: exp.Distinct) -> tuple[str, Arguments]:
    """The aggregate that computes `function(DISTINCT x)`."""
    if function not in DISTINCT or len(node.expressions) != 1:
        hint = "DISTINCT works in count, min and max, with one expression: count(DISTINCT x)"
        fail(Code.AGGREGATE, f"CQL does not support this {function}(DISTINCT …)", node, hint)
    return DISTINCT[function], (expression(inside, node.expressions[0]),)


def _filtered(inside: Resolver, asked: Asked, condition: exp.Expr) -> Asked:
    """Rows that fail the condition become null, which aggregates ignore."""
    arguments = list(asked.arguments or (Literal(1),))
    arguments[asked.nulled] = Case(((predicate(inside, condition), arguments[asked.nulled]),))
    return asked._replace(arguments=tuple(arguments))


# Arguments of user-defined aggregates, cast to the declared types.


def user_arguments(inside: Resolver, node: exp.Anonymous, user: UserAggregate) -> tuple[Expression, ...]:
    """The arguments of the aggregate; numbers of a narrower type are widened."""
    check_read(node)
    wanted, given = user.arguments, node.expressions
    odd = next((each for each in given if isinstance(each, (exp.Star, exp.Distinct))), None)
    if odd is not None:
        hint = "name the columns" if isinstance(odd, exp.Star) else "use a subquery with SELECT DISTINCT"
        fail(Code.AGGREGATE, f"{user.name} takes only columns and expressions", odd, hint)
    if len(given) != len(wanted):
        some = f"{len(wanted)} argument{'' if len(wanted) == 1 else 's'}"
        fail(Code.ARGUMENTS, f"{user.name} takes {some}, not {len(given)}", node)
    return tuple(_argument(inside, each, of) for each, of in zip(given, wanted, strict=True))


def _argument(inside: Resolver, node: exp.Expr, wanted: DataType | None) -> Expression:
    """One argument, widened to the declared type if possible."""
    found = expression(inside, node)
    of = type_of(inside, found, node)
    return found if wanted is None or of == wanted or not widens(of, wanted) else Cast(found, wanted)


# `AVG(x) [GRANULARITY …]`: the validity of rows is rounded before they are aggregated (Cammert et al., §2.2).


def rounded(plan: Plan, clause: GranularityClause | None, scope: Scope, quality_column: str | None) -> Plan:
    """The input of an aggregate at the requested granularity, which `quality_column` shows if given."""
    if clause is None:
        return plan
    if not ends_known(plan):
        hint = "use a time window such as [RANGE 1 HOUR]"
        fail(Code.GRANULARITY, "GRANULARITY needs a time window", clause.span, hint)
    grain, coarsest = bounds_of(clause, scope)
    slides = {i.window.ticks for i in scope.items if isinstance(i.window, Sliding)}
    if len(slides) > 1:
        hint = "use the same SLIDE and the same end in all windows"
        fail(Code.GRANULARITY, "GRANULARITY over windows that slide differently", clause.span, hint)
    for found in slides:
        if grain % found.slide or (coarsest or grain) % found.slide:
            hint = "choose multiples of the SLIDE"
            fail(Code.GRANULARITY, "GRANULARITY must be a multiple of the SLIDE", clause.span, hint)
    return Granularity(plan, grain, coarsest, quality_column, next(iter(slides), EVERY))


def bounds_of(clause: GranularityClause, scope: Scope) -> tuple[int, int | None]:
    """The finest and the coarsest granularity, in ticks; it is fixed if there is no coarsest."""
    per_second = _ticks_per_second(scope)
    if clause.coarsest is None:
        return ticks(clause.finest, per_second), None
    coarsest = ticks(clause.coarsest, per_second)
    return least_of(clause.finest, coarsest, "FINEST", "COARSEST", per_second), coarsest


def refuse_granularity(clauses: Sequence[GranularityClause]) -> None:
    """Reject a granularity of sessions and of windows that grow: they are answered once, at their end."""
    for clause in clauses:
        fail(
            Code.GRANULARITY,
            "GRANULARITY needs windows of one size: sessions and CUMULATE are answered at their ends",
            clause.span,
            "remove GRANULARITY, or write [RANGE …], with SLIDE or without",
        )


def _ticks_per_second(scope: Scope) -> int | None:
    """Ticks per second of the streams in FROM; tables have none."""
    return next((i.input.ticks_per_second for i in scope.items if not i.input.is_static), None)
