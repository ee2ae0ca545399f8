"""Markdown: tables, and blocks of a file that are written from data."""

from __future__ import annotations

import re
from collections.abc import Mapping

from nibbler.reports.tables import TextTable

_BLOCK = re.compile(r"(<!-- results: ([a-z-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def markdown_table(table: TextTable) -> str:
    """A table, words to the left and numbers to the right."""
    rules = ["---" if k < table.text_columns else "---:" for k in range(len(table.headings))]
    return "".join(_row(cells) for cells in (table.headings, rules, *table.rows))


def _row(cells: list[str]) -> str:
    escaped = (" ".join(cell.split()).replace("|", "\\|").replace("<", "&lt;") for cell in cells)
    return f"| {' | '.join(escaped)} |\n"


def fill_blocks(text: str, blocks: Mapping[str, str]) -> str:
    """Replace what stands between `<!-- results: NAME -->` and `<!-- end -->`, for every name.

    A block that is not known is an error, and so is one that the text does not have: neither goes unnoticed.
    """
    names = [match[2] for match in _BLOCK.finditer(text)]
    if unknown := sorted(set(names) - set(blocks)):
        raise ValueError(f"there is no block {unknown[0]!r}; the blocks are {', '.join(sorted(blocks))}")
    if missing := sorted(set(blocks) - set(names)):
        raise ValueError(f"the text has no block {missing[0]!r}; add <!-- results: {missing[0]} -->")
    return _BLOCK.sub(lambda match: match[1] + blocks[match[2]].strip("\n") + "\n" + match[4], text)
