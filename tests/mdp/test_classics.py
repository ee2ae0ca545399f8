"""Garnets and the river are what they say they are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nibbler.mdp import exact
from nibbler.mdp.classics import garnet, river_swim


@given(st.integers(1, 20), st.integers(1, 4), st.data(), st.integers(0, 2**64 - 1))
def test_a_garnet_is_ergodic_with_the_branching_asked_for(states, actions, data, seed):
    branching = data.draw(st.integers(1, states))
    mdp = garnet(states, actions, branching, seed=seed)
    mdp.require_ergodic()
    for s in range(states):
        for a in range(actions):
            outcomes = mdp.outcomes(s, a)
            # A stick may break at a point twice, which leaves a piece of length zero.
            assert len(outcomes) <= branching
            assert len({successor for _, successor, _ in outcomes}) == len(outcomes)
            assert len({reward for _, _, reward in outcomes}) == 1
            assert -1 <= outcomes[0][2] < 1


def test_a_garnet_comes_from_its_seed():
    assert garnet(8, 2, 3, seed=5).fingerprint == garnet(8, 2, 3, seed=5).fingerprint
    assert garnet(8, 2, 3, seed=5).fingerprint != garnet(8, 2, 3, seed=6).fingerprint


def test_a_share_of_the_actions_of_a_garnet_is_rewarded():
    mdp = garnet(200, 3, 2, reward_density=0.25, seed=1)
    paid = np.count_nonzero(mdp.reward[mdp.outcome_start[:-1]])
    assert abs(paid - 150) < 4 * (600 * 0.25 * 0.75) ** 0.5
    assert not garnet(20, 3, 2, reward_density=0.0).reward.any()


def test_the_codes_of_a_garnet_tell_its_states_apart():
    mdp = garnet(40, 2, 3, num_features=12, active_features=4, seed=2)
    codes = [mdp.features(s) for s in range(40)]
    assert len(set(codes)) == 40
    assert all(len(code) == 4 for code in codes)
    assert mdp.num_features == 12


def test_swimming_up_the_river_pays_in_the_long_run_and_drifting_does_not():
    river = river_swim()
    swim = np.ones(6, dtype=int)
    # Only the flow between neighbours balances: pi(s + 1) / pi(s) = p_forward / p_back = 7.
    share = 7.0 ** np.arange(6)
    np.testing.assert_allclose(exact.stationary_distribution(river, swim), share / share.sum())
    assert exact.reward_rate(river, swim) == pytest.approx(exact.optimal_rate(river), abs=1e-8)
    assert exact.reward_rate(river, np.zeros(6, dtype=int)) == pytest.approx(0.005)


@pytest.mark.parametrize(
    "build,message",
    [
        (lambda: garnet(0, 1, 1), "at least 1 state"),
        (lambda: garnet(3, 1, 4), "branching=4"),
        (lambda: garnet(3, 1, 1, reward_density=2), "reward_density=2"),
        (lambda: garnet(3, 1, 1, active_features=2), "active_features needs num_features"),
        (lambda: garnet(3, 1, 1, num_features=4), "active_features from 1 to num_features=4"),
        (lambda: garnet(7, 1, 1, num_features=4, active_features=2), "too few different codes"),
        (lambda: river_swim(1), "at least 2"),
        (lambda: river_swim(p_forward=0.9, p_back=0.2), "at most 1"),
        (lambda: river_swim(p_forward=0.0), "p_forward > 0"),
    ],
)
def test_bad_input_is_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
