"""A finite MDP as sparse tables: what every component of an environment is.

Row s * num_actions + a of the transition table lists the outcomes of action a in state s, and entry s of the
feature table lists the binary features that are on in state s. Everything else in the library reads these
tables: simulation, the algebra of section 2.2 of the paper, and the exact answers.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from nibbler.mdp.tables import (
    Outcomes,
    check_count,
    feature_table,
    name_state,
    start_distribution,
    terminal_flags,
    thresholds,
)

Outcome = tuple[float, Any, float]  # probability, next state, reward


@dataclass(frozen=True, eq=False)
class FiniteMDP:
    """Sparse tables of transitions, rewards and active binary features of a small MDP.

    Make one with `from_dense`, `from_triples` or `explore`, which validate what they are given and put the
    outcomes of each row in order of falling probability, so that sampling by a linear scan is short.
    """

    num_states: int
    num_actions: int
    num_features: int
    feature_names: tuple[str, ...]
    outcome_start: NDArray[np.int64]  # [num_states * num_actions + 1], first outcome of each row
    next_state: NDArray[np.int32]  # [outcomes]
    probability: NDArray[np.float64]  # [outcomes]
    reward: NDArray[np.float64]  # [outcomes]
    threshold: NDArray[np.uint32]  # [outcomes], cumulative probability in units of 2**-32
    feature_start: NDArray[np.int64]  # [num_states + 1]
    feature_index: NDArray[np.int32]  # rising within a state
    start_probability: NDArray[np.float64]  # [num_states]
    terminal: NDArray[np.bool_] | None = None  # [num_states], of an episodic MDP alone
    labels: tuple[Hashable, ...] | None = None  # [num_states], what each state stands for

    def __post_init__(self) -> None:
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False

    @classmethod
    def from_triples(
        cls,
        num_states: int,
        num_actions: int,
        state: ArrayLike,
        action: ArrayLike,
        next_state: ArrayLike,
        probability: ArrayLike,
        reward: ArrayLike,
        features: Sequence[Iterable[int | str]],
        *,
        num_features: int | None = None,
        feature_names: Sequence[str] | None = None,
        start: ArrayLike | None = None,
        terminal: ArrayLike | None = None,
        labels: Sequence[Hashable] | None = None,
    ) -> FiniteMDP:
        """Build an MDP from flat lists of outcomes; `features[s]` lists the features that are on in state s.

        Outcomes that agree in everything but probability are merged. `start` is a state, or a probability
        per state (state 0 unless told). Terminal states need no outcomes: their next transition goes back
        to the start distribution with reward zero.
        """
        check_count("num_states", num_states)
        check_count("num_actions", num_actions)
        if labels is not None and len(labels) != num_states:
            raise ValueError(f"got {len(labels)} labels for {num_states} states; give one per state")
        start_probability = start_distribution(start, num_states)
        ends = terminal_flags(terminal, num_states)
        outcomes = Outcomes.checked(
            num_states, num_actions, labels, state, action, next_state, probability, reward
        )
        if ends is not None:
            outcomes = outcomes.with_restarts(ends, start_probability)
        outcome_start, successors, chances, rewards = outcomes.table()
        names, feature_start, feature_index = feature_table(
            features, num_states, num_features, feature_names, labels
        )
        return cls(
            num_states=num_states,
            num_actions=num_actions,
            num_features=len(names),
            feature_names=names,
            outcome_start=outcome_start,
            next_state=successors,
            probability=chances,
            reward=rewards,
            threshold=thresholds(outcome_start, chances),
            feature_start=feature_start,
            feature_index=feature_index,
            start_probability=start_probability,
            terminal=ends,
            labels=None if labels is None else tuple(labels),
        )

    @classmethod
    def from_dense(
        cls,
        transition: ArrayLike,
        reward: ArrayLike,
        features: ArrayLike,
        *,
        feature_names: Sequence[str] | None = None,
        start: ArrayLike | None = None,
        terminal: ArrayLike | None = None,
        labels: Sequence[Hashable] | None = None,
    ) -> FiniteMDP:
        """Build an MDP from full arrays: transition[S, A, S], reward[S, A, S] or [S, A], features[S, m].

        `features` holds zeros and ones; the rest is as in `from_triples`.
        """
        chances = np.asarray(transition, dtype=np.float64)
        if chances.ndim != 3 or chances.shape[0] != chances.shape[2]:
            raise ValueError(f"transition must have shape [states, actions, states], got {chances.shape}")
        num_states, num_actions, _ = chances.shape
        rewards = np.asarray(reward, dtype=np.float64)
        if rewards.shape == chances.shape[:2]:
            rewards = rewards[:, :, None]
        elif rewards.shape != chances.shape:
            raise ValueError(
                f"reward must have shape {chances.shape} or {chances.shape[:2]}, got {rewards.shape}"
            )
        bits = np.asarray(features)
        if bits.ndim != 2 or bits.shape[0] != num_states:
            raise ValueError(f"features must have shape [{num_states} states, features], got {bits.shape}")
        if not np.isin(bits, (0, 1)).all():
            raise ValueError(f"features must be binary, got the values {np.unique(bits)[:5].tolist()}")
        # NaN is unequal to zero, so bad probabilities are kept here and reported with their state and action.
        state, action, successor = np.nonzero(chances)
        return cls.from_triples(
            num_states,
            num_actions,
            state,
            action,
            successor,
            chances[state, action, successor],
            np.broadcast_to(rewards, chances.shape)[state, action, successor],
            [np.flatnonzero(row).tolist() for row in bits],
            num_features=bits.shape[1],
            feature_names=feature_names,
            start=start,
            terminal=terminal,
            labels=labels,
        )

    @classmethod
    def explore(
        cls,
        initial: Hashable | Mapping[Any, float],
        outcomes: Callable[[Any, int], Iterable[Outcome]],
        features: Callable[[Any], Iterable[int | str]],
        *,
        num_actions: int,
        num_features: int | None = None,
        feature_names: Sequence[str] | None = None,
        terminal: Callable[[Any], bool] | None = None,
        max_states: int = 1_000_000,
    ) -> FiniteMDP:
        """Build an MDP by enumerating the states that can be reached from the initial ones.

        `initial` is a state, or a mapping from states to probabilities. `outcomes(state, action)` gives
        (probability, next state, reward) triples, and `features(state)` the indices or names of the features
        that are on. States may be any hashable things; they are kept as `labels`, in order of discovery.
        """
        check_count("num_actions", num_actions)
        weights = dict(initial) if isinstance(initial, Mapping) else {initial: 1.0}
        if not weights:
            raise ValueError("initial is empty; give at least one initial state")
        number = {label: s for s, label in enumerate(weights)}
        frontier = deque(weights)
        ends: list[bool] = []
        rows: list[tuple[int, int, int, float, float]] = []
        while frontier:
            label = frontier.popleft()
            ends.append(terminal is not None and bool(terminal(label)))
            if ends[-1]:
                continue
            for action in range(num_actions):
                for chance, successor, emitted in outcomes(label, action):
                    if chance == 0.0:
                        continue
                    if successor not in number:
                        if len(number) >= max_states:
                            raise ValueError(
                                f"more than max_states={max_states} states are reachable; raise max_states, "
                                "or make the component smaller and take a product"
                            )
                        number[successor] = len(number)
                        frontier.append(successor)
                    rows.append((number[label], action, number[successor], chance, emitted))
        start = np.zeros(len(number))
        start[: len(weights)] = list(weights.values())
        columns: list[Any] = [list(column) for column in zip(*rows, strict=True)] or [[]] * 5
        return cls.from_triples(
            len(number),
            num_actions,
            columns[0],
            columns[1],
            columns[2],
            columns[3],
            columns[4],
            [list(features(label)) for label in number],
            num_features=num_features,
            feature_names=feature_names,
            start=start,
            terminal=np.array(ends) if any(ends) else None,
            labels=tuple(number),
        )

    def outcomes(self, state: int, action: int) -> list[tuple[float, int, float]]:
        """The (probability, next state, reward) triples of an action in a state, likeliest first."""
        if not 0 <= state < self.num_states or not 0 <= action < self.num_actions:
            raise ValueError(
                f"state {state}, action {action} is out of range; there are {self.num_states} states and "
                f"{self.num_actions} actions"
            )
        row = state * self.num_actions + action
        span = slice(self.outcome_start[row], self.outcome_start[row + 1])
        return list(
            zip(
                self.probability[span].tolist(),
                self.next_state[span].tolist(),
                self.reward[span].tolist(),
                strict=True,
            )
        )

    def features(self, state: int) -> tuple[int, ...]:
        """The indices of the features that are on in a state."""
        if not 0 <= state < self.num_states:
            raise ValueError(f"state {state} is out of range; there are {self.num_states} states")
        return tuple(self.feature_index[self.feature_start[state] : self.feature_start[state + 1]].tolist())

    @property
    def max_active(self) -> int:
        """The largest number of features that are on at once."""
        return int(np.diff(self.feature_start).max())

    @cached_property
    def row(self) -> NDArray[np.int64]:
        """The row, state * num_actions + action, of every outcome."""
        return np.repeat(np.arange(self.num_states * self.num_actions), np.diff(self.outcome_start))

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the tables: components with equal digests behave alike and share memory."""
        digest = hashlib.blake2b(digest_size=16)
        digest.update(repr((self.num_states, self.num_actions, self.feature_names)).encode())
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray) and name != "row":
                digest.update(name.encode())
                digest.update(np.ascontiguousarray(value).tobytes())
        return digest.hexdigest()

    def is_ergodic(self) -> bool:
        """Whether every state can be reached from every other by some choice of actions."""
        return len(np.unique(self._communicating_part())) == 1

    def require_ergodic(self) -> FiniteMDP:
        """Return this MDP if it is ergodic, else raise an error that names two states that are cut off."""
        part = self._communicating_part()
        others = np.flatnonzero(part != part[0])
        if others.size:
            raise ValueError(
                f"the MDP is not ergodic: {self.name_state(0)} and {self.name_state(int(others[0]))} cannot "
                "both be reached from each other; add transitions, or remove the states left for good"
            )
        return self

    def name_state(self, state: int) -> str:
        """How error messages call a state: its number, and its label where it has one."""
        return name_state(state, self.labels)

    def _communicating_part(self) -> NDArray[np.int32]:
        edges = csr_array(
            (np.ones(self.next_state.size), (self.row // self.num_actions, self.next_state)),
            shape=(self.num_states, self.num_states),
        )
        return np.asarray(connected_components(edges, directed=True, connection="strong")[1])

    def __repr__(self) -> str:
        kind = "" if self.terminal is None else ", episodic"
        return (
            f"FiniteMDP(num_states={self.num_states}, num_actions={self.num_actions}, "
            f"num_features={self.num_features}{kind})"
        )
