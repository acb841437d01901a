# SPDX-License-Identifier: MIT
"""`python -m pchan gram INPUT --precision N`: Q and its condition number from SDPB's input or NumPy files."""

from __future__ import annotations

import argparse
import json
import math
from typing import Any

import mpmath
import numpy as np
from mpi4py import MPI

from . import _cli_input, sdpb
from ._collective import agreed
from ._progress import bar
from ._sizes import MAX_PRECISION, MIN_PRECISION
from ._syrk import Clock
from .gram import Gram, gram

_STAGES = (
    "read",
    "convert",
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
CHECK_FAILED = 3


def add_parser(subparsers: Any) -> None:
    """Add the command `gram` to what `ArgumentParser.add_subparsers` returned.

    Sets `func`, which takes the parsed arguments, is collective over COMM_WORLD and returns the
    exit code.
    """
    parser = subparsers.add_parser(
        "gram",
        help="Q = P^T P of an SDPB folder or a NumPy file, and its condition number",
        description="Reads an SDPB folder (control.json, block_info_*.json, block_data_*.json: P is that of the "
        "solver's first iteration) or a file of P, forms Q = P^T P, and prints Q_cond_number as SDPB does. Runs "
        "alone or under mpiexec. Exit code: 0, 1 for an error, 2 for wrong arguments, 3 when a check of Q fails.",
    )
    parser.add_argument(
        "input",
        metavar="INPUT",
        help="folder that pmp2sdp --outputFormat=json wrote; or .npy, or .npz with key P: numbers [rows, columns] "
        "or uint64 limbs [rows, columns, limbs], two's complement, least significant first",
    )
    parser.add_argument("--precision", required=True, metavar="N", help="bits of the scaled P")
    parser.add_argument("--rounding", choices=("trunc", "nearest"), default="trunc", help="of the scaled P")
    parser.add_argument(
        "--scale-bits", metavar="B", help="limbs stand for integer / 2**B (or key scale_bits of the .npz)"
    )
    parser.add_argument("--memory", metavar="BYTES", help="that a node may use for Q and to work with")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.add_argument("--output", metavar="FILE", help="write Q: limbs and scale to FILE.npz, else decimal text")
    parser.set_defaults(func=run)


def _number(option: str, text: str | None, least: int, most: int, what: str) -> int | None:
    """From the command line; checked here, where an error is one line and not the usage."""
    if text is None:
        return None
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
    if not least <= value <= most:
        raise ValueError(f"{option} {text:.40}: not a number of {what} in {least}..{most}")
    return value


def run(arguments: argparse.Namespace) -> int:
    """The command.  Collective over COMM_WORLD; rank 0 prints.  Errors are raised on every rank."""
    report = _report(arguments, MPI.COMM_WORLD)
    if MPI.COMM_WORLD.rank == 0:
        print(json.dumps(report) if arguments.json else _as_text(report), flush=True)
    return 0 if report["check"] else CHECK_FAILED


def _read(
    arguments: argparse.Namespace, comm: MPI.Intracomm, precision: int
) -> tuple[Any, int | None, dict[str, int]]:
    """This rank's rows, their scale_bits, and what the report says of P.  Collective over `comm`."""
    path: str = arguments.input
    scale_bits = _number("--scale-bits", arguments.scale_bits, 0, 2**40, "bits")
    if path.endswith((".npy", ".npz")):
        rows = _cli_input.read(path, comm, scale_bits)
        return rows.rows, rows.scale_bits, {"rows": rows.n_rows, "columns": rows.n}
    if scale_bits is not None:
        raise ValueError("--scale-bits: only for .npy and .npz files")
    with bar("reading", comm.rank == 0) as progress:
        p = sdpb.read(path, comm, precision, progress=progress)
    return p.rows, None, {"blocks": p.n_blocks, "rows": p.n_rows, "columns": p.n}


def _report(arguments: argparse.Namespace, comm: MPI.Intracomm) -> dict[str, Any]:
    """Everything that is printed.  Collective over `comm`."""
    precision = _number("--precision", arguments.precision, MIN_PRECISION, MAX_PRECISION, "bits")
    memory = _number("--memory", arguments.memory, 1, 2**62, "bytes")
    assert precision is not None
    clock = Clock()
    with clock("total"):
        with clock("read"):
            rows, scale_bits, facts = _read(arguments, comm, precision)
        with clock("gram"), bar("products", comm.rank == 0) as progress:
            options = {"rounding": arguments.rounding, "memory": memory, "progress": progress}
            g = gram(rows, comm, precision, scale_bits=scale_bits, **options)
        passed = g.check()
        with clock("cholesky"):
            cond_number = g.cond_number() if passed else mpmath.mpf("nan")
    if arguments.output:
        _write(arguments.output, g)
    seconds = {stage: clock.seconds.get(stage, g.stats.get(f"{stage}_s", 0.0)) for stage in (*_STAGES, "total")}
    return {
        "input": arguments.input,
        "ranks": comm.size,
        **facts,
        "precision": precision,
        "rounding": arguments.rounding,
        "primes": int(g.stats["n_primes"]),
        "bits": int(g.stats["bits"]),
        "passes": int(_reduced(comm, g.stats["n_passes"], MPI.MAX)),
        "bytes_held": int(_reduced(comm, g.stats["bytes_held"], MPI.SUM)),
        "bytes_work": int(_reduced(comm, g.stats["bytes_work"], MPI.SUM)),
        "seconds": {stage: round(_reduced(comm, value, MPI.MAX), 4) for stage, value in seconds.items()},
        "check": passed,
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
    blocks = f", from {report['blocks']} blocks" if "blocks" in report else ""
    times = "  ".join(f"{stage} {seconds[stage]:.3f}" for stage in _STAGES)
    return "\n".join(
        [
            f"input      {report['input']}",
            f"P          {report['rows']} x {report['columns']}" + blocks,
            f"run        {report['ranks']} ranks, {report['precision']} bits, rounding {report['rounding']}",
            f"primes     {report['primes']}, for {report['bits']} bits",
            f"memory     of all ranks: {report['bytes_held']} bytes for Q, {report['bytes_work']} to work with, "
            f"{report['passes']} passes",
            f"seconds    {times}",
            f"total      {seconds['total']:.3f} s (slowest rank)",
            f"check      diagonal and range of Q {'passed' if report['check'] else 'FAILED'}",
            f"sha256     {report['sha256']} (for any ranks, nodes, layout, strategy, memory)",
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
