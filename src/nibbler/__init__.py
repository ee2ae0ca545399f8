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
    "map_actions": "nibbler.mdp.algebra",
    "permute_actions": "nibbler.mdp.algebra",
    "product": "nibbler.mdp.algebra",
    "garnet": "nibbler.mdp.classics",
    "river_swim": "nibbler.mdp.classics",
    "discounted_values": "nibbler.mdp.exact",
    "feature_frequencies": "nibbler.mdp.exact",
    "optimal_rate": "nibbler.mdp.exact",
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
    "RainbowConfig": "nibbler.agents.rainbow",
    "train": "nibbler.engines.run",
    "Result": "nibbler.engines.run",
    "open_run": "nibbler.engines.run",
    "inspect_state": "nibbler.engines.inspect",
    "Nibbler": "nibbler.engines.stream",
    "train_gymnasium": "nibbler.engines.gymnasium_loop",
}

__all__ = ["__version__", *_HOME]

if TYPE_CHECKING:
    from nibbler.agents.config import KnownStructureConfig as KnownStructureConfig
    from nibbler.agents.config import LinearConfig as LinearConfig
    from nibbler.agents.config import NibblerConfig as NibblerConfig
    from nibbler.agents.config import PlannerConfig as PlannerConfig
    from nibbler.agents.config import QLearningConfig as QLearningConfig
    from nibbler.agents.config import QVLearningConfig as QVLearningConfig
    from nibbler.agents.config import RandomConfig as RandomConfig
    from nibbler.agents.rainbow import RainbowConfig as RainbowConfig
    from nibbler.engines.gymnasium_loop import train_gymnasium as train_gymnasium
    from nibbler.engines.inspect import inspect_state as inspect_state
    from nibbler.engines.run import Result as Result
    from nibbler.engines.run import open_run as open_run
    from nibbler.engines.run import train as train
    from nibbler.engines.stream import Nibbler as Nibbler
    from nibbler.envs.catch import catch_board as catch_board
    from nibbler.envs.catch import continuing_catch_board as continuing_catch_board
    from nibbler.envs.catch import episodic_catch_board as episodic_catch_board
    from nibbler.envs.gymnasium_env import GymnasiumEnv as GymnasiumEnv
    from nibbler.envs.multi_catch import multi_catch as multi_catch
    from nibbler.envs.vector_env import NibblerVectorEnv as NibblerVectorEnv
    from nibbler.mdp.algebra import hot_gate as hot_gate
    from nibbler.mdp.algebra import map_actions as map_actions
    from nibbler.mdp.algebra import permute_actions as permute_actions
    from nibbler.mdp.algebra import product as product
    from nibbler.mdp.classics import garnet as garnet
    from nibbler.mdp.classics import river_swim as river_swim
    from nibbler.mdp.environment import Environment as Environment
    from nibbler.mdp.exact import Planner as Planner
    from nibbler.mdp.exact import discounted_values as discounted_values
    from nibbler.mdp.exact import feature_frequencies as feature_frequencies
    from nibbler.mdp.exact import optimal_rate as optimal_rate
    from nibbler.mdp.exact import optimal_values as optimal_values
    from nibbler.mdp.exact import reward_rate as reward_rate
    from nibbler.mdp.exact import stationary_distribution as stationary_distribution
    from nibbler.mdp.exact import uncoupled_bound as uncoupled_bound
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
