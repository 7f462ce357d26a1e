"""An auction house on Headrace, in one Python process: `make demo-embedded`.

Two engines get the same rows at the same instants of a clock that nobody waits for. They differ in one thing:
whether a silent stream may say "nothing new up to here". Every number printed is measured in the run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from examples.duel.engines import Duel


def main(minutes: int = 10) -> Duel:
    """Run the whole demonstration and give back what was measured."""
    print("Loading Headrace (the first time numba compiles its kernels: about a minute).", flush=True)
    from examples.duel.show import show

    return show(minutes)


if __name__ == "__main__":
    main()
