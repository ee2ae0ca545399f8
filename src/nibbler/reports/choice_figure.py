"""The figure of the open choices: what each reading of the paper ends with, and how soon it learns."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nibbler.reports.figures import grid_shape, panel_grid, shared_legend
from nibbler.reports.style import INK, colour, steps_axis
from nibbler.studies.metrics import CurveSet, Estimate, final_reward, timesteps_to_threshold
from nibbler.studies.results import Measured, StudyResults, agent_label

DEFAULT = "nibbler"
OTHER = "q-learning"  # whose colour the departures take


def readings(results: StudyResults) -> list[str]:
    """Readings from the best to the worst on the largest problem, the default first."""
    largest = results.only(boards=results.boards[-1])
    ends = {m.setting.agent: final_reward(m.curves).value for m in largest}
    return sorted(results.agents, key=lambda a: (a != DEFAULT, -ends.get(a, -np.inf), a))


def choice_panels(figure: Figure, results: StudyResults, widest: int = 2) -> None:
    """One row of panels per problem size: final reward on the left, steps to threshold on the right."""
    names = readings(results)
    sizes = results.boards
    panels = panel_grid(figure, 2 * len(sizes), widest)
    columns = grid_shape(len(panels), widest)[1]
    for index, axes in enumerate(panels):
        boards = sizes[index // 2]
        part = results.only(boards=boards)
        for row, name in enumerate(names):
            for m in part.only(agent=name):
                (_draw_rewards if index % 2 == 0 else _draw_steps)(axes, results, m, row)
        labels = [agent_label(n) if n != DEFAULT else "default" for n in names]
        axes.set_yticks(range(len(names)), labels if index % columns == 0 else [])
        axes.set_ylim(len(names) - 0.5, -0.5)
        if index % 2 == 0:
            axes.axvline(results.threshold, color=INK, linewidth=0.7, alpha=0.55)
            axes.set_title(f"Final reward, {boards} boards")
        else:
            axes.set_xlim(left=0)
            steps_axis(axes.xaxis)
            axes.set_title(f"Steps until reward stays ≥ {results.threshold:g}, {boards} boards")
    shared_legend(figure, panels[:2], widest)


def _draw_rewards(axes: Axes, results: StudyResults, m: Measured, row: int) -> None:
    seeds = [final_reward(CurveSet(line[None], m.curves.bin_size)).value for line in m.curves.rewards]
    _draw(axes, row, m, final_reward(m.curves), [(value, True) for value in seeds])


def _draw_steps(axes: Axes, results: StudyResults, m: Measured, row: int) -> None:
    def steps(curves: CurveSet) -> Estimate:
        return timesteps_to_threshold(curves, results.threshold, results.window)

    seeds = [steps(CurveSet(line[None], m.curves.bin_size)) for line in m.curves.rewards]
    points = [(e.value if e.reached else e.bound, e.reached) for e in seeds]
    _draw(axes, row, m, steps(m.curves), points)


def _draw(axes: Axes, row: int, m: Measured, mean: Estimate, seeds: list[tuple[float, bool]]) -> None:
    """The mean with its interval as a bar, each seed as a point; open where it was not reached."""
    tone = colour(DEFAULT if m.setting.agent == DEFAULT else OTHER)
    if mean.reached and mean.has_interval:
        axes.plot([mean.low, min(mean.high, m.curves.steps)], [row, row], color=tone, linewidth=4, alpha=0.3)
    if mean.reached:
        axes.plot([mean.value], [row], color=tone, marker="|", markersize=13, markeredgewidth=2)
    for value, reached in seeds:
        face = tone if reached else "none"
        axes.plot([value], [row], color=tone, marker="o", markerfacecolor=face, linestyle="none")
