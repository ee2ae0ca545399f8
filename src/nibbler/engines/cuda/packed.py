"""Many runs side by side on one GPU: device arrays with an axis over runs, launches, and what comes back.

A subclass says which arrays its kernel works on and how they follow from the canonical state. The host sees
the device only between launches: binned rewards after each, whole states when asked.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from nibbler.agents.config import AgentConfig
from nibbler.engines.cuda.device import device_attribute, fit, require_gpu
from nibbler.engines.cuda.plan import Plan
from nibbler.engines.cuda.tables import DeviceEnvironments, board_slots
from nibbler.mdp.environment import Environment
from nibbler.mdp.simulate import observe_reference

SCALARS = np.dtype(
    [
        ("seed", "<u8"),
        ("step", "<u8"),
        ("epsilon_threshold", "<u8"),
        ("action", "<i4"),
        ("environment", "<i4"),
        ("gamma", "<f4"),
        ("nu", "<f4"),
        ("linear_nu", "<f4"),
        ("alpha_main", "<f4"),
        ("alpha_answer", "<f4"),
        ("alpha_linear", "<f4"),
        ("input_threshold", "<f4"),
        ("cumulant_threshold", "<f4"),
    ]
)
DECAY_LOW, DECAY_HIGH = 64, 256  # as in common.cuh
LAUNCH_SECONDS = 3.0  # aimed at; far below what a display driver or an impatient user allows
LARGEST_STEP = 2**32 - 2**24  # the kernels count steps in 32 bits

Config = TypeVar("Config", bound=AgentConfig)


class PackedRuns(Generic[Config]):
    """Runs of one shape on one device; seeds, step sizes and other scalars may differ."""

    kernel_name: ClassVar[str]
    letters: int  # words that a block posts per step

    def __init__(self, problems: Sequence[tuple[Environment, Config, int]], plan: Plan, size: str) -> None:
        """`size` says in words what may be too much for the device."""
        cupy = require_gpu()
        self.problems = list(problems)
        env, self.config, _ = problems[0]
        self.num_features, self.num_actions = env.num_features, env.num_actions
        slots = max(board_slots(e.tables) for e, _, _ in problems)
        shape = (self.config, env.num_features, env.num_actions, env.num_components, slots)
        self.plan, self.macros, self.kernel = fit(
            self.kernel_name, plan, shape, f"{size} on {env.num_features} features"
        )
        if self.kernel.scalars_bytes != SCALARS.itemsize:
            raise RuntimeError("host and kernel disagree on the scalars of a run; this is a bug")
        self.blocks = self.macros["BLOCKS"]
        self.environments = DeviceEnvironments([env for env, _, _ in problems])
        self.scalars = np.zeros(len(problems), dtype=SCALARS)
        self._arrays: dict[str, Any] = {}
        self._pace = 0.0  # seconds per step of the last launch
        self._before = [(0, 0) for _ in problems]  # weights touched and clock when a run was restored
        self._allocate(cupy)

    # -- what a subclass provides --

    def array_shapes(self) -> dict[str, tuple[tuple[int, ...], Any]]:
        """Shape and dtype of one run's share of every device array, in the order of the kernel's State."""
        raise NotImplementedError

    def to_device(self, index: int, state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """A run's device arrays from its canonical state."""
        raise NotImplementedError

    def from_device(self, index: int, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """A run's canonical state, without environment and clock, from its device arrays."""
        raise NotImplementedError

    def run_scalars(self, config: Config) -> dict[str, float]:
        """The scalars of a run that its config determines."""
        raise NotImplementedError

    def snapshot(self, index: int) -> dict[str, np.ndarray]:
        """What a study keeps of a state to look inside; a flat network has no questions."""
        return {}

    def counters(self, index: int) -> dict[str, float]:
        """Totals of run `index` so far that are quick to read, for the diagnostics of a curve."""
        raise NotImplementedError

    # -- memory --

    def _allocate(self, cupy: Any) -> None:
        runs = len(self.problems)
        shapes = self.array_shapes()
        needed = sum(int(np.prod(shape)) * np.dtype(dtype).itemsize for shape, dtype in shapes.values())
        try:
            for name, (shape, dtype) in shapes.items():
                self._arrays[name] = cupy.zeros((runs, *shape), dtype=dtype)
        except cupy.cuda.memory.OutOfMemoryError:
            free = cupy.cuda.runtime.memGetInfo()[0]
            raise MemoryError(
                f"{runs} runs of {self.problems[0][1].name} need {runs * needed / 2**30:.1f} GiB on the GPU, "
                f"and {free / 2**30:.1f} GiB are free: at most {free // max(needed, 1)} such runs fit at once"
            ) from None
        pointers = np.array([array.data.ptr for array in self._arrays.values()], dtype=np.uint64)
        if pointers.nbytes != self.kernel.state_bytes:
            raise RuntimeError("host and kernel disagree on the arrays of a run; this is a bug")
        self._pointers = cupy.asarray(pointers)
        self._device_scalars = cupy.zeros(runs * SCALARS.itemsize, dtype=np.uint8)
        self._mail = cupy.zeros((runs, 2, self.letters, self.blocks), dtype=np.uint64)

    @property
    def bytes_per_run(self) -> int:
        """Device memory of one run's state."""
        return sum(int(array.nbytes) for array in self._arrays.values()) // len(self.problems)

    @property
    def runs_side_by_side(self) -> int:
        """How many runs the device works on at the same time; more than that take turns."""
        return max(1, self.kernel.resident_blocks() // self.blocks)

    @property
    def seconds_per_step(self) -> float:
        """Wall-clock time of one step of all runs in the last launch."""
        return self._pace

    # -- runs --

    def restore(self, index: int, state: Mapping[str, np.ndarray]) -> None:
        """Make run `index` the one that a canonical state describes."""
        cupy = require_gpu()
        _, config, seed = self.problems[index]
        for name, value in self.to_device(index, state).items():
            self._arrays[name][index] = cupy.asarray(value)
        self._arrays["states"][index] = cupy.asarray(np.asarray(state["states"], dtype=np.int32))
        self._arrays["decay"][index] = cupy.asarray(decay_table(self.run_scalars(config)["nu"]))
        scalars = self.scalars[index : index + 1]
        scalars["seed"] = seed
        scalars["step"] = int(state["step"])
        scalars["action"] = int(state["action"])
        scalars["environment"] = self.environments.index[index]
        scalars["epsilon_threshold"] = round(config.epsilon * 2**32)
        scalars["gamma"] = config.discount
        for name, number in self.run_scalars(config).items():
            scalars[name] = number

    def state(self, index: int) -> dict[str, np.ndarray]:
        """Run `index` under the canonical names."""
        env, _, _ = self.problems[index]
        arrays = self.download(index, self._arrays)
        return {
            **self.from_device(index, arrays),
            "states": arrays["states"],
            "active": observe_reference(env.tables, arrays["states"]),
            "action": np.array(int(self.scalars["action"][index])),
            "step": np.array(int(self.scalars["step"][index])),
        }

    def download(self, index: int, names: Iterable[str]) -> dict[str, np.ndarray]:
        """Some device arrays of run `index`."""
        return {name: self._arrays[name][index].get() for name in names}

    def step(self, index: int) -> int:
        """The clock of run `index`."""
        return int(self.scalars["step"][index])

    def advance_bins(self, num_bins: int, bin_size: int) -> np.ndarray:
        """Run all runs for num_bins * bin_size steps; the sums of rewards, float64[runs, num_bins]."""
        if int(self.scalars["step"].max()) + num_bins * bin_size > LARGEST_STEP:
            raise ValueError(
                f"the cuda engine counts up to {LARGEST_STEP} steps; use engine='cpu' beyond that"
            )
        sums = np.empty((len(self.problems), num_bins))
        done = 0
        while done < num_bins:
            affordable = max(1, int(LAUNCH_SECONDS / max(self._pace * bin_size, 1e-12))) if self._pace else 1
            bins = min(affordable, num_bins - done)
            sums[:, done : done + bins] = self._launch(bins, bin_size)
            done += bins
        return sums

    def _launch(self, num_bins: int, bin_size: int) -> np.ndarray:
        cupy = require_gpu()
        runs = len(self.problems)
        self._device_scalars.set(self.scalars.view(np.uint8).reshape(-1))
        self._mail.fill(0)
        bins = cupy.empty((runs, num_bins), dtype=np.float64)
        began = time.perf_counter()
        # Blocks of one run wait for each other, so all of a launch must be resident; single blocks need not.
        together = runs if self.blocks == 1 else self.runs_side_by_side
        try:
            for first in range(0, runs, together):
                self.kernel.function(
                    (min(together, runs - first) * self.blocks,),
                    (self.kernel.threads,),
                    (
                        self._pointers,
                        self.environments.pointers,
                        self._device_scalars,
                        self._mail,
                        bins,
                        np.uint32(first),
                        np.uint32(num_bins),
                        np.uint32(bin_size),
                        np.uint32(self.kernel.pool_rows),
                    ),
                    shared_mem=self.kernel.shared_bytes,
                )
            # Wait here, not in the copy: one that waits for a kernel holds up those of packs beside this one.
            cupy.cuda.get_current_stream().synchronize()
            sums: np.ndarray = bins.get()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            names = ", ".join(f"{config.name} seed {seed}" for _, config, seed in self.problems[:8])
            raise RuntimeError(
                f"the GPU failed in steps {int(self.scalars['step'].min())} to "
                f"{int(self.scalars['step'].max()) + num_bins * bin_size} of {runs} runs ({names}): {error}; "
                "what was saved before is intact"
            ) from None
        self._pace = (time.perf_counter() - began) / (num_bins * bin_size)
        self.scalars = self._device_scalars.get().view(SCALARS).copy()
        return sums

    def report(self) -> str:
        """What runs where, in one line."""
        per_launch = min(len(self.problems), self.runs_side_by_side)
        return (
            f"{len(self.problems)} runs of {self.problems[0][1].name}, {per_launch} side by side: "
            f"{self.blocks} blocks of {self.kernel.threads} threads each, {self.kernel.shared_bytes} bytes "
            f"of shared memory per block ({self.kernel.pool_rows} rows of weights in each pool), "
            f"{self.bytes_per_run / 2**20:.1f} MiB per run, "
            f"{device_attribute('MultiProcessorCount')} multiprocessors"
        )


def decay_table(nu: float) -> np.ndarray:
    """nu^k and nu + ... + nu^k for k below 64, then for the multiples of 64, as float32 pairs."""
    steps = np.concatenate([np.arange(DECAY_LOW), DECAY_LOW * np.arange(DECAY_HIGH)]).astype(np.float64)
    power = np.power(nu, steps)
    return np.stack([power, nu * (1.0 - power) / (1.0 - nu)], axis=1).astype(np.float32)
