"""Outputs that already exist when a run starts, and what to do with them.

Nothing is overwritten unless the pipeline file says `existing = "replace"`, and then only what runs write: a
file or, in a directory, its parts. Both runtimes use this, so that one may replace what the other wrote.
"""

from __future__ import annotations

import re
from pathlib import Path

from headrace import disk
from headrace.errors import ConnectorError

_PART = re.compile(r"part-(\d+)\.\w+|batch=\d+")
_TRACE = re.compile(r"\.part-\d+\.draft|_SUCCESS|\..*\.crc|_temporary")


def is_there(path: Path) -> bool:
    """Whether an output exists: a file that is not empty, or a directory with parts."""
    if path.is_dir():
        return any(_PART.fullmatch(name) for name in disk.current.names(path))
    return path.exists() and disk.current.size(path) > 0


def refuse(path: Path, *, append: bool = True) -> ConnectorError:
    """The error for an output that already exists and must not be changed."""
    choices = ' or "append"' if append else ""
    return ConnectorError(
        "HR-C010",
        "the output already exists, and there is no checkpoint to continue from",
        place=str(path),
        hint=f'move or delete it, or set on the sink: {{ path = "…", existing = "replace"{choices} }}',
    )


def refuse_append(path: Path) -> ConnectorError:
    """The error for appending to an output of a different kind."""
    kind = "a directory" if path.is_dir() else "a file"
    return ConnectorError(
        "HR-C010",
        f"the output already exists as {kind}, so rows of this format cannot be appended to it",
        place=str(path),
        hint='use another path, or set existing = "replace" on the sink',
    )


def clear(path: Path) -> None:
    """Remove the output of an earlier run; an error if its directory has other files."""
    if not path.is_dir():
        disk.current.unlink(path, missing_ok=True)
        return
    found = disk.current.names(path)
    foreign = [each for each in found if not (_PART.fullmatch(each) or _TRACE.fullmatch(each))]
    if foreign:
        raise ConnectorError(
            "HR-C013",
            f"the directory contains other files, such as {foreign[0]!r}, so it is not replaced",
            place=str(path),
            hint="use a separate directory for the output, or move the other files away",
        )
    disk.current.rmtree(path)


def part_numbers(path: Path) -> list[int]:
    """The numbers of the parts in a directory, in any format."""
    if not path.is_dir():
        return []
    found = (re.fullmatch(r"part-(\d+)\.\w+", each) for each in disk.current.names(path))
    return sorted(int(match[1]) for match in found if match)
