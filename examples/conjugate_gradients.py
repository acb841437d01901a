# SPDX-License-Identifier: MIT
"""Conjugate gradients for Poisson's equation on a square, in strips of rows; the search direction has a halo.

mpiexec -n 4 python -m pchan.examples.conjugate_gradients
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

import pchan

Array = npt.NDArray[np.float64]


class Poisson:
    """A p = -(second differences of p), zero around the square; first and last row of p's rim are the halo."""

    def __init__(self, comm: MPI.Intracomm, n_rows: int, n: int) -> None:
        up = comm.rank - 1 if comm.rank > 0 else MPI.PROC_NULL
        down = comm.rank + 1 if comm.rank < comm.size - 1 else MPI.PROC_NULL
        self.p = np.zeros((n_rows + 2, n + 2))
        self.product = np.empty((n_rows, n))
        self.channel = pchan.Channel(comm)
        for halo, edge, peer in ((self.p[0], self.p[1], up), (self.p[-1], self.p[-2], down)):
            self.channel.recv_init(halo, peer)
            self.channel.send_init(edge, peer)
        self.channel.connect()

    def apply(self) -> Array:
        """A p; the rows that need no halo while it travels."""
        self.channel.start()
        self._rows(1, len(self.product) - 1)
        self.channel.wait()
        self._rows(0, 1)
        self._rows(max(1, len(self.product) - 1), len(self.product))
        return self.product

    def _rows(self, first: int, stop: int) -> None:
        if first < stop:
            p = self.p[first : stop + 2]
            self.product[first:stop] = 4 * p[1:-1, 1:-1] - p[:-2, 1:-1] - p[2:, 1:-1] - p[1:-1, :-2] - p[1:-1, 2:]


def dot(comm: MPI.Intracomm, a: Array, b: Array) -> float:
    return float(comm.allreduce(float(np.vdot(a, b))))


def solve(comm: MPI.Intracomm, a: Poisson, b: Array, tolerance: float, most: int) -> tuple[Array, int]:
    """x with |b - A x| <= tolerance |b| as the iteration counts it, and the number of steps."""
    x, r, p = np.zeros_like(b), b.copy(), a.p[1:-1, 1:-1]
    p[:] = r
    rr = dot(comm, r, r)
    limit = tolerance**2 * rr
    for k in range(most):
        if rr <= limit:
            return x, k
        ap = a.apply()
        alpha = rr / dot(comm, p, ap)
        x += alpha * p
        r -= alpha * ap
        rr, before = dot(comm, r, r), rr
        p *= rr / before
        p += r
    raise ArithmeticError(f"no solution after {most} steps")


def run(comm: MPI.Intracomm, n: int = 60, tolerance: float = 1e-12) -> dict[str, Any]:
    """A problem whose solution is known.  Collective; the same report on every rank."""
    cuts = np.linspace(0, n, comm.size + 1).astype(int)
    mine = slice(cuts[comm.rank], cuts[comm.rank + 1])
    solution = np.random.default_rng(1).standard_normal((n, n))[mine]
    a = Poisson(comm, *solution.shape)
    a.p[1:-1, 1:-1] = solution
    b = a.apply().copy()
    x, n_steps = solve(comm, a, b, tolerance, 10 * n)
    a.p[1:-1, 1:-1] = x
    r = b - a.apply()
    a.channel.free()
    residual = (dot(comm, r, r) / dot(comm, b, b)) ** 0.5
    error = comm.allreduce(float(np.abs(x - solution).max(initial=0.0)), MPI.MAX)
    return {"unknowns": n * n, "ranks": comm.size, "steps": n_steps, "residual": residual, "error": error}


if __name__ == "__main__":
    result = run(MPI.COMM_WORLD)
    if MPI.COMM_WORLD.rank == 0:
        print(*(f"{name}: {value}" for name, value in result.items()), sep="\n")
