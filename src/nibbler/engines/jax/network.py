"""Rainbow's network: a shared dense layer, then a noisy dueling head per target over the atoms of the return.

Layers and initial values are DQN Zoo's, with the paper's 256 dense units in place of the convolutions:
uniform weights and biases in +-1/sqrt(inputs); sigma constant at noise_scale/sqrt(inputs); the last layer
of a head has no mean bias; noise is factorised, truncated at two standard deviations, and shared by a whole
batch.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtr, ndtri

from nibbler.agents.rainbow import RainbowConfig
from nibbler.engines.jax.philox import draw_words, unit
from nibbler.mdp.philox import RAINBOW

# Purposes within the random stream RAINBOW: each owns 2**28 slots of every step.
INITIAL, ACTING, ONLINE, ONLINE_NEXT, TARGET, SAMPLING = range(6)

# float32 as it is written, also on GPUs that would otherwise round the factors of a product to 10 bits.
PRECISION = jax.lax.Precision.HIGHEST


# Noise factors sign(z) sqrt(|z|) of a standard normal z cut off at +-2, at 2**16 quantiles: half a random
# word looks one up, which is 20 times quicker than inverting the distribution for every number.
_QUANTILES = (np.arange(2**16) + 0.5) * 2.0**-16
_NORMAL = ndtri(ndtr(-2.0) + (ndtr(2.0) - ndtr(-2.0)) * _QUANTILES)
NOISE_FACTORS = (np.sign(_NORMAL) * np.sqrt(np.abs(_NORMAL))).astype(np.float32)


def first_slot(purpose: int | jax.Array) -> jax.Array:
    """The first slot of a purpose within the stream RAINBOW."""
    return jnp.uint32(purpose) << 28


class NoisyLayer(NamedTuple):
    """A dense layer whose weights are mean + sigma * noise; sigma is learned."""

    mean: jax.Array  # [inputs, outputs]
    mean_bias: jax.Array | None  # [outputs]; None in the last layer of a head
    sigma: jax.Array  # [inputs, outputs]
    sigma_bias: jax.Array  # [outputs]


class Head(NamedTuple):
    """Two noisy layers with ReLU between them."""

    hidden: NoisyLayer
    output: NoisyLayer


class Network(NamedTuple):
    """All parameters of Rainbow's network."""

    shared_weights: jax.Array  # [features, shared units]
    shared_bias: jax.Array
    value: Head
    advantage: Head


class LayerNoise(NamedTuple):
    """The factors of a layer's noise: weight (i, j) is disturbed by inputs[i] * outputs[j]."""

    inputs: jax.Array
    outputs: jax.Array


class HeadNoise(NamedTuple):
    """Noise of both layers of a head."""

    hidden: LayerNoise
    output: LayerNoise


class NetworkNoise(NamedTuple):
    """Noise of one evaluation of the network (one per batch)."""

    value: HeadNoise
    advantage: HeadNoise


def _head_widths(config: RainbowConfig, num_actions: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Outputs of the two layers of the value head and of the advantage head."""
    atoms = config.num_atoms
    return (config.head_units, atoms), (config.head_units, num_actions * atoms)


def init_network(config: RainbowConfig, num_features: int, num_actions: int, seed: jax.Array) -> Network:
    """Random initial parameters, a function of the seed alone."""
    value, advantage = _head_widths(config, num_actions)
    shared, hidden = config.shared_units, config.head_units
    count = (num_features + 1) * shared + 2 * (shared + 1) * hidden + hidden * (value[1] + advantage[1])
    random = 2.0 * unit(draw_words(seed, RAINBOW, jnp.uint32(0), count, first_slot(INITIAL))) - 1.0
    used = 0

    def uniform(shape: tuple[int, ...], inputs: int) -> jax.Array:
        nonlocal used
        begin, used = used, used + math.prod(shape)
        return (random[begin:used] / np.float32(np.sqrt(inputs))).reshape(shape)

    def noisy(inputs: int, outputs: int, with_bias: bool) -> NoisyLayer:
        sigma = config.noise_scale / inputs**0.5
        return NoisyLayer(
            uniform((inputs, outputs), inputs),
            uniform((outputs,), inputs) if with_bias else None,
            jnp.full((inputs, outputs), sigma, jnp.float32),
            jnp.full((outputs,), sigma, jnp.float32),
        )

    def head(hidden: int, outputs: int) -> Head:
        return Head(noisy(shared, hidden, True), noisy(hidden, outputs, False))

    return Network(
        uniform((num_features, shared), num_features),
        uniform((shared,), num_features),
        head(*value),
        head(*advantage),
    )


def draw_noise(
    config: RainbowConfig, num_actions: int, seed: jax.Array, step: jax.Array, purpose: int | jax.Array
) -> NetworkNoise:
    """The noise of one evaluation of the network at a step."""
    widths = []
    for hidden, outputs in _head_widths(config, num_actions):
        widths += [config.shared_units, hidden, hidden, outputs]
    words = draw_words(seed, RAINBOW, step, -(-sum(widths) // 2), first_slot(purpose))
    halves = jnp.concatenate([words >> 16, words & 0xFFFF])[: sum(widths)]
    factors = iter(jnp.split(jnp.asarray(NOISE_FACTORS)[halves], np.cumsum(widths)[:-1]))

    def layer() -> LayerNoise:
        return LayerNoise(next(factors), next(factors))

    def head() -> HeadNoise:
        return HeadNoise(layer(), layer())

    return NetworkNoise(head(), head())


def noisy_linear(layer: NoisyLayer, noise: LayerNoise, inputs: jax.Array) -> jax.Array:
    """Apply a noisy layer to one input vector or to a batch that shares the noise."""
    bias = layer.sigma_bias * noise.outputs
    if layer.mean_bias is not None:
        bias = bias + layer.mean_bias
    if inputs.ndim == 1:  # two products with a vector are quicker than making the disturbed matrix
        mean = jnp.dot(inputs, layer.mean, precision=PRECISION)
        sigma = jnp.dot(inputs * noise.inputs, layer.sigma, precision=PRECISION)
        return mean + sigma * noise.outputs + bias
    weights = layer.mean + layer.sigma * (noise.inputs[:, None] * noise.outputs)
    return jnp.dot(inputs, weights, precision=PRECISION) + bias


def _apply_head(head: Head, noise: HeadNoise, inputs: jax.Array) -> jax.Array:
    hidden = jax.nn.relu(noisy_linear(head.hidden, noise.hidden, inputs))
    return noisy_linear(head.output, noise.output, hidden)


def heads(network: Network, noise: NetworkNoise, shared: jax.Array) -> jax.Array:
    """Logits[..., actions, atoms] from the shared units: value plus centred advantage (dueling)."""
    value = _apply_head(network.value, noise.value, shared)
    advantage = _apply_head(network.advantage, noise.advantage, shared)
    advantage = advantage.reshape(*value.shape[:-1], -1, value.shape[-1])
    return value[..., None, :] + advantage - advantage.mean(axis=-2, keepdims=True)


def logits(network: Network, noise: NetworkNoise, observations: jax.Array) -> jax.Array:
    """Logits[batch, actions, atoms] of the return for dense binary observations[batch, features]."""
    shared = jnp.dot(observations, network.shared_weights, precision=PRECISION) + network.shared_bias
    return heads(network, noise, jax.nn.relu(shared))


def logits_of_active(network: Network, noise: NetworkNoise, active: jax.Array) -> jax.Array:
    """Logits[actions, atoms] for one observation given by its active features (others are out of range)."""
    rows = network.shared_weights.at[active].get(mode="fill", fill_value=0.0)
    return heads(network, noise, jax.nn.relu(rows.sum(axis=0) + network.shared_bias))


def atoms(config: RainbowConfig) -> jax.Array:
    """The returns that the distribution puts its mass on."""
    return jnp.linspace(-config.value_bound, config.value_bound, config.num_atoms, dtype=jnp.float32)


def action_values(logits_of_actions: jax.Array, support: jax.Array) -> jax.Array:
    """Mean returns[..., actions] of the distributions that the logits stand for."""
    return (jax.nn.softmax(logits_of_actions, axis=-1) * support).sum(axis=-1)
