"""Printing tables and curves on a terminal."""

from __future__ import annotations

import click
import numpy as np
from numpy.typing import NDArray

from nibbler.reports.tables import TextTable
from nibbler.studies.claims import Verdict

_BLOCKS = "▁▂▃▄▅▆▇█"
_COLOURS = {"confirmed": "green", "holds so far": "green", "not confirmed": "red", "not enough data": None}


def table_lines(table: TextTable) -> list[str]:
    """The table with columns lined up: words to the left, numbers to the right."""
    widths = [
        max(len(row[column]) for row in [table.headings, *table.rows])
        for column in range(len(table.headings))
    ]

    def line(cells: list[str]) -> str:
        parts = [
            cell.ljust(width) if column < table.text_columns else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "  ".join(parts).rstrip()

    return [line(table.headings), *map(line, table.rows)]


def print_table(table: TextTable) -> None:
    """Print a table with a bold heading."""
    heading, *rows = table_lines(table)
    click.secho(heading, bold=True)
    for row in rows:
        click.echo(row)


def print_verdicts(verdicts: list[Verdict]) -> None:
    """Print what the data say about each claim."""
    for verdict in verdicts:
        click.secho(f"{verdict.status:>16}", fg=_COLOURS[verdict.status], bold=True, nl=False)
        click.echo(f"  {verdict.claim.text}")
        click.echo(f"{'':>16}  {verdict.text} ({verdict.claim.where})")


def sparkline(values: NDArray[np.float64], width: int = 60) -> str:
    """A curve in one line of text."""
    if len(values) == 0:
        return ""
    groups = np.array_split(values, min(width, len(values)))
    means = np.array([group.mean() for group in groups])
    low, high = float(means.min()), float(means.max())
    scaled = (means - low) / (high - low) if high > low else np.zeros_like(means)
    return "".join(_BLOCKS[min(7, int(x * 8))] for x in scaled)
