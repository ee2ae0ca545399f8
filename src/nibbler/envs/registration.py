"""Makes the environments known to Gymnasium, without importing what they need."""

from __future__ import annotations


def register() -> None:
    """Register `nibbler/MultiCatch-v0` and `nibbler/EpisodicCatch-v0` with Gymnasium; harmless when repeated.

    `import nibbler` calls this, and so does the `gymnasium.envs` entry point in the versions of Gymnasium
    that load plugins; in others `gymnasium.make("nibbler:nibbler/MultiCatch-v0")` imports the package itself.
    """
    # Imported here, so that a plugin loader can import this module in the middle of `import gymnasium`.
    from gymnasium.envs import registration

    for name, single, vector in (
        ("nibbler/MultiCatch-v0", "MultiCatchEnv", "MultiCatchVectorEnv"),
        ("nibbler/EpisodicCatch-v0", "EpisodicCatchEnv", "EpisodicCatchVectorEnv"),
    ):
        if name not in registration.registry:
            registration.register(
                id=name,
                entry_point=f"nibbler.envs.gymnasium_env:{single}",
                vector_entry_point=f"nibbler.envs.vector_env:{vector}",
            )
