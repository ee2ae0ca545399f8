import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nibbler.engines.jax import FunctionalEnvironment
from nibbler.engines.jax import environment as functional
from nibbler.engines.jax.philox import split_seed
from nibbler.envs.catch import catch_board
from nibbler.envs.multi_catch import multi_catch
from nibbler.mdp import simulate
from nibbler.mdp.classics import garnet
from nibbler.mdp.environment import Environment
from nibbler.mdp.exact import feature_frequencies, reward_rate

ENVIRONMENTS = {
    "multi-catch": lambda: multi_catch(5, seed=2),
    "heterogeneous": lambda: multi_catch(3, seed=1, heterogeneous=True),
    "garnets": lambda: Environment([garnet(12, 3, 4, seed=s) for s in range(3)], seed=3),
}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_trajectory_is_bit_identical_with_the_compiled_simulator(name):
    env = ENVIRONMENTS[name]()
    seed, steps = 2**33 + 5, 400
    actions = np.random.default_rng(0).integers(0, env.num_actions, steps)

    states = np.empty(env.num_components, dtype=np.int32)
    active = np.empty(env.max_active, dtype=np.int32)
    simulate.start(env.tables, states, seed)
    expected = [states.copy()]
    bits, rewards = [], []
    for step, action in enumerate(actions):
        reward, count = simulate.step_environment(env.tables, states, action, seed, step, active)
        expected.append(states.copy())
        rewards.append(reward)
        bits.append(np.isin(np.arange(env.num_features), active[:count]))

    tables, sizes = functional.load_tables(env)
    words = jnp.asarray(split_seed(seed))

    def one(states, inputs):
        step, action = inputs
        draws = functional.transition_words(words, sizes, step)
        states, reward = functional.step_environment(tables, sizes, states, action, draws)
        seen = functional.dense(functional.observe(tables, sizes, states), sizes.num_features)
        return states, (states, reward, seen)

    first = functional.start(tables, sizes, functional.start_words(words, sizes))
    inputs = (jnp.arange(steps, dtype=jnp.uint32), jnp.asarray(actions, jnp.int32))
    _, (later, found_rewards, seen) = jax.jit(lambda s: jax.lax.scan(one, s, inputs))(first)
    np.testing.assert_array_equal(np.vstack([first, later]), expected)
    np.testing.assert_array_equal(np.asarray(seen, dtype=bool), bits)
    np.testing.assert_allclose(found_rewards, rewards, atol=1e-6)  # float32 sums


def test_own_actions_per_board_follow_the_full_product():
    boards = [catch_board(rows=4, cols=3, p_hot=1.0), garnet(8, 2, 3, seed=1)]
    env = Environment(boards, seed=0, coupling="independent")
    tables, sizes = functional.load_tables(env)
    states = simulate.start_reference(env.tables, 7)
    for step in range(60):
        actions = np.array([step % 3, step % 2])
        draws = functional.transition_words(jnp.asarray(split_seed(7)), sizes, jnp.uint32(step))
        found, reward = functional.step_environment(
            tables, sizes, jnp.asarray(states), jnp.asarray(actions, jnp.int32), draws
        )
        states, expected_reward, _ = simulate.step_reference(env.tables, states, actions, 7, step)
        np.testing.assert_array_equal(np.asarray(found), states)
        assert float(reward) == pytest.approx(expected_reward, rel=1e-6)


def test_long_run_agrees_with_exact_reward_rate_and_feature_frequencies():
    env = multi_catch(3, seed=0)
    functions = FunctionalEnvironment(env)
    copies, warm_up, steps = 256, 200, 400

    def one(carry, key):
        states, counts, total = carry
        keys = jax.random.split(key, (2, copies))
        actions = jax.vmap(lambda k: jax.random.randint(k, (), 0, 3))(keys[0])
        states, seen, rewards = jax.vmap(functions.step)(keys[1], states, actions)
        return (states, counts + seen.sum(axis=0, dtype=jnp.float32), total + rewards.sum()), None

    keys = jax.random.split(jax.random.key(1), warm_up + steps)
    states = jax.vmap(functions.init)(jax.random.split(jax.random.key(2), copies))
    zero = (jnp.zeros(env.num_features), jnp.float32(0.0))
    (states, _, _), _ = jax.lax.scan(one, (states, *zero), keys[:warm_up])
    (_, counts, total), _ = jax.lax.scan(one, (states, *zero), keys[warm_up:])
    samples = copies * steps
    # Five standard errors; rewards are near 0.07 per step, with variance 0.1, correlated over some steps.
    assert float(total) / samples == pytest.approx(reward_rate(env), abs=5 * np.sqrt(0.4 / samples))
    frequencies = feature_frequencies(env)
    bound = 5 * np.sqrt(12 * frequencies * (1 - frequencies) / samples) + 1e-4
    assert (np.abs(np.asarray(counts) / samples - frequencies) < bound).all()


def test_same_key_gives_the_same_step_and_another_key_another():
    functions = FunctionalEnvironment(multi_catch(8, seed=0))
    state = functions.init(jax.random.key(0))
    first = functions.step(jax.random.key(1), state, 2)
    again = functions.step(jax.random.key(1), state, 2)
    jax.tree.map(np.testing.assert_array_equal, first, again)
    others = [functions.step(jax.random.key(k), state, 2)[0] for k in range(2, 12)]
    assert any((np.asarray(other) != np.asarray(first[0])).any() for other in others)


def test_observation_is_a_binary_vector_of_the_reference_bits():
    env = multi_catch(4, seed=3)
    functions = FunctionalEnvironment(env)
    state = functions.init(jax.random.key(0))
    for step in range(30):
        state, seen, _ = functions.step(jax.random.key(step), state, step % 3)
        active = simulate.observe_reference(env.tables, np.asarray(state))
        assert seen.dtype == jnp.uint8
        np.testing.assert_array_equal(np.flatnonzero(seen), np.sort(active))
