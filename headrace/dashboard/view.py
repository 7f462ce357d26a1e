"""What the page shows, as plain data: the status, why queries wait, what is in force, the newest answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from headrace.control import Command, in_force, log_of
from headrace.control.apply import windows_of
from headrace.control.commands import describe, from_json
from headrace.dashboard.figures import Figures
from headrace.dashboard.tails import TailReader, reader_of
from headrace.errors import HeadraceError
from headrace.pipeline import Pipeline, load
from headrace.pipeline.pipeline import PipelineQuery
from headrace.plan.nodes.core import Granularity
from headrace.plan.nodes.quality import bounds_of, counts_rows
from headrace.runtimes.sending import Sent, send
from headrace.runtimes.status import Status
from headrace.runtimes.status_file import read_status
from headrace.runtimes.why import Why
from headrace.runtimes.why.why import NOTHING
from headrace.time.durations import readable

COMMANDS: Final = 30
"""How many commands are listed: the newest ones."""
OUTPUTS: Final = ("sink", "late", "rejected")

Mark = tuple[int, int, int]


@dataclass
class View:
    """A pipeline file as the page sees it. It keeps what is expensive until a file has changed."""

    file: Path
    figures: Figures = field(default_factory=Figures)
    _pipeline: Pipeline | None = None
    _marks: dict[Path, Mark | None] = field(default_factory=dict)
    _setup: dict[str, Any] = field(default_factory=dict)
    _tails: dict[tuple[str, str], TailReader] = field(default_factory=dict)

    def status(self) -> dict[str, Any]:
        """The newest status and why queries wait; `problem` says why there is no status."""
        try:
            found = self.newest()
        except HeadraceError as error:
            return {"problem": told(error)}
        self.figures.add(found)
        return {"status": found.plain(), "why": _why(found)}

    def newest(self) -> Status:
        """The newest status."""
        return read_status(self.pipeline())

    def pipeline(self) -> Pipeline:
        """The pipeline, read again if its file has changed."""
        if self._pipeline is None or self._has_changed(self.file):
            self._pipeline = load(self.file)
            self._setup = {}
        return self._pipeline

    def setup(self) -> dict[str, Any]:
        """What is in force: queries, streams, commands."""
        try:
            pipeline = self.pipeline()
            if self._has_changed(log_of(pipeline).path) or not self._setup:
                self._setup = {}
                self._setup = self._made(pipeline)
            return self._setup
        except HeadraceError as error:
            return {"problem": told(error)}

    def tails(self) -> dict[str, Any]:
        """The newest answers of each query, and its late and rejected rows."""
        found: dict[str, dict[str, Any]] = {}
        for (query, output), reader in self._tails.items():
            found.setdefault(query, {})[output] = {"path": str(reader.path), **asdict(reader.read())}
        return found

    def send(self, written: Mapping[str, Any]) -> Sent:
        """Check a command and write it to the control log."""
        return send(self.pipeline(), self.command(written))

    def command(self, written: Mapping[str, Any]) -> Command:
        """The command of JSON data."""
        return from_json(written, "the page")

    def _made(self, pipeline: Pipeline) -> dict[str, Any]:
        entries = log_of(pipeline).read()
        current = in_force(pipeline, entries)
        self._follow(current)
        return {
            "name": pipeline.name,
            "file": str(self.file),
            "runtime": pipeline.runtime,
            "queries": [_query(each, current) for each in current.queries],
            "streams": {name: _bounds(current, name) for name in current.read},
            "budget": current.spec.memory.budget,
            "policy": current.spec.memory.policy,
            "commands": [
                {
                    "number": each.number,
                    "written": each.written,
                    "what": describe(each.command),
                    "refused": each.refused,
                }
                for each in entries[-COMMANDS:]
            ],
        }

    def _follow(self, pipeline: Pipeline) -> None:
        """Follow the outputs of the queries in force."""
        found: dict[tuple[str, str], TailReader] = {}
        for query in pipeline.queries:
            for output in OUTPUTS:
                reader = reader_of(getattr(query.spec, output, None), pipeline.path)
                if reader is not None:
                    known = self._tails.get((query.name, output))
                    same = known is not None and (known.path, known.format) == (reader.path, reader.format)
                    found[query.name, output] = known if known is not None and same else reader
        self._tails = found

    def _has_changed(self, path: Path) -> bool:
        """Whether a file or directory is not what it was at the last call."""
        try:
            found = path.stat()
            mark: Mark | None = (found.st_ino, found.st_size, found.st_mtime_ns)
        except OSError:
            mark = None
        changed = path not in self._marks or self._marks[path] != mark
        self._marks[path] = mark
        return changed


def told(error: HeadraceError) -> dict[str, str]:
    """An error as the command line prints it, and in parts."""
    return {
        "text": str(error),
        "code": error.code,
        "message": error.message,
        "place": error.place,
        "hint": error.hint,
    }


def _why(status: Status) -> dict[str, Any]:
    why = Why.of(status)
    return {**why.plain(), "nothing": NOTHING}


def _query(query: PipelineQuery, pipeline: Pipeline) -> dict[str, Any]:
    sink = query.spec.sink
    domain = pipeline.ticks_per_second
    windows = []
    for name, node in windows_of(query).items():
        bounds, rows = bounds_of(node), counts_rows(node)
        if bounds is not None:
            windows.append(
                {
                    "name": name,
                    "granularity": isinstance(node, Granularity),
                    "least": str(bounds.least) if rows else readable(bounds.least, domain),
                    "most": f"{bounds.most} rows" if rows else readable(bounds.most, domain),
                }
            )
    return {
        "name": query.name,
        "sql": query.query.text,
        "sink": getattr(sink, "path", None) or sink.type,
        "origin": query.origin,
        "paused": query.paused,
        "streams": sorted(query.streams),
        "windows": windows,
    }


def _bounds(pipeline: Pipeline, name: str) -> dict[str, Any]:
    """The bounds of a stream in words; None for those that are not set."""
    stream = pipeline.streams[name]
    table = stream.spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    bounds = table.get("bounds") or {}
    shown = bounds if isinstance(bounds, dict) else {"disorder": bounds}
    return {
        "external": stream.external,
        "disorder": shown.get("disorder"),
        "latency": shown.get("latency"),
        "guard": table.get("guard"),
    }
