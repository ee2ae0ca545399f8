"""The paper's studies by name: what each asks, of which runs, and which figures and claims it is for.

Sizes: `smoke` (seconds; shows that it works and nothing else), `laptop` (minutes to an hour on two cores) and
`paper` (the paper's own scale, for a GPU or a cluster). Studies share runs: the same spec is the same folder,
so `scaling` reads the runs of `curves`, and a default that a sweep passes through is not run again.

`swap-threshold`, `open-choices`, `step-size` and `beyond` are ours: what a threshold does that the appendix
suggests, what each reading of the text does, why a doubling costs more than twice the steps, and one step
further than the paper went.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nibbler.studies import paper_grids as grids
from nibbler.studies.paper_runs import RAINBOW_STEPS, SIZES
from nibbler.studies.spec import RunSpec, Study

WINDOW = 11  # bins of smoothing under TimestepsToThreshold: 110k steps at 10k per bin


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


_NO_RAINBOW = f"Rainbow on more than {max(RAINBOW_STEPS)} boards, and for longer on fewer"

STUDIES: dict[str, PaperStudy] = {
    s.name: s
    for s in (
        PaperStudy(
            "quickstart",
            "Does Nibbler learn where a linear learner cannot, and what does a doubling cost?",
            "a first look at the first two experiments",
            "Nibbler, Q-learning, QV-learning and linear Q on 2 and 4 boards, 2 seeds; 2.5M and 6M steps.",
            grids.quickstart,
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
            grids.curves,
            ("curves", "discovery"),
            left_out=_NO_RAINBOW,
        ),
        PaperStudy(
            "scaling",
            "How do steps to threshold and compute grow when the problem doubles?",
            "Experiments, second subsection (threshold and doubling ratio)",
            "The runs of the study curves, read by TimestepsToThreshold (reward 0) and "
            "TimestepDoublingRatio.",
            grids.curves,
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
            grids.q_sweep,
            ("q-sweep",),
            varied=("hidden_units", "step_size", "momentum"),
        ),
        PaperStudy(
            "hidden-units",
            "Do more hidden units make learning faster, and do they change how it scales?",
            "Experiments, third subsection (resources)",
            "Nibbler with 32 to 512 units per question and Q-learning with 32 to 1024 units in all (the "
            "paper names 32 per question and 1024), 3 seeds. Laptop: 2 and 4 boards.",
            grids.hidden_units,
            ("hidden-units",),
            varied=("hidden_units",),
        ),
        PaperStudy(
            "heterogeneous",
            "Does Nibbler scale when the boards differ in size and dynamics?",
            "Experiments, fourth subsection (heterogeneous components)",
            "Nibbler and Nibbler+ (kappa 0.005*sqrt(2)) on 2 to 64 varied boards, 5 seeds, each a family of "
            "its own. The noisy wind, which the paper mentions and does not show, on one size.",
            grids.heterogeneous,
            ("heterogeneous", "discovery"),
            labels=(
                {"label": "Nibbler, noisy wind", "environment": {"noisy_wind": True}},
                {"label": "nibbler+", "agent": {"name": "nibbler", "kappa": grids.FAST_KAPPA}},
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
            grids.fixed_nibbler,
            ("fixed-nibbler",),
        ),
        PaperStudy(
            "questions",
            "How many questions does a problem need?",
            "Appendix B, number of GVF questions",
            "The paper gives neither the problem nor the grid; ours is 16 boards with 4 to 64 questions "
            "(two per board is 32). Laptop: 4 boards with 2 to 16.",
            grids.questions,
            ("questions",),
            varied=("num_questions",),
        ),
        PaperStudy(
            "swap-threshold",
            "Does a threshold for swaps keep a Nibbler with too few questions from collapsing?",
            "ours; appendix B suggests it twice, where too few questions make performance collapse",
            "One problem with too few questions and with enough, tau_I 0 as in Table 1 (the runs of the "
            "study questions) and 0.1; with one question per board 0.03 and 0.3 too. 16 boards with 4 to 32 "
            "questions; laptop: 4 boards with 2 to 8. The value 0.1 was found on 4 boards.",
            grids.swap_threshold,
            ("swap-threshold",),
            varied=("num_questions", "cumulant_threshold"),
        ),
        PaperStudy(
            "inputs",
            "How many inputs does a question need, and what do too many cost?",
            "Appendix B, number of base features per question",
            "10 to 140 inputs around a board's 56 bits; the paper's text names 30 and 70 as the turning "
            "points. 16 boards; laptop: 4 boards with 10 to 112.",
            grids.inputs,
            ("inputs",),
            varied=("inputs_per_question",),
        ),
        PaperStudy(
            "open-choices",
            "Where the text leaves a choice open, what does each reading do?",
            "Table 1 and Algorithms 2 to 7, as far as they can be read in several ways",
            "The default, five departures from it one at a time, and all as written "
            "(NibblerConfig.literal), on 8 boards (16M steps, 3 seeds) and 32 (40M, 2 seeds). Laptop: 4.",
            grids.open_choices,
            ("open-choices",),
            labels=(
                {"label": grids.LITERAL, "agent": {"name": "nibbler", **grids.literal_settings()}},
                *({"label": label, "agent": settings} for label, settings in grids.DEPARTURES.items()),
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
            grids.step_size,
            ("scaling", "curves"),
            sizes=("smoke", "paper"),
            labels=(
                {
                    "label": "constant step size",
                    "agent": {"name": "nibbler", "step_size": grids.CONSTANT_STEP_SIZE},
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
            grids.beyond,
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
