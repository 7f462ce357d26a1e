"""`LAG(x, n, default) OVER (PARTITION BY k ORDER BY time)`: the value of an earlier row of a stream."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from headrace.expressions import Cast, Column, Expression, Literal, evaluator
from headrace.expressions.types import sql_name
from headrace.plan.nodes.core import Plan, Project
from headrace.plan.nodes.lag import Lag, LagCall
from headrace.schema import Schema
from headrace.sql.binder.resolver import Resolver
from headrace.sql.binder.scope import Scope, fresh
from headrace.sql.binder.top_n import check_over
from headrace.sql.binder.typed import expression, type_of
from headrace.sql.place import Code, fail

FORM = "LAG(x, 1, default) OVER (PARTITION BY k ORDER BY ts)"


@dataclass(frozen=True)
class Wanted:
    """One LAG: its argument, partition keys and offset, and the default where there is no earlier row."""

    name: str
    argument: Expression
    keys: tuple[Expression, ...]
    offset: int
    default: Literal | None


def is_by_time(scope: Scope, over: exp.Window) -> bool:
    """Whether the order of an OVER is that of the stream: by its time column, or not written."""
    order = over.args.get("order")
    if order is None:
        return True
    by = order.expressions[0]
    column = by.this if isinstance(by, exp.Ordered) else by
    found = scope.find(column) if isinstance(column, exp.Column) else None
    down = isinstance(by, exp.Ordered) and by.args.get("desc")
    time = scope.items[0].input.time_column
    return len(order.expressions) == 1 and not down and found is not None and found == time


class LagResolver(Resolver):
    """Resolves the SELECT list of a stream, and collects the LAG calls on the way."""

    def __init__(self, scope: Scope, stream: Plan) -> None:
        super().__init__(scope, "SELECT")
        self._stream = stream
        self._wanted: list[Wanted] = []
        self._taken = {name.lower() for name in scope.schema.names}
        self._added: list[pa.Field] = []

    @property
    def schema(self) -> Schema:
        return pa.schema([*self.scope.schema, *self._added])

    def over(self, node: exp.Window) -> Expression:
        if not isinstance(node.this, exp.Anonymous) or node.this.name.lower() != "lag":
            return super().over(node)
        check_over(node)
        if self._stream.is_relation:
            hint = "move the window, the join or DISTINCT to an outer query"
            fail(Code.OVER, "LAG needs a stream, and this is a relation", node, hint)
        self._check_order(node, "LAG")
        inside = Resolver(self.scope, "LAG")
        keys = tuple(dict.fromkeys(expression(inside, key) for key in node.args.get("partition_by") or ()))
        return Column(self._add(inside, node.this, keys).name)

    def _check_order(self, node: exp.Window, name: str) -> None:
        """A function needs the order of time.

        In any other order, a later row could change which row is the previous one.
        """
        if is_by_time(self.scope, node):
            return
        time = self.scope.items[0].input.time_column
        hint = f"write ORDER BY {time}" if time else "remove ORDER BY: a stream is already in order of time"
        fail(Code.OVER, f"{name} can only order by the time column, ascending", node.args["order"], hint)

    def _add(self, inside: Resolver, call: exp.Anonymous, keys: tuple[Expression, ...]) -> Wanted:
        """The LAG for a call; equal calls share one."""
        arguments = call.expressions
        if not 1 <= len(arguments) <= 3:
            fail(Code.ARGUMENTS, f"LAG takes 1 to 3 arguments, not {len(arguments)}", call, FORM)
        found = expression(inside, arguments[0])
        of = type_of(inside, found, arguments[0])
        offset = offset_of(arguments[1], "LAG") if len(arguments) > 1 else 1
        default = _default(inside, arguments[2], of) if len(arguments) > 2 else None
        same = [w for w in self._wanted if (w.argument, w.keys, w.offset) == (found, keys, offset)]
        known = next((w for w in same if w.default == default), None)
        if known is None:
            known = Wanted(fresh("lag", self._taken), found, keys, offset, default)
            self._wanted.append(known)
            self._added.append(pa.field(known.name, of))
        return known

    def looking_back(self, plan: Plan) -> Plan:
        """`plan` with a column for each LAG.

        Keys and arguments that are not columns yet are computed first.
        """
        if not self._wanted:
            return plan
        computed: dict[Expression, str] = {}
        for each in (e for wanted in self._wanted for e in (*wanted.keys, wanted.argument)):
            if not isinstance(each, Column) and each not in computed:
                computed[each] = fresh("key", self._taken)
        if computed:
            kept = [(name, Column(name)) for name in plan.schema.names]
            plan = Project(plan, (*kept, *((name, each) for each, name in computed.items())))
        for keys in dict.fromkeys(wanted.keys for wanted in self._wanted):
            calls = tuple(_call(w, computed) for w in self._wanted if w.keys == keys)
            plan = Lag(plan, tuple(_name(key, computed) for key in keys), calls)
        return plan


def _call(wanted: Wanted, computed: dict[Expression, str]) -> LagCall:
    return LagCall(wanted.name, _name(wanted.argument, computed), wanted.offset, wanted.default)


def _name(each: Expression, computed: dict[Expression, str]) -> str:
    """The column that holds an expression."""
    return each.name if isinstance(each, Column) else computed[each]


def offset_of(node: exp.Expr, name: str) -> int:
    """How many rows a call looks back or ahead."""
    number = isinstance(node, exp.Literal) and not node.is_string and node.name.isdecimal()
    if not number or len(node.name) > 9 or int(node.name) < 1:
        form = FORM.replace("LAG", name)
        fail(Code.OVER, f"the offset of {name} must be a whole number, at least 1", node, form)
    return int(node.name)


def _default(inside: Resolver, node: exp.Expr, of: pa.DataType) -> Literal | None:
    """The default as a literal of the type of the argument."""
    found = expression(inside, node)
    if found.columns():
        fail(Code.OVER, "the default of LAG must be a constant", node, FORM)
    constant = Cast(found, of)
    type_of(inside, constant, node)
    value = evaluator(constant, pa.schema([]))({})
    written = evaluator(found, pa.schema([]))({})
    if value is None and written is not None:
        fail(
            Code.TYPES, f"{node.sql()} is not a {sql_name(of)}", node, "write a default of the column's type"
        )
    return None if value is None else Literal(value, of)
