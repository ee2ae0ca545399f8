"""One way to run any agent on any environment, on any engine: `train`, and the protocol behind it.

An engine is a module with `AGENTS`, the names of the agents it runs, and `open_run(env, config, seed) ->
Run`. A `Run` is the whole of environment, agent and clock. It holds no generator state (random numbers are
counted by the step), so `state()` followed by `restore()` in a fresh run continues it bit for bit.
"""

import importlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from nibbler.agents.config import AgentConfig
from nibbler.agents.registry import default_config
from nibbler.engines.checkpoint import (
    checkpoint_file,
    fingerprint,
    read_checkpoint,
    refuse_other_run,
    write_checkpoint,
)
from nibbler.engines.progress import ProgressBar
from nibbler.engines.record import environment_record, machine_record

if TYPE_CHECKING:
    from nibbler.engines.inspect import Inspection
    from nibbler.mdp.environment import Environment

ENGINES = {
    "reference": "nibbler.engines.reference",
    "cpu": "nibbler.engines.cpu",
    "cuda": "nibbler.engines.cuda",
    "jax": "nibbler.engines.jax",
}
_CHUNK_SECONDS = (
    0.5  # how long a run works before it looks up: Ctrl-C waits this long, the bar moves this often
)


class Run(Protocol):
    """Environment, agent and clock of one run on some engine."""

    step: int  # transitions done, which is the number of updates the agent has made

    def advance(self, steps: int) -> float:
        """Run that many steps and return the sum of their rewards."""

    def advance_bins(self, num_bins: int, bin_size: int) -> np.ndarray:
        """Run num_bins * bin_size steps; the sum of rewards of each bin, float64[num_bins]."""

    def state(self) -> dict[str, np.ndarray]:
        """Everything the run is, as copies under the canonical names; savable without pickle."""

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Become the run that `state()` described."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C reached `train` between two steps; `result` holds what was done until then."""

    def __init__(self, message: str, result: "Result") -> None:
        super().__init__(message)
        self.result = result


@dataclass(frozen=True)
class Result:
    """What a run earned and how: rewards per bin, speed, record, and the state to look inside."""

    rewards: np.ndarray  # mean reward per bin of steps; the last bin may be shorter than bin_size
    bin_size: int
    steps: int
    steps_per_second: float  # without the first chunk of each call, in which functions may be compiled
    record: dict[str, Any]
    state: dict[str, np.ndarray] = field(repr=False)
    env: "Environment" = field(repr=False)

    def inspect(self) -> "Inspection":
        """Look inside the learner: its questions, its inputs, what it has found."""
        from nibbler.engines.inspect import inspect_state

        return inspect_state(self.state, self.env)


def engine_module(name: str) -> ModuleType:
    """The module of an engine; a missing optional package is named in the error."""
    if name not in ENGINES:
        raise ValueError(f"engine={name!r} is not known; choose auto, {', '.join(ENGINES)}")
    return importlib.import_module(ENGINES[name])


def choose_engine(agent: str) -> str:
    """The fastest engine that runs this agent here: cuda where there is a GPU, else cpu, else reference."""
    if agent == "rainbow":
        return "jax"
    if gpu_available() and agent in engine_module("cuda").AGENTS:
        return "cuda"
    return "cpu" if agent in engine_module("cpu").AGENTS else "reference"


def gpu_available() -> bool:
    """True if CuPy is installed and sees a GPU that the cuda engine can use."""
    try:
        engine_module("cuda").require_gpu()
    except Exception:  # CuPy has errors of its own where there is a wheel but no driver
        return False
    return True


def config_for(env: "Environment", agent: str | AgentConfig) -> AgentConfig:
    """The config meant by `agent` on this environment, checked against its size."""
    if isinstance(agent, AgentConfig):
        config = agent
    else:
        config = default_config(agent, env.num_components, env.num_features)
    config.validate_for(env.num_features, env.num_actions)
    if env.coupling != "broadcast":
        raise ValueError(f"coupling={env.coupling!r}: agents choose one action; use coupling='broadcast'")
    return config


def open_run(env: "Environment", agent: str | AgentConfig, seed: int = 0, engine: str = "auto") -> Run:
    """A run at step 0, ready to advance."""
    config = config_for(env, agent)
    if not isinstance(seed, (int, np.integer)) or isinstance(seed, bool) or not 0 <= seed < 2**64:
        raise ValueError(f"seed={seed!r} must be a whole number from 0 to 2**64 - 1")
    name = choose_engine(config.name) if engine == "auto" else engine
    module = engine_module(name)
    if config.name not in module.AGENTS:
        raise ValueError(f"the {name} engine runs {', '.join(sorted(module.AGENTS))}; not {config.name!r}")
    run: Run = module.open_run(env, config, int(seed))
    return run


def train(
    env: "Environment",
    agent: str | AgentConfig = "nibbler",
    steps: int = 1_000_000,
    seed: int = 0,
    engine: str = "auto",
    bin_size: int = 10_000,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    save_every: float = 300.0,
) -> Result:
    """Run `agent` on `env` for `steps` steps in all and return what it earned.

    With `checkpoint` (a folder or an .npz file) the run is saved there every `save_every` seconds, on
    Ctrl-C and at the end; the same call continues it, and more `steps` prolong it. A continued run equals
    one that never stopped, bit for bit. `progress=None` shows a bar only where stderr is a terminal.

    The discount runs on where a board's episode ends (`episodic_catch_board`): the environment is one
    continuing stream here. `nibbler.train_gymnasium` cuts episodes.
    """
    for name, value in (("steps", steps), ("bin_size", bin_size)):
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name}={value!r} must be a whole number of at least 1")
    config = config_for(env, agent)
    file = None if checkpoint is None else checkpoint_file(checkpoint)
    stored = _stored_run(file) if file is not None and file.exists() else None
    if engine == "auto":  # a run stays on the engine that began it
        engine = stored[0]["run"]["engine"] if stored else choose_engine(config.name)
    training = _Training(env, config, int(seed), engine, int(bin_size), file)
    if stored is not None:
        training.resume(*stored)
        if training.curve.steps > steps:
            done = f"{file} has already done {training.curve.steps} steps"
            raise ValueError(f"{done}; ask for at least that many, not {steps}")
    if stored is None or training.curve.steps < steps:
        training.work(steps, progress, save_every)
        training.save()
    if training.curve.steps < steps:
        done = f"stopped after {training.curve.steps:,} of {steps:,} steps"
        if file is None:
            raise Interrupted(f"{done}; nothing saved: no checkpoint was given", training.result())
        raise Interrupted(f"{done}; saved in {file}; the same call resumes it", training.result())
    return training.result()


def _stored_run(file: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays of a checkpoint that `train` wrote."""
    header, arrays = read_checkpoint(file)
    if "run" not in header:
        raise ValueError(f"{file} holds no run of `train`; a saved agent is loaded with `Nibbler.load`")
    return header, arrays


class _Training:
    """A run of `train` with what belongs to it: what it earned, how long it took, and where it is saved."""

    def __init__(
        self,
        env: "Environment",
        config: AgentConfig,
        seed: int,
        engine: str,
        bin_size: int,
        file: Path | None,
    ) -> None:
        self.env = env
        self.run = open_run(env, config, seed, engine)
        self.curve = Curve(bin_size)
        self._file = file
        self._identity: dict[str, Any] = {
            "agent": config.to_dict(),
            "bin_size": bin_size,
            "engine": engine,
            "environment": fingerprint(env.tables._asdict()),
            "seed": seed,
        }
        self._seconds = 0.0  # of work in all
        self._timed_steps, self._timed_seconds = 0, 0.0  # without first chunks, which may compile

    def resume(self, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Continue from a checkpoint of this very run."""
        refuse_other_run(self._file, header["run"], self._identity)
        self.curve = Curve(self.curve.bin_size, arrays["curve_sums"], int(arrays["curve_steps"]))
        self._seconds = float(header["seconds"])
        self._timed_steps, self._timed_seconds = int(header["timed_steps"]), float(header["timed_seconds"])
        self.run.restore({name: array for name, array in arrays.items() if not name.startswith("curve_")})

    def save(self) -> None:
        """Write the checkpoint, if a place for it was given."""
        if self._file is not None:
            rewards = {"curve_sums": self.curve.sums, "curve_steps": np.array(self.curve.steps)}
            header = {
                "run": self._identity,
                "seconds": self._seconds,
                "timed_steps": self._timed_steps,
                "timed_seconds": self._timed_seconds,
            }
            write_checkpoint(self._file, header, {**self.run.state(), **rewards})

    def work(self, steps: int, progress: bool | None, save_every: float) -> None:
        """Advance to that many steps, or to the end of the chunk in which Ctrl-C was pressed."""
        title, curve = self._identity["agent"]["agent"], self.curve
        with _interrupts() as interrupted, ProgressBar(title, steps, curve.steps, progress) as bar:
            saved_at = time.perf_counter()
            pace = 0.0  # steps per second of the last chunk; the first is a single block, and may compile
            while curve.steps < steps and not interrupted():
                began, before = time.perf_counter(), curve.steps
                earned = curve.extend(self.run, int(pace * _CHUNK_SECONDS), steps)
                done, took = curve.steps - before, max(time.perf_counter() - began, 1e-9)
                self._seconds += took
                if pace > 0.0:
                    self._timed_steps += done
                    self._timed_seconds += took
                pace = done / took
                bar.update(curve.steps, pace, earned / done)
                if time.perf_counter() - saved_at > save_every:
                    self.save()
                    saved_at = time.perf_counter()

    def result(self) -> Result:
        """What has been earned until now."""
        state, steps = self.run.state(), self.curve.steps
        timed = self._timed_steps > 0
        speed = self._timed_steps / self._timed_seconds if timed else steps / max(self._seconds, 1e-9)
        record = {
            **machine_record(),
            **self._identity,
            "environment": environment_record(self.env, self._identity["environment"]),
            "steps": steps,
            "seconds": self._seconds,
            "steps_per_second": speed,
        }
        if "weights_touched" in state:
            record["weights_touched_per_step"] = float(state["weights_touched"]) / max(steps, 1)
        means, bin_size = self.curve.means(), self.curve.bin_size
        return Result(means, bin_size, steps, speed, record, state, self.env)


class Curve:
    """Rewards so far, summed per bin in an order that does not depend on where a run was stopped.

    A bin is summed by blocks of at most 500 steps, so that a slow engine can be stopped inside a bin.
    """

    def __init__(self, bin_size: int, sums: np.ndarray | None = None, steps: int = 0) -> None:
        self.bin_size = bin_size
        self.steps = steps
        self._sums: list[float] = [] if sums is None else [float(value) for value in sums]
        largest = max(size for size in range(1, min(bin_size, 500) + 1) if bin_size % size == 0)
        self._block = largest if largest >= 50 else bin_size

    @property
    def sums(self) -> np.ndarray:
        """Sum of rewards per bin; the last bin may not be full."""
        return np.array(self._sums, dtype=np.float64)

    def means(self) -> np.ndarray:
        """Mean reward per bin, each over the steps that it has.

        Another thread may ask for it while the run goes on; then only the last bin may be off.
        """
        sums = self.sums
        lengths = np.full(len(sums), float(self.bin_size))
        lengths[-1:] = self.steps % self.bin_size or self.bin_size
        return sums / lengths

    def extend(self, run: Run, wanted: int, last: int) -> float:
        """Advance the run by about `wanted` steps in whole blocks, not beyond `last`; the rewards earned."""
        left = last - self.steps
        into_block = self.steps % self._block
        if into_block or left < self._block:  # a run whose end was not the end of a block
            length = min(self._block - into_block, left)
            sums = np.array([run.advance(length)])
        else:
            length = self._block
            sums = run.advance_bins(min(max(1, wanted // length), left // length), length)
        for total in sums:
            if self.steps % self.bin_size == 0:
                self._sums.append(0.0)
            self._sums[-1] += float(total)
            self.steps += length
        return float(sums.sum())


@contextmanager
def _interrupts() -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C into a flag, so that a run stops between two steps; a second one is immediate."""
    pressed = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        yield lambda: False
        return
    previous = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, previous)
