"""The `nibbler` command: subcommands are imported when used, and errors are one line."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Sequence

import click

# Name, where it lives, and its line in the help (so that the help imports nothing).
COMMANDS = {
    "train": ("nibbler.cli.train:train", "Run one agent on one environment and see what it earns."),
    "study": ("nibbler.cli.study:study", "Run a whole study (many runs) and read it."),
    "report": ("nibbler.cli.report:report", "Write the figures and the page of a results folder."),
    "bench": ("nibbler.cli.bench:bench", "Measure how fast environments and engines are here."),
    "completion": ("nibbler.cli.completion:completion", "Print the shell completion script."),
}

# Packages that come with an extra of ours, by the name under which they are imported.
EXTRAS = {
    "matplotlib": "studies",
    "pyarrow": "studies",
    "ray": "ray",
    "tensorboard": "tensorboard",
    "jax": "jax",
    "cupy": "cuda12",
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, attribute = COMMANDS[name][0].split(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(f"there is no command {args[0]!r}; the commands are {', '.join(COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


def _show_version(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from nibbler import __version__

        click.echo(f"nibbler {__version__}")
        ctx.exit()


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version.",
)
@click.pass_context
def nibbler(ctx: click.Context, debug: bool) -> None:
    """Reinforcement learning that scales with large, binary, unstructured observations.

    \b
    Start here (three minutes on two cores):
      nibbler study quickstart

    \b
    Then:
      nibbler train --boards 2 --steps 2M         one run, with a progress bar
      nibbler study list                          the paper's studies
      nibbler study scaling --size laptop         one of them; run it again to resume
      nibbler report results                      its figures and page
    """
    ctx.ensure_object(dict)["debug"] = debug


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: runs the command and turns errors into one line and an exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    try:
        status = nibbler.main(
            args=[word for word in words if word != "--debug"] if debug else words,
            prog_name="nibbler",
            standalone_mode=False,
        )
    except click.exceptions.Exit as leaving:
        sys.exit(leaving.exit_code)
    except click.exceptions.Abort:
        _complain("interrupted")
        sys.exit(130)
    except KeyboardInterrupt as stop:
        _complain(str(stop) or "interrupted")
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has gone; nobody wants to hear it
        sys.exit(1)
    except click.ClickException as error:
        if debug:
            traceback.print_exc()
        hint = ""
        if isinstance(error, click.UsageError) and error.ctx is not None:
            hint = f" (see {error.ctx.command_path} --help)"
        _complain(error.format_message() + hint)
        sys.exit(error.exit_code)
    except Exception as error:  # the last line of defence: a person reads this, not a developer
        if debug:
            traceback.print_exc()
        _complain(explain(error))
        sys.exit(1)
    sys.exit(status if isinstance(status, int) else 0)


def explain(error: BaseException) -> str:
    """An error in one line; one that we did not foresee also names its kind and says how to see more."""
    if isinstance(error, ModuleNotFoundError) and error.name in EXTRAS:
        return f"this needs {error.name}: pip install 'nibbler[{EXTRAS[error.name]}]'"
    text = " ".join(str(error.args[-1] if isinstance(error, OSError) and error.args else error).split())
    if isinstance(error, (ValueError, ImportError)) and text:
        return text
    if isinstance(error, OSError):
        name = f": {error.filename}" if error.filename and str(error.filename) not in text else ""
        return f"{text}{name}"
    return f"{type(error).__name__}: {text or 'no message'} (add --debug for the traceback)"


def _complain(text: str) -> None:
    click.echo(f"{click.style('nibbler:', fg='red', bold=True)} {text}", err=True)
