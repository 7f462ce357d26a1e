"""CSV: a block is parsed at once; only a block with bad rows is looked at line by line.

A value does not hold a line end: a quote that is not closed must not swallow the rows after it.
"""

from __future__ import annotations

import csv

import pyarrow as pa
import pyarrow.csv as pc

from headrace.connectors.codes import Code
from headrace.connectors.columns import CANNOT, fit
from headrace.connectors.contract import Bad, Block, empty, shown
from headrace.connectors.lines import split
from headrace.schema import Schema


class CsvLines:
    """Makes rows of lines. `names` are the columns of the file in its own order."""

    def __init__(self, schema: Schema, names: list[str], *, delimiter: str = ",") -> None:
        self.schema = schema
        self._names = names
        self._delimiter = delimiter
        self._absent = [name for name in schema.names if name not in names]
        self._read = [name for name in names if name in schema.names]

    def decode(self, lines: bytes) -> Block:
        """The rows of a block of lines, and the bad lines."""
        if self._absent:
            reason = f"the file has no column {self._absent[0]!r}"
            return Block(empty(self.schema), tuple(Bad(Code.COLUMNS, reason, shown(x)) for x in split(lines)))
        if not lines:
            return Block(empty(self.schema))
        found = self._parsed(lines)
        return self._line_by_line(split(lines)) if found is None else fit(found, self.schema)

    def _parsed(self, lines: bytes) -> pa.RecordBatch | None:
        """The rows, if every line is one and nothing is wrong with any."""
        types = {f.name: f.type for f in self.schema}
        try:
            table = pc.read_csv(
                pa.BufferReader(lines),
                pc.ReadOptions(use_threads=False, block_size=len(lines) + 1, column_names=self._names),
                pc.ParseOptions(delimiter=self._delimiter),
                pc.ConvertOptions(column_types=types, include_columns=self._read, null_values=[""]),
            )
        except CANNOT:
            return None
        count = lines.count(b"\n") + (not lines.endswith(b"\n"))
        if table.num_rows != count:
            return None
        return table.select(self.schema.names).combine_chunks().to_batches()[0]

    def _line_by_line(self, lines: list[bytes]) -> Block:
        """Cut each line into text, and cast the columns of those that have the right number of values."""
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
        text = pa.RecordBatch.from_arrays(
            [self._text(name, columns[name]) for name in self._read], self._read
        )
        block = fit(text, self.schema, good)
        return Block(block.data, (*bad, *block.bad))

    def _text(self, name: str, values: tuple[str, ...]) -> pa.Array:
        is_text = pa.types.is_string(self.schema.field(name).type)
        return pa.array([None if v == "" and not is_text else v for v in values], pa.string())

    def _values(self, line: bytes) -> list[str] | Bad:
        try:
            values = next(csv.reader([line.decode("utf-8")], delimiter=self._delimiter, strict=True))
        except UnicodeDecodeError as error:
            return Bad(Code.ENCODING, f"byte {error.start} is not UTF-8", shown(line))
        except csv.Error as error:
            return Bad(Code.SYNTAX, f"no CSV: {error}", shown(line))
        if len(values) != len(self._names):
            return Bad(Code.COLUMNS, f"{len(values)} values for {len(self._names)} columns", shown(line))
        return values


def header(line: bytes, delimiter: str) -> list[str]:
    """The names in the first line of a file."""
    text = line.decode("utf-8-sig", "replace").rstrip("\r\n")
    return [name.strip() for name in next(csv.reader([text], delimiter=delimiter), [])]
