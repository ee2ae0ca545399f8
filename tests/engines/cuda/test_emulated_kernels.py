"""The CUDA kernels without a GPU: their sources, compiled for this processor, against the reference.

emulator.h runs every GPU thread as a fiber and can do so in any order, so these tests also find a missing
barrier: without it, the order shows in the bits.
"""

import dataclasses
import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import nibbler
from nibbler.agents.config import NibblerConfig, QLearningConfig, QVLearningConfig
from nibbler.agents.registry import default_config
from nibbler.bench import cuda as bench
from nibbler.engines import cuda
from nibbler.engines.cuda import device
from nibbler.engines.cuda.network_runs import NetworkRuns
from nibbler.engines.cuda.nibbler_runs import NibblerRuns
from nibbler.engines.cuda.packed import PackedRuns
from nibbler.engines.cuda.plan import NetworkPlan, NibblerPlan
from nibbler.engines.run import choose_engine, open_run
from nibbler.engines.settle import settled
from nibbler.envs.multi_catch import multi_catch
from nibbler.studies.runners import run_study
from nibbler.studies.spec import RunSpec, Study
from nibbler.studies.store import ResultsFolder

from . import emulated_cupy

pytestmark = pytest.mark.skipif(
    not emulated_cupy.WORKS_HERE, reason="needs a C++ compiler on Linux and x86-64"
)
STEPS = 200
NIBBLER = NibblerConfig(num_questions=5, inputs_per_question=20, hidden_units=40, epsilon=1.0, kappa=0.02)
CONFIGS = {
    "nibbler": NIBBLER,
    "another reading": dataclasses.replace(
        NIBBLER, hidden_bias=True, linear_momentum=0.9, swapped_input="random", changed_question="keep"
    ),
    "q": QLearningConfig(hidden_units=40, epsilon=1.0, step_size=0.01),
    "qv": QVLearningConfig(hidden_units=70, epsilon=1.0, step_size=0.01),
}
PLANS = {  # ways to lay out the same run: questions per block, warps of questions, main, discovery
    "one block": NibblerPlan(5, 1, 1, 1),
    "several blocks and warps": NibblerPlan(2, 2, 3, 2),
    "a small pool": NibblerPlan(3, 1, 2, 1, max_pool_rows=2, batch=2),
    "discovery apart": NibblerPlan(2, 1, 1, 2, discovery_apart=1),
    "support in global memory": NibblerPlan(
        3, 1, 1, 1, support_shared=0, discovery_shared=0, q_momentum_shared=0
    ),
    "support in global memory, discovery apart": NibblerPlan(3, 2, 2, 1, support_shared=0, discovery_apart=1),
}
NETWORK_PLANS = {
    "several blocks": NetworkPlan(32, 4, 1, max_pool_rows=4),
    "many groups": NetworkPlan(80, 8, 2, batch=2),
    "groups that share warps": NetworkPlan(48, 8, 3, batch=3, max_pool_rows=9),
}


@pytest.fixture(autouse=True)
def without_a_gpu(monkeypatch):
    emulated_cupy.pretend(monkeypatch)
    yield
    emulated_cupy.ORDER.of_threads = 0
    device.compile_kernel.cache_clear()


@pytest.fixture(scope="module")
def env():
    return multi_catch(3, seed=1)


def packed_run(env, config, plan=None, seed=5):
    kind = NibblerRuns if isinstance(config, NibblerConfig) else NetworkRuns
    packed = kind([(env, config, seed)], plan)
    packed.restore(0, cuda.initial_state(env, config, seed))
    return packed


def assert_equals_the_reference(packed, env, config, steps=STEPS):
    reference, cpu = open_run(env, config, 5, "reference"), open_run(env, config, 5, "cpu")
    rewards = [reference.advance(steps), cpu.advance(steps), packed.advance_bins(1, steps)[0, 0]]
    assert rewards[0] == pytest.approx(rewards[2], rel=1e-12)
    truth, rounded, mine = reference.state(), cpu.state(), packed.state(0)
    if isinstance(config, NibblerConfig):
        assert truth["input_swaps"].sum() > 50
        assert truth["cumulant_swaps"] > 5
    for name, value in truth.items():
        if value.dtype.kind != "f" and not name.endswith("_touched"):  # which rows lag is an engine's own
            np.testing.assert_array_equal(mine[name], value, err_msg=name)
    truth, rounded, mine = (settled(state, config) for state in (truth, rounded, mine))
    for name, value in truth.items():
        if value.dtype.kind == "f":
            scale = np.abs(value).max()
            rounding = max(np.abs(rounded[name] - value).max(), np.finfo(np.float32).eps * scale)
            assert np.abs(mine[name] - value).max() <= 10 * rounding, name


def equal_bits(one, other):
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


@pytest.mark.parametrize("name", CONFIGS)
def test_the_kernels_equal_the_reference(env, name):
    config = CONFIGS[name]
    assert_equals_the_reference(packed_run(env, config), env, config)


@pytest.mark.parametrize("name", PLANS)
def test_every_plan_computes_the_same_run(env, name):
    assert_equals_the_reference(packed_run(env, NIBBLER, PLANS[name]), env, NIBBLER)


def test_a_selected_last_feature_ends_the_search_of_a_block_that_is_not_full(env):
    config = dataclasses.replace(NIBBLER, inputs_per_question=130)
    assert env.num_features % 64
    packed = packed_run(env, config)
    assert (packed.state(0)["inputs"] == env.num_features - 1).any()
    assert_equals_the_reference(packed, env, config)


def test_far_support_weights_are_searched_in_many_blocks_of_features():
    env = multi_catch(40, seed=1)  # 35 blocks, more than a warp has lanes
    assert env.num_features > 32 * 64
    packed = packed_run(env, NIBBLER, PLANS["support in global memory, discovery apart"])
    assert_equals_the_reference(packed, env, NIBBLER)


@pytest.mark.parametrize("name", NETWORK_PLANS)
def test_every_plan_of_a_network_computes_the_same_run(env, name):
    assert_equals_the_reference(packed_run(env, CONFIGS["qv"], NETWORK_PLANS[name]), env, CONFIGS["qv"])


@pytest.mark.parametrize(
    "name, plan",
    [
        ("nibbler", PLANS["several blocks and warps"]),
        ("another reading", PLANS["several blocks and warps"]),
        ("nibbler", PLANS["support in global memory"]),
        ("another reading", PLANS["support in global memory"]),
        ("qv", None),
        ("qv", NETWORK_PLANS["groups that share warps"]),
    ],
)
def test_the_order_of_the_threads_changes_no_bit(env, name, plan):
    whole = state_in_order(env, CONFIGS[name], 0, 40, plan)
    for order in (1, 2, 3):
        equal_bits(state_in_order(env, CONFIGS[name], order, 40, plan), whole)


@pytest.mark.parametrize("name", ["nibbler", "q"])
def test_stopping_packing_and_moving_change_no_bit(env, name):
    config = CONFIGS[name]
    whole = packed_run(env, config)
    whole.advance_bins(1, 50)
    first, second = packed_run(env, config), packed_run(env, config)
    first.advance_bins(1, 20)
    second.restore(0, first.state(0))
    second.advance_bins(3, 10)
    equal_bits(second.state(0), whole.state(0))
    together = cuda.open_packed_runs([(env, config, seed) for seed in (4, 5)])
    together.advance_bins(1, 50)
    equal_bits(together.state(1), whole.state(0))


def test_sums_of_errors_do_not_depend_on_how_steps_are_cut_into_launches(env):
    for config, names in ((NIBBLER, ("answer_error", "main_error")), (CONFIGS["q"], ("value_error",))):
        states = []
        for launches in (1, 4):
            packed = packed_run(env, config)
            long_ago = packed.state(0)
            for name in names:  # large, so that every addition rounds
                long_ago[name] = np.full_like(long_ago[name], 1e9 / 3)
            packed.restore(0, long_ago)
            for _ in range(launches):
                packed.advance_bins(1, 40 // launches)
            states.append(packed.state(0))
        equal_bits(*({name: state[name] for name in names} for state in states))


def test_a_checkpoint_of_the_cpu_goes_on_in_the_kernels(env):
    cpu, reference = open_run(env, NIBBLER, 5, "cpu"), open_run(env, NIBBLER, 5, "reference")
    cpu.advance(60)
    packed = packed_run(env, NIBBLER)
    packed.restore(0, cpu.state())
    packed.advance_bins(1, 40)
    reference.advance(100)
    mine, truth = settled(packed.state(0), NIBBLER), settled(reference.state(), NIBBLER)
    for name in ("hidden_weights", "support", "main_q_hidden"):
        np.testing.assert_allclose(mine[name], truth[name], atol=2e-5 * np.abs(truth[name]).max())


def test_train_stops_and_goes_on_exactly(env, tmp_path):
    options = {"agent": CONFIGS["q"], "seed": 2, "engine": "cuda", "bin_size": 20}
    whole = nibbler.train(env, steps=100, **options)
    nibbler.train(env, steps=40, checkpoint=tmp_path / "run", **options)
    again = nibbler.train(env, steps=100, checkpoint=tmp_path / "run", **options)
    np.testing.assert_array_equal(again.rewards, whole.rewards)
    assert again.record["engine"] == "cuda"


def test_a_study_on_the_gpu_runner_has_the_curves_of_runs_alone(tmp_path):
    agent = {"name": "nibbler", "num_questions": 3, "inputs_per_question": 12, "hidden_units": 32}
    catch = {"name": "multi_catch", "num_boards": 2}
    specs = tuple(RunSpec(catch, agent, 100, seed, "cuda", 50) for seed in range(3))
    beside = RunSpec(catch, {"name": "q-learning", "hidden_units": 32}, 100, 0, "cuda", 50)
    outcome = run_study(Study("emulated", "smoke", (*specs, beside)), tmp_path, runner="gpu", workers=1)
    assert outcome.complete
    env = multi_catch(2)
    settings = {key: value for key, value in agent.items() if key != "name"}
    config = default_config("nibbler", 2, env.num_features, **settings)
    for spec in specs:
        alone = open_run(env, config, spec.seed, "cuda")
        curve = pq.read_table(ResultsFolder(tmp_path).run(spec).path / "curve.parquet").to_pydict()
        np.testing.assert_allclose(curve["reward"], alone.advance_bins(2, 50) / 50)


def test_a_study_looks_inside_without_the_whole_state(env, tmp_path, monkeypatch):
    downloads = []
    whole = PackedRuns.state
    monkeypatch.setattr(PackedRuns, "state", lambda *args: downloads.append(args) or whole(*args))
    catch = {"name": "multi_catch", "num_boards": 2}
    agents = ({"name": "nibbler", "num_questions": 3, "hidden_units": 32}, {"name": "q-learning"})
    specs = [RunSpec(catch, agent, 100, 0, "cuda", 10) for agent in agents]
    assert run_study(Study("inside", "smoke", tuple(specs)), tmp_path, runner="gpu", workers=1).complete
    assert len(downloads) == len(specs)  # for the checkpoint at the end
    taken = ResultsFolder(tmp_path).run(specs[0]).snapshots()
    assert len(taken.steps) > 8
    packed = packed_run(env, NIBBLER)
    packed.advance_bins(1, 50)
    state = packed.state(0)
    part = packed.snapshot(0)
    assert part["input_swaps"].sum() > 0
    equal_bits(part, {name: state[name] for name in part})


def test_512_boards_fit_on_the_chip_and_1024_are_refused(monkeypatch):
    monkeypatch.setitem(emulated_cupy.Device.attributes, "MultiProcessorCount", 132)
    config = NibblerConfig.for_boards(512)
    packed = NibblerRuns([(multi_catch(512), config, 0)])
    assert packed.kernel.shared_bytes <= emulated_cupy.Device.attributes["MaxSharedMemoryPerBlockOptin"]
    with pytest.raises(ValueError, match=r"2048 questions .* are too many .*; use engine='cpu'"):
        NibblerRuns([(multi_catch(1024), NibblerConfig.for_boards(1024), 0)])


@pytest.mark.parametrize(
    "name, plan, blocks",
    [
        ("nibbler", NibblerPlan(1, 2, 1, 1), 2),
        ("nibbler", NibblerPlan(2, 1, 1, 1, discovery_apart=1), 3),
        ("qv", NetworkPlan(32, 4, 1), 2),
    ],
)
def test_a_small_gpu_has_fewer_and_fuller_blocks(env, monkeypatch, name, plan, blocks):
    monkeypatch.setitem(emulated_cupy.Device.attributes, "MultiProcessorCount", blocks)
    packed = packed_run(env, CONFIGS[name], plan)
    assert packed.blocks == blocks
    assert_equals_the_reference(packed, env, CONFIGS[name])


def test_what_a_gpu_has_no_room_for_is_refused_before_it_waits_for_ever(env, monkeypatch):
    monkeypatch.setitem(emulated_cupy.Device.attributes, "MultiProcessorCount", 1)
    many = dataclasses.replace(NIBBLER, num_questions=13)
    with pytest.raises(ValueError, match=r"13 questions on 168 features .* too few multiprocessors"):
        packed_run(env, many)
    monkeypatch.setitem(emulated_cupy.Device.attributes, "MaxSharedMemoryPerBlockOptin", 2_000)
    device.compile_kernel.cache_clear()
    with pytest.raises(ValueError, match=r"70 hidden units on 168 features .* too little shared memory"):
        packed_run(env, CONFIGS["qv"])


def test_an_old_gpu_is_left_alone(env, monkeypatch):
    assert choose_engine("nibbler") == "cuda"
    monkeypatch.setattr(emulated_cupy.Device, "compute_capability", "75")
    assert choose_engine("nibbler") == "cpu"
    with pytest.raises(RuntimeError, match="compute capability 75, and 80 is needed"):
        open_run(env, NIBBLER, 0, "cuda")


@pytest.mark.parametrize("size", [3, 4096])
def test_going_beyond_an_array_stops_the_process(size):
    beyond = f"""
import ctypes, numpy as np, sys
sys.path.insert(0, {str(Path(emulated_cupy.__file__).parent)!r})
import emulated_cupy
array = emulated_cupy.guarded(np.arange({size}, dtype=np.int32))
assert array.sum() == {size * (size - 1) // 2}
ctypes.string_at(array.ctypes.data, array.nbytes)
print("within", flush=True)
ctypes.string_at(array.ctypes.data + array.nbytes + 16, 4)
print("beyond", flush=True)
"""
    outcome = subprocess.run([sys.executable, "-c", beyond], capture_output=True, text=True, check=False)
    assert outcome.stdout == "within\n"
    assert outcome.returncode == -signal.SIGSEGV


def test_layouts_are_measured_beside_each_other(monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "EARLY", 500)
    monkeypatch.setitem(emulated_cupy.Device.attributes, "MultiProcessorCount", 1)
    lines, path = [], tmp_path / "cuda.json"
    options = {"boards": (1,), "repeats": 1, "units": 32, "echo": lines.append, "output": path}
    bench.run(agent="q-learning", layout=["row_groups=4,batch=2"], **options)
    rows = json.loads(path.read_text())["rows"]
    label = "q-learning, 32 units"
    assert [row["agent"] for row in rows] == [label, f"{label} (row_groups=4,batch=2)"]
    assert [len(line.split("|")) for line in lines] == [9] * 4
    assert all(row["microseconds_per_step"] > 0 for row in rows)
    assert "1 blocks of 160 threads" in rows[0]["layout"]
    assert "1 blocks of 96 threads" in rows[1]["layout"]


@pytest.mark.parametrize(
    "options, message",
    [
        (
            {"layout": ["main_warps=2,row_groups=2"]},
            "the fields of a layout of nibbler are batch, blocks_per_sm",
        ),
        ({"layout": ["main_warps"]}, "'main_warps' in layout 'main_warps' is not FIELD=NUMBER"),
        ({"agent": "rainbow"}, "agent must be one of nibbler, q-learning, qv-learning, not 'rainbow'"),
        ({"units": 0}, "units must be at least 1"),
    ],
)
def test_a_layout_that_there_is_not_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        bench.run(**options)


def test_a_layout_that_does_not_fit_is_not_measured_under_its_name(monkeypatch):
    monkeypatch.setitem(emulated_cupy.Device.attributes, "MultiProcessorCount", 1)
    with pytest.raises(
        ValueError, match="'block_units=32' does not fit on this device; the nearest is NetworkPlan"
    ):
        bench.run(boards=(1,), repeats=1, agent="q-learning", units=64, layout=["block_units=32"])


def broken(monkeypatch, old, new):
    """Kernels with a mistake in them."""
    plain = device.source_of

    def source(name):
        text = plain(name)
        assert text.count(old) == 1
        return text.replace(old, new)

    monkeypatch.setattr(device, "source_of", source)
    device.compile_kernel.cache_clear()


def test_a_barrier_that_not_all_reach_is_an_error(env, monkeypatch):
    decide = "decide((i + 1) & 1);\n"
    broken(monkeypatch, f"{decide}    barrier_2();", decide)
    with pytest.raises(RuntimeError, match="wait for each other for ever"):
        packed_run(env, NIBBLER).advance_bins(1, 5)


def test_a_missing_barrier_shows_in_the_bits(env, monkeypatch):
    """Here the main warps read the questions' sums before the barrier that these are written for."""
    barrier = "    barrier_1();\n\n    // the meeting"
    broken(monkeypatch, barrier, "    // the meeting")
    later = "    const int explored = exploring;\n"
    broken(monkeypatch, later, later + "    barrier_1();\n")
    states = [state_in_order(env, NIBBLER, order, 10) for order in (0, 1)]
    assert not np.array_equal(states[0]["main_q_hidden"], states[1]["main_q_hidden"])


def test_a_missing_barrier_between_a_read_and_a_write_shows_in_the_bits(env, monkeypatch):
    """Here a thread reads a weight, another draws it anew, and the first writes back what it read."""
    config = dataclasses.replace(NIBBLER, swapped_input="random")
    whole = state_in_order(env, config, 0, 100)
    barrier = "        question_sync(q);  // a thread draws for others"
    broken(monkeypatch, barrier, "        // a thread draws for others")
    states = (state_in_order(env, config, order, 100) for order in (2, 3, 4))
    assert any(not np.array_equal(whole["hidden_weights"], state["hidden_weights"]) for state in states)


def test_rows_that_are_used_before_they_have_come_show_in_the_numbers(env, monkeypatch):
    whole = state_in_order(env, CONFIGS["q"], 0, 5)
    wait, use = "  await_copies();\n", "  add_newcomers<SOME_FAR>(rows, newcomers, z_next);\n"
    broken(monkeypatch, wait + use, use + wait)
    assert not np.array_equal(whole["head_q"], state_in_order(env, CONFIGS["q"], 0, 5)["head_q"])


def state_in_order(env, config, order, steps, plan=None):
    """The state after some steps with the threads in an order of emulator.h."""
    emulated_cupy.ORDER.of_threads = order
    packed = packed_run(env, config, plan)
    packed.advance_bins(1, steps)
    return packed.state(0)
