"""A study on one GPU: runs of one shape are packed and advance side by side.

Packs of the CUDA engine run in threads of this process, as many at once as the GPU has multiprocessors for.
Beside them, in processes of their own, go packs of Rainbow (on the same GPU, through JAX) and single runs of
what has no GPU engine, of agents of one's own, and of runs that were begun on another engine.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
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
from nibbler.studies.store import ResultsFolder

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
    missing, results = begun.missing, begun.results
    step_of: dict[str, int] = {}  # of the runs for the CUDA engine
    jax = []
    for spec in missing:
        if (step := _goes_on_from(spec, "cuda", results)) is not None:
            step_of[spec.id] = step
        elif _goes_on_from(spec, "jax", results) is not None:
            jax.append(spec)
    if jax and not jax_sees_gpu():
        message = (
            f"JAX sees no GPU here, so the {len(jax)} runs of Rainbow go to the CPU, one by one; "
            "pip install 'jax[cuda13]' (or cuda12) lets them share the GPU"
        )
        begun.tell(RunEvent.about("warning", jax[0], message=message))
        jax = []
    cuda = [spec for spec in missing if spec.id in step_of]
    packed = {spec.id for spec in (*cuda, *jax)}
    single: list[Job] = [[spec] for spec in missing if spec.id not in packed]
    # The CUDA engine gives the same bits in any pack, so runs at different steps go on in packs of their own.
    return _by_shape("cuda", cuda, step_of), [*_by_shape("jax", jax, {}), *single]


def _goes_on_from(spec: RunSpec, engine: str, results: ResultsFolder) -> int | None:
    """The step at which this engine would go on with the spec; None if another one must run it."""
    agents = {"cuda": engine_module("cuda").AGENTS, "jax": ("rainbow",)}[engine]
    if spec.engine not in ("auto", engine) or spec.agent.get("name") not in agents:
        return None
    begun = results.run(spec).load_checkpoint()
    if begun is None:
        return 0
    return int(begun[0]["step"]) if begun[0]["engine"] == engine else None


def _by_shape(engine: str, specs: list[RunSpec], step_of: Mapping[str, int]) -> list[list[RunSpec]]:
    """The specs that can be side by side, together, if they are at the same step where `step_of` tells it."""
    packs: dict[Any, list[RunSpec]] = {}
    for spec, (env, config, _) in zip(specs, build_problems(specs), strict=True):
        shape = engine_module(engine).shape_key(env, config)
        packs.setdefault((shape, spec.bin_size, spec.steps, step_of.get(spec.id)), []).append(spec)
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
