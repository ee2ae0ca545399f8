"""A run around an agent of your own: anything with `step(reward, observation) -> action`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from nibbler.mdp.environment import Environment
from nibbler.mdp.simulate import observe, start, step_environment

_OWN = "agent/"


class OwnAgentRun:
    """Steps an environment with an agent that is only asked for actions.

    The agent sees the observation as uint8[num_features] of zeros and ones, and with it the reward of the
    transition that led there (0 the first time). To resume after a crash it needs `state()`, which returns a
    dictionary of arrays, and `restore(state)`; without them, a broken-off run starts over. For a result that
    can be repeated, it must draw its random numbers from its seed and keep their place in that state.
    """

    def __init__(self, env: Environment, agent: Any, seed: int) -> None:
        self.step = 0
        self.resumable = hasattr(agent, "state") and hasattr(agent, "restore")
        self._env = env
        self._agent = agent
        self._seed = seed
        self._states = np.zeros(env.num_components, np.int32)
        self._active = np.zeros(env.max_active, np.int32)
        self._action = -1  # none yet: the agent is first asked when the run starts
        start(env.tables, self._states, self._seed)

    def advance(self, steps: int) -> float:
        """Run that many steps and return the sum of their rewards."""
        total = 0.0
        if self._action < 0:
            self._choose(0.0, observe(self._env.tables, self._states, self._active))
        for _ in range(steps):
            reward, count = step_environment(
                self._env.tables, self._states, self._action, self._seed, self.step, self._active
            )
            self.step += 1
            total += reward
            self._choose(reward, count)
        return total

    def advance_bins(self, num_bins: int, bin_size: int) -> np.ndarray:
        """Run num_bins * bin_size steps; the sum of rewards of each bin."""
        return np.array([self.advance(bin_size) for _ in range(num_bins)])

    def _choose(self, reward: float, count: int) -> None:
        observation = np.zeros(self._env.num_features, np.uint8)
        observation[self._active[:count]] = 1
        action = self._agent.step(reward, observation)
        if not 0 <= action < self._env.num_actions:
            raise ValueError(
                f"the agent chose action {action!r}; it must be 0 to {self._env.num_actions - 1}"
            )
        self._action = int(action)

    def state(self) -> dict[str, np.ndarray]:
        """Environment, clock and whatever the agent keeps; only for agents that can be resumed."""
        agent = {_OWN + name: np.array(value) for name, value in self._agent.state().items()}
        return {
            "states": self._states.copy(),
            "step": np.array(self.step, np.int64),
            "action": np.array(self._action, np.int64),
            **agent,
        }

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Become the run that `state()` described."""
        self._states[:] = state["states"]
        self.step = int(state["step"])
        self._action = int(state["action"])
        self._agent.restore(
            {name.removeprefix(_OWN): a for name, a in state.items() if name.startswith(_OWN)}
        )
