"""The commands at work, on runs of a few hundred steps."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nibbler.cli.main import main
from nibbler.cli.output import sparkline, table_lines
from nibbler.cli.study import prepare
from nibbler.reports.tables import TextTable
from nibbler.studies.paper import STUDIES
from nibbler.studies.spec import Study

Call = Callable[..., tuple[int, str, str]]
TINY = """
name = "tiny"
[defaults]
steps = 400
bin_size = 100
engine = "reference"
seeds = 2
[[runs]]
environment = {name = "multi_catch", num_boards = 2}
agent = {name = "nibbler", hidden_units = 4, inputs_per_question = 8}
[[runs]]
environment = {name = "multi_catch", num_boards = 2}
agent = {name = "planner"}
"""


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as leaving:
            main(words)
        captured = capsys.readouterr()
        return int(leaving.value.code or 0), captured.out, captured.err

    return run


SMALL_NIBBLER = ("--set", "hidden_units=4", "--set", "inputs_per_question=8")


def test_train_says_what_was_earned(call: Call) -> None:
    code, out, _ = call("train", "--engine", "reference", "--steps", "400", "--inspect", *SMALL_NIBBLER)
    assert code == 0
    assert "400 steps on the reference engine" in out
    assert "random policy -0.0571, exact" in out
    assert "> 400 steps (not reached)" in out
    assert "question" in out


def test_train_with_results_is_kept_and_not_run_twice(call: Call, tmp_path: Path) -> None:
    words = ("train", "--engine", "reference", "--steps", "400", "--results", "kept", *SMALL_NIBBLER)
    code, first, _ = call(*words)
    assert code == 0
    folder = Path(re.search(r"kept in (.*)", first)[1])
    written = (tmp_path / folder / "record.json").stat().st_mtime_ns
    code, second, _ = call(*words)
    assert code == 0
    assert (tmp_path / folder / "record.json").stat().st_mtime_ns == written
    assert first.splitlines()[1:3] == second.splitlines()[1:3]


def test_a_study_from_a_file_runs_reports_and_is_skipped_when_run_again(call: Call, tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    code, out, err = call("study", "tiny.toml", "--results", "out", "--workers", "1")
    assert code == 0
    assert err.count("finished") == 4
    assert "steps until ≥ 0" in out
    assert (tmp_path / "out" / "report.html").exists()
    assert (tmp_path / "out" / "figures" / "tiny-custom-curves.png").exists()
    code, again, err = call("study", "run", "tiny.toml", "--results", "out", "--no-report")
    assert code == 0
    assert "finished" not in err
    assert [line for line in again.splitlines() if line.startswith("Nibbler")] == [
        line for line in out.splitlines() if line.startswith("Nibbler")
    ]
    code, status, _ = call("study", "status", "--results", "out", "--runs")
    assert code == 0
    assert re.search(r"tiny \(custom\) +100% +4 +0", status)
    assert status.count("planner") == 2
    code, report, _ = call("report", "out", "--study", "tiny")
    assert (code, report.strip()) == (0, "report: out/report.html")


def test_results_are_kept_in_another_folder(call: Call, tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    call("study", "run", "tiny.toml", "--results", "out", "--no-report")
    code, out, _ = call("study", "keep", "out", "kept")
    assert code == 0
    assert "4 runs copied (0 of them unfinished), 0 were there already" in out
    assert "4 were there already" in call("study", "keep", "out", "kept")[1]
    assert call("report", "kept")[0] == 0
    assert (tmp_path / "kept" / "report.html").exists()


def test_what_was_found_about_the_paper_is_written_even_of_an_empty_folder(
    call: Call, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    code, out, _ = call("report", "empty", "--markdown", "RESULTS.md")
    assert (code, out) == (0, "wrote RESULTS.md\n")
    assert "0 are confirmed" in (tmp_path / "RESULTS.md").read_text()


def test_a_failing_run_is_named_and_fails_the_command(call: Call, tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TINY.replace("hidden_units = 4", "hidden_units = 0"))
    code, _, err = call("study", "tiny.toml", "--results", "out", "--workers", "1", "--no-report")
    assert code == 1
    assert "failed: " in err.splitlines()[-1]
    assert "(and 1 more)" in err.splitlines()[-1]


def test_tracking_writes_event_files(call: Call, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    words = ("train", "--engine", "reference", "--steps", "400", "--results", "kept", *SMALL_NIBBLER)
    code, _, _ = call(*words, "--track", "tensorboard")
    assert code == 0
    assert list((tmp_path / "kept").rglob("events.out.tfevents.*"))


def test_list_and_show_describe_every_study(call: Call) -> None:
    _, out, _ = call("study", "list")
    for name, study in STUDIES.items():
        assert name in out
        assert study.title in out
    _, out, _ = call("study", "show", "inputs", "--size", "smoke")
    assert "inputs_per_question=10" in out
    assert "30 inputs or fewer" in out


@pytest.mark.parametrize("form", ["json", "toml"])
def test_a_study_of_ours_can_be_taken_as_a_start(call: Call, form: str) -> None:
    _, out, _ = call("study", "show", "questions", "--size", "smoke", "--format", form)
    read = Study.from_json(out) if form == "json" else Study.from_toml(out)
    assert read == STUDIES["questions"].study("smoke")


def test_the_engine_can_be_changed_for_the_agents_that_it_runs() -> None:
    changed = prepare(STUDIES["curves"].study("smoke"), "reference")
    assert {run.engine for run in changed.runs} == {"reference"}
    assert {run.id for run in changed.runs}.isdisjoint(
        {run.id for run in STUDIES["curves"].study("smoke").runs}
    )


def test_rainbow_is_left_out_where_jax_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    planned = STUDIES["curves"].study("paper")
    kept = prepare(planned, None)
    assert all(run.engine != "jax" for run in kept.runs)
    left_out = sum(run.agent["name"] == "rainbow" for run in planned.runs)
    assert left_out > 0
    assert f"leaving out {left_out} runs that need JAX" in capsys.readouterr().err


def test_bench_hands_its_options_over(call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import nibbler.bench.env

    given: dict[str, object] = {}

    def run(boards: tuple[int, ...] = (), output: Path | None = None) -> list[object]:
        given.update(boards=boards, output=output)
        return []

    monkeypatch.setattr(nibbler.bench.env, "run", run)
    assert call("bench", "env", "--boards", "2,4", "--output", "rows.json")[0] == 0
    assert given == {"boards": (2, 4), "output": Path("rows.json")}
    code, _, err = call("bench", "env", "--repeats", "3")
    assert code == 2
    assert "bench env has no --repeats" in err


def test_tables_line_up() -> None:
    table = TextTable(["agent", "n"], [["Nibbler", "2"], ["Q", "128"]])
    assert table_lines(table) == ["agent      n", "Nibbler    2", "Q        128"]


def test_sparklines_go_from_low_to_high() -> None:
    assert sparkline(np.linspace(0, 1, 8)) == "▁▂▃▄▅▆▇█"
    assert sparkline(np.zeros(3)) == "▁▁▁"
    assert sparkline(np.empty(0)) == ""


def test_a_smoke_study_of_ours_runs_to_its_report(call: Call, tmp_path: Path) -> None:
    code, out, _ = call("study", "questions", "--size", "smoke", "--results", "out")
    assert code == 0
    assert "not enough data" in out
    study = json.loads((tmp_path / "out" / "studies" / "questions-smoke.json").read_text())
    assert study["name"] == "questions"
    assert (tmp_path / "out" / "figures" / "questions-smoke-questions.svg").exists()
