"""Environments: shared tables, permuted observations, and refusals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.mdp.strategies import small_mdps

from nibbler.envs.catch import catch_board, episodic_catch_board
from nibbler.mdp.classics import garnet, river_swim
from nibbler.mdp.environment import Environment


def test_a_thousand_identical_boards_share_one_set_of_tables():
    board = catch_board()
    env = Environment([board] * 1000, seed=1)
    size = sum(field.nbytes for field in env.tables if isinstance(field, np.ndarray))
    assert env.num_features == 56_000
    assert env.tables.next_state.size == board.next_state.size
    assert size < 2_000_000


def test_components_made_twice_share_tables_like_one_object():
    env = Environment([river_swim(4), river_swim(5), river_swim(4)])
    different, kind = env.unique_components
    assert len(different) == 2
    assert kind.tolist() == [0, 1, 0]


@given(st.lists(small_mdps(num_actions=2), min_size=1, max_size=4), st.integers(0, 2**64 - 1))
def test_every_observed_feature_is_located_in_its_component(components, seed):
    env = Environment(components, seed=seed)
    assert sorted(env.permutation.tolist()) == list(range(env.num_features))
    joint = 0
    for index, component in enumerate(components):
        for name in component.feature_names:
            observed = env.permutation[joint]
            assert env.locate(observed) == (index, name)
            assert env.component_of_feature[observed] == index
            assert env.feature_names[observed] == f"{index}:{name}"
            joint += 1


def test_the_permutation_comes_from_the_seed_or_from_the_user():
    boards = [river_swim()] * 4
    assert np.array_equal(Environment(boards, seed=3).permutation, Environment(boards, seed=3).permutation)
    assert not np.array_equal(
        Environment(boards, seed=3).permutation, Environment(boards, seed=4).permutation
    )
    assert Environment(boards, permute=False).permutation.tolist() == list(range(24))
    assert Environment(boards, permute=range(23, -1, -1)).permutation.tolist() == list(range(23, -1, -1))


def test_components_with_other_action_counts_may_act_independently():
    env = Environment([garnet(3, 2, 2), garnet(3, 4, 2)], coupling="independent")
    assert env.action_counts == (2, 4)
    assert env.num_actions == 8


@pytest.mark.parametrize(
    "build,message",
    [
        (lambda: Environment([]), "at least one component"),
        (lambda: Environment(["board"]), "component 0 is a str"),
        (
            lambda: Environment([river_swim(), catch_board()]),
            "component 0 has 2 actions and component 1 has 3; .* the same number",
        ),
        (lambda: Environment([river_swim()], permute=[0, 1, 2, 3, 4, 4]), "not a permutation"),
        (lambda: Environment([river_swim()], permute=[0, 1]), "not a permutation"),
        (lambda: Environment([river_swim()], seed=-1), "seed=-1"),
        (lambda: Environment([river_swim()], coupling="loose"), "'loose' is unknown"),
        (
            lambda: Environment([catch_board(), episodic_catch_board()]),
            "component 1 is episodic.*use it alone",
        ),
        (lambda: Environment([river_swim()]).locate(6), "feature 6 is out of range; use 0 to 5"),
    ],
)
def test_bad_input_is_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_an_episodic_component_is_accepted_alone():
    assert Environment([episodic_catch_board()]).episodic
    assert not Environment([catch_board()]).episodic
