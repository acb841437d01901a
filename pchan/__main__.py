"""``python -m pchan info | demo | gram | bench``, alone or under mpiexec. Rank 0 prints; errors are one line."""

from __future__ import annotations

import sys

from mpi4py import MPI

from . import _cli_bench, _cli_gram, _demo, _info
from ._parser import Parser


def main(argv: list[str] | None = None) -> int:
    parser = Parser(prog="python -m pchan", description="pchan: persistent operations for mpi4py programs")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
    for module in (_info, _demo, _cli_gram, _cli_bench):
        module.add_parser(commands)
    args = parser.parse_args(argv)
    try:
        return int(args.func(args))
    except (OSError, ValueError, TypeError, ArithmeticError, MemoryError) as e:
        # such errors are raised on all ranks, so that all end; the lowest that can says why
        if MPI.COMM_WORLD.rank == 0:
            sys.stderr.write(f"python -m pchan {args.command}: {_one_line(e)}\n")
        return 1


def _one_line(error: BaseException) -> str:
    text = str(error) or type(error).__name__
    if isinstance(error, OSError) and error.filename and error.strerror:
        text = f"{error.filename}: {error.strerror}"
    return " ".join(text.split())


if __name__ == "__main__":
    sys.exit(main())
