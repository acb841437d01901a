"""The exact sum over nodes of a large symmetric matrix, each element ending at its owner."""

from __future__ import annotations

import operator
from contextlib import suppress
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from ._agree import agree
from ._core import QReduce
from ._integers import whole_number
from .basis import PrimeBasis, checked_residues, limbs_to_ints
from .errors import check_running
from .layout import BlockCyclic, ElementCyclic, Layout, PackedRows

__all__ = ["QReduceScatter"]

STRATEGIES = ("residues", "gather")


def _check_comm(comm: Any, name: str) -> None:
    if not isinstance(comm, MPI.Comm):
        raise TypeError(f"QReduceScatter: {name} must be an mpi4py communicator, not {type(comm).__name__}")
    if comm == MPI.COMM_NULL:
        raise ValueError(f"QReduceScatter: {name} is COMM_NULL (or was freed)")
    if comm.Is_inter():
        raise ValueError(f"QReduceScatter: {name} is an intercommunicator; merge it first")


def _arguments(
    n: Any, basis: Any, layout: Any, node_comm: Any, strategy: Any, buffer_bytes: Any
) -> tuple[int, PrimeBasis, tuple[int, int, int, int], int | None, str, int]:
    if not isinstance(basis, PrimeBasis):
        raise TypeError(f"QReduceScatter: basis must be a PrimeBasis, not {type(basis).__name__}")
    if layout is None:
        layout = ElementCyclic()
    if not isinstance(layout, ElementCyclic | BlockCyclic | PackedRows):
        raise TypeError(f"QReduceScatter: {layout!r} is not a layout (ElementCyclic, BlockCyclic, PackedRows)")
    if node_comm is not None:
        _check_comm(node_comm, "node_comm")
    if not isinstance(strategy, str):
        raise TypeError(f"QReduceScatter: strategy must be a string, not {type(strategy).__name__}")
    if strategy not in STRATEGIES:
        raise ValueError(f"QReduceScatter: unknown strategy {strategy!r}; there are {' and '.join(STRATEGIES)}")
    size = whole_number(n, "QReduceScatter: n", 1)
    room = whole_number(buffer_bytes, "QReduceScatter: buffer_bytes", 0)
    node = None if node_comm is None else node_comm.handle
    return size, basis, layout._as_tuple(), node, strategy, max(room, 1)


class QReduceScatter(QReduce):
    """Sums every node's exact contribution to a symmetric n x n matrix of integers; each rank then holds the
    elements it owns. Collective over `comm`; wrong arguments on one rank are an error on all.

    Contributions are summed as residues and each element is restored once, at its owner (Chinese remainder
    theorem), so the result is exact and has the same bits for any number of ranks and nodes.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        May be freed afterwards.
    n : int
        Rows and columns, n >= 1. Only elements (i, j) with i <= j exist.
    basis : PrimeBasis
        The total must satisfy ``|x| < 2**basis.bits``; a node's part need not.
    layout : ElementCyclic, BlockCyclic or PackedRows, default ``ElementCyclic()``
    node_comm : Intracomm, optional
        The ranks of `comm` that share memory with this one; default: ``MPI_Comm_split_type(SHARED)``.
    strategy : "residues" (default) or "gather" (reference: slow and obvious)
        All give the same bits.
    buffer_bytes : int
        Room for messages on their way, per rank; less than one element means one element.

    Memory: ``8 * n_words`` bytes per upper element and node, and at most `buffer_bytes` a rank.
    """

    limbs: npt.NDArray[np.uint64]
    rows: npt.NDArray[np.int64]
    cols: npt.NDArray[np.int64]

    def __new__(
        cls,
        comm: MPI.Intracomm,
        n: int,
        basis: PrimeBasis,
        *,
        layout: Layout | None = None,
        node_comm: MPI.Intracomm | None = None,
        strategy: str = "residues",
        buffer_bytes: int = 64 << 20,
    ) -> QReduceScatter:
        check_running("QReduceScatter")
        _check_comm(comm, "comm")
        error, arguments = None, None
        try:
            arguments = _arguments(n, basis, layout, node_comm, strategy, buffer_bytes)
        except (TypeError, ValueError) as e:
            error = e
        agree(comm, error)
        assert arguments is not None
        return super().__new__(cls, comm.handle, *arguments)

    def __init__(self, comm: MPI.Intracomm, n: int, basis: PrimeBasis, **options: Any) -> None:
        self.n, self.basis = operator.index(n), basis
        self._rank, self._size = comm.rank, comm.size
        n_local, error = self.n_owned(self._rank), None
        try:
            limbs = np.zeros((n_local, basis.n_limbs), dtype=np.uint64)
            self.rows, self.cols = self._indices(self._rank)
            self.set_output(limbs)
        except MemoryError as e:
            error = MemoryError(f"QReduceScatter: no memory for {n_local} integers: {e}")
        agree(comm, error)
        self.limbs = limbs.view()
        for array in (self.limbs, self.rows, self.cols):
            array.flags.writeable = False

    def _indices(self, rank: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        rows, cols = np.empty((2, self.n_owned(rank)), dtype=np.int64)
        self.owned(rank, rows, cols)
        return rows, cols

    def add(self, i0: int, j0: int, tile: Any) -> None:
        """Adds a tile of residues to this node's contribution. Local.

        Everything that any rank adds is summed; ranks of one node share the memory, and each may add anywhere.

        Parameters
        ----------
        i0, j0 : int
            Element (r, c) of the tile goes to (i0 + r, j0 + c) when i0 + r <= j0 + c, and is ignored otherwise.
        tile : float64, int64 or uint32 [n_primes, rows, cols], any strides
            Any representative of each class; float64 must be integers of at most 2**53 in size.

        Raises
        ------
        TypeError for other dtypes; ValueError for shapes, places, NaN, infinities and non-integers; StateError
        while active. Nothing has been added then.
        """
        array = checked_residues(tile, self.basis.n_primes)
        if array.ndim != 3:
            raise ValueError(f"add: a tile has 3 dimensions [n_primes, rows, cols], not {array.ndim}")
        self.add_tile(whole_number(i0, "add: i0"), whole_number(j0, "add: j0"), array)

    def gather(self, root: int = 0) -> npt.NDArray[Any] | None:
        """The whole matrix, lower triangle mirrored, at `root`: object array n x n of Python ints; None elsewhere.

        Collective over comm. StateError before the first cycle and while active. After a RangeError the elements
        out of range are undefined until the next cycle.
        """
        limbs = None
        try:
            root = whole_number(root, "gather: root")
            if not 0 <= root < self._size:
                raise ValueError(f"gather: root {root} is not a rank of a communicator of {self._size}")
            if self._rank == root:
                limbs = np.empty((self.n * (self.n + 1) // 2, self.basis.n_limbs), dtype=np.uint64)
        except (TypeError, ValueError, MemoryError):
            with suppress(ValueError):
                self.gather_into(-1, None)  # an error on all ranks, here the one at hand
            raise
        self.gather_into(root, limbs)
        if limbs is None:
            return None
        indices = [self._indices(r) for r in range(self._size)]
        rows, cols = (np.concatenate(parts) for parts in zip(*indices, strict=True))
        matrix = np.empty((self.n, self.n), dtype=object)
        matrix[rows, cols] = limbs_to_ints(limbs)
        matrix[cols, rows] = matrix[rows, cols]
        return matrix

    def __enter__(self) -> QReduceScatter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or not self.active:
            self.free()

    def __reduce__(self) -> Any:
        raise TypeError("a QReduceScatter cannot be pickled or copied: it belongs to this process")

    def __repr__(self) -> str:
        state = "freed" if self.freed else "active" if self.active else "idle"
        return f"<QReduceScatter n={self.n}, bits={self.basis.bits}, {state}>"
