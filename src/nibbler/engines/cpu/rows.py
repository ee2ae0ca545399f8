"""Rows of hidden weights, touched only where an input is on: fresh draws, lazy momentum, sums, updates.

A row is `units` weights and right behind them their momentum. `touched` is the value of the clock up to which
a row's decay has been applied; k steps without gradient are caught up in closed form when the row is next
used: w -= alpha * m * nu * (1 - nu^k) / (1 - nu); m *= nu^k. Reading a row applies this on the fly without
writing.

Used by Nibbler's answers; by the value networks through `rows_twice`. Box `co_opt` of the reference.
"""

import math
from typing import Any

import numpy as np

from nibbler.engines.cpu.compile import inlined
from nibbler.engines.cpu.lanes import load, multiply_add, splat, store, total
from nibbler.engines.cpu.layout import POWERS
from nibbler.mdp.philox import HIDDEN, draw

_SCALE = 2.0**-23
_EIGHT = np.uint32(8)


@inlined
def decay_after(decay: Any, exact_nu: Any, steps: Any) -> Any:
    """nu^k: what is left of a momentum after k steps without gradient."""
    if steps < POWERS:
        return decay[steps]
    left = math.pow(exact_nu, np.float64(steps))
    return np.float32(left) if left > 1e-30 else np.float32(0.0)


@inlined
def drift_after(drift: Any, exact_nu: Any, steps: Any) -> Any:
    """nu (1 - nu^k) / (1 - nu): how far, in steps of alpha, a momentum has carried its weight."""
    if steps < POWERS:
        return drift[steps]
    return np.float32(exact_nu * (1.0 - math.pow(exact_nu, np.float64(steps))) / (1.0 - exact_nu))


@inlined
def draw_row(
    hidden: Any, offset: Any, row: Any, units: Any, hidden_units: Any, spread: Any, seed: Any, step: Any
) -> None:
    """Fresh random weights for a row, as of a step, and no momentum: `fresh_hidden_rows`."""
    slots = (hidden_units + 3) // 4
    for slot in range(slots):
        words = draw(seed, HIDDEN, step, row * slots + slot)
        for lane in range(4):
            unit = 4 * slot + lane
            if unit < hidden_units:
                weight = (np.float64(words[lane] >> _EIGHT) * _SCALE - 1.0) * spread
                hidden[offset + unit] = np.float32(weight)
    for unit in range(units, 2 * units):
        hidden[offset + unit] = np.float32(0.0)


@inlined
def clear_row(hidden: Any, offset: Any, units: Any) -> None:
    """Zero weights and zero momentum for a row."""
    zero = splat(np.float32(0.0))
    for unit in range(0, 2 * units, 16):
        store(hidden, offset + unit, zero)


@inlined
def sum_rows(
    hidden: Any,
    offsets: Any,
    signs: Any,
    drifts: Any,
    count: Any,
    units: Any,
    start: Any,
    start_at: Any,
    scale: Any,
    sums: Any,
    at: Any,
) -> None:
    """What enters the hidden units, into `sums` from `at` on: scale * start + the given rows as of now.

    Row k counts signs[k] times, and its weights as of now are w + drifts[k] * m. A drift is often zero, but a
    branch that skips the momentum then costs more than it saves. 128 units at a time, then 32: each unit's
    sum is the same either way.
    """
    first = splat(scale)
    wide = units - units % 128
    for unit in range(0, wide, 128):
        z0, z1 = first * load(start, start_at + unit), first * load(start, start_at + unit + 16)
        z2, z3 = first * load(start, start_at + unit + 32), first * load(start, start_at + unit + 48)
        z4, z5 = first * load(start, start_at + unit + 64), first * load(start, start_at + unit + 80)
        z6, z7 = first * load(start, start_at + unit + 96), first * load(start, start_at + unit + 112)
        here = at + unit
        for k in range(count):
            w = offsets[k] + unit
            m = w + units
            sign = splat(signs[k])
            moved = splat(drifts[k])
            z0 = multiply_add(sign, multiply_add(moved, load(hidden, m), load(hidden, w)), z0)
            z1 = multiply_add(sign, multiply_add(moved, load(hidden, m + 16), load(hidden, w + 16)), z1)
            z2 = multiply_add(sign, multiply_add(moved, load(hidden, m + 32), load(hidden, w + 32)), z2)
            z3 = multiply_add(sign, multiply_add(moved, load(hidden, m + 48), load(hidden, w + 48)), z3)
            z4 = multiply_add(sign, multiply_add(moved, load(hidden, m + 64), load(hidden, w + 64)), z4)
            z5 = multiply_add(sign, multiply_add(moved, load(hidden, m + 80), load(hidden, w + 80)), z5)
            z6 = multiply_add(sign, multiply_add(moved, load(hidden, m + 96), load(hidden, w + 96)), z6)
            z7 = multiply_add(sign, multiply_add(moved, load(hidden, m + 112), load(hidden, w + 112)), z7)
        store(sums, here, z0)
        store(sums, here + 16, z1)
        store(sums, here + 32, z2)
        store(sums, here + 48, z3)
        store(sums, here + 64, z4)
        store(sums, here + 80, z5)
        store(sums, here + 96, z6)
        store(sums, here + 112, z7)
    for unit in range(wide, units, 32):
        z0, z1 = first * load(start, start_at + unit), first * load(start, start_at + unit + 16)
        for k in range(count):
            w = offsets[k] + unit
            m = w + units
            sign, moved = splat(signs[k]), splat(drifts[k])
            z0 = multiply_add(sign, multiply_add(moved, load(hidden, m), load(hidden, w)), z0)
            z1 = multiply_add(sign, multiply_add(moved, load(hidden, m + 16), load(hidden, w + 16)), z1)
        store(sums, at + unit, z0)
        store(sums, at + unit + 16, z1)


@inlined
def sum_noted(s: Any, a: Any, count: Any, start: Any, start_at: Any, scale: Any, sums: Any, at: Any) -> None:
    """`sum_rows` over the rows that were noted in a run's scratch lists."""
    sum_rows(
        a.hidden, a.row_offset, a.row_sign, a.row_drift, count, s.units, start, start_at, scale, sums, at
    )


@inlined
def co_opt_lanes(hidden: Any, w: Any, m: Any, gradient: Any, keep: Any, moved: Any, descend: Any) -> Any:
    """Algorithm 7 for sixteen weights of a row after a wait; returns the new weights."""
    before = load(hidden, m)
    momentum = multiply_add(keep, before, gradient)
    weight = multiply_add(descend, momentum, multiply_add(moved, before, load(hidden, w)))
    store(hidden, m, momentum)
    store(hidden, w, weight)
    return weight


@inlined
def co_opt_rows(
    hidden: Any,
    offsets: Any,
    signs: Any,
    drifts: Any,
    decays: Any,
    count: Any,
    units: Any,
    gradient: Any,
    alpha: Any,
    sums: Any,
    at: Any,
) -> None:
    """Algorithm 7 for the active rows: catch up the decay, then one step with a gradient that they share.

    `gradient` is already multiplied by 1 - nu, `drifts` and `decays` are those of the wait. On the way, the
    sum of the new weights of rows with sign 1 is made in `sums` from `at` on: they stay on in the next step.
    """
    descend = splat(-alpha)
    wide = units - units % 128
    for unit in range(0, wide, 128):
        g0, g1, g2, g3 = (
            load(gradient, unit),
            load(gradient, unit + 16),
            load(gradient, unit + 32),
            load(gradient, unit + 48),
        )
        g4, g5, g6, g7 = (
            load(gradient, unit + 64),
            load(gradient, unit + 80),
            load(gradient, unit + 96),
            load(gradient, unit + 112),
        )
        z0 = splat(np.float32(0.0))
        z1, z2, z3, z4, z5, z6, z7 = z0, z0, z0, z0, z0, z0, z0
        for k in range(count):
            w = offsets[k] + unit
            m = w + units
            sign, keep, moved = splat(signs[k]), splat(decays[k]), splat(drifts[k])
            z0 = multiply_add(sign, co_opt_lanes(hidden, w, m, g0, keep, moved, descend), z0)
            z1 = multiply_add(sign, co_opt_lanes(hidden, w + 16, m + 16, g1, keep, moved, descend), z1)
            z2 = multiply_add(sign, co_opt_lanes(hidden, w + 32, m + 32, g2, keep, moved, descend), z2)
            z3 = multiply_add(sign, co_opt_lanes(hidden, w + 48, m + 48, g3, keep, moved, descend), z3)
            z4 = multiply_add(sign, co_opt_lanes(hidden, w + 64, m + 64, g4, keep, moved, descend), z4)
            z5 = multiply_add(sign, co_opt_lanes(hidden, w + 80, m + 80, g5, keep, moved, descend), z5)
            z6 = multiply_add(sign, co_opt_lanes(hidden, w + 96, m + 96, g6, keep, moved, descend), z6)
            z7 = multiply_add(sign, co_opt_lanes(hidden, w + 112, m + 112, g7, keep, moved, descend), z7)
        here = at + unit
        store(sums, here, z0)
        store(sums, here + 16, z1)
        store(sums, here + 32, z2)
        store(sums, here + 48, z3)
        store(sums, here + 64, z4)
        store(sums, here + 80, z5)
        store(sums, here + 96, z6)
        store(sums, here + 112, z7)
    for unit in range(wide, units, 32):
        g0, g1 = load(gradient, unit), load(gradient, unit + 16)
        z0 = splat(np.float32(0.0))
        z1 = z0
        for k in range(count):
            w = offsets[k] + unit
            m = w + units
            sign, keep, moved = splat(signs[k]), splat(decays[k]), splat(drifts[k])
            z0 = multiply_add(sign, co_opt_lanes(hidden, w, m, g0, keep, moved, descend), z0)
            z1 = multiply_add(sign, co_opt_lanes(hidden, w + 16, m + 16, g1, keep, moved, descend), z1)
        store(sums, at + unit, z0)
        store(sums, at + unit + 16, z1)


@inlined
def co_opt_line(
    heads: Any, offset: Any, gap: Any, features: Any, unit: Any, error: Any, alpha: Any, nu: Any
) -> None:
    """Algorithm 7 for sixteen weights of a head whose gradient is -error * features; momentum lies `gap` on.

    `error`, `alpha` and `nu` are lanes; `error` is -(1 - nu) times the error, `alpha` the negative step size.
    """
    momentum = multiply_add(nu, load(heads, offset + gap + unit), error * features)
    store(heads, offset + gap + unit, momentum)
    store(heads, offset + unit, multiply_add(alpha, momentum, load(heads, offset + unit)))


@inlined
def dot_line(heads: Any, at: Any, features: Any, units: Any) -> Any:
    """The product of a line of `heads` with features, 64 units at a time and then 32."""
    zero = splat(np.float32(0.0))
    d0, d1, d2, d3 = zero, zero, zero, zero
    wide = units - units % 64
    for unit in range(0, wide, 64):
        d0 = multiply_add(load(heads, at + unit), load(features, unit), d0)
        d1 = multiply_add(load(heads, at + unit + 16), load(features, unit + 16), d1)
        d2 = multiply_add(load(heads, at + unit + 32), load(features, unit + 32), d2)
        d3 = multiply_add(load(heads, at + unit + 48), load(features, unit + 48), d3)
    if wide < units:
        d0 = multiply_add(load(heads, at + wide), load(features, wide), d0)
        d1 = multiply_add(load(heads, at + wide + 16), load(features, wide + 16), d1)
    return total((d0 + d1) + (d2 + d3))
