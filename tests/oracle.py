"""The answers, in Python integers and Fractions: slow and obvious."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np


def random_ints(rng, bits, shape):
    """|x| < 2**bits, biased to corners."""
    out = np.empty(shape, dtype=object)
    for index in np.ndindex(*out.shape):
        kind = rng.integers(6)
        n_bits = bits if kind != 1 else int(rng.integers(1, bits + 1))
        x = int.from_bytes(rng.bytes((n_bits + 7) // 8), "little") % (1 << n_bits)
        x = {2: (1 << bits) - 1, 3: 0, 4: 1}.get(int(kind), x)
        out[index] = -x if rng.integers(2) else x
    return out


def symmetric(upper):
    """The upper triangle of a square object array, mirrored."""
    n = len(upper)
    full = np.empty((n, n), dtype=object)
    for i, j in product(range(n), range(n)):
        full[i, j] = upper[min(i, j), max(i, j)]
    return full


def element_cyclic_owner(i, j, size):
    rows = next(r for r in range(1, size + 1) if size % r == 0 and r >= int(size**0.5))
    return i % rows + j % (size // rows) * rows


def exact_gram(rows):
    """Q = PᵀP of all rows, in Fractions."""
    rows = [[Fraction(x) for x in row] for row in rows]
    n = len(rows[0])
    return [[sum((row[i] * row[j] for row in rows), Fraction(0)) for j in range(n)] for i in range(n)]


def fraction_of(x):
    """Exact value of an int, float, Fraction or mpf."""
    if not hasattr(x, "_mpf_"):
        return Fraction(x)
    sign, mantissa, exponent, _ = x._mpf_
    return (-1) ** sign * int(mantissa) * Fraction(2) ** exponent


def quantized_gram(rows, norms, precision, rounding="trunc"):
    """Q' of P' = rows / norms * 2**precision, each entry rounded: object array of ints."""

    def rounded(x):
        size = abs(x) + (Fraction(1, 2) if rounding == "nearest" else 0)
        return int(size) if x >= 0 else -int(size)

    norms = [fraction_of(norm) for norm in norms]
    scaled = np.array(rows, dtype=object)
    for (i, j), x in np.ndenumerate(scaled):
        scaled[i, j] = rounded(Fraction(x) / norms[j] * 2**precision) if norms[j] else 0
    return scaled.T @ scaled


def pivot_quotient(q):
    """(largest / smallest diagonal element of Cholesky(q))**2 by exact elimination, as a Fraction."""
    a = [[Fraction(x) for x in row] for row in q]
    pivots = []
    while a:
        head, *rest = a
        pivots.append(head[0])
        a = [[x - row[0] * y / head[0] for x, y in zip(row[1:], head[1:], strict=True)] for row in rest]
    return max(pivots) / min(pivots)
