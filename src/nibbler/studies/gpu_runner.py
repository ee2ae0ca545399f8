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

        def run_shape(specs: list[RunSpec]) -> None:
            run_packs("cuda", specs, results, stop=stop_asked, on_event=tell, shares=shares, **options)

        try:
            others = beside.submit(pool.work, jobs, workers or available_cores(), stop_asked)
            _wait_for([others, *(beside.submit(run_shape, specs) for specs in packs)])
        finally:
            pool.give_up()
            beside.shutdown()
            pool.close()
        outcome.interrupted = stop_asked()
    return outcome


def _wait_for(work: list[Future[Any]]) -> None:
    """Wait for all, and raise what one of them raised.

    Ctrl-C may reach any thread, but its handler runs in this one, which therefore wakes up now and then.
    """
    while wait(work, timeout=0.2).not_done:
        pass
    for future in work:
        future.result()


def _sort(begun: Begun) -> tuple[list[list[RunSpec]], list[Job]]:
    """What is missing: packs for the CUDA engine; packs of Rainbow, and then single runs, for processes."""
    missing, results = begun.missing, begun.results
    cuda = [spec for spec in missing if _runs_on(spec, "cuda", results)]
    jax = [spec for spec in missing if _runs_on(spec, "jax", results)]
    if jax and not jax_sees_gpu():
        message = (
            f"JAX sees no GPU here, so the {len(jax)} runs of Rainbow go to the CPU, one by one; "
            "pip install 'jax[cuda13]' (or cuda12) lets them share the GPU"
        )
        begun.tell(RunEvent.about("warning", jax[0], message=message))
        jax = []
    packed = {spec.id for spec in (*cuda, *jax)}
    single: list[Job] = [[spec] for spec in missing if spec.id not in packed]
    return _by_shape("cuda", cuda), [*_by_shape("jax", jax), *single]


def _runs_on(spec: RunSpec, engine: str, results: ResultsFolder) -> bool:
    """Whether this engine runs the spec and, if it was begun, had begun it."""
    agents = {"cuda": engine_module("cuda").AGENTS, "jax": ("rainbow",)}[engine]
    if spec.engine not in ("auto", engine) or spec.agent.get("name") not in agents:
        return False
    begun = results.run(spec).load_checkpoint()
    return begun is None or begun[0]["engine"] == engine


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
