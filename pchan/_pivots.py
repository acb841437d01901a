# SPDX-License-Identifier: MIT
"""Squares of the Cholesky diagonal of an integer matrix, in fixed point."""

from __future__ import annotations

import numpy as np
from mpmath.libmp import MPZ

from ._exact import ObjectArray

_GUARD_BITS = 128
_MAX_SLACK_BITS = 32


def pivots(matrix: ObjectArray, precision: int, n_rows: int) -> list[tuple[int, int]]:
    """Squares of the diagonal of Cholesky(matrix).  Local.

    Parameters
    ----------
    matrix : object[n, n]
        Symmetric, Python ints: P'^T P' with P' rounded to `precision` bits in `n_rows` rows.

    Returns
    -------
    list of (mantissa, exponent), n of them
        Square of diagonal element j = mantissa * 2**exponent.

    Raises
    ------
    ArithmeticError
        A column lies in the span of those before it, as far as `precision` can tell: within
        2**(slack - precision) of its norm, where slack covers what rounding n_rows entries
        moves a column by, and 32 bits that must be left.

    Notes
    -----
    Columns are scaled by powers of two to about unit norm, so fixed point loses nothing: each
    update errs by less than one unit of 2**-fraction_bits, and what comes out belongs exactly to
    a matrix that differs by at most n units.  A cycle needs no square root.
    """
    n = len(matrix)
    fraction_bits = 2 * precision + _GUARD_BITS
    slack = min(_MAX_SLACK_BITS, precision // 4) + n.bit_length() + n_rows.bit_length() // 2
    limit = 1 << (fraction_bits - 2 * max(precision - slack, 1))
    halves = [(int(matrix[j, j]).bit_length() + 1) // 2 for j in range(n)]
    a = _scaled(matrix, halves, fraction_bits)
    result: list[tuple[int, int]] = []
    for j in range(n):
        pivot = a[j, j]
        if pivot < limit:
            raise ArithmeticError(
                f"Q is singular or not positive definite at {precision} bits: column {j} depends on earlier ones"
            )
        result.append((int(pivot), 2 * halves[j] - fraction_bits))
        row = a[j, j + 1 :]
        factors = (row << fraction_bits) // pivot
        for i, factor in enumerate(factors, start=j + 1):
            a[i, i:] -= (factor * row[i - j - 1 :]) >> fraction_bits
    return result


def _scaled(matrix: ObjectArray, halves: list[int], fraction_bits: int) -> ObjectArray:
    """Upper triangle, element (i, j) times 2**(fraction_bits - halves[i] - halves[j])."""
    n = len(matrix)
    a = np.zeros((n, n), dtype=object)
    for i in range(n):
        for j in range(i, n):
            shift = fraction_bits - halves[i] - halves[j]
            x = MPZ(matrix[i, j])
            a[i, j] = x << shift if shift >= 0 else x >> -shift
    return a
