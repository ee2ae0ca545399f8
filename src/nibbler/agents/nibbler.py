"""Nibbler: Algorithms 1 to 7 of the paper, one function each, in the paper's order, in float64 and dense.

| paper | here | what it does |
| --- | --- | --- |
| Algorithm 1 | `nibbler_step` | one step of the loop |
| Algorithm 2 | `update_main` | main state and action values |
| Algorithm 3 | `update_answers` | the GVF answers, each a `ValueNetwork` |
| Algorithm 4 | `select_inputs` | K_L: which features each answer sees |
| Algorithm 5 | `select_cumulants` | C_L: which features are asked about |
| Algorithm 6 | `incremental_top_k` | at most one swap per call |
| Algorithm 7 | `co_opt` | SGD with momentum (in `value_network`) |

The other engines use the same names for the same boxes. Symbols: m features, h questions, g inputs and d
hidden units per question, A actions. `x_t` and `x_next` are the base features x^b as 0.0/1.0 vectors of
length m.

Counters: `answer_error[i]` and `main_error` are sums of |Y - V| over all steps. `weights_touched` counts
the weights that a step's gradients reach because their input is on: with n active features and k_i active
inputs of question i (the bias is one) at x_t, a step touches 2(n + hd) in the main learner, d(k_i + 2) in
each answer, and (h + 1)n in the linear ones.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from nibbler.agents.config import NibblerConfig
from nibbler.agents.value_network import ValueNetwork, co_opt, update_network

SelectAction = Callable[[np.ndarray], int]  # action values -> action
FreshRows = Callable[[int, np.ndarray], np.ndarray]  # question, positions -> random rows of its w_u


@dataclass
class NibblerState:
    """All that Nibbler learns; the boxes change it in place. A momentum (theta) stands beside its weights."""

    cumulants: np.ndarray  # C_L int32[h]
    inputs: np.ndarray  # K_L int32[h, g]
    hidden_weights: np.ndarray  # w_u [h, g', d], g' = g or g + 1 with a bias, which is last and always on
    hidden_momentum: np.ndarray
    answer_v: np.ndarray  # w_v^i [h, d]
    answer_v_momentum: np.ndarray
    answer_q: np.ndarray  # w_q^i [h, A, d]
    answer_q_momentum: np.ndarray
    main_v_base: np.ndarray  # w_v over x^b [m]
    main_v_base_momentum: np.ndarray
    main_v_hidden: np.ndarray  # w_v over x^e [h, d]
    main_v_hidden_momentum: np.ndarray
    main_q_base: np.ndarray  # w_q over x^b [A, m]
    main_q_base_momentum: np.ndarray
    main_q_hidden: np.ndarray  # w_q over x^e [A, h, d]
    main_q_hidden_momentum: np.ndarray
    support: np.ndarray  # w_support [h, m]
    support_momentum: np.ndarray
    discovery: np.ndarray  # w_discovery [m]
    discovery_momentum: np.ndarray
    input_swaps: np.ndarray  # int64[h]
    answer_error: np.ndarray  # float64[h]
    action_counts: np.ndarray  # int64[A]: steps that took each action
    cumulant_swaps: int = 0
    main_error: float = 0.0
    weights_touched: int = field(default=0)

    def answer_inputs(self, question: int, x: np.ndarray) -> np.ndarray:
        """x^{b,i}: the features that answer i sees, and a 1 for the bias where there is one."""
        selected = x[self.inputs[question]]
        has_bias = self.hidden_weights.shape[1] > selected.size
        return np.append(selected, 1.0) if has_bias else selected

    def answer(self, question: int) -> ValueNetwork:
        """GVF answer i as a value network whose arrays are views of this state."""
        return ValueNetwork(
            self.hidden_weights[question],
            self.hidden_momentum[question],
            self.answer_q[question],
            self.answer_q_momentum[question],
            self.answer_v[question],
            self.answer_v_momentum[question],
        )

    def nonlinear_features(self, x: np.ndarray) -> np.ndarray:
        """x^e [h, d]: the features that all answers construct from x."""
        questions = range(len(self.cumulants))
        return np.stack([self.answer(i).features(self.answer_inputs(i, x)) for i in questions])

    def main_state_value(self, x: np.ndarray, x_e: np.ndarray) -> float:
        """V-hat of the main learner, linear in x^f = (x^b, x^e)."""
        return float(self.main_v_base @ x + np.vdot(self.main_v_hidden, x_e))

    def main_action_values(self, x: np.ndarray, x_e: np.ndarray) -> np.ndarray:
        """Q-hat of the main learner for every action, linear in x^f."""
        return self.main_q_base @ x + self.main_q_hidden.reshape(len(self.main_q_hidden), -1) @ x_e.ravel()


def nibbler_step(
    state: NibblerState,
    config: NibblerConfig,
    x_t: np.ndarray,
    a_t: int,
    reward: float,
    x_next: np.ndarray,
    select_action: SelectAction,
    fresh_rows: FreshRows,
    discount: float | None = None,
) -> int:
    """Algorithm 1: one step of the loop, given R_{t+1} and x_{t+1}; changes the state and returns A_{t+1}.

    `discount` replaces gamma for this transition only: 0 where an episode ends, so that nothing is
    bootstrapped.
    """
    gamma = config.discount if discount is None else discount
    e_t = state.nonlinear_features(
        x_t
    )  # with the current weights, as the loss is taken at the current parameters
    e_next = state.nonlinear_features(x_next)
    a_next = select_action(state.main_action_values(x_next, e_next))
    update_main(state, config, x_t, e_t, a_t, reward, x_next, e_next, gamma)
    update_answers(state, config, x_t, e_t, a_t, x_next, e_next, gamma)
    cumulants_next = x_next[state.cumulants]
    select_inputs(state, config, x_t, x_next, cumulants_next, gamma, fresh_rows)
    select_cumulants(state, config, x_t, reward, fresh_rows)
    return a_next


def update_main(
    state: NibblerState,
    config: NibblerConfig,
    x_t: np.ndarray,
    e_t: np.ndarray,
    a_t: int,
    reward: float,
    x_next: np.ndarray,
    e_next: np.ndarray,
    gamma: float,
) -> None:
    """Algorithm 2: update the main state and action values, both towards R_{t+1} + gamma V(x_{t+1})."""
    alpha, nu = config.main_alpha, config.momentum
    target = reward + gamma * state.main_state_value(x_next, e_next)
    error_v = target - state.main_state_value(x_t, e_t)
    error_q = target - state.main_action_values(x_t, e_t)[a_t]
    state.main_v_base, state.main_v_base_momentum = co_opt(
        state.main_v_base, alpha, -error_v * x_t, state.main_v_base_momentum, nu
    )
    state.main_v_hidden, state.main_v_hidden_momentum = co_opt(
        state.main_v_hidden, alpha, -error_v * e_t, state.main_v_hidden_momentum, nu
    )
    state.main_q_base[a_t], state.main_q_base_momentum[a_t] = co_opt(
        state.main_q_base[a_t], alpha, -error_q * x_t, state.main_q_base_momentum[a_t], nu
    )
    state.main_q_hidden[a_t], state.main_q_hidden_momentum[a_t] = co_opt(
        state.main_q_hidden[a_t], alpha, -error_q * e_t, state.main_q_hidden_momentum[a_t], nu
    )
    state.action_counts[a_t] += 1
    state.main_error += abs(error_v)
    state.weights_touched += 2 * (int(np.count_nonzero(x_t)) + e_t.size)


def update_answers(
    state: NibblerState,
    config: NibblerConfig,
    x_t: np.ndarray,
    e_t: np.ndarray,
    a_t: int,
    x_next: np.ndarray,
    e_next: np.ndarray,
    gamma: float,
) -> None:
    """Algorithm 3: update the heads and the nonlinear features of every GVF answer."""
    for i, cumulant_feature in enumerate(state.cumulants):
        inputs_t = state.answer_inputs(i, x_t)
        gradients = update_network(
            state.answer(i),
            inputs_t,
            e_t[i],
            a_t,
            float(x_next[cumulant_feature]),  # C^i_{t+1}
            e_next[i],
            gamma,
            config.answer_alpha,
            config.momentum,
        )
        state.answer_error[i] += abs(gradients.error_v)
        state.weights_touched += config.hidden_units * (int(np.count_nonzero(inputs_t)) + 2)


def select_inputs(
    state: NibblerState,
    config: NibblerConfig,
    x_t: np.ndarray,
    x_next: np.ndarray,
    cumulants_next: np.ndarray,
    gamma: float,
    fresh_rows: FreshRows,
) -> None:
    """Algorithm 4: update K_L, what each answer sees, by the weights of a linear answer to its question."""
    for i, cumulant in enumerate(cumulants_next):
        is_selected = membership(state.inputs[i], x_t.size)
        changed, position = incremental_top_k(
            state.inputs[i], is_selected, config.input_threshold, np.abs(state.support[i])
        )
        if changed:
            random = config.swapped_input == "random"
            state.hidden_weights[i, position] = fresh_rows(i, np.array([position]))[0] if random else 0.0
            state.hidden_momentum[i, position] = 0.0
            state.input_swaps[i] += 1
        error = cumulant + gamma * (state.support[i] @ x_next) - state.support[i] @ x_t
        state.support[i], state.support_momentum[i] = co_opt(
            state.support[i],
            config.linear_alpha,
            -error * x_t,
            state.support_momentum[i],
            config.linear_momentum,
        )
    state.weights_touched += len(state.inputs) * int(np.count_nonzero(x_t))


def select_cumulants(
    state: NibblerState, config: NibblerConfig, x_t: np.ndarray, reward: float, fresh_rows: FreshRows
) -> None:
    """Algorithm 5: update C_L, the features asked about, by the weights of a linear one-step reward model."""
    is_selected = membership(state.cumulants, x_t.size)
    changed, question = incremental_top_k(
        state.cumulants, is_selected, config.cumulant_threshold, np.abs(state.discovery)
    )
    if changed:
        if config.changed_question == "random":
            rows = np.arange(state.hidden_weights.shape[1])
            state.hidden_weights[question] = fresh_rows(question, rows)
            state.hidden_momentum[question] = 0.0
        state.cumulant_swaps += 1
    error = reward - state.discovery @ x_t
    state.discovery, state.discovery_momentum = co_opt(
        state.discovery, config.linear_alpha, -error * x_t, state.discovery_momentum, config.linear_momentum
    )
    state.weights_touched += int(np.count_nonzero(x_t))


def incremental_top_k(
    selected: np.ndarray, is_selected: np.ndarray, threshold: float, utility: np.ndarray
) -> tuple[bool, int]:
    """Algorithm 6: swap the least useful selected feature for the most useful other one, if that is better.

    Changes the list `selected` (A_L) and the mask `is_selected` (A_M) in place; returns whether a swap
    happened and its position in the list (-1 if none). Ties go to the lowest feature index.
    """
    if is_selected.all():
        return False, -1
    low = int(np.argmin(np.where(is_selected, utility, np.inf)))
    high = int(np.argmax(np.where(is_selected, -np.inf, utility)))
    if not utility[low] + threshold < utility[high]:
        return False, -1
    is_selected[low] = False
    is_selected[high] = True
    position = int(np.flatnonzero(selected == low)[0])
    selected[position] = high
    return True, position


def membership(selected: np.ndarray, num_features: int) -> np.ndarray:
    """A_M: the mask over all features of those in a selection."""
    mask = np.zeros(num_features, dtype=bool)
    mask[selected] = True
    return mask
