"""Windows in the words of Flink and Spark have the plans of CQL's own."""

from __future__ import annotations

import pytest

from headrace.errors import SqlError
from headrace.sql import query
from headrace.testing.asking import ask

STREAM = "CREATE STREAM s (k STRING, v BIGINT, ts TIMESTAMP) TIME ts; "
TUMBLING = "s [RANGE 10 MINUTES SLIDE 10 MINUTES]"
HOPPING = "s [RANGE 10 MINUTES SLIDE 5 MINUTES]"
SAME = [
    (
        """SELECT k, window_start, window_end, count(*) AS n
        FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '10' MINUTES))
        GROUP BY k, window_start, window_end""",
        f"SELECT k, window_start, window_end, count(*) AS n FROM {TUMBLING} GROUP BY k",
    ),
    (
        """SELECT w.k, count(*) AS n
        FROM TABLE(HOP(TABLE s, DESCRIPTOR(ts), INTERVAL '5' MINUTES, INTERVAL '10' MINUTES)) AS w
        WHERE w.v > 1 GROUP BY w.k, window_start""",
        f"SELECT k, count(*) AS n FROM {HOPPING} WHERE v > 1 GROUP BY k, window_start",
    ),
    (
        """SELECT k, count(*) AS n FROM TABLE(
            SESSION(TABLE s PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' MINUTES)) GROUP BY k, window_end""",
        "SELECT k, count(*) AS n FROM s [SESSION 5 MINUTES] GROUP BY k, window_end",
    ),
    (
        """SELECT k, v, count(*) AS n FROM TABLE(
            SESSION(TABLE s PARTITION BY k, v, DESCRIPTOR(ts), INTERVAL '5' MINUTES)) GROUP BY k, v""",
        "SELECT k, v, count(*) AS n FROM s [PARTITION BY k, v SESSION 5 MINUTES] GROUP BY k, v",
    ),
    (
        "SELECT k, sum(v) AS n FROM TABLE(SESSION(TABLE s, DESCRIPTOR(ts), INTERVAL '5' MINUTES)) GROUP BY k",
        "SELECT k, sum(v) AS n FROM s [PARTITION BY () SESSION 5 MINUTES] GROUP BY k",
    ),
    (
        """SELECT count(*) AS n FROM TABLE(HOP(DATA => TABLE s, TIMECOL => DESCRIPTOR(ts),
            SIZE => INTERVAL '10' MINUTES, SLIDE => INTERVAL '5' MINUTES))""",
        f"SELECT count(*) AS n FROM {HOPPING}",
    ),
    (
        """SELECT k, count(*) AS n FROM SESSION(DATA => TABLE s PARTITION BY k, TIMECOL => DESCRIPTOR(ts),
            GAP => INTERVAL '5' MINUTES) GROUP BY k""",
        "SELECT k, count(*) AS n FROM s [SESSION 5 MINUTES] GROUP BY k",
    ),
    (
        """SELECT window_time, count(*) AS n
        FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '10' MINUTES))
        GROUP BY window_start, window_time""",
        f"SELECT window_end - 1 AS window_time, count(*) AS n FROM {TUMBLING}",
    ),
    (
        "SELECT count(*) AS n FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '10' MINUTES)",
        f"SELECT count(*) AS n FROM {TUMBLING}",
    ),
    (
        """SELECT window.start, window.end, k, sum(v) AS n
        FROM s GROUP BY window(ts, '10 minutes', '5 minutes'), k""",
        f"""SELECT timestamp_micros(window_start) AS start, timestamp_micros(window_end) AS end, k,
            sum(v) AS n FROM {HOPPING} GROUP BY k""",
    ),
    (
        "SELECT k, window.start AS a FROM s GROUP BY k, window(s.ts, '10 minutes') HAVING count(*) > 1",
        f"SELECT k, timestamp_micros(window_start) AS a FROM {TUMBLING} GROUP BY k HAVING count(*) > 1",
    ),
    (
        "SELECT k, session_window.end AS e FROM s WHERE v > 1 GROUP BY session_window(ts, '5 minutes'), k",
        "SELECT k, timestamp_micros(window_end) AS e FROM s [SESSION 5 MINUTES] WHERE v > 1 GROUP BY k",
    ),
    (
        "SELECT window_start FROM s GROUP BY window(ts, INTERVAL '10' MINUTES)",
        f"SELECT window_start FROM {TUMBLING} GROUP BY window_start",
    ),
    (
        "SELECT count(*) AS n FROM (SELECT v, ts FROM s) GROUP BY window(ts, '1 hour 30 minutes')",
        "SELECT count(*) AS n FROM (SELECT v, ts FROM s) [RANGE 90 MINUTES SLIDE 90 MINUTES]",
    ),
    (
        "SELECT count(*) AS n FROM s GROUP BY window(ts, '10 minutes', '5 minutes', '1 minute')",
        "SELECT count(*) AS n FROM s [RANGE 10 MINUTES SLIDE 5 MINUTES OFFSET 1 MINUTE]",
    ),
    (
        "SELECT max(v) FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '-1' MINUTE))",
        "SELECT max(v) FROM s [RANGE 1 HOUR SLIDE 1 HOUR OFFSET 59 MINUTES]",
    ),
    (
        "SELECT count(*) AS n FROM s [RANGE 1 HOUR SLIDE 1 HOUR OFFSET -90 MINUTES]",
        "SELECT count(*) AS n FROM s [RANGE 1 HOUR SLIDE 1 HOUR OFFSET 30 MINUTES]",
    ),
    ("SELECT max(v) AS m FROM s [ROWS 3 SLIDE 1]", "SELECT max(v) AS m FROM s [ROWS 3]"),
    (
        "ISTREAM(SELECT max(v) AS m FROM s GROUP BY window(ts, '10 minutes'))",
        f"ISTREAM(SELECT max(v) AS m FROM {TUMBLING})",
    ),
]


@pytest.mark.parametrize(("familiar", "own"), SAME, ids=range(len(SAME)))
def test_a_familiar_spelling_has_the_plan_of_our_own(familiar: str, own: str) -> None:
    assert query(STREAM + familiar).plan == query(STREAM + own).plan


def test_the_bounds_of_sparks_window_are_timestamps_at_any_resolution() -> None:
    text = "SELECT window.start AS a, window.end AS b, count(*) AS n FROM s GROUP BY window(t, '5 seconds')"
    stream = "CREATE STREAM s (t BIGINT, v BIGINT) TIME t; "
    ((_, begin, end, count),) = ask(stream + text, s=[(7, 7, 1)])
    assert (begin.timestamp(), end.timestamp(), count) == (5, 10, 1)


REFUSED = [
    ("SELECT max(v) FROM s [ROWS 3 SLIDE 0]", "HR-Q020", "0", "ROWS 100"),
    ("SELECT max(v) FROM s [PARTITION BY k ROWS 3 SLIDE 2 DAYS]", "HR-Q020", "DAYS", "windows:"),
    ("SELECT max(v) FROM s [RANGE 3 DAYS OFFSET 1 DAY]", "HR-Q020", "OFFSET", "windows:"),
    # text, code, what the carets are under, a part of the hint
    (
        "SELECT * FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' DAY)) ORDER BY v LIMIT 3",
        "HR-Q020",
        None,
        "s [RANGE",
    ),
    ("SELECT count(*) FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(v), INTERVAL '1' DAY))", "HR-Q061", "v", "ts"),
    (
        "SELECT 1 FROM TABLE(CUMULATE(TABLE s, DESCRIPTOR(ts), INTERVAL '2' DAYS, INTERVAL '3' DAYS))",
        "HR-Q020",
        "INTERVAL '3' DAYS",
        "multiple of the step",
    ),
    (
        "SELECT 1 FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' DAY, INTERVAL '1' HOUR, 5 DAYS))",
        "HR-Q020",
        "5 DAYS",
        "TUMBLE(TABLE s",
    ),
    ("SELECT 1 FROM TABLE(TUMBLE(DATA => TABLE s, SIZE => 1))", "HR-Q020", "1", "TUMBLE(TABLE s"),
    ("SELECT 1 FROM TABLE(HOP(TABLE s, DESCRIPTOR(ts), INTERVAL '1' DAY))", "HR-Q020", "HOP", "slide"),
    ("SELECT 1 FROM TABLE(TUMBLE(TABLE s, ts, INTERVAL '1' DAY))", "HR-Q020", "ts", "DESCRIPTOR"),
    ("SELECT 1 FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' DAY)", "HR-Q020", ")", "TUMBLE("),
    (
        "SELECT 1 FROM TABLE(TUMBLE(TABLE s PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' DAY))",
        "HR-Q020",
        "k",
        "GROUP BY",
    ),
    (
        "SELECT 1 FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' DAY)) a JOIN s b ON a.k = b.k",
        "HR-Q020",
        None,
        "one stream",
    ),
    (
        "SELECT 1 FROM s GROUP BY window(ts, '2 days', '1 day', '1 hour', '1 day')",
        "HR-Q020",
        None,
        "an offset",
    ),
    (
        "SELECT v FROM TABLE(HOP(TABLE s, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '1' DAY))",
        "HR-Q020",
        None,
        "a longer slide",
    ),
    ("SELECT 1 FROM s GROUP BY session_window(ts, '2 days', '1 day')", "HR-Q020", "'1 day'", ""),
    ("SELECT 1 FROM s [NOW] GROUP BY window(ts, '1 day')", "HR-Q020", "window(ts, '1 day')", "remove"),
    ("SELECT 1 FROM s a, s b GROUP BY window(a.ts, '1 day')", "HR-Q020", None, "FROM a [RANGE"),
    ("SELECT 1 FROM s GROUP BY window(ts, '1 day'), window(ts, '2 days')", "HR-Q020", None, "two queries"),
    ("SELECT 1 FROM s GROUP BY window(ts, 10)", "HR-Q021", "10", "'10 minutes'"),
    ("SELECT 1 FROM s GROUP BY window(ts, '1 month')", "HR-Q021", "'1 month'", "vary"),
    ("SELECT 1 FROM s GROUP BY window()", "HR-Q020", "window()", "'10 minutes'"),
    ("SELECT 1 FROM s GROUP BY window(v + 1, '1 day')", "HR-Q020", None, "'10 minutes'"),
    ("SELECT window, count(*) FROM s GROUP BY window(ts, '1 day')", "HR-Q011", "window", "window.start"),
    ("SELECT window_start FROM s [RANGE 2 MINUTES SLIDE 1 MINUTE]", "HR-Q011", "window_start", "TABLE(HOP("),
    (
        "SELECT 1 FROM TUMBLE(DATA => TABLE s, TIMECOL => DESCRIPTOR(ts), STEP => '1' DAY) GROUP BY k",
        "HR-Q020",
        None,
        "TUMBLE(TABLE s",
    ),
]


@pytest.mark.parametrize(("text", "code", "marked", "hint"), REFUSED, ids=[text[:70] for text, *_ in REFUSED])
def test_what_is_not_the_same_names_our_spelling(text: str, code: str, marked: str | None, hint: str) -> None:
    with pytest.raises(SqlError) as caught:
        query(STREAM + "\n" + text)
    assert caught.value.code == code, str(caught.value)
    assert hint in caught.value.hint, str(caught.value)
    quoted, carets = caught.value.excerpt.split("\n")
    assert marked is None or quoted[carets.index("^") : len(carets)] == marked, str(caught.value)


TICKS = """
    CREATE STREAM s (k STRING, v BIGINT, ts BIGINT) TIME ts;
    CREATE STREAM r (k STRING, w BIGINT, ts BIGINT) TIME ts;
"""


def test_rows_of_tumbling_windows_know_their_bounds() -> None:
    """In the list, in WHERE, in a join, and per window; a star leaves them out."""
    rows = [(1, "a", 5, 1), (4, "b", 6, 4), (7, "a", 7, 7)]
    window = "[RANGE 5 SLIDE 5 OFFSET 1]"

    def told(text: str, **more: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
        return ask(TICKS + text, s=rows, ticks_per_second=None, **more)

    assert told(f"SELECT k, window_start, window_end, window_time FROM s {window}") == [
        *((5, "a", 1, 6, 5), (5, "b", 1, 6, 5), (10, "a", 6, 11, 10)),
    ]
    assert told(f"SELECT *, window_end FROM s {window} WHERE window_start > 1") == [(10, "a", 7, 7, 11)]
    assert told(f"SELECT * FROM s {window} WHERE window_start > 1") == [(10, "a", 7, 7)]
    joined = f"SELECT s.k, w, r.window_start AS b FROM s {window} JOIN r {window} ON s.k = r.k"
    assert told(joined, r=[(2, "a", 9, 2)]) == [(5, "a", 9, 1)]
    first = f"SELECT k, window_start FROM s {window} QUALIFY ROW_NUMBER() OVER (ORDER BY v DESC) = 1"
    assert told(first) == [(5, "b", 1), (10, "a", 6)]


def test_a_bound_as_a_column_comes_before_that_of_a_window() -> None:
    text = """SELECT window_start FROM (SELECT k, window_start FROM s [RANGE 5 SLIDE 5] GROUP BY k) AS a
              JOIN r [RANGE 5 SLIDE 5] ON a.k = r.k"""
    found = ask(TICKS + text, s=[(1, "a", 5, 1)], r=[(2, "a", 9, 2)], ticks_per_second=None)
    assert found == [(4, 0)]
