"""The CPU engine against the reference: one injected step, a recorded stream, stop and go, distribution.

With epsilon = 1 both engines take the same actions (they are drawn, not chosen), so that a stream of some
thousand steps can be compared weight by weight. The tolerance is measured, not guessed: it is a multiple of
the distance between the float64 reference and the same reference computing in float32.
"""

import dataclasses

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
from nibbler.engines.cpu.rows_twice import STRETCH
from nibbler.engines.run import open_run
from nibbler.engines.settle import settled
from nibbler.envs.multi_catch import multi_catch
from nibbler.mdp.classics import garnet
from nibbler.mdp.environment import Environment

# Large steps, so that inputs and cumulants are swapped many times in the tested stretch.
NIBBLER = NibblerConfig(
    num_questions=6, inputs_per_question=20, hidden_units=48, epsilon=1.0, kappa=0.02, momentum=0.9
)
VARIANTS = {
    "default": {},
    "random swaps": {"swapped_input": "random"},
    "kept questions": {"changed_question": "keep"},
    "bias": {"hidden_bias": True},
    "linear momentum": {"linear_momentum": 0.9},
    "thresholds": {"input_threshold": 0.001, "cumulant_threshold": 0.002},
    "scaled answers": {"scale_answer_step_size": True, "answer_step_size": 0.01},
    "odd sizes": {"num_questions": 7, "hidden_units": 33, "inputs_per_question": 11},
    "many units": {"hidden_units": 150},  # more than are worked on at once
    "no momentum": {"momentum": 0.0},
    "high momentum": {"momentum": 0.999},
}
NETWORKS = {
    "q-learning": QLearningConfig(hidden_units=40, epsilon=1.0, step_size=0.01),
    "q-learning, bias": QLearningConfig(hidden_units=17, epsilon=1.0, step_size=0.01, hidden_bias=True),
    "q-learning, many units": QLearningConfig(hidden_units=150, epsilon=1.0, step_size=0.01),
    "q-learning, long rows": QLearningConfig(hidden_units=STRETCH + 30, epsilon=1.0, step_size=0.001),
    "qv-learning": QVLearningConfig(hidden_units=40, epsilon=1.0, step_size=0.01),
    "known structure": KnownStructureConfig(hidden_units=12, epsilon=1.0, step_size=0.01),
    "known structure, q, bias": KnownStructureConfig(
        hidden_units=12, epsilon=1.0, step_size=0.01, form="q", hidden_bias=True
    ),
    "linear": LinearConfig(epsilon=1.0, step_size=0.01),
}


def boards():
    return multi_catch(2, seed=1)


def varied():
    return multi_catch(3, seed=2, heterogeneous=True)


def garnets():
    return Environment([garnet(7, 3, 2, seed=s) for s in range(5)], seed=3)


def distance(state, other, config):
    """For every array of weights, the largest difference relative to the array's size."""
    a, b = settled(state, config), settled(other, config)
    result = {}
    for name in a:
        if name in b and a[name].dtype.kind == "f" and not name.endswith("_error"):
            scale = float(np.abs(b[name]).max())
            if scale > 0:
                result[name] = float(np.abs(a[name].astype(np.float64) - b[name]).max()) / scale
    return result


def in_float32(run):
    """Make a run on the reference compute in float32: its weights, and the observations it is given."""
    learned = next(
        getattr(run.learner, name) for name in ("state", "network", "learner") if hasattr(run.learner, name)
    )
    for field in dataclasses.fields(learned):
        value = getattr(learned, field.name)
        if isinstance(value, np.ndarray) and value.dtype == np.float64 and not field.name.endswith("_error"):
            setattr(learned, field.name, value.astype(np.float32))
    as_float64 = run._dense
    run._dense = lambda active: as_float64(active).astype(np.float32)
    return run


def assert_as_close_as_float32(env, config, steps, seed=5, factor=10.0):
    """Run the reference, the reference in float32 and the CPU engine; returns the states of the outer two."""
    truth, coarse, cpu = (open_run(env, config, seed, e) for e in ("reference", "reference", "cpu"))
    expected = truth.advance(steps)
    in_float32(coarse).advance(steps)
    assert cpu.advance(steps) == pytest.approx(expected, rel=1e-12)
    right, mine = truth.state(), cpu.state()
    for name in ("states", "action", "step", "action_counts"):
        np.testing.assert_array_equal(right[name], mine[name], err_msg=name)
    assert right["active"].tolist() == mine["active"].tolist()
    computed = coarse.state()
    assert computed[next(name for name in computed if name.endswith("_momentum"))].dtype == np.float32
    rounding = distance(computed, right, config)
    for name, error in distance(mine, right, config).items():
        assert error <= factor * max(rounding[name], 1e-7), (name, error, rounding[name])
    return right, mine


def assert_same_selections(right, mine):
    for name in ("inputs", "cumulants", "input_swaps", "cumulant_swaps", "weights_touched"):
        np.testing.assert_array_equal(right[name], mine[name], err_msg=name)
    np.testing.assert_allclose(right["answer_error"], mine["answer_error"], rtol=1e-4)
    np.testing.assert_allclose(right["main_error"], mine["main_error"], rtol=1e-4)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_recorded_stream_of_nibbler_equals_the_reference(variant):
    config = dataclasses.replace(NIBBLER, **VARIANTS[variant])
    right, mine = assert_as_close_as_float32(boards(), config, 1200)
    assert right["input_swaps"].sum() > 0
    assert right["cumulant_swaps"] > 0
    assert_same_selections(right, mine)


@pytest.mark.parametrize("make_env", [varied, garnets], ids=["heterogeneous", "garnet"])
def test_any_environment_runs_as_on_the_reference(make_env):
    config = dataclasses.replace(NIBBLER, inputs_per_question=10)
    assert_same_selections(*assert_as_close_as_float32(make_env(), config, 800))


@pytest.mark.parametrize("network", NETWORKS)
def test_a_recorded_stream_of_a_flat_learner_equals_the_reference(network):
    right, mine = assert_as_close_as_float32(boards(), NETWORKS[network], 1200)
    assert right["weights_touched"] == mine["weights_touched"]
    assert right["value_error"] == pytest.approx(float(mine["value_error"]), rel=1e-4)


@pytest.mark.parametrize("config", [NIBBLER.replace(inputs_per_question=100), NETWORKS["q-learning"]])
def test_rows_untouched_for_longer_than_any_table_of_powers_decay_alike(config):
    # A ball arrives once in some thousand steps, and most bits are off all the while.
    env = multi_catch(2, seed=1, p_arrival=0.0002)
    truth, cpu = open_run(env, config, 5, "reference"), open_run(env, config, 5, "cpu")
    truth.advance(300)
    state = truth.state()
    state["hidden_momentum"] = np.random.default_rng(0).normal(size=state["hidden_momentum"].shape)
    state["hidden_touched"] = np.zeros_like(state["hidden_touched"])
    state["step"] = np.array(70_000)  # as if no row had been touched for 70,000 steps
    expected = settled(state, config)
    cpu.restore(state)
    cpu.advance(1)
    moved = distance(cpu.state(), expected, config)
    assert (
        moved["hidden_weights"] < 0.05
    )  # one step of learning; a momentum that had not decayed moves them by 1
    cpu.restore(expected)
    cpu.advance(40)
    truth.restore(expected)
    truth.advance(40)
    assert max(distance(cpu.state(), truth.state(), config).values()) < 1e-4


# -- one injected step: every weight, utility and selection random, so that every box has something to do --


def injected(env, config, seed):
    """A state with random weights everywhere, in the middle of a run."""
    run = open_run(env, config, seed, "reference")
    run.advance(37)
    random = np.random.default_rng(seed)
    state = run.state()
    for name, value in state.items():
        if value.dtype.kind == "f" and value.ndim and not name.endswith("_error"):
            state[name] = random.normal(scale=0.3, size=value.shape).astype(np.float32).astype(np.float64)
    return state


BOXES = {
    "update_main": ("main_v_base", "main_v_hidden", "main_q_base", "main_q_hidden"),
    "update_answers": ("hidden_weights", "hidden_momentum", "answer_v", "answer_q"),
    "select_inputs": ("support", "inputs", "input_swaps"),
    "select_cumulants": ("discovery", "cumulants", "cumulant_swaps"),
}


@pytest.mark.parametrize("variant", ["default", "random swaps", "bias", "linear momentum"])
@pytest.mark.parametrize("seed", range(8))
def test_one_injected_step_equals_the_reference_box_by_box(variant, seed):
    env, config = boards(), dataclasses.replace(NIBBLER, **VARIANTS[variant])
    state = injected(env, config, seed)
    runs = [open_run(env, config, seed, engine) for engine in ("reference", "cpu")]
    for run in runs:
        run.restore(state)
        run.advance(1)
    right, mine = (settled(run.state(), config) for run in runs)
    assert not np.array_equal(right["inputs"], state["inputs"])  # random utilities: a swap in every list
    assert not np.array_equal(right["cumulants"], state["cumulants"])
    for box, names in BOXES.items():
        for name in names:
            np.testing.assert_allclose(
                right[name], mine[name], rtol=2e-6, atol=2e-6, err_msg=f"{box}: {name}"
            )


# -- stop and go --

GREEDY = {
    "nibbler": NIBBLER.replace(epsilon=0.1),
    "nibbler, bias, random": NIBBLER.replace(epsilon=0.1, hidden_bias=True, swapped_input="random"),
    "nibbler, linear momentum": NIBBLER.replace(epsilon=0.1, linear_momentum=0.9),
    "q-learning": QLearningConfig(hidden_units=40),
    "q-learning, long rows": QLearningConfig(hidden_units=STRETCH + 30),
    "qv-learning": QVLearningConfig(hidden_units=33),
    "known-structure": KnownStructureConfig(hidden_units=16),
    "linear": LinearConfig(),
    "planner": PlannerConfig(),
    "random": RandomConfig(),
}


@pytest.mark.parametrize("agent", GREEDY)
def test_stopping_and_the_sizes_of_chunks_change_no_bit(agent):
    env, config = multi_catch(3, seed=0), GREEDY[agent]
    whole, parts = open_run(env, config, 3, "cpu"), open_run(env, config, 3, "cpu")
    rewards = whole.advance_bins(8, 250)
    earned = [parts.advance(steps) for steps in (1, 249, 250, 137)]
    resumed = open_run(env, config, 3, "cpu")
    resumed.restore(parts.state())
    earned += [resumed.advance(steps) for steps in (113, 1250)]
    assert sum(earned) == rewards.sum()
    left, right = whole.state(), resumed.state()
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_array_equal(left[name], right[name], err_msg=name)


def test_memory_at_128_boards_stays_under_150_mb():
    run = open_run(multi_catch(128, seed=0), "nibbler", 0, "cpu")
    run.advance(20)
    assert sum(value.nbytes for value in run.state().values()) < 150e6


def test_greedy_runs_agree_with_the_reference_in_distribution():
    """Early learning on one board, where both engines choose for themselves: mean reward over 24 seeds."""
    env, config = multi_catch(1, seed=0), QLearningConfig(hidden_units=16, step_size=0.05)
    means = {
        engine: np.array([open_run(env, config, seed, engine).advance(1500) / 1500 for seed in range(24)])
        for engine in ("reference", "cpu")
    }
    difference = means["reference"].mean() - means["cpu"].mean()
    spread = np.sqrt(sum(values.var(ddof=1) / len(values) for values in means.values()))
    assert abs(difference) < 4 * spread
