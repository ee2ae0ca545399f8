"""The agents as the reference engine drives them: the boxes of `agents` with their state and their draws."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from nibbler.agents.config import (
    AgentConfig,
    KnownStructureConfig,
    LinearConfig,
    NibblerConfig,
    PlannerConfig,
    RandomConfig,
    ValueNetworkConfig,
)
from nibbler.agents.linear import LinearQ, linear_step
from nibbler.agents.nibbler import NibblerState, nibbler_step
from nibbler.agents.value_network import ValueNetwork, value_network_step, with_biases
from nibbler.engines.initial import (
    fresh_hidden_rows,
    initial_linear_state,
    initial_network_state,
    initial_nibbler_state,
)
from nibbler.mdp.environment import Environment

SelectAction = Callable[[np.ndarray], int]


class Transition(NamedTuple):
    """What there is to learn from at one step."""

    x_t: np.ndarray
    a_t: int
    reward: float  # R_{t+1}
    x_next: np.ndarray
    states_next: np.ndarray  # of the components; only the planner looks at them
    step: int  # t + 1
    discount: float | None = None  # for this transition alone; None: gamma


class Learner(Protocol):
    """An agent as the reference engine drives it."""

    def action_values(self, x: np.ndarray, states: np.ndarray) -> np.ndarray:
        """What the agent thinks of every action now (the planner looks at the states, the others at x)."""

    def learn(self, seen: Transition, select_action: SelectAction) -> int:
        """Update from one transition and return A_{t+1}."""

    def arrays(self, step: int) -> dict[str, np.ndarray]:
        """The state under the canonical names, as copies."""

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take over a state under the canonical names."""


def make_learner(env: Environment, config: AgentConfig, seed: int) -> Learner:
    """The learner that a config stands for on this environment, before its first step."""
    if isinstance(config, NibblerConfig):
        return NibblerLearner(config, env.num_features, env.num_actions, seed)
    if isinstance(config, ValueNetworkConfig):
        return NetworkLearner(config, block_of_feature(env, config), env.num_actions, seed)
    if isinstance(config, LinearConfig):
        return LinearLearner(config, env.num_features, env.num_actions)
    if isinstance(config, RandomConfig):
        return RandomPolicy(env.num_actions)
    if isinstance(config, PlannerConfig):
        return PlannerPolicy(env, config)
    raise ValueError(f"the reference engine does not run {config.name!r}")


def block_of_feature(env: Environment, config: ValueNetworkConfig) -> np.ndarray:
    """Which block of hidden units each bit feeds: its component's where that is known, else the only one."""
    if isinstance(config, KnownStructureConfig):
        return np.asarray(env.component_of_feature, dtype=np.int32)
    return np.zeros(env.num_features, dtype=np.int32)


class NibblerLearner:
    """Nibbler's boxes with the random rows that re-initialisation needs."""

    def __init__(self, config: NibblerConfig, num_features: int, num_actions: int, seed: int) -> None:
        self._config = config
        self._seed = seed
        self.load(initial_nibbler_state(config, num_features, num_actions, seed))

    def action_values(self, x: np.ndarray, states: np.ndarray) -> np.ndarray:
        return self.state.main_action_values(x, self.state.nonlinear_features(x))

    def learn(self, seen: Transition, select_action: SelectAction) -> int:
        def fresh_rows(question: int, positions: np.ndarray) -> np.ndarray:
            return fresh_hidden_rows(self._config, self._seed, seen.step, question, positions)

        return nibbler_step(
            self.state,
            self._config,
            seen.x_t,
            seen.a_t,
            seen.reward,
            seen.x_next,
            select_action,
            fresh_rows,
            seen.discount,
        )

    def arrays(self, step: int) -> dict[str, np.ndarray]:
        arrays = {name: np.array(value) for name, value in vars(self.state).items()}
        if self._config.linear_momentum == 0.0:  # then it is only the last gradient, which is never read
            del arrays["support_momentum"], arrays["discovery_momentum"]
        counts = self.state.action_counts
        arrays["hidden_touched"] = np.full(self.state.hidden_weights.shape[:2], step, dtype=np.int64)
        arrays["main_v_base_touched"] = np.full(self.state.main_v_base.shape, step, dtype=np.int64)
        arrays["main_q_base_touched"] = np.repeat(counts[:, None], self.state.main_q_base.shape[1], axis=1)
        return arrays

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        values: dict[str, Any] = {}
        for name in NibblerState.__dataclass_fields__:
            if name in arrays:
                values[name] = _wide(arrays[name])
            else:
                values[name] = np.zeros(arrays[name.removesuffix("_momentum")].shape)
        for name in ("cumulant_swaps", "weights_touched"):
            values[name] = int(values[name])
        values["main_error"] = float(values["main_error"])
        self.state = NibblerState(**values)


class NetworkLearner:
    """Q-learning, QV-learning and the known structure: one value network over all bits."""

    def __init__(self, config: ValueNetworkConfig, blocks: np.ndarray, num_actions: int, seed: int) -> None:
        self._config = config
        self.load(initial_network_state(config, blocks, num_actions, seed))

    def action_values(self, x: np.ndarray, states: np.ndarray) -> np.ndarray:
        return self.network.action_values(self.network.features(with_biases(self.network, x)))

    def learn(self, seen: Transition, select_action: SelectAction) -> int:
        a_next, gradients = value_network_step(
            self.network,
            self._config,
            seen.x_t,
            seen.a_t,
            seen.reward,
            seen.x_next,
            select_action,
            seen.discount,
        )
        self._counts[seen.a_t] += 1
        self._error += abs(gradients.error_v if self._config.learns_state_value else gradients.error_q)
        heads = 2 if self._config.learns_state_value else 1
        rows = np.count_nonzero(with_biases(self.network, seen.x_t))
        self._touched += int(rows) * self._config.hidden_units + heads * self.network.head_q.shape[1]
        return a_next

    def arrays(self, step: int) -> dict[str, np.ndarray]:
        network = self.network
        arrays = {
            "block_of_feature": self._blocks.copy(),
            "hidden_weights": network.hidden_weights.copy(),
            "hidden_momentum": network.hidden_momentum.copy(),
            "hidden_touched": np.full(len(network.hidden_weights), step, dtype=np.int64),
            "head_q": network.head_q.copy(),
            "head_q_momentum": network.head_q_momentum.copy(),
            "action_counts": self._counts.copy(),
            "value_error": np.array(self._error),
            "weights_touched": np.array(self._touched),
        }
        if network.head_v is not None and network.head_v_momentum is not None:
            arrays["head_v"] = network.head_v.copy()
            arrays["head_v_momentum"] = network.head_v_momentum.copy()
        return arrays

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._blocks = np.array(arrays["block_of_feature"])
        biases = len(arrays["hidden_weights"]) - len(self._blocks)
        block_of_input = np.append(self._blocks, np.arange(biases))
        optional = {name: _wide(arrays[name]) for name in ("head_v", "head_v_momentum") if name in arrays}
        self.network = ValueNetwork(
            hidden_weights=_wide(arrays["hidden_weights"]),
            hidden_momentum=_wide(arrays["hidden_momentum"]),
            head_q=_wide(arrays["head_q"]),
            head_q_momentum=_wide(arrays["head_q_momentum"]),
            block_of_input=block_of_input if block_of_input.any() else None,
            **optional,
        )
        self._counts = np.array(arrays["action_counts"])
        self._error = float(arrays["value_error"])
        self._touched = int(arrays["weights_touched"])


class LinearLearner:
    """Linear Q-learning."""

    def __init__(self, config: LinearConfig, num_features: int, num_actions: int) -> None:
        self._config = config
        self.load(initial_linear_state(config, num_features, num_actions))

    def action_values(self, x: np.ndarray, states: np.ndarray) -> np.ndarray:
        values: np.ndarray = self.learner.weights @ x
        return values

    def learn(self, seen: Transition, select_action: SelectAction) -> int:
        a_next, error = linear_step(
            self.learner,
            self._config,
            seen.x_t,
            seen.a_t,
            seen.reward,
            seen.x_next,
            select_action,
            seen.discount,
        )
        self._counts[seen.a_t] += 1
        self._error += abs(error)
        self._touched += int(np.count_nonzero(seen.x_t))
        return a_next

    def arrays(self, step: int) -> dict[str, np.ndarray]:
        weights = self.learner.weights
        return {
            "linear_q": weights.copy(),
            "linear_q_momentum": self.learner.momentum.copy(),
            "linear_q_touched": np.repeat(self._counts[:, None], weights.shape[1], axis=1),
            "action_counts": self._counts.copy(),
            "value_error": np.array(self._error),
            "weights_touched": np.array(self._touched),
        }

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.learner = LinearQ(_wide(arrays["linear_q"]), _wide(arrays["linear_q_momentum"]))
        self._counts = np.array(arrays["action_counts"])
        self._error = float(arrays["value_error"])
        self._touched = int(arrays["weights_touched"])


class RandomPolicy:
    """Values that are all equal; the config's epsilon of 1 does the rest."""

    def __init__(self, num_actions: int) -> None:
        self._values = np.zeros(num_actions)

    def action_values(self, x: np.ndarray, states: np.ndarray) -> np.ndarray:
        return self._values

    def learn(self, seen: Transition, select_action: SelectAction) -> int:
        return select_action(self.action_values(seen.x_next, seen.states_next))

    def arrays(self, step: int) -> dict[str, np.ndarray]:
        return {}

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        return


class PlannerPolicy(RandomPolicy):
    """The sum over components of their exact optimal action values, which it reads off their states."""

    def __init__(self, env: Environment, config: PlannerConfig) -> None:
        from nibbler.mdp.exact import planner_tables  # brings SciPy, which nothing else here needs

        super().__init__(env.num_actions)
        self._rows = env.tables.row_base
        self._optimal = planner_tables(env, config.discount)

    def action_values(self, x: np.ndarray, states: np.ndarray) -> np.ndarray:
        first = self._rows + states.astype(np.int64) * len(self._values)
        rows = first[:, None] + np.arange(len(self._values))
        # added up in board order, as the compiled planner does: np.sum would pair and round differently
        values: np.ndarray = np.cumsum(self._optimal[rows], axis=0)[-1]
        return values


def _wide(array: np.ndarray) -> np.ndarray:
    """A copy in the reference's precision: float64, integers as they are."""
    return np.array(array, dtype=np.float64 if array.dtype.kind == "f" else None)
