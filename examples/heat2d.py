"""The heat equation on a square: a 2-D grid of ranks, halos of rows and columns by one Channel.

mpiexec -n 4 python -m pchan.examples.heat2d
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI
from pchan.examples.heat2d_prequest import ByPrequest

import pchan

Array = npt.NDArray[np.float64]
Sides = list[tuple[Array, Array, int]]


def initial(n: int) -> Array:
    """A warm corner in a square of n x n with a cold rim."""
    u = np.zeros((n, n))
    u[1 : n // 2, 1 : n // 3] = 1.0
    u[1:-1, 1:-1] += np.random.default_rng(1).random((n - 2, n - 2)) / 10
    return u


def advance(u: Array, new: Array) -> None:
    """One explicit step of the interior."""
    around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
    new[1:-1, 1:-1] = 0.2 * (u[1:-1, 1:-1] + around)


def halo(cart: MPI.Cartcomm, u: Array) -> Sides:
    """[(edge to send, halo to receive, neighbour)] of all four sides; columns are strided views."""
    north, south = cart.Shift(0, 1)
    west, east = cart.Shift(1, 1)
    return [
        (u[1, 1:-1], u[0, 1:-1], north),
        (u[-2, 1:-1], u[-1, 1:-1], south),
        (u[1:-1, 1], u[1:-1, 0], west),
        (u[1:-1, -2], u[1:-1, -1], east),
    ]


def by_channel(cart: MPI.Cartcomm, sides: Sides) -> pchan.Channel:
    ch = pchan.Channel(cart)
    for edge, rim, neighbour in sides:
        ch.recv_init(rim, neighbour)
        ch.send_init(edge, neighbour)
    ch.connect()
    return ch


def solve(exchangers: list[pchan.Channel | ByPrequest], arrays: list[Array], n_steps: int) -> float:
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
    cart = comm.Create_cart(MPI.Compute_dims(comm.size, 2))
    whole = [initial(n), initial(n)]
    mine = []
    for d, place in zip(cart.dims, cart.coords, strict=True):
        cuts = np.linspace(1, n - 1, d + 1).astype(int)
        mine.append(slice(cuts[place] - 1, cuts[place + 1] + 1))
    seconds: dict[str, float] = {}
    parts: dict[str, Array] = {}
    for name in ("mpi4py", "pchan", "mpi4py", "pchan"):
        arrays = [whole[0][tuple(mine)].copy() for _ in range(2)]
        make = by_channel if name == "pchan" else ByPrequest
        exchangers = [make(cart, halo(cart, u)) for u in arrays]
        spent = cart.allreduce(solve(exchangers, arrays, n_steps), MPI.MAX)
        seconds[name], parts[name] = min(spent, seconds.get(name, spent)), arrays[n_steps % 2]
        for exchanger in exchangers:
            exchanger.free()
    for step in range(n_steps):  # the serial run
        advance(whole[step % 2], whole[(step + 1) % 2])
    off = np.abs(parts["pchan"] - whole[n_steps % 2][tuple(mine)])[1:-1, 1:-1]
    difference = cart.allreduce(float(off.max(initial=0.0)), MPI.MAX)
    report = {"n": n, "grid": " x ".join(map(str, cart.dims)), "n_steps": n_steps, "difference": difference}
    report |= {f"{name}_us": 1e6 * spent / n_steps for name, spent in seconds.items()}
    cart.Free()
    return report


if __name__ == "__main__":
    result = run(MPI.COMM_WORLD)
    if MPI.COMM_WORLD.rank == 0:
        print(*(f"{name}: {value}" for name, value in result.items()), sep="\n")
