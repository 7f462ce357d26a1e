"""The line of a key in a TOML text, which Python's TOML parser does not report."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_HEADER = re.compile(r"^\s*\[(\[)?\s*([^\]]+?)\s*\]")
_KEY = re.compile(r"""^\s*([A-Za-z0-9_.\-"']+)\s*=""")


def line_of(text: str, path: Sequence[str | int]) -> int:
    """The line (from 1) of the longest part of `path` that can be found; 0 if none."""
    best, where = 0, 0
    table: list[str | int] = []
    counts: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            table = _table(header[2], bool(header[1]), counts)
            here = [*table]
        elif key := _KEY.match(line):
            here = [*table, *_parts(key[1])]
        else:
            continue
        depth = _common(here, path) if _common(here, path) == len(here) else 0
        if depth < len(path) and depth:
            depth += _inline(line, path[depth:])
        if depth > best:
            best, where = depth, number
    return where


class Begins(NamedTuple):
    """How many lines after its key a text begins, and how many characters of that line come before it."""

    lines: int
    columns: int


def value_begins(text: str, line: int) -> Begins:
    """Where the text begins whose key is on a line: after its quotes, or on the next line after three."""
    found = re.search(r"""=\s*("{3}|'{3}|"|')""", text.splitlines()[line - 1]) if line else None
    if found is None:
        return Begins(0, 0)
    rest = text.splitlines()[line - 1][found.end() :]
    return Begins(1, 0) if len(found[1]) == 3 and not rest.strip() else Begins(0, found.end())


def _table(name: str, is_array: bool, counts: dict[str, int]) -> list[str | int]:
    """The path of a table header; an array of tables adds its index."""
    parts: list[str | int] = [*_parts(name)]
    if is_array:
        parts.append(counts.setdefault(name, 0))
        counts[name] += 1
    return parts


def _parts(name: str) -> list[str]:
    """The parts of a dotted key, without quotes."""
    return [part.strip().strip("\"'") for part in name.split(".")]


def _common(here: Sequence[str | int], path: Sequence[str | int]) -> int:
    """The length of the common prefix."""
    depth = 0
    for a, b in zip(here, path, strict=False):
        if a != b:
            break
        depth += 1
    return depth


def _inline(line: str, rest: Sequence[str | int]) -> int:
    """How many more keys of the path an inline table on this line contains."""
    depth = 0
    for key in rest:
        if not isinstance(key, str) or not re.search(rf"[{{,\s]{re.escape(key)}\s*=", line):
            break
        depth += 1
    return depth
