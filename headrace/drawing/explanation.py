"""The result of `explain`: a text that can also draw itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Self

from headrace.drawing.diagram import Diagram, mermaid
from headrace.drawing.svg import escape, svg
from headrace.errors import HeadraceError


@dataclass(frozen=True)
class Section:
    """A heading and a text of lines in columns."""

    heading: str
    text: str


PAGE: Final = "font-family: system-ui, sans-serif; color: #1f2933; background: #ffffff; padding: 8px"
PRE: Final = "font-size: 12px; line-height: 1.45; background: #f5f7fa; padding: 8px; overflow-x: auto"


def _text(diagram: Diagram, sections: tuple[Section, ...]) -> str:
    return "\n\n".join(f"{each.heading}\n{each.text}" for each in sections)


def _html(diagram: Diagram, sections: tuple[Section, ...]) -> str:
    folded = "".join(
        f"<details><summary>{escape(each.heading)}</summary>"
        f'<pre style="{PRE}">{escape(each.text)}</pre></details>'
        for each in sections
    )
    return f'<div style="{PAGE}"><div style="overflow-x: auto">{svg(diagram)}</div>{folded}</div>'


FORMATS: Final[dict[str, Callable[[Diagram, tuple[Section, ...]], str]]] = {
    "text": _text,
    "mermaid": lambda diagram, sections: mermaid(diagram),
    "svg": lambda diagram, sections: svg(diagram),
    "html": _html,
}


class Explanation(str):
    """A text in the requested format; in a notebook it is shown as HTML."""

    diagram: Diagram
    sections: tuple[Section, ...]

    def __new__(cls, diagram: Diagram, sections: tuple[Section, ...], format: str = "text") -> Self:
        write = FORMATS.get(format)
        if write is None:
            hint = f"use {', '.join(FORMATS)}"
            raise HeadraceError("HR-F024", f"the format {format!r} does not exist", hint=hint)
        found = super().__new__(cls, write(diagram, sections))
        found.diagram, found.sections = diagram, sections
        return found

    def as_format(self, format: str) -> Explanation:
        """The same in another format."""
        return Explanation(self.diagram, self.sections, format)

    def _repr_html_(self) -> str:
        return str(self.as_format("html"))
