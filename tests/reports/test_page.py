"""The report page: complete, safe with a stranger's folder, and right in a real browser."""

from __future__ import annotations

import html
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from nibbler.reports.html import Markup, element
from nibbler.reports.report import write_report
from nibbler.reports.tables import format_duration, growth_table, summary_table
from nibbler.studies.claims import CLAIMS
from nibbler.studies.reading import read_study
from nibbler.studies.spec import RunSpec, Study

MakeFolder = Callable[..., Path]
MakeStudy = Callable[..., Study]


class Reader(HTMLParser):
    """Collects tags, links and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attributes]

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def test_the_page_has_summary_claims_figures_records_and_links(page: Path) -> None:
    read = Reader(page.read_text())
    for wanted in ("Summary", "The paper's claims", "Reward by steps", "Discovery map", "not enough data"):
        assert wanted in read.text
    assert read.tags.count("figure") == 5  # curves, scaling, compute, and a map for each size
    links = [value for tag, name, value in read.attributes if (tag, name) == ("a", "href")]
    files = [link for link in links if not link.startswith("#")]
    assert any(link.endswith("curve.parquet") for link in files)
    assert all((page.parent / link).exists() for link in files)
    assert "100,000 steps/s" in read.text
    assert '"processor": "test"' in read.text


def test_several_studies_begin_with_every_claim_once_and_count_shared_runs_once(
    results_folder: MakeFolder, make_study: MakeStudy
) -> None:
    folder = results_folder(make_study("quickstart"), make_study("scaling"))
    text = write_report(folder).read_text()
    overview = text[text.index("All claims") : text.index("</header>")]
    named = [claim.text for name in ("quickstart", "scaling") for claim in CLAIMS[name]]
    for claim in set(named):
        assert overview.count(html.escape(claim)) == 1
    (twice,) = (claim for claim in CLAIMS["quickstart"] if named.count(claim.text) == 2)
    assert f'✓ confirmed</span><div><a href="#quickstart-test">{twice.text}</a>' in overview
    assert "2 studies, 45 runs." in text


def test_remarks_stand_beside_claims_about_runs_of_the_papers_size(
    results_folder: MakeFolder, make_study: MakeStudy
) -> None:
    folder = results_folder(make_study("quickstart"), replace(make_study("scaling"), size="paper"))
    (folder / "remarks.toml").write_text('linear-growth = "Ours is <i>\\n straight."\n')
    text = write_report(folder).read_text()
    remark = "<p>Ours is &lt;i&gt; straight.</p>"
    assert text.count(remark) == 1
    assert text.index('id="scaling-paper"') < text.index(remark)
    assert "Ours is" not in write_report(folder, ["quickstart"]).read_text()


def test_the_page_loads_nothing_and_runs_nothing(page: Path) -> None:
    read = Reader(page.read_text())
    assert "script" not in read.tags
    loading = [
        value
        for tag, name, value in read.attributes
        if name in ("src", "xlink:href", "href") and tag not in ("a", "use")
    ]
    assert all(value.startswith(("data:", "#")) for value in loading)
    assert any(name == "content" and "default-src 'none'" in value for _, name, value in read.attributes)


def test_text_from_a_strangers_folder_is_only_text(results_folder: MakeFolder) -> None:
    evil = "<script>alert(1)</script><img src=x onerror=alert(2)>"
    specs = [
        RunSpec({"import": "os:system", "note": evil}, {"name": evil, "x": evil}, 2000, seed, "cpu", 1000)
        for seed in (0, 1)
    ]
    labels = [{"label": evil, "agent": {"x": evil}}]
    study = Study("mine", "custom", tuple(specs), evil, {"labels": labels, "figures": ["curves", evil]})
    page = write_report(results_folder(study))
    read = Reader(page.read_text())
    assert "script" not in read.tags
    assert "img" not in read.tags
    assert not any(name.startswith("on") for _, name, _ in read.attributes)
    assert evil in read.text
    assert "alert" not in [name for _, name, _ in read.attributes]


def test_reading_a_folder_imports_nothing_that_it_names(results_folder: MakeFolder, tmp_path: Path) -> None:
    (tmp_path / "planted_module.py").write_text("raise SystemExit('imported')\n")
    spec = RunSpec(
        {"import": "planted_module:make"}, {"import": "planted_module:agent"}, 2000, 0, "cpu", 1000
    )
    write_report(results_folder(Study("mine", "custom", (spec,))))
    assert "planted_module" not in sys.modules


def test_a_study_under_way_can_be_reported(results_folder: MakeFolder, make_study: MakeStudy) -> None:
    page = write_report(results_folder(make_study(boards=(2,)), finished=False))
    text = Reader(page.read_text()).text
    assert "30.0k of 60.0k" in text
    assert "0 of 15 runs finished" in text


def test_a_folder_without_studies_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no study; give the folder"):
        write_report(tmp_path)


def test_a_study_that_is_not_there_is_named(results_folder: MakeFolder, make_study: MakeStudy) -> None:
    folder = results_folder(make_study(boards=(2,)))
    with pytest.raises(ValueError, match="holds no study 'scaling'; it has curves"):
        write_report(folder, ["scaling"])


def test_selections_that_do_not_fit_the_features_give_no_map(
    results_folder: MakeFolder, make_study: MakeStudy
) -> None:
    from nibbler.studies.store import ResultsFolder

    study = make_study(boards=(2,))
    folder = results_folder(study)
    for spec in study.runs:
        (ResultsFolder(folder).run(spec).path / "features.parquet").unlink(missing_ok=True)
    assert "Discovery map" not in Reader(write_report(folder).read_text()).text


def test_a_run_that_studies_share_has_one_map_on_the_page(
    results_folder: MakeFolder, make_study: MakeStudy
) -> None:
    folder = results_folder(make_study("curves", (2, 4)), make_study("beyond", (2, 4, 8)))
    write_report(folder)
    maps = {path.stem for path in (folder / "figures").glob("*discovery*.png")}
    assert maps == {"curves-test-discovery-2", "curves-test-discovery-4", "beyond-test-discovery-8"}


def test_text_is_escaped_and_markup_is_not() -> None:
    assert element("p", "<a & b>", title='"quoted"') == '<p title="&quot;quoted&quot;">&lt;a &amp; b&gt;</p>'
    assert element("p", Markup("<b>x</b>"), None, ["y", "<"]) == "<p><b>x</b>y&lt;</p>"


def test_summary_and_growth_tables_carry_what_was_not_reached(
    results_folder: MakeFolder, make_study: MakeStudy
) -> None:
    study = make_study(boards=(2, 4, 8))
    read = read_study(results_folder(study), study)
    table = summary_table(read)
    rows = {(row[0], row[1]): dict(zip(table.headings, row, strict=True)) for row in table.rows}
    assert rows["Linear", "2"]["steps until ≥ 0"] == "> 60.0k"
    assert rows["Linear", "4"]["doubling ratio"] == "undefined"
    assert rows["Nibbler", "2"]["doubling ratio"] == "-"
    growth = {row[0]: row for row in growth_table(read).rows}
    assert growth["Linear"][3] == "2, 4, 8"
    assert growth["Nibbler"][2] == "2, 4, 8"


@pytest.mark.parametrize(
    "seconds, text", [(8.25, "8.2 s"), (90, "1.5 min"), (7200, "2.0 h"), (259_200, "3.0 days")]
)
def test_durations_are_for_people(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


VISIBLE_FIGURES = """
(() => [...document.querySelectorAll("figure")].map(figure => {
  const shown = [...figure.querySelectorAll("svg")].filter(svg => svg.getClientRects().length > 0);
  const box = shown.length === 1 ? shown[0].getBoundingClientRect() : {width: 0, height: 0};
  const inked = shown.length === 1 ? shown[0].querySelectorAll("path, use, image").length : 0;
  return {shown: shown.length, width: box.width, height: box.height, inked};
}))()
"""


def test_a_linked_page_is_small_says_the_same_and_shows_its_files(page: Path, tmp_path: Path) -> None:
    from headless_browser import Browser, find_chromium

    folder = tmp_path / "copy"
    shutil.copytree(page.parent, folder)
    linked = write_report(folder, linked=True)
    text = linked.read_text()
    assert len(text) < len(page.read_text()) / 5
    read = Reader(text)
    assert read.tags.count("figure") == read.tags.count("img") == 5
    sources = [value for tag, name, value in read.attributes if (tag, name) == ("img", "src")]
    assert all((folder / source).exists() for source in sources)
    assert "100,000 steps/s" in read.text
    assert write_report(folder, linked=True).read_text() == text
    executable = find_chromium()
    if executable is None:
        pytest.skip("Chromium is not installed")
    with Browser(executable) as browser:
        browser.open(linked, 1400, dark=False)
        assert browser.complaints == []
        widths = browser.evaluate("[...document.images].map(image => image.naturalWidth)")
        assert len(widths) == 5
        assert min(widths) > 300


@pytest.mark.parametrize("width, dark", [(1400, False), (390, False), (1400, True), (390, True)])
def test_a_real_browser_shows_every_figure_and_has_no_complaint(page: Path, width: int, dark: bool) -> None:
    from headless_browser import Browser, find_chromium

    executable = find_chromium()
    if executable is None:
        pytest.skip("Chromium is not installed")
    with Browser(executable) as browser:
        browser.open(page, width, dark=dark)
        shown: list[dict[str, Any]] = browser.evaluate(VISIBLE_FIGURES)
        assert browser.complaints == []
        assert all(request.startswith(("file:", "data:")) for request in browser.requests)
        assert len(shown) == 5
        for figure in shown:
            assert figure["shown"] == 1
            assert figure["inked"] > 20
            assert width * 0.4 < figure["width"] <= width
            assert figure["height"] > 150
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        ink = browser.evaluate("getComputedStyle(document.body).color")
        assert (ink == "rgb(231, 233, 236)") == dark
