"""What runs cost: steps, seconds and where, and how long the same would take in plain JAX.

Runs that were packed side by side on a GPU record their part of its time as `device_seconds`. Older records
and runs under way have only the seconds of the whole pack, to the millisecond, so equal times over equal
steps tell who shared a launch; each is then given its share.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nibbler.studies.files import read_json
from nibbler.studies.spec import RunSpec
from nibbler.studies.store import ResultsFolder, RunResult

PACKING_ENGINES = ("cuda", "jax", None)  # None: not told, since the run is unfinished
PackKey = tuple[Any, ...]


@dataclass(frozen=True)
class Stretch:
    """A part of a run that was computed in one place."""

    device: str | None
    steps: int
    seconds: float  # the run's share, where it was packed


@dataclass(frozen=True)
class RunCost:
    """What one run has cost so far."""

    spec: RunSpec
    steps: int
    engine: str | None
    stretches: tuple[Stretch, ...]
    finished: bool

    @property
    def seconds(self) -> float:
        """Of all stretches."""
        return sum(stretch.seconds for stretch in self.stretches)


def run_costs(runs: Iterable[RunResult]) -> dict[str, RunCost]:
    """The cost of every run by its id. Packs are found among these runs, so hand in a whole folder."""
    known = {run.spec.id: (run, _segments(run)) for run in runs}
    members = Counter(key for _, segments in known.values() for key, _, _ in segments)
    return {
        run_id: RunCost(
            run.spec,
            run.steps,
            _engine(run),
            tuple(
                replace(whole, seconds=whole.seconds / (members[key] if shared else 1))
                for key, whole, shared in segments
            ),
            run.finished,
        )
        for run_id, (run, segments) in known.items()
    }


def folder_results(folder: str | Path) -> dict[str, RunResult]:
    """Every run of a results folder that has a curve, by its id."""
    results = ResultsFolder(folder)
    found = (run.result() for run in results.runs() if (run.path / "curve.parquet").exists())
    return {run.spec.id: run for run in found}


def _segments(run: RunResult) -> list[tuple[PackKey, Stretch, bool]]:
    """Stretches of work, each with a key that the members of a pack have in common, and whether its seconds
    are the pack's, to be shared."""
    engine = _engine(run)
    if run.record is None:
        seconds = float(run.seconds[-1]) if run.seconds is not None and len(run.seconds) else 0.0
        parts: list[dict[str, Any]] = [{"from": 0, "to": run.steps, "seconds": round(seconds, 3)}]
    else:
        whole = {"from": 0, "to": run.record.get("steps"), "seconds": run.record.get("seconds")}
        listed = run.record.get("segments")
        parts = [part for part in listed if isinstance(part, dict)] if isinstance(listed, list) else [whole]
    own = () if engine in PACKING_ENGINES else (run.spec.id,)
    return [
        (
            (engine, *own, part.get("from"), part.get("to"), part["seconds"]),
            Stretch(
                _device(run, part),
                int(part.get("to") or 0) - int(part.get("from") or 0),
                float(part.get("device_seconds", part["seconds"])),
            ),
            "device_seconds" not in part,
        )
        for part in parts
        if isinstance(part.get("seconds"), (int, float))
    ]


def _engine(run: RunResult) -> str | None:
    return None if run.record is None else str(run.record.get("engine"))


def _device(run: RunResult, part: Mapping[str, Any]) -> str | None:
    """The GPU where the engine uses it and the record names it, else the processor.

    A run may go on elsewhere; what a part does not tell, it has in common with the whole.
    """
    if run.record is None:
        return None
    machine = part.get("machine", run.record.get("machine"))
    machine = machine if isinstance(machine, dict) else {}
    gpu = part.get("device") or run.record.get("device") or machine.get("gpu")
    if run.record.get("engine") == "cuda":
        return str(gpu or "a GPU that the record does not name")
    if run.record.get("engine") == "jax" and gpu:
        return str(gpu)
    return str(machine.get("processor") or "a processor that the record does not name")


@dataclass(frozen=True)
class PlainJax:
    """Measured speed of a plain JAX implementation of Nibbler, by number of boards."""

    steps_per_second: Mapping[int, float]
    device: str

    @classmethod
    def read(cls, path: Path) -> PlainJax | None:
        """From a benchmark's file, the fastest of each size; None if it was not measured."""
        data = read_json(path) or {}
        rows = data["rows"] if isinstance(data, dict) and "rows" in data else data
        if not rows:
            return None
        speeds: dict[int, float] = {}
        for row in rows:
            speeds[row["boards"]] = max(float(row["steps_per_second"]), speeds.get(row["boards"], 0.0))
        devices = {str(row.get("device", "a device that its file does not name")) for row in rows}
        return cls(speeds, ", ".join(sorted(devices)))

    def seconds(self, boards: int, steps: int) -> float:
        """Time for one run alone; between measured sizes by a straight line in logarithms, nan outside."""
        sizes = sorted(self.steps_per_second)
        if not sizes[0] <= boards <= sizes[-1]:
            return math.nan
        logs = np.log([self.steps_per_second[n] for n in sizes])
        return steps / math.exp(float(np.interp(math.log(boards), np.log(sizes), logs)))


@dataclass(frozen=True)
class GpuStep:
    """Measured microseconds of a step of Nibbler, alone on a GPU, by number of boards."""

    early: Mapping[int, float]  # while questions are still looking for their inputs
    settled: Mapping[int, float]
    device: str

    @classmethod
    def read(cls, path: Path) -> GpuStep | None:
        """From a benchmark's file; None if it was not measured."""
        data = read_json(path) or {}
        alone = [row for row in data.get("rows", ()) if (row["agent"], row["runs"]) == ("nibbler", 1)]
        if not alone:
            return None
        early, settled = (
            {row["boards"]: float(row["microseconds_per_step"]) for row in alone if row["phase"] == phase}
            for phase in ("early", "settled")
        )
        return cls(early, settled, str(data.get("device", "a GPU that its file does not name")))
