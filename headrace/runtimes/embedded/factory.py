"""Builds sources, sinks and feeds of this runtime from the tables of a pipeline file."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from headrace.connectors.ahead import ReadAhead
from headrace.connectors.contract import Commit, Sink, Source
from headrace.connectors.files import FilesSource
from headrace.connectors.finished import FinishedFiles
from headrace.connectors.formats import SUFFIXES, Format
from headrace.connectors.live import LiveLines, StandardInput
from headrace.connectors.nexmark import Laws, NexmarkGenerator
from headrace.connectors.nexmark.source import NexmarkSource
from headrace.connectors.poisson import PoissonSource
from headrace.connectors.sinks import WRITERS, FileSink, NoSink, PartsSink, StandardOutput
from headrace.connectors.spool import Spool
from headrace.connectors.tcp import Limits, TcpClient, TcpServer
from headrace.errors import HeadraceError, PipelineError
from headrace.pipeline import Pipeline, PipelineQuery, PipelineStream
from headrace.pipeline import spec as file
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
        if any(s.spec.arrival is not None or _makes_instants(s) for s in streams):
            return "arrival"
        recorded = all(s.external and is_bounded(s) for s in streams)
        return "event" if recorded or self.pipeline.ticks_per_second is None else "system"

    def feed(self) -> Feed:
        """The sources, combined by the clock."""
        inflows = [self.inflow(stream) for stream in self.pipeline.read.values()]
        return FEEDS[self.kind](self, inflows)

    def add_to(self, feed: Feed, stream: PipelineStream) -> None:
        """Read one more stream."""
        shedder = None if stream.shed is None else Shedder(Shed(**stream.shed))
        feed.add(self.inflow(stream), shedder, _is_paced(stream))

    def inflow(self, stream: PipelineStream) -> Inflow:
        """The source of a stream, with the times of its rows and the instants at which they arrive."""
        spec = stream.spec
        arrival = spec.arrival if self.kind == "arrival" else None
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
                hint='use files, poisson, nexmark, tcp or stdin, or runtime = "spark"',
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

    def sink(self, spec: file.FilesTo | file.StdoutTo | file.SparkTo | None, place: str) -> Sink:
        """The sink, or one that drops all rows if none is set."""
        make = SINKS.get(type(spec))
        if make is None:
            raise PipelineError(
                "HR-F017",
                "the embedded runtime has no sink of type 'spark'",
                place=place,
                hint='use files or stdout, or runtime = "spark"',
            )
        return make(self, spec, place)

    def leave(self, queries: Iterable[Mapping[str, Any]], commits: Mapping[str, Commit]) -> None:
        """Outputs that the pipeline no longer has keep what was committed, and nothing after it."""
        for table in queries:
            query, place = file.QuerySpec.model_validate(table), f"queries.{table['name']}"
            for output, spec in (("sink", query.sink), ("late", query.late), ("rejected", query.rejected)):
                commit = commits.get(f"{query.name}/{output}")
                if isinstance(spec, file.FilesTo) and commit is not None:
                    _cut(self.sink(spec, f"{place}.{output}"), commit, self.say)

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


def _cut(sink: Sink, commit: Commit, say: Callable[[str], None]) -> None:
    """Bring an output that is not written to any more to its last commit."""
    try:
        sink.cut(commit)
    except HeadraceError as error:
        say(f"an output of the pipeline as it was before: {error.message} ({error.place})")
    finally:
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
    """True if the source reads files and ends after the last of them."""
    source = stream.spec.source
    if source.keep_open:
        return False
    return isinstance(source, file.FilesFrom) and not source.follow


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
    from headrace.pipeline.load import instant

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
}


def _files_to(opening: PipelineFactory, spec: Any, place: str) -> Sink:
    """A sink for files: a directory of parts for formats that cannot be appended to, else one file."""
    name = format_of(spec.format, spec.path, place)
    path = opening.output_path(spec.path, place)
    return PartsSink(path, name, spec.existing) if name in WRITERS else FileSink(path, name, spec.existing)


SINKS: Final[dict[type[Any], Callable[[PipelineFactory, Any, str], Sink]]] = {
    file.FilesTo: _files_to,
    file.StdoutTo: lambda opening, spec, place: StandardOutput(spec.format),
    type(None): lambda opening, spec, place: NoSink(),
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
