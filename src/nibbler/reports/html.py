"""Building HTML so that text is always escaped: a string is text, and only `element` makes markup."""

from __future__ import annotations

import html
from collections.abc import Iterable

_VOID = frozenset({"meta", "link", "br", "img", "hr"})


class Markup(str):
    """HTML that was built here (or an SVG that we drew); everything else is escaped."""

    __slots__ = ()


Child = str | Markup | None | Iterable["Child"]


def markup_of(child: Child) -> str:
    """Escape text; leave markup; join the rest."""
    if child is None:
        return ""
    if isinstance(child, Markup):
        return str(child)
    if isinstance(child, str):
        return html.escape(child, quote=True)
    return "".join(markup_of(part) for part in child)


def element(tag: str, *children: Child, **attributes: str | None) -> Markup:
    """An element; `class_` is written class, `aria_label` aria-label."""
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{html.escape(value, quote=True)}"'
        for name, value in attributes.items()
        if value is not None
    )
    if tag in _VOID:
        return Markup(f"<{tag}{written}>")
    return Markup(f"<{tag}{written}>{markup_of(children)}</{tag}>")
