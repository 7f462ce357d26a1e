"""Streams that are other orders of the rows of a stream (Tucker & Maier, §1 and §5): `of = "bids"`.

Such a stream has the rows of the other, which are read once, in the order of a time of their own and with
bounds of their own. What says how rows are read is taken from the other stream.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any, Final

from headrace.errors import PipelineError

READ_AS: Final = ("source", "schema", "arrival", "punctuations")
"""The keys of a stream that its other orders share."""
ALONE: Final = (*READ_AS, "heartbeats", "shed")
"""The keys that another order cannot have."""

Fail = Callable[[str, str, tuple[str | int, ...], str], PipelineError]
"""The error for a code, a message, the path of a key, and a hint."""


def with_orders(tables: Mapping[str, Any], fail: Fail) -> Mapping[str, Any]:
    """The tables of a file, in which streams with `of` have the source and the columns of their stream."""
    streams = tables.get("streams")
    if not isinstance(streams, Mapping):
        return tables
    found = {
        name: _completed(name, each, streams, fail) if isinstance(each, Mapping) and "of" in each else each
        for name, each in streams.items()
    }
    return {**tables, "streams": found}


def _completed(
    name: str, table: Mapping[str, Any], streams: Mapping[str, Any], fail: Fail
) -> Mapping[str, Any]:
    """The table of an order with what it takes from the stream whose rows it has."""
    of, at = table["of"], ("streams", name)
    read = streams.get(of) if isinstance(of, str) else None
    if not isinstance(read, Mapping):
        near = difflib.get_close_matches(str(of), [each for each in streams if each != name], n=1)
        hint = f"did you mean {near[0]}?" if near else f"streams: {', '.join(streams)}"
        raise fail("HR-F026", f"the stream {of!r} does not exist", (*at, "of"), hint)
    if "of" in read:
        hint = f"write of = {read['of']!r}"
        raise fail("HR-F026", f"{of!r} is itself another order of {read['of']!r}", (*at, "of"), hint)
    shared = {key: read[key] for key in READ_AS if key in read}
    key = next((key for key in ALONE if key in table and table[key] != shared.get(key)), None)
    if key is not None:
        message = f"{key} cannot be set for another order of {of!r}"
        raise fail("HR-F026", message, (*at, key), f"remove {key}, or remove of and give {name} a source")
    _check_read(of, read, name, fail)
    return {**table, **shared}


def _check_read(of: str, read: Mapping[str, Any], name: str, fail: Fail) -> None:
    """All rows of the stream must be rows in every order."""
    heartbeats, time = read.get("heartbeats"), read.get("time")
    if heartbeats is not None and not (isinstance(heartbeats, Mapping) and heartbeats.get("data")):
        message = f"heartbeats of {of!r} are no rows of its other order {name!r}"
        raise fail("HR-F026", message, ("streams", of, "heartbeats"), "set data = true, or remove heartbeats")
    if isinstance(time, Mapping) and time.get("earliest") is not None:
        message = f"earliest of {of!r} would take rows from its other order {name!r}"
        hint = f"remove earliest, or set it for {name}, and use a WHERE for {of}"
        raise fail("HR-F026", message, ("streams", of, "time", "earliest"), hint)
