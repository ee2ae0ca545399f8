import json

import pytest

pytest.importorskip("jax")

from nibbler.agents.rainbow import RainbowConfig
from nibbler.bench import jax as bench

SMALL = RainbowConfig(shared_units=8, head_units=8, num_atoms=5, replay_capacity=500, min_replay=20)


@pytest.mark.slow  # compiles three loops
def test_every_way_of_running_is_measured_and_written(tmp_path):
    lines: list[str] = []
    rows = bench.run(
        boards=(1,),
        repeats=2,
        packed=(2,),
        packed_boards=1,
        seconds=0.05,
        output=tmp_path / "jax.json",
        echo=lines.append,
        config=SMALL,
    )
    assert [(row["loop"], row["boards"], row["runs"]) for row in rows] == [
        ("compiled", 1, 1),
        ("compiled", 1, 2),
        ("Python", 1, 1),
    ]
    assert all(0 < row["slowest"] <= row["steps_per_second"] <= row["fastest"] for row in rows)
    written = json.loads((tmp_path / "jax.json").read_text())
    assert written["rows"] == rows
    assert written["jax"]
    assert written["replay_capacity"] == SMALL.replay_capacity
    assert len(lines) == 2 + len(rows)
    assert lines[0].startswith("| Rainbow's loop |")


def test_the_defaults_are_the_rows_of_the_readme():
    assert bench.BOARDS == (2, 8, 16)
    assert (bench.PACKED, bench.PACKED_BOARDS) == ((2, 8, 16), 8)
    assert bench.CONFIG.replay_capacity == 1_000_000


@pytest.mark.parametrize(
    "options", [{"boards": ()}, {"repeats": 0}, {"packed": (1,)}, {"packed_boards": 0}, {"seconds": 0.0}]
)
def test_numbers_that_measure_nothing_are_refused(options):
    with pytest.raises(ValueError, match=r"at least|longer"):
        bench.run(**options)
