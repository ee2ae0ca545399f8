"""From runs to settings: grouping by all but the seed, lines, and what unfinished or foreign runs give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nibbler.studies.lines import CACHE_FILE, RandomLines, random_line
from nibbler.studies.reading import agent_value, read_study, setting_of, summarise, varied_names
from nibbler.studies.results import Setting
from nibbler.studies.spec import RunSpec, Study
from nibbler.studies.store import ResultsFolder, RunResult


def spec(agent: dict[str, Any], boards: int = 2, seed: int = 0, **environment: Any) -> RunSpec:
    env = {"name": "multi_catch", "num_boards": boards, "seed": seed, **environment}
    return RunSpec(env, agent, 4_000, seed, "cpu", 1_000)


def finished(run: RunSpec, reward: float, bins: int = 4) -> RunResult:
    record = {"steps_per_second": 1000.0, "weights_touched_per_step": 50.0}
    return RunResult(run, Path(), np.arange(1, bins + 1) * 1000, np.full(bins, reward), record=record)


def test_runs_that_differ_only_by_seed_are_one_setting() -> None:
    runs = [spec({"name": "nibbler"}, boards, seed) for boards in (2, 4) for seed in range(3)]
    read = summarise(Study("s", "x", tuple(runs)), [finished(run, run.seed / 10) for run in runs])
    assert [m.setting for m in read] == [Setting("nibbler", 2), Setting("nibbler", 4)]
    assert read.get("nibbler", 2).curves.rewards[:, 0].tolist() == [0.0, 0.1, 0.2]
    assert read.get("nibbler", 2).complete


def test_the_planner_is_a_line_and_not_a_curve() -> None:
    runs = [spec({"name": "nibbler"}), spec({"name": "planner"}), spec({"name": "planner"}, boards=4)]
    read = summarise(Study("s", "x", tuple(runs)), [finished(run, 0.05) for run in runs])
    assert [m.setting.agent for m in read] == ["nibbler"]
    assert read.lines(2).planner == 0.05
    assert read.lines(2).random == pytest.approx(-0.05714, abs=1e-5)


def test_settings_that_differ_between_runs_of_an_agent_are_found() -> None:
    runs = (
        spec({"name": "q-learning", "hidden_units": 16, "momentum": 0.9}),
        spec({"name": "q-learning", "hidden_units": 64, "momentum": 0.9}),
        spec({"name": "nibbler", "kappa": 0.1}),
    )
    study = Study("s", "x", runs)
    assert varied_names(study) == ("hidden_units",)
    read = summarise(study, [finished(run, 0.0) for run in runs])
    assert read.values("hidden_units") == [16, 64, 256]  # Nibbler has units too, its default


def test_a_default_that_a_spec_leaves_out_is_filled_in() -> None:
    assert agent_value(spec({"name": "nibbler"}, boards=4), "num_questions") == 8
    assert agent_value(spec({"name": "nibbler"}, boards=1), "inputs_per_question") == 56
    assert agent_value(spec({"name": "q-learning"}), "hidden_units") == 256
    assert agent_value(spec({"name": "linear"}), "hidden_units") is None
    assert agent_value(spec({"import": "mine:agent"}), "hidden_units") is None


def test_labels_name_variants_by_agent_and_by_environment() -> None:
    labels = [
        {"label": "windy", "environment": {"noisy_wind": True}},
        {"label": "fast", "agent": {"kappa": 0.5}},
    ]
    runs = (
        spec({"name": "nibbler"}),
        spec({"name": "nibbler", "kappa": 0.5}),
        spec({"name": "nibbler"}, noisy_wind=True),
    )
    study = Study("s", "x", runs, "", {"labels": labels, "varied": []})
    assert [setting_of(run, study, ()).agent for run in runs] == ["nibbler", "fast", "windy"]


def test_kinds_of_environment_are_told_apart_without_labels() -> None:
    runs = (spec({"name": "nibbler"}, heterogeneous=False), spec({"name": "nibbler"}, heterogeneous=True))
    study = Study("s", "x", runs)
    assert len({setting_of(run, study, ()) for run in runs}) == 2


def test_a_run_under_way_is_read_as_far_as_it_is() -> None:
    runs = [spec({"name": "nibbler"}, seed=seed) for seed in range(2)]
    half = RunResult(runs[1], Path(), np.array([1000, 2000]), np.zeros(2))
    read = summarise(Study("s", "x", tuple(runs)), [finished(runs[0], 0.0), half])
    assert read.measured[0].curves.steps == 2_000
    assert not read.measured[0].complete


def test_a_run_that_has_just_begun_does_not_hide_the_finished_ones() -> None:
    runs = [spec({"name": "nibbler"}, seed=seed) for seed in range(3)]
    begun = RunResult(runs[2], Path(), np.array([1000, 2000, 3000]), np.zeros(3))
    read = summarise(Study("s", "x", tuple(runs)), [*(finished(run, 0.0) for run in runs[:2]), begun])
    (row,) = read.rows()
    assert (row.seeds, row.planned_seeds) == (2, 3)
    assert (row.steps, row.planned_steps) == (4_000, 4_000)
    just = RunResult(runs[1], Path(), np.array([1000]), np.zeros(1))
    (row,) = summarise(Study("s", "x", tuple(runs)), [finished(runs[0], 0.0), just]).rows()
    assert (row.seeds, row.steps) == (1, 4_000)


def test_settings_of_which_nothing_was_run_are_known() -> None:
    runs = [spec({"name": agent}, boards) for agent in ("nibbler", "linear") for boards in (2, 4)]
    read = summarise(Study("s", "x", tuple(runs)), [finished(runs[0], 0.0)])
    assert [p.setting for p in read.not_run] == [
        Setting("nibbler", 4),
        Setting("linear", 2),
        Setting("linear", 4),
    ]


def test_a_missing_seed_makes_a_setting_incomplete() -> None:
    runs = [spec({"name": "nibbler"}, seed=seed) for seed in range(2)]
    read = summarise(Study("s", "x", tuple(runs)), [finished(runs[0], 0.0)])
    assert not read.measured[0].complete


def test_records_with_nonsense_for_numbers_are_survived() -> None:
    run = spec({"name": "nibbler"})
    record = {"steps_per_second": "fast", "weights_touched_per_step": None}
    result = RunResult(run, Path(), np.array([1000]), np.zeros(1), record=record)
    row = summarise(Study("s", "x", (run,)), [result]).rows()[0]
    assert np.isnan(row.steps_per_second)
    assert np.isnan(row.weights_per_step)


def test_an_even_window_becomes_odd_and_a_strange_one_is_ignored() -> None:
    run = spec({"name": "nibbler"})
    for given, used in ((4, 5), (5, 5), (0, 1), ("many", 1)):
        read = summarise(Study("s", "x", (run,), "", {"window": given}), [finished(run, 0.0)])
        assert read.window == used


def test_the_random_line_does_not_depend_on_the_permutation() -> None:
    lines = RandomLines()
    values = {lines({"name": "multi_catch", "num_boards": 2, "seed": seed}) for seed in range(3)}
    assert len(values) == 1


def test_each_family_of_varied_boards_has_its_own_random_line() -> None:
    lines = RandomLines()
    varied = {"name": "multi_catch", "num_boards": 2, "heterogeneous": True}
    assert lines({**varied, "seed": 0}) != lines({**varied, "seed": 1})


@pytest.mark.parametrize(
    "environment",
    [
        {"import": "os:getcwd", "num_boards": 2},
        {"name": "multi_catch", "num_boards": 10**9},
        {"name": "multi_catch", "num_boards": "two"},
        {"name": "multi_catch", "num_boards": 2, "nonsense": 1},
        {"name": "unknown", "num_boards": 2},
    ],
)
def test_foreign_environments_have_no_random_line(environment: dict[str, Any]) -> None:
    assert random_line(environment) is None


def test_random_lines_are_remembered_in_the_folder(tmp_path: Path) -> None:
    environment = {"name": "multi_catch", "num_boards": 2}
    lines = RandomLines(tmp_path)
    value = lines(environment)
    lines.save()
    stored = json.loads((tmp_path / CACHE_FILE).read_text())
    assert list(stored.values()) == [value]
    (tmp_path / CACHE_FILE).write_text(json.dumps(dict.fromkeys(stored, 0.25)))
    assert RandomLines(tmp_path)(environment) == 0.25


def test_a_damaged_memory_of_lines_is_ignored(tmp_path: Path) -> None:
    (tmp_path / CACHE_FILE).write_text("{damaged")
    assert RandomLines(tmp_path)({"name": "multi_catch", "num_boards": 1}) == pytest.approx(
        -0.02857, abs=1e-5
    )


def test_a_study_is_read_from_its_folder(tmp_path: Path) -> None:
    results = ResultsFolder(tmp_path)
    study = Study("s", "x", (spec({"name": "nibbler"}), spec({"name": "nibbler"}, seed=1)))
    results.save_study(study)
    for number, run in enumerate(study.runs):
        folder = results.run(run)
        folder.create(run)
        columns = {"step": np.arange(1, 5) * 1000, "reward": np.full(4, 0.1 * number)}
        folder.save_table("curve", columns, {})
    read = read_study(tmp_path, study)
    assert read.measured[0].curves.rewards.mean() == pytest.approx(0.05)
