"""Results made up for tests of claims: runs that cross zero when a test says so."""

from __future__ import annotations

from typing import Any

import numpy as np

from nibbler.studies.claims import Claim, Verdict, judge
from nibbler.studies.metrics import CurveSet
from nibbler.studies.results import Lines, Measured, Setting, StudyResults

BINS, BIN = 200, 1_000_000


def measured(
    agent: str,
    boards: int,
    crossing: float | None,
    final: float = 0.05,
    seeds: int = 3,
    bins: int = BINS,
    planned_seeds: int | None = None,
    seconds: float = 1e-5,
    **varied: Any,
) -> Measured:
    """Runs that cross zero at a bin (None: they stay at -0.06) and end at a reward."""
    spread = np.arange(seeds)[:, None] * 0.0005
    if crossing is None:
        rewards = np.full((seeds, bins), -0.06) + spread
    else:
        rewards = np.where(np.arange(bins) < crossing, -0.06, final) + spread
    setting = Setting(agent, boards, tuple(sorted(varied.items())))
    lines = Lines(-0.07, 0.06)
    return Measured(
        setting, CurveSet(rewards, BIN), lines, 1e4, seconds, "cuda", bins * BIN, planned_seeds or seeds
    )


def results(name: str, *parts: Measured) -> StudyResults:
    return StudyResults(name, name, tuple(parts))


def status(check: Any, *parts: Measured) -> str:
    return judge(Claim("id", "claim", "source", check), results("any", *parts)).status


def judged(check: Any, *parts: Measured) -> Verdict:
    return judge(Claim("id", "claim", "source", check), results("any", *parts))
