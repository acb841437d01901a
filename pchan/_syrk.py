# SPDX-License-Identifier: MIT
"""residues and syrk: integers to residues, their products per prime by BLAS, tile by tile."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from .basis import PrimeBasis
from .qreduce import QReduceScatter

DEFAULT_MEMORY = 256 << 20
_MAX_TILE = 256


@dataclass
class Clock:
    """Seconds per stage, by name."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextlib.contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - start


@dataclass(frozen=True)
class Blocks:
    """How a product is cut: at most `rows` rows and two panels of `panel` columns as residues at
    a time, multiplied in tiles of `tile` x `tile` elements."""

    rows: int
    panel: int
    tile: int


def plan_blocks(basis: PrimeBasis, k: int, n: int, memory: int) -> Blocks:
    """Blocks whose residues and tile take at most `memory` bytes, one element at least.  Local.

    Products stay exact in float64 because rows * ((p - 1) / 2)**2 <= 2**53 for symmetric residues.
    """
    half = (int(basis.primes.max()) - 1) // 2
    rows = max(1, min(k, 2**53 // half**2))
    budget = memory // (8 * basis.n_primes)  # in integers
    tile = min(n, _MAX_TILE)
    while tile > 1 and tile * tile > budget // 4:
        tile = -(-tile // 2)
    left = max(budget - tile * tile, 2)
    if left // (2 * rows) < tile:
        rows = max(1, left // (2 * tile))
    panel = n if n * rows <= left else max(tile, left // (2 * rows))
    return Blocks(rows, min(panel, n), tile)


def add_products(
    q: QReduceScatter, basis: PrimeBasis, limbs: npt.NDArray[np.uint64], memory: int, clock: Clock
) -> None:
    """Add P'^T P' of this rank's rows to its node's contribution.  Local.

    limbs: uint64[k, n, n_limbs].
    """
    k, n, _ = limbs.shape
    blocks = plan_blocks(basis, k, n, memory)
    for k0 in range(0, k, blocks.rows):
        rows = limbs[k0 : k0 + blocks.rows]
        for i0 in range(0, n, blocks.panel):
            left = _panel(basis, rows[:, i0 : i0 + blocks.panel], clock)
            for j0 in range(i0, n, blocks.panel):
                right = left if j0 == i0 else _panel(basis, rows[:, j0 : j0 + blocks.panel], clock)
                _add_tiles(q, left, right, i0, j0, blocks.tile, clock)


def _panel(basis: PrimeBasis, limbs: npt.NDArray[np.uint64], clock: Clock) -> npt.NDArray[np.float64]:
    """residues: float64[n_primes, rows, columns]."""
    with clock("residues_s"):
        rows, columns, n_limbs = limbs.shape
        residues = np.empty((basis.n_primes, rows * columns), dtype=np.float64)
        basis.residues_into(np.ascontiguousarray(limbs).reshape(-1, n_limbs), residues)
        return residues.reshape(basis.n_primes, rows, columns)


def _add_tiles(
    q: QReduceScatter,
    left: npt.NDArray[np.float64],
    right: npt.NDArray[np.float64],
    i0: int,
    j0: int,
    tile: int,
    clock: Clock,
) -> None:
    """syrk: the tiles of left^T right that lie on or above the diagonal of Q."""
    for i in range(0, left.shape[2], tile):
        transposed = left[:, :, i : i + tile].swapaxes(1, 2)
        for j in range(i if i0 == j0 else 0, right.shape[2], tile):
            with clock("syrk_s"):
                product = np.matmul(transposed, right[:, :, j : j + tile])
            q.add(i0 + i, j0 + j, product)


class BlasThreads:
    """Keeps NumPy's BLAS to this rank's share of the node, when threadpoolctl is installed."""

    def __init__(self, ranks_on_node: int) -> None:
        usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self._limit = max(1, usable // ranks_on_node)
        self._controller: Any = None
        with contextlib.suppress(ImportError):
            import threadpoolctl  # type: ignore[import-not-found,unused-ignore]

            self._controller = threadpoolctl.ThreadpoolController()

    def __call__(self) -> contextlib.AbstractContextManager[Any]:
        if self._controller is None:
            return contextlib.nullcontext()
        limit: contextlib.AbstractContextManager[Any] = self._controller.limit(limits=self._limit, user_api="blas")
        return limit
