"""The environment benchmark measures what it says and writes what it measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nibbler.bench.env import run


def test_rows_hold_the_medians_of_every_implementation(tmp_path: Path) -> None:
    lines: list[str] = []
    output = tmp_path / "bench" / "env.json"
    rows = run(boards=(1, 3), repeats=3, board_steps=3000, output=output, echo=lines.append)
    measured = [(row["implementation"], row["boards"]) for row in rows]
    assert measured[:4] == [
        ("nibbler, compiled loop", 1),
        ("nibbler, compiled loop", 3),
        ("nibbler, compiled loop, heterogeneous", 1),
        ("nibbler, compiled loop, heterogeneous", 3),
    ]
    assert ("bsuite Catch", 1) in measured
    for row in rows:
        assert 0 < row["slowest"] <= row["steps_per_second"] <= row["fastest"]
        assert row["board_steps_per_second"] == row["boards"] * row["steps_per_second"]
    assert len(lines) == len(rows) + 2
    record = json.loads(output.read_text())
    assert record["rows"] == rows
    assert record["repeats"] == 3
    assert list(output.parent.iterdir()) == [output]


def test_it_runs_as_a_module(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "nibbler.bench.env",
        "--boards",
        "2",
        "--repeats",
        "1",
        "--board-steps",
        "500",
    ]
    done = subprocess.run(
        [*command, "--output", str(tmp_path / "a.json")], capture_output=True, text=True, check=True
    )
    assert "| nibbler, compiled loop | 2 |" in done.stdout
    assert (tmp_path / "a.json").exists()


@pytest.mark.parametrize("options", [{"boards": ()}, {"boards": (0,)}, {"repeats": 0}, {"board_steps": 0}])
def test_empty_measurements_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="must be at least 1"):
        run(**options)  # type: ignore[arg-type]
