"""Scalable model-free reinforcement learning on large, binary, unstructured observations."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from nibbler.envs.registration import register as _register_environments

__version__ = "0.1.0"

# Where each public name lives. Names are imported when first used, so that `import nibbler` is quick.
_HOME = {
    "FiniteMDP": "nibbler.mdp.finite_mdp",
    "Environment": "nibbler.mdp.environment",
    "hot_gate": "nibbler.mdp.algebra",
    "permute_actions": "nibbler.mdp.algebra",
    "product": "nibbler.mdp.algebra",
    "garnet": "nibbler.mdp.classics",
    "river_swim": "nibbler.mdp.classics",
    "discounted_values": "nibbler.mdp.exact",
    "feature_frequencies": "nibbler.mdp.exact",
    "optimal_values": "nibbler.mdp.exact",
    "Planner": "nibbler.mdp.exact",
    "reward_rate": "nibbler.mdp.exact",
    "stationary_distribution": "nibbler.mdp.exact",
    "uncoupled_bound": "nibbler.mdp.exact",
    "catch_board": "nibbler.envs.catch",
    "continuing_catch_board": "nibbler.envs.catch",
    "episodic_catch_board": "nibbler.envs.catch",
    "multi_catch": "nibbler.envs.multi_catch",
    "GymnasiumEnv": "nibbler.envs.gymnasium_env",
    "NibblerVectorEnv": "nibbler.envs.vector_env",
    "NibblerConfig": "nibbler.agents.config",
    "QLearningConfig": "nibbler.agents.config",
    "QVLearningConfig": "nibbler.agents.config",
    "KnownStructureConfig": "nibbler.agents.config",
    "LinearConfig": "nibbler.agents.config",
    "RandomConfig": "nibbler.agents.config",
    "PlannerConfig": "nibbler.agents.config",
    "train": "nibbler.engines.run",
    "Result": "nibbler.engines.run",
    "open_run": "nibbler.engines.run",
    "inspect_state": "nibbler.engines.inspect",
    "Nibbler": "nibbler.engines.stream",
    "train_gymnasium": "nibbler.engines.gymnasium_loop",
}

__all__ = ["__version__", *_HOME]

if TYPE_CHECKING:
    from nibbler.mdp.environment import Environment as Environment
    from nibbler.mdp.finite_mdp import FiniteMDP as FiniteMDP


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'nibbler' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


_register_environments()
