"""Metrics on synthetic curves whose answers are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from nibbler.studies import metrics
from nibbler.studies.metrics import CurveSet, Estimate

BIN = 1000


def curves(*rows: list[float]) -> CurveSet:
    return CurveSet(np.array(rows, dtype=np.float64), BIN)


def ramp(crossing_bin: int, bins: int = 50) -> NDArray[np.float64]:
    """A curve that is below zero before the bin, and at zero or above from it on."""
    return (np.arange(bins) - crossing_bin) * 0.01


def test_steps_to_threshold_is_the_start_of_the_first_bin_at_the_threshold() -> None:
    estimate = metrics.timesteps_to_threshold(curves([-1.0, -0.5, 0.0, 0.5]))
    assert estimate.value == 2 * BIN
    assert estimate.reached


def test_a_dip_back_under_the_threshold_moves_the_crossing_behind_the_dip() -> None:
    estimate = metrics.timesteps_to_threshold(curves([-1, 1, 1, 1, -0.001, 1, 1]))
    assert estimate.value == 5 * BIN


def test_a_dip_in_the_last_bin_means_not_reached() -> None:
    estimate = metrics.timesteps_to_threshold(curves([-1, 1, 1, 1, -0.001]))
    assert estimate.value == math.inf
    assert not estimate.reached
    assert estimate.bound == 5 * BIN


def test_a_curve_that_never_gets_there_is_not_reached_with_the_run_length_as_bound() -> None:
    estimate = metrics.timesteps_to_threshold(curves([-1] * 7))
    assert (estimate.value, estimate.bound) == (math.inf, 7 * BIN)
    assert metrics.format_estimate(estimate) == "> 7.00k"


def test_a_curve_that_starts_above_and_stays_needs_no_steps() -> None:
    assert metrics.timesteps_to_threshold(curves([0.1, 0.2, 0.0])).value == 0.0


def test_the_threshold_itself_counts_as_reached() -> None:
    assert metrics.timesteps_to_threshold(curves([0.03, 0.04, 0.04]), threshold=0.04).value == BIN


def test_an_empty_curve_has_not_reached_anything() -> None:
    assert metrics.timesteps_to_threshold(CurveSet(np.empty((1, 0)), BIN)).value == math.inf


def test_the_average_over_seeds_decides_not_the_single_seeds() -> None:
    # Seed one crosses at bin 1 and seed two at bin 3; their average crosses at bin 2.
    both = curves([-2.0, 1.0, 1.0, 1.0], [-2.0, -2.0, -0.5, 0.5])
    assert metrics.timesteps_to_threshold(both).value == 2 * BIN


def test_one_seed_gives_a_value_without_an_interval() -> None:
    estimate = metrics.timesteps_to_threshold(curves([-1, 1]))
    assert not estimate.has_interval
    assert metrics.format_estimate(estimate) == "1.00k"


def test_identical_seeds_give_an_interval_of_no_width() -> None:
    estimate = metrics.timesteps_to_threshold(CurveSet(np.stack([ramp(20)] * 4), BIN))
    assert (estimate.low, estimate.value, estimate.high) == (20 * BIN, 20 * BIN, 20 * BIN)


def test_the_interval_lies_between_the_fastest_and_the_slowest_seed() -> None:
    estimate = metrics.timesteps_to_threshold(CurveSet(np.stack([ramp(k) for k in (10, 14, 22, 30)]), BIN))
    assert 10 * BIN <= estimate.low < estimate.value < estimate.high <= 30 * BIN


def test_a_seed_that_fails_opens_the_interval_upwards_but_the_value_stands() -> None:
    failing = np.full(50, -0.05)
    good = np.where(np.arange(50) < 10, -0.05, 0.05)
    estimate = metrics.timesteps_to_threshold(CurveSet(np.stack([good, good, good, failing]), BIN))
    assert estimate.value == 10 * BIN
    assert estimate.high == math.inf
    assert metrics.format_estimate(estimate) == "10.0k (10.0k to ∞)"


def test_bootstrap_intervals_cover_the_true_mean_about_as_often_as_they_say() -> None:
    generator = np.random.default_rng(5)
    covered = 0
    for _ in range(200):
        estimate = metrics.final_reward(CurveSet(generator.normal(size=(20, 1)), BIN), resamples=400)
        covered += estimate.low <= 0.0 <= estimate.high
    assert 170 <= covered <= 199  # the percentile bootstrap is a little narrow with 20 seeds


def test_the_same_curves_give_the_same_interval_every_time() -> None:
    noisy = CurveSet(np.random.default_rng(0).normal(size=(5, 40)) + np.linspace(-3, 3, 40), BIN)
    first, second = (metrics.timesteps_to_threshold(noisy, window=5) for _ in range(2))
    assert (first.low, first.high) == (second.low, second.high)


def test_smoothing_keeps_a_straight_line_straight_and_does_not_delay_it() -> None:
    line = np.linspace(-1, 1, 41)
    inner = slice(3, -3)
    np.testing.assert_allclose(metrics.smooth(line, 7)[inner], line[inner], atol=1e-12)
    assert metrics.timesteps_to_threshold(CurveSet(line[None], BIN), window=7).value == 20 * BIN


def test_smoothing_bridges_a_dip_that_is_shorter_than_its_window() -> None:
    dipped = np.where(np.arange(40) < 10, -1.0, 1.0)
    dipped[30] = -0.1
    raw = metrics.timesteps_to_threshold(CurveSet(dipped[None], BIN))
    smoothed = metrics.timesteps_to_threshold(CurveSet(dipped[None], BIN), window=3)
    assert (raw.value, smoothed.value) == (31 * BIN, 10 * BIN)


def test_the_ends_are_averaged_over_the_bins_that_exist() -> None:
    np.testing.assert_allclose(metrics.smooth(np.array([0.0, 3.0, 6.0, 9.0]), 3), [1.5, 3.0, 6.0, 7.5])


@pytest.mark.parametrize("window", [0, -1, 2, 10])
def test_a_window_without_a_centre_is_refused(window: int) -> None:
    with pytest.raises(ValueError, match="odd number of bins"):
        metrics.smooth(np.zeros(4), window)


def test_the_first_steps_of_curves_are_their_whole_bins() -> None:
    curves = CurveSet(np.arange(8.0).reshape(2, 4), 10)
    assert curves.first(29).rewards.tolist() == [[0.0, 1.0], [4.0, 5.0]]
    assert curves.first(30).steps == 30
    assert curves.first(1000).steps == 40


def test_runs_under_way_cut_the_set_to_what_all_have() -> None:
    cut = CurveSet.from_runs([np.arange(5.0), np.arange(3.0)], BIN)
    assert (cut.num_seeds, cut.num_bins, cut.steps) == (2, 3, 3 * BIN)


@given(
    st.lists(st.floats(-1, 1), min_size=1, max_size=30),
    st.floats(-1, 1),
)
def test_steps_to_threshold_meets_its_definition(values: list[float], threshold: float) -> None:
    curve = np.array(values)
    start = metrics.first_bin_that_stays(curve, threshold)
    candidates = [k for k in range(len(values)) if (curve[k:] >= threshold).all()]
    assert start == (candidates[0] if candidates else math.inf)


def test_steps_to_a_share_of_the_way_are_steps_to_the_reward_there() -> None:
    line = curves(list(np.linspace(-1.0, 3.0, 401)), list(np.linspace(-1.0, 3.0, 401)))
    assert metrics.timesteps_to_share(line, 0.5, -1.0, 3.0).value == 200 * BIN
    assert metrics.timesteps_to_share(line, 0.25, 0.0, 2.0).value == 150 * BIN
    assert not metrics.timesteps_to_share(line, 1.1, -1.0, 3.0).reached


def test_a_run_under_way_is_averaged_over_a_hundredth_of_the_whole_for_steps_to_a_share() -> None:
    rewards = np.where(np.arange(300) < 100, 0.0, 1.0)
    rewards[200] = -3.0  # 7 bins around it are on average 3 / 7, 3 bins -1 / 3
    part = CurveSet(rewards[None], BIN)
    assert metrics.timesteps_to_share(part, 0.2, 0.0, 1.0, planned_steps=700 * BIN).value == 98 * BIN
    assert metrics.timesteps_to_share(part, 0.2, 0.0, 1.0).value == 202 * BIN


def test_doubling_ratio_divides_the_larger_by_the_smaller() -> None:
    small = metrics.timesteps_to_threshold(CurveSet(np.stack([ramp(10), ramp(12)]), BIN))
    large = metrics.timesteps_to_threshold(CurveSet(np.stack([ramp(22), ramp(24)]), BIN))
    ratio = metrics.timestep_doubling_ratio(small, large)
    assert ratio.value == pytest.approx(23 / 11)
    assert ratio.low == pytest.approx(22 / 12)
    assert ratio.high == pytest.approx(24 / 10)


def test_doubling_ratio_to_a_size_that_was_not_reached_keeps_its_lower_bound() -> None:
    ratio = metrics.timestep_doubling_ratio(Estimate(10.0), Estimate(math.inf, bound=50.0))
    assert (ratio.value, ratio.bound) == (math.inf, 5.0)
    assert metrics.format_estimate(ratio) == "> 5.00"


@pytest.mark.parametrize("smaller", [Estimate(math.inf, bound=10.0), Estimate(0.0), Estimate(math.nan)])
def test_doubling_ratio_from_a_size_without_a_positive_value_is_undefined(smaller: Estimate) -> None:
    ratio = metrics.timestep_doubling_ratio(smaller, Estimate(20.0))
    assert ratio.undefined
    assert metrics.format_estimate(ratio) == "undefined"


def test_replicas_without_a_ratio_widen_its_interval_on_both_sides() -> None:
    failing = np.full(50, -0.05)
    good = np.where(np.arange(50) < 10, -0.05, 0.05)
    shaky = metrics.timesteps_to_threshold(CurveSet(np.stack([good, good, good, failing]), BIN))
    ratio = metrics.timestep_doubling_ratio(shaky, shaky)
    assert (ratio.value, ratio.low, ratio.high) == (1.0, 0.0, math.inf)


def test_doubling_ratios_exist_where_both_sizes_were_run() -> None:
    ratios = metrics.doubling_ratios({n: Estimate(float(n * n)) for n in (2, 4, 8, 32)})
    assert {n: r.value for n, r in ratios.items()} == {2: 4.0, 4: 4.0}


def test_power_law_recovers_an_exact_exponent_and_scale() -> None:
    law = metrics.power_law({n: Estimate(3.0 * n**1.5) for n in (2, 4, 8, 16)})
    assert law.exponent.value == pytest.approx(1.5)
    assert law.scale == pytest.approx(3.0)
    np.testing.assert_allclose(law.steps(np.array([4.0])), [24.0])


def test_power_law_interval_holds_the_true_exponent_on_noisy_seeds() -> None:
    generator = np.random.default_rng(3)
    by_boards = {}
    for boards in (2, 4, 8, 16):
        crossings = (boards * generator.lognormal(0, 0.1, size=8) * 20).astype(int)
        by_boards[boards] = metrics.timesteps_to_threshold(
            CurveSet(np.stack([ramp(k, bins=600) for k in crossings]), BIN)
        )
    law = metrics.power_law(by_boards)
    assert law.exponent.low < 1.0 < law.exponent.high
    assert law.exponent.high - law.exponent.low < 0.5


def test_power_law_takes_a_size_with_one_seed_as_it_is() -> None:
    spread = Estimate(20.0, 18.0, 22.0, replicas=np.linspace(18.0, 22.0, 101))
    law = metrics.power_law({2: Estimate(10.0), 4: spread})
    assert law.exponent.value == pytest.approx(1.0)
    assert (law.exponent.low, law.exponent.high) == pytest.approx(
        (math.log2(1.81), math.log2(2.19)), abs=0.01
    )
    assert not metrics.power_law({2: Estimate(10.0), 4: Estimate(20.0)}).exponent.has_interval


def test_power_law_names_the_sizes_that_were_not_reached_and_leaves_them_out() -> None:
    law = metrics.power_law({2: Estimate(10.0), 4: Estimate(20.0), 8: Estimate(math.inf, bound=99.0)})
    assert law.exponent.value == pytest.approx(1.0)
    assert (law.fitted, law.not_reached) == ((2, 4), (8,))


def test_power_law_through_fewer_than_two_sizes_is_undefined() -> None:
    assert metrics.power_law({2: Estimate(10.0), 4: Estimate(math.inf, bound=1.0)}).exponent.undefined


def test_a_power_law_that_rests_on_a_shaky_size_is_open_upwards() -> None:
    failing = np.full(50, -0.05)
    good = np.where(np.arange(50) < 20, -0.05, 0.05)
    shaky = metrics.timesteps_to_threshold(CurveSet(np.stack([good, good, good, failing]), BIN))
    firm = metrics.timesteps_to_threshold(CurveSet(np.stack([ramp(10)] * 3), BIN))
    assert metrics.power_law({2: firm, 4: shaky}).exponent.high == math.inf


def test_final_reward_is_the_mean_of_the_last_tenth() -> None:
    row = [0.0] * 18 + [1.0, 2.0]
    estimate = metrics.final_reward(curves(row, row))
    assert (estimate.value, estimate.low, estimate.high) == (1.5, 1.5, 1.5)


def test_share_of_planner_is_zero_at_random_and_one_at_the_planner() -> None:
    for reward, share in ((-0.06, 0.0), (0.0, 0.5), (0.06, 1.0)):
        assert metrics.share_of_planner(Estimate(reward), -0.06, 0.06).value == pytest.approx(share)


def test_share_of_planner_refuses_lines_in_the_wrong_order() -> None:
    with pytest.raises(ValueError, match="must be above"):
        metrics.share_of_planner(Estimate(0.0), 0.1, 0.1)


def test_scaling_an_estimate_scales_its_bound_too() -> None:
    seconds = metrics.scaled(Estimate(math.inf, bound=1000.0), 0.5)
    assert (seconds.value, seconds.bound) == (math.inf, 500.0)


@pytest.mark.parametrize(
    "number, text",
    [
        (0, "0"),
        (7, "7.00"),
        (42, "42.0"),
        (999, "999"),
        (999.9, "1.00k"),
        (1_450_000, "1.45M"),
        (2.1e9, "2.10G"),
    ],
)
def test_quantities_print_with_three_digits(number: float, text: str) -> None:
    assert metrics.format_quantity(number) == text


def test_bootstrap_samples_are_seed_averages_drawn_with_replacement() -> None:
    two = CurveSet(np.array([[0.0], [1.0]]), BIN)
    means = metrics.bootstrap(two, lambda averages: averages[:, 0], resamples=4000)
    values, counts = np.unique(means, return_counts=True)
    assert values.tolist() == [0.0, 0.5, 1.0]
    np.testing.assert_allclose(counts / 4000, [0.25, 0.5, 0.25], atol=0.03)


def test_bootstrap_in_blocks_equals_bootstrap_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    noisy = CurveSet(np.random.default_rng(1).normal(size=(6, 30)), BIN)
    at_once = metrics.bootstrap(noisy, lambda averages: averages.max(axis=1), resamples=300)
    monkeypatch.setattr(metrics, "LARGEST_BLOCK", 90)
    in_blocks = metrics.bootstrap(noisy, lambda averages: averages.max(axis=1), resamples=300)
    np.testing.assert_allclose(in_blocks, at_once, rtol=1e-12)
