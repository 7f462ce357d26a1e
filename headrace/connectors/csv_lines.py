"""CSV: a block is parsed at once; only a block with bad rows is examined line by line.

Both ways accept the same lines and read the same values from them (tests check this). A value cannot contain
a line end: a quote that is not closed must not swallow the following rows. Whitespace around a value that is
not text is ignored; an empty value is null, or empty text.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv
import pyarrow.types as pt

from headrace.connectors.conform import BLANKS, CANNOT, fit
from headrace.connectors.contract import Bad, Block, Code, empty, shown
from headrace.connectors.lines import is_utf8, not_utf8, split
from headrace.schema import DataType, Schema

QUOTE = '"'


class CsvLines:
    """Decodes lines to rows. `names` are the columns of the file, in the order of the file."""

    def __init__(self, schema: Schema, names: list[str], *, delimiter: str = ",") -> None:
        self.schema = schema
        self._names = names
        self._delimiter = delimiter
        self._wrong = _wrong_with(names, schema)
        self._read = [name for name in names if name in schema.names]
        self._types = {field.name: _wire(field.type) for field in schema}

    def decode(self, lines: bytes) -> Block:
        """The rows of a block of lines, and the bad lines."""
        if self._wrong is not None:
            bad = tuple(Bad(Code.COLUMNS, self._wrong, shown(line)) for line in split(lines))
            return Block(empty(self.schema), bad)
        if not lines:
            return Block(empty(self.schema))
        found = self._parsed(lines)
        if found is None:
            return self._line_by_line(split(lines))
        block = fit(found, self.schema)
        return block if not block.bad else fit(found, self.schema, split(lines))

    def _parsed(self, lines: bytes) -> pa.RecordBatch | None:
        """The rows, if every line is one row and all are valid."""
        if not is_utf8(lines) or lines.count(b"\r") != lines.count(b"\r\n") or self._is_open(lines):
            return None
        try:
            table = pv.read_csv(
                pa.BufferReader(lines),
                pv.ReadOptions(use_threads=False, block_size=len(lines) + 1, column_names=self._names),
                pv.ParseOptions(delimiter=self._delimiter),
                pv.ConvertOptions(column_types=self._types, include_columns=self._read, null_values=[""]),
            )
        except CANNOT:
            return None
        count = lines.count(b"\n") + (not lines.endswith(b"\n"))
        if table.num_rows != count:
            return None
        found = table.select(self.schema.names).combine_chunks().to_batches()[0]
        columns = [
            found.column(i) if pt.is_string(field.type) else _or_null(found.column(i))
            for i, field in enumerate(self.schema)
        ]
        return pa.RecordBatch.from_arrays(columns, self.schema.names)

    def _is_open(self, lines: bytes) -> bool:
        """Whether the last line has an open quote; in other lines, the number of rows shows it."""
        whole = lines.removesuffix(b"\n").removesuffix(b"\r")
        last = whole[whole.rfind(b"\n") + 1 :]
        return b'"' in last and isinstance(cut(last.decode(), self._delimiter), str)

    def _line_by_line(self, lines: list[bytes]) -> Block:
        """Split each line into text, and convert the columns of lines with the right number of values."""
        good: list[bytes] = []
        rows: list[list[str]] = []
        bad: list[Bad] = []
        for line in lines:
            values = self._values(line)
            if isinstance(values, Bad):
                bad.append(values)
            else:
                good.append(line)
                rows.append(values)
        if not rows:
            return Block(empty(self.schema), tuple(bad))
        columns = dict(zip(self._names, zip(*rows, strict=True), strict=True))
        texts = [self._text(field, columns[field.name]) for field in self.schema]
        block = fit(pa.RecordBatch.from_arrays(texts, self.schema.names), self.schema, good)
        return Block(block.data, (*bad, *block.bad))

    def _text(self, field: pa.Field, values: tuple[str, ...]) -> pa.Array:
        """The values of a column as text; empty is null unless the column is text."""
        text = pa.array(values, pa.string())
        return text if pt.is_string(field.type) else _or_null(text)

    def _values(self, line: bytes) -> list[str] | Bad:
        """The values of a line, or why the line is bad."""
        if (bad := not_utf8(line)) is not None:
            return bad
        values = cut(line.decode(), self._delimiter)
        if isinstance(values, str):
            return Bad(Code.SYNTAX, f"the line is not valid CSV: {values}", shown(line))
        if len(values) != len(self._names):
            return Bad(
                Code.COLUMNS, f"the line has {len(values)} values for {len(self._names)} columns", shown(line)
            )
        return values


def _wire(of: DataType) -> DataType:
    """The type to parse as: text, where Arrow's rules for values differ from ours."""
    return of if pt.is_integer(of) or pt.is_floating(of) or pt.is_string(of) else pa.string()


def _or_null(column: pa.Array) -> pa.Array:
    """The column with empty text as null, for columns that are not text."""
    if not pt.is_string(column.type):
        return column
    return pc.if_else(pc.equal(pc.utf8_trim(column, BLANKS), ""), pa.scalar(None, pa.string()), column)


def _wrong_with(names: list[str], schema: Schema) -> str | None:
    """Why no line below this header can be a row, if so."""
    for name in schema.names:
        if name not in names:
            return f"the file has no column {name!r}"
        if names.count(name) > 1:
            return f"the header has column {name!r} twice"
    return None


def cut(line: str, delimiter: str) -> list[str] | str:
    """The values on a line, split as Arrow does it; or the reason if the line is not valid.

    A quote opens a value only as its first character, two quotes inside it are one, and text between a
    closing quote and the delimiter belongs to the value as written.
    """
    if "\r" in line:
        return "there is a carriage return in the middle of the line"
    if QUOTE not in line:
        return line.split(delimiter)
    values: list[str] = []
    at = 0
    while True:
        value = ""
        if line.startswith(QUOTE, at):
            end = _closing(line, at + 1)
            if end < 0:
                return "a quote is not closed"
            value, at = line[at + 1 : end].replace(QUOTE * 2, QUOTE), end + 1
        end = line.find(delimiter, at)
        values.append(value + line[at : end if end >= 0 else None])
        if end < 0:
            return values
        at = end + len(delimiter)


def _closing(line: str, at: int) -> int:
    """The position of the closing quote of a value; -1 if there is none."""
    while (end := line.find(QUOTE, at)) >= 0 and line.startswith(QUOTE, end + 1):
        at = end + 2
    return end


def header(line: bytes, delimiter: str, longest: int) -> list[str] | Bad:
    """The names in the header line; an invalid header is a bad row."""
    if len(line.rstrip(b"\r\n")) >= longest:
        return Bad(Code.TOO_LONG, f"the header has {len(line)} bytes or more", shown(line))
    names = cut(line.decode("utf-8-sig", "replace").rstrip("\r\n"), delimiter)
    if isinstance(names, str):
        return Bad(Code.SYNTAX, f"the header is not valid CSV: {names}", shown(line))
    return [name.strip() for name in names]
