import dataclasses

import numpy as np
import pytest

pytest.importorskip("pyarrow")

from nibbler.studies.runners import run_study
from nibbler.studies.spec import RunSpec, Study
from nibbler.studies.store import ResultsFolder


@pytest.mark.slow  # a process of its own compiles everything anew
def test_rainbow_runs_in_a_study_as_other_agents_do(small, tmp_path):
    changed = {
        field.name: getattr(small, field.name)
        for field in dataclasses.fields(small)
        if getattr(small, field.name) != field.default
    }
    environment = {"name": "multi_catch", "num_boards": 1, "seed": 0}
    spec = RunSpec(environment, {"name": "rainbow", **changed}, 200, 1, "jax", 100)
    study = Study("rainbow", "smoke", (spec,))
    assert run_study(study, tmp_path, workers=1).complete
    (kept,) = ResultsFolder(tmp_path).results(study)
    assert kept.finished
    assert kept.step.tolist() == [100, 200]
    assert np.isfinite(kept.reward).all()
    assert kept.spec.agent["name"] == "rainbow"
    assert run_study(study, tmp_path, workers=1).complete  # finished runs are skipped
