"""Files of object stores and other file systems, by URI: `s3://`, `gs://`, `hdfs://` and those of fsspec.

Objects do not grow: an object is read once, from its beginning to its end, and is known by its key, its size
and the time at which it was written. A sink writes one object for each commit. Its name has the number of the
commit, so writing a commit again writes the same object: each row is there once.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any, Final

import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq
from pyarrow import fs

from headrace.connectors.contract import Bad, Block, Code, Position, Span, empty
from headrace.connectors.encode import csv_header, csv_lines, json_lines
from headrace.connectors.finished import FinishedFiles
from headrace.connectors.formats import READERS, Format, Reader
from headrace.connectors.identity import Mark
from headrace.connectors.pieces import SAME_SCHEMES, Storage
from headrace.errors import ConnectorError
from headrace.schema import Schema
from headrace.time.clock import seconds

FILESYSTEMS: Final[Mapping[str, str]] = {"s3": "S3FileSystem", "gs": "GcsFileSystem", "gcs": "GcsFileSystem"}
"""By scheme, the file systems of Arrow that take options by name."""
PATTERN: Final = re.compile(r"[*?\[]")
_PART: Final = re.compile(r"part-([0-9a-f]{12})-(\d{8,})\.\w+")


def is_remote(path: str) -> bool:
    """Whether a path of the pipeline file is a URI."""
    return "://" in path


def storage_of(uri: str, options: Mapping[str, Any]) -> Storage:
    """How files at a URI are reached; without options, with what the environment says."""
    if not options:
        return Storage()
    scheme = uri.partition("://")[0]
    scheme = SAME_SCHEMES.get(scheme, scheme)
    if scheme in FILESYSTEMS and hasattr(fs, FILESYSTEMS[scheme]):
        return Storage(getattr(fs, FILESYSTEMS[scheme])(**options))
    return Storage(import_module("fsspec").filesystem(scheme, **options))


@dataclass(frozen=True)
class Listed:
    """An object: its key, and what it is known by."""

    key: str
    size: int
    modified: int

    @staticmethod
    def of(info: fs.FileInfo) -> Listed:
        """The object of an entry of a listing."""
        return Listed(info.path, int(info.size or 0), int(info.mtime_ns or 0))


ORDERS: Final[Mapping[str, Callable[[Listed], Any]]] = {
    "name": lambda each: each.key,
    "modified": lambda each: (each.modified, each.key),
}


@dataclass
class Objects:
    """The objects at a URI: one object, those under a prefix, or those that match a pattern.

    Names that begin with `.` or `_` are ignored.
    """

    uri: str
    storage: Storage = field(default_factory=Storage)
    order: str = "name"

    def __post_init__(self) -> None:
        self.store, self._root = _reached(self.storage, self.uri)

    def found(self, *, required: bool = False) -> list[Listed]:
        """The objects that are there, in order; an error if there are none and some are `required`."""
        try:
            infos = self._infos()
        except OSError as error:
            raise failed(error, self.uri) from error
        shown = [each for each in infos if not PurePosixPath(each.path).name.startswith((".", "_"))]
        if not shown and required:
            raise ConnectorError(
                "HR-C001",
                f"no object matches {self.uri!r}",
                place=self.uri,
                hint="check the URI, or set follow = true to wait for objects",
            )
        return sorted(map(Listed.of, shown), key=ORDERS[self.order])

    def uri_of(self, key: str) -> str:
        """The URI of an object."""
        scheme, whole = self.uri.partition("://")[0], self.uri.rstrip("/")
        before = whole.removesuffix(self._root)
        return f"{before if '://' in before and before != whole else f'{scheme}://'}{key}"

    def _infos(self) -> Sequence[fs.FileInfo]:
        match = PATTERN.search(self._root)
        if match is None:
            (one,) = self.store.get_file_info([self._root])
            if one.type == fs.FileType.File:
                return [one]
            base, wanted, deep = self._root, None, False
        else:
            base = self._root[: match.start()].rpartition("/")[0]
            wanted, deep = _regular(self._root), "/" in self._root[match.start() :]
        selector = fs.FileSelector(base, recursive=deep, allow_not_found=True)
        files = (each for each in self.store.get_file_info(selector) if each.type == fs.FileType.File)
        return [each for each in files if wanted is None or wanted.fullmatch(each.path)]


@dataclass
class RemoteFilesSource:
    """The objects at a URI, each read once.

    With `follow`, it waits for new objects and never ends; it lists them at most once in `poll` seconds.
    `now` is the clock of the run.
    """

    uri: str
    schema: Schema
    how: Format
    follow: bool = False
    order: str = "name"
    storage: Storage = field(default_factory=Storage)
    finished: FinishedFiles = field(default_factory=FinishedFiles)
    say: Callable[[str], None] = lambda message: None
    now: Callable[[], int] = lambda: 0
    poll: float = 1.0

    def __post_init__(self) -> None:
        self._objects = Objects(self.uri, self.storage, self.order)
        self._store = self._objects.store
        self._queue: list[Listed] = []
        self._at: Any = None
        """How far the first object of the queue was read."""
        self._reader: Reader | None = None
        self._stop: Any = None
        self._looked, self._listed_at = -self.poll, 0
        self._read_until: int | None = None
        self._told: set[str] = set()
        self.ended = False

    @property
    def bounded(self) -> bool:
        return not self.follow

    def read_until(self) -> int | None:
        """The instant of the last listing whose objects have all been read."""
        return self._read_until

    def read(self) -> Block | None:
        while True:
            if not self._queue and not self._look():
                return None
            listed, begin = self._queue[0], self._at
            found = self._next(listed)
            if isinstance(found, Bad):
                self._finish(listed)
                return Block(empty(self.schema), (found,))
            if found is None:
                self._finish(listed)
                continue
            block, self._at = found
            span = {"object": [listed.key, listed.size, listed.modified], "from": begin, "to": self._at}
            return replace(block, span=span)

    def _next(self, listed: Listed) -> tuple[Block, Any] | Bad | None:
        """The next rows of an object; a bad row if it cannot be read at all, None at its end."""
        stop, self._stop = self._stop, None
        try:
            if self._reader is None:
                opened = lambda _: io.BufferedReader(self._store.open_input_file(listed.key))  # noqa: E731
                self._reader = READERS[self.how.name](
                    Path(listed.key), self.schema, replace(self.how, opened=opened)
                )
            return self._reader.read(self._at, complete=True, stop=stop)
        except (FileNotFoundError, PermissionError) as error:
            if self._at is not None:
                raise self._failed(error, listed.key) from error
            return Bad(Code.UNREADABLE, f"the object cannot be read: {_gist(error)}", listed.key)
        except OSError as error:
            raise self._failed(error, listed.key) from error

    def _finish(self, listed: Listed) -> None:
        """Leave an object that was read to its end."""
        self._close_reader()
        self._queue.pop(0)
        self._at = None
        self.finished.add(listed.key, Mark(None, listed.size, 0, 0, 0, listed.modified, left=True))

    def _look(self) -> bool:
        """Look for objects that were not read yet; false if there are none now."""
        if self.follow and self._listed_at:
            self._read_until = self._listed_at
        if (self.ended and not self.follow) or (self.follow and seconds() - self._looked < self.poll):
            return False
        begun = self.now()
        found = self._objects.found(required=not self.follow)
        self._looked, self._listed_at = seconds(), begun
        self._queue = [each for each in found if self._is_new(each)]
        if not self._queue:
            self._read_until = begun
            self.ended = not self.follow
        return bool(self._queue)

    def _is_new(self, listed: Listed) -> bool:
        """Whether an object was not read yet; says so if one that was read has changed."""
        known = self.finished.get(listed.key)
        if known is None:
            return True
        if (known.taken, known.modified) != (listed.size, listed.modified) and listed.key not in self._told:
            self._told.add(listed.key)
            self.say(f"{listed.key} was replaced after it was read: its new content is not read")
        return False

    # --- positions

    def position(self) -> Position:
        inside = None
        if self._queue and self._at is not None:
            first = self._queue[0]
            inside = [first.key, first.size, first.modified, self._at]
        return {"log": self.finished.position(), "in": inside}

    def seek(self, position: Position, span: Span | None = None) -> None:
        self._close_reader()
        self.finished.restore(position["log"])
        self._queue, self._at, self._stop, self.ended = [], None, None, False
        self._looked, self._listed_at, self._read_until = -self.poll, 0, None
        inside = position["in"]
        if span is not None:
            inside, self._stop = [*span["object"], span["from"]], span["to"]
        if inside is not None:
            *known, self._at = inside
            self._queue = [self._same(Listed(*known))]

    def _same(self, known: Listed) -> Listed:
        """The object that was read in part; an error if it is another one now."""
        try:
            (info,) = self._store.get_file_info([known.key])
        except OSError as error:
            raise self._failed(error, known.key) from error
        if info.type == fs.FileType.File and Listed.of(info) == known:
            return known
        gone = info.type != fs.FileType.File
        raise ConnectorError(
            "HR-C002",
            f"the object {'no longer exists' if gone else 'has changed'}, but it was read in part",
            place=known.key,
            hint="restore it, or delete the checkpoint and the outputs to start over",
        )

    def _failed(self, error: OSError, place: str) -> ConnectorError:
        return failed(error, place)

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def close(self) -> None:
        self._close_reader()


def _reached(storage: Storage, uri: str) -> tuple[fs.FileSystem, str]:
    """The file system of a URI and the path in it; a coded error if it cannot be reached."""
    try:
        store, path = storage.found(uri)
    except (OSError, ImportError, ValueError, pa.ArrowException) as error:
        raise failed(error, uri) from error
    return store, path.rstrip("/")


def failed(error: Exception, place: str) -> ConnectorError:
    """The error of a store that cannot be reached, or refuses."""
    return ConnectorError(
        "HR-C027",
        f"the store of the files cannot be reached or refuses: {_gist(error)}",
        place=place,
        hint="check the address, the credentials in the environment, and the permissions",
    )


def _gist(error: Exception) -> str:
    return re.sub(r"\s+", " ", str(error)).strip()[:300]


def _regular(pattern: str) -> re.Pattern[str]:
    """A pattern of paths as a regular expression: `*` and `?` stay within a name, `**` does not."""
    parts = re.split(r"(\*\*/?|\*|\?|\[[^]]*\])", pattern)
    known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile(
        "".join(known.get(each, each if each.startswith("[") else re.escape(each)) for each in parts)
    )


# --- a sink -----------------------------------------------------------------------------------------------


def _parquet(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    return bytes(sink.getvalue())


def _arrow(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def _lines(encode: Callable[[pa.RecordBatch], bytes], rows: pa.Table) -> bytes:
    return b"".join(encode(each) for each in rows.to_batches())


ENCODED: Final[Mapping[str, tuple[str, Callable[[pa.Table], bytes]]]] = {
    "json": ("jsonl", lambda rows: _lines(json_lines, rows)),
    "csv": ("csv", lambda rows: csv_header(rows.schema) + _lines(csv_lines, rows)),
    "parquet": ("parquet", _parquet),
    "arrow": ("arrow", _arrow),
}
"""By format, the ending of an object and how rows become its content."""


@dataclass
class ObjectsTarget:
    """A prefix of a store, with one object for each commit: `part-RUN-NUMBER.parquet`.

    An object is complete when it appears. `existing`: whether objects of other runs stay (`append`), go
    (`replace`), or are an error.
    """

    uri: str
    format: str
    storage: Storage = field(default_factory=Storage)
    existing: str = "error"

    def __post_init__(self) -> None:
        self._store, self._root = _reached(self.storage, self.uri)

    @property
    def place(self) -> str:
        """The URI."""
        return self.uri

    def begin(self) -> None:
        if self.existing == "error" and self._parts():
            raise ConnectorError(
                "HR-C010",
                "the output already exists",
                place=self.uri,
                hint='choose another path, or say what to do with it: existing = "replace" or "append"',
            )

    def _parts(self) -> dict[str, tuple[str, int]]:
        """By path, the runs and numbers of the objects of sinks."""
        selector = fs.FileSelector(self._root, allow_not_found=True)
        try:
            paths = [each.path for each in self._store.get_file_info(selector)]
        except OSError as error:
            raise failed(error, self.uri) from error
        found = ((path, _PART.fullmatch(PurePosixPath(path).name)) for path in paths)
        return {path: (match[1], int(match[2])) for path, match in found if match is not None}

    def open(self, schema: Schema, run: str) -> None:
        parts = self._parts()
        try:
            if self._store.type_name not in ("s3", "gcs"):
                self._store.create_dir(self._root, recursive=True)
            if self.existing == "replace" and not any(of == run[:12] for of, _ in parts.values()):
                for path in parts:
                    self._store.delete_file(path)
        except OSError as error:
            raise failed(error, self.uri) from error

    def last(self, run: str) -> int | None:
        return max((number for of, number in self._parts().values() if of == run[:12]), default=0)

    def apply(self, run: str, number: int, rows: pa.Table) -> None:
        ending, encode = ENCODED[self.format]
        name = f"part-{run[:12]}-{number:08d}.{ending}"
        atomic = self._store.type_name in ("s3", "gcs")
        draft = f"{self._root}/{name}" if atomic else f"{self._root}/.{name}.draft"
        try:
            with self._store.open_output_stream(draft) as file:
                file.write(encode(rows))
            if not atomic:
                self._store.move(draft, f"{self._root}/{name}")
        except OSError as error:
            raise failed(error, self.uri) from error

    def close(self) -> None:
        return None
