"""The heat equation on a square: a 2-D grid of ranks, halos of rows and columns by one Channel.

mpiexec -n 4 python -m pchan.examples.heat2d
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

import pchan

Array = npt.NDArray[np.float64]


class Exchanger(Protocol):
    """A Channel, or the same by mpi4py."""

    def exchange(self) -> None: ...
    def free(self) -> None: ...


def initial(n: int) -> Array:
    """A warm corner in a square of n x n with a cold rim."""
    u = np.zeros((n, n))
    u[1 : n // 2, 1 : n // 3] = 1.0
    u[1:-1, 1:-1] += np.random.default_rng(1).random((n - 2, n - 2)) / 10
    return u


def advance(u: Array, new: Array) -> None:
    """One explicit step of the interior."""
    new[1:-1, 1:-1] = u[1:-1, 1:-1] + 0.2 * (
        u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1]
    )


def halo(cart: MPI.Cartcomm, u: Array) -> list[tuple[Array, Array, int]]:
    """[(edge to send, halo to receive, neighbour)] of all four sides; columns are strided views."""
    north, south = cart.Shift(0, 1)
    west, east = cart.Shift(1, 1)
    return [
        (u[1, 1:-1], u[0, 1:-1], north),
        (u[-2, 1:-1], u[-1, 1:-1], south),
        (u[1:-1, 1], u[1:-1, 0], west),
        (u[1:-1, -2], u[1:-1, -1], east),
    ]


def by_channel(cart: MPI.Cartcomm, arrays: Sequence[Array]) -> list[pchan.Channel]:
    """A connected Channel for each of the two arrays that take turns."""
    channels = []
    for u in arrays:
        ch = pchan.Channel(cart)
        for edge, rim, neighbour in halo(cart, u):
            ch.recv_init(rim, neighbour)
            ch.send_init(edge, neighbour)
        ch.connect()
        channels.append(ch)
    return channels


class ByPrequest:
    """The same by mpi4py's persistent requests, with its own vector types for the columns."""

    def __init__(self, cart: MPI.Cartcomm, u: Array) -> None:
        rows = u.shape[0] - 2
        self.column = MPI.DOUBLE.Create_vector(rows, 1, u.shape[1]).Commit()
        flat = u.reshape(-1)
        self.requests: list[MPI.Prequest] = []
        for edge, rim, neighbour in halo(cart, u):
            for kind, side in (("recv", rim), ("send", edge)):
                start = (side.__array_interface__["data"][0] - u.__array_interface__["data"][0]) // 8
                contiguous = side.strides[0] == 8
                spec = [flat[start:], len(side) if contiguous else 1, MPI.DOUBLE if contiguous else self.column]
                request = cart.Recv_init(spec, neighbour) if kind == "recv" else cart.Send_init(spec, neighbour)
                self.requests.append(request)

    def exchange(self) -> None:
        MPI.Prequest.Startall(self.requests)
        MPI.Prequest.Waitall(self.requests)

    def free(self) -> None:
        for request in self.requests:
            request.Free()
        self.column.Free()


def solve(exchangers: Sequence[Exchanger], arrays: Sequence[Array], n_steps: int) -> float:
    """Seconds spent in halo exchange. The result is in arrays[n_steps % 2]."""
    seconds = 0.0
    for step in range(n_steps):
        begin = time.perf_counter()
        exchangers[step % 2].exchange()
        seconds += time.perf_counter() - begin
        advance(arrays[step % 2], arrays[(step + 1) % 2])
    return seconds


def run(comm: MPI.Intracomm, n: int = 66, n_steps: int = 400) -> dict[str, Any]:
    """Collective. The difference from a serial run, and the times of both kinds of exchange."""
    dims = MPI.Compute_dims(comm.size, 2)
    cart = comm.Create_cart(dims)
    whole = [initial(n), initial(n)]
    mine = []
    for d, place in zip(dims, cart.coords, strict=True):
        cuts = np.linspace(1, n - 1, d + 1).astype(int)
        mine.append(slice(cuts[place] - 1, cuts[place + 1] + 1))
    seconds: dict[str, float] = {}
    parts: dict[str, Array] = {}
    for name in ("mpi4py", "pchan", "mpi4py", "pchan"):
        arrays = [whole[0][tuple(mine)].copy() for _ in range(2)]
        exchangers = by_channel(cart, arrays) if name == "pchan" else [ByPrequest(cart, u) for u in arrays]
        spent = cart.allreduce(solve(exchangers, arrays, n_steps), MPI.MAX)
        seconds[name], parts[name] = min(spent, seconds.get(name, spent)), arrays[n_steps % 2]
        for exchanger in exchangers:
            exchanger.free()
    for step in range(n_steps):  # the serial run
        advance(whole[step % 2], whole[(step + 1) % 2])
    inner = np.s_[1:-1, 1:-1]
    difference = np.abs(parts["pchan"][inner] - whole[n_steps % 2][tuple(mine)][inner]).max(initial=0.0)
    difference = cart.allreduce(float(difference), MPI.MAX)
    cart.Free()
    pchan_us, mpi4py_us = (1e6 * seconds[name] / n_steps for name in ("pchan", "mpi4py"))
    return {
        "n": n,
        "grid": f"{dims[0]} x {dims[1]}",
        "n_steps": n_steps,
        "difference": difference,
        "pchan_us": pchan_us,
        "mpi4py_us": mpi4py_us,
        "ratio": mpi4py_us / pchan_us,
    }


if __name__ == "__main__":
    result = run(MPI.COMM_WORLD)
    if MPI.COMM_WORLD.rank == 0:
        print(*(f"{name}: {value}" for name, value in result.items()), sep="\n")
