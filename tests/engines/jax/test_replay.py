from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nibbler.agents.rainbow import RainbowConfig
from nibbler.engines.jax import replay as memory
from nibbler.engines.jax import sum_tree
from nibbler.engines.jax.philox import split_seed

FEATURES, ACTIONS = 70, 3
ONE = jnp.float32(1.0)
SEED = jnp.asarray(split_seed(6))


@pytest.fixture
def config() -> RainbowConfig:
    return RainbowConfig(
        batch_size=16, replay_capacity=37, min_replay=8, target_period=40, importance_steps=1_000
    )


write_observation = jax.jit(memory.write_observation)
write_outcome = jax.jit(memory.write_outcome)
add_recent = jax.jit(memory.add_recent, static_argnums=0)
update_priorities = jax.jit(memory.update_priorities)
draw_transitions = jax.jit(memory.draw_transitions, static_argnums=0)
read_transitions = jax.jit(memory.read_transitions, static_argnums=(0, 3))


class Stream:
    """A recorded stream in the replay, and the same as plain Python lists."""

    def __init__(self, config, steps, exponent=1.0):
        rng = np.random.default_rng(0)
        self.bits = rng.random((steps + 1, FEATURES)) < 0.3
        self.actions = rng.integers(0, ACTIONS, steps)
        self.rewards = rng.normal(size=steps).astype(np.float32)
        replay = memory.init_replay(config, FEATURES, ACTIONS, jnp.float32(exponent))
        replay = write_observation(replay, jnp.uint32(0), self.packed(0))
        for t in range(steps):
            replay = write_outcome(
                replay, jnp.uint32(t), jnp.int32(self.actions[t]), jnp.float32(self.rewards[t])
            )
            replay = write_observation(replay, jnp.uint32(t + 1), self.packed(t + 1))
            if (t + 1) % config.learn_period == 0 and t + 1 >= config.first_update:
                replay = add_recent(config, replay, jnp.uint32(t + 1), jnp.float32(exponent))
        self.replay = replay

    def packed(self, t):
        bits = np.zeros(memory.num_words(FEATURES) * 32, dtype=np.uint8)
        bits[:FEATURES] = self.bits[t]
        return np.packbits(bits, bitorder="little").view(np.uint32)

    def transitions(self, n, discount):
        """n-step transitions by a sliding window over the stream."""
        window = deque(maxlen=n)
        for t, reward in enumerate(self.rewards):
            window.append((self.bits[t], self.actions[t], reward))
            if len(window) == n:
                total = sum(discount**k * entry[2] for k, entry in enumerate(window))
                yield window[0][0], window[0][1], total, self.bits[t + 1]


@pytest.mark.parametrize("num_features", [1, 31, 32, 33, 112, 448])
def test_packing_round_trips(num_features):
    bits = (np.random.default_rng(0).random((5, num_features)) < 0.5).astype(np.uint8)
    words = jax.vmap(memory.pack)(jnp.asarray(bits))
    assert words.shape == (5, memory.num_words(num_features))
    assert words.dtype == jnp.uint32
    np.testing.assert_array_equal(memory.unpack(words, num_features), bits)


def test_paper_scale_takes_about_one_gigabyte():
    config = RainbowConfig()
    shapes = jax.eval_shape(lambda: memory.init_replay(config, 128 * 56, 3, ONE))
    size = sum(np.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
    assert size < 1.0e9


@pytest.mark.parametrize("steps", [20, 40, 100, 173])
def test_transitions_equal_a_sliding_window_also_after_the_ring_has_wrapped(config, steps):
    stream = Stream(config, steps)
    expected = list(stream.transitions(config.num_steps, 0.9))
    assert len(expected) == memory.transitions_made(config, steps)
    numbers = np.arange(max(0, len(expected) - config.replay_capacity), len(expected))
    batch = read_transitions(
        config, stream.replay, jnp.asarray(numbers, jnp.uint32), FEATURES, jnp.float32(0.9)
    )
    batch = jax.device_get(batch)
    for i, number in enumerate(numbers):
        bits, action, total, later = expected[number]
        np.testing.assert_array_equal(batch.observations[i], bits)
        np.testing.assert_array_equal(batch.next_observations[i], later)
        assert int(batch.actions[i]) == action
        assert float(batch.returns[i]) == pytest.approx(total, abs=1e-5)
        assert float(batch.discounts[i]) == pytest.approx(0.9**3, rel=1e-6)


def test_rewards_are_clipped_only_where_the_config_says_so(config):
    stream = Stream(config, 40)
    numbers = jnp.arange(10, dtype=jnp.uint32)
    clipped = read_transitions(config.replace(max_abs_reward=0.5), stream.replay, numbers, FEATURES, ONE)
    expected = [np.clip(stream.rewards[k : k + 3], -0.5, 0.5).sum() for k in range(10)]
    np.testing.assert_allclose(clipped.returns, expected, atol=1e-5)


@pytest.mark.parametrize("steps", [12, 20, 40, 100])
def test_tree_holds_exactly_the_live_transitions(config, steps):
    stream = Stream(config, steps)
    leaves = np.ravel(stream.replay.tree[0])
    live = min(memory.transitions_made(config, steps), config.replay_capacity)
    np.testing.assert_array_equal(leaves, np.arange(leaves.size) < live)


@pytest.mark.parametrize("steps", [16, 40, 100])
def test_drawn_numbers_belong_to_their_leaves_and_are_live(config, steps):
    stream = Stream(config, steps)
    drawn = draw_transitions(config, stream.replay, SEED, jnp.uint32(steps), jnp.float32(0.5))
    numbers, leaves = np.asarray(drawn.numbers, np.int64), np.asarray(drawn.leaves)
    made = memory.transitions_made(config, steps)
    np.testing.assert_array_equal(numbers % config.replay_capacity, leaves)
    assert (numbers < made).all()
    assert (numbers >= made - config.replay_capacity).all()


def with_priorities(config, steps, priorities, exponent):
    stream = Stream(config, steps, exponent)
    return update_priorities(
        stream.replay,
        jnp.arange(len(priorities)),
        jnp.asarray(priorities, jnp.float32),
        jnp.float32(exponent),
    )


def test_probabilities_mix_priority_to_its_exponent_with_a_uniform_share(config):
    priorities = np.random.default_rng(1).random(37) * 4
    replay = with_priorities(config, 100, priorities, 0.5)
    drawn = draw_transitions(config, replay, SEED, jnp.uint32(100), jnp.float32(0.2))
    expected = 0.8 * priorities**0.5 / (priorities**0.5).sum() + 0.2 / 37
    np.testing.assert_allclose(drawn.probabilities, expected[np.asarray(drawn.leaves)], rtol=1e-5)


def test_draws_occur_as_often_as_their_probabilities_say(config):
    priorities = np.random.default_rng(1).random(37) * 4
    priorities[5] = 0.0  # reached by the uniform share alone
    replay = with_priorities(config, 100, priorities, 0.5)
    draw = jax.jit(
        jax.vmap(
            lambda seed: (
                memory.draw_transitions(config, replay, seed, jnp.uint32(100), jnp.float32(0.2)).leaves
            )
        )
    )
    seeds = jnp.asarray(np.stack([split_seed(s) for s in range(3_000)]))
    counts = np.bincount(np.ravel(draw(seeds)), minlength=37)
    expected = 0.8 * priorities**0.5 / (priorities**0.5).sum() + 0.2 / 37
    deviation = (counts - expected * counts.sum()) / np.sqrt(expected * counts.sum())
    assert np.abs(deviation).max() < 4.5


def test_a_priority_of_zero_is_never_drawn_whatever_the_exponent(config):
    priorities = np.zeros(37)
    priorities[[3, 20]] = [1e-4, 50.0]
    replay = with_priorities(config, 100, priorities, 0.0)
    drawn = draw_transitions(config, replay, SEED, jnp.uint32(100), jnp.float32(0.0))
    assert set(np.asarray(drawn.leaves)) == {3, 20}


def test_new_transitions_get_the_largest_priority_ever_seen(config):
    replay = with_priorities(config, 100, [7.0, 2.0, 3.0], 0.5)
    replay = update_priorities(replay, jnp.array([0]), jnp.array([1.0]), jnp.float32(0.5))
    assert float(replay.max_priority) == 7.0
    replay = add_recent(config, replay, jnp.uint32(104), jnp.float32(0.5))
    newest = np.arange(98, 102) % config.replay_capacity  # 104 steps make transitions 0 to 101
    np.testing.assert_allclose(sum_tree.get(replay.tree, jnp.asarray(newest)), 7.0**0.5, rtol=1e-6)


def test_importance_weights_follow_their_definition_and_anneal(config):
    probabilities = np.array([0.001, 0.02, 0.5])
    for step, size, progress in ((10, 8, 0.0), (506, 37, (504 - 8) / (1_000 - 8)), (5_000, 37, 1.0)):
        exponent = 0.4 + 0.6 * progress
        expected = (1 / (size * probabilities)) ** exponent
        found = memory.importance_weights(
            config, jnp.asarray(probabilities, jnp.float32), jnp.uint32(step), jnp.float32(0.4), ONE
        )
        np.testing.assert_allclose(found, expected / expected.max(), rtol=1e-4)


def test_weighted_priority_samples_estimate_uniform_averages():
    """With the exponent at one, weights undo the sampling: the reason for importance weights."""
    config = RainbowConfig(
        batch_size=4_096, replay_capacity=50, min_replay=8, target_period=40, importance_steps=9
    )
    values = np.random.default_rng(3).normal(size=50)
    priorities = np.exp(values)  # large values are replayed more often
    replay = with_priorities(config, 100, priorities, 1.0)
    drawn = draw_transitions(config, replay, SEED, jnp.uint32(100), jnp.float32(0.001))
    weights = np.asarray(memory.importance_weights(config, drawn.probabilities, jnp.uint32(100), ONE, ONE))
    chosen = values[np.asarray(drawn.leaves)]
    estimate = np.sum(weights * chosen) / np.sum(weights)
    assert estimate == pytest.approx(values.mean(), abs=0.1)
    assert chosen.mean() > values.mean() + 0.5  # without weights the estimate is off
