"""Figure 7 of Bai et al. 2007: average output latency of a union of a fast and a sparse stream."""

from __future__ import annotations

from experiments.arrivals import Instants, poisson
from experiments.result import WARM_UP, Conditions, Experiment, Line, Measure, Panel, Result
from experiments.simulation import Simulation, run_together
from experiments.unions import (
    DEMAND,
    DEMAND_IN_BAND,
    FAST,
    LATENT,
    NO_ETS,
    SLOW,
    Way,
    engine_for,
    injected,
    run_union,
)

RATES = (0.1, 1.0, 10.0, 100.0, 1_000.0)


def streams(seconds: float) -> dict[str, Instants]:
    """Poisson, 50 and 0.05 rows a second."""
    return {FAST: poisson(50.0, seconds, seed=1), SLOW: poisson(0.05, seconds, seed=2)}


def mean_latency(way: Way, seconds: float, conditions: Conditions) -> float:
    """Average milliseconds from arrival to answer."""
    return run_union(way, streams(seconds), conditions).mean_ms


def periodic_seconds(rate: float, conditions: Conditions) -> float:
    """Long enough for 60 ETS and for thousands of rows; frequent ETS need not run for hours."""
    least = conditions.of(2.0, 60.0, 600.0)
    return min(conditions.seconds(12.0, 1_000.0, 10_000.0), max(60.0 / rate, least))


def run(conditions: Conditions) -> Result:
    """A, B, C and D over the same Poisson arrivals."""
    long = conditions.seconds(20.0, 1_000.0, 10_000.0)
    short = conditions.seconds(5.0, 200.0, 2_000.0)
    for way in (NO_ETS, DEMAND, DEMAND_IN_BAND, LATENT):
        mean_latency(way, 2.0, WARM_UP)
    none = mean_latency(NO_ETS, long, conditions)
    line_b = [mean_latency(injected(r), periodic_seconds(r, conditions), conditions) for r in RATES]
    close = [
        Simulation(engine_for(way), streams(short), conditions) for way in (DEMAND, DEMAND_IN_BAND, LATENT)
    ]
    demand, in_band, latent = (trace.mean_ms for trace in run_together(close))
    lines = [
        Line(NO_ETS.label, RATES, [none] * len(RATES), "flat"),
        Line("B: periodic ETS", RATES, line_b),
        Line(DEMAND.label, RATES, [demand] * len(RATES), "flat"),
        Line(LATENT.label, RATES, [latent] * len(RATES), "flat"),
    ]
    x, y = "Punctuation rate (ETS per second)", "Average output latency (ms)"
    zoom = [*lines[2:], Line(DEMAND_IN_BAND.label, RATES, [in_band] * len(RATES), "flat")]
    measures = [
        Measure("fig7.none_ms", none, "ms"),
        *(Measure(f"fig7.periodic_{r:g}_ms", v, "ms") for r, v in zip(RATES, line_b, strict=True)),
        Measure("fig7.on_demand_ms", demand, "ms"),
        Measure("fig7.on_demand_in_band_ms", in_band, "ms"),
        Measure("fig7.latent_ms", latent, "ms"),
        Measure("fig7.on_demand_minus_latent_ms", demand - latent, "ms", ceiling=0.1, paper="about 0.1 ms"),
        Measure(
            "fig7.none_over_on_demand", none / demand, "×", floor=10_000, paper="four orders of magnitude"
        ),
    ]
    return Result(
        measures,
        [
            Panel("(a) A, B, C and D", x, y, lines, "log", "log"),
            Panel("(b) C and D close up", x, y, zoom, "log", from_zero=True),
        ],
        f"on demand {demand:.3f} ms, {demand - latent:.3f} ms above latent; without ETS {none / 1e3:,.1f} s",
    )


EXPERIMENT = Experiment(
    name="fig7",
    figure="Bai et al. 2007, Figure 7",
    claim="on-demand ETS bring the latency of a union within 0.1 ms of latent timestamps, four orders of "
    "magnitude below no ETS; periodic ETS never get there",
    method="mean over all results of the instant at which the union emitted them minus the arrival of "
    "their row; Poisson at 50 and 0.05 rows/s, DFS one row at a time; C along the ETS arcs of the "
    "query graph paper, which is Headrace's default, and for comparison as in-band punctuations; B "
    "as punctuations in the sparse stream",
    run=run,
)
