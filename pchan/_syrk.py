# SPDX-License-Identifier: MIT
"""residues and syrk: a node's rows to residues in memory that its ranks share, their products per prime by
BLAS, tile by tile, packed straight into the window of Q.

Tasks are dealt out one by one, so the load is balanced whoever has the rows.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from ._blocks import Blocks, plan_blocks, tiles, whole_pages
from ._core import Team
from .qreduce import QReduceScatter

# (rows of this rank, out uint64[rows, n, n_limbs]): writes P'
Fill = Callable[[slice, npt.NDArray[np.uint64]], None]
Progress = Callable[[int, int], None]


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


class _OtherRank(Exception):
    """Another rank of the node has an error; it tells."""


def node_numbers(comm: MPI.Intracomm, node_comm: int | None, mine: int) -> list[int]:
    """One number of each rank of the node.  Collective over `comm`."""
    work = Work(comm, node_comm, 0)
    return work.gather(mine)


class Work:
    """A node's working memory, and what its ranks need to share out tasks.

    Made collectively over `comm`, with the handle of the node's communicator or None; `n_bytes` is what all ranks
    of the node may use, their products included.
    """

    def __init__(self, comm: MPI.Intracomm, node_comm: int | None, n_bytes: int) -> None:
        self.n_bytes = n_bytes
        self._team = Team(comm.handle, node_comm, n_bytes + 8 * comm.size)
        self.rank, self.ranks = self._team.node_rank, self._team.node_size
        memory = np.asarray(memoryview(self._team))
        self.area = memory[8 * comm.size :][: n_bytes // 8 * 8]
        self._numbers = memory[: 8 * self.ranks].view(np.int64)
        self._ticket: int | None = None  # drawn, but not used yet
        self._n_dealt = 0

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """A step of all ranks of the node, which ends when all have done it.  Collective over the node."""
        error: Exception | None = None
        try:
            yield
        except Exception as exc:
            error = exc
        if not self._team.all(error is None):
            raise error if error is not None else _OtherRank

    def gather(self, mine: int) -> list[int]:
        """A number of each rank of the node.  Collective over the node."""
        with self.together():
            self._numbers[self.rank] = mine
        numbers = [int(number) for number in self._numbers]
        with self.together():  # before anybody writes the next one
            return numbers

    def deal(self, n_tasks: int) -> Iterator[int]:
        """This rank's share of tasks 0, 1, ..., n_tasks - 1.  All ranks of the node deal the same tasks."""
        first, self._n_dealt = self._n_dealt, self._n_dealt + n_tasks
        while True:
            ticket = self._team.next() if self._ticket is None else self._ticket
            self._ticket = None
            if ticket >= self._n_dealt:
                self._ticket = ticket
                return
            yield ticket - first


class Products:
    """Adds P'^T P' of a node's rows to its contribution to Q.

    Parameters
    ----------
    q : QReduceScatter
    work : Work
    n_limbs : int
        Of the entries of P'.
    """

    def __init__(
        self, q: QReduceScatter, work: Work, n_limbs: int, clock: Clock, progress: Progress | None
    ) -> None:
        self._q, self._basis, self._work, self._n_limbs = q, q.basis, work, n_limbs
        self._clock, self._progress = clock, progress
        self.blocks = Blocks(1, 1, 1)
        self.n_passes = 0

    def add(self, k: int, fill: Fill) -> None:
        """Local to the node, on all ranks of which it is called; returns silently where only another one fails."""
        with contextlib.suppress(_OtherRank):
            counts = self._work.gather(k)
            self._plan(sum(counts))
            first = sum(counts[: self._work.rank])
            for begin in range(0, sum(counts), self.blocks.rows):
                end = min(begin + self.blocks.rows, sum(counts))
                self._fill(begin, end, first, k, fill)
                self._add_rows(end - begin)

    def _plan(self, k: int) -> None:
        n, work = self._q.n, self._work
        with work.together():
            blocks = plan_blocks(self._basis, k, n, self._n_limbs, work.ranks, work.n_bytes)
            if blocks is None:
                raise MemoryError(f"gram: {work.n_bytes} bytes of working memory do not hold one row of P'")
            self.blocks = blocks
            self._product = np.empty(self._basis.n_primes * blocks.tile**2)
        pairs = list(self._panel_pairs())
        self.n_passes = max(1, -(-k // blocks.rows)) * len(pairs)
        self._n_tiles = sum(len(self._tiles(i, j)) for i, j in pairs) * -(-k // blocks.rows)
        self._n_done = 0

    def _panel_pairs(self) -> Iterator[tuple[int, int]]:
        n, panel = self._q.n, self.blocks.panel
        return ((i, j) for i in range(0, n, panel) for j in range(i, n, panel))

    def _tiles(self, i: int, j: int) -> list[tuple[int, int]]:
        n, panel = self._q.n, self.blocks.panel
        return tiles(min(panel, n - i), min(panel, n - j), self.blocks.tile, i == j)

    def _fill(self, begin: int, end: int, first: int, k: int, fill: Fill) -> None:
        """Rows begin..end of the node's P' to limbs, each by the rank that has it."""
        n, n_limbs = self._q.n, self._n_limbs
        with self._work.together(), self._clock("quantize_s"):
            self._limbs = (
                self._work.area[: 8 * (end - begin) * n * n_limbs].view(np.uint64).reshape(-1, n, n_limbs)
            )
            low, high = max(begin, first), min(end, first + k)
            if low < high:
                fill(slice(low - first, high - first), self._limbs[low - begin : high - begin])

    def _add_rows(self, rows: int) -> None:
        left = None
        for i, j in self._panel_pairs():
            if i == j:
                left = self._residues(rows, i, 0)
            right = left if i == j else self._residues(rows, j, 1)
            assert left is not None and right is not None
            self._multiply(left, right, i, j)

    def _residues(self, rows: int, column: int, side: int) -> npt.NDArray[np.float64]:
        """float64[n_primes, rows, columns] of one panel, in shared memory."""
        blocks, n, n_primes = self.blocks, self._q.n, self._basis.n_primes
        width = min(blocks.panel, n - column)
        start = whole_pages(8 * blocks.rows * n * self._n_limbs) + side * 8 * n_primes * blocks.rows * blocks.panel
        table = self._work.area[start : start + 8 * n_primes * rows * width].view(np.float64)
        table = table.reshape(n_primes, rows * width)
        step = max(1, rows // (8 * self._work.ranks))
        with self._work.together(), self._clock("residues_s"):
            for task in self._work.deal(-(-rows // step)):
                begin, end = task * step, min((task + 1) * step, rows)
                self._residues_of(begin, end, column, width, table)
        residues: npt.NDArray[np.float64] = table.reshape(n_primes, rows, width)
        return residues

    def _residues_of(self, begin: int, end: int, column: int, width: int, table: npt.NDArray[np.float64]) -> None:
        into = self._basis.residues_into
        if width == self._q.n:
            into(self._limbs[begin:end].reshape(-1, self._n_limbs), table[:, begin * width : end * width])
            return
        for r in range(begin, end):
            into(self._limbs[r, column : column + width], table[:, r * width : (r + 1) * width])

    def _multiply(self, left: npt.NDArray[np.float64], right: npt.NDArray[np.float64], i0: int, j0: int) -> None:
        """syrk and pack: the tiles of left^T right on or above the diagonal of Q."""
        corners, tile = self._tiles(i0, j0), self.blocks.tile
        with self._work.together():
            for task in self._work.deal(len(corners)):
                i, j = corners[task]
                a, b = left[:, :, i : i + tile].swapaxes(1, 2), right[:, :, j : j + tile]
                shape = (len(a), a.shape[1], b.shape[2])
                product = self._product[: shape[0] * shape[1] * shape[2]].reshape(shape)
                with self._clock("syrk_s"):
                    np.matmul(a, b, out=product)
                self._q.add(i0 + i, j0 + j, product)
                if self._progress is not None:
                    self._progress(self._n_done + task + 1, self._n_tiles)
        self._n_done += len(corners)


def one_blas_thread() -> contextlib.AbstractContextManager[Any]:
    """NumPy's BLAS on one thread, when threadpoolctl is installed: the ranks share out the processors."""
    with contextlib.suppress(ImportError):
        import threadpoolctl  # type: ignore[import-not-found,unused-ignore]

        limit: contextlib.AbstractContextManager[Any] = threadpoolctl.threadpool_limits(limits=1, user_api="blas")
        return limit
    return contextlib.nullcontext()
