"""The exact sum over nodes of a large symmetric matrix, each element ending at its owner."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
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
from .layout import ElementCyclic, Layout

__all__ = ["Estimate", "QReduceScatter"]

STRATEGIES = ("residues", "restored", "ring", "ring_scan", "mpi", "gather")


def _check_comm(comm: Any, name: str) -> None:
    if not isinstance(comm, MPI.Comm):
        raise TypeError(f"QReduceScatter: {name} must be an mpi4py communicator, not {type(comm).__name__}")
    if comm == MPI.COMM_NULL:
        raise ValueError(f"QReduceScatter: {name} is COMM_NULL (or was freed)")
    if comm.Is_inter():
        raise ValueError(f"QReduceScatter: {name} is an intercommunicator; merge it first")


def _plan(
    n: Any, basis: Any, layout: Any, strategy: Any, buffer_bytes: Any, n_ranks: int
) -> tuple[int, PrimeBasis, Any, str, int]:
    """What a plan is made of, checked. Local."""
    if not isinstance(basis, PrimeBasis):
        raise TypeError(f"QReduceScatter: basis must be a PrimeBasis, not {type(basis).__name__}")
    if layout is None:
        layout = ElementCyclic()
    if not isinstance(layout, Layout):
        raise TypeError(
            f"QReduceScatter: {layout!r} is not a layout (ElementCyclic, BlockCyclic, PackedRows, CustomLayout)"
        )
    if not isinstance(strategy, str):
        raise TypeError(f"QReduceScatter: strategy must be a string, not {type(strategy).__name__}")
    if strategy not in STRATEGIES:
        raise ValueError(f"QReduceScatter: unknown strategy {strategy!r}; there are {', '.join(STRATEGIES)}")
    size = whole_number(n, "QReduceScatter: n", 1)
    room = whole_number(buffer_bytes, "QReduceScatter: buffer_bytes", 0)
    return size, basis, layout._as_tuple(size, n_ranks), strategy, max(room, 1)


@dataclass(frozen=True)
class Estimate:
    """What a :class:`QReduceScatter` will take, see :meth:`QReduceScatter.estimate`: arrays of bytes, int64."""

    n_local: npt.NDArray[np.int64]
    """[ranks] elements owned"""
    rank_bytes: npt.NDArray[np.int64]
    """[ranks] share of the node's window, buffers and tables; as ``stats["bytes_held"]``"""
    result_bytes: npt.NDArray[np.int64]
    """[ranks] limbs, rows and cols, which are the caller's"""
    node_bytes: npt.NDArray[np.int64]
    """[nodes] all of that, of all ranks of a node"""
    window_bytes: int
    """of these the node-shared window, on each node"""
    sent_bytes: npt.NDArray[np.int64]
    """[ranks] to other nodes, in a cycle; as ``stats["bytes_sent"]``"""
    wire_bytes: int
    """sum of sent_bytes"""


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
    layout : ElementCyclic, BlockCyclic, PackedRows or CustomLayout, default ``ElementCyclic()``
    node_comm : Intracomm, optional
        The ranks of `comm` that share memory with this one; default: ``MPI_Comm_split_type(SHARED)``.
    strategy : str
        All give the same bits. ``"residues"`` (default): each node sends each owner its words, owners add them and
        restore once. Baselines: ``"restored"`` (SDPB's pairwise exchange of restored integers), ``"ring"`` (SDPB's
        older ring over all ranks; ``"ring_scan"`` also looks for its elements as that did, at every step),
        ``"mpi"`` (``MPI_Reduce_scatter`` of uint32 residues) and ``"gather"`` (the reference: slow and obvious).
    buffer_bytes : int
        Room for messages on their way, per rank; less than one element means one element.

    Notes
    -----
    Memory: ``8 * n_words`` bytes per upper element and node, and at most `buffer_bytes` a rank (``gather``: all at
    rank 0); :meth:`estimate` tells it exactly. MemoryError when the node cannot hold it.

    A flipped bit in a window or a message ends in RangeError, with a probability of 1 - 2**-check_bits (see
    :class:`PrimeBasis`); messages of ``restored`` and ``ring`` carry a check sum instead.
    """

    limbs: npt.NDArray[np.uint64]
    """The integers that this rank owns, uint64[n_local, n_limbs], read-only; overwritten by the next cycle."""
    rows: npt.NDArray[np.int64]
    """Their rows, int64[n_local], read-only."""
    cols: npt.NDArray[np.int64]
    """Their columns, int64[n_local], read-only; rows <= cols."""

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
        error: Exception | None = None
        arguments = None
        try:
            if node_comm is not None:
                _check_comm(node_comm, "node_comm")
            arguments = _plan(n, basis, layout, strategy, buffer_bytes, comm.size)
        except Exception as e:  # a CustomLayout calls the program's function
            error = e
        agree(comm, error)
        assert arguments is not None
        size, basis, where, name, room = arguments
        node = None if node_comm is None else node_comm.handle
        return super().__new__(cls, comm.handle, size, basis, where, node, name, room)

    def __init__(self, comm: MPI.Intracomm, n: int, basis: PrimeBasis, **options: Any) -> None:
        self.n, self.basis = operator.index(n), basis
        self._rank, self._size = comm.rank, comm.size
        self._strategy = str(options.get("strategy", "residues"))
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

    @staticmethod
    def estimate(
        n: int,
        basis: PrimeBasis,
        nodes: Sequence[int] | npt.NDArray[Any],
        *,
        layout: Layout | None = None,
        strategy: str = "residues",
        buffer_bytes: int = 64 << 20,
    ) -> Estimate:
        """Memory and traffic of a plan, told without making it, for any number of ranks. Local.

        Parameters
        ----------
        nodes : [ranks] integers
            The node of each rank, numbered from 0: ``numpy.repeat(range(12), 128)`` for 12 nodes of 128 ranks.
        n, basis, layout, strategy, buffer_bytes
            As for the constructor.

        Raises
        ------
        TypeError, ValueError
            As the constructor does.
        """
        node_of = np.asarray(nodes)
        if node_of.ndim != 1 or not len(node_of) or node_of.dtype.kind not in "iu":
            raise ValueError("estimate: nodes must be the number of each rank's node")
        n_nodes = int(node_of.max()) + 1
        if node_of.min() < 0 or len(np.unique(node_of)) != n_nodes:
            raise ValueError("estimate: nodes must be numbered 0, 1, 2, ...")
        node_of = np.ascontiguousarray(node_of, dtype=np.int32)
        size, basis, where, name, room = _plan(n, basis, layout, strategy, buffer_bytes, len(node_of))
        figures = np.zeros((len(node_of), 4), dtype=np.int64)
        QReduce._estimate(size, basis, where, name, room, node_of, figures)
        n_local, window, held, sent = figures.T.copy()
        result = n_local * (8 * basis.n_limbs + 16)
        on_node = np.zeros(n_nodes, dtype=np.int64)
        np.add.at(on_node, node_of, held + result)
        return Estimate(n_local, held, result, on_node, int(window[0]), sent, int(sent.sum()))

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
        TypeError, ValueError
            For other dtypes; for shapes, places, NaN, infinities and non-integers. Nothing has been added then.
        StateError
            While active.
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
            root = self._root(root, "gather")
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

    def _root(self, root: Any, what: str) -> int:
        number = whole_number(root, f"{what}: root")
        if not 0 <= number < self._size:
            raise ValueError(f"{what}: root {root} is not a rank of a communicator of {self._size}")
        return number

    def report(self, root: int = 0) -> str | None:
        """The last cycle's `stats` as a table over ranks (min, mean, max), for a log: a text at `root`, else None.

        Collective over comm. StateError before the first cycle and while active::

            if (text := q.report()) is not None:
                print(text)
        """
        try:
            root = self._root(root, "report")
        except (TypeError, ValueError):
            with suppress(ValueError):
                self._all_stats(-1)  # an error on all ranks, here the one at hand
            raise
        everyone = self._all_stats(root)
        if self._rank != root:
            return None
        title = (
            f"QReduceScatter: n = {self.n}, {self.basis.bits} bits in {self.basis.n_words} words, "
            f"{self._size} ranks on {self.n_nodes} nodes, strategy {self._strategy}, "
            f"kernel {everyone[0]['kernel']}"
        )
        return "\n".join([title, *_table(everyone)])

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


_UNITS = {"_s": ("s", 1.0), "bytes_": ("MB", 1e-6), "n_": ("", 1.0)}


def _table(everyone: list[dict[str, Any]]) -> list[str]:
    """Lines of least, mean and most of every number in `everyone`, a dict per rank."""
    lines = [f"{'':16}{'min':>12}{'mean':>12}{'max':>12}"]
    for name in everyone[0]:
        values = [stats[name] for stats in everyone]
        if isinstance(values[0], str):
            continue
        unit, scale = next(u for key, u in _UNITS.items() if name.endswith(key) or name.startswith(key))
        label = f"{name.removesuffix('_s')} [{unit}]" if unit else name
        least, mean, most = (x * scale for x in (min(values), sum(values) / len(values), max(values)))
        lines.append(f"{label:16}{least:12.6g}{mean:12.6g}{most:12.6g}")
    return lines
