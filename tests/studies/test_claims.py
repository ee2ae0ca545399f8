"""Verdicts on synthetic results that are made to confirm a claim, to contradict it, or to leave it open."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tests.studies.synthetic import BIN, BINS, judged, measured, results, status

from nibbler.studies import checks
from nibbler.studies.claims import CLAIMS, Claim, Verdict, judge, one_for_each_claim, verdicts
from nibbler.studies.evidence import NotEnoughDataError, side
from nibbler.studies.metrics import Estimate
from nibbler.studies.results import Measured, Planned, Setting, StudyResults


def test_of_several_verdicts_on_a_claim_the_first_that_can_tell_counts() -> None:
    claim, other = CLAIMS["scaling"][:2]
    open_, held, denied = (
        Verdict(claim, status, "") for status in ("not enough data", "holds so far", "not confirmed")
    )
    beside = Verdict(other, "confirmed", "")
    assert one_for_each_claim([open_, beside, held, denied]) == [held, beside]
    assert one_for_each_claim([open_]) == [open_]


def test_claims_have_ids_of_their_own() -> None:
    claims = {claim for claims in CLAIMS.values() for claim in claims}
    assert len({claim.id for claim in claims}) == len(claims)


def test_every_claim_of_every_study_says_not_enough_data_of_nothing() -> None:
    for name, claims in CLAIMS.items():
        found = verdicts(results(name))
        assert [v.status for v in found] == ["not enough data"] * len(claims)
        assert all(v.numbers for v in found)


def test_a_study_that_is_not_the_papers_has_no_claims() -> None:
    assert verdicts(results("mine", measured("nibbler", 2, 10))) == []


@pytest.mark.parametrize("exponent, verdict", [(1.0, "confirmed"), (2.0, "not confirmed")])
def test_linear_growth_is_judged_by_the_exponent(exponent: float, verdict: str) -> None:
    parts = [measured("nibbler", n, round(0.5 * n**exponent)) for n in (2, 4, 8, 16)]
    assert status(checks.nibbler_is_nearly_linear, *parts) == verdict


def test_growth_on_large_problems_is_told_apart() -> None:
    crossings = {2: 4, 4: 8, 8: 9, 16: 10, 32: 30, 64: 90}  # by three for each doubling at the end
    parts = [measured("nibbler", n, c) for n, c in crossings.items()]
    large = results("any", *parts).power_law_of_large("nibbler")
    assert large is not None
    assert large.fitted == (16, 32, 64)
    assert f", {large.exponent.value:.2f} (" in judged(checks.nibbler_is_nearly_linear, *parts).numbers
    assert large.exponent.value == pytest.approx(np.log2(3), abs=0.05)
    for too_few in (parts[:-1], parts[3:]):  # two large ones; nothing but large ones
        assert results("any", *too_few).power_law_of_large("nibbler") is None


def test_linear_growth_needs_three_sizes_and_two_seeds() -> None:
    two = [measured("nibbler", n, 2 * n) for n in (2, 4)]
    assert status(checks.nibbler_is_nearly_linear, *two) == "not enough data"
    single = [measured("nibbler", n, 2 * n, seeds=1) for n in (2, 4, 8, 16)]
    assert status(checks.nibbler_is_nearly_linear, *single) == "not enough data"
    several = [measured("nibbler", n, 2 * n) for n in (2, 4, 8)]
    found = judged(
        checks.nibbler_is_nearly_linear, *several, measured("nibbler", 16, 32, seeds=1, planned_seeds=3)
    )
    assert found.status == "holds so far"
    assert "exponent 1.00 (1.00 to 1.00) over 2 to 16 boards" in found.numbers
    assert found.part == "Nibbler on 16 boards: 1 of 3 seeds"


def test_a_size_that_nibbler_missed_contradicts_linear_growth() -> None:
    parts = [measured("nibbler", n, 2 * n) for n in (2, 4, 8)]
    assert status(checks.nibbler_is_nearly_linear, *parts, measured("nibbler", 16, None)) == "not confirmed"


def test_all_agents_learn_small_problems() -> None:
    agents = ("nibbler", "q-learning", "qv-learning", "rainbow")
    good = [measured(a, n, 10) for a in agents for n in (2, 4, 8)]
    assert status(checks.all_learn_small_problems, *good) == "confirmed"
    assert (
        status(checks.all_learn_small_problems, *good[:-1], measured("rainbow", 8, None)) == "not confirmed"
    )
    assert status(checks.all_learn_small_problems, *good[1:]) == "not enough data"
    early = judged(checks.all_learn_small_problems, *good[:-1], measured("rainbow", 8, None, bins=2))
    assert early.status == "holds so far"
    assert early.part == "Rainbow on 8 boards: not reached in 2.00M steps, too few to count"
    part = judged(checks.all_learn_small_problems, *good[:-1])
    assert part.status == "holds so far"
    assert part.part == "Rainbow on 8 boards: not run"


def test_a_failure_in_a_short_run_is_not_enough_data() -> None:
    short = measured("linear", 4, None, bins=3)
    assert status(checks.linear_fails, short) == "not enough data"
    assert status(checks.linear_fails, measured("linear", 4, None, bins=4)) == "confirmed"
    assert status(checks.linear_fails, measured("linear", 4, 1, bins=4)) == "not confirmed"


def test_a_failure_counts_from_a_million_steps_per_board_or_from_what_nibbler_needed() -> None:
    short = measured("linear", 32, None, bins=25)
    assert status(checks.linear_fails, short) == "not enough data"
    assert status(checks.linear_fails, short, measured("nibbler", 32, 20, bins=40)) == "confirmed"
    assert status(checks.linear_fails, short, measured("nibbler", 32, 30, bins=40)) == "not enough data"
    assert status(checks.linear_fails, short, measured("nibbler", 16, 20, bins=40)) == "not enough data"
    assert status(checks.linear_fails, short, measured("nibbler", 32, None, bins=40)) == "not enough data"
    slow = measured("nibbler", 4, 9, bins=40)  # never asks for more than a million per board
    assert status(checks.linear_fails, measured("linear", 4, None, bins=4), slow) == "confirmed"


def test_a_verdict_on_part_of_the_runs_says_which_part() -> None:
    some = judged(checks.linear_fails, measured("linear", 4, None, planned_seeds=4))
    assert (some.status, some.part) == ("holds so far", "Linear on 4 boards: 3 of 4 seeds")
    one = measured("linear", 8, None, seeds=1, planned_seeds=3)
    both = judged(checks.linear_fails, measured("linear", 4, None), one)
    assert both.part == "Linear on 8 boards: 1 of 3 seeds"
    assert "Judged on part of the runs (Linear on 8 boards: 1" in both.text
    assert status(checks.linear_fails, one) == "not enough data"
    assert judged(checks.linear_fails, measured("linear", 4, None)).part == ""


def test_a_size_too_short_to_count_does_not_hide_the_others() -> None:
    parts = [measured("nibbler", n, 2 * n) for n in (2, 4, 8)]
    found = judged(checks.nibbler_is_nearly_linear, *parts, measured("nibbler", 128, None, bins=100))
    assert found.status == "holds so far"
    assert "Nibbler on 128 boards: not reached in 100M steps, too few to count" in found.part


def test_a_size_that_was_learned_counts_before_its_runs_end() -> None:
    parts = [measured("nibbler", n, 2 * n) for n in (2, 4, 64)]
    last = dataclasses.replace(measured("nibbler", 128, 120, bins=126), planned_steps=130 * BIN)
    for check in (checks.nibbler_is_nearly_linear, checks.doubling_costs_twice):
        found = judged(check, *parts, last)
        assert "128" in found.numbers
        assert found.part == "Nibbler on 128 boards: 126M steps so far"
    beside = measured("q-learning", 128, None, bins=130)
    assert status(checks.only_nibbler_learns_128, last, beside) == "holds so far"
    unlearned = dataclasses.replace(measured("nibbler", 128, None, bins=126), planned_steps=130 * BIN)
    assert status(checks.only_nibbler_learns_128, unlearned, beside) == "not enough data"


def test_nibbler_outperforms_on_the_largest_problem_that_both_ran() -> None:
    ours = [measured("nibbler", n, 10) for n in (8, 16, 64)]
    assert status(checks.nibbler_outperforms, *ours, measured("q-learning", 64, None)) == "holds so far"
    better = measured("q-learning", 64, 10, final=0.06)
    assert status(checks.nibbler_outperforms, *ours, better) == "not confirmed"
    short = judged(checks.nibbler_outperforms, *ours, measured("rainbow", 16, None, bins=2))
    assert short.status == "not enough data"
    assert "Rainbow on 16 boards: 2.00M steps, too few to compare" in short.text
    same = measured("q-learning", 64, 10)
    assert status(checks.nibbler_outperforms, *ours, same) == "not enough data"
    assert status(checks.nibbler_outperforms, *ours, measured("q-learning", 8, None)) == "not enough data"


def test_nibbler_and_a_baseline_with_shorter_runs_are_compared_after_the_same_experience() -> None:
    ours = measured("nibbler", 32, 28)  # ends at 0.05 after 200M steps
    ahead = judged(checks.nibbler_outperforms, ours, measured("rainbow", 32, 10, final=0.04, bins=30))
    assert ahead.status == "not confirmed"
    assert ahead.numbers == (
        "reward: 0.014 (0.013 to 0.014) against Rainbow's 0.041 (0.040 to 0.041) on 32 boards after 30.0M "
        "steps"
    )
    behind = measured("rainbow", 32, 10, final=0.04, bins=40)
    assert status(checks.nibbler_outperforms, ours, behind) == "holds so far"


def test_rainbow_ends_highest_on_small_problems() -> None:
    others = [measured(a, 2, 10) for a in ("nibbler", "q-learning", "qv-learning")]
    for final, verdict in ((0.06, "holds so far"), (0.04, "not confirmed"), (0.05, "not enough data")):
        assert status(checks.rainbow_ends_highest, *others, measured("rainbow", 2, 10, final)) == verdict
    for final, verdict in ((0.06, "holds so far"), (0.04, "not enough data")):  # a short run may still rise
        short = measured("rainbow", 2, 0, final, bins=1)
        assert status(checks.rainbow_ends_highest, *others, short) == verdict


def test_the_doubling_ratio_is_judged_at_every_size() -> None:
    even = [measured("nibbler", n, 2 * n) for n in (2, 4, 8)]
    assert status(checks.doubling_costs_twice, *even) == "confirmed"
    uneven = [measured("nibbler", n, c) for n, c in ((2, 2), (4, 8), (8, 16))]
    assert status(checks.doubling_costs_twice, *uneven) == "not confirmed"
    missed = [*even, measured("nibbler", 16, None)]
    assert status(checks.doubling_costs_twice, *missed) == "not confirmed"
    assert status(checks.doubling_costs_twice, *even[:2]) == "not enough data"


def test_one_bad_seed_makes_it_unreliable() -> None:
    good = [measured("nibbler", n, 10) for n in (2, 4)]
    assert status(checks.nibbler_is_reliable, *good) == "not enough data"
    assert status(checks.nibbler_is_reliable, *good, measured("nibbler", 8, 10)) == "confirmed"
    assert status(checks.nibbler_is_reliable, *good, measured("nibbler", 8, 10, -0.0005)) == "not confirmed"


def test_only_nibbler_learns_128_boards() -> None:
    ours = measured("nibbler", 128, 50)
    assert status(checks.only_nibbler_learns_128, ours, measured("q-learning", 128, None)) == "holds so far"
    assert status(checks.only_nibbler_learns_128, ours, measured("q-learning", 128, 60)) == "not confirmed"
    others = [measured(agent, 128, None) for agent in checks.BASELINES]
    assert status(checks.only_nibbler_learns_128, ours, *others) == "confirmed"
    first = measured("nibbler", 128, 50, seeds=1, planned_seeds=3)
    found = judged(checks.only_nibbler_learns_128, first, *others)
    assert (found.status, found.part) == ("holds so far", "Nibbler on 128 boards: 1 of 3 seeds")


@pytest.mark.parametrize(
    "final, verdict", [(0.047, "confirmed"), (0.02, "not confirmed"), (0.0395, "not enough data")]
)
def test_a_bound_must_be_cleared_by_the_whole_interval(final: float, verdict: str) -> None:
    assert status(checks.nibbler_reaches_004_on_32, measured("nibbler", 32, 20, final)) == verdict


def test_side_says_what_is_open() -> None:
    with pytest.raises(NotEnoughDataError, match=r"does not settle 0\.04"):
        side(Estimate(0.04, 0.03, 0.05), 0.04, "it")


def test_baselines_curve_up() -> None:
    sizes = (8, 16, 32)
    ours = [measured("nibbler", n, n) for n in sizes]
    steep = [measured("q-learning", n, n**2 // 16) for n in sizes]
    missed = [measured("q-learning", n, n) for n in (8, 16)] + [measured("q-learning", 32, None)]
    linear = [measured("q-learning", n, n) for n in sizes]
    assert status(checks.baselines_curve_up, *ours, *steep) == "holds so far"
    assert status(checks.baselines_curve_up, *ours, *missed) == "holds so far"
    assert status(checks.baselines_curve_up, *ours, *linear) == "not enough data"
    small = [measured(a, n, n**2) for a in ("nibbler", "q-learning") for n in (2, 4, 8)]
    assert status(checks.baselines_curve_up, *small) == "not enough data"
    slow_too = [measured("nibbler", n, n**2 // 16) for n in sizes]
    assert status(checks.baselines_curve_up, *slow_too, *steep) == "not enough data"
    part = judged(checks.baselines_curve_up, *ours, *steep, measured("rainbow", 8, 8))
    assert part.status == "holds so far"
    assert part.part == "QV-learning on 8, 16, 32 boards: not run; Rainbow on 16, 32 boards: not run"
    large = [measured("nibbler", 128, 100), measured("q-learning", 128, 100)]
    assert status(checks.baselines_curve_up, *ours, *linear, *large) == "not confirmed"


@pytest.mark.parametrize("largest, steps", [(16, None), (32, 32 * 5)])
def test_a_baseline_that_has_curved_up_need_not_be_run_on_larger_problems(
    largest: int, steps: int | None
) -> None:
    sizes = (8, 16, 32, 64, 128)
    ours = [measured("nibbler", n, n) for n in sizes]
    theirs = [measured(a, n, n) for a in checks.BASELINES for n in sizes if n < largest]
    curved = [measured(a, largest, steps) for a in checks.BASELINES]
    found = judged(checks.baselines_curve_up, *ours, *theirs, *curved)
    assert (found.status, found.part) == ("confirmed", "")
    some = judged(checks.baselines_curve_up, *ours, *theirs, *curved[:-1])
    missing = ", ".join(str(n) for n in sizes if n >= largest)
    assert (some.status, some.part) == ("holds so far", f"Rainbow on {missing} boards: not run")


def sweep(boards: int, *finals: float, bins: int = BINS) -> list[Measured]:
    return [
        measured("q-learning", boards, 0, final, seeds=2, bins=bins, step_size=0.001 * (k + 1))
        for k, final in enumerate(finals)
    ]


def test_the_q_learning_sweep() -> None:
    assert status(checks.q_succeeds_widely_on_8, *sweep(8, 0.04, 0.03, -0.06)) == "confirmed"
    assert status(checks.q_succeeds_widely_on_8, *sweep(8, 0.04, -0.06, -0.06, -0.06)) == "not confirmed"
    assert status(checks.q_fails_everywhere_on_32, *sweep(32, -0.06, -0.07)) == "confirmed"
    assert status(checks.q_fails_everywhere_on_32, *sweep(32, -0.06, -0.04)) == "not confirmed"
    assert status(checks.q_fails_everywhere_on_32, *sweep(32, -0.06, bins=4)) == "not enough data"
    assert status(checks.q_is_never_positive_on_32, *sweep(32, -0.06, -0.04)) == "confirmed"
    assert status(checks.q_is_never_positive_on_32, *sweep(32, -0.06, 0.02)) == "not confirmed"


def test_a_part_of_the_sweep_is_judged_and_counted() -> None:
    parts = sweep(32, -0.06, -0.07)
    planned = tuple(Planned(m.setting, 2, BINS * BIN) for m in parts)
    more = Planned(Setting("q-learning", 32, (("step_size", 9.0),)), 2, BINS * BIN)
    read = StudyResults("any", "any", tuple(parts), planned=(*planned, more))
    found = judge(Claim("id", "claim", "source", checks.q_fails_everywhere_on_32), read)
    assert (found.status, found.part) == ("holds so far", "Q-learning on 32 boards: 1 settings not run")
    assert "best of 2 settings (of 3 planned)" in found.numbers
    few = StudyResults("any", "any", tuple(parts[:1]), planned=tuple(planned[:1]) + (more,) * 5)
    alone = judge(Claim("id", "claim", "source", checks.q_fails_everywhere_on_32), few)
    assert (alone.status, alone.numbers) == (
        "not enough data",
        "1 of 6 settings of Q-learning have two seeds on 32 boards",
    )


def test_nibbler_beats_a_large_q_network_at_every_step_size() -> None:
    ours = measured("nibbler", 32, 20, hidden_units=256)
    for final, verdict in ((-0.06, "confirmed"), (0.06, "not confirmed")):
        theirs = [
            measured("q-learning", 32, 0, f, hidden_units=1024, step_size=s)
            for s, f in ((0.001, -0.07), (0.01, -0.07), (0.1, final))
        ]
        assert status(checks.q_loses_at_every_step_size, ours, *theirs) == verdict
        assert status(checks.q_loses_at_every_step_size, ours, *theirs[1:]) == "not enough data"


def test_of_a_large_q_network_only_its_own_settings_are_missed() -> None:
    theirs = [
        measured("q-learning", 32, 0, -0.07, hidden_units=1024, step_size=s) for s in (0.001, 0.01, 0.1)
    ]

    def judged_with(hidden_units: int) -> Verdict:
        missing = Setting("q-learning", 32, (("hidden_units", hidden_units), ("step_size", 9.0)))
        planned = tuple(
            Planned(setting, 2, BINS * BIN) for setting in (*(m.setting for m in theirs), missing)
        )
        parts = (measured("nibbler", 32, 20, hidden_units=256), *theirs)
        read = StudyResults("any", "any", parts, planned=planned)
        return judge(Claim("id", "claim", "source", checks.q_loses_at_every_step_size), read)

    assert judged_with(4096).status == "confirmed"
    part = judged_with(1024)
    assert part.status == "holds so far"
    assert part.part == "Q-learning, hidden units 1024 on 32 boards: 1 settings not run"
