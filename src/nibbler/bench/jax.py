"""How many steps per second Rainbow makes on JAX: one run, several packed, and a Python loop for comparison.

Run by `nibbler bench jax`, or as `python -m nibbler.bench.jax`. Rates are those of learning (an update
every four steps) with a replay of a million transitions, by the clock on the wall. Every number is the
median of some repeats taken in turns, after compilation.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from nibbler.agents.rainbow import RainbowConfig
from nibbler.bench.record import rate_range, rate_summary, write_record
from nibbler.engines.record import jax_device
from nibbler.envs.multi_catch import multi_catch
from nibbler.mdp.environment import Environment

BOARDS = (2, 8, 16)
PACKED = (2, 8, 16)  # runs side by side
PACKED_BOARDS = 8
CONFIG = RainbowConfig(min_replay=400)  # learns from early on: what is measured is learning

Row = dict[str, Any]
Measurement = Callable[[], float]  # runs once; returns steps per second, of all runs together


class Case(NamedTuple):
    """Something to measure."""

    loop: str  # "compiled" or "Python"
    boards: int
    runs: int


def run(
    boards: Sequence[int] = BOARDS,
    repeats: int = 3,
    packed: Sequence[int] = PACKED,
    packed_boards: int = PACKED_BOARDS,
    seconds: float = 1.5,
    output: str | Path | None = None,
    echo: Callable[[str], Any] = print,
    config: RainbowConfig = CONFIG,
) -> list[Row]:
    """Measure Rainbow's steps per second on JAX's default device; prints a table, and writes JSON where told.

    One run on each number of `boards`; on `packed_boards`, `packed` runs side by side and one in a Python
    loop. `seconds` is about how long one measurement takes.
    """
    if repeats < 1 or not boards or min(*boards, packed_boards) < 1 or min(packed, default=2) < 2:
        raise ValueError("boards and repeats must be at least 1, packed at least 2")
    if seconds <= 0:
        raise ValueError(f"seconds={seconds}; a measurement must last longer")
    from nibbler.engines.jax.versions import require_jax

    require_jax()
    import jax

    cases = [Case("compiled", count, 1) for count in boards]
    cases += [Case("compiled", packed_boards, runs) for runs in packed]
    with ThreadPoolExecutor(len(cases)) as together:  # most of the time goes into compiling
        measurements = list(together.map(lambda case: _compiled_loop(case, config, seconds), cases))
    cases.append(Case("Python", packed_boards, 1))
    measurements.append(_python_loop(multi_catch(packed_boards), config, seconds))
    rates: list[list[float]] = [[] for _ in cases]
    for _ in range(repeats):
        for rate, measure in zip(rates, measurements, strict=True):
            rate.append(measure())
    rows = [
        {
            **case._asdict(),
            "device": jax_device(),
            **rate_summary(rate),
        }
        for case, rate in zip(cases, rates, strict=True)
    ]
    for line in table(rows):
        echo(line)
    if output is not None:
        settings = {"replay_capacity": config.replay_capacity, "xla_flags": os.environ.get("XLA_FLAGS", "")}
        write_record("jax", rows, output, jax=jax.__version__, repeats=repeats, **settings)
    return rows


def table(rows: Sequence[Row]) -> list[str]:
    """The rows as lines of a Markdown table; steps are those of all runs together."""
    lines = [
        "| Rainbow's loop | boards | runs | device | steps/s | slowest to fastest repeat |",
        "| --- | ---: | ---: | --- | ---: | ---: |",
    ]
    for row in rows:
        lines.append(
            f"| {row['loop']} | {row['boards']} | {row['runs']} | {row['device']} "
            f"| {row['steps_per_second']:,.0f} | {rate_range(row)} |"
        )
    return lines


def _timed(advance: Callable[[int], Any], seconds: float) -> Measurement:
    """Steps per second of `advance(steps)`, called for about that long."""
    block = 40  # steps; a multiple of learn_period
    pace = 0.0

    def measure() -> float:
        nonlocal pace
        if pace == 0.0:
            pace = _rate(advance, block)
        steps = max(1, round(pace * seconds / block)) * block
        pace = _rate(advance, steps)
        return pace

    return measure


def _rate(advance: Callable[[int], Any], steps: int) -> float:
    began = time.perf_counter()
    advance(steps)
    return steps / (time.perf_counter() - began)


def _compiled_loop(case: Case, config: RainbowConfig, seconds: float) -> Measurement:
    """The loop that `train` and the studies use, with one run or several."""
    from nibbler.engines.jax import open_packed_runs

    env = multi_catch(case.boards)
    packed = open_packed_runs([(env, config, seed) for seed in range(case.runs)])
    packed.advance_bins(1, config.first_update + config.learn_period)  # compiles
    measure = _timed(lambda steps: packed.advance_bins(1, steps), seconds)
    return lambda: case.runs * measure()


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
    return _timed(advance, seconds)


def main() -> None:
    """`python -m nibbler.bench.jax`."""
    parser = argparse.ArgumentParser(description="Measure how fast Rainbow runs on JAX here.")
    parser.add_argument("--boards", type=int, nargs="+", default=BOARDS)
    parser.add_argument("--packed", type=int, nargs="*", default=PACKED, help="runs side by side")
    parser.add_argument("--packed-boards", type=int, default=PACKED_BOARDS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5, help="of one measurement")
    parser.add_argument("--output", type=Path, default=None, help="write the rows there as JSON")
    run(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
