"""Which features each answer sees and which are asked about: support, discovery, incremental top-k.

`support` is (feature, column): an active feature is a contiguous row over all questions, so a step works on
16 columns at once and its cost follows the active features. Discovery is the column behind the last question.

Top-k asks for the smallest selected and the largest unselected utility of each column. Per column we keep a
lower bound of the former (`low`), and an upper bound of the latter, per block of 64 features (`block_high`)
and over all (`high`). A feature whose utility changes can only move its own bounds outwards, which is done
for 16 columns at once. Only a column whose bounds cross, low + tau < high, is looked at exactly; that makes
its bounds tight again. Decisions are always exact: with bounds that do not cross there is nothing to swap.
"""

from typing import Any

import numpy as np

from nibbler.engines.cpu.compile import inlined
from nibbler.engines.cpu.lanes import (
    blend,
    lanes_below,
    larger,
    load,
    lowest_bit,
    magnitude,
    multiply_add,
    smaller,
    splat,
    store,
)
from nibbler.engines.cpu.layout import (
    CHANGED_QUESTION,
    COUNT_NOW,
    CUMULANT_SWAPS,
    FEATURE_BLOCK,
)

_ONE = np.uint64(1)


@inlined
def note_cumulants(s: Any, a: Any, count: Any, reward: Any) -> None:
    """C_{t+1} of every column: the bit that the question asks about; the reward for discovery."""
    for column in range(s.num_questions):
        a.cumulant[column] = np.float32(0.0)
    for k in range(count):
        question = a.position[np.int64(a.active_next[k]) * s.columns + s.num_questions]
        if question >= 0:
            a.cumulant[question] = np.float32(1.0)
    a.cumulant[s.num_questions] = np.float32(reward)


@inlined
def selected_feature(s: Any, a: Any, column: Any, position: Any) -> Any:
    """The feature at a position of a column's selection: K_L of a question, C_L behind the last one."""
    if column < s.num_questions:
        return np.int64(a.inputs[column * s.inputs_per_question + position])
    return np.int64(a.cumulants[position])


@inlined
def scan_block(s: Any, a: Any, block: Any, column: Any) -> Any:
    """The largest utility among a block's unselected features (-1 if none), and the first that has it."""
    best, best_feature = np.float32(-1.0), np.int64(-1)
    for feature in range(block * FEATURE_BLOCK, min((block + 1) * FEATURE_BLOCK, s.num_features)):
        at = feature * s.columns + column
        if a.position[at] < 0:
            utility = abs(a.support[at])
            if utility > best:
                best, best_feature = utility, np.int64(feature)
    return best, best_feature


@inlined
def highest_block(s: Any, a: Any, column: Any) -> Any:
    """The block whose upper bound is the largest, the first among equals, and that bound."""
    best, best_block = a.block_high[column], np.int64(0)
    for block in range(1, s.blocks):
        bound = a.block_high[block * s.columns + column]
        if bound > best:
            best, best_block = bound, np.int64(block)
    return best, best_block


@inlined
def incremental_top_k(s: Any, a: Any, column: Any) -> Any:
    """Algorithm 6, exactly, for a column whose bounds cross: returns the position that was swapped, or -1."""
    selected = s.inputs_per_question if column < s.num_questions else s.num_questions
    low, low_feature, second = np.float32(np.inf), np.int64(-1), np.float32(np.inf)
    for k in range(selected):
        feature = selected_feature(s, a, column, k)
        utility = abs(a.support[feature * s.columns + column])
        if utility < low or (utility == low and feature < low_feature):
            low, low_feature, second = utility, feature, low
        elif utility < second:
            second = utility
    a.low[column] = low
    while True:
        bound, block = highest_block(s, a, column)
        if not low + a.threshold[column] < bound:  # so no unselected feature is useful enough
            a.high[column] = bound
            return -1
        high, high_feature = scan_block(s, a, block, column)
        a.block_high[block * s.columns + column] = high
        if high == bound:  # the bound was tight: this is the most useful unselected feature
            break
    position = np.int64(a.position[low_feature * s.columns + column])
    a.position[low_feature * s.columns + column] = -1
    a.position[high_feature * s.columns + column] = position
    word, bit = column // 64, _ONE << np.uint64(column % 64)
    a.member_bits[low_feature * s.words + word] &= ~bit
    a.member_bits[high_feature * s.words + word] |= bit
    if column < s.num_questions:
        a.inputs[column * s.inputs_per_question + position] = high_feature
    else:
        a.cumulants[position] = high_feature
    a.low[column] = min(second, high)
    a.block_high[block * s.columns + column] = scan_block(s, a, block, column)[0]
    at = low_feature // FEATURE_BLOCK * s.columns + column
    a.block_high[at] = max(a.block_high[at], low)
    a.high[column] = highest_block(s, a, column)[0]
    return position


@inlined
def swap_columns(s: Any, a: Any, first: Any) -> None:
    """Line 2 of `select_inputs` and line 1 of `select_cumulants`, for 16 columns."""
    crossed = lanes_below(load(a.low, first) + load(a.threshold, first), load(a.high, first))
    while crossed != 0:
        column = first + lowest_bit(crossed)
        crossed &= crossed - _ONE
        position = incremental_top_k(s, a, column)
        if position >= 0:
            if column < s.num_questions:
                a.swap[column] = position
                a.input_swaps[column] += 1
            else:
                a.clock[CHANGED_QUESTION] = position
                a.clock[CUMULANT_SWAPS] += 1


@inlined
def add_support(s: Any, a: Any, feature: Any, sums: Any) -> None:
    """Add an active feature's weights to the values of all linear answers."""
    at = feature * s.columns
    for column in range(0, s.columns, 16):
        store(sums, column, load(sums, column) + load(a.support, at + column))


@inlined
def linear_errors(s: Any, a: Any, count: Any, discount: Any) -> None:
    """delta, into `linear_now`: line 4 of `select_inputs`, line 3 of `select_cumulants`."""
    zero = splat(np.float32(0.0))
    for column in range(0, s.columns, 16):
        store(a.linear_now, column, zero)
        store(a.linear_next, column, zero)
    for k in range(a.clock[COUNT_NOW]):
        add_support(s, a, np.int64(a.active[k]), a.linear_now)
    for k in range(count):
        add_support(s, a, np.int64(a.active_next[k]), a.linear_next)
    for column in range(0, s.columns, 16):
        discounts = splat(np.float32(discount)) * load(a.bootstraps, column)
        target = multiply_add(discounts, load(a.linear_next, column), load(a.cumulant, column))
        store(a.linear_now, column, target - load(a.linear_now, column))


@inlined
def follow_utility(s: Any, a: Any, feature: Any, column: Any, weight: Any) -> None:
    """Move the bounds of 16 columns outwards, to a feature's new utility."""
    utility = magnitude(weight)
    bits = a.member_bits[feature * s.words + column // 64] >> np.uint64(column % 64)
    low = load(a.low, column)
    store(a.low, column, smaller(blend(bits, utility, low), low))
    unselected = blend(bits, splat(np.float32(-1.0)), utility)
    at = feature // FEATURE_BLOCK * s.columns + column
    store(a.block_high, at, larger(unselected, load(a.block_high, at)))
    store(a.high, column, larger(unselected, load(a.high, column)))


@inlined
def learn_columns(s: Any, a: Any) -> None:
    """Line 5 of `select_inputs`, line 4 of `select_cumulants`: plain TD(0) and LMS."""
    alpha = splat(s.linear_alpha)
    for k in range(a.clock[COUNT_NOW]):
        feature = np.int64(a.active[k])
        at = feature * s.columns
        for column in range(0, s.columns, 16):
            weight = multiply_add(alpha, load(a.linear_now, column), load(a.support, at + column))
            store(a.support, at + column, weight)
            follow_utility(s, a, feature, column, weight)


@inlined
def learn_columns_with_momentum(s: Any, a: Any) -> None:
    """The same with momentum, under which every weight moves at every step: slow, with tight bounds."""
    nu, alpha, gain = splat(s.linear_nu), splat(-s.linear_alpha), splat(-s.linear_gain)
    nothing, infinite = splat(np.float32(-1.0)), splat(np.float32(np.inf))
    for column in range(0, s.columns, 16):
        store(a.low, column, infinite)
        store(a.high, column, nothing)
        for block in range(s.blocks):
            store(a.block_high, block * s.columns + column, nothing)
    for feature in range(s.num_features):
        at = feature * s.columns
        is_active = a.is_active[feature]
        for column in range(0, s.columns, 16):
            momentum = nu * load(a.support_momentum, at + column)
            if is_active:
                momentum = multiply_add(gain, load(a.linear_now, column), momentum)
            weight = multiply_add(alpha, momentum, load(a.support, at + column))
            store(a.support_momentum, at + column, momentum)
            store(a.support, at + column, weight)
            follow_utility(s, a, feature, column, weight)


@inlined
def select_inputs_and_cumulants(s: Any, a: Any, count: Any, discount: Any) -> None:
    """Algorithms 4 and 5: `select_inputs` and `select_cumulants`, for all columns."""
    a.clock[CHANGED_QUESTION] = -1
    for column in range(0, s.columns, 16):
        swap_columns(s, a, column)
    linear_errors(s, a, count, discount)
    if s.has_linear_momentum:
        learn_columns_with_momentum(s, a)
    else:
        learn_columns(s, a)
