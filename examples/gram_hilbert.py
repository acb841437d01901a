# SPDX-License-Identifier: MIT
"""The Gram matrix of monomials at Gauss-Legendre nodes, which must come out as the Hilbert matrix.

P has a row sqrt(w_k) * (1, x_k, x_k^2, ...) for each node of [0, 1].  The quadrature is exact for the
products, so Q = P^T P has the elements 1 / (i + j + 1), to the accuracy that gram states:
|dQ_ij| <= 2 sqrt(K) 2^-N norm_i norm_j for K nodes and N bits.

    mpiexec -n 2 python -m pchan.examples.gram_hilbert
"""

from __future__ import annotations

import time
from typing import Any

import mpmath
import numpy as np
from mpi4py import MPI

import pchan

GUARD_BITS = 64


def legendre(n: int, t: Any) -> tuple[Any, Any]:
    """Legendre's polynomial of degree n >= 1 and its derivative."""
    previous, value = mpmath.mpf(1), t
    for m in range(1, n):
        previous, value = value, ((2 * m + 1) * t * value - m * previous) / (m + 1)
    return value, n * (t * value - previous) / (t * t - 1)


def legendre_node(k: int, n_nodes: int, bits: int) -> tuple[Any, Any]:
    """k-th node and weight of Gauss-Legendre quadrature on [0, 1], by Newton's method."""
    with mpmath.workprec(bits + 32):
        t = mpmath.cos(mpmath.pi * (k + mpmath.mpf(3) / 4) / (n_nodes + mpmath.mpf(1) / 2))
        step = mpmath.mpf(1)
        while abs(step) > mpmath.ldexp(1, -bits // 2 - 16):  # the next step is about its square
            value, slope = legendre(n_nodes, t)
            step = value / slope
            t -= step
        slope = legendre(n_nodes, t)[1]
        return (1 + t) / 2, 1 / ((1 - t * t) * slope**2)


def rows_of_p(nodes: range, n: int, n_nodes: int, bits: int) -> list[list[Any]]:
    rows = []
    for k in nodes:
        x, weight = legendre_node(k, n_nodes, bits)
        with mpmath.workprec(bits):
            row = [mpmath.sqrt(weight)]
            for _ in range(n - 1):
                row.append(row[-1] * x)
        rows.append(row)
    return rows


def error_over_bound(g: pchan.Gram, n_nodes: int) -> Any:
    """Largest |Q_ij - 1 / (i + j + 1)| of this rank's elements, in units of the bound."""
    with mpmath.workprec(g.precision + GUARD_BITS):
        unit = 2 * mpmath.sqrt(n_nodes) * mpmath.ldexp(1, -g.precision)
        return max(
            (
                abs(value - mpmath.mpf(1) / (i + j + 1)) / (unit * g.norms[i] * g.norms[j])
                for value, i, j in zip(g.values(), g.q.rows.tolist(), g.q.cols.tolist(), strict=True)
            ),
            default=mpmath.mpf(0),
        )


def run(comm: MPI.Intracomm, n: int = 60, precision: int = 1024) -> dict[str, Any]:
    """Compute, compare, and return the same report on every rank.  Collective over `comm`."""
    n_nodes = n  # exact up to degree 2 n - 1
    p = rows_of_p(range(comm.rank, n_nodes, comm.size), n, n_nodes, precision + GUARD_BITS)
    begin = time.perf_counter()
    g = pchan.gram(p, comm, precision)
    seconds = time.perf_counter() - begin
    ends = np.array([float(error_over_bound(g, n_nodes)), seconds])
    comm.Allreduce(MPI.IN_PLACE, ends, op=MPI.MAX)
    bound = 2 * mpmath.sqrt(n_nodes) * mpmath.ldexp(1, -precision)
    return {
        "n": n,
        "nodes": n_nodes,
        "precision": precision,
        "ranks": comm.size,
        "max_error": mpmath.mpf(ends[0]) * bound,  # of Q_ij / (norm_i norm_j)
        "bound": bound,
        "within_bound": bool(ends[0] <= 1),
        "cond_number": g.cond_number(),
        "gram_s": float(ends[1]),
    }


if __name__ == "__main__":
    report = run(MPI.COMM_WORLD)
    if MPI.COMM_WORLD.rank == 0:
        print(*(f"{name}: {value}" for name, value in report.items()), sep="\n")
    if not report["within_bound"]:
        raise SystemExit(1)
