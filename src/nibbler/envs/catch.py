"""Catch boards as finite MDPs: the episodic one, the continuing one, and the one with a hot bit.

A board is a ball and a paddle that move independently of each other: the action moves the paddle alone, and
the ball only asks whether the paddle is below it when it lies on the bottom row. So a continuing board is
written as a function that says what the ball does; its table is that, crossed with the moves of the paddle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nibbler.mdp.finite_mdp import FiniteMDP

NUM_ACTIONS = 3  # left, stay, right
STATUS_BITS = ("hot", "reset", "catch", "miss", "plus", "minus")


class Ball(NamedTuple):
    """Where a board's ball is, on the grid or in a status such as "reset", and whether the board is hot."""

    place: str  # "grid" or one of the status bits
    row: int = 0
    col: int = 0
    hot: bool = False


class BoardState(NamedTuple):
    """What a state number of a board stands for; the `labels` of a board's table."""

    ball: Ball
    paddle: int  # column


class Move(NamedTuple):
    """One thing that may happen to the ball in a step."""

    ball: Ball
    probability: float
    reward: float = 0.0


RESET = Ball("reset")
PLUS, MINUS = Ball("plus", hot=True), Ball("minus", hot=True)


def catch_board(
    rows: int = 10,
    cols: int = 5,
    p_arrival: float = 0.2,
    p_reward: float = 0.2,
    p_hot: float = 0.25,
    paddle_noise: float = 0.2,
    wind: int = 0,
    wind_noise: float = 0.0,
) -> FiniteMDP:
    """The component of multi-catch: a continuing catch board whose rewards are gated by a hot bit.

    With probability `paddle_noise` the paddle makes a uniformly random one of the three moves instead of the
    action's, and with probability `wind_noise` the wind of a step is a uniformly random one of -1, 0 and +1
    instead of `wind`. Features: the grid row by row, then hot, reset, catch, miss, plus, minus.
    """
    _check_board(rows, cols, wind)
    _check_probabilities(
        p_arrival=p_arrival, p_reward=p_reward, p_hot=p_hot, paddle_noise=paddle_noise, wind_noise=wind_noise
    )
    entries = [
        Move(Ball("grid", 0, col, hot), p_arrival / cols * p)
        for hot, p in ((False, 1 - p_hot), (True, p_hot))
        for col in range(cols)
    ]
    falls = _wind_moves(wind, wind_noise)

    def moves(ball: Ball, paddle_below: bool) -> list[Move]:
        if ball.place == "reset":
            return [*entries, Move(RESET, 1 - p_arrival)]
        if ball.place == "grid" and ball.row < rows - 1:
            return [Move(ball._replace(row=ball.row + 1, col=(ball.col + dx) % cols), p) for dx, p in falls]
        if ball.place == "grid":
            return [Move(Ball("catch" if paddle_below else "miss", hot=ball.hot), 1.0)]
        if ball.place in ("catch", "miss"):
            forthcoming = PLUS if ball.place == "catch" else MINUS
            return [Move(forthcoming if ball.hot else RESET, 1.0)]
        reward = 1.0 if ball.place == "plus" else -1.0
        return [Move(RESET, p_reward, reward), Move(ball, 1 - p_reward)]

    return _assemble(rows, cols, moves, STATUS_BITS, paddle_noise)


def continuing_catch_board(
    rows: int = 10,
    cols: int = 5,
    p_arrival: float = 0.2,
    paddle_noise: float = 0.2,
    wind: int = 0,
    wind_noise: float = 0.0,
) -> FiniteMDP:
    """The board the paper has on the way to multi-catch: continuing, every ball counts, no hot bit.

    As `catch_board`, except that catch or miss is shown for one step and the reward (+1 or -1) is emitted
    as the ball returns from there to reset. The paper leaves the step of the reward open here; this reading
    holds to "as the reward is emitted, the ball returns to the reset bit", so that a hot gate around this
    board switches off with the ball in reset, as in `catch_board`. Features: the grid row by row, then
    reset, catch, miss.
    """
    _check_board(rows, cols, wind)
    _check_probabilities(p_arrival=p_arrival, paddle_noise=paddle_noise, wind_noise=wind_noise)
    entries = [Move(Ball("grid", 0, col), p_arrival / cols) for col in range(cols)]
    falls = _wind_moves(wind, wind_noise)

    def moves(ball: Ball, paddle_below: bool) -> list[Move]:
        if ball.place == "reset":
            return [*entries, Move(RESET, 1 - p_arrival)]
        if ball.place == "grid" and ball.row < rows - 1:
            return [Move(ball._replace(row=ball.row + 1, col=(ball.col + dx) % cols), p) for dx, p in falls]
        if ball.place == "grid":
            return [Move(Ball("catch" if paddle_below else "miss"), 1.0)]
        return [Move(RESET, 1.0, reward=1.0 if ball.place == "catch" else -1.0)]

    return _assemble(rows, cols, moves, ("reset", "catch", "miss"), paddle_noise)


def episodic_catch_board(rows: int = 10, cols: int = 5, paddle_noise: float = 0.0) -> FiniteMDP:
    """The episodic catch that the paper starts from, bit for bit the game of bsuite's Catch.

    The ball starts on the top row in a uniform column, the paddle in the middle. States with the ball on
    the bottom row are terminal: the reward, +1 if the paddle is there too and -1 if not, comes with the
    transition into them, and any action leads from them to the start of the next episode. Features: the
    grid alone.
    """
    _check_board(rows, cols, wind=0)
    if rows < 2:
        raise ValueError(f"rows={rows} leaves the ball of an episodic board no row to fall; use at least 2")
    _check_probabilities(paddle_noise=paddle_noise)
    paddle_moves = _paddle_moves(cols, paddle_noise)

    def outcomes(state: BoardState, action: int) -> list[tuple[float, BoardState, float]]:
        ball = state.ball._replace(row=state.ball.row + 1)
        return [
            (
                float(p),
                BoardState(ball, paddle),
                0.0 if ball.row < rows - 1 else 1.0 if paddle == ball.col else -1.0,
            )
            for paddle, p in enumerate(paddle_moves[action, state.paddle])
        ]

    return FiniteMDP.explore(
        {BoardState(Ball("grid", 0, col), cols // 2): 1 / cols for col in range(cols)},
        outcomes,
        lambda state: _active(rows, cols, state, ()),
        num_actions=NUM_ACTIONS,
        feature_names=_feature_names(rows, cols, ()),
        terminal=lambda state: bool(state.ball.row == rows - 1),
    )


def _assemble(
    rows: int,
    cols: int,
    moves: Callable[[Ball, bool], list[Move]],
    status_bits: tuple[str, ...],
    paddle_noise: float,
) -> FiniteMDP:
    """Cross what the ball does, from reset on, with what the paddle does, into the table of a board.

    This is `FiniteMDP.explore` for two parts that move independently: it walks through the balls alone, a
    fifth of the states, and does the rest in arrays. A thousand different boards would take a minute
    otherwise.
    """
    number, balls = {RESET: 0}, [RESET]
    columns = np.arange(cols)
    origins, paddles, targets, probabilities, rewards = [], [], [], [], []
    for ball in balls:  # grows as balls are found
        landing = ball.place == "grid" and ball.row == rows - 1
        # Only a ball on the bottom row looks at the paddle: the others move alike whatever its column.
        cases = (
            [(True, columns == ball.col), (False, columns != ball.col)]
            if landing
            else [(False, columns >= 0)]
        )
        for paddle_below, where in cases:
            if not where.any():  # a board of one column knows no miss
                continue
            for target, probability, reward in moves(ball, paddle_below):
                if probability == 0:
                    continue
                if target not in number:
                    number[target] = len(balls)
                    balls.append(target)
                origins.append(number[ball])
                paddles.append(where)
                targets.append(number[target])
                probabilities.append(probability)
                rewards.append(reward)
    paddle_moves = _paddle_moves(cols, paddle_noise)  # [action, before, after]
    possible = np.asarray(paddles)[:, :, None, None] & (paddle_moves.transpose(1, 0, 2) > 0)
    move, before, action, after = np.nonzero(possible)
    labels, features = _board_states(rows, cols, tuple(balls), status_bits)
    return FiniteMDP.from_triples(
        len(labels),
        NUM_ACTIONS,
        state=np.asarray(origins)[move] * cols + before,
        action=action,
        next_state=np.asarray(targets)[move] * cols + after,
        probability=np.asarray(probabilities)[move] * paddle_moves[action, before, after],
        reward=np.asarray(rewards)[move],
        features=features,
        feature_names=_feature_names(rows, cols, status_bits),
        start=labels.index(BoardState(RESET, cols // 2)),
        labels=labels,
    )


def _paddle_moves(cols: int, paddle_noise: float) -> NDArray[np.float64]:
    """Probability [action, column before, column after] of the paddle's move; walls stop it."""
    before = np.arange(cols)
    moves = np.zeros((NUM_ACTIONS, cols, cols))
    for action in range(NUM_ACTIONS):
        for made in range(NUM_ACTIONS):
            probability = paddle_noise / NUM_ACTIONS + (1 - paddle_noise) * (made == action)
            moves[action, before, np.clip(before + made - 1, 0, cols - 1)] += probability
    return moves


def _wind_moves(wind: int, wind_noise: float) -> list[tuple[int, float]]:
    """Columns that a falling ball moves by, with their probabilities."""
    shares = dict.fromkeys((-1, 0, 1), wind_noise / 3)
    shares[wind] = shares.get(wind, 0.0) + 1 - wind_noise
    return [(dx, p) for dx, p in shares.items() if p > 0]


def _feature_names(rows: int, cols: int, status_bits: Sequence[str]) -> list[str]:
    return [f"cell {row},{col}" for row in range(rows) for col in range(cols)] + list(status_bits)


@lru_cache(maxsize=64)
def _board_states(
    rows: int, cols: int, balls: tuple[Ball, ...], status_bits: tuple[str, ...]
) -> tuple[tuple[BoardState, ...], list[list[int]]]:
    """A board's states in order and their active features, shared by boards that differ in numbers alone."""
    labels = tuple(BoardState(ball, paddle) for ball in balls for paddle in range(cols))
    return labels, [_active(rows, cols, state, status_bits) for state in labels]


def _active(rows: int, cols: int, state: BoardState, status_bits: Sequence[str]) -> list[int]:
    """Active features of a state: the ball's cell or status, the paddle's cell (maybe the same), and hot."""
    ball = state.ball
    shown = (
        ball.row * cols + ball.col if ball.place == "grid" else rows * cols + status_bits.index(ball.place)
    )
    hot = [rows * cols + status_bits.index("hot")] if ball.hot else []
    return sorted({shown, (rows - 1) * cols + state.paddle, *hot})


def _check_board(rows: int, cols: int, wind: int) -> None:
    for name, size in (("rows", rows), ("cols", cols)):
        if size != int(size) or size < 1:
            raise ValueError(f"{name}={size} is no board; use a whole number of at least 1")
    if wind != int(wind):
        raise ValueError(f"wind={wind} is not a whole number of columns; use -1, 0 or 1")


def _check_probabilities(**probabilities: float) -> None:
    for name, probability in probabilities.items():
        if not 0 <= probability <= 1:  # also catches NaN
            raise ValueError(f"{name}={probability} is not a probability; use a number from 0 to 1")
