# SPDX-License-Identifier: MIT
"""A collective call fails on all ranks or on none: the step that makes it so."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from .errors import MatchError, RangeError, StateError, WaitTimeout

# What may be raised on all ranks; anything else becomes its nearest listed base class, or RuntimeError.
_TYPES: tuple[type[Exception], ...] = (
    RuntimeError,
    TypeError,
    ValueError,
    BufferError,
    MemoryError,
    ArithmeticError,
    OSError,
    TimeoutError,
    FileNotFoundError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
    NotImplementedError,
    MatchError,
    RangeError,
    StateError,
    WaitTimeout,
)


def agree(comm: MPI.Comm, error: Exception | None) -> None:
    """Raise on every rank when some rank has an error.  Collective over `comm`.

    One small allreduce when all is well.  Otherwise the lowest failing rank raises its own `error`,
    and all others one of the same type with the same message after ``"rank R: "``, which is not
    repeated when the message begins so itself.
    """
    first = np.array([comm.size if error is None else comm.rank], dtype=np.int64)
    comm.Allreduce(MPI.IN_PLACE, first, op=MPI.MIN)
    root = int(first[0])
    if root == comm.size:
        return
    kind, text = (0, b"") if error is None else (_kind(error), str(error).encode("utf-8", "replace"))
    head = np.array([kind, len(text)], dtype=np.int64)
    comm.Bcast(head, root=root)
    data = np.zeros(int(head[1]), dtype=np.uint8)
    if comm.rank == root:
        data[:] = np.frombuffer(text, dtype=np.uint8)
    comm.Bcast(data, root=root)
    if comm.rank == root and error is not None:
        raise error
    prefix, message = f"rank {root}: ", data.tobytes().decode("utf-8")
    raise _TYPES[int(head[0])](message if message.startswith(prefix) else prefix + message) from error


def _kind(error: Exception) -> int:
    """Index of the nearest listed base class."""
    return next((_TYPES.index(cls) for cls in type(error).__mro__ if cls in _TYPES), 0)
