"""Prices: round(100 × 10^(6u)), u uniform in [0, 1)."""

from __future__ import annotations

from typing import Final

import numpy as np

from headrace.connectors.nexmark.draws import Bits, Numbers

STEPS: Final = 2**12
COARSE: Final = np.array([100 * 10 ** (6 * step / STEPS) for step in range(STEPS)])
FINE: Final = np.array([10 ** (6 * step / STEPS**2) for step in range(STEPS)])
"""10^(6u) for u of 24 bits is a product of two of these, the same on every machine."""


def prices(bits: Bits) -> Numbers:
    """A price in cents from the upper 24 of 64 bits."""
    coarse = COARSE[(bits >> np.uint64(52)).view(np.int64)]
    coarse *= FINE[(bits >> np.uint64(40) & np.uint64(STEPS - 1)).view(np.int64)]
    coarse += 0.5
    return coarse.astype(np.int64)
