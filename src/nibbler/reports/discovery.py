"""What Nibbler has found of a problem's structure over time, read from the snapshots of a run.

A question is about the board that its cumulant is a bit of; what it sees of a board is the share of that
board's bits that are among its inputs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nibbler.studies.reading import agent_name
from nibbler.studies.spec import RunSpec, Study
from nibbler.studies.store import ResultsFolder, RunFolder

LARGEST = 4096  # boards that are counted
NEARLY_ALL = 0.9  # of the bits of its board that a question can see: then it sees them as good as all


@dataclass(frozen=True)
class Discovery:
    """Selections of one run over time, counted by board."""

    steps: NDArray[np.int64]  # [times]
    seen: NDArray[np.float64]  # [times, questions, boards]: share of a board's bits that are inputs
    cumulant: NDArray[np.int64]  # [times, questions]: the board of its cumulant
    chance: float  # share of bits that a random selection sees: inputs over all bits
    best: NDArray[np.float64]  # [boards]: the most that can be seen, below 1 where inputs are few

    @property
    def num_boards(self) -> int:
        return int(self.seen.shape[-1])

    @property
    def num_questions(self) -> int:
        return int(self.seen.shape[1])

    def _own(self) -> NDArray[np.float64]:
        return np.asarray(np.take_along_axis(self.seen, self.cumulant[..., None], axis=-1)[..., 0])

    def own_board(self) -> NDArray[np.float64]:
        """How much of its cumulant's board each question sees, [times, questions].

        0 is what a random selection sees, 1 is all that can be seen; below 0 it avoids its own board.
        """
        room = np.maximum(self.best[self.cumulant] - self.chance, 1e-9)
        return np.asarray((self._own() - self.chance) / room, dtype=np.float64)

    def boards_found(self) -> NDArray[np.int64]:
        """How many boards have a question about them that has come more than half of the way, by time."""
        return self._boards_of(self.own_board() > 0.5)

    def _boards_of(self, chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
        """How many boards the chosen questions, [times, questions], are about, by time."""
        pairs = zip(self.cumulant, chosen, strict=True)
        return np.array([len(np.unique(boards[those])) for boards, those in pairs], dtype=np.int64)

    def each_asked(self) -> NDArray[np.bool_]:
        """Whether every board has its share of the questions about it, by time: two each in Table 1."""
        share = max(1, self.num_questions // self.num_boards)
        about = np.array([np.bincount(boards, minlength=self.num_boards) for boards in self.cumulant])
        return np.asarray((about >= share).all(axis=-1))

    def each_seen(self) -> NDArray[np.bool_]:
        """Whether on every board one of its questions sees nearly all of it, by time."""
        return np.asarray(self._boards_of(self._nearly_all()) == self.num_boards)

    def all_seen(self) -> NDArray[np.bool_]:
        """Whether every question sees nearly all of its board, by time."""
        return np.asarray(self._nearly_all().all(axis=-1))

    def _nearly_all(self) -> NDArray[np.bool_]:
        return np.asarray(self._own() >= NEARLY_ALL * self.best[self.cumulant])

    def settled(self, true: NDArray[np.bool_]) -> tuple[int, int] | None:
        """The moments between which something became true for good; None if it did not in this run."""
        false = np.flatnonzero(~true)
        since = int(false[-1]) + 1 if false.size else 0
        if since == len(self.steps):
            return None
        return int(self.steps[max(since - 1, 0)]), int(self.steps[since])


def count_selections(
    steps: NDArray[np.int64],
    cumulants: NDArray[np.int64],  # [times, questions], observed feature indices
    inputs: NDArray[np.int64],  # [times, questions, g]
    board_of_feature: NDArray[np.int64],
) -> Discovery:
    """Turn selected features into boards."""
    num_boards = int(board_of_feature.max()) + 1
    bits = np.maximum(np.bincount(board_of_feature, minlength=num_boards), 1)
    boards = board_of_feature[inputs]
    count = np.stack([(boards == b).sum(axis=-1) for b in range(num_boards)], axis=-1)
    return Discovery(
        np.asarray(steps),
        count / bits,
        board_of_feature[cumulants],
        chance=inputs.shape[-1] / board_of_feature.size,
        best=np.minimum(1.0, inputs.shape[-1] / bits),
    )


def read_discovery(run: RunFolder) -> Discovery | None:
    """A run's selections over time by board; None if it has none, or if they do not fit together."""
    snapshots, features = run.snapshots(), run.features()
    if snapshots is None or features is None or len(snapshots.steps) < 2:
        return None
    cumulants, inputs = snapshots.columns.get("cumulant"), snapshots.columns.get("inputs")
    boards = np.asarray(features.component)
    if cumulants is None or inputs is None or inputs.ndim != 3 or boards.size == 0:
        return None
    selected = np.concatenate([cumulants.ravel(), inputs.ravel()])
    inside = selected.size > 0 and selected.min() >= 0 and selected.max() < boards.size
    if not inside or boards.min() < 0 or boards.max() >= LARGEST:
        return None
    return count_selections(snapshots.steps, cumulants, inputs, boards.astype(np.int64))


def read_discoveries(results: ResultsFolder, study: Study) -> dict[int, tuple[RunSpec, Discovery]]:
    """By number of boards, the first Nibbler of a study that has snapshots: its spec and what it found."""
    found: dict[int, tuple[RunSpec, Discovery]] = {}
    for spec in study.runs:
        boards = spec.environment.get("num_boards")
        if agent_name(spec) != "nibbler" or not isinstance(boards, int) or boards in found:
            continue
        discovery = read_discovery(results.run(spec))
        if discovery is not None and discovery.num_boards > 1:
            found[boards] = spec, discovery
    return found
