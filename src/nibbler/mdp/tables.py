"""Checks that what a user gives makes an MDP, and packs it into the sorted tables of `FiniteMDP`."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

PROBABILITY_TOLERANCE = 1e-9
_WORDS = 2.0**32

Labels = Sequence[Hashable] | None


def thresholds(start: NDArray[np.int64], probability: NDArray[np.float64]) -> NDArray[np.uint32]:
    """Cumulative probabilities of each row as 32-bit integers, for sampling by comparison.

    An outcome is taken when a random word is below its threshold and not below the one before. The last of a
    row is taken without comparison, which is why its 2**32 may be stored as the largest 32-bit integer.
    """
    length = np.diff(start)
    cumulative = np.empty_like(probability)
    running = np.zeros(length.size)
    # Rank by rank, so that each row is summed alone: a global running sum would carry rounding across rows.
    for rank in range(int(length.max(initial=0))):
        rows = np.flatnonzero(length > rank)
        running[rows] += probability[start[rows] + rank]
        cumulative[start[rows] + rank] = running[rows]
    return np.clip(np.rint(cumulative * _WORDS), 0, _WORDS - 1).astype(np.uint32)


@dataclass(frozen=True)
class Outcomes:
    """Checked flat lists of outcomes on their way into a table."""

    num_states: int
    num_actions: int
    labels: Labels
    state: NDArray[np.int64]
    action: NDArray[np.int64]
    next_state: NDArray[np.int64]
    probability: NDArray[np.float64]
    reward: NDArray[np.float64]

    @classmethod
    def checked(
        cls,
        num_states: int,
        num_actions: int,
        labels: Labels,
        state: ArrayLike,
        action: ArrayLike,
        next_state: ArrayLike,
        probability: ArrayLike,
        reward: ArrayLike,
    ) -> Outcomes:
        """Arrays of equal length with entries in range and finite, or an error that names the culprit."""
        lists = cls(
            num_states,
            num_actions,
            labels,
            _whole_numbers("state", state),
            _whole_numbers("action", action),
            _whole_numbers("next_state", next_state),
            np.array(probability, dtype=np.float64).reshape(-1),
            np.array(reward, dtype=np.float64).reshape(-1),
        )
        lengths = {
            name: getattr(lists, name).size
            for name in ("state", "action", "next_state", "probability", "reward")
        }
        if len(set(lengths.values())) != 1:
            raise ValueError(f"the lists of outcomes must have the same length, got {lengths}")
        for name, size in (("state", num_states), ("action", num_actions), ("next_state", num_states)):
            column = getattr(lists, name)
            outside = np.flatnonzero((column < 0) | (column >= size))
            if outside.size:
                lists.refuse(outside, f"{name} {column[outside[0]]} is out of range; use 0 to {size - 1}")
        chance, reward = lists.probability, lists.reward
        wrong = np.flatnonzero(~((chance >= 0.0) & (chance <= 1.0 + PROBABILITY_TOLERANCE)))
        if wrong.size:
            lists.refuse(wrong, f"probability {chance[wrong[0]]} is not in [0, 1]; correct it")
        wrong = np.flatnonzero(~np.isfinite(reward))
        if wrong.size:
            lists.refuse(wrong, f"reward {reward[wrong[0]]} is not finite; use a real number")
        return lists

    def refuse(self, wrong: NDArray[np.intp], complaint: str) -> NoReturn:
        """Raise an error about the first of the wrong outcomes, naming its state and action."""
        i = int(wrong[0])
        raise ValueError(
            f"{name_state(int(self.state[i]), self.labels)}, action {self.action[i]}: {complaint}"
        )

    def with_restarts(self, ends: NDArray[np.bool_], start: NDArray[np.float64]) -> Outcomes:
        """Add the transitions from terminal states to the start distribution."""
        wrong = np.flatnonzero(ends[self.state])
        if wrong.size:
            self.refuse(wrong, "a terminal state goes back to the start by itself; give it no outcomes")
        state, action, successor = (
            grid.reshape(-1)
            for grid in np.meshgrid(
                np.flatnonzero(ends), np.arange(self.num_actions), np.flatnonzero(start), indexing="ij"
            )
        )
        return replace(
            self,
            state=np.concatenate([self.state, state]),
            action=np.concatenate([self.action, action]),
            next_state=np.concatenate([self.next_state, successor]),
            probability=np.concatenate([self.probability, start[successor]]),
            reward=np.concatenate([self.reward, np.zeros(state.size)]),
        )

    def table(
        self,
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64], NDArray[np.float64]]:
        """Merge equal outcomes and sort them into rows, likeliest first.

        Returns where each row starts, and the next state, probability and reward of every outcome.
        """
        num_rows = self.num_states * self.num_actions
        row = self.state * self.num_actions + self.action
        kept = np.flatnonzero(self.probability > 0.0)
        kept = kept[np.lexsort((self.reward[kept], self.next_state[kept], row[kept]))]
        is_new = np.ones(kept.size, dtype=bool)
        is_new[1:] = (
            (np.diff(row[kept]) != 0)
            | (np.diff(self.next_state[kept]) != 0)
            | (self.reward[kept[1:]] != self.reward[kept[:-1]])
        )
        groups = np.flatnonzero(is_new)
        chance = np.add.reduceat(self.probability[kept], groups) if kept.size else np.zeros(0)
        leader = kept[groups]  # lexsort is stable: the outcome of each group that was given first
        total: NDArray[np.float64] = np.zeros(num_rows)
        np.add.at(total, row[leader], chance)
        self._check_sums(total)
        order = np.lexsort((leader, -chance, row[leader]))
        leader, chance = leader[order], chance[order]
        start = np.zeros(num_rows + 1, dtype=np.int64)
        np.cumsum(np.bincount(row[leader], minlength=num_rows), out=start[1:])
        return start, self.next_state[leader].astype(np.int32), chance, self.reward[leader]

    def _check_sums(self, total: NDArray[np.float64]) -> None:
        wrong = np.flatnonzero(np.abs(total - 1.0) > PROBABILITY_TOLERANCE)
        if wrong.size:
            state, action = divmod(int(wrong[0]), self.num_actions)
            remedy = "give it outcomes" if total[wrong[0]] == 0.0 else "add what is missing, or rescale"
            raise ValueError(
                f"{name_state(state, self.labels)}, action {action}: probabilities sum to "
                f"{total[wrong[0]]:.12g}, not 1; {remedy}"
            )


def feature_table(
    features: Sequence[Iterable[int | str]],
    num_states: int,
    num_features: int | None,
    feature_names: Sequence[str] | None,
    labels: Labels,
) -> tuple[tuple[str, ...], NDArray[np.int64], NDArray[np.int32]]:
    """Names of the features, and the sorted lists of those that are on in each state, as start and index."""
    if len(features) != num_states:
        raise ValueError(f"got features of {len(features)} states, not {num_states}; give a list per state")
    active = [list(listed) for listed in features]
    if feature_names is None:
        if num_features is None:
            if any(isinstance(feature, str) for listed in active for feature in listed):
                raise ValueError(
                    "features are given by name; give feature_names, so that their order is known"
                )
            num_features = 1 + max((int(feature) for listed in active for feature in listed), default=-1)
        feature_names = tuple(f"f{index}" for index in range(num_features))
    names = tuple(feature_names)
    if num_features is not None and num_features != len(names):
        raise ValueError(f"got {len(names)} feature_names for {num_features} features; give one per feature")
    if not names:
        raise ValueError("the MDP has no features; give every MDP at least one, or nothing can be observed")
    position = {name: index for index, name in enumerate(names)}
    if len(position) != len(names):
        twice = next(name for index, name in enumerate(names) if position[name] != index)
        raise ValueError(f"feature name {twice!r} is used twice; make the names unique")
    start = np.zeros(num_states + 1, dtype=np.int64)
    indices: list[int] = []
    for state, listed in enumerate(active):
        here = set()
        for feature in listed:
            index = position.get(feature, -1) if isinstance(feature, str) else int(feature)
            if index != feature and not isinstance(feature, str):
                index = -1
            if not 0 <= index < len(names):
                raise ValueError(
                    f"{name_state(state, labels)}: feature {feature!r} is unknown; use 0 to {len(names) - 1}"
                    " or a name in feature_names"
                )
            here.add(index)
        indices.extend(sorted(here))
        start[state + 1] = len(indices)
    return names, start, np.array(indices, dtype=np.int32)


def start_distribution(start: ArrayLike | None, num_states: int) -> NDArray[np.float64]:
    """A probability per state from a state, from probabilities, or from nothing (state 0)."""
    if start is None:
        start = 0
    given = np.array(start)
    if given.ndim == 0:
        if given != int(given) or not 0 <= int(given) < num_states:
            raise ValueError(f"start state {start} is out of range; use 0 to {num_states - 1}")
        chance = np.zeros(num_states)
        chance[int(given)] = 1.0
        return chance
    chance = given.astype(np.float64)
    if chance.shape != (num_states,):
        raise ValueError(f"start has shape {chance.shape}; give a state, or {num_states} probabilities")
    if not (chance >= 0.0).all() or abs(chance.sum() - 1.0) > PROBABILITY_TOLERANCE:
        raise ValueError(
            f"start probabilities must be in [0, 1] and sum to 1; these sum to {chance.sum():.12g}"
        )
    return chance


def terminal_flags(terminal: ArrayLike | None, num_states: int) -> NDArray[np.bool_] | None:
    """A flag per state from flags or from nothing; an MDP without terminal states has none."""
    if terminal is None:
        return None
    flags = np.array(terminal)
    if flags.shape != (num_states,) or flags.dtype != np.bool_:
        raise ValueError(
            f"terminal must be {num_states} booleans, one per state; got {flags.dtype} of shape {flags.shape}"
        )
    return flags if flags.any() else None


def check_count(name: str, value: int) -> None:
    """Raise unless a number of things is a whole number of at least one."""
    if value != int(value) or value < 1:
        raise ValueError(f"{name}={value} is too few; give at least 1")


def name_state(state: int, labels: Labels) -> str:
    """How error messages call a state: its number, and its label where it has one."""
    if labels is None or not 0 <= state < len(labels):
        return f"state {state}"
    return f"state {state} {labels[state]!r}"


def _whole_numbers(name: str, column: ArrayLike) -> NDArray[np.int64]:
    given = np.array(column).reshape(-1)
    whole = given.astype(np.int64)
    if not (whole == given).all():
        raise ValueError(f"{name} must hold whole numbers, got {given[whole != given][0]!r}")
    return whole
