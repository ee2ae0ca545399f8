"""Each box of the paper on cases small enough to work out by hand, and every choice that a config offers."""

import numpy as np
import pytest

from nibbler.agents.config import NibblerConfig, QVLearningConfig
from nibbler.agents.nibbler import (
    NibblerState,
    nibbler_step,
    select_cumulants,
    select_inputs,
    update_answers,
    update_main,
)
from nibbler.agents.value_network import ValueNetwork, value_network_step

M, H, G, D, A = 6, 2, 3, 4, 3


def make_state(seed=0, rows=G, scale=1.0):
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return scale * rng.normal(size=shape)

    return NibblerState(
        cumulants=np.array([4, 5], dtype=np.int32),
        inputs=np.array([[0, 1, 2], [3, 2, 1]], dtype=np.int32),
        hidden_weights=normal(H, rows, D),
        hidden_momentum=normal(H, rows, D),
        answer_v=normal(H, D),
        answer_v_momentum=normal(H, D),
        answer_q=normal(H, A, D),
        answer_q_momentum=normal(H, A, D),
        main_v_base=normal(M),
        main_v_base_momentum=normal(M),
        main_v_hidden=normal(H, D),
        main_v_hidden_momentum=normal(H, D),
        main_q_base=normal(A, M),
        main_q_base_momentum=normal(A, M),
        main_q_hidden=normal(A, H, D),
        main_q_hidden_momentum=normal(A, H, D),
        support=normal(H, M),
        support_momentum=normal(H, M),
        discovery=normal(M),
        discovery_momentum=normal(M),
        input_swaps=np.zeros(H, dtype=np.int64),
        answer_error=np.zeros(H),
        action_counts=np.zeros(A, dtype=np.int64),
    )


def make_config(**fields):
    return NibblerConfig(**{"num_questions": H, "inputs_per_question": G, "hidden_units": D, **fields})


def no_rows(question, positions):
    raise AssertionError("nothing should be drawn")


def ones(question, positions):
    return np.full((len(positions), D), 1.0 + question)


X_T = np.array([1.0, 0.0, 1.0, 1.0, 0.0, 0.0])
X_NEXT = np.array([0.0, 1.0, 1.0, 0.0, 1.0, 0.0])


def test_main_update_descends_the_loss_of_algorithm_2():
    """Without momentum the change of every weight is -alpha times the difference quotient of the loss."""
    config = make_config(momentum=0.0, step_size=0.01)
    state = make_state()
    e_t, e_next = state.nonlinear_features(X_T), state.nonlinear_features(X_NEXT)
    target = 0.5 + 0.9 * state.main_state_value(X_NEXT, e_next)

    def loss(groups):
        v_base, v_hidden, q_base, q_hidden = groups
        v = v_base @ X_T + np.vdot(v_hidden, e_t)
        q = q_base[1] @ X_T + np.vdot(q_hidden[1], e_t)
        return ((target - v) ** 2 + (target - q) ** 2) / 2

    names = ("main_v_base", "main_v_hidden", "main_q_base", "main_q_hidden")
    groups = [getattr(state, name).copy() for name in names]
    expected = []
    for group in groups:
        slope = np.zeros_like(group)
        for index in np.ndindex(group.shape):
            kept = group[index]
            group[index] = kept + 1e-6
            above = loss(groups)
            group[index] = kept - 1e-6
            slope[index] = (above - loss(groups)) / 2e-6
            group[index] = kept
        expected.append(group - 0.01 * slope)
    update_main(state, config, X_T, e_t, 1, 0.5, X_NEXT, e_next, 0.9)
    for name, value in zip(names, expected, strict=True):
        np.testing.assert_allclose(getattr(state, name), value, atol=1e-8, err_msg=name)
    assert state.action_counts.tolist() == [0, 1, 0]


def test_main_weights_of_other_actions_rest():
    state, before = make_state(), make_state()
    e_t, e_next = state.nonlinear_features(X_T), state.nonlinear_features(X_NEXT)
    update_main(state, make_config(), X_T, e_t, 2, 1.0, X_NEXT, e_next, 0.99)
    for name in ("main_q_base", "main_q_base_momentum", "main_q_hidden", "main_q_hidden_momentum"):
        np.testing.assert_array_equal(getattr(state, name)[:2], getattr(before, name)[:2])
        assert (getattr(state, name)[2] != getattr(before, name)[2]).any()


def test_each_answer_is_a_value_network_that_predicts_its_cumulant():
    config = make_config()
    state, before = make_state(), make_state()
    e_t, e_next = state.nonlinear_features(X_T), state.nonlinear_features(X_NEXT)
    update_answers(state, config, X_T, e_t, 0, X_NEXT, e_next, 0.9)
    for i in range(H):
        alone = before.answer(i)
        qv = QVLearningConfig(hidden_units=D, step_size=config.answer_alpha)
        inputs = before.inputs[i]
        cumulant = X_NEXT[before.cumulants[i]]
        value_network_step(alone, qv, X_T[inputs], 0, cumulant, X_NEXT[inputs], lambda values: 0, 0.9)
        np.testing.assert_array_equal(state.hidden_weights[i], alone.hidden_weights)
        np.testing.assert_array_equal(state.answer_v[i], alone.head_v)
        np.testing.assert_array_equal(state.answer_q[i], alone.head_q)
    assert (state.answer_error > 0).all()


def test_qv_learning_is_one_answer_with_every_bit_as_input_and_the_reward_as_cumulant():
    """The reward is put into a bit that is asked about, and the answer sees all bits."""
    rng = np.random.default_rng(7)
    config = NibblerConfig(num_questions=1, inputs_per_question=M, hidden_units=D)
    state = make_state()
    state.cumulants = np.array([5], dtype=np.int32)
    state.inputs = np.arange(M, dtype=np.int32)[None]
    state.hidden_weights, state.hidden_momentum = rng.normal(size=(1, M, D)), np.zeros((1, M, D))
    answer = state.answer(0)
    qv = ValueNetwork(
        answer.hidden_weights.copy(),
        answer.hidden_momentum.copy(),
        answer.head_q.copy(),
        answer.head_q_momentum.copy(),
        answer.head_v.copy(),
        answer.head_v_momentum.copy(),
    )
    x = np.zeros(M)
    for t in range(50):
        x_next = (rng.random(M) < 0.4).astype(float)
        e_t, e_next = state.nonlinear_features(x), state.nonlinear_features(x_next)
        update_answers(state, config, x, e_t, t % A, x_next, e_next, 0.99)
        reward = x_next[5]
        value_network_step(qv, QVLearningConfig(hidden_units=D), x, t % A, reward, x_next, lambda values: 0)
        x = x_next
    np.testing.assert_array_equal(state.hidden_weights[0], qv.hidden_weights)
    np.testing.assert_array_equal(state.answer_v[0], qv.head_v)
    np.testing.assert_array_equal(state.answer_q[0], qv.head_q)


def test_selection_for_answers_swaps_before_it_learns():
    """Feature 4 is the most useful unselected one at the start of the call, and nothing else is looked at."""
    state = make_state()
    state.support[:] = 0.0
    state.support[0] = [3.0, 1.0, 2.0, 0.0, -5.0, 4.0]
    config = make_config(linear_step_size=0.5)
    select_inputs(state, config, X_T, X_NEXT, np.array([1.0, 0.0]), 0.9, no_rows)
    assert state.inputs.tolist() == [[0, 4, 2], [3, 2, 1]]
    assert not state.hidden_weights[0, 1].any()
    assert not state.hidden_momentum[0, 1].any()
    assert state.input_swaps.tolist() == [1, 0]
    # w x_t = 5, w x_next = -2, delta = 1 + 0.9 * -2 - 5 = -5.8; features 0, 2, 3 move by half of it
    np.testing.assert_allclose(state.support[0], [0.1, 1.0, -0.9, -2.9, -5.0, 4.0])
    np.testing.assert_array_equal(state.support[1], np.zeros(M))


def test_a_swapped_input_may_start_at_random():
    state = make_state()
    state.support[0], state.support[1] = [3.0, 1.0, 2.0, 0.0, -5.0, 4.0], 0.0
    before = state.hidden_weights.copy()
    config = make_config(swapped_input="random")
    select_inputs(state, config, X_T, X_NEXT, np.array([1.0, 0.0]), 0.9, ones)
    np.testing.assert_array_equal(state.hidden_weights[0, 1], np.ones(D))
    assert not state.hidden_momentum[0, 1].any()
    np.testing.assert_array_equal(state.hidden_weights[0, [0, 2]], before[0, [0, 2]])


def test_the_input_threshold_holds_back_small_gains():
    state = make_state()
    state.support[0], state.support[1] = [3.0, 1.0, 2.0, 0.0, -5.0, 4.0], 0.0
    select_inputs(state, make_config(input_threshold=4.0), X_T, X_NEXT, np.zeros(H), 0.9, no_rows)
    assert state.inputs[0].tolist() == [0, 1, 2]


def test_selection_for_cumulants_by_hand():
    state = make_state()
    state.discovery = np.array([1.0, 0.0, -3.0, 0.5, 2.0, 0.25])
    before = make_state()
    select_cumulants(state, make_config(linear_step_size=0.5), X_T, -1.0, ones)
    assert state.cumulants.tolist() == [4, 2]  # feature 5 gives way to feature 2, at question 1
    assert state.cumulant_swaps == 1
    np.testing.assert_array_equal(state.hidden_weights[1], np.full((G, D), 2.0))
    assert not state.hidden_momentum[1].any()
    for name in ("answer_v", "answer_q", "main_v_hidden", "main_q_hidden", "support"):
        np.testing.assert_array_equal(getattr(state, name), getattr(before, name))
    np.testing.assert_array_equal(state.hidden_weights[0], before.hidden_weights[0])
    # w x_t = 1 - 3 + 0.5 = -1.5, delta = 0.5: features 0, 2, 3 move by 0.25
    np.testing.assert_allclose(state.discovery, [1.25, 0.0, -2.75, 0.75, 2.0, 0.25])


def test_a_changed_question_may_keep_its_weights():
    state, before = make_state(), make_state()
    state.discovery = np.array([1.0, 0.0, -3.0, 0.5, 2.0, 0.25])
    select_cumulants(state, make_config(changed_question="keep"), X_T, -1.0, no_rows)
    assert state.cumulants.tolist() == [4, 2]
    np.testing.assert_array_equal(state.hidden_weights, before.hidden_weights)
    np.testing.assert_array_equal(state.hidden_momentum, before.hidden_momentum)


def test_the_cumulant_threshold_holds_back_small_gains():
    state = make_state()
    state.discovery = np.array([1.0, 0.0, -3.0, 0.5, 2.0, 0.25])
    select_cumulants(state, make_config(cumulant_threshold=2.75), X_T, -1.0, no_rows)
    assert state.cumulants.tolist() == [4, 5]


def test_linear_learners_take_momentum_when_asked():
    state = make_state()
    state.discovery, state.discovery_momentum = np.zeros(M), np.full(M, 0.5)
    config = make_config(linear_step_size=1.0, linear_momentum=0.75)
    select_cumulants(state, config, X_T, 2.0, no_rows)
    expected = 0.75 * 0.5 - 0.25 * 2.0 * X_T
    np.testing.assert_allclose(state.discovery_momentum, expected)
    np.testing.assert_allclose(state.discovery, -expected)


def test_the_bias_row_is_always_on():
    state = make_state(rows=G + 1)
    config = make_config(hidden_bias=True)
    nothing = np.zeros(M)
    np.testing.assert_array_equal(
        state.nonlinear_features(nothing), np.maximum(state.hidden_weights[:, -1], 0.0)
    )
    before = state.hidden_weights.copy()
    state.hidden_momentum[:] = 0.0
    nibbler_step(state, config, nothing, 0, 1.0, nothing, lambda values: 0, ones)
    assert (state.hidden_weights[:, -1] != before[:, -1]).any()
    assert state.answer_inputs(0, nothing).tolist() == [0.0, 0.0, 0.0, 1.0]


def test_one_step_is_its_boxes_in_order():
    config = make_config(swapped_input="random")
    whole, parts = make_state(3), make_state(3)
    chosen = nibbler_step(
        whole, config, X_T, 1, 0.5, X_NEXT, lambda values: int(values.argmax()), ones, discount=0.9
    )
    e_t, e_next = parts.nonlinear_features(X_T), parts.nonlinear_features(X_NEXT)
    values = parts.main_action_values(X_NEXT, e_next)
    update_main(parts, config, X_T, e_t, 1, 0.5, X_NEXT, e_next, 0.9)
    update_answers(parts, config, X_T, e_t, 1, X_NEXT, e_next, 0.9)
    select_inputs(parts, config, X_T, X_NEXT, X_NEXT[[4, 5]], 0.9, ones)
    select_cumulants(parts, config, X_T, 0.5, ones)
    assert chosen == int(values.argmax())
    for name, value in vars(whole).items():
        np.testing.assert_array_equal(value, getattr(parts, name), err_msg=name)


def test_a_discount_of_zero_leaves_only_cumulants_and_reward_of_what_comes_next():
    states = [make_state(4), make_state(4)]
    other = X_NEXT.copy()
    other[:4] = 1.0 - other[:4]  # the cumulants' bits 4 and 5 stay
    for state, x_next in zip(states, (X_NEXT, other), strict=True):
        nibbler_step(state, make_config(), X_T, 0, 1.0, x_next, lambda values: 0, ones, discount=0.0)
    for name, value in vars(states[0]).items():
        np.testing.assert_array_equal(value, getattr(states[1], name), err_msg=name)


@pytest.mark.parametrize("bias", [False, True])
def test_weights_touched_follows_its_formula(bias):
    state = make_state(rows=G + bias)
    nibbler_step(state, make_config(hidden_bias=bias), X_T, 0, 0.0, X_NEXT, lambda values: 0, ones)
    n, active_inputs = 3, [2 + bias, 2 + bias]
    assert state.weights_touched == 2 * (n + H * D) + sum(D * (k + 2) for k in active_inputs) + (H + 1) * n
