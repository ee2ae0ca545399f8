"""What a run shows while it works: steps, steps per second, recent reward, time left."""

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class ProgressBar:
    """A bar on stderr; silent unless asked for or stderr is a terminal."""

    def __init__(self, title: str, steps: int, done: int, show: bool | None) -> None:
        shown = sys.stderr.isatty() if show is None else show
        self._done = done
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[speed]:,.0f} steps/s"),
            TextColumn("reward {task.fields[reward]:+.4f}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not shown,
        )
        self._task = self._progress.add_task(title, total=steps, completed=done, speed=0.0, reward=0.0)

    def __enter__(self) -> Self:
        self._progress.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.__exit__(kind, error, trace)

    def update(self, done: int, speed: float, reward: float) -> None:
        """Show the state after `done` steps; reward is the mean of the latest stretch."""
        self._progress.update(self._task, completed=done, speed=speed, reward=reward)
