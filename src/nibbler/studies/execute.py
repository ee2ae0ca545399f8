"""One run from its spec to its record, resumable at any moment: what every runner calls.

Killing the process at any instant loses the work since the last checkpoint and nothing else.
"""

from __future__ import annotations

import contextlib
import time
import traceback
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from nibbler.studies.events import OnEvent, RunEvent
from nibbler.studies.files import StoreError
from nibbler.studies.lock import RunLock, RunLockedError
from nibbler.studies.provenance import provenance
from nibbler.studies.session import Session
from nibbler.studies.spec import RunSpec
from nibbler.studies.store import DamagedCheckpointWarning, RunFolder

SAVE_EVERY = 60.0  # seconds between checkpoints
LARGEST_SAVING_SHARE = 0.05  # of the time: large states are saved less often than that
PROGRESS_SECONDS = 0.25  # between two progress events


def execute(
    spec: RunSpec,
    folder: RunFolder,
    *,
    stop: Callable[[], bool] = lambda: False,
    on_event: OnEvent = lambda event: None,
    save_every: float = SAVE_EVERY,
    wait_for_lock: float = 0.0,
    tracking: str | None = None,
) -> RunEvent:
    """Run a spec to its end, or until `stop()`; what is finished is skipped, what was begun is resumed.

    `save_every` is in seconds, 0 for after every stretch of work. Returns the last event. Errors are
    raised; `attempt` turns them into an event.
    """
    if folder.finished:
        return RunEvent.about("skipped", spec, spec.steps)
    session: Session | None = None

    def beat() -> None:
        if session is not None:
            session.show_progress()

    with RunLock(folder.path, wait_for_lock, beat) as lock:
        if folder.finished:  # by the process that we waited for
            return RunEvent.about("skipped", spec, spec.steps)
        folder.create(spec)
        folder.go_on_from_shorter(spec)
        folder.save_error(None)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", DamagedCheckpointWarning)
            session = Session(spec, folder, tracking)
        for warning in caught:
            on_event(RunEvent.about("warning", spec, session.step, message=str(warning.message)))
        try:
            on_event(RunEvent.about("started", spec, session.step))
            saved = told = time.monotonic()
            patience = save_every
            while not session.done and not stop():
                session.advance()
                now = time.monotonic()
                if now - told >= PROGRESS_SECONDS:
                    on_event(RunEvent.about("progress", spec, **session.progress()))
                    told = now
                if now - saved >= patience and not session.done:
                    lock.check()
                    session.save()
                    saved = time.monotonic()
                    if save_every > 0:
                        patience = max(save_every, (saved - now) / LARGEST_SAVING_SHARE)
            lock.check()
            if session.done:
                session.finish()
            else:
                session.save()
        finally:
            session.close()
        session.hide_progress()
        kind = RunEvent.about(
            "finished" if session.done else "stopped", **{"spec": spec, **session.progress()}
        )
    return kind


def attempt(spec: RunSpec, folder: RunFolder, **options: Any) -> RunEvent:
    """`execute`, with errors told in the returned event and kept in the run's folder."""
    try:
        return execute(spec, folder, **options)
    except RunLockedError as error:
        return RunEvent.about("elsewhere", spec, message=str(error))
    except Exception as error:  # one run's trouble must not end the others
        return failure(spec, folder, error)


def failure(spec: RunSpec, folder: RunFolder, error: Exception) -> RunEvent:
    """The event of a run that ended with an error, which is kept in its folder; call it while handling it."""
    plain = isinstance(error, (ValueError, StoreError))
    message = str(error.args[-1] if isinstance(error, StoreError) else error)
    message = message if plain and message else f"{type(error).__name__}: {message}"
    details = traceback.format_exc()
    with contextlib.suppress(Exception):
        when = datetime.now(UTC).isoformat(timespec="seconds")
        folder.save_error({"error": message, "when": when, "traceback": details, **provenance()})
    return RunEvent.about("failed", spec, message=message, details=details)
