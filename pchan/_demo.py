"""``python -m pchan demo``: two problems whose answers are known, and how long they take."""

from __future__ import annotations

import argparse
from typing import Any

import mpmath
from mpi4py import MPI


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("demo", help="2-D heat equation by Channel, Hilbert matrix by gram")
    parser.set_defaults(func=run)


def run(_args: argparse.Namespace) -> int:
    """Collective over COMM_WORLD. 1 when an error exceeds its bound."""
    from pchan.examples import gram_hilbert, heat2d

    comm = MPI.COMM_WORLD
    heat, hilbert = heat2d.run(comm), gram_hilbert.run(comm)
    if comm.rank == 0:
        print(f"pchan on {comm.size} rank{'s' if comm.size > 1 else ''}\n")
        print(f"Heat equation on {heat['n']} x {heat['n']}, {heat['grid']} ranks, {heat['n_steps']} steps")
        print(f"  largest difference from a serial run  {heat['difference']:g}")
        print(f"  halo exchange by pchan                {heat['pchan_us']:.2f} us a step")
        print(
            f"  halo exchange by mpi4py's Prequest    {heat['mpi4py_us']:.2f} us a step, "
            f"ratio {heat['mpi4py_us'] / heat['pchan_us']:.2f}\n"
        )
        error, bound = (mpmath.nstr(hilbert[key], 3) for key in ("max_error", "bound"))
        print(
            f"Hilbert matrix {hilbert['n']} x {hilbert['n']} from {hilbert['nodes']} Gauss-Legendre nodes, "
            f"{hilbert['precision']} bits"
        )
        print(f"  largest error                         {error} (stated bound {bound})")
        print(f"  time of gram                          {hilbert['gram_s']:.3f} s\n")
    good = heat["difference"] == 0 and hilbert["within_bound"]
    if comm.rank == 0:
        print("Both results are correct." if good else "A RESULT IS WRONG.", flush=True)
    return 0 if good else 1
