"""What the paper claims, study by study, and the verdict of the data on each.

"holds so far" is a claim that holds on what was run while some of what it is about was not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from nibbler.studies import checks, sweep_checks
from nibbler.studies.evidence import Evidence, NotEnoughDataError
from nibbler.studies.results import StudyResults

Status = Literal["confirmed", "holds so far", "not confirmed", "not enough data"]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper in our words, and the check for it."""

    id: str  # stable: remarks are kept under it
    text: str
    source: str  # where in the paper; "ours" where the question is ours
    check: Callable[[Evidence], tuple[bool, str]]

    @property
    def where(self) -> str:
        """Its source with the paper's name, unless it is ours."""
        return self.source if self.source.startswith("ours") else f"paper, {self.source}"


@dataclass(frozen=True)
class Verdict:
    """What the data say about a claim, with the numbers behind it."""

    claim: Claim
    status: Status
    numbers: str
    part: str = ""  # what was missing or only partly there; empty if it rests on everything

    @property
    def text(self) -> str:
        """The numbers or what they lack, and which runs were missing or only partly there."""
        if not self.part:
            return self.numbers
        judged = "" if self.status == "not enough data" else ". Judged on part of the runs"
        return f"{self.numbers}{judged} ({self.part})"


def judge(claim: Claim, results: StudyResults) -> Verdict:
    """Hold a claim against the data."""
    if not results.measured:
        return Verdict(claim, "not enough data", "not run")
    evidence = Evidence(results)
    try:
        holds, numbers = claim.check(evidence)
    except NotEnoughDataError as missing:
        return Verdict(claim, "not enough data", str(missing), evidence.part)
    held: Status = "holds so far" if evidence.part else "confirmed"
    return Verdict(claim, held if holds else "not confirmed", numbers, evidence.part)


def verdicts(results: StudyResults) -> list[Verdict]:
    """Every claim that a study bears on."""
    return [judge(claim, results) for claim in CLAIMS.get(results.name, ())]


def one_for_each_claim(found: Iterable[Verdict]) -> list[Verdict]:
    """Where several studies bear on a claim, the verdict of the first that can tell."""
    chosen: dict[str, Verdict] = {}
    for verdict in found:
        known = chosen.get(verdict.claim.id)
        if known is None or known.status == "not enough data":
            chosen[verdict.claim.id] = verdict
    return list(chosen.values())


_LINEAR = Claim(
    "linear-fails",
    "A learner that is linear in the bits cannot tie a board's hot bit to that board, so it fails.",
    "2.2",
    checks.linear_fails,
)
_SLOPE = Claim(
    "linear-growth",
    "The experience that Nibbler needs grows nearly linearly with the observation, up to 128 boards.",
    "abstract; 6, finding 2",
    checks.nibbler_is_nearly_linear,
)
_THRESHOLD_32 = Claim(
    "nibbler-32",
    "On 32 boards Nibbler is reliably above 0.04 at 40M steps.",
    "figure 6, caption",
    checks.nibbler_reaches_004_on_32,
)

CLAIMS: dict[str, tuple[Claim, ...]] = {
    "quickstart": (_LINEAR, _SLOPE),
    "curves": (
        Claim(
            "outperforms",
            "Nibbler outperforms the baselines, replay or not, on large problems.",
            "abstract; 6, finding 1; 6.1",
            checks.nibbler_outperforms,
        ),
        Claim(
            "small-boards",
            "All agents learn a good policy up to 8 boards.",
            "6.1, figure 4",
            checks.all_learn_small_problems,
        ),
        Claim(
            "only-nibbler-128",
            "On 128 boards only Nibbler still learns one.",
            "6.1, figure 4",
            checks.only_nibbler_learns_128,
        ),
        Claim(
            "rainbow-asymptote",
            "Rainbow, which does not explore by epsilon, ends highest on the smaller problems.",
            "6.1",
            checks.rainbow_ends_highest,
        ),
        _THRESHOLD_32,
        _LINEAR,
    ),
    "scaling": (
        _SLOPE,
        Claim(
            "doubling-ratio",
            "Nibbler needs about twice the experience when the number of boards doubles.",
            "6.2, figure 5 right",
            checks.doubling_costs_twice,
        ),
        Claim(
            "baselines-curve-up",
            "All other agents curve up before 128 boards.",
            "6.2, figure 5 left",
            checks.baselines_curve_up,
        ),
        Claim(
            "reliable",
            "Nibbler's performance is reliable across the tested sizes.",
            "figure 5, caption",
            checks.nibbler_is_reliable,
        ),
    ),
    "q-sweep": (
        Claim(
            "q-8-wide",
            "On 8 boards many settings of Q-learning succeed.",
            "6.2, figure 6 left",
            checks.q_succeeds_widely_on_8,
        ),
        Claim(
            "q-32-never-positive",
            "On 32 boards no setting of Q-learning reaches a positive reward in 40M steps.",
            "6.2, figure 6 right",
            checks.q_is_never_positive_on_32,
        ),
        Claim(
            "q-32-below",
            "On 32 boards no setting of Q-learning gets above -0.05 in 40M steps.",
            "figure 6, caption",
            checks.q_fails_everywhere_on_32,
        ),
        Claim(
            "learning-rates",
            "That Nibbler beats a Q-network of 1024 units holds across learning rates.",
            "figure 7, caption",
            checks.q_loses_at_every_step_size,
        ),
        _THRESHOLD_32,
    ),
    "hidden-units": (
        Claim(
            "nibbler-units",
            "More units per question make Nibbler faster.",
            "6, finding 3; 6.3, figure 7",
            sweep_checks.nibbler_gains_from_units,
        ),
        Claim(
            "q-units",
            "More hidden units make Q-learning faster.",
            "6, finding 3; 6.3, figure 7",
            sweep_checks.q_gains_from_units,
        ),
        Claim(
            "units-slope",
            "More units do not change the slope.",
            "6.3",
            sweep_checks.units_do_not_change_the_slope,
        ),
        Claim(
            "q-slope-worse",
            "Q-learning scales worse than Nibbler with any number of units.",
            "figure 7, caption",
            sweep_checks.q_scales_worse_with_any_units,
        ),
        Claim(
            "weak-nibbler",
            "On 16 boards Nibbler with 32 units per question beats Q-learning with 1024, in reward and time.",
            "figure 7, caption",
            sweep_checks.weak_nibbler_beats_large_q,
        ),
    ),
    "heterogeneous": (
        Claim(
            "varied-learned",
            "Nibbler reaches zero reward on varied boards.",
            "6, finding 4; 6.4",
            sweep_checks.varied_boards_are_learned,
        ),
        Claim(
            "varied-scaling",
            "It scales there as on equal boards, with two step sizes.",
            "6.4, figure 8",
            sweep_checks.varied_boards_scale,
        ),
        Claim(
            "noisy-wind",
            "A wind that is random makes it substantially worse.",
            "6.4",
            sweep_checks.noisy_wind_is_worse,
        ),
    ),
    "fixed-nibbler": (
        Claim(
            "fixed-collapse",
            "One fixed Nibbler does well while it has questions enough, and collapses beyond.",
            "B.1, figure 9",
            sweep_checks.fixed_nibbler_collapses,
        ),
    ),
    "questions": (
        Claim(
            "questions-collapse",
            "With too few questions performance collapses.",
            "B.2, figure 10 left",
            sweep_checks.too_few_questions_collapse,
        ),
    ),
    "swap-threshold": (
        Claim(
            "threshold-softens",
            "With a threshold for swaps above zero, too few questions do not make performance collapse.",
            "ours; suggested in B.1 and B.2",
            sweep_checks.a_threshold_prevents_the_collapse,
        ),
    ),
    "inputs": (
        Claim(
            "inputs-few",
            "30 inputs or fewer per question cost a lot of reward.",
            "B.3, figure 10 right",
            sweep_checks.few_inputs_hurt,
        ),
        Claim(
            "inputs-missing",
            "Missing a few of a board's 56 bits does little harm.",
            "figure 10, caption",
            sweep_checks.missing_a_few_inputs_is_harmless,
        ),
        Claim(
            "inputs-many",
            "70 inputs or more learn a little slower and end as well.",
            "B.3, figure 10 right",
            sweep_checks.extra_inputs_only_slow_down,
        ),
    ),
    "open-choices": (
        Claim(
            "literal-reading",
            "Table 1 and the algorithms, taken word by word, learn these problems.",
            "ours, of Table 1 and Algorithms 2 to 7",
            sweep_checks.literal_reading_learns,
        ),
        Claim(
            "default-reading",
            "No other reading of what is left open ends higher than the one we took.",
            "ours",
            sweep_checks.no_reading_is_better,
        ),
    ),
    "step-size": (
        Claim(
            "dear-doublings",
            "Doublings cost more where the main learner's step size falls with the number of questions.",
            "ours, of Table 1 and 6.2",
            sweep_checks.step_size_makes_doublings_dear,
        ),
    ),
    "beyond": (
        Claim(
            "beyond-128",
            "Nibbler goes on as on smaller problems beyond 128 boards (the paper leaves it open).",
            "ours; 6.2",
            sweep_checks.nibbler_goes_on_scaling,
        ),
    ),
}
