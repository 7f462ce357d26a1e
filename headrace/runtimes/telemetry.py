"""The metrics of a pipeline as instruments of OpenTelemetry; needs the extra `otel`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import HeadraceError, PipelineError
from headrace.runtimes.metrics import COUNTER, METRICS, Metric
from headrace.runtimes.status import Status
from headrace.runtimes.status_file import read

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

Read = Callable[[], Status]


def instrument(pipeline: str | Path, provider: MeterProvider | None = None) -> None:
    """Give the metrics of the pipeline in a file to OpenTelemetry, each time its reader collects them.

    The names are those of Prometheus. `provider` is the global one by default. A pipeline that has not run
    yet has no values.
    """
    try:
        from opentelemetry import metrics
    except ModuleNotFoundError:
        raise PipelineError(
            "HR-F030",
            "OpenTelemetry is not installed",
            hint="pip install 'headrace[otel]'",
        ) from None
    meter = (provider or metrics.get_meter_provider()).get_meter("headrace")
    for metric in METRICS:
        made = meter.create_observable_counter if metric.kind == COUNTER else meter.create_observable_gauge
        made(metric.name, [_callback(metric, lambda: read(Path(pipeline)))], description=metric.help)


def _callback(metric: Metric, newest: Read) -> Callable[[CallbackOptions], Iterator[Observation]]:
    from opentelemetry.metrics import Observation

    def observe(options: CallbackOptions) -> Iterator[Observation]:
        try:
            status = newest()
        except HeadraceError:
            return
        common = {"pipeline": status.pipeline, "runtime": status.runtime}
        for labels, value in metric.samples(status):
            yield Observation(value, {**common, **labels})

    return observe
