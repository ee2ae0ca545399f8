"""`train`: what it returns, what it refuses, and that stopping and resuming changes nothing."""

import json
import os
import signal
import threading

import numpy as np
import pytest

from nibbler.agents.config import NibblerConfig, QLearningConfig
from nibbler.engines import run as run_module
from nibbler.engines.checkpoint import DamagedCheckpointError, read_checkpoint
from nibbler.engines.run import Curve, Interrupted, open_run, train
from nibbler.envs.catch import catch_board
from nibbler.envs.multi_catch import multi_catch
from nibbler.mdp.environment import Environment

SMALL = NibblerConfig(num_questions=4, inputs_per_question=20, hidden_units=8, kappa=0.1)
AGENTS = [SMALL, "q-learning", "qv-learning", "known-structure", "linear", "random"]


@pytest.fixture(scope="module")
def env():
    return multi_catch(2, seed=0)


def equal_states(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


@pytest.mark.parametrize("engine", ["reference", "cpu"])
@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: getattr(agent, "name", agent))
def test_a_resumed_run_equals_one_that_never_stopped(env, agent, engine, tmp_path):
    options = {"agent": agent, "seed": 7, "engine": engine, "bin_size": 100}
    whole = train(env, steps=600, **options)
    train(env, steps=250, checkpoint=tmp_path / "run.npz", **options)
    resumed = train(env, steps=600, checkpoint=tmp_path / "run.npz", **options)
    np.testing.assert_array_equal(resumed.rewards, whole.rewards)
    assert whole.steps == resumed.steps == 600
    equal_states(whole.state, resumed.state)


def test_the_compared_stretch_of_nibbler_has_swaps_of_both_kinds(env):
    state = train(env, SMALL, steps=600, seed=7, engine="reference", bin_size=100).state
    assert state["input_swaps"].sum() > 10
    assert state["cumulant_swaps"] > 2


def test_a_finished_run_is_returned_again_without_a_step(env, tmp_path):
    first = train(env, "random", steps=300, engine="reference", checkpoint=tmp_path)
    written = (tmp_path / "checkpoint.npz").stat().st_mtime_ns
    again = train(env, "random", steps=300, engine="reference", checkpoint=tmp_path)
    np.testing.assert_array_equal(first.rewards, again.rewards)
    assert (tmp_path / "checkpoint.npz").stat().st_mtime_ns == written


def test_rewards_are_means_per_bin_and_the_last_bin_may_be_short(env):
    run = open_run(env, "random", seed=3, engine="reference")
    rewards = [run.advance(1) for _ in range(250)]
    result = train(env, "random", steps=250, seed=3, engine="reference", bin_size=100)
    expected = [np.mean(rewards[:100]), np.mean(rewards[100:200]), np.mean(rewards[200:])]
    np.testing.assert_allclose(result.rewards, expected)
    assert result.bin_size == 100


def press_ctrl_c_after(monkeypatch, steps):
    """Send this process SIGINT from inside the run, once, after that many steps."""
    module = run_module.engine_module("reference")
    monkeypatch.setattr(run_module, "_CHUNK_SECONDS", 0.0)  # a chunk is one block, however fast the machine
    original = module.ReferenceRun._advance_one

    def advance(self):
        reward = original(self)
        if self.step == steps:
            os.kill(os.getpid(), signal.SIGINT)
        return reward

    monkeypatch.setattr(module.ReferenceRun, "_advance_one", advance)


def test_the_means_may_be_asked_for_while_another_thread_adds_a_bin(monkeypatch):
    curve = Curve(10, np.array([1.0, 2.0]), 20)
    full = np.full

    def meanwhile(*arguments):
        curve._sums.append(0.5)
        curve.steps += 10
        return full(*arguments)

    monkeypatch.setattr(run_module.np, "full", meanwhile)
    assert curve.means().tolist() == [0.1, 0.2]


def test_ctrl_c_saves_the_run_and_says_how_to_resume(env, tmp_path, monkeypatch):
    options = {"agent": SMALL, "steps": 400, "seed": 1, "engine": "reference", "bin_size": 50}
    whole = train(env, **options)
    with monkeypatch.context() as patch:
        press_ctrl_c_after(patch, 120)
        with pytest.raises(
            Interrupted, match=r"of 400 steps; saved in .*run.npz; the same call resumes it"
        ) as stop:
            train(env, checkpoint=tmp_path / "run.npz", **options)
    assert 120 <= stop.value.result.steps < 400
    resumed = train(env, checkpoint=tmp_path / "run.npz", **options)
    np.testing.assert_array_equal(resumed.rewards, whole.rewards)
    equal_states(whole.state, resumed.state)


def test_ctrl_c_without_a_checkpoint_says_that_nothing_was_saved(env, monkeypatch):
    before = signal.getsignal(signal.SIGINT)  # a shell that starts us in the background has it ignored
    press_ctrl_c_after(monkeypatch, 10)
    with pytest.raises(KeyboardInterrupt, match="nothing saved: no checkpoint was given"):
        train(env, "random", steps=100_000, engine="reference", bin_size=50)
    assert signal.getsignal(signal.SIGINT) is before


def test_training_works_outside_the_main_thread(env):
    results = []
    thread = threading.Thread(target=lambda: results.append(train(env, "random", 100, engine="reference")))
    thread.start()
    thread.join()
    assert results[0].steps == 100


@pytest.mark.parametrize(
    "change, message",
    [
        ({"seed": 1}, "seed was 0, now 1"),
        ({"bin_size": 50}, "bin_size was 100, now 50"),
        (
            {"agent": QLearningConfig(hidden_units=9)},
            "agent was .*'hidden_units': 8.*, now .*'hidden_units': 9",
        ),
        ({"env": multi_catch(2, seed=1)}, "environment was"),
        ({"steps": 50}, "has already done 100 steps; ask for at least that many, not 50"),
    ],
)
def test_a_checkpoint_is_not_continued_as_another_run(env, tmp_path, change, message):
    options = {
        "env": env,
        "agent": QLearningConfig(hidden_units=8),
        "steps": 100,
        "seed": 0,
        "engine": "reference",
        "bin_size": 100,
        "checkpoint": tmp_path,
    }
    train(**options)
    with pytest.raises(ValueError, match=message):
        train(**{**options, **change})


def test_a_damaged_checkpoint_is_noticed(env, tmp_path):
    options = {"agent": "random", "engine": "reference", "checkpoint": tmp_path}
    train(env, steps=100, **options)
    file = tmp_path / "checkpoint.npz"
    content = bytearray(file.read_bytes())
    middle = content.index(b"curve_sums.npy") + 200  # inside the stored numbers
    content[middle] ^= 0xFF
    for damaged in (content, content[: len(content) // 2], b""):
        file.write_bytes(damaged)
        with pytest.raises(DamagedCheckpointError, match="is not a readable checkpoint"):
            train(env, steps=200, **options)


def test_a_failed_write_leaves_the_old_checkpoint(env, tmp_path, monkeypatch):
    options = {"agent": "random", "engine": "reference", "checkpoint": tmp_path}
    train(env, steps=100, **options)
    before = (tmp_path / "checkpoint.npz").read_bytes()

    def fail(*args, **kwargs):
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(OSError, match="disk full"):
        train(env, steps=200, **options)
    assert (tmp_path / "checkpoint.npz").read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint.npz"]


def test_checkpoints_hold_no_pickle_and_say_what_they_are(env, tmp_path):
    train(env, SMALL, steps=50, engine="reference", checkpoint=tmp_path / "deep" / "folder")
    header, arrays = read_checkpoint(tmp_path / "deep" / "folder" / "checkpoint.npz")
    assert header["run"]["agent"]["num_questions"] == 4
    assert header["run"]["engine"] == "reference"
    assert arrays["hidden_weights"].dtype == np.float64
    assert arrays["curve_steps"] == 50


@pytest.mark.parametrize(
    "change, message",
    [
        ({"steps": 0}, "steps=0 must be a whole number of at least 1"),
        ({"steps": 1.5}, "steps=1.5 must be a whole number"),
        ({"bin_size": 0}, "bin_size=0 must be a whole number"),
        ({"seed": -1}, "seed=-1 must be a whole number from 0"),
        ({"engine": "gpu"}, "engine='gpu' is not known; choose auto, reference, cpu"),
        ({"agent": "sarsa"}, "agent='sarsa' is not known"),
        ({"agent": NibblerConfig(num_questions=4, inputs_per_question=113)}, "exceeds the 112 features"),
        ({"agent": "rainbow"}, "the reference engine runs .*; not 'rainbow'"),
        (
            {"env": Environment([catch_board(), catch_board()], coupling="independent"), "agent": "linear"},
            "agents choose one action; use coupling='broadcast'",
        ),
    ],
)
def test_mistakes_are_refused_before_anything_runs(env, change, message):
    options = {"env": env, "agent": "linear", "steps": 10, "engine": "reference", **change}
    with pytest.raises(ValueError, match=message):
        train(**options)


def test_the_record_says_what_ran_where(env):
    result = train(env, SMALL, steps=100, seed=5, engine="reference")
    record = json.loads(json.dumps(result.record))
    assert record["engine"] == "reference"
    assert record["seed"] == 5
    assert record["agent"]["hidden_units"] == 8
    assert record["environment"]["num_features"] == 112
    assert {"python", "numpy"} <= record["versions"].keys()
    assert record["machine"]["cores"] >= 1
    assert record["weights_touched_per_step"] == result.state["weights_touched"] / 100
    assert record["steps_per_second"] == result.steps_per_second > 0


def test_the_progress_bar_shows_only_when_asked(env, capsys):
    train(env, "random", steps=100, engine="reference")
    assert capsys.readouterr().err == ""
    train(env, "random", steps=100, engine="reference", progress=True)
    shown = capsys.readouterr().err
    assert "100/100" in shown
    assert "steps/s" in shown
    assert "reward" in shown
