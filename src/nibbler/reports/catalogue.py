"""Every figure by name: how it is drawn, what its caption says, and when there is something to draw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from nibbler.reports.choice_figure import choice_panels
from nibbler.reports.discovery import Discovery
from nibbler.reports.discovery_map import discovery_panels, map_shape
from nibbler.reports.figures import compute_panels, curve_panels, grid_shape, scaling_panels
from nibbler.reports.style import drawing, page_svg, save, svg_text
from nibbler.reports.sweep_figures import (
    fixed_agent_panels,
    heterogeneous_panels,
    hidden_unit_panels,
    q_sweep_panels,
    sweep_panels,
    threshold_panels,
)
from nibbler.reports.way_figure import way_panels
from nibbler.studies.results import StudyResults

Draw = Callable[[Figure, StudyResults, int], None]
PHONE_PANEL = (3.5, 2.7)
PHONE_LEGEND = 0.9  # inches under the panels of a narrow figure


@dataclass(frozen=True)
class FigureKind:
    """One kind of figure."""

    title: str
    caption: str
    draw: Draw
    panels: Callable[[StudyResults], int]
    panel: tuple[float, float] = (4.0, 3.4)
    widest: int = 3
    needs: Callable[[StudyResults], bool] = lambda results: True


@dataclass(frozen=True)
class Picture:
    """A finished figure: files beside the report, and two SVGs to put into it."""

    name: str
    title: str
    caption: str
    svg_file: Path
    png_file: Path
    wide: str
    narrow: str


def _several_sizes(results: StudyResults) -> bool:
    return len(results.boards) > 1


def _varies(name: str) -> Callable[[StudyResults], bool]:
    return lambda results: len(results.values(name)) > 1


def _sweep(name: str, mark: Callable[[StudyResults], tuple[float, str]] | None = None) -> Draw:
    def draw(figure: Figure, results: StudyResults, widest: int) -> None:
        sweep_panels(figure, results, widest, name, mark(results) if mark else None)

    return draw


_BAND = "Bands are 95% bootstrap intervals over seeds."
_OPEN = "An open marker with an arrow was not reached: the truth is above it."

FIGURES: dict[str, FigureKind] = {
    "curves": FigureKind(
        "Reward by steps",
        f"Mean reward per step while learning, one panel per problem size. {_BAND}",
        curve_panels,
        lambda results: len(results.boards),
        panel=(3.3, 2.6),
        widest=4,
    ),
    "scaling": FigureKind(
        "Steps to threshold and doubling ratio",
        "Left: the first step from which the seed-averaged reward stays at or above the threshold; dashed "
        f"lines are power-law fits. Right: the ratio when boards double; 2 is linear growth. {_OPEN}",
        scaling_panels,
        lambda results: 2,
        widest=2,
        needs=_several_sizes,
    ),
    "compute": FigureKind(
        "Compute",
        f"Weights touched per step, and what reaching the threshold takes in weights and in time. {_OPEN}",
        compute_panels,
        lambda results: 3,
        panel=(3.3, 3.0),
        needs=_several_sizes,
    ),
    "way": FigureKind(
        "Growth along the way",
        "Nibbler alone. Left: its reward between the random policy (0%) and the planner (100%). Right: how "
        "many times the steps a doubling costs until the reward, averaged over a hundredth of the run, stays "
        f"above each share of that way; 2 is linear growth. {_BAND}",
        way_panels,
        lambda results: 2,
        widest=2,
        needs=lambda results: len(results.only(agent="nibbler").boards) > 1,
    ),
    "q-sweep": FigureKind(
        "Q-learning over its settings",
        "Final reward (mean of the last tenth) by step size; shade is the hidden size, marker the momentum.",
        q_sweep_panels,
        lambda results: len(results.boards),
        panel=(4.0, 3.6),
        widest=2,
        needs=_varies("step_size"),
    ),
    "hidden-units": FigureKind(
        "Steps to threshold by hidden units",
        f"Each line is a network size. {_OPEN}",
        hidden_unit_panels,
        lambda results: len(results.agents),
        panel=(3.8, 3.4),
        widest=2,
        needs=_varies("hidden_units"),
    ),
    "heterogeneous": FigureKind(
        "Boards of different size and dynamics",
        f"Steps to threshold, doubling ratio, and the curves on the largest problem. {_BAND} {_OPEN}",
        heterogeneous_panels,
        lambda results: 3,
        panel=(3.5, 3.2),
        needs=_several_sizes,
    ),
    "fixed-nibbler": FigureKind(
        "One fixed Nibbler on growing problems",
        f"Left: curves by problem size. Right: final reward between the random and the planner line. {_BAND}",
        fixed_agent_panels,
        lambda results: 2,
        widest=2,
    ),
    "questions": FigureKind(
        "Number of questions",
        f"Left: curves. Right: final reward; the vertical line is two questions per board. {_BAND}",
        _sweep("num_questions", lambda results: (2.0 * results.boards[0], "two per board")),
        lambda results: len(results.boards) + 1,
        panel=(4.0, 3.6),
        widest=2,
        needs=_varies("num_questions"),
    ),
    "swap-threshold": FigureKind(
        "A threshold for swaps",
        "Left: curves by threshold, with too few questions. Right: final reward by number of questions. "
        f"{_BAND}",
        threshold_panels,
        lambda results: 2,
        panel=(4.0, 3.6),
        widest=2,
        needs=_varies("cumulant_threshold"),
    ),
    "inputs": FigureKind(
        "Inputs per question",
        f"Left: curves. Right: final reward; the vertical line is the number of bits of a board. {_BAND}",
        _sweep("inputs_per_question", lambda results: (56.0, "a board's bits")),
        lambda results: len(results.boards) + 1,
        panel=(4.0, 3.6),
        widest=2,
        needs=_varies("inputs_per_question"),
    ),
    "open-choices": FigureKind(
        "What each reading does",
        "Points are seeds, bars 95% intervals over seeds, the tick is their mean; open points did not reach "
        "the threshold in the run.",
        choice_panels,
        lambda results: 2 * len(results.boards),
        panel=(4.6, 2.6),
        widest=2,
    ),
}


def draw_figure(name: str, results: StudyResults, folder: Path, file_name: str) -> Picture | None:
    """Draw one figure, for a wide page and for a phone; None if there is nothing to draw yet."""
    kind = FIGURES[name]
    if not results.measured or not kind.needs(results):
        return None
    rows, columns = grid_shape(kind.panels(results), kind.widest)
    title = f"{kind.title} ({results.name})"
    with drawing(columns, rows, kind.panel) as figure:
        kind.draw(figure, results, kind.widest)
        svg_file, png_file, text = save(figure, folder, file_name)
        wide = page_svg(text, f"{file_name}-wide", title)
    count = kind.panels(results)
    height = PHONE_PANEL[1] + PHONE_LEGEND / count
    with drawing(1, count, (PHONE_PANEL[0], height)) as figure:
        kind.draw(figure, results, 1)
        narrow = page_svg(svg_text(figure, file_name), f"{file_name}-narrow", title)
    return Picture(file_name, kind.title, kind.caption, svg_file, png_file, wide, narrow)


def draw_discovery(
    discovery: Discovery, label: str, folder: Path, file_name: str, explain: bool = True
) -> Picture:
    """Draw the discovery map of one run; how to read it need only be said once on a page."""
    title = f"Discovery map: {label}"
    reading = (
        "Rows are questions, columns are boards. A cell is as strong as the share of that board's bits that "
        "the question has as inputs; the dot is the board whose bit the question predicts. The bits reach "
        "Nibbler shuffled; a strong cell with its dot means that the question has found its board. Below, "
        "left: how much of its own board a question sees (0: as by chance, 1: all; mean, and from the least "
        "to the most). Right: boards with a question that has come more than half of the way."
    )
    caption = reading if explain else "Read as the discovery map above."
    pictures = []
    for widest, width in ((2, 8.4), (1, 3.6)):
        rows, _ = map_shape(discovery, widest)
        height = 1.45 * max(rows, 1.3) + (1.6 if widest > 1 else 3.2)
        with drawing(1, 1, (width, height)) as figure:
            discovery_panels(figure, discovery, widest)
            if widest > 1:
                svg_file, png_file, text = save(figure, folder, file_name)
            else:
                text = svg_text(figure, file_name)
            pictures.append(page_svg(text, f"{file_name}-{widest}", title))
    return Picture(file_name, title, caption, svg_file, png_file, *pictures)
