import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nibbler.studies.events import RunEvent
from nibbler.studies.lock import RunLock
from nibbler.studies.runners import run_study
from nibbler.studies.spec import RunSpec, Study
from nibbler.studies.store import ResultsFolder

HERE = Path(__file__).parent


def toy(seed=0, steps=10_000, bin_size=1_000, **settings):
    return RunSpec(
        {"import": "toy:make_env"}, {"import": "toy:make_run", **settings}, steps, seed, bin_size=bin_size
    )


def study(*runs):
    return Study("test", "smoke", tuple(runs))


def test_a_study_runs_to_its_end_and_is_skipped_the_second_time(tmp_path):
    runs = study(*(toy(seed) for seed in range(3)))
    events = []
    outcome = run_study(runs, tmp_path, workers=2, on_event=events.append)
    assert outcome.complete
    assert [e.kind for e in outcome.endings.values()] == ["finished"] * 3
    for spec in runs.runs:
        kinds = [e.kind for e in events if e.id == spec.id and e.kind != "progress"]
        assert kinds == ["queued", "started", "finished"]
    results = ResultsFolder(tmp_path)
    assert results.studies() == [runs]
    assert [r.spec for r in results.results(runs)] == list(runs.runs)
    again = run_study(runs, tmp_path)
    assert again.complete
    assert {e.kind for e in again.endings.values()} == {"skipped"}


def test_one_workers_results_are_those_of_many(tmp_path):
    runs = study(*(toy(seed) for seed in range(4)))
    run_study(runs, tmp_path / "one", workers=1)
    run_study(runs, tmp_path / "many", workers=3)
    for spec in runs.runs:
        one, many = (ResultsFolder(tmp_path / name).run(spec).path for name in ("one", "many"))
        assert (one / "curve.parquet").read_bytes() == (many / "curve.parquet").read_bytes()


def test_a_run_that_fails_or_dies_is_reported_and_the_others_finish(tmp_path):
    failing, dying, talking = toy(fail_at=500), toy(kill_at=3_500), toy(seed=7, chatter=True)
    runs = study(failing, dying, talking, *(toy(seed) for seed in range(3)))
    outcome = run_study(runs, tmp_path, workers=2, save_every=0.0)
    assert not outcome.complete
    kinds = {spec: outcome.endings[spec.id].kind for spec in runs.runs}
    assert [kinds.pop(failing), kinds.pop(dying)] == ["failed", "failed"]
    assert set(kinds.values()) == {"finished"}
    assert outcome.endings[failing.id].message == "ArithmeticError: the toy breaks at step 500"
    assert "its process was killed by SIGKILL" in outcome.endings[dying.id].message
    assert ResultsFolder(tmp_path).run(dying).status().step > 0  # what it had saved is there


def test_a_study_started_again_resumes_what_died(tmp_path):
    once = str(tmp_path / "died")
    spec = toy(kill_at=7_500, once=once)
    assert run_study(study(spec), tmp_path / "results", save_every=0.0).failed
    events = []
    assert run_study(study(spec), tmp_path / "results", on_event=events.append).complete
    assert next(e.step for e in events if e.kind == "started") > 0
    Path(once).touch()
    run_study(study(spec), tmp_path / "whole")
    whole, resumed = (ResultsFolder(tmp_path / name).run(spec).path for name in ("whole", "results"))
    assert (whole / "curve.parquet").read_bytes() == (resumed / "curve.parquet").read_bytes()


def test_a_run_that_another_process_has_in_hand_is_left_to_it(tmp_path):
    runs = study(toy(0), toy(1))
    (tmp_path / "runs").mkdir()
    with RunLock(ResultsFolder(tmp_path).run(toy(0)).path):
        outcome = run_study(runs, tmp_path)
    kinds = [outcome.endings[spec.id].kind for spec in runs.runs]  # the endings come as the runs end
    assert kinds == ["elsewhere", "finished"]
    assert not outcome.complete


RUN_STUDY = """
import sys
from nibbler.studies.runners import run_study
from nibbler.studies.spec import Study
study = Study.from_json(sys.argv[1])
tell = lambda event: print(event.kind, event.id, flush=True)
outcome = run_study(study, sys.argv[2], workers=2, on_event=tell, save_every=1000.0)
sys.exit(3 if outcome.interrupted else 0)
"""


def start_study(runs, folder):
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, "-c", RUN_STUDY, runs.to_json(), str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "TOY_DELAY": "0.1"},
        start_new_session=True,
    )
    progressing = set()
    for line in process.stdout:  # until both workers are at work
        kind, run = line.split()
        progressing |= {run} if kind == "progress" else set()
        if len(progressing) == 2:
            break
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
def test_an_interrupted_study_saves_everything_and_resumes_to_the_same_result(tmp_path, number):
    runs = study(*(toy(seed, steps=200_000) for seed in range(3)))
    process = start_study(runs, tmp_path / "results")
    os.killpg(process.pid, number)  # as Ctrl-C does: to everybody
    rest = process.communicate(timeout=60)[0].split()
    assert process.returncode == 3
    assert rest.count("stopped") == 3
    statuses = ResultsFolder(tmp_path / "results").statuses(runs)
    assert [s.state for s in statuses] == ["stopped", "stopped", "waiting"]
    assert all(s.step > 0 for s in statuses[:2])
    assert run_study(runs, tmp_path / "results").complete
    assert run_study(runs, tmp_path / "whole").complete
    for spec in runs.runs:
        one, other = (ResultsFolder(tmp_path / name).run(spec).path for name in ("results", "whole"))
        assert (one / "curve.parquet").read_bytes() == (other / "curve.parquet").read_bytes()


def test_workers_whose_parent_is_killed_save_and_leave(tmp_path):
    runs = study(*(toy(seed, steps=200_000) for seed in range(2)))
    process = start_study(runs, tmp_path)
    process.kill()
    process.wait()
    process.stdout.close()
    results = ResultsFolder(tmp_path)
    deadline = time.monotonic() + 30
    while {s.state for s in results.statuses(runs)} != {"stopped"}:
        assert time.monotonic() < deadline, "the workers went on without their parent"
        time.sleep(0.1)
    assert all(s.step > 0 for s in results.statuses(runs))


def test_events_survive_the_pipe():
    event = RunEvent.about("failed", toy(), 5, reward=0.25, message="ü\nö", details="x")
    assert RunEvent.from_dict(json.loads(json.dumps(event.to_dict()))) == event


def test_unknown_runners_and_trackers_and_no_workers_are_refused(tmp_path):
    with pytest.raises(ValueError, match="runner='slurm' is not known; choose local, ray"):
        run_study(study(toy()), tmp_path, runner="slurm")
    with pytest.raises(ValueError, match="the local runner has no option 'address'"):
        run_study(study(toy()), tmp_path, address="auto")
    with pytest.raises(ValueError, match="tracker 'abacus' is not known"):
        run_study(study(toy()), tmp_path, tracking="abacus")
    with pytest.raises(ValueError, match="workers=0; at least 1 is needed"):
        run_study(study(toy()), tmp_path, workers=0)
