"""Nibbler for a stream from outside: the compiled step, and what an episode's first observation needs."""

import numpy as np

from nibbler.agents.policy import epsilon_greedy
from nibbler.engines.cpu.layout import ACTION_NOW, COUNT_NOW, SWAPPED, canonical_views
from nibbler.engines.cpu.nibbler import CompiledNibbler
from nibbler.engines.cpu.step import settle
from nibbler.engines.inspect import main_action_values
from nibbler.mdp.philox import ACTION, draw


class CompiledStream(CompiledNibbler):
    """`CompiledNibbler` that can also look at an observation without learning, and go on from it."""

    def action_values(self, active: np.ndarray) -> np.ndarray:
        """Q-hat of the main learner for every action, with the current weights."""
        settle(self.settings, self.arrays)
        return main_action_values(canonical_views(self.settings, self.arrays), self.config, active)

    def restart(self, active: np.ndarray, slot: int) -> int:
        """Continue from another observation without learning; the action is drawn from that slot."""
        words = np.array(draw(self.settings.seed, ACTION, self.num_steps, slot))
        action = epsilon_greedy(self.action_values(active), self.config.epsilon, words)
        a = self.arrays
        a.is_active[a.active[: a.clock[COUNT_NOW]]] = 0
        a.is_active[active] = 1
        a.active[: len(active)] = active
        a.clock[COUNT_NOW] = len(active)
        a.clock[ACTION_NOW] = action
        a.clock[SWAPPED] = 1  # the lists of active rows are those of the observation before
        return action
