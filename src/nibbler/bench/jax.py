"""How many steps per second Rainbow makes on JAX: one run, several packed, and a Python loop for comparison.

Run by `nibbler bench jax`, or as `python -m nibbler.bench.jax`. Rates are those of learning (an update
every four steps) with a replay of a million transitions. Every number is the median of some repeats taken
in turns, after compilation.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nibbler.agents.rainbow import RainbowConfig
from nibbler.bench.record import jax_device, write_record
from nibbler.envs.multi_catch import multi_catch
from nibbler.mdp.environment import Environment

BOARDS = (2, 8, 32)
PACKED = (4,)
CONFIG = RainbowConfig(min_replay=400)  # learns from early on: what is measured is learning

Row = dict[str, Any]
Measurement = Callable[[], float]  # runs once; returns steps per second, of all runs together


def run(
    boards: Sequence[int] = BOARDS,
    repeats: int = 3,
    packed: Sequence[int] = PACKED,
    seconds: float = 2.0,
    output: str | Path | None = None,
    echo: Callable[[str], Any] = print,
    config: RainbowConfig = CONFIG,
) -> list[Row]:
    """Measure Rainbow's steps per second on JAX's default device; prints a table, and writes JSON where told.

    `packed` lists how many runs to put side by side; `seconds` is about how long one measurement takes.
    """
    if repeats < 1 or not boards or min(boards) < 1 or min(packed, default=2) < 2 or seconds <= 0:
        raise ValueError("boards and repeats must be at least 1, packed at least 2, seconds above 0")
    from nibbler.engines.jax.versions import require_jax

    require_jax()
    import jax

    device = jax_device()
    rows = []
    for count in boards:
        env = multi_catch(count)
        measurements: dict[str, Measurement] = {
            "one run, compiled loop": _compiled_loop(env, config, 1, seconds),
            "one run, Python loop": _python_loop(env, config, seconds),
        }
        for runs in packed:
            measurements[f"{runs} runs packed, all together"] = _compiled_loop(env, config, runs, seconds)
        rates: dict[str, list[float]] = {name: [] for name in measurements}
        for _ in range(repeats):
            for name, measure in measurements.items():
                rates[name].append(measure())
        for name, rate in rates.items():
            rows.append(
                {
                    "implementation": name,
                    "boards": count,
                    "device": device,
                    "steps_per_second": statistics.median(rate),
                    "slowest": min(rate),
                    "fastest": max(rate),
                }
            )
        for line in table(rows[-len(rates) :], header=len(rows) == len(rates)):
            echo(line)
    if output is not None:
        write_record("jax", rows, output, jax=jax.__version__, repeats=repeats)
    return rows


def table(rows: Sequence[Row], header: bool = True) -> list[str]:
    """The rows as lines of a Markdown table."""
    lines = []
    if header:
        lines = [
            "| Rainbow | boards | device | steps/s | slowest to fastest repeat |",
            "| --- | ---: | --- | ---: | ---: |",
        ]
    for row in rows:
        lines.append(
            f"| {row['implementation']} | {row['boards']} | {row['device']} | {row['steps_per_second']:,.0f} "
            f"| {row['slowest']:,.0f} to {row['fastest']:,.0f} |"
        )
    return lines


def _timed(advance: Callable[[int], Any], seconds: float, block: int) -> Measurement:
    """Steps per second of `advance(steps)`, called with as many whole blocks as take about that long."""
    pace = 0.0

    def measure() -> float:
        nonlocal pace
        steps = max(1, round(pace * seconds / block)) * block
        began = time.perf_counter()
        advance(steps)
        pace = steps / (time.perf_counter() - began)
        return pace

    measure()  # finds the pace, once compiled
    return measure


def _compiled_loop(env: Environment, config: RainbowConfig, runs: int, seconds: float) -> Measurement:
    """The loop that `train` uses, with one run or several."""
    from nibbler.engines.jax import open_packed_runs

    packed = open_packed_runs([(env, config, seed) for seed in range(runs)])
    packed.advance_bins(1, config.first_update + config.learn_period)  # compiles
    measure = _timed(lambda steps: packed.advance_bins(1, steps), seconds, 40)
    return lambda: runs * measure()


def _python_loop(env: Environment, config: RainbowConfig, seconds: float) -> Measurement:
    """The same compiled step and update, called from Python as loops around an environment usually do.

    The host waits for every action, as it must where the environment is its own.
    """
    import jax.numpy as jnp

    from nibbler.engines.jax.environment import load_tables
    from nibbler.engines.jax.philox import split_seed
    from nibbler.engines.jax.rainbow import Run, compile_loop, scalars_of, shape_of

    tables, sizes = load_tables(env)
    programs = compile_loop(shape_of(config), sizes, False)
    fixed = Run(tables, scalars_of(config), jnp.asarray(split_seed(0)))
    state = programs.init(fixed)
    done = 0

    def advance(steps: int) -> None:
        nonlocal state, done
        for step in range(done, done + steps):
            state, _ = programs.steps(state, fixed, jnp.uint32(step), jnp.uint32(1))
            int(state.action)
            if (step + 1) % config.learn_period == 0 and step + 1 >= config.first_update:
                state = programs.learn(state, fixed, jnp.uint32(step + 1))
        done += steps

    advance(config.first_update + config.learn_period)  # compiles
    return _timed(advance, seconds, 40)


def main() -> None:
    """`python -m nibbler.bench.jax`."""
    parser = argparse.ArgumentParser(description="Measure how fast Rainbow runs on JAX here.")
    parser.add_argument("--boards", type=int, nargs="+", default=BOARDS)
    parser.add_argument("--packed", type=int, nargs="*", default=PACKED, help="runs side by side")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--output", type=Path, default=None, help="write the rows there as JSON")
    given = parser.parse_args()
    run(given.boards, given.repeats, given.packed, given.seconds, given.output)


if __name__ == "__main__":
    main()
