"""Scalar expressions: a table from sqlglot's nodes to functions that build our expressions."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from sqlglot import exp

from headrace.expressions import (
    FUNCTIONS,
    And,
    Arithmetic,
    Between,
    Case,
    Cast,
    Comparison,
    Expression,
    Function,
    In,
    IsNotNull,
    IsNull,
    Like,
    Literal,
    Negate,
    Not,
    Or,
    UserFunctionCall,
)
from headrace.expressions.functions.rule import UserFunction
from headrace.sql.binder import nested
from headrace.sql.binder.aggregate_names import AGGREGATES, MORE
from headrace.sql.binder.quality_columns import WORST, is_quality
from headrace.sql.binder.resolver import NO_CLOCK, Resolver
from headrace.sql.binder.types import arrow_type
from headrace.sql.catalog import MICROSECONDS
from headrace.sql.definitions import USER, is_aggregate
from headrace.sql.parser.clauses import GRANULARITY
from headrace.sql.parser.parse import READ, check_read
from headrace.sql.place import Code, fail, nearest
from headrace.time.durations import UNITS

# INTERVAL: a time shifted by a fixed number of microseconds, as in `ts - INTERVAL 10 SECONDS`.
#
# Months and years have no fixed length, and an interval is not a value on its own: both are errors.


PART: Final = re.compile(r"([+-]?[0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)\s*")
AMOUNT: Final = re.compile(r"[+-]?[0-9]{1,18}(?:\.[0-9]{1,6})?")
LONGEST: Final = 2**62
BuildInterval = Callable[[Any, Any], Expression]


def moved(op: str, build: BuildInterval) -> BuildInterval:
    """`a + b` or `a - b`, where one side may be an interval."""
    sign = 1 if op == "+" else -1

    def rule(resolver: Any, node: exp.Add | exp.Sub) -> Expression:
        left, right = length(node.this), length(node.expression)
        if right is not None and left is None:
            return _plus(build(resolver, node.this), sign * right, node)
        if left is not None and right is None and sign > 0:
            return _plus(build(resolver, node.expression), left, node)
        if left is not None:
            fail(
                Code.NOT_CQL,
                "an INTERVAL can only be added to or subtracted from a time",
                node,
                "write ts - INTERVAL 10 SECONDS",
            )
        return Arithmetic(op, build(resolver, node.this), build(resolver, node.expression))

    return rule


def _plus(time: Expression, ticks: int, place: exp.Expr) -> Expression:
    """A time shifted by a number of microseconds."""
    if abs(ticks) > LONGEST:
        fail(Code.DURATION, "this INTERVAL is too long", place)
    return Function("plus_micros", (time, Literal(ticks)))


def length(node: exp.Expr) -> int | None:
    """The microseconds of an interval, or of a sum of intervals; None for anything else."""
    if isinstance(node, exp.Paren):
        return length(node.this)
    if isinstance(node, (exp.Add, exp.Sub)):
        right = length(node.expression)
        left = None if right is None else length(node.this)
        if left is None or right is None:
            return None
        return left + right if isinstance(node, exp.Add) else left - right
    return _read(node) if isinstance(node, exp.Interval) else None


def _read(node: exp.Interval) -> int:
    """The microseconds of `10 SECONDS`, `'10' SECONDS` or `'1 day 2 hours'`."""
    unit, written = node.args.get("unit"), node.this
    if isinstance(written, exp.Literal) and isinstance(unit, exp.Var) and AMOUNT.fullmatch(written.name):
        return _micros(written.name, unit.name, node)
    if isinstance(written, exp.Literal) and unit is None:
        text = written.name.strip()
        parts = PART.findall(text)
        if parts and not PART.sub("", text):
            return sum(_micros(amount, each, node) for amount, each in parts)
    fail(
        Code.DURATION,
        "this INTERVAL is not valid",
        node,
        "write INTERVAL 10 SECONDS or INTERVAL '1 day 2 hours'",
    )


def _micros(amount: str, unit: str, place: exp.Expr) -> int:
    """An amount of a unit in microseconds."""
    seconds = UNITS.get(unit.upper())
    if seconds is None:
        hint = "use a unit from MICROSECONDS to WEEKS; months and years vary in length"
        fail(Code.DURATION, f"{unit} is not a unit for INTERVAL", place, hint)
    return int(Fraction(amount) * seconds * MICROSECONDS)


# Numbers as Spark reads them: whole ones are int or bigint, `1.5` is a decimal, `1e0` a double.


DIGITS: Final = 38
WHOLE: Final = re.compile(r"[0-9]+", re.ASCII)
FRACTION: Final = re.compile(r"[0-9]*\.[0-9]*", re.ASCII)
FLOAT: Final = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)[eE][+-]?[0-9]+", re.ASCII)


def literal(node: exp.Literal) -> Expression:
    """A quoted text, or a number."""
    if node.is_string:
        return Literal(str(node.this))
    text = str(node.this)
    if WHOLE.fullmatch(text) and len(text) <= DIGITS:
        value = int(text)
        return Literal(value if value < 2**63 else Decimal(text))
    if FRACTION.fullmatch(text) and 1 < len(text) <= DIGITS:
        return Literal(Decimal(text))
    if FLOAT.fullmatch(text) and math.isfinite(float(text)):
        return Literal(float(text))
    hint = f"numbers have at most {DIGITS} digits; write 1e40 for a DOUBLE"
    fail(Code.LITERAL, f"the number {text[:50]!r} does not fit any type", node, hint)


Build = Callable[[Resolver, Any], Expression]
TRUTH: Final = "IS must be followed by NULL, TRUE, FALSE or DISTINCT FROM"


def build(resolver: Resolver, node: exp.Expr) -> Expression:
    """Build the expression for `node`, and remember its place in the text."""
    rule = SCALARS.get(type(node))
    if rule is None:
        name, hint = REFUSED.get(type(node), ("this", ""))
        fail(Code.NOT_CQL, f"{name} is not allowed in an expression", node, hint)
    if type(node) in READ:
        check_read(node)
    return resolver.remember(rule(resolver, node), node)


def _binary(kind: Callable[[str, Expression, Expression], Expression], op: str) -> Build:
    """A builder for a binary operator."""
    return lambda resolver, node: kind(op, build(resolver, node.this), build(resolver, node.expression))


def _connective(kind: Callable[[tuple[Expression, ...]], Expression]) -> Build:
    """A builder for AND or OR. Chains are flat, so that a thousand conditions are one level deep."""
    return lambda resolver, node: kind(tuple(build(resolver, each) for each in chain(node)))


def chain(node: exp.Expr) -> Iterator[exp.Expr]:
    """The operands of `a AND b AND c`, in order."""
    pending, kind = [node], type(node)
    while pending:
        each = pending.pop()
        if type(each) is kind:
            pending += [each.expression, each.this]
        else:
            yield each


def _is(resolver: Resolver, node: exp.Is) -> Expression:
    operand = build(resolver, node.this)
    if isinstance(node.expression, exp.Null):
        return IsNotNull(operand) if node.args.get("negate") else IsNull(operand)
    if isinstance(node.expression, exp.Boolean):
        return Comparison("<=>", operand, Literal(bool(node.expression.this)))
    fail(Code.SYNTAX, TRUTH, node.expression)


def _in(resolver: Resolver, node: exp.In) -> Expression:
    if not node.expressions:
        fail(Code.SYNTAX, "IN needs a list of values", node, "write x IN (1, 2, 3)")
    return In(build(resolver, node.this), tuple(build(resolver, each) for each in node.expressions))


def _between(resolver: Resolver, node: exp.Between) -> Expression:
    return Between(*(build(resolver, node.args[part]) for part in ("this", "low", "high")))


def _like(resolver: Resolver, node: exp.Like, escape: str = "\\") -> Expression:
    found = Like(build(resolver, node.this), build(resolver, node.expression), escape)
    return Not(found) if node.args.get("negate") else found


def _ilike(resolver: Resolver, node: exp.ILike) -> Expression:
    text, pattern = (Function("lower", (build(resolver, each),)) for each in (node.this, node.expression))
    found = Like(text, pattern)
    return Not(found) if node.args.get("negate") else found


def _escape(resolver: Resolver, node: exp.Escape) -> Expression:
    if not isinstance(node.this, exp.Like) or len(node.expression.name) != 1:
        fail(
            Code.SYNTAX, "ESCAPE takes one character and follows LIKE", node, "write x LIKE '10!%' ESCAPE '!'"
        )
    return _like(resolver, node.this, node.expression.name)


def _case(resolver: Resolver, node: exp.Case) -> Expression:
    """Both forms of CASE; `CASE x WHEN v` becomes the condition `x = v`."""
    if not node.args["ifs"]:
        fail(Code.SYNTAX, "CASE needs a WHEN", node)
    compared = build(resolver, node.this) if node.this else None
    default = node.args.get("default")
    branches = tuple(_branch(resolver, compared, each) for each in node.args["ifs"])
    return Case(branches, build(resolver, default) if default else Literal(None))


def _branch(resolver: Resolver, compared: Expression | None, when: exp.If) -> tuple[Expression, Expression]:
    """The condition and value of one WHEN."""
    condition = build(resolver, when.this)
    met = condition if compared is None else Comparison("=", compared, condition)
    return met, build(resolver, when.args["true"])


def _cast(resolver: Resolver, node: exp.Cast) -> Expression:
    return Cast(build(resolver, node.this), arrow_type(node.to))


def _adjacent(resolver: Resolver, node: exp.Concat) -> Expression:
    """`'a' 'b'`: adjacent strings are concatenated. The function concat is an ordinary call."""
    return Literal("".join(str(each.this) for each in node.expressions))


FIELDS: Final = {"DOW": "dayofweek", "DOY": "dayofyear", "WEEK": "weekofyear"}
"""Fields of EXTRACT whose functions have another name."""


def _extract(resolver: Resolver, node: exp.Extract) -> Expression:
    field = node.this.name
    return _named(resolver, node, FIELDS.get(field.upper(), field), [node.expression])


def _call(resolver: Resolver, node: exp.Anonymous) -> Expression:
    """A function call: an aggregate, a quality function, a user's function or a built-in one."""
    name = node.name.lower()
    own = resolver.call(node)
    if own is not None:
        return own
    if is_aggregate(node):
        return resolver.aggregate(node, None)
    if GRANULARITY in node.meta:
        hint = "write avg(x) [GRANULARITY 10 SECONDS]"
        fail(Code.GRANULARITY, f"{name} is not an aggregate", node, hint)
    if is_quality(node):
        return resolver.quality(node)
    if name == "seq":
        fail(Code.SEQUENCE, "SEQ is only allowed in FROM", node, "write SELECT … FROM SEQ(a, b) RECENT")
    if name == "struct":
        return nested.struct(resolver, node, build)
    user = node.meta.get(USER)
    if isinstance(user, UserFunction):
        return UserFunctionCall(name, tuple(build(resolver, each) for each in node.expressions), user)
    return _named(resolver, node, name, _placed(node) if name == "position" else node.expressions)


def _placed(node: exp.Anonymous) -> list[exp.Expr]:
    """The arguments of `position(part IN text)`, or as usual."""
    only = node.expressions[0] if len(node.expressions) == 1 else None
    within = only.args.get("field") if isinstance(only, exp.In) else None
    return node.expressions if only is None or within is None else [only.this, within]


def _named(resolver: Resolver, node: exp.Expr, name: str, arguments: list[exp.Expr]) -> Expression:
    """A call of a built-in function."""
    if name.lower() not in FUNCTIONS:
        known = nearest(name, [*FUNCTIONS, *AGGREGATES, *MORE, *WORST], ALL, cutoff=0.75)
        hint = ELSEWHERE.get(name.lower(), known)
        fail(Code.UNKNOWN_FUNCTION, f"the function {name.lower()!r} does not exist", node, hint)
    return Function(name.lower(), tuple(build(resolver, each) for each in arguments))


ALL: Final = "docs/cql/expressions.md lists the functions; you can also write your own"
IN_FROM: Final = (
    "write the window on the stream, FROM s [RANGE 10 MINUTES SLIDE 5 MINUTES], and use window_start"
)
IN_GROUP: Final = "write it in GROUP BY; window.start and window.end are its bounds"
NO_PARTS: Final = "write get_json_object(x, '$.a.b')"
IN_UNNEST: Final = "write FROM s, UNNEST(items) AS u(item), or explode(items) as a column of its own"
NO_LAMBDA: Final = "functions over each element are not supported; use UNNEST, or a function of your own"
NO_TRY: Final = "write the operator: it gives NULL where there is no value"
NO_CHANCE: Final = "an expression must give the same value again after a restart; add a column to the stream"
ELSEWHERE: Final = {
    **dict.fromkeys(("now", "current_timestamp", "current_date", "localtimestamp", "proctime"), NO_CLOCK),
    **dict.fromkeys(("curdate", "current_time", "sysdate"), NO_CLOCK),
    "unix_timestamp": "of a time: unix_seconds(ts); there is no clock in a query",
    **dict.fromkeys(("rand", "random", "randn", "uuid", "monotonically_increasing_id"), NO_CHANCE),
    **dict.fromkeys(("tumble", "hop", "session", "tumble_start", "tumble_end", "tumble_rowtime"), IN_FROM),
    **dict.fromkeys(("hop_start", "hop_end", "session_start", "session_end"), IN_FROM),
    **dict.fromkeys(("window", "session_window"), IN_GROUP),
    **dict.fromkeys(("transform", "filter", "aggregate", "exists", "forall"), NO_LAMBDA),
    **dict.fromkeys(("explode", "explode_outer", "unnest", "posexplode", "inline"), IN_UNNEST),
    **dict.fromkeys(("json_query", "json_extract", "extractjsonfield"), NO_PARTS),
    **dict.fromkeys(("percentile_cont", "quantile"), "write percentile(x, 0.5)"),
    "current_watermark": "how far watermarks are is in the status of a run, not in a query: headrace status",
    "latest_by_offset": "write last(x)",
    "earliest_by_offset": "write first(x)",
    "iff": "write if(condition, x, y)",
    "date_part": "write EXTRACT(YEAR FROM ts)",
    "epoch": "write unix_seconds(ts)",
    "from_unixtime": "write date_format(timestamp_seconds(x), 'yyyy-MM-dd HH:mm:ss')",
    "make_timestamp": "write to_timestamp('2026-03-04 05:06:07')",
    "json_tuple": NO_PARTS,
    **dict.fromkeys(("sequence", "array_repeat", "arrays_zip"), "add the array to the stream"),
    **dict.fromkeys(("try_divide", "try_add", "try_subtract", "try_multiply"), NO_TRY),
    **dict.fromkeys(("to_binary", "to_bytes"), "write encode(x, 'utf-8')"),
    "timestampdiff": "write unix_seconds(a) - unix_seconds(b)",
    "timestampadd": "write ts + INTERVAL 10 SECONDS",
    "watermark": "how late rows may be is not part of a query: set disorder in the pipeline file",
    "split_index": "write split_part(s, d, i + 1)",
}
"""What to write for functions of Flink, Spark and ksqlDB that CQL does not have."""


def _filter(resolver: Resolver, node: exp.Filter) -> Expression:
    if not is_aggregate(node.this):
        fail(Code.AGGREGATE, "FILTER must follow an aggregate", node, "write count(*) FILTER (WHERE v > 0)")
    return resolver.aggregate(node.this, node.expression.this)


def _bits(name: str) -> Build:
    """An operator of bits, by the function that it is."""
    return lambda resolver, node: _named(resolver, node, name, [node.this, node.expression])


SCALARS: Final[dict[type[exp.Expr], Build]] = {
    exp.Column: nested.column,
    exp.Dot: nested.dot(build),
    exp.Bracket: nested.element(build),
    exp.Literal: lambda resolver, node: literal(node),
    exp.RawString: lambda resolver, node: Literal(str(node.this)),
    exp.Null: lambda resolver, node: Literal(None),
    exp.Boolean: lambda resolver, node: Literal(bool(node.this)),
    exp.Paren: lambda resolver, node: build(resolver, node.this),
    exp.Add: moved("+", build),
    exp.Sub: moved("-", build),
    exp.Mul: _binary(Arithmetic, "*"),
    exp.Div: _binary(Arithmetic, "/"),
    exp.Mod: _binary(Arithmetic, "%"),
    exp.IntDiv: _binary(Arithmetic, "DIV"),
    exp.Neg: lambda resolver, node: Negate(build(resolver, node.this)),
    exp.EQ: _binary(Comparison, "="),
    exp.NEQ: _binary(Comparison, "<>"),
    exp.LT: _binary(Comparison, "<"),
    exp.LTE: _binary(Comparison, "<="),
    exp.GT: _binary(Comparison, ">"),
    exp.GTE: _binary(Comparison, ">="),
    exp.NullSafeEQ: _binary(Comparison, "<=>"),
    exp.NullSafeNEQ: lambda resolver, node: Not(_binary(Comparison, "<=>")(resolver, node)),
    exp.And: _connective(And),
    exp.Or: _connective(Or),
    exp.Not: lambda resolver, node: Not(build(resolver, node.this)),
    exp.Is: _is,
    exp.In: _in,
    exp.Between: _between,
    exp.Like: _like,
    exp.ILike: _ilike,
    exp.Escape: _escape,
    exp.Case: _case,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Extract: _extract,
    exp.BitwiseAnd: _bits("bits_and"),
    exp.BitwiseOr: _bits("bits_or"),
    exp.BitwiseXor: _bits("bits_xor"),
    exp.BitwiseLeftShift: _bits("shiftleft"),
    exp.BitwiseRightShift: _bits("shiftright"),
    exp.BitwiseNot: lambda resolver, node: _named(resolver, node, "bits_not", [node.this]),
    exp.RegexpLike: lambda resolver, node: _named(
        resolver, node, "regexp_like", [node.this, node.expression]
    ),
    exp.DPipe: lambda resolver, node: _named(resolver, node, "concat", [node.this, node.expression]),
    exp.Concat: _adjacent,
    exp.Anonymous: _call,
    exp.Filter: _filter,
    exp.Window: lambda resolver, node: resolver.over(node),
}
LEVELS: Final = "write one query per level and combine them with UNION ALL"
REFUSED: Final[dict[type[exp.Expr], tuple[str, str]]] = {
    exp.Star: ("*", "name the columns, or write count(*)"),
    exp.Subquery: ("a query", "move it to FROM and join with it"),
    exp.Select: ("a query", "move it to FROM and join with it"),
    exp.Exists: ("EXISTS", "it must be a condition of WHERE, connected with AND"),
    exp.Interval: ("INTERVAL", "add it to a time: ts + INTERVAL 10 SECONDS"),
    exp.Distinct: ("DISTINCT", "write it after SELECT, or inside count(DISTINCT x)"),
    exp.Alias: ("AS", "only columns of SELECT can have an alias"),
    exp.Tuple: ("a list of values", "use it only with IN: x IN (1, 2)"),
    exp.Array: ("[…] without ARRAY", "write array(1, 2)"),
    exp.Struct: ("{…}", "write named_struct('a', 1)"),
    exp.JSONExtract: ("->", NO_PARTS),
    exp.JSONExtractScalar: ("->>", NO_PARTS),
    exp.Lambda: ("->", NO_LAMBDA),
    exp.WithinGroup: ("WITHIN GROUP", "write percentile(x, 0.5), or listagg(x, ', ') in order of time"),
    exp.GroupingSets: ("GROUPING SETS", LEVELS),
    exp.Cube: ("CUBE", LEVELS),
    exp.Rollup: ("ROLLUP", LEVELS),
    exp.All: ("ALL with a query", "join with the other stream"),
    exp.Any: ("ANY with a query", "join with the other stream"),
    exp.Placeholder: ("a parameter", "write the value, or format the text in Python"),
    exp.Parameter: ("a parameter", "write the value, or format the text in Python"),
    exp.AtTimeZone: ("AT TIME ZONE", "times are in UTC; add an INTERVAL, or use a column in that zone"),
    exp.SimilarTo: ("SIMILAR TO", "write x RLIKE 'pattern'"),
    exp.HexString: ("X'…'", "write unhex('…')"),
}
