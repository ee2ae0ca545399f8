"""The reference engine: properties that only hold when all parts are joined rightly."""

import numpy as np
import pytest

from nibbler.agents.config import (
    KnownStructureConfig,
    LinearConfig,
    NibblerConfig,
    PlannerConfig,
    QLearningConfig,
    QVLearningConfig,
    RandomConfig,
)
from nibbler.agents.policy import exploration_threshold
from nibbler.engines.initial import fresh_hidden_rows
from nibbler.engines.reference import ReferenceRun, select_action
from nibbler.engines.settle import settled
from nibbler.envs.catch import catch_board
from nibbler.envs.multi_catch import multi_catch
from nibbler.mdp.environment import Environment
from nibbler.mdp.exact import planner_tables
from nibbler.mdp.simulate import simulate_greedy, simulate_random, start

SMALL = NibblerConfig(num_questions=4, inputs_per_question=20, hidden_units=8, kappa=0.1)


def rewards_of(run, steps):
    return [run.advance(1) for _ in range(steps)]


def test_permuting_observations_and_initial_selections_leaves_the_rewards_unchanged():
    """Nibbler knows no order of the bits. Scores must not tie, or the lowest index would decide."""
    board = catch_board(p_hot=1.0)
    plain = Environment([board, board], permute=False)
    order = np.random.default_rng(0).permutation(plain.num_features)
    shuffled = Environment([board, board], permute=order)
    config = SMALL.replace(epsilon=0.3)
    first, second = ReferenceRun(plain, config, 3), ReferenceRun(shuffled, config, 3)
    state, distinct = first.state(), np.random.default_rng(1)
    state["support"] = 1e-3 * distinct.normal(size=state["support"].shape)
    state["discovery"] = 1e-3 * distinct.normal(size=state["discovery"].shape)
    first.restore(state)
    moved = dict(state)
    moved["inputs"], moved["cumulants"] = order[state["inputs"]], order[state["cumulants"]]
    moved["active"] = order[state["active"]]
    inverse = np.argsort(order)
    moved["support"], moved["discovery"] = state["support"][:, inverse], state["discovery"][inverse]
    second.restore(moved)
    assert rewards_of(first, 1500) == rewards_of(second, 1500)
    one, other = first.state(), second.state()
    np.testing.assert_array_equal(order[one["inputs"]], other["inputs"])
    np.testing.assert_array_equal(order[one["cumulants"]], other["cumulants"])
    np.testing.assert_allclose(one["main_q_base"][:, inverse], other["main_q_base"], atol=1e-9)
    assert one["input_swaps"].sum() > 10
    assert one["cumulant_swaps"] > 0


def compiled_rewards(env, seed, steps, simulate):
    """The total reward of a compiled simulation from the start states of a seed."""
    states = np.zeros(env.num_components, dtype=np.int32)
    start(env.tables, states, seed)
    return simulate(env.tables, states, seed, steps, np.zeros(env.max_active, dtype=np.int32))


def test_the_random_agent_is_the_compiled_random_simulation():
    env = multi_catch(3, seed=0, heterogeneous=True)
    total = compiled_rewards(
        env,
        5,
        3000,
        lambda tables, states, seed, steps, active: simulate_random(tables, states, seed, 0, steps, active),
    )
    assert ReferenceRun(env, RandomConfig(), 5).advance(3000) == total != 0.0


def test_the_planner_is_the_compiled_planner():
    env = multi_catch(2, seed=0)
    values = planner_tables(env, 0.99)
    total = compiled_rewards(
        env,
        5,
        3000,
        lambda tables, states, seed, steps, active: simulate_greedy(
            tables, states, values, 0.1, seed, 0, steps, active
        ),
    )
    assert ReferenceRun(env, PlannerConfig(), 5).advance(3000) == total
    assert total / 3000 > 0.02


def test_exploration_happens_at_the_rate_of_epsilon_and_is_uniform():
    values = np.array([0.0, 1.0, 0.5, 1.0])
    actions = [select_action(values, 0.4, seed=3, step=step) for step in range(4000)]
    counts = np.bincount(actions, minlength=4)
    for action in (0, 2, 3):  # 1 is greedy: the lowest of the two best
        assert counts[action] == pytest.approx(400, abs=5 * (4000 * 0.1 * 0.9) ** 0.5)


def test_epsilon_zero_never_explores_and_epsilon_one_always_does():
    values = np.array([0.0, 1.0])
    assert {select_action(values, 0.0, 0, step) for step in range(200)} == {1}
    assert exploration_threshold(1.0) == 2**32
    assert exploration_threshold(0.0) == 0


def test_known_structure_on_one_component_is_qv_learning():
    env = Environment([catch_board()], seed=2)
    flat = ReferenceRun(env, QVLearningConfig(hidden_units=8), 4)
    known = ReferenceRun(env, KnownStructureConfig(hidden_units=8), 4)
    assert rewards_of(flat, 300) == rewards_of(known, 300)
    np.testing.assert_array_equal(flat.state()["hidden_weights"], known.state()["hidden_weights"])


def test_known_structure_learns_from_each_components_own_bits():
    env = multi_catch(3, seed=2)
    run = ReferenceRun(env, KnownStructureConfig(hidden_units=4, form="q", hidden_bias=True), 4)
    run.advance(50)
    state = run.state()
    np.testing.assert_array_equal(state["block_of_feature"], env.component_of_feature)
    assert state["hidden_weights"].shape == (171, 4)
    assert state["head_q"].shape == (3, 12)


def test_a_changed_question_gets_the_weights_drawn_for_that_step():
    run = ReferenceRun(multi_catch(2, seed=0), SMALL, 6)
    seen = set()
    while len(seen) < 3:
        before = run.state()
        run.advance(1)
        after = run.state()
        for i in np.flatnonzero(before["cumulants"] != after["cumulants"]):
            fresh = fresh_hidden_rows(SMALL, 6, run.step, int(i), np.arange(20))
            np.testing.assert_array_equal(after["hidden_weights"][i], fresh)
            assert not after["hidden_momentum"][i].any()
            seen.add(run.step)


@pytest.mark.parametrize(
    "config",
    [
        SMALL.replace(swapped_input="random", hidden_bias=True),
        SMALL.replace(changed_question="keep", linear_momentum=0.9),
        SMALL.replace(scale_answer_step_size=True, input_threshold=0.001, cumulant_threshold=0.001),
    ],
    ids=["random swaps and biases", "kept questions and linear momentum", "scaled answers and thresholds"],
)
def test_every_choice_of_the_config_changes_the_run(config):
    env = multi_catch(2, seed=0)
    plain, chosen = ReferenceRun(env, SMALL, 0), ReferenceRun(env, config, 0)
    plain.advance(400)
    chosen.advance(400)
    one, other = plain.state(), chosen.state()
    assert np.isfinite(other["hidden_weights"]).all()
    assert one["answer_error"].sum() != other["answer_error"].sum()
    assert ("support_momentum" in other) == (config.linear_momentum > 0)


@pytest.mark.parametrize(
    "config, group, clock_of",
    [
        (SMALL, "hidden", "step"),
        (SMALL, "main_v_base", "step"),
        (SMALL, "main_q_base", "action"),
        (QLearningConfig(hidden_units=8), "hidden", "step"),
        (LinearConfig(), "linear_q", "action"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_settling_a_lazy_row_equals_decaying_it_step_by_step(config, group, clock_of):
    run = ReferenceRun(multi_catch(2, seed=0), config, 0)
    run.advance(300)
    state = run.state()
    weights = "hidden_weights" if group == "hidden" else group
    alpha = {"hidden": getattr(config, "answer_alpha", None)}.get(group) or getattr(
        config, "main_alpha", getattr(config, "step_size", None)
    )
    row = (1, 3) if state[weights].ndim == 3 else (1,)
    row = (1, 5) if clock_of == "action" else row
    rng = np.random.default_rng(0)
    state[weights][row], state[f"{group}_momentum"][row] = rng.normal(), rng.normal()
    w, momentum = state[weights][row].copy(), state[f"{group}_momentum"][row].copy()
    waited = 57
    for _ in range(waited):
        momentum = config.momentum * momentum
        w = w - alpha * momentum
    state[f"{group}_touched"][row] -= waited
    result = settled(state, config)
    np.testing.assert_allclose(result[weights][row], w, rtol=1e-12)
    np.testing.assert_allclose(result[f"{group}_momentum"][row], momentum, rtol=1e-12)
    expected = result["action_counts"][1] if clock_of == "action" else result["step"]
    assert result[f"{group}_touched"][row] == expected
    untouched = settled(run.state(), config)
    np.testing.assert_array_equal(untouched[weights], run.state()[weights])
