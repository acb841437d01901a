"""QReduceScatter: what estimate and report tell, custom layouts, and what the checks notice."""

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


def run(q, ints):
    q.add(0, 0, q.basis.residues(ints))
    q.start()
    q.wait()


def layouts(size):
    return [pchan.ElementCyclic(), pchan.PackedRows(), pchan.CustomLayout(lambda i, j: (i * j + i) % size)]


@pytest.mark.parametrize("buffer_bytes", [1000, 1 << 20])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_estimate_is_what_is_held_and_sent(comm, basis, node_comm, strategy, buffer_bytes):
    n = 13
    leaders = comm.allgather(node_comm.allreduce(comm.rank, MPI.MIN))
    nodes = [sorted(set(leaders)).index(leader) for leader in leaders]
    for layout in layouts(comm.size):
        options = {"layout": layout, "strategy": strategy, "buffer_bytes": buffer_bytes}
        estimate = pchan.QReduceScatter.estimate(n, basis, nodes, **options)
        with pchan.QReduceScatter(comm, n, basis, node_comm=node_comm, **options) as q:
            run(q, np.full((n, n), comm.rank, dtype=object))
            assert q.stats["bytes_held"] == estimate.rank_bytes[comm.rank]
            assert q.stats["bytes_sent"] == estimate.sent_bytes[comm.rank]
            assert len(q.rows) == estimate.n_local[comm.rank]
            held = q.limbs.nbytes + q.rows.nbytes + q.cols.nbytes
            assert held == estimate.result_bytes[comm.rank]
            mine = estimate.node_bytes[nodes[comm.rank]]
            assert node_comm.allreduce(held + q.stats["bytes_held"]) == mine
            places = 8 if isinstance(layout, pchan.CustomLayout) else 0
            assert estimate.window_bytes == n * (n + 1) // 2 * (8 * basis.n_words + places)
            assert comm.allreduce(q.stats["bytes_sent"]) == estimate.wire_bytes


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_buffers_stay_within_buffer_bytes(basis, strategy):
    for room in (10_000, 1 << 20):
        options = {"strategy": strategy, "buffer_bytes": room}
        e = pchan.QReduceScatter.estimate(400, basis, [0, 0, 1, 1, 2], **options)
        alone = e.window_bytes / np.array([2, 2, 2, 2, 1])
        lists = 8 * 400 * 401 // 2 if strategy == "ring" else 0
        extra = e.rank_bytes - alone - lists - 100_000  # tables of the layout, counts of MPI
        assert strategy == "gather" or np.all(extra < room)


def test_on_paper_for_the_largest_known_problem():
    """n = 9437 on 2 nodes of 1 rank: more than 2^31 words and residues, nothing of it allocated."""
    n, basis = 9437, pchan.PrimeBasis(2049)
    total = n * (n + 1) // 2
    owned = sum((n - i) // 2 + ((n - i) % 2 > 0) * (i % 2 == 0) for i in range(n))  # even columns
    before = pchan._core.allocation_count()
    for strategy in STRATEGIES:
        e = pchan.QReduceScatter.estimate(n, basis, [0, 1], strategy=strategy)
        assert e.window_bytes == total * 8 * basis.n_words > 2**33
        assert sorted(e.n_local) == sorted([owned, total - owned])
        if strategy == "residues":
            assert e.sent_bytes.tolist() == [8 * basis.n_words * int(m) for m in e.n_local[::-1]]
            assert np.all(e.rank_bytes <= e.window_bytes + (64 << 20) + 8 * 4 * n)
        if strategy == "mpi":
            assert e.wire_bytes == total * 4 * basis.n_primes > 2**34
        assert np.all(e.node_bytes == e.rank_bytes + e.result_bytes)
    assert pchan._core.allocation_count() - before < 200
    # 12 nodes of 128 ranks, at the size of SDPB's published runs: the window is 4 GB a node, not 24
    e = pchan.QReduceScatter.estimate(5485, pchan.PrimeBasis(2049), np.repeat(range(12), 128))
    assert 4.0e9 < e.window_bytes < 4.2e9 and np.all(e.node_bytes < 14e9)
    share = e.wire_bytes / len(e.sent_bytes)
    assert max(e.sent_bytes) <= share + 8 * 34 * max(e.n_local)


def test_wrong_estimates(basis):
    estimate = pchan.QReduceScatter.estimate
    for nodes in ([], [0, 2], [-1, 0], [[0]], [0.5], [1]):
        with pytest.raises(ValueError, match="nodes"):
            estimate(4, basis, nodes)
    for error, changes in [
        (ValueError, {"strategy": "magic"}),
        (ValueError, {"layout": pchan.ElementCyclic((3, 3))}),
        (TypeError, {"layout": 3}),
        (ValueError, {"buffer_bytes": -1}),
    ]:
        with pytest.raises(error):
            estimate(4, basis, [0, 1], **changes)
    with pytest.raises(ValueError, match="too small"):
        estimate(30000, basis, [0, 1], buffer_bytes=1)
    with pytest.raises(ValueError, match="at most 2048 nodes"):
        estimate(4, basis, np.arange(2049), strategy="mpi")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_custom_layouts(comm, basis, node_comm, strategy):
    n, size = 11, comm.size
    triangle = np.add.outer(np.arange(n), np.arange(n) ** 2) % size
    triangle[np.tril_indices(n, -1)] = -1  # not looked at
    owners = {
        "function": (lambda i, j: (i * i + j) % 7 % size, lambda i, j: (i * i + j) % 7 % size),
        "one for all": (lambda i, j: size - 1, lambda i, j: size - 1),
        "array": (triangle, lambda i, j: triangle[i, j]),
    }
    for given, owner_of in owners.values():
        layout = pchan.CustomLayout(given)
        with pchan.QReduceScatter(comm, n, basis, layout=layout, node_comm=node_comm, strategy=strategy) as q:
            mine = [(i, j) for i in range(n) for j in range(i, n) if owner_of(i, j) == comm.rank]
            assert list(zip(q.rows.tolist(), q.cols.tolist(), strict=True)) == mine
            total = random_ints(np.random.default_rng(1), 120, (n, n))
            run(q, total)
            assert np.array_equal(pchan.limbs_to_ints(q.limbs), comm.size * total[q.rows, q.cols])
            matrix = q.gather()
            assert (matrix is None) == (comm.rank != 0)
            assert matrix is None or np.array_equal(matrix, comm.size * symmetric(total))


def test_the_owner_function_is_called_in_parts(comm, basis):
    sizes = []

    def owner(i, j):
        assert i.dtype == j.dtype == np.int64 and np.all(i <= j)
        sizes.append(len(i))
        return np.zeros(len(i), dtype=np.uint8)

    n = 1500
    e = pchan.QReduceScatter.estimate(n, basis, [0, 0], layout=pchan.CustomLayout(owner))
    assert e.n_local.tolist() == [n * (n + 1) // 2, 0] == [sum(sizes), 0]
    assert len(sizes) > 2 and max(sizes) < 2**19


def test_wrong_custom_layouts_are_an_error_on_all(comm, basis):
    def broken(i, j):
        raise KeyError("mine")

    good = pchan.CustomLayout(np.zeros((4, 4), dtype=int))
    cases = [
        (ValueError, r"owner -1 of element \(0, 0\)", np.full((4, 4), -1)),
        (ValueError, f"owner {comm.size} of element", lambda i, j: np.where(i * j == 6, comm.size, 0)),
        (ValueError, "4 x 4", np.zeros((3, 3), dtype=int)),
        (TypeError, "integers", np.zeros((4, 4))),
        (TypeError, "integers", lambda i, j: i == j),
        (ValueError, "shape", lambda i, j: i[1:]),
        ((KeyError, RuntimeError), "mine", broken),
    ]
    for error, message, owner in cases:
        for culprit in {0, comm.size - 1}:
            layout = pchan.CustomLayout(owner) if comm.rank == culprit else good
            with pytest.raises(error, match=message):
                pchan.QReduceScatter(comm, 4, basis, layout=layout)
    if comm.size > 1:
        other = np.zeros((4, 4), dtype=int)
        other[1, 2] = comm.rank == 1
        with pytest.raises(ValueError, match="owners of the layout"):
            pchan.QReduceScatter(comm, 4, basis, layout=pchan.CustomLayout(other))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_report(comm, basis, node_comm, strategy):
    with pchan.QReduceScatter(comm, 9, basis, node_comm=node_comm, strategy=strategy) as q:
        with pytest.raises(pchan.StateError):
            q.report()
        run(q, np.ones((9, 9), dtype=object))
        text = q.report(root=comm.size - 1)
        stats = comm.allgather(q.stats)
        if comm.rank == comm.size - 1:
            title, head, *lines = text.splitlines()
            for part in ("n = 9", f"{comm.size} ranks on {q.n_nodes} nodes", strategy, pchan._core.kernel):
                assert part in title
            assert head.split() == ["min", "mean", "max"]
            names = [line.split()[0] for line in lines]
            assert names == "add pack exchange accumulate restore bytes_sent bytes_held n_local".split()
            seconds = [s["restore_s"] for s in stats]
            row = [float(x) for x in lines[4].split()[2:]]
            assert row == pytest.approx([min(seconds), sum(seconds) / len(seconds), max(seconds)], rel=1e-4)
        else:
            assert text is None
        for wrong in (comm.size, "0"):
            with pytest.raises((TypeError, ValueError)):
                q.report(root=wrong)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_flipped_bit_in_the_window_is_noticed(comm, node_comm, strategy):
    """30 spare bits let one in 10^9 pass. Bit 63, which no word has, may be without effect."""
    basis, n = pchan.PrimeBasis(200, check_bits=30), 3
    with pchan.QReduceScatter(comm, n, basis, node_comm=node_comm, strategy=strategy) as q:
        for bit in range(0, 64, 7):
            q.add(0, 0, basis.residues(np.full((n, n), 12345, dtype=object)))
            comm.Barrier()
            if comm.rank == comm.size - 1:
                q._flip_bit(1, 2, bit % basis.n_words, bit)
            comm.Barrier()
            q.start()
            try:
                q.wait()
                assert bit == 63 and np.all(pchan.limbs_to_ints(q.limbs) == 12345 * comm.size)
            except pchan.RangeError as error:
                assert "(1, 2)" in str(error)
        run(q, np.full((n, n), 7, dtype=object))
        assert np.all(pchan.limbs_to_ints(q.limbs) == 7 * comm.size)
        for wrong in ((2, 1, 0, 0), (0, n, 0, 0), (0, 0, basis.n_words, 0), (0, 0, 0, 64), (-1, 0, 0, 0)):
            with pytest.raises(ValueError):
                q._flip_bit(*wrong)
