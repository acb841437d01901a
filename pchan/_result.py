# SPDX-License-Identifier: MIT
"""What gram returns: Q, distributed, with its scale and the checks on it."""

from __future__ import annotations

import hashlib
import math
import operator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import numpy.typing as npt
from mpi4py import MPI
from mpmath.libmp import from_man_exp, mpf_div

from . import _export
from ._collective import agree_equal, agreed, broadcast_bytes
from ._exact import IntArray, ObjectArray, Scale
from ._pivots import pivots
from ._quantize import NORM_GUARD_BITS
from .basis import ints_to_limbs, limbs_to_ints

_GUARD_BITS = 64


@dataclass(frozen=True)
class ScaledQ:
    """The integers Q', i <= j, element by element with their owners.

    Attributes
    ----------
    comm : Intracomm
        Must live as long as `gather` is used.
    n : int
    limbs : uint64[n_local, n_limbs], read-only
        Two's complement, least significant limb first.
    rows : int64[n_local], read-only
        Where this rank's elements are.
    cols : int64[n_local], read-only
        Likewise; rows <= cols.
    """

    comm: MPI.Intracomm
    n: int
    limbs: npt.NDArray[np.uint64]
    rows: IntArray
    cols: IntArray

    def gather(self, root: int = 0) -> ObjectArray | None:
        """Object array [n, n] of Python ints at `root`, None elsewhere.  Collective over `comm`.

        TypeError, ValueError on every rank for a root that is no rank or not the same on all.
        """
        root = self._agreed_root(root)
        parts = [_gatherv(self.comm, array, root) for array in (self.limbs, self.rows, self.cols)]
        matrix = None
        with agreed(self.comm):
            if self.comm.Get_rank() == root:
                limbs, rows, cols = parts
                matrix = np.empty((self.n, self.n), dtype=object)
                matrix[rows, cols] = limbs_to_ints(limbs.reshape(len(rows), -1))
                matrix[cols, rows] = matrix[rows, cols]
        return matrix

    def _agreed_root(self, root: int) -> int:
        with agreed(self.comm):
            root = operator.index(root)
            if not 0 <= root < self.comm.Get_size():
                raise ValueError(f"root {root} is not a rank of a communicator of {self.comm.Get_size()}")
        agree_equal(self.comm, {"root": root}, "gather")
        return root


class Gram:
    """Q = P^T P, distributed.  Made by `gram` and `GramPlan`.

    Attributes
    ----------
    q : ScaledQ
        The integers Q' that this rank owns: Q_ij = Q'_ij * norm_i * norm_j / 2**(2 precision).
    norms : object[n] of mpmath.mpf
        Column norms over all ranks, the same bits on every rank and for every deal of the rows;
        0 for a zero column.  Ones with normalize=False.
    n : int
        Columns.
    n_rows : int
        Rows of all ranks.
    precision : int
    normalized : bool
    stats : dict of str to float
        Of this rank: seconds per stage (`..._s`), `n_primes`, `bits`, `bytes_sent`, `bytes_held`.
    """

    def __init__(
        self,
        q: ScaledQ,
        scale: Scale,
        *,
        n_rows: int,
        precision: int,
        normalized: bool,
        stats: dict[str, float],
    ) -> None:
        self.q = q
        self.n = q.n
        self.n_rows = n_rows
        self.precision = precision
        self.normalized = normalized
        self.stats = stats
        self._scale = scale
        self.norms: ObjectArray = np.empty(q.n, dtype=object)
        self.norms[:] = [
            mpmath.mp.make_mpf(from_man_exp(int(m), int(e)))
            for m, e in zip(scale.mantissas, scale.exponents, strict=True)
        ]

    def gather(self, root: int = 0) -> ObjectArray | None:
        """Q itself at `root`, object array [n, n]; None elsewhere.  Collective over the communicator.

        Entries are mpf of precision + 64 bits, whatever mpmath's working precision is; with
        normalize=False exact: ints when all of P was integer, else Fractions.
        """
        scaled = self.q.gather(root)
        with agreed(self.q.comm):
            if scaled is None:
                return None
            rows, cols = np.triu_indices(self.n)
            matrix = np.empty_like(scaled)
            matrix[rows, cols] = self._unscaled(scaled[rows, cols], rows, cols)
            matrix[cols, rows] = matrix[rows, cols]
            return matrix

    def values(self) -> ObjectArray:
        """The elements of Q that this rank owns, at (q.rows, q.cols): object[n_local].  Local.

        Numbers as from `gather`.
        """
        return self._unscaled(limbs_to_ints(self.q.limbs), self.q.rows, self.q.cols)

    def to_mpmath(self) -> ObjectArray:
        """`values` as mpf: object[n_local].  Local.

        Exact integers stay exact; Fractions (normalize=False) are rounded to precision + 64 bits.
        """
        return _export.to_mpmath(self.values(), self.precision + _GUARD_BITS)

    def to_gmpy2(self) -> ObjectArray:
        """`values` as mpfr of precision + 64 bits; mpz or mpq with normalize=False: object[n_local].  Local."""
        return _export.to_gmpy2(self.values(), self.precision + _GUARD_BITS)

    def to_flint(self) -> ObjectArray:
        """`values` as arb without radius; fmpz or fmpq with normalize=False: object[n_local].  Local."""
        return _export.to_flint(self.values())

    def to_float64(self) -> npt.NDArray[np.float64]:
        """`values` as nearest float64[n_local].  Local.  Infinite or zero beyond its range."""
        return _export.to_float64(self.values(), self.precision + _GUARD_BITS)

    def _unscaled(self, scaled: ObjectArray, rows: IntArray, cols: IntArray) -> ObjectArray:
        """Elements of Q from those of Q', object[len(rows)]."""
        scale = self._scale
        if not self.normalized:
            if scale.exponent == 0 and scale.denominator == 1:
                return scaled
            return np.asarray(scaled * Fraction(1, scale.denominator**2 << -2 * scale.exponent))
        mantissas = scaled * scale.mantissas[rows] * scale.mantissas[cols]
        exponents = scale.exponents[rows] + scale.exponents[cols] + 2 * scale.exponent
        values = np.empty(len(rows), dtype=object)
        values[:] = [
            mpmath.mp.make_mpf(from_man_exp(int(m), e, self.precision + _GUARD_BITS, "n"))
            for m, e in zip(mantissas, exponents.tolist(), strict=True)
        ]
        return values

    def cond_number(self) -> Any:
        """(largest / smallest diagonal element of Cholesky(Q))**2, as SDPB prints it.

        Collective over the communicator; an mpf of precision + 64 bits, the same on every rank.
        The factorisation runs on rank 0.

        Raises
        ------
        ArithmeticError
            On every rank: Q is singular, or cannot be told from singular at this precision.
        """
        scaled = self.q.gather(0)
        data = b""
        with agreed(self.q.comm):
            if scaled is not None:
                data = _mpf_to_bytes(self._cond_number(scaled))
        return _mpf_from_bytes(broadcast_bytes(self.q.comm, data, 0))

    def _cond_number(self, scaled: ObjectArray) -> tuple[int, int]:
        diagonal = [
            from_man_exp(int(pivot) * int(m) ** 2, exponent + 2 * int(e))
            for (pivot, exponent), m, e in zip(
                pivots(scaled, self.precision, self.n_rows),
                self._scale.mantissas,
                self._scale.exponents,
                strict=True,
            )
        ]
        squares = [mpmath.mp.make_mpf(value) for value in diagonal]
        quotient = mpf_div(max(squares)._mpf_, min(squares)._mpf_, self.precision + _GUARD_BITS, "n")
        return int(quotient[1]), int(quotient[2])

    def to_arrays(self, root: int = 0) -> dict[str, npt.NDArray[Any]] | None:
        """All of Q in plain arrays at `root`, None elsewhere.  Collective over the communicator.

        `q` uint64[n (n + 1) / 2, n_limbs], upper triangle, row-major; `norms` uint64[n, limbs] and
        `norm_exponents` int64[n]; `precision` int64: Q_ij = q_ij * norm_i * norm_j / 4**precision
        with norm = norms * 2**norm_exponents.  ValueError with normalize=False.
        """
        if not self.normalized:
            raise ValueError("to_arrays needs normalised columns; with normalize=False gather gives the exact Q")
        scaled = self.q.gather(root)
        with agreed(self.q.comm):
            if scaled is None:
                return None
            n_limbs = self.q.limbs.shape[1]
            norm_limbs = (self.precision + NORM_GUARD_BITS) // 64 + 1
            return {
                "q": ints_to_limbs(scaled[np.triu_indices(self.n)], n_limbs),
                "norms": ints_to_limbs([int(m) for m in self._scale.mantissas], norm_limbs),
                "norm_exponents": self._scale.exponents,
                "precision": np.array(self.precision, dtype=np.int64),
            }
        raise AssertionError("unreachable")

    def sha256(self) -> str:
        """SHA-256 of Q' and the norms, hexadecimal: one for every number of ranks, deal of the rows,
        layout and strategy.  Collective over the communicator."""
        scaled = self.q.gather(0)
        data = b""
        with agreed(self.q.comm):
            if scaled is not None:
                scale = self._scale
                digest = hashlib.sha256(f"{self.n} {scale.exponent} {scale.denominator}".encode())
                for mantissa, exponent in zip(scale.mantissas, scale.exponents, strict=True):
                    digest.update(b" %x %d" % (int(mantissa), int(exponent)))
                for x in scaled[np.triu_indices(self.n)]:
                    digest.update(b" %x" % x)
                data = digest.hexdigest().encode()
        return broadcast_bytes(self.q.comm, data, 0).decode()

    def check(self) -> bool:
        """SDPB's test of the sum, and the range: every abs(Q'_ii / 2**(2 precision) - 1) < 2**(-precision / 2),
        and no abs(Q'_ij) larger than columns of norm 1 allow.

        Zero columns pass the first.  (A sum that does not fit the primes raises RangeError before there is a
        result.)  Collective over the communicator.  ValueError with normalize=False, where the diagonal
        is not 1.
        """
        if not self.normalized:
            raise ValueError("check needs normalised columns: the diagonal is not 1 with normalize=False")
        with agreed(self.q.comm):
            passed = np.array([self._diagonal_passes() and self._range_passes()], dtype=np.int64)
        self.q.comm.Allreduce(MPI.IN_PLACE, passed, op=MPI.MIN)
        return bool(passed[0])

    def _diagonal_passes(self) -> bool:
        mine = self.q.rows == self.q.cols
        one = 1 << 2 * self.precision
        limit = one >> self.precision // 2
        columns = self.q.rows[mine].tolist()
        return all(
            abs(x - one) < limit or not self._scale.mantissas[j]
            for x, j in zip(limbs_to_ints(self.q.limbs[mine]), columns, strict=True)
        )

    def _range_passes(self) -> bool:
        """Rounding moves a column of K entries, of norm 2**precision at most, by up to sqrt(K) / 2."""
        bound = ((1 << self.precision) + math.isqrt(self.n_rows) + 1) ** 2
        return all(-bound <= x <= bound for x in limbs_to_ints(self.q.limbs).tolist())


def _mpf_to_bytes(value: tuple[int, int]) -> bytes:
    mantissa, exponent = value
    return exponent.to_bytes(8, "little", signed=True) + mantissa.to_bytes(
        mantissa.bit_length() // 8 + 1, "little"
    )


def _mpf_from_bytes(data: bytes) -> Any:
    exponent = int.from_bytes(data[:8], "little", signed=True)
    return mpmath.mp.make_mpf(from_man_exp(int.from_bytes(data[8:], "little"), exponent))


def _gatherv(comm: MPI.Intracomm, array: npt.NDArray[Any], root: int) -> npt.NDArray[Any]:
    """The arrays of all ranks, flat, in rank order, at `root`; empty elsewhere.  Collective over `comm`."""
    counts = np.empty(comm.Get_size(), dtype=np.int64)
    comm.Allgather(np.array([array.size], dtype=np.int64), counts)
    everyone = np.empty(int(counts.sum()) if comm.Get_rank() == root else 0, dtype=array.dtype)
    comm.Gatherv(np.ascontiguousarray(array).reshape(-1), [everyone, counts.tolist()], root=root)
    return everyone
