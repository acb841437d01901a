# SPDX-License-Identifier: MIT
"""The six faces of a block in three dimensions, each a strided view of it, on a periodic grid of ranks.

mpiexec -n 4 python -m pchan.examples.halo3d
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

import pchan

Array = npt.NDArray[np.float64]


def face(axis: int, where: int) -> tuple[slice | int, ...]:
    """Index of a face without its edges: cells `where` along the axis."""
    index: list[slice | int] = [slice(1, -1)] * 3
    index[axis] = where
    return tuple(index)


def channel(cart: MPI.Cartcomm, u: Array) -> pchan.Channel:
    """The tag tells the direction: on a periodic grid both neighbours may be the same rank, or this one."""
    ch = pchan.Channel(cart)
    for axis in range(3):
        low, high = cart.Shift(axis, 1)
        ch.recv_init(u[face(axis, 0)], low, tag=2 * axis)
        ch.recv_init(u[face(axis, -1)], high, tag=2 * axis + 1)
        ch.send_init(u[face(axis, -2)], high, tag=2 * axis)
        ch.send_init(u[face(axis, 1)], low, tag=2 * axis + 1)
    ch.connect()
    return ch


def field(cart: MPI.Cartcomm, shape: tuple[int, int, int]) -> Array:
    """sin(x) + sin(2 y) + sin(3 z) on the periodic cube of side 2 pi, halo included."""
    waves = []
    for axis, n in enumerate(shape):
        whole = n * cart.dims[axis]
        cells = (cart.coords[axis] * n + np.arange(-1, n + 1)) % whole
        waves.append(np.sin((axis + 1) * 2 * np.pi * cells / whole))
    x, y, z = np.ix_(*waves)
    return np.asarray(x + y + z)


def laplacian(u: Array) -> Array:
    """Sum of the second differences along each axis."""
    centre = u[1:-1, 1:-1, 1:-1]
    total = -6 * centre
    for axis in range(3):
        for shift in (0, 2):
            index = [slice(1, -1)] * 3
            index[axis] = slice(shift, shift + u.shape[axis] - 2)
            total = total + u[tuple(index)]
    return np.asarray(total)


def run(comm: MPI.Intracomm, shape: tuple[int, int, int] = (8, 12, 10)) -> dict[str, Any]:
    """Largest error of the halo, and of the Laplacian that uses it.  Collective; the same on every rank."""
    cart = comm.Create_cart(MPI.Compute_dims(comm.size, 3), periods=[True] * 3)
    right = field(cart, shape)
    u = np.full_like(right, np.nan)
    u[1:-1, 1:-1, 1:-1] = right[1:-1, 1:-1, 1:-1]
    with channel(cart, u) as ch:
        ch.exchange()
        messages = [ch[i] for i in range(len(ch))]
    sides = [face(axis, where) for axis in range(3) for where in (0, -1)]
    errors = [max(np.abs(u[s] - right[s]).max() for s in sides), np.abs(laplacian(u) - laplacian(right)).max()]
    halo_error, laplacian_error = (cart.allreduce(float(e), MPI.MAX) for e in errors)
    report = {
        "grid": " x ".join(map(str, cart.dims)),
        "bytes_sent": sum(m.nbytes for m in messages if m.kind == "send"),
        "transports": sorted({m.transport for m in messages}),
        "halo_error": halo_error,
        "laplacian_error": laplacian_error,
    }
    cart.Free()
    return report


if __name__ == "__main__":
    result = run(MPI.COMM_WORLD)
    if MPI.COMM_WORLD.rank == 0:
        print(*(f"{name}: {value}" for name, value in result.items()), sep="\n")
    if max(result["halo_error"], result["laplacian_error"]) > 0:
        raise SystemExit(1)
