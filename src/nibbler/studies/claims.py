"""What the paper claims, study by study, and the verdict: confirmed, not confirmed, or not enough data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from nibbler.studies import checks
from nibbler.studies.results import StudyResults

Status = Literal["confirmed", "not confirmed", "not enough data"]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper in our words, and the check for it."""

    text: str
    source: str
    check: Callable[[StudyResults], tuple[bool, str]]


@dataclass(frozen=True)
class Verdict:
    """What the data say about a claim, with the numbers behind it."""

    claim: Claim
    status: Status
    numbers: str


def judge(claim: Claim, results: StudyResults) -> Verdict:
    """Hold a claim against the data."""
    try:
        holds, numbers = claim.check(results)
    except checks.NotEnoughDataError as missing:
        return Verdict(claim, "not enough data", str(missing))
    return Verdict(claim, "confirmed" if holds else "not confirmed", numbers)


def verdicts(results: StudyResults) -> list[Verdict]:
    """Every claim that a study bears on."""
    return [judge(claim, results) for claim in CLAIMS.get(results.name, ())]


_LINEAR = Claim(
    "A learner that is linear in the bits cannot tie a board's hot bit to that board, so it fails.",
    "section 2.2",
    checks.linear_fails,
)
_SLOPE = Claim(
    "Nibbler needs about twice the experience when the number of boards doubles.",
    "second experiment",
    checks.nibbler_is_nearly_linear,
)
_THRESHOLD_32 = Claim(
    "On 32 boards Nibbler is reliably above 0.04 at 40M steps.",
    "Q-learning sweep",
    checks.nibbler_reaches_004_on_32,
)

CLAIMS: dict[str, tuple[Claim, ...]] = {
    "quickstart": (_LINEAR, _SLOPE),
    "curves": (
        Claim(
            "All agents learn a good policy up to 8 boards.",
            "first experiment",
            checks.all_learn_small_problems,
        ),
        Claim(
            "On 128 boards only Nibbler still learns one.", "first experiment", checks.only_nibbler_learns_128
        ),
        _THRESHOLD_32,
        _LINEAR,
    ),
    "scaling": (
        _SLOPE,
        Claim("All other agents curve up before 128 boards.", "second experiment", checks.baselines_curve_up),
    ),
    "q-sweep": (
        Claim(
            "On 8 boards many settings of Q-learning succeed.",
            "second experiment",
            checks.q_succeeds_widely_on_8,
        ),
        Claim(
            "On 32 boards no setting of Q-learning gets above -0.05 in 40M steps.",
            "second experiment",
            checks.q_fails_everywhere_on_32,
        ),
        _THRESHOLD_32,
    ),
    "hidden-units": (
        Claim(
            "More units per question make Nibbler faster.",
            "third experiment",
            checks.nibbler_gains_from_units,
        ),
        Claim("More hidden units make Q-learning faster.", "third experiment", checks.q_gains_from_units),
        Claim(
            "More units do not change the slope.", "third experiment", checks.units_do_not_change_the_slope
        ),
        Claim(
            "On 16 boards Nibbler with 32 units per question beats Q-learning with 1024, in reward and time.",
            "third experiment",
            checks.weak_nibbler_beats_large_q,
        ),
    ),
    "heterogeneous": (
        Claim(
            "Nibbler reaches zero reward on varied boards.",
            "fourth experiment",
            checks.varied_boards_are_learned,
        ),
        Claim("It scales there as on equal boards.", "fourth experiment", checks.varied_boards_scale),
        Claim(
            "A wind that is random makes it substantially worse.",
            "fourth experiment",
            checks.noisy_wind_is_worse,
        ),
    ),
    "fixed-nibbler": (
        Claim(
            "One fixed Nibbler does well while it has questions enough, and collapses beyond.",
            "appendix B",
            checks.fixed_nibbler_collapses,
        ),
    ),
    "questions": (
        Claim(
            "With too few questions performance collapses.", "appendix B", checks.too_few_questions_collapse
        ),
    ),
    "inputs": (
        Claim("30 inputs or fewer per question cost a lot of reward.", "appendix B", checks.few_inputs_hurt),
        Claim(
            "70 inputs or more learn a little slower and end as well.",
            "appendix B",
            checks.extra_inputs_only_slow_down,
        ),
    ),
}
