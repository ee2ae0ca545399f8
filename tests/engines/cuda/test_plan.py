"""Plans for problems of any size are ones that a kernel can be compiled for."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nibbler.agents.config import NibblerConfig, QLearningConfig
from nibbler.engines.cuda.plan import (
    MOST_QUESTIONS_PER_BLOCK,
    MOST_WARPS,
    NetworkPlan,
    NibblerPlan,
    plan_network,
    plan_nibbler,
)

MULTIPROCESSORS = 132  # of an H200: blocks of a run wait for each other, so all must find a place
FEATURES, SLOTS = 56, 3  # of a board


def check_network(plan: NetworkPlan, units: int, boards: int) -> None:
    config = QLearningConfig(hidden_units=units)
    macros = plan.macros(config, FEATURES * boards, 3, boards, SLOTS)
    assert macros["HIDDEN"] == macros["BLOCKS"] * plan.block_units >= units
    assert macros["HIDDEN"] - units < plan.block_units  # no block is empty
    workers = plan.row_groups * plan.block_units // macros["UNITS"]
    assert workers % 32 == 0
    assert workers // 32 + plan.main_warps <= MOST_WARPS


def check_nibbler(plan: NibblerPlan, config: NibblerConfig, boards: int) -> None:
    macros = plan.macros(config, FEATURES * boards, 3, boards, SLOTS)
    assert macros["HIDDEN"] == macros["UNITS"] * 32 * plan.question_warps >= config.hidden_units
    assert macros["UNITS"] in (1, 2) or macros["UNITS"] % 4 == 0
    assert plan.questions_per_block <= MOST_QUESTIONS_PER_BLOCK
    warps = plan.questions_per_block * plan.question_warps + plan.main_warps + plan.discovery_warps
    assert warps <= MOST_WARPS
    assert (macros["BLOCKS"] - plan.discovery_apart) * plan.questions_per_block >= config.num_questions


@given(boards=st.integers(1, 1024), units=st.integers(1, 8192))
def test_a_network_has_a_plan_for_a_large_gpu_and_for_smaller_ones(boards, units):
    config = QLearningConfig(hidden_units=units)
    plan = plan_network(config, boards)
    shape = (config, FEATURES * boards, 3, boards, SLOTS)
    assert plan.macros(*shape)["BLOCKS"] <= MULTIPROCESSORS * plan.blocks_per_sm
    while plan is not None:
        check_network(plan, units, boards)
        fewer = plan.denser()
        if fewer is not None:
            before, after = plan.macros(*shape)["BLOCKS"], fewer.macros(*shape)["BLOCKS"]
            assert after == -(-before // 2)
        plan = fewer


@given(questions=st.integers(1, 128 * MOST_QUESTIONS_PER_BLOCK), units=st.integers(1, 1024))
def test_nibbler_has_a_plan_for_a_large_gpu_and_for_smaller_ones(questions, units):
    boards = max(1, questions // 2)
    config = NibblerConfig.for_boards(boards, num_questions=questions, hidden_units=units)
    plan = plan_nibbler(config, boards)
    shape = (config, FEATURES * boards, 3, boards, SLOTS)
    assert plan.macros(*shape)["BLOCKS"] <= MULTIPROCESSORS
    while plan is not None:
        check_nibbler(plan, config, boards)
        fewer = plan.denser()
        if fewer is not None:
            assert fewer.macros(*shape)["BLOCKS"] <= plan.macros(*shape)["BLOCKS"]
        plan = fewer


def test_a_plan_gives_up_one_thing_after_the_other():
    plan, kept = NibblerPlan(4, 2, 1, 1), []
    while plan is not None:
        kept.append((plan.discovery_shared, plan.support_shared, plan.q_momentum_shared))
        plan = plan.smaller()
    assert kept == [(1, 1, 1), (0, 1, 1), (0, 0, 1), (0, 0, 0)]


@pytest.mark.parametrize(
    "plan, changes, message",
    [
        (NibblerPlan(4, 2, 1, 1), {"questions_per_block": 13}, "a block has 1 to 12 questions"),
        (NibblerPlan(4, 2, 1, 1), {"main_warps": 40}, "a block has at most 32 warps, not 49"),
        (NetworkPlan(256, 8, 1), {"row_groups": 16}, "a block has at most 32 warps, not 33"),
        (NetworkPlan(256, 8, 1), {"row_groups": 1}, "a network has two groups of rows or more"),
        (
            NetworkPlan(256, 8, 1),
            {"block_units": 40},
            "8 groups .* 40 hidden units.* no whole warps",
        ),
    ],
)
def test_a_block_that_no_gpu_has_is_refused(plan, changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(plan, **changes)
