"""The blocks of README.md that are written from results."""

from __future__ import annotations

import os
from pathlib import Path

from nibbler.reports.findings import Findings
from nibbler.reports.results_md import can_be_drawn, count_verdicts
from nibbler.studies.metrics import final_reward, format_estimate
from nibbler.studies.results import Measured, agent_label

COMPARED = ("q-learning", "qv-learning", "rainbow")


def readme_blocks(findings: Findings, relative_to: Path) -> dict[str, str]:
    """Blocks by name; figures are linked relative to the folder that the README is in."""
    figures = os.path.relpath(findings.folder / "figures", relative_to)
    return {"figures": _figures(findings, figures), "found": _found(findings)}


def _figures(findings: Findings, figures: str) -> str:
    scaling, curves = findings["scaling"], findings["curves"]
    lines = []
    if can_be_drawn(scaling, "scaling"):
        text = "Steps until the reward stays at or above 0, and the doubling ratio, by number of boards"
        lines.append(f"![{text}]({figures}/{scaling.figure('scaling')})\n")
    if (boards := findings.map_for_readers()) is not None:
        text = f"Discovery map: which of {boards} boards each of Nibbler's questions has found, by steps"
        lines.append(f"![{text}]({figures}/{curves.figure(f'discovery-{boards}')})\n")
    return "\n".join(lines) or "No run of the paper's size is here yet.\n"


def _found(findings: Findings) -> str:
    results = findings["scaling"].results
    sentences = []
    law = results.power_law("nibbler")
    if len(law.fitted) > 2:
        grows = f"boards^{format_estimate(law.exponent, 2)}"
        if (large := results.power_law_of_large("nibbler")) is not None:
            grows += f", and as boards^{format_estimate(large.exponent, 2)} from {large.fitted[0]} on"
        others = [
            f"{agent_label(agent)}'s as boards^{format_estimate(other.exponent, 2)} up to {other.fitted[-1]}"
            for agent in COMPARED
            if len((other := results.power_law(agent)).fitted) > 2
        ]
        text = f"From {law.fitted[0]} to {law.fitted[-1]} boards the steps that Nibbler needs grow as {grows}"
        sentences.append(", ".join([text, *others]) + ".")
    if ends := _ends(findings):
        sentences.append(ends)
    sentences.append(f"{count_verdicts(findings)} [RESULTS.md](RESULTS.md) has them all, and what it cost.")
    return " ".join(sentences) + "\n"


def _ends(findings: Findings) -> str:
    """What the agents end with on the largest problem that Nibbler and another have run to the end, with two
    seeds at least."""
    results = findings["curves"].results

    def end(measured: Measured) -> str:
        return f"{agent_label(measured.setting.agent)} {format_estimate(final_reward(measured.curves), 3)}"

    for boards in reversed(results.boards):
        found = [m for a in ("nibbler", *COMPARED) if (m := results.get(a, boards)) is not None]
        told = [m for m in found if m.whole and m.curves.num_seeds > 1]
        if len(told) > 1 and told[0].setting.agent == "nibbler":
            return f"Final reward per step on {boards} boards: {', '.join(map(end, told))}."
    return ""
