"""Graphs of boxes and arcs as SVG, Mermaid and HTML. It does not know what the boxes mean."""

from __future__ import annotations

from headrace.drawing.diagram import Arc, Box, Diagram, Look
from headrace.drawing.explanation import Explanation, Section

__all__ = ["Arc", "Box", "Diagram", "Explanation", "Look", "Section"]
