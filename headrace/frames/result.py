"""The result of a query over tables: an Arrow table that other libraries can read, and what was left out."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from headrace.drawing.svg import escape
from headrace.errors import InputError
from headrace.schema import Schema

SHOWN: Final = 20
WIDEST: Final = 40
"""The maximum number of characters that a value takes in a table of text."""
CELL: Final = "text-align: {align}; padding: 2px 10px; border-bottom: 1px solid #d5dbe1"


@dataclass(frozen=True, repr=False)
class Result:
    """The rows of an answer, in the order of their times.

    pandas, Polars, DuckDB and pyarrow read it as it is, through the Arrow C stream protocol:
    `polars.DataFrame(result)`, `pyarrow.table(result)`. Iterating gives each row as a dict.
    """

    table: pa.Table
    times: pa.Array
    """The time of each row: a timestamp, or an integer if the streams have sequence numbers."""
    late: pa.Table = field(repr=False)
    """Rows that came later than `bounds` allow: the stream, by how many ticks, and the row as JSON."""
    rejected: pa.Table = field(repr=False)
    """Rows that could not be read or that have no time: the stream, the code, the reason, and the row."""
    query: str = "query"
    """The name of the query."""

    @property
    def schema(self) -> Schema:
        """The columns of the answer."""
        return self.table.schema

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        names: list[str] = self.table.schema.names
        return names

    def to_arrow(self) -> pa.Table:
        """The answer as an Arrow table."""
        return self.table

    def to_pandas(self) -> Any:
        """The answer as a pandas DataFrame."""
        _installed("pandas")
        return self.table.to_pandas()

    def to_polars(self) -> Any:
        """The answer as a Polars DataFrame."""
        return _installed("polars").from_arrow(self.table)

    def to_dicts(self) -> list[dict[str, Any]]:
        """The answer as a list of dicts."""
        return list(self)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __bool__(self) -> bool:
        """A result is true even if it has no rows; `len(result)` counts them."""
        return True

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in self.table.to_batches():
            yield from batch.to_pylist()

    def show(self, rows: int = SHOWN) -> None:
        """Print the first rows, how many there are, and how many rows were late or rejected."""
        print(self.as_text(rows))

    def as_text(self, rows: int = SHOWN) -> str:
        """What `show` prints."""
        return "\n".join([text_table(self.table.slice(0, max(rows, 0))), self.account(rows)])

    def __repr__(self) -> str:
        return self.as_text()

    def _repr_html_(self) -> str:
        """A table of the first rows, as a notebook shows it."""
        return f"<div>{html_table(self.table.slice(0, SHOWN))}<p>{escape(self.account(SHOWN))}</p></div>"

    def account(self, shown: int = SHOWN) -> str:
        """The number of rows, and what was left out."""
        total = len(self)
        said = [f"{total:,} row{'' if total == 1 else 's'}" + (f", {shown:,} shown" if total > shown else "")]
        for what, left_out in (("late", self.late), ("rejected", self.rejected)):
            if left_out.num_rows:
                said.append(f"{left_out.num_rows:,} {what}")
        return "; ".join(said)


def _installed(package: str) -> Any:
    """A package that is not a dependency of Headrace."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise InputError(
            "HR-I078",
            f"{package} is not installed",
            place=f"Result.to_{package}",
            hint=f"pip install {package}, or use to_arrow() or to_dicts()",
        ) from None


# Tables of text, for terminals and logs, and of HTML, for notebooks.


def text_table(table: pa.Table) -> str:
    """The rows in columns of text, with numbers to the right; long values are cut."""
    names = [_cut(name) for name in table.schema.names]
    columns = [[_written(value) for value in column.to_pylist()] for column in table.columns]
    widths = [max(map(len, [name, *column])) for name, column in zip(names, columns, strict=True)]
    right = [_is_number(each.type) for each in table.schema]

    def line(values: list[str]) -> str:
        cells = zip(values, widths, right, strict=True)
        padded = [text.rjust(width) if end else text.ljust(width) for text, width, end in cells]
        return "  ".join(padded).rstrip()

    rows = [line([column[i] for column in columns]) for i in range(table.num_rows)]
    return "\n".join([line(names), "  ".join("─" * width for width in widths), *rows])


def html_table(table: pa.Table) -> str:
    """The rows as an HTML table; every value is escaped."""
    aligns = ["right" if _is_number(each.type) else "left" for each in table.schema]
    styles = [CELL.format(align=align) for align in aligns]
    head = "".join(
        f'<th scope="col" style="{style}">{escape(name)}</th>'
        for name, style in zip(table.schema.names, styles, strict=True)
    )
    body = ""
    for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
        cells = zip(row, styles, strict=True)
        body += (
            "<tr>"
            + "".join(f'<td style="{style}">{escape(_written(value))}</td>' for value, style in cells)
            + "</tr>"
        )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _is_number(of: pa.DataType) -> bool:
    return bool(pa.types.is_integer(of) or pa.types.is_floating(of) or pa.types.is_decimal(of))


def _written(value: object) -> str:
    """A value in a table: NULL, true and false as in SQL; control characters are escaped."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    return _cut("".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(value)))


def _cut(text: str) -> str:
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"
