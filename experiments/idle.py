"""§6 of Bai et al. 2007: the share of time that the union spends idle-waiting."""

from __future__ import annotations

from math import exp

from experiments.fig7 import RATES, periodic_seconds, streams
from experiments.result import WARM_UP, Conditions, Experiment, Line, Measure, Panel, Result, Scale
from experiments.unions import DEMAND, NO_ETS, Way, injected, run_union

AT = 100.0
LAMBDA_T = 47.5 / AT
POISSON = 1 - (1 - exp(-LAMBDA_T)) / LAMBDA_T
"""The share at this rate that Poisson arrivals give: a row at a random instant waits for the next ETS."""
Pair = tuple[float, float]


def shares(way: Way, seconds: float, conditions: Conditions) -> tuple[float, float]:
    """Of all time, how much the union idle-waited, and how much it was blocked."""
    trace = run_union(way, streams(seconds), conditions, watch=True)
    return trace.waiting_share, trace.blocked_share


def run(conditions: Conditions) -> Result:
    """A, B at each rate, and C, over the arrivals of Figure 7."""
    long = conditions.seconds(15.0, 300.0, 10_000.0)
    short = conditions.seconds(5.0, 100.0, 2_000.0)
    for way in (NO_ETS, DEMAND):
        shares(way, 2.0, WARM_UP)
    none = shares(NO_ETS, long, conditions)
    seconds = {rate: min(short, periodic_seconds(rate, conditions)) for rate in RATES}
    line_b = {rate: shares(injected(rate), seconds[rate], conditions) for rate in RATES}
    demand = shares(DEMAND, short, conditions)
    at = line_b[AT][0]
    return Result(
        [
            Measure("idle.none_share", none[0], floor=0.98, paper="99 %"),
            *(Measure(f"idle.periodic_{r:g}_share", line_b[r][0], paper=PAPER.get(r, "")) for r in RATES),
            Measure("idle.periodic_100_over_poisson", at / POISSON, "×", floor=0.85, ceiling=1.15),
            Measure("idle.on_demand_share", demand[0], ceiling=0.001, paper="less than 0.1 %"),
            Measure("idle.on_demand_blocked_share", demand[1]),
        ],
        [
            _panel("(a) nothing left to run", 0, "linear", none, line_b, demand),
            _panel("(b) also counting the making of ETS", 1, "log", none, line_b, demand),
        ],
        f"the union waits {none[0]:.1%} of the time without ETS, {at:.1%} with {AT:g} a second, "
        f"{demand[0]:.3%} on demand ({demand[1]:.2%} with the work of making the ETS)",
    )


def _panel(
    title: str, which: int, scale: Scale, none: Pair, line_b: dict[float, Pair], demand: Pair
) -> Panel:
    flat = [(NO_ETS.label, none), (DEMAND.label, demand)]
    lines = [Line(label, RATES, [100 * pair[which]] * len(RATES), "flat") for label, pair in flat]
    periodic = Line("B: periodic ETS", RATES, [100 * line_b[rate][which] for rate in RATES])
    x, y = "Punctuation rate (ETS per second)", "Time in idle-waiting (%)"
    return Panel(title, x, y, [lines[0], periodic, lines[1]], "log", scale)


PAPER = {AT: "15 %, from 100 a second on"}

EXPERIMENT = Experiment(
    name="idle",
    figure="Bai et al. 2007, §6, idle-waiting",
    claim="the latency is idle-waiting: 99 % of the time without ETS, 15 % with 100 periodic ETS per "
    "second, below 0.1 % on demand",
    method="the engine's own metrics (`Engine.metrics`): time in which the union holds rows and nothing is "
    "left to run, as a share of all time; arrivals, plan and variants of Figure 7",
    differs="The paper does not say whether the time in which the scheduler backtracks and the source makes "
    "its ETS counts as waiting. In the shares above it does not; in `idle.on_demand_blocked_share` "
    "it does: every row then waits the tens of microseconds that this takes in Python. With 100 "
    "periodic ETS per second the share is what Poisson arrivals give, 1 − (1 − e^(−λT)) ÷ λT = 20 % "
    "for λ = 47.5/s and T = 10 ms; the paper's 15 % is a little below.",
    run=run,
)
