"""Rainbow's memory: a ring of bit-packed observations with prioritised sampling of n-step transitions.

The stream is stored once. Time t of the run has slot t % ring, which holds the packed x_t, a_t and R_{t+1};
the n-step transition number k is (x_k, a_k, R_{k+1} + ... + gamma**(n-1) R_{k+n}, x_{k+n}) and has leaf k %
capacity in the tree of priorities. `ring = capacity + n`, so that all of the last `capacity` transitions
can be formed. There are no episodes: the stream goes on, and so no transition is cut short.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from nibbler.agents.rainbow import RainbowConfig
from nibbler.engines.jax import sum_tree
from nibbler.engines.jax.learning import Transitions
from nibbler.engines.jax.network import SAMPLING, first_slot
from nibbler.engines.jax.philox import draw_words, multiply_high, unit
from nibbler.mdp.philox import RAINBOW

BITS = 32


class Replay(NamedTuple):
    """The memory of one run."""

    observations: jax.Array  # uint32[ring, words of packed bits]
    actions: jax.Array  # int8/16/32[ring]
    rewards: jax.Array  # float32[ring]
    tree: sum_tree.SumTree  # priority**exponent of every transition
    max_priority: jax.Array  # the largest so far: what a new transition gets


class Draw(NamedTuple):
    """Transitions chosen for an update."""

    numbers: jax.Array  # uint32[batch], which transitions
    leaves: jax.Array  # int32[batch], where their priorities are
    probabilities: jax.Array  # float32[batch], with which each was chosen


def ring_size(config: RainbowConfig) -> int:
    """Slots of the ring."""
    return config.replay_capacity + config.num_steps


def num_words(num_features: int) -> int:
    """Words that one packed observation takes."""
    return -(-num_features // BITS)


def pack(bits: jax.Array) -> jax.Array:
    """Binary uint8[features] as uint32 words; bit j of word w is feature 32 w + j."""
    words = num_words(bits.shape[0])
    padded = jnp.pad(bits, (0, words * BITS - bits.shape[0])).reshape(words, BITS).astype(jnp.uint32)
    return (padded << jnp.arange(BITS, dtype=jnp.uint32)).sum(axis=1, dtype=jnp.uint32)


def unpack(words: jax.Array, num_features: int) -> jax.Array:
    """Float32[..., features] of zeros and ones from packed words[..., words]."""
    bits = (words[..., None] >> jnp.arange(BITS, dtype=jnp.uint32)) & 1
    return bits.reshape(*words.shape[:-1], -1)[..., :num_features].astype(jnp.float32)


def init_replay(
    config: RainbowConfig, num_features: int, num_actions: int, priority_exponent: jax.Array
) -> Replay:
    """An empty memory, whose tree already has the transitions that precede the first update's own.

    Nothing is sampled before the first update, and until then every new transition gets priority one; so
    the tree can be filled at the outset, and each update adds exactly the transitions since the update
    before.
    """
    ring = ring_size(config)
    smallest = next(kind for kind in (jnp.int8, jnp.int16, jnp.int32) if num_actions <= jnp.iinfo(kind).max)
    before = transitions_made(config, config.first_update) - config.learn_period
    leaves = jnp.arange(config.replay_capacity) < before
    return Replay(
        observations=jnp.zeros((ring, num_words(num_features)), jnp.uint32),
        actions=jnp.zeros(ring, smallest),
        rewards=jnp.zeros(ring, jnp.float32),
        tree=sum_tree.make_tree(leaves.astype(jnp.float32) ** jnp.where(leaves, priority_exponent, 1.0)),
        max_priority=jnp.float32(1.0),
    )


def transitions_made(config: RainbowConfig, step: int) -> int:
    """Number of n-step transitions that a stream of `step` steps has completed."""
    return max(0, step - config.num_steps + 1)


def write_observation(replay: Replay, time: jax.Array, words: jax.Array) -> Replay:
    """Store the packed x_t."""
    slot = _slot(replay, time)
    return replay._replace(
        observations=jax.lax.dynamic_update_index_in_dim(replay.observations, words, slot, 0)
    )


def write_outcome(replay: Replay, time: jax.Array, action: jax.Array, reward: jax.Array) -> Replay:
    """Store a_t and R_{t+1}."""
    slot = _slot(replay, time)
    kind = replay.actions.dtype
    return replay._replace(
        actions=jax.lax.dynamic_update_index_in_dim(replay.actions, action.astype(kind), slot, 0),
        rewards=jax.lax.dynamic_update_index_in_dim(replay.rewards, reward, slot, 0),
    )


def _slot(replay: Replay, time: jax.Array) -> jax.Array:
    return (time % jnp.uint32(replay.rewards.shape[0])).astype(jnp.int32)


def add_recent(config: RainbowConfig, replay: Replay, step: jax.Array, exponent: jax.Array) -> Replay:
    """Give the transitions of the last `learn_period` steps the largest priority seen so far."""
    made = step - jnp.uint32(config.num_steps - 1)
    numbers = made - jnp.uint32(1) - jnp.arange(config.learn_period, dtype=jnp.uint32)
    leaves = (numbers % jnp.uint32(config.replay_capacity)).astype(jnp.int32)
    values = jnp.broadcast_to(power(replay.max_priority, exponent), leaves.shape)
    return replay._replace(tree=sum_tree.put(replay.tree, leaves, values))


def power(priority: jax.Array, exponent: jax.Array) -> jax.Array:
    """priority**exponent, and zero for priority zero whatever the exponent: it must never be sampled."""
    return jnp.where(priority == 0.0, 0.0, priority**exponent)


def draw_transitions(
    config: RainbowConfig, replay: Replay, seed: jax.Array, step: jax.Array, uniform_share: jax.Array
) -> Draw:
    """Choose a batch: mostly in proportion to priority, with a small share uniformly."""
    made = step - jnp.uint32(config.num_steps - 1)
    size = jnp.minimum(made, jnp.uint32(config.replay_capacity))
    levels = len(replay.tree)
    words = draw_words(seed, RAINBOW, step, config.batch_size * (levels + 2), first_slot(SAMPLING))
    words = words.reshape(config.batch_size, levels + 2)
    numbers = unit(words)
    uniform = multiply_high(words[:, 0], size).astype(jnp.int32)
    prioritised = sum_tree.sample(replay.tree, numbers[:, 2:])
    last = size.astype(jnp.int32) - 1
    leaves = jnp.minimum(jnp.where(numbers[:, 1] < uniform_share, uniform, prioritised), last)
    chance = sum_tree.get(replay.tree, leaves) / sum_tree.total(replay.tree)
    probabilities = (1.0 - uniform_share) * chance + uniform_share / size.astype(jnp.float32)
    # The newest transition with this leaf: count back from the last one made.
    newest = made - jnp.uint32(1)
    capacity = jnp.uint32(config.replay_capacity)
    back = (newest % capacity + capacity - leaves.astype(jnp.uint32)) % capacity
    return Draw(newest - back, leaves, probabilities)


def importance_weights(
    config: RainbowConfig,
    probabilities: jax.Array,
    step: jax.Array,
    begin: jax.Array,
    end: jax.Array,
) -> jax.Array:
    """Weights that take back a part of the bias of prioritised sampling; the largest is one."""
    made = (step - jnp.uint32(config.num_steps - 1)).astype(jnp.float32)
    done = (made - config.min_replay) / (config.importance_steps - config.min_replay)
    exponent = begin + (end - begin) * jnp.clip(done, 0.0, 1.0)
    size = jnp.minimum(made, config.replay_capacity)
    weights = (1.0 / (size * probabilities)) ** exponent
    return weights / weights.max()


def read_transitions(
    config: RainbowConfig, replay: Replay, numbers: jax.Array, num_features: int, discount: jax.Array
) -> Transitions:
    """The n-step transitions of these numbers."""
    ring = jnp.uint32(ring_size(config))
    ahead = jnp.arange(config.num_steps, dtype=jnp.uint32)
    slots = ((numbers[:, None] + ahead) % ring).astype(jnp.int32)
    first, last = slots[:, 0], ((numbers + jnp.uint32(config.num_steps)) % ring).astype(jnp.int32)
    rewards = replay.rewards[slots]
    if config.max_abs_reward is not None:
        rewards = jnp.clip(rewards, -config.max_abs_reward, config.max_abs_reward)
    powers = discount ** jnp.arange(config.num_steps, dtype=jnp.float32)
    return Transitions(
        observations=unpack(replay.observations[first], num_features),
        actions=replay.actions[first].astype(jnp.int32),
        returns=(rewards * powers).sum(axis=1),
        discounts=jnp.full(numbers.shape, discount**config.num_steps, jnp.float32),
        next_observations=unpack(replay.observations[last], num_features),
    )


def update_priorities(
    replay: Replay, leaves: jax.Array, priorities: jax.Array, exponent: jax.Array
) -> Replay:
    """Replace the priorities of replayed transitions and remember the largest ever seen."""
    return replay._replace(
        tree=sum_tree.put(replay.tree, leaves, power(priorities, exponent)),
        max_priority=jnp.maximum(replay.max_priority, priorities.max()),
    )
