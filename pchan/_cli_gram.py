# SPDX-License-Identifier: MIT
"""`python -m pchan gram SDP_DIR --precision N`: Q and its condition number from SDPB's input."""

from __future__ import annotations

import argparse
import json
import math
from typing import Any

import mpmath
import numpy as np
from mpi4py import MPI

from . import sdpb
from ._collective import agreed
from ._syrk import Clock
from .gram import MAX_PRECISION, MIN_PRECISION, Gram, gram

_STAGES = (
    "read",
    "norms",
    "quantize",
    "residues",
    "syrk",
    "pack",
    "exchange",
    "accumulate",
    "restore",
    "cholesky",
)


def add_parser(subparsers: Any) -> None:
    """Add the command `gram` to what `ArgumentParser.add_subparsers` returned.

    Sets `func`, which takes the parsed arguments, is collective over COMM_WORLD and returns the
    exit code.
    """
    parser = subparsers.add_parser(
        "gram",
        help="Q = P^T P of an SDPB folder, and its condition number",
        description="Reads control.json, block_info_*.json and block_data_*.json, forms P at the solver's first "
        "iteration and Q = P^T P, and prints Q_cond_number as SDPB does. Runs alone or under mpiexec.",
    )
    parser.add_argument("directory", metavar="SDP_DIR", help="folder that pmp2sdp --outputFormat=json wrote")
    parser.add_argument("--precision", required=True, metavar="N", help="bits of the scaled P")
    parser.add_argument("--rounding", choices=("trunc", "nearest"), default="trunc", help="of the scaled P")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.add_argument("--output", metavar="FILE", help="write Q: limbs and scale to FILE.npz, else decimal text")
    parser.set_defaults(func=run)


def _precision(text: str) -> int:
    """Bits from the command line; checked here, where an error is one line and not the usage."""
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
    if not MIN_PRECISION <= value <= MAX_PRECISION:
        raise ValueError(f"--precision {text:.40}: not a number of bits in {MIN_PRECISION}..{MAX_PRECISION}")
    return value


def run(arguments: argparse.Namespace) -> int:
    """The command.  Collective over COMM_WORLD; rank 0 prints.  Errors are raised on every rank."""
    report = _report(arguments, MPI.COMM_WORLD)
    if MPI.COMM_WORLD.rank == 0:
        print(json.dumps(report) if arguments.json else _as_text(report), flush=True)
    return 0


def _report(arguments: argparse.Namespace, comm: MPI.Intracomm) -> dict[str, Any]:
    """Everything that is printed.  Collective over `comm`."""
    precision = _precision(arguments.precision)
    clock = Clock()
    with clock("total"):
        with clock("read"):
            p = sdpb.read(arguments.directory, comm, precision)
        with clock("gram"):
            g = gram(p.rows, comm, precision, rounding=arguments.rounding)
        with clock("cholesky"):
            cond_number = g.cond_number()
    if arguments.output:
        _write(arguments.output, g)
    seconds = {stage: clock.seconds.get(stage, g.stats.get(f"{stage}_s", 0.0)) for stage in (*_STAGES, "total")}
    return {
        "directory": arguments.directory,
        "ranks": comm.size,
        "blocks": p.n_blocks,
        "rows": p.n_rows,
        "columns": p.n,
        "precision": precision,
        "rounding": arguments.rounding,
        "primes": int(g.stats["n_primes"]),
        "bits": int(g.stats["bits"]),
        "bytes_held": int(_reduced(comm, g.stats["bytes_held"], MPI.SUM)),
        "seconds": {stage: round(_reduced(comm, value, MPI.MAX), 4) for stage, value in seconds.items()},
        "diagonal_check": g.check(),
        "sha256": g.sha256(),
        "Q_cond_number": mpmath.libmp.to_str(cond_number._mpf_, decimal_digits(precision)),
    }


def decimal_digits(precision: int) -> int:
    """Decimal digits that SDPB prints for that many bits."""
    return math.floor(precision * math.log10(2)) + 1


def _reduced(comm: MPI.Intracomm, value: float, op: MPI.Op) -> float:
    result = np.array([value], dtype=np.float64)
    comm.Allreduce(MPI.IN_PLACE, result, op=op)
    return float(result[0])


def _as_text(report: dict[str, Any]) -> str:
    seconds = report["seconds"]
    times = "  ".join(f"{stage} {seconds[stage]:.3f}" for stage in _STAGES)
    return "\n".join(
        [
            f"input      {report['directory']}",
            f"P          {report['rows']} x {report['columns']}, from {report['blocks']} blocks",
            f"run        {report['ranks']} ranks, {report['precision']} bits, rounding {report['rounding']}",
            f"primes     {report['primes']}, for {report['bits']} bits",
            f"memory     {report['bytes_held']} bytes held for Q by all ranks",
            f"seconds    {times}",
            f"total      {seconds['total']:.3f} s (slowest rank)",
            f"check      diagonal of Q {'passed' if report['diagonal_check'] else 'FAILED'}",
            f"sha256     {report['sha256']}",
            f"Q_cond_number {report['Q_cond_number']}",
        ]
    )


def _write(path: str, g: Gram) -> None:
    """Q to a file by rank 0.  Collective.

    npz: q uint64[n (n + 1) / 2, n_limbs] (upper triangle, row-major, two's complement limbs, least
    significant first), norms uint64[n, limbs], norm_exponents int64[n] (norm = norms * 2**exponent)
    and precision N: Q_ij = q_ij * norm_i * norm_j / 4**N.  Otherwise one line per row, decimal.
    """
    comm = g.q.comm
    if path.endswith(".npz"):
        arrays = g.to_arrays()
        with agreed(comm):
            if arrays is not None:
                _named(path, lambda: np.savez(path, **arrays))  # type: ignore[arg-type]
        return
    matrix = g.gather()
    with agreed(comm):
        if matrix is not None:
            digits = decimal_digits(g.precision)
            lines = [" ".join(mpmath.libmp.to_str(x._mpf_, digits) for x in row) for row in matrix]
            _named(path, lambda: _write_text(path, "\n".join(lines) + "\n"))


def _write_text(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def _named(path: str, write: Any) -> None:
    """Run `write`, with the path in whatever it raises."""
    try:
        write()
    except OSError as exc:
        raise type(exc)(f"{path}: {exc.strerror or exc}") from exc
