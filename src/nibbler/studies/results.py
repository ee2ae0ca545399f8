"""What a study found: runs grouped into settings, with every metric that a table, figure or claim reads.

Nothing here touches files. `nibbler.studies.reading` makes these from a results folder; tests make them from
synthetic curves.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from nibbler.studies import metrics
from nibbler.studies.metrics import CurveSet, Estimate, PowerLaw

AGENT_LABELS = {
    "nibbler": "Nibbler",
    "nibbler+": "Nibbler+",
    "q-learning": "Q-learning",
    "qv-learning": "QV-learning",
    "rainbow": "Rainbow",
    "linear": "Linear",
    "known-structure": "Known structure",
    "random": "Random",
    "planner": "Planner",
}


LARGE_PROBLEM = 16  # boards from which on a problem is large: all agents learn below
SHARES = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7)  # of the way from random to planner, at which growth is looked at


def agent_label(agent: str) -> str:
    """An agent's name as people write it; names that are not ours stay as they are."""
    return AGENT_LABELS.get(agent, agent)


def legend_order(agent: str) -> tuple[int, str]:
    """A key that sorts agents as legends and tables list them: ours first, then others by name."""
    known = list(AGENT_LABELS)
    return (known.index(agent) if agent in known else len(known), agent)


def orderable(value: Any) -> tuple[bool, float, str]:
    """A key that sorts numbers as numbers and before text, since a spec may mix them."""
    number = isinstance(value, (int, float))
    return not number, float(value) if number else 0.0, str(value)


@dataclass(frozen=True)
class Setting:
    """What the runs of one group have in common: everything but the seed."""

    agent: str  # "nibbler", "q-learning", ...; decides the colour
    boards: int
    varied: tuple[tuple[str, Any], ...] = ()  # what the study varies, by name

    def value(self, name: str) -> Any:
        """The value of something that the study varies."""
        for key, value in self.varied:
            if key == name:
                return value
        raise KeyError(f"{self} does not vary {name}")

    def __str__(self) -> str:
        extra = "".join(f", {name.replace('_', ' ')} {value}" for name, value in self.varied)
        return f"{agent_label(self.agent)} on {self.boards} boards{extra}"


@dataclass(frozen=True)
class Lines:
    """The two rewards that a curve lies between."""

    random: float | None = None  # exact
    planner: float | None = None  # simulated


@dataclass(frozen=True)
class Planned:
    """What a study wants of one setting."""

    setting: Setting
    seeds: int
    steps: int


@dataclass(frozen=True)
class Measured:
    """One setting's curves and what they cost."""

    setting: Setting
    curves: CurveSet
    lines: Lines = field(default_factory=Lines)
    weights_per_step: float = math.nan
    seconds_per_step: float = math.nan
    engine: str | None = None  # where it ran; None if that is not told, or if its seeds ran on several
    planned_steps: int | None = None  # more than `curves.steps` while runs are under way
    planned_seeds: int | None = None

    @property
    def whole(self) -> bool:
        """Whether the seeds that are there have every planned step."""
        return self.planned_steps is None or self.curves.steps >= self.planned_steps

    @property
    def complete(self) -> bool:
        """Whether every planned seed has every planned step."""
        return self.whole and (self.planned_seeds is None or self.curves.num_seeds >= self.planned_seeds)


@dataclass(frozen=True)
class Row:
    """One line of the summary table."""

    setting: Setting
    seeds: int
    steps: int
    planned_seeds: int
    planned_steps: int
    to_threshold: Estimate
    doubling_ratio: Estimate | None  # None: half as many boards were not run
    final_reward: Estimate
    share: Estimate | None  # between random (0) and planner (1); None: a line is missing
    weights_per_step: float
    steps_per_second: float
    weights_to_threshold: Estimate
    seconds_to_threshold: Estimate


@dataclass(frozen=True)
class StudyResults:
    """Everything measured in a study, and how it is read (threshold and smoothing are part of the result)."""

    name: str
    title: str
    measured: tuple[Measured, ...]
    threshold: float = 0.0
    window: int = 1  # bins of the centred moving average under TimestepsToThreshold
    planned: tuple[Planned, ...] = ()  # every setting of the study, run or not

    @cached_property
    def _by_setting(self) -> dict[Setting, Measured]:
        return {m.setting: m for m in self.measured}

    @cached_property
    def _to_threshold(self) -> dict[Setting, Estimate]:
        return {
            m.setting: metrics.timesteps_to_threshold(m.curves, self.threshold, self.window)
            for m in self.measured
        }

    def __iter__(self) -> Iterator[Measured]:
        return iter(self.measured)

    def get(self, agent: str, boards: int, **varied: Any) -> Measured | None:
        """The one setting with these values, if it was measured."""
        return self._by_setting.get(Setting(agent, boards, tuple(sorted(varied.items()))))

    def only(self, agent: str | None = None, boards: int | None = None, **varied: Any) -> StudyResults:
        """The part of the study with these values."""

        def wanted(setting: Setting) -> bool:
            values = dict(setting.varied)
            return (
                (agent is None or setting.agent == agent)
                and (boards is None or setting.boards == boards)
                and all(name in values and values[name] == value for name, value in varied.items())
            )

        kept = tuple(m for m in self.measured if wanted(m.setting))
        planned = tuple(p for p in self.planned if wanted(p.setting))
        return StudyResults(self.name, self.title, kept, self.threshold, self.window, planned)

    @property
    def not_run(self) -> list[Planned]:
        """Settings of which there is nothing yet."""
        return [p for p in self.planned if p.setting not in self._by_setting]

    @property
    def agents(self) -> list[str]:
        """Agents in the order of the legend."""
        return sorted({m.setting.agent for m in self.measured}, key=legend_order)

    @property
    def boards(self) -> list[int]:
        """Problem sizes, rising."""
        return sorted({m.setting.boards for m in self.measured})

    def values(self, name: str) -> list[Any]:
        """The values that the study tries for something it varies, rising."""
        found = {dict(m.setting.varied)[name] for m in self.measured if name in dict(m.setting.varied)}
        return sorted(found, key=orderable)

    def lines(self, boards: int) -> Lines:
        """Random and planner line on that many boards (all settings of a size share them)."""
        for m in self.measured:
            if m.setting.boards == boards and m.lines.random is not None and m.lines.planner is not None:
                return m.lines
        return next((m.lines for m in self.measured if m.setting.boards == boards), Lines())

    def to_threshold(self, agent: str, **varied: Any) -> dict[int, Estimate]:
        """TimestepsToThreshold by number of boards."""
        wanted = tuple(sorted(varied.items()))
        return {
            setting.boards: estimate
            for setting, estimate in sorted(self._to_threshold.items(), key=lambda item: item[0].boards)
            if setting.agent == agent and setting.varied == wanted
        }

    def to_share(self, agent: str, share: float) -> dict[int, Estimate]:
        """Steps until the reward stays at or above a share of the way from random to planner, by boards."""
        found = {}
        for m in sorted(self.only(agent), key=lambda m: m.setting.boards):
            if not m.setting.varied and m.lines.random is not None and m.lines.planner is not None:
                found[m.setting.boards] = metrics.timesteps_to_share(
                    m.curves, share, m.lines.random, m.lines.planner, m.planned_steps
                )
        return found

    def doubling_ratios(self, agent: str, **varied: Any) -> dict[int, Estimate]:
        """TimestepDoublingRatio by the smaller number of boards."""
        return metrics.doubling_ratios(self.to_threshold(agent, **varied))

    def power_law(self, agent: str, *, only: Collection[int] | None = None, **varied: Any) -> PowerLaw:
        """The fit of steps against boards, on these sizes if they are given."""
        by_boards = self.to_threshold(agent, **varied)
        return metrics.power_law({n: e for n, e in by_boards.items() if only is None or n in only})

    def power_law_of_large(self, agent: str) -> PowerLaw | None:
        """The fit on large problems alone, where it can be told apart from that on all."""
        sizes = self.to_threshold(agent)
        law = self.power_law(agent, only=[n for n in sizes if n >= LARGE_PROBLEM])
        return law if 2 < len(law.fitted) < len(sizes) else None

    def final_reward(self, agent: str, boards: int, **varied: Any) -> Estimate | None:
        """Mean reward at the end of the run, if there is one."""
        found = self.get(agent, boards, **varied)
        return None if found is None else metrics.final_reward(found.curves)

    def rows(self) -> list[Row]:
        """The summary table, agent by agent and size by size."""
        order = {agent: k for k, agent in enumerate(self.agents)}
        ordered = sorted(
            self.measured,
            key=lambda m: (
                order[m.setting.agent],
                [(name, orderable(value)) for name, value in m.setting.varied],
                m.setting.boards,
            ),
        )
        return [self._row(m) for m in ordered]

    def _row(self, m: Measured) -> Row:
        varied: Mapping[str, Any] = dict(m.setting.varied)
        steps = self._to_threshold[m.setting]
        smaller = None
        if m.setting.boards % 2 == 0:
            smaller = self.to_threshold(m.setting.agent, **varied).get(m.setting.boards // 2)
        final = metrics.final_reward(m.curves)
        share = None
        if m.lines.random is not None and m.lines.planner is not None and m.lines.planner > m.lines.random:
            share = metrics.share_of_planner(final, m.lines.random, m.lines.planner)
        return Row(
            setting=m.setting,
            seeds=m.curves.num_seeds,
            steps=m.curves.steps,
            planned_seeds=m.planned_seeds or m.curves.num_seeds,
            planned_steps=m.planned_steps or m.curves.steps,
            to_threshold=steps,
            doubling_ratio=None if smaller is None else metrics.timestep_doubling_ratio(smaller, steps),
            final_reward=final,
            share=share,
            weights_per_step=m.weights_per_step,
            steps_per_second=1.0 / m.seconds_per_step if m.seconds_per_step > 0 else math.nan,
            weights_to_threshold=metrics.scaled(steps, m.weights_per_step),
            seconds_to_threshold=metrics.scaled(steps, m.seconds_per_step),
        )
