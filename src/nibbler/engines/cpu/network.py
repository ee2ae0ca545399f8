"""Q-learning, QV-learning and the known structure in compiled code: one value network over all bits.

Every feature feeds the d hidden units of its block; flat networks have one block. Memory, flat float32:

| array | element | meaning |
| --- | --- | --- |
| hidden | (row, 0 or 1, unit) | w_u, its momentum right behind, then a gap; rows: features, biases |
| heads | (line, block, unit) | 0 the features of x_t, 1 v, 2 its momentum, 3 + 2a q_a, 4 + 2a its momentum |
| list_rows | (0 or 1, block, entry) | the rows that are on at x_{t-1} and at x_t |
| enter_rows, leave_rows | (0 or 1, block, entry) | the rows that go on or off, to x_t and to x_{t+1} |

d is padded to `units`, a multiple of 32. The gap keeps rows out of each other's way: d is mostly a power of
two, and without it all rows would want the same few places of the cache. As for Nibbler, the update of step
t - 1 is carried out at step t, block by block, right before the block's weights are read again. Boxes of the
reference: `value_network_step`, `update_network`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from nibbler.agents.config import ValueNetworkConfig
from nibbler.agents.policy import exploration_threshold
from nibbler.engines.cpu.compile import flush_denormals, inlined, kernel, restore_denormals
from nibbler.engines.cpu.lanes import load, multiply_add, rectify, splat, store, total, where_positive
from nibbler.engines.cpu.layout import UNIT_BLOCK, Array, padded, power_tables, zeros
from nibbler.engines.cpu.policy import choose_action
from nibbler.engines.cpu.rows import (
    co_opt_line,
    co_opt_rows,
    decay_after,
    dot_line,
    drift_after,
    sum_rows,
)
from nibbler.mdp.simulate import step_environment

VALUE, ACTION_VALUE = 1, 3  # lines of `heads`
CACHE_LINE = 16  # floats

# Entries of `clock`.
STEP, ACTION_NOW, COUNT_NOW, PENDING, ACTION_BEFORE, WEIGHTS_TOUCHED = range(6)
LIST_NOW, CHANGES, COUNT_BEFORE, LISTS_KNOWN, CLOCK_SIZE = 6, 7, 8, 9, 10


class NetworkSettings(NamedTuple):
    """The numbers of a run that never change."""

    num_features: int
    num_actions: int
    num_blocks: int
    hidden_units: int  # d
    units: int  # d padded
    row_size: int  # from one row of `hidden` to the next
    list_size: int  # room for the active rows of a block
    has_value: bool  # QV; without it Q-learning
    has_bias: bool
    alpha: Any
    nu: Any
    gain: Any
    exact_nu: float
    explore_below: Any
    seed: Any


class NetworkArrays(NamedTuple):
    """The arrays of a run."""

    hidden: Array
    touched: Array  # int64 (row)
    heads: Array
    block_of_feature: Array
    list_rows: Array
    list_count: Array
    enter_rows: Array
    enter_count: Array
    leave_rows: Array
    leave_count: Array
    left: Array  # int64 (row): one more than the step at which it last went off
    mark: Array  # scratch (feature)
    active: Array  # x_t
    active_next: Array  # x_{t+1}
    active_before: Array  # x_{t-1}
    row_offset: Array  # scratch, as are the next; see `rows`
    row_sign: Array
    row_drift: Array
    row_decay: Array
    gradient: Array
    next_features: Array
    q_values: Array
    error: Array  # float32[2]: v, q
    decay: Array
    drift: Array
    clock: Array
    action_counts: Array
    error_sum: Array  # float64[1]


def network_settings(
    config: ValueNetworkConfig, block_of_feature: Array, num_actions: int, seed: int
) -> NetworkSettings:
    """The constants that the compiled functions need."""
    sizes = np.bincount(block_of_feature)
    units = padded(config.hidden_units, UNIT_BLOCK)
    return NetworkSettings(
        num_features=len(block_of_feature),
        num_actions=num_actions,
        num_blocks=len(sizes),
        hidden_units=config.hidden_units,
        units=units,
        row_size=2 * units + CACHE_LINE,
        list_size=int(sizes.max()) + 1,
        has_value=config.learns_state_value,
        has_bias=config.hidden_bias,
        alpha=np.float32(config.step_size),
        nu=np.float32(config.momentum),
        gain=np.float32(1.0 - config.momentum),
        exact_nu=float(config.momentum),
        explore_below=np.uint64(exploration_threshold(config.epsilon)),
        seed=np.uint64(seed),
    )


def network_arrays(s: NetworkSettings, config: ValueNetworkConfig, max_active: int) -> NetworkArrays:
    """Room for a run's state; `load_network` fills it."""
    rows = s.num_features + (s.num_blocks if s.has_bias else 0)
    decay, drift = power_tables(config.momentum)
    return NetworkArrays(
        hidden=zeros(rows * s.row_size),
        touched=zeros(rows, np.int64),
        heads=zeros((ACTION_VALUE + 2 * s.num_actions) * s.num_blocks * s.units),
        block_of_feature=np.zeros(s.num_features, dtype=np.int32),
        list_rows=zeros(2 * s.num_blocks * s.list_size, np.int32),
        list_count=zeros(2 * s.num_blocks, np.int32),
        enter_rows=zeros(2 * s.num_blocks * s.list_size, np.int32),
        enter_count=zeros(2 * s.num_blocks, np.int32),
        leave_rows=zeros(2 * s.num_blocks * s.list_size, np.int32),
        leave_count=zeros(2 * s.num_blocks, np.int32),
        left=zeros(rows, np.int64),
        mark=np.zeros(s.num_features, dtype=np.uint8),
        active=np.zeros(max_active, dtype=np.int32),
        active_next=np.zeros(max_active, dtype=np.int32),
        active_before=np.zeros(max_active, dtype=np.int32),
        row_offset=zeros(2 * s.list_size, np.int64),
        row_sign=zeros(2 * s.list_size),
        row_drift=zeros(2 * s.list_size),
        row_decay=zeros(2 * s.list_size),
        gradient=zeros(s.units),
        next_features=zeros(s.units),
        q_values=zeros(s.num_actions, np.float64),
        error=zeros(2),
        decay=decay,
        drift=drift,
        clock=zeros(CLOCK_SIZE, np.int64),
        action_counts=np.zeros(s.num_actions, dtype=np.int64),
        error_sum=np.zeros(1),
    )


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
def list_block_changes(
    s: Any, a: Any, which: Any, stamp: Any, old: Any, old_count: Any, new: Any, new_count: Any
) -> None:
    """For every block the rows that go on and those that go off between two observations."""
    for place in range(which * s.num_blocks, (which + 1) * s.num_blocks):
        a.enter_count[place] = 0
        a.leave_count[place] = 0
    for k in range(old_count):
        a.mark[old[k]] = 1
    for k in range(new_count):
        if a.mark[new[k]]:
            a.mark[new[k]] = 2
        else:
            append_row(s, a, np.int64(new[k]), which, a.enter_rows, a.enter_count)
    for k in range(old_count):
        if a.mark[old[k]] == 1:
            append_row(s, a, np.int64(old[k]), which, a.leave_rows, a.leave_count)
            a.left[old[k]] = stamp
        a.mark[old[k]] = 0


@inlined
def turn_block_lists(s: Any, a: Any, count: Any) -> None:
    """Make the lists for a step from x_t to x_{t+1}, which has `count` features on."""
    a.clock[LIST_NOW], a.clock[CHANGES] = 1 - a.clock[LIST_NOW], 1 - a.clock[CHANGES]
    step, num_now, num_before = a.clock[STEP], a.clock[COUNT_NOW], a.clock[COUNT_BEFORE]
    if not a.clock[LISTS_KNOWN]:
        a.clock[LISTS_KNOWN] = 1
        list_block_rows(s, a, 1 - a.clock[LIST_NOW], a.active_before, num_before)
        list_block_changes(s, a, 1 - a.clock[CHANGES], step, a.active_before, num_before, a.active, num_now)
    list_block_rows(s, a, a.clock[LIST_NOW], a.active, num_now)
    list_block_changes(s, a, a.clock[CHANGES], step + 1, a.active, num_now, a.active_next, count)


@inlined
def update_block(s: Any, a: Any, block: Any, which: Any, action: Any, clock: Any) -> None:
    """`update_network` for the hidden units of one block."""
    units, line = s.units, s.num_blocks * s.units
    heads, at_features = a.heads, block * s.units
    at_v = VALUE * line + at_features
    at_q = (ACTION_VALUE + 2 * action) * line + at_features
    nu, alpha = splat(s.nu), splat(-s.alpha)
    error_v, error_q = splat(-s.gain * a.error[0]), splat(-s.gain * a.error[1])
    for unit in range(0, units, 16):
        features = load(heads, at_features + unit)
        back = error_q * load(heads, at_q + unit)
        co_opt_line(heads, at_q, line, features, unit, error_q, alpha, nu)
        if s.has_value:
            back = multiply_add(error_v, load(heads, at_v + unit), back)
            co_opt_line(heads, at_v, line, features, unit, error_v, alpha, nu)
        store(a.gradient, unit, where_positive(features, back))
    place = which * s.num_blocks + block
    count = np.int64(a.list_count[place])
    for k in range(count):
        row = np.int64(a.list_rows[place * s.list_size + k])
        waited = clock - a.touched[row]
        a.row_offset[k] = row * s.row_size
        a.row_sign[k] = np.float32(0.0) if a.left[row] == clock + 1 else np.float32(1.0)
        a.row_drift[k] = -s.alpha * drift_after(a.drift, s.exact_nu, waited)
        a.row_decay[k] = s.nu * decay_after(a.decay, s.exact_nu, waited)
        a.touched[row] = clock + 1
    co_opt_rows(
        a.hidden,
        a.row_offset,
        a.row_sign,
        a.row_drift,
        a.row_decay,
        count,
        units,
        a.gradient,
        s.alpha,
        heads,
        at_features,
    )


@inlined
def note_row(s: Any, a: Any, row: Any, k: Any, sign: Any, clock: Any) -> None:
    """Make entry k of the scratch lists for `sum_rows` a row."""
    a.row_offset[k] = row * s.row_size
    a.row_sign[k] = sign
    a.row_drift[k] = -s.alpha * drift_after(a.drift, s.exact_nu, clock - a.touched[row])


@inlined
def sum_noted(s: Any, a: Any, count: Any, start: Any, start_at: Any, scale: Any, sums: Any, at: Any) -> None:
    """`sum_rows` over the rows that were noted."""
    sum_rows(
        a.hidden, a.row_offset, a.row_sign, a.row_drift, count, s.units, start, start_at, scale, sums, at
    )


@inlined
def sum_block_now(s: Any, a: Any, block: Any, pending: Any, clock: Any, at: Any) -> None:
    """What enters a block's hidden units at x_t: the rows that stayed on, then those that went on.

    The first part is left by `update_block`, unless that was carried out earlier.
    """
    if not pending:
        place = (1 - a.clock[LIST_NOW]) * s.num_blocks + block
        stayed = 0
        for k in range(a.list_count[place]):
            row = np.int64(a.list_rows[place * s.list_size + k])
            if a.left[row] != clock:
                note_row(s, a, row, stayed, np.float32(1.0), clock)
                stayed += 1
        sum_noted(s, a, stayed, a.heads, at, np.float32(0.0), a.heads, at)
    place = (1 - a.clock[CHANGES]) * s.num_blocks + block
    count = np.int64(a.enter_count[place])
    for k in range(count):
        note_row(s, a, np.int64(a.enter_rows[place * s.list_size + k]), k, np.float32(1.0), clock)
    sum_noted(s, a, count, a.heads, at, np.float32(1.0), a.heads, at)


@inlined
def sum_block_next(s: Any, a: Any, block: Any, clock: Any, at: Any) -> None:
    """What enters them at x_{t+1}: as at x_t, with the rows that go on and without those that go off."""
    place = a.clock[CHANGES] * s.num_blocks + block
    entering, leaving = np.int64(a.enter_count[place]), np.int64(a.leave_count[place])
    for k in range(entering):
        note_row(s, a, np.int64(a.enter_rows[place * s.list_size + k]), k, np.float32(1.0), clock)
    for k in range(leaving):
        row = np.int64(a.leave_rows[place * s.list_size + k])
        note_row(s, a, row, entering + k, np.float32(-1.0), clock)
    sum_noted(s, a, entering + leaving, a.heads, at, np.float32(1.0), a.next_features, 0)


@inlined
def value_block(s: Any, a: Any, block: Any, pending: Any, action: Any, clock: Any) -> Any:
    """A block's share of V(x_t), V(x_{t+1}) and Q(x_t, a_t); adds that of every Q(x_{t+1}, a) to q_values."""
    units, line = s.units, s.num_blocks * s.units
    heads, at_features = a.heads, block * s.units
    at_v = VALUE * line + at_features
    at_q = (ACTION_VALUE + 2 * action) * line + at_features
    sum_block_now(s, a, block, pending, clock, at_features)
    sum_block_next(s, a, block, clock, at_features)
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
            update_block(s, a, block, 1 - a.clock[LIST_NOW], a.clock[ACTION_BEFORE], clock - 1)
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
            update_block(s, a, block, a.clock[LIST_NOW], a.clock[ACTION_BEFORE], a.clock[STEP] - 1)
        a.clock[PENDING] = 0
    restore_denormals(control)


def _views(s: NetworkSettings, a: NetworkArrays) -> dict[str, Array]:
    d, blocks = s.hidden_units, s.num_blocks
    hidden = a.hidden.reshape(-1, s.row_size)
    heads = a.heads.reshape(-1, blocks, s.units)[..., :d]
    views = {
        "block_of_feature": a.block_of_feature,
        "hidden_weights": hidden[:, :d],
        "hidden_momentum": hidden[:, s.units : s.units + d],
        "hidden_touched": a.touched,
        "head_q": heads[ACTION_VALUE::2],
        "head_q_momentum": heads[ACTION_VALUE + 1 :: 2],
        "action_counts": a.action_counts,
        "value_error": a.error_sum.reshape(()),
        "weights_touched": a.clock[WEIGHTS_TOUCHED : WEIGHTS_TOUCHED + 1].reshape(()),
        "step": a.clock[STEP : STEP + 1].reshape(()),
        "action": a.clock[ACTION_NOW : ACTION_NOW + 1].reshape(()),
    }
    if s.has_value:
        views |= {"head_v": heads[VALUE], "head_v_momentum": heads[VALUE + 1]}
    return views


def export_network(s: NetworkSettings, a: NetworkArrays) -> dict[str, Array]:
    """Copies of everything that is learned, under the canonical names (nothing may be pending)."""
    state = {name: np.array(view, order="C") for name, view in _views(s, a).items()}
    for name in ("head_v", "head_v_momentum", "head_q", "head_q_momentum"):
        if name in state:
            blocks_and_units = s.num_blocks * s.hidden_units
            state[name] = state[name].reshape(*state[name].shape[:-2], blocks_and_units)
    state["active"] = a.active[: a.clock[COUNT_NOW]].copy()
    state["active_before"] = a.active_before[: a.clock[COUNT_BEFORE]].copy()
    return state


def load_network(s: NetworkSettings, a: NetworkArrays, state: Mapping[str, Array]) -> None:
    """Take over a canonical state (of any engine)."""
    a.clock[:] = 0
    for name, view in _views(s, a).items():
        given = np.asarray(state[name])
        if given.size != view.size:
            raise ValueError(f"{name} has shape {given.shape} in this state; it does not fit this run")
        view[...] = given.reshape(view.shape)
    active = np.asarray(state["active"], dtype=np.int32)
    a.active[: active.size] = active
    a.clock[COUNT_NOW] = active.size
    # In which order the rows of x_t are summed, so that a run that goes on rounds alike; else any will do.
    before = np.asarray(state.get("active_before", active), dtype=np.int32)
    a.active_before[: before.size] = before
    a.clock[COUNT_BEFORE] = before.size
    a.left[:] = -1
    a.mark[:] = 0
