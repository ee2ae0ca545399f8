"""The library's random numbers (Philox4x32-10) in JAX, with 32-bit arithmetic only.

The same words as `nibbler.mdp.philox` for the same (seed, stream, step, slot), so that an environment's
trajectory under given actions is the same here as in every other engine.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from nibbler.mdp.philox import check_seed

_MULTIPLIER_0 = 0xD2511F53
_MULTIPLIER_1 = 0xCD9E8D57
_WEYL_0 = 0x9E3779B9
_WEYL_1 = 0xBB67AE85
_ROUNDS = 10


def multiply_high(x: jax.Array, y: jax.Array) -> jax.Array:
    """The high word of the 64-bit product of two words, from four products of 16-bit halves."""
    x_high, x_low, y_high, y_low = x >> 16, x & 0xFFFF, y >> 16, y & 0xFFFF
    middle = x_high * y_low + ((x_low * y_low) >> 16)
    other = x_low * y_high + (middle & 0xFFFF)
    return x_high * y_high + (middle >> 16) + (other >> 16)


def _round(_: Any, state: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
    """One round on words[4, ...], with the key of that round."""
    words, k0, k1 = state
    multipliers = jnp.array([_MULTIPLIER_1, _MULTIPLIER_0], jnp.uint32).reshape(2, *(1,) * (words.ndim - 1))
    factors = jnp.stack([words[2], words[0]])
    high, low = multiply_high(multipliers, factors), multipliers * factors
    after = jnp.stack([high[0] ^ words[1] ^ k0, low[0], high[1] ^ words[3] ^ k1, low[1]])
    return after, k0 + jnp.uint32(_WEYL_0), k1 + jnp.uint32(_WEYL_1)


def _rolled(words: jax.Array, k0: jax.Array, k1: jax.Array) -> jax.Array:
    return jax.lax.fori_loop(0, _ROUNDS, _round, (words, k0, k1), unroll=2)[0]


def _unrolled(words: jax.Array, k0: jax.Array, k1: jax.Array) -> jax.Array:
    state = (words, k0, k1)
    for _ in range(_ROUNDS):
        state = _round(None, state)
    return state[0]


def philox(counter: jax.Array, k0: jax.Array, k1: jax.Array) -> jax.Array:
    """Random words[4, ...] for counters[4, ...] and a key of two words; everything is uint32."""
    # A loop is many times quicker on CPUs, where XLA would compute all rounds anew for each of four words;
    # on a GPU every turn of a loop would be a kernel launch.
    return jax.lax.platform_dependent(counter, k0, k1, cpu=_rolled, default=_unrolled)


def split_seed(seed: int) -> np.ndarray:
    """A 64-bit seed as the two 32-bit words (low, high) that the draws here take."""
    number = check_seed(seed)
    return np.array([number & 0xFFFFFFFF, number >> 32], dtype=np.uint32)


def draw(seed: jax.Array, stream: int, step: jax.Array, slots: jax.Array) -> jax.Array:
    """Words[len(slots), 4] of a stream at a step below 2**32; `seed` is what `split_seed` gives."""
    low_step = jnp.asarray(step, jnp.uint32)
    counter = jnp.broadcast_arrays(low_step, jnp.uint32(0), slots.astype(jnp.uint32), seed[1])
    return jnp.moveaxis(philox(jnp.stack(counter), seed[0], jnp.uint32(stream)), 0, -1)


def draw_words(
    seed: jax.Array, stream: int, step: jax.Array, count: int, first_slot: int | jax.Array = 0
) -> jax.Array:
    """The first `count` words of a stream at a step, four from each slot, beginning at `first_slot`."""
    slots = jnp.uint32(first_slot) + jnp.arange(-(-count // 4), dtype=jnp.uint32)
    return draw(seed, stream, step, slots).reshape(-1)[:count]


def unit(words: jax.Array) -> jax.Array:
    """Words as float32 numbers in [0, 1), with 24 bits each."""
    return (words >> 8).astype(jnp.float32) * jnp.float32(2.0**-24)
