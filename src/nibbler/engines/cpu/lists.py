"""Which rows of w_u are on, per question, and which go on or off from one observation to the next.

A question has one list of rows, in rising order, the bias last. While the update of step t - 1 is pending
it holds the rows of x_{t-1}; `advance_list` then turns it into that of x_t. Two sets of changes take turns:
those that led to x_t and those that lead to x_{t+1}, in the order of the active features. So all lists follow
from observations and selections alone, and a run that is resumed sums in the same order.

`list_rows` is (question, entry); `enter_rows` and `leave_rows` are (0 or 1, question, entry). `left` holds,
for every row, one more than the step at which it last went off.
"""

from typing import Any

import numpy as np

from nibbler.engines.cpu.compile import inlined
from nibbler.engines.cpu.lanes import lowest_bit
from nibbler.engines.cpu.layout import CHANGES, COUNT_BEFORE, COUNT_NOW, LISTS_KNOWN, STEP

_ONE = np.uint64(1)


@inlined
def append_rows(s: Any, a: Any, feature: Any, first: Any, rows: Any, counts: Any) -> None:
    """Append a feature's row to the list of every question that has selected it."""
    for word in range(s.words):
        bits = a.member_bits[feature * s.words + word]
        while bits != 0:
            i = 64 * word + lowest_bit(bits)
            bits &= bits - _ONE
            if i < s.num_questions:
                rows[(first + i) * s.num_rows + counts[first + i]] = a.position[feature * s.columns + i]
                counts[first + i] += 1


@inlined
def list_changes(
    s: Any, a: Any, which: Any, stamp: Any, old: Any, old_count: Any, new: Any, new_count: Any
) -> None:
    """For every question the rows that go on and those that go off between two observations."""
    first = which * s.num_questions
    for i in range(first, first + s.num_questions):
        a.enter_count[i] = 0
        a.leave_count[i] = 0
    for k in range(old_count):
        a.mark[old[k]] = 1
    for k in range(new_count):
        if a.mark[new[k]]:
            a.mark[new[k]] = 2
        else:
            append_rows(s, a, np.int64(new[k]), first, a.enter_rows, a.enter_count)
    for k in range(old_count):
        if a.mark[old[k]] == 1:
            append_rows(s, a, np.int64(old[k]), first, a.leave_rows, a.leave_count)
        a.mark[old[k]] = 0
    for i in range(s.num_questions):
        for k in range((first + i) * s.num_rows, (first + i) * s.num_rows + a.leave_count[first + i]):
            a.left[i * s.num_rows + a.leave_rows[k]] = stamp


@inlined
def list_active_rows(s: Any, a: Any) -> None:
    """The list of every question at x_t, from scratch."""
    for i in range(s.num_questions):
        count = 0
        for row in range(s.inputs_per_question):
            if a.is_active[a.inputs[i * s.inputs_per_question + row]]:
                a.list_rows[i * s.num_rows + count] = row
                count += 1
        if s.num_rows > s.inputs_per_question:
            a.list_rows[i * s.num_rows + count] = s.inputs_per_question
            count += 1
        a.list_count[i] = count


@inlined
def remove_row(a: Any, first: Any, count: Any, row: Any) -> Any:
    """Take a row out of the list that begins at `first`, if it is there; returns the new length."""
    kept = first
    for k in range(first, first + count):
        if a.list_rows[k] != row:
            a.list_rows[kept] = a.list_rows[k]
            kept += 1
    return kept - first


@inlined
def insert_row(a: Any, first: Any, count: Any, row: Any) -> Any:
    """Put a row into the list that begins at `first`, which stays in rising order; returns the new length."""
    k = first + count
    while k > first and a.list_rows[k - 1] > row:
        a.list_rows[k] = a.list_rows[k - 1]
        k -= 1
    a.list_rows[k] = row
    return count + 1


@inlined
def advance_list(s: Any, a: Any, i: Any, changes: Any, clock: Any) -> None:
    """Turn question i's list of x_{t-1} into that of x_t, under the selection as it is after step t - 1."""
    first = i * s.num_rows
    kept = first
    for k in range(first, first + a.list_count[i]):
        if a.left[first + a.list_rows[k]] != clock:
            a.list_rows[kept] = a.list_rows[k]
            kept += 1
    count = kept - first
    place = changes * s.num_questions + i
    for k in range(place * s.num_rows, place * s.num_rows + a.enter_count[place]):
        count = insert_row(a, first, count, a.enter_rows[k])
    if a.swap[i] >= 0:
        count = remove_row(a, first, count, a.swap[i])
        if a.is_active[a.inputs[i * s.inputs_per_question + a.swap[i]]]:
            count = insert_row(a, first, count, a.swap[i])
    a.list_count[i] = count


@inlined
def turn_changes(s: Any, a: Any, count: Any) -> None:
    """Note what changes from x_t to x_{t+1}, which has `count` features on, and keep what led to x_t."""
    a.clock[CHANGES] = 1 - a.clock[CHANGES]
    step, num_now, num_before = a.clock[STEP], a.clock[COUNT_NOW], a.clock[COUNT_BEFORE]
    if not a.clock[LISTS_KNOWN]:
        a.clock[LISTS_KNOWN] = 1
        list_active_rows(s, a)
        list_changes(s, a, 1 - a.clock[CHANGES], step, a.active_before, num_before, a.active, num_now)
    list_changes(s, a, a.clock[CHANGES], step + 1, a.active, num_now, a.active_next, count)
