"""Any environment as a Gymnasium environment, and the registered ones."""

from __future__ import annotations

import operator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from nibbler.envs.catch import episodic_catch_board
from nibbler.envs.multi_catch import multi_catch
from nibbler.envs.registration import register
from nibbler.envs.render import Renderer
from nibbler.mdp import simulate
from nibbler.mdp.environment import Environment
from nibbler.mdp.philox import check_seed

__all__ = ["EpisodicCatchEnv", "GymnasiumEnv", "MultiCatchEnv", "register"]

RENDER_MODES = ("ansi", "rgb_array")
Observation = NDArray[np.int8]


class GymnasiumEnv(gymnasium.Env[Observation, Any]):
    """Puts any `Environment` behind Gymnasium's interface, stepped by the compiled kernel.

    Observations are 0/1 vectors in observed order. `reset(seed=s)` starts the trajectory that the simulation
    routines give for seed s. `reset()` begins one with a seed drawn from `np_random`, except at the end of
    an episode: there it goes on to the next episode of the same trajectory.
    Continuing environments never terminate; `gymnasium.make(..., max_episode_steps=n)` cuts them.
    """

    metadata = {"render_modes": list(RENDER_MODES), "render_fps": 10}  # noqa: RUF012 (Gymnasium's name)

    def __init__(self, environment: Environment, render_mode: str | None = None) -> None:
        check_render_mode(render_mode)
        self.environment = environment
        self.render_mode = render_mode
        self.observation_space = spaces.MultiBinary(environment.num_features)
        self.action_space = action_space(environment)
        self.states: NDArray[np.int32] = np.zeros(environment.num_components, dtype=np.int32)
        independent = environment.coupling == "independent"
        self._first_action = np.zeros(environment.num_components, dtype=np.int64) if independent else 0
        self._active = np.zeros(environment.max_active, dtype=np.int32)
        self._trajectory_seed: Any = np.uint64(0)  # compiled code takes a plain int as signed
        self._step = 0
        self._renderer: Renderer | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin a trajectory or, without a seed at the end of an episode, the next episode."""
        super().reset(seed=seed)
        if seed is None and self._step > 0 and self._terminated():
            # The tables lead from a terminal state to the start distribution, whatever the action.
            _, count = self._advance(self._first_action)
            return self._observation(count), {}
        self._trajectory_seed = np.uint64(
            self.np_random.integers(2**63) if seed is None else check_seed(seed)
        )
        self._step = 0
        simulate.start(self.environment.tables, self.states, self._trajectory_seed)
        return self._observation(simulate.observe(self.environment.tables, self.states, self._active)), {}

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """One step under an action, or under one action per component where they are independent."""
        reward, count = self._advance(checked_action(self.environment, action))
        return self._observation(count), float(reward), self._terminated(), False, {}

    def render(self) -> Any:
        """The boards side by side: text under `ansi`, an image under `rgb_array`."""
        if self.render_mode is None:
            return None
        if self._renderer is None:
            self._renderer = Renderer(self.environment)
        draw = self._renderer.ansi if self.render_mode == "ansi" else self._renderer.rgb_array
        return draw(self.states)

    def _advance(self, action: Any) -> tuple[float, int]:
        move = (
            simulate.step_environment
            if self.environment.coupling == "broadcast"
            else simulate.step_independent
        )
        tables, seed = self.environment.tables, self._trajectory_seed
        reward, count = move(tables, self.states, action, seed, self._step, self._active)
        self._step += 1
        return reward, count

    def _terminated(self) -> bool:
        terminal = self.environment.components[0].terminal
        return self.environment.episodic and terminal is not None and bool(terminal[self.states[0]])

    def _observation(self, count: int) -> Observation:
        observation = np.zeros(self.environment.num_features, dtype=np.int8)
        observation[self._active[:count]] = 1
        return observation


class MultiCatchEnv(GymnasiumEnv):
    """`nibbler/MultiCatch-v0`: takes the arguments of `multi_catch`; `seed` is that of the permutation."""

    def __init__(self, num_boards: int = 8, render_mode: str | None = None, **options: Any) -> None:
        super().__init__(multi_catch(num_boards, **options), render_mode)


class EpisodicCatchEnv(GymnasiumEnv):
    """`nibbler/EpisodicCatch-v0`: takes the arguments of `episodic_catch_board`; no permutation."""

    def __init__(self, render_mode: str | None = None, **options: Any) -> None:
        super().__init__(Environment([episodic_catch_board(**options)], permute=False), render_mode)


def action_space(environment: Environment) -> spaces.Discrete | spaces.MultiDiscrete:
    """One choice for all components, or one for each where they are independent."""
    if environment.coupling == "broadcast":
        return spaces.Discrete(environment.num_actions)
    return spaces.MultiDiscrete(list(environment.action_counts))


def checked_action(environment: Environment, action: Any) -> int | NDArray[np.int64]:
    """An action in the form that the kernels take, or an error that says what is allowed."""
    if environment.coupling == "broadcast":
        try:
            number = operator.index(action)
        except TypeError:
            number = -1
        if 0 <= number < environment.num_actions:
            return number
    else:
        numbers = np.asarray(action)
        if (
            numbers.dtype.kind in "iu"
            and numbers.shape == (environment.num_components,)
            and ((numbers >= 0) & (numbers < environment.action_counts)).all()
        ):
            return numbers.astype(np.int64)
    raise ValueError(f"action {action!r} is not in {action_space(environment)}; give whole numbers in range")


def check_render_mode(render_mode: str | None) -> None:
    """Raise where a render mode is unknown."""
    if render_mode is not None and render_mode not in RENDER_MODES:
        raise ValueError(f"render_mode={render_mode!r} is unknown; use one of {', '.join(RENDER_MODES)}")
