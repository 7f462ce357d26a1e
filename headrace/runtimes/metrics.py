"""The metrics of a run: one table, from its status, so that both runtimes have the same names.

`prometheus` writes them in the text format of Prometheus; `headrace.runtimes.telemetry` gives them to
OpenTelemetry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from headrace.runtimes.status import RUNNING, STARTING, Status

COUNTER, GAUGE = "counter", "gauge"
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Sample = tuple[dict[str, str], float]


@dataclass(frozen=True)
class Metric:
    """A metric: its kind, its meaning, and its values in a status, each with labels."""

    name: str
    kind: str
    help: str
    samples: Callable[[Status], Iterable[Sample]]


def _streams(value: Callable[[Status, str], float | None]) -> Callable[[Status], Iterator[Sample]]:
    """A value for each stream; None: it has none now."""

    def samples(status: Status) -> Iterator[Sample]:
        for name in status.streams:
            found = value(status, name)
            if found is not None:
                yield {"stream": name}, found

    return samples


def _queries(value: Callable[[Status, str], float]) -> Callable[[Status], Iterator[Sample]]:
    return lambda status: (({"query": name}, value(status, name)) for name in status.queries)


def _operators(value: Callable[[Status, str], float]) -> Callable[[Status], Iterator[Sample]]:
    return lambda status: (
        ({"operator": name, "kind": each.kind}, value(status, name)) for name, each in status.graph.items()
    )


def _one(value: Callable[[Status], float | None]) -> Callable[[Status], Iterator[Sample]]:
    """One value for the run; None: it has none."""

    def samples(status: Status) -> Iterator[Sample]:
        found = value(status)
        if found is not None:
            yield {}, found

    return samples


def _lag(status: Status, stream: str) -> float | None:
    lag = status.streams[stream].lag
    return None if lag is None else max(0, lag) / status.clock_per_second


def _waited(status: Status, query: str) -> float:
    """The longest of its waits, in seconds."""
    since = [each.since for each in status.waiting if each.query == query and each.since is not None]
    return max((max(0, status.now - each) / status.clock_per_second for each in since), default=0.0)


def _rejected(status: Status) -> Iterator[Sample]:
    """Rejected rows by stream and error code; one reason may appear several times with other words."""
    found: Counter[tuple[str, str]] = Counter()
    for each in status.reasons:
        if each.kind == "rejected":
            found[each.stream, each.code] += each.rows
    for (stream, code), rows in found.items():
        yield {"stream": stream, "code": code}, rows


METRICS: Final = (
    Metric(
        "headrace_up",
        GAUGE,
        "1 if the run is starting or running, else 0.",
        _one(lambda s: float(s.state in (STARTING, RUNNING))),
    ),
    Metric(
        "headrace_status_timestamp_seconds",
        GAUGE,
        "When the run wrote this status, in Unix time.",
        _one(lambda s: s.written),
    ),
    Metric(
        "headrace_stream_rows_total",
        COUNTER,
        "Rows read from a stream.",
        _streams(lambda s, n: s.streams[n].rows_in),
    ),
    Metric(
        "headrace_stream_processed_rows_total",
        COUNTER,
        "Rows of a stream that queries have used.",
        _streams(lambda s, n: s.streams[n].rows_processed),
    ),
    Metric(
        "headrace_stream_late_rows_total",
        COUNTER,
        "Rows of a stream that were late.",
        _streams(lambda s, n: s.streams[n].rows_late),
    ),
    Metric(
        "headrace_stream_rejected_rows_total",
        COUNTER,
        "Rows of a stream that were rejected.",
        _streams(lambda s, n: s.streams[n].rows_rejected),
    ),
    Metric(
        "headrace_stream_shed_rows_total",
        COUNTER,
        "Rows of a stream that were shed under overload.",
        _streams(lambda s, n: s.streams[n].rows_shed),
    ),
    Metric(
        "headrace_stream_watermark_lag_seconds",
        GAUGE,
        "How far the watermark of a stream is behind the clock of the run.",
        _streams(_lag),
    ),
    Metric(
        "headrace_stream_ended",
        GAUGE,
        "1 if a stream has ended, else 0.",
        _streams(lambda s, n: float(s.streams[n].ended)),
    ),
    Metric(
        "headrace_rejected_rows_by_code_total",
        COUNTER,
        "Rejected rows by error code; rare codes of a stream are counted with an empty code.",
        _rejected,
    ),
    Metric(
        "headrace_query_rows_total",
        COUNTER,
        "Result rows of a query.",
        _queries(lambda s, n: s.queries[n].rows_out),
    ),
    Metric(
        "headrace_query_memory_bytes",
        GAUGE,
        "Memory that a query uses, including what it shares with others.",
        _queries(lambda s, n: s.queries[n].bytes),
    ),
    Metric(
        "headrace_query_waiting_seconds",
        GAUGE,
        "How long a query has waited for a stream; 0 if it does not wait.",
        _queries(_waited),
    ),
    Metric(
        "headrace_query_sink_seconds",
        GAUGE,
        "Time that the sinks of a query took since the status before.",
        _queries(lambda s, n: s.queries[n].sink_seconds),
    ),
    Metric(
        "headrace_operator_rows_total",
        COUNTER,
        "Rows that an operator has emitted.",
        _operators(lambda s, n: s.graph[n].rows_out),
    ),
    Metric(
        "headrace_operator_queued_rows",
        GAUGE,
        "Rows in the inputs of an operator.",
        _operators(lambda s, n: s.graph[n].queued),
    ),
    Metric(
        "headrace_operator_state_bytes",
        GAUGE,
        "State of an operator in memory.",
        _operators(lambda s, n: s.operators.get(n, 0)),
    ),
    Metric(
        "headrace_memory_bytes",
        GAUGE,
        "State and buffers in memory.",
        _one(lambda s: s.bytes),
    ),
    Metric(
        "headrace_memory_budget_bytes",
        GAUGE,
        "The memory budget; absent without one.",
        _one(lambda s: s.budget),
    ),
    Metric(
        "headrace_spilled_bytes",
        GAUGE,
        "State on disk.",
        _one(lambda s: s.spilled_bytes),
    ),
    Metric(
        "headrace_checkpoints_total",
        COUNTER,
        "Commits of this run.",
        _one(lambda s: s.checkpoints),
    ),
    Metric(
        "headrace_checkpoint_bytes",
        GAUGE,
        "Bytes that the last checkpoint has written.",
        _one(lambda s: s.checkpoint_bytes),
    ),
)


def samples(status: Status) -> Iterator[tuple[Metric, list[Sample]]]:
    """The values of all metrics. Every value has the labels `pipeline` and `runtime`."""
    common = {"pipeline": status.pipeline, "runtime": status.runtime}
    for metric in METRICS:
        yield metric, [({**common, **labels}, value) for labels, value in metric.samples(status)]


def prometheus(status: Status) -> str:
    """The metrics of a status in the text format of Prometheus."""
    lines = []
    for metric, found in samples(status):
        lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
        lines += [f"{metric.name}{{{_labels(labels)}}} {value:.17g}" for labels, value in found]
    return "\n".join([*lines, ""])


def _labels(labels: dict[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
