import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from nibbler.studies import lock
from nibbler.studies.lock import LockLostError, RunLock, RunLockedError, read_owner

HOLD = """
import sys, time
from pathlib import Path
from nibbler.studies.lock import RunLock
with RunLock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path / "run")], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_second_process_is_kept_out_and_told_by_whom(tmp_path, holder):
    with pytest.raises(RunLockedError, match=f"process {holder.pid} on "), RunLock(tmp_path / "run"):
        pass


def test_the_lock_of_a_killed_process_is_taken_over_at_once(tmp_path, holder):
    holder.send_signal(signal.SIGKILL)
    # Dead, and not waited for: what is left of the process must not count as alive.
    os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)
    with RunLock(tmp_path / "run") as mine:
        mine.check()
        assert read_owner(tmp_path / "run").pid == os.getpid()
    assert read_owner(tmp_path / "run") is None


def test_a_process_number_that_is_used_again_is_not_the_owner(tmp_path, holder):
    path = tmp_path / "run" / "lock"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "started": "1"}))
    with RunLock(tmp_path / "run"):
        pass


def elsewhere(path, age):
    path.parent.mkdir(exist_ok=True)
    owner = {
        "host": "node-7",
        "machine": "node-7 another boot",
        "pid": os.getpid(),
        "started": "1",
        "token": "x",
    }
    path.write_text(json.dumps(owner))
    os.utime(path, (time.time() - age, time.time() - age))


def test_an_owner_on_another_machine_is_believed_while_it_gives_signs_of_life(tmp_path):
    elsewhere(tmp_path / "run" / "lock", age=30)
    with pytest.raises(RunLockedError, match="node-7"), RunLock(tmp_path / "run"):
        pass


def test_an_owner_on_another_machine_that_fell_silent_is_taken_over(tmp_path):
    elsewhere(tmp_path / "run" / "lock", age=lock.STALE_AFTER + 5)
    with RunLock(tmp_path / "run") as mine:
        mine.check()


@pytest.mark.parametrize("content", ["", "{}", "[1]", "\x00" * 50])
def test_a_lock_file_that_says_nothing_counts_by_its_age(tmp_path, content):
    elsewhere(tmp_path / "run" / "lock", age=0)
    (tmp_path / "run" / "lock").write_text(content)
    with pytest.raises(RunLockedError), RunLock(tmp_path / "run"):
        pass
    os.utime(tmp_path / "run" / "lock", (0, 0))
    with RunLock(tmp_path / "run"):
        pass


def test_the_owner_touches_its_lock(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "HEARTBEAT", 0.02)
    beats = threading.Event()
    with RunLock(tmp_path / "run", on_beat=beats.set):
        os.utime(tmp_path / "run" / "lock", (0, 0))
        assert beats.wait(10)
        assert read_owner(tmp_path / "run").age < 100


def test_a_mistake_in_what_a_beat_tells_does_not_stop_the_heart(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(lock, "HEARTBEAT", 0.02)
    beats, twice = [], threading.Event()

    def beat():
        beats.append(None)
        if len(beats) > 1:
            twice.set()
        raise ValueError("cannot be told")

    with RunLock(tmp_path / "run", on_beat=beat):
        assert twice.wait(10)
    assert "ValueError: cannot be told" in capsys.readouterr().err


def test_an_owner_notices_that_it_lost_the_run(tmp_path):
    with RunLock(tmp_path / "run") as mine:
        elsewhere(tmp_path / "run" / "lock", age=0)
        with pytest.raises(LockLostError, match="taken over by process"):
            mine.check()
    assert read_owner(tmp_path / "run").token == "x"  # and leaves the new owner's lock alone


def test_waiting_for_a_lock_ends_when_it_is_free(tmp_path, holder):
    threading.Timer(0.3, holder.kill).start()
    with RunLock(tmp_path / "run", wait=60) as mine:
        mine.check()


def test_of_many_that_find_a_dead_owner_one_gets_the_run(tmp_path, holder, monkeypatch):
    holder.kill()
    holder.wait()
    replace = os.replace

    def slow_replace(*paths):  # time enough for all to have seen the dead owner
        time.sleep(0.05)
        replace(*paths)

    monkeypatch.setattr(os, "replace", slow_replace)
    winners, start, last = [], threading.Barrier(8), threading.Event()
    refused = []

    def contend():
        start.wait()
        try:
            with RunLock(tmp_path / "run") as mine:
                winners.append(mine)
                last.wait(10)  # until the seven others have tried
                mine.check()
        except RunLockedError:
            refused.append(1)
            if len(refused) == 7:
                last.set()

    threads = [threading.Thread(target=contend) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(winners) == 1


def test_half_written_files_of_a_dead_process_are_cleared(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".curve.parquet.1234.part").write_text("half")
    with RunLock(tmp_path / "run"):
        assert not list((tmp_path / "run").glob("*.part"))
