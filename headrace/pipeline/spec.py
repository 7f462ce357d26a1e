"""The pipeline file as data: every table and key that is allowed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from headrace.errors import TimeError
from headrace.time.durations import seconds, ticks
from headrace.time.row_promises import PunctuationRows
from headrace.time.sources import GROUPS, MOST_GROUPS

Lines = Literal["json", "csv"]
FileFormat = Literal["json", "csv", "parquet", "arrow"]
_PLAIN = re.compile(r"\s*[0-9.]+\s*")
"""A number without a unit; valid where a stream counts ticks."""
_ROWS = re.compile(r"\s*(\d{1,9})\s*rows?\s*", re.IGNORECASE)
UNITS: dict[str, int | None] = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000, "tick": None}


def _length(value: Any) -> Any:
    """Check a duration when the file is read; the length of a tick is known only with the streams."""
    if isinstance(value, str):
        with _reporting():
            ticks(value, None if _PLAIN.fullmatch(value) else 1_000_000)
    return value


def _elapsed(value: Any) -> Any:
    """A duration as seconds."""
    with _reporting():
        return seconds(value) if isinstance(value, str) else value


@contextmanager
def _reporting() -> Iterator[None]:
    """Turn time errors into the errors that pydantic expects."""
    try:
        yield
    except TimeError as error:
        raise ValueError(f"{error.message}: {error.hint}") from None


def rows(value: str | int) -> int | None:
    """The number of rows in text such as "100 rows"; None if it is something else."""
    match = _ROWS.fullmatch(value) if isinstance(value, str) else None
    return None if match is None else int(match[1])


def _slack(value: Any) -> Any:
    """A number of rows, with or without the unit."""
    found = rows(value)
    if isinstance(value, str) and found is None:
        raise ValueError(f'{value!r} is not a number of rows: write "100 rows"')
    return value if found is None else found


def _wait(value: Any) -> Any:
    """A duration, or a number of rows."""
    return value if rows(value) is not None else _length(value)


Rows = Annotated[int, Field(ge=0), BeforeValidator(_slack)]
Wait = Annotated[str | Annotated[int, Field(ge=0)], BeforeValidator(_wait)]
Length = Annotated[str | Annotated[int, Field(ge=0)], BeforeValidator(_length)]
Seconds = Annotated[float, Field(gt=0), BeforeValidator(_elapsed)]


class Table(BaseModel):
    """A table of the file: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)


# --- sources ----------------------------------------------------------------------------------------------


class FilesFrom(Table):
    """A file, a directory or a pattern."""

    type: Literal["files"] = "files"
    path: str
    format: FileFormat | None = None
    follow: bool = False
    order: Literal["name", "modified"] = "name"
    missing: Literal["error", "null"] = "error"
    delimiter: str = Field(default=",", min_length=1, max_length=1)
    header: bool = True
    max_line: int = Field(default=8 << 20, ge=1)
    block_bytes: int = Field(default=4 << 20, ge=1)
    block_rows: int = Field(default=131_072, ge=1)
    max_block: int = Field(default=128 << 20, ge=1)
    keep_open: bool = False


class PoissonFrom(Table):
    """Random rows, the same for the same seed."""

    type: Literal["poisson"]
    rate: float = Field(gt=0)
    rows: int | None = Field(default=None, ge=0)
    seed: int = Field(default=0, ge=0)
    start: str | int = 0
    disorder: Length = 0
    keys: int = Field(default=10, ge=1)
    pace: Literal["real", "fast"] = "fast"
    keep_open: bool = False


class NexmarkFrom(Table):
    """One stream of NEXMark's auction house; streams with the same seed and rate are of one house."""

    type: Literal["nexmark"]
    stream: Literal["person", "auction", "bid"]
    events: int | None = Field(default=None, ge=0)
    rate: float = Field(default=10_000, gt=0)
    seed: int = Field(default=0, ge=0)
    disorder: int = Field(default=1, ge=1)
    delayed: float = Field(default=0.0, ge=0, le=1)
    delay: Length = "3 s"
    pace: Literal["real", "fast"] = "fast"
    keep_open: bool = False


class LinesFrom(Table):
    """The options of sources that read lines."""

    format: Lines = "json"
    missing: Literal["error", "null"] = "error"
    delimiter: str = Field(default=",", min_length=1, max_length=1)
    header: bool = True
    max_line: int = Field(default=8 << 20, ge=1)
    keep_open: bool = False


class TcpFrom(LinesFrom):
    """Lines from a socket: of a server, or, with `listen`, of clients."""

    type: Literal["tcp"]
    host: str = "127.0.0.1"
    port: int = Field(ge=0, le=65_535)
    listen: bool = False
    max_clients: int = Field(default=64, ge=1)
    idle_timeout: Length = "5 minutes"
    max_pending: int = Field(default=64 << 20, ge=1)


class StdinFrom(LinesFrom):
    """Lines from standard input."""

    type: Literal["stdin"]


class SparkFrom(Table):
    """Any streaming source of Spark, by format and options; for the runtime `spark` only."""

    type: Literal["spark"]
    format: str
    options: dict[str, str | int | float | bool] = Field(default_factory=dict)
    path: str | None = None
    keep_open: bool = False


def _as_source(value: Any) -> Any:
    """Accept a string as short form: `"stdin"` or a path."""
    if isinstance(value, str):
        return {"type": "stdin"} if value == "stdin" else {"type": "files", "path": value}
    return {"type": "files", **value} if isinstance(value, dict) and "type" not in value else value


Source = Annotated[
    Annotated[
        FilesFrom | PoissonFrom | NexmarkFrom | TcpFrom | StdinFrom | SparkFrom, Field(discriminator="type")
    ],
    BeforeValidator(_as_source),
]


# --- sinks ------------------------------------------------------------------------------------------------


class FilesTo(Table):
    """A file of lines, or a directory of parts. `existing`: what to do if it exists at the first start."""

    type: Literal["files"] = "files"
    path: str
    format: FileFormat | None = None
    existing: Literal["error", "replace", "append"] = "error"
    time: str | None = None


class StdoutTo(Table):
    """Lines on standard output."""

    type: Literal["stdout"]
    format: Lines = "json"
    time: str | None = None


class SparkTo(Table):
    """Any streaming sink of Spark, by format and options; for the runtime `spark` only."""

    type: Literal["spark"]
    format: str
    options: dict[str, str | int | float | bool] = Field(default_factory=dict)
    path: str | None = None
    time: str | None = None


def _as_sink(value: Any) -> Any:
    """Accept a string as short form: `"stdout"` or a path."""
    if isinstance(value, str):
        return {"type": "stdout"} if value == "stdout" else {"type": "files", "path": value}
    return {"type": "files", **value} if isinstance(value, dict) and "type" not in value else value


Sink = Annotated[
    Annotated[FilesTo | StdoutTo | SparkTo, Field(discriminator="type")], BeforeValidator(_as_sink)
]


# --- streams ----------------------------------------------------------------------------------------------


class TimeOf(Table):
    """Where the time of a row comes from. `earliest`: rows with an earlier time are rejected."""

    kind: Literal["external", "internal", "latent"] = "external"
    column: str | None = None
    unit: Literal["s", "ms", "us", "ns", "tick"] | None = None
    earliest: str | int | None = None

    @field_validator("earliest", mode="before")
    @classmethod
    def _written(cls, value: Any) -> Any:
        """A TOML date as text."""
        return value.isoformat() if hasattr(value, "isoformat") else value


class Estimate(Table):
    """Bounds learned from arrivals: lose a share `loss` of the rows, stay in [floor, ceiling]."""

    loss: float = Field(default=0.001, ge=0, lt=1)
    floor: Length = 0
    ceiling: Length | None = None
    half_life: int | None = Field(default=None, ge=1)


def _as_estimate(value: Any) -> Any:
    """Accept `true` for the default estimate and `false` for none."""
    return {} if value is True else None if value is False else value


class BoundsOf(Table):
    """How late rows may be: behind the newest row of their stream, in time or in rows, and behind the clock.

    `transit` is how long a row may take from its source to here.
    """

    disorder: Length | None = None
    slack: Rows | None = None
    latency: Length | None = None
    transit: Length | None = None
    skew: Length | None = None
    estimate: Annotated[Estimate | None, BeforeValidator(_as_estimate)] = None


class SourcesOf(Table):
    """Sources by a column: bounds hold for each group of them. `idle`: a silent group no longer counts."""

    column: str
    groups: int = Field(default=GROUPS, ge=1, le=MOST_GROUPS)
    idle: Length | None = None
    choose: bool = True


def _as_sources(value: Any) -> Any:
    """Accept a string as short form: the name of the column."""
    return {"column": value} if isinstance(value, str) else value


class ShedOf(Table):
    """Load shedding: of the rows beyond a backlog of `above`, only a share `keep` is kept."""

    above: Annotated[str, BeforeValidator(checked_backlog)]
    keep: float = Field(default=0.0, ge=0, lt=1)
    seed: int = Field(default=0, ge=0)


class PunctuationsOf(Table):
    """Rows that promise "no later row of this stream has these values": its own, or those of `stream`.

    `column`: only rows in which it is true. `pattern`: the columns, or `{ own column = column of the row }`.
    `data`: the rows are also data.
    """

    stream: str | None = None
    column: str | None = None
    pattern: list[str] | dict[str, str] = Field(min_length=1)
    data: bool = False

    def rows_of(self, name: str) -> PunctuationRows:
        """The rows that are punctuations of the stream `name`."""
        pairs = self.pattern if isinstance(self.pattern, dict) else {each: each for each in self.pattern}
        return PunctuationRows(self.stream or name, tuple(pairs.items()), self.column, self.data)


def _as_list(value: Any) -> Any:
    """Accept one table in place of a list."""
    return [value] if isinstance(value, dict) else value


class HeartbeatsOf(Table):
    """Rows with a time in `column` promise that all later rows have later times.

    `data`: the rows are also data.
    """

    column: str
    data: bool = False


class StreamSpec(Table):
    """`[streams.NAME]`."""

    source: Source
    columns: str | dict[str, str] = Field(alias="schema")
    time: TimeOf = Field(default_factory=TimeOf)
    bounds: BoundsOf = Field(default_factory=BoundsOf)
    sources: Annotated[SourcesOf | None, BeforeValidator(_as_sources)] = None
    guard: Length | None = None
    enforcement: Literal["strict", "admit"] = "strict"
    arrival: str | None = None
    idle: str | None = None
    shed: ShedOf | None = None
    punctuations: Annotated[list[PunctuationsOf], BeforeValidator(_as_list)] = Field(default_factory=list)
    heartbeats: HeartbeatsOf | None = None

    @field_validator("time", mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        """Accept a string as short form: the name of a column or a kind of time."""
        if isinstance(value, str):
            return {"kind": value} if value in ("internal", "latent") else {"column": value}
        return value


# --- the file ---------------------------------------------------------------------------------------------


class PipelineTable(Table):
    """`[pipeline]`."""

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]+$")
    runtime: Literal["spark", "embedded"] | None = None
    checkpoint: str | None = None
    interval: Seconds = 10.0
    every_rows: int | None = Field(default=None, ge=1)
    clock: Literal["system", "event", "arrival"] | None = None
    record: str | None = None
    strategy: str = "auto"
    level: str = "operator"
    propagation: str = "direct"
    reoptimize: bool | Annotated[int, Field(ge=1)] = False


class SkewBound(Table):
    """A set of pairs (t, δ) of one stream on another: after t, or n rows, it is less than δ behind."""

    of: str
    on: str
    pairs: list[tuple[Wait, Length]] = Field(min_length=1)


class AdjustOf(Table):
    """When `window` changes by itself: doubled if too many estimates were too low, halved if they fall."""

    exceeded: float = Field(default=0.01, gt=0, lt=1)
    falling: int = Field(default=4, ge=1)
    least: int = Field(default=16, ge=1)
    most: int = Field(default=1 << 20, ge=1)


def _as_adjust(value: Any) -> Any:
    """Accept `true` for the defaults and `false` for none."""
    return {} if value is True else None if value is False else value


class SkewEstimate(Table):
    """Bounds between streams that are learned from arrivals, for waits up to `horizon` in steps of `tick`.

    With a `window`, an estimate that was too large for this many rows falls; `alpha` is the weight of the
    old one. `streams`: by default, those without bounds of their own.
    """

    horizon: Length
    tick: Length | None = None
    window: int | None = Field(default=None, ge=1)
    alpha: float = Field(default=0.5, ge=0, le=1)
    adjust: Annotated[AdjustOf | None, BeforeValidator(_as_adjust)] = None
    streams: list[str] | None = Field(default=None, min_length=1)


class SkewTable(Table):
    """`[skew]`: what streams promise about each other, and the timeout after a pause of all.

    `groups`: streams that share one heartbeat; a stream that is in none has its own. `tick` coarsens the
    clock.
    """

    timeout: Length | None = None
    closure: bool = True
    bounds: list[SkewBound] = Field(default_factory=list)
    groups: list[Annotated[list[str], Field(min_length=1)]] = Field(default_factory=list)
    tick: Length | None = None
    estimate: SkewEstimate | None = None


def _as_table(value: Any) -> Any:
    """Accept a string as short form: a path."""
    return {"path": value} if isinstance(value, str) else value


class TableSpec(Table):
    """`[tables.NAME]`: a file that is read once and joined with streams; its columns, or those named."""

    path: str
    columns: str | dict[str, str] | None = Field(default=None, alias="schema")


class QuerySpec(Table):
    """`[[queries]]`."""

    name: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    sql: str | None = None
    sql_file: str | None = None
    sink: Sink
    late: Sink | None = None
    rejected: Sink | None = None


class MemoryTable(Table):
    """`[memory]`: what state may take, what to do if the least windows need more, and where state spills."""

    budget: str | int | None = None
    policy: Literal["fail", "spill"] = "fail"
    spill: str | None = None


class FileSpec(Table):
    """The whole file."""

    pipeline: PipelineTable
    streams: dict[str, StreamSpec] = Field(min_length=1)
    tables: dict[str, Annotated[TableSpec, BeforeValidator(_as_table)]] = Field(default_factory=dict)
    skew: SkewTable = Field(default_factory=SkewTable)
    queries: list[QuerySpec] = Field(min_length=1)
    memory: MemoryTable = Field(default_factory=MemoryTable)


# The backlog above which a stream sheds rows.


_AMOUNT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")
_BYTES: Final = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
}


def backlog(text: str) -> dict[str, int]:
    """`{"rows": n}` or `{"bytes": n}` of text such as "100000 rows" or "64 MB"."""
    match = _AMOUNT.fullmatch(text)
    unit = match[2].lower() if match else ""
    if match and unit in ("row", "rows") and "." not in match[1]:
        return {"rows": int(match[1])}
    if match and unit in _BYTES:
        return {"bytes": int(float(match[1]) * _BYTES[unit])}
    raise ValueError(f'{text!r} is not an amount of rows or bytes: write "100000 rows" or "64 MB"')


def checked_backlog(value: Any) -> Any:
    """The text, if it is a valid backlog."""
    if isinstance(value, str):
        backlog(value)
    return value
