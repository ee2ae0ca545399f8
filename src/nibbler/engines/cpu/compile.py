"""How this engine's functions are compiled and cached, and how a thread is kept from denormals."""

import hashlib
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from llvmlite import ir
from numba import extending, njit, types

from nibbler.mdp import environment, philox, simulate

Function = TypeVar("Function", bound=Callable[..., Any])

intrinsic: Any = (
    extending.intrinsic
)  # a function under it is called with other arguments than it is written with


_njit: Any = njit
# No allocation happens in these functions, so the arrays' reference counts need not be kept: counting them
# for every call of a part cost most of the time.
_OPTIONS = {"error_model": "numpy", "_nrt": False}


def _fingerprint() -> str:
    """A digest of every source file whose compiled code ends up in this engine's loops."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    files += [Path(str(module.__file__)) for module in (philox, environment, simulate)]
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()


_SOURCES = _fingerprint()


def kernel(function: Function) -> Function:
    """Compile a function that is called from Python, and keep the machine code between processes.

    Numba's cache looks at the file of the function alone; ours inline functions of other files, so the stamp
    of the cached code covers them too. (Should a version of Numba keep its stamp elsewhere, its rule holds.)
    """
    compiled: Any = _njit(cache=True, **_OPTIONS)(function)
    file: Any = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if file is not None and hasattr(file, "_source_stamp"):
        file._source_stamp = (file._source_stamp, _SOURCES)
    result: Function = compiled
    return result


def inlined(function: Function) -> Function:
    """Compile a part of a kernel into its caller: passing the state's many arrays along would cost more."""
    result: Function = _njit(forceinline=True, **_OPTIONS)(function)
    return result


_FLUSH = 0x8040  # MXCSR: results that are denormal become zero (bit 15), so do arguments (bit 6)
_X86 = platform.machine().lower() in ("x86_64", "amd64", "i386", "i686")


def _mxcsr(builder: Any, name: str, slot: Any) -> None:
    byte_pointer = ir.IntType(8).as_pointer()
    signature = ir.FunctionType(ir.VoidType(), [byte_pointer])
    function = builder.module.globals.get(name) or ir.Function(builder.module, signature, name)
    builder.call(function, [builder.bitcast(slot, byte_pointer)])


@intrinsic
def flush_denormals(typingctx: Any) -> Any:
    """Let this thread round denormals to zero; returns the control word to hand to `restore_denormals`.

    Momentum that decays for long ends in denormals, which x86 computes with many times slower. Other
    processors do not mind them: there this does nothing.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(32)
        if not _X86:
            return ir.Constant(word, 0)
        slot = builder.alloca(word)
        _mxcsr(builder, "llvm.x86.sse.stmxcsr", slot)
        before = builder.load(slot)
        builder.store(builder.or_(before, ir.Constant(word, _FLUSH)), slot)
        _mxcsr(builder, "llvm.x86.sse.ldmxcsr", slot)
        return before

    return types.uint32(), generate


@intrinsic
def restore_denormals(typingctx: Any, control: Any) -> Any:
    """Give the thread back the control word that `flush_denormals` returned."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if _X86:
            slot = builder.alloca(ir.IntType(32))
            builder.store(arguments[0], slot)
            _mxcsr(builder, "llvm.x86.sse.ldmxcsr", slot)
        return context.get_dummy_value()

    return types.void(types.uint32), generate
