"""Messages of Kafka topics as a source: its position is an offset for each partition.

All partitions are assigned to this run; there is no consumer group that could take them away. A survey in
the background asks the brokers, from time to time, for the partitions and their ends. Once every partition
has been read up to the end that it had at an instant, everything that reached the topics by that instant has
been read: this is exact for idle partitions, backlogs and any kind of timestamps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from operator import methodcaller
from typing import Any, Final

import numpy as np

from headrace import tuning
from headrace.connectors.contract import Block, Position, Span
from headrace.connectors.kafka.client import REACH, SECONDS, Say, Settings, confluent_kafka, nothing, said
from headrace.connectors.kafka.messages import VALUE, Consumed, Lines, Message, MessageRows
from headrace.time.clock import seconds

Partition = tuple[str, int]
Offsets = dict[Partition, int]
ASKED: Final = 5.0
"""Seconds that one question of a survey may take."""
WAIT: Final = 0.1
PIECE: Final = 1024
"""Messages that are taken from the client at once if only their values are wanted: they stay in the cache."""
ERROR, TOPIC, PARTITION, OFFSET = map(methodcaller, ("error", "topic", "partition", "offset"))


@dataclass(frozen=True)
class Survey:
    """The partitions of the topics at an instant: their ends, and the beginnings of those that are new.

    The ends are those of all messages: what is behind an open transaction reached the topic, but cannot be
    read yet.
    """

    at: int
    ends: Offsets
    new: Offsets


@dataclass
class KafkaSource:
    """The messages of topics. `now` is the clock of the run, in ticks.

    Within a block, partitions are merged by the timestamps of messages, and messages of one partition stay in
    order. With `follow` false it ends where the topics ended at the first start.
    """

    settings: Settings
    topics: list[str]
    rows: MessageRows
    now: Callable[[], int]
    start: str | int = "earliest"
    follow: bool = True
    isolation: str = "committed"
    block_rows: int = 65_536
    say: Say = field(default=nothing)

    def __post_init__(self) -> None:
        self._library = confluent_kafka(self.settings.place)
        self._consumer: Any = None
        self._admin: Any = None
        self._pool: ThreadPoolExecutor | None = None
        self._coming: Future[Survey] | None = None
        self._target: Survey | None = None
        self._surveyed = 0.0
        self._complained = ""
        self._next: Offsets = {}
        """By partition, the offset after the last message that was returned."""
        self._seen: Offsets = {}
        """The same, past markers of transactions at the end, which are not messages."""
        self._ends: Offsets | None = None
        self._again: dict[Partition, tuple[int, int]] | None = None
        self._reached: int | None = None
        self._silent: Offsets = {}
        """By partition with messages of which none was read since the start, its end at the start."""
        self._held: list[Message] = []
        self._paused: set[Partition] = set()
        self._next_piece: list[Message] = []
        """Messages that `_lines` took from the client and left for the next block."""

    @property
    def bounded(self) -> bool:
        return not self.follow

    @property
    def ended(self) -> bool:
        """Whether all messages up to the ends were returned."""
        return self._ends is not None and not self._held and self._all_seen(self._ends)

    # --- reading

    def read(self) -> Block | None:
        self._open()
        if self._again is not None:
            return self._read_again(self._again)
        if not self._silent:
            self._look()
        if self.ended:
            return None
        wait = 0.0 if self.follow else WAIT
        alone = self.rows.takes_lines and len(self._next) == 1 and not (self._silent or self._held)
        if alone or self._next_piece:
            return self._lines(wait)
        messages = self._consume(wait)
        if self._silent or self._held:
            messages = self._first(messages)
        return self._block(messages) if messages else None

    def _lines(self, wait: float) -> Block | None:
        """A block of one partition whose values are lines, without keeping an object for each message.

        Other messages, and events, are a block of their own.
        """
        texts: list[bytes] = []
        offsets: list[Sequence[int]] = []
        rows, piece = 0, self._taken(wait)
        while piece and (text := self._text(piece)) is not None:
            texts.append(text)
            first, last = piece[0].offset(), piece[-1].offset()
            whole = last - first + 1 == len(piece)
            offsets.append(range(first, last + 1) if whole else list(map(OFFSET, piece)))
            rows += len(piece)
            piece = self._taken(0.0) if rows < self.block_rows else []
        if not texts:
            messages = self._sorted_out(piece)
            return self._block(messages) if messages else None
        self._next_piece = piece
        (place,), (first, after) = self._next, (offsets[0][0], offsets[-1][-1] + 1)
        self._note({place: (first, after)})
        return self.rows.block(Lines(*place, b"\n".join(texts), offsets), [[*place, first, after]])

    def _taken(self, wait: float) -> list[Message]:
        """Some messages: those that were left before, or others."""
        found, self._next_piece = self._next_piece, []
        if not found:
            found = self._consumer.consume(min(PIECE, self.block_rows), wait)
        return found

    def _text(self, messages: list[Message]) -> bytes | None:
        """The values as lines; None if one is none, if there are events, or messages behind the end."""
        if set(map(ERROR, messages)) - {None}:
            return None
        if self._ends is not None and messages[-1].offset() >= next(iter(self._ends.values()), 0):
            return None
        values = list(map(VALUE, messages))
        if None in values:
            return None
        text = b"\n".join(values)
        return text if self.rows.are_lines(text, len(values)) else None

    def _first(self, messages: list[Message]) -> list[Message]:
        """The first messages after a start, once there are some of every partition that has any.

        A partition that is far behind the others is then known before any of their messages is used. Those
        that were heard are paused meanwhile, so that little is held.
        """
        self._held += messages
        heard = self._ranges(messages).keys()
        ended = {place for place, end in self._silent.items() if self._seen.get(place, 0) >= end}
        self._silent = {place: end for place, end in self._silent.items() if place not in heard | ended}
        if self._silent:
            self._consumer.pause([self._library.TopicPartition(*place) for place in heard])
            self._paused |= heard
            return []
        self._consumer.resume([self._library.TopicPartition(*place) for place in sorted(self._paused)])
        self._paused = set()
        found, self._held = self._held, []
        return found

    def _consume(self, timeout: float) -> list[Message]:
        """The messages that are here now, without events; at most one block."""
        return self._sorted_out(self._consumer.consume(self.block_rows, timeout))

    def _sorted_out(self, messages: list[Message]) -> list[Message]:
        """The messages without events and without those behind the ends."""
        if set(map(ERROR, messages)) - {None}:
            for message in messages:
                if message.error() is not None:
                    self._hear(message)
            messages = [message for message in messages if message.error() is None]
        return messages if self._ends is None else self._before(messages, self._ends)

    def _before(self, messages: list[Message], ends: Offsets) -> list[Message]:
        """The messages before these ends. A partition with messages behind its end was read up to it."""
        ranges = self._ranges(messages)
        behind = {place for place, (_, after) in ranges.items() if after > ends.get(place, 0)}
        if not behind:
            return messages
        for place in behind:
            self._seen[place] = max(self._seen.get(place, 0), ends.get(place, 0))
        return [m for m in messages if m.offset() < ends.get((m.topic(), m.partition()), 0)]

    def _ranges(self, messages: list[Message]) -> dict[Partition, tuple[int, int]]:
        """By partition, the offset of its first message, and the one after its last."""
        if len(self._next) == 1 and messages:
            return {next(iter(self._next)): (messages[0].offset(), messages[-1].offset() + 1)}
        return _ranges(messages)

    def _hear(self, message: Message) -> None:
        """Take note of an event: the end of a partition, or an error."""
        error, codes = message.error(), self._library.KafkaError
        partition = (message.topic(), message.partition())
        if error.code() == codes._PARTITION_EOF:
            # Messages before it in the same batch count first; `_block` takes the maximum.
            self._seen[partition] = max(self._seen.get(partition, 0), message.offset())
        elif error.code() in (codes._AUTO_OFFSET_RESET, codes.OFFSET_OUT_OF_RANGE):
            raise self.settings.error(
                "HR-C031",
                f"topic {partition[0]}, partition {partition[1]}: messages from offset "
                f"{self._next.get(partition)} on are no longer in the topic",
                "the topic's retention removed them before they were read; to go on without them, use a new "
                "checkpoint and new outputs",
            )
        elif error.fatal() or error.code() in (
            codes.TOPIC_AUTHORIZATION_FAILED,
            codes.UNKNOWN_TOPIC_OR_PART,
            codes._UNKNOWN_TOPIC,
            codes._UNKNOWN_PARTITION,
        ):
            raise self.settings.error("HR-C030", f"the topic cannot be read: {said(error)}", REACH)
        else:
            self.say(f"Kafka: {said(error)}")

    def _block(self, messages: list[Message]) -> Block:
        """The rows of messages, merged by timestamp, with the offsets that they cover."""
        ranges = self._ranges(messages)
        span = [[*place, first, after] for place, (first, after) in sorted(ranges.items())]
        if len(ranges) > 1:
            messages = _merged(messages)
        self._note(ranges)
        return self.rows.block(Consumed(messages), span)

    def _note(self, ranges: Mapping[Partition, tuple[int, int]]) -> None:
        """Messages up to these offsets are returned."""
        for place, (_, after) in ranges.items():
            self._next[place] = after
            self._seen[place] = max(self._seen.get(place, 0), after)

    def _read_again(self, ranges: dict[Partition, tuple[int, int]]) -> Block | None:
        """The block that an earlier run read, from its offsets."""
        found, deadline = [], seconds() + SECONDS
        left = {place: stop for place, (_, stop) in ranges.items()}
        while left and seconds() < deadline:
            for message in self._consume(WAIT):
                place = (message.topic(), message.partition())
                if place in ranges and message.offset() < ranges[place][1]:
                    found.append(message)
                if place in left and message.offset() + 1 >= left[place]:
                    del left[place]
        if left:
            raise self.settings.error(
                "HR-C002", f"messages that were partly processed are missing: {_shown(left)}", REACH
            )
        self._again = None
        block = self._block(sorted(found, key=lambda m: (m.topic(), m.partition(), m.offset())))
        self._seen = dict(self._next)
        self._assign(self._next)
        return block

    # --- positions

    def position(self) -> Position:
        self._open()
        at: dict[str, Any] = {"offsets": _nested(self._next)}
        return at if self._ends is None else at | {"ends": _nested(self._ends)}

    def seek(self, position: Position, span: Span | None = None) -> None:
        self._connect()
        self._next = _flat(position["offsets"])
        self._seen = dict(self._next)
        self._ends = _flat(position["ends"]) if "ends" in position else None
        self._target = self._coming = self._reached = None
        self._again = None if span is None else {(t, p): (a, b) for t, p, a, b in span}
        known = set(self._asked(self._partitions))
        gone = sorted(set(self._next) - known)
        if gone:
            raise self.settings.error(
                "HR-C031", f"partitions that were read before no longer exist: {_places(gone)}", REACH
            )
        if self._ends is None:
            self._next |= self._firsts(known - set(self._next))
            self._seen = dict(self._next)
        latest = self._library.admin.OffsetSpec.latest()
        self._listen(self._ends or self._asked(lambda: self._offsets(self._next, latest)))

    def read_until(self) -> int | None:
        """The instant up to which everything that reached the topics has been returned; None: not known."""
        return self._reached

    # --- the brokers

    def _open(self) -> None:
        """Connect, and determine where the first start begins."""
        if self._consumer is not None:
            return
        self._connect()
        partitions = self._asked(self._partitions)
        self._next = self._asked(lambda: self._begin(partitions))
        self._seen = dict(self._next)
        ends = self._asked(lambda: self._offsets(partitions, self._library.admin.OffsetSpec.latest()))
        if not self.follow:
            self._ends = ends
        self._listen(ends)

    def _connect(self) -> None:
        if self._consumer is not None:
            return
        usual = {
            "group.id": "headrace",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": f"read_{self.isolation}",
            "queued.min.messages": 200_000,
            "queued.max.messages.kbytes": 131_072,
            "fetch.wait.max.ms": 50,
        }
        self._consumer = self.settings.client("Consumer", self.say, usual)
        self._admin = self.settings.client("AdminClient", self.say, {})

    def _asked(self, question: Callable[[], Any]) -> Any:
        """The answer to a question at the start, asked until there is one or patience ends."""
        deadline = seconds() + SECONDS
        while True:
            try:
                return question()
            except self._library.KafkaException as error:
                if seconds() < deadline and error.args[0].retriable():
                    time.sleep(WAIT)
                    continue
                message = f"Kafka does not answer: {said(error)}"
                raise self.settings.error("HR-C030", message, REACH) from None

    def _partitions(self) -> list[Partition]:
        """The partitions of the topics. The client that is asked for offsets next must know them."""
        found: list[Partition] = []
        for topic in self.topics:
            known = self._admin.list_topics(topic, ASKED).topics[topic]
            if known.error is not None:
                raise self._library.KafkaException(known.error)
            found += [(topic, partition) for partition in sorted(known.partitions)]
        return found

    def _begin(self, partitions: Iterable[Partition]) -> Offsets:
        """The offsets at which a first start begins."""
        spec = self._library.admin.OffsetSpec
        if self.start in ("earliest", "latest"):
            return self._offsets(partitions, getattr(spec, str(self.start))())
        found = self._offsets(partitions, spec.for_timestamp(int(self.start)))
        after = self._offsets(partitions, spec.latest())
        return {place: offset if offset >= 0 else after[place] for place, offset in found.items()}

    def _firsts(self, partitions: Iterable[Partition]) -> Offsets:
        """The first offsets of partitions that are new."""
        spec = self._library.admin.OffsetSpec
        return dict(self._asked(lambda: self._offsets(partitions, spec.earliest())))

    def _offsets(self, partitions: Iterable[Partition], spec: Any, isolation: str | None = None) -> Offsets:
        """Offsets of partitions as the brokers know them."""
        wanted = {self._library.TopicPartition(*place): spec for place in partitions}
        if not wanted:
            return {}
        level = getattr(self._library.IsolationLevel, f"READ_{(isolation or self.isolation).upper()}")
        asked = self._admin.list_offsets(wanted, isolation_level=level, request_timeout=ASKED)
        return {(p.topic, p.partition): future.result().offset for p, future in asked.items()}

    def _assign(self, offsets: Mapping[Partition, int]) -> None:
        """Read these partitions from these offsets."""
        places = [self._library.TopicPartition(*place, offset) for place, offset in sorted(offsets.items())]
        self._consumer.assign(places)

    def _listen(self, ends: Offsets) -> None:
        """Begin to read; if there are several partitions, those with messages are waited for (`_first`)."""
        self._silent = {place: end for place, end in ends.items() if end > self._next.get(place, end)}
        if len(self._next) == 1:
            self._silent = {}
        self._held, self._paused, self._next_piece = [], set(), []
        self._assign(self._next)

    # --- surveys

    def _look(self) -> None:
        """Take the result of a survey, add new partitions, and ask again when it is time."""
        if self._coming is not None and self._coming.done():
            survey, self._coming = self._coming, None
            try:
                self._target = survey.result()
            except self._library.KafkaException as error:
                self._complain(f"Kafka: the ends of the partitions are not known: {said(error)}")
            else:
                self._complained = ""
                self._add(self._target.new)
        if self._target is not None and self._all_seen(self._target.ends):
            self._reached, self._target = self._target.at, None
        due = seconds() - self._surveyed >= tuning.current.kafka_survey_seconds
        if self.follow and self._target is None and self._coming is None and due:
            self._surveyed = seconds()
            if self._pool is None:
                self._pool = ThreadPoolExecutor(1, "kafka-survey")
            self._coming = self._pool.submit(self._survey, self.now(), frozenset(self._next))

    def _complain(self, text: str) -> None:
        """Say why results may wait, once for each reason."""
        if text != self._complained:
            self._complained = text
            self.say(text)

    def _survey(self, now: int, known: frozenset[Partition]) -> Survey:
        """Ask for all partitions and their ends; `now` is an instant before the question."""
        spec, places = self._library.admin.OffsetSpec, self._partitions()
        ends = self._offsets(places, spec.latest(), "uncommitted")
        return Survey(now, ends, self._offsets(set(places) - known, spec.earliest()))

    def _add(self, new: Offsets) -> None:
        """Read partitions that were added to the topics, from their beginning."""
        if not new:
            return
        self._consumer.incremental_assign(
            [self._library.TopicPartition(*place, offset) for place, offset in sorted(new.items())]
        )
        self._next |= new
        self._seen |= new
        self.say(f"new partitions are read: {_places(sorted(new))}")

    def _all_seen(self, ends: Mapping[Partition, int]) -> bool:
        """Whether every partition was read up to these ends."""
        return all(self._seen.get(place, 0) >= end for place, end in ends.items())

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = self._admin = None


def _ranges(messages: list[Message]) -> dict[Partition, tuple[int, int]]:
    """The same for messages of any partitions."""
    partitions, topics = set(map(PARTITION, messages)), set(map(TOPIC, messages))
    if len(partitions) == len(topics) == 1:
        return {(topics.pop(), partitions.pop()): (messages[0].offset(), messages[-1].offset() + 1)}
    places = list(zip(map(TOPIC, messages), map(PARTITION, messages), strict=True))
    offsets = list(map(OFFSET, messages))
    firsts = dict(zip(reversed(places), reversed(offsets), strict=True))
    lasts = dict(zip(places, offsets, strict=True))
    return {place: (firsts[place], last + 1) for place, last in lasts.items()}


def _merged(messages: list[Message]) -> list[Message]:
    """Messages of several partitions by timestamp; those of one partition stay in the order of offsets."""
    stamps = np.fromiter((m.timestamp()[1] for m in messages), np.int64, len(messages))
    by: dict[Partition, list[int]] = {}
    for i, m in enumerate(messages):
        by.setdefault((m.topic(), m.partition()), []).append(i)
    places = np.empty(len(messages), np.int64)
    for number, place in enumerate(sorted(by)):
        rows = by[place]
        stamps[rows] = np.maximum.accumulate(stamps[rows])
        places[rows] = number
    return [messages[i] for i in np.lexsort((places, stamps)).tolist()]


def _nested(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Offsets as JSON."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def _flat(nested: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Offsets from JSON."""
    return {(topic, int(p)): offset for topic, each in nested.items() for p, offset in each.items()}


def _places(partitions: Iterable[Partition]) -> str:
    return ", ".join(f"{topic} {partition}" for topic, partition in partitions)


def _shown(left: Offsets) -> str:
    return ", ".join(f"{topic} {p} before offset {stop}" for (topic, p), stop in sorted(left.items()))
