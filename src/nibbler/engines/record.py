"""What a result must say about itself to be believed later: versions, machine, environment."""

import importlib.metadata
import os
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nibbler.mdp.environment import Environment

_PACKAGES = ("nibbler", "numpy", "numba", "scipy", "cupy-cuda12x", "cupy-cuda13x", "jax")


def machine_record() -> dict[str, Any]:
    """Versions of everything that can change a number, and the machine it ran on."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    machine = {
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        **({"gpu": gpu} if (gpu := _gpu()) else {}),
    }
    return {"versions": versions, "machine": machine}


def _gpu() -> str | None:
    """The first GPU's name, from its driver's files or from a CuPy that is in use; nothing is started."""
    try:
        for information in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
            for line in information.read_text(encoding="utf-8").splitlines():
                if line.startswith("Model:"):
                    return line.split(":", 1)[1].strip()
        if "cupy" in sys.modules:
            return str(sys.modules["cupy"].cuda.runtime.getDeviceProperties(0)["name"].decode())
    except Exception:  # no device, no driver, or a file that may not be read: then there is none to name
        return None
    return None


def jax_device() -> str:
    """The name of the GPU or processor that JAX computes on; asking starts JAX there."""
    import jax

    device = jax.devices()[0]
    return _processor() if device.platform == "cpu" else str(device.device_kind)


def _processor() -> str:
    """The processor's name; Linux keeps it in /proc, where platform.processor() is often empty."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
        return names[0] if names else platform.machine()
    except OSError:
        return platform.processor() or platform.machine()


def environment_record(env: "Environment", fingerprint: str) -> dict[str, Any]:
    """An environment in plain data: its size, and a fingerprint that is equal only for equal tables."""
    return {
        "num_components": env.num_components,
        "num_features": env.num_features,
        "num_actions": env.num_actions,
        "fingerprint": fingerprint,
    }
