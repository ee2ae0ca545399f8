"""Many copies of one environment as a Gymnasium vector environment, stepped by one compiled loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numba import njit
from numpy.typing import NDArray

from nibbler.envs.catch import episodic_catch_board
from nibbler.envs.gymnasium_env import RENDER_MODES, action_space, check_render_mode
from nibbler.envs.multi_catch import multi_catch
from nibbler.envs.render import Renderer
from nibbler.mdp.environment import Environment, EnvTables
from nibbler.mdp.philox import check_seed
from nibbler.mdp.simulate import observe, start, step_environment, step_independent

Batch = NDArray[Any]


class NibblerVectorEnv(VectorEnv[Batch, Batch, Batch]):
    """Steps `num_envs` independent copies of an `Environment` in compiled code.

    Copy i of `reset(seed=s)` is `GymnasiumEnv` reset with seed s + i, observation by observation. An episode
    that has ended goes on to the next one in the following step (Gymnasium's next-step autoreset), as in the
    tables themselves. `max_episode_steps` cuts episodes: the next step then begins a trajectory with a seed
    from `np_random`.
    """

    metadata = {  # noqa: RUF012 (Gymnasium's name)
        "render_modes": list(RENDER_MODES),
        "render_fps": 10,
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(
        self,
        environment: Environment,
        num_envs: int = 1,
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
    ) -> None:
        if num_envs != int(num_envs) or num_envs < 1:
            raise ValueError(f"num_envs={num_envs} is no vector; use a whole number of at least 1")
        if max_episode_steps is not None and max_episode_steps < 1:
            raise ValueError(f"max_episode_steps={max_episode_steps} is too short; use at least 1, or None")
        check_render_mode(render_mode)
        self.environment = environment
        self.num_envs = int(num_envs)
        self.render_mode = render_mode
        self.max_episode_steps = max_episode_steps
        self.single_observation_space = spaces.MultiBinary(environment.num_features)
        self.single_action_space = action_space(environment)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.states = np.zeros((self.num_envs, environment.num_components), dtype=np.int32)
        terminal = environment.components[0].terminal
        self._terminal = np.zeros(0, dtype=bool) if terminal is None else terminal
        self._active = np.zeros(environment.max_active, dtype=np.int32)
        self._seeds = np.zeros(self.num_envs, dtype=np.uint64)
        self._steps = np.zeros(self.num_envs, dtype=np.int64)  # since the trajectory began
        self._episode_steps = np.zeros(self.num_envs, dtype=np.int64)
        self._ended = np.zeros(self.num_envs, dtype=bool)
        self._cut = np.zeros(self.num_envs, dtype=bool)
        self._renderer: Renderer | None = None

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Batch, dict[str, Any]]:
        """Begin a trajectory in every copy: with seeds s, s + 1, ... or those given, or fresh ones."""
        if seed is None or isinstance(seed, (int, np.integer)):
            super().reset(seed=None if seed is None else int(seed))
            seeds: list[int | None] = [None if seed is None else int(seed) + i for i in range(self.num_envs)]
        else:
            seeds = list(seed)
        if len(seeds) != self.num_envs:
            raise ValueError(f"got {len(seeds)} seeds for {self.num_envs} copies; give one per copy")
        self._seeds[:] = [self._fresh_seed() if s is None else check_seed(s) for s in seeds]
        for counter in (self._steps, self._episode_steps, self._ended, self._cut):
            counter[:] = 0
        observations = np.zeros(self._shape, dtype=np.int8)
        chosen = np.arange(self.num_envs)
        _start_copies(self.environment.tables, self.states, self._seeds, chosen, self._active, observations)
        return observations, {}

    def step(self, actions: Batch) -> tuple[Batch, Batch, Batch, Batch, dict[str, Any]]:
        """One step of every copy; copies whose episode has just ended begin the next one instead."""
        moves = self._checked(actions)
        observations = np.zeros(self._shape, dtype=np.int8)
        rewards = np.zeros(self.num_envs)
        step_copies = _step_copies if self.environment.coupling == "broadcast" else _step_copies_independent
        step_copies(
            self.environment.tables,
            self.states,
            moves,
            self._seeds,
            self._steps,
            self._active,
            observations,
            rewards,
        )
        self._steps += 1
        self._episode_steps += 1
        # The tables have led the copies that ended to a start state; those that were cut begin anew.
        restarted = self._ended | self._cut
        if self._cut.any():
            self._begin_anew(np.flatnonzero(self._cut & ~self._ended), observations, rewards)
        self._episode_steps[restarted] = 0
        self._ended = np.zeros(self.num_envs, dtype=bool)
        if self._terminal.size:
            self._ended = self._terminal[self.states[:, 0]] & ~restarted
        self._cut = np.zeros(self.num_envs, dtype=bool)
        if self.max_episode_steps is not None:
            self._cut = self._episode_steps >= self.max_episode_steps
        return observations, rewards, self._ended.copy(), self._cut.copy(), {}

    def render(self) -> tuple[Any, ...] | None:
        """A frame of every copy."""
        if self.render_mode is None:
            return None
        if self._renderer is None:
            self._renderer = Renderer(self.environment)
        draw = self._renderer.ansi if self.render_mode == "ansi" else self._renderer.rgb_array
        return tuple(draw(states) for states in self.states)

    @property
    def _shape(self) -> tuple[int, int]:
        return self.num_envs, self.environment.num_features

    def _fresh_seed(self) -> int:
        return int(self.np_random.integers(2**63))

    def _begin_anew(self, chosen: NDArray[np.int64], observations: Batch, rewards: Batch) -> None:
        self._seeds[chosen] = [self._fresh_seed() for _ in chosen]
        self._steps[chosen] = 0
        rewards[chosen] = 0.0
        observations[chosen] = 0
        _start_copies(self.environment.tables, self.states, self._seeds, chosen, self._active, observations)

    def _checked(self, actions: Batch) -> NDArray[np.int64]:
        moves = np.asarray(actions)
        shape = self.action_space.shape
        counts = np.asarray(self.environment.action_counts)
        limit = counts[0] if self.environment.coupling == "broadcast" else counts
        if moves.shape != shape or moves.dtype.kind not in "iu" or not ((moves >= 0) & (moves < limit)).all():
            raise ValueError(f"actions must be whole numbers in {self.action_space}, got {actions!r}")
        return moves.astype(np.int64)


class MultiCatchVectorEnv(NibblerVectorEnv):
    """`gymnasium.make_vec("nibbler/MultiCatch-v0", ...)`: copies of `multi_catch`, with its arguments."""

    def __init__(
        self,
        num_envs: int = 1,
        num_boards: int = 8,
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(multi_catch(num_boards, **options), num_envs, render_mode, max_episode_steps)


class EpisodicCatchVectorEnv(NibblerVectorEnv):
    """`gymnasium.make_vec("nibbler/EpisodicCatch-v0", ...)`: copies of the episodic board."""

    def __init__(
        self,
        num_envs: int = 1,
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
        **options: Any,
    ) -> None:
        board = Environment([episodic_catch_board(**options)], permute=False)
        super().__init__(board, num_envs, render_mode, max_episode_steps)


@njit(cache=True)
def _start_copies(
    tables: EnvTables, states: Any, seeds: Any, chosen: Any, active: Any, observations: Any
) -> None:
    """Draw start states of the chosen copies and write their observations into rows of zeros."""
    for i in chosen:
        start(tables, states[i], seeds[i])
        count = observe(tables, states[i], active)
        for k in range(count):
            observations[i, active[k]] = 1


@njit(cache=True)
def _step_copies(
    tables: EnvTables,
    states: Any,
    actions: Any,
    seeds: Any,
    steps: Any,
    active: Any,
    observations: Any,
    rewards: Any,
) -> None:
    """One step of every copy under its action; writes into rows of zeros."""
    for i in range(states.shape[0]):
        rewards[i], count = step_environment(tables, states[i], actions[i], seeds[i], steps[i], active)
        for k in range(count):
            observations[i, active[k]] = 1


@njit(cache=True)
def _step_copies_independent(
    tables: EnvTables,
    states: Any,
    actions: Any,
    seeds: Any,
    steps: Any,
    active: Any,
    observations: Any,
    rewards: Any,
) -> None:
    """As `_step_copies`, with an action for every component of every copy."""
    for i in range(states.shape[0]):
        rewards[i], count = step_independent(tables, states[i], actions[i], seeds[i], steps[i], active)
        for k in range(count):
            observations[i, active[k]] = 1
