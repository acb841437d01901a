# SPDX-License-Identifier: MIT
"""Command lines under mpiexec."""

from __future__ import annotations

import argparse
import sys
from typing import Any, NoReturn

from mpi4py import MPI


class Parser(argparse.ArgumentParser):
    """Complains once, on rank 0, in one line."""

    def error(self, message: str) -> NoReturn:
        if MPI.COMM_WORLD.rank == 0:
            sys.stderr.write(f"{self.prog}: {message} (see {self.prog} --help)\n")
        sys.exit(2)

    def print_help(self, file: Any = None) -> None:
        if MPI.COMM_WORLD.rank == 0:
            super().print_help(file)
