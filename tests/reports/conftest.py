"""A results folder with synthetic curves: what a study would leave, without running it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nibbler.reports.report import write_report
from nibbler.studies.spec import RunSpec, Study
from nibbler.studies.store import ResultsFolder

sys.path.append(str(Path(__file__).parent))  # for headless_browser, which tests of the page import

RANDOM_REWARD = -0.06
CROSSING_PER_BOARD = {"nibbler": 4_000, "q-learning": 2_500, "qv-learning": 2_500}


def synthetic_curve(spec: RunSpec) -> np.ndarray:
    """A curve that rises from the random line; the linear agent's does not."""
    agent = str(spec.agent.get("name"))
    boards = int(spec.environment.get("num_boards", 1))
    times = (np.arange(spec.num_bins) + 0.5) * spec.bin_size
    generator = np.random.default_rng([spec.seed, boards])
    noise = generator.normal(0, 0.003, spec.num_bins)
    if agent == "planner":
        return 0.055 + noise
    if agent not in CROSSING_PER_BOARD:
        return RANDOM_REWARD + noise
    middle = CROSSING_PER_BOARD[agent] * boards ** (1.0 if agent == "nibbler" else 1.8)
    middle *= generator.lognormal(0, 0.1)
    curve: np.ndarray = RANDOM_REWARD + 0.11 / (1 + np.exp(-(times - middle) / (0.2 * middle))) + noise
    return curve


def write_run(results: ResultsFolder, spec: RunSpec, finished: bool = True) -> None:
    """Leave what a run leaves."""
    folder = results.run(spec)
    folder.create(spec)
    curve = synthetic_curve(spec)
    if not finished:
        curve = curve[: len(curve) // 2]
    step = (np.arange(len(curve)) + 1) * spec.bin_size
    folder.save_table("curve", {"step": step, "reward": curve}, {"id": spec.id})
    if spec.agent.get("name") == "nibbler":
        write_snapshots(results, spec)
    if finished:
        folder.save_record(
            {
                "engine": "cpu",
                "steps_per_second": 100_000.0,
                "seconds": 1.5,
                "weights_touched_per_step": 5000.0,
                "versions": {"nibbler": "0.1.0"},
                "machine": {"processor": "test"},
            }
        )


def write_snapshots(results: ResultsFolder, spec: RunSpec) -> None:
    """Selections that begin at random and end with each question on its own board."""
    boards = int(spec.environment["num_boards"])
    bits, questions, inputs = 6, 2 * boards, 6
    generator = np.random.default_rng(spec.seed)
    component = generator.permutation(np.repeat(np.arange(boards), bits)).astype(np.int32)
    chosen = []
    for t in range(10):
        for question in range(questions):
            own = np.flatnonzero(component == question % boards)
            chosen.append(own if t >= 5 else generator.choice(boards * bits, inputs, replace=False))
    folder = results.run(spec)
    columns = {
        "step": np.repeat(np.linspace(0, spec.steps, 10).astype(np.int64), questions),
        "question": np.tile(np.arange(questions, dtype=np.int32), 10),
        "cumulant": np.array([row[0] for row in chosen], dtype=np.int32),
        "inputs": np.array(chosen, dtype=np.int32),
    }
    folder.save_table("snapshots", columns, {})
    names = [f"bit{k}" for k in range(boards * bits)]
    features = {"feature": np.arange(boards * bits, dtype=np.int32), "name": names, "component": component}
    folder.save_table("features", features, {})


@pytest.fixture
def results_folder(tmp_path: Path) -> Callable[..., Path]:
    """Make a results folder that holds these studies."""

    def make(*studies: Study, finished: bool = True) -> Path:
        return write_results(tmp_path / "results", *studies, finished=finished)

    return make


def write_results(path: Path, *studies: Study, finished: bool = True) -> Path:
    """What running these studies would leave in a folder."""
    results = ResultsFolder(path)
    for study in studies:
        results.save_study(study)
        for spec in study.runs:
            write_run(results, spec, finished)
    return path


def small_study(name: str = "curves", boards: tuple[int, ...] = (2, 4, 8), steps: int = 60_000) -> Study:
    """Nibbler and the baselines, with steps enough for the synthetic curves."""
    agents = ("nibbler", "q-learning", "qv-learning", "linear")
    runs = [
        RunSpec(
            {"name": "multi_catch", "num_boards": n, "seed": seed}, {"name": agent}, steps, seed, "cpu", 1_000
        )
        for n in boards
        for agent in (*agents, "planner")
        for seed in range(3)
    ]
    reading = {"window": 3, "figures": ["curves", "scaling", "compute", "discovery"]}
    return Study(name, "test", tuple(runs), "How does it go?", reading)


@pytest.fixture
def make_study() -> Callable[..., Study]:
    return small_study


@pytest.fixture(scope="session")
def leave_snapshots() -> Callable[[ResultsFolder, RunSpec], None]:
    return write_snapshots


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report page of a study on 2 and 4 boards."""
    return write_report(write_results(tmp_path_factory.mktemp("page"), small_study(boards=(2, 4))))
