"""One process at a time on a run: a lock file that tells who holds it, and that a dead owner does not keep.

On the owner's machine, the process is looked up (its number and when it started). From another machine, the
lock's age tells: the owner touches the file every few seconds. Both times come from the file system that
holds the folder, so that clocks which disagree do no harm.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from nibbler.studies.files import TEMPORARY, explained, make_folder, remove_leftovers

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows
    fcntl = None  # type: ignore[assignment]

HEARTBEAT = 5.0  # seconds between touches
STALE_AFTER = 120.0  # seconds without a touch after which an owner on another machine counts as dead
LOCK = "lock"


class RunLockedError(RuntimeError):
    """Another process is at work on the run."""


class LockLostError(RuntimeError):
    """Another process took the run over because this one gave no sign of life: it must write no more."""


@dataclass(frozen=True)
class Owner:
    """Who holds a run."""

    host: str
    machine: str  # tells apart machines (and containers) that share a host name
    pid: int
    started: str  # when the process started, as the system counts: a number used again is not the owner
    token: str
    age: float = 0.0  # seconds since the last sign of life

    def stale(self) -> bool:
        """Whether the owner is gone: surely so on its own machine, by its silence on another."""
        if self.machine == _machine():
            return _process_start(self.pid) != self.started
        return self.age > STALE_AFTER

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def read_owner(folder: Path) -> Owner | None:
    """Who holds the run in this folder, also when dead; None if nobody does."""
    path = folder / LOCK
    try:
        data = json.loads(path.read_bytes())
        touched = path.stat().st_mtime
        return Owner(age=max(0.0, time.time() - touched), **data)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, TypeError):  # not written by us, or damaged: silence decides
        with contextlib.suppress(FileNotFoundError):
            return Owner("an unknown machine", "", 0, "", "", max(0.0, time.time() - path.stat().st_mtime))
        return None


class RunLock:
    """Holds a run while in a `with` block; `check()` says in time when it was lost to another process."""

    def __init__(self, folder: Path, wait: float = 0.0, on_beat: Callable[[], None] | None = None) -> None:
        self.folder = folder
        self._path = folder / LOCK
        self._wait = wait
        self._on_beat = on_beat
        self._token = secrets.token_hex(8)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        make_folder(self.folder)
        deadline = time.monotonic() + self._wait
        while (owner := self._try()) is not None:
            if time.monotonic() >= deadline:
                raise RunLockedError(f"{self.folder.name} is being worked on by {owner}")
            time.sleep(min(1.0, max(0.05, deadline - time.monotonic())))
        remove_leftovers(self.folder)
        self._thread = threading.Thread(target=self._beat, name="lock heartbeat", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        with contextlib.suppress(OSError), _guard(self.folder.parent):
            owner = read_owner(self.folder)
            if owner is not None and owner.token == self._token:
                self._path.unlink()

    def check(self) -> None:
        """Raise `LockLostError` if the run is no longer ours; call it before every write."""
        owner = read_owner(self.folder)
        if owner is None or owner.token != self._token:
            raise LockLostError(f"{self.folder.name} was taken over by {owner or 'nobody: its lock is gone'}")

    def _try(self) -> Owner | None:
        """Take the lock; if somebody lives who holds it, return them instead."""
        mine = Owner(socket.gethostname(), _machine(), os.getpid(), _process_start(os.getpid()), self._token)
        content = asdict(mine)
        del content["age"]
        temporary = self.folder / f".{LOCK}.{self._token}{TEMPORARY}"
        with explained("write", self._path), _guard(self.folder.parent):
            try:
                temporary.write_text(json.dumps(content) + "\n")
                now = temporary.stat().st_mtime
                owner = read_owner(self.folder)
                if owner is not None:
                    with contextlib.suppress(FileNotFoundError):
                        age = max(0.0, now - self._path.stat().st_mtime)
                        owner = Owner(**{**asdict(owner), "age": age})
                    if not owner.stale():
                        return owner
                os.replace(temporary, self._path)
            finally:
                temporary.unlink(missing_ok=True)
        return None

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT):
            # A full disk or a server away for a moment is not the end: the next write will tell. Nor is a
            # mistake in what is told: a heart that stopped would hand the run to another process.
            try:
                self.check()
                os.utime(self._path)
                if self._on_beat is not None:
                    self._on_beat()
            except (OSError, LockLostError):
                pass
            except Exception:
                traceback.print_exc()


@contextlib.contextmanager
def _guard(folder: Path) -> Iterator[None]:
    """Let one process at a time look at locks and take them; the system lets go when a process dies."""
    if fcntl is None:  # pragma: no cover - Windows
        yield
        return
    handle = os.open(folder / ".guard", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        with contextlib.suppress(OSError):  # a file system without locks: the rename alone must do
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _machine() -> str:
    """This boot of this machine, and this set of process numbers: where a pid means the same process."""
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    with contextlib.suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


def _process_start(pid: int) -> str:
    """When a process started; empty if there is none (or only its remains, not yet collected)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        if Path("/proc/self/stat").exists():
            return ""
        try:  # pragma: no cover - systems without /proc
            os.kill(pid, 0)
        except ProcessLookupError:
            return ""
        except (OSError, ValueError):
            return "unknown"
        return "unknown"
    return "" if fields[0] in "ZX" else fields[19]
