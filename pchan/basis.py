"""Residue number system: integers of thousands of bits as float64 residues modulo primes below 2**(62/3)."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from ._core import Basis, ints_from, ints_into
from .errors import RangeError

__all__ = ["PrimeBasis", "ints_to_limbs", "limbs_to_ints"]

_RESIDUE_DTYPES = (np.float64, np.int64, np.uint32)


def _object_array(ints: Any) -> npt.NDArray[Any]:
    """Integers of any shape as an object array; TypeError, naming the index, for anything else."""
    if isinstance(ints, np.ndarray) and ints.dtype.kind in "iu":
        return ints.astype(object)
    array = np.empty((), dtype=object)
    if isinstance(ints, int | np.integer) or not isinstance(ints, Iterable):
        array[()] = ints  # np.array would look for a sequence in other kinds of numbers
    else:
        array = np.array(ints, dtype=object)
    for index, x in np.ndenumerate(array):
        if isinstance(x, bool | np.bool_) or not hasattr(x, "__index__"):
            where = f" at {index[0] if len(index) == 1 else index}" if index else ""
            raise TypeError(f"integers are needed, but the value{where} is a {type(x).__name__}")
    return array


def ints_to_limbs(ints: Any, n_limbs: int) -> npt.NDArray[np.uint64]:
    """Python integers to two's complement limbs. Local.

    Parameters
    ----------
    ints : array-like of int, any shape
    n_limbs : int
        Limbs per integer, at least 1; each integer must lie in ``-2**(64*n_limbs-1) .. 2**(64*n_limbs-1) - 1``.

    Returns
    -------
    uint64[..., n_limbs], least significant limb first

    Raises
    ------
    TypeError, ValueError
        For anything but integers, for one that does not fit; both name the index.
    """
    n_limbs = operator.index(n_limbs)
    if n_limbs < 1:
        raise ValueError(f"n_limbs = {n_limbs} is not positive")
    array = _object_array(ints)
    limbs = np.zeros((array.size, n_limbs), dtype=np.uint64)
    ints_into(array.ravel().tolist(), limbs)
    return limbs.reshape(*array.shape, n_limbs)


def limbs_to_ints(limbs: Any) -> npt.NDArray[Any]:
    """Two's complement limbs to Python integers: uint64[..., n_limbs] to an object array [...]. Local.

    TypeError when the array is not uint64, ValueError when it has no dimension.
    """
    array = np.asarray(limbs)
    if array.dtype != np.uint64:
        raise TypeError(f"limbs must be uint64, not {array.dtype}")
    if array.ndim == 0 or array.shape[-1] == 0:
        raise ValueError("limbs must have a last dimension of one limb or more")
    ints = np.empty(array.shape[:-1], dtype=object)
    ints.reshape(-1)[:] = ints_from(np.ascontiguousarray(array), array.shape[-1])
    return ints


class PrimeBasis(Basis):
    """The primes that represent every integer x with ``|x| < 2**bits``, and conversions to and from residues.

    The basis takes the largest primes below ``2**(62/3)``, as few as give a product M of at least
    ``2**(bits + 1 + check_bits)``. Its spare bits, ``h = log2(M) - bits - 1``, detect corruption. A flipped bit in
    a word (in memory or in a message) makes the word larger than any can be, which :meth:`restore` and
    :class:`QReduceScatter` always refuse, or it changes the integer to one that is as good as random modulo M;
    such a one, like any wrong residue, is noticed except with a probability of ``2**-h``, at most
    ``2**-check_bits``. More ``check_bits`` add primes, one for every 21 bits or so.

    Parameters
    ----------
    bits : int, 1 to 65536
    check_bits : int, 0 to 64, default 8

    Attributes
    ----------
    primes : uint32[n_primes], read-only, decreasing
    n_words : int
        64-bit words per integer as they are summed and sent, ``ceil(n_primes / 3)``.
    n_limbs : int
        64-bit limbs per restored integer, ``ceil((bits + 1) / 64)``.
    """

    def __new__(cls, bits: int, check_bits: int = 8) -> PrimeBasis:
        bits, check_bits = operator.index(bits), operator.index(check_bits)
        limit = 2**31
        if not -limit < bits < limit or not -limit < check_bits < limit:
            raise ValueError(f"basis: bits = {bits}, check_bits = {check_bits} are out of range")
        return super().__new__(cls, bits, check_bits)

    @property
    def primes(self) -> npt.NDArray[np.uint32]:
        """uint32[n_primes], decreasing, read-only."""
        return np.frombuffer(self.primes_bytes, dtype=np.uint32)

    def residues(self, ints: Any) -> npt.NDArray[np.float64]:
        """Integers to symmetric residues, ``-(p-1)/2 .. (p-1)/2``: [...] to float64[n_primes, ...]. Local.

        Raises RangeError when some ``|x| >= 2**bits``, TypeError for anything but integers.
        """
        array = _object_array(ints)
        limbs = self._limbs(array)
        out = np.empty((self.n_primes, array.size), dtype=np.float64)
        if array.size:
            self.residues_into(limbs, out)
        return out.reshape(self.n_primes, *array.shape)

    def _limbs(self, array: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
        limit = 1 << self.bits
        for k, x in enumerate(array.ravel()):
            if not -limit < operator.index(x) < limit:
                raise RangeError(f"residues: integer {k} does not satisfy |x| < 2^{self.bits}")
        return ints_to_limbs(array, self.n_limbs)

    def restore(self, residues: Any) -> npt.NDArray[np.uint64]:
        """Residues to integers by the Chinese remainder theorem. Local.

        Parameters
        ----------
        residues : float64, int64 or uint32 [n_primes, ...], any strides
            Any representative of each class; float64 must be integers of at most 2**53 in size.

        Returns
        -------
        uint64[..., n_limbs], two's complement (see :func:`limbs_to_ints`)

        Raises
        ------
        RangeError
            Some ``|x| >= 2**bits`` (so does most corruption).
        TypeError
            For other dtypes.
        ValueError
            For a wrong first dimension, NaN, infinities and non-integers.
        """
        array = checked_residues(residues, self.n_primes)
        rows = array.reshape(self.n_primes, -1)
        n = rows.shape[1]
        limbs = np.empty((n, self.n_limbs), dtype=np.uint64)
        words = np.empty((n, self.n_words), dtype=np.uint64)
        if n:
            self.pack_into(rows, words)
            self.restore_into(words, limbs)
        return limbs.reshape(*array.shape[1:], self.n_limbs)

    def __repr__(self) -> str:
        return f"PrimeBasis(bits={self.bits}, check_bits={self.check_bits})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PrimeBasis):
            return NotImplemented
        return (self.bits, self.check_bits) == (other.bits, other.check_bits)

    def __hash__(self) -> int:
        return hash((self.bits, self.check_bits))

    def __reduce__(self) -> tuple[type[PrimeBasis], tuple[int, int]]:
        return PrimeBasis, (self.bits, self.check_bits)


def checked_residues(residues: Any, n_primes: int) -> npt.NDArray[Any]:
    """`residues` as an array of an accepted dtype whose first dimension is n_primes."""
    array = np.asarray(residues)
    if array.dtype not in _RESIDUE_DTYPES or not array.dtype.isnative:
        raise TypeError(f"residues must be float64, int64 or uint32 in native byte order, not {array.dtype.str}")
    if array.ndim == 0 or array.shape[0] != n_primes:
        raise ValueError(f"residues of shape {array.shape} do not have {n_primes} primes as first dimension")
    return array
