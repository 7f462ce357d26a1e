"""Apache Flink's own tests of window aggregates and unions: its rows, and the pairs that are late for it.

Flink's watermark is the newest time less 1 s after each record, in milliseconds, and a (row, window) pair is
late when the window's end − 1 ms is at or before it. Here: a skew bound of 1000 ticks of a millisecond, each
record an instant of its own, and rows admitted to what is not answered yet. Its tests stop and go on from a
savepoint in the middle; so do these.

A row comes to any session that is open, however late it is; it is late if the window that it would make or
extend is past.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace import Bounds, Engine, HeartbeatGenerator, Rules, SkewMatrix, StreamDef, query
from headrace.testing.compare import events_of
from headrace.time.bounds import NEVER

Folder = Callable[[str], Path]
Program = dict[str, Any]
Row = tuple[Any, ...]

SECOND, BOUND = 1000, 1000
COLUMNS = {"rowtime": pa.int64(), "a_int": pa.int32(), "comment": pa.string(), "name": pa.string()}
STREAM = StreamDef("s", pa.schema(COLUMNS), ticks_per_second=SECOND, time_column="rowtime")
CALLS = "count(*) AS cnt, sum(a_int) AS sum_int, count(DISTINCT comment) AS distinct_cnt"
WINDOWED = re.compile(
    r"FROM TABLE\((?P<kind>\w+)\(TABLE \w+(?P<partition> PARTITION BY name)?, DESCRIPTOR\(rowtime\), "
    r"(?P<sizes>.*?)\)\)"
)
INTERVAL = re.compile(r"INTERVAL '(\d+)' SECOND")


# ------------------------------------------------------------------------------- what is asked, in CQL


@dataclass(frozen=True)
class Stated:
    """A window of Flink in CQL: the text, the sizes that say which windows a row is in, the offset."""

    text: str
    late_pairs: Callable[[list[Row]], int]
    offset: int = 0


def sliding(size: int, slide: int) -> Callable[[int], list[tuple[int, int]]]:
    def windows(time: int) -> list[tuple[int, int]]:
        first, last = time // slide + 1, (time + size) // slide
        return [(k * slide - size, k * slide) for k in range(first, last + 1)]

    return windows


def cumulating(step: int, size: int) -> Callable[[int], list[tuple[int, int]]]:
    def windows(time: int) -> list[tuple[int, int]]:
        begin = time // size * size
        return [(begin, end) for end in range(begin + step, begin + size + 1, step) if time < end]

    return windows


def tumble(size: int, offset: int = 0) -> Stated:
    return hop(size, size, offset)


def hop(slide: int, size: int, offset: int = 0) -> Stated:
    text = f"""
        SELECT name, window_start, window_end, {CALLS}
        FROM   s [RANGE {size} TICKS SLIDE {slide} TICKS]
        GROUP  BY name"""
    return Stated(text, late_pairs(sliding(size, slide)), offset)


def cumulate(step: int, size: int, offset: int = 0) -> Stated:
    """Windows that grow by steps from a common start: of a sliding window, the rows of its last block."""
    text = f"""
        SELECT name, floor(rowtime / {size}) * {size} AS window_start, window_end, {CALLS}
        FROM   s [RANGE {size} TICKS SLIDE {step} TICKS]
        GROUP  BY name, floor(rowtime / {size})
        HAVING floor(rowtime / {size}) = floor((window_end - 1) / {size})"""
    return Stated(text, late_pairs(cumulating(step, size)), offset)


def session_of_each(gap: int) -> Stated:
    text = f"""
        SELECT name, window_start, window_end, {CALLS}
        FROM   s [SESSION {gap} TICKS]
        GROUP  BY name"""
    return Stated(text, late_for_sessions(gap, by_name=True))


def session_of_all(gap: int) -> Stated:
    """Sessions of all rows together, their rows grouped."""
    text = f"""
        SELECT name, window_start, window_end, {CALLS}
        FROM   s [PARTITION BY () SESSION {gap} TICKS]
        GROUP  BY name"""
    return Stated(text, late_for_sessions(gap, by_name=False))


FORMS: dict[tuple[str, bool], Callable[..., Stated]] = {
    ("TUMBLE", False): tumble,
    ("HOP", False): hop,
    ("CUMULATE", False): cumulate,
    ("SESSION", True): session_of_each,
    ("SESSION", False): session_of_all,
}


def stated(program: Program) -> Stated:
    """The program in CQL. An offset is a stream whose clock is behind by it."""
    found = WINDOWED.search(program["sql"][0])
    assert found, program["id"]
    key = (found["kind"], bool(found["partition"]))
    return FORMS[key](*(int(seconds) * SECOND for seconds in INTERVAL.findall(found["sizes"])))


# ----------------------------------------------------------------------------------------- the records


def millis(text: str) -> int:
    return (dt.datetime.fromisoformat(text) - dt.datetime(1970, 1, 1)) // dt.timedelta(milliseconds=1)


def records(program: Program, phase: str, offset: int) -> list[Row]:
    """Time, number, comment and name of each record, in order of arrival."""
    used = re.search(r"TABLE\(\w+\(TABLE (\w+)", program["sql"][0])
    source = next(each for each in program["sources"] if used and each["name"] == used[1])
    assert all(each["kind"] == "+I" for each in source[phase])
    rows = [each["row"] for each in source[phase]]
    return [(millis(row[0]) - offset, row[1], row[5], row[6]) for row in rows]


def expected(program: Program) -> Counter[Row]:
    """The rows of Flink's sink in the end, all phases together: what came less what was taken back."""
    (sink,) = program["sinks"]
    rows: Counter[Row] = Counter()
    for line in sink["consumedBeforeRestore"] + sink["consumedAfterRestore"]:
        sign, row = parsed(line)
        rows[row] += sign
    assert min(rows.values()) >= 0
    return +rows


def parsed(line: str) -> tuple[int, Row]:
    found = re.fullmatch(r"([+-])[IU]\[(.*)\]", line)
    assert found, line
    name, begin, end, *numbers = found[2].split(", ")
    row = (None if name == "null" else name, millis(begin), millis(end), *map(int, numbers))
    return (1 if found[1] == "+" else -1), row


def late_pairs(windows: Callable[[int], list[tuple[int, int]]]) -> Callable[[list[Row]], int]:
    """Flink's rule, record by record."""

    def count(rows: list[Row]) -> int:
        watermark, late = -(2**63), 0
        for time, *_ in rows:
            late += sum(end - 1 <= watermark for _, end in windows(time))
            watermark = max(watermark, time - BOUND)
        return late

    return count


def late_for_sessions(gap: int, by_name: bool) -> Callable[[list[Row]], int]:
    """Flink's merging windows: a record makes one with all that it meets; past ones are fired and gone."""

    def count(rows: list[Row]) -> int:
        watermark, late = -(2**63), 0
        held: dict[Any, list[tuple[int, int]]] = {}
        for time, *_, name in rows:
            windows = held.setdefault(name if by_name else None, [])
            met = [w for w in windows if w[0] <= time + gap and time <= w[1]]
            merged = (min([time, *(w[0] for w in met)]), max([time + gap, *(w[1] for w in met)]))
            if merged[1] - 1 <= watermark:
                late += 1
            else:
                windows[:] = [w for w in windows if w not in met] + [merged]
            watermark = max(watermark, time - BOUND)
            for each in held.values():
                each[:] = [w for w in each if w[1] - 1 > watermark]
        return late

    return count


# ------------------------------------------------------------------------------------------- the engine


def engine(form: Stated) -> Engine:
    skew = SkewMatrix.of(["s"], {("s", "s"): [(0, BOUND)]})
    made = Engine()
    rules = Rules(disordered=True, enforce="admit")
    made.streams.manage(HeartbeatGenerator(Bounds.of(skew, timeout=NEVER)), {STREAM.source: rules})
    made.add("q", query(form.text, [STREAM]))
    return made


def run(form: Stated, phases: list[list[Row]]) -> tuple[Counter[Row], int]:
    """The answers and the number of pairs missed, over a stop and a restart between phases."""
    found: Counter[Row] = Counter()
    missed, now, snapshot = 0, 0, None
    for rows in phases:
        made = engine(form)
        if snapshot is not None:
            made.restore(snapshot)
        for row in rows:
            now += 1
            made.push(
                "s",
                pa.RecordBatch.from_pylist([dict(zip(COLUMNS, row, strict=True))], STREAM.schema),
                [row[0]],
                now=now,
            )
            found.update(row for _, row in events_of(made.drain()))
            missed += sum(int(each.missed.sum()) for each in made.drain_late())
        snapshot = made.snapshot()
    made.streams.end("s")
    found.update(row for _, row in events_of(made.drain()))
    return Counter(moved(row, form.offset) for row in found.elements()), missed


def moved(row: Row, offset: int) -> Row:
    name, begin, end, *rest = row
    return (name, begin + offset, end + offset, *rest)


# --------------------------------------------------------------------------------------------- the tests


def programs(folder: Path) -> list[Program]:
    found: list[Program] = json.loads((folder / "WindowAggregateTestPrograms.json").read_text())
    return found


def phases(program: Program, form: Stated) -> list[list[Row]]:
    return [
        records(program, phase, form.offset) for phase in ("producedBeforeRestore", "producedAfterRestore")
    ]


def test_window_aggregates_give_flinks_rows_and_flinks_late_pairs(shared_data: Folder) -> None:
    kinds: Counter[str] = Counter()
    for program in programs(shared_data("flink")):
        form = stated(program)
        rows = phases(program, form)
        found, missed = run(form, rows)
        assert found == expected(program), program["id"]
        assert missed == form.late_pairs([*rows[0], *rows[1]]), program["id"]
        assert (missed > 0) == ("session" not in program["id"]), "late rows all come to open sessions"
        kinds[program["id"].split("-")[2]] += 1
    assert kinds == {"tumble": 6, "hop": 6, "cumulate": 6, "session": 6}, "no program is dropped in silence"


def own_text(program: Program) -> str:
    """The query as Flink's test has it; only the stream's name differs."""
    query_text = re.sub(r"^INSERT INTO \w+ ", "", program["sql"][0])
    return re.sub(r"\(TABLE \w+", "(TABLE s", query_text)


def test_the_texts_of_flink_itself_give_its_rows(shared_data: Folder) -> None:
    ran = 0
    for program in programs(shared_data("flink")):
        form = replace(stated(program), text=own_text(program), offset=0)
        found, _ = run(form, phases(program, form))
        assert found == expected(program), program["id"]
        ran += 1
    assert ran == 24


BIDS = {"bid_time": pa.timestamp("us"), "price": pa.decimal128(10, 2), "item": pa.string()}
PROCESSING_TIME = "proc-time"
"""Programs whose windows are by the clock of the machine; CQL has TIME INTERNAL for this."""


def test_window_table_functions_give_flinks_rows(shared_data: Folder) -> None:
    text = (shared_data("flink") / "WindowTableFunctionTestPrograms.json").read_text()
    ran: list[str] = []
    for program in json.loads(text):
        if program["sources"] and not program["id"].endswith(PROCESSING_TIME):
            assert bids_windowed(program) == bids_expected(program), program["id"]
            ran.append(program["id"].removeprefix("window-table-function-"))
    assert ran == [
        *("tumble-tvf", "tumble-tvf-positive-offset", "tumble-tvf-negative-offset", "tumble-tvf-agg"),
        *("hop-tvf", "hop-tvf-agg", "cumulate-tvf", "cumulate-tvf-agg"),
    ]


def bids_windowed(program: Program) -> Counter[Row]:
    stream = StreamDef("bid_t", pa.schema(BIDS), ticks_per_second=SECOND, time_column="bid_time")
    made = Engine()
    made.add("q", query(re.sub(r"^INSERT INTO \w+ ", "", program["sql"][0]), [stream]))
    (source,) = program["sources"]
    found: Counter[Row] = Counter()
    for each in source["producedBeforeRestore"] + source["producedAfterRestore"]:
        at, price, item = each["row"]
        row = {"bid_time": dt.datetime.fromisoformat(at), "price": Decimal(price), "item": item}
        made.push("bid_t", pa.RecordBatch.from_pylist([row], stream.schema), [millis(at)])
    made.streams.end("bid_t")
    for _, answered in events_of(made.drain()):
        found[tuple(map(told, answered))] += 1
    return found


def told(value: Any) -> Any:
    """Times in milliseconds, as the bounds of an aggregate are."""
    if isinstance(value, dt.datetime):
        return millis(value.replace(tzinfo=None).isoformat())
    return value


def bids_expected(program: Program) -> Counter[Row]:
    (sink,) = program["sinks"]
    lines = sink["consumedBeforeRestore"] + sink["consumedAfterRestore"]
    return Counter(tuple(map(value_of, re.fullmatch(r"\+I\[(.*)\]", line)[1].split(", "))) for line in lines)  # type: ignore[index]


def value_of(text: str) -> Any:
    if "T" in text:
        return millis(text.removesuffix("Z"))
    return Decimal(text) if "." in text else text


def union_schema(declared: list[str]) -> pa.Schema:
    types = {
        "BIGINT": pa.int64(),
        "INT": pa.int32(),
        "VARCHAR": pa.string(),
        "TIMESTAMP(3)": pa.timestamp("us"),
    }
    return pa.schema([(each.split()[0], types[each.split()[1]]) for each in declared])


def union_value(value: Any) -> Any:
    found = re.fullmatch(r"LocalDateTime\.of\((.*)\)", value) if isinstance(value, str) else None
    if not found:
        return value
    *parts, nanos = map(int, found[1].split(","))
    return dt.datetime(*parts, nanos // 1000)  # type: ignore[arg-type]


def test_unions_give_flinks_rows(shared_data: Folder) -> None:
    found: list[Program] = json.loads((shared_data("flink") / "UnionTestPrograms.json").read_text())
    for program in found:
        streams = [
            StreamDef(each["name"], union_schema(each["schema"]), ticks_per_second=None)
            for each in program["sources"]
        ]
        made = Engine()
        made.add("q", query(program["sql"][0].split(" ", 3)[3], streams, ticks_per_second=None))
        answers: list[Row] = []
        for time, phase in enumerate(("BeforeRestore", "AfterRestore"), start=1):
            for stream, each in zip(streams, program["sources"], strict=True):
                rows = [
                    dict(zip(stream.schema.names, map(union_value, e["row"]), strict=True))
                    for e in each[f"produced{phase}"]
                ]
                made.push(stream.name, pa.RecordBatch.from_pylist(rows, stream.schema), [time] * len(rows))
                made.streams.heartbeat(stream.name, time)
            answers = [row for _, row in events_of(made.drain())]
            wanted = [tuple(e["row"]) for e in program["sinks"][0][f"consumed{phase}"]]
            assert Counter(answers) == Counter(wanted), (program["id"], phase)
    assert [program["id"] for program in found] == [
        "union-two-sources",
        "union-all-two-sources",
        "union-all-with-filter",
    ]
