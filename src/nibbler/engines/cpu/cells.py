"""A run's arrays as compiled code sees them here: addresses with types of elements, nothing else.

A kernel takes its state as dozens of arrays. As Numba's own arrays each would travel as seven values through
every call, compiling would take twice as long, and just recognising them would cost a call from Python 40
microseconds. `Memory` is one object for all of them. In compiled code its attributes are bare pointers:
`a.touched[i]` reads, `a.touched[i] = x` writes, and nothing is checked. It keeps the arrays alive.
"""

import operator
from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.core.imputils import lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import NativeValue, lower_builtin, models, register_model, type_callable, unbox
from numba.np.numpy_support import from_dtype


class CellsType(types.Type):
    """Numba's type of a pointer into an array of a given type of element."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        super().__init__(name=f"Cells({dtype})")


class MemoryType(types.Type):
    """Numba's type of a `Memory`, which is told by the names and types of its arrays."""

    def __init__(self, fields: dict[str, CellsType]) -> None:
        self.fields = fields
        super().__init__(
            name=f"Memory({', '.join(f'{name}: {cells.dtype}' for name, cells in fields.items())})"
        )


class Memory:
    """The contiguous arrays of a named tuple, to be handed to compiled code as pointers."""

    def __init__(self, arrays: Any) -> None:
        for name, array in arrays._asdict().items():
            if not array.flags.c_contiguous:
                raise ValueError(
                    f"{name} is not contiguous, so it cannot be handed over as a pointer; copy it"
                )
        self._arrays = arrays
        self._addresses = np.array([array.ctypes.data for array in arrays], dtype=np.uint64)
        self.table = self._addresses.ctypes.data  # where the addresses are, which is all that is handed over
        self._numba_type_ = MemoryType(
            {name: CellsType(from_dtype(array.dtype)) for name, array in arrays._asdict().items()}
        )


@register_model(CellsType)
class _CellsModel(models.PrimitiveModel):
    def __init__(self, manager: Any, frontend: Any) -> None:
        super().__init__(manager, frontend, manager.lookup(frontend.dtype).get_data_type().as_pointer())


@register_model(MemoryType)
class _MemoryModel(models.StructModel):
    def __init__(self, manager: Any, frontend: Any) -> None:
        super().__init__(manager, frontend, list(frontend.fields.items()))


@unbox(MemoryType)
def _unbox(kind: Any, value: Any, c: Any) -> Any:
    number = c.pyapi.object_getattr_string(value, "table")
    table = c.pyapi.long_as_voidptr(number)
    c.pyapi.decref(number)
    memory = cgutils.create_struct_proxy(kind)(c.context, c.builder)
    for index, (name, cells) in enumerate(kind.fields.items()):
        pointer = c.context.get_value_type(cells)
        slot = c.builder.gep(
            c.builder.bitcast(table, pointer.as_pointer()), [c.context.get_constant(types.intp, index)]
        )
        setattr(memory, name, c.builder.load(slot))
    return NativeValue(memory._getvalue())


@infer_getattr
class _MemoryAttributes(AttributeTemplate):
    key = MemoryType

    def generic_resolve(self, value: Any, attr: str) -> Any:  # type: ignore[override]
        return value.fields.get(attr)


@lower_getattr_generic(MemoryType)
def _attribute(context: Any, builder: Any, kind: Any, value: Any, name: str) -> Any:
    return getattr(cgutils.create_struct_proxy(kind)(context, builder, value=value), name)


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
    return context.unpack_value(builder, signature.return_type, builder.gep(cells, [index], inbounds=True))


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
    context.pack_value(builder, kind, cast, builder.gep(cells, [index], inbounds=True))
    return context.get_dummy_value()
