"""``python -m pchan demo``: two problems whose answers are known, and how long they take."""

from __future__ import annotations

import argparse
from typing import Any

from mpi4py import MPI


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("demo", help="2-D heat equation by Channel, Hilbert matrix by gram")
    parser.set_defaults(func=run)


def run(_args: argparse.Namespace) -> int:
    """Collective over COMM_WORLD. 1 when an error exceeds its bound."""
    from pchan.examples import gram_hilbert, heat2d

    comm = MPI.COMM_WORLD
    if comm.rank == 0:
        print(f"pchan on {comm.size} rank{'s' if comm.size > 1 else ''}\n")
    good = [_report(comm, module.run(comm)) for module in (heat2d, gram_hilbert)]
    return 0 if all(good) else 1


def _report(comm: MPI.Intracomm, result: dict[str, Any]) -> bool:
    good = bool(result.pop("good"))
    if comm.rank == 0:
        print(result.pop("title"))
        for name, value in result.items():
            print(f"  {name:28} {value}")
        print(f"  {'result':28} {'correct' if good else 'WRONG'}\n", flush=True)
    return good
