"""Enough of CuPy for the CUDA engine, without a GPU: arrays are NumPy's, kernels run in emulator.h.

`pretend()` puts it in CuPy's place. Kernels are compiled by the C++ compiler, once for each set of macros.
"""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np

COMPILER = shutil.which("g++") or shutil.which("c++")
WORKS_HERE = COMPILER is not None and sys.platform == "linux" and platform.machine() == "x86_64"
EMULATOR = Path(__file__).with_name("emulator.h").read_text()
LAUNCHER = """
extern "C" void set_order(unsigned order) { emulator::order = order; }
extern "C" int launch_kernel(int blocks, int threads, int shared_bytes, const State* state,
                             const Environment* environments, Scalars* scalars, u64* mail, double* bins,
                             u32 first_run, u32 num_bins, u32 bin_size, u32 pool_rows) {
  return emulator::launch(blocks, threads, shared_bytes, [=] {
    KERNEL(state, environments, scalars, mail, bins, first_run, num_bins, bin_size, pool_rows);
  });
}
"""
DYNAMIC_SHARED = "extern __shared__ __align__(16) unsigned char memory[];"
_libc = ctypes.CDLL(None)
ORDER = SimpleNamespace(of_threads=0)  # see emulator.h
_one_launch_at_a_time = threading.Lock()  # all kernels share the emulator's variables
_folder = tempfile.TemporaryDirectory(prefix="nibbler-emulated-")


class Array(np.ndarray):
    """A NumPy array that answers as a device array does."""

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.ctypes.data)

    def get(self) -> np.ndarray:
        return np.array(self)

    def set(self, values: np.ndarray) -> None:
        self[...] = values


class LaunchError(RuntimeError):
    """What CuPy raises when a kernel fails."""


class Function:
    """A compiled kernel; the attributes that CuPy's functions have may be set."""

    def __init__(self, library: ctypes.CDLL, name: str) -> None:
        self.library, self.name = library, name
        self.kernel = SimpleNamespace(ptr=0)

    def __call__(
        self, grid: tuple[int], block: tuple[int], arguments: tuple[Any, ...], shared_mem: int = 0
    ) -> None:
        values = [
            ctypes.c_void_p(a.ctypes.data) if isinstance(a, np.ndarray) else ctypes.c_uint32(int(a))
            for a in arguments
        ]
        with _one_launch_at_a_time:
            self.library.set_order(ORDER.of_threads)
            if self.name == "sizes":
                self.library.sizes(*values)
            elif self.library.launch_kernel(grid[0], block[0], shared_mem, *values) != 0:
                raise LaunchError("the threads of the launch wait for each other for ever")


class RawModule:
    """Compiles a kernel's source for this processor."""

    def __init__(self, code: str, options: tuple[str, ...], backend: str) -> None:
        self.name = "nibbler_steps" if "nibbler_steps(" in code else "value_network_steps"
        body = code.replace(DYNAMIC_SHARED, "unsigned char* memory = emulator::shared_memory();")
        assert body != code
        source = EMULATOR + body + LAUNCHER.replace("KERNEL", self.name)
        macros = [option for option in options if option.startswith("-D")]
        stem = hashlib.sha256(repr((source, macros)).encode()).hexdigest()[:16]
        library = Path(_folder.name, f"{stem}.so")
        if not library.exists():
            path = library.with_suffix(f".{threading.get_ident()}.cpp")
            path.write_text(source)
            flags = ["-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-march=native"]
            new = path.with_suffix(".so")
            subprocess.run([str(COMPILER), *flags, *macros, "-o", str(new), str(path)], check=True)
            new.replace(library)  # whole, for another thread that wants the same kernel
        self.library = ctypes.CDLL(str(library))

    def get_function(self, name: str) -> Function:
        return Function(self.library, name)


class Device:
    """A GPU of sixteen multiprocessors with the shared memory of an H200's."""

    id = 0
    compute_capability = "90"
    attributes: ClassVar = {
        "MultiProcessorCount": 16,
        "MaxSharedMemoryPerBlockOptin": 232_448,
        "MaxSharedMemoryPerMultiprocessor": 233_472,
    }


class Event:
    """A moment of a stream."""

    def record(self) -> None:
        self.time = time.perf_counter()

    def synchronize(self) -> None:
        pass


def guarded(values: np.ndarray) -> Array:
    """A copy with no memory behind it: a kernel that goes beyond its end stops the process."""
    page = mmap.PAGESIZE
    space = -(-values.nbytes // 16) * 16  # kernels load up to 16 bytes at once
    end = -(-space // page) * page
    memory = mmap.mmap(-1, end + page)
    behind = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory)) + end)
    if _libc.mprotect(behind, ctypes.c_size_t(page), ctypes.c_int(0)) != 0:
        raise OSError("mprotect failed")
    array = np.frombuffer(memory, values.dtype, values.size, end - space).reshape(values.shape)
    array[...] = values
    return array.view(Array)


def _array(make: Any) -> Any:
    return lambda *args, **options: guarded(make(*args, **options))


def module() -> ModuleType:
    """The stand-in for the module `cupy`."""
    fake: Any = ModuleType("cupy")
    fake.__spec__ = SimpleNamespace(name="cupy")
    fake.zeros, fake.empty = _array(np.zeros), _array(np.empty)
    fake.asarray = _array(lambda values: np.array(values, order="C"))
    fake.RawModule = RawModule
    fake.cuda = SimpleNamespace(
        Device=Device,
        Stream=lambda non_blocking: nullcontext(),
        Event=Event,
        get_elapsed_time=lambda begin, end: 1e3 * (end.time - begin.time),
        get_current_stream=lambda: SimpleNamespace(synchronize=lambda: None),
        runtime=SimpleNamespace(
            CUDARuntimeError=LaunchError,
            getDeviceCount=lambda: 1,
            memGetInfo=lambda: (1 << 34, 1 << 34),
            getDeviceProperties=lambda _: {"name": b"emulated"},
        ),
        memory=SimpleNamespace(OutOfMemoryError=MemoryError),
        driver=SimpleNamespace(occupancyMaxActiveBlocksPerMultiprocessor=lambda *_: 1),
    )
    return fake


def pretend(monkeypatch: Any) -> None:
    """Let `import cupy` give the stand-in until the test ends."""
    from nibbler.engines.cuda import device

    monkeypatch.setitem(sys.modules, "cupy", module())
    device.compile_kernel.cache_clear()
