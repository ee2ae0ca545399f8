"""The CUDA engine: Nibbler, Q-learning and QV-learning with their environment in one persistent kernel.

`open_run` gives one run; `open_packed_runs` puts many of one shape side by side on the GPU. The kernels are
CUDA C++ (folder `kernels`), compiled at run time for the problem's sizes. Random numbers are the same
as on every engine, so environments agree bit for bit with the CPU, and checkpoints move between engines.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from nibbler.agents.config import AgentConfig, NibblerConfig, QLearningConfig, QVLearningConfig
from nibbler.engines.cuda.device import device_attribute, require_gpu
from nibbler.engines.initial import (
    initial_network_state,
    initial_nibbler_state,
    network_action_values,
    select_action,
)
from nibbler.mdp.environment import Environment
from nibbler.mdp.simulate import observe_reference, start_reference

AGENTS = frozenset({"nibbler", "q-learning", "qv-learning"})
Problem = tuple[Environment, AgentConfig, int]  # environment, config, seed

# Fields of a config in which the runs of one launch may differ; all others are compiled into the kernel.
_SCALAR_FIELDS = {
    "epsilon",
    "discount",
    "kappa",
    "step_size",
    "linear_step_size",
    "answer_step_size",
    "scale_answer_step_size",
    "momentum",
    "input_threshold",
    "cumulant_threshold",
}


def shape_key(env: Environment, config: AgentConfig) -> tuple[Any, ...]:
    """Two runs with equal keys can share a launch."""
    fixed = {key: value for key, value in config.to_dict().items() if key not in _SCALAR_FIELDS}
    if "linear_momentum" in fixed:
        fixed["linear_momentum"] = fixed["linear_momentum"] > 0
    return (env.num_features, env.num_actions, env.num_components, *sorted(fixed.items()))


def initial_state(env: Environment, config: AgentConfig, seed: int) -> dict[str, np.ndarray]:
    """The canonical state of a run before its first step."""
    states = start_reference(env.tables, seed)
    active = observe_reference(env.tables, states)
    if isinstance(config, NibblerConfig):
        learner = initial_nibbler_state(config, env.num_features, env.num_actions, seed)
        values = np.zeros(env.num_actions)  # the main weights start at zero
    elif isinstance(config, QLearningConfig | QVLearningConfig):
        learner = initial_network_state(config, np.zeros(env.num_features, np.int32), env.num_actions, seed)
        values = network_action_values(learner, active)
    else:
        raise ValueError(f"the cuda engine runs {', '.join(sorted(AGENTS))}; not {config.name!r}")
    action = select_action(values, config.epsilon, seed, 0)
    return {**learner, "states": states, "active": active, "action": np.array(action), "step": np.array(0)}


def open_packed_runs(problems: Sequence[Problem]) -> Any:
    """Runs at step 0, all of one shape, side by side on the GPU (a `PackedRuns`)."""
    if not problems:
        raise ValueError("no runs were given")
    if len({shape_key(env, config) for env, config, _ in problems}) > 1:
        raise ValueError("runs of different shapes cannot share a launch; group them by `shape_key` first")
    packed = allocate(problems)
    for index, (env, config, seed) in enumerate(problems):
        packed.restore(index, initial_state(env, config, seed))
    return packed


def allocate(problems: Sequence[Problem], plan: Any = None) -> Any:
    """Room on the GPU for runs of one shape, in the layout of a plan if one is given; `restore` fills it."""
    from nibbler.engines.cuda.network_runs import NetworkRuns
    from nibbler.engines.cuda.nibbler_runs import NibblerRuns

    kind: Any = NibblerRuns if isinstance(problems[0][1], NibblerConfig) else NetworkRuns
    return kind(problems, plan)


class _Sizes(NamedTuple):
    """What one run of a shape takes of the GPU."""

    side_by_side: int
    bytes: int
    blocks: int


_known_sizes: dict[tuple[Any, ...], _Sizes] = {}


def _sizes(env: Environment, config: AgentConfig) -> _Sizes:
    key = shape_key(env, config)
    if key not in _known_sizes:
        one = allocate([(env, config, 0)])
        _known_sizes[key] = _Sizes(one.runs_side_by_side, one.bytes_per_run, one.blocks)
    return _known_sizes[key]


def room_for(env: Environment, config: AgentConfig) -> int:
    """How many runs of this shape to give to the GPU at once: as many as work side by side and fit."""
    sizes = _sizes(env, config)
    free = require_gpu().cuda.runtime.memGetInfo()[0]
    return max(1, min(sizes.side_by_side, int(0.8 * free) // sizes.bytes))


def multiprocessors_per_run(env: Environment, config: AgentConfig) -> int:
    """How many multiprocessors a run of this shape keeps busy: one for every block.

    Blocks wait for each other, so launches that share the device must all be resident at once. They are, if
    together they have no more blocks than there are multiprocessors.
    """
    return _sizes(env, config).blocks


def num_multiprocessors() -> int:
    """How many the device has."""
    return device_attribute("MultiProcessorCount")


def own_stream() -> Any:
    """A context in which a thread's launches wait for none of another thread's."""
    return require_gpu().cuda.Stream(non_blocking=True)


class CudaRun:
    """One run on the GPU, as `train` and the studies know it."""

    def __init__(self, packed: Any) -> None:
        self._packed = packed

    @property
    def step(self) -> int:
        """Transitions done."""
        return int(self._packed.step(0))

    def advance(self, steps: int) -> float:
        return float(self.advance_bins(1, steps)[0])

    def advance_bins(self, num_bins: int, bin_size: int) -> np.ndarray:
        sums: np.ndarray = self._packed.advance_bins(num_bins, bin_size)[0]
        return sums

    def counters(self) -> dict[str, float]:
        counters: dict[str, float] = self._packed.counters(0)
        return counters

    def snapshot(self) -> dict[str, np.ndarray]:
        part: dict[str, np.ndarray] = self._packed.snapshot(0)
        return part

    def state(self) -> dict[str, np.ndarray]:
        state: dict[str, np.ndarray] = self._packed.state(0)
        return state

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        self._packed.restore(0, state)


def open_run(env: Environment, config: AgentConfig, seed: int) -> CudaRun:
    """A run at step 0 on the GPU."""
    return CudaRun(open_packed_runs([(env, config, seed)]))
