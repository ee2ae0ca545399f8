import re
from itertools import pairwise

import jax
import numpy as np
import pytest

import nibbler
from nibbler.agents.rainbow import RainbowConfig
from nibbler.engines import jax as jax_engine
from nibbler.engines.jax import FunctionalEnvironment, open_packed_runs, shape_key
from nibbler.engines.jax.rainbow import Segment, schedule
from nibbler.engines.jax.replay import ring_size
from nibbler.engines.run import open_run, train
from nibbler.mdp import simulate
from nibbler.mdp.environment import Environment
from nibbler.mdp.finite_mdp import FiniteMDP


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


# --- When to act, learn and copy ------------------------------------------------------------------


def decisions(config, cuts):
    """Learning and copying times of a run that is advanced from one cut to the next."""
    steps, learns, copies = [], [], []
    for begin, end in pairwise(cuts):
        for segment in schedule(config, begin, end):
            assert segment.begin == (steps[-1] + 1 if steps else 0)
            steps.extend(range(segment.begin, segment.end))
            if segment.cycles:
                assert segment.length % config.learn_period == 0
                learns.extend(
                    range(segment.begin + config.learn_period, segment.end + 1, config.learn_period)
                )
            if segment.learn:
                learns.append(segment.end)
            if segment.copy_target:
                copies.append(segment.end)
    return steps, learns, copies


@pytest.mark.parametrize("cuts", [(0, 400), (0, 7, 8, 29, 33, 34, 80, 81, 200, 400), tuple(range(401))])
def test_updates_and_target_copies_fall_on_the_same_steps_however_a_run_is_cut(small, cuts):
    steps, learns, copies = decisions(small, cuts)
    assert steps == list(range(400))
    # Step by step, as DQN Zoo decides: every 4 steps once 30 three-step transitions are there.
    assert learns == [t for t in range(1, 401) if t % 4 == 0 and t - 2 >= 30]
    assert copies == [t for t in learns if t % 40 == 0]


def test_defaults_learn_first_at_step_20004_and_copy_every_8000():
    config = RainbowConfig()
    assert config.first_update == 20_004
    segments = list(schedule(config, 0, 40_000))
    assert segments[0] == Segment(0, 20_000, False, False, False)
    assert [segment.end for segment in segments if segment.copy_target] == [24_000, 32_000, 40_000]


# --- The run ---------------------------------------------------------------------------------------


def test_rainbow_learns_the_matching_problem(small, matching):
    result = train(matching, small, steps=4_000, seed=0, bin_size=500)
    assert result.rewards[0] < 0.75  # chance is 1/3
    assert result.rewards[-1] > 0.95


def test_a_resumed_run_equals_one_that_never_stopped_bit_for_bit(small, matching):
    whole = open_run(matching, small, 5)
    earned = whole.advance_bins(4, 200)
    first = open_run(matching, small, 5)
    begun = first.advance_bins(2, 200)
    second = open_run(matching, small, 5)
    second.restore(first.state())
    assert second.step == 400
    np.testing.assert_array_equal(np.concatenate([begun, second.advance_bins(2, 200)]), earned)
    assert_same(second.state(), whole.state())


def test_stopping_between_updates_changes_nothing(small, matching):
    whole = open_run(matching, small, 6)
    total = whole.advance(331)
    parts = open_run(matching, small, 6)
    earned = [parts.advance(steps) for steps in (1, 27, 5, 90, 3, 1, 1, 203)]
    assert sum(earned) == total
    assert_same(parts.state(), whole.state())


def test_an_early_checkpoint_holds_only_the_filled_part_of_the_replay(small, matching):
    run = open_run(matching, small, 0)
    run.advance(50)
    state = run.state()
    assert len(state["replay_observations"]) == len(state["replay_rewards"]) == 51
    run.advance(1_000)
    assert len(run.state()["replay_observations"]) == small.replay_capacity + small.num_steps


def test_seeds_differ_and_equal_seeds_agree(small, matching):
    runs = [open_run(matching, small, seed) for seed in (1, 1, 2**63)]
    for run in runs:
        run.advance(200)
    states = [run.state() for run in runs]
    assert_same(states[0], states[1])
    assert (states[0]["replay_rewards"] != states[2]["replay_rewards"]).any()
    assert (states[0]["network_shared_weights"] != states[2]["network_shared_weights"]).any()


def test_the_replay_records_the_trajectory_that_other_engines_simulate(small, matching):
    run = open_run(matching, small, 3)
    run.advance(250)
    state = run.state()
    tables = matching.tables
    states = simulate.start_reference(tables, 3)
    for step in range(250):
        action = int(state["replay_actions"][step])
        states, reward, active = simulate.step_reference(tables, states, action, 3, step)
        assert state["replay_rewards"][step] == np.float32(reward)
        assert int(state["replay_observations"][step + 1, 0]) == sum(1 << int(bit) for bit in active)
    np.testing.assert_array_equal(state["states"], states)
    np.testing.assert_array_equal(state["active"], active)


def test_target_network_is_a_past_network(small, matching):
    run = open_run(matching, small, 0)
    run.advance(40)
    kept = run.state()
    np.testing.assert_array_equal(kept["target_network_shared_weights"], kept["network_shared_weights"])
    run.advance(36)
    later = run.state()
    np.testing.assert_array_equal(later["target_network_shared_weights"], kept["network_shared_weights"])
    assert (later["network_shared_weights"] != kept["network_shared_weights"]).any()
    assert int(later["adam_updates"]) == (76 - small.first_update) // 4 + 1


def test_updates_change_priorities_of_replayed_transitions_alone(small, matching):
    run = open_run(matching, small, 0)
    run.advance(small.first_update - 4)
    before = run.state()["replay_tree_0"].ravel()
    run.advance(4)
    after = run.state()["replay_tree_0"].ravel()
    made = small.first_update - 2
    assert (after[made:] == 0).all()
    fresh = np.arange(made - 4, made)
    assert (before[fresh] == 0).all()
    assert (after[fresh] > 0).all()
    changed = np.flatnonzero(before[: made - 4] != after[: made - 4])
    assert 1 <= changed.size <= small.batch_size


def test_the_compiled_loop_changes_the_replay_in_place(small, matching):
    """A copy of a million transitions in every cycle would take longer than the update itself."""
    run = open_run(matching, small, 0)._packed
    program = run._programs.cycles.lower(run._state, run._run, np.uint32(0), np.uint32(1)).compile().as_text()
    shapes = [f"[{ring_size(small)}", "[3,128]"]  # the ring, and the priorities
    lines = [line for line in program.splitlines() if any(shape in line for shape in shapes)]
    assert any("scatter(" in line for line in lines)
    assert any("dynamic-update-slice(" in line for line in lines)
    assert not [line for line in lines if re.search(r"= \S+ copy\(", line)]


# --- Several runs at once --------------------------------------------------------------------------


def test_packed_runs_follow_the_runs_they_pack(small, matching):
    configs = [small, small.replace(learning_rate=0.001, discount=0.4)]
    packed = open_packed_runs([(matching, configs[0], 5), (matching, configs[1], 6)])
    sums = packed.advance_bins(2, 60)
    for index, (config, seed) in enumerate(zip(configs, (5, 6), strict=True)):
        alone = open_run(matching, config, seed)
        np.testing.assert_array_equal(sums[index], alone.advance_bins(2, 60))
        one, other = packed.state(index), alone.state()
        assert one.keys() == other.keys()
        for name in ("replay_actions", "replay_rewards", "states", "step"):
            np.testing.assert_array_equal(one[name], other[name])
        np.testing.assert_allclose(
            one["network_value_hidden_mean"], other["network_value_hidden_mean"], atol=1e-4
        )


def test_packed_runs_resume_exactly_and_exchange_states_with_single_runs(small, matching):
    problems = [(matching, small, 1), (matching, small, 2)]
    whole = open_packed_runs(problems)
    whole.advance_bins(1, 160)
    states = [whole.state(index) for index in range(2)]
    expected = whole.advance_bins(2, 40)
    again = open_packed_runs(problems)
    again.restore(0, states[0])
    with pytest.raises(ValueError, match=r"at steps \[0, 160\]"):
        again.advance_bins(1, 4)
    again.restore(1, states[1])
    np.testing.assert_array_equal(again.advance_bins(2, 40), expected)
    assert_same(again.state(1), whole.state(1))
    single = open_run(matching, small, 2)
    single.restore(states[1])
    assert single.step == 160
    assert_same(single.state(), states[1])


def test_packed_runs_may_have_environments_of_their_own(small, matching):
    other = Environment(matching.components, permute=np.roll(np.arange(3), 1))
    packed = open_packed_runs([(matching, small, 5), (other, small, 5)])
    packed.advance_bins(1, 20)
    seen = [packed.state(index)["replay_observations"][0, 0] for index in range(2)]
    assert seen[0] != seen[1]  # the same start state through different permutations


def test_packed_runs_that_cannot_share_a_program_are_refused(small, matching):
    wider = small.replace(head_units=8)
    bigger = Environment(matching.components * 2)
    with pytest.raises(ValueError, match="may differ in"):
        open_packed_runs([(matching, small, 0), (matching, wider, 0)])
    with pytest.raises(ValueError, match="same shapes"):
        open_packed_runs([(matching, small, 0), (bigger, small, 0)])
    with pytest.raises(ValueError, match="no runs"):
        open_packed_runs([])
    key = shape_key(matching, small)
    assert key == shape_key(matching, small.replace(learning_rate=0.1, discount=0.9))
    assert key != shape_key(matching, wider)
    assert key != shape_key(bigger, small)


# --- What is refused, and the way in ---------------------------------------------------------------


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"epsilon": 0.1}, "explores by its noise"),
        ({"num_atoms": 1}, "at least 2"),
        ({"min_replay": 2_000_000}, "min_replay=2000000 must be between"),
        ({"min_replay": 3}, "min_replay=3 must be between"),
        ({"target_period": 30}, "multiple of learn_period"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"batch_size": 0}, "batch_size"),
        ({"uniform_share": 1.5}, "uniform_share"),
        ({"importance_steps": 10}, "importance_steps=10 must exceed"),
        ({"max_abs_reward": -1.0}, "max_abs_reward"),
    ],
)
def test_a_config_that_makes_no_sense_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        RainbowConfig(**fields)


def test_a_state_of_another_shape_is_refused(small, matching):
    run = open_run(matching, small, 0)
    state = run.state()
    with pytest.raises(ValueError, match="network_shared_bias"):
        run.restore({**state, "network_shared_bias": np.zeros(3, np.float32)})
    state.pop("adam_updates")
    with pytest.raises(ValueError, match="no adam_updates"):
        run.restore(state)


def test_train_saves_resumes_and_names_the_engine(small, matching, tmp_path):
    kept = train(matching, small, steps=120, seed=1, bin_size=40, checkpoint=tmp_path)
    assert kept.record["engine"] == "jax"
    longer = train(matching, small, steps=200, seed=1, bin_size=40, checkpoint=tmp_path)
    whole = train(matching, small, steps=200, seed=1, bin_size=40)
    np.testing.assert_array_equal(longer.rewards, whole.rewards)
    assert_same(longer.state, whole.state)


def test_the_name_alone_stands_for_the_defaults():
    assert nibbler.agents.registry.default_config("rainbow", 2, 112) == RainbowConfig()
    config = RainbowConfig(learning_rate=0.001)
    assert nibbler.agents.registry.config_from_dict(config.to_dict()) == config


def test_other_engines_refuse_rainbow_and_jax_refuses_other_agents(matching):
    with pytest.raises(ValueError, match="rainbow"):
        open_run(matching, "rainbow", engine="reference")
    with pytest.raises(ValueError, match="q-learning"):
        open_run(matching, "q-learning", engine="jax")
    assert {"rainbow"} == jax_engine.AGENTS


def test_only_32_bit_numbers_are_used(small, matching):
    run = open_run(matching, small, 0)
    counters = ("step", "weights_touched")  # of the host
    kinds = {np.asarray(value).dtype for name, value in run.state().items() if name not in counters}
    assert all(kind.itemsize <= 4 for kind in kinds)
    mdp = FiniteMDP.from_dense(np.ones((1, 2, 1)), np.zeros((1, 2)), np.ones((1, 1), dtype=int))
    functions = FunctionalEnvironment(Environment([mdp]))
    assert functions.step(jax.random.key(0), functions.init(jax.random.key(0)), 1)[2].dtype == np.float32
