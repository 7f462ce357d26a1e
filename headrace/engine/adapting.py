"""Joins and conditions looked at again by themselves: when, and when a change pays for itself.

What the joins of a query hold tells what each order of them would cost. It is looked at after as many rows as
are held, so that looking costs a share of what the rows cost; an order is changed if two looks in a row want
the same one, if it makes much less between the joins, and if that saves more in a few windows than the move
costs. After a change the next look is further off, twice as far each time until one wants nothing. All of it
follows from counts of rows, and is in the snapshot.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from headrace.drawing import Section
from headrace.engine.reordering import GAIN, Measured, Reorderings
from headrace.expressions.sieve import Sieve
from headrace.flow.state import Chunk
from headrace.graph.graph import Graph
from headrace.graph.joinbox import JoinBox, join_box
from headrace.graph.node import Node

LOOK: Final = 8192
"""Rows between two looks, at least."""
_WINDOWS: Final = 2
"""A move must pay for itself before what is held has been exchanged so many times."""
_AGREE: Final = 2
"""Looks in a row that must want the same order before it is taken."""
_LONGEST: Final = 64
"""Looks that are left out after a change, at most."""


@dataclass
class Look:
    """What is remembered of a query's joins: the rows at which the next look is due, what the last wanted.

    `agreed` is how many looks in a row have wanted it, `rest` how many are left out after the next change.
    """

    due: int
    wanted: tuple[int, ...] | None = None
    agreed: int = 0
    rest: int = 1

    def want(self, order: tuple[int, ...] | None) -> None:
        """What a look wants now."""
        self.agreed = self.agreed + 1 if order == self.wanted else 1
        self.wanted = order


class Adapting:
    """Looks at the joins of each query every so many rows, and lets sieves look at their conditions."""

    def __init__(self, graph: Graph, orders: Reorderings) -> None:
        self.every: int | None = None
        self._graph, self._orders = graph, orders
        self._looks: dict[str, Look] = {}
        self._boxes: dict[str, JoinBox] | None = None

    def use(self) -> None:
        """The graph has changed: know its joins anew, and let all sieves look as often as is said."""
        self._boxes = None
        for _, sieve in self._sieves():
            sieve.every = self.every

    def _sieves(self) -> Iterator[tuple[Node, Sieve]]:
        return ((node, node.operator.sieve) for node in self._graph.nodes if node.operator.sieve is not None)

    # --------------------------------------------------------------------------------------------- looking

    def look(self, spare: Callable[[], float]) -> None:
        """Look at the joins that have taken enough rows since the last time.

        `spare` are the bytes that may be used: for a moment the old joins and the new ones are both there.
        """
        if self.every is None:
            return
        for query, box in self._known().items():
            look = self._looks.setdefault(query, Look(self.every))
            if box.rows_in >= look.due and query not in self._orders.pending:
                self._look(query, box, look, spare)

    def _known(self) -> dict[str, JoinBox]:
        if self._boxes is None:
            found = {query: join_box(self._graph, query) for query in self._graph.sinks}
            self._boxes = {query: box for query, box in found.items() if box is not None}
        return self._boxes

    def _look(self, query: str, box: JoinBox, look: Look, spare: Callable[[], float]) -> None:
        assert self.every is not None
        if box.obstacle(self._graph, query) or any(join.has_shelved for join in box.joins):
            look.due = box.rows_in + self.every
            look.want(None)
            return
        cost = Measured(box)
        pause = max(self.every, cost.rows)
        look.due = box.rows_in + pause
        look.want(worth(cost, len(box.leaves)))
        if look.wanted is None:
            look.rest = max(1, look.rest // 2)
        elif look.agreed >= _AGREE and box.bytes <= spare():
            self._orders.begin(query, box, cost, look.wanted)
            look.due += look.rest * pause
            look.rest = min(_LONGEST, 2 * look.rest)
            look.want(None)

    # --------------------------------------------------------------------------------------------- telling

    def conditions(self) -> dict[str, str]:
        """The conditions that are tried in another order than written, by operator, with what passes each."""
        return {node.name: str(sieve) for node, sieve in self._sieves() if sieve.is_changed}

    def explained(self, nodes: Iterable[Node]) -> tuple[Section, ...]:
        """In which order conditions are tried that were not written so, and what each lets pass."""
        named, found = {node.name for node in nodes}, self.conditions()
        lines = [f"  {name}: {order}" for name, order in found.items() if name in named]
        return (Section("order of conditions, as measured", "\n".join(lines)),) if lines else ()

    # ----------------------------------------------------------------------------------------------- state

    def bytes(self) -> int:
        return 64 * len(self._looks)

    def changes(self, full: bool) -> Chunk:
        looks = {query: asdict(look) for query, look in self._looks.items()}
        sieves = {str(node.id): sieve.state() for node, sieve in self._sieves()}
        return {"looks": json.dumps(looks), "sieves": json.dumps(sieves)}

    def apply(self, chunk: Chunk) -> None:
        self._looks = {query: _look(entry) for query, entry in json.loads(chunk["looks"]).items()}
        known = json.loads(chunk["sieves"])
        for node, sieve in self._sieves():
            if str(node.id) in known:
                sieve.restore(known[str(node.id)])


def worth(cost: Measured, relations: int) -> tuple[int, ...] | None:
    """The best order, if it is much better than the one in force and the move is soon paid for."""
    now, best = tuple(range(relations)), cost.best()
    before, after = cost.of(now), cost.of(best)
    pays = _WINDOWS * (before - after) >= cost.rows + after
    return best if best != now and after < GAIN * before and pays else None


def _look(entry: dict[str, Any]) -> Look:
    wanted = entry["wanted"]
    return Look(**entry | {"wanted": None if wanted is None else tuple(wanted)})
