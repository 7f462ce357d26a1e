"""Metrics: what Prometheus and OpenTelemetry read, and the dashboard that uses them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.engine.reasons import Reason
from headrace.pipeline import load
from headrace.runtimes.metrics import METRICS, prometheus
from headrace.runtimes.status import OperatorStatus, QueryStatus, Status, StreamStatus, Wait
from headrace.runtimes.status_file import write_status
from headrace.runtimes.telemetry import instrument
from tests.dashboard.shop import Shop

ROOT = Path(__file__).resolve().parents[2]
STATUS = Status(
    "shop",
    "running",
    "system",
    now=20_000_000,
    elapsed=20.0,
    streams={
        "clicks": StreamStatus(100, 90, 6, 4, 5.0, 18_000_000, 2_000_000, False, 0, 0),
        "buys": StreamStatus(7, 7, 0, 0, 0.0, None, None, True, 0, 0),
    },
    queries={"per_item": QueryStatus(30, 1.0, 4096), 'a "b"\n': QueryStatus(1, 0.0, 1)},
    waiting=(
        Wait("per_item", "join1", ("buys",), 0, 8_000_000),
        Wait("per_item", "order1", ("buys",), 0, None),
    ),
    bytes=5000,
    operators={"join1": 4000},
    budget=8000,
    reasons=(
        Reason("rejected", "clicks", 3, "HR-R101", "not JSON"),
        Reason("rejected", "clicks", 1, "HR-R101", "other words"),
        Reason("late", "clicks", 6),
    ),
    graph={"join1": OperatorStatus("join", "on item", ("stream clicks",), rows_out=30, queued=12)},
    written=1_795_000_000.5,
)


def parsed(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    parser = pytest.importorskip("prometheus_client.parser", reason="prometheus-client is not installed")
    return {
        (one.name, frozenset(one.labels.items())): one.value
        for family in parser.text_string_to_metric_families(text)
        for one in family.samples
    }


def test_prometheus_reads_what_the_status_says() -> None:
    found = parsed(prometheus(STATUS))

    def value(name: str, **labels: str) -> float:
        return found[name, frozenset({"pipeline": "shop", "runtime": "embedded", **labels}.items())]

    assert value("headrace_up") == 1
    assert value("headrace_stream_rows_total", stream="clicks") == 100
    assert value("headrace_stream_watermark_lag_seconds", stream="clicks") == 2
    assert value("headrace_query_waiting_seconds", query="per_item") == 12
    assert value("headrace_query_rows_total", query='a "b"\n') == 1
    assert value("headrace_rejected_rows_by_code_total", stream="clicks", code="HR-R101") == 4
    assert value("headrace_operator_state_bytes", operator="join1", kind="join") == 4000
    assert value("headrace_operator_queued_rows", operator="join1", kind="join") == 12
    assert value("headrace_memory_budget_bytes") == 8000
    assert value("headrace_status_timestamp_seconds") == 1_795_000_000.5
    lags = [dict(labels)["stream"] for name, labels in found if name.endswith("lag_seconds")]
    assert lags == ["clicks"]  # a stream that has ended has no watermark to be behind


def test_both_runtimes_have_the_same_metrics() -> None:
    names = {name for name, _ in parsed(prometheus(STATUS))}
    assert names == {name for name, _ in parsed(prometheus(replace(STATUS, runtime="spark", batch=3)))}
    assert names == {metric.name for metric in METRICS}


def test_rows_in_are_processed_or_late_or_rejected_in_metrics_too() -> None:
    found = parsed(prometheus(STATUS))
    total = {
        name: sum(value for (each, labels), value in found.items() if each == f"headrace_stream_{name}_total")
        for name in ("rows", "processed_rows", "late_rows", "rejected_rows")
    }
    assert total["rows"] == total["processed_rows"] + total["late_rows"] + total["rejected_rows"]


def test_opentelemetry_has_the_names_and_values_of_prometheus(tmp_path: Path) -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.metrics", reason="OpenTelemetry is not installed")
    export = pytest.importorskip("opentelemetry.sdk.metrics.export")
    shop, reader = Shop(tmp_path), export.InMemoryMetricReader()
    provider = sdk.MeterProvider(metric_readers=[reader])
    instrument(shop.file, provider)
    assert reader.get_metrics_data() is None  # the pipeline has not run yet
    (tmp_path / "state").mkdir()
    status = replace(STATUS, state="stopped")
    write_status(load(shop.file), status)
    collected = reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics
    found = {
        (metric.name, frozenset(point.attributes.items())): float(point.value)
        for metric in collected
        for point in metric.data.data_points
    }
    assert found == parsed(prometheus(status))
    provider.shutdown()


def test_the_dashboard_and_the_docs_use_metrics_that_exist() -> None:
    names = {metric.name for metric in METRICS}
    dashboard = json.loads((ROOT / "examples" / "grafana" / "headrace.json").read_text())
    used = set(re.findall(r"\bheadrace_\w+", json.dumps([dashboard["panels"], dashboard["templating"]])))
    assert used <= names
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    page = (ROOT / "docs" / "metrics.md").read_text()
    assert {name: metric.help for name, metric in ((each.name, each) for each in METRICS)} == dict(
        re.findall(r"^\| `(headrace_\w+)` \| \w+ \| (.+?) \|", page, re.M)
    )
