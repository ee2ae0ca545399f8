"""Refuse a missing or faulty JAX with one clear line before anything is compiled."""

from importlib import metadata

# Releases whose regressions fail Rainbow's tests; the metadata of the extra `jax` leaves them out too.
FAULTY = ("0.10.2", "0.11.0", "0.11.1")
OLDEST = (0, 10, 1)


def check_version(version: str) -> None:
    """Raise an ImportError if this JAX release cannot be used, saying which one to install."""
    if version in FAULTY:
        raise ImportError(
            f"jax {version} is faulty; install another release: pip install 'nibbler[jax]' leaves out "
            f"{', '.join(FAULTY)}"
        )
    numbers = tuple(int(part) for part in version.split(".")[:3] if part.isdigit())
    if numbers < OLDEST:
        raise ImportError(
            f"jax {version} is older than {'.'.join(map(str, OLDEST))}; pip install 'nibbler[jax]' gets one"
            " that works"
        )


def require_jax() -> None:
    """Raise an ImportError unless a JAX release that works is installed."""
    try:
        version = metadata.version("jax")
    except metadata.PackageNotFoundError:
        raise ImportError("this needs JAX: pip install 'nibbler[jax]'") from None
    check_version(version)
