"""The test scripts of the Stanford STREAM prototype, read as text: net changes at each time.

STREAM declares its streams with `register stream`, divides integers as C does, and shows relations where we
answer with streams; the text of the queries is otherwise its own.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.plan.nodes.core import Plan
from headrace.sql import Catalog, declare, query
from tests.sql.running import answer

ROWS = 300
TYPES = {"integer": "BIGINT", "float": "DOUBLE", "byte": "STRING", "char(4)": "STRING"}
READERS: dict[pa.DataType, Callable[[str], Any]] = {
    pa.int64(): int,
    pa.float64(): float,
    pa.string(): str.strip,
}
Folder = Callable[[str], Path]
Net = dict[int, Counter[tuple[Any, ...]]]


def script(folder: Path, test: str) -> tuple[Catalog, dict[str, str], str]:
    """The streams that a script declares, the file of each, and its query."""
    text = re.sub(r"^#.*$", "", (folder / f"{test}.cql").read_text(), flags=re.MULTILINE)
    parts = re.findall(r"^(\w+) : (.*?);?$", text, flags=re.MULTILINE)
    catalog, files, view = Catalog(ticks_per_second=None), {}, ""
    for i, (kind, said) in enumerate(parts):
        if kind == "table":
            declare(stream_declaration(said), catalog)
            files[next(reversed(catalog.streams.values())).name] = Path(parts[i + 1][1]).name
        elif kind == "vquery":
            view = c_division(said)
        elif kind == "vtable":
            name, columns = re.fullmatch(r"register stream (\w+) \((.*)\)", said).groups()  # type: ignore[union-attr]
            names = ", ".join(column.split()[0] for column in columns.split(","))
            declare(f"CREATE VIEW {name} ({names}) AS ISTREAM({view})", catalog)
    return catalog, files, next(said for kind, said in parts if kind == "query")


def stream_declaration(said: str) -> str:
    for name, ours in TYPES.items():
        said = said.replace(f" {name}", f" {ours}")
    return said.replace("register", "CREATE")


def c_division(text: str) -> str:
    return re.sub(r"((?:S\.)?A) ?/ ?2", r"CAST(\1 / 2 AS BIGINT)", text)


def read_rows(path: Path, schema: pa.Schema) -> list[tuple[Any, ...]]:
    lines = path.read_text().splitlines()[1 : ROWS + 1]
    return [(int(time), *typed(row, schema)) for time, *row in (line.split(",") for line in lines)]


def typed(texts: list[str], schema: pa.Schema) -> list[Any]:
    return [READERS[field.type](text) for field, text in zip(schema, texts, strict=True)]


def expected(path: Path, schema: pa.Schema, until: int, sign: str) -> Net:
    """The lines `[time]:±:row` with a sign, up to a time."""
    net: Net = defaultdict(Counter)
    for line in path.read_text().splitlines():
        time, found, row = line.split(":", 2)
        if found == sign and int(time.strip("[]")) <= until:
            net[int(time.strip("[]"))][tuple(typed(row.split(","), schema))] += 1
    return net


def as_net(rows: list[tuple[Any, ...]], until: int) -> Net:
    net: Net = defaultdict(Counter)
    for time, *row in rows:
        if time <= until:
            net[time][tuple(row)] += 1
    return net


@pytest.mark.parametrize("test", ["test1", "test2", "test3", "test4", "test7"])
def test_a_script_gives_streams_own_answer(test: str, shared_data: Folder) -> None:
    folder = shared_data("stanford-stream")
    catalog, files, text = script(folder, test)
    rows = {
        name: read_rows(folder / file, catalog.streams[name.lower()].schema) for name, file in files.items()
    }
    until = max(time for time, *_ in next(iter(rows.values())))
    plan: Plan = query(text, catalog).plan
    wanted = expected(folder / f"{test}.out", plan.schema, until, "+")
    assert len(wanted) > 5
    assert as_net(answer(text, catalog, **rows), until) == wanted
    if "Rows" in text:
        gone = expected(folder / f"{test}.out", plan.schema, until, "-")
        assert as_net(answer(f"DSTREAM({text})", catalog, **rows), until) == gone
