# SPDX-License-Identifier: MIT
"""Least squares by normal equations that have the same bits on any number of ranks.

The float64 entries of A and b are integers over a power of two, so gram sums A^T A and A^T b exactly; they are
solved in Fractions and rounded once, at the end.  Sums in float64 depend on who adds what.

    mpiexec -n 3 python -m pchan.examples.normal_equations
"""

from __future__ import annotations

import hashlib
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

import pchan

Array = npt.NDArray[np.float64]


def rows(numbers: range, n: int) -> Array:
    """These rows of [A b]: a cubic, or other degree n - 1, seen with noise.  A row depends on its number only."""
    table = np.empty((len(numbers), n + 1))
    for row, k in zip(table, numbers, strict=True):
        t, noise = np.random.default_rng(k).random(2)
        row[:n] = t ** np.arange(n)
        row[n] = row[:n] @ (1.0 + np.arange(n)) + (noise - 0.5) / 100
    return table


def solve(a: list[list[Fraction]], b: list[Fraction]) -> list[Fraction]:
    """a x = b by Gauss-Jordan elimination, for a positive definite a: no pivoting is needed."""
    table = [[*row, right] for row, right in zip(a, b, strict=True)]
    for k, pivot in enumerate(table):
        pivot[:] = [x / pivot[k] for x in pivot]
        for i, row in enumerate(table):
            if i != k:
                row[:] = [x - row[k] * y for x, y in zip(row, pivot, strict=True)]
    return [row[-1] for row in table]


def digest(x: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(x, dtype="<f8").tobytes()).hexdigest()


def run(comm: MPI.Intracomm, m: int = 2000, n: int = 4) -> dict[str, Any]:
    """Collective over `comm`; the report is on rank 0, elsewhere it is empty."""
    p = rows(range(comm.rank, m, comm.size), n)
    g = pchan.gram(p, comm, 64, normalize=False)  # exact; the 64 bits serve cond_number only
    q = g.gather()
    floats = np.empty((n + 1, n + 1))
    comm.Reduce(p.T @ p, floats if comm.rank == 0 else None)
    if q is None:
        return {}
    exact = [[Fraction(x) for x in row] for row in q]
    x = solve([row[:n] for row in exact[:n]], [row[n] for row in exact[:n]])
    return {
        "ranks": comm.size,
        "x": np.array([float(value) for value in x]),
        "sha256_of_x": digest(np.array([float(value) for value in x])),
        "sha256_of_q": digest(np.array([[float(value) for value in row] for row in exact])),
        "sha256_of_float64_sums": digest(floats),
    }


if __name__ == "__main__":
    report = run(MPI.COMM_WORLD)
    for name, value in report.items():
        print(f"{name}: {value}")
