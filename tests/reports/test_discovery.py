"""What was found of the structure, counted from selections that are known."""

from __future__ import annotations

import numpy as np
import pytest

from nibbler.reports.discovery import Discovery, count_selections

BOARD_OF_FEATURE = np.repeat(np.arange(3), 4)
OWN = np.arange(12).reshape(3, 4)  # each question sees one board whole
MIXED = np.array([[0, 4, 8, 1], [5, 9, 2, 6], [10, 3, 7, 11]])


def selections(*inputs: np.ndarray, cumulants: list[list[int]] | None = None) -> Discovery:
    """One moment after the other, 100 steps apart; a question's cumulant is its first input unless told."""
    stacked = np.stack(inputs)
    asked = stacked[:, :, 0] if cumulants is None else np.array(cumulants)
    return count_selections(100 * np.arange(len(inputs)), asked, stacked, BOARD_OF_FEATURE)


def test_selections_are_counted_by_board() -> None:
    counted = selections(MIXED, OWN)
    np.testing.assert_allclose(counted.seen[0, 0], [0.5, 0.25, 0.25])
    np.testing.assert_allclose(counted.seen[1], np.eye(3))
    assert counted.chance == pytest.approx(1 / 3)
    np.testing.assert_allclose(counted.own_board()[1], [1.0, 1.0, 1.0])
    assert counted.own_board()[0, 0] == pytest.approx((0.5 - 1 / 3) / (1 - 1 / 3))
    assert counted.boards_found().tolist() == [0, 3]
    assert counted.cumulant[1].tolist() == [0, 1, 2]


def test_a_question_that_avoids_its_own_board_scores_below_chance() -> None:
    board_1 = OWN[1:2]
    counted = selections(board_1, board_1, cumulants=[[0], [0]])  # a bit of board 0
    assert (counted.own_board() < 0).all()
    assert counted.boards_found().tolist() == [0, 0]


def test_few_inputs_can_see_no_more_than_they_are() -> None:
    board_of_feature = np.repeat(np.arange(2), 8)
    inputs = np.array([[[0, 1]], [[0, 1]]])
    counted = count_selections(np.array([0, 1]), inputs[..., 0], inputs, board_of_feature)
    np.testing.assert_allclose(counted.own_board(), 1.0)


def test_every_board_needs_its_share_of_the_questions() -> None:
    twice = np.concatenate([OWN, OWN])
    lopsided = np.concatenate([OWN, OWN[[0, 0, 1]]])  # board 2 has one question, board 0 three
    assert selections(lopsided, twice).each_asked().tolist() == [False, True]
    assert selections(OWN, MIXED, cumulants=[[0, 4, 5], [0, 4, 8]]).each_asked().tolist() == [False, True]


def test_one_question_that_sees_its_board_is_not_all_of_them() -> None:
    half = np.concatenate([OWN, MIXED])
    whole = np.concatenate([OWN, OWN])
    without_board_2 = np.concatenate([OWN[:2], OWN[:2], MIXED[:2]])
    counted = selections(without_board_2, half, whole)
    assert counted.each_seen().tolist() == [False, True, True]
    assert counted.all_seen().tolist() == [False, False, True]


def test_a_question_that_sees_another_board_whole_does_not_see_its_own() -> None:
    counted = selections(OWN, cumulants=[[4, 8, 0]])
    assert not counted.each_seen().any()
    assert not counted.all_seen().any()


@pytest.mark.parametrize(
    "true, between",
    [
        ([False, False, True, True], (100, 200)),
        ([False, True, False, True], (200, 300)),  # for good
        ([True, True, True, True], (0, 0)),
        ([True, True, True, False], None),
    ],
)
def test_what_settles_does_so_between_two_moments(true, between) -> None:
    assert selections(OWN, OWN, OWN, OWN).settled(np.array(true)) == between
