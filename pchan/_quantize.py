# SPDX-License-Identifier: MIT
"""quantize: what the rows of P are divided by, the same for every deal of the rows over ranks.

Collective functions here split into local parts, which run under `agreed`, and buffer reductions of
integers, which do not depend on who had which row.
"""

from __future__ import annotations

import math

import numpy as np
from mpi4py import MPI

from ._collective import agreed
from ._exact import MAX_BITS, ZERO_TOP, Exact, IntArray, ObjectArray, Scale, least_common_multiple

NORM_GUARD_BITS = 64
_ROW_BITS = 40  # fewer than 2**40 rows in total


def total_rows(comm: MPI.Intracomm, k: int) -> int:
    """Rows of all ranks.  Collective over `comm`."""
    total = np.array([k], dtype=np.int64)
    comm.Allreduce(MPI.IN_PLACE, total, op=MPI.SUM)
    return int(total[0])


def column_norms(exact: Exact, comm: MPI.Intracomm, precision: int) -> tuple[ObjectArray, IntArray]:
    """Column norms over all ranks, rounded up to precision + 64 bits.  Collective over `comm`.

    Returns
    -------
    mantissas : object[n]
    exponents : int64[n]
        norm = mantissa * 2**exponent, 0 for a zero column; norm >= the true one, and less than
        (1 + 2**-(precision + 62)) times it.  The same bits for every deal of the rows over ranks.

    Notes
    -----
    A square is cut off at 2**-width of the largest square that its column could hold, so that
    far-off exponents cost no memory.  Integers add up to the same in any order, and one unit for
    each square that was cut keeps the sum an upper bound.
    """
    digits = precision + NORM_GUARD_BITS
    width = 2 * digits + 64
    with agreed(comm):
        column_tops, _ = exact.ends()
    comm.Allreduce(MPI.IN_PLACE, column_tops, op=MPI.MAX)
    column_tops[column_tops == ZERO_TOP] = 0
    with agreed(comm):
        sums = exact.square_sums(width - 2 * column_tops, width + _ROW_BITS)
    totals = _sum_integers(comm, sums, width + _ROW_BITS)
    norms = [_root_up(total, digits) for total in totals]
    mantissas = np.array([m for m, _ in norms], dtype=object)
    exponents = np.array([e for _, e in norms], dtype=np.int64) + column_tops - width // 2
    return mantissas, np.where(mantissas == 0, 0, exponents)


def _sum_integers(comm: MPI.Intracomm, ints: ObjectArray, bits: int) -> list[int]:
    """Exact sums over ranks of non-negative integers below 2**bits.  Collective over `comm`."""
    n_bytes = 4 * (bits // 32 + 1)
    data = b"".join(int(x).to_bytes(n_bytes, "little") for x in ints)
    digits = np.frombuffer(data, dtype="<u4").astype(np.int64).reshape(len(ints), -1)
    comm.Allreduce(MPI.IN_PLACE, digits, op=MPI.SUM)
    low, high = (digits & 0xFFFFFFFF).astype("<u4"), (digits >> 32).astype("<u4")
    return [
        int.from_bytes(a.tobytes(), "little") + (int.from_bytes(b.tobytes(), "little") << 32)
        for a, b in zip(low, high, strict=True)
    ]


def _root_up(total: int, digits: int) -> tuple[int, int]:
    """(mantissa, exponent) of the square root, rounded up to `digits` bits."""
    root = math.isqrt(total)
    root += root * root < total
    excess = max(root.bit_length() - digits, 0)
    return -(-root >> excess), excess


def exact_scale(exact: Exact, comm: MPI.Intracomm) -> tuple[Scale, int, int]:
    """Common exponent and denominator that make all of P integers, and their bits.  Collective over `comm`.

    Returns
    -------
    scale : Scale
    entry_bits : int
        abs(P'_ki) < 2**entry_bits.
    bits : int
        abs(Q'_ij) < 2**bits for any subset of the rows.

    Raises
    ------
    ValueError
        On every rank: Q' would need more than 65536 bits.
    """
    with agreed(comm):
        lcm = exact.common_denominator()
        tops, bottom = exact.ends()
        ends = np.array([tops.max(initial=ZERO_TOP), -min(bottom, 0)], dtype=np.int64)
    comm.Allreduce(MPI.IN_PLACE, ends, op=MPI.MAX)
    with agreed(comm):
        denominator = least_common_multiple(_allgather_integers(comm, lcm))
    exponent = -int(ends[1])
    entry_bits = max(1, int(ends[0]) - exponent + denominator.bit_length())
    # a sum of k products is below k * 4**entry_bits
    bits = 2 * entry_bits + total_rows(comm, exact.k).bit_length()
    if bits > MAX_BITS:
        raise ValueError(
            f"exact products of these entries need {bits} bits, more than {MAX_BITS}: their sizes or "
            "denominators differ too much; use normalize=True"
        )
    ones = np.full(exact.n, 1, dtype=object)
    return Scale(ones, np.zeros(exact.n, dtype=np.int64), exponent, denominator), entry_bits, bits


def _allgather_integers(comm: MPI.Intracomm, x: int) -> list[int]:
    """One positive integer, of at most MAX_BITS bits, of each rank.  Collective over `comm`."""
    n_bytes = np.array([x.bit_length() // 8 + 1], dtype=np.int64)
    comm.Allreduce(MPI.IN_PLACE, n_bytes, op=MPI.MAX)
    mine = np.frombuffer(x.to_bytes(int(n_bytes[0]), "little"), dtype=np.uint8)
    everyone = np.empty((comm.Get_size(), len(mine)), dtype=np.uint8)
    comm.Allgather(mine, everyone)
    return [int.from_bytes(row.tobytes(), "little") for row in everyone]
