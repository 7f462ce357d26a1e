"""Where a pipeline reads and writes: no output may be an input of the same pipeline, or another output.

Paths are compared as places on disk, not as text: `a.csv`, `./a.csv`, an absolute path and a link are one.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from headrace.pipeline.spec import FileSpec, HistoryFrom

Key = tuple[str | int, ...]

OUTPUTS: Final = {"sink": "answers", "late": "late rows", "rejected": "rejected rows"}
LEAVES: Final = ("part-000000.{ending}", "batch=0/part-00000.{ending}", "batch=0/part-00000.txt")
"""What runs write inside an output that is a directory: embedded, and on Spark, where every output is one."""


@dataclass(frozen=True)
class Place:
    """A path in the file: its key, a description for messages, and the path itself."""

    key: Key
    what: str
    path: Path

    @property
    def real(self) -> Path:
        """The path on disk, with links resolved."""
        return Path(os.path.realpath(self.path))


@dataclass(frozen=True)
class Clash:
    """An output, and what it collides with: an `input`, another `output`, or `state` of the run."""

    output: Place
    other: Place
    kind: str


def first_clash(spec: FileSpec, root: Path, file: Path | None) -> Clash | None:
    """The first output that would overwrite an input, the state of the run, or another output."""
    read, written = list(_inputs(spec, root, file)), list(_outputs(spec, root))
    kept = list(_kept(spec, root))
    for i, output in enumerate(written):
        for other in written[:i]:
            if _nested(output.real, other.real) or _same(output.path, other.path):
                return Clash(output, other, "output")
        for each in read:
            if _reads(each, output):
                return Clash(output, each, "input")
        for each in kept:
            if _within(each.real, output.real):
                return Clash(output, each, "state")
    return None


# --- the places that a file names -------------------------------------------------------------------------


def _outputs(spec: FileSpec, root: Path) -> Iterator[Place]:
    """The files and directories that queries write."""
    for i, query in enumerate(spec.queries):
        for key, rows in OUTPUTS.items():
            path = getattr(getattr(query, key), "path", None)
            if path is not None:
                yield Place(("queries", i, key), f"the {rows} of query {query.name!r}", root / path)


def _inputs(spec: FileSpec, root: Path, file: Path | None) -> Iterator[Place]:
    """The files and directories that the pipeline reads, including the pipeline file itself."""
    for name, stream in spec.streams.items():
        of = stream.source
        for each in (of.history, of.live) if isinstance(of, HistoryFrom) else (of,):
            path = getattr(each, "path", None)
            if path is not None:
                yield Place(("streams", name, "source"), f"stream {name!r}", root / path)
    for name, table in spec.tables.items():
        if table.path is not None:
            yield Place(("tables", name, "path"), f"table {name!r}", root / table.path)
    for i, query in enumerate(spec.queries):
        if query.sql_file is not None:
            text = f"the text of query {query.name!r}"
            yield Place(("queries", i, "sql_file"), text, root / query.sql_file)
    if file is not None:
        yield Place((), "the pipeline file", file)


def _kept(spec: FileSpec, root: Path) -> Iterator[Place]:
    """What the run itself stores on disk; an output that contains it could replace it."""
    places = {
        ("pipeline", "checkpoint"): spec.pipeline.checkpoint,
        ("pipeline", "record"): spec.pipeline.record,
        ("memory", "spill"): spec.memory.spill,
    }
    for key, path in places.items():
        if path is not None:
            yield Place(key, f"the {key[1]} directory", root / path)


# --- whether two places overlap ---------------------------------------------------------------------------


def _reads(source: Place, output: Place) -> bool:
    """Whether reading `source` reads what `output` writes, or writing `output` replaces the source."""
    base, rest = _split(source.path)
    if _within(base, output.real):
        return True
    if rest:
        found = any(_matches(rest, parts) for parts in _below(base, output)) or _linked(source, output)
    else:
        found = any(not _hidden(parts) for parts in _below(base, output))
    return found or any(_same(each, output.path) for each in _listed(source.path))


def _split(path: Path) -> tuple[Path, tuple[str, ...]]:
    """The part of a path before its first wildcard, resolved on disk, and the rest."""
    if path.exists():
        return Path(os.path.realpath(path)), ()
    parts = path.parts
    first = next((i for i, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    return Path(os.path.realpath(Path(*parts[:first]))), parts[first:]


def _below(base: Path, output: Place) -> Iterator[tuple[str, ...]]:
    """The path from `base` to the output and to the files that it may contain, if they are below."""
    if _within(output.real, base):
        at = output.real.relative_to(base).parts
        ending = output.path.suffix.removeprefix(".") or "parquet"
        yield at
        yield from ((*at, *leaf.format(ending=ending).split("/")) for leaf in LEAVES)


def _linked(source: Place, output: Place) -> bool:
    """Whether a pattern names a new file in the output's folder, perhaps through a link to the folder."""
    path = output.real
    folders = (os.path.realpath(each) for each in glob.glob(str(source.path.parent), recursive=True))
    return _matches((source.path.name,), (path.name,)) and str(path.parent) in folders


def _matches(pattern: tuple[str, ...], parts: tuple[str, ...]) -> bool:
    """Whether a pattern matches a path or a directory that contains it."""
    if not pattern:
        return True
    if pattern[0] == "**":
        return any(_matches(pattern[1:], parts[i:]) for i in range(len(parts) + 1))
    if not parts or (_hidden(parts[:1]) and not pattern[0].startswith(parts[0][0])):
        return False
    return fnmatchcase(parts[0], pattern[0]) and _matches(pattern[1:], parts[1:])


def _hidden(parts: tuple[str, ...]) -> bool:
    """Whether a file is ignored because of its name."""
    return any(part.startswith((".", "_")) for part in parts)


def _listed(path: Path) -> list[str]:
    """The existing files that would be read."""
    return glob.glob(str(path / "*") if path.is_dir() else str(path), recursive=True)


def _same(a: str | Path, b: str | Path) -> bool:
    """Whether two paths refer to the same file, also through links."""
    if os.path.realpath(a) == os.path.realpath(b):
        return True
    try:
        return os.path.samefile(a, b)
    except OSError:
        return False


def _nested(a: Path, b: Path) -> bool:
    """Whether one path is inside the other."""
    return _within(a, b) or _within(b, a)


def _within(path: Path, folder: Path) -> bool:
    """Whether `path` is `folder` or inside of it."""
    return path == folder or folder in path.parents
