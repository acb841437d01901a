# SPDX-License-Identifier: MIT
"""Elements of Q as numbers of other libraries, which are imported when asked for.  Everything is local."""

from __future__ import annotations

import importlib
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import numpy.typing as npt
from mpmath.libmp import from_int, from_man_exp, from_rational, to_float

ObjectArray = npt.NDArray[np.object_]


def to_mpmath(values: ObjectArray, bits: int) -> ObjectArray:
    """mpf; Fractions are rounded to `bits`, all else is exact."""
    return _each(values, lambda x: mpmath.mp.make_mpf(_parts(x, bits)))


def to_gmpy2(values: ObjectArray, bits: int) -> ObjectArray:
    """mpz and mpq for exact results, else mpfr of `bits` bits."""
    gmpy2 = _library("gmpy2", "gmpy2")

    def real(mantissa: int, exponent: int) -> Any:
        return gmpy2.mul_2exp(gmpy2.mpfr(mantissa, bits), exponent)

    with gmpy2.context(gmpy2.get_context(), precision=bits, emin=gmpy2.get_emin_min(), emax=gmpy2.get_emax_max()):
        return _each(values, lambda x: _convert(x, gmpy2.mpz, gmpy2.mpq, real))


def to_flint(values: ObjectArray) -> ObjectArray:
    """fmpz and fmpq for exact results, else arb without radius."""
    flint = _library("flint", "python-flint")

    def real(mantissa: int, exponent: int) -> Any:
        return flint.arb((int(mantissa), int(exponent)))

    return _each(values, lambda x: _convert(x, flint.fmpz, flint.fmpq, real))


def to_float64(values: ObjectArray, bits: int) -> npt.NDArray[np.float64]:
    """Nearest float64; infinite and zero where the range ends."""
    return np.array([_nearest(_parts(x, bits)) for x in values], dtype=np.float64)


def _nearest(parts: Any) -> float:
    try:
        return float(to_float(parts, rnd="n"))
    except OverflowError:
        return float("-inf") if parts[0] else float("inf")


def _convert(x: Any, integer: Any, ratio: Any, real: Any) -> Any:
    """integer(x), ratio(numerator, denominator) or real(mantissa, exponent of 2), by what x is."""
    if isinstance(x, int):
        return integer(x)
    if isinstance(x, Fraction):
        return ratio(x.numerator, x.denominator)
    sign, mantissa, exponent, _ = x._mpf_
    return real(-mantissa if sign else mantissa, exponent)


def _parts(x: Any, bits: int) -> Any:
    """mpmath's tuple of x."""
    return _convert(x, from_int, lambda p, q: from_rational(p, q, bits, "n"), from_man_exp)


def _each(values: ObjectArray, convert: Any) -> ObjectArray:
    result = np.empty(len(values), dtype=object)
    result[:] = [convert(x) for x in values]
    return result


def _library(name: str, package: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as exc:
        raise ImportError(f"this needs the package {package}: pip install {package}") from exc
