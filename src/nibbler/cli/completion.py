"""`nibbler completion`: the script that teaches a shell our commands."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS), required=False)
@click.pass_context
def completion(ctx: click.Context, shell: str | None) -> None:
    """Print the completion script for a shell (by default the one in $SHELL).

    \b
    Examples:
      eval "$(nibbler completion bash)"           now; put it into ~/.bashrc to keep it
      eval "$(nibbler completion zsh)"            the same for ~/.zshrc
      nibbler completion fish > ~/.config/fish/completions/nibbler.fish
    """
    shell = shell or Path(os.environ.get("SHELL", "")).name
    if shell not in SHELLS:
        raise click.UsageError(f"name a shell: {', '.join(SHELLS)}")
    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(ctx.find_root().command, {}, "nibbler", "_NIBBLER_COMPLETE").source())
