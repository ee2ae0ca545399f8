"""Incremental top-k (Algorithm 6): ties, thresholds, and where it ends up, against brute force."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nibbler.agents.nibbler import incremental_top_k, membership

utilities = st.lists(st.integers(0, 5), min_size=2, max_size=12)


def brute_force(selected, utility, threshold):
    """The swap that the box asks for, found by looking at every pair in order of feature index."""
    inside = sorted(selected)
    outside = [feature for feature in range(len(utility)) if feature not in selected]
    if not outside:
        return None
    low = min(inside, key=lambda feature: (utility[feature], feature))
    high = min(outside, key=lambda feature: (-utility[feature], feature))
    return (low, high) if utility[low] + threshold < utility[high] else None


@given(utilities, st.data())
def test_one_call_does_what_brute_force_says(values, data):
    m = len(values)
    order = data.draw(st.permutations(range(m)))
    selected = np.array(order[: data.draw(st.integers(1, m))], dtype=np.int32)
    threshold = float(data.draw(st.integers(0, 3)))
    expected = brute_force(selected.tolist(), values, threshold)
    before, mask = selected.copy(), membership(selected, m)
    changed, position = incremental_top_k(selected, mask, threshold, np.array(values, dtype=float))
    assert changed == (expected is not None)
    np.testing.assert_array_equal(mask, membership(selected, m))
    if expected is None:
        assert position == -1
        np.testing.assert_array_equal(selected, before)
    else:
        low, high = expected
        assert before[position] == low
        assert selected[position] == high
        np.testing.assert_array_equal(np.delete(selected, position), np.delete(before, position))


@given(utilities, st.data())
def test_repeated_calls_end_in_the_k_largest(values, data):
    m = len(values)
    k = data.draw(st.integers(1, m))
    selected = np.array(data.draw(st.permutations(range(m)))[:k])
    mask = membership(selected, m)
    utility = np.array(values, dtype=float)
    calls = 0
    while incremental_top_k(selected, mask, 0.0, utility)[0]:
        calls += 1
    assert calls <= k
    assert sorted(utility[selected]) == sorted(sorted(utility)[-k:])


def test_ties_go_to_the_lowest_feature_index():
    selected = np.array([5, 1, 3])
    changed, position = incremental_top_k(
        selected, membership(selected, 6), 0.0, np.array([2.0, 0.0, 2.0, 0.0, 2.0, 0.0])
    )
    assert (changed, position) == (True, 1)  # feature 1 is the lowest of the worst
    assert selected.tolist() == [5, 0, 3]  # feature 0 the lowest of the best


def test_equal_utilities_and_gains_within_the_threshold_do_not_swap():
    selected = np.array([0])
    assert incremental_top_k(selected, membership(selected, 2), 0.0, np.array([1.0, 1.0])) == (False, -1)
    assert incremental_top_k(selected, membership(selected, 2), 0.5, np.array([1.0, 1.5])) == (False, -1)
    assert incremental_top_k(selected, membership(selected, 2), 0.5, np.array([1.0, 1.75])) == (True, 0)


def test_nothing_to_swap_when_everything_is_selected():
    selected = np.array([1, 0])
    assert incremental_top_k(selected, membership(selected, 2), 0.0, np.array([0.0, 9.0])) == (False, -1)
