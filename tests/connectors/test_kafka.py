"""Kafka without a broker: values, metadata, keys, options; positions with the client's own mock cluster."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

from headrace.connectors.kafka.client import Settings, is_exposed
from headrace.connectors.kafka.encode import MessageFormat
from headrace.connectors.kafka.messages import Consumed, MessageRows
from headrace.connectors.kafka.source import KafkaSource
from headrace.connectors.kafka.values import ValueFormat
from headrace.errors import ConnectorError, PipelineError
from headrace.pipeline.load import parse

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int32())])
GOOD = b'{"ts": 1, "k": 2}'
BAD = (
    b"{",
    b"",
    b" ",
    b"[]",
    b"null",
    GOOD + GOOD,
    GOOD + b"\n" + GOOD,
    b'{"ts": "x", "k": 1}',
    b"\xff",
    None,
)


@dataclass
class Message:
    """What the client returns, for what is read of it."""

    body: bytes | None
    place: int = 0
    name: bytes | None = None
    more: list[tuple[str, bytes]] = field(default_factory=list)

    def value(self) -> bytes | None:
        return self.body

    def key(self) -> bytes | None:
        return self.name

    def headers(self) -> list[tuple[str, bytes]]:
        return self.more

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return self.place

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_700_000_000_123


def block(values: list[bytes | None], how: ValueFormat | None = None, schema: pa.Schema = SCHEMA) -> Any:
    messages = [Message(value, i) for i, value in enumerate(values)]
    return MessageRows(schema, how or ValueFormat()).block(Consumed(messages))


@given(st.lists(st.sampled_from((GOOD, b'\n{"ts":\n 1, "k": 2}\r\n', *BAD)), max_size=12))
def test_every_message_is_a_row_or_rejected_with_its_offset(values: list[bytes | None]) -> None:
    found = block(values)
    assert found.data.to_pylist() == [{"ts": 1, "k": 2}] * sum(value not in BAD for value in values)
    offsets = [int(each.reason.rpartition("offset ")[2].rstrip(")")) for each in found.bad]
    assert offsets == [i for i, value in enumerate(values) if value in BAD]
    assert all("topic t, partition 3, offset" in each.reason for each in found.bad)


@given(st.lists(st.binary(max_size=30), max_size=8), st.sampled_from(["json", "csv", "raw"]))
def test_no_bytes_stop_a_stream(values: list[bytes | None], name: str) -> None:
    schema = pa.schema([("v", pa.string())]) if name == "raw" else SCHEMA
    found = block(values, ValueFormat(name), schema)
    assert len(found) + len(found.bad) == len(values)


def test_values_that_are_too_long_are_rejected_and_shown_in_part() -> None:
    huge = b'{"ts": 1, "k": 1, "x": "' + b"x" * (10 << 20) + b'"}'
    found = block([GOOD, huge, GOOD])
    assert len(found) == 2
    (bad,) = found.bad
    assert bad.code == "HR-R104"
    assert len(bad.raw) < 1100


@given(
    st.lists(st.tuples(st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**50)), max_size=6), st.booleans()
)
def test_avro_with_and_without_the_prefix_of_a_registry(rows: list[tuple[int, int]], prefix: bool) -> None:
    import fastavro

    fields = [{"name": "k", "type": "int"}, {"name": "ts", "type": "long"}]
    record = {"type": "record", "name": "row", "fields": fields}
    values: list[bytes | None] = []
    for k, ts in rows:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(dict(record)), {"k": k, "ts": ts})
        values.append((b"\0\0\0\0\7" if prefix else b"") + out.getvalue())
    how = ValueFormat("avro", avro_schema=json.dumps(record), avro_prefix=prefix)
    found = block([*values, b""], how)
    assert found.data.to_pylist() == [{"ts": ts, "k": k} for k, ts in rows]
    assert len(found.bad) == 1


def test_what_a_message_has_besides_its_value_can_be_columns() -> None:
    columns = {"key": "k", "headers": "h", "topic": "t", "partition": "p", "offset": "o", "timestamp": "at"}
    types = [pa.string(), pa.string(), pa.string(), pa.int32(), pa.int64(), pa.timestamp("us", "UTC")]
    schema = pa.schema([*zip(columns.values(), types, strict=True), ("v", pa.int64())])
    messages = [
        Message(b'{"v": 7}', 5, b"me", [("trace", b"a"), ("trace", b"b")]),
        Message(b'{"v": 8}', 6, b"\xff"),
        Message(b'{"v": 9}', 7),
    ]
    found = MessageRows(schema, ValueFormat(), columns).block(Consumed(messages))
    first, last = found.data.to_pylist()
    assert first.pop("at").timestamp() == 1_700_000_000.123
    assert first == {"k": "me", "h": '{"trace": "b"}', "t": "t", "p": 3, "o": 5, "v": 7}
    assert (last["k"], last["h"], last["v"]) == (None, None, 9)
    (bad,) = found.bad
    assert (bad.code, bad.reason) == (
        "HR-R103",
        "the key is not valid UTF-8 (topic t, partition 3, offset 6)",
    )


@pytest.mark.parametrize(
    ("schema", "how", "metadata", "said"),
    [
        (SCHEMA, ValueFormat(), {"key": "nope"}, "no column 'nope'"),
        (SCHEMA, ValueFormat(), {"topic": "k"}, "int32"),
        (SCHEMA, ValueFormat("raw"), {}, "exactly one column"),
        (SCHEMA, ValueFormat("avro"), {}, "avro_schema"),
    ],
)
def test_columns_that_do_not_fit_are_an_error(
    schema: pa.Schema, how: ValueFormat, metadata: dict[str, str], said: str
) -> None:
    with pytest.raises(ConnectorError, match=rf"HR-C032(?s:.*){said}"):
        MessageRows(schema, how, metadata)


def test_rows_become_keys_and_values() -> None:
    rows = pa.RecordBatch.from_pydict({"a": [1, None], "b": ["x", "ü"]})
    assert MessageFormat().messages(rows) == (
        [None, None],
        [b'{"a":1,"b":"x"}', '{"a":null,"b":"ü"}'.encode()],
    )
    assert MessageFormat(key=("a",)).messages(rows)[0] == [b"1", None]
    assert MessageFormat(key=("a", "b")).messages(rows)[0] == [
        b'{"a":1,"b":"x"}',
        '{"a":null,"b":"ü"}'.encode(),
    ]
    assert MessageFormat("raw", ("a",)).messages(rows) == ([b"1", None], [b"x", "ü".encode()])
    with pytest.raises(ConnectorError, match="HR-C023"):
        MessageFormat(key=("c",)).check(rows.schema, "here")
    with pytest.raises(ConnectorError, match="HR-C032"):
        MessageFormat("raw").check(rows.schema, "here")


PIPELINE = """
    [pipeline]
    name = "p"
    runtime = "embedded"
    [streams.s]
    schema = "ts BIGINT, k INT"
    time = {{ column = "ts", unit = "us" }}
    source = {{ type = "kafka", servers = "b:1", topic = "t"{source} }}
    [[queries]]
    name = "q"
    sql = "SELECT k FROM s"
    sink = {sink}
"""


@pytest.mark.parametrize("name", ["sasl.password", "ssl.key.password", "ssl.key.pem", "sasl.jaas.config"])
def test_a_secret_in_the_file_is_refused_and_not_repeated(name: str, tmp_path: Path) -> None:
    secret = "s3cret-Value"
    options = f', options = {{ "{name}" = "{secret}" }}'
    sink = f'{{ type = "kafka", servers = "b:1", topic = "t"{options} }}'
    for source, to in ((options, '"out.jsonl"'), ("", sink)):
        with pytest.raises(PipelineError) as refused:
            parse(PIPELINE.format(source=source, sink=to), root=tmp_path)
        assert secret not in str(refused.value)
        assert "${NAME}" in str(refused.value)


def test_which_options_are_secrets() -> None:
    assert is_exposed("sasl.password", "x")
    assert not is_exposed("sasl.password", "${PW}")
    assert not is_exposed("sasl.oauthbearer.token.endpoint.url", "https://x")
    assert not is_exposed("ssl.ca.location", "/etc/ca.pem")


@pytest.fixture
def cluster() -> Any:
    """The address of a mock cluster that lives in the client's library."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 0})
    address = next(iter(producer.list_topics(timeout=10).brokers.values()))
    return producer, f"{address.host}:{address.port}"


def fill(producer: Any, topic: str, count: int, first: int = 0) -> None:
    for i in range(first, first + count):
        producer.produce(topic, json.dumps({"ts": i, "k": i}), partition=i % 4)
    assert producer.flush(30) == 0


def source_of(address: str, topic: str, block_rows: int) -> KafkaSource:
    rows = MessageRows(SCHEMA, ValueFormat())
    return KafkaSource(Settings(address), [topic], rows, lambda: 0, follow=False, block_rows=block_rows)


def keys_left(source: KafkaSource) -> list[int]:
    found: list[int] = []
    while not source.ended:
        if (read := source.read()) is not None:
            found += read.data.column("k").to_pylist()
    source.close()
    return found


def test_a_position_is_the_next_offset_of_each_partition(cluster: Any) -> None:
    producer, address = cluster
    fill(producer, "t", 90)
    first = source_of(address, "t", 20)
    positions = []
    while not first.ended:
        at = json.loads(json.dumps(first.position()))
        if (read := first.read()) is not None:
            positions.append((at, read))
    first.close()
    assert sorted(k for _, each in positions for k in each.data.column("k").to_pylist()) == list(range(90))
    fill(producer, "t", 30, first=90)  # beyond the ends that the position has
    for at, read in positions[:: max(1, len(positions) // 3)]:
        again = source_of(address, "t", 1000)
        again.seek(at, json.loads(json.dumps(read.span)))
        block = again.read()
        assert block is not None
        assert block.data.equals(read.data)
        after = positions[positions.index((at, read)) + 1 :]
        expected = [k for _, each in after for k in each.data.column("k").to_pylist()]
        assert sorted(keys_left(again)) == sorted(expected)


def test_an_id_names_what_a_message_was_sent_with() -> None:
    rows = pa.RecordBatch.from_pydict({"a": [1, 2]})
    how = MessageFormat(id="id")
    assert how.messages(rows, "run-7", 10)[1] == [
        b'{"a":1,"id":"run-7-10"}',
        b'{"a":2,"id":"run-7-11"}',
    ]
    with pytest.raises(ConnectorError, match=r"HR-C032(?s:.*)must be a new one"):
        MessageFormat(id="a").check(rows.schema, "here")
