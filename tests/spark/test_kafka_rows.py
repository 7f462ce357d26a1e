"""Messages in Spark's tasks are decoded as on the embedded runtime, and options are translated.

Without Spark: `MessageReader` runs in its tasks, and is given here what it is given there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from headrace.connectors.kafka.messages import PLAIN, Consumed, MessageRows
from headrace.connectors.kafka.values import SHOWN, ValueFormat
from headrace.errors import PipelineError
from headrace.runtimes.spark.driver.kafka import java_options
from headrace.runtimes.spark.worker.kafka_rows import LENGTH, MessageReader
from headrace.runtimes.spark.worker.partitioner import NOW, REACHED
from tests.connectors.test_kafka import BAD, GOOD, Message

LONGEST = 60
NAMES = {"key": "key", "headers": "h", "topic": "t", "partition": "p", "offset": "o", "timestamp": "at"}
TYPES = [pa.string(), pa.string(), pa.string(), pa.int32(), pa.int64(), pa.timestamp("us", "UTC")]
SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int32()), *zip(NAMES.values(), TYPES, strict=True)])
values = st.sampled_from((GOOD, *BAD, GOOD[:-1] + b" " * LONGEST + b"}"))
keys = st.sampled_from((None, b"a", b"\xff", b""))
headers = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from((b"x", b"\xff"))), max_size=2)


def spark_batch(messages: list[Message]) -> pa.RecordBatch:
    """The messages as Spark sends them to a task."""
    whole = [message.value() for message in messages]
    columns: dict[str, Any] = {
        "value": pa.array([v if v is None or len(v) <= LONGEST else v[:SHOWN] for v in whole], pa.binary()),
        LENGTH: pa.array([0 if v is None else len(v) for v in whole], pa.int32()),
        NOW: pa.array([7] * len(messages), pa.int64()),
        REACHED: pa.array(range(len(messages)), pa.int64()),
    }
    columns |= {what: Consumed(messages).column(what) for what in PLAIN}
    return pa.RecordBatch.from_pydict(columns)


@given(st.lists(st.tuples(values, keys, headers), min_size=1, max_size=12))
def test_both_runtimes_decode_and_reject_the_same(given: list[tuple[Any, Any, Any]]) -> None:
    how = ValueFormat(longest=LONGEST)
    messages = [Message(value, i, key, more) for i, (value, key, more) in enumerate(given)]
    here = MessageRows(SCHEMA, how, NAMES).block(Consumed(messages))
    ((shared, there),) = MessageReader(SCHEMA, how, NAMES).blocks([spark_batch(messages)])
    assert there.data.equals(here.data)
    assert there.bad == here.bad
    assert len(there) + len(there.bad) == len(messages)
    assert shared == {NOW: 7, REACHED: len(messages) - 1}


def test_a_connection_is_the_same_for_both_clients(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("the certificate")
    given = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(tmp_path / "ca.pem"),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "me",
        "sasl.password": 'a"b\\c',
        "fetch.wait.max.ms": 20,
        "ssl.endpoint.identification.algorithm": "none",
    }
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    assert java_options(given, "here") == {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": "the certificate",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.fetch.max.wait.ms": "20",
        "kafka.ssl.endpoint.identification.algorithm": "",
        "kafka.sasl.jaas.config": rf'{login} username="me" password="a\"b\\c";',
    }


@pytest.mark.parametrize(
    "options", [{"queued.min.messages": 1}, {"sasl.password": "x", "sasl.mechanism": "GSSAPI"}]
)
def test_an_option_that_would_be_ignored_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(PipelineError, match="HR-F017"):
        java_options(options, "here")
