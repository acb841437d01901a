# SPDX-License-Identifier: MIT
"""Numbers of any library as exact triples: mantissa * 2**exponent / denominator.

No library is imported for its number types: a class is recognised by its package and name.
Everything here is local and exact; decimal strings are never made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
ObjectArray = npt.NDArray[np.object_]
Triple = tuple[Any, int, Any]

# Upper exponent of zero: below that of every number, far from the ends of int64.
ZERO_TOP = -(1 << 61)
_MAX_EXPONENT = 1 << 60
_bit_length = np.frompyfunc(lambda x: x.bit_length(), 1, 1)
_trailing_zeros = np.frompyfunc(lambda x: (x & -x).bit_length() - 1, 1, 1)


@dataclass
class Exact:
    """Rows of P: entry = mantissas * 2**exponents / denominators.

    Attributes
    ----------
    mantissas : object[k, n]
        Signed integers (int or gmpy2's mpz).
    exponents : int64[k, n]
    denominators : object[k, n] or None
        Positive integers; None when all are one.
    n : int
        Columns, -1 when there are no rows to tell.
    """

    mantissas: ObjectArray
    exponents: IntArray
    denominators: ObjectArray | None
    n: int

    @property
    def k(self) -> int:
        """Number of rows."""
        return len(self.mantissas)

    def tops(self) -> IntArray:
        """int64[k, n] with abs(entry) < 2**top, `ZERO_TOP` for zero."""
        tops = self.exponents + bit_lengths(self.mantissas)
        if self.denominators is not None:
            tops = tops + 1 - bit_lengths(self.denominators)
        return np.where(self.mantissas == 0, ZERO_TOP, tops)

    def bottoms(self) -> IntArray:
        """int64[k, n]: the largest exponent that leaves each mantissa an integer; -ZERO_TOP for zero."""
        zeros = _trailing_zeros(self.mantissas).astype(np.int64)
        return np.where(self.mantissas == 0, -ZERO_TOP, self.exponents + zeros)

    def resized(self, n: int) -> Exact:
        """The same for a rank without rows that has learned n."""
        if self.k:
            return self
        return Exact(self.mantissas.reshape(0, n), self.exponents.reshape(0, n), None, n)


def bit_lengths(ints: ObjectArray) -> IntArray:
    """Bits of the absolute values, int64 in the shape of `ints`."""
    return np.asarray(_bit_length(ints), dtype=object).astype(np.int64)


def convert(P: Any, scale_bits: int | None = None) -> Exact:
    """Rows of P as exact triples.  Local.

    Parameters
    ----------
    P
        Sequence of rows, 2-D array, anything 2-D with `tolist` (matrices of mpmath and
        python-flint); with `scale_bits` uint64[k, n, n_limbs], two's complement limbs.
    scale_bits
        The limbs stand for integer / 2**scale_bits.

    Raises
    ------
    TypeError
        An entry, dtype or P itself is of a type that has no place here (bool and complex too).
    ValueError
        Not 2-D, ragged, no columns, NaN, infinite, or an exponent beyond 2**60.  Messages name
        row and column, counted from 0 on this rank.
    """
    if scale_bits is not None:
        return _from_limbs(P, scale_bits)
    if isinstance(P, np.ndarray) and P.dtype != object:
        return _from_array(P)
    if isinstance(P, np.ndarray) and P.ndim != 2 and P.shape != (0,):
        raise ValueError(f"P must be 2-D, its shape is {P.shape}")
    if hasattr(P, "tolist") and not (isinstance(P, np.ndarray) and P.shape[0] == 0):
        P = P.tolist()
    return _from_rows(P)


def _from_limbs(P: Any, scale_bits: int) -> Exact:
    if not isinstance(P, np.ndarray) or P.dtype != np.uint64 or P.ndim != 3:
        raise TypeError("with scale_bits, P must be an array uint64[rows, columns, limbs]")
    if P.shape[1] == 0 or P.shape[2] == 0:
        raise ValueError(f"P has no columns or no limbs, its shape is {P.shape}")
    from .basis import limbs_to_ints

    exponents = np.full(P.shape[:2], -scale_bits, dtype=np.int64)
    return Exact(limbs_to_ints(P), exponents, None, P.shape[1])


def _from_array(P: npt.NDArray[Any]) -> Exact:
    kind = P.dtype.kind
    if kind not in "fiu":
        raise TypeError(f"P has dtype {P.dtype}, which is not a real number type")
    if P.shape == (0,):
        return _no_rows(-1)
    if P.ndim != 2:
        raise ValueError(f"P must be 2-D, its shape is {P.shape}")
    if P.shape[1] == 0:
        raise ValueError(f"P has no columns, its shape is {P.shape}")
    if kind != "f":
        return Exact(P.astype(object), np.zeros(P.shape, np.int64), None, P.shape[1])
    _check_finite(P)
    if P.dtype.itemsize > 8:
        return _from_rows(P.tolist(), n=P.shape[1])
    fractions, exponents = np.frexp(P.astype(np.float64))
    mantissas = np.ldexp(fractions, 53).astype(np.int64).astype(object)
    return Exact(mantissas, exponents.astype(np.int64) - 53, None, P.shape[1])


def _check_finite(P: npt.NDArray[Any]) -> None:
    bad = np.argwhere(~np.isfinite(P))
    if len(bad):
        row, column = bad[0].tolist()
        what = "NaN" if np.isnan(P[row, column]) else "infinite"
        raise ValueError(f"row {row}, column {column} of P is {what}")


def _no_rows(n: int) -> Exact:
    shape = (0, max(n, 0))
    return Exact(np.empty(shape, dtype=object), np.empty(shape, dtype=np.int64), None, n)


def _from_rows(P: Any, n: int = -1) -> Exact:
    if not _is_sequence(P):
        raise TypeError(f"P must be a sequence of rows or a 2-D array, not {type(P).__name__}")
    if isinstance(P, np.ndarray) and P.ndim == 2:
        n = P.shape[1]
    triples: list[Triple] = []
    for r, row in enumerate(P):
        if not _is_sequence(row):
            raise ValueError(f"P must be 2-D: its row {r} is one {type(row).__name__}")
        n = len(row) if n < 0 else n
        if len(row) != n:
            raise ValueError(f"row {r} of P has {len(row)} columns, {n} were expected")
        triples.extend(_convert_row(row, r))
    if n == 0:
        raise ValueError("P has no columns")
    if not triples:
        return _no_rows(n)
    return _from_triples(triples, len(P), n)


def _from_triples(triples: list[Triple], k: int, n: int) -> Exact:
    mantissas = np.empty(k * n, dtype=object)
    mantissas[:] = [t[0] for t in triples]
    exponents = np.array([t[1] for t in triples], dtype=np.int64)
    denominators = None
    if any(t[2] != 1 for t in triples):
        flat = np.empty(k * n, dtype=object)
        flat[:] = [t[2] for t in triples]
        denominators = flat.reshape(k, n)
    return Exact(mantissas.reshape(k, n), exponents.reshape(k, n), denominators, n)


def _is_sequence(x: Any) -> bool:
    if isinstance(x, np.ndarray):
        return x.ndim > 0
    return hasattr(x, "__len__") and hasattr(x, "__iter__") and not isinstance(x, (str, bytes, Mapping))


def _convert_row(row: Any, r: int) -> list[Triple]:
    items = row.tolist() if isinstance(row, np.ndarray) else row
    triples: list[Triple] = []
    for x in items:
        try:
            triple = (_CACHE.get(type(x)) or _converter(type(x)))(x)
            if not -_MAX_EXPONENT < triple[1] < _MAX_EXPONENT:
                raise ValueError("has an exponent beyond 2**60")
        except (TypeError, ValueError) as exc:
            raise type(exc)(f"row {r}, column {len(triples)} of P {exc}") from None
        triples.append(triple)
    return triples


def _integer(x: Any) -> Triple:
    return int(x), 0, 1


def _float(x: Any) -> Triple:
    if not math.isfinite(x):
        raise ValueError("is NaN" if x != x else "is infinite")
    fraction, exponent = math.frexp(x)
    return int(fraction * 9007199254740992.0), exponent - 53, 1


def _floating(x: Any) -> Triple:
    """NumPy scalar of any width, as far as its own frexp goes."""
    if not np.isfinite(x):
        raise ValueError("is NaN" if x != x else "is infinite")
    fraction, exponent = np.frexp(x)
    numerator, denominator = fraction.as_integer_ratio()
    return numerator, int(exponent) - denominator.bit_length() + 1, 1


def _rational(x: Any) -> Triple:
    return _reduced(int(x.numerator), int(x.denominator))


def _fmpq(x: Any) -> Triple:
    return _reduced(int(x.p), int(x.q))


def _reduced(numerator: int, denominator: int) -> Triple:
    """Lowest terms, the denominator's power of two moved into the exponent."""
    common = math.gcd(numerator, denominator)
    numerator, denominator = numerator // common, denominator // common
    zeros = (denominator & -denominator).bit_length() - 1
    return numerator, -zeros, denominator >> zeros


def _mpf(x: Any) -> Triple:
    sign, mantissa, exponent, _ = x._mpf_
    if not mantissa and exponent:
        raise ValueError("is NaN" if x != x else "is infinite")
    return (-mantissa if sign else mantissa), int(exponent), 1


def _mpfr(x: Any) -> Triple:
    if x.is_nan() or x.is_infinite():
        raise ValueError("is NaN" if x.is_nan() else "is infinite")
    mantissa, exponent = x.as_mantissa_exp()
    return mantissa, int(exponent), 1


def _arb(x: Any) -> Triple:
    """A ball stands for its midpoint."""
    if not x.is_finite():
        raise ValueError("is NaN or infinite")
    mantissa, exponent = (x.mid() if hasattr(x, "mid") else x).man_exp()
    return int(mantissa), int(exponent), 1


def _complex(x: Any) -> Triple:
    raise TypeError(f"is complex ({type(x).__name__})")


def _boolean(x: Any) -> Triple:
    raise TypeError("is a bool, not a number")


_CONVERTERS: dict[tuple[str, str], Callable[[Any], Triple]] = {
    ("builtins", "bool"): _boolean,
    ("builtins", "int"): _integer,
    ("builtins", "float"): _float,
    ("builtins", "complex"): _complex,
    ("fractions", "Fraction"): _rational,
    ("numbers", "Rational"): _rational,
    ("numpy", "bool"): _boolean,
    ("numpy", "bool_"): _boolean,
    ("numpy", "integer"): _integer,
    ("numpy", "float16"): _float,
    ("numpy", "float32"): _float,
    ("numpy", "float64"): _float,
    ("numpy", "floating"): _floating,
    ("numpy", "complexfloating"): _complex,
    # Before mpmath's: gmpy2's mpfr has an `_mpf_` that mpmath misreads for zero.
    ("gmpy2", "mpz"): _integer,
    ("gmpy2", "xmpz"): _integer,
    ("gmpy2", "mpq"): _rational,
    ("gmpy2", "mpfr"): _mpfr,
    ("gmpy2", "mpc"): _complex,
    ("flint", "fmpz"): _integer,
    ("flint", "fmpq"): _fmpq,
    ("flint", "arb"): _arb,
    ("flint", "arf"): _arb,
    ("flint", "acb"): _complex,
    ("mpmath", "_mpf"): _mpf,
    ("mpmath", "_mpc"): _complex,
}
_CACHE: dict[type, Callable[[Any], Triple]] = {}


def _converter(cls: type) -> Callable[[Any], Triple]:
    """Converter of the nearest known base class."""
    for base in cls.__mro__:
        found = _CONVERTERS.get((base.__module__.partition(".")[0], base.__name__))
        if found is not None:
            return _CACHE.setdefault(cls, found)
    raise TypeError(f"is a {cls.__module__}.{cls.__qualname__}, which is not a number type known here")
