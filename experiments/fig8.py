"""Figure 8 of Bai et al. 2007: the peak total size of all queues."""

from __future__ import annotations

from experiments.fig7 import RATES, periodic_seconds, streams
from experiments.result import Conditions, Experiment, Line, Measure, Panel, Result
from experiments.unions import DEMAND, DEMAND_IN_BAND, NO_ETS, Way, injected, run_union


def peak(way: Way, seconds: float, conditions: Conditions) -> float:
    """The most rows and punctuations that all buffers held together after any step or arrival."""
    return float(run_union(way, streams(seconds), conditions, queues=True).peak)


def run(conditions: Conditions) -> Result:
    """A, B at each rate, and C, over the arrivals of Figure 7."""
    long = conditions.seconds(15.0, 400.0, 10_000.0)
    short = conditions.seconds(5.0, 100.0, 2_000.0)
    none = peak(NO_ETS, long, conditions)
    line_b = [peak(injected(r), min(2 * short, periodic_seconds(r, conditions)), conditions) for r in RATES]
    demand, in_band = (peak(way, short, conditions) for way in (DEMAND, DEMAND_IN_BAND))
    lines = [
        Line(NO_ETS.label, RATES, [none] * len(RATES), "flat"),
        Line("B: periodic ETS", RATES, line_b),
        Line(DEMAND.label, RATES, [demand] * len(RATES), "flat"),
    ]
    x, y = "Punctuation rate (ETS per second)", "Peak total queue size (tuples)"
    best = min(line_b)
    risen = None if conditions.service else 1.5  # steps of a fixed, short time are never behind
    return Result(
        [
            Measure("fig8.none_peak", none, "tuples", paper="thousands"),
            *(Measure(f"fig8.periodic_{r:g}_peak", v, "tuples") for r, v in zip(RATES, line_b, strict=True)),
            Measure("fig8.on_demand_peak", demand, "tuples"),
            Measure("fig8.on_demand_in_band_peak", in_band, "tuples"),
            Measure("fig8.periodic_most_over_best", line_b[-1] / best, "×", floor=risen),
            Measure(
                "fig8.none_over_on_demand",
                none / demand,
                "×",
                floor=100,
                paper="two orders of magnitude and more",
            ),
        ],
        [Panel("Peak total queue size", x, y, lines, "log", "log")],
        f"at most {none:,.0f} tuples in the queues without ETS, {demand:.0f} on demand, {best:.0f} at the "
        "best rate of periodic ETS",
    )


EXPERIMENT = Experiment(
    name="fig8",
    figure="Bai et al. 2007, Figure 8",
    claim="on-demand ETS reduce the peak of all queues by more than two orders of magnitude; periodic ETS "
    "reduce it less, and at high rates raise it again",
    method="the maximum of rows and punctuations in all buffers except the sink's, counted after each step "
    "of an operator and each arrival; arrivals, plan and variants of Figure 7",
    run=run,
)
