"""Rainbow runs as `train` and the studies drive them: one at a time, or several packed side by side."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from nibbler.agents.config import AgentConfig
from nibbler.agents.rainbow import RainbowConfig
from nibbler.engines.jax.environment import Sizes, Tables, load_sizes, load_tables, observe
from nibbler.engines.jax.philox import split_seed
from nibbler.engines.jax.rainbow import (
    RainbowState,
    Run,
    Scalars,
    Segment,
    compile_loop,
    scalars_of,
    schedule,
    shape_of,
)
from nibbler.engines.jax.replay import ring_size
from nibbler.mdp.environment import Environment

Problem = tuple[Environment, AgentConfig, int]  # with a seed
Stacked = TypeVar("Stacked")

LAST_STEP = 2**32 - 2  # times are 32-bit numbers on the device
LARGEST_PACK = 64

# Arrays of the ring are saved up to the last slot written: an early checkpoint is small.
_RING = ("replay_observations", "replay_actions", "replay_rewards")


class PackedRainbowRuns:
    """Rainbow runs in step with each other, computed side by side on one device.

    Seeds and the numbers in `Scalars` may differ between them, and so may the environments if their tables
    have the same shapes (as those of one family with other permutations have).
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        configs = [_checked(config) for _, config, _ in problems]
        if len({shape_of(config) for config in configs}) != 1:
            raise ValueError(
                f"packed runs may differ in {', '.join(Scalars._fields)} alone; run other configs apart"
            )
        prepared = [_prepare(env, config) for (env, _, _), config in zip(problems, configs, strict=True)]
        tables = [tables for tables, _ in prepared]
        shared = all(_equal(one, tables[0]) for one in tables[1:])
        if len({(sizes, *(array.shape for array in one)) for one, sizes in prepared}) > 1:
            raise ValueError("packed runs need environments with tables of the same shapes; run others apart")
        self.num_runs = len(problems)
        self._many = self.num_runs > 1
        self._config = configs[0]
        self._sizes = prepared[0][1]
        self._steps = [0] * self.num_runs
        self._programs = compile_loop(shape_of(self._config), self._sizes, self._many, shared)
        seeds = [jnp.asarray(split_seed(seed)) for _, _, seed in problems]
        scalars = [scalars_of(config) for config in configs]
        self._run = Run(
            tables[0] if shared else _stack(tables),
            _stack(scalars) if self._many else scalars[0],
            jnp.stack(seeds) if self._many else seeds[0],
        )
        self._tables = tables
        self._state = self._programs.init(self._run)

    def step(self, index: int) -> int:
        """Transitions that one of the runs has done."""
        return self._steps[index]

    def advance_bins(self, num_bins: int, bin_size: int) -> np.ndarray:
        """Run num_bins * bin_size steps of every run; sums of rewards float64[num_runs, num_bins]."""
        if len(set(self._steps)) > 1:
            raise ValueError(f"packed runs go in step; these are at steps {sorted(set(self._steps))}")
        step = self._steps[0]
        if step + num_bins * bin_size > LAST_STEP:
            raise ValueError(
                f"this engine counts to step {LAST_STEP}; {step + num_bins * bin_size} is beyond it"
            )
        earned = []
        for index in range(num_bins):  # only reading the rewards, below, waits for the device
            begin = step + index * bin_size
            for segment in schedule(self._config, begin, begin + bin_size):
                earned.append((index, self._advance(segment)))
        sums = np.zeros((self.num_runs, num_bins))
        for index, rewards in earned:
            sums[:, index] += np.asarray(rewards, dtype=np.float64)
        self._steps = [step + num_bins * bin_size] * self.num_runs
        return sums

    def _advance(self, segment: Segment) -> jax.Array:
        """Do a segment; the rewards it earned are still on the device."""
        programs, begin = self._programs, jnp.uint32(segment.begin)
        if segment.cycles:
            count = jnp.uint32(segment.length // self._config.learn_period)
            self._state, earned = programs.cycles(self._state, self._run, begin, count)
        else:
            self._state, earned = programs.steps(self._state, self._run, begin, jnp.uint32(segment.length))
        if segment.learn:
            self._state = programs.learn(self._state, self._run, jnp.uint32(segment.end))
        if segment.copy_target:
            # A copy of the network alone. A program that took over the buffers of the whole state and handed
            # its parts on would damage them on GPUs (github.com/jax-ml/jax/issues/39625).
            target = programs.copy_network(self._state.network)
            self._state = self._state._replace(target_network=target)
        return earned

    def _one(self, index: int) -> RainbowState:
        if not self._many:
            return self._state
        one: RainbowState = jax.tree.map(lambda leaf: leaf[index], self._state)
        return one

    def snapshot(self, index: int) -> dict[str, np.ndarray]:
        """What a study keeps to look inside: nothing, Rainbow has no questions."""
        return {}

    def report(self) -> str:
        """What runs where, in one line."""
        device = next(iter(self._state.action.devices()))
        return f"{self.num_runs} runs of rainbow side by side on {device.platform} ({device.device_kind})"

    def state(self, index: int) -> dict[str, np.ndarray]:
        """Everything that one of the runs is, as copies; savable without pickle."""
        return _to_arrays(jax.device_get(self._one(index)), self._steps[index], self._config, self._sizes)

    def restore(self, index: int, state: Mapping[str, np.ndarray]) -> None:
        """Make one of the runs what `state()` described."""
        loaded = jax.device_put(_from_arrays(state, self._one(index), self._tables[index], self._sizes))
        if self._many:
            loaded = jax.tree.map(lambda whole, part: whole.at[index].set(part), self._state, loaded)
        self._state = loaded
        self._steps[index] = int(state["step"])


class RainbowRun:
    """One Rainbow run: environment, agent and clock."""

    def __init__(self, packed: PackedRainbowRuns) -> None:
        self._packed = packed

    @property
    def step(self) -> int:
        """Transitions done."""
        return self._packed.step(0)

    def advance(self, steps: int) -> float:
        """Run that many steps and return the sum of their rewards."""
        return float(self.advance_bins(1, steps)[0])

    def advance_bins(self, num_bins: int, bin_size: int) -> np.ndarray:
        """Run num_bins * bin_size steps; the sum of rewards of each bin, float64[num_bins]."""
        sums: np.ndarray = self._packed.advance_bins(num_bins, bin_size)[0]
        return sums

    def snapshot(self) -> dict[str, np.ndarray]:
        """What a study keeps to look inside: nothing, Rainbow has no questions."""
        return self._packed.snapshot(0)

    def state(self) -> dict[str, np.ndarray]:
        """Everything the run is, as copies; savable without pickle."""
        return self._packed.state(0)

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Become the run that `state()` described."""
        self._packed.restore(0, state)


def open_packed_runs(problems: Sequence[Problem]) -> PackedRainbowRuns:
    """Runs at step 0 that advance side by side, one for each (environment, config, seed)."""
    if not problems:
        raise ValueError("no runs were given; give at least one (environment, config, seed)")
    return PackedRainbowRuns(problems)


def open_run(env: Environment, config: AgentConfig, seed: int) -> RainbowRun:
    """A run at step 0."""
    return RainbowRun(open_packed_runs([(env, config, seed)]))


def shape_key(env: Environment, config: AgentConfig) -> tuple[Any, ...]:
    """Equal for problems that `open_packed_runs` can put side by side."""
    shapes = tuple(np.shape(array) for array in env.tables)
    return (shapes, load_sizes(env), shape_of(_checked(config)))


def room_for(env: Environment, config: AgentConfig) -> int:
    """How many runs of this shape to put side by side on the device: as many as fit into its memory."""
    stats = jax.devices()[0].memory_stats()
    if stats is None:  # a CPU, whose memory JAX does not manage
        return LARGEST_PACK
    tables, sizes = _prepare(env, _checked(config))
    loop = compile_loop(shape_of(_checked(config)), sizes, False)
    run = Run(tables, scalars_of(_checked(config)), jnp.zeros(2, jnp.uint32))
    leaves = jax.tree.leaves(jax.eval_shape(loop.init, run))
    free = stats["bytes_limit"] - stats["bytes_in_use"]
    # Restoring a run copies the whole pack, so less than half of the memory may be the pack's own.
    fitting = int(0.4 * free) // sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)
    return max(1, min(LARGEST_PACK, fitting))


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


def _stack(parts: list[Stacked]) -> Stacked:
    stacked: Stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts)
    return stacked


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
    # Adam moves every weight at every update.
    size = sum(leaf.size for leaf in jax.tree.leaves(state.network))
    arrays["weights_touched"] = arrays["adam_updates"].astype(np.int64) * size
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
