"""Where each cell of a row stands: as near to its neighbours as those beside it allow.

For a given order, the places nearest to the wished-for ones are found exactly by pooling neighbours that are
in each other's way (weighted isotonic regression); rows take turns until they are settled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from math import inf
from typing import Final

from headrace.drawing.ranks import Cell, Ranked, Step

GAP: Final = 26.0
ROUNDS: Final = 100
Pull = Callable[[Step], float]
"""How strongly the two ends of a piece want to stand above each other."""


def centres(ranked: Ranked, width: Mapping[Cell, float], pull: Pull) -> dict[Cell, float]:
    """The middle of each cell; the leftmost edge is at 0."""
    found: dict[Cell, float] = {}
    for row in ranked.rows:
        found.update(zip(row, spread([0.0] * len(row), _apart(row, width)), strict=True))
    near = _neighbours(ranked, pull)
    for turn in range(ROUNDS):
        for row in ranked.rows if turn % 2 == 0 else reversed(ranked.rows):
            wished = [_wish(near.get(cell, []), found, found[cell]) for cell in row]
            weights = [sum(weight for _, weight in near.get(cell, [])) or 1.0 for cell in row]
            found.update(zip(row, spread(wished, _apart(row, width), weights), strict=True))
    _straighten(ranked, width, found)
    left = min((found[cell] - width[cell] / 2 for cell in found), default=0.0)
    return {cell: centre - left for cell, centre in found.items()}


def _straighten(ranked: Ranked, width: Mapping[Cell, float], found: dict[Cell, float]) -> None:
    """Long arcs go straight up where those beside them leave room for it in every row."""
    room: dict[int, list[tuple[Cell, float, float]]] = {}
    for row in ranked.rows:
        edges = [-inf, *(found[cell] + width[cell] / 2 for cell in row)]
        starts = [*(found[cell] - width[cell] / 2 for cell in row), inf]
        for i, cell in enumerate(row):
            if isinstance(cell, tuple):
                keep = (GAP + width[cell]) / 2
                room.setdefault(cell[0], []).append((cell, edges[i] + keep, starts[i + 1] - keep))
    for cells in room.values():
        least, most = max(low for _, low, _ in cells), min(high for _, _, high in cells)
        mean = sum(found[cell] for cell, _, _ in cells) / len(cells)
        if least <= most:
            found.update({cell: min(max(mean, least), most) for cell, _, _ in cells})


def _neighbours(ranked: Ranked, pull: Pull) -> dict[Cell, list[tuple[Cell, float]]]:
    near: dict[Cell, list[tuple[Cell, float]]] = {}
    for step in ranked.steps:
        near.setdefault(step.lower, []).append((step.upper, pull(step)))
        near.setdefault(step.upper, []).append((step.lower, pull(step)))
    return near


def _wish(pulls: list[tuple[Cell, float]], found: Mapping[Cell, float], otherwise: float) -> float:
    total = sum(weight for _, weight in pulls)
    return sum(found[other] * weight for other, weight in pulls) / total if total else otherwise


def _apart(row: Sequence[Cell], width: Mapping[Cell, float]) -> list[float]:
    """The least distance from each cell to the next."""
    return [(width[a] + width[b]) / 2 + GAP for a, b in pairwise(row)]


def spread(
    wished: Sequence[float], apart: Sequence[float], weights: Sequence[float] | None = None
) -> list[float]:
    """The places nearest to the wished-for ones, in the weighted sum of squares, in order and apart."""
    offsets = list(accumulate(apart, initial=0.0))
    pools: list[tuple[float, float, int]] = []
    for wish, offset, weight in zip(wished, offsets, weights or [1.0] * len(wished), strict=False):
        pools.append((wish - offset, weight, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (a, w, n), (b, v, m) = pools[-2:]
            pools[-2:] = [((a * w + b * v) / (w + v), w + v, n + m)]
    flat = [value for value, _, count in pools for _ in range(count)]
    return [value + offset for value, offset in zip(flat, offsets, strict=False)]
