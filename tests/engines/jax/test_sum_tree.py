from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from nibbler.engines.jax import sum_tree


def sums_are_right(tree):
    for below, above in pairwise(tree):
        sums = np.asarray(below, np.float64).sum(axis=1)
        np.testing.assert_allclose(np.ravel(above)[: len(sums)], sums, rtol=1e-6)
        assert (np.ravel(above)[len(sums) :] == 0).all()
    assert tree[-1].shape == (1, sum_tree.WIDTH)


@pytest.mark.parametrize("size", [1, 100, 128, 129, 5_000, 20_000])
def test_levels_hold_the_sums_of_rows_below(size):
    values = np.random.default_rng(0).random(size)
    tree = sum_tree.make_tree(jnp.asarray(values))
    sums_are_right(tree)
    assert float(sum_tree.total(tree)) == pytest.approx(values.sum(), rel=1e-5)
    np.testing.assert_allclose(np.ravel(tree[0])[:size], values, rtol=1e-6)


def test_changes_equal_those_of_a_plain_array_also_with_repeated_indices():
    rng = np.random.default_rng(1)
    plain = rng.random(3_000).astype(np.float32)
    tree = sum_tree.make_tree(jnp.asarray(plain))
    put = jax.jit(sum_tree.put)
    for _ in range(50):
        indices = rng.integers(0, 3_000, 32)
        indices[5] = indices[9]
        values = rng.random(32).astype(np.float32)
        values[5] = values[9]
        plain[indices] = values
        tree = put(tree, jnp.asarray(indices), jnp.asarray(values))
    sums_are_right(tree)
    np.testing.assert_array_equal(np.ravel(tree[0])[:3_000], plain)
    np.testing.assert_array_equal(sum_tree.get(tree, jnp.arange(0, 3_000, 7)), plain[::7])


def test_sampling_chooses_what_a_brute_force_search_at_every_level_chooses():
    rng = np.random.default_rng(2)
    values = rng.random(20_000) ** 3
    tree = sum_tree.make_tree(jnp.asarray(values))
    numbers = rng.random((500, len(tree))).astype(np.float32)
    found = np.asarray(sum_tree.sample(tree, jnp.asarray(numbers)))
    levels = [np.asarray(level, np.float64) for level in reversed(tree)]
    differing = 0
    for sample, row_numbers in zip(found, numbers, strict=True):
        index = 0
        for level, number in zip(levels, row_numbers, strict=True):
            cumulative = np.cumsum(level[index])
            index = index * sum_tree.WIDTH + int(
                np.searchsorted(cumulative, number * cumulative[-1], side="right")
            )
        differing += index != sample
    assert differing <= 2  # a number may fall between a sum rounded to 32 bits and the same to 64


def test_samples_come_in_proportion_to_priorities():
    rng = np.random.default_rng(3)
    values = np.concatenate([rng.random(300) * 5, np.zeros(200), rng.random(300)])
    tree = sum_tree.make_tree(jnp.asarray(values))
    numbers = jnp.asarray(rng.random((200_000, len(tree))), jnp.float32)
    counts = np.bincount(np.asarray(jax.jit(sum_tree.sample)(tree, numbers)), minlength=values.size)
    positive = values > 0
    assert counts[~positive].sum() == 0
    expected = values[positive] / values.sum() * counts.sum()
    assert stats.chisquare(counts[positive], expected * counts.sum() / expected.sum()).pvalue > 1e-4


@pytest.mark.parametrize("number", [0.0, 1.0 - 2.0**-24])
def test_numbers_at_the_ends_never_choose_a_priority_of_zero(number):
    values = np.zeros(1_000)
    values[[137, 640, 641]] = [1e-3, 5.0, 1e-6]
    tree = sum_tree.make_tree(jnp.asarray(values))
    found = int(sum_tree.sample(tree, jnp.full((1, len(tree)), number, jnp.float32))[0])
    assert found == (137 if number == 0.0 else 641)


def test_sums_do_not_drift_over_many_changes():
    rng = np.random.default_rng(4)
    tree = sum_tree.make_tree(jnp.ones(4_096))

    def change(tree, inputs):
        return sum_tree.put(tree, *inputs), None

    indices = jnp.asarray(rng.integers(0, 4_096, (20_000, 4)))
    sizes = jnp.asarray(10.0 ** rng.uniform(-6, 6, (20_000, 1)), jnp.float32) * jnp.ones((1, 4))
    tree, _ = jax.jit(lambda t: jax.lax.scan(change, t, (indices, sizes)))(tree)
    leaves = jnp.arange(4_096)
    tree = sum_tree.put(tree, leaves, jnp.full(4_096, 1e-3))
    assert float(sum_tree.total(tree)) == pytest.approx(4.096, rel=1e-6)
