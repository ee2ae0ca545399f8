import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nibbler.engines.jax import network as net
from nibbler.engines.jax.philox import split_seed

FEATURES, ACTIONS = 40, 3


init_network = jax.jit(net.init_network, static_argnums=(0, 1, 2))
draw_noise = jax.jit(net.draw_noise, static_argnums=(0, 1))


def seed(number: int) -> jax.Array:
    return jnp.asarray(split_seed(number))


def double(tree):
    """The same parameters as float64 NumPy arrays."""
    return jax.tree.map(lambda leaf: np.asarray(leaf, dtype=np.float64), tree)


def noisy_numpy(layer, noise, x):
    """y = (W + S * outer(f_in, f_out))^T x + b + s * f_out, a row of outputs at a time."""
    out = np.zeros((x.shape[0], layer.sigma.shape[1]))
    for j in range(out.shape[1]):
        weights = layer.mean[:, j] + layer.sigma[:, j] * noise.inputs * noise.outputs[j]
        bias = layer.sigma_bias[j] * noise.outputs[j] + (
            0.0 if layer.mean_bias is None else layer.mean_bias[j]
        )
        out[:, j] = x @ weights + bias
    return out


def logits_numpy(network, noise, x, num_actions):
    """Dueling logits from the definition: V(z) + A(z, a) - mean over actions of A(z, .)."""
    shared = np.maximum(x @ network.shared_weights + network.shared_bias, 0.0)

    def head(layers, factors):
        hidden = np.maximum(noisy_numpy(layers.hidden, factors.hidden, shared), 0.0)
        return noisy_numpy(layers.output, factors.output, hidden)

    value = head(network.value, noise.value)
    advantage = head(network.advantage, noise.advantage)
    atoms = value.shape[1]
    out = np.zeros((x.shape[0], num_actions, atoms))
    for a in range(num_actions):
        out[:, a] = value + advantage[:, a * atoms : (a + 1) * atoms]
        out[:, a] -= sum(advantage[:, b * atoms : (b + 1) * atoms] for b in range(num_actions)) / num_actions
    return out


@pytest.fixture(scope="module")
def parts(small):
    network = init_network(small, FEATURES, ACTIONS, seed(1))
    # Sigma starts constant; random values make every term count.
    rng = np.random.default_rng(5)
    network = jax.tree.map(
        lambda leaf: jnp.asarray(leaf + 0.3 * rng.normal(size=leaf.shape), jnp.float32),
        jax.device_get(network),
    )
    noise = draw_noise(small, ACTIONS, seed(1), jnp.uint32(5), net.ONLINE)
    bits = np.random.default_rng(0).random((9, FEATURES)) < 0.2
    return network, noise, bits


def test_logits_equal_a_numpy_computation_from_the_definitions(parts):
    network, noise, bits = parts
    expected = logits_numpy(double(network), double(noise), bits.astype(float), ACTIONS)
    found = net.logits(network, noise, jnp.asarray(bits, jnp.float32))
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


def test_one_observation_by_its_active_bits_gives_the_logits_of_the_dense_one(parts):
    network, noise, bits = parts
    expected = net.logits(network, noise, jnp.asarray(bits, jnp.float32))
    logits_of_active = jax.jit(net.logits_of_active)
    for row, logits in zip(bits, expected, strict=True):
        active = np.full(FEATURES, FEATURES, dtype=np.int32)  # padded with the number of features
        active[: row.sum()] = np.flatnonzero(row)
        found = logits_of_active(network, noise, jnp.asarray(active))
        np.testing.assert_allclose(found, logits, rtol=2e-5, atol=2e-5)


def test_action_values_are_the_means_of_the_distributions(small):
    logits = np.random.default_rng(1).normal(size=(4, ACTIONS, small.num_atoms))
    support = np.linspace(-small.value_bound, small.value_bound, small.num_atoms)
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    found = net.action_values(jnp.asarray(logits, jnp.float32), net.atoms(small))
    np.testing.assert_allclose(found, probabilities @ support, atol=1e-5)
    np.testing.assert_allclose(net.atoms(small), support, atol=1e-6)


def test_initial_values_are_those_of_dqn_zoo(small):
    network = init_network(small, FEATURES, ACTIONS, seed(3))
    layers = {
        FEATURES: [network.shared_weights, network.shared_bias],
        small.shared_units: [network.value.hidden.mean, network.advantage.hidden.mean],
        small.head_units: [network.value.output.mean, network.advantage.output.mean],
    }
    for inputs, arrays in layers.items():
        for array in arrays:
            scaled = np.asarray(array) * np.sqrt(inputs)
            assert np.abs(scaled).max() <= 1.0
            assert np.abs(scaled).max() > 0.9 or scaled.size < 50
    scaled = np.asarray(network.shared_weights) * np.sqrt(FEATURES)
    assert scaled.var() == pytest.approx(1 / 3, rel=0.15)  # of a uniform number in [-1, 1]
    for head in (network.value, network.advantage):
        assert head.hidden.mean_bias is not None
        assert head.output.mean_bias is None
        for layer in head:
            expected = small.noise_scale / np.sqrt(layer.sigma.shape[0])
            np.testing.assert_allclose(layer.sigma, expected, rtol=1e-6)
            np.testing.assert_allclose(layer.sigma_bias, expected, rtol=1e-6)
    sizes = [leaf.size for leaf in jax.tree.leaves(network)]
    different = np.unique(np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(network)]))
    assert different.size > 0.45 * sum(
        sizes
    )  # no draw is used twice: all means differ, sigmas are few values


def test_noise_factors_are_signed_roots_of_a_normal_cut_off_at_two():
    squares = np.sign(net.NOISE_FACTORS) * np.square(net.NOISE_FACTORS, dtype=np.float64)
    assert np.abs(squares).max() < 2.0
    assert abs(squares.mean()) < 1e-6
    # Variance of a standard normal cut off at +-2: 1 - 4 phi(2) / (2 Phi(2) - 1).
    density, inside = np.exp(-2.0) / np.sqrt(2 * np.pi), 0.954499736103642
    assert np.mean(squares**2) == pytest.approx(1 - 4 * density / inside, rel=1e-3)
    assert np.mean(np.abs(squares) < 1.0) == pytest.approx(0.682689492137086 / inside, abs=1e-4)


def test_noise_is_fresh_for_every_step_and_purpose_and_the_same_when_asked_again(small):
    def draw(step, purpose, number=1):
        noise = draw_noise(small, ACTIONS, seed(number), jnp.uint32(step), purpose)
        return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(noise)])

    first = draw(7, net.ONLINE)
    np.testing.assert_array_equal(first, draw(7, net.ONLINE))
    for other in (draw(8, net.ONLINE), draw(7, net.TARGET), draw(7, net.ONLINE, number=2)):
        assert np.mean(first == other) < 0.01
    assert np.unique(first).size > 0.98 * first.size  # every unit has a factor of its own


def test_noise_disturbs_action_values_and_sigma_zero_silences_it(parts, small):
    network, _, bits = parts
    quiet = jax.tree_util.tree_map_with_path(
        lambda path, leaf: jnp.zeros_like(leaf) if "sigma" in jax.tree_util.keystr(path) else leaf, network
    )
    observations = jnp.asarray(bits, jnp.float32)
    noises = [draw_noise(small, ACTIONS, seed(0), jnp.uint32(t), net.ACTING) for t in range(2)]
    loud = [net.logits(network, noise, observations) for noise in noises]
    silent = [net.logits(quiet, noise, observations) for noise in noises]
    assert np.abs(loud[0] - loud[1]).max() > 1e-3
    np.testing.assert_array_equal(silent[0], silent[1])
