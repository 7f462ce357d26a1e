"""Input files with something wrong in them, run through a pipeline: every row has to be accounted for."""

from __future__ import annotations

import io
import json
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.pipeline import parse
from headrace.runtimes.embedded import Runner
from tests.fuzz.mutate import spoilt

COLUMNS = {
    "k": ("BIGINT", pa.int64()),
    "v": ("STRING", pa.string()),
    "p": ("DOUBLE", pa.float64()),
    "d": ("DECIMAL(10, 2)", pa.decimal128(10, 2)),
    "b": ("BOOLEAN", pa.bool_()),
    "day": ("DATE", pa.date32()),
    "ts": ("TIMESTAMP", pa.timestamp("us", "UTC")),
    "small": ("TINYINT", pa.int8()),
    "at": ("BIGINT", pa.int64()),
}
QUERIES = [
    "SELECT * FROM s",
    "SELECT k, upper(v) AS v, p * 2 AS p, d + 1 AS d, year(ts) AS y FROM s WHERE k > 2 OR v LIKE '%a%'",
    "SELECT v, count(*) AS n, sum(p) AS p, max(day) AS d FROM s [RANGE 1 HOUR SLIDE 1 HOUR] GROUP BY v",
    "SELECT DISTINCT b, small FROM s [RANGE 1 MINUTE]",
    "SELECT k, regexp_extract(v, '(a+)+b', 1) AS x, CAST(v AS DOUBLE) AS f, lpad(v, small, 'z') AS w FROM s",
    "SELECT a.k FROM s [RANGE 1 SECOND] AS a, s [RANGE 1 SECOND] AS b WHERE a.v = b.v",
]
TEXT = """
[pipeline]
name = "fuzz"
runtime = "embedded"
[streams.s]
source = {source}
schema = "{schema}"
time = {time}
{bounds}
[[queries]]
name = "q"
sql = "{sql}"
sink = {{ path = "q.{sink}", existing = "replace" }}
late = {{ path = "late.jsonl", existing = "replace" }}
rejected = {{ path = "rejected.jsonl", existing = "replace" }}
[memory]
budget = "64 MB"
"""
FORMATS = ["json", "csv", "parquet", "file", "stream"]


def check(seed: int, root: Path) -> str:
    """Run the input of a seed; what became of it. Whatever is wrong is an exception."""
    random = Random(seed)
    form, sql = random.choice(FORMATS), random.choice(QUERIES)
    # Most queries name columns: then all are there.
    names = _names(random) if sql == QUERIES[0] else list(COLUMNS)
    # What is moved in a file of offsets spoils all of it: mostly values are changed where they are.
    keep_size = form not in ("json", "csv") and random.random() < 0.8
    data = spoilt(random, _written(random, form, names), keep_size=keep_size)
    suffix = {"json": "jsonl", "csv": "csv", "parquet": "parquet"}.get(form, "arrow")
    (root / f"in.{suffix}").write_bytes(data)
    runner = Runner(parse(_pipeline(random, f"in.{suffix}", names, sql), root=root))
    result = runner.run()
    account = result.progress.streams["s"]
    lost = account.rows_late + account.rows_rejected + account.rows_shed
    assert account.rows_in == account.rows_processed + lost, f"the account does not balance: {account}"
    rejected = (root / "rejected.jsonl").read_bytes().splitlines()
    assert len(rejected) == account.rows_rejected, (len(rejected), account.rows_rejected)
    assert all(json.loads(line)["code"].startswith("HR-R") for line in rejected)
    assert result.state == "finished", result.state
    return f"{form}: {account.rows_processed} rows, {account.rows_rejected} rejected"


def _names(random: Random) -> list[str]:
    others = [name for name in COLUMNS if name not in ("at", "k", "v")]
    return ["k", "v", *random.sample(others, random.randrange(len(others) + 1)), "at"]


def _pipeline(random: Random, path: str, names: list[str], sql: str) -> str:
    options = {
        "block_bytes": random.choice([60, 1000, 4 << 20]),
        "block_rows": random.choice([1, 7, 131_072]),
    }
    options |= {
        "max_line": random.choice([100, *[8 << 20] * 9]),
        "max_block": random.choice([9999, *[128 << 20] * 9]),
    }
    if random.random() < 0.3:
        options["missing"] = '"null"'
    source = ", ".join([f'path = "{path}"', *(f"{name} = {value}" for name, value in options.items())])
    time = random.choice(['{ column = "at", unit = "ms" }', '{ column = "at", unit = "us" }'])
    return TEXT.format(
        source=f"{{ {source} }}",
        schema=", ".join(f"{name} {COLUMNS[name][0]}" for name in names),
        time=time,
        bounds=random.choice(["", "bounds = { disorder = '1 hour' }"]),
        sql=sql,
        sink=random.choice(["jsonl", "csv", "parquet"]),
    )


def _rows(random: Random, names: list[str]) -> list[dict[str, Any]]:
    rows = []
    for i in range(random.choice([0, 1, 5, 40, 200])):
        row = {
            "k": i % 7,
            "v": random.choice(["", "a", "aaaa", 'say "b"', "x,y", "é漢", "line\u2028", "  ", None]),
            "p": random.choice([0.5, -1e300, 1e-300, 3.0, None]),
            "d": random.choice(["12.50", "-0.01", "99999999.99", None]),
            "b": random.choice([True, False, None]),
            "day": random.choice(["2026-01-31", "0001-01-01", "9999-12-31", None]),
            "ts": random.choice(["2026-01-31T10:00:00", "1969-12-31T23:59:59.999999", None]),
            "small": random.choice([0, -128, 127, None]),
            "at": 1_700_000_000_000 + i + random.randrange(-5, 5),
        }
        rows.append({name: row[name] for name in names})
    return rows


def _written(random: Random, form: str, names: list[str]) -> bytes:
    rows = _rows(random, names)
    if form == "json":
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    if form == "csv":
        lines = [",".join(_csv(row[name]) for name in names) for row in rows]
        return "\n".join([",".join(names), *lines, ""]).encode()
    table = _table(random, rows, names)
    out = io.BytesIO()
    if form == "parquet":
        _write_parquet(random, table, out)
        return out.getvalue()
    make = pa.ipc.new_file if form == "file" else pa.ipc.new_stream
    options = pa.ipc.IpcWriteOptions(compression=random.choice([None, "zstd", "lz4"]))
    with make(out, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=random.choice([3, 50, 1000]))
    return out.getvalue()


def _write_parquet(random: Random, table: pa.Table, out: io.BytesIO) -> None:
    options: dict[str, Any] = {
        "compression": random.choice(["none", "zstd", "snappy", "gzip", "lz4", "brotli"]),
        "use_dictionary": random.random() < 0.5,
        "data_page_version": random.choice(["1.0", "2.0"]),
        "data_page_size": random.choice([100, 1 << 20]),
        "row_group_size": random.choice([5, 64, 1000]),
        "write_page_checksum": random.random() < 0.2,
    }
    try:
        pq.write_table(table, out, **options)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        # Some types and values have no form in Parquet.
        out.seek(0)
        out.truncate()
        pq.write_table(pa.table({"k": list(range(table.num_rows))}), out, **options)


def _csv(value: Any) -> str:
    if value is None:
        return ""
    text = str(value)
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',"\n') else text


def _table(random: Random, rows: list[dict[str, Any]], names: list[str]) -> pa.Table:
    """The rows in the declared types, or a column of them in one that is odd."""
    columns = {}
    for name in names:
        texts = pa.array([None if r[name] is None else str(r[name]) for r in rows], pa.string())
        of = COLUMNS[name][1]
        plain = pa.array([r[name] for r in rows], of) if name in ("k", "v", "p", "b", "small", "at") else None
        columns[name] = _instants(texts) if name == "ts" else texts.cast(of) if plain is None else plain
    if random.random() < 0.4:
        name = random.choice(names)
        columns[name] = random.choice(ODD)(columns[name])
    return pa.table(columns)


def _instants(texts: pa.Array) -> pa.Array:
    return texts.cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))


def _runs(column: pa.Array) -> pa.Array:
    return pa.compute.run_end_encode(column)


ODD: list[Any] = [
    lambda column: pa.nulls(len(column)),
    lambda column: column.cast(pa.string()),
    lambda column: column.cast(pa.large_string()),
    lambda column: column.cast(pa.string()).cast(pa.string_view()),
    lambda column: column.cast(pa.string()).cast(pa.binary()),
    lambda column: column.dictionary_encode(),
    _runs,
    lambda column: pa.array([[v.as_py()] for v in column], pa.list_(column.type)),
    lambda column: pa.StructArray.from_arrays([column], ["inner"]),
    lambda column: pa.array([float("nan")] * len(column)),
    lambda column: pa.array([2**63] * len(column), pa.uint64()),
    lambda column: pa.array([b"\xff\xfe"] * len(column), pa.binary()),
    lambda column: pa.array([2**62] * len(column), pa.timestamp("s")),
    lambda column: pa.array([10**30] * len(column), pa.decimal256(50, 5)),
    lambda column: pa.array([1] * len(column), pa.duration("ns")),
    lambda column: pa.array([1] * len(column), pa.time64("ns")),
]
