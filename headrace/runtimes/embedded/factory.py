"""Builds sources, sinks and feeds of this runtime from the tables of a pipeline file."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from headrace.connectors.ahead import ReadAhead
from headrace.connectors.contract import Commit, Sink, Source
from headrace.connectors.databases import DatabaseTarget
from headrace.connectors.delta import DeltaLog, DeltaTarget
from headrace.connectors.files import FilesSource
from headrace.connectors.finished import FinishedFiles
from headrace.connectors.formats import SUFFIXES, Format
from headrace.connectors.history import LIVE, PAST, Cut, history_then_live
from headrace.connectors.iceberg import IcebergLog, IcebergTarget
from headrace.connectors.kafka.client import Settings
from headrace.connectors.kafka.encode import MessageFormat
from headrace.connectors.kafka.messages import MessageRows
from headrace.connectors.kafka.sink import KafkaTarget
from headrace.connectors.kafka.source import KafkaSource
from headrace.connectors.kafka.values import ValueFormat, avro_text
from headrace.connectors.lakes import LakeLog, LakeSource
from headrace.connectors.live import LiveLines, StandardInput
from headrace.connectors.nexmark import Laws, NexmarkGenerator
from headrace.connectors.nexmark.source import NexmarkSource
from headrace.connectors.poisson import PoissonSource
from headrace.connectors.python_functions import OpensSource, PythonSource, PythonTarget
from headrace.connectors.remote import ObjectsTarget, RemoteFilesSource, is_remote, storage_of
from headrace.connectors.sinks import WRITERS, FileSink, NoSink, PartsSink, StandardOutput
from headrace.connectors.spool import Spool
from headrace.connectors.staged import StagedSink, Target
from headrace.connectors.tcp import Limits, TcpClient, TcpServer
from headrace.errors import HeadraceError, PipelineError
from headrace.pipeline import Pipeline, PipelineQuery, PipelineStream
from headrace.pipeline import spec as file
from headrace.pipeline.load import instant
from headrace.pipeline.secrets import revealed, revealed_options
from headrace.runtimes.embedded.feeds import ArrivalFeed, EventFeed, Feed, SystemFeed
from headrace.runtimes.embedded.inflow import Inflow
from headrace.runtimes.embedded.outputs import Outputs, QueryOutputs
from headrace.runtimes.embedded.shedding import Shed, Shedder
from headrace.runtimes.embedded.timing import Timing
from headrace.schema import Schema
from headrace.spill.directory import DirectorySpillStore
from headrace.time.clock import Clock
from headrace.time.durations import ticks
from headrace.time.timestamp import MAX_TIME

GENERATED_GRAIN: Final = 10_000
"""Ticks between the instants of generated rows: one instant per microsecond would cost too much."""


class PipelineFactory:
    """Opens sources and sinks of a pipeline. `started`: the time of its first start; `say` gets notes."""

    def __init__(
        self,
        pipeline: Pipeline,
        clock: Clock,
        started: int,
        into: Path | None = None,
        say: Callable[[str], None] = lambda message: None,
    ) -> None:
        self.pipeline, self.clock, self.started, self.into = pipeline, clock, started, into
        self.say = say
        self.spools: dict[str, Spool] = {}
        """By stream, the spools of streams that cannot be read again."""
        self.finished: dict[str, FinishedFiles] = {}
        """By stream, the finished files of streams that are read from files."""
        self._names: dict[Path, str] = {}

    # --- clocks and feeds

    @property
    def kind(self) -> str:
        """The clock of the run: as set in the file, or else the one that fits the sources."""
        chosen = self.pipeline.spec.pipeline.clock
        if chosen is not None:
            return chosen
        streams = self.pipeline.read.values()
        if any((s.spec.arrival is not None and not goes_live(s)) or _makes_instants(s) for s in streams):
            return "arrival"
        recorded = all(s.external and is_bounded(s) for s in streams)
        return "event" if recorded or self.pipeline.ticks_per_second is None else "system"

    def feed(self) -> Feed:
        """The sources, combined by the clock."""
        inflows = [self.inflow(stream) for stream in self.pipeline.read.values() if stream.of is None]
        return FEEDS[self.kind](self, inflows)

    def add_to(self, feed: Feed, stream: PipelineStream) -> None:
        """Read one more stream."""
        shedder = None if stream.shed is None else Shedder(Shed(**stream.shed))
        feed.add(self.inflow(stream), shedder, _is_paced(stream))

    def inflow(self, stream: PipelineStream) -> Inflow:
        """The source of a stream, with the times of its rows and the instants at which they arrive."""
        spec = stream.spec
        arrival = spec.arrival if self.kind == "arrival" or goes_live(stream) else None
        schema, unit = stream.schema, None
        if arrival is not None and arrival not in schema.names:
            column = stream.definition.time_column
            schema = schema.append(pa.field(arrival, schema.field(column).type if column else pa.int64()))
        if arrival is not None and self.pipeline.ticks_per_second is not None:
            unit = stream.unit
        return Inflow(
            stream.name,
            self.source(stream, schema),
            stream.schema,
            self._timing(stream),
            arrival=arrival,
            arrival_unit=unit,
            grain=GENERATED_GRAIN if _makes_instants(stream) and self.kind == "arrival" else 1,
            keep_open=spec.source.keep_open,
        )

    def _timing(self, stream: PipelineStream) -> Timing | None:
        """How to read the time column of a stream, or None if it has none."""
        column = stream.definition.time_column
        if column is None:
            return None
        latest = None
        if self.kind == "event" and stream.rules.guard != MAX_TIME and self.pipeline.ticks_per_second:
            latest = self.started + stream.rules.guard
        return Timing(column, stream.unit, tuple(stream.schema.names), stream.earliest, latest)

    # --- sources

    def source(self, stream: PipelineStream, schema: Schema) -> Source:
        """The source of a stream, reading `schema`."""
        make = SOURCES.get(type(stream.spec.source))
        if make is None:
            raise PipelineError(
                "HR-F017",
                f"the embedded runtime has no source of type {stream.spec.source.type!r}",
                place=f"streams.{stream.name}.source",
                hint="use files, kafka, a generator, tcp, stdin, python, delta or iceberg; "
                'or runtime = "spark"',
            )
        return make(self, stream, schema)

    # --- sinks

    def outputs(self) -> Outputs:
        """All sinks of all queries."""
        return Outputs([self.query_outputs(query) for query in self.pipeline.queries])

    def query_outputs(self, query: PipelineQuery) -> QueryOutputs:
        """The outputs of a query, with a sink for results, late rows and rejected rows."""
        spec = query.spec
        return QueryOutputs(
            query.name,
            query.query.schema,
            frozenset(query.streams),
            self.sink(spec.sink, f"queries.{query.name}.sink"),
            self.sink(spec.late, f"queries.{query.name}.late"),
            self.sink(spec.rejected, f"queries.{query.name}.rejected"),
            spec.sink.time,
            self.pipeline.ticks_per_second is not None,
        )

    def sink(self, spec: Any, place: str) -> Sink:
        """The sink, or one that drops all rows if none is set."""
        if self.into is not None and isinstance(spec, STAGED):
            return FileSink(self.output_path(f"{place.removeprefix('queries.')}.jsonl", place))
        make = SINKS.get(type(spec))
        if make is None:
            raise PipelineError(
                "HR-F017",
                "the embedded runtime has no sink of type 'spark'",
                place=place,
                hint='use files, stdout, kafka, python, a database, delta or iceberg, or runtime = "spark"',
            )
        return make(self, spec, place)

    def leave(self, queries: Iterable[Mapping[str, Any]], commits: Mapping[str, Commit]) -> None:
        """Outputs that the pipeline no longer has keep what was committed, and nothing after it."""
        for table in queries:
            query, place = file.QuerySpec.model_validate(table), f"queries.{table['name']}"
            for output, spec in (("sink", query.sink), ("late", query.late), ("rejected", query.rejected)):
                commit = commits.get(f"{query.name}/{output}")
                if isinstance(spec, CUT) and commit is not None:
                    _cut(self, spec, f"{place}.{output}", commit)

    def output_path(self, written: str, place: str) -> Path:
        """The path of an output: as set in the file, or the same name under `into`."""
        if self.into is None:
            return self.pipeline.path(written)
        path = self.into / Path(written).name
        if self._names.setdefault(path, place) != place:
            raise PipelineError(
                "HR-F015",
                f"two outputs are named {path.name!r}, and a replay would write both to {self.into}",
                place=f"{self._names[path]}, {place}",
                hint="rename one output in the pipeline file and record the run again",
            )
        return path


def _cut(opening: PipelineFactory, spec: Any, place: str, commit: Commit) -> None:
    """Bring an output that is not written to any more to its last commit."""
    sink: Sink | None = None
    try:
        sink = opening.sink(spec, place)
        sink.cut(commit)
    except HeadraceError as error:
        opening.say(f"an output of the pipeline as it was before: {error.message} ({error.place})")
    finally:
        if sink is not None:
            sink.close()


def _makes_instants(stream: PipelineStream) -> bool:
    """True for a generator that runs as fast as it can, on the instants of its own rows."""
    source = stream.spec.source
    return isinstance(source, file.PoissonFrom | file.NexmarkFrom) and source.pace == "fast"


def _is_paced(stream: PipelineStream) -> bool:
    """True for a generator whose rows are released in real time."""
    source = stream.spec.source
    return isinstance(source, file.PoissonFrom | file.NexmarkFrom) and source.pace == "real"


def is_bounded(stream: PipelineStream) -> bool:
    """True if the source ends by itself: files that are not followed, or a function that is bounded."""
    source = stream.spec.source
    if isinstance(source, file.HistoryFrom):
        source = source.live
    if source.keep_open:
        return False
    if isinstance(source, file.PythonFrom):
        return source.bounded
    return isinstance(source, file.FilesFrom | file.LakeFrom) and not source.follow


def goes_live(stream: PipelineStream) -> bool:
    """True if the stream has a past and then goes on without end: recorded arrivals are those of the past."""
    return isinstance(stream.spec.source, file.HistoryFrom) and not is_bounded(stream)


def format_of(written: str | None, path: str, place: str) -> str:
    """The format as written in the pipeline file, or else by the suffix of the path."""
    found = written or SUFFIXES.get(Path(path).suffix.lower())
    if found is None:
        raise PipelineError(
            "HR-F018",
            f"cannot tell the format of {path!r}",
            place=place,
            hint='use .jsonl, .csv, .parquet or .arrow, or set format to "json", "csv", "parquet" or "arrow"',
        )
    return found


def how_of(spec: Any, name: str) -> Format:
    """How the lines of a source are read."""
    return Format(name, spec.missing, spec.delimiter, spec.header, spec.max_line)


def _files(opening: PipelineFactory, stream: PipelineStream, schema: Schema) -> Source:
    """A source of files; one that ends is read ahead."""
    spec: Any = stream.spec.source
    place = f"streams.{stream.name}.source"
    if is_remote(spec.path):
        return _remote_files(opening, stream, schema)
    path = opening.pipeline.path(spec.path)
    name = format_of(spec.format, any_file(path), place)
    how = replace(how_of(spec, name), block=spec.block_bytes, rows=spec.block_rows, most=spec.max_block)
    source = FilesSource(
        str(path),
        schema,
        how,
        spec.follow or spec.keep_open,
        spec.order,
        opening.pipeline.root,
        opening.finished.setdefault(stream.name, FinishedFiles(_beside(opening, "files"), stream.name)),
        opening.say,
    )
    return ReadAhead(source) if source.bounded else source


def _remote_files(opening: PipelineFactory, stream: PipelineStream, schema: Schema) -> Source:
    """A source of objects of a store."""
    spec: Any = stream.spec.source
    place = f"streams.{stream.name}.source"
    how = how_of(spec, format_of(spec.format, spec.path, place))
    source = RemoteFilesSource(
        spec.path,
        schema,
        replace(how, block=spec.block_bytes, rows=spec.block_rows, most=spec.max_block),
        spec.follow or spec.keep_open,
        spec.order,
        storage_of(spec.path, revealed_options(spec.storage, f"{place}.storage")),
        opening.finished.setdefault(stream.name, FinishedFiles(_beside(opening, "files"), stream.name)),
        opening.say,
        opening.clock.now,
        spec.poll,
    )
    return ReadAhead(source) if source.bounded else source


def any_file(path: Path) -> str:
    """The path, or for a directory a file in it whose suffix shows the format."""
    if path.is_dir():
        names = sorted(p.name for p in path.iterdir() if not p.name.startswith((".", "_")))
        return next((name for name in names if Path(name).suffix.lower() in SUFFIXES), str(path))
    return str(path)


def _poisson(opening: PipelineFactory, stream: PipelineStream, schema: Schema) -> Source:
    """Generated rows; in real time they start at the start of the run."""
    spec: Any = stream.spec.source
    start = opening.started if spec.pace == "real" and not spec.start else _instant(spec.start)
    disorder = ticks(spec.disorder, opening.pipeline.ticks_per_second)
    return PoissonSource(
        stream.schema,
        spec.rate,
        spec.rows,
        spec.seed,
        start,
        disorder,
        spec.keys,
        stream.definition.time_column,
        stream.unit or 1_000_000,
    )


def _nexmark(opening: PipelineFactory, stream: PipelineStream, schema: Schema) -> Source:
    spec: Any = stream.spec.source
    house = NexmarkGenerator(
        seed=spec.seed,
        disorder=spec.disorder,
        delayed=spec.delayed,
        delay=ticks(spec.delay, 1_000_000),
        laws=Laws(rate=spec.rate, base=opening.started) if spec.pace == "real" else Laws(rate=spec.rate),
    )
    return NexmarkSource(house, spec.stream, stream.schema, spec.events)


def _instant(written: str | int) -> int:
    """A time from the pipeline file in microseconds; 0 if it is empty."""
    return instant(written, 1_000_000) or 0


def _tcp(opening: PipelineFactory, stream: PipelineStream, schema: Schema) -> Source:
    """A TCP server that accepts clients, or a client of one, with a spool if there are checkpoints."""
    spec: Any = stream.spec.source
    wire: TcpServer | TcpClient
    if spec.listen:
        idle = ticks(spec.idle_timeout, 1_000_000) / 1_000_000
        limits = Limits(spec.max_line, spec.max_clients, idle, spec.max_pending)
        wire = TcpServer(spec.host, spec.port, limits)
    else:
        wire = TcpClient(spec.host, spec.port)
    return LiveLines(wire, schema, how_of(spec, spec.format), not spec.listen, _spool(opening, stream.name))


def _stdin(opening: PipelineFactory, stream: PipelineStream, schema: Schema) -> Source:
    spec: Any = stream.spec.source
    return LiveLines(StandardInput(), schema, how_of(spec, spec.format), spool=_spool(opening, stream.name))


def _python(opening: PipelineFactory, stream: PipelineStream, schema: Schema) -> Source:
    spec: Any = stream.spec.source
    place = f"streams.{stream.name}.source"
    found = _function(opening.pipeline, spec, place)
    if isinstance(found, OpensSource):
        return found.open_source(schema)
    return PythonSource(found, schema, place, bounded=spec.bounded)


def _lake(opening: PipelineFactory, stream: PipelineStream, schema: Schema) -> Source:
    spec: Any = stream.spec.source
    return LakeSource(
        lake_of(opening.pipeline, stream),
        schema,
        follow=spec.follow or spec.keep_open,
        new=spec.start == "new",
        block_rows=spec.block_rows,
        poll=spec.poll,
        now=opening.clock.now,
    )


def lake_of(pipeline: Pipeline, stream: PipelineStream) -> LakeLog:
    """The log of the table that a stream is read from."""
    spec, place = stream.spec.source, f"streams.{stream.name}.source"
    if isinstance(spec, file.DeltaFrom):
        storage = revealed_options(spec.storage, f"{place}.storage")
        return DeltaLog(located(pipeline, spec.path), storage, spec.changes, spec.block_rows, place)
    assert isinstance(spec, file.IcebergFrom)
    options = revealed_options(spec.options, f"{place}.options")
    return IcebergLog(spec.catalog, options, spec.table, spec.changes, place)


def located(pipeline: Pipeline, written: str) -> str:
    """A path of the file system, or a URI as it is."""
    return written if "://" in written else str(pipeline.path(written).absolute())


def _function(pipeline: Pipeline, spec: Any, place: str) -> Any:
    """The function of a source or sink, with its options; a class is called with them.

    It was found when the file was loaded. A sink of a checkpoint that the file does not name is not imported.
    """
    found = pipeline.functions.only_known().find(spec.function)
    options = revealed_options(spec.options, f"{place}.options")
    if isinstance(found, type):
        return found(**options)
    return functools.partial(found, **options) if options else found


def _kafka(opening: PipelineFactory, stream: PipelineStream, schema: Schema) -> Source:
    """The topics of a Kafka cluster."""
    spec: Any = stream.spec.source
    place = f"streams.{stream.name}.source"
    return KafkaSource(
        kafka_settings(spec, place),
        spec.topics,
        MessageRows(schema, kafka_format(opening.pipeline, spec), spec.metadata, place),
        opening.clock.now,
        kafka_start(spec),
        spec.follow or spec.keep_open,
        spec.isolation,
        spec.block_rows,
        opening.say,
    )


def kafka_format(pipeline: Pipeline, spec: file.KafkaFrom) -> ValueFormat:
    """How the values of messages are written."""
    avro = None if spec.avro_schema is None else avro_text(pipeline.path(spec.avro_schema))
    return ValueFormat(spec.format, spec.missing, spec.delimiter, avro, spec.avro_prefix, spec.max_message)


def kafka_start(spec: file.KafkaFrom) -> str | int:
    """Where a first run begins: `earliest`, `latest`, or milliseconds."""
    return spec.start if spec.start in ("earliest", "latest") else _instant(spec.start) // 1000


def kafka_settings(spec: Any, place: str) -> Settings:
    """How to reach the brokers of a source or sink."""
    options = revealed_options(spec.options, f"{place}.options")
    return Settings(revealed(spec.servers, f"{place}.servers"), options, place)


def _history(opening: PipelineFactory, stream: PipelineStream, schema: Schema) -> Source:
    """A finite past, and then a live source."""
    past, live = (opening.source(part_of(stream, part), schema) for part in (PAST, LIVE))
    return history_then_live(past, live, schema, cut_of(opening.pipeline, stream))


def part_of(stream: PipelineStream, part: str) -> PipelineStream:
    """The history of a stream, or its live continuation, as a stream of its own."""
    source = stream.spec.model_copy(update={"source": getattr(stream.spec.source, part)})
    return replace(stream, spec=source, definition=replace(stream.definition, name=f"{stream.name}.{part}"))


def cut_of(pipeline: Pipeline, stream: PipelineStream) -> Cut | None:
    """The instant between the history of a stream and its live continuation, if the file says it."""
    spec, column = stream.spec.source, stream.definition.time_column
    assert isinstance(spec, file.HistoryFrom)
    if spec.until is None or column is None:
        return None
    written = spec.until.isoformat() if isinstance(spec.until, datetime) else spec.until
    until = instant(written, pipeline.ticks_per_second)
    return None if until is None else Cut(column, stream.unit, until)


def _spool(opening: PipelineFactory, name: str) -> Spool | None:
    """The spool of a live stream, if there are checkpoints: lines are stored before they are used."""
    folder = _beside(opening, "spool")
    return None if folder is None else opening.spools.setdefault(name, Spool(folder, name))


def _beside(opening: PipelineFactory, name: str) -> Path | None:
    """A directory inside the checkpoint directory, if there is one."""
    checkpoint = opening.pipeline.spec.pipeline.checkpoint
    return (
        None if checkpoint is None or opening.into is not None else opening.pipeline.path(checkpoint) / name
    )


SOURCES: Final[dict[type[Any], Callable[[PipelineFactory, PipelineStream, Schema], Source]]] = {
    file.FilesFrom: _files,
    file.PoissonFrom: _poisson,
    file.NexmarkFrom: _nexmark,
    file.TcpFrom: _tcp,
    file.StdinFrom: _stdin,
    file.PythonFrom: _python,
    file.DeltaFrom: _lake,
    file.IcebergFrom: _lake,
    file.KafkaFrom: _kafka,
    file.HistoryFrom: _history,
}


def _files_to(opening: PipelineFactory, spec: Any, place: str) -> Sink:
    """A sink for files: a directory of parts for formats that cannot be appended to, else one file."""
    name = format_of(spec.format, spec.path, place)
    if is_remote(spec.path) and opening.into is None:
        return _staged(opening, spec, place)
    path = opening.output_path(spec.path, place)
    return PartsSink(path, name, spec.existing) if name in WRITERS else FileSink(path, name, spec.existing)


def _python_to(pipeline: Pipeline, spec: Any, place: str) -> Target:
    return PythonTarget(_function(pipeline, spec, place), place)


def _postgres_to(pipeline: Pipeline, spec: Any, place: str) -> Target:
    return _table_to(spec, revealed(spec.url, f"{place}.url"), place)


def _file_database_to(pipeline: Pipeline, spec: Any, place: str) -> Target:
    return _table_to(spec, str(pipeline.path(spec.database).absolute()), place)


def _table_to(spec: Any, connect_to: str, place: str) -> Target:
    """A table of a database."""
    key = tuple(spec.key)
    return DatabaseTarget(
        spec.type, connect_to, spec.table, key, spec.existing, spec.patience, place, spec.operation
    )


def _delta_to(pipeline: Pipeline, spec: Any, place: str) -> Target:
    return DeltaTarget(
        located(pipeline, spec.path),
        revealed_options(spec.storage, f"{place}.storage"),
        tuple(spec.key),
        tuple(spec.partition_by),
        spec.existing,
        spec.patience,
        place,
    )


def _iceberg_to(pipeline: Pipeline, spec: Any, place: str) -> Target:
    options = revealed_options(spec.options, f"{place}.options")
    return IcebergTarget(
        spec.catalog, options, spec.table, tuple(spec.key), spec.existing, spec.patience, place
    )


def _kafka_to(pipeline: Pipeline, spec: Any, place: str) -> Target:
    """A topic."""
    id = spec.transactional_id or f"headrace-{pipeline.name}"
    return KafkaTarget(kafka_settings(spec, place), spec.topic, message_format(spec), id, spec.patience)


def message_format(spec: file.KafkaTo) -> MessageFormat:
    """How rows become messages."""
    return MessageFormat(spec.format, tuple(spec.key), spec.id)


TARGETS: Final[dict[type[Any], Callable[[Pipeline, Any, str], Target]]] = {
    file.PythonTo: _python_to,
    file.PostgresTo: _postgres_to,
    file.SqliteTo: _file_database_to,
    file.DuckdbTo: _file_database_to,
    file.DeltaTo: _delta_to,
    file.IcebergTo: _iceberg_to,
    file.KafkaTo: _kafka_to,
}
"""Sinks that take the rows of a commit at once, on both runtimes."""
STAGED: Final[tuple[type[Any], ...]] = tuple(TARGETS)
CUT: Final[tuple[type[Any], ...]] = (file.FilesTo, *STAGED)
"""Sinks that must be brought to their last commit when they are no longer written to."""


def target_of(pipeline: Pipeline, spec: Any, place: str) -> Target:
    """The target that a table of the file describes."""
    if isinstance(spec, file.FilesTo):
        storage = storage_of(spec.path, revealed_options(spec.storage, f"{place}.storage"))
        return ObjectsTarget(spec.path, format_of(spec.format, spec.path, place), storage, spec.existing)
    return TARGETS[type(spec)](pipeline, spec, place)


def _staged(opening: PipelineFactory, spec: Any, place: str) -> Sink:
    """A sink that stages the rows of a commit until it is decided."""
    folder = _beside(opening, "staged")
    return StagedSink(
        target_of(opening.pipeline, spec, place),
        None if folder is None else folder / place.removeprefix("queries."),
    )


SINKS: Final[dict[type[Any], Callable[[PipelineFactory, Any, str], Sink]]] = {
    file.FilesTo: _files_to,
    file.NowhereTo: lambda opening, spec, place: NoSink(),
    file.StdoutTo: lambda opening, spec, place: StandardOutput(spec.format),
    type(None): lambda opening, spec, place: NoSink(),
    **dict.fromkeys(STAGED, _staged),
}


def _system(opening: PipelineFactory, inflows: list[Inflow]) -> Feed:
    """The feed on the system's clock; streams paced in real time release rows when they are due."""
    paced = frozenset(name for name, stream in opening.pipeline.read.items() if _is_paced(stream))
    policies = {name: stream.shed for name, stream in opening.pipeline.read.items()}
    shedders = {name: Shedder(Shed(**shed)) for name, shed in policies.items() if shed is not None}
    return SystemFeed(inflows, clock=opening.clock, paced=paced, shedders=shedders)


FEEDS: Final[dict[str, Callable[[PipelineFactory, list[Inflow]], Feed]]] = {
    "system": _system,
    "event": lambda opening, inflows: EventFeed(inflows),
    "arrival": lambda opening, inflows: ArrivalFeed(inflows),
}


def spill_store_of(pipeline: Pipeline) -> DirectorySpillStore | None:
    """The spill store, if the policy is `spill`: in the directory set in the file, else in the checkpoint."""
    memory, checkpoint = pipeline.spec.memory, pipeline.spec.pipeline.checkpoint
    if memory.budget is None or memory.policy != "spill":
        return None
    if memory.spill is not None:
        return DirectorySpillStore(pipeline.path(memory.spill))
    return DirectorySpillStore(
        pipeline.path(checkpoint) / "spill" if checkpoint else Path(tempfile.gettempdir())
    )
