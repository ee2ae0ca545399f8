"""Nibbler on a stream of one's own: `nibbler.Nibbler`, one call per time step.

Everything that is handed in is checked before any weight changes, so a refused call leaves the agent as it
was.
"""

import math
import os
from collections.abc import Mapping
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike

from nibbler.agents.config import NibblerConfig
from nibbler.agents.registry import config_from_dict
from nibbler.engines.checkpoint import checkpoint_file, read_checkpoint, write_checkpoint
from nibbler.engines.inspect import Inspection, inspect_state
from nibbler.mdp.philox import check_seed

FEATURES_PER_QUESTION = 28  # as in Table 1: two questions for the 56 bits of a board
_NEXT_STEP, _NEW_EPISODE = 0, 1  # slots of the ACTION stream
_LARGEST = float(np.finfo(np.float32).max)


class StreamLearner(Protocol):
    """Nibbler with its x_t and a_t, fed from outside with lists of active features; two engines have one."""

    @property
    def num_steps(self) -> int:
        """Updates made so far."""

    def begin(self, active: np.ndarray) -> int:
        """Become a new agent that has seen one observation; returns A_0."""

    def restart(self, active: np.ndarray, slot: int) -> int:
        """Continue from another observation without learning; the action is drawn from that slot."""

    def step(self, active: np.ndarray, reward: float, discount: float) -> int:
        """Algorithm 1 for the transition to an observation; returns the next action."""

    def action_values(self, active: np.ndarray) -> np.ndarray:
        """Q-hat of the main learner for every action, with the current weights."""

    def state(self) -> dict[str, np.ndarray]:
        """Everything, under the canonical names, as copies."""

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Become the learner that `state` describes."""


class Nibbler:
    """Nibbler for any stream of binary observations: hand in reward and observation, get the next action.

    An observation is either binary (bools, or numbers that are all 0 or 1, with exactly `num_features`
    entries in any shape) or a one-dimensional list of the indices of the bits that are on. A list with
    exactly `num_features` entries is always read as binary; there is no other case in which both are
    possible, since an index may occur only once.

    Without a config it asks one question per 28 features, as Table 1 of the paper does on multi-catch.
    """

    def __init__(
        self,
        num_features: int,
        num_actions: int,
        config: NibblerConfig | None = None,
        seed: int = 0,
        engine: str = "cpu",
    ) -> None:
        for name, value in (("num_features", num_features), ("num_actions", num_actions)):
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name}={value!r} must be a whole number of at least 1")
        self.num_features = int(num_features)
        self.num_actions = int(num_actions)
        self.config = default_stream_config(self.num_features) if config is None else config
        if not isinstance(self.config, NibblerConfig):
            raise ValueError(f"config is a {type(config).__name__}; give a NibblerConfig")
        self.config.validate_for(self.num_features, self.num_actions)
        self.seed = check_seed(seed)
        self.engine = engine
        self._learner = _make_learner(engine, self.config, self.num_features, self.num_actions, self.seed)
        self._learner.begin(np.empty(0, dtype=np.int32))
        self._begun = False  # whether there is an observation to learn from yet

    @property
    def steps(self) -> int:
        """Updates made so far."""
        return self._learner.num_steps

    def start(self, observation: ArrayLike) -> int:
        """Begin a stream or an episode: choose an action for its first observation, learn nothing."""
        active = self._read_observation(observation)
        slot = _NEW_EPISODE if self._begun else _NEXT_STEP  # so A_0 is that of a run of `train`
        self._begun = True
        return self._learner.restart(active, slot)

    def step(self, reward: float, observation: ArrayLike, discount: float | None = None) -> int:
        """Learn from the transition to `observation` and the reward that came with it; return an action.

        `discount` is gamma for this transition alone: 0 where an episode ended, so that what comes after
        does not count towards what came before. Hand in the episode's last observation with it, then
        `start` the next episode. The first call of all has no transition to learn from: it is `start`, and
        its reward is not used.
        """
        active = self._read_observation(observation)
        value = _read_number("reward", reward)
        if abs(value) > _LARGEST:
            raise ValueError(f"reward={reward!r} is too large for 32-bit floats; scale it down")
        gamma = self.config.discount if discount is None else _read_number("discount", discount)
        if not 0.0 <= gamma <= 1.0:
            raise ValueError(f"discount={discount!r} must be between 0 and 1")
        if not self._begun:
            return self.start(observation)
        return self._learner.step(active, value, gamma)

    def action_values(self, observation: ArrayLike) -> np.ndarray:
        """What the agent now thinks of every action in a situation; changes nothing."""
        return self._learner.action_values(self._read_observation(observation))

    def _read_observation(self, observation: ArrayLike) -> np.ndarray:
        """The sorted indices of the bits that are on, int32; anything else is refused."""
        array = np.asarray(observation)
        if array.dtype.kind not in "biuf":
            raise ValueError(f"observation holds {array.dtype} values; give 0/1 values or indices")
        if array.size == self.num_features:
            wrong = np.flatnonzero((array.ravel() != 0) & (array.ravel() != 1))
            if wrong.size:
                value = array.ravel()[wrong[0]]
                raise ValueError(f"observation has the value {value} at {wrong[0]}; only 0 and 1 are allowed")
            return np.flatnonzero(array).astype(np.int32)
        if array.ndim != 1 or array.dtype.kind not in "iu":
            if array.size == 0 and array.ndim == 1:  # an empty list has no integers in it, and no bits on
                return np.empty(0, dtype=np.int32)
            raise ValueError(
                f"observation has shape {array.shape} and type {array.dtype}; give {self.num_features} "
                "values of 0 or 1, or a list of whole-number indices"
            )
        active = np.sort(array)
        if active.size and (active[0] < 0 or active[-1] >= self.num_features):
            outside = active[0] if active[0] < 0 else active[-1]
            raise ValueError(f"observation has the index {outside}; use 0 to {self.num_features - 1}")
        twice = np.flatnonzero(active[1:] == active[:-1])
        if twice.size:
            raise ValueError(f"observation has the index {active[twice[0]]} twice; give each active bit once")
        return active.astype(np.int32)

    def state(self) -> dict[str, np.ndarray]:
        """Everything the agent is, under the canonical names, as copies."""
        return {**self._learner.state(), "begun": np.array(self._begun)}

    def inspect(self) -> Inspection:
        """Look inside: the questions, their inputs, swaps and errors."""
        return inspect_state(self.state())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the agent to an .npz file (or to checkpoint.npz in a folder), whole or not at all."""
        header = {
            "stream": {
                "num_features": self.num_features,
                "num_actions": self.num_actions,
                "config": self.config.to_dict(),
                "seed": self.seed,
                "engine": self.engine,
            }
        }
        write_checkpoint(checkpoint_file(path), header, self.state())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The agent that `save` wrote; it goes on as if it had never stopped."""
        file = checkpoint_file(path)
        header, arrays = read_checkpoint(file)
        if "stream" not in header:
            raise ValueError(f"{file} holds a run of `train`; resume it with `train(checkpoint=...)`")
        made: dict[str, Any] = dict(header["stream"])
        made["config"] = config_from_dict(made["config"])
        agent = cls(**made)
        agent._begun = bool(arrays.pop("begun"))
        agent._learner.restore(arrays)
        return agent


def default_stream_config(num_features: int) -> NibblerConfig:
    """Table 1 for a stream of unknown structure: one question per 28 features, at least two."""
    questions = min(num_features, max(2, round(num_features / FEATURES_PER_QUESTION)))
    return NibblerConfig(num_questions=questions, inputs_per_question=min(82, num_features))


def _read_number(name: str, value: Any) -> float:
    """A finite number as a float, from a Python or NumPy scalar."""
    if isinstance(value, (str, bytes)) or np.ndim(value) != 0:
        raise ValueError(f"{name}={value!r} is not a number")
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name}={value!r} is not a number") from None
    if not math.isfinite(number):
        raise ValueError(f"{name}={value!r} is not finite; give a finite number")
    return number


def _make_learner(
    engine: str, config: NibblerConfig, num_features: int, num_actions: int, seed: int
) -> StreamLearner:
    if engine == "reference":
        from nibbler.engines.reference import ReferenceStream

        return ReferenceStream(config, num_features, num_actions, seed)
    if engine == "cpu":
        from nibbler.engines.cpu.stream import CompiledStream

        return CompiledStream(config, num_features, num_actions, seed)
    raise ValueError(f"engine={engine!r} cannot be fed from outside; choose cpu or reference")
