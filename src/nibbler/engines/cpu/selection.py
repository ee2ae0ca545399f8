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
    SWAPPED,
)

_ONE = np.uint64(1)


@inlined
def list_active_rows(s: Any, a: Any, which: Any, active: Any, count: Any) -> None:
    """For every question the rows of w_u that are on, in the order of the active features, the bias last."""
    counts = which * s.num_questions
    for i in range(counts, counts + s.num_questions):
        a.list_count[i] = 0
    for k in range(count):
        feature = np.int64(active[k])
        for word in range(s.words):
            bits = a.member_bits[feature * s.words + word]
            while bits != 0:
                i = 64 * word + lowest_bit(bits)
                bits &= bits - _ONE
                if i < s.num_questions:
                    entry = (counts + i) * s.num_rows + a.list_count[counts + i]
                    a.list_rows[entry] = a.position[feature * s.columns + i]
                    a.list_count[counts + i] += 1
    if s.num_rows > s.inputs_per_question:
        for i in range(counts, counts + s.num_questions):
            a.list_rows[i * s.num_rows + a.list_count[i]] = s.inputs_per_question
            a.list_count[i] += 1


@inlined
def note_cumulants(s: Any, a: Any, active: Any, count: Any, reward: Any) -> None:
    """C_{t+1} of every column: the bit that the question asks about; the reward for discovery."""
    for column in range(s.num_questions):
        a.cumulant[column] = np.float32(0.0)
    for k in range(count):
        question = a.position[np.int64(active[k]) * s.columns + s.num_questions]
        if question >= 0:
            a.cumulant[question] = np.float32(1.0)
    a.cumulant[s.num_questions] = np.float32(reward)


@inlined
def selected_feature(s: Any, a: Any, column: Any, position: Any) -> Any:
    """The feature at a position of a column's selection: K_L of a question, C_L behind the last one."""
    if column < s.num_questions:
        return np.int64(a.inputs[column, position])
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
        a.inputs[column, position] = high_feature
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
            a.clock[SWAPPED] = 1
            if column < s.num_questions:
                a.swap[column] = position
                a.input_swaps[column] += 1
            else:
                a.clock[CHANGED_QUESTION] = position
                a.clock[CUMULANT_SWAPS] += 1


@inlined
def linear_step(s: Any, a: Any, first: Any, active: Any, count: Any, discount: Any) -> Any:
    """alpha_b * delta of 16 linear answers, from sums over the active features of x_t and x_{t+1}."""
    zero = splat(np.float32(0.0))
    now, after = zero, zero
    for k in range(a.clock[COUNT_NOW]):
        now = now + load(a.support, np.int64(a.active[k]) * s.columns + first)
    for k in range(count):
        after = after + load(a.support, np.int64(active[k]) * s.columns + first)
    discounts = splat(np.float32(discount)) * load(a.bootstraps, first)
    return multiply_add(discounts, after, load(a.cumulant, first)) - now


@inlined
def widen_bounds(s: Any, a: Any, feature: Any, first: Any, weight: Any, low: Any, high: Any) -> Any:
    """Let the bounds of 16 columns follow a feature's new utility; returns `low` and `high`."""
    utility = magnitude(weight)
    bits = a.member_bits[feature * s.words + first // 64] >> np.uint64(first % 64)
    low = smaller(blend(bits, utility, low), low)
    unselected = blend(bits, splat(np.float32(-1.0)), utility)
    at = feature // FEATURE_BLOCK * s.columns + first
    store(a.block_high, at, larger(unselected, load(a.block_high, at)))
    return low, larger(unselected, high)


@inlined
def learn_columns(s: Any, a: Any, first: Any, active: Any, count: Any, discount: Any) -> None:
    """Lines 4 and 5 of `select_inputs`, lines 3 and 4 of `select_cumulants`, for 16 columns."""
    delta = linear_step(s, a, first, active, count, discount)
    step = splat(s.linear_alpha) * delta
    low, high = load(a.low, first), load(a.high, first)
    for k in range(a.clock[COUNT_NOW]):
        feature = np.int64(a.active[k])
        weight = load(a.support, feature * s.columns + first) + step
        store(a.support, feature * s.columns + first, weight)
        low, high = widen_bounds(s, a, feature, first, weight, low, high)
    store(a.low, first, low)
    store(a.high, first, high)


@inlined
def learn_columns_with_momentum(s: Any, a: Any, first: Any, active: Any, count: Any, discount: Any) -> None:
    """The same with momentum, under which every weight moves at every step: slow, with tight bounds."""
    gradient = splat(-s.linear_gain) * linear_step(s, a, first, active, count, discount)
    nu, alpha = splat(s.linear_nu), splat(-s.linear_alpha)
    nothing = splat(np.float32(-1.0))
    low, high = splat(np.float32(np.inf)), nothing
    for block in range(s.blocks):
        store(a.block_high, block * s.columns + first, nothing)
    for feature in range(s.num_features):
        at = feature * s.columns + first
        momentum = nu * load(a.support_momentum, at)
        if a.is_active[feature]:
            momentum = momentum + gradient
        weight = multiply_add(alpha, momentum, load(a.support, at))
        store(a.support_momentum, at, momentum)
        store(a.support, at, weight)
        low, high = widen_bounds(s, a, feature, first, weight, low, high)
    store(a.low, first, low)
    store(a.high, first, high)


@inlined
def select_inputs_and_cumulants(s: Any, a: Any, active: Any, count: Any, discount: Any) -> None:
    """Algorithms 4 and 5: `select_inputs` and `select_cumulants`, 16 columns at a time."""
    a.clock[SWAPPED] = 0
    a.clock[CHANGED_QUESTION] = -1
    with_momentum = a.support_momentum.size > 0
    for first in range(0, s.columns, 16):
        swap_columns(s, a, first)
        if with_momentum:
            learn_columns_with_momentum(s, a, first, active, count, discount)
        else:
            learn_columns(s, a, first, active, count, discount)
