"""`headrace query "SELECT …" FILE`: the answer of a query over files, at once."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from headrace.connectors.encode import json_lines
from headrace.errors import InputError
from headrace.frames import Result, sql

REASONS = 3
"""The maximum number of rejected rows that are described."""


def ask(text: str, files: Sequence[str], time: Sequence[str], rows: int, as_json: bool) -> str:
    """What to print: the first rows as a table, or all rows as JSON lines."""
    if text == "-":
        text = sys.stdin.read()
    if not files:
        raise InputError(
            "HR-I077",
            "no file was given",
            place="headrace query",
            hint='name the files of its streams after it: headrace query "SELECT … FROM bids" bids.csv',
        )
    try:
        found = sql(text, _named(files), time=_times(time))
    except InputError as error:
        raise _as_option(error) from None
    if not as_json:
        return "\n".join([found.as_text(rows), *_rejected(found)])
    for line in _rejected(found):
        print(line, file=sys.stderr)
    return b"".join(map(json_lines, found.to_arrow().to_batches())).decode().rstrip("\n")


def _named(files: Sequence[str]) -> dict[str, Path]:
    """Files by the names that the query uses: `name=path`, or the name of the file without its ending."""
    found: dict[str, Path] = {}
    for each in files:
        name, equals, path = each.partition("=")
        if not equals or Path(each).exists():
            name, path = Path(each).stem, each
        if name in found:
            raise InputError(
                "HR-I077",
                f"two files are named {name!r}",
                place=each,
                hint=f"give one of them another name: other={path}",
            )
        found[name] = Path(path)
    return found


def _as_option(error: InputError) -> InputError:
    """The error with a time column as this command takes it, where the hint has the argument of Python."""
    hint = re.sub(r'time=\{"(.+)": "(.+)"\}', r"--time \1=\2", error.hint or "")
    hint = re.sub(r'time="(.+?)"', r"--time \1", hint)
    return InputError(error.code, error.message, place=error.place, hint=hint)


def _times(time: Sequence[str]) -> str | dict[str, str] | None:
    """The time columns: one name for all files, or `name=column` for each."""
    if not time:
        return None
    if len(time) == 1 and "=" not in time[0]:
        return time[0]
    wrong = next((each for each in time if "=" not in each), None)
    if wrong is not None:
        raise InputError(
            "HR-I076",
            f"--time {wrong} does not say which file it is for",
            place="--time",
            hint=f"write --time NAME={wrong} for each file",
        )
    return dict(each.split("=", 1) for each in time)


def _rejected(found: Result) -> list[str]:
    """The first reasons why rows were rejected."""
    table: pa.Table = found.rejected
    lines = [
        f"  {row['stream']}: {row['reason']} ({row['code']})" for row in table.slice(0, REASONS).to_pylist()
    ]
    more = table.num_rows - REASONS
    return [*lines, f"  … and {more:,} more"] if more > 0 else lines
