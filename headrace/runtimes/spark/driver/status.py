"""The status of a job: what its shards report, put together and written beside the checkpoint.

It has the form that an embedded run writes, so that `why`, `top` and `status` read both. It is written when
a micro-batch has been computed, before its rows go to slow sinks, and again when they are written.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, count
from time import time
from typing import Any, Final

from pyspark.sql import SparkSession

from headrace.engine.reasons import LATE, REJECTED, Reason, merged
from headrace.engine.scheduling import Dropping
from headrace.runtimes.records import RunRecords, ended
from headrace.runtimes.spark.driver.record import read_text, write_text
from headrace.runtimes.spark.worker.budgeting import uses_of
from headrace.runtimes.status import (
    RUNNING,
    SPARK_FILE,
    STARTING,
    Histories,
    LostExecutor,
    OperatorStatus,
    Quality,
    QueryStatus,
    Status,
    StreamStatus,
    Wait,
    histories_of,
    slowest_of,
)
from headrace.time.timestamp import MIN_TIME

_LOG = logging.getLogger("headrace.spark")


@dataclass(frozen=True)
class Described:
    """What the driver knows about a job: its name, its clock, the streams of its queries, what they read.

    `file` is its pipeline file, if it has one.
    """

    name: str
    clock: str = "system"
    ticking: bool = True
    ticks_per_second: int | None = None
    queries: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    file: str | None = None


@dataclass(frozen=True)
class Seen:
    """What a micro-batch brought to the driver: reports and reasons as texts, and results by query.

    `lost`: the executors that were lost since the micro-batch before.
    """

    reports: tuple[bytes, ...] = ()
    reasons: tuple[bytes, ...] = ()
    results: Mapping[str, int] = field(default_factory=dict)
    lost: tuple[LostExecutor, ...] = ()


@dataclass(frozen=True)
class Totals:
    """Results and reasons since the first start. A micro-batch that runs again is counted once."""

    results: Mapping[str, int] = field(default_factory=dict)
    reasons: tuple[Reason, ...] = ()


class StatusKeeper:
    """Follows a job: keeps the last status, so that the next one can say since when something is so."""

    def __init__(self, described: Described, checkpoint: str, begun: float | None = None) -> None:
        self.described = described
        self._checkpoint = checkpoint
        self._begun = time() if begun is None else begun
        self._records = RunRecords()
        self._last: Status | None = None
        self._before = Totals()
        """The totals before the micro-batch of the last status."""

    def start(self, spark: SparkSession) -> None:
        """Continue the status of an earlier start, and say that this one has begun."""
        try:
            self.resume(read_text(spark, self._checkpoint, SPARK_FILE))
        except Exception:  # a status that cannot be read is only missing
            _LOG.warning("cannot read the last status of the job", exc_info=True)
        if self._last is not None:
            self._last = replace(self._last, elapsed=0.0)  # rates count from this start
        last = self._last or Status(self.described.name, STARTING, self.described.clock, MIN_TIME, 0.0)
        starting = replace(last, state=STARTING, written=time(), error="", writing=())
        self.write(spark, lambda: replace(starting, **self._constant))

    def resume(self, text: str | None) -> None:
        """Continue from the text of a status."""
        if text is None:
            return
        plain = json.loads(text)
        self._last = Status.of(plain)
        before = plain.get("before", {})
        reasons = tuple(Reason(**each) for each in before.get("reasons", ()))
        self._before = Totals(before.get("results", {}), reasons)

    @property
    def last_written(self) -> float:
        """When the last micro-batch was written, or this start begun, in seconds of the system's clock."""
        return self._begun if self._last is None else max(self._begun, self._last.written)

    def serve(self, queries: Mapping[str, tuple[str, ...]]) -> None:
        """The queries of the job and their streams, which a control log may change."""
        self.described = replace(self.described, queries=queries)

    def computed(
        self, seen: Seen, batch: int, writing: Iterable[str] = (), now: float | None = None
    ) -> Status:
        """The status of a micro-batch that has been computed; `writing` are queries with rows to write."""
        return self._made(seen, batch, {}, tuple(writing), now)

    def written(self, seen: Seen, batch: int, sinks: Mapping[str, float], now: float | None = None) -> Status:
        """The status of a micro-batch that is written; `sinks` are the seconds that each query took."""
        status = self._made(seen, batch, sinks, (), now)
        self._before, self._last = self._totals(batch), status
        return status

    def write(self, spark: SparkSession, make: Callable[[], Status]) -> None:
        """Make a status and write it; a job does not fail because of it."""
        try:
            status = make()
            write_text(spark, self._checkpoint, SPARK_FILE, self.text(status), durable=False)
            self._records.see(status)
        except Exception:
            _LOG.warning("cannot write the status of the job", exc_info=True)

    def text(self, status: Status) -> str:
        """The text of the status file."""
        base = self._totals(status.batch)
        before = {"results": dict(base.results), "reasons": [asdict(each) for each in base.reasons]}
        return json.dumps({**status.plain(), "before": before})

    @property
    def _constant(self) -> dict[str, Any]:
        """What no micro-batch changes."""
        described = self.described
        return {
            "pipeline": described.name,
            "clock": described.clock,
            "runtime": "spark",
            "file": described.file,
            "ticks_per_second": described.ticks_per_second,
            "ticking": described.ticking,
        }

    def _totals(self, batch: int | None) -> Totals:
        """The totals before a micro-batch, which may run again."""
        last = self._last
        if last is None or last.batch is None or last.batch == batch:
            return self._before
        return Totals({name: q.rows_out for name, q in last.queries.items()}, last.reasons)

    def _made(
        self, seen: Seen, batch: int, sinks: Mapping[str, float], writing: tuple[str, ...], now: float | None
    ) -> Status:
        base = self._totals(batch)
        found = merged_reports([json.loads(each) for each in seen.reports], self.described)
        new = [Reason(**each) for text in seen.reasons for each in json.loads(text)]
        queries = {
            name: QueryStatus(
                base.results.get(name, 0) + seen.results.get(name, 0),
                0.0,
                found["held"].get(name, 0),
                streams,
                sinks.get(name, 0.0),
            )
            for name, streams in self.described.queries.items()
        }
        reasons = merged((*base.reasons, *new))
        figures = found["figures"]
        known = {} if self._last is None else self._last.histories
        figures["histories"] = {**known, **figures["histories"]}  # those of queries that are gone stay
        figures["streams"] = {n: _accounted(n, each, reasons) for n, each in figures["streams"].items()}
        at = time() if now is None else now
        made = Status(
            state=RUNNING,
            elapsed=at - self._begun,
            queries=queries,
            reasons=reasons,
            written=at,
            writing=writing,
            batch=batch,
            lost=seen.lost,
            **figures,
            **self._constant,
        )
        return made.after(self._last)


def merged_reports(reports: list[dict[str, Any]], described: Described) -> dict[str, Any]:
    """The reports of all shards as one: sums, the earliest instants, the lowest heartbeats."""
    now = max((each["now"] for each in reports), default=MIN_TIME)
    streams = {
        name: _stream([each["streams"][name] for each in reports if name in each["streams"]], now, source)
        for name, source in _named(reports, described).items()
    }
    figures = {
        "now": now,
        "streams": streams,
        "waiting": _waiting(reports, streams, described),
        "dropping": tuple({d["query"]: Dropping(**d) for each in reports for d in each["dropping"]}.values()),
        "quality": _quality(reports),
        "histories": _histories(reports),
        "operators": _added(each["operators"] for each in reports),
        "budget": max(
            (b for each in reports if (b := each["memory"].get("budget")) is not None), default=None
        ),
        "graph": _graph(reports),
        **{key: sum(each[key] for each in reports) for key in ("state_bytes", "bytes", "spilled_bytes")},
        **{key: {n: o for each in reports for n, o in each[key].items()} for key in ("orders", "conditions")},
    }
    return {"figures": figures, "held": _added(each["queries"] for each in reports)}


def _named(reports: Iterable[dict[str, Any]], described: Described) -> dict[str, str]:
    """The streams that some shard reports, and what they read."""
    names = dict.fromkeys(name for each in reports for name in each["streams"])
    return {name: described.sources.get(name, "") for name in names}


_COUNTS: Final = ("rows_in", "held_rows", "held_bytes")


def _stream(parts: list[dict[str, Any]], now: int, source: str) -> StreamStatus:
    """A stream that all these shards read a part of."""
    least = _least(each["heartbeat"] for each in parts)
    ended = all(each["ended"] for each in parts)
    return StreamStatus(
        **{name: sum(each[name] for each in parts) for name in _COUNTS},
        rows_processed=0,
        rows_late=0,
        rows_rejected=0,
        rows_per_second=0.0,
        heartbeat=least,
        lag=None if least is None or ended else now - least,
        ended=ended,
        read_until=_least(each["read_until"] for each in parts),
        disorder=parts[0]["disorder"],
        latency=parts[0]["latency"],
        learned=parts[0]["learned"],
        slowest=slowest_of(parts[0].get("slowest")),
        source=source,
    )


def _accounted(name: str, stream: StreamStatus, reasons: Iterable[Reason]) -> StreamStatus:
    """The stream with its late and rejected rows: an engine counts rows that were merged before it as one."""
    lost = {LATE: 0, REJECTED: 0}
    for each in reasons:
        lost[each.kind] += each.rows if each.stream == name else 0
    used = stream.rows_in - sum(lost.values())
    return replace(stream, rows_processed=used, rows_late=lost[LATE], rows_rejected=lost[REJECTED])


def _waiting(
    reports: list[dict[str, Any]], streams: Mapping[str, StreamStatus], described: Described
) -> tuple[Wait, ...]:
    """The waits of all shards: since the earliest, with the rows of all."""
    found: dict[tuple[str, str], Wait] = {}
    for plain in (each for report in reports for each in report["waiting"]):
        wait = Wait(**{**plain, "streams": tuple(plain["streams"])})
        known = found.get(wait.place)
        found[wait.place] = wait if known is None else _both(known, wait)
    return tuple(_with_streams(each, streams, described) for each in found.values())


def _both(one: Wait, other: Wait) -> Wait:
    return replace(
        one,
        streams=tuple(dict.fromkeys((*one.streams, *other.streams))),
        wanted=min(one.wanted, other.wanted),
        since=min((each.since for each in (one, other) if each.since is not None), default=None),
        rows=one.rows + other.rows,
        bytes=one.bytes + other.bytes,
    )


def _with_streams(wait: Wait, streams: Mapping[str, StreamStatus], described: Described) -> Wait:
    """The wait with streams that people know, the one furthest behind first.

    A host above another waits for the shards below, and with them for the streams that they read.
    """
    names = wait.streams
    if not all(name in streams for name in names):
        names = tuple(name for name in described.queries.get(wait.query, ()) if name in streams)
    beats = {name: streams[name].heartbeat for name in names}
    lacking = {name: MIN_TIME if beat is None else beat for name, beat in beats.items()}
    behind = sorted((name for name in lacking if lacking[name] < wait.wanted), key=lambda n: (lacking[n], n))
    return replace(wait, streams=tuple(behind))


def _foremost(reports: list[dict[str, Any]]) -> Iterable[tuple[str, dict[str, Any]]]:
    """The windows and granularities that may change, each with the shard that has answered furthest.

    A command without an instant changes a window in each shard as soon as possible. Shards that have not
    answered as far have no rows there, so that the history of this one is true for all.
    """
    found: dict[Any, list[tuple[str, dict[str, Any]]]] = {}
    for each in reports:
        for name, setting in each["memory"]["settings"].items():
            found.setdefault((each["memory"]["host"], uses_of(setting)), []).append((name, each))
    for same in found.values():
        yield max(same, key=lambda each: each[1]["memory"]["settings"][each[0]]["earliest"])


def _quality(reports: list[dict[str, Any]]) -> dict[str, Quality]:
    """Windows and granularities by operator; if two hosts have the same name, the second gets a number."""
    found: dict[str, Quality] = {}
    for name, shard in _foremost(reports):
        found[_unused(name, found)] = Quality.read(shard["quality"][name])
    return found


def _histories(reports: list[dict[str, Any]]) -> Histories:
    """By query, the histories of its windows and granularities, whichever hosts they are in."""
    found: dict[str, dict[int, Any]] = {}
    for name, shard in _foremost(reports):
        setting = shard["memory"]["settings"][name]
        for query, place in setting["uses"]:
            found.setdefault(query, {})[place] = setting["history"]
    return histories_of({query: [each[i] for i in sorted(each)] for query, each in found.items()})


def _graph(reports: list[dict[str, Any]]) -> dict[str, OperatorStatus]:
    """The operators of all hosts, with what they emit in all shards.

    Operators of two hosts may have the same name; the second then has a number.
    """
    hosts = {each["graph"]: each["shape"] for each in reports if each.get("shape")}
    found: dict[str, OperatorStatus] = {}
    ends: dict[str, dict[str, str]] = {}
    """By query and host, the operator that emits the results of the query, or what another host reads."""
    for host, shape in sorted(hosts.items(), key=lambda each: _has_inlets(each[1])):
        flows = [each["flow"] for each in reports if each["graph"] == host]
        names = {each["name"]: _unused(each["name"], found) for each in shape}
        for each in shape:
            name = each["name"]
            out, queued = (sum(flow[name][i] for flow in flows if name in flow) for i in (0, 1))
            inputs = (one for given in each["inputs"] for one in _inputs(names.get(given, given), host, ends))
            found[names[name]] = OperatorStatus(
                each["kind"],
                each["detail"],
                tuple(dict.fromkeys(inputs)),
                tuple(each["answers"]),
                each["waits"],
                out,
                queued=queued,
            )
            for query in each["answers"]:
                ends.setdefault(query, {})[host] = names[name]
    return _answering_once(found)


def _has_inlets(shape: list[dict[str, Any]]) -> bool:
    """Whether a host reads another one; the hosts that do not come first."""
    return any(_inlet_query(one) for each in shape for one in each["inputs"])


def _inlet_query(name: str) -> str:
    """The query whose results an inlet carries (`stream QUERY:…/SHARD`); empty for other inputs."""
    kind, _, stream = name.partition(" ")
    query, colon, _ = stream.partition(":")
    return query if kind == "stream" and colon else ""


def _inputs(name: str, host: str, ends: Mapping[str, Mapping[str, str]]) -> Iterable[str]:
    """An input; for an inlet, the operators of the host below that it carries."""
    query = _inlet_query(name)
    if not query:
        return [name]
    return [operator for at, operator in ends.get(query, {}).items() if at != host]


def _answering_once(graph: dict[str, OperatorStatus]) -> dict[str, OperatorStatus]:
    """The graph in which only the last of the operators that answer a query says so."""
    last = {query: name for name, each in graph.items() for query in each.answers}
    return {
        name: replace(each, answers=tuple(query for query in each.answers if last[query] == name))
        for name, each in graph.items()
    }


def _unused(name: str, taken: Container[str]) -> str:
    """The name, with a number if it is taken."""
    more = (f"{name} ({number})" for number in count(2))
    return next(each for each in chain([name], more) if each not in taken)


def _least(values: Iterable[int | None]) -> int | None:
    """The least value; None if one is None."""
    given = list(values)
    return None if None in given else min((each for each in given if each is not None), default=None)


def _added(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in counts:
        for name, size in each.items():
            found[name] = found.get(name, 0) + size
    return found


def read_status(spark: SparkSession, checkpoint: str) -> Status | None:
    """The newest status beside a checkpoint; None if there is none."""
    text = read_text(spark, checkpoint, SPARK_FILE)
    return None if text is None else Status.read(text)


def write_end(spark: SparkSession, checkpoint: str, state: str, error: str = "") -> None:
    """Say in the status how a job has ended."""
    try:
        text = read_text(spark, checkpoint, SPARK_FILE)
        if text is not None:
            plain = {**json.loads(text), "state": state, "error": error, "written": time(), "writing": ()}
            write_text(spark, checkpoint, SPARK_FILE, json.dumps(plain), durable=False)
            ended(Status.of(plain))
    except Exception:
        _LOG.warning("cannot write the status of the job", exc_info=True)
