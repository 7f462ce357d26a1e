"""A file, or a directory of files that may grow, as a source: file after file, in the order of their names.

The position says how far each file was read, so that a restart goes on exactly there.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headrace.connectors.codes import Code
from headrace.connectors.contract import Bad, Block, Position, empty
from headrace.connectors.formats import GROWING, READERS, Format, Reader
from headrace.errors import ConnectorError
from headrace.schema import Schema

ORDERS: Final[dict[str, Callable[[Path], Any]]] = {
    "name": str,
    "modified": lambda path: (path.stat().st_mtime_ns, str(path)),
}


@dataclass
class FilesSource:
    """All files that a path names: a file, a directory or a pattern.

    `follow`: new files, and new lines at the end of files, are rows to come, and the source has no end.
    Files whose names begin with `.` or `_` are not there yet.
    """

    path: str
    schema: Schema
    how: Format
    follow: bool = False
    order: str = "name"

    def __post_init__(self) -> None:
        self._done: dict[str, Any] = {}
        self._finished: set[str] = set()
        self._queue: list[Path] = []
        self._open: tuple[str, Reader] | None = None
        self._listed = False
        self.ended = False

    @property
    def bounded(self) -> bool:
        return not self.follow

    def read(self) -> Block | None:
        if not self._queue and (self.follow or not self._listed):
            self._queue = [path for path in self._list() if self._has_more(path)]
            self._listed = True
        while self._queue:
            block = self._read_on(self._queue[0])
            if block is not None:
                return block
            self._leave(self._queue[0])
        self.ended = not self.follow
        return None

    def _list(self) -> list[Path]:
        root = Path(self.path)
        pattern = str(root / "*") if root.is_dir() else self.path
        found = [Path(name) for name in glob.glob(pattern, recursive=True)]
        files = [path for path in found if path.is_file() and not path.name.startswith((".", "_"))]
        if not files and not self.follow and not root.exists():
            raise ConnectorError(
                "HR-C001",
                f"no file {self.path!r}",
                place=os.getcwd(),
                hint="give a file, a directory or a pattern; follow = true waits for files to come",
            )
        return sorted(files, key=ORDERS[self.order])

    def _has_more(self, path: Path) -> bool:
        name = str(path)
        if name not in self._done or name not in self._finished:
            return True
        grows = self.follow and self.how.name in GROWING
        return grows and path.stat().st_size > int(self._done[name] or 0)

    def _read_on(self, path: Path) -> Block | None:
        name = str(path)
        try:
            found = self._reader(path).read(self._done.get(name), complete=not self.follow)
        except OSError as error:
            self._done[name] = None
            return self._unreadable(path, error)
        if found is None:
            return None
        block, self._done[name] = found
        return block

    def _unreadable(self, path: Path, error: OSError) -> Block | None:
        """A file that cannot be opened is one bad row; the files after it are read."""
        if str(path) in self._finished:
            return None
        self._finished.add(str(path))
        return Block(empty(self.schema), (Bad(Code.UNREADABLE, f"cannot be read: {error}", str(path)),))

    def _reader(self, path: Path) -> Reader:
        name = str(path)
        if self._open is None or self._open[0] != name:
            self.close()
            self._open = (name, READERS[self.how.name](path, self.schema, self.how))
        return self._open[1]

    def _leave(self, path: Path) -> None:
        """The file has nothing more for now; it is left for the next one."""
        self._done.setdefault(str(path), None)
        self._finished.add(str(path))
        self._queue.pop(0)
        if len(self._queue) or not self.follow:
            self.close()

    def position(self) -> Position:
        return {"read": dict(self._done), "left": sorted(self._finished)}

    def seek(self, position: Position) -> None:
        self.close()
        self._done, self._finished = dict(position["read"]), set(position["left"])
        self._queue, self._listed, self.ended = [], False, False
        for name, at in self._done.items():
            unfinished = name not in self._finished or self.how.name in GROWING
            if unfinished and at is not None:
                self._check(name, at)

    def _check(self, name: str, at: Any) -> None:
        """A file that was read in part must be there still, and not be shorter."""
        path = Path(name)
        gone = not path.exists() and name not in self._finished
        shorter = path.exists() and self.how.name in GROWING and path.stat().st_size < int(at)
        if gone or shorter:
            raise ConnectorError(
                "HR-C002",
                f"the file is {'gone' if gone else 'shorter than it was'}, and was read up to {at}",
                place=name,
                hint="put the file back, or delete the checkpoint and the outputs to begin anew",
            )

    def close(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None
