"""From the tables of a pipeline file to sources, sinks and feeds of this runtime."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from headrace.connectors.ahead import ReadAhead
from headrace.connectors.contract import Sink, Source
from headrace.connectors.files import FilesSource
from headrace.connectors.finished import FinishedFiles
from headrace.connectors.formats import SUFFIXES, Format
from headrace.connectors.live import LiveLines, StandardInput
from headrace.connectors.nexmark import Laws, NexmarkGenerator
from headrace.connectors.nexmark.source import NexmarkSource
from headrace.connectors.poisson import PoissonSource
from headrace.connectors.shelf import DirectoryShelf
from headrace.connectors.sinks import WRITERS, FileSink, NoSink, PartsSink, StandardOutput
from headrace.connectors.spool import Spool
from headrace.connectors.tcp import Limits, TcpClient, TcpServer
from headrace.errors import PipelineError
from headrace.pipeline import Pipeline, PipelineQuery, PipelineStream
from headrace.pipeline import spec as file
from headrace.runtimes.embedded.feeds import ArrivalFeed, EventFeed, Feed, SystemFeed
from headrace.runtimes.embedded.inflow import Inflow
from headrace.runtimes.embedded.outputs import Outputs, QueryOutputs
from headrace.runtimes.embedded.shedding import Shed, Shedder
from headrace.runtimes.embedded.timing import Timing
from headrace.schema import Schema
from headrace.time.clock import Clock
from headrace.time.durations import ticks
from headrace.time.timestamp import MAX_TIME

GENERATED_GRAIN: Final = 10_000
"""Ticks between the instants of generated rows: a row by itself for each microsecond would cost too much."""


class Opening:
    """Opens what a pipeline names. `started` is the wall clock at its first start; `say` hears of changes."""

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
        """Of streams whose rows cannot be asked for again, by name."""
        self.finished: dict[str, FinishedFiles] = {}
        """Of streams that are read from files, by name."""
        self._names: dict[Path, str] = {}

    # --- clocks and feeds

    @property
    def kind(self) -> str:
        """Which clock rules: the file's choice, or what the sources suggest."""
        chosen = self.pipeline.spec.pipeline.clock
        if chosen is not None:
            return chosen
        streams = self.pipeline.read.values()
        if any(s.spec.arrival is not None or _makes_instants(s) for s in streams):
            return "arrival"
        recorded = all(s.external and is_bounded(s) for s in streams)
        return "event" if recorded or self.pipeline.ticks_per_second is None else "system"

    def feed(self) -> Feed:
        """Sources, tied together by the clock."""
        inflows = [self.inflow(stream) for stream in self.pipeline.read.values()]
        return FEEDS[self.kind](self, inflows)

    def inflow(self, stream: PipelineStream) -> Inflow:
        """The source of a stream with the times of its rows and the instants at which they come."""
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
        return Outputs([self._query(query) for query in self.pipeline.queries])

    def _query(self, query: PipelineQuery) -> QueryOutputs:
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
        """A sink, or one that keeps nothing where none was asked for."""
        make = SINKS.get(type(spec))
        if make is None:
            raise PipelineError(
                "HR-F017",
                "the embedded runtime has no sink of type 'spark'",
                place=place,
                hint='use files or stdout, or runtime = "spark"',
            )
        return make(self, spec, place)

    def output_path(self, written: str, place: str) -> Path:
        """Where an output goes: as the file says, or under `into`, by its name."""
        if self.into is None:
            return self.pipeline.path(written)
        path = self.into / Path(written).name
        if self._names.setdefault(path, place) != place:
            raise PipelineError(
                "HR-F015",
                f"two outputs are called {path.name!r}, and a replay writes both to {self.into}",
                place=f"{self._names[path]}, {place}",
                hint="record the run again with other names",
            )
        return path


def _makes_instants(stream: PipelineStream) -> bool:
    source = stream.spec.source
    return isinstance(source, file.PoissonFrom | file.NexmarkFrom) and source.pace == "fast"


def is_bounded(stream: PipelineStream) -> bool:
    source = stream.spec.source
    if source.keep_open:
        return False
    return isinstance(source, file.FilesFrom) and not source.follow


def format_of(written: str | None, path: str, place: str) -> str:
    found = written or SUFFIXES.get(Path(path).suffix.lower())
    if found is None:
        raise PipelineError(
            "HR-F018",
            f"which format has {path!r}?",
            place=place,
            hint='format = "json", "csv", "parquet" or "arrow"',
        )
    return found


def how_of(spec: Any, name: str) -> Format:
    """How the lines of a source are read."""
    return Format(name, spec.missing, spec.delimiter, spec.header, spec.max_line)


def _files(opening: Opening, stream: PipelineStream, schema: Schema) -> Source:
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
    """A name whose ending says what a directory holds."""
    if path.is_dir():
        names = sorted(p.name for p in path.iterdir() if not p.name.startswith((".", "_")))
        return next((name for name in names if Path(name).suffix.lower() in SUFFIXES), str(path))
    return str(path)


def _poisson(opening: Opening, stream: PipelineStream, schema: Schema) -> Source:
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


def _nexmark(opening: Opening, stream: PipelineStream, schema: Schema) -> Source:
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
    from headrace.pipeline.load import instant

    return instant(written, 1_000_000) or 0


def _tcp(opening: Opening, stream: PipelineStream, schema: Schema) -> Source:
    spec: Any = stream.spec.source
    wire: TcpServer | TcpClient
    if spec.listen:
        idle = ticks(spec.idle_timeout, 1_000_000) / 1_000_000
        limits = Limits(spec.max_line, spec.max_clients, idle, spec.max_pending)
        wire = TcpServer(spec.host, spec.port, limits)
    else:
        wire = TcpClient(spec.host, spec.port)
    return LiveLines(wire, schema, how_of(spec, spec.format), not spec.listen, _spool(opening, stream.name))


def _stdin(opening: Opening, stream: PipelineStream, schema: Schema) -> Source:
    spec: Any = stream.spec.source
    return LiveLines(StandardInput(), schema, how_of(spec, spec.format), spool=_spool(opening, stream.name))


def _spool(opening: Opening, name: str) -> Spool | None:
    """Where there are checkpoints, lines are written down before they count."""
    folder = _beside(opening, "spool")
    return None if folder is None else opening.spools.setdefault(name, Spool(folder, name))


def _beside(opening: Opening, name: str) -> Path | None:
    """A folder in that of the checkpoints, if there are any."""
    checkpoint = opening.pipeline.spec.pipeline.checkpoint
    return (
        None if checkpoint is None or opening.into is not None else opening.pipeline.path(checkpoint) / name
    )


SOURCES: Final[dict[type[Any], Callable[[Opening, PipelineStream, Schema], Source]]] = {
    file.FilesFrom: _files,
    file.PoissonFrom: _poisson,
    file.NexmarkFrom: _nexmark,
    file.TcpFrom: _tcp,
    file.StdinFrom: _stdin,
}


def _files_to(opening: Opening, spec: Any, place: str) -> Sink:
    name = format_of(spec.format, spec.path, place)
    path = opening.output_path(spec.path, place)
    return PartsSink(path, name, spec.existing) if name in WRITERS else FileSink(path, name, spec.existing)


SINKS: Final[dict[type[Any], Callable[[Opening, Any, str], Sink]]] = {
    file.FilesTo: _files_to,
    file.StdoutTo: lambda opening, spec, place: StandardOutput(spec.format),
    type(None): lambda opening, spec, place: NoSink(),
}


def _system(opening: Opening, inflows: list[Inflow]) -> Feed:
    paced = frozenset(
        name
        for name, stream in opening.pipeline.read.items()
        if isinstance(stream.spec.source, file.PoissonFrom | file.NexmarkFrom)
        and stream.spec.source.pace == "real"
    )
    policies = {name: stream.shed for name, stream in opening.pipeline.read.items()}
    shedders = {name: Shedder(Shed(**shed)) for name, shed in policies.items() if shed is not None}
    return SystemFeed(inflows, clock=opening.clock, paced=paced, shedders=shedders)


FEEDS: Final[dict[str, Callable[[Opening, list[Inflow]], Feed]]] = {
    "system": _system,
    "event": lambda opening, inflows: EventFeed(inflows),
    "arrival": lambda opening, inflows: ArrivalFeed(inflows),
}


def shelf_of(pipeline: Pipeline) -> DirectoryShelf | None:
    """Where state spills, if it may: where the file says, else beside the checkpoint."""
    memory, checkpoint = pipeline.spec.memory, pipeline.spec.pipeline.checkpoint
    if memory.budget is None or memory.policy != "spill":
        return None
    if memory.spill is not None:
        return DirectoryShelf(pipeline.path(memory.spill))
    return DirectoryShelf(pipeline.path(checkpoint) / "spill" if checkpoint else Path(tempfile.gettempdir()))
