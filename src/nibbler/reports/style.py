"""One look for every figure: an agent's colour, its marker, and how figures are saved.

Colours come from the Okabe-Ito set (told apart with any colour vision), shifted where one of them would
vanish on white or on a dark page; markers repeat the distinction for print without colour. Figures are drawn
with plain ink on a white sheet; for the report page `page_svg` turns ink and sheet into the page's own
colours, so that one figure reads in light and in dark.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from nibbler.studies.metrics import format_quantity

# Sentinels: colours that nothing else uses, so that they can be found again in the SVG text.
INK = "#1b1d21"
FAINT = "#8b9097"
SHEET = "#fefefe"
CSS_OF_SENTINEL = {INK: "var(--ink, #1b1d21)", FAINT: "var(--faint, #8b9097)", SHEET: "var(--sheet, #fefefe)"}

AGENT_COLOURS = {
    "nibbler": "#1380cb",
    "nibbler+": "#35b0e0",
    "q-learning": "#d55e00",
    "qv-learning": "#0f9d76",
    "rainbow": "#c264a0",
    "linear": "#b28a00",
    "known-structure": "#7d6bd0",
    "random": FAINT,
    "planner": INK,
}
AGENT_MARKERS = {
    "nibbler": "o",
    "nibbler+": "D",
    "q-learning": "s",
    "qv-learning": "^",
    "rainbow": "P",
    "linear": "*",
    "known-structure": "X",
}
OTHER_COLOURS = (
    "#8c564b",
    "#5f7a00",
    "#a23b72",
    "#3d6b99",
)  # agents that are not ours, in order of their name
_SHADES = LinearSegmentedColormap.from_list("shades", ["#4b3a9e", "#9a4fb5", "#d0497f", "#e8743b", "#d9a400"])


def colour(agent: str) -> str:
    """The colour of an agent, the same in every figure."""
    if agent in AGENT_COLOURS:
        return AGENT_COLOURS[agent]
    return OTHER_COLOURS[sum(agent.encode()) % len(OTHER_COLOURS)]


def marker(agent: str) -> str:
    """The marker of an agent, the same in every figure."""
    return AGENT_MARKERS.get(agent, "h")


def shades(count: int) -> list[Any]:
    """Ordered colours for the values of something that a study varies, readable on both pages."""
    return [_SHADES(k / max(1, count - 1)) for k in range(count)]


@contextmanager
def drawing(columns: float, rows: float, panel: tuple[float, float] = (3.1, 2.5)) -> Iterator[Figure]:
    """A figure in our style, closed again when done."""
    settings: dict[Any, Any] = {
        "font.size": 9,
        "axes.titlesize": 9.5,
        "axes.titleweight": "bold",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": INK,
        "axes.labelcolor": INK,
        "axes.titlecolor": INK,
        "text.color": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "axes.grid": True,
        "grid.color": FAINT,
        "grid.alpha": 0.22,
        "grid.linewidth": 0.6,
        "axes.facecolor": "none",
        "figure.facecolor": "none",
        "legend.frameon": False,
        "legend.fontsize": 8.5,
        "lines.linewidth": 1.5,
        "lines.markersize": 5,
        "svg.fonttype": "path",
        "text.parse_math": False,  # a label may come from somebody's spec, and $ is no formula there
    }
    with plt.rc_context(settings):
        figure = plt.figure(figsize=(panel[0] * columns, panel[1] * rows), layout="constrained")
        try:
            yield figure
        finally:
            plt.close(figure)


def steps_axis(axis: Any) -> None:
    """Ticks as 500k, 2M."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: short_quantity(value)))


def log_steps_axis(axes: Axes) -> None:
    """A log scale of quantities with ticks at 1, 2 and 5 (every decade alone where there are many)."""
    low, high = axes.get_ylim()
    decades = math.log10(high / low)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if decades < 2.6 else (1.0,)))
    axes.yaxis.set_minor_locator(NullLocator())
    steps_axis(axes.yaxis)


def short_quantity(value: float) -> str:
    """A tick label: 2000000 -> 2M, 1500000 -> 1.5M."""
    text = format_quantity(value)
    number = text.rstrip("kMGT")
    suffix = text[len(number) :]
    return (number.rstrip("0").rstrip(".") if "." in number else number) + suffix


def boards_axis(axes: Axes, boards: list[int]) -> None:
    """Numbers of boards on a doubling scale, each size that was run as a tick."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(boards, [str(n) for n in boards])
    axes.minorticks_off()
    axes.set_xlabel("boards")


def svg_text(figure: Figure, name: str) -> str:
    """The figure as SVG; the same data gives the same text."""
    buffer = io.StringIO()
    with plt.rc_context({"svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", facecolor=SHEET, metadata={"Date": None, "Creator": "nibbler"})
    figure.set_layout_engine("none")  # the layout is done: it takes longer than drawing
    return buffer.getvalue()


def save(figure: Figure, folder: Path, name: str) -> tuple[Path, Path, str]:
    """Write the figure as SVG and PNG on a white sheet; returns the files and the SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    svg, png = folder / f"{name}.svg", folder / f"{name}.png"
    text = svg_text(figure, name)
    svg.write_text(text, encoding="utf-8")
    figure.savefig(png, dpi=160, facecolor="white", metadata={"Software": "nibbler"})
    return svg, png, text


def page_svg(text: str, name: str, title: str) -> str:
    """Fit a saved SVG for a page that holds several: own ids, page colours, no fixed size, no comments.

    Comments go because Matplotlib repeats every label in one, and labels may come from a stranger's folder.
    """
    text = text[text.index("<svg") :]
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    prefix = re.sub(r"[^A-Za-z0-9]+", "-", name)
    text = re.sub(r'\bid="', f'id="{prefix}-', text)
    text = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{prefix}-", text)
    for sentinel, css in CSS_OF_SENTINEL.items():
        text = text.replace(sentinel, css)
    head, rest = text.split(">", 1)
    width = re.search(r'\swidth="([0-9.]+)pt"', head)
    largest = f' style="max-width: {float(width[1]) * 1.5:.0f}px"' if width else ""  # one text size on a page
    head = re.sub(r'\s(width|height)="[^"]*"', "", head) + largest
    label = title.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    return f'{head} role="img" aria-label="{label}">{rest}'
