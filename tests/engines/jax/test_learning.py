import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nibbler.engines.jax import learning
from nibbler.engines.jax import network as net
from nibbler.engines.jax.philox import split_seed

FEATURES, ACTIONS, BATCH = 12, 3, 6

logits = jax.jit(net.logits)
losses = jax.jit(learning.losses)
gradients = jax.jit(learning.gradients)


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def project_numpy(values, probabilities, support):
    """Algorithm 1 of the C51 paper, atom by atom: split each mass between the neighbours below and above."""
    out = np.zeros(len(support))
    spacing = support[1] - support[0]
    for value, mass in zip(values, probabilities, strict=True):
        place = (np.clip(value, support[0], support[-1]) - support[0]) / spacing
        low, high = int(np.floor(place)), int(np.ceil(place))
        if low == high:
            out[low] += mass
        else:
            out[low] += mass * (high - place)
            out[high] += mass * (place - low)
    return out


@pytest.fixture(scope="module")
def problem(small):
    rng = np.random.default_rng(3)
    seeds = [jnp.asarray(split_seed(number)) for number in (1, 2)]
    init = jax.jit(net.init_network, static_argnums=(0, 1, 2))
    online, target = (init(small, FEATURES, ACTIONS, s) for s in seeds)
    draw_noise = jax.jit(net.draw_noise, static_argnums=(0, 1))
    noises = [
        draw_noise(small, ACTIONS, seeds[0], jnp.uint32(9), purpose)
        for purpose in (net.ONLINE, net.ONLINE_NEXT, net.TARGET)
    ]
    batch = learning.Transitions(
        jnp.asarray(rng.random((BATCH, FEATURES)) < 0.4, jnp.float32),
        jnp.asarray(rng.integers(0, ACTIONS, BATCH), jnp.int32),
        jnp.asarray(rng.normal(size=BATCH) * 2, jnp.float32),
        jnp.full(BATCH, 0.9**3, jnp.float32),
        jnp.asarray(rng.random((BATCH, FEATURES)) < 0.4, jnp.float32),
    )
    weights = jnp.asarray(rng.random(BATCH) + 0.1, jnp.float32)
    return online, target, batch, weights, learning.UpdateNoise(*noises), net.atoms(small)


def test_projection_equals_the_atom_by_atom_definition():
    rng = np.random.default_rng(0)
    support = np.linspace(-2.0, 2.0, 9)
    values = rng.normal(size=(50, 9)) * 2
    values[0] = support  # exactly on the atoms: nothing moves
    values[1] = 100.0  # beyond the last atom: everything on it
    probabilities = softmax(rng.normal(size=(50, 9)))
    expected = [project_numpy(v, p, support) for v, p in zip(values, probabilities, strict=True)]
    found = learning.project(*(jnp.asarray(a, jnp.float32) for a in (values, probabilities, support)))
    np.testing.assert_allclose(found, expected, atol=2e-6)
    np.testing.assert_allclose(found[0], probabilities[0], atol=2e-6)
    assert found[1, -1] == pytest.approx(1.0, abs=1e-6)


def test_projection_keeps_mass_and_the_mean_of_values_inside():
    rng = np.random.default_rng(1)
    support = np.linspace(-3.0, 3.0, 13)
    values = rng.uniform(-3, 3, (20, 13))
    probabilities = softmax(rng.normal(size=(20, 13)))
    found = np.asarray(
        learning.project(*(jnp.asarray(a, jnp.float32) for a in (values, probabilities, support)))
    )
    np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-5)
    np.testing.assert_allclose(found @ support, (values * probabilities).sum(axis=1), atol=1e-5)


def test_target_takes_the_online_choice_and_the_target_network_distribution(problem):
    _, _, batch, _, _, support = problem
    rng = np.random.default_rng(5)
    online, target = rng.normal(size=(2, BATCH, ACTIONS, len(support)))
    expected = []
    for i in range(BATCH):
        chosen = np.argmax(softmax(online[i]) @ np.asarray(support))
        values = float(batch.returns[i]) + float(batch.discounts[i]) * np.asarray(support, np.float64)
        expected.append(project_numpy(values, softmax(target[i, chosen]), np.asarray(support, np.float64)))
    greedy_of_target = np.argmax(softmax(target) @ np.asarray(support), axis=1)
    greedy_of_online = np.argmax(softmax(online) @ np.asarray(support), axis=1)
    assert (greedy_of_target != greedy_of_online).any()  # or the test could not tell double Q from plain Q
    found = learning.target_distribution(
        batch, jnp.asarray(online, jnp.float32), jnp.asarray(target, jnp.float32), support
    )
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_losses_are_cross_entropies_with_the_distribution_of_the_action_taken(problem):
    online, target, batch, _, noise, support = problem
    predicted = np.asarray(logits(online, noise.online, batch.observations), np.float64)
    aim = learning.target_distribution(
        batch,
        logits(online, noise.online_next, batch.next_observations),
        logits(target, noise.target, batch.next_observations),
        support,
    )
    expected = [
        -np.sum(np.asarray(aim[i]) * np.log(softmax(predicted[i, int(batch.actions[i])])))
        for i in range(BATCH)
    ]
    found = losses(online, target, batch, noise, support)
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_gradient_agrees_with_finite_differences_of_the_weighted_mean_loss(problem):
    online, target, batch, weights, noise, support = problem
    gradient, each = gradients(online, target, batch, weights, noise, support)
    np.testing.assert_allclose(each, losses(online, target, batch, noise, support), rtol=1e-5)
    aim = learning.target_distribution(  # a constant of the gradient
        batch,
        logits(online, noise.online_next, batch.next_observations),
        logits(target, noise.target, batch.next_observations),
        support,
    )
    rng = np.random.default_rng(1)
    direction = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), online)
    with jax.enable_x64(True):  # differences of float32 losses would be mostly rounding
        wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), (online, noise, batch, aim, weights))
        network, noise, batch, aim, weights = wide
        taken = np.arange(BATCH), np.asarray(batch.actions, int)

        @jax.jit
        def loss(size):
            moved = jax.tree.map(lambda a, b: a + size * b, network, direction)
            predicted = net.logits(moved, noise.online, batch.observations)[taken]
            return (-(aim * jax.nn.log_softmax(predicted)).sum(axis=-1) * weights).mean()

        slope = (loss(1e-6) - loss(-1e-6)) / 2e-6
    pairs = zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True)
    assert sum(np.vdot(a, b) for a, b in pairs) == pytest.approx(float(slope), rel=1e-3)


def test_every_parameter_receives_a_gradient_and_the_target_network_none(problem):
    online, target, batch, weights, noise, support = problem
    gradient, _ = gradients(online, target, batch, weights, noise, support)
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(gradient))
    through_target = jax.jit(
        jax.grad(lambda other: (learning.losses(online, other, batch, noise, support) * weights).mean())
    )(target)
    assert all(np.abs(leaf).max() == 0 for leaf in jax.tree.leaves(through_target))


def test_priorities_are_the_clipped_sizes_of_the_losses():
    found = learning.priorities(jnp.array([0.0, 2.5, -3.0, 1e6]))
    np.testing.assert_array_equal(found, [0.0, 2.5, 3.0, 100.0])


def test_clipping_scales_long_gradients_to_the_limit_and_leaves_short_ones(problem):
    online = problem[0]
    norm = np.sqrt(sum(np.square(np.asarray(leaf, np.float64)).sum() for leaf in jax.tree.leaves(online)))
    assert float(learning.clip_scale(online, jnp.float32(norm / 4))) == pytest.approx(0.25, rel=1e-4)
    assert float(learning.clip_scale(online, jnp.float32(norm * 4))) == 1.0


def test_adam_follows_its_definition_for_several_steps(problem):
    online = problem[0]
    rate, epsilon, scale = 0.01, 0.005, 0.5
    weights = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(online)]
    means, squares = [np.zeros_like(w) for w in weights], [np.zeros_like(w) for w in weights]
    network, adam = online, learning.init_adam(online)
    adam_step = jax.jit(learning.adam_step)
    rng = np.random.default_rng(0)
    for step in range(1, 6):
        slopes = [rng.normal(size=w.shape) for w in weights]
        gradient = jax.tree.unflatten(
            jax.tree.structure(online), [jnp.asarray(s, jnp.float32) for s in slopes]
        )
        network, adam = adam_step(
            network, adam, gradient, jnp.float32(scale), jnp.float32(rate), jnp.float32(epsilon)
        )
        for i, slope in enumerate(slopes):
            means[i] = 0.9 * means[i] + 0.1 * scale * slope
            squares[i] = 0.999 * squares[i] + 0.001 * (scale * slope) ** 2
            corrected = means[i] / (1 - 0.9**step), squares[i] / (1 - 0.999**step)
            weights[i] = weights[i] - rate * corrected[0] / (np.sqrt(corrected[1]) + epsilon)
    assert int(adam.updates) == 5
    for found, expected in zip(jax.tree.leaves(network), weights, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_rlax_computes_the_same_losses(problem):
    rlax = pytest.importorskip("rlax", reason="rlax is not installed; `make test-oracles` has it")
    online, target, batch, _, noise, support = problem
    predicted = net.logits(online, noise.online, batch.observations)
    online_next = net.logits(online, noise.online_next, batch.next_observations)
    target_next = net.logits(target, noise.target, batch.next_observations)
    expected = jax.vmap(rlax.categorical_double_q_learning, in_axes=(None, 0, 0, 0, 0, None, 0, 0))(
        support,
        predicted,
        batch.actions,
        batch.returns,
        batch.discounts,
        support,
        target_next,
        net.action_values(online_next, support),
    )
    np.testing.assert_allclose(
        learning.losses(online, target, batch, noise, support), expected, rtol=1e-4, atol=1e-5
    )
