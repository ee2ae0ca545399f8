"""Every number and choice of every agent, as frozen dataclasses that are validated where they are made.

The defaults are Table 1 of the paper and, where the paper leaves a choice open, the reading that was
measured to reproduce it. The literal reading is `NibblerConfig.literal`.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

KAPPA = 0.001 * math.sqrt(2.0)


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)


def _whole(name: str, value: Any) -> None:
    """Refuse what is not a positive whole number (a bool is not one)."""
    whole = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    _require(whole, f"{name}={value!r} must be a whole number of at least 1")


def _between(name: str, value: Any, low: float, high: float, *, open_end: bool = False) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    inside = number and low <= value <= high and not (open_end and value == high)
    bound = f"at least {low:g} and below {high:g}" if open_end else f"between {low:g} and {high:g}"
    _require(inside, f"{name}={value!r} must be {bound}")


def _positive(name: str, value: Any, *, or_zero: bool = False) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    _require(
        number and (value > 0 or (or_zero and value == 0)),
        f"{name}={value!r} must be a finite number {'of at least' if or_zero else 'above'} 0",
    )


@dataclass(frozen=True, kw_only=True)
class AgentConfig:
    """What all agents share: how they explore and how far they look ahead."""

    name: ClassVar[str] = ""

    epsilon: float = 0.1  # probability of a uniformly random action
    discount: float = 0.99  # gamma

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # a sweep over a NumPy array hands in NumPy's numbers
            value = getattr(self, field.name)
            if isinstance(value, np.generic):
                object.__setattr__(self, field.name, value.item())
        _between("epsilon", self.epsilon, 0.0, 1.0)
        _between("discount", self.discount, 0.0, 1.0)

    def validate_for(self, num_features: int, num_actions: int) -> None:
        """Refuse a problem that this config cannot be run on, saying what to change."""
        _whole("num_features", num_features)
        _whole("num_actions", num_actions)

    def replace(self, **changes: Any) -> Self:
        """The same config with some fields changed (and validated again)."""
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Plain data with the agent's name, from which `registry.config_from_dict` makes the same config."""
        return {"agent": self.name, **dataclasses.asdict(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The config that `to_dict` described; an unknown field is an error."""
        values = {key: value for key, value in data.items() if key != "agent"}
        known = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(values) - known)
        _require(
            not unknown,
            f"{', '.join(unknown)}: no such field in {cls.__name__}; it has {', '.join(sorted(known))}",
        )
        return cls(**values)


@dataclass(frozen=True, kw_only=True)
class NibblerConfig(AgentConfig):
    """Nibbler (Algorithms 1 to 7); `for_boards(n)` gives Table 1 for n components."""

    name: ClassVar[str] = "nibbler"

    num_questions: int  # h
    inputs_per_question: int = 82  # g
    hidden_units: int = 256  # d
    kappa: float = KAPPA  # step size factor of the domain
    step_size: float | None = None  # alpha, main learner; None: kappa / sqrt(h)
    linear_step_size: float | None = None  # alpha_b, support and discovery; None: kappa / sqrt(h)
    answer_step_size: float = 0.001  # alpha^i, GVF answers
    scale_answer_step_size: bool = False  # True: the answers' step size is divided by sqrt(h) as well
    momentum: float = 0.99  # nu
    linear_momentum: float = 0.0  # nu of support and discovery; 0 is plain TD(0)/LMS
    swapped_input: str = "zero"  # w_u of an input that was swapped in: "zero" or "random"
    changed_question: str = "random"  # w_u of a question whose cumulant changed: "random" or "keep"
    hidden_bias: bool = False  # one more input per question, always on
    input_threshold: float = 0.0  # tau_K
    cumulant_threshold: float = 0.0  # tau_I

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("num_questions", "inputs_per_question", "hidden_units"):
            _whole(field, getattr(self, field))
        for field in ("kappa", "answer_step_size"):
            _positive(field, getattr(self, field))
        for field in ("step_size", "linear_step_size"):
            if getattr(self, field) is not None:
                _positive(field, getattr(self, field))
        for field in ("momentum", "linear_momentum"):
            _between(field, getattr(self, field), 0.0, 1.0, open_end=True)
        for field in ("input_threshold", "cumulant_threshold"):
            _positive(field, getattr(self, field), or_zero=True)
        _choice("swapped_input", self.swapped_input, ("zero", "random"))
        _choice("changed_question", self.changed_question, ("random", "keep"))
        _flag("scale_answer_step_size", self.scale_answer_step_size)
        _flag("hidden_bias", self.hidden_bias)

    @classmethod
    def for_boards(cls, num_boards: int, num_features: int | None = None, **overrides: Any) -> Self:
        """Table 1 for that many components: two questions each; g is clipped to `num_features` if given."""
        _whole("num_boards", num_boards)
        values: dict[str, Any] = {"num_questions": 2 * num_boards, "inputs_per_question": 82, **overrides}
        if num_features is not None:
            for field in ("num_questions", "inputs_per_question"):
                if field not in overrides:
                    values[field] = min(values[field], num_features)
        return cls(**values)

    @classmethod
    def literal(cls, num_boards: int, num_features: int | None = None, **overrides: Any) -> Self:
        """Table 1 and the boxes word by word: one step size kappa/sqrt(h), momentum for all, random swaps."""
        literal = {
            "answer_step_size": overrides.get("kappa", KAPPA),
            "scale_answer_step_size": True,
            "linear_momentum": 0.99,
            "swapped_input": "random",
        }
        return cls.for_boards(num_boards, num_features, **{**literal, **overrides})

    def validate_for(self, num_features: int, num_actions: int) -> None:
        super().validate_for(num_features, num_actions)
        for field in ("inputs_per_question", "num_questions"):
            value = getattr(self, field)
            _require(value <= num_features, f"{field}={value} exceeds the {num_features} features; lower it")

    @property
    def rows_per_question(self) -> int:
        """Rows of w_u in one question: g, and one for the bias where there is one (the last)."""
        return self.inputs_per_question + int(self.hidden_bias)

    @property
    def main_alpha(self) -> float:
        """The main learner's step size after scaling."""
        return self.kappa / math.sqrt(self.num_questions) if self.step_size is None else self.step_size

    @property
    def linear_alpha(self) -> float:
        """The step size of support and discovery after scaling."""
        if self.linear_step_size is not None:
            return self.linear_step_size
        return self.kappa / math.sqrt(self.num_questions)

    @property
    def answer_alpha(self) -> float:
        """The GVF answers' step size after scaling."""
        scale = math.sqrt(self.num_questions) if self.scale_answer_step_size else 1.0
        return self.answer_step_size / scale


@dataclass(frozen=True, kw_only=True)
class ValueNetworkConfig(AgentConfig):
    """One hidden layer of ReLU units over the bits, trained by SGD with momentum: Q, QV, known structure."""

    hidden_units: int = 256  # d (per block)
    step_size: float = 0.001
    momentum: float = 0.99
    hidden_bias: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _whole("hidden_units", self.hidden_units)
        _positive("step_size", self.step_size)
        _between("momentum", self.momentum, 0.0, 1.0, open_end=True)
        _flag("hidden_bias", self.hidden_bias)

    @property
    def learns_state_value(self) -> bool:
        """True: QV, which bootstraps from its own state value; False: Q-learning."""
        raise NotImplementedError(f"{type(self).__name__} is not an agent by itself")


@dataclass(frozen=True, kw_only=True)
class QLearningConfig(ValueNetworkConfig):
    """Q-learning with one hidden layer over all bits; no replay, no target network."""

    name: ClassVar[str] = "q-learning"

    @property
    def learns_state_value(self) -> bool:
        return False


@dataclass(frozen=True, kw_only=True)
class QVLearningConfig(ValueNetworkConfig):
    """QV-learning with one hidden layer over all bits: a GVF answer whose cumulant is the reward."""

    name: ClassVar[str] = "qv-learning"

    @property
    def learns_state_value(self) -> bool:
        return True


@dataclass(frozen=True, kw_only=True)
class KnownStructureConfig(ValueNetworkConfig):
    """One small network per component, values summed (figure 1b): the structure is given, not found."""

    name: ClassVar[str] = "known-structure"

    form: str = "qv"  # "qv" or "q"

    def __post_init__(self) -> None:
        super().__post_init__()
        _choice("form", self.form, ("qv", "q"))

    @property
    def learns_state_value(self) -> bool:
        return self.form == "qv"


@dataclass(frozen=True, kw_only=True)
class LinearConfig(AgentConfig):
    """Q-learning that is linear in the bits: what can be had without any hidden unit."""

    name: ClassVar[str] = "linear"

    step_size: float = 0.001
    momentum: float = 0.99

    def __post_init__(self) -> None:
        super().__post_init__()
        _positive("step_size", self.step_size)
        _between("momentum", self.momentum, 0.0, 1.0, open_end=True)


@dataclass(frozen=True, kw_only=True)
class RandomConfig(AgentConfig):
    """The uniformly random policy: the line that learning starts from."""

    name: ClassVar[str] = "random"

    epsilon: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(self.epsilon == 1.0, f"epsilon={self.epsilon!r} must be 1.0: this agent is always random")


@dataclass(frozen=True, kw_only=True)
class PlannerConfig(AgentConfig):
    """Acts by the sum of the components' exact optimal action values: the line that learning aims at."""

    name: ClassVar[str] = "planner"


def _choice(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    _require(value in allowed, f"{name}={value!r} must be {' or '.join(map(repr, allowed))}")


def _flag(name: str, value: Any) -> None:
    _require(isinstance(value, bool), f"{name}={value!r} must be True or False")
