"""What to run, as plain data: `RunSpec` is one run, `Study` is a named list of them.

Both are written as JSON or TOML and hold nothing but text, numbers, lists and tables. Reading one never
imports anything: an import path is only text until its user runs the spec (`nibbler.studies.execute`).
"""

from __future__ import annotations

import hashlib
import json
import math
import operator
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

ENGINES = ("auto", "reference", "cpu", "cuda", "jax")
IMPORT_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
STUDY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def plain(value: Any, where: str) -> Any:
    """Copy `value` as JSON data (dict, list, str, int, float, bool, None), or say what is none of these."""
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise ValueError(f"{where} has the key {key!r}; keys must be text")
        return {key: plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if hasattr(value, "tolist") and hasattr(value, "dtype"):  # NumPy scalars and arrays
        return plain(value.tolist(), where)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{where} is {value}; a spec holds finite numbers only")
        return float(value)
    raise ValueError(
        f"{where} is a {type(value).__name__}; a spec holds text, numbers, lists and tables only"
    )


def canonical_json(value: Any) -> str:
    """One text per meaning: sorted keys, no spaces, and 1.0 written as 1 (they configure the same thing)."""

    def integral(item: Any) -> Any:
        if isinstance(item, dict):
            return {key: integral(sub) for key, sub in item.items()}
        if isinstance(item, list):
            return [integral(sub) for sub in item]
        if isinstance(item, float) and item.is_integer():
            return int(item)
        return item

    return json.dumps(integral(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _source(value: Any, role: str, example: str) -> dict[str, Any]:
    if isinstance(value, str):
        value = {"import": value} if ":" in value else {"name": value}
    if not isinstance(value, Mapping):
        raise ValueError(f'{role} is {value!r}; give a table such as {{"name": "{example}"}}')
    source: dict[str, Any] = plain(value, role)
    if ("name" in source) == ("import" in source):
        raise ValueError(
            f'{role} needs either "name" (such as "{example}") or "import" (such as "my_module:make")'
        )
    if "name" in source and (not isinstance(source["name"], str) or not source["name"]):
        raise ValueError(f'{role}.name is {source["name"]!r}; give a name such as "{example}"')
    if "import" in source and not (
        isinstance(source["import"], str) and IMPORT_PATH.fullmatch(source["import"])
    ):
        raise ValueError(f'{role}.import is {source["import"]!r}; write it as "package.module:function"')
    return source


def _whole(value: Any, name: str, low: int, high: int | None = None) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} is {value!r}; it must be a whole number") from None
    if number < low or (high is not None and number >= high):
        raise ValueError(
            f"{name} is {number}; it must be at least {low}" + (" and below 2**64" if high else "")
        )
    return number


@dataclass(frozen=True, eq=False)
class RunSpec:
    """One run: which agent learns in which environment, for how long, from which seed, on which engine.

    `environment` and `agent` name something of ours with its settings, `{"name": "multi_catch", "num_boards":
    8}`, or point at something of yours, `{"import": "my_module:make_env", "size": 3}`. The rest of the table
    is handed over as keyword arguments.

    `id` is a hash of all six fields as written, since all six determine the result bit for bit: engines round
    differently, so the engine counts too. "auto" stays "auto" in the id. It is resolved when the run starts,
    kept for the rest of that run (also when it resumes on another machine), and written to the run's record.
    """

    environment: dict[str, Any]
    agent: dict[str, Any]
    steps: int
    seed: int = 0
    engine: str = "auto"
    bin_size: int = 10_000

    def __post_init__(self) -> None:
        object.__setattr__(self, "environment", _source(self.environment, "environment", "multi_catch"))
        object.__setattr__(self, "agent", _source(self.agent, "agent", "nibbler"))
        object.__setattr__(self, "steps", _whole(self.steps, "steps", 1))
        object.__setattr__(self, "seed", _whole(self.seed, "seed", 0, 2**64))
        object.__setattr__(self, "bin_size", _whole(self.bin_size, "bin_size", 1))
        if self.bin_size > self.steps:
            raise ValueError(f"bin_size={self.bin_size} exceeds the {self.steps} steps of the run; lower it")
        if self.engine not in ENGINES:
            raise ValueError(f"engine is {self.engine!r}; choose one of {', '.join(ENGINES)}")

    @property
    def num_bins(self) -> int:
        """How many rows the curve has; the last bin is shorter when bin_size does not divide steps."""
        return -(-self.steps // self.bin_size)

    @property
    def id(self) -> str:
        """The same 16 hex digits for the same spec, on every machine and in every version."""
        return hashlib.sha256(canonical_json(self.to_dict()).encode()).hexdigest()[:16]

    @property
    def label(self) -> str:
        """A name for people: the agent and the environment, each with its settings, and the seed."""
        settings = {
            key: value for key, value in self.environment.items() if key not in ("num_boards", "seed")
        }
        boards = self.environment.get("num_boards")
        size = f"-{boards}" if isinstance(boards, int) else ""
        draw = f"#{self.environment['seed']}" if self.environment.get("seed") else ""
        where = f"{_name(settings)}{size}{draw}{_settings(settings)}"
        return f"{_name(self.agent)}{_settings(self.agent)} {where} seed {self.seed}"

    @property
    def folder_name(self) -> str:
        """The run's folder: its label for people, as far as it fits, and its id for uniqueness."""
        return re.sub(r"[^A-Za-z0-9_.-]+", "-", self.label)[:100].strip("-.") + "-" + self.id

    def to_dict(self) -> dict[str, Any]:
        return {
            "environment": plain(self.environment, "environment"),
            "agent": plain(self.agent, "agent"),
            "steps": self.steps,
            "seed": self.seed,
            "engine": self.engine,
            "bin_size": self.bin_size,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RunSpec:
        if not isinstance(data, Mapping):
            raise ValueError(f"a run is a table with environment, agent, steps and seed, not {data!r}")
        known = {"environment", "agent", "steps", "seed", "engine", "bin_size"}
        if extra := sorted(set(data) - known):
            raise ValueError(
                f"unknown field {extra[0]!r} in a run; the fields are {', '.join(sorted(known))}"
            )
        if missing := sorted({"environment", "agent", "steps"} - set(data)):
            raise ValueError(f"a run lacks {missing[0]!r}")
        return cls(**data)

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> RunSpec:
        return cls.from_dict(json.loads(text))

    def to_toml(self) -> str:
        return toml_table(self.to_dict())

    @classmethod
    def from_toml(cls, text: str) -> RunSpec:
        return cls.from_dict(tomllib.loads(text))

    def replace(self, **changes: Any) -> RunSpec:
        return replace(self, **changes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RunSpec):
            return NotImplemented
        return canonical_json(self.to_dict()) == canonical_json(other.to_dict())

    def __hash__(self) -> int:
        return hash(self.id)


def _name(source: Mapping[str, Any]) -> str:
    return str(source.get("name") or str(source.get("import")).rpartition(":")[2])


def _settings(source: Mapping[str, Any]) -> str:
    """Settings in words: those that are true by name, those that are false not at all."""
    words = ""
    for key, value in source.items():
        if key in ("name", "import") or value is False or value is None:
            continue
        text = f"{value:.4g}" if isinstance(value, float) else str(value)
        words += f" {key}" if value is True else f" {key}={text}"
    return words


@dataclass(frozen=True, eq=False)
class Study:
    """A question asked of many runs: its specs, and how they are read (`reading`: threshold, smoothing)."""

    name: str
    size: str
    runs: tuple[RunSpec, ...]
    description: str = ""
    reading: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for role, text in (("name", self.name), ("size", self.size)):
            if not isinstance(text, str) or not STUDY_NAME.fullmatch(text):
                raise ValueError(
                    f"the study's {role} is {text!r}; use letters, digits, '-', '_' and '.' only"
                )
        runs = tuple(self.runs)
        if not runs:
            raise ValueError(f"the study {self.name!r} has no runs")
        for run in runs:
            if not isinstance(run, RunSpec):
                raise ValueError(f"the study {self.name!r} holds {run!r}; its runs must be RunSpec")
        # A run listed twice is one run: two processes must never be sent to one folder.
        object.__setattr__(self, "runs", tuple(dict.fromkeys(runs)))
        object.__setattr__(self, "reading", plain(self.reading, "reading"))

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.size}.json"

    @classmethod
    def grid(
        cls,
        name: str,
        *,
        environments: Iterable[Any],
        agents: Iterable[Any],
        seeds: int | Iterable[int],
        steps: int,
        engine: str = "auto",
        bin_size: int = 10_000,
        size: str = "custom",
        description: str = "",
        reading: Mapping[str, Any] | None = None,
    ) -> Study:
        """Every agent in every environment from every seed (a count or the seeds themselves)."""
        seed_list = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
        agent_list = list(agents)
        runs = tuple(
            RunSpec(environment, agent, steps, seed, engine, bin_size)
            for environment in environments
            for agent in agent_list
            for seed in seed_list
        )
        return cls(name, size, runs, description, dict(reading or {}))

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "size": self.size,
            "description": self.description,
            "reading": plain(self.reading, "reading"),
            "runs": [run.to_dict() for run in self.runs],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Study:
        """Read a study; a run may give `seeds` (a count or a list) for several, and `defaults` fill gaps."""
        known = {"name", "size", "description", "reading", "runs", "defaults"}
        if not isinstance(data, Mapping):
            raise ValueError(f"a study is a table with a name and runs, not {data!r}")
        if extra := sorted(set(data) - known):
            raise ValueError(
                f"unknown field {extra[0]!r} in a study; the fields are {', '.join(sorted(known))}"
            )
        if missing := sorted({"name", "runs"} - set(data)):
            raise ValueError(f"a study lacks {missing[0]!r}")
        if not isinstance(data["runs"], Sequence) or isinstance(data["runs"], str):
            raise ValueError("a study's runs are a list; in TOML, write one [[runs]] per run")
        runs: list[RunSpec] = []
        for number, entry in enumerate(data["runs"], 1):
            try:
                runs.extend(_expand(entry, data.get("defaults", {})))
            except ValueError as error:
                raise ValueError(f"run {number} of the study: {error}") from None
        return cls(
            data["name"],
            data.get("size", "custom"),
            tuple(runs),
            data.get("description", ""),
            data.get("reading", {}),
        )

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Study:
        return cls.from_dict(json.loads(text))

    def to_toml(self) -> str:
        data = self.to_dict()
        runs = data.pop("runs")
        return toml_table(data) + "".join("\n[[runs]]\n" + toml_table(run) for run in runs)

    @classmethod
    def from_toml(cls, text: str) -> Study:
        return cls.from_dict(tomllib.loads(text))

    @classmethod
    def read(cls, path: str | Path) -> Study:
        """Read a study from a .json or .toml file."""
        path = Path(path)
        if path.suffix not in (".json", ".toml"):
            raise ValueError(f"{path} is neither .json nor .toml")
        try:
            text = path.read_text(encoding="utf-8")
            return cls.from_toml(text) if path.suffix == ".toml" else cls.from_json(text)
        except FileNotFoundError:
            raise ValueError(f"there is no study file {path}") from None
        except ValueError as error:  # also what the JSON and TOML readers and the decoder raise
            raise ValueError(f"{path}: {error}") from None

    def __eq__(self, other: object) -> bool:
        return NotImplemented if not isinstance(other, Study) else self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.name, self.size, self.runs))


def _expand(entry: Any, defaults: Any) -> list[RunSpec]:
    if not isinstance(entry, Mapping) or not isinstance(defaults, Mapping):
        raise ValueError("it must be a table with environment, agent and steps")
    if "seed" in entry and "seeds" in entry:
        raise ValueError("give seed or seeds, not both")
    merged = {**defaults, **entry}
    if "seed" in entry:
        merged.pop("seeds", None)
    if "seeds" not in merged:
        return [RunSpec.from_dict(merged)]
    seeds = merged.pop("seeds")
    merged.pop("seed", None)
    if not isinstance(seeds, list):
        seeds = list(range(_whole(seeds, "seeds", 1)))
    return [RunSpec.from_dict({**merged, "seed": seed}) for seed in seeds]


def toml_table(data: Mapping[str, Any]) -> str:
    """Write plain data as TOML, one line per key, inline tables inside (None has no TOML: it is left out)."""
    return "".join(f"{_toml_key(k)} = {_toml_value(v)}\n" for k, v in data.items() if v is not None)


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _toml_text(key)


def _toml_text(text: str) -> str:
    # JSON's escapes are TOML's too, except DEL, which TOML wants escaped; surrogate pairs are avoided by
    # writing other characters as they are.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _toml_text(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Mapping):
        inner = (f"{_toml_key(k)} = {_toml_value(v)}" for k, v in value.items() if v is not None)
        return "{" + ", ".join(inner) + "}"
    if isinstance(value, list):
        if any(item is None for item in value):
            raise ValueError("a list holds an empty value (null), which TOML cannot write; use JSON")
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    raise ValueError(f"cannot write {value!r} as TOML")
