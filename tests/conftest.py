"""Settings that all tests share."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# No deadline, because the first call of a compiled function includes its compilation; the same examples each
# time, so that a failure is never a matter of luck.
settings.register_profile(
    "nibbler",
    deadline=None,
    derandomize=True,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("nibbler")
