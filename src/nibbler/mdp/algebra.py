"""Section 2.2 of the paper as operations on tables: gate, permute and multiply finite MDPs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import product as cartesian
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nibbler.mdp.environment import Coupling, Environment
from nibbler.mdp.finite_mdp import FiniteMDP

Entry = ArrayLike | Callable[[Any, int, Any], bool] | None


def hot_gate(mdp: FiniteMDP, p_hot: float, entry: Entry = None, feature_name: str = "hot") -> FiniteMDP:
    """Add a hot bit that gates the rewards of an MDP, which is then paid only while the bit is on.

    A cold MDP becomes hot with probability `p_hot` with each step from an entry state; it stays hot until
    it has emitted a reward that is not zero. So the paper's equation holds: from every cold state and action,
    the probability of becoming hot is either 0 or `p_hot`.

    `entry` lists the entry states (numbers, or a flag per state; all states unless told), or is a function
    of (state, action, next state) that picks single transitions, such as a ball's entering a board: then
    `p_hot` is the probability given that such a transition happens. The function sees labels where the MDP
    has them. States that the start cannot lead to are left out.
    """
    _check_probability("p_hot", p_hot)
    if mdp.terminal is not None:
        raise ValueError(
            "hot_gate needs a continuing MDP, this one is episodic; let its episodes run on first"
        )
    state, action = np.divmod(mdp.row, mdp.num_actions)
    enters = _entry_flags(mdp, entry, state, action)
    # Cold states keep their number, hot ones come after: s + num_states.
    hot = mdp.num_states
    turn = np.where(enters, p_hot, 0.0)
    cools = mdp.reward != 0.0
    blocks = [
        (state, mdp.next_state, mdp.probability * (1.0 - turn), np.zeros(state.size)),
        (state, mdp.next_state + hot, mdp.probability * turn, np.zeros(state.size)),
        (state + hot, np.where(cools, mdp.next_state, mdp.next_state + hot), mdp.probability, mdp.reward),
    ]
    active = [list(mdp.features(s)) for s in range(mdp.num_states)]
    active += [[*listed, mdp.num_features] for listed in active]
    labels = mdp.labels or tuple(range(mdp.num_states))
    return _restricted_to_reachable(
        num_actions=mdp.num_actions,
        state=np.concatenate([block[0] for block in blocks]),
        action=np.tile(action, 3),
        next_state=np.concatenate([block[1] for block in blocks]),
        probability=np.concatenate([block[2] for block in blocks]),
        reward=np.concatenate([block[3] for block in blocks]),
        start=np.concatenate([mdp.start_probability, np.zeros(hot)]),
        features=active,
        feature_names=(*mdp.feature_names, feature_name),
        labels=[(label, is_hot) for is_hot in (False, True) for label in labels],
    )


def permute_actions(mdp: FiniteMDP, sigma: Sequence[int]) -> FiniteMDP:
    """Rename the actions of an MDP: action a of the result is action sigma[a] of the original."""
    if sorted(int(a) for a in sigma) != list(range(mdp.num_actions)):
        raise ValueError(
            f"sigma={list(sigma)} is not a permutation; give each of 0 to {mdp.num_actions - 1} exactly once"
        )
    return map_actions(mdp, sigma)


def map_actions(mdp: FiniteMDP, source: Sequence[int]) -> FiniteMDP:
    """Give an MDP other actions: action a of the result is action source[a] of the original.

    The list may have any length, so that components with different numbers of actions can share a broadcast
    action.
    """
    chosen = [int(a) for a in source]
    if not chosen or not all(0 <= a < mdp.num_actions for a in chosen):
        raise ValueError(f"source={chosen} must list actions from 0 to {mdp.num_actions - 1}")
    old_rows = np.arange(mdp.num_states)[:, None] * mdp.num_actions + np.array(chosen)
    length = np.diff(mdp.outcome_start)[old_rows.reshape(-1)]
    outcomes = np.concatenate(
        [np.arange(mdp.outcome_start[row], mdp.outcome_start[row + 1]) for row in old_rows.reshape(-1)]
    )
    new_row = np.repeat(np.arange(length.size), length)
    state, action = np.divmod(new_row, len(chosen))
    # Terminal states get their outcomes back by themselves.
    kept = slice(None) if mdp.terminal is None else ~mdp.terminal[state]
    return FiniteMDP.from_triples(
        mdp.num_states,
        len(chosen),
        state[kept],
        action[kept],
        mdp.next_state[outcomes][kept],
        mdp.probability[outcomes][kept],
        mdp.reward[outcomes][kept],
        [mdp.features(s) for s in range(mdp.num_states)],
        feature_names=mdp.feature_names,
        start=mdp.start_probability,
        terminal=mdp.terminal,
        labels=mdp.labels,
    )


def product(parts: Iterable[FiniteMDP | Environment], coupling: Coupling = "broadcast") -> Environment:
    """The product MDP, kept factored: parts side by side, rewards summed, observations concatenated.

    With `coupling="independent"` every part takes its own action; "broadcast" sends one action to all. A
    part that is itself an environment keeps its permutation within its own bits.
    """
    components: list[FiniteMDP] = []
    places: list[NDArray[np.int32]] = []
    width = 0
    for part in parts:
        if isinstance(part, Environment) and part.num_components > 1 and part.coupling != coupling:
            raise ValueError(
                f"cannot put an environment with coupling={part.coupling!r} into a product with "
                f"coupling={coupling!r}; use the same coupling"
            )
        components.extend(part.components if isinstance(part, Environment) else [part])
        own = part.permutation if isinstance(part, Environment) else np.arange(part.num_features)
        places.append((own + width).astype(np.int32))
        width += part.num_features
    if not components:
        raise ValueError("a product needs at least one part; give a list of FiniteMDPs")
    return Environment(components, permute=np.concatenate(places), coupling=coupling)


def enumerate_joint(env: Environment, max_states: int = 100_000) -> FiniteMDP:
    """A small environment as one finite MDP, with a state per combination of the components' states.

    This is what an environment avoids; it exists to check answers and to solve tiny environments exactly.
    Under independent actions, joint action a stands for the a-th combination in lexicographic order.
    """
    size = math.prod(component.num_states for component in env.components)
    if size > max_states:
        raise ValueError(f"the joint MDP would have {size} states, more than max_states={max_states}")
    if env.episodic:
        raise ValueError("an episodic environment has one component; use that")
    base = env.tables.feature_base
    combined_actions = (
        [(a,) * env.num_components for a in range(env.num_actions)]
        if env.coupling == "broadcast"
        else list(cartesian(*(range(count) for count in env.action_counts)))
    )

    def outcomes(state: tuple[int, ...], action: int) -> Iterable[tuple[float, tuple[int, ...], float]]:
        options = [
            component.outcomes(s, a)
            for component, s, a in zip(env.components, state, combined_actions[action], strict=True)
        ]
        for combination in cartesian(*options):
            yield (
                math.prod(p for p, _, _ in combination),
                tuple(successor for _, successor, _ in combination),
                sum(reward for _, _, reward in combination),
            )

    def features(state: tuple[int, ...]) -> list[int]:
        return [
            int(env.permutation[base[board] + feature])
            for board, s in enumerate(state)
            for feature in env.components[board].features(s)
        ]

    starts = [np.flatnonzero(component.start_probability).tolist() for component in env.components]
    initial = {
        state: math.prod(c.start_probability[s] for c, s in zip(env.components, state, strict=True))
        for state in cartesian(*starts)
    }
    return FiniteMDP.explore(
        initial,
        outcomes,
        features,
        num_actions=len(combined_actions),
        feature_names=env.feature_names,
    )


def _entry_flags(
    mdp: FiniteMDP, entry: Entry, state: NDArray[np.int64], action: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether each outcome is one with which a cold MDP may become hot."""
    if entry is None:
        return np.ones(state.size, dtype=bool)
    if callable(entry):
        name: Sequence[Any] = mdp.labels if mdp.labels is not None else range(mdp.num_states)
        triples = zip(state.tolist(), action.tolist(), mdp.next_state.tolist(), strict=True)
        flags = np.array([bool(entry(name[s], a, name[successor])) for s, a, successor in triples])
    else:
        given = np.array(entry)
        if given.dtype == np.bool_ and given.shape == (mdp.num_states,):
            flags = given[state]
        elif given.dtype.kind == "i" and given.ndim == 1 and _all_in_range(given, mdp.num_states):
            flags = np.isin(state, given)
        else:
            raise ValueError(
                f"entry must be states from 0 to {mdp.num_states - 1}, {mdp.num_states} booleans, or a "
                "function of (state, action, next state)"
            )
    if not flags.any():
        raise ValueError("no transition is an entry, so the gate would never open; check `entry`")
    return flags


def _restricted_to_reachable(
    num_actions: int,
    state: NDArray[np.int64],
    action: NDArray[np.int64],
    next_state: NDArray[np.int64],
    probability: NDArray[np.float64],
    reward: NDArray[np.float64],
    start: NDArray[np.float64],
    features: list[list[int]],
    feature_names: tuple[str, ...],
    labels: list[Any],
) -> FiniteMDP:
    """Build an MDP from the states that the start can lead to, numbered in their old order."""
    possible = probability > 0.0
    reached = start > 0.0
    while True:
        onward = possible & reached[state] & ~reached[next_state]
        if not onward.any():
            break
        reached[next_state[onward]] = True
    kept = possible & reached[state]
    new_number = np.cumsum(reached) - 1
    old = np.flatnonzero(reached)
    return FiniteMDP.from_triples(
        old.size,
        num_actions,
        new_number[state[kept]],
        action[kept],
        new_number[next_state[kept]],
        probability[kept],
        reward[kept],
        [features[s] for s in old],
        feature_names=feature_names,
        start=start[old],
        labels=[labels[s] for s in old],
    )


def _all_in_range(states: NDArray[Any], num_states: int) -> bool:
    return bool(((states >= 0) & (states < num_states)).all())


def _check_probability(name: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name}={value} is not a probability; use a number from 0 to 1")
