import jax.numpy as jnp
import numpy as np
import pytest

from nibbler.engines.jax.philox import draw, draw_words, multiply_high, split_seed, unit
from nibbler.mdp.philox import draw_array, words


def test_high_word_of_a_product_equals_the_64_bit_product():
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 2**32, (2, 10_000), dtype=np.uint64)
    x[:3], y[:3] = [0, 2**32 - 1, 2**32 - 1], [2**32 - 1, 2**32 - 1, 1]
    found = multiply_high(jnp.asarray(x.astype(np.uint32)), jnp.asarray(y.astype(np.uint32)))
    np.testing.assert_array_equal(np.asarray(found), (x * y >> np.uint64(32)).astype(np.uint32))


@pytest.mark.parametrize(
    "seed, stream, step", [(0, 0, 0), (3, 16, 7), (2**64 - 1, 8, 2**32 - 1), (2**40 + 9, 1, 123456)]
)
def test_words_are_those_of_every_other_engine(seed, stream, step):
    slots = np.array([0, 1, 2, 5 << 28, 2**32 - 1], dtype=np.uint32)
    found = draw(jnp.asarray(split_seed(seed)), stream, jnp.uint32(step), jnp.asarray(slots))
    np.testing.assert_array_equal(np.asarray(found), draw_array(seed, stream, step, slots))


def test_a_run_of_words_takes_four_from_each_slot():
    found = draw_words(jnp.asarray(split_seed(5)), 2, jnp.uint32(11), 7, first_slot=9)
    np.testing.assert_array_equal(np.asarray(found), words(5, 2, 7, step=11, first_slot=9))


def test_unit_numbers_stay_below_one():
    numbers = np.asarray(unit(jnp.asarray(np.array([0, 2**31, 2**32 - 1], dtype=np.uint32))))
    np.testing.assert_array_equal(numbers, np.float32([0, 0.5, 1 - 2.0**-24]))


def test_a_seed_beyond_64_bits_is_refused():
    with pytest.raises(ValueError, match="seed"):
        split_seed(2**64)
