"""Rows of hidden weights, read once for what enters the hidden units at two observations, x_t and x_{t+1}.

As in `rows`, but with two signs for each row: 1 if it is on at that observation, else 0. The sum at x_t is in
`sums` from `at` on, that at x_{t+1} in `next_sums` from 0 on. Only the units from `begin` to `end` are worked
on, both multiples of STRIP. Used by the value networks.
"""

from typing import Any

import numpy as np

from nibbler.engines.cpu.compile import inlined
from nibbler.engines.cpu.lanes import load, multiply_add, splat, store
from nibbler.engines.cpu.rows import co_opt_lanes

STRIP = 64  # units whose sums are in registers; rows have a multiple of it
# Rows of more units are read from one end to the other, four at a time: they come from far away, and memory
# is quicker to hand out what lies side by side. Shorter ones stay in the cache, and their sums in registers.
LONG_ROW = 1024
# Units that a step is done with before it goes on to the next ones, to and fro: the active rows of 4096 units
# are a little more than a cache of 2 MB holds, and what one step ends with, the next finds there.
STRETCH = 2048


@inlined
def clear_sums(begin: Any, end: Any, sums: Any, at: Any, next_sums: Any) -> None:
    """Begin both sums."""
    zero = splat(np.float32(0.0))
    for unit in range(begin, end, 16):
        store(sums, at + unit, zero)
        store(next_sums, unit, zero)


@inlined
def add_rows(
    hidden: Any,
    offsets: Any,
    signs: Any,
    next_signs: Any,
    drifts: Any,
    first: Any,
    count: Any,
    units: Any,
    begin: Any,
    end: Any,
    sums: Any,
    at: Any,
    next_sums: Any,
) -> None:
    """Add `count` rows from `first` on, as of now, w + drifts[k] * m, to both sums: always in their order."""
    whole = first + count - count % 4 if units > LONG_ROW else first
    for k in range(first, whole, 4):
        w0, w1, w2, w3 = offsets[k], offsets[k + 1], offsets[k + 2], offsets[k + 3]
        moved0, moved1 = splat(drifts[k]), splat(drifts[k + 1])
        moved2, moved3 = splat(drifts[k + 2]), splat(drifts[k + 3])
        now0, now1 = splat(signs[k]), splat(signs[k + 1])
        now2, now3 = splat(signs[k + 2]), splat(signs[k + 3])
        then0, then1 = splat(next_signs[k]), splat(next_signs[k + 1])
        then2, then3 = splat(next_signs[k + 2]), splat(next_signs[k + 3])
        for unit in range(begin, end, 16):
            m = units + unit
            z, y = load(sums, at + unit), load(next_sums, unit)
            row = multiply_add(moved0, load(hidden, w0 + m), load(hidden, w0 + unit))
            z, y = multiply_add(now0, row, z), multiply_add(then0, row, y)
            row = multiply_add(moved1, load(hidden, w1 + m), load(hidden, w1 + unit))
            z, y = multiply_add(now1, row, z), multiply_add(then1, row, y)
            row = multiply_add(moved2, load(hidden, w2 + m), load(hidden, w2 + unit))
            z, y = multiply_add(now2, row, z), multiply_add(then2, row, y)
            row = multiply_add(moved3, load(hidden, w3 + m), load(hidden, w3 + unit))
            z, y = multiply_add(now3, row, z), multiply_add(then3, row, y)
            store(sums, at + unit, z)
            store(next_sums, unit, y)
    for unit in range(begin, end, STRIP):
        here = at + unit
        z0, z1 = load(sums, here), load(sums, here + 16)
        z2, z3 = load(sums, here + 32), load(sums, here + 48)
        y0, y1 = load(next_sums, unit), load(next_sums, unit + 16)
        y2, y3 = load(next_sums, unit + 32), load(next_sums, unit + 48)
        for k in range(whole, first + count):
            w = offsets[k] + unit
            m = w + units
            now, then, moved = splat(signs[k]), splat(next_signs[k]), splat(drifts[k])
            row = multiply_add(moved, load(hidden, m), load(hidden, w))
            z0, y0 = multiply_add(now, row, z0), multiply_add(then, row, y0)
            row = multiply_add(moved, load(hidden, m + 16), load(hidden, w + 16))
            z1, y1 = multiply_add(now, row, z1), multiply_add(then, row, y1)
            row = multiply_add(moved, load(hidden, m + 32), load(hidden, w + 32))
            z2, y2 = multiply_add(now, row, z2), multiply_add(then, row, y2)
            row = multiply_add(moved, load(hidden, m + 48), load(hidden, w + 48))
            z3, y3 = multiply_add(now, row, z3), multiply_add(then, row, y3)
        store(sums, here, z0)
        store(sums, here + 16, z1)
        store(sums, here + 32, z2)
        store(sums, here + 48, z3)
        store(next_sums, unit, y0)
        store(next_sums, unit + 16, y1)
        store(next_sums, unit + 32, y2)
        store(next_sums, unit + 48, y3)


@inlined
def co_opt_rows_twice(
    hidden: Any,
    offsets: Any,
    signs: Any,
    next_signs: Any,
    drifts: Any,
    decays: Any,
    count: Any,
    units: Any,
    begin: Any,
    end: Any,
    gradient: Any,
    alpha: Any,
    sums: Any,
    at: Any,
    next_sums: Any,
) -> None:
    """Algorithm 7 for the active rows, as `co_opt_rows`; both sums begin with their new weights."""
    descend, zero = splat(-alpha), splat(np.float32(0.0))
    for unit in range(begin, end, STRIP):
        here = at + unit
        g0, g1 = load(gradient, unit), load(gradient, unit + 16)
        g2, g3 = load(gradient, unit + 32), load(gradient, unit + 48)
        z0, z1, z2, z3, y0, y1, y2, y3 = zero, zero, zero, zero, zero, zero, zero, zero
        for k in range(count):
            w = offsets[k] + unit
            m = w + units
            now, then = splat(signs[k]), splat(next_signs[k])
            keep, moved = splat(decays[k]), splat(drifts[k])
            row = co_opt_lanes(hidden, w, m, g0, keep, moved, descend)
            z0, y0 = multiply_add(now, row, z0), multiply_add(then, row, y0)
            row = co_opt_lanes(hidden, w + 16, m + 16, g1, keep, moved, descend)
            z1, y1 = multiply_add(now, row, z1), multiply_add(then, row, y1)
            row = co_opt_lanes(hidden, w + 32, m + 32, g2, keep, moved, descend)
            z2, y2 = multiply_add(now, row, z2), multiply_add(then, row, y2)
            row = co_opt_lanes(hidden, w + 48, m + 48, g3, keep, moved, descend)
            z3, y3 = multiply_add(now, row, z3), multiply_add(then, row, y3)
        store(sums, here, z0)
        store(sums, here + 16, z1)
        store(sums, here + 32, z2)
        store(sums, here + 48, z3)
        store(next_sums, unit, y0)
        store(next_sums, unit + 16, y1)
        store(next_sums, unit + 32, y2)
        store(next_sums, unit + 48, y3)
