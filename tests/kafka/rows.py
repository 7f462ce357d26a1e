"""Rows of two topics: produced as they happen, and read back as they are there."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

WINDOW = 10
OLDEST = 4.0
"""A row happened at most so many seconds before it is produced."""
KEYS = 5
PARTITIONS = 3
SPEAKING = (0, 2)
"""The partitions that get rows; the others are silent."""
UNDELIVERED_AFTER = 500
"""Milliseconds after which a row that the broker has not taken is given up: it never happened."""
PATIENCE = 120

# By default a row's timestamp is when its producer made it; the broker's own instant is the other way.
TOPICS = {"bids": "CreateTime", "asks": "LogAppendTime"}

Counts = Counter[tuple[int, int]]
"""Rows by key and end of their window, in seconds."""


@dataclass(frozen=True)
class Row:
    """A row as the broker has it: its time and the broker's timestamp in microseconds."""

    topic: str
    at: int
    key: int
    reached: int


def make_topics(address: str) -> None:
    topics = [
        NewTopic(name, PARTITIONS, 1, config={"message.timestamp.type": kind})
        for name, kind in TOPICS.items()
    ]
    client = AdminClient({"bootstrap.servers": address})
    for made in client.create_topics(topics).values():
        made.result(PATIENCE)


@dataclass
class Feed:
    """Makes rows all the time, whether the broker takes them or not; `silent` topics get none."""

    address: str
    per_second: int = 40
    silent: set[str] = field(default_factory=set)
    oldest: float = 0.0
    """The greatest age of a row in seconds when the broker had it, as far as it said so."""
    given_up: int = 0

    def _run(self, ended: threading.Event) -> None:
        rng = random.Random(15)
        producer = Producer(
            {
                "bootstrap.servers": self.address,
                "acks": "all",
                "linger.ms": 5,
                "message.timeout.ms": UNDELIVERED_AFTER,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        while not ended.wait(1 / self.per_second):
            for topic in TOPICS.keys() - self.silent:
                self._put(producer, topic, rng)
            producer.poll(0)
        producer.flush()

    def _put(self, producer: Producer, topic: str, rng: random.Random) -> None:
        age = rng.uniform(0, OLDEST)
        at = datetime.fromtimestamp(time.time() - age, UTC).isoformat(timespec="microseconds")
        value = json.dumps({"ts": at, "k": rng.randrange(KEYS)})
        producer.produce(
            topic,
            value,
            partition=rng.choice(SPEAKING),
            on_delivery=lambda error, message: self._delivered(error, message, age),
        )

    def _delivered(self, error: object, message: Any, age: float) -> None:
        if error is not None:
            self.given_up += 1
        else:
            self.oldest = max(self.oldest, age + message.latency())


@contextmanager
def feeding(feed: Feed) -> Iterator[Feed]:
    """Rows are made until the end of the block."""
    ended = threading.Event()
    thread = threading.Thread(target=feed._run, args=(ended,))
    thread.start()
    try:
        yield feed
    finally:
        ended.set()
        thread.join(PATIENCE)


def read_back(address: str) -> list[Row]:
    """All rows that the broker has: the truth, whatever the producer was told."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "truth", "enable.auto.commit": False})
    places = [TopicPartition(t, p, OFFSET_BEGINNING) for t in TOPICS for p in range(PARTITIONS)]
    left = {}
    for place in places:
        low, high = consumer.get_watermark_offsets(place, timeout=PATIENCE)
        if high > low:
            left[place.topic, place.partition] = high
    consumer.assign(places)
    rows = []
    deadline = time.monotonic() + PATIENCE
    while left:
        assert time.monotonic() < deadline, f"{len(rows)} rows read back; left: {left}"
        for message in consumer.consume(1000, timeout=1):
            assert message.error() is None, message.error()
            place = message.topic(), message.partition()
            if place not in left:  # it came after the end that was asked for
                continue
            rows.append(_row(message))
            if message.offset() + 1 >= left[place]:
                del left[place]
    consumer.close()
    return rows


def _row(message: Any) -> Row:
    found = json.loads(message.value())
    at = round(datetime.fromisoformat(found["ts"]).timestamp() * 1_000_000)
    return Row(message.topic(), at, found["k"], message.timestamp()[1] * 1000)


def counted(rows: list[Row]) -> Counts:
    """The answer, in plain Python."""
    size = WINDOW * 1_000_000
    return Counter((row.key, (row.at // size + 1) * WINDOW) for row in rows)
