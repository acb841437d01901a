# SPDX-License-Identifier: MIT
"""Arrays in memory that all ranks of a node map."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from . import _core
from ._collective import agreed
from .errors import check_running

__all__ = ["empty"]


def empty(comm: MPI.Intracomm, shape: int | Sequence[int], dtype: npt.DTypeLike = float) -> npt.NDArray[Any]:
    """This rank's own array, in memory that all ranks of its node have mapped.  Collective over `comm`.

    A connected Channel moves a long message between two such arrays (or parts of them) of one node with a single
    copy.  Otherwise it is an array like any other: it may be used anywhere, and its memory is freed when the last
    array over it is gone, also after `comm` and all channels.

    Parameters
    ----------
    comm : mpi4py intracommunicator
    shape : int or sequence of ints; may differ from rank to rank
    dtype : anything but Python objects; may differ from rank to rank

    Returns
    -------
    ndarray, C-contiguous, page-aligned, all zeros

    Raises
    ------
    TypeError, ValueError
        On every rank when one rank's arguments are wrong.
    MemoryError
        On every rank when a node has not enough memory.
    """
    check_running("empty")
    if not isinstance(comm, MPI.Intracomm) or comm == MPI.COMM_NULL:
        raise TypeError("empty: comm must be an mpi4py intracommunicator")
    with agreed(comm):
        dims, kind = _shape(shape), np.dtype(dtype)
        if kind.hasobject:
            raise TypeError("empty: Python objects cannot live in shared memory")
        n = math.prod(dims)
        if n * kind.itemsize > 2**50:
            raise ValueError(f"empty: an array of {n} elements of {kind.itemsize} bytes is too large")
        try:  # what NumPy refuses: more than 64 dimensions, (0, 2**70)
            _ = np.empty((1,) * len(dims), kind) if n * kind.itemsize else np.ndarray(dims, kind, buffer=b"")
        except ValueError as error:
            raise ValueError(f"empty: {error}") from None
    memory = _core.SharedMemory(comm.handle, n * kind.itemsize)
    return np.ndarray(dims, kind, buffer=memoryview(memory))


def _shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    if not isinstance(shape, Sequence):
        shape = (shape,)
    try:
        dims = tuple(operator.index(n) for n in shape)
    except TypeError:
        raise TypeError(f"empty: shape must be an int or ints, not {shape!r}") from None
    if any(n < 0 for n in dims):
        raise ValueError(f"empty: negative dimensions in {dims}")
    return dims
