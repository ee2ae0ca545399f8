"""Which runs each of the paper's studies is made of, at each size.

The paper gives some grids only as a picture. There the grid is chosen so that it can show the claim, and the
study in `nibbler.studies.paper` says which it is.
"""

from __future__ import annotations

import math
from typing import Any

from nibbler.agents.config import NibblerConfig
from nibbler.studies.paper_runs import (
    BEYOND_STEPS,
    LAPTOP_STEPS,
    PAPER_STEPS,
    RAINBOW_STEPS,
    SMOKE_STEPS,
    STEPS,
    nibbler_agent,
    planner_runs,
    q_agent,
    runs,
    seeds_for,
)
from nibbler.studies.spec import RunSpec

FAST_KAPPA = 0.005 * math.sqrt(2.0)  # Nibbler+
CONSTANT_STEP_SIZE = NibblerConfig.for_boards(8).main_alpha  # Table 1's on 8 boards, for larger problems
SWAP_THRESHOLD = 0.1  # tau_I; 0 in Table 1
SWAP_THRESHOLDS = (0.0, 0.03, SWAP_THRESHOLD, 0.3)
Q_UNITS = (32, 64, 128, 256, 512, 1024)  # of Q-learning, in all

# What the paper leaves open: the other reading, one departure from the default at a time.
LITERAL = "all as written"
DEPARTURES: dict[str, dict[str, Any]] = {
    "answers' step size / sqrt(h)": {"scale_answer_step_size": True},
    "swapped inputs random": {"swapped_input": "random"},
    "changed questions kept": {"changed_question": "keep"},
    "momentum in linear learners": {"linear_momentum": 0.99},
    "hidden biases": {"hidden_bias": True},
}


def literal_settings() -> dict[str, Any]:
    """What `NibblerConfig.literal` changes, whatever the number of boards."""
    literal, default = NibblerConfig.literal(2).to_dict(), NibblerConfig.for_boards(2).to_dict()
    return {name: value for name, value in literal.items() if value != default[name]}


def curves(size: str) -> list[RunSpec]:
    """Every agent on every number of boards."""
    boards = list(STEPS[size])
    agents = ["nibbler", "q-learning", "qv-learning", "linear", "known-structure"]
    if size == "paper":
        agents.append("rainbow")
    specs = planner_runs(size, boards)
    for n in boards:
        for agent in agents:
            steps = None
            if agent == "rainbow":
                if n not in RAINBOW_STEPS:
                    continue
                steps = RAINBOW_STEPS[n]
            specs += runs(size, n, {"name": agent}, seeds_for(size, agent), steps)
    return specs


def quickstart(size: str) -> list[RunSpec]:
    """The shortest honest look: Nibbler and the baselines on 2 and 4 boards."""
    if size == "smoke":
        return [s for s in curves(size) if s.environment["num_boards"] in (2, 4)]
    steps = {2: 2_500_000, 4: 6_000_000}
    specs = []
    for n in (4, 2):  # the longest runs first, so that two cores finish together
        seeds = {
            agent: runs(size, n, {"name": agent}, 2, steps[n])
            for agent in ("nibbler", "q-learning", "qv-learning", "linear")
        }
        # The second Nibbler waits a little, so that it finds its code compiled by the first.
        nibbler, q, qv, linear = seeds.values()
        specs += [nibbler[0], q[0], q[1], qv[0], nibbler[1], qv[1], linear[0], linear[1]]
    return specs + planner_runs(size, (2, 4))


def q_sweep(size: str) -> list[RunSpec]:
    """Q-learning over step sizes, momenta and hidden sizes, beside Nibbler."""
    full = ((1e-4, 3e-4, 1e-3, 3e-3, 1e-2), (0.0, 0.9, 0.99), (256, 1024, 4096))
    grids: dict[str, dict[int, tuple[Any, ...]]] = {
        "smoke": {2: ((1e-3, 3e-3), (0.99,), (16, 32)), 4: ((1e-3, 3e-3), (0.99,), (16, 32))},
        "laptop": {
            8: ((3e-4, 1e-3, 3e-3), (0.0, 0.99), (64, 256, 1024)),
            32: ((3e-4, 1e-3, 3e-3), (0.99,), (256, 1024)),
        },
        "paper": dict.fromkeys((8, 32), full),
    }
    steps = {"smoke": {}, "laptop": {8: 4_000_000, 32: 4_000_000}, "paper": {}}[size]
    seeds = 1 if size == "laptop" else 2
    specs = planner_runs(size, grids[size])
    for n, (step_sizes, momenta, hidden) in grids[size].items():
        for units in hidden:
            for momentum in momenta:
                for step_size in step_sizes:
                    agent = q_agent(hidden_units=units, step_size=step_size, momentum=momentum)
                    shared = agent.keys() <= {"name", "hidden_units"} and units in Q_UNITS  # by other studies
                    specs += runs(size, n, agent, seeds, steps.get(n), packs=not shared)
        if size == "paper":
            specs += runs(size, n, nibbler_agent(n), seeds_for(size, "nibbler"))
    return specs


def hidden_units(size: str) -> list[RunSpec]:
    """Nibbler by units per question, and Q-learning by units in all."""
    boards, per_question, in_all = {
        "smoke": ((2, 4), (8, 16), (16, 32)),
        "laptop": ((2, 4), (32, 64, 128, 256), (64, 256, 1024)),
        "paper": ((2, 4, 8, 16, 32), (32, 64, 128, 256, 512), Q_UNITS),
    }[size]
    seeds = 2 if size == "smoke" else 3
    specs = planner_runs(size, boards)
    for n in boards:
        for d in per_question:
            specs += runs(size, n, nibbler_agent(n, hidden_units=d), seeds)
        for d in in_all:
            specs += runs(size, n, q_agent(hidden_units=d), seeds)
    return specs


def heterogeneous(size: str) -> list[RunSpec]:
    """Boards that differ in rows, wind, arrival and reward probability; and the noisy wind for comparison."""
    boards = {"smoke": (2, 4), "laptop": (2, 4, 8), "paper": (2, 4, 8, 16, 32, 64)}[size]
    noisy_boards = {"smoke": 2, "laptop": 4, "paper": 8}[size]
    seeds = {"smoke": 2, "laptop": 3, "paper": 5}[size]
    specs = planner_runs(size, boards, seeds, heterogeneous=True)
    for n in boards:
        specs += runs(size, n, nibbler_agent(n), seeds, heterogeneous=True)
        specs += runs(size, n, nibbler_agent(n, kappa=FAST_KAPPA), seeds, heterogeneous=True)
    specs += planner_runs(size, (noisy_boards,), seeds, heterogeneous=True, noisy_wind=True)
    specs += runs(size, noisy_boards, nibbler_agent(noisy_boards), seeds, heterogeneous=True, noisy_wind=True)
    return specs


def fixed_nibbler(size: str) -> list[RunSpec]:
    """One number of questions on growing problems: enough for the middle sizes, too few for the last."""
    questions = {"smoke": 4, "laptop": 8, "paper": 32}[size]
    boards = {"smoke": (2, 4), "laptop": (2, 4, 8), "paper": (2, 4, 8, 16, 32, 64)}[size]
    seeds = 2 if size == "smoke" else 3
    specs = planner_runs(size, boards)
    for n in boards:
        specs += runs(size, n, nibbler_agent(n, num_questions=questions), seeds)
    return specs


def questions(size: str) -> list[RunSpec]:
    """The number of questions on one problem, from far too few to four times as many."""
    boards, grid = {
        "smoke": (2, (2, 4)),
        "laptop": (4, (2, 4, 6, 8, 12, 16)),
        "paper": (16, (4, 8, 16, 24, 32, 48, 64)),
    }[size]
    seeds = 2 if size == "smoke" else 3
    specs = planner_runs(size, (boards,))
    for h in grid:
        specs += runs(size, boards, nibbler_agent(boards, num_questions=h), seeds)
    return specs


def swap_threshold(size: str) -> list[RunSpec]:
    """Too few questions and enough, with and without a threshold for swaps; and other thresholds."""
    boards, grid = {
        "smoke": (2, (2, 4)),
        "laptop": (4, (2, 4, 6, 8)),
        "paper": (16, (4, 8, 16, 24, 32)),
    }[size]
    seeds = 2 if size == "smoke" else 3
    specs = planner_runs(size, (boards,))
    for h in grid:
        for tau in SWAP_THRESHOLDS if h == boards else (0.0, SWAP_THRESHOLD):
            agent = nibbler_agent(boards, num_questions=h, cumulant_threshold=tau)
            specs += runs(size, boards, agent, seeds)
    return specs


def inputs(size: str) -> list[RunSpec]:
    """Inputs per question on one problem, around the 56 bits that a board has."""
    boards, grid = {
        "smoke": (2, (10, 56)),
        "laptop": (4, (10, 20, 30, 40, 50, 56, 70, 82, 112)),
        "paper": (16, (10, 20, 30, 40, 50, 56, 70, 82, 112, 140)),
    }[size]
    seeds = 2 if size == "smoke" else 3
    specs = planner_runs(size, (boards,))
    for g in grid:
        specs += runs(size, boards, nibbler_agent(boards, inputs_per_question=g), seeds)
    return specs


def open_choices(size: str) -> list[RunSpec]:
    """The default reading, each departure from it alone, and everything as written."""
    problems = {  # boards -> seeds and steps
        "smoke": {2: (2, SMOKE_STEPS[2])},
        "laptop": {4: (3, LAPTOP_STEPS[4])},
        "paper": {8: (3, 16_000_000), 32: (2, PAPER_STEPS[32])},
    }[size]
    specs = planner_runs(size, problems)
    for n, (seeds, steps) in problems.items():
        for settings in ({}, *DEPARTURES.values(), literal_settings()):
            specs += runs(size, n, nibbler_agent(n, **settings), seeds, steps)
    return specs


def step_size(size: str) -> list[RunSpec]:
    """Nibbler as in Table 1, and with a main step size that does not fall as the problem grows."""
    boards = {"smoke": (2, 4), "paper": (16, 32, 64)}[size]
    specs = planner_runs(size, boards)
    for n in boards:
        specs += runs(size, n, nibbler_agent(n), seeds_for(size, "nibbler"))
        specs += runs(size, n, nibbler_agent(n, step_size=CONSTANT_STEP_SIZE), 2)
    return specs


def beyond(size: str) -> list[RunSpec]:
    """Nibbler on every size of the paper, and on two and four times its largest."""
    boards = STEPS[size] if size == "smoke" else {**STEPS[size], **BEYOND_STEPS}
    specs = planner_runs(size, boards)
    for n, steps in boards.items():
        seeds = 2 if n in BEYOND_STEPS else seeds_for(size, "nibbler")
        specs += runs(size, n, nibbler_agent(n), seeds, steps)
    return specs
