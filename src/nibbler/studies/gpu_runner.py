"""A study on one GPU: runs of one shape are packed into one launch and advance side by side.

What the GPU cannot run (an agent without a CUDA kernel, a run that was begun on another engine, an agent of
one's own) goes to processes on this machine, after the rest.
"""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from nibbler.agents.config import AgentConfig
from nibbler.engines.run import engine_module
from nibbler.studies import local_runner
from nibbler.studies.build import build_agent, build_environment
from nibbler.studies.events import OnEvent, Outcome, RunEvent
from nibbler.studies.execute import LARGEST_SAVING_SHARE, PROGRESS_SECONDS, SAVE_EVERY, failure
from nibbler.studies.interrupt import stop_on_signal
from nibbler.studies.lock import RunLock, RunLockedError
from nibbler.studies.session import Session
from nibbler.studies.spec import RunSpec, Study
from nibbler.studies.store import ResultsFolder

Problem = tuple[Any, AgentConfig, int]  # environment, config, seed
Tell = Callable[[RunEvent], None]


def run_study(
    study: Study,
    folder: str | Path,
    *,
    workers: int | None = None,
    on_event: OnEvent | None = None,
    save_every: float = SAVE_EVERY,
    tracking: str | None = None,
) -> Outcome:
    """Run what is missing of a study on the GPU, as many runs at once as work side by side on it.

    `workers` is for the runs that go to processes. Ctrl-C saves every run and stops.
    """
    engine = engine_module("cuda")
    engine.require_gpu()
    results = ResultsFolder(folder)
    results.save_study(study)
    outcome = Outcome()

    def tell(event: RunEvent) -> None:
        outcome.note(event)
        if on_event is not None:
            on_event(event)

    packs, others = _sort(study, results, engine, tell)
    with stop_on_signal() as stop_asked:
        for pack in packs:
            while pack and not stop_asked():
                room = engine.room_for(*pack[0][1][:2])
                together, pack = pack[:room], pack[room:]
                _run_together(together, results, engine, tell, stop_asked, save_every, tracking)
            for spec, _ in pack:
                tell(RunEvent.about("stopped", spec, message="not started"))
        outcome.interrupted = stop_asked()
    if others and not outcome.interrupted:
        rest = Study(study.name, study.size, tuple(others), study.description, study.reading)
        ended = local_runner.run_study(
            rest, folder, workers=workers, on_event=tell, save_every=save_every, tracking=tracking
        )
        outcome.interrupted = ended.interrupted
        results.save_study(study)  # the whole of it again
    return outcome


def _sort(
    study: Study, results: ResultsFolder, engine: Any, tell: Tell
) -> tuple[list[list[tuple[RunSpec, Problem]]], list[RunSpec]]:
    """What is missing: packs that can share a launch and are at the same step; what the GPU cannot run."""
    packs: dict[Any, list[tuple[RunSpec, Problem]]] = {}
    others: list[RunSpec] = []
    environments: dict[str, Any] = {}  # equal ones are one object, so that they share their tables
    for spec in study.runs:
        done = results.run(spec).finished
        tell(RunEvent.about("skipped" if done else "queued", spec, spec.steps if done else 0))
        if done:
            continue
        problem = _problem(spec, engine, environments)
        begun = results.run(spec).load_checkpoint()
        if problem is None or (begun is not None and begun[0]["engine"] != "cuda"):
            others.append(spec)
            continue
        step = 0 if begun is None else int(begun[0]["step"])
        key = (engine.shape_key(*problem[:2]), spec.bin_size, spec.steps, step)
        packs.setdefault(key, []).append((spec, problem))
    return list(packs.values()), others


def _problem(spec: RunSpec, engine: Any, environments: dict[str, Any]) -> Problem | None:
    """What to pack for a spec, or None if the CUDA engine does not run it."""
    if spec.engine not in ("auto", "cuda") or "import" in spec.agent:
        return None
    if spec.agent["name"] not in engine.AGENTS:
        return None
    env = environments.setdefault(repr(sorted(spec.environment.items())), build_environment(spec.environment))
    return env, build_agent(spec, env), spec.seed


def _run_together(
    runs: Sequence[tuple[RunSpec, Problem]],
    results: ResultsFolder,
    engine: Any,
    tell: Tell,
    stop: Callable[[], bool],
    save_every: float,
    tracking: str | None,
) -> None:
    """Run some specs of one shape to their end, or until `stop()`. What fails, fails for all of them."""
    with ExitStack() as held:
        mine: list[tuple[RunSpec, Problem]] = []
        locks: list[RunLock] = []
        for spec, problem in runs:
            try:
                locks.append(held.enter_context(RunLock(results.run(spec).path)))
                mine.append((spec, problem))
            except RunLockedError as error:
                tell(RunEvent.about("elsewhere", spec, message=str(error)))
        if not mine:
            return
        sessions: list[Session] = []
        try:
            pack = _Pack(engine, [problem for _, problem in mine], mine[0][0])
            for index, (spec, problem) in enumerate(mine):
                run_folder = results.run(spec)
                run_folder.create(spec)
                run_folder.save_error(None)
                member = _Member(pack, index)
                opened = (member, "cuda", problem[1].to_dict())
                session = Session(spec, run_folder, tracking, lambda *_, opened=opened: opened)
                pack.step = session.step
                sessions.append(session)
                tell(RunEvent.about("started", spec, session.step, message=pack.packed.report()))
            _advance(sessions, locks, tell, stop, save_every)
            for lock, session in zip(locks, sessions, strict=True):
                lock.check()
                if session.done:
                    session.finish()
                else:
                    session.save()
                event = RunEvent.about("finished" if session.done else "stopped", session.spec)
                tell(dataclasses.replace(event, **session.progress()))
        except Exception as error:  # the other packs go on
            for spec, _ in mine:
                tell(failure(spec, results.run(spec), error))
        finally:
            for session in sessions:
                session.close()


def _advance(
    sessions: Sequence[Session],
    locks: Sequence[RunLock],
    tell: Tell,
    stop: Callable[[], bool],
    save_every: float,
) -> None:
    """Advance all sessions bin by bin, in step, and save them now and then."""
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


class _Pack:
    """Packed runs that go to the end of a bin at once; their sessions then take what came of it."""

    def __init__(self, engine: Any, problems: Sequence[Problem], spec: RunSpec) -> None:
        self.packed = engine.open_packed_runs(problems)
        self.step = 0
        self.queues: list[deque[tuple[int, float, float]]] = [deque() for _ in problems]
        self._bin_size, self._steps = spec.bin_size, spec.steps

    def advance(self, size: int) -> None:
        """Fill all queues with blocks of `size` steps until the end of the bin: (steps, reward, seconds)."""
        left = min(self._bin_size - self.step % self._bin_size, self._steps - self.step)
        blocks = max(1, left // size)
        began = time.perf_counter()
        sums = self.packed.advance_bins(blocks, size)
        seconds = (time.perf_counter() - began) / blocks
        for queue, row in zip(self.queues, sums, strict=True):
            queue.extend((size, float(total), seconds) for total in row)
        self.step += blocks * size


class _Member:
    """One of the packed runs, as a session knows it."""

    def __init__(self, pack: _Pack, index: int) -> None:
        self._pack = pack
        self._index = index
        self._seconds = 0.0

    @property
    def step(self) -> int:
        """Transitions done."""
        return int(self._pack.packed.step(self._index))

    def clock(self) -> float:
        """Seconds of the launches that this run took part in."""
        return self._seconds

    def advance(self, steps: int) -> float:
        return float(self.advance_bins(1, steps)[0])

    def advance_bins(self, num_bins: int, bin_size: int) -> np.ndarray:
        queue = self._pack.queues[self._index]
        sums = np.empty(num_bins)
        for k in range(num_bins):
            if not queue:
                self._pack.advance(bin_size)
            size, sums[k], seconds = queue.popleft()
            if size != bin_size:
                raise RuntimeError(f"packed runs are out of step: {size} steps are there, not {bin_size}")
            self._seconds += seconds
        return sums

    def counters(self) -> dict[str, float]:
        counters: dict[str, float] = self._pack.packed.counters(self._index)
        return counters

    def state(self) -> dict[str, np.ndarray]:
        if self._pack.queues[self._index]:
            raise RuntimeError("a packed run's state is read only when its session has caught up with it")
        state: dict[str, np.ndarray] = self._pack.packed.state(self._index)
        return state

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        self._pack.packed.restore(self._index, state)
