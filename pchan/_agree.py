"""Collective errors: a rank that fails must not leave the others waiting for it."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from .errors import RangeError, StateError

# what may be raised on all ranks; anything else becomes a RuntimeError there
_TYPES: tuple[type[Exception], ...] = (
    RuntimeError,
    TypeError,
    ValueError,
    BufferError,
    MemoryError,
    OSError,
    RangeError,
    StateError,
    ArithmeticError,
)


def agree(comm: MPI.Comm, error: Exception | None) -> None:
    """Raises on every rank when any rank has an error. Collective over `comm`.

    Every rank raises the type and the message of the lowest rank that failed; that rank raises `error` itself.
    """
    first = np.array(comm.size if error is None else comm.rank, dtype=np.int64)
    comm.Allreduce(MPI.IN_PLACE, first, op=MPI.MIN)
    if first == comm.size:
        return
    mine = first == comm.rank
    kind, text = _describe(error) if mine and error else (0, b"")
    head = np.array([kind, len(text)], dtype=np.int64)
    comm.Bcast(head, root=int(first))
    data = np.zeros(int(head[1]), dtype=np.uint8)
    data[:] = np.frombuffer(text, dtype=np.uint8) if mine else 0
    comm.Bcast(data, root=int(first))
    if mine and error:
        raise error
    raise _TYPES[int(head[0])](f"rank {int(first)}: {data.tobytes().decode(errors='replace')}")


def _describe(error: Exception) -> tuple[int, bytes]:
    kind = next((i for i in reversed(range(len(_TYPES))) if type(error) is _TYPES[i]), None)
    if kind is None:
        kind = next((i for i, t in enumerate(_TYPES) if isinstance(error, t)), 0)
    return kind, str(error).encode()
