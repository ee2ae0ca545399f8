"""One step of Nibbler in compiled code, and the loop that joins it with the environment.

Order of a call for step t, given R_{t+1} and x_{t+1} (see `questions` for why an update comes one call
later): lists of active rows; per question the pending update of step t - 1, then features and values;
A_{t+1}; the main learner's base weights; selection. The
weights that depend on hidden units wait in `error_*`, `swap` and `main_error` for the next call, or `settle`.
"""

from typing import Any

import numpy as np

from nibbler.engines.cpu.compile import flush_denormals, inlined, kernel, restore_denormals
from nibbler.engines.cpu.layout import (
    ACTION_BEFORE,
    ACTION_NOW,
    CHANGES,
    COUNT_BEFORE,
    COUNT_NOW,
    PENDING,
    STEP,
    WEIGHTS_TOUCHED,
)
from nibbler.engines.cpu.lists import advance_list, turn_changes
from nibbler.engines.cpu.policy import choose_action
from nibbler.engines.cpu.questions import pass_over_questions, ready_row, renew_rows, update_question
from nibbler.engines.cpu.rows import decay_after, drift_after
from nibbler.engines.cpu.selection import note_cumulants, select_inputs_and_cumulants
from nibbler.mdp.simulate import step_environment


@inlined
def base_weight(s: Any, a: Any, feature: Any, slot: Any) -> Any:
    """A main weight over a base feature as of now: slot 0 is v, slot 1 + a is q_a."""
    at = feature * (1 + s.num_actions) + slot
    drift = drift_after(a.drift, s.exact_nu, a.base_clock[slot] - a.base_touched[at])
    return a.base[at] - s.main_alpha * drift * a.base_momentum[at]


@inlined
def update_base(s: Any, a: Any, feature: Any, slot: Any, error: Any) -> None:
    """Algorithm 7 for a main weight over an active base feature."""
    at = feature * (1 + s.num_actions) + slot
    waited = a.base_clock[slot] - a.base_touched[at]
    before = a.base_momentum[at]
    weight = a.base[at] - s.main_alpha * drift_after(a.drift, s.exact_nu, waited) * before
    momentum = s.nu * decay_after(a.decay, s.exact_nu, waited) * before - s.gain * error
    a.base_momentum[at] = momentum
    a.base[at] = weight - s.main_alpha * momentum
    a.base_touched[at] = a.base_clock[slot] + 1


@inlined
def count_weights(s: Any, a: Any) -> Any:
    """How many weights the gradients of this step reach; the reference's module says what is counted."""
    n = a.clock[COUNT_NOW]
    rows = 0
    for i in range(s.num_questions):
        rows += a.list_count[i]
    h, d = s.num_questions, s.hidden_units
    return 2 * (n + h * d) + d * (rows + 2 * h) + (h + 1) * n


@inlined
def nibbler_step(s: Any, a: Any, count: Any, reward: Any, discount: Any) -> Any:
    """Algorithm 1, one turn of the loop: x_{t+1} is `active_next[:count]`; returns A_{t+1}."""
    action = a.clock[ACTION_NOW]
    step = a.clock[STEP] + 1
    num_now = a.clock[COUNT_NOW]
    turn_changes(s, a, count)
    for b in range(s.num_actions):
        a.q_values[b] = 0.0
    value, value_next, value_q = pass_over_questions(s, a, discount)
    for k in range(count):
        feature = np.int64(a.active_next[k])
        value_next += np.float64(base_weight(s, a, feature, 0))
        for b in range(s.num_actions):
            a.q_values[b] += np.float64(base_weight(s, a, feature, 1 + b))
    for k in range(num_now):
        feature = np.int64(a.active[k])
        value += np.float64(base_weight(s, a, feature, 0))
        value_q += np.float64(base_weight(s, a, feature, 1 + action))
    action_next = choose_action(a.q_values, s.num_actions, s.explore_below, s.seed, step)

    target = reward + discount * value_next
    a.main_error[0], a.main_error[1] = np.float32(target - value), np.float32(target - value_q)
    for k in range(num_now):
        feature = np.int64(a.active[k])
        update_base(s, a, feature, 0, a.main_error[0])
        update_base(s, a, feature, 1 + action, a.main_error[1])
    note_cumulants(s, a, count, reward)
    for i in range(s.num_questions):
        a.error_v[i] += a.cumulant[i]
        a.error_q[i] += a.cumulant[i]
        a.answer_error_sum[i] += np.float64(abs(a.error_v[i]))
    a.main_error_sum[0] += abs(target - value)
    a.clock[WEIGHTS_TOUCHED] += count_weights(s, a)
    select_inputs_and_cumulants(s, a, count, discount)

    for k in range(num_now):
        a.is_active[a.active[k]] = 0
        a.active_before[k] = a.active[k]
    for k in range(count):
        a.is_active[a.active_next[k]] = 1
        a.active[k] = a.active_next[k]
    a.clock[COUNT_BEFORE] = num_now
    a.base_clock[0] = step
    a.base_clock[1 + action] += 1
    a.clock[COUNT_NOW] = count
    a.clock[ACTION_BEFORE] = action
    a.clock[ACTION_NOW] = action_next
    a.clock[STEP] = step
    a.clock[PENDING] = 1
    return action_next


@kernel
def run_nibbler(
    s: Any, a: Any, tables: Any, states: Any, active: Any, discount: Any, bin_size: Any, rewards: Any
) -> None:
    """The fused loop: `bin_size` steps of environment and agent for each entry of `rewards`, their sum.

    `active` is the array behind `a.active_next`: the environment writes what the agent reads.
    """
    control = flush_denormals()
    for b in range(rewards.shape[0]):
        earned = 0.0
        for _ in range(bin_size):
            reward, count = step_environment(
                tables, states, a.clock[ACTION_NOW], s.seed, a.clock[STEP], active
            )
            nibbler_step(s, a, count, reward, discount)
            earned += reward
        rewards[b] = earned
    restore_denormals(control)


@kernel
def step_once(s: Any, a: Any, count: Any, reward: Any, discount: Any) -> Any:
    """`nibbler_step` for a stream that comes from outside."""
    control = flush_denormals()
    action = nibbler_step(s, a, count, reward, discount)
    restore_denormals(control)
    return action


@kernel
def settle(s: Any, a: Any) -> None:
    """Carry out what is pending, so that the arrays hold the state after the last step."""
    control = flush_denormals()
    clock = a.clock[STEP]
    if a.clock[PENDING]:
        for i in range(s.num_questions):
            update_question(s, a, i, a.clock[ACTION_BEFORE], clock - 1)
            advance_list(s, a, i, a.clock[CHANGES], clock)
            renew_rows(s, a, i, clock)
        a.clock[PENDING] = 0
    for row in range(s.num_questions * s.num_rows):
        ready_row(s, a, row)
    restore_denormals(control)
