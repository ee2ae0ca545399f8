"""The dm_env adapter, under dm_env's own tests."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("dm_env")

from absl.testing import absltest
from dm_env import test_utils

from nibbler.envs.catch import catch_board, episodic_catch_board
from nibbler.envs.dm_env_adapter import DmEnvironment
from nibbler.envs.gymnasium_env import GymnasiumEnv
from nibbler.envs.multi_catch import multi_catch
from nibbler.mdp.environment import Environment


class TestMultiCatch(test_utils.EnvironmentTestMixin, absltest.TestCase):
    """A continuing environment under dm_env's contract."""

    def make_object_under_test(self) -> DmEnvironment:
        return DmEnvironment(multi_catch(3))


class TestEpisodicCatch(test_utils.EnvironmentTestMixin, absltest.TestCase):
    """Episodes, with actions that play to the end of several."""

    def make_object_under_test(self) -> DmEnvironment:
        return DmEnvironment(Environment([episodic_catch_board(rows=4)]))

    def make_action_sequence(self) -> Iterator[int]:
        yield from (step % 3 for step in range(20))


class TestIndependentActions(test_utils.EnvironmentTestMixin, absltest.TestCase):
    """An action for each component."""

    def make_object_under_test(self) -> DmEnvironment:
        boards = [catch_board(rows=3), catch_board(rows=4)]
        return DmEnvironment(Environment(boards, coupling="independent"))


def test_it_plays_the_trajectory_of_the_gymnasium_adapter() -> None:
    environment = Environment([episodic_catch_board(rows=5, paddle_noise=0.5)])
    ours, gym = DmEnvironment(environment, seed=12), GymnasiumEnv(environment)
    observation, _ = gym.reset(seed=12)
    assert np.array_equal(ours.reset().observation, observation)
    for step in range(40):
        timestep = ours.step(step % 3)
        if timestep.first():
            observation, _ = gym.reset()
        else:
            observation, reward, terminated, _, _ = gym.step(step % 3)
            assert (timestep.reward, timestep.last(), timestep.discount) == (
                reward,
                terminated,
                1.0 - terminated,
            )
        assert np.array_equal(timestep.observation, observation)
