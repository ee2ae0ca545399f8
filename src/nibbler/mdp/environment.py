"""Environments: components side by side under one action, their observation bits shuffled together.

The joint MDP is kept factored and is never enumerated: an environment is the list of its components, a
permutation of the joint observation, and packed tables (`EnvTables`) that every simulator reads.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nibbler.mdp import philox
from nibbler.mdp.finite_mdp import FiniteMDP
from nibbler.mdp.tables import thresholds

Coupling = Literal["broadcast", "independent"]


class EnvTables(NamedTuple):
    """The tables of an environment, packed for compiled code; identical components share their rows.

    The outcomes of action a in state s of board b run from outcome_start[r] to outcome_start[r + 1] with
    r = row_base[b] + s * board_actions[b] + a. The features of state s run from feature_start[p] to
    feature_start[p + 1] with p = state_base[b] + s, and feature_index[k] among them is observed as bit
    permutation[feature_base[b] + feature_index[k]]. Start states work like outcomes, in row start_base[b].
    """

    row_base: NDArray[np.int64]  # [boards]
    state_base: NDArray[np.int64]  # [boards]
    feature_base: NDArray[np.int64]  # [boards]
    start_base: NDArray[np.int64]  # [boards]
    board_actions: NDArray[np.int64]  # [boards]
    num_actions: int  # the largest of board_actions; under one broadcast action they are all the same
    outcome_start: NDArray[np.int64]
    next_state: NDArray[np.int32]
    threshold: NDArray[np.uint32]
    reward: NDArray[np.float64]
    feature_start: NDArray[np.int64]
    feature_index: NDArray[np.int32]
    start_start: NDArray[np.int64]
    start_state: NDArray[np.int32]
    start_threshold: NDArray[np.uint32]
    permutation: NDArray[np.int32]  # [features], joint index -> observed index


class Environment:
    """Finite MDPs side by side: rewards are summed, bits concatenated and permuted, one action sent to all.

    With `coupling="independent"` each component takes an action of its own (the full product of the paper).
    `permute` draws the permutation of the observation from the seed, leaves it out (False), or gives it:
    entry j says where bit j of the concatenated observation is observed.
    """

    def __init__(
        self,
        components: Iterable[FiniteMDP],
        seed: int = 0,
        permute: bool | ArrayLike = True,
        coupling: Coupling = "broadcast",
    ) -> None:
        self.components = tuple(components)
        self.seed = philox.check_seed(seed)
        self.coupling: Coupling = coupling
        self._check_components()
        self.num_components = len(self.components)
        self.action_counts = tuple(component.num_actions for component in self.components)
        self.num_features = sum(component.num_features for component in self.components)
        self.max_active = sum(component.max_active for component in self.components)
        self.permutation = self._permutation(permute)
        self.permutation.flags.writeable = False
        self.episodic = self.components[0].terminal is not None

    def _check_components(self) -> None:
        if not self.components:
            raise ValueError("an environment needs at least one component; give a list of FiniteMDPs")
        for index, component in enumerate(self.components):
            if not isinstance(component, FiniteMDP):
                raise ValueError(f"component {index} is a {type(component).__name__}; give a FiniteMDP")
            if component.terminal is not None and len(self.components) > 1:
                raise ValueError(
                    f"component {index} is episodic, and the episodes of several components would not end "
                    "together; use it alone, or make it continuing"
                )
        if self.coupling not in ("broadcast", "independent"):
            raise ValueError(f"coupling={self.coupling!r} is unknown; use 'broadcast' or 'independent'")
        counts = [component.num_actions for component in self.components]
        if self.coupling == "broadcast" and len(set(counts)) > 1:
            odd = next(index for index, count in enumerate(counts) if count != counts[0])
            raise ValueError(
                f"component 0 has {counts[0]} actions and component {odd} has {counts[odd]}; a broadcast "
                "action needs the same number everywhere (or use coupling='independent')"
            )

    def _permutation(self, permute: bool | ArrayLike) -> NDArray[np.int32]:
        if isinstance(permute, (bool, np.bool_)):
            if not permute:
                return np.arange(self.num_features, dtype=np.int32)
            return philox.permutation(self.seed, philox.PERMUTATION, self.num_features)
        given = np.array(permute)
        if given.shape != (self.num_features,) or not np.array_equal(
            np.sort(given), np.arange(self.num_features)
        ):
            raise ValueError(
                f"permute is not a permutation; give each of 0 to {self.num_features - 1} exactly once, "
                "or True or False"
            )
        return given.astype(np.int32)

    @property
    def num_actions(self) -> int:
        """The number of joint actions: the shared count under broadcast, the product of counts otherwise."""
        return self.action_counts[0] if self.coupling == "broadcast" else math.prod(self.action_counts)

    @cached_property
    def unique_components(self) -> tuple[tuple[FiniteMDP, ...], NDArray[np.int64]]:
        """The different components, and for each board which of them it is."""
        number: dict[str, int] = {}
        different: list[FiniteMDP] = []
        kind = np.empty(self.num_components, dtype=np.int64)
        for board, component in enumerate(self.components):
            if component.fingerprint not in number:
                number[component.fingerprint] = len(different)
                different.append(component)
            kind[board] = number[component.fingerprint]
        return tuple(different), kind

    @cached_property
    def tables(self) -> EnvTables:
        """The packed tables that simulators read."""
        different, kind = self.unique_components
        starts = [np.flatnonzero(component.start_probability) for component in different]
        # Likeliest first, as in the rows of outcomes.
        starts = [
            states[np.argsort(-component.start_probability[states], kind="stable")]
            for component, states in zip(different, starts, strict=True)
        ]
        start_start = _offsets([states.size for states in starts])
        start_probability = np.concatenate(
            [component.start_probability[states] for component, states in zip(different, starts, strict=True)]
        )
        return EnvTables(
            row_base=_offsets([c.num_states * c.num_actions for c in different])[kind],
            state_base=_offsets([c.num_states for c in different])[kind],
            feature_base=_offsets([c.num_features for c in self.components])[:-1],
            start_base=kind.copy(),
            board_actions=np.array(self.action_counts, dtype=np.int64),
            num_actions=max(self.action_counts),
            outcome_start=_join_starts([c.outcome_start for c in different]),
            next_state=np.concatenate([c.next_state for c in different]),
            threshold=np.concatenate([c.threshold for c in different]),
            reward=np.concatenate([c.reward for c in different]),
            feature_start=_join_starts([c.feature_start for c in different]),
            feature_index=np.concatenate([c.feature_index for c in different]),
            start_start=start_start,
            start_state=np.concatenate(starts).astype(np.int32),
            start_threshold=thresholds(start_start, start_probability),
            permutation=self.permutation.copy(),
        )

    @cached_property
    def _joint_index(self) -> NDArray[np.int64]:
        """The joint index, before permutation, of every observed feature."""
        return np.argsort(self.permutation)

    @cached_property
    def component_of_feature(self) -> NDArray[np.int32]:
        """The component that every observed feature belongs to."""
        sizes = [component.num_features for component in self.components]
        owner = np.repeat(np.arange(self.num_components, dtype=np.int32), sizes)
        return owner[self._joint_index]

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the features in observed order, "component:name"."""
        return tuple(f"{component}:{name}" for component, name in map(self.locate, range(self.num_features)))

    def locate(self, observed_feature: int) -> tuple[int, str]:
        """The component that an observed feature belongs to, and the feature's name there."""
        if not 0 <= observed_feature < self.num_features:
            raise ValueError(f"feature {observed_feature} is out of range; use 0 to {self.num_features - 1}")
        component = int(self.component_of_feature[observed_feature])
        local = self._joint_index[observed_feature] - self.tables.feature_base[component]
        return component, self.components[component].feature_names[local]

    def __repr__(self) -> str:
        different, _ = self.unique_components
        return (
            f"Environment({self.num_components} components ({len(different)} different), "
            f"num_features={self.num_features}, num_actions={self.num_actions}, seed={self.seed})"
        )


def _offsets(sizes: list[int]) -> NDArray[np.int64]:
    """Where each of some consecutive blocks begins, and at last where they end."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _join_starts(starts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """The start arrays of several tables as one, over their concatenated entries."""
    base = _offsets([int(start[-1]) for start in starts])
    return np.concatenate(
        [[0], *[start[1:] + offset for start, offset in zip(starts, base[:-1], strict=True)]]
    )
