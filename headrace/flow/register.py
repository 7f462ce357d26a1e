"""Time-Stamp Memory registers and the ETS arcs that write them (Bai et al., Figures 8–11).

Each input of an idle-waiting-prone operator has a register. In the enhanced query graph an ETS arc links
a source or an idle-waiting-prone operator directly to the register of the next such operator, past all
that stands between. A value written is *active* until its reader has passed it on, so each is passed once.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.flow.arc import Reader
from headrace.time.timestamp import MIN_TIME


@dataclass(eq=False)
class Register:
    """A time and an active flag. The value never decreases.

    A value offered while rows are still on their way between writer and register waits until they have
    passed: they may be earlier than it.
    """

    path: tuple[Reader, ...] = ()
    value: int = MIN_TIME
    active: bool = False
    offered: int = MIN_TIME

    def offer(self, value: int) -> bool:
        """Write a value; true if it is news."""
        if value <= self.offered:
            return False
        self.offered = value
        return True

    def read(self) -> int:
        """The value in force, taking over the offered one once its path is clear."""
        if self.offered > self.value and all(r.rows == 0 for r in self.path):
            self.value = self.offered
            self.active = True
        return self.value
