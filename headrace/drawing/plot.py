"""Curves over one axis of steps, as SVG: panels side by side, each with its own scale from zero."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headrace.drawing.svg import escape

COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
"""Okabe and Ito's, which colour-blind readers can tell apart."""
WIDTH, HEIGHT = 420.0, 300.0
LEFT, RIGHT, TOP, BOTTOM = 62.0, 16.0, 34.0, 76.0
INK, GRID = "#24313f", "#d5dbe1"
LINES: Final = 4
"""Grid lines above zero."""


@dataclass(frozen=True)
class Curve:
    """A value at each step; None where there is none."""

    label: str
    values: Sequence[float | None]


@dataclass(frozen=True)
class Chart:
    """A titled panel; `unit` is written behind the numbers of its axis."""

    title: str
    curves: Sequence[Curve]
    unit: str = ""


def plot(title: str, steps: Sequence[str], charts: Sequence[Chart]) -> str:
    """The charts as one SVG; `steps` are the names along the horizontal axis."""
    width = WIDTH * len(charts)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{HEIGHT + 24:.0f}" '
            f'viewBox="0 0 {width:.0f} {HEIGHT + 24:.0f}" role="img" font-family="system-ui, sans-serif" '
            f'font-size="11" fill="{INK}">',
            f'<rect width="{width:.0f}" height="{HEIGHT + 24:.0f}" rx="6" fill="#ffffff"/>',
            _text(width / 2, 18, title, "middle", 'font-size="13" font-weight="600"'),
            *(
                f'<g transform="translate({i * WIDTH:.0f} 24)">{_chart(chart, steps)}</g>'
                for i, chart in enumerate(charts)
            ),
            "</svg>",
        ]
    )


def _chart(chart: Chart, steps: Sequence[str]) -> str:
    known = [value for curve in chart.curves for value in curve.values if value is not None]
    top = max(known, default=0.0) or 1.0
    lines = [_text(LEFT, 18, chart.title, "start", 'font-weight="600"')]
    for i in range(LINES + 1):
        y = _y(top * i / LINES, top)
        lines.append(f'<path d="M{LEFT:.1f} {y:.1f} H{WIDTH - RIGHT:.1f}" stroke="{GRID}"/>')
        lines.append(_text(LEFT - 6, y + 4, f"{top * i / LINES:.3g}{chart.unit}", "end"))
    for i, step in enumerate(steps):
        x, y = _x(i, len(steps)), HEIGHT - BOTTOM + 14
        lines.append(_text(x, y, step, "end", f'transform="rotate(-40 {x:.1f} {y:.1f})"'))
    for n, curve in enumerate(chart.curves):
        colour = COLOURS[n % len(COLOURS)]
        lines.append(_curve(curve, top, colour))
        lines.append(_text(LEFT + 110 * n, HEIGHT - 8, f"● {curve.label}", "start", f'fill="{colour}"'))
    return "".join(lines)


def _curve(curve: Curve, top: float, colour: str) -> str:
    """The points and the line between those that follow each other."""
    many = len(curve.values)
    points = [(_x(i, many), _y(v, top)) for i, v in enumerate(curve.values) if v is not None]
    path = " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points)
    line = f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>' if points else ""
    return f"<g><title>{escape(curve.label)}</title>{line}{dots}</g>"


def _x(step: int, steps: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * (step + 0.5) / max(steps, 1)


def _y(value: float, top: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value / top


def _text(x: float, y: float, text: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{escape(text)}</text>'
