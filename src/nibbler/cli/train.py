"""`nibbler train`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nibbler.cli.options import (
    Quantity,
    agent_names,
    engine_option,
    names,
    parse_setting,
    track_option,
)

if TYPE_CHECKING:
    import numpy as np

    from nibbler.studies.spec import RunSpec


@click.command(context_settings={"show_default": True})
@click.option("--agent", default="nibbler", shell_complete=names(agent_names), help="Who learns.")
@click.option("--boards", type=click.IntRange(1), default=2, help="Number of catch boards.")
@click.option("--heterogeneous", is_flag=True, help="Boards of different size and dynamics.")
@click.option("--noisy-wind", is_flag=True, help="A wind that moves the balls at random.")
@click.option("--steps", type=Quantity(), default="1M", help="How long; 500k, 2M and 1e6 are understood.")
@click.option("--seed", type=Quantity(), default=0, help="Everything random follows from it.")
@engine_option
@click.option("--bin-size", type=Quantity(), default=None, help="Steps per point of the curve.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Change a setting of the agent.")
@click.option(
    "--results", type=click.Path(path_type=Path), default=None, help="Keep the run in this folder; resumable."
)
@track_option
@click.option("--inspect", "look", is_flag=True, help="Show what the agent asks and which bits it chose.")
def train(
    agent: str,
    boards: int,
    heterogeneous: bool,
    noisy_wind: bool,
    steps: int,
    seed: int,
    engine: str | None,
    bin_size: int | None,
    settings: Sequence[str],
    results: Path | None,
    track: str | None,
    look: bool,
) -> None:
    """Run one agent on multi-catch and see what it earns.

    With --results the run is kept as in a study (curve as Parquet, record, checkpoints): stop it with Ctrl-C
    and give the same command to go on.

    \b
    Examples:
      nibbler train                                        Nibbler on 2 boards, 1M steps
      nibbler train --boards 8 --steps 16M --results out   kept, and resumed when run again
      nibbler train --agent q-learning --set hidden_units=64 --set step_size=0.003
      nibbler train --boards 4 --inspect                   which board each question is about
      nibbler train --results out --track tensorboard      then: tensorboard --logdir out
    """
    if track is not None and results is None:
        raise click.UsageError("--track needs --results FOLDER, where the event files go")
    from nibbler.studies.spec import RunSpec

    environment: dict[str, Any] = {"name": "multi_catch", "num_boards": boards, "seed": seed}
    environment.update({"heterogeneous": True} if heterogeneous else {})
    environment.update({"noisy_wind": True} if noisy_wind else {})
    spec = RunSpec(
        environment,
        {"name": agent, **dict(parse_setting(text) for text in settings)},
        steps,
        seed,
        engine or "auto",
        bin_size or min(10_000, max(1, steps // 20)),
    )
    if results is None:
        _train_here(spec, look)
    else:
        _train_in_folder(spec, results, track, look)


def _train_here(spec: RunSpec, look: bool) -> None:
    import dataclasses

    from nibbler.agents.registry import config_class, default_config
    from nibbler.engines.run import train as run_training
    from nibbler.studies.build import build_environment

    env = build_environment(spec.environment)
    agent = {key: value for key, value in spec.agent.items() if key != "name"}
    known = [field.name for field in dataclasses.fields(config_class(spec.agent["name"]))]
    for name in agent:
        if name not in known:
            raise click.UsageError(f"{spec.agent['name']} has no setting {name!r}; it has {', '.join(known)}")
    config = default_config(spec.agent["name"], env.num_components, env.num_features, **agent)
    result = run_training(env, config, spec.steps, spec.seed, spec.engine, spec.bin_size, progress=None)
    _summarise(spec, result.rewards, result.record, result.steps_per_second)
    if look:
        click.echo(str(result.inspect()))


def _train_in_folder(spec: RunSpec, results: Path, track: str | None, look: bool) -> None:
    from nibbler.studies.build import build_environment
    from nibbler.studies.live import LiveTable
    from nibbler.studies.runners import run_study
    from nibbler.studies.spec import Study
    from nibbler.studies.store import ResultsFolder

    study = Study("train", spec.id, (spec,), spec.label)
    with LiveTable(study) as table:
        outcome = run_study(study, results, workers=1, on_event=table, tracking=track)
    folder = ResultsFolder(results).run(spec)
    if outcome.failed:
        raise click.ClickException(outcome.failed[0].message or "the run failed")
    if not outcome.complete:
        raise KeyboardInterrupt("stopped; the same command goes on from here")
    result = folder.result()
    record = result.record or {}
    _summarise(spec, result.reward, record, record.get("steps_per_second"))
    click.echo(f"kept in {folder.path}")
    if look:
        from nibbler.engines.inspect import inspect_state

        click.echo(str(inspect_state(folder.state(), build_environment(spec.environment))))


def _summarise(spec: RunSpec, rewards: np.ndarray, record: dict[str, Any], speed: float | None) -> None:
    import numpy as np

    from nibbler.cli.output import sparkline
    from nibbler.studies.lines import random_line
    from nibbler.studies.metrics import (
        CurveSet,
        final_reward,
        format_estimate,
        format_quantity,
        timesteps_to_threshold,
    )

    curve = np.asarray(rewards, dtype=np.float64)
    curves = CurveSet(curve[None], spec.bin_size)
    window = 11 if len(curve) >= 33 else 1
    steps = timesteps_to_threshold(curves, window=window)
    click.echo(
        f"{spec.label}: {format_quantity(spec.steps)} steps on the {record.get('engine')} engine", nl=False
    )
    click.echo(f", {format_quantity(speed)} steps/s" if speed else "")
    click.echo(f"  reward     {sparkline(curve)}  {curve.min():+.3f} to {curve.max():+.3f}")
    line = random_line(spec.environment)
    click.echo(
        f"  at the end {final_reward(curves).value:+.4f} per step"
        + (f" (random policy {line:+.4f}, exact)" if line is not None else "")
    )
    reached = format_estimate(steps) + (" steps" if steps.reached else " steps (not reached)")
    click.echo(f"  above 0    {reached}" + (f", smoothed over {window} bins" if window > 1 else ""))
