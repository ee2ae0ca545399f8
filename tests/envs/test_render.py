"""Frames show the ball, the paddle, hot boards and the status bits, and only those."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from nibbler.envs import render
from nibbler.envs.catch import (
    Ball,
    BoardState,
    catch_board,
    continuing_catch_board,
    episodic_catch_board,
)
from nibbler.envs.multi_catch import multi_catch
from nibbler.envs.render import Renderer
from nibbler.mdp.algebra import hot_gate
from nibbler.mdp.environment import Environment
from nibbler.mdp.finite_mdp import FiniteMDP

BOARD = catch_board(rows=4, cols=5)


def state_of(ball: Ball, paddle: int, board: FiniteMDP = BOARD) -> int:
    assert board.labels is not None
    return board.labels.index(BoardState(ball, paddle))


def text(*states: int, board: FiniteMDP = BOARD) -> list[str]:
    return Renderer(Environment([board] * len(states))).ansi(states).rstrip("\n").split("\n")


def test_text_shows_ball_paddle_and_status() -> None:
    assert text(state_of(Ball("grid", 1, 3), 0)) == [".....", "...o.", ".....", "=....", "......"]
    assert text(state_of(Ball("grid", 3, 2), 2)) == [".....", ".....", ".....", "..@..", "......"]
    assert text(state_of(Ball("grid", 3, 4), 2))[3] == "..=.o"
    for place, strip in (("reset", ".R...."), ("catch", "..C..."), ("miss", "...M..")):
        assert text(state_of(Ball(place), 4))[3:] == ["....=", strip]


def test_text_colours_hot_boards_alone() -> None:
    cold, hot = state_of(Ball("grid", 0, 0), 1), state_of(Ball("minus", hot=True), 1)
    lines = text(cold, hot)
    assert lines[0] == "o....   \x1b[31m..... \x1b[0m"
    assert lines[4] == "......  \x1b[31mH....-\x1b[0m"
    assert "\x1b" not in "".join(text(cold, cold))


def colours(state: int, board: FiniteMDP = BOARD) -> set[tuple[int, ...]]:
    frame = Renderer(Environment([board])).rgb_array([state])
    return {tuple(int(c) for c in pixel) for pixel in np.unique(frame.reshape(-1, 3), axis=0)}


def test_an_image_shows_ball_paddle_hot_and_status_in_their_colours() -> None:
    falling = colours(state_of(Ball("grid", 1, 3), 0))
    assert falling >= {render.BALL, render.PADDLE, render.EMPTY}
    assert render.EMPTY_HOT not in falling
    assert not falling & set(render.STATUS_COLOURS.values())
    reset = colours(state_of(Ball("reset"), 0))
    assert render.BALL not in reset
    assert render.STATUS_COLOURS["reset"] in reset
    hot = colours(state_of(Ball("plus", hot=True), 0))
    assert hot >= {render.EMPTY_HOT, render.STATUS_COLOURS["hot"], render.STATUS_COLOURS["plus"]}
    assert render.STATUS_COLOURS["minus"] not in hot


def test_every_state_of_a_board_has_its_own_image() -> None:
    renderer = Renderer(Environment([BOARD]))
    frames = sorted(renderer.rgb_array([s]).tobytes() for s in range(BOARD.num_states))
    assert all(one != other for one, other in pairwise(frames))


@pytest.mark.parametrize("num_boards", [1, 2, 8, 31, 128])
def test_frames_keep_their_size_and_stay_of_a_size_to_look_at(num_boards: int) -> None:
    env = multi_catch(num_boards, heterogeneous=num_boards == 31)
    renderer = Renderer(env)
    rng = np.random.default_rng(0)
    frames = [
        renderer.rgb_array([rng.integers(board.num_states) for board in env.components]) for _ in range(3)
    ]
    assert len({frame.shape for frame in frames}) == 1
    assert frames[0].dtype == np.uint8
    assert not np.array_equal(frames[0], frames[1])
    height, width, _ = frames[0].shape
    assert 300 < height < 1200
    assert 150 < width < 1600


def test_each_board_is_drawn_in_its_own_place() -> None:
    env = multi_catch(6)
    renderer = Renderer(env)
    states = np.zeros(6, dtype=np.int32)
    blank = renderer.rgb_array(states)
    changed = []
    for board in range(6):
        other = states.copy()
        other[board] = 400
        changed.append((renderer.rgb_array(other) != blank).any(axis=2))
        assert changed[-1].any()
    assert (np.sum(changed, axis=0) <= 1).all()


def test_components_that_are_no_boards_show_their_active_bits() -> None:
    ring = FiniteMDP.explore(
        0,
        lambda s, a: [(1.0, (s + a + 1) % 3, 0.0)],
        lambda s: [f"place {s}"],
        num_actions=3,
        feature_names=[f"place {s}" for s in range(3)],
    )
    assert text(0, 2, board=ring) == ["place 0  place 2"]
    lit = [
        (Renderer(Environment([ring])).rgb_array([s]) == render.BIT_ON).all(axis=2).sum() for s in range(3)
    ]
    assert lit[0] > 0
    assert lit == [lit[0]] * 3
    mixed = Environment([ring, continuing_catch_board(rows=3), BOARD])
    assert Renderer(mixed).rgb_array([0, 0, 0]).ndim == 3
    assert Renderer(mixed).ansi([0, 0, 0]).count("=") == 2


def test_a_grid_without_labels_shows_its_bits() -> None:
    plain = FiniteMDP.from_dense(
        np.full((2, 1, 2), 0.5),
        np.zeros((2, 1)),
        [[1, 0, 1], [0, 1, 0]],
        feature_names=["cell 0,0", "cell 0,1", "on"],
    )
    assert text(0, 1, board=plain) == ["#.  .#", "O   ."]
    assert render.BIT_ON in colours(0, plain)


def test_an_episodic_board_is_drawn_without_status_bits() -> None:
    board = episodic_catch_board(rows=3, cols=3)
    assert text(state_of(Ball("grid", 0, 1), 1, board), board=board) == [".o.", "...", ".=."]


def test_a_gated_board_keeps_its_ball_and_paddle() -> None:
    gated = hot_gate(continuing_catch_board(rows=3), 0.5)
    assert gated.labels is not None
    state = gated.labels.index((BoardState(Ball("grid", 1, 4), 2), True))
    assert colours(state, gated) >= {
        render.BALL,
        render.PADDLE,
        render.EMPTY_HOT,
        render.STATUS_COLOURS["hot"],
    }
    assert "".join(text(state, board=gated)).count("o") == 1
