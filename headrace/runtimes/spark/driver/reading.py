"""Rate limits: does a micro-batch read everything that has reached its source, or may it leave a backlog?

A bound on latency covers rows that have not reached their source, so the engine must know what is still
unread there. Spark does not report that to a query, but the options of the source show it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

ALL: Final = "all"
"""A micro-batch reads everything that its source has."""
LIMITED: Final = "limited"
"""A rate limit may leave a backlog; a source that returns no rows has none."""
FILES: Final = "files"
"""A rate limit may leave a backlog of files, which Spark reads in the order in which they were written."""
WITHHELD: Final = "withheld"
"""Spark may leave rows unread although there is room for them, to wait for a fuller micro-batch."""

_WITHHOLDS: Final = re.compile(r"min.*per.?(trigger|batch)|max.?trigger.?delay", re.I)
_LIMITS: Final = re.compile(r"max.*per.?(micro.?)?(trigger|batch)", re.I)
_LIMITED_UNLESS_SAID: Final = frozenset(("delta", "cloudfiles"))
_NEWEST_FIRST: Final = "latestfirst"
_METADATA: Final = "_metadata"

_REGROUPS: Final = frozenset(
    {"Aggregate", "Deduplicate", "Join", "Sort"}
    | {"RebalancePartitions", "Repartition", "RepartitionByExpression"}
)
"""Plan nodes of Spark and of Spark Connect that put rows of several partitions into one task."""

Source = tuple[str, Mapping[str, str]]
"""A source in a plan: its format, and its options with names in lower case."""


def takes(df: DataFrame, *, reached: bool = False) -> str:
    """How much of its sources a micro-batch of `df` reads; the most restricted source counts.

    `reached`: the user names a column that says when a row reached its source.
    """
    found = [_takes(form, options) for form, options in sources(df)]
    least = next((each for each in (WITHHELD, LIMITED) if each in found), ALL)
    return FILES if least == LIMITED and not reached and modified(df) is not None else least


def limits(option: str) -> bool:
    """Whether an option of a source is a rate limit, or withholds rows."""
    return bool(_WITHHOLDS.search(option) or _LIMITS.search(option))


def _takes(form: str, options: Mapping[str, str]) -> str:
    """Whether a source reads everything, is limited, or withholds rows, by its format and options."""
    if any(_WITHHOLDS.search(name) for name in options):
        return WITHHELD
    limited = form.lower() in _LIMITED_UNLESS_SAID or any(_LIMITS.search(name) for name in options)
    return LIMITED if limited else ALL


def modified(df: DataFrame) -> Column | None:
    """When the file of a row was written, in microseconds, if all rows come from files read in that order.

    This is when the row reached its source, or earlier.
    """
    if _METADATA in df.columns or any(_NEWEST_FIRST in options for _, options in sources(df)):
        return None
    column = F.col(f"{_METADATA}.file_modification_time")
    try:
        known = df.select(column).schema
    except Exception:  # no such column: an AnalysisException of Spark or of Spark Connect
        return None
    return F.unix_micros(column) if len(known) else None


def regrouped(df: DataFrame) -> bool:
    """Whether a task may get rows of several partitions of a source, which are then out of order."""
    plan = getattr(df, "_jdf", None)
    kinds = _nodes(plan.queryExecution().analyzed()) if plan is not None else _messages(_proto(df))
    return not _REGROUPS.isdisjoint(kinds)


def _nodes(plan: Any) -> Iterator[str]:
    """The names of all nodes of a logical plan."""
    yield str(plan.nodeName())
    children = plan.children()
    for i in range(children.size()):
        yield from _nodes(children.apply(i))


def _messages(message: Any) -> Iterator[str]:
    """The names of all messages in a Spark Connect plan."""
    yield message.DESCRIPTOR.name
    for each in _parts(message):
        yield from _messages(each)


def sources(df: DataFrame) -> list[Source]:
    """The streaming sources that a DataFrame reads."""
    plan = getattr(df, "_jdf", None)
    return list(_classic(plan) if plan is not None else _connect(df))


def _classic(frame: Any) -> Iterator[Source]:
    """The streaming sources of a classic DataFrame, with their options."""
    leaves = frame.queryExecution().analyzed().collectLeaves()
    for leaf in (leaves.apply(i) for i in range(leaves.size())):
        kind = leaf.getClass().getSimpleName()
        if kind == "StreamingRelation":
            yield leaf.sourceName(), _lowered(_scala_map(leaf.dataSource().options()))
        elif kind == "StreamingRelationV2":
            yield leaf.sourceName(), _lowered(dict(leaf.extraOptions()))


def _scala_map(options: Any) -> dict[str, str]:
    entries = options.toSeq()
    pairs = (entries.apply(i) for i in range(entries.size()))
    return {str(pair._1()): str(pair._2()) for pair in pairs}


def _connect(df: Any) -> Iterator[Source]:
    """The streaming sources of a Spark Connect DataFrame, with their options."""
    yield from _reads(_proto(df))


def _proto(df: Any) -> Any:
    """The plan that Spark Connect sends to the server."""
    return df._plan.to_proto(df.sparkSession.client)


def _reads(message: Any) -> Iterator[Source]:
    """The streaming reads in a Spark Connect plan."""
    if message.DESCRIPTOR.name == "Read" and message.is_streaming:
        yield message.data_source.format, _lowered(dict(message.data_source.options))
    for each in _parts(message):
        yield from _reads(each)


def _parts(message: Any) -> Iterator[Any]:
    """The messages directly inside a protobuf message, without maps."""
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        repeated = hasattr(value, "__iter__") and not hasattr(value, "DESCRIPTOR")
        yield from value if repeated else (value,)


def _lowered(options: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in options.items()}
