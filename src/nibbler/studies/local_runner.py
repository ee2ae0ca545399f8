"""A study on this machine: as many worker processes as cores, each with one run at a time."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, Any

from nibbler.studies.begin import begin
from nibbler.studies.events import ENDINGS, OnEvent, Outcome, RunEvent
from nibbler.studies.execute import SAVE_EVERY
from nibbler.studies.interrupt import stop_on_signal
from nibbler.studies.spec import RunSpec, Study
from nibbler.studies.store import ResultsFolder

# The worker imports what its parent could, wherever that was started from.
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from nibbler.studies.worker import main; main()"
)
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
# On a GPU, JAX would take most of its memory for one process, and choose its kernels by timing them: a run
# resumed in another process would round otherwise.
_SHARED_GPU = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
_SAME_KERNELS = "--xla_gpu_autotune_level=0"

Job = Sequence[RunSpec]  # what a worker is given: one run, or Rainbow runs of one shape to pack


def run_study(
    study: Study,
    folder: str | Path,
    *,
    workers: int | None = None,
    on_event: OnEvent | None = None,
    save_every: float = SAVE_EVERY,
    tracking: str | None = None,
) -> Outcome:
    """Run what is missing of a study, several runs at a time, and return how each run ended.

    Ctrl-C (or SIGTERM) saves every run and stops; running the study again resumes it. A run that fails, or
    whose process dies, is reported and does not touch the others.
    """
    begun = begin(study, folder, workers, on_event)
    pool = Pool(begun.results, {"save_every": save_every, "tracking": tracking}, begun.tell)
    jobs: list[Job] = [[spec] for spec in begun.missing]
    try:
        with stop_on_signal() as stop_asked:
            begun.outcome.interrupted = pool.work(jobs, workers or available_cores(), stop_asked)
    finally:
        pool.close()
    return begun.outcome


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def worker_environment() -> dict[str, str]:
    """This process's environment variables, with what a worker needs where they do not say otherwise."""
    flags = f"{_SAME_KERNELS} {os.environ.get('XLA_FLAGS', '')}".strip()
    return {**dict.fromkeys(_ONE_THREAD, "1"), **_SHARED_GPU, **os.environ, "XLA_FLAGS": flags}


class _Worker:
    """One worker process, the pipe to it, and the runs it has in hand."""

    def __init__(self) -> None:
        path = [os.path.abspath(entry or os.getcwd()) for entry in sys.path]
        # Complaints of the worker go to a file: on the terminal they would run into the live table.
        self.complaints: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        self.process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-c", _BOOT, json.dumps(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.complaints,
            env=worker_environment(),
            start_new_session=True,  # Ctrl-C is for the parent, which then asks
        )
        self.runs: dict[str, tuple[RunSpec, int]] = {}  # by id, with the step last heard of
        self.pending = b""

    def send(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # it died: reading will tell
            assert self.process.stdin is not None
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()

    def read(self) -> list[RunEvent] | None:
        """Events that came in; None when the process has closed its end."""
        assert self.process.stdout is not None
        chunk = os.read(self.process.stdout.fileno(), 65536)
        if not chunk:
            return None
        *lines, self.pending = (self.pending + chunk).split(b"\n")
        return [RunEvent.from_dict(json.loads(line)) for line in lines]

    def obituary(self) -> tuple[str, str]:
        """How the process died, in one line, and the last it said."""
        code = self.process.wait()
        if code < 0:
            name = signal.Signals(-code).name
            how = f"its process was killed by {name}"
            how += " (out of memory?)" if name == "SIGKILL" else ""
        else:
            how = f"its process ended unexpectedly with exit code {code}"
        self.complaints.seek(0)
        return f"{how}; run the study again to resume it", self.complaints.read()[-4000:].decode(
            errors="replace"
        )

    def close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout, self.complaints):
            with contextlib.suppress(OSError):
                assert pipe is not None
                pipe.close()


class Pool:
    """Workers that are kept from job to job, since starting Python and compiling costs seconds."""

    def __init__(
        self, results: ResultsFolder, options: dict[str, Any], tell: Callable[[RunEvent], None]
    ) -> None:
        self._results = results
        self._options = options
        self._tell = tell
        self._selector = selectors.DefaultSelector()
        self._idle: list[_Worker] = []
        self._busy: list[_Worker] = []
        self._given_up = False

    def work(self, jobs: Iterable[Job], number: int, stop: Callable[[], bool]) -> bool:
        """Do all jobs, `number` at a time; once `stop()`, save and end early, and return True."""
        waiting = deque(jobs)
        stopped = False
        while (waiting or self._busy) and not self._given_up:
            if stop() and not stopped:
                stopped = True
                for worker in self._busy:
                    worker.send({"stop": True})
                for spec in (spec for job in waiting for spec in job):
                    self._tell(RunEvent.about("stopped", spec, message="not started"))
                waiting.clear()
            while waiting and len(self._busy) < number:
                self._give(waiting.popleft())
            self._listen(0.2)
        return stopped

    def give_up(self) -> None:
        """Make `work`, where another thread is in it, return at once."""
        self._given_up = True

    def _give(self, job: Job) -> None:
        """Hand a job to an idle worker, or to a new one."""
        if self._idle:
            worker = self._idle.pop()
        else:
            worker = _Worker()
            self._selector.register(worker.process.stdout, selectors.EVENT_READ, worker)  # type: ignore[arg-type]
        worker.runs = {spec.id: (spec, 0) for spec in job}
        self._busy.append(worker)
        folder = str(self._results.path.absolute())
        worker.send({"specs": [spec.to_dict() for spec in job], "folder": folder, "options": self._options})

    def _listen(self, timeout: float) -> None:
        """Pass on what the workers tell."""
        for key, _ in self._selector.select(timeout):
            worker: _Worker = key.data
            events = worker.read()
            if events is None:
                self._bury(worker)
                continue
            for event in events:
                worker.runs[event.id] = (worker.runs[event.id][0], event.step)
                if event.kind in ENDINGS:
                    del worker.runs[event.id]
                    if not worker.runs:
                        self._busy.remove(worker)
                        self._idle.append(worker)
                self._tell(event)

    def close(self, patience: float = 10.0) -> None:
        """Hang up: idle workers leave; busy ones (after a second Ctrl-C) get a moment and are killed."""
        workers = [*self._idle, *self._busy]
        for worker in workers:
            worker.close()
        deadline = time.monotonic() + patience
        for worker in workers:
            try:
                worker.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()  # safe at any moment: the last checkpoint counts
                worker.process.wait()
        self._selector.close()

    def _bury(self, worker: _Worker) -> None:
        self._selector.unregister(worker.process.stdout)  # type: ignore[arg-type]
        message, details = worker.obituary()
        worker.close()
        (self._busy if worker.runs else self._idle).remove(worker)
        for spec, step in worker.runs.values():
            self._tell(RunEvent.about("failed", spec, step, message=message, details=details))
