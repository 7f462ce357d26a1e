"""The memory of an operator: how many bytes its state takes, and how to make it take fewer.

`Operator.memory` is an `OperatorMemory`. It works from the parts that `Operator.state()` returns, so an
operator needs nothing else. One that knows more about its state makes its own, with the keywords below.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace.spill.mapped_arrays import Movable
from headrace.spill.store import Spillable, SpillStore
from headrace.state.columns import Buffer
from headrace.state.part import Part


class OperatorMemory:
    """Measures, releases and spills the state of one operator. Answers never depend on it.

    `forget` drops entries that are dead and would be dropped later; `dead_bytes` is how many bytes they take.
    `scratch` is a buffer that is not part of the state. `pieces` are the parts that can be spilled a piece at
    a time, if not all that are `Spillable`. `bytes_by_input` and `distinct_ends`: see the methods.
    """

    def __init__(
        self,
        parts: Callable[[], Mapping[str, Part]],
        *,
        forget: Callable[[], object] | None = None,
        dead_bytes: Callable[[], int] | None = None,
        scratch: Buffer | None = None,
        pieces: Sequence[Spillable] | None = None,
        bytes_by_input: Callable[[], tuple[int, ...]] | None = None,
        distinct_ends: Callable[[], tuple[int, int]] | None = None,
    ) -> None:
        self._parts = parts
        self._forget, self._dead_bytes, self._scratch = forget, dead_bytes, scratch
        self._pieces, self._by_input, self._distinct_ends = pieces, bytes_by_input, distinct_ends
        self._spill_store: SpillStore | None = None

    # ---------------------------------------------------------------------------------------- measuring

    def bytes(self) -> int:
        """Bytes of state in memory; rows that wait in the input arcs are not included."""
        held = sum(part.bytes() for part in self._parts().values())
        return held if self._scratch is None else held + self._scratch.bytes()

    def log_bytes(self) -> int:
        """How many of these are kept for the next snapshot only."""
        return sum(part.log_bytes() for part in self._having("log_bytes"))

    def spare_bytes(self) -> int:
        """How many of these are unused capacity, or dead entries that are not dropped yet."""
        spare: int = sum(part.spare_bytes() for part in self._having("spare_bytes"))
        spare += 0 if self._scratch is None else self._scratch.bytes()
        return spare if self._dead_bytes is None else spare + self._dead_bytes()

    def bytes_by_input(self) -> tuple[int, ...] | None:
        """Bytes of state without unused capacity, by input; None if inputs share state."""
        return None if self._by_input is None else self._by_input()

    def distinct_ends(self) -> tuple[int, int] | None:
        """How many pending ends were looked at, and how many of them differ in more than their time.

        None if each row is held separately: then a coarser granularity saves nothing.
        """
        return None if self._distinct_ends is None else self._distinct_ends()

    def _having(self, method: str) -> list[Any]:
        """The parts of the state that have this method."""
        return [part for part in self._parts().values() if hasattr(part, method)]

    # ---------------------------------------------------------------------------------------- releasing

    def release(self) -> None:
        """Drop dead entries now, and free unused capacity."""
        if self._forget is not None:
            self._forget()
        for part in self._having("release"):
            part.release()
        if self._scratch is not None:
            self._scratch.release()

    # ----------------------------------------------------------------------------------------- spilling

    def use_spill_store(self, spill_store: SpillStore) -> None:
        """From now on spill to this store."""
        self._spill_store = spill_store
        for part in self._spillable():
            part.spill_store = spill_store

    def spill(self, bytes: int) -> int:
        """Move about `bytes` of state to disk, largest parts first; returns how many left memory.

        First the parts that spill in pieces (`headrace.spill.store.Spillable`); if that is not enough, the
        arrays of the others (`headrace.spill.mapped_arrays.Movable`).
        """
        pieces = self._spillable() if self._pieces is None else self._pieces
        before, freed = self.bytes(), 0
        for part in sorted(pieces, key=lambda p: -p.bytes()):
            if freed >= bytes:
                break
            part.spill(bytes - freed)
            freed = before - self.bytes()
        return freed if freed >= bytes else freed + self._move_to_disk(bytes - freed)

    def _move_to_disk(self, bytes: int) -> int:
        """Move about `bytes` of arrays to mapped files, largest parts first; returns how many left memory."""
        before, freed = self.bytes(), 0
        for part in sorted(self._movable(), key=lambda p: -p.bytes()):
            if freed >= bytes or self._spill_store is None:
                break
            part.move_to_disk(self._spill_store)
            freed = before - self.bytes()
        return freed

    def spilled_bytes(self) -> int:
        """Bytes of state on disk."""
        return sum(part.spilled_bytes() for part in self._spillable()) + self.mapped_bytes()

    def mapped_bytes(self) -> int:
        """How many of these are in mapped arrays."""
        return sum(part.mapped_bytes() for part in self._movable())

    def _movable(self) -> list[Movable]:
        return [part for part in self._parts().values() if isinstance(part, Movable)]

    def _spillable(self) -> list[Spillable]:
        return [part for part in self._parts().values() if isinstance(part, Spillable)]
