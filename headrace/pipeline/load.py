"""From a TOML file to a pipeline; errors name the line and the key."""

from __future__ import annotations

import difflib
import importlib.util
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow.types as pt
import pydantic
import pydantic_core

from headrace.connectors.tables import read_table
from headrace.engine.execution import Execution
from headrace.errors import HeadraceError, PipelineError
from headrace.graph.admission import Rules
from headrace.memory.budget import budget_bytes
from headrace.pipeline.bounds import lateness_of, maybe, skew_of
from headrace.pipeline.locate import line_of
from headrace.pipeline.pipeline import Pipeline, PipelineQuery, PipelineStream
from headrace.pipeline.places import first_clash
from headrace.pipeline.spec import (
    UNITS,
    FileSpec,
    PunctuationsOf,
    QuerySpec,
    StreamSpec,
    Table,
    TableSpec,
)
from headrace.pipeline.stalling import stalls
from headrace.plan.nodes.core import TimeKind
from headrace.schema import DataType, Schema
from headrace.sql import MICROSECONDS, Catalog, StreamDef, TableDef, declare, query
from headrace.state.source_cells import check_column
from headrace.time.declared import Skew
from headrace.time.ets import Policy, policy
from headrace.time.row_promises import can_be_compared
from headrace.time.sources import INSTANTS, SourceGroups, SourcesPromise
from headrace.time.timestamp import MAX_TIME

NO_SPARK: Final = (
    'pyspark is not installed, so the pipeline runs embedded; set runtime = "embedded" to hide this'
)

T = TypeVar("T")
TableT = TypeVar("TableT", bound=Table)
Path_ = tuple[str | int, ...]


def load(path: str | Path) -> Pipeline:
    """Load the pipeline in a file."""
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
    return Reader(text, path.parent, path.name, file=path).pipeline()


def parse(text: str, *, root: str | Path = ".", name: str = "pipeline") -> Pipeline:
    """Load a pipeline from text; its paths are relative to `root`."""
    return Reader(text, Path(root), name).pipeline()


def from_tables(tables: Mapping[str, Any], *, root: str | Path = ".", name: str = "pipeline") -> Pipeline:
    """Load a pipeline from the data that `Pipeline.tables` returned."""
    return Reader("", Path(root), name, tables).pipeline()


class Reader:
    """Turns the tables of one text into a pipeline, and knows on which line each key is."""

    def __init__(
        self,
        text: str,
        root: Path,
        name: str,
        tables: Mapping[str, Any] | None = None,
        file: Path | None = None,
    ) -> None:
        self.text, self.root, self.name, self.tables, self.file = text, root, name, tables, file
        self.warnings: list[str] = []

    def pipeline(self) -> Pipeline:
        """Check everything and build the pipeline."""
        spec = self._spec()
        domain = self._domain(spec)
        streams = {name: self.stream(name, each, domain) for name, each in spec.streams.items()}
        for name in streams:
            self._check_row_promises(name, streams)
        tables = [self._table(name, each) for name, each in spec.tables.items()]
        catalog = Catalog([*(s.definition for s in streams.values()), *tables], ticks_per_second=domain)
        queries = tuple(self.query(i, each, catalog) for i, each in enumerate(spec.queries))
        self._check_names(spec)
        if self.tables is None:  # a recorded run reads nothing, and its outputs go elsewhere
            self.check_places(spec)
        self._check_shed(spec)
        self._check_execution(spec)
        pipeline = Pipeline(
            spec,
            self.root,
            streams,
            queries,
            domain,
            self.skew(spec, streams, domain),
            catalog=catalog,
            file=self.file,
        )
        self.at(("skew",), pipeline.heartbeats)
        self._warn(pipeline)
        return Pipeline(**{**pipeline.__dict__, "warnings": tuple(self.warnings)})

    # --- the text

    def _spec(self) -> FileSpec:
        """The validated tables of the file."""
        try:
            tables = tomllib.loads(self.text) if self.tables is None else self.tables
        except tomllib.TOMLDecodeError as error:
            raise PipelineError(
                "HR-F002",
                f"the file is not valid TOML: {error}",
                place=self.name,
                hint="strings need quotes, and each key one =",
            ) from None
        spec = self.valid(FileSpec, tables)
        return spec if spec.pipeline.runtime is not None else self._with_runtime(spec)

    def _with_runtime(self, spec: FileSpec) -> FileSpec:
        """Spark where the file names no runtime; embedded where Spark is not installed and not needed."""
        runtime = "spark"
        if not _uses_spark(spec) and importlib.util.find_spec("pyspark") is None:
            runtime = "embedded"
            self.warnings.append(NO_SPARK)
        table = spec.pipeline.model_copy(update={"runtime": runtime})
        return spec.model_copy(update={"pipeline": table})

    def valid(self, model: type[TableT], tables: Mapping[str, Any]) -> TableT:
        """The tables, or one of them, as a model; an error names the key."""
        try:
            return model.model_validate(tables)
        except pydantic.ValidationError as error:
            raise self._refused(error, tables, model) from None

    def _refused(
        self, error: pydantic.ValidationError, tables: Mapping[str, Any], model: type[Table]
    ) -> PipelineError:
        """The error for the first problem; unknown keys come first, because they explain missing ones."""
        problems = sorted(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
        first = problems[0]
        path = _written(first["loc"], tables)
        code, message, hint = _REASONS.get(first["type"], _wrong)(first, path, model)
        more = f"; and {len(problems) - 1} more" if len(problems) > 1 else ""
        return PipelineError(code, message + more, place=self._place(path), hint=hint)

    def _place(self, path: Path_) -> str:
        """The place of a key, for messages: file, line and key."""
        line = line_of(self.text, path)
        where = ".".join(map(str, path))
        return f"{self.name}, line {line}: {where}" if line else f"{self.name}: {where}"

    def at(self, path: Path_, do: Callable[[], T]) -> T:
        """Call `do`; an error in it gets the place of `path` in the file."""
        try:
            return do()
        except HeadraceError as error:
            inner = f", {error.place}" if error.place else ""
            problem = PipelineError(
                error.code, error.message, place=self._place(path) + inner, hint=error.hint
            )
            raise problem from error
        except ValueError as error:
            raise PipelineError("HR-F004", str(error), place=self._place(path)) from None

    def _fail(self, code: str, message: str, path: Path_, hint: str = "") -> PipelineError:
        """An error at the place of a key."""
        return PipelineError(code, message, place=self._place(path), hint=hint)

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
        schema = self.at((*at, "schema"), lambda: _schema(name, spec.columns))
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
            self.at(("pipeline", key), _execution(key, getattr(spec.pipeline, key)))

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
        groups = self.at(
            place,
            lambda: SourceGroups(given.column, given.groups, idle, INSTANTS if given.choose else None),
        )
        self.at(place, lambda: check_column(SourcesPromise(groups, 0), schema, ""))
        return groups

    # --- tables and queries

    def _table(self, name: str, spec: TableSpec) -> TableDef:
        """Read the file of a table."""
        at: Path_ = ("tables", name)
        columns = spec.columns
        schema = None if columns is None else self.at((*at, "schema"), lambda: _schema(name, columns))
        data = self.at((*at, "path"), lambda: read_table(self.root / spec.path, schema))
        return TableDef(name, data.schema, data, spec.path)

    def query(self, i: int, spec: QuerySpec, catalog: Catalog) -> PipelineQuery:
        """Parse one query, from `sql` or `sql_file`."""
        at: Path_ = ("queries", i)
        if (spec.sql is None) == (spec.sql_file is None):
            raise self._fail(
                "HR-F013", f"query {spec.name!r} needs either sql or sql_file", at, 'set sql = """SELECT …"""'
            )
        text = spec.sql if spec.sql is not None else self._sql_file(at, str(spec.sql_file))
        return PipelineQuery(spec, query(text, catalog, name=spec.name))

    def _sql_file(self, at: Path_, name: str) -> str:
        try:
            return (self.root / name).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise self._fail(
                "HR-F013", f"cannot read the file of the query: {error}", (*at, "sql_file")
            ) from None

    def _check_names(self, spec: FileSpec) -> None:
        """Two queries must not have the same name."""
        seen: set[str] = set()
        for i, each in enumerate(spec.queries):
            if each.name in seen:
                raise self._fail("HR-F014", f"two queries are named {each.name!r}", ("queries", i, "name"))
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


def _uses_spark(spec: FileSpec) -> bool:
    """Whether a source or sink needs Spark."""
    sinks = [each for query in spec.queries for each in (query.sink, query.late, query.rejected)]
    ends = [
        *(stream.source for stream in spec.streams.values()),
        *(sink for sink in sinks if sink is not None),
    ]
    return any(end.type == "spark" for end in ends)


def _policy(written: str, domain: int | None) -> Callable[[], Policy]:
    """A function that reads the policy of an idle stream, for `at`."""
    return lambda: policy(written, domain)


def _execution(key: str, value: str) -> Callable[[], Execution]:
    """A function that checks one key of how engines run, for `at`."""
    return lambda: Execution(**{key: value})


def _schema(name: str, columns: str | Mapping[str, str]) -> Schema:
    """Columns as in CREATE STREAM, or a table of names and types."""
    if not isinstance(columns, str):
        columns = ", ".join(f"`{column}` {of}" for column, of in columns.items())
    catalog = Catalog()
    declare(f"CREATE STREAM `{name}` ({columns})", catalog)
    return next(iter(catalog.streams.values())).schema


def instant(written: str | int | None, domain: int | None) -> int | None:
    """An instant in ticks; dates without a zone are UTC."""
    if written is None or isinstance(written, int):
        return written
    if domain is None:
        raise ValueError("sequence numbers are not dates: write a number")
    instant = datetime.fromisoformat(written)
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=UTC)
    return round((instant - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1_000_000)


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


# --- pydantic's errors as pipeline errors ------------------------------------------------------------------

Problem = pydantic_core.ErrorDetails
_TAGS: Final = frozenset({"files", "poisson", "nexmark", "tcp", "stdin", "stdout", "spark"})


def _written(loc: tuple[str | int, ...], tables: Any) -> Path_:
    """The path as written in the file: without the names of alternatives that pydantic inserts."""
    path: list[str | int] = []
    here: Any = tables
    for step in loc:
        inside = isinstance(here, dict) and step in here
        inside = inside or (isinstance(here, list) and isinstance(step, int) and step < len(here))
        if inside:
            here = here[step]
        elif step in _TAGS or (isinstance(step, str) and ("[" in step or step in ("str", "int"))):
            continue
        else:
            here = None
        path.append(step)
    return tuple(path)


def _unknown(problem: Problem, path: Path_, model: type[Table]) -> tuple[str, str, str]:
    """The code, message and hint for an unknown key."""
    known = _keys_at(model, problem["loc"])
    near = difflib.get_close_matches(str(path[-1]), known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(known)}"
    return "HR-F003", f"unknown key {str(path[-1])!r}", hint


def _missing(problem: Problem, path: Path_, model: type[Table]) -> tuple[str, str, str]:
    """The code, message and hint for a missing key."""
    return "HR-F005", f"the key {str(path[-1])!r} is missing", ""


def _wrong(problem: Problem, path: Path_, model: type[Table]) -> tuple[str, str, str]:
    """The code, message and hint for an invalid value."""
    message = problem["msg"].removeprefix("Value error, ")
    return "HR-F004", message[:1].lower() + message[1:], ""


_REASONS: Final[dict[str, Callable[[Problem, Path_, type[Table]], tuple[str, str, str]]]] = {
    "extra_forbidden": _unknown,
    "missing": _missing,
}


def _keys_at(model: type[Table], loc: tuple[str | int, ...]) -> list[str]:
    """The keys that the table at `loc` below `model` may have, by walking the models."""
    found: set[str] = set()
    for table in _models(model, list(loc[:-1])):
        found |= {field.alias or name for name, field in table.model_fields.items()}
    return sorted(found)


def _models(model: Any, steps: list[str | int]) -> list[type[Table]]:
    """The tables that are allowed at the path `steps` below `model`."""
    if isinstance(model, type) and issubclass(model, Table):
        if not steps:
            return [model]
        fields = {f.alias or name: f.annotation for name, f in model.model_fields.items()}
        if steps[0] in fields:
            return _models(fields[str(steps[0])], steps[1:])
        tag = model.model_fields.get("type")
        if tag is not None and steps[0] in getattr(tag.annotation, "__args__", ()):
            return _models(model, steps[1:])
        return []
    inner: tuple[Any, ...] = getattr(model, "__args__", ())
    origin = getattr(model, "__origin__", None)
    if origin in (dict, list) and steps:
        return _models(inner[-1], steps[1:])
    return [each for option in inner for each in _models(option, steps)]
