"""Query texts that are almost queries, read and then run: a plan and its rows, or an error of ours."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa

from headrace import Engine, query
from headrace.errors import HeadraceError
from headrace.expressions import FUNCTIONS
from headrace.plan.nodes.core import Source
from tests.sql.mutation import CHANGES, TOKEN, words_of
from tests.sql.test_fuzz import REAL, WIDE

WORDS = words_of(REAL)
LITERALS = [
    "NULL",
    "0",
    "-1",
    "9223372036854775807",
    "-9223372036854775808",
    "99999999999999999999999999999999999999",
    "1e308",
    "1e999",
    "0.00000000000000000000000000000000000001",
    "2000000000",
    "''",
    "'a'",
    "'" + "a" * 3000 + "'",
    "'\ud7ff🙂é'",
    "'(a+)+$'",
    "'('",
    "'%_%'",
    "'9999-12-31 23:59:59'",
    "'0001-01-01'",
    "TRUE",
    "DATE '2020-02-30'",
    "TIMESTAMP '2020-01-01 00:00:00'",
    "INTERVAL 5 SECONDS",
    "item",
    "price",
    "CAST(item AS STRING)",
    "CAST('1e400' AS DOUBLE)",
    "CAST(item AS DECIMAL(38, 38))",
]
OPERATORS = ["+", "-", "*", "/", "%", "DIV", "=", "<>", "<", "<=>", "AND", "OR", "||", "LIKE", "IN", "IS"]
FORMS = [
    "SELECT {e} AS x FROM bids",
    "SELECT item FROM bids WHERE {e}",
    "SELECT {e} AS x, count(*) AS n FROM bids [RANGE 10 SECONDS] GROUP BY {e}",
    "SELECT sum({e}) AS x, max({e}) AS y, avg({e}) AS z FROM bids [RANGE 10 SECONDS SLIDE 5 SECONDS]",
    "SELECT DISTINCT {e} AS x FROM bids [ROWS 3]",
    "SELECT x.item FROM bids [RANGE 5 SECONDS] AS x, bids [NOW] AS y WHERE x.item = y.item AND {e}",
]


def text_of(seed: int) -> str:
    """The text of a seed."""
    random = Random(seed)
    if random.random() < 0.4:
        return _mutated(random)
    found = random.choice(FORMS).replace("{e}", _expression(random, random.choice([1, 2, 3, 4])))
    return _nested(random, found) if random.random() < 0.1 else found


def _mutated(random: Random) -> str:
    tokens = TOKEN.findall(random.choice(REAL))
    for _ in range(random.choice([1, 1, 2, 3, 6])):
        at, other = random.randrange(len(tokens)), random.randrange(len(tokens))
        word = random.choice([*WORDS, *LITERALS])
        random.choice(CHANGES)(tokens, at, other, word)
    return "".join(tokens)


def _expression(random: Random, depth: int) -> str:
    if not depth:
        return random.choice(LITERALS)
    if random.random() < 0.7:
        return _fitting(random, depth)
    kind = random.random()
    if kind < 0.5:
        name = random.choice(sorted(FUNCTIONS))
        arguments = [_expression(random, depth - 1) for _ in range(random.choice([0, 1, 1, 2, 2, 3, 4]))]
        return f"{name}({', '.join(arguments)})"
    if kind < 0.8:
        left, right = (_expression(random, depth - 1) for _ in range(2))
        return f"({left} {random.choice(OPERATORS)} {right})"
    if kind < 0.9:
        to = random.choice(
            ["INT", "TINYINT", "DOUBLE", "DECIMAL(38, 10)", "STRING", "DATE", "TIMESTAMP", "BOOLEAN"]
        )
        return f"CAST({_expression(random, depth - 1)} AS {to})"
    return f"CASE WHEN {_expression(random, depth - 1)} THEN {_expression(random, depth - 1)} ELSE NULL END"


def _fitting(random: Random, depth: int) -> str:
    """An expression that mostly has a type: texts for texts, numbers for numbers."""
    parts = {
        "t": random.choice(TEXTS),
        "n": random.choice(NUMBERS),
        "w": random.choice(WHOLE),
        "d": random.choice(TIMES),
    }
    if depth > 1:
        parts["t"], parts["n"] = random.choice(
            [
                (_fitting_text(random), parts["n"]),
                (parts["t"], f"length({_fitting_text(random)})"),
                (parts["t"], parts["n"]),
            ]
        )
    return random.choice(TYPED).format(**parts)


def _fitting_text(random: Random) -> str:
    parts = {
        "t": random.choice(TEXTS),
        "n": random.choice(NUMBERS),
        "w": random.choice(WHOLE),
        "d": random.choice(TIMES),
    }
    return random.choice(TEXT_CALLS).format(**parts)


TEXTS = [
    "CAST(item AS STRING)",
    "''",
    "'aaaa!'",
    "'é漢🙂'",
    "CAST(price AS STRING)",
    "NULL",
    "'" + "x" * 500 + "'",
]
NUMBERS = [
    "item",
    "price",
    "0",
    "-1",
    "1e308",
    "0.5",
    "99999999999999999999.99",
    "NULL",
    "CAST('inf' AS DOUBLE)",
]
WHOLE = ["0", "1", "-1", "3", "item", "2000000000", "9223372036854775807", "CAST(price AS INT)"]
TIMES = [
    "TIMESTAMP '2020-01-01 00:00:00'",
    "DATE '9999-12-31'",
    "timestamp_seconds(item)",
    "timestamp_micros(item)",
]
TEXT_CALLS = [
    "upper({t})",
    "reverse({t})",
    "substring({t}, {w}, {w})",
    "lpad({t}, {w}, {t})",
    "rpad({t}, {w}, 'ab')",
    "replace({t}, {t}, {t})",
    "concat({t}, {t}, {n})",
    "trim({t}, {t})",
    "split_part({t}, {t}, {w})",
    "regexp_extract({t}, {t}, {w})",
    "regexp_extract({t}, '(a|a)*(b)?', {w})",
    "date_format({d}, 'yyyy-MM-dd HH:mm:ss')",
    "CAST({n} AS STRING)",
]
TYPED = [
    *TEXT_CALLS,
    "length({t})",
    "regexp_count({t}, {t})",
    "regexp_count({t}, 'a*')",
    "({t} LIKE {t})",
    "({t} IN ({t}, {t}))",
    "({n} + {n})",
    "({n} * {n})",
    "({n} / {n})",
    "({n} DIV {n})",
    "({n} % {n})",
    "round({n}, 2)",
    "power({n}, {n})",
    "floor({n})",
    "sqrt({n})",
    "ln({n})",
    "exp({n})",
    "abs({n})",
    "greatest({n}, {n})",
    "CAST({n} AS DECIMAL(38, 10))",
    "CAST({t} AS DOUBLE)",
    "CAST({t} AS TIMESTAMP)",
    "CAST({d} AS BIGINT)",
    "CASE WHEN {n} > {n} THEN {t} ELSE {t} END",
    "coalesce({t}, {t})",
    "({n} BETWEEN {n} AND {n})",
    "year({d})",
    "date_trunc('week', {d})",
    "plus_micros({d}, {w})",
    "({d} + INTERVAL 1 DAY)",
    "unix_micros({d})",
]


def _nested(random: Random, text: str) -> str:
    times = random.choice([10, 300, 5000, 60_000])
    opening, closing = random.choice(
        [("(", ")"), ("abs(", ")"), ("NOT ", ""), ("-", ""), ("/*", "*/"), ("'", "'")]
    )
    at = random.randrange(len(text))
    return text[:at] + opening * times + text[at:] + closing * times


def check(seed: int, root: Path) -> str:
    """Read the text of a seed and run it on a few rows."""
    text = text_of(seed)
    try:
        found = query(text, WIDE)
    except HeadraceError as error:
        return f"refused {error.code}"
    try:
        return _run(found, Random(seed))
    except HeadraceError as error:
        return f"stopped {error.code}"


def _run(found: object, random: Random) -> str:
    engine = Engine(now=-1)
    engine.add("q", found)  # type: ignore[arg-type]
    rows = 0
    sources = [s for s in found.sources if isinstance(s, Source)]  # type: ignore[attr-defined]
    for step in range(3):
        for source in sources:
            data = _rows(source.schema, random)
            engine.push(
                source.name, data, np.arange(data.num_rows, dtype=np.int64) * 1_000_000 + step * 20_000_000
            )
        rows += sum(len(batch) for batch in engine.drain("q"))
    for source in sources:
        engine.streams.end(source.name)
    rows += sum(len(batch) for batch in engine.drain("q"))
    return f"{rows} rows"


def _rows(schema: pa.Schema, random: Random) -> pa.RecordBatch:
    size = 6
    return pa.RecordBatch.from_arrays([_column(f.type, size, random) for f in schema], schema=schema)


def _column(of: pa.DataType, size: int, random: Random) -> pa.Array:
    choices: list[object] = [None]
    if pa.types.is_integer(of):
        choices += [0, 1, -1, (1 << (of.bit_width - 1)) - 1, -(1 << (of.bit_width - 1))]
    elif pa.types.is_floating(of):
        choices += [0.0, -0.0, 1.5, 1e308, float("nan"), float("inf")]
    elif pa.types.is_string(of):
        choices += ["", "a", "aaaa!", "é漢🙂", "12", "x" * 2000]
    elif pa.types.is_timestamp(of):
        choices += [dt.datetime(2026, 1, 31), dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31)]
    elif pa.types.is_boolean(of):
        choices += [True, False]
    elif pa.types.is_binary(of):
        choices += [b"", b"\xff"]
    elif pa.types.is_list(of):
        choices += [[], ["a", None]]
    return pa.array([random.choice(choices) for _ in range(size)], of)
