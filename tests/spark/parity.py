"""The cases of the parity suite: queries, what is promised of their streams, and what arrives when.

`s` and `u` bring their times, `i` has none: its rows are stamped as they come. In the fourth micro-batch `u`
falls silent; some rows are late, some have no time, some a time that lies far ahead.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.engine.execution import Execution
from headrace.engine.inputs import Inputs
from headrace.graph.admission import Rules
from headrace.plan.nodes.core import TimeKind
from headrace.sql import Query, StreamDef, TableDef, query
from headrace.time.bounds import Bounds
from headrace.time.estimation import Adaptivity, Adjusting, SkewEstimator
from headrace.time.ets import (
    NONE,
    ON_DEMAND,
    DisorderPromise,
    Policy,
    Promise,
    SkewPromise,
    StrongestPromise,
    TimerPromise,
    periodic,
)
from headrace.time.grouping import group_named
from headrace.time.heartbeat import HeartbeatGenerator
from headrace.time.learned import CombinedHeartbeats, LearnedHeartbeats
from headrace.time.quantile import Confidence, QuantileEstimator
from headrace.time.row_promises import HeartbeatRows, PunctuationRows, RowPromises
from headrace.time.skew import Pair, SkewMatrix
from headrace.time.sources import SourceGroups, SourcesPromise
from tests.spark.simulated import MicroBatch

SCHEMAS = {
    "s": pa.schema([("t", pa.int64()), ("k", pa.int32()), ("c", pa.string()), ("v", pa.int32())]),
    "u": pa.schema([("t", pa.int64()), ("k", pa.int32()), ("c", pa.string()), ("w", pa.float64())]),
    "i": pa.schema([("k", pa.int32()), ("v", pa.int32())]),
}
SPARK_SCHEMAS = {
    "s": "t bigint, k int, c string, v int, arrival bigint",
    "u": "t bigint, k int, c string, w double, arrival bigint",
    "i": "k int, v int, arrival bigint",
    "timer": "arrival bigint",
}
STREAMS = [
    StreamDef("s", SCHEMAS["s"], time_column="t", ticks_per_second=None),
    StreamDef("u", SCHEMAS["u"], time_column="t", ticks_per_second=None),
    StreamDef("i", SCHEMAS["i"], TimeKind.INTERNAL, ticks_per_second=None),
]
NAMES = pa.table({"k": pa.array([0, 1, 2, 2], pa.int32()), "name": ["zero", "one", "two", "zwei"]})
TABLES = [TableDef("names", NAMES.schema)]

Row = dict[str, Any]
Instant = tuple[int, dict[str, list[Row]]]

NOWS = ((5, 10), (18, 20), (30,), (37, 38, 41), (70,))
"""The instants of each micro-batch."""

FIRST_RUN = 3
"""Micro-batches before the restart."""


def arrivals(seed: int = 7) -> list[list[Instant]]:
    """The micro-batches: what arrived at each of their instants."""
    rng = random.Random(seed)
    before, made = 0, []
    for number, nows in enumerate(NOWS):
        made.append([_instant(rng, before, now, number) for now in nows])
        before = nows[-1]
    return made


def _instant(rng: random.Random, before: int, now: int, number: int) -> Instant:
    names = ["s", "i"] if number >= 3 else ["s", "u", "i"]
    rows = {name: [_row(rng, name, before, now) for _ in range(rng.randint(2, 7))] for name in names}
    return now, rows if number < len(NOWS) - 1 else {}


def _row(rng: random.Random, name: str, before: int, now: int) -> Row:
    time = rng.choice((now, now - 1, now - 2, *range(before + 1, now + 1), now - 15, None, now + 900))
    everything = {
        "t": time,
        "k": rng.choice((0, 1, 2, 3, 4, None)),
        "c": rng.choice("abc"),
        "v": rng.choice((None, *range(20))),
        "w": rng.randint(0, 40) / 4,
    }
    return {column: everything[column] for column in SCHEMAS[name].names}


ARRIVALS = arrivals()


def instants() -> list[MicroBatch]:
    """What arrived, for one engine."""
    return [(now, {n: _pushed(n, rows) for n, rows in all.items()}) for now, all in chain(*ARRIVALS)]


def _pushed(name: str, rows: list[Row]) -> tuple[pa.RecordBatch, np.ndarray]:
    times = [np.nan if row.get("t") is None else row["t"] for row in rows]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMAS[name]), np.array(times, object)


STRICT = Rules(disordered=True, enforce="strict", guard=500)
ADMIT = Rules(disordered=True, enforce="admit", guard=500)


def promised(s: Promise, u: Promise, rules: Rules = STRICT, policy: Policy | None = None) -> Inputs:
    policies = {} if policy is None else {"s": policy, "u": policy}
    return Inputs(promises={"s": s, "u": u}, policies=policies, rules={"s": rules, "u": rules})


def managed(heartbeats: Any) -> Inputs:
    return Inputs(heartbeats, rules={"s": STRICT, "u": STRICT})


USUAL = promised(DisorderPromise(4, 12), DisorderPromise(6, 15))


def said(s: Mapping[str, Any], u: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """`promised` as options."""
    return {"bounds": {"s": s, "u": u}, "guard": 500, **more}


USUALLY = said({"disorder": 3, "latency": 12}, {"disorder": 5, "latency": 15})


@dataclass(frozen=True)
class Case:
    """A query; `hosts` are the shards of each part it runs in, `most` the shards that are allowed.

    `counted`: late and rejected rows are only counted, which allows to aggregate before the shuffle.
    `ordered`: results come in order of time.
    `options` say what `inputs` say (`test_parity_options` compares them); with `by_options`, Spark gets them.
    """

    text: str
    inputs: Inputs = USUAL
    hosts: tuple[int, ...] = (2,)
    most: int | None = None
    restart: bool = False
    counted: bool = False
    ordered: bool = True
    execution: Execution = field(default_factory=Execution)
    options: Mapping[str, Any] | None = None
    by_options: bool = False
    query: Query = field(init=False)

    def __post_init__(self) -> None:
        made = query(self.text, [*STREAMS, *TABLES], ticks_per_second=None)
        object.__setattr__(self, "query", made)


PER_KEY = "SELECT k, count(*) AS n, sum(v) AS x FROM s [RANGE 8] GROUP BY k"
PANES = "SELECT k, count(*) AS n, sum(v) AS x, max(v) AS m, window_end FROM s [RANGE 10 SLIDE 5] GROUP BY k"
BOTH = "SELECT k, v FROM s UNION ALL SELECT k, k AS v FROM u"
JOINED = "SELECT x.k, x.v, y.w FROM s [RANGE 6] AS x, u [RANGE 9] AS y WHERE x.k = y.k"
BY_KEY_THEN_CLASS = """
    SELECT c, avg(m) AS a
    FROM   (SELECT y.k, y.c, max(x.v) AS m FROM s [RANGE 9] AS x, u [RANGE 20] AS y WHERE x.k = y.k
            GROUP BY y.k, y.c)
    GROUP  BY c"""
BY_KEY_THEN_COUNT = """
    SELECT n, count(*) AS groups
    FROM   ISTREAM(SELECT k, count(*) AS n FROM s [RANGE 9] GROUP BY k) [RANGE 12]
    GROUP  BY n"""
WINDOWS_THEN_COUNT = """
    SELECT n, count(*) AS groups
    FROM   (SELECT k, count(*) AS n FROM s [RANGE 10 SLIDE 5] GROUP BY k)
    GROUP  BY n"""

MATRIX = SkewMatrix.of(
    ("s", "u"),
    {("s", "s"): [Pair(0, 4)], ("s", "u"): [Pair(3, 8)], ("u", "s"): [Pair(2, 9)], ("u", "u"): [Pair(0, 5)]},
)
MATRIX_OPTIONS = said(
    {"disorder": 3, "transit": 2},
    {"disorder": 4, "transit": 4},
    skew={
        "bounds": [
            {"of": "s", "on": "u", "pairs": [[3, 8]]},
            {"of": "u", "on": "s", "pairs": [[2, 9]]},
        ],
        "timeout": 20,
        "groups": [["s", "u"]],
    },
)
COUNTED = SkewMatrix.of(
    ("s", "u"),
    {
        ("s", "s"): [Pair.tuples(2, 3), Pair(9, 5)],
        ("s", "u"): [Pair(3, 8)],
        ("u", "s"): [Pair(2, 9)],
        ("u", "u"): [Pair(0, 5)],
    },
)

DISPLACED = SkewMatrix.of(
    ("s", "u"),
    {
        ("s", "s"): [Pair.tuples(2, 1), Pair(0, 9)],
        ("s", "u"): [Pair(3, 8), Pair.tuples(2, 5)],
        ("u", "s"): [Pair(2, 9)],
        ("u", "u"): [Pair(0, 5)],
    },
)
DISPLACED_OPTIONS = {
    "bounds": {
        "s": {"slack": "2 rows", "disorder": 8, "transit": 2},
        "u": {"disorder": 4, "transit": 1, "fifo": True},
    },
    "skew": {
        "bounds": [
            {"of": "s", "on": "u", "pairs": [[3, 8], ["2 rows", 5]]},
            {"of": "u", "on": "s", "pairs": [["2 ticks", "9 ticks"]]},
        ],
        "timeout": 20,
        "tick": 2,
        "closure": False,
    },
    "guard": 500,
    "memory": "1 GB",
    "policy": "spill",
}
LEARNED_OPTIONS = {
    "skew": {
        "estimate": {
            "horizon": 12,
            "streams": ["s", "u"],
            "tick": 3,
            "window": 4,
            "alpha": 0.5,
            "adjust": {"least": 2},
        },
        "timeout": 15,
    },
    "idle": {"u": "periodic(8)"},
    "guard": 500,
}

NEWEST = "CREATE TABLE newest PRIMARY KEY (k) FROM s DELETE WHEN v < 3;"

CASES = {
    # Operators.
    "select": Case("SELECT k, v * 2 AS twice, upper(c) AS c FROM s WHERE v > 3 OR k IS NULL"),
    "union": Case(BOTH),
    "range": Case(PER_KEY, restart=True),
    "slide": Case(
        "SELECT k, count(*) AS n, max(v) AS x, window_end FROM s [RANGE 10 SLIDE 5] GROUP BY k", restart=True
    ),
    "slide without a key": Case("SELECT count(*) AS n, avg(v) AS a FROM s [RANGE 10 SLIDE 5]", hosts=(1,)),
    "rows": Case("SELECT sum(v) AS x FROM s [ROWS 5]", hosts=(1,)),
    "rows of each": Case("SELECT k, min(v) AS x FROM s [PARTITION BY k ROWS 3] GROUP BY k"),
    "rows that slide": Case(
        "SELECT k, sum(v) AS x FROM s [PARTITION BY k ROWS 3 SLIDE 2] GROUP BY k", restart=True
    ),
    "now": Case("RSTREAM(SELECT k, count(*) AS n FROM s [NOW] GROUP BY k)"),
    "unbounded": Case("SELECT k, max(v) AS m, count(DISTINCT c) AS cs FROM s [UNBOUNDED] GROUP BY k"),
    "join": Case(JOINED, restart=True),
    "unnest": Case(
        "SELECT k, part, count(*) AS n FROM s [RANGE 10 SLIDE 5], UNNEST(array(c, upper(c))) AS u(part) "
        "GROUP BY k, part",
        restart=True,
    ),
    "nested": Case(
        "SELECT k, struct(v, c AS name) AS whole, map('v', v)['v'] AS v, "
        "from_json(concat('{\"a\": [', CAST(v AS STRING), ']}'), 'a ARRAY<INT>').a[0] AS a FROM s"
    ),
    "left join": Case(
        "SELECT x.k, x.v, y.w FROM s [RANGE 6] AS x LEFT JOIN u [RANGE 9] AS y ON x.k = y.k AND x.v > y.w",
        restart=True,
    ),
    "full join": Case(
        "SELECT x.k, y.k AS j, x.v, y.w FROM s [RANGE 6] AS x FULL JOIN u [RANGE 9] AS y ON x.k = y.k",
        hosts=(2, 1),
    ),
    "exists": Case(
        "SELECT k, v FROM s [RANGE 6] AS x WHERE EXISTS (SELECT 1 FROM u [RANGE 3] AS y WHERE y.k = x.k)"
    ),
    "not in": Case(
        "SELECT k, v FROM s [NOW] WHERE k IS NOT NULL "
        "AND k NOT IN (SELECT k FROM u [RANGE 9] WHERE k IS NOT NULL)",
        restart=True,
    ),
    "left join within an interval": Case(
        "SELECT s.k, s.v, u.w FROM s LEFT JOIN u ON s.k = u.k AND u.t BETWEEN s.t - 2 AND s.t + 4"
    ),
    "left join with a table": Case("SELECT s.k, n.name, s.v FROM s [NOW] LEFT JOIN names AS n ON n.k = s.k"),
    "join on nulls too": Case(JOINED.replace("x.k = y.k", "x.k <=> y.k"), restart=True),
    "spread and text": Case(
        "SELECT k, variance(w) AS x, min(c) AS lo, last(c) AS hi FROM u [RANGE 9] GROUP BY k", restart=True
    ),
    "join with a rest": Case(
        f"{JOINED} AND x.v > y.w", most=1, hosts=(1,), options={**USUALLY, "reoptimize": 5}, by_options=True
    ),
    "table": Case("SELECT s.k, n.name, s.v FROM s [NOW] JOIN names AS n ON n.k = s.k", restart=True),
    "table of changes": Case(
        f"{NEWEST} SELECT n.k, n.v, y.w FROM newest AS n JOIN u [RANGE 9] AS y ON n.k = y.k", restart=True
    ),
    "join as of": Case(
        f"{NEWEST} SELECT u.k, u.w, n.v FROM u LEFT JOIN newest FOR SYSTEM_TIME AS OF u.t AS n ON u.k = n.k",
        restart=True,
    ),
    "changelog": Case(
        f"{NEWEST} CHANGELOG(SELECT c, count(*) AS n, sum(v) AS x FROM newest GROUP BY c) PRIMARY KEY (c)",
        hosts=(2, 2),
        restart=True,
    ),
    "changelog of rows": Case("CHANGELOG(SELECT k, v FROM s [RANGE 7])"),
    "distinct": Case("SELECT DISTINCT k, c FROM s [RANGE 5]"),
    "except": Case("SELECT k FROM s [RANGE 10] EXCEPT SELECT k FROM u [RANGE 10]"),
    "dstream": Case("DSTREAM(SELECT k, v FROM s [RANGE 7])"),
    "rstream": Case("RSTREAM(SELECT k, sum(v) AS x FROM s [RANGE 3] GROUP BY k)"),
    "top of each": Case(
        "SELECT k, v FROM s [RANGE 9] QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC, t) <= 2",
        restart=True,
    ),
    "top of all": Case("SELECT k, v FROM s [RANGE 9] ORDER BY v DESC, k LIMIT 3", hosts=(1,)),
    "session": Case(
        "SELECT k, count(*) AS n, window_start, window_end FROM s [SESSION 4] GROUP BY k", restart=True
    ),
    "lag": Case("SELECT k, v, LAG(v, 1, -1) OVER (PARTITION BY k) AS before FROM s"),
    "over rows": Case(
        "SELECT k, v, sum(v) OVER w AS x, max(c) OVER w AS m, row_number() OVER (PARTITION BY k) AS n "
        "FROM s WINDOW w AS (PARTITION BY k ORDER BY t ROWS 2 PRECEDING)",
        restart=True,
    ),
    "over a range": Case(
        "SELECT k, v, avg(v) OVER (PARTITION BY k ORDER BY t RANGE 6 PRECEDING) AS a, "
        "rank() OVER (PARTITION BY k ORDER BY t) AS r FROM s",
        restart=True,
    ),
    "distinct on": Case("SELECT DISTINCT ON (k) WITHIN 7 TICKS k, v, c FROM s", restart=True),
    "sequence": Case(
        "SELECT x.k, x.v, y.w FROM SEQ(s AS x, u AS y) CHRONICLE PARTITION BY k WITHIN 15", restart=True
    ),
    "match recognize": Case(
        "SELECT * FROM s MATCH_RECOGNIZE (PARTITION BY k ORDER BY t "
        "MEASURES FIRST(A.v) AS a, COUNT(B.*) AS n, C.v AS c, MATCH_ROWTIME() AS t "
        "PATTERN (A B{0,3}? C) WITHIN 15 DEFINE B AS v > 1, C AS C.v > FIRST(A.v)) AS m",
        restart=True,
    ),
    "sequence of a pattern": Case(
        "SELECT first(x.k) AS k, count(x.*) AS n, first(x.v, 1) AS v, y.w "
        "FROM SEQ(s{1,3} AS x, (u AS y OR NOT u AS n FOR 4 TICKS)) DISJOINT PARTITION BY k",
        restart=True,
    ),
    "absence at both ends": Case(
        "SELECT x.k, x.v FROM SEQ(NOT u AS n FOR 3 TICKS, s AS x, NOT u AS m FOR 5 TICKS) EVERY "
        "PARTITION BY k WHERE m.w > x.v",
        restart=True,
    ),
    "lead": Case(
        "SELECT k, v, LEAD(v) OVER w AS next, LEAD(t, 2) OVER w AS later FROM s "
        "WINDOW w AS (PARTITION BY k ORDER BY t)",
        restart=True,
    ),
    "cumulate": Case(
        "SELECT k, window_start, window_end, sum(v) AS x FROM TABLE(CUMULATE(TABLE s, DESCRIPTOR(t), "
        "INTERVAL '4' TICKS, INTERVAL '12' TICKS)) GROUP BY k, window_start, window_end",
        restart=True,
    ),
    "more aggregates": Case(
        "SELECT k, max_by(c, v) AS c, median(v) AS m, topk(v, 2) AS top, collect_list(c) AS cs "
        "FROM s [RANGE 10 SLIDE 5] GROUP BY k",
        restart=True,
    ),
    "right join of windows": Case(
        "SELECT x.v, y.k, y.w FROM s [RANGE 10 SLIDE 10] AS x "
        "RIGHT JOIN u [RANGE 10 SLIDE 10] AS y ON x.k = y.k"
    ),
    "exists within an interval": Case(
        "SELECT k, v FROM s WHERE EXISTS "
        "(SELECT 1 FROM u WHERE u.k = s.k AND u.t BETWEEN s.t - 5 AND s.t + 3)",
        restart=True,
    ),
    "not exists within an interval": Case(
        "SELECT k, v FROM s WHERE NOT EXISTS "
        "(SELECT 1 FROM u WHERE u.k = s.k AND u.t BETWEEN s.t AND s.t + 4)"
    ),
    "in a relation": Case(
        "SELECT k, v FROM s [RANGE 6] WHERE k IN (SELECT k FROM u [PARTITION BY k ROWS 1])"
    ),
    "windows of each row": Case(
        "SELECT k, v, window_start, window_end FROM TABLE(HOP(TABLE s, DESCRIPTOR(t), INTERVAL '4' TICKS, "
        "INTERVAL '8' TICKS, INTERVAL '1' TICKS))"
    ),
    "sessions as in flink": Case(
        "SELECT k, window_start, window_end, count(*) AS n FROM TABLE(SESSION(TABLE s PARTITION BY k, "
        "DESCRIPTOR(t), INTERVAL '4' TICKS)) GROUP BY k, window_start, window_end"
    ),
    "first and last values": Case(
        "SELECT k, v, FIRST_VALUE(v) OVER w AS a, LAST_VALUE(c) OVER w AS b FROM s "
        "WINDOW w AS (PARTITION BY k ORDER BY t RANGE 9 PRECEDING)",
        restart=True,
    ),
    "the last row of each": Case(
        "SELECT k, v, c FROM s [RANGE 10 SLIDE 10] "
        "QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY t DESC, v, c) = 1"
    ),
    "and, or and groups in a sequence": Case(
        "SELECT x.k, x.v, y.w, z.v AS z FROM SEQ((s AS x AND u AS y), (s AS z){1,2}) EVERY "
        "PARTITION BY k WITHIN 20"
    ),
    "positions and json": Case(
        "SELECT k, pos, part, get_json_object(concat('{\"a\": {\"b\": \"', part, '\"}}'), '$.a.b') AS b "
        "FROM s LATERAL VIEW posexplode(array(c, upper(c))) p AS pos, part"
    ),
    "aggregates of more kinds": Case(
        "SELECT k, min_by(c, v) AS c, percentile(v, 0.3) AS p, approx_percentile(v, 0.5) AS a, "
        "approx_count_distinct(c) AS d, corr(v, t) AS r, bool_and(v > 2) AS b, bool_or(v > 15) AS o, "
        "count_if(v > 9) AS n, string_agg(c, '-') AS cs, collect_set(c) AS s "
        "FROM s [RANGE 10 SLIDE 10] GROUP BY k",
        restart=True,
    ),
    "in any order": Case(
        "UNORDERED(SELECT k, v * 2 AS v FROM s WHERE v > 3 UNION ALL SELECT k, k AS v FROM u)", ordered=False
    ),
    "an aggregate in sql": Case(
        "CREATE AGGREGATE rises(x BIGINT) : BIGINT { TABLE state(last BIGINT, n BIGINT); "
        "INITIALIZE: { INSERT INTO state VALUES (x, 0); } "
        "ITERATE: { UPDATE state SET n = n + CASE WHEN x > last THEN 1 ELSE 0 END, last = x; } "
        "TERMINATE: { INSERT INTO RETURN SELECT n FROM state; } }; "
        "SELECT k, rises(v) AS n FROM s [RANGE 10 SLIDE 5] GROUP BY k",
        restart=True,
    ),
    "quality": Case(
        "SELECT k, sum(v) [GRANULARITY COARSEST 5, FINEST 2] AS x FROM s [RANGE MIN 6, MAX 12] GROUP BY k"
    ),
    "quality of slides": Case(
        "SELECT k, sum(v) AS x, max(v) AS m FROM s [RANGE MIN 4, MAX 12 SLIDE 4] GROUP BY k", restart=True
    ),
    "quality of rows": Case(
        "SELECT k, sum(v) AS x FROM s [PARTITION BY k ROWS MIN 2, MAX 4] GROUP BY k", restart=True
    ),
    "several granularities": Case(
        "SELECT k, sum(v) [GRANULARITY 5] AS x, count(*) [GRANULARITY 2] AS n, "
        "max(v) [GRANULARITY COARSEST 6, FINEST 3] AS m FROM s [RANGE 12] GROUP BY k"
    ),
    "granularity of slides": Case(
        "SELECT k, avg(v) [GRANULARITY COARSEST 8, FINEST 4] AS x FROM s [RANGE 12 SLIDE 2] GROUP BY k",
        restart=True,
    ),
    "internal": Case("SELECT i.k, i.v, y.w FROM i [RANGE 9] AS i, u [RANGE 9] AS y WHERE i.k = y.k"),
    # Bounds.
    "latency": Case(
        JOINED, promised(TimerPromise(3), TimerPromise(9)), options=said({"latency": 3}, {"latency": 9})
    ),
    "disorder alone": Case(
        PER_KEY,
        promised(DisorderPromise(3), DisorderPromise(3)),
        options={"bounds": {"s": {"disorder": 2}}, "guard": 500},
    ),
    "skew to the clock": Case(
        BOTH,
        promised(SkewPromise(5), StrongestPromise((TimerPromise(4), SkewPromise(2)))),
        options=said({"skew": 5}, {"skew": 2, "latency": 4}),
        by_options=True,
    ),
    "matrix": Case(
        JOINED,
        managed(
            HeartbeatGenerator(
                group_named(Bounds.of(MATRIX, {"s": 2, "u": 4}, timeout=20).closed(), [["s", "u"]])
            )
        ),
        options=MATRIX_OPTIONS,
        by_options=True,
    ),
    "matrix of tuples": Case(JOINED, managed(HeartbeatGenerator(Bounds.of(COUNTED, 3, timeout=20)))),
    "sources by a column": Case(
        PER_KEY,
        promised(
            SourcesPromise(SourceGroups("c", 2, idle=12, choose_after=2), 3, 30),
            SourcesPromise(SourceGroups("k", 3, choose_after=None), 3),
        ),
        restart=True,
    ),
    "sources and an estimate": Case(
        JOINED,
        promised(
            SourcesPromise(SourceGroups("c", 2), confidence=Confidence(0.1, ceiling=9)),
            SourcesPromise(
                SourceGroups("k", 2, idle=12, choose_after=None),
                latency=15,
                confidence=Confidence(0.1, ceiling=9),
            ),
        ),
        options=said(
            {"estimate": {"loss": 0.1, "ceiling": 9}, "sources": {"column": "c", "groups": 2}},
            {
                "estimate": {"loss": 0.1, "ceiling": 9},
                "latency": 15,
                "sources": {"column": "k", "groups": 2, "idle": 12, "choose": False},
            },
        ),
        by_options=True,
    ),
    "learned": Case(
        JOINED,
        managed(
            CombinedHeartbeats(
                ("s", "u"),
                [
                    LearnedHeartbeats(QuantileEstimator((name,), Confidence(0.1, 2, 9, 50)), timeout=15)
                    for name in ("s", "u")
                ],
            )
        ),
        restart=True,
        options=said(
            {"estimate": {"loss": 0.1, "floor": 2, "ceiling": 9, "half_life": 50}},
            {"estimate": {"loss": 0.1, "floor": 2, "ceiling": 9, "half_life": 50}},
            skew={"timeout": 15},
        ),
        by_options=True,
    ),
    # The same by options, and other ways to run.
    "options of bounds": Case(
        JOINED,
        managed(
            HeartbeatGenerator(
                replace(Bounds.of(DISPLACED, {"s": 2, "u": 1}, timeout=20), fifo=frozenset((1,))),
                tick=2,
                close=False,
                ordered=False,
            )
        ),
        restart=True,
        execution=Execution("rr(3)", "query", "in_band"),
        options=DISPLACED_OPTIONS,
        by_options=True,
    ),
    "options of estimates": Case(
        BOTH,
        replace(
            managed(
                LearnedHeartbeats(
                    SkewEstimator(("s", "u"), 4, tick=3, adaptivity=Adaptivity(4, 0.5, Adjusting(least=2))),
                    timeout=15,
                )
            ),
            policies={"u": periodic(8)},
        ),
        restart=True,
        execution=Execution("bfs", "memory"),
        options=LEARNED_OPTIONS,
        by_options=True,
    ),
    # Enabling Time-Stamps, late rows.
    "no ets": Case(
        PER_KEY,
        promised(DisorderPromise(4, 12), DisorderPromise(6, 15), policy=NONE),
        options={"bounds": {"s": USUALLY["bounds"]["s"]}, "guard": 500, "idle": "none"},
    ),
    "periodic ets": Case(
        BOTH,
        promised(DisorderPromise(4, 12), DisorderPromise(6, 15), policy=periodic(8)),
        options={**USUALLY, "idle": "periodic(8)"},
    ),
    "ets on demand": Case(
        JOINED,
        promised(DisorderPromise(4, 12), DisorderPromise(6, 15), policy=ON_DEMAND),
        options={**USUALLY, "idle": {"s": "on_demand", "u": "on_demand"}},
    ),
    "admit": Case(
        JOINED,
        promised(DisorderPromise(2, 12), DisorderPromise(3, 15), ADMIT),
        restart=True,
        options=said({"disorder": 1, "latency": 12}, {"disorder": 2, "latency": 15}, enforce="admit"),
    ),
    "admit into windows": Case(
        "SELECT k, count(*) AS n, window_end FROM s [RANGE 10 SLIDE 5] GROUP BY k",
        promised(DisorderPromise(2, 12), DisorderPromise(3, 15), ADMIT),
    ),
    "admit into sessions": Case(
        "SELECT k, count(*) AS n, window_start, window_end FROM s [SESSION 4] GROUP BY k",
        promised(DisorderPromise(2, 12), DisorderPromise(3, 15), ADMIT),
        restart=True,
    ),
    # Aggregated before the shuffle.
    "panes by the clock": Case(PANES, promised(TimerPromise(3), TimerPromise(9)), counted=True),
    "panes and admit": Case(
        PANES, promised(DisorderPromise(2, 12), DisorderPromise(3, 15), ADMIT), restart=True, counted=True
    ),
    # Promises that come as rows.
    "rows of one close keys of the other": Case(
        JOINED,
        replace(USUAL, row_promises=RowPromises({"s": (PunctuationRows("u", (("k", "k"),)),)})),
        options={**USUALLY, "punctuations": {"s": {"stream": "u", "pattern": {"k": "k"}}}},
    ),
    "closed groups at once": Case(
        "SELECT k, count(*) AS n, window_end FROM (SELECT k FROM s UNION ALL SELECT k FROM u) "
        "[RANGE 40 SLIDE 40] GROUP BY k",
        replace(
            USUAL,
            row_promises=RowPromises(
                {name: (PunctuationRows("u", (("k", "k"),), data=True),) for name in ("s", "u")}
            ),
        ),
        restart=True,
        ordered=False,
    ),
    "heartbeats in rows": Case(
        PER_KEY,
        replace(USUAL, row_promises=RowPromises(heartbeats={"s": HeartbeatRows("v", data=True)})),
        options={
            "bounds": {"s": USUALLY["bounds"]["s"]},
            "guard": 500,
            "heartbeats": {"s": {"column": "v", "data": True}},
        },
    ),
    "groups by source": Case(
        "SELECT c, count(*) AS n, window_end FROM s [RANGE 10 SLIDE 5] GROUP BY c",
        promised(SourcesPromise(SourceGroups("c", 64, choose_after=None), 3, 40), DisorderPromise(6, 15)),
        restart=True,
        ordered=False,
    ),
    "sources by a column, and rows close keys": Case(
        JOINED,
        replace(
            promised(
                SourcesPromise(SourceGroups("c", 2, choose_after=2), 3, 30),
                SourcesPromise(SourceGroups("k", 3, choose_after=None), 3),
            ),
            row_promises=RowPromises({"s": (PunctuationRows("u", (("k", "k"),)),)}),
        ),
    ),
    # Two keys.
    "relation between stages": Case(BY_KEY_THEN_CLASS, hosts=(2, 2), restart=True),
    "stream between stages": Case(BY_KEY_THEN_COUNT, hosts=(2, 2)),
    "windows between stages": Case(WINDOWS_THEN_COUNT, hosts=(2, 2)),
    "a stage that is whole": Case(
        "SELECT max(n) AS most FROM (SELECT k, count(*) AS n FROM s [RANGE 9] GROUP BY k)", hosts=(2, 1)
    ),
}
