"""Topics and pipelines for the tests of the embedded runtime with a real broker."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from headrace.pipeline.load import parse
from headrace.runtimes.embedded.runner import Result, Runner

PATIENCE = 240.0
"""Seconds after which a test gives up; a busy machine may need many of them."""
BASE = 1_700_000_000_000_000
BY_PARTITION = """
    bounds = { disorder = "2 seconds" }
    sources = { column = "p", idle = "10 minutes" }
"""
PARTITION = {"schema": "ts BIGINT, k INT, p INT", "source": 'metadata = { partition = "p" }\nfollow = false'}


def new_topic(address: str, partitions: int = 3, **config: str) -> str:
    """A topic with a name of its own."""
    name = f"t{uuid.uuid4().hex[:10]}"
    client = AdminClient({"bootstrap.servers": address})
    for made in client.create_topics([NewTopic(name, partitions, 1, config=config)]).values():
        made.result(PATIENCE)
    return name


def add_partitions(address: str, topic: str, total: int) -> None:
    client = AdminClient({"bootstrap.servers": address})
    for made in client.create_partitions([NewPartitions(topic, total)]).values():
        made.result(PATIENCE)


def produce(address: str, topic: str, messages: Iterable[dict[str, Any]], **config: Any) -> None:
    """Messages as the keywords of `Producer.produce`."""
    producer = Producer({"bootstrap.servers": address, "message.max.bytes": 20_000_000, **config})
    for message in messages:
        while True:
            try:
                producer.produce(topic, **message)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(PATIENCE) == 0


def row(at: int, k: int, partition: int = 0, **more: Any) -> dict[str, Any]:
    """A message with a time in seconds after BASE, and a key."""
    return {"value": json.dumps({"ts": BASE + at * 1_000_000, "k": k}), "partition": partition, **more}


def read_committed(address: str, topic: str) -> list[Any]:
    """The messages that a `read_committed` reader sees, by partition and offset."""
    settings = {"bootstrap.servers": address, "group.id": "reader", "enable.auto.commit": False}
    settings |= {"enable.partition.eof": True, "isolation.level": "read_committed"}
    consumer = Consumer(settings)
    places = consumer.list_topics(topic, PATIENCE).topics[topic].partitions
    consumer.assign([TopicPartition(topic, place, OFFSET_BEGINNING) for place in places])
    found, open_, deadline = [], set(places), time.monotonic() + PATIENCE
    while open_:
        assert time.monotonic() < deadline, f"{len(found)} messages read"
        for message in consumer.consume(1000, timeout=0.5):
            if message.error() is not None:
                open_.discard(message.partition())
            else:
                found.append(message)
    consumer.close()
    return sorted(found, key=lambda m: (m.partition(), m.offset()))


def rows_in(address: str, topic: str) -> list[dict[str, Any]]:
    return [json.loads(message.value()) for message in read_committed(address, topic)]


def pipeline_text(address: str, topic: str, *, source: str = "", stream: str = "", **keys: str) -> str:
    """A pipeline file that counts rows by key in windows of ten seconds."""
    schema = keys.get("schema", "ts BIGINT, k INT")
    sql = """SELECT k, count(*) AS n, window_end AS until
             FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k"""
    return f"""
        [pipeline]
        name = "test"
        runtime = "embedded"
        checkpoint = "checkpoint"
        interval = {keys.get("interval", '"1 hour"')}

        [streams.s]
        schema = "{schema}"
        time = {{ column = "ts", unit = "us" }}
        {stream}

        [streams.s.source]
        type = "kafka"
        servers = "{address}"
        topic = "{topic}"
        {source}

        [[queries]]
        name = "q"
        sql = '''{keys.get("sql", sql)}'''
        sink = {keys.get("sink", '"out.jsonl"')}
        late = "late.jsonl"
        rejected = "rejected.jsonl"
    """


def run(text: str, root: Path, done: Callable[[Path], bool] | None = None, **more: Any) -> Result:
    """Run until the input ends, or until `done` is true of the folder."""
    runner = Runner(parse(text, root=root))
    deadline = time.monotonic() + PATIENCE

    def look(status: Any) -> None:
        assert time.monotonic() < deadline, status
        if done is not None and done(root):
            runner.stop()

    return runner.run(on_progress=look, every=0.05, **more)


def lines(root: Path, name: str) -> list[dict[str, Any]]:
    path = root / name
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines() if line.endswith("}")]


def counted(messages: Iterable[dict[str, Any]]) -> dict[tuple[int, int], int]:
    """The answer, in plain Python."""
    found: dict[tuple[int, int], int] = {}
    for message in messages:
        values = json.loads(message["value"])
        until = (values["ts"] // 10_000_000 + 1) * 10_000_000
        found[values["k"], until] = found.get((values["k"], until), 0) + 1
    return found


def answers(rows: Iterable[dict[str, Any]]) -> dict[tuple[int, int], int]:
    """Answers by key and window; none may be there twice."""
    found: dict[tuple[int, int], int] = {}
    for each in rows:
        assert (each["k"], each["until"]) not in found, f"twice: {each}"
        found[each["k"], each["until"]] = each["n"]
    return found


def counting(address: str, topic: str, sink: str, rows: int) -> str:
    """A pipeline file that counts a topic to its end, `rows` messages at once, with many commits."""
    keys = {**PARTITION, "source": f"{PARTITION['source']}\nblock_rows = {rows}"}
    return pipeline_text(address, topic, stream=BY_PARTITION, sink=sink, interval='"50 ms"', **keys)
