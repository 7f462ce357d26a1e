"""A diagram as SVG, self-contained: no script, style sheet, external font or image."""

from __future__ import annotations

import re
from html import escape as escaped
from typing import Final

from headrace.drawing.diagram import Diagram, Look
from headrace.drawing.layout import HEIGHT, Layout, Placed, Routed, laid_out, shortened

UNWRITABLE: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML cannot represent."""
MARGIN: Final = 16.0
INK: Final = "#1f2933"
FAINT: Final = "#52606d"
ROWS: Final = "#3e4c59"
ETS: Final = "#c2410c"
WAITS: Final = ("#fff4d6", "#b45309")
COLOURS: Final[dict[Look, tuple[str, str]]] = {
    Look.PLAIN: ("#ffffff", "#616e7c"),
    Look.SOURCE: ("#e3effb", "#1d5fa8"),
    Look.TABLE: ("#eef0f3", "#616e7c"),
    Look.SINK: ("#e2f5e9", "#23713f"),
    Look.ORDER: ("#f1e8fb", "#6d3bab"),
    Look.NATIVE: ("#e0f4f4", "#12747c"),
}
"""The fill and border colours of a box."""
ROUND: Final = {Look.SOURCE: 21, Look.SINK: 21}
LEGEND_LINE: Final = 20.0


def svg(diagram: Diagram) -> str:
    """The drawing, with streams at the bottom, answers at the top, and a legend."""
    layout = laid_out(diagram)
    legend = _legend(diagram)
    width = max(layout.width, 230.0 if legend else 0.0) + 2 * MARGIN
    height = layout.height + 2 * MARGIN + (len(legend) * LEGEND_LINE + 12 if legend else 0)
    left = (width - layout.width) / 2
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" font-family="system-ui, sans-serif">',
            f'<rect width="{width:.0f}" height="{height:.0f}" rx="6" fill="#ffffff"/>',
            f'<g transform="translate({left:.1f} {MARGIN:.1f})">',
            *(_arc(each) for each in layout.arcs),
            *(_box(each) for each in layout.boxes),
            "</g>",
            *_legend_lines(legend, layout),
            "</svg>",
        ]
    )


def escape(text: str) -> str:
    """The text escaped for XML."""
    return escaped(UNWRITABLE.sub("\ufffd", text))


def _arc(routed: Routed) -> str:
    """An arc with its arrow head and tooltip."""
    path = _path(routed)
    (x, y) = routed.points[-1]
    colour, dashes = (ETS, ' stroke-dasharray="6 4"') if routed.arc.ets else (ROWS, "")
    note = routed.arc.note or ("heartbeats" if routed.arc.ets else "rows")
    return (
        f'<g><title>{escape(note)}</title><path d="{path}" fill="none" stroke="{colour}" '
        f'stroke-width="1.5"{dashes}/>{_head(x, y, colour)}</g>'
    )


def _path(routed: Routed) -> str:
    """The path upwards: curves between rows, straight lines past them."""
    (x, y), *_ = routed.points
    found = [f"M{x:.1f} {y:.1f}"]
    pairs = list(zip(routed.points[::2], routed.points[1::2], strict=True))
    for i, ((x, y), (to_x, to_y)) in enumerate(pairs):
        last = i == len(pairs) - 1
        end = to_y + (7 if last else 0)
        middle = (y + end) / 2
        if i:
            found.append(f"L{x:.1f} {y:.1f}")
        found.append(f"C{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {end:.1f}")
    return " ".join(found)


def _head(x: float, y: float, colour: str) -> str:
    """The head of an arrow."""
    return f'<path d="M{x:.1f} {y:.1f} l-4.5 8 h9 z" fill="{colour}"/>'


def _box(placed: Placed) -> str:
    """A box with its lines, tooltip and mark."""
    box, x, y, width = placed.box, placed.x, placed.y, placed.width
    fill, border = WAITS if box.waits and box.look is Look.PLAIN else COLOURS[box.look]
    middle = x + width / 2
    title = y + (18 if box.detail else 26)
    note = box.note or " ".join(each for each in (box.title, box.detail) if each)
    lines = [
        f"<g><title>{escape(note)}</title>",
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{HEIGHT:.0f}" '
        f'rx="{ROUND.get(box.look, 5)}" fill="{fill}" stroke="{border}" stroke-width="1.3"/>',
        f'<text x="{middle:.1f}" y="{title:.1f}" text-anchor="middle" font-size="13" font-weight="600" '
        f'fill="{INK}">{escape(box.title)}</text>',
    ]
    if box.detail:
        lines.append(
            f'<text x="{middle:.1f}" y="{y + 33:.1f}" text-anchor="middle" font-size="11" '
            f'font-family="ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace" fill="{FAINT}">'
            f"{escape(shortened(box.detail))}</text>"
        )
    if box.waits:
        lines.append(_hourglass(x + width - 15, y + 6))
    return "".join([*lines, "</g>"])


def _hourglass(x: float, y: float) -> str:
    """The mark of a box that may wait."""
    return (
        f'<path d="M{x:.1f} {y:.1f} h9 l-9 12 h9 z" fill="{WAITS[1]}" stroke="{WAITS[1]}" '
        f'stroke-linejoin="round"/>'
    )


def _legend(diagram: Diagram) -> list[tuple[str, str]]:
    """(symbol, meaning) for each kind of thing that the diagram contains."""
    found = []
    if any(box.waits for box in diagram.boxes):
        found.append((_hourglass(25, -10), "may wait for an idle input"))
    for look in (Look.ORDER, Look.NATIVE):
        if any(box.look is look for box in diagram.boxes):
            fill, border = COLOURS[look]
            swatch = f'<rect x="20" y="-10" width="19" height="12" rx="3" fill="{fill}" stroke="{border}"/>'
            found.append((swatch, look.value))
    if any(arc.ets for arc in diagram.arcs):
        for colour, dashes, meaning in (
            (ROWS, "", "rows"),
            (ETS, ' stroke-dasharray="6 4"', "heartbeats, skipping the operators in between"),
        ):
            line = f'<path d="M14 -4 h30" stroke="{colour}" stroke-width="1.5"{dashes}/>'
            found.append((line, meaning))
    return found


def _legend_lines(legend: list[tuple[str, str]], layout: Layout) -> list[str]:
    top = layout.height + 2 * MARGIN + 8
    return [
        f'<g transform="translate(0 {top + i * LEGEND_LINE:.1f})">{drawn}<text x="54" y="0" font-size="11" '
        f'fill="{FAINT}">{escape(meaning)}</text></g>'
        for i, (drawn, meaning) in enumerate(legend)
    ]
