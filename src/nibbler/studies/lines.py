"""The two lines that a curve lies between: the random policy (exact) and the planner (simulated).

The planner is an agent like any other, so its runs are part of a study, are stored like any other run, and
are never simulated twice. The random line needs no run: it follows from the tables, and is kept in
RESULTS/random-lines.json because a heterogeneous family has many tables.

Only environments of ours are ever built here; an import path in a stranger's spec is not followed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from nibbler.studies.files import read_json, write_json
from nibbler.studies.spec import canonical_json

PLANNER_STEPS = 300_000  # standard error about 0.0006
LARGEST_SIZE = 4096  # boards; a spec that asks for more is not worth minutes of exact answers in a report
CACHE_FILE = "random-lines.json"


def random_line(environment: Mapping[str, Any]) -> float | None:
    """Exact reward per step of the random policy; None if the environment is not ours."""
    return _random_line(canonical_json(dict(environment)))


@lru_cache(maxsize=4096)
def _random_line(environment_json: str) -> float | None:
    from nibbler.mdp.exact import reward_rate
    from nibbler.studies.build import build_environment

    environment = json.loads(environment_json)
    boards = environment.get("num_boards")
    if "import" in environment or not isinstance(boards, int) or not 1 <= boards <= LARGEST_SIZE:
        return None
    try:
        return float(reward_rate(build_environment(environment), "random"))
    except (ValueError, TypeError):  # a damaged or foreign spec has no line, and that is all
        return None


class RandomLines:
    """Random lines with a memory in the results folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self._file = None if folder is None else folder / CACHE_FILE
        self._known: dict[str, float] = {}
        if self._file is not None:
            self._known = {
                key: float(value)
                for key, value in _read(self._file).items()
                if isinstance(value, (int, float)) and not isinstance(value, bool)
            }
        self._new = False

    def __call__(self, environment: Mapping[str, Any]) -> float | None:
        """The line of one environment."""
        key = canonical_json(_without_permutation(environment))
        if key in self._known:
            return self._known[key]
        value = random_line(json.loads(key))
        if value is not None:
            self._known[key] = value
            self._new = True
        return value

    def save(self) -> None:
        """Remember what was worked out, if the folder can be written."""
        if self._file is not None and self._new:
            try:
                write_json(self._file, dict(sorted(self._known.items())))
            except OSError:
                return  # a read-only folder can still be reported on
            self._new = False


def _without_permutation(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Identical boards have the same line whatever the seed, which then only permutes bits."""
    keep_seed = environment.get("heterogeneous") is True
    return {key: value for key, value in environment.items() if key != "seed" or keep_seed}


def _read(path: Path) -> dict[str, Any]:
    try:
        data = read_json(path)
    except (ValueError, OSError):
        return {}
    return data if isinstance(data, dict) else {}
