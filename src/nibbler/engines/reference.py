"""The reference engine: NumPy, float64, dense; the plain truth that the fast engines are tested against."""

from collections.abc import Mapping

import numpy as np

from nibbler.agents.config import AgentConfig, NibblerConfig
from nibbler.engines.initial import select_action
from nibbler.engines.learners import NibblerLearner, Transition, make_learner
from nibbler.engines.settle import settled
from nibbler.mdp.environment import Environment
from nibbler.mdp.simulate import observe_reference, start_reference, step_reference

AGENTS = frozenset({"nibbler", "q-learning", "qv-learning", "known-structure", "linear", "random", "planner"})


class ReferenceRun:
    """Environment, agent and clock in plain NumPy."""

    def __init__(self, env: Environment, config: AgentConfig, seed: int) -> None:
        self.env = env
        self.config = config
        self.seed = seed
        self.step = 0
        self.learner = make_learner(env, config, seed)
        self._states = start_reference(env.tables, seed)
        self._active = observe_reference(env.tables, self._states)
        x = self._dense(self._active)
        self._action = self._select(self.learner.action_values(x, self._states), 0)

    def advance(self, steps: int) -> float:
        total = 0.0
        for _ in range(steps):
            total += self._advance_one()
        return total

    def advance_bins(self, num_bins: int, bin_size: int) -> np.ndarray:
        return np.array([self.advance(bin_size) for _ in range(num_bins)])

    def _advance_one(self) -> float:
        states, reward, active = step_reference(
            self.env.tables, self._states, self._action, self.seed, self.step
        )
        self.step += 1
        seen = Transition(
            self._dense(self._active), self._action, reward, self._dense(active), states, self.step
        )
        self._action = self.learner.learn(seen, lambda values: self._select(values, self.step))
        self._states, self._active = states, active
        return reward

    def _dense(self, active: np.ndarray) -> np.ndarray:
        return dense(active, self.env.num_features)

    def _select(self, action_values: np.ndarray, step: int) -> int:
        return select_action(action_values, self.config.epsilon, self.seed, step)

    def state(self) -> dict[str, np.ndarray]:
        return {
            **self.learner.arrays(self.step),
            "states": self._states.copy(),
            "active": self._active.copy(),
            "action": np.array(self._action),
            "step": np.array(self.step),
        }

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        self.learner.load(settled(state, self.config))
        self.step = int(state["step"])
        self._action = int(state["action"])
        self._states = np.array(state["states"], dtype=np.int32)
        self._active = np.array(state["active"], dtype=np.int32)


class ReferenceStream:
    """Nibbler's boxes fed from outside with lists of active features (for `nibbler.Nibbler`)."""

    def __init__(self, config: NibblerConfig, num_features: int, num_actions: int, seed: int) -> None:
        self.num_steps = 0
        self._config = config
        self._seed = seed
        self._sizes = num_features, num_actions
        self._learner = NibblerLearner(config, num_features, num_actions, seed)
        self._active = np.empty(0, dtype=np.int32)
        self._action = 0

    def begin(self, active: np.ndarray) -> int:
        self._learner = NibblerLearner(self._config, *self._sizes, self._seed)
        self.num_steps = 0
        return self.restart(active, 0)

    def restart(self, active: np.ndarray, slot: int) -> int:
        self._active = active
        self._action = self._select(self.action_values(active), slot)
        return self._action

    def step(self, active: np.ndarray, reward: float, discount: float) -> int:
        self.num_steps += 1
        x_t, x_next = self._dense(self._active), self._dense(active)
        seen = Transition(x_t, self._action, reward, x_next, active, self.num_steps, discount)
        self._action = self._learner.learn(seen, lambda values: self._select(values, 0))
        self._active = active
        return self._action

    def action_values(self, active: np.ndarray) -> np.ndarray:
        return self._learner.action_values(self._dense(active), active)

    def _dense(self, active: np.ndarray) -> np.ndarray:
        return dense(active, self._sizes[0])

    def _select(self, action_values: np.ndarray, slot: int) -> int:
        return select_action(action_values, self._config.epsilon, self._seed, self.num_steps, slot)

    def state(self) -> dict[str, np.ndarray]:
        return {
            **self._learner.arrays(self.num_steps),
            "active": self._active.copy(),
            "action": np.array(self._action),
            "step": np.array(self.num_steps),
        }

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        self._learner.load(settled(state, self._config))
        self.num_steps = int(state["step"])
        self._action = int(state["action"])
        self._active = np.array(state["active"], dtype=np.int32)


def dense(active: np.ndarray, num_features: int) -> np.ndarray:
    """x^b as a 0.0/1.0 vector, from the indices of its ones."""
    x = np.zeros(num_features)
    x[active] = 1.0
    return x


def open_run(env: Environment, config: AgentConfig, seed: int) -> ReferenceRun:
    """A run at step 0 on the reference engine."""
    return ReferenceRun(env, config, seed)
