"""Ready components beside catch: random MDPs (Garnets) and a river to swim up."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nibbler.mdp import philox
from nibbler.mdp.finite_mdp import FiniteMDP

# The draws of one Garnet, kept apart by the step that they are counted by.
_SUCCESSORS, _CUTS, _CYCLE, _REWARDS, _REWARDED, _CODES = range(6)


def garnet(
    num_states: int,
    num_actions: int,
    branching: int,
    *,
    num_features: int | None = None,
    active_features: int | None = None,
    reward_density: float = 1.0,
    seed: int = 0,
) -> FiniteMDP:
    """A random MDP: each action leads to `branching` random states, with random probabilities and rewards.

    Successors are distinct, the probabilities of an action are the pieces of a stick broken at uniform
    points, and a share `reward_density` of the state-action pairs has a reward, uniform in [-1, 1]. One
    successor of each state is chosen so that a random tour of all states is possible: a Garnet is always
    ergodic. States show themselves as one bit each, or as distinct random codes with `active_features` of
    `num_features` bits on.
    """
    if num_states < 1 or num_actions < 1:
        raise ValueError(f"a Garnet needs at least 1 state and 1 action, got {num_states} and {num_actions}")
    if not 1 <= branching <= num_states:
        raise ValueError(f"branching={branching} must be from 1 to the number of states, {num_states}")
    if not 0.0 <= reward_density <= 1.0:
        raise ValueError(f"reward_density={reward_density} must be from 0 to 1")
    rows = num_states * num_actions
    slots = -(-branching // 4)
    successors = np.stack(
        [
            philox.permutation(
                seed, philox.GARNET, num_states, branching, step=_SUCCESSORS, first_slot=row * slots
            )
            for row in range(rows)
        ]
    )
    _allow_tour(successors, num_actions, philox.permutation(seed, philox.GARNET, num_states, step=_CYCLE))
    cuts = np.sort(philox.uniforms(seed, philox.GARNET, rows * (branching - 1), _CUTS).reshape(rows, -1))
    edges = np.hstack([np.zeros((rows, 1)), cuts, np.ones((rows, 1))])
    rewards = 2.0 * philox.uniforms(seed, philox.GARNET, rows, _REWARDS) - 1.0
    rewards[philox.uniforms(seed, philox.GARNET, rows, _REWARDED) >= reward_density] = 0.0
    row = np.repeat(np.arange(rows), branching)
    return FiniteMDP.from_triples(
        num_states,
        num_actions,
        row // num_actions,
        row % num_actions,
        successors.reshape(-1),
        np.diff(edges).reshape(-1),
        rewards[row],
        _codes(num_states, num_features, active_features, seed),
        num_features=num_features if num_features is not None else num_states,
    )


def _allow_tour(successors: NDArray[np.int32], num_actions: int, tour: NDArray[np.int32]) -> None:
    """Make each state of a tour lead to the next by some action, keeping an action's successors distinct."""
    for here, following in zip(tour, np.roll(tour, -1), strict=True):
        own = successors[here * num_actions : (here + 1) * num_actions]
        if not (own == following).any():
            own[following % num_actions, 0] = following


def _codes(num_states: int, num_features: int | None, active: int | None, seed: int) -> list[list[int]]:
    """The bits of every state: its own bit, or a random code that no other state has."""
    if num_features is None:
        if active is not None:
            raise ValueError(
                "active_features needs num_features; give both, or neither for one bit per state"
            )
        return [[state] for state in range(num_states)]
    if active is None or not 1 <= active <= num_features:
        raise ValueError(f"give active_features from 1 to num_features={num_features}, got {active}")
    codes: dict[tuple[int, ...], None] = {}
    slots = -(-active // 4)
    # A generous number of draws per state: fewer codes than states exist when even these run out.
    for attempt in range(100 * num_states):
        bits = philox.permutation(
            seed, philox.GARNET, num_features, active, step=_CODES, first_slot=attempt * slots
        )
        codes[tuple(sorted(bits.tolist()))] = None
        if len(codes) == num_states:
            return [list(code) for code in codes]
    raise ValueError(
        f"{active} of {num_features} bits give too few different codes for {num_states} states; "
        "raise num_features"
    )


def river_swim(
    length: int = 6, p_forward: float = 0.35, p_back: float = 0.05, small: float = 0.005, large: float = 1.0
) -> FiniteMDP:
    """A classic of exploration: swim up a river to a large reward, or drift to a small one.

    Action 0 drifts one place down and earns `small` at the bottom. Action 1 swims: up with probability
    `p_forward`, pushed back with `p_back`, otherwise on the spot; it earns `large` at the top. There, and at
    the bottom, a move past the end leaves the swimmer in place. One bit shows each place.
    """
    if length < 2:
        raise ValueError(f"length={length} is too short; a river has at least 2 places")
    if not (p_forward > 0.0 and p_back >= 0.0 and p_forward + p_back <= 1.0):
        raise ValueError(
            f"p_forward={p_forward} and p_back={p_back} must be probabilities with p_forward > 0 and a sum "
            "of at most 1"
        )

    def outcomes(place: int, action: int) -> list[tuple[float, int, float]]:
        down, up = max(place - 1, 0), min(place + 1, length - 1)
        if action == 0:
            return [(1.0, down, small if place == 0 else 0.0)]
        earned = large if place == length - 1 else 0.0
        return [
            (p_forward, up, earned),
            (p_back, down, earned),
            (1.0 - p_forward - p_back, place, earned),
        ]

    return FiniteMDP.explore(
        0,
        outcomes,
        lambda place: [place],
        num_actions=2,
        feature_names=[f"place {place}" for place in range(length)],
    )
