# SPDX-License-Identifier: MIT
"""Numbers of any library, exact, as rows of limbs with exponents, or of fractions.

No library is imported for its number types: a class is recognised by its package and name.
Everything here is local and exact; numbers pass as integers, never as decimal strings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ._convert import MAX_EXPONENT, Triple, bulk_converter, converter
from ._core import ints_into
from ._exact import Exact, Fixed, IntArray, LimbArray, Ratios, no_rows

_CHUNK_ENTRIES = 1 << 14
# Integers wider than this, and eight times as wide as the average, are better kept one by one.
_MAX_EVEN_LIMBS = 64


class _NotFixed(Exception):
    """Denominators, or integers of very different sizes."""


def convert(P: Any, scale_bits: int | None = None) -> Exact:
    """Rows of P as exact numbers.  Local.

    Parameters
    ----------
    P
        Sequence of rows, 2-D array, anything 2-D with `tolist` (matrices of mpmath and
        python-flint); with `scale_bits` uint64[k, n, n_limbs], two's complement limbs, which are
        not copied when they are contiguous.
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


# ---- arrays ----


def _from_limbs(P: Any, scale_bits: int) -> Exact:
    if not isinstance(P, np.ndarray) or P.dtype != np.uint64 or P.ndim != 3:
        raise TypeError("with scale_bits, P must be an array uint64[rows, columns, limbs]")
    if P.shape[1] == 0 or P.shape[2] == 0:
        raise ValueError(f"P has no columns or no limbs, its shape is {P.shape}")
    exponents = np.full(P.shape[:2], -scale_bits, dtype=np.int64)
    return Fixed(np.ascontiguousarray(P), exponents, P.shape[1])


def _from_array(P: npt.NDArray[Any]) -> Exact:
    kind = P.dtype.kind
    if kind not in "fiu":
        raise TypeError(f"P has dtype {P.dtype}, which is not a real number type")
    if P.shape == (0,):
        return no_rows(-1)
    if P.ndim != 2:
        raise ValueError(f"P must be 2-D, its shape is {P.shape}")
    if P.shape[1] == 0:
        raise ValueError(f"P has no columns, its shape is {P.shape}")
    if kind != "f":
        signed = (
            [np.asarray(P, dtype=np.uint64), np.zeros(P.shape, np.uint64)]
            if kind == "u"
            else [np.asarray(P, np.int64)]
        )
        return _fixed(signed, np.zeros(P.shape, np.int64))
    _check_finite(P)
    if P.dtype.itemsize <= 8:
        fractions, exponents = np.frexp(P.astype(np.float64))
        return _fixed([np.ldexp(fractions, 53).astype(np.int64)], exponents.astype(np.int64) - 53)
    if np.finfo(P.dtype).nmant > 63:
        return _from_rows(P.tolist())
    fractions, exponents = np.frexp(P)
    high = np.floor(np.ldexp(fractions, 32))
    low = np.ldexp(np.ldexp(fractions, 32) - high, 32).astype(np.uint64)
    top = high.astype(np.int64)
    return _fixed([(top.view(np.uint64) << np.uint64(32)) | low, top >> 32], exponents.astype(np.int64) - 64)


def _fixed(limbs: list[npt.NDArray[Any]], exponents: IntArray) -> Fixed:
    parts = [limb if limb.dtype == np.uint64 else limb.view(np.uint64) for limb in limbs]
    return Fixed(
        np.ascontiguousarray(np.stack(parts, axis=-1)), np.ascontiguousarray(exponents), exponents.shape[1]
    )


def _check_finite(P: npt.NDArray[Any]) -> None:
    bad = np.argwhere(~np.isfinite(P))
    if len(bad):
        row, column = bad[0].tolist()
        what = "NaN" if np.isnan(P[row, column]) else "infinite"
        raise ValueError(f"row {row}, column {column} of P is {what}")


# ---- sequences of rows ----


def _from_rows(P: Any) -> Exact:
    if not _is_sequence(P):
        raise TypeError(f"P must be a sequence of rows or a 2-D array, not {type(P).__name__}")
    n = P.shape[1] if isinstance(P, np.ndarray) and P.ndim == 2 else -1
    for r, row in enumerate(P):
        if not _is_sequence(row):
            raise ValueError(f"P must be 2-D: its row {r} is one {type(row).__name__}")
        n = len(row) if n < 0 else n
        if len(row) != n:
            raise ValueError(f"row {r} of P has {len(row)} columns, {n} were expected")
    if n == 0:
        raise ValueError("P has no columns")
    if len(P) == 0:
        return no_rows(n)
    try:
        return _fixed_rows(P, n)
    except _NotFixed:
        return _ratio_rows(P, n)


def _is_sequence(x: Any) -> bool:
    if isinstance(x, np.ndarray):
        return x.ndim > 0
    return hasattr(x, "__len__") and hasattr(x, "__iter__") and not isinstance(x, (str, bytes, Mapping))


def _chunks(P: Any, n: int) -> Iterator[tuple[int, list[Any]]]:
    """(number of the first row, entries of a few rows)."""
    step, first, items = max(1, _CHUNK_ENTRIES // n), 0, list[Any]()
    for r, row in enumerate(P):
        items.extend(row.tolist() if isinstance(row, np.ndarray) else row)
        if r + 1 - first == step:
            yield first, items
            first, items = r + 1, []
    if items:
        yield first, items


def _fixed_rows(P: Any, n: int) -> Fixed:
    count, done, total_bits = len(P) * n, 0, 0
    limbs, exponents = np.empty((count, 1), dtype=np.uint64), np.empty(count, dtype=np.int64)
    for first, items in _chunks(P, n):
        mantissas, powers = _dyadic(items, first, n)
        bits = list(map(int.bit_length, mantissas))
        n_limbs, end = max(bits) // 64 + 1, done + len(items)
        total_bits += sum(bits)
        if n_limbs > max(limbs.shape[1], _MAX_EVEN_LIMBS) and n_limbs > 8 * (total_bits // (64 * end) + 1):
            raise _NotFixed
        limbs = _widened(limbs, n_limbs, done)
        ints_into(mantissas, limbs[done:end])
        exponents[done:end] = powers
        done = end
    return Fixed(limbs.reshape(len(P), n, -1), exponents.reshape(len(P), n), n)


def _widened(limbs: LimbArray, n_limbs: int, n_used: int) -> LimbArray:
    """The same integers with more limbs."""
    old = limbs.shape[1]
    if n_limbs <= old:
        return limbs
    wide = np.empty((len(limbs), n_limbs), dtype=np.uint64)
    wide[:n_used, :old] = limbs[:n_used]
    wide[:n_used, old:] = (limbs[:n_used, old - 1 :].view(np.int64) >> 63).view(np.uint64)
    return wide


def _dyadic(items: list[Any], first_row: int, n: int) -> tuple[list[int], IntArray]:
    """Mantissas and exponents; _NotFixed for a denominator."""
    kinds = set(map(type, items))
    bulk = bulk_converter(kinds.pop()) if len(kinds) == 1 else None
    if bulk is not None:
        found = bulk(items)
        if found is not None:
            return found
    triples = _triples(items, first_row, n)
    if any(t[2] != 1 for t in triples):
        raise _NotFixed
    return [int(t[0]) for t in triples], np.array([t[1] for t in triples], dtype=np.int64)


def _triples(items: list[Any], first_row: int, n: int) -> list[Triple]:
    triples: list[Triple] = []
    for x in items:
        try:
            triple = converter(type(x))(x)
            if not -MAX_EXPONENT < triple[1] < MAX_EXPONENT:
                raise ValueError("has an exponent beyond 2**60")
        except (TypeError, ValueError) as exc:
            row, column = divmod(len(triples), n)
            raise type(exc)(f"row {first_row + row}, column {column} of P {exc}") from None
        triples.append(triple)
    return triples


def _ratio_rows(P: Any, n: int) -> Ratios:
    triples = [t for first, items in _chunks(P, n) for t in _triples(items, first, n)]
    shape = (len(P), n)
    mantissas, denominators = np.empty(shape, dtype=object), np.empty(shape, dtype=object)
    mantissas.reshape(-1)[:] = [t[0] for t in triples]
    denominators.reshape(-1)[:] = [t[2] for t in triples]
    exponents = np.array([t[1] for t in triples], dtype=np.int64).reshape(shape)
    return Ratios(mantissas, exponents, denominators, n)
