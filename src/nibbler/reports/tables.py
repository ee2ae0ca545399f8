"""The summary of a study as rows of text: the same for the terminal and the page."""

from __future__ import annotations

import math
from dataclasses import dataclass

from nibbler.studies.metrics import PowerLaw, format_estimate, format_quantity
from nibbler.studies.results import Planned, Row, StudyResults, agent_label

NOTHING = "-"


@dataclass(frozen=True)
class TextTable:
    """Headings and cells; the first `text_columns` are words, the others numbers."""

    headings: list[str]
    rows: list[list[str]]
    text_columns: int = 1


def summary_table(results: StudyResults, brief: bool = False) -> TextTable:
    """One row per setting: steps to threshold, doubling ratio, final reward, and what it cost."""
    varied = sorted({name for m in results for name, _ in m.setting.varied})
    headings = [
        "agent",
        "boards",
        *(name.replace("_", " ") for name in varied),
        "seeds",
        "steps",
        f"steps until ≥ {results.threshold:g}",
        "doubling ratio",
        "final reward",
        "of planner",
    ]
    if not brief:
        headings += ["weights/step", "steps/s", "time until there"]
    return TextTable(headings, [_cells(row, varied, brief) for row in results.rows()])


def _cells(row: Row, varied: list[str], brief: bool) -> list[str]:
    values = dict(row.setting.varied)
    cells = [
        agent_label(row.setting.agent),
        str(row.setting.boards),
        *(_value(values.get(name)) for name in varied),
        of_planned(str(row.seeds), str(row.planned_seeds)),
        of_planned(format_quantity(row.steps), format_quantity(row.planned_steps)),
        format_estimate(row.to_threshold),
        NOTHING if row.doubling_ratio is None else format_estimate(row.doubling_ratio),
        format_estimate(row.final_reward, 3, with_interval=not brief),
        NOTHING if row.share is None else f"{round(row.share.value * 100) + 0}%",
    ]
    if brief:
        return cells
    seconds = row.seconds_to_threshold
    if seconds.undefined:
        duration = NOTHING
    elif seconds.reached:
        duration = format_duration(seconds.value)
    else:
        duration = f"> {format_duration(seconds.bound)}"
    return [
        *cells,
        NOTHING if math.isnan(row.weights_per_step) else format_quantity(row.weights_per_step),
        NOTHING if math.isnan(row.steps_per_second) else format_quantity(row.steps_per_second),
        duration,
    ]


def of_planned(there: str, planned: str) -> str:
    """How much there is, and of how much where that is more: `3`, `2 of 3`."""
    return there if there == planned else f"{there} of {planned}"


def not_run_lines(results: StudyResults) -> list[str]:
    """Settings of which nothing has been run, one line per agent; many values of a sweep are counted."""
    groups: dict[str, dict[int, list[Planned]]] = {}
    for planned in results.not_run:
        by_boards = groups.setdefault(planned.setting.agent, {})
        by_boards.setdefault(planned.setting.boards, []).append(planned)
    lines = []
    for agent, by_boards in groups.items():
        parts = []
        for boards, settings in sorted(by_boards.items()):
            wanted = sum(p.setting.agent == agent and p.setting.boards == boards for p in results.planned)
            many = "" if wanted == 1 else f" ({len(settings)} of {wanted} settings)"
            parts.append(f"{boards}{many}")
        lines.append(f"{agent_label(agent)} on {', '.join(parts)} boards")
    return lines


def growth_table(results: StudyResults) -> TextTable:
    """Power-law exponents of steps against boards, for agents that were run on two sizes or more."""
    rows = []
    variants = {(m.setting.agent, m.setting.varied) for m in results}
    order = {agent: k for k, agent in enumerate(results.agents)}
    for agent, varied in sorted(variants, key=lambda v: (order[v[0]], str(v[1]))):
        law = results.power_law(agent, **dict(varied))
        if len(law.fitted) + len(law.not_reached) < 2:
            continue
        extra = "".join(f", {name.replace('_', ' ')} {_value(value)}" for name, value in varied)
        rows.append([agent_label(agent) + extra, *law_cells(law)])
    return TextTable(["agent", "exponent", "boards in the fit", "boards not reached"], rows)


def law_cells(law: PowerLaw) -> list[str]:
    """A power law's exponent, the sizes it was fitted to, and those that did not reach the threshold."""
    return [
        NOTHING if law.exponent.undefined else format_estimate(law.exponent, 2),
        ", ".join(map(str, law.fitted)) or NOTHING,
        ", ".join(map(str, law.not_reached)) or NOTHING,
    ]


def _value(value: object) -> str:
    if value is None:
        return NOTHING
    return f"{value:g}" if isinstance(value, float) else str(value)


def format_duration(seconds: float) -> str:
    """Seconds for people: 8.2 s, 3.5 min, 2.1 h, 4.2 days."""
    if not math.isfinite(seconds):
        return NOTHING
    if seconds >= 3 * 86400:
        return f"{seconds / 86400:.1f} days"
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
