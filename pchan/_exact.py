# SPDX-License-Identifier: MIT
"""Rows of P, exact: as limbs with binary exponents, which the C core works on, or as fractions.

Both give the same norms and the same integers, bit for bit.  Everything here is local.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from mpmath.libmp import MPZ

from ._core import fixed_align, fixed_quantize, fixed_squares, fixed_tops
from .basis import ints_to_limbs, limbs_to_ints

IntArray = npt.NDArray[np.int64]
LimbArray = npt.NDArray[np.uint64]
ObjectArray = npt.NDArray[np.object_]

# Upper exponent of zero: below that of every number, far from the ends of int64.
ZERO_TOP = -(1 << 61)
MAX_BITS = 65536  # PCHAN_MAX_BITS
_BLOCK_ENTRIES = 1 << 15
_bit_length = np.frompyfunc(lambda x: x.bit_length(), 1, 1)
_trailing_zeros = np.frompyfunc(lambda x: (x & -x).bit_length() - 1, 1, 1)


@dataclass(frozen=True)
class Scale:
    """What turns Q' into Q: Q_ij = Q'_ij * s_i * s_j * 4**exponent / denominator**2.

    s_j = mantissas[j] * 2**exponents[j] are the column norms, or one.
    """

    mantissas: ObjectArray
    exponents: IntArray
    exponent: int
    denominator: int = 1


class Divisors:
    """Norms as `fixed_quantize` wants them: limbs, reciprocals (see pchan_divisors in pchan.h), shifts."""

    def __init__(self, scale: Scale, precision: int, n_out: int) -> None:
        norms = [int(m) for m in scale.mantissas]
        self.n_limbs = max(norms).bit_length() // 64 + 1
        self.limbs = ints_to_limbs(norms, self.n_limbs)
        t = n_out + 2
        reciprocals = [((1 << m.bit_length() - 1 + 64 * t) - 1) // m if m else 0 for m in norms]
        self.reciprocals = np.ascontiguousarray(ints_to_limbs(reciprocals, t + 1)[:, :t])
        self.shifts = precision - scale.exponents


@dataclass(frozen=True)
class Fixed:
    """entry = two's complement limbs * 2**exponent.

    Attributes
    ----------
    limbs : uint64[k, n, n_limbs], contiguous
    exponents : int64[k, n], contiguous
    n : int
        Columns, -1 when there are no rows to tell.
    """

    limbs: LimbArray
    exponents: IntArray
    n: int

    @property
    def k(self) -> int:
        """Number of rows."""
        return len(self.limbs)

    def resized(self, n: int) -> Fixed:
        """The same for a rank without rows that has learned n."""
        return self if self.k else no_rows(n)

    def ends(self) -> tuple[IntArray, int]:
        """int64[n] with abs(entry) < 2**top, `ZERO_TOP` without any, and the exponent of the lowest bit of all."""
        tops = np.full(self.n, ZERO_TOP, dtype=np.int64)
        bottom = fixed_tops(self.limbs, self.exponents, tops, -ZERO_TOP) if self.k else -ZERO_TOP
        return tops, bottom

    def common_denominator(self) -> int:
        return 1

    def square_sums(self, shifts: IntArray, bits: int) -> ObjectArray:
        """Sums of ceil(entry**2 * 2**shift) of each column, below 2**bits: object[n]."""
        sums = np.zeros((self.n, bits // 64 + 1), dtype=np.uint64)
        if self.k:
            fixed_squares(self.limbs, self.exponents, shifts, sums, sums.shape[1])
        return limbs_to_ints(sums)

    def quantize_into(self, rows: slice, by: Divisors, nearest: bool, out: LimbArray) -> None:
        """P' = P / norm * 2**precision, rounded, of some rows: uint64[rows, n, n_out]."""
        parts = (self.limbs[rows], self.exponents[rows], by.limbs, by.n_limbs, by.reciprocals, by.shifts)
        fixed_quantize(*parts, nearest, out, out.shape[2])

    def align_into(self, rows: slice, scale: Scale, out: LimbArray) -> None:
        """P' = P * denominator / 2**exponent, exact, of some rows: uint64[rows, n, n_out]."""
        if scale.denominator == 1:
            fixed_align(self.limbs[rows], self.exponents[rows], scale.exponent, out, out.shape[2])
            return
        ints = limbs_to_ints(self.limbs[rows])
        Ratios(ints, self.exponents[rows], np.full_like(ints, 1), self.n).align_into(slice(None), scale, out)


def no_rows(n: int) -> Fixed:
    shape = (0, max(n, 0))
    return Fixed(np.empty((*shape, 1), dtype=np.uint64), np.empty(shape, dtype=np.int64), n)


@dataclass(frozen=True)
class Ratios:
    """entry = mantissa * 2**exponent / denominator, with the methods of `Fixed`.

    Attributes
    ----------
    mantissas : object[k, n] of int
    exponents : int64[k, n]
    denominators : object[k, n] of int
        Positive, odd.
    """

    mantissas: ObjectArray
    exponents: IntArray
    denominators: ObjectArray
    n: int

    @property
    def k(self) -> int:
        return len(self.mantissas)

    def resized(self, n: int) -> Ratios:
        return self

    def ends(self) -> tuple[IntArray, int]:
        tops = self.exponents + bit_lengths(self.mantissas) + 1 - bit_lengths(self.denominators)
        zero = self.mantissas == 0
        bottoms = self.exponents + _trailing_zeros(self.mantissas).astype(np.int64)
        return np.where(zero, ZERO_TOP, tops).max(axis=0), int(np.where(zero, -ZERO_TOP, bottoms).min())

    def common_denominator(self) -> int:
        return least_common_multiple(self.denominators.ravel().tolist())

    def square_sums(self, shifts: IntArray, bits: int) -> ObjectArray:
        sums = np.full(self.n, 0, dtype=object)
        for rows in self._blocks():
            sums = sums + self._squares(rows, shifts).sum(axis=0)
        return sums

    def _blocks(self) -> Iterator[slice]:
        """A few rows each, which bounds the temporaries of object arithmetic."""
        step = max(1, _BLOCK_ENTRIES // self.n)
        return (slice(i, i + step) for i in range(0, self.k, step))

    def _squares(self, rows: slice, shifts: IntArray) -> ObjectArray:
        mantissas, denominators = self.mantissas[rows], self.denominators[rows]
        shift = np.where(mantissas == 0, 0, shifts + 2 * self.exponents[rows])
        # further to the right every square is rounded up to one
        right = np.minimum(np.maximum(-shift, 0), 2 * bit_lengths(mantissas) + 1)
        negative = _shifted(-(mantissas * mantissas), np.maximum(shift, 0))
        return np.asarray(-(negative // _shifted(denominators * denominators, right)))

    def quantize_into(self, rows: slice, by: Divisors, nearest: bool, out: LimbArray) -> None:
        norms = np.array([MPZ(d) if d else MPZ(1) for d in limbs_to_ints(by.limbs)], dtype=object)
        shift, mantissas = self.exponents[rows] + by.shifts, self.mantissas[rows]
        divisors = norms * self.denominators[rows]
        # Quotients below 1/2 become 0 here: their shift may be anything.
        small = bit_lengths(mantissas) + shift - bit_lengths(divisors) < -1
        mantissas, shift = np.where(small, 0, mantissas), np.where(small, 0, shift)
        numerators = _shifted(abs(mantissas), np.maximum(shift, 0))
        divisors = _shifted(divisors, np.maximum(-shift, 0))
        quotients = (2 * numerators + divisors) // (2 * divisors) if nearest else numerators // divisors
        out[:] = ints_to_limbs(np.where(mantissas < 0, -quotients, quotients), out.shape[2])

    def align_into(self, rows: slice, scale: Scale, out: LimbArray) -> None:
        mantissas = self.mantissas[rows]
        shift = np.where(mantissas == 0, 0, self.exponents[rows] - scale.exponent)
        result = _shifted(mantissas, np.maximum(shift, 0))
        if (shift < 0).any():  # trailing zeros only
            result = result >> np.maximum(-shift, 0).astype(object)
        out[:] = ints_to_limbs(result * (scale.denominator // self.denominators[rows]), out.shape[2])


Exact = Fixed | Ratios


def bit_lengths(ints: ObjectArray) -> IntArray:
    """Bits of the absolute values, int64 in the shape of `ints`."""
    return np.asarray(_bit_length(ints), dtype=object).astype(np.int64)


def _shifted(ints: ObjectArray, left: IntArray) -> ObjectArray:
    return np.asarray(ints << left.astype(object)) if left.any() else ints


def least_common_multiple(integers: list[Any]) -> int:
    """ValueError when it has more than MAX_BITS bits."""
    result = 1
    for d in set(integers):
        result = math.lcm(result, int(d))
        if result.bit_length() > MAX_BITS:
            raise ValueError(f"the common denominator of P has more than {MAX_BITS} bits; use normalize=True")
    return result
