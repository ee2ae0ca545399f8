"""Rainbow runs as `train` and the studies drive them: one at a time, or several seeds packed side by side."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from nibbler.agents.config import AgentConfig
from nibbler.agents.rainbow import RainbowConfig
from nibbler.engines.jax.environment import Sizes, Tables, load_tables, observe
from nibbler.engines.jax.philox import split_seed
from nibbler.engines.jax.rainbow import (
    Programs,
    RainbowState,
    Run,
    Scalars,
    compile_loop,
    scalars_of,
    schedule,
    shape_of,
)
from nibbler.engines.jax.replay import ring_size
from nibbler.mdp.environment import Environment

LAST_STEP = 2**32 - 2  # times are 32-bit numbers on the device

# Arrays of the ring are saved up to the last slot written: an early checkpoint is small.
_RING = ("replay_observations", "replay_actions", "replay_rewards")


class RainbowRun:
    """One Rainbow run: environment, agent and clock."""

    def __init__(self, env: Environment, config: RainbowConfig, seed: int) -> None:
        tables, sizes = _prepare(env, config)
        self.step = 0
        self._config = config
        self._sizes = sizes
        self._programs = compile_loop(shape_of(config), sizes, False)
        self._run = Run(jax.device_put(tables), scalars_of(config), jnp.asarray(split_seed(seed)))
        self._state = self._programs.init(self._run)

    def advance(self, steps: int) -> float:
        """Run that many steps and return the sum of their rewards."""
        return float(self.advance_bins(1, steps)[0])

    def advance_bins(self, num_bins: int, bin_size: int) -> np.ndarray:
        """Run num_bins * bin_size steps; the sum of rewards of each bin, float64[num_bins]."""
        sums = np.zeros(num_bins)
        for bin_index, earned in self._segments(num_bins, bin_size):
            sums[bin_index] += float(earned)
        return sums

    def _segments(self, num_bins: int, bin_size: int) -> list[tuple[int, jax.Array]]:
        """Start all programs one after the other; only reading their rewards waits for the device."""
        earned = []
        for index in range(num_bins):
            self._state, parts = _advance(
                self._programs, self._config, self._state, self._run, self.step, bin_size
            )
            earned += [(index, part) for part in parts]
            self.step += bin_size
        return earned

    def state(self) -> dict[str, np.ndarray]:
        """Everything the run is, as copies; savable without pickle."""
        return _to_arrays(jax.device_get(self._state), self.step, self._config, self._sizes)

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Become the run that `state()` described."""
        self._state = jax.device_put(_from_arrays(state, self._state, self._run.tables, self._sizes))
        self.step = int(state["step"])


class PackedRainbowRuns:
    """Several Rainbow runs in step with each other, computed side by side on one device.

    Seeds and the numbers in `Scalars` may differ between them, and so may the environments if their tables
    have the same shapes (as those of one family with other permutations have).
    """

    def __init__(
        self, envs: Sequence[Environment], configs: Sequence[RainbowConfig], seeds: Sequence[int]
    ) -> None:
        if not seeds or not len(envs) == len(configs) == len(seeds):
            raise ValueError(
                f"give as many environments and configs as seeds, and at least one; got {len(envs)}, "
                f"{len(configs)} and {len(seeds)}"
            )
        shapes = {shape_of(config) for config in configs}
        if len(shapes) > 1:
            raise ValueError(
                f"packed runs may differ in {', '.join(Scalars._fields)} alone; run other configs apart"
            )
        self.step = 0
        self.num_runs = len(seeds)
        self._config = configs[0]
        prepared = [_prepare(env, config) for env, config in zip(envs, configs, strict=True)]
        self._sizes = prepared[0][1]
        self._tables = [tables for tables, _ in prepared]
        shared = all(_equal(tables, self._tables[0]) for tables in self._tables[1:])
        if not shared and any(
            sizes != self._sizes or _shapes(tables) != _shapes(self._tables[0]) for tables, sizes in prepared
        ):
            raise ValueError("packed runs need environments with tables of the same shapes; run others apart")
        self._programs = compile_loop(shapes.pop(), self._sizes, True, shared)
        self._run = Run(
            jax.device_put(self._tables[0] if shared else _stack(self._tables)),
            Scalars(*map(jnp.stack, zip(*map(scalars_of, configs), strict=True))),
            jnp.asarray(np.stack([split_seed(seed) for seed in seeds])),
        )
        self._state = self._programs.init(self._run)

    def advance_bins(self, num_bins: int, bin_size: int) -> np.ndarray:
        """Run num_bins * bin_size steps of every run; sums of rewards float64[num_runs, num_bins]."""
        earned = []
        for index in range(num_bins):
            self._state, parts = _advance(
                self._programs, self._config, self._state, self._run, self.step, bin_size
            )
            earned += [(index, part) for part in parts]
            self.step += bin_size
        sums = np.zeros((self.num_runs, num_bins))
        for index, part in earned:
            sums[:, index] += np.asarray(part, dtype=np.float64)
        return sums

    def state(self, index: int) -> dict[str, np.ndarray]:
        """One of the runs, as `RainbowRun.state` gives it."""
        one = jax.device_get(jax.tree.map(lambda leaf: leaf[index], self._state))
        return _to_arrays(one, self.step, self._config, self._sizes)

    def restore(self, states: Sequence[Mapping[str, np.ndarray]]) -> None:
        """Become the runs that these states described; they must have done the same number of steps."""
        steps = {int(state["step"]) for state in states}
        if len(states) != self.num_runs or len(steps) != 1:
            raise ValueError(
                f"give {self.num_runs} states of one step count; got {len(states)} at steps {sorted(steps)}"
            )
        like = jax.tree.map(lambda leaf: leaf[0], self._state)
        loaded = [
            _from_arrays(state, like, tables, self._sizes)
            for state, tables in zip(states, self._tables, strict=True)
        ]
        self._state = jax.device_put(jax.tree.map(lambda *leaves: np.stack(leaves), *loaded))
        self.step = steps.pop()


def open_run(env: Environment, config: AgentConfig, seed: int) -> RainbowRun:
    """A Rainbow run at step 0."""
    return RainbowRun(env, _checked(config), seed)


def open_packed_runs(
    env: Environment | Sequence[Environment],
    config: AgentConfig | Sequence[AgentConfig],
    seeds: Sequence[int],
) -> PackedRainbowRuns:
    """Rainbow runs at step 0 that advance together: a seed each, environment and config shared or each."""
    envs = [env] * len(seeds) if isinstance(env, Environment) else list(env)
    configs = [config] * len(seeds) if isinstance(config, AgentConfig) else list(config)
    return PackedRainbowRuns(envs, [_checked(one) for one in configs], seeds)


def _checked(config: AgentConfig) -> RainbowConfig:
    if not isinstance(config, RainbowConfig):
        raise ValueError(f"the jax engine runs rainbow alone, not {config.name!r}; use another engine")
    return config


def _prepare(env: Environment, config: RainbowConfig) -> tuple[Tables, Sizes]:
    config.validate_for(env.num_features, env.num_actions)
    if env.coupling != "broadcast":
        raise ValueError(f"coupling={env.coupling!r}: Rainbow chooses one action; use coupling='broadcast'")
    return load_tables(env)


def _equal(one: Tables, other: Tables) -> bool:
    return one is other or all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def _stack(tables: list[Tables]) -> Tables:
    return Tables(*map(np.stack, zip(*tables, strict=True)))  # type: ignore[arg-type]


def _shapes(tables: Tables) -> list[tuple[int, ...]]:
    return [array.shape for array in tables]


def _advance(
    programs: Programs, config: RainbowConfig, state: RainbowState, run: Run, step: int, count: int
) -> tuple[RainbowState, list[jax.Array]]:
    """Run the programs of the next `count` steps; the rewards of each are still on the device."""
    if step + count > LAST_STEP:
        raise ValueError(f"step {step + count} is beyond {LAST_STEP}, the last that this engine counts to")
    earned = []
    for segment in schedule(config, step, step + count):
        begin = jnp.uint32(segment.begin)
        if segment.cycles:
            state, rewards = programs.cycles(
                state, run, begin, jnp.uint32(segment.length // config.learn_period)
            )
        else:
            state, rewards = programs.steps(state, run, begin, jnp.uint32(segment.length))
        if segment.learn:
            state = programs.learn(state, run, jnp.uint32(segment.end))
        if segment.copy_target:
            state = programs.copy_target(state)
        earned.append(rewards)
    return state, earned


def _name(path: tuple[Any, ...]) -> str:
    """The name in a checkpoint of a part of the state: the fields that lead to it."""
    return "_".join(str(getattr(key, "name", getattr(key, "idx", key))) for key in path)


def _to_arrays(state: RainbowState, step: int, config: RainbowConfig, sizes: Sizes) -> dict[str, np.ndarray]:
    """A state on the host under the names of a checkpoint."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    arrays = {_name(path): np.array(leaf) for path, leaf in leaves}
    for name in _RING:
        arrays[name] = arrays[name][: min(step + 1, ring_size(config))].copy()
    arrays["active"] = arrays["active"][arrays["active"] < sizes.num_features]
    arrays["step"] = np.array(step, dtype=np.int64)
    return arrays


def _from_arrays(
    arrays: Mapping[str, np.ndarray], like: RainbowState, tables: Tables, sizes: Sizes
) -> RainbowState:
    """The state that `_to_arrays` described, in the shapes and types of `like`."""

    def leaf(path: tuple[Any, ...], model: jax.Array) -> np.ndarray:
        name = _name(path)
        if name == "active":  # stored without its padding; the states say the same
            return np.asarray(observe(tables, sizes, jnp.asarray(arrays["states"])))
        if name not in arrays:
            raise ValueError(f"the state has no {name}; it is not that of a Rainbow run")
        value = np.asarray(arrays[name])
        if name in _RING and value.shape[1:] == model.shape[1:] and len(value) <= len(model):
            value = np.concatenate(
                [value, np.zeros((len(model) - len(value), *value.shape[1:]), value.dtype)]
            )
        if value.shape != model.shape or value.dtype != model.dtype:
            raise ValueError(
                f"{name} is {value.dtype}{value.shape}; this run needs {model.dtype}{model.shape}"
            )
        return value

    loaded: RainbowState = jax.tree_util.tree_map_with_path(leaf, like)
    return loaded
