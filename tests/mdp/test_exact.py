"""Exact answers against brute force, against known numbers, and against themselves."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.mdp.strategies import small_mdps

from nibbler.envs.catch import catch_board, episodic_catch_board
from nibbler.envs.multi_catch import multi_catch
from nibbler.mdp import exact, simulate
from nibbler.mdp.algebra import enumerate_joint, product
from nibbler.mdp.classics import garnet, river_swim
from nibbler.mdp.environment import Environment
from nibbler.mdp.finite_mdp import FiniteMDP

DESIGN_RATES = {
    1: -0.02857,
    2: -0.05714,
    4: -0.06486,
    8: -0.06957,
    16: -0.07218,
    32: -0.07356,
    64: -0.07427,
    128: -0.07464,
}


@pytest.mark.parametrize("boards,rate", DESIGN_RATES.items())
def test_the_random_policy_on_multi_catch_has_its_published_rate(boards, rate):
    assert round(exact.reward_rate(multi_catch(boards)), 5) == rate


@given(small_mdps(), st.data())
def test_the_stationary_distribution_is_what_a_long_run_averages_to(mdp, data):
    weights = data.draw(
        st.lists(
            st.lists(st.floats(0.05, 1), min_size=mdp.num_actions, max_size=mdp.num_actions),
            min_size=mdp.num_states,
            max_size=mdp.num_states,
        )
    )
    policy = np.array(weights) / np.sum(weights, axis=1, keepdims=True)
    distribution = exact.stationary_distribution(mdp, policy)
    dense = np.zeros((mdp.num_states, mdp.num_states))
    for s, a in itertools.product(range(mdp.num_states), range(mdp.num_actions)):
        for p, successor, _ in mdp.outcomes(s, a):
            dense[s, successor] += policy[s, a] * p
    np.testing.assert_allclose(distribution @ dense, distribution, atol=1e-10)
    assert distribution.sum() == pytest.approx(1.0)
    assert (distribution >= 0).all()


def test_transient_states_have_no_share_of_the_long_run():
    mdp = FiniteMDP.from_triples(
        3, 1, [0, 1, 2], [0] * 3, [1, 2, 1], [1, 1, 1], [5.0, 1.0, 2.0], [[0], [1], [2]]
    )
    np.testing.assert_allclose(exact.stationary_distribution(mdp), [0, 0.5, 0.5])
    assert exact.reward_rate(mdp) == pytest.approx(1.5)


def test_a_chain_that_can_end_in_two_places_is_refused_unless_it_starts_in_one():
    arrays = ([0, 0, 1, 2], [0] * 4, [1, 2, 1, 2], [0.5, 0.5, 1, 1], [0, 0, 1, 2], [[0], [1], [2]])
    with pytest.raises(ValueError, match="not ergodic: it can end up at state 1 or at state 2"):
        exact.reward_rate(FiniteMDP.from_triples(3, 1, *arrays))
    assert exact.reward_rate(FiniteMDP.from_triples(3, 1, *arrays, start=2)) == 2.0


@given(small_mdps(), st.floats(0.0, 0.97))
def test_discounted_values_satisfy_the_bellman_equation(mdp, discount):
    values = exact.discounted_values(mdp, "random", discount)
    np.testing.assert_allclose(exact.action_values(mdp, values, discount).mean(axis=1), values, atol=1e-9)
    assert np.abs(values).max() <= 1.0 / (1.0 - discount) + 1e-9


@given(small_mdps(max_states=4), st.floats(0.0, 0.97))
def test_optimal_values_are_the_best_over_all_deterministic_policies(mdp, discount):
    q = exact.optimal_values(mdp, discount)
    best = np.full(mdp.num_states, -np.inf)
    for actions in itertools.product(range(mdp.num_actions), repeat=mdp.num_states):
        best = np.maximum(best, exact.discounted_values(mdp, np.array(actions), discount))
    np.testing.assert_allclose(q.max(axis=1), best, atol=1e-8)


def test_optimal_values_see_a_reward_that_is_hundreds_of_steps_away():
    river = river_swim(length=200, small=0.0)
    q = exact.optimal_values(river, 0.999)
    values = q.max(axis=1)
    np.testing.assert_allclose(exact.action_values(river, values, 0.999), q, atol=1e-9)
    assert (q.argmax(axis=1) == 1).all()


@given(small_mdps(max_states=4))
def test_the_optimal_rate_is_the_best_over_all_deterministic_policies(mdp):
    best = -np.inf
    for actions in itertools.product(range(mdp.num_actions), repeat=mdp.num_states):
        for start in range(mdp.num_states):
            started = FiniteMDP.from_triples(
                mdp.num_states,
                mdp.num_actions,
                mdp.row // mdp.num_actions,
                mdp.row % mdp.num_actions,
                mdp.next_state,
                mdp.probability,
                mdp.reward,
                [mdp.features(s) for s in range(mdp.num_states)],
                num_features=mdp.num_features,
                start=start,
            )
            try:
                best = max(best, exact.reward_rate(started, np.array(actions)))
            except ValueError:
                continue  # this policy leads to several classes; each is the end of some other start
    assert exact.optimal_rate(mdp) == pytest.approx(best, abs=1e-8)


def test_the_optimal_rate_ignores_states_that_are_left_for_good():
    # The first state pays best and is never seen again.
    mdp = FiniteMDP.from_dense(
        [[[0, 1, 0]], [[0, 0, 1]], [[0, 1, 0]]], [[9.0], [1.0], [2.0]], np.eye(3, dtype=int)
    )
    assert exact.optimal_rate(mdp) == pytest.approx(1.5, abs=1e-8)
    assert exact.uncoupled_bound(Environment([mdp] * 3)) == pytest.approx(4.5, abs=1e-7)


def test_the_optimal_rate_is_refused_where_it_depends_on_the_start():
    # Action 0 stays in the first state, action 1 leaves it for good.
    mdp = FiniteMDP.from_dense(
        [[[1, 0], [0, 1]], [[0, 1], [0, 1]]], [[2.0, 0.0], [1.0, 1.0]], np.eye(2, dtype=int)
    )
    with pytest.raises(ValueError, match=r"a policy can stay at state 0 .* add a way back"):
        exact.optimal_rate(mdp)


def test_the_optimal_rate_scales_with_the_rewards():
    river = river_swim(small=5e6, large=1e9)
    assert exact.optimal_rate(river) == pytest.approx(1e9 * exact.optimal_rate(river_swim()), rel=1e-8)


def test_values_of_an_episodic_board_end_with_the_episode():
    board = episodic_catch_board()
    # The paddle can always reach the ball, which takes nine steps to fall.
    best = exact.optimal_values(board, 0.9).max(axis=1)
    starts = np.flatnonzero(board.start_probability)
    np.testing.assert_allclose(best[starts], 0.9**8)
    assert (best[board.terminal] == 0.0).all()
    assert exact.discounted_values(board, "random", 1.0)[board.terminal].max() == 0.0


def test_frequencies_of_a_board_add_up_to_one_ball_and_one_paddle():
    board = catch_board()
    frequency = dict(zip(board.feature_names, exact.feature_frequencies(board), strict=True))
    ball = [name for name in frequency if name.startswith("cell") and not name.startswith("cell 9")]
    bottom = sum(frequency[f"cell 9,{col}"] for col in range(5))
    status = sum(frequency[name] for name in ("reset", "catch", "miss", "plus", "minus"))
    # Above the bottom row only the ball lights cells; the bottom row has the paddle, and the ball beside it.
    falling = sum(frequency[name] for name in ball)
    ball_on_bottom = 1.0 - falling - status
    assert falling / 9 == pytest.approx(ball_on_bottom, rel=1e-9)
    assert bottom == pytest.approx(
        1.0 + ball_on_bottom * frequency["miss"] / (frequency["miss"] + frequency["catch"])
    )


def test_an_environment_has_its_frequencies_in_observed_order():
    env = Environment([river_swim(), garnet(5, 2, 2, seed=3)], seed=8)
    frequency = exact.feature_frequencies(env)
    for observed in range(env.num_features):
        component, name = env.locate(observed)
        mdp = env.components[component]
        expected = exact.feature_frequencies(mdp)[mdp.feature_names.index(name)]
        assert frequency[observed] == pytest.approx(expected)


def test_a_policy_that_ignores_the_state_is_exact_for_environments_too():
    parts = [river_swim(4), garnet(3, 2, 2, seed=1)]
    always_swim = np.array([0.0, 1.0])
    joint = exact.reward_rate(enumerate_joint(product(parts)), always_swim)
    assert exact.reward_rate(product(parts), always_swim) == pytest.approx(joint, abs=1e-9)


@given(st.lists(small_mdps(num_actions=2, max_states=3), min_size=1, max_size=2))
def test_no_policy_beats_the_uncoupled_bound(components):
    env = product(components)
    joint = enumerate_joint(env)
    if joint.is_ergodic():
        assert exact.optimal_rate(joint) <= exact.uncoupled_bound(env) + 1e-8


@given(small_mdps(num_actions=3))
def test_the_planner_is_optimal_on_one_component(mdp):
    env = Environment([mdp])
    planner = exact.Planner(env, discount=0.9)
    q = exact.optimal_values(mdp, 0.9)
    for state in range(mdp.num_states):
        assert q[state, planner.act([state])] == pytest.approx(q[state].max(), abs=1e-9)


def test_the_planner_adds_up_the_action_values_of_all_components():
    env = multi_catch(5, seed=3, heterogeneous=True)
    planner = exact.Planner(env)
    q = [exact.optimal_values(component) for component in env.components]
    generator = np.random.default_rng(0)
    for _ in range(200):
        states = np.array([generator.integers(component.num_states) for component in env.components])
        sums = sum(values[s] for values, s in zip(q, states, strict=True))
        assert planner.act(states) == int(np.argmax(sums))


def test_the_planner_takes_the_lowest_of_equal_actions():
    same = FiniteMDP.from_dense(np.ones((1, 3, 1)), [[1.0, 2.0, 2.0]], [[1]])
    assert exact.Planner(Environment([same] * 3)).act([0, 0, 0]) == 1


def test_the_planner_runs_and_lies_between_the_random_policy_and_the_bound():
    env = multi_catch(8)
    rate = exact.Planner(env, epsilon=0.1, seed=1).simulate(60_000)
    assert rate == pytest.approx(0.056, abs=0.006)
    assert exact.reward_rate(env) < 0 < rate < exact.uncoupled_bound(env)


def test_a_planner_that_always_explores_is_the_random_policy():
    env = multi_catch(4)
    planner = exact.Planner(env, epsilon=1.0, seed=6)
    states, active = np.empty(4, dtype=np.int32), np.empty(env.max_active, dtype=np.int32)
    simulate.start(env.tables, states, 6)
    actions = [planner.act(states, step) for step in range(50)]
    assert actions == [simulate.random_action(6, step, 3) for step in range(50)]
    total = simulate.simulate_random(env.tables, states, 6, 0, 5000, active)
    assert planner.simulate(5000) == total / 5000


@pytest.mark.parametrize(
    "ask,message",
    [
        (lambda: exact.reward_rate(river_swim(), "clever"), "'clever' is unknown"),
        (lambda: exact.reward_rate(river_swim(), np.zeros((2, 2))), "does not fit"),
        (lambda: exact.reward_rate(river_swim(), np.full((6, 2), 0.4)), "state 0 0: the policy's"),
        (lambda: exact.reward_rate(river_swim(), np.full(6, 2)), "from 0 to 1"),
        (lambda: exact.reward_rate(multi_catch(2), np.zeros(5, dtype=int)), "ignores the state"),
        (lambda: exact.discounted_values(river_swim(), discount=1.0), "discount=1.0"),
        (lambda: exact.optimal_values(river_swim(), 1.5), "discount=1.5"),
        (lambda: exact.optimal_values(episodic_catch_board(), 1.0), "discount < 1"),
        (lambda: exact.Planner(multi_catch(2), epsilon=2.0), "epsilon=2.0"),
        (lambda: exact.Planner(multi_catch(2)).act([0]), "2 state numbers"),
        (lambda: exact.Planner(multi_catch(2)).act([0, 535]), "2 state numbers"),
        (lambda: exact.Planner(Environment([river_swim()], coupling="independent")), "broadcast"),
    ],
)
def test_bad_questions_are_refused(ask, message):
    with pytest.raises(ValueError, match=message):
        ask()
