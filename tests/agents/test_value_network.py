"""The one value network: hand-written gradients, the optimiser, and what Q and QV bootstrap from."""

import numpy as np
import pytest

from nibbler.agents.config import QLearningConfig, QVLearningConfig
from nibbler.agents.linear import LinearQ, linear_step
from nibbler.agents.value_network import (
    ValueNetwork,
    co_opt,
    loss_gradients,
    update_network,
    value_network_step,
)

INPUTS, UNITS, ACTIONS = 7, 5, 3


def random_network(rng, *, qv=True, blocks=None):
    num_blocks = 1 if blocks is None else int(max(blocks)) + 1
    size = num_blocks * UNITS
    hidden = rng.normal(size=(INPUTS, UNITS))
    head_v = rng.normal(size=size) if qv else None
    return ValueNetwork(
        hidden_weights=hidden,
        hidden_momentum=rng.normal(size=hidden.shape),
        head_q=rng.normal(size=(ACTIONS, size)),
        head_q_momentum=rng.normal(size=(ACTIONS, size)),
        head_v=head_v,
        head_v_momentum=rng.normal(size=size) if qv else None,
        block_of_input=None if blocks is None else np.array(blocks),
    )


def loss(network, x, action, target):
    features = network.features(x)
    total = (target - network.head_q[action] @ features) ** 2
    if network.head_v is not None:
        total += (target - network.head_v @ features) ** 2
    return total / 2


def differences(function, array, step=1e-6):
    """Central differences of a scalar function by every entry of an array that it reads."""
    result = np.zeros_like(array)
    for index in np.ndindex(array.shape):
        kept = array[index]
        array[index] = kept + step
        above = function()
        array[index] = kept - step
        result[index] = (above - function()) / (2 * step)
        array[index] = kept
    return result


@pytest.mark.parametrize("qv", [True, False])
@pytest.mark.parametrize("blocks", [None, [0, 1, 0, 2, 2, 1, 0]])
@pytest.mark.parametrize("seed", range(4))
def test_gradients_of_every_group_equal_finite_differences(qv, blocks, seed):
    rng = np.random.default_rng(seed)
    network = random_network(rng, qv=qv, blocks=blocks)
    x = np.array([1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0])
    action, target = seed % ACTIONS, 0.7
    found = loss_gradients(network, x, network.features(x), action, target)

    def value():
        return loss(network, x, action, target)

    expected_q = differences(value, network.head_q)
    np.testing.assert_allclose(found.head_q, expected_q[action], atol=1e-7)
    assert not np.delete(expected_q, action, axis=0).any()  # nothing reaches the other actions
    np.testing.assert_allclose(found.hidden, differences(value, network.hidden_weights), atol=1e-7)
    assert np.abs(found.hidden).max() > 0.01
    if qv:
        np.testing.assert_allclose(found.head_v, differences(value, network.head_v), atol=1e-7)


def test_co_opt_by_hand():
    w, momentum = co_opt(np.array([1.0, 2.0]), 0.5, np.array([4.0, -8.0]), np.array([1.0, 0.0]), 0.75)
    np.testing.assert_allclose(momentum, [0.75 + 1.0, -2.0])
    np.testing.assert_allclose(w, [1.0 - 0.875, 2.0 + 1.0])


def test_co_opt_without_momentum_is_plain_descent():
    w, _ = co_opt(np.array([1.0]), 0.1, np.array([3.0]), np.array([100.0]), 0.0)
    assert w[0] == pytest.approx(0.7)


def test_an_update_by_hand():
    """Two inputs, one unit that is on and one that is off, one action."""
    network = ValueNetwork(
        hidden_weights=np.array([[2.0, -1.0], [5.0, 5.0]]),
        hidden_momentum=np.zeros((2, 2)),
        head_q=np.array([[1.0, 1.0]]),
        head_q_momentum=np.zeros((1, 2)),
        head_v=np.array([0.5, 1.0]),
        head_v_momentum=np.zeros(2),
    )
    x_t, x_next = np.array([1.0, 0.0]), np.array([1.0, 0.0])
    features = network.features(x_t)
    np.testing.assert_array_equal(features, [2.0, 0.0])
    update_network(network, x_t, features, 0, 1.0, network.features(x_next), 0.5, alpha=0.1, nu=0.0)
    # target 1 + 0.5 * (0.5 * 2) = 1.5; V = 1, so its error is 0.5; Q = 2, so its error is -0.5
    np.testing.assert_allclose(network.head_v, [0.5 + 0.1 * 0.5 * 2, 1.0])
    np.testing.assert_allclose(network.head_q, [[1.0 - 0.1 * 0.5 * 2, 1.0]])
    # unit 0 receives 0.5 * 0.5 - 0.5 * 1 = -0.25 from both heads; unit 1 is off; input 1 is off
    np.testing.assert_allclose(network.hidden_weights, [[2.0 - 0.1 * 0.25, -1.0], [5.0, 5.0]])


def test_momentum_of_an_action_rests_while_it_is_not_taken():
    rng = np.random.default_rng(0)
    network = random_network(rng)
    before = network.head_q.copy(), network.head_q_momentum.copy()
    x = np.ones(INPUTS)
    value_network_step(network, QVLearningConfig(), x, 1, 0.0, x, lambda values: 0)
    for action in (0, 2):
        np.testing.assert_array_equal(network.head_q[action], before[0][action])
        np.testing.assert_array_equal(network.head_q_momentum[action], before[1][action])
    assert (network.head_q[1] != before[0][1]).any()


def test_rows_without_gradient_still_move_by_their_momentum():
    network = random_network(np.random.default_rng(1))
    weights, momentum = network.hidden_weights.copy(), network.hidden_momentum.copy()
    x = np.array([1.0, 0, 0, 0, 0, 0, 0])
    value_network_step(network, QVLearningConfig(), x, 0, 0.0, x, lambda values: 0)
    np.testing.assert_allclose(network.hidden_momentum[1:], 0.99 * momentum[1:])
    np.testing.assert_allclose(network.hidden_weights[1:], weights[1:] - 0.001 * 0.99 * momentum[1:])


def test_q_learning_bootstraps_from_the_best_action_and_qv_from_the_state_value():
    network = random_network(np.random.default_rng(2))
    features = network.features(np.ones(INPUTS))
    assert network.bootstrap(features) == pytest.approx(network.head_v @ features)
    network.head_v = None
    assert network.bootstrap(features) == pytest.approx(max(network.head_q @ features))


def test_a_discount_of_zero_cuts_bootstrapping():
    moved = []
    for x_next in (np.ones(INPUTS), np.zeros(INPUTS)):
        network = random_network(np.random.default_rng(3))
        x_t = np.array([1.0, 1, 0, 0, 0, 0, 0])
        value_network_step(network, QVLearningConfig(), x_t, 0, 1.0, x_next, lambda values: 0, discount=0.0)
        moved.append(network.hidden_weights)
    np.testing.assert_array_equal(moved[0], moved[1])


def test_the_action_is_chosen_by_the_values_before_the_update():
    network = random_network(np.random.default_rng(4), qv=False)
    x = np.ones(INPUTS)
    before = network.action_values(network.features(x))
    seen = []
    value_network_step(network, QLearningConfig(), x, 0, 5.0, x, lambda values: seen.append(values) or 2)
    np.testing.assert_array_equal(seen[0], before)


def test_blocks_do_not_see_each_others_inputs():
    network = random_network(np.random.default_rng(5), blocks=[0, 0, 0, 0, 1, 1, 1])
    first = network.features(np.array([1.0, 0, 1, 0, 0, 0, 0])).reshape(2, UNITS)
    both = network.features(np.array([1.0, 0, 1, 0, 1, 1, 0])).reshape(2, UNITS)
    np.testing.assert_array_equal(first[0], both[0])
    assert not first[1].any()
    assert both[1].any()


def test_linear_step_by_hand():
    from nibbler.agents.config import LinearConfig

    learner = LinearQ(np.array([[1.0, 0.0], [0.0, 2.0]]), np.zeros((2, 2)))
    config = LinearConfig(step_size=0.1, momentum=0.0, discount=0.5)
    a_next, error = linear_step(
        learner,
        config,
        np.array([1.0, 0.0]),
        0,
        1.0,
        np.array([0.0, 1.0]),
        lambda values: int(values.argmax()),
    )
    assert a_next == 1
    assert error == pytest.approx(1.0 + 0.5 * 2.0 - 1.0)
    np.testing.assert_allclose(learner.weights, [[1.1, 0.0], [0.0, 2.0]])
