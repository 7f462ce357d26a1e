"""`Execution`: how an engine runs its graph. Answers do not depend on it; their cost does."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.engine.engine import Engine
from headrace.graph.ets_arcs import propagation_named
from headrace.graph.levels import check_level
from headrace.scheduling.table import strategy
from headrace.spill.store import SpillStore


@dataclass(frozen=True)
class Execution:
    """Strategy, heartbeat level and propagation, as pipeline files, `SparkOptions` and commands name them.

    Both runtimes make their engines from it. A restart may change it: no state depends on it.
    """

    strategy: str = "auto"
    """Which operator runs next, and how many rows it takes: `dfs`, `bfs`, `rr`, `chain`, `edf`, `dfs(9)`."""
    level: str = "operator"
    """Whose watermarks an operator waits for: `operator`, `query` or `memory`."""
    propagation: str = "direct"
    """How watermarks travel: `direct` to the operators that wait, or `in_band` with the rows."""

    def __post_init__(self) -> None:
        strategy(self.strategy)
        check_level(self.level)
        propagation_named(self.propagation)

    def engine(self, *, now: int = 0, spill_to: SpillStore | None = None) -> Engine:
        """A new engine without queries that runs like this."""
        made = Engine(strategy=self.strategy, propagation=self.propagation, now=now, spill_to=spill_to)
        made.scheduling.set_level(self.level)
        return made
