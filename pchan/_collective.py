# SPDX-License-Identifier: MIT
"""Small collective helpers over buffers: common errors, equal arguments, bytes for everyone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
from mpi4py import MPI

from ._agree import agree


@contextmanager
def agreed(comm: MPI.Intracomm) -> Iterator[None]:
    """Run the body, which must be local, then `agree` on how it ended.  Collective over `comm`."""
    failure: Exception | None = None
    try:
        yield
    except Exception as error:
        failure = error
    agree(comm, failure)


def agree_equal(comm: MPI.Intracomm, values: Mapping[str, int], what: str) -> None:
    """ValueError on every rank unless each of `values` (int64) is the same on all.  Collective over `comm`."""
    mine = np.array(list(values.values()), dtype=np.int64)
    everyone = np.empty((comm.size, len(mine)), dtype=np.int64)
    comm.Allgather(mine, everyone)
    for name, column in zip(values, everyone.T.tolist(), strict=True):
        other = next((r for r, value in enumerate(column) if value != column[0]), 0)
        if other:
            raise ValueError(f"{what}: {name} is {column[0]} on rank 0 and {column[other]} on rank {other}")


def broadcast_bytes(comm: MPI.Intracomm, data: bytes, root: int) -> bytes:
    """Bytes of `root` on every rank, whatever the others pass.  Collective over `comm`."""
    size = np.array([len(data)], dtype=np.int64)
    comm.Bcast(size, root=root)
    buffer = np.empty(int(size[0]), dtype=np.uint8)
    if comm.rank == root:
        buffer[:] = np.frombuffer(data, dtype=np.uint8)
    comm.Bcast(buffer, root=root)
    return buffer.tobytes()
