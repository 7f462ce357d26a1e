"""`headrace.run`: results of live sources as they come, in a loop, in an event loop and in a thread."""

from __future__ import annotations

import asyncio
import json
import queue
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace
from headrace.connectors.inbox import Inbox
from headrace.errors import HeadraceError

MINUTE = "SELECT item, count(*) AS n FROM bids [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY item"
PASSED = "SELECT v FROM s"


def bids(count: int = 200) -> Iterator[dict[str, Any]]:
    for i in range(count):
        yield {"item": ("desk", "lamp")[i % 2], "at": f"2026-01-01T00:{i // 60:02}:{i % 60:02}Z"}


async def async_bids(count: int = 200) -> AsyncIterator[dict[str, Any]]:
    for row in bids(count):
        yield row
        await asyncio.sleep(0)


def rows_of(run: headrace.Run) -> list[dict[str, Any]]:
    return [row for batch in run for row in batch]


EXPECTED = headrace.sql(MINUTE, bids=list(bids()), time="at").to_dicts()


# --- what goes in


@pytest.mark.parametrize(
    "source",
    [
        bids,
        bids(),
        iter(list(bids())),
        iter([list(bids(50)), None, list(bids())[50:]]),
        list(bids()),
        pa.Table.from_pylist(list(bids())),
        pa.Table.from_pylist(list(bids())).to_reader(max_chunksize=7),
    ],
    ids=["function", "generator", "rows", "lists", "list", "table", "reader"],
)
def test_every_kind_of_source_gives_what_sql_gives(source: Any) -> None:
    assert rows_of(headrace.run(MINUTE, bids=source)) == EXPECTED


def test_a_source_of_a_pipeline_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "bids.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in bids()))
    source = {"path": str(path)}
    assert rows_of(headrace.run(MINUTE, bids=source)) == EXPECTED
    assert rows_of(headrace.run(MINUTE, {"bids": source}, schema="item STRING, at TIMESTAMP")) == EXPECTED
    assert rows_of(headrace.run(MINUTE, bids=str(path))) == EXPECTED


def test_a_queue_that_another_thread_fills() -> None:
    waiting: queue.Queue[dict[str, Any] | None] = queue.Queue()
    run = headrace.run(MINUTE, bids=iter(waiting.get, None), schema="item STRING, at TIMESTAMP")
    threading.Thread(target=lambda: [waiting.put(row) for row in [*bids(), None]]).start()
    assert rows_of(run) == EXPECTED


def test_a_table_without_times_is_joined() -> None:
    text = "SELECT b.item, s.colour FROM bids [NOW] AS b, shelf AS s WHERE b.item = s.item"
    found = rows_of(headrace.run(text, bids=bids(2), shelf=[{"item": "lamp", "colour": "red"}]))
    assert found == [{"item": "lamp", "colour": "red"}]


def test_rows_without_times_count_when_they_come() -> None:
    rows = iter([{"v": 1}, {"v": 2}])
    results = list(headrace.run("SELECT v FROM s WHERE v > 1", s=rows))
    assert [row for each in results for row in each] == [{"v": 2}]
    assert pa.types.is_timestamp(results[0].times.type)


def test_sequence_numbers_are_times() -> None:
    rows = iter([{"v": v, "t": v} for v in range(25)])
    text = "SELECT count(*) AS n FROM s [RANGE 10 SLIDE 10]"
    results = list(headrace.run(text, s=rows, time="t"))
    assert [row["n"] for each in results for row in each] == [10, 10, 5]
    assert [time for each in results for time in each.times.to_pylist()] == [9, 19, 29]


def test_a_query_that_is_bound_runs() -> None:
    columns = pa.schema([("item", pa.string()), ("at", pa.timestamp("us", "UTC"))])
    query = headrace.query(MINUTE, [headrace.StreamDef("bids", columns, time_column="at")])
    assert rows_of(query.run(bids=bids)) == EXPECTED


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 7))
def test_every_row_is_processed_or_late(times: list[int], size: int) -> None:
    """However rows are cut into lists: rows in = rows out + late rows, and results are in order.

    Rows that come together are judged together, so rows within the bound are never late, and others may be.
    """
    rows = [{"v": v, "t": t} for v, t in enumerate(times)]
    lists = [rows[i : i + size] for i in range(0, len(rows), size)]
    options = {"time": "t", "schema": "v BIGINT, t BIGINT", "bounds": {"s": {"disorder": 5}}}
    results = list(headrace.run(PASSED, s=iter(lists), **options))
    seen = [row["v"] for each in results for row in each]
    late = [json.loads(row)["v"] for each in results for row in each.late["row"].to_pylist()]
    newest = [max(times[: i + 1]) for i in range(len(times))]
    assert set(late) <= {i for i, t in enumerate(times) if t < newest[i] - 5}
    assert sorted(seen + late) == list(range(len(times)))
    assert [times[v] for v in seen] == sorted(times[v] for v in seen)


# --- what comes out


def test_late_and_rejected_rows_come_with_the_results() -> None:
    rows = iter([{"v": 1, "t": 1}, {"v": 2, "t": 9}, [{"v": 3, "t": 5}], [{"v": "x", "t": 10}]])
    results = list(headrace.run(PASSED, s=rows, time="t"))
    assert [row["v"] for each in results for row in each] == [1, 2]
    assert pa.concat_tables([each.late for each in results])["time"].to_pylist() == [5]
    (reason,) = pa.concat_tables([each.rejected for each in results])["reason"].to_pylist()
    assert reason == 'column v: "x" is not a BIGINT'


def test_leaving_the_loop_ends_the_sources() -> None:
    closed = threading.Event()

    def endless() -> Iterator[dict[str, int]]:
        try:
            i = 0
            while True:
                yield {"v": i, "t": i}
                i += 1
        finally:
            closed.set()

    for batch in headrace.run(PASSED, s=endless, time="t"):
        assert len(batch)
        break
    assert closed.wait(60)


def test_a_pipeline_file_runs_and_continues_after_a_break(tmp_path: Path) -> None:
    (tmp_path / "pipeline.toml").write_text(
        """
        [pipeline]
        name = "numbers"
        runtime = "embedded"
        checkpoint = "state"
        [streams.s]
        source = { type = "python", function = "numbers" }
        schema = "v BIGINT, t BIGINT"
        time = { column = "t", unit = "tick" }
        [[queries]]
        name = "all_rows"
        sql = "SELECT v FROM s"
        sink = "all.jsonl"
        [[queries]]
        name = "odd"
        sql = "SELECT v FROM s WHERE v % 2 = 1"
        sink = "odd.jsonl"
        """
    )

    def numbers(position: int | None) -> Iterator[tuple[dict[str, int], int]]:
        for i in range(position or 0, 10):
            yield {"v": i, "t": i}, i + 1

    seen: dict[str, list[int]] = {"all_rows": [], "odd": []}
    run = headrace.run(tmp_path / "pipeline.toml", numbers=numbers)
    for batch in run:
        seen[batch.query] += [row["v"] for row in batch]
        if len(seen["all_rows"]) >= 3:
            break
    assert run.status is not None
    assert run.status.state == "stopped"
    for batch in headrace.run(str(tmp_path / "pipeline.toml"), numbers=numbers):
        seen[batch.query] += [row["v"] for row in batch]
    written = [json.loads(line)["v"] for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert written == list(range(10))
    assert set(seen["all_rows"]) == set(range(10))
    assert set(seen["odd"]) == {1, 3, 5, 7, 9}


# --- the event loop


def test_async_for_gives_the_same() -> None:
    async def collected(source: Any) -> list[dict[str, Any]]:
        return [row async for batch in headrace.run(MINUTE, bids=source) for row in batch]

    for source in (async_bids, async_bids(), bids, list(bids())):
        assert asyncio.run(collected(source)) == EXPECTED


def test_leaving_an_async_loop_ends_its_sources() -> None:
    async def main() -> bool:
        closed = asyncio.Event()

        async def endless() -> AsyncIterator[dict[str, int]]:
            try:
                i = 0
                while True:
                    yield {"v": i, "t": i}
                    await asyncio.sleep(0)
                    i += 1
            finally:
                closed.set()

        results = aiter(headrace.run(PASSED, s=endless, time="t"))
        assert len(await anext(results))
        await results.aclose()  # type: ignore[attr-defined]
        return closed.is_set()

    assert asyncio.run(main())


def test_a_cancelled_task_ends() -> None:
    """Also while it waits for the first row of a source."""

    async def main() -> None:
        async def silent() -> AsyncIterator[dict[str, int]]:
            await asyncio.Event().wait()
            yield {}

        async def consume() -> None:
            async for _ in headrace.run(PASSED, s=silent):
                pass

        task = asyncio.create_task(consume())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


# --- a thread


def test_subscribers_get_every_result() -> None:
    every: list[headrace.Result] = []
    named: list[headrace.Result] = []
    run = headrace.run(MINUTE, bids=bids).subscribe(every.append).subscribe(named.append, query="other")
    assert run.start().wait()
    assert [row for each in every for row in each] == EXPECTED
    assert not named


def test_a_query_is_subscribed_to() -> None:
    columns = pa.schema([("v", pa.int64()), ("t", pa.int64())])
    stream = headrace.StreamDef("s", columns, time_column="t", ticks_per_second=None)
    query = headrace.query(PASSED, [stream])
    release, arrived = threading.Event(), threading.Event()

    def rows() -> Iterator[dict[str, int]]:
        yield {"v": 1, "t": 1}
        yield {"v": 2, "t": 2}
        release.wait(60)

    with query.subscribe(lambda result: arrived.set(), s=rows) as run:
        assert arrived.wait(60)  # while the stream goes on
        release.set()
    assert run.status is not None


def test_what_a_subscriber_raises_ends_the_run() -> None:
    def refuse(result: headrace.Result) -> None:
        raise KeyError("no room")

    with pytest.raises(KeyError, match="no room"):
        headrace.run(MINUTE, bids=bids).subscribe(refuse).start().wait()


# --- mistakes


def broken() -> Iterator[dict[str, int]]:
    yield {"v": 1, "t": 1}
    raise OSError("the device is gone")


@pytest.mark.parametrize(
    ("make", "code", "words"),
    [
        (lambda: headrace.run(PASSED, s=broken, time="t"), "HR-C020", "the device is gone"),
        (lambda: headrace.run(PASSED, s=iter(())), "HR-I080", "ended without a row"),
        (lambda: headrace.run(PASSED, s={"type": "tcp", "port": 1}), "HR-I080", "not known"),
        (lambda: headrace.run(PASSED, s=async_bids), "HR-I081", "event loop"),
        (lambda: headrace.run(PASSED, s=[{"v": 1, "t": 1}], time="u"), "HR-I076", "'u'"),
        (lambda: headrace.run("SELEC v", s=[{"v": 1, "t": 1}], time="t"), "HR-Q003", ""),
        (lambda: headrace.run("SELECT w FROM s", s=[{"v": 1, "t": 1}], time="t"), "HR-Q011", "'w'"),
        (lambda: headrace.run(PASSED, s=bids, bounds={"t": {"disorder": 1}}), "HR-I077", "'t'"),
        (lambda: headrace.run(PASSED, s=bids, u=bids, schema="v BIGINT"), "HR-I077", "2 sources"),
        (lambda: headrace.run(PASSED, s=bids, schema="v BIGINT", bounds={"s": {"x": 1}}), "HR-F003", "'x'"),
        (lambda: headrace.run(7), "HR-I075", "int"),  # type: ignore[arg-type]
        (lambda: headrace.run("nowhere.toml"), "HR-F001", "No such file"),
    ],
)
def test_mistakes_are_named(make: Any, code: str, words: str) -> None:
    with pytest.raises(HeadraceError, match=r"\[HR") as caught:
        list(make())
    assert caught.value.code == code
    assert words in str(caught.value)


def test_a_run_begins_once() -> None:
    run = headrace.run(MINUTE, bids=bids)
    list(run)
    with pytest.raises(HeadraceError, match="HR-I082"):
        list(run)


def test_a_full_inbox_makes_its_writer_wait() -> None:
    inbox = Inbox(most=2)
    thread = threading.Thread(target=inbox.fill_from, args=(iter([1, 2, 3]),))
    thread.start()
    taken = []
    for rows in inbox.rows():
        if rows is not None:
            taken.append(rows)
    thread.join()
    assert taken == [1, 2, 3]


# --- drawings


def test_a_run_draws_itself() -> None:
    run = headrace.run(MINUTE, bids=bids, schema="item STRING, at TIMESTAMP")
    assert "<svg" in run._repr_html_()
    list(run)
    assert "finished" in run._repr_html_()
    assert "finished" in str(run.why())
    assert "<svg" in run.prepare()._repr_html_()
    assert "<svg" in run.prepare().queries[0].query.plan._repr_html_()
