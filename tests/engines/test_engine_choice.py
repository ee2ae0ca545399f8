"""Which engine a run lands on."""

from types import SimpleNamespace

import pytest

from nibbler.engines import run as run_module
from nibbler.engines.run import choose_engine, train
from nibbler.envs.multi_catch import multi_catch


@pytest.fixture
def engines(monkeypatch):
    """Stand-ins that say which agents an engine runs, and a switch for the GPU."""
    modules = {
        "cuda": SimpleNamespace(AGENTS=frozenset({"nibbler"})),
        "cpu": SimpleNamespace(AGENTS=frozenset({"nibbler", "linear"})),
    }
    monkeypatch.setattr(run_module, "engine_module", modules.__getitem__)
    return lambda present: monkeypatch.setattr(run_module, "gpu_available", lambda: present)


@pytest.mark.parametrize(
    "gpu, agent, expected",
    [
        (True, "nibbler", "cuda"),
        (True, "linear", "cpu"),
        (True, "planner", "reference"),
        (False, "nibbler", "cpu"),
        (False, "planner", "reference"),
        (False, "rainbow", "jax"),
    ],
)
def test_auto_is_the_fastest_engine_that_runs_the_agent_here(engines, gpu, agent, expected):
    engines(gpu)
    assert choose_engine(agent) == expected


def test_auto_stays_on_the_engine_that_began_a_run(tmp_path, monkeypatch):
    env = multi_catch(1)
    train(env, "linear", steps=50, engine="reference", checkpoint=tmp_path)
    monkeypatch.setattr(run_module, "choose_engine", lambda agent: pytest.fail("asked for another engine"))
    assert train(env, "linear", steps=100, checkpoint=tmp_path).record["engine"] == "reference"


def test_an_agent_that_an_engine_does_not_run_is_refused():
    with pytest.raises(ValueError, match=r"the reference engine runs .*nibbler.*; not 'rainbow'"):
        run_module.open_run(multi_catch(1), "rainbow", engine="reference")


def test_every_agent_but_rainbow_runs_on_the_reference_engine():
    from nibbler.agents.registry import AGENT_NAMES

    env = multi_catch(1)
    for name in sorted(set(AGENT_NAMES) - {"rainbow"}):
        run = run_module.open_run(env, name, engine="reference")
        run.advance(3)
        assert run.step == 3
