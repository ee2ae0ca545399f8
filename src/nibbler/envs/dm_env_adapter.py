"""Any environment behind dm_env's interface; needs the extra `dm-env`."""

from __future__ import annotations

from typing import Any

import dm_env
import numpy as np
from dm_env import specs

from nibbler.envs.gymnasium_env import GymnasiumEnv
from nibbler.mdp.environment import Environment


class DmEnvironment(dm_env.Environment):
    """Puts any `Environment` behind dm_env's interface: episodes end with LAST, continuing ones have no end.

    The trajectory is that of `GymnasiumEnv` with the same seed. Later calls of `reset` begin the next episode
    or, in the middle of one, a trajectory with a seed that follows from the first.
    """

    def __init__(self, environment: Environment, seed: int = 0) -> None:
        self.environment = environment
        self._inner = GymnasiumEnv(environment)
        self._seed: int | None = seed
        self._begun = False

    def reset(self) -> dm_env.TimeStep:
        """Begin an episode."""
        observation, _ = self._inner.reset(seed=self._seed)
        self._seed = None  # from here on the adapter within draws its seeds
        self._begun = True
        return dm_env.restart(observation)

    def step(self, action: Any) -> dm_env.TimeStep:
        """One step; the first step of an episode only begins it, as dm_env asks."""
        if not self._begun:
            return self.reset()
        observation, reward, terminated, _, _ = self._inner.step(action)
        if terminated:
            self._begun = False
            return dm_env.termination(reward, observation)
        return dm_env.transition(reward, observation)

    def observation_spec(self) -> specs.BoundedArray:
        """A vector of bits in observed order."""
        shape = (self.environment.num_features,)
        return specs.BoundedArray(shape, np.int8, 0, 1, name="observation")

    def action_spec(self) -> specs.BoundedArray:
        """One choice for all components, or one for each where they are independent."""
        if self.environment.coupling == "broadcast":
            return specs.DiscreteArray(self.environment.num_actions, dtype=np.int64, name="action")
        counts = np.asarray(self.environment.action_counts)
        return specs.BoundedArray(counts.shape, np.int64, 0, counts - 1, name="action")
