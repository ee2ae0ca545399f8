"""Finite MDPs: three ways in that agree, sorted tables, and errors that say where and what."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nibbler.mdp.classics import garnet, river_swim
from nibbler.mdp.finite_mdp import FiniteMDP
from nibbler.mdp.tables import thresholds

TWO_STATES = {
    "transition": [[[0.25, 0.75], [1.0, 0.0]], [[0.5, 0.5], [0.0, 1.0]]],
    "reward": [[0.0, 1.0], [2.0, 0.0]],
    "features": [[1, 0, 1], [0, 1, 1]],
}
TRIPLES = {
    "num_states": 2,
    "num_actions": 2,
    "state": [0, 0, 0, 1, 1, 1],
    "action": [0, 0, 1, 0, 0, 1],
    "next_state": [0, 1, 0, 0, 1, 1],
    "probability": [0.25, 0.75, 1.0, 0.5, 0.5, 1.0],
    "reward": [0.0, 0.0, 1.0, 2.0, 2.0, 0.0],
    "features": [[0, 2], [1, 2]],
}


def altered(**changes):
    return FiniteMDP.from_triples(**{**TRIPLES, **changes})


def changed(name, index, value):
    column = list(TRIPLES[name])
    column[index] = value
    return altered(**{name: column})


def explored():
    table = np.array(TWO_STATES["transition"])
    reward = np.array(TWO_STATES["reward"])
    return FiniteMDP.explore(
        "a",
        lambda s, a: [(table["ab".index(s), a, k], "ab"[k], reward["ab".index(s), a]) for k in range(2)],
        lambda s: [0, 2] if s == "a" else [1, 2],
        num_actions=2,
    )


def test_dense_arrays_triples_and_exploration_give_the_same_tables():
    dense = FiniteMDP.from_dense(**TWO_STATES)
    for other in (altered(), explored()):
        assert dense.fingerprint == other.fingerprint
        for s in range(2):
            assert dense.features(s) == other.features(s)
            for a in range(2):
                assert dense.outcomes(s, a) == other.outcomes(s, a)
    assert dense.outcomes(0, 0) == [(0.75, 1, 0.0), (0.25, 0, 0.0)]
    assert dense.outcomes(1, 0) == [(0.5, 0, 2.0), (0.5, 1, 2.0)]
    assert explored().labels == ("a", "b")


def test_different_tables_have_different_fingerprints():
    assert altered().fingerprint != changed("reward", 2, 1.5).fingerprint
    assert altered().fingerprint != altered(start=1).fingerprint
    assert altered().fingerprint != altered(feature_names=["x", "y", "z"]).fingerprint


def test_rewards_may_depend_on_the_next_state():
    reward = np.arange(8.0).reshape(2, 2, 2)
    mdp = FiniteMDP.from_dense(TWO_STATES["transition"], reward, TWO_STATES["features"])
    assert mdp.outcomes(1, 0) == [(0.5, 0, 4.0), (0.5, 1, 5.0)]


def test_equal_outcomes_are_merged_and_impossible_ones_dropped():
    mdp = FiniteMDP.from_triples(
        2,
        1,
        [0, 0, 0, 0, 1],
        [0] * 5,
        [1, 0, 1, 1, 0],
        [0.25, 0.5, 0.25, 0.0, 1],
        [1, 0, 1, 7, 0],
        [[0], [1]],
    )
    assert mdp.outcomes(0, 0) == [(0.5, 1, 1.0), (0.5, 0, 0.0)]


def test_outcomes_with_the_same_successor_and_different_rewards_stay_apart():
    mdp = FiniteMDP.from_triples(1, 1, [0, 0], [0, 0], [0, 0], [0.4, 0.6], [1.0, -1.0], [[0]])
    assert mdp.outcomes(0, 0) == [(0.6, 0, -1.0), (0.4, 0, 1.0)]


@given(st.integers(0, 2**32), st.integers(1, 12))
def test_every_row_is_sorted_by_falling_probability_with_rising_thresholds(seed, branching):
    mdp = garnet(12, 2, branching, seed=seed)
    for row in range(24):
        span = slice(mdp.outcome_start[row], mdp.outcome_start[row + 1])
        assert (np.diff(mdp.probability[span]) <= 0).all()
        assert (np.diff(mdp.threshold[span].astype(np.int64)) >= 0).all()
        assert mdp.threshold[span][-1] == 2**32 - 1


@given(st.lists(st.floats(1e-12, 1.0), min_size=1, max_size=40))
def test_quantising_moves_no_probability_by_more_than_three_halves_of_2_to_the_minus_32(weights):
    chances = np.sort(np.array(weights))[::-1] / sum(weights)
    bounds = thresholds(np.array([0, chances.size]), chances).astype(np.float64)
    bounds[-1] = 2.0**32  # the last outcome is taken without comparison
    sampled = np.diff(np.concatenate([[0.0], bounds])) / 2.0**32
    # Half a unit for rounding either bound, and one more where the upper bound would not fit 32 bits.
    assert np.abs(sampled - chances).max() <= 1.5 * 2.0**-32 * (1 + 1e-6)
    assert sampled.sum() == 1.0


def test_a_terminal_state_goes_back_to_the_start_distribution():
    mdp = FiniteMDP.explore(
        {"left": 0.25, "right": 0.75},
        lambda s, a: [(1.0, "end", 1.0 if (s == "left") == (a == 0) else -1.0)],
        lambda s: [["left", "right", "end"].index(s)],
        num_actions=2,
        terminal=lambda s: s == "end",
    )
    assert mdp.terminal is not None
    assert mdp.terminal.tolist() == [False, False, True]
    for action in range(2):
        assert mdp.outcomes(2, action) == [(0.75, 1, 0.0), (0.25, 0, 0.0)]


def test_exploration_finds_the_reachable_states_and_keeps_their_labels():
    mdp = FiniteMDP.explore(
        (0, 0),
        lambda s, a: [(1.0, ((s[0] + 1 + a) % 3, s[1]), 0.0)],
        lambda s: ["even" if s[0] % 2 == 0 else "odd"],
        num_actions=2,
        feature_names=["even", "odd"],
    )
    assert mdp.labels == ((0, 0), (1, 0), (2, 0))
    assert [mdp.features(s) for s in range(3)] == [(0,), (1,), (0,)]


def test_exploration_stops_at_the_largest_number_of_states():
    with pytest.raises(ValueError, match="max_states=10"):
        FiniteMDP.explore(0, lambda s, a: [(1.0, s + 1, 0.0)], lambda s: [0], num_actions=1, max_states=10)


def test_tables_cannot_be_written_to():
    with pytest.raises(ValueError, match="read-only"):
        altered().reward[0] = 3.0


@pytest.mark.parametrize(
    "build,message",
    [
        (lambda: changed("probability", 0, 0.2), r"state 0, action 0: probabilities sum to 0.95, not 1"),
        (lambda: changed("probability", 5, 0.0), r"state 1, action 1: probabilities sum to 0, .* outcomes"),
        (lambda: changed("probability", 3, -0.5), r"state 1, action 0: probability -0.5 is not in \[0, 1\]"),
        (lambda: changed("probability", 3, float("nan")), r"state 1, action 0: probability nan"),
        (lambda: changed("reward", 2, float("inf")), r"state 0, action 1: reward inf is not finite"),
        (lambda: changed("next_state", 4, 2), r"state 1, action 0: next_state 2 is out of range; use 0 to 1"),
        (lambda: changed("next_state", 4, 0.5), r"next_state must hold whole numbers, got .*0.5"),
        (lambda: changed("action", 4, 2), r"action 2 is out of range; use 0 to 1"),
        (lambda: changed("state", 4, -1), r"state -1 is out of range; use 0 to 1"),
        (lambda: altered(reward=[0.0]), r"same length"),
        (lambda: altered(features=[[0], [3]], num_features=3), r"state 1: feature 3 is unknown; use 0 to 2"),
        (lambda: altered(features=[[0], [0.5]], num_features=3), r"state 1: feature 0.5 is unknown"),
        (
            lambda: altered(features=[[0], ["x"]], feature_names=["a", "b"]),
            r"state 1: feature 'x' is unknown",
        ),
        (lambda: altered(features=[["x"], ["y"]]), r"give feature_names"),
        (lambda: altered(features=[[0]]), r"features of 1 states, not 2"),
        (lambda: altered(features=[[], []]), r"no features"),
        (lambda: altered(feature_names=["a", "a", "b"]), r"'a' is used twice"),
        (lambda: altered(feature_names=["a"], num_features=3), r"1 feature_names for 3 features"),
        (lambda: altered(start=2), r"start state 2 is out of range; use 0 to 1"),
        (lambda: altered(start=[0.5, 0.4]), r"sum to 0.9"),
        (lambda: altered(start=[1.0]), r"2 probabilities"),
        (lambda: altered(terminal=[0, 1]), r"2 booleans"),
        (lambda: altered(terminal=[False, True]), r"state 1, action 0: a terminal state .* no outcomes"),
        (lambda: altered(labels=["a"]), r"1 labels for 2 states"),
        (lambda: altered(num_states=0), r"num_states=0 is too few"),
        (lambda: altered(num_actions=0), r"num_actions=0 is too few"),
        (lambda: FiniteMDP.from_dense([[1.0]], [[0.0]], [[1]]), r"\[states, actions, states\]"),
        (lambda: FiniteMDP.from_dense([[[1.0]]], [[[0.0, 1.0]]], [[1]]), r"reward must have shape"),
        (lambda: FiniteMDP.from_dense([[[1.0]]], [[0.0]], [[2]]), r"binary"),
        (lambda: FiniteMDP.from_dense([[[1.0]]], [[0.0]], [1]), r"features must have shape"),
        (lambda: FiniteMDP.from_dense([[[np.nan]]], [[0.0]], [[1]]), r"state 0, action 0: probability nan"),
        (lambda: FiniteMDP.explore({}, None, None, num_actions=1), r"initial is empty"),
    ],
)
def test_bad_input_is_refused_with_its_place_and_a_remedy(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_an_error_in_an_explored_mdp_names_the_label():
    with pytest.raises(ValueError, match=r"state 0 'home', action 0: probabilities sum to 0.5"):
        FiniteMDP.explore("home", lambda s, a: [(0.5, s, 0.0)], lambda s: [0], num_actions=1)


def test_ergodicity_is_asked_for_by_name():
    assert river_swim().require_ergodic().is_ergodic()
    trap = FiniteMDP.from_triples(2, 1, [0, 1], [0, 0], [1, 1], [1, 1], [0, 0], [[0], [1]])
    assert not trap.is_ergodic()
    with pytest.raises(ValueError, match="state 0 and state 1 cannot both be reached"):
        trap.require_ergodic()


@pytest.mark.parametrize("state,action", [(2, 0), (0, 2), (-1, 0)])
def test_asking_for_outcomes_outside_the_tables_is_refused(state, action):
    with pytest.raises(ValueError, match="out of range"):
        altered().outcomes(state, action)
