"""Random typed expressions over a fixed schema, and random batches of it with many nulls and edge values."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from functools import cache

import pyarrow as pa
from hypothesis import strategies as st

from headrace.expressions import Arithmetic, Between, Case, In, Like, Literal, coalesce, col, fn

DEC, BIG = pa.decimal128(9, 2), pa.decimal128(30, 8)
SCHEMA = pa.schema(
    {
        "b": pa.bool_(),
        "i8": pa.int8(),
        "i16": pa.int16(),
        "i32": pa.int32(),
        "i64": pa.int64(),
        "f32": pa.float32(),
        "f64": pa.float64(),
        "dec": DEC,
        "big": BIG,
        "s": pa.string(),
        "d": pa.date32(),
        "t": pa.timestamp("us"),
        "z": pa.timestamp("us", "UTC"),
    }
)


def integers(bits):
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    edges = st.sampled_from([low, low + 1, high, 0, 1, -1])
    return st.one_of(st.integers(-20, 20).filter(lambda v: low <= v <= high), edges, st.integers(low, high))


def decimals(of):
    limit = 10**of.precision - 1
    whole = st.integers(-999, 999) | st.sampled_from([limit, -limit, 0, 5, 10**of.scale])
    return (whole | st.integers(-limit, limit)).map(lambda value: Decimal(f"{value}e-{of.scale}"))


WORDS = [
    "",
    "a",
    "ab%",
    "A_b",
    " 12 ",
    "-7",
    "1.5e3",
    "x,y,z",
    "straße",
    "2020-02-29",
    "2021-03-04 05:06:07.5",
    "true",
]
TIMES = st.datetimes(dt.datetime(1, 1, 8), dt.datetime(9999, 12, 24))
VALUES = {
    pa.bool_(): st.booleans(),
    pa.int8(): integers(8),
    pa.int16(): integers(16),
    pa.int32(): integers(32),
    pa.int64(): integers(64),
    pa.float32(): st.floats(width=32) | st.integers(-9, 9).map(float),
    pa.float64(): st.floats() | st.integers(-9, 9).map(float) | st.sampled_from([0.5, 2.675, -1.005]),
    DEC: decimals(DEC),
    BIG: decimals(BIG),
    pa.string(): st.sampled_from(WORDS) | st.text("aAbé%_\\ ,.1", max_size=6),
    pa.date32(): TIMES.map(dt.datetime.date),
    pa.timestamp("us"): TIMES,
    pa.timestamp("us", "UTC"): TIMES.map(lambda value: value.replace(tzinfo=dt.UTC)),
}
NUMBERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), DEC, BIG]
TYPES = list(VALUES)
FEW = st.integers(0, 6)
BY_TYPE = {field.type: field.name for field in SCHEMA}


@cache
def optional(of):
    """One value in five is NULL."""
    return st.integers(0, 4).flatmap(lambda die: VALUES[of] if die else st.none())


def rows(size=FEW):
    row = st.fixed_dictionaries({field.name: optional(field.type) for field in SCHEMA})
    return size.flatmap(lambda count: st.lists(row, min_size=count, max_size=count))


def batch_of(found):
    columns = [pa.array([row[field.name] for row in found], field.type) for field in SCHEMA]
    return pa.record_batch(columns, schema=SCHEMA)


@cache
def leaves(of):
    """Mostly columns: calls on literals alone are folded by the naive half, and agree trivially."""
    literal, column = optional(of).map(lambda value: Literal(value, of)), st.just(col(BY_TYPE[of]))
    return st.integers(0, 4).flatmap(lambda die: column if die else literal)


@cache
def of_type(of, depth):
    """Expressions whose type is, or is cast to, `of`."""
    return st.deferred(lambda: ways_to(of, depth)) if depth else leaves(of)


def ways_to(of, depth):
    ways = [leaves(of), anything(depth - 1).map(lambda e: castable(e, of)), conditional(of, depth - 1)]
    return st.one_of(*ways, *(way(depth - 1) for way in WAYS.get(of, ())))


def castable(expression, of):
    try:
        cast = expression.cast(of)
        cast.type(SCHEMA)
    except Exception:  # not every type can become every other
        return col(BY_TYPE[of])
    return cast


@cache
def conditional(of, depth):
    value = of_type(of, depth)
    condition = of_type(pa.bool_(), depth)
    return st.one_of(
        st.builds(lambda c, x, y: Case(((c, x),), y), condition, value, value),
        st.builds(lambda c, x, d, y: Case(((c, x), (d, y))), condition, value, condition, value),
        st.builds(coalesce, value, value),
        st.builds(lambda x, y: fn("nullif", x, y), value, value),
        st.builds(lambda x, y: fn("greatest", x, y), value, value),
        st.builds(lambda x, y, z: fn("least", x, y, z), value, value, value),
    )


@cache
def anything(depth):
    return st.sampled_from(TYPES).flatmap(lambda of: of_type(of, depth))


@cache
def number(depth):
    return st.sampled_from(NUMBERS).flatmap(lambda of: of_type(of, depth))


@cache
def arithmetic(depth):
    operators = st.sampled_from("+-*/%")
    make = {
        "+": lambda x, y: x + y,
        "-": lambda x, y: x - y,
        "*": lambda x, y: x * y,
        "/": lambda x, y: x / y,
        "%": lambda x, y: x % y,
    }
    binary = st.builds(lambda op, x, y: make[op](x, y), operators, number(depth), number(depth))
    exact = st.sampled_from([of for of in NUMBERS if not pa.types.is_floating(of)])
    whole = exact.flatmap(lambda of: of_type(of, depth))
    divided = st.builds(lambda x, y: Arithmetic("DIV", x, y), whole, whole)
    rounded = st.builds(lambda x, d: fn("round", x, d), number(depth), st.integers(-3, 4))
    unary = st.builds(
        fn,
        st.sampled_from(["abs", "floor", "ceil", "sqrt", "exp", "ln", "log10", "sign", "log", *ANGLES]),
        number(depth),
    )
    names = st.sampled_from(["power", "atan2", "log", "pmod"])
    both = st.builds(fn, names, number(depth), number(depth))
    return st.one_of(binary, binary, divided, rounded, unary, both, number(depth).map(lambda x: -x))


ANGLES = ("sin", "cos", "tan", "asin", "acos", "atan", "degrees", "radians")


@cache
def comparison(depth):
    def pair(of):
        return st.tuples(of_type(of, depth), of_type(of, depth))

    same = st.sampled_from(TYPES).flatmap(pair)
    operands = same | st.tuples(number(depth), number(depth))
    operators = ["eq", "ne", "eq_null_safe", "__lt__", "__le__", "__gt__", "__ge__"]
    return st.builds(lambda op, xy: getattr(xy[0], op)(xy[1]), st.sampled_from(operators), operands)


@cache
def logic(depth):
    condition = of_type(pa.bool_(), depth)
    return st.one_of(
        st.builds(lambda x, y: x & y, condition, condition),
        st.builds(lambda x, y, z: x | y | z, condition, condition, condition),
        condition.map(lambda x: ~x),
        anything(depth).map(lambda x: x.is_null()),
        anything(depth).map(lambda x: x.is_not_null()),
    )


@cache
def membership(depth):
    def options(of):
        value = of_type(of, depth)
        constants = st.lists(optional(of).map(lambda value: Literal(value, of)), max_size=4)
        return st.one_of(
            st.builds(lambda x, found: In(x, tuple(found)), value, constants),
            st.builds(lambda x, found: In(x, tuple(found)), value, st.lists(value, max_size=2)),
            st.builds(Between, value, value, value),
        )

    return st.sampled_from(TYPES).flatmap(options)


@cache
def text_test(depth):
    text = of_type(pa.string(), depth)
    tests = st.sampled_from(["starts_with", "ends_with", "contains"])
    return st.one_of(
        st.builds(Like, text, text, st.sampled_from("\\%a")),
        st.builds(fn, tests, text, text),
    )


@cache
def text(depth):
    value, small = of_type(pa.string(), depth), st.integers(-4, 6) | of_type(pa.int8(), 0)
    one = ["upper", "lower", "trim", "ltrim", "rtrim", "reverse", "initcap", "md5", "sha1"]
    return st.one_of(
        st.builds(fn, st.sampled_from(one), value),
        st.builds(lambda x, p, n: fn("substring", x, p, n), value, small, small),
        st.builds(lambda x, p: fn("substring", x, p), value, small),
        st.builds(fn, st.sampled_from(["lpad", "rpad"]), value, small, value),
        st.builds(fn, st.sampled_from(["left", "right", "repeat"]), value, small),
        st.builds(lambda x, y, z: fn("translate", x, y, z), value, value, value),
        st.builds(lambda x, y, z: fn("concat_ws", x, y, z), value, value, anything(depth)),
        st.builds(lambda x, n: fn("sha2", x, n), value, st.sampled_from([0, 224, 256, 384, 512, 1])),
        st.builds(lambda x, y: fn("concat", x, y), value, anything(depth)),
        st.builds(lambda x, y, z: fn("replace", x, y, z), value, value, value),
        st.builds(lambda x, y, n: fn("split_part", x, y, n), value, value, small),
        st.builds(lambda x, n: fn("regexp_extract", x, "([a-b]+)(.)?", n), value, st.integers(-1, 3)),
        st.builds(
            lambda x: fn("date_format", x, "yyyy/MM/dd 'at' HH:mm:ss"), of_type(pa.timestamp("us"), depth)
        ),
    )


@cache
def field(depth):
    names = st.sampled_from(["year", "month", "day", "hour", "minute", "second"])
    time = of_type(pa.timestamp("us"), depth) | of_type(pa.timestamp("us", "UTC"), depth)
    days = st.sampled_from(["dayofweek", "weekday", "dayofyear", "weekofyear", "quarter"])
    words = of_type(pa.string(), depth)
    return st.one_of(
        st.builds(fn, names, time),
        st.builds(fn, days, time | of_type(pa.date32(), depth)),
        st.builds(lambda x, y: fn("datediff", x, y), of_type(pa.date32(), depth), time),
        st.builds(lambda x, y: fn("instr", x, y), words, words),
        st.builds(lambda x, y, n: fn("locate", x, y, n), words, words, st.integers(-1, 4)),
        words.map(lambda x: fn("ascii", x)),
        of_type(pa.string(), depth).map(lambda x: fn("length", x)),
        st.builds(
            lambda x, pattern: fn("regexp_count", x, pattern),
            of_type(pa.string(), depth),
            st.sampled_from(["a", "aa", "[a-b]+", ".?"]),
        ),
    )


@cache
def truncated(depth):
    units = st.sampled_from(
        ["year", "quarter", "MONTH", "week", "dd", "hour", "minute", "second", "millisecond", "no"]
    )
    return st.builds(lambda unit, x: fn("date_trunc", unit, x), units, of_type(pa.timestamp("us"), depth))


@cache
def shifted(depth):
    ticks = st.sampled_from([0, 1, -(10**6), 86_400_000_000, 10**17, -(2**62)])
    return st.builds(
        lambda x, n: fn("plus_micros", x, n),
        of_type(pa.timestamp("us"), depth),
        ticks | of_type(pa.int8(), 0),
    )


@cache
def other_day(depth):
    days = of_type(pa.date32(), depth) | of_type(pa.timestamp("us"), depth)
    count = st.sampled_from([0, 1, -40, 10**6, 10**7, -(2**62)]) | of_type(pa.int8(), 0)
    return st.one_of(
        st.builds(fn, st.sampled_from(["date_add", "date_sub", "add_months"]), days, count),
        st.builds(fn, st.sampled_from(["last_day", "to_date"]), days),
    )


@cache
def from_epoch(depth):
    names = st.sampled_from(["timestamp_micros", "timestamp_millis", "timestamp_seconds"])
    return st.builds(fn, names, of_type(pa.int64(), depth))


@cache
def to_epoch(depth):
    names = st.sampled_from(["unix_micros", "unix_millis", "unix_seconds"])
    return st.builds(fn, names, of_type(pa.timestamp("us"), depth))


WAYS = {
    pa.bool_(): (comparison, comparison, logic, logic, membership, text_test),
    pa.string(): (text, text),
    pa.int32(): (field,),
    pa.int64(): (to_epoch,),
    pa.timestamp("us"): (truncated, from_epoch, shifted),
    pa.date32(): (other_day,),
}


def expressions(depth):
    return anything(depth) | arithmetic(depth - 1) | of_type(pa.bool_(), depth)
