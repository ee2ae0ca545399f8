"""What runners tell while they work, and what they return: the same for every runner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from nibbler.studies.spec import RunSpec

Kind = Literal[
    "queued",  # it will be run
    "skipped",  # it was finished before
    "started",  # from `step`, which is above 0 when it resumes
    "progress",
    "warning",  # `message` says what; the run goes on
    "finished",
    "stopped",  # as asked; saved at `step`
    "failed",  # `message` is the error in one line, `details` the traceback
    "elsewhere",  # another process is at work on it
]
ENDINGS = ("skipped", "finished", "stopped", "failed", "elsewhere")


@dataclass(frozen=True)
class RunEvent:
    """Something happened to a run."""

    kind: Kind
    id: str
    label: str
    step: int
    steps: int
    reward: float | None = None  # mean of the latest bin
    steps_per_second: float | None = None
    message: str | None = None
    details: str | None = None

    @classmethod
    def about(cls, kind: Kind, spec: RunSpec, step: int = 0, **more: Any) -> RunEvent:
        return cls(kind, spec.id, spec.label, step, spec.steps, **more)

    def to_dict(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if value is not None}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RunEvent:
        return cls(**data)


OnEvent = Callable[[RunEvent], None]


@dataclass
class Outcome:
    """How a study ended: the last event of each of its runs, by id."""

    endings: dict[str, RunEvent] = field(default_factory=dict)
    interrupted: bool = False

    def note(self, event: RunEvent) -> None:
        if event.kind in ENDINGS:
            self.endings[event.id] = event

    def of_kind(self, *kinds: Kind) -> list[RunEvent]:
        return [event for event in self.endings.values() if event.kind in kinds]

    @property
    def failed(self) -> list[RunEvent]:
        return self.of_kind("failed")

    @property
    def complete(self) -> bool:
        """Whether every run of the study is finished, now or before."""
        return not self.interrupted and all(e.kind in ("finished", "skipped") for e in self.endings.values())
