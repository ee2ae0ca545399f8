"""The README's examples run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

BLOCKS = re.findall(
    r"```python\n(.*?)```", (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8"), re.DOTALL
)


@pytest.mark.parametrize(
    "code",
    [pytest.param(code, marks=pytest.mark.slow if "nibbler.train(" in code else ()) for code in BLOCKS],
)
def test_an_example_of_the_readme_runs(code, capsys):
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out.strip()


def test_the_example_of_an_own_environment_takes_about_twenty_lines():
    example = next(code for code in BLOCKS if "FiniteMDP.explore" in code)
    assert len([line for line in example.splitlines() if line.strip()]) <= 22
