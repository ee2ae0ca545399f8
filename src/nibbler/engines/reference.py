"""The reference engine: NumPy, float64, dense; the plain truth that the fast engines are tested against."""

from collections.abc import Mapping

import numpy as np

from nibbler.agents.config import AgentConfig, NibblerConfig
from nibbler.agents.policy import epsilon_greedy
from nibbler.engines.learners import NibblerLearner, Transition, make_learner
from nibbler.engines.settle import settled
from nibbler.mdp.environment import Environment
from nibbler.mdp.philox import ACTION, draw_array
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
        """A_t: epsilon-greedy by the two words that step t has for it."""
        words = draw_array(self.seed, ACTION, step, [0])[0]
        return epsilon_greedy(action_values, self.config.epsilon, words)

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
        self._config = config
        self._num_features = num_features
        self._learner = NibblerLearner(config, num_features, num_actions, seed)

    def action_values(self, active: np.ndarray) -> np.ndarray:
        return self._learner.action_values(dense(active, self._num_features), active)

    def learn(
        self,
        active_t: np.ndarray,
        a_t: int,
        reward: float,
        active_next: np.ndarray,
        discount: float,
        step: int,
    ) -> np.ndarray:
        values_next = self.action_values(active_next)
        x_t, x_next = dense(active_t, self._num_features), dense(active_next, self._num_features)
        seen = Transition(x_t, a_t, reward, x_next, active_next, step, discount)
        self._learner.learn(seen, lambda values: 0)  # the caller chooses by the values returned
        return values_next

    def arrays(self, step: int) -> dict[str, np.ndarray]:
        return self._learner.arrays(step)

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._learner.load(settled(arrays, self._config))


def dense(active: np.ndarray, num_features: int) -> np.ndarray:
    """x^b as a 0.0/1.0 vector, from the indices of its ones."""
    x = np.zeros(num_features)
    x[active] = 1.0
    return x


def open_run(env: Environment, config: AgentConfig, seed: int) -> ReferenceRun:
    """A run at step 0 on the reference engine."""
    return ReferenceRun(env, config, seed)
