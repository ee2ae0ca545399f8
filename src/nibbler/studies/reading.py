"""From a results folder to what a study found: runs that differ only by seed become one setting.

How a study is read is part of the study (its `reading` table), so that a figure can always be made again:

    threshold   reward that counts as success, 0 by default
    window      bins of the centred moving average under TimestepsToThreshold, 1 by default
    varied      agent settings that tell settings apart; found by comparing the runs where it is not given
    labels      names for variants: [{"label": "nibbler+", "agent": {...}, "environment": {...}}]
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nibbler.agents.registry import AGENT_NAMES, default_config
from nibbler.studies.lines import RandomLines
from nibbler.studies.metrics import CurveSet
from nibbler.studies.results import Lines, Measured, Planned, Setting, StudyResults
from nibbler.studies.spec import RunSpec, Study, canonical_json
from nibbler.studies.store import ResultsFolder, RunResult

LINE_AGENTS = ("planner", "random")  # their runs are lines in the figures, not curves
_SCALE_KEYS = ("name", "import", "num_boards", "seed")


def read_study(folder: str | Path, study: Study) -> StudyResults:
    """What there is of a study in a results folder, also while runs are still under way."""
    results = ResultsFolder(folder)
    random_lines = RandomLines(Path(folder))
    found = summarise(study, results.results(study), random_lines)
    random_lines.save()
    return found


def summarise(
    study: Study, runs: Iterable[RunResult], random_lines: RandomLines | None = None
) -> StudyResults:
    """Group runs into settings and join them with their lines."""
    random_lines = random_lines or RandomLines()
    by_id = {run.spec.id: run for run in runs}
    varied = varied_names(study)
    planners = _planner_rewards(study, by_id)
    planned: dict[Setting, list[RunSpec]] = {}
    for spec in study.runs:
        if agent_name(spec) not in LINE_AGENTS:
            planned.setdefault(setting_of(spec, study, varied), []).append(spec)
    measured = []
    for setting, specs in planned.items():
        present = [
            by_id[spec.id]
            for spec in specs
            if spec.id in by_id and len(by_id[spec.id].reward) > 0 and spec.bin_size == specs[0].bin_size
        ]
        if present:
            lines = _lines(specs, planners, random_lines)
            measured.append(_measure(setting, specs, _readable_together(present), lines))
    return StudyResults(
        study.name,
        study.description or study.name,
        tuple(measured),
        threshold=_number(study.reading.get("threshold"), 0.0),
        window=max(1, int(_number(study.reading.get("window"), 1.0)) | 1),
        planned=tuple(Planned(setting, len(specs), specs[0].steps) for setting, specs in planned.items()),
    )


def _readable_together(runs: list[RunResult]) -> list[RunResult]:
    """The runs of a setting to read as one, cut to what all of them have.

    Two finished runs or more are read alone. Before that it is as many of the longest ones as give the most
    steps in all, so that a run which has just begun does not hide the others.
    """
    finished = [run for run in runs if run.finished]
    if len(finished) > 1:
        return finished
    longest = sorted((len(run.reward) for run in runs), reverse=True)
    best = max(range(len(runs)), key=lambda k: ((k + 1) * longest[k], k))
    return [run for run in runs if len(run.reward) >= longest[best]]


def agent_name(spec: RunSpec) -> str:
    """An agent's name, or the last part of its import path."""
    return str(spec.agent.get("name") or str(spec.agent.get("import")).rpartition(":")[2])


def varied_names(study: Study) -> tuple[str, ...]:
    """Agent settings that tell this study's settings apart: as the study says, or those that differ."""
    named = study.reading.get("varied")
    if isinstance(named, list) and all(isinstance(name, str) for name in named):
        return tuple(named)
    values: dict[tuple[str, str], set[str]] = {}
    for spec in study.runs:
        others = [s for s in study.runs if agent_name(s) == agent_name(spec)]
        for key in {key for other in others for key in other.agent if key not in ("name", "import")}:
            values.setdefault((agent_name(spec), key), set()).add(canonical_json(spec.agent.get(key)))
    return tuple(sorted({key for (_, key), seen in values.items() if len(seen) > 1}))


def setting_of(spec: RunSpec, study: Study, varied: Sequence[str]) -> Setting:
    """The group that a run belongs to."""
    label = agent_name(spec)
    for entry in _labels(study):
        if _matches(spec.agent, entry.get("agent")) and _matches(spec.environment, entry.get("environment")):
            label = str(entry["label"])
            break
    else:
        differing = _environment_differences(spec, study)
        label += f" ({differing})" if differing else ""
    boards = spec.environment.get("num_boards")
    values = []
    for name in varied:
        value = agent_value(spec, name)
        if value is not None:
            values.append((name, value if isinstance(value, (int, float, str)) else canonical_json(value)))
    return Setting(label, boards if isinstance(boards, int) else 1, tuple(sorted(values)))


def agent_value(spec: RunSpec, name: str) -> Any:
    """A setting of a run's agent, with the default that its name stands for where the spec leaves it out."""
    if name in spec.agent:
        return spec.agent[name]
    boards = spec.environment.get("num_boards")
    if spec.agent.get("name") not in AGENT_NAMES or not isinstance(boards, int):
        return None
    settings = {key: value for key, value in spec.agent.items() if key != "name"}
    try:
        config = default_config(str(spec.agent["name"]), boards, 56 * boards, **settings)
    except (ValueError, TypeError, ImportError):
        return None
    return getattr(config, name, None)


def _labels(study: Study) -> list[Mapping[str, Any]]:
    entries = study.reading.get("labels", [])
    if not isinstance(entries, list):
        return []
    return [entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("label"), str)]


def _matches(table: Mapping[str, Any], wanted: Any) -> bool:
    """Whether a table has all the values that are wanted of it."""
    if not isinstance(wanted, dict):
        return True
    return all(canonical_json(table.get(key)) == canonical_json(value) for key, value in wanted.items())


def _environment_differences(spec: RunSpec, study: Study) -> str:
    """What sets this run's environment apart in a study with several kinds, in words."""
    differing = []
    for key in sorted(spec.environment):
        if key in _SCALE_KEYS:
            continue
        seen = {canonical_json(other.environment.get(key)) for other in study.runs}
        if len(seen) > 1:
            differing.append(f"{key.replace('_', ' ')} {spec.environment[key]}")
    return ", ".join(differing)


def environment_key(environment: Mapping[str, Any]) -> str:
    """Environments that are alike but for their seed."""
    return canonical_json({key: value for key, value in environment.items() if key != "seed"})


def _planner_rewards(study: Study, by_id: Mapping[str, RunResult]) -> dict[str, list[float]]:
    rewards: dict[str, list[float]] = {}
    for spec in study.runs:
        run = by_id.get(spec.id)
        if agent_name(spec) == "planner" and run is not None and run.finished and len(run.reward) > 0:
            rewards.setdefault(environment_key(spec.environment), []).append(float(run.reward.mean()))
    return rewards


def _lines(specs: Sequence[RunSpec], planners: Mapping[str, list[float]], random_lines: RandomLines) -> Lines:
    exact = [random_lines(spec.environment) for spec in specs]
    known = [value for value in exact if value is not None]
    planner = planners.get(environment_key(specs[0].environment))
    return Lines(
        random=sum(known) / len(known) if known and len(known) == len(exact) else None,
        planner=sum(planner) / len(planner) if planner else None,
    )


def _measure(setting: Setting, specs: list[RunSpec], runs: list[RunResult], lines: Lines) -> Measured:
    whole = [np.asarray(run.reward)[: int(run.spec.steps // run.spec.bin_size)] for run in runs]
    records = [run.record for run in runs if run.record is not None]
    return Measured(
        setting,
        CurveSet.from_runs(whole, specs[0].bin_size),
        lines,
        weights_per_step=_mean(_number(r.get("weights_touched_per_step"), math.nan) for r in records),
        seconds_per_step=_mean(
            1.0 / s for r in records if (s := _number(r.get("steps_per_second"), math.nan)) > 0
        ),
        engine=next(iter(engines)) if len(engines := {str(r.get("engine")) for r in records}) == 1 else None,
        planned_steps=specs[0].num_bins * specs[0].bin_size
        if specs[0].steps % specs[0].bin_size == 0
        else None,
        planned_seeds=len(specs),
    )


def _number(value: Any, default: float) -> float:
    """A number from a file that anybody may have written."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return default
    return float(value)


def _mean(values: Iterable[float]) -> float:
    known = [value for value in values if math.isfinite(value)]
    return sum(known) / len(known) if known else math.nan
