"""Sending a run's numbers to a tracker: one small interface, and TensorBoard behind it (an extra)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

TRACKERS = ("tensorboard",)


class Tracker(Protocol):
    """Where numbers go while a run works."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Note these values at this step."""

    def close(self) -> None:
        """Write out what is left."""


def check_tracker(kind: str) -> None:
    """Say early, in one line, when a tracker is unknown or its package is missing."""
    if kind not in TRACKERS:
        raise ValueError(f"tracker {kind!r} is not known; choose {', '.join(TRACKERS)}")
    try:
        import tensorboard.summary.writer.event_file_writer  # noqa: F401
    except ImportError:
        raise ValueError("tracking needs TensorBoard: pip install 'nibbler[tensorboard]'") from None


def open_tracker(kind: str, folder: str | Path, step: int = 0) -> Tracker:
    """A tracker that writes to `folder`, for a run that is at `step`: what lies beyond it is void."""
    check_tracker(kind)
    return TensorBoardTracker(Path(folder), step)


class TensorBoardTracker:
    """Scalars as TensorBoard event files; needs neither TensorFlow nor PyTorch."""

    def __init__(self, folder: Path, step: int = 0) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._event, self._summary = Event, Summary
        folder.mkdir(parents=True, exist_ok=True)
        self._writer = EventFileWriter(str(folder))
        # A run that was killed has told steps that it will now repeat: TensorBoard drops those beyond it.
        start = SessionLog(status=SessionLog.START)
        self._writer.add_event(Event(wall_time=time.time(), step=step + 1, session_log=start))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        summary = self._summary(
            value=[self._summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        )
        self._writer.add_event(self._event(wall_time=time.time(), step=step, summary=summary))

    def close(self) -> None:
        self._writer.flush()
        self._writer.close()
