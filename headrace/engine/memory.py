"""The memory of an engine: how much it holds, the budget, and what it spills to disk."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from headrace.errors import BudgetError, SpillError
from headrace.graph.graph import Graph
from headrace.memory.accounting import account
from headrace.memory.admission import check_fits
from headrace.memory.budget import budget_bytes, machine_bytes
from headrace.memory.choice import Needs
from headrace.memory.manager import POLICIES, Manager, Shortage
from headrace.memory.share import Share
from headrace.plan.nodes.core import Plan
from headrace.plan.show import in_units
from headrace.spill.store import SpillStore


class Memory:
    """`engine.memory`: bytes held, the budget for them, and the store that state is spilled to."""

    def __init__(self, graph: Graph, store: SpillStore | None) -> None:
        self._graph = graph
        self.store = store
        self.manager: Manager | Share | None = None

    def rewire(self) -> None:
        """The graph has changed: every operator may spill to the store."""
        if self.store is not None:
            for node in self._graph.nodes:
                node.operator.memory.use_spill_store(self.store)

    def use(self, store: SpillStore) -> None:
        """From now on, state may be spilled to `store`."""
        self.store = store
        self.rewire()

    def bytes(self) -> int:
        """Bytes in memory: state, and rows in buffers."""
        return account(self._graph).total

    def spilled_bytes(self) -> int:
        """Bytes of state on disk."""
        return sum(node.operator.memory.spilled_bytes() for node in self._graph.nodes)

    def spare(self) -> float:
        """Bytes of the budget that are free."""
        if self.manager is None:
            return inf
        own = self.manager.share if isinstance(self.manager, Share) else self.manager.budget
        return own - account(self._graph, tight=True).own

    def spill(self, bytes: int) -> int:
        """Spill about `bytes` of state to disk; returns how many bytes left memory.

        The operators with the most state go first. Results stay the same but cost more. Returns 0 if no state
        can be spilled.
        """
        if self.store is None:
            raise SpillError(
                "HR-M101",
                "this engine has nowhere to put state",
                hint="Engine(spill_to=DirectorySpillStore(path))",
            )
        freed = 0
        for node in sorted(self._graph.nodes, key=lambda n: -n.operator.memory.bytes()):
            if freed >= bytes:
                break
            freed += node.operator.memory.spill(bytes - freed)
        return freed

    @property
    def budget(self) -> int | None:
        """The budget in bytes; None if there is none."""
        return None if self.manager is None else self.manager.budget

    def set_budget(
        self,
        size: int | str | None,
        *,
        policy: Shortage = "fail",
        whole: Callable[[], int] = machine_bytes,
    ) -> int:
        """Limit the memory of all queries: bytes, '64 MB', or a share of `whole` such as '25 %'.

        Windows with bounds shrink under memory pressure and grow back to their best size afterwards. If even
        the smallest windows do not fit, `policy` decides: `fail` with an error, or `spill` state to disk.
        None removes the budget. Returns the budget in bytes.
        """
        if size is None:
            self.manager = None
            return 0
        self._check(policy)
        bytes = budget_bytes(size, whole)
        if not isinstance(self.manager, Manager):
            self.manager = Manager(self._graph, bytes, policy, self.spill)
        self.manager.budget, self.manager.policy = bytes, policy
        return bytes

    def admit(self, query: str, plan: Plan, ticks_per_second: int | None) -> None:
        """Raise an error if a new query does not fit into the budget with its smallest windows (HR-M004).

        With the policy `spill` every query fits.
        """
        if isinstance(self.manager, Manager) and self.manager.policy == "fail":
            span = in_units(ticks_per_second)
            check_fits(query, plan, self.manager.measured(), self.manager.budget, span)

    def set_share(self, share: int, budget: int, *, policy: Shortage = "fail") -> None:
        """Hold about `share` bytes of a budget that several engines have together.

        The engine only measures (`needs`): someone who knows all of them chooses the sizes of windows, and
        calls `engine.quality.resize` in each. Beyond its share, the engine spills if `policy` says so.
        """
        self._check(policy)
        if not isinstance(self.manager, Share):
            self.manager = Share(self._graph, share, budget, policy, self.spill)
        self.manager.share, self.manager.budget, self.manager.policy = share, budget, policy

    def needs(self) -> tuple[Needs, int, list[str]]:
        """With a share of a budget: what the windows need, the bytes held, and the nodes of the windows."""
        assert isinstance(self.manager, Share)
        needs, held = self.manager.needs()
        return needs, held, self.manager.names()

    def arrivals(self) -> dict[str, dict[str, Any]]:
        """With a budget: how many rows of each stream came, and when, as plain data."""
        assert self.manager is not None
        return self.manager.arrivals()

    def _check(self, policy: Shortage) -> None:
        """Raise an error if the policy is unknown, or needs a store that there is not."""
        if policy not in POLICIES:
            raise BudgetError(
                "HR-M003", f"unknown policy {policy!r}", place="budget", hint=f"known: {', '.join(POLICIES)}"
            )
        if policy == "spill" and self.store is None:
            self.spill(0)
