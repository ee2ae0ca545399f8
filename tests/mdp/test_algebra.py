"""The constructions of section 2.2: gates, permutations and products keep their laws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.mdp.strategies import small_mdps

from nibbler.envs.catch import catch_board, continuing_catch_board, episodic_catch_board
from nibbler.mdp import exact
from nibbler.mdp.algebra import enumerate_joint, hot_gate, map_actions, permute_actions, product
from nibbler.mdp.classics import garnet, river_swim
from nibbler.mdp.environment import Environment
from nibbler.mdp.finite_mdp import FiniteMDP

PROBABILITY = st.floats(0.01, 1.0)


def is_hot(mdp):
    """Which states of a gated MDP are hot, by their last feature."""
    return np.array([mdp.num_features - 1 in mdp.features(s) for s in range(mdp.num_states)])


def hot_probability(mdp, state, action):
    hot = is_hot(mdp)
    return sum(p for p, successor, _ in mdp.outcomes(state, action) if hot[successor])


@given(small_mdps(), PROBABILITY, st.data())
def test_a_cold_state_becomes_hot_with_p_hot_wherever_entry_is_possible(mdp, p_hot, data):
    entry = data.draw(st.none() | st.sets(st.integers(0, mdp.num_states - 1), min_size=1).map(sorted))
    gated = hot_gate(mdp, p_hot, entry=entry)
    hot = is_hot(gated)
    entries = set(range(mdp.num_states) if entry is None else entry)
    for s in np.flatnonzero(~hot):
        original, _ = gated.labels[s]
        for a in range(gated.num_actions):
            chance = hot_probability(gated, s, a)
            assert chance == pytest.approx(p_hot if original in entries else 0.0)


@given(small_mdps(), PROBABILITY)
def test_rewards_are_paid_by_hot_states_alone_and_cool_them(mdp, p_hot):
    gated = hot_gate(mdp, p_hot)
    hot = is_hot(gated)
    for s in range(gated.num_states):
        original, was_hot = gated.labels[s]
        assert was_hot == hot[s]
        for a in range(gated.num_actions):
            for _, successor, reward in gated.outcomes(s, a):
                if reward != 0:
                    assert hot[s]
                    assert not hot[successor]
                elif hot[s]:
                    assert hot[successor]
            paid = sum(p * r for p, _, r in gated.outcomes(s, a))
            given_up = sum(p * r for p, _, r in mdp.outcomes(original, a))
            assert paid == pytest.approx(given_up if hot[s] else 0.0)


@given(small_mdps(), PROBABILITY)
def test_forgetting_the_hot_bit_gives_the_original_dynamics(mdp, p_hot):
    gated = hot_gate(mdp, p_hot)
    for s in range(gated.num_states):
        original, _ = gated.labels[s]
        assert gated.features(s)[: len(mdp.features(original))] == mdp.features(original)
        for a in range(mdp.num_actions):
            arrived = np.zeros(mdp.num_states)
            for p, successor, _ in gated.outcomes(s, a):
                arrived[gated.labels[successor][0]] += p
            expected = np.zeros(mdp.num_states)
            for p, successor, _ in mdp.outcomes(original, a):
                expected[successor] += p
            np.testing.assert_allclose(arrived, expected, atol=1e-12)


@given(small_mdps())
def test_a_gate_that_never_opens_leaves_the_dynamics_and_takes_every_reward(mdp):
    gated = hot_gate(mdp, 0.0)
    assert gated.num_states == mdp.num_states
    assert not is_hot(gated).any()
    assert exact.reward_rate(gated) == 0.0
    frequency = exact.feature_frequencies(gated)
    np.testing.assert_allclose(frequency[:-1], exact.feature_frequencies(mdp), atol=1e-9)
    assert frequency[-1] == 0.0


@given(small_mdps())
def test_a_gate_that_always_opens_is_cold_exactly_after_a_paid_reward(mdp):
    gated = hot_gate(mdp, 1.0)
    hot = is_hot(gated)
    for s in range(gated.num_states):
        for a in range(gated.num_actions):
            for _, successor, reward in gated.outcomes(s, a):
                assert hot[successor] == (reward == 0.0)


def test_a_gate_that_always_opens_costs_nothing_where_rewards_are_spaced():
    # After a reward the ball is in reset, from where no reward comes: there is always time to become hot.
    board = continuing_catch_board()
    assert exact.reward_rate(hot_gate(board, 1.0)) == pytest.approx(exact.reward_rate(board), abs=1e-12)


def test_a_board_gated_when_its_ball_enters_is_the_hot_catch_board_without_waiting():
    """hot_gate gives catch its hot bit: only the wait for the reward is then missing."""
    gated = hot_gate(
        continuing_catch_board(),
        0.25,
        entry=lambda before, _, after: before.ball.place == "reset" and after.ball.place == "grid",
    )
    board = catch_board(p_hot=0.25)

    def falling_and_hot(mdp):
        frequency = dict(zip(mdp.feature_names, exact.feature_frequencies(mdp), strict=True))
        entered = sum(frequency[f"cell 0,{col}"] for col in range(5))
        return exact.reward_rate(mdp) / entered

    # Rewards per ball that enters do not depend on how long the board shows plus or minus.
    assert falling_and_hot(gated) == pytest.approx(falling_and_hot(board), rel=1e-9)


@given(small_mdps(num_actions=3), st.permutations(range(3)))
def test_permuting_actions_and_back_gives_the_same_mdp(mdp, sigma):
    inverse = [sigma.index(a) for a in range(3)]
    assert permute_actions(permute_actions(mdp, sigma), inverse).fingerprint == mdp.fingerprint
    for s in range(mdp.num_states):
        for a in range(3):
            assert permute_actions(mdp, sigma).outcomes(s, a) == mdp.outcomes(s, sigma[a])


def test_actions_can_be_repeated_to_share_a_broadcast():
    river = map_actions(river_swim(), [0, 1, 1])
    assert river.num_actions == 3
    assert river.outcomes(2, 2) == river.outcomes(2, 1) == river_swim().outcomes(2, 1)
    assert product([river, catch_board()]).num_actions == 3


def test_actions_of_an_episodic_mdp_can_be_permuted():
    board = episodic_catch_board()
    mirrored = permute_actions(board, [2, 1, 0])
    assert np.array_equal(mirrored.terminal, board.terminal)
    assert mirrored.outcomes(0, 0) == board.outcomes(0, 2)


@given(st.lists(small_mdps(num_actions=2, max_states=3), min_size=1, max_size=3))
def test_the_exact_rate_of_a_product_is_the_sum_of_its_parts(components):
    parts = sum(exact.reward_rate(component) for component in components)
    env = product(components)
    assert exact.reward_rate(env) == pytest.approx(parts, abs=1e-9)
    joint = enumerate_joint(env)
    # A joint chain of periodic parts may fall apart; the sum is then not a long-run mean of one chain.
    assume(len(_closed_classes(joint)) == 1)
    assert exact.reward_rate(joint) == pytest.approx(parts, abs=1e-7)
    np.testing.assert_allclose(exact.feature_frequencies(joint), exact.feature_frequencies(env), atol=1e-7)


def _closed_classes(mdp):
    reach = np.linalg.matrix_power(np.eye(mdp.num_states) + exact.chain(mdp)[0].toarray(), mdp.num_states) > 0
    return {tuple(row) for s, row in enumerate(reach) if all(reach[t, s] for t in np.flatnonzero(row))}


@given(st.lists(small_mdps(max_states=3), min_size=1, max_size=2))
def test_a_product_with_its_own_actions_is_solved_part_by_part(components):
    env = product(components, coupling="independent")
    joint = enumerate_joint(env)
    values = exact.optimal_values(joint, 0.9).max(axis=1)
    parts = [exact.optimal_values(component, 0.9).max(axis=1) for component in components]
    for state, combined in enumerate(joint.labels):
        expected = sum(part[s] for part, s in zip(parts, combined, strict=True))
        assert values[state] == pytest.approx(expected, abs=1e-8)


def test_a_product_of_environments_keeps_their_permutations():
    left, right = Environment([river_swim()] * 2, seed=4), Environment([river_swim()], seed=9)
    joined = product([left, right, river_swim()])
    assert joined.num_components == 4
    expected = [*left.permutation, *(right.permutation + 12), *range(18, 24)]
    assert joined.permutation.tolist() == expected


@pytest.mark.parametrize(
    "build,message",
    [
        (lambda: hot_gate(river_swim(), 1.5), "p_hot=1.5 is not a probability"),
        (lambda: hot_gate(river_swim(), float("nan")), "p_hot=nan is not a probability"),
        (lambda: hot_gate(episodic_catch_board(), 0.5), "continuing"),
        (lambda: hot_gate(river_swim(), 0.5, entry=[6]), "entry must be states from 0 to 5"),
        (lambda: hot_gate(river_swim(), 0.5, entry=[True]), "6 booleans"),
        (lambda: hot_gate(river_swim(), 0.5, entry=lambda s, a, t: False), "would never open"),
        (lambda: hot_gate(hot_gate(river_swim(), 0.5), 0.5), "'hot' is used twice"),
        (lambda: permute_actions(river_swim(), [0, 0]), "not a permutation"),
        (lambda: permute_actions(river_swim(), [0]), "not a permutation"),
        (lambda: map_actions(river_swim(), [2]), "from 0 to 1"),
        (lambda: product([]), "at least one part"),
        (lambda: product([river_swim(), catch_board()]), "the same number"),
        (
            lambda: product([Environment([river_swim()] * 2, coupling="independent"), river_swim()]),
            "same coupling",
        ),
        (lambda: enumerate_joint(product([catch_board()] * 2)), "286225 states"),
        (lambda: enumerate_joint(Environment([episodic_catch_board()])), "episodic"),
    ],
)
def test_bad_input_is_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_a_garnet_gated_and_multiplied_reads_like_the_paper():
    env = Environment([hot_gate(garnet(6, 2, 2, seed=i), p_hot=0.25) for i in range(4)], seed=0)
    assert env.num_features == 4 * 7
    assert isinstance(env.components[0], FiniteMDP)
    assert abs(exact.reward_rate(env)) < 4.0
