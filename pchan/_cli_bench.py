# SPDX-License-Identifier: MIT
"""`python -m pchan bench channel|qreduce|gram`: the benchmarks, which are scripts beside the package's source."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any

BENCHMARKS = ("channel", "qreduce", "gram")


def add_parser(subparsers: Any) -> None:
    """Add the command `bench` to what `ArgumentParser.add_subparsers` returned; collective over COMM_WORLD."""
    parser = subparsers.add_parser(
        "bench",
        help="times channels, reduce-scatters or gram beside raw MPI and others",
        description="Runs a benchmark, all competitors in one run, and prints ratios. `bench NAME --help` lists "
        "its options; all have --full, --json FILE and --plot FILE. Channels: under mpiexec -n 2, a core each.",
    )
    parser.add_argument("name", choices=BENCHMARKS)
    parser.add_argument("options", nargs=argparse.REMAINDER, metavar="...", help="options of the benchmark")
    parser.set_defaults(func=run)


def folder() -> Path:
    """Installed into the package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent
    return next(f for f in (package / "benchmarks", package.parent / "benchmarks") if f.is_dir())


def run(args: argparse.Namespace) -> int:
    sys.path.insert(0, str(folder()))
    return int(importlib.import_module(f"bench_{args.name}").main(args.options))
