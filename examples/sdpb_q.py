# SPDX-License-Identifier: MIT
"""Q of an SDPB folder, handed to mpmath on rank 0.

mpiexec -n 2 python -m pchan.examples.sdpb_q SDP_DIR [PRECISION]
"""

from __future__ import annotations

import sys
from typing import Any

import mpmath
from mpi4py import MPI

import pchan
from pchan import sdpb


def smallest_eigenvalue_hint(q: Any, precision: int) -> Any:
    """1 / trace(Q^-1), a lower bound of Q's smallest eigenvalue, by mpmath's Cholesky."""
    with mpmath.workprec(precision):
        inverse = mpmath.cholesky(mpmath.matrix(q.tolist())) ** -1
        return 1 / sum(x * x for x in inverse)


def run(comm: MPI.Intracomm, directory: str, precision: int = 768) -> dict[str, Any]:
    """Read, form Q, look at it.  Collective over `comm`; the matrix is on rank 0 only."""
    p = sdpb.read(directory, comm, precision)  # this rank's blocks
    g = pchan.gram(p.rows, comm, precision)  # each rank now owns some elements: g.q.rows, g.q.cols, g.values()
    report = {"n": g.n, "rows": p.n_rows, "check": g.check(), "cond_number": g.cond_number()}
    q = g.gather()
    if q is not None:
        report["smallest_eigenvalue_above"] = smallest_eigenvalue_hint(q, precision)
    return report


def main() -> None:
    comm = MPI.COMM_WORLD
    if len(sys.argv) not in (2, 3):
        raise SystemExit("usage: python -m pchan.examples.sdpb_q SDP_DIR [PRECISION]")
    report = run(comm, sys.argv[1], *map(int, sys.argv[2:]))
    if comm.rank == 0:
        print(f"P is {report['rows']} x {report['n']}; diagonal of Q {'good' if report['check'] else 'BAD'}")
        for key in ("cond_number", "smallest_eigenvalue_above"):
            print(f"{key:26} {mpmath.nstr(report[key], 30)}")


if __name__ == "__main__":
    main()
