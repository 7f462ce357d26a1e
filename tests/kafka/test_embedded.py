"""Kafka sources and sinks of the embedded runtime, with a real broker: readers see each answer once."""

from __future__ import annotations

import io
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

from confluent_kafka import Producer

from examples.kafka.broker import Broker
from headrace.cli.app import app
from headrace.connectors.kafka.client import Settings
from headrace.connectors.kafka.encode import MessageFormat
from headrace.connectors.kafka.messages import MessageRows
from headrace.connectors.kafka.sink import KafkaTarget
from headrace.connectors.kafka.source import KafkaSource
from headrace.connectors.kafka.values import ValueFormat
from headrace.connectors.staged import StagedSink
from headrace.errors import ConnectorError, HeadraceError, PipelineError
from headrace.pipeline.load import parse
from tests.kafka.embedded import (
    BASE,
    BY_PARTITION,
    PARTITION,
    PATIENCE,
    add_partitions,
    answers,
    counted,
    counting,
    lines,
    new_topic,
    pipeline_text,
    produce,
    read_committed,
    row,
    rows_in,
    run,
)
from tests.kafka.guide import check
from tests.kafka.secure import CERTIFICATE, PASSWORD, options

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int32())])


def test_rows_of_all_partitions_are_counted_to_the_end_of_the_topic(shared: Broker, tmp_path: Path) -> None:
    topic = new_topic(shared.address)
    messages = [row(i // 10, i % 3, i % 2) for i in range(1000)]
    produce(shared.address, topic, messages)
    produce(shared.address, topic, [{"value": b"{", "partition": 1}])
    text = pipeline_text(shared.address, topic, stream=BY_PARTITION, **PARTITION)
    result = run(text, tmp_path)
    assert result.state == "finished"
    assert answers(lines(tmp_path, "out.jsonl")) == counted(messages)
    assert lines(tmp_path, "late.jsonl") == []
    (bad,) = lines(tmp_path, "rejected.jsonl")
    assert bad["code"] == "HR-R101"
    assert f"(topic {topic}, partition 1, offset 500)" in bad["reason"]


def test_a_partition_far_behind_another_is_not_late(shared: Broker, tmp_path: Path) -> None:
    topic = new_topic(shared.address, 20)
    messages = [row(5000 + i, 1, 1) for i in range(50)]
    messages += [row(i, 0, place) for place in (0, 9, 17, 19) for i in range(200)]
    produce(shared.address, topic, messages)
    keys = {**PARTITION, "source": PARTITION["source"] + "\nblock_rows = 40"}
    run(pipeline_text(shared.address, topic, stream=BY_PARTITION, **keys), tmp_path)
    assert lines(tmp_path, "late.jsonl") == []
    assert answers(lines(tmp_path, "out.jsonl")) == counted(messages)


def test_an_idle_partition_holds_nobody_back(shared: Broker, tmp_path: Path) -> None:
    """A promise by the clock holds once every partition, silent or not, was read up to that instant."""
    topic = new_topic(shared.address, 3)
    begun = int(time.time()) // 10 * 10 - 5 - BASE // 1_000_000  # the window has ended already
    messages = [row(begun, i % 2, 1) for i in range(20)]
    produce(shared.address, topic, messages)
    text = pipeline_text(shared.address, topic, stream='bounds = { latency = "1 second" }')
    with_interval = text.replace('"1 hour"', '"200 ms"')
    run(with_interval, tmp_path, lambda root: sum(r["n"] for r in lines(root, "out.jsonl")) == 20)
    assert answers(lines(tmp_path, "out.jsonl")) == counted(messages)
    assert lines(tmp_path, "late.jsonl") == []


def test_partitions_that_are_added_are_read(shared: Broker, tmp_path: Path) -> None:
    topic = new_topic(shared.address, 1)
    produce(shared.address, topic, [row(1, 1, 0), row(2, 2, 0)])
    text = pipeline_text(shared.address, topic, sql="SELECT k, ts FROM s", interval='"100 ms"')
    run(text, tmp_path, lambda root: len(lines(root, "out.jsonl")) == 1)
    seen: list[bool] = []

    def done(root: Path) -> bool:
        if not seen:
            seen.append(True)
            add_partitions(shared.address, topic, 2)
            produce(shared.address, topic, [row(3, 3, 1), row(4, 4, 1)])
        return len(lines(root, "out.jsonl")) == 3

    run(text, tmp_path, done)
    assert [r["k"] for r in lines(tmp_path, "out.jsonl")] == [1, 2, 3]


def test_rows_behind_an_open_transaction_are_not_late(shared: Broker, tmp_path: Path) -> None:
    """They reached the topic in time, but nobody can read them before the transaction of another ends."""
    topic = new_topic(shared.address, 1)
    other = Producer({"bootstrap.servers": shared.address, "transactional.id": topic})
    other.init_transactions(PATIENCE)
    now = int(time.time()) - BASE // 1_000_000
    other.begin_transaction()
    other.produce(topic, row(now, 9)["value"])
    assert other.flush(PATIENCE) == 0
    produce(shared.address, topic, [row(now, k) for k in (1, 2)])
    opened = time.monotonic()
    ended: list[bool] = []

    def done(root: Path) -> bool:
        if not ended and time.monotonic() - opened > 10:
            other.abort_transaction(PATIENCE)
            ended.append(True)
        return len(lines(root, "out.jsonl")) + len(lines(root, "late.jsonl")) == 2

    run(pipeline_text(shared.address, topic, stream=SOON, interval='"200 ms"'), tmp_path, done)
    assert lines(tmp_path, "late.jsonl") == []
    assert sorted(each["k"] for each in lines(tmp_path, "out.jsonl")) == [1, 2]


SOON = 'bounds = { latency = "2 seconds" }\nidle = "periodic(100 milliseconds)"'


def test_a_run_continues_from_its_offsets(shared: Broker, tmp_path: Path) -> None:
    topic = new_topic(shared.address)
    messages = [row(i // 10, i % 3, i % 3) for i in range(600)]
    produce(shared.address, topic, messages)
    keys = {**PARTITION, "source": PARTITION["source"] + "\nblock_rows = 50"}
    text = pipeline_text(shared.address, topic, stream=BY_PARTITION, **keys)
    for _ in range(100):
        if run(text, tmp_path, max_steps=3).state == "finished":
            break
    assert answers(lines(tmp_path, "out.jsonl")) == counted(messages)
    assert lines(tmp_path, "late.jsonl") == []


@pytest.fixture
def source(shared: Broker) -> Any:
    made: list[KafkaSource] = []

    def make(topic: str, rows: MessageRows, **more: Any) -> KafkaSource:
        made.append(KafkaSource(Settings(shared.address), [topic], rows, lambda: 0, follow=False, **more))
        return made[-1]

    yield make
    for each in made:
        each.close()


def all_blocks(source: KafkaSource) -> list[Any]:
    found = []
    while not source.ended:
        if (block := source.read()) is not None:
            found.append(block)
    return found


def test_a_block_is_read_again_from_its_span(shared: Broker, source: Any) -> None:
    topic = new_topic(shared.address)
    produce(shared.address, topic, [row(i, i, i % 3, timestamp=1_000_000 + i * 7 % 50) for i in range(200)])
    rows = MessageRows(SCHEMA, ValueFormat())
    first = source(topic, rows, block_rows=30)
    positions = []
    while not first.ended:
        at = json.loads(json.dumps(first.position()))
        if (block := first.read()) is not None:
            positions.append((at, block))
    assert sum(len(block) for _, block in positions) == 200
    produce(shared.address, topic, [row(i, i, i % 3) for i in range(50)])
    for at, block in positions[:: max(1, len(positions) // 4)]:
        other = source(topic, rows, block_rows=1000)
        other.seek(at, json.loads(json.dumps(block.span)))
        assert other.read().data.equals(block.data)
        rest = [k for b in all_blocks(other) for k in b.data.column("k").to_pylist()]
        after = positions[positions.index((at, block)) + 1 :]
        assert sorted(rest) == sorted(k for _, b in after for k in b.data.column("k").to_pylist())


def test_a_partition_with_messages_behind_its_end_was_read_to_it(shared: Broker, source: Any) -> None:
    """The end is the marker of a transaction, which is not a message, and others go on writing."""
    topic = new_topic(shared.address, 1)
    other = Producer({"bootstrap.servers": shared.address, "transactional.id": topic})
    other.init_transactions(PATIENCE)
    other.begin_transaction()
    other.produce(topic, row(1, 1)["value"])
    other.commit_transaction(PATIENCE)
    rows = MessageRows(SCHEMA, ValueFormat())
    first = source(topic, rows)
    at = first.position()
    produce(shared.address, topic, [row(i, i) for i in range(5_000)])
    again = source(topic, rows, block_rows=1)
    again.seek(at)
    found = []
    for _ in range(100):
        if (block := again.read()) is not None:
            found += block.data.column("k").to_pylist()
    assert (found, again.ended) == ([1], True)


def test_what_a_message_has_besides_its_value_can_be_columns(shared: Broker, source: Any) -> None:
    topic = new_topic(shared.address, 2)
    sent = {"value": json.dumps({"v": 7}), "key": "me", "timestamp": 1_700_000_000_123, "partition": 1}
    produce(shared.address, topic, [{**sent, "headers": {"trace": b"abc"}}, {**sent, "key": b"\xff"}])
    instant = pa.timestamp("us", "UTC")
    schema = pa.schema(
        [
            ("k", pa.string()),
            ("v", pa.int64()),
            ("h", pa.string()),
            ("t", pa.string()),
            ("p", pa.int32()),
            ("o", pa.int64()),
            ("at", instant),
        ]
    )
    names = {"key": "k", "headers": "h", "topic": "t", "partition": "p", "offset": "o", "timestamp": "at"}
    (block,) = all_blocks(source(topic, MessageRows(schema, ValueFormat(), names)))
    (found,) = block.data.to_pylist()
    assert found.pop("at").timestamp() == 1_700_000_000.123
    assert found == {"k": "me", "v": 7, "h": '{"trace": "abc"}', "t": topic, "p": 1, "o": 0}
    (bad,) = block.bad
    assert (bad.code, "offset 1)" in bad.reason) == ("HR-R103", True)


def test_a_first_run_begins_where_the_file_says(shared: Broker, tmp_path: Path) -> None:
    """At an instant, compared with the timestamps of messages; a partition may have nothing after it."""
    topics = [new_topic(shared.address, 2), new_topic(shared.address, 1)]
    stamped = [row(i, i, int(i > 7), timestamp=(BASE // 1_000_000 + i) * 1000) for i in range(10)]
    produce(shared.address, topics[0], stamped)
    produce(shared.address, topics[1], [row(20, 20, 0, timestamp=(BASE // 1_000_000 + 20) * 1000)])
    at = {"2023-11-14T22:13:25Z": [5, 6, 7, 8, 9, 20], '"2023-11-14T22:13:28+00:00"': [8, 9, 20]}
    at |= {'"earliest"': [*range(10), 20], '"latest"': [], "2030-01-01T00:00:00Z": []}
    for number, (start, expected) in enumerate(at.items()):
        text = pipeline_text(
            shared.address,
            topics[0],
            sql="SELECT k FROM s",
            stream='bounds = { disorder = "1 hour" }',
            source=f"start = {start}\nfollow = false",
        )
        text = text.replace(f'topic = "{topics[0]}"', f"topic = {json.dumps(topics)}")
        run(text, tmp_path / str(number))
        assert sorted(r["k"] for r in lines(tmp_path / str(number), "out.jsonl")) == expected


@pytest.mark.parametrize(("isolation", "expected"), [("committed", [2]), ("uncommitted", [1, 2, 3])])
def test_messages_of_transactions_that_are_not_committed(
    shared: Broker, source: Any, isolation: str, expected: list[int]
) -> None:
    topic = new_topic(shared.address, 2)
    other = Producer({"bootstrap.servers": shared.address, "transactional.id": topic})
    other.init_transactions(PATIENCE)
    for k, end in ((1, other.abort_transaction), (2, other.commit_transaction), (3, None)):
        other.begin_transaction()
        other.produce(topic, row(k, k)["value"], partition=k % 2)
        assert other.flush(PATIENCE) == 0
        if end is not None:
            end(PATIENCE)
    blocks = all_blocks(source(topic, MessageRows(SCHEMA, ValueFormat()), isolation=isolation))
    assert sorted(k for block in blocks for k in block.data.column("k").to_pylist()) == expected
    other.abort_transaction(PATIENCE)


AVRO = {
    "type": "record",
    "name": "row",
    "fields": [
        {"name": "k", "type": "int"},
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}


def avro(k: int, ts: int) -> bytes:
    import fastavro

    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), {"k": k, "ts": ts})
    return out.getvalue()


@pytest.mark.parametrize("name", ["csv", "avro", "raw"])
def test_values_in_other_formats(name: str, shared: Broker, source: Any) -> None:
    instant = pa.timestamp("us", "UTC")
    schema = pa.schema([("ts", instant), ("k", pa.int32())])
    good: list[bytes] = [b"2020-01-01T00:00:00Z,1", b"2020-01-01T00:00:01Z,2\n"]
    bad: list[bytes] = [b"x", b"2020-01-01T00:00:00Z,1\n2020-01-01T00:00:00Z,1", b"2020-01-01T00:00:00Z,1,2"]
    if name == "avro":
        good, bad = [avro(1, BASE), avro(2, BASE)], [avro(1, BASE)[:-1], b"", avro(3, BASE) + b"x"]
    if name == "raw":
        schema = pa.schema([("k", pa.string())])
        good, bad = [b"1", b"2"], [b"\xff", b"", b"\xc0"]
    topic = new_topic(shared.address, 1)
    messages = [good[0], *bad, good[1]]
    produce(shared.address, topic, [{"value": value} for value in messages] + [{"value": None}])
    how = ValueFormat(name, avro_schema=json.dumps(AVRO) if name == "avro" else None)
    blocks = all_blocks(source(topic, MessageRows(schema, how)))
    keys = [str(k) for block in blocks for k in block.data.column("k").to_pylist()]
    assert keys == ["1", "2"]
    reasons = [each.reason for block in blocks for each in block.bad]
    assert [reason.split("offset ")[1] for reason in reasons] == ["1)", "2)", "3)", "5)"]


def test_poison_does_not_stop_the_stream(shared: Broker, tmp_path: Path) -> None:
    topic = new_topic(shared.address, 1, **{"max.message.bytes": "20000000"})
    good = row(1, 1)["value"].encode()
    poison = {
        "truncated": good[:-3],
        "10 MB": good[:-1] + b', "x": "' + b"x" * (10 << 20) + b'"}',
        "another type": b'{"ts": "no", "k": 1}',
        "a missing column": b'{"k": 1}',
        "no text": b"\0\1\2",
        "deep": b"[" * 100_000,
        "no object": b"[]",
        "two objects": good + good,
        "blank": b"  ",
        "tombstone": None,
    }
    messages = [value for each in poison.values() for value in (each, good)]
    produce(shared.address, topic, [{"value": value} for value in messages])
    text = pipeline_text(shared.address, topic, sql="SELECT k FROM s", source="follow = false")
    assert run(text, tmp_path).state == "finished"
    assert len(lines(tmp_path, "out.jsonl")) == len(poison)
    bad = lines(tmp_path, "rejected.jsonl")
    places = [each["reason"].rpartition(" (")[2] for each in bad]
    assert places == [f"topic {topic}, partition 0, offset {2 * i})" for i in range(len(poison))]
    assert all(len(each["row"]) < 1100 for each in bad)


def test_the_timestamp_of_the_broker_can_be_the_arrival(shared: Broker, tmp_path: Path) -> None:
    """A replay: a row that reached the topic six seconds after its time is late by a bound of five."""
    topic = new_topic(shared.address, 1)
    sent = [(0, 1), (10, 11), (2, 12), (8, 13), (30, 31)]
    stamps = [{"timestamp": BASE // 1000 + came * 1000} for _, came in sent]
    produce(shared.address, topic, [row(at, 1) | stamp for (at, _), stamp in zip(sent, stamps, strict=True)])
    keys = {
        "schema": "ts BIGINT, k INT, came TIMESTAMP",
        "source": 'metadata = { timestamp = "came" }\nfollow = false',
        "stream": 'bounds = { latency = "5 seconds" }\narrival = "came"',
        "sql": "SELECT ts FROM s",
    }
    run(pipeline_text(shared.address, topic, **keys).replace('unit = "us"', 'unit = "us"'), tmp_path)
    found = [(each["ts"] - BASE) // 1_000_000 for each in lines(tmp_path, "out.jsonl")]
    assert found == [0, 8, 10, 30]
    (late,) = lines(tmp_path, "late.jsonl")
    assert json.loads(late["row"])["ts"] == BASE + 2_000_000


def test_what_cannot_be_read_is_an_error_that_says_so(shared: Broker, tmp_path: Path) -> None:
    with pytest.raises(ConnectorError, match="HR-C030"):
        run(pipeline_text(shared.address, "nosuchtopic"), tmp_path)
    wrong = pipeline_text(shared.address, "t", source='metadata = { partition = "nope" }')
    with pytest.raises(ConnectorError, match="no column 'nope'"):
        run(wrong, tmp_path / "other")


def cli(*arguments: object) -> str:
    """What a command prints."""
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == 0, done.output
    return done.output


def test_secrets_come_from_the_environment_and_are_not_shown(
    shared: Broker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With TLS and SASL, from topic to topic; the client's log is on."""
    if not shared.secure:
        pytest.skip("there is no keytool for the certificate of the broker")
    monkeypatch.setattr(logging.getLogger("headrace.connectors.kafka"), "propagate", True)
    caplog.set_level(logging.DEBUG)
    secure = f"127.0.0.1:{shared.secure_port}"
    own = options(shared.folder.parent / CERTIFICATE)
    topic, to = new_topic(shared.address), new_topic(shared.address, 1)
    messages = [row(i, i % 2, i % 3) for i in range(40)]
    produce(shared.address, topic, messages)
    keys = {**PARTITION, "source": f"{PARTITION['source']}\n{own}"}
    sink = f'{{ type = "kafka", servers = "{secure}", topic = "{to}", key = "k", {own} }}'
    text = pipeline_text(secure, topic, stream=BY_PARTITION, sink=sink, **keys)
    with pytest.raises(HeadraceError, match="variable PW"):
        run(text, tmp_path)
    monkeypatch.setenv("PW", "wrong-s3cret")
    with pytest.raises(ConnectorError, match=r"HR-C0(30|12)"):
        run(text, tmp_path / "wrong")
    monkeypatch.setenv("PW", PASSWORD)
    file = tmp_path / "pipeline.toml"
    file.write_text(text)
    said = [cli("explain", file), cli("run", file)]
    said.append(cli("status", file))
    assert answers(rows_in(shared.address, to)) == counted(messages)
    pipeline = parse(text, root=tmp_path)
    broken = Settings("b", {"sasl.password": PASSWORD, "nosuch.option": PASSWORD}, "here")
    with pytest.raises(ConnectorError) as wrong:
        broken.client("Consumer", lambda text: None, {"group.id": "x"})
    shown = [repr(pipeline), json.dumps(pipeline.tables(), default=str), caplog.text]
    shown += [*said, str(wrong.value), repr(broken)]
    shown += [path.read_text("utf-8", "replace") for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(PASSWORD in each or "wrong-s3cret" in each for each in shown)


def test_a_secret_in_the_file_is_refused(tmp_path: Path) -> None:
    text = pipeline_text("b:1", "t", source=options(tmp_path, PASSWORD))
    with pytest.raises(PipelineError) as refused:
        parse(text, root=tmp_path)
    assert PASSWORD not in str(refused.value)
    assert "${NAME}" in str(refused.value)


# --- the sink

ANSWERS = pa.schema([("k", pa.int64())])


@pytest.fixture
def sinks(shared: Broker, tmp_path: Path) -> Any:
    made: list[StagedSink] = []

    def make(topic: str, folder: str = "staged") -> StagedSink:
        target = KafkaTarget(Settings(shared.address), topic, MessageFormat(key=("k",)), "test")
        made.append(StagedSink(target, tmp_path / folder))
        return made[-1]

    yield make
    for each in made:
        each.close()


def rows(*keys: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"k": list(keys)}, ANSWERS)


def keys_in(shared: Broker, topic: str) -> list[int]:
    return sorted(each["k"] for each in rows_in(shared.address, topic))


def nothing(sink: StagedSink, commit: Any) -> None:
    """Crash right after the record of the checkpoint."""


def half(sink: StagedSink, commit: Any) -> None:
    """Crash in the middle of the transaction."""
    assert isinstance(sink.target, KafkaTarget)
    producer = sink.target._producer
    producer.begin_transaction()
    producer.produce(sink.target.topic, b'{"k": 3}')
    assert producer.flush(30) == 0


def whole(sink: StagedSink, commit: Any) -> None:
    """Crash after the transaction, before this side has noted it."""
    with sink._rows_of(commit["number"]) as table:
        sink.target.apply(commit["run"], commit["number"], table)


@pytest.mark.parametrize("crash", [nothing, half, whole])
def test_a_commit_is_delivered_once_wherever_the_run_ended(
    crash: Callable[[StagedSink, Any], None], shared: Broker, sinks: Any
) -> None:
    topic = new_topic(shared.address, 2)
    sink = sinks(topic)
    commit = sink.begin()
    sink.open(ANSWERS, commit)
    sink.write(rows(1, 2))
    sink.publish(sink.prepare())
    assert keys_in(shared, topic) == [1, 2]
    sink.write(rows(3, 4))
    commit = json.loads(json.dumps(sink.prepare()))
    sink.write(rows(99))  # after the commit: it never counts
    crash(sink, commit)
    again = sinks(topic)
    again.open(ANSWERS, commit)
    assert keys_in(shared, topic) == [1, 2, 3, 4]
    again.publish(again.prepare())
    again.write(rows(5))
    again.publish(again.prepare())
    found = read_committed(shared.address, topic)
    assert sorted(json.loads(m.value())["k"] for m in found) == [1, 2, 3, 4, 5]
    assert all(int(m.key()) == json.loads(m.value())["k"] for m in found)


def test_a_run_that_another_has_replaced_cannot_write(shared: Broker, sinks: Any) -> None:
    topic = new_topic(shared.address, 1)
    old = sinks(topic)
    commit = old.begin()
    old.open(ANSWERS, commit)
    old.write(rows(1))
    later = old.prepare()
    sinks(topic, "another").open(ANSWERS, commit)
    with pytest.raises(ConnectorError, match="HR-C033"):
        old.publish(later)
    assert keys_in(shared, topic) == []


def test_an_older_checkpoint_does_not_repeat_answers(shared: Broker, sinks: Any) -> None:
    topic = new_topic(shared.address, 1)
    sink = sinks(topic)
    first = sink.begin()
    sink.open(ANSWERS, first)
    sink.write(rows(1))
    sink.publish(sink.prepare())
    with pytest.raises(ConnectorError, match="HR-C015"):
        sinks(topic, "another").open(ANSWERS, first)


def test_a_topic_that_does_not_exist_is_an_error(shared: Broker, sinks: Any) -> None:
    sink = sinks("nosuchtopic")
    with pytest.raises(ConnectorError, match=r"HR-C012.*nosuchtopic"):
        sink.open(ANSWERS, sink.begin())


def test_from_topic_to_topic(shared: Broker, tmp_path: Path) -> None:
    topic, to = new_topic(shared.address), new_topic(shared.address, 2)
    messages = [row(i // 10, i % 3, i % 2) for i in range(1000)]
    produce(shared.address, topic, messages)
    sink = f'{{ type = "kafka", servers = "{shared.address}", topic = "{to}", key = "k" }}'
    assert run(counting(shared.address, topic, sink, 100), tmp_path).state == "finished"
    assert answers(rows_in(shared.address, to)) == counted(messages)


def test_the_example_of_the_guide_runs_as_it_is_written(shared: Broker, tmp_path: Path) -> None:
    check("embedded", shared, tmp_path)
