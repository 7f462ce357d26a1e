"""The lines of a file, however Spark cuts it into pieces and batches, are the rows that it has embedded.

Without Spark: `TextLines` runs in its tasks, and is given here what it is given there.
"""

from __future__ import annotations

import json
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from headrace.connectors.files import FilesSource
from headrace.connectors.formats import Format
from headrace.runtimes.embedded.timing import Timing
from headrace.runtimes.spark.worker.partitioner import BAD
from headrace.runtimes.spark.worker.text_lines import Arrivals, TextLines, has_header
from tests.connectors.spellings import TIMES

SCHEMA = pa.schema(
    [("i", pa.int64()), ("s", pa.string()), ("at", pa.timestamp("us", "UTC")), ("came", pa.int64())]
)
TIMING = Timing("at", None, ("i", "s", "at"), earliest=0)
FORMATS = {
    "json": Format("json", longest=300),
    "csv": Format("csv", longest=300),
    "bare csv": Format("csv", header=False, longest=300),
}

_i = st.sampled_from(["1", " 2", "x", "", "99999999999999999999", "7"])
_s = st.sampled_from(["a", "", "é", '"q"', '"', "x" * 400, "\x00"])
_csv = st.builds("{},{},{},{}".format, _i, _s, TIMES, _i) | st.sampled_from(["", " ", "1,2", '"open', "a\rb"])
_rows = st.fixed_dictionaries(
    {
        "i": st.integers(-9, 9) | st.text(max_size=2),
        "s": _s | st.none(),
        "at": TIMES | st.none(),
        "came": st.just(5),
    }
)
_json = _rows.map(json.dumps) | st.sampled_from(["", " ", "{", "[1]", '{"i": 1}', '{"i": 1}{"i": 2}'])


def embedded(path: Path, how: Format) -> tuple[list[Any], list[Any]]:
    rows, bad = [], []
    source = FilesSource(str(path), SCHEMA, how)
    while (block := source.read()) is not None:
        timed = TIMING.of(block.data)
        times = timed.times.to_pylist()
        rows += [(row, at) for row, at in zip(timed.data.to_pylist(), times, strict=True)]
        bad += [(str(each.code), each.reason, each.raw) for each in (*block.bad, *timed.bad)]
    source.close()
    return rows, bad


def pieces(content: bytes, cuts: list[int]) -> list[tuple[int, list[bytes]]]:
    """A file as Hadoop cuts it: a line belongs to the piece in which it begins."""
    begins = [0, *sorted({cut for cut in cuts if 0 < cut < len(content)}), len(content) + 1]
    found: dict[int, list[bytes]] = {begin: [] for begin in begins[:-1]}
    at = 0
    for line in content.split(b"\n") if content else []:
        if at < len(content):
            # a line that begins where a piece does is read by the piece before it
            owner = next(b for b, e in pairwise(begins) if at == 0 or b < at <= e)
            found[owner].append(line)
        at += len(line) + 1
    return [(begin, lines) for begin, lines in found.items() if lines]


def on_spark(path: Path, how: Format, cuts: list[int], size: int) -> tuple[list[Any], list[Any]]:
    columns = [*SCHEMA, pa.field("t", pa.int64()), pa.field("now", pa.int64()), pa.field(BAD, pa.string())]
    read = TextLines(SCHEMA, how, pa.schema(columns), TIMING, "t", Arrivals("came", None, "now"))
    rows, bad = [], []
    for begin, lines in pieces(path.read_bytes(), cuts):
        whole = pa.RecordBatch.from_pydict(
            {
                "value": pa.array(lines, pa.binary()),
                "path": [path.as_uri()] * len(lines),
                "begin": pa.array([begin] * len(lines), pa.int64()),
            }
        )
        whole = whole if has_header(how) else whole.select(["value"])
        batches = [whole.slice(i, size) for i in range(0, whole.num_rows, size)]
        for row in pa.Table.from_batches(read(batches), read.leaving).to_pylist():
            told, at, now = row.pop(BAD), row.pop("t"), row.pop("now")
            if told is None:
                assert now == (row["came"] or 0)
                rows.append((row, at))
            else:
                assert set(row.values()) == {None}
                bad.append(tuple(json.loads(told)))
    return rows, bad


@pytest.mark.parametrize("name", FORMATS)
@given(
    data=st.data(), cuts=st.lists(st.integers(0, 600), max_size=4), size=st.integers(1, 9), crlf=st.booleans()
)
def test_spark_reads_the_rows_of_the_embedded_runtime(
    name: str, data: st.DataObject, cuts: list[int], size: int, crlf: bool
) -> None:
    how = FORMATS[name]
    lines = data.draw(st.lists(_json if name == "json" else _csv, max_size=8))
    if has_header(how):
        header = st.sampled_from(
            ["i,s,at,came", "came, at,s,i", "i,at,came", "i,i,s,at,came", 'i,"s', "", "a\rb"]
        )
        lines.insert(0, data.draw(header))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a file.txt")
        path.write_bytes(("\r\n" if crlf else "\n").join(lines).encode("utf-8", "surrogatepass"))
        wanted, given = embedded(path, how), on_spark(path, how, cuts, size)
    assert list(map(repr, given[0])) == list(map(repr, wanted[0]))
    assert sorted(given[1]) == sorted(wanted[1])
