"""Agents by name, with the defaults that fit an environment's size."""

import importlib
from collections.abc import Mapping
from typing import Any

from nibbler.agents.config import AgentConfig, NibblerConfig

_CONFIGS = {
    "nibbler": "nibbler.agents.config:NibblerConfig",
    "q-learning": "nibbler.agents.config:QLearningConfig",
    "qv-learning": "nibbler.agents.config:QVLearningConfig",
    "known-structure": "nibbler.agents.config:KnownStructureConfig",
    "linear": "nibbler.agents.config:LinearConfig",
    "random": "nibbler.agents.config:RandomConfig",
    "planner": "nibbler.agents.config:PlannerConfig",
    "rainbow": "nibbler.agents.rainbow:RainbowConfig",
}
AGENT_NAMES = tuple(_CONFIGS)


def config_class(name: str) -> type[AgentConfig]:
    """The config class of an agent's name."""
    if name not in _CONFIGS:
        raise ValueError(f"agent={name!r} is not known; choose one of {', '.join(AGENT_NAMES)}")
    module, attribute = _CONFIGS[name].split(":")
    found: type[AgentConfig] = getattr(importlib.import_module(module), attribute)
    return found


def default_config(name: str, num_components: int, num_features: int, **overrides: Any) -> AgentConfig:
    """The config that a bare agent name stands for on a problem of this size; overrides are fields."""
    cls = config_class(name)
    if issubclass(cls, NibblerConfig):
        return cls.for_boards(num_components, num_features, **overrides)
    return cls.from_dict(overrides)


def config_from_dict(data: Mapping[str, Any]) -> AgentConfig:
    """The config that `AgentConfig.to_dict` wrote: the agent's name under "agent" and all its fields."""
    if "agent" not in data:
        raise ValueError(f'no "agent" in the config; name one of {", ".join(AGENT_NAMES)}')
    return config_class(data["agent"]).from_dict(data)
