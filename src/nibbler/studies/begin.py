"""What every runner begins with: the study on file, which of its runs are missing, and who is told."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

from nibbler.studies.events import OnEvent, Outcome, RunEvent
from nibbler.studies.spec import RunSpec, Study
from nibbler.studies.store import ResultsFolder


@dataclass(frozen=True)
class Begun:
    """A study about to be run."""

    results: ResultsFolder
    outcome: Outcome
    tell: OnEvent  # notes an event in the outcome and passes it on; from any thread
    missing: list[RunSpec]


def begin(study: Study, folder: str | Path, workers: int | None, on_event: OnEvent | None) -> Begun:
    """Write the study into its results folder, and tell of each run whether it is finished or queued."""
    if workers is not None and workers < 1:
        raise ValueError(f"workers={workers}; at least 1 is needed")
    results = ResultsFolder(folder)
    results.save_study(study)
    outcome = Outcome()
    one_at_a_time = threading.Lock()

    def tell(event: RunEvent) -> None:
        with one_at_a_time:
            outcome.note(event)
            if on_event is not None:
                on_event(event)

    missing = []
    for spec in study.runs:
        done = results.run(spec).finished
        tell(RunEvent.about("skipped" if done else "queued", spec, spec.steps if done else 0))
        if not done:
            missing.append(spec)
    return Begun(results, outcome, tell, missing)
