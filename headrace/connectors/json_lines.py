"""JSON lines: a block is parsed at once; only a block with bad rows is looked at line by line."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.json as pj
import pyarrow.types as pt

from headrace.connectors.codes import Code
from headrace.connectors.columns import CANNOT, any_null, fit
from headrace.connectors.contract import Bad, Block, empty, shown
from headrace.connectors.lines import split
from headrace.schema import DataType, Schema

_NEWLINE, _OPEN, _CLOSE, _RETURN = b"\n{}\r"


class JsonLines:
    """Makes rows of lines. `missing`: a column that a line does not mention is `null`, or an `error`."""

    def __init__(self, schema: Schema, *, missing: str = "error") -> None:
        self.schema = schema
        self._strict = missing == "error"
        wire = pa.schema([pa.field(f.name, _wire(f.type)) for f in schema])
        self._parse = pj.ParseOptions(explicit_schema=wire, unexpected_field_behavior="ignore")
        self._wire = wire

    def decode(self, lines: bytes) -> Block:
        """The rows of a block of lines, and the bad lines."""
        if not lines:
            return Block(empty(self.schema))
        count = _regular(lines)
        found = self._parsed(lines) if count else None
        if found is None or found.num_rows != count:
            return self._line_by_line(split(lines))
        if self._strict and (nulls := any_null(found)).any():
            return self._complete(found, nulls, split(lines))
        return fit(found, self.schema, None if _plain(self._wire, self.schema) else split(lines))

    def _parsed(self, lines: bytes) -> pa.RecordBatch | None:
        options = pj.ReadOptions(use_threads=False, block_size=len(lines) + 1)
        try:
            table = pj.read_json(pa.BufferReader(lines), options, self._parse)
            table.validate(full=True)
        except CANNOT:
            return None
        return table.select(self.schema.names).combine_chunks().to_batches()[0] if table.num_rows else None

    def _complete(self, found: pa.RecordBatch, nulls: Any, lines: list[bytes]) -> Block:
        """Tell a null that was written from a column that was not, in the rows that have a null."""
        names = self.schema.names
        bad = {}
        for i in np.flatnonzero(nulls):
            absent = json.loads(lines[i])
            missing = [name for name in names if name not in absent]
            if missing:
                bad[int(i)] = Bad(Code.COLUMNS, f"no column {missing[0]!r}", shown(lines[i]))
        if not bad:
            return fit(found, self.schema, lines)
        good = [i for i in range(found.num_rows) if i not in bad]
        rest = fit(found.take(pa.array(good, pa.int64())), self.schema, [lines[i] for i in good])
        return Block(rest.data, (*bad.values(), *rest.bad))

    def _line_by_line(self, lines: list[bytes]) -> Block:
        """Sort out the lines that cannot be, and parse the others at once."""
        good: list[bytes] = []
        bad: list[Bad] = []
        for line in lines:
            reason = self._reason(line)
            if reason is None:
                good.append(line)
            else:
                bad.append(Bad(*reason, shown(line)))
        rows = self._halved(good, bad)
        whole = pa.Table.from_batches(rows, self.schema).combine_chunks().to_batches() if rows else []
        return Block(whole[0] if whole else empty(self.schema), tuple(bad))

    def _halved(self, lines: list[bytes], bad: list[Bad]) -> list[pa.RecordBatch]:
        """Rows of lines each of which is an object; what the parser refuses is found by halving."""
        if not lines:
            return []
        found = self._parsed(b"\n".join(lines) + b"\n")
        if found is not None and found.num_rows == len(lines):
            block = fit(found, self.schema, lines)
            bad += block.bad
            return [block.data]
        if len(lines) == 1:
            bad.append(Bad(Code.TYPE, "a value is not of its column's type", shown(lines[0])))
            return []
        half = len(lines) // 2
        return self._halved(lines[:half], bad) + self._halved(lines[half:], bad)

    def _reason(self, line: bytes) -> tuple[str, str] | None:
        """What is wrong with a line, as far as that is quickly seen."""
        try:
            row = json.loads(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            return Code.ENCODING, f"byte {error.start} is not UTF-8"
        except (ValueError, RecursionError) as error:
            return Code.SYNTAX, f"no JSON: {error}"
        if not isinstance(row, dict):
            return Code.SYNTAX, "no JSON object"
        for field in self.schema:
            if field.name not in row:
                if self._strict:
                    return Code.COLUMNS, f"no column {field.name!r}"
            elif not _fits(row[field.name], field.type):
                return (
                    Code.TYPE,
                    f"column {field.name}: {json.dumps(row[field.name])[:80]} is no {field.type}",
                )
        return None


def _regular(lines: bytes) -> int:
    """How many lines there are, if each begins as an object and ends as one; else 0.

    The parser cares nothing for line ends. Two rows on a line, or one on two, are found by this and by
    counting its rows.
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
    return len(ends) if regular else 0


def _wire(of: DataType) -> DataType:
    """The type to parse as, where the parser does not know the one that is wanted."""
    return pa.string() if pt.is_date(of) else of


def _plain(wire: Schema, schema: Schema) -> bool:
    return bool(wire.equals(schema))


_JSON: Final[tuple[tuple[Callable[[DataType], bool], Callable[[Any], bool]], ...]] = (
    (pt.is_boolean, lambda v: isinstance(v, bool)),
    (pt.is_integer, lambda v: isinstance(v, int) and not isinstance(v, bool)),
    (pt.is_floating, lambda v: isinstance(v, (int, float)) and not isinstance(v, bool)),
    (pt.is_decimal, lambda v: isinstance(v, (int, float, str)) and not isinstance(v, bool)),
    (lambda of: pt.is_string(of) or pt.is_temporal(of) or pt.is_binary(of), lambda v: isinstance(v, str)),
)


def _fits(value: Any, of: DataType) -> bool:
    if value is None:
        return True
    return next((holds(value) for is_type, holds in _JSON if is_type(of)), True)
