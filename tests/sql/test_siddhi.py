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
ABSENT: Final = re.compile(r"not (?P<stream>\w+)(\[(?P<filter>.*)\])?( for (?P<count>\d+) sec)?")
PRESENT: Final = re.compile(
    r"((?P<name>\w+)\s*=)?\s*(?P<stream>\w+)\s*(\[(?P<filter>.*)\])?\s*(<(?P<count>[\d:]+)>)?"
)


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
    """A program in CQL: its text, its streams, and the stream that is absent at the beginning."""

    def __init__(self, case: Case) -> None:
        app = case["siddhi_app"]
        self.streams = self._columns(app)
        self._names: dict[str, str] = {}
        self._counted: set[str] = set()
        self.absent_at_first: str | None = None
        self._filters: list[str] = []
        body = re.search(r"\bfrom (.*?)\s*select\s+(.*?)\s*(having .*?)?insert into", app, re.S)
        assert body, app
        pattern, within = self._taken(r"within (\d+) sec(?:onds)?", body[1])
        every = "every" in pattern
        steps = ", ".join(self._part(each) for each in pattern.replace("every ", "").split("->"))
        self.only_first = not every
        mode = MODES.get(case["test"], "EVERY" if every else "DISJOINT")
        key = re.search(r"partition with \((\w+) of \w+\)", app)
        where = " AND ".join(self._expression(each) for each in self._filters)
        self.text = (
            f"SELECT {self._selected(body[2])} FROM SEQ({steps}) {mode}"
            + (f" PARTITION BY {key[1]}" if key else "")
            + (f" WITHIN {within} SECONDS" if within else "")
            + (f" WHERE {where}" if where else "")
        )

    @staticmethod
    def _columns(app: str) -> dict[str, dict[str, str]]:
        found = re.finditer(r"define stream (\w+) \((.*?)\)", app)
        return {each[1]: dict((*column.split(), "")[:2] for column in each[2].split(",")) for each in found}

    @staticmethod
    def _taken(pattern: str, text: str) -> tuple[str, str | None]:
        """The text without what a pattern finds, and what its group is."""
        found = re.search(pattern, text)
        return re.sub(pattern, "", text), found[1] if found else None

    def _part(self, text: str) -> str:
        """What is between two arrows."""
        bare = re.sub(r"\[[^\]]*?(\[\d\])?[^\]]*?\]", lambda m: "#" * len(m[0]), text)
        for word in ("and", "or"):
            if found := re.search(rf"\s{word}\s", bare):
                both = (text[: found.start()], text[found.end() :])
                return f"({f' {word.upper()} '.join(map(self._step, both))})"
        return self._step(text)

    def _step(self, text: str) -> str:
        if text.strip().startswith("not "):
            found = ABSENT.fullmatch(text.strip())
            assert found, text
            if not self._names:
                self.absent_at_first = found["stream"]
            name = f"n{len(self._names)}"
            lasting = f" FOR {found['count']} SECOND" if found["count"] else ""
            self._add(name, found)
            return f"NOT {found['stream']} AS {name}{lasting}"
        found = PRESENT.fullmatch(text.strip())
        assert found, text
        name = found["name"] or f"s{len(self._names)}"
        self._add(name, found)
        if not found["count"]:
            return f"{found['stream']} AS {name}"
        self._counted.add(name)
        least, _, most = found["count"].partition(":")
        numbers = f"{least or 0},{most}" if ":" in found["count"] else least
        return f"{found['stream']}{{{numbers}}} AS {name}"

    def _add(self, name: str, found: re.Match[str]) -> None:
        """Note the stream of a step, and its filter with the columns of its rows qualified."""
        self._names[name] = found["stream"]
        if found["filter"]:
            columns = "|".join(self.streams[found["stream"]])
            qualified = re.sub(rf"(?<![\w.])({columns})\b", rf"{name}.\1", found["filter"])
            self._filters.append(f"({qualified.replace('==', '=')})")

    def _expression(self, text: str) -> str:
        """`e1[0].price`, `e1[last].price`, and columns of counted steps of others."""

        def picked(found: re.Match[str]) -> str:
            if found[2] == "last":
                return f"last({found[1]}.{found[3]})"
            return f"first({found[1]}.{found[3]}, {found[2]})"

        return re.sub(r"(\w+)\[(\w+)\]\.(\w+)", picked, text)

    def _selected(self, text: str) -> str:
        values = []
        for i, each in enumerate(text.split(",")):
            value = re.sub(r"\s+as \w+", "", each.strip())
            if value in ("count()", "*"):
                value = "1"
            step, _, column = value.partition(".")
            if step in self._counted:
                value = f"first({step}.{column})"
            values.append(f"{self._expression(value)} AS c{i}")
        return ", ".join(values)


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
