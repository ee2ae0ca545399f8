"""Simulation: kernels equal their NumPy twins bit for bit, and sampling follows the tables."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.mdp.strategies import small_mdps

from nibbler.envs.multi_catch import multi_catch
from nibbler.mdp import exact, philox, simulate
from nibbler.mdp.algebra import permute_actions
from nibbler.mdp.classics import garnet
from nibbler.mdp.environment import Environment
from nibbler.mdp.finite_mdp import FiniteMDP

SEED = st.integers(0, 2**63 - 1)


def buffers(env):
    return np.zeros(env.num_components, dtype=np.int32), np.zeros(env.max_active, dtype=np.int32)


def rollout(env, actions, seed, first_step=0):
    """The rewards and active bits of a sequence of actions, by the kernel."""
    states, active = buffers(env)
    simulate.start(env.tables, states, seed)
    rewards, bits = [], []
    for step, action in enumerate(actions, start=first_step):
        reward, count = simulate.step_environment(env.tables, states, action, seed, step, active)
        rewards.append(reward)
        bits.append(active[:count].tolist())
    return rewards, bits


def check_twins(env, actions, seed, first_step):
    states, active = buffers(env)
    simulate.start(env.tables, states, seed)
    twin = simulate.start_reference(env.tables, seed)
    assert states.tolist() == twin.tolist()
    count = simulate.observe(env.tables, states, active)
    assert active[:count].tolist() == simulate.observe_reference(env.tables, twin).tolist()
    kernel = simulate.step_environment if env.coupling == "broadcast" else simulate.step_independent
    for step, action in enumerate(actions, start=first_step):
        reward, count = kernel(env.tables, states, action, seed, step, active)
        twin, twin_reward, twin_active = simulate.step_reference(env.tables, twin, action, seed, step)
        assert states.tolist() == twin.tolist()
        assert reward == twin_reward
        assert active[:count].tolist() == twin_active.tolist()


@given(st.lists(small_mdps(num_actions=3), min_size=1, max_size=9), SEED, st.integers(0, 2**40), st.data())
def test_the_kernel_equals_its_numpy_twin_bit_for_bit(components, seed, first_step, data):
    actions = data.draw(st.lists(st.integers(0, 2), min_size=1, max_size=8))
    check_twins(Environment(components, seed=seed), actions, seed, first_step)


@given(st.lists(small_mdps(), min_size=1, max_size=6), SEED, st.integers(0, 2**40), st.data())
def test_the_kernel_for_independent_actions_equals_its_numpy_twin(components, seed, first_step, data):
    env = Environment(components, seed=seed, coupling="independent")
    joint_action = st.tuples(*(st.integers(0, count - 1) for count in env.action_counts))
    actions = data.draw(st.lists(joint_action, min_size=1, max_size=8))
    check_twins(env, [np.array(action) for action in actions], seed, first_step)


@pytest.mark.parametrize("heterogeneous", [False, True])
def test_multi_catch_is_stepped_alike_by_kernel_and_twin(heterogeneous):
    env = multi_catch(13, seed=2, heterogeneous=heterogeneous)
    check_twins(env, [(step * 7) % 3 for step in range(300)], np.uint64(2**64 - 5), 2**32 - 100)


@given(st.lists(small_mdps(num_actions=2), min_size=1, max_size=5), SEED)
def test_independent_boards_given_the_same_action_move_as_under_a_broadcast(components, seed):
    together = Environment(components, permute=False)
    alone = Environment(components, permute=False, coupling="independent")
    states, active = buffers(together)
    others, other_active = buffers(alone)
    for step in range(10):
        action = step % 2
        every = np.full(len(components), action)
        first = simulate.step_environment(together.tables, states, action, seed, step, active)
        second = simulate.step_independent(alone.tables, others, every, seed, step, other_active)
        assert first == second
        assert states.tolist() == others.tolist()


@given(st.lists(small_mdps(num_actions=3), min_size=1, max_size=5), SEED, SEED)
def test_permuting_observations_leaves_the_reward_sequence_unchanged(components, seed, other_seed):
    actions = [int(a) for a in philox.words(seed, philox.ACTION, 20) % 3]
    plain = Environment(components, permute=False)
    shuffled = Environment(components, seed=other_seed)
    rewards, bits = rollout(plain, actions, seed)
    other_rewards, other_bits = rollout(shuffled, actions, seed)
    assert rewards == other_rewards
    assert [[shuffled.permutation[bit] for bit in step] for step in bits] == other_bits


@given(st.lists(small_mdps(num_actions=3), min_size=1, max_size=5), st.permutations(range(3)), SEED)
def test_permuting_actions_consistently_leaves_the_reward_sequence_unchanged(components, sigma, seed):
    actions = [int(a) for a in philox.words(seed, philox.ACTION, 20) % 3]
    renamed = Environment([permute_actions(component, sigma) for component in components], permute=False)
    translated = [sigma.index(action) for action in actions]
    assert rollout(Environment(components, permute=False), actions, seed) == rollout(
        renamed, translated, seed
    )


def test_the_compiled_random_loop_is_the_step_kernel_with_the_stated_actions():
    env = multi_catch(6, seed=1)
    states, active = buffers(env)
    simulate.start(env.tables, states, 11)
    counts = np.zeros(env.num_features, dtype=np.int64)
    split = states.copy()
    total = simulate.simulate_random_counts(env.tables, states, 11, 5, 400, active, counts)
    actions = [
        (int(philox.draw_array(11, philox.ACTION, step, [0])[0, 1]) * 3) >> 32 for step in range(5, 405)
    ]
    rewards, bits = rollout(env, actions, 11, first_step=5)
    assert total == sum(rewards)
    assert counts.tolist() == np.bincount(np.concatenate(bits), minlength=env.num_features).tolist()
    # Stopping and going on is the same as never stopping.
    parts = simulate.simulate_random(env.tables, split, 11, 5, 150, active)
    parts += simulate.simulate_random(env.tables, split, 11, 155, 250, active)
    assert parts == total
    assert split.tolist() == states.tolist()


def test_a_random_word_selects_the_outcome_that_its_thresholds_say():
    mdp = FiniteMDP.from_triples(
        3, 1, [0, 0, 0, 1, 2], [0] * 5, [0, 1, 2, 0, 0], [0.25, 0.25, 0.5, 1, 1], [0] * 5, [[0], [1], [2]]
    )
    threshold = mdp.threshold
    assert threshold[:3].tolist() == [2**31, 3 * 2**30, 2**32 - 1]
    for word, chosen in ((0, 0), (2**31 - 1, 0), (2**31, 1), (3 * 2**30, 2), (2**32 - 1, 2)):
        sampled = simulate._sample(threshold, np.uint64(0), np.uint64(2), np.uint32(word))
        assert sampled == chosen


def test_sampled_transitions_have_the_probabilities_of_the_table():
    mdp = garnet(4, 1, 4, seed=9)
    env = Environment([mdp])
    states, active = buffers(env)
    visits = np.zeros((4, 4))
    previous = int(states[0])
    for step in range(40_000):
        simulate.step_environment(env.tables, states, 0, 3, step, active)
        visits[previous, states[0]] += 1
        previous = int(states[0])
    for s in range(4):
        trials = visits[s].sum()
        for p, successor, _ in mdp.outcomes(s, 0):
            error = visits[s, successor] - trials * p
            assert abs(error) < 4.5 * (trials * p * (1 - p)) ** 0.5 + 1e-9


def test_each_component_starts_from_its_own_distribution():
    def starting(place):
        return FiniteMDP.from_dense(
            np.ones((5, 1, 5)) / 5, np.zeros((5, 1)), np.eye(5, dtype=int), start=place
        )

    env = Environment([starting(3), starting(0), starting(4), starting(3), starting(1)])
    states, _ = buffers(env)
    simulate.start(env.tables, states, 0)
    assert states.tolist() == simulate.start_reference(env.tables, 0).tolist() == [3, 0, 4, 3, 1]


def test_start_states_follow_the_start_distribution():
    mdp = FiniteMDP.from_dense(
        np.full((3, 1, 3), 1 / 3), np.zeros((3, 1)), np.eye(3, dtype=int), start=[0.2, 0.5, 0.3]
    )
    states = simulate.start_reference(Environment([mdp] * 20_000).tables, 8)
    share = np.bincount(states, minlength=3) / states.size
    assert np.abs(share - [0.2, 0.5, 0.3]).max() < 4 * (0.25 / states.size) ** 0.5


@pytest.mark.parametrize("heterogeneous", [False, True])
def test_simulated_rates_and_frequencies_agree_with_the_exact_ones(heterogeneous):
    env = multi_catch(16, seed=5, heterogeneous=heterogeneous)
    states, active = buffers(env)
    simulate.start(env.tables, states, 17)
    batches, length = 200, 10_000
    totals = np.empty(batches)
    counts = np.zeros((batches, env.num_features), dtype=np.int64)
    for batch in range(batches):
        totals[batch] = simulate.simulate_random_counts(
            env.tables, states, 17, batch * length, length, active, counts[batch]
        )
    # Batch means are nearly independent: boards forget within some hundred steps.
    rates = totals / length
    error = rates.std(ddof=1) / batches**0.5
    assert abs(rates.mean() - exact.reward_rate(env)) < 4 * error
    frequency = counts / length
    errors = frequency.std(axis=0, ddof=1) / batches**0.5
    off = np.abs(frequency.mean(axis=0) - exact.feature_frequencies(env)) / errors
    # Four standard errors for one feature; among hundreds of features, one may stray a little further.
    assert np.mean(off < 4) > 0.99
    assert off.max() < 5


def test_epsilon_one_always_explores_and_zero_never():
    assert simulate.epsilon_threshold(1.0) == 2**32
    assert simulate.epsilon_threshold(0.0) == 0
    assert simulate.epsilon_threshold(0.1) == round(0.1 * 2**32)
