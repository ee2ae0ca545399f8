"""What only a GPU can show: that Rainbow there follows the same run on the CPU."""

import jax
import numpy as np
import pytest

from nibbler.engines.jax import open_packed_runs, open_run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(jax.default_backend() != "gpu", reason="JAX sees no GPU here"),
]


def close(one, other):
    for name in one:
        np.testing.assert_allclose(one[name], other[name], rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("cuts", [(140,), (1, 34, 6, 41, 38, 2, 18)])
def test_a_run_on_the_gpu_follows_the_same_run_on_the_cpu(small, matching, cuts):
    """140 steps have 27 updates and three copies of the network to the target network."""
    here = open_run(matching, small, 3)
    earned = [here.advance(steps) for steps in cuts]
    with jax.default_device(jax.devices("cpu")[0]):
        there = open_run(matching, small, 3)
        assert [there.advance(steps) for steps in cuts] == earned
        close(there.state(), here.state())


def test_copying_to_the_target_network_leaves_the_network_as_it_is(small, matching):
    run = open_run(matching, small, 0)
    run.advance(36)
    before = run.state()
    run.advance(4)
    after = run.state()
    for name in (name for name in after if name.startswith("network_")):
        np.testing.assert_array_equal(after["target_" + name], after[name])
        assert np.abs(after[name] - before[name]).max() <= 1.1 * small.learning_rate  # one step of Adam


def test_packed_runs_on_the_gpu_follow_single_ones(small, matching):
    packed = open_packed_runs([(matching, small, seed) for seed in range(3)])
    sums = packed.advance_bins(3, 40)
    for seed in range(3):
        alone = open_run(matching, small, seed)
        np.testing.assert_array_equal(alone.advance_bins(3, 40), sums[seed])
        close(packed.state(seed), alone.state())


def test_a_resumed_run_on_the_gpu_equals_one_that_never_stopped(small, matching):
    whole = open_run(matching, small, 5)
    whole.advance(120)
    first = open_run(matching, small, 5)
    first.advance(60)
    second = open_run(matching, small, 5)
    second.restore(first.state())
    second.advance(60)
    expected = whole.state()
    for name, value in second.state().items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)
