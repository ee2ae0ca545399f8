"""RESULTS.md: what was found about the paper, written from a results folder."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from nibbler.reports.discovery import NEARLY_ALL
from nibbler.reports.findings import Findings, StudyFindings
from nibbler.reports.markdown import markdown_table
from nibbler.reports.results_tables import (
    beyond_table,
    claims_table,
    cost_table,
    doubling_table,
    exponent_table,
    partly,
    places_table,
    progress_table,
    readings_table,
    smaller_table,
    steps_table,
    structure_table,
    way_table,
)
from nibbler.reports.tables import format_duration, not_run_lines
from nibbler.studies.metrics import Estimate, share_of_planner

_FIGURES = {  # the first figures of each study, as far as they can be drawn from what there is
    "curves": ("curves",),
    "scaling": ("scaling", "compute"),
    "q-sweep": ("q-sweep",),
    "hidden-units": ("hidden-units",),
    "heterogeneous": ("heterogeneous",),
    "fixed-nibbler": ("fixed-nibbler",),
    "questions": ("questions",),
    "swap-threshold": ("swap-threshold",),
    "inputs": ("inputs",),
    "open-choices": ("open-choices",),
    "step-size": ("scaling",),
    "beyond": ("scaling", "way"),
}


def results_text(findings: Findings, relative_to: Path) -> str:
    """The whole file; figures are linked relative to the folder it is in."""
    return "\n".join(_paragraphs(findings, os.path.relpath(findings.folder, relative_to)))


def count_verdicts(findings: Findings) -> str:
    """How many of the paper's claims got each verdict, as a sentence."""
    papers = [v for v in findings.verdicts if not v.claim.source.startswith("ours")]
    counts = Counter(v.status for v in papers)
    lacking = counts["not enough data"]
    lack = {0: "none lacks", 1: "1 lacks"}.get(lacking, f"{lacking} lack")
    return (
        f"Of the paper's {len(papers)} claims {counts['confirmed']} are confirmed, "
        f"{counts['holds so far']} hold on the part of their runs that is there, "
        f"{counts['not confirmed']} are not confirmed, and {lack} runs."
    )


def _paragraphs(findings: Findings, folder: str) -> Iterator[str]:
    yield "# Results\n"
    yield (
        f"Written by `make results` from [{folder}]({folder}); edit nothing here. Remarks come from "
        f"[{folder}/remarks.toml]({folder}/remarks.toml); all figures and the full tables are in "
        f"[{folder}/report.html]({folder}/report.html). Intervals are 95%, bootstrapped over seeds. "
        "Steps to 0 are the first step from which the reward, averaged over seeds and 11 bins of 10k steps "
        "(50k for Nibbler on 32 boards), stays at or above 0; `> 5.00M` was not reached in 5M steps. "
        "Brackets say what there is of a setting that is not complete. Sections are numbered as in "
        "[PAPER.md](PAPER.md).\n"
    )
    yield "## The paper's claims\n"
    yield f"{count_verdicts(findings)} The last ones are ours.\n"
    yield markdown_table(claims_table(findings))
    if findings.smaller_verdicts:
        yield "## The same on smaller problems\n"
        yield (
            "Claims that lack runs above, judged by the studies at laptop size (2 to 8 boards; `nibbler "
            "study show NAME --size laptop` has the runs). That is less than the paper claims.\n"
        )
        yield markdown_table(smaller_table(findings))
    families = (
        ("equal boards", findings["scaling"].results),
        ("varied boards", findings["heterogeneous"].results),
    )
    yield "## Steps to reward 0\n"
    yield markdown_table(steps_table(*families))
    yield "## Doubling ratio\n"
    yield "Steps to 0 on twice the boards over the steps on these; 2 is linear growth.\n"
    yield markdown_table(doubling_table(*families))
    yield "## Doubling ratio along the way\n"
    yield (
        "Nibbler's doubling ratio of the steps until its reward, averaged over a hundredth of the run, stays "
        f"above a share of the way from the random policy to the planner.{_where_zero_is(findings)}\n"
    )
    yield markdown_table(way_table(findings["beyond"].results))
    yield "## Exponent of steps against boards\n"
    yield markdown_table(exponent_table(*families))
    yield "## Finding the structure\n"
    yield (
        "In steps, the moments between which it became so for good: each board has two questions about it; "
        f"one of these has {NEARLY_ALL:.0%} of the board's bits among its inputs; every question has those "
        "of its board. One run of Nibbler for each size, of which about 50 moments are kept.\n"
    )
    yield markdown_table(structure_table(findings))
    yield "## What each reading does\n"
    yield (
        "Where the paper leaves a choice open ([PAPER.md](PAPER.md) lists them), each row departs from the "
        "default in one thing.\n"
    )
    yield markdown_table(readings_table(findings["open-choices"].results))
    yield "## One step beyond the paper\n"
    yield (
        "Nibbler alone; us/step is time on the device over steps, packed runs sharing it."
        f"{_alone_on_a_gpu(findings)}\n"
    )
    yield markdown_table(beyond_table(findings["beyond"], findings.gpu_step))
    yield "## Figures\n"
    yield from _figures(findings, folder)
    yield "## Cost\n"
    yield (
        "Runs side by side on a GPU share its seconds. Studies share runs, so the last row is less than the "
        f"sum. {_plain_jax(findings)}\n"
    )
    yield markdown_table(cost_table(findings))
    yield "The same by where it was done; a run that went on elsewhere counts in each place with its part.\n"
    yield markdown_table(places_table(findings))
    yield "## Not run, or not finished\n"
    yield (
        f"`nibbler study run NAME --size paper --results {folder}` runs what is missing of a study and "
        "nothing else (`--runner gpu` on a GPU); `make results` then reads it.\n"
    )
    yield markdown_table(progress_table(findings))
    yield from _gaps(findings)


def _where_zero_is(findings: Findings) -> str:
    shares = [
        share_of_planner(Estimate(0.0), m.lines.random, m.lines.planner).value
        for m in findings["beyond"].results.only(agent="nibbler")
        if m.lines.random is not None and m.lines.planner is not None
    ]
    return f" Reward 0 is {min(shares):.0%} to {max(shares):.0%} of it." if shares else ""


def _alone_on_a_gpu(findings: Findings) -> str:
    """What the last columns of the table beyond the paper are, and what runs that are missing would take."""
    step = findings.gpu_step
    if step is None:
        return ""
    missing = {p.setting.boards: p.steps for p in findings["beyond"].results.not_run}
    times = [
        f"{format_duration(1e-6 * step.settled[n] * steps)} on {n} boards"
        for n, steps in sorted(missing.items())
        if n in step.settled
    ]
    planned = f" At the settled speed a planned run takes {' and '.join(times)}." if times else ""
    return (
        f" The last columns are microseconds of one run alone on {step.device} (`nibbler bench cuda`), while "
        f"questions look for their inputs and afterwards.{planned}"
    )


def _plain_jax(findings: Findings) -> str:
    if findings.plain_jax is None:
        return "A plain JAX implementation has not been measured."
    return (
        "The last column is what Nibbler's steps would take, one run after the other, at the speed measured "
        f"for a plain JAX implementation on {findings.plain_jax.device} (`nibbler bench plain-jax`), "
        "interpolated between the sizes measured."
    )


def _figures(findings: Findings, folder: str) -> Iterator[str]:
    drawn = [
        f"![{part.entry.title}]({folder}/figures/{part.figure(name)})\n"
        for part in findings.parts
        for name in _FIGURES[part.study.name]
        if can_be_drawn(part, name)
    ]
    yield from drawn or ["None yet.\n"]


def can_be_drawn(part: StudyFindings, name: str) -> bool:
    """Whether there is enough of a study for a figure."""
    from nibbler.reports.catalogue import FIGURES

    return bool(part.results.measured) and FIGURES[name].needs(part.results)


def _gaps(findings: Findings) -> Iterator[str]:
    for name, part in findings.distinct().items():
        lines = [f"{m.setting}{partly(m)}" for m in part.results if not m.complete]
        if not part.results.measured:
            lines = [f"nothing of its {len(part.study.runs)} runs has a result"]
        else:
            lines += [f"not run: {line}" for line in not_run_lines(part.results)]
        if part.entry.left_out:
            lines.append(f"not run, and not planned: {part.entry.left_out}")
        if lines:
            yield f"**{name}**\n"
            yield "".join(f"- {line}\n" for line in lines)
