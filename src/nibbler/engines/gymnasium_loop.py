"""Train Nibbler on any Gymnasium environment with binary observations and discrete actions."""

import time
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from nibbler.agents.config import NibblerConfig
from nibbler.engines.progress import ProgressBar
from nibbler.engines.stream import Nibbler


@dataclass(frozen=True)
class GymnasiumResult:
    """What an agent earned in a Gymnasium environment."""

    agent: Nibbler
    rewards: np.ndarray  # mean reward per bin of steps; the last bin may be shorter
    bin_size: int
    episode_returns: np.ndarray  # of the episodes that ended
    episode_lengths: np.ndarray
    steps: int
    steps_per_second: float


def train_gymnasium(
    env: gymnasium.Env[Any, Any] | str,
    agent: Nibbler | NibblerConfig | None = None,
    steps: int = 100_000,
    seed: int = 0,
    bin_size: int = 10_000,
    progress: bool | None = None,
) -> GymnasiumResult:
    """Run `agent` for `steps` steps in a Gymnasium environment, given itself or by its id.

    Observations must be MultiBinary or a Box of 0/1 values (of any shape), actions Discrete. Where an
    episode terminates the agent's bootstrapping is cut; where it is only truncated it is not. A config, or
    nothing, makes a new agent from `seed`, which also seeds the environment's first reset.
    """
    if steps < 1 or bin_size < 1:
        raise ValueError(f"steps={steps} and bin_size={bin_size} must be at least 1")
    made = gymnasium.make(env) if isinstance(env, str) else env
    try:
        return _train(made, agent, steps, seed, bin_size, progress)
    finally:
        if isinstance(env, str):
            made.close()


def _train(
    env: gymnasium.Env[Any, Any],
    agent: Nibbler | NibblerConfig | None,
    steps: int,
    seed: int,
    bin_size: int,
    progress: bool | None,
) -> GymnasiumResult:
    num_features, num_actions, first_action = binary_spaces(env)
    if not isinstance(agent, Nibbler):
        agent = Nibbler(num_features, num_actions, agent, seed)
    if (agent.num_features, agent.num_actions) != (num_features, num_actions):
        raise ValueError(
            f"the agent is for {agent.num_features} features and {agent.num_actions} actions, "
            f"the environment has {num_features} and {num_actions}; make the agent with those"
        )
    rewards = np.zeros(steps)
    returns: list[float] = []
    lengths: list[int] = []
    began = time.perf_counter()
    episode_start = 0
    with ProgressBar("nibbler", steps, 0, progress) as bar:
        observation, _ = env.reset(seed=seed)
        action = agent.start(observation)
        for t in range(steps):
            observation, reward, terminated, truncated, _ = env.step(first_action + action)
            rewards[t] = reward
            action = agent.step(float(reward), observation, discount=0.0 if terminated else None)
            if terminated or truncated:
                returns.append(float(rewards[episode_start : t + 1].sum()))
                lengths.append(t + 1 - episode_start)
                episode_start = t + 1
                observation, _ = env.reset()
                action = agent.start(observation)
            if (t + 1) % 1000 == 0:
                speed = (t + 1) / (time.perf_counter() - began)
                bar.update(t + 1, speed, float(rewards[max(0, t + 1 - bin_size) : t + 1].mean()))
    means = [rewards[first : first + bin_size].mean() for first in range(0, steps, bin_size)]
    speed = steps / (time.perf_counter() - began)
    return GymnasiumResult(
        agent, np.array(means), bin_size, np.array(returns), np.array(lengths), steps, speed
    )


def binary_spaces(env: gymnasium.Env[Any, Any]) -> tuple[int, int, int]:
    """Number of features, number of actions, first action; spaces that are not binary are refused."""
    observations, actions = env.observation_space, env.action_space
    if not isinstance(actions, gymnasium.spaces.Discrete):
        raise ValueError(f"the action space is {actions}; Nibbler needs Discrete actions")
    if isinstance(observations, gymnasium.spaces.MultiBinary):
        return int(np.prod(observations.shape)), int(actions.n), int(actions.start)
    if isinstance(observations, gymnasium.spaces.Box) and (
        np.all(observations.low >= 0) and np.all(observations.high <= 1)
    ):
        return int(np.prod(observations.shape)), int(actions.n), int(actions.start)
    raise ValueError(f"the observation space is {observations}; Nibbler needs MultiBinary or a 0/1 Box")
