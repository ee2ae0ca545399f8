"""The paper's studies as data: sizes, shared runs, and grids that can show their claims."""

from __future__ import annotations

import hashlib

import pytest

from nibbler.agents.config import NibblerConfig
from nibbler.agents.registry import default_config
from nibbler.studies.claims import CLAIMS
from nibbler.studies.paper import STUDIES, paper_study
from nibbler.studies.paper_grids import DEPARTURES, LITERAL
from nibbler.studies.paper_runs import PAPER_STEPS, RAINBOW_STEPS, nibbler_agent, nibbler_on_32, q_agent
from nibbler.studies.reading import agent_name, agent_value, setting_of
from nibbler.studies.spec import RunSpec

EVERY = [(name, size) for name, study in STUDIES.items() for size in study.sizes]


@pytest.mark.parametrize("name, size", EVERY)
def test_every_study_has_runs_seeds_and_a_planner_line(name: str, size: str) -> None:
    study = STUDIES[name].study(size)
    assert len(study.runs) > 4
    learners = [run for run in study.runs if agent_name(run) != "planner"]
    sizes = {run.environment["num_boards"] for run in learners}
    assert {r.environment["num_boards"] for r in study.runs if agent_name(r) == "planner"} >= sizes
    first_runs = set(nibbler_on_32())  # which share one permutation
    assert all(run.environment["seed"] == run.seed for run in study.runs if run not in first_runs)


@pytest.mark.parametrize("name, size", EVERY)
def test_every_agent_setting_is_one_that_the_agent_has(name: str, size: str) -> None:
    for run in STUDIES[name].study(size).runs:
        for setting in run.agent:
            if setting != "name":
                assert agent_value(run, setting) == run.agent[setting]


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_bears_on_a_claim_and_knows_its_figures(name: str) -> None:
    from nibbler.reports.catalogue import FIGURES

    assert CLAIMS[name]
    assert set(STUDIES[name].figures) <= {*FIGURES, "discovery"}


def test_claims_belong_to_studies() -> None:
    assert set(CLAIMS) == set(STUDIES)


def test_scaling_reads_the_runs_of_curves() -> None:
    for size in ("smoke", "laptop", "paper"):
        assert STUDIES["scaling"].study(size).runs == STUDIES["curves"].study(size).runs


@pytest.mark.parametrize("name", ["hidden-units", "questions", "swap-threshold", "inputs", "fixed-nibbler"])
def test_sweeps_share_the_default_setting_with_curves(name: str) -> None:
    for size in ("laptop", "paper"):
        shared = set(STUDIES[name].study(size).runs) & set(STUDIES["curves"].study(size).runs)
        assert any(agent_name(run) == "nibbler" for run in shared)


def test_without_a_threshold_the_threshold_study_is_the_study_of_questions() -> None:
    for size in ("smoke", "laptop", "paper"):
        study, other = (STUDIES[name].study(size) for name in ("swap-threshold", "questions"))
        without = {run for run in study.runs if agent_value(run, "cumulant_threshold") in (0.0, None)}
        assert without < set(study.runs)
        assert without <= set(other.runs)


def test_smoke_is_small_enough_for_tests() -> None:
    for study in STUDIES.values():
        assert sum(run.steps for run in study.study("smoke").runs) <= 500_000


def test_the_paper_size_is_the_papers() -> None:
    study = STUDIES["curves"].study("paper")
    counts = {
        agent: len([r for r in study.runs if agent_name(r) == agent]) for agent in ("nibbler", "rainbow")
    }
    assert counts == {"nibbler": 3 * len(PAPER_STEPS) + 1, "rainbow": 2 * len(RAINBOW_STEPS)}
    assert sorted({run.environment["num_boards"] for run in study.runs}) == [2, 4, 8, 16, 32, 64, 128]
    assert PAPER_STEPS[32] == 40_000_000
    sweep = STUDIES["q-sweep"].study("paper")
    assert {agent_value(r, "hidden_units") for r in sweep.runs if agent_name(r) == "q-learning"} >= {4096}
    assert {run.environment["num_boards"] for run in sweep.runs} == {8, 32}


def test_rainbow_runs_on_jax_and_at_the_papers_size_only() -> None:
    for size in ("smoke", "laptop"):
        assert all(agent_name(run) != "rainbow" for run in STUDIES["curves"].study(size).runs)
    rainbow = [r for r in STUDIES["curves"].study("paper").runs if agent_name(r) == "rainbow"]
    assert {run.engine for run in rainbow} == {"jax"}


def test_defaults_are_left_out_so_that_runs_are_shared() -> None:
    assert nibbler_agent(8, num_questions=16, hidden_units=256, inputs_per_question=82) == {"name": "nibbler"}
    assert nibbler_agent(8, num_questions=4) == {"name": "nibbler", "num_questions": 4}
    assert q_agent(hidden_units=256, step_size=0.001, momentum=0.99) == {"name": "q-learning"}


def nibbler_config(run: RunSpec) -> NibblerConfig:
    """What a run's Nibbler is, its defaults filled in."""
    n = run.environment["num_boards"]
    settings = {key: value for key, value in run.agent.items() if key != "name"}
    config = default_config("nibbler", n, 56 * n, **settings)
    assert isinstance(config, NibblerConfig)
    return config


def test_the_open_choices_are_the_default_one_departure_at_a_time_and_the_literal_reading() -> None:
    problems = {("paper", 8): (3, 16_000_000), ("paper", 32): (2, 40_000_000), ("laptop", 4): (3, 8_000_000)}
    for (size, n), (seeds, steps) in problems.items():
        study = STUDIES["open-choices"].study(size)
        groups: dict[str, list[NibblerConfig]] = {}
        for run in study.runs:
            if agent_name(run) == "nibbler" and run.environment["num_boards"] == n:
                groups.setdefault(setting_of(run, study, ()).agent, []).append(nibbler_config(run))
                assert run.steps == steps
        default = NibblerConfig.for_boards(n, 56 * n)
        assert {len(configs) for configs in groups.values()} == {seeds}
        assert groups.pop("nibbler")[0] == default
        assert groups.pop(LITERAL)[0] == NibblerConfig.literal(n, 56 * n)
        assert {name: configs[0] for name, configs in groups.items()} == {
            name: default.replace(**settings) for name, settings in DEPARTURES.items()
        }


def test_one_step_beyond_the_paper_shares_its_smaller_sizes_with_curves() -> None:
    study = STUDIES["beyond"].study("paper")
    ours = [run for run in study.runs if agent_name(run) == "nibbler"]
    new = [run for run in ours if run.environment["num_boards"] > 128]
    assert sorted((run.environment["num_boards"], run.steps) for run in new) == [
        *[(256, 350_000_000)] * 2,
        *[(512, 950_000_000)] * 2,
    ]
    assert set(ours) - set(new) < set(STUDIES["curves"].study("paper").runs)


def test_a_constant_step_size_changes_the_main_learner_alone() -> None:
    study = STUDIES["step-size"].study("paper")
    for run in study.runs:
        if setting_of(run, study, ()).agent == "constant step size":
            n = run.environment["num_boards"]
            table_1 = NibblerConfig.for_boards(n, 56 * n)
            config = nibbler_config(run)
            assert config.main_alpha == pytest.approx(NibblerConfig.for_boards(8).main_alpha)
            assert config == table_1.replace(step_size=config.step_size)
            assert config.linear_alpha == table_1.linear_alpha
        elif agent_name(run) == "nibbler":
            assert run in STUDIES["curves"].study("paper").runs


def test_the_runs_of_a_study_keep_their_ids() -> None:
    """Results are stored under these: a change here orphans them."""
    ids = {
        "curves": "fe583081",
        "q-sweep": "8deeb269",
        "hidden-units": "f65546c7",
        "heterogeneous": "9b8aabd1",
        "fixed-nibbler": "8753f0c9",
        "questions": "9923b9ef",
        "swap-threshold": "4cb39f9b",
        "inputs": "0c1a3b42",
        "open-choices": "555bc1a9",
        "step-size": "bef8ed15",
        "beyond": "f7453fd1",
    }
    found = {}
    for name in ids:
        joined = "".join(run.id for run in STUDIES[name].study("paper").runs)
        found[name] = hashlib.sha256(joined.encode()).hexdigest()[:8]
    assert found == ids


def test_an_unknown_study_or_size_is_refused_with_what_there_is() -> None:
    with pytest.raises(ValueError, match="there is no study 'curve'; the studies are quickstart, curves"):
        paper_study("curve")
    with pytest.raises(ValueError, match="quickstart has no size 'paper'; choose smoke, laptop"):
        paper_study("quickstart").study("paper")
