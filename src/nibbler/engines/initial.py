"""Where every engine starts from: the same random selections and weights.

Values are float64 and round to the same float32 in every engine. With g' rows per question and w = ceil(d /
4) slots per row of d weights (lane j % 4 of slot j // 4 belongs to unit j):

- SELECTION, step 0: question i's inputs are a Fisher-Yates shuffle from slot i * ceil(g / 4); the cumulants
  from h * ceil(g / 4);
- HIDDEN: row p of question i has slots from (i * g' + p) * w, at step 0 to begin with and at step t + 1
  when the update of transition t re-initialises it;
- HEADS, step 0: the state value head of question i has slots from i * w, the head of action a from ((a + 1)
  * h + i) * w.

A value network draws as one question whose rows are all features (then the biases of its blocks); its heads
have B * d units.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from nibbler.agents.config import LinearConfig, NibblerConfig, ValueNetworkConfig
from nibbler.agents.policy import epsilon_greedy
from nibbler.mdp.philox import ACTION, HEADS, HIDDEN, SELECTION, draw_array, permutation


def weight_spread(fan_in: int) -> float:
    """Half the width of a uniform distribution with standard deviation 1 / sqrt(fan_in)."""
    return math.sqrt(3.0 / fan_in)


def uniform_weights(words: np.ndarray, fan_in: int | np.ndarray) -> np.ndarray:
    """Weights in [-spread, spread) from 32-bit words, by their upper 24 bits."""
    spread = weight_spread(fan_in) if isinstance(fan_in, int) else np.sqrt(3.0 / fan_in)
    values: np.ndarray = ((words >> np.uint32(8)) * 2.0**-23 - 1.0) * spread
    return values


def weight_rows(
    seed: int, stream: int, step: int, rows: np.ndarray, width: int, fan_in: int | np.ndarray
) -> np.ndarray:
    """Random weights [len(rows), width]: row r has the ceil(width / 4) slots from r * ceil(width / 4)."""
    slots_per_row = -(-width // 4)
    slots = np.asarray(rows, dtype=np.int64)[:, None] * slots_per_row + np.arange(slots_per_row)
    words = draw_array(seed, stream, step, slots.ravel()).reshape(len(rows), slots_per_row * 4)
    return uniform_weights(words[:, :width], fan_in)


def fresh_hidden_rows(
    config: NibblerConfig, seed: int, step: int, question: int, positions: np.ndarray
) -> np.ndarray:
    """New random rows of a question's w_u, for the update that ends at `step` (= t + 1)."""
    rows = question * config.rows_per_question + positions
    return weight_rows(seed, HIDDEN, step, rows, config.hidden_units, config.inputs_per_question)


def initial_nibbler_state(
    config: NibblerConfig, num_features: int, num_actions: int, seed: int
) -> dict[str, np.ndarray]:
    """Nibbler before its first step, under the canonical names, in float64."""
    config.validate_for(num_features, num_actions)
    m, actions = num_features, num_actions
    h, g, d = config.num_questions, config.inputs_per_question, config.hidden_units
    rows, slots = config.rows_per_question, -(-config.inputs_per_question // 4)
    inputs = [permutation(seed, SELECTION, m, count=g, first_slot=i * slots) for i in range(h)]
    hidden = np.empty((h, rows, d))
    for i in range(h):  # question by question, so that the draws' scratch memory stays small
        hidden[i] = fresh_hidden_rows(config, seed, 0, i, np.arange(rows))
    heads = weight_rows(seed, HEADS, 0, np.arange((1 + actions) * h), d, d).reshape(1 + actions, h, d)
    state: dict[str, np.ndarray] = {
        "cumulants": permutation(seed, SELECTION, m, count=h, first_slot=h * slots),
        "inputs": np.stack(inputs),
        "hidden_weights": hidden,
        "answer_v": heads[0],
        "answer_q": np.ascontiguousarray(heads[1:].transpose(1, 0, 2)),
        "main_v_base": np.zeros(m),
        "main_v_hidden": np.zeros((h, d)),
        "main_q_base": np.zeros((actions, m)),
        "main_q_hidden": np.zeros((actions, h, d)),
        "support": np.zeros((h, m)),
        "discovery": np.zeros(m),
    }
    state["hidden_momentum"] = np.zeros_like(hidden)
    for name in ("answer_v", "answer_q", "main_v_base", "main_v_hidden", "main_q_base", "main_q_hidden"):
        state[f"{name}_momentum"] = np.zeros_like(state[name])
    if config.linear_momentum > 0:
        for name in ("support", "discovery"):
            state[f"{name}_momentum"] = np.zeros_like(state[name])
    state |= {
        "hidden_touched": np.zeros((h, rows), dtype=np.int64),
        "main_v_base_touched": np.zeros(m, dtype=np.int64),
        "main_q_base_touched": np.zeros((actions, m), dtype=np.int64),
        "action_counts": np.zeros(actions, dtype=np.int64),
        "input_swaps": np.zeros(h, dtype=np.int64),
        "cumulant_swaps": np.zeros((), dtype=np.int64),
        "answer_error": np.zeros(h),
        "main_error": np.zeros(()),
        "weights_touched": np.zeros((), dtype=np.int64),
    }
    return state


def initial_network_state(
    config: ValueNetworkConfig, block_of_feature: np.ndarray, num_actions: int, seed: int
) -> dict[str, np.ndarray]:
    """A value network before its first step: one block for Q and QV, one per component if known."""
    block_of_feature = np.asarray(block_of_feature, dtype=np.int32)
    m, blocks, d = len(block_of_feature), int(block_of_feature.max()) + 1, config.hidden_units
    config.validate_for(m, num_actions)
    block_of_row = np.append(block_of_feature, np.arange(blocks)) if config.hidden_bias else block_of_feature
    fan_in = np.bincount(block_of_feature, minlength=blocks)[block_of_row][:, None]
    rows, units = len(block_of_row), blocks * d
    heads = weight_rows(seed, HEADS, 0, np.arange(1 + num_actions), units, units)
    state: dict[str, np.ndarray] = {
        "block_of_feature": block_of_feature,
        "hidden_weights": weight_rows(seed, HIDDEN, 0, np.arange(rows), d, fan_in),
        "hidden_touched": np.zeros(rows, dtype=np.int64),
        "head_q": heads[1:].copy(),
        "action_counts": np.zeros(num_actions, dtype=np.int64),
        "value_error": np.zeros(()),
        "weights_touched": np.zeros((), dtype=np.int64),
    }
    if config.learns_state_value:
        state["head_v"] = heads[0].copy()
        state["head_v_momentum"] = np.zeros(units)
    state["hidden_momentum"] = np.zeros((rows, d))
    state["head_q_momentum"] = np.zeros((num_actions, units))
    return state


def network_action_values(state: Mapping[str, np.ndarray], active: np.ndarray) -> np.ndarray:
    """Action values of a value network's canonical state, for a list of active features."""
    weights, blocks = state["hidden_weights"], state["block_of_feature"]
    units = np.zeros((int(blocks.max()) + 1, weights.shape[1]))
    np.add.at(units, blocks[active], weights[active])
    if len(weights) > len(blocks):  # the biases of the blocks
        units += weights[len(blocks) :]
    values: np.ndarray = state["head_q"] @ np.maximum(units, 0.0).ravel()
    return values


def select_action(action_values: np.ndarray, epsilon: float, seed: int, step: int, slot: int = 0) -> int:
    """A_t: epsilon-greedy by the two words that step t has for it (slot 1 where a new episode begins)."""
    return epsilon_greedy(action_values, epsilon, draw_array(seed, ACTION, step, [slot])[0])


def initial_linear_state(config: LinearConfig, num_features: int, num_actions: int) -> dict[str, Any]:
    """The linear learner before its first step; `linear_q_touched` counts steps that took the action."""
    config.validate_for(num_features, num_actions)
    return {
        "linear_q": np.zeros((num_actions, num_features)),
        "linear_q_momentum": np.zeros((num_actions, num_features)),
        "linear_q_touched": np.zeros((num_actions, num_features), dtype=np.int64),
        "action_counts": np.zeros(num_actions, dtype=np.int64),
        "value_error": np.zeros(()),
        "weights_touched": np.zeros((), dtype=np.int64),
    }
