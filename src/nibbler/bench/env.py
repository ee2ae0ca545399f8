"""How many steps per second environments make, next to other implementations of catch.

Run by `nibbler bench env`, or as `python -m nibbler.bench.env`. Every number is the median of some repeats of
the whole measurement, taken in turns so that a slow moment of the machine falls on all of them. Loops of one
thread are timed by the processor time that they use, so that other work on the machine counts little; gymnax,
which uses all cores, by the clock on the wall.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nibbler.bench.record import rate_range, rate_summary, write_record
from nibbler.envs.multi_catch import multi_catch
from nibbler.mdp.environment import Environment
from nibbler.mdp.simulate import simulate_random, start

BOARDS = (1, 8, 32, 128, 1024)
BOARD_STEPS = 8_000_000  # of one measurement, whatever the number of boards

Row = dict[str, Any]
Measurement = Callable[[], float]  # runs once; returns steps per second


def run(
    boards: Sequence[int] = BOARDS,
    repeats: int = 5,
    board_steps: int = BOARD_STEPS,
    output: str | Path | None = None,
    echo: Callable[[str], Any] = print,
) -> list[Row]:
    """Measure steps per second under random actions; prints a table, and writes JSON where told.

    A row has the implementation, the number of boards, the median steps and board-steps per second, and the
    slowest and fastest repeat. bsuite's and gymnax's Catch are measured where they are installed.
    """
    if repeats < 1 or board_steps < 1 or not boards or min(boards) < 1:
        raise ValueError("boards, repeats and board_steps must be at least 1")
    measurements: list[tuple[str, int, Measurement]] = []
    for heterogeneous in (False, True):
        name = "nibbler, compiled loop" + (", heterogeneous" if heterogeneous else "")
        for count in boards:
            env = multi_catch(count, heterogeneous=heterogeneous)
            measurements.append((name, count, _compiled_loop(env, max(1, board_steps // count))))
    measurements.append(("nibbler, Gymnasium", 8, _gymnasium(8, max(1, board_steps // 800))))
    measurements.append(("nibbler, VectorEnv x64", 8, _vector(8, 64, max(1, board_steps // 6400))))
    if importlib.util.find_spec("bsuite") is not None:
        measurements.append(("bsuite Catch", 1, _bsuite(max(1, board_steps // 200))))
    if importlib.util.find_spec("gymnax") is not None:
        for count in (8, 1024):
            measurements.append(
                (f"gymnax Catch, jit, batch of {count}", count, _gymnax(count, board_steps // 8))
            )
    rates: list[list[float]] = [[] for _ in measurements]
    for _ in range(repeats):
        for rate, (_, _, measure) in zip(rates, measurements, strict=True):
            rate.append(measure())
    rows = [
        {
            "implementation": name,
            "boards": count,
            **rate_summary(rate),
            "board_steps_per_second": rate_summary(rate)["steps_per_second"] * count,
        }
        for rate, (name, count, _) in zip(rates, measurements, strict=True)
    ]
    for line in table(rows):
        echo(line)
    if output is not None:
        write_record("env", rows, output, repeats=repeats)
    return rows


def table(rows: Iterable[Row]) -> list[str]:
    """The rows as lines of a Markdown table."""
    lines = [
        "| implementation | boards | steps/s | board-steps/s | slowest to fastest repeat |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        lines.append(
            f"| {row['implementation']} | {row['boards']:,} | {row['steps_per_second']:,.0f} "
            f"| {row['board_steps_per_second']:,.0f} | {rate_range(row)} |"
        )
    return lines


def _compiled_loop(env: Environment, steps: int) -> Measurement:
    """The random policy in one compiled loop: the cost that an engine fuses with an agent."""
    states = np.zeros(env.num_components, dtype=np.int32)
    active = np.zeros(env.max_active, dtype=np.int32)
    start(env.tables, states, 0)
    simulate_random(env.tables, states, 0, 0, 1, active)  # compiles

    def measure() -> float:
        begin = time.process_time()
        simulate_random(env.tables, states, 0, 0, steps, active)
        return steps / (time.process_time() - begin)

    return measure


def _gymnasium(boards: int, steps: int) -> Measurement:
    """One environment through Gymnasium's interface, a Python call and a dense observation per step."""
    from nibbler.envs.gymnasium_env import MultiCatchEnv

    env = MultiCatchEnv(boards)
    actions = np.random.default_rng(0).integers(3, size=steps).tolist()
    env.reset(seed=0)
    env.step(0)

    def measure() -> float:
        begin = time.process_time()
        for action in actions:
            env.step(action)
        return steps / (time.process_time() - begin)

    return measure


def _vector(boards: int, copies: int, steps: int) -> Measurement:
    """Copies through Gymnasium's vector interface; counts the steps of all copies."""
    from nibbler.envs.vector_env import MultiCatchVectorEnv

    env = MultiCatchVectorEnv(copies, boards)
    actions = np.random.default_rng(0).integers(3, size=(steps, copies))
    env.reset(seed=0)
    env.step(actions[0])

    def measure() -> float:
        begin = time.process_time()
        for action in actions:
            env.step(action)
        return steps * copies / (time.process_time() - begin)

    return measure


def _bsuite(steps: int) -> Measurement:
    """bsuite's episodic Catch, one board in Python."""
    from bsuite.environments.catch import Catch

    env = Catch(seed=0)
    actions = np.random.default_rng(0).integers(3, size=steps).tolist()
    env.reset()

    def measure() -> float:
        begin = time.process_time()
        for action in actions:
            env.step(action)
        return steps / (time.process_time() - begin)

    return measure


def _gymnax(boards: int, board_steps: int) -> Measurement:
    """gymnax's episodic Catch, a batch of boards in one jitted scan."""
    import gymnax
    import jax

    env, parameters = gymnax.make("Catch-bsuite")
    steps = max(1, board_steps // boards)

    def one_step(carry: Any, _: Any) -> Any:
        key, state = carry
        key, action_key, step_key = jax.random.split(key, 3)
        actions = jax.random.randint(action_key, (boards,), 0, 3)
        keys = jax.random.split(step_key, boards)
        _, state, reward, _, _ = jax.vmap(env.step, (0, 0, 0, None))(keys, state, actions, parameters)
        return (key, state), reward.sum()

    play = jax.jit(lambda key, state: jax.lax.scan(one_step, (key, state), None, length=steps))
    keys = jax.random.split(jax.random.PRNGKey(0), boards)
    _, state = jax.vmap(env.reset, (0, None))(keys, parameters)
    jax.block_until_ready(play(jax.random.PRNGKey(1), state))  # compiles

    def measure() -> float:
        begin = time.perf_counter()
        jax.block_until_ready(play(jax.random.PRNGKey(1), state))
        return steps / (time.perf_counter() - begin)

    return measure


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description="Steps per second of environments under random actions.")
    parser.add_argument("--boards", type=int, nargs="+", default=list(BOARDS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--board-steps", type=int, default=BOARD_STEPS, help="size of one measurement")
    parser.add_argument("--output", type=Path, help="JSON file to write, for example results/bench/env.json")
    arguments = parser.parse_args()
    run(arguments.boards, arguments.repeats, arguments.board_steps, arguments.output)


if __name__ == "__main__":
    main()
