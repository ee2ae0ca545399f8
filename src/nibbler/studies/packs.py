"""Runs of one shape side by side on one device: opened, advanced in step, saved and finished together."""

from __future__ import annotations

import dataclasses
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from nibbler.agents.config import AgentConfig
from nibbler.engines.run import engine_module
from nibbler.studies.build import build_agent, build_environment
from nibbler.studies.device_shares import DeviceShares
from nibbler.studies.events import OnEvent, RunEvent
from nibbler.studies.execute import LARGEST_SAVING_SHARE, PROGRESS_SECONDS, SAVE_EVERY, failure
from nibbler.studies.lock import RunLock, RunLockedError
from nibbler.studies.session import Session
from nibbler.studies.spec import RunSpec
from nibbler.studies.store import DamagedCheckpointWarning, ResultsFolder

Problem = tuple[Any, AgentConfig, int]  # environment, config, seed
Share = Callable[[], float]  # of the device that is in use, now

_catching_warnings = threading.Lock()  # which Python does for all threads at once


def _all_of_it() -> float:
    return 1.0


def build_problems(specs: Sequence[RunSpec]) -> list[Problem]:
    """What an engine packs for some specs; equal environments are one object, so that they share tables."""
    environments: dict[str, Any] = {}
    problems = []
    for spec in specs:
        key = repr(sorted(spec.environment.items()))
        if key not in environments:
            environments[key] = build_environment(spec.environment)
        problems.append((environments[key], build_agent(spec, environments[key]), spec.seed))
    return problems


def run_packs(
    engine: str,
    specs: Sequence[RunSpec],
    results: ResultsFolder,
    *,
    stop: Callable[[], bool],
    on_event: OnEvent,
    shares: DeviceShares | None = None,
    pass_on: Callable[[list[RunSpec]], None] | None = None,
    save_every: float = SAVE_EVERY,
    tracking: str | None = None,
) -> None:
    """Run specs of one shape to their end, or until `stop()`, as many at once as the device has room for.

    With `shares`, threads take their shares of the device from it; without, the device is all theirs. Those
    for which there is no room yet wait until the first ones are done, or go to `pass_on`, which may find
    them a share that others give back before. Errors are told as events: what fails, fails for all that were
    side by side.
    """
    left = list(specs)
    module = engine_module(engine)
    while left and not stop():
        together = left[:1]
        try:
            with ExitStack() as held:
                share: Share = _all_of_it
                if shares is not None:
                    held.enter_context(module.own_stream())
                env, config, _ = build_problems(together)[0]
                together = left[: module.room_for(env, config)]
                if shares is not None:
                    parts = module.multiprocessors_per_run(env, config)
                    admitted, share = held.enter_context(shares.take(len(together), parts))
                    together = together[:admitted]
                    if stop():
                        break
                if pass_on is not None and len(left) > len(together):
                    pass_on(left[len(together) :])
                    left = together
                _run_together(engine, together, results, on_event, stop, share, save_every, tracking)
        except Exception as error:  # the other packs go on
            for spec in together:
                on_event(failure(spec, results.run(spec), error))
        left = left[len(together) :]
    for spec in left:
        on_event(RunEvent.about("stopped", spec, message="not started"))


def _run_together(
    engine: str,
    specs: Sequence[RunSpec],
    results: ResultsFolder,
    tell: OnEvent,
    stop: Callable[[], bool],
    share: Share,
    save_every: float,
    tracking: str | None,
) -> None:
    """Run those of the specs that no other process holds; what is at another step takes its own turn."""
    under_way: dict[str, Session] = {}

    def beat(spec: RunSpec) -> None:
        session = under_way.get(spec.id)
        if session is not None:
            session.show_progress()

    with ExitStack() as held:
        locks: dict[str, RunLock] = {}
        for spec in specs:
            try:
                locks[spec.id] = held.enter_context(
                    RunLock(results.run(spec).path, on_beat=partial(beat, spec))
                )
            except RunLockedError as error:
                tell(RunEvent.about("elsewhere", spec, message=str(error)))
        if not locks:
            return
        for pack in _in_step([spec for spec in specs if spec.id in locks], results, tell):
            sessions: list[Session] = []
            try:
                _open(engine, pack, results, share, tracking, tell, sessions)
                under_way.update((session.spec.id, session) for session in sessions)
                _advance(sessions, [locks[spec.id] for spec in pack], tell, stop, save_every)
            except Exception as error:
                for spec in pack:
                    tell(failure(spec, results.run(spec), error))
            finally:
                for session in sessions:
                    session.close()
                    under_way.pop(session.spec.id, None)
                    session.hide_progress()


def _in_step(specs: Sequence[RunSpec], results: ResultsFolder, tell: OnEvent) -> list[list[RunSpec]]:
    """The specs by the step that they go on from.

    A pack whose process was killed while saving it goes back, all of it, to the save before: JAX rounds
    otherwise when other runs are beside a run, so the same ones must go on together. Runs that were never
    begun were in no such pack.
    """
    begun = [folder for folder in map(results.run, specs) if (folder.path / "spec.json").exists()]
    saved = [dict(folder.checkpoints()) for folder in begun]
    # Whoever has been saved less than twice can also go back to the beginning.
    options = [{*steps, *([0] if len(steps) < 2 else [])} for steps in saved]
    common = set.intersection(*options) if options else set()
    for steps in saved if common else ():
        for path in (path for step, path in steps.items() if step > max(common)):
            path.unlink(missing_ok=True)
    packs: dict[int, list[RunSpec]] = {}
    for spec in specs:
        results.run(spec).create(spec)
        results.run(spec).go_on_from_shorter(spec)
        with _catching_warnings, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", DamagedCheckpointWarning)
            loaded = results.run(spec).load_checkpoint()
        for warning in caught:
            tell(RunEvent.about("warning", spec, message=str(warning.message)))
        packs.setdefault(0 if loaded is None else int(loaded[0]["step"]), []).append(spec)
    return list(packs.values())


def _open(
    engine: str,
    specs: Sequence[RunSpec],
    results: ResultsFolder,
    share: Share,
    tracking: str | None,
    tell: OnEvent,
    sessions: list[Session],
) -> None:
    """Put the specs side by side on the device and add a session for each."""
    problems = build_problems(specs)
    pack = _Pack(engine_module(engine).open_packed_runs(problems), specs[0], share)
    for index, (spec, (_, config, _)) in enumerate(zip(specs, problems, strict=True)):
        folder = results.run(spec)
        folder.save_error(None)
        opened = (_Member(pack, index), engine, config.to_dict())
        session = Session(spec, folder, tracking, lambda *_, opened=opened: opened)
        pack.step = session.step
        sessions.append(session)
        tell(RunEvent.about("started", spec, session.step, message=pack.packed.report()))


def _advance(
    sessions: Sequence[Session],
    locks: Sequence[RunLock],
    tell: OnEvent,
    stop: Callable[[], bool],
    save_every: float,
) -> None:
    """Advance all sessions bin by bin, in step, save them now and then, and finish them."""
    saved = told = time.monotonic()
    patience = save_every
    while not sessions[0].done and not stop():
        spec = sessions[0].spec
        end = min((sessions[0].step // spec.bin_size + 1) * spec.bin_size, spec.steps)
        for session in sessions:
            while session.step < end:
                session.advance()
        now = time.monotonic()
        if now - told >= PROGRESS_SECONDS:
            for session in sessions:
                tell(RunEvent.about("progress", session.spec, **session.progress()))
            told = now
        if now - saved >= patience and not sessions[0].done:
            for lock, session in zip(locks, sessions, strict=True):
                lock.check()
                session.save()
            saved = time.monotonic()
            if save_every > 0:
                patience = max(save_every, (saved - now) / LARGEST_SAVING_SHARE)
    for lock, session in zip(locks, sessions, strict=True):
        lock.check()
        if session.done:
            session.finish()
        else:
            session.save()
        event = RunEvent.about("finished" if session.done else "stopped", session.spec)
        tell(dataclasses.replace(event, **session.progress()))


class _Pack:
    """Packed runs that go to the end of a bin at once; their sessions then take what came of it."""

    def __init__(self, packed: Any, spec: RunSpec, share: Share) -> None:
        self.packed = packed
        self.step = 0
        self.device_seconds = 0.0  # of all runs together, each pack beside this one having its own
        self.queues: dict[int, deque[tuple[int, float, float]]] = {}  # by the number of the run
        self._share = share
        self._bin_size, self._steps = spec.bin_size, spec.steps

    def advance(self, size: int) -> None:
        """Fill all queues with blocks of `size` steps until the end of the bin: (steps, reward, seconds)."""
        left = min(self._bin_size - self.step % self._bin_size, self._steps - self.step)
        blocks = max(1, left // size)
        began = time.perf_counter()
        sums = self.packed.advance_bins(blocks, size)
        seconds = (time.perf_counter() - began) / blocks
        self.device_seconds += seconds * blocks * self._share()
        for index, queue in self.queues.items():
            queue.extend((size, float(total), seconds) for total in sums[index])
        self.step += blocks * size


class _Member:
    """One of the packed runs, as a session knows it."""

    def __init__(self, pack: _Pack, index: int) -> None:
        self._pack = pack
        self._index = index
        self._queue = pack.queues.setdefault(index, deque())
        self._seconds = 0.0
        for name in ("counters", "snapshot"):  # which a session uses where there are any
            if hasattr(pack.packed, name):
                setattr(self, name, partial(getattr(pack.packed, name), index))

    @property
    def step(self) -> int:
        """Transitions done."""
        return int(self._pack.packed.step(self._index))

    def clock(self) -> float:
        """Seconds of the launches that this run took part in."""
        return self._seconds

    def device_seconds(self) -> float:
        """This run's part of the device's time: side by side, runs share it."""
        return self._pack.device_seconds / len(self._pack.queues)

    def advance(self, steps: int) -> float:
        return float(self.advance_bins(1, steps)[0])

    def advance_bins(self, num_bins: int, bin_size: int) -> np.ndarray:
        sums = np.empty(num_bins)
        for k in range(num_bins):
            if not self._queue:
                self._pack.advance(bin_size)
            size, sums[k], seconds = self._queue.popleft()
            if size != bin_size:
                raise RuntimeError(f"packed runs are out of step: {size} steps are there, not {bin_size}")
            self._seconds += seconds
        return sums

    def state(self) -> dict[str, np.ndarray]:
        if self._queue:
            raise RuntimeError("a packed run's state is read only when its session has caught up with it")
        state: dict[str, np.ndarray] = self._pack.packed.state(self._index)
        return state

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        self._pack.packed.restore(self._index, state)
