"""Aggregates written in SQL: what they answer, how they are computed, and the errors of their texts."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace
from headrace.aggregates.sql_aggregate import SqlAggregate
from headrace.errors import SqlError
from headrace.plan.analysis.identity import fingerprint
from headrace.plan.nodes.trees import walk
from headrace.plan.nodes.user_aggregates import UserAggregate, UserCall
from headrace.sql import Catalog, declare, query
from headrace.testing.asking import ask
from headrace.testing.folds import fold
from headrace.testing.statements import value_of

STREAM = "CREATE STREAM s (k STRING, x BIGINT, y DOUBLE); "
MEAN = """
    CREATE AGGREGATE my_mean(v DOUBLE) : DOUBLE {
        TABLE state(total DOUBLE, n BIGINT);
        INITIALIZE: { INSERT INTO state VALUES (v, 1); }
        ITERATE:    { UPDATE state SET total = total + v, n = n + 1; }
        TERMINATE:  { INSERT INTO RETURN SELECT total / n FROM state; }
    };
"""
SMOOTH = """
    CREATE AGGREGATE smooth(v DOUBLE, share DOUBLE) : DOUBLE {
        TABLE state(e DOUBLE);
        INITIALIZE: { INSERT INTO state VALUES (v) }
        ITERATE:    { UPDATE state SET e = share * v + (1 - share) * e }
        TERMINATE:  { SELECT e FROM state }
    };
"""
COMMONEST = """
    CREATE AGGREGATE commonest(w STRING) : STRING {
        TABLE seen(word STRING, n BIGINT);
        INITIALIZE: { INSERT INTO seen VALUES (w, 1); }
        ITERATE:    { UPDATE seen SET n = n + 1 WHERE word = w;
                      INSERT INTO seen SELECT w, 1 WHERE NOT EXISTS (SELECT 1 FROM seen WHERE word = w); }
        TERMINATE:  { INSERT INTO RETURN SELECT word FROM seen ORDER BY n DESC, word LIMIT 1; }
        EXPIRE:     { UPDATE seen SET n = n - 1 WHERE word = w; DELETE FROM seen WHERE n = 0; }
    };
"""
ROWS = [(0, "a", 1, 1.0), (1, "b", 2, 2.0), (2, "a", 3, 4.0), (3, "a", None, None), (7, "b", -5, 1.5)]


def made(text: str, name: str) -> SqlAggregate:
    catalog = Catalog()
    declare(text, catalog)
    found = catalog.definitions.find(name)
    assert isinstance(found, UserAggregate)
    assert isinstance(found.definition, SqlAggregate)
    return found.definition


def test_answers_by_hand() -> None:
    mean = (
        "SELECT k, my_mean(y) AS m, my_mean(x) FILTER (WHERE x > 1) AS f FROM s [RANGE 10 SLIDE 5] GROUP BY k"
    )
    assert ask(STREAM + MEAN + mean, s=ROWS, ticks_per_second=None) == [
        *(
            (4, "a", 2.5, 3.0),
            (4, "b", 2.0, 2.0),
            (9, "a", 2.5, 3.0),
            (9, "b", 1.75, 2.0),
            (14, "b", 1.5, None),
        ),
    ]
    smooth = "SELECT smooth(y, 0.5) AS e FROM s [UNBOUNDED]"
    assert ask(STREAM + SMOOTH + smooth, s=ROWS, ticks_per_second=None) == [
        *((0, 1.0), (1, 1.5), (2, 2.75), (7, 2.125)),
    ]
    common = "SELECT commonest(k) AS w FROM s [ROWS 3]"
    rows = [(t, k, None, None) for t, k in enumerate("abbcab")]
    assert ask(STREAM + COMMONEST + common, s=rows, ticks_per_second=None) == [(0, "a"), (2, "b"), (4, "a")]


def test_an_aggregate_that_adds_up_runs_no_statements() -> None:
    plan = query(
        f"{STREAM} {MEAN} SELECT my_mean(y) AS m FROM s [RANGE 10 SLIDE 5]", ticks_per_second=None
    ).plan
    calls = [call for node in walk(plan) for call in getattr(node, "calls", ())]
    assert {call.function for call in calls} == {"sum", "count"}
    assert not any(isinstance(call, UserCall) for call in calls)
    assert not made(SMOOTH, "smooth").folds


@pytest.mark.parametrize(
    ("iterate", "function"),
    [
        ("best = greatest(best, x)", "max"),
        ("best = least(x, best)", "min"),
        ("best = CASE WHEN x > best THEN x ELSE best END", "max"),
        ("best = CASE WHEN x <= best THEN x ELSE best END", "min"),
        ("best = best + x", "sum"),
        ("best = x + best", "sum"),
        ("best = best - x", None),
        ("best = CASE WHEN x > best THEN best ELSE x END", None),
        ("best = CASE WHEN x > 3 THEN x ELSE best END", None),
        ("best = best + 2 * x", None),
        ("best = x", None),
        ("best = best + x WHERE x > 0", None),
    ],
)
@given(values=st.lists(st.none() | st.integers(-9, 9), max_size=8))
def test_what_folds_answers_as_its_statements(iterate: str, function: str | None, values: list[Any]) -> None:
    """The built-in aggregate, the statements in batches, and the naive meaning."""
    text = f"""
        CREATE AGGREGATE f(x BIGINT) : BIGINT {{
            TABLE t(best BIGINT);
            INITIALIZE: {{ INSERT INTO t VALUES (x); }}
            ITERATE:    {{ UPDATE t SET {iterate}; }}
            TERMINATE:  {{ INSERT INTO RETURN SELECT best * 2 FROM t; }}
        }};"""
    definition = made(text, "f")
    assert [fold for _, fold, _ in definition.folds] == ([function] if function else [])
    known = [each for each in values if each is not None]
    expected = value_of(definition, [known], fold)
    if known:
        plain = replace(definition, folds=())
        state = plain.iterate(plain.initialize(), pa.array(known[:3], pa.int64()))
        state = plain.iterate(state, pa.array(known[3:], pa.int64())) if known[3:] else state
        assert plain.terminate(state) == expected
    rows = [(0, each) for each in values]
    found = ask(
        f"CREATE STREAM s (x BIGINT); {text} SELECT f(x) AS f FROM s [RANGE 5]", s=rows, ticks_per_second=None
    )
    assert found == ([(0, expected)] if rows else [])


def test_it_travels_with_the_plan() -> None:
    plan = query(f"{STREAM} {SMOOTH} SELECT smooth(y, 0.5) AS e FROM s [ROWS 2]", ticks_per_second=None).plan
    again = query(f"{STREAM} {SMOOTH} SELECT smooth(y, 0.5) AS e FROM s [ROWS 2]", ticks_per_second=None).plan
    assert pickle.loads(pickle.dumps(plan)) == plan == again


def test_headrace_sql_takes_it() -> None:
    rows = [{"at": 1, "v": 1.0}, {"at": 2, "v": 3.0}]
    found = headrace.sql(f"{SMOOTH} SELECT smooth(v, 0.5) AS e FROM r [UNBOUNDED]", r=rows, time="at")
    assert [row["e"] for row in found] == [1.0, 2.0]


def test_a_state_belongs_to_the_statements_that_made_it() -> None:
    """A restart with other statements is another query; TERMINATE may change."""

    def state(text: str) -> str:
        return fingerprint(query(f"{STREAM} {text} SELECT smooth(y, 0.5) AS e FROM s [ROWS 2]").plan)

    assert state(SMOOTH) == state(SMOOTH.replace("SELECT e", "SELECT e + 1"))
    assert state(SMOOTH) != state(SMOOTH.replace("share * v", "v"))


FORM = "CREATE AGGREGATE f(x BIGINT) : BIGINT {{ TABLE t(v BIGINT); {} }}"
INITIAL = "INITIALIZE: { INSERT INTO t VALUES (x); }"
ITERATE = "ITERATE: { UPDATE t SET v = v + x; }"
RETURN = "TERMINATE: { INSERT INTO RETURN SELECT v FROM t; }"


@pytest.mark.parametrize(
    ("blocks", "code", "says", "at"),
    [
        (f"{INITIAL} {ITERATE}", "HR-Q090", "the aggregate f has no TERMINATE", "f"),
        (f"{INITIAL} {ITERATE} {ITERATE} {RETURN}", "HR-Q001", "ITERATE is written twice", "ITERATE"),
        (f"{INITIAL} {ITERATE} {RETURN} FINISH: {{ }}", "HR-Q001", "FINISH is not a block", "FINISH"),
        (f"{INITIAL} {RETURN} ITERATE: {{ UPDATE u SET v = 1; }}", "HR-Q010", "has no table 'u'", "u"),
        (f"{INITIAL} {RETURN} ITERATE: {{ UPDATE t SET w = 1; }}", "HR-Q011", "the column 'w' does not", "w"),
        (f"{INITIAL} {RETURN} ITERATE: {{ UPDATE t SET v = z; }}", "HR-Q011", "the column 'z' does not", "z"),
        (
            f"{INITIAL} {RETURN} ITERATE: {{ UPDATE t SET v = 'a'; }}",
            "HR-Q014",
            "v is a BIGINT, and this is",
            "'a'",
        ),
        (f"{INITIAL} {RETURN} ITERATE: {{ UPDATE t SET v = 1, v = 2; }}", "HR-Q062", "v is set twice", "v"),
        (
            f"{INITIAL} {RETURN} ITERATE: {{ INSERT INTO t VALUES (1, 2); }}",
            "HR-Q041",
            "2 values for 1",
            "INSERT",
        ),
        (
            f"{INITIAL} {RETURN} ITERATE: {{ INSERT INTO RETURN VALUES (1); }}",
            "HR-Q002",
            "ITERATE cannot",
            "INSERT",
        ),
        (
            f"{INITIAL} {RETURN} ITERATE: {{ UPDATE t SET v = max(v); }}",
            "HR-Q033",
            "max is not allowed in",
            "max",
        ),
        (f"{INITIAL} {RETURN} ITERATE: {{ DROP TABLE t; }}", "HR-Q001", "and this is none", "DROP"),
        (f"{INITIAL} {RETURN} ITERATE: {{ UPDATE t SET v = 1 v }}", "HR-Q001", "this is not expected", "v"),
        (f"{INITIAL} {RETURN} ITERATE: {{ DELETE FROM t WHERE v; }}", "HR-Q017", "a condition must be", "v"),
        (f"{INITIAL} {ITERATE} TERMINATE: {{ SELECT x FROM t; }}", "HR-Q011", "the column 'x' does not", "x"),
        (
            f"{INITIAL} {ITERATE} TERMINATE: {{ SELECT max(v) + v FROM t; }}",
            "HR-Q032",
            "not aggregated",
            "max",
        ),
        (
            f"{INITIAL} {ITERATE} TERMINATE: {{ SELECT v FROM t ORDER BY v; }}",
            "HR-Q070",
            "chooses the first",
            None,
        ),
        (
            f"{INITIAL} {ITERATE} TERMINATE: {{ SELECT median(v) FROM t; }}",
            "HR-Q033",
            "median is not",
            "median",
        ),
        (
            f"{INITIAL} {ITERATE} TERMINATE: {{ SELECT v FROM t JOIN t AS u ON v = v; }}",
            "HR-Q002",
            "clause",
            None,
        ),
        (f"{INITIAL} {ITERATE} {RETURN[:-1]}", "HR-Q001", "expected } or a block", None),
    ],
)
def test_errors_show_the_place(blocks: str, code: str, says: str, at: str | None) -> None:
    with pytest.raises(SqlError, match=says) as caught:
        declare(FORM.format(blocks), Catalog())
    error = caught.value
    assert error.code == code
    assert error.line == 1
    if at is not None:
        assert error.excerpt is not None
        line, carets = error.excerpt.split("\n")
        assert line[carets.index("^") :].startswith(at)


def test_names() -> None:
    with pytest.raises(SqlError, match="built-in"):
        declare(MEAN.replace("my_mean", "avg"), Catalog())
    catalog = Catalog()
    declare(MEAN, catalog)
    with pytest.raises(SqlError, match="already exists") as caught:
        declare(MEAN, catalog)
    assert "CREATE OR REPLACE AGGREGATE" in str(caught.value)
    declare(MEAN.replace("CREATE", "CREATE OR REPLACE"), catalog)
    with pytest.raises(SqlError, match="is taken"):
        declare(MEAN.replace("TABLE state", "TABLE my_mean"), Catalog())
    with pytest.raises(SqlError, match="takes 2 arguments"):
        query(f"{STREAM} {SMOOTH} SELECT smooth(y) AS e FROM s [NOW]")
    with pytest.raises(SqlError, match="not string"):
        query(f"{STREAM} {MEAN} SELECT my_mean(k) AS e FROM s [NOW]")
