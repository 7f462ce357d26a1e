"""Boxes with their places, arcs as lists of points: what an SVG needs to know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headrace.drawing.diagram import Arc, Box, Diagram
from headrace.drawing.places import centres
from headrace.drawing.ranks import Cell, Ranked, Step, ranked

HEIGHT: Final = 42.0
RISE: Final = 40.0
"""Between two rows."""
TITLE: Final = 8.4
DETAIL: Final = 6.7
"""The widths of a character of each line, on the safe side."""
LONGEST: Final = 36
PASSAGE: Final = 8.0
"""The width that a passing arc takes up."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Placed:
    """A box and its upper left corner."""

    box: Box
    x: float
    y: float
    width: float


@dataclass(frozen=True)
class Routed:
    """An arc and the points it goes through, two for each row it leaves and enters."""

    arc: Arc
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Layout:
    """A diagram with places, in a frame of this size."""

    boxes: tuple[Placed, ...]
    arcs: tuple[Routed, ...]
    width: float
    height: float


def shortened(text: str, most: int = LONGEST) -> str:
    """The text, cut where it would be too long for a box."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def width_of(box: Box) -> float:
    """How wide a box must be for its lines, with room for its mark."""
    mark = 30 if box.waits else 0
    return max(len(box.title) * TITLE + mark, len(shortened(box.detail)) * DETAIL, 60.0) + 22


def laid_out(diagram: Diagram) -> Layout:
    """The layout: streams at the bottom, answers at the top."""
    rank = ranked(diagram)
    widths: dict[Cell, float] = {cell: PASSAGE for row in rank.rows for cell in row}
    widths.update({box.id: width_of(box) for box in diagram.boxes})
    centre = centres(rank, widths, lambda step: _pull(step, diagram))
    top = {
        cell: (len(rank.rows) - 1 - r) * (HEIGHT + RISE) for r, row in enumerate(rank.rows) for cell in row
    }
    boxes = tuple(Placed(b, centre[b.id] - widths[b.id] / 2, top[b.id], widths[b.id]) for b in diagram.boxes)
    arcs = _routed(diagram, rank, _Ports(rank, centre, widths), top)
    right = max((centre[cell] + widths[cell] / 2 for cell in centre), default=0.0)
    return Layout(boxes, arcs, right, len(rank.rows) * (HEIGHT + RISE) - RISE)


def _pull(step: Step, diagram: Diagram) -> float:
    """Long arcs are to be straight, rows straighter than time-stamps; bends at boxes matter least."""
    ends = (step.lower, step.upper)
    kind = 1.0 if diagram.arcs[step.arc].ets else 4.0
    return kind * (8.0 if all(isinstance(each, tuple) for each in ends) else 1.0 if kind > 1 else 0.15)


class _Ports:
    """Where arcs leave and enter a box: side by side, in the order of where they come from and go to."""

    def __init__(self, rank: Ranked, centre: dict[Cell, float], width: dict[Cell, float]) -> None:
        self._centre = centre
        self._at: dict[tuple[Cell, bool, Step], float] = {}
        sides: dict[tuple[Cell, bool], list[Step]] = {}
        for step in rank.steps:
            sides.setdefault((step.lower, True), []).append(step)
            sides.setdefault((step.upper, False), []).append(step)
        for (cell, leaving), steps in sides.items():
            other = [(centre[step.upper if leaving else step.lower], step.arc, step) for step in steps]
            room = min(width[cell] - 16, 30.0 * (len(steps) - 1))
            for i, (_, _, step) in enumerate(sorted(other, key=lambda each: each[:2])):
                shift = 0.0 if len(steps) == 1 else room * (i / (len(steps) - 1) - 0.5)
                self._at[cell, leaving, step] = centre[cell] + (shift if isinstance(cell, str) else 0.0)

    def x(self, cell: Cell, leaving: bool, step: Step) -> float:
        return self._at[cell, leaving, step]


def _routed(diagram: Diagram, rank: Ranked, ports: _Ports, top: dict[Cell, float]) -> tuple[Routed, ...]:
    points: list[list[Point]] = [[] for _ in diagram.arcs]
    for step in rank.steps:
        start = (ports.x(step.lower, True, step), top[step.lower])
        end = (ports.x(step.upper, False, step), top[step.upper] + HEIGHT)
        points[step.arc] += [start, end]
    return tuple(Routed(arc, tuple(found)) for arc, found in zip(diagram.arcs, points, strict=True))
