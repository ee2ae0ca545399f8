"""Rainbow, and environments as pure functions, on JAX; CPU or GPU, whichever JAX is installed for."""

from nibbler.engines.jax.versions import require_jax

require_jax()

from nibbler.engines.jax.environment import FunctionalEnvironment  # noqa: E402
from nibbler.engines.jax.gymnax_adapter import GymnaxEnvironment  # noqa: E402
from nibbler.engines.jax.runs import (  # noqa: E402
    PackedRainbowRuns,
    RainbowRun,
    open_packed_runs,
    open_run,
    room_for,
    shape_key,
)

AGENTS = frozenset({"rainbow"})

__all__ = [
    "AGENTS",
    "FunctionalEnvironment",
    "GymnaxEnvironment",
    "PackedRainbowRuns",
    "RainbowRun",
    "open_packed_runs",
    "open_run",
    "room_for",
    "shape_key",
]
