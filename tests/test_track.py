import sys

import pytest

from nibbler.track import open_tracker


def scalars(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_values_can_be_read_back_by_tensorboard(tmp_path):
    tracker = open_tracker("tensorboard", tmp_path)
    tracker.log(10, {"reward": 0.25, "weights_touched": 100.0})
    tracker.log(20, {"reward": 0.5})
    tracker.close()
    assert scalars(tmp_path) == {"reward": [(10, 0.25), (20, 0.5)], "weights_touched": [(10, 100.0)]}


def test_a_resumed_run_voids_what_it_will_tell_again(tmp_path):
    killed = open_tracker("tensorboard", tmp_path)
    for step in (10, 20, 30):
        killed.log(step, {"reward": float(step)})
    killed.close()
    resumed = open_tracker("tensorboard", tmp_path, step=10)
    resumed.log(20, {"reward": 2.0})
    resumed.close()
    assert scalars(tmp_path) == {"reward": [(10, 10.0), (20, 2.0)]}


def test_an_unknown_tracker_and_a_missing_package_are_one_line(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="tracker 'abacus' is not known; choose tensorboard"):
        open_tracker("abacus", tmp_path)
    monkeypatch.setitem(sys.modules, "tensorboard.summary.writer.event_file_writer", None)
    with pytest.raises(ValueError, match=r"pip install 'nibbler\[tensorboard\]'"):
        open_tracker("tensorboard", tmp_path)
