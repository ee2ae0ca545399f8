import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nibbler.engines.jax import GymnaxEnvironment
from nibbler.envs.catch import episodic_catch_board
from nibbler.envs.multi_catch import multi_catch
from nibbler.mdp.environment import Environment


def test_a_gymnax_loop_runs_under_jit_vmap_and_scan():
    env = GymnaxEnvironment(multi_catch(2, seed=0))
    params = env.default_params

    def episode(key):
        key, first = jax.random.split(key)
        observation, state = env.reset(first, params)

        def one(carry, key):
            observation, state = carry
            action_key, step_key = jax.random.split(key)
            action = env.action_space(params).sample(action_key)
            observation, state, reward, terminated, truncated, info = env.step(
                step_key, state, action, params
            )
            return (observation, state), (observation, reward, terminated | truncated, info["discount"])

        return jax.lax.scan(one, (observation, state), jax.random.split(key, 50))[1]

    observations, rewards, done, discounts = jax.jit(jax.vmap(episode))(
        jax.random.split(jax.random.key(0), 8)
    )
    assert observations.shape == (8, 50, 112)
    assert rewards.shape == (8, 50)
    assert not done.any()
    assert (discounts == 1).all()
    assert env.observation_space(params).contains(observations[0, 0])


def test_time_limit_truncates_and_resets():
    env = GymnaxEnvironment(multi_catch(2, seed=0))
    params = env.default_params.replace(max_steps_in_episode=3)
    _, state = env.reset(jax.random.key(0), params)
    start = np.asarray(state.states)
    ends, times = [], []
    for step in range(7):
        observation, state, _, terminated, truncated, info = env.step(jax.random.key(step), state, 1, params)
        ends.append(bool(truncated))
        times.append(int(state.time))
        assert not terminated
        if truncated:
            np.testing.assert_array_equal(state.states, start)  # multi-catch has one start state
            np.testing.assert_array_equal(observation, env.get_obs(state))
            assert (np.asarray(info["final_observation"]) != np.asarray(observation)).any()
    assert ends == [False, False, True, False, False, True, False]
    assert times == [1, 2, 0, 1, 2, 0, 1]


def test_an_episodic_board_terminates_with_discount_zero():
    env = GymnaxEnvironment(Environment([episodic_catch_board()], permute=False))
    params = env.default_params
    _, state = env.reset(jax.random.key(0))
    lengths, since = [], 0
    for step in range(40):
        _, state, reward, terminated, truncated, info = env.step(jax.random.key(step), state, 1, params)
        since += 1
        assert not truncated
        assert float(info["discount"]) == (0.0 if terminated else 1.0)
        if terminated:
            assert abs(float(reward)) == 1.0
            assert int(state.time) == 0
            lengths.append(since)
            since = 0
    assert set(lengths) == {9}  # a ball falls from row 0 to row 9


def test_each_board_has_an_action_of_its_own_where_the_environment_says_so():
    components = multi_catch(2, seed=0).components
    env = GymnaxEnvironment(Environment(components, coupling="independent"))
    actions = env.action_space().sample(jax.random.key(0))
    assert len(actions) == 2
    assert env.action_space().contains(actions)
    _, state = env.reset(jax.random.key(1))
    assert env.state_space().contains(state)
    _, state, *_ = env.step(jax.random.key(2), state, actions)
    assert env.state_space().contains(state)
    assert not env.state_space().contains(state.replace(states=state.states + 10_000))


def test_spaces_sample_within_their_bounds():
    env = GymnaxEnvironment(multi_catch(1, seed=0))
    for space in (env.action_space(), env.observation_space()):
        for key in jax.random.split(jax.random.key(0), 5):
            sample = space.sample(key)
            assert space.contains(sample)
            assert sample.shape == space.shape
    assert env.action_space().n == env.num_actions == 3
    assert not env.action_space().contains(3)
    assert not env.observation_space().contains(jnp.full(56, 2))


def test_gymnax_is_not_imported():
    code = "import sys; from nibbler.engines.jax import GymnaxEnvironment; assert 'gymnax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_gymnax_itself_accepts_the_adapter():
    pytest.importorskip("gymnax", reason="gymnax is not installed; `make test-oracles` has it")
    from gymnax.environments import environment
    from gymnax.experimental.rollout import RolloutWrapper
    from gymnax.wrappers.gym import GymnaxToGymWrapper
    from gymnax.wrappers.purerl import FlattenObservationWrapper, LogWrapper

    env = GymnaxEnvironment(multi_catch(2, seed=0))
    gradients = {name for name in dir(environment.Environment) if "transition_gradients" in name}
    names = {name for name in dir(environment.Environment) if not name.startswith("_")} - gradients
    assert not [name for name in names if not hasattr(env, name)]
    rollout = RolloutWrapper(env=env, num_env_steps=20, env_params={"max_steps_in_episode": 10})
    *_, done, _ = rollout.batch_rollout(jax.random.split(jax.random.key(0), 3), None)
    np.testing.assert_array_equal(np.flatnonzero(done[0]), [9, 19])
    wrapped = LogWrapper(FlattenObservationWrapper(env))
    _, state = wrapped.reset(jax.random.key(0))
    assert len(wrapped.step(jax.random.key(1), state, 1)) == 6
    gym_env = GymnaxToGymWrapper(env)
    assert gym_env.observation_space.shape == gym_env.reset(seed=0)[0].shape == (112,)
