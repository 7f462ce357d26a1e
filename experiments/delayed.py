"""§4.1 of Srivastava & Widom: guarantees that hold after a delay, against the skew δ alone."""

from __future__ import annotations

import heapq

import numpy as np

from experiments.result import Conditions, Experiment, Line, Measure, Panel, Result
from headrace.arrays import Ints
from headrace.time.bounds import NEVER, Bounds
from headrace.time.heartbeat import HeartbeatGenerator
from headrace.time.skew import SkewMatrix
from headrace.time.systems import GlobalCounter

SOURCES = 6
SLOWEST = 60
FASTEST = (60, 15, 4, 1)
PAUSE = 1_000
Rows = tuple[Ints, Ints, Ints]


def tokens(fastest: int, count: int) -> Rows:
    """What sources emit that get times from one counter: source, time, instant.

    Most tokens take the shortest time, and one in ten the longest; after one in ten a source pauses.
    """
    rng = np.random.default_rng(41)
    free = [(int(rng.integers(0, SLOWEST)), source) for source in range(SOURCES)]
    heapq.heapify(free)
    rows = np.zeros((3, count), np.int64)
    for token in range(count):
        now, source = heapq.heappop(free)
        done = now + (SLOWEST if rng.random() < 0.1 else fastest)
        rows[:, token] = source, token, done
        heapq.heappush(free, (done + PAUSE * int(rng.random() < 0.1), source))
    source, time, instant = rows[:, np.argsort(rows[2], kind="stable")]
    return source, time, instant


def delayed(fastest: int) -> SkewMatrix:
    """(t, 0): after t, no row of j is behind; and after one row of j neither."""
    counter = GlobalCounter.of([fastest] * SOURCES, [SLOWEST] * SOURCES)
    return counter.skew([str(source) for source in range(SOURCES)])


def immediate(fastest: int) -> SkewMatrix:
    """(0, δ): how many tokens the other sources may have taken while j worked at one."""
    i, j = np.divmod(np.arange(SOURCES**2), SOURCES)
    most = (SOURCES - 1) * -(-SLOWEST // fastest) + 1
    delta, zero = np.where(i == j, 0, most).astype(np.int64), np.zeros(len(i), np.int64)
    return SkewMatrix.build([str(source) for source in range(SOURCES)], i, j, zero, zero, delta)


def by(skew: SkewMatrix) -> HeartbeatGenerator:
    """The heartbeats of Figure 2 under these bounds."""
    return HeartbeatGenerator(Bounds.of(skew, 0, NEVER))


def mean_wait(generator: HeartbeatGenerator, rows: Rows) -> float:
    """From the arrival of a row until all sources have promised that none before it comes, in ms."""
    sources, times, instants = rows
    released, waiting, waits = -1, list[tuple[int, int]](), list[int]()
    now, last = int(instants[0]), int(instants[-1])
    while now <= last:
        came = slice(*np.searchsorted(instants, (now, now + 1)))
        for time in times[came]:
            if time <= released:
                raise AssertionError(f"a promise of {released} was broken by {time}")
            heapq.heappush(waiting, (int(time), now))
        generator.arrive(sources[came], times[came], now)
        released = max(released, generator.heartbeat(now))
        while waiting and waiting[0][0] <= released:
            waits.append(now - heapq.heappop(waiting)[1])
        following = np.searchsorted(instants, now, side="right")
        change = generator.next_change(now)
        now = int(
            min([last + 1, *instants[following : following + 1], *([] if change is None else [change])])
        )
    waits += [last - since for _, since in waiting]  # at least that long
    return float(np.mean(waits))


def run(conditions: Conditions) -> Result:
    """Both kinds of guarantee, for sources whose fastest token is faster and faster."""
    count = conditions.of(300, 2_000, 20_000)
    rows = {fastest: tokens(fastest, count) for fastest in FASTEST}
    after = [mean_wait(by(delayed(fastest)), rows[fastest]) for fastest in FASTEST]
    at_once = [mean_wait(by(immediate(fastest)), rows[fastest]) for fastest in FASTEST]
    spread = [SLOWEST / fastest for fastest in FASTEST]
    lines = [Line("(0, δ) alone", spread, at_once), Line("delayed (t, 0) and (1 row, 0)", spread, after)]
    x, y = "Slowest over fastest token", "Wait of a row (ms)"
    return Result(
        [
            *(Measure(f"delayed.after_{f}_ms", v, "ms") for f, v in zip(FASTEST, after, strict=True)),
            *(Measure(f"delayed.alone_{f}_ms", v, "ms") for f, v in zip(FASTEST, at_once, strict=True)),
            Measure(
                "delayed.alone_over_delayed", at_once[-1] / after[-1], "×", floor=3, paper="considerably"
            ),
        ],
        [Panel(f"{SOURCES} sources, one counter", x, y, lines, "log", from_zero=True)],
        f"with tokens of 1 to {SLOWEST} ms a row waits {at_once[-1]:.0f} ms by the skew alone and "
        f"{after[-1]:.0f} ms by delayed guarantees; with equal tokens {at_once[0]:.0f} and {after[0]:.0f} ms",
    )


EXPERIMENT = Experiment(
    name="delayed",
    figure="Srivastava & Widom, §4.1",
    claim="where sources get times from a shared counter, guarantees that hold after a delay, (t, 0), make "
    "rows wait far less than a skew δ that holds at once, which grows with the fastest source",
    method=f"{SOURCES} sources that take 1 to {SLOWEST} ms for a token, one in ten the longest, and pause "
    "for a second after one in ten; the time from a row's arrival until the heartbeats of all sources have "
    "passed it; heartbeats of Figure 2 in both cases, and no promise is broken; in the streams' own time, so "
    "service times do not count; δ is one more than in the paper, because a skew must be less than δ",
    run=run,
)
