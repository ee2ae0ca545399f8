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

    The block of a row with more outcomes leads to blocks with parts of them, so that most are two steps away.
    """
    next_states = tables.next_state.astype(np.int64) | np.where(tables.reward != 0.0, REWARDED, 0)
    starts, ends = tables.outcome_start[:-1], tables.outcome_start[1:]
    place = np.arange(OUTCOMES)
    pairs: list[np.ndarray] = []
    rewards: list[np.ndarray] = []
    blocks = 0
    while starts.size > 0:  # all rows, then the parts of long ones, and so on
        spans = np.ones(starts.size, dtype=np.int64)  # outcomes of an entry
        while (spans * OUTCOMES < ends - starts).any():
            spans[spans * OUTCOMES < ends - starts] *= OUTCOMES
        first = np.minimum(starts[:, None] + place * spans[:, None], ends[:, None] - 1)
        after = np.minimum(
            first + spans[:, None], ends[:, None]
        )  # of an entry, the first outcome that follows
        used = starts[:, None] + place * spans[:, None] < ends[:, None]
        last = after == ends[:, None]  # taken without comparison
        threshold = np.where(last, 2**32 - 1, tables.threshold[after - 1].astype(np.int64))
        long = np.broadcast_to(spans[:, None] > 1, first.shape)
        leads = used & long
        blocks += starts.size
        number = np.cumsum(leads).reshape(leads.shape) - 1  # entries that are not used repeat the last one
        next_state = np.where(long, LINK | (blocks + number), next_states[first])
        reward = np.where(long, 0.0, tables.reward[first])
        pairs.append(np.stack([threshold, next_state], axis=2))
        rewards.append(reward)
        starts, ends = first[leads], after[leads]
    return np.concatenate(pairs).astype(np.uint32), np.concatenate(rewards)


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
