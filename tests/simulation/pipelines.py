"""Small pipelines by seed: what they read, what they ask, and what was written for them to read.

Each row has an id of its own, and each bad line a number, so that a row can be followed from the file that it
was written to up to the output that it came to.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

BASE: Final = 1_700_000_000_000_000
SECOND: Final = 1_000_000
LAST: Final = -1
"""The id of the row that ends a stream without an end: so far ahead that it lets all others go."""
COLUMNS: Final = {"json": "jsonl", "csv": "csv", "parquet": "parquet", "arrow": "arrow"}


@dataclass(frozen=True)
class Row:
    """A row, or with `bad` a line that is none."""

    id: int
    k: int
    v: int
    at: int
    came: int
    bad: bool = False


@dataclass
class Stream:
    """A stream, and the rows of each of its files so far.

    Kinds: a `file`, a `folder`, a followed folder (`follow`), a followed file (`tail`), and `tcp`.
    """

    name: str
    kind: str
    format: str
    block: int
    wide: bool
    arrival: bool = False
    files: dict[str, list[Row]] = field(default_factory=dict)

    @property
    def is_bounded(self) -> bool:
        return self.kind in ("file", "folder")

    @property
    def grows(self) -> bool:
        return self.format in ("json", "csv")

    def path(self, file: str) -> str:
        return f"{self.name}/{file}"

    def table(self) -> str:
        if self.kind == "tcp":
            source = '{ type = "tcp", listen = true, port = 0, format = "json" }'
        else:
            path = self.path(next(iter(self.files))) if self.kind in ("file", "tail") else self.name
            follow = ", follow = true" if self.kind in ("follow", "tail") else ""
            sizes = f"block_bytes = {self.block}, block_rows = {max(2, self.block // 40)}"
            source = f'{{ path = "{path}", format = "{self.format}", {sizes}{follow} }}'
        bound = "30 days" if self.wide else "2 s"
        came = ', came BIGINT"\narrival = "came"' if self.arrival else '"'
        return (
            f"[streams.{self.name}]\nsource = {source}\n"
            f'schema = "id BIGINT, k BIGINT, v BIGINT, at BIGINT{came}\n'
            'time = { column = "at", unit = "us" }\n'
            f'bounds = {{ disorder = "{bound}" }}\n'
        )

    @property
    def head(self) -> bytes:
        """How a file begins."""
        return b"id,k,v,at,came\n" if self.format == "csv" and self.kind != "tcp" else b""

    def encode(self, rows: list[Row]) -> bytes:
        """Lines of these rows."""
        return b"".join(LINES[self.format](row) for row in rows)


def _json_line(row: Row) -> bytes:
    if row.bad:
        return f'{{"id": "bad{row.id}.", "k": {"" if row.id % 2 else "0}"}\n'.encode()
    return json.dumps({"id": row.id, "k": row.k, "v": row.v, "at": row.at, "came": row.came}).encode() + b"\n"


def _csv_line(row: Row) -> bytes:
    if row.bad and row.id % 2:
        return f"bad{row.id}.,0\n".encode()
    first = f"bad{row.id}." if row.bad else row.id
    return f"{first},{row.k},{row.v},{row.at},{row.came}\n".encode()


LINES: Final = {"json": _json_line, "csv": _csv_line}


def write_file(path: Path, stream: Stream, rows: list[Row]) -> None:
    """A whole new file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if stream.grows:
        path.write_bytes(stream.head + stream.encode(rows))
        return
    names = ("id", "k", "v", "at", "came")
    table = pa.table({name: pa.array([getattr(row, name) for row in rows], pa.int64()) for name in names})
    if stream.format == "parquet":
        pq.write_table(table, path, row_group_size=7)
    else:
        with ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table, max_chunksize=6)


@dataclass
class Plan:
    """A pipeline: its streams, its text, and its outputs by name."""

    streams: list[Stream]
    head: str
    rest: str
    outputs: list[str]

    @property
    def text(self) -> str:
        return self.head + "".join(stream.table() for stream in self.streams) + self.rest

    def over(self, rows: dict[str, list[Row]]) -> Plan:
        """The same questions about these rows, from files with an end and without a checkpoint."""
        streams = [
            Stream(each.name, "folder", "json", 4000, True, files={"0.jsonl": rows[each.name]})
            for each in self.streams
        ]
        return Plan(streams, PLAIN, self.rest, self.outputs)

    @property
    def asked(self) -> list[str]:
        """The outputs that are not rows of a stream as they came."""
        return [each for each in self.outputs if not re.match(r"(all|late|rejected)_", each)]

    @property
    def is_bounded(self) -> bool:
        return all(stream.is_bounded for stream in self.streams)

    @property
    def wide(self) -> bool:
        return all(stream.wide for stream in self.streams)


@dataclass
class Maker:
    """Draws pipelines and rows."""

    rng: Random
    next_id: int = 0

    def rows(self, count: int, *, begin: int = 0, bad: float = 0.1, disorder: int = 3) -> list[Row]:
        made = []
        for i in range(count):
            at = BASE + (begin + i) * SECOND - self.rng.randint(0, disorder * SECOND)
            came = BASE + (begin + i) // 2 * 2 * SECOND
            wrong = self.rng.random() < bad
            made.append(Row(self.next_id, self.rng.randint(0, 3), self.rng.randint(0, 99), at, came, wrong))
            self.next_id += 1
        return made

    def last(self, begin: int = 0) -> Row:
        at = BASE + 90 * 86_400 * SECOND + begin
        return Row(LAST, LAST, 0, at, at)

    def file(self, stream: Stream, name: str) -> list[Row]:
        """The rows of a file that is new."""
        bad = self.rng.choice((0.05, 0.3)) if stream.grows else 0.0
        rows = self.rows(self.rng.randint(1, 14), begin=self.rng.randint(0, 12), bad=bad)
        stream.files[name] = list(rows)
        return rows

    def plan(self, kinds: tuple[str, ...], wide: bool) -> Plan:
        count = self.rng.choice((1, 1, 1, 2, 2, 3))
        bounded = all(kind in ("file", "folder") for kind in kinds)
        arrival = bounded and self.rng.random() < 0.25
        streams = []
        for name in ("a", "b", "c")[:count]:
            kind = self.rng.choice(kinds)
            formats = ["json", "json", "csv", "csv", "parquet", "arrow"]
            if kind == "tail":
                formats = ["json", "csv"]
            if arrival or kind == "tcp":
                formats = ["json"]
            block = self.rng.choice((90, 150, 300, 700, 700))
            stream = Stream(name, kind, self.rng.choice(formats), block, wide, arrival)
            if kind != "tcp":
                for n in range(1 if kind in ("file", "tail") else self.rng.randint(1, 3)):
                    self.file(stream, f"{n + 3}.{COLUMNS[stream.format]}")
            streams.append(stream)
        return self._plan(streams)

    def _plan(self, streams: list[Stream]) -> Plan:
        rng = self.rng
        queries, outputs = [], []

        def ask(name: str, sql: str, more: str = "", ending: str | None = None) -> None:
            ending = ending or rng.choice(("jsonl", "csv", "parquet", "arrow"))
            outputs.append(f"{name}.{ending}")
            queries.append(
                f"[[queries]]\nname = \"{name}\"\nsql = '''{sql}'''\nsink = \"out/{name}.{ending}\"\n{more}"
            )

        for stream in streams:
            n = stream.name
            sinks = f'late = "out/late_{n}.jsonl"\nrejected = "out/rejected_{n}.jsonl"\n'
            outputs.extend((f"late_{n}.jsonl", f"rejected_{n}.jsonl"))
            ask(f"all_{n}", f"SELECT id FROM {n}", sinks)
        one, other = rng.choice(streams).name, rng.choice(streams).name
        tables = ""
        for kind in rng.sample(sorted(QUERIES), rng.choice((0, 1, 1, 2))):
            if kind == "table":
                tables = '[tables.t]\npath = "t.csv"\n'
            if kind != "pairs" or one != other:
                ask(kind, QUERIES[kind].format(one=one, other=other))
        head = PLAIN + 'checkpoint = "state"\ninterval = "1 hour"\n'
        head += f"every_rows = {rng.choice((1, 3, 7, 20, 1000))}\n"
        if rng.random() < 0.25:
            head += 'record = "record"\n'
        memory = ""
        if rng.random() < 0.2:
            memory = '[memory]\nbudget = "4 kB"\npolicy = "spill"\n'
        return Plan(streams, head, tables + memory + "".join(queries), outputs)


QUERIES: Final = {
    "counts": "SELECT k, count(*) AS n, sum(v) AS v, window_end "
    "FROM {one} [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k",
    "sessions": "SELECT k, count(*) AS n, max(v) AS v FROM {one} [SESSION 3 SECONDS] GROUP BY k",
    "pairs": "SELECT x.id, y.id AS other FROM {one} [RANGE 2 SECONDS] AS x, {other} [RANGE 2 SECONDS] AS y "
    "WHERE x.k = y.k",
    "table": "SELECT x.id, t.name FROM {one} AS x, t WHERE x.k = t.k",
    "high": "SELECT id, v FROM {one} WHERE v > 50",
}
PLAIN: Final = '[pipeline]\nname = "simulated"\nruntime = "embedded"\n'
TABLE: Final = "k,name\n0,zero\n1,one\n1,uno\n3,three\n"


# --- outputs


def read_output(path: Path) -> list[Any]:
    """The rows of an output."""
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    if path.suffix == ".csv":
        return path.read_text().splitlines()[1:] if path.exists() else []
    parts = sorted(path.glob("part-*")) if path.exists() else []
    read = pq.read_table if path.suffix == ".parquet" else lambda part: ipc.open_file(str(part)).read_all()
    return [row for part in parts for row in read(part).to_pylist()]


def bags(root: Path, plan: Plan) -> dict[str, list[str]]:
    """All outputs, each in an order that only its rows decide; without the row that ends a stream."""
    found = {}
    for name in plan.outputs:
        rows = [row for row in read_output(root / "out" / name) if not _is_last(row)]
        found[name] = sorted(map(str, rows))
    return found


def _is_last(row: Any) -> bool:
    if isinstance(row, str):
        return row.split(",")[0] == str(LAST)
    return LAST in (row.get("id"), row.get("k"), row.get("other"))


@dataclass
class Account:
    """Where the rows of a stream came to, by their ids: how often each."""

    answered: Counter[int]
    late: Counter[int]
    rejected: Counter[int]

    @property
    def rows(self) -> Counter[int]:
        return self.answered + self.late


def account(root: Path, plan: Plan, stream: Stream) -> Account:
    """The rows of a stream in the outputs that take each of them once."""
    name = next(each for each in plan.outputs if each.startswith(f"all_{stream.name}."))
    ids = [int(row["id"] if isinstance(row, dict) else row) for row in read_output(root / "out" / name)]
    late = [json.loads(row["row"])["id"] for row in read_output(root / "out" / f"late_{stream.name}.jsonl")]
    rejected = read_output(root / "out" / f"rejected_{stream.name}.jsonl")
    marks = [re.search(r"bad(\d+)\.", row["row"] or "") for row in rejected]
    return Account(Counter(ids), Counter(late), Counter(int(mark[1]) for mark in marks if mark))
