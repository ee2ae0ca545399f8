"""The plain JAX Nibbler is Nibbler: it follows the reference, weight by weight."""

import json

import numpy as np
import pytest

pytest.importorskip("jax")

from nibbler.agents.config import NibblerConfig
from nibbler.bench import plain_jax
from nibbler.bench.plain_nibbler import PlainNibbler
from nibbler.engines.record import jax_device
from nibbler.engines.run import open_run
from nibbler.engines.settle import settled
from nibbler.envs.multi_catch import multi_catch

# Large steps, so that inputs and cumulants are swapped many times; actions are drawn, not chosen.
LARGE_STEPS = NibblerConfig(
    num_questions=6, inputs_per_question=20, hidden_units=48, epsilon=1.0, kappa=0.02, momentum=0.9
)
ODD_SIZES = LARGE_STEPS.replace(
    num_questions=7, inputs_per_question=11, hidden_units=33, input_threshold=1e-3
)
EVERY_INPUT = LARGE_STEPS.replace(inputs_per_question=112)


def arrays(run):
    """What a plain run has learned, under the names of the engines' states."""
    s = run.state
    parts = {
        "main_v_base": s.main_base.v,
        "main_q_base": s.main_base.q,
        "main_v_hidden": s.main_hidden.v,
        "main_q_hidden": s.main_hidden.q,
        "answer_v": s.answers.v,
        "answer_q": s.answers.q.swapaxes(0, 1),
        "hidden_weights": s.answers.hidden,
        "main_v_base_momentum": s.main_base_momentum.v,
        "main_q_base_momentum": s.main_base_momentum.q,
        "main_v_hidden_momentum": s.main_hidden_momentum.v,
        "main_q_hidden_momentum": s.main_hidden_momentum.q,
        "answer_v_momentum": s.answers_momentum.v,
        "answer_q_momentum": s.answers_momentum.q.swapaxes(0, 1),
        "hidden_momentum": s.answers_momentum.hidden,
        "support": s.support,
        "discovery": s.discovery,
    }
    return {name: np.asarray(value, dtype=np.float64) for name, value in parts.items()}


def distance(one, other):
    """The largest difference, relative to the array's size."""
    return np.abs(one - other).max() / max(np.abs(other).max(), 1e-30)


@pytest.mark.parametrize(
    "config, steps",
    [(LARGE_STEPS, 600), (ODD_SIZES, 600), (EVERY_INPUT, 200), (NibblerConfig.for_boards(2), 300)],
    ids=["large steps", "odd sizes", "every input", "the default on two boards"],
)
def test_the_plain_nibbler_follows_the_reference(config, steps):
    """Within ten times the distance of the CPU engine, which computes in float32 too."""
    env, seed = multi_catch(2, seed=1), 5
    truth, cpu = (open_run(env, config, seed, engine) for engine in ("reference", "cpu"))
    plain = PlainNibbler(env, config, seed)
    expected = truth.advance(steps)
    cpu.advance(steps)
    assert sum(plain.advance(100) for _ in range(steps // 100)) == pytest.approx(expected, abs=1e-4)
    right, rounded = truth.state(), settled(cpu.state(), config)
    np.testing.assert_array_equal(plain.state.boards, right["states"])
    np.testing.assert_array_equal(plain.state.action, right["action"])
    np.testing.assert_array_equal(plain.state.inputs, right["inputs"])
    np.testing.assert_array_equal(plain.state.cumulants, right["cumulants"])
    if config in (LARGE_STEPS, ODD_SIZES):
        assert right["input_swaps"].sum() > 20
        assert right["cumulant_swaps"] > 0
    masks = np.zeros_like(plain.state.is_input)
    np.put_along_axis(masks, right["inputs"].astype(int), True, axis=1)
    np.testing.assert_array_equal(plain.state.is_input, masks)
    for name, value in arrays(plain).items():
        allowed = 10 * max(distance(rounded[name], right[name]), 1e-7)
        assert distance(value, right[name]) <= allowed, name


def test_other_readings_are_refused():
    with pytest.raises(ValueError, match="default reading"):
        PlainNibbler(multi_catch(2), NibblerConfig.literal(2), 0)


def test_the_bench_measures_every_size_and_names_the_device(tmp_path):
    lines = []
    rows = plain_jax.run(
        boards=(1,), repeats=2, seconds=0.05, output=tmp_path / "plain-jax.json", echo=lines.append
    )
    (row,) = rows
    assert row["boards"] == 1
    assert 0 < row["slowest"] <= row["steps_per_second"] <= row["fastest"]
    assert row["device"] == jax_device() not in ("", "cpu")
    assert json.loads((tmp_path / "plain-jax.json").read_text())["rows"] == rows
    assert len(lines) == 3
    with pytest.raises(ValueError, match="at least 1"):
        plain_jax.run(boards=())
