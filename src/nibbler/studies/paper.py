"""The paper's studies by name: what to run, at three sizes, and which figures and claims each is for.

Sizes: `smoke` (seconds; shows that it works and nothing else), `laptop` (minutes to an hour on two cores) and
`paper` (the paper's own scale, for a GPU or a cluster). Studies share runs: the same spec is the same folder,
so `scaling` reads the runs of `curves`, and a default that a sweep passes through is not run again.

The paper gives some grids only as a picture. There the grid is chosen so that it can show the claim, and the
study's `grid` says which it is. `open-choices`, `step-size` and `beyond` are ours: what each reading of the
text does, why a doubling costs more than twice the steps, and one step further than the paper went.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nibbler.agents.config import NibblerConfig
from nibbler.studies.paper_runs import (
    BEYOND_STEPS,
    LAPTOP_STEPS,
    PAPER_STEPS,
    RAINBOW_STEPS,
    SIZES,
    SMOKE_STEPS,
    STEPS,
    nibbler_agent,
    planner_runs,
    q_agent,
    runs,
    seeds_for,
)
from nibbler.studies.spec import RunSpec, Study

FAST_KAPPA = 0.005 * math.sqrt(2.0)  # Nibbler+
CONSTANT_STEP_SIZE = NibblerConfig.for_boards(8).main_alpha  # Table 1's on 8 boards, for larger problems
Q_UNITS = (32, 64, 128, 256, 512, 1024)  # of Q-learning, in all
WINDOW = 11  # bins of smoothing under TimestepsToThreshold: 110k steps at 10k per bin

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


@dataclass(frozen=True)
class PaperStudy:
    """One of the studies that come with the library."""

    name: str
    title: str  # the question it answers, in a line
    source: str  # where it is in the paper
    grid: str  # what is run, and what the paper left open about it
    build: Callable[[str], list[RunSpec]]
    figures: tuple[str, ...]
    sizes: tuple[str, ...] = SIZES
    varied: tuple[str, ...] = ()
    labels: tuple[Mapping[str, Any], ...] = ()
    left_out: str = ""  # what the paper has of it and we do not run at the paper's size

    def study(self, size: str) -> Study:
        """The study at a size, as plain data."""
        if size not in self.sizes:
            raise ValueError(f"{self.name} has no size {size!r}; choose {', '.join(self.sizes)}")
        reading = {
            "threshold": 0.0,
            "window": 1 if size == "smoke" else WINDOW,
            "varied": list(self.varied),
            "labels": [dict(label) for label in self.labels],
            "figures": list(self.figures),
        }
        return Study(self.name, size, tuple(self.build(size)), self.title, reading)


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


_NO_RAINBOW = f"Rainbow on more than {max(RAINBOW_STEPS)} boards, and for longer on fewer"

STUDIES: dict[str, PaperStudy] = {
    s.name: s
    for s in (
        PaperStudy(
            "quickstart",
            "Does Nibbler learn where a linear learner cannot, and what does a doubling cost?",
            "a first look at the first two experiments",
            "Nibbler, Q-learning, QV-learning and linear Q on 2 and 4 boards, 2 seeds; 2.5M and 6M steps.",
            quickstart,
            ("curves", "scaling", "discovery"),
            sizes=("smoke", "laptop"),
        ),
        PaperStudy(
            "curves",
            "How does each agent's reward grow with experience, from 2 to 128 boards?",
            "Experiments, first subsection (reward curves by scale)",
            "All agents on doubling numbers of boards; seeds as in the paper (Nibbler 3, QV 3, Q 10, "
            "Rainbow 2; laptop 3), Nibbler on 32 boards 4 in one environment. Rainbow runs at the paper's "
            "size only. Linear Q is ours: section 2.2 says that it must fail.",
            curves,
            ("curves", "discovery"),
            left_out=_NO_RAINBOW,
        ),
        PaperStudy(
            "scaling",
            "How do steps to threshold and compute grow when the problem doubles?",
            "Experiments, second subsection (threshold and doubling ratio)",
            "The runs of the study curves, read by TimestepsToThreshold (reward 0) and "
            "TimestepDoublingRatio.",
            curves,
            ("scaling", "compute"),
            left_out=_NO_RAINBOW,
        ),
        PaperStudy(
            "q-sweep",
            "Can any setting of Q-learning do on 32 boards what it does on 8?",
            "Experiments, second subsection (the Q-learning sweep)",
            "The paper names step sizes, momenta and hidden sizes up to 4096 without listing them; ours are "
            "step sizes 1e-4 to 1e-2 in half decades, momenta 0, 0.9, 0.99 and 256, 1024, 4096 units, 2 "
            "seeds. Laptop: a part of that grid, 1 seed, 4M steps.",
            q_sweep,
            ("q-sweep",),
            varied=("hidden_units", "step_size", "momentum"),
        ),
        PaperStudy(
            "hidden-units",
            "Do more hidden units make learning faster, and do they change how it scales?",
            "Experiments, third subsection (resources)",
            "Nibbler with 32 to 512 units per question and Q-learning with 32 to 1024 units in all (the "
            "paper names 32 per question and 1024), 3 seeds. Laptop: 2 and 4 boards.",
            hidden_units,
            ("hidden-units",),
            varied=("hidden_units",),
        ),
        PaperStudy(
            "heterogeneous",
            "Does Nibbler scale when the boards differ in size and dynamics?",
            "Experiments, fourth subsection (heterogeneous components)",
            "Nibbler and Nibbler+ (kappa 0.005*sqrt(2)) on 2 to 64 varied boards, 5 seeds, each a family of "
            "its own. The noisy wind, which the paper mentions and does not show, on one size.",
            heterogeneous,
            ("heterogeneous", "discovery"),
            labels=(
                {"label": "Nibbler, noisy wind", "environment": {"noisy_wind": True}},
                {"label": "nibbler+", "agent": {"name": "nibbler", "kappa": FAST_KAPPA}},
                {"label": "nibbler", "agent": {"name": "nibbler"}},
            ),
        ),
        PaperStudy(
            "fixed-nibbler",
            "What happens to one fixed Nibbler as the problem outgrows it?",
            "Appendix B, fixed hyperparameters on varying problem sizes",
            "The paper shows a collapse at 32 boards without giving the number of questions; ours is 32 "
            "questions, two for each of 16 boards, on 2 to 64 boards. Laptop: 8 questions on 2, 4 and 8 "
            "boards.",
            fixed_nibbler,
            ("fixed-nibbler",),
        ),
        PaperStudy(
            "questions",
            "How many questions does a problem need?",
            "Appendix B, number of GVF questions",
            "The paper gives neither the problem nor the grid; ours is 16 boards with 4 to 64 questions "
            "(two per board is 32). Laptop: 4 boards with 2 to 16.",
            questions,
            ("questions",),
            varied=("num_questions",),
        ),
        PaperStudy(
            "inputs",
            "How many inputs does a question need, and what do too many cost?",
            "Appendix B, number of base features per question",
            "10 to 140 inputs around a board's 56 bits; the paper's text names 30 and 70 as the turning "
            "points. 16 boards; laptop: 4 boards with 10 to 112.",
            inputs,
            ("inputs",),
            varied=("inputs_per_question",),
        ),
        PaperStudy(
            "open-choices",
            "Where the text leaves a choice open, what does each reading do?",
            "Table 1 and Algorithms 2 to 7, as far as they can be read in several ways",
            "The default, five departures from it one at a time, and all as written "
            "(NibblerConfig.literal), on 8 boards (16M steps, 3 seeds) and 32 (40M, 2 seeds). Laptop: 4.",
            open_choices,
            ("open-choices",),
            labels=(
                {"label": LITERAL, "agent": {"name": "nibbler", **literal_settings()}},
                *({"label": label, "agent": settings} for label, settings in DEPARTURES.items()),
                {"label": "nibbler", "agent": {"name": "nibbler"}},
            ),
        ),
        PaperStudy(
            "step-size",
            "Is it the step size, falling with the number of questions, that makes doublings dear?",
            "ours, of Table 1: the main learner's step size is kappa / sqrt(h)",
            "Nibbler on 16, 32 and 64 boards (the runs of the study curves), and with 2 seeds there with the "
            "main step size of 8 boards, 0.00035, instead of Table 1's 0.00025, 0.00018 and 0.00013; the "
            "rest as in Table 1.",
            step_size,
            ("scaling", "curves"),
            sizes=("smoke", "paper"),
            labels=(
                {
                    "label": "constant step size",
                    "agent": {"name": "nibbler", "step_size": CONSTANT_STEP_SIZE},
                },
                {"label": "nibbler", "agent": {"name": "nibbler"}},
            ),
        ),
        PaperStudy(
            "beyond",
            "Does Nibbler go on scaling on 256 and 512 boards?",
            "one step further than the paper, whose second experiment ends at 128 boards",
            "Nibbler on 2 to 128 boards (the runs of the study curves), and with 2 seeds on 256 (350M steps) "
            "and 512 boards (950M).",
            beyond,
            ("scaling", "curves", "compute", "way", "discovery"),
            sizes=("smoke", "paper"),
        ),
    )
}


def paper_study(name: str) -> PaperStudy:
    """A study by name."""
    if name not in STUDIES:
        raise ValueError(f"there is no study {name!r}; the studies are {', '.join(STUDIES)}")
    return STUDIES[name]
