"""Nibbler as one would first write it in JAX: dense, a scan over steps, environment included, one run.

It is what the engines' speeds are compared with, and not an engine: float32, JAX's default precision, nothing
sparse or lazy, no checkpoints. Algorithms 1 to 7 in the default reading, with the names of the boxes in
`nibbler.agents.nibbler`, against which a test holds it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from nibbler.agents.config import NibblerConfig
from nibbler.agents.policy import exploration_threshold
from nibbler.engines.initial import initial_nibbler_state, select_action, weight_spread
from nibbler.engines.jax import environment as environments
from nibbler.engines.jax.philox import draw, draw_words, multiply_high, split_seed
from nibbler.mdp.environment import Environment
from nibbler.mdp.philox import ACTION, HIDDEN


class Weights(NamedTuple):
    """Parameters of the main learner or of the answers, or their momenta."""

    v: Any
    q: Any
    hidden: Any = None  # w_u [h, g, d] of the answers


class State(NamedTuple):
    """All that changes from step to step."""

    main_base: Weights  # v [m], q [A, m]
    main_hidden: Weights  # v [h, d], q [A, h, d]
    answers: Weights  # v [h, d], q [A, h, d]
    main_base_momentum: Weights
    main_hidden_momentum: Weights
    answers_momentum: Weights
    support: jax.Array  # [h, m]
    discovery: jax.Array  # [m]
    inputs: jax.Array  # K_L int32[h, g]
    is_input: jax.Array  # the same as masks, bool[h, m]
    cumulants: jax.Array  # C_L int32[h]
    is_cumulant: jax.Array  # bool[m]
    boards: jax.Array  # the environment's states
    x: jax.Array  # x_t, dense 0/1
    action: jax.Array  # a_t


def co_opt(w: Any, alpha: float, gradient: Any, momentum: Any, nu: float) -> tuple[Any, Any]:
    """Algorithm 7 on any tree of weights: SGD with momentum."""
    momentum = jax.tree.map(lambda m, slope: nu * m + (1.0 - nu) * slope, momentum, gradient)
    return jax.tree.map(lambda weight, m: weight - alpha * m, w, momentum), momentum


def co_opt_taken(
    w: Weights, alpha: float, gradient: Weights, momentum: Weights, nu: float, action: jax.Array
) -> tuple[Weights, Weights]:
    """`co_opt` with the gradient of the taken action's q; the other actions' weights and momenta stay."""
    taken, taken_momentum = co_opt(
        w._replace(q=w.q[action]), alpha, gradient, momentum._replace(q=momentum.q[action]), nu
    )
    return (
        taken._replace(q=w.q.at[action].set(taken.q)),
        taken_momentum._replace(q=momentum.q.at[action].set(taken_momentum.q)),
    )


def nonlinear_features(hidden: jax.Array, inputs: jax.Array, x: jax.Array) -> jax.Array:
    """x^e [h, d]: the features that all answers construct from x."""
    return jax.nn.relu(jnp.einsum("hg,hgd->hd", x[inputs], hidden))


def update_main(
    state: State,
    config: NibblerConfig,
    e_t: jax.Array,
    reward: jax.Array,
    x_next: jax.Array,
    e_next: jax.Array,
) -> State:
    """Algorithm 2: main state and action values, both towards R_{t+1} + gamma V(x_{t+1})."""
    base, hidden, a = state.main_base, state.main_hidden, state.action
    target = reward + config.discount * (base.v @ x_next + jnp.vdot(hidden.v, e_next))
    error_v = target - (base.v @ state.x + jnp.vdot(hidden.v, e_t))
    error_q = target - (base.q[a] @ state.x + jnp.vdot(hidden.q[a], e_t))
    step = partial(co_opt_taken, nu=config.momentum, action=a)
    base, base_momentum = step(
        base, config.main_alpha, Weights(-error_v * state.x, -error_q * state.x), state.main_base_momentum
    )
    hidden, hidden_momentum = step(
        hidden, config.main_alpha, Weights(-error_v * e_t, -error_q * e_t), state.main_hidden_momentum
    )
    return state._replace(
        main_base=base,
        main_base_momentum=base_momentum,
        main_hidden=hidden,
        main_hidden_momentum=hidden_momentum,
    )


def update_answers(
    state: State, config: NibblerConfig, cumulants_next: jax.Array, e_next: jax.Array
) -> State:
    """Algorithm 3: heads and nonlinear features of every answer, by the gradient of its loss."""
    answers, a = state.answers, state.action
    target = cumulants_next + config.discount * (answers.v * e_next).sum(axis=1)

    def loss(taken: Weights) -> jax.Array:
        e_t = nonlinear_features(taken.hidden, state.inputs, state.x)
        error_v = target - (taken.v * e_t).sum(axis=1)
        error_q = target - (taken.q * e_t).sum(axis=1)
        return 0.5 * (error_v**2 + error_q**2).sum()

    gradient = jax.grad(loss)(answers._replace(q=answers.q[a]))
    answers, momentum = co_opt_taken(
        answers, config.answer_alpha, gradient, state.answers_momentum, config.momentum, a
    )
    return state._replace(answers=answers, answers_momentum=momentum)


def incremental_top_k(
    selected: jax.Array, is_selected: jax.Array, threshold: float, utility: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Algorithm 6: list and mask after at most one swap, whether there was one, and its position."""
    kept = jnp.where(is_selected, utility, jnp.inf)
    others = jnp.where(is_selected, -jnp.inf, utility)
    low, high = jnp.argmin(kept), jnp.argmax(others)
    changed = kept[low] + threshold < others[high]
    position = jnp.argmax(selected == low)
    selected = selected.at[position].set(jnp.where(changed, high, low).astype(selected.dtype))
    is_selected = is_selected.at[low].set(~changed).at[high].set(changed | is_selected[high])
    return selected, is_selected, changed, position


def select_inputs(state: State, config: NibblerConfig, x_next: jax.Array, cumulants_next: jax.Array) -> State:
    """Algorithm 4: what each answer sees, by the weights of a linear answer to its question."""
    top_k = jax.vmap(incremental_top_k, in_axes=(0, 0, None, 0))
    inputs, is_input, changed, position = top_k(
        state.inputs, state.is_input, config.input_threshold, jnp.abs(state.support)
    )
    clear = jax.vmap(lambda w, changed, p: w.at[p].set(jnp.where(changed, 0.0, w[p])))
    error = cumulants_next + config.discount * (state.support @ x_next) - state.support @ state.x
    return state._replace(
        inputs=inputs,
        is_input=is_input,
        answers=state.answers._replace(hidden=clear(state.answers.hidden, changed, position)),
        answers_momentum=state.answers_momentum._replace(
            hidden=clear(state.answers_momentum.hidden, changed, position)
        ),
        support=state.support + config.linear_alpha * error[:, None] * state.x,
    )


def select_cumulants(
    state: State, config: NibblerConfig, reward: jax.Array, fresh_rows: Callable[[jax.Array], jax.Array]
) -> State:
    """Algorithm 5: the features asked about, by the weights of a linear one-step reward model."""
    cumulants, is_cumulant, changed, question = incremental_top_k(
        state.cumulants, state.is_cumulant, config.cumulant_threshold, jnp.abs(state.discovery)
    )
    hidden, momentum = state.answers.hidden, state.answers_momentum.hidden
    hidden = hidden.at[question].set(jnp.where(changed, fresh_rows(question), hidden[question]))
    momentum = momentum.at[question].set(jnp.where(changed, 0.0, momentum[question]))
    error = reward - state.discovery @ state.x
    return state._replace(
        cumulants=cumulants,
        is_cumulant=is_cumulant,
        answers=state.answers._replace(hidden=hidden),
        answers_momentum=state.answers_momentum._replace(hidden=momentum),
        discovery=state.discovery + config.linear_alpha * error * state.x,
    )


class PlainNibbler:
    """One run: `advance(steps)` is one compiled call, the same number of steps each time."""

    def __init__(self, env: Environment, config: NibblerConfig, seed: int) -> None:
        if (config.swapped_input, config.changed_question) != ("zero", "random") or (
            config.hidden_bias or config.linear_momentum
        ):
            raise ValueError("this Nibbler knows the default reading alone; use an engine for others")
        self.config = config
        self.step = 0
        self._tables, self._sizes = environments.load_tables(env)
        self._seed = jnp.asarray(split_seed(seed))
        self.state = self._initial(seed)
        self._scan = jax.jit(self._steps, static_argnums=3, donate_argnums=0)

    def advance(self, steps: int) -> float:
        """Run that many steps and return the sum of their rewards."""
        self.state, rewards = self._scan(self.state, self._tables, jnp.uint32(self.step), steps)
        self.step += steps
        return float(rewards.sum())

    def _initial(self, seed: int) -> State:
        sizes = self._sizes
        given = initial_nibbler_state(self.config, sizes.num_features, sizes.num_actions, seed)
        start = {name: jnp.asarray(array, jnp.float32) for name, array in given.items()}
        base = Weights(start["main_v_base"], start["main_q_base"])
        hidden = Weights(start["main_v_hidden"], start["main_q_hidden"])
        answers = Weights(start["answer_v"], start["answer_q"].swapaxes(0, 1), start["hidden_weights"])
        inputs = jnp.asarray(given["inputs"], jnp.int32)
        cumulants = jnp.asarray(given["cumulants"], jnp.int32)
        questions = jnp.arange(self.config.num_questions)[:, None]
        boards = environments.start(self._tables, sizes, environments.start_words(self._seed, sizes))
        zeros = partial(jax.tree.map, jnp.zeros_like)
        return State(
            main_base=base,
            main_hidden=hidden,
            answers=answers,
            main_base_momentum=zeros(base),
            main_hidden_momentum=zeros(hidden),
            answers_momentum=zeros(answers),
            support=start["support"],
            discovery=start["discovery"],
            inputs=inputs,
            is_input=jnp.zeros(start["support"].shape, bool).at[questions, inputs].set(True),
            cumulants=cumulants,
            is_cumulant=jnp.zeros(start["discovery"].shape, bool).at[cumulants].set(True),
            boards=boards,
            x=self._observe(self._tables, boards),
            # All values are zero at first.
            action=jnp.int32(select_action(np.zeros(sizes.num_actions), self.config.epsilon, seed, 0)),
        )

    def _observe(self, tables: environments.Tables, boards: jax.Array) -> jax.Array:
        active = environments.observe(tables, self._sizes, boards)
        return environments.dense(active, self._sizes.num_features).astype(jnp.float32)

    def _steps(
        self, state: State, tables: environments.Tables, begin: jax.Array, steps: int
    ) -> tuple[State, jax.Array]:
        times = begin + jnp.arange(steps, dtype=jnp.uint32)
        return jax.lax.scan(partial(self._nibbler_step, tables), state, times)

    def _nibbler_step(
        self, tables: environments.Tables, state: State, step: jax.Array
    ) -> tuple[State, jax.Array]:
        """Algorithm 1: one step of environment and agent."""
        words = environments.transition_words(self._seed, self._sizes, step)
        boards, reward = environments.step_environment(tables, self._sizes, state.boards, state.action, words)
        x_next = self._observe(tables, boards)
        e_t = nonlinear_features(state.answers.hidden, state.inputs, state.x)
        e_next = nonlinear_features(state.answers.hidden, state.inputs, x_next)
        values = state.main_base.q @ x_next + jnp.einsum("ahd,hd->a", state.main_hidden.q, e_next)
        a_next = self._select_action(values, step + 1)
        cumulants_next = x_next[state.cumulants]
        state = update_main(state, self.config, e_t, reward, x_next, e_next)
        state = update_answers(state, self.config, cumulants_next, e_next)
        state = select_inputs(state, self.config, x_next, cumulants_next)
        state = select_cumulants(state, self.config, reward, partial(self._fresh_rows, step + 1))
        return state._replace(boards=boards, x=x_next, action=a_next), reward

    def _select_action(self, values: jax.Array, step: jax.Array) -> jax.Array:
        words = draw_words(self._seed, ACTION, step, 2)
        random = multiply_high(words[1], jnp.uint32(values.shape[0])).astype(jnp.int32)
        below = exploration_threshold(self.config.epsilon)  # 2**32 where epsilon is 1
        explore = (below > 0) & (words[0] <= jnp.uint32(max(below, 1) - 1))
        return jnp.where(explore, random, jnp.argmax(values).astype(jnp.int32))

    def _fresh_rows(self, step: jax.Array, question: jax.Array) -> jax.Array:
        """New random w_u [g, d] for a question, the same as every engine draws."""
        g, d = self.config.inputs_per_question, self.config.hidden_units
        slots_per_row = -(-d // 4)
        first = question.astype(jnp.uint32) * jnp.uint32(g * slots_per_row)
        slots = first + jnp.arange(g * slots_per_row, dtype=jnp.uint32)
        words = draw(self._seed, HIDDEN, step, slots).reshape(g, -1)[:, :d]
        return ((words >> 8).astype(jnp.float32) * 2.0**-23 - 1.0) * weight_spread(g)
