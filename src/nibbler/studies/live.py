"""A study on the terminal while it runs: a row with a bar per run, and one for all of it."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from nibbler.studies.events import ENDINGS, RunEvent
from nibbler.studies.spec import Study

_STYLE = {
    "finished": ("done", "green"),
    "skipped": ("done before", "dim"),
    "stopped": ("saved", "yellow"),
    "failed": ("failed", "bold red"),
    "elsewhere": ("elsewhere", "magenta"),
}


class LiveTable:
    """Shows events as they come; where there is no terminal, one plain line per run that starts or ends.

    Use it as a context, and hand it to a runner as `on_event`.
    """

    def __init__(self, study: Study, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._title = f"{study.name} ({study.size})"
        self._latest = {spec.id: RunEvent.about("queued", spec) for spec in study.runs}
        self._begun: dict[str, int] = {}  # where each run of this session resumed
        self._since = time.monotonic()
        self._live = Live(
            console=self._console, get_renderable=self._render, refresh_per_second=4, transient=False
        )

    def __enter__(self) -> Self:
        self._since = time.monotonic()
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live.is_started:
            self._live.stop()

    def __call__(self, event: RunEvent) -> None:
        """Take note of an event."""
        if event.kind == "warning":
            self._console.print(f"[yellow]{escape(event.label)}: {escape(event.message or '')}[/]")
            return
        if event.kind == "started":
            self._begun[event.id] = event.step
        self._latest[event.id] = event
        if not self._console.is_terminal and event.kind not in ("queued", "progress", "skipped"):
            self._console.print(escape(_line(event)), highlight=False, soft_wrap=True)

    def _render(self) -> RenderableType:
        active = [e for e in self._latest.values() if e.kind in ("started", "progress")]
        ended = [e for e in self._latest.values() if e.kind in ENDINGS and e.kind != "skipped"]
        waiting = sum(e.kind == "queued" for e in self._latest.values())
        skipped = sum(e.kind == "skipped" for e in self._latest.values())
        room = max(4, self._console.height - 6 - len(active))
        # What failed stays in view; of the others, the latest.
        shown = sorted(ended, key=lambda e: e.kind == "failed")[-room:]
        table = Table(title=self._title, title_justify="left", expand=True, box=None, pad_edge=False)
        table.add_column("run", ratio=4, no_wrap=True)
        table.add_column("", ratio=3, min_width=8)
        for heading in ("steps", "steps/s", "reward", "left"):
            table.add_column(heading, justify="right", no_wrap=True)
        for event in [*shown, *active]:
            table.add_row(*self._row(event))
        notes = [f"{waiting} waiting"] if waiting else []
        notes += [f"{skipped} finished before"] if skipped else []
        notes += [f"{len(ended) - len(shown)} more ended"] if len(ended) > len(shown) else []
        table.add_section()
        table.add_row(*self._total())
        return Group(table, Text(", ".join(notes), style="dim"))

    def _row(self, event: RunEvent) -> list[RenderableType]:
        word, style = _STYLE.get(event.kind, ("", ""))
        speed = event.steps_per_second
        left = duration((event.steps - event.step) / speed) if speed and not word else ""
        if event.kind == "started":
            left = "starting"  # engines may compile for a while before their first step
        if event.kind == "failed":
            note: RenderableType = Text(
                event.message or "failed", style=style, no_wrap=True, overflow="ellipsis"
            )
        else:
            note = ProgressBar(total=event.steps, completed=event.step)
        return [
            Text(event.label, overflow="ellipsis"),
            note,
            short_count(event.step),
            f"{speed:,.0f}" if speed else "",
            "" if event.reward is None else f"{event.reward:+.4f}",
            Text(word or left, style=style),
        ]

    def _total(self) -> list[RenderableType]:
        events = self._latest.values()
        # A run that failed or is worked on elsewhere will not be continued by this command.
        steps = sum(e.steps for e in events if e.kind not in ("failed", "elsewhere"))
        done = sum(e.step for e in events if e.kind not in ("failed", "elsewhere"))
        worked = sum(e.step - self._begun[e.id] for e in events if e.id in self._begun and e.kind != "failed")
        elapsed = time.monotonic() - self._since
        rate = worked / elapsed if elapsed > 0 else 0.0
        ended = sum(e.kind in ("finished", "skipped") for e in events)
        left = duration((steps - done) / rate) if rate > 0 and done < steps else ""
        return [
            Text(f"{ended} of {len(self._latest)} runs, {duration(elapsed)}", style="bold"),
            ProgressBar(total=max(steps, 1), completed=done),
            short_count(done),
            f"{rate:,.0f}",
            "",
            left,
        ]


def _line(event: RunEvent) -> str:
    words = {"started": "started" if event.step == 0 else f"resumed at step {event.step:,}"}
    text = f"{event.label}: {words.get(event.kind, event.kind)}"
    if event.kind == "finished" and event.reward is not None:
        text += f", reward {event.reward:+.4f}"
        text += f", {event.steps_per_second:,.0f} steps/s" if event.steps_per_second else ""
    elif event.message:
        text += f" ({event.message})"
    elif event.kind == "stopped":
        text += f" at step {event.step:,}, saved"
    return text


def short_count(steps: int) -> str:
    """1,234,567 as 1.23M."""
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if steps >= size:
            return f"{steps / size:.3g}{letter}"
    return str(steps)


def duration(seconds: float) -> str:
    """Seconds as 42s, 3m05s or 2h07m."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
