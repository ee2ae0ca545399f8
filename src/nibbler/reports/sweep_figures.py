"""Figures of studies that vary one thing about an agent, and of the sweep over Q-learning's settings."""

from __future__ import annotations

import math
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter

from nibbler.reports.figures import (
    doubling_panel,
    draw_curve,
    draw_estimates,
    draw_lines,
    panel_grid,
    shared_legend,
    sideways,
    threshold_panel,
)
from nibbler.reports.style import FAINT, INK, boards_axis, colour, log_steps_axis, marker, shades, steps_axis
from nibbler.studies.metrics import Estimate, final_reward
from nibbler.studies.results import Lines, StudyResults, agent_label

MOMENTUM_MARKERS = ("o", "s", "^", "D", "v", "P")


def words(name: str) -> str:
    """A config field as words."""
    return name.replace("_", " ")


def value_label(name: str, value: Any) -> str:
    """A legend entry: 56 inputs, 8 questions, 64 units."""
    noun = {"inputs_per_question": "inputs", "num_questions": "questions", "hidden_units": "units"}.get(name)
    return f"{show_value(value)} {noun}" if noun else f"{words(name)} {show_value(value)}"


def spaced(values: list[Any], apart: float = 1.25) -> list[Any]:
    """Values that leave each other room as labels on a log axis."""
    kept: list[Any] = []
    for value in values:
        if not kept or value >= kept[-1] * apart:
            kept.append(value)
    return kept


def show_value(value: Any) -> str:
    """A varied value for a label."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def final_points(axes: Axes, points: list[tuple[float, Estimate]], line_colour: object, **style: Any) -> None:
    """Final rewards with whiskers, joined by a line."""
    points = sorted((x, e) for x, e in points if e.reached)
    axes.plot([x for x, _ in points], [e.value for _, e in points], color=line_colour, **style)
    for x, e in points:
        if e.has_interval:
            axes.plot([x, x], [e.low, e.high], color=line_colour, linewidth=1.0, alpha=0.8)


def sweep_panels(
    figure: Figure,
    results: StudyResults,
    widest: int,
    name: str,
    mark: tuple[float, str] | None = None,
) -> None:
    """One agent on one problem size, one thing varied: curves on the left, final reward on the right.

    `mark` draws a vertical line at a value with meaning (the bits of a board, two questions per board).
    """
    sizes, values, agents = results.boards, results.values(name), results.agents
    tones = dict(zip(values, shades(len(values)), strict=True))
    panels = panel_grid(figure, len(sizes) + 1, widest)
    for axes, boards in zip(panels, sizes, strict=False):
        part = results.only(boards=boards)
        for value in values:
            for m in part.only(**{name: value}):
                draw_curve(axes, m.curves, tones[value], value_label(name, value))
        draw_lines(axes, results.lines(boards), results.threshold)
        steps_axis(axes.xaxis)
        axes.set_xlabel("steps")
        axes.set_title(f"{', '.join(map(agent_label, agents))}, {boards} boards")
    panels[0].set_ylabel("reward per step")
    last = panels[-1]
    last.set_xscale("log", base=2)
    for boards in sizes:
        for agent in agents:
            points = [
                (float(m.setting.value(name)), e)
                for m in results.only(agent=agent, boards=boards)
                if (e := results.final_reward(agent, boards, **dict(m.setting.varied))) is not None
            ]
            final_points(last, points, colour(agent), marker=marker(agent))
    draw_lines(last, results.lines(sizes[0]) if len(sizes) == 1 else Lines(), results.threshold)
    if mark is not None:
        last.axvline(mark[0], color=INK, linewidth=0.8, linestyle=(0, (1, 2)))
        last.annotate(
            mark[1],
            xy=(mark[0], 0.22),
            xycoords=("data", "axes fraction"),
            xytext=(4, 0),
            textcoords="offset points",
            fontsize=8,
        )
    ticks = spaced(values)
    last.set_xticks(ticks, [show_value(v) for v in ticks])
    last.minorticks_off()
    last.set_xlabel(words(name))
    last.set_ylabel("final reward per step")
    last.set_title("Mean of the last tenth")
    shared_legend(figure, panels, widest)


def threshold_panels(figure: Figure, results: StudyResults, widest: int = 2) -> None:
    """Curves by threshold for the number of questions with most of them, and final reward by questions."""
    taus = results.values("cumulant_threshold")
    tones = dict(zip(taus, shades(len(taus)), strict=True))
    by_questions = {h: results.only(num_questions=h) for h in results.values("num_questions")}
    shown = max(by_questions, key=lambda h: len(by_questions[h].values("cumulant_threshold")))
    left, right = panel_grid(figure, 2, widest)
    boards = results.boards[0]
    for m in by_questions[shown]:
        tau = m.setting.value("cumulant_threshold")
        draw_curve(left, m.curves, tones[tau], f"swaps above {show_value(tau)}")
    steps_axis(left.xaxis)
    left.set_xlabel("steps")
    left.set_ylabel("reward per step")
    left.set_title(f"{boards} boards, {shown} questions")
    for tau in taus:
        points = [
            (float(m.setting.value("num_questions")), final_reward(m.curves))
            for m in results.only(cumulant_threshold=tau)
        ]
        final_points(right, points, tones[tau], marker="o", label=f"swaps above {show_value(tau)}")
    for axes in (left, right):
        draw_lines(axes, results.lines(boards), results.threshold)
    right.set_xscale("log", base=2)
    right.set_xticks(list(by_questions), [show_value(h) for h in by_questions])
    right.minorticks_off()
    right.set_xlabel("questions")
    right.set_ylabel("final reward per step")
    right.set_title("Mean of the last tenth")
    shared_legend(figure, [left, right], widest)


def fixed_agent_panels(figure: Figure, results: StudyResults, widest: int = 2) -> None:
    """One fixed agent on growing problems: curves by size, and the final reward between its two lines."""
    sizes = results.boards
    tones = dict(zip(sizes, shades(len(sizes)), strict=True))
    left, right = panel_grid(figure, 2, widest)
    for m in sorted(results, key=lambda m: m.setting.boards):
        draw_curve(left, m.curves, tones[m.setting.boards], f"{m.setting.boards} boards")
    left.axhline(results.threshold, color=INK, linewidth=0.7, alpha=0.55)
    steps_axis(left.xaxis)
    left.set_xlabel("steps")
    left.set_ylabel("reward per step")
    left.set_title("Reward")
    for agent in results.agents:
        points = [
            (float(m.setting.boards), e)
            for m in results.only(agent=agent)
            if (e := results.final_reward(agent, m.setting.boards, **dict(m.setting.varied))) is not None
        ]
        final_points(right, points, colour(agent), marker=marker(agent), label=agent_label(agent))
    for attribute, tone, style in (("random", FAINT, ":"), ("planner", INK, "--")):
        line = [(n, getattr(results.lines(n), attribute)) for n in sizes]
        known = [(n, y) for n, y in line if y is not None]
        right.plot(
            [n for n, _ in known], [y for _, y in known], color=tone, linestyle=style, label=attribute.title()
        )
    right.axhline(results.threshold, color=INK, linewidth=0.7, alpha=0.55)
    boards_axis(right, sizes)
    right.set_ylabel("final reward per step")
    right.set_title("Mean of the last tenth")
    shared_legend(figure, [left, right], widest)


def hidden_unit_panels(figure: Figure, results: StudyResults, widest: int = 2) -> None:
    """Steps to threshold against boards, one line per network size, one panel per agent."""
    name = "hidden_units"
    agents, values = results.agents, results.values(name)
    tones = dict(zip(values, shades(len(values)), strict=True))
    panels = panel_grid(figure, len(agents), widest, sharey=True)
    for axes, agent in zip(panels, agents, strict=True):
        axes.set_yscale("log")
        for value, shift in zip(values, sideways(len(values)), strict=True):
            by_boards = results.to_threshold(agent, **{name: value})
            if by_boards:
                draw_estimates(axes, by_boards, tones[value], f"{value} units", marker(agent), shift)
        boards_axis(axes, results.boards)
        log_steps_axis(axes)
        axes.set_title(agent_label(agent) + (" (units per question)" if agent.startswith("nibbler") else ""))
    panels[0].set_ylabel(f"steps until reward stays ≥ {results.threshold:g}")
    handles = [Line2D([], [], color=tones[v], label=f"{v} units") for v in values]
    handles.append(
        Line2D([], [], color=INK, marker="o", markerfacecolor="none", linestyle="none", label="not reached")
    )
    figure.legend(handles=handles, loc="outside lower center", ncols=6 if widest > 1 else 3)


def q_sweep_panels(figure: Figure, results: StudyResults, widest: int = 2) -> None:
    """Final reward of Q-learning over step sizes, one shade per hidden size, one marker per momentum."""
    sizes = results.boards
    sweep = results.only(agent="q-learning")
    hidden, momenta = sweep.values("hidden_units"), sweep.values("momentum")
    tones = dict(zip(hidden, shades(len(hidden)), strict=True))
    markers = dict(zip(momenta, (MOMENTUM_MARKERS * len(momenta))[: len(momenta)], strict=True))
    panels = panel_grid(figure, len(sizes), widest, sharey=True)
    for axes, boards in zip(panels, sizes, strict=True):
        axes.set_xscale("log")
        for units in hidden:
            for momentum in momenta:
                points = [
                    (float(m.setting.value("step_size")), e)
                    for m in sweep.only(boards=boards, hidden_units=units, momentum=momentum)
                    if (e := results.final_reward("q-learning", boards, **dict(m.setting.varied))) is not None
                ]
                final_points(axes, points, tones[units], marker=markers[momentum], linewidth=0.9)
        draw_lines(axes, results.lines(boards), results.threshold)
        for m in results.only(agent="nibbler", boards=boards):
            e = results.final_reward("nibbler", boards, **dict(m.setting.varied))
            if e is not None and math.isfinite(e.value):
                axes.axhline(e.value, color=colour("nibbler"), linewidth=1.6)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("step size")
        axes.set_title(f"{boards} boards")
    panels[0].set_ylabel("final reward per step")
    handles = [Line2D([], [], color=tones[v], label=f"{v} units") for v in hidden]
    handles += [
        Line2D([], [], color=INK, marker=markers[v], linestyle="none", label=f"momentum {v:g}")
        for v in momenta
    ]
    if "nibbler" in results.agents:
        handles.append(Line2D([], [], color=colour("nibbler"), label="Nibbler"))
    handles.append(Line2D([], [], color=INK, linestyle="--", label="Planner"))
    handles.append(Line2D([], [], color=FAINT, linestyle=":", label="Random"))
    figure.legend(handles=handles, loc="outside lower center", ncols=4 if widest > 1 else 2)


def heterogeneous_panels(figure: Figure, results: StudyResults, widest: int = 3) -> None:
    """Steps to threshold, doubling ratio, and the curves on the largest problem of the varied family."""
    left, middle, right = panel_grid(figure, 3, widest)
    threshold_panel(left, results)
    doubling_panel(middle, results)
    largest = results.boards[-1]
    for agent in results.agents:
        for m in results.only(agent=agent, boards=largest):
            draw_curve(right, m.curves, colour(agent), "")
    draw_lines(right, results.lines(largest), results.threshold)
    steps_axis(right.xaxis)
    right.set_xlabel("steps")
    right.set_ylabel("reward per step")
    right.set_title(f"Varied boards, {largest} of them")
    shared_legend(figure, [left, right], widest)
