"""A study on one GPU: runs of one shape are packed and advance side by side.

Packs of the CUDA engine run in threads of this process, as many at once as the GPU has multiprocessors for.
Beside them, in processes of their own, go packs of Rainbow (on the same GPU, through JAX) and single runs of
what has no GPU engine, of agents of one's own, and of runs that were begun on another engine.
"""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from nibbler.engines.run import engine_module
from nibbler.studies.begin import Begun, begin
from nibbler.studies.device_shares import DeviceShares
from nibbler.studies.events import OnEvent, Outcome, RunEvent
from nibbler.studies.execute import SAVE_EVERY
from nibbler.studies.interrupt import stop_on_signal
from nibbler.studies.local_runner import Job, Pool, available_cores, worker_environment
from nibbler.studies.packs import build_problems, run_packs
from nibbler.studies.spec import RunSpec, Study
from nibbler.studies.store import RunFolder

PACKS_AT_ONCE = 8  # or being compiled
_ASK_JAX = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); import jax; print(jax.default_backend())"


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

    `workers` is how many processes there are beside this one: for packs of Rainbow, and for what the GPU
    cannot run. Ctrl-C saves every run and stops.
    """
    engine_module("cuda").require_gpu()
    begun = begin(study, folder, workers, on_event)
    results, outcome, tell = begun.results, begun.outcome, begun.tell
    packs, jobs = _sort(begun)
    options: dict[str, Any] = {"save_every": save_every, "tracking": tracking}
    pool = Pool(results, options, tell)
    shares = DeviceShares(engine_module("cuda").num_multiprocessors())
    with stop_on_signal() as stop_asked, ThreadPoolExecutor(1 + PACKS_AT_ONCE) as beside:
        work: list[Future[Any]] = [beside.submit(pool.work, jobs, workers or available_cores(), stop_asked)]

        def run_shape(specs: list[RunSpec]) -> None:
            run_packs(
                "cuda", specs, results, stop=stop_asked, on_event=tell, shares=shares, pass_on=add, **options
            )

        def add(specs: list[RunSpec]) -> None:
            work.append(beside.submit(run_shape, specs))

        try:
            for specs in packs:
                add(specs)
            _wait_for(work)
        finally:
            pool.give_up()
            beside.shutdown()
            pool.close()
        outcome.interrupted = stop_asked()
    return outcome


def _wait_for(work: list[Future[Any]]) -> None:
    """Wait for all, also for what they add to the list, and raise what one of them raised.

    Ctrl-C may reach any thread, but its handler runs in this one, which therefore wakes up now and then.
    """
    while not all(future.done() for future in work):
        wait(list(work), timeout=0.2)
    for future in work:
        future.result()


def _sort(begun: Begun) -> tuple[list[list[RunSpec]], list[Job]]:
    """What is missing: packs for the CUDA engine; packs of Rainbow, and then single runs, for processes."""
    missing = begun.missing
    saved = {spec.id: _engine_and_step(begun.results.run(spec)) for spec in missing}
    cuda = [spec for spec in missing if _runs_on(spec, "cuda", saved[spec.id][0])]
    jax = [spec for spec in missing if _runs_on(spec, "jax", saved[spec.id][0])]
    if jax and not jax_sees_gpu():
        message = (
            f"JAX sees no GPU here, so the {len(jax)} runs of Rainbow go to the CPU, one by one; "
            "pip install 'jax[cuda13]' (or cuda12) lets them share the GPU"
        )
        begun.tell(RunEvent.about("warning", jax[0], message=message))
        jax = []
    packed = {spec.id for spec in (*cuda, *jax)}
    single: list[Job] = [[spec] for spec in missing if spec.id not in packed]
    # The CUDA engine gives the same bits in any pack, so runs at different steps go on in packs of their own.
    at_step: dict[int, list[RunSpec]] = {}
    for spec in cuda:
        at_step.setdefault(saved[spec.id][1], []).append(spec)
    packs = [pack for specs in at_step.values() for pack in _by_shape("cuda", specs)]
    return packs, [*_by_shape("jax", jax), *single]


def _engine_and_step(run: RunFolder) -> tuple[str | None, int]:
    """Which engine has begun a run, and how far it is saved."""
    loaded = run.load_checkpoint()
    return (None, 0) if loaded is None else (loaded[0]["engine"], int(loaded[0]["step"]))


def _runs_on(spec: RunSpec, engine: str, begun_on: str | None) -> bool:
    """Whether this engine runs the spec and, if it was begun, had begun it."""
    agents = {"cuda": engine_module("cuda").AGENTS, "jax": ("rainbow",)}[engine]
    return spec.engine in ("auto", engine) and spec.agent.get("name") in agents and begun_on in (None, engine)


def _by_shape(engine: str, specs: list[RunSpec]) -> list[list[RunSpec]]:
    """The specs that can be side by side, together."""
    packs: dict[Any, list[RunSpec]] = {}
    for spec, (env, config, _) in zip(specs, build_problems(specs), strict=True):
        key = (engine_module(engine).shape_key(env, config), spec.bin_size, spec.steps)
        packs.setdefault(key, []).append(spec)
    return list(packs.values())


def jax_sees_gpu() -> bool:
    """Whether JAX has a GPU, asked in a process of its own: to look is to take some of the GPU's memory."""
    asked = subprocess.run(
        [sys.executable, "-c", _ASK_JAX, json.dumps(sys.path)],
        env=worker_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    return asked.stdout.strip() == "gpu"
