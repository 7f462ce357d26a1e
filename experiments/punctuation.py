"""Tucker & Maier, §2 and §3: what the rate of punctuations costs and gives; slack against punctuations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

import headrace
from experiments.result import Conditions, Experiment, Line, Measure, Panel, Result
from headrace.arrays import Ints
from headrace.engine import Rules
from headrace.time.bounds import NEVER, Bounds
from headrace.time.heartbeat import HeartbeatGenerator
from headrace.time.skew import Pair, SkewMatrix

SCHEMA = pa.schema([("v", pa.int64())])
LATE = 400
"""Rows come up to this many ms late."""
WINDOW = 1_000
RATES = (0.5, 1.0, 2.0, 5.0, 10.0, 50.0, 250.0)
STREAM = "s"


def rows(seconds: int, rate: float, bursts: int = 1) -> tuple[Ints, Ints]:
    """Times and arrivals, in ms, in order of arrival; but for one second of `bursts`, only a tenth come."""
    rng = np.random.default_rng(61)
    sent = np.sort(rng.integers(0, seconds * 1_000, int(seconds * rate)))
    sparse = (sent // 1_000) % bursts != 0
    sent = sent[~sparse | (rng.random(len(sent)) < 0.1)]
    arrived = sent + rng.integers(0, LATE + 1, len(sent))
    order = np.argsort(arrived, kind="stable")
    return sent[order], arrived[order]


@dataclass(frozen=True)
class Found:
    """How late windows are answered, in ms, and runs of operators a second."""

    delay: float
    runs: float


def at_rate(rate: float, seconds: int) -> Found:
    """A timer promises now − 400 ms, `rate` times a second; the windows of a second are counted."""
    text = f"SELECT count(*) AS n FROM s [RANGE {WINDOW} SLIDE {WINDOW}]"
    query = headrace.query(text, {STREAM: SCHEMA}, ticks_per_second=None)
    engine = headrace.Engine()
    engine.streams.declare(query.sources[0], rules=Rules(disordered=True))
    engine.add("q", query)
    times, arrived = rows(seconds, 200)
    data, delays, every = pa.array(times), list[int](), 1_000 / rate
    instants = (np.arange(1, int(seconds * rate)) * every).astype(np.int64)
    first = 0
    for now in instants:
        last = int(np.searchsorted(arrived, now, side="right"))
        for begin in range(first, last, 50):
            part = slice(begin, min(last, begin + 50))
            engine.push(STREAM, pa.RecordBatch.from_arrays([data[part]], schema=SCHEMA), times[part])
            engine.run()
        first = last
        engine.streams.heartbeat(STREAM, int(now) - LATE - 1)
        for batch in engine.drain():
            delays += [int(now) - int(end) for end in batch.start]
    runs = sum(node.runs for node in engine.graph.nodes)
    return Found(float(np.mean(delays)), runs / seconds)


def waits(pair: Pair | None, seconds: int) -> Ints:
    """How long each row waits until no earlier one can come, in ms, on a stream with bursts.

    By slack: until so many rows came after it. Without a pair, by a timer that promises now − 400 ms.
    """
    times, arrived = rows(seconds, 200, bursts=5)
    if pair is None:
        return np.maximum(times + LATE + 1 - arrived, 0)
    generator = HeartbeatGenerator(Bounds.of(SkewMatrix.of([STREAM], {(STREAM, STREAM): [pair]}), 0, NEVER))
    promised = np.empty(len(times), np.int64)
    for k, (time, now) in enumerate(zip(times, arrived, strict=True)):
        generator.arrive([0], [time], int(now))
        promised[k] = generator.heartbeat(int(now))
    after = np.searchsorted(promised, times, side="left")
    known = after < len(times)
    return np.maximum(arrived[after[known]] - arrived[known], 0)


def displacement(seconds: int) -> int:
    """By how many rows the rows of that stream are out of place, at most."""
    times, _ = rows(seconds, 200, bursts=5)
    return int((np.arange(len(times)) - np.argsort(np.argsort(times, kind="stable"), kind="stable")).max())


def run(conditions: Conditions) -> Result:
    """Punctuations at each rate; then slack and punctuations, both without a late row."""
    seconds = conditions.of(12, 60, 600)
    found = [at_rate(rate, seconds) for rate in RATES]
    slack = displacement(seconds)
    by_rows, by_time = waits(Pair.tuples(slack, 1), seconds), waits(None, seconds)
    quantiles = (0.5, 0.9, 0.99)
    x = "Punctuations per second"
    delay = Line("delay", RATES, [each.delay for each in found])
    runs = Line("runs of operators", RATES, [each.runs for each in found])
    compared = [
        Line(name, quantiles, [float(np.quantile(each, q)) for q in quantiles])
        for name, each in ((f"slack of {slack} rows", by_rows), (f"punctuations, {LATE} ms back", by_time))
    ]
    worst = float(np.quantile(by_rows, 0.99)) / float(np.quantile(by_time, 0.99))
    pairs = zip(RATES, found, strict=True)
    spread = found[0].delay / found[-1].delay
    return Result(
        [
            *(Measure(f"punctuation.delay_{r:g}_ms", f.delay, "ms") for r, f in pairs),
            Measure("punctuation.delay_slowest_over_fastest", spread, "×", floor=1.5),
            Measure("punctuation.runs_fastest_over_slowest", found[-1].runs / found[0].runs, "×", floor=2),
            Measure("punctuation.slack_over_timer_p99", worst, "×", floor=1.2),
        ],
        [
            Panel("Answers", x, "Delay of a window (ms)", [delay], "log", from_zero=True),
            Panel("Work", x, "Runs a second", [runs], "log", "log"),
            Panel("Slack or punctuations", "Share of rows", "Wait of a row (ms)", compared, from_zero=True),
        ],
        f"from {RATES[0]:g} to {RATES[-1]:g} punctuations a second windows are answered {found[0].delay:.0f} "
        f"to {found[-1].delay:.0f} ms after their end, with {found[0].runs:.0f} to {found[-1].runs:.0f} runs "
        f"of operators a second; slack makes a row wait {worst:.1f} times as long as a timer at the 99th "
        "percentile",
    )


EXPERIMENT = Experiment(
    name="punctuation",
    figure="Tucker & Maier, §2 and §3",
    claim="punctuations may come often or seldom: a query pays for each and is answered the sooner; and a "
    "bound in time lets rows go where a bound in rows (slack) waits for rows that do not come",
    method="200 rows a second, up to 400 ms late; a timer promises now − 400 ms at each rate, and windows of "
    "a second are counted; delay is from the end of a window to its answer. With more than five punctuations "
    "a second windows are answered as early as the 400 ms allow, and further ones only cost. For slack, four "
    "seconds of five have a tenth of the rows; slack and timer are the least with which no row is late; in "
    "the stream's own time, so service times do not count",
    differs="The paper leaves the rate open and has no numbers.",
    run=run,
)
