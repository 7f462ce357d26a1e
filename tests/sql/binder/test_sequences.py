"""SEQ in FROM: what its clauses mean, by hand, by the oracle and by the engine."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.expressions import col
from headrace.plan.nodes.core import Project, Select, Source
from headrace.plan.nodes.sequence import Sequence
from headrace.sql import Catalog
from tests.sql.running import answer, plan_of

CASES = pa.schema([("line", pa.int64()), ("id", pa.string()), ("room", pa.int64())])
PRODUCTS = pa.schema([("belt", pa.int32()), ("id", pa.string()), ("weight", pa.int64())])
STOPS = pa.schema([("line", pa.int64()), ("grade", pa.int64())])
CATALOG = Catalog({"cases": CASES, "products": PRODUCTS, "stops": STOPS}, ticks_per_second=1)

WAITING = [(1, 1, "A", 9), (2, 2, "X", 9), (3, 1, "B", 5)]
PACKED = [(3, 1, "p", 4), (4, 1, "q", 7), (5, 2, "r", 1), (9, 1, "s", 2)]
BY_LINE = "PARTITION BY c.line = p.belt"


def pairs(clauses: str, steps: str = "cases AS c, products AS p", **more: object) -> list[tuple[object, ...]]:
    text = f"SELECT c.id, p.id AS product FROM SEQ({steps}) {clauses}"
    return answer(text, CATALOG, cases=WAITING, products=PACKED, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("clauses", "expected"),
    [
        (f"RECENT {BY_LINE}", ["3 B p", "4 B q", "5 X r", "9 B s"]),
        (f"RECENT STRICT {BY_LINE}", ["3 A p", "4 B q", "5 X r", "9 B s"]),
        ("RECENT", ["3 B p", "4 B q", "5 B r", "9 B s"]),
        (f"RECENT {BY_LINE} WITHIN 6 SECONDS", ["3 B p", "4 B q", "5 X r"]),
        (f"RECENT {BY_LINE} WITHIN 7 SECONDS", ["3 B p", "4 B q", "5 X r", "9 B s"]),
        (f"CHRONICLE {BY_LINE}", ["3 A p", "4 B q", "5 X r"]),
        (f"CHRONICLE {BY_LINE} WITHIN 2 SECONDS", ["3 B p"]),
        (f"UNRESTRICTED {BY_LINE} WITHIN 3 SECONDS", ["3 A p", "3 B p", "4 B q"]),
        (f"CONSECUTIVE {BY_LINE}", ["3 B p", "5 X r"]),
        ("CONSECUTIVE", ["3 B p"]),
    ],
)
def test_each_mode_chooses(clauses: str, expected: list[str]) -> None:
    assert [" ".join(map(str, row)) for row in pairs(clauses)] == expected


def test_the_mode_chooses_before_a_condition_on_several_steps_judges() -> None:
    assert pairs(f"RECENT {BY_LINE} WHERE p.weight < c.room") == [(3, "B", "p"), (5, "X", "r"), (9, "B", "s")]
    assert pairs(f"CHRONICLE {BY_LINE} WHERE p.weight > c.room") == [(4, "B", "q")]


def test_a_condition_on_one_step_filters_its_rows_before_any_is_chosen() -> None:
    assert pairs(f"RECENT {BY_LINE} WHERE c.room > 5") == [
        (3, "A", "p"),
        (4, "A", "q"),
        (5, "X", "r"),
        (9, "A", "s"),
    ]
    plan = plan_of(
        f"SELECT c.id FROM SEQ(cases AS c, products AS p) RECENT {BY_LINE} WHERE c.room > 5", CATALOG
    )
    assert isinstance(plan, Project)
    assert isinstance(plan.input, Sequence)
    first = plan.input.streams[0]
    assert isinstance(first, Project)
    assert first.input == Select(Source("cases", CASES), col("room") > 5)


def test_in_a_consecutive_sequence_a_row_that_is_not_meant_still_stands_between() -> None:
    assert pairs(f"CONSECUTIVE {BY_LINE} WHERE c.room > 5") == [(5, "X", "r")]


def test_a_missing_step_ends_what_waits() -> None:
    steps, by = "cases AS c, NOT stops AS s, products AS p", "PARTITION BY c.line = s.line = p.belt"
    stops = [(4, 1, 1), (5, 2, 9)]
    assert pairs(f"RECENT {by}", steps, stops=stops) == [(3, "B", "p")]
    assert pairs(f"RECENT {by} STRICT", steps, stops=stops) == [(3, "A", "p"), (4, "B", "q"), (5, "X", "r")]
    graded = pairs(f"UNRESTRICTED {by} WHERE s.grade > 5", steps, stops=stops)
    assert graded == [
        (3, "A", "p"),
        (3, "B", "p"),
        (4, "A", "q"),
        (4, "B", "q"),
        (9, "A", "s"),
        (9, "B", "s"),
    ]
    compared = pairs(f"CHRONICLE {by} WHERE s.grade + 8 = c.room", steps, stops=[(3, 1, 1)])
    assert compared == [(3, "B", "p"), (5, "X", "r")]


def test_a_repeated_step_tells_of_its_run() -> None:
    text = """
        SELECT count(p.*) AS n, first(p.id) AS one, last(p.id) AS other, c.id
        FROM SEQ(products+ AS p, cases AS c) {} PARTITION BY p.belt = c.line
        WHERE p.weight > 1 AND count(p.id) < 9
    """
    cases = [*WAITING, (5, 1, "C", 1), (10, 1, "D", 1)]
    chronicle = answer(text.format("CHRONICLE"), CATALOG, cases=cases, products=PACKED)
    assert chronicle == [(3, 1, "p", "p", "B"), (5, 1, "q", "q", "C"), (10, 1, "s", "s", "D")]
    unrestricted = answer(text.format("UNRESTRICTED"), CATALOG, cases=cases, products=PACKED)
    assert unrestricted == [(3, 1, "p", "p", "B"), (5, 2, "p", "q", "C"), (10, 3, "p", "s", "D")]
    trimmed = answer(text.format("UNRESTRICTED WITHIN 3 SECONDS"), CATALOG, cases=cases, products=PACKED)
    assert trimmed == [(3, 1, "p", "p", "B"), (5, 2, "p", "q", "C"), (10, 1, "s", "s", "D")]


def test_every_aggregate_can_be_told_of_a_run() -> None:
    text = """
        SELECT sum(p.weight) AS total, avg(p.weight) AS mean, max(p.id) AS most,
               count(DISTINCT p.belt) AS belts
        FROM SEQ(products+ AS p, cases AS c) UNRESTRICTED PARTITION BY p.belt = c.line
        WHERE sum(p.weight) < 100
    """
    weights = {id: weight for _, belt, id, weight in PACKED if belt == 1}
    found = answer(text, CATALOG, cases=[(20, 1, "Z", 1)], products=PACKED)
    total = sum(weights.values())
    assert found == [(20, total, total / len(weights), max(weights), 1)]


def test_a_stream_can_follow_itself() -> None:
    text = "SELECT a.id, b.id AS next FROM SEQ(cases AS a, cases AS b) {} STRICT PARTITION BY line"
    cases = [*WAITING, (7, 1, "C", 1)]
    assert answer(text.format("CONSECUTIVE"), CATALOG, cases=cases) == [(3, "A", "B"), (7, "B", "C")]
    three = "SELECT c.id FROM SEQ(cases AS a, cases AS b, cases AS c) CONSECUTIVE STRICT PARTITION BY line"
    assert answer(three, CATALOG, cases=cases) == [(7, "C")]


def test_the_answer_is_a_stream_that_can_have_a_window() -> None:
    text = f"""
        SELECT c.line, count(*) AS n, window_end
        FROM SEQ(cases AS c, products AS p) RECENT {BY_LINE} [RANGE 4 SECONDS SLIDE 4 SECONDS]
        GROUP BY c.line
    """
    counted = answer(text, CATALOG, cases=WAITING, products=PACKED)
    assert counted == [(3, 1, 1, 4), (7, 1, 1, 8), (7, 2, 1, 8), (11, 1, 1, 12)]
    newest = pairs(f"RECENT {BY_LINE} [PARTITION BY c.line ROWS 1]")
    assert newest == pairs(f"RECENT {BY_LINE}")


def test_a_step_may_be_a_query_and_a_sequence_a_part_of_one() -> None:
    text = """
        SELECT s.id, stops.grade
        FROM (SELECT c.id, c.line FROM SEQ(cases AS c, (SELECT belt FROM products WHERE weight > 3) AS p)
              RECENT PARTITION BY c.line = p.belt) [RANGE 9 SECONDS] AS s, stops [NOW]
        WHERE s.line = stops.line
    """
    assert answer(text, CATALOG, cases=WAITING, products=PACKED, stops=[(5, 1, 7)]) == [
        (5, "B", 7),
        (5, "B", 7),
    ]


def test_partition_columns_that_differ_in_type_are_brought_to_one() -> None:
    plan = plan_of(f"SELECT c.id FROM SEQ(cases AS c, products AS p) RECENT {BY_LINE}", CATALOG)
    types = {
        stream.schema.field(step.keys[0]).type
        for stream, step in zip(plan.input.streams, plan.input.steps, strict=True)
    }
    assert types == {pa.int64()}
