"""What the studies' runs are made of: steps and seeds by size, agents, planner lines.

Specs leave out what is the default anyway, so that studies share runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nibbler.studies.lines import PLANNER_STEPS
from nibbler.studies.spec import RunSpec

SIZES = ("smoke", "laptop", "paper")
SEEDS = {"nibbler": 3, "qv-learning": 3, "q-learning": 10, "rainbow": 2, "linear": 3, "known-structure": 3}
BITS_PER_BOARD = 56

# Steps by number of boards. The paper gives 40M for 32 boards; Nibbler crosses zero at about 0.65M steps per
# board, later on 4, 8, 64 and 128 boards, and every run is long enough to see whether it stays there; on 128
# boards it is still rising at the end. 256 and 512 boards are a step further than the paper went; their
# steps allow for 2.7 times the experience at each doubling (2.5 from 64 to 128 boards, and rising).
LAPTOP_STEPS = {2: 3_000_000, 4: 8_000_000, 8: 16_000_000}
PAPER_STEPS = {
    **LAPTOP_STEPS,  # small problems are the same runs, on the CPU engine
    16: 20_000_000,
    32: 40_000_000,
    64: 70_000_000,
    128: 130_000_000,
}
STEPS_OF_FLAT_NETWORKS = {8: 24_000_000}  # Q and QV cross late there, and are cheap
STEPS_OF_VARIED_BOARDS = {64: 100_000_000}  # Nibbler crosses late there too, after 70M
# Rainbow's steps are slow. Up to 8 boards they are enough to see that it ends above Nibbler, on 16 that it
# learns, and on 32 they are what Nibbler needs to reach zero.
RAINBOW_STEPS = {2: 1_000_000, 4: 2_500_000, 8: 12_000_000, 16: 4_500_000, 32: 21_000_000}
BEYOND_STEPS = {256: 350_000_000, 512: 950_000_000}
SMOKE_STEPS = {2: 20_000, 4: 20_000}
STEPS = {"smoke": SMOKE_STEPS, "laptop": LAPTOP_STEPS, "paper": PAPER_STEPS}
BINS = {"smoke": 1_000, "laptop": 10_000, "paper": 10_000}
ENGINE = {"smoke": "cpu", "laptop": "cpu", "paper": "auto"}


def environment(boards: int, seed: int, **settings: Any) -> dict[str, Any]:
    """Multi-catch; each seed has a permutation (and family) of its own, as the metric averages over both."""
    return {"name": "multi_catch", "num_boards": boards, "seed": seed, **settings}


def nibbler_agent(boards: int, **settings: Any) -> dict[str, Any]:
    """Nibbler with Table 1 for this many boards but for the settings given."""
    defaults = {
        "num_questions": 2 * boards,
        "inputs_per_question": min(82, BITS_PER_BOARD * boards),
        "hidden_units": 256,
        "cumulant_threshold": 0.0,
    }
    return {"name": "nibbler", **{k: v for k, v in settings.items() if defaults.get(k) != v}}


def q_agent(**settings: Any) -> dict[str, Any]:
    """Q-learning with the paper's settings but for those given."""
    defaults = {"hidden_units": 256, "step_size": 0.001, "momentum": 0.99}
    return {"name": "q-learning", **{k: v for k, v in settings.items() if defaults[k] != v}}


def runs(
    size: str,
    boards: int,
    agent: Mapping[str, Any],
    seeds: int,
    steps: int | None = None,
    *,
    packs: bool = False,
    **settings: Any,
) -> list[RunSpec]:
    """The runs of one setting, one per seed.

    On small problems they are for the CPU, unless the study `packs`: has many runs of one shape for a GPU.
    """
    if steps is None:
        steps = STEPS[size][boards]
        if size != "smoke" and agent["name"] in ("q-learning", "qv-learning"):
            steps = STEPS_OF_FLAT_NETWORKS.get(boards, steps)
        if settings.get("heterogeneous"):
            steps = STEPS_OF_VARIED_BOARDS.get(boards, steps)
    if (
        (size, boards, steps) == ("paper", 32, PAPER_STEPS[32])
        and agent == {"name": "nibbler"}
        and not settings
    ):
        return nibbler_on_32()[: seeds if seeds < SEEDS["nibbler"] else None]
    engine = "cpu" if size == "paper" and boards in LAPTOP_STEPS and not packs else ENGINE[size]
    if agent["name"] == "rainbow":
        engine = "jax"
    return [
        RunSpec(
            environment(boards, seed, **settings),
            dict(agent),
            steps,
            seed,
            engine,
            BINS[size],
        )
        for seed in range(seeds)
    ]


def nibbler_on_32() -> list[RunSpec]:
    """Nibbler on 32 boards was run first, on its own: four seeds, one permutation, bins of 50k steps."""
    return [
        RunSpec(environment(32, 0), {"name": "nibbler"}, PAPER_STEPS[32], seed, "cuda", 50_000)
        for seed in range(4)
    ]


def planner_runs(size: str, sizes: Iterable[int], seeds: int = 1, **settings: Any) -> list[RunSpec]:
    """The planner lines: short, since they only measure a rate."""
    steps = 20_000 if size == "smoke" else PLANNER_STEPS
    return [spec for n in sizes for spec in runs(size, n, {"name": "planner"}, seeds, steps, **settings)]


def seeds_for(size: str, agent: str, most: int = 3) -> int:
    """Seeds per setting: two to show that it works, three on a laptop, the paper's number in the paper."""
    return {"smoke": 2, "laptop": min(most, 3)}.get(size, SEEDS[agent])
