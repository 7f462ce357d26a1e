"""Random ways to execute a query (hypothesis strategies): none of them may change its answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from hypothesis import strategies as st

from tests.strategies.interleavings import Step, batch_of, interleavings
from tests.strategies.plans import Case, sources_of, tables_of

K: Final = (1000, 1, 2, 7, "auto")
STRATEGIES: Final = ("dfs", "bfs", "rr", "chain", "edf")
ETS: Final = ("none", "periodic", "on_demand")
PROPAGATIONS: Final = ("punctuation", "eqg")
SPILLS: Final = (1 << 30, 1, 1000)
"""Bytes to put away: all, a part of one piece of state, about an operator's."""


@dataclass(frozen=True, eq=False)
class Run:
    """How a query is executed.

    `swaps` are (index of a step, strategy): the table is changed before that step. `snapshots` are indexes of
    steps before which the engine is replaced by a new one restored from its snapshot. `load` is the index of
    the step before which tables are loaded; −1: as soon as the query is there, −2: before that. `reload`:
    they are also loaded into an engine that is then restored. `spills` are (index of a step, bytes): so much
    state is spilled before that step.
    """

    steps: tuple[Step, ...]
    k: int | Literal["auto"]
    strategy: str
    ets: str
    propagation: str
    swaps: tuple[tuple[int, str], ...]
    snapshots: frozenset[int]
    load: int = -2
    reload: bool = True
    spills: tuple[tuple[int, int], ...] = ()

    def __repr__(self) -> str:
        steps = ", ".join(map(_brief, self.steps))
        ways = f"k={self.k}, strategy={self.strategy}, ets={self.ets}, propagation={self.propagation}"
        changes = f"swaps={list(self.swaps)}, snapshots={sorted(self.snapshots)}"
        changes += f", spills={list(self.spills)}"
        return f"Run({ways}, {changes}, load={self.load}, reload={self.reload}, steps=[{steps}])"


def _brief(step: Step) -> str:
    return f"push {step[1]} {step[2].start.tolist()}" if step[0] == "push" else f"{step[0]} {step[1]}"


@st.composite
def runs(draw: st.DrawFn, case: Case, lag: int = 0) -> Run:
    """A way to execute a case: cuts, order of pushes, k, strategy, ETS; swaps, snapshots, spills."""
    schemas = {source.name: source.columns for source in sources_of(case.plan)}
    batches = {name: batch_of(case.sources[name], schemas[name]) for name in sorted(schemas)}
    steps = tuple(interleavings(batches, lambda n: draw(st.integers(0, n - 1)), lag=lag))
    places = st.integers(0, len(steps) - 1)
    return Run(
        steps,
        draw(st.sampled_from(K)),
        draw(st.sampled_from(STRATEGIES)),
        draw(st.sampled_from(ETS)),
        draw(st.sampled_from(PROPAGATIONS)),
        tuple(sorted(draw(st.lists(st.tuples(places, st.sampled_from(STRATEGIES)), max_size=2)))),
        draw(st.frozensets(places, max_size=2)),
        draw(st.integers(-2, len(steps) - 1)) if tables_of(case.plan) else -2,
        draw(st.booleans()),
        tuple(draw(st.lists(st.tuples(places, st.sampled_from(SPILLS)), max_size=3))),
    )
