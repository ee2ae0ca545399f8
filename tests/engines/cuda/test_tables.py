"""The device's tables of outcomes, without a device: drawing from them equals drawing from our tables."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nibbler.engines.cuda.tables import LINK, OUTCOMES, REWARDED, outcome_blocks
from nibbler.envs.multi_catch import multi_catch
from nibbler.mdp.classics import garnet
from nibbler.mdp.environment import Environment

ENVIRONMENTS = (
    multi_catch(2),
    multi_catch(3, heterogeneous=True),
    Environment([garnet(40, 2, 30, seed=1)]),
    Environment([garnet(100, 2, 70, seed=1)]),
)


def drawn_from_blocks(blocks, rewards, row, word):
    """What environment.cuh does with a row and a word: next state and reward."""
    block = row
    while True:
        thresholds, next_states = blocks[block].T.astype(np.int64)
        k = int((word >= thresholds[: OUTCOMES - 1]).sum())
        if not next_states[k] & LINK:
            reward = rewards[block, k] if next_states[k] & REWARDED else 0.0
            return next_states[k] & (LINK - 1), reward
        block = next_states[k] & (LINK - 1)


def drawn_from_tables(tables, row, word):
    """The rule of nibbler.mdp.simulate."""
    start, end = tables.outcome_start[row], tables.outcome_start[row + 1]
    k = start
    while k < end - 1 and word >= tables.threshold[k]:
        k += 1
    return tables.next_state[k], tables.reward[k]


@given(st.sampled_from(ENVIRONMENTS), st.data())
def test_every_word_draws_the_same_outcome_from_the_blocks(env, data):
    tables = env.tables
    blocks, rewards = outcome_blocks(tables)
    row = data.draw(st.integers(0, tables.outcome_start.size - 2))
    near = tables.threshold[tables.outcome_start[row] : tables.outcome_start[row + 1]].astype(np.int64)
    words = [
        0,
        2**32 - 1,
        *(int(t) + d for t in near for d in (-1, 0, 1)),
        data.draw(st.integers(0, 2**32 - 1)),
    ]
    for word in words:
        if 0 <= word < 2**32:
            assert drawn_from_blocks(blocks, rewards, row, word) == drawn_from_tables(tables, row, word)


@pytest.mark.parametrize("env, trips", [(ENVIRONMENTS[0], 2), (ENVIRONMENTS[2], 2), (ENVIRONMENTS[3], 3)])
def test_long_rows_are_trees(env, trips):
    tables = env.tables
    assert OUTCOMES ** (trips - 1) < np.diff(tables.outcome_start).max() <= OUTCOMES**trips
    blocks, rewards = outcome_blocks(tables)
    assert len(blocks) == len(rewards) > tables.outcome_start.size - 1
    depth = np.ones(len(blocks), dtype=int)
    for block, next_states in enumerate(blocks[:, :, 1].astype(np.int64)):
        leads = next_states[next_states & LINK > 0] & (LINK - 1)
        assert (leads > block).all()
        depth[leads] = depth[block] + 1
    assert depth.max() == trips
