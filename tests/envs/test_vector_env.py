"""The vector environment is its copies, one by one."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

import nibbler  # noqa: F401 (registers the environments)
from nibbler.envs.catch import catch_board, episodic_catch_board
from nibbler.envs.gymnasium_env import GymnasiumEnv
from nibbler.envs.multi_catch import multi_catch
from nibbler.envs.vector_env import NibblerVectorEnv
from nibbler.mdp.environment import Environment


@pytest.mark.parametrize(
    "environment",
    [
        multi_catch(3, seed=2),
        multi_catch(4, heterogeneous=True),
        Environment([episodic_catch_board(rows=5, paddle_noise=0.3)]),
        Environment([catch_board(rows=4), catch_board(rows=5)], coupling="independent"),
    ],
    ids=["homogeneous", "heterogeneous", "episodic", "independent"],
)
@pytest.mark.parametrize("seed", [7, [3, 1, 2**63 + 1, 4]])
def test_a_vector_equals_single_environments(environment: Environment, seed: Any) -> None:
    vector = NibblerVectorEnv(environment, 4)
    singles = SyncVectorEnv([lambda: GymnasiumEnv(environment)] * 4)
    assert vector.observation_space == singles.observation_space
    assert vector.action_space == singles.action_space
    assert vector.metadata["autoreset_mode"] == singles.metadata["autoreset_mode"]
    expected, _ = singles.reset(seed=seed)
    got, _ = vector.reset(seed=seed)
    assert np.array_equal(got, expected)
    vector.action_space.seed(0)
    for _ in range(120):
        actions = vector.action_space.sample()
        for one, other in zip(vector.step(actions)[:4], singles.step(actions)[:4], strict=True):
            assert np.array_equal(one, other)
            assert one.dtype == other.dtype


def test_make_vec_builds_the_compiled_vector() -> None:
    vector = gymnasium.make_vec("nibbler/MultiCatch-v0", num_envs=6, num_boards=2, seed=3)
    assert isinstance(vector.unwrapped, NibblerVectorEnv)
    assert np.array_equal(vector.unwrapped.environment.permutation, multi_catch(2, seed=3).permutation)
    observations, _ = vector.reset(seed=0)
    assert observations.shape == (6, 112)
    assert observations in vector.observation_space
    episodic = gymnasium.make_vec("nibbler/EpisodicCatch-v0", num_envs=2, rows=3)
    episodic.reset(seed=0)
    assert [episodic.step(np.ones(2, int))[2].tolist() for _ in range(6)] == 2 * [
        [False, False],
        [True, True],
        [False, False],
    ]


def test_cut_episodes_begin_anew_with_seeds_that_repeat() -> None:
    def ends_and_observations() -> tuple[list[Any], list[bytes]]:
        vector = NibblerVectorEnv(multi_catch(2), 3, max_episode_steps=5)
        vector.reset(seed=1)
        steps = [vector.step(np.full(3, t % 3)) for t in range(24)]
        return [step[3].tolist() for step in steps], [step[0].tobytes() for step in steps]

    ends, observations = ends_and_observations()
    assert ends == [[t % 6 == 4] * 3 for t in range(24)]  # five steps and one that begins the next episode
    begun = np.frombuffer(observations[5], dtype=np.int8).reshape(3, -1)
    start, _ = NibblerVectorEnv(multi_catch(2), 3).reset(seed=9)
    assert np.array_equal(
        begun, start
    )  # all boards start with the ball in reset and the paddle in the middle
    assert (ends, observations) == ends_and_observations()


def test_an_episode_that_ends_as_it_is_cut_goes_on_with_the_next() -> None:
    vector = NibblerVectorEnv(Environment([episodic_catch_board(rows=4)]), 2, max_episode_steps=3)
    vector.reset(seed=1)
    ends = [tuple(flags.tolist() for flags in vector.step(np.zeros(2, int))[2:4]) for _ in range(8)]
    no, yes = ([False, False],) * 2, ([True, True],) * 2
    assert ends == [no, no, yes, no] * 2


def test_unseeded_resets_differ_and_copies_differ() -> None:
    vector = NibblerVectorEnv(multi_catch(4), 2)

    def play() -> bytes:
        return b"".join(vector.step(np.zeros(2, int))[0].tobytes() for _ in range(60))

    vector.reset(seed=5)
    first = play()
    vector.reset()
    assert play() != first
    observations = vector.step(np.zeros(2, int))[0]
    assert not np.array_equal(observations[0], observations[1])


def test_every_copy_has_a_frame() -> None:
    vector = NibblerVectorEnv(multi_catch(2), 3, render_mode="rgb_array")
    vector.reset(seed=0)
    frames = vector.render()
    assert frames is not None
    assert [frame.shape for frame in frames] == [frames[0].shape] * 3
    assert NibblerVectorEnv(multi_catch(2), 3).render() is None


def test_bad_vectors_and_actions_are_refused() -> None:
    with pytest.raises(ValueError, match="num_envs=0 is no vector"):
        NibblerVectorEnv(multi_catch(2), 0)
    with pytest.raises(ValueError, match="max_episode_steps=0 is too short"):
        NibblerVectorEnv(multi_catch(2), 1, max_episode_steps=0)
    vector = NibblerVectorEnv(multi_catch(2), 2)
    with pytest.raises(ValueError, match="got 3 seeds for 2 copies"):
        vector.reset(seed=[1, 2, 3])
    vector.reset(seed=0)
    for actions in ([0, 3], [0, -1], [0], [0.5, 1.0], 1):
        with pytest.raises(ValueError, match="actions must be whole numbers"):
            vector.step(np.array(actions))
