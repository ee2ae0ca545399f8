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
@click.option("--open", "show", is_flag=True, help="Open the page in a browser.")
def report(folder: Path, studies: tuple[str, ...], show: bool) -> None:
    """Write the figures (SVG and PNG) and one self-contained page for a results FOLDER.

    Works on finished studies and on those still running. Nothing that a folder names is imported or run, so a
    folder from somebody else is safe to read.

    \b
    Examples:
      nibbler report                              the folder `results`
      nibbler report results --study scaling      one study only
      nibbler report ~/from-a-friend --open
    """
    if not folder.is_dir():
        raise click.UsageError(f"there is no folder {folder}")
    from nibbler.reports.report import write_report

    page = write_report(folder, studies or None)
    click.echo(f"report: {page}")
    if show:
        click.launch(str(page.resolve()))
