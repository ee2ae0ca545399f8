"""Arrays as compiled code sees them here: an address and a type of element, nothing else.

A kernel takes its state as one named tuple of dozens of arrays. As Numba's own arrays each would travel as
seven values through every call, and compiling took more than twice as long. `Cells` is a bare pointer:
`cells[i]` reads, `cells[i] = x` writes, and nothing is checked. The array it points into must outlive it, so
`Cells` keeps it.
"""

import operator
from typing import Any

import numpy as np
from numba import types
from numba.extending import (
    NativeValue,
    lower_builtin,
    models,
    register_model,
    type_callable,
    typeof_impl,
    unbox,
)
from numba.np.numpy_support import from_dtype


class Cells:
    """A contiguous array, to be handed to compiled code as a pointer."""

    __slots__ = ("address", "array", "dtype")

    def __init__(self, array: np.ndarray) -> None:
        if not array.flags.c_contiguous:
            raise ValueError("only a contiguous array can be handed over as a pointer; copy it first")
        self.array = array
        self.dtype = array.dtype
        self.address = array.ctypes.data


def as_cells(arrays: Any) -> Any:
    """The same named tuple with its arrays as `Cells`."""
    return type(arrays)(*[Cells(array) for array in arrays])


class CellsType(types.Type):
    """Numba's type of `Cells` with a given type of element."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        super().__init__(name=f"Cells({dtype})")


@register_model(CellsType)
class _CellsModel(models.PrimitiveModel):
    def __init__(self, manager: Any, frontend: Any) -> None:
        super().__init__(manager, frontend, manager.lookup(frontend.dtype).get_data_type().as_pointer())


@typeof_impl.register(Cells)
def _typeof(value: Cells, context: Any) -> CellsType:
    return CellsType(from_dtype(value.dtype))


@unbox(CellsType)
def _unbox(kind: Any, value: Any, c: Any) -> Any:
    number = c.pyapi.object_getattr_string(value, "address")
    address = c.pyapi.long_as_voidptr(number)
    c.pyapi.decref(number)
    return NativeValue(c.builder.bitcast(address, c.context.get_value_type(kind)))


@type_callable(operator.getitem)
def _type_of_reading(context: Any) -> Any:
    def typer(cells: Any, index: Any) -> Any:
        if isinstance(cells, CellsType) and isinstance(index, types.Integer):
            return cells.dtype
        return None

    return typer


@lower_builtin(operator.getitem, CellsType, types.Integer)
def _read(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    cells, index = arguments
    return context.unpack_value(builder, signature.return_type, builder.gep(cells, [index]))


@type_callable(operator.setitem)
def _type_of_writing(context: Any) -> Any:
    def typer(cells: Any, index: Any, value: Any) -> Any:
        if isinstance(cells, CellsType) and isinstance(index, types.Integer):
            return types.none
        return None

    return typer


@lower_builtin(operator.setitem, CellsType, types.Integer, types.Any)
def _write(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    cells, index, value = arguments
    kind = signature.args[0].dtype
    cast = context.cast(builder, value, signature.args[2], kind)
    context.pack_value(builder, kind, cast, builder.gep(cells, [index]))
    return context.get_dummy_value()
