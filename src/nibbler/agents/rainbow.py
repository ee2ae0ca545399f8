"""Every number of the Rainbow baseline, without importing JAX (which only its engine needs)."""

from dataclasses import dataclass
from typing import ClassVar

from nibbler.agents.config import AgentConfig, _between, _positive, _require, _whole


@dataclass(frozen=True, kw_only=True)
class RainbowConfig(AgentConfig):
    """Rainbow as DQN Zoo sets it, counted in environment steps, with the paper's layers for binary inputs.

    DQN Zoo counts Atari frames, four to a decision; here every step is a decision, so its periods are divided
    by four. `PAPER.md` lists where each value comes from.
    """

    name: ClassVar[str] = "rainbow"

    epsilon: float = 0.0  # exploration comes from the noisy layers alone

    shared_units: int = 256  # the dense layer that stands in for Atari's convolutions
    head_units: int = 512  # noisy hidden units of each head (value, advantage)
    num_atoms: int = 51  # points of the return distribution
    value_bound: float = 10.0  # the atoms span [-value_bound, value_bound]
    noise_scale: float = 0.1  # initial sigma of a noisy layer, times sqrt(its inputs)

    learning_rate: float = 0.00025 / 4
    adam_epsilon: float = 0.005 / 32
    max_gradient_norm: float = 10.0  # over all parameters together
    batch_size: int = 32
    learn_period: int = 4  # steps between updates
    target_period: int = 8_000  # steps between copies of the network to the target network

    num_steps: int = 3  # n of the n-step returns
    replay_capacity: int = 1_000_000  # transitions
    min_replay: int = 20_000  # transitions before the first update
    priority_exponent: float = 0.5
    uniform_share: float = 0.001  # of the samples, drawn without regard to priority
    importance_exponent_begin: float = 0.4
    importance_exponent_end: float = 1.0
    importance_steps: int = 50_000_000  # transition at which the exponent reaches its end
    max_abs_reward: float | None = None  # clip rewards to this size; None: leave them

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(self.epsilon == 0.0, f"epsilon={self.epsilon!r} must be 0.0: Rainbow explores by its noise")
        for field in (
            "shared_units",
            "head_units",
            "batch_size",
            "learn_period",
            "target_period",
            "num_steps",
            "replay_capacity",
            "min_replay",
            "importance_steps",
        ):
            _whole(field, getattr(self, field))
        for field in ("value_bound", "learning_rate", "adam_epsilon", "max_gradient_norm"):
            _positive(field, getattr(self, field))
        for field in ("noise_scale", "priority_exponent"):
            _positive(field, getattr(self, field), or_zero=True)
        for field in ("uniform_share", "importance_exponent_begin", "importance_exponent_end"):
            _between(field, getattr(self, field), 0.0, 1.0)
        if self.max_abs_reward is not None:
            _positive("max_abs_reward", self.max_abs_reward)
        _whole("num_atoms", self.num_atoms)
        _require(self.num_atoms >= 2, f"num_atoms={self.num_atoms} must be at least 2 to span an interval")
        _require(
            self.learn_period <= self.min_replay <= self.replay_capacity,
            f"min_replay={self.min_replay} must be between learn_period={self.learn_period} and "
            f"replay_capacity={self.replay_capacity}",
        )
        _require(
            self.target_period % self.learn_period == 0,
            f"target_period={self.target_period} must be a multiple of learn_period={self.learn_period}",
        )
        _require(
            self.importance_steps > self.min_replay,
            f"importance_steps={self.importance_steps} must exceed min_replay={self.min_replay}",
        )

    @property
    def first_update(self) -> int:
        """The step count at which the replay first holds `min_replay` transitions and an update is due."""
        filled = self.min_replay + self.num_steps - 1
        return -(-filled // self.learn_period) * self.learn_period
