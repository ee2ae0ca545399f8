"""Runs on the CPU engine: an environment, a learner and the compiled loop that joins them."""

from collections.abc import Mapping
from typing import Any

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
from nibbler.agents.policy import exploration_threshold
from nibbler.engines.cpu import layout, linear, network_layout
from nibbler.engines.cpu.cells import Memory
from nibbler.engines.cpu.linear import export_linear, linear_arrays, linear_settings, load_linear, run_linear
from nibbler.engines.cpu.network import run_network, settle_network
from nibbler.engines.cpu.network_layout import (
    export_network,
    load_network,
    network_arrays,
    network_settings,
)
from nibbler.engines.cpu.nibbler import CompiledNibbler
from nibbler.engines.cpu.policy import ACTION_NOW, COUNT_NOW, STEP, run_policy
from nibbler.engines.cpu.step import run_nibbler
from nibbler.engines.initial import (
    initial_linear_state,
    initial_network_state,
    network_action_values,
    select_action,
)
from nibbler.mdp.environment import Environment
from nibbler.mdp.simulate import greedy_action, observe, start


class CpuRun:
    """What all runs share: the environment's states and the protocol of `nibbler.engines.run.Run`."""

    def __init__(self, env: Environment, config: AgentConfig, seed: int) -> None:
        self.env = env
        self.config = config
        self.seed = seed
        self.step = 0  # transitions done
        self._states = np.zeros(env.num_components, dtype=np.int32)
        start(env.tables, self._states, np.uint64(seed))

    def advance(self, steps: int) -> float:
        return float(self.advance_bins(1, steps)[0])

    def advance_bins(self, num_bins: int, bin_size: int) -> np.ndarray:
        rewards = np.zeros(num_bins)
        self._run(int(bin_size), rewards)
        self.step += num_bins * int(bin_size)
        return rewards

    def _run(self, bin_size: int, rewards: np.ndarray) -> None:
        """Fill `rewards` with the sum of each bin."""
        raise NotImplementedError

    def state(self) -> dict[str, np.ndarray]:
        return {**self._export(), "states": self._states.copy()}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        self._states[:] = state["states"]
        self._load(state)
        self.step = int(state["step"])

    def counters(self) -> dict[str, float]:
        """Totals so far that cost nothing to read, for the diagnostics of a curve."""
        return {}

    def _export(self) -> dict[str, np.ndarray]:
        raise NotImplementedError

    def _load(self, state: Mapping[str, np.ndarray]) -> None:
        raise NotImplementedError

    def _first_observation(self) -> np.ndarray:
        active = np.zeros(self.env.max_active, dtype=np.int32)
        return active[: observe(self.env.tables, self._states, active)]

    def _first_action(self, values: np.ndarray) -> int:
        return select_action(values, self.config.epsilon, self.seed, 0)


class NibblerRun(CpuRun):
    """Nibbler on an environment."""

    def __init__(self, env: Environment, config: NibblerConfig, seed: int) -> None:
        super().__init__(env, config, seed)
        self.learner = CompiledNibbler(config, env.num_features, env.num_actions, seed, env.max_active)
        self.learner.begin(self._first_observation())

    def _run(self, bin_size: int, rewards: np.ndarray) -> None:
        run_nibbler(
            self.learner.settings,
            self.learner.memory,
            self.env.tables,
            self._states,
            self.learner.arrays.active_next,
            float(self.config.discount),
            bin_size,
            rewards,
        )

    def counters(self) -> dict[str, float]:
        arrays = self.learner.arrays
        return {
            "weights_touched": float(arrays.clock[layout.WEIGHTS_TOUCHED]),
            "input_swaps": float(arrays.input_swaps.sum()),
            "cumulant_swaps": float(arrays.clock[layout.CUMULANT_SWAPS]),
            "main_error": float(arrays.main_error_sum[0]),
        }

    def _export(self) -> dict[str, np.ndarray]:
        return self.learner.state()

    def _load(self, state: Mapping[str, np.ndarray]) -> None:
        self.learner.restore(state)


class NetworkRun(CpuRun):
    """Q-learning, QV-learning or the known structure on an environment."""

    def __init__(self, env: Environment, config: ValueNetworkConfig, seed: int) -> None:
        super().__init__(env, config, seed)
        if isinstance(config, KnownStructureConfig):
            blocks = np.asarray(env.component_of_feature, dtype=np.int32)
        else:
            blocks = np.zeros(env.num_features, dtype=np.int32)
        initial = initial_network_state(config, blocks, env.num_actions, seed)
        self._settings = network_settings(config, blocks, env.num_actions, seed)
        self._arrays = network_arrays(self._settings, config, env.max_active)
        self._memory = Memory(self._arrays)
        active = self._first_observation()
        action = self._first_action(network_action_values(initial, active))
        self._load({**initial, "active": active, "action": np.array(action), "step": np.array(0)})

    def _run(self, bin_size: int, rewards: np.ndarray) -> None:
        run_network(
            self._settings,
            self._memory,
            self.env.tables,
            self._states,
            self._arrays.active_next,
            float(self.config.discount),
            bin_size,
            rewards,
        )

    def counters(self) -> dict[str, float]:
        touched = float(self._arrays.clock[network_layout.WEIGHTS_TOUCHED])
        return {"weights_touched": touched, "value_error": float(self._arrays.error_sum[0])}

    def _export(self) -> dict[str, np.ndarray]:
        settle_network(self._settings, self._memory)
        return export_network(self._settings, self._arrays)

    def _load(self, state: Mapping[str, np.ndarray]) -> None:
        load_network(self._settings, self._arrays, state)


class LinearRun(CpuRun):
    """Linear Q-learning on an environment."""

    def __init__(self, env: Environment, config: LinearConfig, seed: int) -> None:
        super().__init__(env, config, seed)
        self._settings = linear_settings(config, env.num_actions, seed)
        self._arrays = linear_arrays(config, env.num_features, env.num_actions, env.max_active)
        self._memory = Memory(self._arrays)
        initial = initial_linear_state(config, env.num_features, env.num_actions)
        action = self._first_action(np.zeros(env.num_actions))
        begin = {"active": self._first_observation(), "action": np.array(action), "step": np.array(0)}
        self._load({**initial, **begin})

    def _run(self, bin_size: int, rewards: np.ndarray) -> None:
        run_linear(
            self._settings,
            self._memory,
            self.env.tables,
            self._states,
            self._arrays.active_next,
            float(self.config.discount),
            bin_size,
            rewards,
        )

    def counters(self) -> dict[str, float]:
        touched = float(self._arrays.clock[linear.WEIGHTS_TOUCHED])
        return {"weights_touched": touched, "value_error": float(self._arrays.error_sum[0])}

    def _export(self) -> dict[str, np.ndarray]:
        return export_linear(self._settings, self._arrays)

    def _load(self, state: Mapping[str, np.ndarray]) -> None:
        load_linear(self._settings, self._arrays, state)


class PolicyRun(CpuRun):
    """The random policy and the planner: nothing is learned."""

    def __init__(self, env: Environment, config: AgentConfig, seed: int) -> None:
        super().__init__(env, config, seed)
        if isinstance(config, PlannerConfig):
            from nibbler.mdp.exact import planner_tables  # brings SciPy, which nothing else here needs

            self._values = planner_tables(env, config.discount)
        else:  # all actions look alike, and its epsilon of 1 does the rest
            self._values = np.zeros(len(env.tables.outcome_start))
        self._active = np.zeros(env.max_active, dtype=np.int32)
        self._clock = np.zeros(3, dtype=np.int64)
        active = self._first_observation()
        greedy = np.zeros(env.num_actions)
        greedy[greedy_action(env.tables, self._states, self._values)] = 1.0
        action = np.array(self._first_action(greedy))
        self._load({"active": active, "action": action, "step": np.array(0)})

    def _run(self, bin_size: int, rewards: np.ndarray) -> None:
        run_policy(
            self.env.tables,
            self._states,
            self._active,
            self._clock,
            self._values,
            np.uint64(exploration_threshold(self.config.epsilon)),
            np.uint64(self.seed),
            bin_size,
            rewards,
        )

    def _export(self) -> dict[str, Any]:
        return {
            "active": self._active[: self._clock[COUNT_NOW]].copy(),
            "action": self._clock[ACTION_NOW],
            "step": self._clock[STEP],
        }

    def _load(self, state: Mapping[str, np.ndarray]) -> None:
        active = np.asarray(state["active"], dtype=np.int32)
        self._active[: active.size] = active
        self._clock[:] = state["step"], state["action"], active.size


def make_run(env: Environment, config: AgentConfig, seed: int) -> CpuRun:
    """The run that a config stands for, before its first step."""
    if isinstance(config, NibblerConfig):
        return NibblerRun(env, config, seed)
    if isinstance(config, ValueNetworkConfig):
        return NetworkRun(env, config, seed)
    if isinstance(config, LinearConfig):
        return LinearRun(env, config, seed)
    if isinstance(config, (RandomConfig, PlannerConfig)):
        return PolicyRun(env, config, seed)
    raise ValueError(f"the cpu engine does not run {config.name!r}")
