# SPDX-License-Identifier: MIT
"""gram: rows of P on every rank to Q = P^T P, exact after quantisation, distributed.

P rows -quantize-> integers -residues-> float64 mod p -syrk-> tiles -QReduceScatter-> Q'
"""

from __future__ import annotations

import inspect
from types import TracebackType
from typing import Any

import numpy as np
from mpi4py import MPI

from ._blocks import Blocks
from ._collective import agree_equal, agreed
from ._exact import Divisors, Exact, Scale
from ._numbers import convert
from ._quantize import column_norms, exact_scale, total_rows
from ._result import Gram, ScaledQ
from ._sizes import (
    Estimate,
    available,
    checked_number,
    checked_sizes,
    estimate,
    flag,
    normalized_bits,
    normalized_limbs,
    result_bytes,
)
from ._syrk import Clock, Fill, Products, Progress, Work, node_numbers, one_blas_thread
from .basis import PrimeBasis
from .errors import StateError, check_running
from .layout import Layout
from .qreduce import QReduceScatter

__all__ = ["Gram", "GramPlan", "gram"]


def gram(P: Any, comm: MPI.Intracomm, precision: int, *, scale_bits: int | None = None, **options: Any) -> Gram:
    """Q = sum over all ranks of P^T P.  Collective over `comm`.

    Parameters
    ----------
    P
        This rank's rows, any number of them, also none: `[]` learns the number of columns from the
        others.  Entries: Python int, float, Fraction; mpmath mpf; gmpy2 mpz, mpq, mpfr;
        python-flint fmpz, fmpq, arb (its midpoint); NumPy scalars; or 2-D arrays of them.
    comm
        Must live as long as the result's collective methods are used.
    precision : int, 32 to 32767
        Bits N of the scaled entries.
    scale_bits : int, optional
        P is uint64[k, n, n_limbs]: two's complement integers over 2**scale_bits.
    **options
        As for `GramPlan`.

    Returns
    -------
    Gram

    Raises
    ------
    TypeError, ValueError
        On every rank, naming rank, row and column: an entry that is not a finite real number,
        ragged rows, columns or precision that differ over ranks.
    """
    _check_comm(comm)
    with agreed(comm):
        _check_options(options)
    clock = Clock()
    with clock("convert_s"):
        exact = _converted(P, comm, scale_bits, -1)
    widths = np.empty(comm.Get_size(), dtype=np.int64)
    comm.Allgather(np.array([exact.n], dtype=np.int64), widths)
    n = int(widths.max())
    for rank, width in enumerate(widths.tolist()):
        if width not in (-1, n):
            raise ValueError(f"P has {width} columns on rank {rank} and {n} on rank {int(widths.argmax())}")
    with agreed(comm):
        if n < 0:
            raise ValueError("no rank has a row of P, so the number of columns is unknown; GramPlan takes it")
    with GramPlan(comm, n, precision, **options) as plan:
        return plan._run(exact.resized(n), clock)


class GramPlan:
    """gram set up once, for many iterations: `g = plan(P)`.  Collective over `comm`.

    Parameters
    ----------
    comm : Intracomm
        Must live as long as the plan and its results' collective methods are used.
    n : int
        Columns of P.
    precision : int, 32 to 32767
        Bits N of the scaled entries: P' = P / norm * 2**N, rounded.
    normalize : bool
        False: P itself, exact, must be integers over one common denominator; `precision` then
        only serves `cond_number`.
    rounding : "trunc" or "nearest"
        Of P'; abs(dQ_ij) <= 2 sqrt(K) 2**-N norm_i norm_j for K rows, half of it for "nearest".
    layout, node_comm, strategy, buffer_bytes
        As for `QReduceScatter`.
    memory : int, optional
        Bytes that a node may use for the plan and its newest result, P and its limbs apart (see `estimate`);
        more means fewer passes.  Default: what Q takes, and 256 MiB per rank to work with.
    progress : callable, optional
        Called as progress(done, total) during the products, on ranks that give one; local.

    Raises
    ------
    TypeError, ValueError
        On every rank, also when the ranks' arguments differ, or `memory` is too little; the message
        then says what is needed.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        n: int,
        precision: int,
        *,
        normalize: bool = True,
        rounding: str = "trunc",
        layout: Layout | None = None,
        node_comm: MPI.Intracomm | None = None,
        strategy: str = "residues",
        buffer_bytes: int = 64 << 20,
        memory: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        _check_comm(comm)
        with agreed(comm):
            n, precision = checked_sizes(n, precision)
            _check_rounding(rounding)
            memory = None if memory is None else checked_number("memory", memory, 1, 2**62)
            normalize = flag("normalize", normalize)
            if progress is not None and not callable(progress):
                raise TypeError(f"gram: progress must be callable, not {type(progress).__name__}")
        same = {"n": n, "precision": precision, "normalize": normalize, "rounding": rounding == "nearest"}
        same["memory"] = memory or 0  # blocks are cut by it, and ranks of a node work on the same ones
        agree_equal(comm, same, "GramPlan")
        self.comm, self.n, self.precision = comm, n, precision
        self.normalize, self.rounding = normalize, rounding
        self._memory, self._progress = memory, progress
        self._q_options = {
            "layout": layout,
            "node_comm": node_comm,
            "strategy": strategy,
            "buffer_bytes": buffer_bytes,
        }
        self._node_handle = None if node_comm is None else node_comm.handle
        self._q: QReduceScatter | None = None
        self._work: Work | None = None
        self._freed = self._running = False
        if self.normalize:
            self._reserve(normalized_bits(precision), normalized_limbs(precision))

    @staticmethod
    def estimate(
        n: int,
        precision: int,
        rows: int,
        *,
        ranks: int = 1,
        nodes: int = 1,
        memory: int | None = None,
        entry_bits: int | None = None,
        layout: Layout | None = None,
        strategy: str = "residues",
        buffer_bytes: int = 64 << 20,
    ) -> Estimate:
        """Bytes that one of `nodes` equal nodes will use, P and its limbs apart.  Local; nothing is allocated.

        Parameters
        ----------
        n, precision, memory, layout, strategy, buffer_bytes
            As for the plan.
        rows : int
            Rows of P on this node.
        ranks : int
            Ranks of a node, consecutive ones.
        entry_bits : int, optional
            For normalize=False: abs(entry) < 2**entry_bits, over the common denominator.

        Raises
        ------
        TypeError, ValueError
            Also when `memory` is too little; the message says what is needed.
        """
        options: dict[str, Any] = {"layout": layout, "strategy": strategy, "buffer_bytes": buffer_bytes}
        return estimate(n, precision, rows, ranks, nodes, memory, entry_bits, **options)

    def __call__(self, P: Any, *, scale_bits: int | None = None) -> Gram:
        """Q of new rows.  Collective over the plan's communicator.  Earlier results stay valid.

        Arguments and errors as for `gram`; RuntimeError (StateError) after `free`.
        """
        _check_comm(self.comm)
        with agreed(self.comm):
            if self._freed:
                raise StateError("GramPlan: called after free")
            if self._running:
                raise StateError("GramPlan: called while it runs, by `progress` or another thread")
        self._running = True
        try:
            clock = Clock()
            with clock("convert_s"):
                exact = _converted(P, self.comm, scale_bits, self.n).resized(self.n)
            return self._run(exact, clock)
        finally:
            self._running = False

    def free(self) -> None:
        """Release buffers.  Local, idempotent; results stay valid."""
        self._freed = True
        self._drop()

    def __enter__(self) -> GramPlan:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.free()

    def _run(self, exact: Exact, clock: Clock) -> Gram:
        """The stages in order."""
        with clock("norms_s"):
            scale, n_limbs = self._scale(exact)
        q, work = self._q, self._work
        assert q is not None and work is not None
        try:
            products = Products(q, work, n_limbs, clock, self._progress)
            with agreed(self.comm), one_blas_thread():
                products.add(exact.k, self._filler(exact, scale, n_limbs))
            q.start()
            q.wait()
            with agreed(self.comm):
                scaled = _copied(self.comm, q)
        except BaseException:
            self._drop()  # what has been added must not reach the next cycle
            raise
        held = products.blocks.n_bytes(q.basis, self.n, n_limbs, work.ranks) // work.ranks
        counts = {
            "n_primes": q.basis.n_primes,
            "bits": q.basis.bits,
            "n_passes": products.n_passes,
            "bytes_work": held,
        }
        return Gram(
            scaled,
            scale,
            n_rows=total_rows(self.comm, exact.k),
            precision=self.precision,
            normalized=self.normalize,
            stats=clock.seconds | dict(q.stats) | counts,
        )

    def _scale(self, exact: Exact) -> tuple[Scale, int]:
        """Norms, or the common denominator, and limbs of P'; a QReduceScatter that holds the products."""
        if self.normalize:
            mantissas, exponents = column_norms(exact, self.comm, self.precision)
            scale, bits = Scale(mantissas, exponents, -self.precision), normalized_bits(self.precision)
            n_limbs = normalized_limbs(self.precision)
        else:
            scale, entry_bits, bits = exact_scale(exact, self.comm)
            n_limbs = entry_bits // 64 + 1
        self._reserve(bits, n_limbs)
        return scale, n_limbs

    def _filler(self, exact: Exact, scale: Scale, n_limbs: int) -> Fill:
        """What writes P' of some rows of this rank."""
        if not self.normalize:
            return lambda rows, out: exact.align_into(rows, scale, out)
        by, nearest = Divisors(scale, self.precision, n_limbs), self.rounding == "nearest"
        return lambda rows, out: exact.quantize_into(rows, by, nearest, out)

    def _reserve(self, bits: int, n_limbs: int) -> None:
        """A QReduceScatter of at least `bits`, and memory for products.  Collective."""
        if self._q is not None and self._q.basis.bits >= bits:
            return
        self._drop()
        basis = PrimeBasis(bits)
        q = QReduceScatter(self.comm, self.n, basis, **self._q_options)  # also checks node_comm
        try:
            mine = int(q.stats["bytes_held"]) + result_bytes(len(q.rows), basis)
            everyone = node_numbers(self.comm, self._node_handle, mine)
            with agreed(self.comm):
                least = Blocks(1, 1, 1).n_bytes(basis, self.n, n_limbs, len(everyone))
                room = available(self._memory, sum(everyone), len(everyone), least)
            self._work = Work(self.comm, self._node_handle, room)
        except BaseException:
            q.free()
            raise
        self._q = q

    def _drop(self) -> None:
        q, self._q, self._work = self._q, None, None
        if q is not None and not q.active:  # an interrupted wait leaves it to the garbage collector
            q.free()


def _check_rounding(rounding: Any) -> None:
    if rounding not in ("trunc", "nearest"):
        raise ValueError(f'rounding must be "trunc" or "nearest", not {rounding!r}')


def _check_options(options: dict[str, Any]) -> None:
    known = inspect.signature(GramPlan.__init__).parameters.values()
    names = [p.name for p in known if p.kind is inspect.Parameter.KEYWORD_ONLY]
    for name in options:
        if name not in names:
            raise TypeError(f"gram: unknown option {name!r}; there are {', '.join(names)}")


def _check_comm(comm: Any) -> None:
    check_running("gram")
    if not isinstance(comm, MPI.Intracomm):
        raise TypeError(f"gram: comm must be an mpi4py Intracomm, not {type(comm).__name__}")
    if comm == MPI.COMM_NULL:
        raise ValueError("gram: comm is COMM_NULL (or was freed)")


def _converted(P: Any, comm: MPI.Intracomm, scale_bits: int | None, n: int) -> Exact:
    """Rows as exact numbers, with errors that name the rank.  Collective over `comm`."""
    with agreed(comm):
        try:
            if scale_bits is not None:
                scale_bits = checked_number("scale_bits", scale_bits, 0, 2**40)
            exact = convert(P, scale_bits)
            if n >= 0 and exact.n not in (-1, n):
                raise ValueError(f"P has {exact.n} columns, the plan {n}")
        except (TypeError, ValueError) as exc:
            raise type(exc)(f"rank {comm.Get_rank()}: {exc}") from exc
    return exact


def _copied(comm: MPI.Intracomm, q: QReduceScatter) -> ScaledQ:
    limbs, rows, cols = q.limbs.copy(), q.rows.copy(), q.cols.copy()
    for array in (limbs, rows, cols):
        array.flags.writeable = False
    return ScaledQ(comm, q.n, limbs, rows, cols)
