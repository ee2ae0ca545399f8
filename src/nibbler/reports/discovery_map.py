"""The discovery map: which boards Nibbler's questions are about, and how that emerges from permuted bits.

One small picture per moment. Rows are questions, columns are boards; a cell is as strong as the share of that
board's bits that are inputs of the question, and a dot marks the board whose bit is the question's cumulant.
At the start inputs are spread evenly; a question that has found its board has one strong cell with the dot in
it. Rows are sorted by the board that they end up with, so that what was found shows as a diagonal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from nibbler.reports.discovery import Discovery
from nibbler.reports.figures import grid_shape
from nibbler.reports.style import FAINT, INK, colour, short_quantity

MOMENTS = 8


def moments(steps: NDArray[np.int64], count: int = MOMENTS) -> list[int]:
    """Indices of moments to show: the first, the last, and between them evenly in time."""
    if len(steps) <= count:
        return list(range(len(steps)))
    wanted = np.linspace(steps[0], steps[-1], count)
    return sorted({int(np.abs(steps - t).argmin()) for t in wanted})


def row_order(discovery: Discovery) -> NDArray[np.int64]:
    """Questions by the board that they see most of in the end, the strongest first within a board."""
    last = discovery.seen[-1]
    return np.lexsort((-last.max(axis=-1), last.argmax(axis=-1)))


def map_shape(discovery: Discovery, widest: int) -> tuple[int, int]:
    """Rows and columns of the small pictures."""
    across = (
        (8 if discovery.num_boards <= 8 else 4) if widest > 1 else (4 if discovery.num_boards <= 8 else 2)
    )
    return grid_shape(len(moments(discovery.steps)), across)


def discovery_panels(figure: Figure, discovery: Discovery, widest: int = 2) -> None:
    """The small multiples, and under them how sharp the picture is over time."""
    shown = moments(discovery.steps)
    order = row_order(discovery)
    rows, columns = map_shape(discovery, widest)
    below = 1.0 if widest > 1 else 2.1
    parts = figure.subfigures(2, 1, height_ratios=[max(1.15 * rows, 1.6), below], squeeze=False)
    top, bottom = parts[0, 0], parts[1, 0]
    panels = top.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    blue = to_rgb(colour("nibbler"))
    for position, axes in enumerate(panels.flat):
        if position >= len(shown):
            axes.set_axis_off()
            continue
        t = shown[position]
        cells = np.empty((discovery.num_questions, discovery.num_boards, 4))
        cells[..., :3] = blue
        cells[..., 3] = discovery.seen[t][order]
        axes.imshow(cells, aspect="auto", interpolation="nearest", origin="upper")
        size = max(1.0, min(4.5, 150.0 / max(discovery.num_questions, discovery.num_boards) / 2.5))
        axes.plot(
            discovery.cumulant[t][order],
            np.arange(discovery.num_questions),
            linestyle="none",
            marker="o",
            markersize=size,
            color=INK,
        )
        axes.set_title(f"{short_quantity(float(discovery.steps[t]))} steps", fontsize=8.5)
        axes.grid(False)
        axes.set_xticks(*_board_ticks(discovery.num_boards))
        axes.set_yticks([])
        for spine in axes.spines.values():
            spine.set_visible(True)
            spine.set_color(FAINT)
    for row in panels:
        row[0].set_ylabel("questions")
    for axes in panels[-1]:
        axes.set_xlabel("board")
    _sharpness_panel(bottom, discovery, widest)


def _board_ticks(num_boards: int) -> tuple[Sequence[int], Sequence[str]]:
    stride = max(1, num_boards // 4)
    ticks = list(range(0, num_boards, stride))
    return ticks, [str(b + 1) for b in ticks]


def _sharpness_panel(figure: Any, discovery: Discovery, widest: int) -> None:
    left, right = figure.subplots(1, 2) if widest > 1 else figure.subplots(2, 1)
    scores = discovery.own_board()
    middle = scores.mean(axis=-1)
    left.fill_between(
        discovery.steps,
        scores.min(axis=-1),
        scores.max(axis=-1),
        color=colour("nibbler"),
        alpha=0.22,
        linewidth=0,
    )
    left.plot(discovery.steps, middle, color=colour("nibbler"))
    left.axhline(0.0, color=FAINT, linestyle=":", linewidth=1.0)
    left.axhline(1.0, color=INK, linestyle="--", linewidth=0.9)
    left.set_ylim(min(-0.1, float(scores.min()) - 0.05), 1.08)
    left.set_title("Questions see their own board")
    right.plot(discovery.steps, discovery.boards_found(), color=colour("nibbler"), drawstyle="steps-post")
    right.axhline(discovery.num_boards, color=INK, linestyle="--", linewidth=0.9)
    right.set_ylim(0, discovery.num_boards * 1.08)
    right.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=4))
    right.set_title("Boards found by a question")
    for axes in (left, right):
        axes.set_xlabel("steps")
        axes.xaxis.set_major_formatter(lambda value, _: short_quantity(value))
