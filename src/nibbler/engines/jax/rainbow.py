"""Rainbow's training loop as compiled programs: acting, environment, replay and updates without the host.

When to act, learn and copy the target network depends on the step count alone, so the host schedules it:
compiled code has no branches, and a chunk between two copies of the target network is one program
(`cycles`). The order within step t is DQN Zoo's: take a_t, see R_{t+1} and x_{t+1}, choose a_{t+1}, store,
and then learn if it is time to.
"""

import operator
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from nibbler.agents.rainbow import RainbowConfig
from nibbler.engines.jax import environment as environments
from nibbler.engines.jax import replay as memory
from nibbler.engines.jax.environment import Sizes, Tables
from nibbler.engines.jax.learning import (
    Adam,
    UpdateNoise,
    adam_step,
    clip_scale,
    gradients,
    init_adam,
    priorities,
)
from nibbler.engines.jax.network import (
    ACTING,
    ONLINE,
    ONLINE_NEXT,
    TARGET,
    Network,
    action_values,
    atoms,
    draw_noise,
    init_network,
    logits_of_active,
)


class Scalars(NamedTuple):
    """The numbers of a config that do not shape the compiled code, and so may differ between packed runs."""

    learning_rate: Any
    adam_epsilon: Any
    max_gradient_norm: Any
    discount: Any
    priority_exponent: Any
    uniform_share: Any
    importance_exponent_begin: Any
    importance_exponent_end: Any


class RainbowState(NamedTuple):
    """Everything a run is, but for its clock."""

    network: Network
    target_network: Network
    adam: Adam
    replay: memory.Replay
    states: jax.Array  # int32[boards]
    active: jax.Array  # int32[num_active], x_t
    action: jax.Array  # int32, a_t


class Run(NamedTuple):
    """What a run reads and never changes."""

    tables: Tables
    scalars: Scalars
    seed: jax.Array  # uint32[2]


def scalars_of(config: RainbowConfig) -> Scalars:
    """The numbers of a config that compiled code takes as arguments."""
    return Scalars(*(jnp.float32(getattr(config, name)) for name in Scalars._fields))


def shape_of(config: RainbowConfig) -> RainbowConfig:
    """The config with its scalars at their defaults: equal for configs that share compiled code."""
    defaults = RainbowConfig()
    return config.replace(**{name: getattr(defaults, name) for name in Scalars._fields})


class Loop:
    """The steps of Rainbow for one shape of network, replay and environment, as pure functions."""

    def __init__(self, config: RainbowConfig, sizes: Sizes) -> None:
        self.config = config
        self.sizes = sizes

    def init(self, run: Run) -> RainbowState:
        """The run at step 0, its first action chosen."""
        config, sizes = self.config, self.sizes
        network = init_network(config, sizes.num_features, sizes.num_actions, run.seed)
        states = environments.start(run.tables, sizes, environments.start_words(run.seed, sizes))
        active = environments.observe(run.tables, sizes, states)
        replay = memory.init_replay(
            config, sizes.num_features, sizes.num_actions, run.scalars.priority_exponent
        )
        replay = memory.write_observation(replay, jnp.uint32(0), self.packed(active))
        return RainbowState(
            network=network,
            target_network=copy_network(network),
            adam=init_adam(network),
            replay=replay,
            states=states,
            active=active,
            action=self.act(network, run.seed, jnp.uint32(0), active),
        )

    def packed(self, active: jax.Array) -> jax.Array:
        """The observation with these active features, as the replay stores it."""
        return memory.pack(environments.dense(active, self.sizes.num_features))

    def act(self, network: Network, seed: jax.Array, step: jax.Array, active: jax.Array) -> jax.Array:
        """The action of the largest value under fresh noise."""
        noise = draw_noise(self.config, self.sizes.num_actions, seed, step, ACTING)
        values = action_values(logits_of_active(network, noise, active), atoms(self.config))
        return jnp.argmax(values).astype(jnp.int32)

    def step(self, state: RainbowState, run: Run, step: jax.Array) -> tuple[RainbowState, jax.Array]:
        """One step of environment and policy, remembered; no learning."""
        words = environments.transition_words(run.seed, self.sizes, step)
        states, reward = environments.step_environment(
            run.tables, self.sizes, state.states, state.action, words
        )
        active = environments.observe(run.tables, self.sizes, states)
        replay = memory.write_outcome(state.replay, step, state.action, reward)
        replay = memory.write_observation(replay, step + 1, self.packed(active))
        action = self.act(state.network, run.seed, step + 1, active)
        return state._replace(replay=replay, states=states, active=active, action=action), reward

    def learn(self, state: RainbowState, run: Run, step: jax.Array) -> RainbowState:
        """One update from a batch, after `step` steps."""
        config, sizes, scalars = self.config, self.sizes, run.scalars
        replay = memory.add_recent(config, state.replay, step, scalars.priority_exponent)
        drawn = memory.draw_transitions(config, replay, run.seed, step, scalars.uniform_share)
        weights = memory.importance_weights(
            config,
            drawn.probabilities,
            step,
            scalars.importance_exponent_begin,
            scalars.importance_exponent_end,
        )
        batch = memory.read_transitions(config, replay, drawn.numbers, sizes.num_features, scalars.discount)
        purposes = jnp.array([ONLINE, ONLINE_NEXT, TARGET], jnp.uint32)
        draws = jax.vmap(lambda purpose: draw_noise(config, sizes.num_actions, run.seed, step, purpose))(
            purposes
        )
        noise = UpdateNoise(*(jax.tree.map(operator.itemgetter(i), draws) for i in range(3)))
        gradient, each = gradients(state.network, state.target_network, batch, weights, noise, atoms(config))
        network, adam = adam_step(
            state.network,
            state.adam,
            gradient,
            clip_scale(gradient, scalars.max_gradient_norm),
            scalars.learning_rate,
            scalars.adam_epsilon,
        )
        # Weights are never negative. Asking shows XLA that the old priorities are read before they change;
        # otherwise it copies them all, to change the copy.
        each = jnp.where(weights >= 0.0, each, 0.0)
        replay = memory.update_priorities(replay, drawn.leaves, priorities(each), scalars.priority_exponent)
        return state._replace(network=network, adam=adam, replay=replay)

    def steps(
        self, state: RainbowState, run: Run, step: jax.Array, count: jax.Array
    ) -> tuple[RainbowState, jax.Array]:
        """`count` steps without learning; the sum of their rewards."""

        def one(i: jax.Array, carry: tuple[RainbowState, jax.Array]) -> tuple[RainbowState, jax.Array]:
            state, earned = carry
            state, reward = self.step(state, run, step + i)
            return state, earned + reward

        return jax.lax.fori_loop(jnp.uint32(0), count, one, (state, jnp.float32(0.0)))

    def cycles(
        self, state: RainbowState, run: Run, step: jax.Array, count: jax.Array
    ) -> tuple[RainbowState, jax.Array]:
        """`count` times `learn_period` steps and an update; the sum of the rewards."""
        period = jnp.uint32(self.config.learn_period)

        def one(i: jax.Array, carry: tuple[RainbowState, jax.Array]) -> tuple[RainbowState, jax.Array]:
            state, earned = carry
            begin = step + i * period
            state, rewards = jax.lax.scan(
                lambda state, t: self.step(state, run, t),
                state,
                begin + jnp.arange(self.config.learn_period, dtype=jnp.uint32),
            )
            return self.learn(state, run, begin + period), earned + rewards.sum()

        return jax.lax.fori_loop(jnp.uint32(0), count, one, (state, jnp.float32(0.0)))


def copy_network(network: Network) -> Network:
    """The same network in memory of its own."""
    copied: Network = jax.tree.map(jnp.copy, network)
    return copied


class Programs(NamedTuple):
    """The compiled parts of a `Loop`; `steps`, `cycles` and `learn` take over the buffers of their state."""

    init: Callable[..., RainbowState]
    steps: Callable[..., tuple[RainbowState, jax.Array]]
    cycles: Callable[..., tuple[RainbowState, jax.Array]]
    learn: Callable[..., RainbowState]
    copy_network: Callable[[Network], Network]


@lru_cache(maxsize=32)
def compile_loop(shape: RainbowConfig, sizes: Sizes, packed: bool, shared_tables: bool = True) -> Programs:
    """Programs for one run, or (packed) for several side by side, with tables in common or one set each."""
    loop = Loop(shape, sizes)
    donate = partial(jax.jit, donate_argnums=0)
    if not packed:
        return Programs(
            init=jax.jit(loop.init),
            steps=donate(loop.steps),
            cycles=donate(loop.cycles),
            learn=donate(loop.learn),
            copy_network=jax.jit(copy_network),
        )
    each = Run(tables=None if shared_tables else 0, scalars=0, seed=0)  # type: ignore[arg-type]
    return Programs(
        init=jax.jit(jax.vmap(loop.init, in_axes=(each,))),
        steps=donate(jax.vmap(loop.steps, in_axes=(0, each, None, None))),
        cycles=donate(jax.vmap(loop.cycles, in_axes=(0, each, None, None))),
        learn=donate(jax.vmap(loop.learn, in_axes=(0, each, None))),
        copy_network=jax.jit(copy_network),
    )


class Segment(NamedTuple):
    """A stretch of steps that one program does."""

    begin: int
    length: int  # steps
    cycles: bool  # whole cycles of steps and an update, or steps alone
    learn: bool  # an update follows (that of a cycle whose steps were begun elsewhere)
    copy_target: bool  # and then the target network is renewed

    @property
    def end(self) -> int:
        """The step count after it."""
        return self.begin + self.length


def schedule(config: RainbowConfig, begin: int, end: int) -> Iterator[Segment]:
    """Divide the steps from `begin` to `end` into segments; nothing else decides when to learn or copy."""
    period, target_period = config.learn_period, config.target_period
    learning_from = config.first_update - period
    step = begin
    while step < end:
        if step < learning_from:
            segment = Segment(step, min(end, learning_from) - step, False, False, False)
        elif step % period == 0 and end - step >= period:
            limit = min(end, (step // target_period + 1) * target_period)
            count = (limit - step) // period * period
            segment = Segment(step, count, True, False, (step + count) % target_period == 0)
        else:
            stop = min(end, (step // period + 1) * period)
            learns = stop % period == 0
            segment = Segment(step, stop - step, False, learns, learns and stop % target_period == 0)
        yield segment
        step = segment.end
