"""Where a value network's state lies in memory on this engine, and the way from and to the canonical arrays.

Every feature feeds the d hidden units of its block; flat networks have one block. Memory, flat float32:

| array | element | meaning |
| --- | --- | --- |
| hidden | (row, 0 or 1, unit) | w_u, its momentum right behind, then a gap; rows: features, biases |
| heads | (line, block, unit) | 0 the features of x_t, 1 v, 2 its momentum, 3 + 2a q_a, 4 + 2a its momentum |
| list_rows | (0 or 1, block, entry) | the rows that are on at x_{t-1} and at x_t |
| enter_rows | (0 or 1, block, entry) | the rows that go on at x_t and at x_{t+1} |

d is padded to `units`, a multiple of 64. The gap keeps rows out of each other's way: d is mostly a power of
two, and without it all rows would want the same few places of the cache.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from nibbler.agents.config import ValueNetworkConfig
from nibbler.agents.policy import exploration_threshold
from nibbler.engines.cpu.layout import Array, padded, power_tables, zeros
from nibbler.engines.cpu.rows_twice import STRIP

VALUE, ACTION_VALUE = 1, 3  # lines of `heads`
CACHE_LINE = 16  # floats

# Entries of `clock`.
STEP, ACTION_NOW, COUNT_NOW, PENDING, ACTION_BEFORE, WEIGHTS_TOUCHED = range(6)
LIST_NOW, ENTRIES, COUNT_BEFORE, LISTS_KNOWN, CLOCK_SIZE = 6, 7, 8, 9, 10
NEVER = -3  # a time further back than any that is asked for


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
    latest: Array  # int64 (row): when it was last on, x_{t+1} included
    until: Array  # int64 (row): when it was last on before it last went on
    active: Array  # x_t
    active_next: Array  # x_{t+1}
    active_before: Array  # x_{t-1}
    row_offset: Array  # scratch, as are the next; see `rows`
    row_sign: Array
    row_next_sign: Array
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
    units = padded(config.hidden_units, STRIP)
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
        latest=zeros(rows, np.int64),
        until=zeros(rows, np.int64),
        active=np.zeros(max_active, dtype=np.int32),
        active_next=np.zeros(max_active, dtype=np.int32),
        active_before=np.zeros(max_active, dtype=np.int32),
        row_offset=zeros(3 * s.list_size, np.int64),
        row_sign=zeros(3 * s.list_size),
        row_next_sign=zeros(3 * s.list_size),
        row_drift=zeros(3 * s.list_size),
        row_decay=zeros(3 * s.list_size),
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
    a.latest[:] = NEVER
    a.until[:] = NEVER
