"""QReduceScatter on nodes of every shape: who is of which node, who adds what, and what travels."""

import numpy as np
import pytest
from divisions import STRATEGIES
from mpi4py import MPI
from oracle import random_ints, symmetric

import pchan

pytestmark = pytest.mark.mpi


@pytest.fixture
def basis():
    return pchan.PrimeBasis(130)


def deal_tiles(rng, n, size):
    """(rank, i0, j0, rows, cols) of tiles that cover the matrix once, dealt at random."""
    cuts = [np.unique(np.r_[0, rng.integers(0, n + 1, 3), n]).tolist() for _ in range(2)]
    for i0, i1 in zip(cuts[0], cuts[0][1:], strict=False):
        for j0, j1 in zip(cuts[1], cuts[1][1:], strict=False):
            yield int(rng.integers(size)), i0, j0, i1 - i0, j1 - j0


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("layout", [pchan.ElementCyclic(), pchan.PackedRows()], ids=str)
def test_tiles_dealt_over_ranks(comm, basis, node_comm, layout, strategy):
    n, rng = 12, np.random.default_rng(17)
    with pchan.QReduceScatter(comm, n, basis, layout=layout, node_comm=node_comm, strategy=strategy) as q:
        for _ in range(3):
            total = random_ints(rng, 130, (n, n))
            for rank, i0, j0, rows, cols in deal_tiles(rng, n, comm.size):
                if rank == comm.rank:
                    q.add(i0, j0, basis.residues(total[i0 : i0 + rows, j0 : j0 + cols]))
            q.start()
            q.wait()
            assert np.array_equal(pchan.limbs_to_ints(q.limbs), total[q.rows, q.cols])
            matrix = q.gather()
            assert (matrix is None) == (comm.rank != 0)
            assert matrix is None or np.array_equal(matrix, symmetric(total))


def test_number_of_nodes_and_bytes_sent(comm, basis, node_comm):
    n = 16
    with pchan.QReduceScatter(comm, n, basis, node_comm=node_comm) as q:
        leader = node_comm.allreduce(comm.rank, MPI.MIN)
        leaders = comm.allgather(leader)
        assert q.n_nodes == len(set(leaders))
        q.start()
        q.wait()
        elements = comm.allgather(len(q.rows))
        elsewhere = [m for m, other in zip(elements, leaders, strict=True) if other != leader]
        sent = node_comm.allgather(q.stats["bytes_sent"])
        assert sum(sent) == 8 * basis.n_words * sum(elsewhere)  # each owner's part leaves the node once
        share = -(-len(elsewhere) // node_comm.size)
        assert max(sent) <= 8 * basis.n_words * share * max(elements)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_all_ranks_add_to_the_same_elements_in_every_form(comm, basis, node_comm, strategy):
    """Overlapping tiles, other representatives and types on every rank, at the same time."""
    n, p = 10, basis.primes.astype(np.int64)[:, None, None]
    ints = random_ints(np.random.default_rng(3), 100, (n, n))
    canonical = basis.residues(ints).astype(np.int64) % p
    forms = [canonical, canonical - p * 2**20, canonical.astype(np.uint32), (canonical + p).astype(float)]
    with pchan.QReduceScatter(comm, n, basis, node_comm=node_comm, strategy=strategy) as q:
        comm.Barrier()
        for k in range(20):
            q.add(0, 0, forms[(comm.rank + k) % 4])
            q.add(2, 3, forms[k % 4][:, 2:7, 3:9])
        q.start()
        q.wait()
        want = 20 * comm.size * ints
        want[2:7, 3:9] *= 2
        assert np.array_equal(pchan.limbs_to_ints(q.limbs), want[q.rows, q.cols])


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("culprit", ["first", "last"])
def test_node_comms_that_do_not_divide_comm_are_an_error_on_all(comm, basis, culprit):
    odd = comm.rank == (0 if culprit == "first" else comm.size - 1)
    cases = [
        (MPI.COMM_SELF if odd else None, "some ranks only"),
        (None if odd else comm, "some ranks only"),
        (MPI.COMM_SELF if odd else comm, "does not divide"),
        (comm if odd else MPI.COMM_SELF, "does not divide"),
    ]
    for node, message in cases:
        with pytest.raises(ValueError, match=message):
            pchan.QReduceScatter(comm, 3, basis, node_comm=node)
    with pchan.QReduceScatter(comm, 3, basis, node_comm=comm) as q:  # all is as before
        q.start()
        q.wait()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_ranks_that_own_nothing_and_add_nothing(comm, basis, node_comm, strategy):
    with pchan.QReduceScatter(
        comm, 1, basis, layout=pchan.PackedRows(), node_comm=node_comm, strategy=strategy
    ) as q:
        for k in (1, -2):
            if comm.rank == comm.size - 1:
                q.add(0, 0, basis.residues([[k * 10**30]]))
            q.start()
            q.wait()
            assert pchan.limbs_to_ints(q.limbs).tolist() in ([], [k * 10**30])
            assert sum(comm.allgather(len(q.limbs))) == 1


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_partial_sum_may_leave_the_range(comm, basis, node_comm, strategy):
    """Each rank adds 2^129 with alternating sign: only the total counts."""
    with pchan.QReduceScatter(comm, 2, basis, node_comm=node_comm, strategy=strategy) as q:
        half = np.full((2, 2), (-1) ** comm.rank * 2**129, dtype=object)
        for _ in range(3):
            q.add(0, 0, basis.residues(half))
        if comm.size % 2:
            q.add(0, 0, basis.residues(-half if comm.rank == 0 else 0 * half))
            q.add(0, 0, basis.residues(-half if comm.rank == 0 else 0 * half))
        q.start()
        q.wait()
        want = 2**129 * (comm.size % 2)
        assert np.all(pchan.limbs_to_ints(q.limbs) == want)
