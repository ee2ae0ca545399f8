"""A small Rainbow and a problem it solves in seconds; one shape for all tests, so that it compiles once."""

import numpy as np
import pytest

pytest.importorskip("jax")

from nibbler.agents.rainbow import RainbowConfig
from nibbler.mdp.environment import Environment
from nibbler.mdp.finite_mdp import FiniteMDP


@pytest.fixture(scope="session")
def small() -> RainbowConfig:
    """Rainbow with everything small, a replay that wraps around, and quick learning."""
    return RainbowConfig(
        discount=0.5,
        shared_units=16,
        head_units=24,
        num_atoms=11,
        value_bound=3.0,
        learning_rate=0.003,
        batch_size=8,
        target_period=40,
        replay_capacity=300,
        min_replay=30,
        importance_steps=2_000,
    )


@pytest.fixture(scope="session")
def matching() -> Environment:
    """Three states at random; the action of a state's own number earns 1, others nothing: at best 1 each."""
    transition = np.full((3, 3, 3), 1 / 3)
    mdp = FiniteMDP.from_dense(transition, np.eye(3), np.eye(3, dtype=int), start=[0.5, 0.25, 0.25])
    return Environment([mdp], seed=4)
