"""A run being worked on: it advances, remembers what came of it, saves, and finishes.

Rewards, counters and snapshots of a part that is repeated after a crash come out the same, bit for bit,
because a run is a function of its spec and its step; only timing differs, and it is kept apart.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

from nibbler.engines.cuda.device import GpuMissingError
from nibbler.engines.record import jax_device
from nibbler.engines.run import Curve, Run
from nibbler.studies.build import build_environment, build_run
from nibbler.studies.files import write_json
from nibbler.studies.provenance import provenance
from nibbler.studies.spec import RunSpec
from nibbler.studies.store import FORMAT, PROGRESS, RunFolder
from nibbler.track import Tracker, open_tracker

CHUNK_SECONDS = 0.5  # how long a run works before it looks up
SNAPSHOTS = 50

# What a snapshot takes from a state that has it, one row per question, and what its column is called.
_SNAPSHOT = {
    "cumulants": "cumulant",
    "inputs": "inputs",
    "input_swaps": "input_swaps",
    "answer_error": "answer_error",
}


def snapshot_steps(spec: RunSpec) -> set[int]:
    """About fifty moments to look inside, at ends of bins: half evenly spaced, half in equal ratios."""
    bins = spec.num_bins
    even = np.linspace(1, bins, min(bins, SNAPSHOTS // 2))
    ratios = np.geomspace(1, bins, min(bins, SNAPSHOTS // 2))
    ends = np.unique(np.rint(np.concatenate([even, ratios])).astype(np.int64))
    return {0, *(min(int(end) * spec.bin_size, spec.steps) for end in ends)}


class Session:
    """A run being worked on: it advances, remembers what came of it, saves, and finishes.

    `execute` drives one. A runner that steps many runs at once drives many, and says with `build` how a run
    is opened. The caller holds the run's lock.
    """

    def __init__(
        self,
        spec: RunSpec,
        folder: RunFolder,
        tracking: str | None = None,
        build: Callable[[RunSpec, Any, str], tuple[Run, str, dict[str, Any]]] = build_run,
    ) -> None:
        self.spec = spec
        self.folder = folder
        self._about = {"id": spec.id, "label": spec.label, "spec": spec.to_dict()}
        loaded = folder.load_checkpoint()
        header, arrays = loaded if loaded is not None else ({}, {})
        self.env = build_environment(spec.environment)
        begun_on = header.get("engine")
        try:
            self.run, self.engine, self.agent = build(spec, self.env, begun_on or spec.engine)
        except GpuMissingError as error:
            if begun_on in (None, spec.engine):
                raise
            raise ValueError(
                f"a run stays on the engine that began it, and {error.lacks}; run the study where that is, "
                f"or delete {folder.path} to begin the run anew"
            ) from error
        self.resumable = bool(getattr(self.run, "resumable", True))
        self.curve = Curve(spec.bin_size)
        self._seconds: list[float] = []  # of work until the end of each bin
        self._work = 0.0
        self._counters: dict[str, list[float]] = {}
        self._snapshots: dict[str, list[np.ndarray]] = {}
        self._snapshot_steps: list[int] = []
        self._segments: list[dict[str, Any]] = list(header.get("segments", []))
        if arrays:
            self._restore(arrays)
        self._due = {step for step in snapshot_steps(spec) if step >= self.curve.steps}
        self._due -= set(self._snapshot_steps)
        self._began = self.curve.steps
        self._work_before = self._work
        self._pace = 0.0  # steps per second of the last chunk
        self._timed_steps, self._timed_seconds = 0, 0.0
        self._first: tuple[int, float] | None = (
            None  # steps and seconds of the first chunk, which may compile
        )
        self._compiling = 0.0  # seconds
        self._started = datetime.now(UTC).isoformat(timespec="seconds")
        self._showing, self._hidden = threading.Lock(), False
        self._tracker: Tracker | None = None
        if tracking is not None:
            self._tracker = open_tracker(tracking, folder.path / tracking, self.curve.steps)
        self._take_snapshot()

    @property
    def step(self) -> int:
        return self.curve.steps

    @property
    def done(self) -> bool:
        return self.curve.steps >= self.spec.steps

    @property
    def reward(self) -> float | None:
        """Mean reward of the latest full bin; before there is one, of what there is."""
        full = len(self._seconds)  # first, as another thread may ask while the run goes on
        means = self.curve.means()
        return float(means[max(full - 1, 0)]) if len(means) else None

    @property
    def steps_per_second(self) -> float | None:
        """Speed in this session, without its first chunk."""
        return self._timed_steps / self._timed_seconds if self._timed_seconds > 0 else None

    def advance(self) -> None:
        """Work for about half a second, at most to the end of the bin."""
        before = self.curve.steps
        end = min((before // self.spec.bin_size + 1) * self.spec.bin_size, self.spec.steps)
        # A run that shares its work with others has a clock of its own.
        clock: Callable[[], float] = getattr(self.run, "clock", time.perf_counter)
        began = clock()
        self.curve.extend(self.run, max(1, int(self._pace * CHUNK_SECONDS)), end)
        self._clock(self.curve.steps - before, max(clock() - began, 1e-9))
        if self.curve.steps == end:
            self._end_bin()

    def _clock(self, steps: int, seconds: float) -> None:
        """Count working time. The first chunk is a single block, and counts as if done at the second's speed:
        the rest of its time went into compiling."""
        if self._pace == 0.0 and not self.done:
            self._first = (steps, seconds)
        else:
            if self._first is not None:
                at_speed = min(self._first[1], self._first[0] * seconds / steps)
                self._compiling = self._first[1] - at_speed
                self._work += at_speed
                self._first = None
            self._work += seconds
            self._timed_steps += steps
            self._timed_seconds += seconds
        self._pace = steps / seconds

    def save(self) -> None:
        """Write a checkpoint, and the curve so far for whoever looks."""
        if self.resumable:
            self.folder.save_checkpoint(self.step, self._header(), self._arrays())
        self._write_tables()

    def finish(self) -> None:
        """Write the results and, last, the record that marks the run as finished."""
        self.save()
        self.folder.save_record(self._record())
        self.folder.forget_checkpoints(1)
        self.close()

    def close(self) -> None:
        if self._tracker is not None:
            self._tracker.close()
            self._tracker = None

    def progress(self) -> dict[str, Any]:
        return {"step": self.step, "reward": self.reward, "steps_per_second": self.steps_per_second}

    def show_progress(self) -> None:
        """Leave how far the run is where `nibbler study status` looks; the lock's heartbeat asks for it."""
        with self._showing:
            if not self._hidden:
                write_json(self.folder.path / PROGRESS, self.progress(), durable=False)

    def hide_progress(self) -> None:
        """The run is no longer under way, and a heartbeat that comes late shows nothing."""
        with self._showing:
            self._hidden = True
            (self.folder.path / PROGRESS).unlink(missing_ok=True)

    # -- inside ----------------------------------------------------------------------------------------------

    def _end_bin(self) -> None:
        self._seconds.append(self._work)
        for name, value in self._read_counters().items():
            self._counters.setdefault(name, []).append(float(value))
        self._take_snapshot()
        if self._tracker is not None:
            latest = {"reward": self.reward, **{k: v[-1] for k, v in self._diagnostics().items()}}
            self._tracker.log(
                self.step, {name: float(value) for name, value in latest.items() if value is not None}
            )

    def _read_counters(self) -> Mapping[str, float]:
        counters: Callable[[], Mapping[str, float]] | None = getattr(self.run, "counters", None)
        return counters() if counters is not None else {}

    def _take_snapshot(self) -> None:
        if self.step not in self._due:
            return
        self._due.discard(self.step)
        # What has a large state may hand out the part of it that a snapshot is made of.
        part: Callable[[], Mapping[str, np.ndarray]] | None = getattr(self.run, "snapshot", None)
        if part is None and self.resumable:
            part = self.run.state
        state = part() if part is not None else {}
        taken = {_SNAPSHOT[name]: np.array(state[name]) for name in _SNAPSHOT if name in state}
        if taken:
            self._snapshot_steps.append(self.step)
            for name, value in taken.items():
                self._snapshots.setdefault(name, []).append(value)

    def _lengths(self) -> np.ndarray:
        return np.diff(self._ends(), prepend=0)

    def _ends(self) -> np.ndarray:
        bins = len(self._seconds)
        return np.minimum(np.arange(1, bins + 1, dtype=np.int64) * self.spec.bin_size, self.spec.steps)

    def _diagnostics(self) -> dict[str, np.ndarray]:
        """Counters as means per step of each bin."""
        lengths = self._lengths()
        return {name: np.diff(np.array(v), prepend=0.0) / lengths for name, v in self._counters.items()}

    def _header(self) -> dict[str, Any]:
        segment = {
            "from": self._began,
            "to": self.step,
            "seconds": round(self._work - self._work_before, 3),
            "compiling_seconds": round(self._compiling, 3),
            **self._device_seconds(),
            **self._device(),
            "steps_per_second": self.steps_per_second,
            "started": self._started,
            **provenance(),
        }
        current = [segment] if self.step > self._began else []
        return {"spec": self.spec.id, "engine": self.engine, "segments": [*self._segments, *current]}

    def _device(self) -> dict[str, str]:
        """What JAX computes on, a GPU or a processor; of every other engine its name tells which it is."""
        return {"device": jax_device()} if self.engine == "jax" else {}

    def _device_seconds(self) -> dict[str, float]:
        """A run's part of the time of a device that it shares, where it knows it."""
        own: Callable[[], float] | None = getattr(self.run, "device_seconds", None)
        return {} if own is None else {"device_seconds": round(own(), 3)}

    def _arrays(self) -> dict[str, np.ndarray]:
        state = self.run.state() if self.resumable else {}
        return {
            **{f"state/{name}": np.asarray(value) for name, value in state.items()},
            **{f"counters/{name}": np.array(values) for name, values in self._counters.items()},
            **{f"snapshots/{name}": np.array(values) for name, values in self._snapshots.items()},
            "snapshot_steps": np.array(self._snapshot_steps, dtype=np.int64),
            "curve/sums": self.curve.sums,
            "curve/steps": np.array(self.curve.steps, dtype=np.int64),
            "curve/seconds": np.array(self._seconds),
            "work": np.array(self._work),
        }

    def _restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        def part(prefix: str) -> dict[str, np.ndarray]:
            return {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}

        self.run.restore(part("state/"))
        self.curve = Curve(self.spec.bin_size, arrays["curve/sums"], int(arrays["curve/steps"]))
        self._seconds = arrays["curve/seconds"].tolist()
        self._work = float(arrays["work"])
        self._counters = {name: values.tolist() for name, values in part("counters/").items()}
        self._snapshots = {name: list(values) for name, values in part("snapshots/").items()}
        self._snapshot_steps = arrays["snapshot_steps"].tolist()

    def _write_tables(self) -> None:
        ends = self._ends()
        curve = {"step": ends, "reward": self.curve.means()[: len(ends)], **self._diagnostics()}
        self.folder.save_table("curve", curve, self._about)
        self.folder.save_table("timing", {"step": ends, "seconds": np.array(self._seconds)}, self._about)
        if self._snapshot_steps:
            self.folder.save_table("snapshots", self._snapshot_table(), self._about)
        names = getattr(self.env, "feature_names", None)
        components = getattr(self.env, "component_of_feature", None)
        if (
            names is not None
            and components is not None
            and not (self.folder.path / "features.parquet").exists()
        ):
            columns: dict[str, np.ndarray | list[str]] = {
                "feature": np.arange(len(names), dtype=np.int32),
                "name": [str(name) for name in names],
                "component": np.asarray(components, dtype=np.int32),
            }
            self.folder.save_table("features", columns, self._about)

    def _snapshot_table(self) -> dict[str, np.ndarray | list[str]]:
        times = len(self._snapshot_steps)
        questions = len(next(iter(self._snapshots.values()))[0])
        columns: dict[str, np.ndarray | list[str]] = {
            "step": np.repeat(np.array(self._snapshot_steps, dtype=np.int64), questions),
            "question": np.tile(np.arange(questions, dtype=np.int32), times),
        }
        for name, taken in self._snapshots.items():
            columns[name] = np.concatenate(taken)
        return columns

    def _record(self) -> dict[str, Any]:
        segments = self._header()["segments"]
        speeds = [(s["to"] - s["from"], s["steps_per_second"]) for s in segments if s["steps_per_second"]]
        seconds = sum(steps / speed for steps, speed in speeds)
        totals = {name: values[-1] for name, values in self._counters.items()}
        if "weights_touched" not in totals and self.resumable:
            touched = self.run.state().get("weights_touched")
            totals.update({} if touched is None else {"weights_touched": float(touched)})
        size = {k: getattr(self.env, k, None) for k in ("num_components", "num_features", "num_actions")}
        return {
            "format": FORMAT,
            "id": self.spec.id,
            "label": self.spec.label,
            "steps": self.step,
            "engine": self.engine,
            **self._device(),
            "agent": self.agent,
            "environment": {name: value for name, value in size.items() if value is not None},
            "last_reward": self.reward,
            "mean_reward": float(self.curve.sums.sum() / self.step),
            "seconds": round(self._work, 3),
            "steps_per_second": sum(n for n, _ in speeds) / seconds if seconds > 0 else None,
            **{f"{name}_per_step": total / self.step for name, total in totals.items()},
            **provenance(),
            "segments": segments,
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        }
