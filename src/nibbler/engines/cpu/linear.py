"""Linear Q-learning in compiled code; box `linear_step` of the reference.

Weights lie as (feature, action), so that an active feature's are together. Momentum is lazy, counted in uses
of the action.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from nibbler.agents.config import LinearConfig
from nibbler.agents.policy import exploration_threshold
from nibbler.engines.cpu.compile import flush_denormals, inlined, kernel, restore_denormals
from nibbler.engines.cpu.layout import Array, power_tables, zeros
from nibbler.engines.cpu.policy import ACTION_NOW, COUNT_NOW, STEP, choose_action
from nibbler.engines.cpu.rows import decay_after, drift_after
from nibbler.mdp.simulate import step_environment

WEIGHTS_TOUCHED, CLOCK_SIZE = 3, 4


class LinearSettings(NamedTuple):
    """The numbers of a run that never change."""

    num_actions: int
    alpha: Any
    nu: Any
    gain: Any
    exact_nu: float
    explore_below: Any
    seed: Any


class LinearArrays(NamedTuple):
    """The arrays of a run."""

    weights: Array
    momentum: Array
    touched: Array  # int64
    action_counts: Array
    active: Array  # x_t
    active_next: Array  # x_{t+1}
    q_values: Array
    decay: Array
    drift: Array
    clock: Array
    error_sum: Array


def linear_settings(config: LinearConfig, num_actions: int, seed: int) -> LinearSettings:
    """The constants that the compiled functions need."""
    return LinearSettings(
        num_actions=num_actions,
        alpha=np.float32(config.step_size),
        nu=np.float32(config.momentum),
        gain=np.float32(1.0 - config.momentum),
        exact_nu=float(config.momentum),
        explore_below=np.uint64(exploration_threshold(config.epsilon)),
        seed=np.uint64(seed),
    )


def linear_arrays(config: LinearConfig, num_features: int, num_actions: int, max_active: int) -> LinearArrays:
    """Room for a run's state; `load_linear` fills it."""
    decay, drift = power_tables(config.momentum)
    size = num_features * num_actions
    return LinearArrays(
        weights=zeros(size),
        momentum=zeros(size),
        touched=zeros(size, np.int64),
        action_counts=np.zeros(num_actions, dtype=np.int64),
        active=np.zeros(max_active, dtype=np.int32),
        active_next=np.zeros(max_active, dtype=np.int32),
        q_values=zeros(num_actions, np.float64),
        decay=decay,
        drift=drift,
        clock=zeros(CLOCK_SIZE, np.int64),
        error_sum=np.zeros(1),
    )


@inlined
def weight_now(s: Any, a: Any, feature: Any, action: Any) -> Any:
    """A weight with the drift of its momentum since it was touched."""
    at = feature * s.num_actions + action
    drift = drift_after(a.drift, s.exact_nu, a.action_counts[action] - a.touched[at])
    return a.weights[at] - s.alpha * drift * a.momentum[at]


@inlined
def linear_step(s: Any, a: Any, count: Any, reward: Any, discount: Any) -> None:
    """One step of linear Q-learning: x_{t+1} is `active_next[:count]`."""
    action, step = a.clock[ACTION_NOW], a.clock[STEP] + 1
    for b in range(s.num_actions):
        a.q_values[b] = 0.0
        for k in range(count):
            a.q_values[b] += np.float64(weight_now(s, a, np.int64(a.active_next[k]), b))
    action_next = choose_action(a.q_values, s.num_actions, s.explore_below, s.seed, step)
    largest, value = a.q_values[0], 0.0
    for b in range(1, s.num_actions):
        largest = max(largest, a.q_values[b])
    for k in range(a.clock[COUNT_NOW]):
        value += np.float64(weight_now(s, a, np.int64(a.active[k]), action))
    error = reward + discount * largest - value
    for k in range(a.clock[COUNT_NOW]):
        at = np.int64(a.active[k]) * s.num_actions + action
        waited = a.action_counts[action] - a.touched[at]
        before = a.momentum[at]
        momentum = s.nu * decay_after(a.decay, s.exact_nu, waited) * before - s.gain * np.float32(error)
        drifted = a.weights[at] - s.alpha * drift_after(a.drift, s.exact_nu, waited) * before
        a.weights[at] = drifted - s.alpha * momentum
        a.momentum[at] = momentum
        a.touched[at] = a.action_counts[action] + 1
    a.error_sum[0] += abs(error)
    a.clock[WEIGHTS_TOUCHED] += a.clock[COUNT_NOW]
    for k in range(count):
        a.active[k] = a.active_next[k]
    a.action_counts[action] += 1
    a.clock[COUNT_NOW] = count
    a.clock[ACTION_NOW] = action_next
    a.clock[STEP] = step


@kernel
def run_linear(
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
            linear_step(s, a, count, reward, discount)
            earned += reward
        rewards[b] = earned
    restore_denormals(control)


def _views(s: LinearSettings, a: LinearArrays) -> dict[str, Array]:
    return {
        "linear_q": a.weights.reshape(-1, s.num_actions).T,
        "linear_q_momentum": a.momentum.reshape(-1, s.num_actions).T,
        "linear_q_touched": a.touched.reshape(-1, s.num_actions).T,
        "action_counts": a.action_counts,
        "value_error": a.error_sum.reshape(()),
        "weights_touched": a.clock[WEIGHTS_TOUCHED : WEIGHTS_TOUCHED + 1].reshape(()),
        "step": a.clock[STEP : STEP + 1].reshape(()),
        "action": a.clock[ACTION_NOW : ACTION_NOW + 1].reshape(()),
    }


def export_linear(s: LinearSettings, a: LinearArrays) -> dict[str, Array]:
    """Copies of everything that is learned, under the canonical names."""
    state = {name: np.array(view, order="C") for name, view in _views(s, a).items()}
    state["active"] = a.active[: a.clock[COUNT_NOW]].copy()
    return state


def load_linear(s: LinearSettings, a: LinearArrays, state: Mapping[str, Array]) -> None:
    """Take over a canonical state (of any engine)."""
    for name, view in _views(s, a).items():
        view[...] = state[name]
    active = np.asarray(state["active"], dtype=np.int32)
    a.active[: active.size] = active
    a.clock[COUNT_NOW] = active.size
