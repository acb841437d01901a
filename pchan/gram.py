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

from ._collective import agree_equal, agreed
from ._integers import whole_number
from ._numbers import Exact, convert
from ._quantize import MAX_BITS, Scale, column_norms, exact_scale, quantize, scale_exactly, total_rows
from ._result import Gram, ScaledQ
from ._syrk import DEFAULT_MEMORY, BlasThreads, Clock, add_products
from .basis import PrimeBasis, ints_to_limbs
from .errors import StateError, check_running
from .layout import Layout
from .qreduce import QReduceScatter

__all__ = ["Gram", "GramPlan", "gram"]

MIN_PRECISION = 32
MAX_PRECISION = (MAX_BITS - 1) // 2


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
        return plan._run(exact.resized(n))


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
    memory : int
        Bytes this rank may use for residues and products; more means fewer passes.

    Raises
    ------
    TypeError, ValueError
        On every rank, also when the ranks' arguments differ.
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
        memory: int = DEFAULT_MEMORY,
    ) -> None:
        _check_comm(comm)
        with agreed(comm):
            n, precision = _checked_sizes(n, precision)
            if rounding not in ("trunc", "nearest"):
                raise ValueError(f'rounding must be "trunc" or "nearest", not {rounding!r}')
            memory = _whole_number("memory", memory, 1, 2**62)
            normalize = _flag("normalize", normalize)
        same = {"n": n, "precision": precision, "normalize": normalize, "rounding": rounding == "nearest"}
        agree_equal(comm, same, "GramPlan")
        self.comm, self.n, self.precision = comm, n, precision
        self.normalize, self.rounding = normalize, rounding
        self._memory = memory
        self._q_options = {
            "layout": layout,
            "node_comm": node_comm,
            "strategy": strategy,
            "buffer_bytes": buffer_bytes,
        }
        self._q: QReduceScatter | None = None
        self._freed = False
        self._blas_threads = BlasThreads(_ranks_on_node(comm))
        if self.normalize:
            self._reserve(_normalized_bits(precision))

    def __call__(self, P: Any, *, scale_bits: int | None = None) -> Gram:
        """Q of new rows.  Collective over the plan's communicator.  Earlier results stay valid.

        Arguments and errors as for `gram`; RuntimeError (StateError) after `free`.
        """
        _check_comm(self.comm)
        with agreed(self.comm):
            if self._freed:
                raise StateError("GramPlan: called after free")
        return self._run(_converted(P, self.comm, scale_bits, self.n).resized(self.n))

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

    def _run(self, exact: Exact) -> Gram:
        """The stages in order."""
        clock = Clock()
        with clock("norms_s"):
            scale = self._scale(exact)
        q = self._q
        assert q is not None
        try:
            with agreed(self.comm), self._blas_threads():
                with clock("quantize_s"):
                    limbs = ints_to_limbs(self._integers(exact, scale), q.basis.n_limbs)
                add_products(q, q.basis, limbs, self._memory, clock)
            q.start()
            q.wait()
            with agreed(self.comm):
                scaled = _copied(self.comm, q)
        except BaseException:
            self._drop()  # what has been added must not reach the next cycle
            raise
        stats = clock.seconds | dict(q.stats) | {"n_primes": q.basis.n_primes, "bits": q.basis.bits}
        return Gram(
            scaled,
            scale,
            n_rows=total_rows(self.comm, exact.k),
            precision=self.precision,
            normalized=self.normalize,
            stats=stats,
        )

    def _scale(self, exact: Exact) -> Scale:
        """Norms, or the common denominator, and a QReduceScatter that holds the products."""
        if self.normalize:
            mantissas, exponents = column_norms(exact, self.comm, self.precision)
            scale, bits = Scale(mantissas, exponents, -self.precision), _normalized_bits(self.precision)
        else:
            scale, bits = exact_scale(exact, self.comm)
        self._reserve(bits)
        return scale

    def _integers(self, exact: Exact, scale: Scale) -> Any:
        if self.normalize:
            return quantize(exact, scale, self.precision, self.rounding)
        return scale_exactly(exact, scale)

    def _reserve(self, bits: int) -> None:
        """A QReduceScatter of at least `bits`; bits are the same on every rank.  Collective."""
        if self._q is not None and self._q.basis.bits >= bits:
            return
        self._drop()
        self._q = QReduceScatter(self.comm, self.n, PrimeBasis(bits), **self._q_options)

    def _drop(self) -> None:
        q, self._q = self._q, None
        if q is not None and not q.active:  # an interrupted wait leaves it to the garbage collector
            q.free()


def _normalized_bits(precision: int) -> int:
    """Bits of Q' with normalised columns, for any number of rows.

    norm_j >= the true norm, so the columns of P / norm have norms of at most 1 over all ranks, and
    Cauchy-Schwarz for any subset of rows gives sum_k |P'_ki P'_kj| <= 4**N when P' is cut towards
    zero.  Rounding to nearest moves a column of K rows by at most sqrt(K) / 2:
    |Q'| <= (2**N + sqrt(K) / 2)**2, below 2**(2N + 1) while K < 4**N / 2, so for every K < 2**40
    and N >= 32.
    """
    return 2 * precision + 1


def _checked_sizes(n: Any, precision: Any) -> tuple[int, int]:
    return _whole_number("n", n, 1, 2**31 - 1), _whole_number("precision", precision, MIN_PRECISION, MAX_PRECISION)


def _whole_number(name: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, bool):
        raise TypeError(f"gram: {name} must be an integer, not bool")
    return whole_number(value, f"gram: {name}", least, most)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool | np.bool_ | int) or value not in (0, 1):
        raise TypeError(f"gram: {name} must be True or False, not {value!r}")
    return bool(value)


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


def _ranks_on_node(comm: MPI.Intracomm) -> int:
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    try:
        return node.Get_size()
    finally:
        node.Free()


def _converted(P: Any, comm: MPI.Intracomm, scale_bits: int | None, n: int) -> Exact:
    """Rows as exact numbers, with errors that name the rank.  Collective over `comm`."""
    with agreed(comm):
        try:
            if scale_bits is not None:
                scale_bits = _whole_number("scale_bits", scale_bits, 0, 2**40)
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
