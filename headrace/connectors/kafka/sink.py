"""A topic as a target: the messages of a commit are one transaction, which readers see whole or not at all.

With the messages, the transaction stores the number of the commit, as the offset of a consumer group that has
the name of the transactional id. After a crash, a new producer with that id first ends or aborts what the old
one left; then the stored number says whether the messages of the last commit are in the topic.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import pyarrow as pa

from headrace.connectors.kafka.client import REACH, SECONDS, Say, Settings, confluent_kafka, nothing, said
from headrace.connectors.kafka.encode import MessageFormat
from headrace.schema import Schema
from headrace.time.clock import seconds

PAUSE: Final = 0.5
"""Seconds between two attempts."""
CREATED: Final = 3.0
"""Seconds for which a topic that does not exist is asked for."""
PIECE: Final = 65_536
"""Rows that are encoded at once."""

_T = TypeVar("_T")


@dataclass
class KafkaTarget:
    """One message for each row, exactly once for readers with `isolation.level = read_committed`.

    `id` begins the transactional id; the name of the run follows. `patience`: for how many seconds brokers
    that are away are waited for.
    """

    settings: Settings
    topic: str
    how: MessageFormat
    id: str
    patience: float = 300.0
    say: Say = field(default=nothing)

    def __post_init__(self) -> None:
        self._run = ""
        self._producer: Any = None
        self._group: Any = None

    @property
    def place(self) -> str:
        return self.settings.place

    # --- the target

    def begin(self) -> None:
        return None

    def open(self, schema: Schema, run: str) -> None:
        if schema.names:  # none: the output is only brought to its last commit
            self.how.check(schema, self.place)
        if run != self._run:
            self.close()
        self._run = run
        self._patiently(self._check_topic)

    def last(self, run: str) -> int | None:
        """The number in Kafka; None if there is none: nothing was committed, or it was forgotten since."""
        return self._patiently(self._stored)

    def apply(self, run: str, number: int, rows: pa.Table) -> None:
        tried: list[bool] = []

        def do() -> None:
            if tried and (self._stored() or 0) >= number:  # the answer to the last attempt was lost
                return
            tried.append(True)
            self._send(run, number, rows)

        self._patiently(do)

    def close(self) -> None:
        """Forget the producer; what it had not committed is aborted by the next one."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
        group, self._group = self._group, None
        if group is not None:
            group.close()

    # --- transactions

    def _send(self, run: str, number: int, rows: pa.Table) -> None:
        """Send messages in one transaction, which stores the number."""
        producer, library = self._producer, confluent_kafka(self.place)
        producer.begin_transaction()
        first = 0
        for batch in rows.to_batches(max_chunksize=PIECE):
            self._produce(*self.how.messages(batch, f"{run}-{number}", first))
            first += batch.num_rows
        place = library.TopicPartition(self.topic, 0, number)
        producer.send_offsets_to_transaction([place], self._group.consumer_group_metadata(), SECONDS)
        producer.commit_transaction(SECONDS)

    def _produce(self, keys: list[bytes | None], values: list[bytes | None]) -> None:
        produce, topic = self._producer.produce, self.topic
        for key, value in zip(keys, values, strict=True):
            while True:
                try:
                    produce(topic, value, key)
                    break
                except BufferError:  # as many messages are on their way as may be
                    self._producer.poll(0.1)

    def _check_topic(self) -> None:
        """Wait a moment for a topic that brokers create when it is asked for; an error if they do not."""
        codes, until = confluent_kafka(self.place).KafkaError, seconds() + CREATED
        while True:
            found = self._producer.list_topics(self.topic, SECONDS).topics[self.topic].error
            if found is None:
                return
            missing = found.code() in (codes.UNKNOWN_TOPIC_OR_PART, codes._UNKNOWN_TOPIC)
            if not missing or seconds() > until:
                raise confluent_kafka(self.place).KafkaException(found)
            time.sleep(PAUSE)

    def _stored(self) -> int | None:
        library = confluent_kafka(self.place)
        (found,) = self._group.committed([library.TopicPartition(self.topic, 0)], SECONDS)
        if found.error is not None:
            raise library.KafkaException(found.error)
        return found.offset if found.offset >= 0 else None

    def _connect(self) -> None:
        """A producer after whose start no transaction of an earlier one is open."""
        if self._producer is not None:
            return
        id = f"{self.id}-{self._run}"
        usual = {
            "transactional.id": id,
            "linger.ms": 5,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 262_144,
        }
        producer = self.settings.client("Producer", self.say, usual)
        producer.init_transactions(SECONDS)
        group = {"group.id": id, "enable.auto.commit": False}
        self._group = self.settings.client("Consumer", self.say, group)
        self._producer = producer

    def _patiently(self, do: Callable[[], _T]) -> _T:
        """Do something with a producer; after a failure, with a new one, until it works or patience ends."""
        library = confluent_kafka(self.place)
        deadline = seconds() + self.patience
        while True:
            try:
                self._connect()
                return do()
            except library.KafkaException as error:
                self.close()
                self._give_up(error, seconds() >= deadline)
                self.say(f"{self.place}: Kafka is tried again: {said(error)}")
            time.sleep(PAUSE)

    def _give_up(self, error: Any, late: bool) -> None:
        """Raise an error if trying again is of no use."""
        code, codes = error.args[0].code(), confluent_kafka(self.place).KafkaError
        if code in (codes._FENCED, codes.PRODUCER_FENCED, codes.INVALID_PRODUCER_EPOCH):
            raise self.settings.error(
                "HR-C033",
                f"another producer uses the transactional id {self.id}-{self._run}",
                "stop the other run: it has a copy of this checkpoint; if there is none, a commit took longer"
                " than transaction.timeout.ms, an option that can be raised",
            ) from None
        if late or code in _hopeless(codes):
            raise self.settings.error(
                "HR-C012", f"the topic {self.topic!r} cannot be written: {said(error)}", REACH
            ) from None


def _hopeless(codes: Any) -> set[int]:
    """Errors that do not go away."""
    return {
        codes.MSG_SIZE_TOO_LARGE,
        codes.TOPIC_AUTHORIZATION_FAILED,
        codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        codes.GROUP_AUTHORIZATION_FAILED,
        codes.CLUSTER_AUTHORIZATION_FAILED,
        codes._AUTHENTICATION,
        codes._UNKNOWN_TOPIC,
        codes.UNKNOWN_TOPIC_OR_PART,
        codes.TOPIC_EXCEPTION,
    }
