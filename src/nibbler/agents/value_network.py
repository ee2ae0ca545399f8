"""The one value network: a GVF answer inside Nibbler, Q-learning, QV-learning, and the known structure.

Binary inputs feed one layer of ReLU units, and linear heads over these units estimate action values and, in
QV form, the state value. Every input feeds the d units of its block: a flat network has one block, the
known-structure network (figure 1b of the paper) one per component. Gradients are written by hand; a test
holds them against differences.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nibbler.agents.config import ValueNetworkConfig


def co_opt(
    w: np.ndarray, alpha: float, gradient: np.ndarray, momentum: np.ndarray, nu: float
) -> tuple[np.ndarray, np.ndarray]:
    """Algorithm 7: SGD with momentum. It descends; the paper's box writes the same step with a plus."""
    momentum = nu * momentum + (1.0 - nu) * gradient
    return w - alpha * momentum, momentum


@dataclass
class ValueNetwork:
    """Weights and momenta, changed in place (they may be views into a larger state)."""

    hidden_weights: np.ndarray  # w_u [inputs, d]
    hidden_momentum: np.ndarray
    head_q: np.ndarray  # w_q [A, B*d]
    head_q_momentum: np.ndarray
    head_v: np.ndarray | None = None  # w_v [B*d]; None: Q-learning
    head_v_momentum: np.ndarray | None = None
    block_of_input: np.ndarray | None = None  # int [inputs]; None: one block

    @property
    def num_blocks(self) -> int:
        return self.head_q.shape[1] // self.hidden_weights.shape[1]

    def pre_activation(self, inputs: np.ndarray) -> np.ndarray:
        """What enters each hidden unit, [B*d]: the sum of weights over the inputs of its block."""
        if self.block_of_input is None:
            return inputs @ self.hidden_weights
        inputs_of_block = inputs * (self.block_of_input == np.arange(self.num_blocks)[:, None])
        return (inputs_of_block @ self.hidden_weights).reshape(-1)

    def features(self, inputs: np.ndarray) -> np.ndarray:
        """phi: the nonlinear features of the inputs, x^e [B*d]."""
        return np.maximum(self.pre_activation(inputs), 0.0)

    def action_values(self, features: np.ndarray) -> np.ndarray:
        """Q-hat for every action, [A]."""
        return self.head_q @ features

    def bootstrap(self, features: np.ndarray) -> float:
        """The value of what comes next: V-hat in QV form, the largest action value in Q-learning."""
        if self.head_v is not None:
            return float(self.head_v @ features)
        return float(np.max(self.action_values(features)))


@dataclass
class Gradients:
    """dL/dw of each parameter group, and the errors they come from."""

    error_q: float  # Y - Q
    error_v: float  # Y - V; 0 where there is no state value
    head_q: np.ndarray  # of the action taken
    head_v: np.ndarray | None
    hidden: np.ndarray


def loss_gradients(
    network: ValueNetwork, inputs_t: np.ndarray, features_t: np.ndarray, action: int, target: float
) -> Gradients:
    """Gradients of L = ((Y - V)^2 + (Y - Q_a)^2) / 2 at x_t, the target Y held fixed (Algorithm 3)."""
    error_q = target - float(network.head_q[action] @ features_t)
    to_features = -error_q * network.head_q[action]
    error_v = 0.0
    head_v = None
    if network.head_v is not None:
        error_v = target - float(network.head_v @ features_t)
        to_features = to_features - error_v * network.head_v
        head_v = -error_v * features_t
    to_units = np.where(features_t > 0.0, to_features, 0.0).reshape(network.num_blocks, -1)
    blocks = 0 if network.block_of_input is None else network.block_of_input
    hidden = inputs_t[:, None] * to_units[blocks]
    return Gradients(error_q, error_v, -error_q * features_t, head_v, hidden)


def update_network(
    network: ValueNetwork,
    inputs_t: np.ndarray,
    features_t: np.ndarray,
    action: int,
    cumulant: float,
    features_next: np.ndarray,
    discount: float,
    alpha: float,
    nu: float,
) -> Gradients:
    """One TD step in place (Algorithm 3, lines 3 to 6): target, gradients, co-opt for each group."""
    target = cumulant + discount * network.bootstrap(features_next)
    gradients = loss_gradients(network, inputs_t, features_t, action, target)
    if network.head_v is not None and network.head_v_momentum is not None and gradients.head_v is not None:
        network.head_v[:], network.head_v_momentum[:] = co_opt(
            network.head_v, alpha, gradients.head_v, network.head_v_momentum, nu
        )
    network.head_q[action], network.head_q_momentum[action] = co_opt(
        network.head_q[action], alpha, gradients.head_q, network.head_q_momentum[action], nu
    )
    network.hidden_weights[:], network.hidden_momentum[:] = co_opt(
        network.hidden_weights, alpha, gradients.hidden, network.hidden_momentum, nu
    )
    return gradients


def value_network_step(
    network: ValueNetwork,
    config: ValueNetworkConfig,
    x_t: np.ndarray,
    a_t: int,
    reward: float,
    x_next: np.ndarray,
    select_action: Callable[[np.ndarray], int],
    discount: float | None = None,
) -> tuple[int, Gradients]:
    """One step of Q-learning (no `head_v`) or QV-learning: an answer that sees every bit and predicts reward.

    Returns A_{t+1} and the gradients used. `discount` replaces gamma for this transition only.
    """
    gamma = config.discount if discount is None else discount
    inputs_t, inputs_next = with_biases(network, x_t), with_biases(network, x_next)
    features_t, features_next = network.features(inputs_t), network.features(inputs_next)
    a_next = select_action(network.action_values(features_next))
    gradients = update_network(
        network, inputs_t, features_t, a_t, reward, features_next, gamma, config.step_size, config.momentum
    )
    return a_next, gradients


def with_biases(network: ValueNetwork, x: np.ndarray) -> np.ndarray:
    """The bits, and a 1 for the bias row of every block where there are such rows (they are the last)."""
    return np.append(x, np.ones(len(network.hidden_weights) - len(x)))
