# SPDX-License-Identifier: MIT
"""Elements of Q as numbers of other libraries, which are imported when asked for.  Everything is local."""

from __future__ import annotations

import importlib
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import numpy.typing as npt
from mpmath.libmp import from_man_exp, from_rational, to_float

ObjectArray = npt.NDArray[np.object_]


def to_mpmath(values: ObjectArray, bits: int) -> ObjectArray:
    """mpf; Fractions are rounded to `bits`, all else is exact."""
    return _each(values, lambda x: mpmath.mp.make_mpf(_parts(x, bits)))


def to_gmpy2(values: ObjectArray, bits: int) -> ObjectArray:
    """mpz and mpq for exact results, else mpfr of `bits` bits."""
    gmpy2 = _library("gmpy2", "gmpy2")

    def convert(x: Any) -> Any:
        if isinstance(x, int):
            return gmpy2.mpz(x)
        if isinstance(x, Fraction):
            return gmpy2.mpq(x.numerator, x.denominator)
        sign, mantissa, exponent, _ = x._mpf_
        return gmpy2.mul_2exp(gmpy2.mpfr(-mantissa if sign else mantissa, bits), exponent)

    with gmpy2.context(gmpy2.get_context(), precision=bits, emin=gmpy2.get_emin_min(), emax=gmpy2.get_emax_max()):
        return _each(values, convert)


def to_flint(values: ObjectArray) -> ObjectArray:
    """fmpz and fmpq for exact results, else arb without radius."""
    flint = _library("flint", "python-flint")

    def convert(x: Any) -> Any:
        if isinstance(x, int):
            return flint.fmpz(x)
        if isinstance(x, Fraction):
            return flint.fmpq(x.numerator, x.denominator)
        sign, mantissa, exponent, _ = x._mpf_
        return flint.arb((int(-mantissa if sign else mantissa), int(exponent)))

    return _each(values, convert)


def to_float64(values: ObjectArray, bits: int) -> npt.NDArray[np.float64]:
    """Nearest float64; infinite and zero where the range ends."""
    return np.array([_nearest(_parts(x, bits)) for x in values], dtype=np.float64)


def _nearest(parts: Any) -> float:
    try:
        return float(to_float(parts, rnd="n"))
    except OverflowError:
        return float("-inf") if parts[0] else float("inf")


def _parts(x: Any, bits: int) -> Any:
    if isinstance(x, int):
        return from_man_exp(x, 0)
    if isinstance(x, Fraction):
        return from_rational(x.numerator, x.denominator, bits, "n")
    return x._mpf_


def _each(values: ObjectArray, convert: Any) -> ObjectArray:
    result = np.empty(len(values), dtype=object)
    result[:] = [convert(x) for x in values]
    return result


def _library(name: str, package: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as exc:
        raise ImportError(f"this needs the package {package}: pip install {package}") from exc
