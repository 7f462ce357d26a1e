"""The contents of a diagram: boxes, the arcs between them, and the meaning of their looks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Look(Enum):
    """How a box looks, and its text in the legend; an empty text is not listed."""

    PLAIN = ""
    SOURCE = "stream"
    TABLE = "table"
    SINK = "answer"
    ORDER = "sorts rows by time"
    NATIVE = "runs natively on Spark, row by row"


@dataclass(frozen=True)
class Box:
    """A box with a name and one line below it. `waits`: it may wait for an input; `note` is a tooltip."""

    id: str
    title: str
    detail: str = ""
    look: Look = Look.PLAIN
    waits: bool = False
    note: str = ""


@dataclass(frozen=True)
class Arc:
    """From one box to another; `ets`: it carries on-demand heartbeats instead of rows."""

    origin: str
    target: str
    ets: bool = False
    note: str = ""


@dataclass(frozen=True)
class Diagram:
    """Boxes and arcs without a cycle. Boxes that come first are drawn further left."""

    boxes: tuple[Box, ...]
    arcs: tuple[Arc, ...]


# Mermaid


SHAPES: Final[dict[Look, tuple[str, str]]] = {
    Look.SOURCE: ("([", "])"),
    Look.SINK: ("([", "])"),
    Look.TABLE: ("[(", ")]"),
}
CLASSES: Final = {
    "waits": "fill:#fff4d6,stroke:#b45309",
    "order": "fill:#f1e8fb,stroke:#6d3bab",
    "native": "fill:#e0f4f4,stroke:#12747c",
}
ENTITIES: Final = {"&": "#amp;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "#": "#35;", "\n": " "}


def mermaid(diagram: Diagram) -> str:
    """A flowchart from the streams up; arcs for heartbeats are dotted."""
    ids = {box.id: f"n{i}" for i, box in enumerate(diagram.boxes)}
    boxes = [f"    {ids[box.id]}{_shape(box)}" for box in diagram.boxes]
    arcs = [
        f"    {ids[arc.origin]} {'-. heartbeats .->' if arc.ets else '-->'} {ids[arc.target]}"
        for arc in diagram.arcs
    ]
    return "\n".join(["flowchart BT", *boxes, *arcs, *_classes(diagram, ids)])


def _shape(box: Box) -> str:
    before, after = SHAPES.get(box.look, ("[", "]"))
    lines = [escaped(each) for each in (box.title, box.detail) if each]
    return f'{before}"{"<br/>".join(lines) or " "}"{after}'


def _classes(diagram: Diagram, ids: dict[str, str]) -> list[str]:
    """The styles that the diagram uses, and the boxes of each."""
    named = {
        "waits": [ids[box.id] for box in diagram.boxes if box.waits and box.look is Look.PLAIN],
        "order": [ids[box.id] for box in diagram.boxes if box.look is Look.ORDER],
        "native": [ids[box.id] for box in diagram.boxes if box.look is Look.NATIVE],
    }
    used = {name: members for name, members in named.items() if members}
    return [f"    classDef {name} {CLASSES[name]}" for name in used] + [
        f"    class {','.join(members)} {name}" for name, members in used.items()
    ]


def escaped(text: str) -> str:
    """The text with special characters as Mermaid writes them: `#name;`."""
    return "".join(ENTITIES.get(each, each) for each in text)
