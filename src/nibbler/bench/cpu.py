"""How many steps per second the CPU engine makes, next to the dense reference.

Run by `nibbler bench cpu`, or as `python -m nibbler.bench.cpu`. One core; timed by the processor time that
is used, so that other work on the machine counts little. Every number is the median of some repeats, taken
in turns.

Nibbler is measured twice. *Early*: from step 2,000 on, while selections churn. *Settled*: with the
selections that a run ends with, which would take tens of millions of steps to reach and are put in place
instead: two questions per component, about its last two features (the plus and minus of a catch board), that
see all of its features and some others, with linear weights that keep them selected.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nibbler.agents.config import AgentConfig, NibblerConfig, QLearningConfig, QVLearningConfig
from nibbler.bench.record import rate_range, rate_summary, write_record
from nibbler.engines.run import Run, open_run
from nibbler.envs.multi_catch import multi_catch
from nibbler.mdp.environment import Environment

BOARDS = (2, 8, 32, 128)
EARLY = 2_000
LARGEST_REFERENCE = 32  # boards; beyond that the dense reference takes seconds per step

Row = dict[str, Any]


def run(
    boards: Sequence[int] = BOARDS,
    repeats: int = 5,
    seconds: float = 1.0,
    output: str | Path | None = None,
    echo: Callable[[str], Any] = print,
    units: int | None = None,
) -> list[Row]:
    """Measure steps per second of processor time; prints a table, and writes JSON where told.

    `seconds` is about how long one measurement takes. With `units`, Q- and QV-learning alone, with that many
    hidden units, on this engine.
    """
    if repeats < 1 or not boards or min(boards) < 1 or seconds <= 0:
        raise ValueError("boards and repeats must be at least 1, and seconds above 0")
    rows: list[Row] = []
    for line in table([]):
        echo(line)
    for count in boards:
        env = multi_catch(count)
        if units is None:
            measurements = list(_measurements(env, count))
        else:
            measurements = list(_network_measurements(env, _networks(hidden_units=units)))
        lengths = [_calibrate(opened, seconds) for _, _, _, opened in measurements]
        rates: list[list[float]] = [[] for _ in measurements]
        for _ in range(repeats):
            for rate, steps, (_, _, _, opened) in zip(rates, lengths, measurements, strict=True):
                rate.append(_rate(opened, steps))
        for rate, (agent, engine, phase, _) in zip(rates, measurements, strict=True):
            rows.append(
                {
                    "agent": agent,
                    "boards": count,
                    "engine": engine,
                    "phase": phase,
                    **rate_summary(rate),
                }
            )
            echo(table(rows[-1:])[-1])
    if output is not None:
        about = {} if units is None else {"hidden_units": units}
        write_record("cpu", rows, output, repeats=repeats, timed_by="processor time of one thread", **about)
    return rows


def table(rows: Iterable[Row]) -> list[str]:
    """The rows as lines of a Markdown table."""
    lines = [
        "| agent | boards | engine | phase | steps/s | slowest to fastest repeat |",
        "| --- | ---: | --- | --- | ---: | ---: |",
    ]
    for row in rows:
        lines.append(
            f"| {row['agent']} | {row['boards']} | {row['engine']} | {row['phase']} | "
            f"{row['steps_per_second']:,.0f} | {rate_range(row)} |"
        )
    return lines


def _measurements(env: Environment, boards: int) -> Iterable[tuple[str, str, str, Run]]:
    """What is measured on one environment: agent, engine, phase, and the run to time."""
    config = NibblerConfig.for_boards(boards, env.num_features)
    early = open_run(env, config, 0, "cpu")
    early.advance(EARLY)
    settled = open_run(env, config, 0, "cpu")
    settled.restore(placed_state(env, config, settled.state()))
    settled.advance(EARLY)
    yield config.name, "cpu", "early", early
    yield config.name, "cpu", "settled", settled
    yield from _network_measurements(env, _networks())
    if boards <= LARGEST_REFERENCE:
        for each in (config, *_networks()):
            yield each.name, "reference", "", open_run(env, each, 0, "reference")


def _networks(**settings: Any) -> tuple[AgentConfig, ...]:
    return (QLearningConfig(**settings), QVLearningConfig(**settings))


def _network_measurements(
    env: Environment, networks: Iterable[AgentConfig]
) -> Iterable[tuple[str, str, str, Run]]:
    for network in networks:
        opened = open_run(env, network, 0, "cpu")
        opened.advance(EARLY)
        yield network.name, "cpu", "", opened


def placed_state(
    env: Environment, config: NibblerConfig, state: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """A run's state with its selections put where a long run ends: every question sees its own component."""
    random = np.random.default_rng(0)
    owner = env.component_of_feature
    questions, inputs = state["inputs"].shape
    cumulants = np.empty(questions, dtype=np.int32)
    selected = np.empty((questions, inputs), dtype=np.int32)
    support = random.uniform(0.0, 1e-4, size=state["support"].shape)
    order = np.argsort(env.permutation)  # joint index of every observed feature
    for question in range(questions):
        component = question // 2 % env.num_components
        own = np.flatnonzero(owner == component)
        own = own[np.argsort(order[own])]  # in the order of the component's own features
        cumulants[question] = own[-1 - question % 2]
        others = random.permutation(np.flatnonzero(owner != component))
        chosen = np.concatenate([own, others])[:inputs]
        selected[question] = chosen
        support[question, chosen] = random.uniform(0.5, 1.0, size=inputs)
    discovery = np.zeros(env.num_features)
    discovery[cumulants] = 1.0
    placed: dict[str, np.ndarray] = {
        "cumulants": cumulants,
        "inputs": selected,
        "support": support,
        "discovery": discovery,
    }
    return {**state, **{name: value.astype(state[name].dtype) for name, value in placed.items()}}


def _rate(opened: Run, steps: int) -> float:
    begin = time.process_time()
    opened.advance(steps)
    return steps / max(time.process_time() - begin, 1e-9)


def _calibrate(opened: Run, seconds: float) -> int:
    """How many steps take about that long; the first call may compile."""
    opened.advance(2)
    return max(2, int(seconds * _rate(opened, 20)))


def main() -> None:
    """The command line of `python -m nibbler.bench.cpu`."""
    parser = argparse.ArgumentParser(description="Measure how fast the CPU engine is here.")
    parser.add_argument("--boards", type=int, nargs="+", default=list(BOARDS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of one measurement")
    parser.add_argument("--output", type=Path, help="write the rows as JSON, e.g. results/bench/cpu.json")
    parser.add_argument("--units", type=int, help="Q- and QV-learning alone, with that many hidden units")
    given = parser.parse_args()
    run(given.boards, given.repeats, given.seconds, given.output, units=given.units)


if __name__ == "__main__":
    main()
