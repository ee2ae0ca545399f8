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
    ANSWER_Q,
    ANSWER_V,
    CHANGED_QUESTION,
    FEATURES,
    LINES_PER_ACTION,
    LIST_BEFORE,
    LIST_NEXT,
    LIST_NOW,
    MAIN_Q,
    MAIN_V,
    PENDING,
    STEP,
)
from nibbler.engines.cpu.rows import (
    clear_row,
    co_opt_line,
    co_opt_row,
    decay_after,
    dot_line,
    draw_row,
    drift_after,
    sum_rows,
)


@inlined
def update_question(s: Any, a: Any, i: Any, which: Any, action: Any, clock: Any) -> None:
    """`update_answers` for question i, and `update_main` for the main weights over its features."""
    units = s.units
    heads = a.heads
    answer_v = (i * s.num_lines + ANSWER_V) * units
    main_v = (i * s.num_lines + MAIN_V) * units
    answer_q = (i * s.num_lines + ANSWER_Q + LINES_PER_ACTION * action) * units
    main_q = (i * s.num_lines + MAIN_Q + LINES_PER_ACTION * action) * units
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
        co_opt_line(heads, main_q, units, features, unit, main_error_q, main_alpha, nu)
    place = a.clock[which] * s.num_questions + i
    for k in range(a.list_count[place]):
        row = i * s.num_rows + a.list_rows[place * s.num_rows + k]
        waited = clock - a.touched[row]
        co_opt_row(
            a.hidden,
            row * 2 * units,
            units,
            a.gradient,
            s.answer_alpha,
            s.nu,
            decay_after(a.decay, s.exact_nu, waited),
            drift_after(a.drift, s.exact_nu, waited),
        )
        a.touched[row] = clock + 1


@inlined
def renew_rows(s: Any, a: Any, i: Any, clock: Any) -> None:
    """New weights for a swapped input or a changed question; random ones are drawn when first used."""
    if a.swap[i] >= 0:
        row = i * s.num_rows + a.swap[i]
        if s.random_swaps:
            a.touched[row] = -1 - clock
        else:
            clear_row(a.hidden, row * 2 * s.units, s.units)
            a.touched[row] = clock
        a.swap[i] = -1
    if a.clock[CHANGED_QUESTION] == i and s.random_questions:
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
def sum_active_rows(s: Any, a: Any, i: Any, which: Any, clock: Any, sums: Any, at: Any) -> None:
    """What enters the hidden units of question i: the sum of its active rows with their weights as of now."""
    place = a.clock[which] * s.num_questions + i
    count = np.int64(a.list_count[place])
    for k in range(count):
        row = i * s.num_rows + a.list_rows[place * s.num_rows + k]
        ready_row(s, a, row)
        a.row_offset[k] = row * 2 * s.units
        a.row_drift[k] = -s.answer_alpha * drift_after(a.drift, s.exact_nu, clock - a.touched[row])
    sum_rows(a.hidden, a.row_offset, a.row_drift, 0, count, s.units, sums, at)


@inlined
def value_question(s: Any, a: Any, i: Any, action: Any, clock: Any, discount: Any) -> Any:
    """Features of question i at x_t and x_{t+1} and all that is linear in them.

    Sets the answer's errors but for the cumulant, adds to q_values, and returns the question's share of the
    main V(x_t), V(x_{t+1}) and Q(x_t, a_t).
    """
    units = s.units
    heads = a.heads
    at_features = (i * s.num_lines + FEATURES) * units
    at_answer_v = (i * s.num_lines + ANSWER_V) * units
    at_main_v = (i * s.num_lines + MAIN_V) * units
    at_answer_q = (i * s.num_lines + ANSWER_Q + LINES_PER_ACTION * action) * units
    at_main_q = (i * s.num_lines + MAIN_Q + LINES_PER_ACTION * action) * units
    sum_active_rows(s, a, i, LIST_NOW, clock, heads, at_features)
    sum_active_rows(s, a, i, LIST_NEXT, clock, a.next_features, 0)
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
        at = (i * s.num_lines + MAIN_Q + LINES_PER_ACTION * b) * units
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
    for i in range(s.num_questions):
        if pending:
            update_question(s, a, i, LIST_BEFORE, before, clock - 1)
            renew_rows(s, a, i, clock)
        v, v_next, q = value_question(s, a, i, now, clock, discount)
        value += v
        value_next += v_next
        value_q += q
    a.clock[PENDING] = 0
    return value, value_next, value_q
