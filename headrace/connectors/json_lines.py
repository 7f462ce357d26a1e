"""JSON lines: a block is parsed at once; only a block with bad rows is examined line by line.

Blocks of flat objects, written in the usual way, are read by a kernel, others by Arrow. All ways accept the
same lines and read the same values from them (tests check this).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.json as pj
import pyarrow.types as pt

from headrace.connectors.conform import CANNOT, any_null, fit, is_time, unfit_value
from headrace.connectors.contract import Bad, Block, Code, empty, shown
from headrace.connectors.flat_json import FlatObjects
from headrace.connectors.lines import is_utf8, not_utf8, split
from headrace.schema import DataType, Schema

_NEWLINE, _OPEN, _CLOSE, _LIST, _RETURN = b"\n{}[\r"

DEEP: Final = 500
"""A line with this many brackets is checked before Arrow's parser sees it."""


class JsonLines:
    """Decodes lines to rows. `missing`: a column that a line does not mention is `null`, or an `error`."""

    def __init__(self, schema: Schema, *, missing: str = "error") -> None:
        self.schema = schema
        self._strict = missing == "error"
        wire = pa.schema([pa.field(f.name, _wire(f.type)) for f in schema])
        self._parse = pj.ParseOptions(explicit_schema=wire, unexpected_field_behavior="ignore")
        self._wire = wire
        self._flat = FlatObjects(wire)

    def decode(self, lines: bytes) -> Block:
        """The rows of a block of lines, and the bad lines."""
        if not lines:
            return Block(empty(self.schema))
        valid = is_utf8(lines)
        if valid and (flat := self._flat.rows(lines)) is not None:
            block = fit(flat, self.schema)
            return block if not block.bad else fit(flat, self.schema, _split(lines))
        count = _regular(lines) if valid else 0
        found = self._parsed(lines, self._parse) if count else None
        if found is None or found.num_rows != count:
            return self._line_by_line(_split(lines))
        if self._strict and (nulls := any_null(found)).any():
            return self._complete(found, nulls, _split(lines))
        block = fit(found, self.schema)
        return block if not block.bad else fit(found, self.schema, _split(lines))

    def _parsed(self, lines: bytes, how: pj.ParseOptions) -> pa.RecordBatch | None:
        """The rows of lines; None if the parser rejects one of them or there are none."""
        options = pj.ReadOptions(use_threads=False, block_size=len(lines) + 1)
        try:
            table = pj.read_json(pa.BufferReader(lines), options, how)
            table.validate(full=True)
        except CANNOT:
            return None
        names = how.explicit_schema.names
        return table.select(names).combine_chunks().to_batches()[0] if table.num_rows else None

    def _complete(self, found: pa.RecordBatch, nulls: Any, lines: list[bytes]) -> Block:
        """In rows with a null, distinguish a written null from a missing column."""
        bad = {}
        for i in np.flatnonzero(nulls).tolist():
            if (missing := self._missing(_loaded(lines[i]))) is not None:
                bad[i] = Bad(Code.COLUMNS, missing, shown(lines[i]))
        if not bad:
            return fit(found, self.schema, lines)
        good = [i for i in range(found.num_rows) if i not in bad]
        rest = fit(found.take(pa.array(good, pa.int64())), self.schema, [lines[i] for i in good])
        return Block(rest.data, (*bad.values(), *rest.bad))

    def _missing(self, row: dict[str, Any]) -> str | None:
        """The reason why a row is bad if it does not mention all columns."""
        name = next((name for name in self.schema.names if name not in row), None)
        return None if name is None else f"the column {name!r} is missing"

    def _line_by_line(self, lines: list[bytes]) -> Block:
        """Reject the invalid lines, and parse the others together."""
        good: list[bytes] = []
        bad: list[Bad] = []
        for line in lines:
            wrong = self._wrong_with(line)
            if wrong is None:
                good.append(line)
            else:
                bad.append(wrong)
        rows = self._halved(good, bad)
        whole = pa.Table.from_batches(rows, self.schema).combine_chunks().to_batches() if rows else []
        return Block(whole[0] if whole else empty(self.schema), tuple(bad))

    def _halved(self, lines: list[bytes], bad: list[Bad]) -> list[pa.RecordBatch]:
        """Parse lines that are objects; lines that the parser rejects are found by halving."""
        if not lines:
            return []
        found = self._parsed(b"\n".join(lines) + b"\n", self._parse)
        if found is not None and found.num_rows == len(lines):
            block = fit(found, self.schema, lines)
            bad += block.bad
            return [block.data]
        if len(lines) == 1:
            bad.append(Bad(Code.TYPE, self._refused(lines[0]), shown(lines[0])))
            return []
        half = len(lines) // 2
        return self._halved(lines[:half], bad) + self._halved(lines[half:], bad)

    def _refused(self, line: bytes) -> str:
        """Why the parser rejects a line: the value that does not fit."""
        row = _loaded(line)
        for field in self._wire:
            alone = pj.ParseOptions(explicit_schema=pa.schema([field]), unexpected_field_behavior="ignore")
            if self._parsed(line, alone) is None:
                return unfit_value(
                    self.schema.field(field.name), json.dumps(row.get(field.name), ensure_ascii=False)
                )
        return "a name or a string on the line cannot be decoded"

    def _wrong_with(self, line: bytes) -> Bad | None:
        """What is wrong with a line, as far as a quick check can tell."""
        if (bad := not_utf8(line)) is not None:
            return bad
        try:
            row = _loaded(line)
        except RecursionError:
            return Bad(Code.SYNTAX, "the JSON is nested too deeply", shown(line))
        except ValueError as error:
            return Bad(Code.SYNTAX, f"the line is not valid JSON: {error}", shown(line))
        if not isinstance(row, dict):
            return Bad(Code.SYNTAX, "the line is not a JSON object", shown(line))
        if self._strict and (missing := self._missing(row)) is not None:
            return Bad(Code.COLUMNS, missing, shown(line))
        for field in self.schema:
            if not _fits(value := row.get(field.name), field.type):
                return Bad(Code.TYPE, unfit_value(field, json.dumps(value, ensure_ascii=False)), shown(line))
        return None


def _split(lines: bytes) -> list[bytes]:
    """The lines that are not blank."""
    return [line for line in split(lines) if not line.isspace()]


def _loaded(line: bytes) -> Any:
    """A line as Python reads it: used to find out what is wrong with it, not for its values."""
    return json.loads(line, parse_int=_whole, parse_constant=_not_json)


def _whole(digits: str) -> int:
    """An integer of any length: Python's digit limit must not reject a column that is not used."""
    return int(digits[:100])


def _not_json(name: str) -> Any:
    """Reject NaN and Infinity, which Python's JSON parser would accept."""
    raise ValueError(f"{name} is not a JSON number")


def _regular(lines: bytes) -> int:
    """The number of lines, if each begins and ends as an object and is not nested deeply; else 0.

    The parser ignores line ends. This check, and counting the rows, finds two rows on one line or one row
    on two. The parser limits nesting only by its stack.
    """
    bytes_ = np.frombuffer(lines, np.uint8)
    ends = np.flatnonzero(bytes_ == _NEWLINE)
    if len(ends) == 0 or ends[-1] != len(bytes_) - 1:
        ends = np.append(ends, len(bytes_))
    begins = np.concatenate(([0], ends[:-1] + 1))
    last = bytes_[np.maximum(ends - 1, 0)]
    returns = last == _RETURN
    if returns.any():
        last = np.where(returns, bytes_[np.maximum(ends - 2, 0)], last)
    regular = (begins < ends).all() and (bytes_[begins] == _OPEN).all() and (last == _CLOSE).all()
    return len(ends) if regular and not _deep(lines, bytes_, begins) else 0


def _deep(lines: bytes, bytes_: npt.NDArray[np.uint8], begins: npt.NDArray[np.intp]) -> bool:
    """Whether a line has so many brackets that it may be nested deeply and must be checked in Python."""
    if lines.count(b"{") + lines.count(b"[") <= len(begins) + DEEP:
        return False
    opening = (bytes_ == _OPEN) | (bytes_ == _LIST)
    return bool((np.add.reduceat(opening, begins, dtype=np.int64) > DEEP).any())


def _wire(of: DataType) -> DataType:
    """The type to parse as: times are parsed as text and then converted by one rule for all formats."""
    return pa.string() if is_time(of) else of


def _in_range(value: Any, of: DataType) -> bool:
    """Whether a JSON value is an integer in the range of an integer type."""
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    signed = pt.is_signed_integer(of)
    reach = 1 << (of.bit_width - signed)
    return bool((-reach if signed else 0) <= value < reach)


_JSON: Final[tuple[tuple[Callable[[DataType], bool], Callable[[Any, DataType], bool]], ...]] = (
    (pt.is_boolean, lambda v, of: isinstance(v, bool)),
    (pt.is_integer, _in_range),
    (pt.is_floating, lambda v, of: isinstance(v, (int, float)) and not isinstance(v, bool)),
    (pt.is_decimal, lambda v, of: isinstance(v, (int, float, str)) and not isinstance(v, bool)),
    (lambda of: pt.is_string(of) or pt.is_temporal(of) or pt.is_binary(of), lambda v, of: isinstance(v, str)),
)


def _fits(value: Any, of: DataType) -> bool:
    """Whether a JSON value fits a column type."""
    if value is None:
        return True
    return next((holds(value, of) for is_type, holds in _JSON if is_type(of)), True)
