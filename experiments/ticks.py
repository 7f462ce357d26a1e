"""§3.2 and §5.1 of Srivastava & Widom: the closure of bounds, and coarser ticks of the wall clock."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.delayed import Rows, mean_wait
from experiments.result import Conditions, Experiment, Line, Measure, Panel, Result
from headrace.time.bounds import NEVER, Bounds
from headrace.time.heartbeat import HeartbeatGenerator
from headrace.time.skew import SkewMatrix

SOURCES = 6
NAMES = [f"s{i}" for i in range(SOURCES)]
TICKS = (1, 10, 100, 500)
DELAY, AFTER, STEP = 50, 2_000, 200


def rows(rates: Sequence[float], seconds: int) -> Rows:
    """Sources that send in order, at rates of their own; each row is 50 ms on its way."""
    rng = np.random.default_rng(121)
    sent = [np.unique(rng.integers(0, seconds * 1_000, int(rate * seconds))) for rate in rates]
    source = np.repeat(np.arange(SOURCES), [len(each) for each in sent])
    times = np.concatenate(sent)
    order = np.argsort(times, kind="stable")
    return source[order], times[order], times[order] + DELAY


def around(wait: int) -> SkewMatrix:
    """Each source promises something about itself and, after a while, about its neighbour in a ring."""
    own = {(name, name): [(0, 0)] for name in NAMES}
    ring = {(NAMES[i], NAMES[(i + 1) % SOURCES]): [(wait, DELAY)] for i in range(SOURCES)}
    return SkewMatrix.of(NAMES, own | ring)


def everywhere(wait: int) -> SkewMatrix:
    """Each source promises something about itself and, after a while, about every other."""
    own = {(name, name): [(0, 0)] for name in NAMES}
    others = {(i, j): [(wait, DELAY)] for i in NAMES for j in NAMES if i != j}
    return SkewMatrix.of(NAMES, own | others)


def held(generator: HeartbeatGenerator) -> int:
    """Bytes of what a generator keeps about arrivals."""
    return sum(array.nbytes for array in generator.snapshot().values() if isinstance(array, np.ndarray))


def run(conditions: Conditions) -> Result:
    """Delay and memory against the tick; then bounds as they are declared, and their closure."""
    seconds = conditions.of(20, 120, 1_200)
    busy = rows([100.0, *[0.1] * (SOURCES - 1)], seconds)
    waits, memory = [], []
    for tick in TICKS:
        generator = HeartbeatGenerator(Bounds.of(everywhere(AFTER), 0, NEVER), tick=tick)
        waits.append(mean_wait(generator, busy))
        memory.append(float(held(generator)))
    most = max(wait - waits[0] - tick for wait, tick in zip(waits, TICKS, strict=True))
    bounds = Bounds.of(around(STEP), 0, NEVER)
    declared = mean_wait(HeartbeatGenerator(bounds, close=False), busy)
    closed = mean_wait(HeartbeatGenerator(bounds), busy)
    return Result(
        [
            *(Measure(f"ticks.wait_{tick}_ms", wait, "ms") for tick, wait in zip(TICKS, waits, strict=True)),
            *(Measure(f"ticks.held_{t}_bytes", m, "bytes") for t, m in zip(TICKS, memory, strict=True)),
            Measure("ticks.memory_finest_over_coarsest", memory[0] / memory[-1], "×", floor=2),
            Measure("ticks.most_delay_beyond_the_tick_ms", most, "ms", ceiling=0),
            Measure("ticks.declared_wait_ms", declared, "ms"),
            Measure("ticks.closed_wait_ms", closed, "ms"),
            Measure("ticks.declared_over_closed", declared / closed, "×", floor=2),
        ],
        [
            Panel("(a) delay", "Tick (ms)", "Wait of a row (ms)", [Line("", TICKS, waits)], "log"),
            Panel("(b) memory", "Tick (ms)", "State (bytes)", [Line("", TICKS, memory)], "log", "log"),
            Panel(
                "(c) closure",
                "",
                "Wait of a row (ms)",
                [Line("wait", [0, 1], [declared, closed], "bars")],
                ticks=("declared", "closed"),
            ),
        ],
        f"a tick of {TICKS[-1]} ms in place of {TICKS[0]} ms keeps {memory[-1]:,.0f} bytes in place of "
        f"{memory[0]:,.0f}, and rows wait {waits[-1] - waits[0]:.0f} ms longer; with the closure of bounds "
        f"between neighbours a row waits {closed:,.0f} ms, without {declared:,.0f} ms",
    )


EXPERIMENT = Experiment(
    name="ticks",
    figure="Srivastava & Widom, §3.2 and §5.1",
    claim="coarser ticks of the wall clock need less memory and make heartbeats later by less than a tick; "
    "the closure of the bounds gives heartbeats that no bound gives alone",
    method=f"{SOURCES} sources, of which one sends 100 rows/s and the others one every ten seconds, 50 ms on "
    "their way; (a), (b) each row proves something about every other source after 2 s; bytes of the "
    "generator's state, and time from a row's arrival until the heartbeats of all sources have passed it; "
    "(c) bounds in a ring, each source about its neighbour after 200 ms, used as they are and with their "
    "closure; no promise is broken; in the streams' own time, so service times do not count",
    differs="The paper proves both and has no numbers.",
    run=run,
)
