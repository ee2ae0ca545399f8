"""Cost of runs: packs share their seconds, and plain JAX is estimated only where it was measured."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nibbler.studies.cost import PlainJax, RunCost, Stretch, run_costs
from nibbler.studies.spec import RunSpec
from nibbler.studies.store import RunResult


def run(seed: int, engine: str | None, *seconds: float, boards: int = 2, **record: Any) -> RunResult:
    """A run of 4000 steps in stretches of these seconds; without an engine it is unfinished."""
    spec = RunSpec(
        {"name": "multi_catch", "num_boards": boards}, {"name": "nibbler"}, 4_000, seed, "auto", 1_000
    )
    ends = np.linspace(0, 4_000, len(seconds) + 1).astype(int).tolist()
    segments = [
        {"from": a, "to": b, "seconds": s} for a, b, s in zip(ends[:-1], ends[1:], seconds, strict=True)
    ]
    steps = np.arange(1, 5) * 1_000
    if engine is None:
        return RunResult(spec, Path(), steps[:2], np.zeros(2), seconds=np.array([0.1, sum(seconds)]))
    known = {"engine": engine, "steps": 4_000, "seconds": sum(seconds), "segments": segments, **record}
    return RunResult(spec, Path(), steps, np.zeros(4), record=known)


def seconds(*runs: RunResult) -> list[float]:
    costs = run_costs(runs)
    return [costs[r.spec.id].seconds for r in runs]


def device(cost: RunCost) -> str | None:
    (stretch,) = cost.stretches
    return stretch.device


def test_the_seconds_of_a_pack_are_shared_by_its_members() -> None:
    pack = [run(seed, "cuda", 12.345) for seed in range(3)]
    assert seconds(*pack) == pytest.approx([4.115] * 3)
    assert seconds(*pack, run(9, "cuda", 6.0)) == pytest.approx([4.115] * 3 + [6.0])


def test_a_run_that_went_on_in_another_pack_shares_each_stretch_with_its_own() -> None:
    runs = [run(0, "cuda", 4.0, 6.0), run(1, "cuda", 4.0, 8.0), run(2, "cuda", 3.0, 8.0)]
    assert seconds(*runs) == [2.0 + 6.0, 2.0 + 4.0, 3.0 + 4.0]


def test_a_run_that_knows_its_part_of_the_device_costs_that() -> None:
    segments = [{"from": 0, "to": 4_000, "seconds": 12.0, "device_seconds": 1.5}]
    runs = [run(seed, "cuda", 12.0, segments=segments) for seed in range(2)]
    assert seconds(*runs) == [1.5, 1.5]


def test_equal_times_on_a_processor_are_a_coincidence() -> None:
    assert seconds(run(0, "cpu", 5.0), run(1, "cpu", 5.0)) == [5.0, 5.0]


def test_an_unfinished_run_costs_what_its_timing_says() -> None:
    costs = run_costs([run(0, None, 7.5)])
    (cost,) = costs.values()
    assert (cost.steps, cost.seconds, cost.engine, cost.finished) == (2_000, 7.5, None, False)


def test_the_device_is_the_gpu_only_where_the_engine_uses_it() -> None:
    machine = {"processor": "Xeon", "gpu": "H200"}
    names = {}
    for seed, engine in enumerate(("cpu", "cuda", "jax")):
        (cost,) = run_costs([run(seed, engine, 1.0, machine=machine)]).values()
        names[engine] = device(cost)
    assert names == {"cpu": "Xeon", "cuda": "H200", "jax": "H200"}
    for name in ("Xeon", "H200"):  # JAX may compute on either, and the record tells
        (cost,) = run_costs([run(0, "jax", 1.0, machine=machine, device=name)]).values()
        assert device(cost) == name
    (unnamed,) = run_costs([run(0, "cuda", 1.0, machine={"processor": "Xeon"})]).values()
    assert "does not name" in str(device(unnamed))


def test_a_run_that_went_on_elsewhere_has_a_stretch_on_every_device() -> None:
    jax = [
        {"from": 0, "to": 1_000, "seconds": 5.0, "device": "Xeon"},
        {"from": 1_000, "to": 4_000, "seconds": 1.5, "device_seconds": 1.0, "device": "H200"},
    ]
    (cost,) = run_costs([run(0, "jax", 6.5, device="H200", segments=jax)]).values()
    assert cost.stretches == (Stretch("Xeon", 1_000, 5.0), Stretch("H200", 3_000, 1.0))
    assert cost.seconds == 6.0
    machines = [{"processor": "EPYC"}, {"processor": "Xeon"}]
    cpu = [
        {"from": 2_000 * k, "to": 2_000 * (k + 1), "seconds": 2.0, "machine": machine}
        for k, machine in enumerate(machines)
    ]
    (cost,) = run_costs([run(0, "cpu", 4.0, machine=machines[1], segments=cpu)]).values()
    assert cost.stretches == (Stretch("EPYC", 2_000, 2.0), Stretch("Xeon", 2_000, 2.0))


def test_plain_jax_is_interpolated_between_measured_sizes_and_unknown_outside(tmp_path: Path) -> None:
    path = tmp_path / "plain-jax.json"
    assert PlainJax.read(path) is None
    rows = [
        {"boards": n, "steps_per_second": s, "device": "H200"} for n, s in ((2, 900.0), (2, 1e3), (32, 62.5))
    ]
    path.write_text(json.dumps({"rows": rows}))
    plain = PlainJax.read(path)
    assert plain is not None
    assert plain.device == "H200"
    assert plain.seconds(2, 5_000) == pytest.approx(5.0)
    assert plain.seconds(8, 1_000) == pytest.approx(4.0)  # a quarter of the speed at four times the boards
    assert math.isnan(plain.seconds(64, 1_000))
