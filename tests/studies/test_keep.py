"""Keeping results: small, mergeable, and never losing what is finished."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nibbler.studies.keep import keep_results
from nibbler.studies.paper import STUDIES
from nibbler.studies.reading import read_study
from nibbler.studies.runners import run_study
from nibbler.studies.spec import RunSpec, Study
from nibbler.studies.store import ResultsFolder, RunFolder

SPECS = tuple(
    RunSpec({"name": "multi_catch", "num_boards": 2, "seed": s}, {"name": a}, 9_000, s, "cpu", 1_000)
    for a in ("nibbler", "q-learning")
    for s in range(3)
)
STUDY = Study("mine", "test", SPECS, "", {"figures": ["curves", "discovery"]})


def leave(
    path: Path, bins: int | None = None, study: Study = STUDY, only: Iterable[int] = range(6)
) -> ResultsFolder:
    """What `nibbler study run` would leave after that many bins, or at the end."""
    results = ResultsFolder(path)
    results.save_study(study)
    for k in only:
        write_run(results.run(study.runs[k]), study.runs[k], bins)
    return results


def write_run(folder: RunFolder, spec: RunSpec, bins: int | None = None) -> None:
    folder.create(spec)
    all_bins = spec.steps // 1_000
    bins = all_bins if bins is None else bins
    steps = np.arange(1, bins + 1) * 1_000
    rewards = np.random.default_rng(spec.seed).normal(size=all_bins).round(4)[:bins]
    about: dict[str, Any] = {}
    curve = {"step": steps, "reward": rewards, "weights_touched": np.sqrt(np.arange(bins))}
    folder.save_table("curve", curve, about)
    folder.save_table("timing", {"step": steps, "seconds": np.arange(bins) + 0.5}, about)
    folder.save_table("snapshots", {"step": np.array([0, 0]), "cumulant": np.array([1, 2])}, about)
    folder.save_table("features", {"feature": np.arange(3), "component": np.arange(3)}, about)
    for name in ("lock", "progress.json", f"checkpoint-{bins * 1000:012d}.npz"):
        (folder.path / name).write_bytes(b"{}")
    if bins == all_bins:
        folder.save_record({"engine": "cpu", "seconds": 2.0, "steps_per_second": 4500.0})


def files(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


def test_the_kept_folder_reads_the_same_and_holds_nothing_that_a_report_does_not_read(tmp_path: Path) -> None:
    source = leave(tmp_path / "source")
    kept = keep_results(source.path, tmp_path / "kept")
    assert (kept.copied, kept.unfinished, kept.empty) == (6, 0, 0)
    before, after = (read_study(path, STUDY).rows() for path in (source.path, tmp_path / "kept"))
    assert repr(after) == repr(before)
    names = {p.name for p in (tmp_path / "kept" / "runs").rglob("*") if p.is_file()}
    assert names == {"spec.json", "record.json", "curve.parquet", "snapshots.parquet", "features.parquet"}


def test_selections_are_kept_of_one_seed_where_a_study_draws_them(tmp_path: Path) -> None:
    leave(tmp_path / "source")
    for _ in range(2):
        keep_results(tmp_path / "source", tmp_path / "kept")
        found = [p.parent.name for p in (tmp_path / "kept").rglob("snapshots.parquet")]
        assert len(found) == 1
        assert found[0].startswith("nibbler")
    without = Study("mine", "test", SPECS, "", {"figures": ["curves"]})
    leave(tmp_path / "plain", study=without)
    keep_results(tmp_path / "plain", tmp_path / "kept-plain")
    assert not list((tmp_path / "kept-plain").rglob("snapshots.parquet"))


def test_keeping_again_changes_nothing(tmp_path: Path) -> None:
    leave(tmp_path / "source")
    keep_results(tmp_path / "source", tmp_path / "kept")
    before = files(tmp_path / "kept")
    again = keep_results(tmp_path / "source", tmp_path / "kept")
    assert (again.copied, again.unchanged) == (0, 6)
    assert files(tmp_path / "kept") == before


def test_what_is_missing_of_kept_results_can_be_run_there_and_nothing_else_is_touched(tmp_path: Path) -> None:
    kept = ResultsFolder(tmp_path / "kept")
    keep_results(leave(tmp_path / "source", only=range(4)).path, kept.path)
    keep_results(leave(tmp_path / "begun", bins=4, only=[4]).path, kept.path)  # without its checkpoint
    before = files(kept.path / "runs")
    assert run_study(STUDY, kept.path, workers=1).complete
    after = files(kept.path / "runs")
    finished = {name for spec in SPECS[:4] for name in before if spec.folder_name in name}
    assert {name: after[name] for name in finished} == {name: before[name] for name in finished}
    curves = [kept.run(spec).result() for spec in SPECS[4:]]
    assert [(run.finished, list(run.step)) for run in curves] == [(True, list(range(1000, 9001, 1000)))] * 2
    assert not np.isin(curves[0].reward[:4], leave(tmp_path / "again").run(SPECS[4]).result().reward).any()


def test_a_finished_run_is_never_replaced_by_an_unfinished_one(tmp_path: Path) -> None:
    leave(tmp_path / "done", only=(0,))
    leave(tmp_path / "begun", bins=4)
    keep_results(tmp_path / "done", tmp_path / "kept")
    keep_results(tmp_path / "begun", tmp_path / "kept")
    results = ResultsFolder(tmp_path / "kept").results(STUDY)
    assert [len(run.reward) for run in results] == [9, 4, 4, 4, 4, 4]
    assert [run.finished for run in results] == [True] + [False] * 5


def test_an_unfinished_run_gives_way_to_one_that_came_further_and_not_back(tmp_path: Path) -> None:
    for name, bins in (("early", 3), ("later", 5), ("end", 9)):
        leave(tmp_path / name, bins=bins)
    run = ResultsFolder(tmp_path / "kept").run(SPECS[0])
    for name, bins in (("early", 3), ("later", 5), ("early", 5), ("end", 9), ("later", 9)):
        keep_results(tmp_path / name, tmp_path / "kept")
        result = run.result()
        assert len(result.reward) == bins
        assert (run.path / "timing.parquet").exists() is (bins < 9)
        if bins < 9:
            assert result.seconds is not None
            assert result.seconds[-1] == bins - 0.5
    assert run.finished


def test_the_lists_of_a_study_from_two_machines_are_joined(tmp_path: Path) -> None:
    for name, part in (("here", SPECS[:2]), ("there", SPECS[2:])):
        study = Study("mine", "test", part, "", STUDY.reading)
        leave(tmp_path / name, study=study, only=tuple(range(len(part))))
        keep_results(tmp_path / name, tmp_path / "kept")
    (study,) = ResultsFolder(tmp_path / "kept").studies()
    assert set(study.runs) == set(SPECS)


def test_what_cannot_be_kept_is_refused_in_a_line(tmp_path: Path) -> None:
    leave(tmp_path / "source")
    with pytest.raises(ValueError, match="cannot be kept in itself"):
        keep_results(tmp_path / "source", tmp_path / "source" / ".." / "source")
    with pytest.raises(ValueError, match="holds no runs"):
        keep_results(tmp_path / "nothing", tmp_path / "kept")


def test_pruning_forgets_what_no_study_lists_and_keeps_what_ours_do(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    keep_results(leave(tmp_path / "source").path, kept)
    ours = STUDIES["quickstart"].study("smoke")
    older = Study(ours.name, ours.size, (SPECS[0], *ours.runs), "", ours.reading)  # as it once was
    keep_results(leave(tmp_path / "ours", study=older, only=(1, 2)).path, kept)
    shorter = Study(STUDY.name, STUDY.size, SPECS[2:5], "", STUDY.reading)
    source = leave(tmp_path / "shorter", study=shorter, only=()).path
    assert keep_results(source, kept).pruned == 0
    assert len(list(ResultsFolder(kept).runs())) == 8
    write_run(ResultsFolder(source).run(SPECS[0]), SPECS[0])  # there, but in no study
    assert keep_results(source, kept, prune=True).pruned == 3
    left = {run.spec().id for run in ResultsFolder(kept).runs()}
    assert left == {spec.id for spec in (*SPECS[2:5], *ours.runs[:2])}
    assert {study.name: study.runs for study in ResultsFolder(kept).studies()} == {
        "mine": SPECS[2:5],
        "quickstart": ours.runs,
    }


def test_a_finished_run_with_the_curve_of_an_earlier_state_is_refused(tmp_path: Path) -> None:
    source = leave(tmp_path / "source")
    half = leave(tmp_path / "half", bins=5)
    mixed = source.run(SPECS[4]).path
    (mixed / "curve.parquet").write_bytes((half.run(SPECS[4]).path / "curve.parquet").read_bytes())
    with pytest.raises(ValueError, match=rf"{mixed.name} has the record.* not the curve.parquet that"):
        keep_results(source.path, tmp_path / "kept")
    assert not ResultsFolder(tmp_path / "kept").run(SPECS[4]).finished
