"""A question's share of a step: everything that touches its hidden units, while its weights are in the cache.

One pass over the questions does two things for each: the update of step t - 1, whose errors are known by now
(the reference's `update_answers` and the part of `update_main` that is linear in x^e), and then, with the new
weights, the features and values of step t (`nonlinear_features`, `main_state_value`, `main_action_values`).
Doing the update one step late, at the moment when the weights are needed again, halves the memory traffic,
which is what limits large problems. Nothing is approximated: no weight is read between the two moments.

Layout of `hidden` and `heads`: see `layout`.
"""

from typing import Any

import numpy as np

from nibbler.engines.cpu.compile import inlined
from nibbler.engines.cpu.lanes import load, multiply_add, rectify, splat, store, total, where_positive
from nibbler.engines.cpu.layout import (
    ACTION_BEFORE,
    ACTION_NOW,
    ANSWER_V,
    CHANGED_QUESTION,
    CHANGES,
    FEATURES,
    LINES_PER_ACTION,
    MAIN_Q,
    MAIN_V,
    PENDING,
    STEP,
)
from nibbler.engines.cpu.lists import advance_list
from nibbler.engines.cpu.rows import (
    clear_row,
    co_opt_line,
    co_opt_rows,
    decay_after,
    dot_line,
    draw_row,
    drift_after,
    sum_noted,
)


@inlined
def update_heads(s: Any, a: Any, i: Any, action: Any) -> None:
    """Heads of answer i and main weights over its features; leaves the gradient of its hidden units."""
    units = s.units
    heads = a.heads
    answer_v = (i * s.num_lines + ANSWER_V) * units
    main_v = (i * s.num_lines + MAIN_V) * units
    answer_q = (i * s.num_lines + MAIN_Q + s.num_actions + LINES_PER_ACTION * action) * units
    main_q = (i * s.num_lines + MAIN_Q + action) * units
    main_q_gap = answer_q + 2 * units - main_q
    at_features = (i * s.num_lines + FEATURES) * units
    nu = splat(s.nu)
    answer_alpha, main_alpha = splat(-s.answer_alpha), splat(-s.main_alpha)
    error_v, error_q = splat(-s.gain * a.error_v[i]), splat(-s.gain * a.error_q[i])
    main_error_v, main_error_q = splat(-s.gain * a.main_error[0]), splat(-s.gain * a.main_error[1])
    for unit in range(0, units, 16):
        features = load(heads, at_features + unit)
        back = multiply_add(error_v, load(heads, answer_v + unit), error_q * load(heads, answer_q + unit))
        store(a.gradient, unit, where_positive(features, back))
        co_opt_line(heads, answer_v, units, features, unit, error_v, answer_alpha, nu)
        co_opt_line(heads, answer_q, units, features, unit, error_q, answer_alpha, nu)
        co_opt_line(heads, main_v, units, features, unit, main_error_v, main_alpha, nu)
        co_opt_line(heads, main_q, main_q_gap, features, unit, main_error_q, main_alpha, nu)


@inlined
def update_question(s: Any, a: Any, i: Any, action: Any, clock: Any) -> None:
    """`update_answers` for question i, and `update_main` for the main weights over its features.

    The new weights of rows that stay on are summed on the way, where x^e_t will be.
    """
    update_heads(s, a, i, action)
    count = np.int64(a.list_count[i])
    for k in range(count):
        row = i * s.num_rows + a.list_rows[i * s.num_rows + k]
        waited = clock - a.touched[row]
        a.row_offset[k] = row * 2 * s.units
        a.row_sign[k] = np.float32(0.0) if a.left[row] == clock + 1 else np.float32(1.0)
        a.row_drift[k] = -s.answer_alpha * drift_after(a.drift, s.exact_nu, waited)
        a.row_decay[k] = s.nu * decay_after(a.decay, s.exact_nu, waited)
        a.touched[row] = clock + 1
    co_opt_rows(
        a.hidden,
        a.row_offset,
        a.row_sign,
        a.row_drift,
        a.row_decay,
        count,
        s.units,
        a.gradient,
        s.answer_alpha,
        a.heads,
        (i * s.num_lines + FEATURES) * s.units,
    )


@inlined
def renew_rows(s: Any, a: Any, i: Any, clock: Any) -> None:
    """New weights for a swapped input or a changed question; random ones are drawn when first used."""
    a.renewed[i] = 0
    if a.swap[i] >= 0:
        a.renewed[i] = 1
        row = i * s.num_rows + a.swap[i]
        if s.random_swaps:
            a.touched[row] = -1 - clock
        else:
            clear_row(a.hidden, row * 2 * s.units, s.units)
            a.touched[row] = clock
        a.swap[i] = -1
    if a.clock[CHANGED_QUESTION] == i and s.random_questions:
        a.renewed[i] = 1
        for row in range(i * s.num_rows, (i + 1) * s.num_rows):
            a.touched[row] = -1 - clock


@inlined
def ready_row(s: Any, a: Any, row: Any) -> None:
    """Draw a row that waits for its random weights."""
    if a.touched[row] < 0:
        step = -1 - a.touched[row]
        draw_row(a.hidden, row * 2 * s.units, row, s.units, s.hidden_units, s.spread, s.seed, step)
        a.touched[row] = step


@inlined
def note_row(s: Any, a: Any, i: Any, position: Any, k: Any, sign: Any, clock: Any) -> None:
    """Make entry k of the scratch lists for `sum_noted` a row of question i."""
    row = i * s.num_rows + position
    ready_row(s, a, row)
    a.row_offset[k] = row * 2 * s.units
    a.row_sign[k] = sign
    a.row_drift[k] = -s.answer_alpha * drift_after(a.drift, s.exact_nu, clock - a.touched[row])


@inlined
def sum_rows_now(s: Any, a: Any, i: Any, pending: Any, clock: Any, at: Any) -> None:
    """What enters the hidden units of question i at x_t: the rows that stayed on, then those that went on.

    The first part was left by `update_question`, unless that was carried out earlier. After a swap, all rows.
    """
    place = (1 - a.clock[CHANGES]) * s.num_questions + i
    entered = place * s.num_rows
    num_entered = np.int64(a.enter_count[place])
    if a.renewed[i] or not pending:
        count = 0
        for k in range(i * s.num_rows, i * s.num_rows + a.list_count[i]):
            row = a.list_rows[k]
            if a.renewed[i] or not is_listed(a.enter_rows, entered, num_entered, row):
                note_row(s, a, i, row, count, np.float32(1.0), clock)
                count += 1
        sum_noted(s, a, count, a.heads, at, np.float32(0.0), a.heads, at)
    if not a.renewed[i]:
        for k in range(num_entered):
            note_row(s, a, i, a.enter_rows[entered + k], k, np.float32(1.0), clock)
        sum_noted(s, a, num_entered, a.heads, at, np.float32(1.0), a.heads, at)


@inlined
def is_listed(rows: Any, first: Any, count: Any, row: Any) -> Any:
    """Is a row among the `count` entries from `first` on?"""
    found = False
    for k in range(first, first + count):
        found = found or rows[k] == row
    return found


@inlined
def sum_rows_next(s: Any, a: Any, i: Any, clock: Any, at: Any) -> None:
    """What enters the hidden units at x_{t+1}: as at x_t, and the rows that go on, less those that go off."""
    place = a.clock[CHANGES] * s.num_questions + i
    entering, leaving = np.int64(a.enter_count[place]), np.int64(a.leave_count[place])
    for k in range(entering):
        note_row(s, a, i, a.enter_rows[place * s.num_rows + k], k, np.float32(1.0), clock)
    for k in range(leaving):
        note_row(s, a, i, a.leave_rows[place * s.num_rows + k], entering + k, np.float32(-1.0), clock)
    sum_noted(s, a, entering + leaving, a.heads, at, np.float32(1.0), a.next_features, 0)


@inlined
def value_question(s: Any, a: Any, i: Any, pending: Any, action: Any, clock: Any, discount: Any) -> Any:
    """Features of question i at x_t and x_{t+1} and all that is linear in them.

    Sets the answer's errors but for the cumulant, adds to q_values, and returns the question's share of the
    main V(x_t), V(x_{t+1}) and Q(x_t, a_t).
    """
    units = s.units
    heads = a.heads
    at_features = (i * s.num_lines + FEATURES) * units
    at_answer_v = (i * s.num_lines + ANSWER_V) * units
    at_main_v = (i * s.num_lines + MAIN_V) * units
    at_answer_q = (i * s.num_lines + MAIN_Q + s.num_actions + LINES_PER_ACTION * action) * units
    at_main_q = (i * s.num_lines + MAIN_Q + action) * units
    sum_rows_now(s, a, i, pending, clock, at_features)
    sum_rows_next(s, a, i, clock, at_features)
    zero = splat(np.float32(0.0))
    answer_v, answer_v_next, answer_q, main_v, main_v_next, main_q = zero, zero, zero, zero, zero, zero
    for unit in range(0, units, 16):
        now = rectify(load(heads, at_features + unit))
        after = rectify(load(a.next_features, unit))
        store(heads, at_features + unit, now)
        store(a.next_features, unit, after)
        weight = load(heads, at_answer_v + unit)
        answer_v = multiply_add(weight, now, answer_v)
        answer_v_next = multiply_add(weight, after, answer_v_next)
        weight = load(heads, at_main_v + unit)
        main_v = multiply_add(weight, now, main_v)
        main_v_next = multiply_add(weight, after, main_v_next)
        answer_q = multiply_add(load(heads, at_answer_q + unit), now, answer_q)
        main_q = multiply_add(load(heads, at_main_q + unit), now, main_q)
    for b in range(s.num_actions):
        at = (i * s.num_lines + MAIN_Q + b) * units
        a.q_values[b] += np.float64(dot_line(heads, at, a.next_features, units))
    target = np.float32(discount) * total(answer_v_next)
    a.error_v[i] = target - total(answer_v)
    a.error_q[i] = target - total(answer_q)
    return np.float64(total(main_v)), np.float64(total(main_v_next)), np.float64(total(main_q))


@inlined
def pass_over_questions(s: Any, a: Any, discount: Any) -> Any:
    """Carry out the update that is pending and value x_t and x_{t+1}, question by question."""
    clock = a.clock[STEP]
    pending = a.clock[PENDING] != 0
    before, now = a.clock[ACTION_BEFORE], a.clock[ACTION_NOW]
    value, value_next, value_q = 0.0, 0.0, 0.0
    for k in range(s.num_questions):
        # There and back: what was used last is still in the cache.
        i = k if clock % 2 == 0 else s.num_questions - 1 - k
        if pending:
            update_question(s, a, i, before, clock - 1)
            advance_list(s, a, i, 1 - a.clock[CHANGES], clock)
            renew_rows(s, a, i, clock)
        v, v_next, q = value_question(s, a, i, pending, now, clock, discount)
        value += v
        value_next += v_next
        value_q += q
    a.clock[PENDING] = 0
    return value, value_next, value_q
