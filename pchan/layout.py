"""Which rank owns which element (i, j), i <= j, of the symmetric matrix of a :class:`~pchan.QReduceScatter`."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["BlockCyclic", "CustomLayout", "ElementCyclic", "PackedRows"]

# kind, rows and columns of the grid, block, owners: what the C core takes
_Tuple = tuple[int, int, int, int, npt.NDArray[np.int32] | None]


def _grid(grid: tuple[int, int] | None) -> tuple[int, int]:
    if grid is None:
        return 0, 0
    try:
        rows, cols = (operator.index(x) for x in grid)
    except TypeError:
        raise TypeError(f"grid must be two integers (rows, columns), not {grid!r}") from None
    except ValueError:
        raise ValueError(f"grid must be two integers (rows, columns), not {grid!r}") from None
    if not (0 < rows < 2**31 and 0 < cols < 2**31):
        raise ValueError(f"grid = {grid!r} is not positive")
    return rows, cols


@dataclass(frozen=True)
class ElementCyclic:
    """Elemental's [MC,MR]: owner(i, j) = i mod r + (j mod c) * r on an r x c grid, ranks column-major.

    grid=None takes the smallest divisor r of the number of ranks with r >= floor(sqrt(ranks)).
    """

    grid: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        _grid(self.grid)

    def _as_tuple(self, n: int, size: int) -> _Tuple:
        return 0, *_grid(self.grid), 0, None


@dataclass(frozen=True)
class BlockCyclic:
    """ScaLAPACK's distribution: blocks of `block` rows and columns dealt over an r x c grid of ranks."""

    grid: tuple[int, int]
    block: int

    def __post_init__(self) -> None:
        if self.grid is None:
            raise TypeError("BlockCyclic needs a grid (rows, columns)")
        _grid(self.grid)
        if not 0 < operator.index(self.block) < 2**31:
            raise ValueError(f"block = {self.block} is not positive")

    def _as_tuple(self, n: int, size: int) -> _Tuple:
        return 1, *_grid(self.grid), operator.index(self.block), None


@dataclass(frozen=True)
class PackedRows:
    """Whole rows of the upper triangle in rank order, balanced by the number of elements."""

    def _as_tuple(self, n: int, size: int) -> _Tuple:
        return 2, 0, 0, 0, None


@dataclass(frozen=True, eq=False)
class CustomLayout:
    """Any owner for each element, given once, when the plan is made; the same on every rank.

    Parameters
    ----------
    owner : callable or integer array
        ``owner(i, j)`` takes two int64 arrays of rows and columns, i <= j, and returns the array of ranks that own
        these elements (or one rank for all). An array has n x n elements, of which those with i <= j count.

    Notes
    -----
    Each element must have one owner, a rank of the communicator, and the ranks' owners must be the same (compared
    by a 63-bit checksum); else ValueError on every rank. Costs 8 bytes per element and node.
    """

    owner: Callable[[npt.NDArray[np.int64], npt.NDArray[np.int64]], Any] | npt.ArrayLike

    def _as_tuple(self, n: int, size: int) -> _Tuple:
        owners = np.empty(n * (n + 1) // 2, dtype=np.int32)
        given = None if callable(self.owner) else self._matrix(n)
        first = row = 0
        while row < n:  # some rows at a time
            stop = min(n, row + 1 + (1 << 18) // n)
            i, j = (x + row for x in np.triu_indices(stop - row, 0, n - row))
            part = self.owner(i, j) if given is None and callable(self.owner) else np.asarray(given)[i, j]
            owners[first : first + len(i)] = self._checked(np.asarray(part), i, j, size)
            first, row = first + len(i), stop
        return 3, 0, 0, 0, owners

    def _matrix(self, n: int) -> npt.NDArray[Any]:
        matrix = np.asarray(self.owner)
        if matrix.shape != (n, n):
            raise ValueError(f"CustomLayout: an array of owners must be {n} x {n}, not of shape {matrix.shape}")
        return matrix

    @staticmethod
    def _checked(
        ranks: npt.NDArray[Any], i: npt.NDArray[np.int64], j: npt.NDArray[np.int64], size: int
    ) -> npt.NDArray[Any]:
        if ranks.dtype.kind not in "iu":
            raise TypeError(f"CustomLayout: owners must be integers, not {ranks.dtype}")
        if ranks.shape not in ((), i.shape):
            raise ValueError(f"CustomLayout: {len(i)} elements, but owners of shape {ranks.shape}")
        ranks = np.broadcast_to(ranks, i.shape)
        wrong = np.flatnonzero((ranks < 0) | (ranks >= size))
        if len(wrong):
            k = wrong[0]
            raise ValueError(
                f"CustomLayout: owner {ranks[k]} of element ({i[k]}, {j[k]}) is not one of {size} ranks"
            )
        return ranks


Layout = ElementCyclic | BlockCyclic | PackedRows | CustomLayout
