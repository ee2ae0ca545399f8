"""Random numbers: the published known answers, and two implementations that agree."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nibbler.mdp import philox

WORD = st.integers(0, 2**32 - 1)
SEED = st.integers(0, 2**64 - 1)

# From Random123's test vectors for philox4x32-10: counter, key, answer.
KNOWN_ANSWERS = [
    (
        (0, 0, 0, 0),
        (0, 0),
        (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
    ),
    (
        (0xFFFFFFFF,) * 4,
        (0xFFFFFFFF,) * 2,
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize("counter,key,answer", KNOWN_ANSWERS)
def test_the_known_answers_of_random123_are_given(counter, key, answer):
    assert philox.philox(*counter, *key) == answer
    assert tuple(philox.philox_array(counter, key).tolist()) == answer


@given(st.lists(WORD, min_size=6, max_size=6))
def test_the_kernel_and_its_numpy_twin_agree_on_every_counter_and_key(words):
    assert philox.philox(*words) == tuple(philox.philox_array(words[:4], words[4:]).tolist())


@given(SEED, st.integers(0, 31), st.integers(0, 2**63 - 1), WORD)
def test_draws_agree_with_the_stated_layout_of_key_and_counter(seed, stream, step, slot):
    counter = (step & 0xFFFFFFFF, step >> 32, slot, seed >> 32)
    expected = philox.philox_array(counter, (seed & 0xFFFFFFFF, stream)).tolist()
    assert list(philox.draw(np.uint64(seed), stream, step, slot)) == expected
    assert philox.draw_array(seed, stream, step, [slot])[0].tolist() == expected


def test_streams_have_different_numbers():
    streams = [
        philox.TRANSITION,
        philox.ACTION,
        philox.START,
        philox.SELECTION,
        philox.HIDDEN,
        philox.HEADS,
        philox.PERMUTATION,
        philox.FAMILY,
        philox.GARNET,
        philox.RAINBOW,
    ]
    assert len(set(streams)) == len(streams)
    drawn = {tuple(philox.draw_array(1, stream, 0, [0])[0].tolist()) for stream in streams}
    assert len(drawn) == len(streams)


@given(SEED, st.integers(0, 300), st.data())
def test_a_permutation_holds_each_index_once_and_a_shorter_choice_is_its_beginning(seed, n, data):
    order = philox.permutation(seed, philox.PERMUTATION, n)
    assert order.dtype == np.int32
    assert sorted(order.tolist()) == list(range(n))
    count = data.draw(st.integers(0, n))
    assert philox.permutation(seed, philox.PERMUTATION, n, count).tolist() == order[:count].tolist()


def test_permutations_of_three_things_are_equally_likely():
    seen: dict[tuple[int, ...], int] = {}
    draws = 6000
    for seed in range(draws):
        order = tuple(philox.permutation(seed, philox.PERMUTATION, 3).tolist())
        seen[order] = seen.get(order, 0) + 1
    # Six cells with 1000 expected each: chi-square with 5 degrees of freedom is below 30 but once in 10^5.
    assert len(seen) == 6
    assert sum((count - draws / 6) ** 2 / (draws / 6) for count in seen.values()) < 30


def test_uniforms_lie_in_the_unit_interval_and_have_its_mean_and_variance():
    numbers = philox.uniforms(5, philox.GARNET, 100_000)
    assert numbers.min() >= 0.0
    assert numbers.max() < 1.0
    assert abs(numbers.mean() - 0.5) < 4 * (1 / 12 / 100_000) ** 0.5
    assert abs(numbers.var() - 1 / 12) < 4 * (1 / 180 / 100_000) ** 0.5


@pytest.mark.parametrize("seed", [-1, 2**64, 0.5])
def test_a_seed_that_does_not_fit_64_bits_is_refused(seed):
    with pytest.raises(ValueError, match=r"0 to 2\*\*64 - 1"):
        philox.draw_array(seed, 0, 0, [0])


def test_bad_shapes_and_counts_are_refused():
    with pytest.raises(ValueError, match="dimension of 4"):
        philox.philox_array([0, 0, 0], [0, 0])
    with pytest.raises(ValueError, match="from 0 to 3"):
        philox.permutation(0, 0, 3, 4)
    with pytest.raises(ValueError, match="n=-1"):
        philox.permutation(0, 0, -1)
