"""What kernels are made of: vectors, pointers, denormals, lazy momentum, fresh rows."""

from typing import NamedTuple

import numpy as np
import pytest

from nibbler.agents.config import NibblerConfig
from nibbler.agents.value_network import co_opt
from nibbler.engines.cpu.cells import Memory
from nibbler.engines.cpu.compile import flush_denormals, kernel, restore_denormals
from nibbler.engines.cpu.lanes import (
    blend,
    lanes_below,
    larger,
    load,
    lowest_bit,
    magnitude,
    multiply_add,
    rectify,
    smaller,
    splat,
    store,
    total,
    where_positive,
)
from nibbler.engines.cpu.layout import POWERS, power_tables, zeros
from nibbler.engines.cpu.nibbler import CompiledNibbler
from nibbler.engines.cpu.rows import co_opt_rows, decay_after, dot_line, drift_after, sum_rows
from nibbler.engines.cpu.rows_twice import LONG_ROW, STRIP, add_rows, clear_sums, co_opt_rows_twice
from nibbler.engines.initial import fresh_hidden_rows
from nibbler.engines.run import open_run
from nibbler.envs.multi_catch import multi_catch
from nibbler.mdp.environment import Environment


class Vectors(NamedTuple):
    x: np.ndarray
    y: np.ndarray
    out: np.ndarray
    bits: np.ndarray
    sums: np.ndarray


@kernel
def apply_all(a):
    x, y = load(a.x, 0), load(a.y, 0)
    store(a.out, 0, multiply_add(x, y, splat(np.float32(2.0))))
    store(a.out, 16, rectify(x))
    store(a.out, 32, where_positive(x, y))
    store(a.out, 48, magnitude(x))
    store(a.out, 64, smaller(x, y))
    store(a.out, 80, larger(x, y))
    store(a.out, 96, blend(a.bits[0], x, y))
    store(a.out, 112, x + y)
    store(a.out, 128, x - y)
    store(a.out, 144, x * y)
    a.bits[1] = lanes_below(x, y)
    a.bits[2] = lowest_bit(a.bits[0])
    a.sums[0] = total(x)


def test_vectors_of_sixteen_compute_lane_by_lane():
    random = np.random.default_rng(0)
    x, y = random.normal(size=(2, 16)).astype(np.float32)
    bits = np.array([0b1010_0110_1100_1000, 0, 0], dtype=np.uint64)
    memory = Vectors(x, y, zeros(160), bits, zeros(1))
    apply_all(Memory(memory))
    mask = (int(bits[0]) >> np.arange(16)) & 1 == 1
    expected = [
        x * y + 2.0,
        np.maximum(x, 0.0),
        np.where(x > 0, y, 0.0),
        np.abs(x),
        np.minimum(x, y),
        np.maximum(x, y),
        np.where(mask, x, y),
        x + y,
        x - y,
        x * y,
    ]
    np.testing.assert_allclose(memory.out.reshape(10, 16), expected, rtol=1e-6)
    assert memory.bits[1] == sum(1 << j for j in range(16) if x[j] < y[j])
    assert memory.bits[2] == 3
    assert memory.sums[0] == pytest.approx(x.sum(), rel=1e-5)


def test_an_array_with_gaps_is_not_handed_over_as_a_pointer():
    class One(NamedTuple):
        values: np.ndarray

    with pytest.raises(ValueError, match="values is not contiguous"):
        Memory(One(np.zeros((4, 4))[:, :2]))


@kernel
def smallest_product(a, flush):
    control = flush_denormals() if flush else np.uint32(0)
    a.out[0] = a.x[0] * a.y[0]
    if flush:
        restore_denormals(control)


def test_denormals_are_flushed_only_while_a_kernel_runs():
    memory = Vectors(
        np.array([1e-30], dtype=np.float32), np.array([1e-10], dtype=np.float32), zeros(1), zeros(1), zeros(1)
    )
    smallest_product(Memory(memory), False)
    assert memory.out[0] > 0.0  # 1e-40 is denormal, and the machine can represent it
    run = open_run(multi_catch(1, seed=0), NibblerConfig.for_boards(1, 56, hidden_units=8), 0, "cpu")
    run.advance(3)
    smallest_product(Memory(memory), False)
    assert memory.out[0] > 0.0  # the engine has put the thread back as it was
    assert float(np.float32(1e-30) * np.float32(1e-10)) > 0.0


class Rows(NamedTuple):
    hidden: np.ndarray
    offsets: np.ndarray
    signs: np.ndarray
    drifts: np.ndarray
    decays: np.ndarray
    gradient: np.ndarray
    sums: np.ndarray
    decay: np.ndarray
    drift: np.ndarray
    waited: np.ndarray


@kernel
def wait_and_step(a, count, units, alpha, nu, exact_nu):
    for k in range(count):
        a.drifts[k] = -alpha * drift_after(a.drift, exact_nu, a.waited[k])
        a.decays[k] = nu * decay_after(a.decay, exact_nu, a.waited[k])
    co_opt_rows(a.hidden, a.offsets, a.signs, a.drifts, a.decays, count, units, a.gradient, alpha, a.sums, 0)


@kernel
def step_alone(a, count, units, alpha):
    co_opt_rows(a.hidden, a.offsets, a.signs, a.drifts, a.decays, count, units, a.gradient, alpha, a.sums, 0)


@kernel
def sum_given(a, count, units, scale):
    sum_rows(a.hidden, a.offsets, a.signs, a.drifts, count, units, a.sums, 0, scale, a.sums, 0)


@kernel
def multiply_lines(a, units):
    a.sums[0] = dot_line(a.hidden, units, a.gradient, units)


WIDTHS = [32, 96, 128, 288]  # blocks of 128 units, of 32, and both


@pytest.mark.parametrize("units", WIDTHS)
@pytest.mark.parametrize("nu", [0.0, 0.9, 0.99, 0.9999])
def test_a_row_that_waited_takes_the_same_step_as_one_that_was_updated_all_along(nu, units):
    random = np.random.default_rng(1)
    alpha = 0.01
    waits = np.array([0, 1, 7, POWERS - 1, POWERS, POWERS + 1, 3 * POWERS])
    rows = random.normal(size=(len(waits), 2, units))
    gradient = random.normal(size=units)
    decay, drift = power_tables(nu)
    count = len(waits)
    memory = Rows(
        hidden=rows.astype(np.float32).ravel(),
        offsets=np.arange(count) * 2 * units,
        signs=(np.arange(count) % 2).astype(np.float32),
        drifts=zeros(count),
        decays=zeros(count),
        gradient=((1.0 - nu) * gradient).astype(np.float32),
        sums=zeros(units),
        decay=decay,
        drift=drift,
        waited=waits,
    )
    wait_and_step(Memory(memory), count, units, np.float32(alpha), np.float32(nu), nu)
    expected = np.empty_like(rows)
    for k, wait in enumerate(waits):
        w, m = rows[k]
        for _ in range(wait):
            w, m = co_opt(w, alpha, 0.0, m, nu)
        expected[k] = co_opt(w, alpha, gradient, m, nu)
    np.testing.assert_allclose(memory.hidden.reshape(rows.shape), expected, rtol=3e-5, atol=3e-6)
    np.testing.assert_allclose(memory.sums, expected[1::2, 0].sum(axis=0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("units", WIDTHS)
def test_rows_are_summed_with_their_signs_and_drifts(units):
    random = np.random.default_rng(2)
    count = 5
    rows, start = random.normal(size=(count, 2, units)).astype(np.float32), random.normal(size=units)
    memory = Rows(
        rows.ravel(),
        np.arange(count) * 2 * units,
        np.array([1, -1, 1, 1, -1], dtype=np.float32),
        random.normal(size=count).astype(np.float32),
        *(zeros(1) for _ in range(2)),
        sums=start.astype(np.float32),
        decay=zeros(1),
        drift=zeros(1),
        waited=zeros(1),
    )
    terms = memory.signs[:, None] * (rows[:, 0] + memory.drifts[:, None] * rows[:, 1])
    sum_given(Memory(memory), count, units, np.float32(1.0))
    np.testing.assert_allclose(memory.sums, start + terms.sum(axis=0), rtol=1e-5, atol=1e-5)
    sum_given(Memory(memory), count, units, np.float32(0.0))
    np.testing.assert_allclose(memory.sums, terms.sum(axis=0), rtol=1e-5, atol=1e-5)


class Twice(NamedTuple):
    hidden: np.ndarray
    offsets: np.ndarray
    signs: np.ndarray
    next_signs: np.ndarray
    drifts: np.ndarray
    decays: np.ndarray
    gradient: np.ndarray
    sums: np.ndarray
    next_sums: np.ndarray


@kernel
def add_to_both(a, first, count, units, begin, end, at, anew):
    if anew:
        clear_sums(begin, end, a.sums, at, a.next_sums)
    add_rows(
        a.hidden,
        a.offsets,
        a.signs,
        a.next_signs,
        a.drifts,
        first,
        count,
        units,
        begin,
        end,
        a.sums,
        at,
        a.next_sums,
    )


@kernel
def step_both(a, count, units, begin, end, alpha, at):
    co_opt_rows_twice(
        a.hidden,
        a.offsets,
        a.signs,
        a.next_signs,
        a.drifts,
        a.decays,
        count,
        units,
        begin,
        end,
        a.gradient,
        alpha,
        a.sums,
        at,
        a.next_sums,
    )


def for_two_observations(units, count, at):
    """Random rows, of which each is on at one of two observations, at both, or at neither."""
    random = np.random.default_rng(4)
    sizes = (count, count, units, at + units, units)
    return Twice(
        random.normal(size=2 * count * units).astype(np.float32),
        np.arange(count)[::-1] * 2 * units,
        (np.arange(count) % 2).astype(np.float32),
        (np.arange(count) // 2 % 2).astype(np.float32),
        *(random.normal(size=size).astype(np.float32) for size in sizes),
    )


def both_sums(memory, rows):
    return memory.signs @ rows, memory.next_signs @ rows


@pytest.mark.parametrize("count", [0, 1, 6])
@pytest.mark.parametrize("units", [STRIP, 3 * STRIP, LONG_ROW, LONG_ROW + STRIP])
def test_rows_are_added_to_the_sums_of_the_observations_they_are_on_at(units, count):
    at = 2 * STRIP
    memory = for_two_observations(units, count, at)
    rows = memory.hidden.reshape(-1, 2, units)[::-1].astype(np.float64)
    before, next_before = memory.sums.copy(), memory.next_sums.copy()
    now, following = both_sums(memory, rows[:, 0] + memory.drifts[:, None] * rows[:, 1])
    add_to_both(Memory(memory), 0, count, units, 0, units, at, False)
    np.testing.assert_array_equal(memory.sums[:at], before[:at])
    np.testing.assert_allclose(memory.sums[at:], before[at:] + now, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(memory.next_sums, next_before + following, rtol=1e-5, atol=1e-5)
    add_to_both(Memory(memory), 0, count, units, 0, units, at, True)
    np.testing.assert_allclose(memory.sums[at:], now, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(memory.next_sums, following, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("units", [3 * STRIP, LONG_ROW + STRIP])
def test_stretches_of_rows_and_rows_from_some_entry_on_give_the_same_bits_as_all_at_once(units):
    count, middle, at, alpha = 11, 2 * STRIP, STRIP, np.float32(0.01)
    whole, parts = (for_two_observations(units, count, at) for _ in range(2))
    before = parts.hidden.copy()
    step_both(Memory(whole), count, units, 0, units, alpha, at)
    add_to_both(Memory(whole), 0, count, units, 0, units, at, False)
    step_both(Memory(parts), count, units, middle, units, alpha, at)
    rows = parts.hidden.reshape(count, 2, units)
    np.testing.assert_array_equal(rows[..., :middle], before.reshape(rows.shape)[..., :middle])
    step_both(Memory(parts), count, units, 0, middle, alpha, at)
    for first, rest in ((0, 5), (5, count - 5)):
        for begin, end in ((middle, units), (0, middle)):
            add_to_both(Memory(parts), first, rest, units, begin, end, at, False)
    for name in ("hidden", "sums", "next_sums"):
        np.testing.assert_array_equal(getattr(parts, name), getattr(whole, name))


@pytest.mark.parametrize("units", [STRIP, 3 * STRIP, LONG_ROW + STRIP])
def test_rows_learn_alike_whether_one_sum_is_made_or_two(units):
    at, count, alpha = STRIP, 5, np.float32(0.01)
    memory = for_two_observations(units, count, at)
    alone = Rows(
        memory.hidden.copy(),
        *(memory.offsets, memory.signs, memory.drifts, memory.decays, memory.gradient),
        zeros(units),
        *(zeros(1) for _ in range(3)),
    )
    step_both(Memory(memory), count, units, 0, units, alpha, at)
    step_alone(Memory(alone), count, units, alpha)
    np.testing.assert_array_equal(memory.hidden, alone.hidden)
    np.testing.assert_array_equal(memory.sums[at:], alone.sums)
    _, following = both_sums(memory, memory.hidden.reshape(-1, 2, units)[::-1, 0].astype(np.float64))
    np.testing.assert_allclose(memory.next_sums, following, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("units", WIDTHS)
def test_a_line_is_multiplied_whole(units):
    random = np.random.default_rng(3)
    lines, features = random.normal(size=(2, units)), random.normal(size=units)
    hidden, gradient = lines.astype(np.float32).ravel(), features.astype(np.float32)
    memory = Rows(hidden, *(zeros(1) for _ in range(4)), gradient, *(zeros(1) for _ in range(4)))
    multiply_lines(Memory(memory), units)
    assert memory.sums[0] == pytest.approx(lines[1] @ features, rel=1e-5, abs=1e-5)


def test_a_changed_question_gets_the_random_rows_that_the_reference_draws():
    config = NibblerConfig(num_questions=3, inputs_per_question=5, hidden_units=10, hidden_bias=True)
    agent = CompiledNibbler(config, 12, 2, seed=9)
    agent.begin(np.array([0, 3], dtype=np.int32))
    state = agent.state()
    new, old = (int(np.setdiff1d(np.arange(12), state["cumulants"])[0]), int(state["cumulants"][1]))
    state["discovery"][:] = 1.0
    state["discovery"][old], state["discovery"][new] = 0.5, 2.0
    state["discovery"][np.setdiff1d(np.arange(12), [*state["cumulants"], new])] = 0.0
    agent.restore(state)
    agent.step(np.array([1, 4], dtype=np.int32), 0.0)
    after = agent.state()
    assert after["cumulants"][1] == new
    expected = fresh_hidden_rows(config, 9, 1, 1, np.arange(6)).astype(np.float32)
    np.testing.assert_array_equal(after["hidden_weights"][1], expected)
    assert not after["hidden_momentum"][1].any()


def test_the_order_of_the_bits_does_not_matter():
    """The observation and the initial selections are permuted alike: the same rewards and weights, moved."""
    boards = multi_catch(2, seed=0).components
    random = np.random.default_rng(3)
    moved = random.permutation(112)
    plain, shuffled = Environment(boards, permute=False), Environment(boards, permute=moved)
    config = NibblerConfig.for_boards(2, 112, hidden_units=32, inputs_per_question=20, kappa=0.02)
    one, other = open_run(plain, config, 5, "cpu"), open_run(shuffled, config, 5, "cpu")
    state = other.state()
    begin = one.state()
    state["inputs"] = moved[begin["inputs"]].astype(np.int32)
    state["cumulants"] = moved[begin["cumulants"]].astype(np.int32)
    other.restore(state)
    # Ties between utilities are decided by feature index, so there must be none: begin with tiny ones.
    utility = random.uniform(1e-6, 2e-6, size=(5, 112))
    for run, index in ((one, np.arange(112)), (other, moved)):
        start = run.state()
        start["support"][:, index] = utility[:4]
        start["discovery"][index] = utility[4]
        run.restore(start)
    rewards = one.advance_bins(20, 200)
    np.testing.assert_array_equal(rewards, other.advance_bins(20, 200))
    left, right = one.state(), other.state()
    assert left["input_swaps"].sum() > 0
    assert left["cumulant_swaps"] > 0
    np.testing.assert_array_equal(moved[left["inputs"]], right["inputs"])
    np.testing.assert_array_equal(left["hidden_weights"], right["hidden_weights"])
    np.testing.assert_array_equal(left["support"], right["support"][:, moved])
