"""Ways to divide the ranks into nodes, for tests of QReduceScatter that run over all of them, and its strategies."""

from __future__ import annotations

import pytest

STRATEGIES = ["residues", "restored", "ring", "ring_scan", "mpi", "gather"]
DIVISIONS = {
    "one": lambda rank: 0,
    "each": lambda rank: rank,
    "1 + rest": lambda rank: int(rank > 0),
    "rest + 1": lambda rank: int(rank == 2),
    "cyclic": lambda rank: rank % 2,
    "blocks": lambda rank: rank // 2,
}


@pytest.fixture(params=DIVISIONS)
def node_comm(comm, request):
    node = comm.Split(DIVISIONS[request.param](comm.rank), -comm.rank)
    yield node
    node.Free()
