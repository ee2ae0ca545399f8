"""The figures of the paper's main studies: reward curves, and how steps and compute grow with the problem."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from nibbler.reports.style import FAINT, INK, boards_axis, colour, log_steps_axis, marker, steps_axis
from nibbler.studies import metrics
from nibbler.studies.metrics import CurveSet, Estimate
from nibbler.studies.results import Lines, StudyResults, agent_label

POINTS_PER_CURVE = 160  # more than a panel can show; keeps the SVG small


def band(curves: CurveSet, points: int = POINTS_PER_CURVE) -> tuple[NDArray[np.float64], ...]:
    """Times, mean, and interval over seeds of a curve, averaged over equal groups of bins for drawing."""
    group = max(1, math.ceil(curves.num_bins / points))
    whole = curves.num_bins // group * group
    rewards = curves.rewards[:, :whole].reshape(curves.num_seeds, -1, group).mean(axis=-1)
    coarse = CurveSet(rewards, curves.bin_size * group)
    mean = coarse.mean()
    if curves.num_seeds < 2:
        return coarse.times, mean, mean, mean
    replicas = metrics.bootstrap(coarse, lambda means: means, 400)
    tail = (1.0 - metrics.CONFIDENCE) / 2.0
    low, high = np.quantile(replicas, [tail, 1.0 - tail], axis=0)
    return coarse.times, mean, low, high


def draw_curve(axes: Axes, curves: CurveSet, line_colour: object, label: str) -> None:
    """One seed-averaged curve with its band."""
    if curves.num_bins == 0:
        return
    times, mean, low, high = band(curves)
    axes.fill_between(times, low, high, color=line_colour, alpha=0.22, linewidth=0)
    axes.plot(times, mean, color=line_colour, label=label or None)


def draw_lines(axes: Axes, lines: Lines, with_threshold: float | None = None) -> None:
    """Random and planner lines, and the threshold."""
    if lines.random is not None:
        axes.axhline(lines.random, color=FAINT, linestyle=":", linewidth=1.2, label="Random (exact)")
    if lines.planner is not None:
        axes.axhline(lines.planner, color=INK, linestyle="--", linewidth=1.0, label="Planner (simulated)")
    if with_threshold is not None:
        axes.axhline(with_threshold, color=INK, linewidth=0.7, alpha=0.55, label="Threshold")


def shared_legend(figure: Figure, panels: list[Axes], widest: int) -> None:
    """One legend under the panels instead of one in each."""
    entries: dict[str, Artist] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if entries:
        long = max(map(len, entries)) > 22
        columns = 4 if widest > 1 else (1 if long else 2)
        figure.legend(
            list(entries.values()),
            list(entries),
            loc="outside lower center",
            ncols=min(columns, len(entries)),
        )


def grid_shape(count: int, widest: int = 4) -> tuple[int, int]:
    """Rows and columns for that many panels, as even as they can be."""
    rows = max(1, math.ceil(count / widest))
    return rows, max(1, math.ceil(count / rows))


def panel_grid(figure: Figure, count: int, widest: int, sharey: bool = False) -> list[Axes]:
    """That many panels, at most `widest` beside each other (1 on a phone)."""
    rows, columns = grid_shape(count, widest)
    panels: list[Axes] = []
    for index in range(count):
        first = panels[0] if sharey and panels else None
        panels.append(figure.add_subplot(rows, columns, index + 1, sharey=first))
    return panels


def curve_panels(figure: Figure, results: StudyResults, widest: int = 4) -> None:
    """Reward by steps, one panel per problem size, one colour per agent."""
    sizes = results.boards
    columns = grid_shape(len(sizes), widest)[1]
    panels = panel_grid(figure, len(sizes), widest, sharey=True)
    for index, (axes, boards) in enumerate(zip(panels, sizes, strict=True)):
        part = results.only(boards=boards)
        for agent in part.agents:
            for m in part.only(agent=agent):
                draw_curve(axes, m.curves, colour(agent), agent_label(agent))
        draw_lines(axes, results.lines(boards), results.threshold)
        axes.set_title(f"{boards} boards")
        steps_axis(axes.xaxis)
        if index % columns == 0:
            axes.set_ylabel("reward per step")
        if index >= len(sizes) - columns:
            axes.set_xlabel("steps")
    shared_legend(figure, panels, widest)


def draw_estimates(
    axes: Axes,
    estimates: Mapping[int, Estimate],
    line_colour: object,
    label: str,
    line_marker: str = "o",
    shift: float = 1.0,
) -> None:
    """Estimates by size: whiskers for the interval; one that was not reached is an open marker at its bound.

    `shift` moves the points sideways by a factor, so that whiskers of several agents do not hide each other.
    """
    reached = {n: e for n, e in estimates.items() if e.reached and e.value > 0}
    missed = {n: e for n, e in estimates.items() if not e.reached and not e.undefined and e.bound > 0}
    where = {n: n * shift for n in estimates}
    axes.plot(
        [where[n] for n in reached],
        [e.value for e in reached.values()],
        color=line_colour,
        marker=line_marker,
        label=label,
    )
    for n, e in reached.items():
        if e.has_interval:
            top = e.high if math.isfinite(e.high) else e.value * 3
            axes.plot([where[n]] * 2, [max(e.low, 1e-9), top], color=line_colour, linewidth=1.0, alpha=0.8)
    for n, e in missed.items():
        axes.plot(
            [where[n]],
            [e.bound],
            color=line_colour,
            marker=line_marker,
            markerfacecolor="none",
            linestyle="none",
            label=label if not reached else None,
        )
        axes.annotate(
            "",
            xy=(where[n], e.bound),
            xytext=(0, 15),
            textcoords="offset points",
            arrowprops={"arrowstyle": "<-", "color": line_colour, "linewidth": 1.0, "shrinkB": 3.5},
        )
    if missed:  # room for the arrows
        axes.update_datalim([(where[n], e.bound * 1.6) for n, e in missed.items()])
        axes.autoscale_view()


def sideways(count: int) -> list[float]:
    """Factors that spread that many series around a size on a doubling axis."""
    return [2.0 ** (0.07 * (k - (count - 1) / 2)) for k in range(count)]


def threshold_panel(axes: Axes, results: StudyResults) -> None:
    """TimestepsToThreshold against boards, both on log axes, with the fitted power laws."""
    axes.set_yscale("log")
    for agent, shift in zip(results.agents, sideways(len(results.agents)), strict=True):
        by_boards = results.to_threshold(agent)
        law = results.power_law(agent)
        label = agent_label(agent)
        if len(law.fitted) > 2:
            label += f" (exponent {law.exponent.value:.2f})"
            line = np.array([law.fitted[0], law.fitted[-1]], dtype=np.float64)
            axes.plot(
                line * shift,
                law.steps(line),
                color=colour(agent),
                linewidth=0.9,
                linestyle=(0, (4, 2)),
                alpha=0.7,
            )
        draw_estimates(axes, by_boards, colour(agent), label, marker(agent), shift)
    boards_axis(axes, results.boards)
    log_steps_axis(axes)
    axes.set_ylabel("steps")
    axes.set_title(f"Steps until reward stays ≥ {results.threshold:g}")


def doubling_panel(axes: Axes, results: StudyResults) -> None:
    """TimestepDoublingRatio against boards; 2 is linear growth."""
    axes.set_yscale("log", base=2)
    axes.axhline(2.0, color=INK, linewidth=0.8, linestyle="--", alpha=0.7)
    largest = 4.0
    sizes: set[int] = set()
    for agent, shift in zip(results.agents, sideways(len(results.agents)), strict=True):
        ratios = results.doubling_ratios(agent)
        sizes |= set(ratios)
        draw_estimates(axes, ratios, colour(agent), agent_label(agent), marker(agent), shift)
        for e in ratios.values():
            largest = max([largest, *(x for x in (e.value, e.bound * 1.6, e.high) if math.isfinite(x))])
    ticks = [2.0**k for k in range(-1, max(3, math.ceil(math.log2(largest)) + 1))]
    axes.set_ylim(ticks[0], ticks[-1])
    axes.set_yticks(ticks, [f"{t:g}" for t in ticks])
    axes.minorticks_off()
    if sizes:
        boards_axis(axes, sorted(sizes))
        labels = [f"{n} → {2 * n}" for n in sorted(sizes)]
        axes.set_xticks(sorted(sizes), labels, rotation=30 if len(sizes) > 5 else 0)
        axes.set_xlim(min(sizes) / 1.4, max(sizes) * 1.4)
    axes.set_ylabel("ratio of steps (2: linear)")
    axes.set_title("Doubling ratio")


def scaling_panels(figure: Figure, results: StudyResults, widest: int = 2) -> None:
    """Steps to threshold on the left, doubling ratio on the right."""
    left, right = panel_grid(figure, 2, widest)
    threshold_panel(left, results)
    doubling_panel(right, results)
    shared_legend(figure, [left], min(widest, 2))


def compute_panels(figure: Figure, results: StudyResults, widest: int = 3) -> None:
    """What a step costs, and what reaching the threshold costs, in weights touched and in seconds."""
    panels = panel_grid(figure, 3, widest)
    for axes in panels:
        axes.set_yscale("log")
    for agent, shift in zip(results.agents, sideways(len(results.agents)), strict=True):
        rows = [r for r in results.only(agent=agent).rows() if not r.setting.varied]
        per_step = {r.setting.boards: Estimate(r.weights_per_step) for r in rows}
        columns = (
            per_step,
            {r.setting.boards: r.weights_to_threshold for r in rows},
            {r.setting.boards: r.seconds_to_threshold for r in rows},
        )
        for axes, values in zip(panels, columns, strict=True):
            draw_estimates(axes, values, colour(agent), agent_label(agent), marker(agent), shift)
    titles = ("Weights touched per step", "Weights touched to threshold", "Seconds to threshold")
    for axes, title in zip(panels, titles, strict=True):
        log_steps_axis(axes)
        boards_axis(axes, results.boards)
        axes.set_title(title)
    shared_legend(figure, panels, widest)
