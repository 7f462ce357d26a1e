"""The pipeline file as data: every table and key that is allowed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from headrace.connectors.kafka.client import is_exposed
from headrace.errors import TimeError
from headrace.time.durations import seconds, ticks
from headrace.time.row_promises import PunctuationRows
from headrace.time.sources import GROUPS, MOST_GROUPS


def checked_options(options: dict[str, Any]) -> dict[str, Any]:
    """Options of a client; a secret must be a reference to the environment."""
    exposed = next((name for name, value in options.items() if is_exposed(name, value)), None)
    if exposed is not None:
        raise ValueError(
            f"{exposed!r} is a secret and must not be written into the file: use a variable of the "
            f'environment, such as {exposed!r} = "${{NAME}}"'
        )
    return options


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


StorageOptions = Annotated[dict[str, str | int | bool], AfterValidator(checked_options)]
"""Options of the file system of a URI; a secret must be a reference to the environment."""


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
    storage: StorageOptions = Field(default_factory=dict)
    poll: Seconds = 1.0


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


class PythonFrom(Table):
    """Rows that a Python function yields. `bounded`: it ends, so that rows can be read by their own times."""

    type: Literal["python"]
    function: str
    options: dict[str, Any] = Field(default_factory=dict)
    bounded: bool = False
    keep_open: bool = False


class LakeFrom(Table):
    """Rows of a table of a lake; with `follow`, those that are added later, too.

    `changes`: what to do with a version that deletes or updates rows.
    """

    follow: bool = False
    start: Literal["all", "new"] = "all"
    changes: Literal["error", "skip"] = "error"
    poll: Seconds = 1.0
    block_rows: int = Field(default=131_072, ge=1)
    keep_open: bool = False


class DeltaFrom(LakeFrom):
    """A Delta table."""

    type: Literal["delta"]
    path: str
    storage: dict[str, str] = Field(default_factory=dict)


class IcebergFrom(LakeFrom):
    """An Iceberg table of a catalog."""

    type: Literal["iceberg"]
    table: str = Field(pattern=r"^[^.]+(\.[^.]+)+$")
    catalog: str = "default"
    options: dict[str, str] = Field(default_factory=dict)


def _one_or_more(value: Any) -> Any:
    """Accept a string as short form: a list of one."""
    return [value] if isinstance(value, str) else value


MessageField = Literal["key", "headers", "topic", "partition", "offset", "timestamp"]
Options = Annotated[dict[str, str | int | float | bool], AfterValidator(checked_options)]


class KafkaFrom(Table):
    """Messages of Kafka topics; `metadata` names columns for what a message has besides its value."""

    type: Literal["kafka"]
    servers: str = Field(min_length=1)
    topic: str | Annotated[list[str], Field(min_length=1)]
    format: Literal["json", "csv", "avro", "raw"] = "json"
    start: str | int = "earliest"
    follow: bool = True
    metadata: dict[MessageField, str] = Field(default_factory=dict)
    missing: Literal["error", "null"] = "error"
    delimiter: str = Field(default=",", min_length=1, max_length=1)
    avro_schema: str | None = None
    avro_prefix: bool = False
    isolation: Literal["committed", "uncommitted"] = "committed"
    max_message: int = Field(default=8 << 20, ge=1)
    block_rows: int = Field(default=65_536, ge=1)
    options: Options = Field(default_factory=dict)
    keep_open: bool = False

    @field_validator("start", mode="before")
    @classmethod
    def _instant(cls, value: Any) -> Any:
        """A TOML date as text; text is `earliest`, `latest` or a date."""
        value = value.isoformat() if hasattr(value, "isoformat") else value
        if isinstance(value, str) and value not in ("earliest", "latest"):
            try:
                datetime.fromisoformat(value)
            except ValueError:
                hint = 'write "earliest", "latest", or a time such as 2026-01-01T00:00:00Z'
                raise ValueError(f"{value!r} is not a place to start from: {hint}") from None
        return value

    @property
    def topics(self) -> list[str]:
        """The topics, sorted."""
        return [self.topic] if isinstance(self.topic, str) else sorted(set(self.topic))


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
    if isinstance(value, dict) and "type" not in value:
        return {"type": "history" if "history" in value else "files", **value}
    return value


Past = Annotated[
    Annotated[FilesFrom | DeltaFrom | IcebergFrom | PythonFrom, Field(discriminator="type")],
    BeforeValidator(_as_source),
]
Live = Annotated[
    Annotated[
        FilesFrom | TcpFrom | StdinFrom | PythonFrom | DeltaFrom | IcebergFrom | KafkaFrom,
        Field(discriminator="type"),
    ],
    BeforeValidator(_as_source),
]


class HistoryFrom(Table):
    """A finite past, and then a live source. `until`: the past has the rows before it, `live` the others."""

    type: Literal["history"]
    history: Past
    live: Live
    until: str | int | datetime | None = None
    keep_open: bool = False

    @field_validator("history")
    @classmethod
    def _finite(cls, value: Any) -> Any:
        """The past must have an end."""
        if value.keep_open or getattr(value, "follow", False) or not getattr(value, "bounded", True):
            raise ValueError("a history must end: leave follow and keep_open out, or set bounded = true")
        return value


Source = Annotated[
    Annotated[
        FilesFrom
        | PoissonFrom
        | NexmarkFrom
        | TcpFrom
        | StdinFrom
        | PythonFrom
        | DeltaFrom
        | IcebergFrom
        | KafkaFrom
        | HistoryFrom
        | SparkFrom,
        Field(discriminator="type"),
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
    storage: StorageOptions = Field(default_factory=dict)


class StdoutTo(Table):
    """Lines on standard output."""

    type: Literal["stdout"]
    format: Lines = "json"
    time: str | None = None


class NowhereTo(Table):
    """Nothing is written: `headrace.run` hands the results to the program. Files cannot name it."""

    type: Literal["nowhere"] = "nowhere"
    time: str | None = None


class PythonTo(Table):
    """A Python function that gets the rows of each commit."""

    type: Literal["python"]
    function: str
    options: dict[str, Any] = Field(default_factory=dict)
    time: str | None = None


class KeyedTo(Table):
    """A table. With a `key`, a row replaces the one with the same values in these columns."""

    key: list[str] = Field(default_factory=list)
    existing: Literal["error", "replace", "append"] = "append"
    patience: Seconds = 60.0
    time: str | None = None

    @field_validator("key", mode="before")
    @classmethod
    def _columns(cls, value: Any) -> Any:
        """Accept a string as short form: one column."""
        return [value] if isinstance(value, str) else value


class TableTo(KeyedTo):
    """A table of a database. `operation`: a column that says whether a row replaces or deletes (`-D`)."""

    table: str = Field(pattern=r"^[^.]+(\.[^.]+)?$")
    operation: str | None = None


_PASSWORD = re.compile(r"://[^/@:]*:(?!\$\{)[^@/]+@|\bpassword\s*=\s*(?!\$\{)\S", re.IGNORECASE)


def without_password(value: str) -> str:
    """Refuse a password in the file: it would be in checkpoints and in `explain`."""
    if _PASSWORD.search(value):
        raise ValueError("a password is not allowed here: write ${NAME}, a variable of the environment")
    return value


class PostgresTo(TableTo):
    """A table of PostgreSQL."""

    type: Literal["postgres"]
    url: str

    @field_validator("url")
    @classmethod
    def _secret(cls, value: str) -> str:
        return without_password(value)


class SqliteTo(TableTo):
    """A table of an SQLite file."""

    type: Literal["sqlite"]
    database: str


class DuckdbTo(TableTo):
    """A table of a DuckDB file."""

    type: Literal["duckdb"]
    database: str


class DeltaTo(KeyedTo):
    """A Delta table."""

    type: Literal["delta"]
    path: str
    storage: dict[str, str] = Field(default_factory=dict)
    partition_by: list[str] = Field(default_factory=list)


class IcebergTo(KeyedTo):
    """An Iceberg table of a catalog."""

    type: Literal["iceberg"]
    table: str = Field(pattern=r"^[^.]+(\.[^.]+)+$")
    catalog: str = "default"
    options: dict[str, str] = Field(default_factory=dict)


class KafkaTo(Table):
    """Messages in a topic, one for each row. `key`: the column, or columns, that messages are keyed by.

    `id` adds a column that is the same if a message is sent again. `delivery` matters on Spark only.
    """

    type: Literal["kafka"]
    servers: str = Field(min_length=1)
    topic: str = Field(min_length=1)
    format: Literal["json", "raw"] = "json"
    key: list[str] = Field(default_factory=list)
    id: str | None = None
    delivery: Literal["exactly once", "at least once"] = "exactly once"
    transactional_id: str | None = None
    patience: Seconds = 300.0
    options: Options = Field(default_factory=dict)
    time: str | None = None

    @field_validator("key", mode="before")
    @classmethod
    def _columns(cls, value: Any) -> Any:
        """Accept a string as short form: one column."""
        return _one_or_more(value)


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
    Annotated[
        FilesTo
        | StdoutTo
        | PythonTo
        | PostgresTo
        | SqliteTo
        | DuckdbTo
        | DeltaTo
        | IcebergTo
        | KafkaTo
        | SparkTo,
        Field(discriminator="type"),
    ],
    BeforeValidator(_as_sink),
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
    interval: Seconds | None = None
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
    """Accept a string as short form: a path. A table with a stream is of this type."""
    if isinstance(value, dict) and "stream" in value:
        return {"type": "stream", **value}
    return {"path": value} if isinstance(value, str) else value


class TableSpec(Table):
    """`[tables.NAME]`: a file, a query of a database, or a stream of changes; its columns.

    `reload`: it may get other rows while queries run: by command, or also on a schedule. A table from a
    stream holds the newest row of each `key`; `format`, `operation`, `delete` and `ignore` say what a row
    does, as in CREATE TABLE.
    """

    type: Literal["file", "postgres", "sqlite", "duckdb", "stream"] = "file"
    path: str | None = None
    url: str | None = None
    database: str | None = None
    query: str | None = None
    stream: str | None = None
    key: list[str] | None = None
    format: str | None = None
    operation: str | None = None
    delete: str | None = None
    ignore: str | None = None
    columns: str | dict[str, str] | None = Field(default=None, alias="schema")
    reload: bool | Seconds = False

    @field_validator("url")
    @classmethod
    def _secret(cls, value: str | None) -> str | None:
        return None if value is None else without_password(value)

    @field_validator("key", mode="before")
    @classmethod
    def _key(cls, value: Any) -> Any:
        """Accept a string as short form: one column."""
        return [value] if isinstance(value, str) else value

    @model_validator(mode="after")
    def _complete(self) -> Self:
        """Each type has its own keys."""
        needed = _LOOKUPS[self.type]
        allowed = (*needed, *(_CHANGES if self.type == "stream" else ()))
        keys = ("path", "url", "database", "query", "stream", "key", *_CHANGES)
        missing = [key for key in needed if getattr(self, key) is None]
        if self.type not in ("file", "stream") and self.columns is None:
            missing.append("schema")
        strange = [key for key in keys if key not in allowed and getattr(self, key) is not None]
        if self.type == "stream" and self.reload:
            strange.append("reload")
        if missing:
            raise ValueError(f'a table of type "{self.type}" needs {missing[0]!r}')
        if strange:
            raise ValueError(f'a table of type "{self.type}" has no key {strange[0]!r}')
        return self


_LOOKUPS: Final = {
    "file": ("path",),
    "postgres": ("url", "query"),
    "sqlite": ("database", "query"),
    "duckdb": ("database", "query"),
    "stream": ("stream", "key"),
}
"""By type of a table, the keys that say where its rows are."""
_CHANGES: Final = ("format", "operation", "delete", "ignore")
"""Keys of a table from a stream: what its rows do."""


class FunctionSpec(Table):
    """`[functions.NAME]`: a Python function that queries can call, over Arrow arrays or (`scalar`) values."""

    function: str
    result: str | None = None
    arguments: list[str] | None = None
    deterministic: bool = False
    scalar: bool = False


def _as_aggregate(value: Any) -> Any:
    """Accept a string as short form: the class."""
    return {"class": value} if isinstance(value, str) else value


class AggregateSpec(Table):
    """`[aggregates.NAME]`: a Python class that queries can call as an aggregate; its types, or those here."""

    definition: str = Field(alias="class")
    result: str | None = None
    arguments: list[str] | None = None


class QuerySpec(Table):
    """`[[queries]]`."""

    name: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    sql: str | None = None
    sql_file: str | None = None
    sink: Sink
    late: Sink | None = None
    rejected: Sink | None = None
    ordered: bool = True


class MemoryTable(Table):
    """`[memory]`: what state may take, what to do if the least windows need more, and where state spills."""

    budget: str | int | None = None
    policy: Literal["fail", "spill"] = "fail"
    spill: str | None = None


class SparkTable(Table):
    """`[spark]`: how a run on Spark is started; the embedded runtime ignores it.

    `shards`: into how many shards state is divided, from the first start on. `trigger`: the shortest time
    between two micro-batches. `settings`, `jars` and `packages` are those of the session. `sources`: by
    stream, options of Spark's source.
    """

    shards: int | None = Field(default=None, ge=1)
    trigger: Seconds | None = None
    settings: Options = Field(default_factory=dict)
    jars: Annotated[list[str], BeforeValidator(_one_or_more)] = Field(default_factory=list)
    packages: Annotated[list[str], BeforeValidator(_one_or_more)] = Field(default_factory=list)
    sources: dict[str, Options] = Field(default_factory=dict)


class FileSpec(Table):
    """The whole file."""

    pipeline: PipelineTable
    streams: dict[str, StreamSpec] = Field(min_length=1)
    tables: dict[str, Annotated[TableSpec, BeforeValidator(_as_table)]] = Field(default_factory=dict)
    functions: dict[str, FunctionSpec] = Field(default_factory=dict)
    aggregates: dict[str, Annotated[AggregateSpec, BeforeValidator(_as_aggregate)]] = Field(
        default_factory=dict
    )
    skew: SkewTable = Field(default_factory=SkewTable)
    queries: list[QuerySpec] = Field(min_length=1)
    memory: MemoryTable = Field(default_factory=MemoryTable)
    spark: SparkTable = Field(default_factory=SparkTable)

    @property
    def lookups(self) -> dict[str, TableSpec]:
        """The tables whose rows do not come from a stream."""
        return {name: each for name, each in self.tables.items() if each.type != "stream"}


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
