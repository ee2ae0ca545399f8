"""A run on disk: one .npz without pickle, written whole or not at all, that knows which run it belongs to."""

import hashlib
import json
import os
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

FORMAT = 1
_HEADER = "checkpoint_json"


class DamagedCheckpointError(ValueError):
    """A checkpoint file that cannot be read back: cut short, altered, or not one of ours."""


def checkpoint_file(path: str | os.PathLike[str]) -> Path:
    """The file meant by a path: itself if it ends in .npz, else checkpoint.npz in that folder."""
    given = Path(path)
    return given if given.suffix == ".npz" else given / "checkpoint.npz"


def write_checkpoint(path: Path, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write header and arrays to `path` atomically: a reader sees the old file or the new one, never half."""
    text = json.dumps({"format": FORMAT, **header}, sort_keys=True)
    content = {_HEADER: np.frombuffer(text.encode(), dtype=np.uint8)}
    for name, value in arrays.items():
        array = np.asarray(value)
        if array.dtype.hasobject or name == _HEADER:
            raise ValueError(f"{name} cannot be saved: it must be an array of numbers under another name")
        content[name] = array
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name + ".", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, allow_pickle=False, **content)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Make a rename in a folder durable, where the system lets it be opened."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays of a checkpoint; a damaged file is a `DamagedCheckpointError` that says so."""
    try:
        with np.load(path, allow_pickle=False) as content:
            arrays = {name: content[name] for name in content.files}
        header = json.loads(bytes(arrays.pop(_HEADER)).decode())
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, NotImplementedError) as error:
        raise DamagedCheckpointError(
            f"{path} is not a readable checkpoint ({error}); delete it to start over"
        ) from error
    if header.get("format") != FORMAT:
        raise DamagedCheckpointError(
            f"{path} has checkpoint format {header.get('format')!r}; this version reads {FORMAT}"
        )
    return header, arrays


def refuse_other_run(path: Path | None, stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Stop before a checkpoint of one run is continued as another, naming the fields that differ."""
    differing = [key for key in {**stored, **wanted} if stored.get(key) != wanted.get(key)]
    if differing:
        lines = "; ".join(
            f"{key} was {stored.get(key)!r}, now {wanted.get(key)!r}" for key in sorted(differing)
        )
        raise ValueError(
            f"{path} belongs to another run: {lines}; use another checkpoint path or the same settings"
        )


def fingerprint(arrays: Mapping[str, Any]) -> str:
    """A short stable hash of named arrays and numbers: equal exactly when all contents are equal."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name}:{array.dtype.str}:{array.shape};".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()[:16]
