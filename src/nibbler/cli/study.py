"""`nibbler study`: list, show, run, status and keep; a study's name alone runs it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nibbler.cli.options import engine_option, names, runner_names, study_names, track_option

if TYPE_CHECKING:
    from nibbler.studies.events import Outcome
    from nibbler.studies.spec import RunSpec, Study

SIZES = ("smoke", "laptop", "paper")
results_option = click.option(
    "--results",
    type=click.Path(path_type=Path),
    default=Path("results"),
    help="Folder of all results; studies share runs in it.",
)


class StudyGroup(click.Group):
    """`nibbler study NAME ...` is short for `nibbler study run NAME ...`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["run", *args]
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        found = super().shell_complete(ctx, incomplete)
        return found + names(study_names)(ctx, click.Argument(["name"]), incomplete)


@click.group(cls=StudyGroup, context_settings={"show_default": True})
def study() -> None:
    """Run a whole study and read it. `nibbler study NAME` runs the study of that name.

    A study is a list of runs that share a results folder. Stop it with Ctrl-C (or lose the machine) and give
    the same command again: finished runs are skipped, broken-off ones resume from their checkpoint.

    \b
    Examples:
      nibbler study list                          what there is
      nibbler study quickstart                    three minutes: Nibbler and the baselines on 2 and 4 boards
      nibbler study show inputs                   what it runs, what the paper claims
      nibbler study scaling --size laptop --results out
      nibbler study curves --size paper --runner ray --address auto
      nibbler study run my-study.toml             your own
      nibbler study status --results out
      nibbler study keep out results/paper        a small copy, for a repository
    """


@study.command("list")
def list_studies() -> None:
    """List the studies that come with Nibbler."""
    from nibbler.studies.paper import STUDIES

    for name, entry in STUDIES.items():
        sizes = ", ".join(f"{size} {len(entry.study(size).runs)}" for size in entry.sizes)
        click.echo(f"{click.style(name.ljust(14), bold=True)} {entry.title}")
        click.echo(f"{'':14} runs: {sizes}")


@study.command("show")
@click.argument("name", shell_complete=names(study_names))
@click.option("--size", type=click.Choice(SIZES), default=None, help="Show the runs of this size.")
@click.option("--format", "form", type=click.Choice(["text", "json", "toml"]), default="text")
def show(name: str, size: str | None, form: str) -> None:
    """Show what a study runs and which of the paper's claims it bears on.

    \b
    Examples:
      nibbler study show q-sweep
      nibbler study show curves --size laptop --format toml > mine.toml    a start for your own
    """
    from nibbler.studies.claims import CLAIMS
    from nibbler.studies.metrics import format_quantity
    from nibbler.studies.paper import paper_study

    entry = paper_study(name)
    if form != "text":
        chosen = entry.study(size or _default_size(entry.sizes))
        click.echo(chosen.to_json() if form == "json" else chosen.to_toml(), nl=False)
        return
    click.secho(f"{entry.name}: {entry.title}", bold=True)
    click.echo(f"Paper: {entry.source}.")
    click.echo(f"Runs:  {entry.grid}")
    for each in entry.sizes if size is None else (size,):
        specs = entry.study(each).runs
        total = format_quantity(sum(spec.steps for spec in specs))
        click.echo(f"  {each:7} {len(specs):4} runs, {total} steps in all")
        if size is not None:
            _print_specs(specs)
    claims = CLAIMS.get(name, ())
    if claims:
        click.echo("Claims it checks:")
    for claim in claims:
        click.echo(f"  - {claim.text} ({claim.source})")
    click.echo(f"Run it: nibbler study {name} --size {_default_size(entry.sizes)}")


def _print_specs(specs: tuple[RunSpec, ...]) -> None:
    from nibbler.studies.metrics import format_quantity

    for spec in specs:
        extra = ", ".join(f"{k}={v}" for k, v in spec.agent.items() if k != "name")
        click.echo(
            f"    {spec.label:48} {format_quantity(spec.steps):>7} steps  {spec.engine}  {extra}".rstrip()
        )


def _default_size(sizes: tuple[str, ...]) -> str:
    return "laptop" if "laptop" in sizes else sizes[0]


@study.command("run")
@click.argument("name", shell_complete=names(study_names))
@click.option("--size", type=click.Choice(SIZES), default=None, help="How large; laptop unless told.")
@results_option
@click.option(
    "--runner", default="local", shell_complete=names(runner_names), help="local, ray (a cluster), or gpu."
)
@click.option("--address", default=None, help="Ray cluster, such as auto or ray://host:10001.")
@click.option("--workers", type=click.IntRange(1), default=None, help="Runs at once; all cores unless told.")
@engine_option
@track_option
@click.option("--report/--no-report", "with_report", default=True, help="Write the page at the end.")
def run(
    name: str,
    size: str | None,
    results: Path,
    runner: str,
    address: str | None,
    workers: int | None,
    engine: str | None,
    track: str | None,
    with_report: bool,
) -> None:
    """Run a study by name or from a .toml/.json file; run it again to resume.

    \b
    Examples:
      nibbler study run quickstart
      nibbler study run curves --size smoke --workers 2
      nibbler study run my-study.toml --results out --track tensorboard
    """
    from nibbler.studies.live import LiveTable
    from nibbler.studies.runners import run_study

    chosen = prepare(find_study(name, size), engine)
    options: dict[str, Any] = {} if address is None else {"address": address}
    with LiveTable(chosen) as table:
        outcome = run_study(
            chosen, results, runner=runner, workers=workers, on_event=table, tracking=track, **options
        )
    print_results(results, chosen)
    if with_report:
        from nibbler.reports.report import write_report

        click.echo(f"\nreport: {write_report(results)}")
    _end(outcome)


def find_study(name: str, size: str | None) -> Study:
    """A study of ours by name, or one from a file."""
    from nibbler.studies.paper import paper_study
    from nibbler.studies.spec import Study

    if name.endswith((".toml", ".json")):
        if size is not None:
            raise click.UsageError("a study from a file has one size; leave out --size")
        return Study.read(name)
    entry = paper_study(name)
    return entry.study(size or _default_size(entry.sizes))


def prepare(study: Study, engine: str | None) -> Study:
    """The study on the engine asked for, without the runs whose packages are missing here."""
    from nibbler.studies.spec import Study

    specs = list(study.runs)
    if engine is not None:
        specs = [spec.replace(engine=engine) if _runs_on(spec, engine) else spec for spec in specs]
    if importlib.util.find_spec("jax") is None:
        kept = [spec for spec in specs if spec.engine != "jax"]
        if len(kept) < len(specs):
            missing = len(specs) - len(kept)
            click.echo(f"leaving out {missing} runs that need JAX: pip install 'nibbler[jax]'", err=True)
        specs = kept
    return Study(study.name, study.size, tuple(specs), study.description, study.reading)


def _runs_on(spec: RunSpec, engine: str) -> bool:
    from nibbler.engines.run import engine_module

    if engine == "auto":
        return True
    name = spec.agent.get("name")
    return name is None or name in engine_module(engine).AGENTS


def print_results(results: Path, study: Study) -> None:
    """The summary table and the claims, as far as there are results."""
    from nibbler.cli.output import print_table, print_verdicts
    from nibbler.reports.tables import summary_table
    from nibbler.studies.claims import verdicts
    from nibbler.studies.reading import read_study

    read = read_study(results, study)
    if not read.measured:
        return
    click.echo()
    print_table(summary_table(read, brief=True))
    smoothing = "" if read.window == 1 else f"; smoothed over {read.window} bins"
    click.secho(f"'> x' was not reached in x steps; (a to b) is 95% over seeds{smoothing}", dim=True)
    found = verdicts(read)
    if found:
        click.echo()
        print_verdicts(found)


def _end(outcome: Outcome) -> None:
    if outcome.interrupted:
        raise KeyboardInterrupt("stopped and saved; the same command goes on from here")
    if outcome.failed:
        first = outcome.failed[0]
        more = f" (and {len(outcome.failed) - 1} more)" if len(outcome.failed) > 1 else ""
        raise click.ClickException(f"{first.label} failed: {first.message}{more}")
    elsewhere = outcome.of_kind("elsewhere")
    if elsewhere:
        raise click.ClickException(f"{len(elsewhere)} runs are being worked on by another process")


@study.command("status")
@click.argument("name", required=False, shell_complete=names(study_names))
@results_option
@click.option("--runs", "each", is_flag=True, help="One line per run.")
def status(name: str | None, results: Path, each: bool) -> None:
    """Show how far the studies of a results folder are.

    \b
    Examples:
      nibbler study status
      nibbler study status scaling --results out --runs
    """
    from nibbler.cli.output import print_table
    from nibbler.reports.tables import TextTable
    from nibbler.studies.store import ResultsFolder

    folder = ResultsFolder(results)
    found = [s for s in folder.studies() if name is None or s.name == name]
    if not found:
        wanted = f" {name!r}" if name else ""
        raise click.UsageError(f"{results} holds no study{wanted}; `nibbler study run` makes one")
    states = ("finished", "running", "stopped", "failed", "waiting")
    rows = []
    for entry in found:
        statuses = folder.statuses(entry)
        counts = [sum(s.state == state for s in statuses) for state in states]
        share = sum(s.step for s in statuses) / sum(s.steps for s in statuses)
        rows.append([f"{entry.name} ({entry.size})", f"{share:.0%}", *map(str, counts)])
    print_table(TextTable(["study", "steps done", *states], rows))
    if not each:
        return
    for entry in found:
        click.secho(f"\n{entry.name} ({entry.size})", bold=True)
        for spec, run_status in zip(entry.runs, folder.statuses(entry), strict=True):
            note = run_status.error or (f"{run_status.reward:+.4f}" if run_status.reward is not None else "")
            click.echo(
                f"  {spec.label:48} {run_status.state:9} {run_status.step / run_status.steps:4.0%}  {note}"
            )


@study.command("keep")
@click.argument("source", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("target", type=click.Path(path_type=Path, file_okay=False))
@click.option("--prune", is_flag=True, help="Remove runs from TARGET that no study lists any more.")
def keep(source: Path, target: Path, prune: bool) -> None:
    """Copy what is worth keeping of the results in SOURCE into TARGET, merging with what is there.

    Curves, specs and records are kept, and the selections of one seed per setting; checkpoints, locks and
    progress are not. Finished runs in TARGET are never replaced, unfinished ones only by longer ones. TARGET
    goes on listing what its studies once had (a run with fewer steps, say); --prune forgets that.

    \b
    Examples:
      nibbler study keep results results/paper          safe to give again while runs go on
      nibbler study keep --prune results results/paper  and only what the studies list now
    """
    from nibbler.studies.keep import keep_results

    kept = keep_results(source, target, prune)
    click.echo(
        f"{target}: {kept.copied} runs copied ({kept.unfinished} of them unfinished), {kept.unchanged} were "
        f"there already, {kept.empty} have no curve yet" + (f", {kept.pruned} removed" if prune else "")
    )
