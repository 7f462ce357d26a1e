"""Kernels stay within their arrays. Compiled they do not look; as Python they do."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pytest

from headrace.aggregates.limbs import Limbs
from headrace.kernels.exact_sums import add_reals, add_squares

EDGES = (0.0, -0.0, 5e-324, -5e-324, 1.0, -1.0, sys.float_info.max, -sys.float_info.max)


@pytest.mark.parametrize("value", [*EDGES, math.inf, -math.inf, math.nan], ids=repr)
@pytest.mark.parametrize(("power", "add"), [(1, add_reals), (2, add_squares)], ids=["sum", "squares"])
def test_no_number_has_digits_beyond_the_places(power: int, add: Any, value: float) -> None:
    """−∞ is counted in the last place, and its other digits were looked up behind it: a crash."""
    limbs, values, slots = Limbs(power), np.array([value]), np.zeros(1, np.int64)
    for _ in range(2):
        sums = np.zeros((1, len(limbs)), np.int64)
        done = add.py_func(slots, values, values.view(np.int64), 0, limbs.column, sums)
        limbs.have(np.arange(len(limbs.column)))
    assert done == 1
