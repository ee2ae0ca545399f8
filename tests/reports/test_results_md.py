"""RESULTS.md and the README's blocks: from the data, complete about what is missing, and never stale."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from nibbler.reports.findings import Findings, read_findings
from nibbler.reports.markdown import fill_blocks, markdown_table
from nibbler.reports.readme import readme_blocks
from nibbler.reports.report import write_findings, write_report
from nibbler.reports.results_md import results_text
from nibbler.reports.results_tables import places_table
from nibbler.reports.tables import TextTable
from nibbler.studies.claims import CLAIMS
from nibbler.studies.cost import Stretch
from nibbler.studies.paper import STUDIES
from nibbler.studies.reading import agent_name
from nibbler.studies.spec import RunSpec
from nibbler.studies.store import ResultsFolder

REPOSITORY = Path(__file__).parents[2]
PICTURE = re.compile(r"!\[[^]]*\]\(([^)]*)\)")
Choose = Callable[[RunSpec], float]


def leave(folder: Path, study: str, share: Choose, size: str = "paper") -> None:
    """Runs of a study, each done to a share of its steps (0: not begun)."""
    results = ResultsFolder(folder)
    for spec in STUDIES[study].study(size).runs:
        bins = int(share(spec) * spec.num_bins)
        if bins == 0:
            continue
        run = results.run(spec)
        run.create(spec)
        boards = spec.environment["num_boards"]
        crossing = {"nibbler": 65 * boards, "planner": 0}.get(agent_name(spec), 10**9)
        reward = np.where(np.arange(spec.num_bins) < crossing, -0.06, 0.05) + 0.001 * spec.seed
        steps = np.arange(1, bins + 1) * spec.bin_size
        run.save_table("curve", {"step": steps, "reward": reward[:bins]}, {})
        run.save_table("timing", {"step": steps, "seconds": steps * 1e-5}, {})
        if share(spec) == 1:
            machine = {"processor": "Xeon", "gpu": "H200"}
            record: dict[str, Any] = {"engine": "cuda", "steps": spec.steps, "seconds": spec.steps * 1e-5}
            record |= {"steps_per_second": 1e5, "weights_touched_per_step": 1e3 * boards, "machine": machine}
            run.save_record(record)


def small_part(spec: RunSpec) -> float:
    """Nibbler finished on 2, 4 and 8 boards; Q-learning begun on 4 with one seed; nothing else."""
    boards, agent = spec.environment["num_boards"], agent_name(spec)
    if agent in ("nibbler", "planner") and boards <= 8:
        return 1
    return 0.25 if agent == "q-learning" and boards == 4 and spec.seed == 0 else 0


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory, leave_snapshots: Callable[..., None]) -> Findings:
    folder = tmp_path_factory.mktemp("repository") / "results" / "paper"
    leave(folder, "curves", small_part)
    for spec in STUDIES["curves"].study("paper").runs:
        if agent_name(spec) == "nibbler" and spec.environment["num_boards"] in (4, 8) and spec.seed == 1:
            leave_snapshots(ResultsFolder(folder), spec)
    (folder / "remarks.toml").write_text('linear-growth = """Ours is\\n  linear."""\n')
    return read_findings(folder)


@pytest.fixture(scope="module")
def text(findings: Findings) -> str:
    return results_text(findings, findings.folder.parents[1])


def row(text: str, start: str) -> list[str]:
    """The cells of the first table row whose first cell starts so."""
    line = next(line for line in text.splitlines() if line.startswith(f"| {start}"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_every_claim_is_there_with_its_verdict_and_remark(text: str) -> None:
    for claims in CLAIMS.values():
        for claim in claims:
            assert f"| {claim.text} | {claim.source} |" in text
    growth = row(text, "The experience that Nibbler needs")
    assert growth[2].startswith("exponent 1.00 (1.00 to 1.00) over 2 to 8 boards. Judged on part of the runs")
    assert "Nibbler on 16, 32, 64, 128 boards: not run" in growth[2]
    assert growth[3:] == ["**holds so far**", "Ours is linear."]
    assert row(text, "30 inputs or fewer")[2:4] == ["-", "not run"]


def test_what_was_not_run_or_not_finished_is_listed(text: str) -> None:
    tail = text[text.index("## Not run, or not finished") :]
    assert "`nibbler study run NAME --size paper --results results/paper` runs what is missing" in tail
    assert "- Q-learning on 4 boards [1 of 10 seeds, 2.00M of 8.00M steps]" in tail
    assert "- not run: Rainbow on 2, 4, 8, 16, 32 boards" in tail
    assert "- not run, and not planned: Rainbow on more than 32 boards" in tail
    assert "- not run: Q-learning on 8 (45 of 45 settings), 32 (45 of 45 settings) boards" in tail
    for name, entry in STUDIES.items():
        if "paper" in entry.sizes:
            assert name in tail
    assert f"- nothing of its {len(STUDIES['inputs'].study('paper').runs)} runs has a result" in tail


def test_tables_give_intervals_ratios_and_gaps(text: str) -> None:
    steps = text[text.index("## Steps to reward 0") :]
    measured = [f"{value} ({value} to {value})" for value in ("1.30M", "2.60M", "5.20M")]
    assert row(steps, "Nibbler")[1:5] == [*measured, "not run"]
    assert row(steps, "Q-learning")[2] == "> 2.00M [1 of 10 seeds, 2.00M of 8.00M steps]"
    ratios = text[text.index("## Doubling ratio") :]
    assert row(ratios, "Nibbler")[1:4] == ["2.00 (2.00 to 2.00)", "2.00 (2.00 to 2.00)", "not run"]
    readings = text[text.index("## What each reading does") :]
    assert row(readings, "all as written")[1:] == ["not run"] * 4
    beyond = text[text.index("## One step beyond") :]
    assert row(beyond, "512")[1:] == ["not run"] * 6


def test_doubling_ratios_along_the_way_are_given_for_what_was_run(text: str) -> None:
    heading = "| boards | 5% | 10% | 20% | 30% | 50% | 70% |"
    table = text[text.index(heading) :]
    for doubling in ("2 to 4", "4 to 8"):  # their curves jump at 65 bins per board, from less than 10%
        values = [float(cell.split()[0]) for cell in row(table, doubling)[2:]]
        assert values == pytest.approx([2.0] * 5, abs=0.05)
    assert row(table, "8 to 16")[1:] == ["not run"] * 6
    # between -0.0571 and 0.05 on 2 boards, between -0.0696 and 0.05 on 8
    assert "Reward 0 is 53% to 58% of it." in text


def test_cost_counts_a_run_once_and_says_that_plain_jax_is_not_measured(text: str) -> None:
    cost = text[text.index("## Cost") :]
    curves, everything = row(cost, "curves, scaling"), row(cost, "all, each run once")
    assert curves[3:] == everything[3:]  # all runs are of that study
    assert curves[1] == "cuda on H200"
    assert curves[-1] == "not measured"
    # Three seeds of 5M, 12M and 24M steps shared 50, 120 and 240 s; planners ran alone.
    assert curves[6] == "4.5 min"


def test_cost_is_given_by_engine_and_device_too(text: str) -> None:
    cost = text[text.index("The same by where it was done") :]
    # Three seeds of 3M, 8M and 16M steps shared 30, 80 and 160 s, three planners of 0.3M steps 3 s.
    assert row(cost, "cuda on H200")[1:] == ["12", "81.9M", "4.5 min", "300k"]
    # A quarter of Q-learning's 8M steps on 4 boards is there.
    assert row(cost, "unfinished, so not told")[1:] == ["1", "2.00M", "20.0 s", "100k"]


def test_a_run_that_went_on_elsewhere_counts_in_each_place_with_its_part(findings: Findings) -> None:
    stretches = (Stretch("A", 1_000, 1.0), Stretch("B", 5_000, 2.0), Stretch("A", 3_000, 3.0))
    moved, stayed = (
        replace(findings.costs[0], engine="jax", stretches=s) for s in (stretches, stretches[:1])
    )
    table = places_table(cast("Findings", SimpleNamespace(costs=[moved, stayed])))
    assert table.rows == [
        ["jax on A", "2", "5.00k", "5.0 s", "1.00k"],
        ["jax on B", "1", "5.00k", "2.0 s", "2.50k"],
    ]


def test_plain_jax_is_read_from_beside_the_results(findings: Findings) -> None:
    bench = findings.folder.parent / "bench"
    bench.mkdir(exist_ok=True)
    rows = [{"boards": n, "steps_per_second": 1000.0} for n in (2, 128)]
    (bench / "plain-jax.json").write_text(json.dumps({"rows": rows}))
    try:
        read = results_text(read_findings(findings.folder), findings.folder.parents[1])
    finally:
        (bench / "plain-jax.json").unlink()
    assert row(read[read.index("## Cost") :], "curves, scaling")[-1] == "22.5 h"  # 3 x 27M steps


def test_what_a_step_costs_on_a_gpu_is_read_from_beside_the_results(findings: Findings, text: str) -> None:
    def section(of: str) -> str:
        return of[of.index("## One step beyond the paper") : of.index("## Figures")]

    assert len(row(section(text), "512")) == 7
    rows = [
        {"agent": agent, "boards": 512, "runs": runs, "phase": phase, "microseconds_per_step": us}
        for agent, runs, phase, us in (
            ("nibbler", 1, "early", 128.04),
            ("nibbler", 1, "settled", 60.0),
            ("nibbler", 8, "settled", 99.0),
            ("q-learning", 1, "settled", 1.0),
        )
    ]
    bench = findings.folder.parent / "bench"
    bench.mkdir(exist_ok=True)
    (bench / "cuda.json").write_text(json.dumps({"device": "H200", "rows": rows}))
    try:
        read = section(results_text(read_findings(findings.folder), findings.folder.parents[1]))
    finally:
        (bench / "cuda.json").unlink()
    assert row(read, "512")[-2:] == ["128.0", "60.0"]
    assert row(read, "256")[-2:] == ["-", "-"]
    assert "one run alone on H200" in read
    assert "At the settled speed a planned run takes 15.8 h on 512 boards." in read  # 950M steps


def test_when_the_structure_is_found_is_read_from_snapshots(text: str) -> None:
    # The snapshots left are of ten moments evenly over 8M and 16M steps; from the sixth on all is found.
    table = text[text.index("## Finding the structure") : text.index("## What each reading does")]
    assert row(table, "4")[2:] == ["3.56M to 4.44M", "3.56M to 4.44M", "2.60M (2.60M to 2.60M)"]
    assert row(table, "8")[2:4] == ["7.11M to 8.89M", "7.11M to 8.89M"]
    assert not any(line.startswith("| 2 |") for line in table.splitlines())  # no snapshots of it


def test_the_structure_of_a_run_beyond_the_paper_is_told_before_it_ends(
    tmp_path: Path, leave_snapshots: Callable[..., None]
) -> None:
    folder = tmp_path / "results" / "paper"
    runs = [spec for spec in STUDIES["beyond"].study("paper").runs if agent_name(spec) == "nibbler"]
    begun = next(spec for spec in runs if spec.environment["num_boards"] == 256)
    leave(folder, "beyond", lambda spec: 0.1 if spec == begun else 0)
    leave_snapshots(ResultsFolder(folder), begun)
    found = read_findings(folder)
    text = results_text(found, tmp_path)
    table = text[text.index("## Finding the structure") :]
    assert row(table, "256")[1:] == ["156M to 194M"] * 3 + [
        "> 35.0M"
    ]  # its moments are for all its 350M steps
    assert "discovery" not in readme_blocks(found, tmp_path)["figures"]  # the study of curves has no such map


def test_a_remark_on_no_claim_is_refused(findings: Findings, tmp_path: Path) -> None:
    (tmp_path / "remarks.toml").write_text('lineargrowth = "typo"\n')
    with pytest.raises(ValueError, match="there is no claim 'lineargrowth'"):
        read_findings(tmp_path)


def test_the_readme_says_what_was_found(findings: Findings) -> None:
    blocks = readme_blocks(findings, findings.folder.parents[1])
    assert "(results/paper/figures/scaling-paper-scaling.png)" in blocks["figures"]
    assert "(results/paper/figures/curves-paper-discovery-8.png)" in blocks["figures"]
    assert (
        "From 2 to 8 boards the steps that Nibbler needs grow as boards^1.00 (1.00 to 1.00)"
        in blocks["found"]
    )


def test_growth_on_large_problems_has_a_row_and_a_word_of_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "results" / "paper"
    leave(folder, "curves", lambda spec: float(agent_name(spec) == "nibbler" and spec.seed < 2))
    found = read_findings(folder)
    exponents = results_text(found, tmp_path).split("## Exponent")[1]
    cells = next(line for line in exponents.splitlines() if "equal boards, large ones" in line).split("|")
    assert [cell.strip() for cell in cells[4:6]] == ["16, 64, 128", "32"]  # whose bins are longer here
    words = r", and as boards\^[\d.]+ \([\d.]+ to [\d.]+\) from 16 on"
    assert re.search(words, readme_blocks(found, tmp_path)["found"])


def test_varied_boards_have_rows_of_their_own(tmp_path: Path) -> None:
    folder = tmp_path / "results" / "paper"
    leave(folder, "heterogeneous", small_part)
    text = results_text(read_findings(folder), tmp_path)
    steps, ratios = (text[text.index(f"## {title}") :] for title in ("Steps to reward 0", "Doubling ratio"))
    assert row(steps, "Nibbler |")[1:] == ["not run"] * 7
    measured = [f"{value} ({value} to {value})" for value in ("1.30M", "2.60M", "5.20M")]
    assert row(steps, "Nibbler, varied boards")[1:] == [*measured, "not run", "not run", "not run", "-"]
    twice = "2.00 (2.00 to 2.00)"
    assert row(ratios, "Nibbler, varied boards")[1:] == [twice, twice, "not run", "not run", "not run", "-"]


def test_a_claim_that_lacks_runs_is_judged_on_smaller_problems_apart(tmp_path: Path) -> None:
    folder = tmp_path / "results" / "paper"
    leave(folder, "questions", lambda spec: 1, "laptop")
    above, below = results_text(read_findings(folder), tmp_path).split("## The same on smaller problems")
    claim = "With too few questions"
    assert row(above, claim)[-2] == "not run"
    assert row(below, claim)[-1] == "**not confirmed**"  # all of these learn alike


def test_an_empty_folder_has_nothing_to_show_and_says_so(tmp_path: Path) -> None:
    empty = read_findings(tmp_path / "results" / "paper")
    assert {v.numbers for v in empty.verdicts} == {"not run"}
    assert "No run of the paper's size" in readme_blocks(empty, tmp_path)["figures"]
    assert "0 are confirmed, 0 hold on" in results_text(empty, tmp_path)


def test_figures_that_the_text_shows_are_drawn(findings: Findings, text: str) -> None:
    page = write_report(findings.folder, size="paper")
    shown = PICTURE.findall(text) + PICTURE.findall(
        readme_blocks(findings, findings.folder.parents[1])["figures"]
    )
    assert len(shown) >= 5
    for path in shown:
        assert (findings.folder.parents[1] / path).exists()
    assert "Not run: Q-learning on" in page.read_text()


def test_blocks_are_replaced_and_the_rest_is_left_alone() -> None:
    text = "a\n<!-- results: one -->\nold\nlines\n<!-- end -->\nb <!-- end --> c\n"
    filled = fill_blocks(text, {"one": "new | \\1\n"})
    assert filled == "a\n<!-- results: one -->\nnew | \\1\n<!-- end -->\nb <!-- end --> c\n"
    assert fill_blocks(filled, {"one": "new | \\1"}) == filled
    with pytest.raises(ValueError, match="there is no block 'one'"):
        fill_blocks(text, {})
    with pytest.raises(ValueError, match="the text has no block 'two'"):
        fill_blocks(text, {"one": "", "two": ""})


def test_cells_cannot_break_out_of_a_table() -> None:
    table = TextTable(["a", "b"], [["x | y\nz", "<img>"]])
    assert markdown_table(table) == "| a | b |\n| --- | ---: |\n| x \\| y z | &lt;img> |\n"


def test_the_command_writes_the_page_the_text_and_the_readme(findings: Findings, tmp_path: Path) -> None:
    readme, markdown = tmp_path / "README.md", tmp_path / "RESULTS.md"
    readme.write_text("<!-- results: figures -->\n<!-- end -->\n<!-- results: found -->\n<!-- end -->\n")
    write_findings(findings.folder, markdown, readme)
    assert markdown.read_text() == results_text(findings, tmp_path)
    assert readme_blocks(findings, tmp_path)["found"] in readme.read_text()


def test_readme_and_results_are_what_the_command_writes_from_the_results_in_the_repository() -> None:
    """If this fails, run `make results` and commit what it changes."""
    found = read_findings(REPOSITORY / "results" / "paper")
    assert results_text(found, REPOSITORY) == (REPOSITORY / "RESULTS.md").read_text(encoding="utf-8")
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert fill_blocks(readme, readme_blocks(found, REPOSITORY)) == readme


def test_the_pictures_of_readme_and_results_are_in_the_repository() -> None:
    for name in ("README.md", "RESULTS.md"):
        for picture in PICTURE.findall((REPOSITORY / name).read_text(encoding="utf-8")):
            assert (REPOSITORY / picture).exists(), picture


def test_finished_runs_in_the_repository_have_all_their_steps() -> None:
    results = [run.result() for run in ResultsFolder(REPOSITORY / "results" / "paper").runs()]
    assert len(results) > 100
    assert [r.spec.label for r in results if r.finished and r.steps != r.spec.steps] == []


def test_the_results_in_the_repository_are_the_files_that_their_records_were_written_with() -> None:
    finished = [run for run in ResultsFolder(REPOSITORY / "results" / "paper").runs() if run.finished]
    assert len(finished) > 700
    assert {run.path.name: run.altered() for run in finished if run.altered()} == {}
