"""A run that costs nothing and remembers everything: its rewards depend on all that came before."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np


def make_env(num_boards: int = 2, per_board: int = 3) -> SimpleNamespace:
    features = num_boards * per_board
    return SimpleNamespace(
        num_components=num_boards,
        num_features=features,
        num_actions=3,
        feature_names=tuple(f"bit {k % per_board}" for k in range(features)),
        component_of_feature=np.arange(features, dtype=np.int32) // per_board,
    )


class ToyRun:
    """A linear congruential stream: losing or repeating one step changes every later reward."""

    def __init__(
        self, env: Any, seed: int, delay: float, fail_at: int | None, kill_at: int | None, once: str | None
    ) -> None:
        self.step = 0
        self._value = seed
        self._touched = 0
        # Seconds per thousand steps; from outside, where the same spec is to be quick another time.
        self._delay = max(delay, float(os.environ.get("TOY_DELAY", "0")))
        self._fail_at = fail_at
        self._kill_at = kill_at
        self._once = once
        self._inputs = np.arange(env.num_features, dtype=np.int32).reshape(env.num_components, -1)

    def advance(self, steps: int) -> float:
        total = 0.0
        for _ in range(steps):
            self._value = (self._value * 1103515245 + 12345) % 2**31
            total += self._value / 2**31 - 0.3
            self._touched += 1 + self._value % 7
            self.step += 1
            if self.step == self._fail_at:
                raise ArithmeticError(f"the toy breaks at step {self.step}")
            if self.step == self._kill_at and not (self._once and os.path.exists(self._once)):
                if self._once:
                    open(self._once, "w").close()
                os.kill(os.getpid(), 9)
        time.sleep(self._delay * steps / 1000)
        while self.step >= 5_000 and os.path.exists(os.environ.get("TOY_HOLD", "")):
            time.sleep(0.02)
        self._inputs = (self._inputs + steps) % self._inputs.size
        return total

    def advance_bins(self, num_bins: int, bin_size: int) -> np.ndarray:
        return np.array([self.advance(bin_size) for _ in range(num_bins)])

    def counters(self) -> dict[str, float]:
        return {"weights_touched": self._touched}

    def state(self) -> dict[str, np.ndarray]:
        return {
            "step": np.array(self.step),
            "value": np.array(self._value),
            "weights_touched": np.array(self._touched),
            "inputs": self._inputs.copy(),
            "cumulants": self._inputs[:, 0].copy(),
        }

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        self.step = int(state["step"])
        self._value = int(state["value"])
        self._touched = int(state["weights_touched"])
        self._inputs = state["inputs"].copy()


def make_run(
    env: Any,
    seed: int,
    delay: float = 0.0,
    fail_at: int | None = None,
    kill_at: int | None = None,
    once: str | None = None,
    chatter: bool = False,
) -> ToyRun:
    if chatter:
        print("an agent may print", flush=True)
    return ToyRun(env, seed, delay, fail_at, kill_at, once)


def make_number(env: Any, seed: int) -> int:
    return seed


class ForgetfulStepper:
    """An agent that only answers: its actions depend on all that it has seen."""

    def __init__(self, seed: int) -> None:
        self.memory = seed

    def step(self, reward: float, observation: np.ndarray) -> int:
        seen = int(observation @ np.arange(1, len(observation) + 1)) + int(reward * 7)
        self.memory = (self.memory * 31 + seen) % 1_000_003
        return self.memory % 3


class Stepper(ForgetfulStepper):
    """The same, able to save itself."""

    def state(self) -> dict[str, np.ndarray]:
        return {"memory": np.array(self.memory)}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        self.memory = int(state["memory"])


def make_stepper(env: Any, seed: int) -> Stepper:
    return Stepper(seed)


def make_forgetful_stepper(env: Any, seed: int) -> ForgetfulStepper:
    return ForgetfulStepper(seed)
