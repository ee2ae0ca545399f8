"""Results on disk: a folder of studies and runs that pandas or DuckDB can read without our code.

    RESULTS/studies/curves-laptop.json     the specs of a study, and how it is read
    RESULTS/runs/<label>-<id>/             one run; studies that share a spec share its run
        spec.json            what was run
        curve.parquet        step, reward (mean over the bin that ends there), diagnostics per step of the bin
        timing.parquet       step, seconds of work until there (apart, since it differs between repetitions)
        snapshots.parquet    step, question, cumulant, inputs, ...: what the agent asked, at about 50 moments
        features.parquet     feature (as observed), name, component: the board each observed bit belongs to
        record.json          written last, it marks a finished run: versions, commit, machine, speed, compute,
                             and the SHA-256 of the Parquet files
        checkpoint-<step>.npz  the two newest while running, the last one when finished; no pickle inside
        progress.json, lock, error.json   a run under way, or how it failed

Nothing here imports or runs anything named in a spec.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from glob import escape
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import numpy as np

from nibbler.engines.checkpoint import DamagedCheckpointError, fingerprint, read_checkpoint, write_checkpoint
from nibbler.studies.files import explained, make_folder, read_json, write_bytes, write_json
from nibbler.studies.lock import Owner, read_owner
from nibbler.studies.spec import RunSpec, Study

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as error:  # pragma: no cover - the test environment has it
    raise ImportError(
        "results are stored as Parquet; install pyarrow: pip install 'nibbler[studies]'"
    ) from error

FORMAT = 1
CHECKPOINTS_KEPT = 2
PROGRESS = "progress.json"
_CHECKPOINT = re.compile(r"checkpoint-(\d+)\.npz")

State = Literal["waiting", "running", "stopped", "failed", "finished"]


class DamagedCheckpointWarning(UserWarning):
    """A checkpoint could not be read; the one before it is used."""


@dataclass(frozen=True)
class RunStatus:
    """Where a run stands, as its folder tells."""

    state: State
    step: int
    steps: int
    reward: float | None = None  # mean of the latest bin
    steps_per_second: float | None = None
    error: str | None = None  # one line
    owner: Owner | None = None  # who works on it


@dataclass(frozen=True)
class Snapshots:
    """What the agent was asking over time: for each saved step, one row per question."""

    steps: np.ndarray  # int64[times]
    columns: dict[str, np.ndarray]  # "cumulant" [times, questions], "inputs" [times, questions, g], ...


@dataclass(frozen=True)
class Features:
    """Which component each observed feature belongs to, in observed order."""

    names: tuple[str, ...]
    component: np.ndarray  # int32[m]


@dataclass(frozen=True)
class RunResult:
    """A run as read back: its curve so far, and its record once it is finished."""

    spec: RunSpec
    folder: Path
    step: np.ndarray  # int64[bins]: the step at which each bin ends
    reward: np.ndarray  # float64[bins]: mean reward in the bin
    columns: dict[str, np.ndarray] = field(default_factory=dict)  # diagnostics, means per step of the bin
    seconds: np.ndarray | None = None  # float64[bins]: seconds of work until there
    record: dict[str, Any] | None = None

    @property
    def finished(self) -> bool:
        return self.record is not None

    @property
    def steps(self) -> int:
        """How far the curve goes."""
        return int(self.step[-1]) if len(self.step) else 0


class RunFolder:
    """One run on disk."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"

    # -- reading ---------------------------------------------------------------------------------------------

    def spec(self) -> RunSpec:
        data = read_json(self.path / "spec.json")
        if not isinstance(data, dict):
            raise ValueError(f"{self.path} is not the folder of a run: it has no spec.json")
        if data.get("format") != FORMAT:
            raise ValueError(
                f"{self.path} has the format {data.get('format')!r}; this version reads {FORMAT}"
            )
        try:
            return RunSpec.from_dict({key: data[key] for key in data if key not in ("format", "id", "label")})
        except ValueError as error:
            raise ValueError(f"{self.path / 'spec.json'}: {error}") from None

    def record(self) -> dict[str, Any] | None:
        """The record of a finished run; None while it is not."""
        data = read_json(self.path / "record.json")
        return data if isinstance(data, dict) else None

    @property
    def finished(self) -> bool:
        return (self.path / "record.json").exists()

    def result(self) -> RunResult:
        """The curve (so far) with its diagnostics, and the record if the run is finished."""
        table = self._table("curve")
        timing = self._table("timing")
        columns = dict(table or {"step": np.zeros(0, np.int64), "reward": np.zeros(0)})
        step, reward = columns.pop("step"), columns.pop("reward")
        seconds = timing["seconds"] if timing is not None else None
        if seconds is not None and len(seconds) != len(step):  # killed between the two writes
            seconds = None
        return RunResult(self.spec(), self.path, step, reward, columns, seconds, self.record())

    def snapshots(self) -> Snapshots | None:
        table = self._table("snapshots")
        if table is None:
            return None
        steps = np.unique(table["step"])
        shape = (len(steps), len(table["step"]) // max(len(steps), 1))
        columns = {
            name: values.reshape(shape + values.shape[1:])
            for name, values in table.items()
            if name not in ("step", "question")
        }
        return Snapshots(steps, columns)

    def features(self) -> Features | None:
        path = self.path / "features.parquet"
        if not path.exists():
            return None
        table = pq.read_table(path)
        return Features(tuple(table["name"].to_pylist()), table["component"].to_numpy())

    def checkpoints(self) -> list[tuple[int, Path]]:
        """Checkpoints by step, newest first; not opened yet."""
        if not self.path.is_dir():
            return []
        found = ((_CHECKPOINT.fullmatch(path.name), path) for path in self.path.iterdir())
        return sorted(((int(match[1]), path) for match, path in found if match), reverse=True)

    def load_checkpoint(self) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
        """Header and arrays of the newest checkpoint that is whole; a damaged one is named in a warning."""
        for step, path in self.checkpoints():
            try:
                header, arrays = read_checkpoint(path)
                if header.get("checksum") != fingerprint(arrays) or header.get("step") != step:
                    raise DamagedCheckpointError(f"{path} does not match its checksum")
                return header, arrays
            except FileNotFoundError:  # its owner went on and removed it
                continue
            except DamagedCheckpointError as error:
                message = f"damaged checkpoint, using the one before it: {error}"
                warnings.warn(message, DamagedCheckpointWarning, stacklevel=2)
        return None

    def state(self) -> dict[str, np.ndarray]:
        """The run's state at its newest checkpoint, under the engines' canonical names."""
        loaded = self.load_checkpoint()
        if loaded is None:
            raise ValueError(f"{self.path} has no whole checkpoint")
        return {name.removeprefix("state/"): a for name, a in loaded[1].items() if name.startswith("state/")}

    def status(self) -> RunStatus:
        """Where the run stands: finished, running, failed, stopped with a checkpoint, or waiting."""
        spec = self.spec()
        if self.finished:
            record = self.record() or {}
            return RunStatus(
                "finished", spec.steps, spec.steps, record.get("last_reward"), record.get("steps_per_second")
            )
        owner = read_owner(self.path)
        progress = _quietly(self.path / PROGRESS)
        error = _quietly(self.path / "error.json")
        saved = max((step for step, _ in self.checkpoints()), default=0)
        if owner is not None and not owner.stale():
            step = progress.get("step", saved)
            return RunStatus(
                "running",
                step,
                spec.steps,
                progress.get("reward"),
                progress.get("steps_per_second"),
                owner=owner,
            )
        if error:
            return RunStatus("failed", saved, spec.steps, error=str(error.get("error", "unknown error")))
        return RunStatus("stopped" if saved else "waiting", saved, spec.steps)

    def _table(self, name: str) -> dict[str, np.ndarray] | None:
        path = self.path / f"{name}.parquet"
        if not path.exists():
            return None
        try:
            table = pq.read_table(path)
        except (pa.ArrowInvalid, OSError) as error:
            raise ValueError(f"{path} is damaged: {str(error).splitlines()[0]}") from None
        return {column: _to_numpy(table[column].combine_chunks()) for column in table.column_names}

    def altered(self) -> list[str]:
        """Files of a finished run that are not what they were when its record was written."""
        recorded = (read_json(self.path / "record.json") or {}).get("sha256", {})
        there = self._digests()
        return [name for name, digest in recorded.items() if there.get(name) != digest]

    # -- writing (by the process that holds the run's lock) ------------------------------------------------

    def create(self, spec: RunSpec) -> None:
        """Make the folder and write what is going to be run there."""
        make_folder(self.path)
        if not (self.path / "spec.json").exists():
            named = {"format": FORMAT, "id": spec.id, "label": spec.label, **spec.to_dict()}
            write_json(self.path / "spec.json", named)
        elif (found := self.spec()) != spec:
            raise ValueError(f"{self.path} holds another run ({found.label}); use another folder")

    def go_on_from_shorter(self, spec: RunSpec) -> None:
        """If this run was not begun, let it go on from the same run with fewer steps, as far as that came.

        A run is a function of its spec and its step, so nothing but the moments of its snapshots tells.
        """
        if self.checkpoints():
            return
        found: list[tuple[int, Path]] = []
        stem = spec.folder_name.removesuffix(spec.id)
        for path in self.path.parent.glob(f"{escape(stem)}*/spec.json"):
            with contextlib.suppress(ValueError):  # a folder that is not readable is not a run to go on from
                shorter = RunFolder(path.parent)
                its = shorter.spec()
                if its.steps < spec.steps and replace(its, steps=spec.steps) == spec:
                    # A last bin that was cut short cannot be filled up.
                    found += [
                        (n, p) for n, p in shorter.checkpoints() if n < its.steps or n % its.bin_size == 0
                    ]
        for _, path in sorted(found, reverse=True)[:1]:
            with contextlib.suppress(FileNotFoundError):  # its owner went on and removed it
                write_bytes(self.path / path.name, path.read_bytes())

    def save_checkpoint(self, step: int, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Write a checkpoint, then forget all but the newest two."""
        path = self.path / f"checkpoint-{step:012d}.npz"
        arrays = {name: np.asarray(array) for name, array in arrays.items()}
        with explained("write", path):
            write_checkpoint(path, {**header, "step": step, "checksum": fingerprint(arrays)}, arrays)
            path.chmod((self.path / "spec.json").stat().st_mode & 0o666)  # for whoever may read the rest
        self.forget_checkpoints(CHECKPOINTS_KEPT)

    def forget_checkpoints(self, keep: int) -> None:
        for _, path in self.checkpoints()[keep:]:
            path.unlink(missing_ok=True)

    def save_table(
        self, name: str, columns: Mapping[str, np.ndarray | list[str]], about: Mapping[str, Any]
    ) -> None:
        """Write NAME.parquet; `about` goes into the file's own metadata, so that it says what it is."""
        arrays = [_to_arrow(column) for column in columns.values()]
        metadata = {"nibbler": json.dumps(about, sort_keys=True)}
        table = pa.Table.from_arrays(arrays, names=list(columns), metadata=metadata)
        buffer = BytesIO()
        # Steps rise evenly, so their differences take no room; a dictionary of them would.
        encoding = {"step": "DELTA_BINARY_PACKED"} if "step" in columns else {}
        dictionary = [
            f"{name}.list.element" if isinstance(column, np.ndarray) and column.ndim > 1 else name
            for name, column in columns.items()
            if name not in encoding
        ]
        pq.write_table(
            table, buffer, compression="zstd", use_dictionary=dictionary, column_encoding=encoding or None
        )
        write_bytes(self.path / f"{name}.parquet", buffer.getvalue())

    def save_record(self, record: Mapping[str, Any]) -> None:
        """Mark the run as finished; everything else must be on disk before, and can be told from then on."""
        write_json(self.path / "record.json", {**record, "sha256": self._digests()})

    def _digests(self) -> dict[str, str]:
        return {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(self.path.glob("*.parquet"))
        }

    def save_error(self, error: Mapping[str, Any] | None) -> None:
        path = self.path / "error.json"
        if error is not None:
            write_json(path, error)
        else:
            path.unlink(missing_ok=True)


class ResultsFolder:
    """All results in one place: studies and the runs they share."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def run(self, spec: RunSpec) -> RunFolder:
        """The folder of this spec's run, which may not exist yet."""
        path = self.path / "runs" / spec.folder_name
        if not path.exists():  # only the id counts: labels are for people and may change
            path = next((self.path / "runs").glob(f"*-{spec.id}"), path)
        return RunFolder(path)

    def runs(self) -> Iterator[RunFolder]:
        """Every run that is here, in the order of the folders' names."""
        for spec_file in sorted((self.path / "runs").glob("*/spec.json")):
            yield RunFolder(spec_file.parent)

    def save_study(self, study: Study) -> None:
        make_folder(self.path / "studies")
        make_folder(self.path / "runs")
        write_bytes(self.path / "studies" / study.file_name, study.to_json().encode())

    def studies(self) -> list[Study]:
        """The studies that were run into this folder."""
        return [Study.read(path) for path in sorted((self.path / "studies").glob("*.json"))]

    def results(self, study: Study) -> list[RunResult]:
        """What there is of a study, in its order: finished runs, and the curves so far of the others."""
        folders = (self.run(spec) for spec in study.runs)
        return [folder.result() for folder in folders if (folder.path / "curve.parquet").exists()]

    def statuses(self, study: Study) -> list[RunStatus]:
        """Where each run of a study stands, in its order."""
        return [
            folder.status() if (folder.path / "spec.json").exists() else RunStatus("waiting", 0, spec.steps)
            for spec, folder in ((spec, self.run(spec)) for spec in study.runs)
        ]


def _to_arrow(column: np.ndarray | list[str]) -> Any:
    """A column of text, of numbers, or (from two dimensions) of lists of one length."""
    # Not pa.array(column): that looks for pandas first, which costs a second where it is installed.
    if isinstance(column, list):
        words = [word.encode() for word in column]
        ends = np.cumsum([0, *map(len, words)], dtype=np.int32)
        return pa.StringArray.from_buffers(len(words), pa.py_buffer(ends), pa.py_buffer(b"".join(words)))
    content = np.ascontiguousarray(column)
    buffers = [None, pa.py_buffer(content)]
    flat = pa.Array.from_buffers(pa.from_numpy_dtype(content.dtype), content.size, buffers)
    return flat if column.ndim == 1 else pa.FixedSizeListArray.from_arrays(flat, column.shape[1])


def _to_numpy(column: Any) -> np.ndarray:
    if pa.types.is_fixed_size_list(column.type):
        return column.flatten().to_numpy().reshape(len(column), column.type.list_size)
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _quietly(path: Path) -> dict[str, Any]:
    """A small file about a run under way: absent or damaged, it tells nothing."""
    try:
        data = read_json(path)
    except (ValueError, OSError):
        return {}
    return data if isinstance(data, dict) else {}
