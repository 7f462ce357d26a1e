"""Beyond the papers: progress per key, where one device in a hundred falls silent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from experiments.result import Conditions, Experiment, Line, Measure, Panel, Result
from headrace import StreamDef, query
from headrace.engine import Engine
from headrace.engine.inputs import STRICT, Inputs
from headrace.time.sources import SourceGroups, SourcesPromise

SCHEMA = pa.schema([("device", pa.int64())])
STREAM = StreamDef("s", SCHEMA, ticks_per_second=1_000)
WINDOW, BOUND, IDLE, STEP, EVERY = 2_000, 250, 5_000, 20, 100
COUNTS = "SELECT device, count(*) AS n, window_end FROM s [RANGE 2 SECONDS SLIDE 2 SECONDS] GROUP BY device"
GROUPS = 1_000
SHARES = (50, 90, 95, 99, 99.9)
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Rows:
    """Rows in order of arrival: the device, when it sent the row and when the row came, in ms."""

    device: Numbers
    sent: Numbers
    came: Numbers

    def without(self, silent: Numbers, after: int) -> Rows:
        """These devices send nothing any more."""
        kept = ~(np.isin(self.device, silent) & (self.sent > after))
        return Rows(self.device[kept], self.sent[kept], self.came[kept])


@dataclass(frozen=True)
class Answers:
    """How long after the end of its window each answer came, the devices, and the ends of the windows."""

    delay: Numbers
    device: Numbers
    end: Numbers

    def healthy(self, silent: Numbers, since: int) -> Numbers:
        """The delays of other devices, in windows that ended since then."""
        return self.delay[~np.isin(self.device, silent) & (self.end > since)]


def rows_of(devices: int, seconds: int) -> Rows:
    """A row from each device every 100 ms, which is up to 200 ms on its way."""
    rng = np.random.default_rng(71)
    instants = np.arange(0, seconds * 1_000, EVERY)[:, None] + rng.integers(0, EVERY, devices)
    sent, device = instants.ravel(), np.tile(np.arange(devices), len(instants))
    came = sent + rng.integers(0, 200, len(sent))
    order = np.argsort(came, kind="stable")
    return Rows(device[order], sent[order], came[order])


def answered(rows: Rows, ordered: bool, idle: int | None, until: int) -> Answers:
    """The answers that come until the clock says `until`; time passes by rows and clock, not by work."""
    engine = Engine()
    by = SourceGroups("device", GROUPS, idle, choose_after=None)
    Inputs(promises={"s": SourcesPromise(by, BOUND)}, rules={"s": STRICT}).install(engine, [STREAM.source])
    engine.add("q", query(COUNTS, [STREAM]).plan, ordered=ordered)
    found = [(np.empty(0, np.int64),) * 3]
    clock = range(STEP, until, STEP)
    cuts = np.searchsorted(rows.came, clock, side="right")
    for now, begin, stop in zip(clock, (0, *cuts[:-1]), cuts, strict=True):
        if stop > begin:
            data = pa.RecordBatch.from_arrays([pa.array(rows.device[begin:stop])], schema=SCHEMA)
            engine.push("s", data, rows.sent[begin:stop], now=now)
        engine.advance(now)
        for batch in engine.drain():
            device, _, end = (column.to_numpy() for column in batch.data.columns)
            found.append((now - end, device, end))
    return Answers(*map(np.concatenate, zip(*found, strict=True)))


def run(conditions: Conditions) -> Result:
    """Delays of answers: all devices healthy; one in a hundred silent, per key and in order."""
    devices, seconds = conditions.of((100, 16), (200, 40), (1_000, 120))
    after, until = 4_000, seconds * 1_000
    silent = np.random.default_rng(72).choice(devices, devices // 100, replace=False)
    rows = rows_of(devices, seconds)
    some = rows.without(silent, after)
    whole = answered(rows, False, None, until).healthy(silent, after)
    per_key = answered(some, False, None, until).healthy(silent, after)
    in_order = answered(some, True, IDLE, until).healthy(silent, after)
    stuck = answered(some, True, None, until).healthy(silent, after)
    p99 = {
        name: float(np.percentile(delay, 99))
        for name, delay in (("whole", whole), ("key", per_key), ("order", in_order))
    }
    lines = [
        Line(label, SHARES, [float(np.percentile(delay, share)) for share in SHARES])
        for label, delay in (
            ("1 % silent, in order, idle after 5 s", in_order),
            ("1 % silent, per key", per_key),
            ("all healthy, per key", whole),
        )
    ]
    x, y = "Percentile of the answers of healthy devices", "Delay after the window's end (ms)"
    return Result(
        [
            Measure("per_key.p99_all_healthy_ms", p99["whole"], "ms"),
            Measure("per_key.p99_healthy_ms", p99["key"], "ms"),
            Measure("per_key.p99_in_order_ms", p99["order"], "ms"),
            Measure("per_key.p99_healthy_over_all_healthy", p99["key"] / p99["whole"], "×", ceiling=1.05),
            Measure("per_key.answered_share", len(per_key) / len(whole), "", floor=0.99),
            Measure("per_key.answered_share_in_order_without_idle", len(stuck) / len(whole)),
        ],
        [Panel(f"{devices:,} devices", x, y, lines, "linear", "log")],
        f"with 1 % of the devices silent, 99 % of the answers of the others come within {p99['key']:.0f} ms "
        f"of the window's end, against {p99['whole']:.0f} ms if no device is silent; in order it is "
        f"{p99['order']:,.0f} ms, and that only because silent devices are ignored after 5 s",
    )


EXPERIMENT = Experiment(
    name="per_key",
    figure="progress per key (beyond the papers)",
    claim="a device that falls silent does not delay the answers of others",
    method="devices with a row every 100 ms, up to 200 ms on its way; a column tells them apart, in 1,000 "
    "groups with a bound of 250 ms; windows of 2 s for each device; after 4 s one device in a hundred sends "
    "nothing any more; how long after the end of its window each answer of another device comes, with "
    "`ordered = false`, and in order with and without `idle`; in the streams' own time, so service times do "
    "not count",
    run=run,
)
