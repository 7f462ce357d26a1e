"""Siddhi's own tests of counts and of absence: each program in CQL, by a translation of its text.

`->` is a comma, `<2:5>` a count, `not s for 1 sec` is `NOT s FOR 1 SECOND`. `every` is EVERY; without it
Siddhi stops after its first match, so DISJOINT and its first answer are compared. What is absent at the
beginning is absent since the start of the app in Siddhi: here a row of that stream comes at the start.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from headrace import Catalog, Engine, query
from headrace.errors import SqlError
from headrace.plan.nodes.trees import sources_of
from headrace.sql.catalog import StreamDef
from headrace.testing import oracle
from headrace.testing.compare import assert_same_stream

Case = dict[str, Any]
Row = tuple[Any, ...]
TYPES: Final = {"string": pa.string(), "float": pa.float32(), "double": pa.float64(), "int": pa.int32()}
TIME: Final = "ts"
START: Final = {"string": "start", "float": 1e6, "double": 1e6, "int": 1_000_000}
"""The row that stands for the start of the app; it meets every condition of these programs."""
OTHERWISE: Final = {
    "testQuery19": "`every` begins anew after its own part, and not after the match: these matches overlap",
    "testQuery20": "`every` in the middle",
    "testQueryAbsent41": "nothing but absence: a match is made of rows",
}
"""Programs that CQL has no words for."""
MODES: Final = {"testQuery17": "DISJOINT", "testQuery18": "DISJOINT"}
"""Programs in which `every` is before a count: it begins anew after its part."""
LEFT_OUT: Final = {"testQuery21": [0]}
"""Columns that are not compared: an array, of which the recording has only the name."""


# ------------------------------------------------------------------------------------- the text in CQL


class Translated:
    """A program in CQL, as the hint of its error has it, with its streams."""

    def __init__(self, case: Case) -> None:
        app = case["siddhi_app"]
        self.streams = {
            found[1]: dict((*column.split(), "")[:2] for column in found[2].split(","))
            for found in re.finditer(r"define stream (\w+) \((.*?)\)", app)
        }
        every = "every" in app
        self.only_first = not every
        absent = re.search(r"from (?:every )?not (\w+)", app)
        self.absent_at_first = absent[1] if absent else None
        with pytest.raises(SqlError) as caught:
            query(app)
        assert caught.value.message == "this is a query of Siddhi"
        self.text = caught.value.hint.removeprefix("write ").replace("'rule1' AS ruleId", "1 AS ruleId")
        if case["test"] in MODES:
            self.text = self.text.replace(" EVERY", f" {MODES[case['test']]}")


# ---------------------------------------------------------------------------------------- what is found


def events(case: Case, asked: Translated) -> dict[str, list[tuple[int, Row]]]:
    """The rows of each stream with their times; each is an instant of its own."""
    found: dict[str, list[tuple[int, Row]]] = {name: [] for name in asked.streams}
    if asked.absent_at_first:
        start = tuple(START[of] for of in asked.streams[asked.absent_at_first].values())
        found[asked.absent_at_first].append((0, start))
    clock = 0
    for action in case["actions"]:
        clock += action.get("sleep_ms", 1)
        if "data" in action:
            found[action["stream"]].append((clock, tuple(action["data"])))
    return found


def answers(case: Case) -> list[Row]:
    """What the engine and the oracle answer."""
    asked = Translated(case)
    schemas = {
        name: pa.schema([*((column, TYPES[of]) for column, of in columns.items()), (TIME, pa.int64())])
        for name, columns in asked.streams.items()
    }
    streams = [StreamDef(n, schema, time_column=TIME, ticks_per_second=1000) for n, schema in schemas.items()]
    plan = query(asked.text, Catalog(streams)).plan
    given, engine = {}, Engine()
    engine.add("q", plan)
    for name, rows in events(case, asked).items():
        if name not in {source.name for source in sources_of(plan)}:
            continue
        schema = schemas[name]
        batch = pa.RecordBatch.from_pylist(
            [dict(zip(schema.names, (*row, time), strict=True)) for time, row in rows], schema
        )
        given[name] = [(time, row) for (time, _), row in zip(rows, batch.to_pylist(), strict=True)]
        if rows:
            engine.push(name, batch, [time for time, _ in rows])
        engine.streams.end(name)
    made = engine.drain()
    assert_same_stream(made, oracle.stream(plan, given))
    found = [tuple(row.values()) for batch in made for row in batch.data.to_pylist()]
    return found[:1] if asked.only_first else found


def rounded(rows: list[Row]) -> list[Row]:
    return [tuple(round(v, 3) if isinstance(v, float) else v for v in row) for row in rows]


def cases(folder: Path) -> list[Case]:
    names = ("CountPatternTestCase", "AbsentPatternTestCase")
    return [case for name in names for case in json.loads((folder / f"{name}.json").read_text())]


def count_of(case: Case) -> int:
    """How many matches there are."""
    return next(number for what, number, _ in case["expected_counts"] if "count" in what or "success" in what)


def test_the_programs_of_siddhi_give_its_answers(shared_data: Callable[[str], Path]) -> None:
    outcomes: Counter[str] = Counter()
    for case in cases(shared_data("siddhi")):
        if case["test"] in OTHERWISE:
            outcomes["otherwise"] += 1
            continue
        found = answers(case)
        assert len(found) == count_of(case), case["test"]
        wanted = case["expected_rows_in_order_of_assertion"]
        if wanted:
            left_out = LEFT_OUT.get(case["test"], [])
            kept = [i for i in range(len(wanted[0])) if i not in left_out]
            compared = [tuple(row[i] for i in kept) for row in found]
            assert rounded(compared) == [tuple(row[i] for i in kept) for row in wanted], case["test"]
        outcomes["run"] += 1
    assert outcomes == {"run": 60, "otherwise": 3}


def test_nothing_but_absence_is_refused(shared_data: Callable[[str], Path]) -> None:
    (case,) = (each for each in cases(shared_data("siddhi")) if each["test"] == "testQueryAbsent41")
    with pytest.raises(SqlError, match="without NOT"):
        answers(case)
