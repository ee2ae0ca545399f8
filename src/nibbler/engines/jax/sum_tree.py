"""Priorities that can be sampled in proportion to their size, inside compiled code and without drift.

A wide sum tree. Level 0 holds the priorities in rows of `WIDTH`; entry r of the next level is the sum of
row r of the level below, up to a level of one row. A change recomputes the sums of the rows it touches from
their entries, so rounding errors never add up, however long a run is. To sample, one goes down from the
top: an entry of the row is chosen in proportion to its size, by a fresh random number at every level (one
float32 number could not address a million entries evenly).
"""

import jax
import jax.numpy as jnp

WIDTH = 128

SumTree = tuple[jax.Array, ...]  # levels, each [rows, WIDTH]; the last has one row


def make_tree(values: jax.Array) -> SumTree:
    """The tree whose first priorities are `values`; the rest of the last row is zero."""
    levels = []
    level = values.astype(jnp.float32)
    while True:
        rows = max(1, -(-level.size // WIDTH))
        level = jnp.pad(level, (0, rows * WIDTH - level.size)).reshape(rows, WIDTH)
        levels.append(level)
        if rows == 1:
            return tuple(levels)
        level = level.sum(axis=1)


def total(tree: SumTree) -> jax.Array:
    """The sum of all priorities."""
    return tree[-1].sum()


def get(tree: SumTree, indices: jax.Array) -> jax.Array:
    """The priorities at some indices."""
    return tree[0][indices // WIDTH, indices % WIDTH]


def put(tree: SumTree, indices: jax.Array, values: jax.Array) -> SumTree:
    """The tree with new priorities at some indices; of values given for the same index, one is kept."""
    levels = []
    for level in tree:
        rows = indices // WIDTH
        changed = level.at[rows, indices % WIDTH].set(values)
        levels.append(changed)
        indices, values = rows, changed[rows].sum(axis=-1)
    return tuple(levels)


def sample(tree: SumTree, numbers: jax.Array) -> jax.Array:
    """Indices[batch], each with probability in proportion to its priority, from uniforms[batch, levels].

    An entry of priority zero is not chosen (while some entry of its row is above zero).
    """
    rows = jnp.zeros(numbers.shape[0], jnp.int32)
    for depth, level in enumerate(reversed(tree)):
        cumulative = jnp.cumsum(level[rows], axis=-1)
        end = cumulative[:, -1:]
        below = (cumulative <= numbers[:, depth, None] * end).sum(axis=-1)
        last = (cumulative < end).sum(axis=-1)  # the last entry above zero, should rounding point beyond it
        rows = rows * WIDTH + jnp.minimum(below, last).astype(jnp.int32)
    return rows
