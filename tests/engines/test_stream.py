"""`nibbler.Nibbler`: a stream of one's own, checked before any weight changes."""

import numpy as np
import pytest

from nibbler.agents.config import NibblerConfig, QLearningConfig
from nibbler.engines.inspect import main_action_values
from nibbler.engines.reference import ReferenceRun
from nibbler.engines.run import train
from nibbler.engines.stream import Nibbler, default_stream_config
from nibbler.envs.multi_catch import multi_catch
from nibbler.mdp.simulate import observe_reference, start_reference, step_reference

M, A = 30, 3
SMALL = NibblerConfig(num_questions=4, inputs_per_question=10, hidden_units=8, kappa=0.1)
ENGINES = ["cpu", "reference"]


def make_agent(engine="cpu", **options):
    return Nibbler(M, A, **{"config": SMALL, "seed": 3, "engine": engine, **options})


def feed(agent, seed, steps):
    """Random rewards and observations; returns the actions."""
    rng = np.random.default_rng(seed)
    return [agent.step(rng.normal(), (rng.random(M) < 0.2)) for _ in range(steps)]


def same_state(one, other):
    one, other = one.state(), other.state()
    assert one.keys() == other.keys()
    return all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_stream_from_an_environment_is_that_environments_run(engine):
    env = multi_catch(2, seed=0)
    config = SMALL.replace(inputs_per_question=20)
    run = ReferenceRun(env, config, 5)
    agent = Nibbler(env.num_features, env.num_actions, config, seed=5, engine=engine)
    states = start_reference(env.tables, 5)
    action = agent.step(0.0, observe_reference(env.tables, states))
    for step in range(400):
        states, reward, active = step_reference(env.tables, states, action, 5, step)
        assert reward == run.advance(1)
        action = agent.step(reward, active)
        assert action == int(run.state()["action"])
    assert agent.steps == 400
    expected, found = run.state(), agent.state()
    np.testing.assert_array_equal(expected["inputs"], found["inputs"])
    assert expected["input_swaps"].sum() > 0


@pytest.mark.parametrize("engine", ENGINES)
def test_all_forms_of_an_observation_are_the_same(engine):
    rng = np.random.default_rng(0)
    forms = [
        lambda x: x,
        lambda x: x.astype(np.uint8),
        lambda x: x.astype(float).tolist(),
        lambda x: x.reshape(5, 6),
        np.flatnonzero,
        lambda x: np.flatnonzero(x)[::-1].astype(np.uint16),
        lambda x: np.flatnonzero(x).tolist(),
    ]
    observations = rng.random((40, M)) < 0.2
    observations[7] = False  # an empty list of indices, too
    agents = [make_agent(engine) for _ in forms]
    for x in observations:
        assert len({agent.step(1.0, form(x)) for agent, form in zip(agents, forms, strict=True)}) == 1
    assert all(same_state(agents[0], agent) for agent in agents[1:])


def test_as_many_numbers_as_features_are_always_read_as_binary():
    agent = Nibbler(2, A, NibblerConfig(num_questions=1, inputs_per_question=2))
    agent.start([0, 1])
    assert agent.state()["active"].tolist() == [1]
    agent.start([1, 1])
    assert agent.state()["active"].tolist() == [0, 1]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "reward, observation, discount, message",
    [
        (np.nan, [1], None, "reward=nan is not finite"),
        (-np.inf, [1], None, "reward=-inf is not finite"),
        ("1", [1], None, "reward='1' is not a number"),
        ([1.0], [1], None, r"reward=\[1.0\] is not a number"),
        (None, [1], None, "reward=None is not a number"),
        (1e39, [1], None, "too large for 32-bit floats"),
        (0.0, [1, M], None, f"the index {M}; use 0 to {M - 1}"),
        (0.0, [1, -1], None, "the index -1; use 0 to"),
        (0.0, [4, 1, 4], None, "the index 4 twice"),
        (0.0, np.zeros(M + 1), None, r"shape \(31,\) and type float64; give 30 values of 0 or 1"),
        (0.0, np.full(M, 0.5), None, "the value 0.5 at 0; only 0 and 1"),
        (0.0, np.r_[np.zeros(M - 1), np.nan], None, "the value nan at 29"),
        (0.0, np.r_[np.zeros(M - 1, dtype=int), 2], None, "the value 2 at 29"),
        (0.0, np.zeros((3, 4), dtype=int), None, r"shape \(3, 4\)"),
        (0.0, [0.0, 1.0], None, "or a list of whole-number indices"),
        (0.0, ["a"], None, "observation holds <U1 values"),
        (0.0, [1], 1.5, "discount=1.5 must be between 0 and 1"),
        (0.0, [1], np.nan, "discount=nan is not finite"),
    ],
)
def test_wrong_input_is_refused_before_any_weight_changes(engine, reward, observation, discount, message):
    agent, twin = make_agent(engine), make_agent(engine)
    feed(agent, 0, 20)
    feed(twin, 0, 20)
    with pytest.raises(ValueError, match=message):
        agent.step(reward, observation, discount)
    assert same_state(agent, twin)
    assert feed(agent, 1, 20) == feed(twin, 1, 20)
    assert same_state(agent, twin)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_saved_agent_goes_on_as_if_it_had_never_stopped(engine, tmp_path):
    agent = make_agent(engine)
    feed(agent, 0, 120)
    agent.save(tmp_path / "agent.npz")
    loaded = Nibbler.load(tmp_path / "agent.npz")
    assert (loaded.config, loaded.seed, loaded.steps) == (agent.config, agent.seed, agent.steps)
    assert feed(loaded, 1, 120) == feed(agent, 1, 120)
    assert same_state(agent, loaded)
    assert agent.inspect().input_swaps > 0


def test_an_agent_saved_before_its_first_observation_still_has_none(tmp_path):
    make_agent().save(tmp_path)
    loaded = Nibbler.load(tmp_path)
    assert loaded.step(5.0, [1]) == make_agent().step(5.0, [1])
    assert loaded.steps == 0


def test_a_run_of_train_is_not_loaded_as_an_agent(tmp_path):
    train(multi_catch(1), "random", 10, engine="reference", checkpoint=tmp_path)
    with pytest.raises(ValueError, match="holds a run of `train`"):
        Nibbler.load(tmp_path)


def test_an_agent_is_not_resumed_as_a_run_of_train(tmp_path):
    make_agent().save(tmp_path)
    with pytest.raises(ValueError, match="holds no run of `train`"):
        train(multi_catch(1), "random", 10, engine="reference", checkpoint=tmp_path)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_first_call_learns_nothing_and_its_reward_does_not_matter(engine):
    one, other = make_agent(engine), make_agent(engine)
    assert one.step(0.0, [1, 2]) == other.step(100.0, [1, 2])
    assert same_state(one, other)
    assert one.steps == 0


@pytest.mark.parametrize("engine", ENGINES)
def test_a_discount_of_zero_makes_what_comes_after_irrelevant(engine):
    agents = [make_agent(engine), make_agent(engine)]
    for agent in agents:
        feed(agent, 0, 50)
    cumulants = set(agents[0].state()["cumulants"].tolist())
    plain = [feature for feature in range(M) if feature not in cumulants]
    agents[0].step(1.0, plain[:5], discount=0.0)
    agents[1].step(1.0, plain[5:9], discount=0.0)
    one, other = agents[0].state(), agents[1].state()
    for name in ("main_q_base", "support", "discovery", "answer_v", "inputs"):
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_given_discount_is_used_for_that_transition(engine):
    agents = [make_agent(engine) for _ in range(3)]
    for agent, discount in zip(agents, (None, SMALL.discount, 0.5), strict=True):
        feed(agent, 0, 50)
        agent.step(1.0, [3, 4, 5], discount)
    assert same_state(agents[0], agents[1])
    assert not same_state(agents[0], agents[2])


@pytest.mark.parametrize("engine", ENGINES)
def test_starting_an_episode_learns_nothing_and_leaves_from_its_own_observation(engine):
    agent = make_agent(engine, config=SMALL.replace(epsilon=0.0))
    twin = make_agent("reference", config=SMALL.replace(epsilon=0.0))
    for each in (agent, twin):
        feed(each, 0, 60)
        each.step(1.0, [2, 3], discount=0.0)
    before = agent.state()
    action = agent.start([7, 8, 9])
    after = agent.state()
    for name in before:
        if name not in ("active", "action", "renewed"):  # the last: how the CPU engine sums next
            np.testing.assert_array_equal(before[name], after[name], err_msg=name)
    assert after["active"].tolist() == [7, 8, 9]
    assert action == int(np.argmax(agent.action_values([7, 8, 9]))) == twin.start([7, 8, 9])
    np.testing.assert_allclose(agent.action_values([1, 8]), twin.action_values([1, 8]), atol=1e-4)
    assert feed(agent, 5, 60) == feed(twin, 5, 60)
    np.testing.assert_allclose(agent.state()["support"], twin.state()["support"], atol=1e-3)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("engine", ENGINES)
def test_action_values_are_those_read_off_the_state(engine, bias):
    config = SMALL.replace(hidden_bias=bias)
    agent = make_agent(engine, config=config)
    feed(agent, 0, 200)
    for active in ([], [3], [1, 5, 20, 21, 22, 29]):
        expected = main_action_values(agent.state(), config, np.array(active, dtype=np.int64))
        np.testing.assert_allclose(agent.action_values(active), expected, rtol=1e-5, atol=1e-6)


def test_a_state_moves_between_engines():
    agent = make_agent("cpu")
    feed(agent, 0, 200)
    other = make_agent("reference")
    other._learner.restore(agent.state())
    other._begun = True
    x = [1, 5, 20]
    np.testing.assert_allclose(other.action_values(x), agent.action_values(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Nibbler(0, 3), "num_features=0 must be a whole number of at least 1"),
        (lambda: Nibbler(10, 2.5), "num_actions=2.5 must be a whole number"),
        (lambda: Nibbler(10, 3, SMALL.replace(inputs_per_question=11)), "exceeds the 10 features; lower it"),
        (lambda: Nibbler(10, 3, QLearningConfig()), "config is a QLearningConfig; give a NibblerConfig"),
        (lambda: Nibbler(10, 3, seed=-1), "seed=-1 is out of range"),
        (lambda: Nibbler(10, 3, engine="cuda"), "engine='cuda' cannot be fed from outside; choose cpu"),
    ],
)
def test_wrong_agents_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_default_config_follows_table_1_per_feature():
    config = default_stream_config(448)
    assert (config.num_questions, config.inputs_per_question) == (16, 82)
    assert default_stream_config(1).num_questions == 1
    assert default_stream_config(30).inputs_per_question == 30
