"""The tables of RESULTS.md: claims, growth, readings, larger problems, cost, and what was not run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from nibbler.reports.discovery import Discovery
from nibbler.reports.findings import Findings, StudyFindings
from nibbler.reports.tables import NOTHING, TextTable, format_duration, growth_table, law_cells, of_planned
from nibbler.studies.cost import GpuStep, PlainJax, RunCost, Stretch
from nibbler.studies.metrics import doubling_ratios, final_reward, format_estimate, format_quantity
from nibbler.studies.results import SHARES, Measured, StudyResults, agent_label, legend_order

NOT_RUN = "not run"
NOT_TOLD = "unfinished, so not told"  # where a run is done
Family = tuple[str, StudyResults]  # of problems: a name, and what was measured on them


def claims_table(findings: Findings) -> TextTable:
    """Claim, where it is in the paper, what we measured, the verdict, and what a person says about it."""
    rows = []
    for verdict in findings.verdicts:
        status = NOT_RUN if verdict.numbers == NOT_RUN else f"**{verdict.status}**"
        numbers = NOTHING if verdict.numbers == NOT_RUN else verdict.text
        remark = findings.remarks.get(verdict.claim.id, "")
        rows.append([verdict.claim.text, verdict.claim.source, numbers, status, remark])
    return TextTable(["claim", "in the paper", "measured", "verdict", "remark"], rows, text_columns=5)


def smaller_table(findings: Findings) -> TextTable:
    """Claims that lack runs at the paper's size, and what smaller problems say about them."""
    rows = [[v.claim.text, v.text, f"**{v.status}**"] for v in findings.smaller_verdicts]
    return TextTable(["claim", "measured at laptop size", "verdict"], rows, text_columns=3)


def _planned_agents(results: StudyResults) -> list[str]:
    return sorted({p.setting.agent for p in results.planned}, key=legend_order)


def _planned_boards(results: StudyResults) -> list[int]:
    return sorted({p.setting.boards for p in results.planned})


def _scaled_agents(results: StudyResults) -> list[str]:
    sizes = Counter(p.setting.agent for p in results.planned)
    return [agent for agent in _planned_agents(results) if sizes[agent] > 1]


def _lines_of(families: Sequence[Family]) -> Iterator[tuple[str, str, StudyResults]]:
    """Label, agent and results of each line that a table of sizes has; families after the first are named."""
    for k, (family, results) in enumerate(families):
        for agent in _scaled_agents(results):
            yield agent_label(agent) + (f", {family}" if k else ""), agent, results


def steps_table(*families: Family) -> TextTable:
    """Steps to threshold of every agent on every size."""
    boards = _planned_boards(families[0][1])
    rows = []
    for label, agent, results in _lines_of(families):
        found, planned = results.to_threshold(agent), _planned_boards(results)
        cells = [
            (NOT_RUN if n in planned else NOTHING)
            if (m := results.get(agent, n)) is None
            else format_estimate(found[n]) + partly(m)
            for n in boards
        ]
        rows.append([label, *cells])
    return TextTable(["", *(f"{n} boards" for n in boards)], rows)


def partly(measured: Measured) -> str:
    """What there is of a setting that is not complete, in brackets; nothing for one that is."""
    if measured.complete:
        return ""
    seeds, steps = there(measured)
    return f" [{seeds} seeds, {steps} steps]"


def there(measured: Measured) -> tuple[str, str]:
    """Seeds and steps of a setting, and of how many where that is more."""
    seeds, steps = measured.curves.num_seeds, measured.curves.steps
    return (
        of_planned(str(seeds), str(measured.planned_seeds or seeds)),
        of_planned(format_quantity(steps), format_quantity(measured.planned_steps or steps)),
    )


def doubling_table(*families: Family) -> TextTable:
    """The doubling ratio of every agent at every size, with its interval."""
    planned_boards = _planned_boards(families[0][1])
    boards = [n for n in planned_boards if 2 * n in planned_boards]
    rows = []
    for label, agent, results in _lines_of(families):
        ratios, planned = results.doubling_ratios(agent), _planned_boards(results)
        cells = [
            format_estimate(ratios[n], 2) if n in ratios else NOT_RUN if 2 * n in planned else NOTHING
            for n in boards
        ]
        rows.append([label, *cells])
    return TextTable(["", *(f"{n} to {2 * n}" for n in boards)], rows)


def way_table(results: StudyResults) -> TextTable:
    """Nibbler's doubling ratio of the steps to each share of the way from random to planner."""
    boards = _planned_boards(results)
    by_share = [doubling_ratios(results.to_share("nibbler", share)) for share in SHARES]
    rows = []
    for n in (n for n in boards if 2 * n in boards):
        cells = [format_estimate(ratios[n], 2) if n in ratios else NOT_RUN for ratios in by_share]
        rows.append([f"{n} to {2 * n}", *cells])
    return TextTable(["boards", *(f"{share:.0%}" for share in SHARES)], rows)


def exponent_table(*families: Family) -> TextTable:
    """Exponents of steps against boards, of each agent in each family of problems."""
    rows = []
    for family, results in families:
        found = {row[0]: row for row in growth_table(results).rows}
        for agent in _scaled_agents(results):
            row = found.get(agent_label(agent), [agent_label(agent), NOT_RUN, NOTHING, NOTHING])
            rows.append([row[0], family, *row[1:]])
            if (large := results.power_law_of_large(agent)) is not None:
                rows.append([row[0], f"{family}, large ones", *law_cells(large)])
    headings = ["agent", "problems", "exponent", "boards in the fit", "boards not reached"]
    return TextTable(headings, rows, text_columns=2)


def structure_table(findings: Findings) -> TextTable:
    """When Nibbler has found a problem's structure, by number of boards, against when its reward is good."""
    rows = []
    results = findings["beyond"].results
    steps = results.to_threshold("nibbler")
    for boards, found in sorted(findings.discoveries.items()):
        moments = (found.each_asked(), found.each_seen(), found.all_seen())
        cells = [_moment(found, found.settled(moment)) for moment in moments]
        rows.append([str(boards), *cells, format_estimate(steps[boards]) if boards in steps else NOTHING])
    headings = ["boards", "each board has its questions", "one of them sees it", "all of them see it"]
    return TextTable([*headings, f"steps to {results.threshold:g}"], rows)


def _moment(found: Discovery, between: tuple[int, int] | None) -> str:
    if between is None:
        return f"not in {format_quantity(int(found.steps[-1]))}"
    return f"{format_quantity(between[0])} to {format_quantity(between[1])}"


def readings_table(results: StudyResults) -> TextTable:
    """What each reading ends with, and how soon it reaches the threshold, by number of boards."""
    boards = _planned_boards(results)
    agents = list(dict.fromkeys(p.setting.agent for p in results.planned))
    headings = ["reading"]
    for n in boards:
        headings += [f"final reward, {n} boards", f"steps to {results.threshold:g}, {n} boards"]
    rows = []
    for agent in agents:
        row = ["default" if agent == "nibbler" else agent]
        for n in boards:
            measured = results.get(agent, n)
            if measured is None:
                row += [NOT_RUN, NOT_RUN]
            else:
                steps = format_estimate(results.to_threshold(agent)[n])
                row += [format_estimate(final_reward(measured.curves), 4) + partly(measured), steps]
        rows.append(row)
    return TextTable(headings, rows)


def beyond_table(part: StudyFindings, gpu_step: GpuStep | None, smallest: int = 32) -> TextTable:
    """Steps to threshold and the cost of a step as the problem goes on doubling."""
    results = part.results
    rows = []
    for n in (n for n in _planned_boards(results) if n >= smallest):
        measured = results.get("nibbler", n)
        rows.append([str(n), *(_beyond_cells(part, measured) if measured else [NOT_RUN] * 6)])
        if gpu_step is not None:
            alone = (gpu_step.early.get(n), gpu_step.settled.get(n))
            rows[-1] += [NOTHING if us is None else f"{us:.1f}" for us in alone]
    headings = ["boards", "seeds", "steps", "steps to 0", "doubling ratio", "weights/step", "us/step"]
    if gpu_step is not None:
        headings += ["alone, early", "alone, settled"]
    return TextTable(headings, rows)


def _beyond_cells(part: StudyFindings, measured: Measured) -> list[str]:
    results, n = part.results, measured.setting.boards
    ratio = results.doubling_ratios("nibbler").get(n // 2)
    own = [c for c in part.costs if c.spec.agent.get("name") == "nibbler" and boards_of(c) == n]
    seconds, steps = sum(c.seconds for c in own), sum(c.steps for c in own)
    weights = measured.weights_per_step
    return [
        *there(measured),
        format_estimate(results.to_threshold("nibbler")[n]),
        NOTHING if ratio is None else format_estimate(ratio, 2),
        NOTHING if math.isnan(weights) else format_quantity(weights),
        f"{1e6 * seconds / steps:.2f}" if steps and seconds else NOTHING,
    ]


def cost_table(findings: Findings) -> TextTable:
    """Per study and in all: runs, steps, time, speed, where; and the same of Nibbler in plain JAX."""
    rows = [
        _cost_row(name, part.costs, len(part.study.runs), findings.plain_jax)
        for name, part in findings.distinct().items()
    ]
    planned = {spec.id for part in findings.parts for spec in part.study.runs}
    rows.append(_cost_row("all, each run once", findings.costs, len(planned), findings.plain_jax))
    headings = ["study", "engine and device", "runs", "steps", "time", "steps/s"]
    headings += ["Nibbler's time of it", "Nibbler in plain JAX"]
    return TextTable(headings, rows, text_columns=2)


def places_table(findings: Findings) -> TextTable:
    """What each engine and device did of all this; a run that went on elsewhere has a part in both places."""
    runs: Counter[str] = Counter()
    by_place: dict[str, list[Stretch]] = {}
    for cost in findings.costs:
        runs.update(_places(cost))
        for stretch in cost.stretches:
            by_place.setdefault(_place(cost, stretch), []).append(stretch)
    rows = [[place, str(runs[place]), *_work(by_place[place])] for place in sorted(by_place)]
    return TextTable(["engine and device", "runs", "steps", "time", "steps/s"], rows)


def _cost_row(name: str, costs: Sequence[RunCost], planned: int, plain_jax: PlainJax | None) -> list[str]:
    finished = of_planned(str(sum(c.finished for c in costs)), str(planned))
    if not costs:
        return [name, NOTHING, finished, *[NOT_RUN] * 4, NOTHING]
    ours = [c for c in costs if c.spec.agent.get("name") == "nibbler"]
    return [
        name,
        "; ".join(sorted({place for c in costs if c.engine is not None for place in _places(c)})) or NOT_TOLD,
        finished,
        *_work(costs),
        format_duration(sum(c.seconds for c in ours)) if ours else NOTHING,
        _plain_jax_text(ours, plain_jax),
    ]


def _work(parts: Sequence[RunCost | Stretch]) -> list[str]:
    """Steps, time and speed of runs, or of parts of runs."""
    seconds, steps = sum(part.seconds for part in parts), sum(part.steps for part in parts)
    speed = format_quantity(steps / seconds) if seconds else NOTHING
    return [format_quantity(steps), format_duration(seconds), speed]


def _places(cost: RunCost) -> set[str]:
    return {_place(cost, stretch) for stretch in cost.stretches}


def _place(cost: RunCost, stretch: Stretch) -> str:
    return NOT_TOLD if cost.engine is None else f"{cost.engine} on {stretch.device}"


def _plain_jax_text(ours: Sequence[RunCost], plain_jax: PlainJax | None) -> str:
    if not ours:
        return NOTHING
    if plain_jax is None:
        return "not measured"
    times = {c.spec.id: plain_jax.seconds(boards_of(c), c.steps) for c in ours}
    unknown = sorted({boards_of(c) for c in ours if math.isnan(times[c.spec.id])})
    total = sum(seconds for seconds in times.values() if not math.isnan(seconds))
    without = f" without {', '.join(map(str, unknown))} boards, not measured" if unknown else ""
    return format_duration(total) + without


def boards_of(cost: RunCost) -> int:
    return int(cost.spec.environment["num_boards"])


def progress_table(findings: Findings) -> TextTable:
    """Per study, how many settings are complete, partly there, and not run."""
    rows = []
    for name, part in findings.distinct().items():
        complete = sum(m.complete for m in part.results)
        rows.append(
            [
                name,
                str(complete),
                str(len(part.results.measured) - complete),
                str(len(part.results.not_run)),
                of_planned(str(part.finished), str(len(part.study.runs))),
            ]
        )
    headings = ["study", "settings complete", "partly there", "not run", "runs finished"]
    return TextTable(headings, rows)
