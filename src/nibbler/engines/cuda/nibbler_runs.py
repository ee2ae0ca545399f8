"""Nibbler on the GPU: its arrays as nibbler_layout.cuh lays them out, from and to the canonical state."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nibbler.agents.config import NibblerConfig
from nibbler.engines.cuda.packed import DECAY_HIGH, DECAY_LOW, PackedRuns
from nibbler.engines.cuda.plan import NibblerPlan, plan_nibbler
from nibbler.mdp.environment import Environment

_HEADS = ("answer_v", "answer_q", "main_v", "main_q")
_CANONICAL = {"main_v": "main_v_hidden", "main_q": "main_q_hidden"}
_LIMITS = (("num_questions", 1 << 13), ("inputs_per_question", 1 << 12))


class NibblerRuns(PackedRuns[NibblerConfig]):
    """Runs of Nibbler side by side."""

    kernel_name = "nibbler_steps"

    def __init__(
        self, problems: Sequence[tuple[Environment, NibblerConfig, int]], plan: NibblerPlan | None = None
    ) -> None:
        env, config, _ = problems[0]
        for field, limit in _LIMITS:
            if getattr(config, field) >= limit:
                raise ValueError(f"{field}={getattr(config, field)} is beyond the cuda engine's {limit - 1}")
        if env.num_features > 1 << 18:
            raise ValueError(f"{env.num_features} features are beyond the cuda engine's {1 << 18}")
        self.letters = (
            env.num_actions + 4
        )  # V(x_t), Q(x_t, a_t), V(x_{t+1}), Q(x_{t+1}, a), change of a cumulant
        plan = plan or plan_nibbler(config, env.num_components)
        super().__init__(problems, plan, f"{config.num_questions} questions")

    def array_shapes(self) -> dict[str, tuple[tuple[int, ...], Any]]:
        config, m, actions = self.config, self.num_features, self.num_actions
        h, g, rows, d = (
            config.num_questions,
            config.inputs_per_question,
            config.rows_per_question,
            self.macros["HIDDEN"],
        )
        f32, u32, i32, u64, f64 = np.float32, np.uint32, np.int32, np.uint64, np.float64
        linear = config.linear_momentum > 0
        support = (h, m) if self.macros["SUPPORT_SHARED"] else (self._parts, m, self._side_by_side)
        return {
            "hidden": ((h, rows, 2, d), f32),
            "hidden_last": ((h, rows), u32),
            "inputs": ((h, g), i32),
            "cumulants": ((h,), i32),
            "answer_v": ((h, d), f32),
            "answer_v_momentum": ((h, d), f32),
            "answer_q": ((h, actions, d), f32),
            "answer_q_momentum": ((h, actions, d), f32),
            "main_v": ((h, d), f32),
            "main_v_momentum": ((h, d), f32),
            "main_q": ((actions, h, d), f32),
            "main_q_momentum": ((actions, h, d), f32),
            "base": ((1 + actions, m), f32),
            "base_momentum": ((1 + actions, m), f32),
            "base_touched": ((1 + actions, m), u32),
            "support": (support, f32),
            "support_momentum": (support if linear else (0,), f32),
            "discovery": ((m,), f32),
            "discovery_momentum": ((m if linear else 0,), f32),
            "states": ((self.problems[0][0].num_components,), i32),
            "action_counts": ((actions,), u64),
            "input_swaps": ((h,), u64),
            "active_rows": ((h,), u64),
            "answer_error": ((h,), f64),
            "cumulant_swaps": ((1,), u64),
            "active_features": ((1,), u64),
            "main_error": ((1,), f64),
            "decay": ((DECAY_LOW + DECAY_HIGH, 2), f32),
        }

    def run_scalars(self, config: NibblerConfig) -> dict[str, float]:
        return {
            "nu": config.momentum,
            "linear_nu": config.linear_momentum,
            "alpha_main": config.main_alpha,
            "alpha_answer": config.answer_alpha,
            "alpha_linear": config.linear_alpha,
            "input_threshold": config.input_threshold,
            "cumulant_threshold": config.cumulant_threshold,
        }

    def to_device(self, index: int, state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        units = self.macros["HIDDEN"] - self.config.hidden_units
        self._before[index] = (int(state["weights_touched"]), int(state["step"]))
        arrays = {
            "hidden": pad_last(np.stack([state["hidden_weights"], state["hidden_momentum"]], axis=-2), units),
            "hidden_last": (state["hidden_touched"] - 1).astype(np.uint32),
            "inputs": state["inputs"].astype(np.int32),
            "cumulants": state["cumulants"].astype(np.int32),
            "support": self._support_to_device(state["support"]),
            "discovery": state["discovery"].astype(np.float32),
            "action_counts": state["action_counts"].astype(np.uint64),
            "input_swaps": state["input_swaps"].astype(np.uint64),
            "answer_error": state["answer_error"].astype(np.float64),
            "cumulant_swaps": np.atleast_1d(state["cumulant_swaps"]).astype(np.uint64),
            "main_error": np.atleast_1d(state["main_error"]).astype(np.float64),
            "active_rows": np.zeros(self.config.num_questions, dtype=np.uint64),
            "active_features": np.zeros(1, dtype=np.uint64),
        }
        for name in _HEADS:
            canonical = _CANONICAL.get(name, name)
            arrays[name] = pad_last(state[canonical], units)
            arrays[f"{name}_momentum"] = pad_last(state[f"{canonical}_momentum"], units)
        for suffix, dtype in (("", np.float32), ("_momentum", np.float32), ("_touched", np.uint32)):
            heads = [state[f"main_v_base{suffix}"][None], state[f"main_q_base{suffix}"]]
            arrays[f"base{suffix}"] = np.concatenate(heads).astype(dtype)
        if self.config.linear_momentum > 0:
            arrays["support_momentum"] = self._support_to_device(state["support_momentum"])
            arrays["discovery_momentum"] = state["discovery_momentum"].astype(np.float32)
        return arrays

    def from_device(self, index: int, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        d = self.config.hidden_units
        state = {
            **_questions(arrays),
            "hidden_weights": arrays["hidden"][..., 0, :d],
            "hidden_momentum": arrays["hidden"][..., 1, :d],
            "hidden_touched": (arrays["hidden_last"] + np.uint32(1)).astype(np.int64),
            "support": self._support_from_device(arrays["support"]),
            "discovery": arrays["discovery"],
            "action_counts": arrays["action_counts"].astype(np.int64),
            "cumulant_swaps": arrays["cumulant_swaps"][0].astype(np.int64),
            "main_error": arrays["main_error"][0],
        }
        for name in _HEADS:
            canonical = _CANONICAL.get(name, name)
            state[canonical] = arrays[name][..., :d]
            state[f"{canonical}_momentum"] = arrays[f"{name}_momentum"][..., :d]
        for suffix in ("", "_momentum", "_touched"):
            heads = arrays[f"base{suffix}"].astype(np.int64 if suffix == "_touched" else np.float32)
            state[f"main_v_base{suffix}"], state[f"main_q_base{suffix}"] = heads[0], heads[1:]
        if self.config.linear_momentum > 0:
            state["support_momentum"] = self._support_from_device(arrays["support_momentum"])
            state["discovery_momentum"] = arrays["discovery_momentum"]
        state["weights_touched"] = np.array(self._weights_touched(index, arrays), dtype=np.int64)
        return {name: np.array(value, order="C") for name, value in state.items()}

    @property
    def _parts(self) -> int:
        """Blocks that have questions."""
        return self.macros["BLOCKS"] - self.macros["DISCOVERY_APART"]

    @property
    def _side_by_side(self) -> int:
        """Room for the questions of a block; as in nibbler_layout.cuh."""
        return 1 << (self.macros["QUESTIONS_PER_BLOCK"] - 1).bit_length()

    def _support_to_device(self, support: np.ndarray) -> np.ndarray:
        """Weights by question and feature as they lie on the device; see nibbler_support.cuh."""
        if self.macros["SUPPORT_SHARED"]:
            return support.astype(np.float32)
        per_block = self.macros["QUESTIONS_PER_BLOCK"]
        questions, features = support.shape
        whole = np.zeros((self._parts * per_block, features), dtype=np.float32)
        whole[:questions] = support
        laid = np.zeros((self._parts, features, self._side_by_side), dtype=np.float32)
        laid[..., :per_block] = whole.reshape(self._parts, per_block, features).transpose(0, 2, 1)
        return laid

    def _support_from_device(self, laid: np.ndarray) -> np.ndarray:
        if self.macros["SUPPORT_SHARED"]:
            return laid
        by_question = laid[..., : self.macros["QUESTIONS_PER_BLOCK"]].transpose(0, 2, 1)
        return by_question.reshape(-1, self.num_features)[: self.config.num_questions]

    def _weights_touched(self, index: int, arrays: Mapping[str, np.ndarray]) -> int:
        """As the reference counts them: see nibbler.agents.nibbler."""
        h, d = self.config.num_questions, self.config.hidden_units
        touched, since = self._before[index]
        steps = self.step(index) - since
        active, rows = int(arrays["active_features"][0]), int(arrays["active_rows"].sum())
        return touched + 2 * (active + h * d * steps) + d * (rows + 2 * h * steps) + (h + 1) * active

    def snapshot(self, index: int) -> dict[str, np.ndarray]:
        return _questions(self.download(index, ("cumulants", "inputs", "input_swaps", "answer_error")))

    def counters(self, index: int) -> dict[str, float]:
        names = ("active_features", "active_rows", "input_swaps", "cumulant_swaps", "main_error")
        arrays = self.download(index, names)
        return {
            "weights_touched": float(self._weights_touched(index, arrays)),
            "input_swaps": float(arrays["input_swaps"].sum()),
            "cumulant_swaps": float(arrays["cumulant_swaps"][0]),
            "main_error": float(arrays["main_error"][0]),
        }


def _questions(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What the questions are and how they fare, under the canonical names."""
    return {
        "cumulants": arrays["cumulants"],
        "inputs": arrays["inputs"],
        "input_swaps": arrays["input_swaps"].astype(np.int64),
        "answer_error": arrays["answer_error"],
    }


def pad_last(array: np.ndarray, count: int) -> np.ndarray:
    """The array in float32 with `count` zeros added to its last axis."""
    widths = [(0, 0)] * (array.ndim - 1) + [(0, count)]
    return np.pad(np.asarray(array, dtype=np.float32), widths)
