"""Plain Python values as bytes and back, for checkpoints: reading them runs no code.

    plain.loads(plain.dumps(value)) == value, with the same type

A value is plain if it consists of numbers, text, bytes, dates and times, decimals, containers of these, NumPy
arrays and Arrow data. Unlike with pickle, a value of any other class is refused when it is written, and
tampered bytes can only give other plain values or an error. Two references to one object become two objects.

The format: a JSON text, then the raw bytes that it refers to by position. JSON objects have one key, a tag.
"""

from __future__ import annotations

import json
import re
import struct
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from math import prod
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

_NATIVE: Final = frozenset((type(None), bool, float, str))
_SMALL: Final = 1 << 63
"""Smaller integers are JSON numbers; Python limits the length of the numbers that it parses."""
DTYPE: Final = re.compile(r"[<>|=][biufcmMSU?]\d*(\[\w+\])?")
"""Array types that are plain bytes: no objects, no records."""
_FACTORIES: Final = {each.__name__: each for each in (int, float, str, bytes, list, dict, set, tuple)}


class NotPlain(TypeError):
    """A value that is not plain."""


class Malformed(ValueError):
    """Bytes that `dumps` did not write."""


def dumps(value: Any) -> bytes:
    """The value as bytes; raises NotPlain if that is impossible."""
    writer = _Writer()
    try:
        head = json.dumps(writer.form(value), separators=(",", ":")).encode()
    except RecursionError:
        raise NotPlain("a value that contains itself, or is nested too deeply") from None
    return struct.pack("<I", len(head)) + head + b"".join(writer.bodies)


def loads(data: bytes) -> Any:
    """The value that `dumps` wrote; raises Malformed for other bytes."""
    try:
        (size,) = struct.unpack_from("<I", data)
        if 4 + size > len(data):
            raise Malformed("a text beyond the end")
        form = json.loads(data[4 : 4 + size])
        return _Reader(memoryview(data)[4 + size :]).value(form)
    except Malformed:
        raise
    except Exception as error:  # constructors raise all kinds of errors for values that they do not accept
        raise Malformed(f"not the bytes of a plain value: {error}") from error


@dataclass
class _Writer:
    """Turns values into JSON, and collects raw bytes to store after it."""

    bodies: list[bytes] = field(default_factory=list)
    size: int = 0

    def form(self, value: Any) -> Any:
        """The value as JSON."""
        kind = type(value)
        if kind in _NATIVE:
            return value
        if kind is int and -_SMALL < value < _SMALL:
            return value
        if kind is list:
            return [self.form(each) for each in value]
        tag = _TAGS.get(kind) or next((t for base, t in _FAMILIES if isinstance(value, base)), None)
        if tag is None:
            raise NotPlain(f"a value of type {kind.__module__}.{kind.__qualname__}")
        return {tag: _FORMS[tag][0](self, value)}

    def forms(self, values: Iterable[Any]) -> list[Any]:
        return [self.form(each) for each in values]

    def body(self, data: bytes) -> list[int]:
        """Store raw bytes; returns their place."""
        self.bodies.append(data)
        self.size += len(data)
        return [self.size - len(data), len(data)]


@dataclass(frozen=True)
class _Reader:
    """Turns JSON back into values, with their raw bytes in `bodies`."""

    bodies: memoryview

    def value(self, form: Any) -> Any:
        """The value that a form describes."""
        if isinstance(form, list):
            return [self.value(each) for each in form]
        if not isinstance(form, dict):
            return form
        ((tag, inner),) = form.items()
        return _FORMS[tag][1](self, inner)

    def values(self, forms: Iterable[Any]) -> list[Any]:
        return [self.value(each) for each in forms]

    def body(self, place: list[int]) -> bytes:
        """The raw bytes at a place; raises Malformed if the place is out of range."""
        at, size = place
        if not (at >= 0 and size >= 0 and at + size <= len(self.bodies)):
            raise Malformed("a place beyond the end")
        return bytes(self.bodies[at : at + size])


# --- containers


def _pairs(writer: _Writer, value: Any) -> list[Any]:
    return [[writer.form(k), writer.form(v)] for k, v in value.items()]


def _dict(reader: _Reader, form: Any) -> dict[Any, Any]:
    return {reader.value(k): reader.value(v) for k, v in form}


def _counter(reader: _Reader, form: Any) -> Counter[Any]:
    counts: Counter[Any] = Counter()
    counts.update(_dict(reader, form))
    return counts


def _in_order(values: AbstractSet[Any]) -> list[Any]:
    """The elements of a set by their bytes: equal sets that were built in another order are written alike."""
    return sorted(values, key=dumps)


def _from_defaultdict(writer: _Writer, value: defaultdict[Any, Any]) -> list[Any]:
    """Only known factories are written, by name: reading must not run code."""
    factory = value.default_factory
    name = None if factory is None else getattr(factory, "__name__", "")
    if name is not None and _FACTORIES.get(name) is not factory:
        raise NotPlain(f"a defaultdict of {factory!r}")
    return [name, _pairs(writer, value)]


def _defaultdict(reader: _Reader, form: Any) -> defaultdict[Any, Any]:
    name, pairs = form
    return defaultdict(None if name is None else _FACTORIES[name], _dict(reader, pairs))


def _deque(reader: _Reader, form: Any) -> deque[Any]:
    longest, values = form
    return deque(reader.values(values), longest)


# --- dates and times


def _zone(zone: tzinfo | None, offset: timedelta | None) -> str | list[int] | None:
    """A time zone by its name, or by its offset if it has none."""
    if zone is None or offset is None:
        return None
    name = getattr(zone, "key", None) or getattr(zone, "zone", None)  # of zoneinfo, and of pytz
    return name if isinstance(name, str) else _delta(offset)


def _tzinfo(form: Any) -> tzinfo | None:
    if form is None:
        return None
    return ZoneInfo(form) if isinstance(form, str) else timezone(timedelta(*form))


def _delta(value: timedelta) -> list[int]:
    return [value.days, value.seconds, value.microseconds]


def _from_time(value: datetime | time) -> list[Any]:
    """The local time in ISO format, its fold and its zone."""
    return [
        value.replace(tzinfo=None, fold=0).isoformat(),
        value.fold,
        _zone(value.tzinfo, value.utcoffset()),
    ]


def _to_time(kind: Any, form: Any) -> Any:
    text, fold, zone = form
    return kind.fromisoformat(text).replace(tzinfo=_tzinfo(zone), fold=fold)


# --- arrays


def _from_array(writer: _Writer, value: Any) -> list[Any]:
    """The type, the shape and the bytes of an array; an array of objects value by value."""
    if value.dtype.kind == "O":
        return ["O", list(value.shape), writer.forms(value.ravel().tolist())]
    if not DTYPE.fullmatch(value.dtype.str):
        raise NotPlain(f"an array of {value.dtype}")
    return [value.dtype.str, list(value.shape), writer.body(np.ascontiguousarray(value).tobytes())]


def _array(reader: _Reader, form: Any) -> Any:
    dtype, shape, inner = form
    if dtype == "O":
        flat = np.empty(len(inner), object)
        for i, each in enumerate(inner):
            flat[i] = reader.value(each)
        return flat.reshape(shape)
    return plain_array(reader.body(inner), dtype, shape)


def plain_array(data: Any, dtype: str, shape: Iterable[int]) -> Any:
    """The array with these bytes; raises Malformed if the type is not plain."""
    if not isinstance(dtype, str) or not DTYPE.fullmatch(dtype):
        raise Malformed(f"an array of {dtype!r}")
    kind, shape = np.dtype(dtype), tuple(shape)
    if prod(shape) * kind.itemsize != len(data):
        raise Malformed(f"{len(data)} bytes for an array of {dtype} in the shape {shape}")
    return np.frombuffer(data, kind).reshape(shape).copy() if len(data) else np.zeros(shape, kind)


def _from_scalar(writer: _Writer, value: Any) -> list[Any]:
    """A NumPy scalar, as an array without dimensions."""
    if value.dtype.kind in "SUOV":
        raise NotPlain(f"a value of type {type(value).__name__}")
    return _from_array(writer, np.asarray(value))


def _from_arrow(writer: _Writer, value: Any) -> list[int]:
    """A table or a batch as an Arrow IPC stream."""
    table = value if isinstance(value, pa.Table) else pa.Table.from_batches([value])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return writer.body(sink.getvalue().to_pybytes())


def _table(reader: _Reader, form: Any) -> pa.Table:
    table = pa.ipc.open_stream(pa.py_buffer(reader.body(form))).read_all()
    table.validate(full=True)
    return table


def _batch(reader: _Reader, form: Any) -> pa.RecordBatch:
    table = _table(reader, form)
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)


def _from_column(writer: _Writer, value: Any) -> list[int]:
    """An Arrow column, as a table with one column."""
    return _from_arrow(writer, pa.table([value], ["x"]))


def _from_arrow_scalar(writer: _Writer, value: pa.Scalar) -> list[int]:
    return _from_column(writer, pa.array([value], value.type))


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


# --- the table of types

Form = tuple[Callable[[_Writer, Any], Any], Callable[[_Reader, Any], Any]]
_FORMS: Final[dict[str, Form]] = {
    "int": (lambda w, v: hex(v), lambda r, f: int(f, 16)),
    "complex": (lambda w, v: [v.real, v.imag], lambda r, f: complex(*f)),
    "bytes": (lambda w, v: w.body(v), lambda r, f: r.body(f)),
    "bytearray": (lambda w, v: w.body(bytes(v)), lambda r, f: bytearray(r.body(f))),
    "decimal": (lambda w, v: str(v), lambda r, f: Decimal(f)),
    "uuid": (lambda w, v: v.hex, lambda r, f: UUID(f)),
    "tuple": (lambda w, v: w.forms(v), lambda r, f: tuple(r.values(f))),
    "set": (lambda w, v: w.forms(_in_order(v)), lambda r, f: set(r.values(f))),
    "frozenset": (lambda w, v: w.forms(_in_order(v)), lambda r, f: frozenset(r.values(f))),
    "deque": (lambda w, v: [v.maxlen, w.forms(v)], _deque),
    "dict": (_pairs, _dict),
    "ordered": (_pairs, lambda r, f: OrderedDict(_dict(r, f))),
    "counter": (_pairs, _counter),
    "defaultdict": (_from_defaultdict, _defaultdict),
    "date": (lambda w, v: v.isoformat(), lambda r, f: date.fromisoformat(f)),
    "datetime": (lambda w, v: _from_time(v), lambda r, f: _to_time(datetime, f)),
    "time": (lambda w, v: _from_time(v), lambda r, f: _to_time(time, f)),
    "timedelta": (lambda w, v: _delta(v), lambda r, f: timedelta(*f)),
    "array": (_from_array, _array),
    "scalar": (_from_scalar, lambda r, f: _array(r, f)[()]),
    "arrow table": (_from_arrow, _table),
    "arrow batch": (_from_arrow, _batch),
    "arrow chunks": (_from_column, lambda r, f: _table(r, f).column(0)),
    "arrow array": (_from_column, lambda r, f: _one_chunk(_table(r, f).column(0))),
    "arrow scalar": (_from_arrow_scalar, lambda r, f: _table(r, f).column(0)[0]),
}
_TAGS: Final[dict[type[Any], str]] = {
    **{kind: kind.__name__ for kind in (int, complex, bytes, bytearray, tuple, set, frozenset, deque, dict)},
    **{kind: kind.__name__ for kind in (defaultdict, date, datetime, time, timedelta)},
    Decimal: "decimal",
    UUID: "uuid",
    OrderedDict: "ordered",
    Counter: "counter",
    np.ndarray: "array",
    pa.Table: "arrow table",
    pa.RecordBatch: "arrow batch",
    pa.ChunkedArray: "arrow chunks",
}
_FAMILIES: Final = ((np.generic, "scalar"), (pa.Array, "arrow array"), (pa.Scalar, "arrow scalar"))
