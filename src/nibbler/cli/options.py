"""What several commands share: numbers as people write them, agent settings, completion of names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import CompletionItem

ENGINES = ("auto", "reference", "cpu", "cuda", "jax")
_SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9}


class Quantity(click.ParamType):
    """A whole number that may be written 500k, 2M, 1e6 or 2_000_000."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        text = str(value).strip().lower().replace("_", "").replace(",", "")
        factor = _SUFFIXES.get(text[-1:], 1)
        try:
            number = float(text[:-1] if factor > 1 else text) * factor
            whole = round(number)
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is no number; write it as 2000000, 2M, 500k or 1e6", param, ctx)
        if whole != number:
            self.fail(f"{value!r} is not a whole number", param, ctx)
        return whole


class NumberList(click.ParamType):
    """Numbers with commas between them: 2,4,8."""

    name = "numbers"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        return tuple(Quantity().convert(part, param, ctx) for part in str(value).split(",") if part.strip())


def parse_setting(text: str) -> tuple[str, Any]:
    """A setting as name=value; the value is read as a number, true/false or null where it is one."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise click.UsageError(f"--set {text!r}: write it as name=value, such as hidden_units=128")
    return name.strip().replace("-", "_"), parse_value(value.strip())


def parse_value(text: str) -> Any:
    """A number, true, false or none; anything else is text."""
    words = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def names(find: Callable[[], Any]) -> Callable[..., list[CompletionItem]]:
    """Shell completion from names that are only looked up when somebody presses Tab."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(name) for name in find() if name.startswith(incomplete)]

    return complete


def agent_names() -> tuple[str, ...]:
    from nibbler.agents.registry import AGENT_NAMES

    return AGENT_NAMES


def study_names() -> tuple[str, ...]:
    from nibbler.studies.paper import STUDIES

    return tuple(STUDIES)


def runner_names() -> tuple[str, ...]:
    from nibbler.studies.runners import RUNNERS

    return tuple(RUNNERS)


engine_option = click.option(
    "--engine",
    type=click.Choice(ENGINES),
    default=None,
    help="Engine to run on; auto takes the fastest that is here.",
)
track_option = click.option(
    "--track", type=click.Choice(["tensorboard"]), default=None, help="Write event files beside each run."
)
