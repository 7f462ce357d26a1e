"""Coarser time: output rate and state of an aggregate fall with the granularity (Cammert et al., §2.2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

import headrace
from experiments.result import Conditions, Experiment, Line, Measure, Panel, Result

SCHEMA = pa.schema([("k", pa.int64())])
GROUPS = 10
GRAINS = (1, 3, 10, 30, 100, 300, 1000)


@dataclass(frozen=True)
class Found:
    """Answers a tick, and bytes held once the window is full, on average."""

    rate: float
    held: float


def counted(window: int, grain: int) -> Found:
    """How many rows of each of ten groups are in the window, at one row a tick."""
    text = f"SELECT k, count(*) [GRANULARITY {grain}] AS n FROM s [RANGE {window}] GROUP BY k"
    engine = headrace.Engine()
    engine.add("q", headrace.query(text, {"s": SCHEMA}, ticks_per_second=None))
    rng, step = np.random.default_rng(5), window // 10
    answers, held = 0, list[int]()
    for begin in range(0, 3 * window, step):
        rows = pa.RecordBatch.from_arrays([pa.array(rng.integers(0, GROUPS, step))], schema=SCHEMA)
        engine.push("s", rows, np.arange(begin, begin + step))
        came = sum(len(batch) for batch in engine.drain())
        if begin >= window:
            answers += came
            held.append(engine.metrics().state_bytes)
    return Found(answers / (2 * window), float(np.mean(held)))


def run(conditions: Conditions) -> Result:
    """Every granularity over the same rows."""
    window = conditions.of(10_000, 60_000, 600_000)
    found = {grain: counted(window, grain) for grain in GRAINS}
    finest, coarsest = found[GRAINS[0]], found[GRAINS[-1]]
    x = "Granularity (ticks)"
    rates = Line("answers a tick", GRAINS, [each.rate for each in found.values()])
    held = Line("bytes", GRAINS, [each.held for each in found.values()])
    return Result(
        [
            Measure("memory.granularity.rate_ratio", finest.rate / coarsest.rate, "×", floor=10),
            Measure("memory.granularity.state_ratio", finest.held / coarsest.held, "×", floor=5),
        ],
        [
            Panel("Output", x, "Answers a tick", [rates], "log", "log"),
            Panel("State", x, "State (bytes)", [held], "log", "log"),
        ],
        f"from a granularity of 1 tick to one of {GRAINS[-1]}: answers {finest.rate:.3g} to "
        f"{coarsest.rate:.3g} a tick, state {finest.held / 1e3:,.0f} to {coarsest.held / 1e3:,.0f} kB",
    )


EXPERIMENT = Experiment(
    name="memory_granularity",
    figure="Cammert et al. 2006, §2.2: granularity of an aggregate",
    claim="a coarser granularity makes an aggregate change at fewer instants, so its output rate and its "
    "state shrink",
    method="count(*) of ten groups over a window, one row per tick; results, and bytes of state by "
    "Engine.metrics, in the second and third window",
    differs="The state of count(*) depends on the instants, as in the paper; other aggregates hold each "
    "different value of an instant until it ends, so if values hardly ever repeat only their output "
    "rate shrinks.",
    run=run,
)
