"""Multi-catch: what it is made of, and its rates and frequencies against the exact ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from nibbler.envs.catch import catch_board
from nibbler.envs.multi_catch import board_variations, multi_catch
from nibbler.mdp.environment import Environment
from nibbler.mdp.exact import Planner, feature_frequencies, reward_rate
from nibbler.mdp.simulate import simulate_greedy, simulate_random, simulate_random_counts, start

RANDOM_POLICY_RATES = {
    1: -0.02857,
    2: -0.05714,
    4: -0.06486,
    8: -0.06957,
    16: -0.07218,
    32: -0.07356,
    64: -0.07427,
    128: -0.07464,
}
PLANNER_RATES = {1: 0.033, 2: 0.054, 4: 0.054, 8: 0.056, 16: 0.057, 32: 0.060, 64: 0.058, 128: 0.058}


@pytest.mark.parametrize("num_boards", RANDOM_POLICY_RATES)
def test_the_exact_random_policy_rate_is_the_one_of_the_design(num_boards: int) -> None:
    assert round(reward_rate(multi_catch(num_boards)), 5) == RANDOM_POLICY_RATES[num_boards]


def random_play(env: Environment, copies: int, steps: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Mean reward and frequency of every observed bit, of independent copies that are warmed up."""
    tables = env.tables
    rates, frequencies = np.zeros(copies), np.zeros((copies, env.num_features))
    states = np.zeros(env.num_components, dtype=np.int32)
    active = np.zeros(env.max_active, dtype=np.int32)
    warm_up = 1000
    for seed in range(copies):
        counts = np.zeros(env.num_features, dtype=np.int64)
        start(tables, states, seed)
        simulate_random(tables, states, seed, 0, warm_up, active)
        rates[seed] = simulate_random_counts(tables, states, seed, warm_up, steps, active, counts) / steps
        frequencies[seed] = counts / steps
    return rates, frequencies


@pytest.mark.parametrize(
    "env",
    [
        multi_catch(1),
        multi_catch(8, seed=5),
        multi_catch(6, seed=2, heterogeneous=True),
        multi_catch(3, seed=1, noisy_wind=True),
        multi_catch(3, seed=4, heterogeneous=True, noisy_wind=True),
    ],
    ids=["one board", "homogeneous", "heterogeneous", "noisy wind", "heterogeneous with noisy wind"],
)
def test_simulated_rates_and_frequencies_agree_with_the_exact_ones(env: Environment) -> None:
    copies = 64
    rates, frequencies = random_play(env, copies, steps=20_000)
    # Copies are independent, so the spread between them is a standard error that knows of autocorrelation.
    error = rates.std(ddof=1) / np.sqrt(copies)
    assert abs(rates.mean() - reward_rate(env)) < 4 * error
    errors = frequencies.std(axis=0, ddof=1) / np.sqrt(copies)
    exact = feature_frequencies(env)
    assert (errors > 0).all()
    assert errors.max() < 0.01  # a bound that is wide open would let anything pass
    assert (np.abs(frequencies.mean(axis=0) - exact) < 4 * errors).all()


def planner_rate(num_boards: int, seed: int, steps: int) -> float:
    env = multi_catch(num_boards)
    states = np.zeros(num_boards, dtype=np.int32)
    active = np.zeros(env.max_active, dtype=np.int32)
    start(env.tables, states, seed)
    return simulate_greedy(env.tables, states, Planner(env).values, 0.1, seed, 0, steps, active) / steps


@pytest.mark.parametrize("num_boards", [1, 2, 8, 32])
def test_the_planner_earns_what_the_design_has_measured(num_boards: int) -> None:
    assert planner_rate(num_boards, seed=0, steps=100_000) == pytest.approx(
        PLANNER_RATES[num_boards], abs=0.006
    )


@pytest.mark.slow
@pytest.mark.parametrize("num_boards", PLANNER_RATES)
def test_the_planner_earns_it_at_every_scale(num_boards: int) -> None:
    copies = 10
    rates = [planner_rate(num_boards, seed, steps=60_000) for seed in range(copies)]
    # The design's number is one such run, rounded: four standard errors of a difference of one and ten runs.
    spread = float(np.std(rates, ddof=1)) * np.sqrt(1 + 1 / copies)
    assert abs(float(np.mean(rates)) - PLANNER_RATES[num_boards]) < 4 * spread + 0.0005


def test_boards_get_hot_twice_per_round_of_all_of_them() -> None:
    for num_boards, p_hot in ((1, 1.0), (2, 1.0), (8, 0.25)):
        board = multi_catch(num_boards).components[0]
        assert board.fingerprint == catch_board(p_hot=p_hot).fingerprint
    assert multi_catch(4, p_hot=0.1).components[0].fingerprint == catch_board(p_hot=0.1).fingerprint


def test_a_thousand_equal_boards_share_one_table() -> None:
    env = multi_catch(1000)
    assert len({id(board) for board in env.components}) == 1
    assert env.num_features == 56_000
    assert sum(part.nbytes for part in env.tables if isinstance(part, np.ndarray)) < 4e6


def test_the_family_varies_as_told_and_grows_from_its_beginning() -> None:
    family = board_variations(2000, seed=7)
    assert board_variations(50, seed=7) == family[:50]
    assert board_variations(50, seed=8) != family[:50]
    rows, winds, p_arrival, p_reward = (np.array(column) for column in zip(*family, strict=True))
    assert set(rows) == {5, 6, 7, 8, 9, 10}
    assert set(winds) == {-1, 1}
    # Uniform: means within four standard errors of the middle, and no two columns that move together.
    for column, low, high in (
        (rows, 4.5, 10.5),
        (winds, -1.5, 1.5),
        (p_arrival, 0.05, 1),
        (p_reward, 0.05, 1),
    ):
        assert abs(column.mean() - (low + high) / 2) < 4 * column.std() / np.sqrt(2000)
    for column in (p_arrival, p_reward):
        assert column.min() >= 0.05
        assert column.max() <= 1
        assert column.std() == pytest.approx(0.95 / np.sqrt(12), rel=0.05)
    assert np.abs(np.corrcoef([rows, winds, p_arrival, p_reward]) - np.eye(4)).max() < 4 / np.sqrt(2000)


def test_a_heterogeneous_environment_is_made_of_its_family() -> None:
    env = multi_catch(5, seed=3, heterogeneous=True)
    for board, variation in zip(env.components, board_variations(5, seed=3), strict=True):
        expected = catch_board(p_hot=0.4, **variation._asdict())
        assert board.fingerprint == expected.fingerprint
    assert env.num_features == sum(5 * v.rows + 6 for v in board_variations(5, seed=3))


def test_noisy_wind_moves_a_ball_to_each_of_three_columns() -> None:
    board = multi_catch(2, noisy_wind=True, paddle_noise=0.0).components[0]
    state = next(s for s, (ball, _) in enumerate(board.labels) if ball.place == "grid" and ball.row == 3)
    ball, _ = board.labels[state]
    moves = {(board.labels[s].ball.col - ball.col) % 5: p for p, s, _ in board.outcomes(state, 1)}
    assert moves == pytest.approx({0: 1 / 3, 1: 1 / 3, 4: 1 / 3})


def test_the_seed_decides_the_permutation_and_nothing_else_of_equal_boards() -> None:
    first, second = multi_catch(4, seed=1), multi_catch(4, seed=2)
    assert not np.array_equal(first.permutation, second.permutation)
    assert np.array_equal(first.permutation, multi_catch(4, seed=1).permutation)
    assert np.array_equal(multi_catch(4, permute=False).permutation, np.arange(4 * 56))
    assert first.components[0].fingerprint == second.components[0].fingerprint


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: multi_catch(0), "num_boards=0 makes no environment"),
        (lambda: multi_catch(-3, heterogeneous=True), "num_boards=-3 makes no environment"),
        (lambda: multi_catch(2.5), "num_boards=2.5 makes no environment"),
        (lambda: multi_catch(2, p_hot=1.2), "p_hot=1.2 is not a probability"),
        (lambda: multi_catch(2, seed=-1), "seed=-1 is out of range"),
    ],
)
def test_environments_that_cannot_be_are_refused_with_the_reason(
    make: Callable[[], Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make()
