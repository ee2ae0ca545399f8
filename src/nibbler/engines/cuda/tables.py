"""An environment's tables on the device, laid out for one load per look-up."""

from typing import Any

import numpy as np

from nibbler.engines.cuda.device import require_gpu
from nibbler.mdp.environment import Environment, EnvTables

OUTCOMES, REWARDED, LINK = 8, 1 << 30, 1 << 29  # as in environment.cuh
_POINTERS = ("row_base", "observed_base", "blocks", "rewards", "observed")


def board_slots(tables: EnvTables) -> int:
    """The most features that one board ever has on: its places in the list of active features."""
    return int(np.diff(tables.feature_start).max())


def outcome_blocks(tables: EnvTables) -> tuple[np.ndarray, np.ndarray]:
    """The outcomes of every row in blocks of eight: (threshold, next state) pairs, and rewards.

    The last pair of a block is the row's last outcome, or leads to the block that goes on.
    """
    pairs: list[np.ndarray] = []
    rewards: list[np.ndarray] = []
    starts, ends = tables.outcome_start[:-1], tables.outcome_start[1:]
    next_states = tables.next_state | np.where(tables.reward != 0.0, REWARDED, 0)
    left = list(zip(starts.tolist(), ends.tolist(), strict=True))
    for start, end in left:  # which grows while rows are longer than a block
        here = min(end - start, OUTCOMES)
        index = np.minimum(np.arange(start, start + OUTCOMES), end - 1)
        block = np.stack(
            [tables.threshold[index].astype(np.int64), next_states[index].astype(np.int64)], axis=1
        )
        reward = tables.reward[index]
        block[here - 1 :, 0] = 2**32 - 1  # taken without comparison
        if end - start > OUTCOMES:
            block[-1, 1], reward[-1] = LINK | len(left), 0.0
            left.append((start + OUTCOMES - 1, end))
        pairs.append(block)
        rewards.append(reward)
    return np.stack(pairs).astype(np.uint32), np.stack(rewards)


def observed_features(env: Environment, slots: int) -> tuple[np.ndarray, np.ndarray]:
    """The observed indices of every board's active features in every state, -1 where there are fewer.

    Returns the first row of every board and the rows, `slots` rounded up to a multiple of four wide.
    """
    tables = env.tables
    sizes = np.array([component.num_states for component in env.components])
    base = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    observed = np.full((int(sizes.sum()), -(-slots // 4) * 4), -1, dtype=np.int32)
    for board, (first, size) in enumerate(zip(base, sizes, strict=True)):
        starts = tables.feature_start[tables.state_base[board] :][: size + 1]
        features = tables.feature_index[starts[0] : starts[-1]] + tables.feature_base[board]
        here = np.arange(observed.shape[1]) < np.diff(starts)[:, None]
        observed[first : first + size][here] = tables.permutation[features]
    return base.astype(np.int32), observed


class DeviceEnvironments:
    """The different environments of a launch; runs on the same environment share its tables."""

    def __init__(self, environments: list[Environment]) -> None:
        cupy = require_gpu()
        self.index: list[int] = []  # of each run's environment
        self._arrays: list[dict[str, Any]] = []  # keeps the device memory alive
        number: dict[int, int] = {}
        self.slots = max(board_slots(env.tables) for env in environments)
        for env in environments:
            if id(env) not in number:
                number[id(env)] = len(self._arrays)
                self._arrays.append(self._upload(env))
            self.index.append(number[id(env)])
        pointers = [[int(arrays[name].data.ptr) for name in _POINTERS] for arrays in self._arrays]
        self.pointers = cupy.asarray(np.array(pointers, dtype=np.uint64))

    def _upload(self, env: Environment) -> dict[str, Any]:
        cupy = require_gpu()
        tables = env.tables
        blocks, rewards = outcome_blocks(tables)
        observed_base, observed = observed_features(env, self.slots)
        arrays = {
            "row_base": tables.row_base.astype(np.int32),
            "observed_base": observed_base,
            "blocks": blocks,
            "rewards": rewards,
            "observed": observed,
        }
        return {name: cupy.asarray(array) for name, array in arrays.items()}
