"""Any `Environment` as pure JAX functions over its tables, for jit, vmap and scan.

`FunctionalEnvironment` is for loops of your own: it draws from JAX keys. The functions below it take random
words, so that this library's own loop can feed them Philox draws and get the same trajectory as every other
engine. Only 32-bit numbers are used.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from nibbler.engines.jax.philox import draw_words
from nibbler.mdp.environment import Environment
from nibbler.mdp.philox import START, TRANSITION


class Tables(NamedTuple):
    """`EnvTables` on the device; fields and their meaning are the same, whole numbers have 32 bits."""

    row_base: jax.Array
    state_base: jax.Array
    feature_base: jax.Array
    start_base: jax.Array
    board_actions: jax.Array
    outcome_start: jax.Array
    next_state: jax.Array
    threshold: jax.Array
    reward: jax.Array
    feature_start: jax.Array
    feature_index: jax.Array
    start_start: jax.Array
    start_state: jax.Array
    start_threshold: jax.Array
    permutation: jax.Array


@dataclass(frozen=True)
class Sizes:
    """The numbers that fix the shapes of compiled code."""

    num_boards: int
    num_features: int
    num_actions: int
    max_outcomes: int  # of one state and action
    max_starts: int  # start states of one board
    max_features: int  # that are on in one state of one board

    @property
    def num_active(self) -> int:
        """Entries of a padded list of active features."""
        return self.num_boards * self.max_features


def load_tables(env: Environment) -> tuple[Tables, Sizes]:
    """The tables of an environment on the device, and the sizes that go with them."""
    tables = env.tables
    largest = max(tables.next_state.size, tables.outcome_start.size, tables.permutation.size)
    if largest >= 2**31:
        raise ValueError(f"the tables have {largest} entries; JAX's 32-bit indices reach 2**31 - 1")
    arrays = {}
    for name in Tables._fields:
        array = np.asarray(getattr(tables, name))
        if array.dtype == np.float64:
            array = array.astype(np.float32)
        elif array.dtype == np.int64:
            array = array.astype(np.int32)
        arrays[name] = jnp.asarray(array)
    return Tables(**arrays), load_sizes(env)


def load_sizes(env: Environment) -> Sizes:
    """The numbers of an environment that fix the shapes of compiled code."""
    tables = env.tables
    return Sizes(
        num_boards=env.num_components,
        num_features=env.num_features,
        num_actions=env.num_actions,
        max_outcomes=int(np.diff(tables.outcome_start).max()),
        max_starts=int(np.diff(tables.start_start).max()),
        max_features=max(1, int(np.diff(tables.feature_start).max())),
    )


def _sample(
    threshold: jax.Array, begin: jax.Array, end: jax.Array, words: jax.Array, longest: int
) -> jax.Array:
    """The outcome of each row that its word selects: it passes every threshold that it is not below."""
    entries = begin[:, None] + jnp.arange(longest - 1, dtype=jnp.int32)
    passed = (entries < end[:, None] - 1) & (words[:, None] >= threshold.at[entries].get(mode="clip"))
    return begin + passed.sum(axis=1, dtype=jnp.int32)


def start(tables: Tables, sizes: Sizes, words: jax.Array) -> jax.Array:
    """Start states int32[boards] from a random word per board."""
    begin = tables.start_start[tables.start_base]
    end = tables.start_start[tables.start_base + 1]
    return tables.start_state[_sample(tables.start_threshold, begin, end, words, sizes.max_starts)]


def step_environment(
    tables: Tables, sizes: Sizes, states: jax.Array, action: jax.Array, words: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Next states and summed reward of one transition, from a random word per board.

    `action` is one action for all boards, or one per board.
    """
    rows = tables.row_base + states * tables.board_actions + action
    begin, end = tables.outcome_start[rows], tables.outcome_start[rows + 1]
    chosen = _sample(tables.threshold, begin, end, words, sizes.max_outcomes)
    return tables.next_state[chosen], tables.reward[chosen].sum()


def observe(tables: Tables, sizes: Sizes, states: jax.Array) -> jax.Array:
    """Observed indices int32[num_active] of the bits that are on, padded with `num_features`."""
    place = tables.state_base + states
    begin, end = tables.feature_start[place], tables.feature_start[place + 1]
    entries = begin[:, None] + jnp.arange(sizes.max_features, dtype=jnp.int32)
    joint = tables.feature_base[:, None] + tables.feature_index.at[entries].get(mode="clip")
    seen = tables.permutation.at[joint].get(mode="clip")
    return jnp.where(entries < end[:, None], seen, sizes.num_features).reshape(-1)


def dense(active: jax.Array, num_features: int) -> jax.Array:
    """The binary vector uint8[num_features] whose active indices these are."""
    return jnp.zeros(num_features, jnp.uint8).at[active].set(1, mode="drop")


def start_words(seed: jax.Array, sizes: Sizes) -> jax.Array:
    """The library's own random words for the start states."""
    return draw_words(seed, START, jnp.uint32(0), sizes.num_boards)


def transition_words(seed: jax.Array, sizes: Sizes, step: jax.Array) -> jax.Array:
    """The library's own random words for the transition at a step."""
    return draw_words(seed, TRANSITION, step, sizes.num_boards)


class FunctionalEnvironment:
    """An environment as pure functions of JAX keys, for training loops of your own.

    `init(key) -> state` and `step(key, state, action) -> state, observation, reward`.

    States are int32[boards], observations uint8[features] of 0 and 1, rewards float32. Everything may be
    jitted, vmapped over keys, states and actions, and scanned. The same key and arguments give the same
    result.
    """

    def __init__(self, env: Environment) -> None:
        self.tables, self.sizes = load_tables(env)
        self.num_features = env.num_features
        self.num_actions = env.num_actions
        self.action_shape = () if env.coupling == "broadcast" else (env.num_components,)

    @partial(jax.jit, static_argnums=0)
    def init(self, key: jax.Array) -> jax.Array:
        """Random start states."""
        return start(self.tables, self.sizes, jax.random.bits(key, (self.sizes.num_boards,), jnp.uint32))

    @partial(jax.jit, static_argnums=0)
    def step(
        self, key: jax.Array, state: jax.Array, action: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Next state, its observation, and the reward of the transition."""
        words = jax.random.bits(key, (self.sizes.num_boards,), jnp.uint32)
        state, reward = step_environment(
            self.tables, self.sizes, state, jnp.asarray(action, jnp.int32), words
        )
        return state, self.observe(state), reward

    @partial(jax.jit, static_argnums=0)
    def observe(self, state: jax.Array) -> jax.Array:
        """The observation of a state."""
        return dense(observe(self.tables, self.sizes, state), self.num_features)
