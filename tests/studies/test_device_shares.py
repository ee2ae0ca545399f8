"""Shares of a device: never more than there is, nobody overtakes, everybody gets a turn."""

import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nibbler.studies.device_shares import DeviceShares


@settings(max_examples=30, deadline=None)
@given(
    total=st.integers(1, 6),
    wanted=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=8),
)
def test_no_more_is_taken_than_there_is_and_all_get_theirs(total, wanted):
    shares, lock = DeviceShares(total), threading.Lock()
    taken, most, parts_of_use = 0, 0, []

    def work(runs, parts_per_run):
        nonlocal taken, most
        with shares.take(runs, parts_per_run) as (admitted, share):
            assert 1 <= admitted <= runs
            parts = min(admitted * parts_per_run, total)
            with lock:
                taken += parts
                most = max(most, taken)
                parts_of_use.append(share())
            time.sleep(0.001)
            with lock:
                taken -= parts

    threads = [threading.Thread(target=work, args=pair) for pair in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads)
    assert taken == 0
    assert most <= total
    assert len(parts_of_use) == len(wanted)
    assert all(0 < part <= 1 for part in parts_of_use)


def test_one_who_wants_much_is_not_overtaken():
    shares, order = DeviceShares(4), []

    def work(name, parts):
        with shares.take(1, parts):
            order.append(name)

    with shares.take(1, 3) as (_, share):
        assert share() == 1.0
        threads = []
        for name, parts in (("much", 4), ("little", 1)):
            threads.append(threading.Thread(target=work, args=(name, parts)))
            threads[-1].start()
            while threads[-1].is_alive() and len(shares._waiting) < len(threads):
                time.sleep(0.001)
        assert order == []  # one part is free, but it is not for the second in the queue
    for thread in threads:
        thread.join(timeout=60)
    assert order == ["much", "little"]


def test_a_share_is_given_back_when_its_work_fails():
    shares = DeviceShares(2)
    with pytest.raises(RuntimeError), shares.take(1, 2):
        raise RuntimeError
    with shares.take(1, 2) as (admitted, share):
        assert (admitted, share()) == (1, 1.0)


def test_a_pack_takes_what_is_free_if_that_is_half_of_what_it_wants():
    shares = DeviceShares(10)
    with shares.take(1, 4) as (_, first), shares.take(4, 3) as (admitted, second):
        assert admitted == 2  # of the three that the whole device would hold
        assert (first(), second()) == (0.4, 0.6)
    with shares.take(40, 1) as (admitted, share):  # more to a part, since nobody is beside them
        assert (admitted, share()) == (40, 1.0)


def test_a_pack_alone_on_the_device_has_all_of_its_runs_there():
    shares = DeviceShares(10)
    with shares.take(5, 3) as (admitted, share):  # two blocks of them share a part, so that five fit
        assert (admitted, share()) == (5, 1.0)
        other = threading.Thread(target=lambda: shares.take(1, 1).__enter__(), daemon=True)
        other.start()
        other.join(timeout=0.05)
        assert other.is_alive()  # three runs would have left a part for it
    other.join(timeout=60)
    assert not other.is_alive()
