"""Looking inside: bits mapped back through the permutation, shares found, errors between snapshots."""

import numpy as np
import pytest

from nibbler.agents.config import NibblerConfig
from nibbler.engines.inspect import found_shares, inspect_state, main_action_values
from nibbler.engines.reference import dense
from nibbler.engines.run import open_run, train
from nibbler.engines.settle import settled
from nibbler.envs.multi_catch import multi_catch

SMALL = NibblerConfig(num_questions=4, inputs_per_question=20, hidden_units=8, kappa=0.1)


@pytest.fixture(scope="module")
def env():
    return multi_catch(3, seed=1)


def bits_of(env, component):
    return np.flatnonzero(env.component_of_feature == component)


def state_with(env, cumulants, inputs):
    state = open_run(env, SMALL, engine="reference").state()
    return {**state, "cumulants": np.array(cumulants), "inputs": np.array(inputs)}


def test_bits_are_named_as_the_environment_names_them(env):
    inspection = inspect_state(open_run(env, SMALL, engine="reference").state(), env)
    assert len(inspection.questions) == 4
    for question in inspection.questions:
        assert len(question.inputs) == 20
        for bit in (question.cumulant, *question.inputs):
            assert (bit.component, bit.name) == env.locate(bit.feature)
            assert str(bit) == env.feature_names[bit.feature]


def test_found_share_counts_own_bits_of_questions_about_a_component(env):
    first, second = bits_of(env, 0), bits_of(env, 1)
    state = state_with(
        env,
        [first[0], first[1], second[0], second[1]],
        [
            [*first[:14], *second[30:36]],  # about 0: sees 14 of its bits
            [*first[:20]],  # about 0: the same 14 and 6 more
            [*first[:20]],  # about 1: sees none of its bits
            [*second[:7], *first[40:53]],  # about 1: sees 7
        ],
    )
    np.testing.assert_allclose(found_shares(state, env), [20 / 56, 7 / 56, 0.0])
    inspection = inspect_state(state, env)
    assert [question.own_inputs for question in inspection.questions] == [14, 20, 0, 7]
    assert inspection.components_asked == 2


def test_errors_are_averaged_between_snapshots(env):
    run = open_run(env, SMALL, seed=2, engine="reference")
    run.advance(100)
    before = run.state()
    run.advance(50)
    after = run.state()
    stretch, whole = inspect_state(after, env, before), inspect_state(after, env)
    expected = (after["answer_error"] - before["answer_error"]) / 50
    np.testing.assert_allclose([question.mean_error for question in stretch.questions], expected)
    assert stretch.mean_error == pytest.approx((after["main_error"] - before["main_error"]) / 50)
    assert whole.mean_error == pytest.approx(after["main_error"] / 150)
    with pytest.raises(ValueError, match="before is at step 150, after the state's step 100; swap them"):
        inspect_state(before, env, after)


def test_swaps_are_counted(env):
    result = train(env, SMALL, steps=300, engine="reference")
    inspection = result.inspect()
    assert inspection.input_swaps == result.state["input_swaps"].sum() > 0
    assert inspection.cumulant_swaps == result.state["cumulant_swaps"]
    assert inspection.step == 300


def test_the_table_names_cumulants_and_is_cut_when_long(env):
    inspection = inspect_state(open_run(env, SMALL, engine="reference").state(), env)
    text = str(inspection)
    for question in inspection.questions:
        assert str(question.cumulant) in text
        assert f"{question.own_inputs}/20" in text
    assert "of 3 components asked about" in text
    assert "... and 3 more questions" in inspection.table(max_rows=1)


def test_without_an_environment_features_are_numbers(env):
    inspection = inspect_state(open_run(env, SMALL, engine="reference").state())
    assert inspection.found_share is None
    assert inspection.questions[0].cumulant.name is None
    assert "?/20" in str(inspection)


def test_an_agent_without_questions_still_has_errors(env):
    result = train(env, "linear", steps=200, engine="reference")
    inspection = result.inspect()
    assert inspection.questions == ()
    assert inspection.mean_error == pytest.approx(result.state["value_error"] / 200)
    assert "step 200" in str(inspection)


@pytest.mark.parametrize("bias", [False, True])
def test_action_values_of_a_lazy_state_are_those_of_the_settled_one(env, bias):
    config = SMALL.replace(hidden_bias=bias)
    run = open_run(env, config, seed=3, engine="reference")
    run.advance(200)
    state, rng = run.state(), np.random.default_rng(0)
    for name in ("hidden_momentum", "main_q_base_momentum"):
        state[name] = rng.normal(size=state[name].shape)
    for name in ("hidden_touched", "main_q_base_touched"):
        state[name] = state[name] - rng.integers(0, 30, size=state[name].shape)
    active = np.array([1, 17, 60, 100, 160])
    learner = run.learner
    learner.load(settled(state, config))
    expected = learner.action_values(dense(active, env.num_features), active)
    np.testing.assert_allclose(main_action_values(state, config, active), expected, rtol=1e-9)
    assert len(set(expected)) == 3
