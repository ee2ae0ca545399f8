import contextlib
import itertools
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from nibbler.studies.build import build_environment, follow
from nibbler.studies.execute import attempt, execute
from nibbler.studies.lock import RunLock
from nibbler.studies.session import Session, snapshot_steps
from nibbler.studies.spec import RunSpec
from nibbler.studies.store import ResultsFolder, RunFolder

HERE = Path(__file__).parent
COMPARED = ("curve.parquet", "snapshots.parquet", "features.parquet")


def toy(seed=0, steps=20_000, bin_size=1_000, **settings):
    return RunSpec(
        {"import": "toy:make_env"}, {"import": "toy:make_run", **settings}, steps, seed, bin_size=bin_size
    )


def place(folder, spec):
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    return ResultsFolder(folder).run(spec)


def environ():
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}


def same_results(one, other):
    return all((one.path / name).read_bytes() == (other.path / name).read_bytes() for name in COMPARED)


@pytest.fixture
def quick_folder(tmp_path):
    """A folder in memory where there is one: to a kill it is the same, and waiting for a disk takes long."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


def test_death_at_any_touch_of_the_disk_changes_no_result(quick_folder):
    done = subprocess.run(
        [sys.executable, str(HERE / "kill_points.py"), str(quick_folder)],
        capture_output=True,
        text=True,
        env=environ(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    moments, resumed = map(int, done.stdout.split())
    assert moments > 30
    assert resumed > 20


RUN_SPEC = """
import sys
from nibbler.studies.execute import execute
from nibbler.studies.spec import RunSpec
from nibbler.studies.store import RunFolder
tell = lambda event: print(event.kind, flush=True)
execute(RunSpec.from_json(sys.argv[1]), RunFolder(sys.argv[2]), save_every=0.0, on_event=tell)
"""


def test_killing_at_random_moments_changes_no_result(quick_folder):
    spec = toy(steps=60_000)
    undisturbed = place(quick_folder / "whole", spec)
    execute(spec, undisturbed)
    folder = place(quick_folder / "killed", spec)
    moments = random.Random(0)
    for _ in range(5):
        process = subprocess.Popen(
            [sys.executable, "-c", RUN_SPEC, spec.to_json(), str(folder.path)],
            env={**environ(), "TOY_DELAY": "0.1"},  # six seconds of work
            stdout=subprocess.PIPE,
        )
        assert process.stdout.readline() == b"started\n"
        time.sleep(moments.uniform(0.05, 0.5))
        process.kill()
        process.wait()
        process.stdout.close()
    assert not folder.finished
    assert execute(spec, folder).kind == "finished"
    assert same_results(folder, undisturbed)
    pieces = folder.record()["segments"]
    assert len(pieces) >= 3
    assert pieces[0]["from"] == 0
    assert pieces[-1]["to"] == spec.steps
    assert all(one["to"] == other["from"] for one, other in itertools.pairwise(pieces))


def test_where_a_run_is_stopped_and_saved_changes_no_result(tmp_path):
    spec = toy(bin_size=3_000)  # blocks of a bin and chunks of work do not line up
    undisturbed = place(tmp_path / "whole", spec)
    execute(spec, undisturbed)
    folder = place(tmp_path / "stopped", spec)
    ended = None
    stops = 0
    while ended is None or ended.kind == "stopped":
        asked = iter([False, True])
        ended = execute(spec, folder, stop=lambda asked=asked: next(asked))
        stops += 1
    assert stops > 3
    assert same_results(folder, undisturbed)


def test_the_curve_is_the_one_that_the_run_gives_when_it_is_advanced_by_hand(tmp_path):
    spec = toy()
    folder = place(tmp_path, spec)
    execute(spec, folder)
    run = follow("toy:make_run")(build_environment(spec.environment), seed=spec.seed)
    np.testing.assert_allclose(folder.result().reward, run.advance_bins(20, 1_000) / 1_000, rtol=1e-12)


def test_a_run_in_other_hands_is_left_alone(tmp_path):
    spec = toy()
    folder = place(tmp_path, spec)
    with RunLock(folder.path):
        event = attempt(spec, folder)
    assert event.kind == "elsewhere"
    assert f"process {os.getpid()}" in event.message
    assert attempt(spec, folder).kind == "finished"


def test_a_run_whose_lock_was_taken_stops_before_it_writes(tmp_path):
    spec = toy()
    folder = place(tmp_path, spec)

    def rob():
        owner = (folder.path / "lock").read_text()
        (folder.path / "lock").write_text(owner.replace('"token": "', '"token": "f'))
        return False

    event = attempt(spec, folder, stop=rob)
    assert event.kind == "failed"
    assert "was taken over" in event.message
    assert not folder.finished
    assert not folder.checkpoints()


def test_an_error_in_a_run_is_told_in_one_line_and_kept_with_its_traceback(tmp_path):
    spec = toy(fail_at=5_500)
    folder = place(tmp_path, spec)
    event = attempt(spec, folder, save_every=0.0)
    assert (event.kind, event.message) == ("failed", "ArithmeticError: the toy breaks at step 5500")
    assert "toy.py" in event.details
    assert folder.status().state == "failed"
    assert folder.status().error == event.message
    assert folder.status().step == 5_000  # what was saved before stays


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"agent": {"import": "nowhere_at_all:make"}}, "there is no module 'nowhere_at_all'"),
        ({"agent": {"import": "toy:nothing"}}, "cannot import toy:nothing"),
        ({"agent": {"import": "toy:make_run", "speed": 3}}, "toy:make_run does not take these settings"),
        ({"agent": {"import": "toy:np"}}, "toy:np is a module; it must be a function"),
        ({"agent": {"import": "toy:make_number"}}, "returned a int; return an agent's config"),
        ({"environment": {"name": "chess"}}, "environment='chess' is not known; choose multi_catch"),
        (
            {"environment": {"name": "multi_catch", "num_boards": 2}, "agent": {"name": "alphazero"}},
            "agent='alphazero' is not known",
        ),
        (
            {
                "environment": {"name": "multi_catch", "num_boards": 2},
                "agent": {"name": "nibbler", "layers": 3},
            },
            "layers",
        ),
        ({"environment": {"name": "multi_catch", "boards": 2}}, "does not take these settings"),
    ],
)
def test_a_spec_that_cannot_be_built_says_why_in_one_line(tmp_path, changes, message):
    spec = toy().replace(**changes)
    event = attempt(spec, place(tmp_path, spec))
    assert event.kind == "failed"
    assert message in event.message
    assert "\n" not in event.message


def test_an_error_inside_a_users_module_is_not_mistaken_for_a_missing_module(tmp_path, monkeypatch):
    (tmp_path / "needy.py").write_text("import a_package_that_is_not_there\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="a_package_that_is_not_there"):
        follow("needy:make")


def test_a_run_that_was_begun_on_an_engine_which_is_not_here_says_so(tmp_path, monkeypatch):
    spec = RunSpec({"name": "multi_catch", "num_boards": 2}, {"name": "q-learning"}, 2_000, 0, "auto", 500)
    folder = place(tmp_path, spec)
    execute(spec, folder, stop=iter([False, True, True]).__next__)
    begun = folder.load_checkpoint()
    assert begun is not None
    folder.save_checkpoint(500, {**begun[0], "engine": "cuda"}, begun[1])  # as a machine with a GPU leaves it
    monkeypatch.setitem(sys.modules, "cupy", None)
    event = attempt(spec, folder)
    assert event.kind == "failed"
    assert event.message.startswith(
        "a run stays on the engine that began it, and engine='cuda' needs an NVIDIA GPU and CuPy (CuPy "
        "is not installed); run the study where that is, or delete "
    )
    assert str(folder.path) in event.message


@pytest.mark.parametrize("steps, bin_size", [(10, 10), (1_000, 100), (40_000_000, 10_000), (12_345, 1_000)])
def test_snapshots_are_about_fifty_ends_of_bins_with_the_first_and_the_last(steps, bin_size):
    moments = snapshot_steps(toy(steps=steps, bin_size=bin_size))
    assert {0, steps} <= moments
    assert len(moments) <= 51
    assert all(moment % bin_size == 0 or moment == steps for moment in moments)
    if steps == 40_000_000:
        assert len(moments) >= 40


def test_progress_is_told_and_a_status_from_outside_sees_it(tmp_path, monkeypatch):
    monkeypatch.setattr("nibbler.studies.lock.HEARTBEAT", 0.05)
    spec = toy(delay=0.05)
    folder = place(tmp_path, spec)
    seen = []

    def watch(event):
        if event.kind == "progress":
            seen.append((event, folder.status()))

    execute(spec, folder, on_event=watch)
    assert seen
    assert all(status.state == "running" for _, status in seen)
    assert seen[-1][1].step > 0
    assert seen[-1][0].steps_per_second > 0
    assert folder.status().state == "finished"


CATCH = {"name": "multi_catch", "num_boards": 2}


def test_an_agent_of_our_own_names_runs_on_the_engine_that_the_record_tells(tmp_path):
    spec = RunSpec(CATCH, {"name": "random"}, 2_000, 1, engine="reference", bin_size=500)
    folder = place(tmp_path, spec)
    assert attempt(spec, folder).message is None
    record = folder.record()
    assert record["engine"] == "reference"
    assert record["environment"] == {"num_components": 2, "num_features": 112, "num_actions": 3}
    assert folder.features().component.tolist().count(0) == 56


@pytest.mark.parametrize("agent", ["nibbler", "q-learning"])
def test_a_run_on_the_cpu_engine_that_is_stopped_at_every_look_equals_one_that_never_was(tmp_path, agent):
    spec = RunSpec(CATCH, {"name": agent, "hidden_units": 16}, 6_000, 1, engine="cpu", bin_size=2_000)
    whole, stopped = place(tmp_path / "whole", spec), place(tmp_path / "stopped", spec)
    execute(spec, whole)
    stops = 0
    while not stopped.finished:
        asked = iter([False, True])
        execute(spec, stopped, stop=lambda asked=asked: next(asked))
        stops += 1
    assert stops > 5
    for path in whole.path.glob("*.parquet"):
        if path.name != "timing.parquet":
            assert path.read_bytes() == (stopped.path / path.name).read_bytes()
    one, other = whole.state(), stopped.state()
    assert all(np.array_equal(one[name], other[name]) for name in one)
    assert whole.result().columns["weights_touched"].min() > 0


def test_an_agent_that_only_steps_resumes_exactly_when_it_can_save_itself(tmp_path):
    spec = RunSpec(CATCH, {"import": "toy:make_stepper"}, 3_000, 1, bin_size=500)
    whole, stopped = place(tmp_path / "whole", spec), place(tmp_path / "stopped", spec)
    assert attempt(spec, whole).kind == "finished"
    asked = iter([False, False, True])
    assert execute(spec, stopped, stop=lambda: next(asked)).kind == "stopped"
    events = []
    assert execute(spec, stopped, on_event=events.append).kind == "finished"
    assert events[0].step > 0
    curve = "curve.parquet"
    assert (stopped.path / curve).read_bytes() == (whole.path / curve).read_bytes()


def test_an_agent_that_cannot_save_itself_starts_over(tmp_path):
    spec = RunSpec(CATCH, {"import": "toy:make_forgetful_stepper"}, 3_000, 1, bin_size=500)
    whole, stopped = place(tmp_path / "whole", spec), place(tmp_path / "stopped", spec)
    assert attempt(spec, whole).kind == "finished"
    asked = iter([False, False, True])
    execute(spec, stopped, stop=lambda: next(asked))
    events = []
    assert execute(spec, stopped, on_event=events.append).kind == "finished"
    assert events[0].step == 0
    np.testing.assert_array_equal(stopped.result().reward, whole.result().reward)


def test_a_tracked_run_tells_tensorboard_its_curve(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    spec = toy(steps=3_000)
    folder = place(tmp_path, spec)
    execute(spec, folder, tracking="tensorboard")
    events = EventAccumulator(str(folder.path / "tensorboard"))
    events.Reload()
    told = {tag: [e.value for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    result = folder.result()
    np.testing.assert_allclose(told["reward"], result.reward, rtol=1e-6)
    np.testing.assert_allclose(told["weights_touched"], result.columns["weights_touched"], rtol=1e-6)


def test_the_study_folder_may_be_moved_between_two_sessions(tmp_path):
    spec = toy()
    folder = place(tmp_path / "here", spec)
    asked = iter([False, False, False, True])
    execute(spec, folder, stop=lambda: next(asked))
    (tmp_path / "here").rename(tmp_path / "there")
    moved = RunFolder(tmp_path / "there" / "runs" / spec.folder_name)
    events = []
    assert execute(spec, moved, on_event=events.append).kind == "finished"
    assert events[0].step > 0


def test_a_longer_run_goes_on_where_a_shorter_one_ended(tmp_path):
    whole = place(tmp_path / "whole", toy(steps=20_000))
    execute(toy(steps=20_000), whole)
    for steps in (4_000, 9_000, 13_000, 13_500):  # the last one ends within a bin, which cannot be filled up
        execute(toy(steps=steps), place(tmp_path / "parts", toy(steps=steps)))
    execute(toy(steps=15_000, seed=1), place(tmp_path / "parts", toy(steps=15_000, seed=1)))  # another run
    begun, parts = [], place(tmp_path / "parts", toy(steps=20_000))
    execute(toy(steps=20_000), parts, on_event=lambda event: begun.append((event.kind, event.step)))
    assert begun[0] == ("started", 13_000)
    assert (parts.path / "curve.parquet").read_bytes() == (whole.path / "curve.parquet").read_bytes()
    assert [part["from"] for part in parts.record()["segments"]][-1] == 13_000
    assert place(tmp_path / "parts", toy(steps=13_000)).finished  # and stays what it was


def test_a_runner_may_drive_several_sessions_in_step_and_open_their_runs_itself(tmp_path):
    specs = [toy(seed, steps=5_000) for seed in range(3)]
    opened = []

    def build(spec, env, engine):
        opened.append(follow("toy:make_run")(env, seed=spec.seed))
        return opened[-1], "side by side", {}

    with contextlib.ExitStack() as stack:
        sessions = []
        for spec in specs:
            folder = place(tmp_path / "packed", spec)
            stack.enter_context(RunLock(folder.path))
            folder.create(spec)
            sessions.append(Session(spec, folder, build=build))
        while not all(session.done for session in sessions):
            for session in sessions:
                session.advance()
        for session in sessions:
            session.finish()
    assert len(opened) == 3
    for spec in specs:
        packed, alone = place(tmp_path / "packed", spec), place(tmp_path / "alone", spec)
        execute(spec, alone)
        assert same_results(packed, alone)
        assert packed.record()["engine"] == "side by side"


def test_a_run_tells_how_it_goes_while_it_goes_on(tmp_path, monkeypatch):
    spec = toy(steps=5_000)
    session = Session(spec, place(tmp_path, spec))
    while session.step < 1_000:
        session.advance()
    first, means = session.reward, session.curve.means

    def means_before_the_next_bin_ends():
        values = means()
        while session.step < 2_000:
            session.advance()
        return values

    monkeypatch.setattr(session.curve, "means", means_before_the_next_bin_ends)
    assert session.reward == first
    assert session.step == 2_000


def test_a_late_heartbeat_shows_no_progress_of_a_run_that_has_ended(tmp_path):
    spec = toy(steps=5_000)
    folder = place(tmp_path, spec)
    folder.create(spec)
    session = Session(spec, folder)
    session.advance()
    session.show_progress()
    assert (folder.path / "progress.json").exists()
    session.hide_progress()
    session.show_progress()
    assert not (folder.path / "progress.json").exists()
