# SPDX-License-Identifier: MIT
"""One number, or many of one class, to mantissa * 2**exponent / denominator.

By each library's own access to mantissas and exponents; a class is known by its package and name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Triple = tuple[Any, int, Any]
Bulk = tuple[list[int], npt.NDArray[np.int64]]

MAX_EXPONENT = 1 << 60
_MAX_DECIMAL_EXPONENT = 300_000


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


def _decimal(x: Any) -> Triple:
    if not x.is_finite():
        raise ValueError("is infinite" if x.is_infinite() else "is NaN")
    if x and abs(x.adjusted()) > _MAX_DECIMAL_EXPONENT:
        raise ValueError(f"has a decimal exponent beyond {_MAX_DECIMAL_EXPONENT}")
    return _reduced(*x.as_integer_ratio())


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


# package and name of a class: what converts one
_CONVERTERS: dict[tuple[str, str], Callable[[Any], Triple]] = {
    ("builtins", "bool"): _boolean,
    ("builtins", "int"): _integer,
    ("builtins", "float"): _float,
    ("builtins", "complex"): _complex,
    ("decimal", "Decimal"): _decimal,
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


# ---- many of one class: mantissas and exponents, or None when one of them needs a closer look ----


def _ints(items: list[Any]) -> Bulk:
    return items, np.zeros(len(items), dtype=np.int64)


def _like_ints(items: list[Any]) -> Bulk:
    return _ints(list(map(int, items)))


def _floats(items: list[Any]) -> Bulk | None:
    array = np.array(items, dtype=np.float64)
    if not np.isfinite(array).all():
        return None
    fractions, exponents = np.frexp(array)
    return np.ldexp(fractions, 53).astype(np.int64).tolist(), exponents.astype(np.int64) - 53


def _pairs(pairs: list[tuple[Any, Any]]) -> Bulk | None:
    try:
        exponents = np.fromiter((int(e) for _, e in pairs), dtype=np.int64, count=len(pairs))
    except OverflowError:
        return None
    if abs(exponents).max() >= MAX_EXPONENT:
        return None
    return [int(m) for m, _ in pairs], exponents


def _mpfs(items: list[Any]) -> Bulk | None:
    parts = [x._mpf_ for x in items]
    if any(not m and e for _, m, e, _ in parts):
        return None
    return _pairs([(-m if sign else m, e) for sign, m, e, _ in parts])


def _mpfrs(items: list[Any]) -> Bulk | None:
    if not all(x.is_finite() for x in items):
        return None
    return _pairs([x.as_mantissa_exp() for x in items])


def _arbs(items: list[Any]) -> Bulk | None:
    if not all(x.is_finite() for x in items):
        return None
    return _pairs([x.mid().man_exp() for x in items])


_BULK: dict[tuple[str, str], Callable[[list[Any]], Bulk | None]] = {
    ("builtins", "int"): _ints,
    ("builtins", "float"): _floats,
    ("numpy", "float64"): _floats,
    ("gmpy2", "mpz"): _like_ints,
    ("gmpy2", "mpfr"): _mpfrs,
    ("flint", "fmpz"): _like_ints,
    ("flint", "arb"): _arbs,
    ("mpmath", "mpf"): _mpfs,
}
_CACHE: dict[type, Callable[[Any], Triple]] = {}


def _name(cls: type) -> tuple[str, str]:
    return cls.__module__.partition(".")[0], cls.__name__


def bulk_converter(cls: type) -> Callable[[list[Any]], Bulk | None] | None:
    """What converts a list of numbers that are all of this very class, if there is something."""
    return _BULK.get(_name(cls))


def converter(cls: type) -> Callable[[Any], Triple]:
    """What converts one number: that of the nearest known base class.  TypeError when there is none."""
    known = _CACHE.get(cls)
    if known is not None:
        return known
    for base in cls.__mro__:
        found = _CONVERTERS.get(_name(base))
        if found is not None:
            return _CACHE.setdefault(cls, found)
    raise TypeError(f"is a {cls.__module__}.{cls.__qualname__}, which is not a number type known here")
