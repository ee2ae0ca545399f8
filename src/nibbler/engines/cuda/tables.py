"""An environment's tables on the device, laid out for one load per look-up."""

from typing import Any

import numpy as np

from nibbler.engines.cuda.device import require_gpu
from nibbler.mdp.environment import Environment, EnvTables

OUTCOME = np.dtype([("threshold", "<u4"), ("next_state", "<i4"), ("reward", "<f8")])
OUTCOME_ROW = np.dtype([("threshold", "<u4"), ("next_state", "<i4"), ("start", "<i4"), ("last", "<i4")])
REWARDED = 1 << 30  # as in environment.cuh
_POINTERS = ("row_base", "observed_base", "rows", "outcomes", "observed")


def board_slots(tables: EnvTables) -> int:
    """The most features that one board ever has on: its places in the list of active features."""
    return int(np.diff(tables.feature_start).max())


def outcome_rows(tables: EnvTables) -> np.ndarray:
    """Every row of outcomes as its range and its first outcome."""
    start = tables.outcome_start[:-1]
    rows = np.empty(start.size, dtype=OUTCOME_ROW)
    rows["threshold"] = tables.threshold[start]
    rows["next_state"] = tables.next_state[start] | np.where(tables.reward[start] != 0.0, REWARDED, 0)
    rows["start"] = start
    rows["last"] = tables.outcome_start[1:] - 1
    return rows


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
        outcomes = np.empty(tables.next_state.size, dtype=OUTCOME)
        outcomes["threshold"] = tables.threshold
        outcomes["next_state"] = tables.next_state
        outcomes["reward"] = tables.reward
        observed_base, observed = observed_features(env, self.slots)
        arrays = {
            "row_base": tables.row_base.astype(np.int32),
            "observed_base": observed_base,
            "rows": outcome_rows(tables).view(np.uint8),
            "outcomes": outcomes.view(np.uint8),
            "observed": observed,
        }
        return {name: cupy.asarray(array) for name, array in arrays.items()}
