import json
import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from nibbler.studies.runners import run_study
from nibbler.studies.spec import RunSpec, Study
from nibbler.studies.store import ResultsFolder

ray = pytest.importorskip("ray")
AuthenticationError = ray.exceptions.AuthenticationError
HERE = Path(__file__).parent


def test_a_study_outlives_a_node_of_its_cluster_and_equals_the_local_one(tmp_path):
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(HERE / "ray_cluster.py"), str(tmp_path / "ray")],
        capture_output=True,
        text=True,
        env={**os.environ, **token, "PYTHONPATH": path, "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"},
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["complete"], report["failed"]
    resumed = [pieces for pieces in report["pieces"] if len(pieces) > 1]
    assert len(resumed) == 1, "exactly one of the two runs under way was on the killed node"
    assert resumed[0][1] > 0, "it went on from its checkpoint"
    assert set(report["again"]) == {"skipped"}
    assert (report["stopped"], report["state"]) == ("stopped", "stopped")
    assert report["stopped_at"] > 0

    (study,) = (s for s in ResultsFolder(tmp_path / "ray").studies() if s.name == "ray")
    assert run_study(study, tmp_path / "local").complete
    for spec in study.runs:
        one, other = (ResultsFolder(tmp_path / name).run(spec).path for name in ("ray", "local"))
        for name in ("curve.parquet", "snapshots.parquet"):
            assert (one / name).read_bytes() == (other / name).read_bytes()


@pytest.mark.parametrize("trouble", [ConnectionError, AuthenticationError])
def test_a_cluster_that_is_not_there_or_refuses_us_is_one_line_with_the_remedy(
    tmp_path, monkeypatch, trouble
):
    def init(**_):
        raise trouble("Failed to connect.\nA page of advice.")

    monkeypatch.setattr(ray, "init", init)
    study = Study("x", "smoke", (RunSpec("multi_catch", "random", 10_000),))
    with pytest.raises(ValueError, match="cannot join a Ray cluster at 'auto'") as error:
        run_study(study, tmp_path / "results", runner="ray")
    assert "ray start --head" in str(error.value)
    assert "RAY_AUTH_TOKEN" in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "results").exists()


def test_a_missing_ray_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    study = Study("x", "smoke", (RunSpec("multi_catch", "random", 10_000),))
    with pytest.raises(ValueError, match=r"pip install 'nibbler\[ray\]'"):
        run_study(study, tmp_path, runner="ray")
