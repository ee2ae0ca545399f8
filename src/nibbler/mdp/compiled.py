"""How the functions are compiled that simulate environments: small ones that loops absorb, and the loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])

# Without reference counts: Numba hands a tuple of arrays over field by field and counts references to each
# array with atomic operations. Around a step of a few boards that costs more than the step itself.
_UNCOUNTED: dict[str, Any] = {"cache": True, "_nrt": False}


def fused(function: Function) -> Function:
    """Compile a small function that allocates nothing, so that the compiled loops around it absorb it."""
    compiled: Function = njit(forceinline=True, **_UNCOUNTED)(function)
    return compiled


def loop(function: Function) -> Function:
    """Compile a loop that is called from Python and allocates nothing."""
    compiled: Function = njit(**_UNCOUNTED)(function)
    return compiled
