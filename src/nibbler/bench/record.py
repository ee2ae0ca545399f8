"""A benchmark's rows as a file, with what they were measured on."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def rate_summary(rates: Sequence[float]) -> dict[str, float]:
    """What a row says of repeated measurements in steps per second: the median, and the range."""
    return {"steps_per_second": statistics.median(rates), "slowest": min(rates), "fastest": max(rates)}


def rate_range(row: Mapping[str, Any]) -> str:
    """The range of the repeats, for a table."""
    return f"{row['slowest']:,.0f} to {row['fastest']:,.0f}"


def write_record(benchmark: str, rows: Sequence[Mapping[str, Any]], path: str | Path, **more: Any) -> None:
    """Write the rows as JSON; `more` says what else matters, such as the device or the number of repeats."""
    from nibbler import __version__

    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {
        "benchmark": benchmark,
        "nibbler": __version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        **more,
        "rows": list(rows),
    }
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(record, indent=2) + "\n")
    temporary.replace(path)
