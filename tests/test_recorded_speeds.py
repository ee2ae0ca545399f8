"""The speeds in README.md and docs/cuda.md are those that are recorded in results/bench."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
NETWORKS = {
    "32, Q-learning, 256 units": "q-learning",
    "32, QV-learning, 256 units": "qv-learning",
    "32, Q-learning, 4096 units": "q-learning, 4096 units",
}
CPU_ROWS = {
    "Nibbler, settled": ("nibbler", "cpu", "settled"),
    "Nibbler, early": ("nibbler", "cpu", "early"),
    "Nibbler, dense reference": ("nibbler", "reference", ""),
    "Q-learning, 256 units": ("q-learning", "cpu", ""),
    "QV-learning, 256 units": ("qv-learning", "cpu", ""),
}


def records(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((ROOT / "results" / "bench" / name).read_text())["rows"]
    return rows


def table(document: str, heading: str) -> list[list[str]]:
    """The cells of the table whose first line begins so."""
    lines = (ROOT / document).read_text(encoding="utf-8").splitlines()
    first = next(k for k, line in enumerate(lines) if line.startswith(heading))
    rows = []
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            return rows
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def says(cell: str, value: float) -> bool:
    """Whether a cell is the value: to the decimals that it has or, of whole numbers, to three digits."""
    number = cell.replace(",", "")
    if "." in number:
        return f"{value:.{len(number.split('.')[1])}f}" == number
    return float(f"{value:.3g}" if value >= 100 else round(value)) == float(number)


@pytest.mark.parametrize(
    "document, heading",
    [
        ("README.md", "| boards | runs side by side | us per step, early |"),
        ("docs/cuda.md", "| boards | runs | us per step, early |"),
    ],
)
def test_the_gpu_tables_are_those_of_the_record(document, heading):
    rows = records("cuda.json")
    found = table(document, heading)
    assert len(found) >= 5
    for label, runs, early, settled, in_all, *_ in found:
        agent = NETWORKS.get(label, "nibbler")
        boards = int(re.match(r"\d+", label)[0])
        of_row = {
            r["phase"]: r for r in rows if (r["agent"], r["boards"], r["runs"]) == (agent, boards, int(runs))
        }
        last = of_row["settled" if agent == "nibbler" else ""]
        assert says(settled, last["microseconds_per_step"]), (label, settled, last)
        assert says(in_all, last["steps_per_second"]), (label, in_all, last)
        if agent == "nibbler":
            assert says(early, of_row["early"]["microseconds_per_step"]), (label, early)


def test_the_cpu_table_is_that_of_the_record():
    rows = records("cpu.json")
    found = table("README.md", "| | 2 boards | 8 boards | 32 boards | 128 boards |")
    assert [label for label, *_ in found] == list(CPU_ROWS)
    for label, *cells in found:
        for boards, cell in zip((2, 8, 32, 128), cells, strict=True):
            of_cell = [
                r
                for r in rows
                if (r["agent"], r["engine"], r["phase"], r["boards"]) == (*CPU_ROWS[label], boards)
            ]
            assert bool(of_cell) == bool(cell), (label, boards)
            assert all(says(cell, r["steps_per_second"]) for r in of_cell), (label, boards, cell, of_cell)


def test_the_layout_tables_are_rows_of_the_record():
    measured: dict[tuple[int, int, str, str], list[float]] = {}  # early and settled of Nibbler, one of others
    for r in records("cuda-layouts.json"):
        of_layout = measured.setdefault((r["boards"], r["runs"], r["agent"], r["commit"]), [])
        of_layout.append(r["microseconds_per_step"])
    known = {
        (boards, runs, *(f"{us:.1f}" for us in (*times, runs / times[-1])))
        for (boards, runs, _, _), times in measured.items()
    }
    for heading in ("| Nibbler | runs side by side |", "| flat network | runs side by side |"):
        found = table("docs/cuda.md", heading)
        assert len(found) >= 8
        for label, runs, *cells in found:
            assert (int(label.split()[0]), int(runs), *cells) in known, label


def test_a_wrong_digit_is_seen():
    assert says("29,300,000", 29_287_316.0)
    assert not says("29,400,000", 29_287_316.0)
    assert says("4.6", 4.598)
    assert not says("4.5", 4.598)
    assert says("145", 145.10)
    assert not says("150", 145.10)
