"""Nibbler on this engine: the compiled step with its state, for the fused loop and for streams alike."""

from collections.abc import Mapping

import numpy as np

from nibbler.agents.config import NibblerConfig
from nibbler.agents.policy import epsilon_greedy
from nibbler.engines.cpu.cells import Memory
from nibbler.engines.cpu.layout import (
    ACTION_NOW,
    STEP,
    export_canonical,
    load_canonical,
    nibbler_arrays,
    nibbler_settings,
)
from nibbler.engines.cpu.step import settle, step_once
from nibbler.engines.initial import initial_nibbler_state
from nibbler.mdp.philox import ACTION, draw_array


class CompiledNibbler:
    """Nibbler's weights, selections and clock, and one compiled step; observations are active indices.

    `begin(active)` takes the first observation and returns A_0; `step(active, reward)` every further one.
    """

    def __init__(
        self,
        config: NibblerConfig,
        num_features: int,
        num_actions: int,
        seed: int,
        max_active: int | None = None,
    ) -> None:
        self.config = config
        self.settings = nibbler_settings(config, num_features, num_actions, seed)
        self.arrays = nibbler_arrays(self.settings, config, max_active or num_features)
        self.memory = Memory(self.arrays)  # the same, as compiled functions take it
        self._seed = seed

    @property
    def num_steps(self) -> int:
        """Updates done so far."""
        return int(self.arrays.clock[STEP])

    @property
    def action(self) -> int:
        """A_t, the action that was chosen last."""
        return int(self.arrays.clock[ACTION_NOW])

    def begin(self, active: np.ndarray) -> int:
        """Start afresh at an observation. All main weights are zero, so that only exploration matters."""
        s = self.settings
        state = initial_nibbler_state(self.config, s.num_features, s.num_actions, self._seed)
        words = draw_array(self._seed, ACTION, 0, [0])[0]
        action = epsilon_greedy(np.zeros(s.num_actions), self.config.epsilon, words)
        load_canonical(
            s,
            self.arrays,
            {**state, "active": active, "action": np.array(action), "step": np.array(0)},
        )
        return action

    def step(self, active: np.ndarray, reward: float, discount: float | None = None) -> int:
        """Algorithm 1 for one transition; `active` (int32, no feature twice) is x_{t+1}; returns A_{t+1}."""
        gamma = self.config.discount if discount is None else discount
        self.arrays.active_next[: len(active)] = active
        return int(step_once(self.settings, self.memory, len(active), float(reward), float(gamma)))

    def state(self) -> dict[str, np.ndarray]:
        """Everything, under the canonical names."""
        settle(self.settings, self.memory)
        return export_canonical(self.settings, self.arrays)

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Become the learner that `state` describes."""
        load_canonical(self.settings, self.arrays, state)
