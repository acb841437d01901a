"""Which rank owns which element (i, j), i <= j, of the symmetric matrix of a :class:`~pchan.QReduceScatter`."""

from __future__ import annotations

import operator
from dataclasses import dataclass

__all__ = ["BlockCyclic", "ElementCyclic", "PackedRows"]


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

    def _as_tuple(self) -> tuple[int, int, int, int]:
        return 0, *_grid(self.grid), 0


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

    def _as_tuple(self) -> tuple[int, int, int, int]:
        return 1, *_grid(self.grid), operator.index(self.block)


@dataclass(frozen=True)
class PackedRows:
    """Whole rows of the upper triangle in rank order, balanced by the number of elements."""

    def _as_tuple(self) -> tuple[int, int, int, int]:
        return 2, 0, 0, 0


Layout = ElementCyclic | BlockCyclic | PackedRows
