"""Everything that a results folder says about the paper: its studies as read, verdicts, remarks and cost.

The list of runs is the library's, not the folder's, so that what was not run is known too.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from nibbler.reports.discovery import Discovery, read_discoveries
from nibbler.studies.claims import CLAIMS, Verdict, one_for_each_claim, verdicts
from nibbler.studies.cost import GpuStep, PlainJax, RunCost, folder_results, run_costs
from nibbler.studies.lines import RandomLines
from nibbler.studies.paper import STUDIES, PaperStudy
from nibbler.studies.reading import summarise
from nibbler.studies.results import StudyResults
from nibbler.studies.spec import Study
from nibbler.studies.store import ResultsFolder

REMARKS = "remarks.toml"
PAPER_SIZE = "paper"  # the size of the runs that findings and remarks are about
PLAIN_JAX = Path("bench") / "plain-jax.json"  # beside the results folder
GPU_STEP = Path("bench") / "cuda.json"
LARGEST_READABLE_MAP = 32  # boards; a map of more is too fine for a README


@dataclass(frozen=True)
class StudyFindings:
    """One study: what was planned, what was found, what it cost."""

    entry: PaperStudy
    study: Study
    results: StudyResults
    costs: tuple[RunCost, ...]  # of its runs that are there

    @property
    def finished(self) -> int:
        return sum(cost.finished for cost in self.costs)

    def figure(self, name: str) -> str:
        """The file name of one of its figures."""
        return f"{self.study.name}-{self.study.size}-{name}.png"


@dataclass(frozen=True)
class Findings:
    """All studies of one size."""

    folder: Path
    parts: tuple[StudyFindings, ...]
    remarks: Mapping[str, str]  # by claim
    plain_jax: PlainJax | None
    gpu_step: GpuStep | None
    smaller: tuple[StudyFindings, ...] = ()  # the same studies at laptop size

    def __getitem__(self, name: str) -> StudyFindings:
        return next(part for part in self.parts if part.study.name == name)

    def distinct(self) -> dict[str, StudyFindings]:
        """Studies by name; those that read the same runs are one, under their names together."""
        groups: dict[frozenset[str], list[StudyFindings]] = {}
        for part in self.parts:
            groups.setdefault(frozenset(spec.id for spec in part.study.runs), []).append(part)
        return {", ".join(p.study.name for p in parts): parts[0] for parts in groups.values()}

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """One verdict for each claim, from the study that can tell if several bear on it."""
        return _verdicts(self.parts)

    @cached_property
    def smaller_verdicts(self) -> list[Verdict]:
        """Verdicts at laptop size on claims that lack runs at this one."""
        open_claims = {v.claim.id for v in self.verdicts if v.status == "not enough data"}
        return [
            v for v in _verdicts(self.smaller) if v.claim.id in open_claims and v.status != "not enough data"
        ]

    @cached_property
    def discoveries(self) -> dict[int, Discovery]:
        """What Nibbler found of the structure on every size that was planned, of one run each."""
        found = read_discoveries(ResultsFolder(self.folder), self["beyond"].study)
        return {boards: discovery for boards, (_, discovery) in found.items()}

    @property
    def costs(self) -> list[RunCost]:
        """Every run once, whatever studies share it."""
        return list({cost.spec.id: cost for part in self.parts for cost in part.costs}.values())

    def map_for_readers(self) -> int | None:
        """The size whose discovery map is shown first: the largest that can be read, if there is one."""
        curves = self["curves"].results  # whose maps they are
        maps = [n for n in self.discoveries if curves.get("nibbler", n) is not None]
        return max((n for n in maps if n <= LARGEST_READABLE_MAP), default=max(maps, default=None))


def _verdicts(parts: Iterable[StudyFindings]) -> list[Verdict]:
    return one_for_each_claim(verdict for part in parts for verdict in verdicts(part.results))


def read_findings(folder: str | Path) -> Findings:
    """Read what there is of the paper's studies in a folder; nothing at all is an answer too."""
    root = Path(folder)
    runs = folder_results(root)
    costs = run_costs(runs.values())
    random_lines = RandomLines(root if root.is_dir() else None)

    def parts(size: str) -> tuple[StudyFindings, ...]:
        found = []
        for entry in (entry for entry in STUDIES.values() if size in entry.sizes):
            study = entry.study(size)
            here = [spec.id for spec in study.runs if spec.id in runs]
            results = summarise(study, [runs[run_id] for run_id in here], random_lines)
            own = tuple(costs[run_id] for run_id in here)
            found.append(StudyFindings(entry, study, results, own))
        return tuple(found)

    findings = Findings(
        root,
        parts(PAPER_SIZE),
        read_remarks(root / REMARKS),
        PlainJax.read(root.parent / PLAIN_JAX),
        GpuStep.read(root.parent / GPU_STEP),
        smaller=parts("laptop"),
    )
    random_lines.save()
    return findings


def read_remarks(path: Path) -> dict[str, str]:
    """What people say about verdicts, by claim; a remark on a claim that does not exist is an error."""
    if not path.exists():
        return {}
    try:
        remarks = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: {error}") from None
    known = {claim.id for claims in CLAIMS.values() for claim in claims}
    for name, text in remarks.items():
        if name not in known:
            raise ValueError(f"{path}: there is no claim {name!r}; the claims are {', '.join(sorted(known))}")
        if not isinstance(text, str):
            raise ValueError(f"{path}: the remark on {name!r} must be text")
    return {name: " ".join(text.split()) for name, text in remarks.items()}
