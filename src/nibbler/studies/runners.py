"""Running a study, wherever: the runners by name behind one signature."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

from nibbler.studies.events import OnEvent, Outcome
from nibbler.studies.spec import Study
from nibbler.track import check_tracker

# Each module has run_study(study, folder, *, workers, on_event, save_every, tracking, ...) -> Outcome.
RUNNERS = {
    "local": "nibbler.studies.local_runner",
    "ray": "nibbler.studies.ray_runner",
    "gpu": "nibbler.studies.gpu_runner",
}


def run_study(
    study: Study,
    folder: str | Path,
    *,
    runner: str = "local",
    workers: int | None = None,
    on_event: OnEvent | None = None,
    tracking: str | None = None,
    **options: Any,
) -> Outcome:
    """Run what is missing of a study into a results folder; run it again to resume what was broken off.

    runner      "local" (processes on this machine, as many as cores), "ray" (a cluster; takes `address`) or
                "gpu" (runs of one shape packed side by side on an NVIDIA GPU)
    workers     how many runs at once
    on_event    called with every `RunEvent`, such as a `nibbler.studies.live.LiveTable`
    tracking    "tensorboard" to write event files beside each run's results
    """
    if runner not in RUNNERS:
        raise ValueError(f"runner={runner!r} is not known; choose {', '.join(RUNNERS)}")
    if tracking is not None:
        check_tracker(tracking)
    chosen = importlib.import_module(RUNNERS[runner])
    taken = inspect.signature(chosen.run_study).parameters
    if unknown := [name for name in options if name not in taken]:
        raise ValueError(f"the {runner} runner has no option {unknown[0]!r}")
    outcome: Outcome = chosen.run_study(
        study, folder, workers=workers, on_event=on_event, tracking=tracking, **options
    )
    return outcome
