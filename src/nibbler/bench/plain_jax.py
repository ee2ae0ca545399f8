"""How many steps per second a plain, dense JAX Nibbler makes: what the engines are compared with.

Run by `nibbler bench plain-jax`, or as `python -m nibbler.bench.plain_jax`. One run of `PlainNibbler` on
JAX's default device. Every number is the median of some repeats after compilation; a dense step costs the
same early and late in a run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nibbler.agents.config import NibblerConfig
from nibbler.bench.record import rate_range, rate_summary, write_record
from nibbler.engines.record import jax_device
from nibbler.envs.multi_catch import multi_catch

BOARDS = (2, 8, 32, 128)
CHUNK = 200  # steps of one compiled call

Row = dict[str, Any]


def run(
    boards: Sequence[int] = BOARDS,
    repeats: int = 3,
    seconds: float = 1.0,
    output: str | Path | None = None,
    echo: Callable[[str], Any] = print,
) -> list[Row]:
    """Measure steps per second; prints a table, and writes JSON where told.

    `seconds` is about how long one measurement takes.
    """
    if repeats < 1 or not boards or min(boards) < 1 or seconds <= 0:
        raise ValueError("boards and repeats must be at least 1, and seconds above 0")
    from nibbler.engines.jax.versions import require_jax

    require_jax()
    import jax

    device = jax_device()
    rows: list[Row] = []
    for line in table([]):
        echo(line)
    for count in boards:
        rates = _measure(count, repeats, seconds)
        rows.append(
            {
                "agent": "nibbler, plain JAX",
                "boards": count,
                "device": device,
                **rate_summary(rates),
            }
        )
        echo(table(rows[-1:])[-1])
    if output is not None:
        write_record("plain-jax", rows, output, jax=jax.__version__, repeats=repeats)
    return rows


def table(rows: Sequence[Row]) -> list[str]:
    """The rows as lines of a Markdown table."""
    lines = [
        "| agent | boards | device | steps/s | slowest to fastest repeat |",
        "| --- | ---: | --- | ---: | ---: |",
    ]
    for row in rows:
        lines.append(
            f"| {row['agent']} | {row['boards']} | {row['device']} | {row['steps_per_second']:,.0f} "
            f"| {rate_range(row)} |"
        )
    return lines


def _measure(boards: int, repeats: int, seconds: float) -> list[float]:
    """Steps per second of each repeat."""
    from nibbler.bench.plain_nibbler import PlainNibbler

    env = multi_catch(boards)
    opened = PlainNibbler(env, NibblerConfig.for_boards(boards, env.num_features), seed=0)
    opened.advance(CHUNK)  # compiles

    def rate(calls: int) -> float:
        began = time.perf_counter()
        for _ in range(calls):
            opened.advance(CHUNK)
        return calls * CHUNK / (time.perf_counter() - began)

    calls = max(1, round(seconds * rate(1) / CHUNK))
    return [rate(calls) for _ in range(repeats)]


def main() -> None:
    """The command line of `python -m nibbler.bench.plain_jax`."""
    parser = argparse.ArgumentParser(description="Measure how fast a plain, dense JAX Nibbler is here.")
    parser.add_argument("--boards", type=int, nargs="+", default=list(BOARDS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="of one measurement")
    parser.add_argument("--output", type=Path, help="write the rows there as JSON")
    given = parser.parse_args()
    run(given.boards, given.repeats, given.seconds, given.output)


if __name__ == "__main__":
    main()
