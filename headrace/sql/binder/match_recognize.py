"""MATCH_RECOGNIZE in FROM: translates the pattern, its definitions and its measures to a `Match`.

Expressions inside FIRST, LAST, PREV and aggregates are computed for each row below the match; PREV becomes a
look back (`Lag`). A definition is split at AND: what reads the row alone is evaluated for whole batches.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
from sqlglot import exp

from headrace.expressions import Column, Expression
from headrace.plan.nodes.core import Plan, Project
from headrace.plan.nodes.lag import Lag, LagCall
from headrace.plan.nodes.match import (
    MOST_STATES,
    MOST_VARIABLES,
    Fold,
    Match,
    Pick,
    Skip,
    Term,
    Variable,
    states_of,
)
from headrace.schema import DataType, Schema
from headrace.sql.binder.grouping import asked_of, call_of
from headrace.sql.binder.lag import is_by_time
from headrace.sql.binder.more_aggregates import Asked
from headrace.sql.binder.resolver import Resolver
from headrace.sql.binder.scope import Item, Scope, fresh
from headrace.sql.binder.typed import conjunction, conjuncts, expression, type_of
from headrace.sql.binder.windows import ticks
from headrace.sql.catalog import Relation
from headrace.sql.parser.clauses import Recognize, RecognizeClause
from headrace.sql.parser.parse import check_read
from headrace.sql.place import Code, fail

REFUSED: Final = {
    "next": ("NEXT", "define the later variable with PREV: B AS B.x > PREV(B.x)"),
    "classifier": ("CLASSIFIER()", "write CASE WHEN count(A.x) > 0 THEN 'A' … END in MEASURES"),
    "match_number": ("MATCH_NUMBER()", "count the matches: ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts)"),
}
OFFSET: Final = "the offset is a whole number, as in LAST(A.x, 1)"


def recognized(item: Item, node: Recognize) -> Relation:
    """The stream of matches in the rows of a FROM item."""
    if item.window is not None or not item.input.is_stream:
        hint = "remove the window; to limit the time of a match, use WITHIN INTERVAL '1' HOUR"
        fail(Code.PATTERN, "MATCH_RECOGNIZE needs a stream, and this is a relation", node.this, hint)
    return _Reading(item, node).relation()


@dataclass
class _Inputs:
    """Columns that are computed for each row: expressions, and values of earlier rows."""

    scope: Scope
    taken: set[str]
    computed: dict[Expression, tuple[str, DataType]] = field(default_factory=dict)
    earlier: dict[tuple[str, int], tuple[str, DataType]] = field(default_factory=dict)

    @property
    def schema(self) -> Schema:
        """The columns of a row, with those that are computed."""
        added = [*self.computed.values(), *self.earlier.values()]
        return pa.schema([*self.scope.schema, *(pa.field(name, of) for name, of in added)])

    def column(self, value: Expression, of: DataType) -> str:
        """The column that holds an expression."""
        if isinstance(value, Column):
            return value.name
        return self.computed.setdefault(value, (fresh("value", self.taken), of))[0]

    def before(self, column: str, of: DataType, offset: int) -> str:
        """The column that holds a value of the row so many rows before."""
        return self.earlier.setdefault((column, offset), (fresh("earlier", self.taken), of))[0]

    def over(self, plan: Plan, keys: tuple[str, ...]) -> Plan:
        """The rows with these columns."""
        if self.computed:
            columns = [(name, Column(name)) for name in plan.schema.names]
            plan = Project(plan, (*columns, *((name, e) for e, (name, _) in self.computed.items())))
        if self.earlier:
            calls = [LagCall(name, column, offset) for (column, offset), (name, _) in self.earlier.items()]
            plan = Lag(plan, keys, tuple(calls))
        return plan


@dataclass(frozen=True)
class _VariableScope(Scope):
    """The columns of an item, which may also be qualified by a variable; it hides a column of its name."""

    variables: frozenset[str] = frozenset()

    def has_item(self, name: str) -> bool:
        return name.lower() in self.variables or super().has_item(name)

    def find(self, node: exp.Column) -> str | None:
        table = node.args.get("table")
        own = table and table.name.lower() in self.variables
        return super().find(exp.Column(this=node.this) if own else node)


class _Reading:
    """The clauses of one MATCH_RECOGNIZE."""

    def __init__(self, item: Item, node: Recognize) -> None:
        self._item, self._node = item, node
        self._clause: RecognizeClause = node.meta[Recognize.CLAUSE]
        self.names: dict[str, str] = {name.lower(): name for name in self._clause.variables}
        self.scope = _VariableScope((item,), variables=frozenset(self.names))
        self.inputs = _Inputs(self.scope, {name.lower() for name in self.scope.schema.names})

    def relation(self) -> Relation:
        """The stream of matches."""
        self._check_order()
        self._check_pattern()
        keys = self._keys()
        variables = self._variables()
        measures = _Values(self, "MEASURES", None)
        columns = [(node.alias, expression(measures, node.this)) for node in self._measures(keys)]
        skip = Skip(self._clause.after, self._skipped())
        within = self._clause.within
        limit = None if within is None else ticks(within, self._item.input.ticks_per_second)
        below = self.inputs.over(self._item.input.plan, keys)
        plan = Match(below, keys, self._clause.pattern, variables, tuple(measures.terms), skip, limit)
        shown = [*((key, Column(key)) for key in keys), *columns]
        return Relation(
            Project(plan, tuple(shown)),
            self._item.input.ticks_per_second,
            False,
            self._time(measures, columns),
        )

    def _time(self, measures: _Values, columns: list[tuple[str, Expression]]) -> str | None:
        """The measure that is the time of the last row, which is that of the match."""
        last = {t.name for t in measures.terms if isinstance(t, Pick) and t == self._last_time(t.name)}
        return next((name for name, e in columns if isinstance(e, Column) and e.name in last), None)

    def _last_time(self, name: str) -> Pick | None:
        column = self._item.input.time_column
        return None if column is None else Pick(name, column)

    # -------------------------------------------------------------------------------------------- clauses

    def _check_order(self) -> None:
        """Rows are in order of time; any other order would need the end of the stream."""
        if self._node.args.get("order") is None or is_by_time(
            self.scope, exp.Window(order=self._node.args["order"])
        ):
            return
        time = self._item.input.time_column
        hint = f"write ORDER BY {time}" if time else "remove ORDER BY: a stream is already in order of time"
        message = "MATCH_RECOGNIZE can only order by the time column, ascending"
        fail(Code.PATTERN, message, self._node.args["order"], hint)

    def _check_pattern(self) -> None:
        """The pattern takes at least one row, and is not too large."""
        pattern, place = self._clause.pattern, next(iter(self._clause.variables.values()))
        if pattern.may_be_empty:
            hint = "at least one variable must be required: write A+ in place of A*"
            fail(Code.PATTERN, "this pattern can match without any row", place, hint)
        if len(self.names) > MOST_VARIABLES or states_of(pattern) > MOST_STATES:
            message = f"a pattern may have {MOST_VARIABLES} variables, and name {MOST_STATES} rows"
            fail(Code.PATTERN, message, place, "use smaller numbers in {n,m}")

    def _keys(self) -> tuple[str, ...]:
        """The columns of PARTITION BY."""
        keys: list[str] = []
        for node in self._node.args.get("partition") or ():
            if not isinstance(node, exp.Column):
                hint = "compute it in a subquery: FROM (SELECT …) MATCH_RECOGNIZE (PARTITION BY k …)"
                fail(Code.PATTERN, "PARTITION BY of MATCH_RECOGNIZE takes only columns", node, hint)
            keys.append(self.scope.find(node) or self.scope.unknown(node))
        return tuple(dict.fromkeys(keys))

    def _variables(self) -> tuple[Variable, ...]:
        """Each variable of the pattern with its definition; one without a definition is any row."""
        defined: dict[str, exp.Expr] = {}
        for node in self._node.args.get("define") or ():
            name = self.known(node.args["alias"])
            if name in defined:
                fail(Code.PATTERN_VARIABLE, f"variable {name} is defined twice", node, "join them with AND")
            defined[name] = node.this
        return tuple(self._variable(name, defined.get(name)) for name in self._clause.variables)

    def _variable(self, name: str, node: exp.Expr | None) -> Variable:
        """A variable, with the parts of its definition that read the row alone and those that do not."""
        values = _Values(self, "DEFINE", name)
        alone: list[Expression] = []
        others: list[Expression] = []
        for each in conjuncts(values, node):
            (others if each.columns() & {term.name for term in values.terms} else alone).append(each)
        return Variable(name, conjunction(alone), conjunction(others), tuple(values.terms))

    def known(self, node: exp.Expr) -> str:
        """The variable of the pattern that a name means."""
        found = self.names.get(node.name.lower())
        if found is None:
            hint = f"variables: {', '.join(self.names.values())}"
            fail(Code.PATTERN_VARIABLE, f"the pattern has no variable {node.name!r}", node, hint)
        return found

    def _skipped(self) -> str | None:
        """The variable that AFTER MATCH SKIP names; not the first one, where the search would not go on."""
        node = self._clause.to
        return None if node is None else self.known(node)

    def _measures(self, keys: tuple[str, ...]) -> list[exp.Alias]:
        """The measures, whose names differ from each other and from the keys."""
        taken = {key.lower() for key in keys}
        nodes: list[exp.Alias] = self._node.args.get("measures") or []
        if not nodes and not keys:
            fail(Code.PATTERN, "MATCH_RECOGNIZE has no columns", self._node, "add MEASURES A.x AS x")
        for node in nodes:
            if node.alias.lower() in taken:
                message = f"two columns of the matches are named {node.alias!r}"
                fail(Code.SAME_COLUMN, message, node, "rename the measure")
            taken.add(node.alias.lower())
        return nodes


class _Values(Resolver):
    """Resolves MEASURES, or the definition of the variable `own`, and collects values over rows of the match.

    A bare column, or one of `own`, is of the row that the definition is tested for, or of the last row.
    """

    def __init__(self, reading: _Reading, clause: str, own: str | None) -> None:
        super().__init__(reading.scope, clause)
        self._reading, self._own = reading, own
        self._known: dict[tuple[Asked | str, tuple[str, ...], bool, int], Term] = {}

    @property
    def terms(self) -> list[Term]:
        """The values over the rows of the match."""
        return list(self._known.values())

    @property
    def schema(self) -> Schema:
        below = self._reading.inputs.schema
        return pa.schema([*below, *(pa.field(term.name, term.type(below)) for term in self.terms)])

    def column(self, node: exp.Column) -> Expression:
        inside = _Rows(self._reading, self.clause)
        found = inside.column(node)
        assert isinstance(found, Column)
        variables = inside.variables
        if self._own is not None and variables in ((), (self._own,)):
            return found
        return self._pick(found.name, variables, True, 0)

    def aggregate(self, node: exp.Anonymous, condition: exp.Expr | None) -> Expression:
        """An aggregate over the rows of one variable, or of all."""
        inside = _Rows(self._reading, "an aggregate")
        star = node.expressions[0] if len(node.expressions) == 1 else None
        if isinstance(star, exp.Column) and isinstance(star.this, exp.Star):
            inside.variables = (self._reading.known(star.args["table"]),)
            node = node.copy()
            node.set("expressions", [exp.Star()])
        asked = asked_of(inside, node, condition)
        key = (asked, inside.variables, False, 0)
        if key not in self._known:
            call, _ = call_of(inside, asked, fresh(asked.function, self._reading.inputs.taken), node)
            names = [self._reading.inputs.column(e, type_of(inside, e, node)) for e in asked.arguments]
            self._known[key] = Fold(call.over(names), inside.variables)
        return Column(self._known[key].name)

    def call(self, node: exp.Anonymous) -> Expression | None:
        name = node.name.lower()
        if name in REFUSED:
            fail(Code.PATTERN, f"CQL does not support {REFUSED[name][0]}", node, REFUSED[name][1])
        if name == "match_rowtime":
            return self._row_time(node)
        if name == "prev":
            return self._prev(node)
        if name not in ("first", "last"):
            return None
        value, variables, offset = self._navigated(node)
        last = name == "last"
        if last and not offset and self._own is not None and variables in ((), (self._own,)):
            return value
        column = self._reading.inputs.column(value, type_of(self, value, node))
        return self._pick(column, variables, last, offset)

    def _row_time(self, node: exp.Anonymous) -> Expression:
        """The time of the last row of the match."""
        time = self._reading._item.input.time_column
        if time is None or node.expressions:
            hint = "declare the stream with TIME ts, or write LAST(ts) with a column of yours"
            fail(Code.PATTERN, "the time of this stream is not a column", node, hint)
        return self.column(exp.column(exp.to_identifier(time, quoted=True)))

    def _prev(self, node: exp.Anonymous) -> Expression:
        """A value of the row before the one that the definition is tested for."""
        value, variables, offset = self._navigated(node, default=1)
        if self._own is None or variables not in ((), (self._own,)):
            hint = "in the definition of B write PREV(B.x); for the last row of a variable, write LAST(A.x)"
            fail(Code.PATTERN, "PREV only looks back from the row that is tested", node, hint)
        if not offset:
            return value
        of = type_of(self, value, node)
        inputs = self._reading.inputs
        return Column(inputs.before(inputs.column(value, of), of, offset))

    def _navigated(self, node: exp.Anonymous, default: int = 0) -> tuple[Expression, tuple[str, ...], int]:
        """The argument of FIRST, LAST or PREV, its variable and the offset."""
        check_read(node)
        given = node.expressions
        if not 1 <= len(given) <= 2:
            fail(Code.ARGUMENTS, f"{node.name.upper()} takes a value and perhaps an offset", node, OFFSET)
        offset = default
        if len(given) == 2:
            number = given[1]
            whole = isinstance(number, exp.Literal) and not number.is_string and number.name.isdecimal()
            if not whole or len(number.name) > 6:
                fail(Code.ARGUMENTS, "this is not an offset", number, OFFSET)
            offset = int(number.name)
        inside = _Rows(self._reading, node.name.upper())
        return expression(inside, given[0]), inside.variables, offset

    def _pick(self, column: str, variables: tuple[str, ...], last: bool, offset: int) -> Expression:
        key = (column, variables, last, offset)
        if key not in self._known:
            name = fresh("last" if last else "first", self._reading.inputs.taken)
            self._known[key] = Pick(name, column, variables, last, offset)
        return Column(self._known[key].name)


class _Rows(Resolver):
    """Resolves an expression over single rows of one variable, or of any; it notes which."""

    def __init__(self, reading: _Reading, clause: str) -> None:
        super().__init__(reading.scope, clause)
        self._reading = reading
        self._read = False
        self.variables: tuple[str, ...] = ()

    def column(self, node: exp.Column) -> Expression:
        table = node.args.get("table")
        own = self._reading.names.get(table.name.lower()) if table else None
        variables = () if own is None else (own,)
        if self._read and variables != self.variables:
            hint = "combine values of several variables outside: LAST(A.x) - LAST(B.x)"
            fail(Code.PATTERN, f"{self.clause} is over the rows of one variable", node, hint)
        self._read, self.variables = True, variables
        if own is not None:
            node = exp.Column(this=node.this)
            node.update_positions(table)
        elif table and not self.scope.has_item(table.name):
            self._reading.known(table)
        return Column(self.scope.find(node) or self.missing(node))

    def call(self, node: exp.Anonymous) -> Expression | None:
        if node.name.lower() in ("prev", "first", "last", *REFUSED):
            hint = "write one of them alone: LAST(A.x), PREV(B.x)"
            fail(Code.PATTERN, f"{node.name.upper()} cannot be inside {self.clause}", node, hint)
        return None
