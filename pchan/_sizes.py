# SPDX-License-Identifier: MIT
"""Sizes that gram takes and needs: arguments, bits of Q', bytes of a node.  Everything here is local."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ._blocks import Blocks, plan_blocks
from ._exact import MAX_BITS
from ._integers import whole_number
from .basis import PrimeBasis
from .qreduce import QReduceScatter

MIN_PRECISION = 32
MAX_PRECISION = (MAX_BITS - 1) // 2
DEFAULT_WORK = 256 << 20  # bytes per rank


def normalized_bits(precision: int) -> int:
    """Bits of Q' with normalised columns, for any number of rows.

    norm_j >= the true norm, so the columns of P / norm have norms of at most 1 over all ranks, and
    Cauchy-Schwarz for any subset of rows gives sum_k |P'_ki P'_kj| <= 4**N when P' is cut towards
    zero.  Rounding to nearest moves a column of K rows by at most sqrt(K) / 2:
    |Q'| <= (2**N + sqrt(K) / 2)**2, below 2**(2N + 1) while K < 4**N / 2, so for every K < 2**40
    and N >= 32.
    """
    return 2 * precision + 1


def normalized_limbs(precision: int) -> int:
    """Of P', abs(P') <= 2**N."""
    return -(-(precision + 2) // 64)


def checked_sizes(n: Any, precision: Any) -> tuple[int, int]:
    return checked_number("n", n, 1, 2**31 - 1), checked_number(
        "precision", precision, MIN_PRECISION, MAX_PRECISION
    )


def checked_number(name: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, bool):
        raise TypeError(f"gram: {name} must be an integer, not bool")
    return whole_number(value, f"gram: {name}", least, most)


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool | np.bool_ | int) or value not in (0, 1):
        raise TypeError(f"gram: {name} must be True or False, not {value!r}")
    return bool(value)


def available(memory: int | None, fixed: int, ranks: int, least: int) -> int:
    """Bytes of a node to work with, of which `least` are needed.  ValueError when they are fewer."""
    room = DEFAULT_WORK * ranks if memory is None else memory - fixed
    if room < least and memory is not None:
        raise ValueError(
            f"gram: memory = {memory} bytes are too few for a node: at least {fixed + least} are needed"
        )
    return max(room, least)


@dataclass(frozen=True)
class Estimate:
    """Bytes that a node takes for a plan, its newest result included; of several nodes, the one that takes most.

    Attributes
    ----------
    window : int
        Sums of Q, node-shared.
    results : int
        Limbs and indices: of the plan and of one result.
    buffers : int
        Messages on their way, and tables.
    work : int
        Limbs and residues of P', and products.
    total : int
        All of these.
    n_passes : int
        How often residues of a panel of P are made; 1 when memory is ample.
    """

    window: int
    results: int
    buffers: int
    work: int
    total: int
    n_passes: int


def result_bytes(n_local: int, basis: PrimeBasis) -> int:
    """Limbs and indices of a rank's elements: the reduce-scatter's and one result's."""
    return 2 * n_local * (8 * basis.n_limbs + 16)


def estimate(
    n: int,
    precision: int,
    rows: int,
    ranks: int,
    nodes: int,
    memory: int | None,
    entry_bits: int | None,
    **q_options: Any,
) -> Estimate:
    """See `GramPlan.estimate`."""
    n, precision = checked_sizes(n, precision)
    rows, ranks = checked_number("rows", rows, 0, 2**40), checked_number("ranks", ranks, 1, 2**20)
    nodes = checked_number("nodes", nodes, 1, 2**20)
    memory = None if memory is None else checked_number("memory", memory, 1, 2**62)
    bits, n_limbs = normalized_bits(precision), normalized_limbs(precision)
    if entry_bits is not None:
        entry_bits = checked_number("entry_bits", entry_bits, 1, MAX_BITS)
        bits, n_limbs = 2 * entry_bits + (nodes * rows).bit_length(), entry_bits // 64 + 1
    basis = PrimeBasis(bits)
    q = QReduceScatter.estimate(n, basis, np.repeat(np.arange(nodes), ranks), **q_options)
    results = np.array([result_bytes(int(k), basis) for k in q.n_local]).reshape(nodes, ranks).sum(axis=1)
    held = q.rank_bytes.reshape(nodes, ranks).sum(axis=1)
    largest = int((results + held).argmax())
    fixed, result = int((results + held)[largest]), int(results[largest])
    room = available(memory, fixed, ranks, Blocks(1, 1, 1).n_bytes(basis, n, n_limbs, ranks))
    blocks = plan_blocks(basis, rows, n, n_limbs, ranks, room)
    assert blocks is not None
    work = blocks.n_bytes(basis, n, n_limbs, ranks)
    buffers = int(held[largest]) - q.window_bytes
    return Estimate(q.window_bytes, result, buffers, work, fixed + work, blocks.n_passes(rows, n))
