"""Nibbler learns as the paper says: a statistical test on the smallest problem, about a minute."""

import numpy as np
import pytest

from nibbler.engines.run import train
from nibbler.envs.multi_catch import multi_catch


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_two_boards_cross_zero_between_one_and_two_million_steps_and_hold(seed):
    result = train(multi_catch(2, seed=0), "nibbler", 3_600_000, seed, "cpu", bin_size=20_000)
    smooth = np.convolve(result.rewards, np.ones(5) / 5, mode="valid")  # over 100,000 steps
    ends = (np.arange(len(smooth)) + 5) * 20_000
    crossed = ends[np.flatnonzero(smooth < 0.0)[-1] + 1]  # from here on it stays at or above zero
    assert 1_000_000 <= crossed <= 2_200_000
    assert smooth[ends > 3_000_000].min() > 0.04
