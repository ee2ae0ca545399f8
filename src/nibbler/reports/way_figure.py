"""The figure of growth along the way: what a doubling costs at every share of the way that learning goes."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from nibbler.reports.figures import band, panel_grid, shared_legend
from nibbler.reports.style import INK, shades, steps_axis
from nibbler.studies.metrics import Estimate, doubling_ratios
from nibbler.studies.results import LARGE_PROBLEM, StudyResults

AGENT = "nibbler"
SHARES = (*np.arange(0.03, 0.095, 0.01), *np.arange(0.1, 0.86, 0.05))  # more than a table has room for
POINTS = 600  # of a curve, whose beginning a log axis stretches


def way_panels(figure: Figure, results: StudyResults, widest: int = 2) -> None:
    """Rewards as shares of the way on the left; on the right the ratio of the steps to each share.

    Below 16 boards the ratios are uneven (RESULTS.md says why) and would hide the others.
    """
    part = results.only(agent=AGENT)
    sizes = part.boards
    tones = dict(zip(sizes, shades(len(sizes)), strict=True))
    left, right = panel_grid(figure, 2, widest)
    _draw_curves(left, part, tones)
    by_share = [doubling_ratios(part.to_share(AGENT, float(share))) for share in SHARES]
    large = [n for n in sizes if 2 * n in sizes and n >= LARGE_PROBLEM] or [
        n for n in sizes if 2 * n in sizes
    ]
    for n in large:
        points = [(s, r[n]) for s, r in zip(SHARES, by_share, strict=True) if n in r and r[n].reached]
        _draw_ratios(right, points, tones[2 * n], f"{n} → {2 * n} boards")
    right.axhline(2.0, color=INK, linewidth=0.8, linestyle="--", alpha=0.7)
    right.set_ylabel("ratio of steps (2: linear)")
    right.set_xlabel("share of the way")
    right.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    right.set_title("Doubling ratio of the steps to a share")
    shared_legend(figure, [left, right], widest)


def _draw_curves(axes: Axes, results: StudyResults, tones: dict[int, object]) -> None:
    axes.set_xscale("log")
    for m in sorted(results, key=lambda m: m.setting.boards):
        random, planner = m.lines.random, m.lines.planner
        if random is None or planner is None or m.setting.varied:
            continue
        times, mean, low, high = band(m.curves, POINTS)
        low, mean, high = ((line - random) / (planner - random) for line in (low, mean, high))
        tone = tones[m.setting.boards]
        axes.fill_between(times, low, high, color=tone, alpha=0.22, linewidth=0)
        axes.plot(times, mean, color=tone, linewidth=1.1, label=f"{m.setting.boards} boards")
    steps_axis(axes.xaxis)
    axes.set_ylim(-0.05, 1.05)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_xlabel("steps")
    axes.set_ylabel("share of the way")
    axes.set_title("Reward, from random (0%) to planner (100%)")


def _draw_ratios(axes: Axes, points: list[tuple[float, Estimate]], tone: object, label: str) -> None:
    whole = [(share, e) for share, e in points if e.has_interval and np.isfinite(e.high)]
    axes.fill_between(
        [share for share, _ in whole],
        [e.low for _, e in whole],
        [e.high for _, e in whole],
        color=tone,
        alpha=0.22,
        linewidth=0,
    )
    axes.plot([share for share, _ in points], [e.value for _, e in points], color=tone, label=label)
