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

_PASSWORD = re.compile(r"://[^/@:]*:(?!\$\{)[^@/]+@|\bpassword\s*=\s*(?!\$\{)\S", re.IGNORECASE)


def checked_options(options: dict[str, Any]) -> dict[str, Any]:
    """Options of a client; a secret must be a reference to the environment."""
    secret = (name for name, value in options.items() if is_exposed(name, value) or _has_password(value))
    exposed = next(secret, None)
    if exposed is not None:
        raise ValueError(
            f"{exposed!r} is a secret and must not be written into the file: use a variable of the "
            f'environment, such as {exposed!r} = "${{NAME}}"'
        )
    return options


def _has_password(value: object) -> bool:
    """Whether a text is the address of a server with a password in it."""
    return isinstance(value, str) and _PASSWORD.search(value) is not None


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


TextOptions = Annotated[dict[str, str], AfterValidator(checked_options)]
Options = Annotated[dict[str, str | int | float | bool], AfterValidator(checked_options)]
StorageOptions = Annotated[dict[str, str | int | bool], AfterValidator(checked_options)]
"""Options of the file system of a URI; a secret must be a reference to the environment."""


# --- sources ----------------------------------------------------------------------------------------------


class FilesFrom(Table):
    """A file, a directory or a pattern."""

    type: Literal["files"] = "files"
    path: str
    """A file, a directory or a pattern, relative to the pipeline file; or a URI of an object store."""
    format: FileFormat | None = None
    """By default from the extension of the file."""
    follow: bool = False
    """Read new files, and new lines of files, as they appear; the stream has no end."""
    order: Literal["name", "modified"] = "name"
    """Which file comes first. Spark reads files by modification time."""
    missing: Literal["error", "null"] = "error"
    """A column that a JSON line does not have: the line is rejected, or the value is NULL."""
    delimiter: str = Field(default=",", min_length=1, max_length=1)
    """CSV: what separates values."""
    header: bool = True
    """CSV: the first line names the columns."""
    max_line: int = Field(default=8 << 20, ge=1)
    """Bytes of the longest line; longer ones are rejected (HR-R104)."""
    block_bytes: int = Field(default=4 << 20, ge=1)
    """Bytes that are read at once from files of lines."""
    block_rows: int = Field(default=131_072, ge=1)
    """Rows that are read at once from Parquet and Arrow files."""
    max_block: int = Field(default=128 << 20, ge=1)
    """Bytes of the largest piece of a Parquet or Arrow file when decompressed (HR-R108)."""
    keep_open: bool = False
    """Leave the stream open when the source ends; waiting results then stay."""
    storage: StorageOptions = Field(default_factory=dict)
    """Options of the file system of a URI. A secret is a reference to the environment, `${NAME}`."""
    poll: Seconds = 1.0
    """On an object store, with `follow`: how often to look for new objects."""


class PoissonFrom(Table):
    """Random rows, the same for the same seed."""

    type: Literal["poisson"]
    rate: float = Field(gt=0)
    """Rows per second, on average."""
    rows: int | None = Field(default=None, ge=0)
    """How many rows; by default without end."""
    seed: int = Field(default=0, ge=0)
    """The same seed gives the same rows."""
    start: str | int = 0
    """The time of the first row: a date, or a number of ticks."""
    disorder: Length = 0
    """How far rows may be out of order."""
    keys: int = Field(default=10, ge=1)
    """How many different values integer and text columns have."""
    pace: Literal["real", "fast"] = "fast"
    """`real`: rows come when they are due. `fast`: as fast as they are read."""
    keep_open: bool = False
    """Leave the stream open when the source ends; waiting results then stay."""


class NexmarkFrom(Table):
    """One stream of NEXMark's auction house; streams with the same seed and rate are of one house."""

    type: Literal["nexmark"]
    stream: Literal["person", "auction", "bid"]
    """Which stream of the auction house."""
    events: int | None = Field(default=None, ge=0)
    """How many events of all three streams; by default without end."""
    rate: float = Field(default=10_000, gt=0)
    """Events per second."""
    seed: int = Field(default=0, ge=0)
    """Streams with the same seed and rate are of one auction house."""
    disorder: int = Field(default=1, ge=1)
    """The size of the groups of events inside which the order is scattered; 1: none."""
    delayed: float = Field(default=0.0, ge=0, le=1)
    """The share of rows that arrive late."""
    delay: Length = "3 s"
    """By how much they are delayed."""
    pace: Literal["real", "fast"] = "fast"
    """`real`: rows come when they are due. `fast`: as fast as they are read."""
    keep_open: bool = False
    """Leave the stream open when the source ends; waiting results then stay."""


class LinesFrom(Table):
    """The options of sources that read lines."""

    format: Lines = "json"
    """How a line is written."""
    missing: Literal["error", "null"] = "error"
    """A column that a JSON line does not have: the line is rejected, or the value is NULL."""
    delimiter: str = Field(default=",", min_length=1, max_length=1)
    """CSV: what separates values."""
    header: bool = True
    """CSV: the first line names the columns."""
    max_line: int = Field(default=8 << 20, ge=1)
    """Bytes of the longest line; longer ones are rejected (HR-R104)."""
    keep_open: bool = False
    """Leave the stream open when the source ends; waiting results then stay."""


class TcpFrom(LinesFrom):
    """Lines from a socket: of a server, or, with `listen`, of clients."""

    type: Literal["tcp"]
    host: str = "127.0.0.1"
    """The address to connect to, or with `listen` to listen on."""
    port: int = Field(ge=0, le=65_535)
    """The port."""
    listen: bool = False
    """Wait for clients. Without it, the source connects to a server."""
    max_clients: int = Field(default=64, ge=1)
    """With `listen`: clients at the same time; others wait."""
    idle_timeout: Length = "5 minutes"
    """With `listen`: a client that is silent for longer may be disconnected for one that waits."""
    max_pending: int = Field(default=64 << 20, ge=1)
    """With `listen`: bytes of unfinished lines of all clients."""


class StdinFrom(LinesFrom):
    """Lines from standard input."""

    type: Literal["stdin"]


class PythonFrom(Table):
    """Rows that a Python function yields. `bounded`: it ends, so that rows can be read by their own times."""

    type: Literal["python"]
    function: str
    """`module:name` of a function that yields rows."""
    options: Annotated[dict[str, Any], AfterValidator(checked_options)] = Field(default_factory=dict)
    """Arguments of the function. A secret is a reference to the environment, `${NAME}`."""
    bounded: bool = False
    """It ends, so that rows can be read by their own times."""
    keep_open: bool = False
    """Leave the stream open when the source ends; waiting results then stay."""


class LakeFrom(Table):
    """Rows of a table of a lake; with `follow`, those that are added later, too.

    `changes`: what to do with a version that deletes or updates rows.
    """

    follow: bool = False
    """Read rows that are added later; the stream has no end."""
    start: Literal["all", "new"] = "all"
    """`all` rows of the table, or only `new` ones."""
    changes: Literal["error", "skip"] = "error"
    """A version that deletes or updates rows: an error (HR-C024), or it is skipped."""
    poll: Seconds = 1.0
    """With `follow`: how often to look for new versions."""
    block_rows: int = Field(default=131_072, ge=1)
    """Rows that are read at once."""
    keep_open: bool = False
    """Leave the stream open when the source ends; waiting results then stay."""


class DeltaFrom(LakeFrom):
    """A Delta table."""

    type: Literal["delta"]
    path: str
    """The directory or URI of the table."""
    storage: TextOptions = Field(default_factory=dict)
    """Options of the object store. A secret is a reference to the environment, `${NAME}`."""


class IcebergFrom(LakeFrom):
    """An Iceberg table of a catalog."""

    type: Literal["iceberg"]
    table: str = Field(pattern=r"^[^.]+(\.[^.]+)+$")
    """`namespace.table`."""
    catalog: str = "default"
    """The name of the catalog."""
    options: TextOptions = Field(default_factory=dict)
    """Properties of the catalog. A secret is a reference to the environment, `${NAME}`."""


def _one_or_more(value: Any) -> Any:
    """Accept a string as short form: a list of one."""
    return [value] if isinstance(value, str) else value


MessageField = Literal["key", "headers", "topic", "partition", "offset", "timestamp"]


class KafkaFrom(Table):
    """Messages of Kafka topics; `metadata` names columns for what a message has besides its value."""

    type: Literal["kafka"]
    servers: str = Field(min_length=1)
    """Addresses of brokers, separated by commas."""
    topic: str | Annotated[list[str], Field(min_length=1)]
    """A topic, or a list of topics."""
    format: Literal["json", "csv", "avro", "raw"] = "json"
    """How the value of a message is written."""
    start: str | int = "earliest"
    """Where the first run starts: `earliest`, `latest`, or a time."""
    follow: bool = True
    """Wait for new messages. `false`: read up to the end that the topic has at the start."""
    metadata: dict[MessageField, str] = Field(default_factory=dict)
    """Columns for parts of a message: `{ key = "k", partition = "p" }`."""
    missing: Literal["error", "null"] = "error"
    """A column that a JSON value does not have: the message is rejected, or the value is NULL."""
    delimiter: str = Field(default=",", min_length=1, max_length=1)
    """CSV: what separates values."""
    avro_schema: str | None = None
    """Avro: a file with the schema that values were written with, as JSON."""
    avro_prefix: bool = False
    """Avro: values begin with the five bytes of a schema registry."""
    isolation: Literal["committed", "uncommitted"] = "committed"
    """Skip messages of open and aborted transactions, or read all."""
    max_message: int = Field(default=8 << 20, ge=1)
    """Bytes of the largest value; larger ones are rejected."""
    block_rows: int = Field(default=65_536, ge=1)
    """Messages that are read at once."""
    options: Options = Field(default_factory=dict)
    """Options of librdkafka. A secret is a reference to the environment, `${NAME}`."""
    keep_open: bool = False
    """Leave the stream open when the source ends; waiting results then stay."""

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
    """A format of Spark's `readStream`."""
    options: Options = Field(default_factory=dict)
    """Options of the format. A secret is a reference to the environment, `${NAME}`."""
    path: str | None = None
    """A path, if the format takes one."""
    keep_open: bool = False
    """Leave the stream open when the source ends; waiting results then stay."""


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
    """A source that ends: the past."""
    live: Live
    """A source for what comes after it."""
    until: str | int | datetime | None = None
    """Rows of `history` before this time count, and rows of `live` from it on; by default all of both."""
    keep_open: bool = False
    """Leave the stream open when the source ends; waiting results then stay."""

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
    """A file for JSON lines and CSV, a directory for Parquet and Arrow; or a URI."""
    format: FileFormat | None = None
    """By default from the extension of the path."""
    existing: Literal["error", "replace", "append"] = "error"
    """An output that exists at the first start: an error, replaced, or appended to."""
    time: str | None = None
    """A column to add, with the time of each result."""
    storage: StorageOptions = Field(default_factory=dict)
    """Options of the file system of a URI."""


class StdoutTo(Table):
    """Lines on standard output."""

    type: Literal["stdout"]
    format: Lines = "json"
    """How a row is written."""
    time: str | None = None
    """A column to add, with the time of each result."""


class NowhereTo(Table):
    """Nothing is written: `headrace.run` hands the results to the program. Files cannot name it."""

    type: Literal["nowhere"] = "nowhere"
    time: str | None = None


class PythonTo(Table):
    """A Python function that gets the rows of each commit."""

    type: Literal["python"]
    function: str
    """`module:name` of a function that is called with the rows of each commit."""
    options: Annotated[dict[str, Any], AfterValidator(checked_options)] = Field(default_factory=dict)
    """Arguments of the function. A secret is a reference to the environment, `${NAME}`."""
    time: str | None = None
    """A column to add, with the time of each result."""


class KeyedTo(Table):
    """A table. With a `key`, a row replaces the one with the same values in these columns."""

    key: list[str] = Field(default_factory=list)
    """A column, or a list of columns: a row replaces the one with the same key."""
    existing: Literal["error", "replace", "append"] = "append"
    """Rows that the table has at the first start: an error, deleted, or kept."""
    patience: Seconds = 60.0
    """How long a database or store that cannot be reached is waited for."""
    time: str | None = None
    """A column to add, with the time of each result."""

    @field_validator("key", mode="before")
    @classmethod
    def _columns(cls, value: Any) -> Any:
        """Accept a string as short form: one column."""
        return [value] if isinstance(value, str) else value


class TableTo(KeyedTo):
    """A table of a database. `operation`: a column that says whether a row replaces or deletes (`-D`)."""

    table: str = Field(pattern=r"^[^.]+(\.[^.]+)?$")
    """The table, or `schema.table`; it is created if it does not exist."""
    operation: str | None = None
    """A column that says whether a row replaces or deletes (`-D`) its key."""


def without_password(value: str) -> str:
    """Refuse a password in the file: it would be in checkpoints and in `explain`."""
    if _PASSWORD.search(value):
        raise ValueError("a password is not allowed here: write ${NAME}, a variable of the environment")
    return value


class PostgresTo(TableTo):
    """A table of PostgreSQL."""

    type: Literal["postgres"]
    url: str
    """`postgresql://user:${PASSWORD}@host/database`."""

    @field_validator("url")
    @classmethod
    def _secret(cls, value: str) -> str:
        return without_password(value)


class SqliteTo(TableTo):
    """A table of an SQLite file."""

    type: Literal["sqlite"]
    database: str
    """The path of the file."""


class DuckdbTo(TableTo):
    """A table of a DuckDB file."""

    type: Literal["duckdb"]
    database: str
    """The path of the file."""


class DeltaTo(KeyedTo):
    """A Delta table."""

    type: Literal["delta"]
    path: str
    """The directory or URI of the table."""
    storage: TextOptions = Field(default_factory=dict)
    """Options of the object store. A secret is a reference to the environment, `${NAME}`."""
    partition_by: list[str] = Field(default_factory=list)
    """Columns that a new table is partitioned by."""


class IcebergTo(KeyedTo):
    """An Iceberg table of a catalog."""

    type: Literal["iceberg"]
    table: str = Field(pattern=r"^[^.]+(\.[^.]+)+$")
    """`namespace.table`."""
    catalog: str = "default"
    """The name of the catalog."""
    options: TextOptions = Field(default_factory=dict)
    """Properties of the catalog. A secret is a reference to the environment, `${NAME}`."""


class KafkaTo(Table):
    """Messages in a topic, one for each row. `key`: the column, or columns, that messages are keyed by.

    `id` adds a column that is the same if a message is sent again. `delivery` matters on Spark only.
    """

    type: Literal["kafka"]
    servers: str = Field(min_length=1)
    """Addresses of brokers, separated by commas."""
    topic: str = Field(min_length=1)
    """The topic."""
    format: Literal["json", "raw"] = "json"
    """How the value of a message is written."""
    key: list[str] = Field(default_factory=list)
    """A column, or a list of columns, that messages are keyed by."""
    id: str | None = None
    """A column to add that is the same if a message is sent again."""
    delivery: Literal["exactly once", "at least once"] = "exactly once"
    """On Spark: in one transaction by the driver, or sent by the tasks."""
    transactional_id: str | None = None
    """How transactional ids begin; by default `headrace-` and the name of the pipeline."""
    patience: Seconds = 300.0
    """How long brokers that cannot be reached are waited for."""
    options: Options = Field(default_factory=dict)
    """Options of librdkafka. A secret is a reference to the environment, `${NAME}`."""
    time: str | None = None
    """A column to add, with the time of each result."""

    @field_validator("key", mode="before")
    @classmethod
    def _columns(cls, value: Any) -> Any:
        """Accept a string as short form: one column."""
        return _one_or_more(value)


class SparkTo(Table):
    """Any streaming sink of Spark, by format and options; for the runtime `spark` only."""

    type: Literal["spark"]
    format: str
    """A format of Spark that accepts batches."""
    options: Options = Field(default_factory=dict)
    """Options of the format. A secret is a reference to the environment, `${NAME}`."""
    path: str | None = None
    """A path, if the format takes one."""
    time: str | None = None
    """A column to add, with the time of each result."""


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
    """`external`: the row brings its time. `internal`: stamped on arrival. `latent`: none until needed."""
    column: str | None = None
    """The time column: a TIMESTAMP, or an integer with a `unit`."""
    unit: Literal["s", "ms", "us", "ns", "tick"] | None = None
    """What an integer counts; `tick` is for sequence numbers. The default is `us`."""
    earliest: str | int | None = None
    """Rows with an earlier time are rejected: a date, or a number."""

    @field_validator("earliest", mode="before")
    @classmethod
    def _written(cls, value: Any) -> Any:
        """A TOML date as text."""
        return value.isoformat() if hasattr(value, "isoformat") else value


class Estimate(Table):
    """Bounds learned from arrivals: lose a share `loss` of the rows, stay in [floor, ceiling]."""

    loss: float = Field(default=0.001, ge=0, lt=1)
    """The share of rows that may be late."""
    floor: Length = 0
    """The bound is at least this."""
    ceiling: Length | None = None
    """The bound is at most this."""
    half_life: int | None = Field(default=None, ge=1)
    """After how many rows what was learned counts half."""


def _as_estimate(value: Any) -> Any:
    """Accept `true` for the default estimate and `false` for none."""
    return {} if value is True else None if value is False else value


class BoundsOf(Table):
    """How late rows may be: behind the newest row of their stream, in time or in rows, and behind the clock.

    `transit` is how long a row may take from its source to here.
    """

    disorder: Length | None = None
    """A row is at most this far behind the newest row before it (Spark's watermark delay)."""
    slack: Rows | None = None
    """At most so many rows come between a row and its place in time order: `"100 rows"`."""
    latency: Length | None = None
    """A row is at most this far behind the clock when it arrives, so a silent stream holds nothing back."""
    transit: Length | None = None
    """A row takes at most this long from its source to here; the other bounds are then about the source."""
    fifo: bool = False
    """Rows arrive in the order in which they were sent, so `disorder` does not have to wait for `transit`."""
    skew: Length | None = None
    """The stream keeps pace with the clock to within this much."""
    estimate: Annotated[Estimate | None, BeforeValidator(_as_estimate)] = None
    """Learn the disorder from the rows: `true`, or a table."""


class SourcesOf(Table):
    """Sources by a column: bounds hold for each group of them. `idle`: a silent group no longer counts."""

    column: str
    """The column that names the source of a row."""
    groups: int = Field(default=GROUPS, ge=1, le=MOST_GROUPS)
    """The number of groups; a row is late if it is too far behind the newest row of its group."""
    idle: Length | None = None
    """A group without rows for this long does not hold the stream back."""
    choose: bool = True
    """Put sources that are slow alike into one group. `false`: groups by hash."""


def _as_sources(value: Any) -> Any:
    """Accept a string as short form: the name of the column."""
    return {"column": value} if isinstance(value, str) else value


class ShedOf(Table):
    """Load shedding: of the rows beyond a backlog of `above`, only a share `keep` is kept."""

    above: Annotated[str, BeforeValidator(checked_backlog)]
    """The backlog above which rows are dropped: `"100000 rows"` or `"64 MB"`."""
    keep: float = Field(default=0.0, ge=0, lt=1)
    """The share of the rows beyond it that is kept."""
    seed: int = Field(default=0, ge=0)
    """The same seed keeps the same rows."""


class PunctuationsOf(Table):
    """Rows that promise "no later row of this stream has these values": its own, or those of `stream`.

    `column`: only rows in which it is true. `pattern`: the columns, or `{ own column = column of the row }`.
    `data`: the rows are also data.
    """

    stream: str | None = None
    """The stream whose rows are the promises; by default this one."""
    column: str | None = None
    """Only rows in which this column is true are promises."""
    pattern: list[str] | dict[str, str] = Field(min_length=1)
    """The columns, or `{ column = "column of the row" }`."""
    data: bool = False
    """The rows are also data."""

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
    """A row with a time in this column promises that all later rows have later times."""
    data: bool = False
    """The rows are also data."""


class StreamSpec(Table):
    """`[streams.NAME]`."""

    of: str | None = None
    """Another stream: this one has its rows, read once, by a time of their own and with its own bounds."""
    source: Source
    """Where rows come from: a table of one of the types below, a path, or `"stdin"`."""
    columns: str | dict[str, str] = Field(alias="schema")
    """`"a BIGINT, b STRING"`, or a table `{ a = "BIGINT" }`."""
    time: TimeOf = Field(default_factory=TimeOf)
    """A column; `"internal"` or `"latent"`; or a table."""
    bounds: BoundsOf = Field(default_factory=BoundsOf)
    """How late rows may be. Without bounds, rows are expected in order."""
    sources: Annotated[SourcesOf | None, BeforeValidator(_as_sources)] = None
    """A column that names the source of a row: bounds then hold for each group of sources."""
    guard: Length | None = None
    """Rows with a time further ahead of the clock are rejected."""
    enforcement: Literal["strict", "admit"] = "strict"
    """Late rows: set apart, or used where a result is still open."""
    arrival: str | None = None
    """A column with the recorded instant at which the row arrived."""
    idle: str | None = None
    """When the stream makes a watermark without rows: `on_demand`, `periodic(5 seconds)` or `none`."""
    shed: ShedOf | None = None
    """Which rows to drop when they come too fast."""
    punctuations: Annotated[list[PunctuationsOf], BeforeValidator(_as_list)] = Field(default_factory=list)
    """Rows that promise that no later row has these values; a table, or a list of tables."""
    heartbeats: HeartbeatsOf | None = None
    """Rows that promise that all later rows have later times."""

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
    """Letters, digits, `_`, `-`, `.`"""
    runtime: Literal["spark", "embedded"] | None = None
    """`spark` by default; `embedded`, with a note, if pyspark is not installed."""
    checkpoint: str | None = None
    """A directory that lets a run continue where it stopped. Without it, a stopped run starts over."""
    interval: Seconds | None = None
    """Commit after this time. The default is 0.5 s, with a Delta or Iceberg sink 10 s."""
    every_rows: int | None = Field(default=None, ge=1)
    """Commit after this many rows, if that is sooner."""
    clock: Literal["system", "event", "arrival"] | None = None
    """What "now" is; by default it depends on the sources."""
    record: str | None = None
    """A directory in which the run is recorded, for `headrace replay`."""
    strategy: str = "auto"
    """Which operator runs next: `auto`, `dfs`, `bfs`, `rr`, or with a batch size `dfs(100)`."""
    level: str = "operator"
    """Whose watermarks an operator waits for: `operator`, `query` or `memory`."""
    propagation: str = "direct"
    """How watermarks travel: `direct` or `in_band`."""
    reoptimize: bool | Annotated[int, Field(ge=1)] = False
    """Reorder joins and conditions by measurements; a number says after how many rows."""


class SkewBound(Table):
    """A set of pairs (t, δ) of one stream on another: after t, or n rows, it is less than δ behind."""

    of: str
    """The stream whose rows prove something."""
    on: str
    """The stream that they prove it about."""
    pairs: list[tuple[Wait, Length]] = Field(min_length=1)
    """Pairs (t, δ): t after a row of `of`, or after n rows of `on`, `on` is less than δ behind it."""


class AdjustOf(Table):
    """When `window` changes by itself: doubled if too many estimates were too low, halved if they fall."""

    exceeded: float = Field(default=0.01, gt=0, lt=1)
    """`window` doubles if more than this share of the estimates were too low."""
    falling: int = Field(default=4, ge=1)
    """`window` halves after so many falls in a row."""
    least: int = Field(default=16, ge=1)
    """The smallest `window`."""
    most: int = Field(default=1 << 20, ge=1)
    """The largest `window`."""


def _as_adjust(value: Any) -> Any:
    """Accept `true` for the defaults and `false` for none."""
    return {} if value is True else None if value is False else value


class SkewEstimate(Table):
    """Bounds between streams that are learned from arrivals, for waits up to `horizon` in steps of `tick`.

    With a `window`, an estimate that was too large for this many rows, or this long, falls; `alpha` is the
    weight of the old one. `streams`: by default, those without bounds of their own.
    """

    horizon: Length
    """How long after a row of one stream the others are compared with it."""
    tick: Length | None = None
    """The steps in which this time is divided; by default a tenth of `horizon`."""
    window: Annotated[int, Field(ge=1)] | str | None = None
    """How many rows in a row, or for how long all rows, must need less before an estimate falls (W)."""
    alpha: float = Field(default=0.5, ge=0, le=1)
    """The weight of the old estimate when it falls (α)."""
    adjust: Annotated[AdjustOf | None, BeforeValidator(_as_adjust)] = None
    """Let `window` change by itself: `true`, or a table."""
    streams: list[str] | None = Field(default=None, min_length=1)
    """The streams that are learned about; by default those without bounds."""


class SkewTable(Table):
    """`[skew]`: what streams promise about each other, and the timeout after a pause of all.

    `groups`: streams that share one heartbeat; a stream that is in none has its own. `tick` coarsens the
    clock.
    """

    timeout: Length | None = None
    """When all streams have been silent for this long, all waiting results come out."""
    closure: bool = True
    """Use what follows from several bounds together."""
    bounds: list[SkewBound] = Field(default_factory=list)
    """What one stream proves about another."""
    groups: list[Annotated[list[str], Field(min_length=1)]] = Field(default_factory=list)
    """Lists of streams that share one watermark."""
    tick: Length | None = None
    """Coarsens the clock of the bounds: less memory, and watermarks come up to a tick later."""
    estimate: SkewEstimate | None = None
    """Learn bounds between streams from arrivals."""


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
    """Where its rows are; `stream` is assumed if there is a key `stream`."""
    path: str | None = None
    """file: CSV, JSON lines, Parquet or Arrow."""
    url: str | None = None
    """postgres: the address of the database."""
    database: str | None = None
    """sqlite, duckdb: the path of the file."""
    query: str | None = None
    """postgres, sqlite, duckdb: a query that returns the rows."""
    stream: str | None = None
    """stream: the stream of changes."""
    key: list[str] | None = None
    """stream: a column or a list of columns; the table has the newest row of each key."""
    format: str | None = None
    """stream: what a row does: `upsert`, `kafka`, `debezium`, `flink` or `stream`."""
    operation: str | None = None
    """stream: the column with the operation."""
    delete: str | None = None
    """stream: a condition; a row for which it is true deletes its key."""
    ignore: str | None = None
    """stream: a condition; a row for which it is true changes nothing."""
    columns: str | dict[str, str] | None = Field(default=None, alias="schema")
    """Its columns; by default those of the file."""
    reload: bool | Seconds = False
    """Read it again by command (`true`), or also on a schedule (`"10 minutes"`)."""

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
    """`module:name`."""
    result: str | None = None
    """The type of the result, such as `"double"`."""
    arguments: list[str] | None = None
    """The types of the arguments; by default any."""
    deterministic: bool = False
    """The same arguments always give the same result."""
    scalar: bool = False
    """The function takes the values of one row, not Arrow arrays."""


def _as_aggregate(value: Any) -> Any:
    """Accept a string as short form: the class."""
    return {"class": value} if isinstance(value, str) else value


class AggregateSpec(Table):
    """`[aggregates.NAME]`: a Python class that queries can call as an aggregate; its types, or those here."""

    definition: str = Field(alias="class")
    """`module:name` of the class."""
    result: str | None = None
    """The type of the result, if the class does not say it."""
    arguments: list[str] | None = None
    """The types of the arguments, if the class does not say them."""


class QuerySpec(Table):
    """`[[queries]]`."""

    name: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """Letters, digits, `_`."""
    sql: str | None = None
    """The query, in CQL."""
    sql_file: str | None = None
    """The file that holds it, in place of `sql`."""
    sink: Sink
    """Where results go: a table of one of the types below, a path, or `"stdout"`."""
    late: Sink | None = None
    """Where late rows go. Without it they are counted and not kept."""
    rejected: Sink | None = None
    """Where rejected rows go. Without it they are counted and not kept."""
    ordered: bool = True
    """Results in time order. `false`: none waits for its place in it, as with `UNORDERED(…)` in the query,
    and groups by source are answered when their own source is complete."""
    importance: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """How much its quality counts where the budget makes windows smaller; by default 1."""
    deadline: str | int | None = None
    """How long after the arrival of a row its results are wanted, such as `"2 s"`; for `strategy = "edf"`."""
    share: float = 1.0
    """How much of the work the query gets under load, relative to others."""
    priority: int = 0
    """Queries with a higher number go first, as long as they stay within their share."""
    strategy: str | None = None
    """The strategy of its operators, where it is not that of the pipeline."""
    breaks: list[str] = Field(default_factory=list)
    """The kinds of operators after which its paths are cut (break nodes), such as `["join"]`."""


class MemoryTable(Table):
    """`[memory]`: what state may take, what to do if the least windows need more, and where state spills."""

    budget: str | int | None = None
    """Memory for the queries: bytes, `"64 MB"`, or a share, `"25 %"`."""
    policy: Literal["fail", "spill"] = "fail"
    """If even the smallest windows need more: an error, or state spills to disk."""
    spill: str | None = None
    """A directory for spilled state; by default next to the checkpoint."""


class SparkTable(Table):
    """`[spark]`: how a run on Spark is started; the embedded runtime ignores it.

    `shards`: into how many shards state is divided, from the first start on. `trigger`: the shortest time
    between two micro-batches. `settings`, `jars` and `packages` are those of the session. `sources`: by
    stream, options of Spark's source.
    """

    shards: int | None = Field(default=None, ge=1)
    """Into how many shards state is divided; the first run fixes it. By default the number of cores."""
    trigger: Seconds | None = None
    """The shortest time between two micro-batches."""
    settings: Options = Field(default_factory=dict)
    """Settings of the Spark session by their full names."""
    jars: Annotated[list[str], BeforeValidator(_one_or_more)] = Field(default_factory=list)
    """A path or pattern, or a list of them."""
    packages: Annotated[list[str], BeforeValidator(_one_or_more)] = Field(default_factory=list)
    """Maven packages, as `group:artifact:version`."""
    sources: dict[str, Options] = Field(default_factory=dict)
    """By stream, options of Spark's source."""


class FileSpec(Table):
    """The whole file."""

    pipeline: PipelineTable
    """The run as a whole."""
    streams: dict[str, StreamSpec] = Field(min_length=1)
    """The streams, by name."""
    tables: dict[str, Annotated[TableSpec, BeforeValidator(_as_table)]] = Field(default_factory=dict)
    """Tables that queries join with streams, by name."""
    functions: dict[str, FunctionSpec] = Field(default_factory=dict)
    """Python functions that queries call, by name."""
    aggregates: dict[str, Annotated[AggregateSpec, BeforeValidator(_as_aggregate)]] = Field(
        default_factory=dict
    )
    """Python classes that queries call as aggregates, by name."""
    skew: SkewTable = Field(default_factory=SkewTable)
    """What streams promise about each other."""
    queries: list[QuerySpec] = Field(min_length=1)
    """The queries; a list."""
    memory: MemoryTable = Field(default_factory=MemoryTable)
    """The memory budget."""
    spark: SparkTable = Field(default_factory=SparkTable)
    """How a run on Spark is started; the embedded runtime ignores it."""

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
