"""Figures: what they show and that they can be drawn from any state of a study."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from nibbler.reports import catalogue, discovery_map, figures, style
from nibbler.reports.discovery import Discovery, count_selections
from nibbler.studies.metrics import CurveSet, Estimate
from nibbler.studies.results import AGENT_LABELS, Lines, Measured, Setting, StudyResults


def results(*settings: Setting, bins: int = 40, seeds: int = 3) -> StudyResults:
    """Curves that cross zero later on larger problems."""
    measured = []
    for number, setting in enumerate(settings):
        generator = np.random.default_rng(number)
        rise = np.linspace(-0.06, 0.06, bins) - 0.002 * setting.boards
        curves = CurveSet(rise + generator.normal(0, 0.004, (seeds, bins)), 1000)
        measured.append(Measured(setting, curves, Lines(-0.06, 0.055), 1000.0, 1e-5))
    return StudyResults("synthetic", "Synthetic", tuple(measured), window=3)


def settings_for(name: str) -> StudyResults:
    sizes, agents = (2, 4, 8), ("nibbler", "q-learning")
    if name == "q-sweep":
        grid = [(units, step) for units in (16, 64) for step in (1e-3, 1e-2)]
        return results(
            *(
                Setting("q-learning", n, (("hidden_units", u), ("momentum", 0.99), ("step_size", s)))
                for n in sizes
                for u, s in grid
            )
        )
    if name == "hidden-units":
        return results(
            *(Setting(a, n, (("hidden_units", d),)) for a in agents for n in sizes for d in (16, 64))
        )
    if name == "swap-threshold":
        grid = [(2, 0.0), (2, 0.1), (4, 0.0), (4, 0.03), (4, 0.1), (8, 0.0)]
        return results(
            *(Setting("nibbler", 4, (("cumulant_threshold", t), ("num_questions", h))) for h, t in grid)
        )
    if name in ("questions", "inputs"):
        varied = {"questions": "num_questions", "inputs": "inputs_per_question"}[name]
        return results(*(Setting("nibbler", 4, ((varied, value),)) for value in (8, 16, 56)))
    return results(*(Setting(a, n) for a in agents for n in sizes))


@pytest.mark.parametrize("name", sorted(catalogue.FIGURES))
def test_every_figure_is_drawn_as_svg_and_png_for_wide_and_narrow_pages(name: str, tmp_path: Path) -> None:
    picture = catalogue.draw_figure(name, settings_for(name), tmp_path, name)
    assert picture is not None
    assert picture.png_file.read_bytes().startswith(b"\x89PNG")
    assert "<svg" in picture.svg_file.read_text()
    for svg in (picture.wide, picture.narrow):
        assert svg.startswith("<svg")
        assert svg.rstrip().endswith("</svg>")
        assert "<!--" not in svg


@pytest.mark.parametrize("name", sorted(catalogue.FIGURES))
def test_a_study_without_results_has_no_figures(name: str, tmp_path: Path) -> None:
    assert catalogue.draw_figure(name, results(), tmp_path, name) is None


@pytest.mark.parametrize(
    "name", ["curves", "scaling", "compute", "heterogeneous", "fixed-nibbler", "open-choices", "way"]
)
def test_figures_of_runs_that_have_just_begun_can_be_drawn(name: str, tmp_path: Path) -> None:
    begun = results(Setting("nibbler", 2), Setting("nibbler", 4), bins=1, seeds=1)
    assert catalogue.draw_figure(name, begun, tmp_path, name) is not None


def test_the_same_results_give_the_same_files(tmp_path: Path) -> None:
    pictures = [
        catalogue.draw_figure("scaling", settings_for("scaling"), tmp_path / str(k), "scaling")
        for k in range(2)
    ]
    first, second = (p.svg_file.read_bytes() for p in pictures if p is not None)
    assert first == second


def test_every_agent_has_its_own_colour_and_marker() -> None:
    learners = [agent for agent in AGENT_LABELS if agent not in ("random", "planner")]
    assert len({style.colour(agent) for agent in learners}) == len(learners)
    assert len({style.marker(agent) for agent in learners}) == len(learners)


def relative_luminance(colour: str) -> float:
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.03928 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("ground", ["#ffffff", "#1a1d22"])
@pytest.mark.parametrize("agent", sorted(set(AGENT_LABELS) - {"random", "planner"}))
def test_agent_colours_stand_out_on_light_and_dark_pages(agent: str, ground: str) -> None:
    one, other = relative_luminance(style.colour(agent)), relative_luminance(ground)
    contrast = (max(one, other) + 0.05) / (min(one, other) + 0.05)
    assert contrast > 2.4  # lines and markers; text has its own colour


def test_page_svgs_keep_their_ids_apart_and_take_the_pages_colours() -> None:
    body = f'<g id="a" style="fill: {style.INK}"/><use xlink:href="#a"/>'
    text = f'<?xml?><svg width="72pt" height="72pt">{body}</svg>'
    one, two = (style.page_svg(text, name, 'A "title" <b>') for name in ("one", "two"))
    assert 'id="one-a"' in one
    assert 'xlink:href="#one-a"' in one
    assert 'id="two-a"' in two
    assert "var(--ink" in one
    assert style.INK not in one.replace(f"var(--ink, {style.INK})", "")
    assert 'aria-label="A &quot;title&quot; &lt;b>"' in one
    assert 'width="72pt"' not in one


def test_what_was_not_reached_is_drawn_open_at_its_bound() -> None:
    axes = Figure().add_subplot()
    axes.set_yscale("log")
    estimates = {2: Estimate(1000.0), 4: Estimate(math.inf, bound=5000.0), 8: Estimate(math.nan)}
    figures.draw_estimates(axes, estimates, "#000000", "agent")
    drawn = {tuple(line.get_ydata()): line.get_markerfacecolor() for line in axes.get_lines()}
    assert drawn[(1000.0,)] != "none"
    assert drawn[(5000.0,)] == "none"
    assert len(drawn) == 2


def test_bands_average_bins_and_keep_the_mean() -> None:
    curves = CurveSet(np.random.default_rng(0).normal(size=(4, 1000)), 10)
    times, mean, low, high = figures.band(curves, points=100)
    assert len(times) == 100
    assert mean.mean() == pytest.approx(curves.rewards.mean())
    assert (low <= mean).all()
    assert (mean <= high).all()
    assert times[0] == 50.0


def discovery() -> Discovery:
    board_of_feature = np.repeat(np.arange(3), 4)
    own = np.arange(12).reshape(3, 4)
    mixed = np.array([[0, 4, 8, 1], [5, 9, 2, 6], [10, 3, 7, 11]])
    inputs = np.stack([mixed, own])
    return count_selections(np.array([0, 100]), inputs[:, :, 0], inputs, board_of_feature)


def test_questions_are_sorted_by_the_board_they_end_up_with() -> None:
    board_of_feature = np.repeat(np.arange(3), 4)
    inputs = np.arange(12).reshape(3, 4)[[2, 0, 1]][None].repeat(2, axis=0)
    counted = count_selections(np.array([0, 1]), inputs[:, :, 0], inputs, board_of_feature)
    assert discovery_map.row_order(counted).tolist() == [1, 2, 0]


def test_moments_include_the_first_and_the_last() -> None:
    steps = np.unique(np.geomspace(1, 1_000_000, 50).astype(np.int64))
    shown = discovery_map.moments(steps)
    assert shown[0] == 0
    assert shown[-1] == len(steps) - 1
    assert len(shown) <= discovery_map.MOMENTS


def test_a_discovery_map_is_drawn(tmp_path: Path) -> None:
    picture = catalogue.draw_discovery(discovery(), "nibbler", tmp_path, "map")
    assert picture.png_file.exists()
    assert "<image" in picture.wide


def test_the_panels_are_spread_evenly() -> None:
    shapes: dict[int, tuple[int, int]] = {n: figures.grid_shape(n) for n in (1, 3, 4, 5, 7, 8)}
    assert shapes == {1: (1, 1), 3: (1, 3), 4: (1, 4), 5: (2, 3), 7: (2, 4), 8: (2, 4)}


def test_figures_of_a_stranger_cannot_bring_markup_along(
    tmp_path: Path, make_study: Callable[..., object]
) -> None:
    evil = results(Setting("<script>alert(1)</script>", 2), Setting("$\\frac{a}$ --> <b>", 2))
    picture = catalogue.draw_figure("curves", evil, tmp_path, "evil")
    assert picture is not None
    assert "<script" not in picture.wide + picture.narrow
    assert "<b>" not in picture.wide + picture.narrow
