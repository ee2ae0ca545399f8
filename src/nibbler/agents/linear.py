"""Q-learning that is linear in the bits: the baseline without any hidden unit."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nibbler.agents.config import LinearConfig
from nibbler.agents.value_network import co_opt


@dataclass
class LinearQ:
    """A weight per action and bit, with its momentum, changed in place."""

    weights: np.ndarray  # [A, m]
    momentum: np.ndarray


def linear_step(
    learner: LinearQ,
    config: LinearConfig,
    x_t: np.ndarray,
    a_t: int,
    reward: float,
    x_next: np.ndarray,
    select_action: Callable[[np.ndarray], int],
    discount: float | None = None,
) -> tuple[int, float]:
    """One step of linear Q-learning; returns A_{t+1} and the error R + gamma max Q(x_{t+1}) - Q(x_t, a_t)."""
    gamma = config.discount if discount is None else discount
    values_next = learner.weights @ x_next
    a_next = select_action(values_next)
    error = reward + gamma * float(np.max(values_next)) - float(learner.weights[a_t] @ x_t)
    learner.weights[a_t], learner.momentum[a_t] = co_opt(
        learner.weights[a_t], config.step_size, -error * x_t, learner.momentum[a_t], config.momentum
    )
    return a_next, error
