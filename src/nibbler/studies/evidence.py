"""A study's results as a check asks for them: what it may rest on, and what it had to do without.

A check is strict about what it knows: it wants two seeds of a setting, run to their end, and the whole
confidence interval on one side of a bound. What is missing of a claim that can be judged all the same is
noted, so that the verdict says on which part it rests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nibbler.studies.metrics import Estimate, final_reward, format_estimate, format_quantity, share_of_planner
from nibbler.studies.results import Measured, Setting, StudyResults, agent_label, orderable

LONG_ENOUGH = 1_000_000  # steps per board from which on a failure to learn counts (the paper has 1.25M)


class NotEnoughDataError(Exception):
    """A check that lacks something says what."""


class Evidence:
    """Hands out settings that a verdict may rest on, and remembers the gaps."""

    def __init__(self, results: StudyResults) -> None:
        self.results = results
        self._gaps: dict[Setting, str] = {}  # what is missing of settings that were asked for

    def needed(
        self, agent: str, boards: int, *, whole: bool = True, seeds: int = 2, **varied: Any
    ) -> Measured:
        """A setting with that many seeds at least, run to the end unless `whole` is False."""
        found = self.results.get(agent, boards, **varied)
        name = str(Setting(agent, boards, tuple(sorted(varied.items()))))
        if found is None:
            raise NotEnoughDataError(f"{name}: not run")
        planned = found.planned_seeds or found.curves.num_seeds
        if whole and not found.whole:
            steps, wanted = format_quantity(found.curves.steps), format_quantity(found.planned_steps or 0)
            raise NotEnoughDataError(f"{name}: {steps} of {wanted} steps")
        if found.curves.num_seeds < seeds:
            raise NotEnoughDataError(f"{name}: {found.curves.num_seeds} of {planned} seeds")
        if found.curves.num_seeds < planned:
            self.note(found.setting, f"{found.curves.num_seeds} of {planned} seeds")
        if not found.whole:
            self.note(found.setting, f"{format_quantity(found.curves.steps)} steps so far")
        return found

    def offered(self, agent: str, boards: int, **wanted: Any) -> Measured | None:
        """The same, or None with a note of what is missing."""
        try:
            return self.needed(agent, boards, **wanted)
        except NotEnoughDataError as missing:
            varied = {k: v for k, v in wanted.items() if k not in ("whole", "seeds")}
            reason = str(missing).rpartition(": ")[2]
            self.note(Setting(agent, boards, tuple(sorted(varied.items()))), reason)
            return None

    def sizes(self, agent: str, **varied: Any) -> list[int]:
        """Problem sizes on which an agent was planned or run."""
        part = self.results.only(agent, **varied)
        return sorted({m.setting.boards for m in part} | {p.setting.boards for p in part.planned})

    def values(self, name: str, agent: str | None = None, **varied: Any) -> list[Any]:
        """Values of something varied that were planned or run, rising."""
        part = self.results.only(agent, **varied)
        settings = [m.setting for m in part] + [p.setting for p in part.planned]
        tried = {value for setting in settings for key, value in setting.varied if key == name}
        return sorted(tried, key=orderable)

    def usable(self, agent: str, sizes: Iterable[int] | None = None, **wanted: Any) -> dict[int, Measured]:
        """By size, the settings of an agent that a verdict may rest on; the others are noted."""
        varied = {k: v for k, v in wanted.items() if k not in ("whole", "seeds")}
        chosen = self.sizes(agent, **varied) if sizes is None else sizes
        found = {n: self.offered(agent, n, **wanted) for n in chosen}
        return {n: m for n, m in found.items() if m is not None}

    def steps(self, measured: Measured) -> Estimate:
        """Steps to threshold of a setting."""
        setting = measured.setting
        return self.results.to_threshold(setting.agent, **dict(setting.varied))[setting.boards]

    def long_enough(self, boards: int) -> float:
        """Steps from which on a failure to learn counts: a million per board, or what Nibbler needed there.

        Where several Nibblers were run on that many boards, it is what the slowest that succeeded needed.
        """
        ours = [self.steps(m) for m in self.results.only(agent="nibbler", boards=boards)]
        return min([float(LONG_ENOUGH * boards), *sorted(e.value for e in ours if e.reached)[-1:]])

    def learned(self, measured: Measured) -> bool:
        """Whether a setting reached the threshold; a failure counts only in a run that is long enough."""
        bar = self.long_enough(measured.setting.boards)
        if self.steps(measured).reached:
            return True
        if measured.curves.steps < bar:
            raise NotEnoughDataError(
                f"{measured.setting} has not reached it in {format_quantity(measured.curves.steps)} steps; a "
                f"failure counts from {format_quantity(bar)} on"
            )
        return False

    def comparable(self, found: Mapping[int, Measured]) -> dict[int, Measured]:
        """By size, the settings that had as much experience as Nibbler needed; the others are noted."""
        kept = {}
        for n, measured in found.items():
            if measured.curves.steps >= self.long_enough(n):
                kept[n] = measured
            else:
                self.note(
                    measured.setting, f"{format_quantity(measured.curves.steps)} steps, too few to compare"
                )
        return kept

    def decided(self, found: Mapping[int, Measured]) -> dict[int, bool]:
        """By size, whether the threshold was reached; sizes that a longer run may still reach are noted."""
        outcome = {}
        for n, measured in found.items():
            try:
                outcome[n] = self.learned(measured)
            except NotEnoughDataError:
                steps = format_quantity(measured.curves.steps)
                self.note(measured.setting, f"not reached in {steps} steps, too few to count")
        return outcome

    def steps_text(self, measured: Iterable[Measured]) -> str:
        """Steps to threshold by size, with intervals."""
        return ", ".join(f"{m.setting.boards}: {format_estimate(self.steps(m))}" for m in measured)

    @property
    def part(self) -> str:
        """What was missing or only partly there, in words; empty if the verdict rests on everything."""
        groups: dict[tuple[str, str], list[int]] = {}
        for setting, reason in self._gaps.items():
            extra = "".join(f", {name.replace('_', ' ')} {value}" for name, value in setting.varied)
            groups.setdefault((agent_label(setting.agent) + extra, reason), []).append(setting.boards)
        return "; ".join(
            f"{name} on {', '.join(map(str, sorted(boards)))} boards: {reason}"
            for (name, reason), boards in groups.items()
        )

    def note(self, setting: Setting, reason: str) -> None:
        """Remember what a verdict lacks of a setting."""
        self._gaps[setting] = reason


def side(estimate: Estimate, bound: float, name: str) -> bool:
    """Whether an estimate lies above a bound with its whole interval; undecided is not enough data."""
    low, high = (estimate.low, estimate.high) if estimate.has_interval else (estimate.value, estimate.value)
    if low > bound:
        return True
    if high < bound:
        return False
    raise NotEnoughDataError(f"{name} is {format_estimate(estimate, 3)}, which does not settle {bound:.4g}")


def reward_text(measured: Measured, digits: int = 3) -> str:
    """Final reward with its interval."""
    return format_estimate(final_reward(measured.curves), digits)


def share(measured: Measured) -> Estimate:
    """Final reward between random (0) and planner (1)."""
    if measured.lines.random is None or measured.lines.planner is None:
        raise NotEnoughDataError(f"{measured.setting} has no planner line yet")
    return share_of_planner(final_reward(measured.curves), measured.lines.random, measured.lines.planner)


def share_text(estimate: Estimate) -> str:
    """A share of the way from random to planner, with its interval."""
    if not estimate.has_interval:
        return f"{estimate.value:.0%}"
    return f"{estimate.value:.0%} ({estimate.low:.0%} to {estimate.high:.0%})"
