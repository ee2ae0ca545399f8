"""The CUDA engine against the reference: the trust ladder of DESIGN section 6 on a GPU.

With epsilon = 1 every engine takes the same actions (they are drawn, not chosen), so a stream of some
thousand steps can be compared weight by weight. The tolerance is not guessed: it is a multiple of the
distance between the float64 reference and a float32 run of the same algorithm on the CPU engine.
"""

import dataclasses

import numpy as np
import pytest

from nibbler.agents.config import NibblerConfig, QLearningConfig, QVLearningConfig
from nibbler.engines import cuda
from nibbler.engines.run import gpu_available, open_run
from nibbler.engines.settle import settled
from nibbler.envs.multi_catch import multi_catch
from nibbler.mdp.classics import garnet
from nibbler.mdp.environment import Environment

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not gpu_available(), reason="needs an NVIDIA GPU and CuPy")]


def small_nibbler(**changes):
    # Large steps, so that inputs and cumulants are swapped many times in the tested stretch.
    config = NibblerConfig(num_questions=6, inputs_per_question=20, hidden_units=48, epsilon=1.0, kappa=0.02)
    return dataclasses.replace(config, **changes)


def environments():
    garnets = [garnet(7, 3, 2, seed=s) for s in range(5)]
    return {
        "two boards": multi_catch(2, seed=1),
        "heterogeneous": multi_catch(3, seed=2, heterogeneous=True),
        "garnet": Environment(garnets, seed=3),
    }


def distance(state, other, config):
    """The largest difference in any weight, relative to the size of its array."""
    a, b = settled(state, config), settled(other, config)
    worst = {}
    for name in a:
        if a[name].dtype.kind == "f" and not name.endswith("_error"):
            scale = float(np.abs(b[name]).max())
            if scale > 0:
                worst[name] = float(np.abs(a[name] - b[name]).max()) / scale
    return worst


def assert_as_close_as_float32(env, config, steps, factor=20.0):
    reference, cpu = open_run(env, config, 5, "reference"), open_run(env, config, 5, "cpu")
    gpu = open_run(env, config, 5, "cuda")
    rewards = [run.advance_bins(1, steps)[0] for run in (reference, cpu, gpu)]
    assert rewards[0] == pytest.approx(rewards[2], rel=1e-12)
    truth, mine = reference.state(), gpu.state()
    for name in ("states", "action", "step", "action_counts"):
        np.testing.assert_array_equal(truth[name], mine[name])
    rounding, difference = distance(cpu.state(), truth, config), distance(mine, truth, config)
    for name, error in difference.items():
        assert error <= factor * max(rounding[name], 1e-6), (name, error, rounding[name])
    return truth, mine


VARIANTS = {
    "default": {},
    "random swaps": {"swapped_input": "random"},
    "kept questions": {"changed_question": "keep"},
    "bias": {"hidden_bias": True},
    "linear momentum": {"linear_momentum": 0.9},
    "thresholds": {"input_threshold": 0.001, "cumulant_threshold": 0.002},
    "odd sizes": {"num_questions": 7, "hidden_units": 33, "inputs_per_question": 11},
    "no momentum": {"momentum": 0.0},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_recorded_stream_of_nibbler_equals_the_reference(variant):
    config = small_nibbler(**VARIANTS[variant])
    truth, mine = assert_as_close_as_float32(multi_catch(2, seed=1), config, 1500)
    assert truth["input_swaps"].sum() > 0
    assert truth["cumulant_swaps"] > 0
    for name in ("inputs", "cumulants", "input_swaps", "cumulant_swaps", "weights_touched"):
        np.testing.assert_array_equal(truth[name], mine[name], err_msg=name)
    np.testing.assert_allclose(truth["answer_error"], mine["answer_error"], rtol=1e-3)


def test_support_weights_in_global_memory_select_as_the_reference_does():
    config = small_nibbler(num_questions=260, inputs_per_question=10, hidden_units=32)
    env = multi_catch(90, seed=1)  # many blocks of features, and so many boards that the discovery warps help
    truth, mine = assert_as_close_as_float32(env, config, 300)
    assert truth["input_swaps"].sum() > 10_000
    for name in ("inputs", "cumulants", "input_swaps", "cumulant_swaps"):
        np.testing.assert_array_equal(truth[name], mine[name], err_msg=name)


@pytest.mark.parametrize("name", ["heterogeneous", "garnet"])
def test_any_environment_runs_as_on_the_reference(name):
    env = environments()[name]
    assert_as_close_as_float32(env, small_nibbler(inputs_per_question=10), 1500)


def test_rows_untouched_for_longer_than_the_table_of_powers_decay_alike():
    # One question over few inputs on boards where a ball arrives once in thousands of steps.
    env = multi_catch(2, seed=1, p_arrival=0.0002)
    assert_as_close_as_float32(env, small_nibbler(inputs_per_question=60), 12_000)


@pytest.mark.parametrize("kind", [QLearningConfig, QVLearningConfig])
@pytest.mark.parametrize(
    "changes", [{}, {"hidden_bias": True}, {"hidden_units": 600}, {"hidden_units": 1100}]
)
def test_a_recorded_stream_of_a_flat_network_equals_the_reference(kind, changes):
    config = kind(**{"hidden_units": 40, "epsilon": 1.0, "step_size": 0.01, **changes})
    truth, mine = assert_as_close_as_float32(multi_catch(2, seed=1), config, 1500)
    assert truth["weights_touched"] == mine["weights_touched"]


GREEDY = {
    "nibbler": small_nibbler(epsilon=0.1),
    "q-learning": QLearningConfig(hidden_units=40),
    "qv-learning": QVLearningConfig(hidden_units=1100),
}


def assert_same_bits(state, other):
    assert state.keys() == other.keys()
    for name in state:
        np.testing.assert_array_equal(state[name], other[name], err_msg=name)


@pytest.mark.parametrize("agent", GREEDY)
def test_stopping_and_going_on_changes_no_bit(agent):
    env, config = multi_catch(4, seed=0), GREEDY[agent]
    whole, parts = open_run(env, config, 3, "cuda"), open_run(env, config, 3, "cuda")
    rewards = whole.advance_bins(12, 250)
    first = parts.advance_bins(3, 250)
    resumed = open_run(env, config, 3, "cuda")
    resumed.restore(parts.state())
    np.testing.assert_array_equal(rewards, np.concatenate([first, resumed.advance_bins(9, 250)]))
    assert_same_bits(whole.state(), resumed.state())


@pytest.mark.parametrize("agent", GREEDY)
def test_packed_runs_equal_the_same_runs_alone(agent):
    envs = [multi_catch(4, seed=0), multi_catch(4, seed=9)]
    configs = [GREEDY[agent], dataclasses.replace(GREEDY[agent], epsilon=0.3, discount=0.9, momentum=0.5)]
    problems = [(env, config, seed) for env in envs for config in configs for seed in (1, 2**40 + 7)]
    packed = cuda.open_packed_runs(problems)
    rewards = packed.advance_bins(4, 300)
    assert len({tuple(row) for row in rewards}) == len(problems)
    for index, (env, config, seed) in enumerate(problems):
        alone = open_run(env, config, seed, "cuda")
        np.testing.assert_array_equal(alone.advance_bins(4, 300), rewards[index])
        assert_same_bits(alone.state(), packed.state(index))


@pytest.mark.parametrize("agent", GREEDY)
@pytest.mark.parametrize("way", [("cpu", "cuda"), ("cuda", "cpu")])
def test_a_checkpoint_moves_between_cpu_and_gpu(agent, way):
    env, config = multi_catch(3, seed=0), dataclasses.replace(GREEDY[agent], epsilon=1.0)
    begun = open_run(env, config, 3, way[0])
    begun.advance(700)
    moved = open_run(env, config, 3, way[1])
    moved.restore(begun.state())
    moved.advance(700)
    truth = open_run(env, config, 3, "reference")
    truth.advance(1400)
    state, expected = moved.state(), truth.state()
    np.testing.assert_array_equal(state["states"], expected["states"])
    errors = distance(state, expected, config)
    assert max(errors.values()) < 2e-3, errors  # measured: float32 on either engine stays under 2e-4 here


def test_a_run_repeats_itself_bit_for_bit():
    env = multi_catch(40, seed=0)
    config = NibblerConfig.for_boards(40)
    states = []
    for _ in range(2):
        run = open_run(env, config, 1, "cuda")
        run.advance(3000)
        states.append(run.state())
    assert_same_bits(*states)


def test_what_cannot_share_a_launch_is_refused():
    env = multi_catch(2, seed=0)
    with pytest.raises(ValueError, match="different shapes"):
        cuda.open_packed_runs([(env, small_nibbler(), 0), (env, small_nibbler(hidden_units=32), 0)])
