"""The one way in which an environment is simulated: tables in, states stepped in place, active bits out.

Board b at step t takes word b % 4 of draw(seed, TRANSITION, t, b // 4), and compares it with the integer
thresholds of its row. So a trajectory under given actions is the same, bit for bit, wherever it is computed.
From Python, give compiled code its seed as np.uint64: a plain int is taken as signed, so it ends at 2**63.
Compiled kernels come first, then their NumPy twins, which say the same more readably.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nibbler.mdp.compiled import fused, loop
from nibbler.mdp.environment import EnvTables
from nibbler.mdp.philox import ACTION, START, TRANSITION, Seed, draw, draw_array

_HALF = np.uint64(32)
# Indices are unsigned: Numba would test signed ones for counting from the end.
_ONE = np.uint64(1)


@fused
def _sample(threshold: Any, begin: Any, last: Any, word: Any) -> Any:
    """The outcome of a row that a random word selects; the last one is taken without comparison."""
    k = begin
    while k < last and word >= threshold[k]:
        k += _ONE
    return k


@fused
def _start_board(tables: EnvTables, states: Any, board: Any, word: Any) -> None:
    row = np.uint64(tables.start_base[board])
    begin, last = np.uint64(tables.start_start[row]), np.uint64(tables.start_start[row + _ONE]) - _ONE
    states[board] = tables.start_state[_sample(tables.start_threshold, begin, last, word)]


@fused
def _step_board(tables: EnvTables, states: Any, board: Any, num_actions: Any, action: Any, word: Any) -> Any:
    """Move one board on and return its reward."""
    row = np.uint64(tables.row_base[board] + states[board] * num_actions + action)
    begin, last = np.uint64(tables.outcome_start[row]), np.uint64(tables.outcome_start[row + _ONE]) - _ONE
    k = _sample(tables.threshold, begin, last, word)
    states[board] = tables.next_state[k]
    return tables.reward[k]


@fused
def start(tables: EnvTables, states: NDArray[np.int32], seed: Seed) -> None:
    """Draw the start state of every board."""
    boards = states.shape[0]
    for first in range(0, boards, 4):
        w0, w1, w2, w3 = draw(seed, START, 0, first >> 2)
        _start_board(tables, states, first, w0)
        if first + 1 < boards:
            _start_board(tables, states, first + 1, w1)
        if first + 2 < boards:
            _start_board(tables, states, first + 2, w2)
        if first + 3 < boards:
            _start_board(tables, states, first + 3, w3)


@fused
def observe(tables: EnvTables, states: NDArray[np.int32], active: NDArray[np.int32]) -> int:
    """Fill `active` with the observed indices of the bits that are on, board by board; returns how many."""
    count = 0
    for board in range(states.shape[0]):
        place = np.uint64(tables.state_base[board] + states[board])
        base = np.uint64(tables.feature_base[board])
        k, end = np.uint64(tables.feature_start[place]), np.uint64(tables.feature_start[place + _ONE])
        while k < end:
            active[count] = tables.permutation[base + np.uint64(tables.feature_index[k])]
            count += 1
            k += _ONE
    return count


@fused
def step_environment(
    tables: EnvTables,
    states: NDArray[np.int32],
    action: int,
    seed: Seed,
    step: int,
    active: NDArray[np.int32],
) -> tuple[float, int]:
    """One transition of every board under one action: changes `states`, fills `active` with the new bits.

    Returns the summed reward and the number of active bits. `active` needs room for `max_active` entries.
    """
    boards = states.shape[0]
    num_actions = tables.num_actions
    reward = 0.0
    for first in range(0, boards, 4):
        w0, w1, w2, w3 = draw(seed, TRANSITION, step, first >> 2)
        reward += _step_board(tables, states, first, num_actions, action, w0)
        if first + 1 < boards:
            reward += _step_board(tables, states, first + 1, num_actions, action, w1)
        if first + 2 < boards:
            reward += _step_board(tables, states, first + 2, num_actions, action, w2)
        if first + 3 < boards:
            reward += _step_board(tables, states, first + 3, num_actions, action, w3)
    # Bits are listed afterwards: a wrongly predicted branch above then does not hold them up.
    return reward, observe(tables, states, active)


@fused
def step_independent(
    tables: EnvTables,
    states: NDArray[np.int32],
    actions: NDArray[np.int64],
    seed: Seed,
    step: int,
    active: NDArray[np.int32],
) -> tuple[float, int]:
    """One transition of every board, each under its own action: the full product of the paper."""
    reward = 0.0
    for board in range(states.shape[0]):
        words = draw(seed, TRANSITION, step, board >> 2)
        num_actions, action = tables.board_actions[board], actions[board]
        reward += _step_board(tables, states, board, num_actions, action, words[board & 3])
    return reward, observe(tables, states, active)


@fused
def epsilon_threshold(epsilon: float) -> Any:
    """The number of 32-bit words, out of 2**32, on which an epsilon-greedy policy explores."""
    return np.uint64(np.rint(epsilon * 4294967296.0))


@fused
def uniform_action(word: Any, num_actions: Any) -> Any:
    """The action that a random word selects, each with the same probability."""
    return np.int64((np.uint64(word) * np.uint64(num_actions)) >> _HALF)


@fused
def random_action(seed: Seed, step: int, num_actions: int) -> Any:
    """The uniformly random action of a step."""
    return uniform_action(draw(seed, ACTION, step, 0)[1], num_actions)


@loop
def simulate_random(
    tables: EnvTables,
    states: NDArray[np.int32],
    seed: Seed,
    start_step: int,
    num_steps: int,
    active: NDArray[np.int32],
) -> float:
    """Step under uniformly random actions in one compiled loop; returns the total reward."""
    total = 0.0
    for step in range(start_step, start_step + num_steps):
        action = random_action(seed, step, tables.num_actions)
        reward, _ = step_environment(tables, states, action, seed, step, active)
        total += reward
    return total


@loop
def simulate_random_counts(
    tables: EnvTables,
    states: NDArray[np.int32],
    seed: Seed,
    start_step: int,
    num_steps: int,
    active: NDArray[np.int32],
    feature_counts: NDArray[np.int64],
) -> float:
    """Like `simulate_random`, and adds to `feature_counts` how often each observed bit was on."""
    total = 0.0
    for step in range(start_step, start_step + num_steps):
        action = random_action(seed, step, tables.num_actions)
        reward, count = step_environment(tables, states, action, seed, step, active)
        total += reward
        for k in range(count):
            feature_counts[active[k]] += 1
    return total


@fused
def greedy_action(tables: EnvTables, states: NDArray[np.int32], values: NDArray[np.float64]) -> int:
    """The action with the largest sum of the boards' action values, the lowest among equals.

    `values` holds a value per row of the tables: values[row_base[b] + s * num_actions + a].
    """
    best = 0
    best_value = -np.inf
    for action in range(tables.num_actions):
        value = 0.0
        for board in range(states.shape[0]):
            value += values[tables.row_base[board] + states[board] * tables.num_actions + action]
        if value > best_value:
            best = action
            best_value = value
    return best


@loop
def simulate_greedy(
    tables: EnvTables,
    states: NDArray[np.int32],
    values: NDArray[np.float64],
    epsilon: float,
    seed: Seed,
    start_step: int,
    num_steps: int,
    active: NDArray[np.int32],
) -> float:
    """Step under the planner, epsilon-greedy in the summed action values; returns the total reward."""
    explore_below = epsilon_threshold(epsilon)
    total = 0.0
    for step in range(start_step, start_step + num_steps):
        words = draw(seed, ACTION, step, 0)
        if np.uint64(words[0]) < explore_below:
            action = uniform_action(words[1], tables.num_actions)
        else:
            action = greedy_action(tables, states, values)
        reward, _ = step_environment(tables, states, action, seed, step, active)
        total += reward
    return total


def board_words(seed: Seed, stream: int, step: int, boards: int) -> NDArray[np.uint32]:
    """The random word of every board at a step: four boards share one draw."""
    return draw_array(seed, stream, step, np.arange(-(-boards // 4))).reshape(-1)[:boards]


def _sample_rows(
    threshold: NDArray[np.uint32],
    begin: NDArray[np.int64],
    end: NDArray[np.int64],
    words: NDArray[np.uint32],
) -> NDArray[np.int64]:
    """The NumPy twin of `_sample`, a row per board: counts the thresholds that each word is not below."""
    chosen = begin.copy()
    while True:
        moves = (chosen < end - 1) & (words >= threshold[chosen])
        if not moves.any():
            return chosen
        chosen[moves] += 1


def start_reference(tables: EnvTables, seed: Seed) -> NDArray[np.int32]:
    """The NumPy twin of `start`: the start states of all boards."""
    row = tables.start_base
    chosen = _sample_rows(
        tables.start_threshold,
        tables.start_start[row],
        tables.start_start[row + 1],
        board_words(seed, START, 0, row.size),
    )
    return tables.start_state[chosen]


def observe_reference(tables: EnvTables, states: NDArray[np.int32]) -> NDArray[np.int32]:
    """The NumPy twin of `observe`: the observed indices of the bits that are on, board by board."""
    place = tables.state_base + states
    lists = [
        tables.permutation[base + tables.feature_index[tables.feature_start[p] : tables.feature_start[p + 1]]]
        for p, base in zip(place, tables.feature_base, strict=True)
    ]
    return np.concatenate(lists)


def step_reference(
    tables: EnvTables, states: NDArray[np.int32], action: int | NDArray[np.int64], seed: Seed, step: int
) -> tuple[NDArray[np.int32], float, NDArray[np.int32]]:
    """The NumPy twin of `step_environment` and `step_independent`: next states, reward, active bits.

    `action` is one action for all boards, or one per board. The states given are left as they are.
    """
    row = tables.row_base + states * tables.board_actions + action
    chosen = _sample_rows(
        tables.threshold,
        tables.outcome_start[row],
        tables.outcome_start[row + 1],
        board_words(seed, TRANSITION, step, states.size),
    )
    next_states = tables.next_state[chosen]
    # cumsum adds in board order, as the kernel does; sum() would pair the terms and round differently.
    reward = float(np.cumsum(tables.reward[chosen])[-1])
    return next_states, reward, observe_reference(tables, next_states)
