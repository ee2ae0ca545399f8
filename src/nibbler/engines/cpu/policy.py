"""How an action is chosen in compiled code, and the agents that do nothing else: random and planner."""

from typing import Any

import numpy as np

from nibbler.engines.cpu.compile import inlined, kernel
from nibbler.mdp.philox import ACTION, draw
from nibbler.mdp.simulate import greedy_action, step_environment, uniform_action

# Entries of `clock`.
STEP, ACTION_NOW, COUNT_NOW = range(3)


@inlined
def choose_action(q_values: Any, num_actions: Any, explore_below: Any, seed: Any, step: Any) -> Any:
    """`epsilon_greedy` by the two words that a step has for it; ties go to the lowest action."""
    words = draw(seed, ACTION, step, 0)
    if np.uint64(words[0]) < explore_below:
        return np.int64(uniform_action(words[1], num_actions))
    best = np.int64(0)
    for action in range(1, num_actions):
        if q_values[action] > q_values[best]:
            best = np.int64(action)
    return best


@kernel
def run_policy(
    tables: Any,
    states: Any,
    active: Any,
    clock: Any,
    values: Any,
    explore_below: Any,
    seed: Any,
    bin_size: Any,
    rewards: Any,
) -> None:
    """The epsilon-greedy policy of given action values per component (`PlannerPolicy`, `RandomPolicy`)."""
    for b in range(rewards.shape[0]):
        earned = 0.0
        for _ in range(bin_size):
            reward, count = step_environment(tables, states, clock[ACTION_NOW], seed, clock[STEP], active)
            earned += reward
            clock[COUNT_NOW] = count
            clock[STEP] += 1
            words = draw(seed, ACTION, clock[STEP], 0)
            if np.uint64(words[0]) < explore_below:
                clock[ACTION_NOW] = uniform_action(words[1], tables.num_actions)
            else:
                clock[ACTION_NOW] = greedy_action(tables, states, values)
        rewards[b] = earned
