"""An environment with gymnax's interface, for training loops written for gymnax; gymnax itself is not needed.

Follows gymnax 1.0 (checked against 1.0.1): `reset(key, params) -> observation, state` and `step(key, state,
action, params) -> observation, state, reward, terminated, truncated, info`, with automatic reset.
Multi-catch goes on for ever, so nothing ends unless `max_steps_in_episode` is set in the params.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import jax
import jax.numpy as jnp

from nibbler.engines.jax.environment import FunctionalEnvironment
from nibbler.engines.jax.spaces import in_use
from nibbler.mdp.environment import Environment

NO_LIMIT = 2**31 - 1


@partial(jax.tree_util.register_dataclass, data_fields=["states", "time"], meta_fields=[])
@dataclass(frozen=True)
class EnvState:
    """The state of every board, and the steps since the last reset."""

    states: jax.Array
    time: jax.Array

    def replace(self, **changes: Any) -> Self:
        """The same with some fields changed."""
        return replace(self, **changes)


@partial(jax.tree_util.register_dataclass, data_fields=["max_steps_in_episode"], meta_fields=[])
@dataclass(frozen=True)
class EnvParams:
    """After how many steps an episode is cut off."""

    max_steps_in_episode: int | jax.Array = NO_LIMIT

    def replace(self, **changes: Any) -> Self:
        """The same with some fields changed."""
        return replace(self, **changes)


class GymnaxEnvironment:
    """Any `Environment` behind gymnax's names; `terminated` is raised by episodic components alone."""

    def __init__(self, env: Environment, name: str = "nibbler") -> None:
        self._functions = FunctionalEnvironment(env)
        self._name = name
        self._action_counts = env.action_counts
        self._max_states = max(component.num_states for component in env.components)
        ends = env.components[0].terminal
        self._terminal = None if ends is None else jnp.asarray(ends)

    @property
    def default_params(self) -> EnvParams:
        """Params without a time limit."""
        return EnvParams()

    @property
    def name(self) -> str:
        """The environment's name."""
        return self._name

    @property
    def num_actions(self) -> int:
        """Number of (joint) actions."""
        return self._functions.num_actions

    @partial(jax.jit, static_argnums=0)
    def reset(self, key: jax.Array, params: EnvParams | None = None) -> tuple[jax.Array, EnvState]:
        """Start: the first observation and the state."""
        return self.reset_env(key, self.default_params if params is None else params)

    @partial(jax.jit, static_argnums=0)
    def step(
        self, key: jax.Array, state: EnvState, action: jax.Array, params: EnvParams | None = None
    ) -> tuple[jax.Array, EnvState, jax.Array, jax.Array, jax.Array, dict[str, Any]]:
        """One transition; at the end of an episode the state and observation are those of the next one."""
        params = self.default_params if params is None else params
        key_step, key_reset = jax.random.split(key)
        observation, after, reward, terminated, info = self.step_env(key_step, state, action, params)
        truncated = self.is_truncated(after, params)
        done = terminated | truncated
        first_observation, first = self.reset_env(key_reset, params)
        following = jax.tree.map(lambda new, old: jnp.where(done, new, old), first, after)
        info = {**info, "terminated": terminated, "truncated": truncated, "final_observation": observation}
        shown = jnp.where(done, first_observation, observation)
        return shown, following, reward, terminated, truncated, info

    def reset_env(self, key: jax.Array, params: EnvParams) -> tuple[jax.Array, EnvState]:
        """`reset` without compilation."""
        state = EnvState(self._functions.init(key), jnp.int32(0))
        return self.get_obs(state), state

    def step_env(
        self, key: jax.Array, state: EnvState, action: jax.Array, params: EnvParams
    ) -> tuple[jax.Array, EnvState, jax.Array, jax.Array, dict[str, Any]]:
        """`step` without compilation and without automatic reset."""
        states, observation, reward = self._functions.step(key, state.states, action)
        after = EnvState(states, state.time + 1)
        info = {"discount": self.discount(after, params)}
        return observation, after, reward, self.is_terminated(after, params), info

    def observe(self, key: jax.Array, state: EnvState, action: Any, params: EnvParams) -> jax.Array:
        """The observation of a state; nothing about it is random."""
        return self.get_obs(state)

    def get_obs(self, state: EnvState, params: EnvParams | None = None, key: Any = None) -> jax.Array:
        """The observation of a state, under its older name."""
        return self._functions.observe(state.states)

    def is_truncated(self, state: EnvState, params: EnvParams) -> jax.Array:
        """Whether the time limit is reached."""
        return state.time >= jnp.asarray(params.max_steps_in_episode, jnp.int32)

    def is_terminated(self, state: EnvState, params: EnvParams) -> jax.Array:
        """Whether an episodic component has come to its end."""
        if self._terminal is None:
            return jnp.bool_(False)
        return self._terminal[state.states[0]]

    def is_terminal(self, state: EnvState, params: EnvParams) -> jax.Array:
        """`is_terminated` under its older name."""
        return self.is_terminated(state, params)

    def discount(self, state: EnvState, params: EnvParams) -> jax.Array:
        """Zero where an episode has ended, else one."""
        return jnp.where(self.is_terminated(state, params), 0.0, 1.0).astype(jnp.float32)

    def action_space(self, params: EnvParams | None = None) -> Any:
        """One action for all boards, or a row of them where each board takes its own."""
        spaces = in_use()
        each = [spaces.Discrete(count) for count in self._action_counts]
        return spaces.Tuple(tuple(each)) if self._functions.action_shape else each[0]

    def observation_space(self, params: EnvParams | None = None) -> Any:
        """Binary vectors."""
        return in_use().Box(0, 1, (self._functions.num_features,), jnp.uint8)

    def state_space(self, params: EnvParams | None = None) -> Any:
        """The boards' states and the time."""
        spaces = in_use()
        states = spaces.Box(0, self._max_states - 1, (self._functions.sizes.num_boards,), jnp.int32)
        return spaces.Dict({"states": states, "time": spaces.Discrete(NO_LIMIT)})
