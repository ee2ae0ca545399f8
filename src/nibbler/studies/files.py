"""Files that are whole or absent: every write in a results folder goes through here."""

from __future__ import annotations

import errno
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nibbler.engines.checkpoint import sync_folder

TEMPORARY = ".part"  # ends the name of a file that is being written; one left behind is rubbish


class StoreError(OSError):
    """A results folder that cannot be written or read, said in one line; what was there before is intact."""


@contextmanager
def explained(action: str, path: Path) -> Iterator[None]:
    """Turn the system's error into one line that says what to do."""
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            reason = "the disk is full; results so far are intact: free some space and run it again"
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            reason = "this folder may not be written; choose another or change its permissions"
        elif error.errno in (errno.ENOTDIR, errno.EEXIST):
            reason = "something that is not a folder is in the way; choose another folder"
        else:
            reason = error.strerror or str(error)
        raise StoreError(error.errno, f"cannot {action} {path}: {reason}") from error


def write_bytes(path: Path, content: bytes, durable: bool = True) -> None:
    """Replace `path` by `content` at once: a crash at any moment leaves the old file or the new one.

    `durable=False` skips waiting for the disk: for files whose loss costs nothing, such as progress.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{TEMPORARY}")
    with explained("write", path):
        try:
            with open(temporary, "wb") as file:
                file.write(content)
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            os.replace(temporary, path)
            if durable:
                sync_folder(path.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def write_json(path: Path, data: Any, durable: bool = True) -> None:
    write_bytes(path, (json.dumps(data, indent=2) + "\n").encode(), durable)


def read_json(path: Path) -> Any:
    """The contents of a JSON file, None if there is none; a damaged one is a ValueError that names it."""
    try:
        return json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from None


def make_folder(path: Path) -> None:
    with explained("create", path):
        path.mkdir(parents=True, exist_ok=True)


def remove_leftovers(folder: Path) -> None:
    """Delete half-written files of a process that was killed; call it only while holding the run's lock."""
    for path in folder.iterdir():
        if path.name.endswith(TEMPORARY):
            path.unlink(missing_ok=True)
