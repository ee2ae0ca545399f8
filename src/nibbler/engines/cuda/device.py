"""The GPU as the engine sees it: is there one, compiling a kernel for a problem's sizes, what fits on it."""

import functools
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from nibbler.engines.cuda.plan import Plan

REMEDY = (
    "install the extra that fits the driver, pip install 'nibbler[cuda13]' or 'nibbler[cuda12]', or use "
    "engine='cpu'"
)
LEAST_CAPABILITY = 80  # Ampere, the first that copies to shared memory in the background
RESERVED_PER_BLOCK = 1024  # bytes of shared memory that CUDA keeps for itself
SOURCES = {
    "nibbler_steps": (
        "ptx.cuh",
        "common.cuh",
        "environment.cuh",
        "mail.cuh",
        "selection.cuh",
        "rows.cuh",
        "nibbler_layout.cuh",
        "nibbler_support.cuh",
        "nibbler_questions.cuh",
        "nibbler_discovery.cuh",
        "nibbler_main.cuh",
        "nibbler.cu",
    ),
    "value_network_steps": (
        "ptx.cuh",
        "common.cuh",
        "environment.cuh",
        "mail.cuh",
        "rows.cuh",
        "network_rows.cuh",
        "value_network.cu",
    ),
}


class GpuMissingError(RuntimeError):
    """This machine has no GPU that the engine can use."""

    def __init__(self, why: str) -> None:
        self.lacks = f"engine='cuda' needs an NVIDIA GPU and CuPy ({why})"
        super().__init__(f"{self.lacks}; {REMEDY}")


def require_gpu() -> Any:
    """The cupy module, where there is a device to use; else an error that says what is missing."""
    try:
        import cupy
    except ImportError:
        raise GpuMissingError("CuPy is not installed") from None
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise GpuMissingError(f"CUDA says: {error}") from None
    if count == 0:
        raise GpuMissingError("CUDA sees no device")
    capability = str(cupy.cuda.Device().compute_capability)
    if int(capability) < LEAST_CAPABILITY:
        raise GpuMissingError(
            f"this one is of compute capability {capability}, and {LEAST_CAPABILITY} is needed"
        )
    return cupy


@dataclass(frozen=True)
class Kernel:
    """A compiled kernel, with the sizes that host and device must agree on."""

    function: Any
    threads: int
    shared_bytes: int  # with the pools of rows
    pool_rows: int  # slots for rows in each pool
    state_bytes: int
    scalars_bytes: int
    blocks_per_sm: int  # that are resident side by side

    def resident_blocks(self) -> int:
        """How many blocks the whole device holds at once."""
        return self.blocks_per_sm * int(device_attribute("MultiProcessorCount"))


def device_attribute(name: str) -> int:
    """A property of the current device by its CUDA name."""
    return int(require_gpu().cuda.Device().attributes[name])


def device_name() -> str:
    """What the current device calls itself."""
    cupy = require_gpu()
    return str(cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode())


def source_of(name: str) -> str:
    """The CUDA C++ source of a kernel: its files, one after the other."""
    folder = resources.files(__package__) / "kernels"
    return "\n".join((folder / file).read_text() for file in SOURCES[name])


@functools.lru_cache(maxsize=64)
def compile_kernel(name: str, macros: tuple[tuple[str, int], ...]) -> Kernel:
    """Compile a kernel with the problem's sizes as macros. CuPy keeps the result on disk."""
    cupy = require_gpu()
    options = ("--std=c++17", "--ftz=true", *(f"-D{key}={value}" for key, value in macros))
    module = cupy.RawModule(code=source_of(name), options=options, backend="nvrtc")
    sizes = cupy.zeros(6, dtype=np.int32)
    module.get_function("sizes")((1,), (1,), (sizes,))
    fixed, row, instead, state, scalars, threads = (int(value) for value in sizes.get())
    plan = dict(macros)
    on_chip = device_attribute("MaxSharedMemoryPerMultiprocessor")
    limit = min(
        device_attribute("MaxSharedMemoryPerBlockOptin"),
        on_chip // plan["BLOCKS_PER_SM"] - RESERVED_PER_BLOCK,
    )
    least = fixed + max(row, instead)
    if least > limit:
        raise SharedMemoryError(f"{name} needs {least} bytes of shared memory per block; there are {limit}")
    pool_rows = min(plan["MAX_POOL_ROWS"], (limit - fixed) // row - 1)  # and one row of zeros
    shared = fixed + max((pool_rows + 1) * row, instead)
    function = module.get_function(name)
    function.max_dynamic_shared_size_bytes = shared
    # No more shared memory than the blocks need: the rest of the chip's memory is L1.
    together = plan["BLOCKS_PER_SM"] * (shared + RESERVED_PER_BLOCK)
    function.preferred_shared_memory_carveout = min(100, -(-100 * together // on_chip))
    resident = cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(
        function.kernel.ptr, threads, shared
    )
    return Kernel(function, threads, shared, pool_rows, state, scalars, int(resident))


def fit(name: str, plan: Plan, shape: tuple[Any, ...], problem: str) -> tuple[Plan, dict[str, int], Kernel]:
    """The plan, or the nearest to it that this device has room for, with its macros and its kernel.

    The blocks of a run wait for each other, so all of them must be resident at once.
    """
    lacks = ""
    tried: Plan | None = plan
    while tried is not None:
        macros = tried.macros(*shape)
        try:
            kernel = compile_kernel(name, tuple(macros.items()))
        except SharedMemoryError:
            lacks, tried = "little shared memory", tried.smaller()
            continue
        if kernel.resident_blocks() >= macros["BLOCKS"]:
            return tried, macros, kernel
        lacks, tried = "few multiprocessors", tried.denser()
    raise ValueError(
        f"{problem} are too many for the cuda engine here, as this device has too {lacks}; use engine='cpu'"
    )


class SharedMemoryError(RuntimeError):
    """A block's working memory does not fit on chip; a plan with less per block may."""
