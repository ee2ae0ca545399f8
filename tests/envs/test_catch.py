"""Catch boards against a literal simulator of their rules, and against bsuite's Catch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from bsuite.environments.catch import Catch
from hypothesis import given, settings
from hypothesis import strategies as st

from nibbler.envs.catch import catch_board, continuing_catch_board, episodic_catch_board
from nibbler.envs.gymnasium_env import GymnasiumEnv
from nibbler.mdp.algebra import hot_gate
from nibbler.mdp.environment import Environment
from nibbler.mdp.exact import feature_frequencies, reward_rate
from nibbler.mdp.finite_mdp import FiniteMDP

Chance = Callable[[Sequence[float]], int]  # takes probabilities, returns which of the things happened
State = tuple[str, int, int, bool, int]  # what the ball does, its row and column, hot, the paddle's column


class LiteralBoard:
    """The rules of a hot catch board as they are told, one sentence after the other."""

    def __init__(
        self,
        rows: int = 10,
        cols: int = 5,
        p_arrival: float = 0.2,
        p_reward: float = 0.2,
        p_hot: float = 0.25,
        paddle_noise: float = 0.2,
        wind: int = 0,
        wind_noise: float = 0.0,
    ) -> None:
        self.rows, self.cols = rows, cols
        self.p_arrival, self.p_reward, self.p_hot = p_arrival, p_reward, p_hot
        self.paddle_noise, self.wind, self.wind_noise = paddle_noise, wind, wind_noise
        self.start: State = ("reset", 0, 0, False, cols // 2)

    def step(self, state: State, action: int, chance: Chance) -> tuple[State, float]:
        doing, row, col, hot, paddle = state
        reward = 0.0
        paddle_before = paddle
        made = action
        if chance([1 - self.paddle_noise, self.paddle_noise]):
            made = chance([1 / 3, 1 / 3, 1 / 3])
        paddle = paddle + [-1, 0, 1][made]
        if paddle < 0:
            paddle = 0
        if paddle > self.cols - 1:
            paddle = self.cols - 1
        if doing == "reset":
            if chance([1 - self.p_arrival, self.p_arrival]):
                doing, row, col = "falling", 0, chance([1 / self.cols] * self.cols)
                hot = bool(chance([1 - self.p_hot, self.p_hot]))
        elif doing == "falling" and row < self.rows - 1:
            row += 1
            blown = self.wind
            if chance([1 - self.wind_noise, self.wind_noise]):
                blown = [-1, 0, 1][chance([1 / 3, 1 / 3, 1 / 3])]
            col += blown
            if col < 0:
                col += self.cols
            if col >= self.cols:
                col -= self.cols
        elif doing == "falling":
            doing, row, col = ("catch" if paddle_before == col else "miss"), 0, 0
        elif doing in ("catch", "miss"):
            if hot:
                doing = "plus" if doing == "catch" else "minus"
            else:
                doing = "reset"
        else:
            assert doing in ("plus", "minus")
            if chance([1 - self.p_reward, self.p_reward]):
                reward = 1.0 if doing == "plus" else -1.0
                doing, hot = "reset", False
        return (doing, row, col, hot, paddle), reward

    def bits(self, state: State) -> set[int]:
        doing, row, col, hot, paddle = state
        names = ["hot", "reset", "catch", "miss", "plus", "minus"]
        cells = self.rows * self.cols
        on = {cells - self.cols + paddle}
        on.add(row * self.cols + col if doing == "falling" else cells + names.index(doing))
        if hot:
            on.add(cells)
        return on


class LiteralContinuingBoard(LiteralBoard):
    """The board before it gets a hot bit: catch and miss lead to reset, with the reward."""

    def step(self, state: State, action: int, chance: Chance) -> tuple[State, float]:
        after, reward = super().step(state, action, chance)
        if state[0] in ("catch", "miss"):
            reward = 1.0 if state[0] == "catch" else -1.0
        return after, reward

    def bits(self, state: State) -> set[int]:
        cells = self.rows * self.cols
        return {bit if bit < cells else bit - 1 for bit in super().bits(state)}  # there is no hot bit


def every_way(happen: Callable[[Chance], Any]) -> Iterator[tuple[float, Any]]:
    """Everything that `happen` can do, with its probability, by playing through all its chances."""
    prefixes: list[list[int]] = [[]]
    while prefixes:
        prefix = prefixes.pop()
        made: list[int] = []
        probability = 1.0

        def chance(probabilities: Sequence[float], prefix: list[int] = prefix, made: list[int] = made) -> int:
            nonlocal probability
            if len(made) < len(prefix):
                choice = prefix[len(made)]
            else:
                choice = 0
                prefixes.extend([*made, other] for other in range(1, len(probabilities)))
            made.append(choice)
            probability *= probabilities[choice]
            return choice

        result = happen(chance)
        if probability > 0:
            yield probability, result


def literal_tables(
    board: LiteralBoard,
) -> tuple[dict[State, set[int]], dict[tuple[State, int], dict[tuple[State, float], float]]]:
    """The reachable states with their bits, and the distribution of (next state, reward) of every action."""
    states = {board.start: board.bits(board.start)}
    tables = {}
    waiting = [board.start]
    while waiting:
        state = waiting.pop()
        for action in range(3):
            outcomes: dict[tuple[State, float], float] = {}
            for probability, result in every_way(lambda chance: board.step(state, action, chance)):  # noqa: B023
                outcomes[result] = outcomes.get(result, 0.0) + probability
                if result[0] not in states:
                    states[result[0]] = board.bits(result[0])
                    waiting.append(result[0])
            tables[state, action] = outcomes
    return states, tables


def assert_same_board(mdp: FiniteMDP, board: LiteralBoard) -> None:
    def told(state: int) -> State:
        ball, paddle = mdp.labels[state]
        return ("falling" if ball.place == "grid" else ball.place, ball.row, ball.col, ball.hot, paddle)

    states, tables = literal_tables(board)
    assert {told(s) for s in range(mdp.num_states)} == set(states)
    assert {told(s): set(mdp.features(s)) for s in range(mdp.num_states)} == states
    starts = np.flatnonzero(mdp.start_probability)
    assert [told(s) for s in starts] == [board.start]
    for s in range(mdp.num_states):
        for action in range(3):
            outcomes = {(told(after), reward): p for p, after, reward in mdp.outcomes(s, action)}
            assert outcomes == pytest.approx(tables[told(s), action], abs=1e-12)


def test_the_default_board_has_535_states_and_56_features_in_the_documented_order() -> None:
    board = catch_board()
    assert (board.num_states, board.num_actions, board.num_features) == (535, 3, 56)
    assert board.feature_names[:7] == (*(f"cell 0,{c}" for c in range(5)), "cell 1,0", "cell 1,1")
    assert board.feature_names[49:] == ("cell 9,4", "hot", "reset", "catch", "miss", "plus", "minus")
    assert board.is_ergodic()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"rows": 5, "wind": 1, "p_arrival": 0.05, "p_reward": 1.0},
        {"rows": 6, "wind": -1, "p_arrival": 1.0, "p_reward": 0.31},
        {"rows": 4, "wind": 1, "wind_noise": 1.0},
        {"rows": 4, "p_hot": 1.0, "paddle_noise": 0.0},
        {"rows": 4, "p_hot": 0.0, "paddle_noise": 1.0},
        {"rows": 1},
        {"cols": 1, "rows": 3},
    ],
    ids=str,
)
def test_every_transition_of_a_board_is_the_one_that_the_rules_tell(options: dict[str, Any]) -> None:
    assert_same_board(catch_board(**options), LiteralBoard(**options))


probabilities = st.floats(0.0, 1.0).map(lambda p: round(p, 3))


@settings(deadline=None, max_examples=15)
@given(
    rows=st.integers(1, 4),
    cols=st.integers(1, 4),
    p_arrival=st.floats(0.01, 1.0),
    p_reward=probabilities,
    p_hot=probabilities,
    paddle_noise=probabilities,
    wind=st.sampled_from([-1, 0, 1]),
    wind_noise=probabilities,
)
def test_boards_of_any_size_and_chances_follow_the_rules(**options: Any) -> None:
    assert_same_board(catch_board(**options), LiteralBoard(**options))


@pytest.mark.parametrize(
    "options", [{}, {"rows": 5, "wind": -1, "wind_noise": 0.25, "p_arrival": 0.7}], ids=str
)
def test_the_continuing_board_rewards_every_ball_on_its_way_back_to_reset(options: dict[str, Any]) -> None:
    board = continuing_catch_board(**options)
    assert board.feature_names[-4:] == (f"cell {board.num_features // 5 - 1},4", "reset", "catch", "miss")
    assert_same_board(board, LiteralContinuingBoard(p_hot=0.0, **options))


def test_a_continuing_board_earns_what_its_cycle_says() -> None:
    # A cycle: 5 steps in reset on average, 10 on the grid, 1 shown; a random paddle is below a fifth of them.
    assert reward_rate(continuing_catch_board()) == pytest.approx((0.2 - 0.8) / 16)


class SameStarts:
    """Stands in for bsuite's generator, so that its balls start where ours do."""

    def __init__(self) -> None:
        self.column = 0

    def randint(self, _: int) -> int:
        return self.column


@pytest.mark.parametrize("rows, cols", [(10, 5), (6, 7), (2, 3)])
def test_the_episodic_board_is_bsuites_catch_bit_for_bit(rows: int, cols: int) -> None:
    ours = GymnasiumEnv(Environment([episodic_catch_board(rows, cols)], permute=False))
    theirs = Catch(rows=rows, columns=cols)
    theirs._rng = SameStarts()
    play = np.random.default_rng(0)
    starts = []
    observation, _ = ours.reset(seed=11)
    for _ in range(300):
        starts.append(int(observation.argmax()))
        theirs._rng.column = starts[-1]
        step = theirs.reset()
        assert np.array_equal(step.observation.ravel(), observation)
        while not step.last():
            action = int(play.integers(3))
            step = theirs.step(action)
            observation, reward, terminated, truncated, _ = ours.step(action)
            assert np.array_equal(step.observation.ravel(), observation)
            assert (step.reward, step.last(), False) == (reward, terminated, truncated)
        observation, _ = ours.reset()
    # Each column is the start of a fair share of the episodes: within four standard errors.
    share = np.bincount(starts, minlength=cols) / len(starts)
    assert np.abs(share - 1 / cols).max() < 4 * np.sqrt((1 - 1 / cols) / cols / len(starts))


def test_an_episode_ends_with_its_reward_and_the_next_one_starts() -> None:
    board = episodic_catch_board(rows=4, cols=3)
    assert board.terminal is not None
    for state in np.flatnonzero(board.terminal):
        assert board.labels[state].ball.row == 3
        assert sorted(board.outcomes(int(state), 1)) == sorted(
            (p, s, 0.0) for s, p in enumerate(board.start_probability.tolist()) if p > 0
        )
    for state in np.flatnonzero(~board.terminal):
        for _, after, reward in board.outcomes(int(state), 2):
            ball, paddle = board.labels[after]
            assert reward == ((1.0 if paddle == ball.col else -1.0) if board.terminal[after] else 0.0)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: catch_board(p_arrival=1.5), "p_arrival=1.5 is not a probability"),
        (lambda: catch_board(p_reward=-0.1), "p_reward=-0.1 is not a probability"),
        (lambda: catch_board(p_hot=float("nan")), "p_hot=nan is not a probability"),
        (lambda: catch_board(paddle_noise=2), "paddle_noise=2 is not a probability"),
        (lambda: catch_board(wind_noise=-1), "wind_noise=-1 is not a probability"),
        (lambda: catch_board(rows=0), "rows=0 is no board"),
        (lambda: catch_board(cols=2.5), "cols=2.5 is no board"),
        (lambda: catch_board(wind=0.5), "wind=0.5 is not a whole number of columns"),
        (lambda: continuing_catch_board(p_arrival=-1), "p_arrival=-1 is not a probability"),
        (lambda: episodic_catch_board(rows=1), "rows=1 leaves the ball of an episodic board no row to fall"),
        (lambda: episodic_catch_board(paddle_noise=7), "paddle_noise=7 is not a probability"),
    ],
)
def test_boards_that_cannot_be_are_refused_with_the_reason(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_a_gated_continuing_board_is_the_hot_board_without_the_wait_for_its_reward() -> None:
    p_hot = 0.3
    gated = hot_gate(
        continuing_catch_board(),
        p_hot,
        entry=lambda state, action, after: state.ball.place == "reset" and after.ball.place == "grid",
    )
    hot = catch_board(p_hot=p_hot)
    # Per ball: 5 steps in reset, 10 on the grid, 1 shown, and on the hot board 5 more if it is hot.
    assert reward_rate(gated) * 16 == pytest.approx(reward_rate(hot) * (16 + 5 * p_hot))
    rates = dict(zip(gated.feature_names, feature_frequencies(gated), strict=True))
    assert rates["hot"] == pytest.approx(p_hot * 11 / 16)
