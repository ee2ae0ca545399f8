"""Counter-based random numbers (Philox4x32-10) that are the same in every engine.

A draw is a function of (seed, stream, step, slot) and of nothing else, so no generator has hidden state: a
run can be resumed at any step, and every engine that simulates the same environment sees the same numbers.
Layout: key = (low half of the seed, stream); counter = (low step, high step, slot, high half of the seed).
The round function and constants are those of Salmon et al. (2011), checked against Random123's known answers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from nibbler.mdp.compiled import fused

# One stream per purpose, so that draws for different purposes never share a counter.
TRANSITION = 0
ACTION = 1
START = 2
SELECTION = 3
HIDDEN = 4
HEADS = 5
PERMUTATION = 6
FAMILY = 7
GARNET = 8
RAINBOW = 16

MAX_SEED = 2**64
Seed = int | np.uint64

_MULTIPLIER_0 = np.uint64(0xD2511F53)
_MULTIPLIER_1 = np.uint64(0xCD9E8D57)
_WEYL_0 = np.uint64(0x9E3779B9)
_WEYL_1 = np.uint64(0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_ROUNDS = 10


@fused
def philox(c0: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any) -> tuple[Any, Any, Any, Any]:
    """Four random 32-bit words for one counter and key, in compiled code."""
    # Words live in 64 bits because Numba promotes 32-bit unsigned arithmetic anyway.
    x0, x1, x2, x3 = np.uint64(c0), np.uint64(c1), np.uint64(c2), np.uint64(c3)
    key_0, key_1 = np.uint64(k0), np.uint64(k1)
    for _ in range(_ROUNDS):
        product_0 = _MULTIPLIER_0 * x0
        product_1 = _MULTIPLIER_1 * x2
        x0 = (product_1 >> _HALF) ^ x1 ^ key_0
        x1 = product_1 & _LOW
        x2 = (product_0 >> _HALF) ^ x3 ^ key_1
        x3 = product_0 & _LOW
        key_0 = (key_0 + _WEYL_0) & _LOW
        key_1 = (key_1 + _WEYL_1) & _LOW
    return np.uint32(x0), np.uint32(x1), np.uint32(x2), np.uint32(x3)


@fused
def draw(seed: Any, stream: Any, step: Any, slot: Any) -> tuple[Any, Any, Any, Any]:
    """Four random words of a stream at a step and slot, in compiled code."""
    wide_seed = np.uint64(seed)
    wide_step = np.uint64(step)
    return philox(wide_step & _LOW, wide_step >> _HALF, slot, wide_seed >> _HALF, wide_seed & _LOW, stream)


def philox_array(counter: ArrayLike, key: ArrayLike) -> NDArray[np.uint32]:
    """The NumPy twin of `philox`, over arrays: counter[..., 4] and key[..., 2] give words[..., 4]."""
    counter_words = np.asarray(counter, dtype=np.uint64)
    key_words = np.asarray(key, dtype=np.uint64)
    if counter_words.shape[-1:] != (4,) or key_words.shape[-1:] != (2,):
        raise ValueError(
            f"counter must end in a dimension of 4 and key in one of 2, got {counter_words.shape} "
            f"and {key_words.shape}"
        )
    x0, x1, x2, x3 = (counter_words[..., i] for i in range(4))
    key_0, key_1 = key_words[..., 0], key_words[..., 1]
    for _ in range(_ROUNDS):
        product_0 = _MULTIPLIER_0 * x0
        product_1 = _MULTIPLIER_1 * x2
        x0, x1 = (product_1 >> _HALF) ^ x1 ^ key_0, product_1 & _LOW
        x2, x3 = (product_0 >> _HALF) ^ x3 ^ key_1, product_0 & _LOW
        key_0 = (key_0 + _WEYL_0) & _LOW
        key_1 = (key_1 + _WEYL_1) & _LOW
    return np.stack(np.broadcast_arrays(x0, x1, x2, x3), axis=-1).astype(np.uint32)


def check_seed(seed: Seed) -> int:
    """Return the seed as a plain int, or raise when it does not fit the 64 bits that a draw is keyed by."""
    number = int(seed)
    if number != seed or not 0 <= number < MAX_SEED:
        raise ValueError(f"seed={seed!r} is out of range; give a whole number from 0 to 2**64 - 1")
    return number


def draw_array(seed: Seed, stream: int, step: int, slots: ArrayLike) -> NDArray[np.uint32]:
    """The NumPy twin of `draw`, for many slots at once: words[len(slots), 4]."""
    number = check_seed(seed)
    slot_words = np.asarray(slots, dtype=np.uint64)
    counter = np.empty((*slot_words.shape, 4), dtype=np.uint64)
    counter[..., 0] = step & 0xFFFFFFFF
    counter[..., 1] = step >> 32
    counter[..., 2] = slot_words
    counter[..., 3] = number >> 32
    return philox_array(counter, np.array([number & 0xFFFFFFFF, stream], dtype=np.uint64))


def words(seed: Seed, stream: int, count: int, step: int = 0, first_slot: int = 0) -> NDArray[np.uint32]:
    """The first `count` random words of a stream at a step, four from each slot in order."""
    slots = first_slot + np.arange(-(-count // 4), dtype=np.uint64)
    return draw_array(seed, stream, step, slots).reshape(-1)[:count]


def uniforms(seed: Seed, stream: int, count: int, step: int = 0, first_slot: int = 0) -> NDArray[np.float64]:
    """The words of `words` as numbers in [0, 1), with 32 bits each."""
    return words(seed, stream, count, step, first_slot).astype(np.float64) * 2.0**-32


def permutation(
    seed: Seed, stream: int, n: int, count: int | None = None, step: int = 0, first_slot: int = 0
) -> NDArray[np.int32]:
    """A random ordering of range(n), or its first `count` entries, from our own draws.

    A forward Fisher-Yates shuffle: entry i is exchanged with a uniform one of the entries from i on, chosen
    by word i of the stream. It uses ceil(count/4) slots from `first_slot`.
    """
    if n < 0:
        raise ValueError(f"cannot permute n={n} things; give a number that is not negative")
    wanted = n if count is None else count
    if not 0 <= wanted <= n:
        raise ValueError(f"cannot choose count={wanted} of n={n} things; give a count from 0 to {n}")
    order = np.arange(n, dtype=np.int32)
    _shuffle(order, words(seed, stream, wanted, step, first_slot))
    return order[:wanted].copy()


@njit(cache=True)
def _shuffle(order: Any, random_words: Any) -> None:
    n = np.uint64(order.shape[0])
    for i in range(random_words.shape[0]):
        ahead = (np.uint64(random_words[i]) * (n - np.uint64(i))) >> _HALF
        j = i + np.int64(ahead)
        order[i], order[j] = order[j], order[i]
