"""A diagram as Mermaid text, for pages that draw it themselves."""

from __future__ import annotations

from typing import Final

from headrace.drawing.diagram import Box, Diagram, Look

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
    """A flowchart from the streams up; ETS arcs are dotted."""
    ids = {box.id: f"n{i}" for i, box in enumerate(diagram.boxes)}
    boxes = [f"    {ids[box.id]}{_shape(box)}" for box in diagram.boxes]
    arcs = [
        f"    {ids[arc.origin]} {'-. ETS .->' if arc.ets else '-->'} {ids[arc.target]}"
        for arc in diagram.arcs
    ]
    return "\n".join(["flowchart BT", *boxes, *arcs, *_classes(diagram, ids)])


def _shape(box: Box) -> str:
    before, after = SHAPES.get(box.look, ("[", "]"))
    lines = [escaped(each) for each in (box.title, box.detail) if each]
    return f'{before}"{"<br/>".join(lines) or " "}"{after}'


def _classes(diagram: Diagram, ids: dict[str, str]) -> list[str]:
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
    """Mermaid writes special characters as `#name;`."""
    return "".join(ENTITIES.get(each, each) for each in text)
