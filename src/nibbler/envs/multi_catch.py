"""Multi-catch: many catch boards under one broadcast action, their bits shuffled into one observation."""

from __future__ import annotations

from typing import NamedTuple

from nibbler.envs.catch import catch_board
from nibbler.mdp.environment import Environment
from nibbler.mdp.finite_mdp import FiniteMDP
from nibbler.mdp.philox import FAMILY, draw_array

SMALLEST_PROBABILITY = 0.05  # lower end of p_arrival and p_reward in the heterogeneous family


class BoardVariation(NamedTuple):
    """What distinguishes one board of the heterogeneous family from another."""

    rows: int
    wind: int
    p_arrival: float
    p_reward: float


def multi_catch(
    num_boards: int,
    seed: int = 0,
    heterogeneous: bool = False,
    noisy_wind: bool = False,
    *,
    rows: int = 10,
    cols: int = 5,
    p_arrival: float = 0.2,
    p_reward: float = 0.2,
    p_hot: float | None = None,
    paddle_noise: float = 0.2,
    permute: bool = True,
) -> Environment:
    """The paper's scalable problem: `num_boards` hot catch boards as one environment.

    `p_hot` defaults to min(1, 2 / num_boards), which keeps the reward rate nearly the same at every scale.
    `heterogeneous=True` gives every board its own rows, wind, `p_arrival` and `p_reward`
    (`board_variations`) in place of the arguments of those names. `noisy_wind=True` moves a falling ball by
    a uniformly random one of -1, 0 and +1 columns in every step. `seed` fixes what the environment is (the
    permutation of its bits and the family), not what happens in it.
    """
    if num_boards != int(num_boards) or num_boards < 1:
        raise ValueError(f"num_boards={num_boards} makes no environment; use a whole number of at least 1")
    num_boards = int(num_boards)
    p_hot = min(1.0, 2 / num_boards) if p_hot is None else p_hot
    wind_noise = 1.0 if noisy_wind else 0.0
    boards: list[FiniteMDP]
    if heterogeneous:
        boards = [
            catch_board(
                cols=cols,
                p_hot=p_hot,
                paddle_noise=paddle_noise,
                wind_noise=wind_noise,
                **variation._asdict(),
            )
            for variation in board_variations(num_boards, seed)
        ]
    else:
        board = catch_board(rows, cols, p_arrival, p_reward, p_hot, paddle_noise, wind_noise=wind_noise)
        boards = [board] * num_boards  # one object, so that the tables are stored once
    return Environment(boards, seed=seed, permute=permute)


def board_variations(num_boards: int, seed: int = 0) -> list[BoardVariation]:
    """What the boards of the heterogeneous family with this seed are like.

    Rows are uniform in 5 to 10, the wind is -1 or +1, and both probabilities are uniform in [0.05, 1].
    Board b depends on the seed and on b alone, so a larger family has the smaller ones as its beginning.
    """
    variations = []
    for word in draw_array(seed, FAMILY, 0, range(num_boards)).astype(float) * 2.0**-32:
        p_arrival, p_reward = SMALLEST_PROBABILITY + (1 - SMALLEST_PROBABILITY) * word[2:]
        variations.append(
            BoardVariation(
                5 + int(6 * word[0]), 1 if word[1] < 0.5 else -1, float(p_arrival), float(p_reward)
            )
        )
    return variations
