"""`headrace.spark.kafka`: topics that Spark reads, and that tasks decode while they partition the rows.

Offsets, rate limits and exactly-once bookkeeping are Spark's. Values are decoded by the readers of the
embedded runtime, so that both runtimes have the same rows and reject the same messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace.connectors.kafka.messages import MessageRows
from headrace.connectors.kafka.values import SHOWN, ValueFormat, avro_text
from headrace.errors import PipelineError, SparkError
from headrace.runtimes.spark.driver.reading import ALL
from headrace.runtimes.spark.driver.source_names import reader as named_reader
from headrace.runtimes.spark.driver.stream_rows import clock_ticks
from headrace.runtimes.spark.driver.task_streams import TaskStream
from headrace.runtimes.spark.versions import arrow_schema
from headrace.runtimes.spark.worker.kafka_rows import LENGTH, MessageReader
from headrace.runtimes.spark.worker.partitioner import NOW, REACHED, StreamSpec
from headrace.schema import Schema

ALWAYS: Final = ("topic", "partition", "offset")
"""What rejected messages are named by."""
MADE: Final[dict[str, Callable[[], Column]]] = {"timestamp": lambda: F.unix_millis("timestamp")}
"""Columns that do not leave Spark as its connector returns them."""


@dataclass(frozen=True)
class KafkaStream(TaskStream):
    """The messages behind a DataFrame, and how they are decoded."""

    how: ValueFormat = field(default_factory=ValueFormat)
    metadata: Mapping[str, str] = field(default_factory=dict)

    def inputs(self, now: Column | None = None, reached: Column | None = None) -> DataFrame:
        value, length = F.col("value"), F.coalesce(F.length("value"), F.lit(0))
        cut = F.when(length > self.how.longest, F.substring(value, 1, SHOWN)).otherwise(value)
        read = dict.fromkeys([*ALWAYS, *self.metadata])
        columns = [MADE[name]().alias(name) if name in MADE else F.col(name) for name in read]
        shared = {NOW: now, REACHED: reached}
        extra = [each.alias(name) for name, each in shared.items() if each is not None]
        return self.listed.select(cut.alias("value"), length.alias(LENGTH), *columns, *extra)

    def reached(self, stream: StreamSpec, per_second: int | None) -> Column | None:
        """A message reached its topic at its timestamp, if a rate limit makes that matter."""
        return None if stream.takes == ALL else clock_ticks(F.unix_micros("timestamp"), per_second)


def kafka(
    spark: SparkSession,
    servers: str,
    topic: str | list[str],
    schema: Schema | T.StructType | str,
    *,
    format: str = "json",
    start: str | int = "earliest",
    metadata: Mapping[str, str] | None = None,
    missing: str = "error",
    delimiter: str = ",",
    avro_schema: str | Path | None = None,
    avro_prefix: bool = False,
    isolation: str = "committed",
    max_message: int = 8 << 20,
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> DataFrame:
    """A stream of Kafka messages, decoded in the tasks that partition and pre-aggregate their rows.

        bids = headrace.spark.kafka(spark, "broker:9092", "bids", "item string, price int, at timestamp")
        headrace.spark.apply(query, {"bids": bids}, options)

    `schema` is an Arrow schema, a schema of Spark or its DDL. The keywords are the keys of a pipeline file
    (`docs/connectors/kafka.md`); a `start` that is a number is milliseconds. `options` are those of Spark's
    Kafka source: `{"maxOffsetsPerTrigger": 100_000, "kafka.security.protocol": "SSL"}`. `name` names the
    source in a checkpoint.

    Messages that are not a row have the reason, with topic, partition and offset, in the column
    `__headrace_bad`; Headrace rejects them.
    """
    columns = schema if isinstance(schema, pa.Schema) else _arrow(schema)
    avro = None if avro_schema is None else avro_text(Path(avro_schema))
    how = ValueFormat(format, missing, delimiter, avro, avro_prefix, max_message)
    more = {str(key): value for key, value in (options or {}).items()}
    loaded = load(spark, servers, [topic] if isinstance(topic, str) else topic, name, start, isolation, more)
    return messages(loaded, columns, how, metadata or {}).frame()


def messages(
    loaded: DataFrame,
    schema: Schema,
    how: ValueFormat,
    metadata: Mapping[str, str],
    place: str = "",
    **timing: Any,
) -> KafkaStream:
    """The stream of a topic; an error if the columns do not fit."""
    MessageRows(schema, how, metadata, place)
    reader = MessageReader(schema, how, dict(metadata), place)
    return KafkaStream(loaded, reader, how=how, metadata=dict(metadata), **timing)


def load(
    spark: SparkSession,
    servers: str,
    topics: list[str],
    name: str | None,
    start: str | int,
    isolation: str,
    options: Mapping[str, Any],
) -> DataFrame:
    """The messages as Spark's connector returns them."""
    usual: dict[str, Any] = {
        "kafka.bootstrap.servers": servers,
        "subscribe": ",".join(topics),
        "kafka.isolation.level": f"read_{isolation}",
        "includeHeaders": "true",
        **_begin(start),
    }
    plain = spark.readStream if name is None else named_reader(spark, name)
    try:
        return plain.format("kafka").options(**{**usual, **options}).load()
    except AnalysisException as error:
        if "kafka" not in str(error).lower() or "find data source" not in str(error).lower():
            raise
        raise SparkError(
            "HR-SP72",
            "this session does not have Spark's Kafka connector",
            place=servers,
            hint="set jars or packages in [spark], or spark.jars or spark.jars.packages of the session: "
            "org.apache.spark:spark-sql-kafka-0-10_2.13 in the version of Spark",
        ) from None


def _begin(start: str | int) -> dict[str, Any]:
    """Where the first start begins: `earliest`, `latest`, offsets as JSON, or milliseconds."""
    if isinstance(start, str):
        return {"startingOffsets": start}
    return {"startingTimestamp": start, "startingOffsetsByTimestampStrategy": "latest"}


def _arrow(schema: T.StructType | str) -> Schema:
    columns: Any = T.StructType.fromDDL(schema) if isinstance(schema, str) else schema
    return pa.schema([pa.field(f.name, f.type) for f in arrow_schema(columns)])


# --- options of librdkafka as options of the Java client ---------------------------------------------------

Named = Mapping[str, Any]
SAME: Final = frozenset(
    {
        "client.id",
        "client.rack",
        "enable.metrics.push",
        "fetch.max.bytes",
        "fetch.min.bytes",
        "max.partition.fetch.bytes",
        "metadata.max.age.ms",
        "reconnect.backoff.max.ms",
        "sasl.kerberos.service.name",
        "sasl.mechanism",
        "security.protocol",
        "socket.connection.setup.timeout.ms",
    }
)
"""Options that have the same name and meaning."""
RENAMED: Final = {
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.key.password": "ssl.key.password",
}


def _file(name: str) -> Callable[[Any], dict[str, Any]]:
    """The content of a PEM file as an option: executors need no file."""
    return lambda path: {name: Path(path).read_text("utf-8")}


TRUSTED: Final = {"ssl.truststore.type": "PEM"}
OWN: Final = {"ssl.keystore.type": "PEM"}
MADE_OF: Final[dict[str, tuple[Callable[[Any], dict[str, Any]], dict[str, Any]]]] = {
    "ssl.ca.location": (_file("ssl.truststore.certificates"), TRUSTED),
    "ssl.ca.pem": (lambda text: {"ssl.truststore.certificates": text}, TRUSTED),
    "ssl.certificate.location": (_file("ssl.keystore.certificate.chain"), OWN),
    "ssl.certificate.pem": (lambda text: {"ssl.keystore.certificate.chain": text}, OWN),
    "ssl.key.location": (_file("ssl.keystore.key"), OWN),
    "ssl.key.pem": (lambda text: {"ssl.keystore.key": text}, OWN),
    "ssl.endpoint.identification.algorithm": (
        lambda how: {"ssl.endpoint.identification.algorithm": "" if how == "none" else how},
        {},
    ),
}
LOGINS: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
USER: Final = frozenset(("sasl.username", "sasl.password"))


def java_options(options: Named, place: str) -> dict[str, Any]:
    """Options of librdkafka as Spark's Kafka source and sink take them, with the prefix `kafka.`."""
    made: dict[str, Any] = {}
    for name, value in options.items():
        if name in SAME or name in RENAMED:
            made[RENAMED.get(name, name)] = value
        elif name in MADE_OF:
            of, more = MADE_OF[name]
            made |= of(value) | more
        elif name not in USER:
            raise PipelineError(
                "HR-F017",
                f"the option {name!r} has no counterpart in the Kafka client of Spark",
                place=f"{place}.options",
                hint="leave it out, and write an option of Spark's Kafka source in [spark.sources.NAME], "
                'such as "kafka.request.timeout.ms" = 60000',
            )
    if USER & options.keys():
        made["sasl.jaas.config"] = _login(options, place)
    return {f"kafka.{name}": _text(value) for name, value in made.items()}


def _login(options: Named, place: str) -> str:
    """The user and the password, as the Java client takes them."""
    mechanism = str(options.get("sasl.mechanism", options.get("sasl.mechanisms", "")))
    if mechanism not in LOGINS:
        raise PipelineError(
            "HR-F017",
            f"on Spark a user and a password need sasl.mechanism, one of {', '.join(LOGINS)}",
            place=f"{place}.options",
            hint="set sasl.mechanism",
        )
    user, password = (_quoted(str(options.get(name, ""))) for name in ("sasl.username", "sasl.password"))
    return f"{LOGINS[mechanism]} required username={user} password={password};"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _text(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else str(value)
