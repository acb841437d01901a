# SPDX-License-Identifier: MIT
"""Rows of P from a folder that SDPB's pmp2sdp wrote as JSON, the blocks dealt over the ranks.

At the solver's first iteration X and Y are multiples of the identity, so P follows from the input
alone.  For a block with dim = 1, with its bases b (rows: functions, columns: sample points):

    S = (b^T b) o (b^T b) for the even basis, plus the same for the odd one   (o: by element)
    L = Cholesky(S),  P_block = L^-1 B,  and P is the blocks stacked.
"""

from __future__ import annotations

import heapq
import json
import operator
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
from mpi4py import MPI

from ._collective import agree_equal, agreed

__all__ = ["GUARD_BITS", "SdpbRows", "read"]

GUARD_BITS = 64
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,6})?", re.ASCII)
_MAX_DIGITS = 100_000
Row = list[Any]  # of mpf


@dataclass
class SdpbRows:
    """This rank's part of P, and the size of the whole.

    Attributes
    ----------
    rows : list of n_local lists of n mpf
        Of `precision` + 64 bits; ready for `gram`.
    n : int
        Columns of P.
    n_rows : int
        Of all ranks.
    n_blocks : int
        Of all ranks.
    blocks : list of int
        Numbers of this rank's blocks, ascending.
    """

    rows: list[Row]
    n: int
    n_rows: int
    n_blocks: int
    blocks: list[int]


def read(
    directory: str | os.PathLike[str],
    comm: MPI.Intracomm,
    precision: int,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> SdpbRows:
    """Read `control.json`, `block_info_*.json` and `block_data_*.json`.  Collective over `comm`.

    Every number of P is the same for any number of ranks; the costliest blocks are dealt first.

    Parameters
    ----------
    directory
        The same on every rank, which reads its own blocks; rank 0 reads the small files.
    precision : int
        Bits; the arithmetic has 64 more.
    progress : callable, optional
        Called as progress(done, total) after each of this rank's blocks; local.

    Raises
    ------
    OSError
        On every rank: a file is missing or unreadable.
    ValueError
        On every rank, naming file, block and key: no JSON, a key or a shape that is wrong, a
        string that is not a decimal number, a block with dim > 1 or with S not positive definite.
    """
    with agreed(comm):
        folder = Path(directory)
        precision = operator.index(precision)
        if precision < 1:
            raise ValueError(f"precision = {precision} is not positive")
    agree_equal(comm, {"precision": precision}, "sdpb.read")
    points = _shared_points(folder, comm)
    blocks = [k for k, rank in enumerate(_deal(points, comm.size)) if rank == comm.rank]
    parts: list[list[Row]] = []
    with agreed(comm):
        context = mpmath.MPContext()
        context.prec = precision + GUARD_BITS
        for k in blocks:
            parts.append(_Block(folder, k, points[k]).rows_of_p(context))
            if progress is not None:
                progress(len(parts), len(blocks))
    rows = [row for part in parts for row in part]
    # Rank 0 always has a block: it is dealt the first one.
    n = np.array([len(rows[0]) if rows else 0], dtype=np.int64)
    comm.Bcast(n, root=0)
    with agreed(comm):
        _check_columns(folder, blocks, parts, int(n[0]))
    return SdpbRows(rows, int(n[0]), sum(points), len(points), blocks)


def _shared_points(folder: Path, comm: MPI.Intracomm) -> list[int]:
    """num_points of every block, read by rank 0."""
    points: list[int] = []
    with agreed(comm):
        if comm.rank == 0:
            points = _read_points(folder)
    count = np.array([len(points)], dtype=np.int64)
    comm.Bcast(count, root=0)
    shared = np.array(points, dtype=np.int64) if comm.rank == 0 else np.empty(int(count[0]), dtype=np.int64)
    comm.Bcast(shared, root=0)
    return [int(p) for p in shared]


def _read_points(folder: Path) -> list[int]:
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder")
    path = folder / "control.json"
    n_blocks = _positive(_load(path), path, "num_blocks")
    points = []
    for k in range(n_blocks):
        path = folder / f"block_info_{k}.json"
        info = _load(path)
        dim = _positive(info, path, "dim")
        if dim != 1:
            raise ValueError(f"{path}, block {k}: key 'dim' is {dim}; only blocks with dim 1 can be read")
        points.append(_positive(info, path, "num_points"))
    return points


def _deal(points: list[int], size: int) -> list[int]:
    """Rank of each block: the costliest block first, each to the rank with the least to do."""
    loads = [(0, rank) for rank in range(size)]
    owners = [0] * len(points)
    for k in sorted(range(len(points)), key=lambda k: (-points[k], k)):
        load, owners[k] = heapq.heappop(loads)
        # Reading takes about as long as the arithmetic at 20 points.
        heapq.heappush(loads, (load + points[k] ** 2 * (points[k] + 20), owners[k]))
    return owners


def _check_columns(folder: Path, blocks: list[int], parts: list[list[Row]], n: int) -> None:
    for k, part in zip(blocks, parts, strict=True):
        if len(part[0]) != n:
            path = folder / f"block_data_{k}.json"
            raise ValueError(f"{path}, block {k}: key 'B' has {len(part[0])} columns, other blocks have {n}")


def _load(path: Path) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except OSError as exc:
        raise type(exc)(f"{path}: {exc.strerror or exc}") from exc
    except (ValueError, RecursionError) as exc:
        raise ValueError(f"{path}: not JSON: {exc}") from exc
    if not isinstance(data, dict):
        raise ValueError(f"{path}: not a JSON object")
    return data


def _positive(data: dict[str, Any], path: Path, key: str) -> int:
    if key not in data:
        raise ValueError(f"{path}: key '{key}' is missing")
    value = data[key]
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**31:
        raise ValueError(f"{path}: key '{key}' is {value!r:.40}, not a positive integer")
    return value


class _Block:
    """One block_data file."""

    def __init__(self, folder: Path, number: int, n_points: int) -> None:
        path = folder / f"block_data_{number}.json"
        self._name = f"{path}, block {number}"
        self._data = _load(path)
        self._n_points = n_points

    def rows_of_p(self, context: Any) -> list[Row]:
        """P_block = L^-1 B, n_points rows of mpf."""
        even = self._table(context, "bilinear_bases_even", self._n_points)
        odd = self._table(context, "bilinear_bases_odd", self._n_points)
        b = self._table(context, "B")
        if len(b) != self._n_points:
            raise ValueError(f"{self._name}: key 'B' has {len(b)} rows, num_points is {self._n_points}")
        lower = self._cholesky(context, _pairings(context, (even, odd), self._n_points))
        return _solved(context, lower, b)

    def _table(self, context: Any, key: str, width: int | None = None) -> list[Row]:
        """Numbers of a matrix; all rows as long as `width` or the first one."""
        table = self._data.get(key)
        if not isinstance(table, list) or not all(isinstance(row, list) for row in table):
            what = "is not a list of rows" if key in self._data else "is missing"
            raise ValueError(f"{self._name}: key '{key}' {what}")
        width = len(table[0]) if width is None and table else width
        result = []
        for r, row in enumerate(table):
            if len(row) != width or not row:
                raise ValueError(f"{self._name}: key '{key}', row {r} has {len(row)} columns, not {width or 1}")
            result.append([self._number(context, text, key, r, c) for c, text in enumerate(row)])
        return result

    def _number(self, context: Any, text: Any, key: str, r: int, c: int) -> Any:
        if isinstance(text, str) and len(text) < _MAX_DIGITS and _DECIMAL.fullmatch(text):
            try:
                return context.mpf(text)
            except ValueError:  # more digits than Python converts
                pass
        raise ValueError(f"{self._name}: key '{key}', row {r}, column {c}: {text!r:.40} is not a decimal number")

    def _cholesky(self, context: Any, s: list[Row]) -> list[Row]:
        lower: list[Row] = []
        for i, s_row in enumerate(s):
            row: Row = []
            for j in range(i):
                row.append((s_row[j] - context.fdot(row, lower[j][:j])) / lower[j][j])
            pivot = s_row[i] - context.fdot(row, row)
            if pivot <= 0:
                raise ValueError(f"{self._name}: keys 'bilinear_bases_*' give an S that is not positive definite")
            row.append(context.sqrt(pivot))
            lower.append(row)
        return lower


def _pairings(context: Any, bases: tuple[list[Row], ...], n_points: int) -> list[Row]:
    """S, its lower triangle."""
    s = [[context.zero] * (i + 1) for i in range(n_points)]
    for basis in bases:
        columns = list(zip(*basis, strict=True)) if basis else []
        for i, column in enumerate(columns):
            for j in range(i + 1):
                s[i][j] += context.fdot(column, columns[j]) ** 2
    return s


def _solved(context: Any, lower: list[Row], b: list[Row]) -> list[Row]:
    """L^-1 B by forward substitution, column by column; rows of the result."""
    columns = []
    for right in zip(*b, strict=True):
        column: Row = []
        for row, value in zip(lower, right, strict=True):
            column.append((value - context.fdot(row[: len(column)], column)) / row[-1])
        columns.append(column)
    return [list(row) for row in zip(*columns, strict=True)]
