"""What only a GPU can show: that Rainbow there is the same as on the CPU, and keeps its memory apart.

The programs take over the memory of the state they are given. If the target network shared any of it, it
would change with the network, and nothing would fail but learning. One config with layers of full size
serves all tests, so that each program compiles once for the GPU and once for the CPU.
"""

from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest

from nibbler.agents.rainbow import RainbowConfig
from nibbler.engines.jax import open_packed_runs, open_run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(jax.default_backend() != "gpu", reason="JAX sees no GPU here"),
]

# First update after 32 steps, then every 4; the target network is renewed every 40.
CONFIG = RainbowConfig(
    discount=0.5,
    value_bound=3.0,
    noise_scale=0.5,
    learning_rate=0.0005,
    target_period=40,
    replay_capacity=300,
    min_replay=30,
    importance_steps=2_000,
)


def close(one, other):
    """Equal but for rounding: on the CPU, packed and single runs are within 2e-6 after 140 steps."""
    assert one.keys() == other.keys()
    for name in one:
        tolerance = {"rtol": 1e-3, "atol": 1e-4} if one[name].dtype.kind == "f" else {"rtol": 0}
        np.testing.assert_allclose(one[name], other[name], err_msg=name, **tolerance)


def pointers(parts):
    return [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(parts)]


def on_the_cpu():
    return jax.default_device(jax.devices("cpu")[0])


@pytest.fixture(scope="module", autouse=True)
def compiled(matching):
    """Compile all programs side by side: together they would take longer than the tests."""

    def single():
        run = open_run(matching, CONFIG, 0)
        for steps in (35, 1, 4):  # steps alone, an update alone, a cycle of both
            run.advance(steps)

    def on_cpu():
        with on_the_cpu():
            open_run(matching, CONFIG, 0).advance(40)

    def packed():
        open_packed_runs([(matching, CONFIG, seed) for seed in range(3)]).advance_bins(1, 40)

    with ThreadPoolExecutor() as threads:
        for done in [threads.submit(work) for work in (single, on_cpu, packed)]:
            done.result()


def test_a_run_on_the_gpu_follows_the_same_run_on_the_cpu(matching):
    """140 steps have 28 updates and three copies of the network; the cuts fall between updates."""
    here = open_run(matching, CONFIG, 3)
    assert {device.platform for device in here._packed._state.action.devices()} == {"gpu"}
    earned = sum(here.advance(steps) for steps in (1, 34, 6, 41, 38, 2, 18))
    with on_the_cpu():
        there = open_run(matching, CONFIG, 3)
        assert there.advance(140) == earned
        assert {device.platform for device in there._packed._state.action.devices()} == {"cpu"}
        close(here.state(), there.state())


def test_the_target_network_has_memory_of_its_own_and_stays_until_it_is_renewed(matching):
    run = open_run(matching, CONFIG, 0)
    for end in (20, 36, 40, 44, 76, 80):  # before learning, before and after each renewal
        run.advance(end - run.step)
        state = run._packed._state
        places = pointers((state.network, state.target_network, state.adam))
        assert len(set(places)) == len(places), end
    renewed = run.state()
    names = [name for name in renewed if name.startswith("network_")]
    for name in names:
        np.testing.assert_array_equal(renewed["target_" + name], renewed[name], err_msg=name)
    run.advance(36)
    later = run.state()
    for name in names:
        np.testing.assert_array_equal(later["target_" + name], renewed[name], err_msg=name)
    assert all((later[name] != renewed[name]).any() for name in names)


def test_renewing_the_target_network_leaves_the_network_as_it_is(matching):
    run = open_run(matching, CONFIG, 0)
    run.advance(36)
    before = run.state()
    run.advance(4)  # an update, and then the copy
    after = run.state()
    for name in (name for name in after if name.startswith("network_")):
        moved = np.abs(after[name] - before[name]).max()
        assert 0 < moved <= 1.1 * CONFIG.learning_rate, name  # one step of Adam


def test_learning_on_the_gpu_goes_as_on_the_cpu(matching):
    """Rounding may change an action now and then; what is learned is the same."""
    here = open_run(matching, CONFIG, 2).advance_bins(4, 250) / 250
    with on_the_cpu():
        there = open_run(matching, CONFIG, 2).advance_bins(4, 250) / 250
    np.testing.assert_allclose(here, there, atol=0.1)
    assert here[0] < 0.8  # chance is 1/3
    assert here[-1] > 0.95


def test_a_resumed_run_on_the_gpu_equals_one_that_never_stopped(matching):
    whole = open_run(matching, CONFIG, 5)
    whole.advance(120)
    first = open_run(matching, CONFIG, 5)
    first.advance(60)
    second = open_run(matching, CONFIG, 5)
    second.restore(first.state())
    second.advance(60)
    expected = whole.state()
    for name, value in second.state().items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)


def test_packed_runs_on_the_gpu_follow_single_ones_and_keep_their_target_networks(matching):
    packed = open_packed_runs([(matching, CONFIG, seed) for seed in range(3)])
    sums = packed.advance_bins(3, 40)
    places = pointers((packed._state.network, packed._state.target_network, packed._state.adam))
    assert len(set(places)) == len(places)
    renewed = [packed.state(seed) for seed in range(3)]
    for seed in range(3):
        alone = open_run(matching, CONFIG, seed)
        np.testing.assert_array_equal(alone.advance_bins(3, 40), sums[seed])
        close(renewed[seed], alone.state())
    packed.advance_bins(1, 36)
    for seed in range(3):
        later = packed.state(seed)
        for name in (name for name in later if name.startswith("network_")):
            np.testing.assert_array_equal(later["target_" + name], renewed[seed][name], err_msg=name)
