"""Copying what is worth keeping of a results folder: small, and enough for every report.

Kept of a run: its spec, its record, and its curve (step and reward alone, the same numbers packed tightly);
while it is unfinished, its timing as well. Snapshots and features are kept for one seed of each setting, and
only where a study draws the discovery map. Checkpoints, locks, progress and event files stay behind.

A folder may be copied into again and again, also from several machines: a finished run is never replaced,
an unfinished one only by one that has come further. Pruned, it holds what its studies list, and ours as they
are now.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from nibbler.studies.files import make_folder, write_bytes
from nibbler.studies.paper import STUDIES
from nibbler.studies.reading import agent_name
from nibbler.studies.spec import RunSpec, Study, canonical_json
from nibbler.studies.store import ResultsFolder, RunFolder

MAP_FIGURE = "discovery"
_MAP_FILES = ("snapshots.parquet", "features.parquet")


@dataclass(frozen=True)
class Kept:
    """What a copy did, in numbers of runs."""

    copied: int
    unchanged: int  # the target has as much of it
    unfinished: int  # of those copied
    empty: int  # no curve yet
    pruned: int  # gone from the target, since no study lists them


def keep_results(source: str | Path, target: str | Path, prune: bool = False) -> Kept:
    """Merge the results in `source` into `target`, leaving out what no report reads.

    With `prune`, a study of the target that comes with the library becomes what it is now, one that is in
    `source` what it is there, and runs that no study lists go.
    """
    origin, goal = ResultsFolder(source), ResultsFolder(target)
    if origin.path.resolve() == goal.path.resolve():
        raise ValueError(f"{source} cannot be kept in itself; give another folder")
    if not (origin.path / "runs").is_dir():
        raise ValueError(f"{source} holds no runs; give the folder that `nibbler study run` wrote to")
    make_folder(goal.path / "runs")
    known = {study.file_name: study for study in goal.studies()}
    for study in origin.studies():
        goal.save_study(study if prune else _merged(study, known.get(study.file_name)))
    if prune:
        _renew(goal)
    studies = [entry.study(size) for entry in STUDIES.values() for size in entry.sizes] + goal.studies()
    listed = {spec.id for study in studies for spec in study.runs}
    pruned = _forget(goal, listed) if prune else 0
    mapped = _mapped(studies)
    copied = unchanged = unfinished = empty = 0
    for run in origin.runs():
        spec = run.spec()
        kept = goal.run(spec)
        if prune and spec.id not in listed:
            continue
        if not (run.path / "curve.parquet").exists():
            empty += 1
        elif _is_ahead(run, kept):
            _copy(run, kept, spec, with_map=_map_is_wanted(goal, mapped, spec))
            copied += 1
            unfinished += not run.finished
        else:
            unchanged += 1
    return Kept(copied, unchanged, unfinished, empty, pruned)


def _renew(goal: ResultsFolder) -> None:
    """Let those of its studies that come with the library be what they are now."""
    for study in goal.studies():
        ours = STUDIES.get(study.name)
        if ours is not None and study.size in ours.sizes:
            goal.save_study(ours.study(study.size))


def _forget(goal: ResultsFolder, listed: set[str]) -> int:
    """Remove the runs that are not listed; returns how many."""
    unlisted = [run for run in goal.runs() if run.spec().id not in listed]
    for run in unlisted:
        shutil.rmtree(run.path)
    return len(unlisted)


def _merged(study: Study, known: Study | None) -> Study:
    """A study with the runs that either folder lists for it."""
    runs = (*study.runs, *(known.runs if known is not None else ()))
    return Study(study.name, study.size, runs, study.description, study.reading)


def _is_ahead(run: RunFolder, kept: RunFolder) -> bool:
    if kept.finished or not (kept.path / "curve.parquet").exists():
        return not kept.finished
    return run.finished or len(run.result().reward) > len(kept.result().reward)


def _copy(run: RunFolder, kept: RunFolder, spec: RunSpec, with_map: bool) -> None:
    """Everything else first and the record last, which marks a run as finished and has sums of the files."""
    if altered := run.altered():
        raise ValueError(
            f"{run.path} has the record of a finished run, but not the {' and '.join(altered)} that it was "
            "written with: files of two states were mixed, or damaged; delete it, or copy the run again as a "
            "whole"
        )
    result = run.result()
    kept.create(spec)
    about = {"id": spec.id, "label": spec.label}
    kept.save_table("curve", {"step": result.step, "reward": result.reward}, about)
    names = [*(_MAP_FILES if with_map else ()), *(() if run.finished else ("timing.parquet",))]
    for name in names:
        if (run.path / name).exists():
            write_bytes(kept.path / name, (run.path / name).read_bytes())
    if result.record is not None:
        (kept.path / "timing.parquet").unlink(missing_ok=True)
        kept.save_record(result.record)


def _mapped(studies: Iterable[Study]) -> dict[str, set[str]]:
    """Settings whose discovery map a study draws, with the ids of its runs."""
    found: dict[str, set[str]] = {}
    for study in studies:
        figures = study.reading.get("figures", [MAP_FIGURE])
        if isinstance(figures, list) and MAP_FIGURE in figures:
            for spec in study.runs:
                if agent_name(spec) == "nibbler":
                    found.setdefault(_setting(spec), set()).add(spec.id)
    return found


def _setting(spec: RunSpec) -> str:
    environment = {key: value for key, value in spec.environment.items() if key != "seed"}
    return canonical_json({**spec.to_dict(), "environment": environment, "seed": None})


def _map_is_wanted(goal: ResultsFolder, mapped: dict[str, set[str]], spec: RunSpec) -> bool:
    """Whether this run is the one of its setting whose selections are kept: the first that has them."""
    others = mapped.get(_setting(spec), set()) - {spec.id}
    if spec.id not in mapped.get(_setting(spec), set()):
        return False
    return not any(_has_map(goal, run_id) for run_id in others)


def _has_map(goal: ResultsFolder, run_id: str) -> bool:
    return any((goal.path / "runs").glob(f"*-{run_id}/snapshots.parquet"))
