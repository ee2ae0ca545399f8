"""A first look at an environment: its exact and simulated reward rates, and what its boards show."""

from __future__ import annotations

import time

import gymnasium
import numpy as np

import nibbler
from nibbler.mdp import simulate

BOARDS = 8
STEPS = 2_000_000
SEED = 0


def main() -> None:
    env = nibbler.multi_catch(BOARDS, seed=SEED)
    print(env)

    states = np.empty(env.num_components, dtype=np.int32)
    active = np.empty(env.max_active, dtype=np.int32)
    simulate.start(env.tables, states, SEED)
    simulate.simulate_random(env.tables, states, SEED, 0, 1, active)  # compiles
    began = time.perf_counter()
    total = simulate.simulate_random(env.tables, states, SEED, 1, STEPS, active)
    seconds = time.perf_counter() - began
    print(f"random policy, exact reward rate     {nibbler.reward_rate(env):+.5f}")
    print(f"random policy, {STEPS:,} steps    {total / STEPS:+.5f}  ({STEPS / seconds / 1e6:.1f}M steps/s)")

    planner = nibbler.Planner(env, epsilon=0.1, seed=SEED)
    print(f"planner that knows every table       {planner.simulate(200_000):+.5f}")
    print(f"upper bound for any policy           {nibbler.uncoupled_bound(env):+.5f}")

    window = gymnasium.make("nibbler/MultiCatch-v0", num_boards=BOARDS, render_mode="ansi")
    window.reset(seed=SEED)
    window.action_space.seed(SEED)
    for _ in range(40):
        window.step(window.action_space.sample())
    print(window.render())


if __name__ == "__main__":
    main()
