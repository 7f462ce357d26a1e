"""Commands in a world in which everything fails: none is lost, none is applied twice."""

from __future__ import annotations

import pytest

from tests.simulation.controlled import controlled
from tests.simulation.world import simulate

SEEDS, GROUP = 80, 10


@pytest.mark.parametrize("first", range(0, SEEDS, GROUP))
def test_whatever_happens_no_command_is_lost_or_applied_twice(first: int) -> None:
    for seed in range(first, first + GROUP):
        simulate(seed, controlled)
