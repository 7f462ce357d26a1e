"""Functions with OVER on a stream: aggregates of a frame, ROW_NUMBER and RANK in order of time, LAG and LEAD.

Each row is answered at its time from the rows of its partition up to it, so frames end at the current row;
with LEAD, it is answered at the time of a later one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import pyarrow as pa
import pyarrow.types as pt
from sqlglot import exp

from headrace.expressions import Arithmetic, Column, Expression, Literal
from headrace.plan.nodes.core import AggregateCall, Plan, Project
from headrace.plan.nodes.over import Frame, Over, RangeFrame, RowsFrame
from headrace.sql.binder.grouping import asked_of, call_of
from headrace.sql.binder.lag import LagResolver, is_by_time, offset_of
from headrace.sql.binder.lead import Ahead, check_keys, check_lead, looking_ahead
from headrace.sql.binder.more_aggregates import Asked
from headrace.sql.binder.resolver import Resolver
from headrace.sql.binder.scope import Scope, fresh
from headrace.sql.binder.top_n import check_over, is_row_number
from headrace.sql.binder.typed import expression, type_of
from headrace.sql.binder.window_functions import interval_of
from headrace.sql.binder.windows import ticks
from headrace.sql.definitions import is_aggregate
from headrace.sql.parser.clauses import Duration
from headrace.sql.place import Code, Span, fail, span_of

FRAME: Final = "ROWS BETWEEN 4 PRECEDING AND CURRENT ROW"
BY_TIME: Final = "RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW"
COUNTED: Final = "the rows before the current one are counted by a number, at most 9 digits"
PARTS: Final = ("partition_by", "order", "spec")
LATER: Final = {
    "dense_rank": ("DENSE_RANK() would keep every instant of a stream", "use RANK() or ROW_NUMBER()"),
} | {
    name: (f"{name.upper()} needs the whole partition, and a stream does not end", "use a window and top-n")
    for name in ("ntile", "percent_rank", "cume_dist", "nth_value")
}
"""Window functions that a stream cannot answer, and what to write."""


# ------------------------------------------------------------------------------------------- which calls


def call_in(over: exp.Window) -> exp.Expr:
    """The function of an OVER, without its FILTER or IGNORE NULLS."""
    found: exp.Expr = over.this
    while isinstance(found, (exp.Filter, exp.IgnoreNulls, exp.RespectNulls)):
        found = found.this
    return found


def windows_in(nodes: list[exp.Expr]) -> Iterator[exp.Window]:
    """Every OVER in some expressions, outside of subqueries."""
    for node in nodes:
        for each in node.walk(prune=lambda inner: isinstance(inner, exp.Query)):
            if isinstance(each, exp.Window):
                yield each


def name_windows(node: exp.Select) -> None:
    """Write the definitions of WINDOW into the OVERs that name them."""
    named = {each.this.name.lower(): each for each in node.args.get("windows") or ()}
    for over in [*named.values(), *windows_in([*node.expressions, *_clauses(node)])]:
        base = over.args.get("alias")
        if base is None:
            continue
        if base.name.lower() not in named:
            hint = f"windows: {', '.join(named)}" if named else f"add WINDOW {base.name} AS (PARTITION BY k)"
            fail(Code.OVER, f"the window {base.name!r} does not exist", base, hint)
        _merge(over, named[base.name.lower()])
    node.set("windows", None)


def _clauses(node: exp.Select) -> list[exp.Expr]:
    return [found for name in ("qualify", "order") if (found := node.args.get(name)) is not None]


def _merge(over: exp.Window, base: exp.Window) -> None:
    """Take over what a named window says; what is written in both is an error."""
    over.set("alias", None)
    own = {part for part in PARTS if over.args.get(part)}
    for part in PARTS:
        given = base.args.get(part)
        if not given:
            continue
        if part in own or (part == "spec" and own):
            message = f"the window {base.this.name!r} already has this part"
            fail(Code.OVER, message, base.this, "write it in one of the two places")
        over.set(part, [each.copy() for each in given] if isinstance(given, list) else given.copy())


def runs(scope: Scope, stream: Plan, overs: list[exp.Window]) -> bool:
    """Whether functions with OVER are answered row by row: they order the rows of a stream by time."""
    if stream.is_relation or len(scope.items) > 1 or not overs:
        return False
    return all(not is_row_number(each) or is_by_time(scope, each) for each in overs)


def _time(scope: Scope) -> str | None:
    return scope.items[0].input.time_column


# ------------------------------------------------------------------------------------------- the resolver


@dataclass(frozen=True)
class Framed:
    """An aggregate of a frame; its arguments are not columns yet."""

    call: AggregateCall
    arguments: tuple[Expression, ...]
    keys: tuple[Expression, ...]
    frame: Frame


class OverResolver(LagResolver):
    """Resolves the SELECT list and QUALIFY of a stream, and collects the functions with OVER on the way."""

    def __init__(self, scope: Scope, stream: Plan) -> None:
        super().__init__(scope, stream)
        self._framed: dict[tuple[Asked, tuple[Expression, ...], Frame], Framed] = {}
        self._leads: list[Ahead] = []

    def over(self, node: exp.Window) -> Expression:
        call = call_in(node)
        name = call.name.lower() if isinstance(call, exp.Anonymous) else ""
        if name in LATER:
            fail(Code.OVER, LATER[name][0], node, LATER[name][1])
        rule = NUMBERS.get(name)
        if name == "lag":
            return super().over(node)
        if rule is None and name != "lead" and not is_aggregate(call):
            hint = "see docs/cql/over.md; for other functions, remove OVER"
            fail(Code.OVER, "OVER works with aggregates, LAG, LEAD, ROW_NUMBER and RANK", node, hint)
        if self._stream.is_relation:
            hint = "move the window, the join or DISTINCT to an outer query"
            fail(Code.OVER, "OVER needs a stream, and this is a relation", node, hint)
        self._check_order(node, name.upper())
        if name == "lead":
            return self._lead(node, call)
        if rule is None:
            return self._aggregate(node, call)
        check_over(node)
        if call.expressions:
            fail(Code.ARGUMENTS, f"{name.upper()}() takes no arguments", node, "put the order into OVER")
        return rule(self, node)

    def _aggregate(self, node: exp.Window, call: exp.Expr) -> Expression:
        """An aggregate of a frame."""
        assert isinstance(call, exp.Anonymous)
        if isinstance(node.this, exp.IgnoreNulls):
            hint = f"write max_by(x, ts) FILTER (WHERE x IS NOT NULL) OVER (…) for {call.name}"
            fail(Code.OVER, "CQL does not support IGNORE NULLS", node, hint)
        condition = node.this.expression.this if isinstance(node.this, exp.Filter) else None
        inside = Resolver(self.scope, "an aggregate")
        asked = asked_of(inside, call, condition)
        return self._value(inside, asked, node, self._frame(node))

    def _lead(self, node: exp.Window, call: exp.Expr) -> Expression:
        """A value of a later row; equal calls share one column."""
        assert isinstance(call, exp.Anonymous)
        check_over(node)
        check_lead(call)
        inside = Resolver(self.scope, "LEAD")
        keys = tuple(dict.fromkeys(expression(inside, key) for key in node.args.get("partition_by") or ()))
        check_keys(self._leads, keys, node)
        found = expression(inside, call.expressions[0])
        of = type_of(inside, found, call.expressions[0])
        offset = offset_of(call.expressions[1], "LEAD") if len(call.expressions) > 1 else 1
        same = (each for each in self._leads if (each.argument, each.offset) == (found, offset))
        known = next(same, None)
        if known is None:
            known = Ahead(fresh("lead", self._taken), found, keys, offset)
            self._leads.append(known)
            self._added.append(pa.field(known.name, of))
        return Column(known.name)

    def number(self, node: exp.Window) -> Expression:
        """`ROW_NUMBER()`: how many rows there are up to this one."""
        return self._count(node, RowsFrame(None))

    def rank(self, node: exp.Window) -> Expression:
        """`RANK()`: one more than the rows that are earlier; simultaneous rows have the same rank."""
        earlier = Arithmetic("-", self._count(node, RangeFrame(None)), self._count(node, RangeFrame(0)))
        return Arithmetic("+", earlier, Literal(1))

    def _count(self, node: exp.Window, frame: Frame) -> Expression:
        return self._value(Resolver(self.scope, "OVER"), Asked("count", ()), node, frame)

    def _value(self, inside: Resolver, asked: Asked, node: exp.Window, frame: Frame) -> Expression:
        """The column of an aggregate of a frame; equal ones are computed once."""
        given = node.args.get("partition_by") or ()
        keys = tuple(dict.fromkeys(expression(inside, key) for key in given))
        known = self._framed.get((asked, keys, frame))
        if known is None:
            call, of = call_of(inside, asked, fresh(asked.function, self._taken), node)
            known = self._framed[asked, keys, frame] = Framed(call, asked.arguments, keys, frame)
            self._added.append(pa.field(call.name, of))
        return Column(known.call.name)

    # ----------------------------------------------------------------------------------------- frames

    def _frame(self, node: exp.Window) -> Frame:
        """The frame of an OVER; without one, all rows up to this instant, as in SQL."""
        spec = node.args.get("spec")
        if spec is not None:
            return self._spec(spec)
        if node.args.get("order") is None:
            time = _time(self.scope)
            hint = f"write ORDER BY {time}" if time else f"write a frame: {FRAME}"
            fail(Code.OVER, "without ORDER BY the frame is the whole partition, which never ends", node, hint)
        return RangeFrame(None)

    def _spec(self, spec: exp.WindowSpec) -> Frame:
        """`ROWS …` or `RANGE …`, up to the current row."""
        kind, start, side = spec.args.get("kind"), spec.args.get("start"), spec.args.get("start_side")
        place = next((each for each in (start, spec.args.get("end")) if isinstance(each, exp.Expr)), spec)
        if kind not in ("ROWS", "RANGE") or spec.args.get("exclude"):
            fail(Code.OVER, "a frame counts ROWS or is a RANGE of time", place, f"write {FRAME}")
        end = spec.args.get("end") or "CURRENT ROW"
        if end != "CURRENT ROW" or side == "FOLLOWING":
            hint = f"end the frame at CURRENT ROW: {FRAME}; later rows may never come"
            fail(Code.OVER, "a frame must end at CURRENT ROW", place, hint)
        if start in ("UNBOUNDED", "CURRENT ROW"):
            preceding = 0 if start == "CURRENT ROW" else None
            return RowsFrame(preceding) if kind == "ROWS" else RangeFrame(preceding)
        assert isinstance(start, exp.Expr)
        return RowsFrame(_rows(start)) if kind == "ROWS" else RangeFrame(self._span(start))

    def _span(self, node: exp.Expr) -> int:
        """The length of a RANGE in ticks: an interval, or a number if the time column is one."""
        domain, time = self.scope.items[0].input.ticks_per_second, _time(self.scope)
        if isinstance(node, exp.Interval):
            return ticks(interval_of(node, f"write {BY_TIME}"), domain)
        plain = domain is None or (time is not None and pt.is_integer(self.scope.schema.field(time).type))
        if not plain or not isinstance(node, exp.Literal) or not node.name.isdecimal():
            fail(Code.OVER, "RANGE takes an INTERVAL of time", node, f"write {BY_TIME}, or {FRAME}")
        return _rows(node) if int(node.name) < 1 else ticks(_ticks(node), None)

    # ------------------------------------------------------------------------------------------- plan

    def looking_back(self, plan: Plan) -> Plan:
        """`plan` with a column for each function; keys and arguments that are not columns come first."""
        columns: dict[Expression, str] = {}
        read = [e for framed in self._framed.values() for e in (*framed.keys, *framed.arguments)]
        for each in (*read, *(e for lead in self._leads for e in (*lead.keys, lead.argument))):
            if each not in columns:
                columns[each] = each.name if isinstance(each, Column) else fresh("argument", self._taken)
        if any(not isinstance(each, Column) for each in columns):
            kept = [(name, Column(name)) for name in plan.schema.names]
            made = [(name, each) for each, name in columns.items() if not isinstance(each, Column)]
            plan = Project(plan, (*kept, *made))
        for keys, frame in dict.fromkeys((framed.keys, framed.frame) for framed in self._framed.values()):
            calls = [
                each.call.over([columns[argument] for argument in each.arguments])
                for each in self._framed.values()
                if (each.keys, each.frame) == (keys, frame)
            ]
            plan = Over(plan, tuple(columns[key] for key in keys), frame, tuple(calls))
        plan = super().looking_back(plan)
        return looking_ahead(plan, self._leads, columns, self._taken) if self._leads else plan


def _rows(node: exp.Expr) -> int:
    """A number of rows; 0 is the current row alone."""
    number = isinstance(node, exp.Literal) and not node.is_string and node.name.isdecimal()
    if not number or len(node.name) > 9:
        fail(Code.OVER, COUNTED, node, f"write {FRAME}")
    return int(node.name)


def _ticks(node: exp.Literal) -> Duration:
    return Duration(((Fraction(node.name), ""),), span_of(node) or Span(0, 0))


NUMBERS: Final[dict[str, Callable[[OverResolver, exp.Window], Expression]]] = {
    "row_number": OverResolver.number,
    "rank": OverResolver.rank,
}


def qualified(qualify: exp.Expr | None, aliases: dict[str, exp.Expr], scope: Scope) -> exp.Expr | None:
    """The condition of QUALIFY, with aliases of SELECT replaced by what they stand for."""
    if qualify is None:
        return None

    def replaced(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column) or node.args.get("table"):
            return node
        if node.name.lower() in aliases and scope.find(node) is None:
            return exp.Paren(this=aliases[node.name.lower()].copy())
        return node

    changed: exp.Expr = qualify.this.transform(replaced, copy=True)
    return changed
