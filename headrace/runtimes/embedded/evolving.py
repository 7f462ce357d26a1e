"""A restart with a changed pipeline: what must stay as it was, and what each query continues with.

The state of queries is the engine's part (`Engine.adopt`). Here are the streams, whose positions are in the
checkpoint, the generations of queries, and the outputs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from headrace.connectors.identity import Names
from headrace.engine.execution import Execution
from headrace.errors import DurabilityError
from headrace.pipeline import Pipeline
from headrace.pipeline.lookups import digest_of

FILES: Final = (
    "max_line",
    "block_bytes",
    "block_rows",
    "max_block",
    "follow",
    "keep_open",
    "storage",
    "poll",
)
SOCKETS: Final = ("max_clients", "idle_timeout", "max_pending", "host", "port")
KAFKA: Final = ("servers", "options", "max_message", "start", "isolation")
TUNING: Final = frozenset((*FILES, *SOCKETS, *KAFKA))
"""Keys of a source that do not change which rows it has, or where they begin."""
OUTPUTS: Final = ("sink", "late", "rejected")


def essence(pipeline: Pipeline) -> dict[str, Any]:
    """The parts of a pipeline that a checkpoint remembers, to compare with them at the next start."""
    tables = pipeline.tables()
    names = Names(pipeline.root)
    for each in tables["tables"].values():
        if "path" in each:
            each["path"] = names.of(Path(each["path"]))
    kept = {key: tables[key] for key in ("streams", "tables", "queries", "skew")}
    usual = asdict(Execution())  # a checkpoint of an earlier version has the strategy only
    running = {
        key: value
        for key, value in asdict(pipeline.execution).items()
        if key == "strategy" or value != usual[key]
    }
    return kept | {"clock": tables["pipeline"].get("clock"), **running}


def check_names(pipeline: Pipeline, reset: Collection[str], reload: Collection[str]) -> None:
    """Raise an error if a query to reset or a table to reload does not exist."""
    queries, tables = {each.name for each in pipeline.queries}, set(pipeline.spec.lookups)
    for names, known, what in ((reset, queries, "query"), (reload, tables, "table")):
        wrong = next((name for name in sorted(names) if name not in known), None)
        if wrong is not None:
            raise DurabilityError(
                "HR-D012",
                f"there is no {what} {wrong!r} to {'reset' if what == 'query' else 'reload'}",
                place=str(pipeline.file or pipeline.root),
                hint=f"known: {', '.join(sorted(known)) or 'none'}",
            )


def table_digests(pipeline: Pipeline) -> dict[str, str | None]:
    """By table, a digest of its rows, except for tables that are reloaded: the state has their rows."""
    return {
        name: digest_of(pipeline, name) for name, table in pipeline.spec.lookups.items() if not table.reload
    }


def check_tables(
    before: Mapping[str, str | None],
    now: Mapping[str, str | None],
    pipeline: Pipeline,
    reload: Collection[str],
) -> None:
    """Raise an error if the file of a table has changed, unless its new rows are wanted."""
    changed = [name for name in now if name in before and before[name] != now[name]]
    table = next((name for name in changed if name not in reload), None)
    if table is not None:
        path = pipeline.spec.tables[table].path
        raise DurabilityError(
            "HR-D005",
            f"the {'file' if path else 'query'} of table {table} has other rows than when the checkpoint was "
            "written",
            place=str(pipeline.path(path)) if path else f"tables.{table}",
            hint=f"answers so far used the old rows: restore them, or use the new rows from here on with "
            f"--reload {table}, or set reload on the table, or use a new checkpoint and new outputs",
        )


def check_streams(
    before: Mapping[str, Any], positions: Collection[str], pipeline: Pipeline, place: str
) -> None:
    """Raise an error if a stream that the checkpoint has a position in has another source or time now."""
    now = essence(pipeline)["streams"]
    for name, stream in pipeline.read.items():
        if name not in before or (stream.of or name) not in positions:
            continue
        for key in ("of", "source", "time", "arrival"):
            old, new = (_lasting(tables[name].get(key)) for tables in (before, now))
            changed = difference(old, new, f"streams.{name}.{key}")
            if changed:
                raise DurabilityError(
                    "HR-D005",
                    f"{changed} has changed, and the checkpoint has a position in stream {name} as it was",
                    place=place,
                    hint="undo the change, give the changed stream a new name (queries that read it begin "
                    "empty), or use a new checkpoint and new outputs",
                )


def check_clock(before: str | None, now: str, place: str) -> None:
    """Raise an error if the pipeline would go on with another clock."""
    if before is not None and before != now:
        raise DurabilityError(
            "HR-D005",
            f"the checkpoint was written with the {before} clock, and the pipeline now uses the {now} clock",
            place=place,
            hint=f'set clock = "{before}" under [pipeline], or use a new checkpoint and new outputs',
        )


def with_generations(pipeline: Pipeline, since: Mapping[str, int], reset: Collection[str]) -> Pipeline:
    """The pipeline with its queries in the generations that they had; new and reset ones are a new one."""
    fresh = min([0, *since.values()]) - 1
    queries = []
    for query in pipeline.queries:
        if query.name in reset:
            queries.append(replace(query, since=fresh))
        elif query.name in since:
            queries.append(replace(query, since=since[query.name]))
        else:
            queries.append(query if query.since else replace(query, since=fresh))
    return replace(pipeline, queries=tuple(queries))


def continued_outputs(before: Mapping[str, Any], now: Mapping[str, Any]) -> set[str]:
    """The outputs that are where they were, by name: `QUERY/sink`, `QUERY/late`, `QUERY/rejected`."""
    old = {table["name"]: table for table in before["queries"]}
    return {
        f"{table['name']}/{output}"
        for table in now["queries"]
        if table["name"] in old
        for output in OUTPUTS
        if _place(table.get(output)) == _place(old[table["name"]].get(output))
    }


def _place(sink: Any) -> Any:
    """Where an output goes: without what matters only at its start, or for each row alone."""
    return (
        None
        if sink is None
        else {k: v for k, v in sink.items() if k not in ("existing", "time", "patience", "storage")}
    )


def _lasting(value: Any) -> Any:
    """Without keys that do not change which rows there are, also in the parts of a source."""
    if not isinstance(value, dict):
        return value
    return {key: _lasting(each) for key, each in value.items() if key not in TUNING}


def lasting(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The tables without settings that matter only at the first start."""
    queries = [{key: _lasting_sink(each) for key, each in query.items()} for query in tables["queries"]]
    return {**tables, "queries": queries}


def _lasting_sink(value: Any) -> Any:
    """The table of a sink without `existing`, which matters only at the first start."""
    return {k: v for k, v in value.items() if k != "existing"} if isinstance(value, dict) else value


def difference(a: Any, b: Any, at: str = "") -> str:
    """The first place where two trees differ."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted(a.keys() | b.keys()):
            found = difference(a.get(key), b.get(key), f"{at}.{key}" if at else key)
            if found:
                return found
        return ""
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        pairs = enumerate(zip(a, b, strict=True))
        return next((f for i, (x, y) in pairs if (f := difference(x, y, f"{at}.{i}"))), "")
    return "" if a == b else at
