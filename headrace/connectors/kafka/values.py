"""The values of messages as rows: a block is decoded at once; only a block with bad values is taken apart."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa

from headrace.connectors.conform import fit
from headrace.connectors.contract import Bad, Block, Code, empty, shown
from headrace.connectors.csv_lines import CsvLines
from headrace.connectors.json_lines import JsonLines
from headrace.errors import ConnectorError
from headrace.schema import Schema

Values = Sequence[bytes]


@dataclass(frozen=True)
class ValueFormat:
    """How values are written.

    `avro_schema` is the schema that they were written with, as JSON; with `avro_prefix`, values begin
    with the number of a schema, which is skipped.
    """

    name: str = "json"
    missing: str = "error"
    delimiter: str = ","
    avro_schema: str | None = None
    avro_prefix: bool = False
    longest: int = 8 << 20


class Decoder(Protocol):
    """Decodes values: a row for each, in order, unless some are bad."""

    def decode(self, values: Values) -> Block: ...


class JsonValues:
    """One JSON object in each value."""

    def __init__(self, schema: Schema, how: ValueFormat) -> None:
        self._lines = JsonLines(schema, missing=how.missing)

    def decode(self, values: Values) -> Block:
        joined = b"\n".join(values)
        if joined.count(b"\n") != len(values) - 1:
            joined = b"\n".join(map(_one_line, values))
        return self._lines.decode(joined)

    def lines(self, text: bytes) -> Block:
        """The same for values that are lines already."""
        return self._lines.decode(text)


def _one_line(value: bytes) -> bytes:
    """A JSON text on one line. Line ends in valid JSON are whitespace, because strings cannot have any."""
    value = value.strip()
    if b"\n" not in value:
        return value
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return value.replace(b"\n", b"\0")  # not valid with or without line ends
    return value.replace(b"\n", b" ")


class CsvValues:
    """One line of values in each message, in the order of the columns."""

    def __init__(self, schema: Schema, how: ValueFormat) -> None:
        self._lines = CsvLines(schema, schema.names, delimiter=how.delimiter)
        self._schema = schema

    def decode(self, values: Values) -> Block:
        lines = [value.rstrip(b"\r\n") for value in values]
        joined = b"\n".join(lines)
        if joined.count(b"\n") != len(lines) - 1 and len(lines) == 1:
            bad = Bad(Code.SYNTAX, "the value has several lines", shown(lines[0]))
            return Block(empty(self._schema), (bad,))
        return self._lines.decode(joined)


class RawValues:
    """The value as it is, in the only column: BINARY or STRING."""

    def __init__(self, schema: Schema, how: ValueFormat) -> None:
        self._schema = schema

    def decode(self, values: Values) -> Block:
        found = pa.array(values, pa.large_binary())
        try:
            column = found.cast(self._schema.field(0).type)
        except pa.ArrowInvalid:
            bad = tuple(Bad(Code.ENCODING, "the value is not valid UTF-8", shown(value)) for value in values)
            return Block(empty(self._schema), bad)
        return Block(pa.RecordBatch.from_arrays([column], schema=self._schema))


def avro_text(file: Path) -> str:
    """The schema in a file."""
    try:
        return file.read_text("utf-8")
    except (OSError, ValueError) as error:
        raise _unreadable(str(error), str(file)) from None


def _unreadable(why: str, place: str = "") -> ConnectorError:
    return ConnectorError(
        "HR-C032",
        f"the Avro schema cannot be read: {why}",
        place=place,
        hint="avro_schema is a file with the schema as JSON",
    )


class AvroValues:
    """One Avro record in each value, without a container."""

    def __init__(self, schema: Schema, how: ValueFormat) -> None:
        try:
            import fastavro
        except ImportError:
            raise ConnectorError(
                "HR-C021", "fastavro is not installed", hint="pip install 'headrace[kafka]'"
            ) from None
        assert how.avro_schema is not None
        try:
            self._written = fastavro.parse_schema(json.loads(how.avro_schema))
        except (ValueError, fastavro.schema.SchemaParseException, KeyError, TypeError) as error:
            raise _unreadable(str(error)) from None
        self._read: Callable[..., Any] = fastavro.schemaless_reader
        self._schema, self._strict = schema, how.missing == "error"
        self._skipped = PREFIX if how.avro_prefix else 0

    def decode(self, values: Values) -> Block:
        rows, bad = [], []
        for value in values:
            row = self._row(value)
            if isinstance(row, Bad):
                bad.append(row)
            else:
                rows.append(row)
        try:
            columns = [pa.array([row.get(name) for row in rows]) for name in self._schema.names]
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            return Block(empty(self._schema), tuple(Bad(Code.TYPE, str(error), shown(v)) for v in values))
        block = fit(pa.RecordBatch.from_arrays(columns, self._schema.names), self._schema)
        return Block(block.data, (*bad, *block.bad))

    def _row(self, value: bytes) -> dict[str, Any] | Bad:
        """The record in a value, or why there is none."""
        data = value[self._skipped :]
        stream = io.BytesIO(data)
        try:
            row = self._read(stream, self._written)
        except Exception as error:  # any bytes may be there, and the reader documents no errors
            return Bad(Code.SYNTAX, f"the value does not have the Avro schema: {error!r}", shown(value))
        if stream.tell() != len(data):
            return Bad(Code.SYNTAX, "there are bytes after the Avro record", shown(value))
        if not isinstance(row, dict):
            return Bad(Code.SYNTAX, "the Avro value is not a record", shown(value))
        missing = next((name for name in self._schema.names if name not in row), None)
        if missing is not None and self._strict:
            return Bad(Code.COLUMNS, f"the column {missing!r} is missing", shown(value))
        return row


SHOWN: Final = 4096
"""Bytes of a value that is too long that are enough to show it."""
PREFIX: Final = 5
"""A zero byte and the number of the schema, which serializers of a schema registry write first."""

DECODERS: Final[dict[str, Callable[[Schema, ValueFormat], Decoder]]] = {
    "json": JsonValues,
    "csv": CsvValues,
    "avro": AvroValues,
    "raw": RawValues,
}


@dataclass(frozen=True)
class Decoded:
    """Rows, the messages that they are from (None: all, in order), and the bad messages."""

    data: pa.RecordBatch
    good: list[int] | None
    bad: list[tuple[int, Bad]]


def decoded(
    decoder: Decoder,
    values: Sequence[bytes | None],
    schema: Schema,
    longest: int,
    lengths: Sequence[int] | None = None,
) -> Decoded:
    """The rows of all values; those without a value, too long or undecodable are bad.

    `lengths` are those of the values, if values that are too long were cut.
    """
    bad: list[tuple[int, Bad]] = []
    if None not in values:
        whole: Values = values  # type: ignore[assignment]
        if max(map(len, whole) if lengths is None else lengths, default=0) <= longest:
            block = decoder.decode(whole)
            if not block.bad and len(block) == len(values):
                return Decoded(block.data, None, bad)
    known = [0 if value is None else len(value) for value in values] if lengths is None else lengths
    usable: list[tuple[int, bytes]] = []
    for i, value in enumerate(values):
        if value is None:
            bad.append((i, Bad(Code.SYNTAX, "the message has no value", "")))
        elif known[i] > longest:
            reason = f"the value has {known[i]} bytes, which is too long"
            bad.append((i, Bad(Code.TOO_LONG, reason, shown(value[:SHOWN]))))
        elif not value.strip():
            bad.append((i, Bad(Code.SYNTAX, "the value is empty", shown(value))))
        else:
            usable.append((i, value))
    good: list[int] = []
    pieces = _halved(decoder, usable, good, bad)
    table = pa.Table.from_batches(pieces, schema).combine_chunks()
    rows = table.to_batches()
    return Decoded(rows[0] if rows else empty(schema), good, sorted(bad, key=lambda each: each[0]))


def _halved(
    decoder: Decoder, values: list[tuple[int, bytes]], good: list[int], bad: list[tuple[int, Bad]]
) -> list[pa.RecordBatch]:
    """The rows of values; the bad ones are found by halving."""
    if not values:
        return []
    block = decoder.decode([value for _, value in values])
    if not block.bad and len(block) == len(values):
        good += [i for i, _ in values]
        return [block.data]
    if len(values) == 1:
        why = block.bad[0] if block.bad else Bad(Code.SYNTAX, "the value is not one row", shown(values[0][1]))
        bad.append((values[0][0], why))
        return []
    half = len(values) // 2
    return _halved(decoder, values[:half], good, bad) + _halved(decoder, values[half:], good, bad)
