"""What one Rainbow update does: project the target distribution, take the loss, clip, and step with Adam."""

import functools
import operator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from nibbler.engines.jax.network import Network, NetworkNoise, action_values, logits

MEAN_DECAY = 0.9  # Adam's usual constants, which DQN Zoo leaves alone
SQUARE_DECAY = 0.999
LARGEST_PRIORITY = 100.0

_FOLDS, _SHORT = 16, 2_048  # a long sum is folded by 16 until it is short


class Transitions(NamedTuple):
    """A batch of n-step transitions."""

    observations: jax.Array  # x_t, dense 0/1 float32[batch, features]
    actions: jax.Array  # a_t
    returns: jax.Array  # R_{t+1} + gamma R_{t+2} + ... of n steps
    discounts: jax.Array  # gamma**n
    next_observations: jax.Array  # x_{t+n}


class UpdateNoise(NamedTuple):
    """Independent noise of the three evaluations of an update."""

    online: NetworkNoise
    online_next: NetworkNoise
    target: NetworkNoise


class Adam(NamedTuple):
    """State of the optimiser."""

    mean: Network
    square: Network
    updates: jax.Array  # int32


def project(values: jax.Array, probabilities: jax.Array, support: jax.Array) -> jax.Array:
    """Move a distribution on `values` to the evenly spaced `support`, keeping the mean inside its bounds.

    Each value's mass is shared by the two atoms around it in proportion to closeness (C51's projection).
    """
    spacing = support[1] - support[0]
    inside = jnp.clip(values, support[0], support[-1])
    closeness = jnp.clip(1.0 - jnp.abs(inside[..., None, :] - support[:, None]) / spacing, 0.0, 1.0)
    return (closeness * probabilities[..., None, :]).sum(axis=-1)


def target_distribution(
    batch: Transitions, online_next: jax.Array, target_next: jax.Array, support: jax.Array
) -> jax.Array:
    """Distribution of the return that the update aims at, on the atoms.

    Double Q: the online network's values choose the next action, the target network gives its distribution.
    """
    chosen = jnp.argmax(action_values(online_next, support), axis=-1)
    next_logits = jnp.take_along_axis(target_next, chosen[:, None, None], axis=1)[:, 0]
    values = batch.returns[:, None] + batch.discounts[:, None] * support
    return project(values, jax.nn.softmax(next_logits, axis=-1), support)


def losses(
    network: Network, target_network: Network, batch: Transitions, noise: UpdateNoise, support: jax.Array
) -> jax.Array:
    """Cross-entropy[batch] between the target distribution and the predicted one for the action taken."""
    online_next = logits(network, noise.online_next, batch.next_observations)
    target_next = logits(target_network, noise.target, batch.next_observations)
    target = jax.lax.stop_gradient(target_distribution(batch, online_next, target_next, support))
    predicted = logits(network, noise.online, batch.observations)
    taken = jnp.take_along_axis(predicted, batch.actions[:, None, None], axis=1)[:, 0]
    return -(target * jax.nn.log_softmax(taken, axis=-1)).sum(axis=-1)


def gradients(
    network: Network,
    target_network: Network,
    batch: Transitions,
    weights: jax.Array,
    noise: UpdateNoise,
    support: jax.Array,
) -> tuple[Network, jax.Array]:
    """Gradient of the mean weighted loss, and the losses before weighting (they become priorities)."""

    def weighted(parameters: Network) -> tuple[jax.Array, jax.Array]:
        each = losses(parameters, target_network, batch, noise, support)
        return (each * weights).mean(), each

    gradient, each = jax.grad(weighted, has_aux=True)(network)
    return gradient, each


def priorities(each: jax.Array) -> jax.Array:
    """New priorities of the replayed transitions from their losses."""
    return jnp.clip(jnp.abs(each), 0.0, LARGEST_PRIORITY)


def _folded_sum_of_squares(leaf: jax.Array) -> jax.Array:
    if leaf.size <= _SHORT or leaf.size % _FOLDS:
        return jnp.square(leaf).sum()
    # Squared row by row on the way into the first fold; whole, XLA would write the squares to memory first.
    parts = _fold([jnp.square(row) for row in leaf.reshape(_FOLDS, -1)])
    while parts.size > _SHORT and parts.size % _FOLDS == 0:
        parts = _fold(list(parts.reshape(_FOLDS, -1)))
    return parts.sum()


def _fold(rows: list[jax.Array]) -> jax.Array:
    return functools.reduce(operator.add, rows)


def sum_of_squares(leaf: jax.Array) -> jax.Array:
    """The squared length of a gradient; folded on CPUs, where XLA sums in one slow chain of additions."""
    return jax.lax.platform_dependent(
        leaf, cpu=_folded_sum_of_squares, default=lambda leaf: jnp.square(leaf).sum()
    )


def clip_scale(gradient: Network, max_norm: jax.Array) -> jax.Array:
    """The factor that brings the gradient's norm over all parameters down to `max_norm`, or one."""
    square = sum(sum_of_squares(leaf) for leaf in jax.tree.leaves(gradient))
    return max_norm / jnp.maximum(jnp.sqrt(square), max_norm)


def init_adam(network: Network) -> Adam:
    """An optimiser that has made no update."""
    zeros = jax.tree.map(jnp.zeros_like, network)
    return Adam(zeros, jax.tree.map(jnp.zeros_like, network), jnp.int32(0))


def adam_step(
    network: Network,
    adam: Adam,
    gradient: Network,
    scale: jax.Array,
    learning_rate: jax.Array,
    epsilon: jax.Array,
) -> tuple[Network, Adam]:
    """One step of Adam along the gradient times `scale` (the clipping)."""
    updates = adam.updates + 1
    count = updates.astype(jnp.float32)
    mean_correction = 1.0 / (1.0 - MEAN_DECAY**count)
    square_correction = 1.0 / (1.0 - SQUARE_DECAY**count)

    def leaf(weight: jax.Array, mean: jax.Array, square: jax.Array, slope: jax.Array) -> tuple[Any, Any, Any]:
        slope = slope * scale
        mean = MEAN_DECAY * mean + (1.0 - MEAN_DECAY) * slope
        square = SQUARE_DECAY * square + (1.0 - SQUARE_DECAY) * slope * slope
        step = mean * mean_correction / (jnp.sqrt(square * square_correction) + epsilon)
        return weight - learning_rate * step, mean, square

    treedef = jax.tree.structure(network)
    columns = zip(
        *(
            leaf(*leaves)
            for leaves in zip(
                jax.tree.leaves(network),
                jax.tree.leaves(adam.mean),
                jax.tree.leaves(adam.square),
                jax.tree.leaves(gradient),
                strict=True,
            )
        ),
        strict=True,
    )
    new_network, mean, square = (jax.tree.unflatten(treedef, column) for column in columns)
    return new_network, Adam(mean, square, updates)
