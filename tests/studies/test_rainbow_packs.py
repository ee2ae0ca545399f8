"""Rainbow runs packed by the GPU runner, with JAX's CPU device in place of the GPU."""

import threading
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("jax")

from nibbler.engines import jax as jax_engine
from nibbler.engines.record import jax_device
from nibbler.engines.run import engine_module, open_run
from nibbler.studies import gpu_runner, packs
from nibbler.studies.begin import begin
from nibbler.studies.build import build_agent, build_environment
from nibbler.studies.execute import execute
from nibbler.studies.packs import run_packs
from nibbler.studies.runners import run_study
from nibbler.studies.spec import RunSpec, Study
from nibbler.studies.store import ResultsFolder, RunFolder

SMALL = {
    "name": "rainbow",
    "shared_units": 16,
    "head_units": 16,
    "num_atoms": 11,
    "batch_size": 8,
    "target_period": 40,
    "replay_capacity": 200,
    "min_replay": 30,
    "importance_steps": 2_000,
}


def rainbow(seed, boards=1, steps=400, env_seed=0, **changes):
    environment = {"name": "multi_catch", "num_boards": boards, "seed": env_seed}
    return RunSpec(environment, {**SMALL, **changes}, steps, seed, "jax", bin_size=100)


def never():
    return False


def stop_after(polls):
    left = iter(range(polls))
    return lambda: next(left, None) is None


def packed(folder, specs, stop=never, **options):
    events = []
    run_packs("jax", specs, ResultsFolder(folder), stop=stop, on_event=events.append, **options)
    return events


def curve_bytes(folder, specs):
    return [(ResultsFolder(folder).run(spec).path / "curve.parquet").read_bytes() for spec in specs]


@pytest.fixture(scope="module")
def specs():
    return [rainbow(seed) for seed in range(3)]


@pytest.fixture(scope="module")
def whole(specs, tmp_path_factory):
    """A pack that ran without a stop."""
    folder = tmp_path_factory.mktemp("whole")
    events = packed(folder, specs)
    assert [event.kind for event in events if event.kind != "progress"] == ["started"] * 3 + ["finished"] * 3
    assert "3 runs of rainbow side by side" in events[0].message
    return folder


def test_packed_runs_earn_what_single_runs_earn_and_their_weights_stay_close(specs, whole, tmp_path):
    """Rewards are equal for as long as rounding has not changed an action; weights are within 1e-4."""
    for spec in specs:
        alone = ResultsFolder(tmp_path).run(spec)
        execute(spec, alone)
        kept = ResultsFolder(whole).run(spec)
        np.testing.assert_array_equal(kept.result().reward, alone.result().reward)
        one, other = kept.state(), alone.state()
        for name in (name for name in one if name.startswith(("network", "target_network"))):
            np.testing.assert_allclose(one[name], other[name], atol=1e-4, err_msg=name)
        assert kept.record()["engine"] == "jax"
        assert kept.record()["device"] == jax_device()
        assert {segment["device"] for segment in kept.record()["segments"]} == {jax_device()}
        assert kept.record()["steps_per_second"] > 0
        assert kept.record()["weights_touched_per_step"] == alone.record()["weights_touched_per_step"] > 0


def test_a_pack_stopped_and_resumed_equals_one_that_never_stopped(specs, whole, tmp_path):
    events = packed(tmp_path, specs, stop=stop_after(3))
    assert [event.kind for event in events][-3:] == ["stopped"] * 3
    assert 0 < events[-1].step < 400
    packed(tmp_path, specs)
    assert curve_bytes(tmp_path, specs) == curve_bytes(whole, specs)


@pytest.mark.parametrize("saves_before", [1, 4, 5])
def test_a_pack_killed_while_it_was_saved_goes_on_as_one_pack(
    specs, whole, tmp_path, monkeypatch, saves_before
):
    """Three members: the second dies in the first save of the pack, or the last two in its second."""
    save, done = RunFolder.save_checkpoint, []

    def dying(folder, *arguments):
        if len(done) == saves_before:
            raise KeyboardInterrupt
        done.append(folder)
        save(folder, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(RunFolder, "save_checkpoint", dying)
        with pytest.raises(KeyboardInterrupt):
            packed(tmp_path, specs, save_every=0)
    saved = [folder.checkpoints() for folder in map(ResultsFolder(tmp_path).run, specs)]
    assert len({len(checkpoints) for checkpoints in saved}) == 2  # they are not in step
    events = packed(tmp_path, specs)
    started = [event for event in events if event.kind == "started"]
    assert {event.step for event in started} == {100 * (saves_before // 3)}
    assert all("3 runs" in event.message for event in started)
    assert curve_bytes(tmp_path, specs) == curve_bytes(whole, specs)


def test_a_run_that_was_begun_alone_keeps_its_steps_when_others_join_it(specs, tmp_path):
    packed(tmp_path, specs[:1], stop=stop_after(3))
    ((step, _),) = ResultsFolder(tmp_path).run(specs[0]).checkpoints()  # saved once only
    events = packed(tmp_path, specs)
    started = {event.id: event.step for event in events if event.kind == "started"}
    assert [started[spec.id] for spec in specs] == [step, 0, 0]
    assert 0 < step < 400


def test_a_failing_pack_leaves_the_others_alone(specs, tmp_path, monkeypatch):
    def failing(problems):
        if problems[0][2] == 0:
            raise MemoryError("the GPU is full")
        return jax_engine.open_packed_runs(problems)

    engine = SimpleNamespace(open_packed_runs=failing, room_for=lambda env, config: 2)
    monkeypatch.setattr(packs, "engine_module", lambda name: engine)
    events = {event.id: event for event in packed(tmp_path, specs)}
    assert [events[spec.id].kind for spec in specs] == ["failed", "failed", "finished"]
    assert events[specs[0].id].message == "MemoryError: the GPU is full"


# --- As the GPU runner does it ---------------------------------------------------------------------


class WaitsForRainbow:
    """What the CUDA engine opens, but a pack here goes on only once Rainbow's runs have ended."""

    rainbow_ended = threading.Event()

    def __init__(self, problems):
        self.runs = [open_run(env, config, seed, "cpu") for env, config, seed in problems]

    def advance_bins(self, num_bins, bin_size):
        assert self.rainbow_ended.wait(100), "Rainbow waits for the CUDA packs"
        return np.stack([run.advance_bins(num_bins, bin_size) for run in self.runs])

    def step(self, index):
        return self.runs[index].step

    def state(self, index):
        return self.runs[index].state()

    def report(self):
        return f"{len(self.runs)} runs on CUDA"


@pytest.fixture
def cuda(monkeypatch):
    engine = SimpleNamespace(
        AGENTS={"linear"},
        require_gpu=lambda: None,
        shape_key=lambda env, config: (env.num_features, config.name),
        room_for=lambda env, config: 8,
        open_packed_runs=WaitsForRainbow,
        own_stream=nullcontext,
        num_multiprocessors=lambda: 8,
        multiprocessors_per_run=lambda env, config: 1,
    )

    def engines(name):
        return engine if name == "cuda" else engine_module(name)

    for module in (gpu_runner, packs):
        monkeypatch.setattr(module, "engine_module", engines)
    WaitsForRainbow.rainbow_ended.clear()


def test_rainbow_packs_run_beside_the_cuda_packs(cuda, specs, whole, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_runner, "jax_sees_gpu", lambda: True)
    linear = RunSpec(specs[0].environment, {"name": "linear"}, 400, 0, bin_size=100)
    study = Study("both", "smoke", (linear, *specs))
    messages, running = [], {spec.id for spec in specs}

    def listen(event):
        messages.append(event.message)
        if event.kind == "finished":
            running.discard(event.id)
        if not running:
            WaitsForRainbow.rainbow_ended.set()

    outcome = run_study(study, tmp_path, runner="gpu", on_event=listen)
    assert outcome.complete, outcome.failed
    assert sum("3 runs of rainbow side by side" in (message or "") for message in messages) == 3
    records = [ResultsFolder(tmp_path).run(spec).record() for spec in study.runs]
    assert [record["engine"] for record in records] == ["cuda", "jax", "jax", "jax"]
    assert curve_bytes(tmp_path, specs) == curve_bytes(whole, specs)  # in another process, too


def test_rainbow_runs_of_one_shape_share_a_pack_and_others_do_not(cuda, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_runner, "jax_sees_gpu", lambda: True)
    alike = [rainbow(0), rainbow(1, learning_rate=0.01), rainbow(2, env_seed=2)]  # numbers, not shapes
    unlike = [rainbow(0, boards=2), rainbow(0, head_units=8), rainbow(0, steps=300)]
    study = Study("shapes", "smoke", (*alike, *unlike))
    _, jobs = gpu_runner._sort(begin(study, tmp_path, None, None))
    assert jobs == [alike, *([spec] for spec in unlike)]


def test_without_a_gpu_for_jax_rainbow_is_said_to_go_to_the_cpu(cuda, tmp_path):
    study = Study("none", "smoke", (rainbow(0), rainbow(1)))
    events = []
    _, jobs = gpu_runner._sort(begin(study, tmp_path, None, events.append))
    assert jobs == [[spec] for spec in study.runs]
    (warning,) = [event for event in events if event.kind == "warning"]
    assert "JAX sees no GPU here, so the 2 runs of Rainbow go to the CPU" in warning.message


def test_there_is_room_for_a_pack_on_a_device_that_does_not_count_its_memory():
    spec = rainbow(0)
    env = build_environment(spec.environment)
    assert jax_engine.room_for(env, build_agent(spec, env)) == jax_engine.runs.LARGEST_PACK
