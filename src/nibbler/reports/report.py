"""`nibbler report`: from a results folder to its figures and its page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import nibbler
from nibbler.reports.catalogue import FIGURES, Picture, draw_discovery, draw_figure
from nibbler.reports.discovery import read_discoveries
from nibbler.reports.findings import PAPER_SIZE, REMARKS, read_findings, read_remarks
from nibbler.reports.markdown import fill_blocks
from nibbler.reports.page import RunNote, StudySection, render_page, write_page
from nibbler.reports.readme import readme_blocks
from nibbler.reports.results_md import results_text
from nibbler.studies.claims import verdicts
from nibbler.studies.files import make_folder, write_bytes
from nibbler.studies.paper import STUDIES, PaperStudy
from nibbler.studies.reading import read_study
from nibbler.studies.results import StudyResults
from nibbler.studies.spec import RunSpec, Study
from nibbler.studies.store import ResultsFolder

PAGE = "report.html"
FIGURE_FOLDER = "figures"
DEFAULT_FIGURES = ("curves", "scaling", "discovery")
_FILES = (
    "spec.json",
    "record.json",
    "curve.parquet",
    "timing.parquet",
    "snapshots.parquet",
    "features.parquet",
)


def write_report(
    folder: str | Path,
    studies: Iterable[str] | None = None,
    size: str | None = None,
    linked: bool = False,
) -> Path:
    """Draw every figure of the studies in a results folder and write its page; returns where the page is.

    `studies` limits it to these names. With a `size`, the studies are the library's of that size that have a
    run here, whatever lists the folder holds. A folder may hold runs that are still under way. A `linked`
    page shows the figures' files instead of holding them, and names runs without their records.
    """
    root = Path(folder)
    results = ResultsFolder(root)
    found = results.studies() if size is None else _library_studies(results, size)
    if not found:
        raise ValueError(f"{root} holds no study; give the folder that `nibbler study run` wrote to")
    if studies is not None:
        wanted = list(studies)
        missing = sorted(set(wanted) - {study.name for study in found})
        if missing:
            there = ", ".join(sorted({study.name for study in found}))
            raise ValueError(f"{root} holds no study {missing[0]!r}; it has {there}")
        found = [study for study in found if study.name in wanted]
    order = list(STUDIES)
    found.sort(key=lambda s: (order.index(s.name) if s.name in order else len(order), s.name, s.size))
    make_folder(root / FIGURE_FOLDER)
    remarks = read_remarks(root / REMARKS)
    mapped: set[str] = set()
    sections = [_section(results, study, root / FIGURE_FOLDER, remarks, mapped) for study in found]
    title = "Nibbler: " + (found[0].name if len(found) == 1 else "results")
    write_page(root / PAGE, render_page(title, sections, nibbler.__version__, linked))
    return root / PAGE


def _library_studies(results: ResultsFolder, size: str) -> list[Study]:
    here = {run.path.name.rpartition("-")[2] for run in results.runs()}
    studies = [entry.study(size) for entry in STUDIES.values() if size in entry.sizes]
    return [study for study in studies if any(spec.id in here for spec in study.runs)]


def write_findings(folder: str | Path, markdown: Path | None = None, readme: Path | None = None) -> None:
    """Write RESULTS.md and the results' blocks of README.md from the runs of the paper's size in a folder."""
    findings = read_findings(folder)
    if markdown is not None:
        write_bytes(markdown, results_text(findings, markdown.parent).encode())
    if readme is not None:
        text = fill_blocks(readme.read_text(encoding="utf-8"), readme_blocks(findings, readme.parent))
        write_bytes(readme, text.encode())


def _section(
    results: ResultsFolder, study: Study, figures: Path, remarks: Mapping[str, str], mapped: set[str]
) -> StudySection:
    read = read_study(results.path, study)
    known = STUDIES.get(study.name)
    return StudySection(
        study,
        read,
        verdicts(read),
        _pictures(results, study, read, figures, mapped),
        [_note(results, spec) for spec in study.runs],
        source=known.source[0].upper() + known.source[1:] + "." if known else "",
        grid=_grid(known) if known else "",
        remarks=remarks if study.size == PAPER_SIZE else {},
    )


def _grid(entry: PaperStudy) -> str:
    return entry.grid + (f" Not run: {entry.left_out}." if entry.left_out else "")


def _pictures(
    results: ResultsFolder, study: Study, read: StudyResults, folder: Path, mapped: set[str]
) -> list[Picture]:
    names = study.reading.get("figures")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        names = list(DEFAULT_FIGURES)
    pictures = []
    for name in names:
        file_name = f"{study.name}-{study.size}-{name}"
        if name == "discovery":
            pictures += _discovery_pictures(results, study, folder, mapped)
        elif name in FIGURES:
            picture = draw_figure(name, read, folder, file_name)
            if picture is not None:
                pictures.append(picture)
    return pictures


def _discovery_pictures(
    results: ResultsFolder, study: Study, folder: Path, mapped: set[str]
) -> list[Picture]:
    """One map per problem size, of runs that have none on the page yet: studies share runs."""
    pictures: list[Picture] = []
    for boards, (spec, discovery) in sorted(read_discoveries(results, study).items()):
        if spec.id not in mapped:
            name = f"{study.name}-{study.size}-discovery-{boards}"
            pictures.append(draw_discovery(discovery, spec.label, folder, name, explain=not pictures))
            mapped.add(spec.id)
    return pictures


def _note(results: ResultsFolder, spec: RunSpec) -> RunNote:
    folder = results.run(spec)
    present = tuple(name for name in _FILES if (folder.path / name).exists())
    state: str = folder.status().state if "spec.json" in present else "not run"
    if state == "waiting" and "curve.parquet" in present:  # its checkpoints were not kept
        state = "unfinished"
    return RunNote(spec.label, f"runs/{folder.path.name}", state, spec.to_dict(), folder.record(), present)
