"""Nibbler for a stream from outside: the compiled step, and what an episode's first observation needs."""

from typing import Any

import numpy as np

from nibbler.agents.policy import epsilon_greedy
from nibbler.engines.cpu.compile import flush_denormals, kernel, restore_denormals
from nibbler.engines.cpu.lanes import load, rectify, store
from nibbler.engines.cpu.layout import (
    ACTION_NOW,
    COUNT_NOW,
    LISTS_KNOWN,
    MAIN_Q,
    STEP,
)
from nibbler.engines.cpu.nibbler import CompiledNibbler
from nibbler.engines.cpu.questions import note_row, sum_noted
from nibbler.engines.cpu.rows import dot_line
from nibbler.engines.cpu.step import base_weight, settle
from nibbler.mdp.philox import ACTION, draw


@kernel
def main_action_values(s: Any, a: Any, count: Any) -> None:
    """The reference's `main_action_values` at `active_next`, into `q_values`; nothing may be pending."""
    control = flush_denormals()
    for b in range(s.num_actions):
        a.q_values[b] = 0.0
    for k in range(count):
        a.mark[a.active_next[k]] = 1
    for i in range(s.num_questions):
        on = 0
        for row in range(s.num_rows):
            if row == s.inputs_per_question or a.mark[a.inputs[i * s.inputs_per_question + row]]:
                note_row(s, a, i, row, on, np.float32(1.0), a.clock[STEP])
                on += 1
        sum_noted(s, a, on, a.next_features, 0, np.float32(0.0), a.next_features, 0)
        for unit in range(0, s.units, 16):
            store(a.next_features, unit, rectify(load(a.next_features, unit)))
        for b in range(s.num_actions):
            at = (i * s.num_lines + MAIN_Q + b) * s.units
            a.q_values[b] += np.float64(dot_line(a.heads, at, a.next_features, s.units))
    for k in range(count):
        a.mark[a.active_next[k]] = 0
        for b in range(s.num_actions):
            a.q_values[b] += np.float64(base_weight(s, a, np.int64(a.active_next[k]), 1 + b))
    restore_denormals(control)


class CompiledStream(CompiledNibbler):
    """`CompiledNibbler` that can also look at an observation without learning, and go on from it."""

    def action_values(self, active: np.ndarray) -> np.ndarray:
        """Q-hat of the main learner for every action, with the current weights."""
        settle(self.settings, self.memory)
        self.arrays.active_next[: len(active)] = active
        main_action_values(self.settings, self.memory, len(active))
        return self.arrays.q_values.copy()

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
        a.clock[LISTS_KNOWN] = 0  # they are those of the observation before
        a.renewed[:] = 1
        return action
