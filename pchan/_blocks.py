# SPDX-License-Identifier: MIT
"""How much memory a node takes, and into what blocks that cuts P and Q.  Everything here is local."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .basis import PrimeBasis

_MAX_TILE, _MIN_TILE = 256, 16
# Of one element of Q to pack, and of one entry of P to residues: nanoseconds per prime, roughly.
_PACK_COST, _RESIDUES_COST = 5, 4
_PAGE = 4096


@dataclass(frozen=True)
class Blocks:
    """How a node's product is cut.

    Attributes
    ----------
    rows : int
        Rows of the node's P' taken at a time; every element of Q is packed once for each such block.
    panel : int
        Columns whose residues are held; two panels at a time unless one holds all columns.
    tile : int
        Rows and columns of Q multiplied at a time by one rank.
    """

    rows: int
    panel: int
    tile: int

    def n_passes(self, k: int, n: int) -> int:
        """How often residues of a panel are made: 1 when memory is ample."""
        panels = -(-n // self.panel)
        return max(1, -(-k // self.rows)) * panels * (panels + 1) // 2

    def n_bytes(self, basis: PrimeBasis, n: int, n_limbs: int, ranks: int) -> int:
        """Of all ranks of the node, one after the other: limbs, residues; products."""
        limbs = 8 * self.rows * n * n_limbs
        panels = 1 if self.panel == n else 2
        residues = 8 * basis.n_primes * panels * self.rows * self.panel
        return whole_pages(limbs) + residues + 8 * basis.n_primes * ranks * self.tile**2


def whole_pages(n_bytes: int) -> int:
    return -(-n_bytes // _PAGE) * _PAGE


def exact_rows(basis: PrimeBasis) -> int:
    """Rows whose products stay exact in float64: rows * ((p - 1) / 2)**2 <= 2**53, residues being symmetric."""
    half = (int(basis.primes.max()) - 1) // 2
    return max(1, 2**53 // half**2)


def plan_blocks(basis: PrimeBasis, k: int, n: int, n_limbs: int, ranks: int, room: int) -> Blocks | None:
    """The fastest blocks for k rows and n columns in `room` bytes of a node; None when nothing fits.

    More row blocks mean more packing, narrower panels mean more residues; both are weighed.
    """
    tile = max(_MIN_TILE, -(-n // max(-(-n // _MAX_TILE), int(np.ceil(2 * ranks**0.5)) - 1)))
    tile = min(tile, n)
    while tile > 1 and 8 * basis.n_primes * ranks * tile**2 > room // 4:
        tile = -(-tile // 2)
    return _with_tile(basis, k, n, n_limbs, ranks, room, tile) or _with_tile(basis, k, n, n_limbs, ranks, room, 1)


def _with_tile(basis: PrimeBasis, k: int, n: int, n_limbs: int, ranks: int, room: int, tile: int) -> Blocks | None:
    best, least, per_integer = None, 0.0, 8 * basis.n_primes
    for rows in _row_counts(max(1, min(k, exact_rows(basis)))):
        left = room - ranks * per_integer * tile**2 - whole_pages(8 * rows * n * n_limbs)
        panel = n if per_integer * rows * n <= left else left // (2 * per_integer * rows)
        if panel < 1:
            continue
        blocks = Blocks(rows, panel, min(tile, panel))
        n_blocks, n_panels = -(-k // rows), -(-n // panel)
        cost = _PACK_COST * n_blocks * n * n / 2 + _RESIDUES_COST * k * n * (n_panels + 1) / 2
        if best is None or cost < least:
            best, least = blocks, cost
    return best


def _row_counts(most: int) -> Iterator[int]:
    """`most` cut into 1, 2, ... equal parts, fewer of them as they get small."""
    last, parts = 0, 1
    while last != 1:
        rows = -(-most // parts)
        if rows != last:
            yield rows
        last, parts = rows, parts + max(1, parts // 8)


def tiles(rows: int, columns: int, tile: int, same: bool) -> list[tuple[int, int]]:
    """Corners of the tiles of a product of two panels, whole ones first; the upper triangle of one panel."""
    corners = [(i, j) for i in range(0, rows, tile) for j in range(i if same else 0, columns, tile)]
    return sorted(corners, key=lambda c: (same and c[0] == c[1], c))
