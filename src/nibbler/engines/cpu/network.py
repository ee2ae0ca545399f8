"""Q-learning, QV-learning and the known structure in compiled code: one value network over all bits.

As for Nibbler, the update of step t - 1 is carried out at step t, block by block, right before the block's
weights are read again. Memory: see `network_layout`. Boxes of the reference: `value_network_step`,
`update_network`.
"""

from typing import Any

import numpy as np

from nibbler.engines.cpu.compile import flush_denormals, inlined, kernel, restore_denormals
from nibbler.engines.cpu.lanes import load, multiply_add, rectify, splat, store, total, where_positive
from nibbler.engines.cpu.network_layout import (
    ACTION_BEFORE,
    ACTION_NOW,
    ACTION_VALUE,
    COUNT_BEFORE,
    COUNT_NOW,
    ENTRIES,
    LIST_NOW,
    LISTS_KNOWN,
    PENDING,
    STEP,
    VALUE,
    WEIGHTS_TOUCHED,
)
from nibbler.engines.cpu.policy import choose_action
from nibbler.engines.cpu.rows import co_opt_line, decay_after, dot_line, drift_after
from nibbler.engines.cpu.rows_twice import STRETCH, add_rows, clear_sums, co_opt_rows_twice
from nibbler.mdp.simulate import step_environment


@inlined
def append_row(s: Any, a: Any, row: Any, which: Any, rows: Any, counts: Any) -> None:
    """Append a feature's row to the list of its block."""
    place = which * s.num_blocks + a.block_of_feature[row]
    rows[place * s.list_size + counts[place]] = row
    counts[place] += 1


@inlined
def list_block_rows(s: Any, a: Any, which: Any, active: Any, count: Any) -> None:
    """For every block the rows that are on, in the order of the active features, the bias last."""
    for place in range(which * s.num_blocks, (which + 1) * s.num_blocks):
        a.list_count[place] = 0
    for k in range(count):
        append_row(s, a, np.int64(active[k]), which, a.list_rows, a.list_count)
    if s.has_bias:
        for block in range(s.num_blocks):
            place = which * s.num_blocks + block
            a.list_rows[place * s.list_size + a.list_count[place]] = s.num_features + block
            a.list_count[place] += 1


@inlined
def list_block_entries(s: Any, a: Any, which: Any, time: Any, active: Any, count: Any) -> None:
    """For every block the rows that go on with the observation at `time`; notes when each row was on."""
    for place in range(which * s.num_blocks, (which + 1) * s.num_blocks):
        a.enter_count[place] = 0
    for k in range(count):
        row = np.int64(active[k])
        if a.latest[row] != time - 1:
            append_row(s, a, row, which, a.enter_rows, a.enter_count)
            a.until[row] = a.latest[row]
        a.latest[row] = time
    if s.has_bias:
        for block in range(s.num_blocks):
            a.latest[s.num_features + block] = time


@inlined
def turn_block_lists(s: Any, a: Any, count: Any) -> None:
    """Make the lists for a step from x_t to x_{t+1}, which has `count` features on."""
    a.clock[LIST_NOW], a.clock[ENTRIES] = 1 - a.clock[LIST_NOW], 1 - a.clock[ENTRIES]
    step, num_now, num_before = a.clock[STEP], a.clock[COUNT_NOW], a.clock[COUNT_BEFORE]
    if not a.clock[LISTS_KNOWN]:
        a.clock[LISTS_KNOWN] = 1
        list_block_rows(s, a, 1 - a.clock[LIST_NOW], a.active_before, num_before)
        list_block_entries(s, a, 1 - a.clock[ENTRIES], step - 1, a.active_before, num_before)
        list_block_entries(s, a, 1 - a.clock[ENTRIES], step, a.active, num_now)
    list_block_rows(s, a, a.clock[LIST_NOW], a.active, num_now)
    list_block_entries(s, a, a.clock[ENTRIES], step + 1, a.active_next, count)


@inlined
def note_signs(a: Any, row: Any, k: Any, step: Any) -> Any:
    """Make entry k of the scratch lists say whether a row that was on at x_{t-1} is on at x_t and x_{t+1}."""
    next_too = a.latest[row] == step + 1
    now = a.until[row] != step - 1 if next_too else a.latest[row] == step
    a.row_sign[k] = np.float32(1.0) if now else np.float32(0.0)
    a.row_next_sign[k] = np.float32(1.0) if next_too else np.float32(0.0)
    return now or next_too


@inlined
def update_heads(s: Any, a: Any, block: Any, action: Any) -> None:
    """`update_network` for the heads of one block; leaves the gradient of what enters its hidden units."""
    line, at_features = s.num_blocks * s.units, block * s.units
    heads = a.heads
    at_v = VALUE * line + at_features
    at_q = (ACTION_VALUE + 2 * action) * line + at_features
    nu, alpha = splat(s.nu), splat(-s.alpha)
    error_v, error_q = splat(-s.gain * a.error[0]), splat(-s.gain * a.error[1])
    for unit in range(0, s.units, 16):
        features = load(heads, at_features + unit)
        back = error_q * load(heads, at_q + unit)
        co_opt_line(heads, at_q, line, features, unit, error_q, alpha, nu)
        if s.has_value:
            back = multiply_add(error_v, load(heads, at_v + unit), back)
            co_opt_line(heads, at_v, line, features, unit, error_v, alpha, nu)
        store(a.gradient, unit, where_positive(features, back))


@inlined
def note_learning(s: Any, a: Any, block: Any, which: Any, clock: Any) -> Any:
    """Note the rows of a block that learn, and that they have; returns how many."""
    place = which * s.num_blocks + block
    count = np.int64(a.list_count[place])
    for k in range(count):
        row = np.int64(a.list_rows[place * s.list_size + k])
        waited = clock - a.touched[row]
        a.row_offset[k] = row * s.row_size
        note_signs(a, row, k, clock + 1)
        a.row_drift[k] = -s.alpha * drift_after(a.drift, s.exact_nu, waited)
        a.row_decay[k] = s.nu * decay_after(a.decay, s.exact_nu, waited)
        a.touched[row] = clock + 1
    return count


@inlined
def learn_noted(s: Any, a: Any, count: Any, begin: Any, end: Any, at: Any) -> None:
    """`update_network` for the first rows noted; begins both sums with their new weights."""
    co_opt_rows_twice(
        a.hidden,
        a.row_offset,
        a.row_sign,
        a.row_next_sign,
        a.row_drift,
        a.row_decay,
        count,
        s.units,
        begin,
        end,
        a.gradient,
        s.alpha,
        a.heads,
        at,
        a.next_features,
    )


@inlined
def note_row(s: Any, a: Any, row: Any, k: Any, clock: Any) -> None:
    """Make entry k of the scratch lists for `add_noted` a row."""
    a.row_offset[k] = row * s.row_size
    a.row_drift[k] = -s.alpha * drift_after(a.drift, s.exact_nu, clock - a.touched[row])


@inlined
def add_noted(s: Any, a: Any, first: Any, count: Any, begin: Any, end: Any, at: Any) -> None:
    """Add `count` of the rows noted to what enters a block's hidden units at x_t and at x_{t+1}."""
    add_rows(
        a.hidden,
        a.row_offset,
        a.row_sign,
        a.row_next_sign,
        a.row_drift,
        first,
        count,
        s.units,
        begin,
        end,
        a.heads,
        at,
        a.next_features,
    )


@inlined
def note_staying(s: Any, a: Any, block: Any, clock: Any) -> Any:
    """Note the rows that were on at x_{t-1} and are at x_t or x_{t+1}; returns how many."""
    place = (1 - a.clock[LIST_NOW]) * s.num_blocks + block
    count = np.int64(0)
    for k in range(a.list_count[place]):
        row = np.int64(a.list_rows[place * s.list_size + k])
        if note_signs(a, row, count, clock):
            note_row(s, a, row, count, clock)
            count += 1
    return count


@inlined
def note_entering(s: Any, a: Any, block: Any, first: Any, clock: Any) -> Any:
    """Note the rows that go on at x_t or x_{t+1}, from entry `first` on; returns how many."""
    k = first
    place = (1 - a.clock[ENTRIES]) * s.num_blocks + block
    for entry in range(a.enter_count[place]):
        row = np.int64(a.enter_rows[place * s.list_size + entry])
        note_row(s, a, row, k, clock)
        a.row_sign[k] = np.float32(1.0)
        a.row_next_sign[k] = np.float32(1.0) if a.latest[row] == clock + 1 else np.float32(0.0)
        k += 1
    place = a.clock[ENTRIES] * s.num_blocks + block
    for entry in range(a.enter_count[place]):
        row = np.int64(a.enter_rows[place * s.list_size + entry])
        if a.until[row] != clock - 1:  # else it was on at x_{t-1}
            note_row(s, a, row, k, clock)
            a.row_sign[k], a.row_next_sign[k] = np.float32(0.0), np.float32(1.0)
            k += 1
    return k - first


@inlined
def sum_block(s: Any, a: Any, block: Any, pending: Any, clock: Any, at: Any) -> None:
    """What enters a block's hidden units at x_t and at x_{t+1}; rows with a pending update learn on the way.

    First the rows that were on at x_{t-1}, then those that go on at x_t or x_{t+1}. Long rows are worked on
    in stretches, forth in one step and back in the next: every unit's sum is the same.
    """
    if pending:
        staying = note_learning(s, a, block, 1 - a.clock[LIST_NOW], clock - 1)
    else:
        staying = note_staying(s, a, block, clock)
    entering = note_entering(s, a, block, staying, clock)
    stretches = (s.units + STRETCH - 1) // STRETCH
    for k in range(stretches):
        begin = STRETCH * (k if clock % 2 == 0 else stretches - 1 - k)
        end = min(begin + STRETCH, s.units)
        if pending:
            learn_noted(s, a, staying, begin, end, at)
        else:
            clear_sums(begin, end, a.heads, at, a.next_features)
            add_noted(s, a, np.int64(0), staying, begin, end, at)
        add_noted(s, a, staying, entering, begin, end, at)


@inlined
def value_block(s: Any, a: Any, block: Any, pending: Any, action: Any, clock: Any) -> Any:
    """A block's share of V(x_t), V(x_{t+1}) and Q(x_t, a_t); adds that of every Q(x_{t+1}, a) to q_values."""
    units, line = s.units, s.num_blocks * s.units
    heads, at_features = a.heads, block * s.units
    at_v = VALUE * line + at_features
    at_q = (ACTION_VALUE + 2 * action) * line + at_features
    sum_block(s, a, block, pending, clock, at_features)
    zero = splat(np.float32(0.0))
    value, value_next, value_q = zero, zero, zero
    for unit in range(0, units, 16):
        now = rectify(load(heads, at_features + unit))
        after = rectify(load(a.next_features, unit))
        store(heads, at_features + unit, now)
        store(a.next_features, unit, after)
        weight = load(heads, at_v + unit)
        value = multiply_add(weight, now, value)
        value_next = multiply_add(weight, after, value_next)
        value_q = multiply_add(load(heads, at_q + unit), now, value_q)
    for b in range(s.num_actions):
        at = (ACTION_VALUE + 2 * b) * line + at_features
        a.q_values[b] += np.float64(dot_line(heads, at, a.next_features, units))
    return np.float64(total(value)), np.float64(total(value_next)), np.float64(total(value_q))


@inlined
def value_network_step(s: Any, a: Any, count: Any, reward: Any, discount: Any) -> Any:
    """One step of Q- or QV-learning: x_{t+1} is `active_next[:count]`; returns A_{t+1}."""
    action, clock = a.clock[ACTION_NOW], a.clock[STEP]
    pending = a.clock[PENDING] != 0
    turn_block_lists(s, a, count)
    for b in range(s.num_actions):
        a.q_values[b] = 0.0
    value, value_next, value_q = 0.0, 0.0, 0.0
    for block in range(s.num_blocks):
        if pending:
            update_heads(s, a, block, a.clock[ACTION_BEFORE])
        v, v_next, q = value_block(s, a, block, pending, action, clock)
        value += v
        value_next += v_next
        value_q += q
    action_next = choose_action(a.q_values, s.num_actions, s.explore_below, s.seed, clock + 1)
    if not s.has_value:
        value_next = a.q_values[0]
        for b in range(1, s.num_actions):
            value_next = max(value_next, a.q_values[b])
    target = reward + discount * value_next
    a.error[0], a.error[1] = np.float32(target - value), np.float32(target - value_q)
    a.error_sum[0] += abs(target - value) if s.has_value else abs(target - value_q)
    rows = a.clock[COUNT_NOW] + (s.num_blocks if s.has_bias else 0)
    num_heads = 2 if s.has_value else 1
    a.clock[WEIGHTS_TOUCHED] += (rows + num_heads * s.num_blocks) * s.hidden_units
    for k in range(a.clock[COUNT_NOW]):
        a.active_before[k] = a.active[k]
    a.clock[COUNT_BEFORE] = a.clock[COUNT_NOW]
    for k in range(count):
        a.active[k] = a.active_next[k]
    a.action_counts[action] += 1
    a.clock[COUNT_NOW] = count
    a.clock[ACTION_BEFORE] = action
    a.clock[ACTION_NOW] = action_next
    a.clock[STEP] = clock + 1
    a.clock[PENDING] = 1
    return action_next


@kernel
def run_network(
    s: Any, a: Any, tables: Any, states: Any, active: Any, discount: Any, bin_size: Any, rewards: Any
) -> None:
    """The fused loop: `bin_size` steps of environment and agent for each entry of `rewards`, their sum."""
    control = flush_denormals()
    for b in range(rewards.shape[0]):
        earned = 0.0
        for _ in range(bin_size):
            reward, count = step_environment(
                tables, states, a.clock[ACTION_NOW], s.seed, a.clock[STEP], active
            )
            value_network_step(s, a, count, reward, discount)
            earned += reward
        rewards[b] = earned
    restore_denormals(control)


@kernel
def settle_network(s: Any, a: Any) -> None:
    """Carry out the pending update, so that the arrays hold the state after the last step."""
    control = flush_denormals()
    if a.clock[PENDING]:
        for block in range(s.num_blocks):
            update_heads(s, a, block, a.clock[ACTION_BEFORE])
            count = note_learning(s, a, block, a.clock[LIST_NOW], a.clock[STEP] - 1)
            learn_noted(s, a, count, 0, s.units, block * s.units)
        a.clock[PENDING] = 0
    restore_denormals(control)
