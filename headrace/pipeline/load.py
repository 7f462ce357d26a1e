"""From a TOML file to a pipeline; errors name the line and the key."""

from __future__ import annotations

import difflib
import importlib.util
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow.types as pt
import pydantic

from headrace.engine.execution import Execution
from headrace.engine.scheduling import check_service
from headrace.errors import HeadraceError, InputError, PipelineError, SqlError, together
from headrace.graph.admission import Rules
from headrace.graph.service import Service
from headrace.memory.budget import budget_bytes
from headrace.pipeline.bounds import lateness_of, maybe, skew_of
from headrace.pipeline.functions import Functions
from headrace.pipeline.locate import line_of, value_begins
from headrace.pipeline.lookups import rows_of
from headrace.pipeline.orders import with_orders
from headrace.pipeline.pipeline import Pipeline, PipelineQuery, PipelineStream
from headrace.pipeline.places import first_clash
from headrace.pipeline.refusals import refusals
from headrace.pipeline.spec import (
    UNITS,
    AggregateSpec,
    FileSpec,
    FunctionSpec,
    HistoryFrom,
    PunctuationsOf,
    PythonFrom,
    PythonTo,
    QuerySpec,
    StreamSpec,
    Table,
    TableSpec,
)
from headrace.pipeline.stalling import stalls
from headrace.plan.nodes.core import TimeKind
from headrace.schema import DataType, Schema
from headrace.sql import MICROSECONDS, Catalog, Query, StreamDef, TableDef, declare, fragments, query
from headrace.state.source_cells import check_column
from headrace.time.declared import Skew
from headrace.time.ets import Policy, policy
from headrace.time.row_promises import can_be_compared
from headrace.time.sources import INSTANTS, SourceGroups, SourcesPromise
from headrace.time.timestamp import MAX_TIME

NO_SPARK: Final = (
    'pyspark is not installed, so the pipeline runs embedded; set runtime = "embedded" to hide this'
)

S = TypeVar("S")
T = TypeVar("T")
TableT = TypeVar("TableT", bound=Table)
Path_ = tuple[str | int, ...]


def load(path: str | Path, *, functions: Mapping[str, Any] | None = None) -> Pipeline:
    """Load the pipeline in a file. `functions`: Python objects that the file names by these names."""
    path = Path(path)
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        inside = path / "pipeline.toml"
        raise PipelineError(
            "HR-F001",
            f"cannot read the file: {getattr(error, 'strerror', None) or error}",
            place=str(path),
            hint=f"try {inside}"
            if inside.is_file()
            else "check the path; `headrace init` writes a first pipeline file",
        ) from None
    found = Functions(path.parent, functions or {})
    return Reader(text, path.parent, path.name, file=path, functions=found).pipeline()


def parse(
    text: str,
    *,
    root: str | Path = ".",
    name: str = "pipeline",
    functions: Mapping[str, Any] | None = None,
) -> Pipeline:
    """Load a pipeline from text; its paths are relative to `root`."""
    return Reader(text, Path(root), name, functions=Functions(Path(root), functions or {})).pipeline()


def from_tables(
    tables: Mapping[str, Any],
    *,
    root: str | Path = ".",
    name: str = "pipeline",
    functions: Mapping[str, Any] | None = None,
) -> Pipeline:
    """Load a pipeline from the data that `Pipeline.tables` returned; this imports nothing."""
    found = Functions(Path(root), functions or {}, imports=False)
    return Reader("", Path(root), name, tables, functions=found).pipeline()


class Reader:
    """Turns the tables of one text into a pipeline, and knows on which line each key is."""

    def __init__(
        self,
        text: str,
        root: Path,
        name: str,
        tables: Mapping[str, Any] | None = None,
        file: Path | None = None,
        functions: Functions | None = None,
        tables_given: Sequence[TableDef] = (),
        planned: Query | None = None,
    ) -> None:
        self.tables_given, self.planned = tuple(tables_given), planned
        self.text, self.root, self.name, self.tables, self.file = text, root, name, tables, file
        self.functions = functions or Functions(root, imports=False)
        self.checks_sinks = tables is None  # a recorded run writes to files
        self.warnings: list[str] = []
        self.problems: list[HeadraceError] = []

    def pipeline(self) -> Pipeline:
        """Check everything and build the pipeline."""
        spec = self._spec()
        domain = self._domain(spec)
        streams = self._all(spec.streams, lambda name, each: self.stream(name, each, domain))
        if len(streams) == len(spec.streams):
            for name in streams:
                self._gather(partial(self._check_row_promises, name, streams))
        self.has_checkpoint = spec.pipeline.checkpoint is not None
        tables = self._all(spec.lookups, self._table)
        definitions: list[StreamDef | TableDef] = [each.definition for each in streams.values()]
        definitions += [*self.tables_given, *tables.values()]
        catalog = Catalog(definitions, ticks_per_second=domain)
        changing = {name: each for name, each in spec.tables.items() if name not in spec.lookups}
        declared = self._all(changing, lambda name, each: self._changing_table(name, each, catalog))
        self._gather(lambda: self._define(spec, catalog))
        made = {*streams, *tables, *declared}
        missing = [name for name in (*spec.streams, *spec.tables) if name not in made]
        parsed = [
            self._gather(partial(self.query, i, each, catalog))
            for i, each in enumerate(spec.queries)
            if not _mentions(each.sql, missing)
        ]
        self._gather(lambda: self._check_names(spec))
        if self.tables is None:  # a recorded run reads nothing, and its outputs go elsewhere
            self._gather(lambda: self.check_places(spec))
        self._gather(lambda: self._check_shed(spec))
        self._check_execution(spec)
        self._gather(lambda: self._check_spark(spec))
        skew = None if missing else self._gather(lambda: self.skew(spec, streams, domain))
        if self.problems:
            raise together(self.problems)
        assert skew is not None
        pipeline = Pipeline(
            spec,
            self.root,
            streams,
            tuple(each for each in parsed if each is not None),
            domain,
            skew,
            catalog=catalog,
            file=self.file,
            functions=self.functions,
        )
        self.at(("skew",), pipeline.heartbeats)
        self._warn(pipeline)
        return Pipeline(**{**pipeline.__dict__, "warnings": tuple(self.warnings)})

    def _changing_table(self, name: str, spec: TableSpec, catalog: Catalog) -> bool:
        """Declare a table that a stream changes."""
        self.at(("tables", name), partial(_declare_table, name, spec, catalog))
        return True

    def _all(self, specs: Mapping[str, S], make: Callable[[str, S], T]) -> dict[str, T]:
        """What can be made of each, by name; the errors of the others are kept."""
        made = {name: self._gather(partial(make, name, each)) for name, each in specs.items()}
        return {name: each for name, each in made.items() if each is not None}

    def _check_spark(self, spec: FileSpec) -> None:
        """`[spark.sources]` has names of streams."""
        pasts = {f"{n}.history" for n, each in spec.streams.items() if isinstance(each.source, HistoryFrom)}
        for name in spec.spark.sources.keys() - spec.streams.keys() - pasts:
            message, hint = f"the stream {name!r} does not exist", f"streams: {', '.join(spec.streams)}"
            raise self._fail("HR-F016", message, ("spark", "sources", name), hint)
        for name in spec.spark.sources:
            if name in spec.streams and (of := spec.streams[name].of) is not None:
                message, hint = f"{name!r} has the rows of {of!r}", f"give options for {of!r}"
                raise self._fail("HR-F026", message, ("spark", "sources", name), hint)

    # --- the text

    def _spec(self) -> FileSpec:
        """The validated tables of the file."""
        try:
            tables = tomllib.loads(self.text) if self.tables is None else self.tables
        except tomllib.TOMLDecodeError as error:
            raise self._not_toml(str(error)) from None
        spec = self.valid(FileSpec, with_orders(tables, self._fail))
        return spec if spec.pipeline.runtime is not None else self._with_runtime(spec)

    def _not_toml(self, said: str) -> PipelineError:
        """The error for a text that is not TOML, in our words."""
        place = re.search(r" \(at line (\d+), column (\d+)\)", said)
        message = said if place is None else said[: place.start()]
        ours = next((words for begin, words in _TOML.items() if message.startswith(begin)), None)
        line, column = (int(place[1]), int(place[2])) if place else (0, 0)
        return PipelineError(
            "HR-F002",
            f"the file is not valid TOML: {ours or message[:1].lower() + message[1:]}",
            place=f"{self.name}, line {line}, column {column}" if place else f"{self.name}, at its end",
            hint="strings need quotes, a key is given once, and each has one =",
            file=self.name,
            line=line,
        )

    def _with_runtime(self, spec: FileSpec) -> FileSpec:
        """Spark where the file names no runtime; embedded where Spark is not installed and not needed."""
        runtime = "spark"
        if not _uses_spark(spec) and importlib.util.find_spec("pyspark") is None:
            runtime = "embedded"
            self.warnings.append(NO_SPARK)
        table = spec.pipeline.model_copy(update={"runtime": runtime})
        return spec.model_copy(update={"pipeline": table})

    def valid(self, model: type[TableT], tables: Mapping[str, Any]) -> TableT:
        """The tables, or one of them, as a model; the error has all problems, each with its key."""
        try:
            return model.model_validate(tables)
        except pydantic.ValidationError as error:
            found = refusals(error, tables, model)
        raise together([self._fail(each.code, each.message, each.path, each.hint) for each in found])

    def _place(self, path: Path_) -> str:
        """The place of a key, for messages: file, line and key."""
        line, where = line_of(self.text, path), self._key(path)
        return f"{self.name}, line {line}: {where}" if line else f"{self.name}: {where}"

    def _key(self, path: Path_) -> str:
        """A key with dots; a query is named."""
        steps = list(path)
        if len(steps) > 1 and steps[0] == "queries" and isinstance(steps[1], int):
            steps[1] = self._query_names().get(steps[1], steps[1])
        return ".".join(map(str, steps))

    def _query_names(self) -> dict[int, str]:
        """The names of the queries by their place in the file."""
        try:
            tables = tomllib.loads(self.text) if self.tables is None else self.tables
        except tomllib.TOMLDecodeError:
            return {}
        written = tables.get("queries")
        queries = list(written) if isinstance(written, (list, tuple)) else []
        return {
            i: each["name"]
            for i, each in enumerate(queries)
            if isinstance(each, Mapping) and isinstance(each.get("name"), str) and each["name"]
        }

    def at(self, path: Path_, do: Callable[[], T]) -> T:
        """Call `do`; an error in it gets the place of `path` in the file."""
        try:
            return do()
        except HeadraceError as error:
            inner = f", {error.place}" if error.place else ""
            raise self._fail(error.code, error.message, path, error.hint, inner) from error
        except ValueError as error:
            message, _, hint = str(error).partition(": ")
            raise self._fail("HR-F004", message, path, hint) from None

    def _fail(self, code: str, message: str, path: Path_, hint: str = "", inner: str = "") -> PipelineError:
        """An error at the place of a key; `inner` is a place within its value."""
        return PipelineError(
            code,
            message,
            place=self._place(path) + inner,
            hint=hint,
            file=self.name,
            line=line_of(self.text, path),
            key=self._key(path),
        )

    def _gather(self, do: Callable[[], T]) -> T | None:
        """Call `do`; an error is kept until everything has been looked at."""
        try:
            return do()
        except HeadraceError as error:
            self.problems.append(error)
            return None

    # --- streams

    def _domain(self, spec: FileSpec) -> int | None:
        """Ticks per second: microseconds, or None if the streams count sequence numbers."""
        units = {name: s.time.unit == "tick" for name, s in spec.streams.items() if s.time.kind == "external"}
        if len(set(units.values())) > 1:
            odd = next(name for name, is_tick in units.items() if is_tick)
            raise self._fail(
                "HR-F010",
                'some streams use sequence numbers (unit = "tick") and others use time',
                ("streams", odd, "time"),
                "use the same kind of time in all streams of a pipeline",
            )
        return None if any(units.values()) else MICROSECONDS

    def stream(self, name: str, spec: StreamSpec, domain: int | None) -> PipelineStream:
        """Check one stream: schema, time, bounds and rules."""
        at: Path_ = ("streams", name)
        schema = self.at((*at, "schema"), lambda: columns_of(name, spec.columns))
        kind = TimeKind(spec.time.kind)
        column = spec.time.column
        if kind is TimeKind.EXTERNAL:
            column = self._time_column(at, spec, schema)
        elif column is not None:
            raise self._fail(
                "HR-F011", f"{kind.value} time does not take a column", (*at, "time"), "remove column"
            )
        definition = self.at(at, lambda: StreamDef(name, schema, kind, column, domain))
        lateness = lateness_of(self, (*at, "bounds"), spec.bounds, domain)
        lateness = replace(lateness, sources=self._sources(at, spec, schema, domain))
        guard = self.at((*at, "guard"), maybe(spec.guard, domain))
        idle = None if spec.idle is None else self.at((*at, "idle"), _policy(spec.idle, domain))
        external = kind is TimeKind.EXTERNAL
        rules = (
            Rules(
                disordered=True,
                enforce=spec.enforcement,
                guard=MAX_TIME if guard is None else guard,
                ticks_per_second=domain,
            )
            if external
            else Rules()
        )
        unit = UNITS[spec.time.unit] if spec.time.unit else domain
        earliest = self.at((*at, "time", "earliest"), lambda: instant(spec.time.earliest, domain))
        return PipelineStream(spec, definition, rules, lateness, unit, earliest, idle)

    def skew(self, spec: FileSpec, streams: Mapping[str, PipelineStream], domain: int | None) -> Skew:
        """What streams promise about each other."""
        known = {name: stream.lateness if stream.external else None for name, stream in streams.items()}
        return skew_of(self, ("skew",), spec.skew, known, domain)

    def _check_execution(self, spec: FileSpec) -> None:
        """Strategy, level and propagation must exist."""
        for key in ("strategy", "level", "propagation"):
            do = _execution(key, getattr(spec.pipeline, key))
            self._gather(partial(self.at, ("pipeline", key), do))

    def _check_shed(self, spec: FileSpec) -> None:
        """Load shedding is allowed only for sources that cannot be slowed down: other rows can wait."""
        live = spec.pipeline.runtime == "embedded" and spec.pipeline.clock in (None, "system")
        for name, stream in spec.streams.items():
            source = stream.source
            wild = source.type in ("tcp", "stdin") or getattr(source, "pace", "") == "real"
            if stream.shed is not None and not (live and wild):
                raise self._fail(
                    "HR-F022",
                    "shed is set, but this stream can be slowed down, so no rows need to be dropped",
                    ("streams", name, "shed"),
                    'remove shed: it works with tcp, stdin and pace = "real" on the embedded runtime with '
                    "the system clock; on Spark, limit the source (maxOffsetsPerTrigger)",
                )

    def _time_column(self, at: Path_, spec: StreamSpec, schema: Schema) -> str:
        """The time column, which must exist and hold times or ticks."""
        column = spec.time.column
        hint = f"columns: {', '.join(schema.names)}"
        if column is None:
            raise self._fail(
                "HR-F011",
                "the stream has no time column",
                (*at, "time"),
                f'set time = {{ column = "…" }}; {hint}',
            )
        if column not in schema.names:
            near = difflib.get_close_matches(column, schema.names, n=1)
            raise self._fail(
                "HR-F011",
                f"the time column {column!r} does not exist",
                (*at, "time", "column"),
                f"did you mean {near[0]}?" if near else hint,
            )
        of = schema.field(column).type
        if not (pt.is_timestamp(of) or pt.is_integer(of)):
            raise self._fail(
                "HR-F011",
                f"the time column is {of}, not a time",
                (*at, "time"),
                "declare it as TIMESTAMP, or as BIGINT with a unit",
            )
        if pt.is_timestamp(of) and spec.time.unit is not None:
            raise self._fail(
                "HR-F011",
                "unit is not allowed for a TIMESTAMP column",
                (*at, "time", "unit"),
                "remove unit, or declare the column as BIGINT",
            )
        return column

    def _check_row_promises(self, name: str, streams: Mapping[str, PipelineStream]) -> None:
        """Rows can be promises only if their columns exist and have the right types."""
        stream = streams[name]
        at: Path_ = ("streams", name)
        for key in ("punctuations", "heartbeats"):
            if getattr(stream.spec, key) and not stream.external:
                what = f"{key} about a stream with {stream.definition.time.value} time"
                raise self._fail("HR-F045", what, (*at, key), "only rows that bring their times can be late")
        for said in stream.spec.punctuations:
            self._check_punctuations((*at, "punctuations"), stream, said, streams)
        if (beats := stream.spec.heartbeats) is not None:
            of = self._column_of((*at, "heartbeats", "column"), stream, beats.column)
            if not (pt.is_timestamp(of) or pt.is_integer(of)):
                raise self._fail(
                    "HR-F045",
                    f"the column {beats.column!r} is {of}, not a time",
                    (*at, "heartbeats", "column"),
                    "declare it like the time column of the stream",
                )

    def _check_punctuations(
        self, at: Path_, stream: PipelineStream, said: PunctuationsOf, streams: Mapping[str, PipelineStream]
    ) -> None:
        """The rows must exist, have a flag unless they are of another stream, and have comparable values."""
        own = said.stream in (None, stream.name)
        speaker = stream if own else streams.get(str(said.stream))
        if speaker is None:
            near = difflib.get_close_matches(str(said.stream), streams, n=1)
            hint = f"did you mean {near[0]}?" if near else f"streams: {', '.join(streams)}"
            raise self._fail("HR-F045", f"the stream {said.stream!r} does not exist", (*at, "stream"), hint)
        if own and said.column is None:
            raise self._fail(
                "HR-F045",
                "column is missing: it says which rows of the stream are punctuations",
                at,
                'set column = "…", a BOOLEAN column of the stream',
            )
        if said.data and not own:
            raise self._fail(
                "HR-F045",
                "data is only for punctuations in the stream's own rows",
                (*at, "data"),
                f"remove data: rows of {said.stream!r} are data of {said.stream!r} in any case",
            )
        if said.column is not None:
            of = self._column_of((*at, "column"), speaker, said.column)
            if not pt.is_boolean(of):
                hint = "declare it as BOOLEAN: rows in which it is true are punctuations"
                raise self._fail(
                    "HR-F045", f"the column {said.column!r} is {of}, not BOOLEAN", (*at, "column"), hint
                )
        for column, theirs in said.rows_of(stream.name).pattern:
            mine = self._column_of((*at, "pattern"), stream, column)
            if not can_be_compared(mine, of := self._column_of((*at, "pattern"), speaker, theirs)):
                raise self._fail(
                    "HR-F045",
                    f"the column {column!r} ({mine}) cannot be compared with {theirs!r} ({of})",
                    (*at, "pattern"),
                    "use columns of one type whose values compare exactly, such as BIGINT or STRING",
                )

    def _column_of(self, at: Path_, stream: PipelineStream, column: str) -> DataType:
        """The type of a column of a stream, which must exist."""
        if column not in stream.schema.names:
            near = difflib.get_close_matches(column, stream.schema.names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"columns: {', '.join(stream.schema.names)}"
            raise self._fail("HR-F045", f"stream {stream.name!r} has no column {column!r}", at, hint)
        return stream.schema.field(column).type

    def _sources(
        self, at: Path_, spec: StreamSpec, schema: Schema, domain: int | None
    ) -> SourceGroups | None:
        """Sources by a column: it must exist, and bounds must say something about groups."""
        given, place = spec.sources, (*at, "sources")
        if given is None:
            return None
        if spec.time.kind != "external":
            message = f"{spec.time.kind} time has no late rows, so sources have no effect"
            raise self._fail("HR-F150", message, place, "remove sources")
        if given.column not in schema.names:
            near = difflib.get_close_matches(given.column, schema.names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"columns: {', '.join(schema.names)}"
            message = f"the column of the sources {given.column!r} does not exist"
            raise self._fail("HR-F150", message, (*place, "column"), hint)
        bounds = spec.bounds
        other = next((key for key in ("slack", "transit", "skew") if getattr(bounds, key) is not None), None)
        if other is not None:
            message = f"sources and the bound {other} cannot be combined"
            raise self._fail("HR-F150", message, place, f"remove {other}, or remove sources")
        if bounds.latency is not None and bounds.disorder is None and bounds.estimate is None:
            message, hint = "latency alone is the same for all sources", "add disorder or estimate to bounds"
            raise self._fail("HR-F150", message, place, f"{hint}, or remove sources")
        idle = self.at((*place, "idle"), maybe(given.idle, domain))
        metadata = getattr(spec.source, "metadata", {})
        numbered = metadata.get("partition") == given.column  # partitions are few, and each keeps its order
        groups = self.at(
            place,
            lambda: SourceGroups(
                given.column,
                given.groups,
                idle,
                INSTANTS if given.choose and not numbered else None,
                numbered,
            ),
        )
        self.at(place, lambda: check_column(SourcesPromise(groups, 0), schema, ""))
        return groups

    # --- tables and queries

    def _table(self, name: str, spec: TableSpec) -> TableDef:
        """Read the rows of a table."""
        at: Path_ = ("tables", name)
        columns = spec.columns
        schema = None if columns is None else self.at((*at, "schema"), lambda: columns_of(name, columns))
        if spec.reload and not self.has_checkpoint:
            raise self._fail(
                "HR-F025",
                f"the table {name!r} is to be reloaded, and the pipeline has no checkpoint",
                (*at, "reload"),
                'the rows of a reload are kept in the checkpoint: set checkpoint = "state" under [pipeline]',
            )
        if spec.path is not None:
            self.at((*at, "path"), partial(_exists, self.root, spec.path))
        where = (*at, "path") if spec.path is not None else at
        data = self.at(where, lambda: rows_of(name, spec, self.root, schema))
        return TableDef(name, data.schema, data, spec.path, changes=bool(spec.reload))

    def _define(self, spec: FileSpec, catalog: Catalog) -> None:
        """Register the Python functions and aggregates of the file, for its queries; find its sources."""
        for name, each in spec.functions.items():
            self.at(("functions", name), _registered_function(self.functions, catalog, name, each))
        for name, of in spec.aggregates.items():
            self.at(("aggregates", name), _registered_aggregate(self.functions, catalog, name, of))
        if self.tables is None:  # a recorded run reads nothing
            for name, stream in spec.streams.items():
                if isinstance(stream.source, PythonFrom):
                    self._find(stream.source.function, ("streams", name, "source", "function"))

    def _find(self, written: str, at: Path_) -> None:
        """Find a Python function of the file; an error if there is none."""
        self.at(at, lambda: self.functions.find(written))

    def query(self, i: int, spec: QuerySpec, catalog: Catalog) -> PipelineQuery:
        """Parse one query, from `sql` or `sql_file`, unless it was given."""
        if self.planned is not None:
            return PipelineQuery(spec, self.planned)
        at: Path_ = ("queries", i)
        for output in ("sink", "late", "rejected"):
            to = getattr(spec, output)
            if isinstance(to, PythonTo) and self.checks_sinks:
                self._find(to.function, (*at, output, "function"))
        if (spec.sql is None) == (spec.sql_file is None):
            raise self._fail(
                "HR-F013", f"query {spec.name!r} needs either sql or sql_file", at, 'set sql = """SELECT …"""'
            )
        text = spec.sql if spec.sql is not None else self._sql_file(at, str(spec.sql_file))
        try:
            return PipelineQuery(spec, self._query(text, catalog, spec, self._service(at, spec, catalog)))
        except SqlError as error:
            raise self._in_file(error, i, spec, catalog) from error

    @staticmethod
    def _query(text: str, catalog: Catalog, spec: QuerySpec, service: Service) -> Query:
        importance = 1.0 if spec.importance is None else spec.importance
        return query(
            text, catalog, name=spec.name, ordered=spec.ordered, importance=importance, service=service
        )

    def _service(self, at: Path_, spec: QuerySpec, catalog: Catalog) -> Service:
        """The deadline, the share, the priority, the strategy and the break nodes of a query."""
        per_second = catalog.ticks_per_second
        deadline = self.at((*at, "deadline"), maybe(spec.deadline, per_second))
        wrong = "share" if not 0 < spec.share < float("inf") else "deadline"
        found = self.at((*at, wrong), lambda: Service(deadline, spec.share, spec.priority))
        for key, asked in (("strategy", Service(strategy=spec.strategy)), ("breaks", _breaking(spec.breaks))):
            self.at((*at, key), partial(check_service, asked))
        return replace(found, strategy=spec.strategy, breaks=tuple(spec.breaks))

    def _in_file(self, error: SqlError, i: int, spec: QuerySpec, catalog: Catalog) -> SqlError:
        """The error of a query, with its place in the file; as it is if there is none, as with a command."""
        if not self.text:
            return error
        key = self._key(("queries", i, "sql" if spec.sql is not None else "sql_file"))
        file, line, column = self.name, error.line, error.column
        if spec.sql is None:
            file = str(spec.sql_file)
        else:
            first = line_of(self.text, ("queries", i, "sql"))
            begins = value_begins(self.text, first)
            line, column = (first + begins.lines + line - 1, column) if line else (first, 0)
            column += begins.columns if error.line == 1 and column else 0
        at = f", column {column}" if column else ""
        return SqlError(
            error.code,
            error.message,
            line=error.line,
            column=error.column,
            excerpt=error.excerpt,
            hint=error.hint if catalog.names else "the other errors are about its streams: fix them first",
            place=f"{file}, line {line}{at}: {key}" if line else f"{file}: {key}",
            file=file,
            file_line=line,
            key=key,
        )

    def _sql_file(self, at: Path_, name: str) -> str:
        try:
            return (self.root / name).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            said = getattr(error, "strerror", None) or error
            raise self._fail(
                "HR-F013",
                f"cannot read the file of the query, {name!r}: {said}",
                (*at, "sql_file"),
                f"the path is relative to {self.root}",
            ) from None

    def _check_names(self, spec: FileSpec) -> None:
        """Two queries must not have the same name."""
        seen: set[str] = set()
        for i, each in enumerate(spec.queries):
            if each.name in seen:
                raise self._fail(
                    "HR-F014",
                    f"two queries are named {each.name!r}",
                    ("queries", i, "name"),
                    "rename one of them",
                )
            seen.add(each.name)

    def check_places(self, spec: FileSpec) -> None:
        """An output must not overwrite what the pipeline reads, or another output."""
        clash = first_clash(spec, self.root, self.file)
        if clash is None:
            return
        output, other = clash.output, clash.other
        code, message, hint = _CLASHES[clash.kind]
        words = {"output": output.what, "other": other.what, "path": output.path}
        raise self._fail(code, message.format(**words), output.key, hint)

    def _warn(self, pipeline: Pipeline) -> None:
        """Collect warnings about settings that are probably mistakes."""
        spec = pipeline.spec
        budget = spec.memory.budget
        if budget is not None:
            self.at(("memory", "budget"), lambda: budget_bytes(budget))
        elif spec.memory.model_fields_set:
            self.warnings.append("[memory] is set without a budget and has no effect")
        for name in pipeline.streams.keys() - pipeline.read.keys():
            self.warnings.append(f"no query uses stream {name!r}, so its source is not read")
        self.warnings += [each.message(pipeline.ticks_per_second) for each in stalls(pipeline)]
        if spec.pipeline.checkpoint is None and spec.pipeline.runtime == "embedded":
            self.warnings.append("there is no checkpoint: a run that stops cannot continue and starts over")


def _exists(root: Path, written: str) -> None:
    """Raise an error for a file of a table that does not exist."""
    if not (root / written).exists():
        hint = f"the path is relative to {root}"
        raise InputError("HR-I021", f"the file {written!r} does not exist", hint=hint)


def _mentions(text: str | None, names: Sequence[str]) -> bool:
    """Whether a query may read a stream that has an error of its own."""
    return text is not None and any(re.search(rf"\b{re.escape(name)}\b", text, re.I) for name in names)


def _registered_function(
    functions: Functions, catalog: Catalog, name: str, spec: FunctionSpec
) -> Callable[[], None]:
    """A function that registers a function of the file, for `at`."""
    return lambda: catalog.register_function(
        name,
        functions.find(spec.function),
        result=spec.result,
        arguments=spec.arguments,
        deterministic=spec.deterministic,
        scalar=spec.scalar,
    )


def _registered_aggregate(
    functions: Functions, catalog: Catalog, name: str, spec: AggregateSpec
) -> Callable[[], None]:
    """A function that registers an aggregate of the file, for `at`."""
    return lambda: catalog.register_aggregate(
        name, functions.find(spec.definition), result=spec.result, arguments=spec.arguments
    )


def _uses_spark(spec: FileSpec) -> bool:
    """Whether a source or sink needs Spark."""
    sinks = [each for query in spec.queries for each in (query.sink, query.late, query.rejected)]
    ends = [
        *(stream.source for stream in spec.streams.values()),
        *(sink for sink in sinks if sink is not None),
    ]
    return any(end.type == "spark" for end in ends)


def _breaking(kinds: Sequence[str]) -> Service:
    """A service with break nodes after these kinds of operators."""
    return Service(breaks=tuple(kinds))


def _policy(written: str, domain: int | None) -> Callable[[], Policy]:
    """A function that reads the policy of an idle stream, for `at`."""
    return lambda: policy(written, domain)


def _execution(key: str, value: str) -> Callable[[], Execution]:
    """A function that checks one key of how engines run, for `at`."""
    return lambda: Execution(**{key: value})


def columns_of(name: str, columns: str | Mapping[str, str]) -> Schema:
    """Columns as in CREATE STREAM, or a table of names and types."""
    if not isinstance(columns, str):
        columns = ", ".join(f"`{column}` {of}" for column, of in columns.items())
    catalog = Catalog()
    try:
        declare(f"CREATE STREAM `{name}` ({columns})", catalog)
    except SqlError as error:  # its place is in a text that nobody wrote
        raise SqlError(error.code, error.message, hint=error.hint) from None
    return next(iter(catalog.streams.values())).schema


def _declare_table(name: str, spec: TableSpec, catalog: Catalog) -> None:
    """Declare a table that a stream changes."""
    columns = spec.columns or ""
    if not isinstance(columns, str):
        columns = ", ".join(f"{fragments.identifier(column)} {of}" for column, of in columns.items())
    keys = ", ".join(fragments.identifier(each) for each in spec.key or ())
    parts = [f"CREATE TABLE {fragments.identifier(name)}", f"({columns})" if columns else ""]
    parts += [f"PRIMARY KEY ({keys})", f"FROM {fragments.identifier(spec.stream)}"]
    if spec.format is not None or spec.operation is not None:
        column = f" ({fragments.identifier(spec.operation)})" if spec.operation is not None else ""
        parts.append(f"FORMAT {fragments.identifier(spec.format or 'UPSERT')}{column}")
    for word, condition in (("DELETE", spec.delete), ("IGNORE", spec.ignore)):
        if condition is not None:
            parts.append(f"{word} WHEN ({fragments.expression(condition, 'a condition').text})")
    declare(" ".join(part for part in parts if part), catalog)


def instant(written: str | int | None, domain: int | None) -> int | None:
    """An instant in ticks; dates without a zone are UTC."""
    if written is None or isinstance(written, int):
        return written
    if domain is None:
        raise ValueError("sequence numbers are not dates: write a number")
    try:
        instant = datetime.fromisoformat(written)
    except ValueError:
        raise ValueError(f"{written!r} is not a time: write 2026-01-01T00:00:00Z") from None
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=UTC)
    return round((instant - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1_000_000)


_TOML: Final = {
    "Invalid value": "a value is not a string, a number, true, false, a date, a list or a table",
    "Illegal character '\\n'": "a string is not closed",
    "Cannot declare": "a table is given twice",
    "Cannot overwrite": "a key is given twice",
    "Expected '=' after a key": "expected = after a key",
    "Expected newline or end of document": "expected the end of the line after a value",
    "Unclosed array": "a list is not closed",
    "Unclosed inline table": "a table in { } is not closed",
    "Invalid statement": "this is not a key or a table",
}
"""How messages of Python's TOML parser begin, and what we say."""

_CLASHES: Final = {
    "input": (
        "HR-F023",
        "{output} would be written to {path}, which {other} is read from",
        "write to a path outside of all inputs",
    ),
    "output": (
        "HR-F015",
        "two outputs have the path {path}: {output} and {other}",
        "use a different path for each",
    ),
    "state": (
        "HR-F015",
        "{output} would be written to {path}, which contains {other}",
        "use a different path for each",
    ),
}
