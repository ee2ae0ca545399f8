"""Q-learning and QV-learning on the GPU: their arrays as value_network.cu lays them out."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nibbler.agents.config import ValueNetworkConfig
from nibbler.engines.cuda.nibbler_runs import pad_last
from nibbler.engines.cuda.packed import DECAY_HIGH, DECAY_LOW, PackedRuns
from nibbler.engines.cuda.plan import NetworkPlan, plan_network
from nibbler.mdp.environment import Environment


class NetworkRuns(PackedRuns[ValueNetworkConfig]):
    """Runs of a flat value network side by side."""

    kernel_name = "value_network_steps"

    def __init__(
        self, problems: Sequence[tuple[Environment, ValueNetworkConfig, int]], plan: NetworkPlan | None = None
    ) -> None:
        env, config, _ = problems[0]
        self.letters = env.num_actions + 3  # Q(x_t, a_t), V(x_t), V(x_{t+1}), Q(x_{t+1}, a)
        plan = plan or plan_network(config, env.num_components)
        super().__init__(problems, plan, f"{config.hidden_units} hidden units")

    @property
    def _rows(self) -> int:
        return self.num_features + int(self.config.hidden_bias)

    def array_shapes(self) -> dict[str, tuple[tuple[int, ...], Any]]:
        rows, d, actions = self._rows, self.macros["HIDDEN"], self.num_actions
        f32, u64 = np.float32, np.uint64
        state_value = d if self.config.learns_state_value else 0
        return {
            "hidden": ((rows, self.macros["BLOCKS"], 2, d // self.macros["BLOCKS"]), f32),
            "hidden_last": ((rows,), np.uint32),
            "head_v": ((state_value,), f32),
            "head_v_momentum": ((state_value,), f32),
            "head_q": ((actions, d), f32),
            "head_q_momentum": ((actions, d), f32),
            "states": ((self.problems[0][0].num_components,), np.int32),
            "action_counts": ((actions,), u64),
            "active_rows": ((1,), u64),
            "value_error": ((1,), np.float64),
            "decay": ((DECAY_LOW + DECAY_HIGH, 2), f32),
        }

    def run_scalars(self, config: ValueNetworkConfig) -> dict[str, float]:
        return {"nu": config.momentum, "alpha_main": config.step_size}

    def _head_names(self) -> list[str]:
        names = ["head_q", "head_q_momentum"]
        return [*names, "head_v", "head_v_momentum"] if self.config.learns_state_value else names

    def to_device(self, index: int, state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        self._before[index] = (int(state["weights_touched"]), int(state["step"]))
        units = self.macros["HIDDEN"] - self.config.hidden_units
        rows = pad_last(np.stack([state["hidden_weights"], state["hidden_momentum"]], axis=1), units)
        return {
            **{name: pad_last(state[name], units) for name in self._head_names()},
            "hidden": rows.reshape(self._rows, 2, self.macros["BLOCKS"], -1).swapaxes(1, 2),
            "hidden_last": (state["hidden_touched"] - 1).astype(np.uint32),
            "action_counts": state["action_counts"].astype(np.uint64),
            "active_rows": np.zeros(1, dtype=np.uint64),
            "value_error": np.atleast_1d(state["value_error"]).astype(np.float64),
        }

    def from_device(self, index: int, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        d = self.config.hidden_units
        hidden = arrays["hidden"].swapaxes(1, 2).reshape(self._rows, 2, -1)
        state = {
            **{name: arrays[name][..., :d] for name in self._head_names()},
            "hidden_weights": hidden[:, 0, :d],
            "hidden_momentum": hidden[:, 1, :d],
            "block_of_feature": np.zeros(self.num_features, dtype=np.int32),
            "hidden_touched": (arrays["hidden_last"] + np.uint32(1)).astype(np.int64),
            "action_counts": arrays["action_counts"].astype(np.int64),
            "value_error": arrays["value_error"][0],
            "weights_touched": np.array(self._weights_touched(index, arrays), dtype=np.int64),
        }
        return {name: np.array(value, order="C") for name, value in state.items()}

    def _weights_touched(self, index: int, arrays: Mapping[str, np.ndarray]) -> int:
        """As the reference counts them: rows of active inputs, and the heads that learn."""
        touched, since = self._before[index]
        heads = 2 if self.config.learns_state_value else 1
        rows = int(arrays["active_rows"][0])
        return touched + self.config.hidden_units * (rows + heads * (self.step(index) - since))

    def counters(self, index: int) -> dict[str, float]:
        arrays = self.download(index, ("active_rows", "value_error"))
        touched = self._weights_touched(index, arrays)
        return {"weights_touched": float(touched), "value_error": float(arrays["value_error"][0])}
