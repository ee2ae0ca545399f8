"""Who works on a device at the same time: shares of it, handed out in the order of asking."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class DeviceShares:
    """A device of `total` equal parts (a GPU's multiprocessors) that threads take some of and give back.

    Nobody overtakes: one who wants much is not kept waiting by those who want little.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._taken = 0
        self._waiting: deque[object] = deque()
        self._changed = threading.Condition()

    @contextmanager
    def take(self, runs: int, parts_per_run: int) -> Iterator[tuple[int, Callable[[], float]]]:
        """Wait until there is room for half of the runs, and hold the parts of as many as there is room for.

        Gives how many these are, and a function that tells which share of all parts in use they have now.
        Who gets the whole device may put all of the runs on it, since nobody is beside them.
        """
        each = max(1, min(parts_per_run, self._total))
        most = max(1, min(runs, self._total // each))
        ticket = object()

        def room() -> int:
            return min(most, (self._total - self._taken) // each)

        with self._changed:
            self._waiting.append(ticket)
            try:
                self._changed.wait_for(lambda: self._waiting[0] is ticket and 2 * room() >= most)
                admitted = room()
                alone = self._taken == 0 and runs > admitted == most
                parts = self._total if alone else admitted * each
                self._taken += parts
            finally:
                self._waiting.remove(ticket)
                self._changed.notify_all()
        try:
            yield (runs if parts == self._total else admitted), lambda: parts / self._taken
        finally:
            with self._changed:
                self._taken -= parts
                self._changed.notify_all()
