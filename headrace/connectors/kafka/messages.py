"""Messages as rows: the columns of their values, and those of keys, headers, topics, partitions, offsets."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from operator import methodcaller
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.types as pt

from headrace.connectors.contract import Bad, Block, Code, shown
from headrace.connectors.kafka.values import DECODERS, Decoder, JsonValues, ValueFormat, decoded
from headrace.errors import ConnectorError
from headrace.schema import DataType, Schema

Message = Any
"""A message of confluent-kafka."""
VALUE: Final = methodcaller("value")


class Messages(Protocol):
    """Messages as columns, however a runtime gets them."""

    def __len__(self) -> int: ...

    def values(self) -> Sequence[bytes | None]: ...

    def lengths(self) -> Sequence[int] | None:
        """How long the values are, if those that are too long may have been cut."""
        ...

    def column(self, what: str) -> pa.Array:
        """What messages have besides their values, in the types of `PLAIN`."""
        ...

    def take(self, rows: Sequence[int]) -> Messages: ...


@dataclass(frozen=True)
class Consumed:
    """Messages of confluent-kafka."""

    messages: Sequence[Message]

    def __len__(self) -> int:
        return len(self.messages)

    def values(self) -> Sequence[bytes | None]:
        return list(map(VALUE, self.messages))

    def lengths(self) -> None:
        return None

    def column(self, what: str) -> pa.Array:
        return pa.array([CONSUMED[what](message) for message in self.messages], PLAIN[what])

    def take(self, rows: Sequence[int]) -> Consumed:
        return Consumed([self.messages[i] for i in rows])


@dataclass(frozen=True)
class Lines:
    """Messages of one partition as lines of their values, with their offsets in pieces."""

    topic: str
    partition: int
    text: bytes
    offsets: Sequence[Sequence[int]]

    def __len__(self) -> int:
        return sum(map(len, self.offsets))

    def values(self) -> Sequence[bytes | None]:
        return self.text.split(b"\n")

    def lengths(self) -> None:
        return None

    def column(self, what: str) -> pa.Array:
        same = {"topic": self.topic, "partition": self.partition}
        found = repeat(same[what], len(self)) if what in same else chain.from_iterable(self.offsets)
        return pa.array(list(found), PLAIN[what])

    def take(self, rows: Sequence[int]) -> Lines:
        values, offsets = self.text.split(b"\n"), list(chain.from_iterable(self.offsets))
        taken = b"\n".join(values[i] for i in rows)
        return Lines(self.topic, self.partition, taken, [[offsets[i] for i in rows]])


@dataclass
class MessageRows:
    """Turns messages into rows of `schema`. `metadata`: by field of a message, the name of its column."""

    schema: Schema
    how: ValueFormat
    metadata: Mapping[str, str] = field(default_factory=dict)
    place: str = ""

    def __post_init__(self) -> None:
        own = set(self.metadata.values())
        self._values = pa.schema([f for f in self.schema if f.name not in own])
        self._check()
        self._decoder: Decoder = DECODERS[self.how.name](self._values, self.how)

    @property
    def takes_lines(self) -> bool:
        """Whether values that are lines are all that is needed of messages."""
        return not self.metadata and isinstance(self._decoder, JsonValues)

    def are_lines(self, text: bytes, count: int) -> bool:
        """Whether a text of so many values is as many lines, none of which is too long."""
        return len(text) <= self.how.longest and text.count(b"\n") == count - 1

    def _check(self) -> None:
        """The columns of `metadata` must exist and have fitting types; a raw value is one column."""
        for what, name in self.metadata.items():
            if name not in self.schema.names:
                raise self._wrong(f"the stream has no column {name!r}, which metadata names for the {what}")
            of = self.schema.field(name).type
            if not any(fits(of) for fits in TYPES[what]):
                raise self._wrong(f"the column {name!r} is {of}, which a message's {what} is not")
        texts = (pt.is_string, pt.is_large_string, pt.is_binary, pt.is_large_binary)
        if self.how.name == "raw" and (
            len(self._values) != 1 or not any(fits(self._values.field(0).type) for fits in texts)
        ):
            raise self._wrong("the format raw needs exactly one column, BINARY or STRING, for the value")
        if self.how.name == "avro" and self.how.avro_schema is None:
            raise self._wrong("the format avro needs avro_schema, a file with the schema")

    def _wrong(self, message: str) -> ConnectorError:
        return ConnectorError(
            "HR-C032", message, place=self.place, hint="compare schema, format and metadata of the stream"
        )

    def block(self, messages: Messages, span: Any = None) -> Block:
        """The rows of messages, and the bad ones with their topics, partitions and offsets."""
        if isinstance(messages, Lines) and isinstance(self._decoder, JsonValues):
            block = self._decoder.lines(messages.text)
            if not block.bad and len(block) == len(messages):
                return Block(block.data, span=span)
        found = decoded(self._decoder, messages.values(), self._values, self.how.longest, messages.lengths())
        good = messages if found.good is None else messages.take(found.good)
        bad = [] if not found.bad else _placed(messages, found.bad)
        data = found.data
        if self.metadata:
            data, wrong = self._with_metadata(data, good)
            bad += wrong
        return Block(data, tuple(bad), span=span)

    def _with_metadata(self, data: pa.RecordBatch, messages: Messages) -> tuple[pa.RecordBatch, list[Bad]]:
        """The rows with the columns of `metadata`; a key that is not text makes a message bad."""
        bad: list[Bad] = []
        columns = {name: messages.column(what) for what, name in self.metadata.items()}
        if (key := self.metadata.get("key")) and pt.is_string(self.schema.field(key).type):
            wrong = _not_text(columns[key])
            if wrong:
                values = messages.values()
                bad = _placed(messages, [(i, _no_text(values[i])) for i in wrong])
                kept = pa.array(sorted(set(range(len(messages))) - set(wrong)), pa.int64())
                data = data.take(kept)
                columns = {name: column.take(kept) for name, column in columns.items()}
        fields = {name: what for what, name in self.metadata.items()}
        made = [
            COLUMNS[fields[f.name]](columns[f.name], f.type)
            if f.name in fields
            else data.column(data.schema.get_field_index(f.name))
            for f in self.schema
        ]
        return pa.RecordBatch.from_arrays(made, schema=self.schema), bad


def _placed(messages: Messages, bad: Sequence[tuple[int, Bad]]) -> list[Bad]:
    """Bad messages with their places in the reasons."""
    rows = messages.take([i for i, _ in bad])
    places = zip(*(rows.column(what).to_pylist() for what in ("topic", "partition", "offset")), strict=True)
    return [
        Bad(each.code, f"{each.reason} (topic {topic}, partition {partition}, offset {offset})", each.raw)
        for (_, each), (topic, partition, offset) in zip(bad, places, strict=True)
    ]


def _not_text(keys: pa.Array) -> list[int]:
    """The keys that are not UTF-8."""
    try:
        keys.cast(pa.string())
    except pa.ArrowInvalid:
        return [i for i, key in enumerate(keys.to_pylist()) if not _is_text(key)]
    return []


def _is_text(key: bytes | None) -> bool:
    try:
        (key or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def _no_text(value: bytes | None) -> Bad:
    return Bad(Code.ENCODING, "the key is not valid UTF-8", shown(value or b""))


def _timestamps(found: pa.Array, of: DataType) -> pa.Array:
    """The timestamps, in the type of the column; as a number, they are milliseconds."""
    if pt.is_integer(of):
        return found.cast(of)
    zone = of.tz if pt.is_timestamp(of) else None
    return found.cast(pa.timestamp("ms", zone)).cast(of)


def _headers(found: pa.Array, of: DataType) -> pa.Array:
    """The headers of each message as one JSON object; of several with one name, the last."""
    made = (
        json.dumps({each["key"]: _text(each["value"]) for each in headers}) if headers else None
        for headers in found.to_pylist()
    )
    return pa.array(made, of)


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "backslashreplace")


def _header(name: str, value: bytes | str | None) -> dict[str, Any]:
    return {"key": name, "value": value.encode() if isinstance(value, str) else value}


PLAIN: Final[dict[str, DataType]] = {
    "key": pa.binary(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.int64(),
}
"""What messages have besides their values; timestamps are milliseconds."""
CONSUMED: Final[dict[str, Callable[[Message], Any]]] = {
    "key": lambda message: message.key(),
    "headers": lambda message: [_header(*each) for each in message.headers() or ()],
    "topic": lambda message: message.topic(),
    "partition": lambda message: message.partition(),
    "offset": lambda message: message.offset(),
    "timestamp": lambda message: message.timestamp()[1],
}
COLUMNS: Final[dict[str, Callable[[pa.Array, DataType], pa.Array]]] = {
    **dict.fromkeys(PLAIN, lambda found, of: found.cast(of)),
    "headers": _headers,
    "timestamp": _timestamps,
}
_WHOLE: Final = (pt.is_int32, pt.is_int64)
TYPES: Final[dict[str, tuple[Callable[[DataType], bool], ...]]] = {
    "key": (pt.is_string, pt.is_binary),
    "headers": (pt.is_string,),
    "topic": (pt.is_string,),
    "partition": _WHOLE,
    "offset": (pt.is_int64,),
    "timestamp": (pt.is_timestamp, pt.is_int64),
}
