"""One HTML page for a results folder: no network, no script, for phones and dark rooms too.

It holds its figures; a linked page shows the PNG files beside it instead, and is small enough to be kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

from nibbler.reports.catalogue import Picture
from nibbler.reports.html import Child, Markup, element
from nibbler.reports.tables import TextTable, growth_table, not_run_lines, summary_table
from nibbler.studies.claims import Verdict, one_for_each_claim
from nibbler.studies.files import write_bytes
from nibbler.studies.results import StudyResults
from nibbler.studies.spec import Study

# Nothing is loaded and nothing runs, whatever a stranger's folder says.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src {images}; base-uri 'none'; form-action 'none'"
)
_MARKS = {
    "confirmed": "✓ confirmed",
    "holds so far": "✓ holds so far",
    "not confirmed": "✗ not confirmed",
    "not enough data": "… not enough data",
}


@dataclass(frozen=True)
class RunNote:
    """A run as the page shows it."""

    label: str
    folder: str  # relative to the page
    state: str
    spec: dict[str, Any]
    record: dict[str, Any] | None
    files: tuple[str, ...]


@dataclass(frozen=True)
class StudySection:
    """Everything that the page says about one study."""

    study: Study
    results: StudyResults
    verdicts: Sequence[Verdict]
    pictures: Sequence[Picture]
    runs: Sequence[RunNote]
    source: str = ""
    grid: str = ""
    remarks: Mapping[str, str] = field(default_factory=dict)  # what people say about a verdict, by claim


def render_page(title: str, sections: Sequence[StudySection], version: str, linked: bool = False) -> str:
    """The page as text. A linked one does not say when it was written: equal results give it again."""
    style = resources.files("nibbler.reports").joinpath("page.css").read_text(encoding="utf-8")
    now = "" if linked else datetime.now(UTC).strftime(" on %Y-%m-%d %H:%M UTC")
    policy = _POLICY.format(images="'self' file:" if linked else "data:")
    links = [
        element("li", element("a", f"{s.study.name} ({s.study.size})", href=f"#{_anchor(s)}"))
        for s in sections
    ]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("title", title),
        element("style", Markup(style)),
    )
    runs = len({run.folder for s in sections for run in s.runs})  # studies share runs
    body = element(
        "body",
        element(
            "header",
            element("h1", title),
            element(
                "p", f"{_count(len(sections), 'study', 'studies')}, {_count(runs, 'run')}.", class_="quiet"
            ),
            element("nav", element("ul", links), aria_label="studies") if len(sections) > 1 else None,
            _overview(sections) if len(sections) > 1 else None,
        ),
        element("main", [_section(s, linked) for s in sections]),
        element("footer", element("p", f"Written by nibbler {version}{now}.", class_="quiet")),
    )
    return "<!doctype html>\n" + element("html", head, body, lang="en") + "\n"


def _overview(sections: Sequence[StudySection]) -> Markup | None:
    """Every claim once, with its verdict; a link leads to the study that tells."""
    chosen = one_for_each_claim(v for s in sections for v in s.verdicts)
    if not chosen:
        return None
    items = [
        element("li", _mark(v), element("div", _claim_link(v, s)))
        for s in sections
        for v in s.verdicts
        if any(v is one for one in chosen)
    ]
    return Markup(element("h3", "All claims") + _claim_list(items))


def _claim_link(verdict: Verdict, s: StudySection) -> list[Child]:
    claim = verdict.claim
    return [
        element("a", claim.text, href=f"#{_anchor(s)}"),
        element("span", f" ({claim.where})", class_="quiet"),
    ]


def _section(s: StudySection, linked: bool) -> Markup:
    window = s.results.window
    smoothing = "no smoothing" if window == 1 else f"smoothed over {window} bins{_bin_text(s)}"
    reading = f"Threshold {s.results.threshold:g}, {smoothing}; intervals are 95%, bootstrapped over seeds."
    return element(
        "section",
        element("h2", s.results.title),
        element("p", f"Study {s.study.name}, size {s.study.size}. {s.source}", class_="quiet"),
        element("p", s.grid, class_="quiet") if s.grid else None,
        _claims(s.verdicts, s.remarks) if s.verdicts else None,
        element("h3", "Summary"),
        _table(summary_table(s.results)) if s.results.measured else element("p", "No run has a result yet."),
        _not_run(s.results) if s.results.measured else None,
        _growth(s.results),
        element("p", reading, class_="quiet"),
        [_figure(picture, linked) for picture in s.pictures],
        _runs(s.runs, linked),
        id=_anchor(s),
    )


def _claims(verdicts: Sequence[Verdict], remarks: Mapping[str, str]) -> Markup:
    items = [
        element(
            "li",
            _mark(v),
            element(
                "div",
                v.claim.text,
                element("br"),
                element("span", f"{v.text} ({v.claim.where}).", class_="quiet"),
                element("p", remarks[v.claim.id]) if v.claim.id in remarks else None,
            ),
        )
        for v in verdicts
    ]
    return Markup(element("h3", "The paper's claims") + _claim_list(items))


def _claim_list(items: Sequence[Markup]) -> Markup:
    return element("div", element("ul", items, class_="claims"), class_="card")


def _mark(verdict: Verdict) -> Markup:
    return element("span", _MARKS[verdict.status], class_=f"verdict {verdict.status.replace(' ', '-')}")


def _table(table: TextTable) -> Markup:
    heading = element("tr", [element("th", text, scope="col") for text in table.headings])
    rows = [element("tr", [element("td", cell) for cell in row]) for row in table.rows]
    inner = element("table", element("thead", heading), element("tbody", rows))
    # Scrollable by keyboard as well, since a wide table does not fit a phone.
    return element("div", element("div", inner, class_="scroll", tabindex="0"), class_="card")


def _not_run(results: StudyResults) -> Markup | None:
    lines = not_run_lines(results)
    return element("p", f"Not run: {'; '.join(lines)}.") if lines else None


def _growth(results: StudyResults) -> Markup | None:
    table = growth_table(results)
    if not table.rows:
        return None
    return Markup(element("h3", "Growth: steps to threshold as a power of the boards") + _table(table))


def _figure(picture: Picture, linked: bool) -> Markup:
    svg, png = ("figures/" + quote(path.name) for path in (picture.svg_file, picture.png_file))
    if linked:
        drawn = [element("img", src=png, alt=picture.title)]
        files: list[Child] = []
    else:
        drawn = [
            element("div", Markup(picture.wide), class_="wide"),
            element("div", Markup(picture.narrow), class_="narrow"),
        ]
        files = [" ", element("a", "SVG", href=svg), ", ", element("a", "PNG", href=png)]
    caption = element("figcaption", picture.caption, files)
    return element("figure", element("h3", picture.title), element("div", drawn, caption, class_="card"))


def _runs(runs: Sequence[RunNote], linked: bool) -> Markup:
    finished = sum(run.record is not None for run in runs)
    return Markup(
        element("h3", "Runs")
        + element(
            "details",
            element("summary", f"{finished} of {_count(len(runs), 'run')} finished: records and data"),
            [_run(run, linked) for run in runs],
            class_="card",
        )
    )


def _run(run: RunNote, linked: bool) -> Markup:
    record = run.record or {}
    facts = [run.state]
    for key, text in (
        ("engine", "engine {}"),
        ("steps_per_second", "{:,.0f} steps/s"),
        ("seconds", "{:,.1f} s"),
    ):
        value = record.get(key)
        if isinstance(value, (str, int, float)) and (key == "engine" or not isinstance(value, str)):
            facts.append(text.format(value))
    links: list[Child] = []
    for name in run.files:
        links += [element("a", name, href=f"{quote(run.folder)}/{quote(name)}"), " "]
    inside = json.dumps({"spec": run.spec, "record": run.record}, indent=1, ensure_ascii=False)
    return element(
        "details",
        element("summary", run.label, element("span", " · " + " · ".join(facts), class_="quiet")),
        element("p", links) if links else None,
        element("pre", inside) if not linked else None,
    )


def _bin_text(s: StudySection) -> str:
    sizes = {run.bin_size for run in s.study.runs}
    return f" ({s.results.window * sizes.pop():,} steps)" if len(sizes) == 1 else ""


def _anchor(s: StudySection) -> str:
    return f"{s.study.name}-{s.study.size}"


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def write_page(path: Path, text: str) -> None:
    """Put the page in place at once."""
    write_bytes(path, text.encode("utf-8"))
