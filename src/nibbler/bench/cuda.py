"""How long a step takes on the GPU, for one run and for as many side by side as are worth it.

Run by `nibbler bench cuda`, or as `python -m nibbler.bench.cuda`. Times are the GPU's own, between two
events around some thousand steps, after compilation; each number is the median of some repeats. Nibbler is
measured twice: early, while selections still churn, and settled, with the selections that a run ends with
(they are put there, since reaching them takes millions of steps; `nibbler.bench.cpu` says how).

With an agent, units or layouts, one agent alone is measured, as many runs as work side by side, in the layout
that the engine chooses (`nibbler.engines.cuda.plan`) and in each that is given as changes to it.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from nibbler.agents.config import AgentConfig, NibblerConfig, QLearningConfig, QVLearningConfig
from nibbler.agents.registry import default_config
from nibbler.bench.cpu import placed_state
from nibbler.bench.record import write_record
from nibbler.engines.cuda import AGENTS
from nibbler.engines.cuda.plan import NetworkPlan, NibblerPlan, plan_network, plan_nibbler
from nibbler.envs.multi_catch import multi_catch

BOARDS = (2, 8, 32, 64, 128, 256, 512)
SWEEP = (32, 128)  # boards and runs of the sweep of Q-learning; large networks take what works side by side
EARLY = 2_000  # steps before a measurement

Row = dict[str, Any]


def run(
    boards: Sequence[int] = BOARDS,
    repeats: int = 5,
    output: str | Path | None = None,
    echo: Callable[[str], Any] = print,
    agent: str | None = None,
    units: int | None = None,
    layout: Sequence[str] = (),
) -> list[Row]:
    """Measure microseconds per step and steps per second; prints a table, and writes JSON where told.

    Each of `layout` is what changes in the one that the engine chooses, such as "main_warps=3,batch=8".
    """
    if repeats < 1 or not boards or min(boards) < 1:
        raise ValueError("boards and repeats must be at least 1")
    if units is not None and units < 1:
        raise ValueError("units must be at least 1")
    if agent is not None and agent not in AGENTS:
        raise ValueError(f"agent must be one of {', '.join(sorted(AGENTS))}, not {agent!r}")
    chosen = agent or "nibbler"
    for changes in layout:
        parse_layout(chosen, changes)  # before anything is measured
    from nibbler.engines.cuda.device import device_name, require_gpu

    require_gpu()
    rows: list[Row] = []
    for line in table([]):
        echo(line)

    def add(row: Row) -> None:
        rows.append(row)
        echo(table([row])[-1])
        if output is not None:  # after every row, so that nothing is lost
            write_record("cuda", rows, output, device=device_name(), repeats=repeats)

    for count in boards:
        if agent is not None or units is not None or layout:
            for row in _layouts(chosen, units, count, ["", *layout], repeats):
                add(row)
            continue
        for row in _nibbler(count, repeats):
            add(row)
        if count == SWEEP[0]:
            for config in (QLearningConfig(), QVLearningConfig(), QLearningConfig(hidden_units=4096)):
                add(_network(config, *SWEEP, repeats))
    return rows


def table(rows: Iterable[Row]) -> list[str]:
    """The rows as lines of a Markdown table."""
    lines = [
        "| agent | boards | runs side by side | phase | us per step | steps/s in all | MiB per run |",
        "| --- | ---: | ---: | --- | ---: | ---: | ---: |",
    ]
    for row in rows:
        lines.append(
            f"| {row['agent']} | {row['boards']} | {row['runs']} | {row['phase']} | "
            f"{row['microseconds_per_step']:.2f} | {row['steps_per_second']:,.0f} | "
            f"{row['mib_per_run']:.1f} |"
        )
    return lines


def _nibbler(boards: int, repeats: int) -> Iterable[Row]:
    """Nibbler alone and packed, early and after it has settled."""
    from nibbler.engines import cuda

    env, config = multi_catch(boards), NibblerConfig.for_boards(boards)
    alone = cuda.open_packed_runs([(env, config, 0)])
    start = alone.state(0)
    states = {"early": _advanced(alone, start), "settled": _advanced(alone, placed_state(env, config, start))}
    sizes = [alone]
    if alone.runs_side_by_side > 1:
        problems = [(env, config, seed) for seed in range(alone.runs_side_by_side)]
        sizes.append(cuda.open_packed_runs(problems))
    for packed in sizes:
        for phase, state in states.items():
            for index in range(len(packed.problems)):
                packed.restore(index, state)
            yield _row(packed, config, boards, phase, repeats)


def parse_layout(agent: str, layout: str) -> dict[str, int]:
    """Fields of a plan and their values, from "main_warps=3,batch=8"."""
    fields = {field.name for field in dataclasses.fields(NibblerPlan if agent == "nibbler" else NetworkPlan)}
    changes = {}
    for change in filter(None, layout.split(",")):
        name, _, value = change.partition("=")
        if name not in fields or not value.isdecimal():
            raise ValueError(
                f"{change!r} in layout {layout!r} is not FIELD=NUMBER; the fields of a layout of {agent} are "
                f"{', '.join(sorted(fields))}"
            )
        changes[name] = int(value)
    return changes


def _layouts(
    agent: str, units: int | None, boards: int, layouts: Sequence[str], repeats: int
) -> Iterable[Row]:
    """One agent in different layouts, as many runs as work side by side in each."""
    from nibbler.engines import cuda

    env = multi_catch(boards)
    settings = {} if units is None else {"hidden_units": units}
    config: Any = default_config(agent, boards, env.num_features, **settings)
    start = cuda.initial_state(env, config, 0)
    states = {"": start}
    plan: Any = plan_network(config, boards) if agent != "nibbler" else plan_nibbler(config, boards)
    if agent == "nibbler":
        states = {"early": start, "settled": placed_state(env, config, start)}

    def opened(layout: str, runs: int = 1) -> Any:
        changed = dataclasses.replace(plan, **parse_layout(agent, layout))
        packed = cuda.allocate([(env, config, seed) for seed in range(runs)], changed)
        if layout and packed.plan != changed:  # else its time would go by a wrong name
            raise ValueError(f"layout {layout!r} does not fit on this device; the nearest is {packed.plan}")
        return packed

    with ThreadPoolExecutor() as pool:  # compiles side by side
        sizes = [one.runs_side_by_side for one in pool.map(opened, layouts)]
    for layout, runs in zip(layouts, sizes, strict=True):
        packed = opened(layout, runs)
        for phase, state in states.items():
            for index in range(runs):
                packed.restore(index, state)
            packed.advance_bins(EARLY // 500, 500)
            row = _row(packed, config, boards, phase, repeats)
            if layout:
                row["agent"] += f" ({layout})"
            yield row


def _network(config: AgentConfig, boards: int, runs: int, repeats: int) -> Row:
    """A flat network, as many runs as a sweep has."""
    from nibbler.engines import cuda

    env = multi_catch(boards)
    together = min(runs, cuda.open_packed_runs([(env, config, 0)]).runs_side_by_side)
    packed = cuda.open_packed_runs([(env, config, seed) for seed in range(together)])
    packed.advance_bins(EARLY // 500, 500)
    return _row(packed, config, boards, "", repeats)


def _advanced(packed: Any, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What becomes of a state of the first run in some steps."""
    packed.restore(0, state)
    packed.advance_bins(EARLY // 500, 500)
    advanced: dict[str, np.ndarray] = packed.state(0)
    return advanced


def _row(packed: Any, config: AgentConfig, boards: int, phase: str, repeats: int) -> Row:
    from nibbler.engines.cuda.device import require_gpu

    cupy = require_gpu()
    packed.advance_bins(2, 500)
    steps = max(500, min(20_000, round(0.2 / packed.seconds_per_step)) // 500 * 500)
    times = []
    for _ in range(repeats):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        packed.advance_bins(steps // 500, 500)
        end.record()
        end.synchronize()
        times.append(cupy.cuda.get_elapsed_time(begin, end) * 1e3 / steps)
    microseconds = statistics.median(times)
    units = getattr(config, "hidden_units", 0)
    return {
        "agent": config.name if units == 256 else f"{config.name}, {units} units",
        "boards": boards,
        "runs": len(packed.problems),
        "phase": phase,
        "microseconds_per_step": microseconds,
        "fastest": min(times),
        "slowest": max(times),
        "steps_per_second": len(packed.problems) * 1e6 / microseconds,
        "mib_per_run": packed.bytes_per_run / 2**20,
        "layout": packed.report(),
    }


def main() -> None:
    """The command line of `python -m nibbler.bench.cuda`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--boards", type=int, nargs="+", default=list(BOARDS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path, help="write the rows as JSON, e.g. results/bench/cuda.json")
    parser.add_argument("--agent", choices=tuple(AGENTS), help="measure this one alone")
    parser.add_argument("--units", type=int, help="its hidden units")
    parser.add_argument("--layout", nargs="+", default=[], help="changes to its layout: main_warps=3,batch=8")
    run(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
