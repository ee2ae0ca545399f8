"""The Gymnasium adapter: Gymnasium's and Stable-Baselines3's own checks, seeds, episodes, errors."""

from __future__ import annotations

import subprocess
import sys
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import nibbler  # noqa: F401 (registers the environments)
from nibbler.envs.catch import catch_board, continuing_catch_board, episodic_catch_board
from nibbler.envs.gymnasium_env import GymnasiumEnv
from nibbler.envs.multi_catch import multi_catch
from nibbler.envs.registration import register
from nibbler.mdp.environment import Environment
from nibbler.mdp.simulate import observe_reference, start_reference, step_reference

ENVIRONMENTS = {
    "multi-catch": lambda: multi_catch(3),
    "episodic": lambda: Environment([episodic_catch_board()]),
    "mixed": lambda: Environment([catch_board(rows=4), continuing_catch_board()], seed=9),
    "independent": lambda: Environment([catch_board(rows=4), catch_board(rows=5)], coupling="independent"),
}


@pytest.fixture(params=ENVIRONMENTS)
def environment(request: pytest.FixtureRequest) -> Environment:
    return ENVIRONMENTS[request.param]()


def test_gymnasiums_checker_has_nothing_to_say(environment: Environment) -> None:
    for render_mode in (None, "ansi", "rgb_array"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            # Not made by `make`, so the checker cannot make it again to try all render modes.
            check_env(GymnasiumEnv(environment, render_mode), skip_render_check=True)


@pytest.mark.parametrize("name", ["nibbler/MultiCatch-v0", "nibbler/EpisodicCatch-v0"])
def test_registered_environments_pass_the_checker_with_every_render_mode(name: str) -> None:
    check_env(gymnasium.make(name, render_mode="rgb_array").unwrapped)


def test_make_builds_the_environment_that_multi_catch_builds() -> None:
    made = gymnasium.make("nibbler/MultiCatch-v0", num_boards=5, seed=4, heterogeneous=True).unwrapped
    expected = multi_catch(5, seed=4, heterogeneous=True)
    assert np.array_equal(made.environment.permutation, expected.permutation)
    assert [b.fingerprint for b in made.environment.components] == [
        b.fingerprint for b in expected.components
    ]
    assert made.observation_space == gymnasium.spaces.MultiBinary(expected.num_features)
    assert made.action_space == gymnasium.spaces.Discrete(3)


def test_importing_the_package_is_enough_to_make_its_environments() -> None:
    script = (
        "import nibbler, gymnasium; print(gymnasium.make('nibbler/MultiCatch-v0', num_boards=2).action_space)"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "Discrete(3)"


def test_gymnasium_imports_the_package_when_the_name_says_so() -> None:
    script = "import gymnasium; print(gymnasium.make('nibbler:nibbler/EpisodicCatch-v0').observation_space)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "MultiBinary(50)"


def test_registering_again_changes_nothing() -> None:
    before = gymnasium.spec("nibbler/MultiCatch-v0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        register()
    assert gymnasium.spec("nibbler/MultiCatch-v0") is before


def test_a_seed_gives_the_trajectory_of_the_reference_simulator(environment: Environment) -> None:
    env = GymnasiumEnv(environment)
    seed = 2**64 - 5
    observation, _ = env.reset(seed=seed)
    states = start_reference(environment.tables, seed)
    assert np.array_equal(np.flatnonzero(observation), np.sort(observe_reference(environment.tables, states)))
    env.action_space.seed(1)
    for step in range(60):
        if environment.episodic and environment.components[0].terminal[states[0]]:
            action: Any = 0
            observation, _ = env.reset()
            reward = 0.0
        else:
            action = env.action_space.sample()
            observation, reward, *_ = env.step(action)
        states, expected, active = step_reference(environment.tables, states, action, seed, step)
        assert np.array_equal(np.flatnonzero(observation), np.sort(active))
        assert reward == expected


def play(env: GymnasiumEnv, steps: int) -> list[bytes]:
    return [env.step(step % 3)[0].tobytes() for step in range(steps)]


def test_equal_seeds_repeat_and_missing_seeds_do_not() -> None:
    env = GymnasiumEnv(multi_catch(4))
    env.reset(seed=3)
    first = play(env, 80)
    env.reset()
    second = play(env, 80)
    env.reset(seed=3)
    assert play(env, 80) == first
    assert second != first
    env.reset()  # a seed also decides the unseeded trajectories after it
    assert play(env, 80) == second
    env.reset()
    assert play(env, 80) not in (first, second)


def test_only_episodic_boards_terminate_and_nothing_truncates() -> None:
    episodic = GymnasiumEnv(Environment([episodic_catch_board(rows=4)]))
    for _ in range(5):
        episodic.reset()
        ends = [episodic.step(1)[2:4] for _ in range(3)]
        assert ends == [(False, False), (False, False), (True, False)]
    continuing = GymnasiumEnv(multi_catch(1))
    continuing.reset(seed=0)
    assert not any(any(continuing.step(1)[2:4]) for _ in range(500))


def test_rewards_of_the_boards_are_summed() -> None:
    env = GymnasiumEnv(multi_catch(2, p_arrival=1.0, p_reward=1.0, rows=2))
    env.reset(seed=0)
    rewards = {env.step(1)[1] for _ in range(200)}
    assert rewards == {
        0.0,
        2.0,
        -2.0,
    }  # both boards run in step: reset, two rows, shown, rewarded; ties cancel


@pytest.mark.parametrize("action", [3, -1, 1.5, "left", None, [0, 1]])
def test_an_action_out_of_range_is_refused(action: Any) -> None:
    env = GymnasiumEnv(multi_catch(2))
    env.reset(seed=0)
    states = env.states.copy()
    with pytest.raises(ValueError, match=r"is not in Discrete\(3\)"):
        env.step(action)
    assert np.array_equal(env.states, states)


@pytest.mark.parametrize("action", [1, [0, 3], [0], [0.5, 1.0], [-1, 0]])
def test_an_action_that_does_not_fit_the_components_is_refused(action: Any) -> None:
    env = GymnasiumEnv(Environment([catch_board(rows=4), catch_board(rows=5)], coupling="independent"))
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"is not in MultiDiscrete\(\[3 3\]\)"):
        env.step(action)


def test_bad_seeds_and_render_modes_are_refused() -> None:
    env = GymnasiumEnv(multi_catch(2))
    with pytest.raises(ValueError, match="out of range"):
        env.reset(seed=2**64)
    with pytest.raises(ValueError, match="render_mode='human' is unknown"):
        GymnasiumEnv(multi_catch(2), "human")


def test_stable_baselines3_accepts_it_and_learns_on_it() -> None:
    pytest.importorskip("stable_baselines3")
    from stable_baselines3 import DQN
    from stable_baselines3.common.env_checker import check_env as sb3_check_env

    env = gymnasium.make("nibbler/MultiCatch-v0", num_boards=2, max_episode_steps=100)
    sb3_check_env(env.unwrapped, warn=True)
    agent = DQN("MlpPolicy", env, learning_starts=50, train_freq=4, buffer_size=500, seed=0, device="cpu")
    before = [p.detach().clone() for p in agent.q_net.parameters()]
    agent.learn(400)
    assert agent.num_timesteps == 400
    assert any((p != q).any() for p, q in zip(agent.q_net.parameters(), before, strict=True))
