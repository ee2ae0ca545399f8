"""`nibbler bench`."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

import click

from nibbler.cli.options import NumberList

BENCHES = {
    "env": "Environment steps per second, beside other implementations.",
    "cpu": "The compiled CPU engine, per agent and number of boards.",
    "cuda": "The CUDA engine, single runs and many packed on one GPU.",
    "jax": "Rainbow on JAX.",
    "plain-jax": "A plain, dense JAX Nibbler, which the engines are compared with.",
}


@click.command(context_settings={"show_default": True})
@click.argument("what", type=click.Choice(tuple(BENCHES)))
@click.option("--boards", type=NumberList(), default=None, help="Problem sizes, such as 2,8,32.")
@click.option(
    "--repeats", type=click.IntRange(1), default=None, help="Measurements of each number; medians count."
)
@click.option("--output", type=click.Path(path_type=Path), default=None, help="Write the rows there as JSON.")
@click.option("--agent", default=None, help="cuda: measure this agent alone.")
@click.option(
    "--units",
    type=click.IntRange(1),
    default=None,
    help="cuda: its hidden units; cpu: those of Q- and QV-learning, which are then measured alone.",
)
@click.option(
    "--layout",
    multiple=True,
    help="cuda: what to change in the layout that the engine chooses, such as main_warps=3,batch=8; "
    "may be given several times.",
)
def bench(what: str, **given: Any) -> None:
    """Measure speed on this machine: env, cpu, cuda, jax or plain-jax.

    \b
    Examples:
      nibbler bench env
      nibbler bench cpu --boards 2,8 --repeats 5 --output cpu.json
      nibbler bench cuda --boards 32 --agent q-learning --layout row_groups=2
    """
    module = importlib.import_module(f"nibbler.bench.{what.replace('-', '_')}")
    accepted = inspect.signature(module.run).parameters
    options = {name: value for name, value in given.items() if value is not None and value != ()}
    for name in options:
        if name not in accepted:
            raise click.UsageError(f"bench {what} has no --{name}")
    module.run(**options)
