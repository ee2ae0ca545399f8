"""The GPU runner's packing, locking and saving, with a stand-in for the GPU that works on the CPU engine."""

import signal
import threading
import time
from contextlib import nullcontext
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pyarrow.parquet as pq
import pytest

from nibbler.engines.run import engine_module, open_run
from nibbler.studies import gpu_runner, packs
from nibbler.studies.lock import RunLock
from nibbler.studies.runners import run_study
from nibbler.studies.spec import RunSpec, Study
from nibbler.studies.store import ResultsFolder


class PackedOnCpu:
    """What `nibbler.engines.cuda.open_packed_runs` gives, without a GPU."""

    launches: ClassVar[list[int]] = []  # runs in each launch

    def __init__(self, problems):
        self.runs = [open_run(env, config, seed, "cpu") for env, config, seed in problems]

    def advance_bins(self, num_bins, bin_size):
        self.launches.append(len(self.runs))
        GPU.before_launch()
        if GPU.fails_at is not None and self.runs[0].step >= GPU.fails_at:
            raise RuntimeError("the GPU failed")
        return np.stack([run.advance_bins(num_bins, bin_size) for run in self.runs])

    def step(self, index):
        return self.runs[index].step

    def state(self, index):
        return self.runs[index].state()

    def restore(self, index, state):
        self.runs[index].restore(state)

    def counters(self, index):
        return self.runs[index].counters()

    def report(self):
        return f"{len(self.runs)} runs side by side"


GPU = SimpleNamespace(
    AGENTS={"linear", "random"},
    fails_at=None,
    require_gpu=lambda: None,
    shape_key=lambda env, config: (env.num_features, config.name),
    room_for=lambda env, config: 2,
    open_packed_runs=PackedOnCpu,
    own_stream=nullcontext,
    num_multiprocessors=lambda: 16,
    multiprocessors_per_run=lambda env, config: 2,
    before_launch=lambda: None,
)


@pytest.fixture(autouse=True)
def gpu(monkeypatch):
    for module in (gpu_runner, packs):
        monkeypatch.setattr(
            module, "engine_module", lambda name: GPU if name == "cuda" else engine_module(name)
        )
    monkeypatch.setattr(GPU, "fails_at", None)
    PackedOnCpu.launches.clear()


def spec(agent, seed, boards=2, steps=4_000, **more):
    environment = {"name": "multi_catch", "num_boards": boards, "seed": 0}
    return RunSpec(environment, {"name": agent}, steps, seed, bin_size=1_000, **more)


def curves(folder, study):
    return {
        run.id: pq.read_table(ResultsFolder(folder).run(run).path / "curve.parquet").to_pydict()
        for run in study.runs
    }


STUDY = Study(
    "packed",
    "smoke",
    (
        *(spec("linear", seed) for seed in range(3)),
        spec("random", 0),
        spec("linear", 0, boards=3),
        spec("planner", 0),  # which this GPU cannot run
        spec("linear", 7, engine="cpu"),  # and which is asked of another engine
    ),
)


def test_a_packed_study_has_the_curves_of_separate_runs(tmp_path):
    outcome = run_study(STUDY, tmp_path / "gpu", runner="gpu", workers=1)
    assert outcome.complete
    assert sorted(set(PackedOnCpu.launches)) == [1, 2]  # three seeds in packs of two; the others alone
    run_study(STUDY, tmp_path / "local", runner="local", workers=1)
    assert curves(tmp_path / "gpu", STUDY) == curves(tmp_path / "local", STUDY)
    records = [ResultsFolder(tmp_path / "gpu").run(run).record() for run in STUDY.runs]
    assert [record["engine"] for record in records] == ["cuda"] * 5 + ["cpu"] * 2
    assert all(record["steps_per_second"] > 0 for record in records)
    assert [study.runs for study in ResultsFolder(tmp_path / "gpu").studies()] == [STUDY.runs]


def test_shapes_that_fit_beside_each_other_run_at_once_and_share_the_time(tmp_path, monkeypatch):
    meeting = threading.Barrier(2, timeout=60)  # passes only if two launches are under way at once

    def launch():
        meeting.wait()
        time.sleep(0.02)

    monkeypatch.setattr(GPU, "before_launch", launch)
    study = Study("two", "smoke", (spec("linear", 0), spec("random", 0)))  # two multiprocessors each
    began = time.perf_counter()
    assert run_study(study, tmp_path, runner="gpu").complete
    wall = time.perf_counter() - began
    parts = []
    for run in study.runs:
        (segment,) = ResultsFolder(tmp_path).run(run).record()["segments"]
        parts.append(segment["device_seconds"])
    # Each has half of its launches' time at least, and together they have no more than there was.
    assert min(parts) >= 0.5 * 0.02 * len(PackedOnCpu.launches) / 2 - 0.001
    assert sum(parts) <= wall


def test_a_shape_that_needs_the_whole_device_is_alone_on_it(tmp_path, monkeypatch):
    under_way, most = [0], [0]
    lock = threading.Lock()

    def count():
        with lock:
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
        time.sleep(0.01)
        with lock:
            under_way[0] -= 1

    monkeypatch.setattr(GPU, "before_launch", count)
    monkeypatch.setattr(GPU, "multiprocessors_per_run", lambda env, config: 9)
    study = Study("two", "smoke", (spec("linear", 0), spec("random", 0), spec("linear", 0, boards=3)))
    assert run_study(study, tmp_path, runner="gpu").complete
    assert most == [1]


def test_runs_of_one_shape_do_not_wait_for_each_other_while_there_is_room(tmp_path, monkeypatch):
    meeting = threading.Barrier(2, timeout=60)  # passes only if two packs are under way at once
    monkeypatch.setattr(GPU, "before_launch", meeting.wait)
    study = Study("four", "smoke", tuple(spec("linear", seed) for seed in range(4)))  # in packs of two
    outcome = run_study(study, tmp_path, runner="gpu")
    assert not outcome.failed
    assert outcome.complete
    assert set(PackedOnCpu.launches) == {2}


def test_runs_that_stand_at_different_steps_keep_them_and_do_not_wait_for_each_other(tmp_path, monkeypatch):
    study = Study("two", "smoke", tuple(spec("linear", seed) for seed in range(2)))
    for run, polls in zip(study.runs, (1, 3), strict=True):  # each alone, saved once, at steps of their own
        left = iter(range(polls))
        packs.run_packs(
            "cuda",
            [run],
            ResultsFolder(tmp_path),
            stop=lambda left=left: next(left, None) is None,
            on_event=lambda event: None,
        )
    before = [ResultsFolder(tmp_path).run(run).checkpoints()[0][0] for run in study.runs]
    assert before[0] != before[1]
    meeting = threading.Barrier(2, timeout=60)
    begun = {}

    def launch():
        if len(PackedOnCpu.launches) <= 2:
            meeting.wait()

    def note(event):
        if event.kind == "started":
            begun[event.id] = event.step

    PackedOnCpu.launches.clear()
    monkeypatch.setattr(GPU, "before_launch", launch)
    assert run_study(study, tmp_path, runner="gpu", on_event=note).complete
    assert [begun[run.id] for run in study.runs] == before


def test_longer_runs_go_on_where_shorter_ones_ended(tmp_path):
    short = Study("packed", "smoke", tuple(spec("linear", seed) for seed in range(2)))
    long = Study("packed", "smoke", tuple(spec("linear", seed, steps=8_000) for seed in range(3)))
    assert run_study(short, tmp_path, runner="gpu").complete
    begun = {}

    def note(event):
        if event.kind == "started":
            begun[event.id] = event.step

    assert run_study(long, tmp_path, runner="gpu", on_event=note).complete
    assert [begun[run.id] for run in long.runs] == [4_000, 4_000, 0]
    run_study(long, tmp_path / "local", runner="local", workers=1)
    assert curves(tmp_path, long) == curves(tmp_path / "local", long)


def test_ctrl_c_stops_a_pack_whichever_thread_it_reaches(tmp_path, monkeypatch):
    study = Study("long", "smoke", (spec("linear", 0, steps=200_000),))

    def interrupt():
        if len(PackedOnCpu.launches) == 5:
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)  # this thread, which is the pack's
        time.sleep(0.02)

    monkeypatch.setattr(GPU, "before_launch", interrupt)
    outcome = run_study(study, tmp_path, runner="gpu")
    assert outcome.interrupted
    (event,) = outcome.of_kind("stopped")
    assert 0 < event.step < study.runs[0].steps
    monkeypatch.setattr(GPU, "before_launch", lambda: None)
    assert run_study(study, tmp_path, runner="gpu").complete


def test_a_failing_launch_fails_its_pack_only_and_the_study_resumes(tmp_path, monkeypatch):
    study = Study("packed", "smoke", (*(spec("linear", seed) for seed in range(2)), spec("random", 0)))
    monkeypatch.setattr(GPU, "fails_at", 2_000)
    outcome = run_study(study, tmp_path / "gpu", runner="gpu", save_every=0)
    assert [event.message for event in outcome.failed] == ["RuntimeError: the GPU failed"] * 3
    monkeypatch.setattr(GPU, "fails_at", None)
    assert run_study(study, tmp_path / "gpu", runner="gpu").complete
    run_study(study, tmp_path / "local", runner="local", workers=1)
    assert curves(tmp_path / "gpu", study) == curves(tmp_path / "local", study)


def test_a_status_from_outside_sees_how_far_a_pack_is(tmp_path, monkeypatch):
    monkeypatch.setattr("nibbler.studies.lock.HEARTBEAT", 0.02)
    monkeypatch.setattr(packs, "PROGRESS_SECONDS", 0.0)
    study = Study("packed", "smoke", tuple(spec("linear", seed, steps=20_000) for seed in range(2)))
    folders = [ResultsFolder(tmp_path).run(run) for run in study.runs]
    seen = []

    def watch(event):
        if event.kind == "progress":
            time.sleep(0.02)  # as long as a launch takes
            seen.append([(folder.status().state, folder.status().step) for folder in folders])

    run_study(study, tmp_path, runner="gpu", on_event=watch)
    assert all(state == "running" for statuses in seen for state, _ in statuses)
    assert all(step > 0 for _, step in seen[-1])
    assert not list(tmp_path.glob("runs/*/progress.json"))


def test_a_run_that_another_process_holds_is_left_to_it(tmp_path):
    study = Study("packed", "smoke", tuple(spec("linear", seed) for seed in range(2)))
    with RunLock(ResultsFolder(tmp_path).run(study.runs[0]).path):
        outcome = run_study(study, tmp_path, runner="gpu")
    assert [event.kind for event in outcome.endings.values()] == ["elsewhere", "finished"]
