"""The discovery map: which boards Nibbler's questions are about, and how that emerges from permuted bits.

One small picture per moment. Rows are questions, columns are boards; a cell is as strong as the share of the
question's inputs that come from that board, and a dot marks the board whose bit is the question's cumulant.
At the start inputs are spread evenly; when Nibbler has found the structure each row has one strong cell, with
the dot in it. Rows are sorted by the board that they end up with, so that what was found shows as a diagonal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from nibbler.reports.figures import grid_shape
from nibbler.reports.style import FAINT, INK, colour, short_quantity

MOMENTS = 8


@dataclass(frozen=True)
class Discovery:
    """Selections of one run over time, counted by board."""

    steps: NDArray[np.int64]  # [times]
    share: NDArray[np.float64]  # [times, questions, boards]: share of a question's inputs from each board
    cumulant: NDArray[np.int64]  # [times, questions]: the board of its cumulant

    @property
    def num_boards(self) -> int:
        return int(self.share.shape[-1])

    @property
    def num_questions(self) -> int:
        return int(self.share.shape[1])

    def purity(self) -> NDArray[np.float64]:
        """Mean over questions of the largest share, by time; 1 when each looks at one board only."""
        return np.asarray(self.share.max(axis=-1).mean(axis=-1), dtype=np.float64)

    def boards_found(self) -> NDArray[np.int64]:
        """How many boards have a question whose cumulant and most of whose inputs are theirs, by time."""
        dominant = self.share.argmax(axis=-1)
        own = (dominant == self.cumulant) & (self.share.max(axis=-1) > 0.5)
        found = [len(np.unique(dominant[t][own[t]])) for t in range(len(self.steps))]
        return np.array(found, dtype=np.int64)


def count_selections(
    steps: NDArray[np.int64],
    cumulants: NDArray[np.int64],  # [times, questions], observed feature indices
    inputs: NDArray[np.int64],  # [times, questions, g]
    board_of_feature: NDArray[np.int64],
) -> Discovery:
    """Turn selected features into boards."""
    num_boards = int(board_of_feature.max()) + 1
    boards = board_of_feature[inputs]
    share = np.stack([(boards == b).mean(axis=-1) for b in range(num_boards)], axis=-1)
    return Discovery(np.asarray(steps), share, board_of_feature[cumulants])


def moments(steps: NDArray[np.int64], count: int = MOMENTS) -> list[int]:
    """Indices of moments to show: the first, the last, and between them evenly in time."""
    if len(steps) <= count:
        return list(range(len(steps)))
    wanted = np.linspace(steps[0], steps[-1], count)
    return sorted({int(np.abs(steps - t).argmin()) for t in wanted})


def row_order(discovery: Discovery) -> NDArray[np.int64]:
    """Questions by the board that most of their last inputs come from, the strongest first within a board."""
    last = discovery.share[-1]
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
        cells[..., 3] = discovery.share[t][order]
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
    left.plot(discovery.steps, discovery.purity(), color=colour("nibbler"))
    left.axhline(discovery.share[0].max(axis=-1).mean(), color=FAINT, linestyle=":", linewidth=1.0)
    left.set_ylim(0, 1.03)
    left.set_title("Share of inputs from the main board")
    right.plot(discovery.steps, discovery.boards_found(), color=colour("nibbler"), drawstyle="steps-post")
    right.axhline(discovery.num_boards, color=INK, linestyle="--", linewidth=0.9)
    right.set_ylim(0, discovery.num_boards * 1.08)
    right.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=4))
    right.set_title("Boards with a question of their own")
    for axes in (left, right):
        axes.set_xlabel("steps")
        axes.xaxis.set_major_formatter(lambda value, _: short_quantity(value))
