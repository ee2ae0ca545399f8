import json

import pytest

pytest.importorskip("jax")

from nibbler.agents.rainbow import RainbowConfig
from nibbler.bench import jax as bench

SMALL = RainbowConfig(shared_units=8, head_units=8, num_atoms=5, replay_capacity=500, min_replay=20)


@pytest.mark.slow
def test_every_way_of_running_is_measured_and_written(tmp_path):
    lines: list[str] = []
    rows = bench.run(
        boards=(1,),
        repeats=2,
        packed=(2,),
        seconds=0.05,
        output=tmp_path / "jax.json",
        echo=lines.append,
        config=SMALL,
    )
    assert [row["implementation"] for row in rows] == [
        "one run, compiled loop",
        "one run, Python loop",
        "2 runs packed, all together",
    ]
    assert all(0 < row["slowest"] <= row["steps_per_second"] <= row["fastest"] for row in rows)
    written = json.loads((tmp_path / "jax.json").read_text())
    assert written["rows"] == rows
    assert written["jax"]
    assert len(lines) == 2 + len(rows)
    assert lines[0].startswith("| Rainbow |")


@pytest.mark.parametrize("options", [{"boards": ()}, {"repeats": 0}, {"packed": (1,)}, {"seconds": 0.0}])
def test_numbers_that_measure_nothing_are_refused(options):
    with pytest.raises(ValueError, match="at least"):
        bench.run(**options)
