"""Top-k, membership and bounds of the CPU engine against the reference box, with random and tied values."""

import numpy as np
import pytest

from nibbler.agents.config import NibblerConfig
from nibbler.agents.nibbler import incremental_top_k, membership
from nibbler.engines.cpu.compile import kernel
from nibbler.engines.cpu.layout import CHANGED_QUESTION
from nibbler.engines.cpu.nibbler import CompiledNibbler
from nibbler.engines.cpu.selection import select_inputs_and_cumulants, swap_columns

FEATURES, QUESTIONS, INPUTS = 150, 21, 9  # three blocks of features and two vectors of columns, neither full


@kernel
def swap_all(s, a):
    a.clock[CHANGED_QUESTION] = -1
    for column in range(0, s.columns, 16):
        swap_columns(s, a, column)


@kernel
def select(s, a, count, discount):
    select_inputs_and_cumulants(s, a, count, discount)


def learner(**changes):
    config = NibblerConfig(
        num_questions=QUESTIONS, inputs_per_question=INPUTS, hidden_units=8, kappa=0.5, **changes
    )
    agent = CompiledNibbler(config, FEATURES, 2, seed=3)
    agent.begin(np.array([1, 4], dtype=np.int32))
    return agent


def with_utilities(agent, support, discovery):
    state = agent.state()
    state["support"], state["discovery"] = support, discovery
    agent.restore(state)


def draw(random, kind, size):
    if kind == "ties":  # few values, so that lowest indices decide
        return random.integers(-2, 3, size=size).astype(np.float32)
    return random.normal(size=size).astype(np.float32)


@pytest.mark.parametrize("kind", ["random", "ties"])
@pytest.mark.parametrize("threshold", [0.0, 0.5])
def test_repeated_swaps_are_those_of_the_reference_box(kind, threshold):
    random = np.random.default_rng(0)
    agent = learner(input_threshold=threshold, cumulant_threshold=threshold)
    support, discovery = draw(random, kind, (QUESTIONS, FEATURES)), draw(random, kind, FEATURES)
    with_utilities(agent, support, discovery)
    inputs, cumulants = agent.arrays.inputs.copy(), agent.arrays.cumulants.copy()
    total = 0
    for _ in range(INPUTS + QUESTIONS + 2):
        swap_all(agent.settings, agent.memory)
        expected = -np.ones(QUESTIONS, dtype=int)
        for i in range(QUESTIONS):
            changed, at = incremental_top_k(
                inputs[i], membership(inputs[i], FEATURES), threshold, np.abs(support[i])
            )
            expected[i] = at if changed else -1
            total += changed
        _, question = incremental_top_k(
            cumulants, membership(cumulants, FEATURES), threshold, np.abs(discovery)
        )
        np.testing.assert_array_equal(agent.arrays.swap, expected)
        assert agent.arrays.clock[CHANGED_QUESTION] == question
        np.testing.assert_array_equal(agent.arrays.inputs, inputs)
        np.testing.assert_array_equal(agent.arrays.cumulants, cumulants)
        agent.arrays.swap[:] = -1
    assert total > QUESTIONS


def assert_bookkeeping_holds(agent):
    """Positions and bits say what the selections say, and no utility is beyond its bound."""
    s, a = agent.settings, agent.arrays
    position = a.position.reshape(FEATURES, s.columns)
    utility = np.abs(a.support.reshape(FEATURES, s.columns))
    bits = a.member_bits.reshape(FEATURES, s.words)
    block_high = a.block_high.reshape(s.blocks, s.columns)
    for column in range(QUESTIONS + 1):
        selected = a.inputs[column] if column < QUESTIONS else a.cumulants
        expected = np.full(FEATURES, -1)
        expected[selected] = np.arange(len(selected))
        np.testing.assert_array_equal(position[:, column], expected)
        member = expected >= 0
        np.testing.assert_array_equal(bits[:, column // 64] >> np.uint64(column % 64) & np.uint64(1), member)
        assert a.low[column] <= utility[member, column].min()
        for block in range(s.blocks):
            features = np.arange(64 * block, min(64 * (block + 1), FEATURES))
            others = utility[features, column][~member[features]]
            assert block_high[block, column] >= others.max()
        assert a.high[column] >= utility[~member, column].max()


@pytest.mark.parametrize("linear_momentum", [0.0, 0.9])
def test_bounds_hold_while_utilities_rise_and_fall(linear_momentum):
    random = np.random.default_rng(1)
    agent = learner(linear_momentum=linear_momentum)
    for _ in range(300):
        active = random.choice(FEATURES, size=12, replace=False).astype(np.int32)
        agent.step(active, float(random.normal()))
        assert_bookkeeping_holds(agent)
    assert agent.arrays.input_swaps.sum() > 100


def test_selecting_every_feature_leaves_nothing_to_swap():
    config = NibblerConfig(num_questions=30, inputs_per_question=30, hidden_units=8, kappa=0.5)
    agent = CompiledNibbler(config, 30, 2, seed=3)
    agent.begin(np.array([0], dtype=np.int32))
    random = np.random.default_rng(2)
    for _ in range(50):
        agent.step(random.choice(30, size=5, replace=False).astype(np.int32), float(random.normal()))
    assert agent.arrays.input_swaps.sum() == 0
    assert agent.state()["cumulant_swaps"] == 0


def test_one_linear_step_is_td_for_support_and_lms_for_discovery():
    random = np.random.default_rng(4)
    agent = learner(input_threshold=100.0, cumulant_threshold=100.0)  # no swaps
    support = random.normal(size=(QUESTIONS, FEATURES)).astype(np.float32)
    discovery = random.normal(size=FEATURES).astype(np.float32)
    with_utilities(agent, support, discovery)
    x_t, x_next = np.zeros(FEATURES), np.zeros(FEATURES)
    x_t[agent.arrays.active[:2]] = 1.0
    active_next = np.array([3, 70, 149])
    x_next[active_next] = 1.0
    agent.arrays.active_next[:3] = active_next
    agent.arrays.cumulant[:QUESTIONS] = x_next[agent.arrays.cumulants]
    agent.arrays.cumulant[QUESTIONS] = 0.25
    select(agent.settings, agent.memory, 3, 0.9)
    alpha = agent.config.linear_alpha
    error = x_next[agent.arrays.cumulants] + 0.9 * support @ x_next - support @ x_t
    state = agent.state()
    np.testing.assert_allclose(state["support"], support + alpha * error[:, None] * x_t, rtol=1e-6, atol=1e-6)
    expected = discovery + alpha * (0.25 - discovery @ x_t) * x_t
    np.testing.assert_allclose(state["discovery"], expected, rtol=1e-6, atol=1e-6)
