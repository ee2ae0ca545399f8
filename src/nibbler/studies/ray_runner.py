"""A study on a Ray cluster: each run is a task that resumes from its checkpoint wherever Ray starts it again.

The results folder must be on storage that every node sees under the same path. When a worker or a node dies,
Ray starts the task anew on another; the new attempt waits until the dead one's lock is stale (at once on the
same machine, else after two minutes of silence) and continues from the last checkpoint.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nibbler.studies.begin import begin
from nibbler.studies.events import OnEvent, Outcome, RunEvent
from nibbler.studies.execute import SAVE_EVERY, attempt
from nibbler.studies.files import read_json
from nibbler.studies.interrupt import stop_on_signal
from nibbler.studies.lock import STALE_AFTER
from nibbler.studies.spec import RunSpec, Study
from nibbler.studies.store import PROGRESS, ResultsFolder, RunFolder

POLL_SECONDS = 1.0
STOP_PATIENCE = 60.0  # seconds for running tasks to save when asked to stop


def run_study(
    study: Study,
    folder: str | Path,
    *,
    workers: int | None = None,
    on_event: OnEvent | None = None,
    save_every: float = SAVE_EVERY,
    tracking: str | None = None,
    address: str | None = "auto",
    retries: int = 10,
    ray_options: Mapping[str, Any] | None = None,
) -> Outcome:
    """Run what is missing of a study on the Ray cluster at `address`, and return how each run ended.

    `workers` limits how many runs are under way at once (else the cluster's CPUs do). `retries` is how often
    a run is started again after its worker or node died. `ray_options` are passed on to the tasks: the
    default is one CPU each, and one GPU for runs on the cuda engine.
    """
    ray = _connect(address)
    begun = begin(study, Path(folder).absolute(), workers, on_event)
    results, outcome, tell = begun.results, begun.outcome, begun.tell
    waiting = begun.missing[::-1]
    path = [os.path.abspath(entry or os.getcwd()) for entry in sys.path]
    options = {"save_every": save_every, "tracking": tracking}
    task = ray.remote(_attempt_here)
    under_way: dict[Any, RunSpec] = {}
    seen: dict[str, int] = {}  # the last step told of each run
    with stop_on_signal() as stop_asked:
        while (waiting or under_way) and not stop_asked():
            while waiting and (workers is None or len(under_way) < workers):
                spec = waiting.pop()
                where = str(results.run(spec).path)
                resources: dict[str, Any] = {
                    "num_cpus": 1,
                    **({"num_gpus": 1} if spec.engine == "cuda" else {}),
                }
                resources |= {"max_retries": retries, "name": spec.label, **(ray_options or {})}
                under_way[task.options(**resources).remote(spec.to_dict(), where, options, path)] = spec
            ready, _ = ray.wait(list(under_way), num_returns=1, timeout=POLL_SECONDS)
            for reference in ready:
                tell(_ending(ray, reference, under_way.pop(reference)))
            for spec in under_way.values():
                _tell_progress(results.run(spec), spec, seen, tell)
        if under_way or waiting:
            outcome.interrupted = True
            _stop(ray, under_way, results, tell)
            for spec in waiting:
                tell(RunEvent.about("stopped", spec, message="not started"))
    return outcome


def _connect(address: str | None) -> Any:
    """The ray module, connected; what is in the way is said in one line."""
    try:
        import ray
    except ImportError:
        raise ValueError("this runner needs Ray: pip install 'nibbler[ray]'") from None
    if not ray.is_initialized():
        refused = getattr(ray.exceptions, "AuthenticationError", ConnectionError)
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, refused) as error:
            # A cluster that refuses our token looks to Ray like one that does not answer.
            reason = str(error).splitlines()[0]
            raise ValueError(
                f"cannot join a Ray cluster at {address!r} ({reason}); start one with `ray start --head`; "
                "if it asks for a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN"
            ) from None
    return ray


def _attempt_here(
    spec: Mapping[str, Any], folder: str, options: Mapping[str, Any], path: list[str]
) -> dict[str, Any]:
    """The task: one attempt at a run, on whichever node Ray chose."""
    sys.path.extend(entry for entry in path if entry not in sys.path)
    # An earlier attempt may have died a moment ago on another machine: outwait its lock.
    patience = 2 * STALE_AFTER
    with stop_on_signal() as stop_asked:  # Ray cancels a task by interrupting it
        event = attempt(
            RunSpec.from_dict(spec), RunFolder(folder), stop=stop_asked, wait_for_lock=patience, **options
        )
    return event.to_dict()


def _ending(ray: Any, reference: Any, spec: RunSpec) -> RunEvent:
    try:
        return RunEvent.from_dict(ray.get(reference))
    except ray.exceptions.TaskCancelledError:
        return RunEvent.about("stopped", spec)
    except ray.exceptions.RayError as error:
        first = str(error).strip().splitlines()[0]
        return RunEvent.about("failed", spec, message=f"Ray gave up on it: {first}", details=str(error))


def _tell_progress(folder: RunFolder, spec: RunSpec, seen: dict[str, int], tell: OnEvent) -> None:
    """Progress as the run's own folder tells it, since that outlives workers."""
    try:
        progress = read_json(folder.path / PROGRESS)
    except (ValueError, OSError):
        return
    if not isinstance(progress, dict):
        return
    step = int(progress.get("step", 0))
    if spec.id not in seen:
        tell(RunEvent.about("started", spec, step))
    if seen.get(spec.id) != step:
        seen[spec.id] = step
        tell(RunEvent.about("progress", spec, **progress))


def _stop(ray: Any, under_way: dict[Any, RunSpec], results: ResultsFolder, tell: OnEvent) -> None:
    """Ask every task to save and leave, and wait for those that run."""
    for reference in under_way:
        ray.cancel(reference, recursive=False)
    deadline = time.monotonic() + STOP_PATIENCE
    left = list(under_way)
    while left and time.monotonic() < deadline:
        ready, left = ray.wait(left, num_returns=len(left), timeout=1.0)
        for reference in ready:
            spec = under_way[reference]
            event = _ending(ray, reference, spec)
            if event.kind == "stopped":
                saved = max((step for step, _ in results.run(spec).checkpoints()), default=0)
                event = RunEvent.about("stopped", spec, saved)
            tell(event)
    for reference in left:
        tell(RunEvent.about("stopped", under_way[reference], message="its task did not answer in time"))
