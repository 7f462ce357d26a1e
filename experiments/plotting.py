"""Draws the panels of a result side by side, as PNG and SVG. matplotlib is the extra `headrace[plots]`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

from experiments.result import Line, Panel

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#7f7f7f", "#b8860b")
"""Okabe and Ito's, which colour-blind readers can tell apart."""

MARKERS = "osD^vPX"

STYLES: dict[str, dict[str, Any]] = {
    "points": {"linewidth": 1.6, "markersize": 5.5},
    "flat": {"linewidth": 1.8, "marker": ""},
    "analytic": {"linewidth": 1.3, "linestyle": "--", "marker": ""},
    "steps": {"linewidth": 1.3, "marker": "", "drawstyle": "steps-post"},
    "scatter": {"linewidth": 0, "markersize": 6.5},
    "bars": {},
}
DASHES = ("-", "--", "-.", (0, (1, 1.2)))
SETTINGS: Any = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "svg.fonttype": "none",
    "svg.hashsalt": "headrace",
}


def draw(title: str, panels: Sequence[Panel], into: Path) -> list[Path]:
    """Write `into`.png and `into`.svg; the same panels give the same bytes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with pyplot.rc_context(SETTINGS):
        figure, axes = pyplot.subplots(
            1, len(panels), figsize=(5.6 * len(panels), 4.6), layout="constrained", squeeze=False
        )
        figure.suptitle(title, fontsize=12)
        looks = _looks(panels)
        for axis, panel in zip(axes[0], panels, strict=True):
            _panel(axis, panel, looks)
        into.parent.mkdir(parents=True, exist_ok=True)
        paths = [into.with_suffix(".png"), into.with_suffix(".svg")]
        figure.savefig(paths[0], dpi=130, metadata={"Software": None})
        figure.savefig(paths[1], metadata={"Date": None})
        pyplot.close(figure)
    return paths


def _looks(panels: Sequence[Panel]) -> dict[str, dict[str, Any]]:
    """Colour, marker and dashes by label: what is the same in two panels looks the same."""
    flat = count()
    looks: dict[str, dict[str, Any]] = {}
    for line in (line for panel in panels for line in panel.lines):
        if line.label not in looks:
            n = len(looks)
            looks[line.label] = {"color": COLOURS[n % len(COLOURS)], "marker": MARKERS[n % len(MARKERS)]}
            looks[line.label] |= STYLES[line.style]
            if line.style == "flat":
                looks[line.label]["linestyle"] = DASHES[next(flat) % len(DASHES)]
    return looks


def _panel(axis: Any, panel: Panel, looks: dict[str, dict[str, Any]]) -> None:
    axis.set_title(panel.title)
    axis.set_xlabel(panel.x_label)
    axis.set_ylabel(panel.y_label)
    axis.set_xscale(panel.x_scale)
    axis.set_yscale(panel.y_scale)
    for scale, of in ((panel.x_scale, axis.xaxis), (panel.y_scale, axis.yaxis)):
        if scale == "log":
            _plain_ticks(of)
    bars = sum(line.style == "bars" for line in panel.lines)
    nth_bar = count()
    for line in panel.lines:
        if line.style == "bars":
            _bars(axis, line, next(nth_bar), bars, looks[line.label]["color"])
        else:
            axis.plot(line.x, line.y, label=line.label, **looks[line.label])
    if panel.ticks:
        axis.set_xticks(range(len(panel.ticks)), panel.ticks)
        axis.tick_params(axis="x", length=0)
        axis.grid(False, axis="x")
    if panel.from_zero:
        axis.set_ylim(0, 1.1 * max(max(line.y, default=0) for line in panel.lines) or 1)
    if len(panel.lines) > 1:
        below = -0.17 if panel.x_label else -0.09
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, below), ncols=2)


def _plain_ticks(axis: Any) -> None:
    """100 rather than 10², and names for the ticks between where an axis spans little."""
    from matplotlib.ticker import FuncFormatter, LogFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}"))
    axis.set_minor_formatter(LogFormatter(labelOnlyBase=False, minor_thresholds=(1.6, 0.6)))


def _bars(axis: Any, line: Line, nth: int, of: int, colour: str) -> None:
    width = 0.8 / of
    places = [x + width * (nth - (of - 1) / 2) for x in line.x]
    drawn = axis.bar(places, line.y, width * 0.92, label=line.label, color=colour)
    axis.bar_label(drawn, fmt=_short, padding=2, fontsize=8)
    axis.margins(y=0.15)


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
