import errno
import json
import os
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from nibbler.studies import files
from nibbler.studies.execute import attempt, execute
from nibbler.studies.files import StoreError
from nibbler.studies.spec import RunSpec, Study
from nibbler.studies.store import DamagedCheckpointWarning, ResultsFolder, RunFolder


def toy(seed=0, steps=20_000, bin_size=1_000, **settings):
    return RunSpec(
        {"import": "toy:make_env"}, {"import": "toy:make_run", **settings}, steps, seed, bin_size=bin_size
    )


def stop_after(calls):
    """A stop function that says yes from the n-th time it is asked."""
    left = iter(range(calls))
    return lambda: next(left, None) is None


def run_in(folder, spec, **options):
    results = ResultsFolder(folder)
    results.save_study(Study("test", "smoke", (spec,)))
    return results.run(spec), execute(spec, results.run(spec), **options)


def test_a_finished_run_is_read_back_as_it_was(tmp_path):
    folder, ended = run_in(tmp_path, toy())
    assert ended.kind == "finished"
    result = folder.result()
    assert result.finished
    assert result.spec == toy()
    np.testing.assert_array_equal(result.step, np.arange(1_000, 20_001, 1_000))
    assert result.reward.mean() == pytest.approx(result.record["mean_reward"])
    assert result.columns["weights_touched"].mean() == pytest.approx(
        result.record["weights_touched_per_step"]
    )
    assert (np.diff(result.seconds) >= 0).all()
    assert folder.status().state == "finished"
    snapshots, features = folder.snapshots(), folder.features()
    assert snapshots.steps[0] == 0
    assert snapshots.steps[-1] == 20_000
    assert snapshots.columns["inputs"].shape == (len(snapshots.steps), 2, 3)
    assert snapshots.columns["cumulant"].shape == (len(snapshots.steps), 2)
    assert features.component.tolist() == [0, 0, 0, 1, 1, 1]
    assert folder.state()["step"] == 20_000


def test_a_last_bin_that_is_shorter_is_averaged_over_its_own_steps(tmp_path):
    folder, _ = run_in(tmp_path, toy(steps=2_500))
    whole, _ = run_in(tmp_path, toy(steps=3_000, bin_size=500))
    result, fine = folder.result(), whole.result()
    assert result.step.tolist() == [1_000, 2_000, 2_500]
    assert result.reward[2] == pytest.approx(fine.reward[4])
    assert result.columns["weights_touched"][2] == pytest.approx(fine.columns["weights_touched"][4])


def test_a_run_folder_can_be_read_without_our_code(tmp_path):
    folder, _ = run_in(tmp_path, toy())
    spec = json.loads((folder.path / "spec.json").read_text())
    assert (spec["agent"]["import"], spec["steps"], spec["seed"]) == ("toy:make_run", 20_000, 0)
    curve = pd.read_parquet(folder.path / "curve.parquet")
    assert list(curve.columns) == ["step", "reward", "weights_touched"]
    snapshots = pd.read_parquet(folder.path / "snapshots.parquet")
    assert list(snapshots["inputs"].iloc[0]) == [0, 1, 2]
    about = json.loads(pq.read_schema(folder.path / "curve.parquet").metadata[b"nibbler"])
    assert about["spec"]["seed"] == 0
    with np.load(next(folder.path.glob("checkpoint-*.npz")), allow_pickle=False) as checkpoint:
        assert checkpoint["state/step"] == 20_000


def test_a_finished_run_is_skipped_and_not_touched(tmp_path):
    folder, _ = run_in(tmp_path, toy())
    before = {path.name: path.stat().st_mtime_ns for path in folder.path.iterdir()}
    assert execute(toy(), folder).kind == "skipped"
    assert {path.name: path.stat().st_mtime_ns for path in folder.path.iterdir()} == before


def test_two_checkpoints_are_kept_while_a_run_works_and_one_when_it_is_done(tmp_path):
    folder, ended = run_in(tmp_path, toy(), save_every=0.0, stop=stop_after(6))
    assert ended.kind == "stopped"
    assert len(folder.checkpoints()) == 2
    assert folder.status().state == "stopped"
    assert folder.status().step == ended.step
    execute(toy(), folder)
    assert [step for step, _ in folder.checkpoints()] == [20_000]


def damage_cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def damage_flip(path):
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:  # inside the data of an array, not in some padding
        entry = archive.getinfo("state/value.npy")
    content[content.index(b"\n", entry.header_offset) + 1] ^= 1
    path.write_bytes(bytes(content))


def damage_swap(path):
    """A well-formed file with other numbers in it: only our own checksum can tell."""
    with np.load(path) as content:
        arrays = {name: content[name] for name in content.files}
    arrays["state/value"] = arrays["state/value"] + 1
    np.savez(path, **arrays)


def damage_empty(path):
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [damage_cut, damage_flip, damage_swap, damage_empty])
def test_a_damaged_checkpoint_is_noticed_and_the_one_before_it_is_used(tmp_path, damage):
    whole, _ = run_in(tmp_path / "whole", toy())
    folder, _ = run_in(tmp_path / "damaged", toy(), save_every=0.0, stop=stop_after(6))
    (newest, path), (older, _) = folder.checkpoints()
    damage(path)
    events = []
    with pytest.warns(DamagedCheckpointWarning, match=path.name):
        header, _ = folder.load_checkpoint()
    assert header["step"] == older < newest
    assert execute(toy(), folder, on_event=events.append).kind == "finished"
    assert [e.step for e in events if e.kind == "started"] == [older]
    assert any(e.kind == "warning" and path.name in e.message for e in events)
    assert (folder.path / "curve.parquet").read_bytes() == (whole.path / "curve.parquet").read_bytes()


def test_when_every_checkpoint_is_damaged_the_run_starts_over(tmp_path):
    whole, _ = run_in(tmp_path / "whole", toy())
    folder, _ = run_in(tmp_path / "damaged", toy(), save_every=0.0, stop=stop_after(6))
    for _, path in folder.checkpoints():
        damage_cut(path)
    assert execute(toy(), folder).kind == "finished"
    assert (folder.path / "curve.parquet").read_bytes() == (whole.path / "curve.parquet").read_bytes()


def test_a_pickle_in_a_strangers_checkpoint_is_refused_and_not_run(tmp_path):
    class Trap:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "trapped"),))

    folder, _ = run_in(tmp_path, toy(), save_every=0.0, stop=stop_after(3))
    for _, path in folder.checkpoints():
        np.savez(path, trap=np.array([Trap()], dtype=object), allow_pickle=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamagedCheckpointWarning)
        assert folder.load_checkpoint() is None
    assert not (tmp_path / "trapped").exists()


def test_reading_results_follows_no_import_path(tmp_path):
    run_in(tmp_path, toy())
    code = f"""
import sys
from nibbler.studies.store import ResultsFolder
results = ResultsFolder({str(tmp_path)!r})
(study,) = results.studies()
(run,) = results.results(study)
assert run.finished and results.statuses(study)[0].state == "finished"
(folder,) = results.runs()
folder.snapshots(), folder.features(), folder.state(), folder.record()
assert "toy" not in sys.modules
"""
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": path})


def no_space_from(nth, monkeypatch):
    """From the n-th time that a file is pressed to disk on, the disk is full."""
    count = 0
    fsync = os.fsync

    def full(handle):
        nonlocal count
        count += 1
        if count >= nth:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", full)


@pytest.mark.parametrize("nth", [1, 3, 5, 8, 12])
def test_a_full_disk_is_one_clear_line_and_leaves_earlier_results_intact(tmp_path, monkeypatch, nth):
    whole, _ = run_in(tmp_path / "whole", toy())
    other, _ = run_in(tmp_path / "full", toy(seed=9, steps=3_000))
    folder, _ = run_in(tmp_path / "full", toy(), save_every=0.0, stop=stop_after(5))
    saved = folder.status().step
    before = {path: path.read_bytes() for path in other.path.iterdir()}
    with monkeypatch.context() as patch:
        no_space_from(nth, patch)
        event = attempt(toy(), folder, save_every=0.0)
    assert event.kind == "failed"
    assert "the disk is full; results so far are intact" in event.message
    assert "\n" not in event.message
    assert {path: path.read_bytes() for path in other.path.iterdir()} == before
    assert folder.status().step >= saved > 0
    assert not list(folder.path.glob("*.part"))
    assert execute(toy(), folder).kind == "finished"
    assert (folder.path / "curve.parquet").read_bytes() == (whole.path / "curve.parquet").read_bytes()


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_disk_that_is_really_full_gives_the_same_clear_line(tmp_path):
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(tmp_path)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("this machine does not let us mount a small disk")
    try:
        other, _ = run_in(tmp_path, toy(steps=2_000))
        before = {path: path.read_bytes() for path in other.path.iterdir()}
        (tmp_path / "filler").write_bytes(bytes(150_000))
        event = None
        for seed in range(1, 12):
            results = ResultsFolder(tmp_path)
            event = attempt(toy(seed=seed, steps=2_000), results.run(toy(seed=seed, steps=2_000)))
            if event.kind == "failed":
                break
        assert event.kind == "failed"
        assert "the disk is full; results so far are intact" in event.message
        assert {path: path.read_bytes() for path in other.path.iterdir()} == before
        (tmp_path / "filler").unlink()
        assert (
            attempt(toy(seed=seed, steps=2_000), results.run(toy(seed=seed, steps=2_000))).kind == "finished"
        )
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_folder_that_may_not_be_written_is_one_clear_line(tmp_path, monkeypatch):
    def forbidden(path, mode="r", *args, **kwargs):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(files, "open", forbidden, raising=False)
    with pytest.raises(StoreError, match="this folder may not be written; choose another"):
        ResultsFolder(tmp_path).save_study(Study("test", "smoke", (toy(),)))


def test_a_file_in_the_place_of_the_folder_is_one_clear_line(tmp_path):
    (tmp_path / "results").write_text("not a folder")
    with pytest.raises(StoreError, match="something that is not a folder is in the way"):
        ResultsFolder(tmp_path / "results").save_study(Study("test", "smoke", (toy(),)))


def test_a_run_is_found_by_its_id_when_its_label_has_changed(tmp_path):
    folder, _ = run_in(tmp_path, toy())
    folder.path.rename(folder.path.with_name("an-older-label-" + toy().id))
    assert ResultsFolder(tmp_path).run(toy()).finished


def test_another_run_in_the_folder_is_refused(tmp_path):
    folder, _ = run_in(tmp_path, toy())
    (folder.path / "record.json").unlink()
    with pytest.raises(ValueError, match="holds another run"):
        execute(toy(seed=1), RunFolder(folder.path))


def test_damaged_result_files_are_named(tmp_path):
    folder, _ = run_in(tmp_path, toy())
    damage_cut(folder.path / "curve.parquet")
    with pytest.raises(ValueError, match=r"curve.parquet is damaged"):
        folder.result()
    (folder.path / "record.json").write_text('{"steps": ')
    with pytest.raises(ValueError, match=r"record.json is damaged"):
        folder.record()
