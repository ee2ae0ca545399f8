"""Bring a lazily kept state up to date, so that states of different engines can be compared and exchanged.

A row without gradient for k steps moves by its decaying momentum alone, which sums in closed form:
w -= alpha * m * nu * (1 - nu^k) / (1 - nu) and m *= nu^k. Sparse engines apply this when a row is next
touched; `*_touched` says up to which step (for an action's weights: up to which use of the action) they have.
"""

from collections.abc import Mapping

import numpy as np

from nibbler.agents.config import AgentConfig, LinearConfig, NibblerConfig, ValueNetworkConfig


def settled(state: Mapping[str, np.ndarray], config: AgentConfig) -> dict[str, np.ndarray]:
    """A copy of a canonical state in which no row waits for its decay: what a dense engine would hold."""
    result = {name: np.array(value) for name, value in state.items()}
    clock = result.get("step", np.array(0))
    if isinstance(config, NibblerConfig):
        counts = result["action_counts"][:, None]
        _decay(result, "hidden", clock, config.answer_alpha, config.momentum, "hidden_weights")
        _decay(result, "main_v_base", clock, config.main_alpha, config.momentum)
        _decay(result, "main_q_base", counts, config.main_alpha, config.momentum)
    elif isinstance(config, ValueNetworkConfig):
        _decay(result, "hidden", clock, config.step_size, config.momentum, "hidden_weights")
    elif isinstance(config, LinearConfig):
        counts = result["action_counts"][:, None]
        _decay(result, "linear_q", counts, config.step_size, config.momentum)
    return result


def _decay(
    state: dict[str, np.ndarray],
    group: str,
    clock: np.ndarray,
    alpha: float,
    nu: float,
    weights_name: str | None = None,
) -> None:
    weights, momentum = state[weights_name or group], state[f"{group}_momentum"]
    waited = clock - state[f"{group}_touched"]
    drift, kept = caught_up(waited, nu)
    if weights.ndim > waited.ndim:  # one clock per row of hidden units
        drift, kept = drift[..., None], kept[..., None]
    weights -= (alpha * drift * momentum).astype(weights.dtype)
    momentum *= kept.astype(momentum.dtype)
    state[f"{group}_touched"] = state[f"{group}_touched"] + waited


def caught_up(waited: np.ndarray, nu: float) -> tuple[np.ndarray, np.ndarray]:
    """After that many steps without gradient: momenta a weight has drifted, and what a momentum keeps."""
    kept = np.power(nu, waited.astype(np.float64))
    return nu * (1.0 - kept) / (1.0 - nu), kept
