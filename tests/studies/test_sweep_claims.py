"""Verdicts on resources, varied boards, the appendix, the readings and larger problems, of made-up runs."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import numpy as np
import pytest
from tests.studies.synthetic import BIN, BINS, judged, measured, results, status

from nibbler.studies import sweep_checks
from nibbler.studies.claims import Claim, Verdict, judge
from nibbler.studies.metrics import CurveSet
from nibbler.studies.results import Lines, Measured, Planned, Setting


def test_more_units_are_faster() -> None:
    fast = [measured("nibbler", n, 20 * n // d, hidden_units=d) for n in (2, 4) for d in (1, 4)]
    slow = [measured("nibbler", n, 5 * n * d, hidden_units=d) for n in (2, 4) for d in (1, 4)]
    assert status(sweep_checks.nibbler_gains_from_units, *fast) == "confirmed"
    assert status(sweep_checks.nibbler_gains_from_units, *slow) == "not confirmed"
    nothing = [measured("nibbler", 2, None, hidden_units=d) for d in (1, 4)]
    assert status(sweep_checks.nibbler_gains_from_units, *nothing) == "not enough data"


def test_more_units_are_compared_on_each_size_with_what_was_run_there() -> None:
    parts = [measured("nibbler", n, 20 * n // d, hidden_units=d) for n, d in ((2, 1), (2, 4), (4, 4), (4, 8))]
    found = judged(sweep_checks.nibbler_gains_from_units, *parts, measured("nibbler", 8, 90, hidden_units=8))
    assert found.status == "holds so far"
    assert "2 boards: 40.0M" in found.numbers
    assert "with 1 units" in found.numbers
    assert "4 boards: 20.0M" in found.numbers
    assert "8 boards" not in found.numbers


def test_a_small_network_that_never_learns_counts_as_slower() -> None:
    parts = [measured("q-learning", 2, None, hidden_units=8), measured("q-learning", 2, 10, hidden_units=64)]
    assert status(sweep_checks.q_gains_from_units, *parts) == "confirmed"


def test_units_and_the_slope() -> None:
    same = [measured("nibbler", n, 2 * n * d, hidden_units=d) for n in (2, 4, 8) for d in (1, 4)]
    assert status(sweep_checks.units_do_not_change_the_slope, *same) == "confirmed"
    other = [
        measured("nibbler", n, 2 * n ** (1 if d == 1 else 2), hidden_units=d)
        for n in (2, 4, 8)
        for d in (1, 4)
    ]
    assert status(sweep_checks.units_do_not_change_the_slope, *other) == "not confirmed"
    # Slopes are compared over the same sizes: here one network was also run on 16 boards, where it is slow.
    more = [*same, measured("nibbler", 16, 150, hidden_units=1)]
    found = judged(sweep_checks.units_do_not_change_the_slope, *more)
    assert found.status == "confirmed"
    assert "Nibbler over 2 to 8 boards 1 units 1.00" in found.numbers


def test_q_learning_scales_worse_with_any_units() -> None:
    def parts(power: float) -> list[Measured]:
        ours = [measured("nibbler", n, 4 * n, hidden_units=32) for n in (2, 4, 8)]
        sizes = [(n, units) for n in (2, 4, 8) for units in (32, 64)]
        return ours + [
            measured("q-learning", n, round(4 * n**power), hidden_units=units) for n, units in sizes
        ]

    assert status(sweep_checks.q_scales_worse_with_any_units, *parts(1.8)) == "confirmed"
    one_network = [m for m in parts(1.8) if m.setting.value("hidden_units") == 32]
    assert status(sweep_checks.q_scales_worse_with_any_units, *one_network) == "not enough data"
    assert status(sweep_checks.q_scales_worse_with_any_units, *parts(0.5)) == "not confirmed"


def test_a_weak_nibbler_against_a_large_q_network() -> None:
    theirs = measured("q-learning", 16, None, hidden_units=1024, seconds=2e-5)
    ours = measured("nibbler", 16, 20, hidden_units=32)
    assert status(sweep_checks.weak_nibbler_beats_large_q, ours, theirs) == "confirmed"
    elsewhere = dataclasses.replace(theirs, engine="cpu")
    assert status(sweep_checks.weak_nibbler_beats_large_q, ours, elsewhere) == "not enough data"
    slower = measured("nibbler", 16, 20, hidden_units=32, seconds=3e-5)
    assert status(sweep_checks.weak_nibbler_beats_large_q, slower, theirs) == "not confirmed"


def test_varied_boards_and_the_noisy_wind() -> None:
    parts = [measured(a, n, 2 * n) for a in ("nibbler", "nibbler+") for n in (2, 4, 8, 16)]
    assert status(sweep_checks.varied_boards_are_learned, *parts) == "confirmed"
    assert status(sweep_checks.varied_boards_scale, *parts) == "confirmed"
    assert status(sweep_checks.noisy_wind_is_worse, *parts) == "not enough data"
    assert (
        status(sweep_checks.noisy_wind_is_worse, *parts, measured("Nibbler, noisy wind", 4, None))
        == "confirmed"
    )
    assert (
        status(sweep_checks.noisy_wind_is_worse, *parts, measured("Nibbler, noisy wind", 4, 5))
        == "not confirmed"
    )


def test_a_fixed_nibbler_collapses_on_large_problems() -> None:
    good = [measured("nibbler", n, 10) for n in (2, 4)]
    assert status(sweep_checks.fixed_nibbler_collapses, *good, measured("nibbler", 32, None)) == "confirmed"
    assert status(sweep_checks.fixed_nibbler_collapses, *good, measured("nibbler", 32, 20)) == "not confirmed"


def test_too_few_questions_collapse() -> None:
    def parts(few: float | None) -> list[Measured]:
        return [measured("nibbler", 4, few if h <= 4 else 10, num_questions=h) for h in (2, 4, 8, 16)]

    assert status(sweep_checks.too_few_questions_collapse, *parts(None)) == "confirmed"
    assert status(sweep_checks.too_few_questions_collapse, *parts(20)) == "not confirmed"


def test_a_threshold_must_help_with_every_number_of_questions_that_is_too_few() -> None:
    def part(h: int, tau: float, final: float) -> Measured:
        return measured("nibbler", 4, 10, final, num_questions=h, cumulant_threshold=tau)

    check = sweep_checks.a_threshold_prevents_the_collapse
    parts = [part(2, 0.0, -0.05), part(2, 0.1, -0.01), part(4, 0.0, -0.05), part(4, 0.1, 0.04)]
    found = judged(check, *parts, part(4, 0.3, -0.06), part(8, 0.0, 0.05), part(8, 0.1, 0.02))
    assert found.status == "confirmed"
    assert "; 4: -0.050 (-0.050 to -0.049) without, 0.041 (0.040 to 0.041) with 0.1, -0.059" in found.numbers
    assert "8:" not in found.numbers  # two per board are enough
    assert status(check, *parts[:2], part(4, 0.0, 0.03), part(4, 0.1, 0.03)) == "not confirmed"
    assert status(check, *parts[::2]) == "not enough data"


def test_inputs_per_question() -> None:
    def parts(few: float | None, many: int) -> list[Measured]:
        crossing = {20: few, 56: 10, 82: many}
        return [measured("nibbler", 4, c, inputs_per_question=g) for g, c in crossing.items()]

    assert status(sweep_checks.few_inputs_hurt, *parts(None, 12)) == "confirmed"
    assert status(sweep_checks.few_inputs_hurt, *parts(10, 12)) == "not confirmed"
    assert status(sweep_checks.extra_inputs_only_slow_down, *parts(None, 12)) == "confirmed"
    assert status(sweep_checks.extra_inputs_only_slow_down, *parts(None, 5)) == "not confirmed"
    for final, verdict in ((0.05, "confirmed"), (0.02, "not confirmed")):
        few_missing = [
            measured("nibbler", 4, 10, f, inputs_per_question=g) for g, f in ((50, final), (56, 0.05))
        ]
        assert status(sweep_checks.missing_a_few_inputs_is_harmless, *few_missing) == verdict
    missing = [measured("nibbler", 4, None, inputs_per_question=g) for g in (20, 56, 82)]
    assert status(sweep_checks.few_inputs_hurt, *missing) == "not enough data"


def test_the_literal_reading_must_learn_every_size() -> None:
    literal = "all as written"
    good = measured(literal, 8, 10)
    assert status(sweep_checks.literal_reading_learns, good, measured(literal, 32, 30)) == "confirmed"
    assert status(sweep_checks.literal_reading_learns, good, measured(literal, 32, None)) == "not confirmed"
    assert status(sweep_checks.literal_reading_learns, measured("nibbler", 8, 10)) == "not enough data"


def test_a_reading_that_ends_higher_than_ours_is_told() -> None:
    ours = [measured("nibbler", n, 10) for n in (8, 32)]
    for final, verdict in ((0.05, "holds so far"), (0.03, "holds so far"), (0.06, "not confirmed")):
        other = measured("hidden biases", 32, 10, final)
        assert status(sweep_checks.no_reading_is_better, *ours, other) == verdict
    short = [measured(agent, 32, None, bins=20) for agent in ("nibbler", "hidden biases")]
    found = judged(sweep_checks.no_reading_is_better, *short)
    assert found.status == "not enough data"
    assert found.text.endswith("(Nibbler on 32 boards: not reached in 20.0M steps, too few to count)")


def test_a_value_that_was_planned_and_not_run_keeps_a_sweep_from_being_confirmed() -> None:
    def held(check: Any, planned: dict[str, int], *parts: Measured) -> Verdict:
        setting = Setting("nibbler", 4, tuple(planned.items()))
        found = dataclasses.replace(results("any", *parts), planned=(Planned(setting, 3, 1_000_000),))
        return judge(Claim("id", "claim", "source", check), found)

    inputs = [measured("nibbler", 4, 10, f, inputs_per_question=g) for g, f in ((20, 0.01), (56, 0.05))]
    assert held(sweep_checks.few_inputs_hurt, {"inputs_per_question": 56}, *inputs).status == "confirmed"
    verdict = held(sweep_checks.few_inputs_hurt, {"inputs_per_question": 10}, *inputs)
    assert verdict.status == "holds so far"
    assert verdict.part == "Nibbler, inputs per question 10 on 4 boards: not run"
    questions = [measured("nibbler", 4, c, num_questions=h) for h, c in ((2, None), (8, 10))]
    verdict = held(sweep_checks.too_few_questions_collapse, {"num_questions": 16}, *questions)
    assert verdict.status == "holds so far"
    units = [measured("nibbler", 4, c, hidden_units=d) for d, c in ((32, 20), (64, 10))]
    verdict = held(sweep_checks.nibbler_gains_from_units, {"hidden_units": 128}, *units)
    assert verdict.status == "holds so far"


def test_the_step_size_must_account_for_every_doubling_that_can_be_compared() -> None:
    check = sweep_checks.step_size_makes_doublings_dear
    falling = [measured("nibbler", n, crossing) for n, crossing in ((16, 10), (32, 22), (64, 52))]
    level = [measured("constant step size", n, crossing) for n, crossing in ((16, 9), (32, 16), (64, 30))]
    assert status(check, *falling, *level) == "confirmed"
    assert status(check, *falling, *level[:2]) == "holds so far"
    assert status(check, *falling, *level[:2], measured("constant step size", 64, 45)) == "not confirmed"
    assert status(check, *falling, level[0]) == "not enough data"
    assert status(check, *falling, *level[:1], measured("constant step size", 32, None)) == "not enough data"

    # A mean that is a little cheaper, with intervals that overlap, is not enough.
    crossings = np.array([14, 18, 28])[:, None]
    rewards = np.where(np.arange(BINS) < crossings, -0.06, 0.05)
    unsure = dataclasses.replace(level[1], curves=CurveSet(rewards, BIN))
    verdict = judged(check, *falling[:2], level[0], unsure)
    assert verdict.status == "not confirmed"
    assert "16 to 32: 2.20 (2.20 to 2.20), " in verdict.text


def test_beyond_the_paper_a_doubling_must_not_cost_much_more_than_twice() -> None:
    paper = [measured("nibbler", n, n // 2) for n in (32, 64, 128)]
    assert status(sweep_checks.nibbler_goes_on_scaling, *paper) == "not enough data"
    assert status(sweep_checks.nibbler_goes_on_scaling, *paper, measured("nibbler", 256, 130)) == "confirmed"
    assert (
        status(sweep_checks.nibbler_goes_on_scaling, *paper, measured("nibbler", 256, 190)) == "not confirmed"
    )
    short = measured("nibbler", 256, None)
    assert status(sweep_checks.nibbler_goes_on_scaling, *paper, short) == "not enough data"
    long = measured("nibbler", 256, None, bins=300)
    assert status(sweep_checks.nibbler_goes_on_scaling, *paper, long) == "not confirmed"


def rising(boards: int, bins_to_planner: int, bins: int, planned: int, seeds: int = 3) -> Measured:
    """Runs whose reward rises evenly from the random policy's to the planner's."""
    line = -0.07 + 0.13 * np.minimum((np.arange(bins) + 0.5) / bins_to_planner, 1.0)
    curves = CurveSet(np.tile(line, (seeds, 1)), BIN)
    return Measured(Setting("nibbler", boards), curves, Lines(-0.07, 0.06), planned_steps=planned * BIN)


@pytest.mark.parametrize("slowness, verdict", [(2, "holds so far"), (3, "not confirmed")])
def test_a_part_of_a_run_beyond_the_paper_is_judged_by_how_far_it_has_come(
    slowness: int, verdict: str
) -> None:
    paper = [rising(n, n, 200, 200) for n in (32, 64, 128)]
    part = rising(256, 128 * slowness, 100, 350, seeds=1)  # 99.5 / 256 of the way, or / 384
    found = judged(sweep_checks.nibbler_goes_on_scaling, *paper, part)
    assert found.status == verdict
    ratio, goal = re.findall(r"128 to 256: ([0-9.]+) .*to (\d+%) of the way", found.numbers)[0]
    assert float(ratio) == pytest.approx(slowness, rel=0.05)  # steps are told to a bin
    assert goal == {2: "38%", 3: "25%"}[slowness]
    assert found.part == "Nibbler on 256 boards: not reached in 100M steps, too few to count"
