"""What send_init and recv_init accept as a buffer, taken apart for the C core.

An array travels in row-major order of its indices (the last index fastest), whatever its order in memory: a
Fortran-ordered array arrives with the same element at the same index. Strided views are not copied.
"""

from __future__ import annotations

import hashlib
import weakref
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from ._integers import whole_number

__all__ = ["Message", "message_from"]


_NOT_BUFFERS = (type(MPI.BOTTOM), type(MPI.IN_PLACE))


class Message(NamedTuple):
    """Plain: `n_elements` of `datatype` at `address`. Strided: shape and strides (bytes) instead of count."""

    holder: Any  # keeps the memory alive, and exported so that it cannot be resized
    address: int
    n_elements: int
    datatype: MPI.Datatype
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    temporary: bool = False  # the datatype is ours to free after registration
    # what connect() compares besides: the element type where the MPI type is bytes; the array's shape and order
    element: str | None = None
    stated: tuple[int, ...] = ()
    column_major: bool = False


def message_from(buf: Any, writable: bool) -> Message:
    """Takes an array or a specification of mpi4py's apart. TypeError, ValueError or BufferError."""
    if buf is None or isinstance(buf, _NOT_BUFFERS):
        raise TypeError("MPI.BOTTOM, MPI.IN_PLACE and None are not buffers here: pass the array itself")
    if isinstance(buf, list | tuple):
        return _from_specification(buf, writable)
    array = _as_array(buf, writable)
    return _from_array(array, writable)


def _as_array(buf: Any, writable: bool) -> npt.NDArray[Any]:
    """The memory of `buf` as an array; no copy is made."""
    if not isinstance(buf, np.ndarray):
        if hasattr(buf, "__cuda_array_interface__") or _on_device(buf):
            raise TypeError(f"{type(buf).__name__} lies in a device's memory: copy it to a NumPy array first")
        try:
            view = memoryview(buf)
        except TypeError:
            raise TypeError(
                f"{type(buf).__name__} is not a buffer: pass a NumPy array, an object with the buffer protocol or "
                "[buffer, count, datatype]"
            ) from None
        buf = np.asarray(view)
    if isinstance(buf, np.ma.MaskedArray):
        raise TypeError(
            "a masked array's mask does not travel: pass its data, and its mask as a message of its own"
        )
    if buf.dtype.hasobject:
        raise TypeError(
            "arrays of Python objects cannot travel by MPI: use an array of numbers, or pickle it yourself"
        )
    if not buf.dtype.isnative:
        raise TypeError(f"foreign byte order ({buf.dtype.str}): use array.astype(array.dtype.newbyteorder('='))")
    if writable and not buf.flags.writeable:
        raise BufferError("the receive buffer is read-only: pass a writable array")
    return buf  # type: ignore[no-any-return]


def _on_device(buf: Any) -> bool:
    try:
        return bool(buf.__dlpack_device__()[0] not in (1, 3))  # CPU, pinned host memory
    except (AttributeError, TypeError):
        return False


def _holder(array: Any) -> Any:
    """A buffer export of the array; datetime64 and the like have none, so the reference must do. The weak
    references are for resize(refcheck=False), which NumPy refuses only to arrays that have one."""
    owners, owner = [], array
    while isinstance(owner, np.ndarray):
        owners.append(weakref.ref(owner))
        owner = owner.base
    try:
        return memoryview(array), owners
    except (ValueError, TypeError, BufferError):
        return array, owners


def _predefined(dtype: np.dtype[Any]) -> MPI.Datatype | None:
    if dtype.kind not in "biufc":
        return None
    try:
        datatype = MPI.Datatype.fromcode(dtype.char)
        # float16: nameless in MPICH 4.0, whose strided copies of it do nothing; no type at all in Open MPI 4.1
        if datatype == MPI.DATATYPE_NULL or not datatype.Get_name() or datatype.Get_size() != dtype.itemsize:
            return None
    except (ValueError, KeyError, AttributeError, MPI.Exception):
        return None
    return datatype


def _element_name(dtype: np.dtype[Any]) -> str:
    """For types that MPI knows as bytes; long descriptions as a hash, which must be equal on all ranks."""
    text = str(dtype.descr) if dtype.names else dtype.str
    return text if len(text) < 24 else f"struct {hashlib.sha256(text.encode()).hexdigest()[:15]}"


def _stated_shape(array: npt.NDArray[Any]) -> tuple[int, ...]:
    """The shape that the other end's must equal: of two dimensions or more, those of length 1 apart."""
    shape = tuple(n for n in array.shape if n != 1)
    return shape if len(shape) >= 2 else ()


def _from_array(array: npt.NDArray[Any], writable: bool) -> Message:
    address, holder = int(array.__array_interface__["data"][0]), _holder(array)
    datatype = _predefined(array.dtype)
    element = _element_name(array.dtype) if datatype is None else None
    stated = _stated_shape(array)
    if array.size <= 1 or array.flags.c_contiguous:
        n = array.nbytes if datatype is None else array.size
        return Message(holder, address, n, datatype or MPI.BYTE, element=element, stated=stated)
    dims = [d for d in range(array.ndim) if array.shape[d] > 1]
    shape, strides = tuple(array.shape[d] for d in dims), tuple(array.strides[d] for d in dims)
    if writable and 0 in strides:
        raise ValueError("the receive buffer has several elements at one place (stride 0)")
    if datatype is not None:
        return Message(holder, address, 0, datatype, shape, strides, stated=stated)
    item = MPI.BYTE.Create_contiguous(array.dtype.itemsize)
    return Message(holder, address, 0, item, shape, strides, True, element, stated)


# ---- specifications: [buf, datatype], [buf, count, datatype], [buf, (count, displacement), datatype] ----


def _from_specification(spec: list[Any] | tuple[Any, ...], writable: bool) -> Message:
    if not 2 <= len(spec) <= 3 or isinstance(spec[0], int | float | complex):
        raise TypeError("a buffer specification is [buffer, datatype] or [buffer, count, datatype]")
    datatype = spec[-1]
    if isinstance(datatype, str):
        try:
            datatype = MPI.Datatype.fromcode(datatype)
        except (ValueError, KeyError):
            raise ValueError(f"unknown datatype code {datatype!r}") from None
    if not isinstance(datatype, MPI.Datatype):
        raise TypeError(f"the last item of a buffer specification must be an MPI datatype, not {spec[-1]!r}")
    if datatype == MPI.DATATYPE_NULL:
        raise ValueError("the datatype is DATATYPE_NULL (or was freed)")
    if spec[0] is None or isinstance(spec[0], _NOT_BUFFERS):
        raise TypeError("MPI.BOTTOM, MPI.IN_PLACE and None are not buffers here: pass the array itself")
    array = _as_array(spec[0], writable)
    if not array.flags.c_contiguous and not array.flags.f_contiguous and array.size > 1:
        raise ValueError("with a datatype the buffer must be contiguous; or pass the strided view alone")
    return _counted(array, spec[1] if len(spec) == 3 else None, datatype)


def _count(value: Any, name: str) -> int:
    return whole_number(value, name, 0, 2**56)


def _counted(array: npt.NDArray[Any], count: Any, datatype: MPI.Datatype) -> Message:
    _lower, extent = datatype.Get_extent()
    true_lower, true_extent = datatype.Get_true_extent()
    displacement = 0
    if isinstance(count, list | tuple):
        if len(count) != 2:
            raise ValueError("(count, displacement) is expected")
        count, displacement = (_count(x, name) for x, name in zip(count, ("count", "displacement"), strict=True))
    elif count is not None:
        count = _count(count, "count")
    start = displacement * extent
    if count is None:
        room = array.nbytes - start
        if extent <= 0 or room < 0 or room % extent:
            raise ValueError(
                f"the buffer's {array.nbytes} bytes are not a whole number of elements of {extent} bytes"
            )
        count = room // extent
    if count > 1 and extent <= 0:
        raise ValueError(f"{count} elements of a datatype of extent {extent} lie on top of one another")
    if count:
        first = start + true_lower
        last = start + (count - 1) * extent + true_lower + true_extent
        if min(first, last) < 0 or last > array.nbytes:
            raise ValueError(
                f"{count} elements at displacement {displacement} take bytes {first} to {last} of a buffer of "
                f"{array.nbytes}"
            )
    if start > array.nbytes:
        raise ValueError(f"displacement {displacement} lies outside the buffer of {array.nbytes} bytes")
    address = int(array.__array_interface__["data"][0]) + start
    whole = start == 0 and datatype.is_predefined and count * extent == array.nbytes
    stated = _stated_shape(array) if whole else ()  # the elements travel in their order in memory
    column_major = not array.flags.c_contiguous
    return Message(_holder(array), address, count, datatype, stated=stated, column_major=column_major)
