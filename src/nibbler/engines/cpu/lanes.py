"""Sixteen floats at a time: the vector type that this engine's inner loops are written in.

A `Lanes` value is an LLVM vector of 16 float32, which LLVM maps to whatever registers the machine has (one of
AVX-512, two of AVX2, four of NEON). Loops over hidden units or questions are written with it instead of being
left to the auto-vectoriser, so that they are fast by construction and sums have one defined order: the same
bits from every call, whatever the compiler inlines where.

They are read from and written to arrays of float32; an offset counts floats. All of this exists in compiled
code only.
"""

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import models, overload, register_model

from nibbler.engines.cpu.compile import intrinsic

WIDTH = 16

_FLOAT = ir.FloatType()
_INT = ir.IntType(32)
_VECTOR = ir.VectorType(_FLOAT, WIDTH)
_MASK = ir.VectorType(ir.IntType(1), WIDTH)
_UNDEFINED = ir.Constant(_VECTOR, ir.Undefined)


class LanesType(types.Type):
    """Numba's type of sixteen floats."""

    def __init__(self) -> None:
        super().__init__(name="Lanes")


lanes = LanesType()


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, frontend: Any) -> None:
        super().__init__(manager, frontend, _VECTOR)


def _constant(value: float) -> Any:
    return ir.Constant(_VECTOR, [value] * WIDTH)


def _pointer(builder: Any, cells: Any, offset: Any) -> Any:
    return builder.bitcast(builder.gep(cells, [offset], inbounds=True), _VECTOR.as_pointer())


def _call(builder: Any, name: str, arguments: list[Any]) -> Any:
    signature = ir.FunctionType(_VECTOR, [_VECTOR] * len(arguments))
    return builder.call(cgutils.get_or_insert_function(builder.module, signature, name), arguments)


@intrinsic
def load(typingctx: Any, cells: Any, offset: Any) -> Any:
    """The sixteen floats from an offset on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value = builder.load(_pointer(builder, *arguments))
        value.align = 4
        return value

    return lanes(cells, types.int64), generate


@intrinsic
def store(typingctx: Any, cells: Any, offset: Any, value: Any) -> Any:
    """Write sixteen floats from an offset on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], _pointer(builder, arguments[0], arguments[1])).align = 4
        return context.get_dummy_value()

    return types.void(cells, types.int64, lanes), generate


@intrinsic
def splat(typingctx: Any, value: Any) -> Any:
    """One float in every lane."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        first = builder.insert_element(_UNDEFINED, arguments[0], ir.Constant(_INT, 0))
        zeros = ir.Constant(ir.VectorType(_INT, WIDTH), [0] * WIDTH)
        return builder.shuffle_vector(first, _UNDEFINED, zeros)

    return lanes(types.float32), generate


@intrinsic
def multiply_add(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once where the machine can."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _call(builder, f"llvm.fmuladd.v{WIDTH}f32", list(arguments))

    return lanes(lanes, lanes, lanes), generate


@intrinsic
def total(typingctx: Any, value: Any) -> Any:
    """The sum of the lanes: halves are added, then their halves."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector, width = arguments[0], WIDTH
        while width > 1:
            undefined = ir.Constant(vector.type, ir.Undefined)
            low = ir.Constant(ir.VectorType(_INT, width // 2), list(range(width // 2)))
            high = ir.Constant(ir.VectorType(_INT, width // 2), list(range(width // 2, width)))
            vector = builder.fadd(
                builder.shuffle_vector(vector, undefined, low),
                builder.shuffle_vector(vector, undefined, high),
            )
            width //= 2
        return builder.extract_element(vector, ir.Constant(_INT, 0))

    return types.float32(lanes), generate


@intrinsic
def rectify(typingctx: Any, value: Any) -> Any:
    """ReLU: the larger of each lane and zero."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        zero = _constant(0.0)
        return builder.select(builder.fcmp_ordered(">", arguments[0], zero), arguments[0], zero)

    return lanes(lanes), generate


@intrinsic
def where_positive(typingctx: Any, condition: Any, value: Any) -> Any:
    """`value` in the lanes where `condition` is above zero, zero in the others."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        zero = _constant(0.0)
        return builder.select(builder.fcmp_ordered(">", arguments[0], zero), arguments[1], zero)

    return lanes(lanes, lanes), generate


@intrinsic
def magnitude(typingctx: Any, value: Any) -> Any:
    """The absolute value of each lane."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _call(builder, f"llvm.fabs.v{WIDTH}f32", list(arguments))

    return lanes(lanes), generate


@intrinsic
def smaller(typingctx: Any, a: Any, b: Any) -> Any:
    """The smaller of two values, lane by lane."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.select(builder.fcmp_ordered("<", arguments[0], arguments[1]), *arguments)

    return lanes(lanes, lanes), generate


@intrinsic
def larger(typingctx: Any, a: Any, b: Any) -> Any:
    """The larger of two values, lane by lane."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", arguments[0], arguments[1]), *arguments)

    return lanes(lanes, lanes), generate


@intrinsic
def blend(typingctx: Any, bits: Any, if_set: Any, if_clear: Any) -> Any:
    """`if_set` in the lanes whose bit is set (lane j is bit j), `if_clear` in the others."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        mask = builder.bitcast(builder.trunc(arguments[0], ir.IntType(WIDTH)), _MASK)
        return builder.select(mask, arguments[1], arguments[2])

    return lanes(types.uint64, lanes, lanes), generate


@intrinsic
def lanes_below(typingctx: Any, a: Any, b: Any) -> Any:
    """The lanes in which a < b, as bits of an integer."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bits = builder.bitcast(builder.fcmp_ordered("<", *arguments), ir.IntType(WIDTH))
        return builder.zext(bits, ir.IntType(64))

    return types.uint64(lanes, lanes), generate


@intrinsic
def lowest_bit(typingctx: Any, bits: Any) -> Any:
    """The position of the lowest bit that is set; at least one must be."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


def _arithmetic(function: Callable[..., Any], instruction: str) -> None:
    """Let +, - and * work on lanes."""

    @intrinsic
    def apply(typingctx: Any, a: Any, b: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return getattr(builder, instruction)(*arguments)

        return lanes(lanes, lanes), generate

    @overload(function)
    def overloaded(a: Any, b: Any) -> Any:
        if not (isinstance(a, LanesType) and isinstance(b, LanesType)):
            return None

        def on_lanes(a: Any, b: Any) -> Any:
            return apply(a, b)

        return on_lanes


_arithmetic(operator.add, "fadd")
_arithmetic(operator.sub, "fsub")
_arithmetic(operator.mul, "fmul")
