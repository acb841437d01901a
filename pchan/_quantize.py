# SPDX-License-Identifier: MIT
"""quantize: rows of P to integers, after norms that are the same for every deal of the rows.

Collective functions here split into local parts, which the caller runs under `agreed`, and
buffer reductions of integers, which do not depend on who had which row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI
from mpmath.libmp import MPZ

from ._collective import agreed
from ._numbers import ZERO_TOP, Exact, IntArray, ObjectArray, bit_lengths

NORM_GUARD_BITS = 64
MAX_BITS = 65536  # PCHAN_MAX_BITS
_BLOCK_ENTRIES = 1 << 15
_ROW_BITS = 40  # fewer than 2**40 rows in total


@dataclass
class Scale:
    """What turns Q' into Q: Q_ij = Q'_ij * s_i * s_j * 4**exponent / denominator**2.

    s_j = mantissas[j] * 2**exponents[j] are the column norms, or one.
    """

    mantissas: ObjectArray
    exponents: IntArray
    exponent: int
    denominator: int = 1


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
        column_tops = exact.tops().max(axis=0, initial=ZERO_TOP)
    comm.Allreduce(MPI.IN_PLACE, column_tops, op=MPI.MAX)
    column_tops[column_tops == ZERO_TOP] = 0
    with agreed(comm):
        sums = np.full(exact.n, 0, dtype=object)
        for block in row_blocks(exact):
            sums = sums + _squares(block, column_tops, width).sum(axis=0)
    totals = _sum_integers(comm, sums, width + _ROW_BITS)
    norms = [_root_up(total, digits) for total in totals]
    mantissas = np.array([m for m, _ in norms], dtype=object)
    exponents = np.array([e for _, e in norms], dtype=np.int64) + column_tops - width // 2
    return mantissas, np.where(mantissas == 0, 0, exponents)


def row_blocks(exact: Exact) -> Iterator[Exact]:
    """Views of a few rows each, which bounds the temporaries of object arithmetic."""
    step = max(1, _BLOCK_ENTRIES // exact.n)
    for i in range(0, exact.k, step):
        rows = slice(i, i + step)
        dens = None if exact.denominators is None else exact.denominators[rows]
        yield Exact(exact.mantissas[rows], exact.exponents[rows], dens, exact.n)


def _squares(block: Exact, column_tops: IntArray, width: int) -> ObjectArray:
    """ceil(entry**2 * 2**(width - 2 * top)), object[rows, n]."""
    shift = np.where(block.mantissas == 0, 0, width - 2 * column_tops + 2 * block.exponents)
    right = np.minimum(np.maximum(-shift, 0), 2 * bit_lengths(block.mantissas) + 1)
    negative = _shifted(-(block.mantissas * block.mantissas), np.maximum(shift, 0))
    if block.denominators is not None:
        return np.asarray(-(negative // _shifted(block.denominators * block.denominators, right)))
    return np.asarray(-(negative >> right.astype(object) if right.any() else negative))


def _shifted(ints: ObjectArray, left: IntArray) -> ObjectArray:
    return np.asarray(ints << left.astype(object)) if left.any() else ints


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


def quantize(exact: Exact, scale: Scale, precision: int, rounding: str) -> ObjectArray:
    """P' = P / norm * 2**precision as integers, object[k, n].  Local.

    rounding "trunc" cuts towards zero as SDPB does, "nearest" halves the error (ties away from
    zero).  The quotient is exact before it is rounded.
    """
    result = np.empty((exact.k, exact.n), dtype=object)
    divisors = np.array([MPZ(m) if m else MPZ(1) for m in scale.mantissas], dtype=object)
    row = 0
    for block in row_blocks(exact):
        shift = block.exponents + (precision - scale.exponents)
        result[row : row + block.k] = _divided(block, divisors, shift, rounding == "nearest")
        row += block.k
    return result


def _divided(block: Exact, divisors: ObjectArray, shift: IntArray, nearest: bool) -> ObjectArray:
    """entry's mantissa * 2**shift / divisor / denominator, rounded, object[rows, n]."""
    if block.denominators is not None:
        divisors = divisors * block.denominators
    # Quotients below 1/2 become 0 here: their shift may be anything.
    small = bit_lengths(block.mantissas) + shift - bit_lengths(divisors) < -1
    mantissas = np.where(small, 0, block.mantissas)
    shift = np.where(small, 0, shift)
    numerators = _shifted(abs(mantissas), np.maximum(shift, 0))
    divisors = _shifted(np.broadcast_to(divisors, shift.shape), np.maximum(-shift, 0))
    quotients = (2 * numerators + divisors) // (2 * divisors) if nearest else numerators // divisors
    return np.asarray(np.where(mantissas < 0, -quotients, quotients))


def exact_scale(exact: Exact, comm: MPI.Intracomm) -> tuple[Scale, int]:
    """Common exponent and denominator that make all of P integers, and bits for Q'.  Collective over `comm`.

    Returns
    -------
    scale : Scale
    bits : int
        abs(Q'_ij) < 2**bits for any subset of the rows.

    Raises
    ------
    ValueError
        On every rank: Q' would need more than 65536 bits.
    """
    with agreed(comm):
        lcm = _lcm([] if exact.denominators is None else exact.denominators.ravel().tolist())
        ends = np.array([exact.tops().max(initial=ZERO_TOP), -exact.bottoms().min(initial=0)], dtype=np.int64)
    comm.Allreduce(MPI.IN_PLACE, ends, op=MPI.MAX)
    with agreed(comm):
        denominator = _lcm(_allgather_integers(comm, lcm))
    exponent = -int(ends[1])
    # |P'| < 2**entry_bits, so a sum of k products is below k * 4**entry_bits.
    entry_bits = max(1, int(ends[0]) - exponent + denominator.bit_length())
    bits = 2 * entry_bits + total_rows(comm, exact.k).bit_length()
    if bits > MAX_BITS:
        raise ValueError(
            f"exact products of these entries need {bits} bits, more than {MAX_BITS}: their sizes or "
            "denominators differ too much; use normalize=True"
        )
    ones = np.full(exact.n, 1, dtype=object)
    return Scale(ones, np.zeros(exact.n, dtype=np.int64), exponent, denominator), bits


def _lcm(integers: list[Any]) -> int:
    result = 1
    for d in set(integers):
        result = math.lcm(result, int(d))
        if result.bit_length() > MAX_BITS:
            raise ValueError(f"the common denominator of P has more than {MAX_BITS} bits; use normalize=True")
    return result


def _allgather_integers(comm: MPI.Intracomm, x: int) -> list[int]:
    """One positive integer, of at most MAX_BITS bits, of each rank.  Collective over `comm`."""
    n_bytes = np.array([x.bit_length() // 8 + 1], dtype=np.int64)
    comm.Allreduce(MPI.IN_PLACE, n_bytes, op=MPI.MAX)
    mine = np.frombuffer(x.to_bytes(int(n_bytes[0]), "little"), dtype=np.uint8)
    everyone = np.empty((comm.Get_size(), len(mine)), dtype=np.uint8)
    comm.Allgather(mine, everyone)
    return [int.from_bytes(row.tobytes(), "little") for row in everyone]


def scale_exactly(exact: Exact, scale: Scale) -> ObjectArray:
    """P' = P * denominator / 2**exponent as integers, object[k, n].  Local."""
    shift = np.where(exact.mantissas == 0, 0, exact.exponents - scale.exponent)
    result = _shifted(exact.mantissas, np.maximum(shift, 0))
    if (shift < 0).any():  # trailing zeros only
        result = result >> np.maximum(-shift, 0).astype(object)
    if exact.denominators is not None:
        return np.asarray(result * (scale.denominator // exact.denominators))
    return result if scale.denominator == 1 else np.asarray(result * scale.denominator)
