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
