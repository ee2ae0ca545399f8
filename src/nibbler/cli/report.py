"""`nibbler report`."""

from __future__ import annotations

from pathlib import Path

import click

from nibbler.cli.options import names, study_names


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path("results"))
@click.option(
    "--study",
    "studies",
    multiple=True,
    shell_complete=names(study_names),
    help="Only this study; may be repeated.",
)
@click.option(
    "--markdown",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    help="Also write what was found about the paper to this file.",
)
@click.option(
    "--readme",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    default=None,
    help="Also fill this file's blocks <!-- results: NAME --> ... <!-- end -->.",
)
@click.option(
    "--linked",
    is_flag=True,
    help="Let the page show the PNG files beside it: small, but not to be moved alone.",
)
@click.option("--open", "show", is_flag=True, help="Open the page in a browser.")
def report(
    folder: Path,
    studies: tuple[str, ...],
    markdown: Path | None,
    readme: Path | None,
    linked: bool,
    show: bool,
) -> None:
    """Write the figures (SVG and PNG) and one page, self-contained unless --linked, for a results FOLDER.

    Works on finished studies and on those still running. Nothing that a folder names is imported or run, so a
    folder from somebody else is safe to read. With --markdown or --readme the page is about the paper's
    studies at the paper's size, and what has not been run is listed as such.

    \b
    Examples:
      nibbler report                              the folder `results`
      nibbler report results --study scaling      one study only
      nibbler report ~/from-a-friend --open
      nibbler report results/paper --markdown RESULTS.md --readme README.md
    """
    if not folder.is_dir():
        raise click.UsageError(f"there is no folder {folder}")
    from nibbler.reports.findings import PAPER_SIZE
    from nibbler.reports.report import write_findings, write_report

    about_the_paper = markdown is not None or readme is not None
    if about_the_paper:
        write_findings(folder, markdown, readme)
        click.echo("wrote " + " and ".join(str(path) for path in (markdown, readme) if path is not None))
        if not (folder / "runs").is_dir():
            return  # nothing has been run, which is what the files say
    page = write_report(folder, studies or None, PAPER_SIZE if about_the_paper else None, linked)
    click.echo(f"report: {page}")
    if show:
        click.launch(str(page.resolve()))
