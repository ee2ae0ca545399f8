"""The spaces that `GymnaxEnvironment` describes itself with: gymnax's where in use, else the same in small.

gymnax's wrappers ask whether a space is one of theirs. Who has imported gymnax therefore gets its classes;
who has not does not have to install it.
"""

import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp


def in_use() -> ModuleType:
    """gymnax's module of spaces if gymnax was imported, else this one; both have the names below."""
    return sys.modules.get("gymnax.environments.spaces", sys.modules[__name__])


@dataclass(frozen=True)
class Discrete:
    """The whole numbers below n."""

    n: int
    dtype: Any = jnp.int32
    shape: tuple[int, ...] = ()

    def sample(self, key: jax.Array) -> jax.Array:
        """A uniformly random element."""
        return jax.random.randint(key, self.shape, 0, self.n, self.dtype)

    def contains(self, x: Any) -> jax.Array:
        """Whether x is in range."""
        return (jnp.asarray(x) >= 0) & (jnp.asarray(x) < self.n)


@dataclass(frozen=True)
class Box:
    """Arrays of whole numbers between two bounds."""

    low: int
    high: int
    shape: tuple[int, ...]
    dtype: Any = jnp.uint8

    def sample(self, key: jax.Array) -> jax.Array:
        """A uniformly random element."""
        return jax.random.randint(key, self.shape, self.low, self.high + 1).astype(self.dtype)

    def contains(self, x: Any) -> jax.Array:
        """Whether all numbers in x are in range."""
        return jnp.all((jnp.asarray(x) >= self.low) & (jnp.asarray(x) <= self.high))


@dataclass(frozen=True)
class Tuple:
    """A row of spaces."""

    spaces: tuple[Any, ...]

    def sample(self, key: jax.Array) -> tuple[jax.Array, ...]:
        """A random element of every space."""
        keys = jax.random.split(key, len(self.spaces))
        return tuple(space.sample(k) for space, k in zip(self.spaces, keys, strict=True))

    def contains(self, x: Any) -> jax.Array:
        """Whether every part is in its space."""
        return jnp.all(jnp.array([space.contains(part) for space, part in zip(self.spaces, x, strict=True)]))


@dataclass(frozen=True)
class Dict:
    """Named spaces; the parts of an element are its attributes."""

    spaces: dict[str, Any]

    def sample(self, key: jax.Array) -> dict[str, jax.Array]:
        """A random element of every space."""
        keys = jax.random.split(key, len(self.spaces))
        return {name: space.sample(k) for (name, space), k in zip(self.spaces.items(), keys, strict=True)}

    def contains(self, x: Any) -> jax.Array:
        """Whether every part is in its space."""
        return jnp.all(jnp.array([space.contains(getattr(x, name)) for name, space in self.spaces.items()]))
