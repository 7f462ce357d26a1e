"""`headrace.bounds`: what each bound on late rows would have cost, for rows that have arrived."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from headrace.arrays import Ints, Times
from headrace.drawing.plot import Chart, Curve, plot
from headrace.errors import InputError, TimeError
from headrace.frames.result import html_table, text_table
from headrace.frames.sources import frames_of
from headrace.graph.table import one_batch
from headrace.runtimes.embedded.record import Recorded
from headrace.runtimes.status import Status
from headrace.sql.place import nearest
from headrace.time.bound_costs import Arrived, Cost, Error, Floats, Replay, candidates, least_bound
from headrace.time.durations import Duration, readable, ticks
from headrace.time.row_promises import MICROSECONDS, ticks_of

UNITS: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
"""Units of columns of numbers, and how many are in a second."""
SHARES: Final = (0.0, 0.001, 0.01)
"""The shares of late rows for which the least bound is named."""


@dataclass(frozen=True, repr=False)
class BoundCosts:
    """What each candidate bound costs: late rows, the delay of answers, and the errors of windows.

    `least` has, for some shares of late rows, the least bound that loses no more than that.
    """

    name: str
    costs: Sequence[Cost]
    least: Mapping[float, int]
    ticks_per_second: int | None
    about: str

    def __iter__(self) -> Any:
        return iter(self.costs)

    def __len__(self) -> int:
        return len(self.costs)

    def words(self, bound: float | None) -> str:
        """Ticks as a duration."""
        if bound is None:
            return "-"
        return readable(round(bound), self.ticks_per_second)

    def table(self) -> pa.Table:
        """One row for each bound; durations in ticks, errors relative."""
        columns: dict[str, list[Any]] = {
            "bound": [each.bound for each in self.costs],
            "late": [each.late for each in self.costs],
            "late_share": [each.late_share for each in self.costs],
            "delay": [each.delay for each in self.costs],
            "delay_p99": [each.delay_p99 for each in self.costs],
        }
        for name in ("count", "sum", "avg"):
            found: list[Error | None] = [getattr(each, name) for each in self.costs]
            if any(each is not None for each in found):
                columns[f"{name}_error"] = [None if each is None else each.mean for each in found]
                columns[f"{name}_error_worst"] = [None if each is None else each.worst for each in found]
        return pa.table(columns)

    def shown(self) -> pa.Table:
        """The table for people: durations in words, errors as means over windows."""
        plain = self.table()
        columns = {}
        for name in plain.schema.names:
            write = WRITTEN.get(name)
            if write is not None:
                values = plain.column(name).to_pylist()
                head, as_text = write
                columns[head] = ["-" if value is None else as_text(self, value) for value in values]
        return pa.table(columns)

    def plain(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        return {
            "name": self.name,
            "about": self.about,
            "ticks_per_second": self.ticks_per_second,
            "least": {str(share): bound for share, bound in self.least.items()},
            "bounds": self.table().to_pylist(),
        }

    @property
    def advice(self) -> str:
        """The least bounds, in words."""
        said = [
            f"{self.words(bound)} loses {f'at most {share:.1%} of the rows' if share else 'no row'}"
            for share, bound in self.least.items()
        ]
        return "; ".join(said)

    def svg(self) -> str:
        """A plot: late rows, delay and errors over the bounds."""
        steps = [self.words(each.bound) for each in self.costs]
        per_second = self.ticks_per_second or 1
        delays = [
            Curve("mean", [None if each.delay is None else each.delay / per_second for each in self.costs]),
            Curve("p99", [None if c.delay_p99 is None else c.delay_p99 / per_second for c in self.costs]),
        ]
        errors = [
            Curve(name, [None if e is None else 100 * e.mean for e in found])
            for name in ("count", "sum", "avg")
            if any(found := [getattr(each, name) for each in self.costs])
        ]
        charts = [Chart("late rows", [Curve("rows", [100 * c.late_share for c in self.costs])], " %")]
        if any(each.delay is not None for each in self.costs):
            unit = " s" if self.ticks_per_second else " ticks"
            charts.append(Chart("delay of answers after the end of their window", delays, unit))
        if errors:
            charts.append(Chart("mean relative error of windows", errors, " %"))
        return plot(f"{self.name}: {self.about}", steps, charts)

    def __str__(self) -> str:
        return "\n".join([f"{self.name}: {self.about}", text_table(self.shown()), self.advice])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<div>{self.svg()}{html_table(self.shown())}</div>"


def _share(_: BoundCosts, share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.0995 else f"{100 * share:.0f} %"


WRITTEN: Final[dict[str, tuple[str, Callable[[BoundCosts, Any], str]]]] = {
    "bound": ("bound", BoundCosts.words),
    "late": ("late", lambda _, rows: f"{rows:,}"),
    "late_share": ("share", _share),
    "delay": ("delay", BoundCosts.words),
    "delay_p99": ("p99", BoundCosts.words),
    "count_error": ("count", _share),
    "sum_error": ("sum", _share),
    "avg_error": ("avg", _share),
}
"""The columns that people see: their names, and how values are written."""


@dataclass(frozen=True)
class Asked:
    """What is asked about rows: their columns, the windows, the candidates, and how rows are judged."""

    time: str | None = None
    arrival: str | None = None
    value: str | None = None
    unit: str | None = None
    window: Duration | None = None
    bounds: Sequence[Duration] = ()
    against: str = "newest"
    late: str = "strict"

    def __post_init__(self) -> None:
        if self.unit is not None and self.unit not in UNITS:
            raise TimeError("HR-T060", f"the unit {self.unit!r} is not known", hint=f"use {', '.join(UNITS)}")

    def of(self, name: str, arrived: Arrived, per_second: int | None) -> BoundCosts:
        """The costs for the rows of a stream."""
        window = self._window(arrived.times, per_second)
        replay = Replay(window, self.against, self.late)
        needs = replay.needs(arrived)
        given = [ticks(each, per_second, "bounds") for each in self.bounds]
        costs = replay.costs(arrived, sorted(set(given)) or candidates(needs, per_second))
        least = {share: least_bound(needs, share) for share in SHARES}
        behind = {"newest": "the newest row", "clock": "the clock"}[self.against]
        about = f"{len(arrived):,} rows, bounds behind {behind}, windows of {readable(window, per_second)}"
        return BoundCosts(name, costs, least, per_second, about)

    def _window(self, times: Times, per_second: int | None) -> int:
        """The size of the windows: a minute, or a hundredth of a stream of sequence numbers."""
        if self.window is not None:
            return ticks(self.window, per_second, "window")
        if per_second is not None:
            return 60 * per_second
        return max(1, int(times.max() - times.min()) // 100) if len(times) else 1


def bounds(
    data: object,
    time: str | None = None,
    *,
    arrival: str | None = None,
    value: str | None = None,
    unit: str | None = None,
    window: Duration | None = None,
    bounds: Duration | Iterable[Duration] = (),
    against: str = "newest",
    late: str = "strict",
    stream: str | None = None,
) -> BoundCosts:
    """What each bound on late rows would have cost.

    `data` are rows in the order in which they arrived: a file, or anything that `headrace.sql` reads. Or it
    is the directory of a recorded run, or a pipeline file whose run keeps a histogram; `stream` chooses one
    of several. `time` and `arrival` are columns with the time of a row and when it arrived, `value` a column
    for sum and avg. `unit` (s, ms, us, ns) says that columns of numbers are times. Without `arrival`, the
    clock is the newest time so far. `against` is newest (for `disorder`) or clock (for `latency`), `late` is
    strict or admit.
    """
    chosen = (bounds,) if isinstance(bounds, int | str) else tuple(bounds)  # type: ignore[arg-type]
    asked = Asked(time, arrival, value, unit, window, chosen, against, late)
    found = all_bounds(data, asked)
    if stream is None and len(found) > 1:
        raise InputError(
            "HR-I083",
            f"there are several streams: {', '.join(found)}",
            place="headrace.bounds",
            hint=f'choose one: stream="{next(iter(found))}"',
        )
    name = next(iter(found), "") if stream is None else stream
    if name not in found:
        raise InputError(
            "HR-I083",
            f"there are no rows of {f'the stream {name!r}' if name else 'any stream'}",
            place="headrace.bounds",
            hint=nearest(name, found)
            if found
            else "a recorded run, or one with a disordered stream, has them",
        )
    return found[name]


def all_bounds(data: object, asked: Asked) -> dict[str, BoundCosts]:
    """By stream, what bounds cost."""
    path = Path(data) if isinstance(data, str | os.PathLike) else None
    if path is not None and path.is_dir():
        return _of_recording(path, asked)
    if path is not None and path.suffix == ".toml":
        from headrace.runtimes.status_file import read

        return of_status(read(path), asked)
    name = "rows" if path is None else path.stem
    return {name: asked.of(name, *_of_rows(data, name, asked))}


# Rows of a table or a file.


def _of_rows(data: object, name: str, asked: Asked) -> tuple[Arrived, int | None]:
    """The rows in order of arrival, and the ticks in a second."""
    frame = frames_of({name: data}, None if asked.time is None else {name: asked.time})[name]
    assert frame.time is not None
    rows = one_batch(frame.rows, frame.rows.schema)
    times, known = _ticks(rows, frame.time, asked, name)
    arrivals = None
    if asked.arrival is not None:
        arrivals, arrived = _ticks(rows, asked.arrival, asked, name)
        known &= arrived
        arrivals = arrivals[known]
    values = None if asked.value is None else _values(rows, asked.value, name)[known]
    is_time = asked.unit is not None or pt.is_timestamp(rows.schema.field(frame.time).type)
    return _sorted(times[known], arrivals, values), MICROSECONDS if is_time else None


def _sorted(times: Times, arrivals: Times | None, values: Floats | None) -> Arrived:
    """The rows in order of arrival; without arrivals they are."""
    if arrivals is None:
        return Arrived.in_order(times, values)
    order = np.argsort(arrivals, kind="stable")
    return Arrived(times[order], arrivals[order], None if values is None else values[order])


def _ticks(rows: pa.RecordBatch, column: str, asked: Asked, place: str) -> tuple[Times, Any]:
    """A column of times as ticks, and which rows have one."""
    found = _column(rows, column, place)
    if not (pt.is_timestamp(found.type) or pt.is_integer(found.type)):
        raise InputError(
            "HR-I079",
            f"the column {column!r} is of type {found.type}, which cannot be a time",
            place=place,
            hint="use a column of timestamps or integers",
        )
    return ticks_of(found, None if asked.unit is None else UNITS[asked.unit])


def _values(rows: pa.RecordBatch, column: str, place: str) -> Floats:
    """A column of numbers; NaN for NULL."""
    found = _column(rows, column, place)
    try:
        numbers: Floats = found.cast(pa.float64()).fill_null(np.nan).to_numpy(zero_copy_only=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise InputError(
            "HR-I084",
            f"the column {column!r} is of type {found.type}, which has no sum",
            place=place,
            hint="name a column of numbers",
        ) from None
    return numbers


def _column(rows: pa.RecordBatch, column: str, place: str) -> pa.Array:
    if column not in rows.schema.names:
        raise InputError(
            "HR-I084",
            f"the column {column!r} does not exist",
            place=place,
            hint=nearest(column, rows.schema.names),
        )
    return rows.column(rows.schema.get_field_index(column))


# Recorded runs, and the histograms of a run.


def _of_recording(path: Path, asked: Asked) -> dict[str, BoundCosts]:
    """By stream, what bounds cost for the rows of a recorded run, at the instants at which it read them."""
    recorded = Recorded(path)
    found: dict[str, list[tuple[Times, int, Floats | None]]] = {}
    for steps in recorded.commits():
        for step in steps:
            for piece in step.pieces:
                if len(piece) and piece.times is not None:
                    known = piece.times.is_valid().to_numpy(zero_copy_only=False)
                    times = piece.times.fill_null(0).to_numpy(zero_copy_only=False)[known]
                    value = None
                    if asked.value is not None and asked.value in piece.data.schema.names:
                        value = _values(piece.data, asked.value, piece.stream)[known]
                    found.setdefault(piece.stream, []).append((times, step.now, value))
    return {
        name: asked.of(name, _joined(pieces), recorded.pipeline.ticks_per_second)
        for name, pieces in found.items()
    }


def _joined(pieces: Sequence[tuple[Times, int, Floats | None]]) -> Arrived:
    times = np.concatenate([each for each, _, _ in pieces])
    arrivals = np.repeat([now for _, now, _ in pieces], [len(each) for each, _, _ in pieces])
    values = [value for _, _, value in pieces if value is not None]
    return Arrived(times, arrivals, np.concatenate(values) if len(values) == len(pieces) else None)


def of_status(status: Status, asked: Asked) -> dict[str, BoundCosts]:
    """By stream, the late rows under each bound, from the histogram that a run keeps.

    The histogram says nothing about windows. The delay is the bound itself, while rows keep coming.
    """
    found = {}
    for name, stream in status.streams.items():
        if stream.lags:
            needs, rows = (np.array(column, np.int64) for column in zip(*stream.lags, strict=True))
            per_second = status.ticks_per_second
            given = sorted({ticks(each, per_second, "bounds") for each in asked.bounds})
            chosen = given or candidates(needs, per_second)
            costs = [_cost(bound, needs, rows) for bound in chosen]
            least = {share: _least(needs, rows, share) for share in SHARES}
            about = f"{rows.sum():,} rows of a run, bounds behind the newest row"
            found[name] = BoundCosts(name, costs, least, per_second, about)
    return found


def _cost(bound: int, needs: Ints, rows: Ints) -> Cost:
    return Cost(bound, int(rows.sum()), int(rows[needs > bound].sum()), float(bound))


def _least(needs: Ints, rows: Ints, share: float) -> int:
    """The least bound that loses at most this share of the rows of a histogram."""
    lost = rows.sum() - np.cumsum(rows)
    return int(needs[int(np.argmax(lost <= share * rows.sum()))])
