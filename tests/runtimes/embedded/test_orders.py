"""Several orders of the rows of one stream: its source is read once (Tucker & Maier, §1 and §5)."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace
from headrace.cli.check import describe
from headrace.control import AddQuery, submit
from headrace.errors import HeadraceError
from headrace.pipeline import load, parse
from headrace.runtimes.embedded import Runner, replay
from headrace.testing import oracle
from headrace.testing.compare import assert_same_stream

SCHEMA = pa.schema([(name, pa.int64()) for name in ("k", "v", "made", "sent")])
TEXT = """
[pipeline]
name = "orders"
runtime = "embedded"
checkpoint = "state"
{pipeline}

[streams.made]
source = {{ path = "rows.jsonl", block_bytes = 64 }}
schema = "k BIGINT, v BIGINT, made BIGINT, sent BIGINT"
time = {{ column = "made", unit = "tick" }}
bounds = {{ disorder = 10 }}
{made}

[streams.sent]
of = "made"
time = {{ column = "sent", unit = "tick" }}
{sent}

[[queries]]
name = "q"
sql = "{sql}"
sink = {{ path = "q.jsonl", time = "at" }}
late = "late.jsonl"
rejected = "rejected.jsonl"
"""
JOIN = "SELECT a.k, a.v, b.v AS w FROM made [RANGE 5] AS a, sent [RANGE 8] AS b WHERE a.k = b.k"
BOTH = "SELECT v, 'made' AS o FROM made UNION ALL SELECT v, 'sent' AS o FROM sent"
Row = dict[str, Any]


def pipeline(root: Path, rows: list[Row | str], sql: str = JOIN, **tables: str) -> Path:
    text = TEXT.format(**{"pipeline": "", "made": "", "sent": "", "sql": sql, **tables})
    (root / "p.toml").write_text(text)
    lines = (each if isinstance(each, str) else json.dumps(each) for each in rows)
    (root / "rows.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return root / "p.toml"


def answers(root: Path, name: str = "q") -> list[Row]:
    return [json.loads(line) for line in (root / f"{name}.jsonl").read_text().splitlines()]


def rows_of(steps: list[tuple[int, int, int]]) -> list[Row]:
    """Rows that are sent in order, up to nine ticks after they were made."""
    sent, rows = 20, []
    for number, (later, delay, key) in enumerate(steps):
        sent += later
        rows.append({"k": key, "v": number, "made": sent - delay, "sent": sent})
    return rows


STEPS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9), st.integers(0, 2)), max_size=14)
SOME: list[tuple[int, int, int]] = [(i % 4, (7 * i) % 10, i % 3) for i in range(60)]


@given(STEPS, st.lists(st.integers(1, 4), max_size=3))
def test_a_query_over_two_orders_of_one_stream_is_what_the_oracle_says(steps: Any, stops: list[int]) -> None:
    """Also if the run stops now and then, and goes on from its checkpoint."""
    rows = rows_of(steps)
    with tempfile.TemporaryDirectory() as folder:
        file = pipeline(Path(folder), rows)
        for stop in stops:
            Runner(load(file)).run(max_steps=stop)
        result = Runner(load(file)).run()
        found = answers(Path(folder))
    assert result.state == "finished"
    streams = dict.fromkeys(("made", "sent"), SCHEMA)
    query = headrace.query(JOIN, streams, ticks_per_second=None)
    expected = oracle.stream(query.plan, {name: [(row[name], row) for row in rows] for name in streams})
    assert_same_stream([(row["at"], (row["k"], row["v"], row["w"])) for row in found], expected)


def test_the_source_is_read_once(tmp_path: Path) -> None:
    runner = Runner(load(pipeline(tmp_path, rows_of(SOME))))
    progress = runner.run().progress
    assert runner.feed.names == {"made"}
    assert [progress.streams[name].rows_processed for name in ("made", "sent")] == [60, 60]
    assert progress.streams["sent"].source == "the rows of made"
    assert "stream sent: the rows of made, external time in sent" in describe(load(tmp_path / "p.toml"))


def test_a_query_may_read_only_the_other_order(tmp_path: Path) -> None:
    rows = rows_of(SOME)
    Runner(load(pipeline(tmp_path, rows, "SELECT v FROM sent"))).run()
    assert [row["v"] for row in answers(tmp_path)] == [row["v"] for row in rows]


def test_an_order_may_be_that_of_arrival(tmp_path: Path) -> None:
    """The implicit order, beside the explicit one."""
    text = pipeline(tmp_path, rows_of(SOME), "SELECT v FROM sent").read_text()
    (tmp_path / "p.toml").write_text(
        text.replace('time = { column = "sent", unit = "tick" }', 'time = "latent"')
    )
    Runner(load(tmp_path / "p.toml")).run()
    assert [row["v"] for row in answers(tmp_path)] == list(range(60))


def test_urgent_rows_overtake_others_of_their_stream(tmp_path: Path) -> None:
    """In the order of arrival nothing waits; a query over it answers at once what others put in order."""
    rows = rows_of(SOME)
    file = pipeline(tmp_path, rows, "SELECT v FROM made")
    urgent = '[[queries]]\nname = "urgent"\nsql = "SELECT v FROM sent WHERE k = 2"\nsink = "urgent.jsonl"\n'
    latent = file.read_text().replace('time = { column = "sent", unit = "tick" }', 'time = "latent"')
    file.write_text(latent + urgent)
    read = Runner(load(file)).run(max_steps=15).progress.streams["made"].rows_in
    assert 5 < read < 60
    assert [row["v"] for row in answers(tmp_path, "urgent")] == [r["v"] for r in rows[:read] if r["k"] == 2]
    newest = max(row["made"] for row in rows[:read])
    assert all(row["at"] <= newest - 10 for row in answers(tmp_path)), "others wait for their place"
    assert Runner(load(file)).run().state == "finished"
    assert [row["at"] for row in answers(tmp_path)] == sorted(row["made"] for row in rows)
    assert len(answers(tmp_path, "urgent")) == 20


def test_every_row_is_accounted_for_in_each_order(tmp_path: Path) -> None:
    """What cannot be read is rejected in both, a missing or late time only in its own order."""
    rows = rows_of(SOME[:4])
    rows[1]["sent"] = None
    rows[3]["sent"] = 1
    progress = Runner(load(pipeline(tmp_path, [*rows, "{", rows[2]], BOTH))).run().progress
    made, sent = progress.streams["made"], progress.streams["sent"]
    assert (made.rows_in, made.rows_rejected, made.rows_late) == (6, 1, 0)
    assert (sent.rows_in, sent.rows_rejected, sent.rows_late) == (6, 2, 1)
    codes = sorted((each["stream"], each["code"]) for each in answers(tmp_path, "rejected"))
    assert [stream for stream, _ in codes] == ["made", "sent", "sent"]
    assert [row["time"] for row in answers(tmp_path, "late")] == [1]


def test_rows_that_close_a_value_close_it_in_each_order(tmp_path: Path) -> None:
    said = 'punctuations = { column = "over", pattern = ["k"] }'
    rows: list[Row | str] = [
        {"k": 1, "v": 1, "made": 1, "sent": 2, "over": False},
        {"k": 1, "v": 2, "made": 2, "sent": 3, "over": True},
        {"k": 1, "v": 3, "made": 3, "sent": 4, "over": False},
    ]
    file = pipeline(tmp_path, rows, BOTH, made=said)
    file.write_text(file.read_text().replace("sent BIGINT", "sent BIGINT, over BOOLEAN"))
    progress = Runner(load(file)).run().progress
    for name in ("made", "sent"):
        assert (progress.streams[name].rows_in, progress.streams[name].rows_late) == (2, 1)


def test_a_replay_of_both_orders_is_the_run(tmp_path: Path) -> None:
    Runner(load(pipeline(tmp_path, rows_of(SOME), pipeline='record = "record"'))).run()
    replay(tmp_path / "record", tmp_path / "again")
    assert (tmp_path / "again" / "q.jsonl").read_bytes() == (tmp_path / "q.jsonl").read_bytes()


def test_a_query_that_comes_later_reads_the_other_order_from_then_on(tmp_path: Path) -> None:
    file = pipeline(tmp_path, rows_of(SOME), "SELECT v FROM made")
    Runner(load(file)).run(max_steps=5)
    submit(load(file), AddQuery("more", "SELECT v FROM sent", "more.jsonl"))
    runner = Runner(load(file))
    assert runner.run().state == "finished"
    found = [row["v"] for row in answers(tmp_path, "more")]
    assert 0 < len(found) < 60
    assert found == list(range(60))[-len(found) :]
    assert runner.feed.names == {"made"}


def test_the_time_of_an_order_stays_what_it_was(tmp_path: Path) -> None:
    file = pipeline(tmp_path, rows_of(SOME))
    Runner(load(file)).run(max_steps=5)
    file.write_text(file.read_text().replace('{ column = "sent"', '{ column = "v"'))
    with pytest.raises(HeadraceError, match=r"HR-D005.*streams\.sent\.time\.column"):
        Runner(load(file)).run()


WRONG = {
    "no such stream": ('of = "made"', 'of = "mad"', "did you mean made"),
    "an order of an order": (
        "[streams.sent]",
        '[streams.more]\nof = "sent"\ntime = "latent"\n[streams.sent]',
        "of = 'made'",
    ),
    "a source of its own": ('of = "made"', 'of = "made"\nsource = "x.jsonl"', "remove source"),
    "shedding": ('of = "made"', 'of = "made"\nshed = { above = "1 row" }', "remove shed"),
    "rows that are only heartbeats": ("bounds", 'heartbeats = { column = "v" }\nbounds', "data = true"),
    "an earliest time": ('column = "made", unit', 'column = "made", earliest = 5, unit', "earliest"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_another_order_is_said(tmp_path: Path, name: str) -> None:
    old, new, hint = WRONG[name]
    text = pipeline(tmp_path, []).read_text()
    with pytest.raises(HeadraceError, match="HR-F026") as error:
        parse(text.replace(old, new, 1), root=tmp_path)
    assert hint in str(error.value)
