# SPDX-License-Identifier: MIT
"""The distributed result of gram, handed to ScaLAPACK-style code and to python-flint.

ScaLAPACK keeps a matrix block-cyclic over a grid of ranks; with the layout `BlockCyclic` every rank already owns
the upper triangle's elements of its local array, so that they only have to be put in place, ready for
pdpotrf with uplo = 'U'.  python-flint gets the gathered matrix, as balls, and bounds its determinant.

    mpiexec -n 4 python -m pchan.examples.gram_handover
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

import pchan


def grid_of(size: int) -> tuple[int, int]:
    """Rows and columns of the most nearly square grid."""
    rows = next(r for r in range(int(size**0.5), 0, -1) if size % r == 0)
    return rows, size // rows


def numroc(n: int, block: int, coordinate: int, parts: int) -> int:
    """Rows (or columns) of the local array, as ScaLAPACK's function of that name counts them."""
    return sum(min(block, n - start) for start in range(coordinate * block, n, parts * block))


def local_array(g: pchan.Gram, grid: tuple[int, int], block: int) -> npt.NDArray[np.float64]:
    """This rank's local array in column-major order, its upper triangle filled.  Local.

    ScaLAPACK's grid must number its processes column by column: blacs_gridinit(context, 'C', *grid).
    """
    row, column = g.q.comm.rank % grid[0], g.q.comm.rank // grid[0]
    shape = numroc(g.n, block, row, grid[0]), numroc(g.n, block, column, grid[1])
    local = np.zeros(shape, dtype=np.float64, order="F")
    i = g.q.rows // (block * grid[0]) * block + g.q.rows % block
    j = g.q.cols // (block * grid[1]) * block + g.q.cols % block
    local[i, j] = g.to_float64()
    return local


def determinant(matrix: Any, bits: int) -> Any:
    """A ball that holds the determinant of Q, by python-flint; None where it is not installed."""
    try:
        import flint
    except ImportError:
        return None
    with flint.ctx.workprec(bits):
        balls = [[flint.arb(_pair(x)) for x in row] for row in matrix]
        return flint.arb_mat(balls).det()


def _pair(x: Any) -> tuple[int, int]:
    sign, mantissa, exponent, _ = x._mpf_
    return int(-mantissa if sign else mantissa), int(exponent)


def run(comm: MPI.Intracomm, n: int = 10, block: int = 2, precision: int = 256) -> dict[str, Any]:
    """Q of Hilbert-like rows; both hand-overs.  Collective over `comm`; the same report on every rank."""
    grid = grid_of(comm.size)
    rows = [[Fraction(1, i + j + 1) for j in range(n)] for i in range(comm.rank, n, comm.size)]
    g = pchan.gram(rows, comm, precision, layout=pchan.BlockCyclic(grid, block))
    local = local_array(g, grid, block)
    q = g.gather()
    report: dict[str, Any] = {"grid": grid, "shapes": comm.allgather(local.shape), "determinant": None}
    trace = comm.allreduce(float(g.to_float64()[g.q.rows == g.q.cols].sum()))
    report["trace"] = trace
    if q is not None:
        det = determinant(q, precision)
        report["determinant"] = None if det is None else float(det)
    report["determinant"] = comm.bcast(report["determinant"])
    report["local"] = local
    return report


def main() -> None:
    comm = MPI.COMM_WORLD
    report = run(comm)
    if comm.rank == 0:
        print(f"grid {report['grid'][0]} x {report['grid'][1]}, local arrays {report['shapes']}")
        print(f"trace of Q {report['trace']:.15g}")
        if report["determinant"] is not None:
            print(f"determinant of Q {report['determinant']:.12g}")


if __name__ == "__main__":
    main()
