"""§5 of Bai et al. (query graphs): temporal patterns wait for the time of the other stream, as unions do."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.arrivals import Instants, poisson
from experiments.result import WARM_UP, Conditions, Experiment, Line, Measure, Panel, Result
from experiments.simulation import ARRIVED, SCHEMA, Simulation, Trace, run_together
from headrace.engine import Engine
from headrace.expressions import col
from headrace.plan.nodes.core import Project, Source, TimeKind
from headrace.plan.nodes.sequence import Mode, Sequence, Step
from headrace.time.ets import NONE, ON_DEMAND, Policy, periodic

CASES, PRODUCTS = "cases", "products"
MODES = (Mode.RECENT, Mode.CHRONICLE)
WAYS: dict[str, Policy] = {"none": NONE, "periodic": periodic(100_000_000), "on_demand": ON_DEMAND}
LABELS = {"none": "no ETS", "periodic": "10 ETS a second", "on_demand": "on-demand ETS"}


def packed(mode: Mode) -> Sequence:
    """A product after the case it is packed into (Example 1)."""
    case = Source(CASES, SCHEMA, TimeKind.INTERNAL)
    named = Project(case, (("case", col("v")), (f"{ARRIVED}_case", col(ARRIVED))))
    return Sequence((named, Source(PRODUCTS, SCHEMA, TimeKind.INTERNAL)), (Step(), Step()), mode)


def simulation(
    mode: Mode, policy: Policy, arrivals: Mapping[str, Instants], conditions: Conditions
) -> Simulation:
    """A run to be, row by row."""
    engine = Engine(strategy="dfs")
    for name in (CASES, PRODUCTS):
        engine.streams.declare(Source(name, SCHEMA, TimeKind.INTERNAL), policy=policy)
    engine.add("packed", packed(mode))
    return Simulation(engine, arrivals, conditions)


def compared(mode: Mode, seconds: float, conditions: Conditions) -> dict[str, Trace]:
    """Each way over the same arrivals: a case every ten seconds, 50 products a second."""
    arrivals = {CASES: poisson(0.1, seconds, seed=111), PRODUCTS: poisson(50.0, seconds, seed=112)}
    runs = [simulation(mode, policy, arrivals, conditions) for policy in WAYS.values()]
    return dict(zip(WAYS, run_together(runs), strict=True))


def run(conditions: Conditions) -> Result:
    """Both modes under each way."""
    seconds = conditions.seconds(40.0, 200.0, 2_000.0)
    compared(Mode.RECENT, 3.0, WARM_UP)
    found = {mode: compared(mode, seconds, conditions) for mode in MODES}
    latency = {mode: {way: trace.mean_ms for way, trace in found[mode].items()} for mode in MODES}
    ratio = {mode: latency[mode]["none"] / latency[mode]["on_demand"] for mode in MODES}
    lines = [
        Line(LABELS[way], list(range(len(MODES))), [latency[mode][way] for mode in MODES], "bars")
        for way in WAYS
    ]
    names = tuple(mode.value.upper() for mode in MODES)
    return Result(
        [
            *(
                Measure(f"patterns.{mode.value}.{way}_ms", latency[mode][way], "ms")
                for mode in MODES
                for way in WAYS
            ),
            *(
                Measure(f"patterns.{mode.value}.none_over_on_demand", ratio[mode], "×", floor=1_000)
                for mode in MODES
            ),
        ],
        [Panel("SEQ(cases, products)", "", "Average output latency (ms)", lines, y_scale="log", ticks=names)],
        f"a product finds its case after {latency[Mode.RECENT]['none'] / 1e3:,.1f} s without ETS and "
        f"{latency[Mode.RECENT]['on_demand']:.2f} ms on demand (RECENT); CHRONICLE "
        f"{latency[Mode.CHRONICLE]['none'] / 1e3:,.1f} s and {latency[Mode.CHRONICLE]['on_demand']:.2f} ms",
    )


EXPERIMENT = Experiment(
    name="patterns",
    figure="Bai et al., query graphs, §5",
    claim="a temporal pattern over a busy and a sparse stream waits for the time of the sparse one, and "
    "on-demand ETS bring its latency down by orders of magnitude, as they do for a union",
    method="Example 1: products at 50 rows/s, each after its case, of which one comes every ten seconds; "
    "Poisson, row by row, internal timestamps; mean time from the arrival of a product to its result; all "
    "ways over the same arrivals, taking turns event by event",
    differs="The paper shows that these patterns idle-wait and that ETS apply to them, and has no figure.",
    run=run,
)
