"""Initial selections and weights: distinct, of the right spread, and drawn where the documentation says."""

import numpy as np
import pytest

from nibbler.agents.config import KnownStructureConfig, NibblerConfig, QLearningConfig, QVLearningConfig
from nibbler.engines.initial import (
    fresh_hidden_rows,
    initial_network_state,
    initial_nibbler_state,
    uniform_weights,
)
from nibbler.mdp.philox import HEADS, HIDDEN, draw_array


def test_selections_are_distinct_and_differ_between_questions():
    config = NibblerConfig(num_questions=20, inputs_per_question=30)
    state = initial_nibbler_state(config, 100, 3, seed=5)
    assert len(set(state["cumulants"].tolist())) == 20
    for inputs in state["inputs"]:
        assert len(set(inputs.tolist())) == 30
    assert len({tuple(sorted(inputs)) for inputs in state["inputs"].tolist()}) == 20
    assert state["inputs"].min() >= 0
    assert state["inputs"].max() < 100


def test_every_feature_is_equally_likely_to_be_selected():
    config = NibblerConfig(num_questions=50, inputs_per_question=10, hidden_units=1)
    counts = np.zeros(50)
    for seed in range(20):
        counts += np.bincount(initial_nibbler_state(config, 50, 2, seed)["inputs"].ravel(), minlength=50)
    expected = 20 * 50 * 10 / 50
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert chi_square < 90  # the 99.97% point of chi-square with 49 degrees of freedom


def test_weights_have_the_standard_deviations_of_the_design():
    config = NibblerConfig(num_questions=16, inputs_per_question=82)
    state = initial_nibbler_state(config, 448, 3, seed=1)
    assert state["hidden_weights"].std() == pytest.approx(82**-0.5, rel=0.01)
    assert state["answer_q"].std() == pytest.approx(256**-0.5, rel=0.02)
    assert abs(state["hidden_weights"]).max() <= (3 / 82) ** 0.5
    for name in ("main_v_base", "main_v_hidden", "main_q_base", "main_q_hidden", "support", "discovery"):
        assert not state[name].any()


def test_a_weight_is_the_draw_of_its_question_row_and_unit():
    config = NibblerConfig(num_questions=3, inputs_per_question=5, hidden_units=6, hidden_bias=True)
    state = initial_nibbler_state(config, 20, 2, seed=9)
    i, p, j = 2, 5, 5
    slot = (i * 6 + p) * 2 + j // 4
    word = draw_array(9, HIDDEN, 0, [slot])[0, j % 4]
    assert state["hidden_weights"][i, p, j] == uniform_weights(word, 5)
    action = 1
    head = draw_array(9, HEADS, 0, [((action + 1) * 3 + i) * 2 + j // 4])[0, j % 4]
    assert state["answer_q"][i, action, j] == uniform_weights(head, 6)


def test_fresh_rows_change_with_the_step_and_repeat_with_it():
    config = NibblerConfig(num_questions=3, inputs_per_question=5, hidden_units=6)
    first = fresh_hidden_rows(config, 9, 0, 1, np.arange(5))
    np.testing.assert_array_equal(first, initial_nibbler_state(config, 20, 2, 9)["hidden_weights"][1])
    later = fresh_hidden_rows(config, 9, 2**33 + 1, 1, np.array([3]))
    assert (later != first[3]).all()
    np.testing.assert_array_equal(later, fresh_hidden_rows(config, 9, 2**33 + 1, 1, np.array([3])))


def test_a_qv_network_draws_as_one_question_that_sees_everything():
    flat = initial_network_state(QVLearningConfig(hidden_units=6), np.zeros(10, dtype=np.int32), 2, seed=4)
    config = NibblerConfig(num_questions=1, inputs_per_question=10, hidden_units=6)
    answer = initial_nibbler_state(config, 10, 2, seed=4)
    np.testing.assert_array_equal(flat["hidden_weights"], answer["hidden_weights"][0])
    np.testing.assert_array_equal(flat["head_v"], answer["answer_v"][0])
    np.testing.assert_array_equal(flat["head_q"], answer["answer_q"][0])


def test_q_learning_has_no_state_value_and_blocks_are_scaled_by_their_own_size():
    assert "head_v" not in initial_network_state(QLearningConfig(), np.zeros(10, dtype=np.int32), 2, seed=4)
    blocks = np.array([0] * 100 + [1] * 25)
    state = initial_network_state(KnownStructureConfig(hidden_bias=True), blocks, 3, seed=4)
    assert state["hidden_weights"].shape == (127, 256)
    assert state["hidden_weights"][:100].std() == pytest.approx(0.1, rel=0.03)
    assert state["hidden_weights"][100:125].std() == pytest.approx(0.2, rel=0.03)
    assert state["head_q"].shape == (3, 512)
