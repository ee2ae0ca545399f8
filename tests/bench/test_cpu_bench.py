"""`nibbler bench cpu` measures what it says."""

import json

import numpy as np
import pytest

from nibbler.agents.config import NibblerConfig
from nibbler.bench import cpu
from nibbler.engines.inspect import inspect_state
from nibbler.engines.run import open_run
from nibbler.envs.multi_catch import multi_catch


def test_placed_selections_are_those_of_a_settled_run_and_stay():
    env = multi_catch(4, seed=3)
    config = NibblerConfig.for_boards(4)
    run = open_run(env, config, 0, "cpu")
    state = cpu.placed_state(env, config, run.state())
    names = [env.locate(int(feature)) for feature in state["cumulants"]]
    assert names == [(board, name) for board in range(4) for name in ("minus", "plus")]
    run.restore(state)
    run.advance(3000)
    after = run.state()
    assert after["input_swaps"].sum() == 0
    np.testing.assert_array_equal(after["inputs"], state["inputs"])
    assert "4" in str(inspect_state(after, env))


def test_the_table_and_the_file_hold_every_measurement(tmp_path):
    lines = []
    rows = cpu.run(boards=(1,), repeats=1, seconds=0.01, output=tmp_path / "cpu.json", echo=lines.append)
    assert [(row["agent"], row["engine"], row["phase"]) for row in rows] == [
        ("nibbler", "cpu", "early"),
        ("nibbler", "cpu", "settled"),
        ("q-learning", "cpu", ""),
        ("qv-learning", "cpu", ""),
        ("nibbler", "reference", ""),
        ("q-learning", "reference", ""),
        ("qv-learning", "reference", ""),
    ]
    assert len(lines) == 2 + len(rows)
    assert json.loads((tmp_path / "cpu.json").read_text())["rows"] == rows


def test_networks_of_another_size_are_measured_alone_and_the_file_names_the_size(tmp_path):
    measured = []
    open_run = cpu.open_run
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu, "open_run", lambda *given: measured.append(given[1]) or open_run(*given))
        rows = cpu.run(boards=(1,), repeats=1, seconds=0.01, output=tmp_path / "cpu.json", units=48)
    assert [(row["agent"], row["engine"]) for row in rows] == [("q-learning", "cpu"), ("qv-learning", "cpu")]
    assert [config.hidden_units for config in measured] == [48, 48]
    assert json.loads((tmp_path / "cpu.json").read_text())["hidden_units"] == 48
