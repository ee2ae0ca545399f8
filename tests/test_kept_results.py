"""The results in the repository are those that were recorded; RESULTS.md and README.md say what they show."""

from __future__ import annotations

from pathlib import Path

import pytest

from nibbler.reports.findings import Findings, read_findings
from nibbler.reports.markdown import fill_blocks
from nibbler.reports.readme import readme_blocks
from nibbler.reports.results_md import results_text
from nibbler.studies.store import ResultsFolder

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "results" / "paper"


@pytest.fixture(scope="module")
def findings() -> Findings:
    return read_findings(KEPT)


def test_every_kept_run_has_the_files_that_its_record_was_written_with() -> None:
    finished = [run for run in ResultsFolder(KEPT).runs() if run.finished]
    assert len(finished) > 700
    assert {run.path.name: run.altered() for run in finished if run.altered()} == {}


def test_results_md_is_what_the_kept_results_give(findings: Findings) -> None:
    assert (ROOT / "RESULTS.md").read_text(encoding="utf-8") == results_text(findings, ROOT)


def test_the_blocks_of_the_readme_are_what_the_kept_results_give(findings: Findings) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme == fill_blocks(readme, readme_blocks(findings, ROOT))
