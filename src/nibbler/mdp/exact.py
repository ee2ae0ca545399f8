"""Exact answers from the tables: what a policy earns, how often each bit is on, what would be optimal.

Under a policy that ignores the state, such as the random one, each component of an environment is a Markov
chain by itself, whatever the others do. Rewards are summed, so the joint rate is the sum of theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, eye_array
from scipy.sparse.csgraph import breadth_first_order, connected_components
from scipy.sparse.linalg import spsolve

from nibbler.mdp import philox, simulate
from nibbler.mdp.environment import Environment
from nibbler.mdp.finite_mdp import FiniteMDP
from nibbler.mdp.tables import PROBABILITY_TOLERANCE

Policy = str | ArrayLike
Answer = TypeVar("Answer")

# A sweep of value iteration is far cheaper than the exact evaluation of a policy, and most of the
# policy is right after a few.
_WARM_UP_SWEEPS = 50


def policy_matrix(mdp: FiniteMDP, policy: Policy = "random") -> NDArray[np.float64]:
    """A policy as probabilities[S, A].

    A policy is "random", or S whole numbers (an action per state), or A probabilities (the same in every
    state), or S x A probabilities.
    """
    if isinstance(policy, str):
        if policy != "random":
            raise ValueError(f"policy {policy!r} is unknown; use 'random' or an array")
        return np.full((mdp.num_states, mdp.num_actions), 1.0 / mdp.num_actions)
    given = np.asarray(policy)
    if given.dtype.kind in "iu" and given.shape == (mdp.num_states,):
        if not ((given >= 0) & (given < mdp.num_actions)).all():
            raise ValueError(f"the policy's actions must be from 0 to {mdp.num_actions - 1}")
        return np.eye(mdp.num_actions)[given]
    if given.dtype.kind == "f" and given.shape == (mdp.num_actions,):
        given = np.broadcast_to(given, (mdp.num_states, mdp.num_actions))
    if given.shape != (mdp.num_states, mdp.num_actions):
        raise ValueError(
            f"a policy of shape {given.shape} does not fit; give {mdp.num_states} actions, {mdp.num_actions} "
            f"probabilities, or {mdp.num_states} x {mdp.num_actions} probabilities"
        )
    chances = given.astype(np.float64)
    wrong = (chances < 0.0).any(axis=1) | ~(np.abs(chances.sum(axis=1) - 1.0) <= PROBABILITY_TOLERANCE)
    if wrong.any():
        state = int(np.flatnonzero(wrong)[0])
        raise ValueError(
            f"{mdp.name_state(state)}: the policy's probabilities must be in [0, 1] and sum to 1"
        )
    return chances


def chain(mdp: FiniteMDP, policy: Policy = "random") -> tuple[csr_array, NDArray[np.float64]]:
    """The Markov chain that a policy makes of an MDP: transition matrix[S, S] and expected reward[S]."""
    weight = policy_matrix(mdp, policy).reshape(-1)[mdp.row] * mdp.probability
    state = mdp.row // mdp.num_actions
    matrix = csr_array((weight, (state, mdp.next_state)), shape=(mdp.num_states, mdp.num_states))
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    reward = np.zeros(mdp.num_states)
    np.add.at(reward, state, weight * mdp.reward)
    return matrix, reward


def stationary_distribution(mdp: FiniteMDP, policy: Policy = "random") -> NDArray[np.float64]:
    """The long-run fraction of time in each state under a policy, from the start distribution.

    Raises where that depends on chance: when the start can lead to several sets of states never left.
    """
    matrix, _ = chain(mdp, policy)
    return _stationary(mdp, matrix)


def _stationary(mdp: FiniteMDP, matrix: csr_array) -> NDArray[np.float64]:
    members = _recurrent_class(mdp, matrix)
    distribution = np.zeros(mdp.num_states)
    if members.size == 1:
        distribution[members] = 1.0
        return distribution
    inside = matrix[members][:, members]
    # Fix the weight of the first state at one; the balance of the others then determines them.
    balance = (eye_array(members.size) - inside.T).tocsc()
    others = spsolve(balance[1:, 1:], -balance[1:, [0]].toarray().reshape(-1))
    weights = np.concatenate([[1.0], np.maximum(np.atleast_1d(others), 0.0)])
    distribution[members] = weights / weights.sum()
    return distribution


def _recurrent_class(mdp: FiniteMDP, matrix: csr_array) -> NDArray[np.int64]:
    """The states, reachable from the start, that a chain ends up among."""
    reached = np.zeros(mdp.num_states, dtype=bool)
    for start in np.flatnonzero(mdp.start_probability):
        if not reached[start]:
            reached[breadth_first_order(matrix, int(start), return_predecessors=False)] = True
    _, part = connected_components(matrix, directed=True, connection="strong")
    source, target = matrix.nonzero()
    leaves = np.unique(part[source[part[source] != part[target]]])
    closed = np.setdiff1d(np.unique(part[reached]), leaves)
    if closed.size > 1:
        ends = sorted(int(np.flatnonzero(reached & (part == p))[0]) for p in closed)
        raise ValueError(
            f"the chain is not ergodic: it can end up at {mdp.name_state(ends[0])} or at "
            f"{mdp.name_state(ends[1])} for good; add transitions between them, or start on one side"
        )
    return np.flatnonzero(part == closed[0])


def reward_rate(mdp_or_env: FiniteMDP | Environment, policy: Policy = "random") -> float:
    """The exact mean reward per step of a policy in the long run.

    For an environment the policy must ignore the state: "random", or a probability per action.
    """
    if isinstance(mdp_or_env, Environment):
        _check_stateless(mdp_or_env, policy)
        rates = _per_component(mdp_or_env, lambda component: reward_rate(component, policy))
        return float(sum(rates))
    matrix, reward = chain(mdp_or_env, policy)
    return float(_stationary(mdp_or_env, matrix) @ reward)


def feature_frequencies(
    mdp_or_env: FiniteMDP | Environment, policy: Policy = "random"
) -> NDArray[np.float64]:
    """The exact fraction of time that each binary feature is on; for an environment, in observed order."""
    if isinstance(mdp_or_env, Environment):
        _check_stateless(mdp_or_env, policy)
        parts = _per_component(mdp_or_env, lambda component: feature_frequencies(component, policy))
        observed = np.empty(mdp_or_env.num_features)
        observed[mdp_or_env.permutation] = np.concatenate(parts)
        return observed
    time = stationary_distribution(mdp_or_env, policy)
    frequency = np.zeros(mdp_or_env.num_features)
    np.add.at(frequency, mdp_or_env.feature_index, np.repeat(time, np.diff(mdp_or_env.feature_start)))
    return frequency


def discounted_values(
    mdp: FiniteMDP, policy: Policy = "random", discount: float = 0.99
) -> NDArray[np.float64]:
    """The expected discounted sum of rewards from each state under a policy; zero from terminal states."""
    _check_discount(mdp, discount)
    matrix, reward = chain(mdp, policy)
    return _evaluate(mdp, matrix, reward, discount)


def _evaluate(
    mdp: FiniteMDP, matrix: csr_array, reward: NDArray[np.float64], discount: float
) -> NDArray[np.float64]:
    weight = _continuation(mdp, discount)
    system = (eye_array(mdp.num_states) - matrix.multiply(weight[:, None])).tocsc()
    return np.atleast_1d(spsolve(system, reward))


def action_values(mdp: FiniteMDP, values: NDArray[np.float64], discount: float) -> NDArray[np.float64]:
    """One step of lookahead: the expected reward plus discounted value of each action, Q[S, A]."""
    weight = _continuation(mdp, discount)[mdp.row // mdp.num_actions]
    gain = mdp.probability * (mdp.reward + weight * values[mdp.next_state])
    return np.add.reduceat(gain, mdp.outcome_start[:-1]).reshape(mdp.num_states, mdp.num_actions)


def optimal_values(mdp: FiniteMDP, discount: float = 0.99) -> NDArray[np.float64]:
    """The optimal discounted action values, Q[S, A], by policy iteration (exact up to rounding)."""
    _check_discount(mdp, discount)
    if discount == 1.0:
        raise ValueError("optimal_values needs discount < 1; see optimal_rate for the undiscounted problem")
    every = np.arange(mdp.num_states)
    values = np.zeros(mdp.num_states)
    for _ in range(_WARM_UP_SWEEPS):
        values = action_values(mdp, values, discount).max(axis=1)
    policy = action_values(mdp, values, discount).argmax(axis=1)
    while True:
        q = action_values(mdp, discounted_values(mdp, policy, discount), discount)
        # Change an action only for a real gain: rounding could make equal actions take turns for ever.
        slack = 1e-11 * max(1.0, float(np.abs(q).max()))
        better = q.max(axis=1) > q[every, policy] + slack
        if not better.any():
            return q
        policy = np.where(better, q.argmax(axis=1), policy)


def optimal_rate(mdp: FiniteMDP, tolerance: float = 1e-9) -> float:
    """The largest mean reward per step that any policy of one component earns in the long run.

    The tolerance is relative to the largest reward. Raises where the answer would depend on the start.
    """
    _require_one_destination(mdp)
    largest = float(np.abs(mdp.reward).max())
    values = np.zeros(mdp.num_states)
    # Staying put with probability 1/2 halves the rate and removes periodicity, so that this converges.
    while True:
        updated = 0.5 * (action_values(mdp, values, 1.0).max(axis=1) + values)
        change = updated - values
        low, high = 2.0 * float(change.min()), 2.0 * float(change.max())
        if high - low <= tolerance * largest:
            return 0.5 * (low + high)
        values = updated - updated[0]


def _require_one_destination(mdp: FiniteMDP) -> None:
    """Raise unless every policy ends up among states that can all reach one another."""
    matrix, _ = chain(mdp, "random")
    # States that some policy may stay among without ever meeting those where the random policy ends up.
    elsewhere = np.ones(mdp.num_states, dtype=bool)
    elsewhere[_recurrent_class(mdp, matrix)] = False
    while elsewhere.any():
        stays = np.logical_and.reduceat(elsewhere[mdp.next_state], mdp.outcome_start[:-1])
        remaining = elsewhere & stays.reshape(mdp.num_states, -1).any(axis=1)
        if np.array_equal(remaining, elsewhere):
            place = mdp.name_state(int(np.flatnonzero(elsewhere)[0]))
            raise ValueError(
                f"the MDP is not ergodic: a policy can stay at {place} and what it leads to, or leave for "
                "good; add a way back"
            )
        elsewhere = remaining


def uncoupled_bound(env: Environment) -> float:
    """An upper bound on the reward rate of any policy: what the components would earn with their own actions.

    Each component is solved by itself for the best mean reward; a broadcast action cannot serve them all.
    """
    return float(sum(_per_component(env, optimal_rate)))


def planner_tables(env: Environment, discount: float = 0.99) -> NDArray[np.float64]:
    """Optimal action values of every different component, one per row of `env.tables`.

    The value of action a of board b in state s is at row_base[b] + s * num_actions + a.
    """
    different, _ = env.unique_components
    return np.concatenate([optimal_values(component, discount).reshape(-1) for component in different])


class Planner:
    """A policy with full knowledge: the action with the largest sum of the components' optimal action values.

    It knows every table and sees the components' states, so it is a reference line, not a learner.
    """

    def __init__(self, env: Environment, discount: float = 0.99, epsilon: float = 0.0, seed: int = 0) -> None:
        if not 0.0 <= epsilon <= 1.0:
            raise ValueError(f"epsilon={epsilon} is not a probability; use a number from 0 to 1")
        if env.coupling != "broadcast":
            raise ValueError("the planner needs one broadcast action; solve independent components alone")
        self.env = env
        self.epsilon = epsilon
        self.seed = np.uint64(philox.check_seed(seed))
        self.values = planner_tables(env, discount)

    def act(self, states: ArrayLike, step: int = 0) -> int:
        """The action for the components' states; random numbers are those of `step`."""
        given = np.asarray(states)
        sizes = [component.num_states for component in self.env.components]
        if given.shape != (self.env.num_components,) or not ((given >= 0) & (given < sizes)).all():
            raise ValueError(f"states must be {self.env.num_components} state numbers, one per component")
        words = philox.draw(self.seed, philox.ACTION, step, 0)
        if words[0] < simulate.epsilon_threshold(self.epsilon):
            return int(simulate.uniform_action(words[1], self.env.num_actions))
        return int(simulate.greedy_action(self.env.tables, given.astype(np.int32), self.values))

    def simulate(self, num_steps: int) -> float:
        """The mean reward per step over a run from the start."""
        tables = self.env.tables
        states = np.empty(self.env.num_components, dtype=np.int32)
        active = np.empty(self.env.max_active, dtype=np.int32)
        simulate.start(tables, states, self.seed)
        total = simulate.simulate_greedy(
            tables, states, self.values, self.epsilon, self.seed, 0, num_steps, active
        )
        return total / num_steps


def _per_component(env: Environment, answer: Callable[[FiniteMDP], Answer]) -> list[Answer]:
    """An answer for every component, computed once for those that are alike."""
    different, kind = env.unique_components
    answers = [answer(component) for component in different]
    return [answers[index] for index in kind]


def _continuation(mdp: FiniteMDP, discount: float) -> NDArray[np.float64]:
    """The discount after each state; an episode's value ends with it."""
    weight = np.full(mdp.num_states, discount)
    if mdp.terminal is not None:
        weight[mdp.terminal] = 0.0
    return weight


def _check_stateless(env: Environment, policy: Any) -> None:
    if isinstance(policy, str):
        return
    if env.coupling != "broadcast" or np.shape(policy) != (env.num_actions,):
        raise ValueError(
            "exact answers for an environment need a policy that ignores the state: 'random', or under a "
            f"broadcast action {env.num_actions} probabilities"
        )


def _check_discount(mdp: FiniteMDP, discount: float) -> None:
    if not 0.0 <= discount <= 1.0 or (discount == 1.0 and mdp.terminal is None):
        raise ValueError(f"discount={discount} is out of range; use 0 <= discount < 1")
